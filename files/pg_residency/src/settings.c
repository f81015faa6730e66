/*
 * settings.c - the configuration parameters of a preloaded library
 */
#include "settings.h"

#include "compat.h"
#include "generations.h"
#include "utils/guc.h"

int			setting_autosave;
int			setting_autosave_keep;
int			setting_autorestore;
char	   *setting_autorestore_snapshot;
int			setting_rate;
int			setting_budget;
int			setting_max_io_pressure;
int			setting_hold;

/* the longest hold, as in options.c; seconds */
#define LONGEST_HOLD (7 * SECS_PER_DAY)

static const struct config_enum_entry autorestore_values[] = {
	{"off", AUTORESTORE_OFF, false},
	{"page_cache", AUTORESTORE_PAGE_CACHE, false},
	{"both", AUTORESTORE_BOTH, false},
	{NULL, 0, false}
};

static bool
check_snapshot(char **value, void **extra, GucSource source)
{
	Generation	g;

	if (**value == '\0' || try_parse_name(*value, &g, true))
		return true;
	GUC_check_errdetail("It must be the name of a snapshot, or name@generation.");
	return false;
}

void
define_settings(void)
{
	DefineCustomIntVariable(
		"pg_residency.autosave", "Time between two snapshots of what both caches hold.",
		"0 takes one only when the server shuts down, -1 takes none.", &setting_autosave, 300,
		AUTOSAVE_OFF, INT_MAX / 1000, PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_residency.autosave_keep",
							"Number of these snapshots that stay, besides the fullest one.", NULL,
							&setting_autosave_keep, 3, 1, 1000, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("pg_residency.autorestore",
							 "What is restored when the server starts.", NULL,
							 &setting_autorestore, AUTORESTORE_PAGE_CACHE, autorestore_values,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomStringVariable(
		"pg_residency.autorestore_snapshot", "The snapshot that is restored then.",
		"Empty: the server's own.", &setting_autorestore_snapshot, "", PGC_SIGHUP, 0,
		check_snapshot, NULL, NULL);
	DefineCustomIntVariable("pg_residency.rate", "Bytes a second that this restore reads at most.",
							"0: no limit.", &setting_rate, 0, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_KB,
							NULL, NULL, NULL);
	DefineCustomIntVariable(
		"pg_residency.budget", "Bytes that this restore adds to the page cache at most.",
		"0: as much as there is memory that nobody needs, which limits it in any case.",
		&setting_budget, 0, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"pg_residency.max_io_pressure",
		"Percent of the time that processes may wait for disks before this restore slows down.",
		"0: not measured.", &setting_max_io_pressure, 0, 0, 100, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pg_residency.hold",
							"Time after its start for which this restore holds what it restores.",
							"0: it ends when it has restored.", &setting_hold, 0, 0, LONGEST_HOLD,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	MarkGUCPrefixReserved("pg_residency");
}
