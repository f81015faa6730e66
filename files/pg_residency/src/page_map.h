/*
 * page_map.h - one file of a relation, page by page: maps which pages are resident, and loads or
 * evicts pages by a map
 *
 * The unit here is the kernel's page, not PostgreSQL's block: a map has one bit for each, first
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
	bool		cachestat;		/* is reliable for this file */
} CachedFile;

typedef struct DirtyPages
{
	int64		pages;
	int64		groups;
	bool		in_group;
} DirtyPages;

/*
 * False when the file does not exist.  Any other failure is an error, because it must not pass for
 * the relation's end.
 */
extern bool open_cached_file(const RelationFork *fork, uint32 segment, CachedFile *file);

/* The next of the fork's files, the first with segment 0; false after the last. */
extern bool next_cached_file(const RelationFork *fork, uint32 segment, CachedFile *file);

/* An empty map of the file. */
extern uint8 *new_page_map(const CachedFile *file);

/* Maps the resident pages. */
extern void look_at_pages(const CachedFile *file, uint8 *map);

extern int64 count_page_groups(const uint8 *map, uint32 pages);

/*
 * Counts the pages that are dirty or under writeback, and their groups; false where the kernel does
 * not report them.
 */
extern bool count_dirty_pages(const CachedFile *file, DirtyPages *dirty);

/*
 * Loads the wanted pages within the statement's budget, and returns how many arrived.  `before` has
 * the pages that were resident when the statement began with the file.  Pages in `keep`, which may
 * be NULL, are loaded again if they were evicted along with others.
 */
extern int64 load_pages(const CachedFile *file, const uint8 *want, const uint8 *before,
						const uint8 *keep);

/*
 * Evicts the pages, and sets `stay` to those that remain.  The kernel evicts dirty pages after it
 * has written them, which the advice itself starts.  Never fsync here: it could swallow a write
 * error that the checkpointer must see.
 */
extern void evict_pages(const CachedFile *file, const uint8 *drop, uint8 *stay);

/*
 * The kernel evicts a folio only as a whole, and a file read sequentially is cached in folios of up
 * to 2 MiB.  So this evicts all pages of the ranges of that size around the remaining pages.  The
 * caller loads the others again.
 */
extern void evict_whole_folios(const CachedFile *file, uint8 *stay);

#endif
