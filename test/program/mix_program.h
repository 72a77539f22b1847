/* mix_program.h: small programs of the ops "mix" and "mix.end" for the tests of src/program. */
#ifndef MIX_PROGRAM_H
#define MIX_PROGRAM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "program/program.h"

typedef struct mix {
    brim_context *ctx;
    brim_op_table *ops;
    brim_builder *builder;
    brim_program *program;
    uint32_t op, op_end;
    brim_finding findings[64];
    uint32_t finding_count;
} mix;

static inline mix mix_begin(uint32_t lanes)
{
    mix m = {0};
    assert_int_equal(brim_context_create(&m.ctx, NULL), BRIM_OK);
    assert_int_equal(brim_op_table_create(&m.ops, m.ctx), BRIM_OK);
    assert_int_equal(brim_builder_create(&m.builder, m.ctx, m.ops, "test", lanes), BRIM_OK);
    m.op = brim_op_find(m.ops, "mix");
    m.op_end = brim_op_find(m.ops, "mix.end");
    return m;
}

/* Ends the test of one program; every byte must have come back. */
static inline void mix_end(mix *m)
{
    brim_program_destroy(m->program);
    brim_builder_destroy(m->builder);
    brim_op_table_destroy(m->ops);
    assert_int_equal(brim_context_bytes(m->ctx), 0);
    brim_context_destroy(m->ctx);
}

static inline uint32_t mix_buffer(mix *m, const char *name, uint64_t size, brim_buffer_role role,
                                  bool parity)
{
    uint32_t index = 0;
    brim_buffer_desc desc = {.name = name, .size = size, .role = role, .parity = parity};
    assert_int_equal(brim_builder_buffer(&index, m->builder, &desc), BRIM_OK);
    return index;
}

static inline uint32_t mix_counter(mix *m, const char *name)
{
    uint32_t index = 0;
    assert_int_equal(brim_builder_counter(&index, m->builder, name), BRIM_OK);
    return index;
}

static inline uint32_t mix_queue(mix *m, const char *name)
{
    uint32_t index = 0;
    assert_int_equal(brim_builder_queue(&index, m->builder, name), BRIM_OK);
    return index;
}

static inline brim_access *mix_access(brim_instruction *in, brim_access_kind kind, uint32_t buffer,
                                      uint64_t offset, uint64_t size)
{
    brim_access *a = &in->accesses[in->access_count++];
    *a = brim_access_make(kind, buffer, offset, size);
    return a;
}

static inline brim_access *mix_strided(brim_instruction *in, brim_access_kind kind, uint32_t buffer,
                                       uint64_t offset, uint64_t size, uint64_t stride,
                                       uint32_t count)
{
    brim_access *a = mix_access(in, kind, buffer, offset, size);
    a->stride = stride;
    a->count = count;
    return a;
}

static inline void mix_wait(brim_instruction *in, uint32_t counter, uint32_t value)
{
    in->waits[in->wait_count++] = (brim_wait){counter, value};
}

static inline void mix_signal(brim_instruction *in, uint32_t counter)
{
    in->signals[in->signal_count++] = counter;
}

static inline void mix_lane(mix *m, uint32_t lane, const brim_instruction *in)
{
    assert_int_equal(brim_builder_lane(m->builder, lane, in), BRIM_OK);
}

static inline void mix_piece(mix *m, uint32_t queue, const brim_instruction *in)
{
    assert_int_equal(brim_builder_piece(m->builder, queue, in), BRIM_OK);
}

static inline void mix_take(mix *m, uint32_t lane, uint32_t queue)
{
    assert_int_equal(brim_builder_take(m->builder, lane, queue), BRIM_OK);
}

static inline void mix_finish(mix *m)
{
    assert_int_equal(brim_builder_finish(&m->program, m->builder), BRIM_OK);
}

static inline void mix_report(const brim_finding *finding, void *user)
{
    mix *m = user;
    m->findings[m->finding_count++] = *finding;
}

/* Checks the program; returns the status. */
static inline brim_status mix_check(mix *m)
{
    m->finding_count = 0;
    return brim_program_check(m->program, m->ctx, 64, mix_report, m);
}

static inline bool mix_found(const mix *m, const char *id)
{
    for (uint32_t i = 0; i < m->finding_count; i++)
        if (strcmp(m->findings[i].id, id) == 0)
            return true;
    return false;
}

/* ---- a program like a real one ----
 *
 * Layers of pieces in queues (or in lanes' own lists), each piece writing one column of its
 * layer's buffer for some rows and reading whole rows of the layer before; a state buffer that
 * every layer appends to and the next one reads; step-end on lane 0. */
typedef struct layered {
    uint32_t lanes, layers, pieces, rows;
    bool queues;
} layered;

enum { LAYERED_COLUMN = 16 };

static inline void layered_piece(mix *m, const layered *l, brim_instruction *in,
                                 const uint32_t *buffers, const uint32_t *counters, uint32_t step,
                                 uint32_t state, uint32_t layer, uint32_t piece)
{
    uint64_t row = (uint64_t)LAYERED_COLUMN * l->pieces;
    *in = brim_instruction_make(m->op);
    in->operands[in->operand_count++] = (int32_t)(layer * 1000 + piece);
    mix_access(in, BRIM_READ, step, 0, 64);
    if (layer > 0) {
        brim_access *a = mix_strided(in, BRIM_READ, buffers[layer - 1], 0, row, row, l->rows);
        a->count_buffer = step, a->count_step = 1;
        mix_wait(in, counters[layer - 1], l->pieces);
        mix_access(in, BRIM_READ, state, (layer - 1) * row, row);
    }
    brim_access *a = mix_strided(in, BRIM_WRITE, buffers[layer], (uint64_t)piece * LAYERED_COLUMN,
                                 LAYERED_COLUMN, row, l->rows);
    a->count_buffer = step, a->count_step = 1;
    mix_access(in, BRIM_APPEND, state, layer * row + (uint64_t)piece * LAYERED_COLUMN,
               LAYERED_COLUMN);
    mix_signal(in, counters[layer]);
}

static inline mix layered_build(const layered *l)
{
    mix m = mix_begin(l->lanes);
    uint32_t buffers[64], counters[64], queues[64];
    assert_true(l->layers <= 64);
    uint32_t step = mix_buffer(&m, "step", 64, BRIM_BUFFER_INPUT, true);
    uint64_t row = (uint64_t)LAYERED_COLUMN * l->pieces;
    uint32_t state = mix_buffer(&m, "state", row * l->layers, BRIM_BUFFER_STATE, false);
    uint32_t result = mix_buffer(&m, "result", 64, BRIM_BUFFER_OUTPUT, false);
    for (uint32_t i = 0; i < l->layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "x%u", i);
        buffers[i] = mix_buffer(&m, name, row * l->rows, BRIM_BUFFER_SCRATCH, false);
        snprintf(name, sizeof name, "layer %u", i);
        counters[i] = mix_counter(&m, name);
        if (l->queues)
            queues[i] = mix_queue(&m, name);
    }
    for (uint32_t i = 0; i < l->layers; i++)
        for (uint32_t k = 0; k < l->pieces; k++) {
            brim_instruction in;
            layered_piece(&m, l, &in, buffers, counters, step, state, i, k);
            if (l->queues)
                mix_piece(&m, queues[i], &in);
            else
                mix_lane(&m, k % l->lanes, &in);
        }
    for (uint32_t lane = 0; l->queues && lane < l->lanes; lane++)
        for (uint32_t i = 0; i < l->layers; i++)
            mix_take(&m, lane, queues[i]);
    brim_instruction end = brim_instruction_make(m.op_end);
    mix_access(&end, BRIM_READ, step, 0, 64);
    mix_wait(&end, counters[l->layers - 1], l->pieces);
    brim_access *a = mix_strided(&end, BRIM_READ, buffers[l->layers - 1], 0, row, row, l->rows);
    a->count_buffer = step, a->count_step = 1;
    mix_access(&end, BRIM_WRITE, step, 0, 64)->flags = BRIM_ACCESS_NEXT;
    mix_access(&end, BRIM_WRITE, result, 0, 64);
    mix_lane(&m, 0, &end);
    mix_finish(&m);
    return m;
}

#endif
