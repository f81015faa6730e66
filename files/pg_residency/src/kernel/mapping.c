/*
 * mapping.c - pages that a process has mapped, so that the kernel keeps them longer
 */
#include "mapping.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "page_cache.h"

/* since Linux 5.14; not in the headers of all supported distributions */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* what one page table covers, and the least of it that is worth one */
#define TABLE_BYTES ((uint64_t) 2 * 1024 * 1024)
#define WORTH_BYTES ((uint64_t) 64 * 1024)

void
pc_release(struct pc_mapping *mapping)
{
	if (mapping->address != NULL)
		munmap(mapping->address, mapping->length);
	*mapping = (struct pc_mapping) {0};
}

static uint32_t
count_bits(const uint8_t *map, uint32_t from, uint32_t to)
{
	uint32_t	n = 0;

	for (uint32_t b = pc_next(map, to, from, true); b < to;)
	{
		uint32_t	end = pc_next(map, to, b, false);

		n += end - b;
		b = pc_next(map, to, end, true);
	}
	return n;
}

/* blocks from `from` to `to`, which are in the page cache; with block_size < a page, their pages */
static int
populate(struct pc_mapping *mapping, uint64_t from, uint64_t to)
{
	uint64_t	page = pc_page_size();

	from -= from % page;
	to += (page - to % page) % page;
	if (madvise((char *) mapping->address + from, to - from, MADV_POPULATE_READ) == 0)
		mapping->mapped += to - from;
	else if (errno == EINVAL || errno == ENOMEM)
		return -errno;
	/* others: the file was truncated meanwhile, or a page is damaged */
	return 0;
}

/* the file from its beginning on; it takes address space alone until its pages are populated */
static int
map_file(struct pc_mapping *mapping, int fd, size_t length)
{
	void	   *address = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);

	if (address == MAP_FAILED)
		return -errno;
	mapping->address = address;
	mapping->length = length;
	return 0;
}

int
pc_hold(struct pc_mapping *mapping, int fd, const uint8_t *map, uint32_t nblocks,
		uint32_t block_size, uint32_t most_tables, uint64_t most)
{
	size_t		length = (size_t) nblocks * block_size;
	uint32_t	table = (uint32_t) (TABLE_BYTES / block_size);
	uint32_t	tables = 0;
	int			rc = 0;

	if (mapping->length != length || mapping->tables > most_tables || mapping->mapped > most)
		pc_release(mapping);
	mapping->mapped = 0;
	for (uint32_t from = 0; from < nblocks && rc == 0; from += table)
	{
		uint32_t	end = nblocks - from < table ? nblocks : from + table;
		uint64_t	bytes = (uint64_t) count_bits(map, from, end) * block_size;

		if (tables == most_tables || bytes < WORTH_BYTES || mapping->mapped + bytes > most)
			continue;
		tables++;
		if (mapping->address == NULL)
			rc = map_file(mapping, fd, length);
		for (uint32_t b = pc_next(map, end, from, true); b < end && rc == 0;)
		{
			uint32_t	to = pc_next(map, end, b, false);

			rc = populate(mapping, (uint64_t) b * block_size, (uint64_t) to * block_size);
			b = pc_next(map, end, to, true);
		}
	}
	/* tables that are no longer worth it go with the mapping, which the next call makes again */
	if (rc != 0 || tables < mapping->tables || tables == 0)
		pc_release(mapping);
	else
		mapping->tables = tables;
	return rc;
}
