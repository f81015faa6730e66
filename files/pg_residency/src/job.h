/*
 * job.h - runs a job
 *
 * Needs a process with access to shared memory, but neither a session nor a database.
 */
#ifndef RESIDENCY_JOB_H
#define RESIDENCY_JOB_H

#include "postgres.h"

/*
 * Runs the job of that number, which has just been created.  The state is written while the job
 * runs and when it has ended, in whatever way.
 */
extern void job_run(int number);

#endif
