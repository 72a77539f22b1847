/* pack.c: from the file's rows to tiles.
 *
 * A tile's cell is made of 32-bit words of which one row owns every 16th, and those words are, for
 * the nibble types, words of the file's block: packing is a transposition of words, with a
 * permutation of bits for the high parts. A start packs the whole model, so every type's body is
 * straight-line code on words, inlined into one loop. */
#include "kernels/cells.h"

#include <assert.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Writes the part of row `r` of one cell from that row's block. */
typedef void (*pack_row)(uint8_t *cell, const uint8_t *block, uint32_t r);

/* Words of one row stand 16 words apart. */
static ALWAYS_INLINE void put(uint8_t *words, uint32_t index, uint32_t r, uint32_t value)
{
    brim__store_u32(words + 64 * index + 4 * r, value);
}

static ALWAYS_INLINE void put_u16(uint8_t *halves, uint32_t r, const uint8_t *from)
{
    brim__store_u16(halves + 2 * r, brim__load_u16(from));
}

static ALWAYS_INLINE void pack_nibbles(uint8_t *nib, const uint8_t *from, uint32_t r)
{
    for (uint32_t g = 0; g < 4; g++)
        put(nib, g, r, brim__load_u32(from + 4 * g));
}

/* Moves bit 2i to bit i and bit 2i + 1 to bit 16 + i ("unshuffle", Warren, Hacker's Delight). */
static ALWAYS_INLINE uint32_t unshuffle(uint32_t x)
{
    uint32_t t = (x ^ x >> 1) & 0x22222222u;
    x ^= t ^ t << 1;
    t = (x ^ x >> 2) & 0x0c0c0c0cu;
    x ^= t ^ t << 2;
    t = (x ^ x >> 4) & 0x00f000f0u;
    x ^= t ^ t << 4;
    t = (x ^ x >> 8) & 0x0000ff00u;
    return x ^ t ^ t << 8;
}

/* Bit 4g + j (column order) to bit 8j + g (a byte for each j). */
static ALWAYS_INLINE uint32_t fifth_bits(uint32_t by_column)
{
    return unshuffle(unshuffle(by_column));
}

static ALWAYS_INLINE void pack_q4_0(uint8_t *cell, const uint8_t *b, uint32_t r)
{
    put_u16(cell, r, b);
    pack_nibbles(cell + 32, b + 2, r);
}

static ALWAYS_INLINE void pack_q4_1(uint8_t *cell, const uint8_t *b, uint32_t r)
{
    put_u16(cell, r, b);
    put_u16(cell + 32, r, b + 2);
    pack_nibbles(cell + 64, b + 4, r);
}

static ALWAYS_INLINE void pack_q5_0(uint8_t *cell, const uint8_t *b, uint32_t r)
{
    put_u16(cell, r, b);
    put(cell + 32, 0, r, fifth_bits(brim__load_u32(b + 2)));
    pack_nibbles(cell + 96, b + 6, r);
}

static ALWAYS_INLINE void pack_q5_1(uint8_t *cell, const uint8_t *b, uint32_t r)
{
    put_u16(cell, r, b);
    put_u16(cell + 32, r, b + 2);
    put(cell + 64, 0, r, fifth_bits(brim__load_u32(b + 4)));
    pack_nibbles(cell + 128, b + 8, r);
}

static ALWAYS_INLINE void pack_q8_0(uint8_t *cell, const uint8_t *b, uint32_t r)
{
    put_u16(cell, r, b);
    for (uint32_t g = 0; g < 8; g++)
        put(cell + 32, g, r, brim__load_u32(b + 2 + 4 * g) ^ 0x80808080u);
}

/* Scales and minima: 8 + 8 numbers of six bits in 12 bytes. As words A, B, C: the first four
 * scales are the low six bits of A's bytes, the first four minima those of B; the last four have
 * their low four bits in C's nibbles and their top two in the top two of A's and B's bytes. */
static ALWAYS_INLINE void pack_k_scales(uint8_t *cell, const uint8_t *b, uint32_t r)
{
    uint32_t x = brim__load_u32(b), y = brim__load_u32(b + 4), z = brim__load_u32(b + 8);
    uint32_t sc[2] = {x & 0x3f3f3f3fu, (z & 0x0f0f0f0fu) | (x >> 2 & 0x30303030u)};
    uint32_t mn[2] = {y & 0x3f3f3f3fu, (z >> 4 & 0x0f0f0f0fu) | (y >> 2 & 0x30303030u)};
    for (uint32_t j = 0; j < 8; j++) {
        cell[64 + 16 * j + r] = (uint8_t)(sc[j / 4] >> 8 * (j % 4));
        cell[192 + 16 * j + r] = (uint8_t)(mn[j / 4] >> 8 * (j % 4));
    }
}

/* 64 columns from 32 bytes whose low nibbles are the first 32: two sub-blocks. */
static ALWAYS_INLINE void pack_nibble_pair(uint8_t *low, uint8_t *high, const uint8_t *from,
                                           uint32_t r)
{
    for (uint32_t g = 0; g < 4; g++) {
        uint32_t x = brim__load_u32(from + 4 * g), y = brim__load_u32(from + 16 + 4 * g);
        put(low, g, r, (x & 0x0f0f0f0fu) | (y & 0x0f0f0f0fu) << 4);
        put(high, g, r, (x >> 4 & 0x0f0f0f0fu) | (y & 0xf0f0f0f0u));
    }
}

static ALWAYS_INLINE void pack_q4_k(uint8_t *cell, const uint8_t *b, uint32_t r)
{
    put_u16(cell, r, b);
    put_u16(cell + 32, r, b + 2);
    pack_k_scales(cell, b + 4, r);
    for (uint32_t j = 0; j < 8; j += 2)
        pack_nibble_pair(cell + 320 + 256 * j, cell + 320 + 256 * (j + 1), b + 16 + 16 * j, r);
}

static ALWAYS_INLINE void pack_q5_k(uint8_t *cell, const uint8_t *b, uint32_t r)
{
    put_u16(cell, r, b);
    put_u16(cell + 32, r, b + 2);
    pack_k_scales(cell, b + 4, r);
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t bits = 0;
        for (uint32_t g = 0; g < 8; g++)
            bits |= (brim__load_u32(b + 16 + 4 * g) >> j & 0x01010101u) << g;
        put(cell + 320 + 320 * j, 0, r, bits);
    }
    for (uint32_t j = 0; j < 8; j += 2)
        pack_nibble_pair(cell + 384 + 320 * j, cell + 384 + 320 * (j + 1), b + 48 + 16 * j, r);
}

static ALWAYS_INLINE void pack_q6_k(uint8_t *cell, const uint8_t *b, uint32_t r)
{
    put_u16(cell, r, b + 208);
    for (uint32_t j = 0; j < 16; j++)
        cell[32 + 16 * j + r] = b[192 + j];
    for (uint32_t j = 0; j < 8; j++) {
        uint8_t *sub = cell + 288 + 384 * j;
        const uint8_t *pairs = b + 128 + j / 4 * 32;
        for (uint32_t h = 0; h < 2; h++) {
            uint32_t bits = 0;
            for (uint32_t g = 0; g < 4; g++)
                bits |= (brim__load_u32(pairs + 16 * h + 4 * g) >> 2 * (j % 4) & 0x03030303u)
                        << 2 * g;
            put(sub, h, r, bits);
        }
    }
    /* Sub-blocks j and j + 2 of a half share bytes. */
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t k = 0; k < 2; k++) {
            uint8_t *sub = cell + 288 + 384 * (4 * half + k) + 128;
            pack_nibble_pair(sub, sub + 2 * 384, b + 64 * half + 32 * k, r);
        }
}

/* 16- and 32-bit elements: a column after the other, 16 rows each. */
static ALWAYS_INLINE void pack_16_bit(uint8_t *cell, const uint8_t *b, uint32_t r)
{
    for (uint32_t c = 0; c < BRIM__BLOCK_COLS; c++)
        put_u16(cell + 32 * c, r, b + 2 * c);
}

static ALWAYS_INLINE void pack_32_bit(uint8_t *cell, const uint8_t *b, uint32_t r)
{
    for (uint32_t c = 0; c < BRIM__BLOCK_COLS; c++)
        put(cell, c, r, brim__load_u32(b + 4 * c));
}

/* What a packing call works through: one row block at a time. */
typedef struct pack_job {
    const brim__tiling *t;
    const uint8_t *rows;
    uint64_t row_bytes;
    uint32_t block_bytes; /* of a cell's columns in the file */
} pack_job;

static ALWAYS_INLINE void pack_row_block(uint8_t *dst, const pack_job *job, uint32_t row_block,
                                         pack_row body)
{
    /* A row past the matrix is one zero block again and again. */
    static const uint8_t zeros[256];
    const brim__tiling *t = job->t;
    for (uint32_t b = 0; b < t->col_blocks; b++) {
        uint32_t cells = brim__tile_cells(t, b), first_cell = b * (t->tile_cols / t->cell_cols);
        for (uint32_t g = 0; g < t->tile_rows; g += BRIM__GROUP_ROWS) {
            uint32_t row = row_block * t->tile_rows + g;
            uint32_t inside = row >= t->rows ? 0 : t->rows - row;
            for (uint32_t c = 0; c < cells; c++, dst += t->cell_bytes) {
                uint64_t at = (uint64_t)(first_cell + c) * job->block_bytes;
                for (uint32_t r = 0; r < BRIM__GROUP_ROWS; r++)
                    body(dst, r < inside ? job->rows + at + (row + r) * job->row_bytes : zeros, r);
            }
        }
    }
}

#define PACKER(name)                                                                               \
    static void name##_blocks(uint8_t *dst, const pack_job *job, uint32_t first, uint32_t count)   \
    {                                                                                              \
        for (uint32_t i = 0; i < count; i++)                                                       \
            pack_row_block(dst + i * job->t->row_block_bytes, job, first + i, name);               \
    }
PACKER(pack_q4_0)
PACKER(pack_q4_1)
PACKER(pack_q5_0)
PACKER(pack_q5_1)
PACKER(pack_q8_0)
PACKER(pack_q4_k)
PACKER(pack_q5_k)
PACKER(pack_q6_k)
PACKER(pack_16_bit)
PACKER(pack_32_bit)
#undef PACKER

void brim__tile_pack(void *dst, const brim__tiling *t, const void *rows, uint32_t first,
                     uint32_t count)
{
    static void (*const packers[])(uint8_t *, const pack_job *, uint32_t, uint32_t) = {
        [BRIM_DTYPE_F32] = pack_32_bit_blocks,  [BRIM_DTYPE_F16] = pack_16_bit_blocks,
        [BRIM_DTYPE_Q4_0] = pack_q4_0_blocks,   [BRIM_DTYPE_Q4_1] = pack_q4_1_blocks,
        [BRIM_DTYPE_Q5_0] = pack_q5_0_blocks,   [BRIM_DTYPE_Q5_1] = pack_q5_1_blocks,
        [BRIM_DTYPE_Q8_0] = pack_q8_0_blocks,   [BRIM_DTYPE_Q4_K] = pack_q4_k_blocks,
        [BRIM_DTYPE_Q5_K] = pack_q5_k_blocks,   [BRIM_DTYPE_Q6_K] = pack_q6_k_blocks,
        [BRIM_DTYPE_BF16] = pack_16_bit_blocks,
    };
    assert(first <= t->row_blocks && count <= t->row_blocks - first);
    assert(t->type < sizeof packers / sizeof *packers && packers[t->type]);
    uint32_t bytes = brim_dtype_block_bytes(t->type), block = brim_dtype_block(t->type);
    pack_job job = {
        .t = t,
        .rows = rows,
        .row_bytes = (uint64_t)t->cols / block * bytes,
        .block_bytes = t->cell_cols / block * bytes,
    };
    packers[t->type](dst, &job, first, count);
}
