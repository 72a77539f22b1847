/* device_cuda.c: an NVIDIA GPU as a device: opening it, its facts and its memory.
 *
 * Copies use a stream of their own and are done on return; they wait for no program that runs. What
 * the driver loads on first use (its own kernels for fills and copies) is used once at opening: a
 * first use later could wait for a program that never ends. */
#include <stdio.h>
#include <string.h>

#include "device/cuda_nvml.h"
#include "device/cuda_state.h"

const brim__cuda_symbols brim__cuda_symbol_names = {
#define SYMBOL_NAME(field, symbol, version, required, parameters) .field = (symbol),
    BRIM__CU_FUNCTION_LIST(SYMBOL_NAME)
#undef SYMBOL_NAME
};

enum { WARM_BYTES = 4096, OVERLAP_BYTES_MAX = 16 << 20 };
static const double mib = 1024 * 1024;

/* ---- checks ---- */

static brim_status fail_lost(brim_device *device)
{
    const brim__cuda_state *state = device->state;
    BRIM_FAIL(
        SYSTEM, "cuda.lost",
        "device cuda:%u (%s) is lost: %s; close what uses it, then open it again or start a new "
        "process; the CPU still works",
        device->index, state->name, state->lost_why);
}

brim_status brim__cuda_check(brim_device *device, brim__cu_result result, const char *call)
{
    if (result == BRIM__CU_SUCCESS)
        return BRIM_OK;
    brim__cuda_state *state = device->state;
    char text[256];
    brim__cuda_error_text(text, sizeof text, state->api, result);
    if (brim__cuda_result_kills(result)) {
        if (!state->lost)
            snprintf(state->lost_why, sizeof state->lost_why, "%s: %s", call, text);
        state->lost = true;
        return fail_lost(device);
    }
    BRIM_FAIL_IF(result == BRIM__CU_OUT_OF_MEMORY, NO_MEMORY, "memory.device",
                 "device cuda:%u (%s): %s: %s", device->index, state->name, call, text);
    BRIM_FAIL(SYSTEM, "cuda.call", "device cuda:%u (%s): %s: %s", device->index, state->name, call,
              text);
}

brim_status brim__cuda_enter(brim_device *device)
{
    brim__cuda_state *state = device->state;
    if (state->lost)
        return fail_lost(device);
    return BRIM__CU(device, ctx_set_current, state->context);
}

/* Says nothing when it fails: the message is that of the error that led here. */
bool brim__cuda_enter_to_free(brim_device *device)
{
    brim__cuda_state *state = device->state;
    return !state->lost && !brim__cuda_result_kills(state->api->ctx_set_current(state->context));
}

/* ---- opening ---- */

static brim_status find_facts(brim_device *device)
{
    brim__cuda_state *state = device->state;
    static const int wanted[] = {
        BRIM__CU_CAPABILITY_MAJOR,     BRIM__CU_CAPABILITY_MINOR,
        BRIM__CU_MULTIPROCESSOR_COUNT, BRIM__CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        BRIM__CU_L2_CACHE_SIZE,        BRIM__CU_CLOCK_RATE,
        BRIM__CU_COOPERATIVE_LAUNCH,
    };
    int values[sizeof wanted / sizeof *wanted] = {0};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        BRIM_TRY(BRIM__CU(device, device_get_attribute, &values[i], wanted[i], state->handle));
    size_t total = 0;
    BRIM_TRY(BRIM__CU(device, device_total_mem, &total, state->handle));
    BRIM_TRY(BRIM__CU(device, device_get_pci_bus_id, state->pci_bus_id,
                      (int)sizeof state->pci_bus_id, state->handle));
    state->facts = (brim__cuda_facts){
        .ordinal = (int)device->index,
        .capability = values[0] * 10 + values[1],
        .driver_version = brim__cuda_driver_version(),
        .sm_count = (uint32_t)values[2],
        .shared_bytes_max = (uint32_t)values[3],
        .l2_bytes = (uint64_t)values[4],
        .memory_bytes = total,
        .clock_khz_max = (uint32_t)values[5],
        .cooperative = values[6] != 0,
    };
    brim__nvml_driver_name(state->facts.driver_name, sizeof state->facts.driver_name);
    return BRIM_OK;
}

/* Uses every path of the driver once, small and large. */
static brim_status warm(brim_device *device)
{
    brim__cuda_state *state = device->state;
    brim__cu_address scratch;
    BRIM_TRY(BRIM__CU(device, mem_alloc, &scratch, WARM_BYTES));
    brim_status status = BRIM_OK;
    for (int i = 0; i < BRIM__CUDA_STREAM_COUNT && status == BRIM_OK; i++) {
        brim__cu_stream stream = state->streams[i];
        BRIM_TRY_GOTO(BRIM__CU(device, memset_d32_async, scratch, 0, WARM_BYTES / 4, stream), done);
        BRIM_TRY_GOTO(
            BRIM__CU(device, memcpy_htod_async, scratch, state->staging, WARM_BYTES, stream), done);
        BRIM_TRY_GOTO(BRIM__CU(device, memcpy_dtod_async, scratch + WARM_BYTES / 2, scratch,
                               WARM_BYTES / 2, stream),
                      done);
        BRIM_TRY_GOTO(
            BRIM__CU(device, memcpy_dtoh_async, state->staging, scratch, WARM_BYTES, stream), done);
        BRIM_TRY_GOTO(BRIM__CU(device, stream_synchronize, stream), done);
    }
done:
    if (brim__cuda_enter_to_free(device))
        state->api->mem_free(scratch);
    return status;
}

static brim_status open_state(brim_device *device)
{
    brim__cuda_state *state = device->state;
    BRIM_TRY(brim__cuda_driver_open(&state->api));
    snprintf(state->name, sizeof state->name, "NVIDIA GPU");
    BRIM_TRY(BRIM__CU(device, device_get, &state->handle, (int)device->index));
    BRIM_TRY(
        BRIM__CU(device, device_get_name, state->name, (int)sizeof state->name - 1, state->handle));
    BRIM_TRY(find_facts(device));
    brim__cu_context context = NULL;
    BRIM_TRY(BRIM__CU(device, primary_ctx_retain, &context, state->handle));
    state->context = context;
    BRIM_TRY(brim__cuda_enter(device));
    for (int i = 0; i < BRIM__CUDA_STREAM_COUNT; i++) {
        brim__cu_stream stream = NULL;
        BRIM_TRY(BRIM__CU(device, stream_create, &stream, BRIM__CU_STREAM_NON_BLOCKING));
        state->streams[i] = stream;
    }
    void *staging = NULL;
    BRIM_TRY(BRIM__CU(device, mem_host_alloc, &staging, BRIM__CUDA_STAGING_BYTES, 0));
    state->staging = staging;
    return warm(device);
}

static void cuda_close(brim_device *device)
{
    brim__cuda_state *state = device->state;
    if (state->mapped_count)
        brim__log(device->ctx, BRIM_LOG_ERROR,
                  "device cuda:%u closed with %u mapped blocks still in use", device->index,
                  state->mapped_count);
    if (state->context && brim__cuda_enter_to_free(device)) {
        if (state->staging)
            state->api->mem_free_host(state->staging);
        for (int i = 0; i < BRIM__CUDA_STREAM_COUNT; i++) {
            if (state->streams[i])
                state->api->stream_destroy(state->streams[i]);
        }
    }
    if (state->context) {
        state->api->ctx_set_current(NULL);
        state->api->primary_ctx_release(state->handle);
    }
    brim__free(device->ctx, state);
    device->state = NULL;
}

static brim_status cuda_open(brim_device *device)
{
    brim__cuda_state *state;
    BRIM_CALLOC(device->ctx, state, 1);
    device->state = state;
    brim_status status = open_state(device);
    if (status != BRIM_OK)
        cuda_close(device);
    return status;
}

/* ---- facts ---- */

const brim__cuda_facts *brim__cuda_facts_of(const brim_device *device)
{
    return &brim__cuda_state_of(device)->facts;
}

bool brim__cuda_sensors_of(brim__nvml_sample *out, const brim_device *device)
{
    return brim__nvml_sample_of(out, brim__cuda_state_of(device)->pci_bus_id);
}

brim_status brim__cuda_memory_free(uint64_t *out_free, uint64_t *out_total, brim_device *device)
{
    BRIM_TRY(brim__cuda_enter(device));
    size_t free_bytes = 0, total = 0;
    BRIM_TRY(BRIM__CU(device, mem_get_info, &free_bytes, &total));
    *out_free = free_bytes;
    *out_total = total;
    return BRIM_OK;
}

static brim_status cuda_query(brim_device *device, brim_device_info *out)
{
    const brim__cuda_state *state = device->state;
    const brim__cuda_facts *facts = &state->facts;
    uint64_t total;
    BRIM_TRY(brim__cuda_memory_free(&out->memory_free_bytes, &total, device));
    snprintf(out->name, sizeof out->name, "%s", state->name);
    out->lane_count_max = facts->sm_count;
    out->memory_bytes = facts->memory_bytes;
    out->capability = (uint32_t)facts->capability;
    out->clock_mhz_max = facts->clock_khz_max / 1000;
    snprintf(out->driver, sizeof out->driver, "CUDA %d.%d%s%s", facts->driver_version / 1000,
             facts->driver_version % 1000 / 10, facts->driver_name[0] ? ", driver " : "",
             facts->driver_name);
    return BRIM_OK;
}

/* ---- memory ---- */

static void *handle_of(brim__cuda_address address)
{
    return (void *)(uintptr_t)address;
}

brim__cuda_address brim__cuda_address_of(const brim_device_memory *memory)
{
    return (uintptr_t)memory->handle;
}

static brim_status cuda_alloc(brim_device *device, brim_device_memory *memory)
{
    brim__cuda_state *state = device->state;
    BRIM_TRY(brim__cuda_enter(device));
    brim__cu_address address = 0;
    brim__cu_result result = state->api->mem_alloc(&address, memory->size);
    size_t free_bytes = 0, total = 0;
    if (result == BRIM__CU_OUT_OF_MEMORY &&
        state->api->mem_get_info(&free_bytes, &total) == BRIM__CU_SUCCESS)
        BRIM_FAIL(
            NO_MEMORY, "memory.device",
            "device cuda:%u (%s) is out of memory: %.1f MiB were asked for, %.1f of %.1f MiB are "
            "free; take a smaller model or context, or end what else uses the device",
            device->index, state->name, (double)memory->size / mib, (double)free_bytes / mib,
            (double)total / mib);
    BRIM_TRY(brim__cuda_check(device, result, brim__cuda_symbol_names.mem_alloc));
    memory->handle = handle_of(address);
    return BRIM_OK;
}

static void cuda_free(brim_device *device, brim_device_memory *memory)
{
    if (brim__cuda_enter_to_free(device))
        brim__cuda_state_of(device)->api->mem_free(brim__cuda_address_of(memory));
}

brim_status brim__cuda_mapped_alloc(void **out_host, brim__cuda_address *out_device,
                                    brim_device *device, size_t size)
{
    *out_host = NULL;
    *out_device = 0;
    brim__cuda_state *state = device->state;
    BRIM_TRY(brim__cuda_enter(device));
    void *host = NULL;
    brim__cu_address address = 0;
    BRIM_TRY(BRIM__CU(device, mem_host_alloc, &host, size,
                      BRIM__CU_MEMHOSTALLOC_PORTABLE | BRIM__CU_MEMHOSTALLOC_DEVICEMAP));
    brim_status status = BRIM__CU(device, mem_host_get_device_pointer, &address, host, 0);
    if (status != BRIM_OK) {
        if (brim__cuda_enter_to_free(device))
            state->api->mem_free_host(host);
        return status;
    }
    memset(host, 0, size);
    state->mapped_count++;
    *out_host = host;
    *out_device = address;
    return BRIM_OK;
}

void brim__cuda_mapped_free(brim_device *device, void *host)
{
    if (!host)
        return;
    brim__cuda_state_of(device)->mapped_count--;
    if (brim__cuda_enter_to_free(device))
        brim__cuda_state_of(device)->api->mem_free_host(host);
}

/* ---- copies ---- */

static brim__cu_stream copy_stream(const brim_device *device)
{
    return brim__cuda_state_of(device)->streams[BRIM__CUDA_COPIES];
}

static brim_status wait_for_copies(brim_device *device)
{
    return BRIM__CU(device, stream_synchronize, copy_stream(device));
}

/* A large block goes from where it is: the driver stages it itself, two pieces at a time. */
static brim_status cuda_write(brim_device_memory *to, size_t offset, const void *from, size_t size)
{
    brim_device *device = to->home;
    BRIM_TRY(brim__cuda_enter(device));
    if (size <= BRIM__CUDA_STAGING_BYTES) {
        char *staging = brim__cuda_state_of(device)->staging;
        memcpy(staging, from, size);
        from = staging;
    }
    BRIM_TRY(BRIM__CU(device, memcpy_htod_async, brim__cuda_address_of(to) + offset, from, size,
                      copy_stream(device)));
    return wait_for_copies(device);
}

brim_status brim__cuda_read_now(void *to, brim_device *device, brim__cuda_address from, size_t size)
{
    BRIM_TRY(brim__cuda_enter(device));
    char *staging = brim__cuda_state_of(device)->staging;
    for (size_t done = 0; done < size; done += BRIM__CUDA_STAGING_BYTES) {
        size_t piece = size - done;
        if (piece > BRIM__CUDA_STAGING_BYTES)
            piece = BRIM__CUDA_STAGING_BYTES;
        BRIM_TRY(
            BRIM__CU(device, memcpy_dtoh_async, staging, from + done, piece, copy_stream(device)));
        BRIM_TRY(wait_for_copies(device));
        memcpy((char *)to + done, staging, piece);
    }
    return BRIM_OK;
}

static brim_status cuda_read(void *to, const brim_device_memory *from, size_t offset, size_t size)
{
    return brim__cuda_read_now(to, from->home, brim__cuda_address_of(from) + offset, size);
}

/* Ranges that overlap go through other memory, piece by piece, from the end that is read first. */
static brim_status copy_overlapping(brim_device *device, brim__cu_address to, brim__cu_address from,
                                    size_t size)
{
    brim__cuda_state *state = device->state;
    size_t piece = size < OVERLAP_BYTES_MAX ? size : OVERLAP_BYTES_MAX;
    brim__cu_address bounce = 0;
    BRIM_TRY(BRIM__CU(device, mem_alloc, &bounce, piece));
    brim_status status = BRIM_OK;
    for (size_t done = 0; done < size; done += piece) {
        size_t now = size - done < piece ? size - done : piece;
        size_t at = to < from ? done : size - done - now;
        BRIM_TRY_GOTO(
            BRIM__CU(device, memcpy_dtod_async, bounce, from + at, now, copy_stream(device)), end);
        BRIM_TRY_GOTO(
            BRIM__CU(device, memcpy_dtod_async, to + at, bounce, now, copy_stream(device)), end);
    }
    status = wait_for_copies(device);
end:
    if (brim__cuda_enter_to_free(device))
        state->api->mem_free(bounce);
    return status;
}

static brim_status cuda_copy(brim_device_memory *to, size_t to_offset,
                             const brim_device_memory *from, size_t from_offset, size_t size)
{
    brim_device *device = to->home;
    BRIM_TRY(brim__cuda_enter(device));
    brim__cu_address a = brim__cuda_address_of(to) + to_offset;
    brim__cu_address b = brim__cuda_address_of(from) + from_offset;
    if (a < b + size && b < a + size)
        return a == b ? BRIM_OK : copy_overlapping(device, a, b, size);
    BRIM_TRY(BRIM__CU(device, memcpy_dtod_async, a, b, size, copy_stream(device)));
    return wait_for_copies(device);
}

const brim__device_ops brim__device_cuda = {
    .count = brim__cuda_driver_device_count,
    .open = cuda_open,
    .close = cuda_close,
    .query = cuda_query,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .write = cuda_write,
    .read = cuda_read,
    .copy = cuda_copy,
};
