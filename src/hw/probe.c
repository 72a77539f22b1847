/* probe.c: what the machine can do, measured: read bandwidth, arithmetic rates, barriers.
 *
 * Bandwidth: every lane reads its own contiguous slice of a buffer that is too large for the
 * caches, from a common start until the last lane is done; a pass's rate counts all bytes over
 * that time. A core that follows several streams at once keeps more lines in flight than one that
 * follows a single stream, so each pass reads the slice as 1, 4 or 8 streams in turn, and the
 * best median of the three is the bandwidth: the limit that a kernel is compared with.
 *
 * Bandwidth is what is there now, beside whatever else runs, hence medians. Rates and barriers
 * describe the CPU, hence the best of many short batches, most of which nothing interrupts. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/stats.h"
#include "base/thread.h"
#include "hw/hw.h"

enum {
    PAGE = 4096,
    PATTERN_COUNT = 3,
    PASSES_MAX = 64, /* of one pattern */
    PASSES_MIN = 3,
    PROBED_THREADS_MAX = 64,
    RATE_BATCHES = 16,
};
static const uint32_t pattern_streams[PATTERN_COUNT] = {1, 4, 8};
static const uint64_t rate_batch_ns = 2000000;
static const uint64_t buffer_bytes_min = UINT64_C(256) << 20;

uint64_t brim__probe_buffer_bytes(uint64_t last_cache_bytes, uint64_t memory_bytes)
{
    uint64_t size = 4 * last_cache_bytes;
    if (size < buffer_bytes_min)
        size = buffer_bytes_min;
    if (memory_bytes && size > memory_bytes / 4)
        size = memory_bytes / 4;
    return size / PAGE * PAGE;
}

/* ---- bandwidth ---- */

typedef struct read_probe {
    brim__barrier barrier;
    char *data;
    uint64_t size; /* a multiple of PAGE */
    brim__read_body *body;
    bool touch; /* the pages are not there yet */
    bool done;  /* written by lane 0 before a barrier, read by all after it */
    uint64_t deadline_ns;
    uint32_t pass_counts[PATTERN_COUNT];
    double gb_s[PATTERN_COUNT][PASSES_MAX];
} read_probe;

/* A lane's slice: equal shares in whole pages; what is left over at the end is not read. */
static uint64_t slice_bytes(const read_probe *probe)
{
    return probe->size / probe->barrier.lane_count / PAGE * PAGE;
}

/* Lane 0 alone counts: the others wait for it at the next barrier. */
static void count_pass(read_probe *probe, uint32_t pass, uint64_t start_ns)
{
    uint32_t pattern = pass % PATTERN_COUNT, nth = pass / PATTERN_COUNT;
    uint64_t now = brim__now_ns(), took = now - start_ns;
    double bytes = (double)slice_bytes(probe) * probe->barrier.lane_count;
    probe->gb_s[pattern][nth] = bytes / (double)(took ? took : 1);
    probe->pass_counts[pattern] = nth + 1;
    /* Another round of the patterns would end about here. */
    bool enough = nth + 1 >= PASSES_MIN && now + PATTERN_COUNT * took >= probe->deadline_ns;
    probe->done = pattern + 1 == PATTERN_COUNT && (enough || nth + 1 == PASSES_MAX);
}

static void read_lane(uint32_t lane, void *user)
{
    read_probe *probe = user;
    uint32_t sense = 0;
    uint64_t size = slice_bytes(probe);
    char *slice = probe->data + lane * size;
    /* A page that was never written may be one page of zeros, mapped many times and cached. */
    for (uint64_t i = 0; probe->touch && i < size; i += PAGE)
        ((volatile char *)slice)[i] = 1;
    for (uint32_t pass = 0;; pass++) {
        brim__barrier_wait(&probe->barrier, &sense);
        if (probe->done)
            return;
        uint64_t start_ns = brim__now_ns();
        probe->body(slice, size, pattern_streams[pass % PATTERN_COUNT]);
        brim__barrier_wait(&probe->barrier, &sense);
        if (lane == 0)
            count_pass(probe, pass, start_ns);
    }
}

/* Probes with the lanes and the buffer that are set; `seconds` from now, touching included. */
static brim_status read_run(double *out_gb_s, brim_context *ctx, read_probe *probe,
                            uint32_t threads, double seconds)
{
    probe->barrier = (brim__barrier){.lane_count = threads};
    probe->done = false;
    probe->deadline_ns = brim__now_ns() + (uint64_t)(seconds * 1e9);
    memset(probe->pass_counts, 0, sizeof probe->pass_counts);
    BRIM_TRY(brim__crew_run(ctx, threads, false, read_lane, probe));
    probe->touch = false;
    *out_gb_s = 0;
    for (uint32_t i = 0; i < PATTERN_COUNT; i++) {
        double median = brim__median(probe->gb_s[i], probe->pass_counts[i]);
        if (median > *out_gb_s)
            *out_gb_s = median;
    }
    return BRIM_OK;
}

static brim_status read_open(read_probe **out, brim_context *ctx, uint32_t threads)
{
    uint64_t cache = brim__hw_last_cache_bytes();
    uint64_t size = brim__probe_buffer_bytes(cache, brim__hw_memory_bytes());
    read_probe *probe;
    *out = NULL;
    BRIM_FAIL_IF(size / threads < PAGE, LIMIT, "hw.buffer",
                 "a quarter of the memory is %llu bytes: too little to probe with %u threads",
                 (unsigned long long)size, threads);
    if (size < 4 * cache)
        brim__log(ctx, BRIM_LOG_WARN,
                  "the bandwidth probe reads %llu MiB, a quarter of the memory, less than 4 times "
                  "the last cache: part of it may come from the cache",
                  (unsigned long long)(size >> 20));
    BRIM_CALLOC(ctx, probe, 1);
    probe->data = brim__alloc(ctx, size);
    if (!probe->data) {
        brim__free(ctx, probe);
        return BRIM_NO_MEMORY;
    }
    probe->size = size;
    probe->body = brim__read_widest();
    probe->touch = true;
    *out = probe;
    return BRIM_OK;
}

static void read_close(read_probe *probe, brim_context *ctx)
{
    if (probe)
        brim__free(ctx, probe->data);
    brim__free(ctx, probe);
}

brim_status brim_hw_probe_read(double *out_gb_s, brim_context *ctx, uint32_t threads,
                               double seconds)
{
    *out_gb_s = 0;
    BRIM_FAIL_IF(threads < 1 || threads > BRIM_HW_THREADS_MAX, USAGE, "hw.threads",
                 "a probe takes 1 to %d threads, not %u", BRIM_HW_THREADS_MAX, threads);
    BRIM_FAIL_IF(!(seconds >= 0 && seconds <= 3600), USAGE, "hw.seconds",
                 "a probe takes 0 to 3600 seconds, not %g", seconds);
    read_probe *probe;
    BRIM_TRY(read_open(&probe, ctx, threads));
    brim_status status = read_run(out_gb_s, ctx, probe, threads, seconds == 0 ? 0.5 : seconds);
    read_close(probe, ctx);
    return status;
}

/* ---- arithmetic ---- */

const brim__rate_kind *brim__rate_kind_find(const char *type, const char *isa)
{
    size_t count;
    const brim__rate_kind *kinds = brim__rate_kinds(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(kinds[i].type, type) == 0 && strcmp(kinds[i].isa, isa) == 0)
            return &kinds[i];
    return NULL;
}

static uint64_t time_body(brim__rate_body *body, uint64_t iterations)
{
    uint64_t start = brim__now_ns();
    body(iterations);
    return brim__now_ns() - start;
}

double brim__rate_measure(const brim__rate_kind *kind)
{
    /* Doubling finds how many iterations take long enough for the clock, and warms the unit up. */
    uint64_t iterations = 64;
    while (time_body(kind->body, iterations) < rate_batch_ns && iterations < UINT64_C(1) << 40)
        iterations *= 2;
    /* The best batch: time that the system gave to others is not the unit's. */
    double best = 0;
    for (int i = 0; i < RATE_BATCHES; i++) {
        uint64_t took = time_body(kind->body, iterations);
        double gop_s = (double)iterations * kind->ops / (double)(took ? took : 1);
        best = gop_s > best ? gop_s : best;
    }
    return best;
}

/* ---- everything ---- */

typedef struct report {
    void (*progress)(const char *what, void *user);
    void *user;
} report;

__attribute__((format(printf, 2, 3))) static void say(const report *to, const char *fmt, ...)
{
    char line[96];
    if (!to->progress)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    to->progress(line, to->user);
}

static brim_status probe_reads(brim_hw_probe *out, brim_context *ctx, const report *to)
{
    read_probe *probe;
    BRIM_TRY(read_open(&probe, ctx, out->thread_count));
    out->buffer_bytes = probe->size;
    /* Shorter probes where there are many threads to count through: 6 seconds in all. */
    double seconds = 6.0 / out->thread_count, gb_s;
    seconds = seconds > 0.6 ? 0.6 : seconds;
    brim_status status = BRIM_OK;
    /* All threads touch the buffer first, so that its pages are spread over the memory nodes. */
    say(to, "touching %llu MiB", (unsigned long long)(probe->size >> 20));
    if (out->thread_count > 1)
        status = read_run(&gb_s, ctx, probe, out->thread_count, 0);
    for (uint32_t i = 0; i < out->thread_count && status == BRIM_OK; i++) {
        say(to, "reading memory with %u thread%s", i + 1, i ? "s" : "");
        status = read_run(&out->read_gb_s[i], ctx, probe, i + 1, seconds);
    }
    read_close(probe, ctx);
    return status;
}

static brim_status probe_barriers(brim_hw_probe *out, brim_context *ctx, const report *to)
{
    for (uint32_t i = 1; i < out->thread_count; i++) {
        say(to, "a barrier over %u lanes", i + 1);
        BRIM_TRY(brim__probe_barrier(&out->barrier_ns[i], ctx, i + 1));
    }
    return BRIM_OK;
}

static void probe_rates(brim_hw_probe *out, const report *to)
{
    size_t count;
    const brim__rate_kind *kinds = brim__rate_kinds(&count);
    for (size_t i = 0; i < count; i++) {
        if (!brim__rate_usable(&kinds[i]))
            continue;
        say(to, "multiplying %s with %s", kinds[i].type, kinds[i].isa);
        out->rates[out->rate_count++] =
            (brim_hw_rate){kinds[i].type, kinds[i].isa, brim__rate_measure(&kinds[i])};
    }
}

brim_status brim_hw_probe_all(brim_hw_probe *out, brim_context *ctx,
                              void (*progress)(const char *what, void *user), void *user)
{
    report to = {progress, user};
    uint32_t cpus = brim__cpu_count();
    memset(out, 0, sizeof *out);
    out->thread_count = cpus > PROBED_THREADS_MAX ? PROBED_THREADS_MAX : cpus;
    BRIM_TRY(probe_reads(out, ctx, &to));
    BRIM_TRY(probe_barriers(out, ctx, &to));
    probe_rates(out, &to);
    out->probed_at = (int64_t)time(NULL);
    return BRIM_OK;
}
