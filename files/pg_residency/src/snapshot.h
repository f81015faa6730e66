/*
 * snapshot.h - snapshots: finding and reading them
 *
 * A snapshot is a file pg_residency/<name>@<generation>.snapshot in the data directory, its
 * relations' names beside it.  Nothing here needs a session, a database or a transaction.
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
	bool		damaged;		/* then the header is not to be read, */
	/* nor when the file could not be, and then there is no data either */
	bool		unknown;
} ResidencySnapshot;

/*
 * The generation that is meant by its bare name: the newest usable one that is not thin.  Where
 * there is none such it is the newest usable one, or the newest; 0 when there is no such name.
 */
extern int	current_generation(const char *name, const Generation *list, int count);

/* Reads one, checked; false when it is not there.  It may have a problem. */
extern bool snapshot_read(const Generation *g, ResidencySnapshot *snapshot);

/* The one that "name" or "name@3" means; an error when there is none that can be used here. */
extern ResidencySnapshot *snapshot_load(const char *name);

/* All of its segments, the first being number 1; they point into its data. */
extern struct sf_segment *snapshot_segments(const ResidencySnapshot *snapshot);

#endif
