/*
 * test_page_cache.c - the kernel layer on real files, compared with the test's own use of
 * mincore(2)
 *
 * The test creates its files in the working directory, which must not be on tmpfs.  The kernel may
 * reclaim pages at any time, so residency is asserted with a tolerance of 2 %; the absence of pages
 * is asserted exactly.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernel/device.h"
#include "kernel/loader.h"
#include "kernel/probe.h"
#include "kernel/page_cache.h"

#define BLOCK 8192
/* more than a window of 64 MiB, and no multiple of it */
#define BLOCKS 10007

static int	fd = -1;
static char file_name[] = "page_cache_test.XXXXXX";
static uint8_t want[BLOCKS / 8 + 1];
static uint8_t before[BLOCKS / 8 + 1];
static uint8_t after[BLOCKS / 8 + 1];
static bool stop;
static uint32_t progressed;

/*
 * the test's own reader: the whole file at once, page by page, without any code of the tested layer
 */
static void
own_mincore(uint8_t *map)
{
	size_t		length = (size_t) BLOCKS * BLOCK;
	size_t		page = (size_t) sysconf(_SC_PAGESIZE);
	unsigned char *vec = malloc(length / page + 1);
	void	   *addr = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);

	assert_true(addr != MAP_FAILED);
	assert_int_equal(mincore(addr, length, vec), 0);
	munmap(addr, length);
	memset(map, 0, BLOCKS / 8 + 1);
	for (uint32_t b = 0; b < BLOCKS; b++)
	{
		bool		all = true;

		for (size_t p = (size_t) b * BLOCK / page; p < ((size_t) b + 1) * BLOCK / page; p++)
			all = all && (vec[p] & 1);
		if (all)
			map[b / 8] |= (uint8_t) (1 << (b % 8));
	}
	free(vec);
}

static void
evict_all(void)
{
	/* other processes map or read the file only briefly */
	for (int i = 0; i < 20; i++)
	{
		assert_int_equal(pc_evict(fd), 0);
		own_mincore(before);
		if (pc_popcount(before, BLOCKS) == 0)
			return;
		usleep(50000);
	}
	fail_msg("%u blocks would not go", (unsigned) pc_popcount(before, BLOCKS));
}

static int
make_file(void **state)
{
	char	   *block = malloc(BLOCK);

	(void) state;
	fd = mkstemp(file_name);
	if (fd < 0)
		return -1;
	for (uint32_t b = 0; b < BLOCKS; b++)
	{
		memset(block, (int) (b % 251), BLOCK);
		if (write(fd, block, BLOCK) != BLOCK)
			return -1;
	}
	free(block);
	return fsync(fd);
}

static int
remove_file(void **state)
{
	(void) state;
	close(fd);
	return unlink(file_name);
}

static bool
wait_a_little(void *arg, long microseconds)
{
	(void) arg;
	if (microseconds > 0)
		usleep((useconds_t) microseconds);
	return stop;
}

static void
count_progress(void *arg, uint32_t blocks)
{
	(void) arg;
	progressed += blocks;
}

static struct pc_loader
new_loader(uint32_t gap_blocks)
{
	struct stat st;
	struct pc_loader loader = {.block_size = BLOCK,
							   .window = &pc_gentle,
							   .gap_blocks = gap_blocks,
							   .wait = wait_a_little,
							   .progress = count_progress};

	assert_int_equal(fstat(fd, &st), 0);
	loader.request_bytes = pc_device_request_bytes(st.st_dev);
	loader.use_cachestat = pc_cachestat_is_honest(fd);
	stop = false;
	progressed = 0;
	return loader;
}

/* sets runs of `run` blocks, `apart` from each other */
static uint64_t
want_runs(uint32_t run, uint32_t apart)
{
	memset(want, 0, sizeof(want));
	for (uint32_t b = 0; b < BLOCKS; b++)
		if (b % (run + apart) < run)
			pc_set(want, b);
	return pc_popcount(want, BLOCKS);
}

/* the number of blocks in `a` that are not in `b` */
static uint64_t
not_in(const uint8_t *a, const uint8_t *b)
{
	uint64_t	n = 0;

	for (uint32_t i = 0; i < BLOCKS; i++)
		n += pc_bit(a, i) && !pc_bit(b, i);
	return n;
}

static void
test_bits(void **state)
{
	uint8_t		map[4] = {0};

	(void) state;
	assert_int_equal(pc_next(map, 27, 0, true), 27);
	assert_int_equal(pc_next(map, 27, 0, false), 0);
	pc_set(map, 9);
	pc_set(map, 10);
	pc_set(map, 26);
	assert_int_equal(pc_next(map, 27, 0, true), 9);
	assert_int_equal(pc_next(map, 27, 9, false), 11);
	assert_int_equal(pc_next(map, 27, 11, true), 26);
	assert_int_equal(pc_next(map, 27, 26, false), 27);
	assert_int_equal(pc_popcount(map, 27), 3);
	pc_clear(map, 9);
	assert_int_equal(pc_next(map, 27, 0, true), 10);
	memset(map, 0xff, sizeof(map));
	assert_int_equal(pc_next(map, 27, 0, false), 27);
	assert_int_equal(pc_popcount(map, 27), 27);
}

static void
test_map_and_count(void **state)
{
	struct pc_count count;
	char	   *buffer = malloc(BLOCK);
	int			attempt = 0;

	(void) state;
	evict_all();
	assert_int_equal(pc_count(fd, BLOCKS, BLOCK, true, &count), 0);
	assert_int_equal(count.resident, 0);
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	for (uint32_t b = 3; b < BLOCKS; b += 97)
		assert_int_equal(pread(fd, buffer, BLOCK, (off_t) b * BLOCK), BLOCK);
	/* repeat if the kernel reclaimed pages between the two looks */
	do
	{
		assert_int_equal(pc_map(fd, BLOCKS, BLOCK, after), 0);
		own_mincore(before);
	} while (memcmp(after, before, BLOCKS / 8) != 0 && ++attempt < 5);
	assert_memory_equal(after, before, BLOCKS / 8);
	assert_in_range(pc_popcount(after, BLOCKS), BLOCKS / 97 * 0.98, BLOCKS / 97 + 1);
	for (int use_cachestat = 0; use_cachestat <= 1; use_cachestat++)
	{
		assert_int_equal(pc_count(fd, BLOCKS, BLOCK, use_cachestat, &count), 0);
		assert_int_equal(count.blocks, BLOCKS);
		assert_in_range(count.resident, pc_popcount(after, BLOCKS) * 0.98,
						pc_popcount(after, BLOCKS));
	}
	/* a partial block does not count */
	evict_all();
	assert_int_equal(pread(fd, buffer, 1, 100 * BLOCK), 1);
	if (pc_page_size() < BLOCK)
	{
		assert_int_equal(pc_map(fd, BLOCKS, BLOCK, after), 0);
		assert_int_equal(pc_popcount(after, BLOCKS), 0);
	}
	free(buffer);
}

/*
 * windows of 64 MiB that are cold, full, or partly cached, in every order: cachestat(2) and
 * mincore(2) give the same result
 */
static void
test_mixed_windows(void **state)
{
	static const char *const mixes[] = {"cold full", "full cold", "part cold", "part full",
										"cold part", "full part", "full full"};
	uint32_t	window = 64 * 1024 * 1024 / BLOCK;
	bool		honest = pc_cachestat_is_honest(fd);

	(void) state;
	for (size_t i = 0; i < sizeof(mixes) / sizeof(mixes[0]); i++)
	{
		struct pc_loader loader = new_loader(0);
		const char *second = strchr(mixes[i], ' ') + 1;

		memset(want, 0, sizeof(want));
		for (uint32_t b = 0; b < BLOCKS; b++)
		{
			const char *how = b < window ? mixes[i] : second;

			if (how[0] == 'f' || (how[0] == 'p' && b % 3 == 0))
				pc_set(want, b);
		}
		evict_all();
		assert_int_equal(pc_load(fd, want, BLOCKS, &loader), 0);
		for (int trust = PC_MINCORE; trust <= (honest ? PC_CACHESTAT : PC_MINCORE); trust++)
		{
			struct pc_count count;
			uint64_t	resident;
			int			attempt = 0;

			/* repeat if the kernel reclaimed pages between the two looks */
			do
			{
				own_mincore(before);
				memset(after, 0xff, sizeof(after));
				assert_int_equal(
					pc_survey(fd, BLOCKS, BLOCK, (enum pc_trust) trust, after, &resident), 0);
			} while (memcmp(after, before, pc_map_bytes(BLOCKS)) != 0 && ++attempt < 5);
			assert_memory_equal(after, before, pc_map_bytes(BLOCKS));
			assert_int_equal(resident, pc_popcount(before, BLOCKS));
			assert_in_range(resident, pc_popcount(want, BLOCKS) * 0.9, pc_popcount(want, BLOCKS));
			assert_int_equal(pc_count(fd, BLOCKS, BLOCK, trust != PC_MINCORE, &count), 0);
			/* reclaim takes single pages, and cachestat(2) counts those that are left of a block */
			assert_in_range(count.resident, resident * 0.98, resident * 1.02);
		}
	}
}

/* few blocks of many, of whose requests few are awaited; and a look only at these */
static void
test_sparse(void **state)
{
	static uint8_t there[BLOCKS / 8 + 1];
	struct pc_loader loader = new_loader(0);
	uint64_t	wanted;

	(void) state;
	loader.loads_again = true;
	want_runs(1, 46);
	wanted = pc_popcount(want, BLOCKS);
	evict_all();
	assert_int_equal(pc_load(fd, want, BLOCKS, &loader), 0);
	assert_int_equal(progressed, wanted);
	own_mincore(after);
	assert_int_equal(not_in(after, want), 0);
	assert_in_range(not_in(want, after), 0, wanted / 50);
	/*
	 * of every second one, which may be any bit of a byte, in a part of the file; with large gaps
	 * the others are seen too
	 */
	for (uint32_t gap = 0; gap <= 94; gap += 94)
	{
		uint32_t	end = BLOCKS / 2 / 94 * 94;
		int			attempt = 0;

		memset(before, 0, sizeof(before));
		for (uint32_t b = 0; b <= end; b += 94)
			pc_set(before, b);
		do
		{
			own_mincore(there);
			for (uint32_t b = 0; b < BLOCKS; b++)
				if (b > end || (gap == 0 && !pc_bit(before, b)))
					pc_clear(there, b);
			memset(after, 0xff, sizeof(after));
			assert_int_equal(pc_survey_runs(fd, BLOCKS, BLOCK, before, gap, after), 0);
		} while (memcmp(after, there, pc_map_bytes(BLOCKS)) != 0 && ++attempt < 5);
		assert_memory_equal(after, there, pc_map_bytes(BLOCKS));
	}
}

/* which request is awaited: never so many at once that the caller is blocked for long */
static void
test_next_awaited(void **state)
{
	static struct pc_flight flight;
	struct pc_loader loader = new_loader(0);
	struct pc_file file = {.loader = &loader};

	(void) state;
	for (uint32_t n = 0; n < PC_MAX_REQUESTS; n++)
		flight.requests[n].file = &file;
	flight.usual = 10000;
	flight.count = PC_MAX_REQUESTS;
	assert_int_equal(pc_next_awaited(&flight), 0);
	loader.loads_again = true;
	assert_int_equal(pc_next_awaited(&flight), 31);
	flight.count = 40;
	assert_int_equal(pc_next_awaited(&flight), 20);
	flight.count = 15;
	assert_int_equal(pc_next_awaited(&flight), 0);
	flight.count = 40;
	flight.usual = 51000;
	assert_int_equal(pc_next_awaited(&flight), 0);
	flight.usual = 10000;
	flight.sharing.raised = true;
	assert_int_equal(pc_next_awaited(&flight), 0);
}

/* the map is right for each ratio of block and page size */
static void
test_block_sizes(void **state)
{
	struct pc_loader loader = new_loader(0);
	uint32_t	page = (uint32_t) pc_page_size();

	(void) state;
	want_runs(3, 4);
	evict_all();
	assert_int_equal(pc_load(fd, want, BLOCKS, &loader), 0);
	for (uint32_t size = page; size <= 4 * page; size += page)
	{
		uint32_t	n = (uint32_t) ((uint64_t) BLOCKS * BLOCK / size);
		uint8_t    *map = malloc(pc_map_bytes(n));
		uint32_t	n_pages = (uint32_t) ((uint64_t) n * size / page);
		uint8_t    *pages = malloc(pc_map_bytes(n_pages));
		uint8_t    *pages_again = malloc(pc_map_bytes(n_pages));
		int			attempt = 0;

		/* repeat if the kernel reclaimed pages meanwhile */
		do
		{
			assert_int_equal(pc_map(fd, n_pages, page, pages), 0);
			assert_int_equal(pc_map(fd, n, size, map), 0);
			assert_int_equal(pc_map(fd, n_pages, page, pages_again), 0);
		} while (memcmp(pages, pages_again, pc_map_bytes(n_pages)) != 0 && ++attempt < 5);
		for (uint32_t b = 0; b < n; b++)
		{
			bool		all = true;

			for (uint32_t p = b * (size / page); p < (b + 1) * (size / page); p++)
				all = all && pc_bit(pages, p);
			assert_int_equal(pc_bit(map, b), all);
		}
		free(map);
		free(pages);
		free(pages_again);
	}
}

static void
test_dirty(void **state)
{
	struct pc_count count;
	char		block[BLOCK];

	(void) state;
	if (!pc_cachestat_is_honest(fd))
	{
		print_message("no cachestat(2) here: dirty blocks are not known\n");
		assert_int_equal(pc_count(fd, BLOCKS, BLOCK, false, &count), 0);
		assert_int_equal(count.dirty, -1);
		return;
	}
	evict_all();
	assert_int_equal(pread(fd, block, BLOCK, 0), BLOCK);
	assert_int_equal(pwrite(fd, block, BLOCK, 0), BLOCK);
	assert_int_equal(pc_count(fd, BLOCKS, BLOCK, true, &count), 0);
	assert_int_equal(count.dirty, 1);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(pc_count(fd, BLOCKS, BLOCK, true, &count), 0);
	assert_int_equal(count.dirty, 0);
}

/* mincore(2) returns all pages of another user's file as resident, which must not be accepted */
static void
test_another_owner(void **state)
{
	pid_t		child;
	int			status;

	(void) state;
	if (geteuid() != 0)
	{
		print_message("not root: cannot become another user\n");
		skip();
	}
	evict_all();
	child = fork();
	if (child == 0)
	{
		if (setuid(65534) != 0)
			_exit(2);
		_exit(pc_map(fd, BLOCKS, BLOCK, after) == -EPERM ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/*
 * Complete and exact: the kernel may reclaim pages meanwhile, but hardly three times, and no other
 * blocks may be loaded.
 */
static void
load_exactly(const struct pc_window *window, uint64_t wanted)
{
	uint64_t	missing = wanted;

	for (int attempt = 0; attempt < 3 && missing > wanted / 50; attempt++)
	{
		struct pc_loader loader = new_loader(0);

		loader.window = window;
		evict_all();
		assert_int_equal(pc_load(fd, want, BLOCKS, &loader), 0);
		own_mincore(after);
		assert_int_equal(not_in(after, want), 0);
		assert_int_equal(progressed, wanted);
		missing = not_in(want, after);
	}
	assert_in_range(missing, 0, wanted / 50);
}

/* with every pattern */
static void
test_load_patterns(void **state)
{
	static const uint32_t patterns[][2] = {{BLOCKS, 1}, {1, 1},   {1, 9},  {1, 49},
										   {64, 64},    {3, 200}, {200, 3}};

	struct pc_window windows[] = {pc_gentle, pc_aggressive, pc_gentle, pc_aggressive};

	(void) state;
	windows[2].blocks_in_kernel = windows[3].blocks_in_kernel = false;
	for (size_t i = 0; i < 4 * sizeof(patterns) / sizeof(patterns[0]); i++)
	{
		uint64_t	wanted = want_runs(patterns[i / 4][0], patterns[i / 4][1]);

		load_exactly(&windows[i % 4], wanted);
	}
}

/* several files in one window: here four parts of one file, each a file to the loader */
static void
test_load_side_by_side(void **state)
{
	struct pc_loader loader = new_loader(0);
	struct pc_flight flight = {0};
	struct pc_file files[4];
	static uint8_t parts[4][BLOCKS / 8 + 1];
	uint64_t	wanted = want_runs(2, 30);

	(void) state;
	evict_all();
	memset(parts, 0, sizeof(parts));
	for (uint32_t b = 0; b < BLOCKS; b++)
		if (pc_bit(want, b))
			pc_set(parts[b / 32 % 4], b);
	for (int i = 0; i < 4; i++)
	{
		assert_int_equal(pc_start(&files[i], fd, parts[i], BLOCKS, &loader), 0);
		assert_int_equal(pc_send(&flight, &files[i], true), 0);
		assert_in_range(flight.count, 1, pc_gentle.requests * pc_gentle.stretch);
		assert_in_range(flight.bytes, 1, (uint64_t) pc_gentle.bytes * pc_gentle.stretch);
	}
	/* an abandoned file does not affect the others, and leaves nothing behind */
	pc_forget(&flight, &files[3]);
	for (uint32_t i = 0; i < flight.count; i++)
		assert_true(flight.requests[(flight.first + i) % PC_MAX_REQUESTS].file != &files[3]);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pc_finish(&flight, &files[i]), 0);
	assert_int_equal(flight.count, 0);
	assert_int_equal(flight.bytes, 0);
	own_mincore(after);
	assert_int_equal(not_in(after, want), 0);
	assert_in_range(not_in(want, after), 0,
					wanted / 50 + pc_gentle.requests * pc_gentle.stretch * 2);
	assert_in_range(progressed, wanted - pc_gentle.requests * pc_gentle.stretch * 2, wanted);
}

/* without `wait`, pc_send() returns after at most one window, and can be called again */
static void
test_load_without_waiting(void **state)
{
	struct pc_loader loader = new_loader(0);
	struct pc_flight flight = {0};
	struct pc_file file;
	uint64_t	wanted = want_runs(BLOCKS, 1);
	uint64_t	longest = 0;
	int			calls = 1;
	int			rc;

	(void) state;
	evict_all();
	assert_int_equal(pc_start(&file, fd, want, BLOCKS, &loader), 0);
	assert_int_equal(flight.count, 0);
	for (; (rc = pc_send(&flight, &file, false)) == PC_FULL; calls++)
	{
		assert_in_range(flight.bytes, 1, (uint64_t) pc_gentle.bytes * pc_gentle.stretch);
		longest = flight.bytes > longest ? flight.bytes : longest;
		assert_int_equal(pc_await_oldest(&flight), 0);
	}
	assert_int_equal(rc, 0);
	assert_in_range(longest, pc_gentle.bytes / 2, UINT64_MAX);
	assert_in_range(calls, (uint64_t) BLOCKS * BLOCK / pc_gentle.bytes, UINT64_MAX);
	assert_int_equal(pc_finish(&flight, &file), 0);
	assert_int_equal(pc_await_oldest(&flight), 0);
	own_mincore(after);
	assert_in_range(not_in(want, after), 0, wanted / 50);
}

static struct pc_flight late_flight;
static uint64_t most_in_flight;

/* a wait() that returns long after the requests have arrived */
static bool
wait_too_long(void *arg, long microseconds)
{
	(void) arg;
	if (late_flight.bytes > most_in_flight)
		most_in_flight = late_flight.bytes;
	if (microseconds > 0)
		usleep(20000);
	return false;
}

/*
 * a window is stretched while the device is idle, within its bounds; a window without stretch is
 * not
 */
static void
test_window_stretches(void **state)
{
	struct pc_window small = pc_gentle;
	struct pc_window fixed = pc_gentle;
	const struct pc_window *const windows[] = {&small, &fixed};

	(void) state;
	small.large = fixed.large = PC_LARGE_NEVER;
	fixed.stretch = 1;
	for (int i = 0; i < 2; i++)
	{
		struct pc_loader loader = new_loader(0);
		struct pc_file file;

		want_runs(BLOCKS, 1);
		evict_all();
		memset(&late_flight, 0, sizeof(late_flight));
		most_in_flight = 0;
		loader.window = windows[i];
		loader.wait = wait_too_long;
		assert_int_equal(pc_start(&file, fd, want, BLOCKS, &loader), 0);
		assert_int_equal(pc_finish(&late_flight, &file), 0);
		assert_in_range(most_in_flight, windows[i]->bytes / 2,
						(uint64_t) windows[i]->bytes * windows[i]->stretch);
		if (windows[i]->stretch == 1)
			assert_true(late_flight.stretch == 0);
		else
			assert_true(most_in_flight > windows[i]->bytes);
	}
}

/*
 * on a shared device, the window is not stretched, however late the loader wakes up, and only
 * single pages are requested
 */
static void
test_shared_window(void **state)
{
	struct pc_loader loader = new_loader(0);
	struct pc_pace pace = {0};
	struct pc_file file;

	(void) state;
	want_runs(BLOCKS, 1);
	evict_all();
	loader.pace = &pace;
	memset(&late_flight, 0, sizeof(late_flight));
	late_flight.sharing.shared_until = INT64_MAX;
	most_in_flight = 0;
	loader.wait = wait_too_long;
	assert_int_equal(pc_start(&file, fd, want, BLOCKS, &loader), 0);
	assert_int_equal(pc_finish(&late_flight, &file), 0);
	assert_in_range(most_in_flight, pc_gentle.bytes / 2, pc_gentle.bytes);
	assert_int_equal(progressed, BLOCKS);
	assert_int_equal(pace.taken, (uint64_t) BLOCKS * BLOCK);
	assert_int_equal(late_flight.large_bytes, 0);
}

/* requests in the idle class are smaller while a device is shared that completes many of them */
static void
test_yielding(void **state)
{
	char		scheduler[PC_SCHEDULER_BYTES] = "";
	struct stat st;

	(void) state;
	assert_int_equal(fstat(fd, &st), 0);
	pc_device_scheduler(st.st_dev, scheduler);
	for (int quick = 0; quick < 2; quick++)
	{
		struct pc_loader loader = new_loader(0);
		struct pc_flight flight = {
			.sharing = {.shared_until = INT64_MAX,
						.watched_at = INT64_MAX,
						.idle = true,
						.quick = quick}
		};
		struct pc_file file;
		uint32_t part = quick && pc_scheduler_has_classes(scheduler) ? 4 : 1;
		uint32_t most = pc_gentle.request_bytes / part;

		want_runs(BLOCKS, 1);
		evict_all();
		assert_int_equal(pc_start(&file, fd, want, BLOCKS, &loader), 0);
		assert_int_equal(pc_send(&flight, &file, false), PC_FULL);
		if (loader.request_bytes < most)
			most = loader.request_bytes;
		for (uint32_t i = 1; i < flight.count; i++)
			assert_int_equal(flight.requests[i].length, most);
		assert_in_range(flight.bytes, 1, pc_gentle.bytes / part);
		assert_int_equal(pc_finish(&flight, &file), 0);
		assert_int_equal(progressed, BLOCKS);
	}
}

/* a load that gives way pauses before each of its small requests while others use the device */
static void
test_giving_way(void **state)
{
	struct pc_window recovering = pc_gentle;

	(void) state;
	recovering.gives_way = true;
	recovering.large = PC_LARGE_NEVER;
	for (int used = 0; used < 2; used++)
	{
		struct pc_loader loader = new_loader(0);
		struct pc_flight flight = {
			.sharing = {.used_until = used ? INT64_MAX : 0, .watched_at = INT64_MAX}
		};
		struct pc_file file;
		int64_t		begin = pc_now();
		uint32_t part = used ? 4 : 1;

		loader.window = &recovering;
		want_runs(BLOCKS, 1);
		evict_all();
		assert_int_equal(pc_start(&file, fd, want, BLOCKS, &loader), 0);
		assert_int_equal(pc_send(&flight, &file, false), PC_FULL);
		assert_in_range(flight.bytes, 1, recovering.bytes / part);
		for (uint32_t i = 1; i < flight.count; i++)
			assert_in_range(flight.requests[(flight.first + i) % PC_MAX_REQUESTS].length, 1,
							recovering.request_bytes / part);
		if (used)
			assert_in_range(pc_now() - begin, 500000, INT64_MAX);
		flight.sharing.used_until = 0;
		assert_int_equal(pc_finish(&flight, &file), 0);
		assert_int_equal(progressed, BLOCKS);
	}
}

/* waits until no process has used the device for a moment; false when that does not happen */
static bool
wait_until_quiet(dev_t device)
{
	for (int i = 0; i < 100; i++)
	{
		struct pc_completed before;
		struct pc_completed after;

		if (!pc_device_completed(device, &before))
			return false;
		usleep(50000);
		if (pc_device_completed(device, &after) && after.requests == before.requests)
			return true;
	}
	return false;
}

/* by requests or by bytes of others, and not by our own */
static void
test_used_device(void **state)
{
	static const struct
	{
		struct pc_completed all;
		struct pc_completed own;
		bool		is_used;
	}			cases[] = {
		{{100000, 1000000}, {0, 0}, true},
		{{2, 8 * 1000000}, {0, 0}, true},
		{{100000, 100 * 1000000}, {100000, 100 * 1000000}, false},
		{{0, 0}, {0, 0}, false},
	};

	(void) state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		struct pc_sharing sharing = {.sent = cases[i].own};

		if (!pc_can_watch(&sharing, fd) || !wait_until_quiet(sharing.device) ||
			!pc_device_completed(sharing.device, &sharing.completed))
			skip();
		sharing.watched_at = pc_now() - 10000000;
		sharing.completed.requests -= cases[i].all.requests;
		sharing.completed.bytes -= cases[i].all.bytes;
		pc_watch_others(&sharing, fd);
		assert_int_equal(pc_is_used(&sharing), cases[i].is_used);
	}
}

/* each of the conditions is necessary */
static void
test_yields(void **state)
{
	struct pc_sharing sharing = {.idle = true, .quick = true, .shared_until = INT64_MAX};

	(void) state;
	assert_true(pc_yields(&sharing, false));
	sharing.idle = false;
	assert_false(pc_yields(&sharing, false));
	sharing.idle = true;
	sharing.quick = false;
	assert_false(pc_yields(&sharing, false));
	sharing.quick = true;
	sharing.shared_until = pc_now();
	assert_false(pc_yields(&sharing, false));
	sharing.shared_until = INT64_MAX;
	sharing.owed = PC_FLOOR;
	assert_false(pc_yields(&sharing, false));
	assert_false(pc_yields(&sharing, true));
	sharing.used_until = INT64_MAX;
	assert_true(pc_yields(&sharing, true));
}

/* a device is quick by what it completes between two looks, for whomever */
static void
test_quick_device(void **state)
{
	struct pc_sharing sharing = {0};
	struct pc_completed completed;

	(void) state;
	if (!pc_can_watch(&sharing, fd) || !pc_device_completed(sharing.device, &completed))
		skip();
	for (int quick = 0; quick < 2; quick++)
	{
		sharing.watched_at = pc_now() - 10000000;
		sharing.completed = completed;
		sharing.completed.requests -= quick ? 100000 : 0;
		pc_watch_others(&sharing, fd);
		assert_int_equal(sharing.quick, quick);
		assert_false(pc_stays_quick(&sharing));
		sharing.quick_since -= quick ? 1000000 : 0;
		assert_int_equal(pc_stays_quick(&sharing), quick);
	}
}

/* a long run is loaded as large folios, and exactly: no block before or after it */
static void
test_load_long_run(void **state)
{
	static const uint32_t runs[][2] = {{0, BLOCKS},
									   {100, BLOCKS - 100},
									   {256, 9000},
									   {5000, 5001},
									   {301, 7777}};

	(void) state;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
	{
		uint64_t	wanted = runs[i][1] - runs[i][0];

		memset(want, 0, sizeof(want));
		for (uint32_t b = runs[i][0]; b < runs[i][1]; b++)
			pc_set(want, b);
		load_exactly(&pc_aggressive, wanted);
		load_exactly(&pc_gentle, wanted);
	}
}

/* reads of another process, direct and one at a time, until it is killed */
static pid_t
start_reader(void)
{
	pid_t		pid = fork();

	if (pid == 0)
	{
		int			direct = open(file_name, O_RDONLY | O_DIRECT);
		void	   *block = NULL;

		if (direct < 0 || posix_memalign(&block, BLOCK, BLOCK) != 0)
			_exit(1);
		for (unsigned n = 1;; n = n * 1103515245 + 12345)
			if (pread(direct, block, BLOCK, (off_t) (n / 65536 % BLOCKS) * BLOCK) != BLOCK)
				_exit(1);
	}
	return pid;
}

static void
load_in(struct pc_flight *flight, const struct pc_window *window, struct pc_pace *pace)
{
	struct pc_loader loader = new_loader(0);
	struct pc_file file;

	loader.window = window;
	loader.pace = pace;
	evict_all();
	assert_int_equal(pc_start(&file, fd, want, BLOCKS, &loader), 0);
	assert_int_equal(pc_finish(flight, &file), 0);
}

/* bytes of a whole file that were loaded as large folios */
static uint64_t
load_large(const struct pc_window *window)
{
	struct pc_flight flight = {0};
	uint64_t	wanted = want_runs(BLOCKS, 1);

	load_in(&flight, window, NULL);
	own_mincore(after);
	/* the kernel reclaims pages meanwhile */
	assert_in_range(not_in(want, after), 0, wanted / 10);
	return flight.large_bytes;
}

/*
 * whether this kernel and this file system support large folios: only these are mapped as a whole
 */
static bool
has_large_folios(void)
{
	size_t		length = 4 * 1024 * 1024;
	char	   *addr = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
	unsigned long total = 0;
	unsigned long kib;
	char		line[256];
	FILE	   *smaps;

	evict_all();
	assert_true(addr != MAP_FAILED);
	assert_int_equal(madvise(addr, length, MADV_HUGEPAGE), 0);
	assert_int_equal(madvise(addr, length, 22 /* MADV_POPULATE_READ */ ), 0);
	smaps = fopen("/proc/self/smaps", "re");
	assert_non_null(smaps);
	while (fgets(line, sizeof(line), smaps) != NULL)
		if (sscanf(line, "FilePmdMapped: %lu kB", &kib) == 1)
			total += kib;
	fclose(smaps);
	munmap(addr, length);
	return total > 0;
}

/*
 * the gentle window uses large folios while no other process uses the device, and otherwise only
 * tries one from time to time
 */
static void
test_large_only_when_alone(void **state)
{
	uint64_t	length = (uint64_t) BLOCKS * BLOCK;
	uint64_t	alone = 0;
	uint64_t	shared = length;
	struct pc_completed completed;
	bool		seen = false;
	struct stat st;
	struct pc_window small = pc_gentle;

	(void) state;
	small.large = PC_LARGE_NEVER;
	assert_int_equal(load_large(&small), 0);
	assert_int_equal(fstat(fd, &st), 0);
	if (pc_device_largest_request(st.st_dev) == 0 || !pc_device_completed(st.st_dev, &completed))
	{
		/* the device has no count of completed requests */
		assert_int_equal(load_large(&pc_gentle), 0);
		skip();
	}
	/* without long runs, another reader shows in the number of requests */
	for (int i = 0; i < 20 && !seen; i++)
	{
		pid_t		reader = start_reader();
		struct pc_flight flight = {0};
		struct pc_pace pace = {.rate = (uint64_t) BLOCKS * BLOCK * 2};

		usleep(20000);
		want_runs(32, 16);
		load_in(&flight, &pc_gentle, &pace);
		seen = flight.sharing.shared_until > 0;
		kill(reader, SIGKILL);
		waitpid(reader, NULL, 0);
	}
	assert_true(seen);
	if (!has_large_folios())
		skip();
	/* other use of the device stops large folios for a while, which is no failure */
	for (int i = 0; i < 20 && alone < length / 2; i++)
	{
		if (!wait_until_quiet(st.st_dev))
			skip();
		alone = load_large(&pc_gentle);
	}
	if (alone < length / 2 && !wait_until_quiet(st.st_dev))
		skip();
	assert_in_range(alone, length / 2, length);
	for (int i = 0; i < 20 && shared > length / 10; i++)
	{
		pid_t		reader = start_reader();

		usleep(20000);
		shared = load_large(&pc_gentle);
		kill(reader, SIGKILL);
		waitpid(reader, NULL, 0);
	}
	assert_in_range(shared, 0, length / 10);
}

/* gaps up to the given size are read, larger ones are not */
static void
test_load_gaps(void **state)
{
	struct pc_loader loader = new_loader(2);
	uint64_t	wanted = want_runs(4, 2);

	(void) state;
	evict_all();
	assert_int_equal(pc_load(fd, want, BLOCKS, &loader), 0);
	own_mincore(after);
	assert_in_range(pc_popcount(after, BLOCKS), (BLOCKS - 8) * 0.98, BLOCKS);
	assert_int_equal(progressed, wanted);

	loader = new_loader(2);
	want_runs(4, 3);
	evict_all();
	assert_int_equal(pc_load(fd, want, BLOCKS, &loader), 0);
	own_mincore(after);
	assert_int_equal(not_in(after, want), 0);
}

static void
test_load_stops(void **state)
{
	struct pc_loader loader = new_loader(0);

	(void) state;
	want_runs(BLOCKS, 1);
	evict_all();
	stop = true;
	assert_int_equal(pc_load(fd, want, BLOCKS, &loader), PC_STOPPED);
	own_mincore(after);
	assert_in_range(pc_popcount(after, BLOCKS), 0,
					(pc_gentle.bytes + pc_gentle.request_bytes) / BLOCK);
}

/*
 * the load must not exceed the rate; how much slower it is depends on the host and is not asserted
 */
static void
test_load_rate(void **state)
{
	struct pc_loader loader = new_loader(0);
	struct pc_pace pace = {.rate = (uint64_t) BLOCKS * BLOCK * 2};
	struct timespec from;
	struct timespec to;
	double		seconds;

	(void) state;
	want_runs(BLOCKS, 1);
	evict_all();
	loader.pace = &pace;
	clock_gettime(CLOCK_MONOTONIC, &from);
	assert_int_equal(pc_load(fd, want, BLOCKS, &loader), 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	seconds = (double) (to.tv_sec - from.tv_sec) + (double) (to.tv_nsec - from.tv_nsec) / 1e9;
	assert_true(seconds > 0.35);
}

/* a probe returns plausible speeds, and loads few unwanted blocks */
static void
test_probe(void **state)
{
	struct pc_loader loader = new_loader(0);
	struct pc_speed speed;

	uint32_t	most = 64 + PC_PROBE_BYTES / BLOCK;

	(void) state;
	want_runs(1, 9);
	/* on a busy host the kernel sometimes loads more blocks: repeat then */
	for (int i = 0; i < 5; i++)
	{
		evict_all();
		assert_int_equal(pc_probe(fd, want, BLOCKS, &loader, &speed), 0);
		assert_true(speed.requests > 10 && speed.requests < 1e7);
		assert_true(speed.bytes > 1e6 && speed.bytes < 1e12);
		own_mincore(after);
		if (pc_popcount(after, BLOCKS) <= most)
			break;
	}
	assert_in_range(pc_popcount(after, BLOCKS), 64 * 0.9, most);

	/* too few blocks are wanted for a measurement */
	memset(want, 0, sizeof(want));
	pc_set(want, 5);
	assert_int_equal(pc_probe(fd, want, BLOCKS, &loader, &speed), 0);
	assert_true(speed.requests == 0);
	assert_int_equal(pc_worthwhile_gap(&speed, BLOCK, false), 0);

	/* a common cloud volume, a local SSD, and implausible speeds */
	speed = (struct pc_speed) {3000, 125e6};
	assert_int_equal(pc_worthwhile_gap(&speed, BLOCK, false), 5);
	assert_int_equal(pc_worthwhile_gap(&speed, BLOCK, true), 3);
	speed = (struct pc_speed) {90000, 2e9};
	assert_int_equal(pc_worthwhile_gap(&speed, BLOCK, false), 2);
	assert_int_equal(pc_worthwhile_gap(&speed, BLOCK, true), 2);
	speed = (struct pc_speed) {1, 2e9};
	assert_int_equal(pc_worthwhile_gap(&speed, BLOCK, false), 64);
	assert_int_equal(pc_worthwhile_gap(&speed, BLOCK, true), 9);
}

static void
test_errors(void **state)
{
	struct pc_loader loader = new_loader(0);
	int			closed = open(file_name, O_RDONLY);

	(void) state;
	close(closed);
	assert_int_equal(pc_map(closed, BLOCKS, BLOCK, after), -EBADF);
	assert_int_equal(pc_evict(closed), -EBADF);
	assert_false(pc_cachestat_is_honest(closed));
	want_runs(1, 1);
	assert_int_equal(pc_load(closed, want, BLOCKS, &loader), -EBADF);
	assert_int_equal(pc_load(fd, want, 0, &loader), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bits),
		cmocka_unit_test(test_map_and_count),
		cmocka_unit_test(test_mixed_windows),
		cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_next_awaited),
		cmocka_unit_test(test_block_sizes),
		cmocka_unit_test(test_dirty),
		cmocka_unit_test(test_another_owner),
		cmocka_unit_test(test_load_patterns),
		cmocka_unit_test(test_yielding),
		cmocka_unit_test(test_giving_way),
		cmocka_unit_test(test_used_device),
		cmocka_unit_test(test_yields),
		cmocka_unit_test(test_quick_device),
		cmocka_unit_test(test_load_side_by_side),
		cmocka_unit_test(test_load_without_waiting),
		cmocka_unit_test(test_shared_window),
		cmocka_unit_test(test_load_long_run),
		cmocka_unit_test(test_large_only_when_alone),
		cmocka_unit_test(test_window_stretches),
		cmocka_unit_test(test_load_gaps),
		cmocka_unit_test(test_load_stops),
		cmocka_unit_test(test_load_rate),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_errors),
	};

	return cmocka_run_group_tests_name("page_cache", tests, make_file, remove_file);
}
