/*
 * snapshot_take.h - snapshots: taking and dropping them
 *
 * Neither needs a session, a database or a transaction.
 *
 * Generations of a name are protected: one that holds less than half of what the fullest earlier
 * one has of the relations that still exist is "thin".  It is kept, but it is not what the bare
 * name means, and it does not make a fuller one go.  One that was forced is the new measure.
 */
#ifndef RESIDENCY_SNAPSHOT_TAKE_H
#define RESIDENCY_SNAPSHOT_TAKE_H

#include "postgres.h"

#include "generations.h"

/*
 * Takes a snapshot of the whole cluster as the next generation of the name, with its relations'
 * names, and removes what is beyond `keep` generations.
 */
extern Generation snapshot_take(const char *name, int keep, bool force);

/* Removes all generations of a name, or one; how many there were. */
extern int	snapshot_drop(const char *name);

#endif
