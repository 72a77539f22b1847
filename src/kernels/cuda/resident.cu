/* resident.cu: the interpreter of resident programs: one persistent kernel, a block a lane.
 *
 * What it must do: each weight once through shared memory (2 bytes a parameter, one multiplication
 * and one addition each, on the tensor cores), so the floor is bytes over the read bandwidth. What
 * stands in the way is the chain of dependent products: five a layer. So weights stream ahead of
 * the instructions (fetch.cuh), a product's input is taken as packets whose words say themselves
 * that they have come (no counters, no fences: one trip through the L2), sums of a tile are finished
 * and published by a warp of its own (finish.cuh) while others multiply on (product.cuh).
 *
 * The plain version that says what is meant is src/program/ops_resident*.c; docs/gpu.md argues the
 * order between lanes. The structure was found by experiment: packets with replicas, strided tiles,
 * bytes in flight by what has landed. */
#include "kernels/cuda/step.cuh"

FN void consume_instruction(consumer *c, lane *me, uint32_t number, uint32_t count)
{
    look_anew(me);
    uint32_t kind = field(me, RI_KIND);
    const step_info *info = &me->s->info[me->epoch & 1];
    if (kind != RES_QKV && kind != RES_OUT && kind != RES_GATE_UP && kind != RES_LANE_DONE)
        trace_begun(me, number, count, false);
    switch (kind) {
    case RES_HEAD:
        if (info->out == 0)
            return;
        /* fall through */
    case RES_QKV:
    case RES_OUT:
    case RES_GATE_UP:
        trace_begun(me, number, count, false);
        multiply(c, me, number, count);
        return;
    case RES_ATTN:
        attend(c, me, number, count);
        break;
    case RES_COMBINE:
        combine(c, me, number, count);
        break;
    case RES_APPEND:
        append(c, me);
        break;
    case RES_BEGIN:
        if (me->warp == 0 && me->thread < R && me->thread < (int)info->rows) {
            uint32_t slot = info->slot[me->thread % R], position = info->position[me->thread % R];
            if (slot < me->p->slots && position < me->p->context)
                __stcg(me->p->history + (uint64_t)slot * me->p->context + position,
                       info->token[me->thread % R]);
        }
        break;
    case RES_SAMPLE:
        sample_row(c, me);
        break;
    case RES_STEP_END:
        step_end(c, me);
        break;
    case RES_LANE_DONE:
        __syncwarp();
        if (me->thread == 0)
            barrier_arrive(shared_address(&me->s->done));
        return;
    }
    if (me->p->events && me->warp == 0 && me->thread == 0) {
        uint32_t n = (me->epoch * count + number) % me->p->event_capacity;
        me->p->events[(uint64_t)this_lane() * me->p->event_capacity + n].ended = clock64();
    }
}

/* A random pause, in tests. */
FN void delay(const lane *me, uint32_t number)
{
    uint32_t h = (me->p->delays ^ me->epoch * 2654435761u ^ number * 40503u ^ this_lane() * 97u ^
                  me->warp * 31337u) * 2246822519u;
    h ^= h >> 15;
    if (h % 16 == 0)
        __nanosleep(h >> 8 & 8191);
}

FN void consume_warp(lane *me)
{
    const brim__res_params *p = me->p;
    uint32_t list = p->list_first[this_lane()], count = p->list_first[this_lane() + 1] - list;
    consumer c = {};
    consumer_begin(&c, me);
    for (me->epoch = 0; me->epoch < p->limit; me->epoch++) {
        uint32_t next = instruction_word(me, list);
        if (!await_step(me))
            return;
        c.first_item.row = -2; /* not looked for yet */
#pragma unroll 1
        for (uint32_t i = 0; i < count; i++) {
            me->word = next;
            next = instruction_word(me, i + 1 < count ? list + i + 1 : list);
            me->instruction = field(me, RI_INDEX);
            if (p->delays)
                delay(me, i);
            if (p->planted_lane == (uint32_t)this_lane() + 1 && p->planted_epoch == me->epoch &&
                i == count / 2) {
                patience w = {0, 0};
                for (;;)
                    still_waiting(me, &w, RES_WAIT_PLANTED, 0, 0);
            }
            consume_instruction(&c, me, i, count);
        }
    }
}

FN void prepare(lane *me)
{
    lane_shared *s = me->s;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < me->p->ring_slots; i++) {
            barrier_init(shared_address(&s->full[i]), HAS_BULK ? 1 : 32);
            barrier_init(shared_address(&s->empty[i]), RES_CONSUMERS);
        }
        for (int i = 0; i < TILE_SLOTS; i++) {
            barrier_init(shared_address(&s->tile[i]), RES_CONSUMERS);
            barrier_init(shared_address(&s->room[i]), FINISHERS);
        }
        barrier_init(shared_address(&s->step), 1);
        barrier_init(shared_address(&s->consumers), RES_CONSUMERS);
        barrier_init(shared_address(&s->message), 1);
        barrier_init(shared_address(&s->done), RES_CONSUMERS + FINISHERS); /* and the fetching warp */
        s->stop = s->mail_stop = s->published = 0;
#if HAS_BULK
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }
    for (int i = threadIdx.x; i < 2 * HS / 4; i += RES_WARPS * 32)
        ((uint32_t *)s->zero_row)[i] = 0;
    if (me->p->clocks && threadIdx.x == 0) {
        me->p->clocks[this_lane()].timer_begin = timer_ns();
        me->p->clocks[this_lane()].clock_begin = clock64();
    }
    __syncthreads();
}

FN void note_clock_end(const lane *me)
{
    if (me->p->clocks && threadIdx.x == 0) {
        me->p->clocks[this_lane()].timer_end = timer_ns();
        me->p->clocks[this_lane()].clock_end = clock64();
    }
}

/* 8 times the one and 4 times the other are 12 x 168. */
enum { REGISTERS_CONSUMER = R == 1 ? 208 : 184, REGISTERS_OTHER = R == 1 ? 88 : 136 };

extern "C" __global__ void __launch_bounds__(RES_WARPS * 32, 1)
    brim_resident(const __grid_constant__ brim__res_params p)
{
    extern __shared__ __align__(1024) char memory[];
    lane me = {};
    me.p = &p;
    me.s = (lane_shared *)memory;
    me.work = shared_address(work_memory(&me));
    me.ring = me.work + p.work_bytes;
    look_anew(&me);
    prepare(&me);
    /* Of 168 registers a thread, the four warps that do not multiply give to the eight that do. */
    look_anew(&me);
    if (me.warp < RES_CONSUMERS) {
        set_registers_more<REGISTERS_CONSUMER>();
        consume_warp(&me);
        note_clock_end(&me);
        return;
    }
    set_registers_fewer<REGISTERS_OTHER>();
    if (me.warp == WARP_FETCH)
        fetch_warp(&me);
    else if (me.warp == WARP_FINISH || (FINISHERS == 2 && me.warp == WARP_FINISH_MORE))
        finish_warp(&me, me.warp == WARP_FINISH_MORE);
    else if (me.warp == WARP_HOST)
        host_warp(&me);
}
