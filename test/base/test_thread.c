/* Threads, the futex and the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/thread.h"

enum { THREADS = 4, ROUNDS = 1000 };

static brim_context *ctx;

static int create(void **state)
{
    return brim_context_create(&ctx, NULL);
}

static int destroy(void **state)
{
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
    return 0;
}

static void count_up(void *user)
{
    atomic_uint *count = user;
    for (int i = 0; i < ROUNDS; i++)
        atomic_fetch_add(count, 1);
}

static void joined_threads_have_done_their_work(void **state)
{
    atomic_uint count = 0;
    brim__thread *threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(
            brim__thread_start(&threads[i], ctx, "a name longer than fifteen", count_up, &count),
            BRIM_OK);
    for (int i = 0; i < THREADS; i++)
        brim__thread_join(threads[i], ctx);
    assert_int_equal(count, THREADS * ROUNDS);
    brim__thread_join(NULL, ctx);
}

/* Two threads pass a word to and fro: each sleeps until it is its turn. */
typedef struct ping {
    _Atomic uint32_t turn;
    uint32_t sum; /* guarded by the turn */
} ping;

static void play(ping *p, uint32_t parity)
{
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t seen;
        while ((seen = atomic_load_explicit(&p->turn, memory_order_acquire)) % 2 != parity)
            brim__futex_wait(&p->turn, seen, 0);
        p->sum++;
        atomic_fetch_add_explicit(&p->turn, 1, memory_order_release);
        brim__futex_wake_all(&p->turn);
    }
}

static void play_odd(void *user)
{
    play(user, 1);
}

static void a_sleeper_wakes_when_the_word_changes(void **state)
{
    ping p = {0};
    brim__thread *thread;
    assert_int_equal(brim__thread_start(&thread, ctx, "odd", play_odd, &p), BRIM_OK);
    play(&p, 0);
    brim__thread_join(thread, ctx);
    assert_int_equal(p.sum, 2 * ROUNDS);
}

static void a_wait_ends_at_its_timeout(void **state)
{
    _Atomic uint32_t word = 5;
    uint64_t before = brim__now_ns();
    brim__futex_wait(&word, 5, 2000000);
    uint64_t waited = brim__now_ns() - before;
    assert_true(waited >= 1000000);
    /* A word that has another value already does not wait at all. */
    brim__futex_wait(&word, 6, 0);
}

static void pin_self(void *user)
{
    atomic_uint *pinned = user;
    *pinned = brim__thread_pin(1000);
}

static void pinning_wraps_around_the_cpus_that_are_allowed(void **state)
{
    assert_true(brim__cpu_count() >= 1);
    atomic_uint pinned = 0;
    brim__thread *thread;
    assert_int_equal(brim__thread_start(&thread, ctx, "pin", pin_self, &pinned), BRIM_OK);
    brim__thread_join(thread, ctx);
    assert_true(pinned);
}

static void nothing_body(void *user) {}

static void a_thread_without_memory_is_an_error(void **state)
{
    brim__memory_fail_at(ctx, 1);
    brim__thread *thread;
    assert_int_equal(brim__thread_start(&thread, ctx, "x", nothing_body, NULL), BRIM_NO_MEMORY);
    assert_null(thread);
    brim__memory_fail_at(ctx, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_threads_have_done_their_work),
        cmocka_unit_test(a_sleeper_wakes_when_the_word_changes),
        cmocka_unit_test(a_wait_ends_at_its_timeout),
        cmocka_unit_test(pinning_wraps_around_the_cpus_that_are_allowed),
        cmocka_unit_test(a_thread_without_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
