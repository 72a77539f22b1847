/* gpu_litmus.cu: litmus tests of what the resident kernel orders itself with: the very functions of
 * kernels/cuda/ptx.cuh, in the patterns that docs/gpu.md argues for, on all multiprocessors at
 * once, with random delays.
 *
 *   gpu_litmus [EFFORT]     1 to 5: rounds are multiplied by it (default 1: some seconds)
 *
 * A row of the table is a pattern: how often it was run, how often what must not happen was seen,
 * PASS or FAIL. A row that begins with "without" is a control: the same with a fence, a wait or a
 * reset left out. There "seen" shows that the test could have seen it; "not seen" is no failure:
 * hardware need not do all that the model allows. Exit code 1: a violation; 2: no device.
 *
 * Model: NVIDIA, "Parallel Thread Execution ISA", chapter "Memory Consistency Model". */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "kernels/cuda/ptx.cuh"

enum {
    WARPS = 10, /* 8 that consume, one that fetches, one that finishes */
    CONSUMERS = 8,
    FETCH = 8,
    FINISH = 9,
    REPLICAS = 4,
    SLOT_BYTES = 16384,
    RING_SLOTS = 6,
    SUM_SLOTS = 16,
    SUM_FLOATS = 72,
    ENTRIES = 64, /* of a ring of results */
    ENTRY_WORDS = 36,
    CHUNKS = 4096, /* of the weights: 64 MiB */
    STEP_WORDS = 32,
    WAIT_US = 500000, /* then a wait is a violation */
};
#define EMPTY 0xffffffffu

#if !HAS_BULK /* the compiler's pass over the host's code */
FN void barrier_expect(uint32_t, uint32_t) {}
FN uint64_t policy_evict_first(void)
{
    return 0;
}
FN void copy_bulk(uint32_t, const void *, uint32_t, uint32_t, uint64_t) {}
#endif

/* ---- what all tests share ---- */

typedef struct outcome {
    unsigned long long runs, bad;
    uint32_t stop; /* somebody waited too long: all leave */
    uint32_t late;
} outcome;

typedef struct setup {
    outcome *out;
    uint32_t rounds, wait_us;
    char *memory;    /* zeroed, or full of the empty word */
    char *mapped;    /* of the host */
    uint32_t *words; /* counters, zeroed: 32 words apart */
} setup;

FN uint32_t mix(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t h = a * 2654435761u ^ b * 2246822519u ^ c * 3266489917u;
    h = (h ^ h >> 15) * 2246822519u;
    return h ^ h >> 13;
}
/* A value that a packet may have. */
FN uint32_t value_of(uint32_t a, uint32_t b, uint32_t c)
{
    return mix(a, b, c) & 0x7fffffffu;
}

FN void pause_some(uint32_t h)
{
    if (h % 4 == 0) {
        uint32_t cycles = h >> 8 & 1023;
        for (int64_t begin = clock64(); clock64() - begin < cycles;)
            ;
    } else if (h % 64 == 1)
        __nanosleep(h >> 8 & 2047);
}

FN void note_bad(const setup *s, bool bad)
{
    if (bad)
        atomicAdd(&s->out->bad, 1ull);
}
FN void note_runs(const setup *s, uint32_t runs)
{
    atomicAdd(&s->out->runs, (unsigned long long)runs);
}

/* A warp waits until each of its threads has found `look` true; when that takes too long it ends,
 * and with it the test. OFTEN: looks between two looks at the time. */
template <uint32_t OFTEN = 64, class Look>
FN void wait_warp(const setup *s, Look look)
{
    uint64_t since = 0;
    for (uint32_t tries = 1; !__all_sync(~0u, look()); tries++) {
        if (tries % OFTEN != 0)
            continue;
        uint64_t now = timer_ns();
        since = since ? since : now;
        bool late = now - since > 1000ull * s->wait_us;
        bool stop = *(volatile uint32_t *)&s->out->stop != 0;
        if (__any_sync(~0u, late || stop)) {
            if (threadIdx.x % 32 == 0) {
                if (!stop)
                    atomicAdd(&s->out->late, 1u);
                atomicExch(&s->out->stop, 1u);
            }
            __syncwarp();
            asm volatile("exit;");
        }
    }
}
FN void wait_phase(const setup *s, uint32_t bar, uint32_t phase)
{
    if (threadIdx.x & 32) /* warps wait in one of the kernel's two ways */
        wait_warp<1>(s, [&] { return barrier_spin(bar, phase); });
    else
        wait_warp<4>(s, [&] { return barrier_try(bar, phase); });
}
FN void arrive_warp(uint32_t bar)
{
    __syncwarp();
    barrier_arrive_if(bar, threadIdx.x % 32 == 0);
}

/* What ptx.cuh has not, since the kernel must not use it: for controls. */
FN uint64_t ld_relaxed64(const void *p)
{
    uint64_t v;
    asm volatile("ld.relaxed.gpu.global.u64 %0,[%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
FN void st_relaxed64(void *p, uint64_t v)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0],%1;" ::"l"(p), "l"(v) : "memory");
}
FN void red_relaxed(void *p, uint32_t v)
{
    asm volatile("red.relaxed.gpu.global.add.u32 [%0],%1;" ::"l"(p), "r"(v) : "memory");
}
/* Weak accesses that the compiler leaves where they are. */
FN uint32_t ld_plain(const void *p)
{
    uint32_t v;
    asm volatile("ld.global.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
FN void st_plain(void *p, uint32_t v)
{
    asm volatile("st.global.u32 [%0],%1;" ::"l"(p), "r"(v) : "memory");
}
FN void fence_proxy_global(void)
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}
FN void fence_proxy_shared(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- message passing between two blocks ---- */

/* Packets, each written once: a word is empty or the data, and stays the data. Warp 0 writes for
 * others, warp 1 reads what another block writes. */
static __global__ void packets_once(setup s)
{
    uint32_t lane = blockIdx.x, lanes = gridDim.x, thread = threadIdx.x % 32;
    for (uint32_t e = 0; e < s.rounds; e++) {
        pause_some(mix(e, lane, threadIdx.x / 32));
        if (threadIdx.x < 32) {
            st_packet(s.memory + ((uint64_t)e * lanes + lane) * 128 + thread * 4,
                      value_of(e, lane, thread));
            continue;
        }
        uint32_t other = (lane + 1 + e % (lanes > 1 ? lanes - 1 : 1)) % lanes, at = thread % 8 * 4;
        const char *from = s.memory + ((uint64_t)e * lanes + other) * 128 + at * 4;
        bool bad = false;
        uint4 had = make_uint4(EMPTY, EMPTY, EMPTY, EMPTY);
        wait_warp(&s, [&] {
            uint4 v = ld_packet4(from);
            bad |= (v.x != EMPTY && v.x != value_of(e, other, at)) ||
                   (v.y != EMPTY && v.y != value_of(e, other, at + 1)) ||
                   (v.z != EMPTY && v.z != value_of(e, other, at + 2)) ||
                   (v.w != EMPTY && v.w != value_of(e, other, at + 3));
            bad |= (had.x != EMPTY && v.x == EMPTY) || (had.y != EMPTY && v.y == EMPTY) ||
                   (had.z != EMPTY && v.z == EMPTY) || (had.w != EMPTY && v.w == EMPTY);
            had = v;
            return v.x != EMPTY && v.y != EMPTY && v.z != EMPTY && v.w != EMPTY;
        });
        note_bad(&s, bad);
    }
    if (threadIdx.x == 32)
        note_runs(&s, 32 * s.rounds);
}

/* Plain data by a warp's 32 threads, a counter released by one of them; every thread of the reading
 * warp acquires. Block i writes for block i + 1, which answers by another counter. */
template <bool ORDERED>
static __global__ void counter(setup s)
{
    uint32_t lane = blockIdx.x, lanes = gridDim.x, thread = threadIdx.x % 32;
    bool writes = threadIdx.x < 32;
    uint32_t from = writes ? lane : (lane + lanes - 1) % lanes;
    uint32_t *data = (uint32_t *)(s.memory + from * 256);
    uint32_t *said = s.words + from * 64, *answered = said + 32;
    for (uint32_t e = 0; e < s.rounds; e++) {
        uint32_t *word = data + e % 2 * 32 + thread;
        pause_some(mix(e, lane, threadIdx.x / 32));
        if (writes) { /* the word was read two rounds ago */
            wait_warp(&s, [&] { return (int32_t)(ld_acquire(answered) + 1 - e) >= 0; });
            st_plain(word, mix(e, from, thread));
            __syncwarp();
            if (thread == 0) {
                if (ORDERED)
                    red_release(said, 1);
                else
                    red_relaxed(said, 1);
            }
        } else {
            wait_warp(&s, [&] {
                uint32_t seen = ORDERED ? ld_acquire(said) : ld_packet(said);
                return (int32_t)(seen - (e + 1)) >= 0;
            });
            note_bad(&s, ld_plain(word) != mix(e, from, thread));
            __syncwarp();
            if (thread == 0)
                red_release(answered, 1);
        }
    }
    if (threadIdx.x == 32)
        note_runs(&s, 32 * s.rounds);
}

/* Two blocks each store a word and load the other's; that both miss the other's store is what
 * fence.sc forbids. The kernel has no such place: this says what would happen if it had. */
template <bool FENCED>
static __global__ void store_buffering(setup s)
{
    uint32_t pair = blockIdx.x / 2, side = blockIdx.x % 2, both = gridDim.x / 2;
    if (pair >= both)
        return;
    uint32_t *met = s.words + pair * 32, *seen = (uint32_t *)s.memory;
    uint32_t *x = seen + 2ull * both * s.rounds; /* (round, pair, side), 32 words apart */
    for (uint32_t e = 0; e < s.rounds; e++) {
        uint32_t *own = x + (((uint64_t)e * both + pair) * 2 + side) * 32;
        uint32_t *other = x + (((uint64_t)e * both + pair) * 2 + 1 - side) * 32;
        if (threadIdx.x == 0)
            red_release(met, 1);
        wait_warp(&s, [&] { return (int32_t)(ld_acquire(met) - 2 * (e + 1)) >= 0; });
        if (threadIdx.x == 0) {
            for (int64_t begin = clock64(), n = mix(e, pair, side) & 63; clock64() - begin < n;)
                ;
            st_packet(own, 1);
            if (FENCED)
                __threadfence();
            seen[((uint64_t)e * both + pair) * 2 + side] = ld_packet(other);
            red_release(met + 16, 1);
        }
        wait_warp(&s, [&] { return (int32_t)(ld_acquire(met + 16) - 2 * (e + 1)) >= 0; });
        if (threadIdx.x == 0 && side == 0)
            note_bad(&s, ld_plain(seen + ((uint64_t)e * both + pair) * 2) == 0 &&
                             ld_plain(seen + ((uint64_t)e * both + pair) * 2 + 1) == 0);
    }
    if (threadIdx.x == 0 && side == 0)
        note_runs(&s, s.rounds);
}

/* ---- steps ---- */

typedef struct steps_shared {
    uint64_t step, done, full;
    uint32_t seen; /* step words that were wrong */
} steps_shared;

typedef struct lane {
    const setup *s;
    steps_shared *shared;
    char *memory;   /* of the test */
    uint32_t ring;  /* shared address of a slot */
    uint32_t lane, lanes, warp, thread;
} lane;

/* Steps as the resident kernel has them. A consumer warp does T::work(), the fetching warp
 * T::fetch(); then "done" -> arrived counter -> lane 0 -> go word -> "step". Lane 0 writes a few
 * words before go that the finishing warps read. */
template <class T>
FN void finish_steps(const lane *me, const setup *s)
{
    uint32_t step = shared_address(&me->shared->step), done = shared_address(&me->shared->done);
    uint32_t *arrived = s->words, *go = s->words + 32, *words = s->words + 64;
    for (uint32_t e = 0; e < s->rounds; e++) {
        if (e > 0) {
            uint64_t g = 0;
            wait_warp(s, [&] {
                g = T::ordered ? ld_acquire64(go) : ld_relaxed64(go);
                return (uint32_t)g >= e + 1;
            });
            uint32_t word = __ldcg(words + e % 2 * STEP_WORDS + me->thread);
            if (T::looks_at_go)
                note_bad(s, (uint32_t)(g >> 32) != mix(e, 1, 1) || word != mix(e, 2, me->thread));
        }
        arrive_warp(step);
        wait_phase(s, done, e & 1);
        if (me->thread == 0) {
            if (T::ordered)
                red_release(arrived, 1);
            else
                red_relaxed(arrived, 1);
        }
        __syncwarp();
    }
}

template <class T>
FN void end_step(const lane *me, const setup *s, uint32_t e)
{
    uint32_t *arrived = s->words, *go = s->words + 32, *words = s->words + 64;
    wait_warp(s, [&] {
        uint32_t seen = T::ordered ? ld_acquire(arrived) : ld_packet(arrived);
        return (int32_t)(seen - me->lanes * (e + 1)) >= 0;
    });
    __stcg(words + (e + 1) % 2 * STEP_WORDS + me->thread, mix(e + 1, 2, me->thread));
    __syncwarp();
    if (me->thread == 0) {
        uint64_t g = (uint64_t)mix(e + 1, 1, 1) << 32 | (e + 2);
        if (T::ordered)
            st_release64(go, g);
        else
            st_relaxed64(go, g);
    }
    __syncwarp();
}

template <class T>
static __global__ void __launch_bounds__(32 * WARPS, 1) steps(setup s)
{
    extern __shared__ __align__(1024) char memory[];
    __shared__ steps_shared shared;
    lane me = {&s, &shared, s.memory, shared_address(memory), blockIdx.x, gridDim.x,
               threadIdx.x / 32, threadIdx.x % 32};
    if (threadIdx.x == 0) {
        barrier_init(shared_address(&shared.step), 1);
        barrier_init(shared_address(&shared.done), CONSUMERS + 1);
        barrier_init(shared_address(&shared.full), 1);
    }
    __syncthreads();
    if (me.warp == FINISH)
        return finish_steps<T>(&me, &s);
    for (uint32_t e = 0; e < s.rounds; e++) {
        wait_phase(&s, shared_address(&shared.step), e & 1);
        pause_some(mix(e, me.lane, me.warp));
        if (me.warp == FETCH)
            T::fetch(&me, e);
        else
            T::work(&me, e);
        arrive_warp(shared_address(&shared.done));
        if (me.lane == 0 && me.warp == 0)
            end_step<T>(&me, &s, e);
    }
    if (threadIdx.x == 0)
        note_runs(&s, T::runs * s.rounds);
}

/* The go word, its token and the words before it. */
template <bool ORDERED>
struct go_word {
    static const bool ordered = ORDERED, looks_at_go = true;
    static const uint32_t runs = 1;
    FN void work(const lane *, uint32_t) {}
    FN void fetch(const lane *, uint32_t) {}
};

/* Plain data of a step is read in the next, through the L1 and around it, by warps that have
 * acquired nothing themselves. */
template <bool ORDERED>
struct plain_data {
    static const bool ordered = ORDERED, looks_at_go = false;
    static const uint32_t runs = 32 * CONSUMERS;
    FN uint32_t *place(const lane *me, uint32_t e, uint32_t lane)
    {
        return (uint32_t *)me->memory +
               (((uint64_t)(e % 2) * me->lanes + lane) * CONSUMERS + me->warp) * 32 + me->thread;
    }
    FN void work(const lane *me, uint32_t e)
    {
        if (e > 0)
            for (uint32_t n = 0; n < 4; n++) {
                uint32_t other = (me->lane + n * 31 + mix(e, n, 5) % 2) % me->lanes;
                uint32_t *at = place(me, e - 1, other), want = mix(e - 1, other, me->warp);
                note_bad(me->s, ld_plain(at) != want || __ldcg(at) != want);
            }
        st_plain(place(me, e, me->lane), mix(e, me->lane, me->warp));
    }
    FN void fetch(const lane *, uint32_t) {}
};

/* Packets in two parities: a word is emptied in the other parity's set by the step that publishes
 * it. SKIPPED: a step of four leaves half of the words out, as attention does when a window has
 * left a split; who owns them empties them. */
enum { RESET = 1, SKIPPED = 2, EMPTIED = 4, ORDERED = 8 };
template <int MODE>
struct packets {
    static const bool ordered = MODE & ORDERED, looks_at_go = false;
    static const uint32_t runs = 2 * 32 * CONSUMERS;
    FN char *set(const lane *me, uint32_t parity, uint32_t copy)
    {
        return me->memory + (uint64_t)(parity * REPLICAS + copy) * me->lanes * CONSUMERS * 128;
    }
    FN bool is_there(uint32_t e, uint32_t word)
    {
        return !(MODE & SKIPPED) || word < 16 || e % 4 != 1;
    }
    FN void publish(const lane *me, uint32_t e)
    {
        uint32_t at = (me->lane * CONSUMERS + me->warp) * 128 + me->thread * 4;
        bool now = is_there(e, me->thread);
        if (now)
            for (uint32_t n = 0; n < REPLICAS; n++)
                st_packet(set(me, e & 1, n) + at, value_of(e, me->lane, me->thread));
        bool before = e > 0 && is_there(e - 1, me->thread);
        if (now ? MODE & RESET : before && (MODE & EMPTIED))
            for (uint32_t n = 0; n < REPLICAS; n++)
                st_packet(set(me, ~e & 1, n) + at, EMPTY);
    }
    FN void work(const lane *me, uint32_t e)
    {
        publish(me, e);
        pause_some(mix(e, me->lane, me->warp + 8));
        for (uint32_t n = 0; n < 2; n++) {
            uint32_t h = mix(e, me->lane * CONSUMERS + me->warp, n);
            uint32_t other = h % me->lanes, warp = h >> 16 & 7, at = me->thread % 8 * 4;
            const char *from = set(me, e & 1, me->lane % REPLICAS) +
                               (other * CONSUMERS + warp) * 128 + at * 4;
            bool wanted = is_there(e, at);
            uint4 v = make_uint4(EMPTY, EMPTY, EMPTY, EMPTY);
            wait_warp(me->s, [&] {
                if (wanted && (v.x == EMPTY || v.y == EMPTY || v.z == EMPTY || v.w == EMPTY))
                    v = ld_packet4(from);
                return !wanted ||
                       (v.x != EMPTY && v.y != EMPTY && v.z != EMPTY && v.w != EMPTY);
            });
            note_bad(me->s, wanted && (v.x != value_of(e, other, at) ||
                                       v.y != value_of(e, other, at + 1) ||
                                       v.z != value_of(e, other, at + 2) ||
                                       v.w != value_of(e, other, at + 3)));
        }
    }
    FN void fetch(const lane *, uint32_t) {}
};

/* The KV pool: plain stores in a step, a bulk copy by another block in the next. */
enum { READER = 16, READER_GLOBAL = 32, WRITER = 64 };
template <int MODE>
struct pool {
    static const bool ordered = true, looks_at_go = false;
    static const uint32_t runs = SLOT_BYTES / 16;
    FN char *place(const lane *me, uint32_t e, uint32_t lane)
    {
        return me->memory + ((uint64_t)(e % 2) * me->lanes + lane) * SLOT_BYTES;
    }
    FN uint32_t other(const lane *me, uint32_t e)
    {
        return (me->lane + 1 + mix(e, 3, 3)) % me->lanes;
    }
    FN void work(const lane *me, uint32_t e)
    {
        if (e > 0) {
            wait_phase(me->s, shared_address(&me->shared->full), (e - 1) & 1);
            bool bad = false;
            for (uint32_t i = 0; i < SLOT_BYTES / 4096; i++) {
                uint32_t at = i * 4096 + (me->warp * 32 + me->thread) * 16;
                uint4 v = lds4(me->ring + at);
                uint32_t want = mix(e - 1, other(me, e), at / 16);
                bad |= v.x != want || v.y != want + 1 || v.z != want + 2 || v.w != want + 3;
            }
            note_bad(me->s, bad);
        }
        /* A warp writes what others will read with other warps. */
        uint32_t warp = (me->warp + 3) % CONSUMERS;
        for (uint32_t i = 0; i < SLOT_BYTES / 4096; i++) {
            uint32_t at = i * 4096 + (warp * 32 + me->thread) * 16;
            for (uint32_t n = 0; n < 4; n++)
                st_plain(place(me, e, me->lane) + at + 4 * n, mix(e, me->lane, at / 16) + n);
        }
        if (MODE & WRITER)
            fence_proxy_global();
    }
    FN void fetch(const lane *me, uint32_t e)
    {
        if (MODE & READER)
            fence_proxy();
        if (MODE & READER_GLOBAL)
            fence_proxy_global();
        if (e == 0 || me->thread != e % 32)
            return;
        uint32_t bar = shared_address(&me->shared->full);
        const char *from = place(me, e - 1, other(me, e));
        barrier_expect(bar, SLOT_BYTES);
        copy_bulk(me->ring, from, SLOT_BYTES / 2, bar, policy_evict_first());
        copy_bulk(me->ring + SLOT_BYTES / 2, from + SLOT_BYTES / 2, SLOT_BYTES / 2, bar,
                  policy_evict_first());
    }
};

/* ---- inside a block ---- */

/* The ring: bulk copies of weights, full and empty barriers. */
enum { AS_IT_IS, PROXY_FENCED, EARLY_RELEASE, EARLY_READ };

FN uint32_t weight(uint64_t index)
{
    return (uint32_t)index * 2654435761u + 12345u;
}
static __global__ void fill_weights(uint32_t *to, uint64_t count)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x)
        to[i] = weight(i);
}
/* Where the n-th slot's halves come from. */
FN uint64_t source_of(uint32_t n, uint32_t half)
{
    return (uint64_t)(mix(n, blockIdx.x, half) % (2 * CHUNKS)) * (SLOT_BYTES / 2);
}

template <int MODE>
FN void ring_fetch(const setup *s, uint32_t ring, uint64_t *full, uint64_t *empty)
{
    uint32_t thread = threadIdx.x % 32, next = 0, full_phase = 0, empty_phase = 0;
    int state = thread < RING_SLOTS ? 0 : -1; /* free, in flight, landed */
    uint32_t own_full = shared_address(full) + 8 * thread;
    uint32_t own_empty = shared_address(empty) + 8 * thread;
    for (uint32_t n = 0; n < s->rounds; n++) {
        pause_some(mix(n, blockIdx.x, 77));
        wait_warp(s, [&] {
            if (state == 1 && barrier_test(own_full, full_phase)) {
                state = 2;
                full_phase ^= 1;
            }
            if (state == 2 && barrier_test(own_empty, empty_phase)) {
                state = 0;
                empty_phase ^= 1;
            }
            return thread != next || state == 0;
        });
        if (thread == next) {
            uint32_t bar = own_full, to = ring + next * SLOT_BYTES;
            if (MODE == PROXY_FENCED)
                fence_proxy_shared();
            barrier_expect(bar, SLOT_BYTES);
            for (uint32_t half = 0; half < 2; half++)
                copy_bulk(to + half * (SLOT_BYTES / 2), s->memory + source_of(n, half),
                          SLOT_BYTES / 2, bar, policy_evict_first());
            state = 1;
        }
        next = (next + 1) % RING_SLOTS;
    }
    wait_warp(s, [&] { /* nothing in flight when the block ends */
        if (state == 1 && barrier_test(own_full, full_phase))
            state = 2;
        return state != 1;
    });
}

FN bool granules_differ(const setup *s, uint32_t at, uint32_t warp, uint32_t n)
{
    uint4 v[4];
    for (uint32_t i = 0; i < 4; i++)
        v[i] = lds4(at + i * 4096);
    bool bad = false;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t byte = i * 4096 + warp * 512 + threadIdx.x % 32 * 16;
        uint64_t word = (source_of(n, byte / (SLOT_BYTES / 2)) + byte % (SLOT_BYTES / 2)) / 4;
        bad |= v[i].x != weight(word) || v[i].y != weight(word + 1) ||
               v[i].z != weight(word + 2) || v[i].w != weight(word + 3);
    }
    return bad;
}

template <int MODE>
static __global__ void __launch_bounds__(32 * (CONSUMERS + 1), 1) ring(setup s)
{
    extern __shared__ __align__(1024) char memory[];
    __shared__ uint64_t full[RING_SLOTS], empty[RING_SLOTS];
    uint32_t warp = threadIdx.x / 32, thread = threadIdx.x % 32, slots = shared_address(memory);
    if (threadIdx.x < RING_SLOTS) {
        barrier_init(shared_address(&full[threadIdx.x]), 1);
        barrier_init(shared_address(&empty[threadIdx.x]), CONSUMERS);
    }
    __syncthreads();
    if (warp == CONSUMERS)
        return ring_fetch<MODE>(&s, slots, full, empty);
    uint32_t slot = 0, phase = 0;
    for (uint32_t n = 0; n < s.rounds; n++) {
        uint32_t at = slots + slot * SLOT_BYTES + warp * 512 + thread * 16;
        pause_some(mix(n, blockIdx.x, warp));
        bool bad = MODE == EARLY_READ && granules_differ(&s, at, warp, n);
        wait_phase(&s, shared_address(&full[slot]), phase);
        if (MODE == EARLY_RELEASE) {
            arrive_warp(shared_address(&empty[slot]));
            pause_some(mix(n, blockIdx.x, warp + 8));
        }
        if (MODE != EARLY_READ)
            bad = granules_differ(&s, at, warp, n);
        if (MODE != EARLY_RELEASE)
            arrive_warp(shared_address(&empty[slot]));
        note_bad(&s, bad);
        if (++slot == RING_SLOTS) {
            slot = 0;
            phase ^= 1;
        }
    }
    if (threadIdx.x == 0)
        note_runs(&s, s.rounds * (SLOT_BYTES / 16));
}

/* Sums on their way to the finishing warp: tile and room barriers. */
template <bool EARLY>
static __global__ void __launch_bounds__(32 * (CONSUMERS + 1), 1) sums(setup s)
{
    __shared__ uint64_t tile[SUM_SLOTS], room[SUM_SLOTS];
    __shared__ float sum[SUM_SLOTS][SUM_FLOATS];
    uint32_t warp = threadIdx.x / 32, thread = threadIdx.x % 32, slot = 0;
    if (threadIdx.x < SUM_SLOTS) {
        barrier_init(shared_address(&tile[threadIdx.x]), CONSUMERS);
        barrier_init(shared_address(&room[threadIdx.x]), 1);
    }
    __syncthreads();
    uint32_t phase = warp < CONSUMERS ? 1 : 0; /* there is room at first */
    for (uint32_t n = 0; n < s.rounds; n++) {
        pause_some(mix(n, blockIdx.x, warp));
        volatile float *at = sum[slot];
        if (warp < CONSUMERS) {
            wait_phase(&s, shared_address(&room[slot]), phase);
            if (thread < 8)
                at[warp * 8 + thread] = (float)(mix(n, warp, thread) & 0xffff);
            arrive_warp(shared_address(&tile[slot]));
        } else {
            wait_phase(&s, shared_address(&tile[slot]), phase);
            if (EARLY) {
                arrive_warp(shared_address(&room[slot]));
                pause_some(mix(n, blockIdx.x, 99));
            }
            bool bad = false;
            for (uint32_t w = 0; w < CONSUMERS; w++)
                bad |= at[w * 8 + thread % 8] != (float)(mix(n, w, thread % 8) & 0xffff);
            if (!EARLY)
                arrive_warp(shared_address(&room[slot]));
            note_bad(&s, bad);
        }
        if (++slot == SUM_SLOTS) {
            slot = 0;
            phase ^= 1;
        }
    }
    if (threadIdx.x == 0)
        note_runs(&s, s.rounds);
}

/* Who ends a step and who tells the host: two buffers, a barrier one way, a word the other. BEHIND:
 * how many steps the second may be behind when the first fills a buffer. With one the two phases of
 * the barrier that a parity can tell apart are not enough. */
template <int BEHIND>
static __global__ void messenger(setup s)
{
    __shared__ uint64_t message;
    __shared__ volatile uint32_t published;
    __shared__ uint32_t result[2][32];
    uint32_t thread = threadIdx.x % 32, bar = shared_address(&message);
    if (threadIdx.x == 0) {
        barrier_init(bar, 1);
        published = 0;
    }
    __syncthreads();
    for (uint32_t e = 0; e < s.rounds; e++) {
        if (threadIdx.x < 32) {
            pause_some(mix(e, blockIdx.x, 1));
            wait_warp(&s, [&] { return (int32_t)(e - published) <= BEHIND; });
            result[e & 1][thread] = mix(e, blockIdx.x, thread);
            arrive_warp(bar);
            continue;
        }
        wait_phase(&s, bar, e & 1);
        uint32_t h = mix(e, blockIdx.x, 2);
        if (h % 16 == 0)
            __nanosleep(h >> 8 & 8191); /* the host's memory is slow */
        note_bad(&s, *(volatile uint32_t *)&result[e & 1][thread] != mix(e, blockIdx.x, thread));
        __threadfence_system();
        __syncwarp();
        if (thread == 0)
            published = e + 1;
        pause_some(h);
        if (thread == 0 && e + 1 == s.rounds)
            note_runs(&s, s.rounds);
    }
}

/* ---- the host's memory ---- */

typedef struct mailbox {
    volatile uint32_t done;
    uint32_t pad0[31];
    volatile uint32_t taken;
    uint32_t pad1[31];
    uint32_t entry[ENTRIES][ENTRY_WORDS];
} mailbox;

static __host__ __device__ uint32_t letter(uint32_t block, uint32_t step, uint32_t word)
{
    return block * 2654435761u ^ step * 2246822519u ^ word * 40503u;
}

/* A warp writes an entry, one of its threads then says so: its fence after the warp has joined, all
 * threads' fences before, or none. */
enum { FENCE_AFTER, FENCE_BEFORE, NO_FENCE };
template <int MODE>
static __global__ void mail_out(setup s)
{
    mailbox *m = (mailbox *)s.mapped + blockIdx.x;
    for (uint32_t e = 0; e < s.rounds; e++) {
        wait_warp(&s, [&] { return (int32_t)(m->taken + ENTRIES - 1 - e) >= 0; });
        note_bad(&s, (int32_t)(m->taken - e) > 0);
        for (uint32_t n = threadIdx.x; n < ENTRY_WORDS; n += 32)
            *(volatile uint32_t *)&m->entry[e % ENTRIES][n] = letter(blockIdx.x, e, n);
        if (MODE == FENCE_BEFORE)
            __threadfence_system();
        __syncwarp();
        if (threadIdx.x == 0) {
            if (MODE == FENCE_AFTER)
                __threadfence_system();
            m->done = e + 1;
        }
        __syncwarp();
    }
    if (threadIdx.x == 0)
        note_runs(&s, s.rounds);
}

/* ---- the host ---- */

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "gpu_litmus: %s: %s\n", what, cudaGetErrorString(error));
    exit(error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ? 2 : 1);
}

static struct {
    int blocks;
    int effort;
    bool failed;
    outcome *out;
    char *memory, *mapped;
    size_t memory_bytes;
    uint32_t *words;
    size_t words_bytes;
} bench;

static void begin_test(setup *s, uint32_t rounds, int fill)
{
    *s = {bench.out, rounds * bench.effort, WAIT_US, bench.memory, NULL, bench.words};
    check(cudaMemset(bench.out, 0, sizeof *bench.out), "memset");
    check(cudaMemset(bench.words, 0, bench.words_bytes), "memset");
    if (fill >= 0)
        check(cudaMemset(bench.memory, fill, bench.memory_bytes), "memset");
    memset(bench.mapped, 0, bench.blocks * sizeof(mailbox));
    check(cudaHostGetDevicePointer((void **)&s->mapped, bench.mapped, 0), "mapped memory");
}

static void end_test(const char *name, unsigned long long host_bad)
{
    outcome o;
    check(cudaDeviceSynchronize(), name);
    check(cudaMemcpy(&o, bench.out, sizeof o, cudaMemcpyDeviceToHost), "copy");
    o.bad += host_bad;
    bool control = strncmp(name, "without", 7) == 0, seen = o.bad || o.late;
    const char *verdict = control ? seen ? "seen" : "not seen" : seen ? "FAIL" : "PASS";
    printf("%-58s %12llu %12llu %6u  %s\n", name, o.runs, o.bad, o.late, verdict);
    fflush(stdout);
    bench.failed |= !control && (seen || o.runs == 0);
}

static void launch(void (*kernel)(setup), setup *s, int threads, size_t shared)
{
    void *arguments[] = {s};
    if (shared)
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)shared),
              "shared memory");
    check(cudaLaunchCooperativeKernel((const void *)kernel, bench.blocks, threads, arguments,
                                      shared, 0),
          "launch");
}

static void test(const char *name, void (*kernel)(setup), uint32_t rounds, int fill, int threads,
                 size_t shared)
{
    setup s;
    begin_test(&s, rounds, fill);
    if (strncmp(name, "without", 7) == 0)
        s.wait_us = 5000; /* where it hangs it is known soon */
    launch(kernel, &s, threads, shared);
    end_test(name, 0);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void test_mail(const char *name, void (*kernel)(setup), uint32_t rounds)
{
    setup s;
    begin_test(&s, rounds, -1);
    launch(kernel, &s, 32, 0);
    mailbox *boxes = (mailbox *)bench.mapped;
    std::vector<uint32_t> next(bench.blocks, 0);
    unsigned long long bad = 0;
    uint64_t begin = now_ns();
    for (int left = bench.blocks; left > 0 && now_ns() - begin < 10000000000ull;)
        for (int b = 0; b < bench.blocks; b++) {
            uint32_t done = boxes[b].done;
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            bad += (int32_t)(done - next[b]) < 0;
            if (done == next[b])
                continue;
            for (; next[b] != done; next[b]++)
                for (uint32_t n = 0; n < ENTRY_WORDS; n++)
                    bad += boxes[b].entry[next[b] % ENTRIES][n] != letter(b, next[b], n);
            __atomic_store_n((uint32_t *)&boxes[b].taken, done, __ATOMIC_RELEASE);
            left -= done == s.rounds;
        }
    end_test(name, bad);
}

static void test_messages(void)
{
    test("packet written once: a word is empty or the data", packets_once, 2000, 0xff, 64, 0);
    test("plain data, red.release by one thread, ld.acquire by all", counter<true>, 20000, 0, 64,
         0);
    test("without release and acquire: the same", counter<false>, 20000, 0, 64, 0);
    test("store, fence.sc, load: not both miss", store_buffering<true>, 5000, 0, 32, 0);
    test("without fence: the same", store_buffering<false>, 5000, 0, 32, 0);
}

static void test_steps(void)
{
    const int threads = 32 * WARPS;
    const uint32_t n = 10000;
    test("go word: its token, the words before it", steps<go_word<true>>, n, 0, threads, 0);
    test("without release and acquire: the same", steps<go_word<false>>, n, 0, threads, 0);
    test("plain data over a step's end", steps<plain_data<true>>, n, 0, threads, 0);
    test("without release and acquire: the same", steps<plain_data<false>>, n, 0, threads, 0);
    test("packets in two parities: none is stale", steps<packets<RESET | ORDERED>>, n, 0xff,
         threads, 0);
    test("without reset: the same", steps<packets<ORDERED>>, n / 20, 0xff, threads, 0);
    test("without release and acquire: the same", steps<packets<RESET>>, n, 0xff, threads, 0);
    test("packets that a step leaves out, emptied by their owner",
         steps<packets<RESET | SKIPPED | EMPTIED | ORDERED>>, n, 0xff, threads, 0);
    test("without emptying what is left out: the same", steps<packets<RESET | SKIPPED | ORDERED>>,
         n / 20, 0xff, threads, 0);
    const size_t slot = SLOT_BYTES;
    test("pool: fence.proxy.async by the reader", steps<pool<READER>>, n, 0, threads, slot);
    test("pool: fence.proxy.async.global by the reader", steps<pool<READER_GLOBAL>>, n, 0, threads,
         slot);
    test("pool: fence.proxy.async.global by both", steps<pool<READER_GLOBAL | WRITER>>, n, 0,
         threads, slot);
    test("without the reader's proxy fence, with the writer's", steps<pool<WRITER>>, n, 0, threads,
         slot);
    test("without proxy fences: the same", steps<pool<0>>, n, 0, threads, slot);
}

static void test_block(void)
{
    const int threads = 32 * (CONSUMERS + 1);
    const size_t slots = RING_SLOTS * SLOT_BYTES;
    fill_weights<<<bench.blocks, 512>>>((uint32_t *)bench.memory,
                                        (uint64_t)CHUNKS * (SLOT_BYTES / 4));
    test("ring: bulk copies, full and empty barriers", ring<AS_IT_IS>, 10000, -1, threads, slots);
    test("ring: with a proxy fence before a slot is filled again", ring<PROXY_FENCED>, 10000, -1,
         threads, slots);
    test("without waiting for full: the same", ring<EARLY_READ>, 500, -1, threads, slots);
    test("without loads before empty: the same", ring<EARLY_RELEASE>, 500, -1, threads, slots);
    test("sums: tile and room barriers", sums<false>, 50000, -1, threads, 0);
    test("without sums read before room: the same", sums<true>, 5000, -1, threads, 0);
    test("messenger: at most the last step behind", messenger<0>, 20000, -1, 64, 0);
    test("without that bound, two steps: the same", messenger<1>, 20000, -1, 64, 0);
}

int main(int argc, char **argv)
{
    int effort = argc > 1 ? argv[1][0] - '0' : 1;
    bench.effort = effort < 1 ? 1 : effort > 5 ? 5 : effort; /* what the memory is enough for */
    int device = 0, capability = 0;
    check(cudaSetDevice(device), "device");
    check(cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device), "device");
    if (capability < 9) {
        printf("gpu_litmus: not run: bulk copies need compute capability 9\n");
        return 2;
    }
    check(cudaDeviceGetAttribute(&bench.blocks, cudaDevAttrMultiProcessorCount, device), "device");
    bench.memory_bytes = 512ull << 20;
    bench.words_bytes = 65536 + bench.blocks * 256;
    check(cudaMalloc(&bench.memory, bench.memory_bytes), "memory");
    check(cudaMalloc(&bench.words, bench.words_bytes), "memory");
    check(cudaMalloc(&bench.out, sizeof *bench.out), "memory");
    check(cudaHostAlloc(&bench.mapped, bench.blocks * sizeof(mailbox), cudaHostAllocMapped),
          "mapped memory");
    uint64_t begin = now_ns();
    printf("%-58s %12s %12s %6s\n", "pattern", "runs", "violations", "late");
    test_messages();
    test_steps();
    test_block();
    test_mail("mailbox: words, join, fence.sc.sys, done", mail_out<FENCE_AFTER>, 1000);
    test_mail("mailbox: words, fence.sc.sys by all, join, done", mail_out<FENCE_BEFORE>, 1000);
    test_mail("without fence: the same", mail_out<NO_FENCE>, 1000);
    printf("%d multiprocessors, %.1f s: %s\n", bench.blocks, (double)(now_ns() - begin) * 1e-9,
           bench.failed ? "FAIL" : "PASS");
    return bench.failed;
}
