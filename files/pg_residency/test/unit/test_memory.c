/*
 * test_memory.c - the memory budget, read from directory trees like the kernel's
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernel/memory.h"

#define MIB (UINT64_C(1024) * 1024)

static char root[] = "memory_test.XXXXXX";

static void
put_file(const char *path, const char *text)
{
	char		full[512];
	char		command[600];
	FILE	   *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s')\"", full);
	assert_int_equal(system(command), 0);
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* a host of 32 GiB, 16 of them available, 1 GiB on the active list, 64 MiB dirty */
static int
make_host(void **state)
{
	(void) state;
	strcpy(root + strlen(root) - 6, "XXXXXX");
	if (mkdtemp(root) == NULL)
		return -1;
	put_file("/proc/meminfo",
			 "MemTotal:       33554432 kB\nMemFree:         1048576 kB\nMemAvailable:   16777216 kB\nActive:          9999999 kB\n"
			 "Active(file):    1048576 kB\nDirty:             32768 kB\nWriteback:         32768 kB\nWritebackTmp:      99999 kB\n");
	return 0;
}

static int
remove_host(void **state)
{
	char		command[64];

	(void) state;
	snprintf(command, sizeof(command), "rm -r '%s'", root);
	return system(command);
}

static void
test_host(void **state)
{
	struct pc_memory m;

	(void) state;
	assert_int_equal(pc_memory_read(root, 0, &m), 0);
	assert_int_equal(m.available, 16384 * MIB);
	assert_int_equal(m.free, 1024 * MIB);
	assert_int_equal(m.dirty, 64 * MIB);
	assert_int_equal(m.reserve, 1024 * MIB);
	assert_int_equal(m.hot, 1024 * MIB);
	assert_int_equal(m.budget, (16384 - 64 - 1024 - 1024) * MIB);
	assert_true(m.cgroup_headroom == PC_NO_LIMIT);
	assert_true(m.mappable == PC_NO_LIMIT);
}

/*
 * on a long-running server all file cache is active; half of the available memory may be filled all
 * the same
 */
static void
test_everything_is_active(void **state)
{
	struct pc_memory m;

	(void) state;
	put_file("/proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\nActive(file): 16000000 kB\nDirty: 0 kB\nWriteback: 0 kB\n");
	assert_int_equal(pc_memory_read(root, 0, &m), 0);
	assert_int_equal(m.budget, (16384 - 1024) / 2 * MIB);
}

/*
 * the file cache of other clusters reduces the budget of the host, except its free memory; a cgroup
 * has no part of it
 */
static void
test_others(void **state)
{
	struct pc_memory m;

	(void) state;
	assert_int_equal(pc_memory_read(root, 4096 * MIB, &m), 0);
	assert_int_equal(m.budget, (16384 - 64 - 1024 - 1024 - 4096) * MIB);
	put_file("/proc/meminfo", "MemTotal: 33554432 kB\nMemFree: 8388608 kB\nMemAvailable: 16777216 kB\nActive(file): 1048576 kB\nDirty: 0 kB\nWriteback: 0 kB\n");
	assert_int_equal(pc_memory_read(root, 14336 * MIB, &m), 0);
	assert_int_equal(m.budget, (8192 - 1024) * MIB);

	put_file("/proc/self/cgroup", "0::/postgresql.service\n");
	put_file("/proc/self/mountinfo",
			 "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
	put_file("/sys/fs/cgroup/postgresql.service/memory.max", "2147483648\n");
	put_file("/sys/fs/cgroup/postgresql.service/memory.current", "2147483648\n");
	put_file("/sys/fs/cgroup/postgresql.service/memory.stat",
			 "inactive_file 2147483648\nactive_file 0\nfile_dirty 0\nfile_writeback 0\n");
	assert_int_equal(pc_memory_read(root, 1024 * MIB, &m), 0);
	assert_int_equal(m.budget, (2048 - 64) * MIB);
}

/* the kernel can replace file cache: only a cgroup's other usage counts against its limit */
static void
test_cgroup_v2(void **state)
{
	struct pc_memory m;

	(void) state;
	put_file("/proc/self/cgroup", "0::/system.slice/postgresql.service\n");
	put_file("/proc/self/mountinfo",
			 "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
	put_file("/sys/fs/cgroup/system.slice/postgresql.service/memory.max", "max\n");
	put_file("/sys/fs/cgroup/system.slice/postgresql.service/memory.high", "2147483648\n");
	put_file("/sys/fs/cgroup/system.slice/postgresql.service/memory.current", "2147483648\n");
	put_file("/sys/fs/cgroup/system.slice/postgresql.service/memory.stat",
			 "anon 536870912\nfile 1610612736\nfile_dirty 0\nfile_writeback 0\ninactive_file 1476395008\nactive_file 134217728\n"
			 "file_mapped 671088640\nshmem 134217728\n");
	assert_int_equal(pc_memory_read(root, 0, &m), 0);
	assert_int_equal(m.cgroup_headroom, (2048 - 512) * MIB);
	assert_int_equal(m.reserve, 64 * MIB);
	assert_int_equal(m.hot, 128 * MIB);
	/* 512 MiB of its 1,536 are mapped already */
	assert_int_equal(m.mappable, (512 + 1024 / 4) * MIB);
	assert_int_equal(m.budget, (2048 - 512 - 64 - 128) * MIB);

	/* an ancestor has the smaller limit */
	put_file("/sys/fs/cgroup/system.slice/memory.max", "1073741824\n");
	put_file("/sys/fs/cgroup/system.slice/memory.current", "1073741824\n");
	put_file("/sys/fs/cgroup/system.slice/memory.stat",
			 "inactive_file 268435456\nactive_file 0\nfile_dirty 67108864\nfile_writeback 0\n");
	assert_int_equal(pc_memory_read(root, 0, &m), 0);
	assert_int_equal(m.cgroup_headroom, 256 * MIB);
	assert_int_equal(m.budget, (256 - 64 - 32) * MIB);
	assert_int_equal(m.mappable, 256 / 4 * MIB);
	assert_int_equal(m.host_available, 16384 * MIB);
}

static void
test_cgroup_v1(void **state)
{
	struct pc_memory m;

	(void) state;
	put_file("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/abc\n0::/\n");
	put_file("/proc/self/mountinfo",
			 "29 20 0:25 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
	put_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put_file("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "134217728\n");
	put_file("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "33554432\n");
	put_file("/sys/fs/cgroup/memory/docker/abc/memory.stat",
			 "cache 16777216\nactive_file 1\ntotal_active_file 0\ntotal_inactive_file 16777216\ntotal_dirty 0\ntotal_writeback 0\n"
			 "mapped_file 1\ntotal_mapped_file 33554432\ntotal_shmem 0\n");
	assert_int_equal(pc_memory_read(root, 0, &m), 0);
	assert_int_equal(m.cgroup_headroom, 112 * MIB);
	assert_int_equal(m.free, 96 * MIB);
	/* others' pages that it has mapped are none of its file cache */
	assert_int_equal(m.mappable, 16 * MIB);
	assert_int_equal(m.budget, (112 - 4) * MIB);

	/* in a container the mount shows a part of the tree as its root, but the path is complete */
	put_file("/proc/self/mountinfo",
			 "30 20 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
	put_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n");
	put_file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
	put_file("/sys/fs/cgroup/memory/memory.stat", "total_active_file 0\ntotal_inactive_file 0\n");
	assert_int_equal(pc_memory_read(root, 0, &m), 0);
	assert_int_equal(m.cgroup_headroom, 64 * MIB);
}

/* no memory is left: 0, without an underflow */
static void
test_nothing_left(void **state)
{
	struct pc_memory m;

	(void) state;
	put_file("/proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 65536 kB\nActive(file): 65536 kB\nDirty: 131072 kB\nWriteback: 0 kB\n");
	assert_int_equal(pc_memory_read(root, 0, &m), 0);
	assert_int_equal(m.budget, 0);
}

static void
test_no_meminfo(void **state)
{
	struct pc_memory m;

	(void) state;
	assert_int_equal(pc_memory_read("/nowhere", 0, &m), -ENOENT);
	put_file("/proc/meminfo", "nonsense\n");
	assert_int_equal(pc_memory_read(root, 0, &m), -EINVAL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_host, make_host, remove_host),
		cmocka_unit_test_setup_teardown(test_everything_is_active, make_host, remove_host),
		cmocka_unit_test_setup_teardown(test_others, make_host, remove_host),
		cmocka_unit_test_setup_teardown(test_cgroup_v2, make_host, remove_host),
		cmocka_unit_test_setup_teardown(test_cgroup_v1, make_host, remove_host),
		cmocka_unit_test_setup_teardown(test_nothing_left, make_host, remove_host),
		cmocka_unit_test_setup_teardown(test_no_meminfo, make_host, remove_host),
	};

	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
