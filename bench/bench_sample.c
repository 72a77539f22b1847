/* bench_sample.c: microseconds to choose a token, by vocabulary and parameters, beside the time
 * of reading the logits once from where they lie (the limit: no choice can read less).
 *
 *   bench_sample [--json]
 *
 * Median of 51 choices at different positions, and their spread (half the interquartile range
 * over the median).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/stats.h"
#include "base/thread.h"
#include "kernels/sample.h"

enum { RUNS = 51, RECENT = 64 };

typedef enum logits_kind { LIKE_A_MODEL, FLAT_TOP, ALL_EQUAL, NEIGHBOURS } logits_kind;
static const char *const kind_names[] = {"model", "flat top", "equal", "neighbours"};

typedef struct setting {
    const char *name;
    logits_kind kind;
    brim__sample_params params;
} setting;

static const setting settings[] = {
    {"greedy", LIKE_A_MODEL, {.temperature = 0, .top_p = 1, .penalty = 1}},
    {"greedy, penalty", LIKE_A_MODEL, {.top_p = 1, .penalty = 1.1f, .penalty_last = RECENT}},
    {"top-k 40, top-p .95, t .8",
     LIKE_A_MODEL,
     {.temperature = .8f, .top_p = .95f, .penalty = 1, .top_k = 40}},
    {"the same, min-p, penalty",
     LIKE_A_MODEL,
     {.temperature = .8f,
      .top_p = .95f,
      .min_p = .05f,
      .penalty = 1.1f,
      .penalty_last = RECENT,
      .top_k = 40}},
    {"top-p .95", LIKE_A_MODEL, {.temperature = 1, .top_p = .95f, .penalty = 1}},
    {"top-p .95", FLAT_TOP, {.temperature = 1, .top_p = .95f, .penalty = 1}},
    {"min-p .05", LIKE_A_MODEL, {.temperature = 1, .top_p = 1, .min_p = .05f, .penalty = 1}},
    {"t 1", LIKE_A_MODEL, {.temperature = 1, .top_p = 1, .penalty = 1}},
    {"t 1.5, top-p .999999", FLAT_TOP, {.temperature = 1.5f, .top_p = .999999f, .penalty = 1}},
    {"top-k 40", ALL_EQUAL, {.temperature = 1, .top_p = 1, .penalty = 1, .top_k = 40}},
    {"t 1.5, top-p .999999", ALL_EQUAL, {.temperature = 1.5f, .top_p = .999999f, .penalty = 1}},
    {"t 1.5, top-p .999999", NEIGHBOURS, {.temperature = 1.5f, .top_p = .999999f, .penalty = 1}},
    {"all of it, top-k n / 2",
     NEIGHBOURS,
     {.temperature = 1.5f,
      .top_p = .999999f,
      .min_p = .0001f,
      .penalty = 1.1f,
      .penalty_last = RECENT,
      .top_k = 70000}},
};

/* Like a model's: about normal, deviation 2.5, a handful of likely tokens. FLAT_TOP: as after "Once
 * upon a time there was a": the nucleus has thousands of tokens. */
static void fill(float *logits, uint32_t vocab, logits_kind kind)
{
    for (uint32_t i = 0; i < vocab; i++) {
        float sum = 0;
        for (uint64_t j = 0; j < 12; j++)
            sum += brim__random_float(1, j, i);
        logits[i] = 2.5f * (sum - 6) + (i % 9973 == 7 ? kind == FLAT_TOP ? 12 : 18 : 0);
        if (kind == ALL_EQUAL)
            logits[i] = 1;
        if (kind == NEIGHBOURS)
            logits[i] = 8 + 0x1p-20f * (float)(i * 2654435761u >> 20);
    }
}

typedef uint32_t words __attribute__((vector_size(16)));

static double read_once_us(const float *logits, uint32_t vocab)
{
    double us[RUNS];
    static volatile uint32_t sink;
    for (int run = 0; run < RUNS; run++) {
        uint64_t start = brim__now_ns();
        words a = {0}, b = a, c = a, d = a, x[4];
        for (uint32_t i = 0; i + 16 <= vocab; i += 16) {
            memcpy(x, logits + i, sizeof x);
            a |= x[0], b |= x[1], c |= x[2], d |= x[3];
        }
        a |= b | c | d;
        sink = sink | a[0] | a[1] | a[2] | a[3];
        us[run] = (double)(brim__now_ns() - start) / 1e3;
    }
    return brim__median(us, RUNS);
}

static void measure(const brim__kernels *k, const setting *s, const float *logits, uint32_t vocab,
                    void *scratch, double limit_us, bool json)
{
    static volatile uint32_t sink;
    double us[RUNS];
    uint32_t recent[RECENT];
    for (uint32_t i = 0; i < RECENT; i++)
        recent[i] = i * 7919 % vocab;
    for (uint32_t run = 0; run < RUNS; run++) {
        uint64_t start = brim__now_ns();
        sink = brim__sample(k, logits, vocab, &s->params, recent, RECENT, run, scratch);
        us[run] = (double)(brim__now_ns() - start) / 1e3;
    }
    (void)sink;
    double spread = brim__spread(us, RUNS), median = brim__median(us, RUNS);
    if (json)
        printf("  {\"isa\": \"%s\", \"vocab\": %u, \"logits\": \"%s\", \"params\": \"%s\", "
               "\"us\": %.2f, \"spread\": %.3f, \"read_once_us\": %.2f}",
               brim_isa_name(k->isa), vocab, kind_names[s->kind], s->name, median, spread,
               limit_us);
    else
        printf("%-7s %7u  %-10s  %-26s %9.1f us  +-%4.1f %%  read once %6.1f us\n",
               brim_isa_name(k->isa), vocab, kind_names[s->kind], s->name, median, 100 * spread,
               limit_us);
}

int main(int argc, char **argv)
{
    static const uint32_t vocabs[] = {49152, 128256, 151936};
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    const brim__kernels *k = NULL;
    for (int isa = brim_isa_best(); isa >= 0 && !k; isa--)
        k = brim__kernels_get((brim_isa)isa);
    float *logits = malloc(vocabs[2] * sizeof *logits);
    void *scratch = malloc(brim__sample_scratch_bytes(vocabs[2]));
    if (!k || !logits || !scratch)
        return 1;
    memset(scratch, 0, brim__sample_scratch_bytes(vocabs[2])); /* its pages are there */
    const char *separator = json ? "[\n" : "";
    for (int v = 0; v < 3; v++)
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
            fill(logits, vocabs[v], settings[i].kind);
            fputs(separator, stdout);
            measure(k, &settings[i], logits, vocabs[v], scratch, read_once_us(logits, vocabs[v]),
                    json);
            separator = json ? ",\n" : "";
        }
    fputs(json ? "\n]\n" : "", stdout);
    free(logits);
    free(scratch);
    return 0;
}
