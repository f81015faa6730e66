/*
 * autorestore.h - restores a snapshot when the server starts, by a job like any other
 */
#ifndef RESIDENCY_AUTORESTORE_H
#define RESIDENCY_AUTORESTORE_H

#include "postgres.h"

/*
 * Starts the restore that the settings want; `own` is the name of the snapshots that this server
 * saves.  Returns the number of its job.  0: none, and the log has the reason if there is one.
 */
extern int	autorestore_start(const char *own);

/*
 * Whether that job still restores, or was interrupted just now, perhaps by a shutdown.  What it
 * holds afterwards does not count.
 */
extern bool autorestore_runs(int job);

/* To be called when the server has survived it: no further start counts this one as died. */
extern void autorestore_survived(void);

#endif
