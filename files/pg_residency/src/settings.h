/*
 * settings.h - the configuration parameters of a preloaded library
 */
#ifndef RESIDENCY_SETTINGS_H
#define RESIDENCY_SETTINGS_H

#include "postgres.h"

#define AUTOSAVE_ONLY_AT_SHUTDOWN 0
#define AUTOSAVE_OFF (-1)

typedef enum Autorestore
{
	AUTORESTORE_OFF,
	AUTORESTORE_PAGE_CACHE,
	AUTORESTORE_BOTH
} Autorestore;

extern int	setting_autosave;	/* seconds between two saves, or one of the above */
extern int	setting_autosave_keep;	/* generations */
extern int	setting_autorestore;	/* an Autorestore */
extern char *setting_autorestore_snapshot;	/* name or name@generation; empty: the worker's own */
/* of the restore at the server's start, as in JobSettings */
extern int	setting_rate;		/* KiB a second */
extern int	setting_budget;		/* MiB */
extern int	setting_max_io_pressure;
extern int	setting_hold;		/* seconds after the start of the restore; 0: none */

/* Only while the postmaster loads the libraries of shared_preload_libraries. */
extern void define_settings(void);

#endif
