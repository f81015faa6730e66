/*
 * flight.c - the requests of a load that are in flight, and whether they have arrived
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "flight.h"
#include "page_cache.h"
#include "priority.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * microseconds between two looks at a request: about the cost of a sleep, and too short for a fast
 * device to read much
 */
#define SHORTEST_PAUSE 20
#define LONGEST_PAUSE 5000

/*
 * Microseconds after which a request's blocks are read: the kernel may have dropped the request.
 * The read sleeps uninterruptibly until the request arrives, so a request of the idle class that
 * others keep waiting gets more time than mq-deadline makes it wait (prio_aging_expire, 10 s).
 */
#define PATIENCE 2000000
#define PATIENCE_IDLE 15000000
/* without cachestat a slow request cannot be distinguished from a dropped one */
#define PATIENCE_UNSEEN 250000

/* a request, plus what rounding to whole pages of up to 64 KiB may add */
#define BUFFER_BYTES (PC_MAX_REQUEST_BYTES + 2 * 65536)
#define BUFFER_PAGES (BUFFER_BYTES / 4096)

/*
 * Requests in flight of which the older half is awaited at once, but no more than MOST_AT_ONCE, and
 * only if they usually take less than QUICK, in microseconds: the caller is blocked meanwhile
 */
#define MANY_REQUESTS 16
#define MOST_AT_ONCE 32
#define QUICK 50000

/* pages of a request that mincore(2) examines as fast as one */
#define FEW_PAGES 16

/* microseconds for which the kernel may block the caller, who cannot stop the load meanwhile */
#define LONGEST_BLOCK 250000

struct pc_request *
pc_in_flight(struct pc_flight *flight, uint32_t n)
{
	return &flight->requests[(flight->first + n) % PC_MAX_REQUESTS];
}

void
pc_tell_blocked(const struct pc_loader *loader, bool begins)
{
	if (loader->blocked)
		loader->blocked(loader->arg, begins);
}

/* the number of pages of the request */
static size_t
request_pages(const struct pc_request *r)
{
	return (r->length + pc_page_size() - 1) / pc_page_size();
}

void
pc_watch_for(struct pc_flight *flight, const struct pc_file *file)
{
	if (file->loader->window->large == PC_LARGE_WHEN_ALONE)
		pc_watch_others(&flight->sharing, file->fd);
}

bool
pc_is_fast(const struct pc_flight *flight)
{
	return flight->usual > 0 && flight->usual < LONGEST_BLOCK;
}

bool
pc_has_arrived(struct pc_request *r)
{
	unsigned char *at = r->file->mapping + r->offset;
	size_t		page = pc_page_size();
	size_t		pages = request_pages(r);
	unsigned char vec[BUFFER_PAGES];

	if (pages > FEW_PAGES &&
		(mincore(at + r->awaited * page, page, vec) != 0 || !(vec[0] & 1)))
		return false;
	if (mincore(at, r->length, vec) != 0)
		return false;
	for (size_t i = 0; i < pages; i++)
		if (!(vec[i] & 1))
		{
			r->awaited = (uint32_t) i;
			return false;
		}
	return true;
}

/* whether other processes may keep the request waiting for seconds */
static bool
may_starve(const struct pc_flight *flight, const struct pc_request *r)
{
	return r->idle && pc_now() < flight->sharing.shared_until;
}

/* reads the request's missing pages, once; with the caller's own priority where that may block */
static void
read_missing(struct pc_flight *flight, const struct pc_request *r)
{
	unsigned char vec[BUFFER_PAGES];
	struct pc_file *file = r->file;
	size_t		page = pc_page_size();
	size_t		pages = request_pages(r);
	int			former;

	if (flight->buffer == NULL && (flight->buffer = malloc(BUFFER_BYTES)) == NULL)
	{
		file->error = file->error ? file->error : -ENOMEM;
		return;
	}
	if (mincore(file->mapping + r->offset, r->length, vec) != 0)
		return;
	former = pc_lower_for_requests(&flight->sharing, file->fd,
								   file->loader->window->idle && !may_starve(flight, r), 0);
	for (size_t from = 0; from < pages;)
	{
		size_t		to = from;

		while (to < pages && !(vec[to] & 1))
			to++;
		if (to > from && pread(file->fd, flight->buffer, (to - from) * page,
							   (off_t) (r->offset + from * page)) < 0)
			file->error = file->error ? file->error : -errno;
		from = to + 1;
	}
	pc_priority_restore(former);
}

/*
 * How long to sleep before the next look at the oldest request: half of the usual duration, so that
 * the average can fall, then small steps.
 */
static long
next_pause(const struct pc_flight *flight, const struct pc_request *r, int64_t now)
{
	int64_t		step = flight->usual / 8;
	int64_t		due = r->sent_at + flight->usual / 2 - now;

	if (step < due)
		step = due;
	if (step < SHORTEST_PAUSE)
		return SHORTEST_PAUSE;
	return step > LONGEST_PAUSE ? LONGEST_PAUSE : (long) step;
}

/*
 * Waits in the kernel for the request: a read of one byte returns when its page has arrived.  Pages
 * still missing then were dropped when the request was sent.
 */
static void
await_in_kernel(struct pc_flight *flight, struct pc_request *r)
{
	char		byte;

	if (pc_has_arrived(r))
		return;
	pc_tell_blocked(r->file->loader, true);
	(void) !pread(r->file->fd, &byte, 1,
				  (off_t) (r->offset + (uint64_t) r->awaited * pc_page_size()));
	if (!pc_has_arrived(r))
		read_missing(flight, r);
	pc_tell_blocked(r->file->loader, false);
}

enum awaited
{
	AWAITED,
	AWAITED_STOPPED,
	AWAITED_LATER				/* first those that are sent with the caller's own priority now */
};

/* waits for the oldest request by repeated looks */
static enum awaited
await_by_looking(struct pc_flight *flight, struct pc_request *r)
{
	const struct pc_loader *loader = r->file->loader;
	bool		raised = flight->sharing.raised;
	int64_t		begin = pc_now();

	for (unsigned looks = 1; !pc_has_arrived(r); looks++)
	{
		int64_t		now = pc_now();
		bool		starves = may_starve(flight, r);
		int64_t		patience = starves ? PATIENCE_IDLE :
			loader->use_cachestat ? PATIENCE : PATIENCE_UNSEEN;
		bool		look = (looks & (looks - 1)) == 0;
		struct pc_stat st;

		/*
		 * Pages in flight are counted already: a smaller count means that some were never
		 * requested.
		 */
		if (now > begin + patience || (loader->use_cachestat && look &&
									   pc_cachestat(r->file->fd, r->offset, r->length, &st) == 0 &&
									   st.cached < request_pages(r)))
		{
			read_missing(flight, r);
			break;
		}
		/* without cachestat: requests what was dropped, and only that */
		if (starves && !loader->use_cachestat && look && now > begin + PATIENCE_UNSEEN)
			posix_fadvise(r->file->fd, (off_t) r->offset, r->length, POSIX_FADV_WILLNEED);
		pc_note_arrival(&flight->sharing, r->sent_at, 0, now);
		if (r->idle && flight->sharing.raised && !raised)
			return AWAITED_LATER;
		pc_watch_for(flight, r->file);
		if (loader->wait(loader->arg, next_pause(flight, r, now)))
			return AWAITED_STOPPED;
	}
	return AWAITED;
}

void
pc_pass_idle(struct pc_flight *flight)
{
	uint32_t	n = 0;
	struct pc_request r;

	if (!flight->sharing.raised)
		return;
	while (n < flight->count && pc_in_flight(flight, n)->idle)
		n++;
	if (n == flight->count)
		return;
	r = *pc_in_flight(flight, n);
	for (; n > 0; n--)
		*pc_in_flight(flight, n) = *pc_in_flight(flight, n - 1);
	*pc_in_flight(flight, 0) = r;
}

/* moving average of the duration of a request, which was seen to have arrived */
static void
note_duration(struct pc_flight *flight, const struct pc_request *r)
{
	flight->usual += (pc_now() - r->sent_at - flight->usual) / (flight->usual == 0 ? 1 : 8);
}

static void
release_oldest(struct pc_flight *flight)
{
	struct pc_request *r = pc_in_flight(flight, 0);
	const struct pc_loader *loader = r->file->loader;

	pc_note_arrival(&flight->sharing, r->sent_at, r->length, pc_now());
	flight->bytes -= r->length;
	flight->first = (flight->first + 1) % PC_MAX_REQUESTS;
	flight->count--;
	r->file->in_flight--;
	if (loader->progress)
		loader->progress(loader->arg, r->blocks);
}

uint32_t
pc_next_awaited(struct pc_flight *flight)
{
	uint32_t	half = flight->count / 2;

	if (flight->count < MANY_REQUESTS || flight->usual > QUICK || flight->sharing.raised ||
		!pc_in_flight(flight, 0)->file->loader->loads_again)
		return 0;
	return half < MOST_AT_ONCE ? half : MOST_AT_ONCE - 1;
}

bool
pc_finish_oldest(struct pc_flight *flight)
{
	const struct pc_loader *loader;
	struct pc_request *r;
	uint32_t	n;
	enum awaited awaited = AWAITED;

	pc_pass_idle(flight);
	n = pc_next_awaited(flight);
	r = pc_in_flight(flight, n);
	loader = r->file->loader;
	/*
	 * In the idle class a request may wait for seconds, in which the load has to be stoppable, from
	 * the moment on in which another process begins to use the device.
	 */
	if (loader->window->blocks_in_kernel && !r->file->read_ahead && pc_is_fast(flight) &&
		!r->idle && !loader->wait(loader->arg, 0))
		await_in_kernel(flight, r);
	else
		awaited = await_by_looking(flight, r);
	if (awaited == AWAITED_STOPPED)
		flight->stopped = true;
	if (awaited != AWAITED)
		return flight->stopped;
	note_duration(flight, r);
	do
		release_oldest(flight);
	while (n-- > 0 && pc_in_flight(flight, 0)->file->loader->loads_again);
	return false;
}
