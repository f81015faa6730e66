/*
 * pg_residency.h - helpers of the extension's SQL functions
 */
#ifndef PG_RESIDENCY_H
#define PG_RESIDENCY_H

#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"

#include "compat.h"

extern TupleDesc result_row(FunctionCallInfo fcinfo, int columns);
extern ReturnSetInfo *result_set(FunctionCallInfo fcinfo, int columns);
extern void need_argument(FunctionCallInfo fcinfo, int n, const char *what);
extern char *text_argument(FunctionCallInfo fcinfo, int n, const char *what);

#endif
