/*
 * snapshot_file.c - the format of a snapshot file
 */
#include "c.h"

#include "port/pg_crc32c.h"

#include "kernel/page_cache.h"
#include "snapshot_file.h"
#include "wire.h"

static const char magic[8] = {'P', 'G', 'R', 'E', 'S', 'I', 'D', '\n'};

#define LARGEST_FORK 3

/* bytes of a large file between two calls of `tick` */
#define TICK_BYTES (1024 * 1024)

uint32_t
sf_crc32c(uint32_t crc, const void *data, size_t size)
{
	crc = ~crc;
	COMP_CRC32C(crc, data, size);
	FIN_CRC32C(crc);
	return crc;
}

void
sf_write_header(const struct sf_header *header, uint8_t *out)
{
	uint8_t    *p = out;

	memset(out, 0, SF_HEADER_BYTES);
	memcpy(p, magic, sizeof(magic));
	p += sizeof(magic);
	p = wire_put(p, SF_VERSION, 4);
	p = wire_put(p, SF_HEADER_BYTES, 4);
	p = wire_put(p, header->system_identifier, 8);
	p = wire_put(p, header->timeline, 4);
	p = wire_put(p, header->server_version, 4);
	p = wire_put(p, header->block_size, 4);
	p = wire_put(p, header->segment_blocks, 4);
	p = wire_put(p, header->page_size, 4);
	p = wire_put(p, header->flags, 4);
	p = wire_put(p, (uint64_t) header->taken_at, 8);
	p = wire_put(p, header->generation, 4);
	p = wire_put(p, header->segments, 4);
	p = wire_put(p, header->blocks, 8);
	p = wire_put(p, header->wanted, 8);
	p = wire_put(p, header->in_page_cache, 8);
	p = wire_put(p, header->in_shared_buffers, 8);
	p = wire_put(p, header->in_both, 8);
	p = wire_put(p, header->body_size, 8);
	p = wire_put(p, header->body_crc, 4);
	memcpy(p, header->name, SF_NAME_BYTES);
	p += SF_NAME_BYTES;
	memcpy(p, header->origin, SF_ORIGIN_BYTES);
	p += SF_ORIGIN_BYTES;
	p = wire_put(p, header->measure, 8);
	wire_put(p, header->measured_from, 4);
	wire_put(out + SF_HEADER_BYTES - 4, sf_crc32c(0, out, SF_HEADER_BYTES - 4), 4);
}

const char *
sf_read_header(const uint8_t *file, size_t size, struct sf_header *header)
{
	const uint8_t *p = file;
	const uint8_t *crc = file + SF_HEADER_BYTES - 4;
	uint32_t	version;

	if (size < sizeof(magic) + 8 || memcmp(p, magic, sizeof(magic)) != 0)
		return "not a snapshot file";
	p += sizeof(magic);
	version = (uint32_t) wire_get(&p, 4);
	if (version != SF_VERSION)
		return "unsupported format version";
	if (size < SF_HEADER_BYTES || wire_get(&p, 4) != SF_HEADER_BYTES)
		return "the header is truncated";
	if (wire_get(&crc, 4) != sf_crc32c(0, file, SF_HEADER_BYTES - 4))
		return "the header checksum does not match";
	header->system_identifier = wire_get(&p, 8);
	header->timeline = (uint32_t) wire_get(&p, 4);
	header->server_version = (uint32_t) wire_get(&p, 4);
	header->block_size = (uint32_t) wire_get(&p, 4);
	header->segment_blocks = (uint32_t) wire_get(&p, 4);
	header->page_size = (uint32_t) wire_get(&p, 4);
	header->flags = (uint32_t) wire_get(&p, 4);
	header->taken_at = (int64_t) wire_get(&p, 8);
	header->generation = (uint32_t) wire_get(&p, 4);
	header->segments = (uint32_t) wire_get(&p, 4);
	header->blocks = wire_get(&p, 8);
	header->wanted = wire_get(&p, 8);
	header->in_page_cache = wire_get(&p, 8);
	header->in_shared_buffers = wire_get(&p, 8);
	header->in_both = wire_get(&p, 8);
	header->body_size = wire_get(&p, 8);
	header->body_crc = (uint32_t) wire_get(&p, 4);
	memcpy(header->name, p, SF_NAME_BYTES);
	p += SF_NAME_BYTES;
	memcpy(header->origin, p, SF_ORIGIN_BYTES);
	p += SF_ORIGIN_BYTES;
	header->measure = wire_get(&p, 8);
	header->measured_from = (uint32_t) wire_get(&p, 4);
	if (header->name[SF_NAME_BYTES - 1] != '\0' || header->origin[SF_ORIGIN_BYTES - 1] != '\0')
		return "a name in the header is not terminated";
	/* it becomes text in a database of any encoding */
	for (char *c = header->origin; *c != '\0'; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	if (header->block_size == 0 || header->segment_blocks == 0 ||
		header->segment_blocks > SF_MAX_SEGMENT_BLOCKS)
		return "a size in the header is out of range";
	if (header->taken_at < 0 || header->taken_at > SF_LATEST || header->generation > INT32_MAX ||
		header->segments > INT32_MAX || header->blocks > INT64_MAX || header->wanted > INT64_MAX ||
		header->in_page_cache > INT64_MAX || header->in_shared_buffers > INT64_MAX ||
		header->in_both > INT64_MAX || header->measure > INT64_MAX ||
		header->measured_from > INT32_MAX)
		return "a number in the header is out of range";
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

/*
 * Runs are abandoned when they reach the bitmap's size, but a pair of varints of five bytes each
 * may already exceed it.
 */
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

/* writes one layer; returns the position after it */
static uint8_t *
write_layer(struct sf_segment *segment, enum sf_layer layer, const uint8_t *map, uint8_t *out)
{
	struct sf_map *l = &segment->layers[layer];
	uint8_t    *head = out;
	size_t		size = pack_map(map, segment->blocks, out + SF_LAYER_BYTES, &l->encoding);

	l->size = (uint32_t) size;
	head = wire_put(head, (uint64_t) layer + 1, 1);
	head = wire_put(head, l->encoding, 1);
	head = wire_put(head, 0, 2);
	head = wire_put(head, l->blocks, 4);
	wire_put(head, size, 4);
	return out + SF_LAYER_BYTES + size;
}

/* writes the layers with blocks; returns the position after them */
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

/* merges both layers of shared buffers into the one with more blocks */
static void
merge_buffers(const struct sf_segment *segment, uint8_t *const maps[SF_LAYERS])
{
	bool hot = segment->layers[SF_BUFFERS_HOT].blocks > segment->layers[SF_BUFFERS_COOL].blocks;
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
	head = wire_put(head, segment->tablespace, 4);
	head = wire_put(head, segment->database, 4);
	head = wire_put(head, segment->relfilenumber, 4);
	head = wire_put(head, segment->segment, 4);
	head = wire_put(head, segment->blocks, 4);
	head = wire_put(head, segment->wanted, 4);
	head = wire_put(head, segment->fork, 1);
	head = wire_put(head, (uint64_t) layers, 1);
	wire_put(head, 0, 2);
	return (size_t) (end - out);
}

/* reads the segment at p and moves p after it; NULL, or the reason of a failure */
static const char *
read_segment(const uint8_t **p, const uint8_t *end, const struct sf_header *header,
			 struct sf_segment *segment)
{
	int			layers;

	segment->raw = *p;
	if ((size_t) (end - *p) < SF_SEGMENT_BYTES)
		return "a segment is truncated";
	segment->tablespace = (uint32_t) wire_get(p, 4);
	segment->database = (uint32_t) wire_get(p, 4);
	segment->relfilenumber = (uint32_t) wire_get(p, 4);
	segment->segment = (uint32_t) wire_get(p, 4);
	segment->blocks = (uint32_t) wire_get(p, 4);
	segment->wanted = (uint32_t) wire_get(p, 4);
	segment->fork = (uint8_t) wire_get(p, 1);
	layers = (int) wire_get(p, 1);
	*p += 2;
	memset(segment->layers, 0, sizeof(segment->layers));
	/* a relation has less than 2^32 blocks */
	if (segment->blocks == 0 || segment->blocks > header->segment_blocks ||
		segment->fork > LARGEST_FORK || segment->wanted > segment->blocks ||
		segment->segment > UINT32_MAX / header->segment_blocks)
		return "a segment is out of range";
	while (layers-- > 0)
	{
		struct sf_map map;
		unsigned	layer;

		if ((size_t) (end - *p) < SF_LAYER_BYTES)
			return "a segment is truncated";
		layer = (unsigned) wire_get(p, 1);
		map.encoding = (uint8_t) wire_get(p, 1);
		*p += 2;
		map.blocks = (uint32_t) wire_get(p, 4);
		map.size = (uint32_t) wire_get(p, 4);
		map.data = *p;
		if ((size_t) (end - *p) < map.size)
			return "a map is truncated";
		if (layer >= 1 && layer <= SF_LAYERS)
			segment->layers[layer - 1] = map;
		*p += map.size;
	}
	segment->raw_size = (size_t) (*p - segment->raw);
	return NULL;
}

/*
 * An iterator over the runs of a map in either encoding.  Its cost depends on the bytes of the map,
 * not on the number of blocks it describes, which a damaged file could exaggerate.
 */
struct runs
{
	const struct sf_map *map;
	uint32_t	nblocks;
	const uint8_t *p;
	uint32_t	from;			/* the current run, */
	uint32_t	to;				/* exclusive end */
	bool		ended;
	const char *wrong;
};

/* moves to the next run; sets `ended` after the last one, and on an error */
static void
next_run(struct runs *r)
{
	const uint8_t *end = r->map->data + r->map->size;
	uint32_t	gap;
	uint32_t	run;

	if (r->map->encoding == SF_BITMAP)
	{
		r->from = pc_next(r->map->data, r->nblocks, r->to, true);
		r->to = pc_next(r->map->data, r->nblocks, r->from, false);
		r->ended = r->from >= r->nblocks;
	}
	else if (r->p >= end)
		r->ended = true;
	else if (!get_varint(&r->p, end, &gap) || !get_varint(&r->p, end, &run))
		r->wrong = "a run is truncated";
	else if (run == 0 || (uint64_t) r->to + gap + run > r->nblocks)
		r->wrong = "a run exceeds its segment";
	else
	{
		r->from = r->to + gap;
		r->to = r->from + run;
	}
	r->ended |= r->wrong != NULL;
}

/* the first run of a layer */
static struct runs
first_run(const struct sf_segment *segment, enum sf_layer layer)
{
	const struct sf_map *map = &segment->layers[layer];
	struct runs r = {.map = map, .nblocks = segment->blocks, .p = map->data};
	uint32_t	tail = segment->blocks % 8;

	if (map->blocks == 0)
		r.ended = true;
	else if (map->encoding != SF_RUNS && map->encoding != SF_BITMAP)
		r.wrong = "a map has an unknown encoding";
	else if (map->encoding == SF_BITMAP && map->size != pc_map_bytes(segment->blocks))
		r.wrong = "a bitmap has the wrong length";
	else if (map->encoding == SF_BITMAP && tail != 0 && map->data[map->size - 1] >> tail != 0)
		r.wrong = "a bitmap exceeds its segment";
	else
		next_run(&r);
	r.ended |= r.wrong != NULL;
	return r;
}

/* checks the block count of each layer; NULL, or the reason of a failure */
static const char *
check_layers(const struct sf_segment *segment)
{
	for (int l = 0; l < SF_LAYERS; l++)
	{
		struct runs r = first_run(segment, (enum sf_layer) l);
		uint64_t	found = 0;

		for (; !r.ended; next_run(&r))
			found += r.to - r.from;
		if (r.wrong != NULL)
			return r.wrong;
		if (found != segment->layers[l].blocks)
			return "the block count of a layer does not match its map";
	}
	return NULL;
}

/* blocks in any of the layers, which check_layers() has accepted */
static uint64_t
count_union(const struct sf_segment *segment)
{
	struct runs runs[SF_LAYERS];
	uint64_t	found = 0;
	uint32_t	at = 0;			/* blocks before this one are counted */

	for (int l = 0; l < SF_LAYERS; l++)
		runs[l] = first_run(segment, (enum sf_layer) l);
	for (;;)
	{
		struct runs *first = NULL;

		for (int l = 0; l < SF_LAYERS; l++)
			if (!runs[l].ended && (first == NULL || runs[l].from < first->from))
				first = &runs[l];
		if (first == NULL)
			return found;
		if (first->to > at)
		{
			found += first->to - (first->from > at ? first->from : at);
			at = first->to;
		}
		next_run(first);
	}
}

/* adds a layer's blocks to `out`; NULL, or the reason of a failure */
static const char *
unpack_layer(const struct sf_segment *segment, enum sf_layer layer, uint8_t *out)
{
	struct runs r = first_run(segment, layer);
	uint64_t	found = 0;

	for (; !r.ended; next_run(&r))
	{
		found += r.to - r.from;
		pc_set_run(out, r.from, r.to);
	}
	if (r.wrong != NULL)
		return r.wrong;
	return found == segment->layers[layer].blocks ? NULL :
													"the block count of a layer does not match its map";
}

const char *
sf_read_layer(const struct sf_segment *segment, enum sf_layer layer, uint8_t *map)
{
	memset(map, 0, pc_map_bytes(segment->blocks));
	return unpack_layer(segment, layer, map);
}

const char *
sf_read_map(const struct sf_segment *segment, uint8_t *map)
{
	const char *wrong = NULL;

	memset(map, 0, pc_map_bytes(segment->blocks));
	for (int l = 0; l < SF_LAYERS && wrong == NULL; l++)
		wrong = unpack_layer(segment, (enum sf_layer) l, map);
	if (wrong == NULL && pc_popcount(map, segment->blocks) != segment->wanted)
		wrong = "the block count of a segment does not match its maps";
	return wrong;
}

const char *
sf_check(const uint8_t *file, size_t size, struct sf_header *header, void (*tick) (void))
{
	const char *wrong = sf_read_header(file, size, header);
	const uint8_t *p = file + SF_HEADER_BYTES;
	const uint8_t *end = file + size;
	const uint8_t *ticked = p;
	uint64_t	wanted = 0;
	uint32_t	crc = 0;

	if (wrong != NULL)
		return wrong;
	if (header->body_size != size - SF_HEADER_BYTES)
		return "the file size does not match the header";
	for (size_t at = SF_HEADER_BYTES; at < size; at += TICK_BYTES)
	{
		crc = sf_crc32c(crc, file + at, size - at < TICK_BYTES ? size - at : TICK_BYTES);
		if (tick)
			tick();
	}
	if (header->body_crc != crc)
		return "the content checksum does not match";
	for (uint32_t i = 0; i < header->segments; i++)
	{
		struct sf_segment segment;

		if ((wrong = read_segment(&p, end, header, &segment)) != NULL ||
			(wrong = check_layers(&segment)) != NULL)
			return wrong;
		if (count_union(&segment) != segment.wanted)
			return "the block count of a segment does not match its maps";
		wanted += segment.wanted;
		if (tick && p - ticked >= TICK_BYTES)
		{
			tick();
			ticked = p;
		}
	}
	if (p != end)
		return "the file has more data than the header states";
	if (wanted != header->wanted)
		return "the block count of the header does not match the segments";
	return NULL;
}

bool
sf_next_segment(const uint8_t *file, const struct sf_header *header, size_t *at,
				struct sf_segment *segment)
{
	const uint8_t *p = file + SF_HEADER_BYTES + *at;

	if (*at >= header->body_size ||
		read_segment(&p, file + SF_HEADER_BYTES + header->body_size, header, segment) != NULL)
		return false;
	*at = (size_t) (p - file) - SF_HEADER_BYTES;
	return true;
}
