/*
 * names_gather.h - collects the names of relations from the databases
 *
 * Only a process connected to a database can read its catalogs, so a short worker runs in each
 * other database than the caller's, a few at a time, on a standby too.  A database that cannot be
 * read is listed with its problem.
 */
#ifndef RESIDENCY_NAMES_GATHER_H
#define RESIDENCY_NAMES_GATHER_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "postmaster/bgworker.h"
#include "utils/hsearch.h"

#include "names.h"

/* milliseconds to wait for a background worker slot */
#define NAMES_SLOT_PATIENCE 5000

/* the names to collect, and those collected so far */
typedef struct Gathering
{
	HTAB	   *files;			/* FileOf: only the names of these; NULL: all */
	const Names *former;		/* for databases that cannot be read now, or NULL */
	StringInfoData body;		/* of a names file */
} Gathering;

/* a file of a relation; those in two tablespaces with the same number are one */
typedef struct FileOf
{
	Oid			database;
	RelFileNumber relfilenumber;
	bool		named;			/* by the earlier names file; not part of the key */
} FileOf;

/*
 * Collects the names of these databases (InvalidOid: the shared catalogs).  Only one process of a
 * cluster at a time occupies background worker slots for this; the others wait.
 */
extern void names_gather(Gathering *g, const List *databases);

/* Starts a worker with that argument; NULL when no slot became free within `patience`. */
extern BackgroundWorkerHandle *names_start_worker(const char *function, const char *what,
												  const void *task, size_t size, int patience);

/* The current names of these databases (InvalidOid: the shared catalogs). */
extern Names *names_now(const List *databases);

#endif
