/* ops_resident_attn.c: attention of the resident ops: r.attn, r.combine, r.append.
 *
 * Positions are cut at fixed absolute places (every 128), so that the bits do not depend on who
 * computes which item, nor on the other rows. Keys and values of this step's rows come from packets
 * and go to the pool afterwards: what an item reads is the same wherever it comes from. */
#include "program/ops_resident_body.h"

#include <math.h>
#include <string.h>

enum {
    HEADS_MAX = 4096,
    LAYERS_MAX = 4096,
    SLOTS_MAX = 4096,
    BLOCKS_LIMIT = 1 << 24,
    SPLITS_LIMIT = 1 << 20,
    ITEMS_LIMIT = 1 << 24,
    PIECES_LIMIT = 1 << 16,
    COLS_LIMIT = 1 << 20,
    HEAD_SIZE_MAX = 128,
    GRANULE = 32,
    WARP = 16, /* positions */
    WARPS = BRIM__RES_SPLIT / WARP,
    PARTIALS = 64,
};

void brim__res_require_heads(brim__deriving *d, int64_t rows, int64_t kv_heads, int64_t group,
                             int64_t head_size, int64_t window, int64_t splits_max)
{
    brim__derive_require(d, rows > 0 && rows <= BRIM__RES_ROWS_MAX, "rows out of range");
    brim__derive_require(d,
                         kv_heads > 0 && kv_heads <= HEADS_MAX && group > 0 &&
                             group <= BRIM__RES_GROUP_MAX &&
                             (head_size == 64 || head_size == HEAD_SIZE_MAX),
                         "heads out of range");
    brim__derive_require(d,
                         window >= 0 && splits_max > 0 && splits_max <= SPLITS_LIMIT &&
                             rows * kv_heads * splits_max <= ITEMS_LIMIT,
                         "window or splits out of range");
}

static void require_pool(brim__deriving *d, int32_t layer, int32_t blocks, int32_t blocks_max,
                         int32_t slots)
{
    brim__derive_require(d,
                         layer >= 0 && layer < LAYERS_MAX && blocks > 0 && blocks <= BLOCKS_LIMIT &&
                             blocks_max > 0 && blocks_max <= BLOCKS_LIMIT && slots > 0 &&
                             slots <= SLOTS_MAX,
                         "layer, blocks or slots out of range");
}

static void require_piece(brim__deriving *d, int32_t first, int32_t by)
{
    brim__derive_require(d, first >= 0 && by > first && by <= PIECES_LIMIT, "piece out of range");
}

/* ---- heads of a qkv row ---- */

/* Elements [col, col + head_size) of row `row` of vectors (tile, row, 8) of f16; `packets` begins
 * with tile `first_tile`. */
static void head_of(float *out, const uint16_t *packets, uint32_t rows, uint32_t row,
                    uint32_t first_tile, uint32_t col, uint32_t head_size)
{
    for (uint32_t at = 0; at < head_size; at += BRIM__RES_TILE)
        brim__halves_widen(out + at, BRIM_DTYPE_F16,
                           packets +
                               ((size_t)((col + at) / BRIM__RES_TILE - first_tile) * rows + row) *
                                   BRIM__RES_TILE,
                           BRIM__RES_TILE);
}

typedef struct turning {
    const float *rope; /* (position, head_size): cosines, sines */
    uint64_t positions;
    const float *norm; /* NULL: none */
    float epsilon;
    bool halves;
    uint32_t head_size;
} turning;

/* Head norm and RoPE of a query or key, rounded to f16. */
static void turn(uint16_t *out, float *x, const turning *t, uint32_t position,
                 const brim__kernels *k)
{
    if (t->norm)
        k->rms_norm(x, x, t->norm, t->head_size, t->epsilon);
    if (position < t->positions)
        k->rope(x, t->rope + (size_t)position * t->head_size, t->head_size, t->halves);
    brim__halves_round(out, BRIM_DTYPE_F16, x, t->head_size);
}

static turning turning_of(const brim_op_env *env, unsigned rope_access, const float *norm,
                          uint32_t head_size, int32_t epsilon, int32_t halves)
{
    return (turning){
        .rope = env->access[rope_access],
        .positions = env->instruction->accesses[rope_access].size / (4 * (uint64_t)head_size),
        .norm = norm,
        .epsilon = brim__float_of(epsilon),
        .halves = halves,
        .head_size = head_size,
    };
}

/* ---- r.attn ---- */

enum { AT_STEP, AT_TABLES, AT_QKV, AT_KV, AT_ROPE, AT_REST };

static brim__res_heads attn_heads(const int32_t *o)
{
    return (brim__res_heads){
        .rows = (uint32_t)o[RA_ROWS],
        .kv_heads = (uint32_t)o[RA_KV_HEADS],
        .group = (uint32_t)o[RA_GROUP],
        .head_size = (uint32_t)o[RA_HEAD_SIZE],
        .window = (uint32_t)o[RA_WINDOW],
        .splits_max = (uint32_t)o[RA_SPLITS_MAX],
    };
}

static uint64_t attn_share(const int32_t *o)
{
    brim__res_heads h = attn_heads(o);
    return brim__res_share(brim__res_items_max(h.rows, h.kv_heads, h.splits_max),
                           (uint32_t)o[RA_FIRST], (uint32_t)o[RA_BY]);
}

static void attn_require(brim__deriving *d, const int32_t *o)
{
    brim__res_require_heads(d, o[RA_ROWS], o[RA_KV_HEADS], o[RA_GROUP], o[RA_HEAD_SIZE],
                            o[RA_WINDOW], o[RA_SPLITS_MAX]);
    require_pool(d, o[RA_LAYER], o[RA_BLOCKS], o[RA_BLOCKS_MAX], o[RA_SLOTS]);
    require_piece(d, o[RA_FIRST], o[RA_BY]);
    brim__derive_require(d, (o[RA_ROPE_HALVES] | 1) == 1, "flag out of range");
}

static brim_status attn_derive(brim_instruction *out, const brim_program *p,
                               const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, RA_COUNT);
    if (d.status == BRIM_OK)
        attn_require(&d, o);
    if (d.status != BRIM_OK)
        return d.status;
    brim__res_heads h = attn_heads(o);
    uint64_t head_bytes = brim__res_kv_head_bytes(h.head_size, (uint32_t)o[RA_BLOCKS]);
    uint64_t part = brim__res_part_bytes(h.group, h.head_size), share = attn_share(o);
    brim__derive_access(&d, BRIM_READ, o[RA_STEP], 0, brim__step_bytes(h.rows));
    brim__derive_access(&d, BRIM_READ, o[RA_TABLES], 0,
                        4 * (uint64_t)o[RA_SLOTS] * (uint64_t)o[RA_BLOCKS_MAX]);
    brim__derive_access(
        &d, BRIM_READ, o[RA_QKV], 0,
        brim__res_vector_bytes(h.rows, brim__res_qkv_cols(h.kv_heads, h.group, h.head_size)))
        ->flags = BRIM_ACCESS_PACKET;
    brim__derive_access(&d, BRIM_READ, o[RA_KV], (uint64_t)o[RA_LAYER] * h.kv_heads * head_bytes,
                        h.kv_heads * head_bytes);
    brim__derive_whole(&d, o[RA_ROPE]);
    if (o[RA_Q_NORM] >= 0)
        brim__derive_access(&d, BRIM_READ, o[RA_Q_NORM], 0, 4 * (uint64_t)h.head_size);
    if (o[RA_K_NORM] >= 0)
        brim__derive_access(&d, BRIM_READ, o[RA_K_NORM], 0, 4 * (uint64_t)h.head_size);
    if (share == 0)
        return d.status;
    brim_access *a =
        brim__derive_access(&d, BRIM_WRITE, o[RA_PARTS], (uint64_t)o[RA_FIRST] * part, part);
    a->count = (uint32_t)share;
    a->stride = (uint64_t)o[RA_BY] * part;
    a->flags = BRIM_ACCESS_PACKET;
    return d.status;
}

/* Scratch of one item. */
typedef struct item_work {
    float q[BRIM__RES_GROUP_MAX][HEAD_SIZE_MAX];
    float k[BRIM__RES_SPLIT][HEAD_SIZE_MAX], v[BRIM__RES_SPLIT][HEAD_SIZE_MAX];
    float out[WARPS][HEAD_SIZE_MAX], max[WARPS], sum[WARPS];
} item_work;

typedef struct item {
    uint32_t row, head;
    uint32_t first, last; /* positions */
    bool is_there;
} item;

/* Item n of this step. */
static item find_item(const brim_op_env *env, uint64_t n)
{
    brim__res_heads h = attn_heads(env->instruction->operands);
    const uint32_t *step = env->access[AT_STEP];
    for (uint32_t row = 0; row < brim__res_rows_used(step, h.rows); row++) {
        uint32_t position = step[brim__step_word(STEP_POSITION, h.rows, row)];
        uint32_t splits = brim__res_splits(position, h.window, h.splits_max);
        if (n >= (uint64_t)splits * h.kv_heads) {
            n -= (uint64_t)splits * h.kv_heads;
            continue;
        }
        uint32_t begin =
            (brim__res_first_split(position, h.window) + (uint32_t)(n % splits)) * BRIM__RES_SPLIT;
        uint32_t seen = brim__res_first_seen(position, h.window);
        uint32_t end = begin + (BRIM__RES_SPLIT - 1);
        return (item){.row = row,
                      .head = (uint32_t)(n / splits),
                      .first = seen > begin ? seen : begin,
                      .last = position < end ? position : end,
                      .is_there = true};
    }
    return (item){.is_there = false};
}

/* fresh[i]: the first row whose token is at position 128 s + i of the item's sequence, or -1. */
static void find_fresh(int fresh[BRIM__RES_SPLIT], const brim_op_env *env, const item *it)
{
    uint32_t rows = (uint32_t)env->instruction->operands[RA_ROWS];
    const uint32_t *step = env->access[AT_STEP];
    uint32_t slot = step[brim__step_word(STEP_SLOT, rows, it->row)];
    for (uint32_t i = 0; i < BRIM__RES_SPLIT; i++)
        fresh[i] = -1;
    for (uint32_t row = brim__res_rows_used(step, rows); row-- > 0;) {
        uint32_t position = step[brim__step_word(STEP_POSITION, rows, row)];
        if (step[brim__step_word(STEP_SLOT, rows, row)] == slot && position >= it->first &&
            position <= it->last)
            fresh[position % BRIM__RES_SPLIT] = (int)row;
    }
}

/* Keys and values that come from the pool; false if a table leads out of it. */
static bool load_old(item_work *w, const brim_op_env *env, const item *it, const int *fresh)
{
    const int32_t *o = env->instruction->operands;
    uint32_t hs = (uint32_t)o[RA_HEAD_SIZE], blocks_max = (uint32_t)o[RA_BLOCKS_MAX];
    const uint32_t *step = env->access[AT_STEP], *tables = env->access[AT_TABLES];
    const char *pool = (const char *)env->access[AT_KV] +
                       it->head * brim__res_kv_head_bytes(hs, (uint32_t)o[RA_BLOCKS]);
    uint32_t slot = step[brim__step_word(STEP_SLOT, (uint32_t)o[RA_ROWS], it->row)];
    if (slot >= (uint32_t)o[RA_SLOTS] || it->last / BRIM__KV_BLOCK >= blocks_max)
        return false;
    for (uint32_t p = it->first; p <= it->last; p++) {
        uint32_t i = p % BRIM__RES_SPLIT;
        if (fresh[i] >= 0)
            continue;
        uint32_t block = tables[(size_t)slot * blocks_max + p / BRIM__KV_BLOCK];
        if (block >= (uint32_t)o[RA_BLOCKS])
            return false;
        for (uint32_t c = 0; c < hs / BRIM__RES_TILE; c++) {
            const char *k = pool + brim__res_kv_place(hs, block, false, p, c);
            const char *v = pool + brim__res_kv_place(hs, block, true, p, c);
            brim__halves_widen(w->k[i] + c * BRIM__RES_TILE, BRIM_DTYPE_F16,
                               (const uint16_t *)(const void *)k, BRIM__RES_TILE);
            brim__halves_widen(w->v[i] + c * BRIM__RES_TILE, BRIM_DTYPE_F16,
                               (const uint16_t *)(const void *)v, BRIM__RES_TILE);
        }
    }
    return true;
}

/* The item's queries, and the keys and values of this step's rows. */
static void load_new(item_work *w, const brim_op_env *env, const item *it, const int *fresh)
{
    const int32_t *o = env->instruction->operands;
    const brim__kernels *kernels = brim__kernels_get(env->isa);
    brim__res_heads h = attn_heads(o);
    const uint32_t *step = env->access[AT_STEP];
    const uint16_t *qkv = env->access[AT_QKV];
    const float *q_norm = o[RA_Q_NORM] >= 0 ? env->access[AT_REST] : NULL;
    const float *k_norm = o[RA_K_NORM] >= 0 ? env->access[AT_REST + (o[RA_Q_NORM] >= 0)] : NULL;
    turning t = turning_of(env, AT_ROPE, q_norm, h.head_size, o[RA_EPSILON], o[RA_ROPE_HALVES]);
    uint16_t halves[HEAD_SIZE_MAX];
    for (uint32_t g = 0; g < h.group; g++) {
        head_of(w->q[g], qkv, h.rows, it->row, 0, (it->head * h.group + g) * h.head_size,
                h.head_size);
        turn(halves, w->q[g], &t, step[brim__step_word(STEP_POSITION, h.rows, it->row)], kernels);
        brim__halves_widen(w->q[g], BRIM_DTYPE_F16, halves, h.head_size);
    }
    t.norm = k_norm;
    for (uint32_t i = 0; i < BRIM__RES_SPLIT; i++) {
        if (fresh[i] < 0)
            continue;
        uint32_t row = (uint32_t)fresh[i];
        uint32_t key = (h.kv_heads * h.group + it->head) * h.head_size;
        head_of(w->k[i], qkv, h.rows, row, 0, key, h.head_size);
        turn(halves, w->k[i], &t, step[brim__step_word(STEP_POSITION, h.rows, row)], kernels);
        brim__halves_widen(w->k[i], BRIM_DTYPE_F16, halves, h.head_size);
        head_of(w->v[i], qkv, h.rows, row, 0, key + h.kv_heads * h.head_size, h.head_size);
    }
}

static float dot(const float *a, const float *b, uint32_t n)
{
    float s[8] = {0};
    for (uint32_t i = 0; i < n; i += 8)
        for (uint32_t l = 0; l < 8; l++)
            s[l] += a[i + l] * b[i + l];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* The positions [first, last] of warp n (places in the split) for one query. */
static void attend_warp(item_work *w, uint32_t n, const float *q, uint32_t first, uint32_t last,
                        uint32_t hs, float scale, const brim__kernels *k)
{
    float e[WARP], weight[WARP], max = -INFINITY, sum = 0;
    uint16_t halves[WARP];
    uint32_t count = last - first + 1;
    for (uint32_t i = 0; i < count; i++) {
        e[i] = dot(q, w->k[first + i], hs) * scale;
        max = e[i] > max ? e[i] : max;
    }
    for (uint32_t i = 0; i < count; i++)
        e[i] -= max;
    k->exp(e, e, count);
    brim__halves_round(halves, BRIM_DTYPE_F16, e, count);
    brim__halves_widen(weight, BRIM_DTYPE_F16, halves, count);
    memset(w->out[n], 0, sizeof *w->out);
    for (uint32_t i = 0; i < count; i++) {
        sum += e[i];
        for (uint32_t d = 0; d < hs; d++)
            w->out[n][d] += weight[i] * w->v[first + i][d];
    }
    w->max[n] = max;
    w->sum[n] = sum;
}

/* One query head of an item: its outputs, and its log-sum-exp. */
static void attend(uint16_t *out, float *lse, item_work *w, const item *it, const float *q,
                   uint32_t hs, float scale, const brim__kernels *k)
{
    uint32_t first = it->first % BRIM__RES_SPLIT, last = it->last % BRIM__RES_SPLIT;
    float max = -INFINITY, sum = 0, total[HEAD_SIZE_MAX] = {0}, factor[WARPS];
    for (uint32_t n = first / WARP; n <= last / WARP; n++) {
        uint32_t from = n * WARP, to = from + WARP - 1;
        attend_warp(w, n, q, first > from ? first : from, last < to ? last : to, hs, scale, k);
        max = w->max[n] > max ? w->max[n] : max;
    }
    for (uint32_t n = first / WARP; n <= last / WARP; n++) {
        factor[n] = w->max[n] - max;
        k->exp(&factor[n], &factor[n], 1);
        sum += w->sum[n] * factor[n];
        for (uint32_t d = 0; d < hs; d++)
            total[d] += w->out[n][d] * factor[n];
    }
    for (uint32_t d = 0; d < hs; d++)
        total[d] /= sum;
    brim__halves_round(out, BRIM_DTYPE_F16, total, hs);
    *lse = brim__res_packet_float(max + logf(sum));
}

static void attn_item(const brim_op_env *env, const item *it, char *part)
{
    const int32_t *o = env->instruction->operands;
    item_work *w = env->scratch;
    int fresh[BRIM__RES_SPLIT];
    uint32_t hs = (uint32_t)o[RA_HEAD_SIZE], group = (uint32_t)o[RA_GROUP];
    find_fresh(fresh, env, it);
    if (!load_old(w, env, it, fresh))
        return;
    load_new(w, env, it, fresh);
    for (uint32_t g = 0; g < group; g++)
        attend((uint16_t *)(void *)part + (size_t)g * hs,
               (float *)(void *)(part + 2 * (size_t)group * hs) + g, w, it, w->q[g], hs,
               brim__float_of(o[RA_SCALE]), brim__kernels_get(env->isa));
}

static void attn_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    uint64_t bytes = brim__res_part_bytes((uint32_t)o[RA_GROUP], (uint32_t)o[RA_HEAD_SIZE]);
    uint64_t share = attn_share(o);
    unsigned parts = AT_REST + (o[RA_Q_NORM] >= 0) + (o[RA_K_NORM] >= 0);
    for (uint64_t i = 0; i < share; i++) {
        item it = find_item(env, (uint64_t)o[RA_FIRST] + i * (uint64_t)o[RA_BY]);
        char *part = (char *)env->access[parts] + i * bytes;
        memset(part, 0, bytes);
        if (it.is_there)
            attn_item(env, &it, part);
    }
}

static size_t attn_scratch(const brim_program *p, const brim_instruction *in)
{
    (void)p;
    (void)in;
    return sizeof(item_work);
}

/* One split of each row: how long a row's context is, is not known here. */
static void attn_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    (void)p;
    const int32_t *o = in->operands;
    double elements =
        (double)o[RA_ROWS] / o[RA_BY] * o[RA_KV_HEADS] * BRIM__RES_SPLIT * o[RA_HEAD_SIZE];
    out->bytes = 4 * elements;
    out->flops = 4 * elements * o[RA_GROUP];
}

const brim_op_desc brim__op_R_ATTN = {.name = "r.attn",
                                      .body = attn_body,
                                      .derive = attn_derive,
                                      .cost = attn_cost,
                                      .scratch_bytes = attn_scratch};

/* ---- r.combine ---- */

/* One query head's parts, split by split. */
typedef struct part_list {
    const char *first;
    uint64_t bytes, lse_offset; /* of a part; of the log-sum-exp in it */
    uint32_t count;
} part_list;

static part_list parts_of(const brim__res_heads *h, const uint32_t *step, const void *parts,
                          uint32_t row, uint32_t query_head)
{
    part_list l = {.bytes = brim__res_part_bytes(h->group, h->head_size)};
    l.count = brim__res_splits(step[brim__step_word(STEP_POSITION, h->rows, row)], h->window,
                               h->splits_max);
    uint64_t before =
        brim__res_items_before(step, h->rows, row, h->kv_heads, h->window, h->splits_max);
    uint32_t g = query_head % h->group;
    l.first =
        (const char *)parts + (before + (uint64_t)(query_head / h->group) * l.count) * l.bytes;
    l.lse_offset = 2 * (uint64_t)h->group * h->head_size + 4 * (uint64_t)g;
    return l;
}

static float lse_of(const part_list *l, uint32_t i)
{
    float lse;
    memcpy(&lse, l->first + i * l->bytes + l->lse_offset, sizeof lse);
    return lse;
}

static float largest_lse(const part_list *l)
{
    float largest = -INFINITY;
    for (uint32_t i = 0; i < l->count; i++)
        largest = lse_of(l, i) > largest ? lse_of(l, i) : largest;
    return largest;
}

void brim__res_combine(uint16_t *out, brim_dtype type, const brim__res_heads *h,
                       const brim_op_env *env, unsigned step_access, const void *parts,
                       uint32_t row, uint32_t col, uint32_t count)
{
    const brim__kernels *k = brim__kernels_get(env->isa);
    float sum[PARTIALS] = {0}, total[PARTIALS][GRANULE] = {{0}}, x[GRANULE];
    uint32_t query_head = col / h->head_size;
    uint64_t offset = (uint64_t)(query_head % h->group) * h->head_size + col % h->head_size;
    part_list l = parts_of(h, env->access[step_access], parts, row, query_head);
    float largest = largest_lse(&l);
    for (uint32_t i = 0; i < l.count; i++) {
        float f = lse_of(&l, i) - largest;
        k->exp(&f, &f, 1);
        brim__halves_widen(x, BRIM_DTYPE_F16,
                           (const uint16_t *)(const void *)(l.first + i * l.bytes) + offset, count);
        sum[i % PARTIALS] += f;
        for (uint32_t c = 0; c < count; c++)
            total[i % PARTIALS][c] += f * x[c];
    }
    for (uint32_t apart = PARTIALS / 2; apart > 0; apart /= 2)
        for (uint32_t j = 0; j < apart && j + apart < l.count; j++) {
            /* What is left out is zero, and no sum that began with +0 is -0. */
            sum[j] += sum[j + apart];
            for (uint32_t c = 0; c < count; c++)
                total[j][c] += total[j + apart][c];
        }
    for (uint32_t c = 0; c < count; c++)
        x[c] = total[0][c] / sum[0];
    brim__halves_round(out, type, x, count);
}

enum { CO_STEP, CO_PARTS, CO_OUT };

static brim__res_heads combine_heads(const int32_t *o)
{
    return (brim__res_heads){
        .rows = (uint32_t)o[RC_ROWS],
        .kv_heads = (uint32_t)o[RC_KV_HEADS],
        .group = (uint32_t)o[RC_GROUP],
        .head_size = (uint32_t)o[RC_HEAD_SIZE],
        .window = (uint32_t)o[RC_WINDOW],
        .splits_max = (uint32_t)o[RC_SPLITS_MAX],
    };
}

static uint64_t combine_share(const int32_t *o)
{
    uint64_t units =
        (uint64_t)o[RC_KV_HEADS] * (uint64_t)o[RC_GROUP] * (uint64_t)o[RC_HEAD_SIZE] / GRANULE;
    return brim__res_share(units, (uint32_t)o[RC_FIRST], (uint32_t)o[RC_BY]);
}

static brim_status combine_derive(brim_instruction *out, const brim_program *p,
                                  const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, RC_COUNT);
    if (d.status == BRIM_OK) {
        brim__res_require_heads(&d, o[RC_ROWS], o[RC_KV_HEADS], o[RC_GROUP], o[RC_HEAD_SIZE],
                                o[RC_WINDOW], o[RC_SPLITS_MAX]);
        require_piece(&d, o[RC_FIRST], o[RC_BY]);
        brim__derive_require(&d, o[RC_TYPE] == BRIM_DTYPE_F16 || o[RC_TYPE] == BRIM_DTYPE_BF16,
                             "no 16-bit float type");
    }
    if (d.status != BRIM_OK)
        return d.status;
    brim__res_heads h = combine_heads(o);
    uint64_t share = combine_share(o), unit_bytes = 2 * GRANULE * (uint64_t)h.rows;
    brim__derive_access(&d, BRIM_READ, o[RC_STEP], 0, brim__step_bytes(h.rows));
    brim__derive_access(&d, BRIM_READ, o[RC_PARTS], 0,
                        brim__res_items_max(h.rows, h.kv_heads, h.splits_max) *
                            brim__res_part_bytes(h.group, h.head_size))
        ->flags = BRIM_ACCESS_PACKET;
    if (share == 0)
        return d.status;
    brim_access *a = brim__derive_access(&d, BRIM_WRITE, o[RC_OUT],
                                         (uint64_t)o[RC_FIRST] * unit_bytes, unit_bytes);
    a->count = (uint32_t)share;
    a->stride = (uint64_t)o[RC_BY] * unit_bytes;
    a->flags = BRIM_ACCESS_PACKET;
    return d.status;
}

static void combine_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    brim__res_heads h = combine_heads(o);
    uint32_t used = brim__res_rows_used(env->access[CO_STEP], h.rows);
    uint64_t share = combine_share(o);
    for (uint64_t i = 0; i < share; i++) {
        uint32_t unit = (uint32_t)o[RC_FIRST] + (uint32_t)i * (uint32_t)o[RC_BY];
        uint16_t *to = (uint16_t *)env->access[CO_OUT] + i * GRANULE * h.rows;
        memset(to, 0, 2 * GRANULE * (size_t)h.rows);
        for (uint32_t row = 0; row < used; row++) {
            uint16_t halves[GRANULE];
            brim__res_combine(halves, (brim_dtype)o[RC_TYPE], &h, env, CO_STEP,
                              env->access[CO_PARTS], row, unit * GRANULE, GRANULE);
            for (uint32_t t = 0; t < GRANULE / BRIM__RES_TILE; t++)
                memcpy(to + (t * h.rows + row) * BRIM__RES_TILE, halves + t * BRIM__RES_TILE,
                       2 * BRIM__RES_TILE);
        }
    }
}

static void combine_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    (void)p;
    const int32_t *o = in->operands;
    out->bytes =
        4.0 * o[RC_ROWS] * o[RC_KV_HEADS] * o[RC_GROUP] * o[RC_HEAD_SIZE] / (double)o[RC_BY];
    out->flops = out->bytes;
}

const brim_op_desc brim__op_R_COMBINE = {
    .name = "r.combine", .body = combine_body, .derive = combine_derive, .cost = combine_cost};

/* ---- r.append ---- */

enum { AP_STEP, AP_TABLES, AP_ROPE, AP_KEYS, AP_VALUES, AP_AFTER, AP_KV, AP_K_NORM };

static void append_require(brim__deriving *d, const int32_t *o)
{
    brim__res_require_heads(d, o[RP_ROWS], o[RP_KV_HEADS], o[RP_GROUP], o[RP_HEAD_SIZE], 0, 1);
    require_pool(d, o[RP_LAYER], o[RP_BLOCKS], o[RP_BLOCKS_MAX], o[RP_SLOTS]);
    brim__derive_require(d,
                         o[RP_HEAD] >= 0 && o[RP_HEAD] < o[RP_KV_HEADS] &&
                             (o[RP_ROPE_HALVES] | 1) == 1 && o[RP_AFTER_COLS] > 0 &&
                             o[RP_AFTER_COLS] <= COLS_LIMIT && o[RP_AFTER_COLS] % GRANULE == 0,
                         "head, flag or columns out of range");
}

/* Tiles of the head's key in a qkv vector: the first one. */
static uint32_t key_tile(const int32_t *o)
{
    return (uint32_t)(o[RP_KV_HEADS] * o[RP_GROUP] + o[RP_HEAD]) * (uint32_t)o[RP_HEAD_SIZE] /
           BRIM__RES_TILE;
}

static brim_status append_derive(brim_instruction *out, const brim_program *p,
                                 const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, RP_COUNT);
    if (d.status == BRIM_OK)
        append_require(&d, o);
    if (d.status != BRIM_OK)
        return d.status;
    uint32_t rows = (uint32_t)o[RP_ROWS], hs = (uint32_t)o[RP_HEAD_SIZE];
    uint64_t region = brim__res_kv_head_bytes(hs, (uint32_t)o[RP_BLOCKS]);
    uint64_t tile = 16 * (uint64_t)rows, values = (uint64_t)o[RP_KV_HEADS] * hs / BRIM__RES_TILE;
    brim__derive_access(&d, BRIM_READ, o[RP_STEP], 0, brim__step_bytes(rows));
    brim__derive_access(&d, BRIM_READ, o[RP_TABLES], 0,
                        4 * (uint64_t)o[RP_SLOTS] * (uint64_t)o[RP_BLOCKS_MAX]);
    brim__derive_whole(&d, o[RP_ROPE]);
    brim__derive_access(&d, BRIM_READ, o[RP_QKV], key_tile(o) * tile,
                        brim__res_vector_bytes(rows, hs))
        ->flags = BRIM_ACCESS_PACKET;
    brim__derive_access(&d, BRIM_READ, o[RP_QKV], (key_tile(o) + values) * tile,
                        brim__res_vector_bytes(rows, hs))
        ->flags = BRIM_ACCESS_PACKET;
    brim__derive_access(&d, BRIM_READ, o[RP_AFTER], 0,
                        brim__res_vector_bytes(rows, (uint32_t)o[RP_AFTER_COLS]))
        ->flags = BRIM_ACCESS_PACKET;
    brim__derive_access(
        &d, BRIM_APPEND, o[RP_KV],
        ((uint64_t)o[RP_LAYER] * (uint64_t)o[RP_KV_HEADS] + (uint64_t)o[RP_HEAD]) * region, region);
    if (o[RP_K_NORM] >= 0)
        brim__derive_access(&d, BRIM_READ, o[RP_K_NORM], 0, 4 * (uint64_t)hs);
    return d.status;
}

/* Keys as they go to the pool, (row, head_size) in the scratch. */
static void append_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    const uint32_t *step = env->access[AP_STEP];
    uint32_t rows = (uint32_t)o[RP_ROWS], hs = (uint32_t)o[RP_HEAD_SIZE];
    uint16_t *keys = env->scratch;
    turning t = turning_of(env, AP_ROPE, o[RP_K_NORM] >= 0 ? env->access[AP_K_NORM] : NULL, hs,
                           o[RP_EPSILON], o[RP_ROPE_HALVES]);
    for (uint32_t row = 0; row < brim__res_rows_used(step, rows); row++) {
        float x[HEAD_SIZE_MAX];
        head_of(x, env->access[AP_KEYS], rows, row, 0, 0, hs);
        turn(keys + (size_t)row * hs, x, &t, step[brim__step_word(STEP_POSITION, rows, row)],
             brim__kernels_get(env->isa));
    }
}

static void append_append(const brim_op_env *env, uint32_t access, void *buffer)
{
    const int32_t *o = env->instruction->operands;
    const uint32_t *step = env->access[AP_STEP], *tables = env->access[AP_TABLES];
    uint32_t rows = (uint32_t)o[RP_ROWS], hs = (uint32_t)o[RP_HEAD_SIZE];
    uint32_t blocks_max = (uint32_t)o[RP_BLOCKS_MAX];
    const uint16_t *keys = env->scratch, *values = env->access[AP_VALUES];
    char *pool = (char *)buffer + env->instruction->accesses[access].offset;
    for (uint32_t row = 0; row < brim__res_rows_used(step, rows); row++) {
        uint32_t position = step[brim__step_word(STEP_POSITION, rows, row)];
        uint32_t slot = step[brim__step_word(STEP_SLOT, rows, row)];
        if (slot >= (uint32_t)o[RP_SLOTS] || position / BRIM__KV_BLOCK >= blocks_max)
            continue;
        uint32_t block = tables[(size_t)slot * blocks_max + position / BRIM__KV_BLOCK];
        if (block >= (uint32_t)o[RP_BLOCKS])
            continue;
        for (uint32_t c = 0; c < hs / BRIM__RES_TILE; c++) {
            memcpy(pool + brim__res_kv_place(hs, block, false, position, c),
                   keys + (size_t)row * hs + c * BRIM__RES_TILE, 2 * BRIM__RES_TILE);
            memcpy(pool + brim__res_kv_place(hs, block, true, position, c),
                   values + ((size_t)c * rows + row) * BRIM__RES_TILE, 2 * BRIM__RES_TILE);
        }
    }
}

static size_t append_scratch(const brim_program *p, const brim_instruction *in)
{
    (void)p;
    return 2 * (size_t)in->operands[RP_ROWS] * (size_t)in->operands[RP_HEAD_SIZE];
}

static void append_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    (void)p;
    out->bytes = 8.0 * in->operands[RP_ROWS] * in->operands[RP_HEAD_SIZE];
    out->flops = out->bytes;
}

const brim_op_desc brim__op_R_APPEND = {.name = "r.append",
                                        .body = append_body,
                                        .derive = append_derive,
                                        .append = append_append,
                                        .cost = append_cost,
                                        .scratch_bytes = append_scratch};
