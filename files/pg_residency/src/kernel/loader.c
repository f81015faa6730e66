/*
 * loader.c - loads blocks of one file into the page cache, gently
 *
 * A file is requested run by run, and a run in three parts, so that the tail has arrived when the
 * large folios have:
 *
 *   next_run() -> head, single pages -> tail, single pages -> middle, large folios -> next_run()
 *                 (send_next)           (send_next)           (send_large)
 *
 * In a window without large folios the head is the whole run.  Single pages are sent as requests
 * that make_room() admits to the window.  A flight, which is all requests in flight from a device,
 * is in one of these states, which follow from `stretch` and `shared_until`:
 *
 *              the oldest request has arrived,
 *              and the newest as well: +0.5               another process's request is counted
 *   WINDOW  --------------------------------->  STRETCHED ------------------------------------+
 *     ^  ^                                         |  ^                                       |
 *     |  +-----------------------------------------+  | no other one for 4 * WATCH_EVERY,     |
 *     |        the device is busy: less and less      | or LEFT_ALONE * a folio's time        v
 *     |                                               +------------------------------------ SHARED
 *     +-- window->stretch == 1: it stays here                (shared_until; the window, no folios)
 *
 *   WINDOW and STRETCHED load a large folio as soon as nothing else is in flight, and watch the
 *   device meanwhile (populate_and_watch); SHARED leaves the middle of a run to single pages, in a
 *   smaller window while the load yields.  In every state, wait() returning true leads to
 *   `stopped`, which is final.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "loader.h"
#include "page_cache.h"
#include "priority.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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

/* missing in older headers */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* the size of a large folio; and how far the kernel may read ahead, not beyond the run */
#define LARGE_BYTES (2 * 1024 * 1024)
#define READ_AHEAD_BYTES(device_bytes) (2 * (uint64_t) (device_bytes) + 2 * LARGE_BYTES)

/*
 * After a conflict of a large folio with another process, the next one is tried after that many
 * times its duration.
 */
#define LEFT_ALONE 200

/* microseconds for which the kernel may block the caller, who cannot stop the load meanwhile */
#define LONGEST_BLOCK 250000

const struct pc_window pc_gentle = {256 * 1024, 512 * 1024, 32, PC_LARGE_WHEN_ALONE, 3, true, true};
const struct pc_window pc_aggressive = {
	PC_MAX_REQUEST_BYTES, 16 * PC_MAX_REQUEST_BYTES, PC_MAX_REQUESTS, PC_LARGE_ALWAYS, 1, true
};

static void
tell_blocked(const struct pc_loader *loader, bool begins)
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

/*
 * Whether the whole request is resident.  If not, vec has one byte per page, or only vec[0] is 0.
 * Until the page is resident that arrived last in earlier requests, only that page is examined.
 */
static bool
has_arrived(struct pc_request *r, unsigned char *vec)
{
	unsigned char *at = r->file->mapping + r->offset;
	size_t		page = pc_page_size();
	size_t		pages = request_pages(r);

	vec[0] = 0;
	if (mincore(at + r->awaited * page, page, vec) != 0 || !(vec[0] & 1))
	{
		vec[0] = 0;
		return false;
	}
	if (mincore(at, r->length, vec) != 0)
	{
		vec[0] = 0;
		return false;
	}
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

static void
watch_others(struct pc_flight *flight, const struct pc_file *file)
{
	if (file->loader->window->large == PC_LARGE_WHEN_ALONE)
		pc_watch_others(&flight->sharing, file->fd);
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
await_in_kernel(struct pc_flight *flight, struct pc_request *r, unsigned char *vec)
{
	char		byte;

	if (has_arrived(r, vec))
		return;
	tell_blocked(r->file->loader, true);
	(void) !pread(r->file->fd, &byte, 1,
				  (off_t) (r->offset + (uint64_t) r->awaited * pc_page_size()));
	if (!has_arrived(r, vec))
		read_missing(flight, r);
	tell_blocked(r->file->loader, false);
}

/* whether requests take so little time, as far as is known, that the kernel may block the caller */
static bool
is_fast(const struct pc_flight *flight)
{
	return flight->usual > 0 && flight->usual < LONGEST_BLOCK;
}

enum awaited
{
	AWAITED,
	AWAITED_STOPPED,
	AWAITED_LATER				/* first those that are sent with the caller's own priority now */
};

/* waits for the oldest request by repeated looks */
static enum awaited
await_by_looking(struct pc_flight *flight, struct pc_request *r, unsigned char *vec)
{
	const struct pc_loader *loader = r->file->loader;
	bool		raised = flight->sharing.raised;
	int64_t		begin = pc_now();

	for (unsigned looks = 1; !has_arrived(r, vec); looks++)
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
		watch_others(flight, r->file);
		if (loader->wait(loader->arg, next_pause(flight, r, now)))
			return AWAITED_STOPPED;
	}
	return AWAITED;
}

static struct pc_request *
in_flight(struct pc_flight *flight, uint32_t n)
{
	return &flight->requests[(flight->first + n) % PC_MAX_REQUESTS];
}

/*
 * While the load makes up for too little, requests with the caller's own priority pass those of the
 * idle class: the latter stay in the device's queue, and are not awaited.
 */
static void
pass_idle(struct pc_flight *flight)
{
	uint32_t	n = 0;
	struct pc_request r;

	if (!flight->sharing.raised)
		return;
	while (n < flight->count && in_flight(flight, n)->idle)
		n++;
	if (n == flight->count)
		return;
	r = *in_flight(flight, n);
	for (; n > 0; n--)
		*in_flight(flight, n) = *in_flight(flight, n - 1);
	*in_flight(flight, 0) = r;
}

/*
 * Waits for the oldest request; true when stopped.  The request is still in flight if requests with
 * the caller's own priority may pass it from now on.
 */
static bool
finish_oldest(struct pc_flight *flight)
{
	struct pc_request *r = &flight->requests[flight->first];
	const struct pc_loader *loader;
	unsigned char vec[BUFFER_PAGES];
	enum awaited awaited = AWAITED;
	struct pc_file *file;
	uint32_t	blocks;
	int64_t		now;

	pass_idle(flight);
	loader = r->file->loader;
	/*
	 * In the idle class a request may wait for seconds, in which the load has to be stoppable, from
	 * the moment on in which another process begins to use the device.
	 */
	if (loader->window->blocks_in_kernel && !r->file->read_ahead && is_fast(flight) &&
		!r->idle && !loader->wait(loader->arg, 0))
		await_in_kernel(flight, r, vec);
	else
		awaited = await_by_looking(flight, r, vec);
	if (awaited == AWAITED_STOPPED)
		flight->stopped = true;
	if (awaited != AWAITED)
		return flight->stopped;
	now = pc_now();
	pc_note_arrival(&flight->sharing, r->sent_at, r->length, now);
	/* moving average of the duration of a request */
	flight->usual += (now - r->sent_at - flight->usual) / (flight->usual == 0 ? 1 : 8);
	file = r->file;
	blocks = r->blocks;
	flight->bytes -= r->length;
	flight->first = (flight->first + 1) % PC_MAX_REQUESTS;
	flight->count--;
	file->in_flight--;
	if (loader->progress)
		loader->progress(loader->arg, blocks);
	return false;
}

/* a window, or the maximum of a request: smaller while the load yields to other processes */
static uint32_t
while_yielding(const struct pc_flight *flight, const struct pc_window *window, uint32_t bytes)
{
	return pc_yields(&flight->sharing, window->gives_way) ? bytes / PC_YIELDING : bytes;
}

/* whether one more request of that length fits into the window, stretched that many times */
static bool
has_room(struct pc_flight *flight, const struct pc_window *window, uint32_t length,
		 double stretch)
{
	uint32_t	count = flight->count;
	uint64_t	bytes = flight->bytes;

	for (uint32_t n = 0; flight->sharing.raised && n < flight->count; n++)
		if (in_flight(flight, n)->idle)
		{
			count--;
			bytes -= in_flight(flight, n)->length;
		}
	return count == 0 || (count < window->requests * stretch &&
						  (double) (bytes + length) <=
							  while_yielding(flight, window, window->bytes) * stretch);
}

/*
 * Makes room for one more request.  If the newest request has already arrived when the oldest is
 * seen to have, the device was idle: then the window is stretched, step by step, unless other
 * processes use the device.  While the device is busy, the window shrinks to its normal size again.
 */
static int
make_room(struct pc_flight *flight, const struct pc_window *window, uint32_t length, bool wait)
{
	for (;;)
	{
		const struct pc_request *newest = in_flight(flight, flight->count - 1);
		double		stretch = pc_now() < flight->sharing.shared_until ? 1 : 1 + flight->stretch;
		unsigned char vec[BUFFER_PAGES];
		unsigned char arrived = 0;

		pass_idle(flight);
		if (has_room(flight, window, length, stretch))
			return 0;
		if (!wait && !has_arrived(in_flight(flight, 0), vec))
		{
			pc_note_arrival(&flight->sharing, in_flight(flight, 0)->sent_at, 0, pc_now());
			return PC_FULL;
		}
		if (finish_oldest(flight))
			return PC_STOPPED;
		if (flight->count == 0 || newest->sent_at == flight->early_sent_at)
			continue;
		if (mincore(newest->file->mapping + newest->offset + newest->awaited * pc_page_size(),
					pc_page_size(), &arrived) == 0 &&
			(arrived & 1))
		{
			flight->early_sent_at = newest->sent_at;
			flight->stretch += 0.5;
			if (flight->stretch > window->stretch - 1)
				flight->stretch = window->stretch - 1;
		}
		else
			flight->stretch -= flight->stretch / 64;
	}
}

/*
 * sends one request as soon as the window has room for it; without `wait`, returns PC_FULL instead
 * of waiting
 */
static int
submit(struct pc_flight *flight, struct pc_request *r, bool wait)
{
	const struct pc_loader *loader = r->file->loader;
	int			rc = make_room(flight, loader->window, r->length, wait);
	bool		idle;
	int			former;

	if (rc != 0)
		return rc;
	if (pc_take_tokens(loader->pace, r->length, loader->wait, loader->arg) ||
		pc_give_way(&flight->sharing, r->file->fd, &loader->window->gives_way, loader->wait,
					loader->arg) || loader->wait(loader->arg, 0))
	{
		flight->stopped = true;
		return PC_STOPPED;
	}
	r->awaited = (uint32_t) request_pages(r) - 1;
	idle = loader->window->idle &&
		(!loader->window->idle_if_quick || pc_stays_quick(&flight->sharing));
	former = pc_lower_for_requests(&flight->sharing, r->file->fd, idle, r->length);
	r->idle = former >= 0;
	r->sent_at = pc_now();
	rc = posix_fadvise(r->file->fd, (off_t) r->offset, r->length, POSIX_FADV_WILLNEED);
	pc_priority_restore(former);
	if (rc != 0 && r->file->error == 0)
		r->file->error = -rc;
	*in_flight(flight, flight->count) = *r;
	flight->count++;
	flight->bytes += r->length;
	r->file->in_flight++;
	if (loader->window->large == PC_LARGE_WHEN_ALONE)
		pc_count_sent(&flight->sharing, r->length);
	watch_others(flight, r->file);
	return 0;
}

/*
 * The middle of a long run is loaded as large folios, where the kernel and the file system support
 * them: WILLNEED creates only single pages, each of which costs about as much CPU as reading it.
 * Sets large_from .. large_to - 1, whole folios.
 */
static void
choose_large(struct pc_file *file)
{
	const struct pc_loader *loader = file->loader;
	uint64_t ahead =
		loader->window->large == PC_LARGE_ALWAYS ? READ_AHEAD_BYTES(loader->request_bytes) : 0;
	uint64_t from =
		((uint64_t) file->at * loader->block_size + LARGE_BYTES - 1) / LARGE_BYTES * LARGE_BYTES;
	uint64_t	to = (uint64_t) file->run_end * loader->block_size;

	file->to = file->large_from = file->large_to = file->tail = file->run_end;
	if (loader->window->large == PC_LARGE_NEVER || !loader->window->blocks_in_kernel ||
		LARGE_BYTES % loader->block_size != 0 || from + 2 * ahead + LARGE_BYTES > to)
		return;
	file->large_from = (uint32_t) (from / loader->block_size);
	file->large_to = file->tail =
		(uint32_t) ((to - ahead) / LARGE_BYTES * LARGE_BYTES / loader->block_size);
	file->to = file->large_from;
}

/* finds the next run of wanted blocks, including gaps worth reading; false when there is none */
static bool
next_run(struct pc_file *file)
{
	uint32_t	next = pc_next(file->want, file->nblocks, file->run_end, true);

	if (next >= file->nblocks)
		return false;
	file->at = next;
	do
	{
		file->run_end = pc_next(file->want, file->nblocks, next, false);
		next = pc_next(file->want, file->nblocks, file->run_end, true);
	} while (next < file->nblocks && next - file->run_end <= file->loader->gap_blocks);
	choose_large(file);
	return true;
}

/* loads the next large folio; true on success.  `ahead`: the kernel may read ahead meanwhile. */
static bool
populate(struct pc_flight *flight, struct pc_file *file, bool ahead)
{
	const struct pc_loader *loader = file->loader;
	int64_t		begin = pc_now();
	void *addr = mmap(NULL, LARGE_BYTES, PROT_READ, MAP_SHARED, file->fd,
					  (off_t) file->large_from * loader->block_size);
	bool		done;

	if (addr == MAP_FAILED)
		return false;
	posix_fadvise(file->fd, 0, 0, POSIX_FADV_NORMAL);
	file->read_ahead |= ahead;
	tell_blocked(loader, true);
	/*
	 * With the caller's own priority, because the caller cannot be stopped meanwhile: no other
	 * process used the device a moment ago.
	 */
	done = madvise(addr, LARGE_BYTES, MADV_HUGEPAGE) == 0 &&
		   (ahead || madvise(addr, LARGE_BYTES, MADV_RANDOM) == 0) &&
		   madvise(addr, LARGE_BYTES, MADV_POPULATE_READ) == 0;
	tell_blocked(loader, false);
	pc_note_arrival(&flight->sharing, begin, done ? LARGE_BYTES : 0, pc_now());
	munmap(addr, LARGE_BYTES);
	posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
	return done;
}

/*
 * The same, but detects other processes: nothing else is in flight, so when the device completes
 * more requests than the folio takes, another process uses it.
 */
static bool
populate_and_watch(struct pc_flight *flight, struct pc_file *file)
{
	struct pc_sharing *sharing = &flight->sharing;
	int64_t		begin = pc_now();
	uint64_t	sent = sharing->sent.requests;
	struct pc_completed before;
	struct pc_completed after;

	if (!pc_can_watch(sharing, file->fd) || !pc_device_completed(sharing->device, &before) ||
		!populate(flight, file, false))
		return false;
	pc_count_sent(sharing, LARGE_BYTES);
	if (!pc_device_completed(sharing->device, &after) ||
		after.requests - before.requests != sharing->sent.requests - sent)
		sharing->shared_until = pc_now() + LEFT_ALONE * (pc_now() - begin);
	return true;
}

/* loads the next large folio, or leaves it to single pages; true when stopped */
static bool
send_large(struct pc_flight *flight, struct pc_file *file)
{
	const struct pc_loader *loader = file->loader;
	uint32_t	blocks = LARGE_BYTES / loader->block_size;
	bool		watch = loader->window->large == PC_LARGE_WHEN_ALONE;
	uint32_t	wanted = 0;

	/* an earlier request shows how long the folio would block the caller */
	if (flight->usual == 0 && flight->count > 0 && finish_oldest(flight))
		return true;
	if (!is_fast(flight) || (watch && pc_now() < flight->sharing.shared_until) ||
		(loader->window->gives_way && pc_is_used(&flight->sharing)))
	{
		file->at = file->large_from;
		file->to = file->large_from += blocks;
		return false;
	}
	while (watch && flight->count > 0)
		if (finish_oldest(flight))
			return true;
	if (pc_take_tokens(loader->pace, LARGE_BYTES, loader->wait, loader->arg) ||
		loader->wait(loader->arg, 0))
	{
		flight->stopped = true;
		return true;
	}
	if (!(watch ? populate_and_watch(flight, file) : populate(flight, file, true)))
	{
		/* whatever the reason, single pages can replace it */
		file->at = file->large_from;
		file->to = file->large_from = file->large_to;
		return false;
	}
	for (uint32_t i = 0; i < blocks; i++)
		wanted += pc_bit(file->want, file->large_from + i);
	if (loader->progress)
		loader->progress(loader->arg, wanted);
	file->large_from += blocks;
	flight->large_bytes += LARGE_BYTES;
	return false;
}

/* sends the next request; returns as submit() */
static int
send_next(struct pc_flight *flight, struct pc_file *file, bool wait)
{
	const struct pc_loader *loader = file->loader;
	uint32_t	size = loader->block_size;
	uint32_t	window = while_yielding(flight, loader->window, loader->window->request_bytes);
	uint32_t	most = (loader->request_bytes < window ? loader->request_bytes : window) / size;
	uint32_t	n = file->to - file->at;
	struct pc_request r = {.file = file, .offset = (uint64_t) file->at * size};
	int			rc;

	if (n > most)
		n = most > 0 ? most : 1;
	r.length = n * size;
	/* mincore(2) requires whole pages, and on some kernels a page is larger than a block */
	r.length += (uint32_t) (r.offset % pc_page_size());
	r.offset -= r.offset % pc_page_size();
	for (uint32_t i = 0; i < n; i++)
		r.blocks += pc_bit(file->want, file->at + i);
	rc = submit(flight, &r, wait);
	if (rc == 0)
		file->at += n;
	return rc;
}

int
pc_start(struct pc_file *file, int fd, const uint8_t *want, uint32_t nblocks,
		 const struct pc_loader *loader)
{
	*file = (struct pc_file) {
		.fd = fd, .loader = loader, .want = want, .nblocks = nblocks, .sent = true
	};
	if (nblocks == 0)
		return 0;
	file->length = (size_t) nblocks * loader->block_size;
	file->mapping = mmap(NULL, file->length, PROT_NONE, MAP_SHARED, fd, 0);
	if (file->mapping == MAP_FAILED)
	{
		file->mapping = NULL;
		return -errno;
	}
	file->sent = false;
	/* a read of missing pages must not trigger read-ahead */
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	return 0;
}

int
pc_send(struct pc_flight *flight, struct pc_file *file, bool wait)
{
	uint32_t	begin = file->at;
	int			rc = 0;

	while (!file->sent && rc == 0)
	{
		if (!wait && (uint64_t) (file->at - begin) * file->loader->block_size >=
						 file->loader->window->bytes)
			rc = PC_FULL;
		else if (file->at < file->to)
			rc = send_next(flight, file, wait);
		else if (!wait && file->large_from < file->large_to)
			file->to = file->large_from = file->large_to = file->tail = file->run_end;
		else if (file->tail < file->run_end)
		{
			/*
			 * the tail after the large folios is requested before them, so that it has arrived when
			 * they have
			 */
			file->at = file->tail;
			file->to = file->tail = file->run_end;
		}
		else if (file->large_from < file->large_to)
			rc = send_large(flight, file) ? PC_STOPPED : 0;
		else
			file->sent = !next_run(file);
	}
	return rc;
}

int
pc_await_oldest(struct pc_flight *flight)
{
	return flight->count > 0 && finish_oldest(flight) ? PC_STOPPED : 0;
}

int
pc_finish(struct pc_flight *flight, struct pc_file *file)
{
	if (!flight->stopped)
		pc_send(flight, file, true);
	while (file->in_flight > 0 && !flight->stopped && !finish_oldest(flight))
		;
	pc_forget(flight, file);
	return flight->stopped ? PC_STOPPED : file->error;
}

void
pc_forget(struct pc_flight *flight, struct pc_file *file)
{
	uint32_t	kept = 0;

	for (uint32_t i = 0; i < flight->count; i++)
	{
		const struct pc_request *r = &flight->requests[(flight->first + i) % PC_MAX_REQUESTS];

		if (r->file == file)
			flight->bytes -= r->length;
		else
			flight->requests[(flight->first + kept++) % PC_MAX_REQUESTS] = *r;
	}
	flight->count = kept;
	file->in_flight = 0;
	if (file->mapping != NULL)
		munmap(file->mapping, file->length);
	file->mapping = NULL;
	if (flight->count == 0)
	{
		free(flight->buffer);
		flight->buffer = NULL;
	}
}

int
pc_load(int fd, const uint8_t *want, uint32_t nblocks, const struct pc_loader *loader)
{
	struct pc_flight flight = {0};
	struct pc_file file;
	int			rc = pc_start(&file, fd, want, nblocks, loader);

	return rc < 0 ? rc : pc_finish(&flight, &file);
}
