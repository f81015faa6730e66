/*
 * local_buffers.c - the local buffers of a session, which hold its temporary relations
 *
 * The server offers SQL nothing to count, write, fill or evict them.  They belong to this session
 * alone, so they are read without locks; no other session may call for them, and parallel workers
 * have none of their own.
 */
#include "pg_residency.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

#include "relations.h"

/* what to do with each block of a relation */
typedef struct Reading
{
	bool		dirty;
	bool		randomize;
	pg_prng_state prng;
} Reading;

/* a function that handles one relation with files, and returns a number of blocks */
typedef int64 (*PartFunction) (Relation rel, Reading *reading);

static void
check_not_parallel(void)
{
	if (IsInParallelMode())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot access local buffers during a parallel operation")));
}

static bool
is_dirty(int i)
{
	compat_buffer_state state = compat_read_buffer_state(GetLocalBufferDescriptor(i));

	return (state & BM_VALID) && (state & BM_DIRTY);
}

static bool
holds_block_of(int i, Relation rel)
{
	BufferDesc *buf = GetLocalBufferDescriptor(i);

	return (compat_read_buffer_state(buf) & BM_TAG_VALID) &&
		compat_tag_relfilenumber(&buf->tag) == compat_relfilenumber(rel) &&
		compat_tag_database(&buf->tag) == compat_database(rel) &&
		compat_tag_tablespace(&buf->tag) == compat_tablespace(rel);
}

PG_FUNCTION_INFO_V1(residency_allocated_local_buffers);
Datum
residency_allocated_local_buffers(PG_FUNCTION_ARGS)
{
	int64		allocated = 0;

	check_not_parallel();
	for (int i = 0; i < NLocBuffer; i++)
	{
		CHECK_FOR_INTERRUPTS();
		allocated += LocalBufferBlockPointers[i] != NULL;
	}
	PG_RETURN_INT64(allocated);
}

PG_FUNCTION_INFO_V1(residency_dirtied_local_buffers);
Datum
residency_dirtied_local_buffers(PG_FUNCTION_ARGS)
{
	int64		dirty = 0;

	check_not_parallel();
	for (int i = 0; i < NLocBuffer; i++)
	{
		CHECK_FOR_INTERRUPTS();
		dirty += is_dirty(i);
	}
	PG_RETURN_INT64(dirty);
}

/* In the order of the buffers, in which the server itself would write them. */
PG_FUNCTION_INFO_V1(residency_flush_local_buffers);
Datum
residency_flush_local_buffers(PG_FUNCTION_ARGS)
{
	int64		written = 0;

	check_not_parallel();
	for (int i = 0; i < NLocBuffer; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!is_dirty(i))
			continue;
		compat_write_local_buffer(i);
		written++;
	}
	PG_RETURN_INT64(written);
}

static void
check_is_ours(Relation rel)
{
	if (!RelationUsesLocalBuffers(rel))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("relation \"%s\" is not temporary", RelationGetRelationName(rel)),
				 errdetail("Only temporary relations are in local buffers.")));
	if (RELATION_IS_OTHER_TEMP(rel))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("relation \"%s\" is a temporary relation of another session", RelationGetRelationName(rel)),
				 errdetail("Its blocks are in the local buffers of that session.")));
}

/*
 * The temporary relations that a call means, by its first argument and `dependents`, the n-th.
 * Requires SELECT.  They are locked until the end of the transaction, as for every reader.
 */
static List *
parts_argument(FunctionCallInfo fcinfo, int n)
{
	Relation	rel;
	List	   *parts;

	check_not_parallel();
	need_argument(fcinfo, 0, "relation");
	need_argument(fcinfo, n, "argument \"dependents\"");
	rel = open_readable_relation(PG_GETARG_OID(0));
	check_has_files(rel, true);
	check_is_ours(rel);
	parts = with_partitions(rel);
	if (PG_GETARG_BOOL(n))
		parts = with_dependents(parts);
	relation_close(rel, NoLock);
	return parts;
}

/* the sum over the relations with files */
static int64
sum_over_parts(List *parts, PartFunction function, Reading *reading)
{
	int64		blocks = 0;
	ListCell   *cell;

	foreach(cell, parts)
	{
		Relation	rel = open_part(lfirst_oid(cell));

		CHECK_FOR_INTERRUPTS();
		if (rel == NULL)
			continue;
		if (RELKIND_HAS_STORAGE(rel->rd_rel->relkind))
		{
			check_is_ours(rel);
			blocks += function(rel, reading);
		}
		relation_close(rel, NoLock);
	}
	return blocks;
}

/* Fisher and Yates' shuffle: every order is equally likely.  It takes 4 bytes a block. */
static BlockNumber *
random_order(BlockNumber blocks, pg_prng_state *prng)
{
	BlockNumber *order =
		MemoryContextAllocHuge(CurrentMemoryContext, (Size) blocks * sizeof(BlockNumber));

	for (BlockNumber i = 0; i < blocks; i++)
	{
		BlockNumber j = (BlockNumber) pg_prng_uint64_range(prng, 0, i);

		CHECK_FOR_INTERRUPTS();
		if (j < i)
			order[i] = order[j];
		order[j] = i;
	}
	return order;
}

static int64
read_part(Relation rel, Reading *reading)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(rel);
	BlockNumber *order = reading->randomize ? random_order(blocks, &reading->prng) : NULL;

	for (BlockNumber i = 0; i < blocks; i++)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = ReadBufferExtended(rel, MAIN_FORKNUM, order ? order[i] : i, RBM_NORMAL, NULL);
		if (reading->dirty)
			MarkBufferDirty(buffer);
		ReleaseBuffer(buffer);
	}
	if (order)
		pfree(order);
	return blocks;
}

/* (relation, randomize, seed, dependents) */
PG_FUNCTION_INFO_V1(residency_read_temp_relation);
Datum
residency_read_temp_relation(PG_FUNCTION_ARGS)
{
	Reading		reading = {0};
	List	   *parts;

	need_argument(fcinfo, 1, "argument \"randomize\"");
	parts = parts_argument(fcinfo, 3);
	reading.randomize = PG_GETARG_BOOL(1);
	if (reading.randomize)
		pg_prng_seed(&reading.prng, PG_ARGISNULL(2) ? pg_prng_uint64(&pg_global_prng_state)
					 : (uint64) PG_GETARG_INT64(2));
	PG_RETURN_INT64(sum_over_parts(parts, read_part, &reading));
}

PG_FUNCTION_INFO_V1(residency_temp_buffers_dirty);
Datum
residency_temp_buffers_dirty(PG_FUNCTION_ARGS)
{
	Reading		reading = {.dirty = true};
	List	   *parts = parts_argument(fcinfo, 1);

	PG_RETURN_INT64(sum_over_parts(parts, read_part, &reading));
}

static int64
check_not_pinned(Relation rel, Reading *reading)
{
	for (int i = 0; i < NLocBuffer; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (LocalRefCount[i] > 0 && holds_block_of(i, rel))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot evict the local buffers of relation \"%s\"", RelationGetRelationName(rel)),
					 errdetail("A cursor or a running query has pinned one of them."),
					 errhint("Close the cursor, or wait until the query ends.")));
	}
	return 0;
}

static int64
evict_part(Relation rel, Reading *reading)
{
	int64		evicted = 0;

	for (int i = 0; i < NLocBuffer; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!holds_block_of(i, rel))
			continue;
		if (is_dirty(i))
			compat_write_local_buffer(i);
		evicted++;
	}
	/* with their changes, if there were any: no interrupt may come in between */
	compat_drop_local_buffers(rel);
	return evicted;
}

PG_FUNCTION_INFO_V1(residency_evict_local_buffers);
Datum
residency_evict_local_buffers(PG_FUNCTION_ARGS)
{
	List	   *parts = parts_argument(fcinfo, 1);

	/* all of them before the first is evicted */
	sum_over_parts(parts, check_not_pinned, NULL);
	PG_RETURN_INT64(sum_over_parts(parts, evict_part, NULL));
}
