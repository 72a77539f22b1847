/* model_open.c: from a model's name to a runner, with messages that name the option at fault. */
#include "model_open.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu_cache.h"

bool cli_model_open(cli_model *m, cli *c, const char *name, int *code)
{
    *m = (cli_model){.c = c, .device_name = "cpu"};
    if (!cli_model_path(c, m->path, name, code))
        return false;
    brim_status status = brim_model_file_open(&m->file, c->ctx, m->path);
    if (status == BRIM_OK)
        status = brim_tokenizer_create(&m->tokenizer, c->ctx, m->file);
    if (status != BRIM_OK)
        *code = cli_fail(c, status);
    return status == BRIM_OK;
}

/* ---- the device ---- */

/* An option that speaks of the CPU's tiles or executors, or NULL. `resident`: of the tiles alone.
 */
static const char *cpu_option(const cli_execution *x, bool resident)
{
    if (x->numerics)
        return "numerics";
    if (x->prefill_rows)
        return "prefill-rows";
    if (resident)
        return NULL;
    return x->executor         ? "executor"
           : x->isa >= 0       ? "isa"
           : x->pin            ? "pin"
           : x->redo_per_mille ? "redo-per-mille"
                               : NULL;
}

static brim_status open_device(cli_model *m, brim_device_kind kind, uint32_t index)
{
    brim_device_info info;
    brim_status status = brim_device_open_index(&m->device, m->c->ctx, kind, index);
    if (status == BRIM_OK)
        status = brim_device_query(&info, m->device);
    if (status != BRIM_OK)
        return status;
    m->on_gpu = kind == BRIM_DEVICE_CUDA;
    if (!m->on_gpu)
        snprintf(m->device_name, sizeof m->device_name, "resident");
    else
        snprintf(m->device_name, sizeof m->device_name, "%s:%u", brim_device_kind_name(kind),
                 index);
    snprintf(m->device_model, sizeof m->device_model, "%s", info.name);
    return BRIM_OK;
}

static void close_device(cli_model *m)
{
    brim_device_close(m->device);
    m->device = NULL;
    m->on_gpu = false;
    snprintf(m->device_name, sizeof m->device_name, "cpu");
    m->device_model[0] = 0;
}

/* "resident" is the GPU's programs on the CPU: slow, for comparing. *out_auto: nobody asked for
 * this device by name. */
static bool choose_device(cli_model *m, const cli_execution *x, bool *out_auto, int *code)
{
    const char *text = x->device ? x->device : getenv("BRIM_DEVICE");
    const char *said_by = x->device ? "--device" : "BRIM_DEVICE";
    text = text && *text ? text : "auto";
    *out_auto = strcmp(text, "auto") == 0;
    brim_device_kind kind = BRIM_DEVICE_CUDA;
    uint32_t index = 0;
    bool resident = strcmp(text, "resident") == 0;
    if (*out_auto) {
        /* That there is no GPU, or that its driver does not start, is no news to whoever did not
         * ask for one. */
        if (!cpu_option(x, false) && brim_device_usable(kind, index) == BRIM_OK &&
            open_device(m, kind, index) != BRIM_OK)
            close_device(m);
        return true;
    } else if (!resident) {
        brim_status status = brim_device_parse(&kind, &index, text);
        if (status != BRIM_OK || kind == BRIM_DEVICE_DUMMY) {
            *code = cli_error(m->c, BRIM_USAGE, "run.device",
                              "%s: '%s' is not one of cpu, cuda, cuda:N, auto", said_by, text);
            return false;
        }
        if (kind == BRIM_DEVICE_CPU)
            return true;
    }
    const char *option = cpu_option(x, resident);
    if (option) {
        *code = cli_error(m->c, BRIM_USAGE, "run.device", "%s %s excludes --%s, which is the CPU's",
                          said_by, text, option);
        return false;
    }
    brim_status status = open_device(m, resident ? BRIM_DEVICE_CPU : kind, index);
    if (status != BRIM_OK)
        *code = cli_fail(m->c, status);
    return status == BRIM_OK;
}

/* ---- weights ---- */

static void show_loading(uint64_t done, uint64_t total, void *user)
{
    brim_progress *bar = user;
    if (!bar->what)
        brim_progress_start(bar, "loading", total, "B");
    brim_progress_update(bar, done);
}

static brim_status load(cli_model *m, const cli_execution *x)
{
    brim_progress bar = {0};
    brim_llm_desc desc = brim_llm_desc_default();
    desc.threads = (uint32_t)x->threads;
    desc.progress = show_loading;
    desc.user = &bar;
    desc.device = m->device;
    desc.context = x->context;
    brim_status status = brim_llm_create(&m->llm, m->c->ctx, m->file, &desc);
    brim_progress_finish(&bar);
    return status;
}

bool cli_model_load(cli_model *m, const cli_execution *x, int *code)
{
    bool by_itself;
    if (!choose_device(m, x, &by_itself, code))
        return false;
    brim_status status = load(m, x);
    if (by_itself && m->device && (status == BRIM_UNSUPPORTED || status == BRIM_NO_MEMORY)) {
        fprintf(stderr, "brim %s: not on %s (%s) but on the CPU: %s\n", m->c->command,
                m->device_model, m->device_name, brim_last_message());
        close_device(m);
        status = load(m, x);
    }
    if (status != BRIM_OK) {
        *code = cli_fail(m->c, status);
        return false;
    }
    brim_model_file_close(m->file);
    m->file = NULL;
    brim_dtype type;
    if (brim_llm_device_type(&type, m->llm))
        fprintf(stderr, "brim %s: on %s (%s), weights as %s\n", m->c->command, m->device_model,
                m->device_name, brim_dtype_name(type));
    return true;
}

/* ---- the runner ---- */

bool cli_model_runner(cli_model *m, const cli_execution *x, int *code)
{
    if (x->isa > (int)brim_isa_best()) {
        *code = cli_error(m->c, BRIM_USAGE, "run.isa", "--isa %s: the best that this CPU has is %s",
                          brim_isa_name((brim_isa)x->isa), brim_isa_name(brim_isa_best()));
        return false;
    }
    brim_runner_desc desc = brim_runner_desc_default();
    desc.lanes = (uint32_t)(x->lanes ? x->lanes : m->on_gpu ? 0 : x->threads);
    desc.context = x->context;
    if (x->prefill_rows)
        desc.prefill_rows = (uint32_t)x->prefill_rows;
    desc.numerics = (brim_numerics)x->numerics;
    desc.executor.kind = x->executor ? BRIM_EXECUTOR_REFERENCE : BRIM_EXECUTOR_CPU;
    if (x->isa >= 0)
        desc.executor.isa = (brim_isa)x->isa;
    else if (x->executor)
        desc.executor.isa = BRIM_ISA_SCALAR;
    desc.executor.pin = x->pin;
    desc.executor.seed = (uint64_t)x->seed_order;
    desc.executor.redo_per_mille = (uint32_t)x->redo_per_mille;
    desc.executor.trace_events = x->trace_events;
    brim_status status = brim_runner_create(&m->runner, m->c->ctx, m->llm, &desc);
    if (status == BRIM_OK)
        m->numerics = brim_runner_numerics(m->runner);
    else
        *code = cli_fail(m->c, status);
    return status == BRIM_OK;
}

/* ---- Ctrl-C ---- */

static brim_runner *_Atomic interrupted_runner;
static struct sigaction counting; /* what cli_catch_interrupt() set up */

static void on_interrupt(int signal_number)
{
    counting.sa_handler(signal_number); /* leaves at the second one */
    brim_runner *runner = interrupted_runner;
    if (runner)
        brim_runner_cancel(runner);
}

void cli_model_catch_interrupt(const cli_model *m)
{
    interrupted_runner = m->runner;
    cli_catch_interrupt();
    sigaction(SIGINT, NULL, &counting);
    struct sigaction action = {.sa_handler = on_interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

void cli_model_runner_done(cli_model *m)
{
    interrupted_runner = NULL;
    if (m->runner)
        brim_runner_destroy(m->runner);
    m->runner = NULL;
}

void cli_model_done(cli_model *m)
{
    cli_model_runner_done(m);
    if (m->llm)
        brim_llm_destroy(m->llm);
    if (m->tokenizer)
        brim_tokenizer_destroy(m->tokenizer);
    if (m->file)
        brim_model_file_close(m->file);
    close_device(m);
    m->llm = NULL;
    m->tokenizer = NULL;
    m->file = NULL;
}

/* ---- what is said of it ---- */

const char *cli_model_name(const cli_model *m)
{
    const brim_model_config *config = brim_llm_config(m->llm);
    const char *slash = strrchr(m->path, '/');
    return config->name[0] ? config->name : slash ? slash + 1 : m->path;
}

double cli_model_kv_read(const cli_model *m, uint64_t position)
{
    const brim_model_config *config = brim_llm_config(m->llm);
    uint64_t seen = position + 1;
    if (config->sliding_window && seen > config->sliding_window)
        seen = config->sliding_window;
    unsigned element = m->numerics == BRIM_NUMERICS_EXACT ? 4 : 2;
    return (double)seen * (double)config->kv_elements_per_position * element;
}

/* Of programs for a GPU that run on the CPU no share is said. */
static bool gpu_bandwidth(const cli_model *m, double *out_gb_s, int64_t *out_probed_at)
{
    brim_device_info info;
    gpu_probe probe;
    if (!m->on_gpu || brim_device_query(&info, m->device) != BRIM_OK ||
        !gpu_probe_load(&probe, &info))
        return false;
    *out_gb_s = gpu_probe_read_gb_s(&probe);
    *out_probed_at = probe.probed_at;
    return true;
}

bool cli_model_bandwidth(const cli_model *m, double *out_gb_s, double *out_age_s)
{
    brim_hw_probe probe = {0};
    int64_t probed_at = 0;
    *out_gb_s = 0;
    if (m->device ? !gpu_bandwidth(m, out_gb_s, &probed_at)
                  : brim_hw_probe_load(&probe, m->c->ctx) != BRIM_OK)
        return false;
    for (uint32_t i = 0; i < probe.thread_count; i++)
        if (probe.read_gb_s[i] > *out_gb_s)
            *out_gb_s = probe.read_gb_s[i];
    double age = difftime(time(NULL), (time_t)(m->device ? probed_at : probe.probed_at));
    *out_age_s = age > 0 ? age : 0;
    return *out_gb_s > 0;
}

void cli_age_text(char out[32], double seconds)
{
    static const struct {
        double below, unit;
        const char *name;
    } steps[] = {{120, 1, "seconds"}, {7200, 60, "minutes"}, {172800, 3600, "hours"}};
    for (size_t i = 0; i < CLI_COUNT(steps); i++) {
        if (seconds < steps[i].below) {
            snprintf(out, 32, "%.0f %s ago", seconds / steps[i].unit, steps[i].name);
            return;
        }
    }
    snprintf(out, 32, "%.0f days ago", seconds / 86400);
}
