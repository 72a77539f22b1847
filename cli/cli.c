/* cli.c: how a sub-command fails, reads files, prints JSON and hears Ctrl-C. */
#define _GNU_SOURCE
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* `message` may hold names from a file or an argument, hence the safe printing. */
static int report(cli *c, brim_status status, const char *id, const char *message)
{
    fflush(stdout);
    fprintf(stderr, "brim%s%s: ", c->command ? " " : "", c->command ? c->command : "");
    brim_print_safe(stderr, message, strlen(message));
    fprintf(stderr, " [%s]\n", id);
    if (c->json) {
        /* A message may be cut inside a character: what is not UTF-8 would be refused. */
        size_t size = brim_utf8_check(message, strlen(message));
        json_t *document = json_pack("{s:{s:s, s:s, s:s%}}", "error", "id", id, "status",
                                     brim_status_name(status), "message", message, (int)size);
        cli_print_json(c, document);
    }
    return status == BRIM_USAGE       ? CLI_USAGE
           : status == BRIM_CANCELLED ? CLI_INTERRUPTED
                                      : CLI_FAILED;
}

int cli_fail(cli *c, brim_status status)
{
    char id[64], message[1024];
    snprintf(id, sizeof id, "%s", brim_last_id());
    snprintf(message, sizeof message, "%s", brim_last_message());
    return report(c, status, id, message);
}

int cli_error(cli *c, brim_status status, const char *id, const char *fmt, ...)
{
    char message[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return report(c, status, id, message);
}

int cli_print_json(cli *c, json_t *document)
{
    if (!document)
        return cli_error(c, BRIM_NO_MEMORY, "cli.json", "no memory for the JSON document");
    int failed = json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    json_decref(document);
    putchar('\n');
    if (failed)
        return cli_error(c, BRIM_IO, "cli.output", "the JSON document could not be written: %s",
                         strerror(errno));
    return CLI_OK;
}

static bool read_stream(cli *c, char **out, size_t *out_size, FILE *file, const char *shown,
                        size_t limit, int *code)
{
    size_t size = 0, capacity = 65536;
    char *text = malloc(capacity);
    while (text && !feof(file) && !ferror(file) && size <= limit) {
        if (size + 1 == capacity) {
            char *grown = realloc(text, capacity * 2);
            if (!grown)
                free(text);
            text = grown;
            capacity *= 2;
        }
        if (text)
            size += fread(text + size, 1, capacity - size - 1, file);
    }
    if (text && !ferror(file) && size <= limit) {
        text[size] = 0;
        *out = text;
        *out_size = size;
        return true;
    }
    if (!text)
        *code = cli_error(c, BRIM_NO_MEMORY, "memory.out", "%s: no memory to read it", shown);
    else if (ferror(file))
        *code = cli_error(c, BRIM_IO, "file.read", "%s: cannot read: %s", shown, strerror(errno));
    else
        *code = cli_error(c, BRIM_LIMIT, "file.large", "%s: larger than the limit of %zu bytes",
                          shown, limit);
    free(text);
    return false;
}

bool cli_read_file(cli *c, char **out, size_t *out_size, const char *path, size_t limit, int *code)
{
    if (strcmp(path, "-") == 0)
        return read_stream(c, out, out_size, stdin, "standard input", limit, code);
    FILE *file = fopen(path, "rbe");
    if (!file) {
        bool absent = errno == ENOENT || errno == ENOTDIR;
        *code =
            cli_error(c, absent ? BRIM_NOT_FOUND : BRIM_IO, absent ? "file.absent" : "file.open",
                      "%s: cannot open: %s", path, strerror(errno));
        return false;
    }
    bool good = read_stream(c, out, out_size, file, path, limit, code);
    fclose(file);
    return good;
}

bool cli_make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool good = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!good)
            return false;
    }
    return true;
}

static volatile sig_atomic_t interrupts;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    if (interrupts > 0)
        _exit(CLI_INTERRUPTED);
    interrupts = 1;
}

void cli_catch_interrupt(void)
{
    /* No SA_RESTART: a read from the terminal returns, so that the caller sees the count. */
    struct sigaction action = {.sa_handler = on_interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

int cli_interrupts(void)
{
    return interrupts;
}

void cli_clear_interrupts(void)
{
    interrupts = 0;
}
