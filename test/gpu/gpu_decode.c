/* gpu_decode.c MODEL [options]: the time of a decoded token on a CUDA device, beside its bytes.
 *   --position N   positions in the KV cache before (default 512)
 *   --sessions N   1 or 8 rows a step (default 1)
 *   --sampled      top-k 40 and top-p 0.95 instead of greedy
 *   --lanes N, --generic, --ring BYTES, --chains N, --trace FILE.svg, --gb-s N (read bandwidth)
 *   --json         one line of JSON
 * Tokens are chained 64 a launch; the time is that of whole launches over tokens, launch and the
 * host's part included; the median of the chains, with the least and the most. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "base/thread.h"
#include "llm/runner.h"

enum { CHAIN = 64, CHAINS_MAX = 256 };

typedef struct options {
    const char *path, *trace;
    uint32_t position, sessions, lanes, ring, chains;
    double gb_s;
    bool sampled, generic, json;
} options;

static brim_context *ctx;

static void check(brim_status status)
{
    if (status == BRIM_OK)
        return;
    fprintf(stderr, "%s: %s\n", brim_last_id(), brim_last_message());
    exit(1);
}

static uint32_t number(const char *text)
{
    return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

static bool read_options(options *o, int argc, char **argv)
{
    *o = (options){.position = 512, .sessions = 1, .chains = 10, .gb_s = 4550};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(a, "--sampled") == 0)
            o->sampled = true;
        else if (strcmp(a, "--generic") == 0)
            o->generic = true;
        else if (strcmp(a, "--json") == 0)
            o->json = true;
        else if (a[0] != '-')
            o->path = a;
        else if (!value)
            return false;
        else {
            i++;
            if (strcmp(a, "--position") == 0)
                o->position = number(value);
            else if (strcmp(a, "--sessions") == 0)
                o->sessions = number(value);
            else if (strcmp(a, "--lanes") == 0)
                o->lanes = number(value);
            else if (strcmp(a, "--ring") == 0)
                o->ring = number(value);
            else if (strcmp(a, "--chains") == 0)
                o->chains = number(value);
            else if (strcmp(a, "--gb-s") == 0)
                o->gb_s = strtod(value, NULL);
            else if (strcmp(a, "--trace") == 0)
                o->trace = value;
            else
                return false;
        }
    }
    return o->path && o->sessions >= 1 && o->sessions <= 8 && o->chains <= CHAINS_MAX;
}

static void make_sessions(const options *o, brim_runner *runner, brim_session **sessions)
{
    uint32_t vocab = 1000, fed = o->position > CHAIN / 2 ? o->position - CHAIN / 2 : 1;
    brim_token *tokens = calloc(fed, sizeof *tokens);
    for (uint32_t s = 0; s < o->sessions; s++) {
        for (uint32_t i = 0; i < fed; i++)
            tokens[i] = (brim_token)((i * 7919u + s * 104729u + 13u) % vocab);
        check(brim_session_create(&sessions[s], runner));
        check(brim_session_feed(sessions[s], tokens, fed, NULL, NULL));
    }
    free(tokens);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void report(const options *o, const brim_llm *llm, const brim_runner *runner, double *us)
{
    qsort(us, o->chains, sizeof *us, by_value);
    double median = us[o->chains / 2];
    const brim_model_config *c = brim_llm_config(llm);
    uint32_t seen = o->position;
    if (c->sliding_window && seen > c->sliding_window)
        seen = c->sliding_window;
    double bytes = (double)brim_llm_decode_bytes(llm) +
                   2.0 * o->sessions * seen * (double)c->kv_elements_per_position;
    double floor = bytes / (o->gb_s * 1e3);
    if (o->json)
        printf("{\"model\": \"%s\", \"position\": %u, \"sessions\": %u, \"sampled\": %s, "
               "\"lanes\": %u, \"generic\": %s, \"us\": %.2f, \"us_min\": %.2f, \"us_max\": %.2f, "
               "\"bytes\": %.0f, \"floor_us\": %.2f, \"read_gb_s\": %.0f}\n",
               c->name, o->position, o->sessions, o->sampled ? "true" : "false",
               brim_runner_lanes(runner), o->generic ? "true" : "false", median, us[0],
               us[o->chains - 1], bytes, floor, o->gb_s);
    else
        printf("%-14s position %5u, %u rows, %s, %3u lanes: %8.1f us a token (%.1f to %.1f), "
               "%.3f TB/s, %.0f %% of the floor of %.0f us\n",
               c->name, o->position, o->sessions, o->sampled ? "sampled" : "greedy",
               brim_runner_lanes(runner), median, us[0], us[o->chains - 1], bytes / median / 1e6,
               100 * floor / median, floor);
}

static void measure(const options *o, const brim_llm *llm, brim_runner *runner)
{
    brim_session *sessions[8];
    brim_token tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[CHAIN * 8];
    double us[CHAINS_MAX];
    make_sessions(o, runner, sessions);
    brim_generate_desc desc = brim_generate_desc_default();
    desc.sampling = (brim_sampling){.temperature = o->sampled ? 0.8f : 0,
                                    .top_k = 40,
                                    .top_p = 0.95f,
                                    .repeat_penalty = 1,
                                    .seed = 1};
    uint32_t length = brim_session_length(sessions[0]);
    for (uint32_t n = 0; n < o->chains + 1; n++) {
        for (uint32_t s = 0; s < o->sessions; s++)
            check(brim_session_truncate(sessions[s], length));
        uint32_t made;
        uint64_t begin = brim__now_ns();
        check(brim_runner_decode(out, &made, runner, sessions, tokens, o->sessions, CHAIN, &desc));
        if (n > 0)
            us[n - 1] = (double)(brim__now_ns() - begin) / 1e3 / made;
    }
    report(o, llm, runner, us);
    size_t name = o->trace ? strlen(o->trace) : 0;
    brim_executor *x = brim_runner_executor(runner, o->sessions > 1);
    if (name > 5 && strcmp(o->trace + name - 5, ".json") == 0)
        check(brim_trace_write_json(x, o->trace));
    else if (o->trace)
        check(brim_trace_write_svg(x, o->trace));
    for (uint32_t s = 0; s < o->sessions; s++)
        brim_session_destroy(sessions[s]);
}

int main(int argc, char **argv)
{
    options o;
    if (!read_options(&o, argc, argv)) {
        fprintf(stderr, "usage: gpu_decode MODEL [--position N] [--sessions 1|8] [--sampled] ...\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    brim_device *device;
    brim_model_file *file;
    brim_llm *llm;
    brim_runner *runner;
    check(brim_context_create(&ctx, NULL));
    check(brim_device_open_index(&device, ctx, BRIM_DEVICE_CUDA, 0));
    check(brim_model_file_open(&file, ctx, o.path));
    brim_llm_desc desc = brim_llm_desc_default();
    desc.device = device;
    desc.context = (o.position + 2 * CHAIN + 31) / 32 * 32;
    desc.sessions = o.sessions;
    check(brim_llm_create(&llm, ctx, file, &desc));
    brim_model_file_close(file);
    brim_runner_desc r = brim_runner_desc_default();
    r.context = desc.context;
    r.sessions = o.sessions;
    r.lanes = o.lanes;
    r.skip_check = true;
    r.executor.generic_image = o.generic;
    r.executor.ring_bytes = o.ring;
    r.executor.trace_events = o.trace ? 320 : 0; /* about two tokens */
    check(brim_runner_create(&runner, ctx, llm, &r));
    measure(&o, llm, runner);
    brim_runner_destroy(runner);
    brim_llm_destroy(llm);
    brim_device_close(device);
    brim_context_destroy(ctx);
    return 0;
}
