/*
 * job_run.h - a running job, for the files that run it: job.c, job_lanes.c and job_buffers.c
 */
#ifndef RESIDENCY_JOB_RUN_H
#define RESIDENCY_JOB_RUN_H

#include "postgres.h"

#include "nodes/pg_list.h"

#include "host_ledger.h"
#include "job_file.h"

/* segments of a device restored side by side, in one window */
#define SIDE_BY_SIDE 32

/* a segment whose restore has begun and is not complete */
typedef struct ActiveSegment
{
	int			n;				/* index in the plan */
	int64		wanted;			/* according to the plan */
	JobSegment	segment;
	SegmentWork *work;			/* NULL when it is complete */
	MemoryContext context;
} ActiveSegment;

typedef struct Lane
{
	Device	   *device;
	int			next;			/* index in the plan of the next segment to examine */
	ActiveSegment active[SIDE_BY_SIDE];	/* a ring, the oldest first */
	int			first;
	int			count;
} Lane;

/* the lane of a tablespace on another device than the first lane's */
typedef struct TablespaceLane
{
	Oid			tablespace;
	int			lane;
} TablespaceLane;

typedef struct Hold Hold;

/* large: not for the stack */
typedef struct Run
{
	Job			job;
	int			fd;				/* of the job's file */
	int			lock;			/* descriptor of LOCK_RESTORE */
	Hold	   *hold;			/* of a job that holds, or will */
	int64		loaded_by_hold; /* blocks */
	struct sf_segment *plan;
	/* with shared_buffers: of each segment, a map of the blocks that the job loads, or NULL */
	uint8	  **loaded;
	RestoreControl control;
	struct pc_window window;
	HostTurn	turn;
	int64		deadline;		/* monotonic milliseconds, 0: none */
	int64		written_at;		/* monotonic milliseconds */
	Lane		lanes[MAX_DEVICES]; /* the first is the data directory's */
	int			nlanes;
	List	   *tablespace_lanes;	/* TablespaceLane *, tablespaces of the other lanes */
	int64		noted;			/* resident blocks recorded in the host's ledger */
	uint32		wait_event;
	MemoryContext context;
} Run;

/* True when the job must end; its state and message then contain the reason. */
static inline bool
run_must_end(Run *run)
{
	return run->control.wait(run, 0);
}

#endif
