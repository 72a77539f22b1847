/* probe_cuda.c: what a GPU reaches, measured with the kernels of src/kernels/cuda/probe.cu.
 *
 * Every figure is the median of RUNS runs after some that do not count, each long enough (about
 * 2 ms or more) that the time between two events is exact. It stands in this room because the law
 * of the rooms lets a device know nothing of kernels. */
#include <stdatomic.h>
#include <string.h>

#include "base/stats.h"
#include "base/thread.h"
#include "device/cuda.h"
#include "device/cuda_nvml.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/probe_args.h"

enum {
    RUNS = 7,
    RUNS_BEFORE = 2,
    PAIRS_MAX = 12,
    BARRIERS = 2000,
    ROUND_TRIPS = 2000,
    LAUNCHES = 500,
    MAILBOX_BYTES = 256,
    MAILBOX_ANSWER = 32, /* word of the device */
    ARITHMETIC_THREADS = 256,
    WORDS_BYTES = BRIM__PROBE_WORDS * 4,
    FILL_WORD = 0x9e3779b9,
};
static const uint64_t read_bytes_min = UINT64_C(2) << 20, read_bytes_max = UINT64_C(4) << 30;
static const uint64_t read_bytes_a_run = UINT64_C(16) << 30;
static const uint64_t copy_bytes_max = UINT64_C(128) << 20;
static const double arithmetic_ms = 5;

typedef struct probe {
    brim_device *device;
    const brim__cuda_facts *facts;
    brim__cuda_module *module;
    brim__cuda_event *start, *end;
    brim_device_memory *data, *words;
    void *pinned;
    brim__cuda_address pinned_address;
    uint64_t data_bytes, pinned_bytes;
    brim_device_probed *out;
    void (*progress)(const char *what, void *user);
    void *user;
} probe;

static void say(const probe *p, const char *what)
{
    if (p->progress)
        p->progress(what, p->user);
}

/* Sorts the values. */
static brim_device_figure figure_of(double *values, size_t count)
{
    double median = brim__median(values, count);
    return (brim_device_figure){median, values[0], values[count - 1]};
}

/* ---- one run ---- */

static brim_status prepare(probe *p, const char *name, brim__cuda_launch *launch)
{
    return brim__cuda_module_function(&launch->function, p->module, name);
}

static brim__probe_args args_of(const probe *p, uint64_t size, uint32_t repeat)
{
    return (brim__probe_args){
        .data = brim__cuda_address_of(p->data),
        .size = size,
        .words = brim__cuda_address_of(p->words),
        .repeat = repeat,
    };
}

static brim_status check_words(probe *p)
{
    uint32_t failed = 0;
    BRIM_TRY(brim_device_read(&failed, p->words, BRIM__PROBE_FAILED * 4, sizeof failed));
    BRIM_FAIL_IF(
        failed, SYSTEM, "cuda.stuck",
        "blocks on the GPU waited for each other for two seconds: something else keeps the "
        "device busy, or its blocks do not run at the same time");
    return BRIM_OK;
}

/* Milliseconds of one launch. */
static brim_status run_once(double *out_ms, probe *p, const brim__cuda_launch *launch,
                            const brim__probe_args *args)
{
    float ms;
    BRIM_TRY(brim__cuda_fill_async(p->device, BRIM__CUDA_PROGRAMS, args->words, 0, WORDS_BYTES));
    BRIM_TRY(brim__cuda_event_record(p->start, BRIM__CUDA_PROGRAMS));
    BRIM_TRY(brim__cuda_launch_kernel(p->device, launch, args, sizeof *args));
    BRIM_TRY(brim__cuda_event_record(p->end, BRIM__CUDA_PROGRAMS));
    BRIM_TRY(brim__cuda_synchronize(p->device, BRIM__CUDA_PROGRAMS));
    BRIM_TRY(brim__cuda_event_elapsed(&ms, p->start, p->end));
    BRIM_TRY(check_words(p));
    *out_ms = ms > 1e-6f ? ms : 1e-6;
    return BRIM_OK;
}

/* `amount` per nanosecond (a rate in 1e9 a second) when rate, else nanoseconds per `amount`. */
static brim_status run_many(brim_device_figure *out, probe *p, const brim__cuda_launch *launch,
                            const brim__probe_args *args, double amount, bool rate)
{
    double values[RUNS];
    for (int run = -RUNS_BEFORE; run < RUNS; run++) {
        double ms;
        BRIM_TRY(run_once(&ms, p, launch, args));
        if (run >= 0)
            values[run] = rate ? amount / (ms * 1e6) : ms * 1e6 / amount;
    }
    *out = figure_of(values, RUNS);
    return BRIM_OK;
}

/* ---- what is measured ---- */

static brim_status probe_reads(probe *p)
{
    brim__cuda_launch launch = {.threads = BRIM__PROBE_THREADS};
    BRIM_TRY(prepare(p, "probe_read", &launch));
    BRIM_TRY(brim__cuda_blocks_max(&launch.blocks, p->device, &launch));
    say(p, "reading");
    for (uint64_t size = read_bytes_min;
         size <= p->data_bytes && p->out->read_count < BRIM_DEVICE_READS_MAX; size *= 2) {
        uint32_t repeat = (uint32_t)(read_bytes_a_run / size);
        brim__probe_args args = args_of(p, size, repeat);
        uint32_t i = p->out->read_count++;
        p->out->reads[i].bytes = size;
        BRIM_TRY(run_many(&p->out->reads[i].gb_s, p, &launch, &args, (double)size * repeat, true));
    }
    return BRIM_OK;
}

static const struct {
    const char *kernel, *type, *how;
    uint32_t ops; /* of a thread in a turn */
} rates[] = {
    {"probe_f32", "f32", "fma", BRIM__PROBE_F32_OPS},
    {"probe_mma_f16", "f16", "mma.sync", BRIM__PROBE_MMA_F16_OPS},
    {"probe_mma_bf16", "bf16", "mma.sync", BRIM__PROBE_MMA_F16_OPS},
    {"probe_mma_s8", "s8", "mma.sync", BRIM__PROBE_MMA_S8_OPS},
    {"probe_dp4a", "s8", "dp4a", BRIM__PROBE_DP4A_OPS},
};
_Static_assert(sizeof rates / sizeof *rates <= BRIM_DEVICE_RATES_MAX, "room for each rate");

static brim_status probe_rates(probe *p)
{
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        brim__cuda_launch launch = {.threads = ARITHMETIC_THREADS};
        say(p, rates[i].how);
        BRIM_TRY(prepare(p, rates[i].kernel, &launch));
        BRIM_TRY(brim__cuda_blocks_max(&launch.blocks, p->device, &launch));
        brim__probe_args args = args_of(p, 0, 256);
        double ms = 0;
        for (int warm = 0; warm < RUNS_BEFORE; warm++)
            BRIM_TRY(run_once(&ms, p, &launch, &args));
        double wanted = args.repeat * arithmetic_ms / ms;
        args.repeat = wanted < 1 ? 1 : wanted > 1e6 ? 1000000 : (uint32_t)wanted;
        double ops = (double)rates[i].ops * args.repeat * launch.blocks * launch.threads;
        uint32_t at = p->out->rate_count++;
        p->out->rates[at].type = rates[i].type;
        p->out->rates[at].how = rates[i].how;
        BRIM_TRY(run_many(&p->out->rates[at].gop_s, p, &launch, &args, ops, true));
    }
    return BRIM_OK;
}

/* A launch with one block a multiprocessor: it asks for all shared memory, so that no two share
 * one. */
static brim__cuda_launch one_a_multiprocessor(const probe *p)
{
    return (brim__cuda_launch){
        .blocks = p->facts->sm_count,
        .threads = 128,
        .shared_bytes = p->facts->shared_bytes_max / 1024 * 1024 - 1024,
        .cooperative = true,
    };
}

static brim_status probe_barrier(probe *p)
{
    brim__cuda_launch launch = one_a_multiprocessor(p);
    brim__probe_args args = args_of(p, 0, BARRIERS);
    say(p, "barriers");
    BRIM_TRY(prepare(p, "probe_barrier", &launch));
    p->out->barrier_blocks = launch.blocks;
    return run_many(&p->out->barrier_ns, p, &launch, &args, BARRIERS, false);
}

/* From block 0 to others far apart; each pair's figure is the median of its runs. */
static brim_status probe_packet(probe *p)
{
    brim__cuda_launch launch = one_a_multiprocessor(p);
    brim__probe_args args = args_of(p, 0, ROUND_TRIPS);
    double values[PAIRS_MAX];
    uint32_t pairs = launch.blocks - 1 < PAIRS_MAX ? launch.blocks - 1 : PAIRS_MAX;
    say(p, "packets");
    BRIM_TRY(prepare(p, "probe_packet", &launch));
    for (uint32_t i = 0; i < pairs; i++) {
        brim_device_figure figure;
        args.partner = 1 + (uint32_t)((uint64_t)i * (launch.blocks - 1) / pairs);
        BRIM_TRY(run_many(&figure, p, &launch, &args, 2.0 * ROUND_TRIPS, false));
        values[i] = figure.median;
    }
    if (pairs)
        p->out->packet_ns = figure_of(values, pairs);
    return BRIM_OK;
}

/* Plays the host's side; the device gives up by itself when the host is too late. */
static brim_status play_mailbox(double *out_ns, probe *p, const brim__cuda_launch *launch,
                                const brim__probe_args *args)
{
    _Atomic uint32_t *mail = (_Atomic uint32_t *)p->pinned;
    memset(p->pinned, 0, MAILBOX_BYTES);
    BRIM_TRY(brim__cuda_fill_async(p->device, BRIM__CUDA_PROGRAMS, args->words, 0, WORDS_BYTES));
    BRIM_TRY(brim__cuda_launch_kernel(p->device, launch, args, sizeof *args));
    uint64_t start = 0, limit = brim__now_ns() + 2 * BRIM__PROBE_LIMIT_NS;
    for (uint32_t i = 1; i <= args->repeat; i++) {
        atomic_store_explicit(&mail[0], i, memory_order_release);
        for (uint32_t turn = 1;
             atomic_load_explicit(&mail[MAILBOX_ANSWER], memory_order_acquire) != i; turn++) {
            if (turn % 65536 == 0 && brim__now_ns() > limit) {
                BRIM_TRY(brim__cuda_synchronize(p->device, BRIM__CUDA_PROGRAMS));
                BRIM_FAIL(SYSTEM, "cuda.stuck", "the GPU does not answer a word in mapped memory");
            }
        }
        if (i == 1) /* the first answer waits for the launch */
            start = brim__now_ns();
    }
    *out_ns = (double)(brim__now_ns() - start) / (2.0 * (args->repeat - 1));
    BRIM_TRY(brim__cuda_synchronize(p->device, BRIM__CUDA_PROGRAMS));
    return check_words(p);
}

static brim_status probe_mailbox(probe *p)
{
    brim__cuda_launch launch = {.blocks = 1, .threads = 1};
    brim__probe_args args = args_of(p, 0, ROUND_TRIPS);
    double values[RUNS];
    say(p, "mailbox");
    args.data = p->pinned_address;
    BRIM_TRY(prepare(p, "probe_mailbox", &launch));
    for (int run = -RUNS_BEFORE; run < RUNS; run++) {
        double ns = 0;
        BRIM_TRY(play_mailbox(&ns, p, &launch, &args));
        if (run >= 0)
            values[run] = ns;
    }
    p->out->mailbox_ns = figure_of(values, RUNS);
    return BRIM_OK;
}

static brim_status probe_launch(probe *p)
{
    brim__cuda_launch launch = {.blocks = 1, .threads = 32};
    brim__probe_args args = args_of(p, 0, 0);
    double many[RUNS], waits[LAUNCHES];
    say(p, "launches");
    BRIM_TRY(prepare(p, "probe_empty", &launch));
    for (int run = -RUNS_BEFORE; run < RUNS; run++) {
        uint64_t start = brim__now_ns();
        for (int i = 0; i < LAUNCHES; i++)
            BRIM_TRY(brim__cuda_launch_kernel(p->device, &launch, &args, sizeof args));
        BRIM_TRY(brim__cuda_synchronize(p->device, BRIM__CUDA_PROGRAMS));
        if (run >= 0)
            many[run] = (double)(brim__now_ns() - start) / LAUNCHES;
    }
    for (int i = 0; i < LAUNCHES; i++) {
        uint64_t start = brim__now_ns();
        BRIM_TRY(brim__cuda_launch_kernel(p->device, &launch, &args, sizeof args));
        BRIM_TRY(brim__cuda_synchronize(p->device, BRIM__CUDA_PROGRAMS));
        waits[i] = (double)(brim__now_ns() - start);
    }
    p->out->launch_ns = figure_of(many, RUNS);
    p->out->launch_wait_ns = figure_of(waits, LAUNCHES);
    return BRIM_OK;
}

static brim_status copy_once(double *out_gb_s, probe *p, bool to_device)
{
    brim__cuda_address device = brim__cuda_address_of(p->data);
    uint64_t start = brim__now_ns();
    if (to_device)
        BRIM_TRY(brim__cuda_write_async(p->device, BRIM__CUDA_COPIES, device, p->pinned,
                                        p->pinned_bytes));
    else
        BRIM_TRY(brim__cuda_read_async(p->pinned, p->device, BRIM__CUDA_COPIES, device,
                                       p->pinned_bytes));
    BRIM_TRY(brim__cuda_synchronize(p->device, BRIM__CUDA_COPIES));
    *out_gb_s = (double)p->pinned_bytes / (double)(brim__now_ns() - start);
    return BRIM_OK;
}

static brim_status probe_copies(probe *p)
{
    double values[RUNS], words[LAUNCHES];
    say(p, "copies");
    for (int to_device = 0; to_device < 2; to_device++) {
        for (int run = -RUNS_BEFORE; run < RUNS; run++) {
            double gb_s;
            BRIM_TRY(copy_once(&gb_s, p, to_device));
            if (run >= 0)
                values[run] = gb_s;
        }
        *(to_device ? &p->out->copy_to_gb_s : &p->out->copy_from_gb_s) = figure_of(values, RUNS);
    }
    for (int i = 0; i < LAUNCHES; i++) {
        uint32_t word;
        uint64_t start = brim__now_ns();
        BRIM_TRY(brim_device_read(&word, p->data, 0, sizeof word));
        words[i] = (double)(brim__now_ns() - start);
    }
    p->out->read_word_ns = figure_of(words, LAUNCHES);
    return BRIM_OK;
}

/* ---- the whole ---- */

static uint64_t power_of_two_below(uint64_t limit, uint64_t most)
{
    uint64_t size = most;
    while (size > limit)
        size /= 2;
    return size;
}

static brim_status take_memory(probe *p)
{
    uint64_t free_bytes, total;
    BRIM_TRY(brim__cuda_memory_free(&free_bytes, &total, p->device));
    p->data_bytes = power_of_two_below(free_bytes / 10 * 9, read_bytes_max);
    BRIM_FAIL_IF(
        p->data_bytes < read_bytes_min, NO_MEMORY, "memory.device",
        "the probe needs %llu MiB of the GPU's memory or more, %llu are free: end what else "
        "uses the device",
        (unsigned long long)(read_bytes_min >> 20), (unsigned long long)(free_bytes >> 20));
    p->pinned_bytes = p->data_bytes < copy_bytes_max ? p->data_bytes : copy_bytes_max;
    BRIM_TRY(brim_device_alloc(&p->data, p->device, p->data_bytes));
    BRIM_TRY(brim_device_alloc(&p->words, p->device, WORDS_BYTES));
    BRIM_TRY(brim__cuda_mapped_alloc(&p->pinned, &p->pinned_address, p->device, p->pinned_bytes));
    return brim__cuda_fill_async(p->device, BRIM__CUDA_PROGRAMS, brim__cuda_address_of(p->data),
                                 FILL_WORD, p->data_bytes);
}

static brim_status probe_all(probe *p)
{
    const brim__cuda_image *image = brim__cuda_image_find("probe", p->facts->capability, false);
    BRIM_FAIL_IF(!image, UNSUPPORTED, "cuda.image",
                 "this build has no probe for compute capability %d.%d: build Brim where nvcc is",
                 p->facts->capability / 10, p->facts->capability % 10);
    BRIM_TRY(brim__cuda_module_load(&p->module, p->device, image->data, image->name));
    BRIM_TRY(brim__cuda_event_create(&p->start, p->device));
    BRIM_TRY(brim__cuda_event_create(&p->end, p->device));
    BRIM_TRY(take_memory(p));
    BRIM_TRY(probe_rates(p)); /* first: it brings the clocks up */
    BRIM_TRY(probe_reads(p));
    brim__nvml_sample sample;
    if (brim__cuda_sensors_of(&sample, p->device)) {
        p->out->sm_mhz = sample.sm_mhz;
        p->out->memory_mhz = sample.memory_mhz;
        p->out->power_mw = sample.power_mw;
    }
    if (p->facts->cooperative) {
        BRIM_TRY(probe_barrier(p));
        BRIM_TRY(probe_packet(p));
    }
    BRIM_TRY(probe_launch(p));
    BRIM_TRY(probe_copies(p));
    return probe_mailbox(p);
}

brim_status brim_device_probe(brim_device_probed *out, brim_device *device,
                              void (*progress)(const char *what, void *user), void *user)
{
    memset(out, 0, sizeof *out);
    brim_device_info info;
    BRIM_TRY(brim_device_query(&info, device));
    BRIM_FAIL_IF(info.kind != BRIM_DEVICE_CUDA, UNSUPPORTED, "device.probe",
                 "a device of kind %s has no probe of its own (the CPU's is brim_hw_probe_all)",
                 brim_device_kind_name(info.kind));
    probe p = {.device = device,
               .facts = brim__cuda_facts_of(device),
               .out = out,
               .progress = progress,
               .user = user};
    brim_status status = probe_all(&p);
    if (p.pinned)
        brim__cuda_mapped_free(device, p.pinned);
    brim_device_free(p.words);
    brim_device_free(p.data);
    brim__cuda_event_destroy(p.end);
    brim__cuda_event_destroy(p.start);
    brim__cuda_module_unload(p.module);
    return status;
}
