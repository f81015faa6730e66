/*
 * pg_residency.c - the module itself, and what it says of itself and of its surroundings
 */
#include "pg_residency.h"

#include "kernel/memory.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(residency_version);
Datum
residency_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(PG_RESIDENCY_VERSION));
}

PG_FUNCTION_INFO_V1(residency_budget);
Datum
residency_budget(PG_FUNCTION_ARGS)
{
	struct pc_memory memory;
	TupleDesc	tupdesc;
	Datum		values[7];
	bool		nulls[7] = {false};
	int			rc = pc_memory_read("", &memory);

	if (rc != 0)
		report_kernel_error(rc, "read the free memory from", "/proc/meminfo");
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values[0] = Int64GetDatum((int64) memory.host_available);
	values[1] = Int64GetDatum((int64) memory.cgroup_headroom);
	nulls[1] = memory.cgroup_headroom == PC_NO_LIMIT;
	values[2] = Int64GetDatum((int64) memory.dirty);
	values[3] = Int64GetDatum((int64) memory.reserve);
	values[4] = Int64GetDatum((int64) memory.hot);
	values[5] = Int64GetDatum((int64) Min(machine_others_bytes(), (uint64) PG_INT64_MAX));
	values[6] = Int64GetDatum((int64) Min(restore_budget(), (uint64) PG_INT64_MAX));
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls));
}
