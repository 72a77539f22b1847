/* ops_attention.c: attention over a paged KV cache. Positions are cut at fixed absolute places
 * (every 256), each split is computed by itself, and splits are combined in order, so the bits do
 * not depend on who computed which.
 *
 * For few rows (decode) splits are pieces of work: attn.split, then attn.combine. Items (row, KV
 * head, split) are counted row by row, in a row head by head, in a head split by split; item n is
 * done by piece n % pieces as its item n / pieces. For many rows (prefill) attn does whole rows.
 */
#include "program/ops_llm.h"

#include <string.h>

enum {
    ROWS_MAX = 4096,
    HEAD_MAX = 256,
    GROUP_MAX = 16,
    HEADS_MAX = 4096,
    LAYERS_MAX = 4096,
    KV_BLOCKS_MAX = 1 << 24
};

static void attn_require(brim__deriving *d, const int32_t *o)
{
    brim__derive_require(d,
                         o[ATTN_ROWS] > 0 && o[ATTN_ROWS] <= ROWS_MAX && o[ATTN_SLOTS] > 0 &&
                             o[ATTN_SLOTS] <= ROWS_MAX,
                         "rows or slots out of range");
    brim__derive_require(d,
                         o[ATTN_KV_HEADS] > 0 && o[ATTN_KV_HEADS] <= HEADS_MAX &&
                             o[ATTN_GROUP] > 0 && o[ATTN_GROUP] <= GROUP_MAX &&
                             o[ATTN_HEAD_SIZE] >= 16 && o[ATTN_HEAD_SIZE] <= HEAD_MAX &&
                             o[ATTN_HEAD_SIZE] % 16 == 0,
                         "heads out of range");
    brim__derive_require(d,
                         o[ATTN_LAYER] >= 0 && o[ATTN_LAYER] < LAYERS_MAX && o[ATTN_BLOCKS] > 0 &&
                             o[ATTN_BLOCKS] <= KV_BLOCKS_MAX && o[ATTN_BLOCKS_MAX] > 0 &&
                             o[ATTN_BLOCKS_MAX] <= KV_BLOCKS_MAX && o[ATTN_WINDOW] >= 0 &&
                             (o[ATTN_KV_F32] | 1) == 1,
                         "layer, blocks or window out of range");
    brim__derive_require(d,
                         o[ATTN_ACT] >= 0 && o[ATTN_ACT] < BRIM__ACT_COUNT && o[ATTN_BY] > 0 &&
                             o[ATTN_FIRST] >= 0 && o[ATTN_FIRST] < o[ATTN_BY] &&
                             o[ATTN_BY] <= ROWS_MAX && o[ATTN_HEAD] >= 0 &&
                             o[ATTN_HEAD] < o[ATTN_KV_HEADS],
                         "format, piece or head out of range");
}

static uint32_t group_floats(const int32_t *o)
{
    return (uint32_t)(o[ATTN_GROUP] * o[ATTN_HEAD_SIZE]);
}
static uint64_t q_row_bytes(const int32_t *o)
{
    return 4 * (uint64_t)group_floats(o) * (uint64_t)o[ATTN_KV_HEADS];
}
static uint64_t item_bytes(const int32_t *o)
{
    return brim__part_bytes((uint32_t)o[ATTN_HEAD_SIZE]) * (uint64_t)o[ATTN_GROUP];
}
static uint64_t part_bytes(const int32_t *o)
{
    return brim__kv_block_bytes((uint32_t)o[ATTN_HEAD_SIZE], o[ATTN_KV_F32]) *
           (uint64_t)o[ATTN_BLOCKS];
}
static uint32_t items_max(const int32_t *o)
{
    return brim__attn_items((uint32_t)o[ATTN_ROWS], (uint32_t)o[ATTN_KV_HEADS],
                            (uint32_t)o[ATTN_BLOCKS_MAX], (uint32_t)o[ATTN_BY]);
}

/* Accesses that split and attn share: step, tables, q, and the KV parts of `heads` heads from
 * `head` on. */
static void derive_inputs(brim__deriving *d, const int32_t *o, uint32_t head, uint32_t heads)
{
    uint32_t rows = (uint32_t)o[ATTN_ROWS];
    uint64_t layer = (uint64_t)o[ATTN_LAYER] * (uint64_t)o[ATTN_KV_HEADS];
    brim__derive_access(d, BRIM_READ, o[ATTN_STEP], 0, brim__step_bytes(rows));
    brim__derive_access(d, BRIM_READ, o[ATTN_TABLES], 0,
                        4 * (uint64_t)o[ATTN_SLOTS] * (uint64_t)o[ATTN_BLOCKS_MAX]);
    brim__derive_rows(d, BRIM_READ, o[ATTN_Q], o[ATTN_STEP], STEP_ROWS, rows, 0, 1, q_row_bytes(o),
                      0, q_row_bytes(o));
    brim__derive_access(d, BRIM_READ, o[ATTN_KV], (layer + head) * 2 * part_bytes(o),
                        heads * 2 * part_bytes(o));
}

enum { A_STEP, A_TABLES, A_Q, A_KV, A_OUT };

typedef struct row_view {
    uint32_t first, last; /* positions seen */
    const uint32_t *blocks;
    bool usable;
} row_view;

static row_view view_of(const brim_op_env *env, const uint32_t *step, const uint32_t *tables,
                        uint32_t row)
{
    const int32_t *o = env->instruction->operands;
    uint32_t slot = step[brim__step_word(STEP_SLOT, (uint32_t)o[ATTN_ROWS], row)];
    uint32_t position = step[brim__step_word(STEP_POSITION, (uint32_t)o[ATTN_ROWS], row)];
    uint32_t window = (uint32_t)o[ATTN_WINDOW], blocks_max = (uint32_t)o[ATTN_BLOCKS_MAX];
    row_view v = {.last = position, .usable = false};
    if (slot >= (uint32_t)o[ATTN_SLOTS] || position / BRIM__KV_BLOCK >= blocks_max)
        return v;
    v.first = window && position >= window ? position - window + 1 : 0;
    if (!tables) {
        v.usable = true;
        return v;
    }
    v.blocks = tables + (size_t)slot * blocks_max;
    v.usable = true;
    for (uint32_t b = v.first / BRIM__KV_BLOCK; b <= position / BRIM__KV_BLOCK; b++)
        v.usable &= v.blocks[b] < (uint32_t)o[ATTN_BLOCKS];
    return v;
}

static brim__attn attn_of(const brim_op_env *env, const row_view *v, const char *kv, uint32_t head)
{
    const int32_t *o = env->instruction->operands;
    const char *k = kv + 2 * head * part_bytes(o);
    return (brim__attn){
        .k = k,
        .v = k + part_bytes(o),
        .blocks = v->blocks,
        .block_bytes = brim__kv_block_bytes((uint32_t)o[ATTN_HEAD_SIZE], o[ATTN_KV_F32]),
        .kv_f32 = o[ATTN_KV_F32],
        .head_size = (uint32_t)o[ATTN_HEAD_SIZE],
        .group = (uint32_t)o[ATTN_GROUP],
        .first = v->first,
        .last = v->last,
        .scale = brim__float_of(o[ATTN_SCALE]),
    };
}

/* ---- attn.split ---- */

static brim_status split_derive(brim_instruction *out, const brim_program *p,
                                const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, ATTN_COUNT);
    attn_require(&d, o);
    if (d.status != BRIM_OK)
        return d.status;
    derive_inputs(&d, o, 0, (uint32_t)o[ATTN_KV_HEADS]);
    brim_access *a =
        brim__derive_access(&d, BRIM_WRITE, o[ATTN_OUT],
                            (uint64_t)o[ATTN_FIRST] * items_max(o) * item_bytes(o), item_bytes(o));
    a->count = items_max(o);
    return d.status;
}

/* A row that is not usable still has its items: zeros. */
static void split_item(const brim_op_env *env, const row_view *v, uint32_t row, uint32_t head,
                       uint32_t split, float *parts)
{
    const int32_t *o = env->instruction->operands;
    const brim__kernels *k = brim__kernels_get(env->isa);
    if (!v->usable) {
        memset(parts, 0, item_bytes(o));
        return;
    }
    brim__attn a = attn_of(env, v, env->access[A_KV], head);
    const float *q = (const float *)env->access[A_Q] +
                     (size_t)row * group_floats(o) * (uint32_t)o[ATTN_KV_HEADS] +
                     (size_t)head * group_floats(o);
    k->attn_split(parts, &a, q, split);
}

static void split_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    uint32_t piece = (uint32_t)o[ATTN_FIRST], pieces = (uint32_t)o[ATTN_BY], made = 0;
    uint64_t item = 0;
    for (uint32_t row = 0; row < env->run_counts[A_Q]; row++) {
        row_view v = view_of(env, env->access[A_STEP], env->access[A_TABLES], row);
        uint32_t first = v.first / BRIM__ATTN_SPLIT;
        uint32_t splits = v.last / BRIM__ATTN_SPLIT - first + 1;
        if (v.last / BRIM__KV_BLOCK >= (uint32_t)o[ATTN_BLOCKS_MAX])
            continue;
        for (uint64_t n = 0; n < (uint64_t)splits * (uint32_t)o[ATTN_KV_HEADS]; n++, item++) {
            if (item % pieces != piece || made == env->run_counts[A_OUT])
                continue;
            float *parts = (float *)((char *)env->access[A_OUT] + made++ * item_bytes(o));
            split_item(env, &v, row, (uint32_t)(n / splits), first + (uint32_t)(n % splits), parts);
        }
    }
    env->run_counts[A_OUT] = made;
}

static void split_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    (void)p;
    /* One split's positions: how long a row's context is, is not known here. */
    const int32_t *o = in->operands;
    double context = (double)o[ATTN_BLOCKS_MAX] * BRIM__KV_BLOCK;
    double positions = context < BRIM__ATTN_SPLIT ? context : BRIM__ATTN_SPLIT;
    double rows = (double)o[ATTN_ROWS] / o[ATTN_BY];
    out->bytes =
        rows * o[ATTN_KV_HEADS] * positions * 2 * o[ATTN_HEAD_SIZE] * (o[ATTN_KV_F32] ? 4 : 2);
    out->flops = rows * o[ATTN_KV_HEADS] * positions * 4 * group_floats(o);
}

const brim_op_desc brim__op_ATTN_SPLIT = {
    .name = "attn.split", .body = split_body, .derive = split_derive, .cost = split_cost};

/* ---- attn.combine ---- */

static void derive_act_out(brim__deriving *d, const int32_t *o, uint32_t head, uint32_t heads)
{
    bool q16 = o[ATTN_ACT] == BRIM__ACT_Q16;
    uint32_t cols = group_floats(o) * (uint32_t)o[ATTN_KV_HEADS];
    uint64_t row_bytes = brim__act_row_bytes((brim__act)o[ATTN_ACT], cols);
    uint64_t head_bytes =
        q16 ? group_floats(o) / 32 * sizeof(brim__q16) : 4 * (uint64_t)group_floats(o);
    brim__derive_require(d, group_floats(o) % 32 == 0,
                         "a KV head's group must be a multiple of 32 wide");
    brim__derive_rows(d, BRIM_WRITE, o[ATTN_OUT], o[ATTN_STEP], STEP_ROWS, (uint32_t)o[ATTN_ROWS],
                      (uint32_t)o[ATTN_FIRST], (uint32_t)o[ATTN_BY], row_bytes, head * head_bytes,
                      heads * head_bytes);
}

static void store_act(void *to, const float *x, int32_t act, uint32_t cols, const brim__kernels *k)
{
    if (act == BRIM__ACT_Q16)
        k->quantize(to, x, cols);
    else
        memcpy(to, x, 4 * (size_t)cols);
}

/* ATTN_Q names the partials' buffer here; ATTN_SLOTS the sequences; ATTN_HEAD must be 0; the
 * pieces of attn.split stand in ATTN_TABLES, since tables are not read. */
static brim_status combine_derive(brim_instruction *out, const brim_program *p,
                                  const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, ATTN_COUNT);
    attn_require(&d, o);
    brim__derive_require(&d, o[ATTN_TABLES] > 0 && o[ATTN_TABLES] <= ROWS_MAX && o[ATTN_HEAD] == 0,
                         "pieces out of range");
    if (d.status != BRIM_OK)
        return d.status;
    uint32_t rows = (uint32_t)o[ATTN_ROWS], pieces = (uint32_t)o[ATTN_TABLES];
    uint64_t items =
        brim__attn_items(rows, (uint32_t)o[ATTN_KV_HEADS], (uint32_t)o[ATTN_BLOCKS_MAX], pieces);
    brim__derive_access(&d, BRIM_READ, o[ATTN_STEP], 0, brim__step_bytes(rows));
    brim__derive_access(&d, BRIM_READ, o[ATTN_Q], 0, pieces * items * item_bytes(o));
    derive_act_out(&d, o, 0, (uint32_t)o[ATTN_KV_HEADS]);
    return d.status;
}

/* Items of the rows before `row`, in the order of attn.split. */
static uint64_t items_before(const brim_op_env *env, const uint32_t *step, uint32_t row)
{
    const int32_t *o = env->instruction->operands;
    uint64_t item = 0;
    for (uint32_t r = 0; r < row; r++) {
        row_view v = view_of(env, step, NULL, r);
        if (v.last / BRIM__KV_BLOCK < (uint32_t)o[ATTN_BLOCKS_MAX])
            item += (uint64_t)(v.last / BRIM__ATTN_SPLIT - v.first / BRIM__ATTN_SPLIT + 1) *
                    (uint32_t)o[ATTN_KV_HEADS];
    }
    return item;
}

/* Gathers a head's partials in order behind one another, then combines them head by head. */
static void combine_head(const brim_op_env *env, float *out, float *gathered, uint64_t item,
                         uint32_t splits)
{
    const int32_t *o = env->instruction->operands;
    const brim__kernels *k = brim__kernels_get(env->isa);
    uint32_t pieces = (uint32_t)o[ATTN_TABLES], hs = (uint32_t)o[ATTN_HEAD_SIZE];
    uint64_t items = brim__attn_items((uint32_t)o[ATTN_ROWS], (uint32_t)o[ATTN_KV_HEADS],
                                      (uint32_t)o[ATTN_BLOCKS_MAX], pieces);
    for (uint32_t s = 0; s < splits; s++, item++)
        memcpy((char *)gathered + s * item_bytes(o),
               (const char *)env->access[1] +
                   (item % pieces * items + item / pieces) * item_bytes(o),
               item_bytes(o));
    for (uint32_t g = 0; g < (uint32_t)o[ATTN_GROUP]; g++)
        k->attn_combine(out + (size_t)g * hs, gathered + (size_t)g * (hs + 2), item_bytes(o) / 4,
                        splits, hs);
}

static void combine_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    const brim__kernels *k = brim__kernels_get(env->isa);
    const uint32_t *step = env->access[0];
    uint32_t heads = (uint32_t)o[ATTN_KV_HEADS];
    float *x = env->scratch, *gathered = x + (size_t)group_floats(o) * heads;
    for (uint32_t run = 0; run < env->run_counts[2]; run++) {
        uint32_t row = (uint32_t)o[ATTN_FIRST] + run * (uint32_t)o[ATTN_BY];
        row_view v = view_of(env, step, NULL, row);
        uint32_t splits = v.last / BRIM__ATTN_SPLIT - v.first / BRIM__ATTN_SPLIT + 1;
        uint64_t item = items_before(env, step, row);
        memset(x, 0, 4 * (size_t)group_floats(o) * heads);
        for (uint32_t h = 0; h < heads && v.usable; h++)
            combine_head(env, x + (size_t)h * group_floats(o), gathered,
                         item + (uint64_t)h * splits, splits);
        store_act((char *)env->access[2] + run * env->instruction->accesses[2].size, x, o[ATTN_ACT],
                  group_floats(o) * heads, k);
    }
}

static size_t attn_scratch(const brim_program *p, const brim_instruction *in)
{
    (void)p;
    const int32_t *o = in->operands;
    uint64_t splits =
        ((uint64_t)o[ATTN_BLOCKS_MAX] * BRIM__KV_BLOCK + BRIM__ATTN_SPLIT - 1) / BRIM__ATTN_SPLIT;
    return 4 * (size_t)group_floats(o) * (size_t)o[ATTN_KV_HEADS] + splits * item_bytes(o);
}

static void combine_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    (void)p;
    const int32_t *o = in->operands;
    out->bytes = (double)o[ATTN_ROWS] / o[ATTN_BY] * o[ATTN_KV_HEADS] * (double)item_bytes(o) * 2;
    out->flops = out->bytes;
}

const brim_op_desc brim__op_ATTN_COMBINE = {.name = "attn.combine",
                                            .body = combine_body,
                                            .derive = combine_derive,
                                            .cost = combine_cost,
                                            .scratch_bytes = attn_scratch};

/* ---- attn ---- */

static brim_status attn_derive(brim_instruction *out, const brim_program *p,
                               const brim_instruction *in)
{
    const int32_t *o = in->operands;
    brim__deriving d = brim__derive_begin(out, p, in, ATTN_COUNT);
    attn_require(&d, o);
    if (d.status != BRIM_OK)
        return d.status;
    derive_inputs(&d, o, (uint32_t)o[ATTN_HEAD], 1);
    derive_act_out(&d, o, (uint32_t)o[ATTN_HEAD], 1);
    return d.status;
}

static void attn_row(const brim_op_env *env, uint32_t row, float *x, float *parts)
{
    const int32_t *o = env->instruction->operands;
    const brim__kernels *k = brim__kernels_get(env->isa);
    row_view v = view_of(env, env->access[A_STEP], env->access[A_TABLES], row);
    memset(x, 0, 4 * (size_t)group_floats(o));
    if (!v.usable)
        return;
    brim__attn a = attn_of(env, &v, env->access[A_KV], 0); /* the region starts at the head */
    const float *q = (const float *)env->access[A_Q] +
                     (size_t)row * group_floats(o) * (uint32_t)o[ATTN_KV_HEADS] +
                     (size_t)o[ATTN_HEAD] * group_floats(o);
    uint32_t first = v.first / BRIM__ATTN_SPLIT, splits = v.last / BRIM__ATTN_SPLIT - first + 1;
    uint32_t hs = (uint32_t)o[ATTN_HEAD_SIZE];
    for (uint32_t s = 0; s < splits; s++)
        k->attn_split(parts + s * item_bytes(o) / 4, &a, q, first + s);
    for (uint32_t g = 0; g < (uint32_t)o[ATTN_GROUP]; g++)
        k->attn_combine(x + (size_t)g * hs, parts + (size_t)g * (hs + 2), item_bytes(o) / 4, splits,
                        hs);
}

static void attn_body(const brim_op_env *env)
{
    const int32_t *o = env->instruction->operands;
    const brim__kernels *k = brim__kernels_get(env->isa);
    float *x = env->scratch, *parts = x + group_floats(o);
    for (uint32_t run = 0; run < env->run_counts[A_OUT]; run++) {
        attn_row(env, (uint32_t)o[ATTN_FIRST] + run * (uint32_t)o[ATTN_BY], x, parts);
        store_act((char *)env->access[A_OUT] + run * env->instruction->accesses[A_OUT].size, x,
                  o[ATTN_ACT], group_floats(o), k);
    }
}

static void attn_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in)
{
    split_cost(out, p, in);
    out->bytes /= in->operands[ATTN_KV_HEADS];
    out->flops /= in->operands[ATTN_KV_HEADS];
}

const brim_op_desc brim__op_ATTN = {.name = "attn",
                                    .body = attn_body,
                                    .derive = attn_derive,
                                    .cost = attn_cost,
                                    .scratch_bytes = attn_scratch};
