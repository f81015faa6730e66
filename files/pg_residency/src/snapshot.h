/*
 * snapshot.h - snapshots: taking, finding, reading and dropping them
 *
 * A snapshot is a file pg_residency/<name>@<generation>.snapshot in the data directory, its
 * relations' names beside it.  Nothing here needs a session, a database or a transaction.
 *
 * Generations of a name are protected: one that holds less than half of what the fullest earlier
 * one has of the relations that still exist is "thin".  It is kept, but it is not what the bare
 * name means, and it does not make a fuller one go.  One that was forced is the new measure.
 */
#ifndef RESIDENCY_SNAPSHOT_H
#define RESIDENCY_SNAPSHOT_H

#include "postgres.h"

#include "generations.h"

typedef struct ResidencySnapshot
{
	Generation	id;
	char		label[LABEL_BYTES];
	struct sf_header header;
	uint8	   *data;
	size_t		size;			/* bytes */
	const char *problem;		/* why it cannot be used here; NULL when it can */
	bool		damaged;		/* then the header is not to be read */
} ResidencySnapshot;

/*
 * Takes a snapshot of the whole cluster as the next generation of the name, with its relations'
 * names, and removes what is beyond `keep` generations.
 */
extern Generation snapshot_take(const char *name, int keep, bool force);

/* Reads one, checked; false when it is not there.  It may have a problem. */
extern bool snapshot_read(const Generation *g, ResidencySnapshot *snapshot);

/* The one that "name" or "name@3" means; an error when there is none that can be used here. */
extern ResidencySnapshot *snapshot_load(const char *name);

/* All of its segments, the first being number 1; they point into its data. */
extern struct sf_segment *snapshot_segments(const ResidencySnapshot *snapshot);

/* Removes all generations of a name, or one; how many there were. */
extern int	snapshot_drop(const char *name);

#endif
