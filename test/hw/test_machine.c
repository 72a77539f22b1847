/* Machine descriptions: what is read, what is refused and by which id, what a probe gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "brim/hw.h"

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

static const char good[] =
    "{\"format\": \"brim-machine\", \"version\": 1, \"name\": \"two lanes\", \"lane_count\": 2,\n"
    " \"read_gb_s\": {\"value\": 24.5, \"source\": \"a data sheet\", \"confidence\": "
    "\"published\"},\n"
    " \"lane_read_gb_s\": 13, \"lane_gflop_s\": 117, \"lane_gop_int8_s\": 446.0,\n"
    " \"signal_ns\": 130, \"instruction_ns\": 100, \"notes\": \"made up\"}";

static void a_machine_is_read_value_by_value(void **state)
{
    brim_machine m;
    assert_int_equal(brim_machine_parse(&m, ctx, good, strlen(good)), BRIM_OK);
    assert_string_equal(m.name, "two lanes");
    assert_int_equal(m.lane_count, 2);
    assert_true(m.read_gb_s == 24.5);
    assert_true(m.lane_read_gb_s == 13);
    assert_true(m.lane_gflop_s == 117);
    assert_true(m.lane_gop_int8_s == 446);
    assert_true(m.signal_ns == 130);
    assert_true(m.instruction_ns == 100);
}

/* What replaces what in the good machine, and the id of the refusal. */
typedef struct damage {
    const char *from, *to, *id;
} damage;

static const damage damages[] = {
    {"{", "", "machine.json"},
    {"}", "", "machine.json"},
    {"\"name\"", "name", "machine.json"},
    {"{\"format\"", "[{\"format\"", "machine.json"},
    {"\"notes\"", "\"name\"", "machine.json"}, /* twice */
    {"13", "1e999", "machine.json"},
    {"13", "NaN", "machine.json"},
    {"made up", "\\ud800", "machine.json"},
    {"made up", "a\\u0000b", "machine.json"},
    {"made up", "\xff", "machine.json"},
    {"made up\"}", "made up\"} 1", "machine.json"},
    {"brim-machine", "brim-program", "machine.format"},
    {"\"format\"", "\"formal\"", "machine.format"},
    {"\"brim-machine\"", "7", "machine.format"},
    {"\"version\": 1", "\"version\": 2", "machine.format"},
    {"\"version\": 1", "\"version\": \"1\"", "machine.format"},
    {"\"notes\"", "\"note\"", "machine.key"},
    {"\"source\"", "\"sauce\"", "machine.key"},
    {"\"instruction_ns\": 100,", "", "machine.missing"},
    {"\"lane_count\": 2,", "", "machine.missing"},
    {"\"name\": \"two lanes\",", "", "machine.missing"},
    {"\"value\": 24.5, ", "", "machine.missing"},
    {"\"two lanes\"", "2", "machine.type"},
    {"13", "\"13\"", "machine.type"},
    {"13", "[13]", "machine.type"},
    {"13", "null", "machine.type"},
    {"24.5", "{\"value\": 24.5}", "machine.type"},
    {"\"made up\"", "true", "machine.type"},
    {"\"a data sheet\"", "3", "machine.type"},
    {"\"made up\"", "\"\", \"found\": 3", "machine.type"},
    {"two lanes", "", "machine.value"},
    {"two lanes", "a\\u001b[31m", "machine.value"},
    {"two lanes",
     "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
     "1234567890",
     "machine.value"},
    {"\"lane_count\": 2", "\"lane_count\": 0", "machine.value"},
    {"\"lane_count\": 2", "\"lane_count\": -1", "machine.value"},
    {"\"lane_count\": 2", "\"lane_count\": 2.5", "machine.value"},
    {"\"lane_count\": 2", "\"lane_count\": 1025", "machine.value"},
    {"\"lane_count\": 2", "\"lane_count\": 4294967298", "machine.value"},
    {"13", "0", "machine.value"},
    {"13", "-13", "machine.value"},
    {"13", "25", "machine.value"}, /* more than all lanes */
    {"24.5", "1e300", "machine.value"},
    {"130", "1e-9", "machine.value"},
    {"100", "1e10", "machine.value"},
    {"\"published\"", "\"certain\"", "machine.value"},
    {"\"published\"", "1", "machine.value"},
};

static void malformed_machines_are_refused_each_with_its_id(void **state)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const damage *d = &damages[i];
        char text[2048];
        const char *at = strstr(good, d->from);
        assert_non_null(at);
        int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, d->to,
                         at + strlen(d->from));
        brim_machine m;
        brim_status status = brim_machine_parse(&m, ctx, text, (size_t)n);
        if (status != BRIM_FORMAT || strcmp(brim_last_id(), d->id) != 0)
            fail_msg("%s -> %s: wanted %s, got %s: %s", d->from, d->to, d->id,
                     status ? brim_last_id() : "success", brim_last_message());
        assert_int_equal(m.lane_count, 0); /* nothing is left half read */
    }
}

static void messages_name_the_place(void **state)
{
    brim_machine m;
    const char *text = "{\"format\": \"brim-machine\",\n \"version\": oops}";
    assert_int_equal(brim_machine_parse(&m, ctx, text, strlen(text)), BRIM_FORMAT);
    assert_non_null(strstr(brim_last_message(), "line 2"));
    text = "{\"format\": \"brim-machine\", \"version\": 1, \"cores\": 3}";
    assert_int_equal(brim_machine_parse(&m, ctx, text, strlen(text)), BRIM_FORMAT);
    assert_non_null(strstr(brim_last_message(), "\"cores\""));
}

static void empty_and_oversized_and_deep_texts_are_refused(void **state)
{
    brim_machine m;
    assert_int_equal(brim_machine_parse(&m, ctx, NULL, 0), BRIM_FORMAT);
    assert_string_equal(brim_last_id(), "machine.json");
    size_t size = (1 << 20) + 1;
    char *text = brim__alloc(ctx, size);
    memset(text, ' ', size);
    assert_int_equal(brim_machine_parse(&m, ctx, text, size), BRIM_FORMAT);
    assert_string_equal(brim_last_id(), "machine.size");
    memset(text, '[', size);
    assert_int_equal(brim_machine_parse(&m, ctx, text, size - 1), BRIM_FORMAT);
    assert_string_equal(brim_last_id(), "machine.json");
    brim__free(ctx, text);
}

static brim_hw sample_hw(brim_isa isa)
{
    return (brim_hw){.cpu_name = "A CPU",
                     .os = "Linux",
                     .core_count = 2,
                     .thread_count = 2,
                     .l3_bytes = 1 << 20,
                     .l3_count = 1,
                     .isa = isa};
}

static brim_hw_probe sample_probe(void)
{
    return (brim_hw_probe){.buffer_bytes = 1 << 28,
                           .thread_count = 2,
                           .read_gb_s = {12.5, 24.25},
                           .rate_count = 2,
                           .rates = {{"f32", "scalar", 4.125}, {"u8s8", "scalar", 4.5}},
                           .barrier_ns = {0, 260},
                           .probed_at = 1700000000};
}

static void a_probe_gives_the_machine_its_values(void **state)
{
    brim_hw hw = sample_hw(BRIM_ISA_SCALAR);
    brim_hw_probe probe = sample_probe();
    brim_machine m = brim_machine_from_probe(&hw, &probe, 2);
    assert_string_equal(m.name, "A CPU");
    assert_int_equal(m.lane_count, 2);
    assert_true(m.read_gb_s == 24.25 && m.lane_read_gb_s == 12.5);
    assert_true(m.lane_gflop_s == 4.125 && m.lane_gop_int8_s == 4.5);
    assert_true(m.signal_ns == 130);
    m = brim_machine_from_probe(&hw, &probe, 1);
    assert_true(m.read_gb_s == 12.5);
    assert_true(m.signal_ns > 0 && m.signal_ns < 130);
    assert_int_equal(brim_machine_from_probe(&hw, &probe, 0).lane_count, 1);
    assert_int_equal(brim_machine_from_probe(&hw, &probe, 5000).lane_count, 1024);
}

#if defined(__x86_64__)
static void a_machine_counts_on_no_more_than_its_instruction_set(void **state)
{
    brim_hw_probe probe = sample_probe();
    const brim_hw_rate more[] = {{"f32", "avx2", 50},          {"f32", "avx512", 100},
                                 {"u8s8", "avx2", 90},         {"u8s8", "avx-vnni", 200},
                                 {"u8s8", "avx512-vnni", 400}, {"u8s8", "amx-int8", 4000}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        probe.rates[probe.rate_count++] = more[i];
    const double flops[] = {4.125, 50, 100}, ints[] = {4.5, 90, 400};
    for (brim_isa isa = BRIM_ISA_SCALAR; isa < BRIM_ISA_COUNT; isa++) {
        brim_hw hw = sample_hw(isa);
        brim_machine m = brim_machine_from_probe(&hw, &probe, 2);
        assert_true(m.lane_gflop_s == flops[isa]);
        assert_true(m.lane_gop_int8_s == ints[isa]);
    }
}
#endif

static void what_is_written_can_be_read_again(void **state)
{
    brim_hw hw = sample_hw(BRIM_ISA_SCALAR);
    brim_hw_probe probe = sample_probe();
    char *text;
    assert_int_equal(brim_hw_to_json(&text, ctx, &hw, &probe), BRIM_OK);
    brim_machine m, direct = brim_machine_from_probe(&hw, &probe, 2);
    assert_int_equal(brim_machine_parse(&m, ctx, text, strlen(text)), BRIM_OK);
    assert_string_equal(m.name, direct.name);
    assert_true(m.read_gb_s == direct.read_gb_s && m.lane_read_gb_s == direct.lane_read_gb_s);
    assert_true(m.lane_gflop_s == direct.lane_gflop_s && m.signal_ns == direct.signal_ns);
    brim_free(ctx, text);
    /* Without a probe there is nothing to compute from, and that is said. */
    assert_int_equal(brim_hw_to_json(&text, ctx, &hw, NULL), BRIM_OK);
    assert_int_equal(brim_machine_parse(&m, ctx, text, strlen(text)), BRIM_FORMAT);
    assert_string_equal(brim_last_id(), "machine.missing");
    brim_free(ctx, text);
}

static void the_machine_found_here_can_be_written(void **state)
{
    brim_hw hw;
    char *text;
    assert_int_equal(brim_hw_find(&hw, ctx), BRIM_OK);
    assert_int_equal(brim_hw_to_json(&text, ctx, &hw, NULL), BRIM_OK);
    assert_non_null(strstr(text, hw.cpu_name));
    brim_free(ctx, text);
    brim__memory_fail_at(ctx, 1);
    assert_int_equal(brim_hw_to_json(&text, ctx, &hw, NULL), BRIM_NO_MEMORY);
    brim__memory_fail_at(ctx, 0);
    assert_null(text);
}

static void shipped_machines_are_valid(void **state)
{
    static const char *const names[] = {"server-2-avx512", "server-64-avx512", "desktop-8-avx2",
                                        "laptop-4-scalar"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1024], *text;
        size_t size;
        brim_machine m;
        snprintf(path, sizeof path, "%s/data/hw/%s.json", BRIM_SOURCE_DIR, names[i]);
        assert_int_equal(brim__read_file(&text, &size, ctx, path, 1 << 20), BRIM_OK);
        if (brim_machine_parse(&m, ctx, text, size) != BRIM_OK)
            fail_msg("%s: %s", path, brim_last_message());
        brim__free(ctx, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_is_read_value_by_value),
        cmocka_unit_test(malformed_machines_are_refused_each_with_its_id),
        cmocka_unit_test(messages_name_the_place),
        cmocka_unit_test(empty_and_oversized_and_deep_texts_are_refused),
        cmocka_unit_test(a_probe_gives_the_machine_its_values),
#if defined(__x86_64__)
        cmocka_unit_test(a_machine_counts_on_no_more_than_its_instruction_set),
#endif
        cmocka_unit_test(what_is_written_can_be_read_again),
        cmocka_unit_test(the_machine_found_here_can_be_written),
        cmocka_unit_test(shipped_machines_are_valid),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
