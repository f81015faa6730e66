/*
 * names_gather.h - asks the databases what their relations are called
 *
 * Only a process that is connected to a database can tell, so a short worker goes to each database
 * in turn, on a standby too.  One that cannot be asked is among the names with its problem.
 */
#ifndef RESIDENCY_NAMES_GATHER_H
#define RESIDENCY_NAMES_GATHER_H

#include "postgres.h"

#include "names.h"

/*
 * Writes the names of the relations that the snapshot file of this process has segments of.  Of a
 * database that cannot be asked now, what the former file has, which may be NULL, is carried over.
 */
extern void names_take(const char *snapshot_path, const char *path, const char *former_path);

/* The names of today, of these databases (InvalidOid: the shared catalogs). */
extern Names *names_now(const Oid *databases, int count);

#endif
