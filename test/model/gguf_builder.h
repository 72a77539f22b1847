/* gguf_builder.h: puts GGUF bytes together by hand, right or wrong, independent of src/model.
 *
 * Header, keys and tensors are added in order; counts are patched at the end with what was added
 * plus an offset that a test may set to lie. */
#ifndef BRIM_TEST_GGUF_BUILDER_H
#define BRIM_TEST_GGUF_BUILDER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct gguf_builder {
    uint8_t *data; /* from malloc, hence aligned to 16 */
    size_t size, capacity;
    uint64_t tensor_count, meta_count;
    uint32_t alignment;
} gguf_builder;

static inline void gb_put(gguf_builder *b, const void *data, size_t size)
{
    while (b->size + size > b->capacity) {
        b->capacity = b->capacity ? 2 * b->capacity : 1024;
        b->data = realloc(b->data, b->capacity);
        if (!b->data)
            abort();
    }
    if (size)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

static inline void gb_u8(gguf_builder *b, uint8_t v)
{
    gb_put(b, &v, 1);
}
static inline void gb_u16(gguf_builder *b, uint16_t v)
{
    gb_put(b, &v, 2);
}
static inline void gb_u32(gguf_builder *b, uint32_t v)
{
    gb_put(b, &v, 4);
}
static inline void gb_u64(gguf_builder *b, uint64_t v)
{
    gb_put(b, &v, 8);
}
static inline void gb_f32(gguf_builder *b, float v)
{
    gb_put(b, &v, 4);
}

static inline void gb_bytes(gguf_builder *b, const void *text, size_t size)
{
    gb_u64(b, size);
    gb_put(b, text, size);
}

static inline void gb_string(gguf_builder *b, const char *text)
{
    gb_bytes(b, text, strlen(text));
}

static inline gguf_builder gb_start(uint32_t version)
{
    gguf_builder b = {.alignment = 32};
    gb_put(&b, "GGUF", 4);
    gb_u32(&b, version);
    gb_u64(&b, 0);
    gb_u64(&b, 0);
    return b;
}

/* Type numbers of the GGUF specification, written out here so that the tests do not take them from
 * the code under test. */
enum {
    GB_U8 = 0,
    GB_I8,
    GB_U16,
    GB_I16,
    GB_U32,
    GB_I32,
    GB_F32,
    GB_BOOL,
    GB_STRING,
    GB_ARRAY,
    GB_U64,
    GB_I64,
    GB_F64
};

static inline void gb_key(gguf_builder *b, const char *key, uint32_t type)
{
    b->meta_count++;
    gb_string(b, key);
    gb_u32(b, type);
}

static inline void gb_key_u32(gguf_builder *b, const char *key, uint32_t v)
{
    gb_key(b, key, GB_U32);
    gb_u32(b, v);
}

static inline void gb_key_u16(gguf_builder *b, const char *key, uint16_t v)
{
    gb_key(b, key, GB_U16);
    gb_u16(b, v);
}

static inline void gb_key_f32(gguf_builder *b, const char *key, float v)
{
    gb_key(b, key, GB_F32);
    gb_f32(b, v);
}

static inline void gb_key_bool(gguf_builder *b, const char *key, uint8_t v)
{
    gb_key(b, key, GB_BOOL);
    gb_u8(b, v);
}

static inline void gb_key_string(gguf_builder *b, const char *key, const char *v)
{
    gb_key(b, key, GB_STRING);
    gb_string(b, v);
}

static inline void gb_key_array(gguf_builder *b, const char *key, uint32_t item_type,
                                uint64_t count)
{
    gb_key(b, key, GB_ARRAY);
    gb_u32(b, item_type);
    gb_u64(b, count);
}

/* Describes a tensor of up to 4 dimensions; a dims[i] of 0 past the first ends them. */
static inline void gb_tensor(gguf_builder *b, const char *name, uint32_t type, uint64_t d0,
                             uint64_t d1, uint64_t offset)
{
    b->tensor_count++;
    gb_string(b, name);
    gb_u32(b, d1 ? 2 : 1);
    gb_u64(b, d0);
    if (d1)
        gb_u64(b, d1);
    gb_u32(b, type);
    gb_u64(b, offset);
}

static inline void gb_align(gguf_builder *b)
{
    while (b->size % b->alignment)
        gb_u8(b, 0);
}

/* `count` bytes 0, 1, 2 ... */
static inline void gb_data(gguf_builder *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gb_u8(b, (uint8_t)i);
}

static inline void gb_patch_counts(gguf_builder *b)
{
    memcpy(b->data + 8, &b->tensor_count, 8);
    memcpy(b->data + 16, &b->meta_count, 8);
}

static inline void gb_done(gguf_builder *b)
{
    free(b->data);
}

#endif
