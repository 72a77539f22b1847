/* options.c: the option parser, and the help text made from the same declarations. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { HELP_COLUMN = 28, HELP_WIDTH = 90, OPTIONS_MAX = 64 };

/* ---- values ---- */

static bool whole_number(const char *text, bool sign, int64_t *out, const char **end)
{
    const char *digit = sign && *text == '-' ? text + 1 : text;
    if (*digit < '0' || *digit > '9')
        return false;
    char *after;
    errno = 0;
    *out = strtoll(text, &after, 10);
    *end = after;
    return errno == 0;
}

static bool set_int(const cli_option *option, const char *text)
{
    int64_t value;
    const char *end;
    if (!whole_number(text, true, &value, &end) || *end || value < option->min ||
        value > option->max)
        return false;
    *(int64_t *)option->out = value;
    return true;
}

static bool set_size(const cli_option *option, const char *text)
{
    int64_t value;
    const char *end;
    if (!whole_number(text, false, &value, &end))
        return false;
    static const char suffixes[] = "kKmMgG";
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if (suffix) {
        int64_t unit = (int64_t)1 << (10 * ((suffix - suffixes) / 2 + 1));
        if (__builtin_mul_overflow(value, unit, &value))
            return false;
        end++;
    }
    if (*end || value < option->min || value > option->max)
        return false;
    *(uint64_t *)option->out = (uint64_t)value;
    return true;
}

static bool set_float(const cli_option *option, const char *text)
{
    const char *digit = *text == '-' ? text + 1 : text;
    if ((*digit < '0' || *digit > '9') && *digit != '.')
        return false;
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= option->min_float && value <= option->max_float))
        return false;
    *(double *)option->out = value;
    return true;
}

static bool set_choice(const cli_option *option, const char *text)
{
    size_t length = strlen(text);
    int index = 0;
    for (const char *word = option->value; word; index++) {
        size_t size = strcspn(word, "|");
        if (size == length && memcmp(word, text, size) == 0) {
            *(int *)option->out = index;
            return true;
        }
        word = word[size] ? word + size + 1 : NULL;
    }
    return false;
}

/* What a value may be, for the message that refuses another. */
static void describe(char *out, size_t size, const cli_option *option)
{
    switch (option->kind) {
    case CLI_KIND_INT:
    case CLI_KIND_SIZE: {
        const char *suffixes = option->kind == CLI_KIND_SIZE ? " (K, M and G allowed)" : "";
        if (option->max == INT64_MAX)
            snprintf(out, size, "a whole number from %" PRId64 " up%s", option->min, suffixes);
        else
            snprintf(out, size, "a whole number from %" PRId64 " to %" PRId64 "%s", option->min,
                     option->max, suffixes);
        return;
    }
    case CLI_KIND_FLOAT:
        if (isinf(option->max_float))
            snprintf(out, size, "a number from %g up", option->min_float);
        else
            snprintf(out, size, "a number from %g to %g", option->min_float, option->max_float);
        return;
    case CLI_KIND_CHOICE:
        snprintf(out, size, "one of %s", option->value);
        return;
    default:
        snprintf(out, size, "%s", option->value ? option->value : "no value");
    }
}

static int set_value(cli *c, const cli_option *option, const char *shown, const char *text)
{
    bool good = true;
    switch (option->kind) {
    case CLI_KIND_FLAG:
        *(bool *)option->out = true;
        break;
    case CLI_KIND_TEXT:
        *(const char **)option->out = text;
        break;
    case CLI_KIND_INT:
        good = set_int(option, text);
        break;
    case CLI_KIND_SIZE:
        good = set_size(option, text);
        break;
    case CLI_KIND_FLOAT:
        good = set_float(option, text);
        break;
    case CLI_KIND_CHOICE:
        good = set_choice(option, text);
        break;
    case CLI_KIND_LIST: {
        cli_list *list = option->out;
        if (list->count == CLI_LIST_MAX)
            return cli_error(c, BRIM_USAGE, "cli.option", "%s is given more than %d times", shown,
                             CLI_LIST_MAX);
        list->items[list->count++] = text;
        break;
    }
    }
    if (good)
        return CLI_OK;
    char wanted[256];
    describe(wanted, sizeof wanted, option);
    return cli_error(c, BRIM_USAGE, "cli.value", "%s: '%s' is not %s", shown, text, wanted);
}

/* ---- options ---- */

static const cli_option *find_long(const cli_spec *spec, const char *name, size_t size)
{
    for (size_t i = 0; i < spec->option_count; i++) {
        const cli_option *option = &spec->options[i];
        if (strlen(option->name) == size && memcmp(option->name, name, size) == 0)
            return option;
    }
    return NULL;
}

static const cli_option *find_short(const cli_spec *spec, char letter)
{
    for (size_t i = 0; i < spec->option_count; i++)
        if (spec->options[i].letter == letter)
            return &spec->options[i];
    return NULL;
}

static int unknown_option(cli *c, const cli_spec *spec, const char *shown, const char *word)
{
    const char *known[OPTIONS_MAX + 2];
    size_t count = 0;
    for (; count < spec->option_count && count < OPTIONS_MAX; count++)
        known[count] = spec->options[count].name;
    known[count++] = "help";
    known[count] = NULL;
    const char *near = brim_suggest(word, known);
    if (near)
        return cli_error(c, BRIM_USAGE, "cli.option", "there is no option %s; did you mean --%s?",
                         shown, near);
    return cli_error(c, BRIM_USAGE, "cli.option",
                     "there is no option %s; `brim help %s` lists them", shown, c->command);
}

/* The value of an option that takes one: what follows '=' or the letter, else the next argument,
 * unless that looks like an option itself. */
static int take_value(cli *c, const cli_option *option, const char *shown, const char *attached,
                      int argc, char **argv, int *index)
{
    if (option->kind == CLI_KIND_FLAG) {
        if (attached)
            return cli_error(c, BRIM_USAGE, "cli.value", "%s takes no value", shown);
        return set_value(c, option, shown, NULL);
    }
    if (attached)
        return set_value(c, option, shown, attached);
    const char *next = *index + 1 < argc ? argv[*index + 1] : NULL;
    bool number = next && next[0] == '-' && strchr("0123456789.", next[1]);
    bool dashed = next && next[0] == '-' && next[1] && !number;
    if (next && !dashed) {
        ++*index;
        return set_value(c, option, shown, next);
    }
    char wanted[256];
    describe(wanted, sizeof wanted, option);
    if (dashed)
        return cli_error(c, BRIM_USAGE, "cli.value",
                         "%s needs a value: %s; one that begins with a dash is written --%s=%s",
                         shown, wanted, option->name, next);
    return cli_error(c, BRIM_USAGE, "cli.value", "%s needs a value: %s", shown, wanted);
}

static int parse_long(cli *c, const cli_spec *spec, int argc, char **argv, int *index)
{
    const char *word = argv[*index] + 2;
    size_t size = strcspn(word, "=");
    char shown[80], name[64];
    snprintf(name, sizeof name, "%.*s", (int)(size < sizeof name ? size : sizeof name - 1), word);
    snprintf(shown, sizeof shown, "--%s", name);
    const cli_option *option = find_long(spec, word, size);
    if (!option)
        return unknown_option(c, spec, shown, name);
    return take_value(c, option, shown, word[size] ? word + size + 1 : NULL, argc, argv, index);
}

/* "-n5", "-n 5", and flags in a group, "-ab". */
static int parse_short(cli *c, const cli_spec *spec, int argc, char **argv, int *index)
{
    for (const char *at = argv[*index] + 1; *at; at++) {
        const cli_option *option = find_short(spec, *at);
        char shown[] = {'-', *at, 0};
        if (!option)
            return unknown_option(c, spec, at == argv[*index] + 1 ? argv[*index] : shown,
                                  argv[*index] + 1);
        if (option->kind == CLI_KIND_FLAG) {
            set_value(c, option, shown, NULL);
            continue;
        }
        const char *rest = at[1] == '=' ? at + 2 : at[1] ? at + 1 : NULL;
        return take_value(c, option, shown, rest, argc, argv, index);
    }
    return CLI_OK;
}

/* ---- help ---- */

/* Prints words from `column` on, broken before HELP_WIDTH. */
static void print_wrapped(const char *text, int column)
{
    int at = column;
    while (*text) {
        int size = (int)strcspn(text, " ");
        if (at > column && at + 1 + size > HELP_WIDTH) {
            printf("\n%*s", column, "");
            at = column;
        } else if (at > column) {
            putchar(' ');
            at++;
        }
        printf("%.*s", size, text);
        at += size;
        text += size;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_option(const char *name, char letter, const char *value, const char *help)
{
    char left[128];
    char letters[8] = "    ";
    if (letter)
        snprintf(letters, sizeof letters, "-%c, ", letter);
    int n = snprintf(left, sizeof left, "  %s--%s%s%s", letters, name, value ? " " : "",
                     value ? value : "");
    if (n >= HELP_COLUMN - 1)
        printf("%s\n%*s", left, HELP_COLUMN, "");
    else
        printf("%-*s", HELP_COLUMN, left);
    print_wrapped(help, HELP_COLUMN);
}

static void print_help(const cli_spec *spec)
{
    printf("usage: %s\n\n%s\n", spec->usage, spec->about);
    fputs("\noptions:\n", stdout);
    for (size_t i = 0; i < spec->option_count; i++) {
        const cli_option *option = &spec->options[i];
        print_option(option->name, option->letter, option->value, option->help);
    }
    print_option("help", 'h', NULL, "this text");
    if (spec->examples)
        printf("\nexamples:\n%s", spec->examples);
}

/* ---- the whole ---- */

/* An error that comes before --json is parsed must still be JSON, and --help wins over errors. */
static bool asked_for(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], word) == 0)
            return true;
    return false;
}

static int check_args(cli *c, const cli_spec *spec)
{
    if (c->arg_count < spec->args_min)
        return cli_error(c, BRIM_USAGE, "cli.argument", "%s is missing; usage: %.*s",
                         spec->args_what ? spec->args_what : "an argument",
                         (int)strcspn(spec->usage, "\n"), spec->usage);
    if (spec->args_max >= 0 && c->arg_count > spec->args_max)
        return cli_error(
            c, BRIM_USAGE, "cli.argument",
            "'%s' is one argument too many (a text with spaces needs quotes); usage: %.*s",
            c->args[spec->args_max], (int)strcspn(spec->usage, "\n"), spec->usage);
    return CLI_OK;
}

bool cli_parse(cli *c, const cli_spec *spec, int argc, char **argv, int *code)
{
    *code = CLI_OK;
    if (asked_for(argc, argv, "--help") || asked_for(argc, argv, "-h")) {
        print_help(spec);
        return false;
    }
    if (find_long(spec, "json", 4) && asked_for(argc, argv, "--json"))
        c->json = true;
    /* Positional arguments are gathered at the front of argv: they never overtake the reading. */
    c->args = argv + 1;
    c->arg_count = 0;
    bool ended = false;
    for (int i = 1; i < argc && *code == CLI_OK; i++) {
        char *word = argv[i];
        if (ended || word[0] != '-' || word[1] == 0)
            c->args[c->arg_count++] = word;
        else if (strcmp(word, "--") == 0)
            ended = true;
        else if (word[1] == '-')
            *code = parse_long(c, spec, argc, argv, &i);
        else
            *code = parse_short(c, spec, argc, argv, &i);
    }
    if (*code == CLI_OK)
        *code = check_args(c, spec);
    return *code == CLI_OK;
}
