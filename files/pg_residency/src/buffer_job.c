/*
 * buffer_job.c - bringing a snapshot's shared buffers back, once its blocks are in the page cache
 *
 * Reading a block into shared buffers takes its relation, and opening a relation takes a connection to its database:
 * so there is a worker for each database, one after another, started by the job's own worker.
 */
#include "pg_residency.h"

#include <signal.h>

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"

/* blocks read under one lock; whoever waits for it has it after that */
#define BATCH_BLOCKS 256

/* how often a lock that somebody holds is tried, and how long between, microseconds */
#define LOCK_TRIES 20
#define LOCK_PAUSE 10000

/* what a worker is told beside the number of its job */
typedef struct BufferTask
{
	Oid			database;
	bool		with_shared;	/* the shared catalogs too, which can be read from any database */
} BufferTask;

typedef enum BatchResult
{
	BATCH_READ,
	BATCH_SKIP,					/* the relation is gone, rewritten, or locked by somebody */
	BATCH_END					/* no buffer is unused any more, or the database is to be dropped */
} BatchResult;

PGDLLEXPORT void pg_residency_buffers_main(Datum number);

/* whoever drops the database holds its lock and waits for us to be gone */
static bool
database_is_being_dropped(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, MyDatabaseId, 0);
	return LockAcquire(&tag, AccessShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL;
}

/* the relation of that file, locked; NULL when there is none any more or somebody keeps it locked */
static Relation
open_relation_of(const SegmentId *id)
{
	Oid			relid = compat_relid_by_relfilenumber(id->tablespace, id->relfilenumber);
	Relation	rel;

	if (!OidIsValid(relid))
		return NULL;
	for (int i = 0; !ConditionalLockRelationOid(relid, AccessShareLock); i++)
	{
		if (i == LOCK_TRIES)
			return NULL;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(LOCK_PAUSE);
	}
	rel = try_relation_open(relid, NoLock);
	if (rel == NULL)
		return NULL;
	if (compat_relfilenumber(rel) != id->relfilenumber || !RELKIND_HAS_STORAGE(rel->rd_rel->relkind) ||
		!smgrexists(RelationGetSmgr(rel), id->fork))
	{
		relation_close(rel, NoLock);
		return NULL;
	}
	return rel;
}

/* reads the next blocks of the map into shared buffers, from `*at` on; in a transaction of its own */
static BatchResult
read_batch(const SegmentId *id, const uint8 *map, uint32 blocks, uint32 *at)
{
	BlockNumber first = id->segment * (BlockNumber) RELSEG_SIZE;
	Relation	rel = open_relation_of(id);
	BlockNumber end;
	int			n = 0;

	if (rel == NULL)
		return BATCH_SKIP;
	end = RelationGetNumberOfBlocksInFork(rel, id->fork);
	for (uint32 b = pc_next(map, blocks, *at, true); b < blocks && n < BATCH_BLOCKS; b = pc_next(map, blocks, b + 1, true), n++)
	{
		CHECK_FOR_INTERRUPTS();
		*at = b + 1;
		if (first + b >= end)
			break;
		/* pushing out what the foreground has read since would help nobody */
		if (!compat_have_free_buffer() || (n == 0 && database_is_being_dropped()))
			return BATCH_END;
		ReleaseBuffer(ReadBufferExtended(rel, id->fork, first + b, RBM_NORMAL, NULL));
	}
	relation_close(rel, NoLock);
	return n == 0 || first + *at > end ? BATCH_SKIP : BATCH_READ;
}

/* the blocks of one layer of a segment; false when it is time to end */
static bool
read_layer(const struct sf_segment *segment, enum sf_layer layer)
{
	SegmentId	id = snapshot_segment_id(segment);
	MemoryContext context = CurrentMemoryContext;
	uint8	   *map = palloc(pc_map_bytes(segment->blocks));
	uint32		at = 0;
	volatile BatchResult result = BATCH_READ;

	if (sf_read_layer(segment, layer, map) != NULL)
		return true;
	while (result == BATCH_READ && pc_next(map, segment->blocks, at, true) < segment->blocks)
	{
		/* between two batches nothing is locked */
		StartTransactionCommand();
		PG_TRY();
		{
			result = read_batch(&id, map, segment->blocks, &at);
			CommitTransactionCommand();
		}
		PG_CATCH();
		{
			/* a conflict with recovery, or a damaged page: this relation's loss, not the others' */
			MemoryContextSwitchTo(context);
			EmitErrorReport();
			FlushErrorState();
			AbortCurrentTransaction();
			result = BATCH_SKIP;
		}
		PG_END_TRY();
		MemoryContextSwitchTo(context);
	}
	pfree(map);
	return result != BATCH_END;
}

void
pg_residency_buffers_main(Datum number)
{
	struct sf_segment *in_snapshot;
	BufferTask	task;
	Job			job;
	int			fd;
	bool		go_on = true;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	memcpy(&task, MyBgworkerEntry->bgw_extra, sizeof(task));
	BackgroundWorkerInitializeConnectionByOid(task.database, InvalidOid, BGWORKER_BYPASS_ALLOWCONN);
	MemoryContextSwitchTo(AllocSetContextCreate(TopMemoryContext, "residency buffers", ALLOCSET_DEFAULT_SIZES));
	if (!job_read(DatumGetInt32(number), &job) || job.state != JOB_RUNNING)
		proc_exit(0);
	in_snapshot = snapshot_segments(snapshot_load(job.snapshot));
	fd = job_open(job.job);

	/* what was used often first, as long as there is room */
	for (int layer = SF_BUFFERS_HOT; layer >= SF_BUFFERS_COOL && go_on; layer--)
		for (int i = 0; i < job.segments && go_on; i++)
		{
			PlannedSegment planned;

			job_read_planned(fd, i, &planned);
			if (planned.segment_no > 0 && (planned.id.database == task.database || (task.with_shared && planned.id.database == InvalidOid)))
				go_on = read_layer(&in_snapshot[planned.segment_no - 1], (enum sf_layer) layer);
		}
	proc_exit(0);
}

/*
 * Starts the worker for one database.  NULL when none is free.  The caller is told when it ends.
 */
BackgroundWorkerHandle *
start_buffer_worker(int job, Oid database, bool with_shared)
{
	BufferTask	task = {.database = database, .with_shared = with_shared};
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = Int32GetDatum(job);
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &task, sizeof(task));
	strlcpy(worker.bgw_library_name, "pg_residency", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "pg_residency_buffers_main", sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "pg_residency buffers (job %d, database %u)", job, database);
	strlcpy(worker.bgw_type, "pg_residency buffers", sizeof(worker.bgw_type));
	return RegisterDynamicBackgroundWorker(&worker, &handle) ? handle : NULL;
}
