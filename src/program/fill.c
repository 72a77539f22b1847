/* fill.c: made-up inputs, so that a program from a file can run without what it was made for.
 *
 * Whatever the program takes them for, the values must be harmless: a word of an input is a small
 * number; count words let every run happen; table entries are in bounds and, as far as there are
 * values enough, distinct; constants and state hold words that are moderate numbers as f32 and as
 * two f16; weights have moderate scales. Everything is a function of the seed. */
#include "program/executor.h"

#include <string.h>

#include "base/rng.h"

enum {
    F16_ONE = 0x3c00,
    F16_SPREAD = 0x380,
    SCALE_F16 = 0x2000,
    SCALE_SPREAD = 0x400,
    TENSOR_STREAM = 1 << 20
};

/* ---- buffers ---- */

/* Half of the words are 0, the others 1, 2 or 3. */
static uint32_t small_word(uint64_t bits)
{
    return bits & 4 ? 1 + (uint32_t)(bits >> 3) % 3 : 0;
}

/* An f16 of magnitude 1 to 1.9; in the upper half of a word it is an f32 of 0.008 to 1.9. */
static uint32_t half_word(uint64_t bits)
{
    return (uint32_t)(bits & 0x8000) | (F16_ONE + (uint32_t)(bits >> 16) % F16_SPREAD);
}

static void fill_words(char *to, uint64_t size, bool input, uint64_t seed, uint64_t stream)
{
    for (uint64_t at = 0; at < size; at += 4) {
        uint64_t bits = brim__random_u64(seed, stream, at / 4);
        uint32_t word = input ? small_word(bits) : half_word(bits) << 16 | half_word(bits >> 32);
        memcpy(to + at, &word, size - at < 4 ? size - at : 4);
    }
}

/* Whether a run may count on the words of this buffer: nothing writes them before. */
static bool is_filled(const brim_buffer_desc *buffer)
{
    return buffer->role == BRIM_BUFFER_INPUT || buffer->role == BRIM_BUFFER_CONST ||
           buffer->role == BRIM_BUFFER_STATE;
}

static void put_word(brim_executor *x, uint32_t buffer, uint64_t offset, uint32_t word)
{
    const brim_buffer_desc *desc = &x->program->buffers[buffer];
    for (uint64_t copy = 0; copy < (desc->parity ? 2u : 1u); copy++)
        memcpy(x->memory[buffer] + copy * brim__buffer_copy_bytes(desc) + offset, &word,
               sizeof word);
}

static uint32_t get_word(const brim_executor *x, uint32_t buffer, uint64_t offset)
{
    uint32_t word;
    memcpy(&word, x->memory[buffer] + offset, sizeof word);
    return word;
}

/* Count words are as large as the largest access asks for, table entries run through their range.
 */
static void fill_counts_and_tables(brim_executor *x, const brim_access *a)
{
    const brim_program *p = x->program;
    if (a->count_buffer != BRIM_NONE && is_filled(&p->buffers[a->count_buffer])) {
        uint64_t need =
            a->count_first + (uint64_t)(a->count - 1) * (a->count_step ? a->count_step : 1) + 1;
        uint32_t have = get_word(x, a->count_buffer, a->count_offset);
        if (need > have)
            put_word(x, a->count_buffer, a->count_offset,
                     need > UINT32_MAX ? UINT32_MAX : (uint32_t)need);
    }
    if (a->table_buffer != BRIM_NONE && is_filled(&p->buffers[a->table_buffer]))
        for (uint32_t i = 0; i < a->count; i++)
            put_word(x, a->table_buffer, a->table_offset + 4 * (uint64_t)i,
                     (uint32_t)((a->table_offset / 4 + (uint64_t)i) % a->table_limit));
}

static brim_status fill_buffers(brim_executor *x, uint64_t seed)
{
    const brim_program *p = x->program;
    for (uint32_t b = 0; b < p->buffer_count; b++) {
        const brim_buffer_desc *buffer = &p->buffers[b];
        if (!is_filled(buffer))
            continue;
        if (!brim_executor_buffer(x, b, 0))
            return BRIM_NO_MEMORY;
        for (uint64_t copy = 0; copy < (buffer->parity ? 2u : 1u); copy++)
            fill_words(x->memory[b] + copy * brim__buffer_copy_bytes(buffer), buffer->size,
                       buffer->role == BRIM_BUFFER_INPUT, seed, b);
    }
    for (size_t i = 0; i < p->instruction_count; i++)
        for (unsigned n = 0; n < p->instructions[i].access_count; n++)
            fill_counts_and_tables(x, &p->instructions[i].accesses[n]);
    return BRIM_OK;
}

/* ---- tensors ---- */

static void put_f16(unsigned char *at, uint64_t bits, uint32_t first, uint32_t spread)
{
    uint16_t half = (uint16_t)((bits & 0x8000) | (first + (uint32_t)(bits >> 16) % spread));
    memcpy(at, &half, sizeof half);
}

/* Offsets of the f16 scales in a block of the file's layout; the second is 0 where there is one. */
static void scale_offsets(size_t out[2], brim_dtype type)
{
    out[0] = type == BRIM_DTYPE_Q6_K ? 208 : 0;
    out[1] = type == BRIM_DTYPE_Q4_1 || type == BRIM_DTYPE_Q5_1 || type == BRIM_DTYPE_Q4_K ||
                     type == BRIM_DTYPE_Q5_K
                 ? 2
                 : 0;
}

static void fill_row(unsigned char *row, brim_dtype type, uint32_t cols, uint64_t seed,
                     uint64_t stream, uint64_t index)
{
    size_t bytes = (size_t)cols / brim_dtype_block(type) * brim_dtype_block_bytes(type);
    if (brim_dtype_block(type) == 1) {
        for (size_t at = 0; at < bytes; at += 2)
            put_f16(row + at, brim__random_u64(seed, stream, index * bytes + at), F16_ONE,
                    F16_SPREAD);
        return;
    }
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t bits = brim__random_u64(seed, stream, index * bytes + at);
        memcpy(row + at, &bits, bytes - at < 8 ? bytes - at : 8);
    }
    size_t scales[2];
    scale_offsets(scales, type);
    for (size_t at = 0; at < bytes; at += brim_dtype_block_bytes(type))
        for (int k = 0; k < 2; k++)
            if (k == 0 || scales[k])
                put_f16(row + at + scales[k],
                        brim__random_u64(seed, stream + 1, index * bytes + at + (size_t)k),
                        SCALE_F16, SCALE_SPREAD);
}

static brim_status fill_tensor(brim_executor *x, uint32_t tensor, uint64_t seed)
{
    const brim__tiling *t = &x->program->tensors[tensor].tiling;
    size_t row_bytes =
        (size_t)t->cols / brim_dtype_block(t->type) * brim_dtype_block_bytes(t->type);
    size_t rows_bytes;
    if (!brim__mul_size(&rows_bytes, row_bytes, t->rows))
        return brim__fail(BRIM_NO_MEMORY, "memory.out", "tensor '%s' is too large",
                          x->program->tensors[tensor].desc.name);
    unsigned char *rows;
    BRIM_ALLOC(x->ctx, rows, rows_bytes);
    char *tiles = brim__alloc(x->ctx, t->bytes);
    if (tiles) {
        for (uint32_t r = 0; r < t->rows; r++)
            fill_row(rows + r * row_bytes, t->type, t->cols, seed,
                     TENSOR_STREAM + 2 * (uint64_t)tensor, r);
        brim__mma8_matrix m = {.sources = {{rows, t->type, t->rows}}, .source_count = 1};
        if (!brim__tiling_is_mma8(t))
            brim__tile_pack(tiles, t, rows, 0, t->row_blocks);
        else if (brim__tile_mma8_pack(tiles, t, &m, 0, t->row_blocks, NULL, "fill") != BRIM_OK)
            memset(tiles, 0, t->bytes); /* cannot be: the rows are of the tiling's own type */
        x->tiles[tensor] = tiles;
        x->tiles_owned[tensor] = true;
    }
    brim__free(x->ctx, rows);
    return tiles ? BRIM_OK : BRIM_NO_MEMORY;
}

brim_status brim_executor_fill(brim_executor *x, uint64_t seed)
{
    BRIM_FAIL_IF(atomic_load(&x->running), STATE, "executor.running", "the executor is running");
    BRIM_TRY(fill_buffers(x, seed));
    for (uint32_t t = 0; t < x->program->tensor_count; t++)
        if (!x->tiles[t])
            BRIM_TRY(fill_tensor(x, t, seed));
    return BRIM_OK;
}
