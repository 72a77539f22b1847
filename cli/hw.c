/* hw.c: `brim hw`: what this machine is and what it reaches. The probes are kept for the commands
 * that compare themselves with them. */
#define _GNU_SOURCE /* getloadavg */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "brim/hw.h"
#include "hw_gpu.h"

typedef struct hw_view {
    cli *c;
    brim_hw hw;
    brim_hw_probe probe;
    bool probed;      /* `probe` holds something */
    bool fresh;       /* it was made just now */
    uint32_t threads; /* that are shown and described */
    bool shows_cpu, shows_gpus;
    int64_t gpu; /* the one that was asked for; -1: all */
    hw_gpus gpus;
} hw_view;

/* ---- what was found ---- */

static const char *amount(char out[32], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    snprintf(out, 32, fabs(value - round(value)) < 0.05 ? "%.0f %s" : "%.1f %s", value,
             units[unit]);
    return out;
}

static const char *counted(char out[48], uint32_t count, const char *noun)
{
    snprintf(out, 48, "%u %s%s", count, noun, count == 1 ? "" : "s");
    return out;
}

static void print_cache(const char *name, uint64_t bytes, uint32_t count, bool *first)
{
    char text[32];
    if (!bytes)
        return;
    printf("%s%s %s", *first ? "" : ", ", name, amount(text, bytes));
    if (count > 1)
        printf(" x %u", count);
    *first = false;
}

/* The flags of the CPU, wrapped under their first one. */
static void print_flags(const char *flags)
{
    enum { FLAGS_WIDTH = 66 };
    size_t column = 0;
    for (const char *p = flags; *p;) {
        size_t length = strcspn(p, " ");
        if (column && column + 1 + length > FLAGS_WIDTH) {
            printf("\n           ");
            column = 0;
        }
        printf("%s%.*s", column ? " " : "", (int)length, p);
        column += length + (column ? 1 : 0);
        p += length + strspn(p + length, " ");
    }
    printf("%s\n", *flags ? "" : "none that Brim knows");
}

static void print_found(const brim_hw *hw)
{
    char text[48];
    bool first = true;
    printf("%s\n", hw->cpu_name);
    printf("  system   %s\n", hw->os);
    printf("  cores    %s", counted(text, hw->core_count, "core"));
    printf(", %s", counted(text, hw->thread_count, "thread"));
    printf(", %s", counted(text, hw->package_count, "package"));
    printf(", %s\n", counted(text, hw->numa_count, "memory node"));
    printf("  caches   ");
    print_cache("L1d", hw->l1d_bytes, hw->l1d_count, &first);
    print_cache("L2", hw->l2_bytes, hw->l2_count, &first);
    print_cache("L3", hw->l3_bytes, hw->l3_count, &first);
    printf("%s\n", first ? "unknown" : "");
    printf("  memory   %s\n", hw->memory_bytes ? amount(text, hw->memory_bytes) : "unknown");
    printf("  kernels  %s\n", brim_isa_name(hw->isa));
    printf("  flags    ");
    print_flags(hw->isa_flags);
}

/* ---- what was measured ---- */

static void age_text(char *out, size_t size, const hw_view *v)
{
    double seconds = difftime(time(NULL), (time_t)v->probe.probed_at);
    if (v->fresh)
        snprintf(out, size, "now");
    else if (seconds < 120)
        snprintf(out, size, "%.0f seconds ago", seconds > 0 ? seconds : 0);
    else if (seconds < 7200)
        snprintf(out, size, "%.0f minutes ago", seconds / 60);
    else if (seconds < 172800)
        snprintf(out, size, "%.0f hours ago", seconds / 3600);
    else
        snprintf(out, size, "%.0f days ago", seconds / 86400);
}

static brim_status print_reads(const hw_view *v)
{
    static const char *const columns[] = {">  threads", ">GB/s", ">per thread", ">barrier", NULL};
    char buffer[32], age[64];
    brim_table *table;
    age_text(age, sizeof age, v);
    printf("\nMemory and lanes (%s buffer, probed %s)\n", amount(buffer, v->probe.buffer_bytes),
           age);
    brim_status status = brim_table_create(&table, v->c->ctx, columns);
    if (status != BRIM_OK)
        return status;
    for (uint32_t i = 0; i < v->threads && i < v->probe.thread_count; i++) {
        brim_table_row(table);
        brim_table_cell(table, "%u", i + 1);
        brim_table_cell(table, "%.1f", v->probe.read_gb_s[i]);
        brim_table_cell(table, "%.1f", v->probe.read_gb_s[i] / (i + 1));
        if (v->probe.barrier_ns[i] > 0)
            brim_table_cell(table, "%.0f ns", v->probe.barrier_ns[i]);
        else
            brim_table_cell(table, "-");
    }
    status = brim_table_print(table, stdout, BRIM_TABLE_TEXT);
    brim_table_destroy(table);
    if (status == BRIM_OK && v->hw.thread_count > v->probe.thread_count)
        printf("  (no more than %u threads are probed one by one)\n", v->probe.thread_count);
    return status;
}

/* Rates grouped by type, in the order in which the types first appear. */
static void fill_rates(brim_table *table, const brim_hw_probe *probe)
{
    bool shown[BRIM_HW_RATES_MAX] = {false};
    for (uint32_t i = 0; i < probe->rate_count; i++) {
        if (shown[i])
            continue;
        for (uint32_t j = i; j < probe->rate_count; j++) {
            if (strcmp(probe->rates[j].type, probe->rates[i].type) != 0)
                continue;
            shown[j] = true;
            brim_table_row(table);
            brim_table_cell(table, "  %s", i == j ? probe->rates[i].type : "");
            brim_table_cell(table, "%s", probe->rates[j].isa);
            brim_table_cell(table, "%.1f", probe->rates[j].gop_s);
        }
    }
}

static brim_status print_rates(const hw_view *v)
{
    static const char *const columns[] = {"  type", "instructions", ">Gop/s", NULL};
    brim_table *table;
    printf("\nArithmetic of one thread (1e9 multiplications and additions a second)\n");
    brim_status status = brim_table_create(&table, v->c->ctx, columns);
    if (status != BRIM_OK)
        return status;
    fill_rates(table, &v->probe);
    status = brim_table_print(table, stdout, BRIM_TABLE_TEXT);
    brim_table_destroy(table);
    return status;
}

static brim_status print_cpu(const hw_view *v)
{
    print_found(&v->hw);
    if (!v->probed) {
        printf("\nNothing was measured: `brim hw` without --no-probe does.\n");
        return BRIM_OK;
    }
    brim_status status = print_reads(v);
    return status == BRIM_OK ? print_rates(v) : status;
}

static int print_tables(const hw_view *v)
{
    brim_status status = v->shows_cpu ? print_cpu(v) : BRIM_OK;
    if (status == BRIM_OK && v->shows_gpus)
        status = hw_gpus_print(&v->gpus, v->shows_cpu);
    return status == BRIM_OK ? CLI_OK : cli_fail(v->c, status);
}

/* The library's document; without what is for people when only the machine is asked for. */
static brim_status cpu_document(json_t **out, const hw_view *v, bool machine)
{
    char *text;
    brim_hw described = v->hw;
    if (machine)
        described.thread_count = v->threads; /* the lanes of the description */
    brim_status status =
        brim_hw_to_json(&text, v->c->ctx, &described, v->probed ? &v->probe : NULL);
    if (status != BRIM_OK)
        return status;
    *out = json_loads(text, 0, NULL);
    brim_free(v->c->ctx, text);
    if (machine) {
        json_object_del(*out, "found");
        json_object_del(*out, "probe");
    }
    return BRIM_OK;
}

/* The GPUs stand in "found", from which nothing is computed: the document stays a description of
 * this machine's CPU. Without the CPU they are a document of their own. */
static int print_document(hw_view *v, bool machine)
{
    json_t *document = NULL;
    brim_status status = BRIM_OK;
    if (v->shows_cpu)
        status = cpu_document(&document, v, machine);
    else
        document = json_object();
    if (status != BRIM_OK)
        return cli_fail(v->c, status);
    if (v->shows_gpus && document) {
        json_t *place = v->shows_cpu ? json_object_get(document, "found") : document;
        if (json_object_set_new(place, "gpus", hw_gpus_json(&v->gpus)) != 0 ||
            json_object_set_new(place, "no_gpu", hw_gpus_reason_json(&v->gpus)) != 0) {
            json_decref(document);
            document = NULL;
        }
    }
    return cli_print_json(v->c, document);
}

/* ---- probing ---- */

static bool draws_progress(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

static void show_step(const char *what, void *user)
{
    fprintf(stderr, "\r\033[Kprobing: %s", what);
    fflush(stderr);
}

static void show_gpu_step(const char *what, void *user)
{
    fprintf(stderr, "\r\033[Kprobing a GPU: %s", what);
    fflush(stderr);
}

/* Probing beside other work is legal, but must not pass for what the machine reaches. */
static void warn_of_load(uint32_t threads)
{
    double load;
    if (getloadavg(&load, 1) == 1 && load > 0.5 * threads)
        fprintf(stderr,
                "brim hw: other work was running (load average %.1f): the figures may be low\n",
                load);
}

static brim_status make_probe(hw_view *v)
{
    bool draws = draws_progress();
    brim_status status = brim_hw_probe_all(&v->probe, v->c->ctx, draws ? show_step : NULL, NULL);
    if (draws)
        fprintf(stderr, "\r\033[K");
    if (status != BRIM_OK)
        return status;
    v->probed = v->fresh = true;
    warn_of_load(v->hw.thread_count);
    if (brim_hw_probe_save(&v->probe, v->c->ctx) != BRIM_OK)
        fprintf(stderr, "brim hw: the probe could not be kept: %s\n", brim_last_message());
    return BRIM_OK;
}

static brim_status find_gpus(hw_view *v, bool probe)
{
    bool draws = probe && draws_progress();
    brim_status status = hw_gpus_find(&v->gpus, v->c, v->gpu, probe, draws ? show_gpu_step : NULL);
    if (draws)
        fprintf(stderr, "\r\033[K");
    return status;
}

static brim_status look(hw_view *v, bool probe)
{
    brim_status status = BRIM_OK;
    if (v->shows_cpu && probe)
        status = make_probe(v);
    else if (v->shows_cpu)
        v->probed = brim_hw_probe_load(&v->probe, v->c->ctx) == BRIM_OK;
    if (status == BRIM_OK && v->shows_gpus)
        status = find_gpus(v, probe);
    return status;
}

/* ---- the command ---- */

typedef struct hw_options {
    bool no_probe, machine;
    int64_t threads;
    const char *device;
} hw_options;

static bool parse(cli *c, hw_options *o, int argc, char **argv, int *code)
{
    const cli_option options[] = {
        CLI_FLAG("no-probe", 0, &o->no_probe,
                 "measure nothing: show the last probes, if there are any"),
        CLI_TEXT("device", 0, "all|cpu|cuda[:N]", &o->device,
                 "what is shown and measured (default: all)"),
        CLI_INT("threads", 't', "N", &o->threads, 1, BRIM_HW_THREADS_MAX,
                "show and describe N threads (default: all)"),
        CLI_FLAG("machine", 0, &o->machine,
                 "print a machine description (of the CPU) for `brim program`"),
        CLI_JSON(c),
    };
    const cli_spec spec = {
        .usage = "brim hw [options]",
        .about =
            "Shows what this machine is, its GPUs included, and measures what it reaches: read\n"
            "bandwidth by threads, arithmetic by data type and instruction set, the cost of a\n"
            "barrier; of a GPU also launches, copies and words sent. The results are kept, so\n"
            "that `brim run` and `brim bench` can compare with them.",
        .examples = "  brim hw\n"
                    "  brim hw --no-probe --json\n"
                    "  brim hw --device cuda:1\n"
                    "  brim hw --machine > machine.json\n",
        .options = options,
        .option_count = CLI_COUNT(options),
    };
    return cli_parse(c, &spec, argc, argv, code);
}

/* What --device says. A machine description is the CPU's, so no GPU is looked for. */
static bool choose_device(hw_view *v, const hw_options *o, int *code)
{
    v->gpu = -1;
    v->shows_cpu = v->shows_gpus = true;
    if (o->device && strcmp(o->device, "all") != 0) {
        brim_device_kind kind;
        uint32_t index;
        if (brim_device_parse(&kind, &index, o->device) != BRIM_OK || kind == BRIM_DEVICE_DUMMY) {
            *code = cli_error(v->c, BRIM_USAGE, "hw.device",
                              "--device: '%s' is not one of all, cpu, cuda, cuda:N", o->device);
            return false;
        }
        v->shows_cpu = kind == BRIM_DEVICE_CPU;
        v->shows_gpus = !v->shows_cpu;
        v->gpu = index;
    }
    if (!v->shows_cpu && (o->machine || o->threads)) {
        *code = cli_error(v->c, BRIM_USAGE, "hw.device",
                          "--device %s excludes --%s, which is the CPU's", o->device,
                          o->machine ? "machine" : "threads");
        return false;
    }
    v->shows_gpus = v->shows_gpus && !o->machine;
    return true;
}

int brim_cli_hw(cli *c, int argc, char **argv)
{
    hw_options o = {0};
    hw_view v = {.c = c};
    int code;
    if (!parse(c, &o, argc, argv, &code) || !choose_device(&v, &o, &code))
        return code;
    brim_status status = brim_hw_find(&v.hw, c->ctx);
    if (status != BRIM_OK)
        return cli_fail(c, status);
    if (o.threads > v.hw.thread_count)
        return cli_error(c, BRIM_USAGE, "hw.threads",
                         "--threads %d: this process may use %u threads at most", (int)o.threads,
                         v.hw.thread_count);
    v.threads = o.threads ? (uint32_t)o.threads : v.hw.thread_count;
    status = look(&v, !o.no_probe);
    if (status != BRIM_OK)
        return cli_fail(c, status);
    if (o.machine && !v.probed)
        return cli_error(c, BRIM_NOT_FOUND, "hw.no_probe",
                         "a machine description needs a probe: leave --no-probe out");
    return o.machine || c->json ? print_document(&v, o.machine) : print_tables(&v);
}
