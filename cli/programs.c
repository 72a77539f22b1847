/* programs.c: `brim program`: programs from files: dump, check, run, predict. Each is a sub-command
 * with its own options. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model_open.h"

enum {
    PROGRAM_BYTES_MAX = 256 << 20,
    MACHINE_BYTES_MAX = 1 << 20,
    FINDINGS_DEFAULT = 20,
    DUMP_BYTES_DEFAULT = 1024,
    DUMP_LINE = 16,
    EVENTS_MAX = 65536,
    TRACE_EVENTS = 16384,
};

/* A program read from a file, with the ops that it names. */
typedef struct loaded {
    cli *c;
    brim_op_table *ops;
    brim_program *program;
} loaded;

static void unload(loaded *l)
{
    brim_program_destroy(l->program);
    brim_op_table_destroy(l->ops);
}

/* False: the failure was printed; *code is the exit code. unload() is called in either case. */
static bool load(loaded *l, cli *c, const char *path, int *code)
{
    char *text = NULL;
    size_t size = 0;
    *l = (loaded){.c = c};
    if (!cli_read_file(c, &text, &size, path, PROGRAM_BYTES_MAX, code))
        return false;
    brim_status status = brim_op_table_create(&l->ops, c->ctx);
    if (status == BRIM_OK)
        status = brim_program_parse(&l->program, c->ctx, l->ops, text, size);
    free(text);
    if (status != BRIM_OK)
        *code = cli_fail(c, status);
    return status == BRIM_OK;
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- dump ---- */

static int write_text(cli *c, const char *path, const char *text, size_t size)
{
    FILE *file = path ? fopen(path, "wb") : stdout;
    if (!file)
        return cli_error(c, BRIM_IO, "file.open", "%s: cannot be written", path);
    bool good = fwrite(text, 1, size, file) == size;
    if (path)
        good &= fclose(file) == 0;
    return good ? CLI_OK
                : cli_error(c, BRIM_IO, "cli.output", "%s: the write failed",
                            path ? path : "standard output");
}

static int dump_model(cli *c, const cli_execution *x, bool prefill, const char *output)
{
    cli_model model = {0};
    int code = CLI_FAILED;
    char *text = NULL;
    size_t size = 0;
    if (cli_model_open(&model, c, c->args[0], &code) && cli_model_load(&model, x, &code) &&
        cli_model_runner(&model, x, &code)) {
        brim_status status =
            brim_program_dump(&text, &size, brim_runner_program(model.runner, prefill), c->ctx);
        code = status == BRIM_OK ? write_text(c, output, text, size) : cli_fail(c, status);
        brim_free(c->ctx, text);
    }
    cli_model_done(&model);
    return code;
}

static int program_dump(cli *c, int argc, char **argv)
{
    cli_execution x = CLI_EXECUTION_DEFAULT;
    int64_t context = 0;
    bool prefill = false;
    int device = 0;
    const char *output = NULL;
    const cli_option options[] = {
        CLI_INT("lanes", 0, "N", &x.threads, 1, BRIM_LANES_MAX,
                "lanes of the program (default: one a CPU)"),
        CLI_FLAG("prefill", 0, &prefill, "the program of many rows (default: that of decoding)"),
        CLI_INT("rows", 0, "N", &x.prefill_rows, 1, 512,
                "rows of the prefill program (default: 64)"),
        CLI_INT("ctx", 0, "N", &context, 0, 1 << 20, "positions (default: as brim run)"),
        CLI_CHOICE("numerics", 0, "default|exact", &x.numerics,
                   "exact: float32 activations and KV cache"),
        CLI_CHOICE("device", 0, "cpu|resident", &device, "resident: the program of a GPU"),
        CLI_TEXT("output", 'o', "FILE", &output, "write there (default: standard output)"),
    };
    const cli_spec spec = {
        .usage = "brim program dump MODEL [options]",
        .about = "Writes the program that a model becomes as JSON (docs/program.md).",
        .examples = "  brim program dump smollm2-135m --lanes 2 -o decode.json\n",
        .options = options,
        .option_count = CLI_COUNT(options),
        .args_min = 1,
        .args_max = 1,
        .args_what = "a model",
    };
    int code;
    if (!cli_parse(c, &spec, argc, argv, &code))
        return code;
    x.device = device ? "resident" : "cpu";
    x.context = (uint32_t)context;
    return dump_model(c, &x, prefill, output);
}

/* ---- check ---- */

typedef struct check_output {
    cli *c;
    json_t *findings; /* NULL: printed as they come */
} check_output;

static json_t *index_or_null(uint32_t index)
{
    return index == BRIM_NONE ? json_null() : json_integer(index);
}

static void on_finding(const brim_finding *finding, void *user)
{
    check_output *out = user;
    if (out->findings) {
        size_t size = brim_utf8_check(finding->text, strlen(finding->text));
        json_array_append_new(out->findings,
                              json_pack("{s:s, s:o, s:o, s:s%}", "id", finding->id, "instruction",
                                        index_or_null(finding->instruction), "other",
                                        index_or_null(finding->other), "text", finding->text,
                                        (int)size));
        return;
    }
    printf("%s: ", finding->id);
    brim_print_safe(stdout, finding->text, strlen(finding->text));
    putchar('\n');
}

static int report_check(loaded *l, brim_status status, check_output *out, double seconds)
{
    cli *c = l->c;
    if (status != BRIM_OK && status != BRIM_REFUSED) {
        json_decref(out->findings);
        return cli_fail(c, status);
    }
    int code = status == BRIM_OK ? CLI_OK : CLI_FAILED;
    if (c->json) {
        int printed = cli_print_json(
            c, json_pack("{s:s, s:I, s:I, s:I, s:f, s:b, s:o}", "program",
                         brim_program_name(l->program), "lanes",
                         (json_int_t)brim_program_lane_count(l->program), "instructions",
                         (json_int_t)brim_program_instruction_count(l->program), "buffers",
                         (json_int_t)brim_program_buffer_count(l->program), "seconds", seconds,
                         "passed", status == BRIM_OK, "findings", out->findings));
        return printed ? printed : code;
    }
    const brim_program *p = l->program;
    const char *name = *brim_program_name(p) ? brim_program_name(p) : "(no name)";
    uint32_t instructions = brim_program_instruction_count(p), lanes = brim_program_lane_count(p);
    uint32_t buffers = brim_program_buffer_count(p);
    brim_print_safe(stdout, name, strlen(name));
    printf(": %u instruction%s on %u lane%s, %u buffer%s: %s (%.0f ms)\n", instructions,
           instructions == 1 ? "" : "s", lanes, lanes == 1 ? "" : "s", buffers,
           buffers == 1 ? "" : "s", status == BRIM_OK ? "passed" : "refused", seconds * 1e3);
    return code;
}

static int program_check(cli *c, int argc, char **argv)
{
    int64_t limit = FINDINGS_DEFAULT;
    const cli_option options[] = {
        CLI_INT("limit", 0, "N", &limit, 1, 1000000, "findings to list at most (default: 20)"),
        CLI_JSON(c),
    };
    const cli_spec spec = {
        .usage = "brim program check FILE [options]",
        .about =
            "Proves that a program cannot deadlock, has no two unordered conflicting accesses,\n"
            "stays in bounds, reads only what was written, and touches what its ops say.\n"
            "Exit code 1 and the findings if it does not.",
        .examples = "  brim program check decode.json\n",
        .options = options,
        .option_count = CLI_COUNT(options),
        .args_min = 1,
        .args_max = 1,
        .args_what = "a program file",
    };
    int code;
    loaded l = {0};
    if (!cli_parse(c, &spec, argc, argv, &code))
        return code;
    if (load(&l, c, c->args[0], &code)) {
        check_output out = {.c = c, .findings = c->json ? json_array() : NULL};
        double start = seconds_now();
        brim_status status =
            brim_program_check(l.program, c->ctx, (uint32_t)limit, on_finding, &out);
        code = report_check(&l, status, &out, seconds_now() - start);
    }
    unload(&l);
    return code;
}

/* ---- run ---- */

typedef struct run_options {
    int64_t orders, seed, epochs, stop_after, fill_seed, dump_bytes, redo_per_mille;
    int executor; /* index in "reference|cpu" */
    bool check_tables;
    const char *dump, *trace;
} run_options;

typedef struct run_view {
    loaded l;
    run_options o;
    uint64_t *hashes;  /* by buffer; of the first order */
    uint64_t *present; /* of the order at hand */
    uint64_t epochs_run;
    uint32_t last; /* --stop-after: the last instruction done, or BRIM_NONE */
    bool ended;    /* and whether its epoch ended */
    json_t *document;
} run_view;

/* FNV-1a, 64 bits: anyone can compute it again. */
static uint64_t hash_bytes(uint64_t hash, const unsigned char *bytes, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001B3u;
    return hash;
}

/* What outlives an epoch: scratch does not, and constants are ours. */
static bool is_result(const brim_buffer_desc *buffer)
{
    return buffer->role == BRIM_BUFFER_STATE || buffer->role == BRIM_BUFFER_OUTPUT ||
           (buffer->role == BRIM_BUFFER_INPUT && buffer->parity);
}

static void hash_results(run_view *v, brim_executor *x)
{
    for (uint32_t b = 0; b < brim_program_buffer_count(v->l.program); b++) {
        const brim_buffer_desc *buffer = brim_program_buffer(v->l.program, b);
        v->present[b] = 0xCBF29CE484222325u;
        for (uint64_t copy = 0; is_result(buffer) && copy < (buffer->parity ? 2u : 1u); copy++)
            v->present[b] =
                hash_bytes(v->present[b], brim_executor_buffer(x, b, copy), buffer->size);
    }
}

/* Another order that gives other bits is what a right program cannot do. */
static int compare_results(run_view *v, int64_t order)
{
    if (order == 0) {
        memcpy(v->hashes, v->present, brim_program_buffer_count(v->l.program) * sizeof *v->hashes);
        return CLI_OK;
    }
    for (uint32_t b = 0; b < brim_program_buffer_count(v->l.program); b++)
        if (v->hashes[b] != v->present[b])
            return cli_error(v->l.c, BRIM_REFUSED, "program.orders",
                             "seed %lld gave other bits in buffer %s than seed %lld",
                             (long long)(v->o.seed + order),
                             brim_program_buffer(v->l.program, b)->name, (long long)v->o.seed);
    return CLI_OK;
}

static brim_status advance(run_view *v, brim_executor *x)
{
    brim_status status = brim_executor_start(x, (uint64_t)v->o.epochs);
    int64_t left = v->o.stop_after;
    v->last = BRIM_NONE;
    while (status == BRIM_OK && left-- > 0) {
        uint32_t last = BRIM_NONE;
        status = brim_executor_advance(&last, &v->ended, x, 1);
        v->last = last != BRIM_NONE ? last : v->last;
        if (v->ended && (int64_t)brim_executor_epoch(x) >= v->o.epochs)
            break;
    }
    return status;
}

/* Lines of 16 bytes: offset, hex words, the same as floats. */
static void print_bytes(const unsigned char *bytes, uint64_t size)
{
    for (uint64_t at = 0; at < size; at += DUMP_LINE) {
        printf("%08llx ", (unsigned long long)at);
        for (uint64_t i = at; i < at + DUMP_LINE; i += 4) {
            uint32_t word = 0;
            if (i < size)
                memcpy(&word, bytes + i, size - i < 4 ? size - i : 4);
            printf(i < size ? " %08x" : "         ", word);
        }
        printf(" ");
        for (uint64_t i = at; i + 4 <= size && i < at + DUMP_LINE; i += 4) {
            float value;
            memcpy(&value, bytes + i, 4);
            printf(" %12.6g", (double)value);
        }
        putchar('\n');
    }
}

static json_t *hex_text(const unsigned char *bytes, uint64_t size)
{
    static const char digits[] = "0123456789abcdef";
    char *text = malloc(2 * size + 1);
    if (!text)
        return NULL;
    for (uint64_t i = 0; i < size; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    json_t *value = json_stringn(text, 2 * size);
    free(text);
    return value;
}

static int dump_buffer(run_view *v, brim_executor *x)
{
    cli *c = v->l.c;
    uint32_t b = brim_program_buffer_find(v->l.program, v->o.dump);
    if (b == BRIM_NONE)
        return cli_error(c, BRIM_USAGE, "program.buffer",
                         "--dump %s: the program has no such buffer", v->o.dump);
    const brim_buffer_desc *buffer = brim_program_buffer(v->l.program, b);
    uint64_t epoch = brim_executor_epoch(x);
    /* Of an epoch that has ended, its own copy is shown. */
    const unsigned char *bytes =
        brim_executor_buffer(x, b, epoch && (v->o.stop_after == 0 || v->ended) ? epoch - 1 : epoch);
    uint64_t size =
        buffer->size < (uint64_t)v->o.dump_bytes ? buffer->size : (uint64_t)v->o.dump_bytes;
    if (!bytes)
        return cli_fail(c, BRIM_NO_MEMORY);
    if (c->json) {
        json_object_set_new(v->document, "dump",
                            json_pack("{s:s, s:I, s:o}", "buffer", buffer->name, "size",
                                      (json_int_t)buffer->size, "hex", hex_text(bytes, size)));
        return CLI_OK;
    }
    printf("%s, %llu bytes of %llu:\n", buffer->name, (unsigned long long)size,
           (unsigned long long)buffer->size);
    print_bytes(bytes, size);
    return CLI_OK;
}

static int write_trace(run_view *v, brim_executor *x)
{
    size_t size = strlen(v->o.trace);
    bool json = size > 5 && strcmp(v->o.trace + size - 5, ".json") == 0;
    brim_status status =
        json ? brim_trace_write_json(x, v->o.trace) : brim_trace_write_svg(x, v->o.trace);
    return status == BRIM_OK ? CLI_OK : cli_fail(v->l.c, status);
}

static int run_order(run_view *v, int64_t order)
{
    cli *c = v->l.c;
    brim_executor *x = NULL;
    brim_executor_desc desc = brim_executor_desc_default();
    desc.kind = v->o.executor ? BRIM_EXECUTOR_CPU : BRIM_EXECUTOR_REFERENCE;
    desc.seed = (uint64_t)(v->o.seed + order);
    desc.redo_per_mille = (uint32_t)v->o.redo_per_mille;
    desc.check_tables = v->o.check_tables;
    desc.trace_events = v->o.trace ? TRACE_EVENTS : 0;
    brim_status status = brim_executor_create(&x, c->ctx, v->l.program, &desc);
    if (status == BRIM_OK)
        status = brim_executor_fill(x, (uint64_t)v->o.fill_seed);
    if (status == BRIM_OK)
        status = v->o.stop_after ? advance(v, x) : brim_executor_run(x, (uint64_t)v->o.epochs);
    int code = status == BRIM_OK ? CLI_OK : cli_fail(c, status);
    if (code == CLI_OK) {
        v->epochs_run = brim_executor_epoch(x);
        hash_results(v, x);
        code = compare_results(v, order);
    }
    if (code == CLI_OK && order == 0 && v->o.dump)
        code = dump_buffer(v, x);
    if (code == CLI_OK && order == 0 && v->o.trace)
        code = write_trace(v, x);
    brim_executor_destroy(x);
    return code;
}

static void print_results(const run_view *v)
{
    for (uint32_t b = 0; b < brim_program_buffer_count(v->l.program); b++) {
        const brim_buffer_desc *buffer = brim_program_buffer(v->l.program, b);
        if (!is_result(buffer))
            continue;
        printf("%016llx  ", (unsigned long long)v->hashes[b]);
        brim_print_safe(stdout, buffer->name, strlen(buffer->name));
        putchar('\n');
    }
    if (v->last != BRIM_NONE)
        printf("the last instruction done was %u, in epoch %llu%s\n", v->last,
               (unsigned long long)(v->ended ? v->epochs_run - 1 : v->epochs_run),
               v->ended ? ", which it ended" : "");
    printf("%llu epoch%s ended, %lld order%s gave the same bits\n",
           (unsigned long long)v->epochs_run, v->epochs_run == 1 ? "" : "s", (long long)v->o.orders,
           v->o.orders == 1 ? "" : "s");
}

static int print_results_json(run_view *v)
{
    json_t *buffers = json_object();
    for (uint32_t b = 0; b < brim_program_buffer_count(v->l.program); b++) {
        const brim_buffer_desc *buffer = brim_program_buffer(v->l.program, b);
        char text[20];
        snprintf(text, sizeof text, "%016llx", (unsigned long long)v->hashes[b]);
        if (is_result(buffer))
            json_object_set_new(buffers, buffer->name, json_string(text));
    }
    json_object_set_new(v->document, "program", json_string(brim_program_name(v->l.program)));
    json_object_set_new(v->document, "executor", json_string(v->o.executor ? "cpu" : "reference"));
    json_object_set_new(v->document, "epochs", json_integer((json_int_t)v->epochs_run));
    json_object_set_new(v->document, "orders", json_integer(v->o.orders));
    if (v->o.stop_after)
        json_object_set_new(v->document, "last_instruction", index_or_null(v->last));
    json_object_set_new(v->document, "hashes", buffers);
    return cli_print_json(v->l.c, json_incref(v->document));
}

static int run_orders(run_view *v)
{
    cli *c = v->l.c;
    size_t count = brim_program_buffer_count(v->l.program) + 1;
    v->hashes = calloc(count, sizeof *v->hashes);
    v->present = calloc(count, sizeof *v->present);
    v->document = json_object();
    int code = CLI_OK;
    if (!v->hashes || !v->present || !v->document)
        code = cli_error(c, BRIM_NO_MEMORY, "memory.out", "no memory for %zu hashes", count);
    brim_status status =
        code == CLI_OK ? brim_program_check(v->l.program, c->ctx, 1, NULL, NULL) : BRIM_OK;
    if (status != BRIM_OK)
        code = cli_fail(c, status);
    cli_catch_interrupt();
    for (int64_t order = 0; order < v->o.orders && code == CLI_OK; order++) {
        code = run_order(v, order);
        if (cli_interrupts())
            code = CLI_INTERRUPTED;
    }
    if (code == CLI_OK && c->json)
        code = print_results_json(v);
    else if (code == CLI_OK)
        print_results(v);
    json_decref(v->document);
    free(v->hashes);
    free(v->present);
    return code;
}

static int program_run(cli *c, int argc, char **argv)
{
    run_view v = {.o = {.orders = 1, .epochs = 1, .dump_bytes = DUMP_BYTES_DEFAULT},
                  .last = BRIM_NONE};
    const cli_option options[] = {
        CLI_CHOICE("executor", 0, "reference|cpu", &v.o.executor,
                   "who runs it (default: reference, one thread)"),
        CLI_INT("epochs", 0, "N", &v.o.epochs, 1, INT64_MAX, "epochs at most (default: 1)"),
        CLI_INT("orders", 0, "N", &v.o.orders, 1, 1000000,
                "run it in N orders and compare the bits"),
        CLI_INT("seed", 0, "N", &v.o.seed, 0, INT32_MAX,
                "picks the first order; the next ones follow"),
        CLI_INT("fill-seed", 0, "N", &v.o.fill_seed, 0, INT64_MAX,
                "picks inputs, state and weights"),
        CLI_INT("stop-after", 0, "N", &v.o.stop_after, 1, INT64_MAX,
                "stop after N instructions (reference)"),
        CLI_TEXT("dump", 0, "BUFFER", &v.o.dump, "show a buffer afterwards"),
        CLI_INT("dump-bytes", 0, "N", &v.o.dump_bytes, 1, 1 << 28,
                "bytes of it at most (default: 1024)"),
        CLI_FLAG("check-tables", 0, &v.o.check_tables, "verify tables and purity while it runs"),
        CLI_INT("redo-per-mille", 0, "N", &v.o.redo_per_mille, 0, 1000,
                "do so many pieces twice (cpu; a test)"),
        CLI_TEXT("trace", 0, "FILE", &v.o.trace,
                 "write a timeline: .json (Chrome, Perfetto) or .svg"),
        CLI_JSON(c),
    };
    const cli_spec spec = {
        .usage = "brim program run FILE [options]",
        .about =
            "Checks a program and runs it on made-up inputs, state and weights. Prints a hash\n"
            "(FNV-1a, 64 bits) of each buffer that outlives an epoch.",
        .examples = "  brim program run decode.json --orders 200\n"
                    "  brim program run decode.json --stop-after 12 --dump x.0\n",
        .options = options,
        .option_count = CLI_COUNT(options),
        .args_min = 1,
        .args_max = 1,
        .args_what = "a program file",
    };
    int code;
    if (!cli_parse(c, &spec, argc, argv, &code))
        return code;
    if (v.o.stop_after && v.o.executor)
        return cli_error(c, BRIM_USAGE, "cli.option", "--stop-after needs the reference executor");
    if (load(&v.l, c, c->args[0], &code))
        code = run_orders(&v);
    unload(&v.l);
    return code;
}

/* ---- predict ---- */

static bool find_machine(cli *c, brim_machine *out, const char *path, uint32_t lanes, int *code)
{
    char *text = NULL;
    size_t size = 0;
    brim_hw hw;
    brim_hw_probe probe;
    brim_status status;
    if (path) {
        if (!cli_read_file(c, &text, &size, path, MACHINE_BYTES_MAX, code))
            return false;
        status = brim_machine_parse(out, c->ctx, text, size);
        free(text);
    } else {
        status = brim_hw_find(&hw, c->ctx);
        if (status == BRIM_OK && brim_hw_probe_load(&probe, c->ctx) != BRIM_OK) {
            *code =
                cli_error(c, BRIM_NOT_FOUND, "program.machine",
                          "this machine was not probed yet: run `brim hw`, or give --machine FILE");
            return false;
        }
        if (status == BRIM_OK)
            *out = brim_machine_from_probe(&hw, &probe, lanes);
    }
    if (status != BRIM_OK)
        *code = cli_fail(c, status);
    return status == BRIM_OK;
}

static void print_prediction(const brim_prediction *p, const brim_machine *m, uint32_t lanes)
{
    printf("one epoch on ");
    brim_print_safe(stdout, m->name, strlen(m->name));
    printf("\n  time             %.1f us\n", p->total_us);
    printf("  bandwidth bound  %.1f us (%.1f %%): %.3g MB at %.3g GB/s\n", p->bandwidth_bound_us,
           p->total_us > 0 ? 100 * p->bandwidth_bound_us / p->total_us : 0, p->bytes / 1e6,
           m->read_gb_s);
    printf("  lanes busy       %.1f %%\n",
           p->total_us > 0 ? 100 * p->busy_us / (p->total_us * lanes) : 0);
    printf("  arithmetic       %.3g Mflop, %.3g M 8-bit operations\n", p->flops / 1e6,
           p->int8_ops / 1e6);
    printf("  longest chain    %u instructions\n", p->critical_count);
    if (lanes > m->lane_count)
        printf("  (the program has %u lanes, the machine %u: lanes share them)\n", lanes,
               m->lane_count);
}

static int print_prediction_json(cli *c, const brim_prediction *p, const brim_machine *m)
{
    return cli_print_json(c, json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "machine",
                                       m->name, "total_us", p->total_us, "busy_us", p->busy_us,
                                       "bandwidth_bound_us", p->bandwidth_bound_us, "bytes",
                                       p->bytes, "flops", p->flops, "int8_ops", p->int8_ops,
                                       "critical_instructions", (json_int_t)p->critical_count));
}

static int predict(loaded *l, const char *machine_path, const char *svg)
{
    cli *c = l->c;
    brim_machine machine;
    brim_prediction prediction;
    uint32_t lanes = brim_program_lane_count(l->program);
    int code;
    if (!find_machine(c, &machine, machine_path, lanes, &code))
        return code;
    size_t count = 0;
    brim_trace_event *events = svg ? malloc(EVENTS_MAX * sizeof *events) : NULL;
    if (svg && !events)
        return cli_error(c, BRIM_NO_MEMORY, "memory.out", "no memory for the timeline");
    brim_status status = brim_program_predict(&prediction, l->program, c->ctx, &machine, events,
                                              events ? EVENTS_MAX : 0, &count);
    if (status == BRIM_OK && svg) {
        char title[192];
        snprintf(title, sizeof title, "%.90s, predicted on %.80s", brim_program_name(l->program),
                 machine.name);
        status = brim_trace_write_events_svg(l->program, c->ctx, events,
                                             count < EVENTS_MAX ? count : EVENTS_MAX, title, svg);
    }
    free(events);
    if (status != BRIM_OK)
        return cli_fail(c, status);
    if (c->json)
        return print_prediction_json(c, &prediction, &machine);
    print_prediction(&prediction, &machine, lanes);
    return CLI_OK;
}

static int program_predict(cli *c, int argc, char **argv)
{
    const char *machine = NULL, *svg = NULL;
    const cli_option options[] = {
        CLI_TEXT("machine", 'm', "FILE", &machine,
                 "a machine description (default: this machine's probe)"),
        CLI_TEXT("svg", 0, "FILE", &svg, "draw the predicted timeline"),
        CLI_JSON(c),
    };
    const cli_spec spec = {
        .usage = "brim program predict FILE [options]",
        .about = "Simulates one epoch of a program on a machine description (docs/hw.md).",
        .examples = "  brim program predict decode.json --machine data/hw/server-64-avx512.json "
                    "--svg t.svg\n",
        .options = options,
        .option_count = CLI_COUNT(options),
        .args_min = 1,
        .args_max = 1,
        .args_what = "a program file",
    };
    int code;
    loaded l = {0};
    if (!cli_parse(c, &spec, argc, argv, &code))
        return code;
    if (load(&l, c, c->args[0], &code))
        code = predict(&l, machine, svg);
    unload(&l);
    return code;
}

/* ---- the command ---- */

int brim_cli_program(cli *c, int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(cli *c, int argc, char **argv);
    } verbs[] = {{"dump", program_dump},
                 {"check", program_check},
                 {"run", program_run},
                 {"predict", program_predict}};
    const cli_option options[] = {CLI_JSON(c)};
    const cli_spec spec = {
        .usage = "brim program dump MODEL [options]\n"
                 "brim program check FILE [options]\n"
                 "brim program run FILE [options]\n"
                 "brim program predict FILE [options]",
        .about =
            "Programs on lanes, as files (docs/program.md): what a model becomes, proven right,\n"
            "run in any legal order, its time predicted. `brim program VERB --help` says more.",
        .examples =
            "  brim program dump smollm2-135m -o decode.json && brim program check decode.json\n",
        .options = options,
        .option_count = CLI_COUNT(options),
        .args_min = 1,
        .args_max = -1,
        .args_what = "a verb: dump, check, run or predict",
    };
    const char *known[CLI_COUNT(verbs) + 1] = {NULL};
    for (size_t i = 0; i < CLI_COUNT(verbs); i++) {
        known[i] = verbs[i].name;
        if (argc > 1 && strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(c, argc - 1, argv + 1);
    }
    int code;
    if (!cli_parse(c, &spec, argc, argv, &code))
        return code;
    const char *near = brim_suggest(c->args[0], known);
    if (near)
        return cli_error(c, BRIM_USAGE, "cli.verb",
                         "there is no `brim program %s`; did you mean '%s'?", c->args[0], near);
    return cli_error(c, BRIM_USAGE, "cli.verb",
                     "there is no `brim program %s`; it is dump, check, run or predict",
                     c->args[0]);
}
