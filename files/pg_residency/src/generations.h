/*
 * generations.h - the generations of snapshots: their names, numbers and files
 */
#ifndef RESIDENCY_GENERATIONS_H
#define RESIDENCY_GENERATIONS_H

#include "postgres.h"

#include "snapshot_file.h"

typedef struct Generation
{
	char		name[SF_NAME_BYTES];
	int			generation;		/* 0: the one that the bare name means */
} Generation;

/* name@generation */
#define LABEL_BYTES (SF_NAME_BYTES + 16)

/* Splits "name" or "name@3"; any other text is an error. */
extern void parse_name(const char *text, Generation *g, bool generation_allowed);

/* Every snapshot here, by name and generation. */
extern Generation *list_generations(int *count);

/* The number of the next one; none is ever used again. */
extern int	next_generation(const char *name, const Generation *list, int count);

/* Remembers the number of a generation that is about to be dropped. */
extern void remember_dropped(const Generation *g);

/* Removes the file and its relations' names; false when it was not there. */
extern bool generation_remove(const Generation *g);

/* Removes names whose snapshot is not there: their writer was killed between the two. */
extern void remove_orphaned_names(void);

/* The paths of the file, and of the one with its relations' names; palloc'd. */
extern char *snapshot_path(const Generation *g);
extern char *names_path(const Generation *g);

/* The error for a name that there is no snapshot of. */
extern void report_unknown(const char *name) __attribute__((noreturn));

#endif
