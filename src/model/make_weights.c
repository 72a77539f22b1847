/* make_weights.c: random weights in every format, as fast as the generator runs.
 *
 * A tensor's bytes are first filled with random bits: they are the quants. Then each block's scale
 * is replaced by one picked (by those very bits) from a table of 256 around the value that gives
 * the standard deviation, and the minimum goes with it so that the mean is zero; where a format has
 * no minimum the scale's sign is random, as the real quantisers leave it. Floats are looked up in a
 * table of quantiles of the normal distribution. Only +, -, *, / and sqrt are used, so that the
 * bytes do not depend on a math library. Block layouts: ggml-common.h of the ggml project. */
#include "model/make.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

enum { LEVEL_COUNT = 4096 };

/* Nearest f16, ties to even. The values here are finite and far below its largest. */
static uint16_t half_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    float magnitude = fabsf(value);
    if (magnitude < 0x1p-14f) /* subnormal: a multiple of 2^-24; adding 0.5 rounds there */
        return (uint16_t)(sign | (uint16_t)((magnitude + 0.5f - 0.5f) * 0x1p24f));
    bits &= 0x7fffffff;
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (uint16_t)((bits >> 13) - ((127 - 15) << 10)));
}

static float float_from_half(uint16_t half)
{
    uint32_t exponent = half >> 10 & 31, fraction = half & 0x3ff;
    float value = exponent ? (float)(fraction | 0x400) * 0x1p-24f * (float)(1u << (exponent - 1))
                           : (float)fraction * 0x1p-24f;
    return half & 0x8000 ? -value : value;
}

static uint16_t bfloat_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    return (uint16_t)(bits >> 16);
}

/* ---- the normal distribution ---- */

/* ln x for 0 < x < 1, by the series of artanh; exact to a few units in the last place. */
static double natural_log(double x)
{
    int exponent = 0;
    for (; x < 0.75; x *= 2)
        exponent--;
    double z = (x - 1) / (x + 1), z2 = z * z, power = z, sum = 0;
    for (int k = 1; k < 30; k += 2, power *= z2)
        sum += power / k;
    return 2 * sum + exponent * 0.6931471805599453;
}

/* The quantile of the standard normal distribution at 0 < p <= 0.5, which is negative: Abramowitz
 * and Stegun, formula 26.2.23, absolute error below 4.5e-4. */
static double normal_quantile(double p)
{
    double t = sqrt(-2 * natural_log(p));
    double above = 2.515517 + t * (0.802853 + t * 0.010328);
    double below = 1 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    return above / below - t;
}

static void fill_levels(make_weights *w, float mean, float deviation)
{
    for (int i = 0; i < LEVEL_COUNT; i++) {
        int mirrored = i < LEVEL_COUNT / 2 ? i : LEVEL_COUNT - 1 - i;
        double quantile = normal_quantile((mirrored + 0.5) / LEVEL_COUNT);
        if (mirrored != i)
            quantile = -quantile;
        w->levels[i] = mean + deviation * (float)quantile;
        w->halves[i] = w->type == BRIM_DTYPE_BF16 ? bfloat_from_float(w->levels[i])
                                                  : half_from_float(w->levels[i]);
    }
    w->levels[LEVEL_COUNT] = w->levels[LEVEL_COUNT - 1];
}

/* ---- block scales ---- */

/* Root mean square of a weight whose block scale is 1, its quants (and inner scales) uniform; and
 * the minimum that centres them, as a multiple of the scale. */
static void block_moments(brim_dtype type, double *rms, double *centre)
{
    /* Inner scales of Q4_K and Q5_K are 32..63, of Q6_K 64..127 with either sign. */
    const double inner4 = sqrt(47.5 * 47.5 + (32 * 32 - 1) / 12.0);
    const double inner6 = sqrt(95.5 * 95.5 + (64 * 64 - 1) / 12.0);
    const double uniform16 = (16 * 16 - 1) / 12.0, uniform32 = (32 * 32 - 1) / 12.0;
    *centre = 0, *rms = 1;
    switch (type) {
    case BRIM_DTYPE_Q4_0:
        *rms = sqrt(uniform16 + 0.25);
        break;
    case BRIM_DTYPE_Q4_1:
        *rms = sqrt(uniform16), *centre = 7.5;
        break;
    case BRIM_DTYPE_Q5_0:
        *rms = sqrt(uniform32 + 0.25);
        break;
    case BRIM_DTYPE_Q5_1:
        *rms = sqrt(uniform32), *centre = 15.5;
        break;
    case BRIM_DTYPE_Q8_0:
        *rms = sqrt((255 * 255 - 1) / 12.0);
        break;
    case BRIM_DTYPE_Q4_K:
        *rms = sqrt(uniform16) * inner4, *centre = 7.5;
        break;
    case BRIM_DTYPE_Q5_K:
        *rms = sqrt(uniform32) * inner4, *centre = 15.5;
        break;
    case BRIM_DTYPE_Q6_K:
        *rms = sqrt((64 * 64 - 1) / 12.0 + 0.25) * inner6;
        break;
    case BRIM_DTYPE_F32:
    case BRIM_DTYPE_F16:
    case BRIM_DTYPE_BF16:
        break;
    }
}

/* Scales spread evenly over 0.6 to 1.4 times the middle one; their own mean square is taken out. */
static void fill_scales(make_weights *w, float deviation)
{
    double rms, centre, spread = sqrt(1 + 0.8 * 0.8 / 12);
    block_moments(w->type, &rms, &centre);
    /* In Q4_1 and Q5_1 the minimum is added, in the K types it is subtracted. */
    double sign = w->type == BRIM_DTYPE_Q4_1 || w->type == BRIM_DTYPE_Q5_1 ? -1 : 1;
    for (int i = 0; i < 256; i++) {
        double scale = (double)deviation / rms / spread * (0.6 + 0.8 * i / 255);
        w->scales[i] = half_from_float((float)scale);
        w->offsets[i] =
            half_from_float((float)(sign * centre * (double)float_from_half(w->scales[i])));
    }
}

void make__weights_init(make_weights *w, brim_dtype type, uint64_t seed, uint64_t stream,
                        float mean, float deviation)
{
    *w = (make_weights){.type = type, .seed = seed, .stream = stream};
    if (brim_dtype_block(type) == 1)
        fill_levels(w, mean, deviation);
    else
        fill_scales(w, deviation);
}

/* ---- filling ---- */

static void fill_random(const make_weights *w, uint8_t *out, uint64_t offset, size_t size)
{
    uint32_t key[2] = {(uint32_t)w->seed, (uint32_t)(w->seed >> 32)};
    uint64_t first = offset / MAKE_UNIT_BYTES, stream = w->stream;
    for (size_t at = 0, i = 0; at < size; at += MAKE_UNIT_BYTES, i++) {
        uint64_t index = first + i;
        uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                               (uint32_t)(stream >> 32)};
        uint32_t unit[4];
        brim__philox4x32(unit, counter, key);
        memcpy(out + at, unit, sizeof unit);
    }
}

static void fix_floats(const make_weights *w, uint8_t *out, size_t size)
{
    for (size_t at = 0; at < size; at += sizeof(uint32_t)) {
        uint32_t bits;
        memcpy(&bits, out + at, sizeof bits);
        uint32_t level = bits >> 20;
        float fraction = (float)(bits & 0xfffff) * 0x1p-20f;
        float value = w->levels[level] + fraction * (w->levels[level + 1] - w->levels[level]);
        memcpy(out + at, &value, sizeof value);
    }
}

static void fix_halves(const make_weights *w, uint8_t *out, size_t size)
{
    for (size_t at = 0; at < size; at += sizeof(uint16_t)) {
        uint16_t bits;
        memcpy(&bits, out + at, sizeof bits);
        memcpy(out + at, &w->halves[bits >> 4], sizeof bits);
    }
}

/* The scale at `block`, with a random sign if asked for, and the minimum behind it. */
static void fix_scale(const make_weights *w, uint8_t *block, bool any_sign, bool minimum)
{
    uint16_t scale = w->scales[block[0]];
    if (any_sign)
        scale |= (uint16_t)((block[1] & 0x80) << 8);
    uint16_t offset = w->offsets[block[0]];
    memcpy(block, &scale, sizeof scale);
    if (minimum)
        memcpy(block + 2, &offset, sizeof offset);
}

/* Eight inner scales of 6 bits, and minima that equal them, packed in 12 bytes. */
static void fix_inner_scales(uint8_t *packed)
{
    uint8_t scales[8];
    for (int i = 0; i < 8; i++)
        scales[i] = 32 | (packed[i] & 31);
    for (int i = 0; i < 4; i++) {
        uint8_t low = scales[i], high = scales[i + 4];
        packed[i] = packed[i + 4] = (uint8_t)(low | (high >> 4) << 6);
        packed[i + 8] = (uint8_t)((high & 15) | (high & 15) << 4);
    }
}

static void fix_q6_k(const make_weights *w, uint8_t *block)
{
    uint8_t *scales = block + 128 + 64; /* 16 inner scales, then the block's own */
    for (int i = 0; i < 16; i++) {
        int magnitude = 64 | (scales[i] & 63);
        scales[i] = (uint8_t)(scales[i] & 0x80 ? -magnitude : magnitude);
    }
    fix_scale(w, scales + 16, false, false);
}

/* Quantisers write -127 to 127. */
static void fix_q8_0(const make_weights *w, uint8_t *block)
{
    fix_scale(w, block, false, false);
    for (int i = 2; i < 34; i++)
        block[i] = block[i] == 0x80 ? 0x81 : block[i];
}

static void fix_block(const make_weights *w, uint8_t *block)
{
    switch (w->type) {
    case BRIM_DTYPE_Q4_0:
    case BRIM_DTYPE_Q5_0:
        fix_scale(w, block, true, false);
        break;
    case BRIM_DTYPE_Q4_1:
    case BRIM_DTYPE_Q5_1:
        fix_scale(w, block, false, true);
        break;
    case BRIM_DTYPE_Q8_0:
        fix_q8_0(w, block);
        break;
    case BRIM_DTYPE_Q4_K:
    case BRIM_DTYPE_Q5_K:
        fix_scale(w, block, false, true);
        fix_inner_scales(block + 4);
        break;
    case BRIM_DTYPE_Q6_K:
        fix_q6_k(w, block);
        break;
    case BRIM_DTYPE_F32:
    case BRIM_DTYPE_F16:
    case BRIM_DTYPE_BF16:
        break;
    }
}

void make__weights_fill(const make_weights *w, uint8_t *out, uint64_t offset, size_t size)
{
    fill_random(w, out, offset, size);
    if (w->type == BRIM_DTYPE_F32) {
        fix_floats(w, out, size);
        return;
    }
    if (w->type == BRIM_DTYPE_F16 || w->type == BRIM_DTYPE_BF16) {
        fix_halves(w, out, size);
        return;
    }
    size_t block_bytes = brim_dtype_block_bytes(w->type);
    for (size_t at = 0; at < size; at += block_bytes)
        fix_block(w, out + at);
}
