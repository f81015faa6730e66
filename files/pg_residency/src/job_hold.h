/*
 * job_hold.h - the last stage of a job that keeps what it has restored in the page cache
 */
#ifndef RESIDENCY_JOB_HOLD_H
#define RESIDENCY_JOB_HOLD_H

#include "job_run.h"

/* For a job with a hold, as soon as it has its plan: sessions may release relations from now on. */
extern void hold_prepare(Run *run);

/*
 * Holds what is in the page cache of what the job has restored, until the time that its settings
 * name or the job ends otherwise: keeps it mapped, counts it again and again, and brings back what
 * the kernel has reclaimed.  The outcome of the restore remains as it is.
 */
extern void hold_restored(Run *run);

/*
 * Called by every wait of a job with a hold: answers a session that wants a relation released.
 * True when a load must stop for that, or because the time of the hold is over.
 */
extern bool hold_answer(Run *run);

#endif
