/* device_dummy.c: a device for tests. Its memory is the host's, but nobody gets a pointer to it,
 * and new memory is filled with a pattern, so that a forgotten copy shows. */
#include <stdio.h>
#include <string.h>

#include "device/device.h"

enum { DUMMY_LANES = 4, FRESH_BYTE = 0xDB };
static const uint64_t dummy_memory_bytes = UINT64_C(1) << 30;

/* Counts a call; fails it when it is the one that was chosen. */
static brim_status enter(brim_device *device, const char *what)
{
    device->call_count++;
    BRIM_FAIL_IF(device->call_count == device->fail_at, SYSTEM, "device.dummy",
                 "call %llu of the dummy device (%s) fails, as it was told to",
                 (unsigned long long)device->call_count, what);
    return BRIM_OK;
}

static brim_status dummy_query(brim_device *device, brim_device_info *out)
{
    BRIM_TRY(enter(device, "query"));
    snprintf(out->name, sizeof out->name, "dummy");
    out->lane_count_max = DUMMY_LANES;
    out->memory_bytes = dummy_memory_bytes;
    return BRIM_OK;
}

static brim_status dummy_alloc(brim_device *device, brim_device_memory *memory)
{
    BRIM_TRY(enter(device, "alloc"));
    BRIM_ALLOC(device->ctx, memory->handle, memory->size);
    memset(memory->handle, FRESH_BYTE, memory->size);
    return BRIM_OK;
}

static void dummy_free(brim_device *device, brim_device_memory *memory)
{
    enter(device, "free");
    brim__free(device->ctx, memory->handle);
}

static brim_status dummy_write(brim_device_memory *to, size_t offset, const void *from, size_t size)
{
    BRIM_TRY(enter(to->home, "write"));
    memcpy((char *)to->handle + offset, from, size);
    return BRIM_OK;
}

static brim_status dummy_read(void *to, const brim_device_memory *from, size_t offset, size_t size)
{
    BRIM_TRY(enter(from->home, "read"));
    memcpy(to, (const char *)from->handle + offset, size);
    return BRIM_OK;
}

static brim_status dummy_copy(brim_device_memory *to, size_t to_offset,
                              const brim_device_memory *from, size_t from_offset, size_t size)
{
    BRIM_TRY(enter(to->home, "copy"));
    memmove((char *)to->handle + to_offset, (const char *)from->handle + from_offset, size);
    return BRIM_OK;
}

const brim__device_ops brim__device_dummy = {
    .query = dummy_query,
    .alloc = dummy_alloc,
    .free = dummy_free,
    .write = dummy_write,
    .read = dummy_read,
    .copy = dummy_copy,
};

uint64_t brim_device_dummy_calls(const brim_device *device)
{
    return device->kind == BRIM_DEVICE_DUMMY ? device->call_count : 0;
}

brim_status brim_device_dummy_fail_at(brim_device *device, uint64_t n)
{
    BRIM_FAIL_IF(device->kind != BRIM_DEVICE_DUMMY, USAGE, "device.kind",
                 "only the dummy device can be told to fail");
    device->fail_at = n ? device->call_count + n : 0;
    return BRIM_OK;
}
