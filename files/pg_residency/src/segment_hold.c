/*
 * segment_hold.c - one file whose blocks are held in the page cache
 */
#include "segment_hold.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "utils/memutils.h"

#include "kernel/page_cache.h"

/* open(2) rather than OpenTransientFile(), which raises errors: a descriptor is closed at once */
static int
open_file(const SegmentId *id, struct stat *st)
{
	char		path[MAXPGPATH];
	int			fd;

	segment_path(id, path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0 && fstat(fd, st) == 0 && S_ISREG(st->st_mode))
		return fd;
	if (fd >= 0)
	{
		close(fd);
		errno = EINVAL;
	}
	return -errno;
}

static int
survey(const HeldSegment *held, int fd, uint8 *resident)
{
	uint64		count;

	/* cachestat(2) also counts what others are still reading: that need not be brought back */
	return pc_survey(fd, held->blocks, BLCKSZ, held->cachestat ? PC_CACHESTAT : PC_MINCORE,
					 resident, &count);
}

void
hold_release(HeldSegment *held)
{
	pc_release(&held->mapping);
	if (held->map != NULL)
		pfree(held->map);
	if (held->back != NULL)
		pfree(held->back);
	held->map = held->back = NULL;
	held->held = held->missing = held->again = 0;
}

static bool
is_file_of(const HeldSegment *held, const struct stat *st)
{
	return st->st_dev == held->device && st->st_ino == held->inode && st->st_nlink > 0;
}

bool
hold_is_dropped(const HeldSegment *held)
{
	char		path[MAXPGPATH];
	struct stat st;

	segment_path(&held->id, path);
	return stat(path, &st) == 0 ? !is_file_of(held, &st) : errno == ENOENT;
}

int
hold_begin(HeldSegment *held, const struct sf_segment *segment, uint8 *map, HoldScratch *scratch)
{
	struct stat st;
	int			fd;
	int			rc;

	memset(held, 0, sizeof(*held));
	held->id = segment_id_of(segment);
	held->map = map;
	fd = open_file(&held->id, &st);
	if (fd < 0 || sf_read_map(segment, map) != NULL)
	{
		if (fd >= 0)
			close(fd);
		hold_release(held);
		held->begun = fd == -ENOENT;
		return fd == -ENOENT ? 0 : fd < 0 ? fd : -EINVAL;
	}
	held->device = st.st_dev;
	held->inode = st.st_ino;
	held->blocks = (uint32) Min(st.st_size / BLCKSZ, segment->blocks);
	held->cachestat = cachestat_is_honest_for(&held->id, fd);
	rc = survey(held, fd, scratch->resident);
	close(fd);
	if (rc != 0)
	{
		hold_release(held);
		return rc;
	}
	for (size_t i = 0; i < pc_map_bytes(held->blocks); i++)
		map[i] &= scratch->resident[i];
	held->begun = true;
	held->held = (int64) pc_popcount(map, held->blocks);
	if (held->held == 0)
		hold_release(held);
	return 0;
}

/* -1: it is not held any more */
static int
open_held(HeldSegment *held, int *rc)
{
	struct stat st;
	int			fd;

	*rc = 0;
	if (held->map == NULL)
		return -1;
	fd = open_file(&held->id, &st);
	*rc = fd < 0 && fd != -ENOENT ? fd : 0;
	if (fd >= 0 && is_file_of(held, &st))
	{
		held->blocks = (uint32) Min(st.st_size / BLCKSZ, held->blocks);
		held->held = (int64) pc_popcount(held->map, held->blocks);
		if (held->held > 0)
			return fd;
	}
	if (fd >= 0)
		close(fd);
	if (*rc == 0)
		hold_release(held);
	return -1;
}

static void
find_missing(HeldSegment *held, HoldScratch *scratch)
{
	for (size_t i = 0; i < pc_map_bytes(held->blocks); i++)
	{
		scratch->missing[i] = held->map[i] & (uint8) ~scratch->resident[i];
		scratch->resident[i] &= held->map[i];
	}
	held->missing = (int64) pc_popcount(scratch->missing, held->blocks);
}

/* counts in `again` what the last load brought back and is missing, and forgets that load */
static void
judge_last_load(HeldSegment *held, const HoldScratch *scratch)
{
	held->again = 0;
	if (held->back == NULL)
		return;
	for (size_t i = 0; i < pc_map_bytes(held->blocks); i++)
		held->back[i] &= scratch->missing[i];
	held->again = (int64) pc_popcount(held->back, held->blocks);
	pfree(held->back);
	held->back = NULL;
}

static void
note_load(HeldSegment *held, const HoldScratch *scratch)
{
	if (held->back == NULL)
		held->back = MemoryContextAllocZero(GetMemoryChunkContext(held->map),
											pc_map_bytes(held->blocks));
	for (size_t i = 0; i < pc_map_bytes(held->blocks); i++)
		held->back[i] |= scratch->requested[i];
}

int
hold_count(HeldSegment *held, HoldScratch *scratch, uint32 most_tables, uint64 most)
{
	int			rc;
	int			fd = open_held(held, &rc);

	if (fd < 0)
		return rc;
	rc = survey(held, fd, scratch->resident);
	if (rc == 0)
	{
		find_missing(held, scratch);
		judge_last_load(held, scratch);
		rc = pc_hold(&held->mapping, fd, scratch->resident, held->blocks, BLCKSZ, most_tables,
					 most);
		/* a kernel that cannot do it, or no address space: what is not mapped is counted */
		if (rc == -EINVAL || rc == -ENOMEM)
			rc = 0;
	}
	close(fd);
	return rc;
}

int
hold_load(HeldSegment *held, HoldScratch *scratch, RestoreControl *control, int64 most,
		  int64 *loaded)
{
	int			rc;
	int			loading;
	int			fd = open_held(held, &rc);
	Device	   *device = device_numbered(&control->devices, held->device);
	struct pc_file file;
	struct pc_loader loader = {.block_size = BLCKSZ,
							   .request_bytes = device->request_bytes,
							   .window = control->window,
							   .use_cachestat = held->cachestat,
							   .pace = &control->allowance.pace,
							   .wait = control->wait,
							   .blocked = control->blocked,
							   .progress = control->progress,
							   .arg = control->arg};

	*loaded = 0;
	if (fd < 0)
		return rc;
	memset(scratch->requested, 0, pc_map_bytes(held->blocks));
	for (uint32 b = pc_next(scratch->missing, held->blocks, 0, true); b < held->blocks && most > 0;
		 b = pc_next(scratch->missing, held->blocks, b + 1, true), most--)
		pc_set(scratch->requested, b);
	/* with what is known of the device; an earlier load may have been stopped for its segment */
	device->flight.stopped = false;
	loading = pc_start(&file, fd, scratch->requested, held->blocks, &loader);
	if (loading == 0)
		loading = pc_finish(&device->flight, &file);
	rc = survey(held, fd, scratch->resident);
	close(fd);
	if (rc == 0)
	{
		find_missing(held, scratch);
		for (size_t i = 0; i < pc_map_bytes(held->blocks); i++)
			scratch->requested[i] &= scratch->resident[i];
		*loaded = (int64) pc_popcount(scratch->requested, held->blocks);
		if (*loaded > 0)
			note_load(held, scratch);
	}
	return loading != 0 ? loading : rc;
}
