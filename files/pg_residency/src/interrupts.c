/*
 * interrupts.c - one policy for waits and interrupts, for sessions and workers
 */
#include "interrupts.h"

#include <signal.h>
#include <time.h>

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "compat.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

/* how long a worker waits for a lock */
#define LOCK_TIMEOUT_SETTING "2s"

void
sleep_or_wake(long microseconds, uint32 wait_event)
{
	/*
	 * WaitLatch() cannot wait for less than a millisecond, in which a fast device reads megabytes
	 */
	if (microseconds < 1000)
	{
		pgstat_report_wait_start(wait_event);
		pg_usleep(microseconds);
		pgstat_report_wait_end();
	}
	else
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 microseconds / 1000, wait_event);
		ResetLatch(MyLatch);
	}
}

void
wake_process(int pid)
{
	/* BackendPidGetProc() finds no worker without a database */
	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[i];

		if (proc->pid == pid)
			SetLatch(&proc->procLatch);
	}
}

int64
monotonic_milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64
patience_until(int64 milliseconds)
{
	return monotonic_milliseconds() + milliseconds;
}

bool
patience_is_over(int64 until)
{
	return monotonic_milliseconds() >= until;
}

bool
session_wait(void *arg, long microseconds)
{
	if (microseconds > 0 && !InterruptPending)
		sleep_or_wake(microseconds, *(uint32 *) arg);
	/*
	 * While interrupts are held off, CHECK_FOR_INTERRUPTS() does nothing, and the caller would loop
	 * forever.
	 */
	return InterruptPending && INTERRUPTS_CAN_BE_PROCESSED();
}

void
session_blocked(void *arg, bool begins)
{
	if (begins)
		pgstat_report_wait_start(*(uint32 *) arg);
	else
		pgstat_report_wait_end();
}

void
listen_to_signals(void)
{
	pqsignal(SIGTERM, die);
	pqsignal(SIGINT, StatementCancelHandler);
	/* the postmaster's signal that a worker has ended, which one without a database would ignore */
	pqsignal(SIGUSR1, procsignal_sigusr1_handler);
	BackgroundWorkerUnblockSignals();
}

void
connect_to_database(Oid database)
{
	SetConfigOption("lock_timeout", LOCK_TIMEOUT_SETTING, PGC_SUSET, PGC_S_OVERRIDE);
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, BGWORKER_BYPASS_ALLOWCONN);
	compat_no_transaction_timeout();
}

bool
server_is_consistent(void)
{
	return !RecoveryInProgress() || HotStandbyActive();
}

void
check_for_interrupts(void)
{
	CHECK_FOR_INTERRUPTS();
}
