/* UTF-8, strings, numbers and edit distance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/text.h"

/* The Unicode Standard, table 3-7, "Well-Formed UTF-8 Byte Sequences": code points, then the range
 * of each byte. */
static const struct utf8_row {
    uint32_t first, last;
    size_t length;
    uint8_t min[4], max[4];
} table_3_7[] = {
    {0x0000, 0x007F, 1, {0x00}, {0x7F}},
    {0x0080, 0x07FF, 2, {0xC2, 0x80}, {0xDF, 0xBF}},
    {0x0800, 0x0FFF, 3, {0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}},
    {0x1000, 0xCFFF, 3, {0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}},
    {0xD000, 0xD7FF, 3, {0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}},
    {0xE000, 0xFFFF, 3, {0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}},
    {0x10000, 0x3FFFF, 4, {0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}},
    {0x40000, 0xFFFFF, 4, {0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}},
    {0x100000, 0x10FFFF, 4, {0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}},
};

static void utf8_decodes_the_ends_of_every_row_of_table_3_7(void **state)
{
    for (size_t i = 0; i < sizeof table_3_7 / sizeof *table_3_7; i++) {
        const struct utf8_row *row = &table_3_7[i];
        uint32_t codepoint = 0;
        assert_int_equal(brim__utf8_decode(&codepoint, (const char *)row->min, 4), row->length);
        assert_int_equal(codepoint, row->first);
        assert_int_equal(brim__utf8_decode(&codepoint, (const char *)row->max, 4), row->length);
        assert_int_equal(codepoint, row->last);
    }
}

/* Length of the well-formed character that bytes[0..4) begin with, straight from the table. */
static size_t length_by_table(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < sizeof table_3_7 / sizeof *table_3_7; i++) {
        const struct utf8_row *row = &table_3_7[i];
        bool good = row->length <= size;
        for (size_t k = 0; good && k < row->length; k++)
            good = bytes[k] >= row->min[k] && bytes[k] <= row->max[k];
        if (good)
            return row->length;
    }
    return 0;
}

static void utf8_agrees_with_table_3_7_on_every_border(void **state)
{
    /* Every first byte, and later bytes from the borders of all ranges. */
    static const uint8_t later[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F,
                                    0xA0, 0xBF, 0xC0, 0xED, 0xF4, 0xFF};
    enum { N = sizeof later };
    for (unsigned a = 0; a < 256; a++)
        for (unsigned rest = 0; rest < N * N * N; rest++) {
            uint8_t bytes[4] = {(uint8_t)a, later[rest % N], later[rest / N % N],
                                later[rest / N / N]};
            for (size_t size = 1; size <= 4; size++) {
                uint32_t codepoint;
                size_t n = brim__utf8_decode(&codepoint, (const char *)bytes, size);
                assert_int_equal(n, length_by_table(bytes, size));
            }
        }
}

static void every_scalar_value_survives_encoding_and_decoding(void **state)
{
    for (uint32_t c = 0; c <= 0x110000; c++) {
        char bytes[4];
        size_t n = brim__utf8_encode(bytes, c);
        if ((c >= 0xD800 && c <= 0xDFFF) || c > 0x10FFFF) {
            assert_int_equal(n, 0);
            continue;
        }
        uint32_t back = 0;
        assert_int_equal(brim__utf8_decode(&back, bytes, n), n);
        assert_int_equal(back, c);
        for (size_t cut = 1; cut < n; cut++)
            assert_int_equal(brim__utf8_incomplete_tail(bytes, cut), cut);
        assert_int_equal(brim__utf8_incomplete_tail(bytes, n), 0);
    }
}

static void utf8_check_finds_the_first_bad_byte(void **state)
{
    assert_int_equal(brim__utf8_check("", 0), 0);
    assert_int_equal(brim__utf8_check("h\xC3\xA4t", 4), 4);
    assert_int_equal(brim__utf8_check("ab\xED\xA0\x80", 5), 2); /* a surrogate */
    assert_int_equal(brim__utf8_check("a\xC0\xAF", 3), 1);      /* overlong */
    assert_int_equal(brim__utf8_check("abc\xE2\x82", 5), 3);    /* cut */
}

static void an_incomplete_tail_is_held_back_and_a_bad_one_is_not(void **state)
{
    assert_int_equal(brim__utf8_incomplete_tail("a\xE2\x82", 3), 2);
    assert_int_equal(brim__utf8_incomplete_tail("a\xF0\x9F\x98", 4), 3);
    assert_int_equal(brim__utf8_incomplete_tail("a\xC3", 2), 1);
    assert_int_equal(brim__utf8_incomplete_tail("a", 1), 0);
    assert_int_equal(brim__utf8_incomplete_tail("", 0), 0);
    assert_int_equal(brim__utf8_incomplete_tail("a\x80\x80\x80\x80", 5), 0);
    assert_int_equal(brim__utf8_incomplete_tail("a\xE0\x80", 3), 0); /* can never be completed */
    assert_int_equal(brim__utf8_incomplete_tail("a\xFF", 2), 0);
}

static void strings_grow_and_stay_terminated(void **state)
{
    brim_context *ctx;
    assert_int_equal(brim_context_create(&ctx, NULL), BRIM_OK);
    brim__string s = {.ctx = ctx};
    for (int i = 0; i < 1000; i++)
        assert_int_equal(brim__string_format(&s, "%d,", i), BRIM_OK);
    assert_int_equal(s.size, 3890);
    assert_int_equal(strlen(s.data), 3890);
    assert_int_equal(brim__string_text(&s, "end"), BRIM_OK);
    assert_int_equal(brim__string_append(&s, "\0x", 2), BRIM_OK);
    assert_int_equal(s.size, 3895);
    assert_string_equal(s.data + 3886, "999,end");
    brim__memory_fail_at(ctx, 1);
    char big[8192] = {0};
    assert_int_equal(brim__string_append(&s, big, sizeof big), BRIM_NO_MEMORY);
    assert_int_equal(s.size, 3895);
    assert_int_equal(brim__string_append(&s, big, SIZE_MAX), BRIM_NO_MEMORY);
    brim__memory_fail_at(ctx, 0);
    brim__string_done(&s);
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
}

static void integers_are_whole_and_in_range(void **state)
{
    int64_t i = 99;
    assert_true(brim__parse_i64(&i, "-9223372036854775808", INT64_MIN, INT64_MAX));
    assert_true(i == INT64_MIN);
    assert_true(brim__parse_i64(&i, "7", 1, 7));
    assert_int_equal(i, 7);
    static const char *const bad[] = {
        "", " 7", "7 ", "+7", "0x7", "7.0", "-", "--7", "8", "0", "9223372036854775808", "seven"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_false(brim__parse_i64(&i, bad[k], 1, 7));
    assert_int_equal(i, 7);
    uint64_t u;
    assert_true(brim__parse_u64(&u, "18446744073709551615", 0, UINT64_MAX));
    assert_true(u == UINT64_MAX);
    assert_false(brim__parse_u64(&u, "18446744073709551616", 0, UINT64_MAX));
    assert_false(brim__parse_u64(&u, "-1", 0, UINT64_MAX));
}

static void sizes_take_suffixes_and_do_not_overflow(void **state)
{
    uint64_t u;
    assert_true(brim__parse_size(&u, "4K", 0, UINT64_MAX));
    assert_int_equal(u, 4096);
    assert_true(brim__parse_size(&u, "3g", 0, UINT64_MAX));
    assert_true(u == 3ull << 30);
    assert_true(brim__parse_size(&u, "12", 0, 12));
    assert_false(brim__parse_size(&u, "17179869184G", 0, UINT64_MAX));
    assert_false(brim__parse_size(&u, "1KB", 0, UINT64_MAX));
    assert_false(brim__parse_size(&u, "K", 0, UINT64_MAX));
    assert_false(brim__parse_size(&u, "2K", 0, 2047));
}

static void floats_are_finite_and_in_range(void **state)
{
    double d = 0;
    assert_true(brim__parse_double(&d, "-0.5e1", -5, 5));
    assert_true(fabs(d - (-5)) <= 0);
    assert_true(brim__parse_double(&d, ".25", 0, 1));
    static const char *const bad[] = {"",   "nan", "inf", "-inf",  "1x", " 1",
                                      "+1", ".",   "-",   "1e999", "2"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_false(brim__parse_double(&d, bad[k], 0, 1.5));
}

static void edit_distance_counts_insertions_deletions_and_replacements(void **state)
{
    assert_int_equal(brim__edit_distance("kitten", "sitting"), 3);
    assert_int_equal(brim__edit_distance("", "abc"), 3);
    assert_int_equal(brim__edit_distance("flaw", "lawn"), 2);
    assert_int_equal(brim__edit_distance("same", "same"), 0);
    char big[200];
    memset(big, 'a', 199);
    big[199] = 0;
    assert_int_equal(brim__edit_distance(big, ""), 63); /* words are cut at 63 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_decodes_the_ends_of_every_row_of_table_3_7),
        cmocka_unit_test(utf8_agrees_with_table_3_7_on_every_border),
        cmocka_unit_test(every_scalar_value_survives_encoding_and_decoding),
        cmocka_unit_test(utf8_check_finds_the_first_bad_byte),
        cmocka_unit_test(an_incomplete_tail_is_held_back_and_a_bad_one_is_not),
        cmocka_unit_test(strings_grow_and_stay_terminated),
        cmocka_unit_test(integers_are_whole_and_in_range),
        cmocka_unit_test(sizes_take_suffixes_and_do_not_overflow),
        cmocka_unit_test(floats_are_finite_and_in_range),
        cmocka_unit_test(edit_distance_counts_insertions_deletions_and_replacements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
