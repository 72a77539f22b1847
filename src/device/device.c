/* device.c: the checks that all back ends share, and copies between devices. */
#include "device/device.h"

#include <string.h>
#include <strings.h>

#include "base/text.h"

enum { BOUNCE_BYTES = 1 << 20, INDEX_MAX = 1023 };

static const char *const kind_names[] = {
#define KIND_NAME(name, text) text,
    BRIM_DEVICE_LIST(KIND_NAME)
#undef KIND_NAME
};

static const brim__device_ops *const kind_ops[] = {
    [BRIM_DEVICE_CPU] = &brim__device_cpu,
    [BRIM_DEVICE_DUMMY] = &brim__device_dummy,
    [BRIM_DEVICE_CUDA] = &brim__device_cuda,
};
_Static_assert(sizeof kind_ops / sizeof *kind_ops == BRIM_DEVICE_COUNT, "a back end for each kind");

const char *brim_device_kind_name(brim_device_kind kind)
{
    return (unsigned)kind < BRIM_DEVICE_COUNT ? kind_names[kind] : "unknown";
}

bool brim_device_kind_parse(brim_device_kind *out, const char *name)
{
    for (unsigned i = 0; i < BRIM_DEVICE_COUNT; i++) {
        if (strcasecmp(name, kind_names[i]) == 0) {
            *out = (brim_device_kind)i;
            return true;
        }
    }
    return false;
}

brim_status brim_device_parse(brim_device_kind *out_kind, uint32_t *out_index, const char *text)
{
    *out_kind = BRIM_DEVICE_CPU;
    *out_index = 0;
    char name[16];
    size_t size = strcspn(text, ":");
    uint64_t index = 0;
    bool well = size < sizeof name;
    if (well) {
        memcpy(name, text, size);
        name[size] = 0;
        well = brim_device_kind_parse(out_kind, name);
    }
    if (well && text[size] == ':')
        well = brim__parse_u64(&index, text + size + 1, 0, INDEX_MAX);
    BRIM_FAIL_IF(!well, USAGE, "device.name",
                 "'%.40s' is no device: cpu, cuda (the first GPU) or cuda:N", text);
    *out_index = (uint32_t)index;
    return BRIM_OK;
}

/* The devices of this kind; the kind is checked. */
static brim_status count_of(uint32_t *out, brim_device_kind kind)
{
    *out = 0;
    BRIM_FAIL_IF((unsigned)kind >= BRIM_DEVICE_COUNT, USAGE, "device.kind",
                 "%u is no kind of device", (unsigned)kind);
    if (kind_ops[kind]->count)
        return kind_ops[kind]->count(out);
    *out = 1;
    return BRIM_OK;
}

uint32_t brim_device_count(brim_device_kind kind)
{
    uint32_t count;
    return count_of(&count, kind) == BRIM_OK ? count : 0;
}

brim_status brim_device_usable(brim_device_kind kind, uint32_t index)
{
    uint32_t count;
    BRIM_TRY(count_of(&count, kind));
    BRIM_FAIL_IF(
        index >= count, NOT_FOUND, kind == BRIM_DEVICE_CUDA ? "cuda.index" : "device.index",
        "there is no device %s:%u: this machine has %u of them, counted from 0%s", kind_names[kind],
        index, count, kind == BRIM_DEVICE_CUDA ? " (CUDA_VISIBLE_DEVICES may hide some)" : "");
    return BRIM_OK;
}

brim_status brim_device_open_index(brim_device **out, brim_context *ctx, brim_device_kind kind,
                                   uint32_t index)
{
    *out = NULL;
    BRIM_TRY(brim_device_usable(kind, index));
    brim_device *device;
    BRIM_CALLOC(ctx, device, 1);
    device->ctx = ctx;
    device->kind = kind;
    device->index = index;
    device->ops = kind_ops[kind];
    brim_status status = device->ops->open ? device->ops->open(device) : BRIM_OK;
    if (status != BRIM_OK) {
        brim__free(ctx, device);
        return status;
    }
    *out = device;
    return BRIM_OK;
}

brim_status brim_device_open(brim_device **out, brim_context *ctx, brim_device_kind kind)
{
    return brim_device_open_index(out, ctx, kind, 0);
}

void brim_device_close(brim_device *device)
{
    if (!device)
        return;
    if (device->memory_count)
        brim__log(device->ctx, BRIM_LOG_ERROR, "device %s closed with %llu blocks still in use",
                  kind_names[device->kind], (unsigned long long)device->memory_count);
    if (device->ops->close)
        device->ops->close(device);
    brim__free(device->ctx, device);
}

brim_status brim_device_query(brim_device_info *out, brim_device *device)
{
    memset(out, 0, sizeof *out);
    out->kind = device->kind;
    out->index = device->index;
    out->host_accessible = device->ops->host != NULL;
    return device->ops->query(device, out);
}

brim_status brim_device_alloc(brim_device_memory **out, brim_device *device, size_t size)
{
    *out = NULL;
    BRIM_FAIL_IF(size == 0, USAGE, "device.size", "memory of a device has 1 byte or more");
    brim_device_memory *memory;
    BRIM_CALLOC(device->ctx, memory, 1);
    memory->home = device;
    memory->size = size;
    brim_status status = device->ops->alloc(device, memory);
    if (status != BRIM_OK) {
        brim__free(device->ctx, memory);
        return status;
    }
    device->memory_count++;
    *out = memory;
    return BRIM_OK;
}

void brim_device_free(brim_device_memory *memory)
{
    if (!memory)
        return;
    brim_device *device = memory->home;
    device->ops->free(device, memory);
    device->memory_count--;
    brim__free(device->ctx, memory);
}

size_t brim_device_memory_size(const brim_device_memory *memory)
{
    return memory->size;
}

brim_device *brim_device_memory_home(const brim_device_memory *memory)
{
    return memory->home;
}

void *brim_device_memory_host(brim_device_memory *memory)
{
    const brim__device_ops *ops = memory->home->ops;
    return ops->host ? ops->host(memory->home, memory) : NULL;
}

static brim_status check_range(const brim_device_memory *memory, size_t offset, size_t size,
                               const char *what)
{
    BRIM_FAIL_IF(offset > memory->size || size > memory->size - offset, USAGE, "device.range",
                 "%s: bytes %zu to %zu + %zu are past the end of memory of %zu bytes", what, offset,
                 offset, size, memory->size);
    return BRIM_OK;
}

brim_status brim_device_write(brim_device_memory *to, size_t offset, const void *from, size_t size)
{
    BRIM_TRY(check_range(to, offset, size, "write"));
    return size ? to->home->ops->write(to, offset, from, size) : BRIM_OK;
}

brim_status brim_device_read(void *to, const brim_device_memory *from, size_t offset, size_t size)
{
    BRIM_TRY(check_range(from, offset, size, "read"));
    return size ? from->home->ops->read(to, from, offset, size) : BRIM_OK;
}

/* From one device to another, piece by piece through a block of the host. */
static brim_status copy_across(brim_device_memory *to, size_t to_offset,
                               const brim_device_memory *from, size_t from_offset, size_t size)
{
    brim_context *ctx = to->home->ctx;
    size_t piece = size < BOUNCE_BYTES ? size : BOUNCE_BYTES;
    void *bounce;
    BRIM_ALLOC(ctx, bounce, piece);
    brim_status status = BRIM_OK;
    for (size_t done = 0; done < size && status == BRIM_OK; done += piece) {
        size_t now = size - done < piece ? size - done : piece;
        status = from->home->ops->read(bounce, from, from_offset + done, now);
        if (status == BRIM_OK)
            status = to->home->ops->write(to, to_offset + done, bounce, now);
    }
    brim__free(ctx, bounce);
    return status;
}

brim_status brim_device_copy(brim_device_memory *to, size_t to_offset,
                             const brim_device_memory *from, size_t from_offset, size_t size)
{
    BRIM_TRY(check_range(to, to_offset, size, "copy, destination"));
    BRIM_TRY(check_range(from, from_offset, size, "copy, source"));
    if (size == 0)
        return BRIM_OK;
    if (to->home == from->home)
        return to->home->ops->copy(to, to_offset, from, from_offset, size);
    return copy_across(to, to_offset, from, from_offset, size);
}
