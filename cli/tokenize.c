/* tokenize.c: `brim tokenize`: text to tokens and back. The text is taken byte for byte, also from
 * standard input, where the last line feed is part of it. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "brim/token.h"
#include "cli.h"

enum { TEXT_MAX = 64 << 20 };

typedef struct tokenize {
    cli *c;
    brim_tokenizer *tokenizer;
    bool special, bos, decode;
    const char *text; /* the argument, or what was read */
    size_t size;
    char *read; /* from standard input, or NULL */
} tokenize;

/* Bytes as a JSON text: those that are no UTF-8 by themselves as <0xE2>. NULL: no memory. */
static json_t *json_bytes(const char *bytes, size_t size)
{
    size_t good = brim_utf8_check(bytes, size);
    if (good == size)
        return json_stringn(bytes, size);
    char *text = malloc(6 * size + 1);
    if (!text)
        return NULL;
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        good = brim_utf8_check(bytes + at, size - at);
        memcpy(text + used, bytes + at, good);
        used += good;
        at += good;
        if (at < size)
            used += (size_t)snprintf(text + used, 7, "<0x%02X>", (unsigned char)bytes[at++]);
    }
    json_t *json = json_stringn(text, used);
    free(text);
    return json;
}

static json_t *json_hex(const char *bytes, size_t size)
{
    char *text = malloc(2 * size + 1);
    if (!text)
        return NULL;
    for (size_t i = 0; i < size; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)bytes[i]);
    json_t *json = json_stringn(text, 2 * size);
    free(text);
    return json;
}

static int print_tokens_json(tokenize *z, const brim_tokens *tokens, uint64_t lost)
{
    json_t *ids = json_array(), *pieces = json_array(), *bytes = json_array();
    for (size_t i = 0; i < tokens->count; i++) {
        const char *piece;
        size_t size;
        brim_token_bytes(&piece, &size, z->tokenizer, tokens->ids[i], true);
        json_array_append_new(ids, json_integer(tokens->ids[i]));
        json_array_append_new(pieces, json_bytes(piece, size));
        json_array_append_new(bytes, json_hex(piece, size));
    }
    return cli_print_json(z->c, json_pack("{s:o, s:o, s:o, s:I, s:I}", "ids", ids, "pieces", pieces,
                                          "bytes", bytes, "count", (json_int_t)tokens->count,
                                          "lost_bytes", (json_int_t)lost));
}

static int print_tokens(tokenize *z, const brim_tokens *tokens, uint64_t lost)
{
    if (lost)
        fprintf(stderr,
                "brim tokenize: %" PRIu64
                " of %zu bytes are not in the vocabulary and are left out\n",
                lost, z->size);
    if (z->c->json)
        return print_tokens_json(z, tokens, lost);
    for (size_t i = 0; i < tokens->count; i++)
        printf("%s%d", i ? " " : "", tokens->ids[i]);
    putchar('\n');
    return CLI_OK;
}

static int encode(tokenize *z)
{
    const brim_encode_options options = {.special = z->special, .bos = z->bos};
    brim_tokens tokens = {0};
    uint64_t lost;
    brim_status status =
        brim_encode(&tokens, &lost, z->c->ctx, z->tokenizer, z->text, z->size, &options);
    int code = status == BRIM_OK ? print_tokens(z, &tokens, lost) : cli_fail(z->c, status);
    brim_tokens_done(&tokens, z->c->ctx);
    return code;
}

/* ---- back ---- */

static bool is_separator(char c)
{
    return c == ' ' || c == ',' || c == '\n' || c == '\r' || c == '\t' || c == '[' || c == ']';
}

/* Ids with blanks or commas between them; a list in brackets will do too. The text is
 * 0-terminated. False: printed, *code is the exit code. */
static bool parse_ids(tokenize *z, brim_token **out, size_t *out_count, int *code)
{
    size_t count = 0;
    brim_token *ids = malloc((z->size / 2 + 1) * sizeof *ids);
    *out = ids;
    if (!ids) {
        *code = cli_error(z->c, BRIM_NO_MEMORY, "memory.out", "no memory for the ids");
        return false;
    }
    for (const char *at = z->text, *end = z->text + z->size; at < end;) {
        char *next;
        if (is_separator(*at)) {
            at++;
            continue;
        }
        errno = 0;
        long id = strtol(at, &next, 10);
        if (next == at || errno || id < 0 || id > INT32_MAX ||
            (next < end && !is_separator(*next))) {
            *code = cli_error(z->c, BRIM_USAGE, "tokenize.ids",
                              "at byte %zu there is no token id; ids are numbers with blanks or "
                              "commas between them",
                              (size_t)(at - z->text));
            return false;
        }
        ids[count++] = (brim_token)id;
        at = next;
    }
    *out_count = count;
    return true;
}

static int decode(tokenize *z)
{
    brim_token *ids = NULL;
    size_t count = 0, size;
    char *text = NULL;
    int code;
    if (!parse_ids(z, &ids, &count, &code)) {
        free(ids);
        return code;
    }
    brim_status status = brim_decode(&text, &size, z->c->ctx, z->tokenizer, ids, count, z->special);
    if (status != BRIM_OK)
        code = cli_fail(z->c, status);
    else if (z->c->json)
        code = cli_print_json(z->c,
                              json_pack("{s:o, s:o, s:I}", "text", json_bytes(text, size), "bytes",
                                        json_hex(text, size), "count", (json_int_t)count));
    else
        code = fwrite(text, 1, size, stdout) == size
                   ? CLI_OK
                   : cli_error(z->c, BRIM_IO, "tokenize.write",
                               "the text could not be written to standard output");
    brim_free(z->c->ctx, text);
    free(ids);
    return code;
}

/* ---- the command ---- */

static bool open_tokenizer(tokenize *z, const char *name, int *code)
{
    char path[CLI_PATH_MAX];
    brim_model_file *file;
    if (!cli_model_path(z->c, path, name, code))
        return false;
    brim_status status = brim_model_file_open(&file, z->c->ctx, path);
    if (status == BRIM_OK) {
        status = brim_tokenizer_create(&z->tokenizer, z->c->ctx, file);
        brim_model_file_close(file);
    }
    if (status != BRIM_OK)
        *code = cli_fail(z->c, status);
    return status == BRIM_OK;
}

static bool take_text(tokenize *z, int *code)
{
    const char *argument = z->c->arg_count > 1 ? z->c->args[1] : "-";
    if (strcmp(argument, "-")) {
        z->text = argument;
        z->size = strlen(argument);
        return true;
    }
    if (!cli_read_file(z->c, &z->read, &z->size, "-", TEXT_MAX, code))
        return false;
    z->text = z->read;
    return true;
}

int brim_cli_tokenize(cli *c, int argc, char **argv)
{
    tokenize z = {.c = c};
    const cli_option options[] = {
        CLI_FLAG("special", 0, &z.special,
                 "special tokens written in the text become tokens; with --decode they are shown"),
        CLI_FLAG("bos", 0, &z.bos, "put the beginning-of-text token first"),
        CLI_FLAG("decode", 0, &z.decode,
                 "the other way: TEXT is token ids, the text they stand for is printed"),
        CLI_JSON(c),
    };
    const cli_spec spec = {
        .usage = "brim tokenize MODEL [TEXT|-] [options]",
        .about =
            "Shows the tokens of a text, as ids. A file with a vocabulary and no weights will do.\n"
            "Without TEXT, or with -, standard input is read, byte for byte.",
        .examples = "  brim tokenize smollm2-135m 'Hello, world'\n"
                    "  brim tokenize smollm2-135m - --json < letter.txt\n"
                    "  brim tokenize smollm2-135m --decode '19556 28 905'\n",
        .options = options,
        .option_count = CLI_COUNT(options),
        .args_min = 1,
        .args_max = 2,
        .args_what = "a model file",
    };
    int code;
    if (!cli_parse(c, &spec, argc, argv, &code))
        return code;
    if (open_tokenizer(&z, c->args[0], &code) && take_text(&z, &code))
        code = z.decode ? decode(&z) : encode(&z);
    brim_tokenizer_destroy(z.tokenizer);
    free(z.read);
    return code;
}
