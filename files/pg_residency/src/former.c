/*
 * former.c - functions of former versions' SQL that this version no longer has
 *
 * Until ALTER EXTENSION UPDATE has run, a database still has them: an explicit error is better than
 * a missing symbol.
 */
#include "pg_residency.h"

static void report_former(const char *function) __attribute__((noreturn));

static void
report_former(const char *function)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("function %s() is no longer supported", function),
			 errdetail("Snapshots contain the names of their relations."),
			 errhint("Run ALTER EXTENSION pg_residency UPDATE in this database, then call "
					 "residency_snapshot_names().")));
}

PG_FUNCTION_INFO_V1(residency_names);
Datum
residency_names(PG_FUNCTION_ARGS)
{
	report_former("residency_names");
}

PG_FUNCTION_INFO_V1(residency_set_names);
Datum
residency_set_names(PG_FUNCTION_ARGS)
{
	report_former("residency_set_names");
}
