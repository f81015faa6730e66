/*
 * names.h - what the relations behind files are called
 *
 * Names are spelled as SQL has them, with their schema; in a file, and when read, in UTF-8.
 */
#ifndef RESIDENCY_NAMES_H
#define RESIDENCY_NAMES_H

#include "postgres.h"

#include "lib/stringinfo.h"

#include "directory.h"
#include "segments.h"

/* a relation, or (kind KIND_DATABASE) a database that was asked for its relations' names */
typedef struct NamedRelation
{
	Oid			database;		/* InvalidOid for the shared catalogs */
	Oid			tablespace;
	RelFileNumber relfilenumber;
	Oid			relation;
	char		kind;			/* of pg_class.relkind, and those below */
	Oid			owner;			/* the table of an index or of TOAST; else InvalidOid */
	uint32		pages;			/* of 8 KiB, as of the last VACUUM or ANALYZE */
	char	   *name;			/* schema.relation; of a database, its bare name */
	char	   *owner_name;		/* NULL without an owner */
	char	  **partition_of;	/* the partitioned tables above it or its table, */
	int			npartition_of;	/* that many */
	/* of a database: why its relations are not named; NULL when they are */
	char	   *problem;
} NamedRelation;

#define KIND_TOAST_INDEX 'T'
#define KIND_DATABASE 'D'

typedef struct Names
{
	NamedRelation *list;		/* ordered by names_find()'s key */
	int			count;
} Names;

/* Add to the body of a file of names; texts are in this database's encoding. */
extern void names_put_database(StringInfo out, Oid oid, const char *name, const char *problem);
extern void names_put_relation(StringInfo out, const NamedRelation *r);

/* Writes a file with that body, with write_whole_file or write_answer. */
extern void names_write(const StringInfo body, const char *temporary, const char *path,
						FileWriter write);

/* The body of a file; NULL when it is not there, or is not one of this version. */
extern char *names_read_body(const char *path, size_t *size);

extern Names *names_parse(const char *body, size_t size);

/* Reads a file; without one, or with one of an older version, there are none. */
extern Names *names_read(const char *path);

/* the relation of that file; NULL when it is not named */
extern const NamedRelation *names_find(const Names *names, Oid database, Oid tablespace,
									   RelFileNumber relfilenumber);

/* "table", "toast index" and so on */
extern const char *names_kind(char kind);

/* The text in this database's encoding; what that does not have is a question mark. */
extern text *names_text(const char *utf8);

#endif
