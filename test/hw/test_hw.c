/* sched_setaffinity */
/* What the machine is, against what Linux and hwloc say of it, and the cache of the probe. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/thread.h"
#include "hw/hw.h"

static brim_context *ctx;

static int create(void **state)
{
    return brim_context_create(&ctx, NULL);
}

static int destroy(void **state)
{
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
    return 0;
}

static void assert_fails(brim_status status, brim_status wanted, const char *id)
{
    assert_int_equal(status, wanted);
    assert_string_equal(brim_last_id(), id);
}

/* The value of the first line of /proc/cpuinfo with this key, between spaces; false: no line. */
static bool cpuinfo(char *out, size_t size, const char *key)
{
    char line[8192];
    FILE *file = fopen("/proc/cpuinfo", "r");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        line[strcspn(line, "\n")] = ' ';
        snprintf(out, size, "%s", colon + 1);
        found = true;
    }
    if (file)
        fclose(file);
    return found;
}

static bool has_word(const char *text, const char *word)
{
    char padded[9000], wanted[64];
    snprintf(padded, sizeof padded, " %s ", text);
    snprintf(wanted, sizeof wanted, " %s ", word);
    return strstr(padded, wanted) != NULL;
}

static void flags_are_those_that_the_kernel_lists(void **state)
{
    static const char *const names[] = {"sse4_2",      "avx",      "f16c",     "fma",
                                        "avx2",        "avx_vnni", "avx512f",  "avx512bw",
                                        "avx512dq",    "avx512vl", "amx_tile", "avx512_vnni",
                                        "avx512_bf16", "amx_int8", "amx_bf16", "avx512_fp16"};
    char listed[8192];
    brim_hw hw;
    assert_int_equal(brim_hw_find(&hw, ctx), BRIM_OK);
    if (!cpuinfo(listed, sizeof listed, "flags"))
        skip(); /* not x86 */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has_word(listed, names[i]) != has_word(hw.isa_flags, names[i]))
            fail_msg("%s: the kernel lists \"%s\", found \"%s\"", names[i], listed, hw.isa_flags);
}

static void levels_need_every_flag_of_theirs(void **state)
{
    uint64_t avx2 = BRIM__CPU_BIT(AVX2) | BRIM__CPU_BIT(FMA) | BRIM__CPU_BIT(F16C);
    uint64_t avx512 = avx2 | BRIM__CPU_BIT(AVX512F) | BRIM__CPU_BIT(AVX512BW) |
                      BRIM__CPU_BIT(AVX512DQ) | BRIM__CPU_BIT(AVX512VL) |
                      BRIM__CPU_BIT(AVX512_VNNI);
    assert_int_equal(brim__isa_from_flags(0, NULL), BRIM_ISA_SCALAR);
    assert_int_equal(brim__isa_from_flags(avx2, NULL), BRIM_ISA_AVX2);
    assert_int_equal(brim__isa_from_flags(avx512, NULL), BRIM_ISA_AVX512);
    for (int i = 0; i < BRIM__CPU_FLAG_COUNT; i++) {
        uint64_t bit = UINT64_C(1) << i;
        brim_isa left = avx2 & bit ? BRIM_ISA_SCALAR : BRIM_ISA_AVX2;
        if (avx512 & bit)
            assert_int_equal(brim__isa_from_flags(avx512 & ~bit, NULL), left);
    }
    assert_int_equal(brim__isa_from_flags(avx512, "avx2"), BRIM_ISA_AVX2);
    assert_int_equal(brim__isa_from_flags(avx512, "scalar"), BRIM_ISA_SCALAR);
    assert_int_equal(brim__isa_from_flags(avx2, "avx512"), BRIM_ISA_AVX2); /* never raised */
    assert_int_equal(brim__isa_from_flags(avx512, "sse9"), BRIM_ISA_AVX512);
}

static void environment_lowers_the_instruction_set(void **state)
{
    brim_isa best = brim_isa_best();
    setenv("BRIM_ISA", "scalar", 1);
    assert_int_equal(brim_isa_best(), BRIM_ISA_SCALAR);
    setenv("BRIM_ISA", "none of them", 1);
    assert_int_equal(brim_isa_best(), best);
    unsetenv("BRIM_ISA");
    assert_string_equal(brim_isa_name(BRIM_ISA_AVX2), "avx2");
    assert_string_equal(brim_isa_name((brim_isa)77), "unknown");
}

static void machine_is_as_linux_says(void **state)
{
    brim_hw hw;
    char name[8192];
    assert_int_equal(brim_hw_find(&hw, ctx), BRIM_OK);
    assert_int_equal(hw.thread_count, brim__cpu_count());
    assert_in_range(hw.core_count, 1, hw.thread_count);
    assert_in_range(hw.package_count, 1, hw.core_count);
    assert_true(hw.numa_count >= 1);
    uint64_t physical = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_in_range(hw.memory_bytes, 1 << 20, physical);
    assert_non_null(strstr(hw.os, "Linux"));
    assert_true(hw.cpu_name[0] != 0);
    if (cpuinfo(name, sizeof name, "model name")) {
        char clean[96];
        brim__cpu_name_clean(clean, sizeof clean, name);
        assert_string_equal(hw.cpu_name, clean);
    }
    if (sysconf(_SC_LEVEL1_DCACHE_SIZE) > 0)
        assert_in_range(hw.l1d_bytes, sysconf(_SC_LEVEL1_DCACHE_SIZE) / 4, /* cores may differ */
                        sysconf(_SC_LEVEL1_DCACHE_SIZE) * 4);
    if (sysconf(_SC_LEVEL3_CACHE_SIZE) > 0 && hw.l3_bytes)
        assert_true(brim__hw_last_cache_bytes() >= hw.l3_bytes);
}

static void a_process_bound_to_one_cpu_has_one_thread_and_core(void **state)
{
    cpu_set_t before;
    brim_hw hw;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_true(brim__thread_pin(0));
    assert_int_equal(brim_hw_find(&hw, ctx), BRIM_OK);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(hw.thread_count, 1);
    assert_int_equal(hw.core_count, 1);
    assert_int_equal(hw.package_count, 1);
}

static void a_cpu_name_is_printable_and_has_single_spaces(void **state)
{
    char name[12];
    brim__cpu_name_clean(name, sizeof name, "  A\x01\t  CPU  \x1b[31m at 3 GHz");
    assert_string_equal(name, "A CPU [31m");
    brim__cpu_name_clean(name, sizeof name, "");
    assert_string_equal(name, "");
}

static void the_probes_buffer_is_four_caches_within_a_quarter_of_memory(void **state)
{
    const uint64_t mib = 1 << 20, gib = 1 << 30;
    assert_int_equal(brim__probe_buffer_bytes(105 * mib, 24 * gib), 420 * mib);
    assert_int_equal(brim__probe_buffer_bytes(8 * mib, 24 * gib), 256 * mib);
    assert_int_equal(brim__probe_buffer_bytes(105 * mib, gib), 256 * mib);
    assert_int_equal(brim__probe_buffer_bytes(105 * mib, 0), 420 * mib);
    assert_int_equal(brim__probe_buffer_bytes(0, 0), 256 * mib);
}

/* ---- the probes themselves: they end, and their values are physically possible ---- */

static void bandwidth_is_positive_and_below_any_memory_there_is(void **state)
{
    double gb_s = 0;
    assert_int_equal(brim_hw_probe_read(&gb_s, ctx, 2, 0.01), BRIM_OK);
    assert_true(gb_s > 0.01 && gb_s < 1e5);
    assert_fails(brim_hw_probe_read(&gb_s, ctx, 0, 0.01), BRIM_USAGE, "hw.threads");
    assert_fails(brim_hw_probe_read(&gb_s, ctx, 1025, 0.01), BRIM_USAGE, "hw.threads");
    assert_fails(brim_hw_probe_read(&gb_s, ctx, 1, -1), BRIM_USAGE, "hw.seconds");
    assert_fails(brim_hw_probe_read(&gb_s, ctx, 1, 0.0 / 0.0), BRIM_USAGE, "hw.seconds");
}

static void bandwidth_probe_without_memory_fails_cleanly(void **state)
{
    double gb_s;
    for (uint64_t n = 1; n <= 4; n++) {
        brim__memory_fail_at(ctx, n);
        assert_int_equal(brim_hw_probe_read(&gb_s, ctx, 2, 0.01), BRIM_NO_MEMORY);
        brim__memory_fail_at(ctx, 0);
        assert_int_equal(brim_context_bytes(ctx), 0);
    }
}

static void every_usable_rate_is_positive(void **state)
{
    size_t count;
    const brim__rate_kind *kinds = brim__rate_kinds(&count);
    assert_in_range(count, 2, BRIM_HW_RATES_MAX);
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(brim__rate_kind_find(kinds[i].type, kinds[i].isa), &kinds[i]);
        if (!brim__rate_usable(&kinds[i]))
            continue;
        double gop_s = brim__rate_measure(&kinds[i]);
        if (!(gop_s > 1e-4 && gop_s < 1e6))
            fail_msg("%s with %s: %g Gop/s", kinds[i].type, kinds[i].isa, gop_s);
    }
    assert_null(brim__rate_kind_find("f32", "abacus"));
}

static void a_barrier_over_more_lanes_than_cpus_still_ends(void **state)
{
    double ns = -1;
    assert_int_equal(brim__probe_barrier(&ns, ctx, 1), BRIM_OK);
    assert_true(ns == 0);
    assert_int_equal(brim__probe_barrier(&ns, ctx, 2), BRIM_OK);
    assert_true(ns > 1 && ns < 1e9);
    assert_int_equal(brim__probe_barrier(&ns, ctx, brim__cpu_count() + 1), BRIM_OK);
    assert_true(ns > 1);
}

typedef struct relay {
    brim__barrier barrier;
    uint32_t counts[4]; /* each written by one lane, read by all after a barrier */
    _Atomic uint32_t wrong;
} relay;

static void relay_body(uint32_t lane, void *user)
{
    relay *r = user;
    uint32_t sense = 0;
    for (uint32_t round = 1; round <= 200; round++) {
        r->counts[lane] = round;
        brim__barrier_wait(&r->barrier, &sense);
        for (int i = 0; i < 4; i++)
            if (r->counts[i] != round)
                atomic_fetch_add(&r->wrong, 1);
        brim__barrier_wait(&r->barrier, &sense);
    }
}

static void after_a_barrier_every_lane_sees_what_the_others_wrote(void **state)
{
    relay r = {.barrier = {.lane_count = 4}};
    assert_int_equal(brim__crew_run(ctx, 4, false, relay_body, &r), BRIM_OK);
    assert_int_equal(r.wrong, 0);
}

static void when_a_thread_of_a_crew_is_missing_no_body_runs(void **state)
{
    relay r = {.barrier = {.lane_count = 4}};
    brim__memory_fail_at(ctx, 4); /* the list, then a thread each */
    assert_int_equal(brim__crew_run(ctx, 4, false, relay_body, &r), BRIM_NO_MEMORY);
    brim__memory_fail_at(ctx, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(r.counts[i], 0);
}

/* ---- the cache ---- */

static brim_hw_probe sample_probe(void)
{
    return (brim_hw_probe){.buffer_bytes = 440401920,
                           .thread_count = 2,
                           .read_gb_s = {12.5, 24.25},
                           .rate_count = 2,
                           .rates = {{"f32", "scalar", 4.125}, {"u8s8", "scalar", 4.5}},
                           .barrier_ns = {0, 260},
                           .probed_at = 1700000000};
}

static void assert_is_sample(const brim_hw_probe *probe)
{
    brim_hw_probe wanted = sample_probe();
    assert_int_equal(probe->buffer_bytes, wanted.buffer_bytes);
    assert_int_equal(probe->thread_count, 2);
    assert_int_equal(probe->probed_at, wanted.probed_at);
    assert_int_equal(probe->rate_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(probe->read_gb_s[i] == wanted.read_gb_s[i]);
        assert_true(probe->barrier_ns[i] == wanted.barrier_ns[i]);
        assert_true(probe->rates[i].gop_s == wanted.rates[i].gop_s);
        assert_string_equal(probe->rates[i].type, wanted.rates[i].type);
        assert_string_equal(probe->rates[i].isa, "scalar");
    }
}

static void probe_text_of_another_machine_is_not_taken(void **state)
{
    brim__probe_key key = {"A CPU", 2, "6.1.0"};
    brim_hw_probe probe = sample_probe(), back;
    char *text;
    assert_int_equal(brim__probe_to_text(&text, ctx, &probe, &key), BRIM_OK);
    assert_int_equal(brim__probe_from_text(&back, text, strlen(text), &key), BRIM_OK);
    assert_is_sample(&back);
    const brim__probe_key others[] = {
        {"Another CPU", 2, "6.1.0"}, {"A CPU", 3, "6.1.0"}, {"A CPU", 2, "6.1.1"}};
    for (int i = 0; i < 3; i++)
        assert_fails(brim__probe_from_text(&back, text, strlen(text), &others[i]), BRIM_NOT_FOUND,
                     "hw.no_probe");
    /* Cut anywhere, it is no probe. */
    for (size_t size = 0; size + 1 < strlen(text); size += 7)
        assert_fails(brim__probe_from_text(&back, text, size, &key), BRIM_FORMAT, "hw.cache");
    brim__free(ctx, text);
}

static void probe_text_with_impossible_values_is_refused(void **state)
{
    static const char *const damages[][2] = {
        {"12.5", "-12.5"},
        {"24.25", "\"x\""},
        {"24.25", "24.25, 30.0"},
        {"24.25", "1e300"},
        {"260.0", "null"},
        {"4.125", "0"},
        {"440401920", "0"},
        {"1700000000", "1e15"},
        {"\"f32\"", "\"f33\""},
        {"\"f32\"", "7"},
        {"brim-probe", "brim-prone"},
        {"\"rates\"", "\"r\""},
        {"\"version\": 1", "\"version\": 2"},
    };
    brim__probe_key key = {"A CPU", 2, "6.1.0"};
    brim_hw_probe probe = sample_probe(), back;
    char *text;
    assert_int_equal(brim__probe_to_text(&text, ctx, &probe, &key), BRIM_OK);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char damaged[4096];
        const char *at = strstr(text, damages[i][0]);
        if (!at)
            fail_msg("%s is not in %s", damages[i][0], text);
        int n = snprintf(damaged, sizeof damaged, "%.*s%s%s", (int)(at - text), text, damages[i][1],
                         at + strlen(damages[i][0]));
        if (brim__probe_from_text(&back, damaged, (size_t)n, &key) != BRIM_FORMAT)
            fail_msg("%s instead of %s was taken", damages[i][1], damages[i][0]);
        assert_string_equal(brim_last_id(), "hw.cache");
    }
    brim__free(ctx, text);
}

static void a_saved_probe_is_loaded_and_a_damaged_file_counts_as_none(void **state)
{
    char folder[] = "/tmp/brim-test-XXXXXX", command[128];
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    brim_hw_probe probe = sample_probe(), back;
    assert_fails(brim_hw_probe_load(&back, ctx), BRIM_NOT_FOUND, "hw.no_probe");
    assert_int_equal(brim_hw_probe_save(&probe, ctx), BRIM_OK);
    assert_int_equal(brim_hw_probe_load(&back, ctx), BRIM_OK);
    assert_is_sample(&back);
    snprintf(command, sizeof command, "for f in %s/brim/*; do echo '{' > \"$f\"; done", folder);
    assert_int_equal(system(command), 0);
    assert_fails(brim_hw_probe_load(&back, ctx), BRIM_NOT_FOUND, "hw.no_probe");
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    unsetenv("HOME");
    assert_fails(brim_hw_probe_load(&back, ctx), BRIM_NOT_FOUND, "hw.no_cache");
    assert_fails(brim_hw_probe_save(&probe, ctx), BRIM_NOT_FOUND, "hw.no_cache");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_are_those_that_the_kernel_lists),
        cmocka_unit_test(levels_need_every_flag_of_theirs),
        cmocka_unit_test(environment_lowers_the_instruction_set),
        cmocka_unit_test(machine_is_as_linux_says),
        cmocka_unit_test(a_process_bound_to_one_cpu_has_one_thread_and_core),
        cmocka_unit_test(a_cpu_name_is_printable_and_has_single_spaces),
        cmocka_unit_test(the_probes_buffer_is_four_caches_within_a_quarter_of_memory),
        cmocka_unit_test(bandwidth_is_positive_and_below_any_memory_there_is),
        cmocka_unit_test(bandwidth_probe_without_memory_fails_cleanly),
        cmocka_unit_test(every_usable_rate_is_positive),
        cmocka_unit_test(a_barrier_over_more_lanes_than_cpus_still_ends),
        cmocka_unit_test(after_a_barrier_every_lane_sees_what_the_others_wrote),
        cmocka_unit_test(when_a_thread_of_a_crew_is_missing_no_body_runs),
        cmocka_unit_test(probe_text_of_another_machine_is_not_taken),
        cmocka_unit_test(probe_text_with_impossible_values_is_refused),
        cmocka_unit_test(a_saved_probe_is_loaded_and_a_damaged_file_counts_as_none),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
