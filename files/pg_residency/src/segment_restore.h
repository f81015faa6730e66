/*
 * segment_restore.h - brings one segment of a snapshot back into the page cache
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
	REASON_UNLOGGED,			/* on a standby there is none of it */
	REASON_FILE_GONE,
	REASON_FILE_SHORTER,
	REASON_OVER_BUDGET,
	REASON_RECLAIMED,			/* read, and taken away by the kernel before it was counted */
	REASON_ENDED,				/* the restore was ended */
	REASON_KERNEL,				/* `error` says why */
	REASON_ERROR				/* an error was raised, which the server's log has */
} OutcomeReason;
#define LAST_REASON REASON_ERROR

/*
 * How one segment stands, or what became of it, in blocks.  Once it is finished,
 * wanted = resident + over_budget + gone + failed, but for what was not waited for.
 */
typedef struct SegmentOutcome
{
	int64		wanted;
	int64		resident;		/* in the page cache or in shared buffers, as seen afterwards */
	int64		loaded;			/* of these, the ones that came in meanwhile */
	int64		extra;			/* not wanted, but brought in with the others */
	int64		over_budget;
	int64		gone;			/* the file is missing or shorter now */
	int64		failed;
	OutcomeReason reason;
	int			error;			/* errno, with REASON_KERNEL */
} SegmentOutcome;

/* what of the wanted blocks has come to an end */
static inline int64
outcome_settled(const SegmentOutcome *o)
{
	return o->resident + o->over_budget + o->gone + o->failed;
}

extern void outcome_add(SegmentOutcome *total, const SegmentOutcome *o);
extern void outcome_subtract(SegmentOutcome *total, const SegmentOutcome *o);

/* in words; NULL for REASON_NONE */
extern const char *outcome_reason(const SegmentOutcome *o);

/* large: not for the stack */
typedef struct RestoreControl
{
	Allowance	allowance;
	Devices		devices;
	const struct pc_window *window;
	int			gap_blocks;		/* -1: what the device makes worthwhile */
	/* as in struct pc_loader */
	bool		(*wait) (void *arg, long microseconds);
	void		(*blocked) (void *arg, bool begins);
	void		(*progress) (void *arg, uint32 blocks);
	void	   *arg;
} RestoreControl;

typedef struct SegmentWork SegmentWork;

/* How the segment stands now, nothing loaded. */
extern void examine_segment(const struct sf_segment *segment, SegmentOutcome *outcome);

/*
 * Begins to restore a segment, within the budget.  NULL when nothing is missing of it, and the
 * outcome is complete; otherwise send_segment() asks for what is, and finish_segment() completes
 * it.  Meanwhile others can be begun, so that a device has enough to do when segments are small.
 *
 * `work`, which is set as soon as there is something to give back, is for abandon_segment() after
 * an error.
 */
extern void begin_segment(const struct sf_segment *segment, RestoreControl *control,
						  SegmentOutcome *outcome, SegmentWork **work);

/*
 * Asks for what the segment needs, as far as its device's window has room, or all of it, if told to
 * wait for that.  False when there is more to ask for.
 */
extern bool send_segment(SegmentWork *work, bool wait);

/* whether something of the segment is still on its way, or will be */
extern bool segment_is_in_flight(const SegmentWork *work);

/*
 * Waits for what was asked for, and counts.  When wait() ended it, the outcome says how far it
 * came.
 */
extern void finish_segment(SegmentWork *work);

/* Gives back what an error has left behind. */
extern void abandon_segment(SegmentWork *work);

#endif
