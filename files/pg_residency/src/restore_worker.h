/*
 * restore_worker.h - the background worker of a job
 */
#ifndef RESIDENCY_RESTORE_WORKER_H
#define RESIDENCY_RESTORE_WORKER_H

#include "postgres.h"

#include "job_file.h"

/*
 * Creates a job for the plan, starts its worker and waits until it runs the job.  Returns the job's
 * number.  A job that nobody asked for is ended.  Raises an error when another one is alive or no
 * background worker slot is free, and then there is no such job.  If the session is canceled after
 * the job has begun, the job is ended and remembered.
 */
extern int	job_start(const RestorePlan *plan, const JobSettings *settings);

#endif
