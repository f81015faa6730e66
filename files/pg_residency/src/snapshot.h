/*
 * snapshot.h - finds and reads snapshots
 *
 * A snapshot is a file pg_residency/<name>@<generation>.snapshot in the data directory, with its
 * names file beside it.  Nothing here needs a session, a database or a transaction.
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
	bool		damaged;		/* the header is invalid */
	/* the file could not be read: neither header nor data are valid */
	bool		unknown;
} ResidencySnapshot;

/*
 * The current generation, which the bare name means: the newest usable one that is not thin.  If
 * all usable ones are thin, the newest of them; if none is usable, the newest. 0 when there is no
 * snapshot of that name.
 */
extern int	current_generation(const char *name, const Generation *list, int count);

/* Reads and checks a snapshot; false when it does not exist.  Sets `problem`. */
extern bool snapshot_read(const Generation *g, ResidencySnapshot *snapshot);

/*
 * The snapshot that "name" or "name@3" means; raises an error when it does not exist or cannot be
 * used.
 */
extern ResidencySnapshot *snapshot_load(const char *name);

/* All segments of a snapshot; the first one has the number 1.  They point into its data. */
extern struct sf_segment *snapshot_segments(const ResidencySnapshot *snapshot);

#endif
