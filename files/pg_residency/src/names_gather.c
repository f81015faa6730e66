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

/* milliseconds to wait for other processes that collect names */
#define GATHER_PATIENCE 60000

/* workers at a time: at most so many, and that part of max_worker_processes */
#define MOST_WORKERS 4
#define WORKERS_SHARE 4

/* a bound for the levels of partitions */
#define MOST_ANCESTORS 32

/* a worker's argument, in bgw_extra */
typedef struct NamesTask
{
	Oid			database;
	int32		asker;			/* PID of the process that waits for the answer */
	bool		with_shared;	/* also the shared catalogs, which every database has */
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

	return names_utf8(psprintf("%s.%s",
							   space != NULL ? quote_identifier(NameStr(space->name)) : "\"?\"",
							   quote_identifier(NameStr(class->name))));
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

/* datconnlimit of a database whose DROP was interrupted */
#define CONNLIMIT_INVALID (-2)

/* sets the name of a database; returns the reason why its relations cannot be named, or NULL */
static const char *
database_problem(Oid database, char **name)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	Form_pg_database form;
	const char *problem = NULL;

	if (!HeapTupleIsValid(tuple))
		return "the database was dropped";
	form = (Form_pg_database) GETSTRUCT(tuple);
	*name = names_utf8(NameStr(form->datname));
	if (form->datconnlimit == CONNLIMIT_INVALID)
		problem = "the drop of the database was interrupted";
	else if (!form->datallowconn)
		problem = "the database does not accept connections";
	ReleaseSysCache(tuple);
	return problem;
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
	char	   *name = "";
	const char *problem = database_problem(MyDatabaseId, &name);
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
			if (class->relfilenumber != 0 &&
				(class->shared ? task->with_shared :
								 problem == NULL && OidIsValid(task->database)))
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

BackgroundWorkerHandle *
names_start_worker(const char *function, const char *what, const void *task, size_t size,
				   int patience)
{
	int64		until = patience_until(patience);
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, task, size);
	strlcpy(worker.bgw_library_name, "pg_residency", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, function, sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "pg_residency names (%s)", what);
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

/* copies the names of a database that is not read now from an earlier names file */
static void
carry_over(const Names *former, Oid database, StringInfo out)
{
	for (int i = 0; i < former->count; i++)
		if (former->list[i].kind != KIND_DATABASE && former->list[i].database == database)
			names_put_relation(out, &former->list[i]);
}

/* adds what a database's worker, or gather(), has collected */
static void
add_names(Gathering *g, const char *body, size_t size)
{
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "residency answer", ALLOCSET_DEFAULT_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	Names	   *names = g->files != NULL ? names_parse(body, size) : NULL;

	if (names == NULL)
		appendBinaryStringInfo(&g->body, body, (int) size);
	for (int i = 0; names != NULL && i < names->count; i++)
	{
		const NamedRelation *r = &names->list[i];
		FileOf		file = {r->database, r->relfilenumber};

		if (r->kind == KIND_DATABASE)
			names_put_database(&g->body, r->database, r->name, r->problem);
		else if (hash_search(g->files, &file, HASH_FIND, NULL) != NULL)
			names_put_relation(&g->body, r);
	}
	MemoryContextSwitchTo(before);
	MemoryContextDelete(context);
}

static void
put_problem(Gathering *g, const NamesTask *task, const char *problem)
{
	names_put_database(&g->body, task->database, "", problem);
	if (g->former == NULL)
		return;
	carry_over(g->former, task->database, &g->body);
	if (task->with_shared)
		carry_over(g->former, InvalidOid, &g->body);
}

/* a worker that collects the names of a database; without a handle: none */
typedef struct Asked
{
	NamesTask	task;
	BackgroundWorkerHandle *handle;
	int64		until;			/* milliseconds, for its answer */
} Asked;

/* whether the worker ended within PATIENCE */
static bool
wait_for_worker(const Asked *asked)
{
	pid_t		pid;

	while (GetBackgroundWorkerPid(asked->handle, &pid) != BGWH_STOPPED)
	{
		if (patience_is_over(asked->until))
			return false;
		sleep_or_wake(100000, compat_wait_event("ResidencyNames"));
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

/* adds the worker's answer; returns the reason of a failure, or NULL */
static const char *
take_answer(const Asked *asked, Gathering *g)
{
	char		path[MAXPGPATH];
	char	   *answer;
	size_t		size;

	answer_path(&asked->task, path);
	if (!wait_for_worker(asked))
		return "the worker timed out";
	if ((answer = names_read_body(path, &size)) == NULL)
		return "the worker failed; see the server log";
	add_names(g, answer, size);
	return NULL;
}

static void
end_worker(Asked *asked)
{
	char		path[MAXPGPATH];

	if (asked->handle == NULL)
		return;
	answer_path(&asked->task, path);
	/* this has no effect on a worker that has ended */
	TerminateBackgroundWorker(asked->handle);
	unlink(path);
	asked->handle = NULL;
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

static void
finish_worker(Asked *asked, Gathering *g)
{
	const char *problem;

	if (asked->handle == NULL)
		return;
	problem = take_answer(asked, g);
	end_worker(asked);
	if (problem != NULL)
		put_problem(g, &asked->task, problem);
}

/*
 * Collects the names of other databases by workers, at most `most` at a time: the wait is for the
 * worker that was started first.
 */
static void
ask_workers(Gathering *g, const NamesTask *tasks, int count, int most, Asked *asked)
{
	int			patience = NAMES_SLOT_PATIENCE;

	for (int i = 0; i < count + most; i++)
	{
		Asked	   *next = &asked[i % most];

		finish_worker(next, g);
		if (i >= count)
			continue;
		next->task = tasks[i];
		next->until = patience_until(PATIENCE);
		next->handle = names_start_worker("pg_residency_names_main",
										  psprintf("database %u", tasks[i].database),
										  &tasks[i], sizeof(NamesTask), patience);
		if (next->handle != NULL)
			continue;
		put_problem(g, &tasks[i], "out of background worker slots");
		/* the next database will not find a free slot either */
		patience = 0;
	}
}

/* collects the names of the databases; the caller holds LOCK_NAMES */
static void
gather_all(Gathering *g, const List *databases)
{
	StringInfoData here;
	NamesTask  *tasks = palloc(Max(list_length(databases), 1) * sizeof(NamesTask));
	ListCell   *cell;
	int			ntasks = 0;
	bool		shared = false;
	/* the others are for parallel queries, and other extensions */
	int			most = Max(Min(MOST_WORKERS, max_worker_processes / WORKERS_SHARE), 1);
	Asked	   *asked = palloc0(most * sizeof(Asked));

	remove_leftovers();
	initStringInfo(&here);
	foreach(cell, databases)
	{
		NamesTask task = {.database = lfirst_oid(cell),
						  .asker = MyProcPid,
						  .with_shared = !OidIsValid(lfirst_oid(cell))};
		const char *problem;
		char	   *name = "";

		/* the shared catalogs are readable in every database */
		if (OidIsValid(MyDatabaseId) && (task.with_shared || task.database == MyDatabaseId))
			gather(&task, &here);
		else if (task.with_shared)
			shared = true;
		/* a worker could not connect, and would write that to the server log */
		else if ((problem = database_problem(task.database, &name)) != NULL)
			names_put_database(&g->body, task.database, name, problem);
		else
			tasks[ntasks++] = task;
	}
	add_names(g, here.data, here.len);
	/* in a process without a database, the first worker names them */
	if (shared && ntasks > 0)
		tasks[0].with_shared = true;
	else if (shared && g->former != NULL)
		carry_over(g->former, InvalidOid, &g->body);
	PG_TRY();
	{
		ask_workers(g, tasks, ntasks, most, asked);
	}
	PG_FINALLY();
	{
		for (int i = 0; i < most; i++)
			end_worker(&asked[i]);
	}
	PG_END_TRY();
}

void
names_gather(Gathering *g, const List *databases)
{
	int			lock = residency_lock(LOCK_NAMES, 0, GATHER_PATIENCE);

	if (lock < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another session is collecting relation names"),
				 errhint("Try again when that session has finished.")));
	PG_TRY();
	{
		gather_all(g, databases);
	}
	PG_FINALLY();
	{
		residency_unlock(lock);
	}
	PG_END_TRY();
}

Names *
names_now(const List *databases)
{
	Gathering	g = {0};

	initStringInfo(&g.body);
	names_gather(&g, databases);
	return names_parse(g.body.data, g.body.len);
}
