/*
 * relations.h - a relation by its OID: under a lock, or an error
 *
 * An OID that a caller brings may be dropped at any moment until a lock is held.  So nothing of a
 * relation is looked at before it has been opened here.
 */
#ifndef RESIDENCY_RELATIONS_H
#define RESIDENCY_RELATIONS_H

#include "pg_residency.h"

#include "nodes/pg_list.h"
#include "utils/relcache.h"

#include "segments.h"

/*
 * Opens a relation of any kind under AccessShareLock.  One that does not exist, or was dropped
 * while its lock was waited for, is an error.  The caller closes it, and decides how long it stays
 * locked.
 */
extern Relation open_relation(Oid relid);

/* The same for who may read it; of an index, its table. */
extern Relation open_readable_relation(Oid relid);

/*
 * Opens a partition, an index or the TOAST table of a relation that was opened before: NULL when it
 * was dropped meanwhile, which is no error.
 */
extern Relation open_part(Oid relid);

/*
 * An error for a relation that has no files of its own, a view for one, but for a partitioned one
 * where its partitions do as well.
 */
extern void check_has_files(Relation rel, bool partitions);

/* The OIDs of a relation and its partitions, which are locked as it is. */
extern List *with_partitions(Relation rel);

/* a fork of a relation that has files */
typedef struct RelationFork
{
	SegmentId	id;				/* a temporary relation's file has another name */
	char	   *path;			/* of segment 0 */
} RelationFork;

/*
 * That fork of the relation, or of each of its partitions; if one_file, of no partitioned one.  For
 * who may read it, and locked to the end of the transaction, as by every reader: these files stay
 * the relation's.
 */
extern List *relation_forks(Oid relid, ForkNumber fork, bool one_file);

#endif
