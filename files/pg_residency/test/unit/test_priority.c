/*
 * test_priority.c - the I/O priority of a load, as the kernel reports it for the loading thread
 *
 * The test creates its file in the working directory.  Whether the idle class has an effect depends
 * on the scheduler of that device, which the test reads by itself.
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
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernel/device.h"
#include "kernel/loader.h"
#include "kernel/page_cache.h"
#include "kernel/priority.h"

#define BLOCK 8192
#define BLOCKS 4096

/* one before each of the file's 16 large folios */
#define FEWEST_CHECKS 10

/* <linux/ioprio.h> */
#define IDLE (3 << 13)
#define BEST_EFFORT_7 ((2 << 13) | 7)
#define REAL_TIME_3 ((1 << 13) | 3)

static int	fd = -1;
static char file_name[] = "priority_test.XXXXXX";
static uint8_t want[BLOCKS / 8];
static pid_t loading;
static int	expected;			/* priority outside of the requests */
static double owed;				/* bytes below the floor, at the beginning of a load */
static unsigned checks;
static uint32_t arrived;
static atomic_bool watching;
static atomic_uint idle_seen;

static int
priority_of(pid_t tid)
{
	return (int) syscall(SYS_ioprio_get, 1 /* IOPRIO_WHO_PROCESS */ , tid);
}

static void
set_own(int priority)
{
	assert_int_equal(syscall(SYS_ioprio_set, 1, 0, priority), 0);
}

static bool
check_own(void *arg, long microseconds)
{
	bool	   *stop = arg;

	if (microseconds > 0)
		usleep((useconds_t) microseconds);
	assert_int_equal(priority_of(0), expected);
	checks++;
	return *stop && checks > FEWEST_CHECKS;
}

static void
check_own_too(void *arg, uint32_t blocks)
{
	(void) arg;
	assert_int_equal(priority_of(0), expected);
	arrived += blocks;
}

static void *
watch(void *arg)
{
	(void) arg;
	while (watching)
		if (priority_of(loading) == IDLE)
			idle_seen++;
	return NULL;
}

/* loads the whole cold file, and counts how often another thread sees this one in the idle class */
static void
load(const struct pc_window *window, bool stop, struct pc_flight *flight)
{
	struct pc_loader loader = {.block_size = BLOCK,
							   .request_bytes = 256 * 1024,
							   .window = window,
							   .use_cachestat = false,
							   .wait = check_own,
							   .progress = check_own_too,
							   .arg = &stop};
	struct pc_file file;
	pthread_t	watcher;

	for (int i = 0; i < 50; i++)
	{
		assert_int_equal(pc_evict(fd), 0);
		usleep(1000);
	}
	*flight = (struct pc_flight) {.sharing = {.owed = owed, .raised = owed > 0}};
	checks = arrived = 0;
	idle_seen = 0;
	watching = true;
	loading = (pid_t) syscall(SYS_gettid);
	assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
	assert_int_equal(pc_start(&file, fd, want, BLOCKS, &loader), 0);
	assert_int_equal(pc_finish(flight, &file), stop ? PC_STOPPED : 0);
	watching = false;
	pthread_join(watcher, NULL);
	assert_int_equal(priority_of(0), expected);
	assert_true(checks > FEWEST_CHECKS);
	if (!stop)
		assert_int_equal(arrived, BLOCKS);
}

/* the test's own reader, for a disk or a partition: the name in brackets */
static bool
own_scheduler(char *name)
{
	static const char *const formats[] = {
		"/sys/dev/block/%u:%u/queue/scheduler", "/sys/dev/block/%u:%u/../queue/scheduler"
	};
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	for (size_t i = 0; i < 2; i++)
	{
		char		path[128];
		FILE	   *f;
		bool		found;

		snprintf(path, sizeof(path), formats[i], major(st.st_dev), minor(st.st_dev));
		if ((f = fopen(path, "re")) == NULL)
			continue;
		found = fscanf(f, "%*[^[][%15[^]]", name) == 1;
		rewind(f);
		found = found || fscanf(f, "[%15[^]]", name) == 1;
		fclose(f);
		return found;
	}
	return false;
}

static void
test_scheduler(void **state)
{
	char		own[PC_SCHEDULER_BYTES] = "";
	char		name[PC_SCHEDULER_BYTES] = "?";
	struct stat st;

	(void) state;
	assert_int_equal(fstat(fd, &st), 0);
	pc_device_scheduler(st.st_dev, name);
	if (own_scheduler(own))
		assert_string_equal(name, own);
	else
		skip();
}

static void
test_unknown_device(void **state)
{
	char		name[PC_SCHEDULER_BYTES] = "?";
	struct stat st;

	(void) state;
	/* procfs has no device of its own */
	assert_int_equal(stat("/proc/self/stat", &st), 0);
	pc_device_scheduler(st.st_dev, name);
	assert_string_equal(name, "");
	assert_false(pc_scheduler_has_classes(name));
	assert_false(pc_scheduler_has_classes("none"));
	assert_false(pc_scheduler_has_classes("kyber"));
	assert_true(pc_scheduler_has_classes("mq-deadline"));
	assert_true(pc_scheduler_has_classes("bfq"));
}

/* the unset priority, and one that the caller has chosen */
static void
test_lower_and_restore(void **state)
{
	static const int priorities[] = {0, BEST_EFFORT_7, IDLE};

	(void) state;
	for (size_t i = 0; i < sizeof(priorities) / sizeof(priorities[0]); i++)
	{
		int			before;
		int			former;

		set_own(priorities[i]);
		before = priority_of(0);
		former = pc_priority_lower();
		assert_true(former >= 0);
		assert_int_equal(priority_of(0), IDLE);
		errno = ENOMEM;
		pc_priority_restore(former);
		assert_int_equal(errno, ENOMEM);
		assert_int_equal(priority_of(0), before);
	}
	set_own(BEST_EFFORT_7);
	pc_priority_restore(-1);
	assert_int_equal(priority_of(0), BEST_EFFORT_7);
}

/* what a server of another user could not get back, it keeps */
static void
test_real_time(void **state)
{
	pid_t		child;
	int			status;

	(void) state;
	if (geteuid() != 0)
		skip();
	child = fork();
	if (child == 0)
	{
		int			before;
		int			former;

		if (syscall(SYS_ioprio_set, 1, 0, REAL_TIME_3) != 0 || setgid(65534) != 0 ||
			setuid(65534) != 0)
			_exit(1);
		before = priority_of(0);
		former = pc_priority_lower();
		pc_priority_restore(former);
		_exit(before == REAL_TIME_3 && priority_of(0) == before ? 0 : 2);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static char tree[] = "sysfs_test.XXXXXX";

/* a file below `tree`, with its directories */
static void
put(const char *path, const char *content)
{
	char		full[512];
	FILE	   *f;

	snprintf(full, sizeof(full), "%s/%s", tree, path);
	for (char *slash = strchr(full, '/'); slash != NULL; slash = strchr(slash + 1, '/'))
	{
		*slash = '\0';
		(void) !mkdir(full, 0700);
		*slash = '/';
	}
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(content, f);
	fclose(f);
}

/* `below` becomes a slave of the device */
static void
stack(const char *device, const char *below)
{
	char		path[512];
	char		target[512];

	snprintf(path, sizeof(path), "%s/%s/slaves", tree, device);
	(void) !mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%s/slaves/%s", tree, device,
			 strrchr(below, '/') ? strrchr(below, '/') + 1 : below);
	snprintf(target, sizeof(target), "../../%s", below);
	assert_int_equal(symlink(target, path), 0);
}

static void
check_scheduler(const char *device, const char *expected_name)
{
	char		path[512];
	char		name[PC_SCHEDULER_BYTES] = "?";

	snprintf(path, sizeof(path), "%s/%s", tree, device);
	pc_directory_scheduler(path, name);
	assert_string_equal(name, expected_name);
}

/* devices that this host need not have, with the files that Linux has for them */
static void
test_stacked_devices(void **state)
{
	char		name[64];
	char		command[64];

	(void) state;
	assert_non_null(mkdtemp(tree));
	put("sda/queue/scheduler", "none [mq-deadline] kyber bfq\n");
	put("sda/sda1/partition", "1\n");
	put("sdb/queue/scheduler", "[none] mq-deadline\n");
	put("sdc/queue/scheduler", "none [mq-deadline]\n");
	check_scheduler("sda", "mq-deadline");
	check_scheduler("sda/sda1", "mq-deadline");
	check_scheduler("gone", "");

	/* RAID on a partition and a disk, and a partition of it */
	put("md0/queue/scheduler", "none\n");
	put("md0/md0p1/partition", "1\n");
	check_scheduler("md0", "");
	stack("md0", "sda/sda1");
	check_scheduler("md0", "mq-deadline");
	stack("md0", "sdc");
	check_scheduler("md0", "mq-deadline");
	check_scheduler("md0/md0p1", "mq-deadline");
	stack("md0", "sdb");
	check_scheduler("md0", "");
	check_scheduler("md0/md0p1", "");

	/* multipath has a queue, and its requests pass by the schedulers of the paths */
	put("dm-0/queue/scheduler", "[none] mq-deadline\n");
	stack("dm-0", "sda");
	check_scheduler("dm-0", "none");
	put("dm-1/queue/scheduler", "none [mq-deadline]\n");
	stack("dm-1", "sdb");
	check_scheduler("dm-1", "mq-deadline");

	/* the head of an NVMe multipath device has neither */
	put("nvme0n1/queue/scheduler", "none\n");
	check_scheduler("nvme0n1", "");

	/* a slave that goes, a long name, many slaves, a chain without end */
	put("dm-2/dev", "");
	stack("dm-2", "gone");
	check_scheduler("dm-2", "");
	put("sdd/queue/scheduler", "none [a-scheduler-with-a-long-name]\n");
	check_scheduler("sdd", "a-scheduler-wit");
	put("sde/queue/scheduler", "none mq-deadline]\n");
	check_scheduler("sde", "");
	put("md1/queue/scheduler", "none\n");
	for (int i = 0; i < 100; i++)
	{
		snprintf(name, sizeof(name), "disk%d/queue/scheduler", i);
		put(name, "[bfq]\n");
		snprintf(name, sizeof(name), "disk%d", i);
		stack("md1", name);
	}
	check_scheduler("md1", "bfq");
	put("dm-3/dev", "");
	stack("dm-3", "dm-3");
	check_scheduler("dm-3", "");

	snprintf(command, sizeof(command), "rm -rf %s", tree);
	assert_int_equal(system(command), 0);
}

/*
 * requests alone are in the idle class, and only where a scheduler orders by class; large folios,
 * for which the thread is blocked, are not
 */
static void
test_load_in_the_idle_class(void **state)
{
	struct pc_window own = pc_gentle;
	struct pc_flight flight;
	char		scheduler[PC_SCHEDULER_BYTES] = "";
	bool		honoured = own_scheduler(scheduler) &&
		(strcmp(scheduler, "mq-deadline") == 0 || strcmp(scheduler, "bfq") == 0);

	(void) state;
	set_own(BEST_EFFORT_7);
	expected = BEST_EFFORT_7;
	load(&pc_gentle, false, &flight);
	assert_int_equal(flight.sharing.idle_bytes > 0, honoured);
	assert_int_equal(flight.sharing.own_bytes > 0, !honoured);
	own.large = PC_LARGE_NEVER;
	/* the thread that watches may not run while the class is idle, on a busy machine */
	for (int i = 0; i < 200; i++)
	{
		load(&own, false, &flight);
		assert_int_equal(flight.sharing.idle_bytes > 0, honoured);
		if (idle_seen > 0)
			break;
	}
	if (honoured)
		assert_in_range(idle_seen, 1, UINT32_MAX);
	else
		assert_int_equal(idle_seen, 0);

	load(&pc_gentle, true, &flight);

	/* one that is below its floor catches up */
	owed = 16 * 1024 * 1024;
	load(&own, false, &flight);
	owed = 0;
	assert_in_range(flight.sharing.own_bytes, 1, UINT64_MAX);
	if (honoured)
		assert_in_range(flight.sharing.idle_bytes, 1, UINT64_MAX);

	own = pc_gentle;
	own.idle = false;
	load(&own, false, &flight);
	assert_int_equal(flight.sharing.idle_bytes, 0);
	assert_int_equal(idle_seen, 0);
}

static int
create_file(void **state)
{
	char		block[BLOCK];

	(void) state;
	fd = mkstemp(file_name);
	if (fd < 0)
		return -1;
	memset(block, 'x', sizeof(block));
	for (int i = 0; i < BLOCKS; i++)
		if (write(fd, block, sizeof(block)) != (ssize_t) sizeof(block))
			return -1;
	memset(want, 0xff, sizeof(want));
	return fsync(fd);
}

static int
remove_file(void **state)
{
	(void) state;
	close(fd);
	return unlink(file_name);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scheduler),
		cmocka_unit_test(test_unknown_device),
		cmocka_unit_test(test_lower_and_restore),
		cmocka_unit_test(test_real_time),
		cmocka_unit_test(test_stacked_devices),
		cmocka_unit_test(test_load_in_the_idle_class),
	};

	return cmocka_run_group_tests(tests, create_file, remove_file);
}
