/*
 * snapshot.c - snapshots: taking, listing, reading and dropping them
 *
 * A snapshot is a file pg_residency/<name>@<generation>.snapshot in the data directory.
 */
#include "pg_residency.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "common/cryptohash.h"
#include "common/file_perm.h"
#include "common/sha2.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define SUFFIX ".snapshot"
#define NAMES_SUFFIX ".names"
#define LOCK_PATH RESIDENCY_TEMP_PREFIX ".lock"

/* written out when that much has come together */
#define WRITE_BYTES (256 * 1024)

/* far more than any cluster's, and little enough to be read whole */
#define LARGEST_FILE ((off_t) 4 * 1024 * 1024 * 1024)

typedef struct Generation
{
	char		name[SF_NAME_BYTES];
	int			generation;
} Generation;

typedef struct Writer
{
	struct sf_header header;
	int			fd;
	const char *path;
	StringInfoData buffer;
	BufferSet  *buffers;		/* what shared buffers held when it began */
	uint8	   *maps[SF_LAYERS];	/* room for a segment's */
} Writer;

/* The argument as a C string; NULL is an error that names it. */
char *
text_argument(FunctionCallInfo fcinfo, int n, const char *what)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
	return text_to_cstring(PG_GETARG_TEXT_PP(n));
}

void
make_residency_dir(void)
{
	if (MakePGDirectory(RESIDENCY_DIR) != 0 && errno != EEXIST)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create directory \"%s\": %m", RESIDENCY_DIR)));
}

static int
open_lock_file(int flags)
{
	int			fd = BasicOpenFile(LOCK_PATH, flags | PG_BINARY);

	if (fd < 0 && !(errno == ENOENT && !(flags & O_CREAT)))
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", LOCK_PATH)));
	return fd;
}

/*
 * Takes a lock and notes the tag beside it.  The descriptor, which holds the lock until it is closed or the process
 * ends; -1 when somebody else has it.  (The lock belongs to the open file, not to the process: looking at it from here
 * meanwhile does not give it up.)
 */
int
residency_lock(ResidencyLock which, int32 tag)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = which * sizeof(tag), .l_len = sizeof(tag)};
	int			fd;

	make_residency_dir();
	fd = open_lock_file(O_RDWR | O_CREAT);
	if (fcntl(fd, F_OFD_SETLK, &lock) == 0 && pg_pwrite(fd, &tag, sizeof(tag), lock.l_start) == sizeof(tag))
		return fd;
	if (errno != EAGAIN && errno != EACCES)
	{
		int			save_errno = errno;

		close(fd);
		errno = save_errno;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not lock file \"%s\": %m", LOCK_PATH)));
	}
	close(fd);
	return -1;
}

/* whether somebody has the lock with that tag */
bool
residency_is_locked(ResidencyLock which, int32 tag)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = which * sizeof(tag), .l_len = sizeof(tag)};
	int			fd = open_lock_file(O_RDWR);
	int32		found = 0;
	bool		locked;

	if (fd < 0)
		return false;
	locked = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK &&
		pg_pread(fd, &found, sizeof(found), which * sizeof(tag)) == sizeof(found) && found == tag;
	close(fd);
	return locked;
}

/* [A-Za-z0-9][A-Za-z0-9_.-]{0,62}, so that no name can leave the folder or hide in it */
static bool
name_is_valid(const char *name, size_t n)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";

	return n > 0 && n < SF_NAME_BYTES && strspn(name, allowed) >= n && strchr("_.-", name[0]) == NULL;
}

/* splits "name" or "name@3"; the generation is 0 when none is named */
static void
parse_name(const char *text, Generation *g, bool generation_allowed)
{
	size_t		n = strcspn(text, "@");
	char	   *end = NULL;
	long		generation = 0;

	if (text[n] == '@')
		generation = strtol(text + n + 1, &end, 10);
	if (!name_is_valid(text, n) ||
		(end != NULL && (!generation_allowed || *end != '\0' || generation < 1 || generation > PG_INT32_MAX)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("\"%s\" is no name for a snapshot", text),
				 errhint("A name has 1 to 63 letters, digits, \"_\", \".\" or \"-\" and begins with a letter or digit%s.",
						 generation_allowed ? "; \"name@3\" means its generation 3" : "")));
	memcpy(g->name, text, n);
	g->name[n] = '\0';
	g->generation = (int) generation;
}

static int
compare_generations(const void *a, const void *b)
{
	const Generation *ga = a;
	const Generation *gb = b;
	int			c = strcmp(ga->name, gb->name);

	return c != 0 ? c : (ga->generation > gb->generation) - (ga->generation < gb->generation);
}

/* every snapshot file here, by name and generation */
static Generation *
list_generations(int *count)
{
	Generation *list = palloc(64 * sizeof(Generation));
	int			room = 64;
	DIR		   *d = AllocateDir(RESIDENCY_DIR);
	struct dirent *entry;

	*count = 0;
	if (d == NULL && errno == ENOENT)
		return list;
	while ((entry = ReadDir(d, RESIDENCY_DIR)) != NULL)
	{
		const char *at = strchr(entry->d_name, '@');
		char	   *end;
		long		generation;

		if (at == NULL || !name_is_valid(entry->d_name, at - entry->d_name))
			continue;
		generation = strtol(at + 1, &end, 10);
		if (strcmp(end, SUFFIX) != 0 || generation < 1 || generation > PG_INT32_MAX)
			continue;
		if (*count == room)
			list = repalloc(list, (room *= 2) * sizeof(Generation));
		strlcpy(list[*count].name, entry->d_name, at - entry->d_name + 1);
		list[(*count)++].generation = (int) generation;
	}
	FreeDir(d);
	qsort(list, *count, sizeof(Generation), compare_generations);
	return list;
}

static char *
generation_path(const Generation *g)
{
	return psprintf("%s/%s@%d%s", RESIDENCY_DIR, g->name, g->generation, SUFFIX);
}

/* beside it: what its relations were called, which only who is connected to their databases could tell */
static char *
names_path(const Generation *g)
{
	return psprintf("%s/%s@%d%s", RESIDENCY_DIR, g->name, g->generation, NAMES_SUFFIX);
}

static void
report_unknown(const char *name)
{
	int			count;
	Generation *list = list_generations(&count);
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < count; i++)
		if (i == 0 || strcmp(list[i].name, list[i - 1].name) != 0)
			appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", list[i].name);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("there is no snapshot \"%s\"", name),
			 names.len > 0 ? errhint("Those here are: %s.", names.data) :
			 errhint("There is none at all here; residency_snapshot() takes one.")));
}

/* the generation that "name" or "name@3" means; 0 when there is none of that name */
static Generation
find_generation(const char *name)
{
	Generation	g;
	Generation *list;
	int			count;

	parse_name(name, &g, true);
	if (g.generation > 0)
		return g;
	list = list_generations(&count);
	for (int i = 0; i < count; i++)
		if (strcmp(list[i].name, g.name) == 0)
			g.generation = list[i].generation;
	pfree(list);
	return g;
}

/* the whole file; NULL when it is not there */
static uint8 *
read_file(const char *path, size_t *size)
{
	struct stat st;
	uint8	   *data;
	int			fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);

	if (fd < 0)
	{
		if (errno == ENOENT)
			return NULL;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", path)));
	}
	if (fstat(fd, &st) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not stat file \"%s\": %m", path)));
	if (st.st_size > LARGEST_FILE)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is too large for a snapshot", path)));
	data = palloc_extended(Max(st.st_size, 1), MCXT_ALLOC_HUGE);
	for (*size = 0; *size < (size_t) st.st_size;)
	{
		ssize_t		n = read(fd, data + *size, st.st_size - *size);

		if (n < 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", path)));
		if (n == 0)
			break;
		*size += n;
		CHECK_FOR_INTERRUPTS();
	}
	CloseTransientFile(fd);
	return data;
}

/* what keeps a readable snapshot from being used here; NULL when nothing does */
static char *
foreign_reason(const struct sf_header *header)
{
	if (header->system_identifier != GetSystemIdentifier())
		return psprintf("it is of another cluster: its system identifier is " UINT64_FORMAT ", this one's " UINT64_FORMAT,
						header->system_identifier, GetSystemIdentifier());
	if (header->block_size != BLCKSZ || header->segment_blocks != RELSEG_SIZE)
		return pstrdup("it is of a server with other block or segment sizes");
	return NULL;
}

/*
 * Reads a snapshot, whole and checked; an error when there is none, or it is damaged, or another cluster's.
 */
ResidencySnapshot *
snapshot_load(const char *name)
{
	ResidencySnapshot *snapshot = palloc0(sizeof(ResidencySnapshot));
	Generation	g = find_generation(name);
	const char *wrong;

	snapshot->data = g.generation > 0 ? read_file(generation_path(&g), &snapshot->size) : NULL;
	if (snapshot->data == NULL)
		report_unknown(name);
	snprintf(snapshot->label, sizeof(snapshot->label), "%s@%d", g.name, g.generation);
	wrong = sf_check(snapshot->data, snapshot->size, &snapshot->header);
	if (wrong != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("snapshot \"%s\" is damaged: %s", snapshot->label, wrong),
				 errhint("Remove it with residency_drop_snapshot('%s') and take a new one.", snapshot->label)));
	wrong = foreign_reason(&snapshot->header);
	if (wrong != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("snapshot \"%s\" cannot be used here: %s", snapshot->label, wrong),
				 errhint("Take a snapshot on this cluster, or copy one from a physical replica of it.")));
	return snapshot;
}

/* all of the snapshot's segments, the first being number 1 */
struct sf_segment *
snapshot_segments(const ResidencySnapshot *snapshot)
{
	struct sf_segment *segments;
	size_t		at = 0;

	segments = palloc_extended(Max(snapshot->header.segments, 1) * sizeof(struct sf_segment), MCXT_ALLOC_HUGE);
	for (uint32 i = 0; i < snapshot->header.segments; i++)
		sf_next_segment(snapshot->data, &snapshot->header, &at, &segments[i]);
	return segments;
}

SegmentId
snapshot_segment_id(const struct sf_segment *segment)
{
	SegmentId	id = {segment->tablespace, segment->database, segment->relfilenumber, (ForkNumber) segment->fork,
	segment->segment};

	return id;
}

static void
write_out(Writer *w)
{
	errno = 0;
	if (write(w->fd, w->buffer.data, w->buffer.len) != w->buffer.len)
	{
		if (errno == 0)
			errno = ENOSPC;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", w->path)));
	}
	resetStringInfo(&w->buffer);
}

/* which blocks the page cache holds; false when it holds none */
static bool
map_page_cache(const char *path, int fd, uint32 blocks, bool cachestat, uint8 *map)
{
	uint64		resident;
	int			rc = pc_survey(fd, blocks, BLCKSZ, cachestat ? PC_CACHESTAT : PC_MINCORE, map, &resident);

	if (rc != 0)
		report_kernel_error(rc, "look at the pages of", path);
	return resident > 0;
}

static void
snapshot_segment(const SegmentId *id, const char *path, int fd, uint32 blocks, bool cachestat, bool unlogged, void *arg)
{
	Writer	   *w = arg;
	struct sf_segment segment = {
		.tablespace = id->tablespace, .database = id->database, .relfilenumber = id->relfilenumber,
		.segment = id->segment, .blocks = blocks, .fork = (uint8) id->fork
	};
	uint8	   *maps[SF_LAYERS] = {NULL};
	size_t		n;

	/* a standby does not have what an unlogged relation holds: only its init fork is replicated */
	if (unlogged && id->fork != INIT_FORKNUM && RecoveryInProgress())
		return;
	w->header.blocks += blocks;
	if (blocks == 0)
		return;
	if (map_page_cache(path, fd, blocks, cachestat, w->maps[SF_PAGE_CACHE]))
		maps[SF_PAGE_CACHE] = w->maps[SF_PAGE_CACHE];
	if (buffers_of_segment(w->buffers, id, blocks, w->maps[SF_BUFFERS_COOL], w->maps[SF_BUFFERS_HOT]))
	{
		maps[SF_BUFFERS_COOL] = w->maps[SF_BUFFERS_COOL];
		maps[SF_BUFFERS_HOT] = w->maps[SF_BUFFERS_HOT];
	}

	enlargeStringInfo(&w->buffer, (int) sf_segment_bound(blocks));
	n = sf_write_segment(&segment, maps, (uint8 *) w->buffer.data + w->buffer.len);
	if (n == 0)
		return;
	w->header.body_crc = sf_crc32c(w->header.body_crc, w->buffer.data + w->buffer.len, n);
	w->buffer.len += (int) n;
	w->header.body_size += n;
	w->header.segments++;
	w->header.wanted += segment.wanted;
	w->header.in_page_cache += segment.layers[SF_PAGE_CACHE].blocks;
	w->header.in_shared_buffers += segment.layers[SF_BUFFERS_COOL].blocks + segment.layers[SF_BUFFERS_HOT].blocks;
	w->header.in_both = w->header.in_page_cache + w->header.in_shared_buffers - w->header.wanted;
	if (w->buffer.len >= WRITE_BYTES)
		write_out(w);
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

/* a file no longer wanted; one that is gone already is no error */
static bool
remove_file(const char *path)
{
	if (unlink(path) == 0)
		return true;
	if (errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", path)));
	return false;
}

static bool
remove_generation(const Generation *g)
{
	remove_file(names_path(g));
	return remove_file(generation_path(g));
}

/* a writer that was killed leaves its file behind; under the lock nobody else writes one */
static void
remove_unfinished(void)
{
	DIR		   *d = AllocateDir(RESIDENCY_DIR);
	struct dirent *entry;

	while ((entry = ReadDir(d, RESIDENCY_DIR)) != NULL)
		if (strncmp(entry->d_name, "pgsql_tmp.snapshot.", strlen("pgsql_tmp.snapshot.")) == 0)
			unlink(psprintf("%s/%s", RESIDENCY_DIR, entry->d_name));
	FreeDir(d);
}

static int
lock_snapshots(void)
{
	int			lock = residency_lock(LOCK_SNAPSHOT, 0);

	if (lock < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another session is writing or dropping a snapshot"),
				 errhint("Try again when it has finished.")));
	return lock;
}

/* takes the snapshot into the file at that path, which is complete and synced afterwards */
static void
write_snapshot(const char *path, const Generation *g)
{
	Writer		w = {.path = path};
	uint8		header[SF_HEADER_BYTES] = {0};

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
	sf_write_header(&w.header, header);
	if (pg_pwrite(w.fd, header, SF_HEADER_BYTES, 0) != SF_HEADER_BYTES)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", path)));
	if (CloseTransientFile(w.fd) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not close file \"%s\": %m", path)));
}

static char *
sha256_hex(const uint8 *data, size_t size)
{
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	char	   *hex = palloc(2 * sizeof(digest) + 1);

	if (ctx == NULL || pg_cryptohash_init(ctx) < 0 || pg_cryptohash_update(ctx, data, size) < 0 ||
		pg_cryptohash_final(ctx, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not compute a SHA-256 digest");
	pg_cryptohash_free(ctx);
	for (size_t i = 0; i < sizeof(digest); i++)
		sprintf(hex + 2 * i, "%02x", digest[i]);
	return hex;
}

#define SNAPSHOT_COLUMNS 17

/* one row of residency_snapshots(); false when the file is gone */
static bool
snapshot_values(const Generation *g, Datum *values, bool *nulls)
{
	struct sf_header header;
	size_t		size;
	uint8	   *data = read_file(generation_path(g), &size);
	const char *wrong;
	const char *problem;

	if (data == NULL)
		return false;
	memset(nulls, true, SNAPSHOT_COLUMNS * sizeof(bool));
	nulls[0] = nulls[1] = nulls[14] = nulls[15] = false;
	values[0] = CStringGetTextDatum(g->name);
	values[1] = Int32GetDatum(g->generation);
	values[14] = Int64GetDatum((int64) size);
	values[15] = CStringGetTextDatum(sha256_hex(data, size));
	wrong = sf_check(data, size, &header);
	problem = wrong != NULL ? psprintf("it is damaged: %s", wrong) : foreign_reason(&header);
	if (wrong == NULL)
	{
		memset(nulls, false, SNAPSHOT_COLUMNS * sizeof(bool));
		values[2] = TimestampTzGetDatum(header.taken_at -
										(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY);
		values[3] = CStringGetTextDatum(header.origin);
		values[4] = BoolGetDatum((header.flags & SF_FLAG_IN_RECOVERY) != 0);
		values[5] = Int64GetDatum((int64) header.system_identifier);
		values[6] = Int32GetDatum((int32) header.timeline);
		values[7] = Int32GetDatum((int32) header.server_version);
		values[8] = Int32GetDatum((int32) header.segments);
		values[9] = Int64GetDatum((int64) header.blocks);
		values[10] = Int64GetDatum((int64) header.wanted);
		values[11] = Int64GetDatum((int64) header.in_page_cache);
		values[12] = Int64GetDatum((int64) header.in_shared_buffers);
		values[13] = Int64GetDatum((int64) header.in_both);
	}
	nulls[16] = problem == NULL;
	if (problem != NULL)
		values[16] = CStringGetTextDatum(problem);
	pfree(data);
	return true;
}

PG_FUNCTION_INFO_V1(residency_snapshot);
Datum
residency_snapshot(PG_FUNCTION_ARGS)
{
	char	   *name = text_argument(fcinfo, 0, "the snapshot's name");
	int			keep = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1);
	TupleDesc	tupdesc;
	Datum		values[SNAPSHOT_COLUMNS];
	bool		nulls[SNAPSHOT_COLUMNS];
	Generation	g;
	Generation *list;
	char		path[MAXPGPATH];
	int			count;
	int			lock;

	if (keep < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("at least 1 generation of a snapshot must be kept")));
	tupdesc = result_row(fcinfo, SNAPSHOT_COLUMNS);
	parse_name(name, &g, false);
	snprintf(path, sizeof(path), "%s.snapshot.%d", RESIDENCY_TEMP_PREFIX, MyProcPid);

	lock = lock_snapshots();
	PG_TRY();
	{
		remove_unfinished();
		list = list_generations(&count);
		for (int i = 0; i < count; i++)
			if (strcmp(list[i].name, g.name) == 0)
				g.generation = list[i].generation;
		g.generation++;
		write_snapshot(path, &g);
		durable_rename(path, generation_path(&g), ERROR);
		for (int i = 0; i < count; i++)
			if (strcmp(list[i].name, g.name) == 0 && list[i].generation <= g.generation - keep)
				remove_generation(&list[i]);
		if (!snapshot_values(&g, values, nulls))
			elog(ERROR, "snapshot \"%s\" vanished while it was taken", g.name);
	}
	PG_CATCH();
	{
		unlink(path);
		close(lock);
		PG_RE_THROW();
	}
	PG_END_TRY();
	close(lock);
	return HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls));
}

PG_FUNCTION_INFO_V1(residency_snapshots);
Datum
residency_snapshots(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo;
	int			count;
	Generation *list;

	rsinfo = result_set(fcinfo, SNAPSHOT_COLUMNS);
	list = list_generations(&count);
	for (int i = 0; i < count; i++)
	{
		Datum		values[SNAPSHOT_COLUMNS];
		bool		nulls[SNAPSHOT_COLUMNS];

		CHECK_FOR_INTERRUPTS();
		if (snapshot_values(&list[i], values, nulls))
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(residency_snapshot_segments);
Datum
residency_snapshot_segments(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo;
	ResidencySnapshot *snapshot = snapshot_load(text_argument(fcinfo, 0, "the snapshot's name"));
	struct sf_segment segment;
	size_t		at = 0;

	rsinfo = result_set(fcinfo, 11);
	for (int no = 1; sf_next_segment(snapshot->data, &snapshot->header, &at, &segment); no++)
	{
		SegmentOutcome outcome;
		Datum		values[11];
		bool		nulls[11] = {false};

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
		values[8] = Int64GetDatum(segment.layers[SF_BUFFERS_COOL].blocks + (int64) segment.layers[SF_BUFFERS_HOT].blocks);
		values[9] = Int64GetDatum(outcome.resident);
		values[10] = Int64GetDatum(outcome.gone);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

PG_FUNCTION_INFO_V1(residency_drop_snapshot);
Datum
residency_drop_snapshot(PG_FUNCTION_ARGS)
{
	char	   *name = text_argument(fcinfo, 0, "the snapshot's name");
	Generation	g;
	Generation *list;
	int			count;
	int			removed = 0;
	int			lock;

	parse_name(name, &g, true);
	lock = lock_snapshots();
	PG_TRY();
	{
		list = list_generations(&count);
		for (int i = 0; i < count; i++)
			if (strcmp(list[i].name, g.name) == 0 && (g.generation == 0 || g.generation == list[i].generation))
				removed += remove_generation(&list[i]);
	}
	PG_FINALLY();
	{
		close(lock);
	}
	PG_END_TRY();
	if (removed == 0)
		report_unknown(name);
	PG_RETURN_INT32(removed);
}

PG_FUNCTION_INFO_V1(residency_set_names);
Datum
residency_set_names(PG_FUNCTION_ARGS)
{
	Generation	g = find_generation(text_argument(fcinfo, 0, "the snapshot's name"));
	char	   *names = text_argument(fcinfo, 1, "the names");
	char		temporary[MAXPGPATH];
	size_t		length = strlen(names);
	int			lock;
	int			fd;

	if (g.generation == 0 || access(generation_path(&g), F_OK) != 0)
		report_unknown(text_argument(fcinfo, 0, ""));
	snprintf(temporary, sizeof(temporary), "%s.snapshot.%d", RESIDENCY_TEMP_PREFIX, MyProcPid);
	lock = lock_snapshots();
	PG_TRY();
	{
		fd = OpenTransientFile(temporary, O_RDWR | O_CREAT | O_TRUNC | PG_BINARY);
		errno = 0;
		if (fd < 0 || write(fd, names, length) != (ssize_t) length || CloseTransientFile(fd) != 0)
		{
			if (errno == 0)
				errno = ENOSPC;
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not write file \"%s\": %m", temporary)));
		}
		durable_rename(temporary, names_path(&g), ERROR);
	}
	PG_CATCH();
	{
		unlink(temporary);
		close(lock);
		PG_RE_THROW();
	}
	PG_END_TRY();
	close(lock);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(residency_names);
Datum
residency_names(PG_FUNCTION_ARGS)
{
	char	   *name = text_argument(fcinfo, 0, "the snapshot's name");
	Generation	g = find_generation(name);
	size_t		size;
	uint8	   *data;

	if (g.generation == 0 || access(generation_path(&g), F_OK) != 0)
		report_unknown(name);
	data = read_file(names_path(&g), &size);
	if (data == NULL)
		PG_RETURN_NULL();
	/* text passes through the encoding of a database; the file is whatever somebody left there */
	pg_verify_mbstr(GetDatabaseEncoding(), (char *) data, (int) size, false);
	PG_RETURN_TEXT_P(cstring_to_text_with_len((char *) data, (int) size));
}
