/*
 * probe.h - the speed of a device, and the gap between two runs that is worth reading
 */
#ifndef PC_PROBE_H
#define PC_PROBE_H

#include "loader.h"

/* the speed of a device in the window of the measurement */
struct pc_speed
{
	double		requests;		/* small ones, per second */
	double		bytes;			/* in large requests, per second */
};

/*
 * Measures the device by loading blocks that are wanted anyway: single blocks far from each other,
 * then a stretch of PC_PROBE_BYTES, which may include unwanted blocks.  Returns as pc_load(); 0
 * with speed->requests 0 when too few blocks are wanted for a measurement.
 */
extern int pc_probe(int fd, const uint8_t *want, uint32_t nblocks, const struct pc_loader *loader,
					struct pc_speed *speed);

#define PC_PROBE_BYTES (4 * 1024 * 1024)

/*
 * The gap, in blocks, that costs as much to read as to skip: reading it costs its bytes, skipping
 * it costs one more request, so it is bandwidth / requests per second.  A gap that displaces pages
 * of others also costs reading some of these again.
 */
extern uint32_t pc_worthwhile_gap(const struct pc_speed *speed, uint32_t block_size,
								  bool displaces);

#endif
