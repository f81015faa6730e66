/*
 * buffer_worker.c - refills the shared buffers of one database from the page cache
 *
 * Reading a block into shared buffers requires its relation, and opening a relation requires a
 * connection to its database: so there is one worker for each database, one after another.  It only
 * copies from the page cache.  A block that is not there was over budget or has been reclaimed, and
 * reading it from its device would exceed the job's budget and rate.
 */
#include "buffer_worker.h"

#include <unistd.h>

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "compat.h"
#include "directory.h"
#include "interrupts.h"
#include "job_file.h"
#include "kernel/page_cache.h"
#include "segments.h"

/* blocks read under one lock, so that a conflicting session waits only for one batch */
#define BATCH_BLOCKS 256

/* attempts of a worker to get locks that other sessions hold, and microseconds between them */
#define LOCK_TRIES 100
#define LOCK_PAUSE 10000

/* failed reads after which the worker skips the rest of a segment */
#define MOST_ERRORS 10

/* the answer of a worker about a template database */
#define TEMPLATE "template"

/* a worker's argument, in bgw_extra */
typedef struct BufferTask
{
	int32		job;
	Oid			database;
	bool		with_shared;	/* also the shared catalogs, readable from any database */
} BufferTask;

typedef enum BatchResult
{
	BATCH_READ,
	BATCH_FAILED,				/* one block raised an error; the others may be readable */
	BATCH_SKIP,					/* the relation is gone, rewritten, or locked by another session */
	BATCH_END					/* no unused buffer is left, or the database is being dropped */
} BatchResult;

PGDLLEXPORT void pg_residency_buffers_main(Datum unused);

/* DROP DATABASE holds its lock while it waits until this worker is gone */
static bool
database_is_being_dropped(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, MyDatabaseId, 0);
	return LockAcquire(&tag, AccessShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL;
}

/*
 * the relation of that file, locked; NULL when the relation is gone, or another session keeps it
 * locked
 */
static Relation
open_relation_of(const SegmentId *id)
{
	static int	tries = LOCK_TRIES;
	Oid			relid = compat_relid_by_relfilenumber(id->tablespace, id->relfilenumber);
	Relation	rel;

	if (!OidIsValid(relid))
		return NULL;
	while (!ConditionalLockRelationOid(relid, AccessShareLock))
	{
		if (tries == 0)
			return NULL;
		tries--;
		CHECK_FOR_INTERRUPTS();
		sleep_or_wake(LOCK_PAUSE, compat_wait_event("ResidencyLock"));
	}
	rel = try_relation_open(relid, NoLock);
	if (rel == NULL)
		return NULL;
	if (compat_relfilenumber(rel) != id->relfilenumber ||
		!RELKIND_HAS_STORAGE(rel->rd_rel->relkind) || !smgrexists(RelationGetSmgr(rel), id->fork))
	{
		relation_close(rel, NoLock);
		return NULL;
	}
	return rel;
}

/*
 * maps the segment's blocks in the page cache; false when there is none, or the kernel returns an
 * error
 */
static bool
map_cached(const SegmentId *id, uint32 blocks, uint8 *map)
{
	char		path[MAXPGPATH];
	uint32		now;
	uint64		resident = 0;
	int			fd = segment_open(id, path, &now);
	int			rc;

	if (fd < 0)
		return false;
	memset(map, 0, pc_map_bytes(blocks));
	rc = pc_survey(fd, Min(now, blocks), BLCKSZ, PC_MINCORE, map, &resident);
	CloseTransientFile(fd);
	return rc == 0 && resident > 0;
}

/*
 * reads the next blocks of the map into shared buffers, from `*at` on, in the current transaction
 */
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
	for (uint32 b = pc_next(map, blocks, *at, true); b < blocks && n < BATCH_BLOCKS;
		 b = pc_next(map, blocks, b + 1, true), n++)
	{
		CHECK_FOR_INTERRUPTS();
		*at = b + 1;
		if (first + b >= end)
			break;
		/* a restored block must not evict one that the foreground has read since the start */
		if (!compat_have_free_buffer() || (n == 0 && database_is_being_dropped()))
		{
			relation_close(rel, NoLock);
			return BATCH_END;
		}
		ReleaseBuffer(ReadBufferExtended(rel, id->fork, first + b, RBM_NORMAL, NULL));
	}
	relation_close(rel, NoLock);
	return n == 0 || first + *at > end ? BATCH_SKIP : BATCH_READ;
}

/* one batch in a transaction of its own, so that an error costs one block only */
static BatchResult
try_batch(const SegmentId *id, const uint8 *map, uint32 blocks, uint32 *at)
{
	MemoryContext context = CurrentMemoryContext;
	volatile BatchResult result = BATCH_SKIP;

	/* the end of the transaction releases the lock between two batches */
	StartTransactionCommand();
	PG_TRY();
	{
		result = read_batch(id, map, blocks, at);
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		/* a conflict with recovery, or a damaged page */
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
		AbortCurrentTransaction();
		result = BATCH_FAILED;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return result;
}

/*
 * reads the blocks of one layer of a segment that are in the page cache; false when the worker must
 * end
 */
static bool
read_layer(const struct sf_segment *segment, enum sf_layer layer, int *errors)
{
	SegmentId	id = segment_id_of(segment);
	uint8	   *map = palloc(pc_map_bytes(segment->blocks));
	uint8	   *cached = palloc(pc_map_bytes(segment->blocks));
	uint32		at = 0;
	BatchResult result = BATCH_READ;
	int			failed = 0;

	if (segment->layers[layer].blocks > 0 && sf_read_layer(segment, layer, map) == NULL &&
		map_cached(&id, segment->blocks, cached))
	{
		for (size_t i = 0; i < pc_map_bytes(segment->blocks); i++)
			map[i] &= cached[i];
		while ((result == BATCH_READ || result == BATCH_FAILED) && failed < MOST_ERRORS &&
			   pc_next(map, segment->blocks, at, true) < segment->blocks)
		{
			result = try_batch(&id, map, segment->blocks, &at);
			failed += result == BATCH_FAILED;
		}
	}
	*errors += failed;
	pfree(map);
	pfree(cached);
	return result != BATCH_END;
}

/*
 * CREATE DATABASE requires that its template has no other user, and waits five seconds for that: so
 * the worker leaves template databases at once, after the few blocks of the shared catalogs.
 */
static bool
is_template(void)
{
	HeapTuple	tuple;
	bool		template = true;

	StartTransactionCommand();
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		template = form->datistemplate || !form->datallowconn;
		ReleaseSysCache(tuple);
	}
	CommitTransactionCommand();
	return template;
}

static bool
is_mine(const BufferTask *task, const struct sf_segment *segment, bool template)
{
	if (segment->database == InvalidOid)
		return task->with_shared;
	return segment->database == task->database && !template;
}

void
pg_residency_buffers_main(Datum unused)
{
	struct sf_segment *plan;
	BufferTask	task;
	Job			job;
	const char *path;
	bool		template;
	char	   *answer = "";
	int			errors = 0;
	bool		go_on = true;
	int			fd;

	listen_to_signals();
	memcpy(&task, MyBgworkerEntry->bgw_extra, sizeof(task));
	connect_to_database(task.database);
	MemoryContextSwitchTo(AllocSetContextCreate(TopMemoryContext, "residency buffers",
											   ALLOCSET_DEFAULT_SIZES));
	if (!job_read(task.job, &job) || job.state != JOB_RUNNING || (fd = job_open(task.job)) < 0)
		proc_exit(0);
	plan = job_read_plan(fd, &job);
	template = is_template();

	/* blocks used often come first, because unused buffers may run out */
	for (int layer = SF_BUFFERS_HOT; layer >= SF_BUFFERS_COOL && go_on; layer--)
		for (int i = 0; i < job.segments && go_on; i++)
		{
			CHECK_FOR_INTERRUPTS();
			if (is_mine(&task, &plan[i], template))
				go_on = read_layer(&plan[i], (enum sf_layer) layer, &errors);
		}
	/*
	 * the job needs no more than this: that the worker completed, and whether the database is a
	 * template
	 */
	path = job_answer_path(task.job, task.database);
	if (template)
		answer = TEMPLATE;
	else if (errors > 0)
		answer = psprintf("%d reads failed; see the server log", errors);
	write_answer(psprintf("%s.new", path), path, answer, strlen(answer));
	proc_exit(0);
}

Oid
buffer_worker_default_database(void)
{
	return Template1DbOid;
}

/* NULL when no background worker slot is free */
static BackgroundWorkerHandle *
start_worker(const BufferTask *task)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, task, sizeof(*task));
	strlcpy(worker.bgw_library_name, "pg_residency", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "pg_residency_buffers_main",
			sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "pg_residency buffers (job %d, database %u)",
			 task->job, task->database);
	strlcpy(worker.bgw_type, "pg_residency buffers", sizeof(worker.bgw_type));
	return RegisterDynamicBackgroundWorker(&worker, &handle) ? handle : NULL;
}

const char *
buffer_worker_run(int job, Oid database, bool with_shared, int patience,
				  bool (*wait) (void *arg, long microseconds), void *arg, bool *is_template)
{
	BufferTask	task = {job, database, with_shared};
	int64		until = patience_until(patience);
	BackgroundWorkerHandle *handle;
	const char *path;
	char	   *answer;
	size_t		size;
	pid_t		pid;

	*is_template = false;
	/* parallel queries may occupy all slots, and leave them soon */
	while ((handle = start_worker(&task)) == NULL)
	{
		if (patience_is_over(until))
			return NO_SLOT;
		if (wait(arg, 100000))
			return NULL;
	}
	/* the postmaster wakes this process when the worker has ended */
	while (GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED)
		if (wait(arg, 200000))
		{
			TerminateBackgroundWorker(handle);
			return NULL;
		}
	path = job_answer_path(job, database);
	answer = read_whole_file(path, &size);
	if (answer == NULL)
		return "the worker failed; see the server log";
	*is_template = strcmp(answer, TEMPLATE) == 0;
	remove_file(path);
	return *is_template || answer[0] == '\0' ? NULL : answer;
}
