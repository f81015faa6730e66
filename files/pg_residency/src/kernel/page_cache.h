/*
 * page_cache.h - what the operating system's page cache holds of a file
 *
 * No PostgreSQL types here: this layer is tested and fuzzed alone.
 *
 * A block is the caller's unit (PostgreSQL's 8 KiB); a page is the kernel's (pc_page_size() bytes).
 * A block is resident when every page it touches is.  Block maps are arrays of bits, least
 * significant bit first.
 *
 * Functions return 0 or a negative errno, unless said otherwise.
 */
#ifndef PC_PAGE_CACHE_H
#define PC_PAGE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cachestat(2), in pages; dirty and writeback are what DONTNEED will leave alone */
struct pc_stat
{
	uint64_t	cached;
	uint64_t	dirty;
	uint64_t	writeback;
};

/*
 * one file looked at, in blocks; dirty is what is not yet written, or on its way, and -1 where the
 * kernel cannot tell
 */
struct pc_count
{
	uint64_t	blocks;
	uint64_t	resident;
	int64_t		dirty;
};

static inline bool
pc_bit(const uint8_t *map, uint32_t i)
{
	return (map[i >> 3] >> (i & 7)) & 1;
}

static inline void
pc_set(uint8_t *map, uint32_t i)
{
	map[i >> 3] |= (uint8_t) (1u << (i & 7));
}

static inline void
pc_clear(uint8_t *map, uint32_t i)
{
	map[i >> 3] &= (uint8_t) ~(1u << (i & 7));
}

/* sets the bits from .. to - 1 */
extern void pc_set_run(uint8_t *map, uint32_t from, uint32_t to);

static inline size_t
pc_map_bytes(uint32_t nblocks)
{
	return ((size_t) nblocks + 7) / 8;
}

/* the next bit at or after `from` that is `value`; nblocks when there is none */
extern uint32_t pc_next(const uint8_t *map, uint32_t nblocks, uint32_t from, bool value);

/* how many bits are set */
extern uint64_t pc_popcount(const uint8_t *map, uint32_t nblocks);

/* bytes */
extern size_t pc_page_size(void);

/* -ENOSYS, -EPERM, -EOPNOTSUPP where it cannot be had; length 0 means to the end of the file */
extern int	pc_cachestat(int fd, uint64_t offset, uint64_t length, struct pc_stat *st);

/*
 * Whether cachestat(2) tells the truth about files of the file system that fd is on.  It must be
 * asked of a file of at least one byte that is no relation's, because one byte of it is read first:
 * after that an honest answer is not 0.  (On overlayfs it is always 0.)
 */
extern bool pc_cachestat_is_honest(int fd);

/*
 * Maps which of the first nblocks blocks are resident, through windows of 64 MiB.  -EPERM when the
 * caller neither owns the file nor is root: mincore(2) then calls every page resident instead of
 * failing.
 */
extern int	pc_map(int fd, uint32_t nblocks, uint32_t block_size, uint8_t *map);

/* what is asked about a window of a file before its pages are looked at one by one */
enum pc_trust
{
	PC_MINCORE,					/* nothing */
	/* cachestat(2), believed when it finds nothing: what it counts may still be on its way */
	PC_CACHESTAT_COLD,
	PC_CACHESTAT				/* cachestat(2), believed when it finds nothing or everything */
};

/*
 * Maps as pc_map() does, and counts; anything but PC_MINCORE only where pc_cachestat_is_honest().
 */
extern int pc_survey(int fd, uint32_t nblocks, uint32_t block_size, enum pc_trust trust,
					 uint8_t *map, uint64_t *resident);

/* Counts; use_cachestat is the answer of pc_cachestat_is_honest() for this file system. */
extern int pc_count(int fd, uint32_t nblocks, uint32_t block_size, bool use_cachestat,
					struct pc_count *count);

/*
 * Asks the kernel to drop the whole file.  Whole, because a folio that is only partly covered
 * stays; what is dirty or mapped stays as well, so count afterwards.  Nothing is synced: a sync
 * here could swallow a write error that PostgreSQL's checkpointer must see.
 */
extern int	pc_evict(int fd);

/*
 * The same for the blocks of the map, run by run; what lies in a folio with others of the file may
 * stay.
 */
extern int	pc_evict_blocks(int fd, const uint8_t *map, uint32_t nblocks, uint32_t block_size);

#endif
