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
typedef struct Work
{
	const struct sf_segment *segment;
	SegmentId	id;
	char		path[MAXPGPATH];
	int			fd;				/* -1 when there is no file */
	uint32		blocks;			/* the file's and the map's, what both have */
	bool		cachestat;
	uint8	   *want;
	uint8	   *before;			/* in the page cache */
	uint8	   *need;			/* wanted, and in neither cache */
} Work;

/* in the page cache now; `map` has the work's blocks */
static void
map_segment(const Work *work, uint8 *map)
{
	struct pc_stat st;
	int			rc;

	if (work->cachestat && pc_cachestat(work->fd, 0, 0, &st) == 0 && st.cached == 0)
	{
		memset(map, 0, pc_map_bytes(work->blocks));
		return;
	}
	rc = pc_map(work->fd, work->blocks, BLCKSZ, map);
	if (rc != 0)
		report_kernel_error(rc, "look at the pages of", work->path);
}

/* wanted blocks in neither cache, given the page cache's map; how many there are */
static int64
find_needed(const Work *work, const uint8 *resident, uint8 *need)
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
open_work(Work *work, const struct sf_segment *segment, SegmentOutcome *outcome)
{
	const char *wrong;
	int64		needed;

	memset(outcome, 0, sizeof(*outcome));
	work->segment = segment;
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
	map_segment(work, work->before);
	needed = find_needed(work, work->before, work->need);
	outcome->resident = outcome->wanted - outcome->gone - needed;
	return needed > 0;
}

static void
close_work(Work *work)
{
	if (work->fd >= 0)
		CloseTransientFile(work->fd);
	work->fd = -1;
	pfree(work->want);
	if (work->before)
		pfree(work->before);
	if (work->need)
		pfree(work->need);
}

/* How the segment stands now, nothing loaded. */
void
examine_segment(const struct sf_segment *segment, SegmentOutcome *outcome)
{
	Work		work = {.fd = -1};

	open_work(&work, segment, outcome);
	close_work(&work);
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

	if (control->budget_is_measured && control->used >= control->measured_at + MEASURE_AGAIN_BYTES)
	{
		control->budget_now = restore_budget();
		control->measured_at = control->used;
	}
	if (control->budget_is_measured && control->measured_at > 0)
		budget = Min(budget, control->budget_now);
	return budget > control->used ? (int64) ((budget - control->used) / BLCKSZ) : 0;
}

/* keeps the first `left` needed blocks; how many had to be given up */
static int64
cut_to_budget(Work *work, int64 left)
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
count_arrived(const Work *work, const uint8 *after, SegmentOutcome *outcome)
{
	for (uint32 b = 0; b < work->blocks; b++)
		if (pc_bit(after, b) && !pc_bit(work->before, b))
		{
			if (pc_bit(work->want, b))
				outcome->loaded++;
			else
				outcome->extra++;
		}
}

/*
 * The gap to read along: what somebody set, or what the device makes worthwhile.  That is measured at the first
 * occasion, on blocks that are needed anyway, and remembered.
 */
static uint32
choose_gap(const Work *work, const RestoreControl *control, dev_t device, const struct pc_loader *loader)
{
	struct pc_speed speed;

	if (control->gap_blocks >= 0)
		return (uint32) control->gap_blocks;
	if (!machine_device_speed(device, &speed))
	{
		if (pc_popcount(work->need, work->blocks) < WORTH_MEASURING ||
			pc_probe(work->fd, work->need, work->blocks, loader, &speed) != 0 || speed.requests == 0)
			return DEFAULT_GAP_BLOCKS;
		machine_note_device(device, &speed);
	}
	return pc_worthwhile_gap(&speed, BLCKSZ);
}

/* how many runs of needed blocks there are, each of which may have a gap behind it */
static int64
count_runs(const Work *work)
{
	int64		runs = 0;

	for (uint32 b = pc_next(work->need, work->blocks, 0, true); b < work->blocks; b = pc_next(work->need, work->blocks, b, true))
	{
		b = pc_next(work->need, work->blocks, b, false);
		runs++;
	}
	return runs;
}

/* loads what the work needs, within the budget, and counts what is there then; false when wait() ended it */
static bool
load_needed(Work *work, RestoreControl *control, SegmentOutcome *outcome)
{
	struct stat st;
	struct pc_loader loader = {
		.block_size = BLCKSZ, .request_bytes = pc_gentle.request_bytes, .window = control->window,
		.use_cachestat = work->cachestat, .pace = &control->pace,
		.wait = control->wait, .progress = control->progress, .arg = control->arg
	};
	uint8	   *after = new_map(work->blocks);
	uint8	   *missing = new_map(work->blocks);
	int64		left = blocks_left(control);
	int64		lacking = 0;
	int			rc = 0;

	outcome->over_budget = cut_to_budget(work, left);
	if (outcome->over_budget == 0 && fstat(work->fd, &st) == 0)
	{
		loader.request_bytes = pc_device_request_bytes(st.st_dev);
		loader.gap_blocks = choose_gap(work, control, st.st_dev, &loader);
		/* what is read in gaps counts as well: none where the budget might not reach for them */
		if (left < (int64) pc_popcount(work->need, work->blocks) + count_runs(work) * loader.gap_blocks)
			loader.gap_blocks = 0;
	}
	memcpy(missing, work->need, pc_map_bytes(work->blocks));

	/* once more for what was evicted while the rest came in */
	for (int attempt = 1; attempt <= 2; attempt++)
	{
		rc = pc_load(work->fd, missing, work->blocks, &loader);
		map_segment(work, after);
		lacking = find_needed(work, after, missing);
		if (rc == PC_STOPPED || lacking <= outcome->over_budget)
			break;
		for (size_t i = 0; i < pc_map_bytes(work->blocks); i++)
			missing[i] &= work->need[i];
	}

	/* a block given up may have come in all the same: in a gap, or because somebody read it */
	outcome->over_budget = Min(outcome->over_budget, lacking);
	outcome->resident = outcome->wanted - outcome->gone - lacking;
	count_arrived(work, after, outcome);
	control->used += (uint64) (outcome->loaded + outcome->extra) * BLCKSZ;
	outcome->failed = lacking - outcome->over_budget;
	if (rc == PC_STOPPED)
		strlcpy(outcome->reason, "ended before it was done", sizeof(outcome->reason));
	else if (outcome->failed > 0)
		strlcpy(outcome->reason, rc < 0 ? strerror(-rc) : "read, but evicted again", sizeof(outcome->reason));
	else if (outcome->over_budget > 0)
		strlcpy(outcome->reason, "over the memory budget", sizeof(outcome->reason));
	pfree(after);
	pfree(missing);
	return rc != PC_STOPPED;
}

/*
 * Restores one segment: what is missing of it is loaded within the budget and counted afterwards.  False when wait()
 * ended it; the outcome then says how far it came.
 */
bool
restore_segment(const struct sf_segment *segment, RestoreControl *control, SegmentOutcome *outcome)
{
	Work		work = {.fd = -1};
	bool		finished = true;

	if (open_work(&work, segment, outcome))
		finished = load_needed(&work, control, outcome);
	close_work(&work);
	return finished;
}
