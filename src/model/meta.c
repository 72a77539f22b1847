/* meta.c: reads values of metadata as the caller's type. Values were checked to lie in the file
 * when it was opened; here only their type and range are at stake. They may stand at any address,
 * so all go through memcpy. */
#include "model/gguf.h"

#include <string.h>

/* A value before it is converted: integers that fit i64 are `i`, larger ones `u`. */
typedef struct number {
    enum { NUMBER_I64, NUMBER_U64, NUMBER_F64 } kind;
    int64_t i;
    uint64_t u;
    double f;
} number;

static brim_meta_type value_type(const brim_meta *meta)
{
    return meta->type == BRIM_META_ARRAY ? meta->item_type : meta->type;
}

static brim_status wrong_type(const brim_meta *meta, const char *wanted)
{
    bool array = meta->type == BRIM_META_ARRAY;
    BRIM_FAIL(FORMAT, "gguf.value", "key \"%.120s\" at offset %llu is %s%s; %s is required",
              meta->key, (unsigned long long)meta->file_offset, array ? "an array of " : "of type ",
              gguf__type_name(value_type(meta)), wanted);
}

/* The file's own entry for `meta`, which may be a copy that the caller kept, of any part. */
static const gguf_meta *find_entry(const brim_model_file *file, const brim_meta *meta)
{
    for (uint32_t i = 0; i < file->part_count; i++) {
        const gguf_part *part = &file->parts[i];
        const gguf_meta *entry = gguf__part_meta(part, meta->key);
        if (entry && entry->pub.key == meta->key)
            return entry;
    }
    return NULL;
}

static brim_status locate(const gguf_meta **out, const brim_model_file *file, const brim_meta *meta,
                          uint64_t index)
{
    const gguf_part *part = &file->parts[0];
    uintptr_t at = (uintptr_t)meta, first = (uintptr_t)part->metas;
    bool own = at >= first && at < first + part->meta_count * sizeof *part->metas;
    *out = own ? (const gguf_meta *)meta : find_entry(file, meta);
    BRIM_FAIL_IF(!*out, USAGE, "gguf.meta", "the metadata entry is not one of this file");
    BRIM_FAIL_IF(index >= (*out)->pub.count, USAGE, "gguf.index",
                 "key \"%.120s\": index %llu of an entry with %llu values", meta->key,
                 (unsigned long long)index, (unsigned long long)(*out)->pub.count);
    return BRIM_OK;
}

/* The value of type C at p. */
#define LOAD(C, p)                                                                                 \
    ({                                                                                             \
        C load_value;                                                                              \
        memcpy(&load_value, (p), sizeof load_value);                                               \
        load_value;                                                                                \
    })

static number integer(int64_t value)
{
    return (number){.kind = NUMBER_I64, .i = value};
}

static brim_status read_number(number *out, const brim_model_file *file, const brim_meta *meta,
                               uint64_t index)
{
    const gguf_meta *entry;
    BRIM_TRY(locate(&entry, file, meta, index));
    brim_meta_type type = value_type(&entry->pub);
    const uint8_t *p = entry->data + index * gguf__value_size(type);
    *out = (number){0};
    switch (type) {
    case BRIM_META_U8:
        *out = integer(*p);
        return BRIM_OK;
    case BRIM_META_I8:
        *out = integer((int8_t)*p);
        return BRIM_OK;
    case BRIM_META_U16:
        *out = integer(LOAD(uint16_t, p));
        return BRIM_OK;
    case BRIM_META_I16:
        *out = integer(LOAD(int16_t, p));
        return BRIM_OK;
    case BRIM_META_U32:
        *out = integer(LOAD(uint32_t, p));
        return BRIM_OK;
    case BRIM_META_I32:
        *out = integer(LOAD(int32_t, p));
        return BRIM_OK;
    case BRIM_META_I64:
        *out = integer(LOAD(int64_t, p));
        return BRIM_OK;
    case BRIM_META_F32:
        *out = (number){.kind = NUMBER_F64, .f = (double)LOAD(float, p)};
        return BRIM_OK;
    case BRIM_META_F64:
        *out = (number){.kind = NUMBER_F64, .f = LOAD(double, p)};
        return BRIM_OK;
    case BRIM_META_U64: {
        uint64_t value = LOAD(uint64_t, p);
        *out =
            value <= INT64_MAX ? integer((int64_t)value) : (number){.kind = NUMBER_U64, .u = value};
        return BRIM_OK;
    }
    case BRIM_META_BOOL:
    case BRIM_META_STRING:
    case BRIM_META_ARRAY:
        break;
    }
    return wrong_type(meta, "a number");
}

brim_status brim_meta_u64(uint64_t *out, const brim_model_file *file, const brim_meta *meta,
                          uint64_t index)
{
    number value;
    BRIM_TRY(read_number(&value, file, meta, index));
    if (value.kind == NUMBER_F64)
        return wrong_type(meta, "an integer");
    BRIM_FAIL_IF(value.kind == NUMBER_I64 && value.i < 0, FORMAT, "gguf.value",
                 "key \"%.120s\" at offset %llu is %lld; it must not be negative", meta->key,
                 (unsigned long long)meta->file_offset, (long long)value.i);
    *out = value.kind == NUMBER_U64 ? value.u : (uint64_t)value.i;
    return BRIM_OK;
}

brim_status brim_meta_i64(int64_t *out, const brim_model_file *file, const brim_meta *meta,
                          uint64_t index)
{
    number value;
    BRIM_TRY(read_number(&value, file, meta, index));
    if (value.kind == NUMBER_F64)
        return wrong_type(meta, "an integer");
    BRIM_FAIL_IF(value.kind == NUMBER_U64, FORMAT, "gguf.value",
                 "key \"%.120s\" at offset %llu is %llu; at most 2^63-1 fits", meta->key,
                 (unsigned long long)meta->file_offset, (unsigned long long)value.u);
    *out = value.i;
    return BRIM_OK;
}

brim_status brim_meta_f64(double *out, const brim_model_file *file, const brim_meta *meta,
                          uint64_t index)
{
    number value;
    BRIM_TRY(read_number(&value, file, meta, index));
    if (value.kind == NUMBER_F64)
        *out = value.f;
    else
        *out = value.kind == NUMBER_U64 ? (double)value.u : (double)value.i;
    return BRIM_OK;
}

brim_status brim_meta_bool(bool *out, const brim_model_file *file, const brim_meta *meta,
                           uint64_t index)
{
    const gguf_meta *entry;
    BRIM_TRY(locate(&entry, file, meta, index));
    if (value_type(&entry->pub) != BRIM_META_BOOL)
        return wrong_type(meta, "a bool");
    *out = entry->data[index] != 0;
    return BRIM_OK;
}

brim_status brim_meta_string(const char **out, size_t *out_size, const brim_model_file *file,
                             const brim_meta *meta, uint64_t index)
{
    const gguf_meta *entry;
    BRIM_TRY(locate(&entry, file, meta, index));
    if (value_type(&entry->pub) != BRIM_META_STRING)
        return wrong_type(meta, "a string");
    const uint8_t *p = entry->data + (entry->index ? entry->index[index] : 0);
    *out = (const char *)p + sizeof(uint64_t);
    *out_size = (size_t)LOAD(uint64_t, p);
    return BRIM_OK;
}
