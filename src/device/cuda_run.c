/* cuda_run.c: modules, launches, work on streams, and events of a CUDA device. */
#include <stdio.h>
#include <string.h>

#include "device/cuda_state.h"

struct brim__cuda_module {
    brim_device *device;
    brim__cu_module handle;
};

struct brim__cuda_event {
    brim_device *device;
    brim__cu_event handle;
};

enum { JIT_LOG_BYTES = 1024, SHARED_BYTES_DEFAULT = 48 * 1024 };

/* ---- modules ---- */

/* Results that mean: this image has no code for this device, or none that this driver can use. */
static bool is_image_result(brim__cu_result result)
{
    switch (result) {
    case BRIM__CU_INVALID_IMAGE:
    case BRIM__CU_NO_BINARY_FOR_GPU:
    case BRIM__CU_INVALID_PTX:
    case BRIM__CU_JIT_COMPILER_NOT_FOUND:
    case BRIM__CU_UNSUPPORTED_PTX_VERSION:
    case BRIM__CU_JIT_COMPILATION_DISABLED:
    case BRIM__CU_INVALID_SOURCE:
        return true;
    default:
        return false;
    }
}

static brim_status fail_image(const brim_device *device, const char *name, brim__cu_result result,
                              char *log)
{
    const brim__cuda_state *state = device->state;
    char text[256];
    brim__cuda_error_text(text, sizeof text, state->api, result);
    for (char *at = log; *at; at++) /* one line */
        *at = *at == '\n' || *at == '\r' ? ' ' : *at;
    BRIM_FAIL(UNSUPPORTED, "cuda.image",
              "the device code '%s' does not run on cuda:%u (%s, compute capability %d.%d, CUDA "
              "%d.%d): %s%s%.300s; build Brim with that architecture, or update the driver",
              name, device->index, state->name, state->facts.capability / 10,
              state->facts.capability % 10, state->facts.driver_version / 1000,
              state->facts.driver_version % 1000 / 10, text, *log ? ": " : "", log);
}

brim_status brim__cuda_module_load(brim__cuda_module **out, brim_device *device, const void *image,
                                   const char *name)
{
    *out = NULL;
    BRIM_TRY(brim__cuda_enter(device));
    brim__cuda_module *module;
    BRIM_CALLOC(device->ctx, module, 1);
    module->device = device;
    char log[JIT_LOG_BYTES] = "";
    int options[] = {BRIM__CU_JIT_ERROR_LOG_BUFFER, BRIM__CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    /* The driver reads the size as an integer that lies in the pointer. */
    void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
    brim__cu_result result = brim__cuda_state_of(device)->api->module_load_data_ex(
        &module->handle, image, 2, options, values);
    if (result == BRIM__CU_SUCCESS) {
        *out = module;
        return BRIM_OK;
    }
    brim__free(device->ctx, module);
    log[sizeof log - 1] = 0;
    if (is_image_result(result))
        return fail_image(device, name, result, log);
    return brim__cuda_check(device, result, brim__cuda_symbol_names.module_load_data_ex);
}

void brim__cuda_module_unload(brim__cuda_module *module)
{
    if (!module)
        return;
    brim_device *device = module->device;
    brim__cuda_state *state = device->state;
    if (brim__cuda_enter_to_free(device))
        state->api->module_unload(module->handle);
    state->ready_function = NULL;
    brim__free(device->ctx, module);
}

brim_status brim__cuda_module_function(brim__cuda_function *out, brim__cuda_module *module,
                                       const char *name)
{
    *out = NULL;
    brim_device *device = module->device;
    BRIM_TRY(brim__cuda_enter(device));
    brim__cu_function function = NULL;
    brim__cu_result result =
        brim__cuda_state_of(device)->api->module_get_function(&function, module->handle, name);
    BRIM_FAIL_IF(result == BRIM__CU_NOT_FOUND, UNSUPPORTED, "cuda.image",
                 "the device code has no function '%s': it belongs to another version of Brim",
                 name);
    BRIM_TRY(brim__cuda_check(device, result, brim__cuda_symbol_names.module_get_function));
    *out = function;
    return BRIM_OK;
}

/* ---- launches ---- */

/* Raises the limit of dynamic shared memory, and remembers the function. */
static brim_status make_ready(brim_device *device, const brim__cuda_launch *launch)
{
    brim__cuda_state *state = device->state;
    if (state->ready_function == launch->function &&
        state->ready_shared_bytes >= launch->shared_bytes)
        return BRIM_OK;
    uint32_t most = state->facts.shared_bytes_max;
    BRIM_FAIL_IF(launch->shared_bytes > most, UNSUPPORTED, "cuda.shared",
                 "device cuda:%u (%s) gives a block at most %u bytes of shared memory, not %u",
                 device->index, state->name, most, launch->shared_bytes);
    state->ready_function = NULL;
    if (launch->shared_bytes > SHARED_BYTES_DEFAULT)
        BRIM_TRY(BRIM__CU(device, func_set_attribute, launch->function,
                          BRIM__CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)launch->shared_bytes));
    size_t offset = 0, size = SIZE_MAX; /* unknown to drivers before 12.4 */
    brim__cu_result result = BRIM__CU_UNKNOWN;
    if (state->api->func_get_param_info)
        result = state->api->func_get_param_info(launch->function, 0, &offset, &size);
    if (result == BRIM__CU_INVALID_VALUE) /* it has no parameters */
        size = 0;
    else if (result != BRIM__CU_SUCCESS)
        size = SIZE_MAX;
    state->ready_function = launch->function;
    state->ready_shared_bytes = launch->shared_bytes;
    state->ready_parameter_bytes = size;
    return BRIM_OK;
}

brim_status brim__cuda_blocks_max(uint32_t *out, brim_device *device,
                                  const brim__cuda_launch *launch)
{
    *out = 0;
    BRIM_TRY(brim__cuda_enter(device));
    BRIM_TRY(make_ready(device, launch));
    int blocks = 0;
    BRIM_TRY(BRIM__CU(device, occupancy_max_blocks, &blocks, launch->function, (int)launch->threads,
                      launch->shared_bytes));
    *out = (blocks > 0 ? (uint32_t)blocks : 0) * brim__cuda_facts_of(device)->sm_count;
    return BRIM_OK;
}

brim_status brim__cuda_launch_kernel(brim_device *device, const brim__cuda_launch *launch,
                                     const void *parameters, size_t size)
{
    brim__cuda_state *state = device->state;
    BRIM_TRY(brim__cuda_enter(device));
    BRIM_TRY(make_ready(device, launch));
    /* The driver would read as many bytes as the kernel wants, whatever there is. */
    size_t wanted = state->ready_parameter_bytes;
    BRIM_FAIL_IF(
        wanted != SIZE_MAX && wanted != size, UNSUPPORTED, "cuda.image",
        "a kernel takes %zu bytes of parameters, not %zu: the device code belongs to another "
        "version of Brim",
        wanted, size);
    void *list[] = {(void *)(uintptr_t)parameters};
    void **arguments = size ? list : NULL;
    brim__cu_stream stream = state->streams[BRIM__CUDA_PROGRAMS];
    if (launch->cooperative)
        return BRIM__CU(device, launch_cooperative_kernel, launch->function, launch->blocks, 1, 1,
                        launch->threads, 1, 1, launch->shared_bytes, stream, arguments);
    return BRIM__CU(device, launch_kernel, launch->function, launch->blocks, 1, 1, launch->threads,
                    1, 1, launch->shared_bytes, stream, arguments, NULL);
}

/* ---- work on streams ---- */

brim_status brim__cuda_write_async(brim_device *device, brim__cuda_stream stream,
                                   brim__cuda_address to, const void *from, size_t size)
{
    if (size == 0)
        return BRIM_OK;
    BRIM_TRY(brim__cuda_enter(device));
    return BRIM__CU(device, memcpy_htod_async, to, from, size,
                    brim__cuda_state_of(device)->streams[stream]);
}

brim_status brim__cuda_read_async(void *to, brim_device *device, brim__cuda_stream stream,
                                  brim__cuda_address from, size_t size)
{
    if (size == 0)
        return BRIM_OK;
    BRIM_TRY(brim__cuda_enter(device));
    return BRIM__CU(device, memcpy_dtoh_async, to, from, size,
                    brim__cuda_state_of(device)->streams[stream]);
}

brim_status brim__cuda_fill_async(brim_device *device, brim__cuda_stream stream,
                                  brim__cuda_address to, uint32_t word, size_t size)
{
    if (size == 0)
        return BRIM_OK;
    BRIM_TRY(brim__cuda_enter(device));
    return BRIM__CU(device, memset_d32_async, to, word, size / sizeof word,
                    brim__cuda_state_of(device)->streams[stream]);
}

brim_status brim__cuda_synchronize(brim_device *device, brim__cuda_stream stream)
{
    BRIM_TRY(brim__cuda_enter(device));
    return BRIM__CU(device, stream_synchronize, brim__cuda_state_of(device)->streams[stream]);
}

brim_status brim__cuda_finished(bool *out, brim_device *device, brim__cuda_stream stream)
{
    *out = false;
    brim__cuda_state *state = device->state;
    BRIM_TRY(brim__cuda_enter(device));
    brim__cu_result result = state->api->stream_query(state->streams[stream]);
    if (result == BRIM__CU_NOT_READY)
        return BRIM_OK;
    BRIM_TRY(brim__cuda_check(device, result, brim__cuda_symbol_names.stream_query));
    *out = true;
    return BRIM_OK;
}

/* ---- events ---- */

brim_status brim__cuda_event_create(brim__cuda_event **out, brim_device *device)
{
    *out = NULL;
    BRIM_TRY(brim__cuda_enter(device));
    brim__cuda_event *event;
    BRIM_CALLOC(device->ctx, event, 1);
    event->device = device;
    brim_status status = BRIM__CU(device, event_create, &event->handle, BRIM__CU_EVENT_DEFAULT);
    if (status != BRIM_OK) {
        brim__free(device->ctx, event);
        return status;
    }
    *out = event;
    return BRIM_OK;
}

void brim__cuda_event_destroy(brim__cuda_event *event)
{
    if (!event)
        return;
    brim_device *device = event->device;
    if (brim__cuda_enter_to_free(device))
        brim__cuda_state_of(device)->api->event_destroy(event->handle);
    brim__free(device->ctx, event);
}

brim_status brim__cuda_event_record(brim__cuda_event *event, brim__cuda_stream stream)
{
    brim_device *device = event->device;
    BRIM_TRY(brim__cuda_enter(device));
    return BRIM__CU(device, event_record, event->handle,
                    brim__cuda_state_of(device)->streams[stream]);
}

brim_status brim__cuda_event_elapsed(float *out_ms, brim__cuda_event *from, brim__cuda_event *to)
{
    *out_ms = 0;
    brim_device *device = from->device;
    BRIM_TRY(brim__cuda_enter(device));
    return BRIM__CU(device, event_elapsed_time, out_ms, from->handle, to->handle);
}
