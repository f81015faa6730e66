/*
 * directory.h - pg_residency/ in the data directory: its locks, and reading and writing whole files
 */
#ifndef RESIDENCY_DIRECTORY_H
#define RESIDENCY_DIRECTORY_H

#include "postgres.h"

/* relative to the data directory, which is the working directory of a server process */
#define RESIDENCY_DIR "pg_residency"

/* base backups skip names with this prefix, in any directory */
#define RESIDENCY_TEMP_PREFIX RESIDENCY_DIR "/pgsql_tmp"

/*
 * Places of the lock file, each with a number, its tag.  Those named LOCK_ are locked.  The kernel
 * binds a lock to an open file, so it ends with the process, however that ends.  Those named
 * MESSAGE_ are locked by nobody: in them the holder of LOCK_RELEASE asks a hold to release a
 * relation, and the hold's worker answers.
 */
typedef enum ResidencyPlace
{
	LOCK_RESTORE,				/* while a job runs; the tag is its number */
	LOCK_START,					/* while a job is started; the tag is its number, 0 at first */
	LOCK_SNAPSHOT,				/* while the directory's snapshots change */
	LOCK_NAMES,					/* while relation names are collected; taken after the others */
	LAST_JOB,					/* the tag is the number of the last job */
	LOCK_RELEASE,				/* while a session, the tag, waits for the release of a relation */
	/* the relation, and the numbers of the last request and answer */
	MESSAGE_TABLESPACE,
	MESSAGE_DATABASE,
	MESSAGE_RELATION,
	MESSAGE_REQUEST,
	MESSAGE_ANSWER
} ResidencyPlace;

/*
 * Takes a lock and writes its tag.  Returns the descriptor, which holds the lock until
 * residency_unlock() or the end of the process; -1 when another process holds the lock for
 * `patience` milliseconds.
 */
extern int	residency_lock(ResidencyPlace which, int32 tag, int patience);
extern void residency_unlock(int lock);

/* whether a process holds the lock with that tag */
extern bool residency_is_locked(ResidencyPlace which, int32 tag);

/*
 * Read and write the tag of any place; `lock` is the descriptor of a lock that the caller holds.  A
 * tag that was never written is 0.
 */
extern int32 residency_tag(int lock, ResidencyPlace which);
extern void residency_set_tag(int lock, ResidencyPlace which, int32 tag);

/* The same without an error: false, with errno set, when the write fails. */
extern bool residency_try_set_tag(int lock, ResidencyPlace which, int32 tag);

/* The same for n tags, beginning with `first`, at once. */
extern void residency_get_tags(int lock, ResidencyPlace first, int32 *tags, int n);
extern void residency_set_tags(int lock, ResidencyPlace first, const int32 *tags, int n);

/* The whole file in palloc'd memory, with a 0 byte appended; NULL when the file does not exist. */
extern char *read_whole_file(const char *path, size_t *size);

/*
 * The same without an error: for any other failure, returns NULL and sets `error` to the errno;
 * otherwise `error` is 0.
 */
extern char *try_read_whole_file(const char *path, size_t *size, int *error);

/* Writes a file under a temporary name, syncs and renames it. */
extern void write_whole_file(const char *temporary, const char *path, const char *data,
							 size_t size);

/*
 * The same, but the file is not synced.  It is no error when a process that waited for it has
 * stopped waiting and removed it; who renames it later syncs it then.
 */
extern void write_answer(const char *temporary, const char *path, const char *data,
						 size_t size);

/* Removes a file; false when it does not exist. */
extern bool remove_file(const char *path);

/* Removes the files whose names begin with the prefix. */
extern void remove_files_beginning(const char *prefix);

/* "could not write file x", also for a short write */
extern void report_write_error(const char *path) __attribute__((noreturn));

#endif
