/*
 * wire.h - numbers in files: little-endian on every architecture
 *
 * No PostgreSQL types here: the file formats are tested and fuzzed separately.
 */
#ifndef RESIDENCY_WIRE_H
#define RESIDENCY_WIRE_H

#include <stdint.h>

/* writes `bytes` bytes of the value; returns the position after them */
static inline uint8_t *
wire_put(uint8_t *out, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		*out++ = (uint8_t) (value >> (8 * i));
	return out;
}

/* reads `bytes` bytes and moves `*in` after them */
static inline uint64_t
wire_get(const uint8_t **in, int bytes)
{
	uint64_t	value = 0;

	for (int i = 0; i < bytes; i++)
		value |= (uint64_t) *(*in)++ << (8 * i);
	return value;
}

#endif
