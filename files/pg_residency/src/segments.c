/*
 * segments.c - a relation's files: their paths, and a walk over those of the whole cluster
 */
#include "pg_residency.h"

#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_tablespace_d.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/builtins.h"

/* one file of a database's directory, by its name alone */
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
		snprintf(dir, sizeof(dir), "pg_tblspc/%u/%s/%u", id->tablespace, TABLESPACE_VERSION_DIRECTORY, id->database);
	n = snprintf(path, MAXPGPATH, "%s/%u", dir, id->relfilenumber);
	if (id->fork != MAIN_FORKNUM)
		n += snprintf(path + n, MAXPGPATH - n, "_%s", forkNames[id->fork]);
	if (id->segment > 0)
		snprintf(path + n, MAXPGPATH - n, ".%u", id->segment);
}

/*
 * Opens a segment's file.  -1 when there is none; any other failure is an error, for it must never pass for the end of
 * a relation.  `blocks` is what the file holds now.
 */
int
segment_open(const SegmentId *id, char *path, uint32 *blocks)
{
	struct stat st;
	int			fd;

	segment_path(id, path);
	fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	if (fd < 0)
	{
		if (errno == ENOENT)
			return -1;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", path)));
	}
	if (fstat(fd, &st) != 0)
	{
		int			save_errno = errno;

		/* a job survives this error, and there is no transaction to close the file */
		CloseTransientFile(fd);
		errno = save_errno;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not stat file \"%s\": %m", path)));
	}
	*blocks = (uint32) Min(st.st_size / BLCKSZ, RELSEG_SIZE);
	return fd;
}

/* rc is a negative errno of the kernel layer */
void
report_kernel_error(int rc, const char *action, const char *path)
{
	errno = -rc;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not %s file \"%s\": %m", action, path),
			 rc == -EPERM ? errhint("The server does not own this file, so the kernel does not tell what is cached of it.") : 0));
	pg_unreachable();
}

/* digits[_fork][.segment]; temporary relations (t3_16384) and everything else are not ours */
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
		if (errno != 0 || n > PG_UINT32_MAX)
			return false;
		file->segment = (uint32) n;
		p = end;
	}
	return *p == '\0';
}

/* a relation's files beside each other */
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
 * Whether cachestat(2) tells the truth on the file system of that directory, asked of its PG_VERSION file; every
 * directory that holds a database has one, and the data directory itself.  Remembered by device.
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
segment_is_unlogged(const SegmentId *id)
{
	SegmentId	init = *id;
	char		path[MAXPGPATH];

	init.fork = INIT_FORKNUM;
	init.segment = 0;
	segment_path(&init, path);
	return access(path, F_OK) == 0;
}

static void
visit_directory(const char *dir, Oid tablespace, Oid database, SegmentVisitor visitor, void *arg)
{
	SegmentFile *files;
	size_t		nfiles = 0;
	size_t		room = 1024;
	DIR		   *d = AllocateDir(dir);
	struct dirent *entry;
	bool		unlogged = false;
	int			honest = -1;	/* not asked yet; a directory is on one file system */

	if (d == NULL && errno == ENOENT)
		return;					/* dropped meanwhile */
	files = palloc(room * sizeof(SegmentFile));
	while ((entry = ReadDir(d, dir)) != NULL)
	{
		if (nfiles == room)
			files = repalloc_huge(files, (room *= 2) * sizeof(SegmentFile));
		if (parse_file_name(entry->d_name, &files[nfiles]))
			nfiles++;
	}
	FreeDir(d);
	qsort(files, nfiles, sizeof(SegmentFile), compare_files);

	for (size_t i = 0; i < nfiles; i++)
	{
		SegmentId	id = {tablespace, database, files[i].relfilenumber, files[i].fork, files[i].segment};
		char		path[MAXPGPATH];
		uint32		blocks;
		int			fd;

		CHECK_FOR_INTERRUPTS();
		if (i == 0 || files[i].relfilenumber != files[i - 1].relfilenumber)
		{
			unlogged = false;
			for (size_t k = i; k < nfiles && files[k].relfilenumber == id.relfilenumber && !unlogged; k++)
				unlogged = files[k].fork == INIT_FORKNUM;
		}

		fd = segment_open(&id, path, &blocks);
		if (fd < 0)
			continue;
		if (honest < 0)
			honest = cachestat_is_honest(dir, fd);
		visitor(&id, path, fd, blocks, honest > 0, unlogged, arg);
		CloseTransientFile(fd);
	}
	pfree(files);
}

/* every database directory below that one */
static void
visit_databases(const char *dir, Oid tablespace, Oid database, SegmentVisitor visitor, void *arg)
{
	DIR		   *d = AllocateDir(dir);
	struct dirent *entry;

	if (d == NULL && errno == ENOENT)
		return;					/* another major version's tablespace directory, or dropped */
	while ((entry = ReadDir(d, dir)) != NULL)
	{
		char		path[MAXPGPATH];
		Oid			oid = (Oid) strtoul(entry->d_name, NULL, 10);

		if (oid == InvalidOid || strspn(entry->d_name, "0123456789") != strlen(entry->d_name))
			continue;
		if (OidIsValid(database) && oid != database)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		visit_directory(path, tablespace, oid, visitor, arg);
	}
	FreeDir(d);
}

/*
 * Visits each segment file of the cluster, or of one database and the shared catalogs.  Temporary relations are left
 * out.  What is dropped during the walk is not there.
 */
void
visit_segments(Oid database, SegmentVisitor visitor, void *arg)
{
	DIR		   *d;
	struct dirent *entry;

	visit_directory("global", GLOBALTABLESPACE_OID, InvalidOid, visitor, arg);
	visit_databases("base", DEFAULTTABLESPACE_OID, database, visitor, arg);
	d = AllocateDir("pg_tblspc");
	while ((entry = ReadDir(d, "pg_tblspc")) != NULL)
	{
		char		path[MAXPGPATH];
		Oid			oid = (Oid) strtoul(entry->d_name, NULL, 10);

		if (oid == InvalidOid)
			continue;
		snprintf(path, sizeof(path), "pg_tblspc/%u/%s", oid, TABLESPACE_VERSION_DIRECTORY);
		visit_databases(path, oid, database, visitor, arg);
	}
	FreeDir(d);
}

static void
segment_row(const SegmentId *id, const char *path, int fd, uint32 blocks, bool cachestat, bool unlogged, void *arg)
{
	ReturnSetInfo *rsinfo = arg;
	struct pc_count count;
	Datum		values[8];
	bool		nulls[8] = {false};
	int			rc = pc_count(fd, blocks, BLCKSZ, cachestat, &count);

	if (rc != 0)
		report_kernel_error(rc, "look at the pages of", path);
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
}

PG_FUNCTION_INFO_V1(residency_segments);
Datum
residency_segments(PG_FUNCTION_ARGS)
{
	Oid			database = PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0);

	visit_segments(database, segment_row, result_set(fcinfo, 8));
	return (Datum) 0;
}
