/* thread.c: threads and futexes on Linux. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct brim__thread {
    pthread_t handle;
    void (*body)(void *user);
    void *user;
    char name[16];
};

static void *thread_main(void *arg)
{
    brim__thread *thread = arg;
    pthread_setname_np(pthread_self(), thread->name);
    thread->body(thread->user);
    return NULL;
}

brim_status brim__thread_start(brim__thread **out, brim_context *ctx, const char *name,
                               void (*body)(void *user), void *user)
{
    *out = NULL;
    brim__thread *thread;
    BRIM_CALLOC(ctx, thread, 1);
    thread->body = body;
    thread->user = user;
    snprintf(thread->name, sizeof thread->name, "%s", name);
    /* Signals belong to the program's own threads: a handler that one of ours ran would not
     * interrupt what the program waits in. Faults and the profiler's signal stay as they are. */
    static const int kept[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        sigdelset(&blocked, kept[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(&thread->handle, NULL, thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        brim__free(ctx, thread);
        BRIM_FAIL(SYSTEM, "thread.start", "cannot start thread %s: %s", name, strerror(error));
    }
    *out = thread;
    return BRIM_OK;
}

void brim__thread_join(brim__thread *thread, brim_context *ctx)
{
    if (!thread)
        return;
    pthread_join(thread->handle, NULL);
    brim__free(ctx, thread);
}

bool brim__thread_pin(uint32_t index)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return false;
    uint32_t count = (uint32_t)CPU_COUNT(&allowed), seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && count; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || seen++ != index % count)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
    }
    return false;
}

uint32_t brim__cpu_count(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 1;
    int count = CPU_COUNT(&allowed);
    return count > 0 ? (uint32_t)count : 1;
}

void brim__futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
    struct timespec t = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_ns ? &t : NULL, NULL, 0);
}

void brim__futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}
