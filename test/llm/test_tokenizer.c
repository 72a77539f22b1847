/* Small vocabularies: special tokens, lost bytes, invalid UTF-8, what hostile files get told, and
 * that nothing is lost when memory runs out. */
#include "base/thread.h"
#include "llm/token_data.h"

static brim_context *ctx;

static void drop_line(brim_log_level level, const char *line, void *user) {}

static int make_context(void **state)
{
    brim_context_desc desc = brim_context_desc_default();
    desc.log = drop_line;
    return brim_context_create(&ctx, &desc) == BRIM_OK ? 0 : -1;
}

static int check_context(void **state)
{
    size_t left = brim_context_bytes(ctx);
    brim_context_destroy(ctx);
    return left == 0 ? 0 : -1;
}

/* "he", "hel", "hell", "lo", "hello", a space with "h", and special tokens. */
static const char *const bpe_tokens[] = {"he",      "ll",       "hell", "hello", "\xC4\xA0h",
                                         "<|end|>", "<|end|>x", "[U]",  "<|a|>", NULL};
static const char *const bpe_merges[] = {"h e", "l l", "he ll", "hell o", "\xC4\xA0 h", NULL};
static const uint8_t bpe_kinds[] = {1, 1, 1, 1, 1, 3, 3, 4, 3};
static const td_vocab bpe = {.model = "gpt2",
                             .pre = "gpt-2",
                             .tokens = bpe_tokens,
                             .merges = bpe_merges,
                             .kinds = bpe_kinds,
                             .bos = 8,
                             .eos = 5};
enum { HE = 256, LL, HELL, HELLO, SPACE_H, END, END_X, U, A };

#define MARK "\xE2\x96\x81"
static const char *const spm_tokens[] = {"<unk>", "<s>",    "</s>",    MARK,      "a", "b",
                                         "ab",    MARK "a", MARK "ab", MARK MARK, NULL};
static const uint8_t spm_kinds[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1};
static const td_vocab spm = {
    .model = "llama", .tokens = spm_tokens, .kinds = spm_kinds, .bos = 1, .eos = 2};
enum { UNK = 256, S, S_END, SPACE, SPM_A, SPM_B, AB, SPACE_A, SPACE_AB, SPACES };

static const brim_encode_options with_special = {.special = true}, with_bos = {.bos = true};

static void expect(const td_vocab *v, const char *text, size_t size,
                   const brim_encode_options *options, const char *ids)
{
    char got[4096];
    brim_tokenizer *t = td_make(ctx, v);
    td_ids(got, sizeof got, ctx, t, text, size, options);
    brim_tokenizer_destroy(t);
    assert_string_equal(got, ids);
}

static void merges_apply_in_their_order(void **state)
{
    expect(&bpe, "hello", 5, NULL, "259");
    expect(&bpe, "hel", 3, NULL, "256 108");
    expect(&bpe, " hello", 6, NULL, "32 259"); /* "he" comes before " h" and takes its h */
    expect(&bpe, " hi", 3, NULL, "260 105");
}

static void special_tokens_come_from_text_only_when_asked(void **state)
{
    expect(&bpe, "[U]", 3, NULL, "91 85 93");
    expect(&bpe, "[U]", 3, &with_special, "263");
    expect(&bpe, "he<|end|>he", 11, NULL, "256 60 124 101 110 100 124 62 256");
    expect(&bpe, "he<|end|>he", 11, &with_special, "256 261 256");
    expect(&spm, "<s>", 3, NULL, "259 60 115 62");
}

static void the_longest_special_token_wins(void **state)
{
    expect(&bpe, "<|end|>x<|end|", 14, &with_special, "262 60 124 101 110 100 124");
    expect(&bpe, "<<|a|><|", 8, &with_special, "60 264 60 124");
}

static void bos_comes_only_when_asked(void **state)
{
    td_vocab none = bpe;
    none.bos = -1;
    expect(&bpe, "he", 2, &with_bos, "264 256");
    expect(&bpe, "", 0, &with_bos, "264");
    brim_tokenizer *t = td_make(ctx, &none);
    brim_tokens tokens = {0};
    assert_int_equal(brim_encode(&tokens, NULL, ctx, t, "he", 2, &with_bos), BRIM_USAGE);
    assert_string_equal(brim_last_id(), "tokenizer.bos");
    brim_tokenizer_destroy(t);
}

static void who_adds_bos_is_as_the_reference_decides(void **state)
{
    td_vocab llama3 = bpe;
    llama3.pre = "llama-bpe";
    const td_vocab *vocabs[] = {&bpe, &llama3, &spm};
    const bool adds[] = {false, true, true};
    for (int i = 0; i < 3; i++) {
        brim_tokenizer *t = td_make(ctx, vocabs[i]);
        assert_int_equal(brim_tokenizer_adds_bos(t), adds[i]);
        brim_tokenizer_destroy(t);
        gguf_builder b = td_build(vocabs[i]);
        gb_key_bool(&b, "tokenizer.ggml.add_bos_token", !adds[i]);
        assert_int_equal(td_create(&t, ctx, &b), BRIM_OK);
        assert_int_equal(brim_tokenizer_adds_bos(t), !adds[i]);
        brim_tokenizer_destroy(t);
    }
}

static void invalid_utf8_is_encoded_byte_by_byte(void **state)
{
    /* C3 28: a lead byte without its continuation; E2 82: a cut character. */
    expect(&bpe, "he\xC3(\xE2\x82", 6, NULL, "256 195 40 226 130");
    expect(&spm, "a\xFF", 2, NULL, "263 255");
}

static void a_byte_without_a_token_is_left_out_and_counted(void **state)
{
    static const char *const tokens[] = {"a", "b", "ab", NULL};
    static const char *const merges[] = {"a b", NULL};
    td_vocab few = {.model = "gpt2",
                    .pre = "gpt-2",
                    .tokens = tokens,
                    .merges = merges,
                    .bos = -1,
                    .eos = -1,
                    .no_bytes = true};
    expect(&few, "ab", 2, NULL, "2");
    expect(&few, "xaxxbx", 6, NULL,
           "2 -4"); /* its neighbours meet, as in Hugging Face's tokenizers */
    expect(&few, "\xFF", 1, NULL, " -1");
}

static void spm_without_bytes_gives_the_unknown_token_once_a_run(void **state)
{
    td_vocab few = spm;
    few.no_bytes = true;
    expect(&few, "axyb", 4, NULL, "7 0 5 -2");
}

static void spm_joins_by_score_and_prefixes_a_space(void **state)
{
    /* Scores fall with the id: "ab" is joined before the space and "a" are. */
    expect(&spm, "ab", 2, NULL, "264");
    expect(&spm, "a", 1, NULL, "263");
    expect(&spm, " a", 2, NULL, "259 263");
    expect(&spm, "", 0, NULL, "");
}

static void spm_prefix_can_be_switched_off(void **state)
{
    brim_tokenizer *t;
    gguf_builder b = td_build(&spm);
    gb_key_bool(&b, "tokenizer.ggml.add_space_prefix", false);
    assert_int_equal(td_create(&t, ctx, &b), BRIM_OK);
    char got[64];
    td_ids(got, sizeof got, ctx, t, "ab", 2, NULL);
    assert_string_equal(got, "262");
    brim_tokenizer_destroy(t);
}

static void decoding_drops_the_space_that_encoding_added(void **state)
{
    const brim_token ids[] = {S, SPACE_AB, SPACE, AB, S_END, SPACE_A};
    brim_tokenizer *t = td_make(ctx, &spm);
    char *text;
    size_t size;
    assert_int_equal(brim_decode(&text, &size, ctx, t, ids, 6, false), BRIM_OK);
    assert_string_equal(text, "ab aba");
    brim_free(ctx, text);
    assert_int_equal(brim_decode(&text, &size, ctx, t, ids, 6, true), BRIM_OK);
    assert_string_equal(text, "<s>ab ab</s>a");
    brim_free(ctx, text);
    assert_int_equal(brim_decode(&text, &size, ctx, t, NULL, 0, true), BRIM_OK);
    assert_int_equal(size, 0);
    brim_free(ctx, text);
    assert_int_equal(brim_decode(&text, &size, ctx, t, (brim_token[]){-1}, 1, true), BRIM_USAGE);
    assert_string_equal(brim_last_id(), "tokenizer.range");
    brim_tokenizer_destroy(t);
}

static void known_ends_of_turns_end_generation(void **state)
{
    brim_tokenizer *t = td_make(ctx, &bpe);
    assert_true(brim_tokenizer_ends(t, END));
    assert_false(brim_tokenizer_ends(t, END_X));
    assert_false(brim_tokenizer_ends(t, -1));
    assert_false(brim_tokenizer_ends(t, 1 << 30));
    assert_int_equal(brim_tokenizer_kind(t, U), BRIM_TOKEN_USER_DEFINED);
    assert_int_equal(brim_tokenizer_find(t, "hello", 5), HELLO);
    assert_int_equal(brim_tokenizer_find(t, "hellos", 6), BRIM_TOKEN_NONE);
    brim_tokenizer_destroy(t);
    /* A normal token that reads </s> is a word like any other. */
    static const char *const tokens[] = {"</s>", NULL};
    td_vocab word = bpe;
    word.tokens = tokens, word.kinds = NULL, word.bos = word.eos = -1, word.merges = tokens + 1;
    t = td_make(ctx, &word);
    assert_false(brim_tokenizer_ends(t, 256));
    brim_tokenizer_destroy(t);
}

static void a_merge_never_makes_a_special_token(void **state)
{
    static const char *const tokens[] = {"ab", "abc", NULL};
    static const char *const merges[] = {"a b", "ab c", NULL};
    static const uint8_t kinds[] = {1, 3};
    td_vocab v = bpe;
    v.tokens = tokens, v.merges = merges, v.kinds = kinds, v.bos = v.eos = -1;
    expect(&v, "abc", 3, NULL, "256 99");
    expect(&v, "abc", 3, &with_special, "257");
}

typedef struct worker {
    const brim_tokenizer *tokenizer;
    char ids[64];
} worker;

static void encode_often(void *user)
{
    worker *w = user;
    for (int i = 0; i < 200; i++) {
        brim_tokens tokens = {0};
        if (brim_encode(&tokens, NULL, ctx, w->tokenizer, "hello he hell hello", 19, NULL) !=
            BRIM_OK)
            return;
        size_t used = 0;
        for (size_t k = 0; k < tokens.count; k++)
            used += (size_t)snprintf(w->ids + used, sizeof w->ids - used, "%d ", tokens.ids[k]);
        brim_tokens_done(&tokens, ctx);
    }
}

static void threads_share_a_tokenizer(void **state)
{
    enum { COUNT = 4 };
    worker workers[COUNT];
    brim__thread *threads[COUNT];
    brim_tokenizer *t = td_make(ctx, &bpe);
    for (int i = 0; i < COUNT; i++) {
        workers[i] = (worker){.tokenizer = t};
        assert_int_equal(brim__thread_start(&threads[i], ctx, "encode", encode_often, &workers[i]),
                         BRIM_OK);
    }
    for (int i = 0; i < COUNT; i++) {
        brim__thread_join(threads[i], ctx);
        assert_string_equal(workers[i].ids, "259 32 256 32 258 32 259 ");
    }
    brim_tokenizer_destroy(t);
}

/* ---- long texts: a quadratic step would take hours ---- */

static void long_run(const td_vocab *v, const char *unit, size_t count)
{
    size_t size = strlen(unit) * count, back_size;
    char *text = malloc(size), *back;
    for (size_t i = 0; i < count; i++)
        memcpy(text + i * strlen(unit), unit, strlen(unit));
    brim_tokenizer *t = td_make(ctx, v);
    brim_tokens tokens = {0};
    assert_int_equal(brim_encode(&tokens, NULL, ctx, t, text, size, NULL), BRIM_OK);
    assert_int_equal(brim_decode(&back, &back_size, ctx, t, tokens.ids, tokens.count, false),
                     BRIM_OK);
    assert_int_equal(back_size, size);
    assert_memory_equal(back, text, size);
    brim_free(ctx, back);
    brim_tokens_done(&tokens, ctx);
    brim_tokenizer_destroy(t);
    free(text);
}

static void long_runs_take_near_linear_time(void **state)
{
    static const char *const tokens[] = {"\xC4\xA0\xC4\xA0", "aa",
                                         "\xC4\xA0\xC4\xA0\xC4\xA0\xC4\xA0", NULL};
    static const char *const merges[] = {"\xC4\xA0 \xC4\xA0", "a a",
                                         "\xC4\xA0\xC4\xA0 \xC4\xA0\xC4\xA0", NULL};
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "default"};
    td_vocab v = {.model = "gpt2", .tokens = tokens, .merges = merges, .bos = -1, .eos = -1};
    for (int i = 0; i < 5; i++) {
        v.pre = pres[i];
        long_run(&v, " ", 1 << 18);
        long_run(&v, "a", 1 << 18);
        long_run(&v, " \n", 1 << 17);
        long_run(&v, "1", 1 << 17);
        long_run(&v, "!", 1 << 17);
    }
    v.pre = "qwen2"; /* marks in the wrong order, 2^16 of them, are sorted once; they lie in order
                        here */
    long_run(&v, "\xCC\xA7", 1 << 16);
    long_run(&spm, " ", 1 << 18);
    long_run(&spm, "a", 1 << 18);
}

static void a_text_above_the_limit_is_refused(void **state)
{
    brim_tokenizer *t = td_make(ctx, &bpe);
    brim_tokens tokens = {0};
    assert_int_equal(brim_encode(&tokens, NULL, ctx, t, "", ((size_t)64 << 20) + 1, NULL),
                     BRIM_LIMIT);
    brim_tokenizer_destroy(t);
}

/* ---- hostile files ---- */

static void refuse_built(gguf_builder *b, brim_status status, const char *id, const char *text)
{
    brim_tokenizer *t;
    brim_status got = td_create(&t, ctx, b);
    if (got != status || strcmp(brim_last_id(), id) || !strstr(brim_last_message(), text))
        print_message("got %s, id %s: %s\n", brim_status_name(got), brim_last_id(),
                      brim_last_message());
    assert_int_equal(got, status);
    assert_string_equal(brim_last_id(), id);
    assert_non_null(strstr(brim_last_message(), text));
    assert_null(t);
}

static void refuse(td_vocab v, brim_status status, const char *id, const char *text)
{
    gguf_builder b = td_build(&v);
    refuse_built(&b, status, id, text);
}

static void refuses_unknown_models_and_pre_tokenizers(void **state)
{
    td_vocab v = bpe;
    v.pre = "tekken";
    refuse(v, BRIM_UNSUPPORTED, "tokenizer.pre", "tekken");
    refuse(v, BRIM_UNSUPPORTED, "tokenizer.pre", "llama-bpe");
    v.model = "bert";
    refuse(v, BRIM_UNSUPPORTED, "tokenizer.model", "bert");
    v.model = NULL;
    refuse(v, BRIM_FORMAT, "tokenizer.model", "tokenizer.ggml.model");
}

static void refuses_arrays_of_different_lengths(void **state)
{
    const char *const keys[] = {"tokenizer.ggml.token_type", "tokenizer.ggml.scores"};
    const char *const ids[] = {"tokenizer.type", "tokenizer.scores"};
    for (int i = 0; i < 2; i++) {
        gguf_builder b = gb_start(3);
        gb_key_string(&b, "tokenizer.ggml.model", "llama");
        gb_key_array(&b, "tokenizer.ggml.tokens", GB_STRING, 2);
        gb_string(&b, "a");
        gb_string(&b, "b");
        gb_key_array(&b, keys[i], GB_I32, 1);
        gb_u32(&b, 1);
        refuse_built(&b, BRIM_FORMAT, ids[i], keys[i]);
    }
}

static void refuses_an_absent_or_empty_vocabulary(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_string(&b, "tokenizer.ggml.model", "gpt2");
    refuse_built(&b, BRIM_FORMAT, "tokenizer.vocab", "tokenizer.ggml.tokens");
    b = gb_start(3);
    gb_key_string(&b, "tokenizer.ggml.model", "gpt2");
    gb_key_array(&b, "tokenizer.ggml.tokens", GB_STRING, 0);
    refuse_built(&b, BRIM_FORMAT, "tokenizer.vocab", "empty");
    b = gb_start(3);
    gb_key_string(&b, "tokenizer.ggml.model", "gpt2");
    gb_key_array(&b, "tokenizer.ggml.tokens", GB_U8, 4);
    gb_u32(&b, 0);
    refuse_built(&b, BRIM_FORMAT, "tokenizer.vocab", "texts");
}

static void refuses_ids_out_of_range(void **state)
{
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id"};
    for (int i = 0; i < 3; i++) {
        td_vocab v = bpe;
        v.bos = v.eos = -1;
        gguf_builder b = td_build(&v);
        gb_key_u32(&b, keys[i], 100000);
        refuse_built(&b, BRIM_FORMAT, "tokenizer.id", keys[i]);
    }
    gguf_builder b = td_build(&spm);
    gb_key_u32(&b, "tokenizer.ggml.unknown_token_id", 100000);
    refuse_built(&b, BRIM_FORMAT, "tokenizer.id", "unknown_token_id");
}

static void refuses_duplicate_overlong_and_mistyped_tokens(void **state)
{
    static const char *const twice[] = {"he", "ll", "he", NULL};
    static const char *const none[] = {NULL};
    td_vocab v = {
        .model = "gpt2", .pre = "gpt-2", .tokens = twice, .merges = none, .bos = -1, .eos = -1};
    refuse(v, BRIM_FORMAT, "tokenizer.duplicate", "256 and 258");
    static char longest[5000];
    memset(longest, 'x', sizeof longest - 1);
    const char *const overlong[] = {longest, NULL};
    v.tokens = overlong;
    refuse(v, BRIM_FORMAT, "tokenizer.token", "4999 bytes");
    static const char *const one[] = {"he", NULL};
    v.tokens = one, v.kinds = (const uint8_t[]){7};
    refuse(v, BRIM_FORMAT, "tokenizer.type", "type 7");
    v.model = "llama", v.kinds = (const uint8_t[]){BRIM_TOKEN_BYTE};
    refuse(v, BRIM_FORMAT, "tokenizer.byte", "\"he\"");
}

static void refuses_merges_that_are_none(void **state)
{
    static const char *const bad[][2] = {
        {"he", NULL}, {" he", NULL}, {"he ", NULL}, {"h e l", NULL}, {"", NULL}};
    td_vocab v = bpe;
    for (int i = 0; i < 5; i++) {
        v.merges = bad[i];
        refuse(v, BRIM_FORMAT, "tokenizer.merge", "item 0");
    }
    static const char *const unknown[][2] = {{"zz h", NULL}, {"h zz", NULL}, {"h h", NULL}};
    for (int i = 0; i < 3; i++) {
        v.merges = unknown[i];
        refuse(v, BRIM_FORMAT, "tokenizer.merge", "lacks");
    }
    v.merges = NULL;
    refuse(v, BRIM_FORMAT, "tokenizer.merges", "tokenizer.ggml.merges");
}

static void refuses_scores_that_are_no_numbers(void **state)
{
    static const char *const one[] = {"a", NULL};
    const float scores[] = {__builtin_nanf("")};
    td_vocab v = {.model = "llama", .tokens = one, .scores = scores, .bos = -1, .eos = -1};
    refuse(v, BRIM_FORMAT, "tokenizer.scores", "256");
}

static void empty_tokens_are_holes(void **state)
{
    static const char *const tokens[] = {"", "he", "", NULL};
    static const char *const merges[] = {"h e", NULL};
    td_vocab v = {.model = "gpt2",
                  .pre = "gpt-2",
                  .tokens = tokens,
                  .merges = merges,
                  .kinds = (const uint8_t[]){3, 1, 4},
                  .bos = -1,
                  .eos = -1};
    expect(&v, "he", 2, &with_special, "257");
    v.kinds = NULL;
    expect(&v, "hhe", 3, NULL, "104 257");
}

/* ---- memory ---- */

static void every_failed_allocation_is_survived(void **state)
{
    const td_vocab *vocabs[] = {&bpe, &spm};
    for (int k = 0; k < 2; k++) {
        gguf_builder b = td_build(vocabs[k]);
        gb_patch_counts(&b);
        brim_model_file *file;
        assert_int_equal(brim_model_file_open_memory(&file, ctx, b.data, b.size), BRIM_OK);
        size_t before = brim_context_bytes(ctx);
        brim_status status = BRIM_NO_MEMORY;
        for (uint64_t n = 1; status != BRIM_OK; n++) {
            assert_true(n < 1000);
            brim_tokenizer *t;
            brim_tokens tokens = {0};
            brim__memory_fail_at(ctx, n);
            status = brim_tokenizer_create(&t, ctx, file);
            if (status == BRIM_OK)
                status = brim_encode(&tokens, NULL, ctx, t,
                                     "hello a\xCC\x81 hello hello <|end|> "
                                     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                     90, &with_special);
            brim__memory_fail_at(ctx, 0);
            assert_true(status == BRIM_OK || status == BRIM_NO_MEMORY);
            brim_tokens_done(&tokens, ctx);
            brim_tokenizer_destroy(t);
            assert_int_equal(brim_context_bytes(ctx), before);
        }
        brim_model_file_close(file);
        gb_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_apply_in_their_order),
        cmocka_unit_test(special_tokens_come_from_text_only_when_asked),
        cmocka_unit_test(the_longest_special_token_wins),
        cmocka_unit_test(bos_comes_only_when_asked),
        cmocka_unit_test(who_adds_bos_is_as_the_reference_decides),
        cmocka_unit_test(invalid_utf8_is_encoded_byte_by_byte),
        cmocka_unit_test(a_byte_without_a_token_is_left_out_and_counted),
        cmocka_unit_test(spm_without_bytes_gives_the_unknown_token_once_a_run),
        cmocka_unit_test(spm_joins_by_score_and_prefixes_a_space),
        cmocka_unit_test(spm_prefix_can_be_switched_off),
        cmocka_unit_test(decoding_drops_the_space_that_encoding_added),
        cmocka_unit_test(known_ends_of_turns_end_generation),
        cmocka_unit_test(a_merge_never_makes_a_special_token),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(long_runs_take_near_linear_time),
        cmocka_unit_test(a_text_above_the_limit_is_refused),
        cmocka_unit_test(refuses_unknown_models_and_pre_tokenizers),
        cmocka_unit_test(refuses_arrays_of_different_lengths),
        cmocka_unit_test(refuses_an_absent_or_empty_vocabulary),
        cmocka_unit_test(refuses_ids_out_of_range),
        cmocka_unit_test(refuses_duplicate_overlong_and_mistyped_tokens),
        cmocka_unit_test(refuses_merges_that_are_none),
        cmocka_unit_test(refuses_scores_that_are_no_numbers),
        cmocka_unit_test(empty_tokens_are_holes),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, make_context, check_context);
}
