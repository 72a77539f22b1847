/* tiling.c: the shape of tiles, and reading one row out of them.
 *
 * Invariants: the shape is a function of the type and the matrix alone; every tile starts at a
 * multiple of 64 bytes from the matrix's start unless the matrix has at most 16 rows. */
#include "kernels/cells.h"

#include <assert.h>
#include <math.h>

size_t brim__act_row_bytes(brim__act act, uint32_t cols)
{
    size_t bytes = act == BRIM__ACT_Q16 ? (size_t)cols / BRIM__BLOCK_COLS * sizeof(brim__q16)
                                        : (size_t)cols * sizeof(float);
    return (bytes + 63) / 64 * 64;
}

brim__cell_layout brim__cell_layout_of(brim_dtype type)
{
    switch (type) {
#define LAYOUT_CASE(name, id, block, bytes)                                                        \
    case BRIM_DTYPE_##name:                                                                        \
        return (brim__cell_layout)BRIM__CELL_##name;
        BRIM_DTYPE_LIST(LAYOUT_CASE)
#undef LAYOUT_CASE
    }
    return (brim__cell_layout){.sub_count = 0};
}

/* Rows of a tile: 32, more while a row block would stay small, 16 where the matrix ends there. */
static uint32_t tile_rows_of(uint32_t rows, uint64_t group_bytes)
{
    if (rows <= BRIM__GROUP_ROWS)
        return BRIM__GROUP_ROWS;
    uint32_t tile_rows = 2 * BRIM__GROUP_ROWS;
    while (tile_rows < rows && tile_rows / BRIM__GROUP_ROWS * group_bytes < BRIM__TILE_BYTES_MIN)
        tile_rows *= 2;
    return tile_rows;
}

brim_status brim__tiling_of(brim__tiling *out, brim_dtype type, uint32_t rows, uint32_t cols)
{
    brim__cell_layout layout = brim__cell_layout_of(type);
    BRIM_FAIL_IF(layout.sub_count == 0, UNSUPPORTED, "tile.shape",
                 "type %u has no tiles; convert the model to a type that brim reads",
                 (unsigned)type);
    uint32_t cell_cols = layout.sub_count * BRIM__BLOCK_COLS;
    BRIM_FAIL_IF(
        rows == 0 || cols == 0 || cols % cell_cols != 0, UNSUPPORTED, "tile.shape",
        "a %s matrix of %u rows by %u columns can't be tiled: it needs at least one row, and "
        "columns in a multiple of %u",
        brim_dtype_name(type), rows, cols, cell_cols);
    uint32_t cells = cols / cell_cols;
    uint32_t cell_bytes = layout.subs + layout.sub_count * layout.sub_bytes;
    uint64_t group_bytes = (uint64_t)cells * cell_bytes;
    uint32_t tile_rows = tile_rows_of(rows, group_bytes);
    uint64_t row_block_bytes = tile_rows / BRIM__GROUP_ROWS * group_bytes;
    /* As few column blocks as the largest tile allows, of nearly equal width. */
    uint32_t cells_max = BRIM__TILE_BYTES_MAX / (tile_rows / BRIM__GROUP_ROWS * cell_bytes);
    uint32_t blocks = (cells + cells_max - 1) / cells_max;
    uint32_t tile_cells = (cells + blocks - 1) / blocks;
    uint32_t row_blocks = rows / tile_rows + (rows % tile_rows != 0);
    *out = (brim__tiling){
        .type = type,
        .rows = rows,
        .cols = cols,
        .tile_rows = tile_rows,
        .tile_cols = tile_cells * cell_cols,
        .row_blocks = row_blocks,
        .col_blocks = (cells + tile_cells - 1) / tile_cells,
        .cell_cols = cell_cols,
        .cell_bytes = cell_bytes,
        .row_block_bytes = row_block_bytes,
        .bytes = row_blocks * row_block_bytes,
    };
    return BRIM_OK;
}

brim_status brim__tiling_mma8(brim__tiling *out, brim_dtype type, uint32_t rows, uint32_t cols)
{
    BRIM_FAIL_IF((type != BRIM_DTYPE_F16 && type != BRIM_DTYPE_BF16) || rows == 0 || cols == 0 ||
                     cols % BRIM__MMA8_COLS != 0,
                 UNSUPPORTED, "tile.shape",
                 "a matrix of type %u, %u rows by %u columns has no tiles of 8 rows: they need F16 "
                 "or BF16, at least one row, and columns in a multiple of %d",
                 (unsigned)type, rows, cols, BRIM__MMA8_COLS);
    uint32_t row_blocks = rows / BRIM__MMA8_ROWS + (rows % BRIM__MMA8_ROWS != 0);
    uint64_t row_block_bytes = 2 * (uint64_t)BRIM__MMA8_ROWS * cols;
    *out = (brim__tiling){
        .type = type,
        .rows = rows,
        .cols = cols,
        .tile_rows = BRIM__MMA8_ROWS,
        .tile_cols = cols,
        .row_blocks = row_blocks,
        .col_blocks = 1,
        .cell_cols = BRIM__MMA8_COLS,
        .cell_bytes = 2 * BRIM__MMA8_ROWS * BRIM__MMA8_COLS,
        .row_block_bytes = row_block_bytes,
        .bytes = row_blocks * row_block_bytes,
    };
    return BRIM_OK;
}

/* The fifth (and sixth) bit of column `col` of row `row`, already shifted to its place. */
static uint32_t high_bits(const uint8_t *high, uint32_t planes, uint32_t row, uint32_t col)
{
    uint32_t g = col / 4, byte = 4 * row + col % 4;
    if (planes == BRIM__HIGH_BYTES)
        return (high[byte] >> g & 1u) << 4;
    return (high[g / 4 * BRIM__HIGH_BYTES + byte] >> 2 * (g % 4) & 3u) << 4;
}

/* What is taken from the stored unsigned number. */
static int32_t stored_offset(brim_dtype type)
{
    switch (type) {
    case BRIM_DTYPE_Q4_0:
        return 8;
    case BRIM_DTYPE_Q5_0:
        return 16;
    case BRIM_DTYPE_Q6_K:
        return 32;
    case BRIM_DTYPE_Q8_0:
        return 128;
    default:
        return 0;
    }
}

void brim__cell_row_read(brim__cell_row *out, brim_dtype type, const uint8_t *cell, uint32_t sub,
                         uint32_t row)
{
    brim__cell_layout layout = brim__cell_layout_of(type);
    const uint8_t *bits = cell + layout.subs + sub * layout.sub_bytes, *nib = bits + layout.high;
    int32_t offset = stored_offset(type);
    for (uint32_t c = 0; c < BRIM__BLOCK_COLS; c++) {
        uint32_t u;
        if (type == BRIM_DTYPE_Q8_0)
            u = bits[c / 4 * 64 + 4 * row + c % 4];
        else
            u = nib[c % 16 / 4 * 64 + 4 * row + c % 4] >> (c < 16 ? 0 : 4) & 15u;
        if (layout.high)
            u |= high_bits(bits, layout.high, row, c);
        out->w[c] = (int32_t)u - offset;
    }
    float d = brim__load_f16(cell + 2 * row);
    out->a[0] = out->a[1] = d;
    out->b = 0;
    out->has_offset = layout.m != 0;
    if (type == BRIM_DTYPE_Q6_K) {
        const int8_t *sc = (const int8_t *)cell + layout.sc;
        for (uint32_t h = 0; h < 2; h++)
            out->a[h] = d * (float)sc[(2 * sub + h) * BRIM__GROUP_ROWS + row];
    } else if (layout.sc) {
        float dmin = brim__load_f16(cell + layout.m + 2 * row);
        out->a[0] = out->a[1] = d * (float)cell[layout.sc + sub * BRIM__GROUP_ROWS + row];
        out->b = -(dmin * (float)cell[layout.mn + sub * BRIM__GROUP_ROWS + row]);
    } else if (layout.m) {
        out->b = brim__load_f16(cell + layout.m + 2 * row);
    }
}

void brim__cell_row_floats(float out[32], brim_dtype type, const uint8_t *cell, uint32_t sub,
                           uint32_t row)
{
    brim__cell_row quantised;
    switch (type) {
    case BRIM_DTYPE_F32:
        for (uint32_t c = 0; c < BRIM__BLOCK_COLS; c++)
            memcpy(&out[c], cell + 4 * (c * BRIM__GROUP_ROWS + row), sizeof *out);
        break;
    case BRIM_DTYPE_F16:
        for (uint32_t c = 0; c < BRIM__BLOCK_COLS; c++)
            out[c] = brim__load_f16(cell + 2 * (c * BRIM__GROUP_ROWS + row));
        break;
    case BRIM_DTYPE_BF16:
        for (uint32_t c = 0; c < BRIM__BLOCK_COLS; c++)
            out[c] = brim__bf16_to_f32(brim__load_u16(cell + 2 * (c * BRIM__GROUP_ROWS + row)));
        break;
    default:
        brim__cell_row_read(&quantised, type, cell, sub, row);
        for (uint32_t c = 0; c < BRIM__BLOCK_COLS; c++) {
            float w = (float)quantised.w[c], a = quantised.a[c / 16];
            out[c] = quantised.has_offset ? fmaf(w, a, quantised.b) : a * w;
        }
    }
}

void brim__tile_row(float *out, const brim__tiling *t, const void *tiles, uint32_t row)
{
    assert(row < t->row_blocks * t->tile_rows && !brim__tiling_is_mma8(t));
    uint32_t group = row % t->tile_rows / BRIM__GROUP_ROWS, subs = t->cell_cols / BRIM__BLOCK_COLS;
    const uint8_t *block = (const uint8_t *)tiles + row / t->tile_rows * t->row_block_bytes;
    for (uint32_t b = 0; b < t->col_blocks; b++) {
        uint32_t cells = brim__tile_cells(t, b);
        const uint8_t *cell =
            block + brim__tile_offset(t, b) + (size_t)group * cells * t->cell_bytes;
        for (uint32_t c = 0; c < cells; c++, cell += t->cell_bytes)
            for (uint32_t s = 0; s < subs; s++, out += BRIM__BLOCK_COLS)
                brim__cell_row_floats(out, t->type, cell, s, row % BRIM__GROUP_ROWS);
    }
}
