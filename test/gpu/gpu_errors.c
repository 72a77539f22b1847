/* gpu_errors.c MODEL [--json FILE]: bad input and a lost device on a real GPU: every error has its
 * id and says what is wrong, leaves nothing behind on the device, and the CPU answers afterwards in
 * the same process. A program, no unit test.
 *
 *   --lost   (with MODEL) the part that loses its device; the program starts itself for it, since
 *            what was on the device is gone for the whole process */
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda.h"
#include "gpu/gpu_claims.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/probe_args.h"

enum {
    CONTEXT = 256,
    TOKENS = 6,
    LEFT_BYTES = 8 << 20,    /* of free memory, for a model that needs more */
    DRIVER_BYTES = 32 << 20, /* that the driver may take for itself by and by */
    LOST_SECONDS_MAX = 90,
};

static struct {
    const char *path, *json;
    bool lost;
} options;

static place gpu;
static brim_device_info info;

/* ---- the CPU path ---- */

static struct {
    brim_llm *llm;
    brim_runner *runner;
    brim_session *session;
    answer expected;
    place place;
} cpu;

static const question short_question = {.prompt = 2, .length = 5, .tokens = TOKENS, .hashed = true};

static void cpu_open(brim_context *ctx)
{
    brim_model_file *file;
    brim_runner_desc desc = desc_of(CONTEXT, 1, 0);
    MUST(brim_model_file_open(&file, ctx, options.path));
    MUST(brim_llm_create(&cpu.llm, ctx, file, NULL));
    brim_model_file_close(file);
    MUST(brim_runner_create(&cpu.runner, ctx, cpu.llm, &desc));
    MUST(brim_session_create(&cpu.session, cpu.runner));
    cpu.place = (place){.ctx = ctx, .llm = cpu.llm, .vocab = cpu.llm->config.vocab_size};
    MUST(ask(&cpu.expected, cpu.session, &cpu.place, &short_question));
}

static void cpu_close(void)
{
    brim_session_destroy(cpu.session);
    brim_runner_destroy(cpu.runner);
    brim_llm_destroy(cpu.llm);
}

static bool cpu_answers(void)
{
    static answer a;
    return ask(&a, cpu.session, &cpu.place, &short_question) == BRIM_OK &&
           same_answer(&a, &cpu.expected, true);
}

/* ---- refusals ---- */

static uint64_t free_bytes(void)
{
    uint64_t bytes = 0, total;
    if (gpu.device && brim__cuda_memory_free(&bytes, &total, gpu.device) != BRIM_OK)
        return 0;
    return bytes;
}

/* The call that was just made failed with this id; its message has `text`; no more of the device's
 * memory is taken than before; and the CPU answers. */
static void refused(brim_status status, const char *name, const char *id, const char *text,
                    uint64_t free_before)
{
    char said[400], said_id[64];
    snprintf(said, sizeof said, "%s", status == BRIM_OK ? "(no error)" : brim_last_message());
    snprintf(said_id, sizeof said_id, "%s", status == BRIM_OK ? "" : brim_last_id());
    uint64_t now = free_bytes();
    bool kept = now + DRIVER_BYTES >= free_before;
    bool good = status != BRIM_OK && strcmp(said_id, id) == 0 && strstr(said, text) && kept;
    bool answers = cpu_answers();
    claim(good && answers, name, "[%s] %s%s%s", said_id, said,
          kept ? "" : " - MEMORY WAS NOT GIVEN BACK", answers ? "" : " - THE CPU DOES NOT ANSWER");
}

static void count_progress(uint64_t done, uint64_t total, void *user)
{
    ++*(uint32_t *)user;
}

/* What creating the model says; *out_copied: whether anything was. */
static brim_status create_model(bool *out_copied, uint32_t context, uint32_t sessions)
{
    brim_model_file *file;
    brim_llm *llm = NULL;
    uint32_t calls = 0;
    brim_llm_desc desc = brim_llm_desc_default();
    MUST(brim_model_file_open(&file, gpu.ctx, options.path));
    desc.device = gpu.device;
    desc.context = context;
    desc.sessions = sessions;
    desc.progress = count_progress;
    desc.user = &calls;
    brim_status status = brim_llm_create(&llm, gpu.ctx, file, &desc);
    brim_model_file_close(file);
    brim_llm_destroy(llm);
    *out_copied = calls > 0;
    return status;
}

static void no_such_device(void)
{
    brim_device *device;
    brim_status status = brim_device_open_index(&device, gpu.ctx, BRIM_DEVICE_CUDA, 99);
    refused(status, "no_such_device", "cuda.index", "99", 0);
}

static void memory_is_taken(void)
{
    brim_device_memory *others = NULL;
    uint64_t there = free_bytes();
    uint64_t take = there > LEFT_BYTES ? there - LEFT_BYTES : 0;
    while (take > LEFT_BYTES && brim_device_alloc(&others, gpu.device, take) != BRIM_OK)
        take -= LEFT_BYTES;
    uint64_t before = free_bytes();
    bool copied;
    brim_status status = create_model(&copied, CONTEXT, 1);
    refused(status, "memory_is_taken", "resident.memory", "GiB are missing", before);
    claim(!copied, "nothing_was_copied", "with %.1f MiB free", (double)before / (1 << 20));
    brim_device_free(others);
}

/* Of 2^20 positions and sessions enough that their KV cache is larger than the device. */
static void context_is_too_large(void)
{
    const brim_model_config *c = brim_llm_config(cpu.llm);
    uint64_t session = 2ull * c->kv_elements_per_position << 20;
    uint32_t sessions = (uint32_t)(info.memory_bytes / session) + 1;
    bool copied;
    uint64_t before = free_bytes();
    brim_status status = create_model(&copied, 1 << 20, sessions);
    refused(status, "context_before_weights", "resident.memory", "KV cache", before);
    claim(!copied, "no_weights_were_copied", "%u sessions of 2^20 positions", sessions);
    brim_runner *runner;
    brim_runner_desc desc = desc_of(1 << 20, sessions, 0);
    before = free_bytes();
    status = brim_runner_create(&runner, gpu.ctx, gpu.llm, &desc);
    refused(status, "context_is_too_large", "resident.memory", "GiB are missing", before);
}

static void runner_is_wrong(void)
{
    brim_runner *runner;
    uint64_t before = free_bytes();
    brim_runner_desc desc = desc_of(CONTEXT, 1, 1000);
    brim_status status = brim_runner_create(&runner, gpu.ctx, gpu.llm, &desc);
    refused(status, "too_many_lanes", "runner.lanes", "1000", before);
    desc = desc_of(CONTEXT, 1, 0);
    desc.executor.ring_bytes = 1000;
    status = brim_runner_create(&runner, gpu.ctx, gpu.llm, &desc);
    refused(status, "ring_is_too_small", "cuda.shared", "shared memory", before);
    desc = desc_of(CONTEXT, 1, 0);
    desc.executor.generic_image = true;
    char name[48];
    brim_dtype type;
    brim_llm_device_type(&type, gpu.llm);
    snprintf(name, sizeof name, "resident_%s_hs%u_r1", type == BRIM_DTYPE_BF16 ? "bf16" : "f16",
             gpu.llm->config.head_size);
    if (brim__cuda_image_find(name, (int)info.capability, true))
        return; /* there is one */
    status = brim_runner_create(&runner, gpu.ctx, gpu.llm, &desc);
    refused(status, "image_is_missing", "cuda.image", name, before);
}

/* A program of our own on the CUDA executor. */
static void program_is_wrong(const char *name, const char *id, const char *text, brim_program *p)
{
    brim_executor *x;
    brim_executor_desc desc = brim_executor_desc_default();
    uint64_t before = free_bytes();
    desc.kind = BRIM_EXECUTOR_CUDA;
    desc.device = gpu.device;
    refused(brim_executor_create(&x, gpu.ctx, p, &desc), name, id, text, before);
    brim_program_destroy(p);
}

static void programs_are_wrong(void)
{
    brim_op_table *ops;
    brim_program *p;
    MUST(brim_op_table_create(&ops, gpu.ctx));
    brim__build_desc classic = {.name = "classic",
                                .lanes = 4,
                                .rows = 1,
                                .slots = 1,
                                .context = CONTEXT,
                                .kv_blocks = CONTEXT / 32,
                                .split = true,
                                .ring = UINT32_MAX};
    MUST(brim__build_program(&p, gpu.ctx, ops, cpu.llm, &classic));
    program_is_wrong("ops_of_the_cpu", "cuda.op", "instruction", p);
    brim__resident_desc resident = {.name = "resident",
                                    .lanes = info.lane_count_max + 1,
                                    .rows = 1,
                                    .slots = 1,
                                    .context = CONTEXT,
                                    .kv_blocks = CONTEXT / 32,
                                    .direct = true};
    MUST(brim__build_resident(&p, gpu.ctx, ops, gpu.llm, &resident));
    program_is_wrong("more_lanes_than_the_device", "cuda.lanes", "at the same time", p);
    resident.lanes = 4;
    resident.rows = 4;
    MUST(brim__build_resident(&p, gpu.ctx, ops, gpu.llm, &resident));
    program_is_wrong("rows_without_an_image", "cuda.shape", "4 rows", p);
    brim_op_table_destroy(ops);
}

/* ---- a lost device ---- */

static struct {
    brim_device *device; /* the same GPU, opened once more: a stream of its own */
    brim__cuda_module *module;
    brim__cuda_launch launch;
    brim__probe_args args;
    uint32_t tokens;
    bool launched;
} bad;

static void bad_open(void)
{
    MUST(brim_device_open(&bad.device, gpu.ctx, BRIM_DEVICE_CUDA));
    const brim__cuda_image *image = brim__cuda_image_find("probe", (int)info.capability, false);
    if (!image) {
        fprintf(stderr, "gpu_errors: there is no image of the probes for this GPU\n");
        exit(1);
    }
    MUST(brim__cuda_module_load(&bad.module, bad.device, image->data, image->name));
    MUST(brim__cuda_module_function(&bad.launch.function, bad.module, "probe_read"));
    bad.launch.blocks = 1;
    bad.launch.threads = 32; /* so that it finds room beside the resident kernel */
    brim_device_memory *memory;
    MUST(brim_device_alloc(&memory, bad.device, 1 << 20));
    /* Once well, so that nothing is loaded later. */
    bad.args = (brim__probe_args){.data = brim__cuda_address_of(memory),
                                  .size = 1 << 16,
                                  .words = brim__cuda_address_of(memory),
                                  .repeat = 1};
    MUST(brim__cuda_launch_kernel(bad.device, &bad.launch, &bad.args, sizeof bad.args));
    MUST(brim__cuda_synchronize(bad.device, BRIM__CUDA_PROGRAMS));
    brim_device_free(memory);
    bad.args.data = 4096; /* no memory is there */
}

/* While the resident kernel runs, another one reads where nothing is. */
static bool take_and_break(const brim_generated *g, void *user)
{
    if (++bad.tokens == 3)
        bad.launched = brim__cuda_launch_kernel(bad.device, &bad.launch, &bad.args,
                                                sizeof bad.args) == BRIM_OK;
    return true;
}

static brim_status generate_and_break(brim_session *session)
{
    brim_token prompt[4] = {1, 2, 3, 4};
    brim_generate_stats stats;
    question q = {.tokens = CONTEXT - 8};
    brim_generate_desc desc = generate_desc(&q);
    desc.token = take_and_break;
    return brim_session_generate(&stats, session, prompt, 4, &desc);
}

static void lose_the_device(void)
{
    brim_runner_desc desc = desc_of(CONTEXT, 1, 0);
    brim_runner *runner = runner_open(&gpu, &desc), *other = NULL;
    brim_session *session;
    static answer a;
    MUST(brim_session_create(&session, runner));
    bad_open();
    refused(generate_and_break(session), "lost_in_the_middle", "cuda.lost", "the CPU still works",
            0);
    claim(bad.launched, "kernel_that_breaks_was_launched", "after %u tokens", bad.tokens);
    refused(ask(&a, session, &gpu, &short_question), "still_lost", "cuda.lost", "is lost", 0);
    refused(brim_runner_create(&other, gpu.ctx, gpu.llm, &desc), "no_new_runner", "cuda.lost",
            "is lost", 0);
    brim_runner_destroy(other);
    brim_session_destroy(session);
    brim_runner_destroy(runner);
    brim__cuda_module_unload(bad.module);
    brim_device_close(bad.device);
    brim_llm_destroy(gpu.llm);
    brim_device_close(gpu.device);
    gpu.llm = NULL;
    gpu.device = NULL;
    claim(cpu_answers(), "cpu_after_a_lost_device", "in the same process, everything closed");
    brim_status status = brim_device_open(&gpu.device, gpu.ctx, BRIM_DEVICE_CUDA);
    printf("note: opening the device again in this process: %s\n",
           status == BRIM_OK ? "works" : brim_last_message());
    brim_device_close(gpu.device);
    gpu.device = NULL;
}

/* The child's exit code; -1: it could not be started or was killed. */
static int run_lost(const char *self)
{
    pid_t pid;
    extern char **environ;
    char *const arguments[] = {(char *)(uintptr_t)self, (char *)(uintptr_t)options.path,
                               (char *)(uintptr_t) "--lost", NULL};
    int status;
    fflush(stdout);
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ) != 0 ||
        waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static void lost_elsewhere(const char *self)
{
    brim_runner_desc desc = desc_of(CONTEXT, 1, 0);
    brim_runner *runner = runner_open(&gpu, &desc);
    brim_session *session;
    static answer before, after;
    question q = {.prompt = 3, .length = 9, .tokens = 100, .drawn = true};
    MUST(brim_session_create(&session, runner));
    bool answers = ask(&before, session, &gpu, &q) == BRIM_OK;
    claim(answers, "gpu_answers", "%s", answers ? "after all refusals" : brim_last_message());
    int code = run_lost(self);
    claim(code == 0, "lost_device", "the process that lost its device ended with %d", code);
    answers = ask(&after, session, &gpu, &q) == BRIM_OK && same_answer(&before, &after, false);
    claim(answers, "other_processes_go_on", "this one's GPU gives the same text");
    brim_session_destroy(session);
    brim_runner_destroy(runner);
}

int main(int argc, char **argv)
{
    const option_desc known[] = {
        {.name = "--json", .text = &options.json},
        {.name = "--lost", .flag = &options.lost},
    };
    if (!read_options(&options.path, known, sizeof known / sizeof *known, argc, argv)) {
        fprintf(stderr, "usage: gpu_errors MODEL [--json FILE]\n");
        return 2;
    }
    claims_begin(options.lost ? "gpu_errors --lost" : "gpu_errors", options.json, options.path);
    place_open(&gpu, options.path, false);
    MUST(brim_device_query(&info, gpu.device));
    cpu_open(gpu.ctx);
    if (options.lost) {
        alarm(LOST_SECONDS_MAX);
        lose_the_device();
    } else {
        no_such_device();
        memory_is_taken();
        context_is_too_large();
        runner_is_wrong();
        programs_are_wrong();
        lost_elsewhere(argv[0]);
    }
    cpu_close();
    place_close(&gpu);
    return claims_end();
}
