/*
 * by_relation.c - the wanted blocks of a snapshot, and the outcome of a job, summed by relation
 */
#include "pg_residency.h"

#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"

#include "job_file.h"
#include "names.h"
#include "plan.h"
#include "segment_restore.h"
#include "snapshot.h"

/* identifies a relation across its forks and segments */
typedef struct Place
{
	Oid			database;
	Oid			tablespace;
	RelFileNumber relfilenumber;
} Place;

typedef struct Sum
{
	Place		place;			/* the key */
	SegmentOutcome outcome;
	int64		blocks;
	int64		in_shared_buffers;
	uint64		heat;
} Sum;

/* columns that identify the relation */
#define WHICH_COLUMNS 8

static HTAB *
new_sums(void)
{
	HASHCTL ctl = {.keysize = sizeof(Place),
				   .entrysize = sizeof(Sum),
				   .hcxt = CurrentMemoryContext};

	return hash_create("residency sums", 1024, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static Sum *
sum_of(HTAB *sums, const SegmentId *id)
{
	Place		place = {id->database, id->tablespace, id->relfilenumber};
	bool		found;
	Sum		   *sum = hash_search(sums, &place, HASH_ENTER, &found);

	if (!found)
		memset((char *) sum + sizeof(Place), 0, sizeof(Sum) - sizeof(Place));
	return sum;
}

static void
which_values(const Place *place, const Names *names, Datum *values, bool *nulls)
{
	const NamedRelation *r =
		names_find(names, place->database, place->tablespace, place->relfilenumber);

	values[0] = ObjectIdGetDatum(place->database);
	values[1] = ObjectIdGetDatum(place->tablespace);
	values[2] = ObjectIdGetDatum(place->relfilenumber);
	memset(nulls + 3, r == NULL, 5 * sizeof(bool));
	if (r == NULL)
		return;
	values[3] = ObjectIdGetDatum(r->relation);
	values[4] = CStringGetTextDatum(names_kind(r->kind));
	values[5] = PointerGetDatum(names_text(r->name));
	values[6] = ObjectIdGetDatum(r->owner);
	nulls[6] = !OidIsValid(r->owner);
	nulls[7] = r->owner_name == NULL;
	if (r->owner_name != NULL)
		values[7] = PointerGetDatum(names_text(r->owner_name));
}

#define SNAPSHOT_SUM_COLUMNS (WHICH_COLUMNS + 6)

PG_FUNCTION_INFO_V1(residency_snapshot_relations);
Datum
residency_snapshot_relations(PG_FUNCTION_ARGS)
{
	char	   *name = text_argument(fcinfo, 0, "snapshot name");
	ReturnSetInfo *rsinfo = result_set(fcinfo, SNAPSHOT_SUM_COLUMNS);
	ResidencySnapshot *snapshot = snapshot_load(name);
	Names	   *names = names_read(names_path(&snapshot->id));
	HTAB	   *sums = new_sums();
	struct sf_segment segment;
	size_t		at = 0;
	HASH_SEQ_STATUS all;
	Sum		   *sum;

	while (sf_next_segment(snapshot->data, &snapshot->header, &at, &segment))
	{
		SegmentId	id = segment_id_of(&segment);
		SegmentOutcome outcome;

		CHECK_FOR_INTERRUPTS();
		examine_segment(&segment, &outcome);
		sum = sum_of(sums, &id);
		outcome_add(&sum->outcome, &outcome);
		sum->blocks += segment.blocks;
		sum->in_shared_buffers += (int64) segment.layers[SF_BUFFERS_COOL].blocks +
			segment.layers[SF_BUFFERS_HOT].blocks;
		sum->heat += segment_heat(&segment);
	}
	hash_seq_init(&all, sums);
	while ((sum = hash_seq_search(&all)) != NULL)
	{
		Datum		values[SNAPSHOT_SUM_COLUMNS] = {0};
		bool		nulls[SNAPSHOT_SUM_COLUMNS] = {false};

		which_values(&sum->place, names, values, nulls);
		values[WHICH_COLUMNS] = Int64GetDatum(sum->blocks);
		values[WHICH_COLUMNS + 1] = Int64GetDatum(sum->outcome.wanted);
		values[WHICH_COLUMNS + 2] = Int64GetDatum(sum->in_shared_buffers);
		values[WHICH_COLUMNS + 3] = Int64GetDatum(sum->outcome.resident);
		values[WHICH_COLUMNS + 4] = Int64GetDatum(sum->outcome.gone);
		values[WHICH_COLUMNS + 5] = Float8GetDatum((double) sum->heat / (double) sum->blocks);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

#define JOB_SUM_COLUMNS (WHICH_COLUMNS + 8)

PG_FUNCTION_INFO_V1(residency_job_relations);
Datum
residency_job_relations(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = result_set(fcinfo, JOB_SUM_COLUMNS);
	HTAB	   *sums = new_sums();
	Names	   *names;
	JobSegment *segments;
	Job			job;
	HASH_SEQ_STATUS all;
	Sum		   *sum;

	need_argument(fcinfo, 0, "job number");
	segments = job_read_segments(PG_GETARG_INT32(0), &job);
	for (int i = 0; i < job.segments; i++)
	{
		sum = sum_of(sums, &segments[i].id);
		outcome_add(&sum->outcome, &segments[i].outcome);
	}
	names = names_read(job_names_path(job.job));
	hash_seq_init(&all, sums);
	while ((sum = hash_seq_search(&all)) != NULL)
	{
		const SegmentOutcome *o = &sum->outcome;
		Datum		values[JOB_SUM_COLUMNS] = {0};
		bool		nulls[JOB_SUM_COLUMNS] = {false};

		which_values(&sum->place, names, values, nulls);
		values[WHICH_COLUMNS] = Int64GetDatum(o->wanted);
		values[WHICH_COLUMNS + 1] = Int64GetDatum(outcome_settled(o));
		values[WHICH_COLUMNS + 2] = Int64GetDatum(o->resident);
		values[WHICH_COLUMNS + 3] = Int64GetDatum(o->loaded);
		values[WHICH_COLUMNS + 4] = Int64GetDatum(o->extra);
		values[WHICH_COLUMNS + 5] = Int64GetDatum(o->over_budget);
		values[WHICH_COLUMNS + 6] = Int64GetDatum(o->gone);
		values[WHICH_COLUMNS + 7] = Int64GetDatum(o->failed);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
