/* Facts of real files, and split files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <unistd.h>
#include <zlib.h>

#include "base/memory.h"
#include "base/thread.h"
#include "brim/model.h"
#include "model/gguf_builder.h"

static brim_context *ctx;

static int make_context(void **state)
{
    return brim_context_create(&ctx, NULL) == BRIM_OK ? 0 : -1;
}

static int check_context(void **state)
{
    size_t left = brim_context_bytes(ctx);
    brim_context_destroy(ctx);
    return left == 0 ? 0 : -1;
}

/* ---- the vocabularies of llama.cpp ---- */

/* Unpacks data/tokenizer/NAME.gguf.gz; false (said) when it is absent. */
static bool unpack(gguf_builder *out, const char *name)
{
    const char *data = getenv("BRIM_DATA");
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer/%s.gguf.gz",
             data ? data : BRIM_SOURCE_DIR "/../shared/data", name);
    gzFile file = gzopen(path, "rb");
    if (!file) {
        printf("skipped: no data\n");
        return false;
    }
    char chunk[65536];
    for (int n; (n = gzread(file, chunk, sizeof chunk)) > 0;)
        gb_put(out, chunk, (size_t)n);
    gzclose(file);
    return true;
}

/* What gguf-dump of the gguf Python package shows for these files. */
static void model_file_reads_published_vocabularies(void **state)
{
    static const struct {
        const char *name, *arch, *model, *pre;
        uint64_t tokens, merges, bos;
    } files[] = {
        {"gpt-2", "gpt2", "gpt2", "gpt-2", 50257, 50000, 50256},
        {"llama-bpe", "llama", "gpt2", "llama-bpe", 128256, 280147, 128000},
        {"llama-spm", "llama", "llama", "default", 32000, 0, 1},
        {"qwen2", "qwen2", "gpt2", "qwen2", 151936, 151387, 151643},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        gguf_builder b = {0};
        if (!unpack(&b, files[i].name))
            return;
        brim_model_file *file;
        assert_int_equal(brim_model_file_open_memory(&file, ctx, b.data, b.size), BRIM_OK);
        assert_int_equal(brim_model_file_tensor_count(file), 0);
        assert_int_equal(brim_model_file_size(file), b.size);
        const struct {
            const char *key, *value;
        } texts[] = {{"general.architecture", files[i].arch},
                     {"tokenizer.ggml.model", files[i].model},
                     {"tokenizer.ggml.pre", files[i].pre}};
        for (size_t t = 0; t < 3; t++) {
            const char *text;
            size_t size;
            const brim_meta *meta = brim_model_file_meta(file, texts[t].key);
            assert_int_equal(brim_meta_string(&text, &size, file, meta, 0), BRIM_OK);
            assert_int_equal(size, strlen(texts[t].value));
            assert_memory_equal(text, texts[t].value, size);
        }
        assert_int_equal(brim_model_file_meta(file, "tokenizer.ggml.tokens")->count,
                         files[i].tokens);
        const brim_meta *merges = brim_model_file_meta(file, "tokenizer.ggml.merges");
        assert_int_equal(merges ? merges->count : 0, files[i].merges);
        uint64_t bos;
        const brim_meta *meta = brim_model_file_meta(file, "tokenizer.ggml.bos_token_id");
        assert_int_equal(brim_meta_u64(&bos, file, meta, 0), BRIM_OK);
        assert_int_equal(bos, files[i].bos);
        brim_model_config config;
        assert_true(brim_model_config_read(&config, file) != BRIM_OK);
        assert_string_equal(brim_last_id(), i == 0 ? "model.arch" : "model.tensor");
        brim_model_file_close(file);
        gb_done(&b);
    }
}

/* ---- SmolLM2-135M ---- */

static const char *real_model(void)
{
    const char *path = getenv("BRIM_MODEL");
    if (!path)
        path = BRIM_SOURCE_DIR "/models/smollm2-135m.gguf";
    if (access(path, R_OK) == 0)
        return path;
    printf("skipped: no model\n");
    return NULL;
}

/* Numbers of its config.json, and of the Q4_1 file as published. */
static void model_file_reads_smollm2_135m(void **state)
{
    const char *path = real_model();
    if (!path)
        return;
    brim_model_file *file;
    assert_int_equal(brim_model_file_open(&file, ctx, path), BRIM_OK);
    assert_int_equal(brim_model_file_tensor_count(file), 272);
    assert_int_equal(brim_model_file_version(file), 3);
    assert_int_equal(brim_model_file_part_count(file), 1);
    assert_string_equal(brim_model_file_path(file), path);
    const brim_tensor *t = brim_model_file_tensor(file, "blk.29.ffn_down.weight");
    assert_int_equal(t->type, BRIM_DTYPE_Q4_1);
    assert_int_equal(t->dims[0], 1536);
    assert_int_equal(t->dims[1], 576);
    assert_int_equal(t->size, 1536 / 32 * 20 * 576);
    brim_model_config c;
    assert_int_equal(brim_model_config_read(&c, file), BRIM_OK);
    assert_int_equal(c.arch, BRIM_ARCH_LLAMA);
    assert_int_equal(c.layer_count, 30);
    assert_int_equal(c.embed_size, 576);
    assert_int_equal(c.head_count, 9);
    assert_int_equal(c.kv_head_count, 3);
    assert_int_equal(c.head_size, 64);
    assert_int_equal(c.ffn_size, 1536);
    assert_int_equal(c.vocab_size, 49152);
    assert_int_equal(c.context_trained, 8192);
    assert_true(c.norm_epsilon == 1e-5f);
    assert_true(c.rope_base == 100000);
    assert_true(c.rope_scale_linear == 1);
    assert_int_equal(c.rope_kind, BRIM_ROPE_INTERLEAVED);
    assert_true(c.tied_head && !c.has_qkv_bias && !c.has_qk_norm && !c.has_rope_factors);
    assert_int_equal(c.parameter_count, 134515008); /* as published */
    assert_int_equal(c.decode_bytes, c.weight_bytes);
    assert_int_equal(c.flops_per_token, 2 * c.parameter_count);
    assert_int_equal(c.kv_elements_per_position, 2 * 30 * 3 * 64);
    brim_model_file_close(file);
}

/* A quarter of a second is far above what it takes, for machines that are busy. */
static void model_file_opens_quickly_in_little_memory(void **state)
{
    const char *path = real_model();
    if (!path)
        return;
    uint64_t start = brim__now_ns();
    brim_model_file *file;
    assert_int_equal(brim_model_file_open(&file, ctx, path), BRIM_OK);
    double ms = (double)(brim__now_ns() - start) / 1e6;
    printf("opened in %.2f ms, %zu bytes\n", ms, brim_context_bytes(ctx));
    assert_true(ms < 250);
    assert_true(brim_context_bytes(ctx) < brim_model_file_size(file) / 50);
    brim_model_file_close(file);
}

static void model_file_data_is_the_same_after_release(void **state)
{
    const char *path = real_model();
    if (!path)
        return;
    brim_model_file *file;
    assert_int_equal(brim_model_file_open(&file, ctx, path), BRIM_OK);
    const brim_tensor *t = brim_model_file_tensor(file, "blk.3.ffn_up.weight");
    uint64_t before = 0, after = 0;
    for (size_t i = 0; i < t->size; i++)
        before = before * 31 + ((const uint8_t *)t->data)[i];
    brim_model_file_release(file, t);
    for (size_t i = 0; i < t->size; i++)
        after = after * 31 + ((const uint8_t *)t->data)[i];
    assert_true(before == after);
    brim_model_file_close(file);
}

/* ---- paths ---- */

static void model_file_names_an_absent_path(void **state)
{
    brim_model_file *file;
    assert_int_equal(brim_model_file_open(&file, ctx, "/nowhere/x.gguf"), BRIM_NOT_FOUND);
    assert_non_null(strstr(brim_last_message(), "/nowhere/x.gguf"));
    assert_int_equal(brim_model_file_open(&file, ctx, "/"), BRIM_IO);
}

/* ---- split files ---- */

static char folder[64];

static void write_file(const char *name, gguf_builder *b)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gb_patch_counts(b);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b->data, 1, b->size, file), b->size);
    fclose(file);
    gb_done(b);
}

/* Part `no` of `count` with one tensor named so, whose bytes begin at 0. */
static gguf_builder split_part(uint16_t no, uint16_t count, uint32_t tensors, const char *name)
{
    gguf_builder b = gb_start(3);
    if (no == 0)
        gb_key_string(&b, "general.architecture", "llama");
    gb_key_u16(&b, "split.no", no);
    gb_key_u16(&b, "split.count", count);
    gb_key(&b, "split.tensors.count", GB_I32);
    gb_u32(&b, tensors);
    gb_tensor(&b, name, 0, 8, 0, 0);
    gb_align(&b);
    gb_data(&b, 32);
    return b;
}

static void write_split(uint16_t second_no, uint16_t second_count, uint32_t tensors,
                        const char *second_name)
{
    gguf_builder a = split_part(0, 2, tensors, "a");
    gguf_builder b = split_part(second_no, second_count, tensors, second_name);
    write_file("m-00001-of-00002.gguf", &a);
    write_file("m-00002-of-00002.gguf", &b);
}

static brim_status open_in_folder(brim_model_file **out, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return brim_model_file_open(out, ctx, path);
}

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/brim-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf",
                                        "other.gguf"};
    char path[256];
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static void split_file_opens_all_parts(void **state)
{
    write_split(1, 2, 2, "b");
    brim_model_file *file;
    assert_int_equal(open_in_folder(&file, "m-00001-of-00002.gguf"), BRIM_OK);
    assert_int_equal(brim_model_file_part_count(file), 2);
    assert_int_equal(brim_model_file_tensor_count(file), 2);
    const brim_tensor *b = brim_model_file_tensor(file, "b");
    assert_int_equal(b->part, 1);
    assert_int_equal(((const uint8_t *)b->data)[31], 31);
    brim_model_file_release(file, b);
    assert_int_equal(((const uint8_t *)b->data)[31], 31);
    brim_model_file_close(file);
}

static void split_file_fails_with(const char *name, brim_status status, const char *id,
                                  const char *text)
{
    brim_model_file *file;
    assert_int_equal(open_in_folder(&file, name), status);
    assert_string_equal(brim_last_id(), id);
    assert_non_null(strstr(brim_last_message(), text));
}

static void split_file_names_the_first_part(void **state)
{
    write_split(1, 2, 2, "b");
    split_file_fails_with("m-00002-of-00002.gguf", BRIM_FORMAT, "gguf.split",
                          "-00001-of-00002.gguf");
}

static void split_file_names_a_part_that_is_absent(void **state)
{
    gguf_builder a = split_part(0, 2, 2, "a");
    write_file("m-00001-of-00002.gguf", &a);
    split_file_fails_with("m-00001-of-00002.gguf", BRIM_NOT_FOUND, "file.absent",
                          "m-00002-of-00002");
}

static void split_file_rejects_a_part_of_another_place(void **state)
{
    write_split(0, 2, 2, "b");
    split_file_fails_with("m-00001-of-00002.gguf", BRIM_FORMAT, "gguf.split", "part 2 of 2");
}

static void split_file_rejects_a_part_of_another_split(void **state)
{
    write_split(1, 3, 2, "b");
    split_file_fails_with("m-00001-of-00002.gguf", BRIM_FORMAT, "gguf.split", "part 2 of 2");
}

static void split_file_rejects_another_number_of_tensors(void **state)
{
    write_split(1, 2, 3, "b");
    split_file_fails_with("m-00001-of-00002.gguf", BRIM_FORMAT, "gguf.split", "3 tensors");
}

static void split_file_rejects_a_name_in_two_parts(void **state)
{
    write_split(1, 2, 2, "a");
    split_file_fails_with("m-00001-of-00002.gguf", BRIM_FORMAT, "gguf.name_duplicate", "part 2");
}

static void split_file_needs_its_name(void **state)
{
    gguf_builder a = split_part(0, 2, 2, "a");
    write_file("other.gguf", &a);
    split_file_fails_with("other.gguf", BRIM_FORMAT, "gguf.split", "-00001-of-00002.gguf");
}

static void split_file_needs_a_path(void **state)
{
    gguf_builder a = split_part(0, 2, 2, "a");
    gb_patch_counts(&a);
    brim_model_file *file;
    assert_int_equal(brim_model_file_open_memory(&file, ctx, a.data, a.size), BRIM_UNSUPPORTED);
    assert_string_equal(brim_last_id(), "gguf.split");
    gb_done(&a);
}

static void split_file_bounds_the_number_of_parts(void **state)
{
    gguf_builder a = split_part(0, 65535, 2, "a");
    write_file("other.gguf", &a);
    split_file_fails_with("other.gguf", BRIM_LIMIT, "gguf.limit", "65535");
}

static void split_file_leaks_nothing_when_any_allocation_fails(void **state)
{
    write_split(1, 2, 2, "b");
    brim_model_file *file;
    brim__memory_fail_at(ctx, 0);
    assert_int_equal(open_in_folder(&file, "m-00001-of-00002.gguf"), BRIM_OK);
    brim_model_file_close(file);
    uint64_t count = brim__memory_fail_at(ctx, 0);
    for (uint64_t i = 1; i <= count; i++) {
        brim__memory_fail_at(ctx, i);
        assert_int_equal(open_in_folder(&file, "m-00001-of-00002.gguf"), BRIM_NO_MEMORY);
        assert_int_equal(brim_context_bytes(ctx), 0);
    }
    brim__memory_fail_at(ctx, 0);
}

#define SPLIT_TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_file_reads_published_vocabularies),
        cmocka_unit_test(model_file_reads_smollm2_135m),
        cmocka_unit_test(model_file_opens_quickly_in_little_memory),
        cmocka_unit_test(model_file_data_is_the_same_after_release),
        cmocka_unit_test(model_file_names_an_absent_path),
        SPLIT_TEST(split_file_opens_all_parts),
        SPLIT_TEST(split_file_names_the_first_part),
        SPLIT_TEST(split_file_names_a_part_that_is_absent),
        SPLIT_TEST(split_file_rejects_a_part_of_another_place),
        SPLIT_TEST(split_file_rejects_a_part_of_another_split),
        SPLIT_TEST(split_file_rejects_another_number_of_tensors),
        SPLIT_TEST(split_file_rejects_a_name_in_two_parts),
        SPLIT_TEST(split_file_needs_its_name),
        SPLIT_TEST(split_file_needs_a_path),
        SPLIT_TEST(split_file_bounds_the_number_of_parts),
        SPLIT_TEST(split_file_leaks_nothing_when_any_allocation_fails),
    };
    return cmocka_run_group_tests_name("model_file", tests, make_context, check_context);
}
