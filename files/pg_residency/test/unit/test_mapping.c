/*
 * test_mapping.c - what is mapped stays when the kernel is advised to evict it, on a real file
 *
 * The file is created in the working directory, which must not be on tmpfs.  The kernel may reclaim
 * pages at any time, so residency is asserted with a tolerance of 2 %.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel/mapping.h"

#define BLOCK 8192
/* more than three page tables, and no multiple */
#define BLOCKS 803
#define ABOUT(n) ((n) - (n) / 50)

static int	fd = -1;
static char file_name[] = "mapping_test.XXXXXX";

static int
make_file(void **state)
{
	static char block[BLOCK];

	(void) state;
	fd = mkstemp(file_name);
	for (int i = 0; i < BLOCKS; i++)
		if (write(fd, block, BLOCK) != BLOCK)
			return -1;
	return fsync(fd);
}

static int
remove_file(void **state)
{
	(void) state;
	close(fd);
	return unlink(file_name);
}

/* bytes in the page cache, by mincore(2) */
static size_t
resident(void)
{
	size_t		page = (size_t) sysconf(_SC_PAGESIZE);
	size_t		length = (size_t) BLOCKS * BLOCK;
	unsigned char *pages = malloc(length / page + 1);
	void	   *address = mmap(NULL, length, PROT_NONE, MAP_SHARED, fd, 0);
	size_t		n = 0;

	assert_true(address != MAP_FAILED);
	assert_int_equal(mincore(address, length, pages), 0);
	for (size_t i = 0; i < length / page; i++)
		n += pages[i] & 1;
	munmap(address, length);
	free(pages);
	return n * page;
}

static void
load(void)
{
	static char block[BLOCK];

	for (off_t i = 0; i < BLOCKS; i++)
		assert_int_equal(pread(fd, block, BLOCK, i * BLOCK), BLOCK);
	assert_true(resident() >= (size_t) ABOUT(BLOCKS * BLOCK));
}

static void
advise_to_evict(void)
{
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
}

static void
test_held(void **state)
{
	struct pc_mapping mapping = {0};
	uint8_t		all[BLOCKS / 8 + 1];

	(void) state;
	memset(all, 0xff, sizeof(all));
	load();
	for (int i = 0; i < 2; i++)	/* the second time they are mapped already */
	{
		assert_int_equal(pc_hold(&mapping, fd, all, BLOCKS, BLOCK, 100, UINT64_MAX), 0);
		assert_int_equal(mapping.mapped, BLOCKS * BLOCK);
		advise_to_evict();
		assert_true(resident() >= (size_t) ABOUT(BLOCKS * BLOCK));
	}
	pc_release(&mapping);
	assert_null(mapping.address);
	pc_release(&mapping);
	advise_to_evict();
	assert_int_equal(resident(), 0);
}

static void
test_some(void **state)
{
	struct pc_mapping mapping = {0};
	uint8_t		some[BLOCKS + 1] = {0};	/* for blocks of 1 kB too */

	(void) state;
	/* 9 blocks in the first two MiB, 3 in the second */
	some[0] = 0xff;
	some[1] = 0x01;
	some[32] = 0x07;
	load();
	assert_int_equal(pc_hold(&mapping, fd, some, BLOCKS, BLOCK, 100, UINT64_MAX), 0);
	assert_int_equal(mapping.mapped, 9 * BLOCK);
	assert_int_equal(mapping.tables, 1);
	advise_to_evict();
	/* the kernel maps some resident neighbours as well, and a folio stays as a whole */
	assert_in_range(resident(), 9 * BLOCK, 2 * 1024 * 1024);
	pc_release(&mapping);
	/* a quarter of a page for each block: the same pages */
	load();
	memset(some, 0, sizeof(some));
	memset(some, 0xff, 16);
	assert_int_equal(pc_hold(&mapping, fd, some, BLOCKS * 8, 1024, 100, UINT64_MAX), 0);
	assert_int_equal(mapping.mapped, 128 * 1024);
	pc_release(&mapping);
}

static void
test_few_tables(void **state)
{
	struct pc_mapping mapping = {0};
	uint8_t		all[BLOCKS / 8 + 1];

	(void) state;
	memset(all, 0xff, sizeof(all));
	load();
	assert_int_equal(pc_hold(&mapping, fd, all, BLOCKS, BLOCK, 2, UINT64_MAX), 0);
	assert_int_equal(mapping.tables, 2);
	assert_int_equal(pc_hold(&mapping, fd, all, BLOCKS, BLOCK, 2, UINT64_MAX), 0);
	assert_int_equal(mapping.mapped, 2 * 2 * 1024 * 1024);
	/* one that may have none keeps none, nor an address */
	assert_int_equal(pc_hold(&mapping, fd, all, BLOCKS, BLOCK, 0, UINT64_MAX), 0);
	assert_int_equal(mapping.tables, 0);
	assert_null(mapping.address);
	/* whole page tables up to a number of bytes, also when fewer may be mapped than are */
	for (uint64_t most = 6; most > 0; most -= 2)
	{
		assert_int_equal(pc_hold(&mapping, fd, all, BLOCKS, BLOCK, 100, most << 20), 0);
		assert_int_equal(mapping.mapped, most << 20);
	}
	assert_int_equal(pc_hold(&mapping, fd, all, BLOCKS, BLOCK, 100, 0), 0);
	assert_null(mapping.address);
	memset(all, 0, sizeof(all));
	all[0] = 0x07;
	assert_int_equal(pc_hold(&mapping, fd, all, BLOCKS, BLOCK, 100, UINT64_MAX), 0);
	assert_null(mapping.address);
}

static void
test_truncated(void **state)
{
	struct pc_mapping mapping = {0};
	uint8_t		all[BLOCKS / 8 + 1];

	(void) state;
	memset(all, 0xff, sizeof(all));
	load();
	assert_int_equal(pc_hold(&mapping, fd, all, BLOCKS, BLOCK, 100, UINT64_MAX), 0);
	assert_int_equal(ftruncate(fd, 300 * BLOCK), 0);
	assert_int_equal(pc_hold(&mapping, fd, all, BLOCKS, BLOCK, 100, UINT64_MAX), 0);
	assert_in_range(mapping.mapped, 1, 300 * BLOCK);
	assert_int_equal(pc_hold(&mapping, fd, all, 300, BLOCK, 100, UINT64_MAX), 0);
	assert_int_equal(mapping.mapped, 300 * BLOCK);
	assert_int_equal(mapping.length, 300 * BLOCK);
	assert_int_equal(pc_hold(&mapping, fd, all, 0, BLOCK, 100, UINT64_MAX), 0);
	assert_null(mapping.address);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_some),
		cmocka_unit_test(test_few_tables),
		cmocka_unit_test(test_truncated),
	};

	return cmocka_run_group_tests_name("mapping", tests, make_file, remove_file);
}
