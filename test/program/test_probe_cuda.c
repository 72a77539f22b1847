/* The probe of a GPU where there is none: it says so, and a driver that fails leaves nothing behind
 * (the driver is test/device/fake_libcuda.c, which runs no kernel). */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "brim/device.h"

static brim_context *ctx;
static brim_device_probed probed;

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

static void (*fake_reset)(void);
static uint64_t (*fake_leaks)(void);

/* The fake driver lies beside this program. */
static bool use_fake(void)
{
    char self[4000] = "", path[4096];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return false;
    *strrchr(self, '/') = 0;
    snprintf(path, sizeof path, "%s/fake_libcuda.so", self);
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        return false;
    void *reset = dlsym(library, "fake_cuda_reset"), *leaks = dlsym(library, "fake_cuda_leaks");
    memcpy(&fake_reset, &reset, sizeof reset);
    memcpy(&fake_leaks, &leaks, sizeof leaks);
    setenv("BRIM_LIBCUDA", path, 1);
    setenv("BRIM_LIBNVML", "/nonexistent", 1);
    return reset && leaks;
}

static void a_cpu_has_no_probe_of_a_gpu(void **state)
{
    brim_device *cpu;
    assert_int_equal(brim_device_open(&cpu, ctx, BRIM_DEVICE_CPU), BRIM_OK);
    assert_int_equal(brim_device_probe(&probed, cpu, NULL, NULL), BRIM_UNSUPPORTED);
    assert_string_equal(brim_last_id(), "device.probe");
    brim_device_close(cpu);
}

static brim_status open_and_probe(void)
{
    brim_device *gpu;
    brim_status status = brim_device_open(&gpu, ctx, BRIM_DEVICE_CUDA);
    if (status != BRIM_OK)
        return status;
    status = brim_device_probe(&probed, gpu, NULL, NULL);
    brim_device_close(gpu);
    return status;
}

/* Every third call, up to what the arithmetic needs: the rest is more of the same. In a build
 * without device code the probe ends before its first launch. */
static void a_probe_that_fails_leaves_nothing_behind(void **state)
{
    enum { CALLS = 400 };
    if (!use_fake())
        skip();
    for (int n = 1; n < CALLS; n += 3) {
        char settings[64];
        snprintf(settings, sizeof settings, "memory=8388608 fail_at=%d fail_code=%d", n,
                 n % 2 ? 1 : 719);
        setenv("FAKE_CUDA", settings, 1);
        fake_reset();
        assert_int_not_equal(open_and_probe(), BRIM_OK);
        assert_int_equal(fake_leaks(), 0);
        assert_int_equal(brim_context_bytes(ctx), 0);
    }
}

static void a_device_without_fitting_code_is_unsupported(void **state)
{
    if (!use_fake())
        skip();
    setenv("FAKE_CUDA", "memory=8388608 image=209", 1);
    assert_int_equal(open_and_probe(), BRIM_UNSUPPORTED);
    assert_string_equal(brim_last_id(), "cuda.image");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cpu_has_no_probe_of_a_gpu),
        cmocka_unit_test(a_probe_that_fails_leaves_nothing_behind),
        cmocka_unit_test(a_device_without_fitting_code_is_unsupported),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
