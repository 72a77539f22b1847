/* brim/console.h: what programs that talk to people in a terminal need: tables, a progress bar,
 * UTF-8 checks, safe printing of foreign text, and "did you mean".
 */
#ifndef BRIM_CONSOLE_H
#define BRIM_CONSOLE_H

#include <stdio.h>

#include "brim/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tables ---- */

/* TEXT: aligned columns for people (Unicode widths; control characters are escaped). MARKDOWN: a
 * GitHub table. CSV: RFC 4180, lines end with CRLF. JSON: a list of objects whose keys are the
 * column names. */
typedef enum brim_table_style {
    BRIM_TABLE_TEXT,
    BRIM_TABLE_MARKDOWN,
    BRIM_TABLE_CSV,
    BRIM_TABLE_JSON
} brim_table_style;

#define BRIM_TABLE_COLUMNS_MAX 64

typedef struct brim_table brim_table;

/* `columns` is a NULL-terminated list of 1 to 64 names; a leading '>' is not part of the name: it
 * aligns the column right and, in JSON, makes its cells numbers where they are one and null where
 * they are empty. Names are copied. Errors: USAGE, NO_MEMORY. */
BRIM_API brim_status brim_table_create(brim_table **out, brim_context *ctx,
                                       const char *const *columns);
BRIM_API void brim_table_destroy(brim_table *table);
/* Starts a row; cells are then added left to right. Cells not added are empty. A failure is
 * remembered and returned by brim_table_print() too, so that rows may be filled without checking
 * each call. Errors: NO_MEMORY, USAGE (a cell before the first row, or one too many). */
BRIM_API brim_status brim_table_row(brim_table *table);
BRIM_API brim_status brim_table_cell(brim_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints the table. Errors: the first failure of the calls above; IO when `file` refuses. */
BRIM_API brim_status brim_table_print(const brim_table *table, FILE *file, brim_table_style style);

/* ---- progress ---- */

/* A progress bar on stderr: drawn on a terminal, silent in a pipe. All fields belong to it. */
typedef struct brim_progress {
    const char *what;
    const char *unit;
    uint64_t total;
    uint64_t first; /* the first count seen: rates are of this run, not of a resumed one */
    uint64_t started_ns, drawn_ns;
    bool active, seen;
} brim_progress;

/* Starts a bar. `what` ("loading") and `unit` must outlive it. `total` 0: unknown, only the count
 * is shown. unit "B" is shown in KiB, MiB or GiB; anything else ("tokens") as a count. */
BRIM_API void brim_progress_start(brim_progress *progress, const char *what, uint64_t total,
                                  const char *unit);
/* Says how much is done; drawn at most ten times a second. */
BRIM_API void brim_progress_update(brim_progress *progress, uint64_t done);
/* Removes the bar. Harmless when called twice. */
BRIM_API void brim_progress_finish(brim_progress *progress);

/* ---- text ---- */

/* Offset of the first byte that is not well-formed UTF-8 (The Unicode Standard, table 3-7), or
 * `size` when all is well. */
BRIM_API size_t brim_utf8_check(const char *text, size_t size);
/* How many bytes at the end of text, 0 to 3, begin a character that is not complete yet: what
 * streams text out holds these back. */
BRIM_API size_t brim_utf8_incomplete_tail(const char *text, size_t size);
/* Prints foreign text so that it cannot steer a terminal: control characters (a line feed too) and
 * bytes that are not UTF-8 are written as \n, \t or \xNN. */
BRIM_API void brim_print_safe(FILE *file, const char *text, size_t size);
/* The word of a NULL-terminated list that `word` was probably meant to be: the nearest by edit
 * distance, NULL when none is near. */
BRIM_API const char *brim_suggest(const char *word, const char *const *known);

#ifdef __cplusplus
}
#endif
#endif
