/*
 * device.c - limits and counters of the block device below a file
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "device.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define ALWAYS_HONOURED_KIB 128

/* in these files, whatever the device has */
#define SECTOR_BYTES 512

/* a device below another: LVM on LUKS on RAID on multipath is four */
#define DEEPEST 8

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
pc_device_completed(dev_t dev, struct pc_completed *completed)
{
	/* only the directory of a partition has a parent with such a file */
	FILE	   *f = open_for(dev, "/sys/dev/block/%u:%u/../stat");
	unsigned long long reads,
				writes,
				sectors_read,
				sectors_written;
	bool		found;

	if (f == NULL && (f = open_for(dev, "/sys/dev/block/%u:%u/stat")) == NULL)
		return false;
	/* Documentation/block/stat.rst: reads, merged, sectors, ticks; the same of writes */
	found = fscanf(f, "%llu %*u %llu %*u %llu %*u %llu", &reads, &sectors_read, &writes,
				   &sectors_written) == 4;
	fclose(f);
	if (found)
		*completed = (struct pc_completed) {
			reads + writes, (sectors_read + sectors_written) * SECTOR_BYTES
		};
	return found;
}

/* reads the name in brackets: "none [mq-deadline] kyber bfq" */
static bool
read_scheduler(const char *path, char *name)
{
	FILE	   *f = fopen(path, "re");
	char		line[256];
	const char *begin;
	const char *end;

	if (f == NULL)
		return false;
	if (fgets(line, sizeof(line), f) == NULL)
		line[0] = '\0';
	fclose(f);
	begin = strchr(line, '[');
	end = begin != NULL ? strchr(begin, ']') : NULL;
	if (end == NULL)
		return false;
	snprintf(name, PC_SCHEDULER_BYTES, "%.*s", (int) (end - begin - 1), begin + 1);
	return true;
}

/*
 * Of the device with that directory in sysfs.  The topmost device with a queue orders the requests:
 * multipath passes them by the schedulers of its paths.  One without a queue, as most of the device
 * mapper and RAID, passes the priority on to those below it; its scheduler has no brackets.
 */
static bool
find_scheduler(const char *directory, int depth, char *name)
{
	char		path[1024];
	DIR		   *dir;
	struct dirent *entry;
	bool		found = false;
	bool		same = true;

	if (snprintf(path, sizeof(path), "%s/queue/scheduler", directory) < (int) sizeof(path) &&
		read_scheduler(path, name))
		return true;
	/* a partition has neither queue nor slaves of its own */
	if (snprintf(path, sizeof(path), "%s/partition", directory) < (int) sizeof(path) &&
		access(path, F_OK) == 0)
		return depth < DEEPEST &&
			   snprintf(path, sizeof(path), "%s/..", directory) < (int) sizeof(path) &&
			   find_scheduler(path, depth + 1, name);
	if (depth < DEEPEST && snprintf(path, sizeof(path), "%s/slaves", directory) < (int) sizeof(path) &&
		(dir = opendir(path)) != NULL)
	{
		while ((entry = readdir(dir)) != NULL)
		{
			char		below[PC_SCHEDULER_BYTES] = "";

			if (entry->d_name[0] == '.' ||
				snprintf(path, sizeof(path), "%s/slaves/%s", directory, entry->d_name) >= (int) sizeof(path))
				continue;
			same = find_scheduler(path, depth + 1, below) && same &&
				(!found || strcmp(name, below) == 0);
			memcpy(name, below, PC_SCHEDULER_BYTES);
			found = true;
		}
		closedir(dir);
	}
	return found && same;
}

void
pc_directory_scheduler(const char *directory, char *name)
{
	if (!find_scheduler(directory, 0, name))
		name[0] = '\0';
}

void
pc_device_scheduler(dev_t dev, char *name)
{
	char		directory[64];

	snprintf(directory, sizeof(directory), "/sys/dev/block/%u:%u", major(dev), minor(dev));
	pc_directory_scheduler(directory, name);
}

bool
pc_scheduler_has_classes(const char *name)
{
	return strcmp(name, "mq-deadline") == 0 || strcmp(name, "bfq") == 0;
}
