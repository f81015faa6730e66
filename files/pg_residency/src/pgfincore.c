/*
 * pgfincore.c - the functions of the extension pgfincore, with its names, arguments and columns
 *
 * Counts are in the kernel's pages.  Pages count as loaded or unloaded only when their residency
 * has changed.
 */
#include "pg_residency.h"

#include <unistd.h>

#include "access/htup_details.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/varbit.h"

#include "kernel/page_cache.h"
#include "hold_release.h"
#include "page_map.h"
#include "relations.h"

#define ADVISE_WILLNEED 10
#define ADVISE_DONTNEED 20
#define ADVISE_NORMAL 30
#define ADVISE_SEQUENTIAL 40
#define ADVISE_RANDOM 50

static ForkNumber
fork_argument(FunctionCallInfo fcinfo, int n)
{
	need_argument(fcinfo, n, "fork");
	return forkname_to_number(text_to_cstring(PG_GETARG_TEXT_PP(n)));
}

static Datum
varbit_datum(const uint8 *map, uint32 pages)
{
	VarBit	   *bits = palloc0(VARBITTOTALLEN(pages));

	SET_VARSIZE(bits, VARBITTOTALLEN(pages));
	VARBITLEN(bits) = (int32) pages;
	for (uint32 i = pc_next(map, pages, 0, true); i < pages; i = pc_next(map, pages, i + 1, true))
		VARBITS(bits)[i / BITS_PER_BYTE] |= (uint8) (HIGHBIT >> (i % BITS_PER_BYTE));
	return VarBitPGetDatum(bits);
}

static bool
varbit_at(const VarBit *bits, uint32 i)
{
	return (VARBITS(bits)[i / BITS_PER_BYTE] & (HIGHBIT >> (i % BITS_PER_BYTE))) != 0;
}

/* --- the host --- */

static int64
free_pages(void)
{
	return (int64) sysconf(_SC_AVPHYS_PAGES);
}

static int64
all_pages(void)
{
	return (int64) sysconf(_SC_PHYS_PAGES);
}

PG_FUNCTION_INFO_V1(residency_pgsysconf);
Datum
residency_pgsysconf(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc = result_row(fcinfo, 3);
	Datum		values[3];
	bool		nulls[3] = {false};

	values[0] = Int64GetDatum((int64) pc_page_size());
	values[1] = Int64GetDatum(free_pages());
	values[2] = Int64GetDatum(all_pages());
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls));
}

static Datum
pretty_size(int64 bytes)
{
	return DirectFunctionCall1(pg_size_pretty, Int64GetDatum(bytes));
}

PG_FUNCTION_INFO_V1(residency_pgsysconf_pretty);
Datum
residency_pgsysconf_pretty(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc = result_row(fcinfo, 3);
	int64		page = (int64) pc_page_size();
	Datum		values[3];
	bool		nulls[3] = {false};

	values[0] = pretty_size(page);
	values[1] = pretty_size(free_pages() * page);
	values[2] = pretty_size(all_pages() * page);
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls));
}

PG_FUNCTION_INFO_V1(residency_pg_page_size);
Datum
residency_pg_page_size(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(BLCKSZ);
}

PG_FUNCTION_INFO_V1(residency_pg_segment_size);
Datum
residency_pg_segment_size(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(RELSEG_SIZE);
}

PG_FUNCTION_INFO_V1(residency_vm_page_size);
Datum
residency_vm_page_size(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) pc_page_size());
}

PG_FUNCTION_INFO_V1(residency_vm_available_pages);
Datum
residency_vm_available_pages(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(free_pages());
}

PG_FUNCTION_INFO_V1(residency_vm_physical_pages);
Datum
residency_vm_physical_pages(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(all_pages());
}

/* --- what is cached --- */

static void
put_cached_file(ReturnSetInfo *rsinfo, const CachedFile *file, uint32 segment, bool with_map)
{
	uint8	   *map = new_page_map(file);
	DirtyPages	dirty;
	Datum		values[10];
	bool		nulls[10] = {false};

	look_at_pages(file, map);
	values[0] = CStringGetTextDatum(file->path);
	values[1] = Int32GetDatum((int32) segment);
	values[2] = Int64GetDatum((int64) pc_page_size());
	values[3] = Int64GetDatum((int64) file->pages);
	values[4] = Int64GetDatum((int64) pc_popcount(map, file->pages));
	values[5] = Int64GetDatum(count_page_groups(map, file->pages));
	values[6] = Int64GetDatum(free_pages());
	nulls[7] = !with_map;
	values[7] = with_map ? varbit_datum(map, file->pages) : (Datum) 0;
	nulls[8] = nulls[9] = !count_dirty_pages(file, &dirty);
	values[8] = Int64GetDatum(dirty.pages);
	values[9] = Int64GetDatum(dirty.groups);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	if (with_map)
		pfree(DatumGetPointer(values[7]));
	pfree(map);
}

/* (regclass), (regclass, bool) and (regclass, text, bool) */
PG_FUNCTION_INFO_V1(residency_pgfincore);
Datum
residency_pgfincore(PG_FUNCTION_ARGS)
{
	int			last = PG_NARGS() - 1;
	ForkNumber	fork_number = MAIN_FORKNUM;
	bool		with_map = false;
	ReturnSetInfo *rsinfo;
	ListCell   *cell;

	need_argument(fcinfo, 0, "relation");
	if (last == 2)
		fork_number = fork_argument(fcinfo, 1);
	if (last > 0)
	{
		need_argument(fcinfo, last, "argument \"getdatabit\"");
		with_map = PG_GETARG_BOOL(last);
	}
	rsinfo = result_set(fcinfo, 10);
	foreach(cell, relation_forks(PG_GETARG_OID(0), fork_number, false))
	{
		const RelationFork *fork = lfirst(cell);
		CachedFile	file = {.size = 0};

		for (uint32 segment = 0; next_cached_file(fork, segment, &file); segment++)
		{
			put_cached_file(rsinfo, &file, segment, with_map);
			CloseTransientFile(file.fd);
		}
	}
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(residency_pgfincore_drawer);
Datum
residency_pgfincore_drawer(PG_FUNCTION_ARGS)
{
	const VarBit *bits = PG_GETARG_VARBIT_P(0);
	uint32		pages = (uint32) VARBITLEN(bits);
	char	   *drawing = palloc(pages + 1);

	for (uint32 i = 0; i < pages; i++)
		drawing[i] = varbit_at(bits, i) ? '.' : ' ';
	drawing[pages] = '\0';
	PG_RETURN_CSTRING(drawing);
}

/* --- whole files in and out --- */

static void
advise_file(const CachedFile *file, int action)
{
	uint8	   *all = new_page_map(file);
	uint8	   *map = new_page_map(file);

	for (uint32 i = 0; i < file->pages; i++)
		pc_set(all, i);
	if (action == ADVISE_WILLNEED)
	{
		look_at_pages(file, map);
		load_pages(file, all, map, NULL);
	}
	else if (action == ADVISE_DONTNEED)
	{
		evict_pages(file, all, map);
		if (pc_popcount(map, file->pages) > 0)
			ereport(NOTICE,
					(errmsg("%lld of %u pages of file \"%s\" remain in the page cache",
							(long long) pc_popcount(map, file->pages), file->pages, file->path),
					 errdetail("The kernel does not evict pages that are dirty or in use."),
					 errhint("Try again after a CHECKPOINT.")));
	}
	/* the other actions are hints to the kernel, which end when the file is closed: no effect */
	pfree(all);
	pfree(map);
}

static Datum
advise_relation(FunctionCallInfo fcinfo, ForkNumber fork_number, int action)
{
	ReturnSetInfo *rsinfo = result_set(fcinfo, 4);
	ListCell   *cell;
	bool		release = action == ADVISE_DONTNEED;

	foreach(cell, relation_forks(PG_GETARG_OID(0), fork_number, false))
	{
		const RelationFork *fork = lfirst(cell);
		CachedFile	file = {.size = 0};

		if (release)
			release = release_relation(&fork->id);
		for (uint32 segment = 0; next_cached_file(fork, segment, &file); segment++)
		{
			Datum		values[4];
			bool		nulls[4] = {false};

			advise_file(&file, action);
			values[0] = CStringGetTextDatum(file.path);
			values[1] = Int64GetDatum((int64) pc_page_size());
			values[2] = Int64GetDatum((int64) file.pages);
			values[3] = Int64GetDatum(free_pages());
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
			CloseTransientFile(file.fd);
		}
	}
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(residency_pgfadvise);
Datum
residency_pgfadvise(PG_FUNCTION_ARGS)
{
	ForkNumber	fork_number;
	int			action;

	need_argument(fcinfo, 0, "relation");
	fork_number = fork_argument(fcinfo, 1);
	need_argument(fcinfo, 2, "action");
	action = PG_GETARG_INT32(2);
	if (action != ADVISE_WILLNEED && action != ADVISE_DONTNEED && action != ADVISE_NORMAL &&
		action != ADVISE_SEQUENTIAL && action != ADVISE_RANDOM)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid action %d", action),
				 errhint("Valid actions are 10 (WILLNEED), 20 (DONTNEED), 30 (NORMAL), "
						 "40 (SEQUENTIAL) and 50 (RANDOM).")));
	return advise_relation(fcinfo, fork_number, action);
}

static Datum
advise_main_fork(FunctionCallInfo fcinfo, int action)
{
	need_argument(fcinfo, 0, "relation");
	return advise_relation(fcinfo, MAIN_FORKNUM, action);
}

PG_FUNCTION_INFO_V1(residency_pgfadvise_willneed);
Datum
residency_pgfadvise_willneed(PG_FUNCTION_ARGS)
{
	return advise_main_fork(fcinfo, ADVISE_WILLNEED);
}

PG_FUNCTION_INFO_V1(residency_pgfadvise_dontneed);
Datum
residency_pgfadvise_dontneed(PG_FUNCTION_ARGS)
{
	return advise_main_fork(fcinfo, ADVISE_DONTNEED);
}

PG_FUNCTION_INFO_V1(residency_pgfadvise_normal);
Datum
residency_pgfadvise_normal(PG_FUNCTION_ARGS)
{
	return advise_main_fork(fcinfo, ADVISE_NORMAL);
}

PG_FUNCTION_INFO_V1(residency_pgfadvise_sequential);
Datum
residency_pgfadvise_sequential(PG_FUNCTION_ARGS)
{
	return advise_main_fork(fcinfo, ADVISE_SEQUENTIAL);
}

PG_FUNCTION_INFO_V1(residency_pgfadvise_random);
Datum
residency_pgfadvise_random(PG_FUNCTION_ARGS)
{
	return advise_main_fork(fcinfo, ADVISE_RANDOM);
}

/* --- a map --- */

/* loads and evicts the pages of the file by the map; counts in pages */
static void
apply_map(const CachedFile *file, const VarBit *bits, bool in, bool out,
		  int64 *loaded, int64 *unloaded)
{
	size_t		bytes = pc_map_bytes(file->pages);
	uint32		pages = Min((uint32) VARBITLEN(bits), file->pages);
	uint8	   *want = new_page_map(file);
	uint8	   *drop = new_page_map(file);
	uint8	   *before = new_page_map(file);
	uint8	   *after = new_page_map(file);

	if ((uint32) VARBITLEN(bits) > file->pages)
		ereport(WARNING,
				(errmsg("map has %d pages, but file \"%s\" has only %u",
						VARBITLEN(bits), file->path, file->pages),
				 errdetail("The relation was truncated or rewritten after the map was made. "
						   "The pages beyond the end of the file are ignored."),
				 errhint("If the relation was rewritten, make a new map.")));
	for (uint32 i = 0; i < pages; i++)
		if (!varbit_at(bits, i) && out)
			pc_set(drop, i);
		else if (varbit_at(bits, i) && in)
			pc_set(want, i);

	look_at_pages(file, before);
	if (out)
	{
		uint8	   *keep = new_page_map(file);

		for (size_t i = 0; i < bytes; i++)
			keep[i] = before[i] & (uint8) ~drop[i];
		evict_pages(file, drop, after);
		evict_whole_folios(file, after);
		*loaded = load_pages(file, want, before, keep);
		pfree(keep);
	}
	else
		*loaded = load_pages(file, want, before, NULL);

	look_at_pages(file, after);
	for (size_t i = 0; i < bytes; i++)
		drop[i] &= before[i] & (uint8) ~after[i];
	*unloaded = (int64) pc_popcount(drop, file->pages);
	pfree(want);
	pfree(drop);
	pfree(before);
	pfree(after);
}

/* (regclass, int, bool, bool, varbit), or with a fork as the second argument */
PG_FUNCTION_INFO_V1(residency_pgfadvise_loader);
Datum
residency_pgfadvise_loader(PG_FUNCTION_ARGS)
{
	int			first = PG_NARGS() - 4; /* position of the first argument after the optional fork */
	ForkNumber	fork_number = MAIN_FORKNUM;
	ReturnSetInfo *rsinfo;
	const RelationFork *fork;
	CachedFile	file = {.size = 0};
	int			segment;
	int64		loaded = 0;
	int64		unloaded = 0;
	Datum		values[5];
	bool		nulls[5] = {false};

	need_argument(fcinfo, 0, "relation");
	if (first == 2)
		fork_number = fork_argument(fcinfo, 1);
	need_argument(fcinfo, first, "segment");
	need_argument(fcinfo, first + 1, "argument \"load\"");
	need_argument(fcinfo, first + 2, "argument \"unload\"");
	segment = PG_GETARG_INT32(first);
	rsinfo = result_set(fcinfo, 5);
	fork = linitial(relation_forks(PG_GETARG_OID(0), fork_number, true));
	if (segment < 0 || !open_cached_file(fork, (uint32) segment, &file))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FILE),
				 errmsg("fork \"%s\" of relation \"%s\" has no segment %d",
						forkNames[fork_number], get_rel_name(PG_GETARG_OID(0)), segment)));
	if (PG_GETARG_BOOL(first + 2) && !PG_ARGISNULL(first + 3))
		(void) release_relation(&fork->id);
	if (!PG_ARGISNULL(first + 3))
		apply_map(&file, PG_GETARG_VARBIT_P(first + 3), PG_GETARG_BOOL(first + 1),
				  PG_GETARG_BOOL(first + 2), &loaded, &unloaded);
	else if (file.pages > 0)
		/* the words of pgfincore, which scripts may expect; its map of an empty segment is NULL */
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("pgfadvise_loader: databit argument shouldn't be NULL")));
	values[0] = CStringGetTextDatum(file.path);
	values[1] = Int64GetDatum((int64) pc_page_size());
	values[2] = Int64GetDatum(free_pages());
	values[3] = Int64GetDatum(loaded);
	values[4] = Int64GetDatum(unloaded);
	CloseTransientFile(file.fd);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}
