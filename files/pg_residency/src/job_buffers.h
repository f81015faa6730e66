/*
 * job_buffers.h - the last stage of a job that fills shared buffers too
 */
#ifndef RESIDENCY_JOB_BUFFERS_H
#define RESIDENCY_JOB_BUFFERS_H

#include "job_run.h"

/* Brings shared buffers back, database by database, from the page cache; and counts again. */
extern void restore_buffers(Run *run);

#endif
