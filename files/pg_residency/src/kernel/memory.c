/*
 * memory.c - how much memory a restore may fill
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096

/* one limit of the memory: the host, or one cgroup */
struct level
{
	uint64_t	total;
	uint64_t	available;
	uint64_t	free;
	uint64_t	dirty;
	uint64_t	active_file;
	uint64_t	others;
};

/* file and key names that differ between the versions of cgroups */
struct cgroup_names
{
	const char *limits[3];
	const char *usage;
	const char *active_file;
	const char *inactive_file;
	const char *dirty;
	const char *writeback;
	const char *mapped;			/* shared memory included */
	const char *shared;
};

/* the part of a cgroup's file cache that may be mapped of files charged to another one */
#define MAPPABLE_SHARE 4

static const struct cgroup_names v1_names = {
	{"memory.limit_in_bytes", NULL, NULL},
	"memory.usage_in_bytes", "total_active_file", "total_inactive_file", "total_dirty",
	"total_writeback", "total_mapped_file", "total_shmem"
};
static const struct cgroup_names v2_names = {
	{"memory.max", "memory.high", NULL},
	"memory.current", "active_file", "inactive_file", "file_dirty", "file_writeback",
	"file_mapped", "shmem"
};

static uint64_t
less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* adopts the level's budget if it is the smallest so far */
static void
consider(struct pc_memory *memory, const struct level *level)
{
	uint64_t	reserve = level->total / 32;
	uint64_t	rest = less(less(level->available, level->dirty), reserve);
	uint64_t	hot = least(level->active_file, rest / 2);
	uint64_t	budget = less(rest - hot, level->others);
	uint64_t	unused = least(rest - hot, less(level->free, reserve));

	if (budget < unused)
		budget = unused;
	if (budget >= memory->budget)
		return;
	memory->available = level->available;
	memory->free = level->free;
	memory->dirty = level->dirty;
	memory->reserve = reserve;
	memory->hot = hot;
	memory->budget = budget;
}

/*
 * the value after a word at the start of a line, "word: 12 kB" or "word 12"; false when the word is
 * missing
 */
static bool
find_value(const char *text, const char *word, uint64_t *value)
{
	size_t		n = strlen(word);

	for (const char *line = text; line != NULL && *line != '\0';)
	{
		if (strncmp(line, word, n) == 0 && (line[n] == ':' || line[n] == ' '))
			return sscanf(line + n + 1, "%" SCNu64, value) == 1;
		line = strchr(line, '\n');
		if (line != NULL)
			line++;
	}
	return false;
}

static bool
read_text(const char *path, char *text, size_t size)
{
	FILE	   *f = fopen(path, "re");
	size_t		n;

	if (f == NULL)
		return false;
	n = fread(text, 1, size - 1, f);
	fclose(f);
	text[n] = '\0';
	return true;
}

/* no limit: "max", which is not a number, and the maximum of version 1 */
static bool
read_limit(const char *directory, const char *name, uint64_t *value)
{
	char		path[PATH_BYTES + 64];
	char		text[64];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return read_text(path, text, sizeof(text)) && sscanf(text, "%" SCNu64, value) == 1 &&
		   *value < UINT64_C(1) << 62;
}

static void
consider_cgroup(struct pc_memory *memory, const char *directory, const struct cgroup_names *names)
{
	char		path[PATH_BYTES + 64];
	char		text[8192];
	struct level level = {.total = PC_NO_LIMIT};
	uint64_t	value;
	uint64_t	usage = 0;
	uint64_t	inactive = 0;
	uint64_t	writeback = 0;
	uint64_t	mapped = 0;
	uint64_t	shared = 0;

	for (int i = 0; names->limits[i] != NULL; i++)
		if (read_limit(directory, names->limits[i], &value))
			level.total = least(level.total, value);
	snprintf(path, sizeof(path), "%s/memory.stat", directory);
	if (level.total == PC_NO_LIMIT || !read_limit(directory, names->usage, &usage) ||
		!read_text(path, text, sizeof(text)))
		return;
	find_value(text, names->active_file, &level.active_file);
	find_value(text, names->inactive_file, &inactive);
	find_value(text, names->dirty, &level.dirty);
	find_value(text, names->writeback, &writeback);
	find_value(text, names->mapped, &mapped);
	find_value(text, names->shared, &shared);
	level.dirty += writeback;
	level.available = less(level.total, less(usage, level.active_file + inactive));
	level.free = less(level.total, usage);
	memory->cgroup_headroom = least(memory->cgroup_headroom, level.available);
	mapped = least(less(mapped, shared), level.active_file + inactive);
	memory->mappable =
		least(memory->mappable,
			  mapped + (level.active_file + inactive - mapped) / MAPPABLE_SHARE);
	consider(memory, &level);
}

/* considers the cgroup of this process and its ancestors, up to the mount point of the hierarchy */
static void
consider_hierarchy(struct pc_memory *memory, const char *mount,
				   const char *mount_root, char *cgroup,
				   const struct cgroup_names *names)
{
	char		directory[PATH_BYTES];
	size_t		root = strlen(mount_root);

	/* in a container the mount may show only a part of the tree, while the path is complete */
	if (strcmp(mount_root, "/") != 0 && strncmp(cgroup, mount_root, root) == 0 &&
		(cgroup[root] == '/' || cgroup[root] == '\0'))
		memmove(cgroup, cgroup + root, strlen(cgroup + root) + 1);
	for (;;)
	{
		char	   *slash = strrchr(cgroup, '/');

		if (snprintf(directory, sizeof(directory), "%s%s", mount, cgroup) < (int) sizeof(directory))
			consider_cgroup(memory, directory, names);
		if (slash == NULL)
			break;
		*slash = '\0';
	}
}

/*
 * the cgroup of this process in the memory hierarchy: "9:memory:/path", or "0::/path" for version 2
 */
static bool
find_cgroup(const char *text, bool v2, char *cgroup)
{
	for (const char *line = text; line != NULL && *line != '\0';)
	{
		char		controllers[256] = "";
		int			path = 0;
		bool		found;

		if (v2)
			found = sscanf(line, "0::%n", &path) == 0 && path > 0;
		else
			found = sscanf(line, "%*u:%255[^:]:%n", controllers, &path) == 1 && path > 0 &&
				strstr(controllers, "memory") != NULL;
		if (found)
		{
			size_t		n = strcspn(line + path, "\n");

			if (n >= PATH_BYTES)
				return false;
			memcpy(cgroup, line + path, n);
			cgroup[n] = '\0';
			return true;
		}
		line = strchr(line, '\n');
		if (line != NULL)
			line++;
	}
	return false;
}

static void
consider_cgroups(struct pc_memory *memory, const char *root)
{
	char		path[PATH_BYTES];
	char		mine[PATH_BYTES * 2];
	char		line[PATH_BYTES * 2];
	FILE	   *mounts;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	if (!read_text(path, mine, sizeof(mine)))
		return;
	snprintf(path, sizeof(path), "%s/proc/self/mountinfo", root);
	mounts = fopen(path, "re");
	if (mounts == NULL)
		return;
	while (fgets(line, sizeof(line), mounts) != NULL)
	{
		/* id parent major:minor root mount-point options... - type source super-options */
		char		mount_root[1024];
		char		mount_point[1024];
		char		mount[PATH_BYTES];
		char		cgroup[PATH_BYTES];
		char		type[32];
		char		options[1024];
		char	   *tail = strstr(line, " - ");
		bool		v2;

		if (tail == NULL ||
			sscanf(line, "%*u %*u %*s %1023s %1023s", mount_root, mount_point) != 2 ||
			sscanf(tail, " - %31s %*s %1023s", type, options) != 2)
			continue;
		v2 = strcmp(type, "cgroup2") == 0;
		if (!v2 && (strcmp(type, "cgroup") != 0 || strstr(options, "memory") == NULL))
			continue;
		if (!find_cgroup(mine, v2, cgroup))
			continue;
		snprintf(mount, sizeof(mount), "%s%s", root, mount_point);
		consider_hierarchy(memory, mount, mount_root, cgroup, v2 ? &v2_names : &v1_names);
	}
	fclose(mounts);
}

int
pc_memory_read(const char *root, uint64_t others, struct pc_memory *memory)
{
	char		path[PATH_BYTES];
	char		text[8192];
	struct level host = {.others = others};
	uint64_t	writeback = 0;

	*memory = (struct pc_memory) {
		.budget = PC_NO_LIMIT, .cgroup_headroom = PC_NO_LIMIT, .mappable = PC_NO_LIMIT
	};
	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	if (!read_text(path, text, sizeof(text)))
		return -errno;
	if (!find_value(text, "MemTotal", &host.total) ||
		!find_value(text, "MemAvailable", &host.available))
		return -EINVAL;
	find_value(text, "MemFree", &host.free);
	find_value(text, "Active(file)", &host.active_file);
	find_value(text, "Dirty", &host.dirty);
	find_value(text, "Writeback", &writeback);
	host.total *= 1024;
	host.available *= 1024;
	host.free *= 1024;
	host.active_file *= 1024;
	host.dirty = (host.dirty + writeback) * 1024;
	memory->host_available = host.available;
	consider(memory, &host);
	consider_cgroups(memory, root);
	return 0;
}
