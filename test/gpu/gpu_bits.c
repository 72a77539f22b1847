/* gpu_bits.c MODEL [options]: a row's logits have the same bits on a CUDA device whatever happens
 * around it: run after run, number of lanes, rows of the step, kind of program, pieces of the
 * prompt, size of the ring, pauses of lanes, and what memory held before. A program, no unit test.
 *
 *   --repeats N   runs of the fixed prompt (default 5)
 *   --tokens N    tokens after it (default 64)
 *   --steps N     steps with random pauses of lanes (default 10,000)
 *   --json FILE, --cpu (gpu_claims.h)
 *
 * Bits are compared as hashes of whole rows of logits. */
#include "device/cuda.h"
#include "gpu/gpu_claims.h"

enum {
    PROMPT = 100, /* so that positions cross 128, where attention's splits meet */
    CONTEXT = 640,
    SESSIONS = BRIM_DECODE_ROWS,
    FED = 300,
    ROUND = 250, /* tokens of an answer with pauses */
    CHAIN = 64,  /* steps of one launch */
};

static struct {
    const char *path, *json;
    uint32_t repeats, tokens, steps;
    bool cpu;
} options = {.repeats = 5, .tokens = 64, .steps = 10000};

static place at;
static question fixed; /* the prompt that all ways are asked */
static answer expected;

/* ---- one session, many ways ---- */

static brim_session *session_of(brim_runner *r)
{
    brim_session *session;
    MUST(brim_session_create(&session, r));
    return session;
}

static void run_after_run(void)
{
    brim_runner_desc desc = desc_of(CONTEXT, 1, 0);
    brim_runner *r = runner_open(&at, &desc);
    brim_session *session = session_of(r);
    uint32_t same = 0;
    uint64_t next = 0;
    answer *a = malloc(sizeof *a);
    for (uint32_t n = 0; n < options.repeats; n++) {
        MUST(ask(n ? a : &expected, session, &at, &fixed));
        same += n == 0 || same_answer(a, &expected, true);
        next = hash_next(session, expected.tokens[expected.count - 1]);
        /* Another text in the same buffers. */
        question other = {.prompt = 1000 + n, .length = 30 + 41 * n % 300, .tokens = 40};
        MUST(ask(a, session, &at, &other));
    }
    claim(same == options.repeats, "run_after_run",
          "%u of %u runs with others between gave %016llx, %u tokens", same, options.repeats,
          (unsigned long long)hash_of(&expected), expected.count);
    question chained = fixed;
    chained.hashed = false; /* a launch a step when logits are hashed */
    MUST(ask(a, session, &at, &chained));
    claim(same_answer(a, &expected, false) &&
              hash_next(session, expected.tokens[expected.count - 1]) == next,
          "chained", "tokens and the logits after them, %d steps a launch", CHAIN);
    free(a);
    brim_session_destroy(session);
    brim_runner_destroy(r);
}

/* The fixed prompt's answer on another runner. */
static void asked_of(const brim_runner_desc *desc, uint32_t long_from, const char *name,
                     const char *how)
{
    brim_runner *r = runner_open(&at, desc);
    if (long_from)
        r->long_from = long_from;
    brim_session *session = session_of(r);
    answer *a = malloc(sizeof *a);
    MUST(ask(a, session, &at, &fixed));
    uint32_t first = 0;
    while (first < a->count && a->hashes[first] == expected.hashes[first])
        first++;
    bool good = same_answer(a, &expected, true);
    claim(good, name, "%s: %016llx, %u of %u rows of logits alike", how,
          (unsigned long long)hash_of(a), first, a->count);
    free(a);
    brim_session_destroy(session);
    brim_runner_destroy(r);
}

static void other_lanes(void)
{
    static const uint32_t lanes[2][5] = {{33, 66, 100, 132}, {1, 2, 3, 5, 16}};
    for (int i = 0; i < 5; i++) {
        uint32_t n = lanes[options.cpu][i];
        if (n == 0 || n > at.lanes_max)
            continue;
        char name[32];
        snprintf(name, sizeof name, "lanes_%u", n);
        brim_runner_desc desc = desc_of(CONTEXT, 1, n);
        asked_of(&desc, 0, name, "other number of lanes");
    }
}

static void other_programs(void)
{
    brim_runner_desc desc = desc_of(CONTEXT, 1, 0);
    desc.long_programs = true;
    asked_of(&desc, 0, "long_programs", "programs for long contexts at every position");
    desc.long_programs = false;
    desc.context = 2048;
    asked_of(&desc, 0, "larger_context", "a pool for 2,048 positions");
    asked_of(&desc, PROMPT + 20, "programs_change", "the long programs take over in the answer");
    desc.context = CONTEXT;
    desc.executor.ring_bytes = 4 * 16384;
    asked_of(&desc, 0, "ring_of_4", "four slots for weights on their way");
    desc.executor.ring_bytes = 5 * 16384;
    asked_of(&desc, 0, "ring_of_5", "five slots");
    desc.executor.ring_bytes = 0;
    desc.executor.trace_events = 64;
    asked_of(&desc, 0, "traced", "with a trace");
}

/* What others left in memory. The value that packets have when they are empty, legal values, and
 * floats that are no numbers. */
static void other_data_before(void)
{
    static const uint32_t words[] = {0xffffffffu, 0x3c003c00u, 0x7fc07fc0u};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        brim_device_memory *memory;
        brim_device_info info;
        MUST(brim_device_query(&info, at.device));
        size_t size = options.cpu ? 1 << 20 : (size_t)1 << 31;
        if (info.memory_free_bytes && size > info.memory_free_bytes / 2)
            size = info.memory_free_bytes / 2 / 4 * 4;
        MUST(brim_device_alloc(&memory, at.device, size));
        if (!options.cpu) {
            MUST(brim__cuda_fill_async(at.device, BRIM__CUDA_PROGRAMS,
                                       brim__cuda_address_of(memory), words[i], size));
            MUST(brim__cuda_synchronize(at.device, BRIM__CUDA_PROGRAMS));
        }
        brim_device_free(memory);
        char name[40];
        snprintf(name, sizeof name, "memory_that_held_%08x", words[i]);
        brim_runner_desc desc = desc_of(CONTEXT, 1, 0);
        asked_of(&desc, 0, name, "a new runner");
    }
}

/* ---- the prompt in pieces ---- */

typedef struct fed {
    uint64_t hashes[FED];
    uint32_t count;
} fed;

static bool take_fed(uint32_t position, const float *logits, void *user)
{
    fed *f = user;
    f->hashes[position] = brim__hash64(logits, 4 * (size_t)at.vocab, 0);
    f->count++;
    return true;
}

static void fed_in_pieces(void)
{
    static const uint32_t pieces[] = {1, 8, 5, 3};
    brim_runner_desc desc = desc_of(CONTEXT, 1, 0);
    brim_runner *r = runner_open(&at, &desc);
    brim_session *session = session_of(r);
    brim_token tokens[FED];
    static fed one, other;
    make_prompt(tokens, &at, 5, FED);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        fed *f = i ? &other : &one;
        f->count = 0;
        MUST(brim_session_truncate(session, 0));
        for (uint32_t n = 0; n < FED; n += pieces[i]) {
            uint32_t left = FED - n;
            MUST(brim_session_feed(session, tokens + n, left < pieces[i] ? left : pieces[i],
                                   take_fed, f));
        }
        uint32_t same = 0;
        while (same < FED && f->hashes[same] == one.hashes[same])
            same++;
        if (i)
            claim(same == FED && f->count == FED, i == 1 ? "prompt_in_eights" : "prompt_in_pieces",
                  "%u tokens at a time: %u of %u positions as one at a time", pieces[i], same, FED);
    }
    brim_session_destroy(session);
    brim_runner_destroy(r);
}

/* ---- rows of other sessions ---- */

typedef struct together {
    brim_runner *runner;
    brim_session *sessions[SESSIONS];
    question questions[SESSIONS];
    answer *alone; /* (session) */
} together;

static void together_open(together *t, uint32_t lanes)
{
    static const uint32_t lengths[SESSIONS] = {1, 5, 120, 127, 128, 129, 250, 77};
    brim_runner_desc desc = desc_of(CONTEXT, SESSIONS, lanes);
    t->runner = runner_open(&at, &desc);
    t->alone = malloc(SESSIONS * sizeof *t->alone);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        t->sessions[i] = session_of(t->runner);
        t->questions[i] = (question){
            .prompt = 20 + i, .length = lengths[i], .tokens = options.tokens, .hashed = true};
        MUST(ask(&t->alone[i], t->sessions[i], &at, &t->questions[i]));
    }
}

static void together_close(together *t)
{
    for (uint32_t i = 0; i < SESSIONS; i++)
        brim_session_destroy(t->sessions[i]);
    brim_runner_destroy(t->runner);
    free(t->alone);
}

/* All of the prompt but its last token. */
static brim_token feed_again(const together *t, uint32_t i)
{
    brim_token prompt[ANSWER_MAX];
    const question *q = &t->questions[i];
    make_prompt(prompt, &at, q->prompt, q->length);
    MUST(brim_session_truncate(t->sessions[i], 0));
    MUST(brim_session_feed(t->sessions[i], prompt, q->length - 1, NULL, NULL));
    return prompt[q->length - 1];
}

static void rows_together(const together *t, uint32_t rows)
{
    brim_row step[SESSIONS];
    uint32_t wrong = 0, first_row = 0, first_token = 0;
    for (uint32_t i = 0; i < rows; i++)
        step[i] = (brim_row){t->sessions[i], feed_again(t, i), true};
    for (uint32_t n = 0; n < options.tokens; n++) {
        const float *logits;
        size_t stride;
        MUST(brim_runner_step(t->runner, step, rows, &logits, &stride));
        for (uint32_t i = 0; i < rows; i++) {
            const answer *a = &t->alone[i];
            bool same = brim__hash64(logits + i * stride, 4 * stride, 0) == a->hashes[n];
            if (!same && !wrong) {
                first_row = i;
                first_token = n;
            }
            wrong += !same;
            step[i].token = a->tokens[n];
        }
    }
    char name[32];
    snprintf(name, sizeof name, "%u_rows_as_alone", rows);
    claim(wrong == 0, name, "%u of %u rows of logits differ (first: row %u, token %u)", wrong,
          rows * options.tokens, first_row, first_token);
}

/* Tokens that are alike; *out_next is of the logits of all rows after them. */
static uint32_t decoded_as_alone(const together *t, uint64_t *out_next)
{
    brim_token *out = malloc(sizeof *out * SESSIONS * options.tokens), last[SESSIONS];
    uint32_t made;
    for (uint32_t i = 0; i < SESSIONS; i++)
        last[i] = feed_again(t, i);
    brim_generate_desc desc = generate_desc(&t->questions[0]);
    MUST(brim_runner_decode(out, &made, t->runner, t->sessions, last, SESSIONS, options.tokens,
                            &desc));
    uint32_t same = 0;
    brim_row step[SESSIONS];
    const float *logits;
    size_t stride;
    for (uint32_t n = 0; n < made; n++)
        for (uint32_t i = 0; i < SESSIONS; i++)
            same += out[n * SESSIONS + i] == t->alone[i].tokens[n];
    for (uint32_t i = 0; i < SESSIONS; i++)
        step[i] = (brim_row){t->sessions[i], t->alone[i].tokens[options.tokens - 1], true};
    MUST(brim_runner_step(t->runner, step, SESSIONS, &logits, &stride));
    *out_next = brim__hash64(logits, 4 * SESSIONS * stride, 0);
    free(out);
    return same;
}

static void many_rows(void)
{
    static const uint32_t rows[] = {8, 5, 2};
    together t;
    together_open(&t, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        rows_together(&t, rows[i]);
    uint64_t next;
    uint32_t same = decoded_as_alone(&t, &next);
    claim(same == SESSIONS * options.tokens, "decoded_together",
          "%u of %u tokens of %u sessions as alone", same, SESSIONS * options.tokens, SESSIONS);
    together_close(&t);
}

/* ---- pauses ---- */

typedef struct paused {
    answer answer;
    brim_runner *runner;
    uint32_t seed;
} paused;

/* A chain has the seed that stands there when it is launched: each gets its own. */
static bool take_paused(const brim_generated *g, void *user)
{
    paused *p = user;
    if (p->answer.count % (CHAIN / 2) == 0 && p->seed)
        plant(p->runner, 0, 0, ++p->seed);
    return take_answer(g, &p->answer);
}

/* The answer's tokens and the logits that follow them. */
static uint64_t ask_paused(paused *p, brim_session *session, const question *q)
{
    brim_token prompt[ANSWER_MAX];
    brim_generate_stats stats;
    make_prompt(prompt, &at, q->prompt, q->length);
    brim_generate_desc desc = generate_desc(q);
    desc.token = take_paused;
    desc.user = p;
    p->answer.count = 0;
    MUST(brim_session_truncate(session, 0));
    MUST(brim_session_generate(&stats, session, prompt, q->length, &desc));
    uint64_t next = hash_next(session, p->answer.tokens[p->answer.count - 1]);
    return brim__hash64(p->answer.tokens, p->answer.count * sizeof *p->answer.tokens, next);
}

static void lanes_that_pause(void)
{
    enum { TEXTS = 4 };
    brim_runner_desc desc = desc_of(CONTEXT, 1, 0);
    paused *p = calloc(1, sizeof *p);
    p->runner = runner_open(&at, &desc);
    brim_session *session = session_of(p->runner);
    question texts[TEXTS];
    uint64_t quiet[TEXTS];
    for (uint32_t i = 0; i < TEXTS; i++) {
        texts[i] = (question){
            .prompt = 40 + i, .length = 9 + 31 * i, .tokens = ROUND, .drawn = i % 2 == 0};
        quiet[i] = ask_paused(p, session, &texts[i]);
    }
    uint32_t rounds = (options.steps + ROUND - 1) / ROUND, same = 0;
    p->seed = 1;
    for (uint32_t n = 0; n < rounds; n++) {
        plant(p->runner, 0, 0, ++p->seed);
        same += ask_paused(p, session, &texts[n % TEXTS]) == quiet[n % TEXTS];
    }
    claim(same == rounds, "pauses_of_lanes",
          "%u of %u answers of %d chained steps, %u seeds: tokens and last logits as without", same,
          rounds, ROUND, p->seed);
    brim_session_destroy(session);
    brim_runner_destroy(p->runner);
    free(p);
}

static void lanes_that_pause_with_8_rows(void)
{
    together t;
    together_open(&t, 0);
    uint32_t rounds = options.steps / 10 / options.tokens + 1, same = 0;
    uint64_t quiet, next;
    decoded_as_alone(&t, &quiet);
    for (uint32_t n = 0; n < rounds; n++) {
        plant(t.runner, 0, 0, 7001 + n);
        same += decoded_as_alone(&t, &next) == SESSIONS * options.tokens && next == quiet;
    }
    claim(same == rounds, "pauses_of_lanes_8_rows",
          "%u of %u times %u steps of %u rows: tokens as alone, last logits as without", same,
          rounds, options.tokens, SESSIONS);
    together_close(&t);
}

int main(int argc, char **argv)
{
    const option_desc known[] = {
        {.name = "--repeats", .number = &options.repeats},
        {.name = "--tokens", .number = &options.tokens},
        {.name = "--steps", .number = &options.steps},
        {.name = "--json", .text = &options.json},
        {.name = "--cpu", .flag = &options.cpu},
    };
    if (!read_options(&options.path, known, sizeof known / sizeof *known, argc, argv) ||
        options.tokens == 0 || options.tokens > 300 || options.repeats == 0) {
        fprintf(stderr, "usage: gpu_bits MODEL [--repeats N] [--tokens 1..300] [--steps N] "
                        "[--json FILE] [--cpu]\n");
        return 2;
    }
    claims_begin("gpu_bits", options.json, options.path);
    place_open(&at, options.path, options.cpu);
    fixed = (question){.prompt = 1, .length = PROMPT, .tokens = options.tokens, .hashed = true};
    run_after_run();
    other_lanes();
    other_programs();
    other_data_before();
    fed_in_pieces();
    many_rows();
    lanes_that_pause();
    lanes_that_pause_with_8_rows();
    place_close(&at);
    return claims_end();
}
