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

/* generations that are restored together: each is in memory as a whole */
#define MOST_GENERATIONS 16

/* milliseconds from the end of a job by a shutdown until the worker learns of that, at most */
#define SHUTDOWN_PATIENCE 5000

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
	if (unlink(DIED_PATH) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", DIED_PATH)));
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
	/* a standby, and what pg_rewind has made one, may replay a later one than its checkpoint's */
	if (valid)
		here.timeline = Max(control->checkPointCopy.ThisTimeLineID, control->minRecoveryPointTLI);
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

/* the usable generations that are restored together */
typedef struct Chosen
{
	ResidencySnapshot *snapshots;	/* the best first */
	int		   *ages;			/* how many of them are newer */
	int			count;
} Chosen;

/*
 * The usable generations of that name, the newest first, or the one that it means.  Of those for
 * which there is no room, the best takes the last place: it may be the full one behind many thin
 * ones.
 */
static Chosen
read_usable(const Generation *wanted, const Here *here)
{
	int			count;
	Generation *list = list_generations(&count);
	Chosen		usable = {palloc(MOST_GENERATIONS * sizeof(ResidencySnapshot)), NULL, 0};
	ResidencySnapshot *last = &usable.snapshots[MOST_GENERATIONS - 1];

	for (int i = count - 1; i >= 0; i--)
	{
		ResidencySnapshot snapshot;

		CHECK_FOR_INTERRUPTS();
		if (strcmp(list[i].name, wanted->name) != 0 ||
			(wanted->generation != 0 && wanted->generation != list[i].generation) ||
			!snapshot_read(&list[i], &snapshot))
			continue;
		if (snapshot.problem != NULL)
			ereport(LOG,
					(errmsg("skipped snapshot \"%s\": %s", snapshot.label, snapshot.problem)));
		else if (usable.count < MOST_GENERATIONS)
		{
			usable.snapshots[usable.count++] = snapshot;
			continue;
		}
		else if (is_better(&snapshot.header, &last->header, here))
		{
			ResidencySnapshot worse = *last;

			*last = snapshot;
			snapshot = worse;
		}
		if (snapshot.data != NULL)
			pfree(snapshot.data);
	}
	return usable;
}

/* whether they belong together: a forced one has ended what was before it */
static bool
belongs_to(const struct sf_header *one, const struct sf_header *best, const Here *here)
{
	return strcmp(one->origin, best->origin) == 0 && one->generation >= best->measured_from &&
		(one->timeline <= here->timeline) == (best->timeline <= here->timeline);
}

/*
 * The best usable generation of that name, and if it is the server's own, the others of that host
 * and timeline: one of a quiet night has the hottest blocks, one of the day before has all.
 */
static Chosen
choose(const Generation *wanted, bool own, const Here *here)
{
	Chosen		chosen = read_usable(wanted, here);
	ResidencySnapshot *all = chosen.snapshots;
	int			usable = chosen.count;

	for (int i = 1; i < usable; i++)
		if (is_better(&all[i].header, &all[0].header, here))
		{
			ResidencySnapshot best = all[i];

			all[i] = all[0];
			all[0] = best;
		}
	chosen.count = Min(usable, 1);
	for (int i = 1; own && i < usable; i++)
		if (belongs_to(&all[i].header, &all[0].header, here))
			all[chosen.count++] = all[i];
	chosen.ages = palloc0(Max(chosen.count, 1) * sizeof(int));
	for (int i = 0; i < chosen.count; i++)
		for (int k = 0; k < chosen.count; k++)
			chosen.ages[i] += all[k].header.taken_at > all[i].header.taken_at;
	return chosen;
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

	settings.unattended = true;
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

/* the log line of a restore that has begun */
static void
tell(int job, const Chosen *chosen, const RestorePlan *plan, const Here *here)
{
	const struct sf_header *header = &chosen->snapshots[0].header;
	char	   *others = chosen->count == 1 ? "" :
		psprintf(" and %d other%s", chosen->count - 1, chosen->count > 2 ? "s" : "");

	ereport(LOG,
			(errmsg("restoring snapshot \"%s\"%s by job %d: " INT64_FORMAT " MB, "
					"taken at %s on host \"%s\", timeline %u",
					plan->label, others, job, plan->wanted * BLCKSZ / (1024 * 1024),
					timestamptz_to_str(header->taken_at - (POSTGRES_EPOCH_JDATE -
														   UNIX_EPOCH_JDATE) * USECS_PER_DAY),
					header->origin, header->timeline),
			 strcmp(header->origin, here->host) == 0 && header->timeline <= here->timeline ? 0 :
				 errdetail("This is host \"%s\", timeline %u, which has no usable snapshot of its own.",
						   here->host, here->timeline)));
}

int
autorestore_start(const char *own)
{
	bool		is_own = *setting_autorestore_snapshot == '\0';
	const char *name = is_own ? own : setting_autorestore_snapshot;
	JobSettings settings;
	RestorePlan *plan;
	Generation	wanted;
	Chosen		chosen;
	Here		here;
	int			died;
	int			job;

	if (setting_autorestore == AUTORESTORE_OFF)
		return 0;
	here = find_here();
	parse_name(name, &wanted, true);
	died = deaths();
	if (died >= MOST_DEATHS)
	{
		ereport(LOG,
				(errmsg("restoring nothing: the server has died %d times in a row "
						"while it restored snapshot \"%s\" at its start",
						died, name),
				 errhint("residency_restore_start('%s') restores it. After a start that survives, the next one restores again.",
						 name)));
		return 0;
	}
	/* to read the snapshots may be what it dies of */
	if (has_generation(wanted.name))
		count_death(died + 1);
	chosen = choose(&wanted, is_own, &here);
	if (chosen.count == 0)
	{
		/* without one of its own, the server has not run long enough to save */
		if (!is_own)
			ereport(LOG, (errmsg("restoring nothing: there is no usable snapshot \"%s\"", name)));
		return 0;
	}
	settings = job_settings();
	plan = job_plan_merged(chosen.snapshots, chosen.ages, chosen.count);
	job = job_start(plan, &settings);
	tell(job, &chosen, plan, &here);
	return job;
}

bool
autorestore_runs(int number)
{
	Job			job;

	if (number == 0 || !job_try_read(number, &job))
		return false;
	if (job.state == JOB_INTERRUPTED)
		return !TimestampDifferenceExceeds(job.finished_at, GetCurrentTimestamp(),
										   SHUTDOWN_PATIENCE);
	return job_is_alive(&job) && job.state != JOB_HOLDING;
}
