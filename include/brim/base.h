/* brim/base.h: what every other header stands on: status values, messages, the context and its
 * memory hooks.
 *
 * Errors are values. Every public call that can fail returns a brim_status; the place that fails
 * writes one message (what, where, what to do) for the calling thread, read with
 * brim_last_message(). Each message has a stable id such as "gguf.truncated"; programs and tests
 * compare ids, never wording.
 */
#ifndef BRIM_BASE_H
#define BRIM_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Symbols are hidden by default; this marks the public ones. */
#define BRIM_API __attribute__((visibility("default")))

#define BRIM_VERSION_MAJOR 0
#define BRIM_VERSION_MINOR 1
#define BRIM_VERSION_PATCH 0

/* code, value, text. The command exits with 2 for USAGE and 1 for every other failure. */
#define BRIM_STATUS_LIST(X)                                                                        \
    X(OK, 0, "success")                                                                            \
    X(USAGE, 1, "an argument is wrong")                                                            \
    X(IO, 2, "a file or network operation failed")                                                 \
    X(FORMAT, 3, "the input is malformed")                                                         \
    X(UNSUPPORTED, 4, "the input is valid but not supported")                                      \
    X(NOT_FOUND, 5, "something named does not exist")                                              \
    X(NO_MEMORY, 6, "memory could not be allocated")                                               \
    X(LIMIT, 7, "a declared limit would be exceeded")                                              \
    X(STATE, 8, "the call does not fit the object's present state")                                \
    X(CANCELLED, 9, "the work was cancelled")                                                      \
    X(REFUSED, 10, "a program did not pass the check")                                             \
    X(SYSTEM, 11, "the operating system refused")

typedef enum brim_status {
#define BRIM_STATUS_ENUM(code, value, text) BRIM_##code = value,
    BRIM_STATUS_LIST(BRIM_STATUS_ENUM)
#undef BRIM_STATUS_ENUM
} brim_status;

/* The name ("FORMAT") and the text of a status; "UNKNOWN" for a value that is not one. */
BRIM_API const char *brim_status_name(brim_status status);
BRIM_API const char *brim_status_text(brim_status status);

/* The message and the id of the last failure on this thread; "" before the first one. Valid until
 * the next failing call on the same thread. At most 1,023 bytes. */
BRIM_API const char *brim_last_message(void);
BRIM_API const char *brim_last_id(void);

/* Memory hooks. alloc returns `size` bytes aligned to at least 64, or NULL; free gets the size
 * that was asked for. Both may be called from any thread. */
typedef struct brim_allocator {
    void *(*alloc)(size_t size, void *user);
    void (*free)(void *ptr, size_t size, void *user);
    void *user;
} brim_allocator;

typedef enum brim_log_level {
    BRIM_LOG_ERROR,
    BRIM_LOG_WARN,
    BRIM_LOG_INFO,
    BRIM_LOG_DEBUG
} brim_log_level;

typedef struct brim_context_desc {
    brim_allocator allocator; /* all NULL: the system's, with huge pages for large blocks */
    /* Called for each log line; NULL: warnings and errors go to stderr. */
    void (*log)(brim_log_level level, const char *line, void *user);
    void *log_user;
    uint32_t do_not_set; /* filled by brim_context_desc_default() */
} brim_context_desc;

typedef struct brim_context brim_context;

BRIM_API brim_context_desc brim_context_desc_default(void);

/* Makes a context; every long-lived object is made from one and must be destroyed before it.
 * desc may be NULL for the default. Errors: USAGE (a desc that was never filled), NO_MEMORY. */
BRIM_API brim_status brim_context_create(brim_context **out, const brim_context_desc *desc);

/* Destroys a context. Memory that is still in use is a bug of the caller: it is logged with its
 * size. NULL is allowed. */
BRIM_API void brim_context_destroy(brim_context *ctx);

/* Bytes now allocated through the context, and the most there ever were. */
BRIM_API size_t brim_context_bytes(const brim_context *ctx);
BRIM_API size_t brim_context_bytes_peak(const brim_context *ctx);

/* Frees memory that a public call handed over (its docs say so). NULL is allowed. */
BRIM_API void brim_free(brim_context *ctx, void *ptr);

/* The library's version, "MAJOR.MINOR.PATCH". */
BRIM_API const char *brim_version(void);

#ifdef __cplusplus
}
#endif
#endif
