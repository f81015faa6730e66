/*
 * segments.c - a relation's files: their paths, and a scan of those of the whole cluster
 */
#include "segments.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "catalog/pg_tablespace_d.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/fd.h"
#include "utils/builtins.h"

#include "kernel/page_cache.h"
#include "pg_residency.h"

/* one file of a database's directory, as its name identifies it */
typedef struct SegmentFile
{
	RelFileNumber relfilenumber;
	ForkNumber	fork;
	uint32		segment;
} SegmentFile;

void
segment_path(const SegmentId *id, char *path)
{
	char		dir[64];
	int			n;

	if (id->tablespace == GLOBALTABLESPACE_OID)
		strcpy(dir, "global");
	else if (id->tablespace == DEFAULTTABLESPACE_OID)
		snprintf(dir, sizeof(dir), "base/%u", id->database);
	else
		snprintf(dir, sizeof(dir), "pg_tblspc/%u/%s/%u", id->tablespace,
				 TABLESPACE_VERSION_DIRECTORY, id->database);
	n = snprintf(path, MAXPGPATH, "%s/%u", dir, id->relfilenumber);
	if (id->fork != MAIN_FORKNUM)
		n += snprintf(path + n, MAXPGPATH - n, "_%s", forkNames[id->fork]);
	if (id->segment > 0)
		snprintf(path + n, MAXPGPATH - n, ".%u", id->segment);
}

/* -1 with errno set when it cannot be opened; anything but a regular file counts as missing */
static int
open_file(const char *path, uint32 *blocks)
{
	/* without O_NONBLOCK a FIFO would block until a writer opens it */
	int			fd = OpenTransientFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);
	struct stat st;
	int			save_errno = ENOENT;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) != 0)
		save_errno = errno;
	else if (S_ISREG(st.st_mode))
	{
		*blocks = (uint32) Min(st.st_size / BLCKSZ, RELSEG_SIZE);
		return fd;
	}
	CloseTransientFile(fd);
	errno = save_errno;
	return -1;
}

int
segment_try_open(const SegmentId *id, char *path, uint32 *blocks)
{
	segment_path(id, path);
	return open_file(path, blocks);
}

int
segment_open(const SegmentId *id, char *path, uint32 *blocks)
{
	int			fd = segment_try_open(id, path, blocks);

	if (fd < 0 && errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", path)));
	return fd;
}

bool
segment_blocks_now(const SegmentId *id, uint32 *blocks)
{
	char		path[MAXPGPATH];
	struct stat st;

	segment_path(id, path);
	if (stat(path, &st) != 0)
		return false;
	*blocks = (uint32) Min(st.st_size / BLCKSZ, RELSEG_SIZE);
	return true;
}

void
report_kernel_error(int rc, const char *message, const char *path)
{
	errno = -rc;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg(message, path),
			 rc == -EPERM ?
			 errdetail("The kernel reports the residency of a file only to the owner of the file.") : 0));
	pg_unreachable();
}

/* digits[_fork][.segment]; temporary relations (t3_16384) and all other names are ignored */
static bool
parse_file_name(const char *name, SegmentFile *file)
{
	const char *p = name;
	char	   *end;
	unsigned long n;

	if (*p < '1' || *p > '9')
		return false;
	errno = 0;
	n = strtoul(p, &end, 10);
	if (errno != 0 || n > PG_UINT32_MAX)
		return false;
	file->relfilenumber = (RelFileNumber) n;
	file->fork = MAIN_FORKNUM;
	file->segment = 0;
	p = end;
	if (*p == '_')
	{
		int			chars = forkname_chars(p + 1, &file->fork);

		if (chars <= 0)
			return false;
		p += 1 + chars;
	}
	if (*p == '.')
	{
		if (p[1] < '1' || p[1] > '9')
			return false;
		n = strtoul(p + 1, &end, 10);
		if (errno != 0 || n > MaxBlockNumber / RELSEG_SIZE)
			return false;
		file->segment = (uint32) n;
		p = end;
	}
	return *p == '\0';
}

/* sorts a relation's files next to each other */
static int
compare_files(const void *a, const void *b)
{
	const SegmentFile *fa = a;
	const SegmentFile *fb = b;

	if (fa->relfilenumber != fb->relfilenumber)
		return fa->relfilenumber < fb->relfilenumber ? -1 : 1;
	if (fa->fork != fb->fork)
		return fa->fork < fb->fork ? -1 : 1;
	return fa->segment < fb->segment ? -1 : (fa->segment > fb->segment);
}

/*
 * Whether cachestat(2) is reliable on the file system of that directory, tested on its PG_VERSION
 * file: the data directory has one, and each database's default directory.  A directory in another
 * tablespace has none and counts as unreliable, unless its device is known.  The result is cached
 * by device.
 */
static bool
cachestat_is_honest(const char *dir, int fd)
{
	static struct
	{
		dev_t		device;
		bool		honest;
	}			known[16];
	static int	nknown = 0;

	char		path[MAXPGPATH];
	struct stat st;
	int			version;
	bool		honest;

	if (fstat(fd, &st) != 0)
		return false;
	for (int i = 0; i < nknown; i++)
		if (known[i].device == st.st_dev)
			return known[i].honest;

	snprintf(path, sizeof(path), "%s/PG_VERSION", strcmp(dir, "global") == 0 ? "." : dir);
	version = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	if (version < 0)
		return false;
	honest = pc_cachestat_is_honest(version);
	CloseTransientFile(version);
	if (nknown < lengthof(known))
	{
		known[nknown].device = st.st_dev;
		known[nknown++].honest = honest;
	}
	return honest;
}

bool
cachestat_is_honest_for(const SegmentId *id, int fd)
{
	char		path[MAXPGPATH];

	segment_path(id, path);
	*strrchr(path, '/') = '\0';
	return cachestat_is_honest(path, fd);
}

bool
segment_is_of_primary(const SegmentId *id)
{
	SegmentId	init = *id;
	char		path[MAXPGPATH];
	uint32		blocks;

	if (!RecoveryInProgress() || id->fork == INIT_FORKNUM)
		return false;
	init.fork = INIT_FORKNUM;
	init.segment = 0;
	segment_path(&init, path);
	return access(path, F_OK) == 0 && !segment_blocks_now(id, &blocks);
}

/* a scan of the cluster's files; its open directory and file are closed after an error */
typedef struct Walk
{
	SegmentVisitor visitor;
	void	   *arg;
	DIR		   *dir;			/* open while a directory is read, */
	int			fd;				/* and the file being visited, or -1 */
	int			skipped;		/* files and directories that could not be read */
	char		example[MAXPGPATH]; /* the first of them, */
	int			error;			/* and its errno */
} Walk;

/* notes a file or directory that cannot be read, with the reason in errno */
static void
note_skipped(Walk *walk, const char *path)
{
	if (walk->skipped++ > 0)
		return;
	walk->error = errno;
	strlcpy(walk->example, path, sizeof(walk->example));
}

/* opens a directory; false when it was dropped meanwhile, or is skipped */
static bool
open_directory(Walk *walk, const char *dir)
{
	walk->dir = AllocateDir(dir);
	if (walk->dir == NULL && errno != ENOENT)
		note_skipped(walk, dir);
	return walk->dir != NULL;
}

/* the relations' files in a directory, sorted */
static SegmentFile *
list_files(Walk *walk, const char *dir, size_t *nfiles)
{
	size_t		room = 1024;
	SegmentFile *files = palloc(room * sizeof(SegmentFile));
	struct dirent *entry;

	*nfiles = 0;
	if (!open_directory(walk, dir))
		return files;
	while ((entry = ReadDir(walk->dir, dir)) != NULL)
	{
		if (*nfiles == room)
			files = repalloc_huge(files, (room *= 2) * sizeof(SegmentFile));
		if (parse_file_name(entry->d_name, &files[*nfiles]))
			(*nfiles)++;
	}
	FreeDir(walk->dir);
	walk->dir = NULL;
	qsort(files, *nfiles, sizeof(SegmentFile), compare_files);
	return files;
}

static void
visit_file(Walk *walk, const char *dir, const SegmentId *id, bool unlogged, int *honest)
{
	char		path[MAXPGPATH];
	uint32		blocks;
	int			rc;

	segment_path(id, path);
	walk->fd = open_file(path, &blocks);
	if (walk->fd < 0)
	{
		if (errno != ENOENT)
			note_skipped(walk, path);
		return;
	}
	if (*honest < 0)
		*honest = cachestat_is_honest(dir, walk->fd);
	rc = walk->visitor(id, path, walk->fd, blocks, *honest > 0, unlogged, walk->arg);
	errno = -rc;
	if (rc == -EPERM || rc == -EACCES)
		note_skipped(walk, path);
	else if (rc != 0)
		report_kernel_error(rc, "could not read the residency of file \"%s\": %m", path);
	CloseTransientFile(walk->fd);
	walk->fd = -1;
}

static void
visit_directory(Walk *walk, const char *dir, Oid tablespace, Oid database)
{
	size_t		nfiles;
	SegmentFile *files = list_files(walk, dir, &nfiles);
	bool		unlogged = false;
	int			honest = -1;	/* not tested yet; a directory is on one file system */

	for (size_t i = 0; i < nfiles; i++)
	{
		SegmentId id = {tablespace, database, files[i].relfilenumber, files[i].fork,
						files[i].segment};

		CHECK_FOR_INTERRUPTS();
		if (i == 0 || files[i].relfilenumber != files[i - 1].relfilenumber)
		{
			unlogged = false;
			for (size_t k = i;
				 k < nfiles && files[k].relfilenumber == id.relfilenumber && !unlogged; k++)
				unlogged = files[k].fork == INIT_FORKNUM;
		}
		visit_file(walk, dir, &id, unlogged, &honest);
	}
	pfree(files);
}

/* the subdirectories whose whole name is an OID */
static List *
list_oids(Walk *walk, const char *dir)
{
	List	   *oids = NIL;
	struct dirent *entry;

	/* another major version's tablespace has no such directory */
	if (!open_directory(walk, dir))
		return NIL;
	while ((entry = ReadDir(walk->dir, dir)) != NULL)
	{
		unsigned long oid;

		/* pg_upgrade and administrators leave names like 16384.bak */
		if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name))
			continue;
		errno = 0;
		oid = strtoul(entry->d_name, NULL, 10);
		if (errno == 0 && oid != InvalidOid && oid <= PG_UINT32_MAX)
			oids = list_append_unique_oid(oids, (Oid) oid);
	}
	FreeDir(walk->dir);
	walk->dir = NULL;
	return oids;
}

/* visits every database directory below `dir`, or that of `database` */
static void
visit_databases(Walk *walk, const char *dir, Oid tablespace, Oid database)
{
	List	   *databases = list_oids(walk, dir);
	ListCell   *cell;

	foreach(cell, databases)
	{
		char		path[MAXPGPATH];

		if (OidIsValid(database) && lfirst_oid(cell) != database)
			continue;
		snprintf(path, sizeof(path), "%s/%u", dir, lfirst_oid(cell));
		visit_directory(walk, path, tablespace, lfirst_oid(cell));
	}
	list_free(databases);
}

static void
visit_all(Walk *walk, Oid database)
{
	List	   *tablespaces;
	ListCell   *cell;

	visit_directory(walk, "global", GLOBALTABLESPACE_OID, InvalidOid);
	visit_databases(walk, "base", DEFAULTTABLESPACE_OID, database);
	tablespaces = list_oids(walk, "pg_tblspc");
	foreach(cell, tablespaces)
	{
		char		path[MAXPGPATH];

		snprintf(path, sizeof(path), "pg_tblspc/%u/%s", lfirst_oid(cell),
				 TABLESPACE_VERSION_DIRECTORY);
		visit_databases(walk, path, lfirst_oid(cell), database);
	}
	list_free(tablespaces);
}

void
visit_segments(Oid database, SegmentVisitor visitor, void *arg)
{
	Walk	   *walk = palloc0(sizeof(Walk));

	walk->visitor = visitor;
	walk->arg = arg;
	walk->fd = -1;
	PG_TRY();
	{
		visit_all(walk, database);
	}
	PG_CATCH();
	{
		/* without a transaction, as in a worker, nothing closes these automatically */
		if (walk->dir != NULL)
			FreeDir(walk->dir);
		if (walk->fd >= 0)
			CloseTransientFile(walk->fd);
		PG_RE_THROW();
	}
	PG_END_TRY();
	errno = walk->error;
	if (walk->skipped > 0)
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg_plural("skipped %d file: could not read \"%s\": %m",
							   "skipped %d files: could not read for example \"%s\": %m",
							   walk->skipped, walk->skipped, walk->example),
				 errhint("If the file belongs to a relation, make the server's user its owner. Otherwise remove the file.")));
	pfree(walk);
}

static int
segment_row(const SegmentId *id, const char *path, int fd, uint32 blocks, bool cachestat,
			bool unlogged, void *arg)
{
	ReturnSetInfo *rsinfo = arg;
	struct pc_count count;
	Datum		values[8];
	bool		nulls[8] = {false};
	int			rc = pc_count(fd, blocks, BLCKSZ, cachestat, &count);

	if (rc != 0)
		return rc;
	values[0] = ObjectIdGetDatum(id->tablespace);
	values[1] = ObjectIdGetDatum(id->database);
	values[2] = ObjectIdGetDatum(id->relfilenumber);
	values[3] = PointerGetDatum(cstring_to_text(forkNames[id->fork]));
	values[4] = Int32GetDatum((int32) id->segment);
	values[5] = Int64GetDatum((int64) count.blocks);
	values[6] = Int64GetDatum((int64) count.resident);
	values[7] = Int64GetDatum(count.dirty);
	nulls[7] = count.dirty < 0;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	pfree(DatumGetPointer(values[3]));
	return 0;
}

PG_FUNCTION_INFO_V1(residency_segments);
Datum
residency_segments(PG_FUNCTION_ARGS)
{
	Oid			database = PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0);

	visit_segments(database, segment_row, result_set(fcinfo, 8));
	return (Datum) 0;
}
