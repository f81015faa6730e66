/*
 * plan.h - which segments a job restores, in which order
 *
 * A plan contains the maps of its segments, so later changes of the snapshot do not matter.
 */
#ifndef RESIDENCY_PLAN_H
#define RESIDENCY_PLAN_H

#include "postgres.h"

#include "options.h"
#include "segment_restore.h"
#include "snapshot.h"

/* one file of a job's plan, and its outcome */
typedef struct JobSegment
{
	int32		number;			/* in the snapshot; 0: the whole file is wanted */
	SegmentId	id;
	uint32		blocks;			/* of the file when it was planned */
	bool		done;
	SegmentOutcome outcome;		/* before `done` is set, only `wanted` is valid */
} JobSegment;

typedef struct RestorePlan
{
	char		label[LABEL_BYTES]; /* name@generation; empty: whole files only */
	struct sf_segment *segments;	/* in the order in which they are restored, with their maps */
	JobSegment *job_segments;	/* the same */
	int			count;
	int			room;			/* length of both arrays */
	int64		wanted;			/* blocks */
	struct HTAB *ids;			/* SegmentId of each */
} RestorePlan;

/*
 * The number of cached blocks, in which blocks in shared buffers weigh more, and often used ones
 * even more.  A restore begins with the segments that have most of it per block.
 */
extern uint64 segment_heat(const struct sf_segment *segment);

/* the snapshot has blocks of the segment in shared buffers */
static inline bool
segment_has_buffers(const struct sf_segment *segment)
{
	return segment->layers[SF_BUFFERS_COOL].blocks + segment->layers[SF_BUFFERS_HOT].blocks > 0;
}

/* Plans a restore of that snapshot; NULL when the options specify whole relations only. */
extern RestorePlan *job_plan(const char *snapshot, const JobOptions *options);

/*
 * Plans a restore of the first snapshot with the blocks of the others, which come from the same
 * server.  `ages` has how many of them are newer than each: a segment's heat is halved with each,
 * so that what several have comes before what one has.
 */
extern RestorePlan *job_plan_merged(const ResidencySnapshot *snapshots, const int *ages,
									int count);

/* raises the error for a segment number that the snapshot does not have */
extern void report_no_segment(const ResidencySnapshot *snapshot, int number)
	__attribute__((noreturn));

#endif
