/* test_bits.c: the bits of logits are a function of the tokens alone: not of lanes, of how a prompt
 * is split into steps, of the other sessions in a step, of pieces done twice, of the executor or
 * of the instruction set. */
#include "llm/llm_fixture.h"

#include "base/hash.h"
#include "base/rng.h"
#include "base/thread.h"

enum { PROMPT = 75, ANSWER = 20, VOCAB = 512 };

/* Sanitizers make plain C bodies some fifty times slower; what they would find in them does not
 * depend on whole models (test_kernels.c). */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static brim_token prompt_token(uint32_t stream, uint32_t i)
{
    return (brim_token)brim__random_below(99, stream, i, VOCAB);
}

typedef struct setup {
    uint32_t lanes, rows, sessions, redo_per_mille;
    brim_executor_kind kind;
    brim_numerics numerics;
    uint64_t seed;
    brim_isa isa;
    bool check_tables;
} setup;

static setup plain(void)
{
    return (setup){.lanes = 2, .rows = 64, .sessions = 1, .isa = brim_isa_best()};
}

static brim_runner *create_runner(const fixture *f, setup s)
{
    brim_runner_desc desc = brim_runner_desc_default();
    desc.lanes = s.lanes;
    desc.prefill_rows = s.rows;
    desc.sessions = s.sessions;
    desc.context = 384; /* more than one attention split */
    desc.numerics = s.numerics;
    desc.executor.kind = s.kind;
    desc.executor.isa = s.isa;
    desc.executor.seed = s.seed;
    desc.executor.redo_per_mille = s.redo_per_mille;
    desc.executor.check_tables = s.check_tables;
    brim_runner *runner;
    assert_ok(brim_runner_create(&runner, f->ctx, f->llm, &desc));
    return runner;
}

/* Feeds tokens [from, to) of a stream in one step and adds their logits to the hash. */
static void step(brim_runner *runner, brim_session *session, uint32_t stream, uint32_t from,
                 uint32_t to, uint64_t *hash)
{
    brim_row rows[128];
    const float *logits;
    size_t stride;
    for (uint32_t i = from; i < to; i++)
        rows[i - from] = (brim_row){session, prompt_token(stream, i), true};
    assert_ok(brim_runner_step(runner, rows, to - from, &logits, &stride));
    for (uint32_t i = 0; i < to - from; i++)
        *hash = brim__hash64(logits + i * stride, 4 * VOCAB, *hash);
}

/* Logits of a prompt fed in steps of step_rows (0: of random sizes), then of a greedy answer. */
static uint64_t run(const fixture *f, setup s, uint32_t step_rows)
{
    brim_runner *runner = create_runner(f, s);
    brim_session *session;
    uint64_t hash = 0;
    assert_ok(brim_session_create(&session, runner));
    for (uint32_t at = 0, n = 0; at < PROMPT; n++) {
        uint32_t rows =
            step_rows ? step_rows : 1 + (uint32_t)brim__random_below(s.seed, 5, n, s.rows);
        rows = rows < PROMPT - at ? rows : PROMPT - at;
        step(runner, session, 0, at, at + rows, &hash);
        at += rows;
    }
    brim_generate_desc desc = brim_generate_desc_default();
    brim_generate_stats stats;
    brim_token last = prompt_token(0, PROMPT);
    desc.sampling.temperature = 0;
    desc.max_tokens = ANSWER;
    desc.hash_logits = true;
    assert_ok(brim_session_generate(&stats, session, &last, 1, &desc));
    assert_int_equal(stats.tokens, ANSWER);
    assert_int_equal(brim_session_length(session), PROMPT + ANSWER);
    brim_session_destroy(session);
    brim_runner_destroy(runner);
    return brim__hash_mix(hash, stats.logits_hash);
}

static int make_small(void **state)
{
    static fixture f;
    fixture_make(&f, "smollm2-135m", "Q4_1", 3);
    *state = &f;
    return 0;
}

static int destroy(void **state)
{
    fixture_close(*state);
    return 0;
}

static void bits_do_not_depend_on_lanes(void **state)
{
    setup s = plain();
    uint64_t expected = run(*state, s, 64);
    for (s.lanes = 1; s.lanes <= 4; s.lanes++)
        assert_int_equal(run(*state, s, 64), expected);
}

static void bits_do_not_depend_on_how_a_prompt_is_split(void **state)
{
    setup s = plain();
    uint64_t expected = run(*state, s, 64);
    assert_int_equal(run(*state, s, 1), expected);
    assert_int_equal(run(*state, s, 8), expected);
    for (s.seed = 1; s.seed <= (SANITIZED ? 1 : 4); s.seed++)
        assert_int_equal(run(*state, s, 0), expected);
    s.rows = 128;
    assert_int_equal(run(*state, s, PROMPT), expected);
}

static void bits_do_not_depend_on_pieces_done_again(void **state)
{
    setup s = plain();
    uint64_t expected = run(*state, s, 64);
    s.lanes = 3;
    s.redo_per_mille = 500;
    for (s.seed = 1; s.seed <= (SANITIZED ? 1 : 3); s.seed++)
        assert_int_equal(run(*state, s, 64), expected);
    s.check_tables = true;
    assert_int_equal(run(*state, s, 64), expected);
}

static void bits_do_not_depend_on_the_executor_or_its_order(void **state)
{
    setup s = plain();
    uint64_t expected = run(*state, s, 64);
    s.kind = BRIM_EXECUTOR_REFERENCE;
    for (s.seed = 1; s.seed <= (SANITIZED ? 1 : 3); s.seed++)
        assert_int_equal(run(*state, s, 64), expected);
}

static void bits_do_not_depend_on_the_instruction_set(void **state)
{
    for (int numerics = 0; numerics <= (SANITIZED ? BRIM_NUMERICS_DEFAULT : BRIM_NUMERICS_EXACT);
         numerics++) {
        setup s = plain();
        s.numerics = (brim_numerics)numerics;
        uint64_t expected = run(*state, s, 64);
        s.isa = SANITIZED ? BRIM_ISA_AVX2 : BRIM_ISA_SCALAR;
        for (; s.isa < brim_isa_best(); s.isa++)
            assert_int_equal(run(*state, s, 64), expected);
    }
}

/* Sessions of different lengths, one step for all; each must give what it gives alone. */
static void check_together(const fixture *f, uint32_t count)
{
    setup s = plain();
    uint64_t alone[8] = {0}, together[8] = {0};
    uint32_t done[8] = {0};
    brim_session *sessions[8];
    for (uint32_t i = 0; i < count; i++) {
        brim_runner *runner = create_runner(f, s);
        assert_ok(brim_session_create(&sessions[0], runner));
        for (uint32_t at = 0; at < 10 + 7 * i; at++)
            step(runner, sessions[0], i, at, at + 1, &alone[i]);
        brim_session_destroy(sessions[0]);
        brim_runner_destroy(runner);
    }
    s.sessions = count;
    brim_runner *runner = create_runner(f, s);
    for (uint32_t i = 0; i < count; i++)
        assert_ok(brim_session_create(&sessions[i], runner));
    for (bool more = true; more;) {
        brim_row rows[64];
        uint32_t owner[64], n = 0;
        more = false;
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t k = 0; k < 1 + i % 3 && done[i] < 10 + 7 * i; k++, more = true) {
                owner[n] = i;
                rows[n++] = (brim_row){sessions[i], prompt_token(i, done[i]++), true};
            }
        const float *logits;
        size_t stride;
        if (n)
            assert_ok(brim_runner_step(runner, rows, n, &logits, &stride));
        for (uint32_t i = 0; i < n; i++)
            together[owner[i]] = brim__hash64(logits + i * stride, 4 * VOCAB, together[owner[i]]);
    }
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(together[i], alone[i]);
        brim_session_destroy(sessions[i]);
    }
    brim_runner_destroy(runner);
}

static void bits_do_not_depend_on_other_sessions_in_the_step(void **state)
{
    check_together(*state, 1);
    check_together(*state, 2);
    check_together(*state, 7);
}

static void several_sessions_decode_as_each_alone(void **state)
{
    const fixture *f = *state;
    setup s = plain();
    s.sessions = 5;
    brim_token alone[5][12], together[12 * 5], first[5];
    brim_session *sessions[5];
    brim_generate_desc desc = brim_generate_desc_default();
    desc.sampling.seed = 11;
    uint32_t steps;
    for (uint32_t i = 0; i < 5; i++) {
        brim_runner *runner = create_runner(f, s);
        uint64_t hash = 0;
        assert_ok(brim_session_create(&sessions[0], runner));
        step(runner, sessions[0], i, 0, 5 + i, &hash);
        first[i] = prompt_token(i, 5 + i);
        assert_ok(brim_runner_decode(alone[i], &steps, runner, sessions, &first[i], 1, 12, &desc));
        assert_int_equal(steps, 12);
        brim_session_destroy(sessions[0]);
        brim_runner_destroy(runner);
    }
    brim_runner *runner = create_runner(f, s);
    for (uint32_t i = 0; i < 5; i++) {
        uint64_t hash = 0;
        assert_ok(brim_session_create(&sessions[i], runner));
        step(runner, sessions[i], i, 0, 5 + i, &hash);
    }
    assert_ok(brim_runner_decode(together, &steps, runner, sessions, first, 5, 12, &desc));
    assert_int_equal(steps, 12);
    for (uint32_t n = 0; n < 12; n++)
        for (uint32_t i = 0; i < 5; i++)
            assert_int_equal(together[n * 5 + i], alone[i][n]);
    for (uint32_t i = 0; i < 5; i++)
        brim_session_destroy(sessions[i]);
    brim_runner_destroy(runner);
}

/* ---- sessions ---- */

static bool stop_after_five(const brim_generated *generated, void *user)
{
    (void)generated;
    return ++*(uint32_t *)user < 5;
}

static void tokens_that_ran_past_a_stop_are_forgotten(void **state)
{
    const fixture *f = *state;
    setup s = plain();
    brim_runner *runner = create_runner(f, s);
    brim_session *session;
    uint32_t seen = 0;
    assert_ok(brim_session_create(&session, runner));
    brim_generate_desc desc = brim_generate_desc_default();
    brim_generate_stats stats;
    desc.sampling.temperature = 0;
    desc.token = stop_after_five;
    desc.user = &seen;
    brim_token prompt[3] = {1, 2, 3};
    assert_ok(brim_session_generate(&stats, session, prompt, 3, &desc));
    assert_int_equal(stats.tokens, 5);
    assert_int_equal(brim_session_length(session), 3 + 4);
    /* What follows is what it would have been. */
    uint64_t after = 0, expected = 0;
    step(runner, session, 0, 0, 4, &after);
    brim_token tokens[7];
    for (uint32_t i = 0; i < 7; i++)
        tokens[i] = brim_session_token(session, i);
    assert_ok(brim_session_truncate(session, 0));
    assert_ok(brim_session_feed(session, tokens, 7, NULL, NULL));
    step(runner, session, 0, 0, 4, &expected);
    assert_int_equal(after, expected);
    brim_session_destroy(session);
    brim_runner_destroy(runner);
}

typedef struct canceller {
    brim_runner *runner;
    uint64_t after_ns;
} canceller;

static void cancel_later(void *user)
{
    canceller *c = user;
    uint64_t until = brim__now_ns() + c->after_ns;
    while (brim__now_ns() < until)
        brim__cpu_pause();
    brim_runner_cancel(c->runner);
}

static void a_cancel_at_any_moment_leaves_the_next_answer_right(void **state)
{
    const fixture *f = *state;
    setup s = plain();
    brim_runner *runner = create_runner(f, s);
    brim_session *session;
    uint64_t expected = 0;
    assert_ok(brim_session_create(&session, runner));
    step(runner, session, 0, 0, 40, &expected);
    brim_generate_desc desc = brim_generate_desc_default();
    desc.sampling.temperature = 0;
    for (uint32_t n = 0; n < (SANITIZED ? 8 : 30); n++) {
        brim_generate_stats stats;
        brim__thread *thread;
        canceller c = {runner, brim__random_below(3, 0, n, 4000000)};
        brim_token prompt[2] = {5, 6};
        uint32_t before = brim_session_length(session);
        assert_ok(brim__thread_start(&thread, f->ctx, "cancel", cancel_later, &c));
        brim_status status = brim_session_generate(&stats, session, prompt, 2, &desc);
        brim__thread_join(thread, f->ctx);
        assert_true(status == BRIM_OK || status == BRIM_CANCELLED);
        assert_true(brim_session_length(session) >= before);
        uint64_t hash = 0;
        assert_ok(brim_session_truncate(session, 0));
        step(runner, session, 0, 0, 40, &hash);
        assert_int_equal(hash, expected);
    }
    brim_session_destroy(session);
    brim_runner_destroy(runner);
}

static void a_full_context_is_an_error_and_shift_makes_room(void **state)
{
    const fixture *f = *state;
    brim_runner *runner = create_runner(f, plain());
    brim_session *session, *second;
    brim_token tokens[400];
    assert_ok(brim_session_create(&session, runner));
    assert_int_equal(brim_session_create(&second, runner), BRIM_LIMIT);
    assert_string_equal(brim_last_id(), "session.limit");
    for (uint32_t i = 0; i < 400; i++)
        tokens[i] = prompt_token(0, i);
    assert_int_equal(brim_session_feed(session, tokens, 385, NULL, NULL), BRIM_LIMIT);
    assert_string_equal(brim_last_id(), "session.full");
    assert_int_equal(brim_session_length(session), 0);
    assert_ok(brim_session_feed(session, tokens, 384, NULL, NULL));
    assert_int_equal(brim_session_feed(session, tokens, 1, NULL, NULL), BRIM_LIMIT);
    assert_ok(brim_session_shift(session, 10, 100));
    assert_int_equal(brim_session_length(session), 110);
    assert_int_equal(brim_session_token(session, 9), tokens[9]);
    assert_int_equal(brim_session_token(session, 10), tokens[284]);
    assert_int_equal(brim_session_token(session, 109), tokens[383]);
    brim_row row = {session, VOCAB, true};
    assert_int_equal(brim_runner_step(runner, &row, 1, NULL, NULL), BRIM_USAGE);
    brim_session_destroy(session);
    brim_runner_destroy(runner);
}

/* ---- other architectures and types: the same properties, fewer cases ---- */

static void check_model(const char *shape, const char *type, uint32_t layers)
{
    fixture f;
    fixture_make(&f, shape, type, layers);
    for (int numerics = 0; numerics <= BRIM_NUMERICS_EXACT; numerics++) {
        setup s = plain();
        s.numerics = (brim_numerics)numerics;
        uint64_t expected = run(&f, s, 64);
        s.lanes = 3;
        assert_int_equal(run(&f, s, 1), expected);
        s.kind = BRIM_EXECUTOR_REFERENCE;
        s.seed = 4;
        assert_int_equal(run(&f, s, 0), expected);
    }
    fixture_close(&f);
}

static void every_architecture_and_type_keeps_its_bits(void **state)
{
    (void)state;
    static const char *const types[] = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_0", "Q5_1"};
    if (SANITIZED) {
        check_model("smollm2-135m", "Q8_0", 1);
        return;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        check_model("smollm2-135m", types[i], 1);
    check_model("qwen2.5-0.5b", "Q4_1", 1);
    check_model("qwen3-0.6b", "Q6_K", 1);
    check_model("llama-3.2-1b", "Q4_K", 1);
    check_model("qwen3-0.6b", "Q5_K", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_lanes),
        cmocka_unit_test(bits_do_not_depend_on_how_a_prompt_is_split),
        cmocka_unit_test(bits_do_not_depend_on_pieces_done_again),
        cmocka_unit_test(bits_do_not_depend_on_the_executor_or_its_order),
        cmocka_unit_test(bits_do_not_depend_on_the_instruction_set),
        cmocka_unit_test(bits_do_not_depend_on_other_sessions_in_the_step),
        cmocka_unit_test(several_sessions_decode_as_each_alone),
        cmocka_unit_test(tokens_that_ran_past_a_stop_are_forgotten),
        cmocka_unit_test(a_cancel_at_any_moment_leaves_the_next_answer_right),
        cmocka_unit_test(a_full_context_is_an_error_and_shift_makes_room),
        cmocka_unit_test(every_architecture_and_type_keeps_its_bits),
    };
    return cmocka_run_group_tests(tests, make_small, destroy);
}
