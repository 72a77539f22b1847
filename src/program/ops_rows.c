/* ops_rows.c: embed and norm: what is done to a row by itself. */
#include "program/ops_llm.h"

#include <string.h>

enum { DIM_MAX = 1 << 20, ROWS_MAX = 4096, POSITIONS_MAX = 1 << 22, SLOTS_MAX = 4096 };

static bool dims_fit(int32_t rows, int32_t cols)
{
    return rows > 0 && rows <= ROWS_MAX && cols > 0 && cols <= DIM_MAX && cols % 32 == 0;
}

/* ---- embed: x[row] = embedding[token[row]]; the token is also noted in the history ---- */

static brim_status embed_derive(brim_instruction *out, const brim_program *p,
                                const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, EMBED_COUNT);
    brim__derive_require(&d, o[EMBED_TENSOR] >= 0 && (size_t)o[EMBED_TENSOR] < p->tensor_count,
                         "no such tensor");
    brim__derive_require(&d,
                         o[EMBED_SLOTS] > 0 && o[EMBED_SLOTS] <= SLOTS_MAX &&
                             o[EMBED_CONTEXT] > 0 && o[EMBED_CONTEXT] <= POSITIONS_MAX &&
                             o[EMBED_ROWS] > 0 && o[EMBED_ROWS] <= ROWS_MAX,
                         "rows, slots or positions out of range");
    if (d.status != BRIM_OK)
        return d.status;
    const brim__tiling *t = &p->tensors[o[EMBED_TENSOR]].tiling;
    brim__derive_run(&d, 0, o[EMBED_TENSOR], 0, t->rows);
    brim__derive_access(&d, BRIM_READ, o[EMBED_STEP], 0, brim__step_bytes((uint32_t)o[EMBED_ROWS]));
    uint64_t row_bytes = 4 * (uint64_t)t->cols;
    brim__derive_rows(&d, BRIM_WRITE, o[EMBED_X], o[EMBED_STEP], STEP_ROWS, (uint32_t)o[EMBED_ROWS],
                      0, 1, row_bytes, 0, row_bytes);
    brim__derive_access(&d, BRIM_APPEND, o[EMBED_HISTORY], 0,
                        4 * (uint64_t)o[EMBED_SLOTS] * (uint64_t)o[EMBED_CONTEXT]);
    return d.status;
}

static void embed_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    const brim__tiling *t = &env->program->tensors[o[EMBED_TENSOR]].tiling;
    const uint32_t *step = env->access[0];
    float *x = env->access[1];
    for (uint32_t row = 0; row < env->run_counts[1]; row++) {
        uint32_t token = step[brim__step_word(STEP_TOKEN, (uint32_t)o[EMBED_ROWS], row)];
        if (token < t->rows)
            brim__tile_row(x + (size_t)row * t->cols, t, env->tiles[0], token);
        else
            memset(x + (size_t)row * t->cols, 0, 4 * (size_t)t->cols);
    }
}

static void embed_append(const brim_op_env *env, uint32_t access, void *buffer)
{
    (void)access;
    const int32_t *o = env->instruction->operands;
    const uint32_t *step = env->access[0], rows = (uint32_t)o[EMBED_ROWS];
    uint32_t *history = buffer;
    for (uint32_t row = 0; row < env->run_counts[1]; row++) {
        uint32_t slot = step[brim__step_word(STEP_SLOT, rows, row)];
        uint32_t position = step[brim__step_word(STEP_POSITION, rows, row)];
        if (slot < (uint32_t)o[EMBED_SLOTS] && position < (uint32_t)o[EMBED_CONTEXT])
            history[(size_t)slot * (uint32_t)o[EMBED_CONTEXT] + position] =
                step[brim__step_word(STEP_TOKEN, rows, row)];
    }
}

static void embed_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    uint32_t rows = (uint32_t)in->operands[EMBED_ROWS];
    const brim__tiling *t = &p->tensors[in->operands[EMBED_TENSOR]].tiling;
    out->bytes = rows * ((double)t->bytes / t->rows + 4.0 * t->cols);
    out->flops = 2.0 * rows * t->cols;
}

const brim_op_desc brim__op_EMBED = {.name = "embed",
                                     .body = embed_body,
                                     .derive = embed_derive,
                                     .append = embed_append,
                                     .cost = embed_cost};

/* ---- norm: RMSNorm of a row, written in the activation format of what follows ---- */

static brim_status norm_derive(brim_instruction *out, const brim_program *p,
                               const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, NORM_COUNT);
    brim__derive_require(&d,
                         dims_fit(o[NORM_ROWS], o[NORM_COLS]) && o[NORM_ACT] >= 0 &&
                             o[NORM_ACT] < BRIM__ACT_COUNT && (o[NORM_GATHER] | 1) == 1,
                         "rows, columns or format out of range");
    if (d.status != BRIM_OK)
        return d.status;
    uint32_t rows = (uint32_t)o[NORM_ROWS], cols = (uint32_t)o[NORM_COLS];
    uint32_t first = (uint32_t)o[NORM_FIRST], by = (uint32_t)o[NORM_BY];
    uint64_t x_bytes = 4 * (uint64_t)cols,
             out_bytes = brim__act_row_bytes((brim__act)o[NORM_ACT], cols);
    brim__derive_access(&d, BRIM_READ, o[NORM_STEP], 0, brim__step_bytes(rows));
    if (o[NORM_GATHER])
        brim__derive_rows(&d, BRIM_READ, o[NORM_X], o[NORM_STEP], STEP_ROWS, rows, 0, 1, x_bytes, 0,
                          x_bytes);
    else
        brim__derive_rows(&d, BRIM_READ, o[NORM_X], o[NORM_STEP], STEP_ROWS, rows, first, by,
                          x_bytes, 0, x_bytes);
    brim__derive_access(&d, BRIM_READ, o[NORM_WEIGHT], 0, x_bytes);
    brim__derive_rows(&d, BRIM_WRITE, o[NORM_OUT], o[NORM_STEP],
                      o[NORM_GATHER] ? STEP_OUT : STEP_ROWS, rows, first, by, out_bytes, 0,
                      brim__act_bytes(o[NORM_ACT], cols));
    return d.status;
}

static void norm_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    const brim__kernels *k = brim__kernels_get(env->isa);
    uint32_t rows = (uint32_t)o[NORM_ROWS], cols = (uint32_t)o[NORM_COLS];
    const uint32_t *step = env->access[0];
    const float *x = env->access[1], *weight = env->access[2];
    uint64_t out_bytes = brim__act_bytes(o[NORM_ACT], cols);
    uint64_t by = (uint64_t)o[NORM_BY];
    float *y = env->scratch;
    for (uint32_t run = 0; run < env->run_counts[3]; run++) {
        uint64_t source = run * by; /* the region starts at row `first` already */
        if (o[NORM_GATHER]) {
            uint64_t out_row = (uint64_t)o[NORM_FIRST] + run * by;
            source = step[brim__step_word(STEP_OUT_ROW, rows, (uint32_t)out_row)];
            source = source < rows ? source : 0;
        }
        k->rms_norm(y, x + source * cols, weight, cols, brim__float_of(o[NORM_EPSILON]));
        void *to = (char *)env->access[3] + run * out_bytes;
        if (o[NORM_ACT] == BRIM__ACT_Q16)
            k->quantize(to, y, cols);
        else
            memcpy(to, y, 4 * (size_t)cols);
    }
}

static size_t norm_scratch(const brim_program *p, const brim_instruction *in)
{
    (void)p;
    return 4 * (size_t)in->operands[NORM_COLS];
}

static void norm_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    (void)p;
    double rows = (double)in->operands[NORM_ROWS] / in->operands[NORM_BY];
    out->bytes = (rows * 8 + 4) * in->operands[NORM_COLS];
    out->flops = rows * 8 * in->operands[NORM_COLS];
}

const brim_op_desc brim__op_NORM = {.name = "norm",
                                    .body = norm_body,
                                    .derive = norm_derive,
                                    .cost = norm_cost,
                                    .scratch_bytes = norm_scratch};
