/*
 * host_ledger.c - coordinates the clusters of one host
 */
#include "host_ledger.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "access/xlog.h"
#include "compat.h"
#include "interrupts.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#define SHM "/dev/shm"
#define LEDGER_NAME "pgfleet.pg_residency."
#define LEDGER_MAGIC 0x50475235
#define CLUSTERS 32
#define DEVICES 32

/* a bound for the scan of /dev/shm, where any user can create any number of files */
#define NAMES_LOOKED_AT 10000

/* bytes of the lock file */
#define LOCK_TURN 0
#define LOCK_LEDGER 1

/*
 * Milliseconds to wait for the ledger's lock, whose holder writes only some kilobytes.  The holder
 * may belong to another cluster and cannot set a latch of this one.
 */
#define LEDGER_PATIENCE 200

/*
 * How long restored blocks count as the cluster's own.  After that, used blocks are on the kernel's
 * active list and counted there, and unused ones may be reclaimed.
 */
#define REMEMBERED_SECONDS 3600

/* a PID may be used again: the time of its start identifies a process */
typedef struct ProcessId
{
	int64		pid;
	int64		started;		/* clock ticks since boot */
} ProcessId;

typedef struct Entry
{
	uint64		cluster;		/* 0: free */
	uint64		bytes;			/* resident when its restore ended */
	int64		at;				/* seconds since 1970, of the entry's last change */
	/* file cache of a stopped server belongs to no cluster */
	ProcessId	postmaster;
	int64		claimed_at;		/* TimestampTz, 0: no claim */
	ProcessId	claimer;		/* the process that claims the turn */
	int64		holds;			/* whether that process has the turn */
	char		directory[256]; /* data directory */
} Entry;

typedef struct MeasuredDevice
{
	uint64		device;			/* 0: free */
	struct pc_speed speed;
} MeasuredDevice;

typedef struct Ledger
{
	uint32		magic;
	uint32		size;			/* of this struct; differs in other versions */
	Entry		entries[CLUSTERS];
	MeasuredDevice devices[DEVICES];
} Ledger;

/*
 * on one host the data directory is unique; several clusters may be copies with the same system
 * identifier
 */
static uint64
this_cluster(void)
{
	struct stat st;

	if (stat(DataDir, &st) != 0)
		return GetSystemIdentifier();
	return ((uint64) st.st_dev << 40) ^ (uint64) st.st_ino;
}

/* A regular file of that user, with one hard link, and not writable by other users. */
static bool
is_trusted_file(int fd, uid_t uid, mode_t forbidden)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == uid && st.st_nlink == 1 &&
		(st.st_mode & forbidden) == 0 && st.st_size <= (off_t) sizeof(Ledger);
}

/* the first file that could not be used; empty: none */
static char unusable[MAXPGPATH];
static bool for_now;			/* what it takes was missing: no fault of the file */

/* notes the file, for the errno `error`, and logs the first one */
static void
note_unusable(const char *path, int error, mode_t mode)
{
	if (unusable[0] != '\0')
		return;
	strlcpy(unusable, path, sizeof(unusable));
	for_now = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC;
	errno = error;
	ereport(LOG,
			(errmsg("could not use ledger file \"%s\": %m", path),
			 errdetail("Restores of this cluster and of other clusters on this host are not coordinated."),
			 for_now ? 0 :
			 errhint("Remove the file. It must be a regular file owned by the server's user, with one hard link and mode %03o.",
					 (unsigned) mode)));
}

const char *
host_unusable_file(void)
{
	return unusable[0] != '\0' ? unusable : NULL;
}

/* opens one of this user's two files; -1 when that fails, or the file is not sound */
static int
open_own(const char *suffix, mode_t mode)
{
	int			flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	char		path[MAXPGPATH];
	int			fd;
	int			save_errno;

	snprintf(path, sizeof(path), SHM "/" LEDGER_NAME "%u%s", (unsigned) geteuid(), suffix);
	fd = open(path, flags);
	if (fd < 0 && errno == ENOENT)
	{
		fd = open(path, flags | O_CREAT | O_EXCL, mode);
		if (fd < 0 && errno == EEXIST)
			fd = open(path, flags);
		else if (fd >= 0)
			/* the umask may have removed the read permission of other users from the new file */
			(void) fchmod(fd, mode);
	}
	if (fd >= 0 && is_trusted_file(fd, geteuid(), (mode_t) 07777 & ~mode))
		return fd;
	save_errno = fd >= 0 ? EPERM : errno;
	if (fd >= 0)
		close(fd);
	if (save_errno != ENOENT)
		note_unusable(path, save_errno, mode);
	return -1;
}

static void
write_ledger(int fd, const Ledger *ledger)
{
	char		path[MAXPGPATH];
	ssize_t		n;

	errno = ENOSPC;				/* of a short write */
	n = pwrite(fd, ledger, sizeof(*ledger), 0);
	if (n == sizeof(*ledger))
	{
		if (for_now)
			unusable[0] = '\0';
		return;
	}
	snprintf(path, sizeof(path), SHM "/" LEDGER_NAME "%u", (unsigned) geteuid());
	note_unusable(path, errno, 0644);
}

static bool
lock_byte(int fd, off_t byte)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* reads a ledger; whatever the file contains, the texts are terminated and printable */
static bool
read_ledger(int fd, Ledger *ledger)
{
	if (pread(fd, ledger, sizeof(*ledger), 0) != sizeof(*ledger) || ledger->magic != LEDGER_MAGIC ||
		ledger->size != sizeof(*ledger))
		return false;
	for (int i = 0; i < CLUSTERS; i++)
	{
		char	   *text = ledger->entries[i].directory;

		text[sizeof(ledger->entries[i].directory) - 1] = '\0';
		for (; *text != '\0'; text++)
			if (*text < ' ' || *text > '~' || *text == '"')
				*text = '?';
	}
	return true;
}

/* reads this user's ledger; false when there is none, and then the ledger is empty */
static bool
read_own(Ledger *ledger)
{
	int			fd = open_own("", 0644);
	bool		read_it = fd >= 0 && read_ledger(fd, ledger);

	if (fd >= 0)
		close(fd);
	if (!read_it)
		memset(ledger, 0, sizeof(*ledger));
	return read_it;
}

/* the cluster's own entry, otherwise the least recently changed one */
static Entry *
entry_of(Ledger *ledger, uint64 cluster)
{
	Entry	   *stalest = &ledger->entries[0];

	for (int i = 0; i < CLUSTERS; i++)
	{
		Entry	   *entry = &ledger->entries[i];

		if (entry->cluster == cluster)
			return entry;
		if (entry->at < stalest->at)
			stalest = entry;
	}
	memset(stalest, 0, sizeof(*stalest));
	stalest->cluster = cluster;
	return stalest;
}

/*
 * Changes this user's ledger under its lock, which other clusters of the user take too.  Without
 * the files or the lock, nothing is changed: a restore does not depend on the ledger.  Allocates no
 * memory, because a job that ran out of it ends its turn here.
 */
static void
change_ledger(void (*change) (Ledger *ledger, Entry *mine, void *arg), void *arg)
{
	int			fd = open_own("", 0644);
	int			lock = open_own(".lock", 0600);
	int64		until = patience_until(LEDGER_PATIENCE);
	bool		locked = false;
	Ledger		ledger;

	while (fd >= 0 && lock >= 0 && !(locked = lock_byte(lock, LOCK_LEDGER)) &&
		   !patience_is_over(until))
		sleep_or_wake(1000, PG_WAIT_EXTENSION);
	if (locked)
	{
		if (!read_ledger(fd, &ledger))
		{
			memset(&ledger, 0, sizeof(ledger));
			ledger.magic = LEDGER_MAGIC;
			ledger.size = sizeof(ledger);
		}
		change(&ledger, entry_of(&ledger, this_cluster()), arg);
		write_ledger(fd, &ledger);
	}
	if (lock >= 0)
		close(lock);
	if (fd >= 0)
		close(fd);
}

/* the start of a process of that user; 0 when there is none */
static int64
start_of(int64 pid, uid_t uid)
{
	char		path[64];
	char		line[1024];
	const char *p;
	struct stat st;
	ssize_t		n;
	int			fd;

	if (pid <= 0 || pid > PG_INT32_MAX)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d", (int) pid);
	if (stat(path, &st) != 0 || st.st_uid != uid)
		return 0;
	strlcat(path, "/stat", sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, line, sizeof(line) - 1);
	close(fd);
	line[Max(n, 0)] = '\0';
	/* field 22; the second one, the command, may contain spaces and parentheses */
	p = strrchr(line, ')');
	for (int field = 2; p != NULL && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p != NULL ? strtoll(p, NULL, 10) : 0;
}

static bool
is_alive(const ProcessId *process, uid_t uid)
{
	return process->started != 0 && start_of(process->pid, uid) == process->started;
}

static ProcessId
process_id(pid_t pid)
{
	return (ProcessId) {pid, start_of(pid, geteuid())};
}

/* --- other users' ledgers --- */

/* calls `look` with each sound ledger of another user */
static void
look_at_others(void (*look) (const Ledger *ledger, uid_t uid, void *arg), void *arg)
{
	Ledger		ledger;
	DIR		   *dir = opendir(SHM);
	struct dirent *entry;

	for (int i = 0; dir != NULL && i < NAMES_LOOKED_AT && (entry = readdir(dir)) != NULL; i++)
	{
		char		path[MAXPGPATH];
		char	   *end;
		unsigned long uid;
		int			fd;

		if (strncmp(entry->d_name, LEDGER_NAME, strlen(LEDGER_NAME)) != 0)
			continue;
		uid = strtoul(entry->d_name + strlen(LEDGER_NAME), &end, 10);
		if (*end != '\0' || end == entry->d_name + strlen(LEDGER_NAME) || uid == geteuid())
			continue;
		snprintf(path, sizeof(path), SHM "/%s", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0)
			continue;
		if (is_trusted_file(fd, (uid_t) uid, S_IWGRP | S_IWOTH) && read_ledger(fd, &ledger))
			look(&ledger, (uid_t) uid, arg);
		close(fd);
	}
	if (dir != NULL)
		closedir(dir);
}

/* --- the turn --- */

static void
claim(Ledger *ledger, Entry *mine, void *arg)
{
	const HostTurn *turn = arg;

	mine->claimed_at = turn->claimed ? turn->since : 0;
	mine->claimer = process_id(MyProcPid);
	mine->holds = turn->taken;
	mine->postmaster = process_id(PostmasterPid);
	mine->at = (int64) time(NULL);
	strlcpy(mine->directory, DataDir, sizeof(mine->directory));
}

static void
note_ahead(HostTurn *turn, const Entry *entry)
{
	turn->ahead_since = entry->claimed_at;
	turn->pid = (int32) entry->claimer.pid;
	strlcpy(turn->directory, entry->directory, sizeof(turn->directory));
}

/* notes which of this user's clusters has the turn */
static void
find_holder(const Ledger *ledger, HostTurn *turn)
{
	for (int i = 0; i < CLUSTERS; i++)
		if (ledger->entries[i].holds && is_alive(&ledger->entries[i].claimer, geteuid()))
			note_ahead(turn, &ledger->entries[i]);
}

/* notes the earliest claim of another user's clusters, if it is earlier than the noted one */
static void
find_ahead(const Ledger *ledger, uid_t uid, void *arg)
{
	HostTurn   *turn = arg;

	for (int i = 0; i < CLUSTERS; i++)
	{
		const Entry *entry = &ledger->entries[i];

		if (entry->claimed_at > 0 && is_alive(&entry->claimer, uid) &&
			(turn->ahead_since == 0 || entry->claimed_at < turn->ahead_since))
			note_ahead(turn, entry);
	}
}

bool
host_turn_take(HostTurn *turn, int foreign_wait)
{
	int			fd = open_own(".lock", 0600);
	Ledger		ledger;

	/* without a lock file the clusters cannot be coordinated */
	if (fd < 0)
		return true;
	if (!turn->claimed)
	{
		turn->claimed = true;
		turn->since = GetCurrentTimestamp();
		turn->foreign_until = patience_until((int64) foreign_wait * 1000);
		change_ledger(claim, turn);
	}
	turn->ahead_since = 0;
	turn->pid = 0;
	turn->directory[0] = '\0';
	if (!lock_byte(fd, LOCK_TURN))
	{
		if (read_own(&ledger))
			find_holder(&ledger, turn);
		close(fd);
		return false;
	}
	if (!patience_is_over(turn->foreign_until))
	{
		look_at_others(find_ahead, turn);
		if (turn->ahead_since != 0 && turn->ahead_since < turn->since)
		{
			/* keep no lock: the cluster ahead may be waiting for another cluster of this user */
			close(fd);
			return false;
		}
	}
	turn->fd = fd;
	ReserveExternalFD();
	turn->taken = true;
	change_ledger(claim, turn);
	return true;
}

void
host_turn_keep(HostTurn *turn)
{
	struct stat st;
	int			fd;

	if (!turn->taken || fstat(turn->fd, &st) != 0 || st.st_nlink > 0)
		return;
	fd = open_own(".lock", 0600);
	if (fd >= 0 && lock_byte(fd, LOCK_TURN))
	{
		close(turn->fd);
		turn->fd = fd;
		change_ledger(claim, turn);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (unusable[0] == '\0')
	{
		snprintf(unusable, sizeof(unusable), SHM "/" LEDGER_NAME "%u.lock", (unsigned) geteuid());
		ereport(LOG,
				(errmsg("ledger file \"%s\" was removed during a restore", unusable),
				 errdetail("Another restore runs at the same time.")));
	}
}

void
host_turn_end(HostTurn *turn)
{
	bool		taken = turn->taken;

	if (turn->claimed)
	{
		turn->claimed = turn->taken = false;
		change_ledger(claim, turn);
	}
	if (taken)
	{
		close(turn->fd);
		ReleaseExternalFD();
	}
}

/* --- the memory --- */

static void
add_bytes(const Ledger *ledger, uid_t uid, void *arg)
{
	int64		oldest = (int64) time(NULL) - REMEMBERED_SECONDS;
	uint64		me = this_cluster();
	uint64	   *bytes = arg;

	for (int i = 0; i < CLUSTERS; i++)
	{
		const Entry *entry = &ledger->entries[i];

		if (entry->cluster != 0 && entry->cluster != me && entry->at >= oldest &&
			is_alive(&entry->postmaster, uid))
			*bytes += Min(entry->bytes, PG_UINT64_MAX - *bytes);
	}
}

void
host_others_bytes(uint64 *own_user, uint64 *other_users)
{
	Ledger		ledger;

	*own_user = *other_users = 0;
	if (read_own(&ledger))
		add_bytes(&ledger, geteuid(), own_user);
	look_at_others(add_bytes, other_users);
}

typedef struct Noted
{
	uint64		bytes;
	bool		add;
} Noted;

static void
note_bytes(Ledger *ledger, Entry *mine, void *arg)
{
	const Noted *noted = arg;
	int64		now = (int64) time(NULL);
	ProcessId	postmaster = process_id(PostmasterPid);

	/* earlier blocks no longer count after REMEMBERED_SECONDS or a restart of the server */
	if (memcmp(&mine->postmaster, &postmaster, sizeof(postmaster)) != 0 ||
		mine->at < now - REMEMBERED_SECONDS)
		mine->bytes = 0;
	/* a job that restores a part leaves the rest as it is */
	if (noted->add)
		mine->bytes += Min(noted->bytes, PG_UINT64_MAX - mine->bytes);
	else
		mine->bytes = Max(mine->bytes, noted->bytes);
	mine->at = now;
	mine->postmaster = postmaster;
}

void
host_note_bytes(uint64 bytes, bool add)
{
	Noted		noted = {bytes, add};

	change_ledger(note_bytes, &noted);
}

/* --- the devices --- */

bool
host_device_speed(dev_t device, struct pc_speed *speed)
{
	Ledger		ledger;
	bool		known = false;

	if (read_own(&ledger))
		for (int i = 0; i < DEVICES && !known; i++)
			if (ledger.devices[i].device == (uint64) device && device != 0)
			{
				*speed = ledger.devices[i].speed;
				known = speed->requests >= 1 && speed->bytes >= 1;
			}
	return known;
}

static void
note_device(Ledger *ledger, Entry *mine, void *arg)
{
	const MeasuredDevice *measured = arg;
	int			place = 0;

	while (place < DEVICES - 1 && ledger->devices[place].device != 0 &&
		   ledger->devices[place].device != measured->device)
		place++;
	ledger->devices[place] = *measured;
}

void
host_note_device(dev_t device, const struct pc_speed *speed)
{
	MeasuredDevice measured = {(uint64) device, *speed};

	change_ledger(note_device, &measured);
}
