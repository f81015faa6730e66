/*
 * device.h - what the block device below a file allows
 */
#ifndef PC_DEVICE_H
#define PC_DEVICE_H

#include <stdint.h>
#include <sys/types.h>

/*
 * Bytes that one posix_fadvise(WILLNEED) loads at most.  The kernel silently cuts each call to
 * max(read-ahead, largest request): force_page_cache_ra() in mm/readahead.c.  128 KiB, which is always honoured,
 * where the device is not found (btrfs, overlayfs, network file systems).
 */
extern uint32_t pc_device_request_bytes(dev_t dev);

#endif
