/* step.cuh: the end of a step: sampling, what the next step is about, and the warp that tells the
 * host. The numbers of words and fields are those of ops_llm.h and sample.h. */
#ifndef BRIM_STEP_CUH
#define BRIM_STEP_CUH

#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/sample.cuh"

enum {
    STEP_RUN_WORD,
    STEP_ROWS_WORD,
    STEP_OUT_WORD,
    STEP_CHAIN_WORD,
    STEP_RING_WORD,
    STEP_HEADER_WORDS = 16,
    RESULT_ENTRIES = 64,
    ENDS_MAX_WORDS = 31,
};

/* A thread of the consumers waits for a counter of the launch; then all may look. */
FN void await_counter(consumer *c, const lane *me, const uint32_t *counter, uint32_t value, int role)
{
    if (me->warp == 0) {
        patience w = {0, 0};
        uint32_t seen;
        while ((int32_t)((seen = ld_acquire(counter)) - value) < 0)
            still_waiting(me, &w, role, value, seen);
    }
    join_consumers(me, &c->join_phase);
}

FN void sample_row(consumer *c, const lane *me)
{
    const brim__res_params *p = me->p;
    const step_info *info = &me->s->info[me->epoch & 1];
    uint32_t out_row = field(me, RI_ROW);
    await_counter(c, me, &p->control->arrived, p->lanes * (me->epoch + 1), RES_WAIT_LANES);
    if (out_row < info->out) {
        uint32_t row = info->out_row[out_row % R] % R;
        uint32_t slot = info->slot[row], position = info->position[row];
        brim_sample_in in;
        in.logits = p->logits + (uint64_t)out_row * p->vocab;
        in.vocab = p->vocab;
        in.tile_max = p->tile_max + (uint64_t)out_row * p->head_tiles;
        in.params = ((const brim_sample_params *)p->sample_params)[slot < p->slots ? slot : 0];
        uint32_t recent = in.params.penalty_last < position + 1 ? in.params.penalty_last : position + 1;
        in.recent = p->history + (uint64_t)slot * p->context + (position + 1 - recent);
        in.recent_count = recent;
        in.position = position;
        in.scratch = p->sample_scratch + out_row * p->sample_scratch_bytes;
        uint32_t token = brim_sample_block(&in, work_memory(me), me->warp * 32 + me->thread);
        if (me->warp == 0 && me->thread == 0) {
            __stcg(p->sampled + out_row, token);
            if (R == 1)
                me->s->chosen = token;
        }
    }
    if (R > 1) {
        join_consumers(me, &c->join_phase);
        if (me->warp == 0 && me->thread == 0)
            red_release(&p->control->sampled, 1);
    }
}

FN bool is_end(const uint32_t *ends, uint32_t token)
{
    uint32_t count = ends[0] < ENDS_MAX_WORDS ? ends[0] : ENDS_MAX_WORDS;
    for (uint32_t i = 0; i < count; i++)
        if (ends[1 + i] == token)
            return true;
    return false;
}

/* One warp of lane 0; thread i has out row i. */
FN void end_step(const lane *me)
{
    const brim__res_params *p = me->p;
    lane_shared *s = me->s;
    const step_info *info = &s->info[me->epoch & 1];
    uint32_t parity = (p->epoch + me->epoch) & 1, i = me->thread, rows_max = p->rows;
    const uint32_t *step = p->step[parity];
    uint32_t *next = p->step[parity ^ 1];
    uint32_t chain = __ldcg(step + STEP_CHAIN_WORD), ring = __ldcg(step + STEP_RING_WORD);
    bool mine = i < info->out, go_on = true;
    uint32_t token = 0, ended = 0, row = 0;
    if (mine) {
        token = R == 1 ? s->chosen : __ldcg(p->sampled + i);
        row = info->out_row[i % R];
        uint32_t slot = row < R ? info->slot[row % R] : p->slots;
        go_on = slot < p->slots;
        if (go_on) {
            const uint32_t *params = (const uint32_t *)p->sample_params + 10 * slot;
            if (is_end(p->ends, token))
                ended = 1;
            else if (info->position[row % R] + 1 >= params[8]) /* max_position */
                ended = 2;
            go_on = ended == 0;
        }
    }
    bool all = __all_sync(~0u, go_on && s->mail_stop == 0);
    bool run = all && chain && info->out > 0 && info->out == info->rows;
    /* The next step's words: row i's successor is row i. */
    for (uint32_t n = i; n < STEP_HEADER_WORDS + 4 * rows_max; n += 32)
        if (n != STEP_RUN_WORD && n != STEP_RING_WORD)
            __stcg(next + n, __ldcg(step + n));
    __syncwarp();
    if (i == 0) {
        __stcg(next + STEP_RUN_WORD, run);
        __stcg(next + STEP_RING_WORD, (ring + 1) % RESULT_ENTRIES);
    }
    if (mine && run) {
        __stcg(next + STEP_HEADER_WORDS + row, token);
        __stcg(next + STEP_HEADER_WORDS + rows_max + row, info->position[row % R] + 1);
    }
    __syncwarp();
    bool last = !run || me->epoch + 1 >= p->limit;
    if (i == 0) {
        st_release64(&p->control->go,
                     (uint64_t)token << 32 | (last ? 0x80000000u : me->epoch + 2));
    }
    /* The messenger takes it from here; it has taken the step before. */
    patience w = {0, 0};
    while ((int32_t)(me->epoch - s->published) > 0)
        still_waiting(me, &w, RES_WAIT_WARPS, 1, s->published);
    uint32_t *result = s->result[me->epoch & 1];
    if (i <= R) {
        uint32_t *entry = result + 4 * (i + 1);
        if (i < R) {
            entry[0] = mine ? token : 0;
            entry[1] = ended;
            entry[2] = entry[3] = 0;
        }
    }
    if (i == 0) {
        result[0] = info->out;
        result[1] = result[2] = result[3] = 0;
        s->result_entry[me->epoch & 1] = ring;
        s->result_last[me->epoch & 1] = last;
    }
    __syncwarp();
    if (i == 0)
        barrier_arrive(shared_address(&s->message));
}

FN void step_end(consumer *c, const lane *me)
{
    const brim__res_params *p = me->p;
    if (R > 1)
        await_counter(c, me, &p->control->sampled, p->rows * (me->epoch + 1), RES_WAIT_ROWS);
    else
        join_consumers(me, &c->join_phase); /* the token has been chosen */
    if (me->warp == 0)
        end_step(me);
}

/* The warp of lane 0 that hands results to the host and looks whether it asks for the end. */
FN void host_warp(lane *me)
{
    const brim__res_params *p = me->p;
    lane_shared *s = me->s;
    if (this_lane() != 0)
        return;
    uint32_t bar = shared_address(&s->message), rows_max = p->rows;
    /* Rows and their slots don't change in a launch. */
    const uint32_t *step = p->step[p->epoch & 1];
    uint32_t slot = p->slots;
    if (me->thread < R && me->thread < (int)__ldcg(step + STEP_ROWS_WORD))
        slot = __ldcg(step + STEP_HEADER_WORDS + 2 * rows_max + me->thread);
    for (me->epoch = 0; me->epoch < p->limit; me->epoch++) {
        patience w = {0, 0};
        while (!__all_sync(~0u, barrier_test(bar, me->epoch & 1))) {
            uint32_t stop = *(volatile uint32_t *)&p->host->cancel;
            if (slot < p->slots)
                stop |= *(volatile const uint32_t *)(p->mail + slot);
            if (__any_sync(~0u, stop != 0))
                s->mail_stop = 1;
            __nanosleep(500);
            still_waiting(me, &w, RES_WAIT_STEP, me->epoch, 0);
        }
        uint32_t *entry = (uint32_t *)p->result +
                          (uint64_t)(s->result_entry[me->epoch & 1] % RESULT_ENTRIES) * 4 *
                              (rows_max + 1);
        const uint32_t *result = s->result[me->epoch & 1];
        bool last = s->result_last[me->epoch & 1];
        for (uint32_t n = me->thread; n < 4 * (rows_max + 1); n += 32)
            *(volatile uint32_t *)(entry + n) = result[n];
        __syncwarp();
        if (me->thread == 0) {
            __threadfence_system();
            p->host->done = me->epoch + 1;
            s->published = me->epoch + 1;
        }
        __syncwarp();
        if (last)
            return;
    }
}

#endif
