/* memory.h: allocation through the context's hooks, and an arena for scratch.
 *
 * Every block carries its size, so that brim__free needs only the pointer; blocks are aligned to
 * 64 bytes. brim__memory_fail_at() makes the n-th allocation from now fail: the torture tests
 * fail each one in turn. */
#ifndef BRIM_BASE_MEMORY_H
#define BRIM_BASE_MEMORY_H

#include "base/status.h"

/* NULL when out of memory (the message is set) or when size overflows. Zero bytes give a valid
 * pointer. */
void *brim__alloc(brim_context *ctx, size_t size);
void *brim__calloc(brim_context *ctx, size_t count, size_t size);
/* Grows or shrinks; keeps the old block and returns NULL on failure. */
void *brim__realloc(brim_context *ctx, void *ptr, size_t size);
char *brim__strdup(brim_context *ctx, const char *text);
void brim__free(brim_context *ctx, void *ptr);

/* The same as brim__alloc for a large block of which little may ever be touched (a KV pool):
 * without huge pages, so that only what is used becomes resident. */
void *brim__alloc_sparse(brim_context *ctx, size_t size);

/* The n-th allocation from now (1 = the next) and all later ones fail; 0 turns it off. Returns
 * the number of allocations since the last call. */
uint64_t brim__memory_fail_at(brim_context *ctx, uint64_t n);

void brim__log(brim_context *ctx, brim_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Allocates into `ptr` or returns NO_MEMORY from the calling function. */
#define BRIM_ALLOC(ctx, ptr, size)                                                                 \
    do {                                                                                           \
        (ptr) = brim__alloc((ctx), (size));                                                        \
        if (!(ptr))                                                                                \
            return BRIM_NO_MEMORY;                                                                 \
    } while (0)
#define BRIM_CALLOC(ctx, ptr, count)                                                               \
    do {                                                                                           \
        (ptr) = brim__calloc((ctx), (count), sizeof *(ptr));                                       \
        if (!(ptr))                                                                                \
            return BRIM_NO_MEMORY;                                                                 \
    } while (0)

/* A growing array: makes room for `need` items in all, doubling. */
brim_status brim__grow(brim_context *ctx, void **items, size_t *capacity, size_t need, size_t size);
#define BRIM_GROW(ctx, items, capacity, need)                                                      \
    brim__grow((ctx), (void **)&(items), &(capacity), (need), sizeof *(items))

/* An arena: one block handed out front to back, released by going back to a mark. */
typedef struct brim__arena {
    char *base;
    size_t size;
    size_t used;
} brim__arena;

brim_status brim__arena_init(brim__arena *arena, brim_context *ctx, size_t size);
void brim__arena_done(brim__arena *arena, brim_context *ctx);
/* 64-byte aligned; NULL when full (a bug of the caller's sizing: it has no message). */
void *brim__arena_take(brim__arena *arena, size_t size);
static inline size_t brim__arena_mark(const brim__arena *arena)
{
    return arena->used;
}
static inline void brim__arena_reset(brim__arena *arena, size_t mark)
{
    arena->used = mark;
}

/* Overflow-checked arithmetic: false when the result does not fit. */
static inline bool brim__mul_size(size_t *out, size_t a, size_t b)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool brim__add_size(size_t *out, size_t a, size_t b)
{
    return !__builtin_add_overflow(a, b, out);
}

#endif
