/* gguf.h: what the files of src/model share about an opened GGUF file.
 *
 * Format: the GGUF specification, docs/gguf.md of the ggml project. Invariants after
 * gguf__parse_part() has returned BRIM_OK: every value and tensor lies inside its part, every
 * bool is 0 or 1, every string array has an index of offsets, no key occurs twice in a part, no
 * two tensors of a part share a byte. Nothing in the file is read before it was checked. */
#ifndef BRIM_MODEL_GGUF_H
#define BRIM_MODEL_GGUF_H

#include "base/file.h"
#include "base/text.h"
#include "brim/model.h"

enum {
    GGUF_VERSION_MIN = 2,
    GGUF_VERSION_MAX = 3,
    GGUF_KEY_BYTES_MAX = 65535, /* the specification's limit */
    GGUF_NAME_BYTES_MAX = 63,   /* the specification's 64 with the 0 that C adds */
    GGUF_ALIGNMENT_DEFAULT = 32,
    GGUF_ALIGNMENT_MIN = 8, /* the specification: a multiple of 8 */
    GGUF_META_COUNT_MAX = 1 << 16,
    GGUF_TENSOR_COUNT_MAX = 1 << 20,
    GGUF_PART_COUNT_MAX = 1000,
};

typedef struct gguf_meta {
    brim_meta pub; /* first, so that a pointer to it is a pointer to the entry */
    size_t key_at; /* in gguf_part.keys; pub.key points there once all were read */
    size_t key_size;
    const uint8_t *data; /* the value; of an array its first item */
    uint32_t *index;     /* string arrays: offset of each string's length from `data` */
} gguf_meta;

typedef struct gguf_tensor {
    brim_tensor pub; /* first */
    char name[GGUF_NAME_BYTES_MAX + 1];
    uint64_t info_offset; /* where its description starts: for messages */
} gguf_tensor;

typedef struct gguf_part {
    char *path;    /* NULL for bytes in memory */
    brim__map map; /* empty for bytes in memory */
    const uint8_t *data;
    size_t size;
    uint32_t version;
    uint32_t alignment;
    uint64_t data_start;
    gguf_meta *metas;
    size_t meta_count, meta_capacity;
    uint32_t *meta_order; /* indices of metas sorted by key */
    brim__string keys;    /* all keys, each 0-terminated */
    size_t tensor_first, tensor_count;
} gguf_part;

struct brim_model_file {
    brim_context *ctx;
    char *path;
    gguf_part *parts;
    uint32_t part_count;
    gguf_tensor *tensors; /* of all parts, in order */
    size_t tensor_count, tensor_capacity;
    uint32_t *tensor_order; /* indices of tensors sorted by name */
};

/* Parses and validates part->data[0..size) and appends its tensors to the file. */
brim_status gguf__parse_part(brim_model_file *file, gguf_part *part, uint32_t part_index);
void gguf__part_done(gguf_part *part, brim_context *ctx);

/* The entry with this key, or NULL. */
const gguf_meta *gguf__part_meta(const gguf_part *part, const char *key);

/* Sorts order[0..count), first filled with 0, 1, 2 ..., by compare(a, b, user). A heap sort: its
 * worst case is bounded whatever the file holds, and it allocates nothing. */
typedef int gguf_compare(uint32_t a, uint32_t b, const void *user);
void gguf__sort(uint32_t *order, size_t count, gguf_compare *compare, const void *user);

/* Bytes of one value of a fixed-size type; 0 for strings and arrays. */
size_t gguf__value_size(brim_meta_type type);
const char *gguf__type_name(uint32_t type);

#endif
