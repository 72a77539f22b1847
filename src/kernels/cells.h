/* cells.h: where the parts of a tile's cell lie, and the scalar number formats in them.
 *
 * kernels.h defines the cells; this file gives their offsets names, for the packer, the reference
 * and the vectorised bodies alike. A cell's start is aligned to 32 bytes at least (every cell is a
 * multiple of 32 bytes), but no body may rely on more than its loads ask for. */
#ifndef BRIM_KERNELS_CELLS_H
#define BRIM_KERNELS_CELLS_H

#include <string.h>

#include "kernels/kernels.h"

enum {
    BRIM__GROUP_ROWS = 16, /* rows of a cell: one vector lane each */
    BRIM__BLOCK_COLS = 32, /* columns of a block of activations and of a sub-block of a cell */
    BRIM__HIGH_BYTES = 64, /* one plane of fifth bits; Q6_K has two of them */
    BRIM__TILE_BYTES_MIN = 8 << 10,
    BRIM__TILE_BYTES_MAX = 32 << 10,
    BRIM__TILE_ROWS_MAX = 512, /* of the narrowest matrix: one cell of 288 bytes a group */
};

/* Offsets into a cell. Scales d always stand first. A type without a part has 0 there. */
typedef struct brim__cell_layout {
    uint16_t m;         /* f16 m[16] or dmin[16] */
    uint16_t sc, mn;    /* scales and minima of sub-blocks */
    uint16_t subs;      /* the first sub-block: its high bits if any, then its nibbles or bytes */
    uint16_t high;      /* bytes of high bits at the front of a sub-block */
    uint16_t sub_bytes; /* of a whole sub-block of 32 columns */
    uint16_t sub_count;
} brim__cell_layout;

/* clang-format off */
#define BRIM__CELL_Q4_0 {.subs = 32, .sub_bytes = 256, .sub_count = 1}
#define BRIM__CELL_Q4_1 {.m = 32, .subs = 64, .sub_bytes = 256, .sub_count = 1}
#define BRIM__CELL_Q5_0 {.subs = 32, .high = 64, .sub_bytes = 320, .sub_count = 1}
#define BRIM__CELL_Q5_1 {.m = 32, .subs = 64, .high = 64, .sub_bytes = 320, .sub_count = 1}
#define BRIM__CELL_Q8_0 {.subs = 32, .sub_bytes = 512, .sub_count = 1}
#define BRIM__CELL_Q4_K \
    {.m = 32, .sc = 64, .mn = 192, .subs = 320, .sub_bytes = 256, .sub_count = 8}
#define BRIM__CELL_Q5_K \
    {.m = 32, .sc = 64, .mn = 192, .subs = 320, .high = 64, .sub_bytes = 320, .sub_count = 8}
#define BRIM__CELL_Q6_K {.sc = 32, .subs = 288, .high = 128, .sub_bytes = 384, .sub_count = 8}
#define BRIM__CELL_F16 {.sub_bytes = 1024, .sub_count = 1}
#define BRIM__CELL_BF16 {.sub_bytes = 1024, .sub_count = 1}
#define BRIM__CELL_F32 {.sub_bytes = 2048, .sub_count = 1}
/* clang-format on */

static inline uint32_t brim__load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint16_t brim__load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void brim__store_u32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline void brim__store_u16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline float brim__float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t brim__bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Exact; a NaN keeps its payload and becomes quiet. */
static inline float brim__f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 0x3ffu;
    if (exponent == 31)
        return brim__float_of(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0));
    if (exponent == 0) { /* zero or a denormal: mantissa * 2^-24 */
        float f = (float)mantissa * 0x1p-24f;
        return sign ? -f : f;
    }
    return brim__float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* To nearest, ties to even; beyond the largest finite value (infinities too) to that value. */
static inline uint16_t brim__f32_to_f16(float f)
{
    uint32_t bits = brim__bits_of(f), magnitude = bits & 0x7fffffffu;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x477fe000u) /* 65504 and above */
        return (uint16_t)(sign | 0x7bffu);
    if (magnitude < 0x38800000u) { /* below 2^-14: a multiple of 2^-24, rounded by the addition */
        uint32_t sum = brim__bits_of(brim__float_of(magnitude) + 0.5f);
        return (uint16_t)(sign | (sum - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1u;
    uint32_t rounded = magnitude - 0x38000000u + 0xfffu + odd;
    return (uint16_t)(sign | rounded >> 13);
}

static inline float brim__bf16_to_f32(uint16_t h)
{
    return brim__float_of((uint32_t)h << 16);
}

static inline float brim__load_f16(const void *p)
{
    return brim__f16_to_f32(brim__load_u16(p));
}

/* Bytes of a tile's column block `block` and where it starts within its row block. */
static inline uint64_t brim__tile_offset(const brim__tiling *t, uint32_t col_block)
{
    return (uint64_t)col_block * (t->tile_rows / BRIM__GROUP_ROWS) * (t->tile_cols / t->cell_cols) *
           t->cell_bytes;
}

/* Cells of one group in column block `col_block`: the last one may be narrower. */
static inline uint32_t brim__tile_cells(const brim__tiling *t, uint32_t col_block)
{
    uint32_t first = col_block * t->tile_cols;
    uint32_t cols = t->cols - first < t->tile_cols ? t->cols - first : t->tile_cols;
    return cols / t->cell_cols;
}

/* The layout of a type's cells; `sub_count` 0 for an unknown type. */
brim__cell_layout brim__cell_layout_of(brim_dtype type);

/* One row's 32 columns of one sub-block, unpacked: value(c) = a[c / 16] * w[c], or with an offset
 * fma(w[c], a[0], b). The plain view of a cell that the reference and tile_row share. */
typedef struct brim__cell_row {
    int32_t w[32];
    float a[2];
    float b;
    bool has_offset;
} brim__cell_row;

/* For the quantised types. `sub` < sub_count, `row` < 16. */
void brim__cell_row_read(brim__cell_row *out, brim_dtype type, const uint8_t *cell, uint32_t sub,
                         uint32_t row);
/* The 32 values themselves, for every type. */
void brim__cell_row_floats(float out[32], brim_dtype type, const uint8_t *cell, uint32_t sub,
                           uint32_t row);

#endif
