/* kernels.h: the arithmetic of the language-model ops, with its meaning defined to the bit.
 *
 * Every function here has one meaning, the same in the reference (ref/, plain C) and in each
 * vectorised variant (cpu/): the operations below, in the order given, in IEEE binary32 with
 * round-to-nearest-even, never contracted; fma() is one rounding. A variant is chosen by the
 * instruction set at run time; all variants give the same bits. A vector lane carries one weight
 * row (or one position, or one dimension), so that no sum is ever taken across lanes, except by
 * the fixed tree of sum16:
 *
 *   sum16(v): sixteen partial sums, element i added to partial i % 16 in ascending order of i;
 *   then partials j and j + 8 are added, then j and j + 4, then j and j + 2, then the last two.
 *
 * Two formats of activations: F32 ("exact" numerics, and weights that are floats) and Q16.
 */
#ifndef BRIM_KERNELS_H
#define BRIM_KERNELS_H

#include "base/memory.h"
#include "brim/dtype.h"
#include "brim/hw.h"

/* ---- activations ---- */

typedef enum brim__act { BRIM__ACT_F32, BRIM__ACT_Q16, BRIM__ACT_COUNT } brim__act;

/* 32 activations as signed 16-bit integers times a scale, in two planes of bytes:
 * q = 256 * hi + lo, |q| <= 32512, x is about scale * q.
 * scale = amax / 32512; q = rint(x * (32512 / amax)); lo is the low byte of q read as signed,
 * hi = (q - lo) / 256. sum[h] is the sum of q over the half h (16 elements); scaled_sum is
 * scale * (float)(sum[0] + sum[1]), kept here because types with an offset need it for each row.
 * All zero when amax is 0 or so small that 32512 / amax overflows (below 2^-113). A block that
 * holds a value that is not finite has q 0 and a NaN in scale and scaled_sum: its products are
 * NaN, never silently wrong. */
typedef struct brim__q16 {
    int8_t hi[32];
    int8_t lo[32];
    float scale;
    float scaled_sum;
    int32_t sum[2];
} brim__q16;

/* Bytes of a row of `cols` activations (a multiple of 32), rounded up to 64. */
size_t brim__act_row_bytes(brim__act act, uint32_t cols);

/* ---- tiles ---- */

/* How a matrix (rows, cols) lies in memory as tiles. A tile is `tile_rows` (a multiple of 16) by
 * `tile_cols` (the last column block may be narrower); 8 to 32 KiB where the matrix is large
 * enough. Tiles are stored row block by row block, within it column block by column block.
 * Within a tile: group of 16 rows by group; within a group, cell by cell in order of columns.
 * Rows are padded with zeros to a multiple of tile_rows. The order does not depend on lanes.
 *
 * A cell holds 16 rows x 32 columns (x 256 for the K types):
 *   Q4_0  f16 d[16];             u8 nib[4][64]
 *   Q4_1  f16 d[16]; f16 m[16];  u8 nib[4][64]
 *   Q5_0  f16 d[16];             u8 high[64]; u8 nib[4][64]
 *   Q5_1  f16 d[16]; f16 m[16];  u8 high[64]; u8 nib[4][64]
 *   Q8_0  f16 d[16];             u8 q[8][64]            (stored + 128)
 *   Q4_K  f16 d[16]; f16 dmin[16]; u8 sc[8][16]; u8 mn[8][16]; 8 x { u8 nib[4][64] }
 *   Q5_K  f16 d[16]; f16 dmin[16]; u8 sc[8][16]; u8 mn[8][16]; 8 x { u8 high[64]; u8 nib[4][64] }
 *   Q6_K  f16 d[16]; s8 sc[16][16];  8 x { u8 high[2][64]; u8 nib[4][64] }  (q + 32)
 *   F16, BF16  u16 w[32][16];  F32  f32 w[32][16]
 * nib[g], byte 4r + j: low nibble is row r, column 4g + j; high nibble is column 16 + 4g + j.
 * high[64] (one bit), byte 4r + j: bit g is the fifth bit of column 4g + j, g = 0..7.
 * high[2][64] (two bits): bits 2(g%4), 2(g%4)+1 of byte 4r + j of high[g/4] are bits 4 and 5 of
 * column 4g + j.
 * q[g], byte 4r + j: column 4g + j of row r.  sc[j][r]: of sub-block j (32 columns; 16 for Q6_K).
 */
typedef struct brim__tiling {
    brim_dtype type;
    uint32_t rows, cols; /* of the matrix */
    uint32_t tile_rows, tile_cols;
    uint32_t row_blocks, col_blocks;
    uint32_t cell_cols, cell_bytes;
    uint64_t row_block_bytes; /* of tile_rows rows by all columns */
    uint64_t bytes;           /* row_blocks * row_block_bytes */
} brim__tiling;

/* Errors: UNSUPPORTED, id "tile.shape": no rows, or columns that are not a multiple of the type's
 * block or of 32. */
brim_status brim__tiling_of(brim__tiling *out, brim_dtype type, uint32_t rows, uint32_t cols);

/* Packs row blocks [first, first + count) from `rows`, the matrix's first row in the file's layout.
 * `dst` is where row block `first` goes. Rows past the matrix are zeros. Fast: a start packs the
 * whole model. */
void brim__tile_pack(void *dst, const brim__tiling *t, const void *rows, uint32_t first,
                     uint32_t count);

/* Row `row` of the tiled matrix as floats, out[cols]: the exact dequantised values, one rounding
 * each where the type has an offset: fma(q, d, m); K types fma(q, d * sc, -(dmin * mn)); Q6_K
 * (d * sc) * q. */
void brim__tile_row(float *out, const brim__tiling *t, const void *tiles, uint32_t row);

/* The same from a row in the file's layout: the oracle of the above. */
void brim__dequantize_row(float *out, brim_dtype type, const void *row, uint32_t cols);

/* ---- tiles for a matrix unit ---- */

/* The second way a matrix may lie in memory, for F16 and BF16 with columns in a multiple of 32:
 * tiles of 8 rows by all columns, one after another, a tile being cols / 32 granules, each
 * u16 w[8][32]: element (r, c) is at 2 * (r / 8 * 8 * cols + c / 32 * 256 + r % 8 * 32 + c % 32).
 * Rows are padded with zeros to a multiple of 8. A tiling of this kind has tile_rows
 * BRIM__MMA8_ROWS, one column block, and cells of 512 bytes. */
enum { BRIM__MMA8_ROWS = 8, BRIM__MMA8_COLS = 32, BRIM__MMA8_SOURCES_MAX = 3 };

static inline bool brim__tiling_is_mma8(const brim__tiling *t)
{
    return t->tile_rows == BRIM__MMA8_ROWS;
}
/* Errors: UNSUPPORTED, id "tile.shape": another type, no rows, or other columns. */
brim_status brim__tiling_mma8(brim__tiling *out, brim_dtype type, uint32_t rows, uint32_t cols);

/* Where the rows of a packed matrix come from: `row_count` rows in the file's layout, of any type,
 * as wide as the matrix. */
typedef struct brim__mma8_source {
    const void *rows;
    brim_dtype type;
    uint32_t row_count;
} brim__mma8_source;

/* The matrix's rows are those of source 0, then of source 1, ... ; or, with two sources of the same
 * number of rows, interleaved: row 2i is row i of source 0, row 2i + 1 row i of source 1. */
typedef struct brim__mma8_matrix {
    brim__mma8_source sources[BRIM__MMA8_SOURCES_MAX];
    uint32_t source_count;
    bool interleaved;
} brim__mma8_matrix;

/* Packs row blocks [first, first + count) of a matrix whose rows the sources have; `dst` is where
 * row block `first` goes. A source of the tiling's type is copied bit by bit; another one is
 * dequantised and rounded to nearest even. `scratch` has room for cols floats; it may be NULL when
 * all sources have the tiling's type. Errors: UNSUPPORTED, id "tile.range": a finite value is
 * beyond the type's range (`name` says whose); USAGE, id "tile.sources": the sources' rows are not
 * the matrix's. */
brim_status brim__tile_mma8_pack(void *dst, const brim__tiling *t, const brim__mma8_matrix *matrix,
                                 uint32_t first, uint32_t count, float *scratch, const char *name);

/* n 16-bit floats of type F16 or BF16 as floats, exactly; and back: to nearest even, overflow to
 * infinity, every NaN to 0x7fff. */
void brim__halves_widen(float *out, brim_dtype type, const uint16_t *halves, size_t n);
void brim__halves_round(uint16_t *out, brim_dtype type, const float *x, size_t n);

/* Row `row` of the packed matrix as floats, out[cols]. */
void brim__tile_mma8_row(float *out, const brim__tiling *t, const void *tiles, uint32_t row);

/* ---- attention's KV cache ---- */

/* Positions lie in blocks of 32 of one pool; a (layer, KV head) has its K and its V part. In a
 * block, K is transposed in two groups of 16 positions, k[2][head_size][16]; V is v[32][head_size].
 * Elements are f16 or f32. */
enum { BRIM__KV_BLOCK = 32, BRIM__ATTN_SPLIT = 256 };

typedef struct brim__attn {
    const void *k, *v;      /* the (layer, head) parts of the pool: block 0 */
    const uint32_t *blocks; /* of the row's sequence: position p is in block blocks[p / 32] */
    uint64_t block_bytes;   /* of one block of one part: 32 * head_size * element size */
    bool kv_f32;
    uint32_t head_size;   /* multiple of 16, at most 256 */
    uint32_t group;       /* query heads of this KV head, at most 16 */
    uint32_t first, last; /* positions seen: first .. last (inclusive) */
    float scale;
} brim__attn;

/* The result of one split for one query head. */
typedef struct brim__attn_part {
    float max, sum;
    float out[]; /* head_size */
} brim__attn_part;

/* ---- the table of bodies ---- */

/* y = W x for the row blocks at `tiles`; the table below says what that means. */
typedef void (*brim__matmul)(float *out, size_t out_stride, const brim__tiling *t,
                             const void *tiles, uint32_t row_block_count, const void *x,
                             size_t x_row_bytes, uint32_t row_count);

typedef struct brim__kernels {
    brim_isa isa;

    /* out[m * out_stride + i], i in 0 .. row_block_count * tile_rows - 1 (padding rows included),
     * for the row blocks that start at `tiles` and the activation rows m = 0 .. row_count - 1 (any
     * count) at x + m * x_row_bytes. acc starts at 0 and runs over the columns in ascending order.
     *  Q16: a block of 32 columns has scale s, integers q and S, the sum of q ((float)S is exact);
     *  the products w * q are summed in int32, exactly:
     *   Q4_0        acc = fma((float)(sum w*q), d * s, acc), w = nib - 8
     *   Q5_0        the same, w = five bits - 16;  Q8_0  the same, w = the signed byte
     *   Q4_1, Q5_1  acc = fma((float)(sum w*q), d * s, acc), w unsigned; then
     *               acc = fma(m, s * (float)S, acc)
     *   Q4_K, Q5_K  acc = fma((float)(sum w*q), (d * sc) * s, acc), w unsigned; then
     *               acc = fma(-(dmin * mn), s * (float)S, acc)
     *   Q6_K        for each half h: acc = fma((float)(sum over the half of w*q), (d * sc[h]) * s,
     *               acc), w = six bits - 32
     *  F32, all types: for each column acc = fma(w, x, acc), w as brim__tile_row gives it.
     *  F16, BF16 and F32 weights exist with F32 activations only (NULL for Q16). */
    brim__matmul matmul[BRIM__ACT_COUNT][32]; /* by act and dtype id; NULL where there is none */

    /* y[i] = (x[i] * r) * w[i], r = 1 / sqrt(sum16(x[i] * x[i], by fma) / n + epsilon). n is a
     * multiple of 16. w NULL: 1 (no product). y may be x. */
    void (*rms_norm)(float *y, const float *x, const float *w, uint32_t n, float epsilon);
    /* n is a multiple of 32. */
    void (*quantize)(brim__q16 *out, const float *x, uint32_t n);
    /* y[i] = a[i] + b[i] */
    void (*add)(float *y, const float *a, const float *b, uint32_t n);
    /* y[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x)), exp as below */
    void (*silu_mul)(float *y, const float *gate, const float *up, uint32_t n);
    /* Rotates pairs of x[0 .. n) in place, n even; cos_sin: n / 2 cosines, then n / 2 sines of this
     * position. halves: pair i is (i, i + n/2), else (2i, 2i + 1).
     * a' = fma(a, c, -(b * s)); b' = fma(a, s, b * c). */
    void (*rope)(float *x, const float *cos_sin, uint32_t n, bool halves);
    /* One split: the positions of [256 * split, 256 * split + 256) that are in first..last (at
     * least one); queries q[group][head_size]. Writes a part for each query head, head_size + 2
     * floats apart:
     *   score_p = (chain over d ascending of acc = fma(q_d, k_pd, acc), acc = 0) * scale
     *   max = the largest score (+0 when it is zero); e_p = exp(score_p - max)
     *   sum = sum16 of e_p, where p is in partial p % 16; positions not seen add nothing
     *   out_d = chain over p ascending of acc = fma(e_p, v_pd, acc), acc = 0
     * What the pool holds at positions that are not seen has no influence, be it NaN. */
    void (*attn_split)(float *parts, const brim__attn *a, const float *q, uint32_t split);
    /* Combines `count` parts (stride_floats apart) in order into out[head_size]. The first is taken
     * as it is; then for each: m = max(M, max); a = exp(M - m), b = exp(max - m);
     * S = fma(S, a, sum * b); o_d = fma(o_d, a, out_d * b); M = m. At the end out_d = o_d / S. */
    void (*attn_combine)(float *out, const float *parts, size_t stride_floats, uint32_t count,
                         uint32_t head_size);
    /* Stores one position (0..31) of a block: x[head_size] rounded to the element type (f16: to
     * nearest even, overflow and infinities to the largest finite value; f32: as it is). `v` false:
     * the transposed K layout. */
    void (*kv_store)(void *block, const float *x, uint32_t slot, uint32_t head_size, bool v,
                     bool f32);
    /* Index of the largest value, the lowest such index; NaN never wins; 0 if all are NaN. */
    uint32_t (*argmax)(const float *x, uint32_t n);
    /* y[i] = exp(x[i]), the exp of this header: x clamped to [-104, 88.7228317];
     * k = rint(x * log2(e)); r = fma(k, -ln2_hi, x); r = fma(k, -ln2_lo, r); a polynomial in r by
     * Horner's rule with fma (exp_constants.h); times 2^k in two steps, so that denormal results
     * are rounded once. Within 2 ulp of exp where that is in the float range; exp(-inf) is 0.
     * y may be x. */
    void (*exp)(float *y, const float *x, uint32_t n);
} brim__kernels;

/* The bodies for an instruction set; SCALAR is the reference. A set that this CPU or build lacks
 * gives NULL. */
const brim__kernels *brim__kernels_get(brim_isa isa);

#endif
