/*
 * snapshot_file.c - the format of a snapshot file
 */
#include "snapshot_file.h"
#include "kernel/page_cache.h"

#include <string.h>

static const char magic[8] = {'P', 'G', 'R', 'E', 'S', 'I', 'D', '\n'};

/* the polynomial of iSCSI and of PostgreSQL, reflected */
#define CRC32C_POLYNOMIAL 0x82f63b78u

#define LARGEST_FORK 3

uint32_t
sf_crc32c(uint32_t crc, const void *data, size_t size)
{
	static uint32_t table[256];
	const uint8_t *p = data;

	if (table[1] == 0)
		for (uint32_t i = 0; i < 256; i++)
		{
			uint32_t	c = i;

			for (int bit = 0; bit < 8; bit++)
				c = (c >> 1) ^ ((c & 1) ? CRC32C_POLYNOMIAL : 0);
			table[i] = c;
		}
	crc = ~crc;
	while (size-- > 0)
		crc = (crc >> 8) ^ table[(crc ^ *p++) & 0xff];
	return ~crc;
}

static uint8_t *
put(uint8_t *out, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		*out++ = (uint8_t) (value >> (8 * i));
	return out;
}

static uint64_t
get(const uint8_t **in, int bytes)
{
	uint64_t	value = 0;

	for (int i = 0; i < bytes; i++)
		value |= (uint64_t) *(*in)++ << (8 * i);
	return value;
}

void
sf_write_header(const struct sf_header *header, uint8_t *out)
{
	uint8_t    *p = out;

	memset(out, 0, SF_HEADER_BYTES);
	memcpy(p, magic, sizeof(magic));
	p += sizeof(magic);
	p = put(p, SF_VERSION, 4);
	p = put(p, SF_HEADER_BYTES, 4);
	p = put(p, header->system_identifier, 8);
	p = put(p, header->timeline, 4);
	p = put(p, header->server_version, 4);
	p = put(p, header->block_size, 4);
	p = put(p, header->segment_blocks, 4);
	p = put(p, header->page_size, 4);
	p = put(p, header->flags, 4);
	p = put(p, (uint64_t) header->taken_at, 8);
	p = put(p, header->generation, 4);
	p = put(p, header->segments, 4);
	p = put(p, header->blocks, 8);
	p = put(p, header->wanted, 8);
	p = put(p, header->in_page_cache, 8);
	p = put(p, header->in_shared_buffers, 8);
	p = put(p, header->in_both, 8);
	p = put(p, header->body_size, 8);
	p = put(p, header->body_crc, 4);
	memcpy(p, header->name, SF_NAME_BYTES);
	p += SF_NAME_BYTES;
	memcpy(p, header->origin, SF_ORIGIN_BYTES);
	put(out + SF_HEADER_BYTES - 4, sf_crc32c(0, out, SF_HEADER_BYTES - 4), 4);
}

const char *
sf_read_header(const uint8_t *file, size_t size, struct sf_header *header)
{
	const uint8_t *p = file;
	const uint8_t *crc = file + SF_HEADER_BYTES - 4;
	uint32_t	version;

	if (size < sizeof(magic) + 8 || memcmp(p, magic, sizeof(magic)) != 0)
		return "it is no snapshot file";
	p += sizeof(magic);
	version = (uint32_t) get(&p, 4);
	if (version != SF_VERSION)
		return "its format is another version's";
	if (size < SF_HEADER_BYTES || get(&p, 4) != SF_HEADER_BYTES)
		return "its header is cut short";
	if (get(&crc, 4) != sf_crc32c(0, file, SF_HEADER_BYTES - 4))
		return "the checksum of its header does not match";
	header->system_identifier = get(&p, 8);
	header->timeline = (uint32_t) get(&p, 4);
	header->server_version = (uint32_t) get(&p, 4);
	header->block_size = (uint32_t) get(&p, 4);
	header->segment_blocks = (uint32_t) get(&p, 4);
	header->page_size = (uint32_t) get(&p, 4);
	header->flags = (uint32_t) get(&p, 4);
	header->taken_at = (int64_t) get(&p, 8);
	header->generation = (uint32_t) get(&p, 4);
	header->segments = (uint32_t) get(&p, 4);
	header->blocks = get(&p, 8);
	header->wanted = get(&p, 8);
	header->in_page_cache = get(&p, 8);
	header->in_shared_buffers = get(&p, 8);
	header->in_both = get(&p, 8);
	header->body_size = get(&p, 8);
	header->body_crc = (uint32_t) get(&p, 4);
	memcpy(header->name, p, SF_NAME_BYTES);
	memcpy(header->origin, p + SF_NAME_BYTES, SF_ORIGIN_BYTES);
	if (header->name[SF_NAME_BYTES - 1] != '\0' || header->origin[SF_ORIGIN_BYTES - 1] != '\0')
		return "a name in its header has no end";
	if (header->block_size == 0 || header->segment_blocks == 0 || header->segment_blocks > SF_MAX_SEGMENT_BLOCKS)
		return "a size in its header is out of range";
	return NULL;
}

/* a varint of at most five bytes; false when it is cut short or too large */
static bool
get_varint(const uint8_t **in, const uint8_t *end, uint32_t *value)
{
	uint64_t	v = 0;

	for (int shift = 0; shift < 35 && *in < end; shift += 7)
	{
		uint8_t		byte = *(*in)++;

		v |= (uint64_t) (byte & 0x7f) << shift;
		if (!(byte & 0x80))
		{
			*value = (uint32_t) v;
			return v <= UINT32_MAX;
		}
	}
	return false;
}

static uint8_t *
put_varint(uint8_t *out, uint32_t value)
{
	while (value >= 0x80)
	{
		*out++ = (uint8_t) (value | 0x80);
		value >>= 7;
	}
	*out++ = (uint8_t) value;
	return out;
}

/* runs are given up when they reach the bitmap's size, by then a pair of varints of five bytes may be beyond it */
size_t
sf_segment_bound(uint32_t nblocks)
{
	return SF_SEGMENT_BYTES + SF_LAYERS * (SF_LAYER_BYTES + pc_map_bytes(nblocks) + 10);
}

/* packs a map; returns its size in bytes */
static size_t
pack_map(const uint8_t *map, uint32_t nblocks, uint8_t *out, uint8_t *encoding)
{
	uint8_t    *p = out;
	size_t		bitmap = pc_map_bytes(nblocks);

	*encoding = SF_RUNS;
	for (uint32_t at = 0; at < nblocks;)
	{
		uint32_t	from = pc_next(map, nblocks, at, true);
		uint32_t	to = pc_next(map, nblocks, from, false);

		if (from == nblocks)
			break;
		p = put_varint(p, from - at);
		p = put_varint(p, to - from);
		at = to;
		if ((size_t) (p - out) >= bitmap)
		{
			*encoding = SF_BITMAP;
			memcpy(out, map, bitmap);
			return bitmap;
		}
	}
	return (size_t) (p - out);
}

/* writes one layer; returns what is behind it */
static uint8_t *
write_layer(struct sf_segment *segment, enum sf_layer layer, const uint8_t *map, uint8_t *out)
{
	struct sf_map *l = &segment->layers[layer];
	uint8_t    *head = out;
	size_t		size = pack_map(map, segment->blocks, out + SF_LAYER_BYTES, &l->encoding);

	l->size = (uint32_t) size;
	head = put(head, (uint64_t) layer + 1, 1);
	head = put(head, l->encoding, 1);
	head = put(head, 0, 2);
	head = put(head, l->blocks, 4);
	put(head, size, 4);
	return out + SF_LAYER_BYTES + size;
}

/* writes the layers that have blocks; returns what is behind them */
static uint8_t *
write_layers(struct sf_segment *segment, uint8_t *const maps[SF_LAYERS], uint8_t *out)
{
	for (int i = 0; i < SF_LAYERS; i++)
	{
		segment->layers[i].blocks = maps[i] ? (uint32_t) pc_popcount(maps[i], segment->blocks) : 0;
		if (segment->layers[i].blocks > 0)
			out = write_layer(segment, (enum sf_layer) i, maps[i], out);
	}
	return out;
}

/* the blocks of both layers of shared buffers go to the one that had more of them */
static void
merge_buffers(const struct sf_segment *segment, uint8_t *const maps[SF_LAYERS])
{
	bool		hot = segment->layers[SF_BUFFERS_HOT].blocks > segment->layers[SF_BUFFERS_COOL].blocks;
	uint8_t    *to = maps[hot ? SF_BUFFERS_HOT : SF_BUFFERS_COOL];
	uint8_t    *from = maps[hot ? SF_BUFFERS_COOL : SF_BUFFERS_HOT];

	for (size_t i = 0; i < pc_map_bytes(segment->blocks); i++)
	{
		to[i] |= from[i];
		from[i] = 0;
	}
}

/* blocks in any of the layers */
static uint32_t
count_any(const struct sf_segment *segment, uint8_t *const maps[SF_LAYERS])
{
	uint32_t	n = 0;

	for (size_t i = 0; i < pc_map_bytes(segment->blocks); i++)
	{
		uint8_t		any = 0;

		for (int l = 0; l < SF_LAYERS; l++)
			any |= maps[l] ? maps[l][i] : 0;
		n += (uint32_t) __builtin_popcount(any);
	}
	return n;
}

size_t
sf_write_segment(struct sf_segment *segment, uint8_t *const maps[SF_LAYERS], uint8_t *out)
{
	uint8_t    *body = out + SF_SEGMENT_BYTES;
	uint8_t    *end = write_layers(segment, maps, body);
	uint8_t    *head = out;
	int			layers = 0;

	if ((size_t) (end - body) > 2 * (SF_LAYER_BYTES + pc_map_bytes(segment->blocks)) &&
		maps[SF_BUFFERS_COOL] && maps[SF_BUFFERS_HOT])
	{
		merge_buffers(segment, maps);
		end = write_layers(segment, maps, body);
	}
	segment->wanted = 0;
	for (int l = 0; l < SF_LAYERS; l++)
	{
		layers += segment->layers[l].blocks > 0;
		segment->wanted += segment->layers[l].blocks;
	}
	if (layers == 0)
		return 0;
	if (layers > 1)
		segment->wanted = count_any(segment, maps);
	head = put(head, segment->tablespace, 4);
	head = put(head, segment->database, 4);
	head = put(head, segment->relfilenumber, 4);
	head = put(head, segment->segment, 4);
	head = put(head, segment->blocks, 4);
	head = put(head, segment->wanted, 4);
	head = put(head, segment->fork, 1);
	head = put(head, (uint64_t) layers, 1);
	put(head, 0, 2);
	return (size_t) (end - out);
}

/* reads the segment at p, which moves behind it; NULL, or what is wrong */
static const char *
read_segment(const uint8_t **p, const uint8_t *end, uint32_t segment_blocks, struct sf_segment *segment)
{
	int			layers;

	if ((size_t) (end - *p) < SF_SEGMENT_BYTES)
		return "a segment is cut short";
	segment->tablespace = (uint32_t) get(p, 4);
	segment->database = (uint32_t) get(p, 4);
	segment->relfilenumber = (uint32_t) get(p, 4);
	segment->segment = (uint32_t) get(p, 4);
	segment->blocks = (uint32_t) get(p, 4);
	segment->wanted = (uint32_t) get(p, 4);
	segment->fork = (uint8_t) get(p, 1);
	layers = (int) get(p, 1);
	*p += 2;
	memset(segment->layers, 0, sizeof(segment->layers));
	if (segment->blocks == 0 || segment->blocks > segment_blocks || segment->fork > LARGEST_FORK ||
		segment->wanted > segment->blocks)
		return "a segment is out of range";
	while (layers-- > 0)
	{
		struct sf_map map;
		unsigned	layer;

		if ((size_t) (end - *p) < SF_LAYER_BYTES)
			return "a segment is cut short";
		layer = (unsigned) get(p, 1);
		map.encoding = (uint8_t) get(p, 1);
		*p += 2;
		map.blocks = (uint32_t) get(p, 4);
		map.size = (uint32_t) get(p, 4);
		map.data = *p;
		if ((size_t) (end - *p) < map.size)
			return "a map is cut short";
		if (layer >= 1 && layer <= SF_LAYERS)
			segment->layers[layer - 1] = map;
		*p += map.size;
	}
	return NULL;
}

/* adds a map's blocks to those in `out`; NULL, or what is wrong */
static const char *
unpack_map(const struct sf_map *map, uint32_t nblocks, uint8_t *out)
{
	const uint8_t *p = map->data;
	const uint8_t *end = p ? p + map->size : NULL;
	uint64_t	at = 0;
	uint64_t	found = 0;

	if (map->blocks == 0)
		return NULL;
	switch (map->encoding)
	{
		case SF_WHOLE:
			if (map->data != NULL)
				return "a map has an encoding that is not known";
			for (uint32_t i = 0; i < nblocks; i++)
				pc_set(out, i);
			found = nblocks;
			break;
		case SF_BITMAP:
			if (map->size != pc_map_bytes(nblocks))
				return "a bitmap has the wrong length";
			if (nblocks % 8 != 0 && p[map->size - 1] >> (nblocks % 8) != 0)
				return "a bitmap goes beyond its segment";
			for (uint32_t i = 0; i < map->size; i++)
				out[i] |= p[i];
			found = pc_popcount(p, nblocks);
			break;
		case SF_RUNS:
			while (p < end)
			{
				uint32_t	gap;
				uint32_t	run;

				if (!get_varint(&p, end, &gap) || !get_varint(&p, end, &run))
					return "a run is cut short";
				if (run == 0 || at + gap + run > nblocks)
					return "a run goes beyond its segment";
				at += gap;
				found += run;
				for (; run > 0; run--)
					pc_set(out, (uint32_t) at++);
			}
			break;
		default:
			return "a map has an encoding that is not known";
	}
	return found == map->blocks ? NULL : "a map does not hold what its layer says";
}

const char *
sf_read_layer(const struct sf_segment *segment, enum sf_layer layer, uint8_t *map)
{
	memset(map, 0, pc_map_bytes(segment->blocks));
	return unpack_map(&segment->layers[layer], segment->blocks, map);
}

const char *
sf_read_map(const struct sf_segment *segment, uint8_t *map)
{
	const char *wrong = NULL;

	memset(map, 0, pc_map_bytes(segment->blocks));
	for (int l = 0; l < SF_LAYERS && wrong == NULL; l++)
		wrong = unpack_map(&segment->layers[l], segment->blocks, map);
	if (wrong == NULL && pc_popcount(map, segment->blocks) != segment->wanted)
		wrong = "its maps do not hold what a segment says";
	return wrong;
}

const char *
sf_check(const uint8_t *file, size_t size, struct sf_header *header)
{
	static uint8_t map[SF_MAX_SEGMENT_BLOCKS / 8];
	const char *wrong = sf_read_header(file, size, header);
	const uint8_t *p = file + SF_HEADER_BYTES;
	const uint8_t *end = file + size;
	uint64_t	wanted = 0;

	if (wrong != NULL)
		return wrong;
	if (header->body_size != size - SF_HEADER_BYTES)
		return "its length is not what its header says";
	if (header->body_crc != sf_crc32c(0, p, size - SF_HEADER_BYTES))
		return "the checksum of its content does not match";
	for (uint32_t i = 0; i < header->segments; i++)
	{
		struct sf_segment segment;

		if ((wrong = read_segment(&p, end, header->segment_blocks, &segment)) != NULL ||
			(wrong = sf_read_map(&segment, map)) != NULL)
			return wrong;
		wanted += segment.wanted;
	}
	if (p != end)
		return "it holds more than its header says";
	if (wanted != header->wanted)
		return "its segments do not add up to what its header says";
	return NULL;
}

bool
sf_next_segment(const uint8_t *file, const struct sf_header *header, size_t *at, struct sf_segment *segment)
{
	const uint8_t *p = file + SF_HEADER_BYTES + *at;

	if (*at >= header->body_size ||
		read_segment(&p, file + SF_HEADER_BYTES + header->body_size, header->segment_blocks, segment) != NULL)
		return false;
	*at = (size_t) (p - file) - SF_HEADER_BYTES;
	return true;
}
