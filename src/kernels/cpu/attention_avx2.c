/* attention_avx2.c: one split of attention, the combination of splits, and the cache's stores.
 *
 * For the scores a lane is a position (keys lie transposed), for the output a lane is a dimension:
 * each lane runs the chain that kernels.h gives. Query heads that share a key are taken two at a
 * time, as many as the registers hold. */
#if defined(__x86_64__)
#include "kernels/cpu/inline.h"
#include "kernels/cpu/vector_avx2.h"
#include "kernels/scalar_math.h"

enum { HEADS_AT_ONCE = 2, VECTORS_AT_ONCE = 4, KEY_VECTORS = BRIM__KV_BLOCK / 8 };

/* The positions of one split that are seen, counted from the split's first. */
typedef struct span {
    uint32_t base;        /* the split's first position */
    uint32_t first, last; /* inclusive, 0..255 */
} span;

static ALWAYS_INLINE __m256 load_elements(const uint8_t *base, size_t index, bool f32)
{
    if (f32)
        return _mm256_loadu_ps((const float *)base + index);
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(base + 2 * index)));
}

static ALWAYS_INLINE const uint8_t *block_of(const void *part, const brim__attn *a,
                                             uint32_t position)
{
    return (const uint8_t *)part + a->blocks[position / BRIM__KV_BLOCK] * a->block_bytes;
}

/* Scores of one block of 32 positions for some heads: scores[h * 256 ..]. */
static ALWAYS_INLINE void score_block(float *scores, const brim__attn *a, const uint8_t *k,
                                      const float *q, int heads, bool f32)
{
    uint32_t size = a->head_size;
    __m256 acc[HEADS_AT_ONCE][KEY_VECTORS];
    UNROLL
    for (int h = 0; h < heads; h++)
        UNROLL
    for (int i = 0; i < KEY_VECTORS; i++)
        acc[h][i] = _mm256_setzero_ps();
    for (uint32_t d = 0; d < size; d++) {
        __m256 key[KEY_VECTORS];
        UNROLL
        for (int i = 0; i < KEY_VECTORS; i++)
            key[i] = load_elements(k, 16 * ((size_t)size * (size_t)(i / 2) + d) + 8 * (i % 2), f32);
        UNROLL
        for (int h = 0; h < heads; h++) {
            __m256 value = _mm256_set1_ps(q[h * size + d]);
            UNROLL
            for (int i = 0; i < KEY_VECTORS; i++)
                acc[h][i] = _mm256_fmadd_ps(value, key[i], acc[h][i]);
        }
    }
    UNROLL
    for (int h = 0; h < heads; h++)
        UNROLL
    for (int i = 0; i < KEY_VECTORS; i++)
        _mm256_storeu_ps(scores + h * BRIM__ATTN_SPLIT + 8 * i,
                         _mm256_mul_ps(acc[h][i], _mm256_set1_ps(a->scale)));
}

/* Turns one head's scores into weights, 0 where a position is not seen: such a score becomes
 * minus infinity, whose exp is 0 here. */
static void weigh(float *scores, float *out_max, float *out_sum, const span *s)
{
    uint32_t from = s->first / 16 * 16, to = s->last / 16 * 16 + 16;
    for (uint32_t p = from; p < s->first; p++)
        scores[p] = -INFINITY;
    for (uint32_t p = s->last + 1; p < to; p++)
        scores[p] = -INFINITY;
    __m256 max = _mm256_set1_ps(-INFINITY), sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (uint32_t i = from; i < to; i += 8)
        max = _mm256_max_ps(_mm256_loadu_ps(scores + i), max);
    float top = brim__avx2_reduce_max(max) + 0.0f; /* minus zero becomes zero */
    for (uint32_t i = from; i < to; i += 8) {
        __m256 e = _mm256_sub_ps(_mm256_loadu_ps(scores + i), _mm256_set1_ps(top));
        e = brim__avx2_exp8(e);
        sum[i / 8 % 2] = _mm256_add_ps(sum[i / 8 % 2], e);
        _mm256_storeu_ps(scores + i, e);
    }
    *out_max = top;
    *out_sum = brim__avx2_sum16(sum[0], sum[1]);
}

/* 8 * vectors dimensions from `d` of the output, for some heads. */
static ALWAYS_INLINE void sum_values(float *const *out, const brim__attn *a, const float *weights,
                                     const span *s, uint32_t d, int heads, int vectors, bool f32)
{
    __m256 acc[HEADS_AT_ONCE][VECTORS_AT_ONCE];
    UNROLL
    for (int h = 0; h < heads; h++)
        UNROLL
    for (int i = 0; i < vectors; i++)
        acc[h][i] = _mm256_setzero_ps();
    for (uint32_t p = s->first; p <= s->last; p++) {
        const uint8_t *v = block_of(a->v, a, s->base + p);
        size_t at = (size_t)(p % BRIM__KV_BLOCK) * a->head_size + d;
        __m256 value[VECTORS_AT_ONCE];
        UNROLL
        for (int i = 0; i < vectors; i++)
            value[i] = load_elements(v, at + 8 * (size_t)i, f32);
        UNROLL
        for (int h = 0; h < heads; h++) {
            __m256 e = _mm256_set1_ps(weights[h * BRIM__ATTN_SPLIT + p]);
            UNROLL
            for (int i = 0; i < vectors; i++)
                acc[h][i] = _mm256_fmadd_ps(e, value[i], acc[h][i]);
        }
    }
    UNROLL
    for (int h = 0; h < heads; h++)
        UNROLL
    for (int i = 0; i < vectors; i++)
        _mm256_storeu_ps(out[h] + d + 8 * i, acc[h][i]);
}

static ALWAYS_INLINE void split_heads(float *parts, const brim__attn *a, const float *q,
                                      const span *s, int heads, bool f32)
{
    float scores[HEADS_AT_ONCE * BRIM__ATTN_SPLIT] __attribute__((aligned(64)));
    float *out[HEADS_AT_ONCE];
    for (uint32_t i = s->first / BRIM__KV_BLOCK * BRIM__KV_BLOCK; i <= s->last; i += BRIM__KV_BLOCK)
        score_block(scores + i, a, block_of(a->k, a, s->base + i), q, heads, f32);
    for (int h = 0; h < heads; h++) {
        float *part = parts + (size_t)h * (a->head_size + 2);
        weigh(scores + h * BRIM__ATTN_SPLIT, &part[0], &part[1], s);
        out[h] = part + 2;
    }
    uint32_t d = 0;
    for (; d + 8 * VECTORS_AT_ONCE <= a->head_size; d += 8 * VECTORS_AT_ONCE)
        sum_values(out, a, scores, s, d, heads, VECTORS_AT_ONCE, f32);
    for (; d < a->head_size; d += 16)
        sum_values(out, a, scores, s, d, heads, 2, f32);
}

static ALWAYS_INLINE void split_all(float *parts, const brim__attn *a, const float *q,
                                    const span *s, bool f32)
{
    size_t q_step = a->head_size, part_step = a->head_size + 2;
    uint32_t h = 0;
    for (; a->group - h >= 2; h += 2)
        split_heads(parts + h * part_step, a, q + h * q_step, s, 2, f32);
    if (h < a->group)
        split_heads(parts + h * part_step, a, q + h * q_step, s, 1, f32);
}

void brim__avx2_attn_split(float *parts, const brim__attn *a, const float *q, uint32_t split)
{
    span s = {.base = split * BRIM__ATTN_SPLIT, .first = 0, .last = BRIM__ATTN_SPLIT - 1};
    if (a->first > s.base)
        s.first = a->first - s.base;
    if (a->last - s.base < s.last)
        s.last = a->last - s.base;
    if (a->kv_f32)
        split_all(parts, a, q, &s, true);
    else
        split_all(parts, a, q, &s, false);
}

void brim__avx2_attn_combine(float *out, const float *parts, size_t stride_floats, uint32_t count,
                             uint32_t head_size)
{
    float max = parts[0], sum = parts[1];
    for (uint32_t d = 0; d < head_size; d += 8)
        _mm256_storeu_ps(out + d, _mm256_loadu_ps(parts + 2 + d));
    for (uint32_t i = 1; i < count; i++) {
        const float *part = parts + i * stride_floats;
        float m = part[0] > max ? part[0] : max;
        float a = brim__exp_scalar(max - m), b = brim__exp_scalar(part[0] - m);
        sum = fmaf(sum, a, part[1] * b);
        for (uint32_t d = 0; d < head_size; d += 8) {
            __m256 new = _mm256_mul_ps(_mm256_loadu_ps(part + 2 + d), _mm256_set1_ps(b));
            new = _mm256_fmadd_ps(_mm256_loadu_ps(out + d), _mm256_set1_ps(a), new);
            _mm256_storeu_ps(out + d, new);
        }
        max = m;
    }
    for (uint32_t d = 0; d < head_size; d += 8)
        _mm256_storeu_ps(out + d, _mm256_div_ps(_mm256_loadu_ps(out + d), _mm256_set1_ps(sum)));
}

/* Eight floats as f16: beyond the largest finite value, that value; NaN stays NaN. */
static __m128i to_halves(__m256 x)
{
    x = _mm256_max_ps(_mm256_set1_ps(-65504.0f), x);
    x = _mm256_min_ps(_mm256_set1_ps(65504.0f), x);
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

static void store_key(uint8_t *group, const float *x, uint32_t lane, uint32_t head_size, bool f32)
{
    for (uint32_t d = 0; d < head_size; d += 8) {
        uint16_t halves[8];
        if (!f32)
            _mm_storeu_si128((__m128i *)halves, to_halves(_mm256_loadu_ps(x + d)));
        for (uint32_t i = 0; i < 8; i++) {
            size_t at = 16 * (size_t)(d + i) + lane;
            if (f32)
                memcpy(group + 4 * at, x + d + i, sizeof *x);
            else
                brim__store_u16(group + 2 * at, halves[i]);
        }
    }
}

void brim__avx2_kv_store(void *block, const float *x, uint32_t slot, uint32_t head_size, bool v,
                         bool f32)
{
    size_t element = f32 ? 4 : 2;
    if (!v) {
        uint8_t *group = (uint8_t *)block + slot / 16 * 16 * (size_t)head_size * element;
        store_key(group, x, slot % 16, head_size, f32);
        return;
    }
    uint8_t *to = (uint8_t *)block + (size_t)slot * head_size * element;
    for (uint32_t d = 0; d < head_size; d += 8) {
        __m256 value = _mm256_loadu_ps(x + d);
        if (f32)
            _mm256_storeu_ps((float *)to + d, value);
        else
            _mm_storeu_si128((__m128i *)(to + 2 * (size_t)d), to_halves(value));
    }
}

#endif
