/*
 * memory.h - how much memory a restore may fill
 */
#ifndef PC_MEMORY_H
#define PC_MEMORY_H

#include <stdint.h>

/*
 * The tightest of the host and of the caller's memory cgroup and its ancestors, in bytes:
 *
 *   available  memory that can be filled at most: MemAvailable of the host; of a cgroup its limit
 *              less its usage without file cache, which the kernel can replace
 *   dirty      file cache that the kernel cannot replace before it is written
 *   reserve    1/32 of the total, which is never filled
 *   hot        file cache on the kernel's active list, which the foreground uses; at most half of
 *              the available memory, because on a long-running server the active list has nearly
 *              all file cache, and such a server must be able to warm up too
 *   free       the unused part of the available memory
 *   others     file cache of other clusters to preserve: counted for the host only
 *   budget     available - dirty - reserve - hot - others; at least the free memory less the
 *              reserve
 *   mappable   file cache that one process may have mapped.  In a cgroup at its limit, the kernel
 *              ends the process that has most in memory, and counts mapped pages even where another
 *              cgroup was charged for them, which frees nothing.  So: what the cgroup itself was
 *              charged for and has mapped, and a quarter of its other file cache, which a process
 *              that exhausts the memory has displaced.
 */
struct pc_memory
{
	uint64_t	available;
	uint64_t	free;
	uint64_t	dirty;
	uint64_t	reserve;
	uint64_t	hot;
	uint64_t	budget;
	uint64_t	host_available;
	/* the smallest of the cgroups with a limit; PC_NO_LIMIT when there is none: */
	uint64_t	cgroup_headroom;	/* `available` */
	uint64_t	mappable;
};

#define PC_NO_LIMIT UINT64_MAX

/*
 * Reads /proc and the cgroup file systems (v1 and v2) below `root`, which is "" outside of tests.
 * Returns 0, or a negative errno when /proc/meminfo cannot be read.  A cgroup file that cannot be
 * read sets no limit.  `others` is in bytes.
 */
extern int	pc_memory_read(const char *root, uint64_t others, struct pc_memory *memory);

#endif
