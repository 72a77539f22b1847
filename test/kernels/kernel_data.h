/* kernel_data.h: matrices in the file's layout and activations for the tests of kernels, drawn
 * from a counter: gentle, wild, and built to sit on the limits of the formats. */
#ifndef BRIM_TEST_KERNEL_DATA_H
#define BRIM_TEST_KERNEL_DATA_H

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/kernels.h"

/* How numbers are drawn. WILD: any finite value, denormals and zeros included. FULL: every
 * quantised number at its largest or smallest. ZERO: scales are zero, numbers are not. */
typedef enum data_kind { DATA_GENTLE, DATA_WILD, DATA_FULL, DATA_ZERO, DATA_KIND_COUNT } data_kind;

static const brim_dtype all_types[] = {
#define ALL_TYPES(name, id, block, bytes) BRIM_DTYPE_##name,
    BRIM_DTYPE_LIST(ALL_TYPES)
#undef ALL_TYPES
};
enum { ALL_TYPE_COUNT = sizeof all_types / sizeof *all_types };

typedef struct draws {
    uint64_t seed, index;
} draws;

static inline uint64_t draw(draws *d)
{
    return brim__random_u64(d->seed, 7, d->index++);
}
static inline uint32_t draw_below(draws *d, uint32_t bound)
{
    return (uint32_t)brim__random_below(d->seed, 8, d->index++, bound);
}
/* Uniform in [-1, 1). */
static inline float draw_unit(draws *d)
{
    return 2 * brim__random_float(d->seed, 9, d->index++) - 1;
}

static inline uint16_t draw_f16(draws *d, data_kind kind)
{
    uint16_t bits = (uint16_t)draw(d);
    if (kind == DATA_ZERO)
        return bits & 0x8000u;
    if (kind == DATA_GENTLE || kind == DATA_FULL) /* 2^-10 .. 2^-6, either sign */
        return (uint16_t)((bits & 0x8000u) | (5 + bits % 4) << 10 | (bits >> 3 & 0x3ffu));
    return (bits >> 10 & 31u) == 31 ? bits & 0x83ffu : bits;
}

static inline float draw_f32(draws *d, data_kind kind)
{
    if (kind == DATA_ZERO)
        return draw(d) & 1 ? 0.0f : -0.0f;
    if (kind != DATA_WILD)
        return draw_unit(d) * (draw_below(d, 50) ? 1.0f : 40.0f);
    uint32_t bits = (uint32_t)draw(d);
    uint32_t exponent = 1 + draw_below(d, 90) + (draw_below(d, 4) ? 60 : 0); /* 2^-126 .. 2^24 */
    bits = (bits & 0x807fffffu) | (draw_below(d, 16) ? exponent : 0) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Where the f16 scales of a block stand: byte offsets, at most two. */
static inline uint32_t scale_offsets(uint32_t out[2], brim_dtype type)
{
    out[0] = type == BRIM_DTYPE_Q6_K ? 208 : 0;
    out[1] = 2;
    switch (type) {
    case BRIM_DTYPE_Q4_1:
    case BRIM_DTYPE_Q5_1:
    case BRIM_DTYPE_Q4_K:
    case BRIM_DTYPE_Q5_K:
        return 2;
    default:
        return 1;
    }
}

static inline size_t file_row_bytes(brim_dtype type, uint32_t cols)
{
    return (size_t)cols / brim_dtype_block(type) * brim_dtype_block_bytes(type);
}

/* Fills one block of the file's layout. */
static inline void draw_block(uint8_t *block, brim_dtype type, draws *d, data_kind kind)
{
    if (type == BRIM_DTYPE_F32) {
        float f = draw_f32(d, kind);
        memcpy(block, &f, sizeof f);
        return;
    }
    if (type == BRIM_DTYPE_F16 || type == BRIM_DTYPE_BF16) {
        uint16_t h = draw_f16(d, kind);
        if (type == BRIM_DTYPE_BF16) {
            float f = draw_f32(d, kind);
            memcpy(&h, (uint8_t *)&f + 2, sizeof h);
        }
        memcpy(block, &h, sizeof h);
        return;
    }
    uint32_t bytes = brim_dtype_block_bytes(type), offsets[2];
    for (uint32_t i = 0; i < bytes; i++) {
        uint64_t r = draw(d);
        block[i] = kind != DATA_FULL ? (uint8_t)r : r % 3 == 0 ? 0xff : r % 3 == 1 ? 0x00 : 0x80;
    }
    uint32_t count = scale_offsets(offsets, type);
    for (uint32_t i = 0; i < count; i++) {
        uint16_t h = draw_f16(d, kind);
        memcpy(block + offsets[i], &h, sizeof h);
    }
}

static inline void draw_matrix(uint8_t *rows, brim_dtype type, uint32_t row_count, uint32_t cols,
                               draws *d, data_kind kind)
{
    size_t blocks = (size_t)row_count * cols / brim_dtype_block(type);
    for (size_t i = 0; i < blocks; i++)
        draw_block(rows + i * brim_dtype_block_bytes(type), type, d, kind);
}

static inline void draw_floats(float *x, size_t n, draws *d, data_kind kind)
{
    for (size_t i = 0; i < n; i++)
        x[i] = draw_f32(d, kind);
    if (kind == DATA_FULL) /* every block at its limits */
        for (size_t i = 0; i < n; i++)
            x[i] = draw(d) & 1 ? 1.0f : -1.0f;
}

static inline void *aligned_bytes(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!p)
        abort();
    return p;
}

#endif
