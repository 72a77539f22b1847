/* device.h: what a back end of devices implements.
 *
 * device.c checks every argument and range first, so that a back end sees legal ones only. A back
 * end whose devices know streams, events, modules or peers adds their functions to the table when
 * it is written; what a back end lacks is NULL there, and device.c says so to the caller. */
#ifndef BRIM_DEVICE_DEVICE_H
#define BRIM_DEVICE_DEVICE_H

#include "base/memory.h"
#include "brim/device.h"

typedef struct brim__device_ops {
    /* Devices of this kind; NULL: one, always there. Fails when the driver is missing. */
    brim_status (*count)(uint32_t *out);
    /* Sets device->state; the index is legal. NULL: there is nothing to do. */
    brim_status (*open)(brim_device *device);
    void (*close)(brim_device *device);
    brim_status (*query)(brim_device *device, brim_device_info *out);
    /* Sets memory->handle, which only the back end looks into. */
    brim_status (*alloc)(brim_device *device, brim_device_memory *memory);
    void (*free)(brim_device *device, brim_device_memory *memory);
    void *(*host)(brim_device *device, brim_device_memory *memory); /* NULL: never */
    brim_status (*write)(brim_device_memory *to, size_t offset, const void *from, size_t size);
    brim_status (*read)(void *to, const brim_device_memory *from, size_t offset, size_t size);
    /* Within one device; between two, device.c goes through the host. */
    brim_status (*copy)(brim_device_memory *to, size_t to_offset, const brim_device_memory *from,
                        size_t from_offset, size_t size);
} brim__device_ops;

struct brim_device {
    brim_context *ctx;
    const brim__device_ops *ops;
    brim_device_kind kind;
    uint32_t index;
    void *state;           /* of the back end */
    uint64_t memory_count; /* blocks not freed yet */
    uint64_t call_count;   /* of the dummy */
    uint64_t fail_at;      /* the dummy's call that fails, by call_count; 0: none */
};

struct brim_device_memory {
    brim_device *home;
    size_t size;
    void *handle;
};

extern const brim__device_ops brim__device_cpu, brim__device_dummy, brim__device_cuda;

#endif
