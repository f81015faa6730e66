/*
 * buffer_worker.h - brings the shared buffers of one database back, once its blocks are in the page
 * cache
 */
#ifndef RESIDENCY_BUFFER_WORKER_H
#define RESIDENCY_BUFFER_WORKER_H

#include "postgres.h"

/*
 * Starts the worker of a job for one database, and waits for it; `with_shared`: the shared catalogs
 * too.  `wait` as in struct pc_loader: when it returns true the worker is ended.  A template, of
 * which CREATE DATABASE wants to be the only user, is left alone.  What went wrong, or NULL.
 */
extern const char *buffer_worker_run(int job, Oid database, bool with_shared,
									 bool (*wait) (void *arg, long microseconds), void *arg,
									 bool *is_template);

/* a database for those who only want the shared catalogs */
extern Oid	buffer_worker_default_database(void);

#endif
