/*
 * pace.h - how fast a restore may load
 */
#ifndef PC_PACE_H
#define PC_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* a token bucket for all files of one restore; zero-initialised except the rate */
struct pc_pace
{
	uint64_t	rate;			/* bytes per second, 0: no limit */
	double		tokens;			/* bytes that may be requested now */
	int64_t		filled_at;		/* microseconds, monotonic */
	uint64_t	taken;			/* total bytes requested, with or without a limit */
};

/*
 * Waits until the bucket holds that many bytes, and takes them; true when wait() has stopped that.
 * See struct pc_loader for wait().  Without a pace, or a rate, it does not wait.
 */
extern bool pc_take_tokens(struct pc_pace *pace, uint32_t bytes,
						   bool (*wait) (void *arg, long microseconds), void *arg);

#endif
