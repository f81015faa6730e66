/*
 * pg_residency.c - the module itself, and what it says of itself and of its surroundings
 */
#include "pg_residency.h"

#include "kernel/memory.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

/*
 * A library and the SQL of another version may meet: after an upgrade of the package, before ALTER EXTENSION UPDATE.
 * Filling a row that has other columns would read memory that is not ours.
 */
static void
check_columns(TupleDesc tupdesc, int columns)
{
	if (tupdesc->natts != columns)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the SQL of extension pg_residency is not that of its library, which has version %s", PG_RESIDENCY_VERSION),
				 errhint("Run ALTER EXTENSION pg_residency UPDATE, or DROP EXTENSION and CREATE EXTENSION, in this database.")));
}

/* The row that the function returns; an error when it has not that many columns. */
TupleDesc
result_row(FunctionCallInfo fcinfo, int columns)
{
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	check_columns(tupdesc, columns);
	return BlessTupleDesc(tupdesc);
}

/* The set that the function fills; an error when its rows have not that many columns. */
ReturnSetInfo *
result_set(FunctionCallInfo fcinfo, int columns)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	check_columns(rsinfo->setDesc, columns);
	return rsinfo;
}

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
	TupleDesc	tupdesc = result_row(fcinfo, 7);
	Datum		values[7];
	bool		nulls[7] = {false};
	uint64		others = machine_others_bytes();
	int			rc = pc_memory_read("", others, &memory);

	if (rc != 0)
		report_kernel_error(rc, "read the free memory from", "/proc/meminfo");
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
