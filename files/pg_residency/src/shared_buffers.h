/*
 * shared_buffers.h - the contents of PostgreSQL's own cache
 */
#ifndef RESIDENCY_SHARED_BUFFERS_H
#define RESIDENCY_SHARED_BUFFERS_H

#include "postgres.h"

#include "segments.h"

typedef struct BufferSet BufferSet;

/* whether a buffer holds that block, which is relative to the segment */
extern bool block_in_shared_buffers(const SegmentId *id, BlockNumber block);

/* Reads all buffers once; allocates eight bytes for each, and a hash table of the forks. */
extern BufferSet *collect_shared_buffers(void);

/*
 * Maps the segment's blocks that the set contains, in maps of `blocks` bits; false when there are
 * none.
 */
extern bool buffers_of_segment(const BufferSet *set, const SegmentId *id, uint32 blocks,
							   uint8 *cool, uint8 *hot);

#endif
