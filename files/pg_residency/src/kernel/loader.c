/*
 * loader.c - brings blocks of one file into the page cache, gently
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "loader.h"
#include "page_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SHORTEST_PAUSE 50		/* microseconds; a request of a fast device takes about two of them */
#define LONGEST_PAUSE 5000

/* how long a request may stay out before its blocks are read: the kernel may have given up on it */
#define PATIENCE 2000000
#define PATIENCE_UNSEEN 250000	/* without cachestat nothing tells a slow request from a dropped one */

/* a request, and what rounding it to whole pages of up to 64 KiB may add */
#define BUFFER_BYTES (PC_MAX_REQUEST_BYTES + 2 * 65536)

/* a probe's single blocks: that many, that far from each other (beyond any gap worth reading) */
#define PROBE_REQUESTS 64
#define PROBE_DISTANCE 64

/* 512 KiB: a device that wants more than that to be read along has been measured wrong */
#define LARGEST_GAP (512 * 1024)

const struct pc_window pc_gentle = {256 * 1024, 512 * 1024, 16};
const struct pc_window pc_aggressive = {PC_MAX_REQUEST_BYTES, 16 * PC_MAX_REQUEST_BYTES, PC_MAX_REQUESTS};

struct request
{
	uint64_t	offset;			/* bytes */
	uint32_t	length;			/* bytes */
	uint32_t	blocks;			/* of it wanted, gaps not counted */
};

struct load
{
	const struct pc_loader *loader;
	int			fd;
	unsigned char *mapping;		/* of the whole file, never touched: mincore wants addresses */
	char	   *buffer;			/* BUFFER_BYTES, only when something must be read */
	struct request flight[PC_MAX_REQUESTS];
	uint32_t	first;
	uint32_t	count;
	uint64_t	bytes;			/* in flight */
	int			error;			/* the first one */
};

static int64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* waits until the bucket holds that many bytes, and takes them; true when stopped */
static bool
take_tokens(const struct pc_loader *loader, uint32_t bytes)
{
	struct pc_pace *pace = loader->pace;

	if (pace == NULL || pace->rate == 0)
		return false;
	for (;;)
	{
		int64_t		now = now_us();
		double		most = (double) pace->rate / 10;
		double		us;

		if (most < bytes)
			most = bytes;
		if (pace->filled_at != 0)
			pace->tokens += (double) (now - pace->filled_at) * (double) pace->rate / 1e6;
		if (pace->tokens > most)
			pace->tokens = most;
		pace->filled_at = now;
		if (pace->tokens >= bytes)
			break;

		/* at most 100 ms at a time, so that a slow rate does not delay the end */
		us = (bytes - pace->tokens) * 1e6 / (double) pace->rate;
		if (loader->wait(loader->arg, us > 100000 ? 100000 : (long) us + 1))
			return true;
	}
	pace->tokens -= bytes;
	return false;
}

/* fills vec, a byte per page of the request; true when all of it is resident */
static bool
request_pages(const struct load *load, const struct request *r, unsigned char *vec)
{
	size_t		pages = (r->length + pc_page_size() - 1) / pc_page_size();

	if (mincore(load->mapping + r->offset, r->length, vec) != 0)
		return false;
	for (size_t i = 0; i < pages; i++)
		if (!(vec[i] & 1))
			return false;
	return true;
}

/* reads what of the request is not resident, once */
static void
read_missing(struct load *load, const struct request *r, const unsigned char *vec)
{
	size_t		page = pc_page_size();
	size_t		pages = (r->length + page - 1) / page;

	if (load->buffer == NULL && (load->buffer = malloc(BUFFER_BYTES)) == NULL)
	{
		load->error = load->error ? load->error : -ENOMEM;
		return;
	}
	for (size_t from = 0; from < pages;)
	{
		size_t		to = from;

		while (to < pages && !(vec[to] & 1))
			to++;
		if (to > from && pread(load->fd, load->buffer, (to - from) * page, (off_t) (r->offset + from * page)) < 0)
			load->error = load->error ? load->error : -errno;
		from = to + 1;
	}
}

/* waits for the oldest request; true when stopped */
static bool
finish_oldest(struct load *load)
{
	const struct pc_loader *loader = load->loader;
	struct request r = load->flight[load->first];
	unsigned char vec[BUFFER_BYTES / 4096];
	int64_t		patience = now_us() + (loader->use_cachestat ? PATIENCE : PATIENCE_UNSEEN);
	long		pause = SHORTEST_PAUSE;

	load->first = (load->first + 1) % PC_MAX_REQUESTS;
	load->count--;
	load->bytes -= r.length;
	while (!request_pages(load, &r, vec))
	{
		struct pc_stat st;

		/* pages on their way are in the mapping already: fewer of them means that some were never asked for */
		if (now_us() > patience ||
			(loader->use_cachestat && pc_cachestat(load->fd, r.offset, r.length, &st) == 0 &&
			 st.cached < (r.length + pc_page_size() - 1) / pc_page_size()))
		{
			read_missing(load, &r, vec);
			break;
		}
		if (loader->wait(loader->arg, pause))
			return true;
		if (pause < LONGEST_PAUSE)
			pause *= 2;
	}
	if (loader->progress)
		loader->progress(loader->arg, r.blocks);
	return false;
}

/* sends one request as soon as the window has room for it; true when stopped */
static bool
submit(struct load *load, const struct request *r)
{
	const struct pc_window *window = load->loader->window;
	int			rc;

	while (load->count == window->requests || (load->count > 0 && load->bytes + r->length > window->bytes))
		if (finish_oldest(load))
			return true;
	if (take_tokens(load->loader, r->length) || load->loader->wait(load->loader->arg, 0))
		return true;
	rc = posix_fadvise(load->fd, (off_t) r->offset, r->length, POSIX_FADV_WILLNEED);
	if (rc != 0 && load->error == 0)
		load->error = -rc;
	load->flight[(load->first + load->count) % PC_MAX_REQUESTS] = *r;
	load->count++;
	load->bytes += r->length;
	return false;
}

/* one run of blocks, in requests; true when stopped */
static bool
submit_run(struct load *load, const uint8_t *want, uint32_t from, uint32_t to, uint32_t request_blocks)
{
	uint32_t	size = load->loader->block_size;

	for (uint32_t at = from; at < to; at += request_blocks)
	{
		uint32_t	n = to - at < request_blocks ? to - at : request_blocks;
		struct request r = {(uint64_t) at * size, n * size, 0};

		/* mincore wants whole pages, and there are kernels whose page is larger than a block */
		r.length += (uint32_t) (r.offset % pc_page_size());
		r.offset -= r.offset % pc_page_size();
		for (uint32_t i = at; i < at + n; i++)
			r.blocks += pc_bit(want, i);
		if (submit(load, &r))
			return true;
	}
	return false;
}

int
pc_load(int fd, const uint8_t *want, uint32_t nblocks, const struct pc_loader *loader)
{
	struct load load = {.loader = loader, .fd = fd};
	uint32_t	most = loader->window->request_bytes;
	uint32_t	bytes = loader->request_bytes < most ? loader->request_bytes : most;
	uint32_t	request_blocks = bytes > loader->block_size ? bytes / loader->block_size : 1;
	size_t		length = (size_t) nblocks * loader->block_size;
	bool		stopped = false;

	if (nblocks == 0)
		return 0;
	load.mapping = mmap(NULL, length, PROT_NONE, MAP_SHARED, fd, 0);
	if (load.mapping == MAP_FAILED)
		return -errno;
	/* reading what is missing must not pull in more than that */
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);

	for (uint32_t from = pc_next(want, nblocks, 0, true); from < nblocks && !stopped;)
	{
		uint32_t	to = pc_next(want, nblocks, from, false);
		uint32_t	next = pc_next(want, nblocks, to, true);

		while (next < nblocks && next - to <= loader->gap_blocks)
		{
			to = pc_next(want, nblocks, next, false);
			next = pc_next(want, nblocks, to, true);
		}
		stopped = submit_run(&load, want, from, to, request_blocks);
		from = next;
	}
	while (load.count > 0 && !stopped)
		stopped = finish_oldest(&load);

	free(load.buffer);
	munmap(load.mapping, length);
	return stopped ? PC_STOPPED : load.error;
}

/* loads the blocks and tells how long it took, seconds */
static int
timed_load(int fd, const uint8_t *want, uint32_t nblocks, const struct pc_loader *loader, double *seconds)
{
	int64_t		begin = now_us();
	int			rc = pc_load(fd, want, nblocks, loader);

	*seconds = (double) (now_us() - begin + 1) / 1e6;
	return rc;
}

int
pc_probe(int fd, const uint8_t *want, uint32_t nblocks, const struct pc_loader *loader, struct pc_speed *speed)
{
	struct pc_loader probe = *loader;
	uint32_t	stretch = PC_PROBE_BYTES / loader->block_size;
	uint8_t    *sample = calloc(1, pc_map_bytes(nblocks));
	uint32_t	n = 0;
	uint32_t	at = 0;
	double		seconds;
	int			rc;

	*speed = (struct pc_speed) {0, 0};
	if (sample == NULL)
		return -ENOMEM;
	probe.gap_blocks = 0;
	probe.pace = NULL;
	while (n < PROBE_REQUESTS && (at = pc_next(want, nblocks, at, true)) < nblocks)
	{
		pc_set(sample, at);
		at += PROBE_DISTANCE;
		n++;
	}
	/* the stretch begins at the next wanted block, where nothing of the sample is */
	at = pc_next(want, nblocks, at < nblocks ? at : nblocks, true);
	if (n < PROBE_REQUESTS || at + stretch > nblocks)
	{
		free(sample);
		return 0;
	}
	rc = timed_load(fd, sample, nblocks, &probe, &seconds);
	if (rc == 0)
	{
		speed->requests = n / seconds;
		memset(sample, 0, pc_map_bytes(nblocks));
		for (uint32_t i = 0; i < stretch; i++)
			pc_set(sample, at + i);
		rc = timed_load(fd, sample, nblocks, &probe, &seconds);
		speed->bytes = PC_PROBE_BYTES / seconds;
	}
	free(sample);
	if (rc != 0)
		*speed = (struct pc_speed) {0, 0};
	return rc;
}

uint32_t
pc_worthwhile_gap(const struct pc_speed *speed, uint32_t block_size)
{
	double		gap = speed->requests > 0 ? speed->bytes / speed->requests : 0;

	return (uint32_t) ((gap > LARGEST_GAP ? LARGEST_GAP : gap) / block_size);
}
