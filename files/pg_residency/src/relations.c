/*
 * relations.c - opens a relation by its OID, under a lock
 */
#include "relations.h"

#include "access/relation.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

static void report_no_relation(Oid relid) __attribute__((noreturn));

static void
report_no_relation(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("relation with OID %u does not exist", relid)));
}

static bool
is_partitioned(char kind)
{
	return kind == RELKIND_PARTITIONED_TABLE || kind == RELKIND_PARTITIONED_INDEX;
}

/* without a lock, the relation and its table may be dropped at any time */
static void
check_may_read(Oid relid)
{
	char		kind = get_rel_relkind(relid);
	bool		index = kind == RELKIND_INDEX || kind == RELKIND_PARTITIONED_INDEX;
	Oid			table = index ? IndexGetRelation(relid, true) : relid;
	char	   *name = get_rel_name(relid);
	AclResult	result;

	if (name == NULL || !OidIsValid(table))
		report_no_relation(relid);
	result = pg_class_aclcheck(table, GetUserId(), ACL_SELECT);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, get_relkind_objtype(kind), name);
}

Relation
open_relation(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);

	if (rel == NULL)
		report_no_relation(relid);
	return rel;
}

Relation
open_readable_relation(Oid relid)
{
	Relation	rel;

	/*
	 * The first check prevents that a user without privileges locks a table; the second one, that
	 * privileges revoked while the lock was awaited still count.
	 */
	check_may_read(relid);
	rel = open_relation(relid);
	check_may_read(relid);
	return rel;
}

Relation
open_part(Oid relid)
{
	return try_relation_open(relid, AccessShareLock);
}

void
check_has_files(Relation rel, bool partitions)
{
	char		kind = rel->rd_rel->relkind;

	if (RELKIND_HAS_STORAGE(kind) || (partitions && is_partitioned(kind)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("relation \"%s\" does not have storage", RelationGetRelationName(rel)),
			 errdetail_relkind_not_supported(kind),
			 is_partitioned(kind) ? errhint("Specify one of its partitions.")
			 : errhint("Specify a table, materialized view, index or sequence.")));
}

List *
with_partitions(Relation rel)
{
	if (is_partitioned(rel->rd_rel->relkind))
		return find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL);
	return list_make1_oid(RelationGetRelid(rel));
}

static void
add_with_dependents(List **relids, Oid relid)
{
	Relation	rel = open_part(relid);
	ListCell   *cell;

	if (rel == NULL)
		return;
	*relids = lappend_oid(*relids, relid);
	if (rel->rd_rel->relhasindex)
		foreach(cell, RelationGetIndexList(rel))
			add_with_dependents(relids, lfirst_oid(cell));
	if (OidIsValid(rel->rd_rel->reltoastrelid))
		add_with_dependents(relids, rel->rd_rel->reltoastrelid);
	relation_close(rel, NoLock);
}

List *
with_dependents(List *relids)
{
	List	   *all = NIL;
	ListCell   *cell;

	foreach(cell, relids)
		add_with_dependents(&all, lfirst_oid(cell));
	return all;
}

static RelationFork *
fork_of(Relation rel, ForkNumber fork)
{
	RelationFork *f = palloc0(sizeof(RelationFork));

	f->id = (SegmentId) {compat_tablespace(rel), compat_database(rel),
		compat_relfilenumber(rel), fork, 0};
	f->path = compat_relation_path(rel, fork);
	return f;
}

List *
relation_forks(Oid relid, ForkNumber fork, bool one_file)
{
	Relation	rel = open_readable_relation(relid);
	List	   *forks = NIL;
	ListCell   *cell;

	check_has_files(rel, !one_file);
	foreach(cell, with_partitions(rel))
	{
		Relation	part = open_part(lfirst_oid(cell));

		if (part == NULL)
			continue;
		if (RELKIND_HAS_STORAGE(part->rd_rel->relkind))
			forks = lappend(forks, fork_of(part, fork));
		relation_close(part, NoLock);
	}
	relation_close(rel, NoLock);
	return forks;
}
