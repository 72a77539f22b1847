/* ops_matmul.c: products with tiled weights and what is fused behind them: QKV with bias, head
 * norm, RoPE and KV append; the residual; SiLU of the gate times up; logits. */
#include "program/ops_llm.h"

#include <assert.h>
#include <string.h>

enum {
    DIM_MAX = 1 << 20,
    ROWS_MAX = 4096,
    HEAD_MAX = 256,
    LAYERS_MAX = 4096,
    KV_BLOCKS_MAX = 1 << 24
};

static bool act_fits(int32_t act)
{
    return act >= 0 && act < BRIM__ACT_COUNT;
}

/* The tensor exists and its columns suit the activations. */
static void require_tensor(brim__deriving *d, int32_t tensor, int32_t act)
{
    brim__derive_require(d, tensor >= 0 && (size_t)tensor < d->program->tensor_count,
                         "no such tensor");
    brim__derive_require(d, act_fits(act), "no such activation format");
    if (d->status == BRIM_OK)
        brim__derive_require(
            d, act != BRIM__ACT_Q16 || brim_dtype_block(d->program->tensors[tensor].desc.type) > 1,
            "float weights take float activations");
}

static const brim__tiling *tiling_of(const brim_op_env *env, unsigned run)
{
    return &env->program->tensors[env->instruction->runs[run].tensor].tiling;
}

/* Floats of one row of a product over a run: padding included. */
static size_t product_cols(const brim_program *p, const brim_tile_run *run)
{
    return run->tensor == BRIM_NONE ? 0
                                    : (size_t)run->count * p->tensors[run->tensor].tiling.tile_rows;
}

static void product(float *out, size_t out_stride, const brim_op_env *env, unsigned run,
                    int32_t act, const void *x, uint32_t rows)
{
    const brim__kernels *k = brim__kernels_get(env->isa);
    const brim__tiling *t = tiling_of(env, run);
    brim__matmul matmul = k->matmul[act][t->type];
    assert(matmul);
    matmul(out, out_stride, t, env->tiles[run], env->instruction->runs[run].count, x,
           brim__act_row_bytes((brim__act)act, t->cols), rows);
}

/* ---- qkv ---- */

static void qkv_require(brim__deriving *d, const int32_t *o)
{
    require_tensor(d, o[QKV_TENSOR], o[QKV_ACT]);
    brim__derive_require(d, o[QKV_ROWS] > 0 && o[QKV_ROWS] <= ROWS_MAX, "rows out of range");
    brim__derive_require(
        d, o[QKV_HEAD_SIZE] >= 16 && o[QKV_HEAD_SIZE] <= HEAD_MAX && o[QKV_HEAD_SIZE] % 16 == 0,
        "head size out of range");
    brim__derive_require(d,
                         o[QKV_KIND] >= 0 && o[QKV_KIND] <= 2 && (o[QKV_KV_F32] | 1) == 1 &&
                             (o[QKV_ROPE_HALVES] | 1) == 1,
                         "kind or flag out of range");
    brim__derive_require(d,
                         o[QKV_HEAD_FIRST] >= 0 && o[QKV_HEAD_COUNT] > 0 &&
                             o[QKV_HEADS] <= DIM_MAX / 16 && o[QKV_HEAD_COUNT] <= o[QKV_HEADS] &&
                             o[QKV_HEAD_FIRST] <= o[QKV_HEADS] - o[QKV_HEAD_COUNT],
                         "heads out of range");
    brim__derive_require(d,
                         o[QKV_LAYER] >= 0 && o[QKV_LAYER] < LAYERS_MAX && o[QKV_BLOCKS] > 0 &&
                             o[QKV_BLOCKS] <= KV_BLOCKS_MAX && o[QKV_BLOCKS_MAX] > 0 &&
                             o[QKV_SLOTS] > 0 && o[QKV_BLOCKS_MAX] <= KV_BLOCKS_MAX &&
                             o[QKV_SLOTS] <= ROWS_MAX,
                         "layer, blocks or slots out of range");
    brim__derive_require(d,
                         o[QKV_ROPE_SIZE] >= 2 && o[QKV_ROPE_SIZE] % 2 == 0 &&
                             o[QKV_ROPE_SIZE] <= o[QKV_HEAD_SIZE],
                         "rope size out of range");
    if (d->status == BRIM_OK)
        brim__derive_require(d,
                             d->program->tensors[o[QKV_TENSOR]].desc.rows ==
                                 (uint32_t)(o[QKV_HEADS] * o[QKV_HEAD_SIZE]),
                             "the tensor's rows are not heads times head size");
}

static uint64_t kv_part_bytes(const int32_t *o)
{
    return brim__kv_block_bytes((uint32_t)o[QKV_HEAD_SIZE], o[QKV_KV_F32]) *
           (uint64_t)o[QKV_BLOCKS];
}

static brim_status qkv_derive(brim_instruction *out, const brim_program *p,
                              const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, QKV_COUNT);
    qkv_require(&d, o);
    if (d.status != BRIM_OK)
        return d.status;
    uint32_t rows = (uint32_t)o[QKV_ROWS], hs = (uint32_t)o[QKV_HEAD_SIZE];
    uint32_t first = (uint32_t)o[QKV_HEAD_FIRST], count = (uint32_t)o[QKV_HEAD_COUNT];
    const brim__tiling *t = &p->tensors[o[QKV_TENSOR]].tiling;
    uint64_t in_bytes = brim__act_row_bytes((brim__act)o[QKV_ACT], t->cols);
    brim__derive_run(&d, 0, o[QKV_TENSOR], first * hs, (first + count) * hs);
    brim__derive_access(&d, BRIM_READ, o[QKV_STEP], 0, brim__step_bytes(rows));
    brim__derive_rows(&d, BRIM_READ, o[QKV_IN], o[QKV_STEP], STEP_ROWS, rows, 0, 1, in_bytes, 0,
                      brim__act_bytes(o[QKV_ACT], t->cols));
    if (o[QKV_KIND] == 0) {
        brim__derive_rows(&d, BRIM_WRITE, o[QKV_OUT], o[QKV_STEP], STEP_ROWS, rows, 0, 1,
                          4 * (uint64_t)t->rows, 4 * (uint64_t)first * hs,
                          4 * (uint64_t)count * hs);
    } else {
        uint64_t part = kv_part_bytes(o), layer = (uint64_t)o[QKV_LAYER] * (uint64_t)o[QKV_HEADS];
        brim_access *a = brim__derive_access(
            &d, BRIM_APPEND, o[QKV_OUT], ((layer + first) * 2 + (o[QKV_KIND] == 2)) * part, part);
        a->count = count;
        a->stride = 2 * part;
    }
    brim__derive_access(&d, BRIM_READ, o[QKV_TABLES], 0,
                        4 * (uint64_t)o[QKV_SLOTS] * (uint64_t)o[QKV_BLOCKS_MAX]);
    brim__derive_whole(&d, o[QKV_ROPE]);
    if (o[QKV_BIAS] >= 0)
        brim__derive_access(&d, BRIM_READ, o[QKV_BIAS], 4 * (uint64_t)first * hs,
                            4 * (uint64_t)count * hs);
    if (o[QKV_HEAD_NORM] >= 0)
        brim__derive_access(&d, BRIM_READ, o[QKV_HEAD_NORM], 0, 4 * (uint64_t)hs);
    return d.status;
}

enum { QKV_A_STEP, QKV_A_IN, QKV_A_OUT, QKV_A_TABLES, QKV_A_ROPE, QKV_A_BIAS };

static void finish_head(const brim_op_env *env, const brim__kernels *k, float *head,
                        uint32_t local_head, uint32_t position)
{
    const int32_t *o = env->instruction->operands;
    uint32_t hs = (uint32_t)o[QKV_HEAD_SIZE], rope = (uint32_t)o[QKV_ROPE_SIZE];
    unsigned next = QKV_A_BIAS;
    if (o[QKV_BIAS] >= 0)
        k->add(head, head, (const float *)env->access[next++] + (size_t)local_head * hs, hs);
    if (o[QKV_HEAD_NORM] >= 0)
        k->rms_norm(head, head, env->access[next], hs, brim__float_of(o[QKV_EPSILON]));
    if (o[QKV_KIND] == 2)
        return;
    uint64_t positions = env->instruction->accesses[QKV_A_ROPE].size / (4 * (uint64_t)rope);
    if (position < positions)
        k->rope(head, (const float *)env->access[QKV_A_ROPE] + (size_t)position * rope, rope,
                o[QKV_ROPE_HALVES]);
}

static void qkv_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    const brim__kernels *k = brim__kernels_get(env->isa);
    const uint32_t *step = env->access[QKV_A_STEP];
    uint32_t rows = env->run_counts[QKV_A_IN], hs = (uint32_t)o[QKV_HEAD_SIZE];
    uint32_t heads = (uint32_t)o[QKV_HEAD_COUNT];
    size_t stride = product_cols(env->program, &env->instruction->runs[0]);
    float *y = env->scratch;
    product(y, stride, env, 0, o[QKV_ACT], env->access[QKV_A_IN], rows);
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t position = step[brim__step_word(STEP_POSITION, (uint32_t)o[QKV_ROWS], row)];
        for (uint32_t h = 0; h < heads; h++)
            finish_head(env, k, y + row * stride + (size_t)h * hs, h, position);
        if (o[QKV_KIND] == 0)
            memcpy((float *)env->access[QKV_A_OUT] + (size_t)row * heads * hs, y + row * stride,
                   4 * (size_t)heads * hs);
    }
}

static void qkv_append(const brim_op_env *env, uint32_t access, void *buffer)
{
    const int32_t *o = env->instruction->operands;
    const brim__kernels *k = brim__kernels_get(env->isa);
    const brim_access *a = &env->instruction->accesses[access];
    const uint32_t *step = env->access[QKV_A_STEP], *tables = env->access[QKV_A_TABLES];
    uint32_t hs = (uint32_t)o[QKV_HEAD_SIZE], blocks_max = (uint32_t)o[QKV_BLOCKS_MAX];
    uint64_t block_bytes = brim__kv_block_bytes(hs, o[QKV_KV_F32]);
    size_t stride = product_cols(env->program, &env->instruction->runs[0]);
    const float *y = env->scratch;
    for (uint32_t row = 0; row < env->run_counts[QKV_A_IN]; row++) {
        uint32_t position = step[brim__step_word(STEP_POSITION, (uint32_t)o[QKV_ROWS], row)];
        uint32_t slot = step[brim__step_word(STEP_SLOT, (uint32_t)o[QKV_ROWS], row)];
        if (slot >= (uint32_t)o[QKV_SLOTS] || position / BRIM__KV_BLOCK >= blocks_max)
            continue;
        uint32_t block = tables[(size_t)slot * blocks_max + position / BRIM__KV_BLOCK];
        if (block >= (uint32_t)o[QKV_BLOCKS])
            continue;
        for (uint32_t h = 0; h < (uint32_t)o[QKV_HEAD_COUNT]; h++)
            k->kv_store((char *)buffer + a->offset + h * a->stride + block * block_bytes,
                        y + row * stride + (size_t)h * hs, position % BRIM__KV_BLOCK, hs,
                        o[QKV_KIND] == 2, o[QKV_KV_F32]);
    }
}

static size_t qkv_scratch(const brim_program *p, const brim_instruction *in)
{
    return 4 * product_cols(p, &in->runs[0]) * (size_t)in->operands[QKV_ROWS];
}

static void qkv_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    brim__matmul_cost(out, p, in, (uint32_t)in->operands[QKV_ROWS]);
}

const brim_op_desc brim__op_QKV = {.name = "qkv",
                                   .body = qkv_body,
                                   .derive = qkv_derive,
                                   .append = qkv_append,
                                   .cost = qkv_cost,
                                   .scratch_bytes = qkv_scratch};

/* ---- matmul, matmul.add, gate.up ---- */

static void mm_require(brim__deriving *d, const int32_t *o)
{
    require_tensor(d, o[MM_TENSOR], o[MM_ACT]);
    brim__derive_require(d,
                         o[MM_ROWS] > 0 && o[MM_ROWS] <= ROWS_MAX && o[MM_FIRST] >= 0 &&
                             o[MM_END] > o[MM_FIRST] && o[MM_OUT_COLS] >= o[MM_END] &&
                             o[MM_OUT_COLS] <= (1 << 24) && (o[MM_BY_OUT] | 1) == 1 &&
                             act_fits(o[MM_OUT_ACT]),
                         "rows, columns or format out of range");
    if (d->status == BRIM_OK)
        brim__derive_require(d, d->program->tensors[o[MM_TENSOR]].desc.cols == (uint32_t)o[MM_COLS],
                             "the tensor's columns are not those of the input");
}

/* The accesses that all three share: the step's counts and the input rows. */
static void mm_derive_input(brim__deriving *d, const int32_t *o)
{
    uint64_t in_bytes = brim__act_row_bytes((brim__act)o[MM_ACT], (uint32_t)o[MM_COLS]);
    brim__derive_run(d, 0, o[MM_TENSOR], (uint32_t)o[MM_FIRST], (uint32_t)o[MM_END]);
    brim__derive_rows(d, BRIM_READ, o[MM_IN], o[MM_STEP], o[MM_BY_OUT] ? STEP_OUT : STEP_ROWS,
                      (uint32_t)o[MM_ROWS], 0, 1, in_bytes, 0,
                      brim__act_bytes(o[MM_ACT], (uint32_t)o[MM_COLS]));
}

static void mm_derive_floats(brim__deriving *d, const int32_t *o, brim_access_kind kind,
                             int32_t buffer)
{
    uint64_t cols = (uint64_t)(o[MM_END] - o[MM_FIRST]);
    brim__derive_rows(d, kind, buffer, o[MM_STEP], o[MM_BY_OUT] ? STEP_OUT : STEP_ROWS,
                      (uint32_t)o[MM_ROWS], 0, 1, 4 * (uint64_t)o[MM_OUT_COLS],
                      4 * (uint64_t)o[MM_FIRST], 4 * cols);
}

static brim_status matmul_derive(brim_instruction *out, const brim_program *p,
                                 const brim_instruction *in)
{
    brim__deriving d = brim__derive_begin(out, p, in, MM_COUNT);
    mm_require(&d, in->operands);
    if (d.status != BRIM_OK)
        return d.status;
    mm_derive_input(&d, in->operands);
    mm_derive_floats(&d, in->operands, BRIM_WRITE, in->operands[MM_OUT]);
    return d.status;
}

static brim_status add_derive(brim_instruction *out, const brim_program *p,
                              const brim_instruction *in)
{
    brim__deriving d = brim__derive_begin(out, p, in, MM_COUNT);
    mm_require(&d, in->operands);
    if (d.status != BRIM_OK)
        return d.status;
    mm_derive_input(&d, in->operands);
    mm_derive_floats(&d, in->operands, BRIM_WRITE, in->operands[MM_OUT]);
    mm_derive_floats(&d, in->operands, BRIM_READ, in->operands[MM_ADD]);
    return d.status;
}

static brim_status gate_up_derive(brim_instruction *out, const brim_program *p,
                                  const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, MM_COUNT);
    mm_require(&d, o);
    require_tensor(&d, o[MM_TENSOR2], o[MM_ACT]);
    brim__derive_require(&d,
                         o[MM_FIRST] % 32 == 0 && o[MM_END] % 32 == 0 && o[MM_OUT_COLS] % 32 == 0,
                         "columns must come in blocks of 32");
    if (d.status != BRIM_OK)
        return d.status;
    brim__derive_require(&d, p->tensors[o[MM_TENSOR2]].desc.cols == (uint32_t)o[MM_COLS],
                         "up's columns are not gate's");
    mm_derive_input(&d, o);
    brim__derive_run(&d, 1, o[MM_TENSOR2], (uint32_t)o[MM_FIRST], (uint32_t)o[MM_END]);
    bool q16 = o[MM_OUT_ACT] == BRIM__ACT_Q16;
    uint64_t row_bytes = brim__act_row_bytes((brim__act)o[MM_OUT_ACT], (uint32_t)o[MM_OUT_COLS]);
    uint64_t block = q16 ? sizeof(brim__q16) : 32 * sizeof(float);
    brim__derive_rows(&d, BRIM_WRITE, o[MM_OUT], o[MM_STEP], STEP_ROWS, (uint32_t)o[MM_ROWS], 0, 1,
                      row_bytes, block * (uint64_t)(o[MM_FIRST] / 32),
                      block * (uint64_t)((o[MM_END] - o[MM_FIRST]) / 32));
    return d.status;
}

enum { MM_A_IN, MM_A_OUT, MM_A_ADD };

/* The product's rows are padded to whole tiles; the output's are not. */
static void matmul_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    uint32_t rows = env->run_counts[MM_A_IN];
    size_t cols = (size_t)(o[MM_END] - o[MM_FIRST]);
    size_t stride = product_cols(env->program, &env->instruction->runs[0]);
    float *out = env->access[MM_A_OUT];
    bool padded = stride != cols;
    float *y = padded ? env->scratch : out;
    product(y, stride, env, 0, o[MM_ACT], env->access[MM_A_IN], rows);
    for (uint32_t row = 0; padded && row < rows; row++)
        memcpy(out + row * cols, y + row * stride, 4 * cols);
}

static void add_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    const brim__kernels *k = brim__kernels_get(env->isa);
    uint32_t rows = env->run_counts[MM_A_IN];
    size_t cols = (size_t)(o[MM_END] - o[MM_FIRST]);
    matmul_body(env);
    const float *added = env->access[MM_A_ADD];
    for (uint32_t row = 0; row < rows; row++) {
        float *y = (float *)env->access[MM_A_OUT] + row * cols;
        k->add(y, added + (size_t)row * (uint32_t)o[MM_OUT_COLS], y, (uint32_t)cols);
    }
}

static void gate_up_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    const brim__kernels *k = brim__kernels_get(env->isa);
    uint32_t rows = env->run_counts[MM_A_IN], cols = (uint32_t)(o[MM_END] - o[MM_FIRST]);
    size_t gate_stride = product_cols(env->program, &env->instruction->runs[0]);
    size_t up_stride = product_cols(env->program, &env->instruction->runs[1]);
    float *gate = env->scratch, *up = gate + (size_t)o[MM_ROWS] * gate_stride;
    product(gate, gate_stride, env, 0, o[MM_ACT], env->access[MM_A_IN], rows);
    product(up, up_stride, env, 1, o[MM_ACT], env->access[MM_A_IN], rows);
    size_t out_bytes = env->instruction->accesses[MM_A_OUT].size;
    for (uint32_t row = 0; row < rows; row++) {
        float *g = gate + row * gate_stride;
        void *to = (char *)env->access[MM_A_OUT] + row * out_bytes;
        k->silu_mul(g, g, up + row * up_stride, cols);
        if (o[MM_OUT_ACT] == BRIM__ACT_Q16)
            k->quantize(to, g, cols);
        else
            memcpy(to, g, 4 * (size_t)cols);
    }
}

static size_t mm_scratch(const brim_program *p, const brim_instruction *in)
{
    size_t cols = product_cols(p, &in->runs[0]) + product_cols(p, &in->runs[1]);
    return 4 * cols * (size_t)in->operands[MM_ROWS];
}

static void mm_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    brim__matmul_cost(out, p, in, (uint32_t)in->operands[MM_ROWS]);
}

const brim_op_desc brim__op_MATMUL = {.name = "matmul",
                                      .body = matmul_body,
                                      .derive = matmul_derive,
                                      .cost = mm_cost,
                                      .scratch_bytes = mm_scratch};
const brim_op_desc brim__op_MATMUL_ADD = {.name = "matmul.add",
                                          .body = add_body,
                                          .derive = add_derive,
                                          .cost = mm_cost,
                                          .scratch_bytes = mm_scratch};
const brim_op_desc brim__op_GATE_UP = {.name = "gate.up",
                                       .body = gate_up_body,
                                       .derive = gate_up_derive,
                                       .cost = mm_cost,
                                       .scratch_bytes = mm_scratch};
