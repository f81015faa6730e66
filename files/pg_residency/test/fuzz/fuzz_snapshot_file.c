/*
 * fuzz_snapshot_file.c - feeds arbitrary bytes to the reader of snapshots (libFuzzer)
 *
 * Each input is read twice: unchanged, and with correct lengths and checksums, because otherwise
 * the fuzzer would never pass them.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/page_cache.h"
#include "snapshot_file.h"

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
read_all(const uint8_t *file, size_t size)
{
	struct sf_header header;
	struct sf_segment segment;
	size_t		at = 0;

	if (sf_check(file, size, &header, NULL) != NULL)
		return;
	while (sf_next_segment(file, &header, &at, &segment))
	{
		uint8_t    *map = malloc(pc_map_bytes(segment.blocks));

		/* after a successful check the file must be readable */
		if (sf_read_map(&segment, map) != NULL ||
			pc_popcount(map, segment.blocks) != segment.wanted)
			abort();
		for (int l = 0; l < SF_LAYERS; l++)
			if (sf_read_layer(&segment, (enum sf_layer) l, map) != NULL)
				abort();
		free(map);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sf_header header = {.block_size = 8192, .segment_blocks = 131072};
	struct sf_segment segment;
	uint8_t    *copy;
	size_t		at = 0;

	read_all(data, size);
	if (size < SF_HEADER_BYTES)
		return 0;
	copy = malloc(size);
	memcpy(copy, data, size);
	header.body_size = size - SF_HEADER_BYTES;
	header.body_crc = sf_crc32c(0, copy + SF_HEADER_BYTES, size - SF_HEADER_BYTES);
	/* sets the counts of the header from the apparent segments */
	while (sf_next_segment(copy, &header, &at, &segment))
	{
		header.segments++;
		header.wanted += segment.wanted;
	}
	sf_write_header(&header, copy);
	read_all(copy, size);
	free(copy);
	return 0;
}
