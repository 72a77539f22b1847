/* ops_step.c: sample, and the step-end of language models: what was sampled becomes the next
 * step's input, and a result in the ring that the host reads. */
#include "program/ops_llm.h"

#include <stdatomic.h>
#include <string.h>

#include "base/hash.h"

enum { ROWS_MAX = 4096, VOCAB_MAX = 1 << 24, POSITIONS_MAX = 1 << 22 };

static bool slots_fit(int32_t slots)
{
    return slots > 0 && slots <= ROWS_MAX;
}

/* ---- sample ---- */

static brim_status sample_derive(brim_instruction *out, const brim_program *p,
                                 const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, SAMPLE_COUNT);
    brim__derive_require(
        &d,
        o[SAMPLE_ROWS] > 0 && o[SAMPLE_ROWS] <= ROWS_MAX && slots_fit(o[SAMPLE_SLOTS]) &&
            o[SAMPLE_VOCAB] > 0 && o[SAMPLE_VOCAB] <= o[SAMPLE_LOGIT_COLS] &&
            o[SAMPLE_LOGIT_COLS] <= VOCAB_MAX && o[SAMPLE_CONTEXT] > 0 &&
            o[SAMPLE_CONTEXT] <= POSITIONS_MAX && o[SAMPLE_FIRST] >= 0 && o[SAMPLE_BY] > 0,
        "rows, slots, vocabulary or positions out of range");
    if (d.status != BRIM_OK)
        return d.status;
    uint32_t rows = (uint32_t)o[SAMPLE_ROWS], first = (uint32_t)o[SAMPLE_FIRST],
             by = (uint32_t)o[SAMPLE_BY];
    uint64_t logit_bytes = 4 * (uint64_t)o[SAMPLE_LOGIT_COLS];
    brim__derive_access(&d, BRIM_READ, o[SAMPLE_STEP], 0, brim__step_bytes(rows));
    brim__derive_rows(&d, BRIM_READ, o[SAMPLE_LOGITS], o[SAMPLE_STEP], STEP_OUT, rows, first, by,
                      logit_bytes, 0, logit_bytes);
    brim__derive_access(&d, BRIM_READ, o[SAMPLE_PARAMS], 0,
                        sizeof(brim__sample_params) * (uint64_t)o[SAMPLE_SLOTS]);
    brim__derive_access(&d, BRIM_READ, o[SAMPLE_HISTORY], 0,
                        4 * (uint64_t)o[SAMPLE_SLOTS] * (uint64_t)o[SAMPLE_CONTEXT]);
    brim__derive_rows(&d, BRIM_WRITE, o[SAMPLE_OUT], o[SAMPLE_STEP], STEP_OUT, rows, first, by,
                      sizeof(brim__sampled), 0, sizeof(brim__sampled));
    return d.status;
}

static void sample_row(brim__sampled *out, const brim_op_env *env, uint32_t out_row,
                       const float *logits)
{
    const int32_t *o = env->instruction->operands;
    const uint32_t *step = env->access[0], rows = (uint32_t)o[SAMPLE_ROWS];
    uint32_t row = step[brim__step_word(STEP_OUT_ROW, rows, out_row)];
    *out = (brim__sampled){0};
    if (row >= rows)
        return;
    uint32_t slot = step[brim__step_word(STEP_SLOT, rows, row)];
    uint32_t position = step[brim__step_word(STEP_POSITION, rows, row)];
    if (slot >= (uint32_t)o[SAMPLE_SLOTS] || position >= (uint32_t)o[SAMPLE_CONTEXT])
        return;
    brim__sample_params params = ((const brim__sample_params *)env->access[2])[slot];
    const uint32_t *history =
        (const uint32_t *)env->access[3] + (size_t)slot * (uint32_t)o[SAMPLE_CONTEXT];
    uint32_t recent = params.penalty_last < position + 1 ? params.penalty_last : position + 1;
    out->token =
        brim__sample(brim__kernels_get(env->isa), logits, (uint32_t)o[SAMPLE_VOCAB], &params,
                     history + (position + 1 - recent), recent, position, env->scratch);
    if (params.flags & 1)
        out->hash = brim__hash64(logits, 4 * (size_t)o[SAMPLE_VOCAB], 0);
}

static void sample_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    for (uint32_t run = 0; run < env->run_counts[4]; run++)
        sample_row((brim__sampled *)env->access[4] + run, env,
                   (uint32_t)o[SAMPLE_FIRST] + run * (uint32_t)o[SAMPLE_BY],
                   (const float *)env->access[1] +
                       (size_t)run * (uint32_t)o[SAMPLE_BY] * (uint32_t)o[SAMPLE_LOGIT_COLS]);
}

static size_t sample_scratch(const brim_program *p, const brim_instruction *in)
{
    (void)p;
    return brim__sample_scratch_bytes((uint32_t)in->operands[SAMPLE_VOCAB]);
}

static void sample_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    (void)p;
    const int32_t *o = in->operands;
    out->bytes = 8.0 * o[SAMPLE_VOCAB] * o[SAMPLE_ROWS] / o[SAMPLE_BY];
    out->flops = out->bytes;
}

const brim_op_desc brim__op_SAMPLE = {.name = "sample",
                                      .body = sample_body,
                                      .derive = sample_derive,
                                      .cost = sample_cost,
                                      .scratch_bytes = sample_scratch};

/* ---- step.end ---- */

static brim_status end_derive(brim_instruction *out, const brim_program *p,
                              const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, END_COUNT);
    brim__derive_require(&d, o[END_ROWS] > 0 && o[END_ROWS] <= ROWS_MAX && slots_fit(o[END_SLOTS]),
                         "rows or slots out of range");
    if (d.status != BRIM_OK)
        return d.status;
    uint32_t rows = (uint32_t)o[END_ROWS];
    uint64_t entry = sizeof(brim__sampled) * (uint64_t)(rows + 1);
    brim__derive_access(&d, BRIM_READ, o[END_STEP], 0, brim__step_bytes(rows));
    brim__derive_rows(&d, BRIM_READ, o[END_SAMPLED], o[END_STEP], STEP_OUT, rows, 0, 1,
                      sizeof(brim__sampled), 0, sizeof(brim__sampled));
    brim__derive_access(&d, BRIM_READ, o[END_PARAMS], 0,
                        sizeof(brim__sample_params) * (uint64_t)o[END_SLOTS]);
    brim__derive_access(&d, BRIM_READ, o[END_ENDS], 0, 4 * (ENDS_MAX + 1));
    brim__derive_access(&d, BRIM_READ, o[END_MAIL], 0, 4 * (uint64_t)o[END_SLOTS]);
    brim_access *next = brim__derive_access(&d, BRIM_WRITE, o[END_STEP], 0, brim__step_bytes(rows));
    next->flags = BRIM_ACCESS_NEXT;
    brim_access *ring = brim__derive_access(&d, BRIM_WRITE, o[END_RESULT], 0, entry);
    ring->table_buffer = (uint32_t)o[END_STEP];
    ring->table_offset = 4 * STEP_RING;
    ring->table_limit = RESULT_RING;
    return d.status;
}

enum { E_STEP, E_SAMPLED, E_PARAMS, E_ENDS, E_MAIL, E_NEXT, E_RING };

static bool is_end(const uint32_t *ends, uint32_t token)
{
    uint32_t count = ends[0] < ENDS_MAX ? ends[0] : ENDS_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (ends[1 + i] == token)
            return true;
    return false;
}

/* Fills the ring's entry; returns whether every row can go on. */
static bool finish_rows(const brim_op_env *env, brim__sampled *entry)
{
    const uint32_t *step = env->access[E_STEP],
                   rows = (uint32_t)env->instruction->operands[END_ROWS];
    const brim__sampled *sampled = env->access[E_SAMPLED];
    const brim__sample_params *params = env->access[E_PARAMS];
    _Atomic uint32_t *mail = env->access[E_MAIL];
    bool all = true;
    for (uint32_t i = 0; i < env->run_counts[E_SAMPLED]; i++) {
        uint32_t row = step[brim__step_word(STEP_OUT_ROW, rows, i)];
        uint32_t slot = row < rows ? step[brim__step_word(STEP_SLOT, rows, row)] : UINT32_MAX;
        entry[1 + i] = sampled[i];
        if (slot >= (uint32_t)env->instruction->operands[END_SLOTS]) {
            all = false;
            continue;
        }
        uint32_t position = step[brim__step_word(STEP_POSITION, rows, row)];
        if (is_end(env->access[E_ENDS], sampled[i].token))
            entry[1 + i].ended = 1;
        else if (position + 1 >= params[slot].max_position)
            entry[1 + i].ended = 2;
        all &=
            entry[1 + i].ended == 0 && atomic_load_explicit(&mail[slot], memory_order_relaxed) == 0;
    }
    return all;
}

static void end_body(const brim_op_env *env)
{
    const uint32_t *step = env->access[E_STEP],
                   rows = (uint32_t)env->instruction->operands[END_ROWS];
    brim__sampled *entry = env->access[E_RING];
    uint32_t *next = env->access[E_NEXT];
    memset(entry, 0, sizeof *entry * (rows + 1));
    entry[0].token = env->run_counts[E_SAMPLED];
    bool all = finish_rows(env, entry);
    memcpy(next, step, brim__step_bytes(rows));
    next[STEP_RUN] = all && step[STEP_CHAIN] && env->run_counts[E_SAMPLED] > 0 &&
                     step[STEP_OUT] == step[STEP_ROWS];
    next[STEP_RING] = (step[STEP_RING] + 1) % RESULT_RING;
    if (!next[STEP_RUN])
        return;
    /* Row i's successor is row i: out row i is row i in a chain. */
    for (uint32_t i = 0; i < env->run_counts[E_SAMPLED]; i++) {
        uint32_t row = step[brim__step_word(STEP_OUT_ROW, rows, i)];
        next[brim__step_word(STEP_TOKEN, rows, row)] = entry[1 + i].token;
        next[brim__step_word(STEP_POSITION, rows, row)]++;
    }
}

const brim_op_desc brim__op_STEP_END = {
    .name = "step.end", .body = end_body, .derive = end_derive, .step_end = true};
