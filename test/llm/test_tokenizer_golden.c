/* Real vocabularies give the ids that their authors' tokenizers give.
 *
 * The .inp and .out files are llama.cpp's (models/ggml-vocab-*); token_golden.txt was made with
 * Hugging Face's tokenizers by tools/tokenizer_golden.py and holds strings that tell each rule
 * from its neighbours. Both are without BOS and special tokens. */
#include "llm/token_data.h"

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

enum { IDS_ROOM = 1 << 16 };

static void expect_ids(const brim_tokenizer *t, const char *text, size_t size, const char *expected)
{
    static char got[IDS_ROOM];
    td_ids(got, sizeof got, ctx, t, text, size, NULL);
    if (strcmp(got, expected))
        print_message("text: \"%.*s\"\n", (int)size, text);
    assert_string_equal(got, expected);
}

/* The next record of a .inp file; false at the end. */
static bool next_record(const char **text, size_t *size, const char **at)
{
    static const char border[] = "\n__ggml_vocab_test__\n";
    if (!*at)
        return false;
    const char *end = strstr(*at, border);
    *text = *at;
    *size = end ? (size_t)(end - *at) : strlen(*at);
    *at = end ? end + sizeof border - 1 : NULL;
    return true;
}

static void gives_listed_ids(const char *name)
{
    size_t size;
    char *input = td_data(name, ".inp", &size), *output = td_data(name, ".out", &size);
    brim_tokenizer *t = input && output ? td_vocabulary(ctx, name) : NULL;
    if (!t) {
        free(input), free(output);
        print_message("skipped: no data\n");
        skip();
    }
    const char *at = input, *text;
    unsigned count = 0;
    for (char *line = output; next_record(&text, &size, &at) && *line; count++) {
        char *end = line + strcspn(line, "\n"), *next = *end ? end + 1 : end;
        while (end > line && end[-1] == ' ')
            end--;
        *end = 0;
        expect_ids(t, text, size, line + strspn(line, " "));
        line = next;
    }
    print_message("%u strings\n", count);
    assert_true(count >= 40);
    brim_tokenizer_destroy(t);
    free(input), free(output);
}

static void gpt2_gives_the_listed_ids(void **state)
{
    gives_listed_ids("gpt-2");
}

static void llama_bpe_gives_the_listed_ids(void **state)
{
    gives_listed_ids("llama-bpe");
}

static void qwen2_gives_the_listed_ids(void **state)
{
    gives_listed_ids("qwen2");
}

static void llama_spm_gives_the_listed_ids(void **state)
{
    gives_listed_ids("llama-spm");
}

/* One line of token_golden.txt: name "text" ids # the rule it tells apart. The text is unescaped
 * in place, commas become blanks. False for another vocabulary. */
static bool parse_line(char *line, const char *name, char **text, size_t *size, char **ids)
{
    size_t length = strlen(name);
    if (strncmp(line, name, length) || line[length] != ' ')
        return false;
    char *out = *text = line + length + 2, *in = out;
    for (; *in != '"'; out++) {
        unsigned byte;
        bool escaped = *in == '\\' && sscanf(in, "\\x%2x", &byte) == 1;
        *out = escaped ? (char)byte : *in;
        in += escaped ? 4 : 1;
    }
    *size = (size_t)(out - *text);
    *ids = in + 2;
    (*ids)[strcspn(*ids, " ")] = 0;
    for (char *c = *ids; *c; c++)
        if (*c == ',')
            *c = ' ';
    return true;
}

static void tells_rules_apart(const char *name)
{
    size_t size;
    char *lines = td_read(BRIM_SOURCE_DIR "/test/llm/token_golden.txt", &size), *rest = lines,
         *line;
    assert_non_null(lines);
    brim_tokenizer *t = td_vocabulary(ctx, name);
    if (!t) {
        free(lines);
        print_message("skipped: no data\n");
        skip();
    }
    unsigned count = 0;
    while ((line = strtok_r(rest, "\n", &rest))) {
        char *text, *ids;
        if (!parse_line(line, name, &text, &size, &ids))
            continue;
        expect_ids(t, text, size, ids);
        count++;
    }
    print_message("%u strings\n", count);
    assert_true(count >= 30);
    brim_tokenizer_destroy(t);
    free(lines);
}

static void gpt2_follows_each_rule(void **state)
{
    tells_rules_apart("gpt-2");
}

static void llama_bpe_follows_each_rule(void **state)
{
    tells_rules_apart("llama-bpe");
}

static void qwen2_follows_each_rule(void **state)
{
    tells_rules_apart("qwen2");
}

static void smollm_follows_each_rule(void **state)
{
    tells_rules_apart("smollm");
}

static void llama_spm_follows_each_rule(void **state)
{
    tells_rules_apart("llama-spm");
}

/* A generator of bytes that needs no seed to be stored: splitmix64. */
static uint64_t random_state;
static uint64_t random_u64(void)
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Any bytes come back. (Not with qwen2, whose tokenizer changes text to form C first.) */
static void round_trips(const char *name, bool special)
{
    brim_tokenizer *t = td_vocabulary(ctx, name);
    if (!t) {
        print_message("skipped: no data\n");
        skip();
    }
    brim_encode_options options = {.special = special};
    random_state = 7;
    for (int i = 0; i < 3000; i++) {
        char text[64], *back;
        size_t size = random_u64() % sizeof text, back_size;
        for (size_t k = 0; k < size; k++)
            text[k] = (char)(random_u64() % 4 ? random_u64() : random_u64() % 128);
        brim_tokens tokens = {0};
        uint64_t lost;
        assert_int_equal(brim_encode(&tokens, &lost, ctx, t, text, size, &options), BRIM_OK);
        assert_int_equal(lost, 0);
        assert_int_equal(brim_decode(&back, &back_size, ctx, t, tokens.ids, tokens.count, special),
                         BRIM_OK);
        assert_int_equal(back_size, size);
        assert_memory_equal(back, text, size);
        brim_free(ctx, back);
        brim_tokens_done(&tokens, ctx);
    }
    brim_tokenizer_destroy(t);
}

static void gpt2_gives_any_bytes_back(void **state)
{
    round_trips("gpt-2", false);
}

static void llama_bpe_gives_any_bytes_back(void **state)
{
    round_trips("llama-bpe", true);
}

static void llama_spm_gives_any_bytes_back(void **state)
{
    round_trips("llama-spm", false);
}

/* SmolLM2's vocabulary lacks 21 bytes; each is counted, every other byte comes back. */
static void smollm_loses_only_the_bytes_it_lacks(void **state)
{
    static const unsigned char lacking[] = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0,
                                            0xC1, 0xF1, 0xF2, 0xF5, 0xF6, 0xF7, 0xF8,
                                            0xF9, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF};
    brim_tokenizer *t = td_vocabulary(ctx, "smollm");
    if (!t) {
        print_message("skipped: no data\n");
        skip();
    }
    unsigned lacked = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[] = {'a', ' ', (char)byte, 'b'}, *back;
        size_t back_size;
        uint64_t lost;
        brim_tokens tokens = {0};
        assert_int_equal(brim_encode(&tokens, &lost, ctx, t, text, sizeof text, NULL), BRIM_OK);
        assert_int_equal(lost, memchr(lacking, (int)byte, sizeof lacking) ? 1 : 0);
        assert_int_equal(brim_decode(&back, &back_size, ctx, t, tokens.ids, tokens.count, false),
                         BRIM_OK);
        if (lost)
            memmove(text + 2, text + 3, 1);
        assert_int_equal(back_size, sizeof text - lost);
        assert_memory_equal(back, text, back_size);
        brim_free(ctx, back);
        brim_tokens_done(&tokens, ctx);
        lacked += (unsigned)lost;
    }
    assert_int_equal(lacked, 21);
    brim_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_gives_the_listed_ids),
        cmocka_unit_test(llama_bpe_gives_the_listed_ids),
        cmocka_unit_test(qwen2_gives_the_listed_ids),
        cmocka_unit_test(llama_spm_gives_the_listed_ids),
        cmocka_unit_test(gpt2_follows_each_rule),
        cmocka_unit_test(llama_bpe_follows_each_rule),
        cmocka_unit_test(qwen2_follows_each_rule),
        cmocka_unit_test(smollm_follows_each_rule),
        cmocka_unit_test(llama_spm_follows_each_rule),
        cmocka_unit_test(gpt2_gives_any_bytes_back),
        cmocka_unit_test(llama_bpe_gives_any_bytes_back),
        cmocka_unit_test(llama_spm_gives_any_bytes_back),
        cmocka_unit_test(smollm_loses_only_the_bytes_it_lacks),
    };
    return cmocka_run_group_tests(tests, make_context, check_context);
}
