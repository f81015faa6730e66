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

#include "names.h"

/*
 * Writes the names of the relations in this process's snapshot file.  For a database that cannot be
 * read now, copies the names of the earlier file, which may be NULL.
 */
extern void names_take(const char *snapshot_path, const char *path, const char *former_path);

/* The current names of these databases (InvalidOid: the shared catalogs). */
extern Names *names_now(const Oid *databases, int count);

#endif
