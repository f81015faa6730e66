/*
 * test_snapshot_file.c - the format of a snapshot: the reader returns what was written, and rejects
 * anything else
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "kernel/page_cache.h"
#include "snapshot_file.h"

#define SEGMENT_BLOCKS 131072
#define MAP_BYTES (SEGMENT_BLOCKS / 8)

static uint8_t map[MAP_BYTES];
static uint8_t cool[MAP_BYTES];
static uint8_t hot[MAP_BYTES];
static uint8_t read_map[MAP_BYTES];

/* a file of up to four segments with maps of that many blocks */
struct file
{
	uint8_t    *data;
	size_t		size;
	struct sf_header header;
};

static void
begin_file(struct file *f)
{
	memset(f, 0, sizeof(*f));
	f->data = calloc(1, SF_HEADER_BYTES + 4 * sf_segment_bound(SEGMENT_BLOCKS));
	f->size = SF_HEADER_BYTES;
	f->header = (struct sf_header){.system_identifier = UINT64_C(0x8123456789abcdef),
								   .timeline = 7,
								   .server_version = 150020,
								   .block_size = 8192,
								   .segment_blocks = SEGMENT_BLOCKS,
								   .page_size = 4096,
								   .flags = SF_FLAG_IN_RECOVERY,
								   .taken_at = INT64_C(1795170000123456),
								   .generation = 3,
								   .blocks = 1000000,
								   .in_page_cache = 11,
								   .in_shared_buffers = 12,
								   .in_both = 13,
								   .name = "warm",
								   .origin = "db1.example.com"};
}

static void add_layers(struct file *f, uint32_t relfilenumber, uint32_t segment, uint32_t blocks,
					   uint8_t *const maps[SF_LAYERS])
{
	struct sf_segment s = {.tablespace = 1663,
						   .database = 5,
						   .relfilenumber = relfilenumber,
						   .segment = segment,
						   .blocks = blocks,
						   .fork = 2};
	size_t		n = sf_write_segment(&s, maps, f->data + f->size);

	assert_true(n <= sf_segment_bound(blocks));
	f->size += n;
	f->header.segments += n > 0;
	f->header.wanted += s.wanted;
}

static void
add_segment(struct file *f, uint32_t relfilenumber, uint32_t segment, uint32_t blocks)
{
	uint8_t    *const maps[SF_LAYERS] = {map, NULL, NULL};

	add_layers(f, relfilenumber, segment, blocks, maps);
}

static void
end_file(struct file *f)
{
	f->header.body_size = f->size - SF_HEADER_BYTES;
	f->header.body_crc = sf_crc32c(0, f->data + SF_HEADER_BYTES, f->header.body_size);
	sf_write_header(&f->header, f->data);
}

/* every n-th block */
static void
fill_map(uint32_t blocks, uint32_t n)
{
	memset(map, 0, sizeof(map));
	for (uint32_t b = 0; b < blocks; b += n)
		pc_set(map, b);
}

static void
test_crc(void **state)
{
	(void) state;
	/* the check value of CRC-32C (RFC 3720, appendix B.4 has others) */
	assert_int_equal(sf_crc32c(0, "123456789", 9), 0xe3069283);
	/* in pieces */
	assert_int_equal(sf_crc32c(sf_crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
}

static void
test_header(void **state)
{
	struct file f;
	struct sf_header h;

	(void) state;
	begin_file(&f);
	end_file(&f);
	assert_null(sf_check(f.data, f.size, &h, NULL));
	/* except its padding */
	assert_memory_equal(&h, &f.header, offsetof(struct sf_header, origin) + SF_ORIGIN_BYTES);
	free(f.data);
}

static void
test_round_trip(void **state)
{
	static const uint32_t every[] = {1, 2, 3, 10, 50, 127, 128, 1000, SEGMENT_BLOCKS - 1};
	static const uint32_t sizes[] = {1, 7, 8, 9, 1000, SEGMENT_BLOCKS - 3, SEGMENT_BLOCKS};

	(void) state;
	for (size_t e = 0; e < sizeof(every) / sizeof(every[0]); e++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		{
			struct file f;
			struct sf_header h;
			struct sf_segment segment;
			size_t		at = 0;

			begin_file(&f);
			fill_map(sizes[s], every[e]);
			add_segment(&f, 16384, 1, sizes[s]);
			add_segment(&f, UINT32_MAX, 31999, sizes[s]);
			end_file(&f);
			/* a map of 1 GiB: never more than 16 KiB plus its head */
			assert_true(f.size <=
						SF_HEADER_BYTES + 2 * (MAP_BYTES + SF_SEGMENT_BYTES + SF_LAYER_BYTES));
			assert_null(sf_check(f.data, f.size, &h, NULL));
			assert_true(sf_next_segment(f.data, &h, &at, &segment));
			assert_int_equal(segment.relfilenumber, 16384);
			assert_int_equal(segment.segment, 1);
			assert_int_equal(segment.fork, 2);
			assert_int_equal(segment.blocks, sizes[s]);
			assert_null(sf_read_map(&segment, read_map));
			assert_memory_equal(read_map, map, (sizes[s] + 7) / 8);
			assert_true(sf_next_segment(f.data, &h, &at, &segment));
			assert_int_equal(segment.relfilenumber, UINT32_MAX);
			assert_int_equal(segment.wanted, pc_popcount(map, sizes[s]));
			assert_false(sf_next_segment(f.data, &h, &at, &segment));
			free(f.data);
		}
}

static void
test_fully_cached_is_small(void **state)
{
	struct file f;

	(void) state;
	begin_file(&f);
	fill_map(SEGMENT_BLOCKS, 1);
	add_segment(&f, 1, 0, SEGMENT_BLOCKS);
	assert_true(f.size - SF_HEADER_BYTES < 64);
	free(f.data);
}

/* an unknown layer is skipped */
static void
test_unknown_layer(void **state)
{
	struct file f;
	struct sf_header h;
	struct sf_segment segment;
	uint8_t    *s;
	size_t		at = 0;

	(void) state;
	begin_file(&f);
	fill_map(100, 3);
	add_segment(&f, 1, 0, 100);
	/* one more layer after the first: number 9, 5 arbitrary bytes */
	f.data[SF_HEADER_BYTES + 25] = 2;
	s = f.data + f.size;
	memset(s, 0, SF_LAYER_BYTES + 5);
	s[0] = 9;
	s[4] = 77;
	s[8] = 5;
	f.size += SF_LAYER_BYTES + 5;
	end_file(&f);
	assert_null(sf_check(f.data, f.size, &h, NULL));
	assert_true(sf_next_segment(f.data, &h, &at, &segment));
	assert_null(sf_read_map(&segment, read_map));
	assert_memory_equal(read_map, map, 13);
	assert_false(sf_next_segment(f.data, &h, &at, &segment));
	free(f.data);
}

/* both caches: a block is wanted if any layer has it, and each layer can be read separately */
static void
test_layers(void **state)
{
	uint8_t    *const maps[SF_LAYERS] = {map, cool, hot};
	struct file f;
	struct sf_header h;
	struct sf_segment segment;
	size_t		at = 0;

	(void) state;
	begin_file(&f);
	fill_map(1000, 2);
	memset(cool, 0, sizeof(cool));
	memset(hot, 0, sizeof(hot));
	pc_set(cool, 0);
	pc_set(cool, 1);
	pc_set(hot, 2);
	pc_set(hot, 999);
	add_layers(&f, 1, 0, 1000, maps);
	end_file(&f);
	assert_null(sf_check(f.data, f.size, &h, NULL));
	assert_true(sf_next_segment(f.data, &h, &at, &segment));
	assert_int_equal(segment.wanted, 502);
	assert_int_equal(segment.layers[SF_PAGE_CACHE].blocks, 500);
	assert_int_equal(segment.layers[SF_BUFFERS_COOL].blocks, 2);
	assert_null(sf_read_layer(&segment, SF_BUFFERS_HOT, read_map));
	assert_memory_equal(read_map, hot, 125);
	assert_null(sf_read_map(&segment, read_map));
	assert_int_equal(pc_popcount(read_map, 1000), 502);
	assert_true(pc_bit(read_map, 1) && pc_bit(read_map, 999));
	free(f.data);
}

/* without cached blocks nothing is written */
static void
test_empty_segment(void **state)
{
	uint8_t    *const none[SF_LAYERS] = {NULL, NULL, NULL};
	struct file f;

	(void) state;
	begin_file(&f);
	memset(map, 0, sizeof(map));
	add_segment(&f, 1, 0, 1000);
	add_layers(&f, 1, 0, 1000, none);
	assert_int_equal(f.size, SF_HEADER_BYTES);
	free(f.data);
}

/*
 * three incompressible layers: those of shared buffers are merged, and the segment stays within 32
 * KiB per GiB
 */
static void
test_bound_of_layers(void **state)
{
	uint8_t    *const maps[SF_LAYERS] = {map, cool, hot};
	struct file f;
	struct sf_header h;
	struct sf_segment segment;
	size_t		at = 0;
	uint64_t	buffers = 0;
	unsigned	seed = 7;

	(void) state;
	memset(map, 0, sizeof(map));
	memset(cool, 0, sizeof(cool));
	memset(hot, 0, sizeof(hot));
	for (uint32_t b = 0; b < SEGMENT_BLOCKS; b++)
	{
		seed = seed * 1103515245 + 12345;
		if (seed >> 16 & 1)
			pc_set(map, b);
		if (seed >> 17 & 1)
		{
			pc_set((seed >> 18 & 3) == 0 ? cool : hot, b);
			buffers++;
		}
	}
	begin_file(&f);
	add_layers(&f, 1, 0, SEGMENT_BLOCKS, maps);
	end_file(&f);
	assert_true(f.size - SF_HEADER_BYTES <= 32 * 1024 + SF_SEGMENT_BYTES + 2 * SF_LAYER_BYTES);
	assert_null(sf_check(f.data, f.size, &h, NULL));
	assert_true(sf_next_segment(f.data, &h, &at, &segment));
	assert_int_equal(segment.layers[SF_BUFFERS_HOT].blocks, buffers);
	assert_int_equal(segment.layers[SF_BUFFERS_COOL].blocks, 0);
	free(f.data);
}

/* any byte changed, any byte missing, one extra byte */
static void
test_damage_is_found(void **state)
{
	struct file f;
	struct sf_header h;

	(void) state;
	begin_file(&f);
	fill_map(1000, 7);
	add_segment(&f, 1, 0, 1000);
	fill_map(1000, 1);
	add_segment(&f, 2, 0, 1000);
	end_file(&f);
	for (size_t i = 0; i < f.size; i++)
	{
		uint8_t    *cut = malloc(i + 1);

		f.data[i] ^= 0x10;
		assert_non_null(sf_check(f.data, f.size, &h, NULL));
		f.data[i] ^= 0x10;
		/* a copy of exactly that length, so that the sanitizer detects a read beyond it */
		memcpy(cut, f.data, i);
		assert_non_null(sf_check(cut, i, &h, NULL));
		free(cut);
	}
	assert_non_null(sf_check(f.data, f.size + 1, &h, NULL));
	assert_null(sf_check(f.data, f.size, &h, NULL));
	free(f.data);
}

/* matching checksums do not prove valid content: the reader must handle any content safely */
static void
test_hostile_content(void **state)
{
	struct file f;
	struct sf_header h;
	unsigned	seed = 1;
	unsigned	refused = 0;

	(void) state;
	begin_file(&f);
	fill_map(1000, 5);
	add_segment(&f, 1, 0, 1000);
	add_segment(&f, 2, 0, 900);
	for (int i = 0; i < 50000; i++)
	{
		size_t		body = f.size - SF_HEADER_BYTES;
		uint8_t    *copy = malloc(f.size);
		struct sf_header header = f.header;

		memcpy(copy, f.data, f.size);
		for (int k = 0; k < 1 + i % 4; k++)
		{
			seed = seed * 1103515245 + 12345;
			copy[SF_HEADER_BYTES + (seed >> 8) % body] = (uint8_t) (seed >> 16);
		}
		header.body_size = body;
		header.body_crc = sf_crc32c(0, copy + SF_HEADER_BYTES, body);
		sf_write_header(&header, copy);
		refused += sf_check(copy, f.size, &h, NULL) != NULL;
		free(copy);
	}
	assert_true(refused > 30000);
	free(f.data);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc),
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_fully_cached_is_small),
		cmocka_unit_test(test_unknown_layer),
		cmocka_unit_test(test_layers),
		cmocka_unit_test(test_empty_segment),
		cmocka_unit_test(test_bound_of_layers),
		cmocka_unit_test(test_damage_is_found),
		cmocka_unit_test(test_hostile_content),
	};

	return cmocka_run_group_tests_name("snapshot_file", tests, NULL, NULL);
}
