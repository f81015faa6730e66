/*
 * snapshot.c - finds and reads snapshots
 */
#include "snapshot.h"

#include "access/xlog.h"
#include "miscadmin.h"

#include "compat.h"
#include "directory.h"
#include "interrupts.h"

#define DAMAGED "damaged: "

/* the reason why a readable snapshot cannot be used in this cluster; NULL when it can */
static const char *
foreign_reason(const struct sf_header *header)
{
	if (header->system_identifier != GetSystemIdentifier())
		return psprintf("taken on another cluster, with system identifier " UINT64_FORMAT
						" (this cluster has " UINT64_FORMAT ")",
						header->system_identifier, GetSystemIdentifier());
	if (header->block_size != BLCKSZ || header->segment_blocks != RELSEG_SIZE)
		return "taken on a server with another block or segment size";
	return NULL;
}

/*
 * The cheap checks come first: whether the header belongs to this cluster, before the content is
 * checked.
 */
bool
snapshot_read(const Generation *g, ResidencySnapshot *snapshot)
{
	const char *wrong;
	int			error;

	memset(snapshot, 0, sizeof(*snapshot));
	snapshot->id = *g;
	snprintf(snapshot->label, sizeof(snapshot->label), "%s@%d", g->name, g->generation);
	snapshot->data = (uint8 *) try_read_whole_file(snapshot_path(g), &snapshot->size, &error);
	if (snapshot->data == NULL && error != 0)
	{
		snapshot->unknown = true;
		snapshot->problem = psprintf("could not read the file: %s", strerror(error));
		return true;
	}
	if (snapshot->data == NULL)
		return false;
	wrong = sf_read_header(snapshot->data, snapshot->size, &snapshot->header);
	if (wrong == NULL)
		snapshot->problem = foreign_reason(&snapshot->header);
	if (wrong == NULL && snapshot->problem == NULL)
		wrong = sf_check(snapshot->data, snapshot->size, &snapshot->header, check_for_interrupts);
	if (wrong != NULL)
	{
		snapshot->damaged = true;
		snapshot->problem = psprintf(DAMAGED "%s", wrong);
	}
	return true;
}

int
current_generation(const char *name, const Generation *list, int count)
{
	int			newest = 0;
	int			usable = 0;

	for (int i = count - 1; i >= 0; i--)
	{
		ResidencySnapshot snapshot;

		if (strcmp(list[i].name, name) != 0 || !snapshot_read(&list[i], &snapshot))
			continue;
		if (snapshot.data != NULL)
			pfree(snapshot.data);
		if (newest == 0)
			newest = list[i].generation;
		if (snapshot.problem != NULL)
			continue;
		if (!(snapshot.header.flags & SF_FLAG_THIN))
			return list[i].generation;
		if (usable == 0)
			usable = list[i].generation;
	}
	return usable != 0 ? usable : newest;
}

static Generation
find_generation(const char *name)
{
	Generation	g;
	int			count;

	parse_name(name, &g, true);
	if (g.generation == 0)
	{
		Generation *list = list_generations(&count);

		g.generation = current_generation(g.name, list, count);
		pfree(list);
	}
	return g;
}

ResidencySnapshot *
snapshot_load(const char *name)
{
	ResidencySnapshot *snapshot = palloc(sizeof(ResidencySnapshot));
	Generation	g = find_generation(name);

	if (g.generation == 0 || !snapshot_read(&g, snapshot))
		report_unknown(name);
	if (snapshot->damaged)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("snapshot \"%s\" is damaged: %s", snapshot->label,
						snapshot->problem + strlen(DAMAGED)),
				 errhint("Remove it with residency_drop_snapshot('%s') and take a new snapshot.",
						 snapshot->label)));
	if (snapshot->problem != NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot use snapshot \"%s\" in this cluster: %s", snapshot->label,
					snapshot->problem),
			 errhint(
				 "Take a snapshot on this cluster, or copy one from a physical replica of it.")));
	return snapshot;
}

struct sf_segment *
snapshot_segments(const ResidencySnapshot *snapshot)
{
	struct sf_segment *segments;
	size_t		at = 0;

	segments = palloc_extended(Max(snapshot->header.segments, 1) * sizeof(struct sf_segment),
							   MCXT_ALLOC_HUGE);
	for (uint32 i = 0; i < snapshot->header.segments; i++)
		if (!sf_next_segment(snapshot->data, &snapshot->header, &at, &segments[i]))
			elog(ERROR, "snapshot \"%s\" has fewer segments than its header states", snapshot->label);
	return segments;
}
