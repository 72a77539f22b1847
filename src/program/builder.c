/* builder.c: makes programs. Only what names nothing is refused here (an index past its list);
 * whether the program is right is check.c's business. A finished program never changes. */
#include "program/program.h"

#include "program/name_map.h"
#include "program/ops_resident.h"

#include <stdio.h>
#include <string.h>

struct brim_builder {
    brim_context *ctx;
    brim_program *program;
};

enum { NAME_BYTES_MAX = 63, BUFFER_BITS_MAX = 40 };

brim_instruction brim_instruction_make(uint32_t op)
{
    brim_instruction in;
    memset(&in, 0, sizeof in);
    in.op = op;
    in.runs[0].tensor = in.runs[1].tensor = BRIM_NONE;
    return in;
}

brim_access brim_access_make(brim_access_kind kind, uint32_t buffer, uint64_t offset, uint64_t size)
{
    return (brim_access){
        .kind = kind,
        .buffer = buffer,
        .count = 1,
        .offset = offset,
        .size = size,
        .stride = size,
        .count_buffer = BRIM_NONE,
        .table_buffer = BRIM_NONE,
    };
}

static brim_status check_name(const char *what, const char *name)
{
    size_t size = name ? strlen(name) : 0;
    BRIM_FAIL_IF(size == 0 || size > NAME_BYTES_MAX, USAGE, "program.name",
                 "a %s's name must have 1 to %d bytes, not %zu", what, NAME_BYTES_MAX, size);
    return BRIM_OK;
}

brim_status brim_builder_create(brim_builder **out, brim_context *ctx, const brim_op_table *ops,
                                const char *name, uint32_t lane_count)
{
    *out = NULL;
    BRIM_FAIL_IF(lane_count == 0 || lane_count > BRIM_LANES_MAX, USAGE, "program.lanes",
                 "a program has 1 to %d lanes, not %u", BRIM_LANES_MAX, lane_count);
    brim_builder *builder;
    BRIM_CALLOC(ctx, builder, 1);
    builder->ctx = ctx;
    brim_program *p = builder->program = brim__calloc(ctx, 1, sizeof *p);
    if (p) {
        p->ctx = ctx;
        p->ops = ops;
        p->lane_count = lane_count;
        p->step_end = BRIM_NONE;
        p->name = brim__strdup(ctx, name ? name : "");
        p->lanes = brim__calloc(ctx, lane_count, sizeof *p->lanes);
    }
    if (!p || !p->name || !p->lanes) {
        brim_builder_destroy(builder);
        return BRIM_NO_MEMORY;
    }
    *out = builder;
    return BRIM_OK;
}

void brim_builder_destroy(brim_builder *builder)
{
    if (!builder)
        return;
    brim_program_destroy(builder->program);
    brim__free(builder->ctx, builder);
}

void brim_program_destroy(brim_program *p)
{
    if (!p)
        return;
    brim_context *ctx = p->ctx;
    for (uint32_t i = 0; p->lanes && i < p->lane_count; i++)
        brim__free(ctx, p->lanes[i].items);
    for (size_t i = 0; i < p->queue_count; i++) {
        brim__free(ctx, p->queues[i].items);
        brim__free(ctx, p->queues[i].name);
    }
    for (size_t i = 0; i < p->buffer_count; i++)
        brim__free(ctx, (char *)p->buffers[i].name);
    for (size_t i = 0; i < p->tensor_count; i++)
        brim__free(ctx, (char *)p->tensors[i].desc.name);
    for (size_t i = 0; i < p->counter_count; i++)
        brim__free(ctx, p->counters[i].name);
    brim__free(ctx, p->lanes);
    brim__free(ctx, p->queues);
    brim__free(ctx, p->buffers);
    brim__free(ctx, p->tensors);
    brim__free(ctx, p->counters);
    brim__free(ctx, p->instructions);
    brim__free(ctx, p->name);
    brim__free(ctx, p);
}

brim_status brim_builder_buffer(uint32_t *out, brim_builder *builder, const brim_buffer_desc *desc)
{
    brim_program *p = builder->program;
    BRIM_TRY(check_name("buffer", desc->name));
    BRIM_FAIL_IF(brim_program_buffer_find(p, desc->name) != BRIM_NONE, USAGE, "program.name",
                 "two buffers are named '%s'", desc->name);
    BRIM_FAIL_IF(desc->size == 0 || desc->size >> BUFFER_BITS_MAX, USAGE, "program.buffer",
                 "buffer '%s' has %llu bytes; 1 to 2^%d are possible", desc->name,
                 (unsigned long long)desc->size, BUFFER_BITS_MAX);
    BRIM_FAIL_IF(p->buffer_count == BRIM_BUFFERS_MAX, LIMIT, "program.limit",
                 "more than %d buffers", BRIM_BUFFERS_MAX);
    BRIM_TRY(BRIM_GROW(builder->ctx, p->buffers, p->buffer_capacity, p->buffer_count + 1));
    brim_buffer_desc copy = *desc;
    copy.name = brim__strdup(builder->ctx, desc->name);
    if (!copy.name)
        return BRIM_NO_MEMORY;
    *out = (uint32_t)p->buffer_count;
    p->buffers[p->buffer_count++] = copy;
    return BRIM_OK;
}

brim_status brim_builder_tensor(uint32_t *out, brim_builder *builder, const brim_tensor_desc *desc)
{
    brim_program *p = builder->program;
    BRIM_TRY(check_name("tensor", desc->name));
    for (size_t i = 0; i < p->tensor_count; i++)
        BRIM_FAIL_IF(strcmp(p->tensors[i].desc.name, desc->name) == 0, USAGE, "program.name",
                     "two tensors are named '%s'", desc->name);
    brim__tensor tensor = {.desc = *desc};
    BRIM_TRY(
        brim__tiling_of_layout(&tensor.tiling, desc->layout, desc->type, desc->rows, desc->cols));
    BRIM_TRY(BRIM_GROW(builder->ctx, p->tensors, p->tensor_capacity, p->tensor_count + 1));
    tensor.desc.name = brim__strdup(builder->ctx, desc->name);
    if (!tensor.desc.name)
        return BRIM_NO_MEMORY;
    *out = (uint32_t)p->tensor_count;
    p->tensors[p->tensor_count++] = tensor;
    return BRIM_OK;
}

brim_status brim_builder_counter(uint32_t *out, brim_builder *builder, const char *name)
{
    brim_program *p = builder->program;
    BRIM_TRY(check_name("counter", name));
    BRIM_FAIL_IF(p->counter_count == BRIM_COUNTERS_MAX, LIMIT, "program.limit",
                 "more than %d counters", BRIM_COUNTERS_MAX);
    BRIM_TRY(BRIM_GROW(builder->ctx, p->counters, p->counter_capacity, p->counter_count + 1));
    char *copy = brim__strdup(builder->ctx, name);
    if (!copy)
        return BRIM_NO_MEMORY;
    *out = (uint32_t)p->counter_count;
    p->counters[p->counter_count++] = (brim__counter){.name = copy};
    return BRIM_OK;
}

brim_status brim_builder_queue(uint32_t *out, brim_builder *builder, const char *name)
{
    brim_program *p = builder->program;
    BRIM_TRY(check_name("queue", name));
    BRIM_TRY(BRIM_GROW(builder->ctx, p->queues, p->queue_capacity, p->queue_count + 1));
    char *copy = brim__strdup(builder->ctx, name);
    if (!copy)
        return BRIM_NO_MEMORY;
    *out = (uint32_t)p->queue_count;
    p->queues[p->queue_count++] = (brim__list){.name = copy};
    return BRIM_OK;
}

static brim_status check_access_indices(const brim_program *p, const brim_access *a, unsigned index)
{
    BRIM_FAIL_IF(a->buffer >= p->buffer_count, USAGE, "program.index",
                 "access %u names buffer %u of %zu", index, a->buffer, p->buffer_count);
    BRIM_FAIL_IF(a->count_buffer != BRIM_NONE && a->count_buffer >= p->buffer_count, USAGE,
                 "program.index", "access %u counts by buffer %u of %zu", index, a->count_buffer,
                 p->buffer_count);
    BRIM_FAIL_IF(a->table_buffer != BRIM_NONE && a->table_buffer >= p->buffer_count, USAGE,
                 "program.index", "access %u has table %u of %zu buffers", index, a->table_buffer,
                 p->buffer_count);
    BRIM_FAIL_IF(a->kind > BRIM_APPEND, USAGE, "program.index", "access %u has kind %d", index,
                 (int)a->kind);
    return BRIM_OK;
}

static brim_status check_indices(const brim_program *p, const brim_instruction *in)
{
    BRIM_FAIL_IF(!brim_op_get(p->ops, in->op), USAGE, "program.op", "op %u is not registered",
                 in->op);
    BRIM_FAIL_IF(in->wait_count > BRIM_WAITS_MAX || in->signal_count > BRIM_SIGNALS_MAX ||
                     in->access_count > BRIM_ACCESSES_MAX || in->operand_count > BRIM_OPERANDS_MAX,
                 USAGE, "program.limit",
                 "an instruction has at most %d waits, %d signals, %d accesses and %d operands",
                 BRIM_WAITS_MAX, BRIM_SIGNALS_MAX, BRIM_ACCESSES_MAX, BRIM_OPERANDS_MAX);
    for (unsigned i = 0; i < in->wait_count; i++)
        BRIM_FAIL_IF(in->waits[i].counter >= p->counter_count, USAGE, "program.index",
                     "wait %u names counter %u of %zu", i, in->waits[i].counter, p->counter_count);
    for (unsigned i = 0; i < in->signal_count; i++)
        BRIM_FAIL_IF(in->signals[i] >= p->counter_count, USAGE, "program.index",
                     "signal %u names counter %u of %zu", i, in->signals[i], p->counter_count);
    for (unsigned i = 0; i < 2; i++)
        BRIM_FAIL_IF(in->runs[i].tensor != BRIM_NONE && in->runs[i].tensor >= p->tensor_count,
                     USAGE, "program.index", "run %u names tensor %u of %zu", i, in->runs[i].tensor,
                     p->tensor_count);
    for (unsigned i = 0; i < in->access_count; i++)
        BRIM_TRY(check_access_indices(p, &in->accesses[i], i));
    return BRIM_OK;
}

static brim_status add_instruction(uint32_t *out, brim_builder *builder, const brim_instruction *in)
{
    brim_program *p = builder->program;
    BRIM_TRY(check_indices(p, in));
    BRIM_FAIL_IF(p->instruction_count == BRIM_INSTRUCTIONS_MAX, LIMIT, "program.limit",
                 "more than %d instructions", BRIM_INSTRUCTIONS_MAX);
    BRIM_TRY(BRIM_GROW(builder->ctx, p->instructions, p->instruction_capacity,
                       p->instruction_count + 1));
    *out = (uint32_t)p->instruction_count;
    p->instructions[p->instruction_count++] = *in;
    return BRIM_OK;
}

static brim_status add_item(brim_builder *builder, uint32_t lane, brim__item item)
{
    brim__lane_list *list = &builder->program->lanes[lane];
    BRIM_TRY(BRIM_GROW(builder->ctx, list->items, list->capacity, list->count + 1));
    list->items[list->count++] = item;
    return BRIM_OK;
}

brim_status brim_builder_lane(brim_builder *builder, uint32_t lane, const brim_instruction *in)
{
    BRIM_FAIL_IF(lane >= builder->program->lane_count, USAGE, "program.index", "lane %u of %u",
                 lane, builder->program->lane_count);
    uint32_t index = 0;
    BRIM_TRY(add_instruction(&index, builder, in));
    return add_item(builder, lane, (brim__item){index, BRIM_NONE});
}

brim_status brim_builder_piece(brim_builder *builder, uint32_t queue, const brim_instruction *in)
{
    brim_program *p = builder->program;
    BRIM_FAIL_IF(queue >= p->queue_count, USAGE, "program.index", "queue %u of %zu", queue,
                 p->queue_count);
    uint32_t index = 0;
    BRIM_TRY(add_instruction(&index, builder, in));
    brim__list *list = &p->queues[queue];
    BRIM_TRY(BRIM_GROW(builder->ctx, list->items, list->capacity, list->count + 1));
    list->items[list->count++] = index;
    return BRIM_OK;
}

brim_status brim_builder_take(brim_builder *builder, uint32_t lane, uint32_t queue)
{
    brim_program *p = builder->program;
    BRIM_FAIL_IF(lane >= p->lane_count || queue >= p->queue_count, USAGE, "program.index",
                 "lane %u of %u, queue %u of %zu", lane, p->lane_count, queue, p->queue_count);
    return add_item(builder, lane, (brim__item){BRIM_NONE, queue});
}

brim_status brim_builder_derive(brim_builder *builder, brim_instruction *in)
{
    const brim_op_desc *op = brim_op_get(builder->program->ops, in->op);
    BRIM_FAIL_IF(!op, USAGE, "program.op", "op %u is not registered", in->op);
    if (!op->derive)
        return BRIM_OK;
    brim_instruction filled = *in;
    BRIM_TRY(op->derive(&filled, builder->program, in));
    *in = filled;
    return BRIM_OK;
}

static void find_step_end(brim_program *p)
{
    uint32_t seen = 0;
    for (size_t i = 0; i < p->instruction_count; i++) {
        if (!brim_op_get(p->ops, p->instructions[i].op)->step_end)
            continue;
        p->step_end = seen++ ? BRIM_NONE : (uint32_t)i;
    }
}

/* Files refer to counters and queues by name. */
static brim_status check_unique(const brim_program *p)
{
    brim__name_map map = {0};
    brim_status status = brim__name_map_init(&map, p->ctx, p->counter_count);
    for (size_t i = 0; status == BRIM_OK && i < p->counter_count; i++)
        if (!brim__name_map_add(&map, p->counters[i].name, (uint32_t)i))
            status = brim__fail(BRIM_USAGE, "program.name", "two counters are named '%s'",
                                p->counters[i].name);
    brim__name_map_done(&map, p->ctx);
    BRIM_TRY(status);
    map = (brim__name_map){0};
    status = brim__name_map_init(&map, p->ctx, p->queue_count);
    for (size_t i = 0; status == BRIM_OK && i < p->queue_count; i++)
        if (!brim__name_map_add(&map, p->queues[i].name, (uint32_t)i))
            status = brim__fail(BRIM_USAGE, "program.name", "two queues are named '%s'",
                                p->queues[i].name);
    brim__name_map_done(&map, p->ctx);
    return status;
}

brim_status brim_builder_finish(brim_program **out, brim_builder *builder)
{
    brim_program *p = builder->program;
    *out = NULL;
    BRIM_FAIL_IF(p->instruction_count == 0, USAGE, "program.empty",
                 "the program has no instruction");
    BRIM_TRY(check_unique(p));
    for (size_t i = 0; i < p->instruction_count; i++)
        for (unsigned s = 0; s < p->instructions[i].signal_count; s++)
            p->counters[p->instructions[i].signals[s]].total++;
    find_step_end(p);
    *out = p;
    builder->program = NULL;
    return BRIM_OK;
}

const char *brim_program_name(const brim_program *p)
{
    return p->name;
}
uint32_t brim_program_lane_count(const brim_program *p)
{
    return p->lane_count;
}
uint32_t brim_program_instruction_count(const brim_program *p)
{
    return (uint32_t)p->instruction_count;
}
uint32_t brim_program_buffer_count(const brim_program *p)
{
    return (uint32_t)p->buffer_count;
}
uint32_t brim_program_tensor_count(const brim_program *p)
{
    return (uint32_t)p->tensor_count;
}

const brim_instruction *brim_program_instruction(const brim_program *p, uint32_t index)
{
    return index < p->instruction_count ? &p->instructions[index] : NULL;
}

const brim_buffer_desc *brim_program_buffer(const brim_program *p, uint32_t index)
{
    return index < p->buffer_count ? &p->buffers[index] : NULL;
}

const brim_tensor_desc *brim_program_tensor(const brim_program *p, uint32_t index)
{
    return index < p->tensor_count ? &p->tensors[index].desc : NULL;
}

uint32_t brim_program_buffer_find(const brim_program *p, const char *name)
{
    for (size_t i = 0; i < p->buffer_count; i++)
        if (strcmp(p->buffers[i].name, name) == 0)
            return (uint32_t)i;
    return BRIM_NONE;
}

void brim__program_where(char *out, size_t size, const brim_program *p, uint32_t instruction)
{
    const char *op = instruction < p->instruction_count
                         ? brim_op_get(p->ops, p->instructions[instruction].op)->name
                         : "no op";
    for (size_t q = 0; q < p->queue_count; q++)
        for (size_t i = 0; i < p->queues[q].count; i++)
            if (p->queues[q].items[i] == instruction) {
                snprintf(out, size, "%s (instruction %u, queue %s, piece %zu)", op, instruction,
                         p->queues[q].name, i);
                return;
            }
    for (uint32_t l = 0; l < p->lane_count; l++)
        for (size_t i = 0; i < p->lanes[l].count; i++)
            if (p->lanes[l].items[i].instruction == instruction) {
                snprintf(out, size, "%s (instruction %u, lane %u, item %zu)", op, instruction, l,
                         i);
                return;
            }
    snprintf(out, size, "%s (instruction %u)", op, instruction);
}

bool brim__access_extent(uint64_t *begin, uint64_t *end, const brim_access *a)
{
    uint64_t runs = a->table_buffer != BRIM_NONE ? a->table_limit : a->count;
    uint64_t last = 0;
    *begin = a->offset;
    *end = a->offset;
    if (a->count == 0 || runs == 0)
        return true;
    return !__builtin_mul_overflow(runs - 1, a->stride, &last) &&
           !__builtin_add_overflow(a->offset, last, &last) &&
           !__builtin_add_overflow(last, a->size, end);
}
