/*
 * shared_buffers.c - what PostgreSQL's own cache holds
 */
#include "pg_residency.h"

#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"

typedef struct ForkBuffers
{
	SegmentId	id;				/* of segment 0: the key */
	int64		blocks;
	int64		dirty;
} ForkBuffers;

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

PG_FUNCTION_INFO_V1(residency_shared_buffers);
Datum
residency_shared_buffers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	HASHCTL		ctl = {.keysize = sizeof(SegmentId), .entrysize = sizeof(ForkBuffers), .hcxt = CurrentMemoryContext};
	HTAB	   *forks;
	HASH_SEQ_STATUS all;
	ForkBuffers *entry;

	InitMaterializedSRF(fcinfo, 0);
	forks = hash_create("residency shared buffers", 1024, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	for (int i = 0; i < NBuffers; i++)
	{
		BufferDesc *buf = GetBufferDescriptor(i);
		compat_buffer_state state;
		SegmentId	id;
		bool		found;

		if (i % 16384 == 0)
			CHECK_FOR_INTERRUPTS();
		memset(&id, 0, sizeof(id));
		/* the lock keeps the tag together; like pg_buffercache we see each buffer at its own moment */
		state = LockBufHdr(buf);
		id.tablespace = compat_tag_tablespace(&buf->tag);
		id.database = compat_tag_database(&buf->tag);
		id.relfilenumber = compat_tag_relfilenumber(&buf->tag);
		id.fork = compat_tag_fork(&buf->tag);
		compat_unlock_buffer(buf, state);
		if (!(state & BM_VALID) || !(state & BM_TAG_VALID))
			continue;
		entry = hash_search(forks, &id, HASH_ENTER, &found);
		if (!found)
			entry->blocks = entry->dirty = 0;
		entry->blocks++;
		if (state & BM_DIRTY)
			entry->dirty++;
	}

	hash_seq_init(&all, forks);
	while ((entry = hash_seq_search(&all)) != NULL)
	{
		Datum		values[6];
		bool		nulls[6] = {false};

		values[0] = ObjectIdGetDatum(entry->id.tablespace);
		values[1] = ObjectIdGetDatum(entry->id.database);
		values[2] = ObjectIdGetDatum(entry->id.relfilenumber);
		values[3] = PointerGetDatum(cstring_to_text(forkNames[entry->id.fork]));
		values[4] = Int64GetDatum(entry->blocks);
		values[5] = Int64GetDatum(entry->dirty);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	hash_destroy(forks);
	return (Datum) 0;
}
