/* sample.cuh: the choice of a token by 256 threads of one block; to the bit what sample.c chooses
 * (sample.h has the meaning). The common subset of C and CUDA: a test runs it on the host. The
 * includer has ptx.cuh.
 *
 * How it is fast: reading the logits takes one multiprocessor several microseconds, the maxima of
 * the tiles of 8 that the output product leaves take one. The k-th largest of 1,024 maxima of
 * groups of tiles is a lower bound of the k-th largest logit; a histogram finds its bucket. Only
 * tiles that reach it are read, some hundred candidates are ranked by counting, one thread has each
 * of the k best, and all else happens among these (the shortlist). Top-p and min-p without top-k
 * work on the 256 best, and are done if those turn out to be enough. Recent tokens' logits differ
 * by the penalty: their tiles' maxima are stale, are left out, and taken anew by one thread a tile.
 *
 * What a shortlist can't do, sample_all() does by passes over all logits: radix descents for the
 * cuts, a descent over segments for the draw. Sums of masses are integers, so the order in which
 * threads add is of no matter.
 *
 * Every thread takes the same way at every barrier and every operation of a warp. */
#ifndef BRIM_SAMPLE_CUH
#define BRIM_SAMPLE_CUH

#include <assert.h>
#include <stdint.h>

#include "kernels/exp_constants.h"

#ifndef SAMPLE_BARRIER
#define SAMPLE_BARRIER() asm volatile("bar.sync 1,256;" ::: "memory")
#define SAMPLE_UNROLL _Pragma("unroll")
#define SAMPLE_ROLLED _Pragma("unroll 1")
#endif

/* As brim__sample_params of sample.h. */
typedef struct brim_sample_params {
    float temperature, top_p, min_p, penalty;
    uint32_t top_k, penalty_last;
    uint64_t seed;
    uint32_t max_position, flags;
} brim_sample_params;

/* Other multiprocessors may have written what is pointed to, so nothing is read through the L1. */
typedef struct brim_sample_in {
    const float *logits;
    uint32_t vocab;        /* below 2^31 */
    const float *tile_max; /* of 8 consecutive logits each, NaN ignored; -infinity if all are NaN */
    brim_sample_params params;
    const uint32_t *recent;
    uint32_t recent_count, position;
    void *scratch; /* as brim__sample() needs it, and 64 bytes */
} brim_sample_in;

enum {
    SAMPLE_THREADS = 256,
    SAMPLE_WARPS = 8,
    SAMPLE_SHORT = 256,      /* tokens of a shortlist: one a thread */
    SAMPLE_CANDIDATES = 768, /* that are ranked for it */
    SAMPLE_TILES = 1024,     /* that they come from */
    SAMPLE_RECENT = 256,     /* a tile each, one a thread */
    SAMPLE_MARKS = 1032,     /* words of a bit for a tile each */
    SAMPLE_BUCKETS = 256,
    SAMPLE_BATCH = 8, /* loads of 16 bytes in flight; more need registers that aren't there */
    SAMPLE_LAST = 1024,
};
#define SAMPLE_NONE 0xffffffffu
#define SAMPLE_NAN __uint_as_float(0x7fc00000u)
#define SAMPLE_LEAST __uint_as_float(0xff800000u) /* -infinity */
#define SAMPLE_FLT_MAX __uint_as_float(0x7f7fffffu)
#define SAMPLE_LEAST_KEY 0x007fffffu

typedef unsigned long long sample_u64;

typedef struct sample_entry {
    sample_u64 mass;
    uint32_t id, pad;
} sample_entry;

typedef struct sample_shared {
    sample_u64 warp_sum[2][SAMPLE_WARPS];
    sample_u64 warp_peak[2][SAMPLE_WARPS];
    uint32_t warp_low[SAMPLE_WARPS];
    uint32_t tile_count, candidate_count, token, pad;
    sample_u64 found[4]; /* what one thread tells the others */
    sample_u64 random;
    union {
        struct {
            uint32_t recent[SAMPLE_RECENT], mark[SAMPLE_MARKS], histogram[SAMPLE_BUCKETS];
        } a;
        sample_u64 candidate[SAMPLE_CANDIDATES]; /* key, ~id */
        sample_entry entry[SAMPLE_SHORT];
        struct {
            uint32_t low[SAMPLE_BUCKETS], high[SAMPLE_BUCKETS];
        } bucket;
        struct {
            sample_u64 mass[SAMPLE_THREADS];
            uint32_t ties[SAMPLE_THREADS];
        } segment;
    } u;
    union {
        uint32_t tile[SAMPLE_TILES]; /* and in the upper byte which of its logits are recent */
        sample_u64 sorted[SAMPLE_SHORT];
    } v;
} sample_shared;

static_assert(sizeof(sample_shared) <= 12288, "what the caller gives");

/* What a thread knows. */
typedef struct sampler {
    brim_sample_in in;
    sample_shared *s;
    int thread, lane, warp, turn;
    uint32_t tiles, recent_count; /* recent tokens that the penalty changes */
    uint32_t own_tile, own_mask;  /* a stale tile that this thread looks after, which are recent */
    float own_max;
    uint32_t skip, fours; /* see sample_seen; maxima of the first four before the row's */
    float max;            /* of all logits, at most FLT_MAX */
    float bound;          /* logits below are not looked at */
    int mass_bits;
    bool marked;     /* some maxima are not what they seem */
    bool restricted; /* some logits that have mass may be below the bound */
} sampler;

/* ---- numbers ---- */

/* Ascends as logits do; the two zeros share one; 0 for NaN. */
FN uint32_t sample_key(float x)
{
    uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));
    return x == x ? bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u) : 0;
}

FN float sample_of_key(uint32_t key)
{
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

FN float sample_penalized(float x, float penalty)
{
    return x > 0 ? __fdiv_rn(x, penalty) : __fmul_rn(x, penalty);
}

/* exp(d) * 2^mass_bits cut to an integer, d <= 0 or NaN. The exp of kernels.h: adding 1.5 * 2^23
 * rounds to an integer, which the low bits then hold. Below -32 the mass is 0 anyway, and above,
 * scaling by a power of two is exact. */
FN sample_u64 sample_exp_mass(float d, int mass_bits)
{
    d = d > -32.0f ? d : -32.0f;
    float shifted = __fadd_rn(__fmul_rn(d, BRIM__EXP_LOG2E), 12582912.0f);
    float k = __fadd_rn(shifted, -12582912.0f);
    float r = __fmaf_rn(k, -BRIM__EXP_LN2_HI, d);
    r = __fmaf_rn(k, -BRIM__EXP_LN2_LO, r);
    float p = __fmaf_rn(BRIM__EXP_C6, r, BRIM__EXP_C5);
    p = __fmaf_rn(p, r, BRIM__EXP_C4);
    p = __fmaf_rn(p, r, BRIM__EXP_C3);
    p = __fmaf_rn(p, r, BRIM__EXP_C2);
    p = __fmaf_rn(p, r, 1.0f);
    p = __fmaf_rn(p, r, 1.0f);
    uint32_t scale = (__float_as_uint(shifted) << 23) + ((uint32_t)(127 + mass_bits) << 23);
    return (sample_u64)__float2ll_rz(__fmul_rn(p, __uint_as_float(scale)));
}

FN float sample_depth(const sampler *z, float x)
{
    float d = __fadd_rn(x, -z->max);
    return d > 0 ? 0.0f : d; /* +infinity counts as the largest */
}

/* The mass at temperature 1. */
FN sample_u64 sample_mass(const sampler *z, float x)
{
    return sample_exp_mass(sample_depth(z, x), z->mass_bits);
}

FN sample_u64 sample_tempered(const sampler *z, float x)
{
    return sample_exp_mass(__fdiv_rn(sample_depth(z, x), z->in.params.temperature), z->mass_bits);
}

FN sample_u64 sample_least_mass(const sampler *z)
{
    float p = z->in.params.min_p;
    if (!(p > 0))
        return 0;
    float unit = __uint_as_float((uint32_t)(127 + z->mass_bits) << 23);
    return (sample_u64)__float2ll_rz(__fmul_rn(p < 1 ? p : 1.0f, unit));
}

/* The mass that the likeliest tokens must reach: ceil(total * top_p). */
FN sample_u64 sample_target(float top_p, sample_u64 total)
{
    sample_u64 share = top_p > 0 ? (sample_u64)((double)top_p * 9007199254740992.0) : 0;
    sample_u64 low = total * share, high = __umul64hi(total, share);
    sample_u64 up = low + (((sample_u64)1 << 53) - 1);
    high += up < low;
    sample_u64 target = high << 11 | up >> 53;
    return target ? target : 1;
}

/* 64 random bits: Philox4x32-10, as base/rng.h has it, of stream 0. */
FN sample_u64 sample_random(uint64_t seed, uint32_t index)
{
    uint32_t c0 = index, c1 = 0, c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    SAMPLE_ROLLED
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (sample_u64)c1 << 32 | c0;
}

/* ---- all threads together ---- */

/* The sum of what the threads before have, and that of all. */
FN sample_u64 sample_scan(sampler *z, sample_u64 v, sample_u64 *total)
{
    sample_u64 *warp_sum = z->s->warp_sum[z->turn];
    z->turn ^= 1; /* the next scan's barrier lies between two uses */
    sample_u64 sum = v, before = 0, all = 0;
    for (int d = 1; d < 32; d *= 2) {
        sample_u64 below = __shfl_up_sync(~0u, sum, d);
        sum += z->lane >= d ? below : 0;
    }
    if (z->lane == 31)
        warp_sum[z->warp] = sum;
    SAMPLE_BARRIER();
    for (int w = 0; w < SAMPLE_WARPS; w++) {
        sample_u64 here = warp_sum[w];
        before += w < z->warp ? here : 0;
        all += here;
    }
    *total = all;
    return before + sum - v;
}

/* The largest key of all threads, and the least index of those that have it (upper, ~lower). */
FN sample_u64 sample_peak(sampler *z, uint32_t key, uint32_t index)
{
    sample_u64 *warp_peak = z->s->warp_peak[z->turn];
    z->turn ^= 1;
    uint32_t most = __reduce_max_sync(~0u, key);
    uint32_t first = __reduce_max_sync(~0u, key == most ? ~index : 0);
    if (z->lane == 0)
        warp_peak[z->warp] = (sample_u64)most << 32 | first;
    SAMPLE_BARRIER();
    sample_u64 peak = 0;
    for (int w = 0; w < SAMPLE_WARPS; w++)
        peak = warp_peak[w] > peak ? warp_peak[w] : peak;
    return peak;
}

FN void sample_set_max(sampler *z, uint32_t key)
{
    float max = sample_of_key(key), t = z->in.params.temperature;
    z->max = max > SAMPLE_FLT_MAX ? SAMPLE_FLT_MAX : max;
    z->bound = __fadd_rn(z->max, -__fmul_rn(30.0f, t > 1 ? t : 1.0f)); /* no mass is below */
    z->bound = fmaxf(z->bound, -SAMPLE_FLT_MAX);
}

FN void sample_begin(sampler *z, const brim_sample_in *in, char *shared, int thread)
{
    z->in = *in;
    z->s = (sample_shared *)shared;
    z->thread = thread;
    z->lane = thread % 32;
    z->warp = thread / 32;
    z->turn = 0;
    z->tiles = in->vocab / 8 + (in->vocab % 8 != 0);
    float p = in->params.penalty;
    bool penalizes = p > 0 && p <= SAMPLE_FLT_MAX && p != 1.0f;
    uint32_t last = in->params.penalty_last;
    z->recent_count = !penalizes ? 0 : in->recent_count < last ? in->recent_count : last;
    z->in.recent = in->recent + (in->recent_count - z->recent_count);
    z->own_tile = SAMPLE_NONE;
    z->own_mask = 0;
    z->own_max = SAMPLE_LEAST;
    z->skip = (uint32_t)((uintptr_t)in->tile_max / 4 % 4);
    z->fours = (z->tiles + z->skip + 3) / 4;
    z->marked = z->recent_count || z->skip || z->tiles % 4;
    z->restricted = false;
    z->mass_bits = 40;
    while ((uint64_t)in->vocab << z->mass_bits >> 62)
        z->mass_bits--;
}

/* ---- all logits: right for any parameters ---- */

/* 16 logits of a thread, NaN where there is none. Loads are of aligned 16 bytes, so a row that does
 * not begin at such is read from a little before. Returns the id of the first; sample_id() has the
 * others. */
FN uint32_t sample_load(float x[16], const float *values, uint32_t count, uint32_t base, int thread)
{
    uint32_t skip = (uint32_t)((uintptr_t)values / 4 % 4);
    const float4 *from = (const float4 *)(values - skip) + base / 4 + thread;
    uint32_t first = base + 4 * (uint32_t)thread - skip;
    SAMPLE_UNROLL
    for (uint32_t n = 0; n < 16; n += 4) {
        float4 v = {SAMPLE_NAN, SAMPLE_NAN, SAMPLE_NAN, SAMPLE_NAN};
        if (base + 4 * (uint32_t)thread + SAMPLE_THREADS * n < count + skip)
            v = __ldcg(from + SAMPLE_THREADS * (n / 4));
        x[n] = v.x;
        x[n + 1] = v.y;
        x[n + 2] = v.z;
        x[n + 3] = v.w;
    }
    SAMPLE_UNROLL
    for (uint32_t n = 0; n < 16; n++)
        if (first + SAMPLE_THREADS * (n / 4 * 4) + n % 4 >= count)
            x[n] = SAMPLE_NAN;
    return first;
}

/* Where loops of 4,096 at a time end. */
FN uint32_t sample_end(const float *values, uint32_t count)
{
    return count + (uint32_t)((uintptr_t)values / 4 % 4);
}

FN uint32_t sample_id(uint32_t first, uint32_t n)
{
    return first + SAMPLE_THREADS * (n / 4 * 4) + n % 4;
}

/* A copy of the logits with the penalty. */
FN const float *sample_copy(sampler *z)
{
    float *out = (float *)(((uintptr_t)z->in.scratch + 63) / 64 * 64), x[16];
    uint32_t count = z->in.vocab, end = sample_end(z->in.logits, count);
    SAMPLE_ROLLED
    for (uint32_t base = 0; base < end; base += 4096) {
        uint32_t first = sample_load(x, z->in.logits, count, base, z->thread);
        SAMPLE_UNROLL
        for (uint32_t n = 0; n < 16; n++) {
            uint32_t id = sample_id(first, n);
            if (id < count)
                out[id] = x[n];
        }
    }
    SAMPLE_BARRIER();
    for (uint32_t i = (uint32_t)z->thread; i < z->recent_count; i += SAMPLE_THREADS) {
        uint32_t id = __ldcg(z->in.recent + i);
        if (id < count)
            out[id] = sample_penalized(__ldcg(z->in.logits + id), z->in.params.penalty);
    }
    SAMPLE_BARRIER();
    return out;
}

/* The largest key and the least id that has it. */
FN sample_u64 sample_argmax(sampler *z, const float *values)
{
    float x[16];
    uint32_t count = z->in.vocab, end = sample_end(values, count), most = 0, at = 0;
    SAMPLE_ROLLED
    for (uint32_t base = 0; base < end; base += 4096) {
        uint32_t first = sample_load(x, values, count, base, z->thread);
        SAMPLE_UNROLL
        for (uint32_t n = 0; n < 16; n++) {
            uint32_t key = sample_key(x[n]); /* a thread's ids ascend */
            if (key > most) {
                most = key;
                at = sample_id(first, n);
            }
        }
    }
    return sample_peak(z, most, at);
}

/* Keeps the logits above `key`, and the first `ties` of those equal to it. */
typedef struct sample_cut {
    uint32_t key;
    uint32_t ties;
} sample_cut;

/* This thread's part of the mass of all above a cut, at temperature 1. */
FN sample_u64 sample_sum(sampler *z, const float *values, sample_cut cut)
{
    float x[16];
    sample_u64 sum = 0;
    uint32_t end = sample_end(values, z->in.vocab);
    SAMPLE_ROLLED
    for (uint32_t base = 0; base < end; base += 4096) {
        sample_load(x, values, z->in.vocab, base, z->thread);
        SAMPLE_UNROLL
        for (uint32_t n = 0; n < 16; n++)
            sum += cut.key && sample_key(x[n]) <= cut.key ? 0 : sample_mass(z, x[n]);
    }
    return sum;
}

/* Exact, with atomics of 32 bits: the others are loops on many architectures. */
FN void sample_add(sample_shared *s, uint32_t bucket, sample_u64 v)
{
    uint32_t low = (uint32_t)v, old = 0;
    if (low)
        old = atomicAdd(&s->u.bucket.low[bucket], low);
    uint32_t high = (uint32_t)(v >> 32) + (old + low < old);
    if (high)
        atomicAdd(&s->u.bucket.high[bucket], high);
}

/* One pass: adds what each token of the range whose upper bits are `prefix` weighs to the bucket of
 * its next 8 bits. */
FN void sample_fill(sampler *z, const float *values, bool masses, sample_cut in, uint32_t prefix,
                    int shift)
{
    float x[16];
    uint32_t end = sample_end(values, z->in.vocab);
    SAMPLE_ROLLED
    for (uint32_t base = 0; base < end; base += 4096) {
        sample_load(x, values, z->in.vocab, base, z->thread);
        SAMPLE_UNROLL
        for (uint32_t n = 0; n < 16; n++) {
            uint32_t key = sample_key(x[n]);
            if (key > in.key && (uint64_t)key >> (shift + 8) == prefix)
                sample_add(z->s, key >> shift & 255, masses ? sample_mass(z, x[n]) : 1);
        }
    }
    if (z->thread == 0 && in.ties && (uint64_t)in.key >> (shift + 8) == prefix)
        sample_add(z->s, in.key >> shift & 255,
                   in.ties * (masses ? sample_mass(z, sample_of_key(in.key)) : 1));
}

/* The fewest largest logits of those in `in` that weigh `target` or more: their mass, or one each.
 * `in` itself if all weigh less. */
FN sample_cut sample_find_cut(sampler *z, const float *values, bool masses, sample_cut in,
                              sample_u64 target)
{
    sample_shared *s = z->s;
    uint32_t prefix = 0;
    SAMPLE_ROLLED
    for (int shift = 24; shift >= 0; shift -= 8) {
        s->u.bucket.low[z->thread] = s->u.bucket.high[z->thread] = 0;
        SAMPLE_BARRIER();
        if (z->thread == 0)
            s->found[0] = SAMPLE_NONE;
        sample_fill(z, values, masses, in, prefix, shift);
        SAMPLE_BARRIER();
        uint32_t digit = (uint32_t)(SAMPLE_BUCKETS - 1 - z->thread);
        sample_u64 here = (sample_u64)s->u.bucket.high[digit] << 32 | s->u.bucket.low[digit], all;
        sample_u64 above = sample_scan(z, here, &all);
        if (above < target && target <= above + here) {
            s->found[0] = digit;
            s->found[1] = target - above;
        }
        SAMPLE_BARRIER();
        if (s->found[0] == SAMPLE_NONE)
            return in;
        prefix = prefix << 8 | (uint32_t)s->found[0];
        target = s->found[1];
    }
    sample_cut out = {prefix, (uint32_t)target};
    if (masses) { /* not 0: some of it was missing */
        sample_u64 each = sample_mass(z, sample_of_key(prefix));
        out.ties = (uint32_t)((target + each - 1) / each);
    }
    return out;
}

/* A draw goes down over segments of the vocabulary: how much is left to walk, and how many of the
 * tokens equal to the cut count from here on. */
typedef struct sample_walk {
    uint32_t begin, count, ties;
    sample_u64 rest, least, tie_mass;
    sample_cut cut;
    bool begun;
} sample_walk;

/* What a logit weighs in the draw, but for those equal to the cut, which are counted. */
FN sample_u64 sample_weigh(const sampler *z, const sample_walk *w, float x, uint32_t *ties)
{
    uint32_t key = sample_key(x);
    *ties += key == w->cut.key && w->cut.ties;
    if (key <= w->cut.key || (w->least && sample_mass(z, x) < w->least))
        return 0;
    return sample_tempered(z, x);
}

/* Each thread has a piece, in order: which one does the walk end in? Tells all of it where, how
 * long, what is left to walk and how many ties are left. */
FN void sample_choose(sampler *z, sample_walk *w, sample_u64 mass, uint32_t ties, uint32_t piece)
{
    sample_shared *s = z->s;
    sample_u64 all_ties, total, ties_before = sample_scan(z, ties, &all_ties);
    uint32_t left = w->ties > ties_before ? w->ties - (uint32_t)ties_before : 0;
    mass += (left < ties ? left : ties) * w->tie_mass;
    if (z->thread == 0) /* were there nothing to draw from */
        s->found[0] = s->found[1] = s->found[2] = 0;
    sample_u64 before = sample_scan(z, mass, &total);
    if (!w->begun)
        w->rest = __umul64hi(sample_random(z->in.params.seed, z->in.position), total);
    w->begun = true;
    if (before <= w->rest && w->rest < before + mass) {
        s->found[0] = (uint32_t)z->thread;
        s->found[1] = w->rest - before;
        s->found[2] = left;
    }
    SAMPLE_BARRIER();
    uint32_t skipped = (uint32_t)s->found[0] * piece;
    w->begin += skipped;
    w->count = w->count - skipped < piece ? w->count - skipped : piece;
    w->rest = s->found[1];
    w->ties = (uint32_t)s->found[2];
}

/* One step down: from a range to a 256th of it, each warp weighing 32 pieces. */
FN void sample_descend(sampler *z, const float *values, sample_walk *w)
{
    sample_shared *s = z->s;
    uint32_t piece = (w->count + SAMPLE_THREADS * 32 - 1) / (SAMPLE_THREADS * 32) * 32;
    SAMPLE_ROLLED
    for (int n = 0; n < 32; n++) {
        uint64_t from = (uint64_t)(32 * z->warp + n) * piece;
        sample_u64 mass = 0;
        uint32_t ties = 0, size = from >= w->count          ? 0
                                  : w->count - from < piece ? w->count - (uint32_t)from
                                                            : piece;
        const float *x = values + w->begin + (size ? from : 0);
        for (uint32_t i = 0; i < size; i += 32 * 8) {
            float v[8];
            SAMPLE_UNROLL
            for (uint32_t j = 0; j < 8; j++) {
                uint32_t at = i + 32 * j + (uint32_t)z->lane;
                v[j] = at < size ? __ldcg(x + at) : SAMPLE_NAN;
            }
            SAMPLE_UNROLL
            for (uint32_t j = 0; j < 8; j++)
                mass += sample_weigh(z, w, v[j], &ties);
        }
        for (int d = 16; d; d /= 2)
            mass += __shfl_xor_sync(~0u, mass, d);
        ties = __reduce_add_sync(~0u, ties);
        if (z->lane == 0) {
            s->u.segment.mass[32 * z->warp + n] = mass;
            s->u.segment.ties[32 * z->warp + n] = ties;
        }
    }
    SAMPLE_BARRIER();
    sample_choose(z, w, s->u.segment.mass[z->thread], s->u.segment.ties[z->thread], piece);
}

FN uint32_t sample_draw_all(sampler *z, const float *values, sample_cut cut)
{
    sample_walk w = {0, z->in.vocab, cut.ties, 0, sample_least_mass(z), 0, cut, false};
    float tie = sample_of_key(cut.key);
    if (cut.ties && sample_mass(z, tie) >= w.least)
        w.tie_mass = sample_tempered(z, tie);
    while (w.count > SAMPLE_LAST)
        sample_descend(z, values, &w);
    /* Four tokens a thread, then one of the four. */
    float x[4];
    sample_u64 mass = 0;
    uint32_t ties = 0, i = 0, tied;
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t at = 4 * (uint32_t)z->thread + j;
        x[j] = at < w.count ? __ldcg(values + w.begin + at) : SAMPLE_NAN;
        mass += sample_weigh(z, &w, x[j], &ties);
    }
    sample_choose(z, &w, mass, ties, 4);
    for (; i < 3; i++) {
        tied = 0;
        mass = sample_weigh(z, &w, i < w.count ? __ldcg(values + w.begin + i) : SAMPLE_NAN, &tied);
        tied = tied && w.ties;
        mass += tied ? w.tie_mass : 0;
        if (w.rest < mass)
            break;
        w.rest -= mass;
        w.ties -= tied;
    }
    return w.begin + (i < w.count ? i : 0);
}

static __device__ __noinline__ uint32_t sample_all(const brim_sample_in *in, char *shared,
                                                   int thread)
{
    sampler sampler_of_thread, *z = &sampler_of_thread;
    sample_begin(z, in, shared, thread);
    const brim_sample_params *p = &z->in.params;
    const float *values = z->recent_count ? sample_copy(z) : z->in.logits;
    sample_u64 peak = sample_argmax(z, values);
    uint32_t key = (uint32_t)(peak >> 32);
    if (key <= SAMPLE_LEAST_KEY || !(p->temperature > 0) || p->top_k == 1)
        return key ? ~(uint32_t)peak : 0;
    sample_set_max(z, key);
    sample_cut cut = {0, 0};
    if (p->top_k && p->top_k < z->in.vocab)
        cut = sample_find_cut(z, values, false, cut, p->top_k);
    if (p->top_p < 1) {
        sample_u64 total, mass = sample_sum(z, values, cut);
        if (thread == 0 && cut.ties)
            mass += cut.ties * sample_mass(z, sample_of_key(cut.key));
        sample_scan(z, mass, &total);
        cut = sample_find_cut(z, values, true, cut, sample_target(p->top_p, total));
    }
    return sample_draw_all(z, values, cut);
}

/* ---- the maxima of tiles ---- */

/* What a thread has seen of them. Four maxima that lie in 16 aligned bytes are a four, number 0
 * being that of the first tile. */
typedef struct sample_seen {
    float most[4], best; /* of four groups of tiles; of all of them */
    uint32_t four;       /* the first that has the largest */
} sample_seen;

FN void sample_mark_tile(const sampler *z, uint32_t tile)
{
    uint32_t i = tile + z->skip;
    atomicOr(&z->s->u.a.mark[i / 32], 1u << i % 32);
}

/* Marks what lies in a row's fours, but isn't the row's. */
FN void sample_mark_edges(sampler *z)
{
    if ((uint32_t)z->thread < z->skip)
        sample_mark_tile(z, (uint32_t)z->thread - z->skip);
    if ((uint32_t)z->thread < 4 * z->fours - z->skip - z->tiles)
        sample_mark_tile(z, z->tiles + (uint32_t)z->thread);
}

/* Marks the tiles of recent tokens, whose maxima are stale. One thread takes over a tile. */
FN void sample_mark_recent(sampler *z)
{
    sample_shared *s = z->s;
    uint32_t i = (uint32_t)z->thread, id = s->u.a.recent[i], tile = id / 8, mask = 0;
    if (id == SAMPLE_NONE)
        return;
    for (uint32_t j = 0; j < z->recent_count; j++) {
        uint32_t other = s->u.a.recent[j];
        if (other / 8 == tile) {
            if (j < i)
                return;
            mask |= 1u << other % 8;
        }
    }
    z->own_tile = tile;
    z->own_mask = mask;
    sample_mark_tile(z, tile);
    float x[8];
    SAMPLE_UNROLL
    for (uint32_t n = 0; n < 8; n++)
        x[n] = 8 * tile + n < z->in.vocab ? __ldcg(z->in.logits + 8 * tile + n) : SAMPLE_NAN;
    SAMPLE_UNROLL
    for (uint32_t n = 0; n < 8; n++) {
        if (mask >> n & 1)
            x[n] = sample_penalized(x[n], z->in.params.penalty);
        z->own_max = fmaxf(z->own_max, x[n]); /* NaN never wins */
    }
}

FN void sample_mark(sampler *z)
{
    sample_shared *s = z->s;
    uint32_t i = (uint32_t)z->thread;
    uint32_t id = i < z->recent_count ? __ldcg(z->in.recent + i) : SAMPLE_NONE;
    s->u.a.recent[i] = id < z->in.vocab ? id : SAMPLE_NONE;
    for (uint32_t n = i; n < (z->fours + 7) / 8; n += SAMPLE_THREADS)
        s->u.a.mark[n] = 0;
    SAMPLE_BARRIER();
    sample_mark_edges(z);
    sample_mark_recent(z);
    SAMPLE_BARRIER();
}

/* Bits of those of a four that are not what they seem. */
FN uint32_t sample_marks(const sampler *z, uint32_t four)
{
    return z->s->u.a.mark[four / 8] >> four % 8 * 4 & 15;
}

/* A batch of fours, -infinity where there is none. All loads are on their way before one is looked
 * at. */
FN void sample_take(const sampler *z, float4 v[SAMPLE_BATCH], uint32_t base)
{
    uint32_t first = base + (uint32_t)z->thread, left = first < z->fours ? z->fours - first : 0;
    const float4 *from = (const float4 *)(z->in.tile_max - z->skip) + first;
    SAMPLE_UNROLL
    for (uint32_t n = 0; n < SAMPLE_BATCH; n++) {
        v[n].x = v[n].y = v[n].z = v[n].w = SAMPLE_LEAST;
        if (left > SAMPLE_THREADS * n)
            v[n] = __ldcg(from + SAMPLE_THREADS * n);
    }
    if (!z->marked)
        return;
    /* The threads' fours of one turn are 32 words of marks. */
    const uint32_t *mark = z->s->u.a.mark + first / 8;
    SAMPLE_UNROLL
    for (uint32_t n = 0; n < SAMPLE_BATCH; n++)
        if (left > SAMPLE_THREADS * n) {
            uint32_t marks = mark[SAMPLE_THREADS / 8 * n] >> first % 8 * 4 & 15;
            v[n].x = marks & 1 ? SAMPLE_LEAST : v[n].x;
            v[n].y = marks & 2 ? SAMPLE_LEAST : v[n].y;
            v[n].z = marks & 4 ? SAMPLE_LEAST : v[n].z;
            v[n].w = marks & 8 ? SAMPLE_LEAST : v[n].w;
        }
}

FN void sample_survey(const sampler *z, sample_seen *g)
{
    float4 v[SAMPLE_BATCH];
    g->most[0] = g->most[1] = g->most[2] = g->most[3] = g->best = SAMPLE_LEAST;
    g->four = SAMPLE_NONE;
    SAMPLE_ROLLED
    for (uint32_t base = 0; base < z->fours; base += SAMPLE_THREADS * SAMPLE_BATCH) {
        sample_take(z, v, base);
        SAMPLE_UNROLL
        for (uint32_t n = 0; n < SAMPLE_BATCH; n++) {
            g->most[0] = fmaxf(g->most[0], v[n].x);
            g->most[1] = fmaxf(g->most[1], v[n].y);
            g->most[2] = fmaxf(g->most[2], v[n].z);
            g->most[3] = fmaxf(g->most[3], v[n].w);
            float best = fmaxf(fmaxf(v[n].x, v[n].y), fmaxf(v[n].z, v[n].w));
            if (best > g->best) {
                g->best = best;
                g->four = base + (uint32_t)z->thread + SAMPLE_THREADS * n;
            }
        }
    }
    if (z->own_mask) {
        uint32_t four = (z->own_tile + z->skip) / 4;
        if (z->own_max > g->best || (z->own_max == g->best && four < g->four)) {
            g->best = z->own_max;
            g->four = four;
        }
        g->most[0] = fmaxf(g->most[0], z->own_max);
    }
}

/* The lowest of the 32 tokens of four tiles whose logit is `most`. Each warp finds it. */
FN uint32_t sample_lowest(const sampler *z, uint32_t four, float most)
{
    uint32_t id = four * 32 - 8 * z->skip + (uint32_t)z->lane;
    float x = id < z->in.vocab ? __ldcg(z->in.logits + id) : SAMPLE_NAN;
    if (z->marked && sample_marks(z, four)) {
        bool recent = false;
        for (uint32_t j = 0; j < z->recent_count; j++)
            recent = recent || z->s->u.a.recent[j] == id;
        if (recent)
            x = sample_penalized(x, z->in.params.penalty);
    }
    uint32_t lanes = __ballot_sync(~0u, x == most);
    return lanes ? four * 32 - 8 * z->skip + (uint32_t)__ffs((int)lanes) - 1 : 0;
}

/* ---- the shortlist ---- */

/* Leaves the least of the groups' maxima for sample_find_bound(); a barrier follows. */
FN void sample_leave_low(sampler *z, const sample_seen *g)
{
    uint32_t low = 0; /* upside down */
    SAMPLE_UNROLL
    for (int c = 0; c < 4; c++) {
        uint32_t key = g->most[c] > SAMPLE_LEAST ? ~sample_key(g->most[c]) : 0;
        low = key > low ? key : low;
    }
    low = __reduce_max_sync(~0u, low);
    if (z->lane == 0)
        z->s->warp_low[z->warp] = low;
}

FN uint32_t sample_bucket(float max, float scale, float x)
{
    float depth = x < max ? __fadd_rn(max, -x) : 0.0f;
    return (uint32_t)fminf(__fmul_rn(depth, scale), SAMPLE_BUCKETS - 1);
}

/* The bucket of the k-th largest of the counted, and none if there are fewer. Each warp finds it, a
 * thread having eight buckets. */
FN uint32_t sample_kth_bucket(const sampler *z, uint32_t k)
{
    const uint32_t *histogram = z->s->u.a.histogram;
    uint32_t bucket = 8 * (uint32_t)z->lane, here = 0;
    SAMPLE_UNROLL
    for (uint32_t n = 0; n < 8; n++)
        here += histogram[bucket + n];
    uint32_t sum = here;
    for (int d = 1; d < 32; d *= 2) {
        uint32_t below = __shfl_up_sync(~0u, sum, d);
        sum += z->lane >= d ? below : 0;
    }
    uint32_t before = sum - here;
    bool found = before < k && k <= sum;
    SAMPLE_ROLLED
    while (found && (before += histogram[bucket]) < k)
        bucket++;
    uint32_t lanes = __ballot_sync(~0u, found);
    bucket = __shfl_sync(~0u, bucket, lanes ? __ffs((int)lanes) - 1 : 0);
    return lanes ? bucket : SAMPLE_NONE;
}

/* Logits below the bound are not among the k largest, or have no mass. All that fall into the first
 * buckets are at or above it: rounding is monotone, and the bound a little below the bucket's. */
FN void sample_find_bound(sampler *z, const sample_seen *g, uint32_t k)
{
    sample_shared *s = z->s;
    uint32_t low = 0;
    SAMPLE_UNROLL
    for (int w = 0; w < SAMPLE_WARPS; w++)
        low = s->warp_low[w] > low ? s->warp_low[w] : low;
    float span = fminf(__fadd_rn(z->max, -sample_of_key(~low)), __fadd_rn(z->max, -z->bound));
    float scale = span > 0 ? __fdiv_rn(SAMPLE_BUCKETS, span) : 0.0f;
    SAMPLE_UNROLL
    for (int c = 0; c < 4; c++)
        if (g->most[c] >= z->bound)
            atomicAdd(&s->u.a.histogram[sample_bucket(z->max, scale, g->most[c])], 1u);
    SAMPLE_BARRIER();
    uint32_t bucket = sample_kth_bucket(z, k);
    z->restricted = bucket != SAMPLE_NONE;
    if (bucket < SAMPLE_BUCKETS - 1) { /* the last one has no end */
        float depth = __fdiv_rn(__fmul_rn((float)(bucket + 1), 1.000002f), scale);
        z->bound = fmaxf(z->bound, __fadd_rn(z->max, -depth));
    }
}

/* Bits of those of a batch's tiles that reach the bound. */
FN uint32_t sample_reach(const sampler *z, const float4 v[SAMPLE_BATCH])
{
    uint32_t reach = 0;
    SAMPLE_UNROLL
    for (uint32_t n = 0; n < SAMPLE_BATCH; n++) {
        if (v[n].x >= z->bound)
            reach |= 1u << 4 * n;
        if (v[n].y >= z->bound)
            reach |= 2u << 4 * n;
        if (v[n].z >= z->bound)
            reach |= 4u << 4 * n;
        if (v[n].w >= z->bound)
            reach |= 8u << 4 * n;
    }
    return reach;
}

FN void sample_list_tile(sample_shared *s, uint32_t at, uint32_t tile, uint32_t mask)
{
    if (at < SAMPLE_TILES)
        s->v.tile[at] = tile | mask << 24;
}

/* Lists the tiles that reach the bound, in any order. */
FN void sample_list_tiles(sampler *z, const sample_seen *g)
{
    sample_shared *s = z->s;
    if (z->own_max >= z->bound)
        sample_list_tile(s, atomicAdd(&s->tile_count, 1u), z->own_tile, z->own_mask);
    if (g->best < z->bound)
        return;
    float4 v[SAMPLE_BATCH];
    SAMPLE_ROLLED
    for (uint32_t base = 0; base < z->fours; base += SAMPLE_THREADS * SAMPLE_BATCH) {
        sample_take(z, v, base);
        uint32_t reach = sample_reach(z, v);
        uint32_t at = reach ? atomicAdd(&s->tile_count, (uint32_t)__popc(reach)) : 0;
        SAMPLE_ROLLED
        for (; reach; reach &= reach - 1) {
            uint32_t bit = (uint32_t)__ffs((int)reach) - 1;
            uint32_t four = base + (uint32_t)z->thread + SAMPLE_THREADS * (bit / 4);
            sample_list_tile(s, at++, 4 * four + bit % 4 - z->skip, 0);
        }
    }
}

/* Lists the logits of these tiles that reach the bound, in any order. */
FN void sample_list_candidates(sampler *z)
{
    sample_shared *s = z->s;
    uint32_t count = 8 * s->tile_count;
    SAMPLE_ROLLED
    for (uint32_t base = (uint32_t)z->thread; base < count; base += 4 * SAMPLE_THREADS) {
        float x[4];
        uint32_t tile[4], n = 0;
        SAMPLE_UNROLL
        for (n = 0; n < 4; n++) {
            uint32_t i = base + SAMPLE_THREADS * n;
            tile[n] = i < count ? s->v.tile[i / 8] : 0xffffff;
            uint32_t id = (tile[n] & 0xffffff) * 8 + i % 8;
            x[n] = id < z->in.vocab ? __ldcg(z->in.logits + id) : SAMPLE_NAN;
        }
        SAMPLE_UNROLL
        for (n = 0; n < 4; n++) {
            uint32_t id = (tile[n] & 0xffffff) * 8 + base % 8;
            if (tile[n] >> 24 >> base % 8 & 1)
                x[n] = sample_penalized(x[n], z->in.params.penalty);
            if (x[n] >= z->bound) {
                uint32_t at = atomicAdd(&s->candidate_count, 1u);
                if (at < SAMPLE_CANDIDATES)
                    s->u.candidate[at] = (sample_u64)sample_key(x[n]) << 32 | (uint32_t)~id;
            }
        }
    }
}

/* Sorts by counting: a candidate's place is the number of better ones. */
FN void sample_rank(sampler *z, uint32_t count, uint32_t k)
{
    sample_shared *s = z->s;
    if (z->thread == SAMPLE_THREADS - 1) /* mostly idle */
        s->random = sample_random(z->in.params.seed, z->in.position);
    SAMPLE_ROLLED
    for (uint32_t i = (uint32_t)z->thread; i < count; i += SAMPLE_THREADS) {
        sample_u64 mine = s->u.candidate[i];
        uint32_t place = 0;
        SAMPLE_ROLLED
        for (uint32_t j = 0; j < count; j += 8) {
            SAMPLE_UNROLL
            for (uint32_t n = 0; n < 8; n++)
                place += j + n < count && s->u.candidate[j + n] > mine;
        }
        if (place < k)
            s->v.sorted[place] = mine;
    }
}

/* The draw among what the threads keep. */
FN uint32_t sample_draw_short(sampler *z, uint32_t count, uint32_t id, sample_u64 mass)
{
    sample_shared *s = z->s;
    s->u.entry[z->thread].mass = mass;
    s->u.entry[z->thread].id = id;
    if (z->thread == 0)
        s->token = id; /* were there nothing to draw from */
    SAMPLE_BARRIER();
    if ((uint32_t)z->thread < count && mass) {
        sample_u64 before = 0, total = 0;
        SAMPLE_ROLLED
        for (uint32_t j = 0; j < count; j += 4) { /* entries past the count have no mass */
            SAMPLE_UNROLL
            for (uint32_t n = 0; n < 4; n++) {
                sample_entry e = s->u.entry[j + n];
                total += e.mass;
                before += e.id < id ? e.mass : 0;
            }
        }
        sample_u64 rest = __umul64hi(s->random, total);
        if (before <= rest && rest < before + mass)
            s->token = id;
    }
    SAMPLE_BARRIER();
    return s->token;
}

/* The token, or none if the shortlist turns out too short. `whole`: the mass of all for top-p
 * without top-k. */
FN uint32_t sample_shortlist(sampler *z, const sample_seen *g, bool cuts_k, sample_u64 whole)
{
    sample_shared *s = z->s;
    const brim_sample_params *p = &z->in.params;
    uint32_t k = cuts_k ? p->top_k : SAMPLE_SHORT;
    sample_find_bound(z, g, k);
    sample_list_tiles(z, g);
    SAMPLE_BARRIER();
    if (s->tile_count > SAMPLE_TILES)
        return SAMPLE_NONE;
    sample_list_candidates(z);
    SAMPLE_BARRIER();
    uint32_t count = s->candidate_count;
    if (count > SAMPLE_CANDIDATES)
        return SAMPLE_NONE;
    sample_rank(z, count, k);
    SAMPLE_BARRIER();
    bool all = cuts_k || (!z->restricted && count <= k); /* the others have no mass */
    count = count < k ? count : k;

    bool mine = (uint32_t)z->thread < count;
    sample_u64 me = mine ? s->v.sorted[z->thread] : 0, least = sample_least_mass(z), total;
    float x = sample_of_key((uint32_t)(me >> 32));
    sample_u64 mass = mine && (p->top_p < 1 || least) ? sample_mass(z, x) : 0;
    if (p->top_p < 1) {
        sample_u64 before = sample_scan(z, mass, &total);
        sample_u64 target = sample_target(p->top_p, cuts_k ? total : whole);
        if (total < target && !all)
            return SAMPLE_NONE;
        mine = mine && before < target;
    } else if (least && !all) {
        if (sample_mass(z, sample_of_key((uint32_t)(s->v.sorted[count - 1] >> 32))) >= least)
            return SAMPLE_NONE;
    }
    mine = mine && mass >= least;
    return sample_draw_short(z, count, ~(uint32_t)me, mine ? sample_tempered(z, x) : 0);
}

/* What a thread adds to the mass of all: the recent tokens of its tile have another. */
FN sample_u64 sample_sum_recent(sampler *z)
{
    sample_u64 sum = 0;
    for (uint32_t n = 0; n < 8; n++)
        if (z->own_mask >> n & 1) {
            float x = __ldcg(z->in.logits + 8 * z->own_tile + n);
            sum += sample_mass(z, sample_penalized(x, z->in.params.penalty)) - sample_mass(z, x);
        }
    return sum;
}

/* The token, or none if it takes all logits to know it. */
FN uint32_t sample_quickly(sampler *z)
{
    sample_shared *s = z->s;
    const brim_sample_params *p = &z->in.params;
    if (z->thread == 0)
        s->tile_count = s->candidate_count = 0;
    s->u.a.histogram[z->thread] = 0;
    if (z->marked)
        sample_mark(z);
    sample_seen g;
    sample_survey(z, &g);
    sample_leave_low(z, &g);
    sample_u64 peak = sample_peak(z, sample_key(g.best), g.four);
    uint32_t key = (uint32_t)(peak >> 32);
    if (key <= SAMPLE_LEAST_KEY)
        return SAMPLE_NONE;
    if (!(p->temperature > 0) || p->top_k == 1)
        return sample_lowest(z, ~(uint32_t)peak, sample_of_key(key));
    sample_set_max(z, key);
    bool cuts_k = p->top_k && p->top_k < z->in.vocab;
    if (cuts_k ? p->top_k > SAMPLE_SHORT : !(p->top_p < 1) && !sample_least_mass(z))
        return SAMPLE_NONE;
    sample_u64 whole = 0;
    if (!cuts_k && p->top_p < 1) {
        sample_cut none = {0, 0};
        sample_scan(z, sample_sum(z, z->in.logits, none) + sample_sum_recent(z), &whole);
    }
    return sample_shortlist(z, &g, cuts_k, whole);
}

/* The token of one row, for each of the 256 threads. `shared`: 12 KiB at a multiple of 16, which
 * may be used otherwise when all threads have returned. */
static __device__ __noinline__ uint32_t brim_sample_block(const brim_sample_in *in, char *shared,
                                                          int thread)
{
    if (in->vocab == 0)
        return 0;
    sampler z;
    sample_begin(&z, in, shared, thread);
    SAMPLE_BARRIER(); /* the row before has been told */
    uint32_t token = SAMPLE_NONE;
    if (z.recent_count <= SAMPLE_RECENT && z.tiles < 1u << 23 &&
        (!z.marked || z.fours <= 8 * SAMPLE_MARKS))
        token = sample_quickly(&z);
    if (token != SAMPLE_NONE)
        return token;
    SAMPLE_BARRIER();
    return sample_all(in, shared, thread);
}

#endif
