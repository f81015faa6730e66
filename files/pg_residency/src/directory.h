/*
 * directory.h - pg_residency/ in the data directory: its locks, and its files, read and written
 * whole
 */
#ifndef RESIDENCY_DIRECTORY_H
#define RESIDENCY_DIRECTORY_H

#include "postgres.h"

/* below the data directory, which is where a server process's relative paths begin */
#define RESIDENCY_DIR "pg_residency"

/* base backups pass over names that begin like this, in any directory */
#define RESIDENCY_TEMP_PREFIX RESIDENCY_DIR "/pgsql_tmp"

/*
 * a lock is held by the kernel for an open file, so it ends with the process, whichever way that
 * ends
 */
typedef enum ResidencyLock
{
	LOCK_RESTORE,				/* while a job runs; the tag is its number */
	LOCK_START,					/* while a job is started; the tag is its number, 0 at first */
	LOCK_SNAPSHOT,				/* while the directory's snapshots change */
	LOCK_NAMES,					/* while databases are asked for names; taken last */
	LAST_JOB					/* no lock: the tag is the last number that a job was given */
} ResidencyLock;

/*
 * Takes a lock and notes the tag beside it.  The descriptor, which holds the lock until it is
 * closed or the process ends; -1 when another process has had it for that many milliseconds.
 */
extern int	residency_lock(ResidencyLock which, int32 tag, int patience);

/* whether a process has the lock with that tag */
extern bool residency_is_locked(ResidencyLock which, int32 tag);

/*
 * Read and write the tag of any lock; `lock` is the descriptor of one that the caller holds.  A tag
 * that was never written is 0.
 */
extern int32 residency_tag(int lock, ResidencyLock which);
extern void residency_set_tag(int lock, ResidencyLock which, int32 tag);

/* The whole file in palloc'd memory, with a 0 byte behind it; NULL when it is not there. */
extern char *read_whole_file(const char *path, size_t *size);

/*
 * The same, but any other failure is left in `error`, an errno, and NULL returned; else that is 0.
 */
extern char *try_read_whole_file(const char *path, size_t *size, int *error);

typedef void (*FileWriter) (const char *temporary, const char *path, const char *data,
							size_t size);

/*
 * Writes a file under a temporary name, syncs it and gives it its name.
 */
extern void write_whole_file(const char *temporary, const char *path, const char *data,
							 size_t size);

/*
 * The same for a process that waits for it now: it is not synced, and no error when that process
 * waits no more and has removed it.
 */
extern void write_answer(const char *temporary, const char *path, const char *data,
						 size_t size);

/* Removes a file; false when there was none. */
extern bool remove_file(const char *path);

/* Removes the files whose names begin like that. */
extern void remove_files_beginning(const char *prefix);

/* "could not write file x", also for a write that was cut short */
extern void report_write_error(const char *path) __attribute__((noreturn));

#endif
