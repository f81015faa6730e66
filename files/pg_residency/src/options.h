/*
 * options.h - the options of a restore
 */
#ifndef RESIDENCY_OPTIONS_H
#define RESIDENCY_OPTIONS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

/* the options that a job records; sizes in bytes, times in seconds */
typedef struct JobSettings
{
	int64		budget;			/* upper bound; 0: limited by the available memory alone */
	int64		rate;			/* per second; 0: no limit */
	int32		time_limit;		/* 0: none */
	int32		turn_wait;		/* for a restore of another operating system user's cluster */
	int32		gap_blocks;		/* -1: measured for each device */
	/* percent of time that a process may wait for a disk; 0: not measured */
	int32		max_io_pressure;
	bool		aggressive;
	bool		shared_buffers; /* refill them too */
	TimestampTz hold_until;		/* 0: the job ends when it has restored */
	int32		hold_interval;	/* between two counts */
	bool		unattended;		/* nobody asked for it: it ends for a job that somebody asks for */
} JobSettings;

typedef struct JobOptions
{
	JobSettings settings;
	bool		selected;		/* only these segments, in this order */
	int64	   *segments;		/* their numbers in the snapshot */
	int			nsegments;
	/* tablespace, database and relfilenumber of each relation */
	int64	   *whole;
	int			nwhole;			/* length of `whole` */
} JobOptions;

extern const JobSettings default_settings;

/*
 * Reads the JSON object; an option that is not in it has the value of default_settings.  NULL means
 * no options.
 */
extern void read_options(Jsonb *json, JobOptions *options);

#endif
