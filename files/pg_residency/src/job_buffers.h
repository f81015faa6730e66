/*
 * job_buffers.h - the last stage of a job that fills shared buffers too
 */
#ifndef RESIDENCY_JOB_BUFFERS_H
#define RESIDENCY_JOB_BUFFERS_H

#include "job_run.h"

/*
 * Refills shared buffers from the page cache, database by database, and counts both caches again.
 */
extern void restore_buffers(Run *run);

#endif
