/*
 * make_corpus.c - writes the fuzzer's initial inputs, small snapshots of each shape, into the given
 * directory
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/page_cache.h"
#include "snapshot_file.h"

#define BLOCKS 4096

static uint8_t maps[SF_LAYERS][BLOCKS / 8];

static int
write_file(const char *directory, int shape)
{
	static const uint32_t every[] = {1, 2, 3, 17, 500};
	struct sf_header header = {.block_size = 8192,
							   .segment_blocks = 131072,
							   .name = "seed",
							   .origin = "seed"};
	uint8_t    *file = calloc(1, SF_HEADER_BYTES + 2 * sf_segment_bound(BLOCKS));
	size_t		size = SF_HEADER_BYTES;
	char		path[4096];
	FILE	   *f;

	memset(maps, 0, sizeof(maps));
	for (int l = 0; l < SF_LAYERS; l++)
		for (uint32_t b = (uint32_t) l; b < BLOCKS; b += every[(shape + l) % 5])
			pc_set(maps[l], b);
	for (uint32_t s = 0; s < 2; s++)
	{
		struct sf_segment segment = {.tablespace = 1663,
									 .database = 5,
									 .relfilenumber = 16384 + s,
									 .blocks = BLOCKS - s};
		uint8_t *const layers[SF_LAYERS] = {maps[0], shape > 4 ? maps[1] : NULL,
											shape > 4 ? maps[2] : NULL};

		size += sf_write_segment(&segment, layers, file + size);
		header.segments++;
		header.wanted += segment.wanted;
	}
	header.body_size = size - SF_HEADER_BYTES;
	header.body_crc = sf_crc32c(0, file + SF_HEADER_BYTES, header.body_size);
	sf_write_header(&header, file);
	snprintf(path, sizeof(path), "%s/seed-%d", directory, shape);
	f = fopen(path, "wb");
	if (f == NULL || fwrite(file, 1, size, f) != size || fclose(f) != 0)
	{
		perror(path);
		return 1;
	}
	free(file);
	return 0;
}

int
main(int argc, char **argv)
{
	int			failed = argc != 2;

	for (int shape = 0; shape < 10 && !failed; shape++)
		failed = write_file(argv[1], shape);
	return failed;
}
