/* sample.c: the choice of a token; sample.h has the meaning.
 *
 * How it is fast: one pass takes the maximum of each block of 256 logits (with argmax, the fastest
 * reader there is). What is asked for then gives a lower bound on the logits that can be chosen:
 * the k-th largest block maximum (the k-th largest logit is no smaller), the mass that top-p may
 * leave out shared among all tokens, min-p. Blocks below the bound are not looked at again, and
 * what is above it, the candidates, is few. A step only finds a cut (a logit, and how many of those
 * equal to it stay) and drops what is below; cuts come from a radix descent with exact integer
 * masses: three linear passes whatever the logits are. Candidates stay in ascending order of id,
 * which is the order of the draw.
 *
 * Invariants: a list always holds the likeliest token, whose mass is the largest possible; so sums
 * are never zero and a draw ends inside the list. Candidates hold no NaN; in the whole vocabulary
 * NaN and what is far below have mass 0.
 */
#include "kernels/sample.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/exp_constants.h"

enum {
    BLOCK = 256,         /* logits under one maximum */
    CHUNK = 512,         /* logits weighed at a time; 2^20 times CHUNK / 4 fits an int */
    BUCKET_COUNT = 2048, /* of the widest digit of the radix descent */
    MASS_BITS_MAX = 40,
    MASS_BITS_HIGH = 20,
};

/* A logit this far below the largest, at temperature 1, has no mass: exp(-30) < 2^-43. */
static const float far_below = 30.0f;
/* Nearly all of the mass of an answer's usual distribution lies this close to the largest. */
static const float likely_depth = 8.0f;

/* Four lanes are a register of the least machine that each architecture promises. */
typedef float float4 __attribute__((vector_size(16)));
typedef int32_t int4 __attribute__((vector_size(16)));

/* Tokens in ascending order of id. */
typedef struct list {
    const float *logit;
    const uint32_t *id; /* NULL: 0, 1, ... */
    uint32_t count;
} list;

typedef struct sampler {
    const brim__kernels *k;
    const brim__sample_params *params;
    const float *logits; /* after the penalty */
    uint32_t vocab, block_count;
    float max; /* of all logits, at most FLT_MAX */
    int mass_bits;
    float mass_unit; /* the mass of e = 1: 2^mass_bits */
    float *block_max;
    uint64_t *bucket;
    uint64_t *chunk_mass;
    float *logit; /* of the candidates, with their ids and masses at temperature 1 */
    uint32_t *id;
    uint64_t *mass;
    uint32_t count;
} sampler;

/* Keeps the logits above `key`, and the first `ties` of those equal to it. */
typedef struct cut {
    uint32_t key;
    uint64_t ties;
} cut;

/* ---- scratch ---- */

static size_t padded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t pieces(uint32_t vocab, uint32_t size)
{
    return ((size_t)vocab + size - 1) / size;
}

size_t brim__sample_scratch_bytes(uint32_t vocab)
{
    return 63 + 3 * padded(vocab * sizeof(float)) + padded(vocab * sizeof(uint64_t)) +
           padded(pieces(vocab, BLOCK) * sizeof(float)) +
           padded(pieces(vocab, CHUNK) * sizeof(uint64_t)) + BUCKET_COUNT * sizeof(uint64_t);
}

static void *take(uint8_t **scratch, size_t bytes)
{
    void *taken = *scratch;
    *scratch += padded(bytes);
    return taken;
}

/* ---- keys and masses ---- */

/* Keys ascend as logits do; the two zeros share one. Not for NaN. */
static uint32_t key_of(float logit)
{
    float unsigned_zero = logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &unsigned_zero, sizeof bits);
    return bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
}

static float logit_of(uint32_t key)
{
    uint32_t bits = key & 0x80000000u ? key & 0x7fffffffu : ~key;
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

static uint64_t mass_of(const sampler *s, float e)
{
    return (uint64_t)(int64_t)(e * s->mass_unit);
}

static float4 load4(const float *x)
{
    float4 v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* a where it is larger, else b: b where a is NaN. */
static float4 larger4(float4 a, float4 b)
{
    int4 wins = a > b;
    return (float4)(((int4)a & wins) | ((int4)b & ~wins));
}

/* e of up to CHUNK logits at a temperature; zeros up to the next multiple of four. */
static void exponentials(const sampler *s, float e[CHUNK], const float *logit, uint32_t count,
                         float temperature)
{
    assert(count > 0 && count <= CHUNK);
    const float4 least = {BRIM__EXP_MIN, BRIM__EXP_MIN, BRIM__EXP_MIN, BRIM__EXP_MIN};
    const float4 zero = {0}, max = zero + s->max, t = zero + temperature;
    for (uint32_t i = 0; i < count; i += 4) {
        float4 x = zero;
        if (count - i >= 4)
            x = load4(logit + i);
        else
            memcpy(&x, logit + i, (count - i) * sizeof *logit);
        /* Only +infinity lies above the maximum, which is finite: it counts as the maximum. What
         * is not a number becomes the least. */
        float4 d = x - max;
        int4 above = d > zero;
        d = larger4((float4)((int4)d & ~above) / t, least);
        memcpy(e + i, &d, sizeof d);
    }
    s->k->exp(e, e, count);
    for (uint32_t i = count; i % 4; i++)
        e[i] = 0;
}

/* The sum of the masses, as mass_of() has them: the upper MASS_BITS_HIGH bits and the others each
 * fit an int in a vector, and so do their sums over a chunk. */
static uint64_t sum_of_masses(const sampler *s, const float e[CHUNK], uint32_t count)
{
    int low_bits = s->mass_bits - MASS_BITS_HIGH;
    const float high_unit = (float)(1 << MASS_BITS_HIGH), low_unit = (float)(1 << low_bits);
    int4 highs = {0}, lows = {0};
    for (uint32_t i = 0; i < count; i += 4) {
        float4 scaled = load4(e + i) * high_unit;
        int4 high = __builtin_convertvector(scaled, int4);
        float4 rest = scaled - __builtin_convertvector(high, float4); /* exact */
        highs += high;
        lows += __builtin_convertvector(rest * low_unit, int4);
    }
    uint64_t sum = 0;
    for (int lane = 0; lane < 4; lane++)
        sum += ((uint64_t)(uint32_t)highs[lane] << low_bits) + (uint32_t)lows[lane];
    return sum;
}

/* The mass of a list at a temperature, and that of each chunk. */
static uint64_t weigh(const sampler *s, list l, float temperature)
{
    uint64_t sum = 0;
    float e[CHUNK];
    for (uint32_t begin = 0, c = 0; begin < l.count; c++) {
        uint32_t count = l.count - begin < CHUNK ? l.count - begin : CHUNK;
        exponentials(s, e, l.logit + begin, count, temperature);
        s->chunk_mass[c] = sum_of_masses(s, e, count);
        sum += s->chunk_mass[c];
        begin += count; /* never past the count, so never past 2^32 */
    }
    return sum;
}

/* The mass of the candidates at temperature 1; keeps each one's. */
static uint64_t weigh_candidates(sampler *s)
{
    uint64_t sum = 0;
    float e[CHUNK];
    for (uint32_t begin = 0; begin < s->count;) {
        uint32_t count = s->count - begin < CHUNK ? s->count - begin : CHUNK;
        exponentials(s, e, s->logit + begin, count, 1);
        for (uint32_t i = 0; i < count; i++)
            sum += s->mass[begin + i] = mass_of(s, e[i]);
        begin += count;
    }
    return sum;
}

/* ---- cuts ---- */

/* The largest of some numbers. */
static float largest(const float *logits, uint32_t count)
{
    float4 most = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    uint32_t i = 0;
    for (; i + 4 <= count; i += 4)
        most = larger4(load4(logits + i), most);
    float max = -INFINITY;
    for (int lane = 0; lane < 4; lane++)
        max = most[lane] > max ? most[lane] : max;
    for (; i < count; i++)
        max = logits[i] > max ? logits[i] : max;
    return max;
}

/* The smallest of some numbers. */
static float smallest(const float *logits, uint32_t count)
{
    float4 least = {INFINITY, INFINITY, INFINITY, INFINITY};
    uint32_t i = 0;
    for (; i + 4 <= count; i += 4)
        least = -larger4(-load4(logits + i), -least);
    float min = INFINITY;
    for (int lane = 0; lane < 4; lane++)
        min = least[lane] < min ? least[lane] : min;
    for (; i < count; i++)
        min = logits[i] < min ? logits[i] : min;
    return min;
}

/* The keys from lo to hi, both included. */
typedef struct range {
    uint32_t lo, hi;
} range;

/* The sums of mass (of 1 each where mass is NULL) of the logits in the range, by the bits of
 * key - lo above `shift`. */
static void fill_buckets(uint64_t *bucket, const float *logit, const uint64_t *mass, uint32_t count,
                         range r, int shift)
{
    uint32_t span = r.hi - r.lo;
    memset(bucket, 0, ((span >> shift) + 1) * sizeof *bucket);
    if (mass) {
        for (uint32_t i = 0; i < count; i++) {
            uint32_t offset = key_of(logit[i]) - r.lo;
            if (offset <= span)
                bucket[offset >> shift] += mass[i];
        }
    } else {
        for (uint32_t i = 0; i < count; i++) {
            uint32_t offset = key_of(logit[i]) - r.lo;
            if (offset <= span)
                bucket[offset >> shift]++;
        }
    }
}

/* One step of the descent: narrows a range to 1 / BUCKET_COUNT of it, that which holds the last of
 * the fewest largest logits whose masses add up to `missing` or more; takes what lies above from
 * `missing`. */
static range narrow(uint64_t *bucket, const float *logit, const uint64_t *mass, uint32_t count,
                    range r, uint64_t *missing)
{
    int shift = 0;
    while ((r.hi - r.lo) >> shift >= BUCKET_COUNT)
        shift++;
    fill_buckets(bucket, logit, mass, count, r, shift);
    uint32_t b = (r.hi - r.lo) >> shift;
    for (; bucket[b] < *missing; b--) {
        assert(b > 0);
        *missing -= bucket[b];
    }
    uint32_t lo = r.lo + (b << shift), width = (UINT32_C(1) << shift) - 1;
    return (range){lo, r.hi - lo < width ? r.hi : lo + width};
}

/* The fewest largest logits whose masses add up to `target` or more; 0 < target <= their sum. */
static cut find_cut(uint64_t *bucket, const float *logit, const uint64_t *mass, uint32_t count,
                    uint64_t target)
{
    range r = {key_of(smallest(logit, count)), key_of(largest(logit, count))};
    while (r.lo < r.hi) /* at most three times: 32 bits, 11 a step */
        r = narrow(bucket, logit, mass, count, r, &target);
    if (!mass)
        return (cut){r.lo, target};
    uint32_t i = 0; /* equal logits have equal masses */
    while (key_of(logit[i]) != r.lo)
        i++;
    return (cut){r.lo, (target + mass[i] - 1) / mass[i]};
}

/* Drops what the cut does not keep, and (where masses are known) what has less than `least`. */
static void keep(sampler *s, cut at, uint64_t least)
{
    uint32_t kept = 0;
    uint64_t ties = at.ties;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t key = key_of(s->logit[i]);
        if (key < at.key || (key == at.key && ties == 0))
            continue;
        ties -= key == at.key;
        if (least && s->mass[i] < least)
            continue;
        s->logit[kept] = s->logit[i];
        s->id[kept++] = s->id[i];
    }
    s->count = kept;
}

/* ---- bounds ---- */

/* -infinity stands for a block of NaN alone. */
static void find_maxima(sampler *s)
{
    float max = -INFINITY;
    for (uint32_t begin = 0, b = 0; begin < s->vocab; b++) {
        uint32_t count = s->vocab - begin < BLOCK ? s->vocab - begin : BLOCK;
        float here = s->logits[begin + s->k->argmax(s->logits + begin, count)];
        s->block_max[b] = here > -INFINITY ? here : -INFINITY;
        max = here > max ? here : max;
        begin += count;
    }
    s->max = max > FLT_MAX ? FLT_MAX : max;
}

/* What has no mass at temperature 1 and at the given one is below this. */
static float bound_of_all(const sampler *s)
{
    float t = s->params->temperature;
    return s->max - far_below * (t > 1 ? t : 1);
}

/* At least k logits are at or above this, if there are k: one step towards the k-th largest block
 * maximum is close enough. */
static float bound_of_top_k(const sampler *s, uint32_t k)
{
    if (k >= s->block_count)
        return -INFINITY;
    uint64_t missing = k;
    range all = {key_of(smallest(s->block_max, s->block_count)),
                 key_of(largest(s->block_max, s->block_count))};
    return logit_of(narrow(s->bucket, s->block_max, NULL, s->block_count, all, &missing).lo);
}

/* All logits below this have less mass than `mass` at temperature 1, by a margin of e. */
static float bound_of_mass(const sampler *s, uint64_t mass)
{
    if (mass == 0)
        return -INFINITY;
    int log2 = 63 - __builtin_clzll(mass);
    return s->max - ((float)(s->mass_bits - log2) * 0.6931472f + 1);
}

/* ---- the steps ---- */

/* Each recent token's logit is computed from the original, so a second occurrence changes
 * nothing. */
static void penalize(float *out, const float *logits, uint32_t vocab,
                     const brim__sample_params *params, const uint32_t *recent, uint32_t count)
{
    memcpy(out, logits, (size_t)vocab * sizeof *out);
    uint32_t last = count < params->penalty_last ? count : params->penalty_last;
    for (uint32_t i = count - last; i < count; i++) {
        uint32_t id = recent[i];
        if (id < vocab)
            out[id] = logits[id] > 0 ? logits[id] / params->penalty : logits[id] * params->penalty;
    }
}

/* Makes candidates of the logits at or above the bound. */
static void collect(sampler *s, float bound)
{
    uint32_t kept = 0;
    for (uint32_t begin = 0, b = 0; begin < s->vocab; b++) {
        uint32_t end = s->vocab - begin < BLOCK ? s->vocab : begin + BLOCK;
        for (uint32_t i = begin; s->block_max[b] >= bound && i < end; i++) {
            s->logit[kept] = s->logits[i]; /* without a branch: overwritten unless kept */
            s->id[kept] = i;
            kept += s->logits[i] >= bound;
        }
        begin = end;
    }
    s->count = kept;
}

/* The mass that the likeliest tokens must reach. top_p * 2^53 is an integer unless top_p is tiny,
 * and then one token is enough. */
static uint64_t top_p_target(float top_p, uint64_t total)
{
    uint64_t share = top_p > 0 ? (uint64_t)((double)top_p * 0x1p53) : 0;
    unsigned __int128 product = (unsigned __int128)total * share;
    uint64_t target = (uint64_t)((product + (UINT64_C(1) << 53) - 1) >> 53);
    return target ? target : 1;
}

static float higher(float a, float b)
{
    return a > b ? a : b;
}

/* Makes candidates of all that top-p may keep; the mass that it must reach. The tokens above a
 * bound are as good as all if they reach it: a guess that mostly holds comes first. Else the tokens
 * dropped may have an equal share of what top-p leaves out. */
static uint64_t collect_top_p(sampler *s)
{
    uint64_t total = weigh(s, (list){s->logits, NULL, s->vocab}, 1);
    uint64_t target = top_p_target(s->params->top_p, total);
    float guess = s->max - likely_depth;
    float bound = higher(bound_of_all(s), bound_of_mass(s, (total - target) / s->vocab));
    if (guess > bound) {
        collect(s, guess);
        if (weigh_candidates(s) >= target)
            return target;
    }
    collect(s, bound);
    return target;
}

/* Top-k, top-p and min-p: what is left to draw from. */
static list filter(sampler *s)
{
    const brim__sample_params *p = s->params;
    bool cuts_k = p->top_k && p->top_k < s->vocab, cuts_p = p->top_p < 1;
    uint64_t least = p->min_p > 0 ? mass_of(s, p->min_p < 1 ? p->min_p : 1) : 0, target = 0;
    if (!cuts_k && !cuts_p && !least)
        return (list){s->logits, NULL, s->vocab};

    if (cuts_k) {
        collect(s, higher(bound_of_all(s), bound_of_top_k(s, p->top_k)));
        if (p->top_k < s->count)
            keep(s, find_cut(s->bucket, s->logit, NULL, s->count, p->top_k), 0);
    } else if (cuts_p)
        target = collect_top_p(s);
    else
        collect(s, higher(bound_of_all(s), bound_of_mass(s, least)));

    if (cuts_p || least) {
        uint64_t total = weigh_candidates(s);
        cut at = {0, 0};
        if (cuts_p)
            at = find_cut(s->bucket, s->logit, s->mass, s->count,
                          target ? target : top_p_target(p->top_p, total));
        keep(s, at, least);
    }
    return (list){s->logit, s->id, s->count};
}

static uint32_t draw(const sampler *s, list l, uint32_t position)
{
    float temperature = s->params->temperature;
    uint64_t rest = brim__random_below(s->params->seed, 0, position, weigh(s, l, temperature));
    uint32_t begin = 0, i = 0;
    for (uint32_t c = 0; rest >= s->chunk_mass[c]; c++) {
        rest -= s->chunk_mass[c];
        begin += CHUNK;
        assert(begin < l.count);
    }
    float e[CHUNK];
    uint32_t count = l.count - begin < CHUNK ? l.count - begin : CHUNK;
    exponentials(s, e, l.logit + begin, count, temperature);
    while (rest >= mass_of(s, e[i])) {
        rest -= mass_of(s, e[i++]);
        assert(i < count);
    }
    return l.id ? l.id[begin + i] : begin + i;
}

static bool penalizes(const brim__sample_params *params, uint32_t recent_count)
{
    float p = params->penalty;
    return p > 0 && p <= FLT_MAX && p != 1 && params->penalty_last && recent_count;
}

uint32_t brim__sample(const brim__kernels *k, const float *logits, uint32_t vocab,
                      const brim__sample_params *params, const uint32_t *recent,
                      uint32_t recent_count, uint32_t position, void *scratch)
{
    if (vocab == 0)
        return 0;
    uint8_t *room = (uint8_t *)(((uintptr_t)scratch + 63) / 64 * 64);
    if (penalizes(params, recent_count)) {
        float *penalized = take(&room, vocab * sizeof(float));
        penalize(penalized, logits, vocab, params, recent, recent_count);
        logits = penalized;
    }
    if (!(params->temperature > 0) || params->top_k == 1)
        return k->argmax(logits, vocab);

    sampler s = {.k = k,
                 .params = params,
                 .logits = logits,
                 .vocab = vocab,
                 .block_count = (uint32_t)pieces(vocab, BLOCK),
                 .mass_bits = MASS_BITS_MAX};
    while ((uint64_t)vocab << s.mass_bits >> 62)
        s.mass_bits--;
    s.mass_unit = (float)(UINT64_C(1) << s.mass_bits);
    s.bucket = take(&room, BUCKET_COUNT * sizeof(uint64_t));
    s.block_max = take(&room, s.block_count * sizeof(float));
    s.chunk_mass = take(&room, pieces(vocab, CHUNK) * sizeof(uint64_t));
    s.logit = take(&room, vocab * sizeof(float));
    s.id = take(&room, vocab * sizeof(uint32_t));
    s.mass = take(&room, vocab * sizeof(uint64_t));
    find_maxima(&s);
    if (s.max == -INFINITY) /* nothing to draw from */
        return k->argmax(logits, vocab);
    return draw(&s, filter(&s), position);
}
