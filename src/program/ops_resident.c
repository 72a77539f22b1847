/* ops_resident.c: the resident ops that multiply, and r.begin: what they touch and, in plain C,
 * what they mean (ops_resident.h). One row's bits never depend on the others. */
#include "program/ops_resident_body.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    COLS_MAX = 1 << 20,
    ROWS_MAX = 1 << 24, /* of a tensor */
    GRANULE = 32,       /* columns */
    WARPS = 8,
    SLOTS_MAX = 4096,
    POSITIONS_MAX = 1 << 22,
};

typedef enum product_kind {
    PRODUCT_QKV,
    PRODUCT_OUT,
    PRODUCT_GATE_UP,
    PRODUCT_DOWN,
    PRODUCT_HEAD
} product_kind;

/* ---- r.begin ---- */

static brim_status begin_derive(brim_instruction *out, const brim_program *p,
                                const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, RB_COUNT);
    brim__derive_require(&d,
                         o[RB_SLOTS] > 0 && o[RB_SLOTS] <= SLOTS_MAX && o[RB_CONTEXT] > 0 &&
                             o[RB_CONTEXT] <= POSITIONS_MAX && o[RB_ROWS] > 0 &&
                             o[RB_ROWS] <= BRIM__RES_ROWS_MAX,
                         "rows, slots or positions out of range");
    if (d.status != BRIM_OK)
        return d.status;
    brim__derive_access(&d, BRIM_READ, o[RB_STEP], 0, brim__step_bytes((uint32_t)o[RB_ROWS]));
    brim__derive_access(&d, BRIM_APPEND, o[RB_HISTORY], 0,
                        4 * (uint64_t)o[RB_SLOTS] * (uint64_t)o[RB_CONTEXT]);
    return d.status;
}

static void begin_body(const brim_op_env *env)
{
    (void)env; /* the history is written when it is published */
}

static void begin_append(const brim_op_env *env, uint32_t access, void *buffer)
{
    (void)access;
    const int32_t *o = env->instruction->operands;
    const uint32_t *step = env->access[0], rows = (uint32_t)o[RB_ROWS];
    uint32_t *history = buffer;
    for (uint32_t row = 0; row < brim__res_rows_used(step, rows); row++) {
        uint32_t slot = step[brim__step_word(STEP_SLOT, rows, row)];
        uint32_t position = step[brim__step_word(STEP_POSITION, rows, row)];
        if (slot < (uint32_t)o[RB_SLOTS] && position < (uint32_t)o[RB_CONTEXT])
            history[(size_t)slot * (uint32_t)o[RB_CONTEXT] + position] =
                step[brim__step_word(STEP_TOKEN, rows, row)];
    }
}

static void begin_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    (void)p;
    out->bytes = 20.0 * in->operands[RB_ROWS];
}

const brim_op_desc brim__op_R_BEGIN = {.name = "r.begin",
                                       .body = begin_body,
                                       .derive = begin_derive,
                                       .append = begin_append,
                                       .cost = begin_cost};

/* ---- products: what they touch ---- */

/* Tiles of a unit. */
static uint32_t unit_tiles(product_kind kind)
{
    return kind == PRODUCT_GATE_UP ? 2 : 1;
}

static bool is_residual(product_kind kind)
{
    return kind == PRODUCT_OUT || kind == PRODUCT_DOWN;
}

static bool wants_embedding(product_kind kind, const int32_t *o)
{
    return o[RV_FROM] == RV_FROM_EMBED || (is_residual(kind) && o[RV_ADD] < 0);
}

static const brim__tiling *tiling_of(const brim_program *p, int32_t tensor)
{
    return &p->tensors[tensor].tiling;
}

static void require_tensor(brim__deriving *d, int32_t tensor)
{
    brim__derive_require(d, tensor >= 0 && (size_t)tensor < d->program->tensor_count,
                         "no such tensor");
    if (d->status != BRIM_OK)
        return;
    const brim__tiling *t = tiling_of(d->program, tensor);
    brim__derive_require(d, brim__tiling_is_mma8(t) && t->cols <= COLS_MAX && t->rows <= ROWS_MAX,
                         "a tensor needs the layout mma8 and a moderate size");
}

static void require_input(brim__deriving *d, product_kind kind, const int32_t *o)
{
    const brim__tiling *t = tiling_of(d->program, o[RV_TENSOR]);
    switch (o[RV_FROM]) {
    case RV_FROM_Y:
        brim__derive_require(d, o[RV_IN] >= 0 && o[RV_NORM_IN] == -1,
                             "y comes from a buffer that has had its norm's weight");
        break;
    case RV_FROM_EMBED:
        brim__derive_require(
            d, kind == PRODUCT_QKV && o[RV_IN] == -1 && o[RV_IN_SSQ] == -1 && o[RV_NORM_IN] >= 0,
            "only r.qkv begins with the embedding, and with a norm");
        break;
    case RV_FROM_PARTS:
        brim__derive_require(
            d, kind == PRODUCT_OUT && o[RV_IN] >= 0 && o[RV_IN_SSQ] == -1 && o[RV_NORM_IN] == -1,
            "only r.out combines parts, without a norm");
        brim__derive_require(d, o[RV_GROUP] > 0 && o[RV_HEAD_SIZE] > 0, "heads out of range");
        if (d->status != BRIM_OK)
            return;
        int64_t width = (int64_t)o[RV_GROUP] * o[RV_HEAD_SIZE];
        brim__derive_require(d, t->cols % width == 0 && o[RV_SPLITS_MAX] <= BRIM__RES_DIRECT_MAX,
                             "the columns are not whole heads, or the splits too many");
        brim__res_require_heads(d, o[RV_ROWS], t->cols / width, o[RV_GROUP], o[RV_HEAD_SIZE],
                                o[RV_WINDOW], o[RV_SPLITS_MAX]);
        break;
    default:
        brim__derive_require(d, false, "no such source of the input");
    }
}

static void require_output(brim__deriving *d, product_kind kind, const int32_t *o)
{
    const brim__tiling *t = tiling_of(d->program, o[RV_TENSOR]);
    bool residual = is_residual(kind);
    uint32_t multiple = kind == PRODUCT_HEAD      ? 1
                        : kind == PRODUCT_QKV     ? BRIM__RES_TILE
                        : kind == PRODUCT_GATE_UP ? 2 * GRANULE
                                                  : GRANULE;
    brim__derive_require(d, t->rows % multiple == 0,
                         "the tensor's rows do not make whole tiles of the output");
    brim__derive_require(d,
                         residual ? o[RV_OUT_SSQ] >= 0 && o[RV_NORM_OUT] >= 0 && o[RV_X] >= 0
                                  : o[RV_OUT_SSQ] == -1 && o[RV_NORM_OUT] == -1 && o[RV_X] == -1 &&
                                        o[RV_ADD] == -1,
                         "r.out and r.down, they alone, make x, y and its squares");
    brim__derive_require(d, kind == PRODUCT_QKV || o[RV_BIAS] == -1, "only r.qkv has a bias");
    brim__derive_require(d, kind != PRODUCT_HEAD || o[RV_STRIDE] == 1,
                         "the tiles of r.head follow one another");
    int64_t units = t->row_blocks / unit_tiles(kind);
    brim__derive_require(d,
                         o[RV_FIRST] >= 0 && o[RV_STRIDE] > 0 && o[RV_TILES] > 0 &&
                             o[RV_FIRST] + (int64_t)(o[RV_TILES] - 1) * o[RV_STRIDE] < units,
                         "the lane's tiles are not all the tensor's");
}

static void product_require(brim__deriving *d, product_kind kind, const int32_t *o)
{
    brim__derive_require(d, o[RV_ROWS] > 0 && o[RV_ROWS] <= BRIM__RES_ROWS_MAX,
                         "rows out of range");
    require_tensor(d, o[RV_TENSOR]);
    if (d->status == BRIM_OK)
        require_input(d, kind, o);
    if (d->status == BRIM_OK)
        require_output(d, kind, o);
    if (d->status != BRIM_OK)
        return;
    if (!wants_embedding(kind, o)) {
        brim__derive_require(d, o[RV_EMBED] == -1, "the embedding is not read");
        return;
    }
    require_tensor(d, o[RV_EMBED]);
    if (d->status != BRIM_OK)
        return;
    const brim__tiling *t = tiling_of(d->program, o[RV_TENSOR]);
    uint32_t cols = tiling_of(d->program, o[RV_EMBED])->cols;
    brim__derive_require(d,
                         (o[RV_FROM] != RV_FROM_EMBED || cols == t->cols) &&
                             (!is_residual(kind) || cols == t->rows),
                         "the embedding's columns are not those of x");
}

static brim__res_heads product_heads(const brim_program *p, const int32_t *o)
{
    uint32_t group = (uint32_t)o[RV_GROUP], head_size = (uint32_t)o[RV_HEAD_SIZE];
    return (brim__res_heads){
        .rows = (uint32_t)o[RV_ROWS],
        .kv_heads = tiling_of(p, o[RV_TENSOR])->cols / (group * head_size),
        .group = group,
        .head_size = head_size,
        .window = (uint32_t)o[RV_WINDOW],
        .splits_max = (uint32_t)o[RV_SPLITS_MAX],
    };
}

static uint64_t input_bytes(const brim_program *p, const int32_t *o)
{
    if (o[RV_FROM] != RV_FROM_PARTS)
        return brim__res_vector_bytes((uint32_t)o[RV_ROWS], tiling_of(p, o[RV_TENSOR])->cols);
    brim__res_heads h = product_heads(p, o);
    return brim__res_items_max(h.rows, h.kv_heads, h.splits_max) *
           brim__res_part_bytes(h.group, h.head_size);
}

/* The lane's tiles of something that has tile_bytes each. */
static void derive_tiles(brim__deriving *d, const int32_t *o, brim_access_kind kind, int32_t buffer,
                         uint64_t tile_bytes, uint32_t flags)
{
    brim_access *a =
        brim__derive_access(d, kind, buffer, (uint64_t)o[RV_FIRST] * tile_bytes, tile_bytes);
    a->stride = (uint64_t)o[RV_STRIDE] * tile_bytes;
    a->count = (uint32_t)o[RV_TILES];
    a->flags = flags;
}

static void derive_packets(brim__deriving *d, int32_t buffer, uint64_t bytes)
{
    brim__derive_access(d, BRIM_READ, buffer, 0, bytes)->flags = BRIM_ACCESS_PACKET;
}

static void derive_logits(brim__deriving *d, const int32_t *o)
{
    uint64_t vocab = tiling_of(d->program, o[RV_TENSOR])->rows;
    uint64_t first = (uint64_t)BRIM__RES_TILE * (uint64_t)o[RV_FIRST];
    uint64_t count = (uint64_t)BRIM__RES_TILE * (uint64_t)o[RV_TILES];
    if (count > vocab - first)
        count = vocab - first;
    brim__derive_rows(d, BRIM_WRITE, o[RV_OUT], o[RV_STEP], STEP_OUT, (uint32_t)o[RV_ROWS], 0, 1,
                      4 * vocab, 4 * first, 4 * count);
}

static void derive_product_runs(brim__deriving *d, product_kind kind, const int32_t *o)
{
    uint32_t pair = unit_tiles(kind);
    d->out->runs[0] =
        (brim_tile_run){(uint32_t)o[RV_TENSOR], pair * (uint32_t)o[RV_FIRST],
                        pair * ((uint32_t)(o[RV_TILES] - 1) * (uint32_t)o[RV_STRIDE] + 1)};
    if (wants_embedding(kind, o))
        d->out->runs[1] = (brim_tile_run){(uint32_t)o[RV_EMBED], 0,
                                          tiling_of(d->program, o[RV_EMBED])->row_blocks};
}

/* The step and the output come first; then, each where its operand names a buffer, these. */
enum { A_STEP, A_OUT, A_REST };
static const uint8_t rest[] = {RV_IN,       RV_IN_SSQ, RV_NORM_IN, RV_OUT_SSQ,
                               RV_NORM_OUT, RV_ADD,    RV_X,       RV_BIAS};

static void *access_of(const brim_op_env *env, uint8_t operand)
{
    const int32_t *o = env->instruction->operands;
    unsigned n = A_REST;
    for (size_t i = 0; i < sizeof rest && o[operand] >= 0; i++) {
        if (rest[i] == operand)
            return env->access[n];
        n += o[rest[i]] >= 0;
    }
    return NULL;
}

static brim_status product_derive(brim_instruction *out, const brim_program *p,
                                  const brim_instruction *in, product_kind kind)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, RV_COUNT);
    if (d.status == BRIM_OK)
        product_require(&d, kind, o);
    if (d.status != BRIM_OK)
        return d.status;
    const brim__tiling *t = tiling_of(p, o[RV_TENSOR]);
    uint32_t rows = (uint32_t)o[RV_ROWS];
    derive_product_runs(&d, kind, o);
    brim__derive_access(&d, BRIM_READ, o[RV_STEP], 0, brim__step_bytes(rows));
    if (kind == PRODUCT_HEAD)
        derive_logits(&d, o);
    else
        derive_tiles(&d, o, BRIM_WRITE, o[RV_OUT], 16 * (uint64_t)rows, BRIM_ACCESS_PACKET);
    if (o[RV_IN] >= 0)
        derive_packets(&d, o[RV_IN], input_bytes(p, o));
    if (o[RV_IN_SSQ] >= 0)
        derive_packets(&d, o[RV_IN_SSQ], brim__res_ssq_bytes(rows, t->cols));
    if (o[RV_NORM_IN] >= 0)
        brim__derive_access(&d, BRIM_READ, o[RV_NORM_IN], 0, 4 * (uint64_t)t->cols);
    if (o[RV_OUT_SSQ] >= 0)
        derive_tiles(&d, o, BRIM_WRITE, o[RV_OUT_SSQ], 4 * (uint64_t)rows, BRIM_ACCESS_PACKET);
    if (o[RV_NORM_OUT] >= 0)
        brim__derive_access(&d, BRIM_READ, o[RV_NORM_OUT], 0, 4 * (uint64_t)t->rows);
    if (o[RV_ADD] >= 0)
        derive_tiles(&d, o, BRIM_READ, o[RV_ADD], 32 * (uint64_t)rows, 0);
    if (o[RV_X] >= 0)
        derive_tiles(&d, o, BRIM_WRITE, o[RV_X], 32 * (uint64_t)rows, 0);
    if (o[RV_BIAS] >= 0)
        brim__derive_access(&d, BRIM_READ, o[RV_BIAS], 0, 4 * (uint64_t)t->rows);
    return d.status;
}

static void product_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    const int32_t *o = in->operands;
    const brim__tiling *t = tiling_of(p, o[RV_TENSOR]);
    uint32_t op = in->op;
    double tiles = (double)o[RV_TILES] * (op == BRIM__OP_R_GATE_UP ? 2 : 1);
    out->bytes = tiles * (double)t->row_block_bytes + 2.0 * o[RV_ROWS] * t->cols;
    out->flops = 2.0 * tiles * BRIM__RES_TILE * t->cols * o[RV_ROWS];
}

/* ---- products: what they mean ---- */

/* The input of all rows in use. */
typedef struct product_input {
    float *y;                        /* (row, cols) */
    float scale[BRIM__RES_ROWS_MAX]; /* r of the norm */
    bool normed;
    uint32_t rows; /* in use */
} product_input;

static float tile_squares(const float x[BRIM__RES_TILE])
{
    float s[BRIM__RES_TILE];
    for (int i = 0; i < BRIM__RES_TILE; i++)
        s[i] = x[i] * x[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* r from ssq (tile, `stride` apart). */
static float norm_scale(const float *ssq, size_t stride, uint32_t cols, float epsilon)
{
    enum { PARTIALS = 32 };
    float partial[PARTIALS] = {0}, next[PARTIALS];
    for (uint32_t i = 0; i < cols / GRANULE; i++) {
        const float *k = ssq + 4 * i * stride;
        partial[i % PARTIALS] += (k[0] + k[stride]) + (k[2 * stride] + k[3 * stride]);
    }
    for (uint32_t apart = 1; apart < PARTIALS; apart *= 2) {
        for (uint32_t l = 0; l < PARTIALS; l++)
            next[l] = partial[l] + partial[l ^ apart];
        memcpy(partial, next, sizeof partial);
    }
    return 1.0f / sqrtf(partial[0] / (float)cols + epsilon);
}

/* Tile `tile` of row `token` of the embedding; zeros if there is no such token. */
static void embedded_tile(float out[BRIM__RES_TILE], const brim_op_env *env, uint32_t token,
                          uint32_t tile)
{
    const brim__tiling *t = tiling_of(env->program, env->instruction->operands[RV_EMBED]);
    memset(out, 0, BRIM__RES_TILE * sizeof *out);
    if (token >= t->rows)
        return;
    const char *granule = (const char *)env->tiles[1] +
                          token / BRIM__MMA8_ROWS * t->row_block_bytes + (uint64_t)tile / 4 * 512;
    brim__halves_widen(out, t->type,
                       (const uint16_t *)(const void *)granule + token % BRIM__MMA8_ROWS * GRANULE +
                           tile % 4 * BRIM__RES_TILE,
                       BRIM__RES_TILE);
}

static uint32_t token_of(const brim_op_env *env, uint32_t row)
{
    const uint32_t *step = env->access[A_STEP];
    return step[brim__step_word(STEP_TOKEN, (uint32_t)env->instruction->operands[RV_ROWS], row)];
}

/* `squares` has room for a row of ssq. */
static void input_from_embedding(product_input *in, const brim_op_env *env, float *squares)
{
    const brim__tiling *t = tiling_of(env->program, env->instruction->operands[RV_TENSOR]);
    const float *weight = access_of(env, RV_NORM_IN);
    float epsilon = brim__float_of(env->instruction->operands[RV_EPSILON]);
    in->normed = true;
    for (uint32_t row = 0; row < in->rows; row++) {
        for (uint32_t tile = 0; tile < t->cols / BRIM__RES_TILE; tile++) {
            float x[BRIM__RES_TILE];
            uint16_t y[BRIM__RES_TILE];
            embedded_tile(x, env, token_of(env, row), tile);
            squares[tile] = tile_squares(x);
            for (uint32_t i = 0; i < BRIM__RES_TILE; i++)
                x[i] *= weight[tile * BRIM__RES_TILE + i];
            brim__halves_round(y, t->type, x, BRIM__RES_TILE);
            brim__halves_widen(in->y + (size_t)row * t->cols + tile * BRIM__RES_TILE, t->type, y,
                               BRIM__RES_TILE);
        }
        in->scale[row] = norm_scale(squares, 1, t->cols, epsilon);
    }
}

static void input_from_parts(product_input *in, const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    const brim__tiling *t = tiling_of(env->program, o[RV_TENSOR]);
    brim__res_heads h = product_heads(env->program, o);
    for (uint32_t row = 0; row < in->rows; row++)
        for (uint32_t col = 0; col < t->cols; col += GRANULE) {
            uint16_t attended[GRANULE];
            brim__res_combine(attended, t->type, &h, env, A_STEP, access_of(env, RV_IN), row, col,
                              GRANULE);
            brim__halves_widen(in->y + (size_t)row * t->cols + col, t->type, attended, GRANULE);
        }
}

static void input_from_packets(product_input *in, const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    const brim__tiling *t = tiling_of(env->program, o[RV_TENSOR]);
    const uint16_t *packets = access_of(env, RV_IN);
    const float *ssq = access_of(env, RV_IN_SSQ);
    uint32_t all = (uint32_t)o[RV_ROWS];
    in->normed = ssq != NULL;
    for (uint32_t row = 0; row < in->rows; row++) {
        for (uint32_t tile = 0; tile < t->cols / BRIM__RES_TILE; tile++)
            brim__halves_widen(in->y + (size_t)row * t->cols + tile * BRIM__RES_TILE, t->type,
                               packets + ((size_t)tile * all + row) * BRIM__RES_TILE,
                               BRIM__RES_TILE);
        if (ssq)
            in->scale[row] = norm_scale(ssq + row, all, t->cols, brim__float_of(o[RV_EPSILON]));
    }
}

static product_input product_begin(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    const brim__tiling *t = tiling_of(env->program, o[RV_TENSOR]);
    product_input in = {.y = env->scratch,
                        .rows = brim__res_rows_used(env->access[A_STEP], (uint32_t)o[RV_ROWS])};
    if (o[RV_FROM] == RV_FROM_EMBED)
        input_from_embedding(&in, env, in.y + (size_t)o[RV_ROWS] * t->cols);
    else if (o[RV_FROM] == RV_FROM_PARTS)
        input_from_parts(&in, env);
    else
        input_from_packets(&in, env);
    return in;
}

static size_t product_scratch(const brim_program *p, const brim_instruction *in)
{
    const brim__tiling *t = tiling_of(p, in->operands[RV_TENSOR]);
    return sizeof(float) * ((size_t)in->operands[RV_ROWS] * t->cols + t->cols / BRIM__RES_TILE);
}

/* Adds a granule's products with 8 weight rows to a warp's two accumulators. */
static void add_granule(float acc[2][BRIM__RES_TILE], const float *w, const float *y)
{
    float step[2][BRIM__RES_TILE][4]; /* columns c, by c % 4 */
    for (uint32_t i = 0; i < BRIM__RES_TILE; i++, w += GRANULE)
        for (uint32_t half = 0; half < 2; half++)
            for (uint32_t l = 0; l < 4; l++) {
                const float *a = w + 4 * half + l, *b = y + 4 * half + l;
                step[half][i][l] = (a[0] * b[0] + a[8] * b[8]) + (a[16] * b[16] + a[24] * b[24]);
            }
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t i = 0; i < BRIM__RES_TILE; i++) {
            const float *s = step[half][i];
            acc[half][i] += (s[0] + s[1]) + (s[2] + s[3]);
        }
}

/* The products of a tile (of the tensor) with all rows in use, scaled: out[row][weight row]. */
static void tile_product(float out[][BRIM__RES_TILE], const brim_op_env *env,
                         const product_input *in, uint32_t tile)
{
    const brim_tile_run *run = &env->instruction->runs[0];
    const brim__tiling *t = tiling_of(env->program, (int32_t)run->tensor);
    const char *at = (const char *)env->tiles[0] + (tile - run->first) * t->row_block_bytes;
    float acc[BRIM__RES_ROWS_MAX][WARPS][2][BRIM__RES_TILE], w[BRIM__RES_TILE * GRANULE];
    memset(acc, 0, sizeof acc);
    for (uint32_t j = 0; j < t->cols / GRANULE; j++) {
        brim__halves_widen(w, t->type, (const uint16_t *)(const void *)at + (size_t)j * 256, 256);
        for (uint32_t row = 0; row < in->rows; row++)
            add_granule(acc[row][j % WARPS], w, in->y + (size_t)row * t->cols + j * GRANULE);
    }
    for (uint32_t row = 0; row < in->rows; row++)
        for (uint32_t i = 0; i < BRIM__RES_TILE; i++) {
            float p[WARPS];
            for (uint32_t n = 0; n < WARPS; n++)
                p[n] = acc[row][n][0][i] + acc[row][n][1][i];
            float v = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
            out[row][i] = in->normed ? v * in->scale[row] : v;
        }
}

/* What one unit writes: unit u of the lane, tile (of the output) `tile`. */
typedef void (*finish_unit)(const brim_op_env *env, const product_input *in, uint32_t u,
                            uint32_t tile);

static void each_unit(const brim_op_env *env, finish_unit finish)
{
    const int32_t *o = env->instruction->operands;
    product_input in = product_begin(env);
    for (uint32_t u = 0; u < (uint32_t)o[RV_TILES]; u++)
        finish(env, &in, u, (uint32_t)o[RV_FIRST] + u * (uint32_t)o[RV_STRIDE]);
}

/* Where unit u's elements of type T or f16 go: (row, 8), zeros so far. */
static uint16_t *unit_packet(const brim_op_env *env, uint32_t u)
{
    size_t bytes = 16 * (size_t)env->instruction->operands[RV_ROWS];
    char *to = (char *)env->access[A_OUT] + u * bytes;
    memset(to, 0, bytes);
    return (uint16_t *)(void *)to;
}

static void finish_qkv(const brim_op_env *env, const product_input *in, uint32_t u, uint32_t tile)
{
    float v[BRIM__RES_ROWS_MAX][BRIM__RES_TILE];
    const float *bias = access_of(env, RV_BIAS);
    uint16_t *to = unit_packet(env, u);
    tile_product(v, env, in, tile);
    for (uint32_t row = 0; row < in->rows; row++) {
        for (uint32_t i = 0; bias && i < BRIM__RES_TILE; i++)
            v[row][i] += bias[tile * BRIM__RES_TILE + i];
        brim__halves_round(to + row * BRIM__RES_TILE, BRIM_DTYPE_F16, v[row], BRIM__RES_TILE);
    }
}

static void finish_gate_up(const brim_op_env *env, const product_input *in, uint32_t u,
                           uint32_t tile)
{
    float v[2][BRIM__RES_ROWS_MAX][BRIM__RES_TILE], gate[BRIM__RES_TILE], up[BRIM__RES_TILE];
    brim_dtype type = tiling_of(env->program, env->instruction->operands[RV_TENSOR])->type;
    uint16_t *to = unit_packet(env, u);
    tile_product(v[0], env, in, 2 * tile);
    tile_product(v[1], env, in, 2 * tile + 1);
    for (uint32_t row = 0; row < in->rows; row++) {
        for (uint32_t i = 0; i < BRIM__RES_TILE; i++) {
            const float *pair = &v[i / 4][row][2 * (i % 4)];
            gate[i] = pair[0];
            up[i] = pair[1];
        }
        brim__kernels_get(env->isa)->silu_mul(gate, gate, up, BRIM__RES_TILE);
        brim__halves_round(to + row * BRIM__RES_TILE, type, gate, BRIM__RES_TILE);
    }
}

static void finish_residual(const brim_op_env *env, const product_input *in, uint32_t u,
                            uint32_t tile)
{
    const int32_t *o = env->instruction->operands;
    uint32_t all = (uint32_t)o[RV_ROWS], stride = (uint32_t)o[RV_STRIDE];
    float v[BRIM__RES_ROWS_MAX][BRIM__RES_TILE], y[BRIM__RES_TILE];
    const float *added = access_of(env, RV_ADD);
    const float *weight = (const float *)access_of(env, RV_NORM_OUT) + tile * BRIM__RES_TILE;
    float *x = (float *)access_of(env, RV_X) + (size_t)u * all * BRIM__RES_TILE;
    float *ssq = (float *)access_of(env, RV_OUT_SSQ) + (size_t)u * all;
    uint16_t *to = unit_packet(env, u);
    memset(x, 0, sizeof(float) * all * BRIM__RES_TILE);
    memset(ssq, 0, sizeof(float) * all);
    tile_product(v, env, in, tile);
    for (uint32_t row = 0; row < in->rows; row++, x += BRIM__RES_TILE) {
        if (added) /* the region begins at the lane's first tile */
            memcpy(x, added + ((size_t)u * stride * all + row) * BRIM__RES_TILE, sizeof y);
        else
            embedded_tile(x, env, token_of(env, row), tile);
        for (uint32_t i = 0; i < BRIM__RES_TILE; i++) {
            x[i] += v[row][i];
            y[i] = x[i] * weight[i];
        }
        ssq[row] = brim__res_packet_float(tile_squares(x));
        brim__halves_round(to + row * BRIM__RES_TILE, tiling_of(env->program, o[RV_TENSOR])->type,
                           y, BRIM__RES_TILE);
    }
}

static void finish_head(const brim_op_env *env, const product_input *in, uint32_t u, uint32_t tile)
{
    const int32_t *o = env->instruction->operands;
    const uint32_t *step = env->access[A_STEP];
    float v[BRIM__RES_ROWS_MAX][BRIM__RES_TILE];
    uint64_t cols = env->instruction->accesses[A_OUT].size / sizeof(float);
    uint64_t from = (uint64_t)u * BRIM__RES_TILE;
    uint64_t count = cols - from < BRIM__RES_TILE ? cols - from : BRIM__RES_TILE;
    tile_product(v, env, in, tile);
    for (uint32_t n = 0; n < env->run_counts[A_OUT]; n++) {
        uint32_t row = step[brim__step_word(STEP_OUT_ROW, (uint32_t)o[RV_ROWS], n)];
        float *to = (float *)env->access[A_OUT] + n * cols + from;
        if (row < in->rows)
            memcpy(to, v[row], count * sizeof *to);
        else
            memset(to, 0, count * sizeof *to);
    }
}

#define PRODUCT_OP(NAME, text, finish)                                                             \
    static brim_status NAME##_derive(brim_instruction *out, const brim_program *p,                 \
                                     const brim_instruction *in)                                   \
    {                                                                                              \
        return product_derive(out, p, in, PRODUCT_##NAME);                                         \
    }                                                                                              \
    static void NAME##_body(const brim_op_env *env)                                                \
    {                                                                                              \
        each_unit(env, finish);                                                                    \
    }                                                                                              \
    const brim_op_desc brim__op_R_##NAME = {.name = text,                                          \
                                            .body = NAME##_body,                                   \
                                            .derive = NAME##_derive,                               \
                                            .cost = product_cost,                                  \
                                            .scratch_bytes = product_scratch};
PRODUCT_OP(QKV, "r.qkv", finish_qkv)
PRODUCT_OP(OUT, "r.out", finish_residual)
PRODUCT_OP(GATE_UP, "r.gate_up", finish_gate_up)
PRODUCT_OP(DOWN, "r.down", finish_residual)
PRODUCT_OP(HEAD, "r.head", finish_head)
#undef PRODUCT_OP
