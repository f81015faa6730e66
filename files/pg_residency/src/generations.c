/*
 * generations.c - the generations of snapshots: their names, numbers and files
 */
#include "generations.h"

#include <unistd.h>

#include "access/xlog.h"
#include "lib/stringinfo.h"
#include "storage/fd.h"

#include "compat.h"
#include "directory.h"

#define SUFFIX ".snapshot"
#define NAMES_SUFFIX ".names"

/*
 * The highest dropped generation of each name, one per line, so that no number is used twice.  The
 * name FORGOTTEN stands for all names beyond MOST_DROPPED.
 */
#define DROPPED_PATH RESIDENCY_DIR "/dropped"
#define FORGOTTEN "*"
#define MOST_DROPPED 1000

/* [A-Za-z0-9][A-Za-z0-9_.-]{0,62}: no name can leave the directory or be a hidden file */
static bool
name_is_valid(const char *name, size_t n)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";

	return n > 0 && n < SF_NAME_BYTES && strspn(name, allowed) >= n &&
		   strchr("_.-", name[0]) == NULL;
}

bool
try_parse_name(const char *text, Generation *g, bool generation_allowed)
{
	size_t		n = strcspn(text, "@");
	char	   *end = NULL;
	long		generation = 0;

	if (text[n] == '@')
		generation = strtol(text + n + 1, &end, 10);
	if (!name_is_valid(text, n) || (end != NULL && (!generation_allowed || *end != '\0' ||
													generation < 1 || generation > PG_INT32_MAX)))
		return false;
	memcpy(g->name, text, n);
	g->name[n] = '\0';
	g->generation = (int) generation;
	return true;
}

void
parse_name(const char *text, Generation *g, bool generation_allowed)
{
	if (!try_parse_name(text, g, generation_allowed))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid snapshot name \"%s\"", text),
				 generation_allowed ?
				 errhint("Use 1 to 63 letters, digits, \"_\", \".\" or \"-\", beginning with a letter or digit. Append \"@3\" for generation 3.") :
				 errhint("Use 1 to 63 letters, digits, \"_\", \".\" or \"-\", beginning with a letter or digit.")));
}

static int
compare_generations(const void *a, const void *b)
{
	const Generation *ga = a;
	const Generation *gb = b;
	int			c = strcmp(ga->name, gb->name);

	return c != 0 ? c : (ga->generation > gb->generation) - (ga->generation < gb->generation);
}

Generation *
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

bool
has_generation(const char *name)
{
	int			count;
	Generation *list = list_generations(&count);
	bool		found = false;

	for (int i = 0; i < count; i++)
		found = found || strcmp(list[i].name, name) == 0;
	pfree(list);
	return found;
}

char *
snapshot_path(const Generation *g)
{
	return psprintf("%s/%s@%d%s", RESIDENCY_DIR, g->name, g->generation, SUFFIX);
}

char *
names_path(const Generation *g)
{
	return psprintf("%s/%s@%d%s", RESIDENCY_DIR, g->name, g->generation, NAMES_SUFFIX);
}

char *
temporary_snapshot_path(int pid)
{
	return psprintf("%s.snapshot.%d", RESIDENCY_TEMP_PREFIX, pid);
}

char *
temporary_names_path(int pid)
{
	return psprintf("%s.snapshot.%d%s", RESIDENCY_TEMP_PREFIX, pid, NAMES_SUFFIX);
}

void
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
			 errmsg("snapshot \"%s\" does not exist", name),
			 names.len > 0 ? errhint("The existing snapshots are: %s.", names.data) :
			 errhint("There are no snapshots yet. Call residency_snapshot() to take one.")));
	pg_unreachable();
}

/* --- numbers --- */

/*
 * the highest dropped generation that may be of that name, 0 when there is none; `text` is the
 * file's content or NULL
 */
static int
last_dropped(const char *text, const char *name)
{
	size_t		length = strlen(name);
	int			last = 0;

	for (const char *line = text; line != NULL && *line != '\0';)
	{
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			last = Max(last, atoi(line + length + 1));
		else if (*line == *FORGOTTEN)
			last = Max(last, atoi(line + 2));
		line = strchr(line, '\n');
		if (line != NULL)
			line++;
	}
	return last;
}

void
remember_dropped(const Generation *g)
{
	size_t		size;
	char	   *text = read_whole_file(DROPPED_PATH, &size);
	size_t		length = strlen(g->name);
	int			last = Max(last_dropped(text, g->name), g->generation);
	int			forgotten = 0;
	int			lines = 1;
	StringInfoData now;

	initStringInfo(&now);
	appendStringInfo(&now, "%s %d\n", g->name, last);
	for (const char *line = text; line != NULL && *line != '\0'; lines++)
	{
		const char *end = strchr(line, '\n');

		if (end == NULL)
			break;
		if (*line == *FORGOTTEN || lines >= MOST_DROPPED)
			forgotten = Max(forgotten, atoi(line + strcspn(line, " ")));
		else if (strncmp(line, g->name, length) != 0 || line[length] != ' ')
			appendBinaryStringInfo(&now, line, (int) (end + 1 - line));
		line = end + 1;
	}
	if (forgotten > 0)
		appendStringInfo(&now, FORGOTTEN " %d\n", forgotten);
	write_whole_file(RESIDENCY_TEMP_PREFIX ".snapshot.dropped", DROPPED_PATH, now.data, now.len);
}

int
next_generation(const char *name, const Generation *list, int count)
{
	size_t		size;
	int			last = last_dropped(read_whole_file(DROPPED_PATH, &size), name);

	for (int i = 0; i < count; i++)
		if (strcmp(list[i].name, name) == 0)
			last = Max(last, list[i].generation);
	if (last == PG_INT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("out of generation numbers for snapshot \"%s\"", name),
				 errhint("Use another snapshot name.")));
	return last + 1;
}

bool
generation_remove(const Generation *g)
{
	remove_file(names_path(g));
	return remove_file(snapshot_path(g));
}

void
remove_orphaned_names(void)
{
	DIR		   *d = AllocateDir(RESIDENCY_DIR);
	struct dirent *entry;

	while ((entry = ReadDir(d, RESIDENCY_DIR)) != NULL)
	{
		size_t		length = strlen(entry->d_name);
		size_t		suffix = strlen(NAMES_SUFFIX);
		char	   *snapshot;

		if (length <= suffix || strcmp(entry->d_name + length - suffix, NAMES_SUFFIX) != 0 ||
			strchr(entry->d_name, '@') == NULL)
			continue;
		snapshot =
			psprintf("%s/%.*s%s", RESIDENCY_DIR, (int) (length - suffix), entry->d_name, SUFFIX);
		if (access(snapshot, F_OK) != 0 && errno == ENOENT)
			unlink(psprintf("%s/%s", RESIDENCY_DIR, entry->d_name));
		pfree(snapshot);
	}
	FreeDir(d);
}
