/*
 * pace.c - how fast a restore may load
 */
#include "pace.h"

#include <stddef.h>

#include "sharing.h"

bool
pc_take_tokens(struct pc_pace *pace, uint32_t bytes, bool (*wait) (void *arg, long microseconds),
			   void *arg)
{
	if (pace == NULL)
		return false;
	pace->taken += bytes;
	if (pace->rate == 0)
		return false;
	for (;;)
	{
		int64_t		now = pc_now();
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
		if (wait(arg, us > 100000 ? 100000 : (long) us + 1))
			return true;
	}
	pace->tokens -= bytes;
	return false;
}
