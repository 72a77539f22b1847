/* The architecture is read whole or refused by id: every number out of range, every tensor that is
 * absent, of another shape or one too many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

#include "base/memory.h"
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

/* A tiny model, 1 layer of 64 with 2 heads of 32 and 1 KV head, 40 tokens, as a list of keys and
 * tensors that a test may change before the bytes are made. */
typedef struct tiny_key {
    char name[64];
    uint32_t type; /* GB_U32, GB_F32, GB_STRING, GB_BOOL; GB_ARRAY: u32 items */
    double number, second;
    const char *text;
} tiny_key;

typedef struct tiny_tensor {
    char name[64];
    uint64_t d0, d1;
    uint32_t type;
} tiny_tensor;

typedef struct tiny {
    tiny_key keys[40];
    int key_count;
    tiny_tensor tensors[40];
    int tensor_count;
    int token_count; /* 0: no vocabulary */
    float factor;    /* what F32 tensors hold */
} tiny;

static void set_key(tiny *t, const char *name, uint32_t type, double number, const char *text)
{
    int i = 0;
    while (i < t->key_count && strcmp(t->keys[i].name, name) != 0)
        i++;
    if (i == t->key_count)
        t->key_count++;
    snprintf(t->keys[i].name, sizeof t->keys[i].name, "%s", name);
    t->keys[i].type = type, t->keys[i].number = number, t->keys[i].text = text;
}

static void drop_key(tiny *t, const char *name)
{
    for (int i = 0; i < t->key_count; i++)
        if (strcmp(t->keys[i].name, name) == 0)
            t->keys[i] = t->keys[--t->key_count];
}

static void set_tensor(tiny *t, const char *name, uint64_t d0, uint64_t d1)
{
    int i = 0;
    while (i < t->tensor_count && strcmp(t->tensors[i].name, name) != 0)
        i++;
    if (i == t->tensor_count)
        t->tensor_count++;
    snprintf(t->tensors[i].name, sizeof t->tensors[i].name, "%s", name);
    t->tensors[i].d0 = d0, t->tensors[i].d1 = d1, t->tensors[i].type = 0;
}

static void drop_tensor(tiny *t, const char *name)
{
    for (int i = 0; i < t->tensor_count; i++)
        if (strcmp(t->tensors[i].name, name) == 0)
            t->tensors[i] = t->tensors[--t->tensor_count];
}

static tiny tiny_llama(void)
{
    tiny t = {.token_count = 40, .factor = 1};
    set_key(&t, "general.architecture", GB_STRING, 0, "llama");
    set_key(&t, "general.name", GB_STRING, 0, "tiny");
    set_key(&t, "llama.block_count", GB_U32, 1, NULL);
    set_key(&t, "llama.embedding_length", GB_U32, 64, NULL);
    set_key(&t, "llama.feed_forward_length", GB_U32, 96, NULL);
    set_key(&t, "llama.context_length", GB_U32, 128, NULL);
    set_key(&t, "llama.attention.head_count", GB_U32, 2, NULL);
    set_key(&t, "llama.attention.head_count_kv", GB_U32, 1, NULL);
    set_key(&t, "llama.attention.layer_norm_rms_epsilon", GB_F32, 1e-5, NULL);
    set_tensor(&t, "token_embd.weight", 64, 40);
    set_tensor(&t, "output_norm.weight", 64, 0);
    set_tensor(&t, "blk.0.attn_norm.weight", 64, 0);
    set_tensor(&t, "blk.0.attn_q.weight", 64, 64);
    set_tensor(&t, "blk.0.attn_k.weight", 64, 32);
    set_tensor(&t, "blk.0.attn_v.weight", 64, 32);
    set_tensor(&t, "blk.0.attn_output.weight", 64, 64);
    set_tensor(&t, "blk.0.ffn_norm.weight", 64, 0);
    set_tensor(&t, "blk.0.ffn_gate.weight", 64, 96);
    set_tensor(&t, "blk.0.ffn_up.weight", 64, 96);
    set_tensor(&t, "blk.0.ffn_down.weight", 96, 64);
    return t;
}

/* The same numbers under another architecture's name. */
static tiny tiny_of(const char *arch)
{
    tiny t = tiny_llama();
    for (int i = 0; i < t.key_count; i++)
        if (strncmp(t.keys[i].name, "llama.", 6) == 0) {
            char rest[64];
            snprintf(rest, sizeof rest, "%s", t.keys[i].name + 6);
            snprintf(t.keys[i].name, sizeof t.keys[i].name, "%.16s.%.40s", arch, rest);
        }
    set_key(&t, "general.architecture", GB_STRING, 0, arch);
    return t;
}

static void put_keys(gguf_builder *b, const tiny *t)
{
    for (int i = 0; i < t->key_count; i++) {
        const tiny_key *k = &t->keys[i];
        if (k->type == GB_STRING)
            gb_key_string(b, k->name, k->text);
        else if (k->type == GB_F32)
            gb_key_f32(b, k->name, (float)k->number);
        else if (k->type == GB_BOOL)
            gb_key_bool(b, k->name, (uint8_t)k->number);
        else if (k->type == GB_U32)
            gb_key_u32(b, k->name, (uint32_t)k->number);
        else {
            gb_key_array(b, k->name, GB_U32, 2);
            gb_u32(b, (uint32_t)k->number), gb_u32(b, (uint32_t)k->second);
        }
    }
    if (t->token_count)
        gb_key_array(b, "tokenizer.ggml.tokens", GB_STRING, (uint64_t)t->token_count);
    for (int i = 0; i < t->token_count; i++)
        gb_string(b, (char[]){(char)('0' + i), 0});
}

static gguf_builder build(const tiny *t)
{
    gguf_builder b = gb_start(3);
    put_keys(&b, t);
    uint64_t offset = 0;
    for (int i = 0; i < t->tensor_count; i++) {
        const tiny_tensor *x = &t->tensors[i];
        gb_tensor(&b, x->name, x->type, x->d0, x->d1, offset);
        offset += (x->d0 * (x->d1 ? x->d1 : 1) * 4 + 31) / 32 * 32;
    }
    gb_align(&b);
    for (uint64_t i = 0; i < offset / 4; i++)
        gb_f32(&b, t->factor);
    gb_patch_counts(&b);
    return b;
}

static brim_status read_tiny(brim_model_config *out, const tiny *t)
{
    gguf_builder b = build(t);
    brim_model_file *file;
    assert_int_equal(brim_model_file_open_memory(&file, ctx, b.data, b.size), BRIM_OK);
    brim_status status = brim_model_config_read(out, file);
    brim_model_file_close(file);
    gb_done(&b);
    return status;
}

static void refuses(const tiny *t, brim_status status, const char *id, const char *text)
{
    brim_model_config config;
    brim_status got = read_tiny(&config, t);
    if (got != status || strcmp(brim_last_id(), id) != 0 || !strstr(brim_last_message(), text))
        printf("wanted \"%s\", got %s, id %s: %s\n", text, brim_status_name(got), brim_last_id(),
               brim_last_message());
    assert_int_equal(got, status);
    assert_string_equal(brim_last_id(), id);
    assert_non_null(strstr(brim_last_message(), text));
}

static brim_model_config accepts(const tiny *t)
{
    brim_model_config config;
    brim_status status = read_tiny(&config, t);
    if (status != BRIM_OK)
        printf("refused: %s\n", brim_last_message());
    assert_int_equal(status, BRIM_OK);
    return config;
}

/* ---- what is accepted ---- */

static void config_reads_a_tied_llama(void **state)
{
    tiny t = tiny_llama();
    brim_model_config c = accepts(&t);
    assert_string_equal(c.name, "tiny");
    assert_int_equal(c.head_size, 32);
    assert_int_equal(c.rope_size, 32);
    assert_true(c.rope_base == 10000);
    assert_true(c.tied_head);
    uint64_t layer = 64 * (64 + 32 + 32 + 64) + 3 * 64 * 96 + 2 * 64;
    assert_int_equal(c.parameter_count, layer + 64 + 64 * 40);
    assert_int_equal(c.weight_bytes, 4 * c.parameter_count);
    assert_int_equal(c.decode_bytes, 4 * c.parameter_count);
    assert_int_equal(c.flops_per_token, 2 * c.parameter_count);
    assert_int_equal(c.kv_elements_per_position, 2 * 32);
}

static void config_counts_a_separate_head_but_not_its_embedding(void **state)
{
    tiny t = tiny_llama();
    set_tensor(&t, "output.weight", 64, 40);
    brim_model_config c = accepts(&t);
    assert_false(c.tied_head);
    assert_int_equal(c.decode_bytes, c.weight_bytes - 64 * 40 * 4);
    assert_int_equal(c.flops_per_token, 2 * (c.parameter_count - 64 * 40));
}

static void config_reads_qwen2_with_biases(void **state)
{
    tiny t = tiny_of("qwen2");
    set_tensor(&t, "blk.0.attn_q.bias", 64, 0);
    set_tensor(&t, "blk.0.attn_k.bias", 32, 0);
    set_tensor(&t, "blk.0.attn_v.bias", 32, 0);
    brim_model_config c = accepts(&t);
    assert_int_equal(c.arch, BRIM_ARCH_QWEN2);
    assert_int_equal(c.rope_kind, BRIM_ROPE_HALVES);
    assert_true(c.has_qkv_bias && !c.has_qk_norm);
}

static void config_reads_qwen3_with_norms_and_its_own_head_size(void **state)
{
    tiny t = tiny_of("qwen3");
    set_key(&t, "qwen3.attention.key_length", GB_U32, 128, NULL);
    set_key(&t, "qwen3.attention.value_length", GB_U32, 128, NULL);
    set_tensor(&t, "blk.0.attn_q.weight", 64, 256);
    set_tensor(&t, "blk.0.attn_k.weight", 64, 128);
    set_tensor(&t, "blk.0.attn_v.weight", 64, 128);
    set_tensor(&t, "blk.0.attn_output.weight", 256, 64);
    set_tensor(&t, "blk.0.attn_q_norm.weight", 128, 0);
    set_tensor(&t, "blk.0.attn_k_norm.weight", 128, 0);
    brim_model_config c = accepts(&t);
    assert_int_equal(c.head_size, 128);
    assert_true(c.has_qk_norm && !c.has_qkv_bias);
}

static void config_reads_rope_factors_that_are_no_parameters(void **state)
{
    tiny t = tiny_llama();
    uint64_t without = accepts(&t).parameter_count;
    set_tensor(&t, "rope_freqs.weight", 16, 0);
    brim_model_config c = accepts(&t);
    assert_true(c.has_rope_factors);
    assert_int_equal(c.parameter_count, without);
}

static void config_reads_sliding_window_and_linear_scaling(void **state)
{
    tiny t = tiny_llama();
    set_key(&t, "llama.attention.sliding_window", GB_U32, 64, NULL);
    set_key(&t, "llama.rope.scaling.type", GB_STRING, 0, "linear");
    set_key(&t, "llama.rope.scaling.factor", GB_F32, 4, NULL);
    set_key(&t, "llama.rope.freq_base", GB_F32, 500000, NULL);
    brim_model_config c = accepts(&t);
    assert_int_equal(c.sliding_window, 64);
    assert_true(c.rope_scale_linear == 4);
    assert_true(c.rope_base == 500000);
}

static void config_reads_a_number_for_each_layer_if_all_are_equal(void **state)
{
    tiny t = tiny_llama();
    set_key(&t, "llama.attention.head_count_kv", GB_ARRAY, 1, NULL);
    t.keys[7].second = 1;
    assert_int_equal(accepts(&t).kv_head_count, 1);
    t.keys[7].second = 2;
    refuses(&t, BRIM_UNSUPPORTED, "model.feature", "differs between layers");
}

static void config_cuts_a_long_name_at_a_character(void **state)
{
    tiny t = tiny_llama();
    char name[128];
    memset(name, 'n', 62);
    snprintf(name + 62, sizeof name - 62, "\xc3\xa9tail"); /* the character would end at byte 64 */
    set_key(&t, "general.name", GB_STRING, 0, name);
    brim_model_config c = accepts(&t);
    assert_int_equal(strlen(c.name), 62);
    set_key(&t, "general.name", GB_STRING, 0, "a\x1b[2Jb");
    c = accepts(&t);
    assert_string_equal(c.name, "a [2Jb");
}

static void config_needs_no_vocabulary(void **state)
{
    tiny t = tiny_llama();
    t.token_count = 0;
    assert_int_equal(accepts(&t).vocab_size, 40);
}

/* ---- what is refused ---- */

static void config_refuses_other_architectures_by_name(void **state)
{
    tiny t = tiny_of("gemma2");
    refuses(&t, BRIM_UNSUPPORTED, "model.arch", "gemma2");
    drop_key(&t, "general.architecture");
    refuses(&t, BRIM_FORMAT, "model.key", "general.architecture");
    set_key(&t, "general.architecture", GB_U32, 1, NULL);
    refuses(&t, BRIM_FORMAT, "gguf.value", "general.architecture");
}

static void config_names_each_key_that_is_absent(void **state)
{
    static const char *const keys[] = {
        "llama.block_count",          "llama.embedding_length",
        "llama.feed_forward_length",  "llama.context_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        tiny t = tiny_llama();
        drop_key(&t, keys[i]);
        refuses(&t, BRIM_FORMAT, "model.key", keys[i]);
    }
}

static void config_rejects_each_number_that_is_zero(void **state)
{
    static const char *const keys[] = {
        "llama.block_count",          "llama.embedding_length",     "llama.feed_forward_length",
        "llama.context_length",       "llama.attention.head_count", "llama.attention.head_count_kv",
        "llama.rope.dimension_count", "llama.attention.key_length", "llama.vocab_size"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        tiny t = tiny_llama();
        set_key(&t, keys[i], GB_U32, 0, NULL);
        refuses(&t, BRIM_FORMAT, "model.key", keys[i]);
    }
}

static void config_rejects_each_number_that_is_huge(void **state)
{
    static const char *const keys[] = {"llama.block_count",
                                       "llama.embedding_length",
                                       "llama.feed_forward_length",
                                       "llama.context_length",
                                       "llama.attention.head_count",
                                       "llama.attention.head_count_kv",
                                       "llama.rope.dimension_count",
                                       "llama.attention.sliding_window",
                                       "llama.vocab_size"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        tiny t = tiny_llama();
        set_key(&t, keys[i], GB_U32, UINT32_MAX, NULL);
        refuses(&t, BRIM_FORMAT, "model.key", keys[i]);
    }
}

static void config_rejects_heads_that_do_not_divide(void **state)
{
    tiny t = tiny_llama();
    set_key(&t, "llama.attention.head_count", GB_U32, 3, NULL);
    refuses(&t, BRIM_FORMAT, "model.key", "does not divide");
    t = tiny_llama();
    set_key(&t, "llama.attention.head_count", GB_U32, 2, NULL);
    set_key(&t, "llama.attention.head_count_kv", GB_U32, 4, NULL);
    refuses(&t, BRIM_FORMAT, "model.key", "no multiple");
}

static void config_rejects_head_sizes_out_of_its_range(void **state)
{
    tiny t = tiny_llama();
    set_key(&t, "llama.attention.key_length", GB_U32, 33, NULL);
    set_key(&t, "llama.attention.value_length", GB_U32, 33, NULL);
    refuses(&t, BRIM_FORMAT, "model.key", "even");
    set_key(&t, "llama.attention.key_length", GB_U32, 80, NULL);
    set_key(&t, "llama.attention.value_length", GB_U32, 80, NULL);
    refuses(&t, BRIM_UNSUPPORTED, "model.feature", "multiple of 32");
    set_key(&t, "llama.attention.key_length", GB_U32, 288, NULL);
    set_key(&t, "llama.attention.value_length", GB_U32, 288, NULL);
    refuses(&t, BRIM_UNSUPPORTED, "model.feature", "at most 256");
    set_key(&t, "llama.attention.value_length", GB_U32, 64, NULL);
    refuses(&t, BRIM_UNSUPPORTED, "model.feature", "different sizes");
}

static void config_rejects_sizes_that_blocks_do_not_divide(void **state)
{
    tiny t = tiny_llama();
    set_key(&t, "llama.embedding_length", GB_U32, 72, NULL);
    refuses(&t, BRIM_UNSUPPORTED, "model.feature", "multiple of 32");
    t = tiny_llama();
    set_key(&t, "llama.feed_forward_length", GB_U32, 100, NULL);
    refuses(&t, BRIM_UNSUPPORTED, "model.feature", "multiple of 32");
}

static void config_rejects_floats_out_of_range(void **state)
{
    static const struct {
        const char *key;
        double value;
    } bad[] = {{"llama.attention.layer_norm_rms_epsilon", 0},
               {"llama.attention.layer_norm_rms_epsilon", -1e-5},
               {"llama.attention.layer_norm_rms_epsilon", __builtin_nan("")},
               {"llama.attention.layer_norm_rms_epsilon", 2},
               {"llama.rope.freq_base", 0},
               {"llama.rope.freq_base", __builtin_inf()},
               {"llama.rope.scaling.factor", -2},
               {"llama.rope.scaling.factor", __builtin_nan("")}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tiny t = tiny_llama();
        set_key(&t, bad[i].key, GB_F32, bad[i].value, NULL);
        refuses(&t, BRIM_FORMAT, "model.key", bad[i].key);
    }
}

static void config_rejects_an_odd_rope_size(void **state)
{
    tiny t = tiny_llama();
    set_key(&t, "llama.rope.dimension_count", GB_U32, 31, NULL);
    refuses(&t, BRIM_FORMAT, "model.key", "even");
}

static void config_refuses_features_by_name(void **state)
{
    static const struct {
        const char *key, *says;
    } features[] = {{"llama.expert_count", "experts"},
                    {"llama.logit_scale", "logits"},
                    {"llama.attention.scale", "attention scale"},
                    {"llama.final_logit_softcapping", "capped"},
                    {"llama.rope.scaling.attn_factor", "rope scaling"}};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        tiny t = tiny_llama();
        set_key(&t, features[i].key, GB_F32, 8, NULL);
        refuses(&t, BRIM_UNSUPPORTED, "model.feature", features[i].key);
        refuses(&t, BRIM_UNSUPPORTED, "model.feature", features[i].says);
    }
    tiny t = tiny_llama();
    set_key(&t, "llama.rope.scaling.type", GB_STRING, 0, "yarn");
    refuses(&t, BRIM_UNSUPPORTED, "model.feature", "yarn");
    t = tiny_llama();
    set_key(&t, "llama.attention.causal", GB_BOOL, 0, NULL);
    refuses(&t, BRIM_UNSUPPORTED, "model.feature", "causal");
}

static void config_names_each_tensor_that_is_absent(void **state)
{
    tiny whole = tiny_llama();
    for (int i = 0; i < whole.tensor_count; i++) {
        tiny t = whole;
        drop_tensor(&t, whole.tensors[i].name);
        refuses(&t, BRIM_FORMAT, "model.tensor", whole.tensors[i].name);
    }
}

static void config_says_both_shapes_when_they_disagree(void **state)
{
    tiny t = tiny_llama();
    set_tensor(&t, "blk.0.attn_k.weight", 64, 64);
    refuses(&t, BRIM_FORMAT, "model.tensor", "\"blk.0.attn_k.weight\" is 64 x 64");
    refuses(&t, BRIM_FORMAT, "model.tensor", "ask for 64 x 32");
    t = tiny_llama();
    set_tensor(&t, "blk.0.ffn_norm.weight", 64, 2);
    refuses(&t, BRIM_FORMAT, "model.tensor", "64 x 2");
}

static void config_rejects_a_bias_in_one_projection_only(void **state)
{
    tiny t = tiny_of("qwen2");
    set_tensor(&t, "blk.0.attn_q.bias", 64, 0);
    refuses(&t, BRIM_FORMAT, "model.tensor", "attn_k.bias");
}

static void config_rejects_norms_that_are_not_f32(void **state)
{
    tiny t = tiny_llama();
    t.tensors[1].type = 1; /* output_norm.weight in F16 */
    refuses(&t, BRIM_UNSUPPORTED, "model.tensor", "F16");
}

static void config_refuses_tensors_that_it_would_ignore(void **state)
{
    static const char *const names[] = {"blk.0.attn_output.bias", "blk.1.attn_q.weight",
                                        "blk.0.attn_q_norm.weight", "blk.0.ffn_gate_inp.weight",
                                        "output.bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny t = tiny_llama();
        set_tensor(&t, names[i], 64, 0);
        refuses(&t, BRIM_UNSUPPORTED, "model.feature", names[i]);
    }
    tiny t = tiny_llama();
    set_tensor(&t, "blk.00.attn_q.weight", 64, 64);
    refuses(&t, BRIM_FORMAT, "model.tensor", "in the architecture");
}

static void config_rejects_a_vocabulary_that_disagrees_with_the_embedding(void **state)
{
    tiny t = tiny_llama();
    t.token_count = 41;
    refuses(&t, BRIM_FORMAT, "model.key", "41 tokens");
    t = tiny_llama();
    set_key(&t, "llama.vocab_size", GB_U32, 39, NULL);
    refuses(&t, BRIM_FORMAT, "model.key", "39");
    t = tiny_llama();
    t.token_count = 0;
    set_key(&t, "tokenizer.ggml.tokens", GB_STRING, 0, "not a list");
    refuses(&t, BRIM_FORMAT, "model.key", "no array of strings");
}

static void config_rejects_rope_factors_that_are_not_positive(void **state)
{
    static const float bad[] = {0, -1, __builtin_nanf(""), __builtin_inff()};
    for (size_t i = 0; i < 4; i++) {
        tiny t = tiny_llama();
        set_tensor(&t, "rope_freqs.weight", 16, 0);
        t.factor = bad[i];
        refuses(&t, BRIM_FORMAT, "model.tensor", "rope_freqs");
    }
    tiny t = tiny_llama();
    set_tensor(&t, "rope_freqs.weight", 32, 0);
    refuses(&t, BRIM_FORMAT, "model.tensor", "rope_freqs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_reads_a_tied_llama),
        cmocka_unit_test(config_counts_a_separate_head_but_not_its_embedding),
        cmocka_unit_test(config_reads_qwen2_with_biases),
        cmocka_unit_test(config_reads_qwen3_with_norms_and_its_own_head_size),
        cmocka_unit_test(config_reads_rope_factors_that_are_no_parameters),
        cmocka_unit_test(config_reads_sliding_window_and_linear_scaling),
        cmocka_unit_test(config_reads_a_number_for_each_layer_if_all_are_equal),
        cmocka_unit_test(config_cuts_a_long_name_at_a_character),
        cmocka_unit_test(config_needs_no_vocabulary),
        cmocka_unit_test(config_refuses_other_architectures_by_name),
        cmocka_unit_test(config_names_each_key_that_is_absent),
        cmocka_unit_test(config_rejects_each_number_that_is_zero),
        cmocka_unit_test(config_rejects_each_number_that_is_huge),
        cmocka_unit_test(config_rejects_heads_that_do_not_divide),
        cmocka_unit_test(config_rejects_head_sizes_out_of_its_range),
        cmocka_unit_test(config_rejects_sizes_that_blocks_do_not_divide),
        cmocka_unit_test(config_rejects_floats_out_of_range),
        cmocka_unit_test(config_rejects_an_odd_rope_size),
        cmocka_unit_test(config_refuses_features_by_name),
        cmocka_unit_test(config_names_each_tensor_that_is_absent),
        cmocka_unit_test(config_says_both_shapes_when_they_disagree),
        cmocka_unit_test(config_rejects_a_bias_in_one_projection_only),
        cmocka_unit_test(config_rejects_norms_that_are_not_f32),
        cmocka_unit_test(config_refuses_tensors_that_it_would_ignore),
        cmocka_unit_test(config_rejects_a_vocabulary_that_disagrees_with_the_embedding),
        cmocka_unit_test(config_rejects_rope_factors_that_are_not_positive),
    };
    return cmocka_run_group_tests_name("config", tests, make_context, check_context);
}
