/* The CUDA back end against a driver that behaves as the test wants it to (fake_libcuda.c): every
 * error has its id, no failing call leaks or crashes, and a lost device leaves the rest alone. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/memory.h"
#include "device/cuda.h"
#include "device/cuda_driver.h"

enum { MIB = 1 << 20, CALLS_MAX = 2000 };

static brim_context *ctx;
static char fake_path[4096];
static void (*fake_reset)(void);
static uint64_t (*fake_calls)(void), (*fake_leaks)(void), (*fake_misuses)(void), (*fake_live)(void);

/* ---- the fake driver ---- */

static void find_symbol(void *out, void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "%s has no %s\n", fake_path, name);
        exit(1);
    }
    memcpy(out, &symbol, sizeof symbol);
}

/* It lies beside this program. */
static void find_fake(void)
{
    char self[4000] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        exit(1);
    *strrchr(self, '/') = 0;
    snprintf(fake_path, sizeof fake_path, "%s/fake_libcuda.so", self);
    void *library = dlopen(fake_path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s: build the target fake_libcuda\n", dlerror());
        exit(1);
    }
    find_symbol(&fake_reset, library, "fake_cuda_reset");
    find_symbol(&fake_calls, library, "fake_cuda_calls");
    find_symbol(&fake_leaks, library, "fake_cuda_leaks");
    find_symbol(&fake_misuses, library, "fake_cuda_misuses");
    find_symbol(&fake_live, library, "fake_cuda_live");
}

static void behave(const char *settings)
{
    setenv("FAKE_CUDA", settings, 1);
    fake_reset();
}

static int setup(void **state)
{
    brim__cuda_driver_forget();
    setenv("BRIM_LIBCUDA", fake_path, 1);
    behave("");
    return brim_context_create(&ctx, NULL);
}

static int teardown(void **state)
{
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
    assert_int_equal(fake_live(), 0);
    return 0;
}

/* Nothing was lost on the way, nothing was asked of the driver that it had to refuse. */
static void assert_clean(void)
{
    assert_int_equal(fake_live(), 0);
    assert_int_equal(fake_leaks(), 0);
    assert_int_equal(fake_misuses(), 0);
}

static brim_device *open_cuda(uint32_t index)
{
    brim_device *device;
    assert_int_equal(brim_device_open_index(&device, ctx, BRIM_DEVICE_CUDA, index), BRIM_OK);
    return device;
}

static void assert_fails(brim_status status, brim_status wanted, const char *id)
{
    assert_string_equal(brim_last_id(), id);
    assert_int_equal(status, wanted);
}

static void assert_says(const char *part)
{
    if (!strstr(brim_last_message(), part))
        fail_msg("'%s' is not in: %s", part, brim_last_message());
}

static void assert_open_fails(brim_status wanted, const char *id)
{
    brim_device *device;
    assert_fails(brim_device_open(&device, ctx, BRIM_DEVICE_CUDA), wanted, id);
    assert_null(device);
    assert_fails(brim_device_usable(BRIM_DEVICE_CUDA, 0), wanted, id);
    assert_int_equal(brim_device_count(BRIM_DEVICE_CUDA), 0);
}

/* ---- names ---- */

static void device_names_have_a_kind_and_an_index(void **state)
{
    static const struct {
        const char *text;
        brim_device_kind kind;
        uint32_t index;
    } good[] = {{"cpu", BRIM_DEVICE_CPU, 0},
                {"cuda", BRIM_DEVICE_CUDA, 0},
                {"CUDA:1", BRIM_DEVICE_CUDA, 1},
                {"cuda:12", BRIM_DEVICE_CUDA, 12}};
    static const char *const bad[] = {"",
                                      "gpu",
                                      ":1",
                                      "cuda:",
                                      "cuda:-1",
                                      "cuda:x",
                                      "cuda:1 ",
                                      "cuda1",
                                      "cuda:99999999999",
                                      "cuda:4294967296",
                                      "a long name of no device"};
    brim_device_kind kind;
    uint32_t index;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(brim_device_parse(&kind, &index, good[i].text), BRIM_OK);
        assert_int_equal(kind, good[i].kind);
        assert_int_equal(index, good[i].index);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(brim_device_parse(&kind, &index, bad[i]), BRIM_USAGE, "device.name");
}

/* ---- opening ---- */

static void a_machine_without_a_driver_is_told_so(void **state)
{
    setenv("BRIM_LIBCUDA", "/nonexistent", 1);
    assert_open_fails(BRIM_NOT_FOUND, "cuda.absent");
    assert_says("/nonexistent");
}

static void a_driver_that_does_not_start_is_named_with_its_error(void **state)
{
    behave("init=803");
    assert_open_fails(BRIM_SYSTEM, "cuda.init");
    assert_says("CUDA_ERROR_803");
}

static void a_driver_that_lacks_a_function_is_refused_by_its_name(void **state)
{
    behave("without=cuLaunchKernel");
    assert_open_fails(BRIM_SYSTEM, "cuda.init");
    assert_says("cuLaunchKernel");
}

static void a_driver_before_12_is_too_old(void **state)
{
    behave("version=11080");
    assert_open_fails(BRIM_UNSUPPORTED, "cuda.driver_old");
    assert_says("11.8");
    assert_says("12.0");
    behave("version=12000");
    brim_device_close(open_cuda(0));
    assert_clean();
}

static void an_index_that_is_not_there_says_how_many_there_are(void **state)
{
    behave("devices=0");
    assert_open_fails(BRIM_NOT_FOUND, "cuda.index");
    assert_says("0 devices");
    behave("devices=2");
    brim_device *device;
    assert_fails(brim_device_open_index(&device, ctx, BRIM_DEVICE_CUDA, 2), BRIM_NOT_FOUND,
                 "cuda.index");
    assert_says("has 2");
    assert_fails(brim_device_open_index(&device, ctx, BRIM_DEVICE_CPU, 1), BRIM_NOT_FOUND,
                 "device.index");
    assert_int_equal(brim_device_count(BRIM_DEVICE_CUDA), 2);
    assert_int_equal(brim_device_usable(BRIM_DEVICE_CUDA, 1), BRIM_OK);
    assert_int_equal(brim_device_count(BRIM_DEVICE_CPU), 1);
    brim_device_close(open_cuda(1));
    assert_clean();
}

static void a_driver_that_comes_up_later_is_found(void **state)
{
    behave("init=999");
    assert_open_fails(BRIM_SYSTEM, "cuda.init");
    behave("");
    brim_device_close(open_cuda(0));
    assert_clean();
}

static void info_says_what_the_device_is(void **state)
{
    behave("capability=89 memory=1073741824");
    brim_device *device = open_cuda(1);
    brim_device_info info;
    assert_int_equal(brim_device_query(&info, device), BRIM_OK);
    assert_int_equal(info.kind, BRIM_DEVICE_CUDA);
    assert_int_equal(info.index, 1);
    assert_string_equal(info.name, "Fake GPU 1");
    assert_int_equal(info.capability, 89);
    assert_int_equal(info.lane_count_max, 132);
    assert_int_equal(info.memory_bytes, 1 << 30);
    assert_int_equal(info.memory_free_bytes, 1 << 30);
    assert_int_equal(info.clock_mhz_max, 1980);
    assert_false(info.host_accessible);
    assert_string_equal(info.driver, "CUDA 13.0, driver 123.45.67");
    assert_int_equal(brim__cuda_facts_of(device)->shared_bytes_max, 227 * 1024);
    brim_device_close(device);
    assert_clean();
}

/* ---- memory ---- */

static void fill_pattern(unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 24);
}

static void copies_keep_every_byte_also_where_ranges_overlap(void **state)
{
    enum { SIZE = 40 * MIB + 13 }; /* several pieces of every way to copy */
    brim_device *device = open_cuda(0), *cpu;
    assert_int_equal(brim_device_open(&cpu, ctx, BRIM_DEVICE_CPU), BRIM_OK);
    brim_device_memory *memory, *first, *second;
    assert_int_equal(brim_device_alloc(&memory, device, SIZE), BRIM_OK);
    assert_int_equal(brim_device_alloc(&first, cpu, SIZE), BRIM_OK);
    assert_int_equal(brim_device_alloc(&second, cpu, SIZE), BRIM_OK);
    assert_null(brim_device_memory_host(memory));
    unsigned char *wanted = brim_device_memory_host(first), *got = brim_device_memory_host(second);
    fill_pattern(wanted, SIZE);
    static const size_t moves[][3] = {
        {0, 1000, SIZE - 1000},  {1000, 0, SIZE - 1000}, {7, 7, 100}, {0, 1, 10}, {1, 0, 10},
        {0, 20 * MIB, 20 * MIB}, {20 * MIB, 0, MIB}};
    assert_int_equal(brim_device_write(memory, 0, wanted, SIZE), BRIM_OK);
    assert_int_equal(brim_device_write(memory, 5, "small", 5), BRIM_OK);
    memcpy(wanted + 5, "small", 5);
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        const size_t *m = moves[i];
        assert_int_equal(brim_device_copy(memory, m[0], memory, m[1], m[2]), BRIM_OK);
        memmove(wanted + m[0], wanted + m[1], m[2]);
    }
    assert_int_equal(brim_device_read(got, memory, 0, SIZE), BRIM_OK);
    assert_memory_equal(got, wanted, SIZE);
    memset(got, 0, SIZE);
    assert_int_equal(brim_device_copy(second, 0, memory, 0, SIZE), BRIM_OK);
    assert_memory_equal(got, wanted, SIZE);
    brim_device_free(memory), brim_device_free(first), brim_device_free(second);
    brim_device_close(device), brim_device_close(cpu);
    assert_clean();
}

static void out_of_memory_says_what_was_asked_for_and_what_is_free(void **state)
{
    behave("memory=104857600"); /* 100 MiB */
    brim_device *device = open_cuda(0);
    brim_device_memory *memory, *more;
    assert_int_equal(brim_device_alloc(&memory, device, 60 * MIB), BRIM_OK);
    assert_fails(brim_device_alloc(&more, device, 50 * MIB), BRIM_NO_MEMORY, "memory.device");
    assert_null(more);
    assert_says("50.0 MiB");
    assert_says("40.0 of 100.0 MiB");
    brim_device_free(memory);
    assert_int_equal(brim_device_alloc(&more, device, 50 * MIB), BRIM_OK);
    brim_device_free(more);
    brim_device_close(device);
    assert_clean();
}

static void a_device_may_be_opened_twice(void **state)
{
    brim_device *a = open_cuda(0), *b = open_cuda(0);
    brim_device_memory *of_a, *of_b;
    char text[8] = "";
    assert_int_equal(brim_device_alloc(&of_a, a, 8), BRIM_OK);
    assert_int_equal(brim_device_alloc(&of_b, b, 8), BRIM_OK);
    assert_int_equal(brim_device_write(of_a, 0, "twice!!", 8), BRIM_OK);
    assert_int_equal(brim_device_copy(of_b, 0, of_a, 0, 8), BRIM_OK);
    brim_device_free(of_a);
    brim_device_close(a);
    assert_int_equal(brim_device_read(text, of_b, 0, 8), BRIM_OK);
    assert_string_equal(text, "twice!!");
    brim_device_free(of_b);
    brim_device_close(b);
    assert_clean();
}

static void mapped_memory_is_zero_and_seen_by_both(void **state)
{
    brim_device *device = open_cuda(0);
    void *host;
    brim__cuda_address address;
    static const char zeros[4096];
    char got[4096];
    assert_int_equal(brim__cuda_mapped_alloc(&host, &address, device, sizeof zeros), BRIM_OK);
    assert_memory_equal(host, zeros, sizeof zeros);
    assert_int_equal(brim__cuda_fill_async(device, BRIM__CUDA_PROGRAMS, address, 0x01020304, 4000),
                     BRIM_OK);
    memcpy((char *)host + 4000, "hello", 5);
    assert_int_equal(brim__cuda_read_now(got, device, address, sizeof got), BRIM_OK);
    assert_memory_equal(got, host, sizeof got);
    assert_int_equal(got[3999], 1);
    brim__cuda_mapped_free(device, host);
    brim__cuda_mapped_free(device, NULL);
    brim_device_close(device);
    assert_clean();
}

/* ---- modules, launches, streams ---- */

static void an_image_for_another_architecture_is_unsupported(void **state)
{
    static const int codes[] = {200, 209, 218, 221, 222};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        brim_device *device = open_cuda(0);
        char settings[32];
        snprintf(settings, sizeof settings, "image=%d", codes[i]);
        behave(settings);
        brim__cuda_module *module;
        assert_fails(brim__cuda_module_load(&module, device, "", "resident_x"), BRIM_UNSUPPORTED,
                     "cuda.image");
        assert_null(module);
        assert_says("resident_x");
        assert_says("capability 9.0");
        assert_says("line 1 line 2");
        brim_device_close(device);
        assert_clean();
    }
}

static void a_function_that_is_missing_is_named(void **state)
{
    brim_device *device = open_cuda(0);
    brim__cuda_module *module;
    brim__cuda_function function;
    assert_int_equal(brim__cuda_module_load(&module, device, "", "image"), BRIM_OK);
    assert_fails(brim__cuda_module_function(&function, module, "missing_one"), BRIM_UNSUPPORTED,
                 "cuda.image");
    assert_says("missing_one");
    brim__cuda_module_unload(module);
    brim__cuda_module_unload(NULL);
    brim_device_close(device);
    assert_clean();
}

static void a_launch_with_parameters_of_another_size_never_reaches_the_driver(void **state)
{
    behave("params=24");
    brim_device *device = open_cuda(0);
    brim__cuda_module *module;
    brim__cuda_launch launch = {.blocks = 1, .threads = 32};
    assert_int_equal(brim__cuda_module_load(&module, device, "", "image"), BRIM_OK);
    assert_int_equal(brim__cuda_module_function(&launch.function, module, "kernel"), BRIM_OK);
    char bytes[32] = {0};
    assert_int_equal(brim__cuda_launch_kernel(device, &launch, bytes, 24), BRIM_OK);
    assert_fails(brim__cuda_launch_kernel(device, &launch, bytes, 16), BRIM_UNSUPPORTED,
                 "cuda.image");
    launch.shared_bytes = 228 * 1024;
    assert_fails(brim__cuda_launch_kernel(device, &launch, bytes, 24), BRIM_UNSUPPORTED,
                 "cuda.shared");
    launch.shared_bytes = 227 * 1024;
    launch.cooperative = true;
    uint32_t blocks;
    assert_int_equal(brim__cuda_blocks_max(&blocks, device, &launch), BRIM_OK);
    assert_int_equal(blocks, 132);
    launch.blocks = blocks;
    assert_int_equal(brim__cuda_launch_kernel(device, &launch, bytes, 24), BRIM_OK);
    launch.blocks = blocks + 1;
    assert_fails(brim__cuda_launch_kernel(device, &launch, bytes, 24), BRIM_SYSTEM, "cuda.call");
    assert_says("cuLaunchCooperativeKernel");
    brim__cuda_module_unload(module);
    brim_device_close(device);
    assert_clean();
}

static void a_stream_that_works_is_not_finished(void **state)
{
    brim_device *device = open_cuda(0);
    bool finished = false;
    assert_int_equal(brim__cuda_finished(&finished, device, BRIM__CUDA_PROGRAMS), BRIM_OK);
    assert_true(finished);
    behave("busy=1");
    assert_int_equal(brim__cuda_finished(&finished, device, BRIM__CUDA_PROGRAMS), BRIM_OK);
    assert_false(finished);
    brim_device_close(device);
    assert_clean();
}

/* ---- failures ---- */

static brim_status use_memory(brim_device *device, brim_device_memory *memory)
{
    brim_device_info info;
    char bytes[64] = {0};
    BRIM_TRY(brim_device_query(&info, device));
    BRIM_TRY(brim_device_write(memory, 0, bytes, sizeof bytes));
    BRIM_TRY(brim_device_copy(memory, 8, memory, 0, 16));
    BRIM_TRY(brim_device_copy(memory, 32, memory, 0, 16));
    return brim_device_read(bytes, memory, 0, sizeof bytes);
}

static brim_status use_module(brim_device *device, brim__cuda_module *module, brim__cuda_event *a,
                              brim__cuda_event *b)
{
    brim__cuda_launch launch = {.blocks = 2, .threads = 64, .shared_bytes = 100 * 1024};
    uint64_t parameter = 0;
    uint32_t blocks;
    float ms;
    bool finished;
    BRIM_TRY(brim__cuda_module_function(&launch.function, module, "kernel"));
    BRIM_TRY(brim__cuda_blocks_max(&blocks, device, &launch));
    BRIM_TRY(brim__cuda_event_record(a, BRIM__CUDA_PROGRAMS));
    BRIM_TRY(brim__cuda_launch_kernel(device, &launch, &parameter, sizeof parameter));
    launch.cooperative = true;
    BRIM_TRY(brim__cuda_launch_kernel(device, &launch, &parameter, sizeof parameter));
    BRIM_TRY(brim__cuda_event_record(b, BRIM__CUDA_PROGRAMS));
    BRIM_TRY(brim__cuda_finished(&finished, device, BRIM__CUDA_PROGRAMS));
    BRIM_TRY(brim__cuda_synchronize(device, BRIM__CUDA_PROGRAMS));
    return brim__cuda_event_elapsed(&ms, a, b);
}

/* Everything that the back end can do, once; gives up at the first failure. */
static brim_status use_everything(void)
{
    brim_device *device = NULL;
    brim_device_memory *memory = NULL;
    brim__cuda_module *module = NULL;
    brim__cuda_event *a = NULL, *b = NULL;
    void *host = NULL;
    brim__cuda_address address;
    brim_status status = brim_device_open(&device, ctx, BRIM_DEVICE_CUDA);
    if (status != BRIM_OK)
        return status;
    BRIM_TRY_GOTO(brim_device_alloc(&memory, device, 64), end);
    BRIM_TRY_GOTO(use_memory(device, memory), end);
    BRIM_TRY_GOTO(brim__cuda_mapped_alloc(&host, &address, device, 64), end);
    BRIM_TRY_GOTO(brim__cuda_write_async(device, BRIM__CUDA_COPIES, address, "1234", 4), end);
    BRIM_TRY_GOTO(brim__cuda_fill_async(device, BRIM__CUDA_COPIES, address, 1, 64), end);
    BRIM_TRY_GOTO(brim__cuda_event_create(&a, device), end);
    BRIM_TRY_GOTO(brim__cuda_event_create(&b, device), end);
    BRIM_TRY_GOTO(brim__cuda_module_load(&module, device, "", "image"), end);
    status = use_module(device, module, a, b);
end:
    brim__cuda_event_destroy(a);
    brim__cuda_event_destroy(b);
    brim__cuda_module_unload(module);
    if (host)
        brim__cuda_mapped_free(device, host);
    brim_device_free(memory);
    brim_device_close(device);
    return status;
}

static void any_driver_call_may_fail_and_nothing_is_left_behind(void **state)
{
    static const struct {
        int code;
        const char *id;
    } cases[] = {{1, "cuda.call"}, {2, "memory.device"}, {700, "cuda.lost"}, {719, "cuda.lost"}};
    assert_int_equal(use_everything(), BRIM_OK);
    assert_clean();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t n = 0, failed = 0, done = false;
        while (!done && n < CALLS_MAX) {
            char settings[64];
            snprintf(settings, sizeof settings, "fail_at=%d fail_code=%d", (int)++n, cases[i].code);
            behave(settings);
            brim_status status = use_everything();
            done = fake_calls() < n;
            assert_int_equal(brim_context_bytes(ctx), 0);
            assert_int_equal(fake_live(), 0);
            assert_int_equal(fake_leaks(), 0);
            if (status == BRIM_OK)
                continue; /* a call that frees, or none any more */
            failed++;
            /* The count of devices is asked for before a device is open. */
            assert_string_equal(brim_last_id(), n == 1 ? "cuda.call" : cases[i].id);
        }
        assert_true(done);
        assert_true(failed > 50);
    }
}

static void any_allocation_may_fail_and_nothing_is_left_behind(void **state)
{
    for (uint64_t n = 1; n <= 8; n++) {
        brim__memory_fail_at(ctx, n);
        brim_status status = use_everything();
        brim__memory_fail_at(ctx, 0);
        assert_true(status == BRIM_OK || status == BRIM_NO_MEMORY);
        assert_int_equal(brim_context_bytes(ctx), 0);
        assert_clean();
    }
}

static void errors_that_kill_a_context_are_told_from_others(void **state)
{
    /* By the CUDA driver API's reference: those of which it says that "the context cannot be used"
     * or that the process must be ended, and those without a device behind the context. */
    static const int killing[] = {46,  214, 220, 700, 702, 709, 710,
                                  714, 715, 716, 717, 718, 719, 802};
    static const int others[] = {0,   1,   2,   100, 101, 200, 201, 209,
                                 218, 400, 500, 600, 701, 720, 801};
    for (size_t i = 0; i < sizeof killing / sizeof *killing; i++)
        assert_true(brim__cuda_result_kills(killing[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(brim__cuda_result_kills(others[i]));
}

static void after_a_loss_everything_can_be_destroyed_and_the_cpu_works(void **state)
{
    brim_device *device = open_cuda(0), *cpu;
    brim_device_memory *memory, *none, *here;
    brim__cuda_module *module;
    brim__cuda_event *event;
    void *host;
    brim__cuda_address address;
    assert_int_equal(brim_device_alloc(&memory, device, 100), BRIM_OK);
    assert_int_equal(brim__cuda_mapped_alloc(&host, &address, device, 100), BRIM_OK);
    assert_int_equal(brim__cuda_module_load(&module, device, "", "image"), BRIM_OK);
    assert_int_equal(brim__cuda_event_create(&event, device), BRIM_OK);
    behave("fail_at=2 fail_code=719");
    assert_fails(brim__cuda_synchronize(device, BRIM__CUDA_PROGRAMS), BRIM_SYSTEM, "cuda.lost");
    assert_says("cuStreamSynchronize");
    assert_says("CUDA_ERROR_719");
    uint64_t calls = fake_calls();
    bool finished;
    char byte = 0;
    assert_fails(brim_device_alloc(&none, device, 8), BRIM_SYSTEM, "cuda.lost");
    assert_fails(brim_device_write(memory, 0, &byte, 1), BRIM_SYSTEM, "cuda.lost");
    assert_fails(brim_device_read(&byte, memory, 0, 1), BRIM_SYSTEM, "cuda.lost");
    assert_fails(brim__cuda_finished(&finished, device, BRIM__CUDA_PROGRAMS), BRIM_SYSTEM,
                 "cuda.lost");
    assert_fails(brim__cuda_event_record(event, BRIM__CUDA_PROGRAMS), BRIM_SYSTEM, "cuda.lost");
    assert_says("CUDA_ERROR_719"); /* the first cause */
    *(char *)host = 1;             /* the host's memory is still there */
    brim_device_free(memory);
    brim__cuda_mapped_free(device, host);
    brim__cuda_module_unload(module);
    brim__cuda_event_destroy(event);
    assert_int_equal(fake_calls(), calls); /* a dead driver is left in peace */
    brim_device_close(device);

    assert_int_equal(brim_device_open(&cpu, ctx, BRIM_DEVICE_CPU), BRIM_OK);
    assert_int_equal(brim_device_alloc(&here, cpu, 8), BRIM_OK);
    assert_int_equal(brim_device_write(here, 0, "still ok", 8), BRIM_OK);
    brim_device_free(here);
    brim_device_close(cpu);
    brim_device_close(open_cuda(0)); /* the driver gives a new context when the old one is gone */
}

static void a_lost_device_takes_its_second_opening_along_but_no_other_device(void **state)
{
    brim_device *a = open_cuda(0), *b = open_cuda(0), *c = open_cuda(1);
    brim_device_memory *of_b, *of_c;
    assert_int_equal(brim_device_alloc(&of_b, b, 64), BRIM_OK);
    assert_int_equal(brim_device_alloc(&of_c, c, 64), BRIM_OK);
    behave("fail_at=2 fail_code=700");
    assert_fails(brim__cuda_synchronize(a, BRIM__CUDA_PROGRAMS), BRIM_SYSTEM, "cuda.lost");
    assert_fails(use_memory(b, of_b), BRIM_SYSTEM, "cuda.lost");
    assert_int_equal(use_memory(c, of_c), BRIM_OK);
    brim_device_free(of_b), brim_device_free(of_c);
    brim_device_close(a), brim_device_close(b), brim_device_close(c);
}

int main(void)
{
    find_fake();
    setenv("BRIM_LIBNVML", fake_path, 1);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(device_names_have_a_kind_and_an_index),
        TEST(a_machine_without_a_driver_is_told_so),
        TEST(a_driver_that_does_not_start_is_named_with_its_error),
        TEST(a_driver_that_lacks_a_function_is_refused_by_its_name),
        TEST(a_driver_before_12_is_too_old),
        TEST(an_index_that_is_not_there_says_how_many_there_are),
        TEST(a_driver_that_comes_up_later_is_found),
        TEST(info_says_what_the_device_is),
        TEST(copies_keep_every_byte_also_where_ranges_overlap),
        TEST(out_of_memory_says_what_was_asked_for_and_what_is_free),
        TEST(a_device_may_be_opened_twice),
        TEST(mapped_memory_is_zero_and_seen_by_both),
        TEST(an_image_for_another_architecture_is_unsupported),
        TEST(a_function_that_is_missing_is_named),
        TEST(a_launch_with_parameters_of_another_size_never_reaches_the_driver),
        TEST(a_stream_that_works_is_not_finished),
        TEST(any_driver_call_may_fail_and_nothing_is_left_behind),
        TEST(any_allocation_may_fail_and_nothing_is_left_behind),
        TEST(errors_that_kill_a_context_are_told_from_others),
        TEST(after_a_loss_everything_can_be_destroyed_and_the_cpu_works),
        TEST(a_lost_device_takes_its_second_opening_along_but_no_other_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
