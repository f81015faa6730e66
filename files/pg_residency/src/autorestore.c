/*
 * autorestore.c - restores a snapshot when the server starts, by a job like any other
 *
 * The file DIED_PATH has the number of starts in a row that died while they restored, the current
 * one included.  After MOST_DEATHS the next start does not restore.
 */
#include "autorestore.h"

#include <unistd.h>

#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "directory.h"
#include "restore_worker.h"
#include "settings.h"

#define DIED_PATH RESIDENCY_TEMP_PREFIX ".died"
#define MOST_DEATHS 2

/* --- starts that died --- */

static int
deaths(void)
{
	size_t		size;
	char	   *text = read_whole_file(DIED_PATH, &size);

	return text != NULL ? atoi(text) : 0;
}

static void
count_death(int deaths)
{
	char		text[16];

	snprintf(text, sizeof(text), "%d\n", deaths);
	write_whole_file(DIED_PATH ".new", DIED_PATH, text, strlen(text));
}

void
autorestore_survived(void)
{
	(void) remove_file(DIED_PATH);
}

/* --- which snapshot --- */

/* where and when this server starts */
typedef struct Here
{
	char		host[SF_ORIGIN_BYTES];
	TimeLineID	timeline;
} Here;

static Here
find_here(void)
{
	Here		here = {0};
	bool		valid;
	ControlFileData *control = get_controlfile(DataDir, &valid);

	if (gethostname(here.host, sizeof(here.host) - 1) != 0)
		here.host[0] = '\0';
	here.timeline = valid ? control->checkPointCopy.ThisTimeLineID : 0;
	pfree(control);
	return here;
}

/*
 * A clone, a restored backup and pg_rewind bring the snapshots of another host, which has another
 * working set; a recovery to an earlier time leaves those of a later timeline.
 */
static bool
is_better(const struct sf_header *a, const struct sf_header *b, const Here *here)
{
	bool		own_a = strcmp(a->origin, here->host) == 0;
	bool		own_b = strcmp(b->origin, here->host) == 0;
	bool		past_a = a->timeline <= here->timeline;
	bool		past_b = b->timeline <= here->timeline;
	bool		full_a = !(a->flags & SF_FLAG_THIN);
	bool		full_b = !(b->flags & SF_FLAG_THIN);

	if (own_a != own_b)
		return own_a;
	if (past_a != past_b)
		return past_a;
	if (full_a != full_b)
		return full_a;
	return a->taken_at > b->taken_at;
}

/* the best usable generation of that name, or the one that it means; false when there is none */
static bool
choose(const Generation *wanted, const Here *here, struct sf_header *best)
{
	int			count;
	Generation *list = list_generations(&count);
	bool		found = false;

	for (int i = 0; i < count; i++)
	{
		ResidencySnapshot snapshot;

		if (strcmp(list[i].name, wanted->name) != 0 ||
			(wanted->generation != 0 && wanted->generation != list[i].generation) ||
			!snapshot_read(&list[i], &snapshot))
			continue;
		if (snapshot.problem != NULL)
			ereport(LOG,
					(errmsg("skipped snapshot \"%s\": %s", snapshot.label, snapshot.problem)));
		else if (!found || is_better(&snapshot.header, best, here))
		{
			*best = snapshot.header;
			found = true;
		}
		if (snapshot.data != NULL)
			pfree(snapshot.data);
	}
	return found;
}

/* --- the restore --- */

/* shared buffers are filled by autoprewarm then, and not twice */
static bool
autoprewarm_fills_buffers(void)
{
	const char *value = GetConfigOption("pg_prewarm.autoprewarm", true, false);

	return value != NULL && strcmp(value, "on") == 0 && shared_preload_libraries_string != NULL &&
		strstr(shared_preload_libraries_string, "pg_prewarm") != NULL;
}

static JobSettings
job_settings(void)
{
	JobSettings settings = default_settings;

	settings.rate = (int64) setting_rate * 1024;
	settings.budget = (int64) setting_budget * 1024 * 1024;
	settings.max_io_pressure = setting_max_io_pressure;
	settings.shared_buffers = setting_autorestore == AUTORESTORE_BOTH;
	if (settings.shared_buffers && autoprewarm_fills_buffers())
	{
		ereport(LOG, (errmsg("restoring the page cache only: autoprewarm fills shared buffers")));
		settings.shared_buffers = false;
	}
	if (setting_hold > 0)
		settings.hold_until = GetCurrentTimestamp() + (TimestampTz) setting_hold * USECS_PER_SEC;
	return settings;
}

int
autorestore_start(const char *own)
{
	const char *name = *setting_autorestore_snapshot ? setting_autorestore_snapshot : own;
	JobOptions	options = {0};
	Here		here = find_here();
	struct sf_header header;
	Generation	wanted;
	char		label[LABEL_BYTES];
	int			died = deaths();
	int			job;

	if (setting_autorestore == AUTORESTORE_OFF)
		return 0;
	parse_name(name, &wanted, true);
	if (!choose(&wanted, &here, &header))
	{
		/* without one of its own, the server has not run long enough to save */
		if (name != own)
			ereport(LOG, (errmsg("restoring nothing: there is no usable snapshot \"%s\"", name)));
		return 0;
	}
	snprintf(label, sizeof(label), "%s@%u", header.name, header.generation);
	if (died >= MOST_DEATHS)
	{
		ereport(LOG,
				(errmsg("restoring nothing: the server has died %d times in a row "
						"while it restored snapshot \"%s\" at its start",
						died, label),
				 errhint("residency_restore_start('%s') restores it. The next start of a server that this one has survived restores again.",
						 label)));
		return 0;
	}
	count_death(died + 1);
	options.settings = job_settings();
	job = job_start(job_plan(label, &options), &options.settings);
	ereport(LOG,
			(errmsg("restoring snapshot \"%s\" by job %d: " UINT64_FORMAT " MB, "
					"taken at %s on host \"%s\", timeline %u",
					label, job, header.wanted * BLCKSZ / (1024 * 1024),
					timestamptz_to_str(header.taken_at - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) *
									   USECS_PER_DAY),
					header.origin, header.timeline),
			 strcmp(header.origin, here.host) == 0 && header.timeline <= here.timeline ? 0 :
				 errdetail("This is host \"%s\", timeline %u, which has no usable snapshot of its own.",
						   here.host, here.timeline)));
	return job;
}

bool
autorestore_runs(int number)
{
	Job			job;

	return number != 0 && job_try_read(number, &job) && job_is_alive(&job) &&
		job.state != JOB_HOLDING;
}
