/* The host's side of resident programs on a CUDA device, without one: the driver is
 * test/device/fake_libcuda.c, and a function here is the kernel. What is sent is what the kernel is
 * promised, what it reports is what callers see, and a call or an allocation that fails at any
 * place has an id and leaves nothing behind.
 *
 * The table of device images is this program's own, so that the test is the same in builds with and
 * without nvcc. */
#include "llm/llm_fixture.h"

#include <dlfcn.h>

/* The table's count changes in here, which the library need not know. */
#define brim__cuda_image_count declared_count
#include "kernels/cuda/images.h"
#undef brim__cuda_image_count
#include "base/hash.h"
#include "device/cuda_driver.h"
#include "kernels/cuda/resident.h"
#include "llm/runner.h"

enum { VOCAB = 512, LANES = 3, CONTEXT = 96, IMAGES = 4 };

static const char code[] = "no code";
#define IMAGE(text, arch_text, least, exactly, row_count)                                          \
    {                                                                                              \
        .name = (text), .arch = (arch_text), .data = code, .size = sizeof code,                    \
        .capability = (least), .exact = (exactly), .type = BRIM_DTYPE_F16, .head_size = 64,        \
        .rows = (row_count)                                                                        \
    }
const brim__cuda_image brim__cuda_images[IMAGES] = {
    IMAGE("resident_f16_hs64_r1", "sm_90a", 90, true, 1),
    IMAGE("resident_f16_hs64_r8", "sm_90a", 90, true, 8),
    IMAGE("resident_f16_hs64_r1", "compute_80", 80, false, 1),
    IMAGE("resident_f16_hs64_r8", "compute_80", 80, false, 8),
};
extern size_t brim__cuda_image_count;
size_t brim__cuda_image_count = IMAGES;

/* ---- the fake driver ---- */

static char fake_path[4096];
static void (*fake_reset)(void), (*fake_set_kernel)(void (*)(const void *));
static uint64_t (*fake_calls)(void), (*fake_leaks)(void), (*fake_misuses)(void), (*fake_live)(void);

static void find_symbol(void *out, void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "%s has no %s\n", fake_path, name);
        exit(1);
    }
    memcpy(out, &symbol, sizeof symbol);
}

/* It lies beside this program. */
static void find_fake(void)
{
    char self[4000] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        exit(1);
    *strrchr(self, '/') = 0;
    snprintf(fake_path, sizeof fake_path, "%s/fake_libcuda.so", self);
    void *library = dlopen(fake_path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s: build the target fake_libcuda\n", dlerror());
        exit(1);
    }
    find_symbol(&fake_reset, library, "fake_cuda_reset");
    find_symbol(&fake_calls, library, "fake_cuda_calls");
    find_symbol(&fake_leaks, library, "fake_cuda_leaks");
    find_symbol(&fake_misuses, library, "fake_cuda_misuses");
    find_symbol(&fake_live, library, "fake_cuda_live");
    find_symbol(&fake_set_kernel, library, "fake_cuda_set_kernel");
    setenv("BRIM_LIBCUDA", fake_path, 1);
    setenv("BRIM_LIBNVML", "/nonexistent", 1);
}

static void behave(const char *settings)
{
    setenv("FAKE_CUDA", settings, 1);
    fake_reset();
}

/* ---- a model on the device ---- */

typedef struct on_device {
    brim_device *device;
    brim_llm *llm;
    brim_runner *runner;
    brim_session *session;
} on_device;

static fixture f;

static brim_status open_llm(on_device *d, uint32_t context)
{
    brim_llm_desc desc = brim_llm_desc_default();
    BRIM_TRY(brim_device_open(&d->device, f.ctx, BRIM_DEVICE_CUDA));
    desc.device = d->device;
    desc.context = context;
    desc.threads = 1;
    return brim_llm_create(&d->llm, f.ctx, f.file, &desc);
}

static brim_runner_desc runner_desc(void)
{
    brim_runner_desc desc = brim_runner_desc_default();
    desc.lanes = LANES;
    desc.context = CONTEXT;
    desc.skip_check = true;
    return desc;
}

static brim_status open_runner(on_device *d)
{
    brim_runner_desc desc = runner_desc();
    BRIM_TRY(brim_runner_create(&d->runner, f.ctx, d->llm, &desc));
    return brim_session_create(&d->session, d->runner);
}

static void close_all(on_device *d)
{
    brim_session_destroy(d->session);
    brim_runner_destroy(d->runner);
    brim_llm_destroy(d->llm);
    brim_device_close(d->device);
    *d = (on_device){NULL};
}

static uint64_t bytes_before;

/* Nothing is left, and nothing was asked of the driver that it had to refuse. */
static void assert_clean(void)
{
    assert_int_equal(fake_live(), 0);
    assert_int_equal(fake_leaks(), 0);
    assert_int_equal(fake_misuses(), 0);
    assert_int_equal(brim_context_bytes(f.ctx), bytes_before);
}

static void open_all(on_device *d)
{
    *d = (on_device){NULL};
    assert_ok(open_llm(d, CONTEXT));
    assert_ok(open_runner(d));
}

static void assert_fails(brim_status status, brim_status wanted, const char *id, const char *part)
{
    if (status != wanted || strcmp(brim_last_id(), id) != 0 || !strstr(brim_last_message(), part))
        fail_msg("status %d, not %d; [%s], not [%s]; '%s' in: %s", status, wanted, brim_last_id(),
                 id, part, brim_last_message());
}

/* ---- kernels ---- */

enum { HUNG_MAX = 3 };

/* A warp that waits when the kernel has given up. */
typedef struct hung_warp {
    uint32_t lane, warp;
    brim__res_wait wait;
} hung_warp;

static struct {
    uint32_t launches;
    uint32_t most; /* steps of one launch, if it is less than the limit */
    uint32_t end;  /* token after which a chain ends */
    hung_warp hung[HUNG_MAX];
    uint32_t hung_count;
    /* Of the last launch: */
    brim__res_params params;
    uint32_t step[64];
    size_t filled_wrong, control_wrong, lists_wrong, words_wrong;
} kernel;

/* A token that follows from where it stands alone. */
static uint32_t token_after(uint32_t token, uint32_t position)
{
    return (uint32_t)brim__hash_mix(token + 1, position) % VOCAB;
}

static void look_at_memory(const brim__res_params *p)
{
    uint32_t replicas = p->rows == 1 ? RES_REPLICAS_1 : RES_REPLICAS_8;
    const uint32_t *packets = (const uint32_t *)(const void *)p->packets;
    for (uint64_t i = 0; i < 2 * replicas * p->packet_stride / 4; i++)
        kernel.filled_wrong += packets[i] != UINT32_MAX;
    const uint32_t *control = (const uint32_t *)(const void *)p->control;
    for (size_t i = 0; i < sizeof *p->control / 4; i++)
        kernel.control_wrong += control[i] != 0;
    for (uint32_t lane = 0; lane < p->lanes; lane++) {
        uint32_t first = p->list_first[lane], end = p->list_first[lane + 1], done = 0, last = 0;
        for (uint32_t i = first; i < end; i++) {
            const uint32_t *word = p->lists + (size_t)i * RI_WORDS;
            kernel.words_wrong += word[RI_KIND] > RES_LANE_DONE;
            done += word[RI_KIND] == RES_LANE_DONE;
            last = word[RI_KIND];
        }
        /* Samples and the step's end come after a lane has said that it is done. */
        bool ends = last == RES_LANE_DONE || last == RES_SAMPLE || last == RES_STEP_END;
        kernel.lists_wrong += end <= first || done != 1 || !ends;
    }
}

/* One row or several: every out row's token follows from its own. */
static void run_steps(const void *parameters)
{
    const brim__res_params *p = parameters;
    kernel.launches++;
    kernel.params = *p;
    const uint32_t *step = p->step[p->epoch & 1];
    memcpy(kernel.step, step, brim__step_bytes(p->rows));
    look_at_memory(p);
    for (uint32_t i = 0; i < kernel.hung_count; i++) {
        const hung_warp *h = &kernel.hung[i];
        p->waits[h->lane * RES_WARPS + h->warp] = h->wait;
        p->host->hung = 1 + h->lane;
    }
    if (kernel.hung_count)
        return;
    uint32_t rows = step[STEP_ROWS], out = step[STEP_OUT], tokens[8], done = 0;
    bool chain = step[STEP_CHAIN] != 0 && out == rows, ended = false;
    uint32_t limit = kernel.most && kernel.most < p->limit ? kernel.most : p->limit;
    for (uint32_t i = 0; i < rows; i++)
        tokens[i] = step[brim__step_word(STEP_TOKEN, p->rows, i)];
    do {
        brim__sampled *entry = (brim__sampled *)p->result +
                               (size_t)((step[STEP_RING] + done) % RESULT_RING) * (p->rows + 1);
        entry[0] = (brim__sampled){.token = out};
        for (uint32_t i = 0; i < out; i++) {
            uint32_t row = step[brim__step_word(STEP_OUT_ROW, p->rows, i)];
            uint32_t at = step[brim__step_word(STEP_POSITION, p->rows, row)] + done;
            tokens[i] = token_after(tokens[row], at);
            entry[1 + i] = (brim__sampled){.token = tokens[i], .ended = tokens[i] == kernel.end};
            ended |= tokens[i] == kernel.end;
            for (uint32_t k = 0; k < p->vocab; k++)
                p->logits[(size_t)i * p->vocab + k] = k == tokens[i] ? 1 : 0;
        }
        done++;
    } while (chain && !ended && done < limit);
    p->host->done = done;
}

static void use_kernel(bool works)
{
    memset(&kernel, 0, sizeof kernel);
    kernel.end = UINT32_MAX;
    fake_set_kernel(works ? run_steps : NULL);
}

/* ---- what is sent, and what comes back ---- */

static void a_kernel_that_does_nothing_is_reported(void **state)
{
    (void)state;
    on_device d;
    open_all(&d);
    brim_row row = {d.session, 7, true};
    use_kernel(false);
    assert_fails(brim_runner_step(d.runner, &row, 1, NULL, NULL), BRIM_SYSTEM, "run.nothing",
                 "without having done a step");
    assert_int_equal(brim_session_length(d.session), 0);
    use_kernel(true);
    assert_ok(brim_runner_step(d.runner, &row, 1, NULL, NULL));
    assert_int_equal(brim_session_length(d.session), 1);
    close_all(&d);
    assert_clean();
}

static void a_launch_finds_what_the_kernel_is_promised(void **state)
{
    (void)state;
    on_device d;
    open_all(&d);
    use_kernel(true);
    for (uint32_t n = 0; n < 5; n++) {
        uint32_t count = n == 2 ? 4 : 1; /* both programs */
        uint32_t length = brim_session_length(d.session);
        brim_row rows[4];
        const float *logits;
        for (uint32_t i = 0; i < count; i++)
            rows[i] = (brim_row){d.session, (brim_token)(10 * n + i), i + 1 == count};
        assert_ok(brim_runner_step(d.runner, rows, count, &logits, NULL));
        const brim__res_params *p = &kernel.params;
        assert_int_equal(p->rows, count == 1 ? 1 : 8);
        assert_int_equal(p->lanes, LANES);
        assert_int_equal(p->limit, 1);
        assert_int_equal(p->vocab, VOCAB);
        assert_int_equal(kernel.filled_wrong, 0);
        assert_int_equal(kernel.control_wrong, 0);
        assert_int_equal(kernel.lists_wrong, 0);
        assert_int_equal(kernel.words_wrong, 0);
        assert_int_equal(kernel.step[STEP_ROWS], count);
        assert_int_equal(kernel.step[STEP_OUT], 1);
        assert_int_equal(kernel.step[STEP_CHAIN], 0);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(kernel.step[brim__step_word(STEP_TOKEN, p->rows, i)], rows[i].token);
            assert_int_equal(kernel.step[brim__step_word(STEP_POSITION, p->rows, i)], length + i);
        }
        /* Position 0 is in the first block of the sequence: of the pool, too. */
        assert_int_equal(p->tables[0], 0);
        uint32_t wanted = token_after((uint32_t)rows[count - 1].token, length + count - 1);
        for (uint32_t k = 0; k < VOCAB; k++)
            assert_true(logits[k] == (k == wanted ? 1.0f : 0.0f));
    }
    assert_int_equal(kernel.launches, 5);
    close_all(&d);
    assert_clean();
}

typedef struct taken {
    brim_token tokens[CONTEXT];
    uint32_t count, cancel_after;
    const char *behave_after; /* what the driver does from the third token on */
    brim_runner *runner;
} taken;

static bool take(const brim_generated *g, void *user)
{
    taken *t = user;
    t->tokens[t->count++] = g->token;
    if (t->count == t->cancel_after)
        brim_runner_cancel(t->runner);
    if (t->count == 3 && t->behave_after)
        behave(t->behave_after);
    return true;
}

static brim_status generate(taken *t, on_device *d, uint32_t tokens, bool hash)
{
    static const brim_token prompt[3] = {5, 6, 7};
    brim_generate_stats stats;
    brim_generate_desc desc = brim_generate_desc_default();
    desc.sampling.temperature = 0;
    desc.max_tokens = tokens;
    desc.hash_logits = hash;
    desc.token = take;
    desc.user = t;
    t->count = 0;
    t->runner = d->runner;
    BRIM_TRY(brim_session_truncate(d->session, 0));
    return brim_session_generate(&stats, d->session, prompt, 3, &desc);
}

static void assert_tokens(const taken *t, const on_device *d, uint32_t count)
{
    uint32_t token = 7;
    assert_int_equal(t->count, count);
    for (uint32_t i = 0; i < count; i++) {
        token = token_after(token, 2 + i);
        assert_int_equal(t->tokens[i], token);
        if (i + 1 < count) /* the last one was not evaluated */
            assert_int_equal(brim_session_token(d->session, 3 + i), token);
    }
    assert_int_equal(brim_session_length(d->session), 3 + count - 1);
}

static void chains_give_the_kernels_tokens(void **state)
{
    (void)state;
    static const uint32_t most[] = {0, 1, 5, 63};
    enum { TOKENS = 80 };
    on_device d;
    taken t = {.count = 0};
    open_all(&d);
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        use_kernel(true);
        kernel.most = most[i];
        assert_ok(generate(&t, &d, TOKENS, false));
        assert_tokens(&t, &d, TOKENS);
        /* The first token comes with the prompt; then at most 64 steps a launch. */
        assert_int_equal(kernel.launches, 1 + (TOKENS - 1 + (most[i] ? most[i] : 64) - 1) /
                                                  (most[i] ? most[i] : 64));
    }
    use_kernel(true);
    assert_ok(generate(&t, &d, 10, true)); /* hashes want the logits of every step */
    assert_tokens(&t, &d, 10);
    assert_int_equal(kernel.launches, 10);
    close_all(&d);
    assert_clean();
}

static void a_cancel_keeps_what_had_come(void **state)
{
    (void)state;
    on_device d;
    taken t = {.cancel_after = 20};
    open_all(&d);
    use_kernel(true);
    kernel.most = 7;
    brim_status status = generate(&t, &d, 80, false);
    assert_fails(status, BRIM_CANCELLED, "run.cancelled", "cancelled");
    assert_true(t.count >= 20 && t.count < 20 + 7);
    assert_tokens(&t, &d, t.count);
    t.cancel_after = 0;
    assert_ok(generate(&t, &d, 80, false));
    assert_tokens(&t, &d, 80);
    close_all(&d);
    assert_clean();
}

/* ---- hangs ---- */

static void assert_hung(on_device *d, brim_status wanted, const char *part)
{
    taken t = {.count = 0};
    assert_fails(generate(&t, d, 20, false), wanted, "run.hung", part);
    kernel.hung_count = 0;
    assert_ok(generate(&t, d, 20, false));
    assert_tokens(&t, d, 20);
}

/* Of the warps that wait it is the one at the earliest instruction that is named. */
static void a_hang_is_reported_and_the_next_run_is_right(void **state)
{
    (void)state;
    on_device d;
    open_all(&d);
    const brim_program *p = brim_runner_program(d.runner, true); /* the prompt's */
    uint32_t first = p->lanes[2].items[1].instruction, later = p->lanes[0].items[3].instruction;
    const hung_warp cause = {2, 4, {1 + RES_WAIT_PACKET, first, 0, 17, 0xabc}};
    const hung_warp others[] = {{0, 0, {1 + RES_WAIT_RING, later, 0, 0, 0}},
                                {1, 9, {1 + RES_WAIT_TILE, later, 0, 0, 0}}};
    char text[160];
    snprintf(text, sizeof text, "in step 0: lane 2, warp 4, at ");
    for (uint32_t n = 0; n < HUNG_MAX; n++) { /* whoever gave up first */
        use_kernel(true);
        for (uint32_t i = 0; i < HUNG_MAX; i++)
            kernel.hung[(n + i) % HUNG_MAX] = i ? others[i - 1] : cause;
        kernel.hung_count = HUNG_MAX;
        assert_hung(&d, BRIM_REFUSED, text);
    }
    use_kernel(true);
    kernel.hung[0] = cause;
    kernel.hung_count = 1;
    snprintf(text, sizeof text, "(instruction %u,", first);
    assert_hung(&d, BRIM_REFUSED, text);
    kernel.hung_count = 1;
    assert_hung(&d, BRIM_REFUSED, "waits for a packet (17) and sees 0xabc");
    kernel.hung_count = 1;
    kernel.hung[0].wait.instruction = (uint32_t)p->instruction_count;
    assert_hung(&d, BRIM_REFUSED, "the end of its list");
    /* A report that is none. */
    kernel.hung_count = 1;
    kernel.hung[0].wait.instruction = UINT32_MAX;
    assert_hung(&d, BRIM_SYSTEM, "nobody says why");
    kernel.hung_count = 1;
    kernel.hung[0].wait.role = 200;
    assert_hung(&d, BRIM_SYSTEM, "nobody says why");
    close_all(&d);
    assert_clean();
}

/* ---- refusals ---- */

static brim_status executor_of(on_device *d, brim_program *p, uint32_t ring_bytes)
{
    brim_executor *x = NULL;
    brim_executor_desc desc = brim_executor_desc_default();
    desc.kind = BRIM_EXECUTOR_CUDA;
    desc.device = d->device;
    desc.ring_bytes = ring_bytes;
    brim_status status = brim_executor_create(&x, f.ctx, p, &desc);
    brim_executor_destroy(x);
    return status;
}

static brim_program *resident_program(on_device *d, const brim_op_table *ops, uint32_t lanes,
                                      uint32_t rows)
{
    brim_program *p;
    brim__resident_desc desc = {.name = "program",
                                .lanes = lanes,
                                .rows = rows,
                                .slots = 1,
                                .context = CONTEXT,
                                .kv_blocks = CONTEXT / 32,
                                .direct = true};
    assert_ok(brim__build_resident(&p, f.ctx, ops, d->llm, &desc));
    return p;
}

static void programs_that_the_device_lacks_are_refused(void **state)
{
    (void)state;
    on_device d;
    open_all(&d);
    brim_op_table *ops;
    brim_program *p;
    assert_ok(brim_op_table_create(&ops, f.ctx));
    brim__build_desc classic = {.name = "classic",
                                .lanes = 2,
                                .rows = 1,
                                .slots = 1,
                                .context = CONTEXT,
                                .kv_blocks = CONTEXT / 32,
                                .split = true,
                                .ring = UINT32_MAX};
    assert_ok(brim__build_program(&p, f.ctx, ops, f.llm, &classic));
    assert_fails(executor_of(&d, p, 0), BRIM_UNSUPPORTED, "cuda.op", "instruction 0 is 'embed'");
    brim_program_destroy(p);
    static const struct {
        uint32_t lanes, rows, ring;
        const char *id, *part;
    } cases[] = {{133, 1, 0, "cuda.lanes", "133 lanes"},
                 {2, 4, 0, "cuda.shape", "4 rows"},
                 {2, 1, 2 * RES_SLOT_BYTES, "cuda.shared", "shared memory"},
                 {2, 8, 1, "cuda.shared", "shared memory"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        p = resident_program(&d, ops, cases[i].lanes, cases[i].rows);
        assert_fails(executor_of(&d, p, cases[i].ring), BRIM_UNSUPPORTED, cases[i].id,
                     cases[i].part);
        brim_program_destroy(p);
    }
    p = resident_program(&d, ops, 132, 8);
    assert_ok(executor_of(&d, p, 4 * RES_SLOT_BYTES));
    brim_program_destroy(p);
    brim_op_table_destroy(ops);
    close_all(&d);
    assert_clean();
}

static void without_an_image_the_message_says_what_is_missing(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *part;
        size_t images;
    } cases[] = {{"", "nvcc was not found", 0},
                 {"capability=75", "compute capability 7.5", IMAGES},
                 {"capability=86", "compute capability 8.6", 2}};
    on_device d = {NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        behave(cases[i].settings);
        brim__cuda_image_count = cases[i].images;
        brim_status status = open_llm(&d, CONTEXT);
        brim__cuda_image_count = IMAGES;
        assert_fails(status, BRIM_UNSUPPORTED, "cuda.image", cases[i].part);
        assert_non_null(strstr(brim_last_message(), "--device cpu"));
        close_all(&d);
        assert_clean();
    }
    /* The executor asks again: programs come from files too. */
    behave("");
    assert_ok(open_llm(&d, CONTEXT));
    brim__cuda_image_count = 0;
    brim_status status = open_runner(&d);
    brim__cuda_image_count = IMAGES;
    assert_fails(status, BRIM_UNSUPPORTED, "cuda.image", "nvcc was not found");
    /* A driver that takes no such code, and code with other parameters. */
    behave("image=209");
    assert_fails(open_runner(&d), BRIM_UNSUPPORTED, "cuda.image", "resident_f16_hs64_r1");
    close_all(&d);
    brim__cuda_driver_forget(); /* it has another function then */
    behave("params=8");
    open_all(&d);
    brim_row row = {d.session, 7, true};
    assert_fails(brim_runner_step(d.runner, &row, 1, NULL, NULL), BRIM_UNSUPPORTED, "cuda.image",
                 "another version");
    close_all(&d);
    assert_clean();
}

static void an_older_gpu_takes_the_generic_image(void **state)
{
    (void)state;
    on_device d;
    taken t = {.count = 0};
    behave("capability=86");
    open_all(&d);
    use_kernel(true);
    assert_ok(generate(&t, &d, 10, false));
    assert_tokens(&t, &d, 10);
    close_all(&d);
    assert_clean();
}

static void missing_memory_is_said_before_anything_is_taken(void **state)
{
    (void)state;
    on_device d = {NULL};
    behave("memory=6000000"); /* the model has 8 MB */
    assert_fails(open_llm(&d, CONTEXT), BRIM_NO_MEMORY, "resident.memory", "GiB are missing");
    close_all(&d);
    assert_clean();
    behave("memory=33554432");
    assert_ok(open_llm(&d, CONTEXT));
    uint64_t live = fake_live();
    brim_runner_desc desc = runner_desc();
    desc.context = 1 << 16; /* 50 MB of KV cache: 3 heads of 64, K and V, 2 bytes */
    assert_fails(brim_runner_create(&d.runner, f.ctx, d.llm, &desc), BRIM_NO_MEMORY,
                 "resident.memory", "GiB are missing");
    assert_int_equal(fake_live(), live);
    assert_ok(open_runner(&d));
    close_all(&d);
    assert_clean();
}

/* ---- failures at any place ---- */

/* All that there is to it: a model, a runner, an answer of both programs. */
static brim_status live_once(on_device *d)
{
    taken t = {.count = 0};
    *d = (on_device){NULL};
    BRIM_TRY(open_llm(d, CONTEXT));
    BRIM_TRY(open_runner(d));
    return generate(&t, d, 6, true);
}

static void cpu_answers(void)
{
    brim_runner *runner;
    brim_session *session;
    brim_runner_desc desc = runner_desc();
    assert_ok(brim_runner_create(&runner, f.ctx, f.llm, &desc));
    assert_ok(brim_session_create(&session, runner));
    brim_row row = {session, 7, true};
    assert_ok(brim_runner_step(runner, &row, 1, NULL, NULL));
    brim_session_destroy(session);
    brim_runner_destroy(runner);
}

static bool known_failure(brim_status status)
{
    const char *id = brim_last_id();
    return (status == BRIM_SYSTEM && strcmp(id, "cuda.call") == 0) ||
           (status == BRIM_SYSTEM && strcmp(id, "cuda.lost") == 0) ||
           (status == BRIM_NO_MEMORY && strcmp(id, "memory.device") == 0);
}

static void a_call_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    static const int codes[] = {1, 2, 719}; /* the call; no memory; the device is lost */
    on_device d;
    assert_ok(live_once(&d));
    uint64_t calls = fake_calls(), failed = 0;
    close_all(&d);
    assert_clean();
    assert_true(calls > 100);
    for (uint64_t n = 0; n < 3 * calls; n++) {
        char settings[64];
        snprintf(settings, sizeof settings, "fail_at=%d fail_code=%d", (int)(n / 3) + 1,
                 codes[n % 3]);
        behave(settings);
        brim_status status = live_once(&d);
        failed += status != BRIM_OK;
        if (status != BRIM_OK && !known_failure(status))
            fail_msg("%s: status %d [%s] %s", settings, status, brim_last_id(),
                     brim_last_message());
        close_all(&d);
        assert_clean();
        if (n % 256 == 0)
            cpu_answers();
    }
    /* Some calls only ask for what can be done without. */
    assert_true(failed > 3 * calls * 9 / 10);
}

static void an_allocation_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    on_device d = {NULL};
    taken t = {.count = 0};
    use_kernel(true);
    assert_ok(open_llm(&d, CONTEXT));
    uint64_t before = brim_context_bytes(f.ctx), live = fake_live(), failed = 0;
    for (;; failed++) {
        brim__memory_fail_at(f.ctx, failed + 1);
        brim_status status = open_runner(&d);
        if (status == BRIM_OK)
            status = generate(&t, &d, 6, false);
        brim__memory_fail_at(f.ctx, 0);
        brim_session_destroy(d.session);
        brim_runner_destroy(d.runner);
        d.session = NULL;
        d.runner = NULL;
        if (status == BRIM_OK)
            break;
        assert_int_equal(status, BRIM_NO_MEMORY);
        assert_int_equal(brim_context_bytes(f.ctx), before);
        assert_int_equal(fake_live(), live);
        failed += failed / 40; /* programs have thousands that are alike */
    }
    assert_true(failed > 50);
    close_all(&d);
    assert_clean();
}

static void a_device_lost_in_a_chain_leaves_the_cpu(void **state)
{
    (void)state;
    on_device d;
    open_all(&d);
    use_kernel(true);
    taken t = {.behave_after = "fail_at=2 fail_code=700"};
    assert_fails(generate(&t, &d, 60, false), BRIM_SYSTEM, "cuda.lost", "the CPU still works");
    t.behave_after = NULL;
    assert_fails(generate(&t, &d, 60, false), BRIM_SYSTEM, "cuda.lost", "is lost");
    brim_runner *other;
    brim_runner_desc desc = runner_desc();
    assert_fails(brim_runner_create(&other, f.ctx, d.llm, &desc), BRIM_SYSTEM, "cuda.lost",
                 "is lost");
    cpu_answers();
    close_all(&d);
    assert_clean();
    behave("");
    open_all(&d);
    assert_ok(generate(&t, &d, 60, false));
    assert_tokens(&t, &d, 60);
    close_all(&d);
    assert_clean();
}

/* ---- setting up ---- */

static int setup(void **state)
{
    brim__cuda_driver_forget();
    behave("");
    use_kernel(true);
    bytes_before = brim_context_bytes(f.ctx);
    return 0;
}

static int open_group(void **state)
{
    fixture_make(&f, "smollm2-135m", "F16", 1);
    return 0;
}

static int close_group(void **state)
{
    fixture_close(&f);
    return 0;
}

int main(void)
{
    find_fake();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_kernel_that_does_nothing_is_reported, setup),
        cmocka_unit_test_setup(a_launch_finds_what_the_kernel_is_promised, setup),
        cmocka_unit_test_setup(chains_give_the_kernels_tokens, setup),
        cmocka_unit_test_setup(a_cancel_keeps_what_had_come, setup),
        cmocka_unit_test_setup(a_hang_is_reported_and_the_next_run_is_right, setup),
        cmocka_unit_test_setup(programs_that_the_device_lacks_are_refused, setup),
        cmocka_unit_test_setup(without_an_image_the_message_says_what_is_missing, setup),
        cmocka_unit_test_setup(an_older_gpu_takes_the_generic_image, setup),
        cmocka_unit_test_setup(missing_memory_is_said_before_anything_is_taken, setup),
        cmocka_unit_test_setup(a_call_that_fails_leaves_nothing_behind, setup),
        cmocka_unit_test_setup(an_allocation_that_fails_leaves_nothing_behind, setup),
        cmocka_unit_test_setup(a_device_lost_in_a_chain_leaves_the_cpu, setup),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
