/*
 * job_lanes.h - a job's segments, by device
 */
#ifndef RESIDENCY_JOB_LANES_H
#define RESIDENCY_JOB_LANES_H

#include "job_run.h"

/* Loads the plan's segments into the page cache, each device's segments in a lane of their own. */
extern void restore_segments(Run *run);

/*
 * Repeats the restore of the n-th segment of the plan, which is done: loads blocks that have left
 * both caches since, and replaces the outcome.
 */
extern void restore_again(Run *run, int n, JobSegment *segment);

#endif
