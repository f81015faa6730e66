/*
 * settings.h - the configuration parameters of a preloaded library
 */
#ifndef RESIDENCY_SETTINGS_H
#define RESIDENCY_SETTINGS_H

#include "postgres.h"

#define AUTOSAVE_ONLY_AT_SHUTDOWN 0
#define AUTOSAVE_OFF (-1)

extern int	setting_autosave;	/* seconds between two saves, or one of the above */
extern int	setting_autosave_keep;	/* generations */

/* Only while the postmaster loads the libraries of shared_preload_libraries. */
extern void define_settings(void);

#endif
