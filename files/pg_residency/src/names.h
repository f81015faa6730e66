/*
 * names.h - the names of the relations behind files
 *
 * Names are qualified and quoted as in SQL, and in UTF-8 both in a file and in memory.
 */
#ifndef RESIDENCY_NAMES_H
#define RESIDENCY_NAMES_H

#include "postgres.h"

#include "lib/stringinfo.h"

#include "segments.h"

/* a relation, or (kind KIND_DATABASE) a database whose relation names were collected */
typedef struct NamedRelation
{
	Oid			database;		/* InvalidOid for the shared catalogs */
	Oid			tablespace;
	RelFileNumber relfilenumber;
	Oid			relation;
	char		kind;			/* a value of pg_class.relkind, or one of those below */
	Oid			owner;			/* the table of an index or of TOAST; else InvalidOid */
	uint32		pages;			/* blocks, pg_class.relpages */
	char	   *name;			/* schema.relation; of a database, its name alone */
	char	   *owner_name;		/* NULL without an owner */
	char	  **partition_of;	/* the partitioned tables above it or its table, */
	int			npartition_of;	/* that many */
	/* of a database: the reason why its relations have no names; NULL when they have */
	char	   *problem;
} NamedRelation;

#define KIND_TOAST_INDEX 'T'
#define KIND_DATABASE 'D'

typedef struct Names
{
	NamedRelation *list;		/* ordered by names_find()'s key */
	int			count;
} Names;

/* The text, which is in this database's encoding, in UTF-8. */
extern char *names_utf8(const char *text);

/* Append to the body of a names file. */
extern void names_put_database(StringInfo out, Oid oid, const char *name, const char *problem);
extern void names_put_relation(StringInfo out, const NamedRelation *r);

/* Writes a names file with that body, as write_answer() does. */
extern void names_write(const StringInfo body, const char *temporary, const char *path);

/*
 * The body of a names file; NULL when the file does not exist, has another format version or, with
 * a WARNING, cannot be read.
 */
extern char *names_read_body(const char *path, size_t *size);

extern Names *names_parse(const char *body, size_t size);

/* Reads a names file; no names when it does not exist or has another format version. */
extern Names *names_read(const char *path);

/* the relation of that file; NULL when its name is unknown */
extern const NamedRelation *names_find(const Names *names, Oid database, Oid tablespace,
									   RelFileNumber relfilenumber);

/* "table", "toast index" and so on */
extern const char *names_kind(char kind);

/* The text in this database's encoding, with question marks for text that has no conversion. */
extern text *names_text(const char *utf8);

#endif
