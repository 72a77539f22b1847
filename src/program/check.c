/* check.c: proves a program right before it runs. This file holds the frame and the checks that
 * look at one instruction at a time; check.h says which part does what. docs/program.md says what
 * is proven and how. */
#include "program/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- findings ---- */

void brim__check_report(brim__check *c, const char *id, uint32_t instruction, uint32_t other,
                        const char *fmt, ...)
{
    if (brim__check_full(c))
        return;
    brim_finding finding = {.id = id, .instruction = instruction, .other = other};
    va_list args;
    va_start(args, fmt);
    vsnprintf(finding.text, sizeof finding.text, fmt, args);
    va_end(args);
    if (c->found++ == 0)
        c->first = finding;
    if (c->report)
        c->report(&finding, c->user);
}

brim__where brim__check_where(const brim__check *c, uint32_t instruction)
{
    brim__where where;
    brim__program_where(where.text, sizeof where.text, c->program, instruction);
    return where;
}

/* A finding about access n of instruction i. */
static void report_access(brim__check *c, const char *id, uint32_t i, unsigned n, const char *what)
{
    brim__where where = brim__check_where(c, i);
    const brim_access *a = &c->program->instructions[i].accesses[n];
    brim__check_report(
        c, id, i, BRIM_NONE, "%s: access %u (buffer %s): %s", where.text, n,
        a->buffer < c->program->buffer_count ? c->program->buffers[a->buffer].name : "?", what);
}

/* ---- bounds ---- */

/* NULL when the access is in bounds, else what is not. */
static const char *access_out_of_bounds(const brim_program *p, const brim_access *a)
{
    uint64_t begin, end;
    uint64_t runs = a->table_buffer == BRIM_NONE ? a->count : a->table_limit;
    if (a->kind > BRIM_APPEND || a->flags & ~(uint32_t)7)
        return "its kind or flags are unknown";
    if (a->size == 0 || a->count == 0)
        return "its size and count must be at least 1";
    if (a->table_buffer != BRIM_NONE) {
        uint64_t table_size = p->buffers[a->table_buffer].size;
        if (a->table_limit == 0)
            return "its table's limit must be at least 1";
        if (a->table_offset % 4 || a->table_offset + 4 * (uint64_t)a->count > table_size)
            return "its table is not 4-aligned within its buffer";
    } else if (a->flags & BRIM_ACCESS_INJECTIVE) {
        return "it is declared injective but has no table";
    }
    if (a->count_buffer != BRIM_NONE &&
        (a->count_offset % 4 || a->count_offset + (uint64_t)4 > p->buffers[a->count_buffer].size))
        return "its count word is not 4-aligned within its buffer";
    if (runs > 1 && a->stride < a->size)
        return "its runs overlap: the stride is less than the size";
    if (!brim__access_extent(&begin, &end, a) || end > p->buffers[a->buffer].size)
        return "it reaches past the end of its buffer";
    return NULL;
}

static bool check_indices(const brim_program *p, const brim_access *a)
{
    return a->buffer < p->buffer_count &&
           (a->count_buffer == BRIM_NONE || a->count_buffer < p->buffer_count) &&
           (a->table_buffer == BRIM_NONE || a->table_buffer < p->buffer_count);
}

static void check_bounds(brim__check *c, uint32_t i)
{
    const brim_program *p = c->program;
    const brim_instruction *in = &p->instructions[i];
    for (unsigned n = 0; n < in->access_count; n++) {
        const char *what = check_indices(p, &in->accesses[n])
                               ? access_out_of_bounds(p, &in->accesses[n])
                               : "it names a buffer that does not exist";
        if (!what)
            continue;
        c->unsound[i] = true;
        report_access(c, "check.bounds", i, n, what);
    }
    for (unsigned r = 0; r < 2; r++) {
        const brim_tile_run *run = &in->runs[r];
        if (run->tensor == BRIM_NONE)
            continue;
        const brim__tensor *t = run->tensor < p->tensor_count ? &p->tensors[run->tensor] : NULL;
        if (t && run->count > 0 && run->first < t->tiling.row_blocks &&
            run->count <= t->tiling.row_blocks - run->first)
            continue;
        brim__where where = brim__check_where(c, i);
        brim__check_report(c, "check.bounds", i, BRIM_NONE,
                           "%s: tile run %u is row blocks %u to %llu of tensor %s, which has %u",
                           where.text, r, run->first, (unsigned long long)run->first + run->count,
                           t ? t->desc.name : "?", t ? t->tiling.row_blocks : 0);
    }
}

/* ---- roles ---- */

static bool is_step_end(const brim_program *p, uint32_t i)
{
    return brim_op_get(p->ops, p->instructions[i].op)->step_end;
}

static const char *role_broken(const brim_program *p, uint32_t i, const brim_access *a)
{
    const brim_buffer_desc *buffer = &p->buffers[a->buffer];
    bool next = a->flags & BRIM_ACCESS_NEXT;
    if (a->kind == BRIM_READ)
        return buffer->role == BRIM_BUFFER_OUTPUT
                   ? "an output is for the host, no instruction reads it"
                   : NULL;
    if (a->kind == BRIM_APPEND && buffer->role != BRIM_BUFFER_STATE)
        return "only state is appended to";
    if (buffer->role == BRIM_BUFFER_CONST)
        return "a constant is never written";
    if (buffer->role == BRIM_BUFFER_INPUT && !(next && is_step_end(p, i)))
        return "an input is written by the step-end instruction alone, for the next epoch";
    return NULL;
}

static const char *next_broken(const brim_program *p, uint32_t i, const brim_access *a)
{
    const brim_buffer_desc *buffer = &p->buffers[a->buffer];
    if (!(a->flags & BRIM_ACCESS_NEXT))
        return NULL;
    if (!is_step_end(p, i))
        return "only the step-end instruction may touch the next epoch's copy";
    if (!buffer->parity)
        return "its buffer has no copy for the next epoch (parity)";
    if (buffer->role != BRIM_BUFFER_INPUT && buffer->role != BRIM_BUFFER_STATE)
        return "only inputs and state are handed on to the next epoch";
    return NULL;
}

static const char *table_broken(const brim_access *a)
{
    if (a->kind == BRIM_WRITE && a->table_buffer != BRIM_NONE && a->count > 1 &&
        !(a->flags & BRIM_ACCESS_INJECTIVE))
        return "two entries of its table may be equal, so a byte may be written twice: make the "
               "table's entries "
               "differ and declare it injective";
    return NULL;
}

static const char *packet_broken(const brim_program *p, const brim_access *a,
                                 const bool *packet_buffer)
{
    const brim_buffer_desc *buffer = &p->buffers[a->buffer];
    if (!packet_buffer[a->buffer])
        return NULL;
    if (!(a->flags & BRIM_ACCESS_PACKET))
        return a->kind == BRIM_READ ? NULL : "its buffer holds packets, and this write is not one";
    if (!buffer->parity || buffer->role != BRIM_BUFFER_SCRATCH)
        return "packets need a scratch buffer with two copies (parity)";
    if (a->kind == BRIM_APPEND || a->table_buffer != BRIM_NONE || a->flags & BRIM_ACCESS_NEXT)
        return "a packet is not appended, found through a table, or of the next epoch";
    if (a->offset % 4 || a->size % 4 || (a->count > 1 && a->stride % 4))
        return "a packet's offset, size and stride are multiples of 4";
    return NULL;
}

static void check_roles(brim__check *c, uint32_t i, const bool *packet_buffer)
{
    const brim_program *p = c->program;
    for (unsigned n = 0; n < p->instructions[i].access_count; n++) {
        const brim_access *a = &p->instructions[i].accesses[n];
        const char *what;
        if ((what = role_broken(p, i, a)))
            report_access(c, "check.role", i, n, what);
        if ((what = next_broken(p, i, a)))
            report_access(c, "check.next", i, n, what);
        if ((what = table_broken(a)))
            report_access(c, "check.table", i, n, what);
        if ((what = packet_broken(p, a, packet_buffer)))
            report_access(c, "check.packet", i, n, what);
        if (a->count_buffer != BRIM_NONE && p->buffers[a->count_buffer].role == BRIM_BUFFER_OUTPUT)
            report_access(c, "check.role", i, n,
                          "it is counted by an output, which no instruction reads");
        if (a->table_buffer != BRIM_NONE && p->buffers[a->table_buffer].role == BRIM_BUFFER_OUTPUT)
            report_access(c, "check.role", i, n,
                          "its table is an output, which no instruction reads");
    }
}

/* ---- what the op says ---- */

typedef struct field_pair {
    const char *name;
    uint64_t declared, derived;
} field_pair;

/* The first field that differs, NULL when none does. Fields that mean nothing are not compared. */
static const char *access_difference(const brim_access *a, const brim_access *b, field_pair *out)
{
    bool strided = b->count > 1 || b->table_buffer != BRIM_NONE;
    bool counted = b->count_buffer != BRIM_NONE, tabled = b->table_buffer != BRIM_NONE;
    const field_pair fields[] = {
        {"kind", a->kind, b->kind},
        {"flags", a->flags, b->flags},
        {"buffer", a->buffer, b->buffer},
        {"offset", a->offset, b->offset},
        {"size", a->size, b->size},
        {"count", a->count, b->count},
        {"stride", strided ? a->stride : 0, strided ? b->stride : 0},
        {"count buffer", a->count_buffer, b->count_buffer},
        {"count offset", counted ? a->count_offset : 0, counted ? b->count_offset : 0},
        {"first count", counted ? a->count_first : 0, counted ? b->count_first : 0},
        {"count step", counted ? a->count_step : 0, counted ? b->count_step : 0},
        {"table buffer", a->table_buffer, b->table_buffer},
        {"table offset", tabled ? a->table_offset : 0, tabled ? b->table_offset : 0},
        {"table limit", tabled ? a->table_limit : 0, tabled ? b->table_limit : 0},
    };
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        if (fields[f].declared != fields[f].derived) {
            *out = fields[f];
            return fields[f].name;
        }
    return NULL;
}

static bool run_difference(const brim_tile_run *a, const brim_tile_run *b, field_pair *out)
{
    if (a->tensor != b->tensor)
        *out = (field_pair){"tensor", a->tensor, b->tensor};
    else if (a->tensor != BRIM_NONE && a->first != b->first)
        *out = (field_pair){"first row block", a->first, b->first};
    else if (a->tensor != BRIM_NONE && a->count != b->count)
        *out = (field_pair){"row block count", a->count, b->count};
    else
        return false;
    return true;
}

static void check_derived(brim__check *c, uint32_t i)
{
    const brim_program *p = c->program;
    const brim_instruction *in = &p->instructions[i];
    const brim_op_desc *op = brim_op_get(p->ops, in->op);
    if (!op->derive)
        return;
    brim_instruction derived = *in;
    memset(derived.accesses, 0, sizeof derived.accesses);
    derived.access_count = 0;
    derived.runs[0] = derived.runs[1] = (brim_tile_run){.tensor = BRIM_NONE};
    brim__where where = brim__check_where(c, i);
    if (op->derive(&derived, p, in) != BRIM_OK) {
        brim__check_report(c, "check.operand", i, BRIM_NONE, "%s: %s", where.text,
                           brim_last_message());
        return;
    }
    if (derived.access_count != in->access_count) {
        brim__check_report(c, "check.access", i, BRIM_NONE,
                           "%s declares %u accesses; its op makes %u", where.text, in->access_count,
                           derived.access_count);
        return;
    }
    field_pair field;
    for (unsigned n = 0; n < in->access_count; n++)
        if (access_difference(&in->accesses[n], &derived.accesses[n], &field))
            brim__check_report(c, "check.access", i, BRIM_NONE,
                               "%s: the %s of access %u is %llu; its op makes it %llu", where.text,
                               field.name, n, (unsigned long long)field.declared,
                               (unsigned long long)field.derived);
    for (unsigned r = 0; r < 2; r++)
        if (run_difference(&in->runs[r], &derived.runs[r], &field))
            brim__check_report(c, "check.access", i, BRIM_NONE,
                               "%s: the %s of tile run %u is %llu; its op makes it %llu",
                               where.text, field.name, r, (unsigned long long)field.declared,
                               (unsigned long long)field.derived);
}

/* ---- waits, queues, step-end ---- */

static void check_waits(brim__check *c, uint32_t i)
{
    const brim_instruction *in = &c->program->instructions[i];
    for (unsigned w = 0; w < in->wait_count; w++) {
        const brim__counter *counter = &c->program->counters[in->waits[w].counter];
        uint32_t value = in->waits[w].value;
        if (value >= 1 && value <= counter->total)
            continue;
        brim__where where = brim__check_where(c, i);
        if (value == 0)
            brim__check_report(c, "check.wait", i, BRIM_NONE,
                               "%s waits for 0 signals of counter %s", where.text, counter->name);
        else
            brim__check_report(c, "check.deadlock", i, BRIM_NONE,
                               "%s waits for %u signals of counter %s, which gets %u in an epoch",
                               where.text, value, counter->name, counter->total);
    }
}

static brim_status check_queues(brim__check *c)
{
    const brim_program *p = c->program;
    uint32_t *taker; /* by queue: 1 + the last lane that takes it */
    BRIM_CALLOC(c->ctx, taker, p->queue_count + 1);
    for (uint32_t l = 0; l < p->lane_count; l++)
        for (size_t n = 0; n < p->lanes[l].count; n++) {
            uint32_t q = p->lanes[l].items[n].queue;
            if (q == BRIM_NONE)
                continue;
            if (taker[q] == l + 1)
                brim__check_report(c, "check.queue", BRIM_NONE, BRIM_NONE,
                                   "lane %u takes from queue %s twice; the second time it is empty",
                                   l, p->queues[q].name);
            taker[q] = l + 1;
        }
    for (size_t q = 0; q < p->queue_count; q++)
        if (taker[q] == 0 && p->queues[q].count)
            brim__check_report(c, "check.queue", p->queues[q].items[0], BRIM_NONE,
                               "no lane takes from queue %s: its %zu pieces would never run",
                               p->queues[q].name, p->queues[q].count);
    brim__free(c->ctx, taker);
    return BRIM_OK;
}

static bool in_a_queue(const brim_program *p, uint32_t i)
{
    for (size_t q = 0; q < p->queue_count; q++)
        for (size_t n = 0; n < p->queues[q].count; n++)
            if (p->queues[q].items[n] == i)
                return true;
    return false;
}

static void check_step_end(brim__check *c)
{
    const brim_program *p = c->program;
    uint32_t first = BRIM_NONE;
    for (uint32_t i = 0; i < p->instruction_count; i++) {
        if (!is_step_end(p, i))
            continue;
        if (first != BRIM_NONE)
            brim__check_report(c, "check.step_end", i, first,
                               "instructions %u and %u both end the step; exactly one must", first,
                               i);
        first = first == BRIM_NONE ? i : first;
    }
    if (first == BRIM_NONE) {
        brim__check_report(c, "check.step_end", BRIM_NONE, BRIM_NONE,
                           "no instruction ends the step: add one of an op that does");
        return;
    }
    brim__where where = brim__check_where(c, first);
    if (in_a_queue(p, first))
        brim__check_report(c, "check.step_end", first, BRIM_NONE,
                           "%s ends the step; it must be in a lane's own list", where.text);
    const brim_instruction *in = &p->instructions[first];
    for (unsigned n = 0; n < in->access_count; n++) {
        if (in->accesses[n].kind != BRIM_WRITE)
            continue;
        if (in->accesses[n].size < 4 || in->accesses[n].count_buffer != BRIM_NONE)
            report_access(c, "check.step_end", first, n,
                          "it must begin with the word that says whether another epoch follows");
        return;
    }
    brim__check_report(c, "check.step_end", first, BRIM_NONE,
                       "%s writes nothing, so it cannot say whether another epoch follows",
                       where.text);
}

/* The next epoch begins when step-end is done: whatever is not before it would overlap with it. */
static void check_all_before_step_end(brim__check *c)
{
    const brim_program *p = c->program;
    for (uint32_t i = 0; i < p->instruction_count && p->step_end != BRIM_NONE; i++) {
        if (i == p->step_end || brim__check_before(c, i, p->step_end) || brim__check_full(c))
            continue;
        brim__where where = brim__check_where(c, i), end = brim__check_where(c, p->step_end);
        brim__check_report(c, "check.step_end", i, p->step_end,
                           "%s may still run in the next epoch: nothing orders it before %s",
                           where.text, end.text);
    }
}

/* ---- entry ---- */

static brim_status check_instructions(brim__check *c)
{
    const brim_program *p = c->program;
    bool *packet_buffer;
    BRIM_CALLOC(c->ctx, packet_buffer, p->buffer_count + 1);
    for (uint32_t i = 0; i < p->instruction_count; i++)
        check_bounds(c, i);
    for (uint32_t i = 0; i < p->instruction_count; i++)
        for (unsigned n = 0; n < p->instructions[i].access_count && !c->unsound[i]; n++)
            if (p->instructions[i].accesses[n].flags & BRIM_ACCESS_PACKET)
                packet_buffer[p->instructions[i].accesses[n].buffer] = true;
    for (uint32_t i = 0; i < p->instruction_count && !brim__check_full(c); i++) {
        if (!c->unsound[i])
            check_roles(c, i, packet_buffer);
        check_derived(c, i);
        check_waits(c, i);
    }
    brim__free(c->ctx, packet_buffer);
    return BRIM_OK;
}

static brim_status run_checks(brim__check *c)
{
    BRIM_CALLOC(c->ctx, c->unsound, c->program->instruction_count);
    BRIM_TRY(check_instructions(c));
    check_step_end(c);
    BRIM_TRY(check_queues(c));
    /* Regions that are out of bounds leave gaps; what follows from gaps is not worth saying. */
    bool whole = c->found == 0;
    BRIM_TRY(brim__check_collect(c));
    BRIM_TRY(brim__check_packets(c));
    bool ran = false;
    BRIM_TRY(brim__check_run(&ran, c));
    if (!ran || brim__check_full(c))
        return BRIM_OK;
    BRIM_TRY(brim__check_order(c));
    check_all_before_step_end(c);
    BRIM_TRY(brim__check_races(c));
    return whole ? brim__check_reads(c) : BRIM_OK;
}

brim_status brim_program_check(const brim_program *program, brim_context *ctx, uint32_t limit,
                               void (*report)(const brim_finding *finding, void *user), void *user)
{
    brim__check c = {
        .program = program, .ctx = ctx, .limit = limit ? limit : 1, .report = report, .user = user};
    brim_status status = run_checks(&c);
    brim__free(ctx, c.unsound);
    brim__free(ctx, c.uses);
    brim__free(ctx, c.use_start);
    brim__free(ctx, c.unstable);
    brim__free(ctx, c.packets);
    brim__free(ctx, c.list_before);
    brim__free(ctx, c.order.sequence);
    brim__free(ctx, c.order.place);
    brim__free(ctx, c.order.bits);
    brim__free(ctx, c.order.row);
    if (status != BRIM_OK)
        return status;
    return c.found ? brim__fail(BRIM_REFUSED, c.first.id, "%s", c.first.text) : BRIM_OK;
}
