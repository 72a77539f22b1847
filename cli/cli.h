/* cli.h: the frame of the command. It stands on the public headers, jansson and libedit alone.
 *
 * How a sub-command is written: cli/hw.c, say, defines `int brim_cli_hw(cli *c, int argc, char
 * **argv)` and is listed in CLI_COMMANDS below. It declares its options as data and parses:
 *
 *     bool no_probe = false;
 *     int64_t threads = 0;                  // what a variable holds before is the default
 *     const cli_option options[] = {
 *         CLI_FLAG("no-probe", 0, &no_probe, "measure nothing"),
 *         CLI_INT("threads", 't', "N", &threads, 1, 1024, "threads to probe (default: all)"),
 *         CLI_JSON(c),                      // --json: one document on standard output
 *     };
 *     const cli_spec spec = {.usage = "brim hw [options]",
 *                            .about = "Shows what this machine is.",
 *                            .examples = "  brim hw --json > machine.json\n",
 *                            .options = options, .option_count = CLI_COUNT(options)};
 *     int code;
 *     if (!cli_parse(c, &spec, argc, argv, &code))
 *         return code;                      // --help was printed, or the usage was wrong
 *
 * Then c->args[0 .. c->arg_count) are the positional arguments (spec.args_min to spec.args_max of
 * them), c->ctx is a context, and c->json says whether --json was given. Results go to stdout,
 * everything else to stderr. It returns 0, cli_fail(c, status) for a status that is not OK,
 * cli_error(c, ...) for a failure of its own, or CLI_INTERRUPTED. A file it reads comes through
 * cli_read_file(), a JSON result leaves through cli_print_json(), a model's name becomes a path
 * through cli_model_path(). What it allocated it frees, on every way out.
 */
#ifndef BRIM_CLI_H
#define BRIM_CLI_H

#include <jansson.h>

#include "brim/base.h"
#include "brim/console.h"

/* name, one line for `brim --help` */
#define CLI_COMMANDS(X)                                                                            \
    X(run, "answer a prompt with a language model, or chat with it")                               \
    X(bench, "measure prefill and decode speed beside this machine's limits")                      \
    X(perplexity, "measure how well a model predicts a text")                                      \
    X(tokenize, "show the tokens of a text")                                                       \
    X(inspect, "show what a model file holds")                                                     \
    X(pull, "download a model")                                                                    \
    X(make, "write a model file of a known shape with random weights")                             \
    X(program, "dump, check or run a program from a file")                                         \
    X(hw, "show what this machine is and what it reaches")

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_INTERRUPTED = 130, /* as a shell reports an end by SIGINT */
};

typedef struct cli {
    brim_context *ctx;
    const char *command; /* "run"; NULL before a sub-command is known */
    bool json;           /* --json was given: errors are a JSON document too */
    char **args;         /* positional arguments, after cli_parse() */
    int arg_count;
} cli;

/* Values of an option that may be given several times. */
enum { CLI_LIST_MAX = 64 };
typedef struct cli_list {
    const char *items[CLI_LIST_MAX];
    size_t count;
} cli_list;

typedef enum cli_kind {
    CLI_KIND_FLAG,   /* bool: set to true */
    CLI_KIND_TEXT,   /* const char *: points into argv */
    CLI_KIND_INT,    /* int64_t, from min to max */
    CLI_KIND_SIZE,   /* uint64_t, from min to max; K, M and G mean 2^10, 2^20, 2^30 */
    CLI_KIND_FLOAT,  /* double, from min_float to max_float */
    CLI_KIND_CHOICE, /* int: index in the words of `value`, which '|' separates */
    CLI_KIND_LIST,   /* cli_list */
} cli_kind;

typedef struct cli_option {
    const char *name; /* without the dashes */
    char letter;      /* the short form, 0 for none */
    cli_kind kind;
    const char *value; /* what help calls the value: "N", "FILE", "md|csv|json" */
    void *out;
    int64_t min, max;
    double min_float, max_float;
    const char *help;
} cli_option;

/* clang-format off */
#define CLI_FLAG(name, letter, out, help) \
    {name, letter, CLI_KIND_FLAG, NULL, out, 0, 0, 0, 0, help}
#define CLI_TEXT(name, letter, value, out, help) \
    {name, letter, CLI_KIND_TEXT, value, out, 0, 0, 0, 0, help}
#define CLI_INT(name, letter, value, out, min, max, help) \
    {name, letter, CLI_KIND_INT, value, out, min, max, 0, 0, help}
#define CLI_SIZE(name, letter, value, out, min, max, help) \
    {name, letter, CLI_KIND_SIZE, value, out, min, max, 0, 0, help}
#define CLI_FLOAT(name, letter, value, out, min, max, help) \
    {name, letter, CLI_KIND_FLOAT, value, out, 0, 0, min, max, help}
#define CLI_CHOICE(name, letter, words, out, help) \
    {name, letter, CLI_KIND_CHOICE, words, out, 0, 0, 0, 0, help}
#define CLI_LIST(name, letter, value, out, help) \
    {name, letter, CLI_KIND_LIST, value, out, 0, 0, 0, 0, help}
#define CLI_JSON(c) CLI_FLAG("json", 0, &(c)->json, "one JSON document on standard output")
#define CLI_COUNT(array) (sizeof(array) / sizeof *(array))
/* clang-format on */

typedef struct cli_spec {
    const char *usage;    /* "brim hw [options]"; further forms on lines of their own */
    const char *about;    /* a paragraph or more; lines of at most 80 columns */
    const char *examples; /* indented lines that end with a line feed */
    const cli_option *options;
    size_t option_count;
    int args_min, args_max; /* positional arguments; args_max -1: any number */
    const char *args_what;  /* what is missing when there are too few: "a model file" */
} cli_spec;

/* Parses argv[1..argc); options and positional arguments may be mixed, "--" ends the options, and
 * an option given twice takes the last value (unless it is a list). False: the caller returns
 * *code at once. */
bool cli_parse(cli *c, const cli_spec *spec, int argc, char **argv, int *code);

/* Prints this thread's last message for a status that is not OK, returns the exit code. */
int cli_fail(cli *c, brim_status status);
/* The same with an id and a message of the command's own. */
int cli_error(cli *c, brim_status status, const char *id, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Prints a document on stdout and drops the reference; NULL (out of memory) is an error. Returns
 * the exit code. */
int cli_print_json(cli *c, json_t *document);

/* Reads a whole file ("-": standard input) of at most `limit` bytes, with a 0 byte after the last;
 * freed with free(). False: the failure was printed, the caller returns *code. */
bool cli_read_file(cli *c, char **out, size_t *out_size, const char *path, size_t limit, int *code);

/* Makes the folders above a file, for this user alone; false (errno) when one is refused. */
bool cli_make_folders(char *path);

/* Ctrl-C. After cli_catch_interrupt() the first one only counts; a second one that comes before
 * cli_clear_interrupts() ends the process with 130. */
void cli_catch_interrupt(void);
int cli_interrupts(void);
void cli_clear_interrupts(void);

/* Where a model is: `name` itself if it has a '/' or is an existing file, else the file of that
 * name in the models folder ($BRIM_MODELS, else $XDG_DATA_HOME/brim/models, else
 * ~/.local/share/brim/models), with or without ".gguf". False: the failure, which names
 * `brim pull`, was printed, the caller returns *code. */
enum { CLI_PATH_MAX = 4096 };
bool cli_model_path(cli *c, char out[CLI_PATH_MAX], const char *name, int *code);
/* The models folder; false (printed) when no home is known. */
bool cli_models_folder(cli *c, char out[CLI_PATH_MAX], int *code);

#define CLI_DECLARE(name, summary) int brim_cli_##name(cli *c, int argc, char **argv);
CLI_COMMANDS(CLI_DECLARE)
#undef CLI_DECLARE

#endif
