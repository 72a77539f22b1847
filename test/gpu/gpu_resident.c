/* gpu_resident.c MODEL [--lanes N] [--generic] [--ring BYTES]: the CUDA executor against the CPU
 * executor on the same resident program: logits of single rows and of steps of eight rows, every
 * buffer that lanes publish, and greedy text. Exits with 1 where they differ by more than rounding.
 *
 * Both round activations to 16 bits at the same places; they differ in the order in which products
 * are added, so a rounded value may fall to either side: hence the relative bound on whole vectors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/runner.h"

enum { ROWS = 24, TOKENS = 48, CONTEXT = 512 };

static const double bound = 0.02; /* of a vector's length: 16-bit activations through some layers */

typedef struct side {
    brim_device *device;
    brim_llm *llm;
    brim_runner *runner;
    brim_session *session;
} side;

static brim_context *ctx;
static uint32_t lanes;
static bool generic;
static uint32_t ring_bytes;

static void check(brim_status status)
{
    if (status == BRIM_OK)
        return;
    fprintf(stderr, "%s: %s\n", brim_last_id(), brim_last_message());
    exit(1);
}

static void open_side(side *s, const char *path, bool gpu)
{
    brim_model_file *file;
    check(brim_device_open_index(&s->device, ctx, gpu ? BRIM_DEVICE_CUDA : BRIM_DEVICE_CPU, 0));
    printf("  %s opened\n", gpu ? "cuda" : "cpu");
    check(brim_model_file_open(&file, ctx, path));
    brim_llm_desc desc = brim_llm_desc_default();
    desc.device = s->device;
    check(brim_llm_create(&s->llm, ctx, file, &desc));
    brim_model_file_close(file);
    printf("  weights are there\n");
    brim_runner_desc runner = brim_runner_desc_default();
    runner.context = CONTEXT;
    runner.lanes = gpu ? lanes : 4;
    runner.skip_check = true;
    runner.executor.kind = gpu ? BRIM_EXECUTOR_CUDA : BRIM_EXECUTOR_CPU;
    runner.executor.device = gpu ? s->device : NULL;
    runner.executor.generic_image = generic;
    runner.executor.ring_bytes = ring_bytes;
    check(brim_runner_create(&s->runner, ctx, s->llm, &runner));
    check(brim_session_create(&s->session, s->runner));
    printf("  runner made\n");
}

static double difference(const float *a, const float *b, size_t n)
{
    double d = 0, l = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        l += (double)b[i] * (double)b[i];
    }
    return l > 0 ? sqrt(d / l) : sqrt(d);
}

static float half(uint16_t h, bool bf16)
{
    if (bf16) {
        union {
            uint32_t u;
            float f;
        } v = {.u = (uint32_t)h << 16};
        return v.f;
    }
    _Float16 f;
    memcpy(&f, &h, 2);
    return (float)f;
}

/* The first published buffer that differs says where it went wrong. */
static void compare_buffers(side *cpu, side *gpu, bool prefill, uint64_t epoch)
{
    static const char *const names[] = {"qkv", "parts", "y_mid", "ssq_mid", "h", "y", "ssq"};
    brim_executor *a = brim_runner_executor(cpu->runner, prefill);
    brim_executor *b = brim_runner_executor(gpu->runner, prefill);
    const brim_program *p = brim_runner_program(cpu->runner, prefill);
    const brim_program *q = brim_runner_program(gpu->runner, prefill);
    bool bf16 = gpu->llm->resident->type == BRIM_DTYPE_BF16;
    uint64_t other = brim_executor_epoch(b) - 1;
    for (uint32_t layer = 0; layer <= cpu->llm->config.layer_count; layer++)
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            char name[32];
            snprintf(name, sizeof name, "%s.%u", names[n], n < 5 ? layer : layer + 1);
            uint32_t i = brim_program_buffer_find(p, name), j = brim_program_buffer_find(q, name);
            if (i == BRIM_NONE || j == BRIM_NONE)
                continue;
            size_t size = brim_program_buffer(p, i)->size;
            uint16_t *x = malloc(size), *y = malloc(size);
            check(brim_executor_read(a, x, i, epoch, 0, size));
            check(brim_executor_read(b, y, j, other, 0, size));
            bool f32 = strncmp(names[n], "ssq", 3) == 0;
            double d = 0, l = 0;
            size_t empty = 0;
            for (size_t k = 0; k < size / (f32 ? 4 : 2); k++) {
                uint32_t word;
                memcpy(&word, (char *)y + (f32 ? 4 * k : k / 2 * 4), 4);
                if (word == UINT32_MAX) {
                    empty++;
                    continue;
                }
                bool q16 = strcmp(names[n], "qkv") == 0 || strcmp(names[n], "parts") == 0;
                double u = f32 ? (double)((float *)x)[k] : (double)half(x[k], bf16 && !q16);
                double v = f32 ? (double)((float *)y)[k] : (double)half(y[k], bf16 && !q16);
                d += (u - v) * (u - v);
                l += u * u;
            }
            printf("    %-12s differs by %.2e, %zu of %zu empty\n", name, sqrt(d / (l + 1e-30)),
                   empty, size / (f32 ? 4 : 2));
            free(x);
            free(y);
        }
}

static bool step_both(side *cpu, side *gpu, const brim_token *tokens, uint32_t count)
{
    brim_row a[BRIM_DECODE_ROWS], b[BRIM_DECODE_ROWS];
    for (uint32_t i = 0; i < count; i++) {
        a[i] = (brim_row){cpu->session, tokens[i], true};
        b[i] = (brim_row){gpu->session, tokens[i], true};
    }
    const float *x, *y;
    size_t stride_x, stride_y, vocab = cpu->llm->config.vocab_size;
    check(brim_runner_step(cpu->runner, a, count, &x, &stride_x));
    brim_status status = brim_runner_step(gpu->runner, b, count, &y, &stride_y);
    if (status != BRIM_OK)
        compare_buffers(cpu, gpu, count > 1,
                        brim_executor_epoch(brim_runner_executor(cpu->runner, count > 1)) - 1);
    check(status);
    bool good = true;
    double worst = 0;
    for (uint32_t i = 0; i < count; i++) {
        double d = difference(y + i * stride_y, x + i * stride_x, vocab);
        worst = d > worst || d != d ? d : worst;
        good &= d < bound;
    }
    printf("  %u rows at position %u: logits differ by %.2e\n", count,
           brim_session_length(cpu->session) - count, worst);
    if (!good)
        compare_buffers(cpu, gpu, count > 1,
                        brim_executor_epoch(brim_runner_executor(cpu->runner, count > 1)) - 1);
    return good;
}

static bool same_text(side *cpu, side *gpu)
{
    brim_token text[2][TOKENS], last = 5;
    brim_generate_desc desc = brim_generate_desc_default();
    desc.sampling.temperature = 0;
    uint32_t made[2];
    side *sides[2] = {cpu, gpu};
    for (int n = 0; n < 2; n++)
        check(brim_runner_decode(text[n], &made[n], sides[n]->runner, &sides[n]->session, &last, 1,
                                 TOKENS, &desc));
    uint32_t same = 0;
    while (same < made[0] && same < made[1] && text[0][same] == text[1][same])
        same++;
    printf("  greedy: %u of %u tokens alike\n", same, made[0]);
    return same == TOKENS;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: gpu_resident MODEL [--lanes N] [--generic] [--ring BYTES]\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--generic") == 0)
            generic = true;
        else if (strcmp(argv[i], "--lanes") == 0 && i + 1 < argc)
            lanes = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--ring") == 0 && i + 1 < argc)
            ring_bytes = (uint32_t)strtoul(argv[++i], NULL, 10);
    }
    check(brim_context_create(&ctx, NULL));
    setvbuf(stdout, NULL, _IOLBF, 0);
    side cpu = {0}, gpu = {0};
    open_side(&cpu, argv[1], false);
    open_side(&gpu, argv[1], true);
    if (lanes == 0)
        lanes = brim_runner_lanes(gpu.runner);
    printf("%s: %u lanes\n", argv[1], lanes);
    bool good = true;
    brim_token tokens[ROWS];
    for (uint32_t i = 0; i < ROWS; i++)
        tokens[i] = (brim_token)((i * 7919u + 13u) % cpu.llm->config.vocab_size);
    for (uint32_t i = 0; i < 3 && good; i++)
        good &= step_both(&cpu, &gpu, &tokens[i], 1);
    for (uint32_t round = 0; round < 17 && good; round++)
        good &= step_both(&cpu, &gpu, &tokens[round % 3], 8);
    good = good && step_both(&cpu, &gpu, tokens, 5);
    for (uint32_t i = 0; i < 3 && good; i++)
        good &= step_both(&cpu, &gpu, &tokens[i], 1);
    bool text = good && same_text(&cpu, &gpu);
    printf("%s\n", good ? text ? "alike" : "alike but for text" : "DIFFERENT");
    return !good;
}
