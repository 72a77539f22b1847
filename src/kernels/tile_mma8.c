/* tile_mma8.c: tiles of 8 rows of 16-bit floats, for a matrix unit (kernels.h defines them).
 *
 * A start packs the whole model: rows of the tiling's own type are moved in pieces of 64 bytes,
 * eight streams read and one written; others are widened to floats and rounded once. */
#include "kernels/cells.h"

#include <assert.h>

enum { GRANULE_BYTES = 2 * BRIM__MMA8_ROWS * BRIM__MMA8_COLS, PIECE_BYTES = 2 * BRIM__MMA8_COLS };

/* ---- 16-bit floats ---- */

/* An f16's exponent and mantissa, moved to their places in an f32 and scaled by 2^112, are its
 * value, denormals too; only infinities and NaNs need another exponent. No branches, and (below)
 * loops of a fixed length: compilers make vector instructions of those. */
static inline float widen_f16(uint16_t h)
{
    int32_t magnitude = (int32_t)(h & 0x7fff) << 13;
    uint32_t bits = brim__bits_of(brim__float_of((uint32_t)magnitude) * 0x1p112f);
    bits |= magnitude >= 0x0f800000 ? 0x7f800000u : 0;
    return brim__float_of(bits | (uint32_t)(h & 0x8000) << 16);
}

enum { WIDEN = 8 };

static void widen_f16_block(float out[WIDEN], const uint16_t halves[WIDEN])
{
    float x[WIDEN];
    for (int i = 0; i < WIDEN; i++)
        x[i] = widen_f16(halves[i]);
    memcpy(out, x, sizeof x);
}

static void widen_bf16_block(float out[WIDEN], const uint16_t halves[WIDEN])
{
    float x[WIDEN];
    for (int i = 0; i < WIDEN; i++)
        x[i] = brim__bf16_to_f32(halves[i]);
    memcpy(out, x, sizeof x);
}

void brim__halves_widen(float *out, brim_dtype type, const uint16_t *halves, size_t n)
{
    assert(type == BRIM_DTYPE_F16 || type == BRIM_DTYPE_BF16);
    bool f16 = type == BRIM_DTYPE_F16;
    size_t i = 0;
    if (f16)
        for (; i + WIDEN <= n; i += WIDEN)
            widen_f16_block(out + i, halves + i);
    else
        for (; i + WIDEN <= n; i += WIDEN)
            widen_bf16_block(out + i, halves + i);
    for (; i < n; i++)
        out[i] = f16 ? widen_f16(halves[i]) : brim__bf16_to_f32(halves[i]);
}

static uint16_t round_f16(float x)
{
    uint32_t bits = brim__bits_of(x), magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return 0x7fff;
    if (magnitude >= 0x477ff000u) /* 65520: halfway to what would follow the largest value */
        return (uint16_t)((bits >> 16 & 0x8000u) | 0x7c00u);
    return brim__f32_to_f16(x);
}

static uint16_t round_bf16(float x)
{
    uint32_t bits = brim__bits_of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

void brim__halves_round(uint16_t *out, brim_dtype type, const float *x, size_t n)
{
    assert(type == BRIM_DTYPE_F16 || type == BRIM_DTYPE_BF16);
    if (type == BRIM_DTYPE_BF16)
        for (size_t i = 0; i < n; i++)
            out[i] = round_bf16(x[i]);
    else
        for (size_t i = 0; i < n; i++)
            out[i] = round_f16(x[i]);
}

/* ---- packing ---- */

static brim_status check_sources(const brim__tiling *t, const brim__mma8_matrix *m)
{
    uint64_t rows = 0;
    bool good = m->source_count >= 1 && m->source_count <= BRIM__MMA8_SOURCES_MAX &&
                (!m->interleaved || m->source_count == 2);
    for (uint32_t s = 0; good && s < m->source_count; s++) {
        uint32_t block = brim_dtype_block(m->sources[s].type);
        rows += m->sources[s].row_count;
        good = block > 0 && t->cols % block == 0 &&
               (!m->interleaved || m->sources[s].row_count == m->sources[0].row_count);
    }
    BRIM_FAIL_IF(!good || rows != t->rows, USAGE, "tile.sources",
                 "%u sources with %llu rows do not make a matrix of %u rows by %u columns",
                 m->source_count, (unsigned long long)rows, t->rows, t->cols);
    return BRIM_OK;
}

/* Row `row` of the matrix in the file's layout. */
static const uint8_t *source_row(brim_dtype *out_type, const brim__tiling *t,
                                 const brim__mma8_matrix *m, uint32_t row)
{
    const brim__mma8_source *s = m->sources;
    if (m->interleaved) {
        s += row % 2;
        row /= 2;
    } else {
        for (; row >= s->row_count; s++)
            row -= s->row_count;
    }
    uint64_t row_bytes =
        (uint64_t)t->cols / brim_dtype_block(s->type) * brim_dtype_block_bytes(s->type);
    *out_type = s->type;
    return (const uint8_t *)s->rows + row * row_bytes;
}

/* A row block whose rows all have the tiling's type. */
static void copy_tile(uint8_t *dst, const brim__tiling *t, const uint8_t *const rows[])
{
    for (size_t at = 0; at < 2 * (size_t)t->cols; at += PIECE_BYTES, dst += GRANULE_BYTES)
        for (uint32_t r = 0; r < BRIM__MMA8_ROWS; r++)
            memcpy(dst + r * PIECE_BYTES, rows[r] + at, PIECE_BYTES);
}

static void zero_row(uint8_t *dst, const brim__tiling *t, uint32_t r)
{
    for (uint32_t g = 0; g < t->cols / BRIM__MMA8_COLS; g++)
        memset(dst + (size_t)g * GRANULE_BYTES + r * PIECE_BYTES, 0, PIECE_BYTES);
}

static bool is_finite(float x)
{
    return (brim__bits_of(x) & 0x7f800000u) != 0x7f800000u;
}

static bool is_infinite_half(brim_dtype type, uint16_t h)
{
    return (h & 0x7fffu) == (type == BRIM_DTYPE_F16 ? 0x7c00u : 0x7f80u);
}

/* Row r of a tile from any type: `row` is the matrix's. */
static brim_status put_row(uint8_t *dst, const brim__tiling *t, const float *x, uint32_t row,
                           const char *name)
{
    uint16_t piece[BRIM__MMA8_COLS];
    for (uint32_t c = 0; c < t->cols; c += BRIM__MMA8_COLS) {
        brim__halves_round(piece, t->type, x + c, BRIM__MMA8_COLS);
        for (uint32_t i = 0; i < BRIM__MMA8_COLS; i++)
            BRIM_FAIL_IF(is_infinite_half(t->type, piece[i]) && is_finite(x[c + i]), UNSUPPORTED,
                         "tile.range",
                         "%s: row %u, column %u is %g, beyond the range of %s; a device that "
                         "computes with 16-bit floats can't hold it",
                         name, row, c + i, (double)x[c + i], brim_dtype_name(t->type));
        memcpy(dst + (size_t)c / BRIM__MMA8_COLS * GRANULE_BYTES +
                   row % BRIM__MMA8_ROWS * PIECE_BYTES,
               piece, PIECE_BYTES);
    }
    return BRIM_OK;
}

static brim_status pack_tile(uint8_t *dst, const brim__tiling *t, const brim__mma8_matrix *m,
                             uint32_t tile, float *scratch, const char *name)
{
    const uint8_t *rows[BRIM__MMA8_ROWS];
    brim_dtype types[BRIM__MMA8_ROWS];
    uint32_t base = tile * BRIM__MMA8_ROWS, inside = t->rows - base;
    bool same = inside >= BRIM__MMA8_ROWS;
    for (uint32_t r = 0; r < BRIM__MMA8_ROWS && r < inside; r++) {
        rows[r] = source_row(&types[r], t, m, base + r);
        same &= types[r] == t->type;
    }
    if (same) {
        copy_tile(dst, t, rows);
        return BRIM_OK;
    }
    for (uint32_t r = 0; r < BRIM__MMA8_ROWS; r++) {
        if (r >= inside) {
            zero_row(dst, t, r);
        } else if (types[r] == t->type) {
            for (uint32_t g = 0; g < t->cols / BRIM__MMA8_COLS; g++)
                memcpy(dst + (size_t)g * GRANULE_BYTES + r * PIECE_BYTES,
                       rows[r] + (size_t)g * PIECE_BYTES, PIECE_BYTES);
        } else {
            brim__dequantize_row(scratch, types[r], rows[r], t->cols);
            BRIM_TRY(put_row(dst, t, scratch, base + r, name));
        }
    }
    return BRIM_OK;
}

brim_status brim__tile_mma8_pack(void *dst, const brim__tiling *t, const brim__mma8_matrix *matrix,
                                 uint32_t first, uint32_t count, float *scratch, const char *name)
{
    assert(brim__tiling_is_mma8(t) && first <= t->row_blocks && count <= t->row_blocks - first);
    BRIM_TRY(check_sources(t, matrix));
    for (uint32_t i = 0; i < count; i++)
        BRIM_TRY(pack_tile((uint8_t *)dst + i * t->row_block_bytes, t, matrix, first + i, scratch,
                           name));
    return BRIM_OK;
}

void brim__tile_mma8_row(float *out, const brim__tiling *t, const void *tiles, uint32_t row)
{
    assert(brim__tiling_is_mma8(t) && row < t->row_blocks * BRIM__MMA8_ROWS);
    const uint8_t *at = (const uint8_t *)tiles + row / BRIM__MMA8_ROWS * t->row_block_bytes +
                        row % BRIM__MMA8_ROWS * PIECE_BYTES;
    for (uint32_t c = 0; c < t->cols; c += BRIM__MMA8_COLS, at += GRANULE_BYTES)
        brim__halves_widen(out + c, t->type, (const uint16_t *)(const void *)at, BRIM__MMA8_COLS);
}
