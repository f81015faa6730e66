/*
 * worker.c - the background worker of a preloaded library: it saves what both caches hold
 *
 * When the server starts it starts a restore, once, which runs while the server recovers.  It saves
 * nothing before that has ended: what is half restored does not replace what is whole.
 *
 * It takes the snapshot WORKER_SNAPSHOT every pg_residency.autosave, at once if there is none, and
 * when the server shuts down.  It has no database, and uses at most a hundredth of a CPU: after a
 * save it waits a hundred times the CPU time that the save took, if that is longer than the
 * interval.
 *
 * A save that fails ends the worker with its ERROR, and the postmaster starts it again.  The next
 * attempt is later with each failure in a row.
 */
#include "pg_residency.h"

#include <sys/resource.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/procsignal.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "autorestore.h"
#include "generations.h"
#include "interrupts.h"
#include "names.h"
#include "settings.h"
#include "snapshot_take.h"

#define WORKER_SNAPSHOT "autosave"

/* seconds until the postmaster starts a worker again that has ended with an error */
#define RESTART_AFTER 5

/* the longest time between two attempts after failures, unless the interval is longer; seconds */
#define LONGEST_DELAY 3600

/* a save waits that many times the CPU time of the one before */
#define CPU_SHARE 100

/* milliseconds between two looks at the server and the restore, and between any two others */
#define LOOK_AGAIN 250
#define LONGEST_SLEEP 60000

/* milliseconds after which relations that are known are asked for their names again */
#define NAMES_AGAIN 3600000

typedef enum WorkerActivity
{
	WORKER_STOPPED,
	WORKER_RESTORING,
	WORKER_RECOVERING,			/* the server is not consistent yet */
	WORKER_WAITING,
	WORKER_SAVING,
	WORKER_OFF
} WorkerActivity;

static const char *const activity_names[] = {
	"stopped", "restoring", "recovering", "waiting", "saving", "off"
};

typedef struct WorkerState
{
	WorkerActivity activity;
	int32		pid;
	bool		started;		/* a worker has begun before, since the server's start */
	int32		restore_job;	/* 0: none */
	TimestampTz next_at;		/* the next save; 0: none */
	/* the last save; without a generation: none since the server's start */
	int32		generation;
	TimestampTz saved_at;
	int64		milliseconds;
	int64		cpu_milliseconds;
	int64		wanted;			/* blocks */
	bool		thin;
	int32		failures;		/* in a row, since then */
	char		message[256];	/* of the last failure */
} WorkerState;

/* in shared memory; NULL in a server that has not preloaded the library */
typedef struct Worker
{
	slock_t		mutex;
	WorkerState state;			/* the worker alone changes it */
} Worker;

static Worker *worker = NULL;
static shmem_request_hook_type former_request_hook = NULL;
static shmem_startup_hook_type former_startup_hook = NULL;

void		_PG_init(void);
PGDLLEXPORT void pg_residency_worker_main(Datum unused);

/* --- its state --- */

static void
request_memory(void)
{
	if (former_request_hook)
		former_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(Worker)));
}

static void
create_memory(void)
{
	bool		found;

	if (former_startup_hook)
		former_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	worker = ShmemInitStruct("pg_residency worker", sizeof(Worker), &found);
	if (!found)
	{
		memset(worker, 0, sizeof(*worker));
		SpinLockInit(&worker->mutex);
	}
	LWLockRelease(AddinShmemInitLock);
}

static WorkerState
get_state(void)
{
	WorkerState state;

	SpinLockAcquire(&worker->mutex);
	state = worker->state;
	SpinLockRelease(&worker->mutex);
	return state;
}

static void
set_state(const WorkerState *state)
{
	SpinLockAcquire(&worker->mutex);
	worker->state = *state;
	SpinLockRelease(&worker->mutex);
}

static void
note_end(int code, Datum unused)
{
	WorkerState state = get_state();

	state.activity = WORKER_STOPPED;
	state.pid = 0;
	state.next_at = 0;
	set_state(&state);
}

/* --- saving --- */

/* milliseconds from one attempt to the next; -1: there is none */
static int64
delay(const WorkerState *state)
{
	int64		interval = (int64) setting_autosave * 1000;
	int64		longest = Max(interval, (int64) LONGEST_DELAY * 1000);

	if (setting_autosave <= AUTOSAVE_ONLY_AT_SHUTDOWN)
		return -1;
	interval = Max(interval, state->cpu_milliseconds * CPU_SHARE);
	return Min(interval << Min(state->failures, 20), longest);
}

static int64
cpu_milliseconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (int64) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
		(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

/* what the log says beside the error of a save */
static void
describe_save(void *arg)
{
	WorkerState afterwards = *(WorkerState *) arg;
	int64		next;

	afterwards.failures++;
	next = delay(&afterwards);
	if (ShutdownRequestPending || next < 0)
		errcontext("while saving what both caches hold");
	else
		errcontext("while saving what both caches hold; the next attempt is in " INT64_FORMAT " s",
				   RESTART_AFTER + next / 1000);
}

/* of a save, or of what comes before the first one */
static void
note_failure(WorkerState *state)
{
	state->failures++;
	MemoryContextSwitchTo(TopMemoryContext);
	strlcpy(state->message, CopyErrorData()->message, sizeof(state->message));
	set_state(state);
}

static int64
megabytes(uint64 blocks)
{
	return (int64) (blocks * BLCKSZ / (1024 * 1024));
}

static void
note_saved(WorkerState *state, const struct sf_header *header)
{
	bool		was_thin = state->thin;

	state->generation = (int32) header->generation;
	state->saved_at = GetCurrentTimestamp();
	state->wanted = (int64) header->wanted;
	state->thin = (header->flags & SF_FLAG_THIN) != 0;
	state->failures = 0;
	state->message[0] = '\0';
	ereport(ShutdownRequestPending ? LOG : DEBUG1,
			(errmsg("saved snapshot \"%s@%d\": " INT64_FORMAT " MB cached, in " INT64_FORMAT " ms",
					WORKER_SNAPSHOT, state->generation, megabytes(header->wanted),
					state->milliseconds)));
	if (state->thin && !was_thin)
		ereport(LOG,
				(errmsg("snapshot \"%s@%d\" has " INT64_FORMAT " MB, "
						"less than half of the " INT64_FORMAT " MB of an earlier one",
						WORKER_SNAPSHOT, state->generation, megabytes(header->wanted),
						megabytes(header->measure)),
				 errdetail("Until the caches fill again, the earlier one is the current snapshot.")));
}

static void
save(WorkerState *state, NamesScope scope)
{
	MemoryContext before = CurrentMemoryContext;
	MemoryContext context =
		AllocSetContextCreate(TopMemoryContext, "residency save", ALLOCSET_DEFAULT_SIZES);
	int64		began = monotonic_milliseconds();
	int64		cpu = cpu_milliseconds();
	ErrorContextCallback callback = {error_context_stack, describe_save, state};
	struct sf_header header;

	state->activity = WORKER_SAVING;
	set_state(state);
	MemoryContextSwitchTo(context);
	error_context_stack = &callback;
	header = snapshot_take(WORKER_SNAPSHOT, setting_autosave_keep, false, scope);
	error_context_stack = callback.previous;
	state->milliseconds = monotonic_milliseconds() - began;
	state->cpu_milliseconds = cpu_milliseconds() - cpu;
	note_saved(state, &header);
	MemoryContextSwitchTo(before);
	MemoryContextDelete(context);
}

/* --- the worker --- */

/* sleeps until that time, milliseconds, or shorter; -1: there is none */
static void
wait_until(WorkerState *state, WorkerActivity activity, int64 time, int64 longest)
{
	int64		left = time < 0 ? longest : Max(time - monotonic_milliseconds(), 1);

	state->activity = activity;
	state->next_at = time < 0 ? 0 : TimestampTzPlusMilliseconds(GetCurrentTimestamp(), left);
	set_state(state);
	sleep_or_wake((long) Min(left, longest) * 1000, compat_wait_event("ResidencyWorker"));
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* once since the server's start, also if that ends this worker with an error */
static void
restore(WorkerState *state)
{
	MemoryContext before = CurrentMemoryContext;
	MemoryContext context;

	if (state->started)
		return;
	state->started = true;
	state->activity = WORKER_RESTORING;
	set_state(state);
	context = AllocSetContextCreate(TopMemoryContext, "residency restore", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	state->restore_job = autorestore_start(WORKER_SNAPSHOT);
	MemoryContextSwitchTo(before);
	MemoryContextDelete(context);
	set_state(state);
}

/* Whether the caches hold what clients use: not while the server recovers, or a restore runs. */
static bool
is_settled(const WorkerState *state)
{
	return server_is_consistent() && !autorestore_runs(state->restore_job);
}

/* Whether this start can no longer die of its restore: that has ended, or there was none. */
static bool
has_survived(const WorkerState *state)
{
	return state->restore_job != 0 ? !autorestore_runs(state->restore_job) : server_is_consistent();
}

static void
work(WorkerState *state)
{
	int64		last = -1;		/* milliseconds; the last save, or when saving became possible */
	bool		due = false;	/* at once, as nothing was ever saved */
	int64		named = -NAMES_AGAIN;
	bool		survived = false;

	/* until the restore has begun there is nothing to save */
	pqsignal(SIGTERM, die);
	restore(state);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	while (!ShutdownRequestPending)
	{
		int64		now = monotonic_milliseconds();

		if (!survived && has_survived(state))
		{
			autorestore_survived();
			survived = true;
		}
		if (!is_settled(state))
		{
			wait_until(state, server_is_consistent() ? WORKER_RESTORING : WORKER_RECOVERING, -1,
					   LOOK_AGAIN);
			continue;
		}
		if (last < 0)
		{
			last = now;
			due = state->failures == 0 && !has_generation(WORKER_SNAPSHOT);
		}
		if (delay(state) < 0)
			wait_until(state, setting_autosave == AUTOSAVE_OFF ? WORKER_OFF : WORKER_WAITING, -1,
					   LONGEST_SLEEP);
		else if (!due && now < last + delay(state))
			wait_until(state, WORKER_WAITING, last + delay(state), LONGEST_SLEEP);
		else
		{
			bool		all = now >= named + NAMES_AGAIN;

			save(state, all ? NAMES_ALL : NAMES_NEW);
			last = monotonic_milliseconds();
			due = false;
			if (all)
				named = last;
		}
	}
	if (setting_autosave != AUTOSAVE_OFF)
	{
		/* the clients are gone, and no worker is started any more that could ask for names */
		if (is_settled(state))
			save(state, NAMES_KNOWN);
		else
			ereport(LOG, (errmsg("saved no snapshot: the caches were not restored yet")));
	}
	/* a shutdown while it restores is no death */
	if (!survived && (state->restore_job != 0 || server_is_consistent()))
		autorestore_survived();
}

void
pg_residency_worker_main(Datum unused)
{
	WorkerState *state = MemoryContextAlloc(TopMemoryContext, sizeof(WorkerState));

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	/* the postmaster's signal that a worker for the names has ended */
	pqsignal(SIGUSR1, procsignal_sigusr1_handler);
	BackgroundWorkerUnblockSignals();
	before_shmem_exit(note_end, (Datum) 0);
	*state = get_state();
	state->pid = MyProcPid;
	PG_TRY();
	{
		work(state);
	}
	PG_CATCH();
	{
		note_failure(state);
		PG_RE_THROW();
	}
	PG_END_TRY();
	proc_exit(0);
}

/* Only a server that preloads the library has its parameters and its worker. */
void
_PG_init(void)
{
	BackgroundWorker process;

	if (!process_shared_preload_libraries_in_progress)
		return;
	define_settings();
	/* pg_upgrade starts servers for its own work */
	if (IsBinaryUpgrade)
		return;
	former_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	former_startup_hook = shmem_startup_hook;
	shmem_startup_hook = create_memory;
	memset(&process, 0, sizeof(process));
	process.bgw_flags = BGWORKER_SHMEM_ACCESS;
	process.bgw_start_time = BgWorkerStart_PostmasterStart;
	process.bgw_restart_time = RESTART_AFTER;
	strlcpy(process.bgw_library_name, "pg_residency", sizeof(process.bgw_library_name));
	strlcpy(process.bgw_function_name, "pg_residency_worker_main",
			sizeof(process.bgw_function_name));
	strlcpy(process.bgw_name, "pg_residency", sizeof(process.bgw_name));
	strlcpy(process.bgw_type, "pg_residency", sizeof(process.bgw_type));
	RegisterBackgroundWorker(&process);
}

#define WORKER_COLUMNS 13

PG_FUNCTION_INFO_V1(residency_worker_state);
Datum
residency_worker_state(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc = result_row(fcinfo, WORKER_COLUMNS);
	WorkerState state = {0};
	Datum		values[WORKER_COLUMNS];
	bool		nulls[WORKER_COLUMNS] = {false};

	if (worker != NULL)
		state = get_state();
	values[0] = CStringGetTextDatum(worker == NULL ? "not preloaded" : activity_names[state.activity]);
	values[1] = Int32GetDatum(state.pid);
	nulls[1] = state.pid == 0;
	values[2] = Int32GetDatum(state.restore_job);
	nulls[2] = state.restore_job == 0;
	values[3] = TimestampTzGetDatum(state.next_at);
	nulls[3] = state.next_at == 0;
	for (int i = 4; i <= 10; i++)
		nulls[i] = state.generation == 0;
	values[4] = CStringGetTextDatum(WORKER_SNAPSHOT);
	values[5] = Int32GetDatum(state.generation);
	values[6] = TimestampTzGetDatum(state.saved_at);
	values[7] = Int64GetDatum(state.milliseconds);
	values[8] = Int64GetDatum(state.cpu_milliseconds);
	values[9] = Int64GetDatum(state.wanted);
	values[10] = BoolGetDatum(state.thin);
	values[11] = Int32GetDatum(state.failures);
	/* it may be translated, with characters that this database's encoding lacks */
	values[12] = PointerGetDatum(names_text(state.message));
	nulls[12] = state.failures == 0;
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls));
}
