/*
 * plan.c - which segments a job restores, in which order
 */
#include "plan.h"

#include "access/xlog.h"
#include "catalog/pg_tablespace_d.h"
#include "storage/fd.h"
#include "utils/hsearch.h"

#include "kernel/page_cache.h"
#include "segments.h"

uint64
segment_heat(const struct sf_segment *segment)
{
	return segment->layers[SF_PAGE_CACHE].blocks +
		   2 * (uint64) segment->layers[SF_BUFFERS_COOL].blocks +
		   4 * (uint64) segment->layers[SF_BUFFERS_HOT].blocks;
}

void
report_no_segment(const ResidencySnapshot *snapshot, int number)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("snapshot \"%s\" has no segment %d", snapshot->label, number),
			 errhint("Its segments have the numbers 1 to %u; residency_snapshot_segments() lists them.",
					 snapshot->header.segments)));
	pg_unreachable();
}

/* a segment, its number and its heat, for sorting */
typedef struct Numbered
{
	const struct sf_segment *segment;
	int32		number;
	uint64		heat;
} Numbered;

/*
 * The hottest segments come first, in case the budget or the time runs out: by heat per block.  The
 * page cache's map has no usage counts, but a segment that was completely cached was used more than
 * one that was partly reclaimed.
 */
static int
compare_numbered(const void *a, const void *b)
{
	const Numbered *na = a;
	const Numbered *nb = b;
	uint64		da = na->heat * nb->segment->blocks;
	uint64		db = nb->heat * na->segment->blocks;

	if (da != db)
		return da > db ? -1 : 1;
	return na->number - nb->number;
}

/* adds a segment, unless the plan has its file already */
static void
add_segment(RestorePlan *plan, const struct sf_segment *segment, int32 number)
{
	SegmentId	id = segment_id_of(segment);
	JobSegment *added;
	bool		found;

	hash_search(plan->ids, &id, HASH_ENTER, &found);
	if (found)
		return;

	if (plan->count == plan->room)
	{
		plan->room *= 2;
		plan->segments = repalloc_huge(plan->segments, plan->room * sizeof(struct sf_segment));
		plan->job_segments = repalloc_huge(plan->job_segments, plan->room * sizeof(JobSegment));
	}
	plan->segments[plan->count] = *segment;
	added = &plan->job_segments[plan->count++];
	*added = (JobSegment) {.number = number, .id = id, .blocks = segment->blocks};
	if (segment_is_of_primary(&id))
		added->outcome.reason = REASON_UNLOGGED;
	else
		added->outcome.wanted = segment->wanted;
	plan->wanted += added->outcome.wanted;
}

/* adds the snapshot's segments, or the selected ones in the order of the selection */
static void
plan_snapshot(RestorePlan *plan, const ResidencySnapshot *snapshot, const JobOptions *options)
{
	const struct sf_segment *segments = snapshot_segments(snapshot);
	int			most = (int) snapshot->header.segments;
	int			count = options->selected ? options->nsegments : most;
	Numbered   *numbered = palloc_extended(Max(count, 1) * sizeof(Numbered), MCXT_ALLOC_HUGE);

	for (int i = 0; i < count; i++)
	{
		int			number = options->selected ? (int) options->segments[i] : i + 1;

		if (number > most)
			report_no_segment(snapshot, number);
		numbered[i] = (Numbered) {&segments[number - 1], number,
								  segment_heat(&segments[number - 1])};
	}
	if (!options->selected)
		qsort(numbered, count, sizeof(Numbered), compare_numbered);
	for (int i = 0; i < count; i++)
		add_segment(plan, numbered[i].segment, numbered[i].number);
	pfree(numbered);
}

/* --- several snapshots --- */

/* a segment of the merged snapshots */
typedef struct MergedSegment
{
	SegmentId	id;				/* the key */
	struct sf_segment segment;
	int32		number;			/* in the first snapshot; 0: it is not in that */
	uint64		heat;			/* in HEAT_UNITs */
} MergedSegment;

#define HEAT_UNIT 256

/*
 * Adds the blocks of another segment to the page cache's layer, as far as the file now goes.  Those
 * of shared buffers are the first snapshot's: they were in use together, and no more of them fit.
 */
static void
add_blocks(struct sf_segment *segment, const struct sf_segment *other, uint32 now,
		   const char *label)
{
	/* the file may have grown since the one, and shrunk since the other */
	uint32		length = Max(segment->blocks, Min(other->blocks, now));
	uint8	   *maps[SF_LAYERS];
	uint8	   *add = palloc(pc_map_bytes(other->blocks));
	/* as a snapshot file of one segment, from which it is read again */
	uint8	   *file = palloc(SF_HEADER_BYTES + sf_segment_bound(length));
	struct sf_header header = {.segment_blocks = RELSEG_SIZE};
	size_t		at = 0;
	bool		damaged = sf_read_map(other, add) != NULL;

	for (int l = 0; l < SF_LAYERS; l++)
	{
		maps[l] = palloc0(pc_map_bytes(length));
		damaged |= sf_read_layer(segment, (enum sf_layer) l, maps[l]) != NULL;
	}
	if (damaged)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("snapshot \"%s\" is damaged", label)));
	segment->blocks = length;
	for (uint32 b = pc_next(add, other->blocks, 0, true); b < Min(other->blocks, length);
		 b = pc_next(add, other->blocks, b + 1, true))
		pc_set(maps[SF_PAGE_CACHE], b);
	header.body_size = sf_write_segment(segment, maps, file + SF_HEADER_BYTES);
	if (!sf_next_segment(repalloc(file, SF_HEADER_BYTES + header.body_size), &header, &at, segment))
		elog(ERROR, "could not read a merged segment");
	for (int l = 0; l < SF_LAYERS; l++)
		pfree(maps[l]);
	pfree(add);
}

static void
merge(HTAB *merged, const ResidencySnapshot *snapshot, int age, bool first)
{
	const struct sf_segment *segments = snapshot_segments(snapshot);

	for (int i = 0; i < (int) snapshot->header.segments; i++)
	{
		SegmentId	id = segment_id_of(&segments[i]);
		MergedSegment *m;
		uint32		blocks;
		bool		found;

		CHECK_FOR_INTERRUPTS();
		/* a relation that was dropped before the first snapshot is no loss */
		if (!first && !segment_blocks_now(&id, &blocks))
			continue;
		m = hash_search(merged, &id, HASH_ENTER, &found);
		if (!found)
		{
			m->segment = segments[i];
			m->number = first ? i + 1 : 0;
			m->heat = 0;
			if (!first)
				memset(m->segment.layers, 0, sizeof(m->segment.layers));
		}
		if (!first)
			add_blocks(&m->segment, &segments[i], blocks, snapshot->label);
		m->heat += segment_heat(&segments[i]) * HEAT_UNIT >> Min(age, 63);
	}
}

/* fills `segment` as if a snapshot wanted every block of the file */
static void
whole_segment(const SegmentId *id, uint32 blocks, struct sf_segment *segment)
{
	uint8	   *map = palloc(pc_map_bytes(RELSEG_SIZE));
	uint8	   *maps[SF_LAYERS] = {map};
	uint8	   *raw = palloc(sf_segment_bound(blocks));

	memset(segment, 0, sizeof(*segment));
	segment->tablespace = id->tablespace;
	segment->database = id->database;
	segment->relfilenumber = id->relfilenumber;
	segment->segment = id->segment;
	segment->blocks = blocks;
	segment->fork = (uint8) id->fork;
	memset(map, 0, pc_map_bytes(blocks));
	pc_set_run(map, 0, blocks);
	segment->raw_size = sf_write_segment(segment, maps, raw);
	segment->raw = memcpy(palloc(segment->raw_size), raw, segment->raw_size);
	pfree(map);
	pfree(raw);
}

/* adds all segments of the main fork of a relation that is wanted as a whole */
static void
plan_whole(RestorePlan *plan, const int64 *numbers)
{
	SegmentId id = {(Oid) numbers[0], (Oid) numbers[1], (RelFileNumber) numbers[2], MAIN_FORKNUM,
					0};
	struct sf_segment segment;
	char		path[MAXPGPATH];
	uint32		blocks;
	int			fd;

	/* the path of a shared catalog has no database: any other one would be the same file again */
	if ((id.tablespace == GLOBALTABLESPACE_OID) != (id.database == InvalidOid))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"whole\" does not accept database %u with tablespace %u",
						id.database, id.tablespace),
				 errhint("Specify database 0 for the shared catalogs, which are in tablespace %u, and only for these.",
						 GLOBALTABLESPACE_OID)));
	while ((fd = segment_open(&id, path, &blocks)) >= 0)
	{
		CloseTransientFile(fd);
		if (blocks == 0)
			break;
		whole_segment(&id, blocks, &segment);
		add_segment(plan, &segment, 0);
		id.segment++;
	}
	if (id.segment == 0 && fd < 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("file \"%s\" of option \"whole\" does not exist", path)));
}

static RestorePlan *
new_plan(void)
{
	HASHCTL		ctl = {
		.keysize = sizeof(SegmentId), .entrysize = sizeof(SegmentId), .hcxt = CurrentMemoryContext
	};
	RestorePlan *plan = palloc0(sizeof(RestorePlan));

	plan->room = 64;
	plan->segments = palloc(plan->room * sizeof(struct sf_segment));
	plan->job_segments = palloc(plan->room * sizeof(JobSegment));
	plan->ids = hash_create("residency plan", 1024, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	return plan;
}

RestorePlan *
job_plan(const char *snapshot_name, const JobOptions *options)
{
	RestorePlan *plan = new_plan();
	RestorePlan *whole = new_plan();

	if (snapshot_name == NULL && options->selected)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"segments\" requires a snapshot name")));
	/* a relation wanted as a whole replaces the snapshot's part of it */
	for (int i = 0; i < options->nwhole; i += 3)
		plan_whole(whole, options->whole + i);
	for (int i = 0; i < whole->count; i++)
		hash_search(plan->ids, &whole->job_segments[i].id, HASH_ENTER, NULL);
	if (snapshot_name != NULL)
	{
		ResidencySnapshot *snapshot = snapshot_load(snapshot_name);

		strlcpy(plan->label, snapshot->label, sizeof(plan->label));
		plan_snapshot(plan, snapshot, options);
	}
	for (int i = 0; i < whole->count; i++)
	{
		hash_search(plan->ids, &whole->job_segments[i].id, HASH_REMOVE, NULL);
		add_segment(plan, &whole->segments[i], 0);
	}
	return plan;
}

RestorePlan *
job_plan_merged(const ResidencySnapshot *snapshots, const int *ages, int count)
{
	HASHCTL		ctl = {.keysize = sizeof(SegmentId), .entrysize = sizeof(MergedSegment),
					   .hcxt = CurrentMemoryContext};
	HTAB	   *merged = hash_create("residency merged segments", 1024, &ctl,
									 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	RestorePlan *plan = new_plan();
	HASH_SEQ_STATUS all;
	MergedSegment *m;
	Numbered   *numbered;
	int			n = 0;

	strlcpy(plan->label, snapshots[0].label, sizeof(plan->label));
	for (int i = 0; i < count; i++)
		merge(merged, &snapshots[i], ages[i], i == 0);
	numbered = palloc_extended(Max(hash_get_num_entries(merged), 1) * sizeof(Numbered),
							   MCXT_ALLOC_HUGE);
	hash_seq_init(&all, merged);
	while ((m = hash_seq_search(&all)) != NULL)
		numbered[n++] = (Numbered) {&m->segment, m->number, m->heat};
	qsort(numbered, n, sizeof(Numbered), compare_numbered);
	for (int i = 0; i < n; i++)
		add_segment(plan, numbered[i].segment, numbered[i].number);
	return plan;
}
