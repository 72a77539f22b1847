/* gpu_stress.c MODEL [options]: the resident executor of a CUDA device when it is treated badly: a
 * process that keeps the GPU busy, hangs, cancels at any moment, rows that stop beside others, two
 * runners in turn. Texts must be those of a quiet run every time. A program, no unit test.
 *
 *   --tokens N      beside the busy process (default 10,000)
 *   --cancels N     of answers of one session (default 1,000)
 *   --cancel-us N   the latest moment of one (default 3,000)
 *   --rounds N      of 8 sessions, and of two runners (default 100)
 *   --hangs N       planted (default 6)
 *   --json FILE, --cpu (gpu_claims.h)
 *   --busy          (alone) what the other process does: see busy_process()
 */
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda.h"
#include "gpu/gpu_claims.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/probe_args.h"

enum {
    CONTEXT = 640,
    LONG_ANSWER = 500,
    SESSIONS = BRIM_DECODE_ROWS,
    STEPS = 96, /* of 8 sessions */
    HUNG_MS = 300,
    BUSY_FILL_BYTES = 256 << 20,
    BUSY_SECONDS_MAX = 120,
};

static struct {
    const char *path, *json;
    uint32_t tokens, cancels, cancel_us, rounds, hangs;
    bool cpu, busy;
} options = {.tokens = 10000, .cancels = 1000, .cancel_us = 3000, .rounds = 100, .hangs = 6};

static place at;

static void sleep_us(uint64_t us)
{
    struct timespec pause = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    nanosleep(&pause, NULL);
}

/* ---- the other process ---- */

typedef struct busy {
    brim_device *device;
    brim__cuda_module *module;
    brim__cuda_launch launch;
    brim_device_memory *memory;
    brim__probe_args args;
} busy;

static void busy_open(busy *b, brim_context *ctx)
{
    MUST(brim_device_open(&b->device, ctx, BRIM_DEVICE_CUDA));
    const brim__cuda_facts *facts = brim__cuda_facts_of(b->device);
    const brim__cuda_image *image = brim__cuda_image_find("probe", facts->capability, false);
    if (!image) {
        fprintf(stderr, "gpu_stress --busy: there is no image of the probes for this GPU\n");
        exit(1);
    }
    MUST(brim__cuda_module_load(&b->module, b->device, image->data, image->name));
    MUST(brim__cuda_module_function(&b->launch.function, b->module, "probe_f32"));
    MUST(brim_device_alloc(&b->memory, b->device, BUSY_FILL_BYTES));
    b->launch.threads = BRIM__PROBE_THREADS;
    b->launch.blocks = 4 * facts->sm_count;
    b->args.words = brim__cuda_address_of(b->memory);
    b->args.repeat = 2000; /* about a millisecond */
}

static void busy_once(busy *b, uint32_t n)
{
    MUST(brim__cuda_launch_kernel(b->device, &b->launch, &b->args, sizeof b->args));
    MUST(brim__cuda_fill_async(b->device, BRIM__CUDA_PROGRAMS, brim__cuda_address_of(b->memory), n,
                               BUSY_FILL_BYTES));
    MUST(brim__cuda_synchronize(b->device, BRIM__CUDA_PROGRAMS));
}

/* Reads from its input: 'b': work until the next letter; 's': say how many launches that was; the
 * end: go. Ends in any case after some time. */
static int busy_process(void)
{
    brim_context *ctx;
    busy b = {0};
    MUST(brim_context_create(&ctx, NULL));
    busy_open(&b, ctx);
    uint64_t deadline = brim__now_ns() + BUSY_SECONDS_MAX * 1000000000ull;
    uint32_t launches = 0;
    bool works = false;
    while (brim__now_ns() < deadline) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        char letter = 0;
        if (poll(&input, 1, works ? 0 : 1000) > 0) {
            if (read(STDIN_FILENO, &letter, 1) != 1)
                break;
            works = letter == 'b';
            if (letter == 's' && write(STDOUT_FILENO, &launches, sizeof launches) < 0)
                break;
            launches = 0;
        }
        if (!works)
            continue;
        busy_once(&b, ++launches);
        if (launches == 1 && write(STDOUT_FILENO, &launches, sizeof launches) < 0)
            break;
    }
    brim_device_free(b.memory);
    brim__cuda_module_unload(b.module);
    brim_device_close(b.device);
    brim_context_destroy(ctx);
    return 0;
}

typedef struct other_process {
    pid_t pid; /* 0: none */
    int to, from;
} other_process;

/* Before this process has touched the GPU. */
static other_process other_start(const char *self)
{
    other_process o = {0};
    int in[2], out[2];
    if (options.cpu || pipe(in) || pipe(out))
        return o;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, in[1]);
    posix_spawn_file_actions_addclose(&actions, out[0]);
    char *const arguments[] = {(char *)(uintptr_t)self, (char *)(uintptr_t) "--busy", NULL};
    extern char **environ;
    if (posix_spawn(&o.pid, "/proc/self/exe", &actions, NULL, arguments, environ) != 0)
        o.pid = 0;
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    o.to = in[1];
    o.from = out[0];
    return o;
}

/* A letter, and the number that it answers with; 0 when it does not. */
static uint32_t other_say(const other_process *o, char letter)
{
    uint32_t said = 0;
    if (!o->pid || write(o->to, &letter, 1) != 1 ||
        read(o->from, &said, sizeof said) != sizeof said)
        return 0;
    return said;
}

static void other_end(other_process *o)
{
    if (!o->pid)
        return;
    close(o->to);
    close(o->from);
    waitpid(o->pid, NULL, 0);
}

/* ---- beside a busy process ---- */

/* Answers of LONG_ANSWER tokens; *out_us: of a token. */
static uint64_t long_text(brim_session *session, double *out_us)
{
    answer *a = malloc(sizeof *a);
    uint64_t hash = 0, begun = brim__now_ns();
    uint32_t made = 0;
    for (uint32_t n = 0; made < options.tokens; n++) {
        question q = {.prompt = 100 + n,
                      .length = 1 + 37 * n % 90,
                      .tokens = LONG_ANSWER,
                      .drawn = n % 4 != 3};
        MUST(ask(a, session, &at, &q));
        hash = brim__hash64(a->tokens, a->count * sizeof *a->tokens, hash);
        hash = brim__hash_mix(hash, hash_next(session, a->tokens[a->count - 1]));
        made += a->count;
    }
    *out_us = (double)(brim__now_ns() - begun) / 1e3 / made;
    free(a);
    return hash;
}

static void beside_a_busy_process(brim_session *session, const other_process *other)
{
    double quiet_us, busy_us;
    uint64_t quiet = long_text(session, &quiet_us);
    uint32_t began = other_say(other, 'b');
    uint64_t loud = long_text(session, &busy_us);
    uint32_t launches = other_say(other, 's');
    claim(quiet == loud && (options.cpu || (began && launches > 1)), "busy_gpu",
          "%u tokens twice: %016llx in %.0f us a token, %016llx in %.0f us beside %u launches",
          options.tokens, (unsigned long long)quiet, quiet_us, (unsigned long long)loud, busy_us,
          launches);
}

/* ---- hangs ---- */

static brim_status decode_some(brim_session *const *sessions, uint32_t count, uint32_t steps)
{
    brim_token out[SESSIONS * 64], last[SESSIONS] = {1, 2, 3, 4, 5, 6, 7, 8};
    question q = {.prompt = 3, .length = 1, .tokens = steps};
    brim_generate_desc desc = generate_desc(&q);
    uint32_t made;
    return brim_runner_decode(out, &made, sessions[0]->runner, sessions, last, count, steps, &desc);
}

/* One planted hang: is it reported in time, with the lane and the step? */
static bool one_hang(brim_runner *r, brim_session *const *sessions, uint32_t count, uint32_t lane,
                     uint32_t step, char *out_text, size_t size)
{
    plant(r, lane + 1, step, 0);
    uint64_t begun = brim__now_ns();
    brim_status status = decode_some(sessions, count, 32);
    double ms = (double)(brim__now_ns() - begun) / 1e6;
    plant(r, 0, 0, 0);
    char wanted[80];
    snprintf(wanted, sizeof wanted, "in step %u: lane %u,", step, lane);
    const char *message = status == BRIM_OK ? "" : brim_last_message();
    snprintf(out_text, size, "after %.0f ms: %s", ms, message);
    return status == BRIM_REFUSED && strcmp(brim_last_id(), "run.hung") == 0 &&
           strstr(message, wanted) && strstr(message, "instruction") && ms < 2 * HUNG_MS;
}

static void planted_hangs(void)
{
    if (options.cpu)
        return;
    brim_runner_desc desc = desc_of(CONTEXT, SESSIONS, 0);
    desc.executor.watchdog_ms = HUNG_MS;
    brim_runner *r = runner_open(&at, &desc);
    brim_session *sessions[SESSIONS];
    for (uint32_t i = 0; i < SESSIONS; i++)
        MUST(brim_session_create(&sessions[i], r));
    question q = {.prompt = 4, .length = 20, .tokens = 64, .drawn = true};
    answer *expected = malloc(sizeof *expected), *a = malloc(sizeof *a);
    MUST(ask(expected, sessions[0], &at, &q));
    uint32_t lanes = brim_runner_lanes(r), right = 0;
    for (uint32_t n = 0; n < options.hangs; n++) {
        uint32_t lane = n < 2   ? 0
                        : n < 4 ? lanes - 1
                                : (uint32_t)brim__random_below(1, 0, n, lanes);
        char text[600];
        bool good = one_hang(r, sessions, n % 2 ? SESSIONS : 1, lane, 2 + n, text, sizeof text);
        claim(good, n % 2 ? "hang_is_reported_8_rows" : "hang_is_reported", "lane %u, step %u: %s",
              lane, 2 + n, text);
        MUST(ask(a, sessions[0], &at, &q));
        right += same_answer(a, expected, false);
    }
    claim(right == options.hangs, "after_a_hang", "%u of %u texts are right on the same runner",
          right, options.hangs);
    for (uint32_t i = 0; i < SESSIONS; i++)
        brim_session_destroy(sessions[i]);
    brim_runner_destroy(r);
    free(expected);
    free(a);
}

/* ---- cancels ---- */

typedef struct disturber {
    brim_runner *runner;
    uint32_t after_us;
    _Atomic uint32_t *mail; /* what is set instead of a cancel */
} disturber;

static void disturb(void *user)
{
    const disturber *d = user;
    sleep_us(d->after_us);
    if (d->mail)
        atomic_store(d->mail, 1);
    else
        brim_runner_cancel(d->runner);
}

typedef struct stopped {
    answer answer;
    uint32_t after; /* tokens */
} stopped;

static bool take_until(const brim_generated *g, void *user)
{
    stopped *s = user;
    take_answer(g, &s->answer);
    return s->answer.count < s->after;
}

typedef struct cancelling {
    brim_session *session;
    question question;
    answer *expected, *resumed;
    stopped *stopped;
    uint32_t cancelled, in_prompt, wrong;
} cancelling;

/* What a session holds after a cancel is the beginning of the undisturbed text, and goes on as it
 * did. */
static bool goes_on(cancelling *c)
{
    enum { MORE = 8 };
    brim_token timeline[ANSWER_MAX];
    const answer *e = c->expected;
    uint32_t prompt = c->question.length, length = brim_session_length(c->session);
    make_prompt(timeline, &at, c->question.prompt, prompt);
    memcpy(timeline + prompt, e->tokens, e->count * sizeof *e->tokens);
    for (uint32_t i = 0; i < length; i++)
        if (brim_session_token(c->session, i) != timeline[i])
            return false;
    const answer *taken = &c->stopped->answer;
    if (memcmp(taken->tokens, e->tokens, taken->count * sizeof *taken->tokens) != 0)
        return false;
    if (length + 1 + MORE > prompt + e->count)
        return true;
    c->in_prompt += length < prompt;
    uint32_t from = length < prompt ? prompt : length + 1;
    brim_generate_stats stats;
    question more = c->question;
    more.tokens = MORE;
    brim_generate_desc desc = generate_desc(&more);
    desc.token = take_answer;
    desc.user = c->resumed;
    c->resumed->count = 0;
    MUST(brim_session_generate(&stats, c->session, timeline + length, from - length, &desc));
    return c->resumed->count == MORE &&
           memcmp(c->resumed->tokens, timeline + from, MORE * sizeof *timeline) == 0;
}

static void cancel_once(cancelling *c, uint32_t n)
{
    brim_token prompt[ANSWER_MAX];
    brim_generate_stats stats;
    const question *q = &c->question;
    disturber d = {c->session->runner, (uint32_t)brim__random_below(2, 1, n, options.cancel_us + 1),
                   NULL};
    c->stopped->answer.count = 0;
    c->stopped->after =
        n % 3 == 0 ? ANSWER_MAX : 1 + (uint32_t)brim__random_below(2, 2, n, q->tokens);
    make_prompt(prompt, &at, q->prompt, q->length);
    brim_generate_desc desc = generate_desc(q);
    desc.token = take_until;
    desc.user = c->stopped;
    MUST(brim_session_truncate(c->session, 0));
    brim__thread *thread = NULL;
    if (n % 3 != 1)
        MUST(brim__thread_start(&thread, at.ctx, "cancel", disturb, &d));
    brim_status status = brim_session_generate(&stats, c->session, prompt, q->length, &desc);
    if (thread)
        brim__thread_join(thread, at.ctx);
    if (status == BRIM_CANCELLED)
        c->cancelled++;
    else
        MUST(status);
    c->wrong += !goes_on(c);
}

static void cancels(brim_session *session)
{
    cancelling c = {.session = session,
                    .question = {.prompt = 9, .length = 21, .tokens = 128, .drawn = true},
                    .expected = malloc(sizeof(answer)),
                    .resumed = malloc(sizeof(answer)),
                    .stopped = malloc(sizeof(stopped))};
    MUST(ask(c.expected, session, &at, &c.question));
    uint64_t next = hash_next(session, c.expected->tokens[c.expected->count - 1]);
    uint32_t whole = 0, asked = 0;
    for (uint32_t n = 0; n < options.cancels; n++) {
        cancel_once(&c, n);
        if (n % 50 != 49)
            continue;
        asked++;
        MUST(ask(c.resumed, session, &at, &c.question));
        whole += same_answer(c.resumed, c.expected, false) &&
                 hash_next(session, c.expected->tokens[c.expected->count - 1]) == next;
    }
    claim(c.wrong == 0, "cancels",
          "%u of %u answers that were cancelled or stopped (%u cancelled, %u in the prompt) do not "
          "go on as undisturbed",
          c.wrong, options.cancels, c.cancelled, c.in_prompt);
    claim(whole == asked, "after_cancels", "%u of %u whole answers between them are right", whole,
          asked);
    free(c.expected);
    free(c.resumed);
    free(c.stopped);
}

/* ---- 8 sessions ---- */

typedef struct eight {
    brim_runner *runner;
    brim_session *sessions[SESSIONS];
    brim_generate_desc desc;
    brim_token first[SESSIONS];
    brim_token alone[SESSIONS][STEPS];
    uint64_t next[SESSIONS]; /* of the logits after the last token */
} eight;

static void eight_begin(eight *e, uint32_t i)
{
    brim_token prompt[ANSWER_MAX];
    uint32_t length = 3 + 17 * i;
    make_prompt(prompt, &at, 60 + i, length + 1);
    e->first[i] = prompt[length];
    MUST(brim_session_truncate(e->sessions[i], 0));
    MUST(brim_session_feed(e->sessions[i], prompt, length, NULL, NULL));
}

static eight *eight_open(void)
{
    eight *e = calloc(1, sizeof *e);
    brim_runner_desc desc = desc_of(CONTEXT, SESSIONS, 0);
    e->runner = runner_open(&at, &desc);
    question q = {.prompt = 60, .drawn = true, .tokens = STEPS};
    e->desc = generate_desc(&q);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        uint32_t made;
        MUST(brim_session_create(&e->sessions[i], e->runner));
        eight_begin(e, i);
        MUST(brim_runner_decode(e->alone[i], &made, e->runner, &e->sessions[i], &e->first[i], 1,
                                STEPS, &e->desc));
        e->next[i] = hash_next(e->sessions[i], e->alone[i][STEPS - 1]);
    }
    return e;
}

static void eight_close(eight *e)
{
    for (uint32_t i = 0; i < SESSIONS; i++)
        brim_session_destroy(e->sessions[i]);
    brim_runner_destroy(e->runner);
    free(e);
}

/* Decodes the sessions of `rows` from step `from` on; what differs from each alone. */
static uint32_t decode_rows(eight *e, const uint32_t *rows, uint32_t count, uint32_t from,
                            const brim_generate_desc *desc, uint32_t *out_made)
{
    brim_session *sessions[SESSIONS];
    brim_token last[SESSIONS], *out = malloc(sizeof *out * SESSIONS * STEPS);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < count; i++) {
        sessions[i] = e->sessions[rows[i]];
        last[i] = from ? e->alone[rows[i]][from - 1] : e->first[rows[i]];
    }
    brim_status status;
    do
        status =
            brim_runner_decode(out, out_made, e->runner, sessions, last, count, STEPS - from, desc);
    while (status == BRIM_CANCELLED && *out_made == 0);
    MUST(status);
    for (uint32_t n = 0; n < *out_made; n++)
        for (uint32_t i = 0; i < count; i++)
            wrong += out[n * count + i] != e->alone[rows[i]][from + n];
    free(out);
    return wrong;
}

/* The logits after the last token, all rows in one step. */
static uint32_t next_rows(eight *e, const uint32_t *rows, uint32_t count)
{
    brim_row step[SESSIONS];
    const float *logits;
    size_t stride;
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < count; i++)
        step[i] = (brim_row){e->sessions[rows[i]], e->alone[rows[i]][STEPS - 1], true};
    MUST(brim_runner_step(e->runner, step, count, &logits, &stride));
    for (uint32_t i = 0; i < count; i++)
        wrong += brim__hash64(logits + i * stride, 4 * stride, 0) != e->next[rows[i]];
    return wrong;
}

/* A row ends by an end token; the other seven go on. */
static void one_of_eight_stops(eight *e)
{
    uint32_t wrong = 0, wrong_logits = 0, stops = 0;
    for (uint32_t n = 0; n < options.rounds; n++) {
        uint32_t victim = (uint32_t)brim__random_below(3, 0, n, SESSIONS), made, rest;
        uint32_t rows[SESSIONS] = {0, 1, 2, 3, 4, 5, 6, 7};
        for (uint32_t i = 0; i < SESSIONS; i++)
            eight_begin(e, i);
        brim_generate_desc desc = e->desc;
        desc.ends[0] = e->alone[victim][brim__random_below(3, 1, n, STEPS)];
        desc.end_count = 1;
        wrong += decode_rows(e, rows, SESSIONS, 0, &desc, &made);
        for (uint32_t i = victim; i + 1 < SESSIONS; i++)
            rows[i] = rows[i + 1];
        MUST(brim_session_truncate(e->sessions[victim], 0));
        stops += made < STEPS;
        if (made < STEPS)
            wrong += decode_rows(e, rows, SESSIONS - 1, made, &e->desc, &rest);
        wrong_logits += next_rows(e, rows, SESSIONS - 1);
    }
    claim(wrong == 0 && wrong_logits == 0, "one_of_8_stops",
          "%u tokens and %u last logits of the others differ; %u stops in %u rounds", wrong,
          wrong_logits, stops, options.rounds);
}

/* Chains end by mail, or are cancelled, at any moment; what was not made is made again. */
static void eight_are_disturbed(eight *e)
{
    static const uint32_t rows[SESSIONS] = {0, 1, 2, 3, 4, 5, 6, 7};
    brim_executor *x = brim_runner_executor(e->runner, true);
    _Atomic uint32_t *mail = brim_executor_buffer(x, LLM_BUFFER_MAIL, 0);
    uint32_t wrong = 0, wrong_logits = 0, fresh = 0;
    for (uint32_t n = 0; n < options.rounds; n++) {
        disturber d = {e->runner, (uint32_t)brim__random_below(4, 1, n, options.cancel_us + 1),
                       n % 2 ? &mail[brim__random_below(4, 0, n, SESSIONS)] : NULL};
        brim__thread *thread;
        uint32_t at_step = 0;
        for (uint32_t i = 0; i < SESSIONS; i++)
            eight_begin(e, i);
        MUST(brim__thread_start(&thread, at.ctx, "disturb", disturb, &d));
        while (at_step < STEPS) {
            uint32_t made = 0;
            brim_session *const *s = e->sessions;
            uint32_t before = brim_session_length(s[0]);
            brim_token out[SESSIONS * STEPS], last[SESSIONS];
            for (uint32_t i = 0; i < SESSIONS; i++)
                last[i] = at_step ? e->alone[i][at_step - 1] : e->first[i];
            brim_status status = brim_runner_decode(out, &made, e->runner, s, last, SESSIONS,
                                                    STEPS - at_step, &e->desc);
            fresh += status == BRIM_CANCELLED;
            if (status != BRIM_CANCELLED)
                MUST(status);
            for (uint32_t k = 0; k < made * SESSIONS; k++)
                wrong += out[k] != e->alone[k % SESSIONS][at_step + k / SESSIONS];
            wrong += brim_session_length(s[0]) != before + made;
            at_step += made;
        }
        brim__thread_join(thread, at.ctx);
        wrong_logits += next_rows(e, rows, SESSIONS);
    }
    claim(wrong == 0 && wrong_logits == 0, "8_are_disturbed",
          "%u tokens and %u last logits differ in %u rounds (%u cancels hit a chain)", wrong,
          wrong_logits, options.rounds, fresh);
}

/* ---- two runners ---- */

static void two_runners(void)
{
    enum { TEXTS = 4 };
    brim_runner *runners[2];
    brim_session *sessions[2];
    question q[TEXTS];
    answer *expected = malloc(TEXTS * sizeof *expected), *a = malloc(sizeof *a);
    for (uint32_t i = 0; i < 2; i++) {
        brim_runner_desc desc = desc_of(i ? 2048 : CONTEXT, 1, i ? (at.lanes_max + 1) / 2 : 0);
        runners[i] = runner_open(&at, &desc);
        MUST(brim_session_create(&sessions[i], runners[i]));
    }
    for (uint32_t i = 0; i < TEXTS; i++) {
        q[i] = (question){.prompt = 80 + i, .length = 5 + 11 * i, .tokens = 70, .drawn = true};
        MUST(ask(&expected[i], sessions[0], &at, &q[i]));
    }
    uint32_t right = 0, asked = 0;
    for (uint32_t n = 0; n < options.rounds; n++)
        for (uint32_t i = 0; i < 2; i++, asked++) {
            MUST(ask(a, sessions[i], &at, &q[(n + i) % TEXTS]));
            right += same_answer(a, &expected[(n + i) % TEXTS], false);
        }
    claim(right == asked, "two_runners",
          "%u of %u answers of two runners in turn (%u and %u lanes)", right, asked,
          brim_runner_lanes(runners[0]), brim_runner_lanes(runners[1]));
    for (uint32_t i = 0; i < 2; i++) {
        brim_session_destroy(sessions[i]);
        brim_runner_destroy(runners[i]);
    }
    free(expected);
    free(a);
}

int main(int argc, char **argv)
{
    const option_desc known[] = {
        {.name = "--tokens", .number = &options.tokens},
        {.name = "--cancels", .number = &options.cancels},
        {.name = "--cancel-us", .number = &options.cancel_us},
        {.name = "--rounds", .number = &options.rounds},
        {.name = "--hangs", .number = &options.hangs},
        {.name = "--json", .text = &options.json},
        {.name = "--cpu", .flag = &options.cpu},
        {.name = "--busy", .flag = &options.busy},
    };
    bool well = read_options(&options.path, known, sizeof known / sizeof *known, argc, argv);
    if (options.busy)
        return busy_process();
    if (!well) {
        fprintf(stderr, "usage: gpu_stress MODEL [--tokens N] [--cancels N] [--cancel-us N] "
                        "[--rounds N] [--hangs N] [--json FILE] [--cpu]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN); /* the other process may be gone */
    claims_begin("gpu_stress", options.json, options.path);
    other_process other = other_start(argv[0]);
    place_open(&at, options.path, options.cpu);
    brim_runner_desc desc = desc_of(CONTEXT, 1, 0);
    brim_runner *runner = runner_open(&at, &desc);
    brim_session *session;
    MUST(brim_session_create(&session, runner));
    beside_a_busy_process(session, &other);
    other_end(&other);
    planted_hangs();
    cancels(session);
    brim_session_destroy(session);
    brim_runner_destroy(runner);
    eight *e = eight_open();
    one_of_eight_stops(e);
    eight_are_disturbed(e);
    eight_close(e);
    two_runners();
    place_close(&at);
    return claims_end();
}
