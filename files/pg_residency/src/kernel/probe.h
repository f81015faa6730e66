/*
 * probe.h - how fast a device is, and what gap between two runs is worth reading on it
 */
#ifndef PC_PROBE_H
#define PC_PROBE_H

#include "loader.h"

/* how fast a device is with the window it was measured with */
struct pc_speed
{
	double		requests;		/* small ones, per second */
	double		bytes;			/* in large requests, per second */
};

/*
 * Measures the device by loading some of what is wanted anyway: single blocks far from each other,
 * and then a stretch of PC_PROBE_BYTES, of which not everything needs to be wanted.  Returns as
 * pc_load() does; 0 with speed->requests 0 when too little is wanted to tell.
 */
extern int pc_probe(int fd, const uint8_t *want, uint32_t nblocks, const struct pc_loader *loader,
					struct pc_speed *speed);

#define PC_PROBE_BYTES (4 * 1024 * 1024)

/*
 * The gap that is as cheap to read as to leave out, in blocks: reading it costs its bytes, leaving
 * it out another request, so it is bandwidth / requests per second.
 */
extern uint32_t pc_worthwhile_gap(const struct pc_speed *speed, uint32_t block_size);

#endif
