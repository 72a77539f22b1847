/* Devices: memory, copies, and the dummy that fails when told to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/memory.h"
#include "base/thread.h"
#include "brim/device.h"

enum { BIG = 3 * (1 << 20) + 5 }; /* several pieces of a copy through the host */

static brim_context *ctx;
static brim_device *cpu, *dummy;

static int create(void **state)
{
    brim_context_create(&ctx, NULL);
    brim_device_open(&cpu, ctx, BRIM_DEVICE_CPU);
    return brim_device_open(&dummy, ctx, BRIM_DEVICE_DUMMY);
}

static int destroy(void **state)
{
    brim_device_close(cpu);
    brim_device_close(dummy);
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
    return 0;
}

static brim_device_memory *take(brim_device *device, size_t size)
{
    brim_device_memory *memory;
    assert_int_equal(brim_device_alloc(&memory, device, size), BRIM_OK);
    return memory;
}

static void assert_fails(brim_status status, brim_status wanted, const char *id)
{
    assert_int_equal(status, wanted);
    assert_string_equal(brim_last_id(), id);
}

static void every_kind_has_a_name_that_finds_it(void **state)
{
    for (unsigned i = 0; i < BRIM_DEVICE_COUNT; i++) {
        brim_device_kind kind;
        assert_true(brim_device_kind_parse(&kind, brim_device_kind_name((brim_device_kind)i)));
        assert_int_equal(kind, i);
    }
    brim_device_kind kind;
    assert_false(brim_device_kind_parse(&kind, "abacus"));
    brim_device *none;
    assert_fails(brim_device_open(&none, ctx, (brim_device_kind)99), BRIM_USAGE, "device.kind");
    assert_null(none);
}

static void cpu_has_a_lane_for_each_cpu_and_memory_that_the_host_sees(void **state)
{
    brim_device_info info;
    assert_int_equal(brim_device_query(&info, cpu), BRIM_OK);
    assert_int_equal(info.kind, BRIM_DEVICE_CPU);
    assert_int_equal(info.lane_count_max, brim__cpu_count());
    assert_true(info.memory_bytes > 1 << 20);
    assert_true(info.host_accessible);
    brim_device_memory *memory = take(cpu, 100);
    assert_int_equal(brim_device_memory_size(memory), 100);
    assert_ptr_equal(brim_device_memory_home(memory), cpu);
    char *bytes = brim_device_memory_host(memory);
    assert_int_equal((uintptr_t)bytes % 64, 0);
    assert_int_equal(brim_device_write(memory, 40, "hello", 5), BRIM_OK);
    assert_memory_equal(bytes + 40, "hello", 5);
    brim_device_free(memory);
}

static void dummy_memory_is_out_of_the_hosts_reach(void **state)
{
    brim_device_info info;
    assert_int_equal(brim_device_query(&info, dummy), BRIM_OK);
    assert_false(info.host_accessible);
    brim_device_memory *memory = take(dummy, 10);
    assert_null(brim_device_memory_host(memory));
    char text[6] = {0};
    assert_int_equal(brim_device_write(memory, 5, "hello", 5), BRIM_OK);
    assert_int_equal(brim_device_copy(memory, 4, memory, 5, 5), BRIM_OK); /* they overlap */
    assert_int_equal(brim_device_read(text, memory, 4, 5), BRIM_OK);
    assert_string_equal(text, "hello");
    brim_device_free(memory);
}

static void copies_between_devices_keep_every_byte(void **state)
{
    brim_device_memory *a = take(cpu, BIG), *b = take(dummy, BIG + 7), *c = take(cpu, BIG);
    unsigned char *from = brim_device_memory_host(a), *to = brim_device_memory_host(c);
    for (size_t i = 0; i < BIG; i++)
        from[i] = (unsigned char)(i * 2654435761u >> 24);
    assert_int_equal(brim_device_copy(b, 7, a, 0, BIG), BRIM_OK);
    assert_int_equal(brim_device_copy(c, 0, b, 7, BIG), BRIM_OK);
    assert_memory_equal(from, to, BIG);
    brim_device_free(a), brim_device_free(b), brim_device_free(c);
}

static void ranges_past_the_end_are_refused(void **state)
{
    brim_device *const devices[] = {cpu, dummy};
    for (int i = 0; i < 2; i++) {
        brim_device_memory *memory = take(devices[i], 8);
        char byte[16] = {0};
        assert_fails(brim_device_write(memory, 4, byte, 5), BRIM_USAGE, "device.range");
        assert_fails(brim_device_read(byte, memory, 9, 0), BRIM_USAGE, "device.range");
        assert_fails(brim_device_read(byte, memory, 1, SIZE_MAX), BRIM_USAGE, "device.range");
        assert_fails(brim_device_copy(memory, 0, memory, 8, 1), BRIM_USAGE, "device.range");
        assert_int_equal(brim_device_write(memory, 8, byte, 0), BRIM_OK);
        brim_device_free(memory);
        assert_fails(brim_device_alloc(&memory, devices[i], 0), BRIM_USAGE, "device.size");
        assert_null(memory);
    }
}

static void dummy_counts_calls_and_fails_the_one_it_is_told(void **state)
{
    uint64_t before = brim_device_dummy_calls(dummy);
    brim_device_memory *memory = take(dummy, 8), *none;
    assert_int_equal(brim_device_dummy_calls(dummy), before + 1);
    char bytes[8] = {0};
    assert_int_equal(brim_device_dummy_fail_at(dummy, 2), BRIM_OK);
    assert_int_equal(brim_device_write(memory, 0, bytes, 8), BRIM_OK);
    assert_fails(brim_device_read(bytes, memory, 0, 8), BRIM_SYSTEM, "device.dummy");
    assert_int_equal(brim_device_read(bytes, memory, 0, 8), BRIM_OK);
    brim_device_dummy_fail_at(dummy, 1);
    assert_fails(brim_device_alloc(&none, dummy, 8), BRIM_SYSTEM, "device.dummy");
    assert_null(none);
    brim_device_dummy_fail_at(dummy, 1);
    brim_device_free(memory);
    assert_fails(brim_device_dummy_fail_at(cpu, 1), BRIM_USAGE, "device.kind");
    assert_int_equal(brim_device_dummy_calls(cpu), 0);
}

static void a_failed_copy_between_devices_leaks_nothing(void **state)
{
    brim_device_memory *a = take(cpu, BIG), *b = take(dummy, BIG);
    size_t bytes = brim_context_bytes(ctx);
    brim_device_dummy_fail_at(dummy, 2); /* the second piece */
    assert_fails(brim_device_copy(b, 0, a, 0, BIG), BRIM_SYSTEM, "device.dummy");
    assert_int_equal(brim_context_bytes(ctx), bytes);
    brim__memory_fail_at(ctx, 1);
    assert_int_equal(brim_device_copy(b, 0, a, 0, BIG), BRIM_NO_MEMORY);
    brim__memory_fail_at(ctx, 0);
    brim_device_free(a), brim_device_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_a_name_that_finds_it),
        cmocka_unit_test(cpu_has_a_lane_for_each_cpu_and_memory_that_the_host_sees),
        cmocka_unit_test(dummy_memory_is_out_of_the_hosts_reach),
        cmocka_unit_test(copies_between_devices_keep_every_byte),
        cmocka_unit_test(ranges_past_the_end_are_refused),
        cmocka_unit_test(dummy_counts_calls_and_fails_the_one_it_is_told),
        cmocka_unit_test(a_failed_copy_between_devices_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
