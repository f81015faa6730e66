/*
 * loader.h - brings blocks of one file into the page cache, gently
 *
 * posix_fadvise(WILLNEED) in requests that the kernel does not cut, a small window of them in flight so that other
 * readers keep the device, each awaited with mincore(2); what the kernel left out (read-ahead gives up quietly when
 * memory is short) is read once.
 */
#ifndef PC_LOADER_H
#define PC_LOADER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Bytes and requests in flight per device.  Two requests of 256 KiB kept 85 % of a disk's throughput and the
 * foreground's p99 at 0.45 ms, where an unlimited stream stalled it for seconds (measured on virtio, 2 GB/s).
 */
#define PC_REQUEST_BYTES (256 * 1024)
#define PC_WINDOW_BYTES (2 * PC_REQUEST_BYTES)
#define PC_WINDOW_REQUESTS 16

/* a token bucket over all files of one restore; zero-initialised but for the rate */
struct pc_pace
{
	uint64_t	rate;			/* bytes per second, 0: no limit */
	double		tokens;			/* bytes that may go now */
	int64_t		filled_at;		/* microseconds, monotonic */
};

struct pc_loader
{
	uint32_t	block_size;		/* bytes */
	uint32_t	request_bytes;	/* of one request; see pc_device_request_bytes() */
	uint32_t	gap_blocks;		/* runs this far apart are read as one */
	bool		use_cachestat;	/* see pc_cachestat_is_honest() */
	struct pc_pace *pace;		/* or NULL */

	/* sleeps about that long, 0 to only look; true ends the load */
	bool		(*wait) (void *arg, long microseconds);
	/* told of blocks asked for as they have come in */
	void		(*progress) (void *arg, uint32_t blocks);
	void	   *arg;
};

/* The load was ended by wait(). */
#define PC_STOPPED 1

/*
 * Loads the blocks of the map into the page cache.  Returns 0, PC_STOPPED, or a negative errno: the first error of
 * the device, after which the rest was still tried.  Whatever it returns, what is resident is for the caller to see.
 */
extern int	pc_load(int fd, const uint8_t *want, uint32_t nblocks, const struct pc_loader *loader);

#endif
