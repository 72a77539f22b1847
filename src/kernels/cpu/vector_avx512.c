/* vector_avx512.c: the ops on one vector, 16 floats at a time; what is left over is masked. */
#if defined(__x86_64__)
#include "kernels/cpu/vector_avx512.h"

#include <math.h>

static __mmask16 first_lanes(uint32_t count)
{
    return count >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << count) - 1);
}

void brim__avx512_rms_norm(float *y, const float *x, const float *w, uint32_t n, float epsilon)
{
    __m512 sum = _mm512_setzero_ps();
    for (uint32_t i = 0; i < n; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        sum = _mm512_fmadd_ps(v, v, sum);
    }
    __m512 r = _mm512_set1_ps(1.0f / sqrtf(brim__avx512_sum16(sum) / (float)n + epsilon));
    for (uint32_t i = 0; i < n; i += 16) {
        __m512 v = _mm512_mul_ps(_mm512_loadu_ps(x + i), r);
        _mm512_storeu_ps(y + i, w ? _mm512_mul_ps(v, _mm512_loadu_ps(w + i)) : v);
    }
}

/* The largest magnitude as bits: as integers, magnitudes order like floats, with infinity and NaN
 * at the top. */
static uint32_t largest_magnitude(__m512 a, __m512 b)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i x = _mm512_and_si512(_mm512_castps_si512(a), magnitude);
    __m512i y = _mm512_and_si512(_mm512_castps_si512(b), magnitude);
    return (uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(x, y));
}

/* Sixteen numbers into the two planes; their sum. */
static int32_t split_planes(int8_t *hi, int8_t *lo, __m512 x, __m512 inverse)
{
    __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
    __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(128)), 8);
    _mm_storeu_si128((__m128i *)hi, _mm512_cvtepi32_epi8(high));
    _mm_storeu_si128((__m128i *)lo, _mm512_cvtepi32_epi8(q));
    return _mm512_reduce_add_epi32(q);
}

void brim__avx512_quantize(brim__q16 *out, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 32, out++) {
        __m512 a = _mm512_loadu_ps(x + i), b = _mm512_loadu_ps(x + i + 16);
        uint32_t bits = largest_magnitude(a, b);
        float amax = brim__float_of(bits), inverse = 32512.0f / amax;
        if (bits >= 0x7f800000u || !isfinite(inverse)) {
            memset(out, 0, sizeof *out);
            if (bits >= 0x7f800000u)
                out->scale = out->scaled_sum = NAN;
            continue;
        }
        out->scale = amax / 32512.0f;
        out->sum[0] = split_planes(out->hi, out->lo, a, _mm512_set1_ps(inverse));
        out->sum[1] = split_planes(out->hi + 16, out->lo + 16, b, _mm512_set1_ps(inverse));
        out->scaled_sum = out->scale * (float)(out->sum[0] + out->sum[1]);
    }
}

void brim__avx512_add(float *y, const float *a, const float *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16) {
        __mmask16 k = first_lanes(n - i);
        __m512 sum =
            _mm512_add_ps(_mm512_maskz_loadu_ps(k, a + i), _mm512_maskz_loadu_ps(k, b + i));
        _mm512_mask_storeu_ps(y + i, k, sum);
    }
}

void brim__avx512_silu_mul(float *y, const float *gate, const float *up, uint32_t n)
{
    const __m512 one = _mm512_set1_ps(1.0f), sign = _mm512_set1_ps(-0.0f);
    for (uint32_t i = 0; i < n; i += 16) {
        __mmask16 k = first_lanes(n - i);
        __m512 x = _mm512_maskz_loadu_ps(k, gate + i), u = _mm512_maskz_loadu_ps(k, up + i);
        __m512 e = brim__avx512_exp16(_mm512_xor_ps(x, sign));
        __m512 silu = _mm512_div_ps(x, _mm512_add_ps(one, e));
        _mm512_mask_storeu_ps(y + i, k, _mm512_mul_ps(silu, u));
    }
}

void brim__avx512_exp(float *y, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16) {
        __mmask16 k = first_lanes(n - i);
        _mm512_mask_storeu_ps(y + i, k, brim__avx512_exp16(_mm512_maskz_loadu_ps(k, x + i)));
    }
}

/* Rotates the pairs (a, b) by the angle with cosine c and sine s. */
static void rotate(__m512 *a, __m512 *b, __m512 c, __m512 s)
{
    __m512 first = _mm512_fmsub_ps(*a, c, _mm512_mul_ps(*b, s));
    *b = _mm512_fmadd_ps(*a, s, _mm512_mul_ps(*b, c));
    *a = first;
}

static void rope_halves(float *x, const float *cos_sin, uint32_t pairs)
{
    for (uint32_t i = 0; i < pairs; i += 16) {
        __mmask16 k = first_lanes(pairs - i);
        __m512 a = _mm512_maskz_loadu_ps(k, x + i), b = _mm512_maskz_loadu_ps(k, x + pairs + i);
        rotate(&a, &b, _mm512_maskz_loadu_ps(k, cos_sin + i),
               _mm512_maskz_loadu_ps(k, cos_sin + pairs + i));
        _mm512_mask_storeu_ps(x + i, k, a);
        _mm512_mask_storeu_ps(x + pairs + i, k, b);
    }
}

static void rope_neighbours(float *x, const float *cos_sin, uint32_t pairs)
{
    const __m512i even =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    for (uint32_t i = 0; i < pairs; i += 16) {
        uint32_t floats = 2 * (pairs - i);
        __mmask16 k0 = first_lanes(floats), k1 = first_lanes(floats > 16 ? floats - 16 : 0);
        __mmask16 k = first_lanes(pairs - i);
        __m512 x0 = _mm512_maskz_loadu_ps(k0, x + 2 * i), x1 = _mm512_setzero_ps();
        if (k1)
            x1 = _mm512_maskz_loadu_ps(k1, x + 2 * i + 16);
        __m512 a = _mm512_permutex2var_ps(x0, even, x1), b = _mm512_permutex2var_ps(x0, odd, x1);
        rotate(&a, &b, _mm512_maskz_loadu_ps(k, cos_sin + i),
               _mm512_maskz_loadu_ps(k, cos_sin + pairs + i));
        _mm512_mask_storeu_ps(x + 2 * i, k0, _mm512_permutex2var_ps(a, low, b));
        if (k1)
            _mm512_mask_storeu_ps(x + 2 * i + 16, k1, _mm512_permutex2var_ps(a, high, b));
    }
}

void brim__avx512_rope(float *x, const float *cos_sin, uint32_t n, bool halves)
{
    if (halves)
        rope_halves(x, cos_sin, n / 2);
    else
        rope_neighbours(x, cos_sin, n / 2);
}

uint32_t brim__avx512_argmax(const float *x, uint32_t n)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    __m512 best[4] = {lowest, lowest, lowest, lowest};
    uint32_t i = 0;
    /* max(a, b) is b where a is NaN: no NaN ever enters `best`. */
    for (; i + 64 <= n; i += 64)
        for (int j = 0; j < 4; j++)
            best[j] = _mm512_max_ps(_mm512_loadu_ps(x + i + 16 * j), best[j]);
    for (; i < n; i += 16)
        best[0] = _mm512_max_ps(_mm512_mask_loadu_ps(lowest, first_lanes(n - i), x + i), best[0]);
    best[0] = _mm512_max_ps(_mm512_max_ps(best[0], best[1]), _mm512_max_ps(best[2], best[3]));
    __m512 max = _mm512_set1_ps(_mm512_reduce_max_ps(best[0]));
    for (i = 0; i < n; i += 16) {
        __mmask16 k = first_lanes(n - i);
        __mmask16 equal =
            _mm512_mask_cmp_ps_mask(k, _mm512_maskz_loadu_ps(k, x + i), max, _CMP_EQ_OQ);
        if (equal)
            return i + (uint32_t)__builtin_ctz(equal);
    }
    return 0;
}

#endif
