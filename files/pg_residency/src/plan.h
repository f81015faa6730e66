/*
 * plan.h - what a job is to restore, in which order
 *
 * A plan is complete in itself: it has the maps of its segments, so nothing that happens to the
 * snapshot afterwards matters.  Its file has the format of a snapshot's.
 */
#ifndef RESIDENCY_PLAN_H
#define RESIDENCY_PLAN_H

#include "postgres.h"

#include "options.h"
#include "snapshot.h"

typedef struct RestorePlan
{
	char		label[LABEL_BYTES]; /* name@generation; empty: no snapshot, only whole files */
	struct sf_segment *segments;	/* in the order in which they are worked off */
	int32	   *numbers;		/* of each in the snapshot; 0: the whole file is wanted */
	bool	   *absent;			/* unlogged on a standby: nothing of it is wanted */
	int			count;
	int64		wanted;			/* blocks */
	struct HTAB *ids;			/* SegmentId of each */
} RestorePlan;

/*
 * Blocks that a cache held, those in shared buffers counting for more, and for more still when they
 * were used often.  What has most of it per block comes first.
 */
extern uint64 segment_heat(const struct sf_segment *segment);

/* Plans a restore of that snapshot, which may be NULL when the options name whole relations. */
extern RestorePlan *job_plan(const char *snapshot, const JobOptions *options);

/* Writes the segments; returns the checksum that plan_read() wants to see. */
extern uint32 plan_write(const RestorePlan *plan, const char *path);

/* Reads the segments; an error when the file is not the one that was written. */
extern struct sf_segment *plan_read(const char *path, uint32 crc, int count);

/* the error for a number that the snapshot does not have */
extern void report_no_segment(const ResidencySnapshot *snapshot, int number)
	__attribute__((noreturn));

#endif
