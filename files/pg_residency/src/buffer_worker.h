/*
 * buffer_worker.h - refills the shared buffers of one database from the page cache
 */
#ifndef RESIDENCY_BUFFER_WORKER_H
#define RESIDENCY_BUFFER_WORKER_H

#include "postgres.h"

/* the reason when no slot became free */
#define NO_SLOT "out of background worker slots"

/*
 * Starts the worker of a job for one database, and waits for it; `with_shared`: also for the shared
 * catalogs.  It waits up to `patience` milliseconds for a background worker slot.  `wait` as in
 * struct pc_loader: when it returns true, the worker is terminated.  A template database is
 * skipped, because CREATE DATABASE requires that it has no other user.  Returns the reason of a
 * failure, or NULL.
 */
extern const char *buffer_worker_run(int job, Oid database, bool with_shared, int patience,
									 bool (*wait) (void *arg, long microseconds), void *arg,
									 bool *is_template);

/* the database to connect to when only the shared catalogs are restored */
extern Oid	buffer_worker_default_database(void);

#endif
