/*
 * loader.h - loads blocks of one file into the page cache, gently
 *
 * Sends posix_fadvise(WILLNEED) in requests that the kernel does not cut, a small window of them in
 * flight so that other readers get their share of the device.  A request is awaited by a read of
 * its last page or by repeated looks with mincore(2), which also confirms its arrival.  Pages that
 * the kernel skipped (read-ahead gives up silently when memory is short) are read once.  Of loads
 * that `loads_again` only some requests are awaited: see pc_next_awaited().
 */
#ifndef PC_LOADER_H
#define PC_LOADER_H

#include "flight.h"

extern const struct pc_window pc_gentle;	/* the default */
extern const struct pc_window pc_aggressive;	/* before the server takes traffic */

/* The window has no room, or has been filled once. */
#define PC_FULL 2

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

/* Waits as pc_finish_oldest().  Returns 0 or PC_STOPPED. */
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
