/* answer_stream.c: generates one answer and shows it as it comes.
 *
 * Text from a model may hold any character: on a terminal control characters are shown, not sent.
 */
#include "answer_stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Prompts are fed in slices, so that a long one has a progress bar. */
enum { FEED_SLICE = 256 };

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- text ---- */

static void print_text(const char *text, size_t size)
{
    if (!isatty(STDOUT_FILENO)) {
        fwrite(text, 1, size, stdout);
        fflush(stdout);
        return;
    }
    for (size_t at = 0; at < size;) {
        size_t plain = at;
        while (plain < size && text[plain] != '\n' && text[plain] != '\t')
            plain++;
        brim_print_safe(stdout, text + at, plain - at);
        if (plain < size)
            putchar(text[plain]);
        at = plain + 1;
    }
    fflush(stdout);
}

/* Makes room for `need` items of `size` bytes; false when there is no memory. */
static bool grow(void **items, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return true;
    size_t wanted = *capacity ? *capacity * 2 : 256;
    while (wanted < need)
        wanted *= 2;
    void *grown = realloc(*items, wanted * size);
    if (!grown)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

static bool take_text(answer *a, const char *text, size_t size)
{
    if (a->text_size == 0 && a->settings->trim_space && size && text[0] == ' ')
        text++, size--;
    if (!grow((void **)&a->text, &a->text_capacity, a->text_size + size + 1, 1))
        return false;
    memcpy(a->text + a->text_size, text, size);
    a->text_size += size;
    a->text[a->text_size] = 0;
    if (!a->settings->quiet && size)
        print_text(text, size);
    return true;
}

static bool keep_token(answer *a, brim_token token)
{
    if (!grow((void **)&a->tokens, &a->token_capacity, a->token_count + 1, sizeof *a->tokens))
        return false;
    a->tokens[a->token_count++] = token;
    return true;
}

static bool on_token(const brim_generated *generated, void *user)
{
    answer *a = user;
    const char *bytes, *text;
    size_t size, text_size;
    if (!keep_token(a, generated->token)) {
        a->failed = BRIM_NO_MEMORY;
        return false;
    }
    if (generated->ended)
        return true;
    a->failed =
        brim_token_bytes(&bytes, &size, a->settings->model->tokenizer, generated->token, false);
    if (a->failed == BRIM_OK)
        a->failed = brim_text_stream_push(&text, &text_size, &a->stopped, a->stream, bytes, size);
    if (a->failed == BRIM_OK && !take_text(a, text, text_size))
        a->failed = BRIM_NO_MEMORY;
    return a->failed == BRIM_OK && !a->stopped && cli_interrupts() == 0;
}

/* ---- tokens ---- */

/* Feeds all of the prompt but its last slice, which is left to the generation. */
static brim_status feed(answer *a, const brim_token *prompt, uint32_t count, uint32_t *out_fed)
{
    uint32_t fed = 0;
    brim_status status = BRIM_OK;
    uint64_t started = now_ns();
    if (count > FEED_SLICE) {
        brim_progress_start(&a->progress, "reading the prompt", count, "tokens");
        brim_progress_update(&a->progress, 0);
    }
    while (status == BRIM_OK && count - fed > FEED_SLICE) {
        status = brim_session_feed(a->settings->session, prompt + fed, FEED_SLICE, NULL, NULL);
        if (status == BRIM_OK && cli_interrupts() > 0)
            status = BRIM_CANCELLED;
        fed += FEED_SLICE;
        brim_progress_update(&a->progress, fed);
    }
    brim_progress_finish(&a->progress);
    a->prefill_ns += now_ns() - started;
    *out_fed = fed;
    return status;
}

/* Adds what one call of brim_session_generate() measured. */
static void add_stats(answer *a, const brim_generate_stats *stats, uint32_t tokens, bool first)
{
    if (first)
        a->prefill_ns += stats->prefill_ns;
    a->decode_ns += stats->decode_ns;
    uint32_t steps = tokens > 1 ? tokens - 1 : 0;
    uint32_t end = brim_session_length(a->settings->session);
    for (uint32_t i = 0; i < steps && i < end; i++)
        a->kv_bytes += cli_model_kv_read(a->settings->model, end - 1 - i);
    a->decode_steps += steps;
    /* Parts of an answer that a shift divides are combined in order. */
    a->logits_hash = first ? stats->logits_hash
                           : (a->logits_hash ^ stats->logits_hash) * UINT64_C(0x9E3779B97F4A7C15);
}

static brim_status generate(answer *a, brim_generate_stats *stats, const brim_token *prompt,
                            uint32_t count, bool first)
{
    const answer_settings *s = a->settings;
    brim_generate_desc desc = brim_generate_desc_default();
    desc.sampling = s->sampling;
    desc.max_tokens = s->max_tokens ? (uint32_t)(s->max_tokens - (int64_t)a->token_count) : 0;
    desc.hash_logits = s->hash;
    desc.token = on_token;
    desc.user = a;
    brim_generate_ends(&desc, s->model->tokenizer);
    size_t before = a->token_count;
    *stats = (brim_generate_stats){0};
    brim_status status = brim_session_generate(stats, s->session, prompt, count, &desc);
    add_stats(a, stats, (uint32_t)(a->token_count - before), first);
    return a->failed != BRIM_OK ? a->failed : status;
}

/* Half of what may be forgotten is. */
static brim_status shift(answer *a)
{
    const answer_settings *s = a->settings;
    uint32_t length = brim_session_length(s->session);
    uint32_t keep = a->keep < length / 2 ? a->keep : 0;
    uint32_t tail = (length - keep) / 2;
    if (!s->quiet) {
        fflush(stdout);
        fprintf(stderr,
                "\nbrim run: the context of %u positions is full: tokens %u to %u are forgotten "
                "(--shift)\n",
                brim_runner_context(s->model->runner), keep + 1, length - tail);
    }
    a->shifts++;
    return brim_session_shift(s->session, keep, tail);
}

static brim_status generate_all(answer *a, const brim_token *prompt, uint32_t count)
{
    brim_generate_stats stats = {0};
    uint32_t fed, before = brim_session_length(a->settings->session);
    brim_status status = feed(a, prompt, count, &fed);
    if (status == BRIM_OK)
        status = generate(a, &stats, prompt + fed, count - fed, true);
    while (status == BRIM_OK && stats.full && !a->stopped && a->settings->shift &&
           a->token_count != (size_t)a->settings->max_tokens && cli_interrupts() == 0) {
        status = shift(a);
        if (status == BRIM_OK)
            status = generate(a, &stats, &a->tokens[a->token_count - 1], 1, false);
    }
    if (status == BRIM_CANCELLED && cli_interrupts() > 0)
        status = BRIM_OK;
    if (a->token_count == 0) /* interrupted while it read the prompt */
        a->prompt_tokens = brim_session_length(a->settings->session) - before;
    if (status != BRIM_OK)
        return status;
    a->end = a->stopped                                          ? ANSWER_END_STOP
             : cli_interrupts() > 0                              ? ANSWER_END_INTERRUPT
             : stats.ended                                       ? ANSWER_END_TOKEN
             : a->token_count == (size_t)a->settings->max_tokens ? ANSWER_END_LENGTH
                                                                 : ANSWER_END_CONTEXT;
    return BRIM_OK;
}

/* The prompt must fit before anything is computed. */
static bool fits(answer *a, uint32_t count, int *code)
{
    cli_model *m = a->settings->model;
    uint32_t context = brim_runner_context(m->runner);
    uint32_t trained = brim_llm_config(m->llm)->context_trained;
    uint32_t length = brim_session_length(a->settings->session);
    if (count <= context - length)
        return true;
    *code = cli_error(
        m->c, BRIM_LIMIT, "run.prompt_length",
        "the prompt has %u tokens, but the context has %u positions; --ctx N makes it larger "
        "(the model was trained with %u)",
        length + count, context, trained);
    return false;
}

bool answer_make(answer *a, const answer_settings *settings, const brim_token *prompt,
                 uint32_t prompt_count, uint32_t keep, int *code)
{
    *a = (answer){.settings = settings, .prompt_tokens = prompt_count, .keep = keep};
    cli *c = settings->model->c;
    if (!fits(a, prompt_count, code))
        return false;
    const char *text = NULL;
    size_t size = 0;
    brim_status status =
        brim_text_stream_create(&a->stream, c->ctx, settings->stops.items, settings->stops.count);
    if (status == BRIM_OK)
        status = generate_all(a, prompt, prompt_count);
    if (status == BRIM_OK)
        status = brim_text_stream_finish(&text, &size, a->stream);
    if (status == BRIM_OK && !take_text(a, text, size))
        status = BRIM_NO_MEMORY;
    bool newline = !settings->quiet && (a->text_size == 0 || a->text[a->text_size - 1] != '\n');
    if (newline && (a->text_size || (status == BRIM_OK && a->end != ANSWER_END_INTERRUPT)))
        putchar('\n');
    fflush(stdout);
    if (status == BRIM_NO_MEMORY)
        *code = cli_error(c, status, "memory.out", "no memory for the answer after %zu tokens",
                          a->token_count);
    else if (status != BRIM_OK)
        *code = cli_fail(c, status);
    return status == BRIM_OK;
}

void answer_done(answer *a)
{
    brim_text_stream_destroy(a->stream);
    free(a->text);
    free(a->tokens);
    a->stream = NULL;
    a->text = NULL;
    a->tokens = NULL;
}

/* ---- figures ---- */

double answer_prefill_tok_s(const answer *a)
{
    return a->prefill_ns ? (double)a->prompt_tokens * 1e9 / (double)a->prefill_ns : 0;
}

double answer_decode_tok_s(const answer *a)
{
    return a->decode_ns ? (double)a->decode_steps * 1e9 / (double)a->decode_ns : 0;
}

double answer_decode_gb_s(const answer *a)
{
    if (!a->decode_ns)
        return 0;
    double weights = (double)brim_llm_decode_bytes(a->settings->model->llm) * a->decode_steps;
    return (weights + a->kv_bytes) / (double)a->decode_ns;
}

/* Dim where colours are welcome: the figures are no part of the answer. */
static bool dims(void)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0 && !(no_color && *no_color);
}

static void print_bandwidth(const answer *a)
{
    double limit, age_s, rate = answer_decode_gb_s(a);
    char age[32];
    fprintf(stderr, ", %.1f GB/s", rate);
    const cli_model *m = a->settings->model;
    if (!cli_model_bandwidth(m, &limit, &age_s)) {
        if (!m->device || m->on_gpu)
            fprintf(stderr, " (no probe yet: brim hw)");
        return;
    }
    cli_age_text(age, age_s);
    fprintf(stderr, ", %.0f %% of this %s's %.1f GB/s (probed %s)", 100 * rate / limit,
            m->device ? "GPU" : "machine", limit, age);
}

static const char *plural(size_t count)
{
    return count == 1 ? "" : "s";
}

void answer_print_figures(const answer *a)
{
    fprintf(stderr, "%sprompt %u token%s, %.0f tokens/s; answer %zu token%s",
            dims() ? "\033[2m" : "", a->prompt_tokens, plural(a->prompt_tokens),
            answer_prefill_tok_s(a), a->token_count, plural(a->token_count));
    if (a->decode_steps) {
        fprintf(stderr, ", %.1f tokens/s", answer_decode_tok_s(a));
        print_bandwidth(a);
    }
    if (a->end == ANSWER_END_INTERRUPT)
        fputs("; stopped", stderr);
    if (a->end == ANSWER_END_LENGTH)
        fprintf(stderr, "; cut by -n %lld", (long long)a->settings->max_tokens);
    fprintf(stderr, "%s\n", dims() ? "\033[0m" : "");
}

const char *answer_end_name(answer_end end)
{
    static const char *const names[] = {"end", "length", "stop", "context", "interrupted"};
    return names[end];
}

static json_t *token_list(const answer *a)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < a->token_count; i++) {
        if (json_array_append_new(list, json_integer(a->tokens[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *real_or_null(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

json_t *answer_json(const answer *a)
{
    cli_model *m = a->settings->model;
    char hash[24];
    double limit = 0, age_s = 0;
    bool probed = cli_model_bandwidth(m, &limit, &age_s);
    snprintf(hash, sizeof hash, "%016" PRIx64, a->logits_hash);
    json_t *text = json_stringn(a->text, a->text_size);
    double gb_s = answer_decode_gb_s(a);
    return json_pack(
        "{s:s, s:o, s:o, s:I, s:I, s:s, s:i, s:s, s:I, s:s, s:I, s:i, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:s}",
        "model", cli_model_name(m), "text", text, "tokens", token_list(a), "token_count",
        (json_int_t)a->token_count, "prompt_tokens", (json_int_t)a->prompt_tokens, "stop_reason",
        answer_end_name(a->end), "lanes", (int)brim_runner_lanes(m->runner), "numerics",
        brim_numerics_name(m->numerics), "seed", (json_int_t)a->settings->sampling.seed,
        "logits_hash", hash, "context", (json_int_t)brim_runner_context(m->runner), "shifts",
        (int)a->shifts, "prefill_tok_s", real_or_null(answer_prefill_tok_s(a)), "decode_tok_s",
        real_or_null(answer_decode_tok_s(a)), "decode_gb_s", real_or_null(gb_s), "bandwidth_pct",
        probed && gb_s > 0 ? json_real(100 * gb_s / limit) : json_null(), "probe_gb_s",
        probed ? json_real(limit) : json_null(), "probe_age_s",
        probed ? json_real(age_s) : json_null(), "device", m->device_name);
}
