/* Tables in their four styles, safe printing, suggestions, the silent progress bar. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "brim/console.h"

static brim_context *ctx;

static int create(void **state)
{
    return brim_context_create(&ctx, NULL);
}

static int destroy(void **state)
{
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
    return 0;
}

static const char *const columns[] = {"name", ">size", NULL};

static brim_table *small_table(void)
{
    brim_table *table;
    assert_int_equal(brim_table_create(&table, ctx, columns), BRIM_OK);
    brim_table_row(table);
    brim_table_cell(table, "%s", "\xE6\xBC\xA2"); /* a CJK character, two columns wide */
    brim_table_cell(table, "%d", 12345);
    brim_table_row(table);
    brim_table_cell(table, "a|\"b\",\n");
    brim_table_row(table);
    brim_table_cell(table, "x");
    brim_table_cell(table, "-");
    return table;
}

static char *printed(const brim_table *table, brim_table_style style)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(brim_table_print(table, file, style), BRIM_OK);
    fclose(file);
    return text;
}

static void assert_printed(brim_table_style style, const char *expected)
{
    brim_table *table = small_table();
    char *text = printed(table, style);
    assert_string_equal(text, expected);
    free(text);
    brim_table_destroy(table);
}

static void text_tables_align_by_width_and_have_no_trailing_spaces(void **state)
{
    assert_printed(BRIM_TABLE_TEXT, "name       size\n"
                                    "\xE6\xBC\xA2        12345\n"
                                    "a|\"b\",\\n\n"
                                    "x             -\n");
}

static void markdown_tables_escape_bars(void **state)
{
    assert_printed(BRIM_TABLE_MARKDOWN, "| name | size |\n"
                                        "| --- | ---: |\n"
                                        "| \xE6\xBC\xA2 | 12345 |\n"
                                        "| a\\|\"b\",  |  |\n"
                                        "| x | - |\n");
}

static void csv_follows_rfc_4180(void **state)
{
    assert_printed(BRIM_TABLE_CSV, "name,size\r\n"
                                   "\xE6\xBC\xA2,12345\r\n"
                                   "\"a|\"\"b\"\",\n\",\r\n"
                                   "x,-\r\n");
}

static void json_tables_parse_with_numbers_null_and_strings(void **state)
{
    brim_table *table = small_table();
    brim_table_row(table);
    brim_table_cell(table, "bad \xFF \x01 byte");
    brim_table_cell(table, "01");
    char *text = printed(table, BRIM_TABLE_JSON);
    json_t *list = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(list);
    assert_int_equal(json_array_size(list), 4);
    json_t *row = json_array_get(list, 0);
    assert_int_equal(json_integer_value(json_object_get(row, "size")), 12345);
    assert_true(json_is_null(json_object_get(json_array_get(list, 1), "size")));
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "name")),
                        "a|\"b\",\n");
    assert_true(json_is_string(json_object_get(json_array_get(list, 2), "size")));
    row = json_array_get(list, 3);
    assert_string_equal(json_string_value(json_object_get(row, "name")),
                        "bad \xEF\xBF\xBD \x01 byte");
    assert_string_equal(json_string_value(json_object_get(row, "size")), "01");
    json_decref(list);
    free(text);
    brim_table_destroy(table);
}

static void json_numbers_are_those_of_rfc_8259(void **state)
{
    static const struct {
        const char *text;
        bool number;
    } cases[] = {{"0", true},    {"-0.5", true}, {"1e9", true}, {"1E-3", true}, {"12.50", true},
                 {"1.", false},  {".5", false},  {"+1", false}, {"1e", false},  {"nan", false},
                 {"0x1", false}, {"-", false},   {"1 ", false}, {"00", false},  {"1.5e+", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        brim_table *table;
        assert_int_equal(brim_table_create(&table, ctx, columns), BRIM_OK);
        brim_table_row(table);
        brim_table_cell(table, "x");
        brim_table_cell(table, "%s", cases[i].text);
        char *text = printed(table, BRIM_TABLE_JSON);
        json_t *list = json_loads(text, 0, NULL);
        assert_non_null(list);
        json_t *cell = json_object_get(json_array_get(list, 0), "size");
        assert_int_equal(json_is_number(cell), cases[i].number);
        json_decref(list);
        free(text);
        brim_table_destroy(table);
    }
}

static void an_empty_table_prints_its_head(void **state)
{
    brim_table *table;
    assert_int_equal(brim_table_create(&table, ctx, columns), BRIM_OK);
    char *text = printed(table, BRIM_TABLE_TEXT), *json = printed(table, BRIM_TABLE_JSON);
    assert_string_equal(text, "name  size\n");
    assert_string_equal(json, "[]\n");
    free(text);
    free(json);
    brim_table_destroy(table);
}

static void a_failure_while_filling_is_remembered(void **state)
{
    brim_table *table;
    assert_int_equal(brim_table_create(&table, ctx, columns), BRIM_OK);
    assert_int_equal(brim_table_cell(table, "no row yet"), BRIM_USAGE);
    assert_int_equal(brim_table_row(table), BRIM_USAGE);
    assert_int_equal(brim_table_print(table, stdout, BRIM_TABLE_TEXT), BRIM_USAGE);
    brim_table_destroy(table);
    static const char *const none[] = {NULL};
    assert_int_equal(brim_table_create(&table, ctx, none), BRIM_USAGE);
    assert_null(table);
}

static void each_allocation_of_a_table_may_fail(void **state)
{
    for (uint64_t n = 1; n < 12; n++) {
        brim__memory_fail_at(ctx, n);
        brim_table *table;
        brim_status status = brim_table_create(&table, ctx, columns);
        for (int i = 0; status == BRIM_OK && i < 20; i++) {
            brim_table_row(table);
            brim_table_cell(table, "a cell of some length, number %d", i);
        }
        if (status == BRIM_OK) {
            status = brim_table_print(table, stdout, (brim_table_style)99);
            assert_true(status == BRIM_NO_MEMORY || status == BRIM_USAGE);
        }
        brim_table_destroy(table);
        assert_int_equal(brim_context_bytes(ctx), 0);
    }
    brim__memory_fail_at(ctx, 0);
}

static void foreign_text_cannot_steer_the_terminal(void **state)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    static const char hostile[] = "\x1B[2J\xC2\x9B\xFF\n\xC3\xA9\0z";
    brim_print_safe(file, hostile, sizeof hostile - 1);
    fclose(file);
    assert_string_equal(text, "\\x1b[2J\\xc2\\x9b\\xff\\n\xC3\xA9\\x00z");
    free(text);
}

static void suggestions_are_near_words_only(void **state)
{
    static const char *const known[] = {"run", "bench", "perplexity", "tokenize", NULL};
    assert_string_equal(brim_suggest("rum", known), "run");
    assert_string_equal(brim_suggest("tokenise", known), "tokenize");
    assert_string_equal(brim_suggest("perp", known), "perplexity");
    assert_null(brim_suggest("xyzzy", known));
    assert_null(brim_suggest("", known));
}

static void a_progress_bar_is_silent_in_a_pipe(void **state)
{
    brim_progress progress;
    FILE *capture = tmpfile();
    int saved = dup(STDERR_FILENO);
    dup2(fileno(capture), STDERR_FILENO);
    brim_progress_start(&progress, "loading", 100, "B");
    brim_progress_update(&progress, 50);
    brim_progress_finish(&progress);
    brim_progress_finish(&progress);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_int_equal(lseek(fileno(capture), 0, SEEK_END), 0);
    fclose(capture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_tables_align_by_width_and_have_no_trailing_spaces),
        cmocka_unit_test(markdown_tables_escape_bars),
        cmocka_unit_test(csv_follows_rfc_4180),
        cmocka_unit_test(json_tables_parse_with_numbers_null_and_strings),
        cmocka_unit_test(json_numbers_are_those_of_rfc_8259),
        cmocka_unit_test(an_empty_table_prints_its_head),
        cmocka_unit_test(a_failure_while_filling_is_remembered),
        cmocka_unit_test(each_allocation_of_a_table_may_fail),
        cmocka_unit_test(foreign_text_cannot_steer_the_terminal),
        cmocka_unit_test(suggestions_are_near_words_only),
        cmocka_unit_test(a_progress_bar_is_silent_in_a_pipe),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
