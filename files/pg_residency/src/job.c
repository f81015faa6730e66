/*
 * job.c - works off a job: its segments by device, then shared buffers
 *
 * Each device has a lane: a queue of segments under a window of its own, which waits for no other.
 * Several segments of a lane are begun side by side, for small ones would leave the window with one
 * request at a time.  A segment that raises an error costs its own blocks, not the job.
 */
#include "job.h"

#include <sys/prctl.h>
#include <sys/stat.h>

#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/pmsignal.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "buffer_worker.h"
#include "compat.h"
#include "directory.h"
#include "host_ledger.h"
#include "interrupts.h"
#include "job_file.h"
#include "kernel/page_cache.h"
#include "shared_buffers.h"

/* how often a running job's state is written, microseconds */
#define WRITE_EVERY 200000

/* segments of a device restored side by side, under one window */
#define SIDE_BY_SIDE 32

/* the host's ledger is told when that much more has become resident, and at the end */
#define NOTE_BLOCKS ((16 * 1024 * 1024) / BLCKSZ)

/* the last job's process may be about to end, the job being done already; milliseconds */
#define TURN_PATIENCE 5000

/* a segment of the plan that was begun */
typedef struct Begun
{
	int			n;				/* in the plan */
	int64		wanted;			/* by the plan */
	JobSegment	segment;
	SegmentWork *work;			/* NULL when it is complete */
	MemoryContext context;
} Begun;

typedef struct Lane
{
	Device	   *device;
	int			next;			/* of the plan, the first to look at */
	Begun		begun[SIDE_BY_SIDE];	/* a ring, the oldest first */
	int			first;
	int			count;
} Lane;

/* the lane of a tablespace that is not on the first lane's device */
typedef struct Elsewhere
{
	Oid			tablespace;
	int			lane;
} Elsewhere;

typedef struct Run
{
	Job			job;
	int			fd;				/* of the job's file */
	struct sf_segment *plan;
	RestoreControl control;
	struct pc_window window;
	HostTurn	turn;
	TimestampTz deadline;		/* 0: none */
	TimestampTz written_at;
	Lane		lanes[MAX_DEVICES]; /* the first is the data directory's */
	int			nlanes;
	List	   *elsewhere;		/* Elsewhere *, tablespaces of the other lanes */
	int64		noted;			/* resident blocks that the host's ledger knows of */
	uint32		wait_event;
	MemoryContext context;
} Run;

/* --- ending --- */

static void
end_job(Run *run, JobState state, const char *message)
{
	run->job.state = state;
	strlcpy(run->job.message, message, sizeof(run->job.message));
}

/* True when the job must end; its state and message then say why.  Sleeps before that, 0 for not at all. */
static bool
run_wait(void *arg, long microseconds)
{
	Run		   *run = arg;
	TimestampTz now;

	if (microseconds > 0 && !InterruptPending)
		sleep_or_wake(microseconds, run->wait_event);
	now = GetCurrentTimestamp();
	allowance_adapt(&run->control.allowance, now, run->job.total.loaded + run->job.arriving);
	if (!job_is_alive(&run->job))
		return true;
	if (ProcDiePending)
		end_job(run, JOB_INTERRUPTED, "the server was shut down");
	else if (QueryCancelPending)
		end_job(run, JOB_CANCELED, "canceled by residency_cancel()");
	else if (run->deadline != 0 && now >= run->deadline)
		end_job(run, JOB_CANCELED, psprintf("its time limit of %d s was reached", run->job.settings.time_limit));
	else if (InterruptPending)
		CHECK_FOR_INTERRUPTS();
	/* an end is written with its time, when everything has been given back */
	if (job_is_alive(&run->job) && now - run->written_at >= WRITE_EVERY)
	{
		if (!PostmasterIsAlive())
			proc_exit(1);
		run->job.budget_bytes = (int64) Min(allowance_budget(&run->control.allowance), (uint64) PG_INT64_MAX);
		job_write(run->fd, &run->job);
		run->written_at = now;
	}
	return !job_is_alive(&run->job);
}

static void
run_blocked(void *arg, bool begins)
{
	session_blocked(&((Run *) arg)->wait_event, begins);
}

static void
run_progress(void *arg, uint32 blocks)
{
	((Run *) arg)->job.arriving += blocks;
}

/* --- segments --- */

/* the error that was just caught; what it left behind of the segment is given back */
static ErrorData *
take_error(Begun *begun)
{
	ErrorData  *error;

	MemoryContextSwitchTo(begun->context);
	error = CopyErrorData();
	FlushErrorState();
	LWLockReleaseAll();
	if (begun->work != NULL)
		abandon_segment(begun->work);
	begun->work = NULL;
	return error;
}

/* the segment's blocks have failed; the log says why, and the first such error the job itself */
static void
record_error(Run *run, Begun *begun, const ErrorData *error)
{
	SegmentOutcome *outcome = &begun->segment.outcome;
	int64		wanted = outcome->wanted;

	/* no segment's error: the process is to end */
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED || error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN)
		return;
	memset(outcome, 0, sizeof(*outcome));
	outcome->wanted = outcome->failed = wanted;
	outcome->reason = REASON_ERROR;
	ereport(LOG,
			(errmsg("a segment could not be restored (job %d): %s", run->job.job, error->message)));
	if (run->job.message[0] == '\0')
		strlcpy(run->job.message, error->message, sizeof(run->job.message));
}

/* false when descriptors are short, and others that were begun have some to give back */
static bool
begin_or_record(Run *run, Begun *begun, bool others)
{
	MemoryContext before = MemoryContextSwitchTo(begun->context);
	volatile bool begun_it = true;
	SegmentOutcome planned = begun->segment.outcome;

	PG_TRY();
	{
		begin_segment(&run->plan[begun->n], &run->control, &begun->segment.outcome, &begun->work);
	}
	PG_CATCH();
	{
		ErrorData  *error = take_error(begun);

		begun->segment.outcome = planned;
		if (error->sqlerrcode == ERRCODE_INSUFFICIENT_RESOURCES && others)
			begun_it = false;
		else
			record_error(run, begun, error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(before);
	return begun_it;
}

static void
finish_or_record(Run *run, Begun *begun)
{
	MemoryContext before = MemoryContextSwitchTo(begun->context);

	if (begun->work != NULL)
	{
		PG_TRY();
		{
			finish_segment(begun->work);
		}
		PG_CATCH();
		{
			record_error(run, begun, take_error(begun));
		}
		PG_END_TRY();
		begun->work = NULL;
	}
	MemoryContextSwitchTo(before);
}

static bool
send_or_record(Run *run, Begun *begun, bool wait)
{
	MemoryContext before = MemoryContextSwitchTo(begun->context);
	volatile bool sent = true;

	PG_TRY();
	{
		sent = send_segment(begun->work, wait);
	}
	PG_CATCH();
	{
		record_error(run, begun, take_error(begun));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(before);
	return sent;
}

static bool
any_begun(const Run *run)
{
	for (int i = 0; i < run->nlanes; i++)
		if (run->lanes[i].count > 0)
			return true;
	return false;
}

/* completes the oldest segment begun, and notes what became of it */
static void
finish_oldest(Run *run, Lane *lane)
{
	Begun	   *begun = &lane->begun[lane->first];
	SegmentOutcome *outcome = &begun->segment.outcome;

	finish_or_record(run, begun);
	/* a table that became unlogged on the way: what was wanted of it is gone */
	outcome->gone += begun->wanted - outcome->wanted;
	outcome->wanted = begun->wanted;
	lane->first = (lane->first + 1) % SIDE_BY_SIDE;
	lane->count--;
	outcome_add(&run->job.total, outcome);
	/* what is left has come in for those begun after it */
	run->job.arriving = any_begun(run) ? Max(run->job.arriving - outcome->loaded, 0) : 0;
	run->job.segments_done++;
	begun->segment.done = true;
	job_write_segment(run->fd, begun->n, &begun->segment);
	MemoryContextReset(begun->context);
	if (run->job.total.resident >= run->noted + NOTE_BLOCKS)
	{
		run->noted = run->job.total.resident;
		host_note_bytes((uint64) run->noted * BLCKSZ, false);
	}
}

/* --- lanes --- */

/* makes a lane for each device that a tablespace is on */
static void
make_lanes(Run *run)
{
	DIR		   *dir;
	struct dirent *entry;
	struct stat st;

	if (stat("base", &st) != 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not stat directory \"base\": %m")));
	run->lanes[0].device = device_numbered(&run->control.devices, st.st_dev);
	run->nlanes = 1;
	dir = AllocateDir("pg_tblspc");
	while ((entry = ReadDir(dir, "pg_tblspc")) != NULL)
	{
		char		path[MAXPGPATH];
		Elsewhere  *elsewhere;
		Device	   *device;
		int			lane = 0;

		snprintf(path, sizeof(path), "pg_tblspc/%s", entry->d_name);
		if (entry->d_name[0] == '.' || stat(path, &st) != 0)
			continue;
		device = device_numbered(&run->control.devices, st.st_dev);
		while (lane < run->nlanes && run->lanes[lane].device != device)
			lane++;
		if (lane == run->nlanes)
			run->lanes[run->nlanes++].device = device;
		if (lane == 0)
			continue;
		elsewhere = palloc(sizeof(Elsewhere));
		*elsewhere = (Elsewhere) {(Oid) strtoul(entry->d_name, NULL, 10), lane};
		run->elsewhere = lappend(run->elsewhere, elsewhere);
	}
	FreeDir(dir);
}

static Lane *
lane_of(Run *run, const JobSegment *segment)
{
	ListCell   *cell;

	foreach(cell, run->elsewhere)
	{
		const Elsewhere *elsewhere = lfirst(cell);

		if (elsewhere->tablespace == segment->id.tablespace)
			return &run->lanes[elsewhere->lane];
	}
	return &run->lanes[0];
}

typedef enum BeginResult
{
	BEGIN_DONE,
	BEGIN_NOTHING,				/* nothing is left to begin */
	BEGIN_LATER					/* when another segment has been finished */
} BeginResult;

/* begins the lane's next segment */
static BeginResult
begin_next(Run *run, Lane *lane)
{
	Begun	   *begun = &lane->begun[(lane->first + lane->count) % SIDE_BY_SIDE];

	do
	{
		if (lane->next >= run->job.segments)
			return BEGIN_NOTHING;
		begun->n = lane->next++;
		job_read_segment(run->fd, begun->n, &begun->segment);
	} while (run->nlanes > 1 && lane_of(run, &begun->segment) != lane);
	if (begun->context == NULL)
		begun->context = AllocSetContextCreate(run->context, "residency segment", ALLOCSET_DEFAULT_SIZES);
	begun->work = NULL;
	begun->wanted = begun->segment.outcome.wanted;
	if (begun->wanted > 0 && !begin_or_record(run, begun, any_begun(run)))
	{
		MemoryContextReset(begun->context);
		lane->next = begun->n;
		return BEGIN_LATER;
	}
	lane->count++;
	return BEGIN_DONE;
}

static void
finish_any(Run *run, Lane *preferred)
{
	if (preferred->count > 0)
	{
		finish_oldest(run, preferred);
		return;
	}
	for (int i = 0; i < run->nlanes; i++)
		if (run->lanes[i].count > 0)
		{
			finish_oldest(run, &run->lanes[i]);
			return;
		}
}

/*
 * Asks for the lane's segments; with other lanes beside it, only for as much as its window holds, and without waiting.
 * False when nothing is left to ask for.
 */
static bool
fill_lane(Run *run, Lane *lane)
{
	bool		wait = run->nlanes == 1;
	uint64		taken = run->control.allowance.pace.taken;

	while (!run_wait(run, 0))
	{
		Begun	   *newest = &lane->begun[(lane->first + lane->count - 1 + SIDE_BY_SIDE) % SIDE_BY_SIDE];

		if (lane->count > 0 && newest->work != NULL && !send_or_record(run, newest, wait))
			return true;
		/* none needs to wait for the room of others that have come in */
		while (lane->count > 0 && (lane->begun[lane->first].work == NULL ||
								   !segment_is_in_flight(lane->begun[lane->first].work)))
			finish_oldest(run, lane);
		if (!wait && (lane->count == SIDE_BY_SIDE ||
					  run->control.allowance.pace.taken - taken >= run->window.bytes))
			return true;
		if (lane->count == SIDE_BY_SIDE)
			finish_oldest(run, lane);
		switch (begin_next(run, lane))
		{
			case BEGIN_NOTHING:
				return false;
			case BEGIN_LATER:
				finish_any(run, lane);
				break;
			case BEGIN_DONE:
				break;
		}
	}
	return false;
}

static void
restore_segments(Run *run)
{
	bool		more;

	do
	{
		uint64		taken = run->control.allowance.pace.taken;

		more = false;
		for (int i = 0; i < run->nlanes; i++)
			more |= fill_lane(run, &run->lanes[i]);
		if (more && run->control.allowance.pace.taken == taken)
			await_any_device(&run->control.devices);
	} while (more);
	for (int i = 0; i < run->nlanes; i++)
		while (run->lanes[i].count > 0)
			finish_oldest(run, &run->lanes[i]);
	if (run->job.total.resident > run->noted)
		host_note_bytes((uint64) run->job.total.resident * BLCKSZ, false);
}

/* --- shared buffers --- */

static bool
has_buffers(const struct sf_segment *segment)
{
	return segment->layers[SF_BUFFERS_COOL].blocks + segment->layers[SF_BUFFERS_HOT].blocks > 0;
}

/* the databases that have something in shared buffers to bring back, InvalidOid for the shared catalogs */
static List *
databases_of(const Run *run)
{
	List	   *databases = NIL;

	for (int i = 0; i < run->job.segments; i++)
		if (has_buffers(&run->plan[i]))
			databases = list_append_unique_oid(databases, run->plan[i].database);
	return databases;
}

/* leaves of the map what is in shared buffers now; how many blocks these are */
static int64
keep_resident_buffers(const struct sf_segment *segment, uint8 *buffers)
{
	SegmentId	id = segment_id_of(segment);

	for (uint32 b = pc_next(buffers, segment->blocks, 0, true); b < segment->blocks;
		 b = pc_next(buffers, segment->blocks, b + 1, true))
		if (!block_in_shared_buffers(&id, b))
			pc_clear(buffers, b);
	return (int64) pc_popcount(buffers, segment->blocks);
}

/* which of a segment's blocks were in shared buffers; palloc'd */
static uint8 *
wanted_buffers(const struct sf_segment *segment)
{
	uint8	   *buffers = palloc(pc_map_bytes(segment->blocks));
	uint8	   *layer = palloc(pc_map_bytes(segment->blocks));

	sf_read_layer(segment, SF_BUFFERS_HOT, buffers);
	sf_read_layer(segment, SF_BUFFERS_COOL, layer);
	for (size_t i = 0; i < pc_map_bytes(segment->blocks); i++)
		buffers[i] |= layer[i];
	pfree(layer);
	return buffers;
}

static void
count_buffers_before(Run *run, const struct sf_segment *segment)
{
	uint8	   *buffers = wanted_buffers(segment);

	run->job.buffers_wanted += (int64) pc_popcount(buffers, segment->blocks);
	run->job.buffers_before += keep_resident_buffers(segment, buffers);
	pfree(buffers);
}

/*
 * Blocks that the page cache did not hold when the snapshot was taken were only passing through it
 * on their way into shared buffers: they are dropped there.
 */
static void
drop_passed_through(const struct sf_segment *segment, uint8 *buffers)
{
	SegmentId	id = segment_id_of(segment);
	uint8	   *layer = palloc(pc_map_bytes(segment->blocks));
	char		path[MAXPGPATH];
	uint32		blocks;
	int			fd;

	sf_read_layer(segment, SF_PAGE_CACHE, layer);
	for (size_t i = 0; i < pc_map_bytes(segment->blocks); i++)
		buffers[i] &= (uint8) ~layer[i];
	if (pc_popcount(buffers, segment->blocks) > 0 && (fd = segment_open(&id, path, &blocks)) >= 0)
	{
		pc_evict_blocks(fd, buffers, Min(blocks, segment->blocks), BLCKSZ);
		CloseTransientFile(fd);
	}
	pfree(layer);
}

/* counts once more, now that the last stage is over: blocks have moved from one cache to the other */
static void
count_again(Run *run, int n, JobSegment *segment)
{
	SegmentOutcome *o = &segment->outcome;
	SegmentOutcome now;
	int64		lacking;

	examine_segment(&run->plan[n], &now);
	run->job.total.resident -= o->resident;
	run->job.total.over_budget -= o->over_budget;
	run->job.total.gone -= o->gone;
	run->job.total.failed -= o->failed;
	o->gone = now.gone + o->wanted - now.wanted;
	o->resident = now.resident;
	lacking = o->wanted - o->gone - o->resident;
	o->over_budget = Min(o->over_budget, lacking);
	o->failed = lacking - o->over_budget;
	if (o->failed > 0 && o->reason != REASON_KERNEL && o->reason != REASON_ERROR)
		o->reason = REASON_RECLAIMED;
	else if (o->failed == 0 && o->over_budget == 0 && o->gone == 0)
		o->reason = REASON_NONE;
	run->job.total.resident += o->resident;
	run->job.total.over_budget += o->over_budget;
	run->job.total.gone += o->gone;
	run->job.total.failed += o->failed;
	job_write_segment(run->fd, n, segment);
}

static void
settle_buffers(Run *run, int n)
{
	JobSegment	segment;
	uint8	   *buffers = wanted_buffers(&run->plan[n]);

	job_read_segment(run->fd, n, &segment);
	run->job.buffers_resident += keep_resident_buffers(&run->plan[n], buffers);
	if (segment.outcome.loaded > 0)
		drop_passed_through(&run->plan[n], buffers);
	if (segment.outcome.wanted > 0)
		count_again(run, n, &segment);
	pfree(buffers);
}

/* shared buffers, database by database; what is not in the page cache is not read for that */
static void
restore_buffers(Run *run)
{
	List	   *databases = databases_of(run);
	bool		shared = list_member_oid(databases, InvalidOid);
	ListCell   *cell;

	databases = list_delete_oid(databases, InvalidOid);
	if (shared && databases == NIL)
		databases = list_make1_oid(buffer_worker_default_database());
	for (int i = 0; i < run->job.segments && !run_wait(run, 0); i++)
		if (has_buffers(&run->plan[i]))
			count_buffers_before(run, &run->plan[i]);
	foreach(cell, databases)
	{
		const char *problem;

		if (run_wait(run, 0))
			break;
		problem = buffer_worker_run(run->job.job, lfirst_oid(cell), shared, run_wait, run);
		if (problem != NULL && run->job.message[0] == '\0')
			snprintf(run->job.message, sizeof(run->job.message),
					 "shared buffers were not all restored: database %u: %s", lfirst_oid(cell), problem);
		shared = shared && problem != NULL;
	}
	for (int i = 0; i < run->job.segments && !run_wait(run, 0); i++)
		if (has_buffers(&run->plan[i]))
			settle_buffers(run, i);
}

/* --- the job --- */

/* one restore at a time in a cluster; the lock is held until the process ends, whichever way it does */
static void
take_cluster(Run *run)
{
	if (residency_lock(LOCK_RESTORE, run->job.job, TURN_PATIENCE) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another restore is running")));
}

/* one restore at a time on a host: the others wait for their turn, and for the memory that is left then */
static void
take_host(Run *run)
{
	while (!host_turn_take(&run->turn, run->job.settings.turn_wait))
	{
		char		message[sizeof(run->job.message)];

		if (run->turn.pid != 0)
			snprintf(message, sizeof(message), "waits for the restore of \"%s\" (pid %d) since %s",
					 run->turn.directory, run->turn.pid, timestamptz_to_str(run->turn.since));
		else
			snprintf(message, sizeof(message), "waits for another restore on this host since %s",
					 timestamptz_to_str(run->turn.since));
		if (run->job.state != JOB_WAITING || strcmp(message, run->job.message) != 0)
		{
			run->job.state = JOB_WAITING;
			strlcpy(run->job.message, message, sizeof(run->job.message));
			job_write(run->fd, &run->job);
		}
		if (run_wait(run, 100000))
			return;
	}
	run->job.message[0] = '\0';
	run->job.state = JOB_RUNNING;
	run->job.started_at = GetCurrentTimestamp();
}

static void
begin_run(Run *run, int number)
{
	const JobSettings *settings = &run->job.settings;

	run->fd = job_open(number);
	run->wait_event = compat_wait_event("ResidencyRestore");
	run->job.pid = MyProcPid;
	run->job.started_at = GetCurrentTimestamp();
	if (settings->time_limit > 0)
		run->deadline = run->job.started_at + (TimestampTz) settings->time_limit * USECS_PER_SEC;
	run->window = settings->aggressive ? pc_aggressive : pc_gentle;
	/* blocked in the kernel we would feel ourselves as pressure */
	run->window.blocks_in_kernel = settings->max_io_pressure == 0;
	run->control.window = &run->window;
	run->control.gap_blocks = settings->gap_blocks;
	run->control.wait = run_wait;
	run->control.blocked = run_blocked;
	run->control.progress = run_progress;
	run->control.arg = run;
	/* the kernel rounds sleeps up by 50 microseconds, in which a fast device reads 100 KiB */
	(void) prctl(PR_SET_TIMERSLACK, 1000UL);
}

static void
work_off(Run *run)
{
	const JobSettings *settings = &run->job.settings;

	take_cluster(run);
	run->plan = job_plan_read(&run->job);
	make_lanes(run);
	take_host(run);
	if (!job_is_alive(&run->job))
		return;
	allowance_begin(&run->control.allowance, (uint64) settings->budget, (uint64) settings->rate,
					settings->max_io_pressure);
	run->job.budget_bytes = (int64) Min(allowance_budget(&run->control.allowance), (uint64) PG_INT64_MAX);
	job_write(run->fd, &run->job);
	restore_segments(run);
	if (settings->shared_buffers && job_is_alive(&run->job))
		restore_buffers(run);
	if (job_is_alive(&run->job))
		run->job.state = JOB_DONE;
}

/* a process that ends in the middle, by FATAL, leaves its job as interrupted */
static void
end_by_exit(int code, Datum arg)
{
	Run		   *run = (Run *) DatumGetPointer(arg);

	if (!job_is_alive(&run->job))
		return;
	end_job(run, JOB_INTERRUPTED, "its worker was terminated");
	run->job.finished_at = GetCurrentTimestamp();
	job_write(run->fd, &run->job);
	host_turn_end(&run->turn);
}

void
job_run(int number)
{
	MemoryContext before = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "residency job", ALLOCSET_DEFAULT_SIZES);
	Run		   *run = MemoryContextAllocHuge(context, sizeof(Run));

	MemoryContextSwitchTo(context);
	memset(run, 0, sizeof(*run));
	run->context = context;
	if (!job_read(number, &run->job) || run->job.state != JOB_STARTING)
		return;					/* its starter gave up on it */
	begin_run(run, number);
	before_shmem_exit(end_by_exit, PointerGetDatum(run));
	PG_TRY();
	{
		work_off(run);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		EmitErrorReport();
		error = CopyErrorData();
		FlushErrorState();
		LWLockReleaseAll();
		if (QueryCancelPending || error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			end_job(run, JOB_CANCELED, "canceled by residency_cancel()");
		else
			end_job(run, JOB_FAILED, error->message);
	}
	PG_END_TRY();
	host_turn_end(&run->turn);
	run->job.finished_at = GetCurrentTimestamp();
	job_write(run->fd, &run->job);
	job_forget_plan(number);
	ereport(LOG,
			(errmsg("restore of snapshot \"%s\" (job %d) is %s: " INT64_FORMAT " of " INT64_FORMAT " blocks resident, " INT64_FORMAT " loaded",
					run->job.snapshot, run->job.job, job_state_name(run->job.state),
					run->job.total.resident, run->job.wanted, run->job.total.loaded)));
	MemoryContextSwitchTo(before);
}
