/*
 * job_file.c - a job's state on disk: written by its worker, read by everybody
 *
 * A file and not shared memory, because that would have to be asked for when the server starts, and because the file
 * still tells what happened after a restart.  Its name keeps it out of base backups.
 */
#include "pg_residency.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/builtins.h"

#define JOB_PREFIX "pgsql_tmp.job."
#define JOB_MAGIC 0x4a525041
#define HEAD_BYTES 2048
#define PLANNED_AT(n) (HEAD_BYTES + (off_t) (n) * sizeof(PlannedSegment))

/* finished jobs that stay readable */
#define KEPT_JOBS 8

StaticAssertDecl(sizeof(Job) <= HEAD_BYTES, "a job must fit into the head of its file");

static void
job_path(int number, char *path)
{
	snprintf(path, MAXPGPATH, "%s/%s%d", RESIDENCY_DIR, JOB_PREFIX, number);
}

static int
compare_numbers(const void *a, const void *b)
{
	int			na = *(const int *) a;
	int			nb = *(const int *) b;

	return (na > nb) - (na < nb);
}

/* the numbers of the jobs there are files of, in their order */
int *
job_numbers(int *count)
{
	int			room = 16;
	int		   *numbers = palloc(room * sizeof(int));
	DIR		   *d = AllocateDir(RESIDENCY_DIR);
	struct dirent *entry;

	*count = 0;
	if (d == NULL && errno == ENOENT)
		return numbers;
	while ((entry = ReadDir(d, RESIDENCY_DIR)) != NULL)
	{
		int			number;

		if (strncmp(entry->d_name, JOB_PREFIX, strlen(JOB_PREFIX)) != 0)
			continue;
		number = atoi(entry->d_name + strlen(JOB_PREFIX));
		if (number < 1)
			continue;
		if (*count == room)
			numbers = repalloc(numbers, (room *= 2) * sizeof(int));
		numbers[(*count)++] = number;
	}
	FreeDir(d);
	qsort(numbers, *count, sizeof(int), compare_numbers);
	return numbers;
}

/* Opens a job's file for writing; it stays open until the process closes it. */
int
job_open(int number)
{
	char		path[MAXPGPATH];
	int			fd;

	job_path(number, path);
	fd = BasicOpenFile(path, O_RDWR | PG_BINARY);
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", path)));
	return fd;
}

/*
 * Gives the job the next number and makes its file, as which it waits for its worker.  Old jobs' files go.  The caller
 * holds LOCK_START.
 */
int
job_create(Job *job, const PlannedSegment *plan)
{
	char		path[MAXPGPATH];
	int			count;
	int		   *numbers = job_numbers(&count);
	int			fd;

	job->job = count > 0 ? numbers[count - 1] + 1 : 1;
	for (int i = 0; i < count - (KEPT_JOBS - 1); i++)
	{
		job_path(numbers[i], path);
		unlink(path);
	}
	job_path(job->job, path);
	fd = BasicOpenFile(path, O_RDWR | O_CREAT | O_EXCL | PG_BINARY);
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", path)));
	PG_TRY();
	{
		for (int i = 0; i < job->segments; i++)
			job_write_planned(fd, i, &plan[i]);
		job->state = JOB_STARTING;
		job_write(fd, job);
	}
	PG_CATCH();
	{
		close(fd);
		unlink(path);
		PG_RE_THROW();
	}
	PG_END_TRY();
	close(fd);
	return job->job;
}

static uint32
job_crc(const Job *job)
{
	const char *from = (const char *) &job->crc + sizeof(job->crc);

	return sf_crc32c(0, from, (const char *) (job + 1) - from);
}

void
job_write(int fd, Job *job)
{
	job->magic = JOB_MAGIC;
	job->crc = job_crc(job);
	errno = 0;
	if (pg_pwrite(fd, job, sizeof(*job), 0) != sizeof(*job))
	{
		if (errno == 0)
			errno = ENOSPC;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write the state of job %d: %m", job->job)));
	}
}

/* the n-th of the plan, from 0 */
void
job_write_planned(int fd, int n, const PlannedSegment *planned)
{
	errno = 0;
	if (pg_pwrite(fd, planned, sizeof(*planned), PLANNED_AT(n)) != sizeof(*planned))
	{
		if (errno == 0)
			errno = ENOSPC;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write the plan of a job: %m")));
	}
}

void
job_read_planned(int fd, int n, PlannedSegment *planned)
{
	if (pg_pread(fd, planned, sizeof(*planned), PLANNED_AT(n)) != sizeof(*planned))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the plan of a job is cut short")));
}

/*
 * Reads a job's state.  False when there is no such job.  One that says it is running, but whose worker does not hold
 * the lock any more, was interrupted.
 */
bool
job_read(int number, Job *job)
{
	char		path[MAXPGPATH];
	int			fd;
	bool		read_it = false;

	job_path(number, path);
	fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	if (fd < 0)
	{
		if (errno == ENOENT)
			return false;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", path)));
	}
	/* the worker may be writing just now */
	for (int i = 0; i < 10 && !read_it; i++)
	{
		if (i > 0)
			pg_usleep(1000);
		read_it = pg_pread(fd, job, sizeof(*job), 0) == sizeof(*job) && job->magic == JOB_MAGIC &&
			job->crc == job_crc(job);
	}
	CloseTransientFile(fd);
	if (!read_it)
		return false;
	if (((job->state == JOB_RUNNING || job->state == JOB_WAITING) && !residency_is_locked(LOCK_RESTORE, number)) ||
		(job->state == JOB_STARTING && !residency_is_locked(LOCK_START, 0)))
		job->state = JOB_INTERRUPTED;
	return true;
}

/* a row of what became of one segment */
void
outcome_values(int segment_no, const SegmentOutcome *o, Datum *values, bool *nulls)
{
	memset(nulls, false, OUTCOME_COLUMNS * sizeof(bool));
	values[0] = Int32GetDatum(segment_no);
	values[1] = Int64GetDatum(o->wanted);
	values[2] = Int64GetDatum(o->resident);
	values[3] = Int64GetDatum(o->loaded);
	values[4] = Int64GetDatum(o->extra);
	values[5] = Int64GetDatum(o->over_budget);
	values[6] = Int64GetDatum(o->gone);
	values[7] = Int64GetDatum(o->failed);
	nulls[8] = o->reason[0] == '\0';
	values[8] = nulls[8] ? (Datum) 0 : CStringGetTextDatum(o->reason);
}

PG_FUNCTION_INFO_V1(residency_job_segments);
Datum
residency_job_segments(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo;
	char		path[MAXPGPATH];
	PlannedSegment planned;
	Job			job;
	int			number;
	int			fd;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the job's number must not be null")));
	number = PG_GETARG_INT32(0);
	if (!job_read(number, &job))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("there is no job %d", number),
				 errhint("View residency_jobs has those that are remembered.")));
	rsinfo = result_set(fcinfo, OUTCOME_COLUMNS + 6);
	job_path(number, path);
	fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", path)));
	for (int i = 0; i < job.segments; i++)
	{
		Datum		values[OUTCOME_COLUMNS + 6];
		bool		nulls[OUTCOME_COLUMNS + 6] = {false};

		CHECK_FOR_INTERRUPTS();
		job_read_planned(fd, i, &planned);
		if (!planned.done)
		{
			memset(&planned.outcome, 0, sizeof(planned.outcome));
			planned.outcome.wanted = planned.wanted;
		}
		outcome_values(planned.segment_no, &planned.outcome, values, nulls);
		nulls[0] = planned.segment_no == 0;
		values[OUTCOME_COLUMNS] = ObjectIdGetDatum(planned.id.tablespace);
		values[OUTCOME_COLUMNS + 1] = ObjectIdGetDatum(planned.id.database);
		values[OUTCOME_COLUMNS + 2] = ObjectIdGetDatum(planned.id.relfilenumber);
		values[OUTCOME_COLUMNS + 3] = CStringGetTextDatum(forkNames[planned.id.fork]);
		values[OUTCOME_COLUMNS + 4] = Int32GetDatum((int32) planned.id.segment);
		values[OUTCOME_COLUMNS + 5] = BoolGetDatum(planned.done);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	CloseTransientFile(fd);
	return (Datum) 0;
}
