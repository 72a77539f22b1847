/* executor_cpu.c: a lane a thread.
 *
 * A lane walks its list. Before an instruction it waits: it spins, then helps others, then
 * sleeps. To help is to do any instruction that could go on: one that its lane has not begun
 * (because the system took the lane's CPU away), or one that is overdue, done again. That is safe
 * because an execution computes into private scratch and only the one that moves the state from
 * claimed to committing publishes.
 *
 * The other may still be reading its inputs then (a stale reader). Its result is dropped, but
 * nobody may write what it reads: `redoing` counts executions that are bound to lose, and while it
 * is not zero a lane that is about to publish waits for stale readers of those very bytes. Two
 * different executions of one epoch never conflict otherwise: the check has proven that.
 *
 * Memory order: a lane sets `current` before it claims; it counts itself in `redoing` before it
 * looks at the state again; both are sequentially consistent, as is the step to committing, so a
 * publisher that comes later sees the reader.
 */
#include "program/executor.h"

#include <string.h>

#include "base/rng.h"

enum {
    SPINS_BEFORE_HELP = 64, /* pauses: about a microsecond */
    SPIN_NS = 60000,        /* before sleeping, when every lane has a CPU */
    SPIN_CROWDED_NS = 4000, /* when there are more lanes than CPUs */
    SLEEP_NS = 200000,      /* an upper bound: overdue pieces make no event */
    OVERDUE_COST_FACTOR = 2,
    COST_BYTES_PER_NS = 4, /* assumed for a piece's own cost: a slow core's read rate */
    PREFETCH_BYTES = 8192,
    CACHE_LINE = 64,
};

typedef enum stat { INSTRUCTIONS, HELPED, REDONE, REDO_LOST, SLEEPS, STAT_COUNT } stat;

typedef struct lane {
    _Alignas(
        BRIM__LANE_ALIGN) _Atomic uint64_t current; /* (epoch << 20) + instruction + 1; 0: none */
    _Atomic uint64_t pos;                           /* (epoch << 20) + item in its list */
    brim_executor *x;
    uint32_t index;
    brim__thread *thread;
    char *scratch;
    uint64_t draws; /* random decisions made so far */
    _Atomic uint64_t stats[STAT_COUNT];
    brim_trace_event *events;
    uint64_t event_count;
} lane;

struct brim__cpu {
    lane *lanes;
    _Atomic uint64_t *heads;      /* by queue: (epoch << 20) + pieces taken */
    _Atomic uint64_t *claimed_ns; /* by instruction */
    uint32_t *overdue_ns;         /* by instruction: when it counts as overdue */
    uint64_t spin_ns;
    _Alignas(BRIM__LANE_ALIGN) _Atomic uint64_t go; /* epochs below this may run */
    _Atomic uint32_t quit;
    _Alignas(BRIM__LANE_ALIGN) _Atomic uint32_t redoing;
    _Alignas(BRIM__LANE_ALIGN) _Atomic uint32_t sleepers;
    _Atomic uint32_t event; /* lanes sleep on it */
    _Alignas(BRIM__LANE_ALIGN) _Atomic uint32_t host_event;
    _Atomic uint32_t host_waiting;
};

enum { INDEX_BITS = 20, INDEX_MASK = (1 << INDEX_BITS) - 1 };
_Static_assert(BRIM_INSTRUCTIONS_MAX < INDEX_MASK, "an instruction's index fits beside the epoch");

typedef enum outcome { NOT_MINE, DONE_HERE } outcome;

/* ---- waking and sleeping ---- */

/* Only the lane itself counts; the host reads while idle lanes may still count a sleep. */
static void count(lane *me, stat what)
{
    atomic_fetch_add_explicit(&me->stats[what], 1, memory_order_relaxed);
}

static void wake_lanes(brim__cpu *cpu)
{
    if (!atomic_load(&cpu->sleepers))
        return;
    atomic_fetch_add(&cpu->event, 1);
    brim__futex_wake_all(&cpu->event);
}

static void wake_host(brim__cpu *cpu)
{
    atomic_fetch_add(&cpu->host_event, 1);
    if (atomic_load(&cpu->host_waiting))
        brim__futex_wake_all(&cpu->host_event);
}

/* ---- stale readers ---- */

static bool access_overlaps(const brim_executor *x, const brim_access *w, uint64_t w_epoch,
                            const brim_access *r, uint64_t r_epoch)
{
    if (w->kind == BRIM_READ || r->kind != BRIM_READ || w->buffer != r->buffer)
        return false;
    if (brim__access_base(x, w, w_epoch) != brim__access_base(x, r, r_epoch))
        return false;
    uint64_t w_begin, w_end, r_begin, r_end;
    if (!brim__access_extent(&w_begin, &w_end, w) || !brim__access_extent(&r_begin, &r_end, r))
        return true;
    return w_begin < r_end && r_begin < w_end;
}

/* Count words and tables are reads too; they are small, so any write to their copy counts. */
static bool reads_words_of(const brim_executor *x, const brim_access *w, uint64_t w_epoch,
                           const brim_access *r, uint64_t r_epoch)
{
    if (w->kind == BRIM_READ || (r->count_buffer != w->buffer && r->table_buffer != w->buffer))
        return false;
    brim_access words = brim_access_make(BRIM_READ, w->buffer, 0, 1);
    return brim__access_base(x, w, w_epoch) == brim__access_base(x, &words, r_epoch);
}

static bool write_conflicts(const brim_executor *x, uint32_t writer, uint64_t w_epoch,
                            uint32_t reader, uint64_t r_epoch)
{
    const brim_instruction *w = &x->program->instructions[writer];
    const brim_instruction *r = &x->program->instructions[reader];
    for (unsigned i = 0; i < w->access_count; i++)
        for (unsigned j = 0; j < r->access_count; j++)
            if (access_overlaps(x, &w->accesses[i], w_epoch, &r->accesses[j], r_epoch) ||
                reads_words_of(x, &w->accesses[i], w_epoch, &r->accesses[j], r_epoch))
                return true;
    return false;
}

static void wait_for_stale_readers(lane *me, uint32_t i, uint64_t epoch)
{
    brim_executor *x = me->x;
    if (!atomic_load(&x->cpu->redoing))
        return;
    for (uint32_t l = 0; l < x->program->lane_count; l++) {
        lane *other = &x->cpu->lanes[l];
        uint64_t current;
        while (other != me && (current = atomic_load(&other->current)) != 0) {
            uint32_t reading = (uint32_t)(current & INDEX_MASK) - 1;
            if (reading == i || !write_conflicts(x, i, epoch, reading, current >> INDEX_BITS))
                break;
            brim__cpu_pause();
        }
    }
}

/* ---- one instruction ---- */

static void record(lane *me, uint32_t i, uint64_t epoch, uint64_t taken, uint64_t started,
                   uint32_t flags)
{
    brim_executor *x = me->x;
    if (!me->events)
        return;
    me->events[me->event_count++ % x->desc.trace_events] = (brim_trace_event){
        .epoch = epoch,
        .instruction = i,
        .lane = me->index,
        .taken_ns = taken - x->created_ns,
        .started_ns = started - x->created_ns,
        .ended_ns = brim__now_ns() - x->created_ns,
        .flags = flags,
    };
}

static void end_epoch(brim_executor *x, uint64_t epoch, bool more)
{
    brim__cpu *cpu = x->cpu;
    atomic_store(&x->epoch, epoch + 1);
    if (more && epoch + 1 < x->end_epoch && !atomic_load(&x->cancel))
        atomic_store(&cpu->go, epoch + 2);
    else
        atomic_store(&x->running, 0);
    wake_host(cpu);
}

static void signal_done(brim_executor *x, uint32_t i, uint64_t epoch, bool more)
{
    const brim_instruction *in = &x->program->instructions[i];
    atomic_store_explicit(&x->state[i], 4 * epoch + BRIM__DONE, memory_order_release);
    for (unsigned s = 0; s < in->signal_count; s++)
        atomic_fetch_add(&x->counters[in->signals[s]], 1);
    if (i == x->program->step_end)
        end_epoch(x, epoch, more);
    wake_lanes(x->cpu);
}

/* Computes and, if this execution wins, publishes and signals. The caller has claimed the
 * instruction, or (flag 2) found it overdue. */
static void execute(lane *me, uint32_t i, uint64_t epoch, uint64_t taken, uint32_t flags)
{
    brim_executor *x = me->x;
    brim__execution e;
    uint64_t started = me->events ? brim__now_ns() : 0;
    bool cancelled = atomic_load_explicit(&x->cancel, memory_order_relaxed);
    if (!cancelled) {
        brim_status status = brim__execution_prepare(&e, x, me->scratch, i, epoch);
        if (status == BRIM_OK)
            status = brim__execution_compute(&e, x, me->scratch);
        if (status != BRIM_OK) {
            brim__executor_fail(x, status);
            cancelled = true;
        }
    }
    uint64_t claimed = 4 * epoch + BRIM__CLAIMED;
    if (!atomic_compare_exchange_strong(&x->state[i], &claimed, 4 * epoch + BRIM__COMMITTING)) {
        if (flags & 2)
            count(me, REDO_LOST);
        record(me, i, epoch, taken, started, flags | 4);
        atomic_store(&me->current, 0);
        atomic_fetch_sub(&x->cpu->redoing, 1);
        return;
    }
    wait_for_stale_readers(me, i, epoch);
    if (cancelled)
        brim__execution_publish_nothing(x, i, epoch);
    else
        brim__execution_publish(&e, x);
    count(me, INSTRUCTIONS);
    record(me, i, epoch, taken, started, flags);
    bool more = !cancelled && i == x->program->step_end && brim__execution_continues(&e);
    atomic_store(&me->current, 0);
    signal_done(x, i, epoch, more);
}

static outcome claim_and_execute(lane *me, uint32_t i, uint64_t epoch, uint64_t taken,
                                 uint32_t flags)
{
    brim_executor *x = me->x;
    atomic_store(&me->current, (epoch << INDEX_BITS) + i + 1);
    uint64_t state = atomic_load(&x->state[i]);
    if (x->program->lane_count > 1)
        atomic_store_explicit(&x->cpu->claimed_ns[i], brim__now_ns(), memory_order_relaxed);
    if (state >= 4 * epoch + BRIM__CLAIMED ||
        !atomic_compare_exchange_strong(&x->state[i], &state, 4 * epoch + BRIM__CLAIMED)) {
        atomic_store(&me->current, 0);
        return NOT_MINE;
    }
    execute(me, i, epoch, taken, flags);
    return DONE_HERE;
}

/* ---- helping ---- */

static bool is_overdue(lane *me, uint32_t i)
{
    brim_executor *x = me->x;
    if (x->desc.redo_per_mille) {
        uint64_t draw = brim__random_below(x->desc.seed, me->index, me->draws++, 1000);
        if (draw < x->desc.redo_per_mille)
            return true;
    }
    uint64_t since = atomic_load_explicit(&x->cpu->claimed_ns[i], memory_order_relaxed);
    return brim__now_ns() > since + x->cpu->overdue_ns[i];
}

static outcome redo(lane *me, uint32_t i, uint64_t epoch)
{
    brim_executor *x = me->x;
    atomic_store(&me->current, (epoch << INDEX_BITS) + i + 1);
    atomic_fetch_add(&x->cpu->redoing, 1);
    if (atomic_load(&x->state[i]) != 4 * epoch + BRIM__CLAIMED) {
        atomic_store(&me->current, 0);
        atomic_fetch_sub(&x->cpu->redoing, 1);
        return NOT_MINE;
    }
    count(me, REDONE);
    execute(me, i, epoch, brim__now_ns(), 2);
    return DONE_HERE;
}

/* Does instruction i if it can go on and nobody is at it in good time. */
static outcome help_with(lane *me, uint32_t i, uint64_t epoch)
{
    brim_executor *x = me->x;
    uint64_t state = atomic_load(&x->state[i]);
    if (state < 4 * epoch + BRIM__CLAIMED) {
        if (!brim__instruction_ready(x, i, epoch))
            return NOT_MINE;
        outcome done = claim_and_execute(me, i, epoch, brim__now_ns(), 1);
        if (done == DONE_HERE)
            count(me, HELPED);
        return done;
    }
    if (state == 4 * epoch + BRIM__CLAIMED && is_overdue(me, i))
        return redo(me, i, epoch);
    return NOT_MINE;
}

static size_t queue_taken(const brim_executor *x, uint32_t queue, uint64_t epoch)
{
    uint64_t head = atomic_load(&x->cpu->heads[queue]);
    if (head >> INDEX_BITS > epoch)
        return x->program->queues[queue].count;
    return head >> INDEX_BITS == epoch ? head & INDEX_MASK : 0;
}

/* Pieces that are taken but not done are among the last ones taken: at most one a lane. */
static outcome help_queue(lane *me, uint32_t queue, uint64_t epoch)
{
    const brim__list *list = &me->x->program->queues[queue];
    size_t taken = queue_taken(me->x, queue, epoch);
    uint32_t undone = 0;
    size_t first = taken;
    while (first > 0 && undone < me->x->program->lane_count && taken - first < 256) {
        first--;
        undone += !brim__instruction_done(me->x, list->items[first], epoch);
    }
    for (size_t n = first; n < taken; n++)
        if (!brim__instruction_done(me->x, list->items[n], epoch) &&
            help_with(me, list->items[n], epoch) == DONE_HERE)
            return DONE_HERE;
    return NOT_MINE;
}

/* The first item of another lane's list that is not done; lists are in order, so only that one. */
static outcome help_lane(lane *me, const lane *other, uint64_t epoch)
{
    const brim_executor *x = me->x;
    const brim__lane_list *list = &x->program->lanes[other->index];
    uint64_t pos = atomic_load(&other->pos);
    for (size_t n = pos >> INDEX_BITS == epoch ? pos & INDEX_MASK : 0; n < list->count; n++) {
        const brim__item *item = &list->items[n];
        if (item->queue != BRIM_NONE) {
            if (queue_taken(x, item->queue, epoch) < x->program->queues[item->queue].count)
                return NOT_MINE;
        } else if (!brim__instruction_done(x, item->instruction, epoch)) {
            return help_with(me, item->instruction, epoch);
        }
    }
    return NOT_MINE;
}

static outcome help(lane *me, uint64_t epoch)
{
    const brim_executor *x = me->x;
    if (x->program->lane_count == 1)
        return NOT_MINE;
    for (uint32_t q = 0; q < x->program->queue_count; q++)
        if (help_queue(me, q, epoch) == DONE_HERE)
            return DONE_HERE;
    for (uint32_t n = 1; n < x->program->lane_count; n++) {
        const lane *other = &x->cpu->lanes[(me->index + n) % x->program->lane_count];
        if (help_lane(me, other, epoch) == DONE_HERE)
            return DONE_HERE;
    }
    return NOT_MINE;
}

/* ---- waiting ---- */

typedef struct awaited {
    uint64_t epoch;
    uint32_t instruction; /* BRIM_NONE: the epoch after `epoch` */
} awaited;

static bool has_come(lane *me, const awaited *what)
{
    brim_executor *x = me->x;
    if (what->instruction == BRIM_NONE)
        return atomic_load(&x->cpu->go) > what->epoch + 1 || atomic_load(&x->cpu->quit);
    return brim__instruction_ready(x, what->instruction, what->epoch) ||
           brim__instruction_done(x, what->instruction, what->epoch);
}

static void sleep_for_event(lane *me, const awaited *what)
{
    brim__cpu *cpu = me->x->cpu;
    bool idle = what->instruction == BRIM_NONE && !atomic_load(&me->x->running);
    atomic_fetch_add(&cpu->sleepers, 1);
    uint32_t event = atomic_load(&cpu->event);
    if (!has_come(me, what)) {
        count(me, SLEEPS);
        brim__futex_wait(&cpu->event, event, idle ? 0 : SLEEP_NS);
    }
    atomic_fetch_sub(&cpu->sleepers, 1);
}

static void wait_for(lane *me, awaited what)
{
    uint64_t spinning_since = 0;
    for (uint32_t spins = 0; !has_come(me, &what);) {
        brim__cpu_pause();
        if (++spins < SPINS_BEFORE_HELP)
            continue;
        spins = 0;
        if (what.epoch != UINT64_MAX && help(me, what.epoch) == DONE_HERE) {
            spinning_since = 0;
            continue;
        }
        uint64_t now = brim__now_ns();
        if (!spinning_since)
            spinning_since = now;
        if (now - spinning_since > me->x->cpu->spin_ns) {
            sleep_for_event(me, &what);
            spinning_since = 0;
        }
    }
}

/* ---- a lane's life ---- */

/* Starts fetching the first tiles while the inputs are still being made. */
static void prefetch_tiles(const brim_executor *x, uint32_t i)
{
    for (unsigned r = 0; r < 2; r++) {
        const brim_tile_run *run = &x->program->instructions[i].runs[r];
        if (run->tensor == BRIM_NONE)
            continue;
        uint64_t bytes = x->program->tensors[run->tensor].tiling.row_block_bytes;
        const char *tiles = (const char *)x->tiles[run->tensor] + run->first * bytes;
        for (uint64_t at = 0; at < PREFETCH_BYTES && at < bytes * run->count; at += CACHE_LINE)
            __builtin_prefetch(tiles + at, 0, 2);
    }
}

static void run_instruction(lane *me, uint32_t i, uint64_t epoch)
{
    brim_executor *x = me->x;
    uint64_t taken = me->events ? brim__now_ns() : 0;
    if (!brim__instruction_ready(x, i, epoch)) {
        prefetch_tiles(x, i);
        wait_for(me, (awaited){epoch, i});
    }
    claim_and_execute(me, i, epoch, taken, 0);
}

/* The next piece of the queue, or BRIM_NONE. */
static uint32_t take_piece(brim_executor *x, uint32_t queue, uint64_t epoch)
{
    const brim__list *list = &x->program->queues[queue];
    _Atomic uint64_t *head = &x->cpu->heads[queue];
    uint64_t seen = atomic_load(head);
    for (;;) {
        uint64_t taken = seen >> INDEX_BITS == epoch ? seen & INDEX_MASK : 0;
        if (seen >> INDEX_BITS > epoch || taken == list->count)
            return BRIM_NONE;
        if (atomic_compare_exchange_weak(head, &seen, (epoch << INDEX_BITS) + taken + 1))
            return list->items[taken];
    }
}

/* Own-list order: an instruction that another lane has claimed must be done before the next. */
static void wait_until_done(lane *me, uint32_t i, uint64_t epoch)
{
    while (!brim__instruction_done(me->x, i, epoch))
        if (help_with(me, i, epoch) == NOT_MINE && help(me, epoch) == NOT_MINE)
            brim__cpu_pause();
}

static void run_epoch(lane *me, uint64_t epoch)
{
    brim_executor *x = me->x;
    const brim__lane_list *list = &x->program->lanes[me->index];
    for (size_t n = 0; n < list->count; n++) {
        atomic_store(&me->pos, (epoch << INDEX_BITS) + n);
        const brim__item *item = &list->items[n];
        if (item->queue == BRIM_NONE) {
            run_instruction(me, item->instruction, epoch);
            wait_until_done(me, item->instruction, epoch);
            continue;
        }
        uint32_t piece;
        while ((piece = take_piece(x, item->queue, epoch)) != BRIM_NONE)
            run_instruction(me, piece, epoch);
    }
    atomic_store(&me->pos, (epoch << INDEX_BITS) + list->count);
}

static void lane_main(void *user)
{
    lane *me = user;
    brim__cpu *cpu = me->x->cpu;
    if (me->x->desc.pin)
        brim__thread_pin(me->index);
    uint64_t next = 0;
    for (;;) {
        /* "The epoch after next - 1": the first time round that is epoch 0. */
        wait_for(me, (awaited){next - 1, BRIM_NONE});
        if (atomic_load(&cpu->quit))
            return;
        next = atomic_load(&cpu->go);
        run_epoch(me, next - 1);
    }
}

/* ---- creation and the host's side ---- */

static brim_status create_lane(brim_executor *x, uint32_t index)
{
    lane *me = &x->cpu->lanes[index];
    me->x = x;
    me->index = index;
    BRIM_ALLOC(x->ctx, me->scratch, x->scratch_bytes);
    if (x->desc.trace_events)
        BRIM_CALLOC(x->ctx, me->events, x->desc.trace_events);
    char name[16] = "lane ";
    for (uint32_t n = index, at = 5,
                  digits = n < 10     ? 1
                           : n < 100  ? 2
                           : n < 1000 ? 3
                                      : 4;
         digits; digits--) {
        name[at + digits - 1] = (char)('0' + n % 10);
        n /= 10;
    }
    return brim__thread_start(&me->thread, x->ctx, name, lane_main, me);
}

static void find_overdue_times(brim_executor *x)
{
    for (size_t i = 0; i < x->program->instruction_count; i++) {
        const brim_instruction *in = &x->program->instructions[i];
        const brim_op_desc *op = brim_op_get(x->program->ops, in->op);
        brim_op_cost cost = {0};
        if (op->cost)
            op->cost(&cost, x->program, in);
        double ns = (cost.bytes + cost.flops / 8 + cost.int8_ops / 32) / COST_BYTES_PER_NS;
        double overdue = x->desc.overdue_us * 1e3 + OVERDUE_COST_FACTOR * ns;
        x->cpu->overdue_ns[i] = overdue < 4e9 ? (uint32_t)overdue : 4000000000u;
    }
}

brim_status brim__cpu_create(brim_executor *x)
{
    const brim_program *p = x->program;
    BRIM_CALLOC(x->ctx, x->cpu, 1);
    brim__cpu *cpu = x->cpu;
    BRIM_CALLOC(x->ctx, cpu->lanes, p->lane_count);
    BRIM_CALLOC(x->ctx, cpu->heads, p->queue_count + 1);
    BRIM_CALLOC(x->ctx, cpu->claimed_ns, p->instruction_count + 1);
    BRIM_CALLOC(x->ctx, cpu->overdue_ns, p->instruction_count + 1);
    cpu->spin_ns = p->lane_count > brim__cpu_count() ? SPIN_CROWDED_NS : SPIN_NS;
    find_overdue_times(x);
    for (uint32_t l = 0; l < p->lane_count; l++)
        x->cpu->lanes[l].x = x;
    for (uint32_t l = 0; l < p->lane_count; l++)
        BRIM_TRY(create_lane(x, l));
    return BRIM_OK;
}

void brim__cpu_destroy(brim_executor *x)
{
    brim__cpu *cpu = x->cpu;
    brim__cpu_wait(x);
    atomic_store(&cpu->quit, 1);
    atomic_fetch_add(&cpu->event, 1);
    brim__futex_wake_all(&cpu->event);
    for (uint32_t l = 0; cpu->lanes && l < x->program->lane_count; l++) {
        brim__thread_join(cpu->lanes[l].thread, x->ctx);
        brim__free(x->ctx, cpu->lanes[l].scratch);
        brim__free(x->ctx, cpu->lanes[l].events);
    }
    brim__free(x->ctx, cpu->lanes);
    brim__free(x->ctx, (void *)cpu->heads);
    brim__free(x->ctx, (void *)cpu->claimed_ns);
    brim__free(x->ctx, cpu->overdue_ns);
    brim__free(x->ctx, cpu);
    x->cpu = NULL;
}

void brim__cpu_start(brim_executor *x)
{
    atomic_store(&x->cpu->go, atomic_load(&x->epoch) + 1);
    wake_lanes(x->cpu);
}

bool brim__cpu_wait_epoch(brim_executor *x, uint64_t epoch, uint64_t timeout_ns)
{
    brim__cpu *cpu = x->cpu;
    uint64_t deadline = timeout_ns ? brim__now_ns() + timeout_ns : 0;
    atomic_store(&cpu->host_waiting, 1);
    for (;;) {
        uint32_t event = atomic_load(&cpu->host_event);
        bool ended = atomic_load(&x->epoch) > epoch;
        uint64_t now = deadline ? brim__now_ns() : 0;
        if (ended || !atomic_load(&x->running) || (deadline && now >= deadline))
            break;
        brim__futex_wait(&cpu->host_event, event, deadline ? deadline - now : 0);
    }
    atomic_store(&cpu->host_waiting, 0);
    return atomic_load(&x->epoch) > epoch;
}

/* Stale readers of the run must be gone before the host touches buffers. */
static void wait_for_lanes_to_leave(brim_executor *x)
{
    while (atomic_load(&x->cpu->redoing))
        brim__futex_wait(&x->cpu->host_event, atomic_load(&x->cpu->host_event), 100000);
}

static void sum_stats(brim_executor *x)
{
    x->stats = (brim_executor_stats){0};
    for (uint32_t l = 0; l < x->program->lane_count; l++) {
        const _Atomic uint64_t *s = x->cpu->lanes[l].stats;
        x->stats.instructions += atomic_load(&s[INSTRUCTIONS]);
        x->stats.helped += atomic_load(&s[HELPED]);
        x->stats.redone += atomic_load(&s[REDONE]);
        x->stats.redo_lost += atomic_load(&s[REDO_LOST]);
        x->stats.sleeps += atomic_load(&s[SLEEPS]);
    }
}

void brim__cpu_wait(brim_executor *x)
{
    brim__cpu_wait_epoch(x, UINT64_MAX, 0);
    wait_for_lanes_to_leave(x);
    if (x->cpu->lanes)
        sum_stats(x);
}

size_t brim__cpu_trace(const brim_trace_event **out, brim_executor *x, uint32_t l)
{
    lane *from = &x->cpu->lanes[l];
    uint32_t capacity = x->desc.trace_events;
    uint64_t count = from->event_count;
    if (count > capacity) {
        /* Rotate the ring so that the oldest event comes first. */
        uint32_t start = (uint32_t)(count % capacity);
        brim_trace_event *e = from->events;
        for (int pass = 0; pass < 3; pass++) {
            uint32_t a = pass == 1 ? start : 0, b = pass == 0 ? start : capacity;
            for (; a + 1 < b; a++, b--) {
                brim_trace_event swap = e[a];
                e[a] = e[b - 1];
                e[b - 1] = swap;
            }
        }
        from->event_count = count = capacity;
    }
    *out = from->events;
    return (size_t)count;
}
