/* build_resident.c: a decoder of the Llama family as a resident program: every lane has a list of
 * its own and there are no queues, so that a lane knows which weights come next and can fetch them
 * before what they are multiplied with is there.
 *
 * Order comes from packets between stages. After the last layer: r.append (the KV pool of this
 * step, when all attention is done), r.head, sample, step-end; these use counters.
 *
 * Which lane computes a row depends on the lanes; what a row's bits are does not.
 */
#include "llm/build_resident.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Packets of a layer; -1 where there is none. Every layer has its own: an epoch writes them once.
 */
typedef struct layer_buffers {
    int32_t y, ssq; /* input of r.qkv; layer 0 reads the embedding */
    int32_t qkv, parts, attended, y_mid, ssq_mid, h;
} layer_buffers;

typedef struct build {
    brim_builder *builder;
    const brim_llm *llm;
    const brim__resident *weights;
    const brim__resident_desc *desc;
    const brim_model_config *config;
    uint32_t splits;     /* that a row may see */
    layer_buffers *at;   /* by layer, and one past the last for r.head */
    int32_t x[2], x_mid; /* the residual: layer n writes x[n % 2] */
    int32_t sampled;
    uint32_t rotate_qkv, rotate_gate_up;
    uint32_t begun, appended, head, sampled_counter; /* counters */
    uint32_t append_count, head_count;               /* signals */
    uint64_t *load;                                  /* by lane: bytes of weights of a layer */
    brim_status status;
} build;

/* ---- small parts: a failure sticks, so that the layers read like the model ---- */

static void try(build *b, brim_status status)
{
    if (b->status == BRIM_OK)
        b->status = status;
}

static int32_t add_buffer(build *b, const brim_buffer_desc *desc)
{
    uint32_t index = 0;
    if (b->status == BRIM_OK)
        try(b, brim_builder_buffer(&index, b->builder, desc));
    return (int32_t)index;
}

static int32_t add_scratch(build *b, const char *what, uint32_t n, uint64_t size, bool packets)
{
    char name[32];
    if (n == BRIM_NONE)
        snprintf(name, sizeof name, "%s", what);
    else
        snprintf(name, sizeof name, "%s.%u", what, n);
    return add_buffer(
        b, &(brim_buffer_desc){
               .name = name, .size = size, .role = BRIM_BUFFER_SCRATCH, .parity = packets});
}

static uint32_t add_counter(build *b, const char *name)
{
    uint32_t index = 0;
    if (b->status == BRIM_OK)
        try(b, brim_builder_counter(&index, b->builder, name));
    return index;
}

static void add(build *b, uint32_t lane, brim_instruction *in, uint32_t operand_count)
{
    in->operand_count = (uint16_t)operand_count;
    if (b->status == BRIM_OK)
        try(b, brim_builder_derive(b->builder, in));
    if (b->status == BRIM_OK)
        try(b, brim_builder_lane(b->builder, lane, in));
}

static void wait_for(brim_instruction *in, uint32_t counter, uint32_t value)
{
    in->waits[in->wait_count++] = (brim_wait){counter, value};
}

static void signals(brim_instruction *in, uint32_t counter)
{
    in->signals[in->signal_count++] = counter;
}

/* ---- shapes ---- */

uint32_t brim__resident_splits(const brim_model_config *c, uint32_t context)
{
    uint32_t all = (context + BRIM__RES_SPLIT - 1) / BRIM__RES_SPLIT;
    /* A window of w positions touches at most this many. */
    uint32_t w = c->sliding_window, seen = w > 1 ? (w - 2) / BRIM__RES_SPLIT + 2 : w;
    return w && seen < all ? seen : all;
}

uint32_t brim__resident_direct_end(const brim_model_config *c, uint32_t context)
{
    return brim__resident_splits(c, context) <= BRIM__RES_DIRECT_MAX
               ? UINT32_MAX
               : BRIM__RES_DIRECT_MAX * BRIM__RES_SPLIT;
}

static uint32_t q_size(const brim_model_config *c)
{
    return c->head_count * c->head_size;
}

static uint32_t group_of(const brim_model_config *c)
{
    return c->head_count / c->kv_head_count;
}

static uint32_t items_of(const brim_model_config *c, uint32_t rows, uint32_t splits)
{
    return rows * c->kv_head_count * splits;
}

static uint64_t parts_bytes(const brim_model_config *c, uint32_t rows, uint32_t splits)
{
    return items_of(c, rows, splits) * brim__res_part_bytes(group_of(c), c->head_size);
}

uint64_t brim__resident_kv_bytes(const brim_model_config *c, uint32_t kv_blocks)
{
    return 2 * c->kv_elements_per_position * BRIM__KV_BLOCK * kv_blocks;
}

static uint64_t buffer_bytes(const brim_buffer_desc *desc)
{
    return (desc->size + 511) / 512 * 512 * (desc->parity ? 2 : 1);
}

uint64_t brim__resident_buffer_bytes(const brim_program *program)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < brim_program_buffer_count(program); i++) {
        const brim_buffer_desc *desc = brim_program_buffer(program, i);
        if (i >= LLM_BUFFER_COUNT || i == LLM_BUFFER_STEP || i == LLM_BUFFER_LOGITS)
            bytes += desc->role == BRIM_BUFFER_CONST ? 0 : buffer_bytes(desc);
    }
    return bytes;
}

static uint64_t program_about(const brim_model_config *c, uint32_t rows, uint32_t splits)
{
    uint32_t qkv = (c->head_count + 2 * c->kv_head_count) * c->head_size;
    uint64_t layer = 2 * (brim__res_vector_bytes(rows, c->embed_size) +
                          brim__res_ssq_bytes(rows, c->embed_size)) +
                     brim__res_vector_bytes(rows, qkv) + brim__res_vector_bytes(rows, q_size(c)) +
                     brim__res_vector_bytes(rows, c->ffn_size) + parts_bytes(c, rows, splits);
    return 2 * (layer + 8 * 512) * c->layer_count + 3 * brim__res_x_bytes(rows, c->embed_size) +
           4 * (uint64_t)rows * c->vocab_size;
}

uint64_t brim__resident_buffers_about(const brim_model_config *c, uint32_t context)
{
    uint64_t bytes = 0;
    uint32_t splits = brim__resident_splits(c, context);
    for (uint32_t rows = 1; rows <= BRIM__RES_ROWS_MAX; rows += BRIM__RES_ROWS_MAX - 1) {
        bool both = splits > BRIM__RES_DIRECT_MAX;
        bytes += program_about(c, rows, both ? BRIM__RES_DIRECT_MAX : splits);
        bytes += both ? program_about(c, rows, splits) : 0;
    }
    return bytes;
}

/* ---- tensors, vectors and buffers: their numbers follow from the order of adding ---- */

enum { TENSOR_EMBEDDING, TENSOR_HEAD, TENSOR_FIRST };

static int32_t layer_tensor(uint32_t layer, int matrix)
{
    return (int32_t)(TENSOR_FIRST + layer * RES_MATRIX_COUNT + (uint32_t)matrix);
}

static int32_t final_norm(void)
{
    return LLM_BUFFER_COUNT;
}

/* All layers have the same vectors. */
static int32_t vector_buffer(const build *b, uint32_t layer, int vector)
{
    const brim__res_vector *v = b->weights->layers[0].vectors;
    uint32_t before = 0, all = 0;
    for (int i = 0; i < RES_VECTOR_COUNT; i++) {
        before += i < vector && v[i].count;
        all += v[i].count != 0;
    }
    return v[vector].count ? (int32_t)(LLM_BUFFER_COUNT + 1 + layer * all + before) : -1;
}

static void add_tensor(build *b, const brim__res_matrix *m, const char *name)
{
    uint32_t index;
    brim_tensor_desc desc = {.name = name,
                             .type = b->weights->type,
                             .rows = m->rows,
                             .cols = m->cols,
                             .layout = BRIM_LAYOUT_MMA8};
    if (b->status == BRIM_OK)
        try(b, brim_builder_tensor(&index, b->builder, &desc));
}

static void add_vector(build *b, const brim__res_vector *v, const char *name)
{
    if (v->count)
        add_buffer(b, &(brim_buffer_desc){
                          .name = name, .size = 4 * (uint64_t)v->count, .role = BRIM_BUFFER_CONST});
}

static void add_weights(build *b)
{
    static const char *const matrices[] = {
#define MATRIX_TEXT(name, text) text,
        BRIM__RES_MATRICES(MATRIX_TEXT)
#undef MATRIX_TEXT
    };
    static const char *const vectors[] = {
#define VECTOR_TEXT(name, text) text,
        BRIM__RES_VECTORS(VECTOR_TEXT)
#undef VECTOR_TEXT
    };
    const brim__resident *w = b->weights;
    char name[64];
    add_tensor(b, &w->embedding, "token_embd");
    add_tensor(b, &w->head, "output");
    add_vector(b, &w->final_norm, "output_norm");
    for (uint32_t n = 0; n < b->config->layer_count; n++) {
        for (int m = 0; m < RES_MATRIX_COUNT; m++) {
            snprintf(name, sizeof name, "blk.%u.%s", n, matrices[m]);
            add_tensor(b, &w->layers[n].matrices[m], name);
        }
        for (int v = 0; v < RES_VECTOR_COUNT; v++) {
            snprintf(name, sizeof name, "blk.%u.%s", n, vectors[v]);
            add_vector(b, &w->layers[n].vectors[v], name);
        }
    }
}

static void add_shared_buffers(build *b)
{
    const brim__resident_desc *d = b->desc;
    uint64_t sizes[LLM_BUFFER_COUNT];
    brim__build_sizes(sizes, b->config, d->rows, d->slots, d->context);
    sizes[LLM_BUFFER_KV] = brim__resident_kv_bytes(b->config, d->kv_blocks);
    static const char *const names[] = {
#define BUFFER_TEXT(id, text) text,
        BRIM__LLM_BUFFERS(BUFFER_TEXT)
#undef BUFFER_TEXT
    };
    static const brim_buffer_role roles[LLM_BUFFER_COUNT] = {
        [LLM_BUFFER_STEP] = BRIM_BUFFER_INPUT,    [LLM_BUFFER_TABLES] = BRIM_BUFFER_INPUT,
        [LLM_BUFFER_PARAMS] = BRIM_BUFFER_INPUT,  [LLM_BUFFER_HISTORY] = BRIM_BUFFER_STATE,
        [LLM_BUFFER_MAIL] = BRIM_BUFFER_INPUT,    [LLM_BUFFER_ENDS] = BRIM_BUFFER_INPUT,
        [LLM_BUFFER_KV] = BRIM_BUFFER_STATE,      [LLM_BUFFER_ROPE] = BRIM_BUFFER_CONST,
        [LLM_BUFFER_RESULT] = BRIM_BUFFER_OUTPUT, [LLM_BUFFER_LOGITS] = BRIM_BUFFER_SCRATCH,
    };
    for (int n = 0; n < LLM_BUFFER_COUNT; n++)
        add_buffer(b, &(brim_buffer_desc){
                          .name = names[n],
                          .size = sizes[n],
                          .role = roles[n],
                          .parity = n == LLM_BUFFER_STEP,
                          .mapped = n == LLM_BUFFER_MAIL || n == LLM_BUFFER_RESULT,
                      });
}

static void add_layer_buffers(build *b, uint32_t n)
{
    const brim_model_config *c = b->config;
    uint32_t rows = b->desc->rows, d = c->embed_size;
    uint32_t qkv = (c->head_count + 2 * c->kv_head_count) * c->head_size;
    layer_buffers *at = &b->at[n];
    *at = (layer_buffers){-1, -1, -1, -1, -1, -1, -1, -1};
    if (n > 0) {
        at->y = add_scratch(b, "y", n, brim__res_vector_bytes(rows, d), true);
        at->ssq = add_scratch(b, "ssq", n, brim__res_ssq_bytes(rows, d), true);
    }
    if (n == c->layer_count)
        return;
    at->qkv = add_scratch(b, "qkv", n, brim__res_vector_bytes(rows, qkv), true);
    at->parts = add_scratch(b, "parts", n, parts_bytes(c, rows, b->splits), true);
    if (!b->desc->direct)
        at->attended = add_scratch(b, "attended", n, brim__res_vector_bytes(rows, q_size(c)), true);
    at->y_mid = add_scratch(b, "y_mid", n, brim__res_vector_bytes(rows, d), true);
    at->ssq_mid = add_scratch(b, "ssq_mid", n, brim__res_ssq_bytes(rows, d), true);
    at->h = add_scratch(b, "h", n, brim__res_vector_bytes(rows, c->ffn_size), true);
}

static void add_own_buffers(build *b)
{
    uint64_t x_bytes = brim__res_x_bytes(b->desc->rows, b->config->embed_size);
    for (uint32_t n = 0; n <= b->config->layer_count; n++)
        add_layer_buffers(b, n);
    b->x[0] = add_scratch(b, "x", 0, x_bytes, false);
    b->x[1] = add_scratch(b, "x", 1, x_bytes, false);
    b->x_mid = add_scratch(b, "x_mid", BRIM_NONE, x_bytes, false);
    b->sampled = add_scratch(b, "sampled", BRIM_NONE,
                             sizeof(brim__sampled) * (uint64_t)b->desc->rows, false);
    b->begun = add_counter(b, "begun");
    b->appended = add_counter(b, "appended");
    b->head = add_counter(b, "head");
    b->sampled_counter = add_counter(b, "sampled");
}

/* ---- which lane has which tiles ---- */

/* `count` things dealt out one by one, the first to lane `rotate`. */
typedef struct deal {
    uint32_t count, lanes, rotate;
} deal;

static uint32_t deal_first(const deal *d, uint32_t lane)
{
    return (lane + d->lanes - d->rotate) % d->lanes;
}

static uint32_t deal_count(const deal *d, uint32_t lane)
{
    uint32_t first = deal_first(d, lane);
    return first < d->count ? (d->count - first - 1) / d->lanes + 1 : 0;
}

static uint32_t tiles_of(uint32_t rows)
{
    return (rows + BRIM__RES_TILE - 1) / BRIM__RES_TILE;
}

static const brim__res_matrix *matrix_of(const build *b, uint32_t layer, int matrix)
{
    return &b->weights->layers[layer].matrices[matrix];
}

static deal deal_of(const build *b, int matrix)
{
    uint32_t tiles = tiles_of(matrix_of(b, 0, matrix)->rows), lanes = b->desc->lanes;
    if (matrix == RES_MATRIX_GATE_UP)
        return (deal){tiles / 2, lanes, b->rotate_gate_up};
    return (deal){tiles, lanes, matrix == RES_MATRIX_QKV ? b->rotate_qkv : 0};
}

static void add_load(build *b, int matrix)
{
    deal d = deal_of(b, matrix);
    uint64_t bytes = 16 * (uint64_t)matrix_of(b, 0, matrix)->cols;
    if (matrix == RES_MATRIX_GATE_UP)
        bytes *= 2;
    for (uint32_t lane = 0; lane < d.lanes; lane++)
        b->load[lane] += bytes * deal_count(&d, lane);
}

/* Where to begin so that those lanes get one more that have least: the smallest largest load, then
 * the smallest sum of squares, then least on the lanes that have attention to do. */
static uint32_t best_rotation(const build *b, int matrix)
{
    deal d = deal_of(b, matrix);
    double one = 16.0 * matrix_of(b, 0, matrix)->cols * (matrix == RES_MATRIX_GATE_UP ? 2 : 1);
    uint32_t items = items_of(b->config, b->desc->rows, b->splits), best = 0;
    double least[3] = {0};
    for (uint32_t rotate = 0; rotate < d.lanes; rotate++) {
        double cost[3] = {0};
        d.rotate = rotate;
        for (uint32_t lane = 0; lane < d.lanes; lane++) {
            double load = (double)b->load[lane] + one * deal_count(&d, lane);
            cost[0] = fmax(cost[0], load);
            cost[1] += load * load;
            cost[2] += lane < items ? load : 0;
        }
        int k = 0;
        while (k < 2 && cost[k] == least[k])
            k++;
        if (rotate == 0 || cost[k] < least[k]) {
            memcpy(least, cost, sizeof least);
            best = rotate;
        }
    }
    return best;
}

/* Of `extra` lanes that get one tile more: those with the smallest load, of equals the last. */
static bool gets_more(const build *b, uint32_t lane, uint32_t extra)
{
    uint32_t before = 0;
    for (uint32_t other = 0; other < b->desc->lanes; other++)
        before +=
            b->load[other] < b->load[lane] || (b->load[other] == b->load[lane] && other > lane);
    return before < extra;
}

static uint32_t head_tiles(const build *b, uint32_t lane)
{
    uint32_t tiles = tiles_of(b->weights->head.rows), lanes = b->desc->lanes;
    return tiles / lanes + gets_more(b, lane, tiles % lanes);
}

static brim_status deal_out(build *b)
{
    BRIM_CALLOC(b->llm->ctx, b->load, b->desc->lanes);
    add_load(b, RES_MATRIX_OUT);
    add_load(b, RES_MATRIX_DOWN);
    b->rotate_gate_up = best_rotation(b, RES_MATRIX_GATE_UP);
    add_load(b, RES_MATRIX_GATE_UP);
    b->rotate_qkv = best_rotation(b, RES_MATRIX_QKV);
    add_load(b, RES_MATRIX_QKV);
    return BRIM_OK;
}

/* ---- instructions ---- */

static void begin_stage(build *b)
{
    brim_instruction in = brim_instruction_make(BRIM__OP_R_BEGIN);
    int32_t *o = in.operands;
    o[RB_STEP] = LLM_BUFFER_STEP;
    o[RB_HISTORY] = LLM_BUFFER_HISTORY;
    o[RB_ROWS] = (int32_t)b->desc->rows;
    o[RB_CONTEXT] = (int32_t)b->desc->context;
    o[RB_SLOTS] = (int32_t)b->desc->slots;
    signals(&in, b->begun);
    signals(&in, b->appended);
    b->append_count++;
    add(b, 0, &in, RB_COUNT);
}

/* What the products share; -1 where an op has none. */
static brim_instruction product(const build *b, uint32_t op, int32_t from, int32_t out,
                                int32_t tensor)
{
    const brim_model_config *c = b->config;
    brim_instruction in = brim_instruction_make(op);
    int32_t *o = in.operands;
    o[RV_STEP] = LLM_BUFFER_STEP;
    o[RV_IN] = from;
    o[RV_IN_SSQ] = o[RV_NORM_IN] = -1;
    o[RV_OUT] = out;
    o[RV_OUT_SSQ] = o[RV_NORM_OUT] = o[RV_ADD] = o[RV_X] = o[RV_BIAS] = -1;
    o[RV_TENSOR] = tensor;
    o[RV_EMBED] = -1;
    o[RV_ROWS] = (int32_t)b->desc->rows;
    o[RV_STRIDE] = 1;
    o[RV_EPSILON] = brim__bits_of(c->norm_epsilon);
    o[RV_FROM] = RV_FROM_Y;
    o[RV_HEAD_SIZE] = (int32_t)c->head_size;
    o[RV_GROUP] = (int32_t)group_of(c);
    o[RV_WINDOW] = (int32_t)c->sliding_window;
    o[RV_SPLITS_MAX] = (int32_t)b->splits;
    return in;
}

/* One instruction for each lane that has tiles (units). */
static void add_products(build *b, const brim_instruction *in, const deal *d, bool last)
{
    for (uint32_t lane = 0; lane < d->lanes; lane++) {
        uint32_t count = deal_count(d, lane);
        if (count == 0)
            continue;
        brim_instruction one = *in;
        one.operands[RV_FIRST] = (int32_t)deal_first(d, lane);
        one.operands[RV_STRIDE] = (int32_t)d->lanes;
        one.operands[RV_TILES] = (int32_t)count;
        /* The residual that the last of them writes is in no packet: where no later instruction of
         * the lane says that it is done, it says so itself. */
        if (last && head_tiles(b, lane) == 0) {
            signals(&one, b->appended);
            b->append_count++;
        }
        add(b, lane, &one, RV_COUNT);
    }
}

static void qkv_stage(build *b, uint32_t n)
{
    const layer_buffers *at = &b->at[n];
    deal d = deal_of(b, RES_MATRIX_QKV);
    brim_instruction in =
        product(b, BRIM__OP_R_QKV, at->y, at->qkv, layer_tensor(n, RES_MATRIX_QKV));
    in.operands[RV_IN_SSQ] = at->ssq;
    in.operands[RV_BIAS] = vector_buffer(b, n, RES_VECTOR_QKV_BIAS);
    if (n == 0) {
        in.operands[RV_FROM] = RV_FROM_EMBED;
        in.operands[RV_EMBED] = TENSOR_EMBEDDING;
        in.operands[RV_NORM_IN] = vector_buffer(b, n, RES_VECTOR_ATTN_NORM);
    }
    add_products(b, &in, &d, false);
}

static void attn_stage(build *b, uint32_t n)
{
    const brim_model_config *c = b->config;
    uint32_t items = items_of(c, b->desc->rows, b->splits);
    uint32_t by = items < b->desc->lanes ? items : b->desc->lanes;
    brim_instruction in = brim_instruction_make(BRIM__OP_R_ATTN);
    int32_t *o = in.operands;
    o[RA_STEP] = LLM_BUFFER_STEP;
    o[RA_TABLES] = LLM_BUFFER_TABLES;
    o[RA_QKV] = b->at[n].qkv;
    o[RA_KV] = LLM_BUFFER_KV;
    o[RA_PARTS] = b->at[n].parts;
    o[RA_ROPE] = LLM_BUFFER_ROPE;
    o[RA_Q_NORM] = vector_buffer(b, n, RES_VECTOR_Q_NORM);
    o[RA_K_NORM] = vector_buffer(b, n, RES_VECTOR_K_NORM);
    o[RA_ROWS] = (int32_t)b->desc->rows;
    o[RA_LAYER] = (int32_t)n;
    o[RA_KV_HEADS] = (int32_t)c->kv_head_count;
    o[RA_GROUP] = (int32_t)group_of(c);
    o[RA_HEAD_SIZE] = (int32_t)c->head_size;
    o[RA_BLOCKS] = (int32_t)b->desc->kv_blocks;
    o[RA_BLOCKS_MAX] = (int32_t)(b->desc->context / BRIM__KV_BLOCK);
    o[RA_WINDOW] = (int32_t)c->sliding_window;
    o[RA_SCALE] = brim__bits_of(1.0f / sqrtf((float)c->head_size));
    o[RA_EPSILON] = brim__bits_of(c->norm_epsilon);
    o[RA_ROPE_HALVES] = c->rope_kind == BRIM_ROPE_HALVES;
    o[RA_BY] = (int32_t)by;
    o[RA_SLOTS] = (int32_t)b->desc->slots;
    o[RA_SPLITS_MAX] = (int32_t)b->splits;
    for (uint32_t piece = 0; piece < by; piece++) {
        brim_instruction one = in;
        one.operands[RA_FIRST] = (int32_t)piece;
        add(b, piece, &one, RA_COUNT);
    }
}

static void combine_stage(build *b, uint32_t n)
{
    const brim_model_config *c = b->config;
    uint32_t units = q_size(c) / 32;
    uint32_t by = units < b->desc->lanes ? units : b->desc->lanes;
    for (uint32_t piece = 0; piece < by; piece++) {
        brim_instruction in = brim_instruction_make(BRIM__OP_R_COMBINE);
        int32_t *o = in.operands;
        o[RC_STEP] = LLM_BUFFER_STEP;
        o[RC_PARTS] = b->at[n].parts;
        o[RC_OUT] = b->at[n].attended;
        o[RC_ROWS] = (int32_t)b->desc->rows;
        o[RC_KV_HEADS] = (int32_t)c->kv_head_count;
        o[RC_GROUP] = (int32_t)group_of(c);
        o[RC_HEAD_SIZE] = (int32_t)c->head_size;
        o[RC_WINDOW] = (int32_t)c->sliding_window;
        o[RC_SPLITS_MAX] = (int32_t)b->splits;
        o[RC_TYPE] = (int32_t)b->weights->type;
        o[RC_FIRST] = (int32_t)piece;
        o[RC_BY] = (int32_t)by;
        add(b, piece, &in, RC_COUNT);
    }
}

static void out_stage(build *b, uint32_t n)
{
    const layer_buffers *at = &b->at[n];
    deal d = deal_of(b, RES_MATRIX_OUT);
    brim_instruction in = product(b, BRIM__OP_R_OUT, b->desc->direct ? at->parts : at->attended,
                                  at->y_mid, layer_tensor(n, RES_MATRIX_OUT));
    int32_t *o = in.operands;
    o[RV_FROM] = b->desc->direct ? RV_FROM_PARTS : RV_FROM_Y;
    o[RV_OUT_SSQ] = at->ssq_mid;
    o[RV_NORM_OUT] = vector_buffer(b, n, RES_VECTOR_FFN_NORM);
    o[RV_ADD] = n == 0 ? -1 : b->x[(n - 1) % 2];
    o[RV_EMBED] = n == 0 ? TENSOR_EMBEDDING : -1;
    o[RV_X] = b->x_mid;
    add_products(b, &in, &d, false);
}

static void gate_up_stage(build *b, uint32_t n)
{
    const layer_buffers *at = &b->at[n];
    deal d = deal_of(b, RES_MATRIX_GATE_UP);
    brim_instruction in =
        product(b, BRIM__OP_R_GATE_UP, at->y_mid, at->h, layer_tensor(n, RES_MATRIX_GATE_UP));
    in.operands[RV_IN_SSQ] = at->ssq_mid;
    add_products(b, &in, &d, false);
}

static void down_stage(build *b, uint32_t n)
{
    const layer_buffers *next = &b->at[n + 1];
    deal d = deal_of(b, RES_MATRIX_DOWN);
    brim_instruction in =
        product(b, BRIM__OP_R_DOWN, b->at[n].h, next->y, layer_tensor(n, RES_MATRIX_DOWN));
    int32_t *o = in.operands;
    o[RV_OUT_SSQ] = next->ssq;
    o[RV_NORM_OUT] = n + 1 == b->config->layer_count
                         ? final_norm()
                         : vector_buffer(b, n + 1, RES_VECTOR_ATTN_NORM);
    o[RV_ADD] = b->x_mid;
    o[RV_X] = b->x[n % 2];
    add_products(b, &in, &d, n + 1 == b->config->layer_count);
}

/* The step's keys and values go to the pool when its last attention is done. */
static void append_stage(build *b)
{
    const brim_model_config *c = b->config;
    for (uint32_t n = 0; n < c->layer_count * c->kv_head_count; n++) {
        uint32_t layer = n / c->kv_head_count;
        brim_instruction in = brim_instruction_make(BRIM__OP_R_APPEND);
        int32_t *o = in.operands;
        o[RP_STEP] = LLM_BUFFER_STEP;
        o[RP_TABLES] = LLM_BUFFER_TABLES;
        o[RP_QKV] = b->at[layer].qkv;
        o[RP_KV] = LLM_BUFFER_KV;
        o[RP_ROPE] = LLM_BUFFER_ROPE;
        o[RP_K_NORM] = vector_buffer(b, layer, RES_VECTOR_K_NORM);
        o[RP_AFTER] = b->at[c->layer_count].y;
        o[RP_AFTER_COLS] = (int32_t)c->embed_size;
        o[RP_ROWS] = (int32_t)b->desc->rows;
        o[RP_LAYER] = (int32_t)layer;
        o[RP_KV_HEADS] = (int32_t)c->kv_head_count;
        o[RP_GROUP] = (int32_t)group_of(c);
        o[RP_HEAD_SIZE] = (int32_t)c->head_size;
        o[RP_BLOCKS] = (int32_t)b->desc->kv_blocks;
        o[RP_BLOCKS_MAX] = (int32_t)(b->desc->context / BRIM__KV_BLOCK);
        o[RP_EPSILON] = brim__bits_of(c->norm_epsilon);
        o[RP_ROPE_HALVES] = c->rope_kind == BRIM_ROPE_HALVES;
        o[RP_HEAD] = (int32_t)(n % c->kv_head_count);
        o[RP_SLOTS] = (int32_t)b->desc->slots;
        signals(&in, b->appended);
        b->append_count++;
        add(b, n % b->desc->lanes, &in, RP_COUNT);
    }
}

static void head_stage(build *b)
{
    const layer_buffers *at = &b->at[b->config->layer_count];
    uint32_t lanes = b->desc->lanes, first = 0;
    brim_instruction in = product(b, BRIM__OP_R_HEAD, at->y, LLM_BUFFER_LOGITS, TENSOR_HEAD);
    in.operands[RV_IN_SSQ] = at->ssq;
    signals(&in, b->head);
    for (uint32_t lane = 0; lane < lanes; lane++) {
        uint32_t count = head_tiles(b, lane);
        if (count == 0)
            continue;
        brim_instruction one = in;
        one.operands[RV_FIRST] = (int32_t)first;
        one.operands[RV_TILES] = (int32_t)count;
        add(b, lane, &one, RV_COUNT);
        b->head_count++;
        first += count;
    }
}

static void sample_stage(build *b)
{
    uint32_t rows = b->desc->rows;
    for (uint32_t row = 0; row < rows; row++) {
        brim_instruction in = brim_instruction_make(BRIM__OP_SAMPLE);
        int32_t *o = in.operands;
        o[SAMPLE_STEP] = LLM_BUFFER_STEP;
        o[SAMPLE_LOGITS] = LLM_BUFFER_LOGITS;
        o[SAMPLE_PARAMS] = LLM_BUFFER_PARAMS;
        o[SAMPLE_HISTORY] = LLM_BUFFER_HISTORY;
        o[SAMPLE_OUT] = b->sampled;
        o[SAMPLE_ROWS] = (int32_t)rows;
        o[SAMPLE_VOCAB] = o[SAMPLE_LOGIT_COLS] = (int32_t)b->weights->head.rows;
        o[SAMPLE_CONTEXT] = (int32_t)b->desc->context;
        o[SAMPLE_SLOTS] = (int32_t)b->desc->slots;
        o[SAMPLE_FIRST] = (int32_t)row;
        o[SAMPLE_BY] = (int32_t)rows;
        wait_for(&in, b->head, b->head_count);
        wait_for(&in, b->begun, 1);
        signals(&in, b->sampled_counter);
        add(b, row % b->desc->lanes, &in, SAMPLE_COUNT);
    }
}

static void step_end(build *b)
{
    brim_instruction in = brim_instruction_make(BRIM__OP_STEP_END);
    int32_t *o = in.operands;
    o[END_STEP] = LLM_BUFFER_STEP;
    o[END_SAMPLED] = b->sampled;
    o[END_PARAMS] = LLM_BUFFER_PARAMS;
    o[END_ENDS] = LLM_BUFFER_ENDS;
    o[END_MAIL] = LLM_BUFFER_MAIL;
    o[END_RESULT] = LLM_BUFFER_RESULT;
    o[END_ROWS] = (int32_t)b->desc->rows;
    o[END_SLOTS] = (int32_t)b->desc->slots;
    wait_for(&in, b->sampled_counter, b->desc->rows);
    wait_for(&in, b->head, b->head_count);
    wait_for(&in, b->appended, b->append_count);
    add(b, 0, &in, END_COUNT);
}

/* ---- the whole ---- */

static brim_status build_all(build *b)
{
    BRIM_CALLOC(b->llm->ctx, b->at, b->config->layer_count + 1);
    add_shared_buffers(b);
    add_weights(b);
    add_own_buffers(b);
    try(b, deal_out(b));
    if (b->status != BRIM_OK)
        return b->status;
    begin_stage(b);
    for (uint32_t n = 0; n < b->config->layer_count && b->status == BRIM_OK; n++) {
        qkv_stage(b, n);
        attn_stage(b, n);
        if (!b->desc->direct)
            combine_stage(b, n);
        out_stage(b, n);
        gate_up_stage(b, n);
        down_stage(b, n);
    }
    append_stage(b);
    head_stage(b);
    sample_stage(b);
    step_end(b);
    return b->status;
}

brim_status brim__build_resident(brim_program **out, brim_context *ctx, const brim_op_table *ops,
                                 const brim_llm *llm, const brim__resident_desc *desc)
{
    *out = NULL;
    uint32_t splits = brim__resident_splits(&llm->config, desc->context);
    build b = {.llm = llm,
               .weights = llm->resident,
               .desc = desc,
               .config = &llm->config,
               .splits =
                   desc->direct && splits > BRIM__RES_DIRECT_MAX ? BRIM__RES_DIRECT_MAX : splits};
    BRIM_FAIL_IF(desc->rows == 0 || desc->rows > BRIM__RES_ROWS_MAX, USAGE, "resident.rows",
                 "%u rows of a resident program; 1 to %d are possible", desc->rows,
                 BRIM__RES_ROWS_MAX);
    BRIM_TRY(brim_builder_create(&b.builder, ctx, ops, desc->name, desc->lanes));
    brim_status status = build_all(&b);
    if (status == BRIM_OK)
        status = brim_builder_finish(out, b.builder);
    brim_builder_destroy(b.builder);
    brim__free(llm->ctx, b.at);
    brim__free(llm->ctx, b.load);
    return status;
}

static brim_status bind_vector(brim_executor *x, uint32_t *buffer, const brim__resident *w,
                               const brim__res_vector *v)
{
    if (v->count == 0)
        return BRIM_OK;
    return brim_executor_bind_memory(x, (*buffer)++, w->memory, v->offset);
}

brim_status brim__resident_bind(brim_executor *x, const brim_llm *llm)
{
    const brim__resident *w = llm->resident;
    uint32_t buffer = LLM_BUFFER_COUNT;
    BRIM_TRY(brim_executor_bind_tensor_memory(x, TENSOR_EMBEDDING, w->memory, w->embedding.offset));
    BRIM_TRY(brim_executor_bind_tensor_memory(x, TENSOR_HEAD, w->memory, w->head.offset));
    BRIM_TRY(bind_vector(x, &buffer, w, &w->final_norm));
    for (uint32_t n = 0; n < llm->config.layer_count; n++) {
        for (int m = 0; m < RES_MATRIX_COUNT; m++)
            BRIM_TRY(brim_executor_bind_tensor_memory(x, (uint32_t)layer_tensor(n, m), w->memory,
                                                      w->layers[n].matrices[m].offset));
        for (int v = 0; v < RES_VECTOR_COUNT; v++)
            BRIM_TRY(bind_vector(x, &buffer, w, &w->layers[n].vectors[v]));
    }
    return BRIM_OK;
}
