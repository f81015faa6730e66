/*
 * machine.c - what the clusters of one machine have to agree on: whose turn it is to restore, how much memory the
 * others have filled, and how fast the disks are
 *
 * A file in /dev/shm, which every cluster can open whatever its user, and which goes when the page cache does: at a
 * reboot.  Anybody on the machine can write to it, so it is never trusted with more than a delay, a smaller budget or a poor guess.
 */
#include "pg_residency.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "access/xlog.h"
#include "miscadmin.h"

#define MACHINE_FILE "/dev/shm/pgfleet.pg_residency"
#define MACHINE_MAGIC 0x50475233
#define CLUSTERS 64
#define DEVICES 32

/*
 * How long what a cluster restored is held to be its own.  After that what was used is on the kernel's active list, and
 * counted there, and what was not may go.
 */
#define REMEMBERED_SECONDS 3600

typedef struct Restored
{
	uint64		cluster;		/* 0: free */
	uint64		bytes;			/* resident when its restore ended */
	int64		at;				/* seconds since 1970 */
	int64		postmaster;		/* its pid: what a server that is gone had cached is nobody's any more */
} Restored;

typedef struct MeasuredDevice
{
	uint64		device;			/* 0: free */
	struct pc_speed speed;
} MeasuredDevice;

typedef struct Ledger
{
	uint32		magic;
	uint32		reserved;
	Restored	restored[CLUSTERS];
	MeasuredDevice devices[DEVICES];
} Ledger;

/* of this machine the data directory is unique, where several clusters may be copies of one */
static uint64
this_cluster(void)
{
	struct stat st;

	if (stat(DataDir, &st) != 0)
		return GetSystemIdentifier();
	return ((uint64) st.st_dev << 40) ^ (uint64) st.st_ino;
}

/* -1 where there is no /dev/shm, or it is not ours to use: then each cluster is on its own */
static int
open_machine_file(void)
{
	int			flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
	int			fd = open(MACHINE_FILE, flags);
	struct stat st;

	/* not with O_CREAT at once: in such a directory the kernel denies that for a file of another user */
	if (fd < 0 && errno == ENOENT)
	{
		fd = open(MACHINE_FILE, flags | O_CREAT | O_EXCL, 0666);
		if (fd < 0 && errno == EEXIST)
			fd = open(MACHINE_FILE, flags);
	}
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
	{
		close(fd);
		return -1;
	}
	/* the umask took away what another cluster's user needs */
	if (st.st_uid == geteuid() && (st.st_mode & 0777) != 0666)
		(void) fchmod(fd, 0666);
	return fd;
}

static bool
lock_bytes(int fd, off_t start, int command)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};

	return fcntl(fd, command, &lock) == 0;
}

/*
 * Takes the machine's turn, which is held until the process ends.  -1 when another cluster has it; 0 or more when it
 * is ours, or when there is nothing to agree by.
 */
int
machine_lock(void)
{
	int			fd = open_machine_file();

	if (fd < 0 || lock_bytes(fd, 0, F_OFD_SETLK))
		return Max(fd, 0);
	close(fd);
	return -1;
}

static void
read_ledger(int fd, Ledger *ledger)
{
	if (pread(fd, ledger, sizeof(*ledger), 0) != sizeof(*ledger) || ledger->magic != MACHINE_MAGIC)
	{
		memset(ledger, 0, sizeof(*ledger));
		ledger->magic = MACHINE_MAGIC;
	}
}

static bool
is_alive(int64 pid)
{
	return pid > 0 && pid <= PG_INT32_MAX && (kill((pid_t) pid, 0) == 0 || errno == EPERM);
}

/* Bytes of the page cache that belong to the machine's other clusters, by their restores of late. */
uint64
machine_others_bytes(void)
{
	int			fd = open_machine_file();
	int64		oldest = (int64) time(NULL) - REMEMBERED_SECONDS;
	uint64		me = this_cluster();
	uint64		bytes = 0;
	Ledger		ledger;

	if (fd < 0)
		return 0;
	read_ledger(fd, &ledger);
	close(fd);
	for (int i = 0; i < CLUSTERS; i++)
	{
		const Restored *r = &ledger.restored[i];

		if (r->cluster != 0 && r->cluster != me && r->at >= oldest && is_alive(r->postmaster))
			bytes += Min(r->bytes, PG_UINT64_MAX - bytes);
	}
	return bytes;
}

/* Notes what this cluster's restore has made resident. */
void
machine_note_bytes(uint64 bytes)
{
	int			fd = open_machine_file();
	uint64		me = this_cluster();
	int			mine = 0;
	Ledger		ledger;

	if (fd < 0)
		return;
	read_ledger(fd, &ledger);
	/* our place, or else the one that was not written to for longest */
	for (int i = 0; i < CLUSTERS; i++)
	{
		if (ledger.restored[i].cluster == me)
		{
			mine = i;
			break;
		}
		if (ledger.restored[i].at < ledger.restored[mine].at)
			mine = i;
	}
	ledger.restored[mine].cluster = me;
	ledger.restored[mine].bytes = bytes;
	ledger.restored[mine].at = (int64) time(NULL);
	ledger.restored[mine].postmaster = PostmasterPid;
	/* nobody else writes: the one who restores has the machine's turn */
	(void) !pwrite(fd, &ledger, sizeof(ledger), 0);
	close(fd);
}

/* How fast the device was found to be since the machine started; false when nobody has measured it. */
bool
machine_device_speed(dev_t device, struct pc_speed *speed)
{
	int			fd = open_machine_file();
	Ledger		ledger;

	if (fd < 0)
		return false;
	read_ledger(fd, &ledger);
	close(fd);
	for (int i = 0; i < DEVICES; i++)
		if (ledger.devices[i].device == (uint64) device && device != 0)
		{
			*speed = ledger.devices[i].speed;
			return speed->requests >= 1 && speed->bytes >= 1;
		}
	return false;
}

/* Remembers it for every cluster, until the machine is started anew. */
void
machine_note_device(dev_t device, const struct pc_speed *speed)
{
	int			fd = open_machine_file();
	int			place = 0;
	Ledger		ledger;

	if (fd < 0)
		return;
	read_ledger(fd, &ledger);
	while (place < DEVICES - 1 && ledger.devices[place].device != 0 && ledger.devices[place].device != (uint64) device)
		place++;
	ledger.devices[place].device = (uint64) device;
	ledger.devices[place].speed = *speed;
	(void) !pwrite(fd, &ledger, sizeof(ledger), 0);
	close(fd);
}
