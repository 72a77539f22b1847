/* cuda_block.h: one block of 256 CUDA threads on a host thread, for tests of device code that keeps
 * to the common subset of C and CUDA. Each thread is a fiber that runs until it waits: at the
 * block's barrier or in an operation of its warp. The order in which fibers run is a parameter, so
 * that a forgotten barrier shows. Include it after all other headers: it takes CUDA's names.
 *
 * Fibers start by ucontext and then switch by setjmp, which asks the kernel for nothing. The
 * address sanitizer has to be told; the thread sanitizer can't be (BLOCK_WORKS is 0). */
#ifndef CUDA_BLOCK_H
#define CUDA_BLOCK_H

#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define BLOCK_ASAN 1
#elif __has_feature(thread_sanitizer)
#define BLOCK_TSAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define BLOCK_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) || defined(BLOCK_TSAN)
#define BLOCK_WORKS 0
#else
#define BLOCK_WORKS 1
#endif
#ifdef BLOCK_ASAN
#define BLOCK_SLOW 1
#else
#define BLOCK_SLOW 0
#endif
#ifdef BLOCK_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

enum { BLOCK_THREADS = 256, BLOCK_WARPS = BLOCK_THREADS / 32, BLOCK_STACK_BYTES = 64 * 1024 };

typedef struct block_fiber {
    ucontext_t context;
    jmp_buf at;
    void *fake_stack;
    uint8_t *stack;
    bool running; /* the job is not over */
    int operations;
} block_fiber;

typedef struct block_crew { /* those who wait for one another */
    int arrived, size;
    uint64_t released;
} block_crew;

static struct {
    block_fiber fiber[BLOCK_THREADS];
    block_crew all, warp[BLOCK_WARPS];
    uint64_t mailbox[BLOCK_WARPS][2][32];
    ucontext_t home_context;
    jmp_buf home;
    const void *home_stack;
    size_t home_bytes;
    void (*job)(void *arg, int thread);
    void *arg;
    int thread; /* that runs */
    uint64_t progress;
    bool begun;
} block;

__attribute__((noinline)) static void block_pause(void)
{
    block_fiber *me = &block.fiber[block.thread];
#ifdef BLOCK_ASAN
    __sanitizer_start_switch_fiber(&me->fake_stack, block.home_stack, block.home_bytes);
    swapcontext(&me->context, &block.home_context);
    __sanitizer_finish_switch_fiber(me->fake_stack, NULL, NULL);
#else
    if (_setjmp(me->at) == 0)
        _longjmp(block.home, 1);
#endif
}

static void block_fiber_main(void)
{
#ifdef BLOCK_ASAN
    __sanitizer_finish_switch_fiber(NULL, &block.home_stack, &block.home_bytes);
#endif
    for (;;) {
        int thread = block.thread;
        block.job(block.arg, thread);
        block.fiber[thread].running = false;
        block.progress++;
        block_pause();
    }
}

/* From the home stack: lets a fiber run until it waits. */
__attribute__((noinline)) static void block_resume(int thread, bool first)
{
    block_fiber *f = &block.fiber[thread];
    block.thread = thread;
#ifdef BLOCK_ASAN
    void *fake_stack;
    __sanitizer_start_switch_fiber(&fake_stack, f->stack, BLOCK_STACK_BYTES);
    swapcontext(&block.home_context, &f->context);
    __sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
    (void)first;
#else
    if (_setjmp(block.home) == 0) {
        if (first)
            setcontext(&f->context);
        _longjmp(f->at, 1);
    }
#endif
}

static void block_wait(block_crew *crew)
{
    uint64_t released = crew->released;
    if (++crew->arrived == crew->size) {
        crew->arrived = 0;
        crew->released++;
        block.progress++;
    }
    while (crew->released == released)
        block_pause();
}

static void block_prepare(block_fiber *f)
{
    f->stack = malloc(BLOCK_STACK_BYTES);
    if (!f->stack || getcontext(&f->context) != 0)
        abort();
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = BLOCK_STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, block_fiber_main, 0);
}

static void block_begin(void)
{
    block.all.size = BLOCK_THREADS;
    for (int w = 0; w < BLOCK_WARPS; w++)
        block.warp[w].size = 32;
    for (int i = 0; i < BLOCK_THREADS; i++)
        block_prepare(&block.fiber[i]);
}

/* Runs job(arg, thread) for 256 threads. False: some wait for others that never come. */
static bool block_run(void (*job)(void *arg, int thread), void *arg, uint32_t order)
{
    bool first = !block.begun;
    if (first)
        block_begin();
    block.begun = true;
    block.job = job;
    block.arg = arg;
    int left = BLOCK_THREADS;
    for (int i = 0; i < BLOCK_THREADS; i++)
        block.fiber[i].running = true;
    for (uint64_t before = ~UINT64_C(0); left && before != block.progress; first = false) {
        before = block.progress;
        left = 0;
        for (uint32_t i = 0; i < BLOCK_THREADS; i++) {
            int thread = (int)((i * (2 * order + 1) + order / 7) % BLOCK_THREADS);
            if (block.fiber[thread].running || first)
                block_resume(thread, first);
            left += block.fiber[thread].running;
        }
    }
    return left == 0;
}

static void block_end(void)
{
    for (int i = 0; i < BLOCK_THREADS; i++)
        free(block.fiber[i].stack);
    memset(&block, 0, sizeof block);
}

/* All lanes of a warp put a value; what they put. Twice two places: who is late still reads. */
static const uint64_t *block_exchange(uint64_t v)
{
    int warp = block.thread / 32, lane = block.thread % 32;
    uint64_t *box = block.mailbox[warp][block.fiber[block.thread].operations++ % 2];
    box[lane] = v;
    block_wait(&block.warp[warp]);
    return box;
}

/* ---- CUDA's names ---- */

#define FN static inline
#define __device__
#define __noinline__ __attribute__((noinline))
#define SAMPLE_BARRIER() block_wait(&block.all)
#define SAMPLE_UNROLL
#define SAMPLE_ROLLED
#define __ldcg(p) (*(p))

typedef struct float4 {
    float x, y, z, w;
} float4;

static inline float __uint_as_float(uint32_t v)
{
    float f;
    memcpy(&f, &v, sizeof f);
    return f;
}
static inline uint32_t __float_as_uint(float f)
{
    uint32_t v;
    memcpy(&v, &f, sizeof v);
    return v;
}
/* The build forbids contraction. */
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline int64_t __float2ll_rz(float f)
{
    return (int64_t)f;
}
static inline uint64_t __umul64hi(uint64_t a, uint64_t b)
{
    return (uint64_t)((unsigned __int128)a * b >> 64);
}
static inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
static inline int __popc(uint32_t v)
{
    return __builtin_popcount(v);
}
static inline uint32_t atomicAdd(uint32_t *p, uint32_t v)
{
    uint32_t old = *p;
    *p += v;
    return old;
}
static inline uint32_t atomicOr(uint32_t *p, uint32_t v)
{
    uint32_t old = *p;
    *p |= v;
    return old;
}
static inline uint64_t __shfl_sync(uint32_t mask, uint64_t v, int lane)
{
    return block_exchange(v)[lane % 32];
}
static inline uint64_t __shfl_up_sync(uint32_t mask, uint64_t v, int by)
{
    int lane = block.thread % 32;
    return block_exchange(v)[lane >= by ? lane - by : lane];
}
static inline uint64_t __shfl_xor_sync(uint32_t mask, uint64_t v, int by)
{
    int lane = block.thread % 32;
    return block_exchange(v)[lane ^ by];
}
static inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t v)
{
    const uint64_t *all = block_exchange(v);
    uint64_t max = 0;
    for (int i = 0; i < 32; i++)
        max = all[i] > max ? all[i] : max;
    return (uint32_t)max;
}
static inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t v)
{
    const uint64_t *all = block_exchange(v);
    uint64_t sum = 0;
    for (int i = 0; i < 32; i++)
        sum += all[i];
    return (uint32_t)sum;
}
static inline uint32_t __ballot_sync(uint32_t mask, bool v)
{
    const uint64_t *all = block_exchange(v);
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++)
        bits |= (uint32_t)all[i] << i;
    return bits;
}

#endif
