/*
 * job_lanes.c - a job's segments, by device
 *
 * Each device has a lane: a queue of segments under a window of its own, which waits for no other
 * lane.  Several segments of a lane are begun side by side, because small ones would leave only one
 * request in the window.  An error at a segment fails only that segment's blocks, not the job.
 */
#include "job_lanes.h"

#include <sys/stat.h>

#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"

/* newly resident blocks after which the host's ledger is updated, besides the update at the end */
#define NOTE_BLOCKS ((16 * 1024 * 1024) / BLCKSZ)

/* returns the error just caught, and releases what it left behind of the segment */
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

/* Counts the segment's blocks as failed.  The log has every error, the job's message the first. */
static void
record_error(Run *run, Begun *begun, const ErrorData *error)
{
	SegmentOutcome *outcome = &begun->segment.outcome;
	int64		wanted = outcome->wanted;

	/* a cancel request is no error of the segment: the next check finds it again */
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
	{
		QueryCancelPending = true;
		InterruptPending = true;
		outcome->reason = REASON_ENDED;
		return;
	}
	memset(outcome, 0, sizeof(*outcome));
	outcome->wanted = outcome->failed = wanted;
	outcome->reason = REASON_ERROR;
	ereport(LOG,
			(errmsg("could not restore a segment (job %d): %s", run->job.job, error->message)));
	if (run->job.message[0] == '\0')
		strlcpy(run->job.message, error->message, sizeof(run->job.message));
}

/* false when the server is out of descriptors and segments already begun hold some */
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

/* completes the oldest segment begun, and records its outcome */
static void
finish_oldest(Run *run, Lane *lane)
{
	Begun	   *begun = &lane->begun[lane->first];
	SegmentOutcome *outcome = &begun->segment.outcome;

	finish_or_record(run, begun);
	/* a table became unlogged meanwhile: its wanted blocks are gone */
	outcome->gone += begun->wanted - outcome->wanted;
	outcome->wanted = begun->wanted;
	lane->first = (lane->first + 1) % SIDE_BY_SIDE;
	lane->count--;
	outcome_add(&run->job.total, outcome);
	/* the rest has arrived for segments begun later */
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

/* creates a lane for each device with a tablespace */
static void
make_lanes(Run *run)
{
	DIR		   *dir;
	struct dirent *entry;
	struct stat st;

	if (stat("base", &st) != 0)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not stat directory \"base\": %m")));
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
	BEGIN_NOTHING,				/* no segment is left */
	BEGIN_LATER					/* possible after another segment has been finished */
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
		begun->context =
			AllocSetContextCreate(run->context, "residency segment", ALLOCSET_DEFAULT_SIZES);
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
 * Requests the lane's segments; if there are other lanes, only as much as its window holds, and
 * without waiting.  False when nothing is left to request.
 */
static bool
fill_lane(Run *run, Lane *lane)
{
	bool		wait = run->nlanes == 1;
	uint64		taken = run->control.allowance.pace.taken;

	while (!run_must_end(run))
	{
		Begun *newest =
			&lane->begun[(lane->first + lane->count - 1 + SIDE_BY_SIDE) % SIDE_BY_SIDE];

		if (lane->count > 0 && newest->work != NULL && !send_or_record(run, newest, wait))
			return true;
		/* segments that have arrived completely need no place in the ring */
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

void
restore_segments(Run *run)
{
	bool		more;

	make_lanes(run);
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

void
restore_again(Run *run, int n, JobSegment *segment)
{
	Begun		begun = {.n = n, .wanted = segment->outcome.wanted, .segment = *segment};
	SegmentOutcome *o = &begun.segment.outcome;
	SegmentOutcome before = segment->outcome;

	begun.context =
		AllocSetContextCreate(run->context, "residency segment", ALLOCSET_DEFAULT_SIZES);
	(void) begin_or_record(run, &begun, false);
	finish_or_record(run, &begun);
	o->gone += begun.wanted - o->wanted;
	o->wanted = begun.wanted;
	o->loaded += before.loaded;
	o->extra += before.extra;
	if (o->reason == REASON_NONE && o->failed > 0)
		o->reason = REASON_RECLAIMED;
	outcome_subtract(&run->job.total, &before);
	outcome_add(&run->job.total, o);
	run->job.arriving = 0;
	job_write_segment(run->fd, n, &begun.segment);
	MemoryContextDelete(begun.context);
}
