/* cuda_driver.c: opens libcuda and finds the functions of cuda_api.h in it. */
#include "device/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *handle; /* of the opened library */
    brim__cu_api api;
    int version;
    bool ready;
} driver; /* under the lock until it is ready, constant from then on */

static const char *library_name(void)
{
    const char *name = getenv("BRIM_LIBCUDA");
    return name && *name ? name : "libcuda.so.1";
}

static int major_of(int version)
{
    return version / 1000;
}

static int minor_of(int version)
{
    return version % 1000 / 10;
}

void brim__cuda_error_text(char *out, size_t size, const brim__cu_api *api, brim__cu_result result)
{
    const char *name = NULL, *text = NULL;
    if (api->get_error_name(result, &name) != BRIM__CU_SUCCESS || !name)
        name = NULL;
    if (api->get_error_string(result, &text) != BRIM__CU_SUCCESS || !text)
        text = "the driver has no words for it";
    if (name)
        snprintf(out, size, "%s: %s", name, text);
    else
        snprintf(out, size, "error %d: %s", result, text);
}

bool brim__cuda_result_kills(brim__cu_result result)
{
    switch (result) {
    case BRIM__CU_DEINITIALIZED:
    case BRIM__CU_DEVICE_UNAVAILABLE:
    case BRIM__CU_ECC_UNCORRECTABLE:
    case BRIM__CU_NVLINK_UNCORRECTABLE:
    case BRIM__CU_CONTAINED:
    case BRIM__CU_ILLEGAL_ADDRESS:
    case BRIM__CU_LAUNCH_TIMEOUT:
    case BRIM__CU_CONTEXT_IS_DESTROYED:
    case BRIM__CU_ASSERT:
    case BRIM__CU_HARDWARE_STACK_ERROR:
    case BRIM__CU_ILLEGAL_INSTRUCTION:
    case BRIM__CU_MISALIGNED_ADDRESS:
    case BRIM__CU_INVALID_ADDRESS_SPACE:
    case BRIM__CU_INVALID_PC:
    case BRIM__CU_LAUNCH_FAILED:
    case BRIM__CU_TENSOR_MEMORY_LEAK:
    case BRIM__CU_SYSTEM_NOT_READY:
    case BRIM__CU_MPS_CLIENT_TERMINATED:
    case BRIM__CU_UNKNOWN:
        return true;
    default:
        return false;
    }
}

static brim_status fail_old(const char *name, int version)
{
    if (version)
        BRIM_FAIL(
            UNSUPPORTED, "cuda.driver_old",
            "the NVIDIA driver speaks CUDA %d.%d, Brim needs %d.%d or newer: update the driver "
            "(%s)",
            major_of(version), minor_of(version), major_of(BRIM__CU_VERSION_MIN),
            minor_of(BRIM__CU_VERSION_MIN), name);
    BRIM_FAIL(UNSUPPORTED, "cuda.driver_old",
              "%s is older than CUDA %d.%d, which Brim needs: update the NVIDIA driver", name,
              major_of(BRIM__CU_VERSION_MIN), minor_of(BRIM__CU_VERSION_MIN));
}

/* cuDriverGetVersion works before cuInit and without cuGetProcAddress. */
static int version_by_name(void *library)
{
    brim__cu_result (*get_version)(int *);
    void *symbol = dlsym(library, "cuDriverGetVersion");
    int version = 0;
    memcpy(&get_version, &symbol, sizeof symbol);
    return symbol && get_version(&version) == BRIM__CU_SUCCESS ? version : 0;
}

static brim_status find_functions(brim__cu_api *api, void *library, const char *name)
{
    brim__cu_get_proc_address *get;
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    if (!symbol)
        return fail_old(name, version_by_name(library));
    memcpy(&get, &symbol, sizeof symbol);
    static const struct {
        const char *symbol;
        int version;
        bool required;
        size_t offset;
    } wanted[] = {
#define WANTED(field, text, version, required, parameters)                                         \
    {text, version, required, offsetof(brim__cu_api, field)},
        BRIM__CU_FUNCTION_LIST(WANTED)
#undef WANTED
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = NULL;
        int status = 0;
        brim__cu_result result = get(wanted[i].symbol, &found, wanted[i].version, 0, &status);
        if (result != BRIM__CU_SUCCESS)
            found = NULL;
        BRIM_FAIL_IF(!found && wanted[i].required, SYSTEM, "cuda.init",
                     "%s has no %s (version %d): it is damaged or no NVIDIA driver", name,
                     wanted[i].symbol, wanted[i].version);
        memcpy((char *)api + wanted[i].offset, &found, sizeof found);
    }
    return BRIM_OK;
}

static brim_status start(const char *name)
{
    BRIM_TRY(find_functions(&driver.api, driver.handle, name));
    int version = 0;
    char text[256];
    brim__cu_result result = driver.api.driver_get_version(&version);
    if (result == BRIM__CU_SUCCESS && version < BRIM__CU_VERSION_MIN)
        return fail_old(name, version);
    if (result == BRIM__CU_SUCCESS)
        result = driver.api.init(0);
    /* Without a device there is nothing to open, but nothing is wrong with the driver either. */
    if (result != BRIM__CU_SUCCESS && result != BRIM__CU_NO_DEVICE) {
        brim__cuda_error_text(text, sizeof text, &driver.api, result);
        BRIM_FAIL(SYSTEM, "cuda.init",
                  "the NVIDIA driver does not start (cuInit): %s; see what nvidia-smi says", text);
    }
    driver.version = version;
    driver.ready = result == BRIM__CU_SUCCESS;
    return BRIM_OK;
}

static brim_status open_locked(void)
{
    if (driver.ready)
        return BRIM_OK;
    const char *name = library_name();
    driver.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!driver.handle) {
        const char *why = dlerror();
        BRIM_FAIL(NOT_FOUND, "cuda.absent",
                  "there is no NVIDIA driver here (%s): install one, or use the CPU",
                  why ? why : name);
    }
    brim_status status = start(name);
    if (!driver.ready) {
        dlclose(driver.handle);
        driver.handle = NULL;
    }
    if (status == BRIM_OK && !driver.ready)
        BRIM_FAIL(NOT_FOUND, "cuda.index",
                  "the NVIDIA driver finds 0 devices: see what nvidia-smi says, and whether "
                  "CUDA_VISIBLE_DEVICES hides them");
    return status;
}

brim_status brim__cuda_driver_open(const brim__cu_api **out)
{
    pthread_mutex_lock(&lock);
    brim_status status = open_locked();
    pthread_mutex_unlock(&lock);
    *out = status == BRIM_OK ? &driver.api : NULL;
    return status;
}

void brim__cuda_driver_forget(void)
{
    pthread_mutex_lock(&lock);
    if (driver.handle)
        dlclose(driver.handle);
    memset(&driver, 0, sizeof driver);
    pthread_mutex_unlock(&lock);
}

int brim__cuda_driver_version(void)
{
    return driver.version;
}

brim_status brim__cuda_driver_device_count(uint32_t *out)
{
    *out = 0;
    const brim__cu_api *api;
    BRIM_TRY(brim__cuda_driver_open(&api));
    int count = 0;
    brim__cu_result result = api->device_get_count(&count);
    char text[256];
    if (result != BRIM__CU_SUCCESS) {
        brim__cuda_error_text(text, sizeof text, api, result);
        BRIM_FAIL(SYSTEM, "cuda.call", "cuDeviceGetCount: %s", text);
    }
    *out = count > 0 ? (uint32_t)count : 0;
    return BRIM_OK;
}
