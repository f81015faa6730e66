/*
 * interrupts.h - one policy for waits and interrupts, for sessions and workers
 *
 * Every wait and loop ends soon after PostgreSQL's InterruptPending is set, unmaps what it has
 * mapped, and calls CHECK_FOR_INTERRUPTS().  That cancels, terminates, resolves a recovery
 * conflict, absorbs a barrier of DROP DATABASE, or returns, and then the work continues.  The
 * worker of a job ends its job first, so that the blocks loaded so far are counted.
 */
#ifndef RESIDENCY_INTERRUPTS_H
#define RESIDENCY_INTERRUPTS_H

#include "postgres.h"

/* Sleeps for about that many microseconds; a signal ends the sleep. */
extern void sleep_or_wake(long microseconds, uint32 wait_event);

/* Ends the sleep of another process of this server, also of a worker without a database. */
extern void wake_process(int pid);

/* the time since some moment in the past, which no clock of the day changes */
extern int64 monotonic_milliseconds(void);

/*
 * The time when a wait that begins now must end, and whether it has come.  A wait is not counted in
 * sleeps, because any signal shortens a sleep, and not by the clock of the day, which may jump.
 */
extern int64 patience_until(int64 milliseconds);
extern bool patience_is_over(int64 until);

/* The wait() and blocked() of struct pc_loader for a session; `arg` is a wait event, uint32 *. */
extern bool session_wait(void *arg, long microseconds);
extern void session_blocked(void *arg, bool begins);

/* Makes a background worker handle SIGTERM and SIGINT as a session does. */
extern void listen_to_signals(void);

/*
 * Connects a background worker to a database, also to one that does not accept connections.  An
 * error when another session locks the database for long, as ALTER DATABASE does until its
 * transaction ends.
 */
extern void connect_to_database(Oid database);

/* Whether sessions can read: not while the server recovers, until a hot standby is consistent. */
extern bool server_is_consistent(void);

/* CHECK_FOR_INTERRUPTS() as a function. */
extern void check_for_interrupts(void);

#endif
