/*
 * pg_residency.c - the module itself, and helpers of its SQL functions
 */
#include "pg_residency.h"

#include "utils/builtins.h"

PG_MODULE_MAGIC;

/*
 * The library and the SQL objects of a database have different versions between the installation of
 * new files and ALTER EXTENSION UPDATE or DROP EXTENSION, and in a session that loaded the library
 * before.  To fill a row with other columns would read foreign memory.
 */
static void
check_columns(TupleDesc tupdesc, int columns)
{
	if (tupdesc->natts != columns)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"pg_residency\" does not fit its library, which has version %s",
						PG_RESIDENCY_VERSION),
				 errhint("Reconnect, or restart the server if it preloads the library. If the error persists, run DROP EXTENSION and CREATE EXTENSION.")));
}

/* The type of the row that the function returns; an error when it has another number of columns. */
TupleDesc
result_row(FunctionCallInfo fcinfo, int columns)
{
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	check_columns(tupdesc, columns);
	return BlessTupleDesc(tupdesc);
}

/* The set that the function fills; an error when its rows have another number of columns. */
ReturnSetInfo *
result_set(FunctionCallInfo fcinfo, int columns)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	check_columns(rsinfo->setDesc, columns);
	return rsinfo;
}

/* raises an error that names the argument when it is NULL */
void
need_argument(FunctionCallInfo fcinfo, int n, const char *what)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
}

/* The argument as a C string; raises an error that names the argument when it is NULL. */
char *
text_argument(FunctionCallInfo fcinfo, int n, const char *what)
{
	need_argument(fcinfo, n, what);
	return text_to_cstring(PG_GETARG_TEXT_PP(n));
}

PG_FUNCTION_INFO_V1(residency_version);
Datum
residency_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(PG_RESIDENCY_VERSION));
}
