/*
 * loader.h - brings blocks of one file into the page cache, gently
 *
 * posix_fadvise(WILLNEED) in requests that the kernel does not cut, a small window of them in
 * flight so that other readers keep the device, each awaited by a read of its last page or by
 * looking with mincore(2), and seen to have come in by mincore(2); what the kernel left out
 * (read-ahead gives up quietly when memory is short) is read once.
 */
#ifndef PC_LOADER_H
#define PC_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Long runs in large folios: a tenth of the CPU, and all that the device gives.  But who else reads
 * meanwhile waits for 2 MiB at a time.  Only when blocks_in_kernel is set too.
 */
enum pc_large
{
	PC_LARGE_NEVER,
	PC_LARGE_WHEN_ALONE,		/* while nobody else is seen to use the device */
	PC_LARGE_ALWAYS
};

/*
 * What is in flight at a time, per device.  Two requests of 256 KiB kept 85 % of a disk's
 * throughput and the foreground's p99 at 0.45 ms, where an unlimited stream stalled it for seconds
 * (measured on virtio, 2 GB/s).
 */
struct pc_window
{
	uint32_t	request_bytes;	/* of one request at most */
	uint32_t	bytes;			/* of all */
	uint32_t	requests;
	enum pc_large large;
	/* that many times as much while the device is ours and runs dry: we are woken too late */
	uint32_t	stretch;

	/*
	 * Whether the kernel may wake the caller when a page has come in, which is at once; a timer is
	 * late where the CPUs are busy.  Until then wait() is not asked, and pressure stall information
	 * counts it as waiting for the disk.
	 */
	bool		blocks_in_kernel;
};

/* requests * stretch of a window at most */
#define PC_MAX_REQUESTS 256
#define PC_MAX_REQUEST_BYTES (1024 * 1024)

extern const struct pc_window pc_gentle;	/* the default */
extern const struct pc_window pc_aggressive;	/* when nobody is served yet */

/* a token bucket over all files of one restore; zero-initialised but for the rate */
struct pc_pace
{
	uint64_t	rate;			/* bytes per second, 0: no limit */
	double		tokens;			/* bytes that may go now */
	int64_t		filled_at;		/* microseconds, monotonic */
	uint64_t	taken;			/* bytes asked for in all, with a limit or without */
};

struct pc_loader
{
	uint32_t	block_size;		/* bytes */
	uint32_t	request_bytes;	/* what the device takes at once; see pc_device_request_bytes() */
	const struct pc_window *window;
	uint32_t	gap_blocks;		/* runs this far apart are read as one */
	bool		use_cachestat;	/* see pc_cachestat_is_honest() */
	struct pc_pace *pace;		/* or NULL */

	/* sleeps about that long, 0 to only look; true ends the load */
	bool		(*wait) (void *arg, long microseconds);
	/* told before and after the caller is blocked in the kernel; or NULL */
	void		(*blocked) (void *arg, bool begins);
	/* told of blocks asked for as they have come in */
	void		(*progress) (void *arg, uint32_t blocks);
	void	   *arg;
};

/* The load was ended by wait(). */
#define PC_STOPPED 1

/* The window has no room, or has been filled once. */
#define PC_FULL 2

struct pc_request
{
	struct pc_file *file;
	uint64_t	offset;			/* bytes */
	uint32_t	length;			/* bytes */
	uint32_t	blocks;			/* of it wanted, gaps not counted */
	uint32_t	awaited;		/* page of it that is looked at first */
	int64_t		sent_at;		/* microseconds, monotonic */
};

/*
 * what is in flight of all files that are loaded side by side from a device, the oldest request
 * first; zero-initialised
 */
struct pc_flight
{
	struct pc_request requests[PC_MAX_REQUESTS];
	uint32_t	first;
	uint32_t	count;
	uint64_t	bytes;
	int64_t		usual;			/* microseconds that a request takes */
	double		stretch;		/* of the window, beyond 1 */
	/* when the request was sent that was the last to arrive before anybody looked */
	int64_t		dry_at;
	/* the device, and what it is sent in one piece: 0 bytes when it cannot be watched */
	bool		looked_up;
	dev_t		device;
	uint32_t	largest_request;
	int64_t		watched_at;		/* when the device was last looked at, microseconds, monotonic, */
	uint64_t	completed;		/* the requests it had completed then, */
	uint64_t	sent;			/* and those of ours since */
	/* somebody else uses the device: until then no more than the window, and no large folios */
	int64_t		shared_until;
	uint64_t	large_bytes;	/* brought in as large folios so far */
	bool		stopped;
	char	   *buffer;			/* only when something must be read */
};

/* a file being loaded: pc_start() fills it, pc_finish() or pc_forget() ends it */
struct pc_file
{
	int			fd;
	const struct pc_loader *loader;
	const uint8_t *want;
	uint32_t	nblocks;
	unsigned char *mapping;		/* of the whole file, never touched: mincore wants addresses */
	size_t		length;
	uint32_t	at;				/* what is asked for next, */
	uint32_t	to;				/* before this */
	uint32_t	large_from;		/* what of the run comes in as large folios, */
	uint32_t	large_to;		/* before this */
	uint32_t	tail;			/* what is behind these and has not been asked for yet, */
	uint32_t	run_end;		/* before this */
	bool		sent;			/* everything has been asked for */
	uint32_t	in_flight;		/* requests */
	/* by the kernel too, whose marks a read would follow, beyond what is wanted */
	bool		read_ahead;
	int			error;			/* the first one */
};

/*
 * Begins to load the blocks of the map, which must stay while the file is loaded: pc_send() asks
 * for them.  0 or a negative errno, and then the file is not started.
 */
extern int pc_start(struct pc_file *file, int fd, const uint8_t *want, uint32_t nblocks,
					const struct pc_loader *loader);

/*
 * Asks for what the file has not asked for yet.  Returns 0 when that is everything, and then other
 * files can be sent under the same window, or PC_STOPPED; PC_FULL if it is not to wait for room in
 * the window, nor to keep other devices waiting while it fills that over and over.  Large folios,
 * which are waited for, there are none then.
 */
extern int	pc_send(struct pc_flight *flight, struct pc_file *file, bool wait);

/* Waits until the oldest request has come in.  0 or PC_STOPPED. */
extern int	pc_await_oldest(struct pc_flight *flight);

/*
 * Sends the rest, waits until what the file asked for has come in, and ends it.  Returns as
 * pc_load().
 */
extern int	pc_finish(struct pc_flight *flight, struct pc_file *file);

/* Ends a file without waiting for it. */
extern void pc_forget(struct pc_flight *flight, struct pc_file *file);

/*
 * Loads the blocks of the map into the page cache.  Returns 0, PC_STOPPED, or a negative errno: the
 * first error of the device, after which the rest was still tried.  Whatever it returns, what is
 * resident is for the caller to see.
 */
extern int	pc_load(int fd, const uint8_t *want, uint32_t nblocks, const struct pc_loader *loader);

#endif
