/*
 * restore.c - brings one segment of a snapshot back into the page cache
 */
#include "pg_residency.h"

#include <sys/stat.h>
#include <time.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "kernel/device.h"
#include "kernel/memory.h"
#include "port/pg_bitutils.h"
#include "storage/fd.h"
#include "storage/latch.h"

/*
 * Blocks read although not wanted, to save a request, where the device has not been measured: 16 KiB is about what a
 * local SSD makes worthwhile.
 */
#define DEFAULT_GAP_BLOCKS 2

/* a device is measured once there is that much to load from it */
#define WORTH_MEASURING ((32 * 1024 * 1024) / BLCKSZ)

/* a measured budget is measured again when that much has come in */
#define MEASURE_AGAIN_BYTES (16 * 1024 * 1024)

/* a segment being looked at or restored */
struct SegmentWork
{
	SegmentId	id;
	SegmentOutcome *outcome;
	char		path[MAXPGPATH];
	int			fd;				/* -1 when there is no file */
	uint32		blocks;			/* the file's and the map's, what both have */
	bool		cachestat;
	uint8	   *want;
	uint8	   *before;			/* in the page cache */
	uint8	   *need;			/* wanted, and in neither cache */
	/* while it is loaded: */
	RestoreControl *control;
	KnownDevice *device;
	struct pc_loader loader;
	struct pc_file file;
	uint64		promised;		/* bytes of the budget that are set aside for it */
	int			rc;
};

/*
 * In the page cache now; `map` has the work's blocks.  cachestat(2) counts pages that are still on their way: so it is
 * believed to have found a file full only when all that was asked for has been seen to arrive.
 */
static void
map_segment(const SegmentWork *work, bool arrived, uint8 *map)
{
	enum pc_trust trust = !work->cachestat ? PC_MINCORE : arrived ? PC_CACHESTAT : PC_CACHESTAT_COLD;
	uint64		resident;
	int			rc = pc_survey(work->fd, work->blocks, BLCKSZ, trust, map, &resident);

	if (rc != 0)
		report_kernel_error(rc, "look at the pages of", work->path);
}

/* wanted blocks in neither cache, given the page cache's map; how many there are */
static int64
find_needed(const SegmentWork *work, const uint8 *resident, uint8 *need)
{
	size_t		bytes = pc_map_bytes(work->blocks);

	for (size_t i = 0; i < bytes; i++)
		need[i] = work->want[i] & (uint8) ~resident[i];
	for (uint32 b = pc_next(need, work->blocks, 0, true); b < work->blocks; b = pc_next(need, work->blocks, b + 1, true))
		if (block_in_shared_buffers(&work->id, b))
			pc_clear(need, b);
	return (int64) pc_popcount(need, work->blocks);
}

static uint8 *
new_map(uint32 nblocks)
{
	return palloc0(pc_map_bytes(nblocks) + 1);
}

/* looks at the segment as it is now: fills wanted, resident and gone.  False when there is nothing more to do. */
static bool
open_work(SegmentWork *work, const struct sf_segment *segment)
{
	SegmentOutcome *outcome = work->outcome;
	const char *wrong;
	int64		needed;

	memset(outcome, 0, sizeof(*outcome));
	work->id = snapshot_segment_id(segment);
	work->want = new_map(segment->blocks);
	wrong = sf_read_map(segment, work->want);
	if (wrong != NULL)
		elog(ERROR, "snapshot is damaged: %s", wrong);
	outcome->wanted = segment->wanted;

	/* on a standby what an unlogged relation holds is not gone, it was never there */
	if (work->id.fork != INIT_FORKNUM && RecoveryInProgress() && segment_is_unlogged(&work->id))
	{
		outcome->wanted = 0;
		strlcpy(outcome->reason, "unlogged: not on a standby", sizeof(outcome->reason));
		return false;
	}
	work->fd = segment_open(&work->id, work->path, &work->blocks);
	if (work->fd < 0)
	{
		outcome->gone = segment->wanted;
		strlcpy(outcome->reason, "the file is gone: dropped, truncated or rewritten", sizeof(outcome->reason));
		return false;
	}
	work->blocks = Min(work->blocks, segment->blocks);
	outcome->gone = segment->wanted - (int64) pc_popcount(work->want, work->blocks);
	if (outcome->gone > 0)
		strlcpy(outcome->reason, "the file is shorter now", sizeof(outcome->reason));

	work->cachestat = cachestat_is_honest_for(&work->id, work->fd);
	work->before = new_map(work->blocks);
	work->need = new_map(work->blocks);
	map_segment(work, false, work->before);
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
		work->control->promised -= work->promised;
	}
	if (work->fd >= 0)
		CloseTransientFile(work->fd);
	if (work->want)
		pfree(work->want);
	if (work->before)
		pfree(work->before);
	if (work->need)
		pfree(work->need);
	pfree(work);
}

/* How the segment stands now, nothing loaded. */
void
examine_segment(const struct sf_segment *segment, SegmentOutcome *outcome)
{
	SegmentWork *work = new_work(outcome);

	open_work(work, segment);
	close_work(work);
}

/* What a restore may add to the page cache, bytes; what other clusters of this machine restored is to stay. */
uint64
restore_budget(void)
{
	struct pc_memory memory;
	int			rc = pc_memory_read("", machine_others_bytes(), &memory);

	if (rc != 0)
		report_kernel_error(rc, "read the free memory from", "/proc/meminfo");
	return memory.budget;
}

/* Makes the file look like a snapshot's segment of which every block is wanted. */
void
whole_segment(const SegmentId *id, uint32 blocks, struct sf_segment *segment)
{
	memset(segment, 0, sizeof(*segment));
	segment->tablespace = id->tablespace;
	segment->database = id->database;
	segment->relfilenumber = id->relfilenumber;
	segment->segment = id->segment;
	segment->blocks = blocks;
	segment->fork = (uint8) id->fork;
	segment->wanted = blocks;
	segment->layers[SF_PAGE_CACHE] = (struct sf_map) {.blocks = blocks, .encoding = SF_WHOLE};
}

/*
 * What is left of the budget, in blocks.  A measured one is measured again and again, for others want memory too;
 * what this restore has loaded is file cache, which makes room, and so is still in the new figure.
 */
static int64
blocks_left(RestoreControl *control)
{
	uint64		budget = control->budget;
	uint64		used = control->used + control->promised;

	if (control->budget_is_measured && control->used >= control->measured_at + MEASURE_AGAIN_BYTES)
	{
		control->budget_now = restore_budget();
		control->measured_at = control->used;
	}
	if (control->budget_is_measured && control->measured_at > 0)
		budget = Min(budget, control->budget_now);
	return budget > used ? (int64) ((budget - used) / BLCKSZ) : 0;
}

/* keeps the first `left` needed blocks; how many had to be given up */
static int64
cut_to_budget(SegmentWork *work, int64 left)
{
	int64		over = 0;

	for (uint32 b = pc_next(work->need, work->blocks, 0, true); b < work->blocks; b = pc_next(work->need, work->blocks, b + 1, true))
		if (left > 0)
			left--;
		else
		{
			pc_clear(work->need, b);
			over++;
		}
	return over;
}

/* counts what came in between the two maps of the page cache */
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

/* how many runs of needed blocks there are, each of which may have a gap behind it */
static int64
count_runs(const SegmentWork *work)
{
	int64		runs = 0;

	for (uint32 b = pc_next(work->need, work->blocks, 0, true); b < work->blocks; b = pc_next(work->need, work->blocks, b, true))
	{
		b = pc_next(work->need, work->blocks, b, false);
		runs++;
	}
	return runs;
}

/* what is known of the device that the file is on; looked up once in a restore */
static KnownDevice *
device_of(const SegmentWork *work, RestoreControl *control)
{
	KnownDevice *known = control->devices;
	struct stat st;

	if (fstat(work->fd, &st) != 0)
		report_kernel_error(-errno, "stat", work->path);
	while (known < control->devices + control->ndevices && known->device != st.st_dev)
		known++;
	if (known == control->devices + control->ndevices)
	{
		if (control->ndevices < lengthof(control->devices))
			control->ndevices++;
		else
			return known - 1;
		known->device = st.st_dev;
		known->request_bytes = pc_device_request_bytes(st.st_dev);
		if (!machine_device_speed(st.st_dev, &known->speed))
			known->speed.requests = 0;
	}
	return known;
}

/*
 * The gap to read along: what somebody set, or what the device makes worthwhile.  That is measured at the first
 * occasion, on blocks that are needed anyway, and remembered.
 */
static uint32
choose_gap(const SegmentWork *work)
{
	KnownDevice *known = work->device;
	struct pc_speed speed;

	if (work->control->gap_blocks >= 0)
		return (uint32) work->control->gap_blocks;
	/* anew in each restore, for a volume may be throttled now that was not; what was noted is for those with little to load */
	if (!known->measured && pc_popcount(work->need, work->blocks) >= WORTH_MEASURING && count_runs(work) > 1 &&
		pc_probe(work->fd, work->need, work->blocks, &work->loader, &speed) == 0 && speed.requests > 0)
	{
		known->speed = speed;
		known->measured = true;
		machine_note_device(known->device, &speed);
	}
	if (known->speed.requests < 1)
		return DEFAULT_GAP_BLOCKS;
	return pc_worthwhile_gap(&known->speed, BLCKSZ);
}

/* gets ready to ask for what the work needs, within the budget */
static void
prepare_load(SegmentWork *work)
{
	RestoreControl *control = work->control;
	int64		left = blocks_left(control);
	int64		needed;

	work->loader = (struct pc_loader) {
		.block_size = BLCKSZ, .request_bytes = work->device->request_bytes, .window = control->window,
		.use_cachestat = work->cachestat, .pace = &control->pace,
		.wait = control->wait, .blocked = control->blocked, .progress = control->progress, .arg = control->arg
	};
	work->outcome->over_budget = cut_to_budget(work, left);
	needed = (int64) pc_popcount(work->need, work->blocks);
	if (work->outcome->over_budget == 0)
	{
		int64		gaps;

		work->loader.gap_blocks = choose_gap(work);
		/* what is read in gaps counts as well: none where the budget might not reach for them */
		gaps = Min(count_runs(work) * work->loader.gap_blocks, (int64) work->blocks - needed);
		if (left < needed + gaps)
			work->loader.gap_blocks = 0;
		else
			needed += gaps;
	}
	work->promised = (uint64) needed * BLCKSZ;
	control->promised += work->promised;
	work->rc = pc_start(&work->file, work->fd, work->need, work->blocks, &work->loader);
}

/* once more for what the kernel left out, or was evicted while the rest came in; and counts what is there then */
static void
settle(SegmentWork *work)
{
	SegmentOutcome *outcome = work->outcome;
	uint8	   *after = new_map(work->blocks);
	uint8	   *missing = new_map(work->blocks);
	int64		lacking;
	int			rc = work->rc < 0 ? work->rc : pc_finish(&work->device->flight, &work->file);

	map_segment(work, rc == 0, after);
	lacking = find_needed(work, after, missing);
	if (rc != PC_STOPPED && lacking > outcome->over_budget)
	{
		for (size_t i = 0; i < pc_map_bytes(work->blocks); i++)
			missing[i] &= work->need[i];
		rc = pc_load(work->fd, missing, work->blocks, &work->loader);
		map_segment(work, rc == 0, after);
		lacking = find_needed(work, after, missing);
	}

	/* a block given up may have come in all the same: in a gap, or because somebody read it */
	outcome->over_budget = Min(outcome->over_budget, lacking);
	outcome->resident = outcome->wanted - outcome->gone - lacking;
	count_arrived(work, after);
	work->control->used += (uint64) (outcome->loaded + outcome->extra) * BLCKSZ;
	/* what was not waited for has not failed */
	outcome->failed = rc == PC_STOPPED ? 0 : lacking - outcome->over_budget;
	if (rc == PC_STOPPED)
		strlcpy(outcome->reason, "ended before it was done", sizeof(outcome->reason));
	else if (outcome->failed > 0)
		strlcpy(outcome->reason, rc < 0 ? strerror(-rc) : "read, but evicted again", sizeof(outcome->reason));
	else if (outcome->over_budget > 0)
		strlcpy(outcome->reason, "over the memory budget", sizeof(outcome->reason));
	pfree(after);
	pfree(missing);
}

/*
 * Begins to restore a segment, within the budget.  NULL when nothing is missing of it, and the outcome is complete;
 * otherwise send_segment() asks for what is, and finish_segment() completes it.  Meanwhile others can be begun, so that
 * a device has enough to do when segments are small.
 *
 * `work`, which is set as soon as there is something to give back, is for abandon_segment() after an error.
 */
void
begin_segment(const struct sf_segment *segment, RestoreControl *control, SegmentOutcome *outcome, SegmentWork **work)
{
	*work = new_work(outcome);
	if (open_work(*work, segment))
	{
		(*work)->device = device_of(*work, control);
		(*work)->control = control;
		prepare_load(*work);
	}
	else
	{
		close_work(*work);
		*work = NULL;
	}
}

/*
 * Asks for what the segment needs, as far as its device's window has room, or all of it, if told to wait for that.
 * False when there is more to ask for.
 */
bool
send_segment(SegmentWork *work, bool wait)
{
	if (work->rc == 0)
		pc_send(&work->device->flight, &work->file, wait);
	return work->rc != 0 || work->file.sent || work->device->flight.stopped;
}

/* whether something of the segment is still on its way, or will be */
bool
segment_is_in_flight(const SegmentWork *work)
{
	return work->rc == 0 && !work->device->flight.stopped && (!work->file.sent || work->file.in_flight > 0);
}

/* Waits until the oldest request of all has come in. */
void
await_any_device(RestoreControl *control)
{
	struct pc_flight *oldest = NULL;

	for (int i = 0; i < control->ndevices; i++)
	{
		struct pc_flight *flight = &control->devices[i].flight;

		if (flight->count > 0 &&
			(oldest == NULL || flight->requests[flight->first].sent_at < oldest->requests[oldest->first].sent_at))
			oldest = flight;
	}
	if (oldest != NULL)
		pc_await_oldest(oldest);
}

/* Waits for what was asked for, and counts.  When wait() ended it, the outcome says how far it came. */
void
finish_segment(SegmentWork *work)
{
	settle(work);
	close_work(work);
}

/* Gives back what an error has left behind. */
void
abandon_segment(SegmentWork *work)
{
	close_work(work);
}
