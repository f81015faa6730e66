/*
 * interrupts.h - one policy for waits and interrupts, of sessions and of workers
 *
 * Whatever waits or loops ends soon when PostgreSQL's InterruptPending is set, gives back what it
 * has mapped, and lets CHECK_FOR_INTERRUPTS() decide: that cancels, terminates, resolves a
 * recovery conflict, absorbs a barrier of DROP DATABASE, or returns, and then the work goes on.
 * The worker of a job ends its job first, so that what came in is counted.
 */
#ifndef RESIDENCY_INTERRUPTS_H
#define RESIDENCY_INTERRUPTS_H

#include "postgres.h"

/* Sleeps about that long, microseconds; a signal ends it. */
extern void sleep_or_wake(long microseconds, uint32 wait_event);

/* The wait() and blocked() of struct pc_loader for a session; `arg` is a wait event, uint32 *. */
extern bool session_wait(void *arg, long microseconds);
extern void session_blocked(void *arg, bool begins);

/* Makes a background worker hear of SIGTERM and SIGINT as a session does. */
extern void listen_to_signals(void);

/* CHECK_FOR_INTERRUPTS() as a function. */
extern void check_for_interrupts(void);

#endif
