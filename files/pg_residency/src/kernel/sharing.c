/*
 * sharing.c - how a load shares its device with other processes
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sharing.h"
#include "priority.h"

#include <sys/stat.h>
#include <time.h>

/*
 * microseconds between two counts of other processes' requests; and how many of our own requests
 * are sent but not yet completed at any time
 */
#define WATCH_EVERY 50000
#define ALWAYS_BETWEEN 8

/*
 * Bytes of other processes between two counts, which may be one request; and for how long, in
 * microseconds, the device counts as used then: recovery applies what it has read, then reads on
 */
#define USED_BYTES (1024 * 1024)
#define USED_FOR 1000000

/* microseconds between two requests while a load gives way, and between two looks meanwhile */
#define GIVEN_WAY 500000
#define LOOK_EVERY 5000

/* requests per second, more than a spinning disk or most volumes limited in requests complete */
#define QUICK_REQUESTS 4000

/* microseconds */
#define STAYS_QUICK 500000

/*
 * microseconds between two looks at the device's scheduler; for how long, in microseconds, the
 * device may give a load in the idle class less than PC_FLOOR; and how much of that time is made up
 * for at most, which is more than one wait for mq-deadline
 */
#define SCHEDULER_EVERY 1000000
#define BELOW_FLOOR 3000000
#define MADE_UP_FOR 30000000

int64_t
pc_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static void
look_up_device(struct pc_sharing *sharing, int fd)
{
	struct stat st;

	if (!sharing->looked_up && fstat(fd, &st) == 0)
	{
		sharing->device = st.st_dev;
		sharing->largest_request = pc_device_largest_request(st.st_dev);
	}
	sharing->looked_up = true;
}

bool
pc_can_watch(struct pc_sharing *sharing, int fd)
{
	look_up_device(sharing, fd);
	return sharing->largest_request > 0;
}

/* --- priority --- */

/* whether the next request can go into the idle class */
static bool
goes_idle(struct pc_sharing *sharing, int fd)
{
	int64_t		now = pc_now();

	if (sharing->scheduler_at == 0 || now - sharing->scheduler_at >= SCHEDULER_EVERY)
	{
		look_up_device(sharing, fd);
		pc_device_scheduler(sharing->device, sharing->scheduler);
		sharing->scheduler_at = now;
	}
	return !sharing->refused && !sharing->raised &&
		pc_scheduler_has_classes(sharing->scheduler);
}

int
pc_lower_for_requests(struct pc_sharing *sharing, int fd, bool idle, uint64_t bytes)
{
	int			former = -1;

	/* the scheduler is looked up in any case */
	if (goes_idle(sharing, fd) && idle)
	{
		former = pc_priority_lower();
		sharing->refused = former < 0;
	}
	sharing->idle = former >= 0;
	if (sharing->idle)
		sharing->idle_bytes += bytes;
	else
		sharing->own_bytes += bytes;
	return former;
}

void
pc_note_arrival(struct pc_sharing *sharing, int64_t sent_at, uint32_t bytes, int64_t now)
{
	int64_t		since = sharing->arrived_at > sent_at ? sharing->arrived_at : sent_at;

	sharing->arrived_at = now;
	sharing->owed += (double) (now - since) * PC_FLOOR / 1e6 - bytes;
	if (sharing->owed <= 0)
	{
		sharing->owed = 0;
		sharing->raised = false;
	}
	else if (sharing->owed > (double) PC_FLOOR * BELOW_FLOOR / 1e6)
		sharing->raised = true;
	if (sharing->owed > (double) PC_FLOOR * MADE_UP_FOR / 1e6)
		sharing->owed = (double) PC_FLOOR * MADE_UP_FOR / 1e6;
}

/* --- other processes --- */

bool
pc_yields(const struct pc_sharing *sharing, bool gives_way)
{
	return (gives_way && pc_is_used(sharing)) ||
		   (sharing->idle && sharing->quick && sharing->owed < PC_FLOOR &&
			pc_now() < sharing->shared_until);
}

bool
pc_give_way(struct pc_sharing *sharing, int fd, const bool *gives_way,
			bool (*wait) (void *arg, long microseconds), void *arg)
{
	int64_t		until = pc_now() + GIVEN_WAY;

	while (*gives_way)
	{
		pc_watch_others(sharing, fd);
		if (!pc_is_used(sharing) || pc_now() >= until)
			break;
		if (wait(arg, LOOK_EVERY))
			return true;
	}
	return false;
}

bool
pc_stays_quick(const struct pc_sharing *sharing)
{
	return sharing->quick_since != 0 && pc_now() - sharing->quick_since >= STAYS_QUICK;
}

bool
pc_is_used(const struct pc_sharing *sharing)
{
	return pc_now() < sharing->used_until;
}

void
pc_count_sent(struct pc_sharing *sharing, uint32_t bytes)
{
	sharing->sent.bytes += bytes;
	if (sharing->largest_request > 0)
		sharing->sent.requests += (bytes + sharing->largest_request - 1) / sharing->largest_request;
}

void
pc_watch_others(struct pc_sharing *sharing, int fd)
{
	int64_t		now = pc_now();
	struct pc_completed completed;
	struct pc_completed sent = sharing->sent;
	uint64_t	requests;
	uint64_t	bytes;

	if (!pc_can_watch(sharing, fd))
	{
		sharing->shared_until = INT64_MAX;
		return;
	}
	if (now - sharing->watched_at < WATCH_EVERY ||
		!pc_device_completed(sharing->device, &completed))
		return;
	requests = completed.requests - sharing->completed.requests;
	bytes = completed.bytes - sharing->completed.bytes;
	if (sharing->watched_at == 0)
		sharing->used_until = now + USED_FOR;
	else
	{
		bool		shared = requests > sent.requests + sent.requests / 16 + ALWAYS_BETWEEN;

		if (shared && sharing->shared_until < now + 4 * WATCH_EVERY)
			sharing->shared_until = now + 4 * WATCH_EVERY;
		if (shared || bytes > sent.bytes + sent.bytes / 16 + USED_BYTES)
			sharing->used_until = now + USED_FOR;
		sharing->quick = requests >=
			(uint64_t) (now - sharing->watched_at) * QUICK_REQUESTS / 1000000;
		if (!sharing->quick)
			sharing->quick_since = 0;
		else if (sharing->quick_since == 0)
			sharing->quick_since = now;
	}
	sharing->watched_at = now;
	sharing->completed = completed;
	sharing->sent = (struct pc_completed) {0};
}
