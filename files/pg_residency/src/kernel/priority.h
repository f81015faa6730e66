/*
 * priority.h - the I/O priority of the calling thread
 *
 * A request to a device has the priority of the thread that submits it, read-ahead included.  In
 * the idle class, mq-deadline and bfq serve it only while no other class waits; none and kyber
 * ignore the class: see Documentation/block/ioprio.rst and block/mq-deadline.c.
 */
#ifndef PC_PRIORITY_H
#define PC_PRIORITY_H

#include <stdbool.h>

/*
 * Puts the thread into the idle class, until pc_priority_restore().  Returns what to give back to
 * that, or -1, with the priority unchanged, if the kernel refuses or would refuse the way back.
 */
extern int	pc_priority_lower(void);

/* Restores the thread's own priority; -1: does nothing.  Leaves errno as it is. */
extern void pc_priority_restore(int former);

#endif
