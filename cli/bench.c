/* bench.c: `brim bench`: prefill and decode speed beside what the machine reaches.
 *
 * Rows as llama-bench names them: pp512 evaluates a prompt of 512 tokens, tg128 decodes 128 tokens
 * one after another. Read bandwidth is probed before and after each row with as many threads.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "model_open.h"

enum { LIST_MAX = 16, REPETITIONS_MAX = 100, TEST_TOKENS_MAX = 1 << 17 };

typedef struct number_list {
    uint32_t items[LIST_MAX];
    size_t count;
} number_list;

typedef struct bench_row {
    bool prefill;
    uint32_t tokens, threads;
    size_t count;
    double samples[REPETITIONS_MAX]; /* tokens a second, sorted */
    double tok_s, spread;
    double gb_s; /* of the median */
    double probe_before, probe_after;
    double gop_s, probe_gop_s; /* pp alone; probe 0: unknown */
} bench_row;

typedef struct bench {
    cli *c;
    cli_model model;
    cli_execution execution;
    number_list prompts, answers, threads;
    int64_t repetitions;
    int style; /* index in "md|csv|json" */
    uint32_t prefill_rows;
    uint64_t head_bytes, head_elements; /* of the matrix that makes logits */
    brim_session *session;
    brim_token *tokens;
    bench_row *rows;
    size_t row_count;
    bool on_device;  /* then the CPU's probes say nothing */
    double gpu_gb_s; /* that `brim hw` measured on it; 0: unknown */
    brim_hw_probe probe;
    bool probed;
} bench;

/* ---- options ---- */

/* "512" or "64,512"; 0 leaves that kind of test out when it stands alone. */
static bool parse_numbers(bench *b, number_list *out, const char *option, const char *text,
                          long max, int *code)
{
    out->count = 0;
    for (const char *at = text; at;) {
        char *end = NULL;
        long value = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        bool good =
            value >= 0 && value <= max && (*end == 0 || *end == ',') && out->count < LIST_MAX;
        if (!good) {
            *code = cli_error(
                b->c, BRIM_USAGE, "cli.value",
                "%s: '%s' is not a list of at most %d whole numbers from 0 to %ld, e.g. 64,512",
                option, text, LIST_MAX, max);
            return false;
        }
        if (value > 0)
            out->items[out->count++] = (uint32_t)value;
        at = *end == ',' ? end + 1 : NULL;
    }
    return true;
}

static bool parse(bench *b, int argc, char **argv, int *code)
{
    const char *prompts = "512", *answers = "128", *threads = NULL;
    const cli_option options[] = {
        CLI_TEXT("prompt", 'p', "N,...", &prompts,
                 "prompt sizes to evaluate (default: 512; 0: none)"),
        CLI_TEXT("tokens", 'n', "N,...", &answers,
                 "numbers of tokens to decode (default: 128; 0: none)"),
        CLI_TEXT("threads", 't', "N,...", &threads, "numbers of lanes (default: one a CPU)"),
        CLI_INT("repetitions", 'r', "N", &b->repetitions, 1, REPETITIONS_MAX,
                "measured runs of each test, after one that is not measured (default: 5)"),
        CLI_CHOICE("output", 'o', "md|csv|json", &b->style,
                   "how the table is written (default: md)"),
        CLI_EXECUTION_OPTIONS(&b->execution),
        CLI_JSON(b->c),
    };
    const cli_spec spec = {
        .usage = "brim bench MODEL [options]",
        .about =
            "Measures prefill (pp) and decode (tg) speed: the median of the repetitions, half\n"
            "the distance of their quartiles, and what share that is of the read bandwidth\n"
            "(probed before and after) and of the arithmetic (from `brim hw`) of this machine.",
        .examples = "  brim bench smollm2-135m\n"
                    "  brim bench smollm2-135m -p 0 -n 64,256 -t 1,2 -o csv\n"
                    "  brim bench smollm2-135m --json > bench.json\n"
                    "  brim bench llama-3.1-8b --device cuda -p 0 -n 256\n",
        .options = options,
        .option_count = CLI_COUNT(options),
        .args_min = 1,
        .args_max = 1,
        .args_what = "a model",
    };
    if (!cli_parse(b->c, &spec, argc, argv, code) ||
        !parse_numbers(b, &b->prompts, "--prompt", prompts, TEST_TOKENS_MAX, code) ||
        !parse_numbers(b, &b->answers, "--tokens", answers, TEST_TOKENS_MAX, code) ||
        (threads && !parse_numbers(b, &b->threads, "--threads", threads, 1024, code)))
        return false;
    if (b->style == 2)
        b->c->json = true;
    if (b->c->json)
        b->style = 2;
    if (b->prompts.count + b->answers.count > 0)
        return true;
    *code = cli_error(b->c, BRIM_USAGE, "bench.empty",
                      "there is nothing to measure: --prompt 0 and --tokens 0");
    return false;
}

/* ---- statistics ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The q-quantile of sorted values, linear between order statistics. */
static double quantile(const double *sorted, size_t count, double q)
{
    double at = q * (double)(count - 1);
    size_t low = (size_t)at;
    size_t high = low + 1 < count ? low + 1 : low;
    return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}

static void summarise(bench_row *row)
{
    qsort(row->samples, row->count, sizeof *row->samples, by_value);
    row->tok_s = quantile(row->samples, row->count, 0.5);
    row->spread =
        (quantile(row->samples, row->count, 0.75) - quantile(row->samples, row->count, 0.25)) / 2;
}

/* ---- one test ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static brim_status run_prefill(bench *b, uint32_t tokens, double *out_tok_s)
{
    double started = now_s();
    brim_status status = brim_session_feed(b->session, b->tokens, tokens, NULL, NULL);
    *out_tok_s = (double)tokens / (now_s() - started);
    return status;
}

static brim_status run_decode(bench *b, uint32_t tokens, double *out_tok_s)
{
    /* The first token comes from the prompt's step; each further one from a step that is timed. */
    brim_generate_desc desc = brim_generate_desc_default();
    brim_generate_stats stats;
    desc.sampling.temperature = 0;
    desc.max_tokens = tokens + 1;
    brim_status status = brim_session_generate(&stats, b->session, b->tokens, 1, &desc);
    if (status == BRIM_OK)
        *out_tok_s = (double)(stats.tokens - 1) * 1e9 / (double)stats.decode_ns;
    return status;
}

static brim_status run_once(bench *b, const bench_row *row, double *out_tok_s)
{
    brim_status status = brim_session_truncate(b->session, 0);
    if (status != BRIM_OK)
        return status;
    return row->prefill ? run_prefill(b, row->tokens, out_tok_s)
                        : run_decode(b, row->tokens, out_tok_s);
}

static bool draws(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

static void show(const bench *b, const bench_row *row, const char *what, int64_t run)
{
    if (!draws())
        return;
    fprintf(stderr, "\r\033[K[%zu of %zu] %s%u on %u thread%s: %s", b->row_count + 1,
            (b->prompts.count + b->answers.count) * b->threads.count, row->prefill ? "pp" : "tg",
            row->tokens, row->threads, row->threads == 1 ? "" : "s", what);
    if (run > 0)
        fprintf(stderr, " %lld of %lld", (long long)run, (long long)b->repetitions);
    fflush(stderr);
}

/* What the best body of this instruction set multiplies and adds in 8 bits on one thread. */
static double int8_rate(const bench *b)
{
    double best = 0;
    const char *isa =
        brim_isa_name(b->execution.isa >= 0 ? (brim_isa)b->execution.isa : brim_isa_best());
    size_t size = strlen(isa);
    for (uint32_t i = 0; b->probed && i < b->probe.rate_count; i++) {
        const brim_hw_rate *rate = &b->probe.rates[i];
        /* "avx512" has "avx512-vnni" too; the tile unit sums in an order of its own and isn't used.
         */
        bool same =
            strncmp(rate->isa, isa, size) == 0 && (rate->isa[size] == 0 || rate->isa[size] == '-');
        if (strcmp(rate->type, "u8s8") == 0 && same && rate->gop_s > best)
            best = rate->gop_s;
    }
    return best;
}

/* What the median speed means in bytes and operations. */
static void derive(bench *b, bench_row *row)
{
    double decode_bytes = (double)brim_llm_decode_bytes(b->model.llm);
    if (!row->prefill) {
        double kv = 0;
        for (uint32_t i = 0; i < row->tokens; i++)
            kv += cli_model_kv_read(&b->model, i + 1);
        row->gb_s = (decode_bytes + kv / row->tokens) * row->tok_s * 1e-9;
        return;
    }
    /* A step of many rows reads the layers' weights once; logits are not wanted here. */
    const brim_model_config *config = brim_llm_config(b->model.llm);
    double steps = ceil((double)row->tokens / b->prefill_rows);
    row->gb_s = (decode_bytes - (double)b->head_bytes) * steps / row->tokens * row->tok_s * 1e-9;
    row->gop_s =
        ((double)config->flops_per_token - 2 * (double)b->head_elements) * row->tok_s * 1e-9;
    row->probe_gop_s = b->on_device ? 0 : int8_rate(b) * row->threads;
}

/* Read bandwidth of where the model runs; 0: not probed. A GPU's is that of the kept probe: nobody
 * else takes it away. */
static brim_status probe_read(const bench *b, double *out, uint32_t threads)
{
    *out = b->gpu_gb_s;
    return b->on_device ? BRIM_OK : brim_hw_probe_read(out, b->c->ctx, threads, 0);
}

static brim_status run_row(bench *b, bench_row *row)
{
    double ignored;
    show(b, row, "probing", 0);
    brim_status status = probe_read(b, &row->probe_before, row->threads);
    if (status == BRIM_OK) {
        show(b, row, "warming up", 0);
        status = run_once(b, row, &ignored);
    }
    for (int64_t i = 0; i < b->repetitions && status == BRIM_OK; i++) {
        show(b, row, "run", i + 1);
        status = run_once(b, row, &row->samples[row->count++]);
        if (cli_interrupts() > 0)
            return BRIM_CANCELLED;
    }
    if (status != BRIM_OK)
        return status;
    show(b, row, "probing", 0);
    status = probe_read(b, &row->probe_after, row->threads);
    summarise(row);
    derive(b, row);
    return status;
}

/* ---- all tests ---- */

static uint32_t positions_needed(const bench *b)
{
    uint32_t most = 16;
    for (size_t i = 0; i < b->prompts.count; i++)
        most = b->prompts.items[i] > most ? b->prompts.items[i] : most;
    for (size_t i = 0; i < b->answers.count; i++)
        most = b->answers.items[i] + 2 > most ? b->answers.items[i] + 2 : most;
    return most;
}

/* All tests with this number of lanes. */
static int run_tests(bench *b, uint32_t threads)
{
    for (size_t i = 0; i < b->prompts.count + b->answers.count; i++) {
        bool prefill = i < b->prompts.count;
        bench_row *row = &b->rows[b->row_count];
        *row = (bench_row){
            .prefill = prefill,
            .tokens = prefill ? b->prompts.items[i] : b->answers.items[i - b->prompts.count],
            .threads = threads,
        };
        brim_status status = run_row(b, row);
        if (draws())
            fputs("\r\033[K", stderr);
        if (cli_interrupts() > 0)
            return cli_error(b->c, BRIM_CANCELLED, "bench.stopped", "stopped after %zu tests",
                             b->row_count);
        if (status != BRIM_OK)
            return cli_fail(b->c, status);
        b->row_count++;
    }
    return CLI_OK;
}

static int run_threads(bench *b, uint32_t threads)
{
    int code = CLI_OK;
    b->execution.threads = threads;
    if (threads)
        b->execution.lanes = threads;
    if (!cli_model_runner(&b->model, &b->execution, &code))
        return code;
    brim_status status = brim_session_create(&b->session, b->model.runner);
    if (status == BRIM_OK) {
        cli_model_catch_interrupt(&b->model);
        code = run_tests(b, brim_runner_lanes(b->model.runner));
        brim_session_destroy(b->session);
    } else {
        code = cli_fail(b->c, status);
    }
    cli_model_runner_done(&b->model);
    return code;
}

/* ---- the table ---- */

static double probe_of(const bench_row *row)
{
    return (row->probe_before + row->probe_after) / 2;
}

static json_t *known(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static json_t *row_json(const bench *b, const bench_row *row)
{
    char test[32];
    snprintf(test, sizeof test, "%s%u", row->prefill ? "pp" : "tg", row->tokens);
    json_t *samples = json_array();
    for (size_t i = 0; i < row->count; i++)
        json_array_append_new(samples, json_real(row->samples[i]));
    bool limited = row->prefill && row->probe_gop_s > 0;
    double probed = probe_of(row);
    const cli_model *m = &b->model;
    return json_pack(
        "{s:s, s:s, s:I, s:s, s:i, s:f, s:f, s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, "
        "s:s?}",
        "model", cli_model_name(&b->model), "test", test, "threads", (json_int_t)row->threads,
        "numerics", brim_numerics_name(b->model.numerics), "repetitions", (int)row->count, "tok_s",
        row->tok_s, "tok_s_spread", row->spread, "tok_s_samples", samples, "gb_s", row->gb_s,
        "probe_gb_s", known(probed), "probe_gb_s_before", known(row->probe_before),
        "probe_gb_s_after", known(row->probe_after), "bandwidth_pct",
        probed > 0 ? json_real(100 * row->gb_s / probed) : json_null(), "gop_s",
        row->prefill ? json_real(row->gop_s) : json_null(), "probe_gop_s",
        limited ? json_real(row->probe_gop_s) : json_null(), "arithmetic_pct",
        limited ? json_real(100 * row->gop_s / row->probe_gop_s) : json_null(), "device",
        m->device_name, "device_model", m->device_model[0] ? m->device_model : NULL);
}

static int print_json(const bench *b)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < b->row_count; i++) {
        if (json_array_append_new(list, row_json(b, &b->rows[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return cli_print_json(b->c, list);
}

static void fill_row(const bench *b, brim_table *table, const bench_row *row)
{
    brim_table_row(table);
    brim_table_cell(table, "%s", cli_model_name(&b->model));
    brim_table_cell(table, "%s", brim_numerics_name(b->model.numerics));
    brim_table_cell(table, "%u", row->threads);
    brim_table_cell(table, "%s%u", row->prefill ? "pp" : "tg", row->tokens);
    brim_table_cell(table, "%.2f", row->tok_s);
    brim_table_cell(table, "%.2f", row->spread);
    brim_table_cell(table, "%.2f", row->gb_s);
    if (probe_of(row) > 0) {
        brim_table_cell(table, "%.2f", probe_of(row));
        brim_table_cell(table, "%.1f", 100 * row->gb_s / probe_of(row));
    } else {
        brim_table_cell(table, "%s", "");
        brim_table_cell(table, "%s", "");
    }
    if (!row->prefill)
        return;
    brim_table_cell(table, "%.1f", row->gop_s);
    if (row->probe_gop_s > 0)
        brim_table_cell(table, "%.1f", 100 * row->gop_s / row->probe_gop_s);
}

static int print_table(const bench *b)
{
    static const char *const for_people[] = {
        "model", "numerics",     ">threads",        "test",   ">tok/s",           ">+-",
        ">GB/s", ">probed GB/s", ">% of bandwidth", ">Gop/s", ">% of arithmetic", NULL};
    static const char *const for_programs[] = {
        "model", "numerics",    ">threads",       "test",   ">tok_s",          ">tok_s_spread",
        ">gb_s", ">probe_gb_s", ">bandwidth_pct", ">gop_s", ">arithmetic_pct", NULL};
    brim_table *table;
    brim_status status =
        brim_table_create(&table, b->c->ctx, b->style == 1 ? for_programs : for_people);
    if (status != BRIM_OK)
        return cli_fail(b->c, status);
    for (size_t i = 0; i < b->row_count; i++)
        fill_row(b, table, &b->rows[i]);
    status = brim_table_print(table, stdout, b->style == 1 ? BRIM_TABLE_CSV : BRIM_TABLE_MARKDOWN);
    brim_table_destroy(table);
    return status == BRIM_OK ? CLI_OK : cli_fail(b->c, status);
}

/* ---- the whole ---- */

/* The matrix that makes logits: needed only to say what prefill does not compute. */
static void measure_head(bench *b)
{
    const brim_tensor *head = brim_model_file_tensor(b->model.file, "output.weight");
    if (!head)
        head = brim_model_file_tensor(b->model.file, "token_embd.weight");
    if (head) {
        b->head_bytes = head->size;
        b->head_elements = head->dims[0] * head->row_count;
    }
}

static bool prepare(bench *b, int *code)
{
    if (!cli_model_open(&b->model, b->c, b->c->args[0], code))
        return false;
    measure_head(b);
    b->execution.context = positions_needed(b);
    if (!cli_model_load(&b->model, &b->execution, code))
        return false;
    b->on_device = b->model.device != NULL;
    double age_s;
    if (b->on_device && !cli_model_bandwidth(&b->model, &b->gpu_gb_s, &age_s))
        b->gpu_gb_s = 0;
    if (b->on_device)
        b->head_bytes = 2 * b->head_elements;
    b->probed = !b->on_device && brim_hw_probe_load(&b->probe, b->c->ctx) == BRIM_OK;
    if (b->threads.count == 0)
        b->threads = (number_list){.items = {0}, .count = 1};
    b->prefill_rows = b->on_device                ? BRIM_DECODE_ROWS
                      : b->execution.prefill_rows ? (uint32_t)b->execution.prefill_rows
                                                  : brim_runner_desc_default().prefill_rows;
    uint32_t count = positions_needed(b), vocab = brim_llm_config(b->model.llm)->vocab_size;
    b->rows = calloc((b->prompts.count + b->answers.count) * b->threads.count, sizeof *b->rows);
    b->tokens = calloc(count, sizeof *b->tokens);
    if (!b->rows || !b->tokens) {
        *code = cli_error(b->c, BRIM_NO_MEMORY, "memory.out", "no memory for %u tokens", count);
        return false;
    }
    /* Some tokens of the whole vocabulary: the embedding's rows are looked up, not streamed. */
    for (uint32_t i = 0; i < count; i++)
        b->tokens[i] = (brim_token)((i * UINT64_C(2654435761) + 12345) % vocab);
    return true;
}

static int print_results(const bench *b)
{
    if (b->model.on_gpu && b->gpu_gb_s <= 0 && b->style != 2)
        fputs("brim bench: the per cent of the bandwidth needs a probe of this GPU: `brim hw`\n",
              stderr);
    if (!b->probed && !b->on_device && b->prompts.count && b->style != 2)
        fputs(
            "brim bench: the per cent of the arithmetic needs a probe of this machine: `brim hw`\n",
            stderr);
    return b->style == 2 ? print_json(b) : print_table(b);
}

int brim_cli_bench(cli *c, int argc, char **argv)
{
    bench b = {.c = c, .execution = CLI_EXECUTION_DEFAULT, .repetitions = 5};
    int code;
    if (!parse(&b, argc, argv, &code))
        return code;
    if (prepare(&b, &code)) {
        code = CLI_OK;
        for (size_t i = 0; i < b.threads.count && code == CLI_OK; i++)
            code = run_threads(&b, b.threads.items[i]);
        if (code == CLI_OK)
            code = print_results(&b);
    }
    free(b.rows);
    free(b.tokens);
    cli_model_done(&b.model);
    return code;
}
