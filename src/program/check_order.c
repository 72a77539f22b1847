/* check_order.c: deadlocks, and what is ordered before what.
 *
 * Both questions have monotone answers: counters only rise within an epoch, so an instruction that
 * could start stays able to. Hence one maximal run decides whether a set of orders can be met.
 *
 * Deadlock. The most restrictive order has each lane's list, each queue's pieces one after the
 * other, all that comes before a queue in any lane before its first piece, and its last piece
 * before all that follows it in any lane. If a run under these rules ends, no executor can get
 * stuck: of the instructions that are not done, the first in that run's sequence can always go on.
 *
 * Order. Only lists, counters and packets order (pieces of a queue are not ordered by it, since
 * any lane may do them). r is before w, where w waits for counter c to reach v, if c cannot reach
 * v without r: that is, if fewer than v of its signals come from instructions that neither are r,
 * nor come after r, nor come after w. For v = all signals this is the union of what is before the
 * signallers. Otherwise the rows of signallers that come later in the sequence matter, and rows
 * are computed again until they no longer grow; stopping early only finds less order. */
#include "program/check.h"

#include <stdio.h>
#include <string.h>

enum { ROUNDS_MAX = 8, CYCLE_SHOWN_MAX = 4, PLANES_MAX = 18 };
#define ORDER_BYTES_MAX ((uint64_t)512 << 20)
#define ORDER_WORK_MAX ((uint64_t)1 << 34) /* words of rows looked at: seconds */

/* ---- the most restrictive run ---- */

typedef struct edge_list {
    uint32_t *first; /* by node, one more entry than nodes */
    uint32_t *to;
    size_t count;
} edge_list;

/* Nodes are instructions, then one "begins" node for each queue. */
typedef struct run {
    brim__check *c;
    size_t node_count;
    uint32_t *edge; /* pairs from, to */
    size_t edge_count, edge_capacity;
    edge_list out;
    edge_list waiters; /* by counter: indices into `waits` */
    uint32_t *missing; /* by node: edges and waits that do not hold yet */
    uint32_t *reached; /* by counter: signals so far */
    bool *done;
    uint32_t *ready; /* first in, first out */
} run;

static brim_status add_edge(run *r, uint32_t from, uint32_t to)
{
    BRIM_TRY(BRIM_GROW(r->c->ctx, r->edge, r->edge_capacity, r->edge_count + 2));
    r->edge[r->edge_count++] = from;
    r->edge[r->edge_count++] = to;
    return BRIM_OK;
}

static brim_status add_list_edges(run *r)
{
    const brim_program *p = r->c->program;
    uint32_t base = (uint32_t)p->instruction_count;
    for (uint32_t q = 0; q < p->queue_count; q++)
        for (size_t i = 0; i < p->queues[q].count; i++)
            BRIM_TRY(add_edge(r, i ? p->queues[q].items[i - 1] : base + q, p->queues[q].items[i]));
    for (uint32_t l = 0; l < p->lane_count; l++) {
        uint32_t before = BRIM_NONE, own = BRIM_NONE;
        for (size_t i = 0; i < p->lanes[l].count; i++) {
            const brim__item *item = &p->lanes[l].items[i];
            bool queue = item->queue != BRIM_NONE;
            uint32_t node = queue ? base + item->queue : item->instruction;
            if (before != BRIM_NONE)
                BRIM_TRY(add_edge(r, before, node));
            const brim__list *list = queue ? &p->queues[item->queue] : NULL;
            before = list && list->count ? list->items[list->count - 1] : node;
            if (!queue) {
                r->c->list_before[node] = own;
                own = node;
            }
        }
    }
    for (size_t i = 0; i < r->c->packet_count; i++)
        BRIM_TRY(add_edge(r, r->c->packets[i].before, r->c->packets[i].after));
    return BRIM_OK;
}

/* Sorts pairs (key, value) into lists by key. */
static brim_status make_list(edge_list *out, brim_context *ctx, const uint32_t *pairs, size_t count,
                             size_t key_count)
{
    BRIM_CALLOC(ctx, out->first, key_count + 2);
    BRIM_ALLOC(ctx, out->to, count / 2 * sizeof *out->to + 1);
    for (size_t i = 0; i < count; i += 2)
        out->first[pairs[i] + 2]++;
    for (size_t k = 2; k < key_count + 2; k++)
        out->first[k] += out->first[k - 1];
    for (size_t i = 0; i < count; i += 2)
        out->to[out->first[pairs[i] + 1]++] = pairs[i + 1];
    out->count = count / 2;
    return BRIM_OK;
}

/* A wait for more signals than there are has been reported; it is taken as one for all of them. */
static uint32_t wait_value(const brim_program *p, const brim_wait *w)
{
    uint32_t total = p->counters[w->counter].total;
    return w->value < total ? w->value : total;
}

static brim_status make_waiters(run *r)
{
    const brim_program *p = r->c->program;
    uint32_t *pairs = NULL;
    size_t count = 0, capacity = 0;
    brim_status status = BRIM_OK;
    for (uint32_t i = 0; i < p->instruction_count && status == BRIM_OK; i++)
        for (unsigned w = 0; w < p->instructions[i].wait_count && status == BRIM_OK; w++) {
            if (wait_value(p, &p->instructions[i].waits[w]) == 0)
                continue;
            r->missing[i]++;
            status = BRIM_GROW(r->c->ctx, pairs, capacity, count + 2);
            if (status != BRIM_OK)
                break;
            pairs[count++] = p->instructions[i].waits[w].counter;
            pairs[count++] = i * BRIM_WAITS_MAX + w;
        }
    if (status == BRIM_OK)
        status = make_list(&r->waiters, r->c->ctx, pairs, count, p->counter_count);
    brim__free(r->c->ctx, pairs);
    return status;
}

/* Buckets a counter's waiters by value: those for value v come together, so that each signal
 * looks at its own alone. */
static brim_status sort_waiters(run *r)
{
    const brim_program *p = r->c->program;
    uint32_t most = 0;
    for (size_t k = 0; k < p->counter_count; k++)
        most = p->counters[k].total > most ? p->counters[k].total : most;
    uint32_t *start = brim__calloc(r->c->ctx, (size_t)most + 2, sizeof *start);
    uint32_t *copy = brim__alloc(r->c->ctx, r->waiters.count * sizeof *copy + 1);
    brim_status status = start && copy ? BRIM_OK : BRIM_NO_MEMORY;
    for (size_t k = 0; k < p->counter_count && status == BRIM_OK; k++) {
        uint32_t begin = r->waiters.first[k], end = r->waiters.first[k + 1];
        if (end - begin < 2)
            continue;
        memset(start, 0, ((size_t)p->counters[k].total + 2) * sizeof *start);
        memcpy(copy, r->waiters.to + begin, (end - begin) * sizeof *copy);
        for (uint32_t n = 0; n < end - begin; n++)
            start[wait_value(p, &p->instructions[copy[n] / BRIM_WAITS_MAX]
                                     .waits[copy[n] % BRIM_WAITS_MAX]) +
                  1]++;
        for (uint32_t v = 1; v < p->counters[k].total + 2; v++)
            start[v] += start[v - 1];
        for (uint32_t n = 0; n < end - begin; n++)
            r->waiters.to[begin + start[wait_value(p, &p->instructions[copy[n] / BRIM_WAITS_MAX]
                                                           .waits[copy[n] % BRIM_WAITS_MAX])]++] =
                copy[n];
    }
    brim__free(r->c->ctx, start);
    brim__free(r->c->ctx, copy);
    return status;
}

static void satisfy(run *r, uint32_t node, size_t *ready_count)
{
    if (--r->missing[node] == 0)
        r->ready[(*ready_count)++] = node;
}

/* `next` by counter: the first waiter that has not been satisfied. */
static void signal(run *r, uint32_t counter, uint32_t *next, size_t *ready_count)
{
    const brim_program *p = r->c->program;
    uint32_t reached = ++r->reached[counter];
    for (; next[counter] < r->waiters.first[counter + 1]; next[counter]++) {
        uint32_t wait = r->waiters.to[next[counter]];
        if (wait_value(p, &p->instructions[wait / BRIM_WAITS_MAX].waits[wait % BRIM_WAITS_MAX]) >
            reached)
            break;
        satisfy(r, wait / BRIM_WAITS_MAX, ready_count);
    }
}

/* Runs as far as it goes; fills the sequence. Returns the number of instructions done. */
static size_t go(run *r, uint32_t *next)
{
    const brim_program *p = r->c->program;
    size_t ready_count = 0, done = 0;
    for (uint32_t n = 0; n < r->node_count; n++)
        if (r->missing[n] == 0)
            r->ready[ready_count++] = n;
    for (size_t at = 0; at < ready_count; at++) {
        uint32_t node = r->ready[at];
        r->done[node] = true;
        for (uint32_t e = r->out.first[node]; e < r->out.first[node + 1]; e++)
            satisfy(r, r->out.to[e], &ready_count);
        if (node >= p->instruction_count)
            continue;
        r->c->order.place[node] = (uint32_t)done;
        r->c->order.sequence[done++] = node;
        for (unsigned s = 0; s < p->instructions[node].signal_count; s++)
            signal(r, p->instructions[node].signals[s], next, &ready_count);
    }
    return done;
}

/* ---- naming a cycle ---- */

/* For every node that is stuck, one that must be done before it and is not; in r->missing, which
 * is no longer needed. */
static brim_status find_blockers(run *r)
{
    const brim_program *p = r->c->program;
    uint32_t *blocked_by = r->missing, *signaller;
    BRIM_ALLOC(r->c->ctx, signaller, (p->counter_count + 1) * sizeof *signaller);
    for (uint32_t i = 0; i < p->instruction_count; i++)
        for (unsigned s = 0; s < p->instructions[i].signal_count; s++)
            if (!r->done[i])
                signaller[p->instructions[i].signals[s]] = i;
    for (uint32_t i = 0; i < p->instruction_count; i++)
        for (unsigned w = 0; w < p->instructions[i].wait_count; w++) {
            const brim_wait *wait = &p->instructions[i].waits[w];
            if (r->reached[wait->counter] < wait_value(p, wait))
                blocked_by[i] = signaller[wait->counter];
        }
    for (size_t e = 0; e < r->edge_count; e += 2)
        if (!r->done[r->edge[e]])
            blocked_by[r->edge[e + 1]] = r->edge[e];
    brim__free(r->c->ctx, signaller);
    return BRIM_OK;
}

/* A node on a cycle: following what blocks what from any stuck node ends on one. */
static uint32_t find_cycle(const run *r)
{
    uint32_t node = 0;
    while (r->done[node])
        node++;
    uint32_t *seen = r->ready; /* no longer needed */
    memset(seen, 0, r->node_count * sizeof *seen);
    for (; !seen[node]; node = r->missing[node])
        seen[node] = 1;
    return node;
}

static brim_status report_cycle(run *r)
{
    brim__check *c = r->c;
    BRIM_TRY(find_blockers(r));
    char text[200] = "";
    int used = 0;
    uint32_t start = find_cycle(r), node = start, length = 0, shown = 0;
    uint32_t named[CYCLE_SHOWN_MAX] = {BRIM_NONE, BRIM_NONE};
    do {
        if (node < c->program->instruction_count) {
            brim__where where = brim__check_where(c, node);
            if (shown < CYCLE_SHOWN_MAX && used + strlen(where.text) + 8 < sizeof text) {
                named[shown] = node;
                used += snprintf(text + used, sizeof text - (size_t)used, "%s%s",
                                 shown++ ? " after " : "", where.text);
            }
            length++;
        }
        node = r->missing[node];
    } while (node != start);
    brim__check_report(c, "check.deadlock", named[0], named[1], "%u %s: %s%s", length,
                       length == 1 ? "waits for itself" : "wait for each other", text,
                       length > shown ? " after ..." : "");
    return BRIM_OK;
}

/* ---- entry: the run ---- */

static brim_status prepare_run(run *r)
{
    brim_context *ctx = r->c->ctx;
    const brim_program *p = r->c->program;
    BRIM_TRY(add_list_edges(r));
    BRIM_TRY(make_list(&r->out, ctx, r->edge, r->edge_count, r->node_count));
    BRIM_CALLOC(ctx, r->missing, r->node_count);
    BRIM_CALLOC(ctx, r->done, r->node_count);
    BRIM_ALLOC(ctx, r->ready, r->node_count * sizeof *r->ready);
    BRIM_CALLOC(ctx, r->reached, p->counter_count + 1);
    for (size_t e = 0; e < r->edge_count; e += 2)
        r->missing[r->edge[e + 1]]++;
    BRIM_TRY(make_waiters(r));
    return sort_waiters(r);
}

static void free_run(run *r)
{
    brim_context *ctx = r->c->ctx;
    brim__free(ctx, r->edge);
    brim__free(ctx, r->out.first);
    brim__free(ctx, r->out.to);
    brim__free(ctx, r->waiters.first);
    brim__free(ctx, r->waiters.to);
    brim__free(ctx, r->missing);
    brim__free(ctx, r->reached);
    brim__free(ctx, r->done);
    brim__free(ctx, r->ready);
}

brim_status brim__check_run(bool *out_ran, brim__check *c)
{
    const brim_program *p = c->program;
    run r = {.c = c, .node_count = p->instruction_count + p->queue_count};
    BRIM_ALLOC(c->ctx, c->order.sequence, p->instruction_count * sizeof(uint32_t));
    BRIM_ALLOC(c->ctx, c->order.place, p->instruction_count * sizeof(uint32_t));
    BRIM_ALLOC(c->ctx, c->list_before, p->instruction_count * sizeof(uint32_t));
    for (size_t i = 0; i < p->instruction_count; i++)
        c->list_before[i] = BRIM_NONE;
    uint32_t *next = NULL;
    brim_status status = prepare_run(&r);
    if (status == BRIM_OK) {
        next = brim__alloc(c->ctx, (p->counter_count + 1) * sizeof *next);
        status = next ? BRIM_OK : BRIM_NO_MEMORY;
    }
    if (status == BRIM_OK) {
        memcpy(next, r.waiters.first, (p->counter_count + 1) * sizeof *next);
        *out_ran = go(&r, next) == p->instruction_count;
        if (!*out_ran)
            status = report_cycle(&r);
    }
    brim__free(c->ctx, next);
    free_run(&r);
    return status;
}

/* ---- order ---- */

typedef struct order_work {
    brim__check *c;
    edge_list signallers; /* by counter */
    edge_list packets;    /* by reader: indices into c->packets */
    uint64_t **memo;      /* by counter: what is before a wait for memo_value, or NULL */
    uint32_t *memo_value;
    uint64_t *planes[PLANES_MAX]; /* binary digits of a count for each place */
    uint64_t *carry;
    uint64_t work;
    bool grew, later; /* a row grew; a signaller came later in the sequence than its waiter */
} order_work;

static size_t row_words(uint32_t place)
{
    return ((size_t)place + 63) / 64;
}

static uint64_t *row_of(const order_work *o, uint32_t place)
{
    return o->c->order.bits + o->c->order.row[place];
}

/* row |= from, `words` of them. */
static bool merge(uint64_t *row, const uint64_t *from, size_t words)
{
    uint64_t grew = 0;
    for (size_t i = 0; i < words; i++) {
        grew |= from[i] & ~row[i];
        row[i] |= from[i];
    }
    return grew != 0;
}

static bool merge_bit(uint64_t *row, uint32_t place)
{
    uint64_t bit = (uint64_t)1 << (place % 64), before = row[place / 64];
    row[place / 64] |= bit;
    return !(before & bit);
}

/* Everything before the instruction at `from`, and it too, is before the one at `place`. */
static void order_after(order_work *o, uint32_t place, uint32_t from, bool itself)
{
    uint64_t *row = row_of(o, place);
    o->grew |= merge(row, row_of(o, from), row_words(from));
    if (itself)
        o->grew |= merge_bit(row, from);
}

static void count_row(order_work *o, const uint64_t *row, uint32_t place, size_t words)
{
    size_t own = row_words(place), n = own < words ? own : words;
    memset(o->carry, 0, words * sizeof *o->carry);
    memcpy(o->carry, row, n * sizeof *o->carry);
    if (place / 64 < words)
        o->carry[place / 64] |= (uint64_t)1 << (place % 64);
    for (unsigned d = 0; d < PLANES_MAX; d++) {
        uint64_t any = 0;
        for (size_t i = 0; i < words; i++) {
            uint64_t both = o->planes[d][i] & o->carry[i];
            o->planes[d][i] ^= o->carry[i];
            o->carry[i] = both;
            any |= both;
        }
        if (!any)
            return;
    }
}

/* into |= the places whose count is more than `limit`. */
static void counts_above(const order_work *o, uint64_t *into, size_t words, uint32_t limit)
{
    for (size_t i = 0; i < words; i++) {
        uint64_t above = 0, equal = ~(uint64_t)0;
        for (unsigned d = PLANES_MAX; d-- > 0;) {
            uint64_t digit = o->planes[d][i];
            if (limit >> d & 1) {
                equal &= digit;
            } else {
                above |= equal & digit;
                equal &= ~digit;
            }
        }
        into[i] |= above;
    }
}

/* What must come before a wait at `place` for `value` of the counter's signals, in `into`. */
static void order_by_some(order_work *o, uint64_t *into, uint32_t place, uint32_t counter,
                          uint32_t value, bool *out_later)
{
    const brim__order *order = &o->c->order;
    size_t words = row_words(place);
    uint32_t available = 0;
    for (unsigned d = 0; d < PLANES_MAX; d++)
        memset(o->planes[d], 0, words * sizeof(uint64_t));
    for (uint32_t s = o->signallers.first[counter]; s < o->signallers.first[counter + 1]; s++) {
        uint32_t from = order->place[o->signallers.to[s]];
        if (from == place)
            continue;
        if (from > place) {
            *out_later = true;
            if (row_of(o, from)[place / 64] >> (place % 64) & 1)
                continue; /* it comes after the wait */
        }
        available++;
        count_row(o, row_of(o, from), from, words);
    }
    if (available >= value)
        counts_above(o, into, words, available - value);
    /* Nothing at or past `place` can be before it; the last word may hold such bits. */
    if (place % 64)
        into[words - 1] &= ((uint64_t)1 << (place % 64)) - 1;
}

static void order_by_all(order_work *o, uint64_t *into, uint32_t counter)
{
    const brim__order *order = &o->c->order;
    for (uint32_t s = o->signallers.first[counter]; s < o->signallers.first[counter + 1]; s++) {
        uint32_t from = order->place[o->signallers.to[s]];
        merge(into, row_of(o, from), row_words(from));
        merge_bit(into, from);
    }
}

static brim_status order_by_wait(order_work *o, uint32_t place, const brim_wait *w)
{
    const brim_program *p = o->c->program;
    uint32_t value = wait_value(p, w), total = p->counters[w->counter].total;
    uint64_t *memo = o->memo[w->counter];
    if (value == 0)
        return BRIM_OK;
    BRIM_FAIL_IF(o->work > ORDER_WORK_MAX, LIMIT, "check.limit",
                 "the waits of this program take too long to follow: split it, or let waits for "
                 "one counter share their value");
    if (!memo || o->memo_value[w->counter] != value) {
        if (!memo) {
            BRIM_CALLOC(o->c->ctx, memo, row_words((uint32_t)p->instruction_count) + 1);
            o->memo[w->counter] = memo;
        }
        memset(memo, 0, row_words((uint32_t)p->instruction_count) * sizeof *memo);
        o->work += (uint64_t)(total + 1) * row_words(place) * (value == total ? 1 : 4);
        bool later = false;
        if (value == total)
            order_by_all(o, memo, w->counter);
        else
            order_by_some(o, memo, place, w->counter, value, &later);
        /* The same for every waiter, unless signals may come later than this one. */
        o->memo_value[w->counter] = later ? 0 : value;
        o->later |= later;
    }
    o->grew |= merge(row_of(o, place), memo, row_words(place));
    return BRIM_OK;
}

static brim_status compute_rows(order_work *o)
{
    const brim__check *c = o->c;
    const brim_program *p = c->program;
    for (size_t k = 0; k < p->counter_count; k++)
        o->memo_value[k] = 0;
    for (uint32_t place = 0; place < p->instruction_count; place++) {
        uint32_t i = c->order.sequence[place];
        if (c->list_before[i] != BRIM_NONE)
            order_after(o, place, c->order.place[c->list_before[i]], true);
        for (unsigned w = 0; w < p->instructions[i].wait_count; w++)
            BRIM_TRY(order_by_wait(o, place, &p->instructions[i].waits[w]));
        for (uint32_t e = o->packets.first[i]; e < o->packets.first[i + 1]; e++) {
            const brim__packet_edge *edge = &c->packets[o->packets.to[e]];
            if (edge->certain)
                order_after(o, place, c->order.place[edge->before], edge->whole);
        }
    }
    return BRIM_OK;
}

static brim_status make_signallers(order_work *o)
{
    const brim_program *p = o->c->program;
    brim_context *ctx = o->c->ctx;
    size_t count = 0;
    uint32_t *pairs;
    BRIM_ALLOC(ctx, pairs, p->instruction_count * BRIM_SIGNALS_MAX * 2 * sizeof *pairs);
    for (uint32_t i = 0; i < p->instruction_count; i++)
        for (unsigned s = 0; s < p->instructions[i].signal_count; s++) {
            pairs[count++] = p->instructions[i].signals[s];
            pairs[count++] = i;
        }
    brim_status status = make_list(&o->signallers, ctx, pairs, count, p->counter_count);
    brim__free(ctx, pairs);
    if (status != BRIM_OK)
        return status;
    BRIM_ALLOC(ctx, pairs, o->c->packet_count * 2 * sizeof *pairs + 1);
    for (size_t e = 0; e < o->c->packet_count; e++) {
        pairs[2 * e] = o->c->packets[e].after;
        pairs[2 * e + 1] = (uint32_t)e;
    }
    status = make_list(&o->packets, ctx, pairs, 2 * o->c->packet_count, p->instruction_count);
    brim__free(ctx, pairs);
    return status;
}

/* Waited-for counters need a row each, at worst. */
static uint64_t order_bytes(const brim_program *p)
{
    uint64_t n = p->instruction_count, rows = n * (n / 64 + 2) / 2;
    return (rows + (p->counter_count + PLANES_MAX + 1) * (n / 64 + 2)) * sizeof(uint64_t);
}

static brim_status prepare_order(order_work *o)
{
    brim__check *c = o->c;
    const brim_program *p = c->program;
    brim_context *ctx = c->ctx;
    BRIM_FAIL_IF(
        order_bytes(p) > ORDER_BYTES_MAX, LIMIT, "check.limit",
        "the order of %zu instructions and %zu counters would take %llu MiB; the check uses "
        "at most %llu: split the program",
        p->instruction_count, p->counter_count, (unsigned long long)(order_bytes(p) >> 20),
        (unsigned long long)(ORDER_BYTES_MAX >> 20));
    BRIM_ALLOC(ctx, c->order.row, (p->instruction_count + 1) * sizeof(size_t));
    size_t words = 0;
    for (uint32_t place = 0; place < p->instruction_count; place++) {
        c->order.row[place] = words;
        words += row_words(place);
    }
    c->order.row[p->instruction_count] = words;
    BRIM_CALLOC(ctx, c->order.bits, words + 1);
    BRIM_CALLOC(ctx, o->memo, p->counter_count + 1);
    BRIM_CALLOC(ctx, o->memo_value, p->counter_count + 1);
    for (unsigned d = 0; d < PLANES_MAX; d++)
        BRIM_CALLOC(ctx, o->planes[d], p->instruction_count / 64 + 2);
    BRIM_CALLOC(ctx, o->carry, p->instruction_count / 64 + 2);
    return make_signallers(o);
}

brim_status brim__check_order(brim__check *c)
{
    order_work o = {.c = c};
    brim_status status = prepare_order(&o);
    for (int round = 0; status == BRIM_OK && round < ROUNDS_MAX; round++) {
        o.grew = o.later = false;
        status = compute_rows(&o);
        if (!o.grew || !o.later)
            break;
    }
    for (size_t k = 0; o.memo && k < c->program->counter_count; k++)
        brim__free(c->ctx, o.memo[k]);
    for (unsigned d = 0; d < PLANES_MAX; d++)
        brim__free(c->ctx, o.planes[d]);
    brim__free(c->ctx, o.memo);
    brim__free(c->ctx, o.memo_value);
    brim__free(c->ctx, o.carry);
    brim__free(c->ctx, o.signallers.first);
    brim__free(c->ctx, o.signallers.to);
    brim__free(c->ctx, o.packets.first);
    brim__free(c->ctx, o.packets.to);
    return status;
}
