/* ops_resident.h: the operands and the meaning of the resident ops: decode of few rows on many
 * lanes with one dependent stage a matrix product, as a GPU wants it.
 *
 * Weights are 16-bit floats (T: bf16 or f16, the type of the program's tensors) in the layout
 * BRIM_LAYOUT_MMA8: tiles of 8 rows by all columns, a tile being cols / 32 granules [8 rows][32
 * columns] one after another; row block b starts at b * 16 * cols bytes. Rows are padded to a
 * multiple of 8 with zeros. What is published between lanes goes in packets.
 *
 * Shapes (R: rows of the program, 1 .. 8; "tile" is 8 elements of a vector):
 *   y      T   (tile, row, 8)   activations as the next product wants them, already times the next
 *                               norm's weight: y = T(x * w), rounded once (packets)
 *   ssq    f32 (tile, row)      the tile's sum of x * x (packets)
 *   x      f32 (tile, row, 8)   the residual; read and written by the lane that owns the tile
 *   qkv    f16 (tile, row, 8)   query, key and value rows before norm and RoPE (packets)
 *   h      T   (tile, row, 8)   silu(gate) * up (packets)
 *   parts  (item): f16 (group, head_size) normalised outputs, then f32 (group) log-sum-exps, padded
 *                               to 16 bytes (packets)
 *   logits f32 (out row, vocabulary)
 * Conversions to T and f16 are IEEE's: to nearest even, overflow to infinity; a NaN becomes 0x7fff,
 * and 0x7fffffff where an f32 goes in a packet, so that no word of a packet looks empty.
 * Rows past STEP_ROWS are written as zeros, and items that do not exist too (an executor may skip
 * both, since nobody looks at them).
 *
 * Meaning of a product of row r of W (K columns) with y: columns are cut into granules of 32;
 * granule j belongs to warp j % 8. A warp has two accumulators, both 0 at first; for its granules
 * in ascending order: the 16 columns c with c % 8 < 4 are added to the first, the others to the
 * second, each 16 in one step, products exact, the sum in float32 in the order of the hardware's
 * matrix unit (for which the reference sums the 16, columns c, c + 8, c + 16, c + 24 first, as
 * ((0 + 1) + (2 + 3)), then the four of them alike, and adds that to the accumulator). p_w = first + second. The product is
 * ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7)).
 * With a norm before it: v = product * r, r = 1 / sqrt(S / K + epsilon). S: partial l (0 .. 31)
 * sums ssq of the tiles 4 i + k of i = l, l + 32, ... in ascending order, within i as
 * ((k0 + k1) + (k2 + k3)); then partials l and l ^ 1 are added, then l ^ 2, 4, 8, 16. (The number
 * of tiles is a multiple of 4.) ssq of a tile: the squares of its 8 elements summed as
 * ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)).
 */
#ifndef BRIM_OPS_RESIDENT_H
#define BRIM_OPS_RESIDENT_H

#include "program/ops_llm.h"

enum {
    BRIM__RES_ROWS_MAX = 8,
    BRIM__RES_TILE = 8,       /* weight rows of a tile; elements of a tile of a vector */
    BRIM__RES_SPLIT = 128,    /* positions of an attention item: absolute places */
    BRIM__RES_DIRECT_MAX = 8, /* splits that r.out combines itself */
    BRIM__RES_GROUP_MAX = 8,  /* query heads of a KV head */
};

/* r.begin (one lane): history[slot][position] = token for each row: operands like EMBED's. */
enum { RB_STEP, RB_HISTORY, RB_ROWS, RB_CONTEXT, RB_SLOTS, RB_COUNT };

/* Where a product's input comes from. */
enum {
    RV_FROM_Y,     /* y packets; with ssq packets if RV_IN_SSQ is given (a norm), else no norm */
    RV_FROM_EMBED, /* x = row `token` of the embedding; y = T(x * RV_NORM_IN), ssq from x */
    RV_FROM_PARTS, /* the parts of attention, at most BRIM__RES_DIRECT_MAX splits, combined here */
};

/* r.qkv: out qkv, v = f16(product * r + bias).
 * r.out: x' = add + product (add: the embedding's row if RV_ADD is -1); x = x'; y = T(x' *
 * norm_out); ssq. r.gate_up: tensor rows 2i: gate row i, 2i + 1: up row i; h[i] = T(silu(gate * r)
 * * (up * r)). A unit is two tiles, so that it makes a whole tile of h. r.down: as r.out, from h
 * (RV_FROM_Y without ssq). r.head: logits[i] = product * r of row STEP_OUT_ROW[i]; tiles are
 * consecutive (stride 1). The lane's tiles (units for r.gate_up): first, first + stride, ... count
 * of them. */
enum {
    RV_STEP,
    RV_IN,       /* buffer of y, h or parts; -1 from the embedding */
    RV_IN_SSQ,   /* -1: no norm before the product */
    RV_NORM_IN,  /* f32 (cols), from the embedding only; else -1 */
    RV_OUT,      /* qkv, y, h or logits */
    RV_OUT_SSQ,  /* r.out, r.down; else -1 */
    RV_NORM_OUT, /* f32 (rows of W): r.out, r.down; else -1 */
    RV_ADD,      /* x buffer, or -1: the embedding (r.out of the first layer) */
    RV_X,        /* x buffer written; else -1 */
    RV_BIAS,     /* f32 (rows of W), r.qkv only, or -1 */
    RV_TENSOR,
    RV_EMBED, /* the embedding's tensor where it is read; else -1 */
    RV_ROWS,  /* R */
    RV_FIRST,
    RV_STRIDE,
    RV_TILES, /* how many */
    RV_EPSILON,
    RV_FROM,
    RV_HEAD_SIZE, /* RV_FROM_PARTS: */
    RV_GROUP,
    RV_WINDOW,
    RV_SPLITS_MAX, /* splits a row may have: items a (row, head) */
    RV_COUNT
};

/* r.attn: items are counted row by row (rows in use), in a row KV head by KV head, in a head split
 * by split (from the first split in view on); item n is done by piece n % by, and lies at n in
 * parts. Splits are positions [128 s, 128 s + 128). Positions of this step's rows (same slot, at
 * most the row's own position) come from qkv packets, older ones from the KV pool.
 * q and k: bias is in them; with head norms: x = x * r * w, r = 1 / sqrt(mean of squares +
 * epsilon); then RoPE in float32 (op rope of kernels.h), rounded to f16. v is as it is. score =
 * (sum over d of q_d * k_d, float32) * scale; max over the split's positions in view; e = exp(score
 * - max); out = sum of f16(e) * v / sum of e; log-sum-exp = max + ln(sum of e). Within a split,
 * warps of 16 positions are combined: M = max of maxes; sums times exp(m_w - M), in ascending order
 * of w. parts are combined as: m = largest log-sum-exp; f_i = exp(lse_i - m); with i counted from
 * the row's first split: partial sums over i % 64 in ascending order of i, then partials j and j +
 * 32 are added, j and j + 16, ... 8, 4, 2, 1; T(sum of f_i * out_i / sum of f_i). The KV pool
 * (f16): (layer, KV head, block of the pool, {K, V}, 32 positions, head_size); in a row of
 * head_size elements the 16-byte chunk c is stored at c ^ (position % 8). */
enum {
    RA_STEP,
    RA_TABLES,
    RA_QKV,
    RA_KV,
    RA_PARTS,
    RA_ROPE,
    RA_Q_NORM, /* -1: none */
    RA_K_NORM,
    RA_ROWS,
    RA_LAYER,
    RA_KV_HEADS,
    RA_GROUP,
    RA_HEAD_SIZE, /* 64 or 128 */
    RA_BLOCKS,
    RA_BLOCKS_MAX,
    RA_WINDOW,
    RA_SCALE,
    RA_EPSILON,
    RA_ROPE_HALVES, /* rope size is the head size */
    RA_FIRST,       /* piece */
    RA_BY,          /* pieces */
    RA_SLOTS,
    RA_SPLITS_MAX, /* splits a row may have */
    RA_COUNT
};

/* r.combine: parts to y-shaped T (tile, row, 8) `attended` packets of R rows by KV heads * group *
 * head_size. Units are granules of 32 columns of all R rows; unit n is done by piece n % by. */
enum {
    RC_STEP,
    RC_PARTS,
    RC_OUT,
    RC_ROWS,
    RC_KV_HEADS,
    RC_GROUP,
    RC_HEAD_SIZE,
    RC_WINDOW,
    RC_SPLITS_MAX,
    RC_TYPE, /* brim_dtype of T */
    RC_FIRST,
    RC_BY,
    RC_COUNT
};

/* r.append: k (normed, rotated) and v of this step's rows of one (layer, KV head) go to the KV
 * pool. RP_AFTER names a y buffer whose packets it waits for in whole, so that every attention of
 * the step is done: nobody reads the pool then. */
enum {
    RP_STEP,
    RP_TABLES,
    RP_QKV,
    RP_KV,
    RP_ROPE,
    RP_K_NORM, /* -1: none */
    RP_AFTER,
    RP_AFTER_COLS,
    RP_ROWS,
    RP_LAYER,
    RP_KV_HEADS,
    RP_GROUP,
    RP_HEAD_SIZE,
    RP_BLOCKS,
    RP_BLOCKS_MAX,
    RP_EPSILON,
    RP_ROPE_HALVES,
    RP_HEAD,
    RP_SLOTS,
    RP_COUNT
};

/* ---- what host, device and reference compute alike ---- */

/* As brim_tensor_desc says. Errors: those of brim__tiling_of(). */
static inline brim_status brim__tiling_of_layout(brim__tiling *out, brim_layout layout,
                                                 brim_dtype type, uint32_t rows, uint32_t cols)
{
    BRIM_FAIL_IF((unsigned)layout > BRIM_LAYOUT_MMA8, UNSUPPORTED, "tile.shape",
                 "no layout of tiles has the number %u", (unsigned)layout);
    return layout == BRIM_LAYOUT_MMA8 ? brim__tiling_mma8(out, type, rows, cols)
                                      : brim__tiling_of(out, type, rows, cols);
}

/* The positions that a row sees are brim__res_first_seen() .. its own; they lie in the splits from
 * brim__res_first_split() on, brim__res_splits() of them: never more than splits_max, and never
 * none. */
static inline uint32_t brim__res_first_seen(uint32_t position, uint32_t window)
{
    return window && position >= window ? position - window + 1 : 0;
}
static inline uint32_t brim__res_first_split(uint32_t position, uint32_t window)
{
    return brim__res_first_seen(position, window) / BRIM__RES_SPLIT;
}
static inline uint32_t brim__res_splits(uint32_t position, uint32_t window, uint32_t splits_max)
{
    uint32_t splits = position / BRIM__RES_SPLIT - brim__res_first_split(position, window) + 1;
    return splits < splits_max ? splits : splits_max;
}
/* Splits that a row may have in a sequence of `context` positions. */
static inline uint32_t brim__res_splits_of_context(uint32_t context, uint32_t window)
{
    uint32_t all = context / BRIM__RES_SPLIT + (context % BRIM__RES_SPLIT != 0);
    uint32_t seen = window == 0 ? all : window == 1 ? 1 : (window - 2) / BRIM__RES_SPLIT + 2;
    return seen < all ? seen : all;
}
/* Items that a step may have, and those of the rows before `row`. */
static inline uint64_t brim__res_items_max(uint32_t rows, uint32_t kv_heads, uint32_t splits_max)
{
    return (uint64_t)rows * kv_heads * splits_max;
}
static inline uint64_t brim__res_items_before(const uint32_t *step, uint32_t rows, uint32_t row,
                                              uint32_t kv_heads, uint32_t window,
                                              uint32_t splits_max)
{
    uint64_t items = 0;
    for (uint32_t r = 0; r < row; r++)
        items +=
            (uint64_t)kv_heads *
            brim__res_splits(step[brim__step_word(STEP_POSITION, rows, r)], window, splits_max);
    return items;
}
/* Units first, first + by, ... below `units`: how many. */
static inline uint64_t brim__res_share(uint64_t units, uint32_t first, uint32_t by)
{
    return first < units ? (units - first + by - 1) / by : 0;
}

/* Elements of a qkv vector: query heads, key heads, value heads. */
static inline uint32_t brim__res_qkv_cols(uint32_t kv_heads, uint32_t group, uint32_t head_size)
{
    return kv_heads * (group + 2) * head_size;
}
/* Bytes of one block of the KV pool: K and V of 32 positions. */
static inline uint64_t brim__res_kv_block_bytes(uint32_t head_size)
{
    return 2 * 2 * (uint64_t)BRIM__KV_BLOCK * head_size;
}
/* Bytes of all blocks of one (layer, KV head), which lie one after another. */
static inline uint64_t brim__res_kv_head_bytes(uint32_t head_size, uint32_t blocks)
{
    return blocks * brim__res_kv_block_bytes(head_size);
}
/* The byte, within such a region, of the 16-byte chunk of elements 8 c .. 8 c + 7. */
static inline uint64_t brim__res_kv_place(uint32_t head_size, uint32_t block, bool v,
                                          uint32_t position, uint32_t c)
{
    uint32_t row = (v ? BRIM__KV_BLOCK : 0) + position % BRIM__KV_BLOCK;
    return block * brim__res_kv_block_bytes(head_size) + 2 * (uint64_t)row * head_size +
           16 * (c ^ position % 8);
}

static inline uint64_t brim__res_part_bytes(uint32_t group, uint32_t head_size)
{
    return 2 * (uint64_t)group * head_size + 16 * (((uint64_t)group + 3) / 4);
}
/* Bytes of R rows of a vector of `cols` 16-bit elements, and of its ssq. */
static inline uint64_t brim__res_vector_bytes(uint32_t rows, uint32_t cols)
{
    return 2 * (uint64_t)rows * cols;
}
static inline uint64_t brim__res_ssq_bytes(uint32_t rows, uint32_t cols)
{
    return 4 * (uint64_t)rows * (cols / BRIM__RES_TILE);
}
static inline uint64_t brim__res_x_bytes(uint32_t rows, uint32_t cols)
{
    return 4 * (uint64_t)rows * cols;
}

#endif
