/* fuzz_gguf.c: bytes as a model file: whatever they are, opening them, reading the architecture and
 * every value, and touching the ends of every tensor is safe. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "brim/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ITEMS_READ_MAX = 4096 }; /* of one array: the rest is reached by the same code */

static uint64_t read_value(const brim_model_file *file, const brim_meta *meta, uint64_t index)
{
    uint64_t u = 0;
    int64_t i = 0;
    double f = 0;
    bool yes = false;
    const char *text = NULL;
    size_t size = 0;
    brim_meta_u64(&u, file, meta, index);
    brim_meta_i64(&i, file, meta, index);
    brim_meta_f64(&f, file, meta, index);
    brim_meta_bool(&yes, file, meta, index);
    if (brim_meta_string(&text, &size, file, meta, index) == BRIM_OK)
        for (size_t k = 0; k < size; k++)
            u += (uint8_t)text[k];
    return u + (uint64_t)i + (f > 0) + yes;
}

static uint64_t walk(const brim_model_file *file)
{
    uint64_t sum = brim_model_file_size(file) + brim_model_file_version(file);
    for (size_t i = 0; i < brim_model_file_meta_count(file); i++) {
        const brim_meta *meta = brim_model_file_meta_at(file, i);
        if (brim_model_file_meta(file, meta->key) != meta)
            abort();
        for (uint64_t k = 0; k < meta->count && k < ITEMS_READ_MAX; k++)
            sum += read_value(file, meta, k);
        if (meta->count)
            sum += read_value(file, meta, meta->count - 1);
        if (brim_meta_u64(&sum, file, meta, meta->count) != BRIM_USAGE)
            abort();
    }
    for (size_t i = 0; i < brim_model_file_tensor_count(file); i++) {
        const brim_tensor *t = brim_model_file_tensor_at(file, i);
        if (brim_model_file_tensor(file, t->name) != t || t->size == 0)
            abort();
        const uint8_t *bytes = t->data;
        sum += bytes[0] + (uint64_t)bytes[t->size - 1];
        brim_model_file_release(file, t);
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    brim_context *ctx;
    if (brim_context_create(&ctx, NULL) != BRIM_OK)
        return 0;
    /* A copy: the bytes must begin at a multiple of 8, and end where a sanitizer looks. */
    uint8_t *copy = malloc(size ? size : 1);
    if (size)
        memcpy(copy, data, size);
    brim_model_file *file;
    if (brim_model_file_open_memory(&file, ctx, copy, size) == BRIM_OK) {
        volatile uint64_t sum = walk(file);
        (void)sum;
        brim_model_config config;
        brim_model_config_read(&config, file);
        brim_model_file_close(file);
    }
    if (brim_context_bytes(ctx) != 0)
        abort();
    brim_context_destroy(ctx);
    free(copy);
    return 0;
}
