/* program.h: the program as the executors see it: flat arrays, never changed after the build. */
#ifndef BRIM_PROGRAM_INTERNAL_H
#define BRIM_PROGRAM_INTERNAL_H

#include "brim/program.h"
#include "base/memory.h"
#include "kernels/kernels.h"

/* An item of a lane's list: an instruction, or a queue to take from. */
typedef struct brim__item {
    uint32_t instruction; /* BRIM_NONE when it is a queue */
    uint32_t queue;       /* BRIM_NONE when it is an instruction */
} brim__item;

typedef struct brim__list {
    uint32_t *items; /* queue: instruction indices */
    size_t count, capacity;
    char *name;
} brim__list;

typedef struct brim__lane_list {
    brim__item *items;
    size_t count, capacity;
} brim__lane_list;

typedef struct brim__counter {
    char *name;
    uint32_t total; /* signals in one epoch */
} brim__counter;

typedef struct brim__tensor {
    brim_tensor_desc desc; /* owns its name */
    brim__tiling tiling;
} brim__tensor;

struct brim_program {
    brim_context *ctx;
    const brim_op_table *ops;
    char *name;
    uint32_t lane_count;
    brim__lane_list *lanes;
    brim__list *queues;
    size_t queue_count, queue_capacity;
    brim_buffer_desc *buffers; /* own their names */
    size_t buffer_count, buffer_capacity;
    brim__tensor *tensors;
    size_t tensor_count, tensor_capacity;
    brim__counter *counters;
    size_t counter_count, counter_capacity;
    brim_instruction *instructions;
    size_t instruction_count, instruction_capacity;
    uint32_t step_end; /* instruction; BRIM_NONE when there is none or more than one */
};

/* Bytes from the start of copy 0 to the start of copy 1. */
static inline uint64_t brim__buffer_copy_bytes(const brim_buffer_desc *buffer)
{
    return (buffer->size + 63) / 64 * 64;
}

/* "op.name of instruction 12 (queue step, piece 3)": how messages name an instruction. */
void brim__program_where(char *out, size_t size, const brim_program *program, uint32_t instruction);

/* The address range [*begin, *end) within its buffer's copy that an access can touch at most.
 * False when it overflows. */
bool brim__access_extent(uint64_t *begin, uint64_t *end, const brim_access *access);
/* Runs in use, given the value of the count word. */
static inline uint32_t brim__access_runs(const brim_access *a, uint32_t n)
{
    if (a->count_first >= n)
        return 0;
    uint32_t step = a->count_step ? a->count_step : 1;
    uint32_t used = (n - a->count_first + step - 1) / step;
    return used < a->count ? used : a->count;
}

#endif
