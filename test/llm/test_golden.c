/* test_golden.c: logits and perplexity against a float64 computation from the dequantised weights
 * (tools/reference.py; test/golden/README.md says how the files were made).
 * Runs once: it is long, and what a sanitizer could see is in test_bits.c too. */
#include "llm/llm_fixture.h"

#include <math.h>
#include <zlib.h>

enum { POSITIONS = 64, IDS_MAX = 8192, CHUNK = 512 };

/* KL is bounded below by the stored form's own error, 6.3e-9. */
static const double KL_EXACT_MAX = 1e-6, KL_DEFAULT_MAX = 0.0005;
static const double PERPLEXITY = 26.550391145;

typedef struct golden {
    gzFile file;
    uint32_t rows, vocab;
    uint8_t *row;
    double kl_sum;
    uint32_t seen, argmax_differs;
} golden;

static void golden_open(golden *g)
{
    char magic[8];
    *g = (golden){.file = gzopen(BRIM_SOURCE_DIR "/test/golden/smollm2-135m.logits.u16.gz", "rb")};
    assert_non_null(g->file);
    assert_int_equal(gzread(g->file, magic, 8), 8);
    assert_memory_equal(magic, "BRIMLOG1", 8);
    assert_int_equal(gzread(g->file, &g->rows, 4), 4);
    assert_int_equal(gzread(g->file, &g->vocab, 4), 4);
    assert_int_equal(g->rows, POSITIONS);
    g->row = malloc(8 + 2 * (size_t)g->vocab);
}

static double log_sum_exp(const double *x, uint32_t n)
{
    double max = x[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return max + log(sum);
}

static bool compare_row(uint32_t position, const float *logits, void *user)
{
    golden *g = user;
    (void)position;
    assert_int_equal(gzread(g->file, g->row, 8 + 2 * g->vocab), 8 + 2 * (int)g->vocab);
    float hi, step;
    memcpy(&hi, g->row, 4);
    memcpy(&step, g->row + 4, 4);
    double *p = malloc(8 * (size_t)g->vocab), *q = malloc(8 * (size_t)g->vocab);
    uint32_t best_p = 0, best_q = 0;
    for (uint32_t i = 0; i < g->vocab; i++) {
        double code = g->row[8 + i] + 256.0 * g->row[8 + g->vocab + i];
        p[i] = (double)hi - (double)step * code * code;
        q[i] = (double)logits[i];
        best_p = p[i] > p[best_p] ? i : best_p;
        best_q = q[i] > q[best_q] ? i : best_q;
    }
    double zp = log_sum_exp(p, g->vocab), zq = log_sum_exp(q, g->vocab), kl = 0;
    for (uint32_t i = 0; i < g->vocab; i++)
        kl += exp(p[i] - zp) * ((p[i] - zp) - (q[i] - zq));
    g->kl_sum += kl;
    g->argmax_differs += best_p != best_q;
    g->seen++;
    free(p);
    free(q);
    return true;
}

static double mean_kl(const fixture *f, brim_numerics numerics, brim_executor_kind kind,
                      brim_isa isa)
{
    golden g;
    brim_token ids[POSITIONS];
    golden_open(&g);
    assert_int_equal(read_ids(ids, POSITIONS, "smollm2-135m.ids"), POSITIONS);
    brim_runner_desc desc = brim_runner_desc_default();
    desc.numerics = numerics;
    desc.executor.kind = kind;
    desc.executor.isa = isa;
    desc.context = 128;
    brim_runner *runner;
    brim_session *session;
    assert_ok(brim_runner_create(&runner, f->ctx, f->llm, &desc));
    assert_ok(brim_session_create(&session, runner));
    assert_ok(brim_session_feed(session, ids, POSITIONS, compare_row, &g));
    brim_session_destroy(session);
    brim_runner_destroy(runner);
    gzclose(g.file);
    free(g.row);
    assert_int_equal(g.seen, POSITIONS);
    double kl = g.kl_sum / POSITIONS;
    print_message("%s, %s, %s: mean KL %.2e, %u of %d choices differ\n",
                  brim_numerics_name(numerics), kind == BRIM_EXECUTOR_CPU ? "cpu" : "reference",
                  brim_isa_name(isa), kl, g.argmax_differs, POSITIONS);
    return kl;
}

static void check_numerics(brim_numerics numerics, double limit)
{
    if (!real_model()) {
        print_message("skipped: no model\n");
        skip();
    }
    fixture f;
    fixture_open(&f, real_model());
    /* Bits do not depend on the instruction set: test_bits.c and test_kernels.c. */
    assert_true(mean_kl(&f, numerics, BRIM_EXECUTOR_CPU, brim_isa_best()) < limit);
    assert_true(mean_kl(&f, numerics, BRIM_EXECUTOR_REFERENCE, brim_isa_best()) < limit);
    fixture_close(&f);
}

static void exact_logits_are_within_1e_6_of_float64(void **state)
{
    (void)state;
    check_numerics(BRIM_NUMERICS_EXACT, KL_EXACT_MAX);
}

static void default_logits_are_within_5e_4_of_float64(void **state)
{
    (void)state;
    check_numerics(BRIM_NUMERICS_DEFAULT, KL_DEFAULT_MAX);
}

typedef struct scored {
    const brim_token *ids; /* of the chunk */
    uint32_t count, vocab;
    double nll;
    uint32_t tokens;
} scored;

static bool score_row(uint32_t position, const float *logits, void *user)
{
    scored *s = user;
    if (position + 1 >= s->count)
        return true;
    double *x = malloc(8 * (size_t)s->vocab);
    for (uint32_t i = 0; i < s->vocab; i++)
        x[i] = (double)logits[i];
    s->nll += log_sum_exp(x, s->vocab) - x[s->ids[position + 1]];
    s->tokens++;
    free(x);
    return true;
}

static void perplexity_is_within_two_per_mille_of_float64(void **state)
{
    (void)state;
    if (!real_model()) {
        print_message("skipped: no model\n");
        skip();
    }
    fixture f;
    static brim_token ids[IDS_MAX];
    fixture_open(&f, real_model());
    uint32_t count = read_ids(ids, IDS_MAX, "text-20k.smollm2.ids");
    brim_runner_desc desc = brim_runner_desc_default();
    desc.context = CHUNK;
    brim_runner *runner;
    brim_session *session;
    assert_ok(brim_runner_create(&runner, f.ctx, f.llm, &desc));
    assert_ok(brim_session_create(&session, runner));
    scored s = {.vocab = brim_llm_config(f.llm)->vocab_size};
    for (uint32_t at = 0; at < count; at += CHUNK) {
        s.ids = ids + at;
        s.count = count - at < CHUNK ? count - at : CHUNK;
        assert_ok(brim_session_truncate(session, 0));
        assert_ok(brim_session_feed(session, s.ids, s.count, score_row, &s));
    }
    double perplexity = exp(s.nll / s.tokens);
    print_message("perplexity %.6f over %u tokens; float64: %.6f\n", perplexity, s.tokens,
                  PERPLEXITY);
    assert_true(fabs(perplexity / PERPLEXITY - 1) < 0.002);
    brim_session_destroy(session);
    brim_runner_destroy(runner);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_logits_are_within_1e_6_of_float64),
        cmocka_unit_test(default_logits_are_within_5e_4_of_float64),
        cmocka_unit_test(perplexity_is_within_two_per_mille_of_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
