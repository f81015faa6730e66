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
	int			generation;		/* 0: the current generation */
} Generation;

/* name@generation */
#define LABEL_BYTES (SF_NAME_BYTES + 16)

/* Splits "name" or "name@3"; false for any other text. */
extern bool try_parse_name(const char *text, Generation *g, bool generation_allowed);

/* The same; any other text is an error. */
extern void parse_name(const char *text, Generation *g, bool generation_allowed);

/* Every snapshot in this data directory, by name and generation. */
extern Generation *list_generations(int *count);

/* Whether there is any generation of that name. */
extern bool has_generation(const char *name);

/* The number of the next generation; no number is used twice. */
extern int	next_generation(const char *name, const Generation *list, int count);

/* Remembers the number of a generation before it is dropped. */
extern void remember_dropped(const Generation *g);

/* Removes a generation's file and its names file; false when the snapshot does not exist. */
extern bool generation_remove(const Generation *g);

/* Removes names files without a snapshot: their writer was killed between the two renames. */
extern void remove_orphaned_names(void);

/* The paths of a snapshot and of its names file; palloc'd. */
extern char *snapshot_path(const Generation *g);
extern char *names_path(const Generation *g);

/* The same of the snapshot that a process is taking: complete, they are renamed to those above. */
extern char *temporary_snapshot_path(int pid);
extern char *temporary_names_path(int pid);

/* Raises the error for a name without a snapshot. */
extern void report_unknown(const char *name) __attribute__((noreturn));

#endif
