/* sample_cases.h: random rows of logits and parameters for the tests of the device's sampler, on
 * the host and on the device. C and CUDA; the includer has sample.cuh. */
#ifndef SAMPLE_CASES_H
#define SAMPLE_CASES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/rng.h"

typedef enum sample_shape {
    CASE_NORMAL,
    CASE_WIDE,   /* a large spread */
    CASE_FLAT,   /* a small one */
    CASE_PEAKED, /* one far above */
    CASE_EQUAL,
    CASE_COARSE, /* many ties */
    CASE_ZEROS,  /* of both signs, and some ones */
    CASE_MASKED, /* -infinity but for a few */
    CASE_HOLES,  /* NaN and infinities between */
    CASE_NANS,   /* nearly all */
    CASE_TINY,   /* denormal */
    CASE_HUGE,
    CASE_BITS, /* any */
    CASE_RISING,
    CASE_SHAPES,
} sample_shape;

enum { CASE_RECENT = 600 };

typedef struct sample_case {
    float *logits;   /* room for vocab; the caller's */
    float *tile_max; /* room for a number for 8 of them */
    uint32_t vocab;
    brim_sample_params params;
    uint32_t recent[CASE_RECENT], recent_count, position;
} sample_case;

static float case_normal(uint64_t seed, uint64_t i)
{
    double u = ((double)(brim__random_u64(seed, 1, i) >> 11) + 0.5) * 0x1p-53;
    double v = (double)(brim__random_u64(seed, 2, i) >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static float case_logit(sample_shape shape, uint64_t seed, uint32_t i)
{
    uint64_t word = brim__random_u64(seed, 3, i);
    uint32_t bits = (uint32_t)word, few = (uint32_t)(word >> 32) % 100;
    float x = case_normal(seed, i), any;
    memcpy(&any, &bits, sizeof any);
    switch (shape) {
    case CASE_WIDE:
        return 40 * x;
    case CASE_FLAT:
        return 1 + 0.01f * x;
    case CASE_PEAKED:
        return few == 7 ? 20 + x : 3 * x - 15;
    case CASE_EQUAL:
        return (float)(seed % 3) - 1;
    case CASE_COARSE:
        return rintf(2 * x);
    case CASE_ZEROS:
        return few == 7 ? 1.0f : few % 2 ? 0.0f : -0.0f;
    case CASE_MASKED:
        return few < 95 ? -INFINITY : 3 * x;
    case CASE_HOLES:
        return few < 30 ? NAN : few < 40 ? -INFINITY : few == 50 && seed % 2 ? INFINITY : 3 * x;
    case CASE_NANS:
        return few < 97 || seed % 4 == 0 ? NAN : seed % 4 == 1 ? -INFINITY : x;
    case CASE_TINY:
        return x * 0x1p-140f;
    case CASE_HUGE:
        return x * 0x1p125f * 4;
    case CASE_BITS:
        return any;
    case CASE_RISING:
        return (float)i * 0.001f - 3;
    default:
        return 3 * x + 1;
    }
}

/* Maxima of 8, as the output product leaves them. */
static void case_tiles(sample_case *c)
{
    for (uint32_t i = 0; i < c->vocab; i++) {
        float *max = &c->tile_max[i / 8];
        if (i % 8 == 0)
            *max = -INFINITY;
        if (c->logits[i] > *max)
            *max = c->logits[i];
    }
}

/* One of the numbers of a list. */
#define CASE_CHOICE(list, n) (list)[brim__random_below(seed, 4, n, sizeof(list) / sizeof *(list))]

static void case_params(sample_case *c, uint64_t seed)
{
    static const float temperatures[] = {1, 0.7f, 0.05f, 1.5f, 100, 0, 1e-42f, 3e38f, NAN, -1};
    static const float top_ps[] = {1, 1, 0.95f, 0.5f, 0.05f, 0.999999f, 0, NAN, 2, -1, 1e-30f};
    static const float min_ps[] = {0, 0, 0, 0.05f, 0.5f, 1e-4f, 1, NAN, 5, -1, 1e-42f};
    static const float penalties[] = {1, 1, 1, 1.3f, 1.3f, 0.7f, 1e-40f, 1e30f, NAN, INFINITY, -2};
    static const uint32_t top_ks[] = {0, 0, 40, 2, 1, 7, 256, 257, 100, 1000, 0xffffffffu};
    static const uint32_t lasts[] = {64, 5, 0, 256, 257, 0xffffffffu};
    c->params.temperature = CASE_CHOICE(temperatures, 0);
    c->params.top_p = CASE_CHOICE(top_ps, 1);
    c->params.min_p = CASE_CHOICE(min_ps, 2);
    c->params.penalty = CASE_CHOICE(penalties, 3);
    c->params.top_k = CASE_CHOICE(top_ks, 4);
    c->params.penalty_last = CASE_CHOICE(lasts, 5);
    c->params.seed = brim__random_u64(seed, 5, 0);
    c->params.max_position = 0xffffffffu;
    c->params.flags = 0;
    c->position = (uint32_t)brim__random_u64(seed, 5, 1) >> seed % 32;
}

/* Recent ids: of anywhere, of the likeliest tokens' tiles, twice, and outside the vocabulary. */
static void case_recent(sample_case *c, uint64_t seed)
{
    static const uint32_t counts[] = {0, 1, 20, 64, 256, 257, CASE_RECENT};
    uint32_t best = 0;
    for (uint32_t i = 0; i < c->vocab; i++)
        if (c->logits[i] > c->logits[best] || c->logits[best] != c->logits[best])
            best = i;
    c->recent_count = CASE_CHOICE(counts, 6);
    for (uint32_t i = 0; i < c->recent_count; i++) {
        uint64_t word = brim__random_u64(seed, 6, i);
        uint32_t how = (uint32_t)word % 8, far = (uint32_t)(word >> 32);
        c->recent[i] = how == 0   ? far
                       : how == 1 ? best
                       : how == 2 ? best + far % 8
                       : how == 3 ? c->vocab - 1
                       : how == 4 ? c->vocab
                                  : far % c->vocab;
    }
}

static void case_make(sample_case *c, sample_shape shape, uint64_t seed)
{
    for (uint32_t i = 0; i < c->vocab; i++)
        c->logits[i] = case_logit(shape, seed, i);
    case_tiles(c);
    case_params(c, seed);
    case_recent(c, seed);
}

#endif
