/*
 * job_file.c - the file of a job
 *
 * pgsql_tmp.job.<number> has
 *
 *   at 0                the job: its settings, its state, and the sums of its segments
 *   from SEGMENTS_AT    its segments, SEGMENT_BYTES each, in the order of the plan
 *   at PLAN_AT          until the job ends, its plan: the segments as in a snapshot file
 *
 * Each of these is a record: a RecordHead, and a struct as it is in memory.
 *
 * A file has one writer: the session that starts the job, until the worker has opened the file.
 * Readers take no lock.  The records that change do not cross a page of the page cache, so the
 * kernel writes each of them completely, also if the writer is killed.  A reader may copy a record
 * while it is written: then the checksum does not match, and the reader reads the record again.
 *
 * The file pgsql_tmp.job.<number>.names has the names of the snapshot's relations.
 */
#include "job_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"

#include "directory.h"

#define JOB_PREFIX "pgsql_tmp.job."
#define ANSWER_PREFIX "pgsql_tmp.buffers."

#define JOB_MAGIC 0x4a525042
#define JOB_VERSION 5			/* of the structs in the file */

typedef struct RecordHead
{
	uint32		magic;
	uint32		version;
	uint64		length;			/* bytes of the record */
	uint32		checksum;		/* CRC-32C of the bytes after this head */
} RecordHead;

typedef struct JobRecord
{
	RecordHead	head;
	Job			job;
} JobRecord;

typedef struct SegmentRecord
{
	RecordHead	head;
	JobSegment	segment;
} SegmentRecord;

#define SEGMENTS_AT 2048
#define SEGMENT_BYTES 128
#define SEGMENT_AT(n) (SEGMENTS_AT + (off_t) (n) * SEGMENT_BYTES)
#define PLAN_AT(job) SEGMENT_AT((job)->segments)

StaticAssertDecl(sizeof(JobRecord) <= SEGMENTS_AT, "a job must fit before its segments");
StaticAssertDecl(sizeof(SegmentRecord) <= SEGMENT_BYTES, "a segment must fit in its place");

/* number of finished jobs that are kept */
#define KEPT_JOBS 8

/* the largest number of a job */
#define LARGEST_NUMBER (PG_INT32_MAX - 1)

/* attempts, a millisecond apart, to read a record that is being written */
#define READ_TRIES 100

static const char *const state_names[] = {
	"starting", "waiting", "running", "holding", "done", "failed", "canceled", "interrupted"
};

StaticAssertDecl(lengthof(state_names) == LAST_STATE + 1, "every state must have a name");

const char *
job_state_name(JobState state)
{
	return state_names[state];
}

const char *
job_path(int number)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/%s%d", RESIDENCY_DIR, JOB_PREFIX, number);
	return path;
}

const char *
job_answer_path(int number, Oid database)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/%s%d.%u", RESIDENCY_DIR, ANSWER_PREFIX, number, database);
	return path;
}

const char *
job_names_path(int number)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/%s%d.names", RESIDENCY_DIR, JOB_PREFIX, number);
	return path;
}

/* --- records --- */

static uint32
record_checksum(const RecordHead *record, size_t length)
{
	return sf_crc32c(0, record + 1, length - sizeof(RecordHead));
}

static void
fill_head(RecordHead *record, size_t length)
{
	record->magic = JOB_MAGIC;
	record->version = JOB_VERSION;
	record->length = length;
	record->checksum = record_checksum(record, length);
}

/* false, with errno set, when the write fails */
static bool
write_bytes(int fd, const void *data, size_t length, off_t at)
{
	size_t		done = 0;

	while (done < length)
	{
		ssize_t		n;

		errno = 0;
		n = pg_pwrite(fd, (const char *) data + done, length - done, at + (off_t) done);
		if (n <= 0)
		{
			if (errno == 0)
				errno = ENOSPC;
			return false;
		}
		done += n;
	}
	return true;
}

/* false, with errno set, when the write fails */
static bool
write_record(int fd, RecordHead *record, size_t length, off_t at)
{
	fill_head(record, length);
	return write_bytes(fd, record, length, at);
}

/* false when there is no record of that length, or it is damaged */
static bool
read_record(int fd, RecordHead *record, size_t length, off_t at)
{
	for (int i = 0; i < READ_TRIES; i++)
	{
		if (i > 0)
			pg_usleep(1000);
		for (size_t done = 0; done < length;)
		{
			ssize_t		n = pg_pread(fd, (char *) record + done, length - done, at + (off_t) done);

			if (n <= 0)
				return false;
			done += n;
		}
		if (record->magic != JOB_MAGIC || record->version != JOB_VERSION ||
			record->length != length)
			return false;
		if (record->checksum == record_checksum(record, length))
			return true;
	}
	return false;
}

static void report_damaged(const Job *job) __attribute__((noreturn));

static void
report_damaged(const Job *job)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("job file \"%s\" is damaged", job_path(job->job))));
	pg_unreachable();
}

bool
job_try_write(int fd, const Job *job)
{
	JobRecord	record = {.job = *job};

	return write_record(fd, &record.head, sizeof(record), 0);
}

void
job_write(int fd, const Job *job)
{
	if (!job_try_write(fd, job))
		report_write_error(job_path(job->job));
}

void
job_write_segment(int fd, const Job *job, int n, const JobSegment *segment)
{
	SegmentRecord record = {.segment = *segment};

	if (!write_record(fd, &record.head, sizeof(record), SEGMENT_AT(n)))
		report_write_error(job_path(job->job));
}

void
job_read_segment(int fd, const Job *job, int n, JobSegment *segment)
{
	SegmentRecord record;

	if (!read_record(fd, &record.head, sizeof(record), SEGMENT_AT(n)))
		report_damaged(job);
	*segment = record.segment;
}

/* The record has the bytes of a snapshot file, but for a RecordHead in the place of its header. */
static void
write_plan(int fd, Job *job, const RestorePlan *plan)
{
	size_t		at = SF_HEADER_BYTES;
	RecordHead *record;

	job->plan_bytes = SF_HEADER_BYTES;
	for (int i = 0; i < plan->count; i++)
		job->plan_bytes += plan->segments[i].raw_size;
	record = palloc_extended(job->plan_bytes, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < plan->count; i++)
	{
		memcpy((char *) record + at, plan->segments[i].raw, plan->segments[i].raw_size);
		at += plan->segments[i].raw_size;
	}
	if (!write_record(fd, record, job->plan_bytes, PLAN_AT(job)))
		report_write_error(job_path(job->job));
	pfree(record);
}

/* all at once: a cluster has a thousand segments of catalogs, and nobody reads the file yet */
static void
write_segments(int fd, const Job *job, const RestorePlan *plan)
{
	size_t		length = (size_t) plan->count * SEGMENT_BYTES;
	char	   *records = palloc_extended(length, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (int i = 0; i < plan->count; i++)
	{
		SegmentRecord *record = (SegmentRecord *) (records + (size_t) i * SEGMENT_BYTES);

		record->segment = plan->job_segments[i];
		fill_head(&record->head, sizeof(*record));
	}
	if (!write_bytes(fd, records, length, SEGMENTS_AT))
		report_write_error(job_path(job->job));
	pfree(records);
}

struct sf_segment *
job_read_plan(int fd, const Job *job)
{
	RecordHead *record = palloc_extended(job->plan_bytes, MCXT_ALLOC_HUGE);
	ResidencySnapshot plan = {
		.data = (uint8 *) record,
		.header = {.segments = (uint32) job->segments, .segment_blocks = RELSEG_SIZE,
				   .body_size = job->plan_bytes - SF_HEADER_BYTES}
	};

	if (!read_record(fd, record, job->plan_bytes, PLAN_AT(job)))
		report_damaged(job);
	return snapshot_segments(&plan);
}

void
job_remove_plan(int fd, const Job *job)
{
	/* job_tidy() tries again */
	(void) !ftruncate(fd, PLAN_AT(job));
}

/* --- the files --- */

List *
job_numbers(void)
{
	List	   *numbers = NIL;
	DIR		   *d = AllocateDir(RESIDENCY_DIR);
	struct dirent *entry;

	if (d == NULL && errno == ENOENT)
		return NIL;
	while ((entry = ReadDir(d, RESIDENCY_DIR)) != NULL)
	{
		long		number;
		char	   *end;

		if (strncmp(entry->d_name, JOB_PREFIX, strlen(JOB_PREFIX)) != 0)
			continue;
		number = strtol(entry->d_name + strlen(JOB_PREFIX), &end, 10);
		if (*end == '\0' && number >= 1 && number <= LARGEST_NUMBER)
			numbers = lappend_int(numbers, (int) number);
	}
	FreeDir(d);
	list_sort(numbers, list_int_cmp);
	return numbers;
}

int
job_open(int number)
{
	int			fd = BasicOpenFile(job_path(number), O_RDWR | PG_BINARY);

	if (fd < 0 && errno != ENOENT)
		job_report_unread(ERROR, number);
	if (fd >= 0)
		ReserveExternalFD();
	return fd;
}

/*
 * Links the names file, so that the job keeps it when the snapshot is removed.  Without the link,
 * the job's relations have no names.
 */
static void
link_names(const Job *job)
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
	List	   *numbers = job_numbers();
	int			kept = 0;
	int			oldest = 0;

	for (int i = list_length(numbers) - 1; i >= 0; i--)
	{
		int			number = list_nth_int(numbers, i);
		Job			job;

		if (kept == KEPT_JOBS)
			job_remove(number);
		else if (job_try_read(number, &job))
		{
			/* a worker that was killed has not removed the plan */
			if (!job_is_alive(&job))
				(void) !truncate(job_path(number), PLAN_AT(&job));
			oldest = number;
			kept++;
		}
		/*
		 * A file without a state belongs to a killed starter, or is foreign.  A file that cannot be
		 * opened may be a job's: the reason may be temporary, such as a lack of descriptors.
		 */
		else if (errno == ENOENT)
			job_remove(number);
	}
	remove_files_beginning(ANSWER_PREFIX);
	return kept == KEPT_JOBS ? oldest : 0;
}

/* Skips the numbers of abandoned starts too: a late worker would take the new job for its own. */
static int
next_number(int lock)
{
	List	   *numbers = job_numbers();
	int			last = Max(residency_tag(lock, LAST_JOB), 0);

	if (numbers != NIL)
		last = Max(last, llast_int(numbers));
	if (last >= LARGEST_NUMBER)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("out of job numbers"),
				 errhint("Stop the server and remove the files \"%s*\".", RESIDENCY_TEMP_PREFIX)));
	residency_set_tag(lock, LAST_JOB, last + 1);
	residency_set_tag(lock, LOCK_START, last + 1);
	return last + 1;
}

void
job_create(Job *job, const RestorePlan *plan, int lock)
{
	int			fd;

	job->job = next_number(lock);
	job->segments = plan->count;
	job->wanted = plan->wanted;
	strlcpy(job->snapshot, plan->label, sizeof(job->snapshot));
	fd = OpenTransientFile(job_path(job->job), O_RDWR | O_CREAT | O_EXCL | PG_BINARY);
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", job_path(job->job))));
	write_plan(fd, job, plan);
	write_segments(fd, job, plan);
	link_names(job);
	/* written last: without it, the file is no job */
	job_write(fd, job);
	CloseTransientFile(fd);
}

bool
job_exists(int number)
{
	return access(job_path(number), F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
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
	/* the job's file is removed last: its names are found by the number of an existing job */
	if (try_remove(job_names_path(number)))
		(void) try_remove(job_path(number));
}

/* false, with errno set, when the file cannot be opened; ENOENT also when it is no job */
static bool
read_job(int number, Job *job)
{
	JobRecord	record;
	bool		valid;
	/* without O_NONBLOCK a FIFO would block until a writer opens it */
	int			fd = OpenTransientFile(job_path(number), O_RDONLY | O_NONBLOCK | PG_BINARY);

	if (fd < 0)
		return false;
	valid = read_record(fd, &record.head, sizeof(record), 0) && record.job.job == number;
	CloseTransientFile(fd);
	if (valid)
		*job = record.job;
	errno = ENOENT;
	return valid;
}

bool
job_try_read(int number, Job *job)
{
	JobState	before = JOB_INTERRUPTED;	/* not a state of a job that is alive */

	for (;;)
	{
		if (!read_job(number, job))
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
job_report_unread(int elevel, int number)
{
	ereport(elevel,
			(errcode_for_file_access(),
			 errmsg("could not open file \"%s\": %m", job_path(number))));
}

bool
job_read(int number, Job *job)
{
	if (job_try_read(number, job))
		return true;
	if (errno != ENOENT)
		job_report_unread(ERROR, number);
	return false;
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

JobSegment *
job_read_segments(int number, Job *job)
{
	JobSegment *segments;
	int			fd;

	if (!job_read(number, job))
		report_no_job(number);
	fd = OpenTransientFile(job_path(number), O_RDONLY | PG_BINARY);
	if (fd < 0 && errno == ENOENT)
		report_no_job(number);
	if (fd < 0)
		job_report_unread(ERROR, number);
	segments = palloc_extended(job->segments * sizeof(JobSegment), MCXT_ALLOC_HUGE);
	for (int i = 0; i < job->segments; i++)
	{
		CHECK_FOR_INTERRUPTS();
		job_read_segment(fd, job, i, &segments[i]);
	}
	CloseTransientFile(fd);
	return segments;
}
