/*
 * probe.c - the speed of a device, and the gap between two runs that is worth reading
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "probe.h"
#include "page_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* number and distance of a probe's single blocks; the distance exceeds any gap worth reading */
#define PROBE_REQUESTS 64
#define PROBE_DISTANCE 64

/* 512 KiB: a larger result is an error of measurement */
#define LARGEST_GAP (512 * 1024)

/* share of the displaced pages that is assumed to be read again, each by a request of its own */
#define READ_AGAIN 0.1

static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}

/* loads the blocks and measures the time, seconds */
static int
timed_load(int fd, const uint8_t *want, uint32_t nblocks,
		   const struct pc_loader *loader, double *seconds)
{
	double		begin = now();
	int			rc = pc_load(fd, want, nblocks, loader);

	*seconds = now() - begin + 1e-6;
	return rc;
}

int
pc_probe(int fd, const uint8_t *want, uint32_t nblocks, const struct pc_loader *loader,
		 struct pc_speed *speed)
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
	/* the stretch begins at the next wanted block, after all blocks of the sample */
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

/*
 * Seconds for a gap of g bytes: g / bandwidth, and if it displaces pages, READ_AGAIN of g / block
 * requests.  It is worthwhile up to the seconds of one request.
 */
uint32_t
pc_worthwhile_gap(const struct pc_speed *speed, uint32_t block_size, bool displaces)
{
	double		gap = speed->requests > 0 ? speed->bytes / speed->requests : 0;

	if (displaces)
		gap /= 1 + READ_AGAIN * gap / block_size;
	return (uint32_t) ((gap > LARGEST_GAP ? LARGEST_GAP : gap) / block_size);
}
