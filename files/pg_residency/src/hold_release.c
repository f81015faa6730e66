/*
 * hold_release.c - how a session that evicts gets a holding job to let go of the relation
 */
#include "hold_release.h"

#include <unistd.h>

#include "miscadmin.h"

#include "directory.h"
#include "interrupts.h"
#include "job_file.h"

/* milliseconds to wait for another session's request, and for the worker's answer */
#define PATIENCE 10000

/* microseconds between two looks whether the worker, which sets the latch, still runs */
#define PAUSE 100000

/* false if no job holds, or will when it has restored */
static bool
find_holding(Job *job)
{
	ListCell   *cell;

	foreach(cell, job_numbers())
	{
		if (job_try_read(lfirst_int(cell), job))
		{
			if (job_has_begun(job) && job->settings.hold_until != 0)
				return true;
		}
		else if (errno != ENOENT)
			job_report_unread(WARNING, lfirst_int(cell));
	}
	return false;
}

/* whether the job has released the relation */
static bool
ask(int lock, const Job *job, const SegmentId *id)
{
	int32		request = (int32) ((uint32) residency_tag(lock, MESSAGE_REQUEST) + 1);
	/* in the order of the tags */
	int32		all[] = {(int32) id->tablespace, (int32) id->database, (int32) id->relfilenumber,
	request};
	int64		until = patience_until(PATIENCE);

	residency_set_tags(lock, MESSAGE_TABLESPACE, all, lengthof(all));
	wake_process(job->pid);
	while (residency_tag(lock, MESSAGE_ANSWER) != request &&
		   residency_is_locked(LOCK_RESTORE, job->job))
	{
		if (patience_is_over(until))
		{
			ereport(WARNING,
					(errmsg("job %d, which may hold the relation in the page cache, does not answer",
							job->job),
					 errhint("Cancel it with residency_cancel(%d), and evict the relation again.",
							 job->job)));
			return false;
		}
		sleep_or_wake(PAUSE, compat_wait_event("ResidencyRelease"));
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

bool
release_relation(const SegmentId *id)
{
	Job			job;
	int			lock;
	volatile bool released = false;

	if (!find_holding(&job))
		return true;
	lock = residency_lock(LOCK_RELEASE, MyProcPid, PATIENCE);
	if (lock < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another session waits for job %d to release a relation", job.job)));
	PG_TRY();
	{
		released = ask(lock, &job, id);
	}
	PG_FINALLY();
	{
		residency_unlock(lock);
	}
	PG_END_TRY();
	return released;
}

void
release_begin(int lock)
{
	residency_set_tag(lock, MESSAGE_ANSWER, residency_tag(lock, MESSAGE_REQUEST));
}

bool
release_asked(int lock, int32 *request, SegmentId *id)
{
	int32		all[4];

	residency_get_tags(lock, MESSAGE_TABLESPACE, all, lengthof(all));
	*request = all[3];
	if (*request == residency_tag(lock, MESSAGE_ANSWER))
		return false;
	memset(id, 0, sizeof(*id));
	id->tablespace = (Oid) all[0];
	id->database = (Oid) all[1];
	id->relfilenumber = (RelFileNumber) all[2];
	return true;
}

void
release_answer(int lock, int32 request)
{
	/* a failure leaves the session without an answer, and it says so */
	(void) residency_try_set_tag(lock, MESSAGE_ANSWER, request);
	wake_process(residency_tag(lock, LOCK_RELEASE));
}
