/*
 * job_file.c - a job's files
 *
 * pgsql_tmp.job.<number> is
 *
 *   head      HEAD_BYTES: magic and version (u32 each), the fields of Job as in put_head(), and in
 *             the last four bytes the CRC-32C of the others
 *   segments  RECORD_BYTES each, in the order of the plan: the fields of JobSegment as in
 *             job_write_segment(), and the CRC-32C of these
 *
 * While the job is alive, pgsql_tmp.plan.<number> is its plan: see plan.h.  The file
 * pgsql_tmp.job.<number>.names has the names of its snapshot's relations.  Numbers are
 * little-endian.
 */
#include "job_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"

#include "compat.h"
#include "directory.h"
#include "wire.h"

#define JOB_PREFIX "pgsql_tmp.job."
#define PLAN_PREFIX "pgsql_tmp.plan."
#define JOB_MAGIC 0x4a525042
#define JOB_VERSION 3
#define HEAD_BYTES 1024
#define RECORD_BYTES 64
#define RECORD_AT(n) (HEAD_BYTES + (off_t) (n) * RECORD_BYTES)

/* number of finished jobs that are kept */
#define KEPT_JOBS 8

/* the largest number that numbers_behind() accepts */
#define LARGEST_NUMBER (PG_INT32_MAX - 1)

/* attempts, a millisecond apart, to read a record that the worker is writing */
#define TRIES 10

static const char *const state_names[] = {
	"starting", "waiting", "running", "holding", "done", "failed", "canceled", "interrupted"
};

StaticAssertDecl(lengthof(state_names) == LAST_STATE + 1, "every state must have a name");

const char *
job_state_name(JobState state)
{
	return state_names[state];
}

void
job_path(int number, char *path)
{
	snprintf(path, MAXPGPATH, "%s/%s%d", RESIDENCY_DIR, JOB_PREFIX, number);
}

static void
plan_path(int number, char *path)
{
	snprintf(path, MAXPGPATH, "%s/%s%d", RESIDENCY_DIR, PLAN_PREFIX, number);
}

void
job_answer_path(int number, Oid database, char *path)
{
	snprintf(path, MAXPGPATH, "%s/%s%d.%u", RESIDENCY_DIR, PLAN_PREFIX, number, database);
}

static void
names_path_of(int number, char *path)
{
	snprintf(path, MAXPGPATH, "%s/%s%d.names", RESIDENCY_DIR, JOB_PREFIX, number);
}

char *
job_names_path(int number)
{
	char	   *path = palloc(MAXPGPATH);

	names_path_of(number, path);
	return path;
}

/* --- the head --- */

static uint8 *
put_outcome(uint8 *p, const SegmentOutcome *o, int bytes)
{
	p = wire_put(p, (uint64) o->wanted, bytes);
	p = wire_put(p, (uint64) o->resident, bytes);
	p = wire_put(p, (uint64) o->loaded, bytes);
	p = wire_put(p, (uint64) o->extra, bytes);
	p = wire_put(p, (uint64) o->over_budget, bytes);
	p = wire_put(p, (uint64) o->gone, bytes);
	return wire_put(p, (uint64) o->failed, bytes);
}

static void
get_outcome(const uint8 **p, SegmentOutcome *o, int bytes)
{
	o->wanted = (int64) wire_get(p, bytes);
	o->resident = (int64) wire_get(p, bytes);
	o->loaded = (int64) wire_get(p, bytes);
	o->extra = (int64) wire_get(p, bytes);
	o->over_budget = (int64) wire_get(p, bytes);
	o->gone = (int64) wire_get(p, bytes);
	o->failed = (int64) wire_get(p, bytes);
}

static void
put_head(const Job *job, uint8 *head)
{
	uint8	   *p = head;

	memset(head, 0, HEAD_BYTES);
	p = wire_put(p, JOB_MAGIC, 4);
	p = wire_put(p, JOB_VERSION, 4);
	p = wire_put(p, (uint32) job->job, 4);
	p = wire_put(p, (uint32) job->state, 4);
	p = wire_put(p, (uint32) job->pid, 4);
	p = wire_put(p, (uint32) job->segments, 4);
	p = wire_put(p, (uint32) job->segments_done, 4);
	p = wire_put(p, (uint64) job->started_at, 8);
	p = wire_put(p, (uint64) job->finished_at, 8);
	p = wire_put(p, (uint64) job->wanted, 8);
	p = wire_put(p, (uint64) job->budget_bytes, 8);
	p = wire_put(p, (uint64) job->settings.budget, 8);
	p = wire_put(p, (uint64) job->settings.rate, 8);
	p = wire_put(p, (uint32) job->settings.time_limit, 4);
	p = wire_put(p, (uint32) job->settings.turn_wait, 4);
	p = wire_put(p, (uint32) job->settings.gap_blocks, 4);
	p = wire_put(p, (uint32) job->settings.max_io_pressure, 4);
	p = wire_put(p, job->settings.aggressive, 1);
	p = wire_put(p, job->settings.shared_buffers, 1);
	p = wire_put(p, (uint64) job->settings.hold_until, 8);
	p = wire_put(p, (uint32) job->settings.hold_interval, 4);
	p = wire_put(p, (uint64) job->buffers_wanted, 8);
	p = wire_put(p, (uint64) job->buffers_before, 8);
	p = wire_put(p, (uint64) job->buffers_resident, 8);
	p = wire_put(p, (uint64) job->arriving, 8);
	p = put_outcome(p, &job->total, 8);
	p = wire_put(p, (uint32) job->io_class, 4);
	memcpy(p, job->scheduler, sizeof(job->scheduler));
	p += sizeof(job->scheduler);
	p = wire_put(p, (uint64) job->window_bytes, 8);
	p = wire_put(p, (uint64) job->held_since, 8);
	p = wire_put(p, (uint64) job->counted_at, 8);
	p = wire_put(p, (uint64) job->reclaimed, 8);
	p = wire_put(p, (uint64) job->brought_back, 8);
	p = wire_put(p, (uint64) job->mapped_bytes, 8);
	p = wire_put(p, job->plan_crc, 4);
	memcpy(p, job->snapshot, sizeof(job->snapshot));
	p += sizeof(job->snapshot);
	memcpy(p, job->message, sizeof(job->message));
	p += sizeof(job->message);
	Assert(p <= head + HEAD_BYTES - 4);
	wire_put(head + HEAD_BYTES - 4, sf_crc32c(0, head, HEAD_BYTES - 4), 4);
}

/* false when it is not the head of a job file, or is incomplete */
static bool
get_head(const uint8 *head, Job *job)
{
	const uint8 *p = head;
	const uint8 *crc = head + HEAD_BYTES - 4;
	uint32		state;
	uint32		io_class;

	memset(job, 0, sizeof(*job));
	if (wire_get(&p, 4) != JOB_MAGIC || wire_get(&p, 4) != JOB_VERSION ||
		wire_get(&crc, 4) != sf_crc32c(0, head, HEAD_BYTES - 4))
		return false;
	job->job = (int32) wire_get(&p, 4);
	state = (uint32) wire_get(&p, 4);
	job->state = (JobState) state;
	job->pid = (int32) wire_get(&p, 4);
	job->segments = (int32) wire_get(&p, 4);
	job->segments_done = (int32) wire_get(&p, 4);
	job->started_at = (TimestampTz) wire_get(&p, 8);
	job->finished_at = (TimestampTz) wire_get(&p, 8);
	job->wanted = (int64) wire_get(&p, 8);
	job->budget_bytes = (int64) wire_get(&p, 8);
	job->settings.budget = (int64) wire_get(&p, 8);
	job->settings.rate = (int64) wire_get(&p, 8);
	job->settings.time_limit = (int32) wire_get(&p, 4);
	job->settings.turn_wait = (int32) wire_get(&p, 4);
	job->settings.gap_blocks = (int32) wire_get(&p, 4);
	job->settings.max_io_pressure = (int32) wire_get(&p, 4);
	job->settings.aggressive = wire_get(&p, 1) != 0;
	job->settings.shared_buffers = wire_get(&p, 1) != 0;
	job->settings.hold_until = (TimestampTz) wire_get(&p, 8);
	job->settings.hold_interval = (int32) wire_get(&p, 4);
	job->buffers_wanted = (int64) wire_get(&p, 8);
	job->buffers_before = (int64) wire_get(&p, 8);
	job->buffers_resident = (int64) wire_get(&p, 8);
	job->arriving = (int64) wire_get(&p, 8);
	get_outcome(&p, &job->total, 8);
	io_class = (uint32) wire_get(&p, 4);
	job->io_class = (IoClass) io_class;
	memcpy(job->scheduler, p, sizeof(job->scheduler));
	p += sizeof(job->scheduler);
	job->window_bytes = (int64) wire_get(&p, 8);
	job->held_since = (TimestampTz) wire_get(&p, 8);
	job->counted_at = (TimestampTz) wire_get(&p, 8);
	job->reclaimed = (int64) wire_get(&p, 8);
	job->brought_back = (int64) wire_get(&p, 8);
	job->mapped_bytes = (int64) wire_get(&p, 8);
	job->plan_crc = (uint32) wire_get(&p, 4);
	memcpy(job->snapshot, p, sizeof(job->snapshot));
	p += sizeof(job->snapshot);
	memcpy(job->message, p, sizeof(job->message));
	/* a checksum detects damage, not forged values */
	return state <= LAST_STATE && io_class <= LAST_IO_CLASS && job->segments >= 0 &&
		   job->pid >= 0 &&
		   job->scheduler[sizeof(job->scheduler) - 1] == '\0' &&
		   job->snapshot[sizeof(job->snapshot) - 1] == '\0' &&
		   job->message[sizeof(job->message) - 1] == '\0' &&
		   IS_VALID_TIMESTAMP(job->started_at) && IS_VALID_TIMESTAMP(job->finished_at) &&
		   IS_VALID_TIMESTAMP(job->settings.hold_until) &&
		   IS_VALID_TIMESTAMP(job->held_since) && IS_VALID_TIMESTAMP(job->counted_at);
}

bool
job_try_write(int fd, const Job *job)
{
	uint8		head[HEAD_BYTES];

	put_head(job, head);
	errno = 0;
	if (pg_pwrite(fd, head, HEAD_BYTES, 0) == HEAD_BYTES)
		return true;
	if (errno == 0)
		errno = ENOSPC;
	return false;
}

void
job_write(int fd, const Job *job)
{
	char		path[MAXPGPATH];

	job_path(job->job, path);
	if (!job_try_write(fd, job))
		report_write_error(path);
}

/* --- its segments --- */

void
job_write_segment(int fd, const Job *job, int n, const JobSegment *s)
{
	char		path[MAXPGPATH];
	uint8		record[RECORD_BYTES];
	uint8	   *p = record;

	job_path(job->job, path);
	memset(record, 0, RECORD_BYTES);
	p = wire_put(p, (uint32) s->number, 4);
	p = wire_put(p, s->id.tablespace, 4);
	p = wire_put(p, s->id.database, 4);
	p = wire_put(p, s->id.relfilenumber, 4);
	p = wire_put(p, s->id.segment, 4);
	p = wire_put(p, s->blocks, 4);
	p = wire_put(p, (uint64) s->id.fork, 1);
	p = wire_put(p, s->done, 1);
	p = wire_put(p, (uint64) s->outcome.reason, 1);
	p = wire_put(p, 0, 1);
	p = wire_put(p, (uint32) s->outcome.error, 4);
	p = put_outcome(p, &s->outcome, 4);
	Assert(p == record + RECORD_BYTES - 4);
	wire_put(p, sf_crc32c(0, record, RECORD_BYTES - 4), 4);
	errno = 0;
	if (pg_pwrite(fd, record, RECORD_BYTES, RECORD_AT(n)) != RECORD_BYTES)
		report_write_error(path);
}

static bool
get_segment(const uint8 *record, JobSegment *s)
{
	const uint8 *p = record;
	const uint8 *crc = record + RECORD_BYTES - 4;
	uint8		fork;
	uint8		reason;

	memset(s, 0, sizeof(*s));
	s->number = (int32) wire_get(&p, 4);
	s->id.tablespace = (Oid) wire_get(&p, 4);
	s->id.database = (Oid) wire_get(&p, 4);
	s->id.relfilenumber = (RelFileNumber) wire_get(&p, 4);
	s->id.segment = (uint32) wire_get(&p, 4);
	s->blocks = (uint32) wire_get(&p, 4);
	fork = (uint8) wire_get(&p, 1);
	s->id.fork = (ForkNumber) fork;
	s->done = wire_get(&p, 1) != 0;
	reason = (uint8) wire_get(&p, 1);
	s->outcome.reason = (OutcomeReason) reason;
	p++;
	s->outcome.error = (int) wire_get(&p, 4);
	get_outcome(&p, &s->outcome, 4);
	return wire_get(&crc, 4) == sf_crc32c(0, record, RECORD_BYTES - 4) &&
		fork <= MAX_FORKNUM && reason <= LAST_REASON;
}

void
job_read_segment(int fd, const Job *job, int n, JobSegment *segment)
{
	char		path[MAXPGPATH];
	uint8		record[RECORD_BYTES];

	for (int i = 0; i < TRIES; i++)
	{
		if (i > 0)
			pg_usleep(1000);
		if (pg_pread(fd, record, RECORD_BYTES, RECORD_AT(n)) == RECORD_BYTES &&
			get_segment(record, segment))
			return;
	}
	job_path(job->job, path);
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("job file \"%s\" is damaged", path)));
}

/* --- the files --- */

static int
compare_numbers(const void *a, const void *b)
{
	int			na = *(const int *) a;
	int			nb = *(const int *) b;

	return (na > nb) - (na < nb);
}

/* the numbers after that prefix, in ascending order */
static int *
numbers_behind(const char *prefix, int *count)
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
		long		number;
		char	   *end;

		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		number = strtol(entry->d_name + strlen(prefix), &end, 10);
		if (*end != '\0' || number < 1 || number > LARGEST_NUMBER)
			continue;
		if (*count == room)
			numbers = repalloc(numbers, (room *= 2) * sizeof(int));
		numbers[(*count)++] = (int) number;
	}
	FreeDir(d);
	qsort(numbers, *count, sizeof(int), compare_numbers);
	return numbers;
}

int *
job_numbers(int *count)
{
	return numbers_behind(JOB_PREFIX, count);
}

int
job_open(int number)
{
	char		path[MAXPGPATH];
	int			fd;

	job_path(number, path);
	fd = BasicOpenFile(path, O_RDWR | PG_BINARY);
	if (fd < 0 && errno != ENOENT)
		job_report_unread(ERROR, number, errno);
	if (fd >= 0)
		ReserveExternalFD();
	return fd;
}

static void
write_segments(int fd, const Job *job, const RestorePlan *plan)
{
	for (int i = 0; i < plan->count; i++)
	{
		const struct sf_segment *s = &plan->segments[i];
		JobSegment segment = {.number = plan->numbers[i],
							  .id = segment_id_of(s),
							  .blocks = s->blocks};

		if (plan->absent[i])
			segment.outcome.reason = REASON_UNLOGGED;
		else
			segment.outcome.wanted = s->wanted;
		job_write_segment(fd, job, i, &segment);
	}
}

/*
 * Links the names file, so that the job keeps it when the snapshot is removed.  Without the link,
 * the job's relations have no names.
 */
static void
take_names(const Job *job)
{
	Generation	g;

	if (job->snapshot[0] == '\0')
		return;
	parse_name(job->snapshot, &g, true);
	(void) unlink(job_names_path(job->job));
	(void) !link(names_path(&g), job_names_path(job->job));
}

int
job_tidy(void)
{
	int			count;
	int		   *numbers = job_numbers(&count);
	int			kept = 0;
	int			oldest = 0;
	Job			job;

	while (count-- > 0)
	{
		int			error = 0;

		if (kept < KEPT_JOBS && job_try_read(numbers[count], &job, &error))
		{
			oldest = numbers[count];
			kept++;
		}
		/*
		 * A file without a state belongs to a killed starter, or is foreign.  A file that cannot be
		 * opened may be a job's: the reason may be temporary, such as a lack of descriptors.
		 */
		else if (error == 0)
			job_remove(numbers[count]);
	}
	/* no job is alive: all remaining plans belong to killed jobs */
	remove_files_beginning(PLAN_PREFIX);
	return kept == KEPT_JOBS ? oldest : 0;
}

/* Skips the numbers of abandoned starts too: a late worker would take the new job for its own. */
static int
next_number(int lock)
{
	int			count;
	int		   *numbers = job_numbers(&count);
	int			last = Max(residency_tag(lock, LAST_JOB), 0);

	if (count > 0)
		last = Max(last, numbers[count - 1]);
	if (last >= LARGEST_NUMBER)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("out of job numbers"),
				 errhint("Stop the server and remove the files \"%s*\".", RESIDENCY_TEMP_PREFIX)));
	residency_set_tag(lock, LAST_JOB, last + 1);
	residency_set_tag(lock, LOCK_START, last + 1);
	return last + 1;
}

int
job_create(Job *job, const RestorePlan *plan, int lock)
{
	char		path[MAXPGPATH];
	int			fd;

	job->job = next_number(lock);
	job_path(job->job, path);
	fd = BasicOpenFile(path, O_RDWR | O_CREAT | O_EXCL | PG_BINARY);
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", path)));
	PG_TRY();
	{
		job->segments = plan->count;
		job->wanted = plan->wanted;
		strlcpy(job->snapshot, plan->label, sizeof(job->snapshot));
		plan_path(job->job, path);
		job->plan_crc = plan_write(plan, path);
		write_segments(fd, job, plan);
		take_names(job);
		job->state = JOB_STARTING;
		job_write(fd, job);
	}
	PG_CATCH();
	{
		close(fd);
		job_remove(job->job);
		PG_RE_THROW();
	}
	PG_END_TRY();
	close(fd);
	return job->job;
}

bool
job_exists(int number)
{
	char		path[MAXPGPATH];

	job_path(number, path);
	return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* removes a file; false, with a message in the log, when it remains */
static bool
try_remove(const char *path)
{
	if (unlink(path) == 0 || errno == ENOENT)
		return true;
	/* after a message, ereport() checks for interrupts, which may raise an error */
	HOLD_INTERRUPTS();
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not remove file \"%s\": %m", path)));
	RESUME_INTERRUPTS();
	return false;
}

void
job_remove(int number)
{
	char		path[MAXPGPATH];
	bool		removed;

	names_path_of(number, path);
	removed = try_remove(path);
	plan_path(number, path);
	removed &= try_remove(path);
	/* removed last: the other files are found by the number of an existing job */
	job_path(number, path);
	if (removed)
		(void) try_remove(path);
}

void
job_forget_plan(int number)
{
	char		path[MAXPGPATH];

	plan_path(number, path);
	(void) try_remove(path);
}

struct sf_segment *
job_plan_read(const Job *job)
{
	char		path[MAXPGPATH];

	plan_path(job->job, path);
	return plan_read(path, job->plan_crc, job->segments);
}

/* false when the file does not exist or is incomplete; or, with its errno, cannot be opened */
static bool
read_head(int number, Job *job, int *error)
{
	char		path[MAXPGPATH];
	uint8		head[HEAD_BYTES];
	bool		read_it = false;
	int			fd;

	job_path(number, path);
	/* without O_NONBLOCK a FIFO would block until a writer opens it */
	fd = OpenTransientFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);
	*error = fd >= 0 || errno == ENOENT ? 0 : errno;
	if (fd < 0)
		return false;
	for (int i = 0; i < TRIES && !read_it; i++)
	{
		if (i > 0)
			pg_usleep(1000);
		read_it = pg_pread(fd, head, HEAD_BYTES, 0) == HEAD_BYTES && get_head(head, job) &&
			job->job == number;
	}
	CloseTransientFile(fd);
	return read_it;
}

bool
job_try_read(int number, Job *job, int *error)
{
	JobState	before = JOB_INTERRUPTED;	/* not a state of a job that is alive */

	for (;;)
	{
		if (!read_head(number, job, error))
			return false;
		if (!job_is_alive(job) ||
			residency_is_locked(job->state == JOB_STARTING ? LOCK_START : LOCK_RESTORE, number))
			return true;
		if (job->state == before)
			break;
		/* the worker writes the final state before it releases the lock: read again */
		before = job->state;
	}
	job->state = JOB_INTERRUPTED;
	strlcpy(job->message, "the worker did not report a result: it was killed, or the server crashed",
			sizeof(job->message));
	return true;
}

void
job_report_unread(int elevel, int number, int error)
{
	char		path[MAXPGPATH];

	job_path(number, path);
	errno = error;
	ereport(elevel,
			(errcode_for_file_access(),
			 errmsg("could not open file \"%s\": %m", path)));
}

bool
job_read(int number, Job *job)
{
	int			error;
	bool		read_it = job_try_read(number, job, &error);

	if (error != 0)
		job_report_unread(ERROR, number, error);
	return read_it;
}

/* --- for sessions --- */

void
report_no_job(int number)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("job %d does not exist", number),
			 errhint("View residency_jobs lists the remembered jobs.")));
	pg_unreachable();
}

JobReader *
job_reader_open(int number)
{
	JobReader  *reader = palloc0(sizeof(JobReader));
	char		path[MAXPGPATH];

	if (!job_read(number, &reader->job))
		report_no_job(number);
	job_path(number, path);
	reader->fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	if (reader->fd < 0 && errno == ENOENT)
		report_no_job(number);
	if (reader->fd < 0)
		job_report_unread(ERROR, number, errno);
	return reader;
}

bool
job_reader_next(JobReader *reader, JobSegment *segment)
{
	CHECK_FOR_INTERRUPTS();
	if (reader->next >= reader->job.segments)
		return false;
	job_read_segment(reader->fd, &reader->job, reader->next++, segment);
	return true;
}

void
job_reader_close(JobReader *reader)
{
	CloseTransientFile(reader->fd);
}
