/*
 * job_hold.c - the last stage of a job that keeps what it has restored in the page cache
 */
#include "job_hold.h"

#include <unistd.h>

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "hold_release.h"
#include "interrupts.h"
#include "kernel/page_cache.h"
#include "segment_hold.h"

/* milliseconds of the longest sleep, of the longest pause between two counts, */
#define NAP 1000
#define LONGEST_PAUSE (5 * 60 * 1000)

/* and between two looks for files that were dropped, whose disk space a mapping keeps */
#define LOOK_EVERY 5000

/* counting takes at most this part of the time, and loading in vain this one */
#define SHARE 20
#define LOAD_SHARE 4

/* blocks loaded between two measurements of the memory */
#define PIECE ((16 * 1024 * 1024) / BLCKSZ)

/* half of what the kernel allows a process by default (vm.max_map_count) */
#define MOST_MAPPINGS 32000

/* page tables take at most this part of the host's memory */
#define TABLES_SHARE 256
#define TABLE_BYTES 4096

/* what is taken again and again is worth a longer pause if it is this part of what is held */
#define FIGHT_SHARE 100

struct Hold
{
	HeldSegment *files;			/* one for each segment of the plan */
	bool	   *released;		/* of each, by a session's request */
	uint32		most_tables;	/* of all mappings */
	int			current;		/* segment being loaded; -1: none */
	bool		stop_load;		/* of that segment */
	int64		look_at;		/* milliseconds, for dropped files */
	int64		resident;		/* bytes of the held blocks at the last count */
	uint64		mappable;		/* bytes, page tables included: see kernel/memory.h */
	HoldScratch scratch;
	char		error[256];		/* the first one of the last count */
};

/* the figures of one count */
typedef struct Tally
{
	int			mappings;
	uint32		tables;
	int64		mapped;			/* bytes */
	int64		held;			/* blocks */
	int64		missing;		/* after the loads */
	int64		again;			/* of those that the last count had loaded */
	int64		loaded;
	int64		counting;		/* milliseconds */
	int64		loading;
} Tally;

static bool
is_over(const Run *run)
{
	return GetCurrentTimestamp() >= run->job.settings.hold_until;
}

void
hold_prepare(Run *run)
{
	int			n = run->job.segments;
	Hold	   *hold = MemoryContextAllocExtended(run->context, sizeof(Hold), MCXT_ALLOC_ZERO);
	uint64		memory = (uint64) sysconf(_SC_PHYS_PAGES) * pc_page_size();

	hold->files = MemoryContextAllocExtended(run->context, (n + 1) * sizeof(HeldSegment),
											MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	hold->released = MemoryContextAllocExtended(run->context, n + 1,
												MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	hold->most_tables = (uint32) Min(memory / TABLES_SHARE / TABLE_BYTES, PG_UINT32_MAX);
	hold->mappable = PC_NO_LIMIT;
	hold->current = -1;
	release_begin(run->lock);
	run->hold = hold;
}

/* for residency_jobs, in which it is written at the next wait */
static void
note_mapped(Run *run)
{
	int64		mapped = 0;

	for (int n = 0; n < run->job.segments; n++)
		mapped += (int64) run->hold->files[n].mapping.mapped;
	if (mapped != run->job.mapped_bytes)
		run->written_at = 0;
	run->job.mapped_bytes = mapped;
}

/* lets go of files that were dropped: a mapping keeps the disk space of those of a database */
static void
look_for_dropped(Run *run)
{
	Hold	   *hold = run->hold;

	if (monotonic_milliseconds() < hold->look_at)
		return;
	for (int n = 0; n < run->job.segments; n++)
	{
		HeldSegment *held = &hold->files[n];

		if ((held->mapping.address == NULL && n != hold->current) || !hold_is_dropped(held))
			continue;
		if (n == hold->current)
			hold->stop_load = true;
		else
			hold_release(held);
	}
	note_mapped(run);
	hold->look_at = monotonic_milliseconds() + LOOK_EVERY;
}

bool
hold_answer(Run *run)
{
	Hold	   *hold = run->hold;
	SegmentId	wanted;
	int32		request;

	if (run->job.state == JOB_HOLDING)
	{
		if (is_over(run) && hold->current >= 0)
			hold->stop_load = true;
		look_for_dropped(run);
	}
	if (hold->stop_load || !release_asked(run->lock, &request, &wanted))
		return hold->stop_load;
	for (int i = 0; i < run->job.segments; i++)
	{
		const struct sf_segment *s = &run->plan[i];

		if (s->tablespace != wanted.tablespace || s->database != wanted.database ||
			s->relfilenumber != wanted.relfilenumber)
			continue;
		hold->released[i] = true;
		/* the load uses its map: it ends first, and then the request is found again */
		if (i == hold->current)
			hold->stop_load = true;
		else
			hold_release(&hold->files[i]);
	}
	if (!hold->stop_load)
	{
		note_mapped(run);
		release_answer(run->lock, request);
	}
	return hold->stop_load;
}

/* `message` has %s for the path, and %m */
static void
note_error_of(Hold *hold, int rc, const char *message, const char *path)
{
	if (rc >= 0 || hold->error[0] != '\0')
		return;
	errno = -rc;
	snprintf(hold->error, sizeof(hold->error), message, path);
}

static void
note_error(Run *run, int n, int rc, const char *message)
{
	SegmentId	id = segment_id_of(&run->plan[n]);
	char		path[MAXPGPATH];

	segment_path(&id, path);
	note_error_of(run->hold, rc, message, path);
}

/* the same, for a count: 0 or a negative errno; the next count tries again */
static int
measure(Hold *hold, struct pc_memory *memory, uint64 *others)
{
	int			rc = try_measure_memory(memory, others);

	note_error_of(hold, rc, "could not read file \"%s\": %m", "/proc/meminfo");
	return rc;
}

/*
 * Blocks that may be loaded now.  What is held already is file cache, which the kernel counts as
 * available, and the mapped part of it as active.
 */
static int64
measure_room(Run *run)
{
	struct pc_memory memory;
	uint64		others;
	uint64		taken;
	uint64		room;

	if (measure(run->hold, &memory, &others) != 0)
		return 0;
	taken = memory.dirty + memory.reserve + others + Max(memory.hot, (uint64) run->hold->resident);
	room = memory.available > taken ? memory.available - taken : 0;
	if (memory.free > memory.reserve)
		room = Max(room, memory.free - memory.reserve);
	return (int64) Min(room / BLCKSZ, (uint64) PG_INT64_MAX);
}

/*
 * Loads what the count of the n-th segment has found missing, a piece at a time, because other
 * processes may take the memory meanwhile.
 */
static void
bring_back(Run *run, int n, Tally *tally)
{
	Hold	   *hold = run->hold;
	HeldSegment *held = &hold->files[n];
	int64		begun = monotonic_milliseconds();
	int64		loaded = 1;
	int			rc = 0;

	/* the check may release the segment, which frees its map */
	while (rc != PC_STOPPED && loaded > 0 && !run_must_end(run) && held->map != NULL &&
		   held->missing > 0)
	{
		int64		most = Min(measure_room(run), PIECE);

		if (most == 0)
			break;
		hold->current = n;
		rc = hold_load(held, &hold->scratch, &run->control, most, &loaded);
		hold->current = -1;
		hold->stop_load = false;
		if (rc != PC_STOPPED)
			note_error(run, n, rc, "could not bring back file \"%s\": %m");
		tally->loaded += loaded;
		run->job.brought_back += loaded;
	}
	if (hold->released[n])
		hold_release(held);
	tally->loading += monotonic_milliseconds() - begun;
}

static void
begin_one(Run *run, int n)
{
	Hold	   *hold = run->hold;
	const struct sf_segment *segment = &run->plan[n];
	uint8	   *map;

	if (hold->released[n] || segment->wanted == 0)
		return;
	map = MemoryContextAlloc(run->context, pc_map_bytes(segment->blocks) + 1);
	note_error(run, n, hold_begin(&hold->files[n], segment, map, &hold->scratch),
			   "could not hold file \"%s\": %m");
}

static void
count_one(Run *run, int n, Tally *tally)
{
	Hold	   *hold = run->hold;
	HeldSegment *held = &hold->files[n];
	int64		begun = monotonic_milliseconds();
	uint64		mapped = (uint64) tally->mapped + (uint64) tally->tables * TABLE_BYTES;
	int64		last;
	int			rc;

	if (!held->begun)
		begin_one(run, n);		/* which has failed before */
	if (held->map == NULL)
		return;
	last = held->missing;
	rc = hold_count(held, &hold->scratch,
					tally->mappings < MOST_MAPPINGS ?
					hold->most_tables - Min(hold->most_tables, tally->tables) : 0,
					hold->mappable - Min(hold->mappable, mapped));
	tally->counting += monotonic_milliseconds() - begun;
	note_error(run, n, rc, "could not count the resident blocks of file \"%s\": %m");
	if (rc == 0)
	{
		run->job.reclaimed += Max(held->missing - last, 0);
		tally->again += held->again;
		if (held->missing > 0)
			bring_back(run, n, tally);
	}
	tally->mappings += held->mapping.address != NULL;
	tally->tables += held->mapping.tables;
	tally->mapped += (int64) held->mapping.mapped;
	tally->held += held->held;
	tally->missing += held->missing;
}

/*
 * One count of all; returns the milliseconds until the next one.  The hold never fights: when it
 * may not read what is taken, or when most of what it has read is gone again, it does so less
 * often.
 */
static int64
count_all(Run *run, int64 pause, int64 *loaded_before)
{
	Hold	   *hold = run->hold;
	int64		shortest = (int64) run->job.settings.hold_interval * 1000;
	Tally		tally = {0};
	struct pc_memory memory;
	uint64		others;
	bool		in_vain;

	hold->error[0] = '\0';
	if (measure(hold, &memory, &others) == 0)
		hold->mappable = memory.mappable;
	for (int n = 0; n < run->job.segments; n++)
	{
		if (run_must_end(run) || is_over(run))
			return shortest;
		count_one(run, n, &tally);
	}
	if (run_must_end(run))
		return shortest;
	in_vain = tally.again >= Max(*loaded_before / 2, 1) &&
		tally.again >= tally.held / FIGHT_SHARE;
	*loaded_before = tally.loaded;
	pause = tally.missing > 0 || in_vain ? 2 * pause : shortest;
	pause = Max(Min(pause, Max(LONGEST_PAUSE, shortest)), SHARE * tally.counting);
	if (tally.missing > 0 || in_vain)
		pause = Max(pause, LOAD_SHARE * tally.loading);
	hold->resident = (tally.held - tally.missing) * BLCKSZ;
	run->job.counted_at = GetCurrentTimestamp();
	note_mapped(run);
	if (hold->error[0] != '\0')
		strlcpy(run->job.message, hold->error, sizeof(run->job.message));
	else if (tally.missing > 0)
		snprintf(run->job.message, sizeof(run->job.message),
				 INT64_FORMAT " held blocks are missing, for which there is no memory; "
				 "the next count is in %d s", tally.missing, (int) (pause / 1000));
	else if (in_vain)
		snprintf(run->job.message, sizeof(run->job.message),
				 "most of what was brought back was reclaimed again; the next count is in %d s",
				 (int) (pause / 1000));
	else
		run->job.message[0] = '\0';
	return pause;
}

static void
await_next_count(Run *run, int64 pause)
{
	int64		until = monotonic_milliseconds() + pause;
	int64		now;

	while (job_is_alive(&run->job) && !is_over(run) && (now = monotonic_milliseconds()) < until)
		(void) run->control.wait(run, (long) Min(until - now, NAP) * 1000);
}

/* of blocks that arrive in a hold: the row shows those of the restore */
static void
hold_progress(void *arg, uint32 blocks)
{
	((Run *) arg)->loaded_by_hold += blocks;
}

void
hold_restored(Run *run)
{
	const JobSettings *settings = &run->job.settings;
	char		message[sizeof(run->job.message)];	/* of the restore, for the end */
	int64		pause = (int64) settings->hold_interval * 1000;
	int64		loaded = 0;
	Hold	   *hold = run->hold;

	if (is_over(run))
	{
		if (run->job.message[0] == '\0')
			strlcpy(run->job.message, "the restore took longer than hold_until: nothing is held",
					sizeof(run->job.message));
		return;
	}
	strlcpy(message, run->job.message, sizeof(message));
	/* the time limit was the restore's */
	run->deadline = 0;
	/* others work now, whatever the restore was allowed */
	run->window = pc_gentle;
	run->window.blocks_in_kernel = settings->max_io_pressure == 0;
	run->control.progress = hold_progress;
	for (int n = 0; n < run->job.segments && !run_must_end(run); n++)
	{
		begin_one(run, n);
		hold->resident += hold->files[n].held * BLCKSZ;
	}
	if (!job_is_alive(&run->job))
		return;
	run->job.state = JOB_HOLDING;
	run->job.held_since = GetCurrentTimestamp();
	job_write(run->fd, &run->job);
	while (job_is_alive(&run->job) && !is_over(run))
	{
		pause = count_all(run, pause, &loaded);
		await_next_count(run, pause);
	}
	for (int n = 0; n < run->job.segments; n++)
		hold_release(&hold->files[n]);
	run->hold = NULL;
	if (job_is_alive(&run->job))
		strlcpy(run->job.message, message[0] == '\0' ? hold->error : message,
				sizeof(run->job.message));
}
