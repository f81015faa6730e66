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
