/*
 * allowance.c - what a restore may take: memory, and bytes a second
 */
#include "allowance.h"

#include <fcntl.h>
#include <unistd.h>

#include "host_ledger.h"
#include "pg_residency.h"
#include "segments.h"

/* the budget is measured again when that much has come in */
#define MEASURE_AGAIN_BYTES (16 * 1024 * 1024)

/*
 * how often the rate follows the pressure, microseconds, and what it never falls below, bytes a
 * second
 */
#define ADAPT_EVERY 1000000
#define SLOWEST ((uint64) 8 * 1024 * 1024)

static void
read_memory(uint64 others, struct pc_memory *memory)
{
	int			rc = pc_memory_read("", others, memory);

	if (rc != 0)
		report_kernel_error(rc, "read the free memory from", "/proc/meminfo");
}

void
measure_memory(struct pc_memory *memory, uint64 *others)
{
	uint64		other_users;

	host_others_bytes(others, &other_users);
	read_memory(0, memory);
	/* another user could say anything: he takes half at most */
	*others += Min(other_users, memory->host_available / 2);
	read_memory(*others, memory);
}

uint64
restore_budget(void)
{
	struct pc_memory memory;
	uint64		others;

	measure_memory(&memory, &others);
	return memory.budget;
}

void
allowance_begin(Allowance *allowance, uint64 most, uint64 rate, int max_pressure)
{
	memset(allowance, 0, sizeof(*allowance));
	allowance->most = most > 0 ? most : PG_UINT64_MAX;
	allowance->measured = restore_budget();
	allowance->rate = allowance->pace.rate = rate;
	allowance->max_pressure = max_pressure;
}

uint64
allowance_budget(const Allowance *allowance)
{
	return Min(allowance->most, allowance->measured);
}

/*
 * Others want memory too, so it is measured again and again; what this restore has loaded is file
 * cache, which makes room, and so is in the new figure as well.
 */
int64
allowance_blocks_left(Allowance *allowance)
{
	uint64		taken = allowance->used + allowance->promised;
	uint64		budget;

	if (allowance->used >= allowance->measured_at + MEASURE_AGAIN_BYTES)
	{
		allowance->measured = restore_budget();
		allowance->measured_at = allowance->used;
	}
	budget = allowance_budget(allowance);
	return budget > taken ? (int64) ((budget - taken) / BLCKSZ) : 0;
}

/*
 * Microseconds that a process of this host has waited for a disk ("some" of pressure stall
 * information); false where the kernel does not tell.  Our own waiting does not count while the
 * worker sleeps instead of being blocked.
 */
static bool
read_stalled(uint64 *microseconds)
{
	char		text[256];
	int			fd = open("/proc/pressure/io", O_RDONLY | O_CLOEXEC);
	ssize_t		n;

	/* not by PostgreSQL's own files, of which the segments may hold all that there are */
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[Max(n, 0)] = '\0';
	return sscanf(text, "some avg10=%*f avg60=%*f avg300=%*f total=" UINT64_FORMAT,
				  microseconds) == 1;
}

/* never below a floor: a restore that any activity stops does not end */
void
allowance_adapt(Allowance *allowance, TimestampTz now, int64 arrived)
{
	struct pc_pace *pace = &allowance->pace;
	uint64		most = allowance->rate > 0 ? allowance->rate : PG_UINT64_MAX;
	uint64		stalled;

	if (allowance->max_pressure == 0 || now - allowance->pressure_at < ADAPT_EVERY ||
		!read_stalled(&stalled))
		return;
	if (allowance->pressure_at != 0)
	{
		double		microseconds = (double) (now - allowance->pressure_at);
		double		percent = 100.0 * (double) (stalled - allowance->stalled) / microseconds;
		uint64 speed =
			(uint64) (Max(arrived - allowance->arrived, 0) * BLCKSZ * 1e6 / microseconds);

		if (percent > allowance->max_pressure)
		{
			uint64		now_at = pace->rate > 0 ? Min(pace->rate, speed) : speed;

			pace->rate = Min(Max(now_at / 2, SLOWEST), most);
		}
		else if (pace->rate > 4 * Max(speed, SLOWEST) && allowance->rate == 0)
			pace->rate = 0;		/* it does not feel its limit any more */
		else if (pace->rate > 0)
			pace->rate = Min(pace->rate + pace->rate / 4, most);
	}
	allowance->pressure_at = now;
	allowance->stalled = stalled;
	allowance->arrived = arrived;
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
