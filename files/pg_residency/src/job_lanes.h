/*
 * job_lanes.h - a job's segments, by device
 */
#ifndef RESIDENCY_JOB_LANES_H
#define RESIDENCY_JOB_LANES_H

#include "job_run.h"

/* Brings the plan's segments into the page cache, each device's on its own. */
extern void restore_segments(Run *run);

/*
 * Once more for the n-th of the plan, which is done: what has left both caches since comes in
 * again, and its outcome is the one of now.
 */
extern void restore_again(Run *run, int n, JobSegment *segment);

#endif
