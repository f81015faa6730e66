/*
 * segment_hold.h - one file whose blocks are held in the page cache
 *
 * A failure is returned as a negative errno, and the next attempt may succeed.  Errors are raised
 * only by hold_begin(), at the first file of a file system.
 */
#ifndef RESIDENCY_SEGMENT_HOLD_H
#define RESIDENCY_SEGMENT_HOLD_H

#include "postgres.h"

#include <sys/types.h>

#include "kernel/mapping.h"
#include "segment_restore.h"

typedef struct HeldSegment
{
	SegmentId	id;
	uint8	   *map;			/* of the held blocks; NULL: nothing is held */
	bool		begun;			/* hold_begin() has succeeded */
	uint32		blocks;			/* length of the map */
	int64		held;			/* blocks in the map */
	int64		missing;		/* of these, after the last count and its load */
	uint8	   *back;			/* a map of those that this load brought back; NULL: none */
	int64		again;			/* of the blocks of the load before, missing at the last count */
	bool		cachestat;		/* cachestat(2) is reliable for the file */
	dev_t		device;			/* of the file: another one may get its name */
	ino_t		inode;
	struct pc_mapping mapping;
} HeldSegment;

/* maps of a segment's blocks for the calls below, RELSEG_SIZE bits each */
typedef struct HoldScratch
{
	uint8		resident[RELSEG_SIZE / 8 + 1];
	uint8		missing[RELSEG_SIZE / 8 + 1];
	uint8		requested[RELSEG_SIZE / 8 + 1];
} HoldScratch;

/*
 * Begins to hold the blocks that the segment wants and that are in the page cache now, not those
 * that are in shared buffers alone.  `map` has pc_map_bytes(segment->blocks) bytes, palloc'd, and
 * belongs to the held segment from then on.
 */
extern int	hold_begin(HeldSegment *held, const struct sf_segment *segment, uint8 *map,
					   HoldScratch *scratch);

/* Ends the hold of the segment. */
extern void hold_release(HeldSegment *held);

/* Whether its file was dropped or replaced. */
extern bool hold_is_dropped(const HeldSegment *held);

/*
 * Counts the missing blocks, sets `missing` and `again`, and keeps the others mapped, at most
 * `most` bytes with at most `most_tables` page tables.  A block that was truncated is not held any
 * more, nor is one of a file that was dropped.
 */
extern int	hold_count(HeldSegment *held, HoldScratch *scratch, uint32 most_tables, uint64 most);

/*
 * Loads at most `most` of the missing blocks that hold_count() or the last call has put into the
 * scratch, the first ones, and counts again.  Sets `loaded` to the number of those that are
 * resident then.  Returns 0, PC_STOPPED or a negative errno.
 */
extern int	hold_load(HeldSegment *held, HoldScratch *scratch, RestoreControl *control,
					  int64 most, int64 *loaded);

#endif
