/*
 * shared_buffers.c - the contents of PostgreSQL's own cache
 */
#include "shared_buffers.h"

#include "access/relation.h"
#include "catalog/pg_class_d.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"

#include "kernel/page_cache.h"
#include "pg_residency.h"
#include "relations.h"

/* the blocks of one fork of a relation in shared buffers */
typedef struct ForkBuffers
{
	SegmentId	id;				/* of segment 0: the key */
	int64		blocks;
	int64		dirty;
	int64		in_page_cache;	/* of these, also in the page cache */
} ForkBuffers;

/* one buffer; its block number is relative to its segment */
typedef struct BufferRef
{
	SegmentId	id;
	BlockNumber block;
	int32		usage_count;
	bool		dirty;
} BufferRef;

/*
 * buffers compared with the page cache at a time: this bounds the memory to 32 MiB, whatever
 * shared_buffers is
 */
#define REFS_AT_ONCE (1024 * 1024)

bool
block_in_shared_buffers(const SegmentId *id, BlockNumber block)
{
	BufferTag	tag;
	uint32		hash;
	LWLock	   *lock;
	int			buffer;

	compat_init_tag(&tag, id->tablespace, id->database, id->relfilenumber, id->fork,
					id->segment * (BlockNumber) RELSEG_SIZE + block);
	hash = BufTableHashCode(&tag);
	lock = BufMappingPartitionLock(hash);
	LWLockAcquire(lock, LW_SHARED);
	buffer = BufTableLookup(&tag, hash);
	LWLockRelease(lock);
	return buffer >= 0;
}

/*
 * The block in the i-th buffer; false when it is empty.  As in pg_buffercache, buffers are read one
 * after another, so the result is not consistent across them.
 */
static bool
look_at_buffer(int i, BufferRef *ref)
{
	BufferDesc *buf = GetBufferDescriptor(i);
	compat_buffer_state state;
	BlockNumber block;

	memset(ref, 0, sizeof(*ref));
	/* without the lock the tag could change while it is read */
	state = LockBufHdr(buf);
	ref->id.tablespace = compat_tag_tablespace(&buf->tag);
	ref->id.database = compat_tag_database(&buf->tag);
	ref->id.relfilenumber = compat_tag_relfilenumber(&buf->tag);
	ref->id.fork = compat_tag_fork(&buf->tag);
	block = buf->tag.blockNum;
	compat_unlock_buffer(buf, state);
	if (!(state & BM_VALID) || !(state & BM_TAG_VALID))
		return false;
	ref->id.segment = block / RELSEG_SIZE;
	ref->block = block % RELSEG_SIZE;
	ref->usage_count = (int32) BUF_STATE_GET_USAGECOUNT(state);
	ref->dirty = (state & BM_DIRTY) != 0;
	return true;
}

static int
compare_refs(const void *a, const void *b)
{
	const BufferRef *ra = a;
	const BufferRef *rb = b;
	int			c = memcmp(&ra->id, &rb->id, sizeof(SegmentId));

	return c != 0 ? c : (ra->block > rb->block) - (ra->block < rb->block);
}

static ForkBuffers *
find_fork(HTAB *forks, const SegmentId *id)
{
	SegmentId	key = *id;
	ForkBuffers *entry;
	bool		found;

	key.segment = 0;
	entry = hash_search(forks, &key, HASH_ENTER, &found);
	if (!found)
		entry->blocks = entry->dirty = entry->in_page_cache = 0;
	return entry;
}

/* counts the buffers, all of one segment, that are also in the page cache */
static int64
count_in_page_cache(const BufferRef *refs, int nrefs, uint8 *map)
{
	char		path[MAXPGPATH];
	uint32		blocks;
	int64		both = 0;
	int			fd = segment_open(&refs->id, path, &blocks);
	int			rc;

	if (fd < 0)
		return 0;				/* not yet written, or dropped meanwhile */
	rc = pc_map(fd, blocks, BLCKSZ, map);
	if (rc != 0)
		report_kernel_error(rc, "could not read the residency of file \"%s\": %m", path);
	CloseTransientFile(fd);
	for (int i = 0; i < nrefs; i++)
		both += refs[i].block < blocks && pc_bit(map, refs[i].block);
	return both;
}

static void
compare_with_page_cache(HTAB *forks, BufferRef *refs, int nrefs, uint8 *map)
{
	qsort(refs, nrefs, sizeof(BufferRef), compare_refs);
	for (int from = 0, to; from < nrefs; from = to)
	{
		CHECK_FOR_INTERRUPTS();
		for (to = from + 1;
			 to < nrefs && memcmp(&refs[to].id, &refs[from].id, sizeof(SegmentId)) == 0;)
			to++;
		find_fork(forks, &refs[from].id)->in_page_cache +=
			count_in_page_cache(refs + from, to - from, map);
	}
}

/*
 * The contents of shared buffers, eight bytes for each buffer: the number of the fork, the block
 * and whether it is hot, sorted in this order.
 */
struct BufferSet
{
	HTAB	   *forks;			/* SegmentId of segment 0 -> number */
	uint64	   *buffers;
	int			nbuffers;
};

typedef struct NumberedFork
{
	SegmentId	id;
	uint32		number;
} NumberedFork;

/* the clock sweep decrements the count on each pass, a use increments it, to at most 5 */
#define HOT_USAGE_COUNT 3

#define PACK(number, block, hot) (((uint64) (number) << 33) | ((uint64) (block) << 1) | (hot))

static int
compare_packed(const void *a, const void *b)
{
	uint64		pa = *(const uint64 *) a;
	uint64		pb = *(const uint64 *) b;

	return (pa > pb) - (pa < pb);
}

BufferSet *
collect_shared_buffers(void)
{
	HASHCTL ctl = {.keysize = sizeof(SegmentId),
				   .entrysize = sizeof(NumberedFork),
				   .hcxt = CurrentMemoryContext};
	BufferSet  *set = palloc0(sizeof(BufferSet));
	uint32		nforks = 0;

	set->forks = hash_create("residency forks", 1024, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	set->buffers = palloc_extended(NBuffers * sizeof(uint64), MCXT_ALLOC_HUGE);
	for (int i = 0; i < NBuffers; i++)
	{
		NumberedFork *fork;
		BufferRef	ref;
		SegmentId	key;
		bool		found;

		if (i % 16384 == 0)
			CHECK_FOR_INTERRUPTS();
		if (!look_at_buffer(i, &ref))
			continue;
		key = ref.id;
		key.segment = 0;
		fork = hash_search(set->forks, &key, HASH_ENTER, &found);
		if (!found)
			fork->number = nforks++;
		set->buffers[set->nbuffers++] =
			PACK(fork->number, ref.id.segment * (BlockNumber) RELSEG_SIZE + ref.block,
				 ref.usage_count >= HOT_USAGE_COUNT);
	}
	qsort(set->buffers, set->nbuffers, sizeof(uint64), compare_packed);
	return set;
}

bool
buffers_of_segment(const BufferSet *set, const SegmentId *id, uint32 blocks, uint8 *cool,
				   uint8 *hot)
{
	BlockNumber first = id->segment * (BlockNumber) RELSEG_SIZE;
	NumberedFork *fork;
	SegmentId	key = *id;
	uint64		from;
	int			low = 0;
	int			high = set->nbuffers;

	key.segment = 0;
	fork = hash_search(set->forks, &key, HASH_FIND, NULL);
	if (fork == NULL)
		return false;
	from = PACK(fork->number, first, 0);
	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (set->buffers[middle] < from)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == set->nbuffers || set->buffers[low] >= PACK(fork->number, (uint64) first + blocks, 0))
		return false;
	memset(cool, 0, pc_map_bytes(blocks));
	memset(hot, 0, pc_map_bytes(blocks));
	for (; low < set->nbuffers &&
		   set->buffers[low] < PACK(fork->number, (uint64) first + blocks, 0);
		 low++)
		pc_set(set->buffers[low] & 1 ? hot : cool, (uint32) (set->buffers[low] >> 1) - first);
	return true;
}

PG_FUNCTION_INFO_V1(residency_shared_buffers);
Datum
residency_shared_buffers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo;
	bool		both = !PG_ARGISNULL(0) && PG_GETARG_BOOL(0);
	HASHCTL ctl = {.keysize = sizeof(SegmentId),
				   .entrysize = sizeof(ForkBuffers),
				   .hcxt = CurrentMemoryContext};
	HTAB	   *forks;
	HASH_SEQ_STATUS all;
	ForkBuffers *entry;
	BufferRef  *refs;
	uint8	   *map;
	int			nrefs = 0;

	rsinfo = result_set(fcinfo, 7);
	forks = hash_create("residency shared buffers", 1024, &ctl,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	refs = palloc_extended((both ? Min(NBuffers, REFS_AT_ONCE) : 1) * sizeof(BufferRef),
						   MCXT_ALLOC_HUGE);
	map = palloc(pc_map_bytes(RELSEG_SIZE));
	for (int i = 0; i < NBuffers; i++)
	{
		BufferRef  *ref = &refs[nrefs];

		if (i % 16384 == 0)
			CHECK_FOR_INTERRUPTS();
		if (!look_at_buffer(i, ref))
			continue;
		entry = find_fork(forks, &ref->id);
		entry->blocks++;
		entry->dirty += ref->dirty;
		if (both && ++nrefs == REFS_AT_ONCE)
		{
			compare_with_page_cache(forks, refs, nrefs, map);
			nrefs = 0;
		}
	}
	compare_with_page_cache(forks, refs, nrefs, map);

	hash_seq_init(&all, forks);
	while ((entry = hash_seq_search(&all)) != NULL)
	{
		Datum		values[7];
		bool		nulls[7] = {false};

		values[0] = ObjectIdGetDatum(entry->id.tablespace);
		values[1] = ObjectIdGetDatum(entry->id.database);
		values[2] = ObjectIdGetDatum(entry->id.relfilenumber);
		values[3] = CStringGetTextDatum(forkNames[entry->id.fork]);
		values[4] = Int64GetDatum(entry->blocks);
		values[5] = Int64GetDatum(entry->dirty);
		values[6] = Int64GetDatum(entry->in_page_cache);
		nulls[6] = !both;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	hash_destroy(forks);
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(residency_buffers);
Datum
residency_buffers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo;
	SegmentId	wanted;
	Relation	rel;

	need_argument(fcinfo, 0, "relation");
	rel = open_relation(PG_GETARG_OID(0));
	if (!RELKIND_HAS_STORAGE(rel->rd_rel->relkind) || RelationUsesLocalBuffers(rel))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("relation \"%s\" does not use shared buffers", RelationGetRelationName(rel)),
				 errhint("Specify a table, materialized view, index or sequence that is not temporary.")));
	wanted = (SegmentId){compat_tablespace(rel), compat_database(rel), compat_relfilenumber(rel),
						 0, 0};
	relation_close(rel, AccessShareLock);

	rsinfo = result_set(fcinfo, 4);
	for (int i = 0; i < NBuffers; i++)
	{
		BufferRef	ref;
		Datum		values[4];
		bool		nulls[4] = {false};

		if (i % 16384 == 0)
			CHECK_FOR_INTERRUPTS();
		if (!look_at_buffer(i, &ref) || ref.id.tablespace != wanted.tablespace ||
			ref.id.database != wanted.database || ref.id.relfilenumber != wanted.relfilenumber)
			continue;
		values[0] = CStringGetTextDatum(forkNames[ref.id.fork]);
		values[1] = Int64GetDatum((int64) ref.id.segment * RELSEG_SIZE + ref.block);
		values[2] = BoolGetDatum(ref.dirty);
		values[3] = Int32GetDatum(ref.usage_count);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
