/* perplexity.c: `brim perplexity`: how well a model predicts a text.
 *
 * The text's tokens are cut into chunks; each is a sequence of its own, without BOS, whose first
 * token is not scored. The loss of a token is -log softmax, in double from the float32 logits.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model_open.h"

enum { FILE_BYTES_MAX = 64 << 20, CHUNK_MAX = 1 << 20 };

typedef struct perplexity {
    cli *c;
    cli_model model;
    cli_execution execution;
    int64_t chunk;
    bool ids;
    const char *save_path;
    FILE *save;
    brim_tokens tokens;
    brim_session *session;
    /* while it runs */
    const brim_token *now; /* the chunk's tokens */
    uint32_t now_count;
    uint64_t before; /* tokens of earlier chunks */
    brim_progress progress;
    bool save_failed;
    double sum, sum_squares;
    uint64_t scored, chunks;
    double seconds;
} perplexity;

/* ---- tokens ---- */

/* Token ids in decimal, separated by white space. */
static bool read_ids(perplexity *p, const char *text, size_t size, int *code)
{
    uint32_t vocab = brim_llm_config(p->model.llm)->vocab_size;
    for (size_t at = 0; at < size;) {
        if (isspace((unsigned char)text[at])) {
            at++;
            continue;
        }
        char *end = NULL;
        errno = 0;
        bool digit = isdigit((unsigned char)text[at]);
        unsigned long long id = digit ? strtoull(text + at, &end, 10) : 0;
        if (!digit || errno || id >= vocab || (*end && !isspace((unsigned char)*end))) {
            *code = cli_error(p->c, BRIM_FORMAT, "perplexity.ids",
                              "%s: byte %zu: not a token id; --ids reads numbers from 0 to %u, "
                              "separated by white "
                              "space",
                              p->c->args[1], at, vocab - 1);
            return false;
        }
        if (p->tokens.count == p->tokens.capacity) {
            *code =
                cli_error(p->c, BRIM_LIMIT, "perplexity.ids", "%s: too many ids", p->c->args[1]);
            return false;
        }
        p->tokens.ids[p->tokens.count++] = (brim_token)id;
        at = (size_t)(end - text);
    }
    return true;
}

static bool read_tokens(perplexity *p, int *code)
{
    char *text;
    size_t size;
    uint64_t lost = 0;
    if (!cli_read_file(p->c, &text, &size, p->c->args[1], FILE_BYTES_MAX, code))
        return false;
    bool good = true;
    if (p->ids) {
        /* An id and the space after it take two bytes. Not the library's block: freed here. */
        p->tokens.capacity = size / 2 + 1;
        p->tokens.ids = malloc(p->tokens.capacity * sizeof *p->tokens.ids);
        good = p->tokens.ids != NULL;
        if (!good)
            *code = cli_error(p->c, BRIM_NO_MEMORY, "memory.out", "no memory for the token ids");
        good = good && read_ids(p, text, size, code);
    } else {
        const brim_encode_options options = {0};
        brim_status status =
            brim_encode(&p->tokens, &lost, p->c->ctx, p->model.tokenizer, text, size, &options);
        good = status == BRIM_OK;
        if (!good)
            *code = cli_fail(p->c, status);
    }
    free(text);
    if (lost)
        fprintf(
            stderr,
            "brim perplexity: the vocabulary lacks %llu bytes of the text; they were left out\n",
            (unsigned long long)lost);
    if (good && p->tokens.count < 2) {
        *code = cli_error(
            p->c, BRIM_FORMAT, "perplexity.short",
            "%s: %zu tokens; at least 2 are needed, since a chunk's first one is not scored",
            p->c->args[1], p->tokens.count);
        good = false;
    }
    return good;
}

static void free_tokens(perplexity *p)
{
    if (p->ids)
        free(p->tokens.ids);
    else
        brim_tokens_done(&p->tokens, p->c->ctx);
}

/* ---- scoring ---- */

/* -log softmax(logits)[token] */
static double loss_of(const float *logits, uint32_t count, brim_token token)
{
    float largest = logits[0];
    for (uint32_t i = 1; i < count; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - (double)largest);
    return log(sum) + (double)largest - (double)logits[token];
}

static bool on_logits(uint32_t position, const float *logits, void *user)
{
    perplexity *p = user;
    uint32_t vocab = brim_llm_config(p->model.llm)->vocab_size;
    brim_progress_update(&p->progress, p->before + position + 1);
    if (p->save && fwrite(logits, sizeof *logits, vocab, p->save) != vocab) {
        p->save_failed = true;
        return false;
    }
    if (position + 1 < p->now_count) {
        double loss = loss_of(logits, vocab, p->now[position + 1]);
        p->sum += loss;
        p->sum_squares += loss * loss;
        p->scored++;
    }
    return cli_interrupts() == 0;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static brim_status score(perplexity *p)
{
    brim_status status = BRIM_OK;
    double started = now_s();
    brim_progress_start(&p->progress, "scoring", p->tokens.count, "tokens");
    brim_progress_update(&p->progress, 0);
    for (size_t at = 0; at < p->tokens.count && status == BRIM_OK; at += p->now_count) {
        size_t left = p->tokens.count - at;
        p->now = p->tokens.ids + at;
        p->now_count = (uint32_t)(left < (size_t)p->chunk ? left : (size_t)p->chunk);
        p->before = at;
        p->chunks++;
        status = brim_session_truncate(p->session, 0);
        if (status == BRIM_OK)
            status = brim_session_feed(p->session, p->now, p->now_count, on_logits, p);
    }
    brim_progress_finish(&p->progress);
    p->seconds = now_s() - started;
    return status;
}

/* ---- the result ---- */

static int print_result(perplexity *p)
{
    cli_model *m = &p->model;
    double n = (double)p->scored, mean = p->sum / n;
    double variance = n > 1 ? (p->sum_squares - n * mean * mean) / (n - 1) : 0;
    double error = sqrt((variance > 0 ? variance : 0) / n);
    double rate = (double)p->tokens.count / p->seconds;
    if (!isfinite(mean))
        return cli_error(
            p->c, BRIM_FORMAT, "perplexity.nan",
            "the model's logits are not finite; `brim inspect` shows what the file holds");
    if (p->c->json)
        return cli_print_json(
            p->c,
            json_pack(
                "{s:s, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:i, s:s, s:s?, s:s}", "model",
                cli_model_name(m), "perplexity", exp(mean), "mean_nll", mean, "mean_nll_error",
                error, "tokens", (json_int_t)p->tokens.count, "scored", (json_int_t)p->scored,
                "chunk", (json_int_t)p->chunk, "chunks", (json_int_t)p->chunks, "seconds",
                p->seconds, "tok_s", rate, "lanes", (int)brim_runner_lanes(m->runner), "numerics",
                brim_numerics_name(m->numerics), "logits", p->save_path, "device", m->device_name));
    printf("perplexity  %.6f\n", exp(mean));
    printf("mean NLL    %.9f +- %.6f nats\n", mean, error);
    printf("tokens      %zu in %llu chunk%s of %lld, %llu scored\n", p->tokens.count,
           (unsigned long long)p->chunks, p->chunks == 1 ? "" : "s", (long long)p->chunk,
           (unsigned long long)p->scored);
    printf("time        %.2f s, %.0f tokens/s on %u lanes, numerics %s\n", p->seconds, rate,
           brim_runner_lanes(m->runner), brim_numerics_name(m->numerics));
    return CLI_OK;
}

static bool close_logits(perplexity *p, int *code)
{
    if (!p->save)
        return true;
    bool good = !ferror(p->save);
    int problem = errno;
    if (fclose(p->save) != 0) {
        good = false;
        problem = errno;
    }
    p->save = NULL;
    if (!good)
        *code =
            cli_error(p->c, BRIM_IO, "perplexity.save", "%s: the logits could not be written: %s",
                      p->save_path, strerror(problem));
    return good;
}

static bool open_logits(perplexity *p, int *code)
{
    if (!p->save_path)
        return true;
    p->save = fopen(p->save_path, "wbe");
    if (!p->save)
        *code = cli_error(p->c, BRIM_IO, "perplexity.save", "%s: cannot be written: %s",
                          p->save_path, strerror(errno));
    return p->save != NULL;
}

static int measure(perplexity *p)
{
    int code = CLI_OK;
    brim_status status = brim_session_create(&p->session, p->model.runner);
    if (status != BRIM_OK)
        return cli_fail(p->c, status);
    if (!open_logits(p, &code))
        return code;
    cli_model_catch_interrupt(&p->model);
    status = score(p);
    if (!close_logits(p, &code))
        return code;
    if (cli_interrupts() > 0)
        return cli_error(p->c, BRIM_CANCELLED, "perplexity.stopped",
                         "stopped after %llu of %zu tokens", (unsigned long long)p->scored,
                         p->tokens.count);
    return status == BRIM_OK ? print_result(p) : cli_fail(p->c, status);
}

static bool parse(perplexity *p, int argc, char **argv, int *code)
{
    const cli_option options[] = {
        CLI_INT("chunk", 0, "N", &p->chunk, 2, CHUNK_MAX, "tokens of a chunk (default: 512)"),
        CLI_FLAG("ids", 0, &p->ids, "FILE holds token ids, separated by white space"),
        CLI_TEXT("save-logits", 0, "F", &p->save_path,
                 "write every position's logits: float32, little-endian, (position, vocab)"),
        CLI_INT("threads", 't', "N", &p->execution.threads, 1, 1024, "lanes (default: one a CPU)"),
        CLI_EXECUTION_OPTIONS(&p->execution),
        CLI_JSON(p->c),
    };
    const cli_spec spec = {
        .usage = "brim perplexity MODEL FILE|- [options]",
        .about =
            "Measures how well a model predicts a text: exp of the mean negative log-\n"
            "likelihood of its tokens. The text is cut into chunks, each a sequence of its own\n"
            "without BOS, whose first token is not scored.",
        .examples =
            "  brim perplexity smollm2-135m book.txt\n"
            "  brim perplexity smollm2-135m book.txt --chunk 1024 --numerics exact --json\n"
            "  brim tokenize smollm2-135m - < book.txt | brim perplexity smollm2-135m - --ids\n",
        .options = options,
        .option_count = CLI_COUNT(options),
        .args_min = 2,
        .args_max = 2,
        .args_what = "a model or a file",
    };
    return cli_parse(p->c, &spec, argc, argv, code);
}

int brim_cli_perplexity(cli *c, int argc, char **argv)
{
    perplexity p = {.c = c, .execution = CLI_EXECUTION_DEFAULT, .chunk = 512};
    int code;
    if (!parse(&p, argc, argv, &code))
        return code;
    p.execution.context = (uint32_t)p.chunk;
    if (cli_model_open(&p.model, c, c->args[0], &code) &&
        cli_model_load(&p.model, &p.execution, &code) && read_tokens(&p, &code) &&
        cli_model_runner(&p.model, &p.execution, &code))
        code = measure(&p);
    if (p.save)
        fclose(p.save);
    if (p.session)
        brim_session_destroy(p.session);
    free_tokens(&p);
    cli_model_done(&p.model);
    return code;
}
