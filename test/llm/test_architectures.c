/* test_architectures.c: for every feature of the architectures and every tensor type, the logits of
 * a small model against a float64 computation (tools/reference.py).
 *
 * The models are made here, from a seed; some get metadata of their own, a sliding window say. The
 * hash of a model's bytes is compared first: golden logits belong to exactly these weights. With
 * BRIM_ARCH_WRITE=DIRECTORY nothing is compared and the models are written there instead, with the
 * token ids and the positions whose logits are kept: test/golden/README.md says what to do then. */
#include "llm/llm_fixture.h"

#include <math.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/hash.h"
#include "base/rng.h"

enum {
    VOCAB = 512,
    LENGTH = 48,       /* positions of most cases */
    LENGTH_LONG = 300, /* more than one attention split of 256 */
    WINDOW = 40,       /* of the cases that have one: shorter than LENGTH */
    SINGLE_STEPS = 5,  /* positions at the end that are fed one by one */
    HEADER_BYTES = 24, /* of GGUF, before its keys */
    COUNT_AT = 16,     /* where it counts its keys */
    ROWS_MAX = 24,
};

/* Nats, mean over the positions. Measured: 2e-13 to 3e-12 and 6e-9 to 3e-8. */
static const double KL_EXACT_MAX = 3e-11, KL_DEFAULT_MAX = 3e-7;

/* Metadata that is changed, or added if the made file doesn't have it. */
typedef struct arch_key {
    const char *name;
    brim_meta_type type; /* U32, F32 or STRING */
    uint32_t u32;
    float f32;
    const char *string;
} arch_key;

typedef struct arch_case {
    const char *claim; /* name of the test */
    const char *name;  /* of the golden file */
    const char *shape, *type;
    uint32_t layers, length;
    uint64_t hash; /* of the model's bytes */
    arch_key keys[2];
} arch_case;

/* clang-format off */
static const arch_case cases[] = {
    {"llama_is_float64s", "llama", "smollm2-135m", "Q4_1", 3, LENGTH, 0xa5276d55669a0c64, {{0}}},
    {"llama_past_an_attention_split_is_float64s", "llama-long", "smollm2-135m", "F16", 2, LENGTH_LONG, 0x80bea8b3e1743a3e, {{0}}},
    {"llama_with_a_window_is_float64s", "llama-window", "smollm2-135m", "F16", 2, LENGTH_LONG, 0x6752123ebd194eac,
     {{"llama.attention.sliding_window", BRIM_META_U32, .u32 = WINDOW}}},
    {"llama_with_linear_scaling_is_float64s", "llama-linear", "smollm2-135m", "F16", 2, LENGTH, 0x1e0442351541347c,
     {{"llama.rope.scaling.type", BRIM_META_STRING, .string = "linear"},
      {"llama.rope.scaling.factor", BRIM_META_F32, .f32 = 4}}},
    {"llama_with_half_of_a_head_turned_is_float64s", "llama-part", "smollm2-135m", "F16", 2, LENGTH, 0x220355a31d360de6,
     {{"llama.rope.dimension_count", BRIM_META_U32, .u32 = 32}}},
    /* Positions here are few: only with a small base do the scaled frequencies turn far enough. */
    {"llama_with_rope_factors_is_float64s", "llama-factors", "llama-3.2-1b", "Q4_K_M", 1, LENGTH, 0x5e6a202765cac457,
     {{"llama.rope.freq_base", BRIM_META_F32, .f32 = 100}}},
    {"mistral_with_its_window_and_its_own_head_is_float64s", "mistral", "mistral-7b", "Q4_0", 1, LENGTH, 0x497a08fed348c702,
     {{"llama.attention.sliding_window", BRIM_META_U32, .u32 = WINDOW}}},
    {"qwen2_with_biases_is_float64s", "qwen2", "qwen2.5-0.5b", "Q8_0", 2, LENGTH, 0xd96d34fe0acc2ffc, {{0}}},
    {"qwen3_with_normed_heads_is_float64s", "qwen3", "qwen3-0.6b", "Q8_0", 2, LENGTH, 0x9cc5f246046e3865, {{0}}},
    {"qwen3_scaled_and_with_half_of_a_head_turned_is_float64s", "qwen3-part", "qwen3-0.6b", "Q5_K_M", 1, LENGTH, 0x587fd5bb93d5bf98,
     {{"qwen3.rope.dimension_count", BRIM_META_U32, .u32 = 64},
      {"qwen3.rope.scale_linear", BRIM_META_F32, .f32 = 2.5f}}},
    {"f32_is_float64s", "f32", "smollm2-135m", "F32", 1, LENGTH, 0xa4a3951837414f68, {{0}}},
    {"f16_is_float64s", "f16", "smollm2-135m", "F16", 1, LENGTH, 0x96401cc773ab3cc1, {{0}}},
    {"bf16_is_float64s", "bf16", "smollm2-135m", "BF16", 1, LENGTH, 0xf8472f0d5f280b45, {{0}}},
    {"q8_0_is_float64s", "q8_0", "smollm2-135m", "Q8_0", 1, LENGTH, 0xa3eaf85d4e34d334, {{0}}},
    {"q4_0_is_float64s", "q4_0", "smollm2-135m", "Q4_0", 1, LENGTH, 0x8799ee8dc8149588, {{0}}},
    {"q4_1_is_float64s", "q4_1", "smollm2-135m", "Q4_1", 1, LENGTH, 0x35c99f3ef9189e77, {{0}}},
    {"q5_0_is_float64s", "q5_0", "smollm2-135m", "Q5_0", 1, LENGTH, 0xa2d161c8a4589139, {{0}}},
    {"q5_1_is_float64s", "q5_1", "smollm2-135m", "Q5_1", 1, LENGTH, 0xd90dd72e7cd2d0f9, {{0}}},
    {"q4_k_is_float64s", "q4_k", "qwen3-0.6b", "Q4_K", 1, LENGTH, 0x1afda2dc70c27c1c, {{0}}},
    {"q5_k_is_float64s", "q5_k", "qwen3-0.6b", "Q5_K", 1, LENGTH, 0x76cab612a9e8b3c0, {{0}}},
    {"q6_k_is_float64s", "q6_k", "qwen3-0.6b", "Q6_K", 1, LENGTH, 0x11be12b0f6e962cd, {{0}}},
};
/* clang-format on */
enum { CASE_COUNT = sizeof cases / sizeof *cases };

/* Around the borders of windows, KV blocks, steps and attention splits. */
static const uint32_t positions[] = {0, 1, 7, 31, 32, 39, 40, 47};
static const uint32_t positions_long[] = {0,  1,   31,  32,  39,  40,  47,  63,  64,
                                          79, 127, 128, 254, 255, 256, 257, 295, 299};

static const uint32_t *case_positions(uint32_t *out_count, const arch_case *c)
{
    bool is_long = c->length == LENGTH_LONG;
    *out_count = is_long ? sizeof positions_long / sizeof *positions_long
                         : sizeof positions / sizeof *positions;
    return is_long ? positions_long : positions;
}

static brim_token token_at(uint32_t position)
{
    return (brim_token)brim__random_below(99, 0, position, VOCAB);
}

/* ---- models ---- */

typedef struct model_bytes {
    uint8_t *data;
    size_t size;
} model_bytes;

static model_bytes read_file(const char *path)
{
    struct stat s;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &s), 0);
    model_bytes bytes = {malloc((size_t)s.st_size), (size_t)s.st_size};
    assert_non_null(bytes.data);
    assert_int_equal(fread(bytes.data, 1, bytes.size, file), bytes.size);
    fclose(file);
    return bytes;
}

static model_bytes make_bytes_of(brim_context *ctx, const arch_case *c)
{
    char path[] = "/tmp/brim-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    brim_make_desc desc = brim_make_desc_default();
    desc.shape = c->shape;
    desc.type = c->type;
    desc.seed = 7;
    desc.layer_count = c->layers;
    desc.vocab_size = VOCAB;
    assert_ok(brim_make(ctx, path, &desc));
    model_bytes bytes = read_file(path);
    unlink(path);
    return bytes;
}

/* Where a key's value is, 0 if the file does not have it. */
static uint64_t value_offset(brim_context *ctx, model_bytes bytes, const arch_key *key)
{
    brim_model_file *file;
    assert_ok(brim_model_file_open_memory(&file, ctx, bytes.data, bytes.size));
    const brim_meta *meta = brim_model_file_meta(file, key->name);
    uint64_t offset = meta ? meta->file_offset : 0;
    assert_true(!meta || meta->type == key->type);
    brim_model_file_close(file);
    return offset;
}

static size_t put_string(uint8_t *out, const char *text)
{
    uint64_t size = strlen(text);
    memcpy(out, &size, sizeof size);
    memcpy(out + sizeof size, text, size);
    return sizeof size + size;
}

static const void *number_of(const arch_key *key)
{
    return key->type == BRIM_META_F32 ? (const void *)&key->f32 : &key->u32;
}

static size_t put_key(uint8_t *out, const arch_key *key)
{
    uint32_t type = key->type;
    size_t size = put_string(out, key->name);
    memcpy(out + size, &type, sizeof type);
    size += sizeof type;
    if (key->type == BRIM_META_STRING)
        return size + put_string(out + size, key->string);
    memcpy(out + size, number_of(key), 4);
    return size + 4;
}

/* Puts more keys before the others. A last one fills up to the 32 bytes that tensors align to, so
 * that all that follows moves as a whole. `added` has room for it. */
static void insert_keys(model_bytes *bytes, uint8_t *added, size_t size, uint64_t added_count)
{
    char text[33] = "";
    arch_key filler = {"test.filler", BRIM_META_STRING, .string = text};
    memset(text, '.', (32 - (size + put_key(added + size, &filler)) % 32) % 32);
    size += put_key(added + size, &filler);
    assert_int_equal(size % 32, 0);
    uint8_t *data = malloc(bytes->size + size);
    assert_non_null(data);
    memcpy(data, bytes->data, HEADER_BYTES);
    memcpy(data + HEADER_BYTES, added, size);
    memcpy(data + HEADER_BYTES + size, bytes->data + HEADER_BYTES, bytes->size - HEADER_BYTES);
    uint64_t count;
    memcpy(&count, data + COUNT_AT, sizeof count);
    count += added_count + 1;
    memcpy(data + COUNT_AT, &count, sizeof count);
    free(bytes->data);
    *bytes = (model_bytes){data, bytes->size + size};
}

static model_bytes case_bytes(brim_context *ctx, const arch_case *c)
{
    model_bytes bytes = make_bytes_of(ctx, c);
    uint8_t added[512];
    size_t size = 0;
    uint64_t count = 0;
    for (size_t i = 0; i < sizeof c->keys / sizeof *c->keys && c->keys[i].name; i++) {
        const arch_key *key = &c->keys[i];
        uint64_t offset = value_offset(ctx, bytes, key);
        if (offset)
            memcpy(bytes.data + offset, number_of(key), 4);
        else
            size += put_key(added + size, key), count++;
    }
    if (count)
        insert_keys(&bytes, added, size, count);
    return bytes;
}

/* ---- comparing ---- */

/* Golden logits, float32 (row, vocab), and what was compared with them so far. */
typedef struct golden {
    uint32_t rows;
    uint32_t positions[ROWS_MAX];
    float logits[ROWS_MAX][VOCAB];
    uint32_t seen;
    double kl_sum;
} golden;

static void golden_read(golden *g, const arch_case *c)
{
    char path[4096], magic[8];
    uint32_t vocab, count;
    snprintf(path, sizeof path, BRIM_SOURCE_DIR "/test/golden/arch-%s.gz", c->name);
    gzFile file = gzopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(gzread(file, magic, 8), 8);
    assert_memory_equal(magic, "BRIMLOG2", 8);
    assert_int_equal(gzread(file, &g->rows, 4), 4);
    assert_int_equal(gzread(file, &vocab, 4), 4);
    const uint32_t *expected = case_positions(&count, c);
    assert_int_equal(g->rows, count);
    assert_int_equal(vocab, VOCAB);
    assert_int_equal(gzread(file, g->positions, 4 * count), 4 * count);
    assert_memory_equal(g->positions, expected, 4 * count);
    for (uint32_t r = 0; r < count; r++)
        assert_int_equal(gzread(file, g->logits[r], sizeof g->logits[r]), sizeof g->logits[r]);
    gzclose(file);
}

static double log_sum_exp(const float *x)
{
    double max = (double)x[0], sum = 0;
    for (uint32_t i = 1; i < VOCAB; i++)
        max = fmax(max, (double)x[i]);
    for (uint32_t i = 0; i < VOCAB; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

static bool compare_row(uint32_t position, const float *logits, void *user)
{
    golden *g = user;
    if (g->seen >= g->rows || g->positions[g->seen] != position)
        return true;
    const float *p = g->logits[g->seen++];
    double zp = log_sum_exp(p), zq = log_sum_exp(logits);
    for (uint32_t i = 0; i < VOCAB; i++) {
        double log_p = (double)p[i] - zp;
        g->kl_sum += exp(log_p) * (log_p - ((double)logits[i] - zq));
    }
    return true;
}

static double mean_kl(golden *g, const fixture *f, uint32_t length, brim_numerics numerics,
                      brim_executor_kind kind)
{
    brim_token ids[LENGTH_LONG];
    for (uint32_t i = 0; i < length; i++)
        ids[i] = token_at(i);
    brim_runner_desc desc = brim_runner_desc_default();
    desc.numerics = numerics;
    desc.executor.kind = kind;
    desc.executor.isa = brim_isa_best(); /* test_bits.c: the bits do not depend on it */
    desc.context = length;
    brim_runner *runner;
    brim_session *session;
    g->seen = 0, g->kl_sum = 0;
    assert_ok(brim_runner_create(&runner, f->ctx, f->llm, &desc));
    assert_ok(brim_session_create(&session, runner));
    uint32_t first = length - SINGLE_STEPS;
    assert_ok(brim_session_feed(session, ids, first, compare_row, g));
    for (uint32_t i = first; i < length; i++)
        assert_ok(brim_session_feed(session, ids + i, 1, compare_row, g));
    brim_session_destroy(session);
    brim_runner_destroy(runner);
    assert_true(g->seen > 0 && g->positions[g->seen - 1] == length - 1);
    return g->kl_sum / g->seen;
}

static void check_logits(const fixture *f, const arch_case *c)
{
    static golden g;
    golden_read(&g, c);
    double kl[2][2]; /* (executor, numerics) */
    for (int kind = 0; kind < 2; kind++)
        for (int numerics = 0; numerics < 2; numerics++)
            kl[kind][numerics] =
                mean_kl(&g, f, kind == 0 ? c->length : LENGTH,
                        numerics == 0 ? BRIM_NUMERICS_EXACT : BRIM_NUMERICS_DEFAULT,
                        kind == 0 ? BRIM_EXECUTOR_CPU : BRIM_EXECUTOR_REFERENCE);
    print_message("%s: mean KL exact %.1e default %.1e; reference executor %.1e %.1e\n", c->name,
                  kl[0][0], kl[0][1], kl[1][0], kl[1][1]);
    for (int kind = 0; kind < 2; kind++) {
        assert_true(kl[kind][0] < KL_EXACT_MAX);
        assert_true(kl[kind][1] < KL_DEFAULT_MAX);
    }
}

/* ---- the test, and writing what the golden files are made from ---- */

static FILE *create(const char *folder, const char *name, const char *suffix)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, suffix);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    return file;
}

static void write_case(const char *folder, const arch_case *c, model_bytes bytes)
{
    FILE *file = create(folder, c->name, "gguf");
    assert_int_equal(fwrite(bytes.data, 1, bytes.size, file), bytes.size);
    assert_int_equal(fclose(file), 0);
    file = create(folder, c->name, "ids");
    for (uint32_t i = 0; i < c->length; i++)
        fprintf(file, "%d\n", (int)token_at(i));
    assert_int_equal(fclose(file), 0);
    file = create(folder, c->name, "positions");
    uint32_t count;
    const uint32_t *list = case_positions(&count, c);
    for (uint32_t i = 0; i < count; i++)
        fprintf(file, "%s%u", i ? "," : "", list[i]);
    assert_int_equal(fclose(file), 0);
}

static void check_case(void **state)
{
    const arch_case *c = *state;
    const char *folder = getenv("BRIM_ARCH_WRITE");
    fixture f;
    assert_ok(brim_context_create(&f.ctx, NULL));
    model_bytes bytes = case_bytes(f.ctx, c);
    uint64_t hash = brim__hash64(bytes.data, bytes.size, 0);
    if (folder) {
        write_case(folder, c, bytes);
        print_message("%s: hash 0x%016llx\n", c->name, (unsigned long long)hash);
        free(bytes.data);
        brim_context_destroy(f.ctx);
        return;
    }
    if (hash != c->hash)
        fail_msg("%s: the model's bytes have hash 0x%016llx, not 0x%016llx: brim_make() makes "
                 "another file; if that is meant, test/golden/README.md says how to go on",
                 c->name, (unsigned long long)hash, (unsigned long long)c->hash);
    assert_ok(brim_model_file_open_memory(&f.file, f.ctx, bytes.data, bytes.size));
    assert_ok(brim_llm_create(&f.llm, f.ctx, f.file, NULL));
    check_logits(&f, c);
    fixture_close(&f);
    free(bytes.data);
}

int main(void)
{
    struct CMUnitTest tests[CASE_COUNT];
    for (size_t i = 0; i < CASE_COUNT; i++)
        tests[i] = (struct CMUnitTest){
            .name = cases[i].claim, .test_func = check_case, .initial_state = (void *)&cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
