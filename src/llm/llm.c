/* llm.c: weights from a model file. Matrices become tiles in their own quantisation, packed by
 * several threads; the pages of the file are let go piece by piece, so that the weights are never
 * in memory twice. Norms and biases become floats. For a device: resident_weights.c. */
#include "llm/resident_weights.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "model/gguf.h"

enum {
    DESC_FILLED = 0x4c4c4d30,
    THREADS_MAX = 64,
    CONTEXT_DEFAULT_MAX = 4096,
    TASK_BYTES = 4 << 20, /* of tiles: how much one thread packs before it lets pages go */
};

brim_llm_desc brim_llm_desc_default(void)
{
    return (brim_llm_desc){.do_not_set = DESC_FILLED};
}

/* ---- packing ---- */

typedef struct pack_task {
    const brim_tensor *tensor;
    brim__matrix *matrix;
    uint32_t first, count; /* row blocks */
} pack_task;

typedef struct packer {
    const brim_model_file *file;
    const brim_llm_desc *desc;
    pack_task *tasks;
    size_t task_count, task_capacity;
    _Atomic size_t next;
    _Atomic uint64_t done_bytes;
    uint64_t total_bytes;
} packer;

static void release_rows(const packer *p, const pack_task *task)
{
    const gguf_part *part = &p->file->parts[task->tensor->part];
    if (!part->map.data)
        return;
    uint64_t first_row = (uint64_t)task->first * task->matrix->tiling.tile_rows;
    uint64_t rows = (uint64_t)task->count * task->matrix->tiling.tile_rows;
    if (first_row + rows > task->tensor->row_count)
        rows = task->tensor->row_count - first_row;
    brim__map_release(&part->map, task->tensor->file_offset + first_row * task->tensor->row_bytes,
                      rows * task->tensor->row_bytes);
}

static void pack_until_done(packer *p, bool report)
{
    size_t n;
    while ((n = atomic_fetch_add(&p->next, 1)) < p->task_count) {
        const pack_task *task = &p->tasks[n];
        const brim__tiling *t = &task->matrix->tiling;
        uint64_t bytes = task->count * t->row_block_bytes;
        brim__tile_pack((char *)task->matrix->tiles + task->first * t->row_block_bytes, t,
                        task->tensor->data, task->first, task->count);
        release_rows(p, task);
        uint64_t done = atomic_fetch_add(&p->done_bytes, bytes) + bytes;
        if (report && p->desc->progress)
            p->desc->progress(done, p->total_bytes, p->desc->user);
    }
}

static void pack_thread(void *user)
{
    pack_until_done(user, false);
}

static brim_status pack_all(packer *p, brim_context *ctx)
{
    uint32_t wanted = p->desc->threads ? p->desc->threads : brim__cpu_count();
    brim__thread *threads[THREADS_MAX] = {0};
    uint32_t count = wanted < THREADS_MAX ? wanted : THREADS_MAX;
    /* A thread that cannot be started is no failure: the others do its share. */
    for (uint32_t i = 1; i < count; i++)
        if (brim__thread_start(&threads[i], ctx, "pack", pack_thread, p) != BRIM_OK)
            break;
    pack_until_done(p, true);
    for (uint32_t i = 1; i < count; i++)
        brim__thread_join(threads[i], ctx);
    return BRIM_OK;
}

static brim_status add_matrix(packer *p, brim_llm *llm, brim__matrix *matrix, const char *name)
{
    const brim_tensor *tensor = brim_model_file_tensor(p->file, name);
    BRIM_FAIL_IF(!tensor || !tensor->data, FORMAT, "model.tensor", "tensor %s is missing", name);
    BRIM_FAIL_IF(tensor->row_count > UINT32_MAX || tensor->dims[0] > UINT32_MAX, FORMAT,
                 "model.tensor", "tensor %s is too large", name);
    brim_status status = brim__tiling_of(&matrix->tiling, tensor->type, (uint32_t)tensor->row_count,
                                         (uint32_t)tensor->dims[0]);
    if (status != BRIM_OK)
        brim__fail_prefix("tensor %s", name);
    BRIM_TRY(status);
    BRIM_ALLOC(llm->ctx, matrix->tiles, matrix->tiling.bytes);
    uint32_t step = (uint32_t)(TASK_BYTES / matrix->tiling.row_block_bytes);
    step = step ? step : 1;
    p->total_bytes += matrix->tiling.bytes;
    for (uint32_t first = 0; first < matrix->tiling.row_blocks; first += step) {
        uint32_t left = matrix->tiling.row_blocks - first;
        BRIM_TRY(BRIM_GROW(llm->ctx, p->tasks, p->task_capacity, p->task_count + 1));
        p->tasks[p->task_count++] = (pack_task){tensor, matrix, first, left < step ? left : step};
    }
    return BRIM_OK;
}

/* ---- vectors ---- */

brim_status brim__llm_read_vector(brim__vector *out, brim_context *ctx, const brim_model_file *file,
                                  const char *name)
{
    *out = (brim__vector){0};
    const brim_tensor *tensor = brim_model_file_tensor(file, name);
    BRIM_FAIL_IF(!tensor || !tensor->data, FORMAT, "model.tensor", "tensor %s is missing", name);
    BRIM_FAIL_IF(tensor->row_count != 1 || tensor->dims[0] > UINT32_MAX ||
                     brim_dtype_block(tensor->type) != 1,
                 FORMAT, "model.tensor", "tensor %s must be one row of F32, F16 or BF16", name);
    out->count = (uint32_t)tensor->dims[0];
    BRIM_ALLOC(ctx, out->values, 4 * (size_t)out->count);
    brim__dequantize_row(out->values, tensor->type, tensor->data, out->count);
    for (uint32_t i = 0; i < out->count; i++)
        BRIM_FAIL_IF(!isfinite(out->values[i]), FORMAT, "llm.values",
                     "tensor %s at file offset %llu: value %u is not finite", name,
                     (unsigned long long)tensor->file_offset, i);
    brim_model_file_release(file, tensor);
    return BRIM_OK;
}

static brim_status read_layer(packer *p, brim_llm *llm, uint32_t n)
{
    static const char *const matrices[] = {
#define MATRIX_TEXT(name, text) text,
        BRIM__LAYER_MATRICES(MATRIX_TEXT)
#undef MATRIX_TEXT
    };
    const brim_model_config *config = &llm->config;
    char name[64];
    brim__layer *layer = &llm->layers[n];
    for (int m = 0; m < MATRIX_COUNT; m++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", n, matrices[m]);
        BRIM_TRY(add_matrix(p, llm, &layer->matrices[m], name));
    }
#define READ_VECTOR(id, text, present)                                                             \
    if (present) {                                                                                 \
        snprintf(name, sizeof name, "blk.%u." text, n);                                            \
        BRIM_TRY(brim__llm_read_vector(&layer->vectors[VECTOR_##id], llm->ctx, p->file, name));    \
    }
    BRIM__LAYER_VECTORS(READ_VECTOR)
#undef READ_VECTOR
    return BRIM_OK;
}

static brim_status read_all(brim_llm *llm, packer *p)
{
    const brim_model_config *config = &llm->config;
    BRIM_CALLOC(llm->ctx, llm->layers, config->layer_count);
    BRIM_TRY(add_matrix(p, llm, &llm->embedding, "token_embd.weight"));
    if (!config->tied_head)
        BRIM_TRY(add_matrix(p, llm, &llm->head, "output.weight"));
    BRIM_TRY(brim__llm_read_vector(&llm->final_norm, llm->ctx, p->file, "output_norm.weight"));
    for (uint32_t n = 0; n < config->layer_count; n++)
        BRIM_TRY(read_layer(p, llm, n));
    return pack_all(p, llm->ctx);
}

brim_status brim_llm_create(brim_llm **out, brim_context *ctx, const brim_model_file *file,
                            const brim_llm_desc *desc)
{
    *out = NULL;
    brim_llm_desc filled = desc ? *desc : brim_llm_desc_default();
    BRIM_FAIL_IF(filled.do_not_set != DESC_FILLED, USAGE, "llm.desc",
                 "the description was not made by brim_llm_desc_default()");
    brim_llm *llm;
    BRIM_CALLOC(ctx, llm, 1);
    llm->ctx = ctx;
    packer p = {.file = file, .desc = &filled};
    brim_status status = brim_model_config_read(&llm->config, file);
    if (status == BRIM_OK && llm->config.has_rope_factors)
        status = brim__llm_read_vector(&llm->rope_factors, ctx, file, "rope_freqs.weight");
    if (status == BRIM_OK && filled.device)
        status = brim__resident_create(&llm->resident, llm, file, &filled);
    else if (status == BRIM_OK)
        status = read_all(llm, &p);
    brim__free(ctx, p.tasks);
    if (status != BRIM_OK) {
        brim_llm_destroy(llm);
        return status;
    }
    /* Of a model whose head is its own, the embedding is looked up, not streamed. */
    if (llm->resident)
        llm->decode_bytes = brim__resident_decode_bytes(llm->resident, &llm->config);
    else
        llm->decode_bytes = p.total_bytes - (llm->head.tiles ? llm->embedding.tiling.bytes : 0);
    *out = llm;
    return BRIM_OK;
}

void brim_llm_destroy(brim_llm *llm)
{
    if (!llm)
        return;
    brim_context *ctx = llm->ctx;
    for (uint32_t n = 0; llm->layers && n < llm->config.layer_count; n++) {
        for (int m = 0; m < MATRIX_COUNT; m++)
            brim__free(ctx, llm->layers[n].matrices[m].tiles);
        for (int v = 0; v < VECTOR_COUNT; v++)
            brim__free(ctx, llm->layers[n].vectors[v].values);
    }
    brim__free(ctx, llm->layers);
    brim__free(ctx, llm->embedding.tiles);
    brim__free(ctx, llm->head.tiles);
    brim__free(ctx, llm->final_norm.values);
    brim__free(ctx, llm->rope_factors.values);
    brim__resident_destroy(llm->resident);
    brim__free(ctx, llm);
}

brim_device *brim_llm_device(const brim_llm *llm)
{
    return llm->resident ? llm->resident->device : NULL;
}

bool brim_llm_device_type(brim_dtype *out, const brim_llm *llm)
{
    if (llm->resident)
        *out = llm->resident->type;
    return llm->resident != NULL;
}

uint32_t brim__llm_context_default(const brim_llm *llm)
{
    uint32_t trained = llm->config.context_trained;
    return trained < CONTEXT_DEFAULT_MAX ? trained : CONTEXT_DEFAULT_MAX;
}

const brim_model_config *brim_llm_config(const brim_llm *llm)
{
    return &llm->config;
}

uint64_t brim_llm_decode_bytes(const brim_llm *llm)
{
    return llm->decode_bytes;
}
