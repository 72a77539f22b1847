/* make_file.c: writes a GGUF file of a known shape with random weights.
 *
 * The header is built in memory, the weights stream through one buffer into a temporary file that
 * takes the path's name at the end. Order and types of the tensors are those that llama.cpp's
 * converter and quantiser give them: norms and biases F32; the head (the embedding, when it is
 * tied) Q6_K in every quantised file but Q8_0; rows that are no multiple of 256 fall back from
 * Q4_K, Q5_K and Q6_K to Q5_0, Q5_1 and Q8_0; Q4_K_M and Q5_K_M have attn_v and ffn_down of half of
 * the layers in Q6_K. */
#include "model/make.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/rng.h"

enum {
    DESC_FILLED = 0x6d616b65, /* "make" */
    ALIGNMENT = 32,
    LAYER_COUNT_MAX = 1024,
    VOCAB_SIZE_MAX = 1 << 20,
    NAME_BYTES = 64,
    BUFFER_BYTES = 4 << 20, /* at least; see buffer_bytes() */
    SCALE_STREAM = 1 << 30, /* stream of the numbers that vary whole tensors */
};

/* ---- bytes ---- */

void make__put(make_bytes *b, const void *data, size_t size)
{
    if (b->status == BRIM_OK)
        b->status = brim__string_append(&b->text, data, size);
}

void make__put_u32(make_bytes *b, uint32_t value)
{
    make__put(b, &value, sizeof value);
}

void make__put_u64(make_bytes *b, uint64_t value)
{
    make__put(b, &value, sizeof value);
}

void make__put_string(make_bytes *b, const char *text)
{
    make__put_u64(b, strlen(text));
    make__put(b, text, strlen(text));
}

static void put_key(make_bytes *b, const char *key, brim_meta_type type)
{
    b->meta_count++;
    make__put_string(b, key);
    make__put_u32(b, type);
}

void make__key_string(make_bytes *b, const char *key, const char *value)
{
    put_key(b, key, BRIM_META_STRING);
    make__put_string(b, value);
}

void make__key_u32(make_bytes *b, const char *key, uint32_t value)
{
    put_key(b, key, BRIM_META_U32);
    make__put_u32(b, value);
}

void make__key_f32(make_bytes *b, const char *key, float value)
{
    put_key(b, key, BRIM_META_F32);
    make__put(b, &value, sizeof value);
}

void make__key_bool(make_bytes *b, const char *key, bool value)
{
    put_key(b, key, BRIM_META_BOOL);
    make__put(b, value ? "\1" : "\0", 1);
}

void make__key_array(make_bytes *b, const char *key, brim_meta_type item_type, uint64_t count)
{
    put_key(b, key, BRIM_META_ARRAY);
    make__put_u32(b, item_type);
    make__put_u64(b, count);
}

/* ---- the plan: which tensors, of which type ---- */

/* A type as the user names it; the mixes are llama.cpp's. */
typedef struct make_mix {
    const char *name;
    brim_dtype type;
    uint32_t file_type; /* general.file_type, llama.cpp's enum llama_ftype */
    bool more_bits;     /* Q6_K for attn_v and ffn_down of half of the layers */
} make_mix;

static const make_mix mixes[] = {
    {"F32", BRIM_DTYPE_F32, 0, false},     {"F16", BRIM_DTYPE_F16, 1, false},
    {"BF16", BRIM_DTYPE_BF16, 32, false},  {"Q8_0", BRIM_DTYPE_Q8_0, 7, false},
    {"Q4_0", BRIM_DTYPE_Q4_0, 2, false},   {"Q4_1", BRIM_DTYPE_Q4_1, 3, false},
    {"Q5_0", BRIM_DTYPE_Q5_0, 8, false},   {"Q5_1", BRIM_DTYPE_Q5_1, 9, false},
    {"Q4_K", BRIM_DTYPE_Q4_K, 14, false},  {"Q5_K", BRIM_DTYPE_Q5_K, 16, false},
    {"Q6_K", BRIM_DTYPE_Q6_K, 18, false},  {"Q4_K_M", BRIM_DTYPE_Q4_K, 15, true},
    {"Q5_K_M", BRIM_DTYPE_Q5_K, 17, true},
};

typedef enum make_role {
    ROLE_MATRIX,
    ROLE_MORE_BITS,
    ROLE_HEAD,
    ROLE_NORM,
    ROLE_BIAS,
    ROLE_FACTORS
} make_role;

typedef struct planned {
    char name[NAME_BYTES];
    make_role role;
    brim_dtype type;
    uint64_t columns, rows; /* rows 0: a vector */
    uint64_t size;          /* bytes */
    uint64_t offset;        /* in the data section */
} planned;

typedef struct maker {
    brim_context *ctx;
    const brim_make_desc *desc;
    const make_shape *shape;
    const make_mix *mix;
    uint32_t layer_count, vocab_size, vocab_padding;
    planned *tensors;
    size_t tensor_count, tensor_capacity;
    uint64_t data_size;
    brim_status status;
    int file;
    uint64_t written, total; /* bytes of the file */
} maker;

/* Which layers have their attn_v and ffn_down in more bits: the first eighth, the last, and every
 * third between them. */
static bool layer_has_more_bits(uint32_t layer, uint32_t count)
{
    return layer < count / 8 || layer >= 7 * count / 8 || (layer - count / 8) % 3 == 2;
}

static brim_dtype tensor_type(const maker *m, make_role role, uint64_t columns)
{
    if (role == ROLE_NORM || role == ROLE_BIAS || role == ROLE_FACTORS)
        return BRIM_DTYPE_F32;
    brim_dtype type = m->mix->type;
    bool quantised = brim_dtype_block(type) > 1;
    if (role == ROLE_MORE_BITS || (role == ROLE_HEAD && quantised && type != BRIM_DTYPE_Q8_0))
        type = BRIM_DTYPE_Q6_K;
    if (columns % brim_dtype_block(type) == 0)
        return type;
    return type == BRIM_DTYPE_Q4_K   ? BRIM_DTYPE_Q5_0
           : type == BRIM_DTYPE_Q5_K ? BRIM_DTYPE_Q5_1
                                     : BRIM_DTYPE_Q8_0;
}

static void plan(maker *m, make_role role, uint64_t columns, uint64_t rows, const char *name)
{
    if (m->status == BRIM_OK)
        m->status = BRIM_GROW(m->ctx, m->tensors, m->tensor_capacity, m->tensor_count + 1);
    if (m->status != BRIM_OK)
        return;
    planned *t = &m->tensors[m->tensor_count++];
    *t = (planned){.role = role, .columns = columns, .rows = rows, .offset = m->data_size};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->type = tensor_type(m, role, columns);
    t->size =
        columns / brim_dtype_block(t->type) * brim_dtype_block_bytes(t->type) * (rows ? rows : 1);
    m->data_size = (m->data_size + t->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void plan_layer(maker *m, uint32_t layer)
{
    const make_shape *s = m->shape;
    uint64_t d = s->embed_size, q = (uint64_t)s->head_count * s->head_size;
    uint64_t kv = (uint64_t)s->kv_head_count * s->head_size, f = s->ffn_size;
    bool bias = s->arch == BRIM_ARCH_QWEN2, qk_norm = s->arch == BRIM_ARCH_QWEN3;
    make_role wide = m->mix->more_bits && layer_has_more_bits(layer, m->layer_count)
                         ? ROLE_MORE_BITS
                         : ROLE_MATRIX;
    const struct {
        const char *suffix;
        make_role role;
        uint64_t columns, rows;
        bool wanted;
    } tensors[] = {
        {"attn_norm.weight", ROLE_NORM, d, 0, true},
        {"ffn_down.weight", wide, f, d, true},
        {"ffn_gate.weight", ROLE_MATRIX, d, f, true},
        {"ffn_up.weight", ROLE_MATRIX, d, f, true},
        {"ffn_norm.weight", ROLE_NORM, d, 0, true},
        {"attn_k.bias", ROLE_BIAS, kv, 0, bias},
        {"attn_k_norm.weight", ROLE_NORM, s->head_size, 0, qk_norm},
        {"attn_k.weight", ROLE_MATRIX, d, kv, true},
        {"attn_output.weight", ROLE_MATRIX, q, d, true},
        {"attn_q.bias", ROLE_BIAS, q, 0, bias},
        {"attn_q_norm.weight", ROLE_NORM, s->head_size, 0, qk_norm},
        {"attn_q.weight", ROLE_MATRIX, d, q, true},
        {"attn_v.bias", ROLE_BIAS, kv, 0, bias},
        {"attn_v.weight", wide, d, kv, true},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "blk.%u.%s", layer, tensors[i].suffix);
        if (tensors[i].wanted)
            plan(m, tensors[i].role, tensors[i].columns, tensors[i].rows, name);
    }
}

static brim_status plan_tensors(maker *m)
{
    const make_shape *s = m->shape;
    plan(m, s->tied_head ? ROLE_HEAD : ROLE_MATRIX, s->embed_size, m->vocab_size,
         "token_embd.weight");
    for (uint32_t layer = 0; layer < m->layer_count; layer++)
        plan_layer(m, layer);
    plan(m, ROLE_NORM, s->embed_size, 0, "output_norm.weight");
    if (!s->tied_head)
        plan(m, ROLE_HEAD, s->embed_size, m->vocab_size, "output.weight");
    if (s->rope_factor > 0)
        plan(m, ROLE_FACTORS, s->head_size / 2, 0, "rope_freqs.weight");
    return m->status;
}

/* ---- the header ---- */

static void put_arch_u32(make_bytes *b, const maker *m, const char *suffix, uint32_t value)
{
    char key[NAME_BYTES];
    snprintf(key, sizeof key, "%s.%s", brim_arch_name(m->shape->arch), suffix);
    make__key_u32(b, key, value);
}

static void put_arch_f32(make_bytes *b, const maker *m, const char *suffix, float value)
{
    char key[NAME_BYTES];
    snprintf(key, sizeof key, "%s.%s", brim_arch_name(m->shape->arch), suffix);
    make__key_f32(b, key, value);
}

static void put_keys(make_bytes *b, const maker *m)
{
    const make_shape *s = m->shape;
    char text[128];
    make__key_string(b, "general.architecture", brim_arch_name(s->arch));
    make__key_string(b, "general.type", "model");
    snprintf(text, sizeof text, "%s (random weights)", s->name);
    make__key_string(b, "general.name", text);
    snprintf(text, sizeof text, "shape %s, type %s, seed %llu", s->name, m->mix->name,
             (unsigned long long)m->desc->seed);
    make__key_string(b, "general.description", text);
    make__key_u32(b, "general.file_type", m->mix->file_type);
    make__key_u32(b, "general.quantization_version", 2);
    put_arch_u32(b, m, "block_count", m->layer_count);
    put_arch_u32(b, m, "context_length", s->context);
    put_arch_u32(b, m, "embedding_length", s->embed_size);
    put_arch_u32(b, m, "feed_forward_length", s->ffn_size);
    put_arch_u32(b, m, "attention.head_count", s->head_count);
    put_arch_u32(b, m, "attention.head_count_kv", s->kv_head_count);
    put_arch_u32(b, m, "attention.key_length", s->head_size);
    put_arch_u32(b, m, "attention.value_length", s->head_size);
    put_arch_f32(b, m, "attention.layer_norm_rms_epsilon", s->norm_epsilon);
    if (s->sliding_window)
        put_arch_u32(b, m, "attention.sliding_window", s->sliding_window);
    put_arch_u32(b, m, "rope.dimension_count", s->head_size);
    put_arch_f32(b, m, "rope.freq_base", s->rope_base);
    put_arch_u32(b, m, "vocab_size", m->vocab_size);
    make__put_vocab(b, s->vocab, m->vocab_size, m->vocab_padding);
}

static void put_tensor_infos(make_bytes *b, const maker *m)
{
    for (size_t i = 0; i < m->tensor_count; i++) {
        const planned *t = &m->tensors[i];
        make__put_string(b, t->name);
        make__put_u32(b, t->rows ? 2 : 1);
        make__put_u64(b, t->columns);
        if (t->rows)
            make__put_u64(b, t->rows);
        make__put_u32(b, t->type);
        make__put_u64(b, t->offset);
    }
}

static void put_header(make_bytes *b, const maker *m)
{
    static const char zeros[ALIGNMENT];
    make__put(b, "GGUF", 4);
    make__put_u32(b, 3);
    make__put_u64(b, m->tensor_count);
    size_t count_at = b->text.size;
    make__put_u64(b, 0);
    put_keys(b, m);
    if (b->status == BRIM_OK)
        memcpy(b->text.data + count_at, &b->meta_count, sizeof b->meta_count);
    put_tensor_infos(b, m);
    make__put(b, zeros, (ALIGNMENT - b->text.size % ALIGNMENT) % ALIGNMENT);
}

/* ---- writing ---- */

static brim_status write_all(maker *m, const void *data, size_t size)
{
    for (const char *at = data; size > 0;) {
        ssize_t n = write(m->file, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        BRIM_FAIL_IF(n < 0, IO, "make.write", "cannot write: %s (%llu of %llu bytes written)",
                     strerror(errno), (unsigned long long)m->written, (unsigned long long)m->total);
        at += n, size -= (size_t)n, m->written += (uint64_t)n;
    }
    if (m->desc->progress)
        m->desc->progress(m->written, m->total, m->desc->user);
    BRIM_FAIL_IF(m->desc->cancelled && m->desc->cancelled(m->desc->user), CANCELLED,
                 "make.cancelled", "cancelled after %llu of %llu bytes",
                 (unsigned long long)m->written, (unsigned long long)m->total);
    return BRIM_OK;
}

/* Standard deviation: a matrix keeps the size of what it multiplies, a little below it, and each
 * differs somewhat from the others. */
static void init_weights(make_weights *w, const maker *m, size_t index)
{
    const planned *t = &m->tensors[index];
    float vary = 0.7f + 0.6f * brim__random_float(m->desc->seed, SCALE_STREAM, index);
    float mean = 0, deviation = 0.1f * vary;
    if (t->role == ROLE_NORM)
        mean = 0.6f + 0.8f * brim__random_float(m->desc->seed, SCALE_STREAM + 1, index);
    if (t->rows)
        deviation = 0.6f * vary / __builtin_sqrtf((float)t->columns);
    make__weights_init(w, t->type, m->desc->seed, index, mean, deviation);
}

/* A multiple of the generator's unit and of the block, so that the next part starts on both. */
static size_t chunk_bytes(brim_dtype type)
{
    size_t step = (size_t)MAKE_UNIT_BYTES * brim_dtype_block_bytes(type);
    return BUFFER_BYTES / step * step;
}

static brim_status write_tensor(maker *m, size_t index, uint8_t *buffer, make_weights *w)
{
    static const char zeros[ALIGNMENT];
    const planned *t = &m->tensors[index];
    if (t->role == ROLE_FACTORS) {
        make__rope_factors((float *)(void *)buffer, m->shape->head_size, m->shape->rope_base,
                           m->shape->rope_factor);
        BRIM_TRY(write_all(m, buffer, (size_t)t->size));
    } else {
        init_weights(w, m, index);
        size_t chunk = chunk_bytes(t->type);
        for (uint64_t at = 0; at < t->size; at += chunk) {
            size_t size = t->size - at < chunk ? (size_t)(t->size - at) : chunk;
            make__weights_fill(w, buffer, at, size);
            BRIM_TRY(write_all(m, buffer, size));
        }
    }
    return write_all(m, zeros, (size_t)((ALIGNMENT - t->size % ALIGNMENT) % ALIGNMENT));
}

static brim_status write_weights(maker *m)
{
    uint8_t *buffer;
    BRIM_ALLOC(m->ctx, buffer, BUFFER_BYTES + MAKE_UNIT_BYTES);
    make_weights *w = brim__alloc(m->ctx, sizeof *w);
    brim_status status = w ? BRIM_OK : BRIM_NO_MEMORY;
    for (size_t i = 0; i < m->tensor_count && status == BRIM_OK; i++)
        status = write_tensor(m, i, buffer, w);
    brim__free(m->ctx, w);
    brim__free(m->ctx, buffer);
    return status;
}

static brim_status write_contents(maker *m)
{
    make_bytes b = {.text.ctx = m->ctx};
    put_header(&b, m);
    brim_status status = b.status;
    m->total = b.text.size + m->data_size;
    if (status == BRIM_OK)
        status = write_all(m, b.text.data, b.text.size);
    brim__string_done(&b.text);
    BRIM_TRY(status);
    return write_weights(m);
}

static brim_status write_file(maker *m, const char *path)
{
    char temporary[4096];
    int n = snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
    BRIM_FAIL_IF(n < 0 || (size_t)n >= sizeof temporary, USAGE, "make.path",
                 "the path is too long");
    m->file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    BRIM_FAIL_IF(m->file < 0, IO, "make.write", "%s: cannot create: %s", path, strerror(errno));
    brim_status status = write_contents(m);
    if (close(m->file) != 0 && status == BRIM_OK)
        status = brim__fail(BRIM_IO, "make.write", "cannot write: %s", strerror(errno));
    if (status == BRIM_OK && rename(temporary, path) != 0)
        status =
            brim__fail(BRIM_IO, "make.write", "cannot rename %s: %s", temporary, strerror(errno));
    if (status != BRIM_OK) {
        unlink(temporary);
        brim__fail_prefix("%s", path);
    }
    return status;
}

/* ---- the description ---- */

brim_make_desc brim_make_desc_default(void)
{
    return (brim_make_desc){.type = "Q4_1", .do_not_set = DESC_FILLED};
}

static brim_status find_shape(maker *m)
{
    const char *name = m->desc->shape;
    m->shape = name ? make__find_shape(name) : NULL;
    if (m->shape)
        return BRIM_OK;
    char known[512] = "";
    for (size_t i = 0, used = 0; i < make__shape_count && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 make__shapes[i].name);
    BRIM_FAIL_IF(!name, USAGE, "make.shape", "a shape is missing; there are %s", known);
    BRIM_FAIL(USAGE, "make.shape", "there is no shape \"%.64s\"; there are %s", name, known);
}

static brim_status find_mix(maker *m)
{
    const char *name = m->desc->type ? m->desc->type : "Q4_1";
    size_t count = sizeof mixes / sizeof *mixes;
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(mixes[i].name, name) == 0) {
            m->mix = &mixes[i];
            return BRIM_OK;
        }
    char known[256] = "";
    for (size_t i = 0, used = 0; i < count && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 mixes[i].name);
    BRIM_FAIL(USAGE, "make.type", "there is no type \"%.64s\" to make; there are %s", name, known);
}

static brim_status read_desc(maker *m)
{
    const brim_make_desc *desc = m->desc;
    BRIM_FAIL_IF(desc->do_not_set != DESC_FILLED, USAGE, "make.desc",
                 "the description was not made by brim_make_desc_default()");
    BRIM_TRY(find_shape(m));
    BRIM_TRY(find_mix(m));
    m->layer_count = desc->layer_count ? desc->layer_count : m->shape->layer_count;
    BRIM_FAIL_IF(m->layer_count > LAYER_COUNT_MAX, USAGE, "make.layers",
                 "%u layers are too many; at most %d", m->layer_count, LAYER_COUNT_MAX);
    m->vocab_size = desc->vocab_size ? desc->vocab_size : m->shape->vocab_size;
    /* Fillers stand for what the original's vocabulary leaves unused; another size has none. */
    m->vocab_padding = m->vocab_size == m->shape->vocab_size ? m->shape->vocab_padding : 0;
    uint32_t min = make__vocab_min(m->shape->vocab);
    BRIM_FAIL_IF(
        m->vocab_size < min || m->vocab_size > VOCAB_SIZE_MAX, USAGE, "make.vocab",
        "a vocabulary of %u tokens is not possible: %u (bytes and special tokens) to %d are",
        m->vocab_size, min, VOCAB_SIZE_MAX);
    return BRIM_OK;
}

brim_status brim_make(brim_context *ctx, const char *path, const brim_make_desc *desc)
{
    maker m = {.ctx = ctx, .desc = desc, .file = -1};
    BRIM_TRY(read_desc(&m));
    brim_status status = plan_tensors(&m);
    if (status == BRIM_OK)
        status = write_file(&m, path);
    brim__free(ctx, m.tensors);
    return status;
}
