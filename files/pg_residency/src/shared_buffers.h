/*
 * shared_buffers.h - what PostgreSQL's own cache holds
 */
#ifndef RESIDENCY_SHARED_BUFFERS_H
#define RESIDENCY_SHARED_BUFFERS_H

#include "postgres.h"

#include "segments.h"

typedef struct BufferSet BufferSet;

/* whether a buffer holds that block of the segment, counted from its beginning */
extern bool block_in_shared_buffers(const SegmentId *id, BlockNumber block);

/* Looks at all buffers once; takes eight bytes for each, and a hash table of the forks. */
extern BufferSet *collect_shared_buffers(void);

/*
 * Marks the segment's blocks that the set has, in maps of that many blocks; false when there is
 * none.
 */
extern bool buffers_of_segment(const BufferSet *set, const SegmentId *id, uint32 blocks,
							   uint8 *cool, uint8 *hot);

#endif
