/*
 * restore_worker.h - the background worker of a job
 */
#ifndef RESIDENCY_RESTORE_WORKER_H
#define RESIDENCY_RESTORE_WORKER_H

#include "postgres.h"

#include "job_file.h"

/*
 * Makes a job of the plan, starts its worker and waits until that is at work.  The job's number; an
 * error when another job is alive, or no worker is free, and then there is no such job.  A
 * session that is canceled after the job has begun ends the job, which is remembered.
 */
extern int	job_start(const RestorePlan *plan, const JobSettings *settings);

#endif
