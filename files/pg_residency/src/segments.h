/*
 * segments.h - a relation's files: their paths, and a walk over those of the whole cluster
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

/* of a segment in a snapshot */
static inline SegmentId
segment_id_of(const struct sf_segment *s)
{
	SegmentId id = {s->tablespace, s->database, s->relfilenumber, (ForkNumber) s->fork,
					s->segment};

	return id;
}

/* writes the path below the data directory, MAXPGPATH bytes at most */
extern void segment_path(const SegmentId *id, char *path);

/*
 * Opens a segment's file with OpenTransientFile().  -1 when there is none; any other failure is an
 * error, for it must never pass for the end of a relation.  `blocks` is what the file holds now.
 */
extern int	segment_open(const SegmentId *id, char *path, uint32 *blocks);

/* what the file holds now, without opening it; false when there is none */
extern bool segment_blocks_now(const SegmentId *id, uint32 *blocks);

/* whether the relation has an init fork */
extern bool segment_is_unlogged(const SegmentId *id);

/* whether cachestat(2) can be believed of that file, which is open */
extern bool cachestat_is_honest_for(const SegmentId *id, int fd);

/*
 * Called with each segment file, open; `cachestat` says whether cachestat(2) can be believed
 * there, `unlogged` that the relation has an init fork.  Returns 0 or what the kernel layer
 * returned, a negative errno.
 */
typedef int (*SegmentVisitor) (const SegmentId *id, const char *path, int fd, uint32 blocks,
							   bool cachestat, bool unlogged, void *arg);

/*
 * Visits each segment file of the cluster, or of one database and the shared catalogs.  Temporary
 * relations are left out.  What is dropped during the walk is not there.  A file that the server
 * may not read (it is then nobody's relation) is left out with a WARNING.  Needs no transaction.
 */
extern void visit_segments(Oid database, SegmentVisitor visitor, void *arg);

/* rc is a negative errno of the kernel layer; `action` as in "could not look at file x" */
extern void report_kernel_error(int rc, const char *action, const char *path)
	__attribute__((noreturn));

#endif
