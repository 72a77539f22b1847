/* config.c: the architecture of a model: its numbers from the metadata, and whether every tensor
 * of it is there with the shape that the numbers give.
 *
 * Key names: the GGUF specification and llama.cpp's converters. What a file asks for and Brim
 * does not do (experts, other rope scalings, biases where the architecture has none) is refused
 * by name; a tensor or a scale that would be ignored in silence would give wrong answers. */
#include "model/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LAYER_COUNT_MAX = 1024,
    EMBED_SIZE_MAX = 1 << 18,
    HEAD_COUNT_MAX = 1 << 12,
    HEAD_SIZE_MAX = 256,
    SIZE_MULTIPLE = 32, /* what every vector must be a multiple of: the smallest quantised block */
    FFN_SIZE_MAX = 1 << 20,
    VOCAB_SIZE_MAX = 1 << 24,
    KEY_BYTES = 128,
};

/* Reading state: keys are "<arch>.<suffix>". */
typedef struct reader {
    const brim_model_file *file;
    const char *arch;
    char key[KEY_BYTES]; /* the key looked up last, for messages */
} reader;

const char *brim_arch_name(brim_arch arch)
{
    switch (arch) {
    case BRIM_ARCH_LLAMA:
        return "llama";
    case BRIM_ARCH_QWEN2:
        return "qwen2";
    case BRIM_ARCH_QWEN3:
        return "qwen3";
    }
    return "unknown";
}

static const brim_meta *find(reader *r, const char *suffix)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, suffix);
    return brim_model_file_meta(r->file, r->key);
}

/* ---- numbers ---- */

/* An integer that may also be an array of one value a layer, as some converters write it; all
 * must be equal. */
static brim_status read_integer(uint64_t *out, reader *r, const brim_meta *meta)
{
    BRIM_FAIL_IF(meta->count == 0, FORMAT, "model.key", "%s is an empty array at offset %llu",
                 r->key, (unsigned long long)meta->file_offset);
    BRIM_TRY(brim_meta_u64(out, r->file, meta, 0));
    for (uint64_t i = 1; i < meta->count; i++) {
        uint64_t value;
        BRIM_TRY(brim_meta_u64(&value, r->file, meta, i));
        BRIM_FAIL_IF(
            value != *out, UNSUPPORTED, "model.feature",
            "%s differs between layers (%llu, then %llu for layer %llu, offset %llu), which is "
            "not supported",
            r->key, (unsigned long long)*out, (unsigned long long)value, (unsigned long long)i,
            (unsigned long long)meta->file_offset);
    }
    return BRIM_OK;
}

static brim_status check_range(const reader *r, const brim_meta *meta, uint64_t value, uint64_t min,
                               uint64_t max)
{
    BRIM_FAIL_IF(value < min || value > max, FORMAT, "model.key",
                 "%s is %llu at offset %llu; %llu to %llu is allowed", r->key,
                 (unsigned long long)value, (unsigned long long)meta->file_offset,
                 (unsigned long long)min, (unsigned long long)max);
    return BRIM_OK;
}

static brim_status require_u32(uint32_t *out, reader *r, const char *suffix, uint64_t min,
                               uint64_t max)
{
    const brim_meta *meta = find(r, suffix);
    BRIM_FAIL_IF(!meta, FORMAT, "model.key",
                 "key %s is absent; a model of this architecture needs it", r->key);
    uint64_t value;
    BRIM_TRY(read_integer(&value, r, meta));
    BRIM_TRY(check_range(r, meta, value, min, max));
    *out = (uint32_t)value;
    return BRIM_OK;
}

/* The same, *out unchanged when the key is absent. */
static brim_status optional_u32(uint32_t *out, reader *r, const char *suffix, uint64_t min,
                                uint64_t max)
{
    return find(r, suffix) ? require_u32(out, r, suffix, min, max) : BRIM_OK;
}

/* A float in (0, max]; *out unchanged when the key is absent. */
static brim_status optional_float(float *out, reader *r, const char *suffix, double max)
{
    const brim_meta *meta = find(r, suffix);
    if (!meta)
        return BRIM_OK;
    double value;
    BRIM_TRY(brim_meta_f64(&value, r->file, meta, 0));
    BRIM_FAIL_IF(!(value > 0 && value <= max) || (float)value <= 0, FORMAT, "model.key",
                 "%s is %g at offset %llu; more than 0 and at most %g is allowed", r->key, value,
                 (unsigned long long)meta->file_offset, max);
    *out = (float)value;
    return BRIM_OK;
}

/* ---- what is refused ---- */

/* Whether a value is there and is neither zero nor `neutral`. */
static brim_status refuse_number(reader *r, const char *suffix, double neutral, const char *what)
{
    const brim_meta *meta = find(r, suffix);
    if (!meta)
        return BRIM_OK;
    for (uint64_t i = 0; i < meta->count; i++) {
        double value;
        BRIM_TRY(brim_meta_f64(&value, r->file, meta, i));
        BRIM_FAIL_IF(value != 0 && value != neutral, UNSUPPORTED, "model.feature",
                     "%s is %g at offset %llu: %s not supported", r->key, value,
                     (unsigned long long)meta->file_offset, what);
    }
    return BRIM_OK;
}

static brim_status refuse_features(reader *r)
{
    static const struct {
        const char *suffix;
        double neutral;
        const char *what;
    } features[] = {
        {"expert_count", 0, "mixtures of experts are"},
        {"logit_scale", 1, "scaled logits are"},
        {"residual_scale", 1, "scaled residuals are"},
        {"embedding_scale", 1, "scaled embeddings are"},
        {"attention.scale", 0, "an attention scale of its own is"},
        {"attention.max_alibi_bias", 0, "ALiBi is"},
        {"attention.clamp_kqv", 0, "clamped q, k and v are"},
        {"attn_logit_softcapping", 0, "capped attention scores are"},
        {"final_logit_softcapping", 0, "capped logits are"},
        {"rope.scaling.attn_factor", 1, "scaled attention of a rope scaling is"},
        {"nextn_predict_layers", 0, "layers that predict further tokens are"},
    };
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        BRIM_TRY(refuse_number(r, features[i].suffix, features[i].neutral, features[i].what));
    const brim_meta *meta = find(r, "attention.causal");
    if (meta) {
        bool causal;
        BRIM_TRY(brim_meta_bool(&causal, r->file, meta, 0));
        BRIM_FAIL_IF(
            !causal, UNSUPPORTED, "model.feature",
            "%s is false at offset %llu: attention that sees later tokens is not supported", r->key,
            (unsigned long long)meta->file_offset);
    }
    return BRIM_OK;
}

/* ---- architecture, name ---- */

static bool same_text(const char *text, size_t size, const char *word)
{
    return size == strlen(word) && memcmp(text, word, size) == 0;
}

static brim_status read_arch(brim_arch *out, const brim_model_file *file)
{
    const brim_meta *meta = brim_model_file_meta(file, "general.architecture");
    BRIM_FAIL_IF(!meta, FORMAT, "model.key",
                 "key general.architecture is absent, so what the model is cannot be known");
    const char *text;
    size_t size;
    BRIM_TRY(brim_meta_string(&text, &size, file, meta, 0));
    static const brim_arch archs[] = {BRIM_ARCH_LLAMA, BRIM_ARCH_QWEN2, BRIM_ARCH_QWEN3};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (same_text(text, size, brim_arch_name(archs[i]))) {
            *out = archs[i];
            return BRIM_OK;
        }
    size_t shown = brim__utf8_check(text, size < 64 ? size : 64);
    for (size_t i = 0; i < shown; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            shown = i;
    BRIM_FAIL(
        UNSUPPORTED, "model.arch",
        "architecture \"%.*s\" (general.architecture at offset %llu) is not supported; supported "
        "are llama, qwen2 and qwen3",
        (int)shown, text, (unsigned long long)meta->file_offset);
}

static void read_name(brim_model_config *config, const brim_model_file *file)
{
    const brim_meta *meta = brim_model_file_meta(file, "general.name");
    const char *text;
    size_t size;
    if (!meta || brim_meta_string(&text, &size, file, meta, 0) != BRIM_OK)
        return; /* a name is a courtesy */
    size_t limit = sizeof config->name - 1;
    size = brim__utf8_check(text, size < limit ? size : limit);
    for (size_t i = 0; i < size; i++)
        config->name[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? ' ' : text[i];
}

/* ---- sizes ---- */

static brim_status check_multiple(const char *what, uint32_t value)
{
    BRIM_FAIL_IF(value % SIZE_MULTIPLE != 0, UNSUPPORTED, "model.feature",
                 "%s of %u is not supported: it must be a multiple of %d", what, value,
                 SIZE_MULTIPLE);
    return BRIM_OK;
}

static brim_status read_head_size(brim_model_config *c, reader *r)
{
    uint32_t k = 0, v;
    BRIM_TRY(optional_u32(&k, r, "attention.key_length", 1, UINT32_MAX));
    if (k == 0) {
        BRIM_FAIL_IF(
            c->embed_size % c->head_count != 0, FORMAT, "model.key",
            "%s.attention.head_count is %u, which does not divide the embedding length %u, and "
            "there is no %s",
            r->arch, c->head_count, c->embed_size, r->key);
        k = c->embed_size / c->head_count;
    }
    v = k;
    BRIM_TRY(optional_u32(&v, r, "attention.value_length", 1, UINT32_MAX));
    BRIM_FAIL_IF(v != k, UNSUPPORTED, "model.feature",
                 "%s is %u but keys have %u: heads of different sizes are not supported", r->key, v,
                 k);
    BRIM_FAIL_IF(k % 2 != 0, FORMAT, "model.key", "heads of %u elements: the size must be even", k);
    BRIM_TRY(check_multiple("a head size", k));
    BRIM_FAIL_IF(k > HEAD_SIZE_MAX, UNSUPPORTED, "model.feature",
                 "a head size of %u is not supported: at most %d", k, HEAD_SIZE_MAX);
    c->head_size = k;
    return BRIM_OK;
}

static brim_status read_sizes(brim_model_config *c, reader *r)
{
    BRIM_TRY(require_u32(&c->layer_count, r, "block_count", 1, LAYER_COUNT_MAX));
    BRIM_TRY(require_u32(&c->embed_size, r, "embedding_length", 1, EMBED_SIZE_MAX));
    BRIM_TRY(check_multiple("an embedding length", c->embed_size));
    BRIM_TRY(require_u32(&c->ffn_size, r, "feed_forward_length", 1, FFN_SIZE_MAX));
    BRIM_TRY(check_multiple("a feed-forward length", c->ffn_size));
    BRIM_TRY(require_u32(&c->context_trained, r, "context_length", 1, INT32_MAX));
    BRIM_TRY(require_u32(&c->head_count, r, "attention.head_count", 1, HEAD_COUNT_MAX));
    c->kv_head_count = c->head_count;
    BRIM_TRY(optional_u32(&c->kv_head_count, r, "attention.head_count_kv", 1, HEAD_COUNT_MAX));
    BRIM_FAIL_IF(c->head_count % c->kv_head_count != 0, FORMAT, "model.key",
                 "%s.attention.head_count %u is no multiple of %s.attention.head_count_kv %u",
                 r->arch, c->head_count, r->arch, c->kv_head_count);
    BRIM_TRY(read_head_size(c, r));
    BRIM_TRY(optional_u32(&c->sliding_window, r, "attention.sliding_window", 0, INT32_MAX));
    c->norm_epsilon = 0;
    BRIM_TRY(optional_float(&c->norm_epsilon, r, "attention.layer_norm_rms_epsilon", 1));
    BRIM_FAIL_IF(c->norm_epsilon == 0, FORMAT, "model.key",
                 "key %s is absent; a model of this architecture needs it", r->key);
    return BRIM_OK;
}

/* ---- rope ---- */

static brim_status read_rope_scaling(brim_model_config *c, reader *r)
{
    c->rope_scale_linear = 1;
    const char *type = "linear";
    size_t type_size = strlen(type);
    const brim_meta *meta = find(r, "rope.scaling.type");
    if (meta)
        BRIM_TRY(brim_meta_string(&type, &type_size, r->file, meta, 0));
    if (meta && same_text(type, type_size, "none"))
        return BRIM_OK;
    size_t shown = brim__utf8_check(type, type_size < 32 ? type_size : 32);
    BRIM_FAIL_IF(
        !same_text(type, type_size, "linear"), UNSUPPORTED, "model.feature",
        "%s is \"%.*s\" at offset %llu: of the rope scalings only linear and rope_freqs.weight "
        "(Llama 3) are supported",
        r->key, (int)shown, type, (unsigned long long)(meta ? meta->file_offset : 0));
    /* The second is an older name for the same number. */
    BRIM_TRY(optional_float(&c->rope_scale_linear, r, "rope.scale_linear", 1e6));
    return optional_float(&c->rope_scale_linear, r, "rope.scaling.factor", 1e6);
}

static brim_status read_rope(brim_model_config *c, reader *r)
{
    c->rope_kind = c->arch == BRIM_ARCH_LLAMA ? BRIM_ROPE_INTERLEAVED : BRIM_ROPE_HALVES;
    c->rope_base = 10000;
    BRIM_TRY(optional_float(&c->rope_base, r, "rope.freq_base", 1e12));
    c->rope_size = c->head_size;
    BRIM_TRY(optional_u32(&c->rope_size, r, "rope.dimension_count", 2, c->head_size));
    BRIM_FAIL_IF(c->rope_size % 2 != 0, FORMAT, "model.key", "%s is %u; it must be even", r->key,
                 c->rope_size);
    return read_rope_scaling(c, r);
}

/* ---- tensors ---- */

/* Checking state: how many of the file's tensors were asked for, to find those that were not. */
typedef struct checker {
    const brim_model_file *file;
    const brim_model_config *config;
    size_t used_count;
} checker;

static void shape_text(char *out, size_t size, uint32_t dim_count, const uint64_t *dims)
{
    size_t used = 0;
    for (uint32_t i = 0; i < dim_count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%llu", i ? " x " : "",
                                 (unsigned long long)dims[i]);
}

/* A tensor of columns x rows, or of `columns` elements when rows is 0, innermost first. Vectors
 * must be F32: the converters never write them otherwise. */
static brim_status check_tensor(checker *k, const char *name, uint64_t columns, uint64_t rows)
{
    const brim_tensor *t = brim_model_file_tensor(k->file, name);
    uint64_t dims[2] = {columns, rows};
    char expected[64], found[128];
    shape_text(expected, sizeof expected, rows ? 2 : 1, dims);
    BRIM_FAIL_IF(!t, FORMAT, "model.tensor",
                 "tensor \"%s\" (%s) is absent; the model is not complete", name, expected);
    shape_text(found, sizeof found, t->dim_count, t->dims);
    /* A trailing dimension of 1 changes nothing. */
    bool same =
        t->dims[0] == columns && t->dims[1] == (rows ? rows : 1) && t->row_count == t->dims[1];
    BRIM_FAIL_IF(!same, FORMAT, "model.tensor",
                 "tensor \"%s\" is %s, but the metadata ask for %s (data at offset %llu)", name,
                 found, expected, (unsigned long long)t->file_offset);
    BRIM_FAIL_IF(
        !rows && t->type != BRIM_DTYPE_F32, UNSUPPORTED, "model.tensor",
        "tensor \"%s\" is of type %s, but norms, biases and rope factors must be F32 (data at "
        "offset %llu)",
        name, brim_dtype_name(t->type), (unsigned long long)t->file_offset);
    k->used_count++;
    return BRIM_OK;
}

static brim_status check_layer_tensor(checker *k, uint32_t layer, const char *suffix,
                                      uint64_t columns, uint64_t rows)
{
    char name[GGUF_NAME_BYTES_MAX + 1];
    snprintf(name, sizeof name, "blk.%u.%s", layer, suffix);
    return check_tensor(k, name, columns, rows);
}

static brim_status check_layer(checker *k, uint32_t layer)
{
    const brim_model_config *c = k->config;
    uint64_t d = c->embed_size, q = (uint64_t)c->head_count * c->head_size;
    uint64_t kv = (uint64_t)c->kv_head_count * c->head_size, f = c->ffn_size, h = c->head_size;
    const struct {
        const char *suffix;
        uint64_t columns, rows;
        bool wanted;
    } tensors[] = {
        {"attn_norm.weight", d, 0, true},
        {"attn_q.weight", d, q, true},
        {"attn_k.weight", d, kv, true},
        {"attn_v.weight", d, kv, true},
        {"attn_q.bias", q, 0, c->has_qkv_bias},
        {"attn_k.bias", kv, 0, c->has_qkv_bias},
        {"attn_v.bias", kv, 0, c->has_qkv_bias},
        {"attn_q_norm.weight", h, 0, c->has_qk_norm},
        {"attn_k_norm.weight", h, 0, c->has_qk_norm},
        {"attn_output.weight", q, d, true},
        {"ffn_norm.weight", d, 0, true},
        {"ffn_gate.weight", d, f, true},
        {"ffn_up.weight", d, f, true},
        {"ffn_down.weight", f, d, true},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i].wanted)
            BRIM_TRY(check_layer_tensor(k, layer, tensors[i].suffix, tensors[i].columns,
                                        tensors[i].rows));
    return BRIM_OK;
}

static brim_status check_rope_factors(checker *k)
{
    BRIM_TRY(check_tensor(k, "rope_freqs.weight", k->config->rope_size / 2, 0));
    const brim_tensor *t = brim_model_file_tensor(k->file, "rope_freqs.weight");
    for (uint64_t i = 0; i < t->dims[0]; i++) {
        float factor;
        memcpy(&factor, (const char *)t->data + i * sizeof factor, sizeof factor);
        BRIM_FAIL_IF(
            !(factor > 0) || !isfinite(factor), FORMAT, "model.tensor",
            "tensor \"rope_freqs.weight\": factor %llu is %g at offset %llu; it must be more "
            "than 0",
            (unsigned long long)i, (double)factor,
            (unsigned long long)(t->file_offset + i * sizeof factor));
    }
    return BRIM_OK;
}

/* Whether `name` is one of the architecture's: after check_layer() has found every tensor that is
 * wanted, the only others are those that would be ignored. */
static bool name_is_used(const brim_model_config *c, const char *name)
{
    static const char *const suffixes[] = {
        "attn_norm.weight",   "attn_q.weight",      "attn_k.weight",   "attn_v.weight",
        "attn_output.weight", "ffn_norm.weight",    "ffn_gate.weight", "ffn_up.weight",
        "ffn_down.weight",    "attn_q.bias",        "attn_k.bias",     "attn_v.bias",
        "attn_q_norm.weight", "attn_k_norm.weight",
    };
    unsigned layer;
    int at = 0;
    if (sscanf(name, "blk.%9u.%n", &layer, &at) != 1 || at == 0)
        return strcmp(name, "token_embd.weight") == 0 || strcmp(name, "output_norm.weight") == 0 ||
               strcmp(name, "output.weight") == 0 || strcmp(name, "rope_freqs.weight") == 0;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        if (strcmp(name + at, suffixes[i]) != 0)
            continue;
        bool wanted = i < 9 || (i < 12 ? c->has_qkv_bias : c->has_qk_norm);
        return layer < c->layer_count && wanted;
    }
    return false;
}

static brim_status refuse_others(const checker *k)
{
    size_t count = brim_model_file_tensor_count(k->file);
    if (k->used_count == count)
        return BRIM_OK;
    for (size_t i = 0; i < count; i++) {
        const brim_tensor *t = brim_model_file_tensor_at(k->file, i);
        BRIM_FAIL_IF(
            !name_is_used(k->config, t->name), UNSUPPORTED, "model.feature",
            "tensor \"%s\" is no part of a %s model with %u layers as it is supported; without "
            "it the answers would be wrong (data at offset %llu)",
            t->name, brim_arch_name(k->config->arch), k->config->layer_count,
            (unsigned long long)t->file_offset);
    }
    /* A name such as "blk.00.attn_q.weight" reads like one that was used. */
    BRIM_FAIL(FORMAT, "model.tensor", "%zu tensors in the file, %zu in the architecture", count,
              k->used_count);
}

/* The embedding says how many tokens there are; the metadata must agree. */
static brim_status read_vocab(brim_model_config *c, reader *r)
{
    const brim_tensor *t = brim_model_file_tensor(r->file, "token_embd.weight");
    BRIM_FAIL_IF(!t, FORMAT, "model.tensor",
                 "tensor \"token_embd.weight\" is absent: the file holds %s",
                 brim_model_file_tensor_count(r->file) == 0 ? "a vocabulary without a model"
                                                            : "no embedding");
    BRIM_FAIL_IF(t->row_count > VOCAB_SIZE_MAX, FORMAT, "model.tensor",
                 "tensor \"token_embd.weight\" has %llu rows; at most %d tokens are supported",
                 (unsigned long long)t->row_count, VOCAB_SIZE_MAX);
    c->vocab_size = (uint32_t)t->row_count;
    uint32_t said = c->vocab_size;
    BRIM_TRY(optional_u32(&said, r, "vocab_size", 1, VOCAB_SIZE_MAX));
    BRIM_FAIL_IF(
        said != c->vocab_size, FORMAT, "model.key",
        "%s is %u, but the embedding has rows for %u tokens (tensor \"token_embd.weight\" at "
        "offset %llu)",
        r->key, said, c->vocab_size, (unsigned long long)t->file_offset);
    const brim_meta *tokens = brim_model_file_meta(r->file, "tokenizer.ggml.tokens");
    BRIM_FAIL_IF(tokens &&
                     (tokens->type != BRIM_META_ARRAY || tokens->item_type != BRIM_META_STRING),
                 FORMAT, "model.key", "tokenizer.ggml.tokens at offset %llu is no array of strings",
                 (unsigned long long)tokens->file_offset);
    BRIM_FAIL_IF(tokens && tokens->count != c->vocab_size, FORMAT, "model.key",
                 "the vocabulary has %llu tokens (tokenizer.ggml.tokens at offset %llu), but the "
                 "embedding has rows for %u (tensor \"token_embd.weight\" at offset %llu)",
                 (unsigned long long)tokens->count, (unsigned long long)tokens->file_offset,
                 c->vocab_size, (unsigned long long)t->file_offset);
    return BRIM_OK;
}

static brim_status check_tensors(brim_model_config *c, const brim_model_file *file)
{
    c->has_qkv_bias =
        c->arch == BRIM_ARCH_QWEN2 || brim_model_file_tensor(file, "blk.0.attn_q.bias");
    c->has_qk_norm = c->arch == BRIM_ARCH_QWEN3;
    c->has_rope_factors = brim_model_file_tensor(file, "rope_freqs.weight") != NULL;
    c->tied_head = brim_model_file_tensor(file, "output.weight") == NULL;
    checker k = {.file = file, .config = c};
    BRIM_TRY(check_tensor(&k, "token_embd.weight", c->embed_size, c->vocab_size));
    for (uint32_t layer = 0; layer < c->layer_count; layer++)
        BRIM_TRY(check_layer(&k, layer));
    BRIM_TRY(check_tensor(&k, "output_norm.weight", c->embed_size, 0));
    if (!c->tied_head)
        BRIM_TRY(check_tensor(&k, "output.weight", c->embed_size, c->vocab_size));
    if (c->has_rope_factors)
        BRIM_TRY(check_rope_factors(&k));
    return refuse_others(&k);
}

/* ---- counts ---- */

static void count_all(brim_model_config *c, const brim_model_file *file)
{
    uint64_t decode_elements = 0;
    for (size_t i = 0; i < brim_model_file_tensor_count(file); i++) {
        const brim_tensor *t = brim_model_file_tensor_at(file, i);
        uint64_t elements = t->dims[0] * t->row_count;
        c->weight_bytes += t->size;
        if (strcmp(t->name, "rope_freqs.weight") == 0) {
            c->decode_bytes += t->size; /* read, but a constant and no parameter */
            continue;
        }
        c->parameter_count += elements;
        if (c->tied_head || strcmp(t->name, "token_embd.weight") != 0) {
            c->decode_bytes += t->size;
            decode_elements += elements;
        }
    }
    c->flops_per_token = 2 * decode_elements;
    c->kv_elements_per_position = 2ull * c->layer_count * c->kv_head_count * c->head_size;
}

brim_status brim_model_config_read(brim_model_config *out, const brim_model_file *file)
{
    brim_model_config config = {0};
    *out = config;
    BRIM_TRY(read_arch(&config.arch, file));
    read_name(&config, file);
    reader r = {.file = file, .arch = brim_arch_name(config.arch)};
    BRIM_TRY(refuse_features(&r));
    BRIM_TRY(read_sizes(&config, &r));
    BRIM_TRY(read_rope(&config, &r));
    BRIM_TRY(read_vocab(&config, &r));
    BRIM_TRY(check_tensors(&config, file));
    count_all(&config, file);
    *out = config;
    return BRIM_OK;
}
