/* fetch.cuh: the warp that streams weights and KV blocks through the ring, across instructions and
 * steps, in the order in which the consumers will use them.
 *
 * A thread of the warp watches a slot: free, in flight, or landed. How many bytes may be in flight
 * depends on how many slots have landed: with few, more are asked for; with many, fewer, since what
 * is in flight delays the packets that all lanes wait for. */
#ifndef BRIM_FETCH_CUH
#define BRIM_FETCH_CUH

#include "kernels/cuda/lane.cuh"

typedef enum slot_state { SLOT_FREE, SLOT_IN_FLIGHT, SLOT_LANDED } slot_state;

typedef struct fetcher {
    int state; /* of this thread's slot; the others' are none */
    uint32_t full_phase, empty_phase;
    int next;     /* slot that is filled next */
    int credits;  /* slots that may be filled without another look */
    uint64_t policy;
} fetcher;

FN void fetcher_begin(fetcher *f, const lane *me)
{
    f->state = me->thread < (int)me->p->ring_slots ? SLOT_FREE : -1;
    f->full_phase = 0;
    f->empty_phase = 0;
    f->next = 0;
    f->credits = 0;
#if HAS_BULK
    f->policy = policy_evict_first();
#endif
}

/* Leaves when the run has ended; what is in flight must have landed before the memory goes. */
FN void fetcher_end(fetcher *f, const lane *me)
{
    uint32_t full = shared_address(me->s->full) + 8 * me->thread;
    patience w = {0, 0};
    while (__any_sync(~0u, f->state == SLOT_IN_FLIGHT)) {
        if (f->state == SLOT_IN_FLIGHT && barrier_test(full, f->full_phase))
            f->state = SLOT_LANDED;
        still_waiting(me, &w, RES_WAIT_RING, f->next, 0);
    }
}

/* Waits until the next slot is free and the flow allows another; false when the run has ended. */
FN bool await_slot(fetcher *f, const lane *me)
{
    uint32_t full = shared_address(me->s->full) + 8 * me->thread;
    uint32_t empty = shared_address(me->s->empty) + 8 * me->thread;
    const brim__res_params *p = me->p;
    patience w = {0, 0};
    if (f->credits > 0) {
        f->credits--;
        return true;
    }
    for (;;) {
        if (f->state == SLOT_IN_FLIGHT && barrier_test(full, f->full_phase)) {
            f->state = SLOT_LANDED;
            f->full_phase ^= 1;
        }
        if (f->state == SLOT_LANDED && barrier_test(empty, f->empty_phase)) {
            f->state = SLOT_FREE;
            f->empty_phase ^= 1;
        }
        unsigned in_flight = __ballot_sync(~0u, f->state == SLOT_IN_FLIGHT);
        unsigned landed = __ballot_sync(~0u, f->state == SLOT_LANDED);
        unsigned free_slots = __ballot_sync(~0u, f->state == SLOT_FREE);
        uint32_t have = __popc(landed);
        uint32_t most = have <= p->flow_few    ? p->flow_high
                        : have <= p->flow_some ? p->flow_mid
                                               : p->flow_low;
        /* Free slots in a row, the next one first. */
        unsigned all = p->ring_slots == 32 ? ~0u : (1u << p->ring_slots) - 1;
        unsigned row = free_slots;
        if (f->next > 0)
            row = (free_slots >> f->next | free_slots << (p->ring_slots - f->next)) & all;
        int room = (int)most - __popc(in_flight), run = __ffs(~row) - 1;
        run = row == ~0u ? 32 : run;
        room = room < run ? room : run;
        if (room > 0) {
            f->credits = room - 1;
            return true;
        }
        if (__any_sync(~0u, me->s->stop != 0))
            return false;
        still_waiting(me, &w, RES_WAIT_SLOT, f->next, in_flight);
    }
}

/* Copies up to two pieces into the next slot. */
FN void fill_slot(fetcher *f, const lane *me, const char *from, uint32_t bytes, const char *from2,
                  uint32_t bytes2)
{
    uint32_t bar = shared_address(me->s->full) + 8 * f->next;
    uint32_t to = me->ring + f->next * RES_SLOT_BYTES;
#if HAS_BULK
    if (me->thread == f->next) {
        barrier_expect(bar, bytes + bytes2);
        copy_bulk(to, from, bytes, bar, f->policy);
        if (bytes2)
            copy_bulk(to + bytes, from2, bytes2, bar, f->policy);
    }
#else
    __syncwarp(); /* one thread has seen that the slot is free; all copy */
    for (uint32_t at = 16 * me->thread; at < bytes; at += 512)
        copy_16(to + at, from + at);
    for (uint32_t at = 16 * me->thread; at < bytes2; at += 512)
        copy_16(to + bytes + at, from2 + at);
    copies_arrive(bar);
#endif
    if (me->thread == f->next)
        f->state = SLOT_IN_FLIGHT;
    f->next = f->next + 1 == (int)me->p->ring_slots ? 0 : f->next + 1;
}

/* pair is 1 or 2 */
FN uint32_t lane_tile(uint32_t first, uint32_t stride, uint32_t pair, uint32_t i)
{
    uint32_t shift = pair - 1;
    return ((first + (i >> shift) * stride) << shift) + (i & shift);
}

/* A product's weights: groups of tiles; in a group blocks of 2,048 columns; in a block tile by
 * tile. */
FN bool fetch_tiles(fetcher *f, const lane *me)
{
    uint32_t first = field(me, RI_FIRST), stride = field(me, RI_STRIDE), pair = field(me, RI_PAIR);
    uint32_t tiles = field(me, RI_TILES), granules = field(me, RI_GRANULES);
    const char *tensor = at_base(me, field(me, RI_TENSOR));
    uint64_t tile_bytes = (uint64_t)granules * 512;
    for (uint32_t group = 0; group < tiles; group += RES_GROUP_TILES) {
        uint32_t end = group + RES_GROUP_TILES < tiles ? group + RES_GROUP_TILES : tiles;
        for (uint32_t block = 0; block < granules; block += 64) {
            uint32_t bytes = (granules - block < 64 ? granules - block : 64) * 512;
            for (uint32_t i = group; i < end; i++) {
                const char *from =
                    tensor + lane_tile(first, stride, pair, i) * tile_bytes + block * 512;
                for (uint32_t at = 0; at < bytes; at += RES_SLOT_BYTES) {
                    if (!await_slot(f, me))
                        return false;
                    uint32_t size = bytes - at < RES_SLOT_BYTES ? bytes - at : RES_SLOT_BYTES;
                    fill_slot(f, me, from + at, size, NULL, 0);
                }
            }
        }
    }
    return true;
}

FN bool fetch_item(fetcher *f, const lane *me, const step_info *info, item it)
{
    const brim__res_params *p = me->p;
    uint32_t slot = info->slot[it.row];
    int blocks = item_blocks(it.split, info->position[first_fresh_row(info, it.row)]);
    const char *kv = at_base(me, field(me, RI_KV)) + (uint64_t)it.head * p->blocks * BLOCK_BYTES;
    const uint32_t *table = p->tables + (uint64_t)slot * p->blocks_max + it.split * (SPLIT / KV_BLOCK);
    uint32_t mine = me->thread < blocks ? table[me->thread] : 0;
    mine = mine < p->blocks ? mine : 0;
    for (int b = 0; b < blocks; b += BLOCKS_PER_SLOT) {
        if (!await_slot(f, me))
            return false;
        uint32_t one = __shfl_sync(~0u, mine, b);
        uint32_t two = __shfl_sync(~0u, mine, b + BLOCKS_PER_SLOT - 1);
        bool both = BLOCKS_PER_SLOT == 2 && b + 1 < blocks;
        fill_slot(f, me, kv + (uint64_t)one * BLOCK_BYTES, BLOCK_BYTES,
                  kv + (uint64_t)two * BLOCK_BYTES, both ? BLOCK_BYTES : 0);
    }
    return true;
}

/* False when there is no such step. */
FN bool await_step(const lane *me)
{
    uint32_t bar = shared_address(&me->s->step);
    patience w = {0, 0};
    while (!__all_sync(~0u, barrier_try(bar, me->epoch & 1))) {
        if (__any_sync(~0u, me->s->stop != 0))
            return false;
        still_waiting(me, &w, RES_WAIT_STEP, me->epoch, 0);
    }
    return true;
}

FN bool fetch_instruction(fetcher *f, lane *me, bool *stepped)
{
    look_anew(me);
    uint32_t kind = field(me, RI_KIND);
    const step_info *info = &me->s->info[me->epoch & 1];
    if ((kind == RES_ATTN || kind == RES_HEAD || kind == RES_LANE_DONE) && !*stepped) {
        if (!await_step(me))
            return false;
        *stepped = true;
        fence_proxy(); /* what older steps wrote to the KV pool is read by bulk copies */
    }
    if (kind == RES_LANE_DONE)
        barrier_arrive_if(shared_address(&me->s->done), me->thread == 0);
    if (kind == RES_QKV || kind == RES_OUT || kind == RES_GATE_UP ||
        (kind == RES_HEAD && info->out > 0))
        return fetch_tiles(f, me);
    if (kind == RES_ATTN) {
        uint32_t window = field(me, RI_WINDOW), by = field(me, RI_PIECES);
        for (uint32_t n = field(me, RI_PIECE);; n += by) {
            item it = find_item(me->p, info, window, n);
            if (it.row < 0)
                return true;
            if (!fetch_item(f, me, info, it))
                return false;
        }
    }
    return true;
}

FN void fetch_warp(lane *me)
{
    const brim__res_params *p = me->p;
    uint32_t list = p->list_first[this_lane()], count = p->list_first[this_lane() + 1] - list;
    fetcher f;
    fetcher_begin(&f, me);
    for (me->epoch = 0; me->epoch < p->limit; me->epoch++) {
        bool stepped = false;
        uint32_t next = instruction_word(me, list);
        for (uint32_t i = 0; i < count; i++) {
            me->word = next;
            next = instruction_word(me, i + 1 < count ? list + i + 1 : list);
            me->instruction = field(me, RI_INDEX);
            if (!fetch_instruction(&f, me, &stepped))
                goto out;
        }
    }
out:
    fetcher_end(&f, me);
}

#endif
