/* predict.c: simulates one epoch of a program on a machine description.
 *
 * Lanes take their items in order, as the executors do without helping each other. An instruction
 * costs a fixed time, then its bytes and its arithmetic at the same time: it ends when both have
 * ended. Bandwidth is shared: a lane that reads gets the least of what one lane can read and its
 * share of what all can. A signal is seen by another lane after the machine's latency. Time moves
 * from event to event, and rates are constant in between. */
#include <math.h>
#include <stdlib.h>

#include "program/check.h"

typedef enum lane_state { LANE_FREE, LANE_WAITING, LANE_RUNNING, LANE_ENDED } lane_state;

typedef struct sim_lane {
    lane_state state;
    size_t item;          /* next in its list, or the queue it takes from */
    uint32_t instruction; /* taken */
    double free_ns, taken_ns, ready_ns, started_ns;
    double fixed_ns, bytes, compute_ns; /* left of it */
    uint32_t last;                      /* what it did before, or BRIM_NONE */
} sim_lane;

/* A signal that was given. */
typedef struct sim_signal {
    double at_ns;
    uint32_t lane, instruction;
} sim_signal;

typedef struct sim {
    const brim_program *p;
    brim_context *ctx;
    const brim_machine *machine;
    double now_ns;
    sim_lane *lanes;
    size_t *queue_next;
    sim_signal *signals; /* by counter, in order of time */
    size_t *signal_start;
    uint32_t *signal_count;
    brim_op_cost *costs;
    uint32_t *cause;  /* by instruction: the one that its start waited for */
    sim_signal *done; /* by instruction; lane BRIM_NONE: not yet */
    brim__packet_edge *packets;
    size_t packet_count;
    size_t *packet_start; /* by reader */
    size_t done_count;
    brim_prediction *out;
    brim_trace_event *events;
    size_t event_capacity, event_count;
} sim;

/* ---- costs ---- */

static double sane(double x)
{
    return isfinite(x) && x > 0 ? x : 0;
}

static brim_op_cost cost_of(const brim_program *p, const brim_instruction *in)
{
    const brim_op_desc *op = brim_op_get(p->ops, in->op);
    brim_op_cost cost = {0};
    if (op->cost) {
        op->cost(&cost, p, in);
        return (brim_op_cost){sane(cost.bytes), sane(cost.flops), sane(cost.int8_ops)};
    }
    for (unsigned n = 0; n < in->access_count; n++)
        cost.bytes += (double)in->accesses[n].size * in->accesses[n].count;
    for (unsigned r = 0; r < 2; r++)
        if (in->runs[r].tensor != BRIM_NONE)
            cost.bytes += (double)in->runs[r].count *
                          (double)p->tensors[in->runs[r].tensor].tiling.row_block_bytes;
    return cost;
}

/* ---- waiting ---- */

/* When the lane sees enough of a counter's signals, and from whom came the last; false: not yet. */
static bool wait_holds(const sim *s, uint32_t lane, const brim_wait *w, double *ready_ns,
                       uint32_t *cause)
{
    if (s->signal_count[w->counter] < w->value || w->value == 0)
        return w->value == 0;
    const sim_signal *signals = s->signals + s->signal_start[w->counter];
    /* They are in order of time, so the last one from another lane is the latest to be seen. */
    for (uint32_t n = w->value; n-- > 0;) {
        bool own = signals[n].lane == lane;
        double seen = signals[n].at_ns + (own ? 0 : s->machine->signal_ns);
        if (seen > *ready_ns) {
            *ready_ns = seen;
            *cause = signals[n].instruction;
        }
        if (!own)
            break;
    }
    return true;
}

static bool packets_came(const sim *s, uint32_t lane, uint32_t i, double *ready_ns, uint32_t *cause)
{
    for (size_t e = s->packet_start[i]; e < s->packet_start[i + 1]; e++) {
        const sim_signal *from = &s->done[s->packets[e].before];
        if (from->lane == BRIM_NONE)
            return false;
        double seen = from->at_ns + (from->lane == lane ? 0 : s->machine->signal_ns);
        if (seen > *ready_ns) {
            *ready_ns = seen;
            *cause = s->packets[e].before;
        }
    }
    return true;
}

/* When a waiting lane can start, in ready_ns; INFINITY: not known yet. */
static void find_ready(sim *s, uint32_t l)
{
    sim_lane *lane = &s->lanes[l];
    const brim_instruction *in = &s->p->instructions[lane->instruction];
    double ready = lane->taken_ns;
    uint32_t cause = lane->last;
    bool holds = true;
    for (unsigned w = 0; w < in->wait_count && holds; w++)
        holds = wait_holds(s, l, &in->waits[w], &ready, &cause);
    holds = holds && packets_came(s, l, lane->instruction, &ready, &cause);
    lane->ready_ns = holds ? ready : INFINITY;
    if (holds)
        s->cause[lane->instruction] = cause;
}

/* ---- lanes ---- */

static void take_next(sim *s, uint32_t l)
{
    sim_lane *lane = &s->lanes[l];
    const brim__lane_list *list = &s->p->lanes[l];
    for (; lane->item < list->count; lane->item++) {
        const brim__item *item = &list->items[lane->item];
        if (item->queue == BRIM_NONE) {
            lane->instruction = item->instruction;
            lane->item++;
            break;
        }
        const brim__list *queue = &s->p->queues[item->queue];
        if (s->queue_next[item->queue] < queue->count) {
            lane->instruction = queue->items[s->queue_next[item->queue]++];
            break;
        }
        lane->instruction = BRIM_NONE;
    }
    lane->state = lane->instruction == BRIM_NONE ? LANE_ENDED : LANE_WAITING;
    lane->taken_ns = s->now_ns;
    lane->ready_ns = INFINITY;
}

static void start(sim *s, uint32_t l)
{
    sim_lane *lane = &s->lanes[l];
    const brim_op_cost *cost = &s->costs[lane->instruction];
    lane->state = LANE_RUNNING;
    lane->started_ns = s->now_ns;
    lane->fixed_ns = s->machine->instruction_ns;
    lane->bytes = cost->bytes;
    /* 1e9 operations a second are one a nanosecond. */
    lane->compute_ns =
        cost->flops / s->machine->lane_gflop_s + cost->int8_ops / s->machine->lane_gop_int8_s;
}

static void finish(sim *s, uint32_t l)
{
    sim_lane *lane = &s->lanes[l];
    uint32_t i = lane->instruction;
    const brim_instruction *in = &s->p->instructions[i];
    sim_signal signal = {s->now_ns, l, i};
    s->done[i] = signal;
    s->done_count++;
    for (unsigned n = 0; n < in->signal_count; n++)
        s->signals[s->signal_start[in->signals[n]] + s->signal_count[in->signals[n]]++] = signal;
    s->out->busy_us += (s->now_ns - lane->started_ns) / 1e3;
    if (s->event_count++ < s->event_capacity)
        s->events[s->event_count - 1] = (brim_trace_event){
            .instruction = i,
            .lane = l,
            .taken_ns = (uint64_t)(lane->taken_ns + 0.5),
            .started_ns = (uint64_t)(lane->started_ns + 0.5),
            .ended_ns = (uint64_t)(s->now_ns + 0.5),
        };
    lane->last = i;
    lane->instruction = BRIM_NONE;
    lane->state = LANE_FREE;
}

/* ---- time ---- */

typedef struct rates {
    double bytes_ns; /* of a lane that reads */
    double compute;  /* share of a core that a lane has */
} rates;

static rates present_rates(const sim *s)
{
    uint32_t reading = 0, running = 0;
    for (uint32_t l = 0; l < s->p->lane_count; l++)
        if (s->lanes[l].state == LANE_RUNNING) {
            running++;
            reading += s->lanes[l].fixed_ns <= 0 && s->lanes[l].bytes > 0;
        }
    rates r = {s->machine->lane_read_gb_s, 1};
    if (reading && s->machine->read_gb_s / reading < r.bytes_ns)
        r.bytes_ns = s->machine->read_gb_s / reading;
    if (running > s->machine->lane_count)
        r.compute = (double)s->machine->lane_count / running;
    return r;
}

/* Until the next change of what a running lane does. */
static double time_left(const sim_lane *lane, rates r)
{
    if (lane->fixed_ns > 0)
        return lane->fixed_ns / r.compute;
    double bytes = lane->bytes > 0 ? lane->bytes / r.bytes_ns : INFINITY;
    double compute = lane->compute_ns > 0 ? lane->compute_ns / r.compute : INFINITY;
    double least = bytes < compute ? bytes : compute;
    return isinf(least) ? 0 : least;
}

/* What is left after `dt`; what should have ended exactly then has ended (rounding). */
static double after(double left, double rate, double dt)
{
    double rest = left - rate * dt;
    return rest <= left * 1e-12 ? 0 : rest;
}

static void advance_lane(sim_lane *lane, rates r, double dt)
{
    if (lane->fixed_ns > 0) {
        lane->fixed_ns = after(lane->fixed_ns, r.compute, dt);
        return;
    }
    lane->bytes = after(lane->bytes, r.bytes_ns, dt);
    lane->compute_ns = after(lane->compute_ns, r.compute, dt);
}

static bool has_finished(const sim_lane *lane)
{
    return lane->state == LANE_RUNNING && lane->fixed_ns <= 0 && lane->bytes <= 0 &&
           lane->compute_ns <= 0;
}

/* One event. False when nothing can happen any more. */
static bool step(sim *s)
{
    double next = INFINITY;
    rates r = present_rates(s);
    for (uint32_t l = 0; l < s->p->lane_count; l++) {
        sim_lane *lane = &s->lanes[l];
        if (lane->state == LANE_WAITING && isinf(lane->ready_ns))
            find_ready(s, l);
        double left = lane->state == LANE_RUNNING   ? time_left(lane, r)
                      : lane->state == LANE_WAITING ? lane->ready_ns - s->now_ns
                                                    : INFINITY;
        next = left < next ? left : next;
    }
    if (isinf(next))
        return false;
    next = next > 0 ? next : 0;
    s->now_ns += next;
    for (uint32_t l = 0; l < s->p->lane_count; l++)
        if (s->lanes[l].state == LANE_RUNNING)
            advance_lane(&s->lanes[l], r, next);
    for (uint32_t l = 0; l < s->p->lane_count; l++)
        if (has_finished(&s->lanes[l]))
            finish(s, l);
    for (uint32_t l = 0; l < s->p->lane_count; l++) {
        sim_lane *lane = &s->lanes[l];
        if (lane->state == LANE_FREE)
            take_next(s, l);
        if (lane->state == LANE_WAITING && isinf(lane->ready_ns))
            find_ready(s, l);
        if (lane->state == LANE_WAITING && lane->ready_ns <= s->now_ns)
            start(s, l);
    }
    return true;
}

/* ---- the whole ---- */

static int compare_packets(const void *a, const void *b)
{
    const brim__packet_edge *x = a, *y = b;
    return (x->after > y->after) - (x->after < y->after);
}

static brim_status prepare_packets(sim *s)
{
    BRIM_TRY(brim__packet_edges(&s->packets, &s->packet_count, s->p, s->ctx));
    if (s->packet_count)
        qsort(s->packets, s->packet_count, sizeof *s->packets, compare_packets);
    BRIM_CALLOC(s->ctx, s->packet_start, s->p->instruction_count + 2);
    for (size_t e = 0; e < s->packet_count; e++)
        s->packet_start[s->packets[e].after + 1]++;
    for (size_t i = 1; i < s->p->instruction_count + 2; i++)
        s->packet_start[i] += s->packet_start[i - 1];
    return BRIM_OK;
}

static brim_status prepare(sim *s)
{
    const brim_program *p = s->p;
    BRIM_CALLOC(s->ctx, s->lanes, p->lane_count);
    BRIM_CALLOC(s->ctx, s->queue_next, p->queue_count + 1);
    BRIM_CALLOC(s->ctx, s->signal_start, p->counter_count + 1);
    BRIM_CALLOC(s->ctx, s->signal_count, p->counter_count + 1);
    size_t signals = 0;
    for (size_t k = 0; k < p->counter_count; k++) {
        s->signal_start[k] = signals;
        signals += p->counters[k].total;
    }
    BRIM_CALLOC(s->ctx, s->signals, signals + 1);
    BRIM_CALLOC(s->ctx, s->costs, p->instruction_count);
    BRIM_CALLOC(s->ctx, s->cause, p->instruction_count);
    BRIM_CALLOC(s->ctx, s->done, p->instruction_count);
    for (uint32_t i = 0; i < p->instruction_count; i++) {
        s->costs[i] = cost_of(p, &p->instructions[i]);
        s->out->bytes += s->costs[i].bytes;
        s->out->flops += s->costs[i].flops;
        s->out->int8_ops += s->costs[i].int8_ops;
        s->cause[i] = BRIM_NONE;
        s->done[i].lane = BRIM_NONE;
    }
    BRIM_TRY(prepare_packets(s));
    for (uint32_t l = 0; l < p->lane_count; l++) {
        s->lanes[l].instruction = s->lanes[l].last = BRIM_NONE;
        take_next(s, l);
    }
    return BRIM_OK;
}

static void release(sim *s)
{
    brim__free(s->ctx, s->lanes);
    brim__free(s->ctx, s->queue_next);
    brim__free(s->ctx, s->signals);
    brim__free(s->ctx, s->signal_start);
    brim__free(s->ctx, s->signal_count);
    brim__free(s->ctx, s->costs);
    brim__free(s->ctx, s->cause);
    brim__free(s->ctx, s->done);
    brim__free(s->ctx, s->packets);
    brim__free(s->ctx, s->packet_start);
}

static brim_status simulate(sim *s)
{
    BRIM_TRY(prepare(s));
    while (step(s))
        continue;
    if (s->done_count < s->p->instruction_count) {
        uint32_t i = 0;
        while (s->done[i].lane != BRIM_NONE)
            i++;
        char where[96];
        brim__program_where(where, sizeof where, s->p, i);
        BRIM_FAIL(REFUSED, "predict.stuck", "the program gets stuck: %s never starts", where);
    }
    s->out->total_us = s->now_ns / 1e3;
    s->out->bandwidth_bound_us = s->out->bytes / s->machine->read_gb_s / 1e3;
    uint32_t last = 0;
    for (uint32_t i = 1; i < s->p->instruction_count; i++)
        if (s->done[i].at_ns > s->done[last].at_ns)
            last = i;
    for (uint32_t i = last; i != BRIM_NONE; i = s->cause[i])
        s->out->critical_count++;
    return BRIM_OK;
}

static brim_status check_machine(const brim_machine *m)
{
    const double values[] = {m->read_gb_s,       m->lane_read_gb_s, m->lane_gflop_s,
                             m->lane_gop_int8_s, m->signal_ns,      m->instruction_ns};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        BRIM_FAIL_IF(
            !isfinite(values[i]) || values[i] < (i < 4 ? 1e-9 : 0), USAGE, "predict.machine",
            "the machine description has a rate or time of %g; rates are positive", values[i]);
    BRIM_FAIL_IF(m->lane_count == 0, USAGE, "predict.machine",
                 "the machine description has no lanes");
    return BRIM_OK;
}

brim_status brim_program_predict(brim_prediction *out, const brim_program *program,
                                 brim_context *ctx, const brim_machine *machine,
                                 brim_trace_event *events, size_t event_capacity,
                                 size_t *out_event_count)
{
    *out = (brim_prediction){0};
    if (out_event_count)
        *out_event_count = 0;
    BRIM_TRY(check_machine(machine));
    /* Costs come from operands, which may come from a file. */
    BRIM_TRY(brim_program_check(program, ctx, 1, NULL, NULL));
    sim s = {
        .p = program,
        .ctx = ctx,
        .machine = machine,
        .out = out,
        .events = events,
        .event_capacity = events ? event_capacity : 0,
    };
    brim_status status = simulate(&s);
    if (out_event_count)
        *out_event_count = s.event_count;
    release(&s);
    return status;
}
