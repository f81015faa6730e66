/*
 * options.c - the options of a restore
 */
#include "options.h"

#include <unistd.h>

#include "compat.h"
#include "utils/builtins.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

const JobSettings default_settings = {.turn_wait = 300, .gap_blocks = -1, .hold_interval = 10};

/* the longest hold, seconds */
#define LONGEST_HOLD (7 * SECS_PER_DAY)

/* the value of an option that must be an integer */
static int64
option_count(const char *key, const JsonbValue *value, int64 least, int64 most, bool element)
{
	bool		fits = false;
	int64		n = 0;

	if (value->type == jbvNumeric)
	{
		Datum rounded = DirectFunctionCall2(numeric_round, NumericGetDatum(value->val.numeric),
											Int32GetDatum(0));
		Datum		low = DirectFunctionCall1(int8_numeric, Int64GetDatum(least));
		Datum		high = DirectFunctionCall1(int8_numeric, Int64GetDatum(most));

		fits = DatumGetBool(DirectFunctionCall2(numeric_eq, rounded,
												NumericGetDatum(value->val.numeric))) &&
			   DatumGetBool(DirectFunctionCall2(numeric_ge, rounded, low)) &&
			   DatumGetBool(DirectFunctionCall2(numeric_le, rounded, high));
		if (fits)
			n = DatumGetInt64(DirectFunctionCall1(numeric_int8, rounded));
	}
	if (!fits)
		ereport(
			ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 element ?
				 errmsg("each element of option \"%s\" must be an integer between " INT64_FORMAT
						" and " INT64_FORMAT,
						key, least, most) :
				 errmsg("option \"%s\" must be an integer between " INT64_FORMAT
						" and " INT64_FORMAT,
						key, least, most)));
	return n;
}

static bool
option_bool(const char *key, const JsonbValue *value)
{
	if (value->type != jbvBool)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" must be true or false", key)));
	return value->val.boolean;
}

static TimestampTz
option_time(const char *key, const JsonbValue *value)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz time = 0;

	if (value->type == jbvString)
		time = DatumGetTimestampTz(DirectFunctionCall3(
			timestamptz_in, CStringGetDatum(pnstrdup(value->val.string.val, value->val.string.len)),
			ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	if (time <= now || time > now + (TimestampTz) LONGEST_HOLD * USECS_PER_SEC)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" must be a time within the next 7 days", key)));
	return time;
}

/*
 * the numbers of an array, or of an array of arrays of `width` numbers, in one list; sets `count`
 * to its length
 */
static int64 *
option_numbers(const char *key, JsonbValue *value, int width, int64 most, int *count)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	v;
	int			room = 64;
	int64	   *numbers = palloc(room * sizeof(int64));
	int			depth = 0;
	bool		fits = value->type == jbvBinary;

	*count = 0;
	it = fits ? JsonbIteratorInit(value->val.binary.data) : NULL;
	while (fits && (token = JsonbIteratorNext(&it, &v, false)) != WJB_DONE)
	{
		if (token == WJB_BEGIN_ARRAY)
			fits = ++depth <= (width > 1 ? 2 : 1) && *count % width == 0;
		else if (token == WJB_END_ARRAY)
			fits = --depth >= 0 && *count % width == 0;
		else if (token == WJB_ELEM && depth == (width > 1 ? 2 : 1))
		{
			if (*count == room)
				numbers = repalloc_huge(numbers, (room *= 2) * sizeof(int64));
			numbers[(*count)++] = option_count(key, &v, width > 1 ? 0 : 1, most, true);
		}
		else
			fits = false;
	}
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 width > 1 ? errmsg("option \"%s\" must be an array of arrays of %d numbers", key,
									width) :
							 errmsg("option \"%s\" must be an array of numbers", key)));
	return numbers;
}

static void
report_unknown_option(const char *key)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized option \"%s\"", key),
			 errhint("Valid options are \"budget\" (bytes), \"rate\" (bytes per second), "
					 "\"time_limit\" (seconds), \"turn_wait\" (seconds), "
					 "\"segments\" (numbers of the snapshot's segments), \"whole\" (arrays of tablespace, database and relfilenumber), "
					 "\"shared_buffers\" (true to fill them too), "
					 "\"aggressive\" (true to use the full bandwidth), "
					 "\"max_io_pressure\" (percent), \"gap_blocks\" (blocks), "
					 "\"hold_until\" (a time) and \"hold_interval\" (seconds).")));
}

static void
read_option(const char *key, JsonbValue *value, JobOptions *options)
{
	JobSettings *s = &options->settings;

	if (strcmp(key, "budget") == 0)
		s->budget = option_count(key, value, 1, PG_INT64_MAX, false);
	else if (strcmp(key, "rate") == 0)
		s->rate = option_count(key, value, 1, PG_INT64_MAX, false);
	else if (strcmp(key, "time_limit") == 0)
		s->time_limit = (int32) option_count(key, value, 1, PG_INT32_MAX, false);
	else if (strcmp(key, "turn_wait") == 0)
		s->turn_wait = (int32) option_count(key, value, 0, PG_INT32_MAX, false);
	else if (strcmp(key, "gap_blocks") == 0)
		s->gap_blocks = (int32) option_count(key, value, 0, RELSEG_SIZE, false);
	else if (strcmp(key, "max_io_pressure") == 0)
		s->max_io_pressure = (int32) option_count(key, value, 1, 100, false);
	else if (strcmp(key, "aggressive") == 0)
		s->aggressive = option_bool(key, value);
	else if (strcmp(key, "shared_buffers") == 0)
		s->shared_buffers = option_bool(key, value);
	else if (strcmp(key, "hold_until") == 0)
		s->hold_until = option_time(key, value);
	else if (strcmp(key, "hold_interval") == 0)
		s->hold_interval = (int32) option_count(key, value, 1, SECS_PER_HOUR, false);
	else if (strcmp(key, "segments") == 0)
	{
		options->segments = option_numbers(key, value, 1, PG_INT32_MAX, &options->nsegments);
		options->selected = true;
	}
	else if (strcmp(key, "whole") == 0)
		options->whole = option_numbers(key, value, 3, PG_UINT32_MAX, &options->nwhole);
	else
		report_unknown_option(key);
}

void
read_options(Jsonb *json, JobOptions *options)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	v;
	char	   *key = NULL;

	memset(options, 0, sizeof(*options));
	options->settings = default_settings;
	if (json == NULL)
		return;
	if (!JB_ROOT_IS_OBJECT(json))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("options must be a JSON object")));
	it = JsonbIteratorInit(&json->root);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_KEY)
			key = pnstrdup(v.val.string.val, v.val.string.len);
		else if (token == WJB_VALUE)
			read_option(key, &v, options);
	if (options->settings.hold_interval != default_settings.hold_interval &&
		options->settings.hold_until == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"hold_interval\" requires option \"hold_until\"")));
	if (options->settings.max_io_pressure > 0 && access("/proc/pressure/io", R_OK) != 0)
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("option \"max_io_pressure\" requires file \"/proc/pressure/io\": %m"),
			 errhint(
				 "Use option \"rate\" instead, or boot the kernel with psi=1.")));
}
