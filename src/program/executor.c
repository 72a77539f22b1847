/* executor.c: what is the same for every executor: creation, memory, and the run's frame. */
#include "program/executor.h"

#include "program/executor_cuda.h"

#include <stdio.h>
#include <string.h>

enum { DESC_FILLED = 0x45786563, OVERDUE_US = 20 };

brim_executor_desc brim_executor_desc_default(void)
{
    return (brim_executor_desc){
        .kind = BRIM_EXECUTOR_CPU,
        .isa = brim_isa_best(),
        .overdue_us = OVERDUE_US,
        .do_not_set = DESC_FILLED,
    };
}

static uint64_t buffer_bytes(const brim_buffer_desc *buffer)
{
    return brim__buffer_copy_bytes(buffer) * (buffer->parity ? 2 : 1);
}

/* Scratch that one instruction needs: see brim__execution_prepare. False on overflow. */
static bool instruction_scratch(size_t *out, const brim_program *p, const brim_instruction *in)
{
    const brim_op_desc *op = brim_op_get(p->ops, in->op);
    size_t total = 64;
    for (unsigned n = 0; n < in->access_count; n++) {
        const brim_access *a = &in->accesses[n];
        size_t bytes;
        if (a->kind == BRIM_READ && !(a->flags & BRIM_ACCESS_PACKET))
            continue;
        if (a->kind == BRIM_APPEND && op->append)
            continue;
        if (!brim__mul_size(&bytes, a->size, a->count) || !brim__add_size(&total, total, bytes) ||
            !brim__add_size(&total, total, 63))
            return false;
    }
    if (op->scratch_bytes && !brim__add_size(&total, total, op->scratch_bytes(p, in)))
        return false;
    *out = total;
    return true;
}

static brim_status find_scratch_bytes(brim_executor *x)
{
    const brim_program *p = x->program;
    for (size_t i = 0; i < p->instruction_count; i++) {
        size_t need;
        BRIM_FAIL_IF(!instruction_scratch(&need, p, &p->instructions[i]), LIMIT, "run.scratch",
                     "instruction %zu writes more than memory can hold", i);
        if (need > x->scratch_bytes)
            x->scratch_bytes = need;
    }
    return BRIM_OK;
}

static void fill_packets(brim_executor *x)
{
    const brim_program *p = x->program;
    for (size_t i = 0; i < p->instruction_count; i++)
        for (unsigned n = 0; n < p->instructions[i].access_count; n++) {
            const brim_access *a = &p->instructions[i].accesses[n];
            if (a->flags & BRIM_ACCESS_PACKET)
                memset(x->memory[a->buffer], 0xff, buffer_bytes(&p->buffers[a->buffer]));
        }
}

static brim_status allocate(brim_executor *x)
{
    const brim_program *p = x->program;
    brim_context *ctx = x->ctx;
    BRIM_CALLOC(ctx, x->memory, p->buffer_count + 1);
    BRIM_CALLOC(ctx, x->memory_owned, p->buffer_count + 1);
    BRIM_CALLOC(ctx, x->tiles, p->tensor_count + 1);
    BRIM_CALLOC(ctx, x->tiles_owned, p->tensor_count + 1);
    BRIM_CALLOC(ctx, x->state, p->instruction_count + 1);
    BRIM_CALLOC(ctx, x->counters, p->counter_count + 1);
    return find_scratch_bytes(x);
}

/* Memory for every buffer that nobody has bound by the time of the first run. */
static brim_status allocate_buffers(brim_executor *x)
{
    const brim_program *p = x->program;
    bool fresh = false;
    for (size_t i = 0; i < p->buffer_count; i++) {
        if (x->memory[i])
            continue;
        /* What a program writes before it reads is not cleared: an untouched page costs nothing. */
        bool cleared = p->buffers[i].role != BRIM_BUFFER_SCRATCH;
        uint64_t bytes = buffer_bytes(&p->buffers[i]);
        x->memory[i] = cleared ? brim__calloc(x->ctx, 1, bytes) : brim__alloc(x->ctx, bytes);
        if (!x->memory[i])
            return BRIM_NO_MEMORY;
        x->memory_owned[i] = fresh = true;
    }
    if (fresh)
        fill_packets(x);
    return BRIM_OK;
}

brim_status brim_executor_create(brim_executor **out, brim_context *ctx,
                                 const brim_program *program, const brim_executor_desc *desc)
{
    *out = NULL;
    brim_executor_desc filled = desc ? *desc : brim_executor_desc_default();
    BRIM_FAIL_IF(filled.do_not_set != DESC_FILLED, USAGE, "executor.desc",
                 "the executor description was not made by brim_executor_desc_default()");
    BRIM_FAIL_IF(program->step_end == BRIM_NONE, REFUSED, "check.step_end",
                 "the program has no step-end instruction, or several; run brim_program_check()");
    BRIM_FAIL_IF(!brim__kernels_get(filled.isa), UNSUPPORTED, "executor.isa",
                 "this CPU or build has no %s bodies", brim_isa_name(filled.isa));
    brim_executor *x;
    BRIM_CALLOC(ctx, x, 1);
    x->ctx = ctx;
    x->program = program;
    x->desc = filled;
    x->created_ns = brim__now_ns();
    brim_status status;
    if (filled.kind == BRIM_EXECUTOR_CUDA)
        status = brim__cuda_executor_create(x);
    else {
        status = allocate(x);
        if (status == BRIM_OK)
            status =
                filled.kind == BRIM_EXECUTOR_CPU ? brim__cpu_create(x) : brim__reference_create(x);
    }
    if (status != BRIM_OK) {
        brim_executor_destroy(x);
        return status;
    }
    *out = x;
    return BRIM_OK;
}

void brim_executor_destroy(brim_executor *x)
{
    if (!x)
        return;
    brim_executor_cancel(x);
    if (x->cpu)
        brim__cpu_destroy(x);
    if (x->reference)
        brim__reference_destroy(x);
    if (x->cuda)
        brim__cuda_executor_destroy(x);
    for (size_t i = 0; x->memory && x->memory_owned && i < x->program->buffer_count; i++)
        if (x->memory_owned[i])
            brim__free(x->ctx, x->memory[i]);
    for (size_t i = 0; x->tiles && x->tiles_owned && i < x->program->tensor_count; i++)
        if (x->tiles_owned[i])
            brim__free(x->ctx, (void *)x->tiles[i]);
    brim__free(x->ctx, x->memory);
    brim__free(x->ctx, x->memory_owned);
    brim__free(x->ctx, x->tiles);
    brim__free(x->ctx, x->tiles_owned);
    brim__free(x->ctx, (void *)x->state);
    brim__free(x->ctx, (void *)x->counters);
    brim__free(x->ctx, x);
}

brim_status brim_executor_bind_buffer(brim_executor *x, uint32_t buffer, void *memory)
{
    BRIM_FAIL_IF(atomic_load(&x->running), STATE, "executor.running", "the executor is running");
    BRIM_FAIL_IF(buffer >= x->program->buffer_count || !memory, USAGE, "executor.bind",
                 "buffer %u of %zu", buffer, x->program->buffer_count);
    if (x->cuda)
        return brim__cuda_executor_bind_host(x, buffer, memory);
    if (x->memory_owned[buffer])
        brim__free(x->ctx, x->memory[buffer]);
    x->memory[buffer] = memory;
    x->memory_owned[buffer] = false;
    return BRIM_OK;
}

brim_status brim_executor_bind_tensor(brim_executor *x, uint32_t tensor, const void *tiles)
{
    BRIM_FAIL_IF(atomic_load(&x->running), STATE, "executor.running", "the executor is running");
    BRIM_FAIL_IF(tensor >= x->program->tensor_count || !tiles, USAGE, "executor.bind",
                 "tensor %u of %zu", tensor, x->program->tensor_count);
    if (x->cuda)
        return brim__cuda_executor_bind_host_tensor(x, tensor, tiles);
    if (x->tiles_owned[tensor])
        brim__free(x->ctx, (void *)x->tiles[tensor]);
    x->tiles[tensor] = tiles;
    x->tiles_owned[tensor] = false;
    return BRIM_OK;
}

/* Memory that the host can touch, `size` bytes of it from `offset` on. */
static brim_status host_memory(char **out, brim_device_memory *memory, uint64_t offset,
                               uint64_t size)
{
    *out = memory ? brim_device_memory_host(memory) : NULL;
    BRIM_FAIL_IF(!*out, USAGE, "executor.bind",
                 "the host can't touch this memory: it belongs to another device");
    size_t whole = brim_device_memory_size(memory);
    BRIM_FAIL_IF(offset % 64 != 0 || offset > whole || size > whole - offset, USAGE,
                 "executor.bind", "%llu bytes at offset %llu of %zu", (unsigned long long)size,
                 (unsigned long long)offset, whole);
    *out += offset;
    return BRIM_OK;
}

brim_status brim_executor_bind_memory(brim_executor *x, uint32_t buffer, brim_device_memory *memory,
                                      uint64_t offset)
{
    BRIM_FAIL_IF(atomic_load(&x->running), STATE, "executor.running", "the executor is running");
    BRIM_FAIL_IF(buffer >= x->program->buffer_count || !memory, USAGE, "executor.bind",
                 "buffer %u of %zu", buffer, x->program->buffer_count);
    if (x->cuda)
        return brim__cuda_executor_bind_memory(x, buffer, memory, offset);
    char *host;
    BRIM_TRY(host_memory(&host, memory, offset, buffer_bytes(&x->program->buffers[buffer])));
    return brim_executor_bind_buffer(x, buffer, host);
}

brim_status brim_executor_bind_tensor_memory(brim_executor *x, uint32_t tensor,
                                             brim_device_memory *memory, uint64_t offset)
{
    BRIM_FAIL_IF(atomic_load(&x->running), STATE, "executor.running", "the executor is running");
    BRIM_FAIL_IF(tensor >= x->program->tensor_count || !memory, USAGE, "executor.bind",
                 "tensor %u of %zu", tensor, x->program->tensor_count);
    if (x->cuda)
        return brim__cuda_executor_bind_tensor(x, tensor, memory, offset);
    char *host;
    BRIM_TRY(host_memory(&host, memory, offset, x->program->tensors[tensor].tiling.bytes));
    return brim_executor_bind_tensor(x, tensor, host);
}

brim_status brim_executor_read(brim_executor *x, void *out, uint32_t buffer, uint64_t epoch,
                               uint64_t offset, uint64_t size)
{
    BRIM_FAIL_IF(atomic_load(&x->running), STATE, "executor.running", "the executor is running");
    BRIM_FAIL_IF(buffer >= x->program->buffer_count || offset > x->program->buffers[buffer].size ||
                     size > x->program->buffers[buffer].size - offset,
                 USAGE, "executor.read", "%llu bytes at offset %llu of buffer %u of %zu",
                 (unsigned long long)size, (unsigned long long)offset, buffer,
                 x->program->buffer_count);
    if (x->cuda)
        return brim__cuda_executor_read(x, out, buffer, epoch, offset, size);
    const char *from = brim_executor_buffer(x, buffer, epoch);
    BRIM_FAIL_IF(!from, NO_MEMORY, "memory.out", "no memory for the program's buffers");
    memcpy(out, from + offset, size);
    return BRIM_OK;
}

brim_status brim__executor_place(brim_executor *x)
{
    return x->cuda ? brim__cuda_executor_place(x) : allocate_buffers(x);
}

void *brim_executor_buffer(brim_executor *x, uint32_t buffer, uint64_t epoch)
{
    if (x->cuda)
        return buffer < x->program->buffer_count ? brim__cuda_executor_buffer(x, buffer, epoch)
                                                 : NULL;
    if (buffer >= x->program->buffer_count || allocate_buffers(x) != BRIM_OK)
        return NULL;
    brim_access a = brim_access_make(BRIM_READ, buffer, 0, 1);
    return brim__access_base(x, &a, epoch);
}

uint64_t brim_executor_epoch(const brim_executor *x)
{
    return atomic_load(&x->epoch);
}

void brim__executor_fail(brim_executor *x, brim_status status)
{
    uint32_t none = 0;
    if (atomic_compare_exchange_strong(&x->failed, &none, 1)) {
        x->failure = status;
        snprintf(x->failure_id, sizeof x->failure_id, "%s", brim_last_id());
        snprintf(x->failure_text, sizeof x->failure_text, "%s", brim_last_message());
        atomic_store(&x->failed, 2);
    }
    atomic_store(&x->cancel, 1);
}

brim_status brim_executor_start(brim_executor *x, uint64_t limit)
{
    BRIM_FAIL_IF(atomic_load(&x->running), STATE, "executor.running",
                 "the executor is running already");
    for (size_t i = 0; !x->cuda && i < x->program->tensor_count; i++)
        BRIM_FAIL_IF(!x->tiles[i], STATE, "executor.tensor", "tensor '%s' is not bound",
                     x->program->tensors[i].desc.name);
    if (!x->cuda)
        BRIM_TRY(allocate_buffers(x));
    if (limit == 0)
        return BRIM_OK;
    uint64_t epoch = atomic_load(&x->epoch);
    x->end_epoch = limit > UINT64_MAX - epoch ? UINT64_MAX : epoch + limit;
    atomic_store(&x->cancel, 0);
    atomic_store(&x->failed, 0);
    atomic_store(&x->running, 1);
    if (x->cpu)
        brim__cpu_start(x);
    if (!x->cuda)
        return BRIM_OK;
    brim_status status = brim__cuda_executor_start(x);
    if (status != BRIM_OK)
        atomic_store(&x->running, 0);
    return status;
}

brim_status brim_executor_wait(brim_executor *x)
{
    if (x->cuda)
        BRIM_TRY(brim__cuda_executor_wait(x));
    else if (x->cpu)
        brim__cpu_wait(x);
    else if (atomic_load(&x->running))
        BRIM_TRY(brim__reference_run(x));
    if (atomic_load(&x->failed) == 2)
        return brim__fail(x->failure, x->failure_id, "%s", x->failure_text);
    BRIM_FAIL_IF(atomic_load(&x->cancel), CANCELLED, "run.cancelled", "the run was cancelled");
    return BRIM_OK;
}

bool brim_executor_wait_epoch(brim_executor *x, uint64_t epoch, uint64_t timeout_ns)
{
    if (x->cuda)
        return brim__cuda_executor_wait_epoch(x, epoch, timeout_ns);
    if (x->cpu)
        return brim__cpu_wait_epoch(x, epoch, timeout_ns);
    if (atomic_load(&x->running))
        brim__reference_run(x);
    return atomic_load(&x->epoch) > epoch;
}

brim_status brim_executor_run(brim_executor *x, uint64_t limit)
{
    BRIM_TRY(brim_executor_start(x, limit));
    return brim_executor_wait(x);
}

void brim_executor_cancel(brim_executor *x)
{
    if (!atomic_load(&x->running))
        return;
    atomic_store(&x->cancel, 1);
    if (x->cuda)
        brim__cuda_executor_cancel(x);
}

brim_executor_stats brim_executor_get_stats(const brim_executor *x)
{
    return x->stats;
}

size_t brim_executor_trace(const brim_trace_event **out, brim_executor *x, uint32_t lane)
{
    *out = NULL;
    if (lane >= x->program->lane_count || x->desc.trace_events == 0)
        return 0;
    if (x->cuda)
        return brim__cuda_executor_trace(out, x, lane);
    return x->cpu ? brim__cpu_trace(out, x, lane) : brim__reference_trace(out, x, lane);
}
