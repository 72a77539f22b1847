/* reference.c: one thread, one instruction at a time, in a legal order that the seed picks: the
 * oracle in tests and the debugger's view. It can stop after any instruction.
 *
 * Legal means: each lane's list in order; pieces of a queue in any order within a window (more
 * lanes, or helpers, could have taken them); an instruction only when its waits hold.
 */
#include "program/executor.h"

#include "base/rng.h"

enum { QUEUE_WINDOW = 64 };

struct brim__reference {
    char *scratch;
    size_t *pos;          /* by lane */
    size_t *first_undone; /* by queue */
    uint32_t *candidates;
    uint32_t *candidate_lane;
    size_t candidate_capacity;
    bool in_epoch;
    uint64_t draws;
    brim_trace_event *events;
    uint64_t event_count;
};

brim_status brim__reference_create(brim_executor *x)
{
    const brim_program *p = x->program;
    BRIM_CALLOC(x->ctx, x->reference, 1);
    brim__reference *r = x->reference;
    r->candidate_capacity = p->lane_count + p->queue_count * QUEUE_WINDOW;
    BRIM_ALLOC(x->ctx, r->scratch, x->scratch_bytes);
    BRIM_CALLOC(x->ctx, r->pos, p->lane_count);
    BRIM_CALLOC(x->ctx, r->first_undone, p->queue_count + 1);
    BRIM_CALLOC(x->ctx, r->candidates, r->candidate_capacity);
    BRIM_CALLOC(x->ctx, r->candidate_lane, r->candidate_capacity);
    if (x->desc.trace_events)
        BRIM_CALLOC(x->ctx, r->events, x->desc.trace_events);
    return BRIM_OK;
}

void brim__reference_destroy(brim_executor *x)
{
    brim__reference *r = x->reference;
    brim__free(x->ctx, r->scratch);
    brim__free(x->ctx, r->pos);
    brim__free(x->ctx, r->first_undone);
    brim__free(x->ctx, r->candidates);
    brim__free(x->ctx, r->candidate_lane);
    brim__free(x->ctx, r->events);
    brim__free(x->ctx, r);
    x->reference = NULL;
}

static void begin_epoch(brim_executor *x)
{
    brim__reference *r = x->reference;
    for (uint32_t l = 0; l < x->program->lane_count; l++)
        r->pos[l] = 0;
    for (size_t q = 0; q < x->program->queue_count; q++)
        r->first_undone[q] = 0;
    r->in_epoch = true;
}

static size_t pieces_left(const brim_executor *x, uint32_t queue, uint64_t epoch)
{
    const brim__list *list = &x->program->queues[queue];
    size_t *first = &x->reference->first_undone[queue];
    while (*first < list->count && brim__instruction_done(x, list->items[*first], epoch))
        ++*first;
    size_t left = 0;
    for (size_t n = *first; n < list->count && left < x->program->lane_count; n++)
        left += !brim__instruction_done(x, list->items[n], epoch);
    return left;
}

/* A lane leaves a queue when all pieces are taken: the others may still be at the last ones. */
static void skip_finished_items(brim_executor *x, uint32_t l, uint64_t epoch)
{
    const brim__lane_list *list = &x->program->lanes[l];
    size_t *pos = &x->reference->pos[l];
    for (; *pos < list->count; ++*pos) {
        const brim__item *item = &list->items[*pos];
        if (item->queue != BRIM_NONE ? pieces_left(x, item->queue, epoch) >= x->program->lane_count
                                     : !brim__instruction_done(x, item->instruction, epoch))
            return;
        if (item->queue != BRIM_NONE && pieces_left(x, item->queue, epoch) > 0 &&
            x->program->lane_count == 1)
            return;
    }
}

static void add_candidate(brim_executor *x, size_t *count, uint32_t i, uint32_t l, uint64_t epoch)
{
    brim__reference *r = x->reference;
    if (*count == r->candidate_capacity || brim__instruction_done(x, i, epoch) ||
        !brim__instruction_ready(x, i, epoch))
        return;
    r->candidates[*count] = i;
    r->candidate_lane[(*count)++] = l;
}

static void add_pieces(brim_executor *x, size_t *count, uint32_t queue, uint32_t l, uint64_t epoch)
{
    const brim__list *list = &x->program->queues[queue];
    size_t undone = 0;
    pieces_left(x, queue, epoch);
    for (size_t n = x->reference->first_undone[queue]; n < list->count && undone < QUEUE_WINDOW;
         n++) {
        undone += !brim__instruction_done(x, list->items[n], epoch);
        add_candidate(x, count, list->items[n], l, epoch);
    }
}

static size_t find_candidates(brim_executor *x, uint64_t epoch)
{
    const brim_program *p = x->program;
    size_t count = 0;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        uint32_t taker = BRIM_NONE;
        for (uint32_t l = 0; l < p->lane_count && taker == BRIM_NONE; l++) {
            skip_finished_items(x, l, epoch);
            size_t pos = x->reference->pos[l];
            if (pos < p->lanes[l].count && p->lanes[l].items[pos].queue == q)
                taker = l;
        }
        /* The last pieces may be in the hands of lanes that the model has already let go on. */
        if (taker != BRIM_NONE || pieces_left(x, q, epoch) < p->lane_count)
            add_pieces(x, &count, q, taker == BRIM_NONE ? 0 : taker, epoch);
    }
    for (uint32_t l = 0; l < p->lane_count; l++) {
        skip_finished_items(x, l, epoch);
        size_t pos = x->reference->pos[l];
        if (pos < p->lanes[l].count && p->lanes[l].items[pos].queue == BRIM_NONE)
            add_candidate(x, &count, p->lanes[l].items[pos].instruction, l, epoch);
    }
    return count;
}

static brim_status stuck(const brim_executor *x, uint64_t epoch)
{
    const brim_program *p = x->program;
    char where[128];
    for (uint32_t i = 0; i < p->instruction_count; i++) {
        const brim_instruction *in = &p->instructions[i];
        if (brim__instruction_done(x, i, epoch))
            continue;
        for (unsigned w = 0; w < in->wait_count; w++) {
            const brim__counter *c = &p->counters[in->waits[w].counter];
            uint64_t seen = atomic_load(&x->counters[in->waits[w].counter]) - epoch * c->total;
            if (seen >= in->waits[w].value)
                continue;
            brim__program_where(where, sizeof where, p, i);
            BRIM_FAIL(REFUSED, "run.stuck",
                      "nothing can go on: %s waits for counter %s to reach %u; it is at %llu",
                      where, c->name, in->waits[w].value, (unsigned long long)seen);
        }
    }
    BRIM_FAIL(REFUSED, "run.stuck",
              "nothing can go on, and no instruction waits for a counter: a "
              "packet that is never written, or a queue that no lane takes");
}

static void record(brim_executor *x, uint32_t i, uint32_t l, uint64_t epoch, uint64_t started)
{
    brim__reference *r = x->reference;
    if (!r->events)
        return;
    uint64_t at = started - x->created_ns;
    r->events[r->event_count++ % x->desc.trace_events] = (brim_trace_event){
        .epoch = epoch,
        .instruction = i,
        .lane = l,
        .taken_ns = at,
        .started_ns = at,
        .ended_ns = brim__now_ns() - x->created_ns,
    };
}

static brim_status execute(brim_executor *x, uint32_t i, uint32_t l, uint64_t epoch)
{
    const brim_instruction *in = &x->program->instructions[i];
    brim__execution e;
    bool cancelled = atomic_load(&x->cancel), more = false;
    uint64_t started = brim__now_ns();
    if (cancelled) {
        brim__execution_publish_nothing(x, i, epoch);
    } else {
        BRIM_TRY(brim__execution_prepare(&e, x, x->reference->scratch, i, epoch));
        BRIM_TRY(brim__execution_compute(&e, x, x->reference->scratch));
        brim__execution_publish(&e, x);
        more = i == x->program->step_end && brim__execution_continues(&e);
    }
    record(x, i, l, epoch, started);
    x->stats.instructions++;
    atomic_store(&x->state[i], 4 * epoch + BRIM__DONE);
    for (unsigned s = 0; s < in->signal_count; s++)
        atomic_fetch_add(&x->counters[in->signals[s]], 1);
    if (i == x->program->step_end)
        atomic_store(&x->running, more && epoch + 1 < x->end_epoch && !atomic_load(&x->cancel));
    return BRIM_OK;
}

static bool all_done(const brim_executor *x, uint64_t epoch)
{
    for (uint32_t i = 0; i < x->program->instruction_count; i++)
        if (!brim__instruction_done(x, i, epoch))
            return false;
    return true;
}

brim_status brim_executor_advance(uint32_t *out_last, bool *out_ended, brim_executor *x,
                                  uint64_t limit)
{
    *out_last = BRIM_NONE;
    *out_ended = false;
    brim__reference *r = x->reference;
    BRIM_FAIL_IF(!r, STATE, "executor.kind", "only the reference executor can be advanced");
    BRIM_FAIL_IF(!atomic_load(&x->running) && !r->in_epoch, STATE, "executor.idle",
                 "nothing was started: call brim_executor_start() first");
    uint64_t epoch = atomic_load(&x->epoch);
    if (!r->in_epoch)
        begin_epoch(x);
    for (uint64_t n = 0; n < limit; n++) {
        size_t count = find_candidates(x, epoch);
        if (count == 0 && !all_done(x, epoch))
            return stuck(x, epoch);
        if (count > 0) {
            size_t pick = brim__random_below(x->desc.seed, 0, r->draws++, count);
            *out_last = r->candidates[pick];
            BRIM_TRY(execute(x, *out_last, r->candidate_lane[pick], epoch));
        }
        if (count == 0 || (count == 1 && all_done(x, epoch))) {
            r->in_epoch = false;
            *out_ended = true;
            atomic_store(&x->epoch, epoch + 1);
            return BRIM_OK;
        }
    }
    return BRIM_OK;
}

brim_status brim__reference_run(brim_executor *x)
{
    while (atomic_load(&x->running) || x->reference->in_epoch) {
        uint32_t last;
        bool ended;
        brim_status status = brim_executor_advance(&last, &ended, x, UINT64_MAX);
        if (status != BRIM_OK) {
            atomic_store(&x->running, 0);
            return status;
        }
    }
    return BRIM_OK;
}

size_t brim__reference_trace(const brim_trace_event **out, brim_executor *x, uint32_t l)
{
    brim__reference *r = x->reference;
    /* One thread did everything; events are sorted to their lanes, in place, on each call. */
    size_t total =
        r->event_count < x->desc.trace_events ? (size_t)r->event_count : x->desc.trace_events;
    size_t start = 0, count = 0;
    for (uint32_t pass = 0; pass <= l; pass++) {
        start += count;
        count = 0;
        for (size_t n = start; n < total; n++) {
            if (r->events[n].lane != pass)
                continue;
            brim_trace_event e = r->events[n];
            for (size_t m = n; m > start + count; m--)
                r->events[m] = r->events[m - 1];
            r->events[start + count++] = e;
        }
    }
    *out = r->events + start;
    return count;
}
