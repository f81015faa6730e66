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
 *              the awaited request has arrived,
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

const struct pc_window pc_gentle = {256 * 1024, 512 * 1024, 32, PC_LARGE_WHEN_ALONE, 3, true, true};
const struct pc_window pc_aggressive = {
	PC_MAX_REQUEST_BYTES, 16 * PC_MAX_REQUEST_BYTES, PC_MAX_REQUESTS, PC_LARGE_ALWAYS, 1, true
};

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
		if (pc_in_flight(flight, n)->idle)
		{
			count--;
			bytes -= pc_in_flight(flight, n)->length;
		}
	return count == 0 || (count < window->requests * stretch &&
						  (double) (bytes + length) <=
							  while_yielding(flight, window, window->bytes) * stretch);
}

/*
 * Makes room for one more request.  If the newest request has already arrived when the awaited one
 * is seen to have, the device was idle: then the window is stretched, step by step, unless other
 * processes use the device.  While the device is busy, the window shrinks to its normal size again.
 */
static int
make_room(struct pc_flight *flight, const struct pc_window *window, uint32_t length, bool wait)
{
	for (;;)
	{
		const struct pc_request *newest = pc_in_flight(flight, flight->count - 1);
		double		stretch = pc_now() < flight->sharing.shared_until ? 1 : 1 + flight->stretch;
		unsigned char arrived = 0;

		pc_pass_idle(flight);
		if (has_room(flight, window, length, stretch))
			return 0;
		if (!wait && !pc_has_arrived(pc_in_flight(flight, pc_next_awaited(flight))))
		{
			pc_note_arrival(&flight->sharing, pc_in_flight(flight, 0)->sent_at, 0, pc_now());
			return PC_FULL;
		}
		if (pc_finish_oldest(flight))
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
	r->awaited = (uint32_t) ((r->length - 1) / pc_page_size());
	idle = loader->window->idle &&
		(!loader->window->idle_if_quick || pc_stays_quick(&flight->sharing));
	former = pc_lower_for_requests(&flight->sharing, r->file->fd, idle, r->length);
	r->idle = former >= 0;
	r->sent_at = pc_now();
	rc = posix_fadvise(r->file->fd, (off_t) r->offset, r->length, POSIX_FADV_WILLNEED);
	pc_priority_restore(former);
	if (rc != 0 && r->file->error == 0)
		r->file->error = -rc;
	*pc_in_flight(flight, flight->count) = *r;
	flight->count++;
	flight->bytes += r->length;
	r->file->in_flight++;
	if (loader->window->large == PC_LARGE_WHEN_ALONE)
		pc_count_sent(&flight->sharing, r->length);
	pc_watch_for(flight, r->file);
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
	pc_tell_blocked(loader, true);
	/*
	 * With the caller's own priority, because the caller cannot be stopped meanwhile: no other
	 * process used the device a moment ago.
	 */
	done = madvise(addr, LARGE_BYTES, MADV_HUGEPAGE) == 0 &&
		   (ahead || madvise(addr, LARGE_BYTES, MADV_RANDOM) == 0) &&
		   madvise(addr, LARGE_BYTES, MADV_POPULATE_READ) == 0;
	pc_tell_blocked(loader, false);
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
	if (flight->usual == 0 && flight->count > 0 && pc_finish_oldest(flight))
		return true;
	if (!pc_is_fast(flight) || (watch && pc_now() < flight->sharing.shared_until) ||
		(loader->window->gives_way && pc_is_used(&flight->sharing)))
	{
		file->at = file->large_from;
		file->to = file->large_from += blocks;
		return false;
	}
	while (watch && flight->count > 0)
		if (pc_finish_oldest(flight))
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
	return flight->count > 0 && pc_finish_oldest(flight) ? PC_STOPPED : 0;
}

int
pc_finish(struct pc_flight *flight, struct pc_file *file)
{
	if (!flight->stopped)
		pc_send(flight, file, true);
	while (file->in_flight > 0 && !flight->stopped && !pc_finish_oldest(flight))
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
