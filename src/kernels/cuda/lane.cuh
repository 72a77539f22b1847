/* lane.cuh: what the warps of a lane share: its place in shared memory, waiting with a watchdog,
 * the encoded instruction, and what the step is about. */
#ifndef BRIM_LANE_CUH
#define BRIM_LANE_CUH

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/resident.h"

#ifndef BRIM_TYPE_BF16
#error "BRIM_TYPE_BF16, BRIM_HEAD_SIZE and BRIM_ROWS choose the image"
#endif
#define BF16 (BRIM_TYPE_BF16 != 0)

enum {
    HS = BRIM_HEAD_SIZE,
    R = BRIM_ROWS,
    TILE_SLOTS = R == 1 ? 16 : 8,                  /* sums on their way to the finisher */
    TILE_SLOT_FLOATS = R == 1 ? 72 : 8 * 64,       /* (warp, row, 8); padded against conflicts */
    X_GRANULE = R == 1 ? 64 : 576,                 /* bytes of a granule of input, padded */
    X_BLOCK = 8 * X_GRANULE,                       /* of one warp's granules of 2,048 columns */
    BARRIER_CONSUMERS = 32,
    WARP_FETCH = RES_CONSUMERS,
    WARP_FINISH = RES_CONSUMERS + 1,
    WARP_HOST = RES_CONSUMERS + 2,
    WARP_FINISH_MORE = RES_CONSUMERS + 3, /* of eight rows: rows 4 to 7 */
    FINISHERS = R == 1 ? 1 : 2,
    OWN_ROWS = R == 1 ? 1 : 4, /* rows of a finisher */
    KV_BLOCK = 32,
    SPLIT = 128,
    GROUP_MAX = 8,
    REPLICAS = R == 1 ? RES_REPLICAS_1 : RES_REPLICAS_8,
};
#define EMPTY 0xffffffffu

/* What a step is about; copied into shared memory by the finisher. */
typedef struct step_info {
    uint32_t rows, out, stop;
    uint32_t token[R], position[R], slot[R], out_row[R];
} step_info;

typedef struct lane_shared {
    uint64_t full[RES_SLOTS_MAX], empty[RES_SLOTS_MAX]; /* beside each other: product.cuh */
    uint64_t tile[TILE_SLOTS], room[TILE_SLOTS];        /* so are these */
    uint64_t step, consumers, message, done;
    step_info info[2];
    volatile uint32_t stop;
    volatile uint32_t mail_stop;  /* the host asks for the end */
    volatile uint32_t published;  /* steps whose results the messenger has handed over */
    uint32_t result[2][4 * (R + 1)];
    uint32_t result_entry[2], result_last[2];
    __align__(16) float sums[TILE_SLOTS][TILE_SLOT_FLOATS];
    __align__(16) float att_max[GROUP_MAX][RES_CONSUMERS], att_sum[GROUP_MAX][RES_CONSUMERS];
    __align__(16) char q[GROUP_MAX][2 * HS + 16];
    __align__(16) char fresh_k[R][2 * HS], fresh_v[R][2 * HS], zero_row[2 * HS];
    float best_value;
    uint32_t chosen;
} lane_shared;

typedef struct lane {
    const brim__res_params *p;
    lane_shared *s;
    uint32_t ring; /* shared addresses */
    uint32_t work;
    int warp, thread; /* of the block, of the warp */
    uint32_t epoch;         /* step of this launch */
    uint32_t word;          /* of the instruction: this thread's */
    uint32_t instruction;   /* its number in the program */
} lane;

enum { SHARED_BYTES = R == 1 ? RES_SHARED_1 : RES_SHARED_8 };
static_assert(sizeof(lane_shared) <= SHARED_BYTES, "the host leaves that much");
static_assert(X_BLOCK * RES_CONSUMERS == (R == 1 ? RES_X_BLOCK_1 : RES_X_BLOCK_8),
              "the host counts input blocks");

/* Input of products, parts of attention, the sampler's lists: one after another. */
FN char *work_memory(const lane *me)
{
    return (char *)me->s + SHARED_BYTES;
}

/* Asked for where it is needed, so that no register keeps it. */
FN uint32_t this_lane(void)
{
    uint32_t lane;
    asm volatile("mov.u32 %0,%%ctaid.x;" : "=r"(lane));
    return lane;
}

/* The thread's place again, so that nothing that follows from it is kept in a register (or worse,
 * beside the registers) from one instruction to the next. */
FN void look_anew(lane *me)
{
    uint32_t t;
    asm volatile("mov.u32 %0,%%tid.x;" : "=r"(t));
    me->thread = t & 31;
    me->warp = t >> 5;
}

FN uint32_t field(const lane *me, int index)
{
    return __shfl_sync(~0u, me->word, index);
}
/* This thread's word of an instruction. */
FN uint32_t instruction_word(const lane *me, uint32_t index)
{
    return __ldg(me->p->lists + (uint64_t)index * RI_WORDS + me->thread);
}
FN char *at_base(const lane *me, uint32_t offset)
{
    return me->p->base + (uint64_t)offset * 256;
}
FN char *replica(const lane *me, char *set, int n)
{
    return set + n * me->p->packet_stride;
}

/* Packets that this step writes (replica 0), empties for the next, and reads. */
FN char *packet_set(const lane *me, uint32_t step)
{
    return me->p->packets + ((me->p->epoch + step) & 1) * REPLICAS * me->p->packet_stride;
}
FN char *out_set(const lane *me)
{
    return packet_set(me, me->epoch);
}
FN char *empty_set(const lane *me)
{
    return packet_set(me, me->epoch + 1);
}
FN const char *in_set(const lane *me)
{
    return replica(me, out_set(me), this_lane() % REPLICAS);
}

/* ---- the watchdog ---- */

/* Says what the warp waited for and ends the thread. */
FN void give_up(const brim__res_params *p, int role, uint32_t where, uint32_t seen, uint32_t epoch,
                uint32_t instruction)
{
    brim__res_wait *w = &p->waits[this_lane() * RES_WARPS + threadIdx.x / 32];
    w->instruction = instruction;
    w->epoch = epoch;
    w->awaited = where;
    w->seen = seen;
    w->role = 1 + role;
    if (atomicExch(&p->control->abort, 1) == 0)
        p->host->hung = 1 + this_lane();
    asm volatile("exit;");
    __builtin_unreachable();
}

/* A wait that cannot last for ever: `tries` failed looks so far. */
typedef struct patience {
    uint32_t tries, since; /* units of 1,024 ns */
} patience;
FN void still_waiting(const lane *me, patience *w, int role, uint32_t where, uint32_t seen)
{
    if ((++w->tries & 2047) != 0)
        return;
    uint32_t now = (uint32_t)(timer_ns() >> 10);
    if (w->since == 0)
        w->since = now ? now : 1;
    /* The address is made here, so that none is kept for so rare a look. */
    const uint32_t *abort;
    asm volatile("mov.b64 %0,%1;" : "=l"(abort) : "l"(&me->p->control->abort));
    if (*(volatile const uint32_t *)abort != 0 ||
        (int32_t)(now - w->since) > (int32_t)me->p->watchdog_units)
        give_up(me->p, role, where, seen, me->epoch, me->instruction);
}

FN void wait_barrier(const lane *me, uint32_t bar, uint32_t phase, int role, uint32_t where)
{
    patience w = {0, 0};
    while (!barrier_spin(bar, phase)) {
        w.tries |= 2047; /* 64 looks have been enough to ask for the time */
        still_waiting(me, &w, role, where, phase);
    }
}

/* All consumer warps. */
FN void join_consumers(const lane *me, uint32_t *phase)
{
    uint32_t bar = shared_address(&me->s->consumers);
    __syncwarp();
    if (me->thread == 0)
        barrier_arrive(bar);
    __syncwarp(); /* else the others might spin before the first has arrived */
    patience w = {0, 0};
    while (!barrier_test(bar, *phase)) /* all lanes wait for these warps: no sleep */
        still_waiting(me, &w, RES_WAIT_WARPS, 0, *phase);
    *phase ^= 1;
}

/* ---- packets ---- */

FN bool is_empty(uint4 v)
{
    return v.x == EMPTY || v.y == EMPTY || v.z == EMPTY || v.w == EMPTY;
}
FN uint32_t packet_word(const lane *me, const void *p)
{
    return (uint32_t)(((const char *)p - in_set(me)) / 4);
}
/* The packet at p, of which `v` is a first look. Threads that are not `wanted` only come along. */
FN void await_packet4(const lane *me, const void *p, uint4 *v, bool wanted)
{
    patience w = {0, 0};
    while (__any_sync(~0u, wanted && is_empty(*v))) {
        if (wanted && is_empty(*v))
            *v = ld_packet4(p);
        still_waiting(me, &w, RES_WAIT_PACKET, packet_word(me, p), v->x);
    }
}
FN void await_packet2(const lane *me, const void *p, uint2 *v, bool wanted)
{
    patience w = {0, 0};
    while (__any_sync(~0u, wanted && (v->x == EMPTY || v->y == EMPTY))) {
        if (wanted && (v->x == EMPTY || v->y == EMPTY))
            *v = ld_packet2(p);
        still_waiting(me, &w, RES_WAIT_PACKET, packet_word(me, p), v->x);
    }
}
FN void await_packet1(const lane *me, const void *p, uint32_t *v, bool wanted)
{
    patience w = {0, 0};
    while (__any_sync(~0u, wanted && *v == EMPTY)) {
        if (wanted && *v == EMPTY)
            *v = ld_packet(p);
        still_waiting(me, &w, RES_WAIT_PACKET, packet_word(me, p), *v);
    }
}
/* Publishes a word to COUNT replicas; empties it in the other parity's. */
template <int COUNT>
FN void publish_only(const lane *me, uint64_t offset, uint32_t value)
{
    char *at = out_set(me) + offset;
#pragma unroll
    for (int n = 0; n < COUNT; n++, at += me->p->packet_stride)
        st_packet(at, value);
}
template <int COUNT>
FN void empty_only(const lane *me, uint64_t offset)
{
    char *at = empty_set(me) + offset;
#pragma unroll
    for (int n = 0; n < COUNT; n++, at += me->p->packet_stride)
        st_packet(at, EMPTY);
}
template <int COUNT>
FN void publish(const lane *me, uint64_t offset, uint32_t value)
{
    publish_only<COUNT>(me, offset, value);
    empty_only<COUNT>(me, offset);
}

/* ---- attention's items ---- */

FN uint32_t first_in_view(const brim__res_params *p, uint32_t window, uint32_t position)
{
    return window && position >= window ? position - window + 1 : 0;
}
FN uint32_t splits_of(const brim__res_params *p, uint32_t window, uint32_t position)
{
    return position / SPLIT - first_in_view(p, window, position) / SPLIT + 1;
}

typedef struct item {
    int row; /* rows when there is no such item */
    uint32_t head, split;
} item;
FN item find_item(const brim__res_params *p, const step_info *info, uint32_t window, uint32_t n)
{
    for (int row = 0; row < (R == 1 ? 1 : (int)info->rows); row++) {
        uint32_t splits = splits_of(p, window, info->position[row]), count = splits * p->kv_heads;
        if (n < count) {
            item found = {row, n / splits, n % splits};
            found.split += first_in_view(p, window, info->position[row]) / SPLIT;
            return found;
        }
        n -= count;
    }
    item none = {-1, 0, 0};
    return none;
}
FN uint32_t first_item(const brim__res_params *p, const step_info *info, uint32_t window, int row)
{
    uint32_t n = 0;
    for (int i = 0; i < row; i++)
        n += splits_of(p, window, info->position[i]) * p->kv_heads;
    return n;
}
/* The position from which on this row's sequence comes from this step's packets, and the row there:
 * rows of one slot stand in ascending order of position. */
FN int first_fresh_row(const step_info *info, int row)
{
    int first = row;
    for (int i = row - 1; i >= 0; i--)
        if (info->slot[i] == info->slot[row])
            first = i;
    return first;
}
/* Blocks of the pool that an item reads: those of its split with a position before `fresh`. */
FN int item_blocks(uint32_t split, uint32_t fresh)
{
    uint32_t begin = split * SPLIT;
    if (fresh <= begin)
        return 0;
    uint32_t blocks = (fresh - begin + KV_BLOCK - 1) / KV_BLOCK;
    return blocks < SPLIT / KV_BLOCK ? (int)blocks : SPLIT / KV_BLOCK;
}
enum {
    BLOCK_BYTES = 2 * KV_BLOCK * HS * 2, /* K and V of 32 positions */
    BLOCKS_PER_SLOT = RES_SLOT_BYTES / BLOCK_BYTES,
};

#endif
