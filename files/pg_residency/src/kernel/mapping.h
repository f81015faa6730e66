/*
 * mapping.h - pages that a process has mapped, so that the kernel keeps them longer
 *
 * A page that a process uses through a mapping is spared by the kernel's reclaim once more, and a
 * scheme of DAMON may be confined to unmapped pages.  The pages must be in the page cache: one that
 * was reclaimed a moment before is read, with the kernel's read-ahead.  The mapping costs a page
 * table of 4 KiB for each 2 MiB, and no disk space after the file is truncated; a file that is
 * removed without that keeps its space.  While the mapping exists, POSIX_FADV_DONTNEED does not
 * evict its pages.
 */
#ifndef PC_MAPPING_H
#define PC_MAPPING_H

#include <stdint.h>
#include <sys/types.h>

/* zero-initialised: nothing is mapped */
struct pc_mapping
{
	void	   *address;
	size_t		length;			/* bytes, from the beginning of the file on */
	uint64_t	mapped;			/* bytes that the last call of pc_hold() found or put in it */
	uint32_t	tables;			/* page tables for that */
};

/*
 * Maps the blocks of the bit map, which must be in the page cache, or marks them as used if they
 * are mapped.  2 MiB of which fewer than 64 KiB are wanted are left out, because the page table
 * would cost too much, and so is what would take more than most_tables page tables or be more than
 * `most` bytes.  Returns 0 or a negative errno, and then nothing is mapped: -EINVAL before Linux
 * 5.14.
 */
extern int	pc_hold(struct pc_mapping *mapping, int fd, const uint8_t *map, uint32_t nblocks,
					uint32_t block_size, uint32_t most_tables, uint64_t most);

/* Ends the mapping, if there is one. */
extern void pc_release(struct pc_mapping *mapping);

#endif
