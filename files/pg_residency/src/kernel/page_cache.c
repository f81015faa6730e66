/*
 * page_cache.c - what the operating system's page cache holds of a file
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "page_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* libc and kernel headers of the distributions we build on do not have it yet; the number is the same everywhere */
#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define WINDOW_BYTES ((uint64_t) 64 * 1024 * 1024)
#define SMALLEST_PAGE 4096

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
	const uint8_t uniform = value ? 0x00 : 0xff;

	for (uint32_t i = from; i < nblocks;)
	{
		if ((i & 7) == 0 && map[i >> 3] == uniform)
			i += 8;
		else if (pc_bit(map, i) == value)
			return i;
		else
			i++;
	}
	return nblocks;
}

uint64_t
pc_popcount(const uint8_t *map, uint32_t nblocks)
{
	uint64_t	n = 0;
	uint32_t	whole = nblocks / 8;

	for (uint32_t i = 0; i < whole; i++)
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

/* mincore's answer is worth something only for the owner: the kernel's rule, can_do_mincore(), since 5.2 */
static int
check_owner(int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return -errno;
	return (geteuid() == 0 || geteuid() == st.st_uid) ? 0 : -EPERM;
}

/* marks the blocks first .. first + n - 1, whose first byte is the mapping's */
static void
mark_blocks(uint8_t *map, uint32_t first, uint32_t n, uint32_t block_size, const unsigned char *pages)
{
	size_t		page = pc_page_size();

	for (uint32_t i = 0; i < n; i++)
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

int
pc_map(int fd, uint32_t nblocks, uint32_t block_size, uint8_t *map)
{
	unsigned char pages[WINDOW_BYTES / SMALLEST_PAGE];
	uint32_t	window = (uint32_t) (WINDOW_BYTES / block_size);
	int			rc = check_owner(fd);

	memset(map, 0, pc_map_bytes(nblocks));
	if (rc != 0)
		return rc;
	for (uint32_t first = 0; first < nblocks; first += window)
	{
		uint32_t	n = nblocks - first < window ? nblocks - first : window;
		size_t		length = (size_t) n * block_size;
		void	   *addr = mmap(NULL, length, PROT_NONE, MAP_SHARED, fd, (off_t) first * block_size);

		if (addr == MAP_FAILED)
			return -errno;
		if (mincore(addr, length, pages) != 0)
			rc = -errno;
		munmap(addr, length);
		if (rc != 0)
			return rc;
		mark_blocks(map, first, n, block_size, pages);
	}
	return 0;
}

int
pc_count(int fd, uint32_t nblocks, uint32_t block_size, bool use_cachestat, struct pc_count *count)
{
	uint64_t	length = (uint64_t) nblocks * block_size;
	uint64_t	pages = (length + pc_page_size() - 1) / pc_page_size();
	uint8_t		map[WINDOW_BYTES / SMALLEST_PAGE];
	struct pc_stat st;
	int			rc;

	*count = (struct pc_count) {.blocks = nblocks, .dirty = -1};
	if (nblocks == 0)
	{
		count->dirty = 0;
		return 0;
	}
	if (use_cachestat && pc_cachestat(fd, 0, length, &st) == 0)
	{
		count->dirty = (int64_t) (((st.dirty + st.writeback) * pc_page_size() + block_size - 1) / block_size);
		if (st.cached == 0)
			return 0;
		if (st.cached >= pages)
		{
			count->resident = nblocks;
			return 0;
		}
	}
	/* partly cached, or nobody to ask: the map; a relation's segment has 131,072 blocks at most */
	if (pc_map_bytes(nblocks) > sizeof(map))
		return -EFBIG;
	if ((rc = pc_map(fd, nblocks, block_size, map)) != 0)
		return rc;
	count->resident = pc_popcount(map, nblocks);
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

		rc = posix_fadvise(fd, (off_t) from * block_size, (off_t) (to - from) * block_size, POSIX_FADV_DONTNEED);
		from = pc_next(map, nblocks, to, true);
	}
	return -rc;
}
