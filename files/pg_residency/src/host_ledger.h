/*
 * host_ledger.h - coordinates the clusters of one host: whose turn it is to restore, how much
 * memory the others have filled, and how fast the devices are
 *
 * Each operating system user has two files in /dev/shm, which is emptied at a reboot, as is the
 * page cache.  Every user may read pgfleet.pg_residency.<uid>, but only its owner may write to it.
 * Only its owner can open pgfleet.pg_residency.<uid>.lock.  The ledger of another user can cause
 * only a bounded delay and take a bounded share of the memory.  An unsound file is not used; the
 * cluster then restores without coordination.
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
	TimestampTz since;			/* of the claim, by which the clusters are ordered */
	int64		foreign_until;	/* monotonic milliseconds; see host_turn_take() */
	/* the cluster that it waits for: */
	char		directory[256]; /* data directory, printable ASCII */
	int32		pid;
	TimestampTz ahead_since;
} HostTurn;

/*
 * Tries to take the turn.  False while another cluster has it or claimed it earlier: `turn`
 * identifies that cluster.  The turn waits for a cluster of another operating system user at most
 * `foreign_wait` seconds from the claim.
 */
extern bool host_turn_take(HostTurn *turn, int foreign_wait);

/* The file that could not be used, so that nothing is coordinated; NULL: none so far. */
extern const char *host_unusable_file(void);

/*
 * Takes the turn again if the lock's file was removed meanwhile: by hand, or by logind's RemoveIPC,
 * which removes what an ordinary user has in /dev/shm when the last session ends.  To be called
 * often while the turn is taken.
 */
extern void host_turn_keep(HostTurn *turn);

/* Releases the turn or withdraws the claim. */
extern void host_turn_end(HostTurn *turn);

/*
 * Bytes of the page cache that the recent restores of the host's other clusters filled: those of
 * this operating system user, whose ledger is trusted, and those of other users, whose ledgers are
 * not.
 */
extern void host_others_bytes(uint64 *own_user, uint64 *other_users);

/*
 * Notes the bytes that this cluster's restore has made resident, in total or (`add`) in addition.
 */
extern void host_note_bytes(uint64 bytes, bool add);

/* The speed of the device as measured since the host was started; false when it is unknown. */
extern bool host_device_speed(dev_t device, struct pc_speed *speed);

/* Stores that speed for this user's clusters until the next reboot. */
extern void host_note_device(dev_t device, const struct pc_speed *speed);

#endif
