/* crew.c: lanes that start together, and the barrier between them. */
#include <sched.h>
#include <stdlib.h>

#include "base/thread.h"
#include "hw/hw.h"

enum {
    SPINS_BEFORE_YIELD = 4096,
    BARRIER_ROUNDS = 256,  /* of one batch */
    BARRIER_BATCHES = 512, /* at most */
    BARRIER_BATCHES_MIN = 5,
};
static const uint64_t barrier_time_ns = 30000000;

void brim__barrier_wait(brim__barrier *barrier, uint32_t *sense)
{
    uint32_t mine = !*sense, spins = 0;
    *sense = mine;
    if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) ==
        barrier->lane_count - 1) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&barrier->sense, mine, memory_order_release);
        return;
    }
    while (atomic_load_explicit(&barrier->sense, memory_order_acquire) != mine) {
        if (++spins < SPINS_BEFORE_YIELD)
            brim__cpu_pause();
        else
            sched_yield();
    }
}

enum { CREW_WAITS, CREW_GOES, CREW_LEAVES };

typedef struct crew {
    _Atomic uint32_t state;
    bool pin;
    void (*body)(uint32_t lane, void *user);
    void *user;
} crew;

typedef struct crew_lane {
    crew *crew;
    uint32_t lane;
    brim__thread *thread;
} crew_lane;

static void crew_main(void *user)
{
    crew_lane *lane = user;
    uint32_t state;
    if (lane->crew->pin)
        brim__thread_pin(lane->lane);
    while ((state = atomic_load(&lane->crew->state)) == CREW_WAITS)
        brim__futex_wait(&lane->crew->state, CREW_WAITS, 0);
    if (state == CREW_GOES)
        lane->crew->body(lane->lane, lane->crew->user);
}

brim_status brim__crew_run(brim_context *ctx, uint32_t lane_count, bool pin,
                           void (*body)(uint32_t lane, void *user), void *user)
{
    crew start = {.pin = pin, .body = body, .user = user};
    crew_lane *lanes;
    brim_status status = BRIM_OK;
    uint32_t started = 0;
    BRIM_CALLOC(ctx, lanes, lane_count);
    for (; started < lane_count && status == BRIM_OK; started++) {
        lanes[started] = (crew_lane){&start, started, NULL};
        status = brim__thread_start(&lanes[started].thread, ctx, "brim-probe", crew_main,
                                    &lanes[started]);
    }
    atomic_store(&start.state, status == BRIM_OK ? CREW_GOES : CREW_LEAVES);
    brim__futex_wake_all(&start.state);
    for (uint32_t i = 0; i < started; i++)
        brim__thread_join(lanes[i].thread, ctx);
    brim__free(ctx, lanes);
    return status;
}

typedef struct barrier_probe {
    brim__barrier barrier;
    bool done; /* written by lane 0 before a barrier, read by all after it */
    uint32_t batch_count;
    double best_ns; /* of one barrier, over batches */
} barrier_probe;

static void barrier_body(uint32_t lane, void *user)
{
    barrier_probe *probe = user;
    uint32_t sense = 0;
    uint64_t deadline = brim__now_ns() + barrier_time_ns;
    for (uint32_t batch = 0;; batch++) {
        brim__barrier_wait(&probe->barrier, &sense);
        if (probe->done)
            return;
        uint64_t start = brim__now_ns();
        for (uint32_t round = 0; round < BARRIER_ROUNDS; round++)
            brim__barrier_wait(&probe->barrier, &sense);
        if (lane != 0)
            continue;
        /* The others have passed the last barrier and wait at the next one. */
        uint64_t now = brim__now_ns();
        double ns = (double)(now - start) / BARRIER_ROUNDS;
        if (batch == 0 || ns < probe->best_ns)
            probe->best_ns = ns;
        probe->batch_count = batch + 1;
        probe->done = probe->batch_count == BARRIER_BATCHES ||
                      (now > deadline && probe->batch_count >= BARRIER_BATCHES_MIN);
    }
}

brim_status brim__probe_barrier(double *out_ns, brim_context *ctx, uint32_t lane_count)
{
    *out_ns = 0;
    if (lane_count < 2)
        return BRIM_OK;
    barrier_probe *probe;
    BRIM_CALLOC(ctx, probe, 1);
    probe->barrier.lane_count = lane_count;
    brim_status status = brim__crew_run(ctx, lane_count, true, barrier_body, probe);
    if (status == BRIM_OK)
        *out_ns = probe->best_ns;
    brim__free(ctx, probe);
    return status;
}
