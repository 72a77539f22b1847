/* model_file.c: a model file with all its parts: opening, closing, and looking things up.
 *
 * Split files follow llama.cpp's gguf-split: parts are named NAME-00001-of-0000N.gguf, every part
 * is a GGUF file of its own with split.no (from 0), split.count and split.tensors.count, and the
 * metadata is that of the first part. */
#include "model/gguf.h"

#include <stdio.h>
#include <string.h>

enum { PATH_SHOWN = 300, SUFFIX_BYTES = 32 };

/* Long paths would push the message itself out of its 1,023 bytes: their end is what tells files
 * apart. */
static void prefix_path(const char *path)
{
    size_t size = strlen(path);
    bool cut = size > PATH_SHOWN;
    brim__fail_prefix("%s%s", cut ? "..." : "", cut ? path + size - PATH_SHOWN : path);
}

static brim_status file_create(brim_model_file **out, brim_context *ctx, const char *path)
{
    brim_model_file *file;
    BRIM_CALLOC(ctx, file, 1);
    file->ctx = ctx;
    file->path = brim__strdup(ctx, path);
    file->parts = brim__calloc(ctx, 1, sizeof *file->parts);
    if (!file->path || !file->parts) {
        brim_model_file_close(file);
        return BRIM_NO_MEMORY;
    }
    *out = file;
    return BRIM_OK;
}

/* Maps and parses part `index`, for which file->parts has room. */
static brim_status open_part(brim_model_file *file, uint32_t index, const char *path)
{
    gguf_part *part = &file->parts[index];
    *part = (gguf_part){0};
    file->part_count = index + 1;
    part->path = brim__strdup(file->ctx, path);
    if (!part->path)
        return BRIM_NO_MEMORY;
    BRIM_TRY(brim__map_open(&part->map, path));
    part->data = part->map.data;
    part->size = part->map.size;
    brim_status status = gguf__parse_part(file, part, index);
    if (status != BRIM_OK && status != BRIM_NO_MEMORY)
        prefix_path(path);
    return status;
}

/* ---- split files ---- */

/* An integer of a part's metadata, *out unchanged when the key is absent. */
static brim_status part_u64(uint64_t *out, const brim_model_file *file, const gguf_part *part,
                            const char *key)
{
    const gguf_meta *meta = gguf__part_meta(part, key);
    return meta ? brim_meta_u64(out, file, &meta->pub, 0) : BRIM_OK;
}

/* "-00001-of-00003.gguf" for (0, 3). */
static void part_suffix(char out[SUFFIX_BYTES], uint64_t index, uint64_t count)
{
    snprintf(out, SUFFIX_BYTES, "-%05u-of-%05u.gguf", (unsigned)index + 1, (unsigned)count);
}

static brim_status open_numbered_part(brim_model_file *file, uint32_t index, uint32_t count,
                                      size_t stem_size)
{
    char suffix[SUFFIX_BYTES];
    part_suffix(suffix, index, count);
    brim__string path = {.ctx = file->ctx};
    brim_status status = brim__string_append(&path, file->path, stem_size);
    if (status == BRIM_OK)
        status = brim__string_text(&path, suffix);
    if (status == BRIM_OK)
        status = open_part(file, index, path.data);
    brim__string_done(&path);
    BRIM_TRY(status);
    const gguf_part *part = &file->parts[index];
    uint64_t number = UINT64_MAX, total = UINT64_MAX;
    BRIM_TRY(part_u64(&number, file, part, "split.no"));
    BRIM_TRY(part_u64(&total, file, part, "split.count"));
    BRIM_FAIL_IF(number != index || total != count, FORMAT, "gguf.split",
                 "%s: its metadata do not say that it is part %u of %u (split.no %lld, split.count "
                 "%lld)",
                 part->path, index + 1, count, (long long)number, (long long)total);
    return BRIM_OK;
}

static brim_status check_split_tensors(const brim_model_file *file)
{
    uint64_t expected = file->tensor_count;
    BRIM_TRY(part_u64(&expected, file, &file->parts[0], "split.tensors.count"));
    BRIM_FAIL_IF(expected != file->tensor_count, FORMAT, "gguf.split",
                 "%s: split.tensors.count says %llu tensors, the %u parts hold %zu", file->path,
                 (unsigned long long)expected, file->part_count, file->tensor_count);
    return BRIM_OK;
}

/* Opens parts 2 to N when the first one says that there are any. */
static brim_status open_other_parts(brim_model_file *file)
{
    uint64_t count = 0, number = 0;
    BRIM_TRY(part_u64(&count, file, &file->parts[0], "split.count"));
    BRIM_TRY(part_u64(&number, file, &file->parts[0], "split.no"));
    if (count <= 1)
        return BRIM_OK;
    BRIM_FAIL_IF(count > GGUF_PART_COUNT_MAX, LIMIT, "gguf.limit",
                 "split into %llu parts (split.count); at most %d are supported",
                 (unsigned long long)count, GGUF_PART_COUNT_MAX);
    BRIM_FAIL_IF(!file->parts[0].path, UNSUPPORTED, "gguf.split",
                 "bytes in memory are one of %llu parts (split.count); open the first part's file",
                 (unsigned long long)count);
    char suffix[SUFFIX_BYTES];
    part_suffix(suffix, 0, count);
    BRIM_FAIL_IF(number != 0, FORMAT, "gguf.split",
                 "%s: this is part %llu of %llu; open the first part, whose name ends in %s",
                 file->path, (unsigned long long)number + 1, (unsigned long long)count, suffix);
    size_t path_size = strlen(file->path), suffix_size = strlen(suffix);
    BRIM_FAIL_IF(
        path_size <= suffix_size || strcmp(file->path + path_size - suffix_size, suffix) != 0,
        FORMAT, "gguf.split",
        "%s: this is the first of %llu parts, so its name must end in %s for the others to be "
        "found",
        file->path, (unsigned long long)count, suffix);
    gguf_part *parts = brim__realloc(file->ctx, file->parts, (size_t)count * sizeof *parts);
    if (!parts)
        return BRIM_NO_MEMORY;
    file->parts = parts;
    for (uint32_t i = 1; i < count; i++)
        BRIM_TRY(open_numbered_part(file, i, (uint32_t)count, path_size - suffix_size));
    return check_split_tensors(file);
}

/* ---- opening ---- */

static int compare_names(uint32_t a, uint32_t b, const void *user)
{
    const gguf_tensor *tensors = user;
    return strcmp(tensors[a].name, tensors[b].name);
}

/* Nothing moves from here on: pointers into the arrays are set. */
static brim_status file_finish(brim_model_file *file)
{
    gguf_tensor *tensors = file->tensors;
    for (size_t i = 0; i < file->tensor_count; i++)
        tensors[i].pub.name = tensors[i].name;
    BRIM_ALLOC(file->ctx, file->tensor_order, file->tensor_count * sizeof *file->tensor_order);
    gguf__sort(file->tensor_order, file->tensor_count, compare_names, tensors);
    for (size_t i = 1; i < file->tensor_count; i++) {
        const gguf_tensor *a = &tensors[file->tensor_order[i - 1]];
        const gguf_tensor *b = &tensors[file->tensor_order[i]];
        BRIM_FAIL_IF(
            strcmp(a->name, b->name) == 0, FORMAT, "gguf.name_duplicate",
            "two tensors are named \"%s\": at offset %llu of part %u and at offset %llu of "
            "part %u",
            a->name, (unsigned long long)a->info_offset, a->pub.part + 1,
            (unsigned long long)b->info_offset, b->pub.part + 1);
    }
    return BRIM_OK;
}

brim_status brim_model_file_open(brim_model_file **out, brim_context *ctx, const char *path)
{
    *out = NULL;
    brim_model_file *file;
    BRIM_TRY(file_create(&file, ctx, path));
    brim_status status;
    BRIM_TRY_GOTO(open_part(file, 0, path), failed);
    BRIM_TRY_GOTO(open_other_parts(file), failed);
    BRIM_TRY_GOTO(file_finish(file), failed);
    *out = file;
    return BRIM_OK;
failed:
    brim_model_file_close(file);
    return status;
}

brim_status brim_model_file_open_memory(brim_model_file **out, brim_context *ctx, const void *data,
                                        size_t size)
{
    *out = NULL;
    BRIM_FAIL_IF((uintptr_t)data % GGUF_ALIGNMENT_MIN != 0, USAGE, "gguf.memory",
                 "the bytes of a model must begin at a multiple of %d", GGUF_ALIGNMENT_MIN);
    brim_model_file *file;
    BRIM_TRY(file_create(&file, ctx, ""));
    file->part_count = 1;
    file->parts[0].data = data;
    file->parts[0].size = size;
    brim_status status;
    BRIM_TRY_GOTO(gguf__parse_part(file, &file->parts[0], 0), failed);
    BRIM_TRY_GOTO(open_other_parts(file), failed);
    BRIM_TRY_GOTO(file_finish(file), failed);
    *out = file;
    return BRIM_OK;
failed:
    brim_model_file_close(file);
    return status;
}

void brim_model_file_close(brim_model_file *file)
{
    if (!file)
        return;
    for (uint32_t i = 0; i < file->part_count; i++)
        gguf__part_done(&file->parts[i], file->ctx);
    brim__free(file->ctx, file->parts);
    brim__free(file->ctx, file->tensors);
    brim__free(file->ctx, file->tensor_order);
    brim__free(file->ctx, file->path);
    brim__free(file->ctx, file);
}

/* ---- looking things up ---- */

const char *brim_model_file_path(const brim_model_file *file)
{
    return file->path;
}

uint32_t brim_model_file_version(const brim_model_file *file)
{
    return file->parts[0].version;
}

uint64_t brim_model_file_size(const brim_model_file *file)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < file->part_count; i++)
        size += file->parts[i].size;
    return size;
}

uint32_t brim_model_file_part_count(const brim_model_file *file)
{
    return file->part_count;
}

size_t brim_model_file_meta_count(const brim_model_file *file)
{
    return file->parts[0].meta_count;
}

const brim_meta *brim_model_file_meta_at(const brim_model_file *file, size_t index)
{
    return index < file->parts[0].meta_count ? &file->parts[0].metas[index].pub : NULL;
}

const brim_meta *brim_model_file_meta(const brim_model_file *file, const char *key)
{
    const gguf_meta *meta = gguf__part_meta(&file->parts[0], key);
    return meta ? &meta->pub : NULL;
}

size_t brim_model_file_tensor_count(const brim_model_file *file)
{
    return file->tensor_count;
}

const brim_tensor *brim_model_file_tensor_at(const brim_model_file *file, size_t index)
{
    return index < file->tensor_count ? &file->tensors[index].pub : NULL;
}

const brim_tensor *brim_model_file_tensor(const brim_model_file *file, const char *name)
{
    size_t low = 0, high = file->tensor_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const gguf_tensor *tensor = &file->tensors[file->tensor_order[middle]];
        int order = strcmp(name, tensor->name);
        if (order == 0)
            return &tensor->pub;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

void brim_model_file_release(const brim_model_file *file, const brim_tensor *tensor)
{
    const gguf_part *part = &file->parts[tensor->part];
    if (part->map.data && tensor->data)
        brim__map_release(&part->map, (size_t)tensor->file_offset, (size_t)tensor->size);
}
