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

/* the class of a restore's requests to the devices so far */
typedef enum IoClass
{
	IO_NOTHING,					/* no requests */
	IO_IDLE,
	IO_OWN,						/* the priority of the server */
	IO_MIXED					/* one device differs from another, or now from then */
} IoClass;
#define LAST_IO_CLASS IO_MIXED

/* names of schedulers, each once */
#define SCHEDULERS_BYTES 64

/* large: not for the stack; zero-initialised */
typedef struct Devices
{
	Device		list[MAX_DEVICES];
	int			count;
} Devices;

/* the device of that number; looked up once in a restore */
extern Device *device_numbered(Devices *devices, dev_t number);

/* the name of a class */
extern const char *io_class_name(IoClass io_class);

/*
 * Returns the class of the requests so far, and sets `schedulers`, SCHEDULERS_BYTES, to the
 * schedulers of their devices: empty if none is known.
 */
extern IoClass devices_class(const Devices *devices, char *schedulers);

/* waits as pc_finish_oldest() for the device with the oldest request of all */
extern void await_any_device(Devices *devices);

#endif
