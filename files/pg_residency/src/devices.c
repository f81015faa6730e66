/*
 * devices.c - the devices that a restore reads from
 */
#include "devices.h"

#include "host_ledger.h"
#include "kernel/device.h"

Device *
device_numbered(Devices *devices, dev_t number)
{
	Device	   *device = devices->list;

	while (device < devices->list + devices->count && device->number != number)
		device++;
	if (device == devices->list + MAX_DEVICES)
		return device - 1;
	if (device == devices->list + devices->count)
	{
		devices->count++;
		device->number = number;
		device->request_bytes = pc_device_request_bytes(number);
		if (!host_device_speed(number, &device->speed))
			device->speed.requests = 0;
	}
	return device;
}

void
await_any_device(Devices *devices)
{
	struct pc_flight *oldest = NULL;

	for (int i = 0; i < devices->count; i++)
	{
		struct pc_flight *flight = &devices->list[i].flight;

		if (flight->count > 0 &&
			(oldest == NULL ||
			 flight->requests[flight->first].sent_at < oldest->requests[oldest->first].sent_at))
			oldest = flight;
	}
	if (oldest != NULL)
		pc_await_oldest(oldest);
}

static const char *const io_class_names[] = {"", "idle", "normal", "mixed"};

StaticAssertDecl(lengthof(io_class_names) == LAST_IO_CLASS + 1, "every class must have a name");

const char *
io_class_name(IoClass io_class)
{
	return io_class_names[io_class];
}

/* appends the name, unless it is contained or does not fit */
static void
add_name(char *names, const char *name)
{
	size_t		length = strlen(name);
	size_t		used = strlen(names);

	/* an empty name is contained everywhere, and the search would not advance */
	if (length == 0)
		return;
	for (const char *at = names; (at = strstr(at, name)) != NULL; at += length)
		if ((at == names || at[-1] == ' ') && (at[length] == '\0' || at[length] == ','))
			return;
	if (used + length + 3 <= SCHEDULERS_BYTES)
		snprintf(names + used, SCHEDULERS_BYTES - used, "%s%s", used > 0 ? ", " : "", name);
}

IoClass
devices_class(const Devices *devices, char *schedulers)
{
	bool		idle = false;
	bool		own = false;

	schedulers[0] = '\0';
	for (int i = 0; i < devices->count; i++)
	{
		const struct pc_sharing *sharing = &devices->list[i].flight.sharing;

		idle |= sharing->idle_bytes > 0;
		own |= sharing->own_bytes > 0;
		if (sharing->idle_bytes + sharing->own_bytes > 0)
			add_name(schedulers, sharing->scheduler);
	}
	return idle ? (own ? IO_MIXED : IO_IDLE) : own ? IO_OWN : IO_NOTHING;
}
