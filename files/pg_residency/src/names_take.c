/*
 * names_take.c - writes the names file of a snapshot that is being taken
 */
#include "names_take.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"

#include "compat.h"
#include "directory.h"
#include "interrupts.h"
#include "names_gather.h"

/* the argument of a worker that writes the names of the asker's snapshot */
typedef struct SnapshotTask
{
	int32		asker;
	NamesScope	scope;
	Generation	former;			/* without a number: none */
} SnapshotTask;

PGDLLEXPORT void pg_residency_snapshot_names_main(Datum unused);

/*
 * The databases of the snapshot that the process `writer` is taking, InvalidOid for the shared
 * catalogs; adds its files to `files`.
 */
static List *
snapshot_databases(int writer, HTAB *files)
{
	const char *path = temporary_snapshot_path(writer);
	List	   *databases = NIL;
	struct sf_header header;
	struct sf_segment segment;
	uint8	   *data;
	size_t		size;
	size_t		at = 0;

	data = (uint8 *) read_whole_file(path, &size);
	if (data == NULL || sf_read_header(data, size, &header) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("could not use file \"%s\": it was removed or changed", path)));
	while (sf_next_segment(data, &header, &at, &segment))
	{
		FileOf		key = {segment.database, segment.relfilenumber};
		FileOf	   *file;
		bool		found;

		databases = list_append_unique_oid(databases, segment.database);
		file = hash_search(files, &key, HASH_ENTER, &found);
		if (!found)
			file->named = false;
	}
	pfree(data);
	return databases;
}

/*
 * The databases that have a file without a name in the earlier snapshot.  One that could not be
 * read then is not among them.
 */
static List *
databases_to_ask(const Gathering *g)
{
	List	   *databases = NIL;
	HASH_SEQ_STATUS all;
	FileOf	   *file;

	for (int i = 0; i < g->former->count; i++)
	{
		const NamedRelation *r = &g->former->list[i];
		FileOf		key = {r->database, r->relfilenumber};

		if (r->kind != KIND_DATABASE && (file = hash_search(g->files, &key, HASH_FIND, NULL)))
			file->named = true;
	}
	hash_seq_init(&all, g->files);
	while ((file = hash_seq_search(&all)) != NULL)
	{
		/* the entry of the database itself has no tablespace and no file */
		const NamedRelation *database = names_find(g->former, file->database, InvalidOid, 0);

		if (!file->named && (database == NULL || database->problem == NULL))
			databases = list_append_unique_oid(databases, file->database);
	}
	return databases;
}

/* copies from the earlier snapshot what it knows of all databases but those in `asked` */
static void
keep_names(Gathering *g, const List *databases, const List *asked)
{
	for (int i = 0; i < g->former->count; i++)
	{
		const NamedRelation *r = &g->former->list[i];
		FileOf		key = {r->database, r->relfilenumber};

		if (list_member_oid(asked, r->database) || !list_member_oid(databases, r->database))
			continue;
		if (r->kind == KIND_DATABASE)
			names_put_database(&g->body, r->database, r->name, r->problem);
		else if (hash_search(g->files, &key, HASH_FIND, NULL) != NULL)
			names_put_relation(&g->body, r);
	}
}

/*
 * Writes the names file of the snapshot that the process `writer` is taking.  Returns how many
 * databases have files without a name, and were not asked.
 */
static int
write_names(int writer, const Generation *former, NamesScope scope)
{
	HASHCTL		ctl = {.keysize = offsetof(FileOf, named), .entrysize = sizeof(FileOf),
					   .hcxt = CurrentMemoryContext};
	Gathering	g = {.files = hash_create("residency files", 1024, &ctl,
										  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT)};
	List	   *databases = snapshot_databases(writer, g.files);
	List	   *asked = databases;
	const char *path = temporary_names_path(writer);

	g.former = former != NULL ? names_read(names_path(former)) : NULL;
	initStringInfo(&g.body);
	if (scope != NAMES_ALL && g.former != NULL)
	{
		asked = databases_to_ask(&g);
		keep_names(&g, databases, scope == NAMES_NEW ? asked : NIL);
	}
	if (scope != NAMES_KNOWN)
		names_gather(&g, asked);
	/* the caller renames the file, and syncs it then */
	names_write(&g.body, psprintf("%s.new", path), path);
	pfree(g.body.data);
	return scope == NAMES_KNOWN ? list_length(asked) : 0;
}

/* --- the worker for a process without a database --- */

void
pg_residency_snapshot_names_main(Datum unused)
{
	SnapshotTask task;

	listen_to_signals();
	memcpy(&task, MyBgworkerEntry->bgw_extra, sizeof(task));
	/* none, which is enough to look databases up */
	connect_to_database(InvalidOid);
	StartTransactionCommand();
	write_names(task.asker, task.former.generation != 0 ? &task.former : NULL, task.scope);
	CommitTransactionCommand();
	proc_exit(0);
}

/* replaces the names file by one with the answers of the databases; it stays when that fails */
static void
ask_by_worker(const Generation *former, NamesScope scope)
{
	SnapshotTask task = {.asker = MyProcPid, .scope = scope};
	BackgroundWorkerHandle *handle;
	pid_t		pid;

	StaticAssertStmt(sizeof(SnapshotTask) <= BGW_EXTRALEN, "the argument of a worker is too long");
	if (former != NULL)
		task.former = *former;
	handle = names_start_worker("pg_residency_snapshot_names_main", "snapshot", &task,
								sizeof(task), NAMES_SLOT_PATIENCE);
	/* it has a bound for each database */
	while (handle != NULL && GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED)
	{
		sleep_or_wake(100000, compat_wait_event("ResidencyNames"));
		CHECK_FOR_INTERRUPTS();
	}
}

void
names_take(const Generation *former, NamesScope scope)
{
	int			unnamed;

	if (IsTransactionState())
	{
		(void) write_names(MyProcPid, former, scope);
		return;
	}
	unnamed = write_names(MyProcPid, former, NAMES_KNOWN);
	if (scope == NAMES_ALL || (scope == NAMES_NEW && unnamed > 0))
		ask_by_worker(former, scope);
}
