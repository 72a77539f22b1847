/* brim/device.h: where programs run and their memory lives.
 *
 * A device owns memory; memory has a home device and moves by copies. Memory of some devices can
 * be touched by the host too (the CPU's), that of others only be copied from and to. A device and
 * its memory are used by one thread at a time; copies are done when the call returns.
 */
#ifndef BRIM_DEVICE_H
#define BRIM_DEVICE_H

#include "brim/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* name, text. CPU: the host itself. DUMMY: for tests; its memory can't be touched by the host, it
 * counts the calls that reach it and fails one of them when told to. */
#define BRIM_DEVICE_LIST(X)                                                                        \
    X(CPU, "cpu")                                                                                  \
    X(DUMMY, "dummy")

typedef enum brim_device_kind {
#define BRIM_DEVICE_ENUM(name, text) BRIM_DEVICE_##name,
    BRIM_DEVICE_LIST(BRIM_DEVICE_ENUM)
#undef BRIM_DEVICE_ENUM
        BRIM_DEVICE_COUNT
} brim_device_kind;

BRIM_API const char *brim_device_kind_name(brim_device_kind kind);
/* The kind with this name; false when there is none. */
BRIM_API bool brim_device_kind_parse(brim_device_kind *out, const char *name);

typedef struct brim_device brim_device;
typedef struct brim_device_memory brim_device_memory;

typedef struct brim_device_info {
    brim_device_kind kind;
    char name[96];
    uint32_t lane_count_max; /* lanes that execute at the same time */
    uint64_t memory_bytes;   /* in all, whoever uses it; 0: unknown */
    bool host_accessible;    /* brim_device_memory_host() gives a pointer */
} brim_device_info;

/* Errors: USAGE, id "device.kind"; NO_MEMORY. */
BRIM_API brim_status brim_device_open(brim_device **out, brim_context *ctx, brim_device_kind kind);
/* Its memory must have been freed before: what is left is a bug of the caller, which is logged.
 * NULL is allowed. */
BRIM_API void brim_device_close(brim_device *device);
BRIM_API brim_status brim_device_query(brim_device_info *out, brim_device *device);

/* Memory of `size` bytes, 1 or more, aligned to 64; its content is undefined. Errors: USAGE, id
 * "device.size"; NO_MEMORY. */
BRIM_API brim_status brim_device_alloc(brim_device_memory **out, brim_device *device, size_t size);
/* NULL is allowed. */
BRIM_API void brim_device_free(brim_device_memory *memory);
BRIM_API size_t brim_device_memory_size(const brim_device_memory *memory);
BRIM_API brim_device *brim_device_memory_home(const brim_device_memory *memory);
/* The bytes themselves; NULL when the host can't touch them. */
BRIM_API void *brim_device_memory_host(brim_device_memory *memory);

/* From the host, to the host, and from memory to memory of the same or of another device. The
 * ranges of one memory may overlap. Errors: USAGE, id "device.range" (past the end: what, where).
 */
BRIM_API brim_status brim_device_write(brim_device_memory *to, size_t offset, const void *from,
                                       size_t size);
BRIM_API brim_status brim_device_read(void *to, const brim_device_memory *from, size_t offset,
                                      size_t size);
BRIM_API brim_status brim_device_copy(brim_device_memory *to, size_t to_offset,
                                      const brim_device_memory *from, size_t from_offset,
                                      size_t size);

/* The dummy's calls (query, alloc, free, write, read, copy) so far; 0 for other devices. */
BRIM_API uint64_t brim_device_dummy_calls(const brim_device *device);
/* Makes the dummy's n-th call from now (1: the next) fail with SYSTEM, id "device.dummy"; 0: none.
 * A free that fails still frees. Errors: USAGE for another device. */
BRIM_API brim_status brim_device_dummy_fail_at(brim_device *device, uint64_t n);

#ifdef __cplusplus
}
#endif
#endif
