/* status.h: how a function fails. The place that knows what went wrong says it, once; callers
 * pass it on with BRIM_TRY and add nothing. */
#ifndef BRIM_BASE_STATUS_H
#define BRIM_BASE_STATUS_H

#include "brim/base.h"

/* Sets this thread's message and id, returns `code`. `id` is stable ("gguf.truncated"); the text
 * says what, where and what to do. */
brim_status brim__fail(brim_status code, const char *id, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before this thread's message: a caller that alone knows the file's name. */
void brim__fail_prefix(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define BRIM_FAIL(code, id, ...) return brim__fail(BRIM_##code, id, __VA_ARGS__)

#define BRIM_FAIL_IF(cond, code, id, ...)                                                          \
    do {                                                                                           \
        if (cond)                                                                                  \
            return brim__fail(BRIM_##code, id, __VA_ARGS__);                                       \
    } while (0)

#define BRIM_TRY(expr)                                                                             \
    do {                                                                                           \
        brim_status brim__try_status = (expr);                                                     \
        if (brim__try_status != BRIM_OK)                                                           \
            return brim__try_status;                                                               \
    } while (0)

/* The same, with a label to leave by; the function declares `brim_status status`. */
#define BRIM_TRY_GOTO(expr, label)                                                                 \
    do {                                                                                           \
        status = (expr);                                                                           \
        if (status != BRIM_OK)                                                                     \
            goto label;                                                                            \
    } while (0)

#endif
