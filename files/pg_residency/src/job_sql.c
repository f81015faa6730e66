/*
 * job_sql.c - the SQL functions on restores
 */
#include "pg_residency.h"

#include <signal.h>

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "host_ledger.h"
#include "interrupts.h"
#include "job_file.h"
#include "names.h"
#include "restore_worker.h"

PG_FUNCTION_INFO_V1(residency_restore_start);
Datum
residency_restore_start(PG_FUNCTION_ARGS)
{
	JobOptions	options;
	RestorePlan *plan;
	char	   *name = NULL;

	read_options(PG_ARGISNULL(1) ? NULL : PG_GETARG_JSONB_P(1), &options);
	/* without a snapshot, whole relations can be restored */
	if (!PG_ARGISNULL(0) || options.nwhole == 0)
		name = text_argument(fcinfo, 0, "snapshot name");
	plan = job_plan(name, &options);
	PG_RETURN_INT32(job_start(plan, &options.settings));
}

PG_FUNCTION_INFO_V1(residency_cancel);
Datum
residency_cancel(PG_FUNCTION_ARGS)
{
	Job			job;
	int			number;

	need_argument(fcinfo, 0, "job number");
	number = PG_GETARG_INT32(0);
	if (!job_read(number, &job))
		report_no_job(number);
	if (!job_has_begun(&job))
		PG_RETURN_BOOL(false);
	if (kill(job.pid, SIGINT) != 0)
	{
		if (errno == ESRCH)
			PG_RETURN_BOOL(false);	/* the worker has just ended */
		ereport(ERROR,
				(errmsg("could not send signal to the worker of job %d: %m", number)));
	}
	PG_RETURN_BOOL(true);
}

#define JOB_COLUMNS 35

/* what the host has reclaimed of it, from the beginning of the hold to the last count */
static int64
bytes_a_minute(const Job *job)
{
	TimestampTz held = job->counted_at - job->held_since;

	double		rate = held <= 0 ? 0 : (double) job->reclaimed * BLCKSZ * SECS_PER_MINUTE *
		USECS_PER_SEC / (double) held;

	return rate >= 0 && rate < (double) PG_INT64_MAX ? (int64) rate : 0;
}

static void
job_values(const Job *job, Datum *values, bool *nulls)
{
	const SegmentOutcome *total = &job->total;
	const char *at = strchr(job->snapshot, '@');
	int64		settled = outcome_settled(total);
	int64		loaded = total->loaded;

	memset(nulls, false, JOB_COLUMNS * sizeof(bool));
	/* what a killed worker was loading is counted nowhere else */
	if (job_is_alive(job))
	{
		settled = Min(settled + job->arriving, job->wanted);
		loaded += job->arriving;
	}
	values[0] = Int32GetDatum(job->job);
	nulls[1] = nulls[2] = at == NULL;
	if (at != NULL)
	{
		values[1] =
			PointerGetDatum(cstring_to_text_with_len(job->snapshot, (int) (at - job->snapshot)));
		values[2] = Int32GetDatum(atoi(at + 1));
	}
	values[3] = CStringGetTextDatum(job_state_name(job->state));
	values[4] = Int32GetDatum(job->pid);
	nulls[4] = !job_has_begun(job);
	values[5] = TimestampTzGetDatum(job->started_at);
	nulls[5] = job->started_at == 0;
	values[6] = TimestampTzGetDatum(job->finished_at);
	nulls[6] = job->finished_at == 0;
	values[7] = Int32GetDatum(job->segments);
	values[8] = Int32GetDatum(job->segments_done);
	values[9] = Int64GetDatum(job->wanted);
	values[10] = Int64GetDatum(total->resident);
	values[11] = Int64GetDatum(loaded);
	values[12] = Int64GetDatum(total->extra);
	values[13] = Int64GetDatum(total->over_budget);
	values[14] = Int64GetDatum(total->gone);
	values[15] = Int64GetDatum(total->failed);
	values[16] = Int64GetDatum(job->budget_bytes);
	values[17] = Int64GetDatum(job->settings.rate);
	nulls[17] = job->settings.rate == 0;
	values[18] = Int32GetDatum(job->settings.time_limit);
	nulls[18] = job->settings.time_limit == 0;
	values[19] = Int64GetDatum(job->buffers_wanted);
	values[20] = Int64GetDatum(job->buffers_resident);
	values[21] = Int64GetDatum(Max(job->buffers_resident - job->buffers_before, 0));
	nulls[19] = nulls[20] = nulls[21] = !job->settings.shared_buffers;
	nulls[22] = job->message[0] == '\0';
	/* the message may be translated, with characters that this database's encoding lacks */
	values[22] = nulls[22] ? (Datum) 0 : PointerGetDatum(names_text(job->message));
	values[23] = Int64GetDatum(settled);
	/* unknown before the first request */
	nulls[24] = nulls[25] = nulls[26] = job->io_class == IO_NOTHING;
	values[24] = CStringGetTextDatum(io_class_name(job->io_class));
	nulls[25] |= job->scheduler[0] == '\0';
	values[25] = CStringGetTextDatum(job->scheduler);
	values[26] = Int64GetDatum(job->window_bytes);
	values[27] = TimestampTzGetDatum(job->settings.hold_until);
	nulls[27] = job->settings.hold_until == 0;
	values[28] = TimestampTzGetDatum(job->held_since);
	values[29] = TimestampTzGetDatum(job->counted_at);
	values[30] = Int64GetDatum(job->reclaimed);
	values[31] = Int64GetDatum(job->brought_back);
	values[32] = Int64GetDatum(bytes_a_minute(job));
	values[33] = Int64GetDatum(job->mapped_bytes);
	values[34] = BoolGetDatum(job->settings.unattended);
	nulls[28] = job->held_since == 0;
	for (int i = 29; i <= 33; i++)
		nulls[i] = job->counted_at == 0;
}

PG_FUNCTION_INFO_V1(residency_job_list);
Datum
residency_job_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = result_set(fcinfo, JOB_COLUMNS);
	ListCell   *cell;

	foreach(cell, job_numbers())
	{
		Datum		values[JOB_COLUMNS];
		bool		nulls[JOB_COLUMNS];
		Job			job;

		CHECK_FOR_INTERRUPTS();
		if (!job_try_read(lfirst_int(cell), &job))
		{
			/* it hides no other job */
			if (errno != ENOENT)
				job_report_unread(WARNING, lfirst_int(cell));
			continue;
		}
		job_values(&job, values, nulls);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

#define OUTCOME_COLUMNS 9

/* a row with the outcome of one segment */
static void
outcome_values(int number, const SegmentOutcome *o, Datum *values, bool *nulls)
{
	const char *reason = outcome_reason(o);

	memset(nulls, false, OUTCOME_COLUMNS * sizeof(bool));
	values[0] = Int32GetDatum(number);
	values[1] = Int64GetDatum(o->wanted);
	values[2] = Int64GetDatum(o->resident);
	values[3] = Int64GetDatum(o->loaded);
	values[4] = Int64GetDatum(o->extra);
	values[5] = Int64GetDatum(o->over_budget);
	values[6] = Int64GetDatum(o->gone);
	values[7] = Int64GetDatum(o->failed);
	nulls[8] = reason == NULL;
	values[8] = reason == NULL ? (Datum) 0 : CStringGetTextDatum(reason);
}

#define JOB_SEGMENT_COLUMNS (OUTCOME_COLUMNS + 6)

PG_FUNCTION_INFO_V1(residency_job_segments);
Datum
residency_job_segments(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = result_set(fcinfo, JOB_SEGMENT_COLUMNS);
	JobSegment *segments;
	Job			job;

	need_argument(fcinfo, 0, "job number");
	segments = job_read_segments(PG_GETARG_INT32(0), &job);
	for (int i = 0; i < job.segments; i++)
	{
		JobSegment *segment = &segments[i];
		Datum		values[JOB_SEGMENT_COLUMNS];
		bool		nulls[JOB_SEGMENT_COLUMNS] = {false};

		if (!segment->done && !job_is_alive(&job))
			segment->outcome.reason = REASON_ENDED;
		outcome_values(segment->number, &segment->outcome, values, nulls);
		nulls[0] = segment->number == 0;
		values[OUTCOME_COLUMNS] = ObjectIdGetDatum(segment->id.tablespace);
		values[OUTCOME_COLUMNS + 1] = ObjectIdGetDatum(segment->id.database);
		values[OUTCOME_COLUMNS + 2] = ObjectIdGetDatum(segment->id.relfilenumber);
		values[OUTCOME_COLUMNS + 3] = CStringGetTextDatum(forkNames[segment->id.fork]);
		values[OUTCOME_COLUMNS + 4] = Int32GetDatum((int32) segment->id.segment);
		values[OUTCOME_COLUMNS + 5] = BoolGetDatum(segment->done);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* --- one segment, in this session --- */

/* repeats the restore until it is complete, and handles interrupts in between */
static void
restore_here(const struct sf_segment *segment, SegmentOutcome *total)
{
	uint32		wait_event = compat_wait_event("ResidencyRestore");
	RestoreControl *control = palloc0(sizeof(RestoreControl));
	int64		loaded = 0;
	int64		extra = 0;
	SegmentWork *work;

	allowance_begin(&control->allowance, 0, 0, 0);
	control->window = &pc_gentle;
	control->gap_blocks = -1;
	control->wait = session_wait;
	control->blocked = session_blocked;
	control->arg = &wait_event;
	do
	{
		CHECK_FOR_INTERRUPTS();
		/* a stopped window cannot be used again */
		memset(&control->devices, 0, sizeof(control->devices));
		work = begin_segment(segment, control, total);
		if (work != NULL)
			finish_segment(work);
		loaded += total->loaded;
		extra += total->extra;
	} while (total->reason == REASON_ENDED);
	total->loaded = loaded;
	total->extra = extra;
	pfree(control);
}

PG_FUNCTION_INFO_V1(residency_restore_segment);
Datum
residency_restore_segment(PG_FUNCTION_ARGS)
{
	char	   *name = text_argument(fcinfo, 0, "snapshot name");
	TupleDesc	tupdesc = result_row(fcinfo, OUTCOME_COLUMNS);
	ResidencySnapshot *snapshot;
	SegmentOutcome outcome;
	Datum		values[OUTCOME_COLUMNS];
	bool		nulls[OUTCOME_COLUMNS];
	int			number;

	need_argument(fcinfo, 1, "segment number");
	number = PG_GETARG_INT32(1);
	snapshot = snapshot_load(name);
	if (number < 1 || number > (int) snapshot->header.segments)
		report_no_segment(snapshot, number);
	restore_here(&snapshot_segments(snapshot)[number - 1], &outcome);
	host_note_bytes((uint64) outcome.loaded * BLCKSZ, true);
	outcome_values(number, &outcome, values, nulls);
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls));
}
