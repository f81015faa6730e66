/*
 * sharing.h - how a load shares its device with other processes: by the priority of its requests,
 * and by detecting those of others
 */
#ifndef PC_SHARING_H
#define PC_SHARING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "device.h"

/*
 * Bytes per second that a device gives to a load in the idle class at least, on average: while it
 * gives less, requests are sent with the caller's own priority, until the load has caught up.
 */
#define PC_FLOOR (8 * 1024 * 1024)

/*
 * The divisor of a window, and of its requests, while pc_yields(): 64 instead of 256 KiB.  A
 * request that the device has begun is not overtaken.
 */
#define PC_YIELDING 4

/* of the requests to a device; zero-initialised */
struct pc_sharing
{
	/* the device, and its largest request: 0 bytes when the device cannot be watched */
	bool		looked_up;
	dev_t		device;
	uint32_t	largest_request;
	char		scheduler[PC_SCHEDULER_BYTES];	/* at the last look, */
	int64_t		scheduler_at;	/* microseconds, monotonic */
	bool		refused;		/* the thread cannot enter the idle class and leave it again */
	bool		idle;			/* the last request was sent in the idle class */
	/* below the floor: bytes missing, since when, and whether the load is catching up */
	double		owed;
	int64_t		arrived_at;		/* microseconds, monotonic */
	bool		raised;
	uint64_t	idle_bytes;		/* requested in the idle class so far, */
	uint64_t	own_bytes;		/* and with the caller's own priority */
	int64_t		watched_at;		/* time of the last look at the device, microseconds, monotonic, */
	struct pc_completed completed;	/* what it had completed by then, */
	struct pc_completed sent;	/* and our own since, */
	bool		quick;			/* whether the device then completed QUICK_REQUESTS a second, */
	int64_t		quick_since;	/* and since when at each look; 0: not */
	/* another process uses the device: until then no stretched window and no large folios */
	int64_t		shared_until;
	int64_t		used_until;		/* another process uses the device, or has a moment ago */
};

/* microseconds, monotonic */
extern int64_t pc_now(void);

/*
 * Lowers the priority for requests of that many bytes to the device of the file, if `idle` is set
 * and as far as possible; returns the argument for pc_priority_restore().  Only around the system
 * calls that send them, so that neither an error nor the end of the load can leave the caller's own
 * requests in the idle class.
 */
extern int	pc_lower_for_requests(struct pc_sharing *sharing, int fd, bool idle, uint64_t bytes);

/*
 * Keeps the account of the floor when a request or a large folio has arrived, and with 0 bytes
 * while the one that was sent at that time is awaited.  While others keep
 * its queue full, mq-deadline lets a request of the idle class wait for 10 s (prio_aging_expire in
 * block/mq-deadline.c), and bfq for 200 ms (BFQ_CL_IDLE_TIMEOUT in block/bfq-iosched.h).
 */
extern void pc_note_arrival(struct pc_sharing *sharing, int64_t sent_at, uint32_t bytes,
							int64_t now);

/*
 * Whether requests go behind those of other processes, which use the device, and can be smaller:
 * they would cost the device little, and the load is not a second behind the floor.  Or it gives
 * way.
 */
extern bool pc_yields(const struct pc_sharing *sharing, bool gives_way);

/*
 * Pauses before a request to the device of that file while the load gives way and the device is
 * used, for half a second at most; true when stopped.  See struct pc_window.
 */
extern bool pc_give_way(struct pc_sharing *sharing, int fd, const bool *gives_way,
						bool (*wait) (void *arg, long microseconds), void *arg);

/* Whether the device has been quick for a while: a throttle may let pass a burst. */
extern bool pc_stays_quick(const struct pc_sharing *sharing);

/*
 * Whether another process has used the device within the last second, by requests or by bytes: WAL
 * is read in few large ones.  In the first second it is assumed.
 */
extern bool pc_is_used(const struct pc_sharing *sharing);

/* whether the number of completed requests of the device is known */
extern bool pc_can_watch(struct pc_sharing *sharing, int fd);

/* adds a request of that many bytes to those sent to the device */
extern void pc_count_sent(struct pc_sharing *sharing, uint32_t bytes);

/*
 * The device counts as shared while it completes more requests than were sent here (a request that
 * spans two extents makes two), and where that number is unknown: sets shared_until, and
 * used_until.
 */
extern void pc_watch_others(struct pc_sharing *sharing, int fd);

#endif
