/*
 * directory.c - pg_residency/ in the data directory: its locks, and reading and writing whole files
 */
#include "directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compat.h"
#include "interrupts.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#define LOCK_PATH RESIDENCY_TEMP_PREFIX ".lock"

/* milliseconds between two attempts to get a lock */
#define LOCK_PAUSE 10

/* larger than any file of the extension, and small enough to be read as a whole */
#define LARGEST_FILE ((off_t) 4 * 1024 * 1024 * 1024)

static int
open_lock_file(int flags)
{
	int			fd = BasicOpenFilePerm(LOCK_PATH, flags | PG_BINARY, S_IRUSR | S_IWUSR);

	if (fd < 0)
	{
		if (errno != ENOENT || (flags & O_CREAT))
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not open file \"%s\": %m", LOCK_PATH)));
		return -1;
	}
	return fd;
}

bool
residency_try_set_tag(int fd, ResidencyPlace which, int32 tag)
{
	errno = 0;
	if (pg_pwrite(fd, &tag, sizeof(tag), which * sizeof(tag)) == sizeof(tag))
		return true;
	if (errno == 0)
		errno = ENOSPC;
	return false;
}

static bool
try_lock(int fd, ResidencyPlace which, int32 tag)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET,
	.l_start = which * sizeof(tag), .l_len = sizeof(tag)};

	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
	{
		if (residency_try_set_tag(fd, which, tag))
			return true;
	}
	else if (errno == EAGAIN || errno == EACCES)
		return false;
	else if (errno == 0)
		errno = EIO;
	{
		int			save_errno = errno;

		close(fd);
		errno = save_errno;
		ereport(ERROR,
				(errcode_for_file_access(),
				 save_errno == ENOSPC ?
				 errmsg("could not write to file \"%s\": %m", LOCK_PATH) :
				 errmsg("could not lock file \"%s\": %m", LOCK_PATH)));
	}
}

int
residency_lock(ResidencyPlace which, int32 tag, int patience)
{
	int64		until = patience_until(patience);
	int			fd;

	if (MakePGDirectory(RESIDENCY_DIR) != 0 && errno != EEXIST)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create directory \"%s\": %m", RESIDENCY_DIR)));
	for (;;)
	{
		/*
		 * an OFD lock belongs to the open file: opening the file elsewhere in this process does not
		 * release it
		 */
		fd = open_lock_file(O_RDWR | O_CREAT);
		if (try_lock(fd, which, tag))
		{
			ReserveExternalFD();
			return fd;
		}
		close(fd);
		if (patience_is_over(until))
			return -1;
		sleep_or_wake(LOCK_PAUSE * 1000, compat_wait_event("ResidencyLock"));
		CHECK_FOR_INTERRUPTS();
	}
}

void
residency_unlock(int lock)
{
	close(lock);
	ReleaseExternalFD();
}

bool
residency_is_locked(ResidencyPlace which, int32 tag)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET,
	.l_start = which * sizeof(tag), .l_len = sizeof(tag)};
	int			fd = open_lock_file(O_RDWR);
	bool		locked;

	if (fd < 0)
		return false;
	locked = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK &&
		residency_tag(fd, which) == tag;
	close(fd);
	return locked;
}

int32
residency_tag(int lock, ResidencyPlace which)
{
	int32		tag;

	return pg_pread(lock, &tag, sizeof(tag), which * sizeof(tag)) == sizeof(tag) ? tag : 0;
}

void
residency_set_tag(int lock, ResidencyPlace which, int32 tag)
{
	if (!residency_try_set_tag(lock, which, tag))
		report_write_error(LOCK_PATH);
}

void
residency_get_tags(int lock, ResidencyPlace first, int32 *tags, int n)
{
	memset(tags, 0, n * sizeof(*tags));
	if (pg_pread(lock, tags, n * sizeof(*tags), first * sizeof(*tags)) !=
		(ssize_t) (n * sizeof(*tags)))
		memset(tags, 0, n * sizeof(*tags));
}

void
residency_set_tags(int lock, ResidencyPlace first, const int32 *tags, int n)
{
	errno = 0;
	if (pg_pwrite(lock, tags, n * sizeof(*tags), first * sizeof(*tags)) !=
		(ssize_t) (n * sizeof(*tags)))
		report_write_error(LOCK_PATH);
}

/*
 * reads the whole file; -1 with errno set when that fails, or it is not a regular file of plausible
 * size
 */
static ssize_t
read_opened(int fd, char **data)
{
	struct stat st;
	size_t		got = 0;

	if (fstat(fd, &st) != 0)
		return -1;
	if (!S_ISREG(st.st_mode) || st.st_size > LARGEST_FILE)
	{
		errno = EFBIG;
		return -1;
	}
	*data = palloc_extended(st.st_size + 1, MCXT_ALLOC_HUGE);
	while (got < (size_t) st.st_size)
	{
		ssize_t		n = read(fd, *data + got, Min((size_t) st.st_size - got, 1024 * 1024));

		if (n < 0)
			return -1;
		if (n == 0)
			break;
		got += n;
		CHECK_FOR_INTERRUPTS();
	}
	(*data)[got] = '\0';
	return (ssize_t) got;
}

char *
try_read_whole_file(const char *path, size_t *size, int *error)
{
	char	   *data = NULL;
	volatile ssize_t got = -1;
	volatile int save_errno = 0;
	int			fd = OpenTransientFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);

	*error = 0;
	if (fd < 0)
	{
		*error = errno == ENOENT ? 0 : errno;
		return NULL;
	}
	PG_TRY();
	{
		got = read_opened(fd, &data);
		save_errno = errno;
	}
	PG_FINALLY();
	{
		CloseTransientFile(fd);
	}
	PG_END_TRY();
	if (got < 0)
	{
		*error = save_errno;
		return NULL;
	}
	*size = (size_t) got;
	return data;
}

char *
read_whole_file(const char *path, size_t *size)
{
	int			error;
	char	   *data = try_read_whole_file(path, size, &error);

	if (data == NULL && error != 0)
	{
		errno = error;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", path)));
	}
	return data;
}

void
report_write_error(const char *path)
{
	/* a short write does not set errno */
	if (errno == 0)
		errno = ENOSPC;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not write file \"%s\": %m", path)));
	pg_unreachable();
}

/* expects the reason in errno */
static void
give_up_writing(const char *temporary, const char *path)
{
	int			save_errno = errno;

	unlink(temporary);
	errno = save_errno;
	report_write_error(path);
}

static void
write_temporary(const char *temporary, const char *data, size_t size)
{
	int			fd = OpenTransientFile(temporary, O_RDWR | O_CREAT | O_TRUNC | PG_BINARY);
	size_t		done = 0;

	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", temporary)));
	while (done < size)
	{
		ssize_t		n;

		errno = 0;
		n = write(fd, data + done, Min(size - done, 1024 * 1024));
		if (n <= 0)
		{
			int			save_errno = errno;

			CloseTransientFile(fd);
			errno = save_errno;
			give_up_writing(temporary, temporary);
		}
		done += n;
	}
	errno = 0;
	if (CloseTransientFile(fd) != 0)
		give_up_writing(temporary, temporary);
}

void
write_whole_file(const char *temporary, const char *path, const char *data, size_t size)
{
	write_temporary(temporary, data, size);
	errno = 0;
	if (durable_rename(temporary, path, LOG) != 0)
		give_up_writing(temporary, path);
}

void
write_answer(const char *temporary, const char *path, const char *data, size_t size)
{
	write_temporary(temporary, data, size);
	errno = 0;
	if (rename(temporary, path) != 0 && errno != ENOENT)
		give_up_writing(temporary, path);
}

bool
remove_file(const char *path)
{
	if (unlink(path) == 0)
		return true;
	if (errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", path)));
	return false;
}

void
remove_files_beginning(const char *prefix)
{
	DIR		   *d = AllocateDir(RESIDENCY_DIR);
	struct dirent *entry;

	if (d == NULL && errno == ENOENT)
		return;
	while ((entry = ReadDir(d, RESIDENCY_DIR)) != NULL)
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
			unlink(psprintf("%s/%s", RESIDENCY_DIR, entry->d_name));
	FreeDir(d);
}
