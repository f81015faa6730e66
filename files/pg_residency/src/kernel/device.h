/*
 * device.h - limits and counters of the block device below a file
 */
#ifndef PC_DEVICE_H
#define PC_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * The maximum number of bytes that one posix_fadvise(WILLNEED) loads.  The kernel silently cuts
 * each call to max(read-ahead, largest request): force_page_cache_ra() in mm/readahead.c. 128 KiB,
 * which every device honours, if the device is unknown (btrfs, overlayfs, network file systems).
 */
extern uint32_t pc_device_request_bytes(dev_t dev);

/* The maximum number of bytes of one request to the device, 0 if the device is unknown. */
extern uint32_t pc_device_largest_request(dev_t dev);

struct pc_completed
{
	uint64_t	requests;
	uint64_t	bytes;
};

/*
 * What the device has completed since the host was started, reads and writes of all processes; for
 * a partition, of the whole disk.  False if the device is unknown.
 */
extern bool pc_device_completed(dev_t dev, struct pc_completed *completed);

/* the name of a scheduler, with the terminating zero; longer ones are cut */
#define PC_SCHEDULER_BYTES 16

/*
 * The I/O scheduler of the disk below the device, which an administrator may change at any time:
 * "none", "mq-deadline", ...  Empty if the device is unknown, or has several disks with different
 * ones.
 */
extern void pc_device_scheduler(dev_t dev, char *name);

/* The same of the device with that directory in sysfs. */
extern void pc_directory_scheduler(const char *directory, char *name);

/* Whether that scheduler serves a request of the idle class after all others. */
extern bool pc_scheduler_has_classes(const char *name);

#endif
