/* resident_model.h: a decoder in small as a program of the resident ops, for test_ops_resident.c:
 * made-up weights, every lane with tiles of every product, all vectors kept to be looked at. */
#ifndef RESIDENT_MODEL_H
#define RESIDENT_MODEL_H

#include "mix_program.h"

#include <math.h>

#include "program/ops_resident.h"

typedef struct shape {
    const char *name;
    brim_dtype type;
    uint32_t embed, ffn, kv_heads, group, head_size, vocab, layers;
    uint32_t slots, context, window;
    bool head_norm, halves, bias;
} shape;

typedef struct matrix {
    uint32_t rows, cols;
    uint16_t *bits; /* (rows, cols) */
    brim__tiling tiling;
    void *tiles;
} matrix;

enum { LAYERS_MAX = 2 };
#define NORM_EPSILON 0.01f /* large, so that its place matters */

typedef struct weights {
    const shape *s;
    matrix embedding, head, qkv[LAYERS_MAX], out[LAYERS_MAX], gate_up[LAYERS_MAX], down[LAYERS_MAX];
    float *attn_norm[LAYERS_MAX + 1], *ffn_norm[LAYERS_MAX]; /* attn_norm[layers]: the last norm */
    float *q_norm, *k_norm, *bias, *rope;
    uint16_t *pool; /* the KV pool at first */
    uint64_t pool_bytes;
} weights;

static inline uint32_t q_cols(const shape *s)
{
    return s->kv_heads * s->group * s->head_size;
}
static inline uint32_t qkv_cols(const shape *s)
{
    return brim__res_qkv_cols(s->kv_heads, s->group, s->head_size);
}
static inline uint32_t blocks_of(const shape *s) /* of a sequence */
{
    return (s->context + BRIM__KV_BLOCK - 1) / BRIM__KV_BLOCK;
}

/* Numbers are functions of a stream and an index. */
static inline float drawn(uint64_t stream, uint64_t index)
{
    return 2 * brim__random_float(41, stream, index) - 1;
}

static inline matrix matrix_make(brim_dtype type, uint32_t rows, uint32_t cols, float size,
                                 uint64_t stream)
{
    matrix m = {.rows = rows, .cols = cols};
    assert_int_equal(brim__tiling_mma8(&m.tiling, type, rows, cols), BRIM_OK);
    m.bits = malloc(2 * (size_t)rows * cols);
    m.tiles = aligned_alloc(64, (m.tiling.bytes + 63) / 64 * 64);
    assert_true(m.bits && m.tiles);
    for (size_t i = 0; i < (size_t)rows * cols; i++) {
        float x = size * drawn(stream, i);
        brim__halves_round(&m.bits[i], type, &x, 1);
    }
    brim__mma8_matrix sources = {.sources = {{m.bits, type, rows}}, .source_count = 1};
    assert_int_equal(
        brim__tile_mma8_pack(m.tiles, &m.tiling, &sources, 0, m.tiling.row_blocks, NULL, "w"),
        BRIM_OK);
    return m;
}

static inline void matrix_free(matrix *m)
{
    free(m->bits);
    free(m->tiles);
}

static inline float *vector_make(uint32_t n, float base, float size, uint64_t stream)
{
    float *v = malloc(4 * (size_t)n);
    assert_non_null(v);
    for (uint32_t i = 0; i < n; i++)
        v[i] = base + size * drawn(stream, i);
    return v;
}

static inline void weights_tables(weights *w)
{
    const shape *s = w->s;
    w->rope = malloc(4 * (size_t)s->context * s->head_size);
    for (uint32_t p = 0; p < s->context; p++)
        for (uint32_t i = 0; i < s->head_size / 2; i++) {
            double angle = p * pow(10000, -2.0 * i / s->head_size);
            w->rope[p * s->head_size + i] = (float)cos(angle);
            w->rope[p * s->head_size + s->head_size / 2 + i] = (float)sin(angle);
        }
    w->pool_bytes = (uint64_t)s->layers * s->kv_heads *
                    brim__res_kv_head_bytes(s->head_size, s->slots * blocks_of(s));
    w->pool = malloc(w->pool_bytes);
    for (uint64_t i = 0; i < w->pool_bytes / 2; i++) {
        float x = 2 * drawn(90, i);
        brim__halves_round(&w->pool[i], BRIM_DTYPE_F16, &x, 1);
    }
}

static inline weights weights_make(const shape *s)
{
    weights w = {.s = s};
    float d = sqrtf(3.0f / (float)s->embed), q = sqrtf(3.0f / (float)q_cols(s));
    float f = sqrtf(3.0f / (float)s->ffn);
    w.embedding = matrix_make(s->type, s->vocab, s->embed, 1.5f, 1);
    w.head = matrix_make(s->type, s->vocab, s->embed, 2 * d, 2);
    for (uint32_t n = 0; n < s->layers; n++) {
        w.qkv[n] = matrix_make(s->type, qkv_cols(s), s->embed, d, 10 + n);
        w.out[n] = matrix_make(s->type, s->embed, q_cols(s), q, 20 + n);
        w.gate_up[n] = matrix_make(s->type, 2 * s->ffn, s->embed, 2 * d, 30 + n);
        w.down[n] = matrix_make(s->type, s->embed, s->ffn, f, 40 + n);
        w.ffn_norm[n] = vector_make(s->embed, 1, 0.5f, 50 + n);
    }
    for (uint32_t n = 0; n <= s->layers; n++)
        w.attn_norm[n] = vector_make(s->embed, 1, 0.5f, 60 + n);
    w.q_norm = vector_make(s->head_size, 1, 0.5f, 70);
    w.k_norm = vector_make(s->head_size, 1, 0.5f, 71);
    w.bias = vector_make(qkv_cols(s), 0, 0.5f, 72);
    weights_tables(&w);
    return w;
}

static inline void weights_free(weights *w)
{
    matrix_free(&w->embedding);
    matrix_free(&w->head);
    for (uint32_t n = 0; n < w->s->layers; n++) {
        matrix_free(&w->qkv[n]);
        matrix_free(&w->out[n]);
        matrix_free(&w->gate_up[n]);
        matrix_free(&w->down[n]);
        free(w->ffn_norm[n]);
    }
    for (uint32_t n = 0; n <= w->s->layers; n++)
        free(w->attn_norm[n]);
    free(w->q_norm);
    free(w->k_norm);
    free(w->bias);
    free(w->rope);
    free(w->pool);
}

/* ---- the program ---- */

typedef struct layer_vectors {
    uint32_t y, ssq, qkv, parts, attended, y_mid, ssq_mid, x_mid, h, x;
} layer_vectors;

typedef struct model {
    const weights *w;
    uint32_t rows, lanes, splits;
    bool direct;
    mix m;
    brim_executor *x;
    uint32_t step, tables, history, kv, rope, q_norm, k_norm, bias, logits, result;
    uint32_t attn_norm[LAYERS_MAX + 1], ffn_norm[LAYERS_MAX];
    layer_vectors at[LAYERS_MAX + 1];
    uint32_t done, done_count;
    uint32_t tensors; /* added so far */
} model;

enum { TENSOR_EMBEDDING, TENSOR_HEAD, TENSOR_LAYERS };
enum { MATRIX_QKV, MATRIX_OUT, MATRIX_GATE_UP, MATRIX_DOWN, MATRICES };

static inline uint32_t named_buffer(model *m, const char *what, uint32_t n, uint64_t size,
                                    brim_buffer_role role, bool parity)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%u", what, n);
    return mix_buffer(&m->m, name, size, role, parity);
}

static inline void add_tensor(model *m, const char *what, uint32_t n, const matrix *from)
{
    char name[32];
    uint32_t index = 0;
    snprintf(name, sizeof name, "%s.%u", what, n);
    brim_tensor_desc desc = {name, from->tiling.type, from->rows, from->cols, BRIM_LAYOUT_MMA8};
    assert_int_equal(brim_builder_tensor(&index, m->m.builder, &desc), BRIM_OK);
    assert_int_equal(index, m->tensors++);
}

static inline void add_layer_buffers(model *m, uint32_t n)
{
    const shape *s = m->w->s;
    uint32_t r = m->rows, d = s->embed;
    layer_vectors *at = &m->at[n];
    brim_buffer_role scratch = BRIM_BUFFER_SCRATCH;
    m->attn_norm[n] = named_buffer(m, "attn_norm", n, 4 * d, BRIM_BUFFER_CONST, false);
    if (n > 0) {
        at->y = named_buffer(m, "y", n, brim__res_vector_bytes(r, d), scratch, true);
        at->ssq = named_buffer(m, "ssq", n, brim__res_ssq_bytes(r, d), scratch, true);
    }
    if (n == s->layers)
        return;
    uint64_t parts = brim__res_items_max(r, s->kv_heads, m->splits) *
                     brim__res_part_bytes(s->group, s->head_size);
    m->ffn_norm[n] = named_buffer(m, "ffn_norm", n, 4 * d, BRIM_BUFFER_CONST, false);
    at->qkv = named_buffer(m, "qkv", n, brim__res_vector_bytes(r, qkv_cols(s)), scratch, true);
    at->parts = named_buffer(m, "parts", n, parts, scratch, true);
    at->attended =
        named_buffer(m, "attended", n, brim__res_vector_bytes(r, q_cols(s)), scratch, true);
    at->y_mid = named_buffer(m, "y_mid", n, brim__res_vector_bytes(r, d), scratch, true);
    at->ssq_mid = named_buffer(m, "ssq_mid", n, brim__res_ssq_bytes(r, d), scratch, true);
    at->h = named_buffer(m, "h", n, brim__res_vector_bytes(r, s->ffn), scratch, true);
    at->x_mid = named_buffer(m, "x_mid", n, brim__res_x_bytes(r, d), scratch, false);
    at->x = named_buffer(m, "x", n, brim__res_x_bytes(r, d), scratch, false);
}

static inline void add_buffers(model *m)
{
    const shape *s = m->w->s;
    mix *x = &m->m;
    m->step = mix_buffer(x, "step", brim__step_bytes(m->rows), BRIM_BUFFER_INPUT, true);
    m->tables = mix_buffer(x, "tables", 4 * s->slots * blocks_of(s), BRIM_BUFFER_INPUT, false);
    m->history = mix_buffer(x, "history", 4 * s->slots * s->context, BRIM_BUFFER_STATE, false);
    m->kv = mix_buffer(x, "kv", m->w->pool_bytes, BRIM_BUFFER_STATE, false);
    m->rope = mix_buffer(x, "rope", 4 * s->context * s->head_size, BRIM_BUFFER_CONST, false);
    m->q_norm = mix_buffer(x, "q_norm", 4 * s->head_size, BRIM_BUFFER_CONST, false);
    m->k_norm = mix_buffer(x, "k_norm", 4 * s->head_size, BRIM_BUFFER_CONST, false);
    m->bias = mix_buffer(x, "bias", 4 * qkv_cols(s), BRIM_BUFFER_CONST, false);
    m->logits = mix_buffer(x, "logits", 4 * m->rows * s->vocab, BRIM_BUFFER_SCRATCH, false);
    m->result = mix_buffer(x, "result", 64, BRIM_BUFFER_OUTPUT, false);
    for (uint32_t n = 0; n <= s->layers; n++)
        add_layer_buffers(m, n);
    add_tensor(m, "embedding", 0, &m->w->embedding);
    add_tensor(m, "head", 0, &m->w->head);
    for (uint32_t n = 0; n < s->layers; n++) {
        add_tensor(m, "qkv", n, &m->w->qkv[n]);
        add_tensor(m, "out", n, &m->w->out[n]);
        add_tensor(m, "gate_up", n, &m->w->gate_up[n]);
        add_tensor(m, "down", n, &m->w->down[n]);
    }
}

static inline void add_instruction(model *m, uint32_t lane, brim_instruction *in, uint32_t operands)
{
    in->operand_count = (uint16_t)operands;
    if (brim_builder_derive(m->m.builder, in) != BRIM_OK)
        fail_msg("%s: %s", m->w->s->name, brim_last_message());
    mix_lane(&m->m, lane, in);
}

static inline brim_instruction product_of(const model *m, uint32_t op, uint32_t in_buffer,
                                          uint32_t out, uint32_t tensor)
{
    const shape *s = m->w->s;
    brim_instruction in = brim_instruction_make(op);
    int32_t *o = in.operands;
    for (int i = 0; i < RV_COUNT; i++)
        o[i] = -1;
    o[RV_STEP] = (int32_t)m->step;
    o[RV_IN] = (int32_t)in_buffer;
    o[RV_OUT] = (int32_t)out;
    o[RV_TENSOR] = (int32_t)tensor;
    o[RV_ROWS] = (int32_t)m->rows;
    o[RV_EPSILON] = brim__bits_of(NORM_EPSILON);
    o[RV_FROM] = RV_FROM_Y;
    o[RV_HEAD_SIZE] = (int32_t)s->head_size;
    o[RV_GROUP] = (int32_t)s->group;
    o[RV_WINDOW] = (int32_t)s->window;
    o[RV_SPLITS_MAX] = (int32_t)m->splits;
    return in;
}

/* Unit n goes to lane n % lanes; of the head, each lane gets units that follow one another. */
static inline void add_products(model *m, const brim_instruction *in, uint32_t units)
{
    bool head = in->op == BRIM__OP_R_HEAD;
    for (uint32_t lane = 0; lane < m->lanes; lane++) {
        brim_instruction one = *in;
        uint32_t begin = units * lane / m->lanes, end = units * (lane + 1) / m->lanes;
        one.operands[RV_FIRST] = (int32_t)(head ? begin : lane);
        one.operands[RV_STRIDE] = (int32_t)(head ? 1 : m->lanes);
        one.operands[RV_TILES] =
            (int32_t)(head ? end - begin : brim__res_share(units, lane, m->lanes));
        assert_true(one.operands[RV_TILES] > 0);
        if (head)
            mix_signal(&one, m->done);
        m->done_count += head;
        add_instruction(m, lane, &one, RV_COUNT);
    }
}

static inline void add_attention(model *m, uint32_t n)
{
    const shape *s = m->w->s;
    for (uint32_t lane = 0; lane < m->lanes; lane++) {
        brim_instruction in = brim_instruction_make(BRIM__OP_R_ATTN);
        const int32_t operands[RA_COUNT] = {
            [RA_STEP] = (int32_t)m->step,
            [RA_TABLES] = (int32_t)m->tables,
            [RA_QKV] = (int32_t)m->at[n].qkv,
            [RA_KV] = (int32_t)m->kv,
            [RA_PARTS] = (int32_t)m->at[n].parts,
            [RA_ROPE] = (int32_t)m->rope,
            [RA_Q_NORM] = s->head_norm ? (int32_t)m->q_norm : -1,
            [RA_K_NORM] = s->head_norm ? (int32_t)m->k_norm : -1,
            [RA_ROWS] = (int32_t)m->rows,
            [RA_LAYER] = (int32_t)n,
            [RA_KV_HEADS] = (int32_t)s->kv_heads,
            [RA_GROUP] = (int32_t)s->group,
            [RA_HEAD_SIZE] = (int32_t)s->head_size,
            [RA_BLOCKS] = (int32_t)(s->slots * blocks_of(s)),
            [RA_BLOCKS_MAX] = (int32_t)blocks_of(s),
            [RA_WINDOW] = (int32_t)s->window,
            [RA_SCALE] = brim__bits_of(1 / sqrtf((float)s->head_size)),
            [RA_EPSILON] = brim__bits_of(NORM_EPSILON),
            [RA_ROPE_HALVES] = s->halves,
            [RA_FIRST] = (int32_t)lane,
            [RA_BY] = (int32_t)m->lanes,
            [RA_SLOTS] = (int32_t)s->slots,
            [RA_SPLITS_MAX] = (int32_t)m->splits,
        };
        memcpy(in.operands, operands, sizeof operands);
        add_instruction(m, lane, &in, RA_COUNT);
    }
    for (uint32_t lane = 0; lane < m->lanes; lane++) {
        brim_instruction in = brim_instruction_make(BRIM__OP_R_COMBINE);
        const int32_t operands[RC_COUNT] = {
            [RC_STEP] = (int32_t)m->step,
            [RC_PARTS] = (int32_t)m->at[n].parts,
            [RC_OUT] = (int32_t)m->at[n].attended,
            [RC_ROWS] = (int32_t)m->rows,
            [RC_KV_HEADS] = (int32_t)s->kv_heads,
            [RC_GROUP] = (int32_t)s->group,
            [RC_HEAD_SIZE] = (int32_t)s->head_size,
            [RC_WINDOW] = (int32_t)s->window,
            [RC_SPLITS_MAX] = (int32_t)m->splits,
            [RC_TYPE] = (int32_t)s->type,
            [RC_FIRST] = (int32_t)lane,
            [RC_BY] = (int32_t)m->lanes,
        };
        memcpy(in.operands, operands, sizeof operands);
        add_instruction(m, lane, &in, RC_COUNT);
    }
}

static inline void add_residual(model *m, brim_instruction *in, uint32_t x_in, bool first,
                                uint32_t x_out, uint32_t ssq, uint32_t norm)
{
    in->operands[RV_ADD] = first ? -1 : (int32_t)x_in;
    in->operands[RV_EMBED] = first ? TENSOR_EMBEDDING : -1;
    in->operands[RV_X] = (int32_t)x_out;
    in->operands[RV_OUT_SSQ] = (int32_t)ssq;
    in->operands[RV_NORM_OUT] = (int32_t)norm;
    add_products(m, in, m->w->s->embed / 8);
}

static inline void add_layer(model *m, uint32_t n)
{
    const shape *s = m->w->s;
    layer_vectors *at = &m->at[n], *next = &m->at[n + 1];
    uint32_t tensor = TENSOR_LAYERS + n * MATRICES;
    brim_instruction in = product_of(m, BRIM__OP_R_QKV, at->y, at->qkv, tensor + MATRIX_QKV);
    in.operands[RV_IN_SSQ] = (int32_t)at->ssq;
    in.operands[RV_BIAS] = s->bias ? (int32_t)m->bias : -1;
    if (n == 0) {
        in.operands[RV_IN] = in.operands[RV_IN_SSQ] = -1;
        in.operands[RV_FROM] = RV_FROM_EMBED;
        in.operands[RV_NORM_IN] = (int32_t)m->attn_norm[0];
        in.operands[RV_EMBED] = TENSOR_EMBEDDING;
    }
    add_products(m, &in, qkv_cols(s) / 8);
    add_attention(m, n);
    in = product_of(m, BRIM__OP_R_OUT, m->direct ? at->parts : at->attended, at->y_mid,
                    tensor + MATRIX_OUT);
    in.operands[RV_FROM] = m->direct ? RV_FROM_PARTS : RV_FROM_Y;
    add_residual(m, &in, n ? m->at[n - 1].x : 0, n == 0, at->x_mid, at->ssq_mid, m->ffn_norm[n]);
    in = product_of(m, BRIM__OP_R_GATE_UP, at->y_mid, at->h, tensor + MATRIX_GATE_UP);
    in.operands[RV_IN_SSQ] = (int32_t)at->ssq_mid;
    add_products(m, &in, s->ffn / 8);
    in = product_of(m, BRIM__OP_R_DOWN, at->h, next->y, tensor + MATRIX_DOWN);
    add_residual(m, &in, at->x_mid, false, at->x, next->ssq, m->attn_norm[n + 1]);
}

static inline void add_append(model *m, uint32_t layer, uint32_t head)
{
    const shape *s = m->w->s;
    brim_instruction in = brim_instruction_make(BRIM__OP_R_APPEND);
    const int32_t operands[RP_COUNT] = {
        [RP_STEP] = (int32_t)m->step,
        [RP_TABLES] = (int32_t)m->tables,
        [RP_QKV] = (int32_t)m->at[layer].qkv,
        [RP_KV] = (int32_t)m->kv,
        [RP_ROPE] = (int32_t)m->rope,
        [RP_K_NORM] = s->head_norm ? (int32_t)m->k_norm : -1,
        [RP_AFTER] = (int32_t)m->at[s->layers].y,
        [RP_AFTER_COLS] = (int32_t)s->embed,
        [RP_ROWS] = (int32_t)m->rows,
        [RP_LAYER] = (int32_t)layer,
        [RP_KV_HEADS] = (int32_t)s->kv_heads,
        [RP_GROUP] = (int32_t)s->group,
        [RP_HEAD_SIZE] = (int32_t)s->head_size,
        [RP_BLOCKS] = (int32_t)(s->slots * blocks_of(s)),
        [RP_BLOCKS_MAX] = (int32_t)blocks_of(s),
        [RP_EPSILON] = brim__bits_of(NORM_EPSILON),
        [RP_ROPE_HALVES] = s->halves,
        [RP_HEAD] = (int32_t)head,
        [RP_SLOTS] = (int32_t)s->slots,
    };
    memcpy(in.operands, operands, sizeof operands);
    mix_signal(&in, m->done);
    m->done_count++;
    add_instruction(m, (layer + head) % m->lanes, &in, RP_COUNT);
}

static inline void add_ends(model *m)
{
    const shape *s = m->w->s;
    brim_instruction in =
        product_of(m, BRIM__OP_R_HEAD, m->at[s->layers].y, m->logits, TENSOR_HEAD);
    for (uint32_t n = 0; n < s->layers; n++)
        for (uint32_t head = 0; head < s->kv_heads; head++)
            add_append(m, n, head);
    in.operands[RV_IN_SSQ] = (int32_t)m->at[s->layers].ssq;
    add_products(m, &in, (s->vocab + 7) / 8);
    brim_instruction end = brim_instruction_make(m->m.op_end);
    mix_access(&end, BRIM_READ, m->step, 0, brim__step_bytes(m->rows));
    mix_access(&end, BRIM_WRITE, m->step, 0, brim__step_bytes(m->rows))->flags = BRIM_ACCESS_NEXT;
    mix_access(&end, BRIM_WRITE, m->result, 0, 64);
    mix_wait(&end, m->done, m->done_count);
    mix_lane(&m->m, 0, &end);
}

static inline void put(model *m, uint32_t buffer, const void *from, uint64_t size)
{
    memcpy(brim_executor_buffer(m->x, buffer, 0), from, size);
}

/* Sequence s has every slots-th block from the back on: tables are not the identity. */
static inline void fill_model(model *m)
{
    const weights *w = m->w;
    const shape *s = w->s;
    uint32_t *tables = brim_executor_buffer(m->x, m->tables, 0), blocks = blocks_of(s);
    for (uint32_t slot = 0; slot < s->slots; slot++)
        for (uint32_t b = 0; b < blocks; b++)
            tables[slot * blocks + b] = s->slots * (blocks - 1 - b) + slot;
    put(m, m->kv, w->pool, w->pool_bytes);
    put(m, m->rope, w->rope, 4 * (uint64_t)s->context * s->head_size);
    put(m, m->q_norm, w->q_norm, 4 * s->head_size);
    put(m, m->k_norm, w->k_norm, 4 * s->head_size);
    put(m, m->bias, w->bias, 4 * qkv_cols(s));
    brim_executor_bind_tensor(m->x, TENSOR_EMBEDDING, w->embedding.tiles);
    brim_executor_bind_tensor(m->x, TENSOR_HEAD, w->head.tiles);
    for (uint32_t n = 0; n < s->layers; n++) {
        const matrix *all[MATRICES] = {&w->qkv[n], &w->out[n], &w->gate_up[n], &w->down[n]};
        for (uint32_t k = 0; k < MATRICES; k++)
            brim_executor_bind_tensor(m->x, TENSOR_LAYERS + n * MATRICES + k, all[k]->tiles);
        put(m, m->ffn_norm[n], w->ffn_norm[n], 4 * s->embed);
    }
    for (uint32_t n = 0; n <= s->layers; n++)
        put(m, m->attn_norm[n], w->attn_norm[n], 4 * s->embed);
}

/* Builds, checks and makes ready to run. */
static inline model model_make(const weights *w, uint32_t rows, uint32_t lanes, bool direct,
                               brim_executor_kind kind)
{
    const shape *s = w->s;
    model m = {.w = w, .rows = rows, .lanes = lanes, .direct = direct};
    m.splits = brim__res_splits_of_context(s->context, s->window);
    m.m = mix_begin(lanes);
    add_buffers(&m);
    m.done = mix_counter(&m.m, "done");
    brim_instruction in = brim_instruction_make(BRIM__OP_R_BEGIN);
    in.operands[RB_STEP] = (int32_t)m.step;
    in.operands[RB_HISTORY] = (int32_t)m.history;
    in.operands[RB_ROWS] = (int32_t)rows;
    in.operands[RB_CONTEXT] = (int32_t)s->context;
    in.operands[RB_SLOTS] = (int32_t)s->slots;
    add_instruction(&m, 0, &in, RB_COUNT);
    for (uint32_t n = 0; n < s->layers; n++)
        add_layer(&m, n);
    add_ends(&m);
    mix_finish(&m.m);
    if (mix_check(&m.m) != BRIM_OK)
        fail_msg("%s: %s", s->name, brim_last_message());
    brim_executor_desc desc = brim_executor_desc_default();
    desc.kind = kind;
    desc.check_tables = kind == BRIM_EXECUTOR_REFERENCE;
    desc.seed = rows + lanes;
    assert_int_equal(brim_executor_create(&m.x, m.m.ctx, m.m.program, &desc), BRIM_OK);
    fill_model(&m);
    return m;
}

static inline void model_free(model *m)
{
    brim_executor_destroy(m->x);
    mix_end(&m->m);
}

typedef struct step_row {
    uint32_t token, position, slot;
} step_row;

/* One epoch; rows come out last first. Returns the epoch that ran. */
static inline uint64_t model_step(model *m, const step_row *rows, uint32_t count)
{
    uint64_t epoch = brim_executor_epoch(m->x);
    uint32_t *step = brim_executor_buffer(m->x, m->step, epoch);
    memset(step, 0, brim__step_bytes(m->rows));
    step[STEP_ROWS] = step[STEP_OUT] = count;
    for (uint32_t i = 0; i < count; i++) {
        step[brim__step_word(STEP_TOKEN, m->rows, i)] = rows[i].token;
        step[brim__step_word(STEP_POSITION, m->rows, i)] = rows[i].position;
        step[brim__step_word(STEP_SLOT, m->rows, i)] = rows[i].slot;
        step[brim__step_word(STEP_OUT_ROW, m->rows, i)] = count - 1 - i;
    }
    assert_int_equal(brim_executor_run(m->x, 1), BRIM_OK);
    return epoch;
}

#endif
