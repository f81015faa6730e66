/*
 * flight.h - the requests of a load that are in flight, and whether they have arrived
 */
#ifndef PC_FLIGHT_H
#define PC_FLIGHT_H

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

struct pc_loader
{
	uint32_t	block_size;		/* bytes */
	uint32_t	request_bytes;	/* maximum of one request; see pc_device_request_bytes() */
	const struct pc_window *window;
	uint32_t	gap_blocks;		/* runs this far apart are read as one */
	bool		use_cachestat;	/* see pc_cachestat_is_honest() */
	bool		loads_again;	/* the caller, what is missing at the end: see pc_next_awaited() */
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

/* number n of the requests in flight, the oldest is 0 */
extern struct pc_request *pc_in_flight(struct pc_flight *flight, uint32_t n);

/* Tells the loader's callback, if there is one, that the kernel may block the caller. */
extern void pc_tell_blocked(const struct pc_loader *loader, bool begins);

/* Counts what other processes do with the file's device, if the window depends on that. */
extern void pc_watch_for(struct pc_flight *flight, const struct pc_file *file);

/* whether requests take so little time, as far as is known, that the kernel may block the caller */
extern bool pc_is_fast(const struct pc_flight *flight);

/*
 * Whether the whole request is resident.  Until the page is resident that arrived last in earlier
 * looks, only that page of a large request is examined.
 */
extern bool pc_has_arrived(struct pc_request *r);

/*
 * While the load makes up for too little, requests with the caller's own priority pass those of the
 * idle class: the latter stay in the device's queue, and are not awaited.
 */
extern void pc_pass_idle(struct pc_flight *flight);

/*
 * The number of the request that pc_finish_oldest() awaits.  Of many requests of loads that
 * `loads_again`, the older ones are not awaited one by one, unless they take long: they arrive
 * nearly in the order in which they were sent, so that they have arrived when the last of them has.
 * A look costs as much CPU as a fifth of a request.
 */
extern uint32_t pc_next_awaited(struct pc_flight *flight);

/*
 * Waits for the oldest request, or several; true when stopped.  The request is still in flight if
 * requests with the caller's own priority may pass it from now on.
 */
extern bool pc_finish_oldest(struct pc_flight *flight);

#endif
