/*
 * job_file.h - a job's files: its state, what became of its segments, and its plan
 *
 * Files and not shared memory, because that would have to be asked for when the server starts, and
 * because they still tell what happened after a restart.  Their names keep them out of base
 * backups.
 */
#ifndef RESIDENCY_JOB_FILE_H
#define RESIDENCY_JOB_FILE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "plan.h"
#include "segment_restore.h"

typedef enum JobState
{
	JOB_STARTING,
	JOB_WAITING,				/* for another cluster's restore on this host */
	JOB_RUNNING,
	JOB_DONE,
	JOB_FAILED,
	JOB_CANCELED,
	JOB_INTERRUPTED
} JobState;
#define LAST_STATE JOB_INTERRUPTED

typedef struct Job
{
	int32		job;			/* its number */
	JobState	state;
	int32		pid;
	int32		segments;		/* of the plan */
	int32		segments_done;
	TimestampTz started_at;
	TimestampTz finished_at;	/* 0: not yet */
	int64		wanted;			/* blocks, by the whole plan */
	int64		budget_bytes;	/* as it is known now */
	JobSettings settings;
	int64		buffers_wanted;
	int64		buffers_before; /* of them in shared buffers when their turn came */
	int64		buffers_resident;	/* and when that was done */
	int64		arriving;		/* blocks that have come in of segments that are not done */
	SegmentOutcome total;		/* of the segments done */
	uint32		plan_crc;
	char		snapshot[LABEL_BYTES];	/* name@generation; empty: only whole files */
	char		message[512];
} Job;

/* one file that a job is to restore, and what became of it */
typedef struct JobSegment
{
	int32		number;			/* in the snapshot; 0: the whole file is wanted */
	SegmentId	id;
	uint32		blocks;			/* of the file when it was planned */
	bool		done;
	SegmentOutcome outcome;		/* until it is done, only what is wanted */
} JobSegment;

/* how a state is called */
extern const char *job_state_name(JobState state);

/* starting, waiting or running */
static inline bool
job_is_alive(const Job *job)
{
	return job->state <= JOB_RUNNING;
}

/*
 * Before a job is created, by who holds LOCK_START: removes what no job needs any more.  The
 * remembered job that is to go when the new one has begun, 0 for none.
 */
extern int	job_tidy(void);

/*
 * Gives the job a number that none had before, and makes its files; `lock` is the descriptor of
 * LOCK_START.
 */
extern int	job_create(Job *job, const RestorePlan *plan, int lock);

/* Whether there is a job of that number. */
extern bool job_exists(int number);

/* Removes a job's files; it raises no error. */
extern void job_remove(int number);

/* The numbers of the jobs there are, in their order. */
extern int *job_numbers(int *count);

/*
 * Reads a job's state; false when there is no such job.  One that says it is alive, but whose
 * worker does not hold the lock any more, was interrupted.
 */
extern bool job_read(int number, Job *job);

/* Opens a job's file for its worker; it stays open until the process ends. */
extern int	job_open(int number);
extern void job_write(int fd, const Job *job);

/* The same for who must not raise an error; false, with errno set, when it cannot be written. */
extern bool job_try_write(int fd, const Job *job);
extern void job_read_segment(int fd, int n, JobSegment *segment);
extern void job_write_segment(int fd, int n, const JobSegment *segment);

/* The plan, as job_create() wrote it. */
extern struct sf_segment *job_plan_read(const Job *job);

/* A job that has ended needs no plan any more. */
extern void job_forget_plan(int number);

/* The names of its snapshot's relations, which it has for itself. */
extern char *job_names_path(int number);

/* The path of what a worker of the job answers about a database; MAXPGPATH bytes. */
extern void job_answer_path(int number, Oid database, char *path);

/* For sessions: the job, an error when there is none, and its segments one after another. */
typedef struct JobReader
{
	Job			job;
	int			fd;
	int			next;
} JobReader;

extern JobReader *job_reader_open(int number);
extern bool job_reader_next(JobReader *reader, JobSegment *segment);
extern void job_reader_close(JobReader *reader);

/* The error for a number that no job has. */
extern void report_no_job(int number) __attribute__((noreturn));

#endif
