/*
 * settings.c - the configuration parameters of a preloaded library
 */
#include "settings.h"

#include "compat.h"
#include "utils/guc.h"

int			setting_autosave;
int			setting_autosave_keep;

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
	MarkGUCPrefixReserved("pg_residency");
}
