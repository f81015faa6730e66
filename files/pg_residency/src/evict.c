/*
 * evict.c - evicts a relation from the page cache
 */
#include "pg_residency.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xlog.h"
#include "catalog/pg_class_d.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"

#include "hold_release.h"
#include "kernel/page_cache.h"
#include "relations.h"

/*
 * The kernel evicts dirty pages only after it has written them.  The advice itself starts that
 * where a checkpoint did not (a standby's may write nothing).  So the advice is repeated until
 * nothing was evicted for that many rounds.
 */
#define PAUSE_MS 100
#define IDLE_ROUNDS_WRITTEN 2
#define IDLE_ROUNDS_DIRTY 10

typedef struct Eviction
{
	SegmentId  *forks;			/* with segment 0 */
	int			nforks;
	int			room;
} Eviction;

typedef struct Tally
{
	int64		segments;
	int64		blocks;
	int64		resident;
	int64		dirty;			/* -1 where the kernel cannot tell */
} Tally;

static void
add_forks(Eviction *eviction, Relation rel)
{
	for (ForkNumber fork = MAIN_FORKNUM; fork <= MAX_FORKNUM; fork++)
	{
		SegmentId	id = {compat_tablespace(rel), compat_database(rel),
			compat_relfilenumber(rel), fork, 0};

		if (eviction->nforks == eviction->room)
			eviction->forks = repalloc(eviction->forks, (eviction->room *= 2) * sizeof(SegmentId));
		eviction->forks[eviction->nforks++] = id;
	}
}

/*
 * adds the relation with all that belongs to it.  The lock lasts until the end of the transaction,
 * as for every reader, so the files remain the relation's.
 */
static void
add_relation(Eviction *eviction, Oid relid)
{
	Relation	rel = open_relation(relid);
	ListCell   *cell;

	check_has_files(rel, true);
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot evict temporary relation \"%s\"", RelationGetRelationName(rel))));
	foreach(cell, with_dependents(with_partitions(rel)))
	{
		Relation	part = open_part(lfirst_oid(cell));

		if (part == NULL)
			continue;
		if (RELKIND_HAS_STORAGE(part->rd_rel->relkind))
			add_forks(eviction, part);
		relation_close(part, NoLock);
	}
	relation_close(rel, NoLock);
}

/* the kernel does not evict what a job has mapped */
static void
release_all(const Eviction *eviction)
{
	for (int i = 0; i < eviction->nforks; i++)
		if (eviction->forks[i].fork == MAIN_FORKNUM && !release_relation(&eviction->forks[i]))
			break;
}

/* counts each of the segment files; with `evict`, advises the kernel to evict it first */
static Tally
visit_files(const Eviction *eviction, bool evict)
{
	Tally		tally = {0};

	for (int i = 0; i < eviction->nforks; i++)
		for (uint32 segment = 0;; segment++)
		{
			SegmentId	id = eviction->forks[i];
			struct pc_count count;
			char		path[MAXPGPATH];
			uint32		blocks;
			int			rc = 0;
			int			fd;

			CHECK_FOR_INTERRUPTS();
			id.segment = segment;
			fd = segment_open(&id, path, &blocks);
			if (fd < 0)
				break;
			if (evict)
				rc = pc_evict(fd);
			if (rc == 0)
				rc = pc_count(fd, blocks, BLCKSZ, cachestat_is_honest_for(&id, fd), &count);
			if (rc != 0)
				report_kernel_error(rc, "could not evict file \"%s\": %m", path);
			CloseTransientFile(fd);
			tally.segments++;
			tally.blocks += (int64) count.blocks;
			tally.resident += (int64) count.resident;
			tally.dirty = count.dirty < 0 || tally.dirty < 0 ? -1 : tally.dirty + count.dirty;
		}
	return tally;
}

PG_FUNCTION_INFO_V1(residency_evict);
Datum
residency_evict(PG_FUNCTION_ARGS)
{
	Oid			relid;
	Eviction	eviction = {.room = 16};
	Tally		before;
	Tally		after;
	TupleDesc	tupdesc;
	Datum		values[6];
	bool		nulls[6] = {false};

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("relation must not be null")));
	tupdesc = result_row(fcinfo, 6);
	relid = PG_GETARG_OID(0);
	eviction.forks = palloc(eviction.room * sizeof(SegmentId));
	add_relation(&eviction, relid);

	before = visit_files(&eviction, false);
	/* never fsync here: it could swallow a write error that the checkpointer must see */
	if (before.dirty != 0)
		RequestCheckpoint(CHECKPOINT_FAST | CHECKPOINT_FORCE | CHECKPOINT_WAIT);
	release_all(&eviction);
	after = visit_files(&eviction, true);
	for (int idle = 0;
		 after.resident > 0 && idle < (after.dirty == 0 ? IDLE_ROUNDS_WRITTEN : IDLE_ROUNDS_DIRTY);)
	{
		int64		previous = after.resident;

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, PAUSE_MS,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		after = visit_files(&eviction, true);
		idle = after.resident < previous ? 0 : idle + 1;
	}
	values[0] = ObjectIdGetDatum(relid);
	values[1] = Int32GetDatum((int32) after.segments);
	values[2] = Int64GetDatum(after.blocks);
	values[3] = Int64GetDatum(before.resident);
	values[4] = Int64GetDatum(after.resident);
	values[5] = Int64GetDatum(after.dirty);
	nulls[5] = after.dirty < 0;
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls));
}
