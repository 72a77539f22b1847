/* thread.h: threads, sleeping on a word, and the clock. */
#ifndef BRIM_BASE_THREAD_H
#define BRIM_BASE_THREAD_H

#include <stdatomic.h>
#include <time.h>

#include "base/memory.h"

typedef struct brim__thread brim__thread;

/* Starts a thread named `name` (at most 15 characters). */
brim_status brim__thread_start(brim__thread **out, brim_context *ctx, const char *name,
                               void (*body)(void *user), void *user);
/* Waits for its end and frees it. */
void brim__thread_join(brim__thread *thread, brim_context *ctx);
/* Binds the calling thread to one CPU of those it may use, by index; false when refused. */
bool brim__thread_pin(uint32_t index);
/* CPUs that this process may run on. */
uint32_t brim__cpu_count(void);

/* Sleeps while *word == expected, at most timeout_ns (0: no limit). May wake early. */
void brim__futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
void brim__futex_wake_all(_Atomic uint32_t *word);

/* Nanoseconds of a clock that never goes back. */
static inline uint64_t brim__now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Tells the core that this is a spin. */
static inline void brim__cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
