/* check_access.c: who touches which bytes, and whether that is in order.
 *
 * What must hold, for two uses of the same bytes of the same copy of a buffer:
 * - if one of them writes, they are ordered;
 * - output bytes are written once an epoch (scratch may be used again, in order);
 * - an instruction does not write what it reads: it could not be done again;
 * - a packet's word has one writer, and its reader is ordered by the packet itself.
 * And all that is read from scratch has been written before, whatever the count words say. */
#include "program/check.h"

#include <stdlib.h>
#include <string.h>

enum { USES_MAX_AN_ACCESS = 3 };
/* Bounds on work, some seconds each. */
#define USE_PAIRS_MAX ((uint64_t)1 << 31)
#define USE_BYTES_MAX ((uint64_t)512 << 20)

static const brim_access *access_of(const brim__check *c, const brim__use *u)
{
    return &c->program->instructions[u->instruction].accesses[u->access];
}

/* ---- collecting ---- */

static uint32_t buffer_of(const brim_access *a, brim__use_what what)
{
    return what == BRIM__USE_ACCESS  ? a->buffer
           : what == BRIM__USE_COUNT ? a->count_buffer
                                     : a->table_buffer;
}

static brim__use use_make(const brim_access *a, uint32_t instruction, unsigned access,
                          brim__use_what what)
{
    brim__use u = {.instruction = instruction, .access = (uint8_t)access, .what = (uint8_t)what};
    switch (what) {
    case BRIM__USE_ACCESS:
        u.region = brim__region_of(a);
        u.writes = a->kind != BRIM_READ;
        u.packet = a->flags & BRIM_ACCESS_PACKET;
        u.next = a->flags & BRIM_ACCESS_NEXT;
        break;
    case BRIM__USE_COUNT:
        u.region = (brim__region){a->count_offset, 4, 4, 1};
        break;
    case BRIM__USE_TABLE:
        u.region =
            (brim__region){a->table_offset, 4 * (uint64_t)a->count, 4 * (uint64_t)a->count, 1};
        break;
    }
    return u;
}

static int compare_uses(const void *a, const void *b)
{
    const brim__use *x = a, *y = b;
    if (x->region.offset != y->region.offset)
        return x->region.offset < y->region.offset ? -1 : 1;
    if (x->instruction != y->instruction)
        return x->instruction < y->instruction ? -1 : 1;
    return (x->access * 4 + x->what) - (y->access * 4 + y->what);
}

/* Calls for every use of every sound instruction; the first pass counts, the second stores. */
static size_t each_use(brim__check *c, bool store)
{
    const brim_program *p = c->program;
    size_t count = 0;
    for (uint32_t i = 0; i < p->instruction_count; i++) {
        if (c->unsound[i])
            continue;
        for (unsigned n = 0; n < p->instructions[i].access_count; n++)
            for (unsigned what = 0; what < USES_MAX_AN_ACCESS; what++) {
                const brim_access *a = &p->instructions[i].accesses[n];
                uint32_t buffer = buffer_of(a, what);
                if (buffer == BRIM_NONE)
                    continue;
                count++;
                if (store)
                    c->uses[c->use_start[buffer + 1]++] = use_make(a, i, n, what);
                else
                    c->use_start[buffer + 2]++;
            }
    }
    return count;
}

/* Which buffers may change their words within an epoch: state, and scratch of which some byte is
 * written twice. Only those that hold count words or tables matter. */
static brim_status find_unstable(brim__check *c)
{
    const brim_program *p = c->program;
    uint64_t pairs = 0;
    BRIM_CALLOC(c->ctx, c->unstable, p->buffer_count + 1);
    for (size_t b = 0; b < p->buffer_count; b++) {
        const brim__use *uses = c->uses + c->use_start[b];
        size_t count = c->use_start[b + 1] - c->use_start[b], read = 0;
        c->unstable[b] = p->buffers[b].role == BRIM_BUFFER_STATE;
        while (read < count && uses[read].what == BRIM__USE_ACCESS)
            read++;
        if (read == count || p->buffers[b].role != BRIM_BUFFER_SCRATCH)
            continue;
        for (size_t i = 0; i < count && !c->unstable[b]; i++)
            for (size_t k = uses[i].writes ? i + 1 : count; k < count && !c->unstable[b];
                 k++, pairs++)
                c->unstable[b] =
                    uses[k].writes && brim__regions_overlap(&uses[i].region, &uses[k].region);
        BRIM_FAIL_IF(pairs > USE_PAIRS_MAX, LIMIT, "check.limit",
                     "buffer '%s' has too many writes to compare", p->buffers[b].name);
    }
    return BRIM_OK;
}

brim_status brim__check_collect(brim__check *c)
{
    const brim_program *p = c->program;
    BRIM_CALLOC(c->ctx, c->use_start, p->buffer_count + 2);
    size_t count = each_use(c, false);
    BRIM_FAIL_IF(count > USE_BYTES_MAX / sizeof *c->uses, LIMIT, "check.limit",
                 "the program has %zu accesses; the check takes at most %llu", count,
                 (unsigned long long)(USE_BYTES_MAX / sizeof *c->uses));
    BRIM_ALLOC(c->ctx, c->uses, count * sizeof *c->uses + 1);
    for (size_t b = 2; b < p->buffer_count + 2; b++)
        c->use_start[b] += c->use_start[b - 1];
    each_use(c, true);
    for (size_t b = 0; b < p->buffer_count; b++)
        if (c->use_start[b + 1] - c->use_start[b] > 1)
            qsort(c->uses + c->use_start[b], c->use_start[b + 1] - c->use_start[b], sizeof *c->uses,
                  compare_uses);
    return find_unstable(c);
}

/* Of the buffer that has most. */
static size_t most_uses(const brim__check *c)
{
    size_t most = 0;
    for (size_t b = 0; b < c->program->buffer_count; b++)
        if (c->use_start[b + 1] - c->use_start[b] > most)
            most = c->use_start[b + 1] - c->use_start[b];
    return most;
}

/* ---- packets ---- */

static bool reads_packet(const brim__use *u)
{
    return u->packet && !u->writes;
}

/* Whether every word that `writer` publishes is in a packet that `reader` waits for, and it has no
 * signal to give afterwards. */
static bool waits_for_all(const brim_program *p, uint32_t reader, uint32_t writer)
{
    const brim_instruction *w = &p->instructions[writer], *r = &p->instructions[reader];
    if (w->signal_count)
        return false;
    for (unsigned n = 0; n < w->access_count; n++) {
        const brim_access *a = &w->accesses[n];
        if (a->kind == BRIM_READ)
            continue;
        bool found = false;
        brim__region region = brim__region_of(a);
        for (unsigned m = 0; m < r->access_count && !found; m++) {
            const brim_access *b = &r->accesses[m];
            brim__region seen = brim__region_of(b);
            found = b->kind == BRIM_READ && (b->flags & BRIM_ACCESS_PACKET) &&
                    b->buffer == a->buffer && b->count_buffer == BRIM_NONE &&
                    (a->flags & BRIM_ACCESS_PACKET) && a->count_buffer == BRIM_NONE &&
                    seen.count == 1 && seen.offset <= region.offset &&
                    brim__region_end(&region) <= brim__region_end(&seen);
        }
        if (!found)
            return false;
    }
    return true;
}

static brim_status add_packet_edge(brim__check *c, const brim__use *writer, const brim__use *reader)
{
    for (size_t i = c->packet_count; i > 0 && c->packets[i - 1].after == reader->instruction; i--)
        if (c->packets[i - 1].before == writer->instruction)
            return BRIM_OK;
    BRIM_TRY(BRIM_GROW(c->ctx, c->packets, c->packet_capacity, c->packet_count + 1));
    bool certain = access_of(c, reader)->count_buffer == BRIM_NONE;
    c->packets[c->packet_count++] = (brim__packet_edge){
        .before = writer->instruction,
        .after = reader->instruction,
        .certain = certain,
        .whole = certain && waits_for_all(c->program, reader->instruction, writer->instruction),
    };
    return BRIM_OK;
}

brim_status brim__check_packets(brim__check *c)
{
    uint64_t pairs = 0;
    for (size_t b = 0; b < c->program->buffer_count; b++) {
        const brim__use *uses = c->uses + c->use_start[b];
        size_t count = c->use_start[b + 1] - c->use_start[b];
        for (size_t r = 0; r < count; r++) {
            if (!reads_packet(&uses[r]))
                continue;
            pairs += count;
            BRIM_FAIL_IF(pairs > USE_PAIRS_MAX, LIMIT, "check.limit",
                         "buffer '%s' has too many packets", c->program->buffers[b].name);
            for (size_t w = 0; w < count; w++)
                if (uses[w].writes && uses[w].packet &&
                    brim__regions_overlap(&uses[w].region, &uses[r].region))
                    BRIM_TRY(add_packet_edge(c, &uses[w], &uses[r]));
        }
    }
    return BRIM_OK;
}

brim_status brim__packet_edges(brim__packet_edge **out, size_t *out_count,
                               const brim_program *program, brim_context *ctx)
{
    brim__check c = {.program = program, .ctx = ctx};
    brim_status status;
    c.unsound = brim__calloc(ctx, program->instruction_count, sizeof *c.unsound);
    status = c.unsound ? brim__check_collect(&c) : BRIM_NO_MEMORY;
    if (status == BRIM_OK)
        status = brim__check_packets(&c);
    brim__free(ctx, c.unsound);
    brim__free(ctx, c.use_start);
    brim__free(ctx, c.uses);
    brim__free(ctx, c.unstable);
    if (status != BRIM_OK) {
        brim__free(ctx, c.packets);
        c.packets = NULL;
        c.packet_count = 0;
    }
    *out = c.packets;
    *out_count = c.packet_count;
    return status;
}

/* ---- races ---- */

/* Two writes through entries of one table that is declared free of duplicates. */
static bool kept_apart_by_table(const brim__check *c, const brim__use *x, const brim__use *y)
{
    const brim_access *a = access_of(c, x), *b = access_of(c, y);
    if (!(a->flags & b->flags & BRIM_ACCESS_INJECTIVE) || a->table_buffer != b->table_buffer ||
        a->offset != b->offset || a->stride != b->stride || a->size > a->stride ||
        b->size > b->stride)
        return false;
    if (c->unstable[a->table_buffer])
        return false; /* it may change between the two */
    uint64_t a_end = a->table_offset + 4 * (uint64_t)a->count;
    uint64_t b_end = b->table_offset + 4 * (uint64_t)b->count;
    return a_end <= b->table_offset || b_end <= a->table_offset;
}

static const char *verb(const brim__use *u)
{
    return u->what == BRIM__USE_COUNT   ? "counts by"
           : u->what == BRIM__USE_TABLE ? "looks up in"
           : u->writes                  ? "writes"
                                        : "reads";
}

static unsigned long long overlap_begin(const brim__use *x, const brim__use *y)
{
    return x->region.offset > y->region.offset ? x->region.offset : y->region.offset;
}

static void report_pair(brim__check *c, const char *id, const char *why, size_t buffer,
                        const brim__use *x, const brim__use *y)
{
    brim__where a = brim__check_where(c, x->instruction), b = brim__check_where(c, y->instruction);
    brim__check_report(c, id, x->instruction, y->instruction,
                       "%s %s buffer %s and %s %s it near byte %llu: %s", a.text, verb(x),
                       c->program->buffers[buffer].name, b.text, verb(y), overlap_begin(x, y), why);
}

/* Uses of one instruction. */
static void check_own_pair(brim__check *c, size_t buffer, const brim__use *x, const brim__use *y)
{
    if (!brim__regions_overlap(&x->region, &y->region))
        return;
    if (x->writes && y->writes && kept_apart_by_table(c, x, y))
        return;
    brim__where where = brim__check_where(c, x->instruction);
    brim__check_report(
        c, x->writes && y->writes ? "check.race" : "check.in_place", x->instruction, BRIM_NONE,
        "%s %s buffer %s and %s it near byte %llu: an instruction must not %s", where.text, verb(x),
        c->program->buffers[buffer].name, verb(y), overlap_begin(x, y),
        x->writes && y->writes ? "write a byte twice" : "write what it reads");
}

/* The rules for a use that writes and another use of the same copy. Whether what is ordered before
 * a read has written all of it is for brim__check_reads(). */
static void check_pair(brim__check *c, size_t buffer, const brim__use *w, const brim__use *u)
{
    bool once = c->program->buffers[buffer].role == BRIM_BUFFER_OUTPUT || w->packet;
    bool ordered = brim__check_before(c, w->instruction, u->instruction) ||
                   brim__check_before(c, u->instruction, w->instruction);
    if (ordered && !(once && u->writes))
        return;
    if (w->packet && reads_packet(u))
        return;
    if (!brim__regions_overlap(&w->region, &u->region))
        return;
    if (u->writes && kept_apart_by_table(c, w, u))
        return;
    report_pair(c, "check.race",
                ordered ? "a byte of it is written once in an epoch" : "nothing orders the two",
                buffer, w, u);
}

/* The first use that may reach past `offset`; reach[k] is the furthest end of uses 0..k. */
static size_t first_reaching(const uint64_t *reach, size_t count, uint64_t offset)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (reach[middle] > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* All pairs of a use that writes with another one; two that write are met once. `reach` has room
 * for all uses of the buffer. */
static brim_status check_buffer(brim__check *c, size_t buffer, uint64_t *reach, uint64_t *pairs)
{
    const brim__use *uses = c->uses + c->use_start[buffer];
    size_t count = c->use_start[buffer + 1] - c->use_start[buffer];
    for (size_t k = 0; k < count; k++) {
        uint64_t end = brim__region_end(&uses[k].region);
        reach[k] = k && reach[k - 1] > end ? reach[k - 1] : end;
    }
    for (size_t i = 0; i < count && !brim__check_full(c); i++) {
        if (!uses[i].writes)
            continue;
        uint64_t end = brim__region_end(&uses[i].region);
        size_t first = first_reaching(reach, count, uses[i].region.offset);
        *pairs += i - first + 1;
        BRIM_FAIL_IF(*pairs > USE_PAIRS_MAX, LIMIT, "check.limit",
                     "buffer '%s' has too many accesses to compare: split it",
                     c->program->buffers[buffer].name);
        for (size_t k = first; k < count && uses[k].region.offset < end && !brim__check_full(c);
             k++, ++*pairs) {
            if (k == i || (uses[k].writes && k < i) || uses[k].next != uses[i].next)
                continue;
            if (uses[k].instruction == uses[i].instruction)
                check_own_pair(c, buffer, &uses[i], &uses[k]);
            else
                check_pair(c, buffer, &uses[i], &uses[k]);
        }
    }
    return BRIM_OK;
}

brim_status brim__check_races(brim__check *c)
{
    uint64_t pairs = 0, *reach;
    BRIM_ALLOC(c->ctx, reach, most_uses(c) * sizeof *reach + 1);
    brim_status status = BRIM_OK;
    for (size_t b = 0; b < c->program->buffer_count && !brim__check_full(c) && status == BRIM_OK;
         b++)
        status = check_buffer(c, b, reach, &pairs);
    brim__free(c->ctx, reach);
    return status;
}

/* ---- reads of what was not written ---- */

/* A count word that may change within an epoch proves nothing about another access. */
static brim__part stable_part(const brim__check *c, brim__part part, uint32_t nonce)
{
    uint32_t buffer = part.condition.buffer;
    if (buffer != BRIM_NONE && c->unstable[buffer])
        part.condition.buffer = BRIM_NONE - 1 - nonce; /* equal to no other */
    return part;
}

/* What a use reads, run by run. */
static brim__part part_read(const brim__check *c, const brim__use *u)
{
    const brim_access *a = access_of(c, u);
    brim__part part = {.region = u->region, .condition = {.buffer = BRIM_NONE}};
    if (u->what == BRIM__USE_COUNT || a->count_buffer == BRIM_NONE)
        return part;
    if (u->what == BRIM__USE_TABLE) {
        brim_access entries = *a;
        entries.offset = a->table_offset;
        entries.size = entries.stride = 4;
        return stable_part(c, brim__part_of(&entries), 0);
    }
    /* Through a table any run may be read. */
    return a->table_buffer == BRIM_NONE ? stable_part(c, brim__part_of(a), 0) : part;
}

/* What a use is bound to write; false when that may be nothing. */
static bool part_written(brim__part *out, const brim__check *c, const brim__use *u)
{
    const brim_access *a = access_of(c, u);
    if (a->table_buffer == BRIM_NONE) {
        *out = stable_part(c, brim__part_of(a), 1);
        return true;
    }
    /* As many different entries as there are values: all of them. */
    *out = (brim__part){.region = u->region, .condition = {.buffer = BRIM_NONE}};
    return (a->flags & BRIM_ACCESS_INJECTIVE) && a->count == a->table_limit &&
           a->count_buffer == BRIM_NONE;
}

typedef struct read_part {
    brim__part part;
    const brim__use *use;
} read_part;

static int compare_parts(const brim__part *x, const brim__part *y)
{
    const uint64_t a[] = {x->region.offset,   x->region.size,      x->region.stride,
                          x->region.count,    x->condition.buffer, x->condition.offset,
                          x->condition.first, x->condition.step};
    const uint64_t b[] = {y->region.offset,   y->region.size,      y->region.stride,
                          y->region.count,    y->condition.buffer, y->condition.offset,
                          y->condition.first, y->condition.step};
    for (size_t i = 0; i < sizeof a / sizeof *a; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int compare_writes(const void *a, const void *b)
{
    return compare_parts(a, b);
}

static int compare_reads(const void *a, const void *b)
{
    const read_part *x = a, *y = b;
    int order = compare_parts(&x->part, &y->part);
    if (order)
        return order;
    if (x->use->packet != y->use->packet)
        return x->use->packet ? 1 : -1;
    return (x->use->instruction > y->use->instruction) -
           (x->use->instruction < y->use->instruction);
}

static bool same_read(const read_part *x, const read_part *y)
{
    return x->use->packet == y->use->packet && compare_parts(&x->part, &y->part) == 0;
}

/* An instruction that writes byte `at` later than `u` reads it, or BRIM_NONE. */
static uint32_t later_writer(const brim__check *c, size_t buffer, const brim__use *u, uint64_t at)
{
    const brim__region byte = {at, 1, 1, 1};
    for (size_t k = c->use_start[buffer]; k < c->use_start[buffer + 1]; k++)
        if (c->uses[k].writes && brim__check_before(c, u->instruction, c->uses[k].instruction) &&
            brim__regions_overlap(&c->uses[k].region, &byte))
            return c->uses[k].instruction;
    return BRIM_NONE;
}

static void report_gap(brim__check *c, size_t buffer, const brim__use *u, brim__cover_result result,
                       uint64_t missing)
{
    brim__where where = brim__check_where(c, u->instruction);
    const char *name = c->program->buffers[buffer].name;
    const char *id = u->packet ? "check.deadlock" : "check.uninitialised";
    uint32_t later = later_writer(c, buffer, u, missing);
    if (result == BRIM__COVER_UNKNOWN) {
        brim__check_report(
            c, id, u->instruction, BRIM_NONE,
            "%s %s buffer %s, whose writes are too scattered to show that all of it is "
            "written",
            where.text, verb(u), name);
    } else if (later != BRIM_NONE) {
        brim__where writer = brim__check_where(c, later);
        brim__check_report(c, id, u->instruction, later,
                           "%s %s byte %llu of buffer %s before %s writes it", where.text, verb(u),
                           (unsigned long long)missing, name, writer.text);
    } else {
        brim__check_report(c, id, u->instruction, BRIM_NONE,
                           "%s %s byte %llu of buffer %s, which %s", where.text,
                           u->packet ? "waits for" : verb(u), (unsigned long long)missing, name,
                           u->packet ? "no packet is bound to bring" : "nothing is bound to write");
    }
}

/* Room for all uses of a buffer. `sources` are the writes that a read may stand on, by their index
 * among the uses, and `writes` what they write; the `before` ones are those of the read looked at
 * before. */
typedef struct read_work {
    read_part *reads;
    brim__part *writes, *before_writes;
    uint32_t *sources, *before;
    size_t source_count, before_count, write_count, before_write_count;
    uint64_t work;
} read_work;

/* The writes that touch what is read and do not come after it. (One that is not ordered is a race,
 * which has been reported.) */
static void find_sources(const brim__check *c, size_t buffer, const read_part *read, read_work *w)
{
    const brim__use *uses = c->uses + c->use_start[buffer];
    size_t count = c->use_start[buffer + 1] - c->use_start[buffer];
    uint64_t end = brim__region_end(&read->part.region);
    w->source_count = 0;
    for (size_t k = 0; k < count && uses[k].region.offset < end; k++)
        if (uses[k].writes && !uses[k].next &&
            brim__region_end(&uses[k].region) > read->part.region.offset &&
            uses[k].instruction != read->use->instruction &&
            !brim__check_before(c, read->use->instruction, uses[k].instruction))
            w->sources[w->source_count++] = (uint32_t)k;
    w->work += count;
}

/* What the sources write, each region once: layers that use a buffer again write it alike. */
static void find_writes(const brim__check *c, size_t buffer, read_work *w)
{
    const brim__use *uses = c->uses + c->use_start[buffer];
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < w->source_count; i++)
        if (part_written(&w->writes[count], c, &uses[w->sources[i]]))
            count++;
    if (count > 1)
        qsort(w->writes, count, sizeof *w->writes, compare_writes);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || compare_parts(&w->writes[kept - 1], &w->writes[i]) != 0)
            w->writes[kept++] = w->writes[i];
    w->write_count = kept;
}

static bool same_writes(const read_work *w)
{
    if (w->write_count != w->before_write_count)
        return false;
    for (size_t i = 0; i < w->write_count; i++)
        if (compare_parts(&w->writes[i], &w->before_writes[i]) != 0)
            return false;
    return true;
}

/* `again`: the read before was of the same bytes. */
static brim_status check_read(brim__check *c, size_t buffer, const read_part *read, bool again,
                              read_work *w)
{
    find_writes(c, buffer, w);
    if (again && same_writes(w))
        return BRIM_OK;
    brim__cover_result result;
    uint64_t missing = 0;
    BRIM_TRY(brim__cover(&result, &missing, c->ctx, &read->part, w->writes, w->write_count));
    w->work += w->write_count;
    if (result != BRIM__COVERED)
        report_gap(c, buffer, read->use, result, missing);
    brim__part *swap = w->before_writes;
    w->before_writes = w->writes;
    w->before_write_count = w->write_count;
    w->writes = swap;
    return BRIM_OK;
}

static brim_status check_buffer_reads(brim__check *c, size_t buffer, read_work *w)
{
    const brim__use *uses = c->uses + c->use_start[buffer];
    size_t count = c->use_start[buffer + 1] - c->use_start[buffer], read_count = 0;
    for (size_t i = 0; i < count; i++)
        if (!uses[i].writes && !uses[i].next)
            w->reads[read_count++] = (read_part){part_read(c, &uses[i]), &uses[i]};
    if (read_count > 1)
        qsort(w->reads, read_count, sizeof *w->reads, compare_reads);
    for (size_t i = 0; i < read_count && !brim__check_full(c); i++) {
        BRIM_FAIL_IF(w->work > USE_PAIRS_MAX, LIMIT, "check.limit",
                     "buffer '%s' has too many accesses to compare: split it",
                     c->program->buffers[buffer].name);
        find_sources(c, buffer, &w->reads[i], w);
        /* Many instructions read the same bytes after the same writes: one of them is enough. */
        bool again = i > 0 && same_read(&w->reads[i - 1], &w->reads[i]);
        if (!again || w->source_count != w->before_count ||
            memcmp(w->sources, w->before, w->source_count * sizeof *w->sources) != 0)
            BRIM_TRY(check_read(c, buffer, &w->reads[i], again, w));
        uint32_t *swap = w->before;
        w->before = w->sources;
        w->sources = swap;
        w->before_count = w->source_count;
    }
    return BRIM_OK;
}

brim_status brim__check_reads(brim__check *c)
{
    const brim_program *p = c->program;
    size_t most = most_uses(c) + 1;
    read_work w = {
        .reads = brim__alloc(c->ctx, most * sizeof *w.reads),
        .writes = brim__alloc(c->ctx, most * sizeof *w.writes),
        .before_writes = brim__alloc(c->ctx, most * sizeof *w.writes),
        .sources = brim__alloc(c->ctx, most * sizeof *w.sources),
        .before = brim__alloc(c->ctx, most * sizeof *w.before),
    };
    bool room = w.reads && w.writes && w.before_writes && w.sources && w.before;
    brim_status status = room ? BRIM_OK : BRIM_NO_MEMORY;
    for (size_t b = 0; b < p->buffer_count && status == BRIM_OK && !brim__check_full(c); b++)
        if (p->buffers[b].role == BRIM_BUFFER_SCRATCH)
            status = check_buffer_reads(c, b, &w);
    brim__free(c->ctx, w.reads);
    brim__free(c->ctx, w.writes);
    brim__free(c->ctx, w.before_writes);
    brim__free(c->ctx, w.sources);
    brim__free(c->ctx, w.before);
    return status;
}
