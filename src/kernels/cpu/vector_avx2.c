/* vector_avx2.c: the ops on one vector, 8 floats at a time; what is left over is done one by one
 * with the same operations. */
#if defined(__x86_64__)
#include "kernels/cpu/vector_avx2.h"

#include "kernels/scalar_math.h"

void brim__avx2_rms_norm(float *y, const float *x, const float *w, uint32_t n, float epsilon)
{
    __m256 low = _mm256_setzero_ps(), high = low;
    for (uint32_t i = 0; i < n; i += 16) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        low = _mm256_fmadd_ps(a, a, low);
        high = _mm256_fmadd_ps(b, b, high);
    }
    __m256 r = _mm256_set1_ps(1.0f / sqrtf(brim__avx2_sum16(low, high) / (float)n + epsilon));
    for (uint32_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), r);
        _mm256_storeu_ps(y + i, w ? _mm256_mul_ps(v, _mm256_loadu_ps(w + i)) : v);
    }
}

static int32_t reduce_add(__m256i v)
{
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
}

/* The largest magnitude of 32 floats as bits: as integers, magnitudes order like floats, with
 * infinity and NaN at the top. */
static uint32_t largest_magnitude(const __m256 x[4])
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i max = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++)
        max = _mm256_max_epi32(max, _mm256_and_si256(_mm256_castps_si256(x[i]), magnitude));
    __m128i b = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
}

/* Sixteen numbers of 16 bits in order. */
static __m256i round_sixteen(__m256 a, __m256 b, __m256 inverse)
{
    __m256i q = _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(a, inverse)),
                                   _mm256_cvtps_epi32(_mm256_mul_ps(b, inverse)));
    return _mm256_permute4x64_epi64(q, 0xd8);
}

static void store_plane(int8_t *to, __m256i a, __m256i b)
{
    __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8);
    _mm256_storeu_si256((__m256i *)to, bytes);
}

static void quantize_block(brim__q16 *out, const float *from)
{
    __m256 x[4];
    for (int i = 0; i < 4; i++)
        x[i] = _mm256_loadu_ps(from + 8 * i);
    uint32_t bits = largest_magnitude(x);
    float amax = brim__float_of(bits), inverse = 32512.0f / amax;
    if (bits >= 0x7f800000u || !isfinite(inverse)) {
        memset(out, 0, sizeof *out);
        if (bits >= 0x7f800000u)
            out->scale = out->scaled_sum = NAN;
        return;
    }
    __m256i q[2], hi[2], lo[2];
    for (int h = 0; h < 2; h++) {
        q[h] = round_sixteen(x[2 * h], x[2 * h + 1], _mm256_set1_ps(inverse));
        hi[h] = _mm256_srai_epi16(_mm256_add_epi16(q[h], _mm256_set1_epi16(128)), 8);
        lo[h] = _mm256_srai_epi16(_mm256_slli_epi16(q[h], 8), 8);
        out->sum[h] = reduce_add(_mm256_madd_epi16(q[h], _mm256_set1_epi16(1)));
    }
    store_plane(out->hi, hi[0], hi[1]);
    store_plane(out->lo, lo[0], lo[1]);
    out->scale = amax / 32512.0f;
    out->scaled_sum = out->scale * (float)(out->sum[0] + out->sum[1]);
}

void brim__avx2_quantize(brim__q16 *out, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 32)
        quantize_block(out++, x + i);
}

void brim__avx2_add(float *y, const float *a, const float *b, uint32_t n)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
    for (; i < n; i++)
        y[i] = a[i] + b[i];
}

void brim__avx2_silu_mul(float *y, const float *gate, const float *up, uint32_t n)
{
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 x = _mm256_loadu_ps(gate + i), e = brim__avx2_exp8(_mm256_xor_ps(x, sign));
        __m256 silu = _mm256_div_ps(x, _mm256_add_ps(one, e));
        _mm256_storeu_ps(y + i, _mm256_mul_ps(silu, _mm256_loadu_ps(up + i)));
    }
    for (; i < n; i++)
        y[i] = brim__silu_scalar(gate[i]) * up[i];
}

void brim__avx2_exp(float *y, const float *x, uint32_t n)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, brim__avx2_exp8(_mm256_loadu_ps(x + i)));
    for (; i < n; i++)
        y[i] = brim__exp_scalar(x[i]);
}

/* Rotates the pairs (a, b) by the angle with cosine c and sine s. */
static void rotate(__m256 *a, __m256 *b, __m256 c, __m256 s)
{
    __m256 first = _mm256_fmsub_ps(*a, c, _mm256_mul_ps(*b, s));
    *b = _mm256_fmadd_ps(*a, s, _mm256_mul_ps(*b, c));
    *a = first;
}

static void rotate_one(float *first, float *second, float c, float s)
{
    float a = *first, b = *second;
    *first = fmaf(a, c, -(b * s));
    *second = fmaf(a, s, b * c);
}

static void rope_halves(float *x, const float *cos_sin, uint32_t pairs)
{
    uint32_t i = 0;
    for (; i + 8 <= pairs; i += 8) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + pairs + i);
        rotate(&a, &b, _mm256_loadu_ps(cos_sin + i), _mm256_loadu_ps(cos_sin + pairs + i));
        _mm256_storeu_ps(x + i, a);
        _mm256_storeu_ps(x + pairs + i, b);
    }
    for (; i < pairs; i++)
        rotate_one(x + i, x + pairs + i, cos_sin[i], cos_sin[pairs + i]);
}

/* Eight numbers in the order in which a shuffle of two vectors of four pairs leaves them. */
static __m256 load_in_shuffle_order(const float *p)
{
    __m256d v = _mm256_castps_pd(_mm256_loadu_ps(p));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(v, 0xd8));
}

static void rope_neighbours(float *x, const float *cos_sin, uint32_t pairs)
{
    uint32_t i = 0;
    for (; i + 8 <= pairs; i += 8) {
        __m256 x0 = _mm256_loadu_ps(x + 2 * i), x1 = _mm256_loadu_ps(x + 2 * i + 8);
        __m256 a = _mm256_shuffle_ps(x0, x1, 0x88), b = _mm256_shuffle_ps(x0, x1, 0xdd);
        rotate(&a, &b, load_in_shuffle_order(cos_sin + i),
               load_in_shuffle_order(cos_sin + pairs + i));
        _mm256_storeu_ps(x + 2 * i, _mm256_unpacklo_ps(a, b));
        _mm256_storeu_ps(x + 2 * i + 8, _mm256_unpackhi_ps(a, b));
    }
    for (; i < pairs; i++)
        rotate_one(x + 2 * i, x + 2 * i + 1, cos_sin[i], cos_sin[pairs + i]);
}

void brim__avx2_rope(float *x, const float *cos_sin, uint32_t n, bool halves)
{
    if (halves)
        rope_halves(x, cos_sin, n / 2);
    else
        rope_neighbours(x, cos_sin, n / 2);
}

uint32_t brim__avx2_argmax(const float *x, uint32_t n)
{
    __m256 best[4];
    for (int j = 0; j < 4; j++)
        best[j] = _mm256_set1_ps(-INFINITY);
    uint32_t i = 0;
    /* max(a, b) is b where a is NaN: no NaN ever enters `best`. */
    for (; i + 32 <= n; i += 32)
        for (int j = 0; j < 4; j++)
            best[j] = _mm256_max_ps(_mm256_loadu_ps(x + i + 8 * j), best[j]);
    best[0] = _mm256_max_ps(_mm256_max_ps(best[0], best[1]), _mm256_max_ps(best[2], best[3]));
    float max = brim__avx2_reduce_max(best[0]);
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 equal = _mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(max), _CMP_EQ_OQ);
        int mask = _mm256_movemask_ps(equal);
        if (mask)
            return i + (uint32_t)__builtin_ctz((unsigned)mask);
    }
    for (; i < n; i++)
        if (x[i] == max)
            return i;
    return 0;
}

#endif
