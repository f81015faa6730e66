/*
 * memory.h - how much memory a restore may fill
 */
#ifndef PC_MEMORY_H
#define PC_MEMORY_H

#include <stdint.h>

/*
 * The tightest of the host and of the caller's memory cgroup and its ancestors, in bytes:
 *
 *   available  what could be filled if nothing else mattered: MemAvailable of the host, and of a
 *              cgroup its limit less what it uses for other things than file cache (file cache
 *              makes room for file cache)
 *   dirty      file cache that cannot make room before it is written
 *   reserve    a thirty-second of the whole, left alone
 *   hot        file cache on the kernel's active list, which is what the foreground uses; but never
 *              more than half of what is available, for on a long-running server the active list
 *              holds nearly everything, and that one must be able to warm up too
 *   free       of what is available, what holds nothing now
 *   others     file cache of other clusters that is to stay: of the host only, where it is counted
 *   budget     available - dirty - reserve - hot - others; but all memory that is free, less the
 *              reserve, may be filled
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
	/* the least of the cgroups' available; PC_NO_LIMIT when none has a limit */
	uint64_t	cgroup_headroom;
};

#define PC_NO_LIMIT UINT64_MAX

/*
 * Reads /proc and the cgroup file systems (v1 and v2) below `root`, which is "" outside of tests.
 * 0, or a negative errno when /proc/meminfo cannot be read.  A cgroup file that cannot be read sets
 * no limit. `others` is in bytes.
 */
extern int	pc_memory_read(const char *root, uint64_t others, struct pc_memory *memory);

#endif
