/* Made models have the published sizes, weights of the intended size in every format, vocabularies
 * whose parts fit together, and the same bytes for the same description. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "brim/model.h"
#include "model/gguf_builder.h"

static brim_context *ctx;
static char folder[64], path[128];

static int set_up(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/brim-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    return brim_context_create(&ctx, NULL) == BRIM_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    unlink(path);
    size_t left = brim_context_bytes(ctx);
    brim_context_destroy(ctx);
    return left == 0 && rmdir(folder) == 0 ? 0 : -1; /* no temporary file is left */
}

static brim_make_desc desc_of(const char *shape, const char *type, uint32_t layers, uint32_t vocab)
{
    brim_make_desc desc = brim_make_desc_default();
    desc.shape = shape, desc.type = type, desc.seed = 1;
    desc.layer_count = layers, desc.vocab_size = vocab;
    return desc;
}

static brim_model_file *make_and_open(const char *shape, const char *type, uint32_t layers,
                                      uint32_t vocab)
{
    brim_make_desc desc = desc_of(shape, type, layers, vocab);
    brim_status status = brim_make(ctx, path, &desc);
    brim_model_file *file = NULL;
    if (status == BRIM_OK)
        status = brim_model_file_open(&file, ctx, path);
    if (status != BRIM_OK)
        printf("%s %s: %s\n", shape, type, brim_last_message());
    assert_int_equal(status, BRIM_OK);
    return file;
}

/* ---- shapes ---- */

/* Parameters as the models' own pages and safetensors indices state them (tied heads once), layers
 * and vocabularies of their config.json. The files made have one layer and few tokens; the rest is
 * arithmetic. */
static void make_has_the_published_parameter_counts(void **state)
{
    static const struct {
        const char *shape;
        uint64_t parameters, layers, vocab, embed;
        bool tied;
    } published[] = {
        {"smollm2-135m", 134515008, 30, 49152, 576, true},
        {"smollm2-360m", 361821120, 32, 49152, 960, true},
        {"llama-3.2-1b", 1235814400, 16, 128256, 2048, true},
        {"llama-3.2-3b", 3212749824, 28, 128256, 3072, true},
        {"llama-3.1-8b", 8030261248, 32, 128256, 4096, false},
        {"llama-2-7b", 6738415616, 32, 32000, 4096, false},
        {"mistral-7b", 7241732096, 32, 32000, 4096, false},
        {"qwen2.5-0.5b", 494032768, 24, 151936, 896, true},
        {"qwen2.5-1.5b", 1543714304, 28, 151936, 1536, true},
        {"qwen3-0.6b", 596049920, 28, 151936, 1024, true},
        {"qwen3-8b", 8190735360, 36, 151936, 4096, false},
    };
    enum { TOKENS = 600 };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        assert_string_equal(brim_make_shape_at(i), published[i].shape);
        brim_model_file *file = make_and_open(published[i].shape, "Q4_0", 1, TOKENS);
        brim_model_config c;
        assert_int_equal(brim_model_config_read(&c, file), BRIM_OK);
        assert_int_equal(c.tied_head, published[i].tied);
        assert_int_equal(c.vocab_size, TOKENS);
        uint64_t matrices = c.tied_head ? 1 : 2, embed = published[i].embed;
        uint64_t layer = c.parameter_count - matrices * TOKENS * embed - embed;
        uint64_t whole =
            published[i].layers * layer + matrices * published[i].vocab * embed + embed;
        assert_int_equal(whole, published[i].parameters);
        brim_model_file_close(file);
    }
    assert_null(brim_make_shape_at(sizeof published / sizeof *published));
}

/* The Q4_1 file that llama.cpp's quantiser wrote of the real weights has this many bytes of them:
 * the types of all tensors are the quantiser's. */
static void make_has_the_size_of_the_published_q4_1_file(void **state)
{
    brim_model_file *file = make_and_open("smollm2-135m", "Q4_1", 0, 0);
    brim_model_config c;
    assert_int_equal(brim_model_config_read(&c, file), BRIM_OK);
    assert_int_equal(c.weight_bytes, 96576768);
    assert_int_equal(c.parameter_count, 134515008);
    assert_int_equal(brim_model_file_tensor(file, "token_embd.weight")->type, BRIM_DTYPE_Q8_0);
    brim_model_file_close(file);
}

static void make_gives_mixes_more_bits_where_the_quantiser_does(void **state)
{
    brim_model_file *file = make_and_open("qwen3-0.6b", "Q4_K_M", 16, 600);
    static const char sixes[] = "1100100100100111"; /* first and last eighth, every third between */
    for (uint32_t i = 0; i < 16; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.ffn_down.weight", i);
        brim_dtype wanted = sixes[i] == '1' ? BRIM_DTYPE_Q6_K : BRIM_DTYPE_Q4_K;
        assert_int_equal(brim_model_file_tensor(file, name)->type, wanted);
        snprintf(name, sizeof name, "blk.%u.ffn_up.weight", i);
        assert_int_equal(brim_model_file_tensor(file, name)->type, BRIM_DTYPE_Q4_K);
    }
    assert_int_equal(brim_model_file_tensor(file, "token_embd.weight")->type, BRIM_DTYPE_Q6_K);
    brim_model_file_close(file);
}

static void make_falls_back_where_rows_are_no_multiple_of_256(void **state)
{
    brim_model_file *file = make_and_open("smollm2-135m", "Q4_K", 1, 300);
    assert_int_equal(brim_model_file_tensor(file, "blk.0.attn_q.weight")->type, BRIM_DTYPE_Q5_0);
    assert_int_equal(brim_model_file_tensor(file, "blk.0.ffn_down.weight")->type, BRIM_DTYPE_Q4_K);
    brim_model_file_close(file);
}

/* The formula of Llama 3.1's own code, computed apart: factor 8 at head size 128, 32 at 64. */
static void make_has_llama_3_rope_factors(void **state)
{
    static const struct {
        const char *shape;
        int count, at;
        float first, middle, last;
    } published[] = {{"llama-3.1-8b", 64, 32, 1, 2.694529687894733f, 8},
                     {"llama-3.2-1b", 32, 15, 1, 1.6513292457638982f, 32}};
    for (int i = 0; i < 2; i++) {
        brim_model_file *file = make_and_open(published[i].shape, "Q4_0", 1, 600);
        const brim_tensor *t = brim_model_file_tensor(file, "rope_freqs.weight");
        const float *factors = t->data;
        assert_int_equal(t->dims[0], published[i].count);
        assert_true(factors[0] == published[i].first);
        assert_true(factors[published[i].count - 1] == published[i].last);
        assert_true(fabsf(factors[published[i].at] / published[i].middle - 1) < 1e-6f);
        brim_model_file_close(file);
    }
}

/* ---- weights ---- */

static float half(const uint8_t *p)
{
    uint16_t bits;
    memcpy(&bits, p, 2);
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value =
        exponent ? ldexpf((float)(fraction + 1024), exponent - 25) : ldexpf((float)fraction, -24);
    return bits & 0x8000 ? -value : value;
}

static void inner_scale(int *scale, int *minimum, const uint8_t *q, int j)
{
    if (j < 4) {
        *scale = q[j] & 63, *minimum = q[j + 4] & 63;
    } else {
        *scale = (q[j + 4] & 15) | (q[j - 4] >> 6) << 4;
        *minimum = q[j + 4] >> 4 | (q[j] >> 6) << 4;
    }
}

/* Weight `i` of a block, one at a time, after the description of the formats in ggml. */
static float weight_32(brim_dtype type, const uint8_t *b, int i)
{
    const uint8_t *quants = b + (type == BRIM_DTYPE_Q4_0   ? 2
                                 : type == BRIM_DTYPE_Q4_1 ? 4
                                 : type == BRIM_DTYPE_Q5_0 ? 6
                                                           : 8);
    int q = i < 16 ? quants[i] & 15 : quants[i - 16] >> 4;
    uint32_t high = 0;
    switch (type) {
    case BRIM_DTYPE_Q4_0:
        return half(b) * (float)(q - 8);
    case BRIM_DTYPE_Q4_1:
        return half(b) * (float)q + half(b + 2);
    case BRIM_DTYPE_Q5_0:
        memcpy(&high, b + 2, 4);
        return half(b) * (float)((q | (high >> i & 1) << 4) - 16.0f);
    case BRIM_DTYPE_Q5_1:
        memcpy(&high, b + 4, 4);
        return half(b) * (float)(q | (high >> i & 1) << 4) + half(b + 2);
    default:
        return half(b) * (float)(int8_t)b[2 + i]; /* Q8_0 */
    }
}

static float weight_256(brim_dtype type, const uint8_t *b, int i)
{
    if (type == BRIM_DTYPE_Q6_K) {
        int part = i / 128, l = i % 32,
            group = i % 128 / 32; /* 128 weights a part, 4 groups of 32 */
        int low = b[64 * part + l + (group & 1) * 32];
        int q = (group < 2 ? low & 15 : low >> 4) | (b[128 + 32 * part + l] >> (2 * group) & 3)
                                                        << 4;
        return half(b + 208) * (float)(int8_t)b[192 + i / 16] * (float)(q - 32);
    }
    int j = i / 32, scale, minimum;
    inner_scale(&scale, &minimum, b + 4, j);
    const uint8_t *low = b + (type == BRIM_DTYPE_Q4_K ? 16 : 48) + 32 * (j / 2);
    int q = j % 2 ? low[i % 32] >> 4 : low[i % 32] & 15;
    if (type == BRIM_DTYPE_Q5_K)
        q |= (b[16 + i % 32] >> j & 1) << 4;
    return half(b) * (float)scale * (float)q - half(b + 2) * (float)minimum;
}

static float weight(const brim_tensor *t, uint64_t index)
{
    const uint8_t *data = t->data;
    uint32_t block = brim_dtype_block(t->type);
    const uint8_t *b = data + index / block * brim_dtype_block_bytes(t->type);
    float value = 0;
    uint32_t bits;
    uint16_t word;
    switch (t->type) {
    case BRIM_DTYPE_F32:
        memcpy(&value, b, 4);
        return value;
    case BRIM_DTYPE_F16:
        return half(b);
    case BRIM_DTYPE_BF16:
        memcpy(&word, b, 2);
        bits = (uint32_t)word << 16;
        memcpy(&value, &bits, 4);
        return value;
    default:
        return block == 32 ? weight_32(t->type, b, (int)(index % 32))
                           : weight_256(t->type, b, (int)(index % 256));
    }
}

/* Mean 0 and standard deviation 0.6 / sqrt(row), give or take the 30 % by which matrices differ:
 * a wrong block layout gives weights that are far off. */
static void make_draws_weights_of_the_right_size_in_every_format(void **state)
{
    static const char *const types[] = {"F32",  "F16",  "BF16", "Q8_0", "Q4_0", "Q4_1",
                                        "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        brim_model_file *file = make_and_open("qwen3-0.6b", types[k], 1, 300);
        const brim_tensor *t = brim_model_file_tensor(file, "blk.0.ffn_gate.weight");
        brim_dtype wanted;
        assert_true(brim_dtype_parse(&wanted, types[k]));
        assert_int_equal(t->type, wanted);
        uint64_t count = t->dims[0] * t->dims[1] / 8;
        double sum = 0, squares = 0, most = 0;
        for (uint64_t i = 0; i < count; i++) {
            double w = (double)weight(t, i);
            sum += w, squares += w * w;
            most = fabs(w) > most ? fabs(w) : most;
        }
        double deviation = sqrt(squares / (double)count), expected = 0.6 / sqrt((double)t->dims[0]);
        if (deviation < 0.69 * expected || deviation > 1.31 * expected)
            printf("%s: deviation %g, expected about %g\n", types[k], deviation, expected);
        assert_true(deviation > 0.69 * expected && deviation < 1.31 * expected);
        assert_true(fabs(sum / (double)count) < 0.02 * deviation);
        assert_true(most < 6 * deviation);
        brim_model_file_close(file);
    }
}

static void make_draws_norms_around_one(void **state)
{
    brim_model_file *file = make_and_open("smollm2-135m", "Q4_1", 2, 300);
    static const char *const names[] = {"blk.0.attn_norm.weight", "blk.1.ffn_norm.weight",
                                        "output_norm.weight"};
    for (size_t k = 0; k < 3; k++) {
        const brim_tensor *t = brim_model_file_tensor(file, names[k]);
        for (uint64_t i = 0; i < t->dims[0]; i++) {
            float w = weight(t, i);
            assert_true(w > 0 && w < 3);
        }
    }
    brim_model_file_close(file);
}

/* ---- vocabularies ---- */

static void token(const char **out, size_t *out_size, const brim_model_file *file, uint64_t id)
{
    const brim_meta *tokens = brim_model_file_meta(file, "tokenizer.ggml.tokens");
    assert_int_equal(brim_meta_string(out, out_size, file, tokens, id), BRIM_OK);
}

static void token_is(const brim_model_file *file, uint64_t id, const char *wanted)
{
    const char *text;
    size_t size;
    token(&text, &size, file, id);
    assert_int_equal(size, strlen(wanted));
    assert_memory_equal(text, wanted, size);
}

/* Ids that the models' own vocabularies give these tokens. */
static void check_special_tokens(const brim_model_file *file, const char *shape)
{
    static const struct {
        const char *shape;
        uint64_t id;
        const char *text;
    } published[] = {
        {"smollm2-135m", 0, "<|endoftext|>"},
        {"smollm2-135m", 1, "<|im_start|>"},
        {"smollm2-135m", 2, "<|im_end|>"},
        {"smollm2-135m", 16, "<empty_output>"},
        {"llama-3.2-1b", 128000, "<|begin_of_text|>"},
        {"llama-3.2-1b", 128001, "<|end_of_text|>"},
        {"llama-3.2-1b", 128006, "<|start_header_id|>"},
        {"llama-3.2-1b", 128009, "<|eot_id|>"},
        {"llama-3.2-1b", 128255, "<|reserved_special_token_247|>"},
        {"qwen2.5-0.5b", 151643, "<|endoftext|>"},
        {"qwen2.5-0.5b", 151645, "<|im_end|>"},
        {"qwen2.5-0.5b", 151664, "<|file_sep|>"},
        {"qwen2.5-0.5b", 151935, "[PAD151935]"},
        {"qwen3-0.6b", 151667, "<think>"},
        {"qwen3-0.6b", 151668, "</think>"},
        {"llama-2-7b", 0, "<unk>"},
        {"llama-2-7b", 1, "<s>"},
        {"llama-2-7b", 2, "</s>"},
        {"llama-2-7b", 3, "<0x00>"},
        {"llama-2-7b", 258, "<0xFF>"},
    };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        if (strcmp(published[i].shape, shape) == 0)
            token_is(file, published[i].id, published[i].text);
}

/* The first 256 tokens of GPT-2's own vocabulary are the bytes, in this order. */
static void make_spells_bytes_as_gpt2_does(void **state)
{
    const char *data = getenv("BRIM_DATA");
    char name[4096];
    snprintf(name, sizeof name, "%s/tokenizer/gpt-2.gguf.gz",
             data ? data : BRIM_SOURCE_DIR "/../shared/data");
    gzFile packed = gzopen(name, "rb");
    if (!packed) {
        printf("skipped: no data\n");
        return;
    }
    gguf_builder b = {0};
    char chunk[65536];
    for (int n; (n = gzread(packed, chunk, sizeof chunk)) > 0;)
        gb_put(&b, chunk, (size_t)n);
    gzclose(packed);
    brim_model_file *real, *made = make_and_open("qwen3-0.6b", "Q4_0", 1, 300);
    assert_int_equal(brim_model_file_open_memory(&real, ctx, b.data, b.size), BRIM_OK);
    for (uint64_t i = 0; i < 256; i++) {
        const char *a, *c;
        size_t a_size, c_size;
        token(&a, &a_size, real, i), token(&c, &c_size, made, i);
        assert_int_equal(a_size, c_size);
        assert_memory_equal(a, c, a_size);
    }
    brim_model_file_close(made);
    brim_model_file_close(real);
    gb_done(&b);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All tokens as sorted 0-terminated strings. */
static char **sorted_tokens(const brim_model_file *file, size_t *out_count)
{
    size_t count = (size_t)brim_model_file_meta(file, "tokenizer.ggml.tokens")->count;
    char **list = malloc(count * sizeof *list);
    for (size_t i = 0; i < count; i++) {
        const char *text;
        size_t size;
        token(&text, &size, file, i);
        assert_true(size > 0);
        list[i] = strndup(text, size);
    }
    qsort(list, count, sizeof *list, compare_texts);
    *out_count = count;
    return list;
}

static bool has_token(char **list, size_t count, const char *text)
{
    return bsearch(&text, list, count, sizeof *list, compare_texts) != NULL;
}

static void check_merges(const brim_model_file *file, char **list, size_t count)
{
    const brim_meta *merges = brim_model_file_meta(file, "tokenizer.ggml.merges");
    for (uint64_t i = 0; merges && i < merges->count; i++) {
        const char *text;
        size_t size;
        assert_int_equal(brim_meta_string(&text, &size, file, merges, i), BRIM_OK);
        char left[64], right[64], both[128];
        snprintf(left, sizeof left, "%.*s", (int)size, text);
        char *space = strchr(left, ' ');
        assert_non_null(space);
        snprintf(right, sizeof right, "%s", space + 1);
        *space = 0;
        snprintf(both, sizeof both, "%s%s", left, right);
        assert_true(has_token(list, count, left) && has_token(list, count, right));
        assert_true(has_token(list, count, both));
    }
}

static void check_distinct(const brim_model_file *file)
{
    size_t count;
    char **list = sorted_tokens(file, &count);
    for (size_t i = 1; i < count; i++)
        assert_string_not_equal(list[i - 1], list[i]);
    check_merges(file, list, count);
    assert_int_equal(brim_model_file_meta(file, "tokenizer.ggml.token_type")->count, count);
    for (size_t i = 0; i < count; i++)
        free(list[i]);
    free(list);
}

static void make_has_whole_vocabularies_with_published_special_ids(void **state)
{
    static const char *const shapes[] = {"smollm2-135m", "llama-3.2-1b", "qwen2.5-0.5b",
                                         "qwen3-0.6b", "llama-2-7b"};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        brim_model_file *file = make_and_open(shapes[k], "Q4_0", 1, 0);
        check_special_tokens(file, shapes[k]);
        check_distinct(file);
        brim_model_file_close(file);
    }
}

/* ---- bytes ---- */

static uint64_t file_hash(size_t start)
{
    brim__map map;
    assert_int_equal(brim__map_open(&map, path), BRIM_OK);
    uint64_t hash = brim__hash64(map.data + start, map.size - start, 0);
    brim__map_close(&map);
    return hash;
}

static void make_gives_the_same_bytes_for_the_same_description(void **state)
{
    brim_make_desc desc = desc_of("smollm2-135m", "Q4_1", 1, 300);
    assert_int_equal(brim_make(ctx, path, &desc), BRIM_OK);
    uint64_t first = file_hash(0);
    assert_int_equal(brim_make(ctx, path, &desc), BRIM_OK);
    assert_true(file_hash(0) == first);
    desc.seed = 2;
    assert_int_equal(brim_make(ctx, path, &desc), BRIM_OK);
    assert_true(file_hash(0) != first);
}

/* Hashes noted once, of the data section: the weights depend neither on the compiler nor on the
 * day. */
static void make_gives_the_weights_it_always_gave(void **state)
{
    static const struct {
        const char *shape, *type;
        uint64_t hash;
    } noted[] = {
        {"smollm2-135m", "Q4_1", 0xa01d4a95928cad99},
        {"smollm2-135m", "F16", 0x633ce59308ed306f},
        {"qwen3-0.6b", "Q4_K_M", 0x056a6b56befa9efd},
        {"llama-2-7b", "Q4_0", 0x6c8a7b579229fd37},
    };
    for (size_t i = 0; i < sizeof noted / sizeof *noted; i++) {
        brim_model_file *file = make_and_open(noted[i].shape, noted[i].type, 1, 400);
        uint64_t hash = file_hash(brim_model_file_tensor_at(file, 0)->file_offset);
        brim_model_file_close(file);
        if (hash != noted[i].hash)
            printf("%s %s: 0x%016llx\n", noted[i].shape, noted[i].type, (unsigned long long)hash);
        assert_true(hash == noted[i].hash);
    }
}

typedef struct seen {
    uint64_t done, total, calls;
} seen;

static void note_progress(uint64_t done, uint64_t total, void *user)
{
    seen *s = user;
    assert_true(done >= s->done && done <= total);
    *s = (seen){done, total, s->calls + 1};
}

static void make_reports_progress_up_to_the_file_size(void **state)
{
    seen s = {0};
    brim_make_desc desc = desc_of("smollm2-135m", "Q8_0", 1, 300);
    desc.progress = note_progress, desc.user = &s;
    assert_int_equal(brim_make(ctx, path, &desc), BRIM_OK);
    brim__map map;
    assert_int_equal(brim__map_open(&map, path), BRIM_OK);
    assert_int_equal(s.done, map.size);
    assert_int_equal(s.total, map.size);
    assert_true(s.calls > 10);
    brim__map_close(&map);
}

static bool cancel_at_the_third_call(void *user)
{
    return ++*(int *)user == 3;
}

static void make_leaves_no_file_when_cancelled(void **state)
{
    int calls = 0;
    brim_make_desc desc = desc_of("smollm2-135m", "Q8_0", 1, 300);
    desc.cancelled = cancel_at_the_third_call, desc.user = &calls;
    unlink(path);
    assert_int_equal(brim_make(ctx, path, &desc), BRIM_CANCELLED);
    assert_string_equal(brim_last_id(), "make.cancelled");
    assert_int_equal(calls, 3);
    assert_int_equal(access(path, F_OK), -1);
}

/* ---- refusals ---- */

static void make_fails_with(const brim_make_desc *desc, const char *where, brim_status status,
                            const char *id, const char *text)
{
    assert_int_equal(brim_make(ctx, where, desc), status);
    assert_string_equal(brim_last_id(), id);
    assert_non_null(strstr(brim_last_message(), text));
}

static void make_refuses_what_it_cannot_make(void **state)
{
    brim_make_desc desc = desc_of("llama-9b", "Q4_0", 1, 0);
    make_fails_with(&desc, path, BRIM_USAGE, "make.shape", "llama-3.2-1b");
    desc = desc_of(NULL, "Q4_0", 1, 0);
    make_fails_with(&desc, path, BRIM_USAGE, "make.shape", "missing");
    desc = desc_of("smollm2-135m", "Q3_K", 1, 0);
    make_fails_with(&desc, path, BRIM_USAGE, "make.type", "Q4_K_M");
    desc = desc_of("smollm2-135m", "q4_0", 1, 272);
    make_fails_with(&desc, path, BRIM_USAGE, "make.vocab", "273");
    desc = desc_of("smollm2-135m", "q4_0", 5000, 0);
    make_fails_with(&desc, path, BRIM_USAGE, "make.layers", "5000");
    desc = (brim_make_desc){.shape = "smollm2-135m"};
    make_fails_with(&desc, path, BRIM_USAGE, "make.desc", "default");
    desc = desc_of("smollm2-135m", "q4_0", 1, 0);
    make_fails_with(&desc, "/nowhere/m.gguf", BRIM_IO, "make.write", "/nowhere/m.gguf");
    make_fails_with(&desc, folder, BRIM_IO, "make.write", "rename");
    char temporary[160]; /* that one is beside the folder */
    snprintf(temporary, sizeof temporary, "%s.tmp.%ld", folder, (long)getpid());
    assert_int_equal(access(temporary, F_OK), -1);
}

static void make_accepts_the_smallest_vocabulary(void **state)
{
    static const struct {
        const char *shape;
        uint32_t
            size; /* 256 bytes and the special tokens; SentencePiece: 95 single characters too */
    } smallest[] = {{"smollm2-135m", 273}, {"qwen3-0.6b", 282}, {"llama-2-7b", 354}};
    for (size_t i = 0; i < 3; i++) {
        brim_model_file *file = make_and_open(smallest[i].shape, "Q4_0", 1, smallest[i].size);
        brim_model_config c;
        assert_int_equal(brim_model_config_read(&c, file), BRIM_OK);
        brim_model_file_close(file);
    }
}

static void make_leaves_nothing_when_any_allocation_fails(void **state)
{
    brim_make_desc desc = desc_of("smollm2-135m", "Q4_1", 1, 300);
    brim__memory_fail_at(ctx, 0);
    assert_int_equal(brim_make(ctx, path, &desc), BRIM_OK);
    uint64_t count = brim__memory_fail_at(ctx, 0);
    unlink(path);
    assert_true(count > 3);
    for (uint64_t i = 1; i <= count; i++) {
        brim__memory_fail_at(ctx, i);
        assert_int_equal(brim_make(ctx, path, &desc), BRIM_NO_MEMORY);
        assert_int_equal(brim_context_bytes(ctx), 0);
        assert_int_equal(access(path, F_OK), -1);
    }
    brim__memory_fail_at(ctx, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(make_has_the_published_parameter_counts),
        cmocka_unit_test(make_has_the_size_of_the_published_q4_1_file),
        cmocka_unit_test(make_gives_mixes_more_bits_where_the_quantiser_does),
        cmocka_unit_test(make_falls_back_where_rows_are_no_multiple_of_256),
        cmocka_unit_test(make_has_llama_3_rope_factors),
        cmocka_unit_test(make_draws_weights_of_the_right_size_in_every_format),
        cmocka_unit_test(make_draws_norms_around_one),
        cmocka_unit_test(make_spells_bytes_as_gpt2_does),
        cmocka_unit_test(make_has_whole_vocabularies_with_published_special_ids),
        cmocka_unit_test(make_gives_the_same_bytes_for_the_same_description),
        cmocka_unit_test(make_gives_the_weights_it_always_gave),
        cmocka_unit_test(make_reports_progress_up_to_the_file_size),
        cmocka_unit_test(make_leaves_no_file_when_cancelled),
        cmocka_unit_test(make_refuses_what_it_cannot_make),
        cmocka_unit_test(make_accepts_the_smallest_vocabulary),
        cmocka_unit_test(make_leaves_nothing_when_any_allocation_fails),
    };
    return cmocka_run_group_tests_name("make", tests, set_up, tear_down);
}
