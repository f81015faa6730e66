/*
 * names_take.h - writes the names file of a snapshot that is being taken
 */
#ifndef RESIDENCY_NAMES_TAKE_H
#define RESIDENCY_NAMES_TAKE_H

#include "postgres.h"

#include "generations.h"

/* which databases are asked for the names of a snapshot's relations */
typedef enum NamesScope
{
	NAMES_ALL,
	NAMES_NEW,					/* those with a file that has no name in the earlier snapshot */
	NAMES_KNOWN					/* none */
} NamesScope;

/*
 * Writes the names file of the snapshot that this process is taking, beside its temporary file.
 * For a database that is not asked, or cannot be read now, copies the names of the earlier
 * snapshot, which may be NULL.  A process without a database has a worker ask; if that fails, as at
 * a shutdown, the names are those that were known.
 */
extern void names_take(const Generation *former, NamesScope scope);

#endif
