/*
 * page_cache.h - the residency of a file's blocks in the operating system's page cache
 *
 * No PostgreSQL types here: this layer is tested and fuzzed separately.
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

/*
 * counts of cachestat(2), in pages; DONTNEED does not evict dirty pages and those under writeback
 */
struct pc_stat
{
	uint64_t	cached;
	uint64_t	dirty;
	uint64_t	writeback;
};

/*
 * counts of one file, in blocks; dirty includes blocks under writeback, and is -1 where the kernel
 * does not report it
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

/* the number of bits that are set */
extern uint64_t pc_popcount(const uint8_t *map, uint32_t nblocks);

/* bytes */
extern size_t pc_page_size(void);

/*
 * -ENOSYS, -EPERM or -EOPNOTSUPP where it is not available; length 0 means to the end of the file
 */
extern int	pc_cachestat(int fd, uint64_t offset, uint64_t length, struct pc_stat *st);

/*
 * Whether cachestat(2) is reliable on the file system of fd.  The file must have at least one byte
 * and belong to no relation, because the first byte is read: after that a reliable count is not 0.
 * (On overlayfs it is always 0.)
 */
extern bool pc_cachestat_is_honest(int fd);

/*
 * Maps which of the first nblocks blocks are resident, by windows of 64 MiB. -EPERM when the caller
 * neither owns the file nor is root: mincore(2) then returns every page as resident instead of
 * failing.
 */
extern int	pc_map(int fd, uint32_t nblocks, uint32_t block_size, uint8_t *map);

/* which counts of a window of a file make mincore(2) unnecessary */
enum pc_trust
{
	PC_MINCORE,					/* none */
	/* cachestat(2), if it finds no page: pages it counts may still be in flight */
	PC_CACHESTAT_COLD,
	PC_CACHESTAT				/* cachestat(2), if it finds no page or all pages */
};

/*
 * Maps as pc_map() does, and counts; other values than PC_MINCORE require pc_cachestat_is_honest().
 */
extern int pc_survey(int fd, uint32_t nblocks, uint32_t block_size, enum pc_trust trust,
					 uint8_t *map, uint64_t *resident);

/*
 * Maps as pc_map() does, but looks only at the blocks set in `where`, at others that are at most
 * `gap` blocks from these, and at some beside them: for few blocks of a large file, of which
 * pc_map() would look at each page.
 */
extern int pc_survey_runs(int fd, uint32_t nblocks, uint32_t block_size, const uint8_t *where,
						  uint32_t gap, uint8_t *map);

/*
 * Counts; use_cachestat is the answer of pc_cachestat_is_honest() for this file system.  With it,
 * the count is that of the pages, converted to blocks: it includes pages that are still being read,
 * and two halves of different blocks are one.  cachestat(2) needs a quarter to a third of the time
 * of mincore(2), and next to none for large folios.
 */
extern int pc_count(int fd, uint32_t nblocks, uint32_t block_size, bool use_cachestat,
					struct pc_count *count);

/*
 * Advises the kernel to evict the whole file, because it does not evict a folio that the range
 * covers only partly.  Dirty and mapped pages remain, so count afterwards.  Never fsync here: it
 * could swallow a write error that PostgreSQL's checkpointer must see.
 */
extern int	pc_evict(int fd);

/*
 * The same for the blocks of the map, run by run; a block in a folio with other blocks may remain.
 */
extern int	pc_evict_blocks(int fd, const uint8_t *map, uint32_t nblocks, uint32_t block_size);

#endif
