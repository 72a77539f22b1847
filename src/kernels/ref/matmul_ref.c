/* matmul_ref.c: what a matrix product means, one weight row and one activation row at a time. */
#include "kernels/ref/kernels_ref.h"

#include <math.h>

#include "kernels/cells.h"

/* A block of 32 columns in integers: kernels.h, "Q16". */
static float add_q16_block(float acc, const brim__cell_row *w, const brim__q16 *x, bool by_half)
{
    /* Integers that quantize() did not make may be too large: they wrap, as in every variant. */
    uint32_t sum[2] = {0, 0};
    for (int c = 0; c < BRIM__BLOCK_COLS; c++)
        sum[c / 16] += (uint32_t)(w->w[c] * (256 * x->hi[c] + x->lo[c]));
    if (by_half) {
        acc = fmaf((float)(int32_t)sum[0], w->a[0] * x->scale, acc);
        return fmaf((float)(int32_t)sum[1], w->a[1] * x->scale, acc);
    }
    acc = fmaf((float)(int32_t)(sum[0] + sum[1]), w->a[0] * x->scale, acc);
    uint32_t whole = (uint32_t)x->sum[0] + (uint32_t)x->sum[1];
    if (w->has_offset)
        acc = fmaf(w->b, x->scale * (float)(int32_t)whole, acc);
    return acc;
}

/* The same in floats, column by column. */
static float add_f32_block(float acc, const float w[32], const float *x)
{
    for (int c = 0; c < BRIM__BLOCK_COLS; c++)
        acc = fmaf(w[c], x[c], acc);
    return acc;
}

/* One element: row `row` of the row block at `tiles`, times one activation row. */
static float dot(const brim__tiling *t, const uint8_t *tiles, uint32_t row, const void *x,
                 brim__act act)
{
    uint32_t group = row / BRIM__GROUP_ROWS, r = row % BRIM__GROUP_ROWS;
    uint32_t subs = t->cell_cols / BRIM__BLOCK_COLS, block = 0;
    float acc = 0;
    for (uint32_t b = 0; b < t->col_blocks; b++) {
        uint32_t cells = brim__tile_cells(t, b);
        const uint8_t *cell =
            tiles + brim__tile_offset(t, b) + (size_t)group * cells * t->cell_bytes;
        for (uint32_t c = 0; c < cells; c++, cell += t->cell_bytes)
            for (uint32_t s = 0; s < subs; s++, block++) {
                if (act == BRIM__ACT_Q16) {
                    brim__cell_row w;
                    brim__cell_row_read(&w, t->type, cell, s, r);
                    acc = add_q16_block(acc, &w, (const brim__q16 *)x + block,
                                        t->type == BRIM_DTYPE_Q6_K);
                } else {
                    float w[32];
                    brim__cell_row_floats(w, t->type, cell, s, r);
                    acc = add_f32_block(acc, w, (const float *)x + 32 * block);
                }
            }
    }
    return acc;
}

static void matmul(float *out, size_t out_stride, const brim__tiling *t, const void *tiles,
                   uint32_t row_block_count, const void *x, size_t x_row_bytes, uint32_t row_count,
                   brim__act act)
{
    for (uint32_t m = 0; m < row_count; m++)
        for (uint32_t i = 0; i < row_block_count * t->tile_rows; i++) {
            const uint8_t *block = (const uint8_t *)tiles + i / t->tile_rows * t->row_block_bytes;
            const uint8_t *x_row = (const uint8_t *)x + m * x_row_bytes;
            out[m * out_stride + i] = dot(t, block, i % t->tile_rows, x_row, act);
        }
}

void brim__ref_matmul_f32(float *out, size_t out_stride, const brim__tiling *t, const void *tiles,
                          uint32_t row_block_count, const void *x, size_t x_row_bytes,
                          uint32_t row_count)
{
    matmul(out, out_stride, t, tiles, row_block_count, x, x_row_bytes, row_count, BRIM__ACT_F32);
}

void brim__ref_matmul_q16(float *out, size_t out_stride, const brim__tiling *t, const void *tiles,
                          uint32_t row_block_count, const void *x, size_t x_row_bytes,
                          uint32_t row_count)
{
    matmul(out, out_stride, t, tiles, row_block_count, x, x_row_bytes, row_count, BRIM__ACT_Q16);
}
