/*
 * loader.h - loads blocks of one file into the page cache, gently
 *
 * Sends posix_fadvise(WILLNEED) in requests that the kernel does not cut, a small window of them in
 * flight so that other readers get their share of the device.  Each request is awaited by a read of
 * its last page or by repeated looks with mincore(2), which also confirms its arrival.  Pages that
 * the kernel skipped (read-ahead gives up silently when memory is short) are read once.
 */
#ifndef PC_LOADER_H
#define PC_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "pace.h"
#include "sharing.h"

/*
 * Long runs in large folios take a tenth of the CPU and use the full bandwidth of the device.  But
 * other readers meanwhile wait for 2 MiB at a time.  Requires blocks_in_kernel.
 */
enum pc_large
{
	PC_LARGE_NEVER,
	PC_LARGE_WHEN_ALONE,		/* while no other process uses the device */
	PC_LARGE_ALWAYS
};

/*
 * The requests in flight at a time, per device.  Two requests of 256 KiB kept 85 % of a disk's
 * throughput and the foreground's p99 at 0.45 ms, where an unlimited stream stalled it for seconds
 * (measured on virtio, 2 GB/s).
 */
struct pc_window
{
	uint32_t	request_bytes;	/* maximum of one request */
	uint32_t	bytes;			/* maximum of all requests */
	uint32_t	requests;
	enum pc_large large;
	/*
	 * how many times as much may be in flight while the device runs idle and no other process uses
	 * it: the loader wakes up too late
	 */
	uint32_t	stretch;

	/*
	 * Whether the kernel may block the caller until a page has arrived, which wakes it immediately;
	 * a timer is late where the CPUs are busy.  While the caller is blocked, wait() is not called,
	 * and pressure stall information counts it as waiting for the disk.
	 */
	bool		blocks_in_kernel;

	/*
	 * Whether requests are sent in the idle class where the scheduler honours it, so that those of
	 * other processes go first.  See PC_FLOOR.  The kernel never blocks the caller for such a
	 * request, which may take seconds; a large folio keeps the caller's priority.
	 */
	bool		idle;

	/*
	 * Whether it does so only on a device that pc_stays_quick().  On a volume of 3,000 requests a
	 * second a few readers of single blocks are enough to keep the idle class waiting at its floor,
	 * although all they need could be loaded in seconds: mq-deadline sends none of it while any
	 * request of a higher class is with the device (dd_queued() in block/mq-deadline.c).
	 */
	bool		idle_if_quick;

	/*
	 * Whether the load sends no more than a small request from time to time while pc_is_used(): the
	 * server recovers, and nobody can use what is loaded before it has.  The idle class does not
	 * help behind a throttle (blk-throttle knows no classes).  Nor would it help recovery to bring
	 * what that reads: both proceed through the same file, and between the blocks of the one there
	 * are only single ones left for the other.
	 */
	bool		gives_way;
};

/* maximum of requests * stretch of a window */
#define PC_MAX_REQUESTS 256
#define PC_MAX_REQUEST_BYTES (1024 * 1024)

extern const struct pc_window pc_gentle;	/* the default */
extern const struct pc_window pc_aggressive;	/* before the server takes traffic */

struct pc_loader
{
	uint32_t	block_size;		/* bytes */
	uint32_t	request_bytes;	/* maximum of one request; see pc_device_request_bytes() */
	const struct pc_window *window;
	uint32_t	gap_blocks;		/* runs this far apart are read as one */
	bool		use_cachestat;	/* see pc_cachestat_is_honest() */
	struct pc_pace *pace;		/* or NULL */

	/* sleeps about that long, 0: only checks; true stops the load */
	bool		(*wait) (void *arg, long microseconds);
	/* called before and after the caller is blocked in the kernel; or NULL */
	void		(*blocked) (void *arg, bool begins);
	/* called with the number of wanted blocks that have arrived; or NULL */
	void		(*progress) (void *arg, uint32_t blocks);
	void	   *arg;
};

/* wait() stopped the load. */
#define PC_STOPPED 1

/* The window has no room, or has been filled once. */
#define PC_FULL 2

struct pc_request
{
	struct pc_file *file;
	uint64_t	offset;			/* bytes */
	uint32_t	length;			/* bytes */
	uint32_t	blocks;			/* wanted blocks, without gaps */
	uint32_t	awaited;		/* the page that is examined first */
	bool		idle;			/* sent in the idle class */
	int64_t		sent_at;		/* microseconds, monotonic */
};

/*
 * the requests in flight for all files that are loaded side by side from a device, the oldest
 * first; zero-initialised
 */
struct pc_flight
{
	struct pc_request requests[PC_MAX_REQUESTS];
	uint32_t	first;
	uint32_t	count;
	uint64_t	bytes;
	int64_t		usual;			/* usual microseconds of a request */
	double		stretch;		/* of the window, beyond 1 */
	/* sent_at of the last request that was seen to arrive earlier than it was looked for */
	int64_t		early_sent_at;
	struct pc_sharing sharing;
	uint64_t	large_bytes;	/* loaded as large folios so far */
	bool		stopped;
	char	   *buffer;			/* allocated when pages must be read */
};

/* a file being loaded: pc_start() fills it, pc_finish() or pc_forget() ends it */
struct pc_file
{
	int			fd;
	const struct pc_loader *loader;
	const uint8_t *want;
	uint32_t	nblocks;
	unsigned char *mapping;		/* of the whole file, never accessed: for mincore(2) */
	size_t		length;
	uint32_t	at;				/* next block to request, */
	uint32_t	to;				/* before this */
	uint32_t	large_from;		/* large folios of the run begin here, */
	uint32_t	large_to;		/* before this */
	uint32_t	tail;			/* the rest of the run not yet requested, */
	uint32_t	run_end;		/* before this */
	bool		sent;			/* everything has been requested */
	uint32_t	in_flight;		/* requests */
	/* the kernel may have read ahead: a read would continue that beyond the wanted blocks */
	bool		read_ahead;
	int			error;			/* the first one */
};

/*
 * Begins to load the blocks of the map, which must remain valid during the load: pc_send() requests
 * them.  Returns 0, or a negative errno, and then the file is not started.
 */
extern int pc_start(struct pc_file *file, int fd, const uint8_t *want, uint32_t nblocks,
					const struct pc_loader *loader);

/*
 * Requests the blocks not yet requested.  Returns 0 when all have been requested, and then other
 * files can be sent in the same window; or PC_STOPPED.  Without `wait`, returns PC_FULL instead of
 * waiting for room in the window, or when it has filled the window once, so that other devices need
 * not wait.  Large folios, which have to be waited for, are not used then.
 */
extern int	pc_send(struct pc_flight *flight, struct pc_file *file, bool wait);

/* Waits until the oldest request has arrived.  Returns 0 or PC_STOPPED. */
extern int	pc_await_oldest(struct pc_flight *flight);

/*
 * Sends the rest, waits until all requested blocks have arrived, and ends the file.  Returns as
 * pc_load().
 */
extern int	pc_finish(struct pc_flight *flight, struct pc_file *file);

/* Ends a file without waiting for it. */
extern void pc_forget(struct pc_flight *flight, struct pc_file *file);

/*
 * Loads the blocks of the map into the page cache.  Returns 0, PC_STOPPED, or a negative errno: the
 * first error of the device, after which the other blocks were still tried.  In any case the caller
 * determines which blocks are resident.
 */
extern int	pc_load(int fd, const uint8_t *want, uint32_t nblocks, const struct pc_loader *loader);

#endif
