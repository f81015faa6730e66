/*
 * names_gather.c - collects the names of relations from the databases
 *
 * A worker returns the names of its database as a names file.
 */
#include "names_gather.h"

#include <signal.h>
#include <unistd.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_tablespace_d.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "postmaster/bgworker.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relmapper.h"
#include "utils/syscache.h"

#include "compat.h"
#include "directory.h"
#include "interrupts.h"
#include "names.h"

/* milliseconds that the worker of a database may take, including its start */
#define PATIENCE 30000

/* milliseconds to wait for a background worker slot; and for other processes that collect names */
#define SLOT_PATIENCE 5000
#define NO_WORKER "out of background worker slots"
#define GATHER_PATIENCE 60000

/* a bound for the levels of partitions */
#define MOST_ANCESTORS 32

/* a worker's argument, in bgw_extra */
typedef struct NamesTask
{
	Oid			database;
	int32		asker;			/* PID of the process that waits for the answer */
	bool		with_shared;	/* also the shared catalogs, which every database has */
	bool		of_snapshot;	/* only relations with segments in the asker's snapshot */
} NamesTask;

PGDLLEXPORT void pg_residency_names_main(Datum unused);

static void
answer_path(const NamesTask *task, char *path)
{
	snprintf(path, MAXPGPATH, "%s.names.%d.%u", RESIDENCY_TEMP_PREFIX, (int) task->asker,
			 task->database);
}

/* --- gathering, in a database --- */

typedef struct Class
{
	Oid			oid;			/* the key */
	Oid			namespace;
	Oid			tablespace;
	Oid			toast;			/* its TOAST table */
	Oid			table;			/* of an index or of TOAST */
	RelFileNumber relfilenumber;	/* 0: it has no file */
	uint32		pages;
	bool		shared;
	bool		partition;
	char		kind;
	NameData	name;
} Class;

typedef struct OidPair
{
	Oid			from;			/* the key */
	Oid			to;
} OidPair;

typedef struct NamedSpace
{
	Oid			oid;			/* the key */
	NameData	name;
} NamedSpace;

typedef struct Catalogs
{
	HTAB	   *classes;
	HTAB	   *spaces;
	HTAB	   *parents;		/* of partitions */
} Catalogs;

static HTAB *
oid_table(const char *name, size_t entry)
{
	HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = entry, .hcxt = CurrentMemoryContext};

	return hash_create(name, 1024, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/*
 * Calls `each` with each row of a catalog.  No SQL is executed, so no code that a database's owner
 * created runs.
 */
static void
scan_catalog(Oid catalog, void (*each) (HeapTuple tuple, Catalogs *c), Catalogs *c)
{
	Relation	rel = table_open(catalog, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		CHECK_FOR_INTERRUPTS();
		each(tuple, c);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

static void
add_class(HeapTuple tuple, Catalogs *c)
{
	Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);
	Class	   *class;
	bool		found;

	if (form->relpersistence == RELPERSISTENCE_TEMP ||
		(!RELKIND_HAS_STORAGE(form->relkind) && form->relkind != RELKIND_PARTITIONED_TABLE))
		return;
	class = hash_search(c->classes, &form->oid, HASH_ENTER, &found);
	class->namespace = form->relnamespace;
	class->tablespace = form->relisshared ? GLOBALTABLESPACE_OID :
		OidIsValid(form->reltablespace) ? form->reltablespace : MyDatabaseTableSpace;
	class->toast = form->reltoastrelid;
	class->table = InvalidOid;
	class->relfilenumber = 0;
	if (RELKIND_HAS_STORAGE(form->relkind))
		class->relfilenumber = form->relfilenode != 0 ? form->relfilenode :
			compat_map_to_relfilenumber(form->oid, form->relisshared);
	class->pages = (uint32) Max(form->relpages, 0);
	class->shared = form->relisshared;
	class->partition = form->relispartition;
	class->kind = form->relkind;
	class->name = form->relname;
}

static void
add_index(HeapTuple tuple, Catalogs *c)
{
	Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);
	Class	   *class = hash_search(c->classes, &form->indexrelid, HASH_FIND, NULL);

	if (class != NULL)
		class->table = form->indrelid;
}

static void
add_space(HeapTuple tuple, Catalogs *c)
{
	Form_pg_namespace form = (Form_pg_namespace) GETSTRUCT(tuple);
	NamedSpace *space = hash_search(c->spaces, &form->oid, HASH_ENTER, NULL);

	space->name = form->nspname;
}

static void
add_parent(HeapTuple tuple, Catalogs *c)
{
	Form_pg_inherits form = (Form_pg_inherits) GETSTRUCT(tuple);
	OidPair    *pair = hash_search(c->parents, &form->inhrelid, HASH_ENTER, NULL);

	pair->to = form->inhparent;
}

static Class *
class_of(const Catalogs *c, Oid oid)
{
	return OidIsValid(oid) ? hash_search(c->classes, &oid, HASH_FIND, NULL) : NULL;
}

/* schema.relation, quoted as in SQL, in UTF-8 */
static char *
spelled(const Catalogs *c, const Class *class)
{
	NamedSpace *space = hash_search(c->spaces, &class->namespace, HASH_FIND, NULL);

	return names_utf8(psprintf("%s.%s", space != NULL ? quote_identifier(NameStr(space->name)) : "?",
							   quote_identifier(NameStr(class->name))));
}

/*
 * the snapshot's files of this database, as OidPair of relfilenumber and tablespace; NULL means all
 * files
 */
static HTAB *
wanted_files(const NamesTask *task)
{
	char		path[MAXPGPATH];
	struct sf_header header;
	struct sf_segment segment;
	HTAB	   *files;
	uint8	   *data;
	size_t		size;
	size_t		at = 0;

	if (!task->of_snapshot)
		return NULL;
	snprintf(path, sizeof(path), "%s.snapshot.%d", RESIDENCY_TEMP_PREFIX, (int) task->asker);
	data = (uint8 *) read_whole_file(path, &size);
	if (data == NULL || sf_check(data, size, &header, check_for_interrupts) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("the snapshot that needs the names was abandoned")));
	files = oid_table("residency files", sizeof(OidPair));
	while (sf_next_segment(data, &header, &at, &segment))
		if (segment.database == task->database || segment.database == InvalidOid)
		{
			/* a relfilenumber that exists in two tablespaces names both relations */
			OidPair    *pair = hash_search(files, &segment.relfilenumber, HASH_ENTER, NULL);

			pair->to = segment.tablespace;
		}
	pfree(data);
	return files;
}

/* finds the partitioned tables above a table; returns their number */
static int
find_ancestors(const Catalogs *c, const Class *table, char **names)
{
	int			n = 0;

	for (const Class *child = table; child != NULL && child->partition && n < MOST_ANCESTORS;)
	{
		OidPair    *parent = hash_search(c->parents, &child->oid, HASH_FIND, NULL);

		child = parent != NULL ? class_of(c, parent->to) : NULL;
		if (child != NULL && child->kind == RELKIND_PARTITIONED_TABLE)
			names[n++] = spelled(c, child);
	}
	return n;
}

static void
put_class(StringInfo out, const Catalogs *c, const Class *class)
{
	const Class *table = class_of(c, class->table);
	char	   *ancestors[MOST_ANCESTORS];
	NamedRelation r = {
		.database = class->shared ? InvalidOid : MyDatabaseId, .tablespace = class->tablespace,
		.relfilenumber = class->relfilenumber, .relation = class->oid, .kind = class->kind,
		.pages = class->pages, .name = spelled(c, class), .partition_of = ancestors
	};

	/* the owner of a TOAST table's index is the table whose values are toasted */
	if (table != NULL && table->kind == RELKIND_TOASTVALUE)
	{
		r.kind = KIND_TOAST_INDEX;
		table = class_of(c, table->table);
	}
	if (table != NULL)
	{
		r.owner = table->oid;
		r.owner_name = spelled(c, table);
	}
	r.npartition_of = find_ancestors(c, table != NULL ? table : class, ancestors);
	names_put_relation(out, &r);
}

/* sets the name of this database; returns the reason why its relations cannot be named, or NULL */
static const char *
database_name(char **name)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	Form_pg_database form;
	bool		closed;

	if (!HeapTupleIsValid(tuple))
		return "the database was dropped";
	form = (Form_pg_database) GETSTRUCT(tuple);
	*name = names_utf8(NameStr(form->datname));
	closed = !form->datallowconn;
	ReleaseSysCache(tuple);
	return closed ? "the database does not accept connections" : NULL;
}

static void
gather_here(const NamesTask *task, StringInfo out)
{
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "residency names", ALLOCSET_DEFAULT_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	Catalogs c = {oid_table("residency classes", sizeof(Class)),
				  oid_table("residency schemas", sizeof(NamedSpace)),
				  oid_table("residency partitions", sizeof(OidPair))};
	HTAB	   *files = wanted_files(task);
	char	   *name = "";
	const char *problem = database_name(&name);
	HASH_SEQ_STATUS all;
	Class	   *class;

	if (OidIsValid(task->database))
		names_put_database(out, task->database, name, problem);
	if (problem == NULL || task->with_shared)
	{
		scan_catalog(RelationRelationId, add_class, &c);
		scan_catalog(IndexRelationId, add_index, &c);
		scan_catalog(NamespaceRelationId, add_space, &c);
		scan_catalog(InheritsRelationId, add_parent, &c);
		hash_seq_init(&all, c.classes);
		while ((class = hash_seq_search(&all)) != NULL)
		{
			Class	   *toast = class_of(&c, class->toast);

			if (toast != NULL)
				toast->table = class->oid;
		}
		hash_seq_init(&all, c.classes);
		while ((class = hash_seq_search(&all)) != NULL)
		{
			if (class->relfilenumber == 0 ||
				(class->shared ? !task->with_shared :
								 problem != NULL || !OidIsValid(task->database)))
				continue;
			if (files == NULL || hash_search(files, &class->relfilenumber, HASH_FIND, NULL) != NULL)
				put_class(out, &c, class);
		}
	}
	MemoryContextSwitchTo(before);
	MemoryContextDelete(context);
}

/* collects the names of this process's database, in the current transaction */
static void
gather(const NamesTask *task, StringInfo out)
{
	bool		quote_all = quote_all_identifiers;

	/* names must not depend on a setting of the session or of the database */
	quote_all_identifiers = false;
	PG_TRY();
	{
		gather_here(task, out);
	}
	PG_FINALLY();
	{
		quote_all_identifiers = quote_all;
	}
	PG_END_TRY();
}

/* --- the worker of one database --- */

void
pg_residency_names_main(Datum unused)
{
	NamesTask	task;
	StringInfoData answer;
	char		path[MAXPGPATH];
	char		temporary[MAXPGPATH];

	listen_to_signals();
	memcpy(&task, MyBgworkerEntry->bgw_extra, sizeof(task));
	/* a database that does not accept connections is only read for the reason */
	connect_to_database(task.database);
	MemoryContextSwitchTo(TopMemoryContext);
	initStringInfo(&answer);
	StartTransactionCommand();
	gather(&task, &answer);
	answer_path(&task, path);
	snprintf(temporary, sizeof(temporary), "%s.new", path);
	names_write(&answer, temporary, path);
	CommitTransactionCommand();
	proc_exit(0);
}

/* starts the worker for one database; NULL when no slot became free within `patience` */
static BackgroundWorkerHandle *
start_worker(const NamesTask *task, int patience)
{
	int64		until = patience_until(patience);
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, task, sizeof(*task));
	strlcpy(worker.bgw_library_name, "pg_residency", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "pg_residency_names_main", sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "pg_residency names (database %u)",
			 task->database);
	strlcpy(worker.bgw_type, "pg_residency names", sizeof(worker.bgw_type));
	while (!RegisterDynamicBackgroundWorker(&worker, &handle))
	{
		if (patience_is_over(until))
			return NULL;
		sleep_or_wake(100000, compat_wait_event("ResidencyNames"));
		CHECK_FOR_INTERRUPTS();
	}
	return handle;
}

/* whether the worker ended within PATIENCE */
static bool
wait_for_worker(BackgroundWorkerHandle *handle)
{
	int64		until = patience_until(PATIENCE);
	pid_t		pid;

	while (GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED)
	{
		if (patience_is_over(until))
			return false;
		sleep_or_wake(100000, compat_wait_event("ResidencyNames"));
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

/* collects another database's names by a worker; returns the reason of a failure, or NULL */
static const char *
ask_worker(const NamesTask *task, int patience, StringInfo out)
{
	BackgroundWorkerHandle *volatile handle = NULL;
	const char *volatile problem = NULL;
	char		path[MAXPGPATH];
	char	   *answer;
	size_t		size;

	answer_path(task, path);
	PG_TRY();
	{
		handle = start_worker(task, patience);
		if (handle == NULL)
			problem = NO_WORKER;
		else if (!wait_for_worker(handle))
			problem = "the worker timed out";
		else if ((answer = names_read_body(path, &size)) == NULL)
			problem = "the worker failed; see the server log";
		else
			appendBinaryStringInfo(out, answer, (int) size);
	}
	PG_FINALLY();
	{
		/* this has no effect on a worker that has ended */
		if (handle != NULL)
			TerminateBackgroundWorker(handle);
		unlink(path);
	}
	PG_END_TRY();
	return problem;
}

/* removes answers for killed processes */
static void
remove_leftovers(void)
{
	DIR		   *d = AllocateDir(RESIDENCY_DIR);
	struct dirent *entry;

	if (d == NULL && errno == ENOENT)
		return;
	while ((entry = ReadDir(d, RESIDENCY_DIR)) != NULL)
	{
		int			asker;

		if (sscanf(entry->d_name, "pgsql_tmp.names.%d.", &asker) == 1 &&
			(asker == MyProcPid || (kill(asker, 0) != 0 && errno == ESRCH)))
			unlink(psprintf("%s/%s", RESIDENCY_DIR, entry->d_name));
	}
	FreeDir(d);
}

/* copies the names of a database that cannot be read now from an earlier names file */
static void
carry_over(const Names *former, Oid database, StringInfo out)
{
	for (int i = 0; i < former->count; i++)
		if (former->list[i].kind != KIND_DATABASE && former->list[i].database == database)
			names_put_relation(out, &former->list[i]);
}

/* collects the names of the databases, one after another; the caller holds LOCK_NAMES */
static void
gather_all(const Oid *databases, int count, bool of_snapshot, const Names *former, StringInfo out)
{
	bool		shared = false;
	int			patience = SLOT_PATIENCE;

	for (int i = 0; i < count; i++)
		shared |= databases[i] == InvalidOid;
	remove_leftovers();
	/*
	 * The shared catalogs are readable in every database: in the current one, or else in the first
	 * whose worker succeeds.
	 */
	if (shared && OidIsValid(MyDatabaseId))
	{
		NamesTask	task = {.asker = MyProcPid, .with_shared = true, .of_snapshot = of_snapshot};

		gather(&task, out);
		shared = false;
	}
	for (int i = 0; i < count; i++)
	{
		NamesTask task = {.database = databases[i],
						  .asker = MyProcPid,
						  .with_shared = shared,
						  .of_snapshot = of_snapshot};
		const char *problem;

		CHECK_FOR_INTERRUPTS();
		if (databases[i] == InvalidOid)
			continue;
		if (databases[i] == MyDatabaseId)
		{
			gather(&task, out);
			continue;
		}
		problem = ask_worker(&task, patience, out);
		/* the next database will not find a free slot either */
		if (problem != NULL && strcmp(problem, NO_WORKER) == 0)
			patience = 0;
		if (problem == NULL)
		{
			shared = false;
			continue;
		}
		names_put_database(out, databases[i], "", problem);
		if (former != NULL)
			carry_over(former, databases[i], out);
	}
}

/*
 * the same under the lock: only one process of a cluster may occupy background worker slots for
 * this
 */
static void gather_locked(const Oid *databases, int count, bool of_snapshot, const Names *former,
						  StringInfo out)
{
	int			lock = residency_lock(LOCK_NAMES, 0, GATHER_PATIENCE);

	if (lock < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another session is collecting relation names"),
				 errhint("Try again when that session has finished.")));
	PG_TRY();
	{
		gather_all(databases, count, of_snapshot, former, out);
	}
	PG_FINALLY();
	{
		residency_unlock(lock);
	}
	PG_END_TRY();
}

static void
add_database(Oid **databases, int *count, int *room, Oid database)
{
	for (int i = 0; i < *count; i++)
		if ((*databases)[i] == database)
			return;
	if (*count == *room)
		*databases = repalloc(*databases, (*room *= 2) * sizeof(Oid));
	(*databases)[(*count)++] = database;
}

void
names_take(const char *snapshot_path, const char *path, const char *former_path)
{
	struct sf_header header;
	struct sf_segment segment;
	StringInfoData body;
	int			room = 16;
	int			count = 0;
	Oid		   *databases = palloc(room * sizeof(Oid));
	uint8	   *data;
	size_t		size;
	size_t		at = 0;

	data = (uint8 *) read_whole_file(snapshot_path, &size);
	if (data == NULL || sf_read_header(data, size, &header) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("could not use file \"%s\": it was removed or changed", snapshot_path)));
	while (sf_next_segment(data, &header, &at, &segment))
		add_database(&databases, &count, &room, segment.database);
	pfree(data);
	initStringInfo(&body);
	gather_locked(databases, count, true, former_path != NULL ? names_read(former_path) : NULL,
				  &body);
	/* the caller renames the file, and syncs it then */
	names_write(&body, psprintf("%s.new", path), path);
	pfree(body.data);
}

Names *
names_now(const Oid *databases, int count)
{
	StringInfoData body;

	initStringInfo(&body);
	gather_locked(databases, count, false, NULL, &body);
	return names_parse(body.data, body.len);
}
