/* vector_avx2.h: pieces that the AVX2 bodies share, and the names of the bodies. */
#ifndef BRIM_KERNELS_VECTOR_AVX2_H
#define BRIM_KERNELS_VECTOR_AVX2_H

#include <immintrin.h>

#include "kernels/cells.h"
#include "kernels/exp_constants.h"

/* exp() of kernels.h; x = -infinity gives 0. */
static inline __m256 brim__avx2_exp8(__m256 x)
{
    /* max(a, b) and min(a, b) are b where either is NaN: NaN stays NaN. */
    x = _mm256_max_ps(_mm256_set1_ps(BRIM__EXP_MIN), x);
    x = _mm256_min_ps(_mm256_set1_ps(BRIM__EXP_MAX), x);
    __m256 k = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(BRIM__EXP_LOG2E)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(BRIM__EXP_LN2_HI), x);
    r = _mm256_fnmadd_ps(k, _mm256_set1_ps(BRIM__EXP_LN2_LO), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(BRIM__EXP_C6), r, _mm256_set1_ps(BRIM__EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(BRIM__EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(BRIM__EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(BRIM__EXP_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    const __m256i bias = _mm256_set1_epi32(127);
    __m256i exponent = _mm256_cvtps_epi32(k), first = _mm256_srai_epi32(exponent, 1);
    __m256i rest = _mm256_sub_epi32(exponent, first);
    __m256i a = _mm256_slli_epi32(_mm256_add_epi32(first, bias), 23);
    __m256i b = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}

/* The tree of sum16 on partials 0..7 and 8..15. */
static inline float brim__avx2_sum16(__m256 low, __m256 high)
{
    __m256 a = _mm256_add_ps(low, high);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* The largest lane; no lane is NaN. */
static inline float brim__avx2_reduce_max(__m256 v)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

void brim__avx2_rms_norm(float *y, const float *x, const float *w, uint32_t n, float epsilon);
void brim__avx2_quantize(brim__q16 *out, const float *x, uint32_t n);
void brim__avx2_add(float *y, const float *a, const float *b, uint32_t n);
void brim__avx2_silu_mul(float *y, const float *gate, const float *up, uint32_t n);
void brim__avx2_rope(float *x, const float *cos_sin, uint32_t n, bool halves);
uint32_t brim__avx2_argmax(const float *x, uint32_t n);
void brim__avx2_exp(float *y, const float *x, uint32_t n);
void brim__avx2_attn_split(float *parts, const brim__attn *a, const float *q, uint32_t split);
void brim__avx2_attn_combine(float *out, const float *parts, size_t stride_floats, uint32_t count,
                             uint32_t head_size);
void brim__avx2_kv_store(void *block, const float *x, uint32_t slot, uint32_t head_size, bool v,
                         bool f32);

#endif
