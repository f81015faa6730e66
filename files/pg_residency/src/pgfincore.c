/*
 * pgfincore.c - the functions of the extension pgfincore, as they are written in everybody's scripts
 *
 * Here the unit is the kernel's page, not PostgreSQL's block: a map has one bit for each, first page first.  A file is
 * one segment of one fork.  Whatever is said to have been loaded or unloaded was seen to come or go.
 */
#include "pg_residency.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/varbit.h"

#include "allowance.h"
#include "interrupts.h"
#include "kernel/page_cache.h"
#include "segments.h"

#include "kernel/device.h"

#define ADVISE_WILLNEED 10
#define ADVISE_DONTNEED 20
#define ADVISE_NORMAL 30
#define ADVISE_SEQUENTIAL 40
#define ADVISE_RANDOM 50

/* advice to drop a dirty page starts writing it: it is repeated until nothing went for that many rounds */
#define PAUSE_MS 50
#define IDLE_ROUNDS_DIRTY 20
#define IDLE_ROUNDS_UNSEEN 4	/* without cachestat, when nothing may be dirty at all */

/* no folio of the page cache is larger, where a page has 4 KiB */
#define LARGEST_FOLIO (2 * 1024 * 1024)

/* a fork of a relation that has files */
typedef struct Fork
{
	SegmentId	id;				/* tells its directory; a temporary relation's file has another name */
	char	   *path;			/* of segment 0 */
} Fork;

typedef struct CachedFile
{
	char		path[MAXPGPATH];
	int			fd;
	off_t		size;
	uint32		pages;
	bool		cachestat;		/* can be believed */
} CachedFile;

typedef struct Dirty
{
	int64		pages;
	int64		groups;
	bool		in_group;
} Dirty;

/* --- which files --- */

/* Looking at a relation's pages, or moving them, is for who may read it; of an index, who may read its table. */
static void
check_may_read(Oid relid, char kind)
{
	Oid			table = kind == RELKIND_INDEX || kind == RELKIND_PARTITIONED_INDEX ? IndexGetRelation(relid, true) : relid;
	AclResult	result = OidIsValid(table) ? pg_class_aclcheck(table, GetUserId(), ACL_SELECT) : ACLCHECK_NO_PRIV;

	if (result != ACLCHECK_OK)
		aclcheck_error(result, get_relkind_objtype(kind), get_rel_name(relid));
}

static List *
add_fork(List *forks, Oid relid, ForkNumber fork)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);

	if (rel == NULL)
		return forks;			/* a partition dropped meanwhile */
	if (RELKIND_HAS_STORAGE(rel->rd_rel->relkind))
	{
		Fork	   *f = palloc0(sizeof(Fork));

		f->id = (SegmentId) {compat_tablespace(rel), compat_database(rel), compat_relfilenumber(rel), fork, 0};
		f->path = compat_relation_path(rel, fork);
		forks = lappend(forks, f);
	}
	/* locked to the end of the transaction, as by every reader: these files stay the relation's */
	relation_close(rel, NoLock);
	return forks;
}

/*
 * The files that a relation means: its own, and those of the partitions of one that is partitioned (unless the caller
 * can do with a single file only).  A fork that it has not is no file.
 */
static List *
relation_forks(Oid relid, ForkNumber fork, bool one_file)
{
	char		kind = get_rel_relkind(relid);
	bool		partitioned = kind == RELKIND_PARTITIONED_TABLE || kind == RELKIND_PARTITIONED_INDEX;
	List	   *forks = NIL;
	ListCell   *cell;

	if (kind == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("there is no relation with OID %u", relid)));
	check_may_read(relid, kind);
	if (!RELKIND_HAS_STORAGE(kind) && (!partitioned || one_file))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" has no files that could be cached", get_rel_name(relid)),
				 errdetail_relkind_not_supported(kind),
				 partitioned ? errhint("Name one of its partitions.") : 0));
	if (!partitioned)
		return add_fork(NIL, relid, fork);
	foreach(cell, find_all_inheritors(relid, AccessShareLock, NULL))
		forks = add_fork(forks, lfirst_oid(cell), fork);
	return forks;
}

static void
segment_file_path(const Fork *fork, uint32 segment, char *path)
{
	if (segment == 0)
		strlcpy(path, fork->path, MAXPGPATH);
	else
		snprintf(path, MAXPGPATH, "%s.%u", fork->path, segment);
}

/* False when there is no such file; any other failure is an error, for it must never pass for the relation's end. */
static bool
open_file(const Fork *fork, uint32 segment, CachedFile *file)
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

/* Is there a file of the fork behind that segment?  An error then: the missing one is not the relation's end. */
static void
check_end(const Fork *fork, uint32 missing)
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
					 errmsg("file \"%s.%u\" is missing, but there is \"%s/%s\"", fork->path, missing, directory, entry->d_name)));
	FreeDir(dir);
	pfree(directory);
}

/* the next of the fork's files, the first with segment 0; false after the last */
static bool
next_file(const Fork *fork, uint32 segment, CachedFile *file)
{
	off_t		previous = file->size;

	if (open_file(fork, segment, file))
		return true;
	if (segment == 0 && fork->id.fork == MAIN_FORKNUM)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FILE),
				 errmsg("file \"%s\" is missing", file->path)));
	/* behind a segment that is not full the relation ends, whatever a truncation may have left there */
	if (segment > 0 && previous >= (off_t) RELSEG_SIZE * BLCKSZ)
		check_end(fork, segment);
	return false;
}

/* --- looking --- */

static uint8 *
new_map(const CachedFile *file)
{
	return palloc0(pc_map_bytes(file->pages) + 1);
}

/* which pages are resident */
static void
look(const CachedFile *file, uint8 *map)
{
	struct pc_stat st;
	int			rc = 0;

	CHECK_FOR_INTERRUPTS();
	memset(map, 0, pc_map_bytes(file->pages));
	if (file->cachestat && pc_cachestat(file->fd, 0, 0, &st) == 0 && st.cached == 0)
		return;
	rc = pc_map(file->fd, file->pages, (uint32) pc_page_size(), map);
	if (rc != 0)
		report_kernel_error(rc, "look at the pages of", file->path);
}

static int64
count_groups(const uint8 *map, uint32 pages)
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
 * Counts the pages not yet written, or on their way, and their groups.  The kernel only counts within a range, so a
 * range that is neither clean nor all dirty is halved.  False where it does not tell.
 */
static bool
count_dirty(const CachedFile *file, uint32 from, uint32 pages, Dirty *dirty)
{
	struct pc_stat st;
	uint64		most;

	if (pages == 0)
		return true;
	if (pages > 4096)
		CHECK_FOR_INTERRUPTS();
	if (!file->cachestat ||
		pc_cachestat(file->fd, (uint64) from * pc_page_size(), (uint64) pages * pc_page_size(), &st) != 0)
		return false;
	/* a page can be both, when it was changed again while it is being written */
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
		return count_dirty(file, from, pages / 2, dirty) &&
			count_dirty(file, from + pages / 2, pages - pages / 2, dirty);
	return true;
}

static Datum
varbit_datum(const uint8 *map, uint32 pages)
{
	VarBit	   *bits = palloc0(VARBITTOTALLEN(pages));

	SET_VARSIZE(bits, VARBITTOTALLEN(pages));
	VARBITLEN(bits) = (int32) pages;
	for (uint32 i = pc_next(map, pages, 0, true); i < pages; i = pc_next(map, pages, i + 1, true))
		VARBITS(bits)[i / BITS_PER_BYTE] |= (uint8) (HIGHBIT >> (i % BITS_PER_BYTE));
	return VarBitPGetDatum(bits);
}

static bool
varbit_at(const VarBit *bits, uint32 i)
{
	return (VARBITS(bits)[i / BITS_PER_BYTE] & (HIGHBIT >> (i % BITS_PER_BYTE))) != 0;
}

static int64
free_pages(void)
{
	return (int64) sysconf(_SC_AVPHYS_PAGES);
}

/* --- changing --- */

static uint32
load_wait_event(void)
{
	return compat_wait_event("ResidencyLoad");
}

/*
 * What this statement may still add to the page cache, in pages.  It is measured once for the whole statement: what
 * was loaded for the first of many segments is cache, which makes room, and so would be found free again for the last.
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

static void
load_pages(const CachedFile *file, const uint8 *need)
{
	uint32		wait_event = load_wait_event();
	struct pc_loader loader = {
		.block_size = (uint32) pc_page_size(), .request_bytes = pc_gentle.request_bytes, .window = &pc_gentle,
		.use_cachestat = file->cachestat, .wait = session_wait, .blocked = session_blocked, .arg = &wait_event
	};
	struct stat st;
	int			rc;

	if (fstat(file->fd, &st) == 0)
		loader.request_bytes = pc_device_request_bytes(st.st_dev);
	rc = pc_load(file->fd, need, file->pages, &loader);
	CHECK_FOR_INTERRUPTS();
	if (rc < 0)
		report_kernel_error(rc, "read", file->path);
}

/*
 * Brings the wanted pages in, within the budget, and returns how many came: `before` is what was resident when the
 * statement found the file.  What was resident then and is not wanted to go (`keep`, or NULL) comes back as well.
 */
static int64
load(const CachedFile *file, const uint8 *want, const uint8 *before, const uint8 *keep)
{
	size_t		bytes = pc_map_bytes(file->pages);
	uint64	   *budget = statement_budget();
	uint8	   *now = new_map(file);
	uint8	   *need = new_map(file);
	int64		over_budget = 0;
	int64		lacking;
	int64		loaded = 0;

	/* once more for what was evicted while the rest came in */
	for (int attempt = 1; attempt <= 2; attempt++)
	{
		uint64		left = *budget;

		look(file, now);
		over_budget = 0;
		for (size_t i = 0; i < bytes; i++)
			need[i] = want[i] & (uint8) ~now[i];
		for (uint32 i = pc_next(need, file->pages, 0, true); i < file->pages; i = pc_next(need, file->pages, i + 1, true))
		{
			/* what was resident before takes no more memory than it did */
			if (pc_bit(before, i) || left > 0)
				left -= !pc_bit(before, i);
			else
			{
				pc_clear(need, i);
				over_budget++;
			}
		}
		if (keep != NULL)
			for (size_t i = 0; i < bytes; i++)
				need[i] |= keep[i] & (uint8) ~now[i];
		if (pc_next(need, file->pages, 0, true) == file->pages)
			break;
		load_pages(file, need);
	}

	look(file, now);
	for (size_t i = 0; i < bytes; i++)
		need[i] = want[i] & now[i] & (uint8) ~before[i];
	loaded = (int64) pc_popcount(need, file->pages);
	*budget -= Min((uint64) loaded, *budget);
	for (size_t i = 0; i < bytes; i++)
		need[i] = want[i] & (uint8) ~now[i];
	lacking = (int64) pc_popcount(need, file->pages);
	if (lacking > 0)
		ereport(WARNING,
				(errmsg("%lld of %lld wanted pages of \"%s\" are not in the page cache",
						(long long) lacking, (long long) pc_popcount(want, file->pages), file->path),
				 over_budget > 0 ? errdetail("There is no memory for more: see residency_budget().")
				 : errdetail("They were read, but evicted again.")));
	pfree(now);
	pfree(need);
	return loaded;
}

/* the dirty pages of those; -1 where the kernel does not tell */
static int64
count_dirty_of(const CachedFile *file, const uint8 *map)
{
	Dirty		dirty = {0};

	for (uint32 i = pc_next(map, file->pages, 0, true); i < file->pages; i = pc_next(map, file->pages, i, true))
	{
		uint32		to = pc_next(map, file->pages, i, false);

		if (!count_dirty(file, i, to - i, &dirty))
			return -1;
		i = to;
	}
	return dirty.pages;
}

static void
evict_pages(const CachedFile *file, const uint8 *map)
{
	int			rc = pc_evict_blocks(file->fd, map, file->pages, (uint32) pc_page_size());

	if (rc != 0)
		report_kernel_error(rc, "evict", file->path);
}

/*
 * Takes the pages out and leaves in `stay` those that did not go.  Dirty ones go when they have been written, which
 * the advice itself starts; never a sync of ours, it could swallow a write error that the checkpointer must see.
 */
static void
evict(const CachedFile *file, const uint8 *drop, uint8 *stay)
{
	int64		previous = -1;

	for (int idle = 0;;)
	{
		int64		remaining;
		int64		dirty;

		evict_pages(file, drop);
		look(file, stay);
		for (size_t i = 0; i < pc_map_bytes(file->pages); i++)
			stay[i] &= drop[i];
		remaining = (int64) pc_popcount(stay, file->pages);
		dirty = count_dirty_of(file, stay);
		idle = previous < 0 || remaining < previous ? 0 : idle + 1;
		if (remaining == 0 || dirty == 0 || idle >= (dirty < 0 ? IDLE_ROUNDS_UNSEEN : IDLE_ROUNDS_DIRTY))
			return;
		previous = remaining;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, PAUSE_MS, load_wait_event());
		ResetLatch(MyLatch);
	}
}

/*
 * A page in a folio with others goes only with all of them, and a file read from its beginning to its end is cached in
 * folios of up to 2 MiB: so what is left around the pages that stayed goes too.  The caller loads it again.
 */
static void
evict_folios(const CachedFile *file, uint8 *stay)
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
		evict_pages(file, stay);
}

/* --- what users call --- */

PG_FUNCTION_INFO_V1(residency_pgsysconf);
Datum
residency_pgsysconf(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc = result_row(fcinfo, 3);
	Datum		values[3];
	bool		nulls[3] = {false};

	values[0] = Int64GetDatum((int64) pc_page_size());
	values[1] = Int64GetDatum(free_pages());
	values[2] = Int64GetDatum((int64) sysconf(_SC_PHYS_PAGES));
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls));
}

PG_FUNCTION_INFO_V1(residency_pgfincore);
Datum
residency_pgfincore(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo;
	bool		with_map;
	ListCell   *cell;

	need_argument(fcinfo, 0, "the relation");
	need_argument(fcinfo, 1, "the fork");
	need_argument(fcinfo, 2, "getdatabit");
	with_map = PG_GETARG_BOOL(2);
	rsinfo = result_set(fcinfo, 10);
	foreach(cell, relation_forks(PG_GETARG_OID(0), forkname_to_number(text_to_cstring(PG_GETARG_TEXT_PP(1))), false))
	{
		const Fork *fork = lfirst(cell);
		CachedFile	file = {.size = 0};

		for (uint32 segment = 0; next_file(fork, segment, &file); segment++)
		{
			uint8	   *map = new_map(&file);
			Dirty		dirty = {0};
			Datum		values[10];
			bool		nulls[10] = {false};

			look(&file, map);
			values[0] = CStringGetTextDatum(file.path);
			values[1] = Int32GetDatum((int32) segment);
			values[2] = Int64GetDatum((int64) pc_page_size());
			values[3] = Int64GetDatum((int64) file.pages);
			values[4] = Int64GetDatum((int64) pc_popcount(map, file.pages));
			values[5] = Int64GetDatum(count_groups(map, file.pages));
			values[6] = Int64GetDatum(free_pages());
			nulls[7] = !with_map;
			values[7] = with_map ? varbit_datum(map, file.pages) : (Datum) 0;
			nulls[8] = nulls[9] = !count_dirty(&file, 0, file.pages, &dirty);
			values[8] = Int64GetDatum(dirty.pages);
			values[9] = Int64GetDatum(dirty.groups);
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
			if (with_map)
				pfree(DatumGetPointer(values[7]));
			pfree(map);
			CloseTransientFile(file.fd);
		}
	}
	return (Datum) 0;
}

/* a whole file in or out */
static void
advise(const CachedFile *file, int action)
{
	uint8	   *all = new_map(file);
	uint8	   *map = new_map(file);

	for (uint32 i = 0; i < file->pages; i++)
		pc_set(all, i);
	if (action == ADVISE_WILLNEED)
	{
		look(file, map);
		load(file, all, map, NULL);
	}
	else if (action == ADVISE_DONTNEED)
	{
		evict(file, all, map);
		if (pc_popcount(map, file->pages) > 0)
			ereport(NOTICE,
					(errmsg("%lld of %u pages of \"%s\" stay in the page cache",
							(long long) pc_popcount(map, file->pages), file->pages, file->path),
					 errhint("Pages that are not yet written, or in use, cannot go: try again after a CHECKPOINT.")));
	}
	/* the others are hints to the kernel that end with the file's closing: nobody would notice them */
	pfree(all);
	pfree(map);
}

PG_FUNCTION_INFO_V1(residency_pgfadvise);
Datum
residency_pgfadvise(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo;
	int			action;
	ListCell   *cell;

	need_argument(fcinfo, 0, "the relation");
	need_argument(fcinfo, 1, "the fork");
	need_argument(fcinfo, 2, "the action");
	action = PG_GETARG_INT32(2);
	if (action != ADVISE_WILLNEED && action != ADVISE_DONTNEED && action != ADVISE_NORMAL &&
		action != ADVISE_SEQUENTIAL && action != ADVISE_RANDOM)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there is no action %d", action),
				 errhint("There are 10 (WILLNEED), 20 (DONTNEED), 30 (NORMAL), 40 (SEQUENTIAL) and 50 (RANDOM).")));
	rsinfo = result_set(fcinfo, 4);
	foreach(cell, relation_forks(PG_GETARG_OID(0), forkname_to_number(text_to_cstring(PG_GETARG_TEXT_PP(1))), false))
	{
		const Fork *fork = lfirst(cell);
		CachedFile	file = {.size = 0};

		for (uint32 segment = 0; next_file(fork, segment, &file); segment++)
		{
			Datum		values[4];
			bool		nulls[4] = {false};

			advise(&file, action);
			values[0] = CStringGetTextDatum(file.path);
			values[1] = Int64GetDatum((int64) pc_page_size());
			values[2] = Int64GetDatum((int64) file.pages);
			values[3] = Int64GetDatum(free_pages());
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
			CloseTransientFile(file.fd);
		}
	}
	return (Datum) 0;
}

/* makes the page cache hold what the map says of the file; counts in pages */
static void
apply_map(const CachedFile *file, const VarBit *bits, bool in, bool out, int64 *loaded, int64 *unloaded)
{
	size_t		bytes = pc_map_bytes(file->pages);
	uint32		pages = Min((uint32) VARBITLEN(bits), file->pages);
	uint8	   *want = new_map(file);
	uint8	   *drop = new_map(file);
	uint8	   *before = new_map(file);
	uint8	   *after = new_map(file);

	if ((uint32) VARBITLEN(bits) > file->pages)
		ereport(WARNING,
				(errmsg("the map has %d pages, but \"%s\" has %u: what is beyond is ignored",
						VARBITLEN(bits), file->path, file->pages),
				 errhint("The relation was truncated or rewritten since the map was made, which then may be wrong altogether.")));
	for (uint32 i = 0; i < pages; i++)
		if (!varbit_at(bits, i) && out)
			pc_set(drop, i);
		else if (varbit_at(bits, i) && in)
			pc_set(want, i);

	look(file, before);
	if (out)
	{
		uint8	   *keep = new_map(file);

		for (size_t i = 0; i < bytes; i++)
			keep[i] = before[i] & (uint8) ~drop[i];
		evict(file, drop, after);
		evict_folios(file, after);
		*loaded = load(file, want, before, keep);
		pfree(keep);
	}
	else
		*loaded = load(file, want, before, NULL);

	look(file, after);
	for (size_t i = 0; i < bytes; i++)
		drop[i] &= before[i] & (uint8) ~after[i];
	*unloaded = (int64) pc_popcount(drop, file->pages);
	pfree(want);
	pfree(drop);
	pfree(before);
	pfree(after);
}

PG_FUNCTION_INFO_V1(residency_pgfadvise_loader);
Datum
residency_pgfadvise_loader(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo;
	const Fork *fork;
	CachedFile	file = {.size = 0};
	int			segment;
	int64		loaded = 0;
	int64		unloaded = 0;
	Datum		values[5];
	bool		nulls[5] = {false};

	need_argument(fcinfo, 0, "the relation");
	need_argument(fcinfo, 1, "the fork");
	need_argument(fcinfo, 2, "the segment");
	need_argument(fcinfo, 3, "load");
	need_argument(fcinfo, 4, "unload");
	segment = PG_GETARG_INT32(2);
	rsinfo = result_set(fcinfo, 5);
	fork = linitial(relation_forks(PG_GETARG_OID(0), forkname_to_number(text_to_cstring(PG_GETARG_TEXT_PP(1))), true));
	if (segment < 0 || !open_file(fork, (uint32) segment, &file))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FILE),
				 errmsg("fork \"%s\" of \"%s\" has no segment %d", forkNames[fork->id.fork], get_rel_name(PG_GETARG_OID(0)), segment)));
	if (!PG_ARGISNULL(5))
		apply_map(&file, PG_GETARG_VARBIT_P(5), PG_GETARG_BOOL(3), PG_GETARG_BOOL(4), &loaded, &unloaded);
	else if (file.pages > 0)
		/* scripts know the words; pgfincore itself leaves NULL as the map of an empty segment, and there it means that */
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("pgfadvise_loader: databit argument shouldn't be NULL")));
	values[0] = CStringGetTextDatum(file.path);
	values[1] = Int64GetDatum((int64) pc_page_size());
	values[2] = Int64GetDatum(free_pages());
	values[3] = Int64GetDatum(loaded);
	values[4] = Int64GetDatum(unloaded);
	CloseTransientFile(file.fd);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(residency_pgfincore_drawer);
Datum
residency_pgfincore_drawer(PG_FUNCTION_ARGS)
{
	const VarBit *bits = PG_GETARG_VARBIT_P(0);
	uint32		pages = (uint32) VARBITLEN(bits);
	char	   *drawing = palloc(pages + 1);

	for (uint32 i = 0; i < pages; i++)
		drawing[i] = varbit_at(bits, i) ? '.' : ' ';
	drawing[pages] = '\0';
	PG_RETURN_CSTRING(drawing);
}
