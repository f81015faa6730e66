/*
 * job.c - runs a job: waits for its turn, restores, and records the outcome
 */
#include "job.h"

#include <sys/prctl.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "directory.h"
#include "interrupts.h"
#include "job_buffers.h"
#include "job_hold.h"
#include "job_lanes.h"

/* milliseconds between two writes of a running job's state */
#define WRITE_EVERY 200
#define WRITE_HELD_EVERY 1000

/* milliseconds to wait for the process of the previous job, which may be done but not yet ended */
#define TURN_PATIENCE 5000

#define TERMINATED "the worker was terminated, for example by a server shutdown"
#define CANCELED "canceled by residency_cancel()"
#define GAVE_WAY "ended for a restore that somebody asked for, or canceled by residency_cancel()"
#define REMOVED "the file of the job was removed"

/* --- ending --- */

static void
end_job(Run *run, JobState state, const char *message)
{
	run->job.state = state;
	strlcpy(run->job.message, message, sizeof(run->job.message));
}

static void
cancel_job(Run *run)
{
	end_job(run, JOB_CANCELED, run->job.settings.unattended ? GAVE_WAY : CANCELED);
}

/* notes for residency_jobs what the job uses of the host */
static void
note_resources(Run *run)
{
	run->job.budget_bytes =
		(int64) Min(allowance_budget(&run->control.allowance), (uint64) PG_INT64_MAX);
	run->job.io_class = devices_class(&run->control.devices, run->job.scheduler);
	run->job.window_bytes = run->window.bytes;
}

/*
 * True when the job must end; its state and message then contain the reason.  Sleeps first, unless
 * `microseconds` is 0.  It raises no error, because its callers have resources to release.  So it
 * checks the interrupts itself; a process without a database receives only those that end it.
 */
static bool
run_wait(void *arg, long microseconds)
{
	Run		   *run = arg;
	int64		now;
	bool		stop = false;

	if (microseconds > 0 && !ProcDiePending && !QueryCancelPending)
		sleep_or_wake(microseconds, run->wait_event);
	if (run->hold != NULL)
		stop = hold_answer(run);
	now = monotonic_milliseconds();
	run->window.gives_way = !server_is_consistent();
	allowance_adapt(&run->control.allowance,
					run->job.total.loaded + run->job.arriving + run->loaded_by_hold);
	if (!job_is_alive(&run->job))
		return true;
	if (ProcDiePending)
		end_job(run, JOB_INTERRUPTED, TERMINATED);
	else if (QueryCancelPending)
		cancel_job(run);
	else if (run->deadline != 0 && now >= run->deadline)
		end_job(run, JOB_CANCELED,
				psprintf("the time limit of %d s was reached", run->job.settings.time_limit));
	/* the final state is written with its time, after all resources have been released */
	if (job_is_alive(&run->job) &&
		now - run->written_at >= (run->job.state == JOB_HOLDING ? WRITE_HELD_EVERY : WRITE_EVERY))
	{
		if (!PostmasterIsAlive())
			proc_exit(1);
		host_turn_keep(&run->turn);
		note_resources(run);
		if (!job_try_write(run->fd, &run->job))
			end_job(run, JOB_FAILED,
					psprintf("could not write file \"%s\": %m", job_path(run->job.job)));
		/* without its file, residency_jobs and residency_cancel() cannot find it */
		else if (!job_exists(run->job.job))
			end_job(run, JOB_INTERRUPTED, REMOVED);
		run->written_at = now;
	}
	return stop || !job_is_alive(&run->job);
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

/* Writes the first state after JOB_STARTING, for which the session that started the job waits. */
static void
publish_state(Run *run)
{
	job_write(run->fd, &run->job);
	wake_process(MyBgworkerEntry->bgw_notify_pid);
}

/* --- the job --- */

/*
 * A cluster runs one restore at a time.  The lock lasts until the process ends, however that ends.
 */
static void
take_cluster(Run *run)
{
	run->lock = residency_lock(LOCK_RESTORE, run->job.job, TURN_PATIENCE);
	if (run->lock < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another restore is already running")));
}

/*
 * A host runs one restore at a time: the others wait for their turn, and for the memory that
 * remains then.
 */
static void
take_host(Run *run)
{
	while (!host_turn_take(&run->turn, run->job.settings.turn_wait))
	{
		char		message[sizeof(run->job.message)];

		if (run->turn.pid != 0)
			snprintf(message, sizeof(message),
					 "waiting for the restore of \"%s\" (PID %d) since %s",
					 run->turn.directory, run->turn.pid, timestamptz_to_str(run->turn.since));
		else
			snprintf(message, sizeof(message), "waiting for another restore on this host since %s",
					 timestamptz_to_str(run->turn.since));
		if (run->job.state != JOB_WAITING || strcmp(message, run->job.message) != 0)
		{
			run->job.state = JOB_WAITING;
			strlcpy(run->job.message, message, sizeof(run->job.message));
			publish_state(run);
		}
		if (run_wait(run, 100000))
			return;
	}
	run->job.message[0] = '\0';
	run->job.state = JOB_RUNNING;
	run->job.started_at = GetCurrentTimestamp();
}

/* false: the starter abandoned the job meanwhile and removed its files */
static bool
begin_run(Run *run, int number)
{
	const JobSettings *settings = &run->job.settings;

	run->fd = job_open(number);
	if (run->fd < 0)
		return false;
	run->wait_event = compat_wait_event("ResidencyRestore");
	run->job.pid = MyProcPid;
	run->job.started_at = GetCurrentTimestamp();
	if (settings->time_limit > 0)
		run->deadline = patience_until((int64) settings->time_limit * 1000);
	run->window = settings->aggressive ? pc_aggressive : pc_gentle;
	run->window.idle_if_quick = settings->unattended;
	/* a process blocked in the kernel would itself add to the I/O pressure */
	run->window.blocks_in_kernel = settings->max_io_pressure == 0;
	run->control.window = &run->window;
	run->control.gap_blocks = settings->gap_blocks;
	run->control.wait = run_wait;
	run->control.blocked = run_blocked;
	run->control.progress = run_progress;
	run->control.arg = run;
	/*
	 * the default timer slack delays a sleep by 50 microseconds, in which a fast device reads 100
	 * KiB
	 */
	(void) prctl(PR_SET_TIMERSLACK, 1000UL);
	return true;
}

static void
restore(Run *run)
{
	const JobSettings *settings = &run->job.settings;

	take_cluster(run);
	run->plan = job_read_plan(run->fd, &run->job);
	if (settings->shared_buffers)
		run->loaded = palloc_extended((run->job.segments + 1) * sizeof(uint8 *),
									  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	if (settings->hold_until != 0)
		hold_prepare(run);
	take_host(run);
	if (!job_is_alive(&run->job))
		return;
	allowance_begin(&run->control.allowance, (uint64) settings->budget, (uint64) settings->rate,
					settings->max_io_pressure);
	note_resources(run);
	publish_state(run);
	restore_segments(run);
	/* a worker for shared buffers may wait for a lock: other clusters restore meanwhile */
	host_turn_end(&run->turn);
	/* only a process with a database fills them, which a starting server does not have yet */
	while (settings->shared_buffers && job_is_alive(&run->job) && !server_is_consistent())
		if (run_wait(run, 100000))
			break;
	if (settings->shared_buffers && job_is_alive(&run->job))
		restore_buffers(run);
	if (settings->hold_until != 0 && job_is_alive(&run->job))
		hold_restored(run);
	if (!job_is_alive(&run->job))
		return;
	run->job.state = JOB_DONE;
	if (run->job.message[0] == '\0' && host_unusable_file() != NULL)
		snprintf(run->job.message, sizeof(run->job.message),
				 "not coordinated with other clusters of this host: could not use ledger file \"%s\"",
				 host_unusable_file());
}

/*
 * An ERROR ends the worker.  The state is written first and without allocating memory, which may be
 * what is missing.
 */
static void
record_error(Run *run)
{
	/* the session that started the job has abandoned it and removed its files */
	if (!job_exists(run->job.job))
		proc_exit(0);
	if (QueryCancelPending || geterrcode() == ERRCODE_QUERY_CANCELED)
		cancel_job(run);
	else if (geterrcode() == ERRCODE_OUT_OF_MEMORY)
		end_job(run, JOB_FAILED, "out of memory");
	else
	{
		MemoryContextSwitchTo(run->context);
		end_job(run, JOB_FAILED, CopyErrorData()->message);
	}
	run->job.finished_at = GetCurrentTimestamp();
	(void) job_try_write(run->fd, &run->job);
	host_turn_end(&run->turn);
	job_remove_plan(run->fd, &run->job);
}

/* a process that ends early, by FATAL, marks its job as interrupted */
static void
end_by_exit(int code, Datum arg)
{
	Run		   *run = (Run *) DatumGetPointer(arg);

	if (!job_is_alive(&run->job))
		return;
	end_job(run, JOB_INTERRUPTED, TERMINATED);
	run->job.finished_at = GetCurrentTimestamp();
	(void) job_try_write(run->fd, &run->job);
	host_turn_end(&run->turn);
}

void
job_run(int number)
{
	MemoryContext before = CurrentMemoryContext;
	MemoryContext context =
		AllocSetContextCreate(TopMemoryContext, "residency job", ALLOCSET_DEFAULT_SIZES);
	Run		   *run = MemoryContextAllocHuge(context, sizeof(Run));

	MemoryContextSwitchTo(context);
	memset(run, 0, sizeof(*run));
	run->context = context;
	if (!job_read(number, &run->job) || run->job.state != JOB_STARTING)
		return;					/* the starter abandoned the job */
	if (!begin_run(run, number))
		return;
	before_shmem_exit(end_by_exit, PointerGetDatum(run));
	PG_TRY();
	{
		restore(run);
	}
	PG_CATCH();
	{
		record_error(run);
		PG_RE_THROW();
	}
	PG_END_TRY();
	/* The request has been handled, but ereport() checks for interrupts and would find it again. */
	QueryCancelPending = false;
	host_turn_end(&run->turn);
	note_resources(run);
	run->job.finished_at = GetCurrentTimestamp();
	job_write(run->fd, &run->job);
	job_remove_plan(run->fd, &run->job);
	ereport(LOG,
			(errmsg("restore job %d ended in state \"%s\": " INT64_FORMAT " of " INT64_FORMAT
					" blocks resident, " INT64_FORMAT " loaded",
					run->job.job, job_state_name(run->job.state),
					run->job.total.resident, run->job.wanted, run->job.total.loaded),
			 run->job.message[0] != '\0' ? errdetail("Message of the job: %s.",
															   run->job.message) : 0));
	MemoryContextSwitchTo(before);
}
