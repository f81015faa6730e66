/*
 * segments.h - a relation's files: their paths, and a scan of those of the whole cluster
 *
 * A segment is one file of one fork of one relation.  Counts are in blocks of BLCKSZ bytes.
 */
#ifndef RESIDENCY_SEGMENTS_H
#define RESIDENCY_SEGMENTS_H

#include "postgres.h"

#include "common/relpath.h"

#include "compat.h"
#include "snapshot_file.h"

typedef struct SegmentId
{
	Oid			tablespace;
	Oid			database;		/* InvalidOid for shared catalogs */
	RelFileNumber relfilenumber;
	ForkNumber	fork;
	uint32		segment;
} SegmentId;

/* the identity of a segment in a snapshot */
static inline SegmentId
segment_id_of(const struct sf_segment *s)
{
	SegmentId id = {s->tablespace, s->database, s->relfilenumber, (ForkNumber) s->fork,
					s->segment};

	return id;
}

/* writes the path relative to the data directory, at most MAXPGPATH bytes */
extern void segment_path(const SegmentId *id, char *path);

/*
 * Opens a segment's file with OpenTransientFile(). -1 when it does not exist; any other failure is
 * an error, because it must not pass for the end of a relation.  `blocks` is the present size.
 */
extern int	segment_open(const SegmentId *id, char *path, uint32 *blocks);

/* The same without an error: -1 with errno set for any failure. */
extern int	segment_try_open(const SegmentId *id, char *path, uint32 *blocks);

/* the present size in blocks, without opening the file; false when the kernel returns none */
extern bool segment_blocks_now(const SegmentId *id, uint32 *blocks);

/*
 * Whether it is data of an unlogged relation on a standby, where that never exists.  While a
 * primary starts that was shut down, it exists.
 */
extern bool segment_is_of_primary(const SegmentId *id);

/* whether cachestat(2) is reliable for that open file */
extern bool cachestat_is_honest_for(const SegmentId *id, int fd);

/*
 * Called with each segment file, open; `cachestat`: cachestat(2) is reliable for it; `unlogged`:
 * the relation has an init fork.  Returns 0 or a negative errno of the kernel layer.
 */
typedef int (*SegmentVisitor) (const SegmentId *id, const char *path, int fd, uint32 blocks,
							   bool cachestat, bool unlogged, void *arg);

/*
 * Visits each segment file of the cluster, or of one database and the shared catalogs.  Temporary
 * relations and files dropped during the scan are skipped.  Files and directories that cannot be
 * opened are skipped with a WARNING, because they cannot belong to a relation of this server.
 * Needs no transaction.
 */
extern void visit_segments(Oid database, SegmentVisitor visitor, void *arg);

/*
 * raises an error; rc is a negative errno of the kernel layer, `message` has %s for the path and %m
 */
extern void report_kernel_error(int rc, const char *message, const char *path)
	__attribute__((noreturn));

#endif
