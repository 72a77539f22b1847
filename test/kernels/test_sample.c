/* test_sample.c: the choice of a token against an oracle that sorts everything in float64, facts
 * worked out by hand, and hostile logits. Every pick here is made with every instruction set that
 * this machine has, in scratch of exactly the promised size, and must be the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/sample.h"

static const brim__sample_params plain = {
    .temperature = 1, .top_p = 1, .penalty = 1, .penalty_last = 64, .seed = 1};

/* A row of logits of exactly its size (so that the address sanitizer sees one too many), and what
 * else a choice depends on. */
typedef struct row {
    float *logits;
    uint32_t vocab;
    const uint32_t *recent;
    uint32_t recent_count, position;
    brim__sample_params params;
} row;

static uint32_t pick(const row *r)
{
    size_t size = brim__sample_scratch_bytes(r->vocab);
    uint8_t *block = malloc(size + 1);
    assert_non_null(block);
    uint32_t first = 0;
    for (int isa = 0; isa < BRIM_ISA_COUNT; isa++) {
        const brim__kernels *k = brim__kernels_get((brim_isa)isa);
        if (!k)
            continue;
        memset(block, 0xa5 + isa, size + 1); /* what scratch holds does not matter */
        uint32_t got = brim__sample(k, r->logits, r->vocab, &r->params, r->recent, r->recent_count,
                                    r->position, block + 1);
        if (isa == BRIM_ISA_SCALAR)
            first = got;
        if (got != first)
            fail_msg("%s picks %u, scalar %u (vocabulary %u, seed %llu, position %u)",
                     brim_isa_name((brim_isa)isa), got, first, r->vocab,
                     (unsigned long long)r->params.seed, r->position);
    }
    free(block);
    return first;
}

static uint32_t greedy(const row *r)
{
    row other = *r;
    other.params.temperature = 0;
    return pick(&other);
}

/* ---- the oracle ---- */

typedef struct entry {
    double x, p, tempered;
    uint32_t id;
    bool strict; /* kept also when rounding is against it */
} entry;

static int by_logit(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->x != y->x ? (x->x < y->x ? 1 : -1) : x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b)
{
    return ((const entry *)a)->id < ((const entry *)b)->id ? -1 : 1;
}

static double finite_of(double x)
{
    return x > FLT_MAX ? FLT_MAX : x;
}

static uint32_t oracle_entries(entry *e, const row *r)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < r->vocab; id++) {
        float x = r->logits[id];
        bool recent = false;
        for (uint32_t i = 0; i < r->params.penalty_last && i < r->recent_count; i++)
            recent |= r->recent[r->recent_count - 1 - i] == id;
        if (recent && x <= 0)
            x = x * r->params.penalty;
        else if (recent)
            x = x / r->params.penalty;
        if (!isnan(x))
            e[n++] = (entry){.x = x, .id = id};
    }
    qsort(e, n, sizeof *e, by_logit);
    while (n && e[0].x > -INFINITY && e[n - 1].x == -INFINITY)
        n--;
    return n;
}

/* Keeps what may be kept; `strict` marks what must be. */
static uint32_t oracle_filter(entry *e, uint32_t n, const brim__sample_params *p)
{
    const double wide = 1e-6;
    if (p->top_k && p->top_k < n)
        n = p->top_k;
    double sum = 0, before = 0;
    for (uint32_t i = 0; i < n; i++) {
        e[i].p = exp(finite_of(e[i].x) - finite_of(e[0].x));
        e[i].tempered = exp((finite_of(e[i].x) - finite_of(e[0].x)) / p->temperature);
        sum += e[i].p;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        double share = before / sum;
        before += e[i].p;
        bool off = p->top_p >= 1;
        if (i && ((!off && share > p->top_p + wide) || e[i].p < p->min_p * (1 - wide)))
            continue;
        e[i].strict = !i || ((off || share < p->top_p - wide) && e[i].p > p->min_p * (1 + wide));
        e[kept++] = e[i];
    }
    return kept;
}

/* Is the pick the token in whose interval of [0, 1) the draw falls, give or take the float
 * rounding of the masses? False when rounding decides more than that (a case that says nothing). */
static bool oracle_agrees(const row *r)
{
    const double rounding = 1e-5;
    uint32_t got = pick(r);
    entry *e = calloc(r->vocab, sizeof *e);
    assert_non_null(e);
    uint32_t n = oracle_filter(e, oracle_entries(e, r), &r->params);
    qsort(e, n, sizeof *e, by_id);
    double sum = 0, strict = 0, before = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += e[i].tempered;
        strict += e[i].strict ? e[i].tempered : 0;
    }
    double u = (double)brim__random_u64(r->params.seed, 0, r->position) * 0x1p-64;
    double slack = rounding + (sum - strict) / sum;
    bool telling = slack < 2 * rounding, found = false;
    for (uint32_t i = 0; i < n; i++) {
        double share = e[i].tempered / sum;
        if (e[i].id == got) {
            found = true;
            if (telling && (u < before - slack || u > before + share + slack))
                fail_msg("picks %u at [%.9f, %.9f), the draw is %.9f (vocabulary %u)", got, before,
                         before + share, u, r->vocab);
        }
        before += share;
    }
    if (!found)
        fail_msg("picks %u, which the filters drop (vocabulary %u)", got, r->vocab);
    free(e);
    return telling;
}

/* ---- logits ---- */

typedef enum shape {
    NORMAL, /* like a model's */
    PEAKED, /* a few far above */
    FLAT,   /* within one unit */
    EQUAL,  /* all the same */
    TWO,    /* two values, alternating */
    RISING,
    FALLING,
    ULPS,    /* neighbours in the last bits: every level of the descent decides */
    CLUSTER, /* all the large ones side by side */
    COARSE,  /* few distinct values: ties everywhere */
    HUGE_ONES,
    TINY,   /* denormals and both zeros */
    MASKED, /* most are -infinity */
    BROKEN, /* some NaN, some infinities */
    SHAPE_COUNT
} shape;

static float special(uint32_t which)
{
    static const uint32_t bits[] = {0x7fc00000, 0xffc00001, 0xff800000, 0x7f800001,
                                    0xff800000, 0x3f800000, 0x7f7fffff, 0xff7fffff};
    float x;
    memcpy(&x, &bits[which % 8], sizeof x);
    return x;
}

static float draw_logit(shape s, uint64_t seed, uint32_t i, uint32_t n)
{
    float u = brim__random_float(seed, 1, i), v = brim__random_float(seed, 2, i);
    float normal = sqrtf(-2 * logf(u + 0x1p-25f)) * cosf(6.2831853f * v);
    switch (s) {
    case NORMAL:
        return 3 * normal - 4;
    case PEAKED:
        return normal + (u < 0.001f ? 18 : 0);
    case FLAT:
        return u;
    case EQUAL:
        return -7.25f;
    case TWO:
        return i % 2 ? 1 : 2;
    case RISING:
        return 20 * (float)i / (float)n;
    case FALLING:
        return -20 * (float)i / (float)n;
    case ULPS:
        return 8 + 0x1p-20f * (float)(int)(u * 64);
    case CLUSTER:
        return i / 70 == n / 140 ? 9 + u : normal;
    case COARSE:
        return rintf(2 * normal) / 2;
    case HUGE_ONES:
        return normal * 1e38f;
    case TINY:
        return u < 0.1f ? (v < 0.5f ? 0.0f : -0.0f) : normal * 1e-40f;
    case MASKED:
        return u < 0.98f ? -INFINITY : normal;
    case BROKEN:
        return u < 0.3f ? special((uint32_t)(v * 8)) : normal;
    default:
        return 0;
    }
}

static void make_row(row *r, shape s, uint64_t seed, uint32_t vocab)
{
    *r = (row){.vocab = vocab, .logits = malloc(vocab * sizeof(float)), .params = plain};
    assert_non_null(r->logits);
    for (uint32_t i = 0; i < vocab; i++)
        r->logits[i] = draw_logit(s, seed, i, vocab);
    r->params.seed = seed;
    r->position = (uint32_t)seed % 5000;
}

static const uint32_t vocabs[] = {1, 2, 15, 16, 17, 63, 64, 65, 130, 1000, 5003};
enum { VOCAB_COUNT = sizeof vocabs / sizeof *vocabs };

static void draw_params(brim__sample_params *p, uint64_t seed)
{
    static const float temperatures[] = {1, 0.7f, 0.05f, 1.5f, 100};
    static const float top_ps[] = {1, 0.95f, 0.5f, 0.05f, 0.999999f, 0x1.fffffep-1f};
    static const float min_ps[] = {0, 0.05f, 0.5f, 1e-4f, 1};
    static const uint32_t top_ks[] = {0, 40, 2, 1, 7, 100000};
    p->temperature = temperatures[brim__random_below(seed, 3, 0, 5)];
    p->top_p = top_ps[brim__random_below(seed, 3, 1, 6)];
    p->min_p = min_ps[brim__random_below(seed, 3, 2, 8) % 5];
    p->top_k = top_ks[brim__random_below(seed, 3, 3, 6)];
    p->penalty = seed % 3 ? 1 : 1.3f;
}

static void picks_agree_with_a_sorting_oracle_on_all_shapes(void **state)
{
    (void)state;
    uint32_t told = 0, tried = 0;
    for (uint64_t seed = 0; seed < 120; seed++)
        for (int s = 0; s < SHAPE_COUNT; s++) {
            row r;
            make_row(&r, (shape)s, seed, vocabs[(seed * 7 + (uint64_t)s) % VOCAB_COUNT]);
            uint32_t recent[20];
            for (int i = 0; i < 20; i++)
                recent[i] = (uint32_t)brim__random_below(seed, 4, (uint64_t)i, r.vocab + 2);
            draw_params(&r.params, seed * SHAPE_COUNT + (uint64_t)s);
            r.params.seed = seed;
            r.recent = recent, r.recent_count = 20, r.params.penalty_last = 15;
            bool none = true;
            for (uint32_t i = 0; i < r.vocab; i++)
                none &= isnan(r.logits[i]);
            if (!none) {
                tried++;
                told += oracle_agrees(&r);
            }
            free(r.logits);
        }
    assert_true(told > tried * 9 / 10);
}

static void picks_agree_with_the_oracle_on_a_whole_vocabulary(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p, min_p;
        uint32_t top_k;
    } p[] = {{0.8f, 0.95f, 0, 40}, {1, 0.9f, 0, 0},      {1, 1, 0, 0},
             {1.2f, 1, 0.05f, 0},  {1, 0.999f, 0, 2000}, {3, 1, 0, 0}};
    static const shape s[] = {NORMAL, PEAKED, EQUAL, COARSE};
    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        for (size_t j = 0; j < sizeof s / sizeof *s; j++) {
            row r;
            make_row(&r, s[j], 100 + i, j % 2 ? 49152 : 151936);
            r.params.temperature = p[i].temperature, r.params.top_p = p[i].top_p;
            r.params.min_p = p[i].min_p, r.params.top_k = p[i].top_k;
            oracle_agrees(&r);
            free(r.logits);
        }
}

/* ---- properties ---- */

static void top_1_and_a_tiny_top_p_and_min_p_1_equal_greedy(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int s = 0; s < SHAPE_COUNT; s++) {
            row r;
            make_row(&r, (shape)s, seed, vocabs[(seed + (uint64_t)s) % VOCAB_COUNT]);
            uint32_t want = greedy(&r);
            r.params.temperature = 2;
            r.params.top_k = 1;
            assert_int_equal(pick(&r), want);
            r.params.top_k = (uint32_t)(seed % 3) * 20;
            if (r.params.top_k == 1)
                r.params.top_k = 0;
            static const float tiny[] = {1e-6f, 1e-30f, 1e-45f, 0, -1};
            for (int i = 0; i < 5 && r.vocab < 5000; i++) {
                r.params.top_p = tiny[i];
                assert_int_equal(pick(&r), want);
            }
            r.params.top_p = 1;
            r.params.temperature = 1e-45f; /* the least that is not zero */
            if (s == NORMAL || s == PEAKED)
                assert_int_equal(pick(&r), want);
            free(r.logits);
        }
}

/* The set of tokens drawn over many positions, as bits. */
static uint64_t drawn(row *r, uint32_t count)
{
    uint64_t set = 0;
    for (r->position = 0; r->position < count; r->position++)
        set |= UINT64_C(1) << pick(r);
    return set;
}

static void ties_keep_the_lower_ids(void **state)
{
    (void)state;
    float logits[10] = {1, 2, 2, -0.0f, 2, 0, 2, 2, 1, 2};
    row r = {.logits = logits, .vocab = 10, .params = plain};
    assert_int_equal(greedy(&r), 1);
    r.params.top_k = 3;
    assert_int_equal(drawn(&r, 300), 1 << 1 | 1 << 2 | 1 << 4);
    r.params.top_k = 0;
    r.params.top_p = 0.35f; /* e^2 is .144 of the whole: three of them */
    assert_int_equal(drawn(&r, 300), 1 << 1 | 1 << 2 | 1 << 4);
    for (int i = 0; i < 10; i++)
        logits[i] = i % 2 ? 0.0f : -0.0f; /* equal, as numbers */
    r.params.top_p = 0.35f;
    assert_int_equal(drawn(&r, 300), 0xf);
    r.params.top_p = 1;
    r.params.top_k = 2;
    assert_int_equal(drawn(&r, 300), 0x3);
    assert_int_equal(greedy(&r), 0);
}

static void steps_run_in_the_stated_order(void **state)
{
    (void)state;
    float logits[4] = {logf(.5f), logf(.3f), logf(.15f), logf(.05f)};
    row r = {.logits = logits, .vocab = 4, .params = plain};
    assert_int_equal(drawn(&r, 400), 0xf);
    r.params.top_p = 0.7f;
    assert_int_equal(drawn(&r, 400), 0x3);
    r.params.temperature = 100; /* top-p saw the probabilities before the temperature */
    assert_int_equal(drawn(&r, 400), 0x3);
    r.params.top_k = 2, r.params.top_p = 0.6f; /* .5 of .8 is enough: top-k came first */
    assert_int_equal(drawn(&r, 400), 0x1);
    r.params.top_k = 0, r.params.top_p = 1, r.params.min_p = 0.25f; /* .3 / .5 and .15 / .5 */
    assert_int_equal(drawn(&r, 400), 0x7);
    uint32_t recent[1] = {0}; /* .5 becomes .5 ^ 3 = .125, before everything else */
    r.recent = recent, r.recent_count = 1, r.params.penalty = 3, r.params.top_k = 2;
    assert_int_equal(drawn(&r, 400), 0x6);
}

static void penalty_counts_a_token_once_within_its_window(void **state)
{
    (void)state;
    float logits[5] = {10, 6, -1, -1.5f, 0};
    uint32_t recent[6] = {1, 0, 0, 77, 0xffffffffu, 0};
    row r = {.logits = logits, .vocab = 5, .recent = recent, .recent_count = 6, .params = plain};
    r.params.penalty = 1.5f; /* 10 / 1.5 is above 6, 10 / 1.5^2 is not */
    r.params.penalty_last = 4;
    assert_int_equal(greedy(&r), 0);
    r.params.penalty = 2;
    assert_int_equal(greedy(&r), 1);
    r.params.penalty_last = 5; /* the same */
    assert_int_equal(greedy(&r), 1);
    r.params.penalty_last = 0xffffffffu; /* token 1 too: 5 against 3 */
    assert_int_equal(greedy(&r), 0);
    r.params.penalty_last = 0;
    assert_int_equal(greedy(&r), 0);
    r.params.penalty_last = 4;
    static const float off[] = {1, 0, -2, INFINITY, NAN};
    for (int i = 0; i < 5; i++) {
        r.params.penalty = off[i];
        assert_int_equal(greedy(&r), 0);
    }
    r.params.penalty = 0.5f; /* below 1: a reward */
    recent[5] = 1, recent[1] = recent[2] = 9, r.params.penalty_last = 1;
    assert_int_equal(greedy(&r), 1);
    float negative[3] = {-1, -1.5f, -9};
    uint32_t last[1] = {0};
    r = (row){.logits = negative, .vocab = 3, .recent = last, .recent_count = 1, .params = plain};
    r.params.penalty = 2; /* -1 becomes -2: below -1.5 */
    assert_int_equal(greedy(&r), 1);
    r.recent = NULL, r.recent_count = 0;
    assert_int_equal(greedy(&r), 0);
}

/* ---- the draw ---- */

/* Pearson's statistic of `count` draws against float64 probabilities. */
static double chi_square(row *r, uint32_t count)
{
    double *p = calloc(r->vocab, sizeof *p), sum = 0, statistic = 0;
    uint32_t *seen = calloc(r->vocab, sizeof *seen);
    assert_true(p && seen);
    for (uint32_t i = 0; i < r->vocab; i++)
        sum += p[i] = exp((double)r->logits[i] / r->params.temperature);
    for (r->position = 0; r->position < count; r->position++)
        seen[pick(r)]++;
    for (uint32_t i = 0; i < r->vocab; i++) {
        double expected = p[i] / sum * count;
        assert_true(expected > 5); /* else the statistic is not chi-square distributed */
        statistic += (seen[i] - expected) * (seen[i] - expected) / expected;
    }
    free(p);
    free(seen);
    return statistic;
}

static void draws_follow_the_probabilities(void **state)
{
    (void)state;
    static const float temperatures[] = {1, 0.7f, 3};
    for (int t = 0; t < 3; t++) {
        row r;
        make_row(&r, NORMAL, 42 + (uint64_t)t, 80);
        for (uint32_t i = 0; i < r.vocab; i++)
            r.logits[i] = r.logits[i] / 4; /* expected counts large enough */
        r.params.temperature = temperatures[t];
        /* 79 degrees of freedom: mean 79, deviation 12.6; above 128 with probability 0.0004, below
         * 40 with 0.0001 */
        double statistic = chi_square(&r, 60000);
        assert_true(statistic < 128 && statistic > 40);
        free(r.logits);
    }
}

/* Equal logits have equal masses, so the token is the draw scaled to the vocabulary, exactly; above
 * 2^22 tokens masses have fewer bits. */
static void equal_logits_draw_the_scaled_random_number(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 3, 512, 513, 49152, (1 << 22) + 5};
    for (int i = 0; i < 6; i++) {
        row r;
        make_row(&r, EQUAL, 77, sizes[i]);
        for (r.position = 0; r.position < (sizes[i] < 100000 ? 20 : 1); r.position++) {
            uint32_t want = (uint32_t)brim__random_below(77, 0, r.position, sizes[i]);
            r.params.top_p = 1;
            assert_int_equal(pick(&r), want);
            r.params.top_p = 0.5f;
            want = (uint32_t)brim__random_below(77, 0, r.position, (sizes[i] + 1) / 2);
            assert_int_equal(pick(&r), want);
        }
        free(r.logits);
    }
}

static void draw_depends_on_seed_and_position_alone(void **state)
{
    (void)state;
    row r;
    make_row(&r, FLAT, 9, 5003);
    uint32_t equal_positions = 0, equal_seeds = 0;
    for (r.position = 0; r.position < 200; r.position++) {
        r.params.seed = 9;
        uint32_t first = pick(&r);
        assert_int_equal(pick(&r), first);
        r.params.seed = UINT64_C(9) << 32; /* all 64 bits count */
        equal_seeds += pick(&r) == first;
        r.params.seed = 9;
        r.position++;
        equal_positions += pick(&r) == first;
        r.position--;
    }
    assert_true(equal_positions < 3 && equal_seeds < 3);
    free(r.logits);
}

/* ---- hostile logits and parameters ---- */

static void logits_that_are_not_numbers_never_win(void **state)
{
    (void)state;
    float logits[100];
    row r = {.logits = logits, .vocab = 100, .params = plain};
    static const uint32_t top_ks[] = {0, 1, 2, 40, 1000};
    for (int k = 0; k < 5; k++)
        for (int p = 0; p < 2; p++) {
            r.params.top_k = top_ks[k], r.params.top_p = p ? 0.9f : 1, r.params.min_p = p ? .1f : 0;
            for (int i = 0; i < 100; i++)
                logits[i] = special(i % 2 ? 0 : 1);
            assert_int_equal(pick(&r), 0);
            logits[70] = -INFINITY; /* all but NaN */
            logits[71] = -INFINITY;
            assert_int_equal(pick(&r), 70);
            logits[80] = -FLT_MAX;
            assert_int_equal(pick(&r), 80);
            logits[81] = 1;
            assert_int_equal(pick(&r), 81);
            logits[82] = INFINITY;
            assert_int_equal(pick(&r), 82);
        }
}

static void parameters_out_of_range_have_their_stated_meaning(void **state)
{
    (void)state;
    row r;
    make_row(&r, NORMAL, 3, 1000);
    uint32_t want = greedy(&r), free_pick = pick(&r);
    static const float cold[] = {-1, NAN, -INFINITY, -0.0f};
    for (int i = 0; i < 4; i++) {
        r.params.temperature = cold[i];
        assert_int_equal(pick(&r), want);
    }
    r.params.temperature = 1;
    static const float off[] = {NAN, 2, INFINITY};
    for (int i = 0; i < 3; i++) {
        r.params.top_p = off[i];
        assert_int_equal(pick(&r), free_pick);
    }
    r.params.top_p = 1;
    static const float no_min[] = {NAN, -1, -INFINITY};
    for (int i = 0; i < 3; i++) {
        r.params.min_p = no_min[i];
        assert_int_equal(pick(&r), free_pick);
    }
    r.params.min_p = INFINITY;
    assert_int_equal(pick(&r), want);
    r.params.min_p = 0;
    r.params.temperature = INFINITY; /* uniform */
    assert_true(pick(&r) < 1000);
    r.vocab = 0;
    assert_int_equal(pick(&r), 0);
    free(r.logits);
}

/* Any bits at all as logits and parameters: the pick is a token of the vocabulary and is a number.
 */
static void arbitrary_bits_give_a_token_of_the_vocabulary(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        row r;
        make_row(&r, EQUAL, seed, vocabs[seed % 9]);
        for (uint32_t i = 0; i < r.vocab; i++) {
            uint32_t bits = (uint32_t)brim__random_u64(seed, 5, i);
            bits = seed % 2 ? bits | 0x7f000000u : bits; /* around the infinities */
            memcpy(&r.logits[i], &bits, sizeof bits);
        }
        uint64_t words[5];
        for (uint64_t i = 0; i < 5; i++)
            words[i] = brim__random_u64(seed, 6, i);
        memcpy(&r.params, words, sizeof r.params);
        r.params.top_k %= 100;
        uint32_t recent[3] = {(uint32_t)seed, 0, 3};
        r.recent = recent, r.recent_count = 3;
        uint32_t got = pick(&r);
        assert_true(got < r.vocab);
        assert_true(got == 0 || !isnan(r.logits[got]));
        free(r.logits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picks_agree_with_a_sorting_oracle_on_all_shapes),
        cmocka_unit_test(picks_agree_with_the_oracle_on_a_whole_vocabulary),
        cmocka_unit_test(top_1_and_a_tiny_top_p_and_min_p_1_equal_greedy),
        cmocka_unit_test(ties_keep_the_lower_ids),
        cmocka_unit_test(steps_run_in_the_stated_order),
        cmocka_unit_test(penalty_counts_a_token_once_within_its_window),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(equal_logits_draw_the_scaled_random_number),
        cmocka_unit_test(draw_depends_on_seed_and_position_alone),
        cmocka_unit_test(logits_that_are_not_numbers_never_win),
        cmocka_unit_test(parameters_out_of_range_have_their_stated_meaning),
        cmocka_unit_test(arbitrary_bits_give_a_token_of_the_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
