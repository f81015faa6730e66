/*
 * hold_release.h - how a session that evicts gets a holding job to let go of the relation
 *
 * The kernel does not evict mapped pages.  So the session leaves the relation's identity in the
 * lock file, and wakes the worker of the job, which unmaps the relation's files and leaves them
 * alone from then on.
 */
#ifndef RESIDENCY_HOLD_RELEASE_H
#define RESIDENCY_HOLD_RELEASE_H

#include "postgres.h"

#include "segments.h"

/*
 * In a session: returns true when no job holds the relation, of which `id` is any file, nor will
 * hold it; false, with a WARNING, when the worker does not answer, which it then will not for
 * another relation either.
 */
extern bool release_relation(const SegmentId *id);

/* In the worker: forgets requests to former jobs; `lock` is the descriptor of LOCK_RESTORE. */
extern void release_begin(int lock);

/* Whether there is a request, its number, and its relation: tablespace, database, relfilenumber. */
extern bool release_asked(int lock, int32 *request, SegmentId *id);

/* Answers it. */
extern void release_answer(int lock, int32 request);

#endif
