/*
 * names.c - the names of the relations behind files: the names file
 *
 * A names file is
 *
 *   magic (8 bytes), version (u32), CRC-32C of the rest (u32)
 *   for each database: kind 'D', its OID (u32), its name, its problem (texts)
 *   for each relation: kind (u8), database, tablespace, relfilenumber, relation, owner, pages (u32
 *   each), name, owner's name (texts), number of partitioned tables (u8), their names (texts)
 *
 * and a text is its length (u16) and its bytes.  All numbers are little-endian.  A worker returns
 * the names of its database as such a file.
 */
#include "names.h"

#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "compat.h"
#include "directory.h"
#include "wire.h"

#define NAMES_MAGIC "PGRNAMES"
#define NAMES_VERSION 1
#define NAMES_HEAD 16

/* --- writing --- */

static void
put_number(StringInfo out, uint64 value, int bytes)
{
	uint8		buffer[8];

	wire_put(buffer, value, bytes);
	appendBinaryStringInfo(out, (char *) buffer, bytes);
}

/* replaces each byte that is not ASCII by a question mark, for text without a conversion */
static char *
ascii_only(const char *text)
{
	char	   *ascii = pstrdup(text);

	for (char *c = ascii; *c != '\0'; c++)
		if (IS_HIGHBIT_SET(*c))
			*c = '?';
	return ascii;
}

/* The text in the other encoding; NULL when that has no such text, or no conversion exists. */
static char *
converted(const char *text, int from, int to)
{
	int			length = (int) strlen(text);
	int			room = length * MAX_CONVERSION_GROWTH + 1;
	Oid			conversion;
	char	   *out;

	/*
	 * SQL_ASCII does not define what bytes mean: they are copied where they are valid in the other
	 * encoding
	 */
	if (from == to || from == PG_SQL_ASCII || to == PG_SQL_ASCII)
		return pg_verify_mbstr(to, text, length, true) ? pstrdup(text) : NULL;
	conversion = FindDefaultConversionProc(from, to);
	if (!OidIsValid(conversion) || !pg_verify_mbstr(from, text, length, true))
		return NULL;
	out = palloc(room);
	if (pg_do_encoding_conversion_buf(conversion, from, to, (unsigned char *) pstrdup(text), length,
									  (unsigned char *) out, room, true) == length)
		return out;
	return NULL;
}

char *
names_utf8(const char *text)
{
	char	   *utf8 = converted(text, GetDatabaseEncoding(), PG_UTF8);

	return utf8 != NULL ? utf8 : ascii_only(text);
}

static void
put_text(StringInfo out, const char *utf8)
{
	size_t		length = utf8 != NULL ? Min(strlen(utf8), PG_UINT16_MAX) : 0;

	put_number(out, length, 2);
	appendBinaryStringInfo(out, utf8 != NULL ? utf8 : "", (int) length);
}

void
names_put_database(StringInfo out, Oid oid, const char *name, const char *problem)
{
	put_number(out, KIND_DATABASE, 1);
	put_number(out, oid, 4);
	put_text(out, name);
	put_text(out, problem);
}

void
names_put_relation(StringInfo out, const NamedRelation *r)
{
	put_number(out, (uint8) r->kind, 1);
	put_number(out, r->database, 4);
	put_number(out, r->tablespace, 4);
	put_number(out, r->relfilenumber, 4);
	put_number(out, r->relation, 4);
	put_number(out, r->owner, 4);
	put_number(out, r->pages, 4);
	put_text(out, r->name);
	put_text(out, r->owner_name);
	put_number(out, r->npartition_of, 1);
	for (int i = 0; i < r->npartition_of; i++)
		put_text(out, r->partition_of[i]);
}

void
names_write(const StringInfo body, const char *temporary, const char *path)
{
	StringInfoData file;

	initStringInfo(&file);
	appendBinaryStringInfo(&file, NAMES_MAGIC, 8);
	put_number(&file, NAMES_VERSION, 4);
	put_number(&file, sf_crc32c(0, body->data, body->len), 4);
	appendBinaryStringInfo(&file, body->data, body->len);
	write_answer(temporary, path, file.data, file.len);
	pfree(file.data);
}

/* --- reading --- */

char *
names_read_body(const char *path, size_t *size)
{
	int			error;
	char	   *data = try_read_whole_file(path, size, &error);
	const uint8 *p = (uint8 *) data + 8;

	errno = error;
	if (error != 0)
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", path)));
	if (data == NULL || *size < NAMES_HEAD || memcmp(data, NAMES_MAGIC, 8) != 0 ||
		wire_get(&p, 4) != NAMES_VERSION ||
		wire_get(&p, 4) != sf_crc32c(0, data + NAMES_HEAD, *size - NAMES_HEAD))
		return NULL;
	*size -= NAMES_HEAD;
	return data + NAMES_HEAD;
}

static char *
get_text(const uint8 **p, const uint8 *end)
{
	size_t		length;
	char	   *s;

	if (end - *p < 2 || (size_t) (end - *p) - 2 < (length = wire_get(p, 2)))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("relation names of a snapshot are truncated")));
	s = pnstrdup((const char *) *p, length);
	*p += length;
	return s;
}

static Oid
get_oid(const uint8 **p, const uint8 *end)
{
	if (end - *p < 4)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("relation names of a snapshot are truncated")));
	return (Oid) wire_get(p, 4);
}

static char *
text_or_null(char *s)
{
	return s[0] != '\0' ? s : NULL;
}

static void
get_relation(const uint8 **p, const uint8 *end, NamedRelation *r)
{
	memset(r, 0, sizeof(*r));
	r->kind = (char) wire_get(p, 1);
	r->database = get_oid(p, end);
	if (r->kind == KIND_DATABASE)
	{
		r->name = get_text(p, end);
		r->problem = text_or_null(get_text(p, end));
		return;
	}
	r->tablespace = get_oid(p, end);
	r->relfilenumber = get_oid(p, end);
	r->relation = get_oid(p, end);
	r->owner = get_oid(p, end);
	r->pages = get_oid(p, end);
	r->name = get_text(p, end);
	r->owner_name = text_or_null(get_text(p, end));
	if (*p == end)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("relation names of a snapshot are truncated")));
	r->npartition_of = (int) wire_get(p, 1);
	r->partition_of = palloc(Max(r->npartition_of, 1) * sizeof(char *));
	for (int i = 0; i < r->npartition_of; i++)
		r->partition_of[i] = get_text(p, end);
}

static int
compare_named(const void *a, const void *b)
{
	const NamedRelation *ra = a;
	const NamedRelation *rb = b;

	if (ra->database != rb->database)
		return ra->database < rb->database ? -1 : 1;
	if (ra->relfilenumber != rb->relfilenumber)
		return ra->relfilenumber < rb->relfilenumber ? -1 : 1;
	return ra->tablespace < rb->tablespace ? -1 : (ra->tablespace > rb->tablespace);
}

Names *
names_parse(const char *data, size_t size)
{
	const uint8 *p = (const uint8 *) data;
	const uint8 *end = p + size;
	Names	   *names = palloc0(sizeof(Names));
	int			room = 1024;

	names->list = palloc(room * sizeof(NamedRelation));
	while (p < end)
	{
		if (names->count == room)
			names->list = repalloc_huge(names->list, (size_t) (room *= 2) * sizeof(NamedRelation));
		get_relation(&p, end, &names->list[names->count++]);
		if (names->count % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
	}
	qsort(names->list, names->count, sizeof(NamedRelation), compare_named);
	return names;
}

Names *
names_read(const char *path)
{
	size_t		size;
	char	   *body = names_read_body(path, &size);

	return body != NULL ? names_parse(body, size) : palloc0(sizeof(Names));
}

const NamedRelation *
names_find(const Names *names, Oid database, Oid tablespace, RelFileNumber relfilenumber)
{
	NamedRelation key = {.database = database,
						 .tablespace = tablespace,
						 .relfilenumber = relfilenumber};

	if (names->count == 0)
		return NULL;
	return bsearch(&key, names->list, names->count, sizeof(NamedRelation), compare_named);
}

const char *
names_kind(char kind)
{
	switch (kind)
	{
		case RELKIND_RELATION:
			return "table";
		case RELKIND_MATVIEW:
			return "materialized view";
		case RELKIND_SEQUENCE:
			return "sequence";
		case RELKIND_TOASTVALUE:
			return "toast";
		case RELKIND_INDEX:
			return "index";
		case KIND_TOAST_INDEX:
			return "toast index";
		case KIND_DATABASE:
			return "database";
	}
	return "unknown";
}

text *
names_text(const char *utf8)
{
	char	   *here = converted(utf8, PG_UTF8, GetDatabaseEncoding());

	return cstring_to_text(here != NULL ? here : ascii_only(utf8));
}
