/*
 * pg_residency.c - the module itself, and helpers of its SQL functions
 */
#include "pg_residency.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

PG_MODULE_MAGIC;

/*
 * The installed version of the extension that the function belongs to; NULL when it belongs to
 * none.
 */
static char *
version_of_extension(Oid function)
{
	Oid			extension = getExtensionOfObject(ProcedureRelationId, function);
	char	   *version = NULL;
	Relation	catalog;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!OidIsValid(extension))
		return NULL;
	catalog = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(extension));
	scan = systable_beginscan(catalog, ExtensionOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum value =
			heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(catalog), &isnull);

		if (!isnull)
			version = TextDatumGetCString(value);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return version;
}

/* Compares numerically: 0.10.0 is newer than 0.9.1. */
static bool
is_newer(const char *version, const char *other)
{
	int			a[3] = {0};
	int			b[3] = {0};

	sscanf(version, "%d.%d.%d", &a[0], &a[1], &a[2]);
	sscanf(other, "%d.%d.%d", &b[0], &b[1], &b[2]);
	for (int i = 0; i < 3; i++)
		if (a[i] != b[i])
			return a[i] > b[i];
	return false;
}

/*
 * The library and the SQL objects may have different versions: after an upgrade of the package and
 * before ALTER EXTENSION UPDATE, or after that in a session that has loaded the former library.  To
 * fill a row with other columns would read foreign memory.  A function whose columns are the same
 * continues to work.
 */
static void
check_columns(FunctionCallInfo fcinfo, TupleDesc tupdesc, int columns)
{
	char	   *version;

	if (tupdesc->natts == columns)
		return;
	version = version_of_extension(fcinfo->flinfo->fn_oid);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extension \"pg_residency\" has version %s in this database, but its library has version %s",
					version ? version : "unknown", PG_RESIDENCY_VERSION),
			 version && is_newer(version, PG_RESIDENCY_VERSION)
			 ? errhint("Reconnect, or restart the server if it preloads the library. If the error persists, reinstall the extension's files.")
			 : errhint("Run ALTER EXTENSION pg_residency UPDATE in this database, or DROP EXTENSION and CREATE EXTENSION.")));
}

/* The type of the row that the function returns; an error when it has another number of columns. */
TupleDesc
result_row(FunctionCallInfo fcinfo, int columns)
{
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	check_columns(fcinfo, tupdesc, columns);
	return BlessTupleDesc(tupdesc);
}

/* The set that the function fills; an error when its rows have another number of columns. */
ReturnSetInfo *
result_set(FunctionCallInfo fcinfo, int columns)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	check_columns(fcinfo, rsinfo->setDesc, columns);
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
