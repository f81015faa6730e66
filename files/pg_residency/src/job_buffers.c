/*
 * job_buffers.c - the last stage of a job that fills shared buffers too
 */
#include "job_buffers.h"

#include "storage/fd.h"

#include "buffer_worker.h"
#include "job_lanes.h"
#include "kernel/page_cache.h"
#include "shared_buffers.h"

/* milliseconds to wait for a background worker slot */
#define SLOT_PATIENCE 10000

/* the databases with blocks to restore in shared buffers, InvalidOid for the shared catalogs */
static List *
databases_of(const Run *run)
{
	List	   *databases = NIL;

	for (int i = 0; i < run->job.segments; i++)
		if (segment_has_buffers(&run->plan[i]))
			databases = list_append_unique_oid(databases, run->plan[i].database);
	return databases;
}

/* keeps only the blocks that are in shared buffers now in the map; returns their number */
static int64
keep_resident_buffers(const struct sf_segment *segment, uint8 *buffers)
{
	SegmentId	id = segment_id_of(segment);

	for (uint32 b = pc_next(buffers, segment->blocks, 0, true); b < segment->blocks;
		 b = pc_next(buffers, segment->blocks, b + 1, true))
		if (!block_in_shared_buffers(&id, b))
			pc_clear(buffers, b);
	return (int64) pc_popcount(buffers, segment->blocks);
}

/* maps the segment's blocks that the snapshot has in shared buffers; palloc'd */
static uint8 *
wanted_buffers(const struct sf_segment *segment)
{
	uint8	   *buffers = palloc(pc_map_bytes(segment->blocks));
	uint8	   *layer = palloc(pc_map_bytes(segment->blocks));

	sf_read_layer(segment, SF_BUFFERS_HOT, buffers);
	sf_read_layer(segment, SF_BUFFERS_COOL, layer);
	for (size_t i = 0; i < pc_map_bytes(segment->blocks); i++)
		buffers[i] |= layer[i];
	pfree(layer);
	return buffers;
}

/* counts the segment's wanted buffers, and those already in shared buffers; returns the latter */
static int64
count_buffers_before(Run *run, const struct sf_segment *segment)
{
	uint8	   *buffers = wanted_buffers(segment);
	int64		before;

	run->job.buffers_wanted += (int64) pc_popcount(buffers, segment->blocks);
	before = keep_resident_buffers(segment, buffers);
	run->job.buffers_before += before;
	pfree(buffers);
	return before;
}

/*
 * Blocks that were in shared buffers only, when the snapshot was taken, passed through the page
 * cache to get there: so those that the job has loaded are evicted from the page cache.
 */
static void
drop_passed_through(const struct sf_segment *segment, const uint8 *loaded, uint8 *buffers)
{
	SegmentId	id = segment_id_of(segment);
	uint8	   *layer = palloc(pc_map_bytes(segment->blocks));
	char		path[MAXPGPATH];
	uint32		blocks;
	int			fd;

	sf_read_layer(segment, SF_PAGE_CACHE, layer);
	for (size_t i = 0; i < pc_map_bytes(segment->blocks); i++)
		buffers[i] &= loaded[i] & (uint8) ~layer[i];
	if (pc_popcount(buffers, segment->blocks) > 0 && (fd = segment_open(&id, path, &blocks)) >= 0)
	{
		pc_evict_blocks(fd, buffers, Min(blocks, segment->blocks), BLCKSZ);
		CloseTransientFile(fd);
	}
	pfree(layer);
}

/* `left`: the database's buffers were skipped, so they do not count as wanted */
static void
count_buffers_after(Run *run, int n, int64 before, bool left)
{
	const struct sf_segment *planned = &run->plan[n];
	JobSegment	segment;
	uint8	   *buffers = wanted_buffers(planned);

	job_read_segment(run->fd, &run->job, n, &segment);
	if (left)
	{
		run->job.buffers_wanted -= (int64) pc_popcount(buffers, planned->blocks);
		run->job.buffers_before -= before;
		(void) keep_resident_buffers(planned, buffers);
	}
	else
		run->job.buffers_resident += keep_resident_buffers(planned, buffers);
	if (run->loaded[n] != NULL)
		drop_passed_through(planned, run->loaded[n], buffers);
	/* copying to shared buffers has displaced buffers and evicted pages: count again */
	if (segment.outcome.wanted > 0)
		restore_again(run, n, &segment);
	pfree(buffers);
}

/* whether none of the database's files exists any more */
static bool
database_is_gone(const Run *run, Oid database)
{
	for (int i = 0; i < run->job.segments; i++)
	{
		SegmentId	id = segment_id_of(&run->plan[i]);
		uint32		blocks;

		if (id.database == database && segment_blocks_now(&id, &blocks))
			return false;
	}
	return true;
}

/*
 * Loads blocks again that the kernel has reclaimed since, because the worker only copies from the
 * page cache.
 */
static void
stage_again(Run *run, Oid database, bool with_shared)
{
	for (int i = 0; i < run->job.segments && !run_must_end(run); i++)
	{
		Oid			here = run->plan[i].database;
		JobSegment	segment;

		if (!segment_has_buffers(&run->plan[i]) ||
			!(here == database || (with_shared && here == InvalidOid)))
			continue;
		job_read_segment(run->fd, &run->job, i, &segment);
		if (segment.outcome.wanted > 0)
			restore_again(run, i, &segment);
	}
}

/* runs a worker for each database; returns the databases that were skipped */
static List *
fill_databases(Run *run)
{
	List	   *databases = databases_of(run);
	bool		shared = list_member_oid(databases, InvalidOid);
	List	   *left = NIL;
	int			patience = SLOT_PATIENCE;
	ListCell   *cell;

	databases = list_delete_oid(databases, InvalidOid);
	if (shared && databases == NIL)
		databases = list_make1_oid(buffer_worker_default_database());
	foreach(cell, databases)
	{
		Oid			database = lfirst_oid(cell);
		bool		is_template = false;
		const char *problem;

		stage_again(run, database, shared);
		if (run_must_end(run))
			break;
		problem = buffer_worker_run(run->job.job, database, shared, patience, run->control.wait,
									run, &is_template);
		/* the next database will not find a free slot either */
		if (problem != NULL && strcmp(problem, NO_SLOT) == 0)
			patience = 0;
		if (is_template)
			left = lappend_oid(left, database);
		if (problem == NULL)
			shared = false;
		else if (run->job.message[0] == '\0' && !database_is_gone(run, database))
			snprintf(run->job.message, sizeof(run->job.message),
					 "could not restore the shared buffers of database %u: %s", database, problem);
	}
	return left;
}

void
restore_buffers(Run *run)
{
	int64	   *before = palloc0(Max(run->job.segments, 1) * sizeof(int64));
	List	   *left;

	for (int i = 0; i < run->job.segments && !run_must_end(run); i++)
		if (segment_has_buffers(&run->plan[i]))
			before[i] = count_buffers_before(run, &run->plan[i]);
	left = fill_databases(run);
	for (int i = 0; i < run->job.segments && !run_must_end(run); i++)
		if (segment_has_buffers(&run->plan[i]))
			count_buffers_after(run, i, before[i], list_member_oid(left, run->plan[i].database));
	pfree(before);
}
