/* main.c: finds the sub-command and runs it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

typedef struct command {
    const char *name;
    const char *summary;
    int (*run)(cli *c, int argc, char **argv);
} command;

static const command commands[] = {
#define COMMAND_ROW(name, summary) {#name, summary, brim_cli_##name},
    CLI_COMMANDS(COMMAND_ROW)
#undef COMMAND_ROW
};

static const command *find_command(const char *name)
{
    for (size_t i = 0; i < CLI_COUNT(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int print_help(void)
{
    printf("brim %s: runs language models to the brim of a machine.\n\n"
           "usage: brim COMMAND [arguments]\n\n",
           brim_version());
    for (size_t i = 0; i < CLI_COUNT(commands); i++)
        printf("  %-12s%s\n", commands[i].name, commands[i].summary);
    printf("  %-12s%s\n  %-12s%s\n\n", "help", "this text, or `brim help COMMAND`", "version",
           "the version");
    fputs("examples:\n"
          "  brim pull smollm2-135m\n"
          "  brim run smollm2-135m \"What is the capital of France?\"\n"
          "  brim bench smollm2-135m\n\n"
          "exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted\n",
          stdout);
    return CLI_OK;
}

static int unknown_command(cli *c, const char *name)
{
    const char *known[CLI_COUNT(commands) + 3];
    size_t count = 0;
    for (size_t i = 0; i < CLI_COUNT(commands); i++)
        known[count++] = commands[i].name;
    known[count++] = "help";
    known[count++] = "version";
    known[count] = NULL;
    const char *near = brim_suggest(name, known);
    if (near)
        return cli_error(c, BRIM_USAGE, "cli.command",
                         "there is no command '%s'; did you mean '%s'?", name, near);
    return cli_error(c, BRIM_USAGE, "cli.command",
                     "there is no command '%s'; `brim --help` lists them", name);
}

static int run_command(cli *c, const char *name, int argc, char **argv)
{
    const command *found = find_command(name);
    if (!found)
        return unknown_command(c, name);
    c->command = found->name;
    return found->run(c, argc, argv);
}

static int run_help(cli *c, int argc, char **argv)
{
    if (argc <= 2)
        return print_help();
    if (argc > 3)
        return cli_error(c, BRIM_USAGE, "cli.argument", "help takes one command, not also '%s'",
                         argv[3]);
    if (strcmp(argv[2], "help") == 0 || strcmp(argv[2], "version") == 0)
        return print_help();
    char help[] = "--help";
    char *help_argv[] = {argv[2], help, NULL};
    return run_command(c, argv[2], 2, help_argv);
}

static int run_version(cli *c, int argc, char **argv)
{
    if (argc > 2)
        return cli_error(c, BRIM_USAGE, "cli.argument", "'%s' is one argument too many", argv[2]);
    printf("brim %s\n", brim_version());
    return CLI_OK;
}

static int dispatch(cli *c, int argc, char **argv)
{
    if (argc < 2)
        return cli_error(c, BRIM_USAGE, "cli.command",
                         "a command is missing; `brim --help` lists them");
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return run_help(c, argc, argv);
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0)
        return run_version(c, argc, argv);
    if (name[0] == '-')
        return cli_error(c, BRIM_USAGE, "cli.option",
                         "'%s' stands before a command; options follow it: brim COMMAND %s", name,
                         name);
    return run_command(c, name, argc - 1, argv + 1);
}

/* What was printed must have arrived; a reader that left early (`brim ... | head`) is no error
 * worth words. */
static int finish_output(cli *c, int code)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (errno == EPIPE)
        return code ? code : CLI_FAILED;
    int failed = cli_error(c, BRIM_IO, "cli.output", "standard output could not be written: %s",
                           errno ? strerror(errno) : "an earlier write failed");
    return code ? code : failed;
}

int main(int argc, char **argv)
{
    /* The default ends a command whose reader has gone, quietly; a parent may have changed it. */
    signal(SIGPIPE, SIG_DFL);
    cli c = {0};
    brim_status status = brim_context_create(&c.ctx, NULL);
    int code = status == BRIM_OK ? dispatch(&c, argc, argv) : cli_fail(&c, status);
    code = finish_output(&c, code);
    brim_context_destroy(c.ctx);
    return code;
}
