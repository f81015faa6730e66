/*
 * allowance.c - how much memory and bandwidth a restore may take
 */
#include "allowance.h"

#include <fcntl.h>
#include <unistd.h>

#include "host_ledger.h"
#include "pg_residency.h"
#include "segments.h"

/* bytes loaded between two measurements of the budget */
#define MEASURE_AGAIN_BYTES (16 * 1024 * 1024)

/*
 * microseconds between two adjustments of the rate to the I/O pressure, and the lowest rate, bytes
 * per second
 */
#define ADAPT_EVERY 1000000
#define SLOWEST ((uint64) 8 * 1024 * 1024)

int
try_measure_memory(struct pc_memory *memory, uint64 *others)
{
	uint64		other_users;
	int			rc;

	host_others_bytes(others, &other_users);
	rc = pc_memory_read("", 0, memory);
	/* a ledger of another user is not trusted: it takes at most half of the available memory */
	*others += Min(other_users, memory->host_available / 2);
	return rc != 0 ? rc : pc_memory_read("", *others, memory);
}

static void
measure_memory(struct pc_memory *memory, uint64 *others)
{
	int			rc = try_measure_memory(memory, others);

	if (rc != 0)
		report_kernel_error(rc, "could not read file \"%s\": %m", "/proc/meminfo");
}

uint64
restore_budget(void)
{
	struct pc_memory memory;
	uint64		others;

	measure_memory(&memory, &others);
	return memory.budget;
}

static void
measure(Allowance *allowance)
{
	struct pc_memory memory;
	uint64		others;

	measure_memory(&memory, &others);
	allowance->measured = memory.budget;
	allowance->unused = memory.free - Min(memory.free, memory.reserve);
	allowance->used_when_measured = allowance->used;
}

void
allowance_begin(Allowance *allowance, uint64 most, uint64 rate, int max_pressure)
{
	memset(allowance, 0, sizeof(*allowance));
	allowance->most = most > 0 ? most : PG_UINT64_MAX;
	measure(allowance);
	allowance->rate = allowance->pace.rate = rate;
	allowance->max_pressure = max_pressure;
}

uint64
allowance_budget(const Allowance *allowance)
{
	return Min(allowance->most, allowance->measured);
}

/*
 * Other processes allocate memory meanwhile, so the budget is measured repeatedly.  Blocks that
 * this restore has loaded are file cache, which the kernel counts as available: they stay in the
 * new figure.
 */
int64
allowance_blocks_left(Allowance *allowance)
{
	uint64		taken = allowance->used + allowance->promised;
	uint64		budget;

	if (allowance->used >= allowance->used_when_measured + MEASURE_AGAIN_BYTES)
		measure(allowance);
	budget = allowance_budget(allowance);
	return budget > taken ? (int64) ((budget - taken) / BLCKSZ) : 0;
}

bool
allowance_is_unused(const Allowance *allowance, int64 blocks)
{
	uint64		taken = allowance->used - allowance->used_when_measured + allowance->promised;

	return taken + (uint64) blocks * BLCKSZ <= allowance->unused;
}

/*
 * Microseconds during which a process of this host waited for a disk ("some" of pressure stall
 * information); false where the kernel has no such figure.  A worker that sleeps, rather than being
 * blocked in the kernel, adds nothing to it.
 */
static bool
read_stalled(uint64 *microseconds)
{
	char		text[256];
	int			fd = open("/proc/pressure/io", O_RDONLY | O_CLOEXEC);
	ssize_t		n;

	/* open(2) rather than OpenTransientFile(): the segments may use up PostgreSQL's descriptors */
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[Max(n, 0)] = '\0';
	return sscanf(text, "some avg10=%*f avg60=%*f avg300=%*f total=" UINT64_FORMAT,
				  microseconds) == 1;
}

/* The rate has a floor, so that the restore terminates under permanent pressure. */
void
allowance_adapt(Allowance *allowance, int64 loaded)
{
	struct pc_pace *pace = &allowance->pace;
	uint64		most = allowance->rate > 0 ? allowance->rate : PG_UINT64_MAX;
	int64		now = pc_now();
	uint64		stalled;

	if (allowance->max_pressure == 0 || now - allowance->pressure_at < ADAPT_EVERY ||
		!read_stalled(&stalled))
		return;
	if (allowance->pressure_at != 0)
	{
		double		microseconds = (double) (now - allowance->pressure_at);
		double		percent = 100.0 * (double) (stalled - allowance->stalled) / microseconds;
		uint64 speed =
			(uint64) (Max(loaded - allowance->loaded, 0) * BLCKSZ * 1e6 / microseconds);

		if (percent > allowance->max_pressure)
		{
			uint64		now_at = pace->rate > 0 ? Min(pace->rate, speed) : speed;

			pace->rate = Min(Max(now_at / 2, SLOWEST), most);
		}
		else if (pace->rate > 4 * Max(speed, SLOWEST) && allowance->rate == 0)
			pace->rate = 0;		/* the limit no longer has an effect */
		else if (pace->rate > 0)
			pace->rate = Min(pace->rate + pace->rate / 4, most);
	}
	allowance->pressure_at = now;
	allowance->stalled = stalled;
	allowance->loaded = loaded;
}

PG_FUNCTION_INFO_V1(residency_budget);
Datum
residency_budget(PG_FUNCTION_ARGS)
{
	struct pc_memory memory;
	TupleDesc	tupdesc = result_row(fcinfo, 7);
	Datum		values[7];
	bool		nulls[7] = {false};
	uint64		others;

	measure_memory(&memory, &others);
	values[0] = Int64GetDatum((int64) memory.host_available);
	values[1] = Int64GetDatum((int64) memory.cgroup_headroom);
	nulls[1] = memory.cgroup_headroom == PC_NO_LIMIT;
	values[2] = Int64GetDatum((int64) memory.dirty);
	values[3] = Int64GetDatum((int64) memory.reserve);
	values[4] = Int64GetDatum((int64) memory.hot);
	values[5] = Int64GetDatum((int64) Min(others, (uint64) PG_INT64_MAX));
	values[6] = Int64GetDatum((int64) Min(memory.budget, (uint64) PG_INT64_MAX));
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls));
}
