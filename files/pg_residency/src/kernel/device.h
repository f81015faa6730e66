/*
 * device.h - what the block device below a file allows
 */
#ifndef PC_DEVICE_H
#define PC_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Bytes that one posix_fadvise(WILLNEED) loads at most.  The kernel silently cuts each call to
 * max(read-ahead, largest request): force_page_cache_ra() in mm/readahead.c.  128 KiB, which is
 * always honoured, where the device is not found (btrfs, overlayfs, network file systems).
 */
extern uint32_t pc_device_request_bytes(dev_t dev);

/* Bytes that the device is sent in one piece at most, 0 where it is not found. */
extern uint32_t pc_device_largest_request(dev_t dev);

/*
 * Requests, reads and writes of anybody, that the device has completed since the machine was
 * started; of the whole disk where the file is on a partition.  False where the device is not
 * found.
 */
extern bool pc_device_completed(dev_t dev, uint64_t *requests);

#endif
