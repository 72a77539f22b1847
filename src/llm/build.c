/* build.c: a decoder of the Llama family as a program.
 *
 * All pieces stand in one queue in the order of stages: embed; in each layer norm, qkv, attention,
 * output, norm, gate and up, down; then norm, head, sample. A piece waits for all pieces of the
 * stage before it, so a stage's inputs are whole, and buffers may be used again some layers later.
 * Step-end is lane 0's own.
 *
 * How a stage is cut into pieces depends on the lanes; what a row of an output is does not.
 */
#include "llm/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    PIECE_BYTES = 24 << 10,        /* of tiles: below this a piece costs more than it helps */
    PIECES_PER_LANE = 6,           /* so that the last ones end together */
    PRODUCT_BYTES_MAX = 128 << 10, /* of a piece's product: it should stay in the L2 cache */
};

typedef struct build {
    brim_builder *builder;
    const brim_llm *llm;
    const brim__build_desc *desc;
    const brim_model_config *config;
    uint32_t queue;
    uint32_t wait_counter, wait_value; /* the stage before; BRIM_NONE at the start */
    uint32_t counter, pieces;          /* the stage being built */
    uint32_t kv_pieces;                /* of attn.split */
    brim_status status;
} build;

/* ---- small parts: a failure sticks, so that the layers read like the model ---- */

static void try(build *b, brim_status status)
{
    if (b->status == BRIM_OK)
        b->status = status;
}

static int32_t add_buffer(build *b, const char *name, uint64_t size, brim_buffer_role role,
                          bool parity)
{
    uint32_t index = 0;
    if (b->status == BRIM_OK)
        try(b,
            brim_builder_buffer(
                &index, b->builder,
                &(brim_buffer_desc){.name = name, .size = size, .role = role, .parity = parity}));
    return (int32_t)index;
}

/* `layer` is BRIM_NONE for a stage that stands once. */
static void begin_stage(build *b, uint32_t layer, const char *stage)
{
    char name[32];
    if (layer == BRIM_NONE)
        snprintf(name, sizeof name, "%s", stage);
    else
        snprintf(name, sizeof name, "%u.%s", layer, stage);
    b->counter = 0;
    b->pieces = 0;
    if (b->status == BRIM_OK)
        try(b, brim_builder_counter(&b->counter, b->builder, name));
}

static void end_stage(build *b)
{
    b->wait_counter = b->counter;
    b->wait_value = b->pieces;
}

static void finish_instruction(build *b, brim_instruction *in, uint32_t operand_count)
{
    in->operand_count = (uint16_t)operand_count;
    if (b->wait_counter != BRIM_NONE)
        in->waits[in->wait_count++] = (brim_wait){b->wait_counter, b->wait_value};
    if (b->status == BRIM_OK)
        try(b, brim_builder_derive(b->builder, in));
}

static void add_piece(build *b, brim_instruction *in, uint32_t operand_count)
{
    in->signals[in->signal_count++] = b->counter;
    finish_instruction(b, in, operand_count);
    if (b->status == BRIM_OK)
        try(b, brim_builder_piece(b->builder, b->queue, in));
    b->pieces++;
}

/* ---- tensors and vectors: their numbers follow from the order in which they are added ---- */

static int32_t layer_tensor(uint32_t layer, int matrix)
{
    return (int32_t)(2 + layer * MATRIX_COUNT + (uint32_t)matrix);
}

static int32_t vector_buffer(const build *b, uint32_t layer, int vector)
{
    /* final norm first, then those that each layer has, in their order */
    const brim__layer *layers = b->llm->layers;
    int32_t index = LLM_BUFFER_COUNT + 1;
    for (uint32_t n = 0; n <= layer; n++)
        for (int v = 0; v < VECTOR_COUNT && (n < layer || v < vector); v++)
            index += layers[n].vectors[v].values != NULL;
    return layers[layer].vectors[vector].values ? index : -1;
}

static void add_tensor(build *b, const brim__matrix *m, const char *name)
{
    uint32_t index;
    brim_tensor_desc desc = {
        .name = name, .type = m->tiling.type, .rows = m->tiling.rows, .cols = m->tiling.cols};
    if (b->status == BRIM_OK)
        try(b, brim_builder_tensor(&index, b->builder, &desc));
}

static void add_weights(build *b)
{
    static const char *const matrices[] = {
#define MATRIX_TEXT(name, text) text,
        BRIM__LAYER_MATRICES(MATRIX_TEXT)
#undef MATRIX_TEXT
    };
    static const char *const vectors[] = {
#define VECTOR_TEXT(name, text, present) text,
        BRIM__LAYER_VECTORS(VECTOR_TEXT)
#undef VECTOR_TEXT
    };
    char name[64];
    add_tensor(b, &b->llm->embedding, "token_embd");
    add_tensor(b, brim__llm_head(b->llm), "output");
    add_buffer(b, "output_norm", 4 * (uint64_t)b->llm->final_norm.count, BRIM_BUFFER_CONST, false);
    for (uint32_t n = 0; n < b->config->layer_count; n++) {
        for (int m = 0; m < MATRIX_COUNT; m++) {
            snprintf(name, sizeof name, "blk.%u.%s", n, matrices[m]);
            add_tensor(b, &b->llm->layers[n].matrices[m], name);
        }
        for (int v = 0; v < VECTOR_COUNT; v++) {
            const brim__vector *vector = &b->llm->layers[n].vectors[v];
            snprintf(name, sizeof name, "blk.%u.%s", n, vectors[v]);
            if (vector->values)
                add_buffer(b, name, 4 * (uint64_t)vector->count, BRIM_BUFFER_CONST, false);
        }
    }
}

void brim__build_sizes(uint64_t out[LLM_BUFFER_COUNT], const brim_model_config *c, uint32_t rows,
                       uint32_t slots, uint32_t context)
{
    const uint64_t sizes[LLM_BUFFER_COUNT] = {
        [LLM_BUFFER_STEP] = brim__step_bytes(rows),
        [LLM_BUFFER_TABLES] = 4 * (uint64_t)slots * (context / BRIM__KV_BLOCK),
        [LLM_BUFFER_PARAMS] = sizeof(brim__sample_params) * (uint64_t)slots,
        [LLM_BUFFER_HISTORY] = 4 * (uint64_t)slots * context,
        [LLM_BUFFER_MAIL] = 4 * (uint64_t)slots,
        [LLM_BUFFER_ENDS] = 4 * (ENDS_MAX + 1),
        [LLM_BUFFER_ROPE] = 4 * (uint64_t)context * c->rope_size,
        [LLM_BUFFER_RESULT] = sizeof(brim__sampled) * (uint64_t)RESULT_RING * (rows + 1),
        [LLM_BUFFER_LOGITS] = 4 * (uint64_t)rows * c->vocab_size,
    };
    memcpy(out, sizes, sizeof sizes);
}

static void add_shared_buffers(build *b)
{
    const brim__build_desc *d = b->desc;
    const brim_model_config *c = b->config;
    uint64_t block = brim__kv_block_bytes(c->head_size, d->numerics == BRIM_NUMERICS_EXACT);
    uint64_t sizes[LLM_BUFFER_COUNT];
    brim__build_sizes(sizes, c, d->rows, d->slots, d->context);
    sizes[LLM_BUFFER_KV] = 2 * block * d->kv_blocks * c->kv_head_count * c->layer_count;
    static const struct {
        const char *name;
        brim_buffer_role role;
    } kinds[LLM_BUFFER_COUNT] = {
#define BUFFER_KIND(id, text) [LLM_BUFFER_##id] = {text, BRIM_BUFFER_INPUT},
        BRIM__LLM_BUFFERS(BUFFER_KIND)
#undef BUFFER_KIND
    };
    for (int n = 0; n < LLM_BUFFER_COUNT; n++) {
        brim_buffer_role role = kinds[n].role;
        if (n == LLM_BUFFER_HISTORY || n == LLM_BUFFER_KV)
            role = BRIM_BUFFER_STATE;
        if (n == LLM_BUFFER_RESULT)
            role = BRIM_BUFFER_OUTPUT;
        if (n == LLM_BUFFER_LOGITS)
            role = BRIM_BUFFER_SCRATCH;
        if (n == LLM_BUFFER_ROPE || n == LLM_BUFFER_ENDS)
            role = BRIM_BUFFER_CONST;
        add_buffer(b, kinds[n].name, sizes[n], role, n == LLM_BUFFER_STEP);
    }
}

/* ---- pieces ---- */

static uint32_t gcd(uint32_t a, uint32_t b)
{
    return b ? gcd(b, a % b) : a;
}
static uint32_t lcm(uint32_t a, uint32_t b)
{
    return a / gcd(a, b) * b;
}

/* Columns [0, total) of an output in pieces of whole units. */
typedef struct cut {
    uint32_t total, step;
} cut;

static cut cut_columns(const build *b, uint32_t total, uint32_t unit, uint64_t bytes)
{
    uint32_t lanes = b->desc->lanes;
    uint64_t pieces = bytes / PIECE_BYTES;
    uint64_t most = lanes == 1 ? 1 : (uint64_t)lanes * PIECES_PER_LANE;
    pieces = pieces < 1 ? 1 : pieces > most ? most : pieces;
    uint64_t fit = PRODUCT_BYTES_MAX / (4 * (uint64_t)b->desc->rows);
    uint64_t step = (total + pieces - 1) / pieces;
    step = step > fit ? fit : step;
    step = (step + unit - 1) / unit * unit;
    return (cut){total, step < total ? (uint32_t)step : total};
}

static brim__act act_for(const build *b, const brim__matrix *const *matrices, int count)
{
    for (int i = 0; i < count; i++)
        if (brim_dtype_block(matrices[i]->tiling.type) == 1)
            return BRIM__ACT_F32;
    return b->desc->numerics == BRIM_NUMERICS_EXACT ? BRIM__ACT_F32 : BRIM__ACT_Q16;
}

/* ---- stages ---- */

static void embed_stage(build *b, int32_t x)
{
    begin_stage(b, BRIM_NONE, "embed");
    brim_instruction in = brim_instruction_make(BRIM__OP_EMBED);
    int32_t *o = in.operands;
    o[EMBED_STEP] = LLM_BUFFER_STEP;
    o[EMBED_X] = x;
    o[EMBED_HISTORY] = LLM_BUFFER_HISTORY;
    o[EMBED_TENSOR] = 0;
    o[EMBED_ROWS] = (int32_t)b->desc->rows;
    o[EMBED_CONTEXT] = (int32_t)b->desc->context;
    o[EMBED_SLOTS] = (int32_t)b->desc->slots;
    add_piece(b, &in, EMBED_COUNT);
    end_stage(b);
}

static void norm_stage(build *b, uint32_t layer, const char *name, int32_t x, int32_t weight,
                       int32_t out, brim__act act, bool gather)
{
    uint32_t by = b->desc->split ? 1 : 2 * b->desc->lanes;
    by = by < b->desc->rows ? by : b->desc->rows;
    begin_stage(b, layer, name);
    for (uint32_t first = 0; first < by; first++) {
        brim_instruction in = brim_instruction_make(BRIM__OP_NORM);
        int32_t *o = in.operands;
        o[NORM_STEP] = LLM_BUFFER_STEP;
        o[NORM_X] = x;
        o[NORM_WEIGHT] = weight;
        o[NORM_OUT] = out;
        o[NORM_ACT] = act;
        o[NORM_COLS] = (int32_t)b->config->embed_size;
        o[NORM_ROWS] = (int32_t)b->desc->rows;
        o[NORM_EPSILON] = brim__bits_of(b->config->norm_epsilon);
        o[NORM_GATHER] = gather;
        o[NORM_FIRST] = (int32_t)first;
        o[NORM_BY] = (int32_t)by;
        add_piece(b, &in, NORM_COUNT);
    }
    end_stage(b);
}

static void qkv_pieces(build *b, uint32_t layer, int kind, int32_t in_buffer, int32_t q,
                       brim__act act)
{
    static const int matrices[] = {MATRIX_Q, MATRIX_K, MATRIX_V};
    static const int biases[] = {VECTOR_Q_BIAS, VECTOR_K_BIAS, VECTOR_V_BIAS};
    const brim_model_config *c = b->config;
    const brim__tiling *t = &b->llm->layers[layer].matrices[matrices[kind]].tiling;
    uint32_t heads = kind == 0 ? c->head_count : c->kv_head_count;
    cut cuts = cut_columns(b, heads * c->head_size, lcm(t->tile_rows, c->head_size), t->bytes);
    for (uint32_t first = 0; first < cuts.total; first += cuts.step) {
        uint32_t end = first + cuts.step < cuts.total ? first + cuts.step : cuts.total;
        brim_instruction in = brim_instruction_make(BRIM__OP_QKV);
        int32_t *o = in.operands;
        o[QKV_STEP] = LLM_BUFFER_STEP;
        o[QKV_TABLES] = LLM_BUFFER_TABLES;
        o[QKV_IN] = in_buffer;
        o[QKV_OUT] = kind == 0 ? q : LLM_BUFFER_KV;
        o[QKV_TENSOR] = layer_tensor(layer, matrices[kind]);
        o[QKV_ROPE] = LLM_BUFFER_ROPE;
        o[QKV_BIAS] = vector_buffer(b, layer, biases[kind]);
        o[QKV_HEAD_NORM] =
            kind == 2 ? -1 : vector_buffer(b, layer, kind == 0 ? VECTOR_Q_NORM : VECTOR_K_NORM);
        o[QKV_ACT] = act;
        o[QKV_ROWS] = (int32_t)b->desc->rows;
        o[QKV_KIND] = kind;
        o[QKV_HEAD_FIRST] = (int32_t)(first / c->head_size);
        o[QKV_HEAD_COUNT] = (int32_t)((end - first) / c->head_size);
        o[QKV_HEAD_SIZE] = (int32_t)c->head_size;
        o[QKV_HEADS] = (int32_t)heads;
        o[QKV_LAYER] = (int32_t)layer;
        o[QKV_BLOCKS] = (int32_t)b->desc->kv_blocks;
        o[QKV_BLOCKS_MAX] = (int32_t)(b->desc->context / BRIM__KV_BLOCK);
        o[QKV_KV_F32] = b->desc->numerics == BRIM_NUMERICS_EXACT;
        o[QKV_ROPE_SIZE] = (int32_t)c->rope_size;
        o[QKV_ROPE_HALVES] = c->rope_kind == BRIM_ROPE_HALVES;
        o[QKV_EPSILON] = brim__bits_of(c->norm_epsilon);
        o[QKV_SLOTS] = (int32_t)b->desc->slots;
        add_piece(b, &in, QKV_COUNT);
    }
}

static brim_instruction attn_instruction(const build *b, brim__op op, uint32_t layer, brim__act act)
{
    const brim_model_config *c = b->config;
    brim_instruction in = brim_instruction_make(op);
    int32_t *o = in.operands;
    o[ATTN_STEP] = LLM_BUFFER_STEP;
    o[ATTN_TABLES] = LLM_BUFFER_TABLES;
    o[ATTN_KV] = LLM_BUFFER_KV;
    o[ATTN_ROWS] = (int32_t)b->desc->rows;
    o[ATTN_LAYER] = (int32_t)layer;
    o[ATTN_KV_HEADS] = (int32_t)c->kv_head_count;
    o[ATTN_GROUP] = (int32_t)(c->head_count / c->kv_head_count);
    o[ATTN_HEAD_SIZE] = (int32_t)c->head_size;
    o[ATTN_KV_F32] = b->desc->numerics == BRIM_NUMERICS_EXACT;
    o[ATTN_BLOCKS] = (int32_t)b->desc->kv_blocks;
    o[ATTN_BLOCKS_MAX] = (int32_t)(b->desc->context / BRIM__KV_BLOCK);
    o[ATTN_WINDOW] = (int32_t)c->sliding_window;
    o[ATTN_SCALE] = brim__bits_of(1.0f / sqrtf((float)c->head_size));
    o[ATTN_ACT] = act;
    o[ATTN_BY] = 1;
    o[ATTN_SLOTS] = (int32_t)b->desc->slots;
    return in;
}

static void split_stages(build *b, uint32_t layer, int32_t q, int32_t parts, int32_t out,
                         brim__act act)
{
    begin_stage(b, layer, "attn");
    for (uint32_t piece = 0; piece < b->kv_pieces; piece++) {
        brim_instruction in = attn_instruction(b, BRIM__OP_ATTN_SPLIT, layer, act);
        in.operands[ATTN_Q] = q;
        in.operands[ATTN_OUT] = parts;
        in.operands[ATTN_FIRST] = (int32_t)piece;
        in.operands[ATTN_BY] = (int32_t)b->kv_pieces;
        add_piece(b, &in, ATTN_COUNT);
    }
    end_stage(b);
    begin_stage(b, layer, "combine");
    brim_instruction in = attn_instruction(b, BRIM__OP_ATTN_COMBINE, layer, act);
    in.operands[ATTN_TABLES] = (int32_t)b->kv_pieces;
    in.operands[ATTN_Q] = parts;
    in.operands[ATTN_KV] = 0;
    in.operands[ATTN_OUT] = out;
    add_piece(b, &in, ATTN_COUNT);
    end_stage(b);
}

static void whole_stage(build *b, uint32_t layer, int32_t q, int32_t out, brim__act act)
{
    uint32_t heads = b->config->kv_head_count;
    uint32_t by = (b->desc->lanes * PIECES_PER_LANE + heads - 1) / heads;
    by = by < b->desc->rows ? by : b->desc->rows;
    begin_stage(b, layer, "attn");
    for (uint32_t head = 0; head < heads; head++)
        for (uint32_t first = 0; first < by; first++) {
            brim_instruction in = attn_instruction(b, BRIM__OP_ATTN, layer, act);
            in.operands[ATTN_Q] = q;
            in.operands[ATTN_OUT] = out;
            in.operands[ATTN_FIRST] = (int32_t)first;
            in.operands[ATTN_BY] = (int32_t)by;
            in.operands[ATTN_HEAD] = (int32_t)head;
            add_piece(b, &in, ATTN_COUNT);
        }
    end_stage(b);
}

/* The operands that all products share. */
static brim_instruction product(const build *b, brim__op op, int32_t in_buffer, int32_t out,
                                int32_t tensor, brim__act act, const brim__tiling *t,
                                uint32_t first, uint32_t end)
{
    brim_instruction in = brim_instruction_make(op);
    int32_t *o = in.operands;
    o[MM_STEP] = LLM_BUFFER_STEP;
    o[MM_IN] = in_buffer;
    o[MM_OUT] = out;
    o[MM_TENSOR] = tensor;
    o[MM_ACT] = act;
    o[MM_ROWS] = (int32_t)b->desc->rows;
    o[MM_COLS] = (int32_t)t->cols;
    o[MM_FIRST] = (int32_t)first;
    o[MM_END] = (int32_t)end;
    o[MM_OUT_COLS] = (int32_t)t->rows;
    return in;
}

static void add_stage(build *b, uint32_t layer, int matrix, const char *name, int32_t in_buffer,
                      int32_t residual, int32_t out, brim__act act)
{
    const brim__tiling *t = &b->llm->layers[layer].matrices[matrix].tiling;
    cut cuts = cut_columns(b, t->rows, t->tile_rows, t->bytes);
    begin_stage(b, layer, name);
    for (uint32_t first = 0; first < cuts.total; first += cuts.step) {
        uint32_t end = first + cuts.step < cuts.total ? first + cuts.step : cuts.total;
        brim_instruction in = product(b, BRIM__OP_MATMUL_ADD, in_buffer, out,
                                      layer_tensor(layer, matrix), act, t, first, end);
        in.operands[MM_ADD] = residual;
        add_piece(b, &in, MM_COUNT);
    }
    end_stage(b);
}

static void gate_up_stage(build *b, uint32_t layer, int32_t in_buffer, int32_t out, brim__act act,
                          brim__act out_act)
{
    const brim__tiling *gate = &b->llm->layers[layer].matrices[MATRIX_GATE].tiling;
    const brim__tiling *up = &b->llm->layers[layer].matrices[MATRIX_UP].tiling;
    uint32_t unit = lcm(lcm(gate->tile_rows, up->tile_rows), 32);
    cut cuts = cut_columns(b, gate->rows, unit, gate->bytes + up->bytes);
    begin_stage(b, layer, "gate_up");
    for (uint32_t first = 0; first < cuts.total; first += cuts.step) {
        uint32_t end = first + cuts.step < cuts.total ? first + cuts.step : cuts.total;
        brim_instruction in = product(b, BRIM__OP_GATE_UP, in_buffer, out,
                                      layer_tensor(layer, MATRIX_GATE), act, gate, first, end);
        in.operands[MM_TENSOR2] = layer_tensor(layer, MATRIX_UP);
        in.operands[MM_OUT_ACT] = out_act;
        add_piece(b, &in, MM_COUNT);
    }
    end_stage(b);
}

/* ---- the model ---- */

/* Buffers of one layer; those of layer n and of layer n + ring are the same memory. */
typedef struct layer_buffers {
    int32_t x, normed, q, parts, attended, x_mid, normed_mid, hidden;
} layer_buffers;

static int32_t layer_buffer(build *b, uint32_t n, const char *what, uint64_t row_bytes)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%u", what, n);
    return add_buffer(b, name, row_bytes * b->desc->rows, BRIM_BUFFER_SCRATCH, false);
}

static void add_layer_buffers(build *b, layer_buffers *out, uint32_t n)
{
    const brim_model_config *c = b->config;
    const brim__layer *layer = &b->llm->layers[n < c->layer_count ? n : 0];
    uint32_t q_size = c->head_count * c->head_size;
    uint64_t x_bytes = 4 * (uint64_t)c->embed_size;
    /* The wider format, so that layers of different types can share a buffer. */
    out->x = layer_buffer(b, n, "x", x_bytes);
    out->normed = layer_buffer(b, n, "normed", brim__act_row_bytes(BRIM__ACT_F32, c->embed_size));
    out->q = layer_buffer(b, n, "q", 4 * (uint64_t)q_size);
    out->attended = layer_buffer(b, n, "attended", brim__act_row_bytes(BRIM__ACT_F32, q_size));
    out->x_mid = layer_buffer(b, n, "x_mid", x_bytes);
    out->normed_mid =
        layer_buffer(b, n, "normed_mid", brim__act_row_bytes(BRIM__ACT_F32, c->embed_size));
    out->hidden =
        layer_buffer(b, n, "hidden",
                     brim__act_row_bytes(BRIM__ACT_F32, layer->matrices[MATRIX_GATE].tiling.rows));
    if (!b->desc->split)
        return;
    char name[32];
    snprintf(name, sizeof name, "parts.%u", n);
    uint64_t items = brim__attn_items(b->desc->rows, c->kv_head_count,
                                      b->desc->context / BRIM__KV_BLOCK, b->kv_pieces);
    out->parts = add_buffer(b, name,
                            b->kv_pieces * items * brim__part_bytes(c->head_size) *
                                (c->head_count / c->kv_head_count),
                            BRIM_BUFFER_SCRATCH, false);
}

static void add_layer(build *b, uint32_t n, const layer_buffers *at, int32_t next_x)
{
    const brim__matrix *m = b->llm->layers[n].matrices;
    brim__act qkv =
        act_for(b, (const brim__matrix *[]){&m[MATRIX_Q], &m[MATRIX_K], &m[MATRIX_V]}, 3);
    brim__act o = act_for(b, (const brim__matrix *[]){&m[MATRIX_O]}, 1);
    brim__act gate = act_for(b, (const brim__matrix *[]){&m[MATRIX_GATE], &m[MATRIX_UP]}, 2);
    brim__act down = act_for(b, (const brim__matrix *[]){&m[MATRIX_DOWN]}, 1);
    norm_stage(b, n, "norm", at->x, vector_buffer(b, n, VECTOR_ATTN_NORM), at->normed, qkv, false);
    begin_stage(b, n, "qkv");
    for (int kind = 0; kind < 3; kind++)
        qkv_pieces(b, n, kind, at->normed, at->q, qkv);
    end_stage(b);
    if (b->desc->split)
        split_stages(b, n, at->q, at->parts, at->attended, o);
    else
        whole_stage(b, n, at->q, at->attended, o);
    add_stage(b, n, MATRIX_O, "output", at->attended, at->x, at->x_mid, o);
    norm_stage(b, n, "norm_mid", at->x_mid, vector_buffer(b, n, VECTOR_FFN_NORM), at->normed_mid,
               gate, false);
    gate_up_stage(b, n, at->normed_mid, at->hidden, gate, down);
    add_stage(b, n, MATRIX_DOWN, "down", at->hidden, at->x_mid, next_x, down);
}

static void head_stages(build *b, int32_t x)
{
    const brim__matrix *head = brim__llm_head(b->llm);
    const brim__tiling *t = &head->tiling;
    brim__act act = act_for(b, &head, 1);
    int32_t normed = add_buffer(
        b, "normed_out", brim__act_row_bytes(BRIM__ACT_F32, b->config->embed_size) * b->desc->rows,
        BRIM_BUFFER_SCRATCH, false);
    norm_stage(b, BRIM_NONE, "norm_out", x, LLM_BUFFER_COUNT, normed, act, true);
    cut cuts = cut_columns(b, t->rows, t->tile_rows, t->bytes);
    begin_stage(b, BRIM_NONE, "head");
    for (uint32_t first = 0; first < cuts.total; first += cuts.step) {
        uint32_t end = first + cuts.step < cuts.total ? first + cuts.step : cuts.total;
        brim_instruction in =
            product(b, BRIM__OP_MATMUL, normed, LLM_BUFFER_LOGITS, 1, act, t, first, end);
        in.operands[MM_BY_OUT] = 1;
        add_piece(b, &in, MM_COUNT);
    }
    end_stage(b);
}

static void sample_stage(build *b, int32_t sampled)
{
    uint32_t by = b->desc->rows < 8 ? b->desc->rows : 8;
    by = b->desc->lanes == 1 ? 1 : by;
    begin_stage(b, BRIM_NONE, "sample");
    for (uint32_t first = 0; first < by; first++) {
        brim_instruction in = brim_instruction_make(BRIM__OP_SAMPLE);
        int32_t *o = in.operands;
        o[SAMPLE_STEP] = LLM_BUFFER_STEP;
        o[SAMPLE_LOGITS] = LLM_BUFFER_LOGITS;
        o[SAMPLE_PARAMS] = LLM_BUFFER_PARAMS;
        o[SAMPLE_HISTORY] = LLM_BUFFER_HISTORY;
        o[SAMPLE_OUT] = sampled;
        o[SAMPLE_ROWS] = (int32_t)b->desc->rows;
        o[SAMPLE_VOCAB] = (int32_t)brim__llm_head(b->llm)->tiling.rows;
        o[SAMPLE_LOGIT_COLS] = o[SAMPLE_VOCAB];
        o[SAMPLE_CONTEXT] = (int32_t)b->desc->context;
        o[SAMPLE_SLOTS] = (int32_t)b->desc->slots;
        o[SAMPLE_FIRST] = (int32_t)first;
        o[SAMPLE_BY] = (int32_t)by;
        add_piece(b, &in, SAMPLE_COUNT);
    }
    end_stage(b);
}

static void step_end(build *b, int32_t sampled)
{
    brim_instruction in = brim_instruction_make(BRIM__OP_STEP_END);
    int32_t *o = in.operands;
    o[END_STEP] = LLM_BUFFER_STEP;
    o[END_SAMPLED] = sampled;
    o[END_PARAMS] = LLM_BUFFER_PARAMS;
    o[END_ENDS] = LLM_BUFFER_ENDS;
    o[END_MAIL] = LLM_BUFFER_MAIL;
    o[END_RESULT] = LLM_BUFFER_RESULT;
    o[END_ROWS] = (int32_t)b->desc->rows;
    o[END_SLOTS] = (int32_t)b->desc->slots;
    finish_instruction(b, &in, END_COUNT);
    if (b->status == BRIM_OK)
        try(b, brim_builder_lane(b->builder, 0, &in));
}

static brim_status build_all(build *b)
{
    uint32_t layers = b->config->layer_count,
             ring = b->desc->ring < layers + 1 ? b->desc->ring : layers + 1;
    layer_buffers *at;
    add_shared_buffers(b);
    add_weights(b);
    BRIM_CALLOC(b->llm->ctx, at, ring);
    for (uint32_t n = 0; n < ring; n++)
        add_layer_buffers(b, &at[n], n);
    int32_t sampled = add_buffer(b, "sampled", sizeof(brim__sampled) * (uint64_t)b->desc->rows,
                                 BRIM_BUFFER_SCRATCH, false);
    if (b->status == BRIM_OK)
        try(b, brim_builder_queue(&b->queue, b->builder, "step"));
    for (uint32_t lane = 0; lane < b->desc->lanes && b->status == BRIM_OK; lane++)
        try(b, brim_builder_take(b->builder, lane, b->queue));
    embed_stage(b, at[0].x);
    for (uint32_t n = 0; n < layers; n++)
        add_layer(b, n, &at[n % ring], at[(n + 1) % ring].x);
    head_stages(b, at[layers % ring].x);
    sample_stage(b, sampled);
    step_end(b, sampled);
    brim__free(b->llm->ctx, at);
    return b->status;
}

brim_status brim__build_program(brim_program **out, brim_context *ctx, const brim_op_table *ops,
                                const brim_llm *llm, const brim__build_desc *desc)
{
    *out = NULL;
    build b = {.llm = llm,
               .desc = desc,
               .config = &llm->config,
               .wait_counter = BRIM_NONE,
               .kv_pieces = desc->lanes == 1 ? 1 : 2 * desc->lanes};
    BRIM_TRY(brim_builder_create(&b.builder, ctx, ops, desc->name, desc->lanes));
    brim_status status = build_all(&b);
    if (status == BRIM_OK)
        status = brim_builder_finish(out, b.builder);
    brim_builder_destroy(b.builder);
    return status;
}

brim_status brim__build_bind(brim_executor *x, const brim_program *program, const brim_llm *llm)
{
    BRIM_TRY(brim_executor_bind_tensor(x, 0, llm->embedding.tiles));
    BRIM_TRY(brim_executor_bind_tensor(x, 1, brim__llm_head(llm)->tiles));
    uint32_t buffer = LLM_BUFFER_COUNT;
    BRIM_TRY(brim_executor_bind_buffer(x, buffer++, llm->final_norm.values));
    for (uint32_t n = 0; n < llm->config.layer_count; n++) {
        for (int m = 0; m < MATRIX_COUNT; m++)
            BRIM_TRY(brim_executor_bind_tensor(x, (uint32_t)layer_tensor(n, m),
                                               llm->layers[n].matrices[m].tiles));
        for (int v = 0; v < VECTOR_COUNT; v++)
            if (llm->layers[n].vectors[v].values)
                BRIM_TRY(brim_executor_bind_buffer(x, buffer++, llm->layers[n].vectors[v].values));
    }
    (void)program;
    return BRIM_OK;
}

void brim__build_rope(float *out, const brim_llm *llm, uint32_t context)
{
    const brim_model_config *c = &llm->config;
    uint32_t half = c->rope_size / 2;
    for (uint32_t i = 0; i < half; i++) {
        double frequency = pow((double)c->rope_base, -2.0 * i / c->rope_size);
        if (llm->rope_factors.values && i < llm->rope_factors.count)
            frequency /= (double)llm->rope_factors.values[i];
        for (uint32_t position = 0; position < context; position++) {
            double angle = position / (double)c->rope_scale_linear * frequency;
            out[(size_t)position * c->rope_size + i] = (float)cos(angle);
            out[(size_t)position * c->rope_size + half + i] = (float)sin(angle);
        }
    }
}
