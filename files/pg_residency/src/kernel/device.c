/*
 * device.c - what the block device below a file allows
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "device.h"

#include <stdio.h>
#include <sys/sysmacros.h>

#define ALWAYS_HONOURED_KIB 128

/* 0 when it cannot be read */
static unsigned long
read_kib(dev_t dev, const char *format)
{
	char		path[128];
	unsigned long kib = 0;
	FILE	   *f;

	snprintf(path, sizeof(path), format, major(dev), minor(dev));
	f = fopen(path, "re");
	if (f == NULL)
		return 0;
	if (fscanf(f, "%lu", &kib) != 1)
		kib = 0;
	fclose(f);
	return kib;
}

uint32_t
pc_device_request_bytes(dev_t dev)
{
	/* a partition has no queue of its own; a file system without a device of its own has only a bdi */
	static const char *const sources[] = {
		"/sys/dev/block/%u:%u/queue/read_ahead_kb",
		"/sys/dev/block/%u:%u/queue/max_sectors_kb",
		"/sys/dev/block/%u:%u/../queue/read_ahead_kb",
		"/sys/dev/block/%u:%u/../queue/max_sectors_kb",
		"/sys/class/bdi/%u:%u/read_ahead_kb",
	};
	unsigned long kib = 0;

	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
	{
		unsigned long k = read_kib(dev, sources[i]);

		if (k > kib)
			kib = k;
	}
	if (kib == 0)
		kib = ALWAYS_HONOURED_KIB;
	if (kib > 1024 * 1024)
		kib = 1024 * 1024;
	return (uint32_t) kib * 1024;
}
