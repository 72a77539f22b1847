/* resident_weights.c: weights from a model file into one block of a device's memory. Threads pack
 * slices of some MiB, each in staging memory of its own; slices are written one after another, in
 * order. Where the host can touch the device's memory they are packed in place. The pages of the
 * file are let go as it goes. */
#include "llm/build_resident.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "device/cuda.h"
#include "kernels/cuda/images.h"
#include "model/gguf.h"

enum {
    THREADS_MAX = 32,
    SLICE_BYTES = 4 << 20,
    PART_ALIGN = 512, /* of what lies in the block */
};

/* ---- what is refused ---- */

static brim_status check_features(const brim_model_config *c)
{
    static const char *const text =
        "the GPU's programs lack %s (this model: %u); --device cpu runs it";
    uint32_t group = c->head_count / c->kv_head_count;
    BRIM_FAIL_IF(c->head_size != 64 && c->head_size != 128, UNSUPPORTED, "resident.model", text,
                 "head sizes other than 64 and 128", c->head_size);
    BRIM_FAIL_IF(c->rope_size != c->head_size, UNSUPPORTED, "resident.model", text,
                 "heads of which only a part is turned by RoPE", c->rope_size);
    BRIM_FAIL_IF(group > BRIM__RES_GROUP_MAX, UNSUPPORTED, "resident.model", text,
                 "more than 8 query heads for a KV head", group);
    BRIM_FAIL_IF(c->embed_size % BRIM__MMA8_COLS, UNSUPPORTED, "resident.model", text,
                 "an embedding whose size is no multiple of 32", c->embed_size);
    BRIM_FAIL_IF(c->ffn_size % BRIM__MMA8_COLS, UNSUPPORTED, "resident.model", text,
                 "a feed-forward size that is no multiple of 32", c->ffn_size);
    return BRIM_OK;
}

static brim_status free_bytes(uint64_t *out, brim_device *device)
{
    brim_device_info info;
    BRIM_TRY(brim_device_query(&info, device));
    *out = info.memory_free_bytes ? info.memory_free_bytes : info.memory_bytes;
    return BRIM_OK;
}

/* A build without device code, or without that for this GPU, says so before weights are copied. */
static brim_status check_images(brim_device *device, brim_dtype type, uint32_t head_size)
{
    brim_device_info info;
    BRIM_TRY(brim_device_query(&info, device));
    if (info.kind != BRIM_DEVICE_CUDA)
        return BRIM_OK;
    BRIM_FAIL_IF(brim__cuda_image_count == 0, UNSUPPORTED, "cuda.image",
                 "this build of Brim has no device code (it was built where nvcc was not found); "
                 "--device cpu runs the model");
    for (uint32_t rows = 1; rows <= BRIM__RES_ROWS_MAX; rows += BRIM__RES_ROWS_MAX - 1) {
        bool found = false;
        for (size_t i = 0; i < brim__cuda_image_count && !found; i++) {
            const brim__cuda_image *image = &brim__cuda_images[i];
            found = image->type == type && image->head_size == (int)head_size &&
                    image->rows == (int)rows &&
                    (image->exact ? image->capability == (int)info.capability
                                  : image->capability <= (int)info.capability);
        }
        BRIM_FAIL_IF(!found, UNSUPPORTED, "cuda.image",
                     "this build of Brim has no device code of type %s, head size %u and %u rows "
                     "for compute capability %u.%u; --device cpu runs the model",
                     brim_dtype_name(type), head_size, rows, info.capability / 10,
                     info.capability % 10);
    }
    return BRIM_OK;
}

brim_status brim__resident_room(brim_device *device, uint64_t weights, uint64_t kv,
                                uint64_t buffers)
{
    const double gib = 1.0 / (1 << 30);
    uint64_t there, needed = weights + kv + buffers;
    BRIM_TRY(free_bytes(&there, device));
    BRIM_FAIL_IF(there && needed > there, NO_MEMORY, "resident.memory",
                 "%.2f GiB of the device's memory are needed (weights %.2f, KV cache %.2f, buffers "
                 "%.2f) and %.2f are free: %.2f GiB are missing; give a smaller --ctx or model, or "
                 "--device cpu",
                 (double)needed * gib, (double)weights * gib, (double)kv * gib,
                 (double)buffers * gib, (double)there * gib, (double)(needed - there) * gib);
    return BRIM_OK;
}

/* ---- the layout ---- */

/* A matrix and the tensors that it is made of. */
typedef struct job {
    const brim__res_matrix *to;
    brim__tiling tiling;
    brim__mma8_matrix from;
    const brim_tensor *tensors[BRIM__MMA8_SOURCES_MAX];
} job;

typedef struct slice {
    uint32_t job;
    uint32_t first, count; /* tiles */
} slice;

typedef struct packer {
    brim__resident *r;
    const brim_llm *llm;
    const brim_model_file *file;
    const brim_llm_desc *desc;
    job *jobs;
    size_t job_count, job_capacity;
    slice *slices;
    size_t slice_count, slice_capacity;
    uint64_t matrix_bytes, vector_bytes;
    uint32_t cols_max;
    uint8_t *host;    /* the block itself, where the host can touch it */
    uint8_t *staging; /* of all threads; else NULL */
    bool staging_pinned;
    float *rows; /* of all threads: cols_max each */
    _Atomic uint64_t done_bytes;
    _Atomic uint32_t next;   /* slice */
    _Atomic uint32_t thread; /* that takes the next staging memory */
    _Atomic uint32_t turn;   /* slice that may be written now */
    brim_status status;      /* of the writes; changed in turn */
    char id[64], message[512];
} packer;

static uint64_t take_place(brim__resident *r, uint64_t bytes)
{
    uint64_t offset = r->bytes;
    r->bytes += (bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    return offset;
}

static brim_status find_tensor(const brim_tensor **out, const brim_model_file *file,
                               const char *name)
{
    *out = brim_model_file_tensor(file, name);
    BRIM_FAIL_IF(!*out || !(*out)->data, FORMAT, "model.tensor", "tensor %s is missing", name);
    BRIM_FAIL_IF((*out)->row_count > UINT32_MAX || (*out)->dims[0] > UINT32_MAX, FORMAT,
                 "model.tensor", "tensor %s is too large", name);
    return BRIM_OK;
}

/* Up to three tensors "blk.N.TEXT.weight" (N none: the text is the whole name). */
static brim_status place_matrix(packer *p, brim__res_matrix *m, uint32_t layer,
                                const char *const texts[BRIM__MMA8_SOURCES_MAX], bool interleaved)
{
    job j = {.to = m, .from.interleaved = interleaved};
    char name[64];
    m->rows = 0;
    for (uint32_t i = 0; i < BRIM__MMA8_SOURCES_MAX && texts[i]; i++) {
        const brim_tensor *t;
        if (layer == BRIM_NONE)
            snprintf(name, sizeof name, "%s", texts[i]);
        else
            snprintf(name, sizeof name, "blk.%u.%s.weight", layer, texts[i]);
        BRIM_TRY(find_tensor(&t, p->file, name));
        j.tensors[i] = t;
        j.from.sources[j.from.source_count++] =
            (brim__mma8_source){t->data, t->type, (uint32_t)t->row_count};
        m->rows += (uint32_t)t->row_count;
    }
    m->cols = (uint32_t)j.tensors[0]->dims[0];
    p->cols_max = m->cols > p->cols_max ? m->cols : p->cols_max;
    BRIM_FAIL_IF(m->cols % BRIM__MMA8_COLS, UNSUPPORTED, "resident.model",
                 "the GPU's programs lack matrices whose columns (%u) are no multiple of 32; "
                 "--device cpu runs it",
                 m->cols);
    m->offset = take_place(p->r, brim__res_matrix_bytes(m));
    p->matrix_bytes += brim__res_matrix_bytes(m);
    BRIM_TRY(BRIM_GROW(p->r->ctx, p->jobs, p->job_capacity, p->job_count + 1));
    p->jobs[p->job_count++] = j;
    return BRIM_OK;
}

/* Once the type is known. */
static brim_status cut_slices(packer *p)
{
    for (uint32_t n = 0; n < p->job_count; n++) {
        job *j = &p->jobs[n];
        BRIM_TRY(brim__tiling_mma8(&j->tiling, p->r->type, j->to->rows, j->to->cols));
        uint64_t tile_bytes = j->tiling.row_block_bytes;
        uint32_t step = tile_bytes < SLICE_BYTES ? (uint32_t)(SLICE_BYTES / tile_bytes) : 1;
        for (uint32_t first = 0; first < j->tiling.row_blocks; first += step) {
            uint32_t left = j->tiling.row_blocks - first;
            BRIM_TRY(BRIM_GROW(p->r->ctx, p->slices, p->slice_capacity, p->slice_count + 1));
            p->slices[p->slice_count++] = (slice){n, first, left < step ? left : step};
        }
    }
    return BRIM_OK;
}

static void place_vector(packer *p, brim__res_vector *v, uint32_t count, bool there)
{
    v->count = there ? count : 0;
    if (there)
        v->offset = take_place(p->r, 4 * (uint64_t)count);
}

/* Vectors first, so that they are one piece. */
static brim_status place_all(packer *p)
{
    static const char *const parts[RES_MATRIX_COUNT][BRIM__MMA8_SOURCES_MAX] = {
        [RES_MATRIX_QKV] = {"attn_q", "attn_k", "attn_v"},
        [RES_MATRIX_OUT] = {"attn_output"},
        [RES_MATRIX_GATE_UP] = {"ffn_gate", "ffn_up"},
        [RES_MATRIX_DOWN] = {"ffn_down"},
    };
    static const char *const embedding[BRIM__MMA8_SOURCES_MAX] = {"token_embd.weight"};
    static const char *const head[BRIM__MMA8_SOURCES_MAX] = {"output.weight"};
    const brim_model_config *c = &p->llm->config;
    brim__resident *r = p->r;
    uint32_t qkv = (c->head_count + 2 * c->kv_head_count) * c->head_size;
    BRIM_CALLOC(r->ctx, r->layers, c->layer_count);
    place_vector(p, &r->final_norm, c->embed_size, true);
    for (uint32_t n = 0; n < c->layer_count; n++) {
        brim__res_vector *v = r->layers[n].vectors;
        place_vector(p, &v[RES_VECTOR_ATTN_NORM], c->embed_size, true);
        place_vector(p, &v[RES_VECTOR_FFN_NORM], c->embed_size, true);
        place_vector(p, &v[RES_VECTOR_Q_NORM], c->head_size, c->has_qk_norm);
        place_vector(p, &v[RES_VECTOR_K_NORM], c->head_size, c->has_qk_norm);
        place_vector(p, &v[RES_VECTOR_QKV_BIAS], qkv, c->has_qkv_bias);
    }
    p->vector_bytes = r->bytes;
    BRIM_TRY(place_matrix(p, &r->embedding, BRIM_NONE, embedding, false));
    for (uint32_t n = 0; n < c->layer_count; n++)
        for (int m = 0; m < RES_MATRIX_COUNT; m++)
            BRIM_TRY(
                place_matrix(p, &r->layers[n].matrices[m], n, parts[m], m == RES_MATRIX_GATE_UP));
    r->head = r->embedding;
    return c->tied_head ? BRIM_OK : place_matrix(p, &r->head, BRIM_NONE, head, false);
}

static brim_dtype choose_type(const packer *p)
{
    for (size_t i = 0; i < p->job_count; i++)
        for (uint32_t t = 0; t < p->jobs[i].from.source_count; t++)
            if (p->jobs[i].tensors[t]->type != BRIM_DTYPE_BF16)
                return BRIM_DTYPE_F16;
    return BRIM_DTYPE_BF16;
}

/* ---- packing ---- */

/* Lets the pages of the rows that a slice has read go. */
static void release_rows(const packer *p, const slice *s)
{
    const job *j = &p->jobs[s->job];
    uint64_t begin = (uint64_t)s->first * BRIM__MMA8_ROWS,
             end = begin + (uint64_t)s->count * BRIM__MMA8_ROWS, start = 0;
    for (uint32_t t = 0; t < j->from.source_count; t++) {
        const brim_tensor *tensor = j->tensors[t];
        const gguf_part *part = &p->file->parts[tensor->part];
        uint64_t first = j->from.interleaved ? begin / 2 : begin > start ? begin - start : 0;
        uint64_t last = j->from.interleaved ? end / 2 : end > start ? end - start : 0;
        last = last < tensor->row_count ? last : tensor->row_count;
        if (part->map.data && first < last)
            brim__map_release(&part->map, tensor->file_offset + first * tensor->row_bytes,
                              (last - first) * tensor->row_bytes);
        start += tensor->row_count;
    }
}

/* Waits for the slice's turn and writes it: one thread at a time uses the device, and the first
 * failure is that of the first slice that failed. */
static void finish_slice(packer *p, uint32_t n, brim_status status, const uint8_t *staged)
{
    const slice *s = &p->slices[n];
    const job *j = &p->jobs[s->job];
    uint32_t turn;
    while ((turn = atomic_load(&p->turn)) != n)
        brim__futex_wait(&p->turn, turn, 0);
    if (p->status == BRIM_OK) {
        uint64_t tile_bytes = j->tiling.row_block_bytes;
        if (status == BRIM_OK && staged)
            status = brim_device_write(p->r->memory, j->to->offset + s->first * tile_bytes, staged,
                                       s->count * tile_bytes);
        if (status != BRIM_OK) {
            p->status = status;
            snprintf(p->id, sizeof p->id, "%s", brim_last_id());
            snprintf(p->message, sizeof p->message, "%s", brim_last_message());
        }
    }
    atomic_store(&p->turn, n + 1);
    brim__futex_wake_all(&p->turn);
}

static uint64_t slot_bytes(const packer *p)
{
    uint64_t tile = 2 * (uint64_t)BRIM__MMA8_ROWS * p->cols_max;
    return tile > SLICE_BYTES ? tile : SLICE_BYTES;
}

static void pack_until_done(packer *p, bool report)
{
    uint32_t thread = atomic_fetch_add(&p->thread, 1), n;
    float *row = p->rows + (size_t)thread * p->cols_max;
    uint8_t *staged = p->staging ? p->staging + thread * slot_bytes(p) : NULL;
    while ((n = atomic_fetch_add(&p->next, 1)) < p->slice_count) {
        const slice *s = &p->slices[n];
        const job *j = &p->jobs[s->job];
        uint64_t tile_bytes = j->tiling.row_block_bytes;
        uint8_t *to = staged ? staged : p->host + j->to->offset + s->first * tile_bytes;
        brim_status status = brim__tile_mma8_pack(to, &j->tiling, &j->from, s->first, s->count, row,
                                                  j->tensors[0]->name);
        release_rows(p, s);
        finish_slice(p, n, status, staged);
        uint64_t bytes = s->count * tile_bytes;
        uint64_t done = atomic_fetch_add(&p->done_bytes, bytes) + bytes;
        if (report && p->desc->progress)
            p->desc->progress(done, p->matrix_bytes, p->desc->user);
    }
}

static void pack_thread(void *user)
{
    pack_until_done(user, false);
}

/* Page-locked memory goes to a GPU at full speed. */
static brim_status take_staging(packer *p, uint32_t threads)
{
    brim__resident *r = p->r;
    uint64_t slot = slot_bytes(p);
    BRIM_ALLOC(r->ctx, p->rows, threads * (size_t)p->cols_max * sizeof *p->rows);
    p->host = brim_device_memory_host(r->memory);
    if (p->host)
        return BRIM_OK;
    brim_device_info info;
    BRIM_TRY(brim_device_query(&info, r->device));
    p->staging_pinned = info.kind == BRIM_DEVICE_CUDA;
    if (p->staging_pinned) {
        brim__cuda_address ignored;
        void *host;
        BRIM_TRY(brim__cuda_mapped_alloc(&host, &ignored, r->device, threads * slot));
        p->staging = host;
        return BRIM_OK;
    }
    BRIM_ALLOC(r->ctx, p->staging, threads * slot);
    return BRIM_OK;
}

static void free_packer(packer *p)
{
    brim_context *ctx = p->r->ctx;
    if (p->staging_pinned && p->staging)
        brim__cuda_mapped_free(p->r->device, p->staging);
    else
        brim__free(ctx, p->staging);
    brim__free(ctx, p->rows);
    brim__free(ctx, p->jobs);
    brim__free(ctx, p->slices);
}

static brim_status pack_matrices(packer *p)
{
    brim_context *ctx = p->r->ctx;
    uint32_t count = p->desc->threads ? p->desc->threads : brim__cpu_count();
    brim__thread *threads[THREADS_MAX] = {0};
    count = count < THREADS_MAX ? count : THREADS_MAX;
    BRIM_TRY(take_staging(p, count));
    /* A thread that cannot be started is no failure: the others do its share. */
    for (uint32_t i = 1; i < count; i++)
        if (brim__thread_start(&threads[i], ctx, "pack", pack_thread, p) != BRIM_OK)
            break;
    pack_until_done(p, true);
    for (uint32_t i = 1; i < count; i++)
        brim__thread_join(threads[i], ctx);
    return p->status == BRIM_OK ? BRIM_OK : brim__fail(p->status, p->id, "%s", p->message);
}

/* ---- vectors ---- */

static brim_status read_into(packer *p, char *block, uint64_t offset, const char *name,
                             uint32_t count)
{
    brim__vector v;
    brim_status status = brim__llm_read_vector(&v, p->r->ctx, p->file, name);
    if (status == BRIM_OK && v.count == count)
        memcpy(block + offset, v.values, 4 * (size_t)count);
    else if (status == BRIM_OK)
        status = brim__fail(BRIM_FORMAT, "model.tensor", "tensor %s has %u values, not %u", name,
                            v.count, count);
    brim__free(p->r->ctx, v.values);
    return status;
}

static brim_status read_layer_vectors(packer *p, char *block, uint32_t n)
{
    static const struct {
        int vector;
        const char *text;
    } parts[] = {{RES_VECTOR_ATTN_NORM, "attn_norm.weight"},
                 {RES_VECTOR_FFN_NORM, "ffn_norm.weight"},
                 {RES_VECTOR_Q_NORM, "attn_q_norm.weight"},
                 {RES_VECTOR_K_NORM, "attn_k_norm.weight"}};
    static const char *const biases[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias"};
    const brim_model_config *c = &p->llm->config;
    const brim__res_vector *v = p->r->layers[n].vectors;
    char name[64];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!v[parts[i].vector].count)
            continue;
        snprintf(name, sizeof name, "blk.%u.%s", n, parts[i].text);
        BRIM_TRY(read_into(p, block, v[parts[i].vector].offset, name, v[parts[i].vector].count));
    }
    uint64_t at = v[RES_VECTOR_QKV_BIAS].offset;
    for (size_t i = 0; i < 3 && v[RES_VECTOR_QKV_BIAS].count; i++) {
        uint32_t count = (i == 0 ? c->head_count : c->kv_head_count) * c->head_size;
        snprintf(name, sizeof name, "blk.%u.%s", n, biases[i]);
        BRIM_TRY(read_into(p, block, at, name, count));
        at += 4 * (uint64_t)count;
    }
    return BRIM_OK;
}

static brim_status write_vectors(packer *p)
{
    brim__resident *r = p->r;
    char *block;
    BRIM_ALLOC(r->ctx, block, p->vector_bytes);
    memset(block, 0, p->vector_bytes);
    brim_status status =
        read_into(p, block, r->final_norm.offset, "output_norm.weight", r->final_norm.count);
    for (uint32_t n = 0; n < p->llm->config.layer_count && status == BRIM_OK; n++)
        status = read_layer_vectors(p, block, n);
    if (status == BRIM_OK)
        status = brim_device_write(r->memory, 0, block, p->vector_bytes);
    brim__free(r->ctx, block);
    return status;
}

/* ---- the whole ---- */

static brim_status fill(packer *p)
{
    brim__resident *r = p->r;
    const brim_model_config *c = &p->llm->config;
    BRIM_TRY(place_all(p));
    r->type = choose_type(p);
    BRIM_TRY(check_images(r->device, r->type, c->head_size));
    BRIM_TRY(cut_slices(p));
    uint32_t context = p->desc->context ? p->desc->context : brim__llm_context_default(p->llm);
    uint64_t sessions = p->desc->sessions ? p->desc->sessions : 1;
    BRIM_TRY(brim__resident_room(r->device, r->bytes,
                                 2 * sessions * context * c->kv_elements_per_position,
                                 brim__resident_buffers_about(c, context)));
    BRIM_TRY(brim_device_alloc(&r->memory, r->device, r->bytes));
    BRIM_TRY(write_vectors(p));
    return pack_matrices(p);
}

brim_status brim__resident_create(brim__resident **out, const brim_llm *llm,
                                  const brim_model_file *file, const brim_llm_desc *desc)
{
    *out = NULL;
    BRIM_TRY(check_features(&llm->config));
    brim__resident *r;
    BRIM_CALLOC(llm->ctx, r, 1);
    r->ctx = llm->ctx;
    r->device = desc->device;
    packer p = {.r = r, .llm = llm, .file = file, .desc = desc};
    brim_status status = fill(&p);
    free_packer(&p);
    if (status != BRIM_OK) {
        brim__resident_destroy(r);
        return status;
    }
    *out = r;
    return BRIM_OK;
}

uint64_t brim__resident_decode_bytes(const brim__resident *r, const brim_model_config *c)
{
    uint64_t bytes = brim__res_matrix_bytes(&r->head);
    for (uint32_t n = 0; n < c->layer_count; n++)
        for (int m = 0; m < RES_MATRIX_COUNT; m++)
            bytes += brim__res_matrix_bytes(&r->layers[n].matrices[m]);
    return bytes;
}

void brim__resident_destroy(brim__resident *r)
{
    if (!r)
        return;
    brim_device_free(r->memory);
    brim__free(r->ctx, r->layers);
    brim__free(r->ctx, r);
}
