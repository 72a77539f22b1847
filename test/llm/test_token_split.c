/* The parts of a tokenizer against independent statements: pieces of the published expressions,
 * joining against a naive search, form C against utf8proc's own. */
#include "base/text.h"
#include "llm/pretokenize.h"
#include "llm/token_data.h"
#include "llm/token_merge.h"
#include "llm/token_nfc.h"
#include <utf8proc.h>

static brim_context *ctx;
static uint8_t *classes;

static int make_context(void **state)
{
    if (brim_context_create(&ctx, NULL) != BRIM_OK)
        return -1;
    return brim__classes_create(&classes, ctx) == BRIM_OK ? 0 : -1;
}

static int check_context(void **state)
{
    brim__free(ctx, classes);
    size_t left = brim_context_bytes(ctx);
    brim_context_destroy(ctx);
    return left == 0 ? 0 : -1;
}

/* The pieces of a text with | between them. */
static void expect_pieces(const char *pre, const char *text, const char *expected)
{
    brim__pre_kind kind;
    char got[512] = "";
    size_t start, end, used = 0, size = strlen(text);
    assert_true(brim__pre_parse(&kind, pre, strlen(pre)));
    brim__splitter s = brim__splitter_start(kind, classes, text, size);
    while (brim__splitter_next(&s, &start, &end)) {
        if (used)
            got[used++] = '|';
        memcpy(got + used, text + start, end - start);
        used += end - start;
        got[used] = 0;
    }
    assert_string_equal(got, expected);
}

static void gpt2_splits(void **state)
{
    expect_pieces("gpt-2", "I've don't he'll we'd I'm they're it's",
                  "I|'ve| don|'t| he|'ll| we|'d| I|'m| they|'re| it|'s");
    expect_pieces("gpt-2", "WE'RE IT'S", "WE|'|RE| IT|'|S");
    expect_pieces("gpt-2", "a1234 5678!!?? x", "a|1234| 5678|!!??| x");
    expect_pieces("gpt-2", "a   b \n c  ", "a|  | b| \n| c|  ");
    expect_pieces("gpt-2",
                  "a\tb \xC2\xA0"
                  "c",
                  "a|\t|b| |\xC2\xA0|c");
    expect_pieces("gpt-2", "e\xCC\x81x", "e|\xCC\x81|x"); /* a combining mark is no letter */
}

static void smollm_splits_each_number(void **state)
{
    expect_pieces("smollm", "a 123\xC2\xB2!", "a| |1|2|3|\xC2\xB2|!");
    expect_pieces("smollm", "x  7  y", "x|  |7| | y");
    expect_pieces("smollm", "it's 4's", "it|'s| |4|'s");
}

static void llama_bpe_splits(void **state)
{
    expect_pieces("llama-bpe", "WE'RE it'Ll O'sullivan", "WE|'RE| it|'Ll| O|'s|ullivan");
    expect_pieces("llama-bpe", "1234567 89", "123|456|7| |89");
    expect_pieces("llama-bpe", "(hello!)\n\n\nx", "(hello|!)\n\n\n|x");
    expect_pieces("llama-bpe", "a \n\n  b", "a| \n\n| | b");
    expect_pieces("llama-bpe", "a\tb\nc", "a|\tb|\n|c");
    expect_pieces("llama-bpe", "\xE2\x80\x9Cq\xE2\x80\x9D 's", "\xE2\x80\x9Cq|\xE2\x80\x9D| '|s");
    expect_pieces("llama-bpe", "x'\xC5\xBF", "x|'\xC5\xBF"); /* the long s folds to s */
}

static void qwen2_splits_each_number(void **state)
{
    expect_pieces("qwen2", "v1234 x", "v|1|2|3|4| x");
    expect_pieces("qwen2", "It'S  5", "It|'S| | |5");
}

static void default_splits_in_four_passes(void **state)
{
    expect_pieces("default", "a-b+c $12", "a|-|b|+|c| |$|12");
    expect_pieces("default", "x 1234567", "x| |123|456|7");
    expect_pieces("default", "it's", "it|'|s"); /* the apostrophe is punctuation already */
}

static void names_of_pre_tokenizers_are_exact(void **state)
{
    brim__pre_kind kind;
    assert_true(brim__pre_parse(&kind, "llama3", 6) && kind == BRIM__PRE_LLAMA3);
    assert_true(brim__pre_parse(&kind, "llama-v3", 8) && kind == BRIM__PRE_LLAMA3);
    assert_false(brim__pre_parse(&kind, "llama", 5));
    assert_false(brim__pre_parse(&kind, "gpt-2x", 6));
    assert_false(brim__pre_parse(&kind, "", 0));
}

/* ---- joining ---- */

static uint32_t random_state = 1;
static uint32_t random_u32(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

enum { PAIRS = 40, SYMBOLS = 12, TEXT_MAX = 120 };
typedef struct pair_list {
    uint32_t left[PAIRS], right[PAIRS], joined[PAIRS];
} pair_list;

static uint32_t list_rank(const void *user, uint32_t left, uint32_t right, uint32_t after)
{
    const pair_list *list = user;
    for (uint32_t rank = 0; rank < PAIRS; rank++)
        if (list->left[rank] == left && list->right[rank] == right)
            return rank;
    return BRIM__RANK_NONE;
}

/* The definition: of all pairs the lowest rank, leftmost, again and again. */
static size_t join_naively(uint32_t *symbols, size_t count, const pair_list *list)
{
    for (;;) {
        size_t best = 0;
        uint32_t rank = BRIM__RANK_NONE;
        for (size_t i = 0; i + 1 < count; i++) {
            uint32_t r = list_rank(list, symbols[i], symbols[i + 1], 0);
            if (r < rank)
                rank = r, best = i;
        }
        if (rank == BRIM__RANK_NONE)
            return count;
        symbols[best] = list->joined[rank];
        memmove(symbols + best + 1, symbols + best + 2, (count - best - 2) * sizeof *symbols);
        count--;
    }
}

static void joining_equals_the_naive_search(void **state)
{
    brim__merger merger = {.ctx = ctx};
    for (int round = 0; round < 3000; round++) {
        pair_list list;
        for (int i = 0; i < PAIRS; i++) {
            list.left[i] = random_u32() % SYMBOLS;
            list.right[i] = random_u32() % SYMBOLS;
            list.joined[i] = random_u32() % SYMBOLS;
        }
        uint32_t naive[TEXT_MAX];
        size_t count = 1 + random_u32() % TEXT_MAX;
        assert_int_equal(brim__merger_reserve(&merger, count), BRIM_OK);
        for (size_t i = 0; i < count; i++)
            merger.symbols[i] = naive[i] = random_u32() % SYMBOLS;
        merger.count = count;
        brim__merge_rules rules = {list_rank, &list, list.joined};
        assert_int_equal(brim__merger_run(&merger, &rules), BRIM_OK);
        count = join_naively(naive, count, &list);
        assert_int_equal(merger.count, count);
        assert_memory_equal(merger.symbols, naive, count * sizeof *naive);
    }
    brim__merger_done(&merger);
}

/* ---- form C ---- */

static uint32_t random_codepoint(void)
{
    static const uint32_t blocks[][2] = {
        {'a', 26},       {0xC0, 0x180},  {0x300, 0x70},   {0x300, 0x70},
        {0x1100, 0x100}, {0xAC00, 2000}, {0x915, 0x60},   {0x1E00, 0x200},
        {0x3040, 0x60},  {0x4E00, 100},  {0xF900, 0x100}, {0x2120, 16},
        {0xFB1D, 0x30},  {0x0F40, 0x80}, {0x1D15E, 16},   {0x11080, 0x40}};
    const uint32_t *block = blocks[random_u32() % (sizeof blocks / sizeof *blocks)];
    return block[0] + random_u32() % block[1];
}

static void form_c_equals_utf8procs(void **state)
{
    for (int round = 0; round < 20000; round++) {
        char text[64];
        size_t size = 0;
        for (uint32_t i = 0, count = random_u32() % 12; i < count; i++)
            size += brim__utf8_encode(text + size, random_codepoint());
        utf8proc_uint8_t *expected = NULL;
        utf8proc_ssize_t expected_size =
            utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &expected,
                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        brim__string got = {.ctx = ctx};
        assert_int_equal(brim__nfc_append(&got, text, size), BRIM_OK);
        assert_int_equal(got.size, expected_size);
        assert_memory_equal(got.data, expected, got.size);
        if (brim__nfc_surely(text, size))
            assert_memory_equal(got.data, text, size);
        brim__string_done(&got);
        free(expected);
    }
}

static void marks_in_the_wrong_order_are_sorted_in_near_linear_time(void **state)
{
    enum { COUNT = 1 << 19 };
    brim__string text = {.ctx = ctx}, got = {.ctx = ctx};
    for (int i = 0; i < COUNT; i++) /* classes 230 and 220: every second one moves */
        assert_int_equal(brim__string_text(&text, i % 2 ? "\xCC\xA3" : "\xCC\x84"), BRIM_OK);
    assert_int_equal(brim__nfc_append(&got, text.data, text.size), BRIM_OK);
    assert_int_equal(got.size, text.size);
    for (int i = 0; i < COUNT; i++)
        assert_memory_equal(got.data + 2 * i, i < COUNT / 2 ? "\xCC\xA3" : "\xCC\x84", 2);
    brim__string_done(&text);
    brim__string_done(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_splits),
        cmocka_unit_test(smollm_splits_each_number),
        cmocka_unit_test(llama_bpe_splits),
        cmocka_unit_test(qwen2_splits_each_number),
        cmocka_unit_test(default_splits_in_four_passes),
        cmocka_unit_test(names_of_pre_tokenizers_are_exact),
        cmocka_unit_test(joining_equals_the_naive_search),
        cmocka_unit_test(form_c_equals_utf8procs),
        cmocka_unit_test(marks_in_the_wrong_order_are_sorted_in_near_linear_time),
    };
    return cmocka_run_group_tests(tests, make_context, check_context);
}
