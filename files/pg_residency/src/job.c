/*
 * job.c - restoring a whole snapshot, in a background worker
 *
 * A worker and not a long statement: a statement would hold back xmin, be cancelled by recovery conflicts on a standby,
 * and end with its connection.  The worker has no database and needs no preloading.  What it loads is charged to the
 * server's own memory cgroup.
 */
#include "pg_residency.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_database_d.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/pmsignal.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* how often a running job's state is written, microseconds */
#define WRITE_EVERY 200000

/* how often the rate follows the pressure on the disks, microseconds, and what it never falls below, bytes a second */
#define ADAPT_EVERY 1000000
#define SLOWEST ((uint64) 8 * 1024 * 1024)

/* how long the starter waits for the worker to be at work, milliseconds */
#define START_PATIENCE 10000

/* segments of a device restored side by side, under one window: small ones would leave it with one request at a time */
#define SIDE_BY_SIDE 32

/* the machine's ledger is told when that much more has become resident, and at the end */
#define NOTE_BLOCKS ((16 * 1024 * 1024) / BLCKSZ)

/* a segment of the plan that was begun */
typedef struct Begun
{
	int			n;				/* in the plan */
	PlannedSegment planned;
	SegmentWork *work;			/* NULL when it is complete */
	MemoryContext context;
} Begun;

/* what is restored from one device; each has a window of its own, and waits for no other */
typedef struct Lane
{
	dev_t		device;
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
	RestoreControl control;
	struct pc_window window;
	TimestampTz deadline;		/* 0: none */
	TimestampTz written_at;
	TimestampTz pressure_at;	/* when the stall time was last looked at, */
	uint64		stalled;		/* what it was then, microseconds, */
	int64		arrived;		/* and the blocks that had come in */
	Lane		lanes[MAX_DEVICES];	/* the first is the data directory's */
	int			nlanes;
	List	   *elsewhere;		/* Elsewhere *, tablespaces of the other lanes */
	int64		noted;			/* resident blocks that the machine's ledger knows of */
	uint32		wait_event;
} Run;

PGDLLEXPORT void pg_residency_restore_main(Datum number);

static volatile sig_atomic_t cancel_requested = false;
static volatile sig_atomic_t shutdown_requested = false;

static const char *const state_names[] = {"starting", "waiting", "running", "done", "failed", "canceled", "interrupted"};

/* --- the worker --- */

static void
request_cancel(SIGNAL_ARGS)
{
	int			save_errno = errno;

	cancel_requested = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

static void
request_shutdown(SIGNAL_ARGS)
{
	int			save_errno = errno;

	shutdown_requested = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

static void
sleep_or_wake(long microseconds, uint32 wait_event)
{
	/* a latch cannot wait for less than a millisecond, in which a fast device reads megabytes; signals end both */
	if (microseconds < 1000)
	{
		pgstat_report_wait_start(wait_event);
		pg_usleep(microseconds);
		pgstat_report_wait_end();
	}
	else
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, microseconds / 1000, wait_event);
		ResetLatch(MyLatch);
	}
}

/*
 * Microseconds that somebody on this machine has waited for a disk ("some" of pressure stall information); false where
 * the kernel does not tell.  Our own waiting does not count: the worker sleeps and is not blocked.
 */
static bool
read_stalled(uint64 *microseconds)
{
	FILE	   *f = AllocateFile("/proc/pressure/io", "r");
	bool		read_it;

	if (f == NULL)
		return false;
	read_it = fscanf(f, "some avg10=%*f avg60=%*f avg300=%*f total=" UINT64_FORMAT, microseconds) == 1;
	FreeFile(f);
	return read_it;
}

/*
 * Slows down while others wait for their disks for more of the time than was allowed, and speeds up again when they do
 * not.  Never below a floor: a restore that any activity stops does not end.
 */
static void
adapt_rate(Run *run, TimestampTz now)
{
	struct pc_pace *pace = &run->control.pace;
	uint64		most = run->job.rate_bytes > 0 ? (uint64) run->job.rate_bytes : PG_UINT64_MAX;
	int64		arrived = run->job.total.loaded + run->job.arriving;
	uint64		stalled;

	if (run->job.max_io_pressure == 0 || now - run->pressure_at < ADAPT_EVERY || !read_stalled(&stalled))
		return;
	if (run->pressure_at != 0)
	{
		double		microseconds = (double) (now - run->pressure_at);
		double		percent = 100.0 * (double) (stalled - run->stalled) / microseconds;
		uint64		speed = (uint64) (Max(arrived - run->arrived, 0) * BLCKSZ * 1e6 / microseconds);

		if (percent > run->job.max_io_pressure)
			pace->rate = Min(Max((pace->rate > 0 ? Min(pace->rate, speed) : speed) / 2, SLOWEST), most);
		else if (pace->rate > 0)
			/* without a limit of its own it is set free when it has none to feel any more */
			pace->rate = pace->rate > 4 * Max(speed, SLOWEST) && run->job.rate_bytes == 0 ? 0 : Min(pace->rate + pace->rate / 4, most);
	}
	run->pressure_at = now;
	run->stalled = stalled;
	run->arrived = arrived;
}

/* true when the run must end; its state and message then say why */
static bool
run_wait(void *arg, long microseconds)
{
	Run		   *run = arg;
	TimestampTz now;

	if (microseconds > 0)
		sleep_or_wake(microseconds, run->wait_event);
	now = GetCurrentTimestamp();
	adapt_rate(run, now);
	if (shutdown_requested)
	{
		run->job.state = JOB_INTERRUPTED;
		strlcpy(run->job.message, "the server was shut down", sizeof(run->job.message));
	}
	else if (cancel_requested)
	{
		run->job.state = JOB_CANCELED;
		strlcpy(run->job.message, "canceled by residency_cancel()", sizeof(run->job.message));
	}
	else if (run->deadline != 0 && now >= run->deadline)
	{
		run->job.state = JOB_CANCELED;
		snprintf(run->job.message, sizeof(run->job.message), "its time limit of %d s was reached", run->job.time_limit);
	}
	/* an end is written with its time, when everything has been given back */
	if (run->job.state <= JOB_RUNNING && now - run->written_at >= WRITE_EVERY)
	{
		if (!PostmasterIsAlive())
			proc_exit(1);
		job_write(run->fd, &run->job);
		run->written_at = now;
	}
	return run->job.state > JOB_RUNNING;
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

static void
add_outcome(SegmentOutcome *total, const SegmentOutcome *o)
{
	total->wanted += o->wanted;
	total->resident += o->resident;
	total->loaded += o->loaded;
	total->extra += o->extra;
	total->over_budget += o->over_budget;
	total->gone += o->gone;
	total->failed += o->failed;
}

/* a segment that raised an error costs its own blocks, not the job */
static void
record_error(Begun *begun, int64 wanted)
{
	SegmentOutcome *outcome = &begun->planned.outcome;
	ErrorData  *error;

	MemoryContextSwitchTo(begun->context);
	error = CopyErrorData();
	FlushErrorState();
	LWLockReleaseAll();
	if (begun->work != NULL)
		abandon_segment(begun->work);
	begun->work = NULL;
	memset(outcome, 0, sizeof(*outcome));
	outcome->wanted = outcome->failed = wanted;
	strlcpy(outcome->reason, error->message, sizeof(outcome->reason));
}

static void
begin_or_record(Run *run, Begun *begun, const struct sf_segment *segment)
{
	MemoryContext context = MemoryContextSwitchTo(begun->context);

	PG_TRY();
	{
		begin_segment(segment, &run->control, &begun->planned.outcome, &begun->work);
	}
	PG_CATCH();
	{
		record_error(begun, segment->wanted);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
}

static void
finish_or_record(Begun *begun)
{
	MemoryContext context = MemoryContextSwitchTo(begun->context);

	if (begun->work == NULL)
		return;
	PG_TRY();
	{
		finish_segment(begun->work);
	}
	PG_CATCH();
	{
		record_error(begun, begun->planned.outcome.wanted);
	}
	PG_END_TRY();
	begun->work = NULL;
	MemoryContextSwitchTo(context);
}

static bool
send_or_record(Begun *begun, bool wait)
{
	MemoryContext context = MemoryContextSwitchTo(begun->context);
	volatile bool sent = true;

	PG_TRY();
	{
		sent = send_segment(begun->work, wait);
	}
	PG_CATCH();
	{
		record_error(begun, begun->planned.outcome.wanted);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return sent;
}

/* completes the oldest segment begun, and notes what became of it */
static void
finish_oldest(Run *run, Lane *lane)
{
	Begun	   *begun = &lane->begun[lane->first];
	bool		others = false;

	finish_or_record(begun);
	lane->first = (lane->first + 1) % SIDE_BY_SIDE;
	lane->count--;
	for (int i = 0; i < run->nlanes; i++)
		others |= run->lanes[i].count > 0;
	add_outcome(&run->job.total, &begun->planned.outcome);
	/* what is left has come in for those begun after it */
	run->job.arriving = others ? Max(run->job.arriving - begun->planned.outcome.loaded, 0) : 0;
	run->job.segments_done++;
	begun->planned.done = true;
	job_write_planned(run->fd, begun->n, &begun->planned);
	MemoryContextReset(begun->context);
	if (run->job.total.resident >= run->noted + NOTE_BLOCKS)
	{
		run->noted = run->job.total.resident;
		machine_note_bytes((uint64) run->noted * BLCKSZ);
	}
}

/* what of the file is wanted: what the snapshot says, or all of it */
static void
wanted_of(const PlannedSegment *planned, const struct sf_segment *in_snapshot, struct sf_segment *wanted)
{
	if (planned->segment_no > 0)
		*wanted = in_snapshot[planned->segment_no - 1];
	else
		whole_segment(&planned->id, planned->blocks, wanted);
}

/* one restore at a time in a cluster; the lock is held until the process ends, whichever way it does */
static void
take_turn(Run *run)
{
	/* the last one's worker may be about to end, its job being done already */
	for (int waited = 0; residency_lock(LOCK_RESTORE, run->job.job) < 0; waited += 10)
	{
		if (waited >= START_PATIENCE / 2)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("another restore is running")));
		sleep_or_wake(10000, run->wait_event);
	}
}

/* one restore at a time on a machine: the others wait for their turn, and for the memory that is left then */
static void
wait_for_machine(Run *run)
{
	while (machine_lock() < 0)
	{
		if (run->job.state != JOB_WAITING)
		{
			run->job.state = JOB_WAITING;
			job_write(run->fd, &run->job);
		}
		if (run_wait(run, 100000))
			return;
	}
	run->job.state = JOB_RUNNING;
	run->job.started_at = GetCurrentTimestamp();
	if (run->job.budget_is_measured)
		run->job.budget_bytes = (int64) Min(restore_budget(), (uint64) PG_INT64_MAX);
	run->control.budget = (uint64) run->job.budget_bytes;
	job_write(run->fd, &run->job);
}

/* the segment of the snapshot that is the n-th of the plan; NULL when that is a whole file */
static const struct sf_segment *
planned_in_snapshot(const Run *run, int n, const struct sf_segment *in_snapshot, PlannedSegment *planned)
{
	job_read_planned(run->fd, n, planned);
	return planned->segment_no > 0 ? &in_snapshot[planned->segment_no - 1] : NULL;
}

/* the databases that have something in shared buffers to bring back, InvalidOid for the shared catalogs */
static List *
databases_of(const Run *run, const struct sf_segment *in_snapshot)
{
	List	   *databases = NIL;

	for (int i = 0; i < run->job.segments; i++)
	{
		PlannedSegment planned;
		const struct sf_segment *segment = planned_in_snapshot(run, i, in_snapshot, &planned);

		if (segment == NULL)
			continue;
		if (segment->layers[SF_BUFFERS_COOL].blocks + segment->layers[SF_BUFFERS_HOT].blocks > 0)
			databases = list_append_unique_oid(databases, planned.id.database);
	}
	return databases;
}

/* waits for a worker to end; false when the job was ended, and the worker with it */
static bool
wait_for_worker(Run *run, BackgroundWorkerHandle *handle)
{
	pid_t		pid;

	while (GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED)
		if (run_wait(run, 10000))
		{
			TerminateBackgroundWorker(handle);
			return false;
		}
	return true;
}

/* which of a segment's blocks were in shared buffers; in palloc'd memory */
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

/* leaves of the map what is in shared buffers now; how many blocks these are */
static int64
keep_resident_buffers(const struct sf_segment *segment, uint8 *buffers)
{
	SegmentId	id = snapshot_segment_id(segment);

	for (uint32 b = pc_next(buffers, segment->blocks, 0, true); b < segment->blocks; b = pc_next(buffers, segment->blocks, b + 1, true))
		if (!block_in_shared_buffers(&id, b))
			pc_clear(buffers, b);
	return (int64) pc_popcount(buffers, segment->blocks);
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
 * Counts which of a segment's buffers are back.  Blocks that the page cache did not hold when the snapshot was taken
 * were only passing through it: they are dropped there.
 */
static void
settle_buffers(Run *run, const struct sf_segment *segment, bool loaded)
{
	SegmentId	id = snapshot_segment_id(segment);
	uint8	   *buffers = wanted_buffers(segment);
	uint8	   *layer = palloc(pc_map_bytes(segment->blocks));
	char		path[MAXPGPATH];
	uint32		blocks;
	int			fd;

	run->job.buffers_resident += keep_resident_buffers(segment, buffers);
	sf_read_layer(segment, SF_PAGE_CACHE, layer);
	for (size_t i = 0; i < pc_map_bytes(segment->blocks); i++)
		buffers[i] &= (uint8) ~layer[i];
	if (loaded && pc_popcount(buffers, segment->blocks) > 0 && (fd = segment_open(&id, path, &blocks)) >= 0)
	{
		pc_evict_blocks(fd, buffers, Min(blocks, segment->blocks), BLCKSZ);
		CloseTransientFile(fd);
	}
	pfree(buffers);
	pfree(layer);
}

/* shared buffers, database by database */
static void
restore_buffers(Run *run, const struct sf_segment *in_snapshot)
{
	List	   *databases = databases_of(run, in_snapshot);
	bool		shared = list_member_oid(databases, InvalidOid);
	const struct sf_segment *segment;
	PlannedSegment planned;
	ListCell   *cell;

	databases = list_delete_oid(databases, InvalidOid);
	if (shared && databases == NIL)
		databases = list_make1_oid(Template1DbOid);
	for (int i = 0; i < run->job.segments && !run_wait(run, 0); i++)
		if ((segment = planned_in_snapshot(run, i, in_snapshot, &planned)) != NULL)
			count_buffers_before(run, segment);
	foreach(cell, databases)
	{
		BackgroundWorkerHandle *handle = start_buffer_worker(run->job.job, lfirst_oid(cell), shared);

		if (handle == NULL)
		{
			strlcpy(run->job.message, "shared buffers were not all restored: no background worker was free", sizeof(run->job.message));
			break;
		}
		if (!wait_for_worker(run, handle))
			return;
		shared = false;
	}
	for (int i = 0; i < run->job.segments && !run_wait(run, 0); i++)
		if ((segment = planned_in_snapshot(run, i, in_snapshot, &planned)) != NULL)
			settle_buffers(run, segment, planned.outcome.loaded > 0);
}

/* makes a lane for each device that a tablespace is on */
static void
make_lanes(Run *run)
{
	DIR		   *dir;
	struct dirent *entry;
	struct stat st;

	if (stat("base", &st) != 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not stat directory \"base\": %m")));
	run->lanes[0].device = st.st_dev;
	run->nlanes = 1;
	dir = AllocateDir("pg_tblspc");
	while ((entry = ReadDir(dir, "pg_tblspc")) != NULL)
	{
		char		path[MAXPGPATH];
		Elsewhere  *elsewhere;
		int			lane = 0;

		snprintf(path, sizeof(path), "pg_tblspc/%s", entry->d_name);
		if (entry->d_name[0] == '.' || stat(path, &st) != 0)
			continue;
		while (lane < run->nlanes && run->lanes[lane].device != st.st_dev)
			lane++;
		if (lane == MAX_DEVICES)
			lane--;
		if (lane == run->nlanes)
			run->lanes[run->nlanes++].device = st.st_dev;
		if (lane == 0)
			continue;
		elsewhere = palloc(sizeof(Elsewhere));
		*elsewhere = (Elsewhere) {(Oid) strtoul(entry->d_name, NULL, 10), lane};
		run->elsewhere = lappend(run->elsewhere, elsewhere);
	}
	FreeDir(dir);
}

static Lane *
lane_of(Run *run, const PlannedSegment *planned)
{
	ListCell   *cell;

	foreach(cell, run->elsewhere)
	{
		const Elsewhere *elsewhere = lfirst(cell);

		if (elsewhere->tablespace == planned->id.tablespace)
			return &run->lanes[elsewhere->lane];
	}
	return &run->lanes[0];
}

/* begins the lane's next segment; false when there is none */
static bool
begin_next(Run *run, Lane *lane, const struct sf_segment *in_snapshot, MemoryContext context)
{
	Begun	   *begun = &lane->begun[(lane->first + lane->count) % SIDE_BY_SIDE];
	struct sf_segment wanted;

	do
	{
		if (lane->next >= run->job.segments)
			return false;
		begun->n = lane->next++;
		job_read_planned(run->fd, begun->n, &begun->planned);
	} while (run->nlanes > 1 && lane_of(run, &begun->planned) != lane);
	lane->count++;
	if (begun->context == NULL)
		begun->context = AllocSetContextCreate(context, "residency segment", ALLOCSET_DEFAULT_SIZES);
	wanted_of(&begun->planned, in_snapshot, &wanted);
	begin_or_record(run, begun, &wanted);
	return true;
}

/*
 * Asks for the lane's segments; with other lanes beside it, only for as much as its window holds, and without waiting.
 * False when nothing is left to ask for.
 */
static bool
fill_lane(Run *run, Lane *lane, const struct sf_segment *in_snapshot, MemoryContext context)
{
	bool		wait = run->nlanes == 1;
	uint64		taken = run->control.pace.taken;

	while (!run_wait(run, 0))
	{
		Begun	   *newest = &lane->begun[(lane->first + lane->count - 1 + SIDE_BY_SIDE) % SIDE_BY_SIDE];

		if (lane->count > 0 && newest->work != NULL && !send_or_record(newest, wait))
			return true;
		/* none needs to wait for the room of others that have come in */
		while (lane->count > 0 && (lane->begun[lane->first].work == NULL || !segment_is_in_flight(lane->begun[lane->first].work)))
			finish_oldest(run, lane);
		if (!wait && (lane->count == SIDE_BY_SIDE || run->control.pace.taken - taken >= run->window.bytes))
			return true;
		if (lane->count == SIDE_BY_SIDE)
			finish_oldest(run, lane);
		if (!begin_next(run, lane, in_snapshot, context))
			return false;
	}
	return false;
}

static void
run_job(Run *run, MemoryContext context)
{
	struct sf_segment *in_snapshot = NULL;
	bool		more;

	if (run->job.snapshot[0] != '\0')
		in_snapshot = snapshot_segments(snapshot_load(run->job.snapshot));
	make_lanes(run);
	wait_for_machine(run);
	do
	{
		uint64		taken = run->control.pace.taken;

		more = false;
		for (int i = 0; i < run->nlanes; i++)
			more |= fill_lane(run, &run->lanes[i], in_snapshot, context);
		if (more && run->control.pace.taken == taken)
			await_any_device(&run->control);
	} while (more);
	for (int i = 0; i < run->nlanes; i++)
		while (run->lanes[i].count > 0)
			finish_oldest(run, &run->lanes[i]);
	machine_note_bytes((uint64) run->job.total.resident * BLCKSZ);
	if (run->job.shared_buffers && in_snapshot != NULL && run->job.state == JOB_RUNNING)
		restore_buffers(run, in_snapshot);
}

void
pg_residency_restore_main(Datum number)
{
	MemoryContext context;
	Run		   *run;

	pqsignal(SIGTERM, request_shutdown);
	pqsignal(SIGINT, request_cancel);
	BackgroundWorkerUnblockSignals();

	context = AllocSetContextCreate(TopMemoryContext, "residency restore", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	run = palloc0(sizeof(Run));
	if (!job_read(DatumGetInt32(number), &run->job) || run->job.state != JOB_STARTING)
		proc_exit(0);			/* its starter gave up on it */
	run->fd = job_open(run->job.job);
	run->wait_event = compat_wait_event("ResidencyRestore");
	run->job.pid = MyProcPid;
	run->job.started_at = GetCurrentTimestamp();
	if (run->job.time_limit > 0)
		run->deadline = run->job.started_at + (TimestampTz) run->job.time_limit * USECS_PER_SEC;
	run->control.budget_is_measured = run->job.budget_is_measured;
	run->control.pace.rate = (uint64) run->job.rate_bytes;
	run->window = run->job.aggressive ? pc_aggressive : pc_gentle;
	/* blocked in the kernel we would feel ourselves as pressure */
	run->window.blocks_in_kernel = run->job.max_io_pressure == 0;
	run->control.window = &run->window;
	run->control.gap_blocks = run->job.gap_blocks;
	run->control.wait = run_wait;
	run->control.blocked = run_blocked;
	run->control.progress = run_progress;
	run->control.arg = run;

	/* the kernel rounds sleeps up by 50 microseconds, in which a fast device reads 100 KiB */
	(void) prctl(PR_SET_TIMERSLACK, 1000UL);

	PG_TRY();
	{
		take_turn(run);
		run_job(run, context);
		if (run->job.state == JOB_RUNNING)
			run->job.state = JOB_DONE;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		EmitErrorReport();
		error = CopyErrorData();
		FlushErrorState();
		run->job.state = JOB_FAILED;
		strlcpy(run->job.message, error->message, sizeof(run->job.message));
	}
	PG_END_TRY();
	run->job.finished_at = GetCurrentTimestamp();
	job_write(run->fd, &run->job);
	ereport(LOG,
			(errmsg("restore of snapshot \"%s\" (job %d) is %s: " INT64_FORMAT " of " INT64_FORMAT " blocks resident, " INT64_FORMAT " loaded",
					run->job.snapshot, run->job.job, state_names[run->job.state],
					run->job.total.resident, run->job.total.wanted, run->job.total.loaded)));
	proc_exit(0);
}

/* --- the functions --- */

static void
report_no_segment(const ResidencySnapshot *snapshot, int segment_no)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("snapshot \"%s\" has no segment %d", snapshot->label, segment_no),
			 errhint("It has the numbers 1 to %u; residency_snapshot_segments() lists them.", snapshot->header.segments)));
}

/* the value of an option that counts something: a whole number */
static int64
option_count(const char *key, const JsonbValue *value, int64 least, int64 most)
{
	bool		fits = false;
	int64		n = 0;

	if (value->type == jbvNumeric)
	{
		Numeric		rounded = DatumGetNumeric(DirectFunctionCall2(numeric_round, NumericGetDatum(value->val.numeric), Int32GetDatum(0)));

		fits = DatumGetBool(DirectFunctionCall2(numeric_ge, NumericGetDatum(rounded),
												DirectFunctionCall1(int8_numeric, Int64GetDatum(least)))) &&
			DatumGetBool(DirectFunctionCall2(numeric_le, NumericGetDatum(rounded),
											 DirectFunctionCall1(int8_numeric, Int64GetDatum(most))));
		if (fits)
			n = DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(rounded)));
	}
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" must be a number from " INT64_FORMAT " to " INT64_FORMAT, key, least, most)));
	return n;
}

static bool
option_bool(const char *key, const JsonbValue *value)
{
	if (value->type != jbvBool)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" must be true or false", key)));
	return value->val.boolean;
}

/* the numbers of an array, or of an array of arrays of `width` numbers, one behind another; their count to `count` */
static int64 *
option_numbers(const char *key, JsonbValue *value, int width, int64 most, int *count)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	v;
	int			room = 64;
	int64	   *numbers = palloc(room * sizeof(int64));
	int			depth = 0;
	bool		fits = value->type == jbvBinary;

	*count = 0;
	it = fits ? JsonbIteratorInit(value->val.binary.data) : NULL;
	while (fits && (token = JsonbIteratorNext(&it, &v, false)) != WJB_DONE)
	{
		if (token == WJB_BEGIN_ARRAY)
			fits = ++depth <= (width > 1 ? 2 : 1) && *count % width == 0;
		else if (token == WJB_END_ARRAY)
			fits = --depth >= 0 && *count % width == 0;
		else if (token == WJB_ELEM && depth == (width > 1 ? 2 : 1))
		{
			if (*count == room)
				numbers = repalloc_huge(numbers, (room *= 2) * sizeof(int64));
			numbers[(*count)++] = option_count(key, &v, 1, most);
		}
		else
			fits = false;
	}
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 width > 1 ? errmsg("option \"%s\" must be an array of arrays of %d numbers", key, width) :
				 errmsg("option \"%s\" must be an array of numbers", key)));
	return numbers;
}

/* what residency_restore_start() was asked for, beside what goes into the job at once */
typedef struct Request
{
	bool		selected;		/* only these segments, in this order */
	int64	   *segments;
	int			nsegments;
	int64	   *whole;			/* tablespace, database, relfilenumber, one relation behind another */
	int			nwhole;			/* numbers */
} Request;

static void
read_options(Jsonb *options, Job *job, Request *request)
{
	JsonbIterator *it = JsonbIteratorInit(&options->root);
	JsonbIteratorToken token;
	JsonbValue	v;
	char	   *key = NULL;

	if (!JB_ROOT_IS_OBJECT(options))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the options must be a JSON object")));
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			key = pnstrdup(v.val.string.val, v.val.string.len);
		else if (token == WJB_VALUE)
		{
			if (strcmp(key, "budget") == 0)
			{
				job->budget_bytes = option_count(key, &v, 1, PG_INT64_MAX);
				job->budget_is_measured = false;
			}
			else if (strcmp(key, "rate") == 0)
				job->rate_bytes = option_count(key, &v, 1, PG_INT64_MAX);
			else if (strcmp(key, "time_limit") == 0)
				job->time_limit = (int32) option_count(key, &v, 1, PG_INT32_MAX);
			else if (strcmp(key, "gap_blocks") == 0)
				job->gap_blocks = (int32) option_count(key, &v, 0, RELSEG_SIZE);
			else if (strcmp(key, "max_io_pressure") == 0)
				job->max_io_pressure = (int32) option_count(key, &v, 1, 100);
			else if (strcmp(key, "aggressive") == 0)
				job->aggressive = option_bool(key, &v);
			else if (strcmp(key, "shared_buffers") == 0)
				job->shared_buffers = option_bool(key, &v);
			else if (strcmp(key, "segments") == 0)
			{
				request->segments = option_numbers(key, &v, 1, PG_INT32_MAX, &request->nsegments);
				request->selected = true;
			}
			else if (strcmp(key, "whole") == 0)
				request->whole = option_numbers(key, &v, 3, PG_UINT32_MAX, &request->nwhole);
			else
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("there is no option \"%s\"", key),
						 errhint("The options are \"budget\" (bytes), \"rate\" (bytes per second), \"time_limit\" (seconds), "
								 "\"segments\" (numbers of the snapshot's segments), \"whole\" ([tablespace, database, relfilenumber] each), "
								 "\"shared_buffers\" (true: fill them too), \"aggressive\" (true: nobody needs the disk yet), \"max_io_pressure\" (percent) and \"gap_blocks\".")));
		}
	}
}

/* --- what a job is to do --- */

static void
plan_segment(PlannedSegment *planned, int segment_no, const struct sf_segment *segment)
{
	memset(planned, 0, sizeof(*planned));
	planned->segment_no = segment_no;
	planned->id = snapshot_segment_id(segment);
	planned->blocks = segment->blocks;
	planned->wanted = segment->wanted;
	planned->heat = segment->layers[SF_PAGE_CACHE].blocks + 2 * (uint64) segment->layers[SF_BUFFERS_COOL].blocks +
		4 * (uint64) segment->layers[SF_BUFFERS_HOT].blocks;
}

/*
 * What matters most first, should the budget or the time not reach for all: by heat per block.  What was in shared
 * buffers counts for more, and more still when it was often used; the page cache's map tells no such thing, but a
 * segment that was cached as a whole was used more than one of which some blocks were left.
 */
static int
compare_planned(const void *a, const void *b)
{
	const PlannedSegment *pa = a;
	const PlannedSegment *pb = b;
	uint64		da = pa->heat * pb->blocks;
	uint64		db = pb->heat * pa->blocks;

	if (da != db)
		return da > db ? -1 : 1;
	return pa->segment_no - pb->segment_no;
}

/* the snapshot's segments, or those of them that were asked for in the order in which they were */
static PlannedSegment *
plan_snapshot(const ResidencySnapshot *snapshot, const Request *request, int *count)
{
	const struct sf_segment *segments = snapshot_segments(snapshot);
	int			most = (int) snapshot->header.segments;
	PlannedSegment *plan;

	*count = request->selected ? request->nsegments : most;
	plan = palloc_extended(Max(*count, 1) * sizeof(PlannedSegment), MCXT_ALLOC_HUGE);
	for (int i = 0; i < *count; i++)
	{
		int			no = request->selected ? (int) request->segments[i] : i + 1;

		if (no > most)
			report_no_segment(snapshot, no);
		plan_segment(&plan[i], no, &segments[no - 1]);
	}
	if (!request->selected)
		qsort(plan, *count, sizeof(PlannedSegment), compare_planned);
	return plan;
}

/* adds each segment of the main fork of a relation that is wanted whole */
static PlannedSegment *
plan_whole(PlannedSegment *plan, int *count, const int64 *numbers)
{
	SegmentId	id = {(Oid) numbers[0], (Oid) numbers[1], (RelFileNumber) numbers[2], MAIN_FORKNUM, 0};
	struct sf_segment segment;
	char		path[MAXPGPATH];
	uint32		blocks;
	int			fd;

	while ((fd = segment_open(&id, path, &blocks)) >= 0)
	{
		CloseTransientFile(fd);
		if (blocks == 0)
			break;
		plan = repalloc_huge(plan, (*count + 1) * sizeof(PlannedSegment));
		whole_segment(&id, blocks, &segment);
		plan_segment(&plan[(*count)++], 0, &segment);
		id.segment++;
	}
	if (id.segment == 0 && fd < 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("there is no file \"%s\" to load whole", path)));
	return plan;
}

static void
refuse_second_job(void)
{
	int			count;
	int		   *numbers = job_numbers(&count);
	Job			job;

	while (count-- > 0)
		if (job_read(numbers[count], &job) && (job.state == JOB_RUNNING || job.state == JOB_WAITING))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 job.snapshot[0] == '\0' ? errmsg("job %d is restoring relations", job.job) :
					 errmsg("job %d is restoring snapshot \"%s\"", job.job, job.snapshot),
					 errhint("Wait for it, or end it with residency_cancel(%d).", job.job)));
}

/* makes the job, starts its worker and waits until that is at work */
static int
start_job(Job *job, const PlannedSegment *plan)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;
	pid_t		pid;
	int			number = job_create(job, plan);

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = Int32GetDatum(number);
	worker.bgw_notify_pid = MyProcPid;
	strlcpy(worker.bgw_library_name, "pg_residency", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "pg_residency_restore_main", sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "pg_residency restore (job %d)", number);
	strlcpy(worker.bgw_type, "pg_residency restore", sizeof(worker.bgw_type));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("no background worker is free for the restore"),
				 errhint("Raise max_worker_processes, or try again when parallel queries have finished.")));
	if (WaitForBackgroundWorkerStartup(handle, &pid) == BGWH_POSTMASTER_DIED)
		ereport(FATAL,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("the postmaster died")));
	for (int waited = 0; waited < START_PATIENCE; waited += 10)
	{
		if (!job_read(number, job) || job->state != JOB_STARTING)
			break;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return number;
}

PG_FUNCTION_INFO_V1(residency_restore_start);
Datum
residency_restore_start(PG_FUNCTION_ARGS)
{
	Request		request = {0};
	PlannedSegment *plan = palloc(sizeof(PlannedSegment));
	Job			job;
	int			number = 0;
	int			lock;

	memset(&job, 0, sizeof(job));
	job.budget_is_measured = true;
	job.gap_blocks = -1;
	if (!PG_ARGISNULL(1))
		read_options(PG_GETARG_JSONB_P(1), &job, &request);
	if (job.max_io_pressure > 0 && access("/proc/pressure/io", R_OK) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("option \"max_io_pressure\" needs /proc/pressure/io: %m"),
				 errhint("Limit the restore with \"rate\" instead, or start the kernel with psi=1.")));
	/* without a snapshot there can still be relations to load whole */
	if (!PG_ARGISNULL(0) || request.nwhole == 0)
	{
		ResidencySnapshot *snapshot = snapshot_load(text_argument(fcinfo, 0, "the snapshot's name"));

		strlcpy(job.snapshot, snapshot->label, sizeof(job.snapshot));
		plan = plan_snapshot(snapshot, &request, &job.segments);
	}
	for (int i = 0; i < request.nwhole; i += 3)
		plan = plan_whole(plan, &job.segments, request.whole + i);
	for (int i = 0; i < job.segments; i++)
		job.planned += plan[i].wanted;
	if (job.budget_is_measured)
		job.budget_bytes = (int64) Min(restore_budget(), (uint64) PG_INT64_MAX);

	lock = residency_lock(LOCK_START, 0);
	if (lock < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another session is starting a restore"),
				 errhint("View residency_jobs shows it.")));
	PG_TRY();
	{
		refuse_second_job();
		number = start_job(&job, plan);
	}
	PG_FINALLY();
	{
		close(lock);
	}
	PG_END_TRY();
	PG_RETURN_INT32(number);
}

PG_FUNCTION_INFO_V1(residency_cancel);
Datum
residency_cancel(PG_FUNCTION_ARGS)
{
	Job			job;
	int			number;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the job's number must not be null")));
	number = PG_GETARG_INT32(0);
	if (!job_read(number, &job))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("there is no job %d", number),
				 errhint("View residency_jobs has those that are remembered.")));
	if (job.state != JOB_RUNNING && job.state != JOB_WAITING)
		PG_RETURN_BOOL(false);
	if (kill(job.pid, SIGINT) != 0)
	{
		if (errno == ESRCH)
			PG_RETURN_BOOL(false);	/* it has just ended */
		ereport(ERROR,
				(errmsg("could not signal job %d: %m", number)));
	}
	PG_RETURN_BOOL(true);
}

#define JOB_COLUMNS 24

PG_FUNCTION_INFO_V1(residency_job_list);
Datum
residency_job_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo;
	int			count;
	int		   *numbers = job_numbers(&count);

	rsinfo = result_set(fcinfo, JOB_COLUMNS);
	for (int i = 0; i < count; i++)
	{
		Datum		values[JOB_COLUMNS];
		bool		nulls[JOB_COLUMNS] = {false};
		Job			job;
		char	   *at;

		if (!job_read(numbers[i], &job))
			continue;
		at = strchr(job.snapshot, '@');
		values[0] = Int32GetDatum(job.job);
		nulls[1] = nulls[2] = at == NULL;
		if (at != NULL)
		{
			values[1] = PointerGetDatum(cstring_to_text_with_len(job.snapshot, (int) (at - job.snapshot)));
			values[2] = Int32GetDatum(atoi(at + 1));
		}
		values[3] = CStringGetTextDatum(state_names[job.state]);
		values[4] = Int32GetDatum(job.pid);
		nulls[4] = job.state != JOB_RUNNING && job.state != JOB_WAITING;
		values[5] = TimestampTzGetDatum(job.started_at);
		nulls[5] = job.started_at == 0;
		values[6] = TimestampTzGetDatum(job.finished_at);
		nulls[6] = job.finished_at == 0;
		values[7] = Int32GetDatum(job.segments);
		values[8] = Int32GetDatum(job.segments_done);
		values[9] = Int64GetDatum(job.planned);
		values[10] = Int64GetDatum(job.total.wanted);
		values[11] = Int64GetDatum(job.total.resident);
		values[12] = Int64GetDatum(job.total.loaded + job.arriving);
		values[13] = Int64GetDatum(job.total.extra);
		values[14] = Int64GetDatum(job.total.over_budget);
		values[15] = Int64GetDatum(job.total.gone);
		values[16] = Int64GetDatum(job.total.failed);
		values[17] = Int64GetDatum(job.budget_bytes);
		values[18] = Int64GetDatum(job.rate_bytes);
		nulls[18] = job.rate_bytes == 0;
		values[19] = Int32GetDatum(job.time_limit);
		nulls[19] = job.time_limit == 0;
		values[20] = Int64GetDatum(job.buffers_wanted);
		values[21] = Int64GetDatum(job.buffers_resident);
		values[22] = Int64GetDatum(Max(job.buffers_resident - job.buffers_before, 0));
		nulls[20] = nulls[21] = nulls[22] = !job.shared_buffers;
		values[23] = CStringGetTextDatum(job.message);
		nulls[23] = job.message[0] == '\0';
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* --- one segment, in this session --- */

bool
session_wait(void *arg, long microseconds)
{
	if (microseconds > 0)
		sleep_or_wake(microseconds, *(uint32 *) arg);
	/* not CHECK_FOR_INTERRUPTS(): the loader must give back its mapping first */
	return InterruptPending && (QueryCancelPending || ProcDiePending);
}

void
session_blocked(void *arg, bool begins)
{
	if (begins)
		pgstat_report_wait_start(*(uint32 *) arg);
	else
		pgstat_report_wait_end();
}

PG_FUNCTION_INFO_V1(residency_restore);
Datum
residency_restore(PG_FUNCTION_ARGS)
{
	ResidencySnapshot *snapshot = snapshot_load(text_argument(fcinfo, 0, "the snapshot's name"));
	uint32		wait_event = compat_wait_event("ResidencyRestore");
	RestoreControl *control = palloc0(sizeof(RestoreControl));
	struct sf_segment segment;
	SegmentOutcome outcome;
	SegmentWork *work;
	TupleDesc	tupdesc;
	Datum		values[OUTCOME_COLUMNS];
	bool		nulls[OUTCOME_COLUMNS];
	int			number;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the segment's number must not be null")));
	tupdesc = result_row(fcinfo, OUTCOME_COLUMNS);
	number = PG_GETARG_INT32(1);
	if (number < 1 || number > (int) snapshot->header.segments)
		report_no_segment(snapshot, number);
	segment = snapshot_segments(snapshot)[number - 1];

	control->budget = restore_budget();
	control->budget_is_measured = true;
	control->window = &pc_gentle;
	control->gap_blocks = -1;
	control->wait = session_wait;
	control->blocked = session_blocked;
	control->arg = &wait_event;
	begin_segment(&segment, control, &outcome, &work);
	if (work != NULL)
		finish_segment(work);
	CHECK_FOR_INTERRUPTS();
	outcome_values(number, &outcome, values, nulls);
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls));
}
