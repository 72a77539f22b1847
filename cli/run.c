/* run.c: `brim run`: answers one prompt, or opens a conversation on a terminal.
 */
#include "run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT_BYTES_MAX = 64 << 20, TOKENS_MAX = 1 << 24 };

typedef struct run_options {
    int64_t context, top_k, repeat_last, seed;
    double temperature, top_p, min_p, repeat_penalty;
    bool greedy;
    const char *template_name;
} run_options;

void run_say_lost(uint64_t lost)
{
    if (lost)
        fprintf(stderr, "brim run: the vocabulary lacks %llu byte%s of the text; %s left out\n",
                (unsigned long long)lost, lost == 1 ? "" : "s", lost == 1 ? "it was" : "they were");
}

int run_full(run_state *r, const answer *a)
{
    bool json = r->c->json;
    r->c->json = false; /* the answer's document has been printed: one is enough */
    int code = cli_error(
        r->c, BRIM_LIMIT, "run.context_full",
        "the context of %u positions is full, the answer ends after %zu tokens; --ctx N makes "
        "it larger (the model was trained with %u), --shift forgets the oldest tokens",
        brim_runner_context(r->model.runner), a->token_count,
        brim_llm_config(r->model.llm)->context_trained);
    r->c->json = json;
    return code;
}

/* ---- options ---- */

static bool check_utf8(cli *c, const char *what, const char *text, size_t size, int *code)
{
    size_t bad = brim_utf8_check(text, size);
    if (bad == size)
        return true;
    *code = cli_error(c, BRIM_USAGE, "run.utf8",
                      "%s is not UTF-8: byte %zu is 0x%02x; convert it, e.g. with iconv", what, bad,
                      (unsigned char)text[bad]);
    return false;
}

static bool check_options(run_state *r, const run_options *o, int *code)
{
    cli *c = r->c;
    if (r->raw && (o->template_name || r->system)) {
        *code = cli_error(c, BRIM_USAGE, "run.raw",
                          "--raw is a continuation without a template: it excludes --%s",
                          r->system ? "system" : "template");
        return false;
    }
    if (r->system && !check_utf8(c, "--system", r->system, strlen(r->system), code))
        return false;
    brim_text_stream *stream; /* says what is wrong with a stop string before a model is loaded */
    brim_status status =
        brim_text_stream_create(&stream, c->ctx, r->settings.stops.items, r->settings.stops.count);
    if (status != BRIM_OK) {
        *code = cli_error(c, status, brim_last_id(), "--stop: %s", brim_last_message());
        return false;
    }
    brim_text_stream_destroy(stream);
    if (o->template_name && !brim_chat_parse(&r->chat, o->template_name)) {
        char names[256] = "";
        for (int kind = BRIM_CHAT_CHATML; kind <= BRIM_CHAT_QWEN3; kind++) {
            size_t at = strlen(names);
            snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                     brim_chat_name((brim_chat_kind)kind));
        }
        *code = cli_error(c, BRIM_USAGE, "run.template",
                          "--template: '%s' is not one of %s; --raw uses none", o->template_name,
                          names);
        return false;
    }
    if (r->trace && !(r->execution.trace_events = run_trace_events(c, r->trace, code)))
        return false;
    return true;
}

static void take_sampling(run_state *r, const run_options *o)
{
    r->settings.sampling = (brim_sampling){
        .temperature = o->greedy ? 0 : (float)o->temperature,
        .top_k = (uint32_t)o->top_k,
        .top_p = (float)o->top_p,
        .min_p = (float)o->min_p,
        .repeat_penalty = (float)o->repeat_penalty,
        .repeat_last = (uint32_t)o->repeat_last,
        .seed = (uint64_t)o->seed,
    };
}

static bool parse(run_state *r, run_options *o, int argc, char **argv, int *code)
{
    cli *c = r->c;
    answer_settings *s = &r->settings;
    const cli_option options[] = {
        CLI_TEXT("system", 's', "TEXT", &r->system,
                 "what the model is told before the conversation"),
        CLI_INT("tokens", 'n', "N", &s->max_tokens, 1, TOKENS_MAX,
                "at most N tokens of answer (default: until the model ends it)"),
        CLI_INT("ctx", 0, "N", &o->context, 16, 1 << 20,
                "positions of context (default: as trained, at most 4096)"),
        CLI_FLAG("shift", 0, &s->shift,
                 "forget the oldest tokens when the context is full; it is said"),
        CLI_TEXT("template", 0, "NAME", &o->template_name,
                 "chat template: chatml, smollm2, llama2, llama3, mistral, qwen2, qwen3 (default: "
                 "the file's own)"),
        CLI_FLAG("raw", 0, &r->raw, "no template: continue the prompt as a text"),
        CLI_LIST("stop", 0, "TEXT", &s->stops, "end the answer before this text; may be repeated"),
        CLI_FLAG("greedy", 0, &o->greedy, "always the likeliest token: --temp 0"),
        CLI_FLOAT("temp", 0, "T", &o->temperature, 0, 100, "temperature (default: 0.8)"),
        CLI_INT("top-k", 0, "N", &o->top_k, 0, INT32_MAX,
                "of the N likeliest tokens (default: 40; 0: all)"),
        CLI_FLOAT("top-p", 0, "P", &o->top_p, 1e-6, 1,
                  "of the likeliest that make up P (default: 0.95; 1: all)"),
        CLI_FLOAT("min-p", 0, "P", &o->min_p, 0, 1,
                  "at least P times the likeliest (default: 0.05; 0: all)"),
        CLI_FLOAT("repeat-penalty", 0, "X", &o->repeat_penalty, 1e-6, 10,
                  "against repetition (default: 1, none)"),
        CLI_INT("repeat-last", 0, "N", &o->repeat_last, 0, 1 << 20,
                "tokens that it looks back at (default: 64)"),
        CLI_INT("seed", 0, "N", &o->seed, 0, INT64_MAX,
                "of the random choices (default: 0: the same answer again)"),
        CLI_INT("threads", 't', "N", &r->execution.threads, 1, 1024, "lanes (default: one a CPU)"),
        CLI_TEXT("trace", 0, "FILE", &r->trace,
                 "write who computed what when: .json (Chrome, Perfetto) or .svg"),
        CLI_EXECUTION_OPTIONS(&r->execution),
        CLI_JSON(c),
    };
    const cli_spec spec = {
        .usage = "brim run MODEL [PROMPT] [options]",
        .about =
            "Answers PROMPT; '-' or a pipe: standard input. Without one, on a terminal: a\n"
            "conversation with editing and history (/help there). The answer goes to standard\n"
            "output, all else to standard error. Ctrl-C stops an answer, twice leaves.",
        .examples = "  brim run smollm2-135m \"What is the capital of France?\"\n"
                    "  brim run smollm2-135m\n"
                    "  git diff | brim run smollm2-135m --system \"Summarise the change.\"\n"
                    "  brim run smollm2-135m --raw \"Once upon a time\" -n 64 --seed 7\n"
                    "  brim run smollm2-135m \"Hello\" --greedy --json | jq .decode_tok_s\n"
                    "  brim run smollm2-135m \"Hello\" --trace trace.svg\n"
                    "  brim run llama-3.1-8b \"Hello\" --device cuda:1\n",
        .options = options,
        .option_count = CLI_COUNT(options),
        .args_min = 1,
        .args_max = 2,
        .args_what = "a model",
    };
    return cli_parse(c, &spec, argc, argv, code) && check_options(r, o, code);
}

/* ---- the prompt ---- */

/* Takes the prompt from the arguments or standard input. *out_text NULL: a conversation. */
static bool take_prompt(run_state *r, char **out_text, size_t *out_size, int *code)
{
    cli *c = r->c;
    const char *given = c->arg_count > 1 ? c->args[1] : NULL;
    bool terminal = isatty(STDIN_FILENO);
    *out_text = NULL;
    if (!given && terminal) {
        if (!c->json && !r->raw && isatty(STDOUT_FILENO))
            return true;
        *code = cli_error(
            c, BRIM_USAGE, "run.prompt",
            "a prompt is missing: a conversation needs a terminal, and neither --raw nor --json");
        return false;
    }
    if (given && strcmp(given, "-") != 0) {
        *out_size = strlen(given);
        *out_text = strdup(given);
        if (!*out_text)
            *code = cli_error(c, BRIM_NO_MEMORY, "memory.out", "no memory for the prompt");
    } else if (cli_read_file(c, out_text, out_size, "-", PROMPT_BYTES_MAX, code)) {
        /* The line feed that ends a file is no part of a question. */
        if (!r->raw && *out_size && (*out_text)[*out_size - 1] == '\n')
            (*out_text)[--*out_size] = 0;
    }
    if (!*out_text)
        return false;
    bool good = check_utf8(c, given && strcmp(given, "-") != 0 ? "PROMPT" : "standard input",
                           *out_text, *out_size, code);
    if (good && *out_size == 0)
        *code = cli_error(c, BRIM_USAGE, "run.prompt", "the prompt is empty");
    if (good && *out_size)
        return true;
    free(*out_text);
    *out_text = NULL;
    return false;
}

uint32_t run_constant_start(run_state *r, const brim_tokens *tokens)
{
    brim_message messages[2] = {{BRIM_ROLE_SYSTEM, r->system, r->system ? strlen(r->system) : 0},
                                {BRIM_ROLE_USER, "", 0}};
    size_t first = r->system ? 0 : 1;
    brim_tokens other = {0};
    uint32_t same = brim_tokenizer_adds_bos(r->model.tokenizer) ? 1 : 0;
    if (!r->raw && brim_chat_encode(&other, NULL, r->c->ctx, r->model.tokenizer, r->chat,
                                    messages + first, 2 - first, false, true) == BRIM_OK) {
        same = 0;
        while (same < other.count && same < tokens->count && other.ids[same] == tokens->ids[same])
            same++;
    }
    brim_tokens_done(&other, r->c->ctx);
    return same;
}

static brim_status encode_prompt(run_state *r, brim_tokens *out, uint64_t *lost, const char *text,
                                 size_t size)
{
    brim_context *ctx = r->c->ctx;
    const brim_tokenizer *t = r->model.tokenizer;
    if (r->raw) {
        const brim_encode_options options = {.bos = brim_tokenizer_adds_bos(t)};
        return brim_encode(out, lost, ctx, t, text, size, &options);
    }
    brim_message messages[2] = {{BRIM_ROLE_SYSTEM, r->system, r->system ? strlen(r->system) : 0},
                                {BRIM_ROLE_USER, text, size}};
    size_t first = r->system ? 0 : 1;
    return brim_chat_encode(out, lost, ctx, t, r->chat, messages + first, 2 - first, false, true);
}

/* ---- one answer ---- */

static int finish_answer(run_state *r, const answer *a)
{
    int code = CLI_OK;
    if (r->c->json)
        code = cli_print_json(r->c, answer_json(a));
    else
        answer_print_figures(a);
    if (code == CLI_OK && r->trace)
        code = run_trace_write(r);
    if (code == CLI_OK && a->end == ANSWER_END_CONTEXT)
        code = run_full(r, a);
    return code == CLI_OK && a->end == ANSWER_END_INTERRUPT ? CLI_INTERRUPTED : code;
}

static int answer_once(run_state *r, const char *text, size_t size)
{
    brim_tokens tokens = {0};
    uint64_t lost = 0;
    int code = CLI_OK;
    brim_status status = encode_prompt(r, &tokens, &lost, text, size);
    if (status == BRIM_OK && tokens.count == 0) {
        code =
            cli_error(r->c, BRIM_USAGE, "run.prompt", "the prompt has no token of this vocabulary");
    } else if (status != BRIM_OK) {
        code = cli_fail(r->c, status);
    } else {
        answer a;
        run_say_lost(lost);
        if (answer_make(&a, &r->settings, tokens.ids, (uint32_t)tokens.count,
                        run_constant_start(r, &tokens), &code))
            code = finish_answer(r, &a);
        answer_done(&a);
    }
    brim_tokens_done(&tokens, r->c->ctx);
    return code;
}

/* ---- the whole ---- */

static bool choose_template(run_state *r, const run_options *o, int *code)
{
    if (r->raw)
        return true;
    brim_status status = o->template_name ? BRIM_OK : brim_chat_recognise(&r->chat, r->model.file);
    if (status != BRIM_OK)
        *code = cli_fail(r->c, status);
    r->settings.trim_space = r->chat == BRIM_CHAT_LLAMA2 || r->chat == BRIM_CHAT_MISTRAL;
    return status == BRIM_OK;
}

/* The context that is used is never a surprise. */
static void say_context(const run_state *r, const run_options *o)
{
    uint32_t context = brim_runner_context(r->model.runner);
    uint32_t trained = brim_llm_config(r->model.llm)->context_trained;
    if (context > trained)
        fprintf(stderr,
                "brim run: a context of %u positions is more than the %u that the model was "
                "trained with\n",
                context, trained);
    else if (!o->context && context < trained)
        fprintf(stderr,
                "brim run: a context of %u positions; the model was trained with %u, --ctx N uses "
                "them\n",
                context, trained);
    else if (!o->context)
        fprintf(stderr, "brim run: a context of %u positions, as the model was trained\n", context);
}

static bool start(run_state *r, const run_options *o, int *code)
{
    cli_model *m = &r->model;
    if (!cli_model_open(m, r->c, r->c->args[0], code) || !choose_template(r, o, code) ||
        !cli_model_load(m, &r->execution, code) || !cli_model_runner(m, &r->execution, code))
        return false;
    r->settings.model = m;
    brim_status status = brim_session_create(&r->settings.session, m->runner);
    if (status != BRIM_OK)
        *code = cli_fail(r->c, status);
    return status == BRIM_OK;
}

int brim_cli_run(cli *c, int argc, char **argv)
{
    const brim_sampling normal = brim_sampling_default();
    run_options o = {
        .top_k = normal.top_k,
        .repeat_last = normal.repeat_last,
        .seed = (int64_t)normal.seed,
        .temperature = (double)normal.temperature,
        .top_p = (double)normal.top_p,
        .min_p = (double)normal.min_p,
        .repeat_penalty = (double)normal.repeat_penalty,
    };
    run_state r = {.c = c, .execution = CLI_EXECUTION_DEFAULT};
    char *text;
    size_t size;
    int code;
    if (!parse(&r, &o, argc, argv, &code) || !take_prompt(&r, &text, &size, &code))
        return code;
    take_sampling(&r, &o);
    r.execution.context = (uint32_t)o.context;
    r.settings.quiet = r.settings.hash = c->json;
    if (start(&r, &o, &code)) {
        say_context(&r, &o);
        cli_model_catch_interrupt(&r.model);
        code = text ? answer_once(&r, text, size) : run_chat(&r);
    }
    free(text);
    if (r.settings.session)
        brim_session_destroy(r.settings.session);
    cli_model_done(&r.model);
    return code;
}
