/*
 * job_lanes.c - a job's segments, by device
 *
 * Each device has a lane: a queue of segments under a window of its own, which waits for no other
 * lane.  Several segments of a lane are active at a time, because small ones would leave only one
 * request in the window.  A segment that cannot be read fails, not the job.
 */
#include "job_lanes.h"

#include <sys/stat.h>

#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "kernel/page_cache.h"

/* newly resident blocks after which the host's ledger is updated, besides the update at the end */
#define NOTE_BLOCKS ((16 * 1024 * 1024) / BLCKSZ)

/* files open besides those of the active segments */
#define OTHER_FILES 4

/* The log has every segment that could not be read, the job's message the first. */
static void
note_failure(Run *run, const ActiveSegment *active)
{
	const SegmentOutcome *outcome = &active->segment.outcome;
	char		path[MAXPGPATH];
	char		message[sizeof(run->job.message)];

	if (outcome->reason != REASON_KERNEL && outcome->reason != REASON_DAMAGED)
		return;
	segment_path(&active->segment.id, path);
	snprintf(message, sizeof(message), "could not restore file \"%s\": %s", path,
			 outcome_reason(outcome));
	ereport(LOG, (errmsg_internal("%s", message)));
	if (run->job.message[0] == '\0')
		strlcpy(run->job.message, message, sizeof(run->job.message));
}

static void
begin(Run *run, ActiveSegment *active)
{
	const struct sf_segment *segment = &run->plan[active->n];
	MemoryContext before = MemoryContextSwitchTo(active->context);

	active->work = begin_segment(segment, &run->control, &active->segment.outcome);
	MemoryContextSwitchTo(before);
	if (active->work == NULL || run->loaded == NULL || !segment_has_buffers(segment))
		return;
	if (run->loaded[active->n] == NULL)
		run->loaded[active->n] =
			MemoryContextAllocZero(run->context, pc_map_bytes(segment->blocks));
	segment_add_loaded(active->work, run->loaded[active->n]);
}

static void
finish(Run *run, ActiveSegment *active)
{
	if (active->work != NULL)
	{
		MemoryContext before = MemoryContextSwitchTo(active->context);

		finish_segment(active->work);
		active->work = NULL;
		MemoryContextSwitchTo(before);
	}
	note_failure(run, active);
}

/* the active segments of all devices */
static int
count_active(const Run *run)
{
	int			n = 0;

	for (int i = 0; i < run->nlanes; i++)
		n += run->lanes[i].count;
	return n;
}

/* completes the oldest active segment, and records its outcome */
static void
finish_oldest(Run *run, Lane *lane)
{
	ActiveSegment *active = &lane->active[lane->first];
	SegmentOutcome *outcome = &active->segment.outcome;

	finish(run, active);
	/* a table became unlogged meanwhile: its wanted blocks are gone */
	outcome->gone += active->wanted - outcome->wanted;
	outcome->wanted = active->wanted;
	lane->first = (lane->first + 1) % SIDE_BY_SIDE;
	lane->count--;
	outcome_add(&run->job.total, outcome);
	/* the rest has arrived for segments begun later */
	run->job.arriving = count_active(run) > 0 ? Max(run->job.arriving - outcome->loaded, 0) : 0;
	run->job.segments_done++;
	active->segment.done = true;
	job_write_segment(run->fd, &run->job, active->n, &active->segment);
	MemoryContextReset(active->context);
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
		TablespaceLane *other;
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
		other = palloc(sizeof(TablespaceLane));
		*other = (TablespaceLane) {(Oid) strtoul(entry->d_name, NULL, 10), lane};
		run->tablespace_lanes = lappend(run->tablespace_lanes, other);
	}
	FreeDir(dir);
}

static Lane *
lane_of(Run *run, const JobSegment *segment)
{
	ListCell   *cell;

	foreach(cell, run->tablespace_lanes)
	{
		const TablespaceLane *other = lfirst(cell);

		if (other->tablespace == segment->id.tablespace)
			return &run->lanes[other->lane];
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
	ActiveSegment *active = &lane->active[(lane->first + lane->count) % SIDE_BY_SIDE];

	do
	{
		if (lane->next >= run->job.segments)
			return BEGIN_NOTHING;
		active->n = lane->next++;
		job_read_segment(run->fd, &run->job, active->n, &active->segment);
	} while (run->nlanes > 1 && lane_of(run, &active->segment) != lane);
	if (active->context == NULL)
		active->context =
			AllocSetContextCreate(run->context, "residency segment", ALLOCSET_DEFAULT_SIZES);
	active->work = NULL;
	active->wanted = active->segment.outcome.wanted;
	if (active->wanted > 0)
	{
		/* OpenTransientFile() raises an error beyond a third of the server's descriptors */
		bool		no_files_left = count_active(run) >= max_safe_fds / 3 - OTHER_FILES;

		if (!no_files_left)
		{
			begin(run, active);
			no_files_left = active->segment.outcome.reason == REASON_KERNEL &&
				count_active(run) > 0 &&
				(active->segment.outcome.error == EMFILE ||
				 active->segment.outcome.error == ENFILE);
		}
		if (no_files_left)
		{
			MemoryContextReset(active->context);
			lane->next = active->n;
			return BEGIN_LATER;
		}
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
		ActiveSegment *newest =
			&lane->active[(lane->first + lane->count - 1 + SIDE_BY_SIDE) % SIDE_BY_SIDE];

		if (lane->count > 0 && newest->work != NULL && !send_segment(newest->work, wait))
			return true;
		/* segments that have arrived completely need no place in the ring */
		while (lane->count > 0 && (lane->active[lane->first].work == NULL ||
								   !segment_is_in_flight(lane->active[lane->first].work)))
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
	ActiveSegment active = {.n = n, .wanted = segment->outcome.wanted, .segment = *segment};
	SegmentOutcome *o = &active.segment.outcome;
	SegmentOutcome before = segment->outcome;

	active.context =
		AllocSetContextCreate(run->context, "residency segment", ALLOCSET_DEFAULT_SIZES);
	begin(run, &active);
	finish(run, &active);
	o->gone += active.wanted - o->wanted;
	o->wanted = active.wanted;
	o->loaded += before.loaded;
	o->extra += before.extra;
	if (o->reason == REASON_NONE && o->failed > 0)
		o->reason = REASON_RECLAIMED;
	outcome_subtract(&run->job.total, &before);
	outcome_add(&run->job.total, o);
	run->job.arriving = 0;
	job_write_segment(run->fd, &run->job, n, &active.segment);
	MemoryContextDelete(active.context);
}
