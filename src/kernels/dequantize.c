/* dequantize.c: a row in the file's layout as floats, straight from the block formats of GGUF
 * ("ggml-common.h" and "ggml-quants.c" of ggml define them). Shares nothing with the packer, so
 * that each checks the other. */
#include "kernels/cells.h"

#include <assert.h>
#include <math.h>

/* Q4_0: f16 d; nibbles[16]: low nibbles are columns 0..15, high ones 16..31. */
static void block_q4_0(float *out, const uint8_t *b)
{
    float d = brim__load_f16(b);
    for (int i = 0; i < 16; i++) {
        out[i] = (float)((b[2 + i] & 15) - 8) * d;
        out[16 + i] = (float)((b[2 + i] >> 4) - 8) * d;
    }
}

/* Q4_1: f16 d; f16 m; nibbles[16]. */
static void block_q4_1(float *out, const uint8_t *b)
{
    float d = brim__load_f16(b), m = brim__load_f16(b + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = fmaf((float)(b[4 + i] & 15), d, m);
        out[16 + i] = fmaf((float)(b[4 + i] >> 4), d, m);
    }
}

static int five_bits(const uint8_t *nib, uint32_t high, int i)
{
    int low = i < 16 ? nib[i] & 15 : nib[i - 16] >> 4;
    return low | (int)(high >> i & 1u) << 4;
}

/* Q5_0: f16 d; u32 fifth bits; nibbles[16]. */
static void block_q5_0(float *out, const uint8_t *b)
{
    float d = brim__load_f16(b);
    for (int i = 0; i < 32; i++)
        out[i] = (float)(five_bits(b + 6, brim__load_u32(b + 2), i) - 16) * d;
}

/* Q5_1: f16 d; f16 m; u32 fifth bits; nibbles[16]. */
static void block_q5_1(float *out, const uint8_t *b)
{
    float d = brim__load_f16(b), m = brim__load_f16(b + 2);
    for (int i = 0; i < 32; i++)
        out[i] = fmaf((float)five_bits(b + 8, brim__load_u32(b + 4), i), d, m);
}

/* Q8_0: f16 d; s8 q[32]. */
static void block_q8_0(float *out, const uint8_t *b)
{
    float d = brim__load_f16(b);
    for (int i = 0; i < 32; i++)
        out[i] = (float)(int8_t)b[2 + i] * d;
}

/* The 6-bit scale and minimum of sub-block j in the 12 bytes of Q4_K and Q5_K. */
static void six_bit_pair(uint32_t *sc, uint32_t *mn, const uint8_t *s, int j)
{
    if (j < 4) {
        *sc = s[j] & 63u;
        *mn = s[j + 4] & 63u;
    } else {
        *sc = (s[j + 4] & 15u) | (s[j - 4] >> 6 & 3u) << 4;
        *mn = (s[j + 4] >> 4 & 15u) | (s[j] >> 6 & 3u) << 4;
    }
}

/* Q4_K: f16 d; f16 dmin; scales[12]; nibbles[128]: each 32 bytes hold two sub-blocks of 32. */
static void block_q4_k(float *out, const uint8_t *b)
{
    float d = brim__load_f16(b), dmin = brim__load_f16(b + 2);
    for (int i = 0; i < 256; i++) {
        uint32_t sc, mn, byte = b[16 + i / 64 * 32 + i % 32];
        six_bit_pair(&sc, &mn, b + 4, i / 32);
        uint32_t q = i / 32 % 2 ? byte >> 4 : byte & 15u;
        out[i] = fmaf((float)q, d * (float)sc, -(dmin * (float)mn));
    }
}

/* Q5_K: f16 d; f16 dmin; scales[12]; high[32]: bit j of byte l belongs to element l of sub-block
 * j; nibbles[128] as in Q4_K. */
static void block_q5_k(float *out, const uint8_t *b)
{
    float d = brim__load_f16(b), dmin = brim__load_f16(b + 2);
    for (int i = 0; i < 256; i++) {
        uint32_t sc, mn, byte = b[48 + i / 64 * 32 + i % 32];
        six_bit_pair(&sc, &mn, b + 4, i / 32);
        uint32_t q = i / 32 % 2 ? byte >> 4 : byte & 15u;
        q |= (b[16 + i % 32] >> (i / 32) & 1u) << 4;
        out[i] = fmaf((float)q, d * (float)sc, -(dmin * (float)mn));
    }
}

/* Q6_K: low nibbles[128]; high pairs[64]; s8 scales[16]; f16 d. In each half of 128 columns, byte
 * l (of 64) has columns l and l + 64; byte l (of 32) of the pairs has l, l + 32, l + 64, l + 96. */
static void block_q6_k(float *out, const uint8_t *b)
{
    float d = brim__load_f16(b + 208);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, l = i % 128;
        uint32_t low = b[64 * half + l % 64] >> (l < 64 ? 0 : 4) & 15u;
        uint32_t high = b[128 + 32 * half + l % 32] >> 2 * (l / 32) & 3u;
        int8_t sc = (int8_t)b[192 + i / 16];
        out[i] = d * (float)sc * (float)((int)(low | high << 4) - 32);
    }
}

void brim__dequantize_row(float *out, brim_dtype type, const void *row, uint32_t cols)
{
    static void (*const blocks[])(float *, const uint8_t *) = {
        [BRIM_DTYPE_Q4_0] = block_q4_0, [BRIM_DTYPE_Q4_1] = block_q4_1,
        [BRIM_DTYPE_Q5_0] = block_q5_0, [BRIM_DTYPE_Q5_1] = block_q5_1,
        [BRIM_DTYPE_Q8_0] = block_q8_0, [BRIM_DTYPE_Q4_K] = block_q4_k,
        [BRIM_DTYPE_Q5_K] = block_q5_k, [BRIM_DTYPE_Q6_K] = block_q6_k,
    };
    const uint8_t *b = row;
    if (type == BRIM_DTYPE_F32) {
        memcpy(out, row, (size_t)cols * sizeof *out);
    } else if (type == BRIM_DTYPE_F16) {
        for (uint32_t i = 0; i < cols; i++)
            out[i] = brim__load_f16(b + 2 * (size_t)i);
    } else if (type == BRIM_DTYPE_BF16) {
        for (uint32_t i = 0; i < cols; i++)
            out[i] = brim__bf16_to_f32(brim__load_u16(b + 2 * (size_t)i));
    } else {
        uint32_t block = brim_dtype_block(type), bytes = brim_dtype_block_bytes(type);
        assert(type < sizeof blocks / sizeof *blocks && blocks[type] && cols % block == 0);
        for (uint32_t i = 0; i < cols; i += block, b += bytes)
            blocks[type](out + i, b);
    }
}
