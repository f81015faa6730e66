/*
 * snapshot_file.h - the format of a snapshot file
 *
 * No PostgreSQL types here: this layer is tested and fuzzed alone.  All numbers are little-endian.
 *
 *   header    SF_HEADER_BYTES, its last four bytes the CRC-32C of the others
 *   segments  one after another, none for a segment of which nothing was cached:
 *             tablespace, database, relfilenumber, segment, blocks, wanted (u32 each), fork (u8),
 *             number of layers (u8), 0 (u16), and for each layer:
 *             layer (u8), encoding (u8), 0 (u16), blocks in it (u32), size (u32), and `size` bytes
 *             of map
 *
 * A layer's map says which blocks (8 KiB) of the segment a cache held; what is wanted is what any
 * of them held.  Its encoding is the smaller of
 *   runs      varints, alternately how many blocks were not cached and how many were
 *   bitmap    a bit per block, least significant bit first
 * so that a layer of a segment of 1 GiB takes 16 KiB at most, and some tens of bytes when all of it
 * was cached.  The writer keeps a segment within twice that: where the two layers of shared buffers
 * would not fit, they become one. A reader passes over layers that it does not know.
 */
#ifndef RESIDENCY_SNAPSHOT_FILE_H
#define RESIDENCY_SNAPSHOT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SF_VERSION 1
#define SF_HEADER_BYTES 512
#define SF_SEGMENT_BYTES 28
#define SF_LAYER_BYTES 12
#define SF_NAME_BYTES 64
#define SF_ORIGIN_BYTES 256

/* the most blocks a segment may have here: PostgreSQL's default of 1 GiB is 131,072 of 8 KiB */
#define SF_MAX_SEGMENT_BLOCKS (1u << 24)

/* the latest time that a header may have, microseconds since 1970: the year 9999 */
#define SF_LATEST INT64_C(253402300800000000)

#define SF_FLAG_IN_RECOVERY 1u
#define SF_FLAG_THIN 2u			/* it holds less than half of `measure` */
#define SF_FLAG_FORCED 4u		/* it is the measure of those after it, whatever was before */

/* in the file a layer's number is one more */
enum sf_layer
{
	SF_PAGE_CACHE,
	SF_BUFFERS_COOL,			/* in shared buffers, seldom used lately */
	SF_BUFFERS_HOT,				/* in shared buffers, often used lately */
	SF_LAYERS
};

enum sf_encoding
{
	SF_RUNS = 1,
	SF_BITMAP = 2
};

struct sf_header
{
	uint64_t	system_identifier;
	uint32_t	timeline;
	uint32_t	server_version;	/* server_version_num */
	uint32_t	block_size;		/* bytes */
	uint32_t	segment_blocks; /* of a full segment */
	uint32_t	page_size;		/* bytes, the kernel's */
	uint32_t	flags;
	int64_t		taken_at;		/* microseconds since 1970 */
	uint32_t	generation;
	uint32_t	segments;		/* in this file */
	uint64_t	blocks;			/* of the whole cluster */
	uint64_t	wanted;			/* blocks that were in any cache */
	uint64_t	in_page_cache;
	uint64_t	in_shared_buffers;
	uint64_t	in_both;
	uint64_t	body_size;		/* bytes behind the header */
	uint32_t	body_crc;
	char		name[SF_NAME_BYTES];
	char		origin[SF_ORIGIN_BYTES];	/* host name, printable ASCII */
	/* blocks of the fullest before it that still existed; 0: none, or not known */
	uint64_t	measure;
	/* the last forced generation: none before it is a measure; 0: none */
	uint32_t	measured_from;
};

/* blocks is 0 when the file has no such layer for the segment */
struct sf_map
{
	uint32_t	blocks;			/* of the segment, in this layer */
	uint8_t		encoding;
	const uint8_t *data;
	uint32_t	size;			/* bytes */
};

struct sf_segment
{
	uint32_t	tablespace;
	uint32_t	database;
	uint32_t	relfilenumber;
	uint32_t	segment;
	uint32_t	blocks;
	uint32_t	wanted;			/* blocks in any of the layers */
	uint8_t		fork;			/* PostgreSQL's ForkNumber */
	struct sf_map layers[SF_LAYERS];
	const uint8_t *raw;			/* all of it as the file has it, when it was read from one; */
	size_t		raw_size;		/* bytes */
};

extern uint32_t sf_crc32c(uint32_t crc, const void *data, size_t size);

/* header.body_size and body_crc must be set; out has SF_HEADER_BYTES */
extern void sf_write_header(const struct sf_header *header, uint8_t *out);

/* Bytes that sf_write_segment() may need for a segment of that many blocks. */
extern size_t sf_segment_bound(uint32_t nblocks);

/*
 * Writes a segment whose layers are these maps, NULL where a cache held nothing; wanted and layers
 * of `segment` are filled with what was written, but for their data.  Returns the bytes written; 0,
 * and nothing, when no layer has a block.  The maps of shared buffers may be merged.
 */
extern size_t sf_write_segment(struct sf_segment *segment, uint8_t *const maps[SF_LAYERS],
							   uint8_t *out);

/* Reads the header alone; NULL, or what is wrong with it. */
extern const char *sf_read_header(const uint8_t *file, size_t size, struct sf_header *header);

/*
 * Reads the header and checks the whole file, every map included; NULL, or what is wrong with it.
 * It takes time in proportion to `size`, and calls `tick`, which may be NULL and need not return,
 * about once a MiB.  What the header says of the cluster is for the caller to judge first.
 */
extern const char *sf_check(const uint8_t *file, size_t size, struct sf_header *header,
							void (*tick) (void));

/*
 * The segment at `*at` bytes, 0 for the first; moves `*at` behind it.  False at the end.  Only of a
 * file that sf_check() found right.
 */
extern bool sf_next_segment(const uint8_t *file, const struct sf_header *header, size_t *at,
							struct sf_segment *segment);

/* Unpacks one layer into (blocks + 7) / 8 bytes; NULL, or what is wrong with it. */
extern const char *sf_read_layer(const struct sf_segment *segment, enum sf_layer layer,
								 uint8_t *map);

/*
 * Unpacks what is wanted, in whichever layer, into (blocks + 7) / 8 bytes; NULL, or what is wrong
 * with it.
 */
extern const char *sf_read_map(const struct sf_segment *segment, uint8_t *map);

#endif
