/*
 * segment_restore.h - restores one segment of a snapshot to the page cache
 */
#ifndef RESIDENCY_SEGMENT_RESTORE_H
#define RESIDENCY_SEGMENT_RESTORE_H

#include "postgres.h"

#include "allowance.h"
#include "devices.h"
#include "segments.h"
#include "snapshot_file.h"

/* why not every wanted block of a segment is resident */
typedef enum OutcomeReason
{
	REASON_NONE,
	REASON_UNLOGGED,			/* no data on a standby */
	REASON_FILE_GONE,
	REASON_FILE_SHORTER,
	REASON_OVER_BUDGET,
	REASON_RECLAIMED,			/* read, but reclaimed by the kernel before the count */
	REASON_ENDED,				/* the restore was ended */
	REASON_KERNEL,				/* `error` has the errno */
	REASON_DAMAGED				/* the snapshot's map of the segment is damaged */
} OutcomeReason;

/*
 * The state of a segment or the outcome of its restore, in blocks.  After the restore, wanted =
 * resident + over_budget + gone + failed, except for blocks that were not awaited.
 */
typedef struct SegmentOutcome
{
	int64		wanted;
	int64		resident;		/* in the page cache or in shared buffers, counted afterwards */
	int64		loaded;			/* of these, loaded meanwhile */
	int64		extra;			/* not wanted, but loaded with the others */
	int64		over_budget;
	int64		gone;			/* the file is missing or shorter now */
	int64		failed;
	OutcomeReason reason;
	int			error;			/* errno, with REASON_KERNEL */
} SegmentOutcome;

/* wanted blocks with a final outcome */
static inline int64
outcome_settled(const SegmentOutcome *o)
{
	return o->resident + o->over_budget + o->gone + o->failed;
}

extern void outcome_add(SegmentOutcome *total, const SegmentOutcome *o);
extern void outcome_subtract(SegmentOutcome *total, const SegmentOutcome *o);

/* as text; NULL for REASON_NONE */
extern const char *outcome_reason(const SegmentOutcome *o);

/* large: not for the stack */
typedef struct RestoreControl
{
	Allowance	allowance;
	Devices		devices;
	const struct pc_window *window;
	int			gap_blocks;		/* -1: measured for each device */
	/* as in struct pc_loader */
	bool		(*wait) (void *arg, long microseconds);
	void		(*blocked) (void *arg, bool begins);
	void		(*progress) (void *arg, uint32 blocks);
	void	   *arg;
} RestoreControl;

typedef struct SegmentWork SegmentWork;

/* Examines the segment without loading anything. */
extern void examine_segment(const struct sf_segment *segment, SegmentOutcome *outcome);

/*
 * Begins the restore of a segment within the budget.  Returns NULL when nothing is missing or the
 * segment cannot be read, and then the outcome is complete.  Otherwise send_segment() requests the
 * missing blocks, and finish_segment() completes the outcome.  Other segments may be begun
 * meanwhile, so that small segments keep a device busy.
 */
extern SegmentWork *begin_segment(const struct sf_segment *segment, RestoreControl *control,
								  SegmentOutcome *outcome);

/* Adds the blocks that it loads to a map of the planned segment's blocks. */
extern void segment_add_loaded(const SegmentWork *work, uint8 *map);

/*
 * Requests the segment's missing blocks as far as the device's window has room; with `wait`, all of
 * them.  False when some are not yet requested.
 */
extern bool send_segment(SegmentWork *work, bool wait);

/* whether requests of the segment are in flight or not yet sent */
extern bool segment_is_in_flight(const SegmentWork *work);

/*
 * Waits for the requested blocks, and counts.  If wait() ended the restore, the outcome has the
 * blocks loaded so far.
 */
extern void finish_segment(SegmentWork *work);

#endif
