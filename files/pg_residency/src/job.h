/*
 * job.h - works off a job
 *
 * Needs a process with access to shared memory, and neither a session nor a database.
 */
#ifndef RESIDENCY_JOB_H
#define RESIDENCY_JOB_H

#include "postgres.h"

/*
 * Works off the job of that number, which has just been created.  Its state is written while it
 * runs and when it has ended, however that was.
 */
extern void job_run(int number);

#endif
