/*
 * compat.h - the differences between PostgreSQL's major versions, and the only place for them
 */
#ifndef RESIDENCY_COMPAT_H
#define RESIDENCY_COMPAT_H

#include "postgres.h"

/* up to 18 other headers include these three */
#include "access/htup_details.h"
#include "storage/lock.h"
#include "utils/tuplestore.h"

#include "common/relpath.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgwriter.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/smgr.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/relmapper.h"
#include "utils/resowner.h"
#if PG_VERSION_NUM >= 160000
#include "utils/relfilenumbermap.h"
#else
#include "utils/relfilenodemap.h"
#endif
#if PG_VERSION_NUM >= 170000
#include "utils/wait_event.h"
#endif

#if PG_VERSION_NUM < 150000
#error "pg_residency needs PostgreSQL 15 or newer"
#endif

/* 16 renamed RelFileNode to RelFileLocator */
#if PG_VERSION_NUM < 160000
typedef Oid RelFileNumber;
#define compat_tablespace(rel) ((rel)->rd_node.spcNode)
#define compat_database(rel) ((rel)->rd_node.dbNode)
#define compat_relfilenumber(rel) ((rel)->rd_node.relNode)
#define compat_tag_tablespace(tag) ((tag)->rnode.spcNode)
#define compat_tag_database(tag) ((tag)->rnode.dbNode)
#define compat_tag_relfilenumber(tag) ((tag)->rnode.relNode)
#define compat_tag_fork(tag) ((tag)->forkNum)
#define compat_relid_by_relfilenumber(tablespace, relfilenumber)                                 \
	RelidByRelfilenode(tablespace, relfilenumber)
#define compat_map_to_relfilenumber(oid, shared) RelationMapOidToFilenode(oid, shared)
#else
#define compat_tablespace(rel) ((rel)->rd_locator.spcOid)
#define compat_database(rel) ((rel)->rd_locator.dbOid)
#define compat_relfilenumber(rel) ((rel)->rd_locator.relNumber)
#define compat_tag_tablespace(tag) ((tag)->spcOid)
#define compat_tag_database(tag) ((tag)->dbOid)
#define compat_tag_relfilenumber(tag) ((tag)->relNumber)
#define compat_tag_fork(tag) (BufTagGetForkNum(tag))
#define compat_relid_by_relfilenumber(tablespace, relfilenumber)                                 \
	RelidByRelfilenumber(tablespace, relfilenumber)
#define compat_map_to_relfilenumber(oid, shared) RelationMapOidToFilenumber(oid, shared)
#endif

/*
 * from 17 on transaction_timeout applies to workers too, and the owner of a database may set it
 * there
 */
static inline void
compat_no_transaction_timeout(void)
{
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_USERSET, PGC_S_OVERRIDE);
#endif
}

static inline void
compat_init_tag(BufferTag *tag, Oid tablespace, Oid database,
				RelFileNumber relfilenumber, ForkNumber fork,
				BlockNumber block)
{
#if PG_VERSION_NUM < 160000
	RelFileNode node = {tablespace, database, relfilenumber};

	INIT_BUFFERTAG(*tag, node, fork, block);
#else
	RelFileLocator locator = {tablespace, database, relfilenumber};

	InitBufferTag(tag, &locator, fork, block);
#endif
}

/*
 * The path of a fork's first segment; of a temporary relation, with the number of its session.
 * From 18 on relpath() returns a struct by value, so no pointer to it may be kept.
 */
static inline char *
compat_relation_path(Relation rel, ForkNumber fork)
{
#if PG_VERSION_NUM >= 180000
	return pstrdup(relpathbackend(rel->rd_locator, rel->rd_backend, fork).str);
#elif PG_VERSION_NUM >= 160000
	return relpathbackend(rel->rd_locator, rel->rd_backend, fork);
#else
	return relpathbackend(rel->rd_node, rel->rd_backend, fork);
#endif
}

/* 19 made the state of a buffer 64 bits wide, and its unlocking another function */
#if PG_VERSION_NUM >= 190000
typedef uint64 compat_buffer_state;
#define compat_read_buffer_state(buf) pg_atomic_read_u64(&(buf)->state)
#define compat_unlock_buffer(buf, state) UnlockBufHdr(buf)
#else
typedef uint32 compat_buffer_state;
#define compat_read_buffer_state(buf) pg_atomic_read_u32(&(buf)->state)
#define compat_unlock_buffer(buf, state) UnlockBufHdr(buf, state)
#endif

/*
 * 19 removed the list of unused buffers.  So this looks for one, in the order in which the clock
 * sweep takes them.  A buffer found unused remains so until a process needs one, so no buffer is
 * examined twice.
 */
#if PG_VERSION_NUM >= 190000
static inline bool
compat_have_free_buffer(void)
{
	static int	next = 0;

	while (next < NBuffers &&
		   (pg_atomic_read_u64(&GetBufferDescriptor(next)->state) & BM_TAG_VALID))
		next++;
	return next < NBuffers;
}
#else
#define compat_have_free_buffer() have_free_buffer()
#endif

/*
 * Writes a dirty local buffer, and counts that as the server does when it needs the buffer for
 * another block.  18 exports the function for it.
 */
static inline void
compat_write_local_buffer(int i)
{
	BufferDesc *buf = GetLocalBufferDescriptor(i);
#if PG_VERSION_NUM >= 180000

	ResourceOwnerEnlarge(CurrentResourceOwner);
	PinLocalBuffer(buf, false);
	FlushLocalBuffer(buf, NULL);
	UnpinLocalBuffer(BufferDescriptorGetBuffer(buf));
#else
	char	   *page = (char *) LocalBufferBlockPointers[i];
	BlockNumber block = buf->tag.blockNum;
	SMgrRelation file;
#if PG_VERSION_NUM >= 160000
	instr_time	start;
#endif

#if PG_VERSION_NUM >= 170000
	file = smgropen(BufTagGetRelFileLocator(&buf->tag), MyProcNumber);
#elif PG_VERSION_NUM >= 160000
	file = smgropen(BufTagGetRelFileLocator(&buf->tag), MyBackendId);
#else
	file = smgropen(buf->tag.rnode, MyBackendId);
#endif
	PageSetChecksumInplace((Page) page, block);
#if PG_VERSION_NUM >= 170000
	start = pgstat_prepare_io_time(track_io_timing);
#elif PG_VERSION_NUM >= 160000
	start = pgstat_prepare_io_time();
#endif
	smgrwrite(file, compat_tag_fork(&buf->tag), block, page, false);
#if PG_VERSION_NUM >= 160000
	pgstat_count_io_op_time(IOOBJECT_TEMP_RELATION, IOCONTEXT_NORMAL, IOOP_WRITE, start, 1);
#endif
	pg_atomic_unlocked_write_u32(&buf->state,
								 compat_read_buffer_state(buf) & ~(BM_DIRTY | BM_JUST_DIRTIED));
	pgBufferUsage.local_blks_written++;
#endif
}

/* The local buffers of all forks of a relation, without writing them. */
static inline void
compat_drop_local_buffers(Relation rel)
{
#if PG_VERSION_NUM >= 160000
	DropRelationAllLocalBuffers(rel->rd_locator);
#else
	DropRelFileNodeAllLocalBuffers(rel->rd_node);
#endif
}

/* 19 renamed CHECKPOINT_IMMEDIATE to CHECKPOINT_FAST */
#ifndef CHECKPOINT_FAST
#define CHECKPOINT_FAST CHECKPOINT_IMMEDIATE
#endif

/* from 17 on an extension's wait events have names of their own */
static inline uint32
compat_wait_event(const char *name)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	(void) name;
	return PG_WAIT_EXTENSION;
#endif
}

#endif
