/* test_sample_cuda.c: the device's sampler, run on the host thread by thread (cuda_block.h),
 * chooses what sample.c chooses: the same text that nvcc compiles, with the threads in several
 * orders. What the device's arithmetic and memory make of it, test/gpu/gpu_sample.cu checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <assert.h>
#include <stdlib.h>

#include "kernels/sample.h"

#include "cuda_block.h"

#include "kernels/cuda/sample.cuh"

#include "sample_cases.h"

_Static_assert(sizeof(brim_sample_params) == sizeof(brim__sample_params), "the same words");

enum { SHARED_BYTES = 12288, GUARD_BYTES = 64, GUARD = 0x5a };

/* What the threads of a block work with. */
typedef struct launch {
    brim_sample_in in;
    char *shared;
    bool quick; /* the shortlist alone */
    bool twice; /* one row after another */
    uint32_t token[BLOCK_THREADS];
} launch;

static void thread_main(void *arg, int thread)
{
    launch *l = arg;
    brim_sample_in in = l->in;
    if (!l->quick) {
        l->token[thread] = brim_sample_block(&in, l->shared, thread);
        if (l->twice && brim_sample_block(&in, l->shared, thread) != l->token[thread])
            l->token[thread] = SAMPLE_NONE;
        return;
    }
    sampler z;
    sample_begin(&z, &in, l->shared, thread);
    l->token[thread] = sample_quickly(&z);
}

/* The token that all threads say. Row: how the row lies in memory, as one of several would. */
static uint32_t device_pick(const sample_case *c, uint32_t row, uint32_t order, bool quick)
{
    launch *l = calloc(1, sizeof *l);
    size_t scratch_bytes = brim__sample_scratch_bytes(c->vocab) + 64, tiles = (c->vocab + 7) / 8;
    char *scratch = malloc(scratch_bytes + GUARD_BYTES);
    char *shared = aligned_alloc(64, SHARED_BYTES + GUARD_BYTES);
    float *logits = aligned_alloc(64, (c->vocab + row % 4 + 15) / 16 * 64);
    float *tile_max = aligned_alloc(64, (tiles + row % 4 + 15) / 16 * 64);
    assert_true(l && scratch && shared && logits && tile_max);
    memset(scratch, GUARD, scratch_bytes + GUARD_BYTES);
    memset(shared, GUARD, SHARED_BYTES + GUARD_BYTES);
    memcpy(logits + row % 4, c->logits, c->vocab * sizeof *logits);
    memcpy(tile_max + row % 4, c->tile_max, tiles * sizeof *tile_max);
    l->in = (brim_sample_in){logits + row % 4, c->vocab,        tile_max + row % 4, c->params,
                             c->recent,        c->recent_count, c->position,        scratch};
    l->shared = shared;
    l->quick = quick;
    l->twice = order % 4 == 0;
    if (!block_run(thread_main, l, order))
        fail_msg("threads wait for others that never come");
    for (int i = 0; i < GUARD_BYTES; i++)
        assert_true(scratch[scratch_bytes + (size_t)i] == GUARD &&
                    shared[SHARED_BYTES + i] == GUARD);
    for (int i = 1; i < BLOCK_THREADS; i++)
        assert_int_equal(l->token[i], l->token[0]);
    uint32_t token = l->token[0];
    free(tile_max);
    free(logits);
    free(shared);
    free(scratch);
    free(l);
    return token;
}

static uint32_t host_pick(const sample_case *c)
{
    void *scratch = malloc(brim__sample_scratch_bytes(c->vocab));
    assert_non_null(scratch);
    brim__sample_params params;
    memcpy(&params, &c->params, sizeof params);
    uint32_t token = brim__sample(brim__kernels_get(BRIM_ISA_SCALAR), c->logits, c->vocab, &params,
                                  c->recent, c->recent_count, c->position, scratch);
    free(scratch);
    return token;
}

static void make_room(sample_case *c, uint32_t vocab)
{
    c->vocab = vocab;
    c->logits = malloc(vocab * sizeof *c->logits);
    c->tile_max = malloc((vocab + 7) / 8 * sizeof *c->tile_max);
    assert_true(c->logits && c->tile_max);
}

static void free_room(sample_case *c)
{
    free(c->logits);
    free(c->tile_max);
}

static void check(const sample_case *c, const char *what, uint64_t seed)
{
    uint32_t want = host_pick(c), got = device_pick(c, (uint32_t)seed / 3, (uint32_t)seed, false);
    if (got != want)
        fail_msg(
            "%s %llu, vocabulary %u: %u, the host picks %u (temperature %g, top-p %g, min-p %g, "
            "penalty %g of %u of %u, top-k %u)",
            what, (unsigned long long)seed, c->vocab, got, want, c->params.temperature,
            c->params.top_p, c->params.min_p, c->params.penalty, c->params.penalty_last,
            c->recent_count, c->params.top_k);
}

static bool works(void **state)
{
    (void)state;
    if (!BLOCK_WORKS)
        skip();
    return BLOCK_WORKS;
}

static void masses_are_those_of_the_exp_of_all_bodies(void **state)
{
    (void)state;
    const brim__kernels *k = brim__kernels_get(BRIM_ISA_SCALAR);
    float special[] = {0, -0.0f, NAN, -INFINITY, -1e-45f, -1e-38f, -32, -31.999998f, -104, -1e38f};
    for (uint32_t i = 0; i < 10; i++) {
        float e, d = special[i] >= -104 ? special[i] : -104;
        k->exp(&e, &d, 1);
        assert_true(sample_exp_mass(special[i], 40) == (uint64_t)(e * 0x1p40f));
    }
    for (uint32_t bits = 0x80000000u; bits < 0xc2000000u; bits += 1021) {
        float e, d = __uint_as_float(bits);
        k->exp(&e, &d, 1);
        for (int mass_bits = 30; mass_bits <= 40; mass_bits += 10) {
            uint64_t want = (uint64_t)(e * (float)(UINT64_C(1) << mass_bits));
            if (sample_exp_mass(d, mass_bits) != want)
                fail_msg("exp(%a) * 2^%d", d, mass_bits);
        }
    }
}

static void device_agrees_with_host_on_small_vocabularies(void **state)
{
    static const uint32_t vocabs[] = {1, 2, 7, 8, 9, 31, 32, 33, 300, 1023, 1025, 2500};
    if (!works(state))
        return;
    for (uint64_t seed = 0; seed < (BLOCK_SLOW ? 200 : 1000); seed++) {
        sample_case c;
        make_room(&c, vocabs[brim__random_below(seed, 9, 0, 12)]);
        case_make(&c, (sample_shape)(seed % CASE_SHAPES), seed);
        check(&c, "case", seed);
        free_room(&c);
    }
}

static void device_agrees_with_host_on_whole_vocabularies(void **state)
{
    static const uint32_t vocabs[] = {50257, 128256, 270000};
    if (!works(state))
        return;
    for (uint64_t seed = 0; seed < (BLOCK_SLOW ? 1 : 3) * CASE_SHAPES; seed++) {
        sample_case c;
        make_room(&c, vocabs[seed / CASE_SHAPES]);
        case_make(&c, (sample_shape)(seed % CASE_SHAPES), seed);
        for (uint64_t n = 0; n < 2; n++) {
            case_params(&c, seed * 2 + n);
            check(&c, "case", seed * 2 + n);
        }
        free_room(&c);
    }
}

/* The usual parameters, with logits that a model might give. */
static void usual(sample_case *c, int n, uint64_t seed)
{
    static const brim_sample_params params[] = {
        {.temperature = 0, .top_p = 1, .penalty = 1},
        {.temperature = 0, .top_p = 1, .penalty = 1.1f},
        {.temperature = 0.8f, .top_p = 1, .penalty = 1, .top_k = 40},
        {.temperature = 0.8f, .top_p = 0.95f, .penalty = 1, .top_k = 40},
        {.temperature = 1, .top_p = 0.9f, .penalty = 1.1f, .min_p = 0.02f, .top_k = 256},
        {.temperature = 0.7f, .top_p = 0.9f, .penalty = 1},
        {.temperature = 0.7f, .top_p = 0.9f, .penalty = 1.2f},
        {.temperature = 1.5f, .top_p = 1, .penalty = 1, .min_p = 0.05f},
    };
    c->params = params[n];
    c->params.seed = seed;
    c->params.penalty_last = 64;
    c->position = (uint32_t)seed;
    for (uint32_t i = 0; i < c->vocab; i++)
        c->logits[i] = 2.5f * case_normal(seed, i);
    for (uint32_t i = 0; i < 10; i++)
        c->logits[brim__random_below(seed, 8, i, c->vocab)] = 24 - 0.5f * (float)i;
    case_tiles(c);
    case_recent(c, seed);
}

static void usual_parameters_are_answered_by_the_shortlist(void **state)
{
    if (!works(state))
        return;
    sample_case c;
    make_room(&c, 128256);
    for (int n = 0; n < 8; n++)
        for (uint64_t seed = 0; seed < 2; seed++) {
            usual(&c, n, 10 * (uint64_t)n + seed);
            assert_int_equal(device_pick(&c, 0, (uint32_t)seed, true), host_pick(&c));
        }
    free_room(&c);
}

/* Over many positions with the same logits: each draw, not the likeliest tokens alone. */
static void each_draw_agrees(void **state)
{
    if (!works(state))
        return;
    sample_case c;
    make_room(&c, 2001);
    for (int n = 2; n < 8; n++) {
        usual(&c, n, (uint64_t)n);
        for (c.position = 0; c.position < 30; c.position++)
            check(&c, "position", c.position);
    }
    c.params.temperature = 3;
    c.params.top_p = 1;
    c.params.min_p = 0;
    for (c.position = 0; c.position < 30; c.position++)
        check(&c, "position", c.position);
    free_room(&c);
}

static int end_block(void **state)
{
    (void)state;
    if (BLOCK_WORKS)
        block_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masses_are_those_of_the_exp_of_all_bodies),
        cmocka_unit_test(device_agrees_with_host_on_small_vocabularies),
        cmocka_unit_test(device_agrees_with_host_on_whole_vocabularies),
        cmocka_unit_test(usual_parameters_are_answered_by_the_shortlist),
        cmocka_unit_test(each_draw_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, end_block);
}
