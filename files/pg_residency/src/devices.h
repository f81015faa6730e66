/*
 * devices.h - the devices that a restore reads from; each has a window of its own
 */
#ifndef RESIDENCY_DEVICES_H
#define RESIDENCY_DEVICES_H

#include "postgres.h"

#include <sys/types.h>

#include "kernel/probe.h"

/* a device, identified by st_dev of the files on it */
typedef struct Device
{
	dev_t		number;
	struct pc_flight flight;
	uint32		request_bytes;
	bool		measured;		/* by this restore */
	struct pc_speed speed;		/* requests 0: unknown */
} Device;

/* devices beyond this number share the last place */
#define MAX_DEVICES 16

/* large: not for the stack; zero-initialised */
typedef struct Devices
{
	Device		list[MAX_DEVICES];
	int			count;
} Devices;

/* the device of that number; looked up once in a restore */
extern Device *device_numbered(Devices *devices, dev_t number);

/* waits until the oldest request of all devices has completed */
extern void await_any_device(Devices *devices);

#endif
