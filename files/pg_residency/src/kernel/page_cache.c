/*
 * page_cache.c - the residency of a file's blocks in the operating system's page cache
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "page_cache.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * libc and kernel headers of supported distributions may lack it; the number is the same on every
 * architecture
 */
#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define WINDOW_BYTES ((uint64_t) 64 * 1024 * 1024)
#define SMALLEST_PAGE 4096
#define SMALLEST_BLOCK 1024

size_t
pc_page_size(void)
{
	static size_t size = 0;

	if (size == 0)
		size = (size_t) sysconf(_SC_PAGESIZE);
	return size;
}

uint32_t
pc_next(const uint8_t *map, uint32_t nblocks, uint32_t from, bool value)
{
	uint64_t	word;
	uint32_t	i = from;

	/* word by word, */
	for (; i < nblocks / 64 * 64; i = (i | 63) + 1)
	{
		memcpy(&word, map + i / 64 * 8, sizeof(word));
		word = (value ? le64toh(word) : ~le64toh(word)) >> i % 64;
		if (word != 0)
			return i + (uint32_t) __builtin_ctzll(word);
	}
	/* and the rest bit by bit */
	while (i < nblocks && pc_bit(map, i) != value)
		i++;
	return i < nblocks ? i : nblocks;
}

void
pc_set_run(uint8_t *map, uint32_t from, uint32_t to)
{
	while (from < to && from % 8 != 0)
		pc_set(map, from++);
	if (from < to)
		memset(map + from / 8, 0xff, (to - from) / 8);
	for (from += (to - from) / 8 * 8; from < to; from++)
		pc_set(map, from);
}

uint64_t
pc_popcount(const uint8_t *map, uint32_t nblocks)
{
	uint64_t	n = 0;
	uint32_t	whole = nblocks / 8;
	uint32_t	words = nblocks / 64;

	for (uint32_t i = 0; i < words; i++)
	{
		uint64_t	word;

		memcpy(&word, map + (size_t) i * 8, sizeof(word));
		n += (uint64_t) __builtin_popcountll(word);
	}
	for (uint32_t i = words * 8; i < whole; i++)
		n += (uint64_t) __builtin_popcount(map[i]);
	for (uint32_t i = whole * 8; i < nblocks; i++)
		n += pc_bit(map, i);
	return n;
}

int
pc_cachestat(int fd, uint64_t offset, uint64_t length, struct pc_stat *st)
{
	struct
	{
		uint64_t	off;
		uint64_t	len;
	}			range = {offset, length};
	struct
	{
		uint64_t	cache;
		uint64_t	dirty;
		uint64_t	writeback;
		uint64_t	evicted;
		uint64_t	recently_evicted;
	}			stat = {0};

	if (syscall(SYS_cachestat, fd, &range, &stat, 0u) != 0)
		return -errno;
	st->cached = stat.cache;
	st->dirty = stat.dirty;
	st->writeback = stat.writeback;
	return 0;
}

bool
pc_cachestat_is_honest(int fd)
{
	struct pc_stat st;
	char		byte;

	if (pread(fd, &byte, 1, 0) != 1)
		return false;
	return pc_cachestat(fd, 0, 1, &st) == 0 && st.cached > 0;
}

/*
 * mincore(2) returns the real residency only to the owner: can_do_mincore() of the kernel, since
 * 5.2
 */
static int
check_owner(int fd)
{
	struct stat st;
	uid_t		user;

	if (fstat(fd, &st) != 0)
		return -errno;
	user = geteuid();
	return (user == 0 || user == st.st_uid) ? 0 : -EPERM;
}

/*
 * combines eight bytes, each with one bit in its lowest place, in pairs: returns four bits, each
 * set when both bytes of a pair are
 */
static inline unsigned
pairs_of(const unsigned char *pages)
{
	uint64_t	p;

	memcpy(&p, pages, sizeof(p));
	p &= p >> 8;
	p &= UINT64_C(0x0001000100010001);
	/* shifts bit 16 i to bit 48 + i; no two bits of the product coincide */
	return (unsigned) ((p * UINT64_C(0x0001000200040008)) >> 48) & 0xf;
}

/* sets n bits of the map, from `first` on, by one byte for each page of these blocks */
static void
mark_blocks(uint8_t *map, uint32_t first, uint32_t n, uint32_t block_size,
			const unsigned char *pages)
{
	size_t		page = pc_page_size();
	uint32_t	i = 0;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	/* the usual case: eight blocks of two pages at a time */
	if (block_size == 2 * page && first % 8 == 0)
		for (; i + 8 <= n; i += 8)
			map[(first + i) >> 3] = (uint8_t) (pairs_of(pages + 2 * (size_t) i) |
											   pairs_of(pages + 2 * (size_t) i + 8) << 4);
#endif
	for (; i < n; i++)
	{
		size_t		from = (size_t) i * block_size / page;
		size_t		to = ((size_t) (i + 1) * block_size - 1) / page;
		bool		resident = true;

		for (size_t p = from; p <= to && resident; p++)
			resident = pages[p] & 1;
		if (resident)
			pc_set(map, first + i);
	}
}

static void
set_all(uint8_t *map, uint32_t n)
{
	memset(map, 0xff, n / 8);
	if (n % 8 != 0)
		map[n / 8] = (uint8_t) ((1u << n % 8) - 1);
}

/* sets n bits of the map, from `first` on, for the blocks of a file mapped at that address */
static int
map_pages(void *addr, uint32_t first, uint32_t n, uint32_t block_size, uint8_t *map)
{
	unsigned char pages[WINDOW_BYTES / SMALLEST_PAGE];

	if (mincore(addr, (size_t) n * block_size, pages) != 0)
		return -errno;
	mark_blocks(map, first, n, block_size, pages);
	return 0;
}

/* maps n blocks from `first` on by mincore(2), into a map that begins with `first` */
static int
map_window(int fd, uint32_t first, uint32_t n, uint32_t block_size, uint8_t *map)
{
	size_t		length = (size_t) n * block_size;
	void	   *addr = mmap(NULL, length, PROT_NONE, MAP_SHARED, fd, (off_t) first * block_size);
	int			rc;

	if (addr == MAP_FAILED)
		return -errno;
	memset(map, 0, pc_map_bytes(n));
	rc = map_pages(addr, 0, n, block_size, map);
	munmap(addr, length);
	return rc;
}

/* maps one window by cachestat(2); false when its counts do not determine the map */
static bool
ask_cachestat(int fd, uint32_t first, uint32_t n, uint32_t block_size,
			  enum pc_trust trust, uint8_t *map)
{
	uint64_t	length = (uint64_t) n * block_size;
	struct pc_stat st;

	if (trust == PC_MINCORE || pc_cachestat(fd, (uint64_t) first * block_size, length, &st) != 0)
		return false;
	if (st.cached == 0)
		memset(map, 0, pc_map_bytes(n));
	else if (trust == PC_CACHESTAT && st.cached >= (length + pc_page_size() - 1) / pc_page_size())
		set_all(map, n);
	else
		return false;
	return true;
}

/*
 * Works window by window. cachestat(2) costs almost nothing where a window is cold or consists of
 * large folios, and a quarter of mincore(2) where it is full of small ones.  For a partly cached
 * window it is wasted.  So after such a window it is omitted until mincore(2) finds a window nearly
 * full or cold.
 */
static int
look(int fd, uint32_t nblocks, uint32_t block_size, enum pc_trust trust, uint8_t *map,
	 uint64_t *resident)
{
	uint8_t		one[WINDOW_BYTES / SMALLEST_BLOCK / 8] = {0};
	/* a multiple of 8, so that each window begins a byte of the map */
	uint32_t	window = (uint32_t) (WINDOW_BYTES / block_size / 8) * 8;
	bool		partly = false;
	bool		checked = false;
	int			rc = 0;

	*resident = 0;
	for (uint32_t first = 0; first < nblocks && rc == 0; first += window)
	{
		uint32_t	n = nblocks - first < window ? nblocks - first : window;
		uint8_t    *here = map ? map + first / 8 : one;
		uint64_t	found;

		if (partly || !ask_cachestat(fd, first, n, block_size, trust, here))
		{
			if (!checked && (rc = check_owner(fd)) != 0)
				break;
			checked = true;
			rc = map_window(fd, first, n, block_size, here);
		}
		found = pc_popcount(here, n);
		partly = found > n / 8 && (found < n - n / 8 || trust != PC_CACHESTAT);
		*resident += found;
	}
	return rc;
}

int
pc_survey(int fd, uint32_t nblocks, uint32_t block_size, enum pc_trust trust, uint8_t *map,
		  uint64_t *resident)
{
	memset(map, 0, pc_map_bytes(nblocks));
	return look(fd, nblocks, block_size, trust, map, resident);
}

/* the end of a run of set bits, and of others that begin at most `gap` bits after the one before */
static uint32_t
end_of_runs(const uint8_t *map, uint32_t nblocks, uint32_t from, uint32_t gap)
{
	uint32_t	end = pc_next(map, nblocks, from, false);
	uint32_t	next;

	while ((next = pc_next(map, nblocks, end, true)) < nblocks && next - end <= gap)
		end = pc_next(map, nblocks, next, false);
	return end;
}

int
pc_survey_runs(int fd, uint32_t nblocks, uint32_t block_size, const uint8_t *where, uint32_t gap,
			   uint8_t *map)
{
	/* whole pages */
	uint32_t	page_blocks = (uint32_t) pc_page_size() / block_size;
	uint32_t	aligned = page_blocks > 1 ? page_blocks : 1;
	uint32_t	window = (uint32_t) (WINDOW_BYTES / block_size) / aligned * aligned;
	size_t		length = (size_t) nblocks * block_size;
	unsigned char *file;
	int			rc = check_owner(fd);

	memset(map, 0, pc_map_bytes(nblocks));
	if (rc != 0 || nblocks == 0)
		return rc;
	file = mmap(NULL, length, PROT_NONE, MAP_SHARED, fd, 0);
	if (file == MAP_FAILED)
		return -errno;
	for (uint32_t from = pc_next(where, nblocks, 0, true); from < nblocks && rc == 0;)
	{
		/* a call costs as much as a look at the pages of about twelve blocks */
		uint32_t	last = end_of_runs(where, nblocks, from, gap + 12 * aligned);

		last = (last + aligned - 1) / aligned * aligned;
		if (last > nblocks)
			last = nblocks;
		for (uint32_t first = from / aligned * aligned; first < last && rc == 0; first += window)
			rc = map_pages(file + (size_t) first * block_size, first,
						   last - first < window ? last - first : window, block_size, map);
		from = pc_next(where, nblocks, last, true);
	}
	munmap(file, length);
	return rc;
}

int
pc_map(int fd, uint32_t nblocks, uint32_t block_size, uint8_t *map)
{
	uint64_t	resident;

	return pc_survey(fd, nblocks, block_size, PC_MINCORE, map, &resident);
}

int
pc_count(int fd, uint32_t nblocks, uint32_t block_size, bool use_cachestat, struct pc_count *count)
{
	struct pc_stat st;

	*count = (struct pc_count) {.blocks = nblocks, .dirty = nblocks == 0 ? 0 : -1};
	if (nblocks == 0)
		return 0;
	if (!use_cachestat || pc_cachestat(fd, 0, (uint64_t) nblocks * block_size, &st) != 0)
		return look(fd, nblocks, block_size, PC_MINCORE, NULL, &count->resident);
	/* the last page may extend beyond the last block */
	count->resident = st.cached * pc_page_size() / block_size;
	if (count->resident > nblocks)
		count->resident = nblocks;
	count->dirty =
		(int64_t) (((st.dirty + st.writeback) * pc_page_size() + block_size - 1) / block_size);
	return 0;
}

int
pc_evict(int fd)
{
	return -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

int
pc_evict_blocks(int fd, const uint8_t *map, uint32_t nblocks, uint32_t block_size)
{
	int			rc = 0;

	for (uint32_t from = pc_next(map, nblocks, 0, true); from < nblocks && rc == 0;)
	{
		uint32_t	to = pc_next(map, nblocks, from, false);

		rc = posix_fadvise(fd, (off_t) from * block_size, (off_t) (to - from) * block_size,
						   POSIX_FADV_DONTNEED);
		from = pc_next(map, nblocks, to, true);
	}
	return -rc;
}
