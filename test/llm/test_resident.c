/* test_resident.c: models as resident programs, executed by the CPU: against the other path in
 * exact numerics, and the same bits whatever the lanes, the rows of a step and the kind of program.
 */
#include "llm/llm_fixture.h"

#include <math.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/hash.h"
#include "base/rng.h"
#include "llm/runner.h"

enum { VOCAB = 512, WINDOW = 40 };

/* Sanitizers make the plain C bodies many times slower: they see fewer positions (test_bits.c). */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* A model twice: tiles of the file's types, and resident on the CPU. */
typedef struct twice {
    fixture f;
    brim_device *device;
    brim_llm *resident;
} twice;

static void add_resident(twice *t)
{
    brim_llm_desc desc = brim_llm_desc_default();
    assert_ok(brim_device_open(&t->device, t->f.ctx, BRIM_DEVICE_CPU));
    desc.device = t->device;
    assert_ok(brim_llm_create(&t->resident, t->f.ctx, t->f.file, &desc));
}

static void twice_make(twice *t, const char *shape, const char *type, uint32_t layers)
{
    fixture_make(&t->f, shape, type, layers);
    add_resident(t);
}

static void twice_close(twice *t)
{
    brim_llm_destroy(t->resident);
    brim_device_close(t->device);
    fixture_close(&t->f);
}

static brim_token token_at(uint32_t position)
{
    return (brim_token)brim__random_below(99, 0, position, VOCAB);
}

/* ---- logits ---- */

typedef struct collected {
    float *logits; /* (position, vocab) */
    uint32_t vocab, count;
} collected;

static bool collect(uint32_t position, const float *logits, void *user)
{
    collected *c = user;
    memcpy(c->logits + (size_t)position * c->vocab, logits, 4 * (size_t)c->vocab);
    c->count++;
    return true;
}

typedef struct how {
    uint32_t lanes;
    uint32_t chunk; /* tokens fed at a time; 0: all */
    uint32_t context;
    bool long_programs;
    uint32_t long_from; /* not 0: where the long programs begin */
    brim_executor_kind kind;
    brim_numerics numerics;
} how;

static brim_runner *make_runner(const twice *t, const brim_llm *llm, const how *h,
                                uint32_t sessions)
{
    brim_runner_desc desc = brim_runner_desc_default();
    desc.lanes = h->lanes;
    desc.context = h->context;
    desc.sessions = sessions;
    desc.long_programs = h->long_programs;
    desc.executor.kind = h->kind;
    desc.numerics = h->numerics;
    brim_runner *runner;
    assert_ok(brim_runner_create(&runner, t->f.ctx, llm, &desc));
    if (h->long_from)
        runner->long_from = h->long_from;
    return runner;
}

/* The logits of all positions; to be freed. */
static float *logits_of(const twice *t, const brim_llm *llm, uint32_t count, how h)
{
    collected c = {.vocab = brim_llm_config(llm)->vocab_size};
    c.logits = malloc(4 * (size_t)count * c.vocab);
    brim_token *ids = malloc(sizeof *ids * count);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = token_at(i);
    h.context = h.context ? h.context : count;
    brim_runner *runner = make_runner(t, llm, &h, 1);
    brim_session *session;
    assert_ok(brim_session_create(&session, runner));
    uint32_t chunk = h.chunk ? h.chunk : count;
    for (uint32_t at = 0; at < count; at += chunk)
        assert_ok(brim_session_feed(session, ids + at, count - at < chunk ? count - at : chunk,
                                    collect, &c));
    assert_int_equal(c.count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(brim_session_token(session, i), ids[i]);
    brim_session_destroy(session);
    brim_runner_destroy(runner);
    free(ids);
    return c.logits;
}

static double log_sum_exp(const float *x, uint32_t n)
{
    double max = (double)x[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        max = fmax(max, (double)x[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

static double kl_of(const float *p, const float *q, uint32_t n)
{
    double zp = log_sum_exp(p, n), zq = log_sum_exp(q, n), kl = 0;
    for (uint32_t i = 0; i < n; i++) {
        double log_p = (double)p[i] - zp;
        kl += exp(log_p) * (log_p - ((double)q[i] - zq));
    }
    return kl;
}

/* ---- against the other path ---- */

typedef struct near_case {
    const char *claim;
    const char *shape, *type;
    uint32_t layers, length, window;
} near_case;

/* An activation of F16 has a relative error of 2^-12 at most, one of BF16 of 2^-9; a made model's
 * logits have a deviation near 1, and a logit sums the errors of a few roundings a layer, which are
 * independent: say 8. KL is half the variance of what the logits are off: 8 * 2^-24 / 2 = 2.4e-7
 * and 8 * 2^-18 / 2 = 1.6e-5. Bounds are some times that. */
/* nats, mean over the positions */
static const double KL_F16_MAX = 2e-6, KL_BF16_MAX = 1e-4;

static const near_case near_cases[] = {
    {"llama_with_three_heads_a_group_is_near_the_exact_path", "smollm2-135m", "F16", 3, 48, 0},
    {"bf16_is_near_the_exact_path", "smollm2-135m", "BF16", 2, 48, 0},
    {"past_a_split_it_is_near_the_exact_path", "smollm2-135m", "F16", 1, 300, 0},
    {"with_a_window_it_is_near_the_exact_path", "smollm2-135m", "F16", 2, 150, WINDOW},
    {"qwen2_with_biases_is_near_the_exact_path", "qwen2.5-0.5b", "Q8_0", 1, 40, 0},
    {"qwen3_with_normed_heads_is_near_the_exact_path", "qwen3-0.6b", "Q8_0", 1, 40, 0},
    {"a_head_of_its_own_is_near_the_exact_path", "mistral-7b", "Q4_0", 1, 3, 0},
};
enum { NEAR_COUNT = sizeof near_cases / sizeof *near_cases };

static void check_near(void **state)
{
    const near_case *c = *state;
    if (SANITIZED && c->length > 100) /* a claim that takes many positions */
        skip();
    uint32_t length = SANITIZED && c->length > 8 ? 8 : c->length;
    twice t;
    twice_make(&t, c->shape, c->type, c->layers);
    t.f.llm->config.sliding_window = t.resident->config.sliding_window = c->window;
    bool bf16 = strcmp(c->type, "BF16") == 0;
    brim_dtype type;
    assert_true(brim_llm_device_type(&type, t.resident));
    assert_int_equal(type, bf16 ? BRIM_DTYPE_BF16 : BRIM_DTYPE_F16);
    float *exact = logits_of(&t, t.f.llm, length,
                             (how){.kind = BRIM_EXECUTOR_CPU, .numerics = BRIM_NUMERICS_EXACT});
    float *near = logits_of(&t, t.resident, length, (how){.kind = BRIM_EXECUTOR_CPU});
    double kl = 0, most = 0;
    for (uint32_t i = 0; i < length; i++) {
        double one = kl_of(exact + (size_t)i * VOCAB, near + (size_t)i * VOCAB, VOCAB);
        kl += one / length;
        most = fmax(most, one);
    }
    print_message("%s %s: mean KL %.1e, largest %.1e\n", c->shape, c->type, kl, most);
    assert_true(kl < (bf16 ? KL_BF16_MAX : KL_F16_MAX));
    free(exact);
    free(near);
    twice_close(&t);
}

/* ---- the same bits ---- */

static void assert_same_logits(const twice *t, const float *expected, uint32_t count, how h)
{
    float *logits = logits_of(t, t->resident, count, h);
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(logits + (size_t)i * VOCAB, expected + (size_t)i * VOCAB, 4 * VOCAB) != 0)
            fail_msg("position %u has other bits: %u lanes, chunks of %u%s%s", i, h.lanes, h.chunk,
                     h.long_programs ? ", long programs" : "",
                     h.kind == BRIM_EXECUTOR_REFERENCE ? ", reference" : "");
    free(logits);
}

static void bits_do_not_depend_on_lanes_rows_chunks_and_programs(void **state)
{
    (void)state;
    enum { LENGTH = SANITIZED ? 12 : 140 }; /* more than a split of attention */
    static const struct {
        uint32_t count;
        how how;
    } ways[] = {
        {LENGTH, {.lanes = 1, .chunk = 1, .kind = BRIM_EXECUTOR_CPU}},
        {LENGTH, {.lanes = 3, .chunk = 8, .kind = BRIM_EXECUTOR_CPU}},
        {LENGTH, {.lanes = 5, .long_programs = true, .kind = BRIM_EXECUTOR_CPU}},
        {40, {.lanes = 16, .chunk = 7, .kind = BRIM_EXECUTOR_CPU}},
        {40, {.lanes = 70, .kind = BRIM_EXECUTOR_CPU}}, /* some have no tile of the head */
        {40, {.lanes = 2, .chunk = 1, .long_programs = true, .kind = BRIM_EXECUTOR_CPU}},
        {20, {.lanes = 3, .chunk = 5, .kind = BRIM_EXECUTOR_REFERENCE}},
    };
    twice t;
    twice_make(&t, "smollm2-135m", "BF16", 2);
    float *expected = logits_of(&t, t.resident, LENGTH, ways[0].how);
    for (size_t i = 1; i < sizeof ways / sizeof *ways; i++)
        assert_same_logits(&t, expected, ways[i].count < LENGTH ? ways[i].count : LENGTH,
                           ways[i].how);
    /* A context that has both kinds of programs, which take turns in the middle. */
    assert_same_logits(
        &t, expected, LENGTH,
        (how){.lanes = 2, .context = 1056, .long_from = LENGTH / 3, .kind = BRIM_EXECUTOR_CPU});
    free(expected);
    twice_close(&t);
}

/* ---- generation ---- */

typedef struct answer {
    brim_token tokens[64];
    uint64_t hashes[64];
    uint32_t count;
} answer;

static bool take(const brim_generated *g, void *user)
{
    answer *a = user;
    a->tokens[a->count] = g->token;
    a->hashes[a->count++] = g->logits_hash;
    return true;
}

static void generate(answer *a, brim_session *session, uint32_t prompt, uint32_t tokens)
{
    brim_token ids[64];
    for (uint32_t i = 0; i < prompt; i++)
        ids[i] = token_at(i);
    brim_generate_desc desc = brim_generate_desc_default();
    brim_generate_stats stats;
    *a = (answer){.count = 0};
    desc.sampling.temperature = 0;
    desc.max_tokens = tokens;
    desc.hash_logits = true;
    desc.token = take;
    desc.user = a;
    assert_ok(brim_session_generate(&stats, session, ids, prompt, &desc));
    assert_int_equal(a->count, tokens);
    /* The last token was not evaluated. */
    assert_int_equal(brim_session_length(session), prompt + tokens - 1);
    for (uint32_t i = 0; i + 1 < tokens; i++)
        assert_int_equal(brim_session_token(session, prompt + i), a->tokens[i]);
}

/* Each token is the exact path's choice after the same tokens, or one that it holds for as likely
 * within what the paths differ by. */
static void greedy_tokens_are_the_exact_paths(void **state)
{
    (void)state;
    enum { PROMPT = 11, TOKENS = SANITIZED ? 8 : 30 };
    const float margin = 0.02f;
    twice t;
    twice_make(&t, "smollm2-135m", "F16", 3);
    brim_runner *runner = make_runner(
        &t, t.resident, &(how){.lanes = 2, .context = 64, .kind = BRIM_EXECUTOR_CPU}, 1);
    brim_runner *exact = make_runner(
        &t, t.f.llm,
        &(how){
            .lanes = 2, .context = 64, .kind = BRIM_EXECUTOR_CPU, .numerics = BRIM_NUMERICS_EXACT},
        1);
    brim_session *session, *other;
    answer a;
    assert_ok(brim_session_create(&session, runner));
    assert_ok(brim_session_create(&other, exact));
    generate(&a, session, PROMPT, TOKENS);
    uint32_t equal = 0;
    for (uint32_t i = 0; i < PROMPT + TOKENS - 1; i++) {
        brim_row row = {other, i < PROMPT ? token_at(i) : a.tokens[i - PROMPT], true};
        const float *logits;
        assert_ok(brim_runner_step(exact, &row, 1, &logits, NULL));
        if (i + 1 < PROMPT)
            continue;
        uint32_t best = 0;
        for (uint32_t k = 0; k < VOCAB; k++)
            best = logits[k] > logits[best] ? k : best;
        uint32_t chosen = (uint32_t)a.tokens[i + 1 - PROMPT];
        equal += chosen == best;
        assert_true(logits[chosen] > logits[best] - margin);
    }
    assert_true(equal >= TOKENS - 3);
    brim_session_destroy(session);
    brim_session_destroy(other);
    brim_runner_destroy(runner);
    brim_runner_destroy(exact);
    twice_close(&t);
}

/* A chain never crosses from one kind of program to the other; tokens and logits don't show it. */
static void a_chain_that_reaches_a_long_context_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    enum { PROMPT = 9, TOKENS = SANITIZED ? 24 : 40 };
    twice t;
    twice_make(&t, "smollm2-135m", "F16", 1);
    how h = {.lanes = 2, .context = 1056, .kind = BRIM_EXECUTOR_CPU};
    answer answers[2];
    for (int i = 0; i < 2; i++) {
        h.long_from = i ? 27 : 0;
        brim_runner *runner = make_runner(&t, t.resident, &h, 1);
        assert_int_equal(runner->long_from, i ? 27 : 1024);
        brim_session *session;
        assert_ok(brim_session_create(&session, runner));
        generate(&answers[i], session, PROMPT, TOKENS);
        uint64_t long_steps = brim_executor_epoch(runner->engines[ENGINE_DECODE_LONG].executor);
        assert_int_equal(long_steps, i ? PROMPT + TOKENS - 1 - 27 : 0);
        brim_session_destroy(session);
        brim_runner_destroy(runner);
    }
    assert_memory_equal(answers[0].tokens, answers[1].tokens, sizeof answers[0].tokens);
    assert_memory_equal(answers[0].hashes, answers[1].hashes, sizeof answers[0].hashes);
    twice_close(&t);
}

static void a_hash_is_that_of_the_logits(void **state)
{
    (void)state;
    enum { PROMPT = 5, TOKENS = 3 };
    twice t;
    twice_make(&t, "qwen3-0.6b", "F16", 1);
    brim_runner *runner = make_runner(
        &t, t.resident, &(how){.lanes = 2, .context = 32, .kind = BRIM_EXECUTOR_CPU}, 1);
    brim_session *session;
    answer a;
    assert_ok(brim_session_create(&session, runner));
    generate(&a, session, PROMPT, TOKENS);
    assert_ok(brim_session_truncate(session, PROMPT - 1));
    for (uint32_t i = 0; i < TOKENS; i++) {
        brim_row row = {session, i ? a.tokens[i - 1] : token_at(PROMPT - 1), true};
        const float *logits;
        assert_ok(brim_runner_step(runner, &row, 1, &logits, NULL));
        assert_int_equal(brim__hash64(logits, 4 * VOCAB, 0), a.hashes[i]);
    }
    brim_session_destroy(session);
    brim_runner_destroy(runner);
    twice_close(&t);
}

static void sessions_decoded_together_get_what_each_gets_alone(void **state)
{
    (void)state;
    enum { SESSIONS = 3, STEPS = 12 };
    twice t;
    twice_make(&t, "smollm2-135m", "F16", 2);
    brim_runner *runner = make_runner(
        &t, t.resident, &(how){.lanes = 3, .context = 64, .kind = BRIM_EXECUTOR_CPU}, SESSIONS);
    brim_generate_desc desc = brim_generate_desc_default();
    desc.sampling.repeat_penalty = 1.3f; /* looks back at the history on the device */
    desc.sampling.seed = 5;
    brim_session *sessions[SESSIONS];
    brim_token first[SESSIONS], together[STEPS][SESSIONS], alone[SESSIONS][STEPS];
    uint32_t steps, lengths[SESSIONS] = {3, 17, 9};
    for (uint32_t i = 0; i < SESSIONS; i++) {
        brim_token ids[32];
        for (uint32_t k = 0; k < lengths[i]; k++)
            ids[k] = token_at(100 * i + k);
        assert_ok(brim_session_create(&sessions[i], runner));
        assert_ok(brim_session_feed(sessions[i], ids, lengths[i], NULL, NULL));
        first[i] = token_at(100 * i + 50);
        assert_ok(
            brim_runner_decode(alone[i], &steps, runner, &sessions[i], &first[i], 1, STEPS, &desc));
        assert_int_equal(steps, STEPS);
        assert_ok(brim_session_truncate(sessions[i], lengths[i]));
    }
    assert_ok(brim_runner_decode(&together[0][0], &steps, runner, sessions, first, SESSIONS, STEPS,
                                 &desc));
    assert_int_equal(steps, STEPS);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        for (uint32_t k = 0; k < STEPS; k++)
            assert_int_equal(together[k][i], alone[i][k]);
        assert_int_equal(brim_session_length(sessions[i]), lengths[i] + STEPS);
        assert_int_equal(brim_session_token(sessions[i], lengths[i]), first[i]);
        assert_int_equal(brim_session_token(sessions[i], lengths[i] + 1), together[0][i]);
        brim_session_destroy(sessions[i]);
    }
    brim_runner_destroy(runner);
    twice_close(&t);
}

/* ---- refusals and failures ---- */

static void numerics_of_the_other_kind_are_refused(void **state)
{
    (void)state;
    twice t;
    twice_make(&t, "smollm2-135m", "F16", 1);
    brim_runner_desc desc = brim_runner_desc_default();
    brim_runner *runner;
    desc.numerics = BRIM_NUMERICS_EXACT;
    assert_int_equal(brim_runner_create(&runner, t.f.ctx, t.resident, &desc), BRIM_USAGE);
    assert_string_equal(brim_last_id(), "runner.numerics");
    desc.numerics = BRIM_NUMERICS_RESIDENT;
    assert_int_equal(brim_runner_create(&runner, t.f.ctx, t.f.llm, &desc), BRIM_USAGE);
    assert_string_equal(brim_last_id(), "runner.numerics");
    desc.numerics = BRIM_NUMERICS_DEFAULT;
    desc.executor.kind = BRIM_EXECUTOR_CUDA;
    assert_int_equal(brim_runner_create(&runner, t.f.ctx, t.f.llm, &desc), BRIM_USAGE);
    assert_string_equal(brim_last_id(), "runner.executor");
    twice_close(&t);
}

/* The made file's bytes; to be freed. */
static uint8_t *made_bytes(size_t *out_size, brim_context *ctx)
{
    char path[] = "/tmp/brim-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    brim_make_desc desc = brim_make_desc_default();
    desc.shape = "smollm2-135m";
    desc.type = "Q8_0";
    desc.layer_count = 1;
    desc.vocab_size = VOCAB;
    assert_ok(brim_make(ctx, path, &desc));
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    uint8_t *data = malloc((size_t)s.st_size);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *out_size = fread(data, 1, (size_t)s.st_size, file);
    assert_int_equal(*out_size, s.st_size);
    fclose(file);
    close(fd);
    unlink(path);
    return data;
}

static void what_the_ops_lack_is_refused_by_name(void **state)
{
    (void)state;
    brim_context *ctx;
    brim_model_file *file;
    brim_device *device;
    brim_llm *llm;
    size_t size;
    assert_ok(brim_context_create(&ctx, NULL));
    uint8_t *data = made_bytes(&size, ctx);
    assert_ok(brim_model_file_open_memory(&file, ctx, data, size));
    const brim_meta *meta = brim_model_file_meta(file, "llama.rope.dimension_count");
    assert_non_null(meta);
    uint32_t half = 32;
    memcpy(data + meta->file_offset, &half, sizeof half);
    assert_ok(brim_device_open(&device, ctx, BRIM_DEVICE_CPU));
    brim_llm_desc desc = brim_llm_desc_default();
    desc.device = device;
    assert_int_equal(brim_llm_create(&llm, ctx, file, &desc), BRIM_UNSUPPORTED);
    assert_string_equal(brim_last_id(), "resident.model");
    assert_non_null(strstr(brim_last_message(), "RoPE"));
    assert_non_null(strstr(brim_last_message(), "--device cpu"));
    desc.device = NULL;
    assert_ok(brim_llm_create(&llm, ctx, file, &desc));
    brim_llm_destroy(llm);
    brim_device_close(device);
    brim_model_file_close(file);
    free(data);
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
}

static void missing_memory_is_said_before_anything_is_copied(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f, "smollm2-135m", "F16", 2);
    brim_device *dummy; /* of 1 GiB */
    brim_llm *llm;
    assert_ok(brim_device_open(&dummy, f.ctx, BRIM_DEVICE_DUMMY));
    brim_llm_desc desc = brim_llm_desc_default();
    desc.device = dummy;
    desc.context = 1 << 20; /* 1.5 GiB of KV cache: 2 layers, 3 heads of 64, K and V, 2 bytes */
    assert_int_equal(brim_llm_create(&llm, f.ctx, f.file, &desc), BRIM_NO_MEMORY);
    assert_string_equal(brim_last_id(), "resident.memory");
    assert_non_null(strstr(brim_last_message(), "KV cache 1.50"));
    assert_non_null(strstr(brim_last_message(), "1.00 are free"));
    assert_true(brim_device_dummy_calls(dummy) <= 2); /* what it is, how much is there */
    desc.context = 4096;
    assert_ok(brim_llm_create(&llm, f.ctx, f.file, &desc));
    brim_llm_destroy(llm);
    brim_device_close(dummy);
    fixture_close(&f);
}

static void a_device_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f, "smollm2-135m", "Q8_0", 1);
    uint64_t before = brim_context_bytes(f.ctx);
    brim_device *dummy;
    brim_llm *llm;
    assert_ok(brim_device_open(&dummy, f.ctx, BRIM_DEVICE_DUMMY));
    brim_llm_desc desc = brim_llm_desc_default();
    desc.device = dummy;
    uint64_t failed = 0;
    for (;; failed++) {
        assert_ok(brim_device_dummy_fail_at(dummy, failed + 1));
        brim_status status = brim_llm_create(&llm, f.ctx, f.file, &desc);
        if (status == BRIM_OK)
            break;
        assert_int_equal(status, BRIM_SYSTEM);
        assert_string_equal(brim_last_id(), "device.dummy");
    }
    assert_true(failed > 5);
    assert_ok(brim_device_dummy_fail_at(dummy, 0));
    brim_llm_destroy(llm);
    brim_device_close(dummy);
    assert_int_equal(brim_context_bytes(f.ctx), before);
    fixture_close(&f);
}

static void an_allocation_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f, "smollm2-135m", "F16", 1);
    brim_device *device;
    assert_ok(brim_device_open(&device, f.ctx, BRIM_DEVICE_CPU));
    uint64_t before = brim_context_bytes(f.ctx), failed = 0;
    brim_llm_desc desc = brim_llm_desc_default();
    desc.device = device;
    desc.threads = 1;
    brim_runner_desc runner_desc = brim_runner_desc_default();
    runner_desc.lanes = 1;
    runner_desc.context = 64;
    brim_runner *runner = NULL;
    brim_llm *llm = NULL;
    for (brim_status status = BRIM_NO_MEMORY; status != BRIM_OK; failed++) {
        brim__memory_fail_at(f.ctx, failed + 1);
        status = brim_llm_create(&llm, f.ctx, f.file, &desc);
        if (status == BRIM_OK)
            status = brim_runner_create(&runner, f.ctx, llm, &runner_desc);
        brim__memory_fail_at(f.ctx, 0);
        if (status == BRIM_OK)
            break;
        assert_int_equal(status, BRIM_NO_MEMORY);
        brim_llm_destroy(llm);
        llm = NULL;
        assert_int_equal(brim_context_bytes(f.ctx), before);
    }
    assert_true(failed > 100);
    brim_runner_destroy(runner);
    brim_llm_destroy(llm);
    brim_device_close(device);
    fixture_close(&f);
}

/* ---- the real model ---- */

static void smollm2_is_within_1e_3_of_float64(void **state)
{
    (void)state;
    enum { POSITIONS = 64, USED = 24 };
    if (SANITIZED || !real_model()) {
        print_message("skipped: %s\n", SANITIZED ? "a sanitizer makes it slow" : "no model");
        skip();
    }
    twice t;
    brim_token ids[POSITIONS];
    assert_ok(brim_context_create(&t.f.ctx, NULL));
    assert_ok(brim_model_file_open(&t.f.file, t.f.ctx, real_model()));
    t.f.llm = NULL;
    add_resident(&t);
    assert_int_equal(read_ids(ids, POSITIONS, "smollm2-135m.ids"), POSITIONS);
    brim_runner *runner =
        make_runner(&t, t.resident, &(how){.context = 128, .kind = BRIM_EXECUTOR_CPU}, 1);
    brim_session *session;
    assert_ok(brim_session_create(&session, runner));
    uint32_t vocab = brim_llm_config(t.resident)->vocab_size, header[2];
    collected c = {malloc(4 * (size_t)USED * vocab), vocab, 0};
    assert_ok(brim_session_feed(session, ids, USED, collect, &c));
    gzFile file = gzopen(BRIM_SOURCE_DIR "/test/golden/smollm2-135m.logits.u16.gz", "rb");
    assert_non_null(file);
    char magic[8];
    assert_int_equal(gzread(file, magic, 8), 8);
    assert_int_equal(gzread(file, header, 8), 8);
    assert_int_equal(header[1], vocab);
    uint8_t *row = malloc(8 + 2 * (size_t)vocab);
    float *p = malloc(4 * (size_t)vocab);
    double kl = 0;
    for (uint32_t i = 0; i < USED; i++) {
        float hi, step;
        assert_int_equal(gzread(file, row, 8 + 2 * vocab), 8 + 2 * (int)vocab);
        memcpy(&hi, row, 4);
        memcpy(&step, row + 4, 4);
        for (uint32_t k = 0; k < vocab; k++) {
            float code = (float)(row[8 + k] + 256 * row[8 + vocab + k]);
            p[k] = hi - step * code * code;
        }
        kl += kl_of(p, c.logits + (size_t)i * vocab, vocab) / USED;
    }
    print_message("smollm2-135m: mean KL %.2e\n", kl);
    assert_true(kl < 1e-3);
    gzclose(file);
    free(row);
    free(p);
    free(c.logits);
    brim_session_destroy(session);
    brim_runner_destroy(runner);
    twice_close(&t);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(bits_do_not_depend_on_lanes_rows_chunks_and_programs),
        cmocka_unit_test(greedy_tokens_are_the_exact_paths),
        cmocka_unit_test(a_chain_that_reaches_a_long_context_goes_on_with_the_same_bits),
        cmocka_unit_test(a_hash_is_that_of_the_logits),
        cmocka_unit_test(sessions_decoded_together_get_what_each_gets_alone),
        cmocka_unit_test(numerics_of_the_other_kind_are_refused),
        cmocka_unit_test(what_the_ops_lack_is_refused_by_name),
        cmocka_unit_test(missing_memory_is_said_before_anything_is_copied),
        cmocka_unit_test(a_device_that_fails_leaves_nothing_behind),
        cmocka_unit_test(an_allocation_that_fails_leaves_nothing_behind),
        cmocka_unit_test(smollm2_is_within_1e_3_of_float64),
    };
    enum { OTHER_COUNT = sizeof others / sizeof *others };
    struct CMUnitTest tests[NEAR_COUNT + OTHER_COUNT];
    for (size_t i = 0; i < NEAR_COUNT; i++)
        tests[i] = (struct CMUnitTest){.name = near_cases[i].claim,
                                       .test_func = check_near,
                                       .initial_state = (void *)&near_cases[i]};
    memcpy(tests + NEAR_COUNT, others, sizeof others);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
