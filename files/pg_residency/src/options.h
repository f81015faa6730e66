/*
 * options.h - what a restore is asked for
 */
#ifndef RESIDENCY_OPTIONS_H
#define RESIDENCY_OPTIONS_H

#include "postgres.h"

#include "utils/jsonb.h"

/* what a job keeps of them; sizes in bytes, times in seconds */
typedef struct JobSettings
{
	int64		budget;			/* at most; 0: whatever there is memory for */
	int64		rate;			/* per second; 0: no limit */
	int32		time_limit;		/* 0: none */
	int32		turn_wait;		/* for a restore of another operating system user's cluster */
	int32		gap_blocks;		/* -1: what the device makes worthwhile */
	/* percent of time that a process waits for a disk; 0: not looked at */
	int32		max_io_pressure;
	bool		aggressive;
	bool		shared_buffers; /* are to be filled again too */
} JobSettings;

typedef struct JobOptions
{
	JobSettings settings;
	bool		selected;		/* only these segments, in this order */
	int64	   *segments;		/* their numbers in the snapshot */
	int			nsegments;
	/* tablespace, database, relfilenumber, one relation behind another */
	int64	   *whole;
	int			nwhole;			/* numbers */
} JobOptions;

extern const JobSettings default_settings;

/* Reads the JSON object; what is not in it is default_settings'.  NULL means no options. */
extern void read_options(Jsonb *json, JobOptions *options);

#endif
