/*
 * segment_restore.c - restores one segment of a snapshot to the page cache
 */
#include "segment_restore.h"

#include <sys/stat.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/fd.h"

#include "host_ledger.h"
#include "kernel/page_cache.h"
#include "shared_buffers.h"

/*
 * Unwanted blocks between two runs that are read to save a request, for a device that has not been
 * measured: 16 KiB is about the optimum of a local SSD.
 */
#define DEFAULT_GAP_BLOCKS 2

/* repeated loads of blocks that are missing after the first one */
#define TRIES 3

/* a segment is sparse if less than one of that many blocks is wanted */
#define SPARSE 16

/* blocks to load that justify a measurement of the device */
#define WORTH_MEASURING ((32 * 1024 * 1024) / BLCKSZ)

/* a segment being examined or restored */
struct SegmentWork
{
	SegmentId	id;
	SegmentOutcome *outcome;
	char		path[MAXPGPATH];
	int			fd;				/* -1: no file */
	uint32		blocks;			/* the smaller of the map and the file */
	bool		cachestat;
	uint8	   *want;
	uint8	   *before;			/* in the page cache */
	uint8	   *need;			/* wanted, and in neither cache */
	uint8	   *after;			/* of the last look: in the page cache, */
	uint8	   *missing;		/* and wanted, and in neither cache */
	/* valid while it is loaded: */
	RestoreControl *control;
	Device	   *device;
	struct pc_loader loader;
	struct pc_file file;
	bool		sparse;
	uint32		gap;			/* blocks between two runs that may be loaded too */
	uint64		promised;		/* bytes of the budget reserved for it */
	int			rc;
};

void
outcome_add(SegmentOutcome *total, const SegmentOutcome *o)
{
	total->wanted += o->wanted;
	total->resident += o->resident;
	total->loaded += o->loaded;
	total->extra += o->extra;
	total->over_budget += o->over_budget;
	total->gone += o->gone;
	total->failed += o->failed;
}

void
outcome_subtract(SegmentOutcome *total, const SegmentOutcome *o)
{
	total->wanted -= o->wanted;
	total->resident -= o->resident;
	total->loaded -= o->loaded;
	total->extra -= o->extra;
	total->over_budget -= o->over_budget;
	total->gone -= o->gone;
	total->failed -= o->failed;
}

const char *
outcome_reason(const SegmentOutcome *o)
{
	switch (o->reason)
	{
		case REASON_NONE:
			return NULL;
		case REASON_UNLOGGED:
			return "unlogged relations have no data on a standby";
		case REASON_FILE_GONE:
			return "the file is gone: the relation was dropped, truncated or rewritten";
		case REASON_FILE_SHORTER:
			return "the file was truncated";
		case REASON_OVER_BUDGET:
			return "over the memory budget";
		case REASON_RECLAIMED:
			return "reclaimed by the kernel after it was read";
		case REASON_ENDED:
			return "the job ended before this segment was restored";
		case REASON_KERNEL:
			return strerror(o->error);
		case REASON_DAMAGED:
			return "the snapshot is damaged";
	}
	return "unknown";
}

/* Counts all wanted blocks as failed; returns false. */
static bool
fail_segment(SegmentWork *work, OutcomeReason reason, int error)
{
	*work->outcome = (SegmentOutcome) {.wanted = work->outcome->wanted,
		.failed = work->outcome->wanted, .reason = reason, .error = error};
	return false;
}

/*
 * Maps the blocks in the page cache; returns 0 or a negative errno.  cachestat(2) also counts
 * pages that are still being read: so a full file is accepted only after all requested pages have
 * arrived.
 */
static int
map_segment(const SegmentWork *work, bool arrived, uint8 *map)
{
	enum pc_trust trust = !work->cachestat ? PC_MINCORE :
		arrived ? PC_CACHESTAT : PC_CACHESTAT_COLD;
	uint64		resident;

	return pc_survey(work->fd, work->blocks, BLCKSZ, trust, map, &resident);
}

/* maps the wanted blocks in neither cache, given the map of the page cache; returns their number */
static int64
find_needed(const SegmentWork *work, const uint8 *resident, uint8 *need)
{
	size_t		bytes = pc_map_bytes(work->blocks);

	for (size_t i = 0; i < bytes; i++)
		need[i] = work->want[i] & (uint8) ~resident[i];
	for (uint32 b = pc_next(need, work->blocks, 0, true); b < work->blocks;
		 b = pc_next(need, work->blocks, b + 1, true))
		if (block_in_shared_buffers(&work->id, b))
			pc_clear(need, b);
	return (int64) pc_popcount(need, work->blocks);
}

static uint8 *
new_map(uint32 nblocks)
{
	return palloc0(pc_map_bytes(nblocks) + 1);
}

/*
 * Examines the segment as it is now: sets wanted, resident and gone.  False when nothing is left to
 * load.
 */
static bool
open_work(SegmentWork *work, const struct sf_segment *segment)
{
	SegmentOutcome *outcome = work->outcome;
	int64		needed;
	int			rc;

	memset(outcome, 0, sizeof(*outcome));
	outcome->wanted = segment->wanted;
	work->id = segment_id_of(segment);
	work->want = new_map(segment->blocks);
	if (sf_read_map(segment, work->want) != NULL)
		return fail_segment(work, REASON_DAMAGED, 0);

	/* it is not gone: it never existed here */
	if (segment_is_of_primary(&work->id))
	{
		outcome->wanted = 0;
		outcome->reason = REASON_UNLOGGED;
		return false;
	}
	work->fd = segment_try_open(&work->id, work->path, &work->blocks);
	if (work->fd < 0 && errno != ENOENT)
		return fail_segment(work, REASON_KERNEL, errno);
	if (work->fd < 0)
	{
		outcome->gone = segment->wanted;
		outcome->reason = REASON_FILE_GONE;
		return false;
	}
	work->blocks = Min(work->blocks, segment->blocks);
	outcome->gone = segment->wanted - (int64) pc_popcount(work->want, work->blocks);
	if (outcome->gone > 0)
		outcome->reason = REASON_FILE_SHORTER;

	work->cachestat = cachestat_is_honest_for(&work->id, work->fd);
	work->before = new_map(work->blocks);
	work->need = new_map(work->blocks);
	rc = map_segment(work, false, work->before);
	if (rc != 0)
		return fail_segment(work, REASON_KERNEL, -rc);
	needed = find_needed(work, work->before, work->need);
	outcome->resident = outcome->wanted - outcome->gone - needed;
	return needed > 0;
}

static SegmentWork *
new_work(SegmentOutcome *outcome)
{
	SegmentWork *work = palloc0(sizeof(SegmentWork));

	work->fd = -1;
	work->outcome = outcome;
	return work;
}

static void
close_work(SegmentWork *work)
{
	if (work->control != NULL)
	{
		pc_forget(&work->device->flight, &work->file);
		work->control->allowance.promised -= work->promised;
	}
	if (work->fd >= 0)
		CloseTransientFile(work->fd);
	if (work->want)
		pfree(work->want);
	if (work->before)
		pfree(work->before);
	if (work->need)
		pfree(work->need);
	if (work->after)
		pfree(work->after);
	if (work->missing)
		pfree(work->missing);
	pfree(work);
}

void
examine_segment(const struct sf_segment *segment, SegmentOutcome *outcome)
{
	SegmentWork *work = new_work(outcome);

	open_work(work, segment);
	close_work(work);
}

/* keeps the first `left` blocks of the map; returns the number of cleared ones */
static int64
cut_to_budget(uint8 *map, uint32 blocks, int64 left)
{
	int64		over = 0;

	for (uint32 b = pc_next(map, blocks, 0, true); b < blocks;
		 b = pc_next(map, blocks, b + 1, true))
		if (left > 0)
			left--;
		else
		{
			pc_clear(map, b);
			over++;
		}
	return over;
}

/* counts blocks that were not in the page cache before, wanted or not */
static int64
count_new(const SegmentWork *work, const uint8 *after)
{
	int64		n = 0;

	for (size_t i = 0; i < pc_map_bytes(work->blocks); i++)
		n += pg_number_of_ones[after[i] & (uint8) ~work->before[i]];
	return n;
}

/* counts the blocks that arrived between the two maps of the page cache */
static void
count_arrived(const SegmentWork *work, const uint8 *after)
{
	for (size_t i = 0; i < pc_map_bytes(work->blocks); i++)
	{
		uint8		arrived = after[i] & (uint8) ~work->before[i];

		work->outcome->loaded += pg_number_of_ones[arrived & work->want[i]];
		work->outcome->extra += pg_number_of_ones[arrived & (uint8) ~work->want[i]];
	}
}

/* the number of runs of needed blocks, each of which may be followed by a gap */
static int64
count_runs(const SegmentWork *work)
{
	int64		runs = 0;

	for (uint32 b = pc_next(work->need, work->blocks, 0, true); b < work->blocks;
		 b = pc_next(work->need, work->blocks, b, true))
	{
		b = pc_next(work->need, work->blocks, b, false);
		runs++;
	}
	return runs;
}

/*
 * The gap to read: the option's, or the optimum of the device, which is smaller if the segment does
 * not fit into unused memory.  The device is measured at the first opportunity, on blocks that are
 * needed anyway, and its speed is recorded.
 */
static uint32
choose_gap(const SegmentWork *work, int64 left)
{
	Device	   *known = work->device;
	int64		needed = (int64) pc_popcount(work->need, work->blocks);
	struct pc_speed speed;

	if (work->control->gap_blocks >= 0)
		return (uint32) work->control->gap_blocks;
	/*
	 * Each restore measures again, because a volume may be throttled since.  The recorded speed
	 * serves restores with few blocks and those with a limited rate.
	 */
	if (!known->measured && work->control->allowance.pace.rate == 0 &&
		needed >= WORTH_MEASURING && needed + PC_PROBE_BYTES / BLCKSZ <= left &&
		count_runs(work) > 1 &&
		pc_probe(work->fd, work->need, work->blocks, &work->loader, &speed) == 0 &&
		speed.requests > 0)
	{
		known->speed = speed;
		known->measured = true;
		host_note_device(known->number, &speed);
	}
	if (known->speed.requests < 1)
		return DEFAULT_GAP_BLOCKS;
	return pc_worthwhile_gap(&known->speed, BLCKSZ,
							 !allowance_is_unused(&work->control->allowance, work->blocks));
}

/* prepares the requests for the needed blocks, within the budget */
static void
prepare_load(SegmentWork *work)
{
	RestoreControl *control = work->control;
	int64		left = allowance_blocks_left(&control->allowance);
	int64		needed;

	work->loader = (struct pc_loader){.block_size = BLCKSZ,
									  .request_bytes = work->device->request_bytes,
									  .window = control->window,
									  .use_cachestat = work->cachestat,
									  .pace = &control->allowance.pace,
									  .wait = control->wait,
									  .blocked = control->blocked,
									  .progress = control->progress,
									  .arg = control->arg};
	work->outcome->over_budget = cut_to_budget(work->need, work->blocks, left);
	needed = (int64) pc_popcount(work->need, work->blocks);
	if (work->outcome->over_budget == 0)
	{
		int64		gaps;

		work->loader.gap_blocks = choose_gap(work, left);
		/* blocks in gaps use the budget too: no gaps if it might not suffice for them */
		gaps = Min(count_runs(work) * work->loader.gap_blocks, (int64) work->blocks - needed);
		if (left < needed + gaps)
			work->loader.gap_blocks = 0;
		else
			needed += gaps;
	}
	work->sparse = pc_popcount(work->want, work->blocks) < work->blocks / SPARSE;
	work->loader.loads_again = work->sparse;
	work->gap = work->loader.gap_blocks;
	work->promised = (uint64) needed * BLCKSZ;
	control->allowance.promised += work->promised;
	work->rc = pc_start(&work->file, work->fd, work->need, work->blocks, &work->loader);
}

/*
 * The file may have been truncated or dropped during the load: its missing blocks are gone.  An
 * unlinked file belongs to no relation, whatever is cached of it.  Returns 0 or a negative errno.
 */
static int
look_for_end(SegmentWork *work)
{
	SegmentOutcome *outcome = work->outcome;
	struct stat st;
	uint32		blocks;

	if (fstat(work->fd, &st) != 0)
		return -errno;
	blocks = st.st_nlink == 0 ? 0 : (uint32) Min(st.st_size / BLCKSZ, work->blocks);
	if (blocks == work->blocks)
		return 0;
	for (uint32 b = pc_next(work->want, work->blocks, blocks, true); b < work->blocks;
		 b = pc_next(work->want, work->blocks, b + 1, true))
		outcome->gone++;
	work->blocks = blocks;
	outcome->reason = st.st_nlink == 0 ? REASON_FILE_GONE : REASON_FILE_SHORTER;
	return 0;
}

/*
 * Sets `after` and `missing` to the present state, and `lacking` to the missing blocks.  Of a
 * sparse segment it looks only at what may have been loaded.
 */
static bool
look_again(SegmentWork *work, bool arrived, uint8 *after, uint8 *missing, int64 *lacking)
{
	int			rc = look_for_end(work);

	if (rc == 0)
		rc = !work->sparse ? map_segment(work, arrived, after) :
			pc_survey_runs(work->fd, work->blocks, BLCKSZ, work->want, work->gap, after);
	if (rc != 0)
		return fail_segment(work, REASON_KERNEL, -rc);
	*lacking = find_needed(work, after, missing);
	return true;
}

/*
 * Examines the segment, and loads up to TRIES times what the kernel skipped or reclaimed, and what
 * shared buffers held at first and have displaced since.  Then counts.
 */
static void
load_missing(SegmentWork *work)
{
	SegmentOutcome *outcome = work->outcome;
	Allowance  *allowance = &work->control->allowance;
	uint8	   *after = work->after = new_map(work->blocks);
	uint8	   *missing = work->missing = new_map(work->blocks);
	int64		lacking;
	int			rc = work->rc < 0 ? work->rc : pc_finish(&work->device->flight, &work->file);

	if (!look_again(work, rc == 0, after, missing, &lacking))
		return;
	for (int i = 0; i < TRIES && rc != PC_STOPPED && lacking > outcome->over_budget; i++)
	{
		/*
		 * the blocks that this segment reserved budget for have arrived, or the budget is free
		 * again
		 */
		int64		left;

		allowance->promised -= work->promised;
		work->promised = 0;
		left = allowance_blocks_left(allowance);
		left -= Min(left, count_new(work, after));
		outcome->over_budget = cut_to_budget(missing, work->blocks, left);
		work->loader.gap_blocks = 0;
		work->loader.loads_again = false;
		work->loader.progress = NULL;	/* they were counted when they were first awaited */
		rc = pc_load(work->fd, missing, work->blocks, &work->loader);
		if (!look_again(work, rc == 0, after, missing, &lacking))
			return;
	}

	/* a block over budget may be resident now: read in a gap, or by a query */
	outcome->over_budget = Min(outcome->over_budget, lacking);
	outcome->resident = outcome->wanted - outcome->gone - lacking;
	count_arrived(work, after);
	allowance->used += (uint64) (outcome->loaded + outcome->extra) * BLCKSZ;
	/* blocks that were not awaited have not failed */
	outcome->failed = rc == PC_STOPPED ? 0 : lacking - outcome->over_budget;
	outcome->error = rc < 0 ? -rc : 0;
	if (rc == PC_STOPPED)
		outcome->reason = REASON_ENDED;
	else if (outcome->failed > 0)
		outcome->reason = rc < 0 ? REASON_KERNEL : REASON_RECLAIMED;
	else if (outcome->over_budget > 0)
		outcome->reason = REASON_OVER_BUDGET;
}

SegmentWork *
begin_segment(const struct sf_segment *segment, RestoreControl *control,
			  SegmentOutcome *outcome)
{
	SegmentWork *work = new_work(outcome);
	struct stat st;

	if (open_work(work, segment))
	{
		if (fstat(work->fd, &st) == 0)
		{
			work->device = device_numbered(&control->devices, st.st_dev);
			work->control = control;
			prepare_load(work);
			return work;
		}
		fail_segment(work, REASON_KERNEL, errno);
	}
	close_work(work);
	return NULL;
}

void
segment_add_loaded(const SegmentWork *work, uint8 *map)
{
	for (size_t i = 0; i < pc_map_bytes(work->blocks); i++)
		map[i] |= work->need[i];
}

bool
send_segment(SegmentWork *work, bool wait)
{
	if (work->rc == 0)
		pc_send(&work->device->flight, &work->file, wait);
	return work->rc != 0 || work->file.sent || work->device->flight.stopped;
}

bool
segment_is_in_flight(const SegmentWork *work)
{
	return work->rc == 0 && !work->device->flight.stopped &&
		   (!work->file.sent || work->file.in_flight > 0);
}

void
finish_segment(SegmentWork *work)
{
	load_missing(work);
	close_work(work);
}
