/* Text as it comes: any split of the bytes gives the same text, nothing shown is half a character,
 * and stop strings are found across borders. The expected text comes from a second implementation
 * below that sees all bytes at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/text.h"
#include "brim/llm.h"

static brim_context *ctx;

static int make_context(void **state)
{
    return brim_context_create(&ctx, NULL) == BRIM_OK ? 0 : 1;
}

static int drop_context(void **state)
{
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
    return 0;
}

enum { TEXT_MAX = 4096 };
typedef struct result {
    char text[TEXT_MAX];
    size_t size;
    bool stopped;
} result;

static void keep(result *r, const char *text, size_t size)
{
    assert_true(r->size + size < TEXT_MAX);
    assert_int_equal(text[size], 0);
    /* Each piece that is handed out is whole characters. */
    assert_int_equal(brim__utf8_check(text, size), size);
    memcpy(r->text + r->size, text, size);
    r->size += size;
}

/* Pushes text[0..size) in pieces that end at the offsets whose bit is set in `cuts`. */
static void stream_in_pieces(result *r, const char *text, size_t size, const char *const *stops,
                             size_t stop_count, uint64_t cuts)
{
    brim_text_stream *stream;
    *r = (result){.size = 0};
    assert_int_equal(brim_text_stream_create(&stream, ctx, stops, stop_count), BRIM_OK);
    size_t from = 0;
    for (size_t to = 1; to <= size; to++) {
        if (to < size && !(cuts >> (to & 63) & 1))
            continue;
        const char *out;
        size_t out_size;
        bool was = r->stopped;
        assert_int_equal(
            brim_text_stream_push(&out, &out_size, &r->stopped, stream, text + from, to - from),
            BRIM_OK);
        assert_true(!was || out_size == 0);
        keep(r, out, out_size);
        from = to;
    }
    const char *out;
    size_t out_size;
    assert_int_equal(brim_text_stream_finish(&out, &out_size, stream), BRIM_OK);
    assert_true(!r->stopped || out_size == 0);
    keep(r, out, out_size);
    brim_text_stream_destroy(stream);
}

/* The whole at once: replace what is not UTF-8, then cut at the stop whose end comes first. */
static void by_the_book(result *r, const char *text, size_t size, const char *const *stops,
                        size_t stop_count)
{
    *r = (result){.size = 0};
    for (size_t at = 0; at < size;) {
        uint32_t codepoint;
        size_t n = brim__utf8_decode(&codepoint, text + at, size - at);
        if (n) {
            memcpy(r->text + r->size, text + at, n);
            r->size += n;
        } else {
            n = 1;
            while (at + n < size && n < 3 && brim__utf8_incomplete_tail(text + at, n + 1) == n + 1)
                n++;
            memcpy(r->text + r->size, "\xEF\xBF\xBD", 3);
            r->size += 3;
        }
        at += n;
    }
    for (size_t end = 1; end <= r->size && !r->stopped; end++) {
        size_t best = 0;
        for (size_t i = 0; i < stop_count; i++) {
            size_t n = strlen(stops[i]);
            if (n <= end && n > best && memcmp(r->text + end - n, stops[i], n) == 0)
                best = n;
        }
        if (best) {
            r->stopped = true;
            r->size = end - best;
        }
    }
}

static void assert_same(const result *got, const result *wanted)
{
    assert_int_equal(got->stopped, wanted->stopped);
    assert_int_equal(got->size, wanted->size);
    assert_memory_equal(got->text, wanted->text, wanted->size);
}

static void check_every_border(const char *text, size_t size, const char *const *stops,
                               size_t stop_count)
{
    result wanted, got;
    by_the_book(&wanted, text, size, stops, stop_count);
    assert_true(size < 64);
    for (size_t cut = 0; cut < size; cut++) {
        stream_in_pieces(&got, text, size, stops, stop_count, (uint64_t)1 << cut);
        assert_same(&got, &wanted);
    }
    stream_in_pieces(&got, text, size, stops, stop_count, ~(uint64_t)0);
    assert_same(&got, &wanted);
}

/* Characters of every length, table 3-7's borders, and every kind of ill-formed sequence. */
static const char *const pieces[] = {
    "a",
    "b",
    "ab",
    "\n",
    "\xC2\x80",
    "\xDF\xBF",
    "\xE0\xA0\x80",
    "\xEF\xBF\xBD",
    "\xE2\x82\xAC",
    "\xED\x9F\xBF",
    "\xF0\x90\x80\x80",
    "\xF4\x8F\xBF\xBF",
    "\xF0\x9F\x98\x80",
    "\x80",
    "\xBF",
    "\xC0\xAF",
    "\xC3",
    "\xE2\x82",
    "\xE0\x80\x80",
    "\xED\xA0\x80",
    "\xF0\x9F\x98",
    "\xF0\x9F",
    "\xF4\x90\x80\x80",
    "\xF5",
    "\xFF",
    "\xF1\x80\x80",
    "</s>",
    "</",
    "s>",
    "aab",
    "aaab",
};
enum { PIECE_COUNT = sizeof pieces / sizeof *pieces };

static size_t random_text(char out[64], uint64_t seed)
{
    size_t size = 0;
    for (uint64_t i = 0; i < 24; i++) {
        const char *piece = pieces[brim__random_below(1, seed, i, PIECE_COUNT)];
        size_t n = strlen(piece);
        if (size + n >= 63)
            break;
        memcpy(out + size, piece, n);
        size += n;
    }
    return size;
}

static void any_split_of_any_bytes_gives_the_same_text(void **state)
{
    char text[64];
    for (uint64_t seed = 0; seed < 3000; seed++) {
        size_t size = random_text(text, seed);
        result wanted, got;
        by_the_book(&wanted, text, size, NULL, 0);
        for (uint64_t k = 0; k < 4; k++) {
            stream_in_pieces(&got, text, size, NULL, 0, brim__random_u64(2, seed, k));
            assert_same(&got, &wanted);
        }
    }
}

static void stops_are_found_at_every_byte_border(void **state)
{
    static const char *const stops[] = {"</s>",
                                        "aab",
                                        "b\n",
                                        "\xE2\x82\xAC",
                                        "\xEF\xBF\xBD"
                                        "a",
                                        "a\xF0\x9F\x98\x80",
                                        "ab\n\n",
                                        "aaaaaa",
                                        "s>a"};
    char text[64];
    size_t stopped = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        size_t size = random_text(text, seed);
        size_t first = brim__random_below(3, seed, 0, 6), count = 1 + (size_t)(seed % 4);
        check_every_border(text, size, stops + first, count);
        result wanted;
        by_the_book(&wanted, text, size, stops + first, count);
        stopped += wanted.stopped;
    }
    /* The property says something only if both happen often. */
    assert_in_range(stopped, 100, 500);
}

static void substitution_follows_the_unicode_standard(void **state)
{
    /* Table 3-8 to 3-11 of The Unicode Standard, section 3.9: one U+FFFD a maximal subpart. */
    static const struct {
        const char *bytes;
        const char *text; /* U+FFFD is written as '?' */
    } rows[] = {
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "????????A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "????????A"},
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "?????A??B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "????A"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        result got;
        stream_in_pieces(&got, rows[i].bytes, strlen(rows[i].bytes), NULL, 0, ~(uint64_t)0);
        char seen[64];
        size_t n = 0;
        for (size_t k = 0; k < got.size; k++) {
            bool replaced = got.size - k >= 3 && memcmp(got.text + k, "\xEF\xBF\xBD", 3) == 0;
            seen[n++] = replaced ? '?' : got.text[k];
            k += replaced ? 2 : 0;
        }
        seen[n] = 0;
        assert_string_equal(seen, rows[i].text);
    }
}

static const char *push(brim_text_stream *stream, const char *bytes, bool *stopped)
{
    const char *out;
    size_t size;
    assert_int_equal(brim_text_stream_push(&out, &size, stopped, stream, bytes, strlen(bytes)),
                     BRIM_OK);
    assert_int_equal(strlen(out), size);
    return out;
}

static void only_what_may_begin_a_stop_is_held_back(void **state)
{
    static const char *const stops[] = {"\nUser:", "END"};
    brim_text_stream *stream;
    bool stopped;
    const char *out;
    size_t size;
    assert_int_equal(brim_text_stream_create(&stream, ctx, stops, 2), BRIM_OK);
    assert_string_equal(push(stream, "Hello\nUs", &stopped), "Hello");
    assert_string_equal(push(stream, "es E", &stopped), "\nUses ");
    assert_string_equal(push(stream, "N", &stopped), "");
    assert_string_equal(push(stream, "\xC3", &stopped), ""); /* what may follow is not known yet */
    assert_string_equal(push(stream, "\xA9", &stopped), "EN\xC3\xA9");
    assert_string_equal(push(stream, "x\nUser", &stopped), "x");
    assert_false(stopped);
    assert_string_equal(push(stream, ":yEND", &stopped), "");
    assert_true(stopped);
    assert_string_equal(push(stream, "more", &stopped), "");
    assert_true(stopped);
    assert_int_equal(brim_text_stream_finish(&out, &size, stream), BRIM_OK);
    assert_int_equal(size, 0);
    brim_text_stream_destroy(stream);
}

static void finish_gives_what_was_held_back(void **state)
{
    static const char *const stops[] = {"STOP"};
    brim_text_stream *stream;
    bool stopped;
    const char *out;
    size_t size;
    assert_int_equal(brim_text_stream_create(&stream, ctx, stops, 1), BRIM_OK);
    assert_string_equal(push(stream, "aSTO", &stopped), "a");
    assert_string_equal(push(stream, "\xF0\x9F", &stopped), "");
    assert_int_equal(brim_text_stream_finish(&out, &size, stream), BRIM_OK);
    assert_string_equal(out, "STO\xEF\xBF\xBD");
    assert_int_equal(size, 6);
    assert_int_equal(brim_text_stream_finish(&out, &size, stream), BRIM_OK);
    assert_string_equal(out, "");
    brim_text_stream_destroy(stream);
}

static void zero_bytes_are_text_like_any_other(void **state)
{
    result got;
    stream_in_pieces(&got, "a\0b", 3, NULL, 0, 0);
    assert_int_equal(got.size, 3);
    assert_memory_equal(got.text, "a\0b", 3);
}

static void refuse(const char *const *stops, size_t count, const char *id)
{
    brim_text_stream *stream = NULL;
    assert_int_equal(brim_text_stream_create(&stream, ctx, stops, count), BRIM_USAGE);
    assert_string_equal(brim_last_id(), id);
    assert_null(stream);
}

static void bad_stop_strings_are_refused(void **state)
{
    char longest[257], longer[258];
    memset(longest, 'x', 256);
    longest[256] = 0;
    memset(longer, 'x', 257);
    longer[257] = 0;
    refuse((const char *const[]){""}, 1, "text.stop");
    refuse((const char *const[]){"a", NULL}, 2, "text.stop");
    refuse((const char *const[]){longer}, 1, "text.stop");
    refuse((const char *const[]){"a\xC3"}, 1, "text.stop");
    const char *many[17];
    for (size_t i = 0; i < 17; i++)
        many[i] = "a";
    refuse(many, 17, "text.stops");
    const char *good[16];
    for (size_t i = 0; i < 16; i++)
        good[i] = longest;
    result got;
    stream_in_pieces(&got, longest, 255, good, 16, 0); /* held back whole, then given */
    assert_int_equal(got.size, 255);
    stream_in_pieces(&got, longest, 256, good, 16, ~(uint64_t)0);
    assert_true(got.stopped);
    assert_int_equal(got.size, 0);
}

static void every_failed_allocation_is_an_error_and_leaks_nothing(void **state)
{
    static const char *const stops[] = {"END"};
    char text[512];
    memset(text, 'x', sizeof text);
    for (uint64_t n = 1; n < 8; n++) {
        brim_text_stream *stream = NULL;
        const char *out;
        size_t size;
        bool stopped;
        brim__memory_fail_at(ctx, n);
        brim_status status = brim_text_stream_create(&stream, ctx, stops, 1);
        if (status == BRIM_OK)
            status = brim_text_stream_push(&out, &size, &stopped, stream, text, sizeof text);
        assert_true(status == BRIM_OK || status == BRIM_NO_MEMORY);
        assert_true(n > 1 || status == BRIM_NO_MEMORY);
        brim__memory_fail_at(ctx, 0);
        brim_text_stream_destroy(stream);
    }
    brim_text_stream_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_split_of_any_bytes_gives_the_same_text),
        cmocka_unit_test(stops_are_found_at_every_byte_border),
        cmocka_unit_test(substitution_follows_the_unicode_standard),
        cmocka_unit_test(only_what_may_begin_a_stop_is_held_back),
        cmocka_unit_test(finish_gives_what_was_held_back),
        cmocka_unit_test(zero_bytes_are_text_like_any_other),
        cmocka_unit_test(bad_stop_strings_are_refused),
        cmocka_unit_test(every_failed_allocation_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, make_context, drop_context);
}
