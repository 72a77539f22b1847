/* The context's allocator, failure on demand, growing arrays, the arena. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

typedef struct hooks {
    size_t allocated, freed, live_blocks;
    char last_line[256];
} hooks;

static void *counting_alloc(size_t size, void *user)
{
    hooks *h = user;
    void *ptr = NULL;
    if (posix_memalign(&ptr, 64, size) != 0)
        return NULL;
    h->allocated += size;
    h->live_blocks++;
    return ptr;
}

static void counting_free(void *ptr, size_t size, void *user)
{
    hooks *h = user;
    h->freed += size;
    h->live_blocks--;
    free(ptr);
}

static void keep_line(brim_log_level level, const char *line, void *user)
{
    hooks *h = user;
    strncpy(h->last_line, line, sizeof h->last_line - 1);
}

static brim_context *hooked_context(hooks *h)
{
    *h = (hooks){0};
    brim_context_desc desc = brim_context_desc_default();
    desc.allocator = (brim_allocator){counting_alloc, counting_free, h};
    desc.log = keep_line;
    desc.log_user = h;
    brim_context *ctx;
    assert_int_equal(brim_context_create(&ctx, &desc), BRIM_OK);
    return ctx;
}

static void context_refuses_a_desc_that_was_never_filled(void **state)
{
    brim_context_desc desc = {0};
    brim_context *ctx = (brim_context *)&desc;
    assert_int_equal(brim_context_create(&ctx, &desc), BRIM_USAGE);
    assert_null(ctx);
    assert_string_equal(brim_last_id(), "context.desc");
    desc = brim_context_desc_default();
    desc.allocator.alloc = counting_alloc;
    assert_int_equal(brim_context_create(&ctx, &desc), BRIM_USAGE);
    assert_string_equal(brim_last_id(), "context.hooks");
}

static void all_memory_goes_through_the_hooks_with_its_size(void **state)
{
    hooks h;
    brim_context *ctx = hooked_context(&h);
    void *a = brim__alloc(ctx, 100), *b = brim__calloc(ctx, 10, 10), *zero = brim__alloc(ctx, 0);
    assert_non_null(a);
    assert_non_null(zero);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal((uintptr_t)b % 64, 0);
    assert_int_equal(brim_context_bytes(ctx), 200);
    char zeros[100] = {0};
    assert_memory_equal(b, zeros, 100);
    brim_free(ctx, a);
    brim__free(ctx, b);
    brim__free(ctx, zero);
    brim__free(ctx, NULL);
    assert_int_equal(brim_context_bytes(ctx), 0);
    assert_int_equal(brim_context_bytes_peak(ctx), 200);
    brim_context_destroy(ctx);
    assert_int_equal(h.allocated, h.freed);
    assert_int_equal(h.live_blocks, 0);
    assert_string_equal(h.last_line, "");
}

static void destroying_a_context_in_use_says_how_much_is_left(void **state)
{
    hooks h;
    brim_context *ctx = hooked_context(&h);
    char *left = brim__alloc(ctx, 321);
    brim_context_destroy(ctx);
    assert_non_null(strstr(h.last_line, "321 bytes"));
    free(left - 64); /* the block's header stands before it */
}

static void sizes_that_overflow_are_refused(void **state)
{
    hooks h;
    brim_context *ctx = hooked_context(&h);
    assert_null(brim__calloc(ctx, SIZE_MAX / 2, 3));
    assert_string_equal(brim_last_id(), "memory.out");
    assert_null(brim__alloc(ctx, SIZE_MAX - 8));
    char *items = NULL;
    size_t capacity = 0;
    assert_int_equal(brim__grow(ctx, (void **)&items, &capacity, SIZE_MAX / 2, 16), BRIM_NO_MEMORY);
    assert_null(items);
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
}

static void realloc_keeps_the_contents_and_the_old_block_on_failure(void **state)
{
    hooks h;
    brim_context *ctx = hooked_context(&h);
    char *text = brim__strdup(ctx, "a word");
    text = brim__realloc(ctx, text, 1000);
    assert_string_equal(text, "a word");
    text = brim__realloc(ctx, text, 4);
    assert_memory_equal(text, "a wo", 4);
    brim__memory_fail_at(ctx, 1);
    assert_null(brim__realloc(ctx, text, 100));
    assert_memory_equal(text, "a wo", 4);
    assert_int_equal(brim_context_bytes(ctx), 4);
    brim__memory_fail_at(ctx, 0);
    brim__free(ctx, text);
    brim_context_destroy(ctx);
}

static void the_nth_allocation_and_all_later_ones_fail(void **state)
{
    hooks h;
    brim_context *ctx = hooked_context(&h);
    brim__memory_fail_at(ctx, 3);
    void *one = brim__alloc(ctx, 1), *two = brim__alloc(ctx, 2);
    assert_non_null(one);
    assert_non_null(two);
    assert_null(brim__alloc(ctx, 3));
    assert_null(brim__alloc(ctx, 4));
    assert_int_equal(brim__memory_fail_at(ctx, 0), 4);
    void *five = brim__alloc(ctx, 5);
    assert_non_null(five);
    brim__free(ctx, one);
    brim__free(ctx, two);
    brim__free(ctx, five);
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
}

static void a_growing_array_doubles(void **state)
{
    hooks h;
    brim_context *ctx = hooked_context(&h);
    uint32_t *items = NULL;
    size_t capacity = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        assert_int_equal(BRIM_GROW(ctx, items, capacity, i + 1), BRIM_OK);
        items[i] = i;
    }
    for (uint32_t i = 0; i < 100000; i++)
        assert_int_equal(items[i], i);
    assert_true(brim__memory_fail_at(ctx, 0) < 20);
    brim__free(ctx, items);
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
}

static void an_arena_hands_out_aligned_blocks_and_goes_back_to_a_mark(void **state)
{
    hooks h;
    brim_context *ctx = hooked_context(&h);
    brim__arena arena;
    assert_int_equal(brim__arena_init(&arena, ctx, 256), BRIM_OK);
    char *a = brim__arena_take(&arena, 1);
    size_t mark = brim__arena_mark(&arena);
    char *b = brim__arena_take(&arena, 64);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_ptr_equal(b, a + 64);
    assert_null(brim__arena_take(&arena, 129));
    assert_null(brim__arena_take(&arena, SIZE_MAX));
    assert_ptr_equal(brim__arena_take(&arena, 128), a + 128);
    assert_null(brim__arena_take(&arena, 1));
    brim__arena_reset(&arena, mark);
    assert_ptr_equal(brim__arena_take(&arena, 64), b);
    brim__arena_done(&arena, ctx);
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
}

static void large_blocks_of_the_default_allocator_are_aligned_too(void **state)
{
    brim_context *ctx;
    assert_int_equal(brim_context_create(&ctx, NULL), BRIM_OK);
    char *block = brim__alloc(ctx, 9u << 20);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % 64, 0);
    block[0] = block[(9u << 20) - 1] = 1;
    brim__free(ctx, block);
    assert_int_equal(brim_context_bytes(ctx), 0);
    assert_int_equal(brim_context_bytes_peak(ctx), 9u << 20);
    brim_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_refuses_a_desc_that_was_never_filled),
        cmocka_unit_test(all_memory_goes_through_the_hooks_with_its_size),
        cmocka_unit_test(destroying_a_context_in_use_says_how_much_is_left),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(realloc_keeps_the_contents_and_the_old_block_on_failure),
        cmocka_unit_test(the_nth_allocation_and_all_later_ones_fail),
        cmocka_unit_test(a_growing_array_doubles),
        cmocka_unit_test(an_arena_hands_out_aligned_blocks_and_goes_back_to_a_mark),
        cmocka_unit_test(large_blocks_of_the_default_allocator_are_aligned_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
