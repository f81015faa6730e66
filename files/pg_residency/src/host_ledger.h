/*
 * host_ledger.h - what the clusters of one host agree on: whose turn it is to restore, how much
 * memory the others have filled, and how fast the devices are
 *
 * For each operating system user there are two files in /dev/shm, which goes when the page cache
 * does, at a reboot: pgfleet.pg_residency.<uid>, which everybody may read and only that user
 * writes, and pgfleet.pg_residency.<uid>.lock, which only that user can open.  What another user's
 * file says is believed for a bounded delay and a bounded share of the memory, and nothing else.
 * A file that is not what it should be is left alone; then the cluster is on its own.
 */
#ifndef RESIDENCY_HOST_LEDGER_H
#define RESIDENCY_HOST_LEDGER_H

#include "postgres.h"

#include <sys/types.h>

#include "datatype/timestamp.h"

#include "kernel/probe.h"

/* A cluster's turn to restore; zero-initialised. */
typedef struct HostTurn
{
	int			fd;				/* of the lock, while `taken` */
	bool		claimed;
	bool		taken;
	TimestampTz since;			/* of the claim */
	/* for whom it waits: */
	char		directory[256]; /* that cluster's data directory, printable ASCII */
	int32		pid;
	TimestampTz ahead_since;
} HostTurn;

/*
 * Tries to take the turn.  False while another cluster has it, or asked first: `turn` says which.
 * One of another operating system user is waited for until `foreign_wait` seconds after the claim.
 */
extern bool host_turn_take(HostTurn *turn, int foreign_wait);

/* Gives back what was taken, or only claimed. */
extern void host_turn_end(HostTurn *turn);

/*
 * Bytes of the page cache that belong to the host's other clusters, by their restores of late: of
 * this operating system user, who is believed, and of others, who could say anything.
 */
extern void host_others_bytes(uint64 *own_user, uint64 *other_users);

/* Notes what this cluster's restore has made resident, in all or in addition. */
extern void host_note_bytes(uint64 bytes, bool add);

/* How fast the device was found to be since the host started; false when that is not known. */
extern bool host_device_speed(dev_t device, struct pc_speed *speed);

/* Remembers it for this user's clusters, until the host is started anew. */
extern void host_note_device(dev_t device, const struct pc_speed *speed);

#endif
