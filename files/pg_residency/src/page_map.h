/*
 * page_map.h - one file of a relation, page by page: what of it is resident, and bringing that to
 * what a map wants
 *
 * Here the unit is the kernel's page, not PostgreSQL's block: a map has one bit for each, first
 * page first.
 */
#ifndef RESIDENCY_PAGE_MAP_H
#define RESIDENCY_PAGE_MAP_H

#include "relations.h"

typedef struct CachedFile
{
	char		path[MAXPGPATH];
	int			fd;
	off_t		size;
	uint32		pages;
	bool		cachestat;		/* can be believed */
} CachedFile;

typedef struct DirtyPages
{
	int64		pages;
	int64		groups;
	bool		in_group;
} DirtyPages;

/*
 * False when there is no such file; any other failure is an error, for it must never pass for the
 * relation's end.
 */
extern bool open_cached_file(const RelationFork *fork, uint32 segment, CachedFile *file);

/* The next of the fork's files, the first with segment 0; false after the last. */
extern bool next_cached_file(const RelationFork *fork, uint32 segment, CachedFile *file);

/* A map of the file with nothing in it. */
extern uint8 *new_page_map(const CachedFile *file);

/* Which pages are resident. */
extern void look_at_pages(const CachedFile *file, uint8 *map);

extern int64 count_page_groups(const uint8 *map, uint32 pages);

/*
 * The pages not yet written, or on their way, and their groups; false where the kernel does not
 * tell.
 */
extern bool count_dirty_pages(const CachedFile *file, DirtyPages *dirty);

/*
 * Brings the wanted pages in, within the statement's budget, and returns how many came: `before` is
 * what was resident when the statement found the file.  What was resident then and is not wanted to
 * go (`keep`, or NULL) comes back as well.
 */
extern int64 load_pages(const CachedFile *file, const uint8 *want, const uint8 *before,
						const uint8 *keep);

/*
 * Takes the pages out and leaves in `stay` those that did not go.  Dirty ones go when they have
 * been written, which the advice itself starts; never a sync of ours, it could swallow a write
 * error that the checkpointer must see.
 */
extern void evict_pages(const CachedFile *file, const uint8 *drop, uint8 *stay);

/*
 * A page in a folio with others goes only with all of them, and a file read from its beginning to
 * its end is cached in folios of up to 2 MiB: so what is left around the pages that stayed goes
 * too.  The caller loads it again.
 */
extern void evict_whole_folios(const CachedFile *file, uint8 *stay);

#endif
