/*
 * allowance.h - how much memory and bandwidth a restore may take
 *
 * One object for a whole restore; every stage draws from it.
 */
#ifndef RESIDENCY_ALLOWANCE_H
#define RESIDENCY_ALLOWANCE_H

#include "postgres.h"

#include "kernel/loader.h"
#include "kernel/memory.h"

typedef struct Allowance
{
	/* memory, bytes that may come into the page cache */
	/* the requested budget; PG_UINT64_MAX: limited by the available memory alone */
	uint64		most;
	uint64		measured;		/* total budget at the last measurement, */
	uint64		unused;			/* memory that nobody used then, less the reserve, */
	uint64		used_when_measured;	/* and bytes used by then */
	uint64		used;			/* loaded */
	uint64		promised;		/* reserved for segments that are being loaded */
	/* the device */
	struct pc_pace pace;
	uint64		rate;			/* bytes per second, 0: no limit; an upper bound of the pace */
	/* percent of time that a process may wait for a disk, 0: not measured */
	int			max_pressure;
	int64		pressure_at;	/* monotonic microseconds of the last look at the stall time, */
	uint64		stalled;		/* stall time then, microseconds, */
	int64		loaded;			/* and blocks loaded by then */
} Allowance;

/*
 * The memory of the host; see kernel/memory.h.  `others` returns bytes of other clusters.  Returns
 * 0, or a negative errno where /proc/meminfo cannot be read.
 */
extern int	try_measure_memory(struct pc_memory *memory, uint64 *others);

/* The memory budget of a restore, bytes. */
extern uint64 restore_budget(void);

/* Initialises; `most` 0: limited by the available memory alone, `rate` 0: no limit. */
extern void allowance_begin(Allowance *allowance, uint64 most, uint64 rate, int max_pressure);

/* The total budget by the last measurement, bytes. */
extern uint64 allowance_budget(const Allowance *allowance);

/* The unused part of the budget, in blocks; measures again after every MEASURE_AGAIN_BYTES. */
extern int64 allowance_blocks_left(Allowance *allowance);

/* True if that many blocks fit into memory that nobody uses: they displace no page of others. */
extern bool allowance_is_unused(const Allowance *allowance, int64 blocks);

/* Lowers the rate while processes wait for disks; `loaded` blocks have been loaded so far. */
extern void allowance_adapt(Allowance *allowance, int64 loaded);

#endif
