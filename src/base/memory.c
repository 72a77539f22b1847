/* memory.c: the context, its hooks and the arena. */
#include "base/memory.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    BLOCK_ALIGN = 64,
    DESC_FILLED = 0x4272696d, /* "Brim" */
    LOG_LINE_BYTES = 1024,
    HUGE_PAGE = 2 << 20,
};

struct brim_context {
    brim_allocator allocator;
    void (*log)(brim_log_level level, const char *line, void *user);
    void *log_user;
    atomic_size_t bytes;
    atomic_size_t bytes_peak;
    atomic_uint_fast64_t allocations;
    atomic_uint_fast64_t fail_at; /* 0: never */
};

/* Stands before every block; its size keeps the block aligned. */
typedef struct block_header {
    size_t size; /* of the block without the header */
    char pad[BLOCK_ALIGN - sizeof(size_t)];
} block_header;

static void *system_alloc(size_t size, void *user)
{
    (void)user;
    size_t align = size >= 2 * HUGE_PAGE ? HUGE_PAGE : BLOCK_ALIGN;
    void *ptr = NULL;
    if (posix_memalign(&ptr, align, size) != 0)
        return NULL;
    if (align == HUGE_PAGE)
        madvise(ptr, size, MADV_HUGEPAGE); /* advice only: failure changes nothing but speed */
    return ptr;
}

static void system_free(void *ptr, size_t size, void *user)
{
    (void)size, (void)user;
    free(ptr);
}

static void log_to_stderr(brim_log_level level, const char *line, void *user)
{
    (void)user;
    if (level <= BRIM_LOG_WARN)
        fprintf(stderr, "brim: %s\n", line);
}

brim_context_desc brim_context_desc_default(void)
{
    return (brim_context_desc){.do_not_set = DESC_FILLED};
}

brim_status brim_context_create(brim_context **out, const brim_context_desc *desc)
{
    brim_context_desc filled = desc ? *desc : brim_context_desc_default();
    *out = NULL;
    BRIM_FAIL_IF(filled.do_not_set != DESC_FILLED, USAGE, "context.desc",
                 "the context description was not made by brim_context_desc_default()");
    BRIM_FAIL_IF(!filled.allocator.alloc != !filled.allocator.free, USAGE, "context.hooks",
                 "alloc and free must be given together");
    if (!filled.allocator.alloc)
        filled.allocator = (brim_allocator){system_alloc, system_free, NULL};
    brim_context *ctx = filled.allocator.alloc(sizeof *ctx, filled.allocator.user);
    BRIM_FAIL_IF(!ctx, NO_MEMORY, "memory.out", "no memory for a context");
    memset(ctx, 0, sizeof *ctx);
    ctx->allocator = filled.allocator;
    ctx->log = filled.log ? filled.log : log_to_stderr;
    ctx->log_user = filled.log_user;
    *out = ctx;
    return BRIM_OK;
}

void brim_context_destroy(brim_context *ctx)
{
    if (!ctx)
        return;
    size_t left = atomic_load(&ctx->bytes);
    if (left)
        brim__log(ctx, BRIM_LOG_ERROR, "context destroyed with %zu bytes still in use", left);
    ctx->allocator.free(ctx, sizeof *ctx, ctx->allocator.user);
}

size_t brim_context_bytes(const brim_context *ctx)
{
    return atomic_load(&ctx->bytes);
}

size_t brim_context_bytes_peak(const brim_context *ctx)
{
    return atomic_load(&ctx->bytes_peak);
}

void brim_free(brim_context *ctx, void *ptr)
{
    brim__free(ctx, ptr);
}

static void count_bytes(brim_context *ctx, size_t size)
{
    size_t now = atomic_fetch_add(&ctx->bytes, size) + size;
    size_t peak = atomic_load(&ctx->bytes_peak);
    while (now > peak && !atomic_compare_exchange_weak(&ctx->bytes_peak, &peak, now)) {
    }
}

void *brim__alloc(brim_context *ctx, size_t size)
{
    uint64_t nth = atomic_fetch_add(&ctx->allocations, 1) + 1;
    uint64_t fail_at = atomic_load(&ctx->fail_at);
    size_t whole = 0;
    block_header *block = NULL;
    if (brim__add_size(&whole, size, sizeof *block) && !(fail_at && nth >= fail_at))
        block = ctx->allocator.alloc(whole, ctx->allocator.user);
    if (!block) {
        brim__fail(BRIM_NO_MEMORY, "memory.out", "no memory for %zu bytes", size);
        return NULL;
    }
    block->size = size;
    count_bytes(ctx, size);
    return block + 1;
}

void *brim__alloc_sparse(brim_context *ctx, size_t size)
{
    char *ptr = brim__alloc(ctx, size);
    size_t page = 4096;
    uintptr_t start = ((uintptr_t)ptr + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)ptr + size) / page * page;
    if (ptr && end > start)
        madvise((void *)start, end - start, MADV_NOHUGEPAGE);
    return ptr;
}

void *brim__calloc(brim_context *ctx, size_t count, size_t size)
{
    size_t whole;
    if (!brim__mul_size(&whole, count, size)) {
        brim__fail(BRIM_NO_MEMORY, "memory.out", "no memory for %zu items of %zu bytes", count,
                   size);
        return NULL;
    }
    void *ptr = brim__alloc(ctx, whole);
    if (ptr)
        memset(ptr, 0, whole);
    return ptr;
}

void *brim__realloc(brim_context *ctx, void *ptr, size_t size)
{
    void *grown = brim__alloc(ctx, size);
    if (!grown || !ptr)
        return grown;
    size_t old = ((block_header *)ptr - 1)->size;
    memcpy(grown, ptr, old < size ? old : size);
    brim__free(ctx, ptr);
    return grown;
}

char *brim__strdup(brim_context *ctx, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = brim__alloc(ctx, size);
    return copy ? memcpy(copy, text, size) : NULL;
}

void brim__free(brim_context *ctx, void *ptr)
{
    if (!ptr)
        return;
    block_header *block = (block_header *)ptr - 1;
    atomic_fetch_sub(&ctx->bytes, block->size);
    ctx->allocator.free(block, block->size + sizeof *block, ctx->allocator.user);
}

uint64_t brim__memory_fail_at(brim_context *ctx, uint64_t n)
{
    uint64_t made = atomic_exchange(&ctx->allocations, 0);
    atomic_store(&ctx->fail_at, n);
    return made;
}

void brim__log(brim_context *ctx, brim_log_level level, const char *fmt, ...)
{
    char line[LOG_LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    ctx->log(level, line, ctx->log_user);
}

brim_status brim__grow(brim_context *ctx, void **items, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return BRIM_OK;
    size_t wanted = *capacity * 2 > need ? *capacity * 2 : need;
    if (wanted < 8)
        wanted = 8;
    size_t bytes;
    BRIM_FAIL_IF(!brim__mul_size(&bytes, wanted, size), NO_MEMORY, "memory.out",
                 "no memory for %zu items of %zu bytes", wanted, size);
    void *grown = brim__realloc(ctx, *items, bytes);
    if (!grown)
        return BRIM_NO_MEMORY;
    *items = grown;
    *capacity = wanted;
    return BRIM_OK;
}

brim_status brim__arena_init(brim__arena *arena, brim_context *ctx, size_t size)
{
    *arena = (brim__arena){0};
    BRIM_ALLOC(ctx, arena->base, size);
    arena->size = size;
    return BRIM_OK;
}

void brim__arena_done(brim__arena *arena, brim_context *ctx)
{
    brim__free(ctx, arena->base);
    *arena = (brim__arena){0};
}

void *brim__arena_take(brim__arena *arena, size_t size)
{
    size_t start = (arena->used + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    if (start > arena->size || size > arena->size - start)
        return NULL;
    arena->used = start + size;
    return arena->base + start;
}
