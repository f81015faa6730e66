/*
 * allowance.h - what a restore may take: memory, and bytes a second
 *
 * One object for a whole restore; every stage of it draws from it.
 */
#ifndef RESIDENCY_ALLOWANCE_H
#define RESIDENCY_ALLOWANCE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "kernel/loader.h"
#include "kernel/memory.h"

typedef struct Allowance
{
	/* memory, bytes that may come into the page cache */
	/* what was asked for; PG_UINT64_MAX: no bound but the memory there is */
	uint64		most;
	uint64		measured;		/* what there was when it was last measured, in all, */
	uint64		measured_at;	/* and how much had been used then */
	uint64		used;			/* has come in */
	uint64		promised;		/* may still come in for segments that are being loaded */
	/* the device */
	struct pc_pace pace;
	uint64		rate;			/* bytes a second, 0: no limit; the pace never exceeds it */
	/* percent of time that a process waits for a disk, 0: not looked at */
	int			max_pressure;
	TimestampTz pressure_at;	/* when the stall time was last looked at, */
	uint64		stalled;		/* what it was then, microseconds, */
	int64		arrived;		/* and the blocks that had come in */
} Allowance;

/* What the host has for a restore; see kernel/memory.h.  `others` are bytes of other clusters. */
extern void measure_memory(struct pc_memory *memory, uint64 *others);

/* The budget of that, bytes. */
extern uint64 restore_budget(void);

/* Begins; `most` 0 means no bound but the memory there is, `rate` 0 no limit. */
extern void allowance_begin(Allowance *allowance, uint64 most, uint64 rate, int max_pressure);

/* The whole budget as it is known now, bytes. */
extern uint64 allowance_budget(const Allowance *allowance);

/* What is left of it, in blocks; measures again when much has come in since. */
extern int64 allowance_blocks_left(Allowance *allowance);

/* Slows down while others wait for their disks; `arrived` blocks have come in so far. */
extern void allowance_adapt(Allowance *allowance, TimestampTz now, int64 arrived);

#endif
