/*
 * device.c - limits and counters of the block device below a file
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "device.h"

#include <stdio.h>
#include <sys/sysmacros.h>

#define ALWAYS_HONOURED_KIB 128

static FILE *
open_for(dev_t dev, const char *format)
{
	char		path[128];

	snprintf(path, sizeof(path), format, major(dev), minor(dev));
	return fopen(path, "re");
}

/* 0 when it cannot be read */
static unsigned long
read_kib(dev_t dev, const char *format)
{
	unsigned long kib = 0;
	FILE	   *f = open_for(dev, format);

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
	/*
	 * A partition has no queue of its own.  A file system without a block device of its own has
	 * only a bdi.
	 */
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

uint32_t
pc_device_largest_request(dev_t dev)
{
	unsigned long kib = read_kib(dev, "/sys/dev/block/%u:%u/queue/max_sectors_kb");

	if (kib == 0)
		kib = read_kib(dev, "/sys/dev/block/%u:%u/../queue/max_sectors_kb");
	return kib > 1024 * 1024 ? 1024 * 1024 * 1024 : (uint32_t) kib * 1024;
}

bool
pc_device_completed(dev_t dev, uint64_t *requests)
{
	/* only the directory of a partition has a parent with such a file */
	FILE	   *f = open_for(dev, "/sys/dev/block/%u:%u/../stat");
	unsigned long long reads;
	unsigned long long writes;
	bool		found;

	if (f == NULL && (f = open_for(dev, "/sys/dev/block/%u:%u/stat")) == NULL)
		return false;
	/* Documentation/block/stat.rst: reads, merged, sectors, ticks, writes */
	found = fscanf(f, "%llu %*u %*u %*u %llu", &reads, &writes) == 2;
	fclose(f);
	*requests = reads + writes;
	return found;
}
