/*
 * priority.c - the I/O priority of the calling thread
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "priority.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

/* <linux/ioprio.h>, which older headers lack */
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_CLASS_SHIFT 13
#define IOPRIO_CLASS_NONE 0
#define IOPRIO_CLASS_RT 1
#define IOPRIO_CLASS_IDLE 3

int
pc_priority_lower(void)
{
	long		former = syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);

	/* without privileges, a thread may leave the real-time class but not return to it */
	if (former < 0 || former >> IOPRIO_CLASS_SHIFT == IOPRIO_CLASS_RT)
		return -1;
	/* before Linux 5.19, an unset priority has a level, which ioprio_set(2) refuses */
	if (former >> IOPRIO_CLASS_SHIFT == IOPRIO_CLASS_NONE)
		former = 0;
	if (syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
				IOPRIO_CLASS_IDLE << IOPRIO_CLASS_SHIFT) != 0)
		return -1;
	return (int) former;
}

void
pc_priority_restore(int former)
{
	int			saved = errno;

	if (former >= 0)
		(void) syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, former);
	errno = saved;
}
