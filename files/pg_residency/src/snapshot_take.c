/*
 * snapshot_take.c - takes and drops snapshots, and decides which generations stay
 */
#include "snapshot_take.h"

#include <time.h>
#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/fd.h"

#include "directory.h"
#include "kernel/page_cache.h"
#include "segments.h"
#include "shared_buffers.h"
#include "snapshot.h"

/*
 * A snapshot that lacks less than 1/50 of another's blocks counts as equally full, because a count
 * of resident pages is not exact.
 */
#define AS_FULL 50

/* bytes collected before a write */
#define WRITE_BYTES (256 * 1024)

/* milliseconds to wait for LOCK_SNAPSHOT */
#define PATIENCE 10000

typedef struct Writer
{
	struct sf_header header;
	int			fd;
	const char *path;
	StringInfoData buffer;
	BufferSet  *buffers;		/* the contents of shared buffers at the beginning */
	uint8	   *maps[SF_LAYERS];	/* space for the maps of a segment */
	enum pc_trust trust;
} Writer;

/* --- what is known of the generations of a name --- */

typedef struct Known
{
	Generation	id;
	bool		usable;			/* usable in this cluster: the header is valid */
	struct sf_header header;
} Known;

/*
 * The generations of a name, the newest first.  An unreadable one is an error: it could be the
 * fullest, so without it no generation can be judged or removed.
 */
static Known *
know_generations(const char *name, const Generation *list, int count, int *n)
{
	Known	   *known = palloc(Max(count, 1) * sizeof(Known));

	*n = 0;
	for (int i = count - 1; i >= 0; i--)
	{
		ResidencySnapshot snapshot;

		if (strcmp(list[i].name, name) != 0 || !snapshot_read(&list[i], &snapshot))
			continue;
		if (snapshot.unknown)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("cannot compare with snapshot \"%s\": %s", snapshot.label,
								   snapshot.problem),
							errhint("Make the file readable by the server's user, or remove it.")));
		known[(*n)++] = (Known) {list[i], snapshot.problem == NULL, snapshot.header};
		pfree(snapshot.data);
	}
	return known;
}

/* the last forced generation, as recorded in that one and in later ones; 0: none */
static uint32
measured_from(const Known *known, int n)
{
	uint32		from = 0;

	for (int i = 0; i < n; i++)
		if (known[i].usable)
			from = Max(from, known[i].header.measured_from);
	return from;
}

/* wanted blocks of a snapshot whose files still exist */
static uint64
blocks_that_exist(const Generation *g)
{
	ResidencySnapshot snapshot;
	struct sf_segment segment;
	uint64		blocks = 0;
	uint8	   *map = NULL;
	size_t		at = 0;

	if (!snapshot_read(g, &snapshot) || snapshot.problem != NULL)
		return 0;
	while (sf_next_segment(snapshot.data, &snapshot.header, &at, &segment))
	{
		SegmentId	id = segment_id_of(&segment);
		uint32		now;

		CHECK_FOR_INTERRUPTS();
		if (!segment_blocks_now(&id, &now))
			continue;
		if (now >= segment.blocks)
			blocks += segment.wanted;
		else if (now > 0)
		{
			if (map == NULL)
				map = palloc(pc_map_bytes(RELSEG_SIZE));
			if (sf_read_map(&segment, map) == NULL)
				blocks += pc_popcount(map, now);
		}
	}
	if (map != NULL)
		pfree(map);
	pfree(snapshot.data);
	return blocks;
}

static int
compare_wanted(const void *a, const void *b)
{
	const Known *ka = a;
	const Known *kb = b;

	return (ka->header.wanted < kb->header.wanted) - (ka->header.wanted > kb->header.wanted);
}

/*
 * The number of blocks of the fullest generation, counting existing files only, or 0, and its
 * number.  A generation whose total is not larger than the best so far is not examined.
 */
static uint64
fullest(const Known *known, int n, int *generation)
{
	uint32		from = measured_from(known, n);
	Known	   *sorted = memcpy(palloc(Max(n, 1) * sizeof(Known)), known, n * sizeof(Known));
	uint64		most = 0;

	*generation = 0;
	qsort(sorted, n, sizeof(Known), compare_wanted);
	for (int i = 0; i < n; i++)
	{
		uint64		blocks;

		if (!sorted[i].usable || (uint32) sorted[i].id.generation < from ||
			sorted[i].header.wanted <= most)
			continue;
		blocks = blocks_that_exist(&sorted[i].id);
		if (blocks > most)
		{
			most = blocks;
			*generation = sorted[i].id.generation;
		}
	}
	pfree(sorted);
	return most;
}

/* --- taking --- */

static void
write_out(Writer *w)
{
	errno = 0;
	if (write(w->fd, w->buffer.data, w->buffer.len) != w->buffer.len)
		report_write_error(w->path);
	resetStringInfo(&w->buffer);
}

static int
snapshot_segment(const SegmentId *id, const char *path, int fd, uint32 blocks, bool cachestat,
				 bool unlogged, void *arg)
{
	Writer	   *w = arg;
	struct sf_segment segment = {
		.tablespace = id->tablespace, .database = id->database, .relfilenumber = id->relfilenumber,
		.segment = id->segment, .blocks = blocks, .fork = (uint8) id->fork
	};
	uint8	   *maps[SF_LAYERS] = {NULL};
	uint64		resident;
	size_t		n;
	int			rc;

	/* a standby has no data of unlogged relations: only their init forks are replicated */
	if (unlogged && id->fork != INIT_FORKNUM && RecoveryInProgress())
		return 0;
	if (blocks == 0)
		return 0;
	rc = pc_survey(fd, blocks, BLCKSZ, cachestat ? w->trust : PC_MINCORE, w->maps[SF_PAGE_CACHE],
				   &resident);
	if (rc != 0)
		return rc;
	w->header.blocks += blocks;
	if (resident > 0)
		maps[SF_PAGE_CACHE] = w->maps[SF_PAGE_CACHE];
	if (buffers_of_segment(w->buffers, id, blocks, w->maps[SF_BUFFERS_COOL],
						   w->maps[SF_BUFFERS_HOT]))
	{
		maps[SF_BUFFERS_COOL] = w->maps[SF_BUFFERS_COOL];
		maps[SF_BUFFERS_HOT] = w->maps[SF_BUFFERS_HOT];
	}

	enlargeStringInfo(&w->buffer, (int) sf_segment_bound(blocks));
	n = sf_write_segment(&segment, maps, (uint8 *) w->buffer.data + w->buffer.len);
	if (n == 0)
		return 0;
	w->header.body_crc = sf_crc32c(w->header.body_crc, w->buffer.data + w->buffer.len, n);
	w->buffer.len += (int) n;
	w->header.body_size += n;
	w->header.segments++;
	w->header.wanted += segment.wanted;
	w->header.in_page_cache += segment.layers[SF_PAGE_CACHE].blocks;
	w->header.in_shared_buffers +=
		segment.layers[SF_BUFFERS_COOL].blocks + segment.layers[SF_BUFFERS_HOT].blocks;
	w->header.in_both = w->header.in_page_cache + w->header.in_shared_buffers - w->header.wanted;
	if (w->buffer.len >= WRITE_BYTES)
		write_out(w);
	return 0;
}

static void
fill_header(struct sf_header *header, const Generation *g)
{
	struct timespec now;
	TimeLineID	timeline;

	clock_gettime(CLOCK_REALTIME, &now);
	header->system_identifier = GetSystemIdentifier();
	header->server_version = PG_VERSION_NUM;
	header->block_size = BLCKSZ;
	header->segment_blocks = RELSEG_SIZE;
	header->page_size = (uint32) pc_page_size();
	header->taken_at = (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
	header->generation = (uint32) g->generation;
	strlcpy(header->name, g->name, SF_NAME_BYTES);
	if (gethostname(header->origin, SF_ORIGIN_BYTES - 1) != 0)
		strlcpy(header->origin, "unknown", SF_ORIGIN_BYTES);
	if (RecoveryInProgress())
	{
		header->flags |= SF_FLAG_IN_RECOVERY;
		GetXLogReplayRecPtr(&timeline);
	}
	else
		timeline = GetWALInsertionTimeLine();
	header->timeline = timeline;
}

/* Writes the header, whose counts are known only now, and closes the file. */
static void
finish_file(Writer *w)
{
	uint8		header[SF_HEADER_BYTES];

	sf_write_header(&w->header, header);
	errno = 0;
	if (pg_pwrite(w->fd, header, SF_HEADER_BYTES, 0) != SF_HEADER_BYTES)
		report_write_error(w->path);
	errno = 0;
	if (CloseTransientFile(w->fd) != 0)
		report_write_error(w->path);
}

/*
 * Removes earlier generations.  Besides the new one, `keep` full and `keep` thin ones stay, the new
 * one included in its kind, and in any case the measure.  Unusable generations are removed once
 * enough newer full ones stay.
 */
static void
remove_old(bool thin, int keep, int measure, const Known *known, int n)
{
	int			full_left = thin ? keep : keep - 1;
	int			thin_left = thin ? keep - 1 : keep;

	for (int i = 0; i < n; i++)
	{
		bool		is_thin = (known[i].header.flags & SF_FLAG_THIN) != 0;

		if (!known[i].usable)
		{
			if (full_left == 0)
				generation_remove(&known[i].id);
		}
		else if (is_thin ? thin_left > 0 : full_left > 0)
		{
			thin_left -= is_thin;
			full_left -= !is_thin;
		}
		else if (known[i].id.generation != measure)
			generation_remove(&known[i].id);
	}
}

static struct sf_header
take(Generation *g, int keep, bool force, NamesScope scope, const char *path, const char *names)
{
	int			count;
	Generation *list = list_generations(&count);
	Known	   *known;
	const Generation *former = NULL;
	int			n;
	int			measure = 0;
	/*
	 * For whoever asks for a snapshot, a block that is still being read, or whose read failed, is
	 * not saved; for the worker, which saves every few minutes, a quarter of the CPU time counts.
	 */
	Writer		w = {.path = path,
					 .trust = IsTransactionState() ? PC_CACHESTAT_COLD : PC_CACHESTAT};
	uint8		header[SF_HEADER_BYTES] = {0};

	known = know_generations(g->name, list, count, &n);
	g->generation = next_generation(g->name, list, count);
	for (int l = 0; l < SF_LAYERS; l++)
		w.maps[l] = palloc(pc_map_bytes(RELSEG_SIZE));
	w.buffers = collect_shared_buffers();
	initStringInfo(&w.buffer);
	w.fd = OpenTransientFile(path, O_RDWR | O_CREAT | O_EXCL | PG_BINARY);
	if (w.fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", path)));
	fill_header(&w.header, g);
	appendBinaryStringInfo(&w.buffer, (char *) header, SF_HEADER_BYTES);
	visit_segments(InvalidOid, snapshot_segment, &w);
	write_out(&w);

	w.header.measured_from = force ? (uint32) g->generation : measured_from(known, n);
	if (force)
		w.header.flags |= SF_FLAG_FORCED;
	else
	{
		w.header.measure = fullest(known, n, &measure);
		if (w.header.wanted < w.header.measure / 2)
			w.header.flags |= SF_FLAG_THIN;
		/* The fullest generation stays, however many are newer, until the new one is as full. */
		if (w.header.wanted >= w.header.measure - w.header.measure / AS_FULL)
			measure = 0;
	}
	finish_file(&w);

	/* names first, so that every existing snapshot has its names */
	for (int i = 0; i < n && former == NULL; i++)
		if (known[i].usable)
			former = &known[i].id;
	names_take(former, scope);
	durable_rename(names, names_path(g), ERROR);
	durable_rename(path, snapshot_path(g), ERROR);
	remove_old((w.header.flags & SF_FLAG_THIN) != 0, keep, measure, known, n);
	return w.header;
}

/* takes LOCK_SNAPSHOT; returns its descriptor */
static int
lock_snapshots(void)
{
	int			lock = residency_lock(LOCK_SNAPSHOT, 0, PATIENCE);

	if (lock < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another session is writing or dropping a snapshot"),
				 errhint("Try again when that session has finished.")));
	return lock;
}

struct sf_header
snapshot_take(const char *name, int keep, bool force, NamesScope scope)
{
	const char *path = temporary_snapshot_path(MyProcPid);
	const char *names = temporary_names_path(MyProcPid);
	struct sf_header header;
	Generation	g;
	int			lock;

	parse_name(name, &g, false);
	if (keep < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"keep\" must be at least 1")));
	lock = lock_snapshots();
	PG_TRY();
	{
		/* A killed writer leaves its files.  Under the lock no other process writes any. */
		remove_files_beginning("pgsql_tmp.snapshot.");
		remove_orphaned_names();
		header = take(&g, keep, force, scope, path, names);
	}
	PG_CATCH();
	{
		unlink(path);
		unlink(names);
		residency_unlock(lock);
		PG_RE_THROW();
	}
	PG_END_TRY();
	residency_unlock(lock);
	return header;
}

int
snapshot_drop(const char *name)
{
	Generation	g;
	Generation	highest;
	Generation *list;
	int			count;
	int			removed = 0;
	int			lock;

	parse_name(name, &g, true);
	lock = lock_snapshots();
	PG_TRY();
	{
		list = list_generations(&count);
		for (int i = count - 1; i >= 0; i--)
		{
			if (strcmp(list[i].name, g.name) != 0 ||
				(g.generation != 0 && g.generation != list[i].generation))
				continue;
			if (generation_remove(&list[i]) && removed++ == 0)
				highest = list[i];
		}
		/* afterwards, because the files may have filled the disk */
		if (removed > 0)
			remember_dropped(&highest);
	}
	PG_FINALLY();
	{
		residency_unlock(lock);
	}
	PG_END_TRY();
	return removed;
}
