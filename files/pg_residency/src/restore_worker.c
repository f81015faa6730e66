/*
 * restore_worker.c - the background worker of a job
 *
 * A worker rather than a long statement: a statement would hold back xmin, be canceled by recovery
 * conflicts on a standby, and end with its connection.  The worker has no database and needs no
 * preloading.  Its page cache is charged to the server's own memory cgroup.
 */
#include "restore_worker.h"

#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"

#include "compat.h"
#include "directory.h"
#include "interrupts.h"
#include "job.h"

/* milliseconds that the starter waits until the worker runs the job, and for another starter */
#define START_PATIENCE 10000

PGDLLEXPORT void pg_residency_restore_main(Datum number);

void
pg_residency_restore_main(Datum number)
{
	listen_to_signals();
	job_run(DatumGetInt32(number));
	proc_exit(0);
}

/* The restore of the server's start ends for a job that somebody asks for, when it has begun. */
static void
end_unattended_job(void)
{
	int64		until = patience_until(START_PATIENCE);
	ListCell   *cell;
	Job			job;

	foreach(cell, job_numbers())
		while (job_try_read(lfirst_int(cell), &job) && job.settings.unattended &&
			   job_has_begun(&job) && !patience_is_over(until))
		{
			if (kill(job.pid, SIGINT) != 0)
				break;
			sleep_or_wake(20000, compat_wait_event("ResidencyStart"));
			CHECK_FOR_INTERRUPTS();
		}
}

static void
refuse_second_job(void)
{
	ListCell   *cell;
	Job			job;

	/* a file that cannot be read hides no job: only one worker gets LOCK_RESTORE */
	foreach(cell, job_numbers())
		if (job_try_read(lfirst_int(cell), &job) && job_has_begun(&job))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 job.state == JOB_HOLDING ?
						 errmsg("job %d holds what it has restored", job.job) :
					 job.snapshot[0] == '\0' ? errmsg("job %d is restoring relations", job.job) :
					 errmsg("job %d is restoring snapshot \"%s\"", job.job, job.snapshot),
					 errhint("Wait until the job ends, or cancel it with residency_cancel(%d).", job.job)));
}

static BackgroundWorkerHandle *
register_worker(int number)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = Int32GetDatum(number);
	worker.bgw_notify_pid = MyProcPid;
	strlcpy(worker.bgw_library_name, "pg_residency", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "pg_residency_restore_main",
			sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "pg_residency restore (job %d)", number);
	strlcpy(worker.bgw_type, "pg_residency restore", sizeof(worker.bgw_type));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		ereport(
			ERROR,
			(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
			 errmsg("out of background worker slots"),
			 errhint(
				 "Increase max_worker_processes, or try again when parallel queries have finished.")));
	return handle;
}

/*
 * Whether the worker runs the job or has ended it.  A job that cannot be read has not begun: if its
 * file was removed or damaged, its worker ends.
 */
static bool
wait_for_start(BackgroundWorkerHandle *handle, int number)
{
	int64		until = patience_until(START_PATIENCE);

	for (;;)
	{
		BgwHandleStatus status;
		pid_t		pid;
		Job			job;

		/* a shutdown terminates this session as well */
		CHECK_FOR_INTERRUPTS();
		status = GetBackgroundWorkerPid(handle, &pid);
		if (job_try_read(number, &job) && job.state != JOB_STARTING)
			return true;
		if (status == BGWH_STOPPED || status == BGWH_POSTMASTER_DIED || patience_is_over(until))
			return false;
		/* the worker sets the latch when it has begun, the postmaster when the worker has ended */
		sleep_or_wake(1000000, compat_wait_event("ResidencyStart"));
	}
}

/* a job that is being started */
typedef struct Starting
{
	Job			job;			/* without a number before it is created */
	int			oldest;			/* job to remove when this one has begun; 0: none */
	BackgroundWorkerHandle *handle;
} Starting;

/* runs after the job has begun, so it must not raise an error */
static void
remove_oldest(const Starting *starting)
{
	if (starting->oldest != 0)
		job_remove(starting->oldest);
}

/* cleanup, also when the session is terminated: a start that did not succeed leaves no job */
static void
abandon_start(int code, Datum arg)
{
	const Starting *starting = (const Starting *) DatumGetPointer(arg);
	int			number = starting->job.job;
	Job			job;

	if (starting->handle != NULL)
		TerminateBackgroundWorker(starting->handle);
	if (number == 0)
		return;
	/* a job that has begun meanwhile records its own end */
	if (job_try_read(number, &job) && job.pid != 0)
		remove_oldest(starting);
	else
		job_remove(number);
}

static int
start(const RestorePlan *plan, const JobSettings *settings, int lock)
{
	Starting	starting = {.job.settings = *settings};

	end_unattended_job();
	refuse_second_job();
	starting.oldest = job_tidy();
	PG_ENSURE_ERROR_CLEANUP(abandon_start, PointerGetDatum(&starting));
	{
		job_create(&starting.job, plan, lock);
		starting.handle = register_worker(starting.job.job);
		if (!wait_for_start(starting.handle, starting.job.job))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("could not start the worker of the restore"),
					 errhint("More details may be available in the server log.")));
	}
	PG_END_ENSURE_ERROR_CLEANUP(abandon_start, PointerGetDatum(&starting));
	remove_oldest(&starting);
	return starting.job.job;
}

int
job_start(const RestorePlan *plan, const JobSettings *settings)
{
	int			lock = residency_lock(LOCK_START, 0, START_PATIENCE);
	volatile int number = 0;

	if (lock < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another session is starting a restore"),
				 errhint("View residency_jobs lists that restore.")));
	PG_TRY();
	{
		number = start(plan, settings, lock);
	}
	PG_FINALLY();
	{
		residency_unlock(lock);
	}
	PG_END_TRY();
	return number;
}
