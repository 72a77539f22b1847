/* gpu_claims.h: what the programs of test/gpu share that state claims about the resident executor:
 * options, a model on a device, answers with the hashes of their logits, one line a claim.
 *
 * With --cpu the same programs run on the CPU executor, as far as they can: that tests the programs
 * themselves where there is no GPU. */
#ifndef BRIM_TEST_GPU_CLAIMS_H
#define BRIM_TEST_GPU_CLAIMS_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "llm/runner.h"
#include "program/executor_cuda.h"

enum { EXIT_NOT_RUN = 77, ANSWER_MAX = 1024 };

/* ---- claims ---- */

typedef struct claims {
    const char *program;
    FILE *json;
    uint32_t passed, failed;
    uint64_t since_ns;
} claims;

static claims all_claims;

static inline void claims_begin(const char *program, const char *json, const char *model)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    all_claims = (claims){.program = program, .since_ns = brim__now_ns()};
    all_claims.json = json ? fopen(json, "w") : NULL;
    if (json && !all_claims.json) {
        fprintf(stderr, "%s: %s can't be written\n", program, json);
        exit(2);
    }
    if (all_claims.json)
        fprintf(all_claims.json, "{\"program\": \"%s\", \"model\": \"%s\", \"claims\": [", program,
                model);
}

static inline void write_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', file);
        fputc((unsigned char)*text < ' ' ? ' ' : *text, file);
    }
    fputc('"', file);
}

/* One line: whether it holds, its name, and what was seen. Returns `good`. */
__attribute__((format(printf, 3, 4))) static inline bool claim(bool good, const char *name,
                                                               const char *fmt, ...)
{
    char detail[700];
    va_list list;
    va_start(list, fmt);
    vsnprintf(detail, sizeof detail, fmt, list);
    va_end(list);
    uint64_t now = brim__now_ns();
    double seconds = (double)(now - all_claims.since_ns) / 1e9;
    all_claims.since_ns = now;
    printf("%s %s: %s (%.1f s)\n", good ? "PASS" : "FAIL", name, detail, seconds);
    if (all_claims.json) {
        bool first = all_claims.passed + all_claims.failed == 0;
        fprintf(all_claims.json, "%s\n  {\"claim\": \"%s\", \"pass\": %s, \"seconds\": %.3f, ",
                first ? "" : ",", name, good ? "true" : "false", seconds);
        fprintf(all_claims.json, "\"seen\": ");
        write_text(all_claims.json, detail);
        fputc('}', all_claims.json);
    }
    all_claims.passed += good;
    all_claims.failed += !good;
    return good;
}

/* The exit code. */
static inline int claims_end(void)
{
    printf("%s: %u claims hold, %u do not\n", all_claims.program, all_claims.passed,
           all_claims.failed);
    if (all_claims.json) {
        fprintf(all_claims.json, "\n], \"passed\": %u, \"failed\": %u}\n", all_claims.passed,
                all_claims.failed);
        fclose(all_claims.json);
    }
    return all_claims.failed != 0;
}

/* What has to work for the program to go on. */
static inline void must_at(brim_status status, const char *file, int line)
{
    if (status == BRIM_OK)
        return;
    fprintf(stderr, "%s:%d: %s [%s]\n", file, line, brim_last_message(), brim_last_id());
    bool absent = strcmp(brim_last_id(), "cuda.absent") == 0;
    exit(absent ? EXIT_NOT_RUN : 1);
}
#define MUST(expr) must_at((expr), __FILE__, __LINE__)

/* ---- options ---- */

typedef struct option_desc {
    const char *name;
    uint32_t *number;  /* with a number behind it */
    const char **text; /* with a word behind it */
    bool *flag;
} option_desc;

/* The one argument that is no option is the model. False: say how it is used. */
static inline bool read_options(const char **out_path, const option_desc *options, size_t count,
                                int argc, char **argv)
{
    *out_path = NULL;
    for (int i = 1; i < argc; i++) {
        size_t n = 0;
        while (n < count && strcmp(options[n].name, argv[i]) != 0)
            n++;
        if (n == count && argv[i][0] != '-' && !*out_path)
            *out_path = argv[i];
        else if (n == count)
            return false;
        else if (options[n].flag)
            *options[n].flag = true;
        else if (++i == argc)
            return false;
        else if (options[n].text)
            *options[n].text = argv[i];
        else
            *options[n].number = (uint32_t)strtoul(argv[i], NULL, 10);
    }
    return *out_path != NULL;
}

/* ---- a model on a device ---- */

typedef struct place {
    brim_context *ctx;
    brim_device *device;
    brim_llm *llm;
    const char *path;
    bool cpu;
    uint32_t vocab, lanes_max;
} place;

static inline void place_open(place *p, const char *path, bool cpu)
{
    brim_device_info info;
    brim_model_file *file;
    *p = (place){.path = path, .cpu = cpu};
    MUST(brim_context_create(&p->ctx, NULL));
    MUST(brim_device_open(&p->device, p->ctx, cpu ? BRIM_DEVICE_CPU : BRIM_DEVICE_CUDA));
    MUST(brim_device_query(&info, p->device));
    MUST(brim_model_file_open(&file, p->ctx, path));
    brim_llm_desc desc = brim_llm_desc_default();
    desc.device = p->device;
    MUST(brim_llm_create(&p->llm, p->ctx, file, &desc));
    brim_model_file_close(file);
    p->vocab = p->llm->config.vocab_size;
    p->lanes_max = cpu ? 16 : info.lane_count_max;
    printf("%s on %s: %u layers, vocabulary of %u\n", path, info.name, p->llm->config.layer_count,
           p->vocab);
    all_claims.since_ns = brim__now_ns();
}

static inline void place_close(place *p)
{
    brim_llm_destroy(p->llm);
    brim_device_close(p->device);
    size_t left = brim_context_bytes(p->ctx);
    if (left)
        fprintf(stderr, "%zu bytes were not given back\n", left);
    brim_context_destroy(p->ctx);
}

static inline brim_runner_desc desc_of(uint32_t context, uint32_t sessions, uint32_t lanes)
{
    brim_runner_desc d = brim_runner_desc_default();
    d.context = context;
    d.sessions = sessions;
    d.lanes = lanes;
    d.skip_check = true;
    return d;
}

static inline brim_runner *runner_open(const place *p, const brim_runner_desc *desc)
{
    brim_runner *runner;
    brim_runner_desc d = *desc;
    if (p->cpu)
        d.executor.kind = BRIM_EXECUTOR_CPU;
    MUST(brim_runner_create(&runner, p->ctx, p->llm, &d));
    return runner;
}

/* Faults for all programs of a runner; those of the CPU have none. */
static inline void plant(brim_runner *r, uint32_t lane, uint32_t epoch, uint32_t delays)
{
    for (int e = 0; e < ENGINE_COUNT; e++)
        if (r->engines[e].executor && r->engines[e].executor->cuda)
            brim__cuda_executor_plant(r->engines[e].executor, lane, epoch, delays);
}

/* ---- answers ---- */

typedef struct answer {
    uint32_t count;
    brim_token tokens[ANSWER_MAX];
    uint64_t hashes[ANSWER_MAX]; /* of the logits that each was chosen from, if asked for */
} answer;

typedef struct question {
    uint64_t prompt; /* which one */
    uint32_t length; /* of it */
    uint32_t tokens; /* wanted */
    bool drawn;      /* not greedy: a made model's greedy text soon repeats itself */
    bool hashed;
} question;

static inline brim_token prompt_token(const place *p, uint64_t prompt, uint32_t position)
{
    return (brim_token)brim__random_below(prompt, 77, position, p->vocab);
}

static inline void make_prompt(brim_token *out, const place *p, uint64_t prompt, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        out[i] = prompt_token(p, prompt, i);
}

static inline bool take_answer(const brim_generated *g, void *user)
{
    answer *a = user;
    if (a->count == ANSWER_MAX)
        return false;
    a->tokens[a->count] = g->token;
    a->hashes[a->count++] = g->logits_hash;
    return true;
}

static inline brim_generate_desc generate_desc(const question *q)
{
    brim_generate_desc d = brim_generate_desc_default();
    d.sampling = (brim_sampling){.temperature = q->drawn ? 1 : 0,
                                 .top_k = 40,
                                 .top_p = 1,
                                 .repeat_penalty = 1,
                                 .seed = q->prompt};
    d.max_tokens = q->tokens;
    d.hash_logits = q->hashed;
    return d;
}

/* From the beginning of the session. */
static inline brim_status ask(answer *out, brim_session *session, const place *p, const question *q)
{
    brim_token prompt[ANSWER_MAX];
    brim_generate_stats stats;
    out->count = 0;
    make_prompt(prompt, p, q->prompt, q->length);
    brim_generate_desc d = generate_desc(q);
    d.token = take_answer;
    d.user = out;
    brim_status status = brim_session_truncate(session, 0);
    return status != BRIM_OK ? status
                             : brim_session_generate(&stats, session, prompt, q->length, &d);
}

static inline bool same_answer(const answer *a, const answer *b, bool hashed)
{
    return a->count == b->count &&
           memcmp(a->tokens, b->tokens, a->count * sizeof *a->tokens) == 0 &&
           (!hashed || memcmp(a->hashes, b->hashes, a->count * sizeof *a->hashes) == 0);
}

static inline uint64_t hash_of(const answer *a)
{
    uint64_t h = brim__hash64(a->tokens, a->count * sizeof *a->tokens, a->count);
    return brim__hash64(a->hashes, a->count * sizeof *a->hashes, h);
}

/* Evaluates one more token; the hash of its logits. What went wrong anywhere in the session's
 * KV cache shows in it. */
static inline uint64_t hash_next(brim_session *session, brim_token token)
{
    const float *logits;
    size_t vocab;
    brim_row row = {session, token, true};
    MUST(brim_runner_step(session->runner, &row, 1, &logits, &vocab));
    return brim__hash64(logits, 4 * vocab, 0);
}

#endif
