/* device_cpu.c: the host as a device. */
#include <string.h>

#include "base/thread.h"
#include "device/device.h"
#include "hw/hw.h"

static brim_status cpu_query(brim_device *device, brim_device_info *out)
{
    brim__cpu_name(out->name, sizeof out->name);
    out->lane_count_max = brim__cpu_count();
    out->memory_bytes = brim__hw_memory_bytes();
    return BRIM_OK;
}

static brim_status cpu_alloc(brim_device *device, brim_device_memory *memory)
{
    memory->handle = brim__alloc(device->ctx, memory->size);
    return memory->handle ? BRIM_OK : BRIM_NO_MEMORY;
}

static void cpu_free(brim_device *device, brim_device_memory *memory)
{
    brim__free(device->ctx, memory->handle);
}

static void *cpu_host(brim_device *device, brim_device_memory *memory)
{
    return memory->handle;
}

static brim_status cpu_write(brim_device_memory *to, size_t offset, const void *from, size_t size)
{
    memmove((char *)to->handle + offset, from, size);
    return BRIM_OK;
}

static brim_status cpu_read(void *to, const brim_device_memory *from, size_t offset, size_t size)
{
    memmove(to, (const char *)from->handle + offset, size);
    return BRIM_OK;
}

static brim_status cpu_copy(brim_device_memory *to, size_t to_offset,
                            const brim_device_memory *from, size_t from_offset, size_t size)
{
    return cpu_write(to, to_offset, (const char *)from->handle + from_offset, size);
}

const brim__device_ops brim__device_cpu = {
    .query = cpu_query,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .host = cpu_host,
    .write = cpu_write,
    .read = cpu_read,
    .copy = cpu_copy,
};
