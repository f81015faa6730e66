/*
 * page_map.c - one file of a relation, page by page
 */
#include "page_map.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"

#include "allowance.h"
#include "interrupts.h"
#include "kernel/device.h"
#include "kernel/page_cache.h"

/*
 * The advice to evict a dirty page starts its write.  So it is repeated until nothing was evicted
 * for that many rounds.
 */
#define PAUSE_MS 50
#define IDLE_ROUNDS_DIRTY 20
#define IDLE_ROUNDS_UNSEEN 4	/* without cachestat: number of dirty pages unknown */

/* the largest folio of the page cache with pages of 4 KiB */
#define LARGEST_FOLIO (2 * 1024 * 1024)

/* --- files --- */

static void
segment_file_path(const RelationFork *fork, uint32 segment, char *path)
{
	if (segment == 0)
		strlcpy(path, fork->path, MAXPGPATH);
	else
		snprintf(path, MAXPGPATH, "%s.%u", fork->path, segment);
}

bool
open_cached_file(const RelationFork *fork, uint32 segment, CachedFile *file)
{
	struct stat st;

	segment_file_path(fork, segment, file->path);
	file->fd = OpenTransientFile(file->path, O_RDONLY | PG_BINARY);
	if (file->fd < 0 && errno == ENOENT)
		return false;
	if (file->fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", file->path)));
	if (fstat(file->fd, &st) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not stat file \"%s\": %m", file->path)));
	file->size = st.st_size;
	file->pages = (uint32) ((st.st_size + pc_page_size() - 1) / pc_page_size());
	file->cachestat = cachestat_is_honest_for(&fork->id, file->fd);
	return true;
}

/*
 * A later segment after a missing one is an error, because the missing one then is not the
 * relation's end.
 */
static void
check_end(const RelationFork *fork, uint32 missing)
{
	const char *name = strrchr(fork->path, '/') + 1;
	char	   *directory = pnstrdup(fork->path, name - 1 - fork->path);
	size_t		length = strlen(name);
	DIR		   *dir = AllocateDir(directory);
	struct dirent *entry;

	while ((entry = ReadDir(dir, directory)) != NULL)
		if (strncmp(entry->d_name, name, length) == 0 && entry->d_name[length] == '.' &&
			strtoul(entry->d_name + length + 1, NULL, 10) > missing)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("file \"%s.%u\" is missing, but file \"%s/%s\" exists",
							fork->path, missing, directory, entry->d_name)));
	FreeDir(dir);
	pfree(directory);
}

bool
next_cached_file(const RelationFork *fork, uint32 segment, CachedFile *file)
{
	off_t		previous = file->size;

	if (open_cached_file(fork, segment, file))
		return true;
	if (segment == 0 && fork->id.fork == MAIN_FORKNUM)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FILE),
				 errmsg("file \"%s\" does not exist", file->path)));
	/* The relation ends with a segment that is not full, even if a truncation left later files. */
	if (segment > 0 && previous >= (off_t) RELSEG_SIZE * BLCKSZ)
		check_end(fork, segment);
	return false;
}

/* --- looking --- */

uint8 *
new_page_map(const CachedFile *file)
{
	return palloc0(pc_map_bytes(file->pages) + 1);
}

void
look_at_pages(const CachedFile *file, uint8 *map)
{
	uint64_t	resident;
	int			rc;

	CHECK_FOR_INTERRUPTS();
	rc = pc_survey(file->fd, file->pages, (uint32) pc_page_size(),
				   file->cachestat ? PC_CACHESTAT_COLD : PC_MINCORE, map, &resident);
	if (rc != 0)
		report_kernel_error(rc, "could not read the residency of file \"%s\": %m", file->path);
}

int64
count_page_groups(const uint8 *map, uint32 pages)
{
	int64		groups = 0;

	for (uint32 i = pc_next(map, pages, 0, true); i < pages; i = pc_next(map, pages, i, true))
	{
		i = pc_next(map, pages, i, false);
		groups++;
	}
	return groups;
}

/*
 * The kernel only counts dirty pages of a range, so a range that is partly dirty is halved.  False
 * where it does not support that.
 */
static bool
count_dirty_range(const CachedFile *file, uint32 from, uint32 pages, DirtyPages *dirty)
{
	struct pc_stat st;
	uint64		most;

	if (pages == 0)
		return true;
	if (pages > 4096)
		CHECK_FOR_INTERRUPTS();
	if (!file->cachestat ||
		pc_cachestat(file->fd, (uint64) from * pc_page_size(), (uint64) pages * pc_page_size(),
					 &st) != 0)
		return false;
	/* a page can be both dirty and under writeback, when it is changed while it is written */
	most = Max(st.dirty, st.writeback);
	if (most == 0)
		dirty->in_group = false;
	else if (most >= pages || pages == 1)
	{
		dirty->groups += !dirty->in_group;
		dirty->in_group = true;
		dirty->pages += pages;
	}
	else
		return count_dirty_range(file, from, pages / 2, dirty) &&
			count_dirty_range(file, from + pages / 2, pages - pages / 2, dirty);
	return true;
}

bool
count_dirty_pages(const CachedFile *file, DirtyPages *dirty)
{
	*dirty = (DirtyPages) {0};
	return count_dirty_range(file, 0, file->pages, dirty);
}

/* counts the dirty pages in the map; -1 where the kernel does not report them */
static int64
count_dirty_of(const CachedFile *file, const uint8 *map)
{
	DirtyPages	dirty = {0};

	for (uint32 i = pc_next(map, file->pages, 0, true); i < file->pages;
		 i = pc_next(map, file->pages, i, true))
	{
		uint32		to = pc_next(map, file->pages, i, false);

		if (!count_dirty_range(file, i, to - i, &dirty))
			return -1;
		i = to;
	}
	return dirty.pages;
}

/* --- loading --- */

static uint32
load_wait_event(void)
{
	return compat_wait_event("ResidencyLoad");
}

/*
 * The number of pages that this statement may still add to the page cache.  The budget is measured
 * once for a statement: the pages loaded for the first of many segments are file cache, which the
 * kernel counts as available, so a second measurement would not deduct them.
 */
static uint64 *
statement_budget(void)
{
	static TimestampTz measured_for = 0;
	static uint64 budget;

	if (measured_for != GetCurrentStatementStartTimestamp())
	{
		budget = restore_budget() / pc_page_size();
		measured_for = GetCurrentStatementStartTimestamp();
	}
	return &budget;
}

/* a &= ~b */
static void
clear_pages(uint8 *a, const uint8 *b, uint32 pages)
{
	for (size_t i = 0; i < pc_map_bytes(pages); i++)
		a[i] &= (uint8) ~b[i];
}

/*
 * Loads the pages of `need`, and clears them there.  A load may take minutes, and other processes
 * wait for this session meanwhile: DROP DATABASE for a barrier, recovery for the end of a
 * conflicting query.  So an interrupt stops the load, which unmaps the file.  Pages requested by
 * then still arrive.
 */
static void
load_needed(const CachedFile *file, uint8 *need)
{
	uint32		wait_event = load_wait_event();
	uint8	   *now = new_page_map(file);
	struct pc_loader loader = {
		.block_size = (uint32) pc_page_size(), .request_bytes = pc_gentle.request_bytes,
		.window = &pc_gentle, .use_cachestat = file->cachestat,
		.wait = session_wait, .blocked = session_blocked, .arg = &wait_event
	};
	struct stat st;
	int			rc;

	if (fstat(file->fd, &st) == 0)
		loader.request_bytes = pc_device_request_bytes(st.st_dev);
	while ((rc = pc_load(file->fd, need, file->pages, &loader)) == PC_STOPPED)
	{
		look_at_pages(file, now);	/* checks for interrupts */
		clear_pages(need, now, file->pages);
	}
	CHECK_FOR_INTERRUPTS();
	if (rc < 0)
		report_kernel_error(rc, "could not read file \"%s\": %m", file->path);
	pfree(now);
}

/*
 * Clears the pages beyond the budget from the map, and returns their number.  Pages that were
 * resident before need no additional memory.
 */
static int64
keep_within_budget(uint8 *need, const uint8 *before, uint32 pages, uint64 budget)
{
	int64		over_budget = 0;

	for (uint32 i = pc_next(need, pages, 0, true); i < pages; i = pc_next(need, pages, i + 1, true))
	{
		if (pc_bit(before, i))
			continue;
		if (budget > 0)
			budget--;
		else
		{
			pc_clear(need, i);
			over_budget++;
		}
	}
	return over_budget;
}

int64
load_pages(const CachedFile *file, const uint8 *want, const uint8 *before, const uint8 *keep)
{
	size_t		bytes = pc_map_bytes(file->pages);
	uint64	   *budget = statement_budget();
	uint8	   *now = new_page_map(file);
	uint8	   *need = new_page_map(file);
	int64		over_budget = 0;
	int64		lacking;
	int64		loaded = 0;

	/* the second attempt is for pages reclaimed while the others were loaded */
	for (int attempt = 1; attempt <= 2; attempt++)
	{
		look_at_pages(file, now);
		memcpy(need, want, bytes);
		clear_pages(need, now, file->pages);
		over_budget = keep_within_budget(need, before, file->pages, *budget);
		if (keep != NULL)
			for (size_t i = 0; i < bytes; i++)
				need[i] |= keep[i] & (uint8) ~now[i];
		if (pc_next(need, file->pages, 0, true) == file->pages)
			break;
		load_needed(file, need);
	}

	look_at_pages(file, now);
	for (size_t i = 0; i < bytes; i++)
		need[i] = want[i] & now[i] & (uint8) ~before[i];
	loaded = (int64) pc_popcount(need, file->pages);
	*budget -= Min((uint64) loaded, *budget);
	memcpy(need, want, bytes);
	clear_pages(need, now, file->pages);
	lacking = (int64) pc_popcount(need, file->pages);
	if (lacking > 0)
		ereport(WARNING,
				(errmsg("%lld of %lld wanted pages of file \"%s\" are not in the page cache",
						(long long) lacking, (long long) pc_popcount(want, file->pages),
						file->path),
				 over_budget > 0 ? errdetail("The memory budget is exhausted; see residency_budget().")
				 : errdetail("The kernel reclaimed the pages after they were read.")));
	pfree(now);
	pfree(need);
	return loaded;
}

/* --- evicting --- */

static void
advise_to_drop(const CachedFile *file, const uint8 *map)
{
	int			rc = pc_evict_blocks(file->fd, map, file->pages, (uint32) pc_page_size());

	if (rc != 0)
		report_kernel_error(rc, "could not evict file \"%s\": %m", file->path);
}

void
evict_pages(const CachedFile *file, const uint8 *drop, uint8 *stay)
{
	int64		previous = -1;

	for (int idle = 0;;)
	{
		int64		remaining;
		int64		dirty;

		advise_to_drop(file, drop);
		look_at_pages(file, stay);
		for (size_t i = 0; i < pc_map_bytes(file->pages); i++)
			stay[i] &= drop[i];
		remaining = (int64) pc_popcount(stay, file->pages);
		dirty = count_dirty_of(file, stay);
		idle = previous < 0 || remaining < previous ? 0 : idle + 1;
		if (remaining == 0 || dirty == 0 ||
			idle >= (dirty < 0 ? IDLE_ROUNDS_UNSEEN : IDLE_ROUNDS_DIRTY))
			return;
		previous = remaining;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, PAUSE_MS,
						 load_wait_event());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

void
evict_whole_folios(const CachedFile *file, uint8 *stay)
{
	uint32		folio = Max(LARGEST_FOLIO / (uint32) pc_page_size(), 1);
	bool		any = false;

	for (uint32 from = 0; from < file->pages; from += folio)
	{
		uint32		to = Min(from + folio, file->pages);

		if (pc_next(stay, to, from, true) >= to)
			continue;
		any = true;
		for (uint32 i = from; i < to; i++)
			pc_set(stay, i);
	}
	if (any)
		advise_to_drop(file, stay);
}
