/* vector_avx512.h: pieces that the AVX-512 bodies share, and the names of the bodies. */
#ifndef BRIM_KERNELS_VECTOR_AVX512_H
#define BRIM_KERNELS_VECTOR_AVX512_H

#include <immintrin.h>

#include "kernels/cells.h"
#include "kernels/exp_constants.h"

/* exp() of kernels.h. Scaling by 2^k with one rounding is what vscalefps does. */
static inline __m512 brim__avx512_exp16(__m512 x)
{
    /* max(a, b) and min(a, b) are b where either is NaN: NaN stays NaN. */
    x = _mm512_max_ps(_mm512_set1_ps(BRIM__EXP_MIN), x);
    x = _mm512_min_ps(_mm512_set1_ps(BRIM__EXP_MAX), x);
    __m512 k = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(BRIM__EXP_LOG2E)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(k, _mm512_set1_ps(BRIM__EXP_LN2_HI), x);
    r = _mm512_fnmadd_ps(k, _mm512_set1_ps(BRIM__EXP_LN2_LO), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(BRIM__EXP_C6), r, _mm512_set1_ps(BRIM__EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(BRIM__EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(BRIM__EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(BRIM__EXP_C2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, k);
}

/* The tree of sum16: j and j + 8, then j and j + 4, j and j + 2, the last two. */
static inline float brim__avx512_sum16(__m512 v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

void brim__avx512_rms_norm(float *y, const float *x, const float *w, uint32_t n, float epsilon);
void brim__avx512_quantize(brim__q16 *out, const float *x, uint32_t n);
void brim__avx512_add(float *y, const float *a, const float *b, uint32_t n);
void brim__avx512_silu_mul(float *y, const float *gate, const float *up, uint32_t n);
void brim__avx512_rope(float *x, const float *cos_sin, uint32_t n, bool halves);
uint32_t brim__avx512_argmax(const float *x, uint32_t n);
void brim__avx512_exp(float *y, const float *x, uint32_t n);
void brim__avx512_attn_split(float *parts, const brim__attn *a, const float *q, uint32_t split);
void brim__avx512_attn_combine(float *out, const float *parts, size_t stride_floats, uint32_t count,
                               uint32_t head_size);
void brim__avx512_kv_store(void *block, const float *x, uint32_t slot, uint32_t head_size, bool v,
                           bool f32);

#endif
