/*
 * snapshot_sql.c - the SQL functions on snapshots
 */
#include "pg_residency.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/pg_database.h"
#include "catalog/pg_type_d.h"
#include "commands/dbcommands.h"
#include "common/cryptohash.h"
#include "common/sha2.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "names_gather.h"
#include "plan.h"
#include "segment_restore.h"
#include "snapshot.h"
#include "snapshot_take.h"

/* bytes of a digest between two checks for interrupts */
#define DIGEST_BYTES (1024 * 1024)

#define SNAPSHOT_COLUMNS 20

static char *
sha256_hex(const uint8 *data, size_t size)
{
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	char	   *hex = palloc(2 * sizeof(digest) + 1);
	volatile bool ok = ctx != NULL && pg_cryptohash_init(ctx) >= 0;

	PG_TRY();
	{
		for (size_t at = 0; at < size && ok; at += DIGEST_BYTES)
		{
			CHECK_FOR_INTERRUPTS();
			ok = pg_cryptohash_update(ctx, data + at, Min(size - at, DIGEST_BYTES)) >= 0;
		}
		ok = ok && pg_cryptohash_final(ctx, digest, sizeof(digest)) >= 0;
	}
	PG_FINALLY();
	{
		pg_cryptohash_free(ctx);
	}
	PG_END_TRY();
	if (!ok)
		elog(ERROR, "could not compute SHA-256 digest");
	for (size_t i = 0; i < sizeof(digest); i++)
		sprintf(hex + 2 * i, "%02x", digest[i]);
	return hex;
}

/* one row of residency_snapshots(); false when the file has been removed */
static bool
snapshot_values(const Generation *g, bool current, Datum *values, bool *nulls)
{
	ResidencySnapshot snapshot;
	const struct sf_header *header = &snapshot.header;

	if (!snapshot_read(g, &snapshot))
		return false;
	memset(nulls, snapshot.damaged || snapshot.unknown, SNAPSHOT_COLUMNS * sizeof(bool));
	nulls[0] = nulls[1] = nulls[18] = false;
	nulls[14] = nulls[15] = snapshot.unknown;
	values[0] = CStringGetTextDatum(g->name);
	values[1] = Int32GetDatum(g->generation);
	if (!snapshot.damaged && !snapshot.unknown)
	{
		values[2] = TimestampTzGetDatum(header->taken_at -
										(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY);
		values[3] = CStringGetTextDatum(header->origin);
		values[4] = BoolGetDatum((header->flags & SF_FLAG_IN_RECOVERY) != 0);
		values[5] = Int64GetDatum((int64) header->system_identifier);
		values[6] = Int32GetDatum((int32) header->timeline);
		values[7] = Int32GetDatum((int32) header->server_version);
		values[8] = Int32GetDatum((int32) header->segments);
		values[9] = Int64GetDatum((int64) header->blocks);
		values[10] = Int64GetDatum((int64) header->wanted);
		values[11] = Int64GetDatum((int64) header->in_page_cache);
		values[12] = Int64GetDatum((int64) header->in_shared_buffers);
		values[13] = Int64GetDatum((int64) header->in_both);
		values[17] = BoolGetDatum((header->flags & SF_FLAG_THIN) != 0);
		values[19] = Int64GetDatum((int64) header->measure);
		nulls[19] = header->measure == 0;
	}
	if (!snapshot.unknown)
	{
		values[14] = Int64GetDatum((int64) snapshot.size);
		values[15] = CStringGetTextDatum(sha256_hex(snapshot.data, snapshot.size));
		pfree(snapshot.data);
	}
	nulls[16] = snapshot.problem == NULL;
	if (snapshot.problem != NULL)
		values[16] = PointerGetDatum(names_text(snapshot.problem));
	values[18] = BoolGetDatum(current);
	return true;
}

/*
 * A database that does not accept connections is the administrator's choice; any other reason is
 * worth a warning.
 */
static void
warn_of_unnamed(const Generation *g)
{
	const Names *names = names_read(names_path(g));

	for (int i = 0; i < names->count; i++)
	{
		const NamedRelation *r = &names->list[i];
		char	   *name;

		if (r->kind != KIND_DATABASE || r->problem == NULL || r->name[0] != '\0')
			continue;
		name = get_database_name(r->database);
		if (name == NULL)
			continue;			/* dropped meanwhile */
		ereport(WARNING,
				(errmsg("could not read the relation names of database \"%s\": %s", name, r->problem),
				 errdetail("The snapshot has the names of the previous snapshot, as far as that has them."),
				 errhint("If the server ran out of background worker slots, increase max_worker_processes.")));
	}
}

PG_FUNCTION_INFO_V1(residency_snapshot);
Datum
residency_snapshot(PG_FUNCTION_ARGS)
{
	char	   *name = text_argument(fcinfo, 0, "snapshot name");
	int			keep = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1);
	bool		force = PG_NARGS() > 2 && !PG_ARGISNULL(2) && PG_GETARG_BOOL(2);
	TupleDesc	tupdesc = result_row(fcinfo, SNAPSHOT_COLUMNS);
	Datum		values[SNAPSHOT_COLUMNS];
	bool		nulls[SNAPSHOT_COLUMNS];
	struct sf_header header = snapshot_take(name, keep, force, NAMES_ALL);
	Generation	g = {.generation = (int) header.generation};
	Generation *list;
	int			count;

	strlcpy(g.name, header.name, sizeof(g.name));
	warn_of_unnamed(&g);
	list = list_generations(&count);
	if (!snapshot_values(&g, current_generation(g.name, list, count) == g.generation, values,
						 nulls))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("snapshot \"%s@%d\" was dropped right after it was taken", g.name,
							   g.generation)));
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls));
}

PG_FUNCTION_INFO_V1(residency_snapshots);
Datum
residency_snapshots(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = result_set(fcinfo, SNAPSHOT_COLUMNS);
	int			count;
	Generation *list = list_generations(&count);
	int			current = 0;

	for (int i = 0; i < count; i++)
	{
		Datum		values[SNAPSHOT_COLUMNS];
		bool		nulls[SNAPSHOT_COLUMNS];

		CHECK_FOR_INTERRUPTS();
		if (i == 0 || strcmp(list[i].name, list[i - 1].name) != 0)
			current = current_generation(list[i].name, list, count);
		if (snapshot_values(&list[i], list[i].generation == current, values, nulls))
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

#define SEGMENT_COLUMNS 12

PG_FUNCTION_INFO_V1(residency_snapshot_segments);
Datum
residency_snapshot_segments(PG_FUNCTION_ARGS)
{
	char	   *name = text_argument(fcinfo, 0, "snapshot name");
	ReturnSetInfo *rsinfo = result_set(fcinfo, SEGMENT_COLUMNS);
	ResidencySnapshot *snapshot = snapshot_load(name);
	struct sf_segment segment;
	size_t		at = 0;

	for (int no = 1; sf_next_segment(snapshot->data, &snapshot->header, &at, &segment); no++)
	{
		SegmentOutcome outcome;
		Datum		values[SEGMENT_COLUMNS];
		bool		nulls[SEGMENT_COLUMNS] = {false};

		CHECK_FOR_INTERRUPTS();
		examine_segment(&segment, &outcome);
		values[0] = Int32GetDatum(no);
		values[1] = ObjectIdGetDatum(segment.tablespace);
		values[2] = ObjectIdGetDatum(segment.database);
		values[3] = ObjectIdGetDatum(segment.relfilenumber);
		values[4] = CStringGetTextDatum(forkNames[segment.fork]);
		values[5] = Int32GetDatum((int32) segment.segment);
		values[6] = Int64GetDatum(segment.blocks);
		values[7] = Int64GetDatum(outcome.wanted);
		values[8] = Int64GetDatum(segment.layers[SF_BUFFERS_COOL].blocks +
								  (int64) segment.layers[SF_BUFFERS_HOT].blocks);
		values[9] = Int64GetDatum(outcome.resident);
		values[10] = Int64GetDatum(outcome.gone);
		values[11] = Float8GetDatum((double) segment_heat(&segment) / segment.blocks);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(residency_drop_snapshot);
Datum
residency_drop_snapshot(PG_FUNCTION_ARGS)
{
	char	   *name = text_argument(fcinfo, 0, "snapshot name");
	int			removed = snapshot_drop(name);

	if (removed == 0)
		report_unknown(name);
	PG_RETURN_INT32(removed);
}

/* --- names --- */

#define NAME_COLUMNS 11

static Datum
text_array(char **texts, int count)
{
	Datum	   *elements = palloc(Max(count, 1) * sizeof(Datum));

	for (int i = 0; i < count; i++)
		elements[i] = PointerGetDatum(names_text(texts[i]));
	return PointerGetDatum(construct_array(elements, count, TEXTOID, -1, false, TYPALIGN_INT));
}

/* the current name of a database whose worker failed; NULL when the database was dropped */
static text *
database_text(Oid database)
{
	char	   *name = get_database_name(database);

	return name != NULL ? cstring_to_text(name) : NULL;
}

static void
put_names(ReturnSetInfo *rsinfo, const Names *names)
{
	for (int i = 0; i < names->count; i++)
	{
		const NamedRelation *r = &names->list[i];
		bool		is_database = r->kind == KIND_DATABASE;
		text	   *name;
		Datum		values[NAME_COLUMNS];
		bool		nulls[NAME_COLUMNS] = {false};

		if (i % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		memset(values, 0, sizeof(values));
		values[0] = ObjectIdGetDatum(r->database);
		values[1] = ObjectIdGetDatum(r->tablespace);
		values[2] = ObjectIdGetDatum(r->relfilenumber);
		values[3] = ObjectIdGetDatum(r->relation);
		values[4] = CStringGetTextDatum(names_kind(r->kind));
		name = r->name[0] != '\0' ? names_text(r->name) : database_text(r->database);
		nulls[5] = name == NULL;
		if (name != NULL)
			values[5] = PointerGetDatum(name);
		values[6] = ObjectIdGetDatum(r->owner);
		nulls[6] = !OidIsValid(r->owner);
		nulls[7] = r->owner_name == NULL;
		if (!nulls[7])
			values[7] = PointerGetDatum(names_text(r->owner_name));
		values[8] = Int64GetDatum(r->pages);
		nulls[9] = r->npartition_of == 0;
		if (!nulls[9])
			values[9] = text_array(r->partition_of, r->npartition_of);
		nulls[10] = r->problem == NULL;
		if (!nulls[10])
			values[10] = PointerGetDatum(names_text(r->problem));
		nulls[1] = nulls[2] = nulls[3] = nulls[8] = is_database;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

PG_FUNCTION_INFO_V1(residency_snapshot_names);
Datum
residency_snapshot_names(PG_FUNCTION_ARGS)
{
	char	   *name = text_argument(fcinfo, 0, "snapshot name");
	ReturnSetInfo *rsinfo = result_set(fcinfo, NAME_COLUMNS);
	ResidencySnapshot *snapshot = snapshot_load(name);

	put_names(rsinfo, names_read(names_path(&snapshot->id)));
	return (Datum) 0;
}

/* all databases, and InvalidOid for the shared catalogs */
static List *
all_databases(void)
{
	Relation	rel = table_open(DatabaseRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	List	   *databases = list_make1_oid(InvalidOid);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		databases = lappend_oid(databases, ((Form_pg_database) GETSTRUCT(tuple))->oid);
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return databases;
}

/* the databases of the array without duplicates; an unknown one is an error */
static List *
chosen_databases(ArrayType *array)
{
	List	   *all = all_databases();
	List	   *chosen = NIL;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	deconstruct_array(array, OIDOID, sizeof(Oid), true, TYPALIGN_INT, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		Oid			database = nulls[i] ? InvalidOid : DatumGetObjectId(elements[i]);

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("database must not be null")));
		if (!list_member_oid(all, database))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_DATABASE),
					 errmsg("database with OID %u does not exist", database)));
		chosen = list_append_unique_oid(chosen, database);
	}
	return chosen;
}

PG_FUNCTION_INFO_V1(residency_current_names);
Datum
residency_current_names(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = result_set(fcinfo, NAME_COLUMNS);

	put_names(rsinfo, names_now(PG_ARGISNULL(0) ? all_databases() :
													chosen_databases(PG_GETARG_ARRAYTYPE_P(0))));
	return (Datum) 0;
}
