/*
 * pg_residency.h - what the files of the extension share
 *
 * Counts are in blocks of BLCKSZ bytes unless a name says otherwise.
 */
#ifndef PG_RESIDENCY_H
#define PG_RESIDENCY_H

#include "postgres.h"

#include <sys/types.h>

#include "common/relpath.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "funcapi.h"
#include "postmaster/bgworker.h"

#include "compat.h"
#include "kernel/loader.h"
#include "kernel/page_cache.h"
#include "snapshot_file.h"

/* below the data directory, which is where a backend's relative paths begin */
#define RESIDENCY_DIR "pg_residency"

/* base backups pass over names that begin like this, in any directory */
#define RESIDENCY_TEMP_PREFIX RESIDENCY_DIR "/pgsql_tmp"

/* --- pg_residency.c --- */

extern TupleDesc result_row(FunctionCallInfo fcinfo, int columns);
extern ReturnSetInfo *result_set(FunctionCallInfo fcinfo, int columns);

/* --- segments.c: a relation's files --- */

typedef struct SegmentId
{
	Oid			tablespace;
	Oid			database;		/* InvalidOid for shared catalogs */
	RelFileNumber relfilenumber;
	ForkNumber	fork;
	uint32		segment;
} SegmentId;

extern void segment_path(const SegmentId *id, char *path);
extern int	segment_open(const SegmentId *id, char *path, uint32 *blocks);

/*
 * Called with each segment file, open; `cachestat` says whether cachestat(2) can be believed there, `unlogged` that
 * the relation has an init fork.
 */
typedef void (*SegmentVisitor) (const SegmentId *id, const char *path, int fd, uint32 blocks, bool cachestat,
								bool unlogged, void *arg);
extern void visit_segments(Oid database, SegmentVisitor visitor, void *arg);
extern bool segment_is_unlogged(const SegmentId *id);
extern bool cachestat_is_honest_for(const SegmentId *id, int fd);
extern void report_kernel_error(int rc, const char *action, const char *path) __attribute__((noreturn));

/* --- shared_buffers.c --- */

typedef struct BufferSet BufferSet;

extern bool block_in_shared_buffers(const SegmentId *id, BlockNumber block);
extern BufferSet *collect_shared_buffers(void);
extern bool buffers_of_segment(const BufferSet *set, const SegmentId *id, uint32 blocks, uint8 *cool, uint8 *hot);

/* --- snapshot.c --- */

/* a lock is held by the kernel for an open file, so it ends with the process, whichever way that ends */
typedef enum ResidencyLock
{
	LOCK_RESTORE,				/* while a job runs; the tag is its number */
	LOCK_START,					/* while a job is being started */
	LOCK_SNAPSHOT				/* while the folder's snapshots change */
} ResidencyLock;

typedef struct ResidencySnapshot
{
	char		label[SF_NAME_BYTES + 16];	/* name@generation */
	struct sf_header header;
	uint8	   *data;
	size_t		size;			/* bytes */
} ResidencySnapshot;

extern void make_residency_dir(void);
extern int	residency_lock(ResidencyLock which, int32 tag);
extern bool residency_is_locked(ResidencyLock which, int32 tag);
extern ResidencySnapshot *snapshot_load(const char *name);
extern struct sf_segment *snapshot_segments(const ResidencySnapshot *snapshot);
extern SegmentId snapshot_segment_id(const struct sf_segment *segment);
extern char *text_argument(FunctionCallInfo fcinfo, int n, const char *what);

/* --- restore.c --- */

/* how one segment stands, or what became of it; wanted = resident + over_budget + gone + failed when it was finished */
typedef struct SegmentOutcome
{
	int64		wanted;
	int64		resident;		/* in the page cache or in shared buffers, as seen afterwards */
	int64		loaded;			/* of these, the ones that came in meanwhile */
	int64		extra;			/* not wanted, but brought in with the others */
	int64		over_budget;
	int64		gone;			/* the file is missing or shorter now */
	int64		failed;
	char		reason[96];
} SegmentOutcome;

/* what is known of a device, as the files on it tell its number; each has a window of its own */
typedef struct KnownDevice
{
	dev_t		device;
	struct pc_flight flight;
	uint32		request_bytes;
	bool		measured;		/* by this restore */
	struct pc_speed speed;		/* requests 0: nobody knows */
} KnownDevice;

/* tablespaces on more devices of their own than anybody has: they share the last place */
#define MAX_DEVICES 16

/* large: not for the stack */
typedef struct RestoreControl
{
	uint64		budget;			/* bytes this restore may add to the page cache */
	bool		budget_is_measured; /* false when somebody asked for that number */
	uint64		used;			/* bytes it has added */
	uint64		promised;		/* bytes that segments begun and not finished may add */
	uint64		budget_now;		/* measured again, when this much had been used: */
	uint64		measured_at;
	struct pc_pace pace;
	const struct pc_window *window;
	KnownDevice devices[MAX_DEVICES];
	int			ndevices;
	int			gap_blocks;		/* -1: what the device makes worthwhile */
	/* as in struct pc_loader */
	bool		(*wait) (void *arg, long microseconds);
	void		(*blocked) (void *arg, bool begins);
	void		(*progress) (void *arg, uint32 blocks);
	void	   *arg;
} RestoreControl;

/* the two for a session that loads, whose argument is a wait event, uint32 */
extern bool session_wait(void *arg, long microseconds);
extern void session_blocked(void *arg, bool begins);

typedef struct SegmentWork SegmentWork;

extern void examine_segment(const struct sf_segment *segment, SegmentOutcome *outcome);
extern void begin_segment(const struct sf_segment *segment, RestoreControl *control, SegmentOutcome *outcome,
						  SegmentWork **work);
extern bool send_segment(SegmentWork *work, bool wait);
extern bool segment_is_in_flight(const SegmentWork *work);
extern void await_any_device(RestoreControl *control);
extern void finish_segment(SegmentWork *work);
extern void abandon_segment(SegmentWork *work);
extern uint64 restore_budget(void);
extern void whole_segment(const SegmentId *id, uint32 blocks, struct sf_segment *segment);

/* --- job_file.c: jobs and what became of them --- */

typedef enum JobState
{
	JOB_STARTING,
	JOB_WAITING,				/* for another cluster's restore on this machine */
	JOB_RUNNING,
	JOB_DONE,
	JOB_FAILED,
	JOB_CANCELED,
	JOB_INTERRUPTED
} JobState;

/* one file that a job is to restore, and what became of it */
typedef struct PlannedSegment
{
	int32		segment_no;		/* of the snapshot; 0: the whole file is wanted, whatever a snapshot says */
	SegmentId	id;
	uint32		blocks;			/* of the file when it was planned */
	uint32		wanted;
	uint64		heat;
	bool		done;
	SegmentOutcome outcome;
} PlannedSegment;

/* the head of a job's file; its plan follows, in the order in which it is worked off */
typedef struct Job
{
	uint32		magic;
	uint32		crc;			/* of all behind it */
	int32		job;
	int32		state;			/* JobState */
	int32		pid;
	int32		segments;		/* of the plan */
	int32		segments_done;
	int32		time_limit;		/* seconds, 0: none */
	TimestampTz started_at;
	TimestampTz finished_at;	/* 0: not yet */
	int64		planned;		/* blocks wanted by the whole plan */
	int64		budget_bytes;
	bool		budget_is_measured;
	int64		rate_bytes;		/* per second, 0: no limit */
	int32		gap_blocks;		/* -1: what the device makes worthwhile */
	int32		max_io_pressure;	/* percent of time that somebody waits for a disk, 0: not looked at */
	bool		aggressive;
	bool		shared_buffers; /* are to be filled again too */
	int64		buffers_wanted;
	int64		buffers_before; /* of them in shared buffers when their turn came */
	int64		buffers_resident;	/* and when that was done */
	int64		arriving;		/* blocks of the segment now being loaded that have come in */
	SegmentOutcome total;		/* of the segments done */
	char		snapshot[SF_NAME_BYTES + 16];	/* name@generation; empty: no snapshot, only whole files */
	char		message[512];
} Job;

extern int	job_create(Job *job, const PlannedSegment *plan);
extern bool job_read(int number, Job *job);
extern int	job_open(int number);
extern void job_write(int fd, Job *job);
extern void job_read_planned(int fd, int n, PlannedSegment *planned);
extern void job_write_planned(int fd, int n, const PlannedSegment *planned);
extern int *job_numbers(int *count);

/* --- buffer_job.c --- */

extern BackgroundWorkerHandle *start_buffer_worker(int job, Oid database, bool with_shared);

/* --- machine.c: what the clusters of one machine have to agree on --- */

extern int	machine_lock(void);
extern uint64 machine_others_bytes(void);
extern void machine_note_bytes(uint64 bytes);
extern bool machine_device_speed(dev_t device, struct pc_speed *speed);
extern void machine_note_device(dev_t device, const struct pc_speed *speed);

#define OUTCOME_COLUMNS 9
extern void outcome_values(int segment_no, const SegmentOutcome *outcome, Datum *values, bool *nulls);

#endif
