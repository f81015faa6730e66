/*
 * job_file.h - the file of a job: its state, the outcome of its segments, and its plan
 *
 * Files rather than shared memory, because shared memory must be requested at server start, and
 * because files survive a restart.  Their names exclude them from base backups.
 */
#ifndef RESIDENCY_JOB_FILE_H
#define RESIDENCY_JOB_FILE_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

#include "plan.h"

typedef enum JobState
{
	JOB_STARTING,
	JOB_WAITING,				/* for another cluster's restore on this host */
	JOB_RUNNING,
	JOB_HOLDING,				/* has restored, and keeps that in the page cache */
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
	TimestampTz finished_at;	/* 0: still alive */
	int64		wanted;			/* blocks, of the whole plan */
	int64		budget_bytes;	/* by the last measurement */
	JobSettings settings;
	int64		buffers_wanted;
	int64		buffers_before; /* of these, in shared buffers before the job filled them */
	int64		buffers_resident;	/* and afterwards */
	int64		arriving;		/* loaded blocks of segments that are not done */
	SegmentOutcome total;		/* of the segments done */
	IoClass		io_class;		/* of the requests so far */
	char		scheduler[SCHEDULERS_BYTES];	/* of their devices */
	TimestampTz held_since;		/* 0: it has not held */
	TimestampTz counted_at;		/* the last count of what it holds */
	/* blocks: the sum over all counts of how many more of a file were missing than before */
	int64		reclaimed;
	int64		brought_back;	/* blocks */
	int64		mapped_bytes;	/* at the last count */
	int64		window_bytes;	/* in flight for each device: see pc_gentle and pc_yields() */
	uint64		plan_bytes;		/* of the plan in the file */
	char		snapshot[LABEL_BYTES];	/* name@generation; empty: whole files only */
	char		message[512];
} Job;

/* the name of a state */
extern const char *job_state_name(JobState state);

/* starting, waiting, running or holding */
static inline bool
job_is_alive(const Job *job)
{
	return job->state <= JOB_HOLDING;
}

/* a worker has begun with it */
static inline bool
job_has_begun(const Job *job)
{
	return job_is_alive(job) && job->state != JOB_STARTING;
}

/*
 * Called with LOCK_START held, before a job is created: removes files that no job needs.  Returns
 * the number of the job to remove after the new one has begun, 0 for none.
 */
extern int	job_tidy(void);

/*
 * Gives the job a new number and creates its files; `lock` is the descriptor of LOCK_START.  After
 * an error, the caller removes the job if it has a number.
 */
extern void job_create(Job *job, const RestorePlan *plan, int lock);

/* Whether a job of that number exists; true when its directory cannot be searched. */
extern bool job_exists(int number);

/*
 * Removes a job's files; raises no error.  If one cannot be removed, the job remains until the next
 * attempt of job_tidy().
 */
extern void job_remove(int number);

/* The numbers of the existing jobs, in ascending order. */
extern List *job_numbers(void);

/*
 * Reads a job's state; false when the job does not exist.  A job is interrupted when its file has a
 * live state but no worker holds its lock.
 */
extern bool job_read(int number, Job *job);

/*
 * The same without an error for a file that cannot be opened: returns false with errno set, which
 * is ENOENT when the job does not exist.
 */
extern bool job_try_read(int number, Job *job);

/* "could not open file x", with errno. */
extern void job_report_unread(int elevel, int number);

/*
 * Opens a job's file for a worker; it stays open until the process ends.  -1: the job does not
 * exist any more.
 */
extern int	job_open(int number);
extern void job_write(int fd, const Job *job);

/* The same without an error: false, with errno set, when the write fails. */
extern bool job_try_write(int fd, const Job *job);
extern void job_read_segment(int fd, const Job *job, int n, JobSegment *segment);
extern void job_write_segment(int fd, const Job *job, int n, const JobSegment *segment);

/* The plan, as job_create() wrote it. */
extern struct sf_segment *job_read_plan(int fd, const Job *job);

/* Removes the plan from the file of a job that has ended. */
extern void job_remove_plan(int fd, const Job *job);

/* The path of a job's file; it is valid until the next call, as those of the next two functions. */
extern const char *job_path(int number);

/* The path of the job's own names file. */
extern const char *job_names_path(int number);

/* The path of a worker's answer about a database. */
extern const char *job_answer_path(int number, Oid database);

/* For sessions: reads a job and its segments; raises an error when the job does not exist. */
extern JobSegment *job_read_segments(int number, Job *job);

/* Raises the error for a number without a job. */
extern void report_no_job(int number) __attribute__((noreturn));

#endif
