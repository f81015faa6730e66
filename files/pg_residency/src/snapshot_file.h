/*
 * snapshot_file.h - the format of a snapshot file
 *
 * No PostgreSQL types here: this layer is tested and fuzzed alone.  All numbers are little-endian.
 *
 *   header    SF_HEADER_BYTES, its last four bytes the CRC-32C of the others
 *   segments  one after another, none for a segment of which nothing was cached:
 *             tablespace, database, relfilenumber, segment, blocks (u32 each), fork (u8), number of layers (u8), 0 (u16)
 *             and for each layer: layer (u8), encoding (u8), 0 (u16), wanted (u32), size (u32), and `size` bytes of map
 *
 * A map says which blocks (8 KiB) of the segment a cache held.  Its encoding is the smaller of
 *   runs      varints, alternately how many blocks were not cached and how many were
 *   bitmap    a bit per block, least significant bit first
 * so that a segment of 1 GiB takes 16 KiB at most, and some tens of bytes when all of it was cached.
 * A reader passes over layers that it does not know.
 */
#ifndef SNAPSHOT_FILE_H
#define SNAPSHOT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SF_VERSION 1
#define SF_HEADER_BYTES 512
#define SF_SEGMENT_BYTES 24
#define SF_LAYER_BYTES 12
#define SF_NAME_BYTES 64
#define SF_ORIGIN_BYTES 256

/* the most blocks a segment may have here: PostgreSQL's default of 1 GiB is 131,072 of 8 KiB */
#define SF_MAX_SEGMENT_BLOCKS (1u << 24)

#define SF_FLAG_IN_RECOVERY 1u

enum sf_layer
{
	SF_PAGE_CACHE = 1
	/* 2 is kept for shared buffers */
};

enum sf_encoding
{
	SF_RUNS = 1,
	SF_BITMAP = 2,
	SF_WHOLE = 3				/* never in a file: every block, without a map */
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
	uint64_t	wanted;			/* blocks that were cached */
	uint64_t	body_size;		/* bytes behind the header */
	uint32_t	body_crc;
	char		name[SF_NAME_BYTES];
	char		origin[SF_ORIGIN_BYTES];	/* host name */
};

struct sf_segment
{
	uint32_t	tablespace;
	uint32_t	database;
	uint32_t	relfilenumber;
	uint32_t	segment;
	uint32_t	blocks;
	uint8_t		fork;			/* PostgreSQL's ForkNumber */
	/* the page cache's map; wanted is 0 when the file has none for this segment */
	uint8_t		encoding;
	uint32_t	wanted;
	const uint8_t *map;
	uint32_t	map_size;		/* bytes */
};

extern uint32_t sf_crc32c(uint32_t crc, const void *data, size_t size);

/* header.body_size and body_crc must be set; out has SF_HEADER_BYTES */
extern void sf_write_header(const struct sf_header *header, uint8_t *out);

/* Bytes that sf_write_segment() may need for a segment of that many blocks. */
extern size_t sf_segment_bound(uint32_t nblocks);

/*
 * Writes a segment whose cached blocks are the bits of `map`; encoding, wanted, map and map_size of `segment` are not
 * looked at.  Returns the bytes written.
 */
extern size_t sf_write_segment(const struct sf_segment *segment, const uint8_t *map, uint8_t *out);

/* Reads the header alone; NULL, or what is wrong with it. */
extern const char *sf_read_header(const uint8_t *file, size_t size, struct sf_header *header);

/* Reads the header and checks the whole file, every map included; NULL, or what is wrong with it. */
extern const char *sf_check(const uint8_t *file, size_t size, struct sf_header *header);

/*
 * The segment at `*at` bytes, 0 for the first; moves `*at` behind it.  False at the end.  Only of a file that
 * sf_check() found right.
 */
extern bool sf_next_segment(const uint8_t *file, const struct sf_header *header, size_t *at, struct sf_segment *segment);

/* Unpacks a segment's map into (blocks + 7) / 8 bytes; NULL, or what is wrong with it. */
extern const char *sf_read_map(const struct sf_segment *segment, uint8_t *map);

#endif
