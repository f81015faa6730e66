/*
 * snapshot_take.h - takes and drops snapshots
 *
 * Neither needs a session, a database or a transaction.
 *
 * The generations of a name are protected.  A generation is "thin" when it holds less than half of
 * the existing blocks of the fullest earlier one.  It is kept, but the bare name does not mean it,
 * and no fuller generation is removed for it.  A forced generation is the new measure.
 */
#ifndef RESIDENCY_SNAPSHOT_TAKE_H
#define RESIDENCY_SNAPSHOT_TAKE_H

#include "postgres.h"

#include "names_take.h"

/*
 * Takes a snapshot of the whole cluster as the next generation of the name, with its relation
 * names, and removes generations beyond `keep`.  Returns the header of its file.
 */
extern struct sf_header snapshot_take(const char *name, int keep, bool force, NamesScope scope);

/* Removes all generations of a name, or one; returns how many it has removed. */
extern int	snapshot_drop(const char *name);

#endif
