/* The option parser and the models folder. What they print is in the transcripts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

enum { ARGS_MAX = 80 };

typedef struct values {
    bool flag, other;
    const char *text;
    int64_t n;
    uint64_t size;
    double temperature;
    int format;
    cli_list stops;
    bool parsed;
    int code;
    int arg_count;
    const char *args[ARGS_MAX];
} values;

/* Parses a NULL-terminated list of words. */
static values parse_words(const char *const *words, int args_min, int args_max)
{
    static char copies[ARGS_MAX][128];
    static char *argv[ARGS_MAX];
    int argc = 0;
    for (; words[argc]; argc++) {
        snprintf(copies[argc], sizeof copies[argc], "%s", words[argc]);
        argv[argc] = copies[argc];
    }
    argv[argc] = NULL;
    values v = {.n = -7, .size = 5, .temperature = 0.5, .format = -1};
    cli c = {.command = "test"};
    const cli_option options[] = {
        CLI_FLAG("flag", 'f', &v.flag, "a flag"),
        CLI_FLAG("other", 'g', &v.other, "another"),
        CLI_TEXT("text", 't', "TEXT", &v.text, "a text"),
        CLI_INT("number", 'n', "N", &v.n, -10, 100, "a number"),
        CLI_SIZE("size", 0, "BYTES", &v.size, 0, INT64_MAX, "a size"),
        CLI_FLOAT("temperature", 0, "T", &v.temperature, 0, 2, "a float"),
        CLI_CHOICE("format", 0, "md|csv|json", &v.format, "a word"),
        CLI_LIST("stop", 0, "TEXT", &v.stops, "a list"),
    };
    const cli_spec spec = {.usage = "brim test",
                           .about = "Tests.",
                           .options = options,
                           .option_count = CLI_COUNT(options),
                           .args_min = args_min,
                           .args_max = args_max};
    v.parsed = cli_parse(&c, &spec, argc, argv, &v.code);
    v.arg_count = v.parsed ? c.arg_count : 0;
    for (int i = 0; i < v.arg_count; i++)
        v.args[i] = c.args[i];
    return v;
}

#define PARSE(...) parse_words((const char *const[]){"test", __VA_ARGS__, NULL}, 0, 3)

static void options_and_arguments_may_be_mixed(void **state)
{
    values v = PARSE("a", "--number", "5", "b", "-f", "--text=x=y", "c");
    assert_true(v.parsed);
    assert_int_equal(v.n, 5);
    assert_true(v.flag);
    assert_false(v.other);
    assert_string_equal(v.text, "x=y");
    assert_int_equal(v.arg_count, 3);
    assert_string_equal(v.args[0], "a");
    assert_string_equal(v.args[1], "b");
    assert_string_equal(v.args[2], "c");
}

static void what_is_not_given_keeps_its_default(void **state)
{
    values v = PARSE("-");
    assert_true(v.parsed);
    assert_int_equal(v.n, -7);
    assert_int_equal(v.size, 5);
    assert_int_equal(v.format, -1);
    assert_null(v.text);
    assert_string_equal(v.args[0], "-"); /* standard input, no option */
}

static void short_options_group_and_take_values(void **state)
{
    values v = PARSE("-fg", "-n5");
    assert_true(v.parsed && v.flag && v.other);
    assert_int_equal(v.n, 5);
    v = PARSE("-fn", "6", "-t", "hello");
    assert_true(v.parsed && v.flag);
    assert_int_equal(v.n, 6);
    assert_string_equal(v.text, "hello");
    assert_int_equal(PARSE("-fx").code, CLI_USAGE);
    assert_int_equal(PARSE("-n").code, CLI_USAGE);
}

static void two_dashes_end_the_options(void **state)
{
    values v = PARSE("-f", "--", "-g", "--number");
    assert_true(v.parsed && v.flag && !v.other);
    assert_int_equal(v.arg_count, 2);
    assert_string_equal(v.args[0], "-g");
    assert_string_equal(v.args[1], "--number");
}

static void the_last_of_two_values_counts(void **state)
{
    values v = PARSE("--number", "1", "--number=2", "-f", "-f");
    assert_true(v.parsed);
    assert_int_equal(v.n, 2);
}

static void a_list_gathers_its_values(void **state)
{
    values v = PARSE("--stop", "a", "--stop=b", "--stop=");
    assert_true(v.parsed);
    assert_int_equal(v.stops.count, 3);
    assert_string_equal(v.stops.items[1], "b");
    assert_string_equal(v.stops.items[2], "");
    const char *many[ARGS_MAX] = {"test"};
    for (int i = 0; i <= CLI_LIST_MAX; i++)
        many[i + 1] = "--stop=x";
    assert_int_equal(parse_words(many, 0, 3).code, CLI_USAGE);
}

static void negative_numbers_are_values_and_options_are_not(void **state)
{
    assert_int_equal(PARSE("--number", "-9").n, -9);
    assert_int_equal(PARSE("--number", "-f").code, CLI_USAGE);
    assert_int_equal(PARSE("--text", "--flag").code, CLI_USAGE);
    assert_string_equal(PARSE("--text=--flag").text, "--flag");
    assert_string_equal(PARSE("--text", "-").text, "-");
    assert_string_equal(PARSE("--text", "").text, "");
}

static void values_out_of_range_or_ill_formed_are_refused(void **state)
{
    static const char *const bad[][2] = {
        {"--number", "101"},       {"--number", "-11"},
        {"--number", ""},          {"--number", " 5"},
        {"--number", "5x"},        {"--number", "0x5"},
        {"--number", "5.0"},       {"--number", "99999999999999999999"},
        {"--size", "-1"},          {"--size", "1T"},
        {"--size", "1KK"},         {"--size", "9999999999999G"},
        {"--temperature", "2.01"}, {"--temperature", "nan"},
        {"--temperature", "inf"},  {"--temperature", "-0.1"},
        {"--temperature", "1,5"},  {"--format", "xml"},
        {"--format", "md|csv"},    {"--format", ""},
        {"--format", "js"},        {"--numbers", "5"},
    };
    for (size_t i = 0; i < CLI_COUNT(bad); i++) {
        values v = PARSE(bad[i][0], bad[i][1]);
        assert_false(v.parsed);
        assert_int_equal(v.code, CLI_USAGE);
        assert_int_equal(v.n, -7);
    }
    assert_int_equal(PARSE("--flag=yes").code, CLI_USAGE);
}

static void values_in_range_are_taken(void **state)
{
    assert_int_equal(PARSE("--number", "100").n, 100);
    assert_int_equal(PARSE("--number=-10").n, -10);
    assert_int_equal(PARSE("--size", "3k").size, 3072);
    assert_true(PARSE("--size", "8G").size == 8ull << 30);
    assert_true(PARSE("--temperature", ".25").temperature == 0.25);
    assert_true(PARSE("--temperature", "1e-3").temperature == 1e-3);
    assert_int_equal(PARSE("--format", "csv").format, 1);
    assert_int_equal(PARSE("--format=json").format, 2);
}

static void too_few_or_too_many_arguments_are_refused(void **state)
{
    assert_int_equal(PARSE("a", "b", "c", "d").code, CLI_USAGE);
    const char *const none[] = {"test", NULL}, *const one[] = {"test", "a", NULL};
    assert_int_equal(parse_words(none, 1, 1).code, CLI_USAGE);
    assert_true(parse_words(one, 1, 1).parsed);
    const char *const many[] = {"test", "a", "b", "c", "d", "e", NULL};
    assert_int_equal(parse_words(many, 0, -1).arg_count, 5);
}

static void help_wins_over_what_is_wrong(void **state)
{
    values v = PARSE("--numbers", "--help");
    assert_false(v.parsed);
    assert_int_equal(v.code, CLI_OK);
    assert_int_equal(PARSE("--", "--help").arg_count, 1);
}

/* ---- models ---- */

static bool path_of(char out[CLI_PATH_MAX], const char *name, int *code)
{
    cli c = {.command = "test"};
    *code = CLI_OK;
    return cli_model_path(&c, out, name, code);
}

static void a_name_is_looked_up_in_the_models_folder(void **state)
{
    char folder[] = "/tmp/brim-test-models-XXXXXX", file[64], path[CLI_PATH_MAX];
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/tiny.gguf", folder);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    setenv("BRIM_MODELS", folder, 1);
    int code;
    assert_true(path_of(path, "tiny", &code));
    assert_string_equal(path, file);
    assert_true(path_of(path, "tiny.gguf", &code));
    assert_string_equal(path, file);
    assert_false(path_of(path, "other", &code));
    assert_int_equal(code, CLI_FAILED);
    /* A path is taken as it is: what is wrong with it is said when it is opened. */
    assert_true(path_of(path, "./tiny", &code));
    assert_string_equal(path, "./tiny");
    char big[2 * CLI_PATH_MAX];
    memset(big, 'x', sizeof big);
    big[0] = '/';
    big[sizeof big - 1] = 0;
    assert_false(path_of(path, big, &code));
    assert_int_equal(code, CLI_USAGE);
    assert_false(path_of(path, big + 1, &code));
    unlink(file);
    rmdir(folder);
}

static void the_models_folder_follows_the_environment(void **state)
{
    char folder[CLI_PATH_MAX];
    cli c = {.command = "test"};
    int code;
    setenv("BRIM_MODELS", "/a", 1);
    setenv("XDG_DATA_HOME", "/b", 1);
    setenv("HOME", "/c", 1);
    assert_true(cli_models_folder(&c, folder, &code));
    assert_string_equal(folder, "/a");
    setenv("BRIM_MODELS", "", 1);
    assert_true(cli_models_folder(&c, folder, &code));
    assert_string_equal(folder, "/b/brim/models");
    setenv("XDG_DATA_HOME", "relative", 1); /* the XDG specification: ignore it */
    assert_true(cli_models_folder(&c, folder, &code));
    assert_string_equal(folder, "/c/.local/share/brim/models");
    unsetenv("HOME");
    assert_false(cli_models_folder(&c, folder, &code));
    assert_int_equal(code, CLI_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_and_arguments_may_be_mixed),
        cmocka_unit_test(what_is_not_given_keeps_its_default),
        cmocka_unit_test(short_options_group_and_take_values),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(the_last_of_two_values_counts),
        cmocka_unit_test(a_list_gathers_its_values),
        cmocka_unit_test(negative_numbers_are_values_and_options_are_not),
        cmocka_unit_test(values_out_of_range_or_ill_formed_are_refused),
        cmocka_unit_test(values_in_range_are_taken),
        cmocka_unit_test(too_few_or_too_many_arguments_are_refused),
        cmocka_unit_test(help_wins_over_what_is_wrong),
        cmocka_unit_test(a_name_is_looked_up_in_the_models_folder),
        cmocka_unit_test(the_models_folder_follows_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
