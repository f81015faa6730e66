/*
 * relations.h - opens a relation by its OID, under a lock
 *
 * A relation whose OID comes from a caller may be dropped at any time until a lock is held.  So
 * nothing of a relation is read before it has been opened here.
 */
#ifndef RESIDENCY_RELATIONS_H
#define RESIDENCY_RELATIONS_H

#include "pg_residency.h"

#include "nodes/pg_list.h"
#include "utils/relcache.h"

#include "segments.h"

/*
 * Opens a relation of any kind under AccessShareLock.  Raises an error when it does not exist or
 * was dropped while the lock was awaited.  The caller closes it, and decides how long the lock
 * lasts.
 */
extern Relation open_relation(Oid relid);

/* The same, for a user with SELECT on the relation, or on the table of an index. */
extern Relation open_readable_relation(Oid relid);

/*
 * Opens a partition, an index or the TOAST table of an open relation; NULL when it has been dropped
 * meanwhile, which is no error.
 */
extern Relation open_part(Oid relid);

/*
 * Raises an error for a relation without files, for example a view.  A partitioned relation is
 * accepted when its partitions can stand for it.
 */
extern void check_has_files(Relation rel, bool partitions);

/* The OIDs of a relation and its partitions, which are locked as well. */
extern List *with_partitions(Relation rel);

/*
 * The OIDs of these relations, their indexes, their TOAST tables and the indexes of those, which
 * are locked as well.  Those dropped meanwhile are left out.
 */
extern List *with_dependents(List *relids);

/* a fork of a relation with files */
typedef struct RelationFork
{
	SegmentId	id;				/* does not identify the file of a temporary relation */
	char	   *path;			/* of segment 0 */
} RelationFork;

/*
 * That fork of the relation, or of each of its partitions; with one_file, a partitioned relation is
 * an error.  Requires SELECT.  The lock lasts until the end of the transaction, as for every
 * reader, so the files remain the relation's.
 */
extern List *relation_forks(Oid relid, ForkNumber fork, bool one_file);

#endif
