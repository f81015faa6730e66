/*
 * snapshot_file.h - the format of a snapshot file
 *
 * No PostgreSQL types here: this layer is tested and fuzzed separately, with the CRC of libpgport.
 * All numbers are little-endian.
 *
 *   header    SF_HEADER_BYTES, its last four bytes the CRC-32C of the others
 *   segments  one after another, without those that had no cached block:
 *             tablespace, database, relfilenumber, segment, blocks, wanted (u32 each), fork (u8),
 *             number of layers (u8), 0 (u16), and for each layer:
 *             layer (u8), encoding (u8), 0 (u16), blocks in it (u32), size (u32), and `size` bytes
 *             of map
 *
 * A layer's map has the blocks (8 KiB) of the segment that a cache held; a block is wanted when any
 * layer has it.  The encoding of a map is the smaller of
 *   runs      varints, alternately the number of blocks not cached and of blocks cached
 *   bitmap    a bit per block, least significant bit first
 * so that a layer of a segment of 1 GiB takes at most 16 KiB, and some tens of bytes when the whole
 * segment was cached.  The writer keeps a segment within twice that: it merges the two layers of
 * shared buffers if they do not fit.  A reader skips unknown layers.
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

/* maximum blocks of a segment here: PostgreSQL's default of 1 GiB is 131,072 blocks of 8 KiB */
#define SF_MAX_SEGMENT_BLOCKS (1u << 24)

/* the latest time accepted in a header, microseconds since 1970: the year 9999 */
#define SF_LATEST INT64_C(253402300800000000)

#define SF_FLAG_IN_RECOVERY 1u
#define SF_FLAG_THIN 2u			/* it holds less than half of `measure` */
#define SF_FLAG_FORCED 4u		/* it is the measure of later generations */

/* in the file a layer has this number plus 1 */
enum sf_layer
{
	SF_PAGE_CACHE,
	SF_BUFFERS_COOL,			/* in shared buffers, low usage count */
	SF_BUFFERS_HOT,				/* in shared buffers, high usage count */
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
	uint64_t	body_size;		/* bytes after the header */
	uint32_t	body_crc;
	char		name[SF_NAME_BYTES];
	char		origin[SF_ORIGIN_BYTES];	/* host name, printable ASCII */
	/* existing blocks of the fullest earlier generation; 0: none, or unknown */
	uint64_t	measure;
	/* the last forced generation: earlier ones are no measure; 0: none */
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
	const uint8_t *raw;			/* the encoded segment, when it was read from a file; */
	size_t		raw_size;		/* bytes */
};

/* The CRC-32C of the server, continued from that of the data before; 0 at the beginning. */
extern uint32_t sf_crc32c(uint32_t crc, const void *data, size_t size);

/* header.body_size and body_crc must be set; out has SF_HEADER_BYTES */
extern void sf_write_header(const struct sf_header *header, uint8_t *out);

/* The maximum number of bytes that sf_write_segment() writes for a segment of that many blocks. */
extern size_t sf_segment_bound(uint32_t nblocks);

/*
 * Writes a segment with these maps as its layers, NULL for a cache that holds nothing.  Sets
 * `wanted` and the layers of `segment` except their data.  Returns the bytes written; 0 when no
 * layer has a block, and then nothing is written.  May merge the maps of shared buffers.
 */
extern size_t sf_write_segment(struct sf_segment *segment, uint8_t *const maps[SF_LAYERS],
							   uint8_t *out);

/* Reads the header alone; NULL, or the reason of a failure. */
extern const char *sf_read_header(const uint8_t *file, size_t size, struct sf_header *header);

/*
 * Reads the header and checks the whole file, every map included; NULL, or the reason of a failure.
 * Takes time in proportion to `size`.  Calls `tick`, which may be NULL and need not return, about
 * once per MiB.  The caller checks first whether the header fits the cluster.
 */
extern const char *sf_check(const uint8_t *file, size_t size, struct sf_header *header,
							void (*tick) (void));

/*
 * Reads the segment at `*at` bytes, 0 for the first, and moves `*at` after it.  False at the end.
 * Only for a file that sf_check() has accepted.
 */
extern bool sf_next_segment(const uint8_t *file, const struct sf_header *header, size_t *at,
							struct sf_segment *segment);

/* Unpacks one layer into (blocks + 7) / 8 bytes; NULL, or the reason of a failure. */
extern const char *sf_read_layer(const struct sf_segment *segment, enum sf_layer layer,
								 uint8_t *map);

/*
 * Unpacks the wanted blocks of all layers into (blocks + 7) / 8 bytes; NULL, or the reason of a
 * failure.
 */
extern const char *sf_read_map(const struct sf_segment *segment, uint8_t *map);

#endif
