/* gguf.c: parses and validates one GGUF file.
 *
 * A cursor walks over the bytes; each read asks first whether the bytes are there, each count is
 * compared with the bytes that are left before it sizes anything, and sums and products are
 * checked for overflow. The kinds of malformed input follow the advisories that were published
 * for GGUF readers; test/model/test_gguf.c has one test for each. */
#include "model/gguf.h"

#include <string.h>

enum {
    META_BYTES_MIN = 8 + 1 + 4 + 1,           /* key length, key, type, value */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8, /* name length, name, dim count, dim, type, offset */
    NAME_SHOWN = 120,                         /* bytes of a key that a message shows */
};

typedef struct cursor {
    const uint8_t *data;
    size_t size, at;
} cursor;

static size_t bytes_left(const cursor *c)
{
    return c->size - c->at;
}

static brim_status need(const cursor *c, size_t size, const char *what)
{
    BRIM_FAIL_IF(
        bytes_left(c) < size, FORMAT, "gguf.truncated",
        "%s at offset %zu needs %zu bytes, but the file ends at %zu: it is cut or damaged, "
        "fetch it again",
        what, c->at, size, c->size);
    return BRIM_OK;
}

static brim_status read_u32(uint32_t *out, cursor *c, const char *what)
{
    BRIM_TRY(need(c, sizeof *out, what));
    memcpy(out, c->data + c->at, sizeof *out);
    c->at += sizeof *out;
    return BRIM_OK;
}

static brim_status read_u64(uint64_t *out, cursor *c, const char *what)
{
    BRIM_TRY(need(c, sizeof *out, what));
    memcpy(out, c->data + c->at, sizeof *out);
    c->at += sizeof *out;
    return BRIM_OK;
}

static brim_status read_string(const char **out, size_t *out_size, cursor *c, const char *what)
{
    size_t start = c->at;
    uint64_t size;
    BRIM_TRY(read_u64(&size, c, what));
    BRIM_FAIL_IF(size > bytes_left(c), FORMAT, "gguf.string",
                 "%s at offset %zu claims %llu bytes, but %zu are left in the file", what, start,
                 (unsigned long long)size, bytes_left(c));
    *out = (const char *)c->data + c->at;
    *out_size = (size_t)size;
    c->at += (size_t)size;
    return BRIM_OK;
}

/* Keys and names end up in messages, tables and JSON, so they must be text: UTF-8 without control
 * characters (a 0 byte is one). The bad byte's index, or `size`. */
static size_t first_bad_byte(const char *text, size_t size)
{
    size_t bad = brim__utf8_check(text, size);
    for (size_t i = 0; i < bad; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return i;
    return bad;
}

/* `what` is "key" or "tensor name"; the id is "gguf.key" or "gguf.name". */
static brim_status read_name(const char **out, size_t *out_size, cursor *c, const char *what,
                             const char *id, size_t size_max)
{
    size_t start = c->at;
    BRIM_TRY(read_string(out, out_size, c, what));
    if (*out_size == 0)
        return brim__fail(BRIM_FORMAT, id, "empty %s at offset %zu", what, start);
    if (*out_size > size_max)
        return brim__fail(BRIM_FORMAT, id,
                          "%s at offset %zu has %zu bytes; at most %zu are allowed", what, start,
                          *out_size, size_max);
    size_t bad = first_bad_byte(*out, *out_size);
    if (bad < *out_size)
        return brim__fail(BRIM_FORMAT, id,
                          "%s at offset %zu is not text: byte 0x%02x at its position %zu", what,
                          start, (unsigned char)(*out)[bad], bad);
    return BRIM_OK;
}

/* ---- metadata ---- */

size_t gguf__value_size(brim_meta_type type)
{
    switch (type) {
    case BRIM_META_U8:
    case BRIM_META_I8:
    case BRIM_META_BOOL:
        return 1;
    case BRIM_META_U16:
    case BRIM_META_I16:
        return 2;
    case BRIM_META_U32:
    case BRIM_META_I32:
    case BRIM_META_F32:
        return 4;
    case BRIM_META_U64:
    case BRIM_META_I64:
    case BRIM_META_F64:
        return 8;
    case BRIM_META_STRING:
    case BRIM_META_ARRAY:
        break;
    }
    return 0;
}

const char *gguf__type_name(uint32_t type)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return type < sizeof names / sizeof *names ? names[type] : "unknown";
}

static brim_status check_type(uint32_t type, const char *key, int key_shown, size_t at)
{
    BRIM_FAIL_IF(type > BRIM_META_F64, FORMAT, "gguf.type",
                 "key \"%.*s\": unknown value type %u at offset %zu", key_shown, key, type, at);
    return BRIM_OK;
}

static brim_status check_bools(const cursor *c, size_t count, const char *key, int key_shown)
{
    for (size_t i = 0; i < count; i++)
        BRIM_FAIL_IF(c->data[c->at + i] > 1, FORMAT, "gguf.bool",
                     "key \"%.*s\": byte %u at offset %zu is no bool (0 or 1)", key_shown, key,
                     c->data[c->at + i], c->at + i);
    return BRIM_OK;
}

/* Walks over meta->pub.count strings and notes where each one starts. The count was compared with
 * the bytes left, so the index is at most half as large as the file. */
static brim_status index_strings(gguf_meta *meta, cursor *c, brim_context *ctx)
{
    size_t count = (size_t)meta->pub.count, start = c->at;
    BRIM_ALLOC(ctx, meta->index, count * sizeof *meta->index);
    for (size_t i = 0; i < count; i++) {
        BRIM_FAIL_IF(c->at - start > UINT32_MAX, LIMIT, "gguf.limit",
                     "the array of strings at offset %zu is larger than 4 GiB", start);
        meta->index[i] = (uint32_t)(c->at - start);
        const char *text;
        size_t size;
        BRIM_TRY(read_string(&text, &size, c, "string of an array"));
    }
    return BRIM_OK;
}

static brim_status read_array(gguf_meta *meta, cursor *c, brim_context *ctx, const char *key,
                              int key_shown)
{
    size_t type_at = c->at;
    uint32_t type;
    uint64_t count;
    BRIM_TRY(read_u32(&type, c, "array item type"));
    BRIM_TRY(check_type(type, key, key_shown, type_at));
    BRIM_FAIL_IF(type == BRIM_META_ARRAY, FORMAT, "gguf.nested",
                 "key \"%.*s\": an array of arrays at offset %zu; nested arrays are not supported",
                 key_shown, key, type_at);
    size_t count_at = c->at;
    BRIM_TRY(read_u64(&count, c, "array length"));
    size_t item_size = gguf__value_size((brim_meta_type)type);
    size_t item_min = item_size ? item_size : sizeof(uint64_t); /* a string has its length */
    BRIM_FAIL_IF(
        count > bytes_left(c) / item_min, FORMAT, "gguf.count",
        "key \"%.*s\": %llu items of type %s claimed at offset %zu, but %zu bytes are left",
        key_shown, key, (unsigned long long)count, gguf__type_name(type), count_at, bytes_left(c));
    meta->pub.item_type = (brim_meta_type)type;
    meta->pub.count = count;
    meta->pub.file_offset = c->at;
    meta->data = c->data + c->at;
    if (type == BRIM_META_STRING)
        return index_strings(meta, c, ctx);
    if (type == BRIM_META_BOOL)
        BRIM_TRY(check_bools(c, (size_t)count, key, key_shown));
    c->at += (size_t)count * item_size;
    return BRIM_OK;
}

static brim_status read_value(gguf_meta *meta, cursor *c, brim_context *ctx, const char *key,
                              int key_shown)
{
    meta->pub.count = 1;
    meta->pub.item_type = meta->pub.type;
    meta->pub.file_offset = c->at;
    meta->data = c->data + c->at;
    if (meta->pub.type == BRIM_META_ARRAY)
        return read_array(meta, c, ctx, key, key_shown);
    if (meta->pub.type == BRIM_META_STRING) {
        const char *text;
        size_t size;
        return read_string(&text, &size, c, "string value");
    }
    size_t size = gguf__value_size(meta->pub.type);
    BRIM_TRY(need(c, size, "value"));
    if (meta->pub.type == BRIM_META_BOOL)
        BRIM_TRY(check_bools(c, 1, key, key_shown));
    c->at += size;
    return BRIM_OK;
}

static brim_status read_meta(gguf_part *part, cursor *c, brim_context *ctx)
{
    const char *key;
    size_t key_size;
    BRIM_TRY(read_name(&key, &key_size, c, "key", "gguf.key", GGUF_KEY_BYTES_MAX));
    int key_shown = key_size > NAME_SHOWN ? NAME_SHOWN : (int)key_size;
    size_t type_at = c->at;
    uint32_t type;
    BRIM_TRY(read_u32(&type, c, "value type"));
    BRIM_TRY(check_type(type, key, key_shown, type_at));
    BRIM_TRY(BRIM_GROW(ctx, part->metas, part->meta_capacity, part->meta_count + 1));
    gguf_meta *meta = &part->metas[part->meta_count];
    *meta = (gguf_meta){.key_at = part->keys.size, .key_size = key_size};
    meta->pub.type = (brim_meta_type)type;
    part->meta_count++; /* from here on gguf__part_done() frees its index */
    BRIM_TRY(brim__string_append(&part->keys, key, key_size));
    BRIM_TRY(brim__string_append(&part->keys, "", 1));
    return read_value(meta, c, ctx, key, key_shown);
}

static int compare_keys(uint32_t a, uint32_t b, const void *user)
{
    const gguf_part *part = user;
    return strcmp(part->metas[a].pub.key, part->metas[b].pub.key);
}

static brim_status sort_metas(gguf_part *part, brim_context *ctx)
{
    for (size_t i = 0; i < part->meta_count; i++)
        part->metas[i].pub.key = part->keys.data + part->metas[i].key_at;
    BRIM_ALLOC(ctx, part->meta_order, part->meta_count * sizeof *part->meta_order);
    gguf__sort(part->meta_order, part->meta_count, compare_keys, part);
    for (size_t i = 1; i < part->meta_count; i++) {
        const brim_meta *a = &part->metas[part->meta_order[i - 1]].pub;
        const brim_meta *b = &part->metas[part->meta_order[i]].pub;
        BRIM_FAIL_IF(strcmp(a->key, b->key) == 0, FORMAT, "gguf.key_duplicate",
                     "key \"%.*s\" occurs twice: values at offsets %llu and %llu", NAME_SHOWN,
                     a->key, (unsigned long long)a->file_offset,
                     (unsigned long long)b->file_offset);
    }
    return BRIM_OK;
}

const gguf_meta *gguf__part_meta(const gguf_part *part, const char *key)
{
    size_t low = 0, high = part->meta_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const gguf_meta *meta = &part->metas[part->meta_order[middle]];
        int order = strcmp(key, meta->pub.key);
        if (order == 0)
            return meta;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static brim_status read_alignment(gguf_part *part)
{
    part->alignment = GGUF_ALIGNMENT_DEFAULT;
    const gguf_meta *meta = gguf__part_meta(part, "general.alignment");
    if (!meta)
        return BRIM_OK;
    BRIM_FAIL_IF(meta->pub.type != BRIM_META_U32, FORMAT, "gguf.alignment",
                 "general.alignment at offset %llu is of type %s; u32 is required",
                 (unsigned long long)meta->pub.file_offset, gguf__type_name(meta->pub.type));
    uint32_t value;
    memcpy(&value, meta->data, sizeof value);
    BRIM_FAIL_IF(
        value < GGUF_ALIGNMENT_MIN || (value & (value - 1)) != 0, FORMAT, "gguf.alignment",
        "general.alignment is %u at offset %llu; a power of two of at least %d is required", value,
        (unsigned long long)meta->pub.file_offset, GGUF_ALIGNMENT_MIN);
    part->alignment = value;
    return BRIM_OK;
}

/* ---- tensors ---- */

static brim_status read_dims(gguf_tensor *tensor, cursor *c)
{
    brim_tensor *t = &tensor->pub;
    size_t at = c->at;
    BRIM_TRY(read_u32(&t->dim_count, c, "dimension count"));
    BRIM_FAIL_IF(t->dim_count < 1 || t->dim_count > BRIM_TENSOR_DIMS_MAX, FORMAT, "gguf.dims",
                 "tensor \"%s\": %u dimensions at offset %zu; 1 to %d are allowed", tensor->name,
                 t->dim_count, at, BRIM_TENSOR_DIMS_MAX);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < BRIM_TENSOR_DIMS_MAX; i++) {
        t->dims[i] = 1;
        if (i >= t->dim_count)
            continue;
        at = c->at;
        BRIM_TRY(read_u64(&t->dims[i], c, "dimension"));
        BRIM_FAIL_IF(t->dims[i] == 0, FORMAT, "gguf.dims",
                     "tensor \"%s\": dimension %u at offset %zu is zero", tensor->name, i, at);
        BRIM_FAIL_IF(
            __builtin_mul_overflow(elements, t->dims[i], &elements) || elements > INT64_MAX, FORMAT,
            "gguf.dims",
            "tensor \"%s\": its dimensions multiply to more than 2^63-1 elements (offset %zu)",
            tensor->name, at);
    }
    t->row_count = elements / t->dims[0];
    return BRIM_OK;
}

static brim_status read_dtype(gguf_tensor *tensor, cursor *c)
{
    brim_tensor *t = &tensor->pub;
    size_t at = c->at;
    uint32_t type;
    BRIM_TRY(read_u32(&type, c, "tensor type"));
    const char *name = brim_dtype_name(type);
    BRIM_FAIL_IF(
        !brim_dtype_known(type), UNSUPPORTED, "gguf.dtype",
        "tensor \"%s\": type %u (%s) at offset %zu is not supported; supported are F32, F16, "
        "BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K",
        tensor->name, type, name ? name : "not a type that the GGUF format lists", at);
    t->type = (brim_dtype)type;
    uint32_t block = brim_dtype_block(t->type), bytes = brim_dtype_block_bytes(t->type);
    BRIM_FAIL_IF(
        t->dims[0] % block != 0, FORMAT, "gguf.block",
        "tensor \"%s\": rows of %llu elements are no multiple of the %u that a block of %s "
        "holds (offset %zu)",
        tensor->name, (unsigned long long)t->dims[0], block, name, at);
    BRIM_FAIL_IF(__builtin_mul_overflow(t->dims[0] / block, bytes, &t->row_bytes) ||
                     __builtin_mul_overflow(t->row_bytes, t->row_count, &t->size),
                 FORMAT, "gguf.size", "tensor \"%s\": its size in bytes overflows (offset %zu)",
                 tensor->name, at);
    return BRIM_OK;
}

static brim_status read_tensor(brim_model_file *file, gguf_part *part, uint32_t part_index,
                               cursor *c)
{
    const char *name;
    size_t name_size, start = c->at;
    BRIM_TRY(read_name(&name, &name_size, c, "tensor name", "gguf.name", GGUF_NAME_BYTES_MAX));
    BRIM_TRY(BRIM_GROW(file->ctx, file->tensors, file->tensor_capacity, file->tensor_count + 1));
    gguf_tensor *tensor = &file->tensors[file->tensor_count];
    *tensor = (gguf_tensor){.info_offset = start};
    memcpy(tensor->name, name, name_size);
    tensor->pub.part = part_index;
    BRIM_TRY(read_dims(tensor, c));
    BRIM_TRY(read_dtype(tensor, c));
    size_t at = c->at;
    BRIM_TRY(read_u64(&tensor->pub.file_offset, c, "tensor offset"));
    BRIM_FAIL_IF(
        tensor->pub.file_offset % part->alignment != 0, FORMAT, "gguf.offset",
        "tensor \"%s\": data offset %llu (at offset %zu) is no multiple of the alignment %u",
        tensor->name, (unsigned long long)tensor->pub.file_offset, at, part->alignment);
    file->tensor_count++;
    part->tensor_count++;
    return BRIM_OK;
}

/* Turns offsets into the data section into offsets into the file, once the section's start is
 * known. */
static brim_status place_tensors(brim_model_file *file, gguf_part *part, size_t info_end)
{
    uint64_t mask = (uint64_t)part->alignment - 1;
    part->data_start = ((uint64_t)info_end + mask) & ~mask;
    for (size_t i = 0; i < part->tensor_count; i++) {
        gguf_tensor *tensor = &file->tensors[part->tensor_first + i];
        uint64_t start, end;
        bool overflow = __builtin_add_overflow(part->data_start, tensor->pub.file_offset, &start) ||
                        __builtin_add_overflow(start, tensor->pub.size, &end);
        BRIM_FAIL_IF(
            overflow || end > part->size, FORMAT, "gguf.range",
            "tensor \"%s\": %llu bytes at data offset %llu end past the file's %zu bytes; the "
            "file is cut or damaged, fetch it again (described at offset %llu)",
            tensor->name, (unsigned long long)tensor->pub.size,
            (unsigned long long)tensor->pub.file_offset, part->size,
            (unsigned long long)tensor->info_offset);
        tensor->pub.file_offset = start;
        tensor->pub.data = part->data + start;
    }
    return BRIM_OK;
}

static int compare_offsets(uint32_t a, uint32_t b, const void *user)
{
    const gguf_tensor *tensors = user;
    uint64_t x = tensors[a].pub.file_offset, y = tensors[b].pub.file_offset;
    return (x > y) - (x < y);
}

static brim_status check_overlap(brim_model_file *file, const gguf_part *part)
{
    size_t count = part->tensor_count, i;
    if (count == 0)
        return BRIM_OK;
    const gguf_tensor *tensors = file->tensors + part->tensor_first;
    uint32_t *order;
    BRIM_ALLOC(file->ctx, order, count * sizeof *order);
    gguf__sort(order, count, compare_offsets, tensors);
    const gguf_tensor *a = NULL, *b = NULL;
    for (i = 1; i < count; i++) {
        a = &tensors[order[i - 1]], b = &tensors[order[i]];
        if (a->pub.file_offset + a->pub.size > b->pub.file_offset)
            break;
    }
    brim__free(file->ctx, order);
    BRIM_FAIL_IF(i < count, FORMAT, "gguf.overlap",
                 "tensors \"%s\" (%llu bytes at offset %llu) and \"%s\" (at offset %llu) overlap",
                 a->name, (unsigned long long)a->pub.size, (unsigned long long)a->pub.file_offset,
                 b->name, (unsigned long long)b->pub.file_offset);
    return BRIM_OK;
}

/* ---- the whole ---- */

static brim_status read_magic(cursor *c)
{
    static const struct {
        const char *magic, *what;
    } others[] = {
        {"lmgg", "an old GGML file; convert the model to GGUF again"},
        {"fmgg", "an old GGMF file; convert the model to GGUF again"},
        {"tjgg", "an old GGJT file; convert the model to GGUF again"},
        {"\x1f\x8b", "compressed with gzip; decompress it first"},
        {"PK\x03\x04", "a ZIP archive, perhaps a PyTorch checkpoint; convert it to GGUF"},
        {"version ", "a Git LFS pointer, not the file itself; fetch it with git lfs pull"},
        {"<!DOCTYPE", "a web page, not a model; look at the address it was fetched from"},
    };
    const char *hint = NULL;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        size_t n = strlen(others[i].magic);
        if (c->size >= n && memcmp(c->data, others[i].magic, n) == 0)
            hint = others[i].what;
    }
    if (!hint && c->size > 9 && c->data[8] == '{' && c->data[7] == 0)
        hint = "perhaps a safetensors file; convert it to GGUF";
    BRIM_FAIL_IF(c->size == 0, FORMAT, "gguf.magic", "the file is empty");
    BRIM_FAIL_IF(c->size < 4 || memcmp(c->data, "GGUF", 4) != 0, FORMAT, "gguf.magic",
                 "not a GGUF file: it does not start with \"GGUF\" (%s)",
                 hint ? hint : "what it is was not recognised");
    c->at = 4;
    return BRIM_OK;
}

static brim_status read_version(uint32_t *out, cursor *c)
{
    BRIM_TRY(read_u32(out, c, "version"));
    uint32_t swapped = __builtin_bswap32(*out);
    BRIM_FAIL_IF(
        (*out & 0xffff) == 0 && swapped >= 1 && swapped <= 0xffff, UNSUPPORTED, "gguf.endian",
        "this GGUF file (version %u) is big-endian; only little-endian files are supported",
        swapped);
    BRIM_FAIL_IF(*out < GGUF_VERSION_MIN || *out > GGUF_VERSION_MAX, UNSUPPORTED, "gguf.version",
                 "GGUF version %u is not supported; versions %d and %d are%s", *out,
                 GGUF_VERSION_MIN, GGUF_VERSION_MAX,
                 *out < GGUF_VERSION_MIN ? ": convert the model again" : "");
    return BRIM_OK;
}

static brim_status read_counts(uint64_t *out_tensors, uint64_t *out_metas, cursor *c)
{
    BRIM_TRY(read_u64(out_tensors, c, "tensor count"));
    BRIM_TRY(read_u64(out_metas, c, "key count"));
    BRIM_FAIL_IF(*out_metas > bytes_left(c) / META_BYTES_MIN, FORMAT, "gguf.count",
                 "%llu keys claimed at offset 16, but the %zu bytes that follow cannot hold them: "
                 "the file is cut or damaged",
                 (unsigned long long)*out_metas, bytes_left(c));
    BRIM_FAIL_IF(*out_tensors > bytes_left(c) / TENSOR_BYTES_MIN, FORMAT, "gguf.count",
                 "%llu tensors claimed at offset 8, but the %zu bytes that follow cannot hold "
                 "them: the file is cut or damaged",
                 (unsigned long long)*out_tensors, bytes_left(c));
    BRIM_FAIL_IF(*out_metas > GGUF_META_COUNT_MAX, LIMIT, "gguf.limit",
                 "%llu keys claimed at offset 16; at most %d are supported",
                 (unsigned long long)*out_metas, GGUF_META_COUNT_MAX);
    BRIM_FAIL_IF(*out_tensors > GGUF_TENSOR_COUNT_MAX, LIMIT, "gguf.limit",
                 "%llu tensors claimed at offset 8; at most %d are supported",
                 (unsigned long long)*out_tensors, GGUF_TENSOR_COUNT_MAX);
    return BRIM_OK;
}

brim_status gguf__parse_part(brim_model_file *file, gguf_part *part, uint32_t part_index)
{
    cursor c = {part->data, part->size, 0};
    uint64_t tensor_count, meta_count;
    BRIM_TRY(read_magic(&c));
    BRIM_TRY(read_version(&part->version, &c));
    BRIM_TRY(read_counts(&tensor_count, &meta_count, &c));
    part->keys.ctx = file->ctx;
    for (uint64_t i = 0; i < meta_count; i++)
        BRIM_TRY(read_meta(part, &c, file->ctx));
    BRIM_TRY(sort_metas(part, file->ctx));
    BRIM_TRY(read_alignment(part));
    part->tensor_first = file->tensor_count;
    for (uint64_t i = 0; i < tensor_count; i++)
        BRIM_TRY(read_tensor(file, part, part_index, &c));
    BRIM_TRY(place_tensors(file, part, c.at));
    return check_overlap(file, part);
}

void gguf__part_done(gguf_part *part, brim_context *ctx)
{
    for (size_t i = 0; i < part->meta_count; i++)
        brim__free(ctx, part->metas[i].index);
    brim__free(ctx, part->metas);
    brim__free(ctx, part->meta_order);
    brim__string_done(&part->keys);
    brim__map_close(&part->map);
    brim__free(ctx, part->path);
}

static void sift_down(uint32_t *order, size_t root, size_t count, gguf_compare *compare,
                      const void *user)
{
    for (;;) {
        size_t child = 2 * root + 1;
        if (child >= count)
            return;
        if (child + 1 < count && compare(order[child], order[child + 1], user) < 0)
            child++;
        if (compare(order[root], order[child], user) >= 0)
            return;
        uint32_t swap = order[root];
        order[root] = order[child];
        order[child] = swap;
        root = child;
    }
}

void gguf__sort(uint32_t *order, size_t count, gguf_compare *compare, const void *user)
{
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (size_t i = count / 2; i-- > 0;)
        sift_down(order, i, count, compare, user);
    for (size_t end = count; end-- > 1;) {
        uint32_t swap = order[0];
        order[0] = order[end];
        order[end] = swap;
        sift_down(order, 0, end, compare, user);
    }
}
