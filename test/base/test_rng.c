/* The counter-based generator and the hash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/rng.h"

/* Known answers of Random123 (tests/kat_vectors), philox4x32 with 10 rounds. */
static void philox4x32_10_gives_the_published_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        brim__philox4x32(out, known[i].counter, known[i].key);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void a_random_number_is_a_function_of_its_coordinates(void **state)
{
    uint64_t a = brim__random_u64(1, 2, 3);
    assert_int_equal(a, brim__random_u64(1, 2, 3));
    assert_int_not_equal(a, brim__random_u64(2, 2, 3));
    assert_int_not_equal(a, brim__random_u64(1, 3, 3));
    assert_int_not_equal(a, brim__random_u64(1, 2, 4));
    assert_int_not_equal(a, brim__random_u64(1, 2, 3 + (1ull << 32)));
}

static void floats_are_uniform_in_the_unit_interval(void **state)
{
    enum { COUNT = 100000 };
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        float x = brim__random_float(42, 0, i);
        assert_true(x >= 0 && x < 1);
        sum += x;
        squares += (double)x * x;
    }
    /* Five standard errors of the mean (1/sqrt(12 n)) and of the second moment (sqrt(4/45/n)). */
    assert_true(sum / COUNT > 0.5 - 0.0046 && sum / COUNT < 0.5 + 0.0046);
    assert_true(squares / COUNT > 1.0 / 3 - 0.0048 && squares / COUNT < 1.0 / 3 + 0.0048);
}

static void bounded_numbers_meet_every_value_about_equally(void **state)
{
    enum { COUNT = 60000, BOUND = 6 };
    unsigned seen[BOUND] = {0};
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t x = brim__random_below(7, 1, i, BOUND);
        assert_true(x < BOUND);
        seen[x]++;
    }
    double chi2 = 0;
    for (int i = 0; i < BOUND; i++) {
        double d = seen[i] - (double)COUNT / BOUND;
        chi2 += d * d / ((double)COUNT / BOUND);
    }
    assert_true(chi2 < 25.7); /* 5 degrees of freedom, p = 0.0001 */
}

static void equal_bytes_hash_equal_and_every_bit_counts(void **state)
{
    enum { SIZE = 37 };
    unsigned char data[SIZE + 1];
    for (int i = 0; i < SIZE; i++)
        data[i] = (unsigned char)(i * 11);
    uint64_t h = brim__hash64(data, SIZE, 1);
    assert_int_equal(h, brim__hash64(data, SIZE, 1));
    assert_int_not_equal(h, brim__hash64(data, SIZE, 2));
    assert_int_not_equal(h, brim__hash64(data, SIZE - 1, 1));
    for (int bit = 0; bit < SIZE * 8; bit++) {
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        uint64_t other = brim__hash64(data, SIZE, 1);
        int changed = __builtin_popcountll(h ^ other);
        assert_true(changed > 8 && changed < 56); /* of 64, about half */
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

static void zero_bytes_at_the_end_change_the_hash(void **state)
{
    unsigned char zeros[64] = {0};
    for (size_t a = 0; a <= 64; a++)
        for (size_t b = 0; b < a; b++)
            assert_int_not_equal(brim__hash64(zeros, a, 0), brim__hash64(zeros, b, 0));
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void hashes_of_counting_numbers_do_not_collide(void **state)
{
    enum { COUNT = 100000 };
    uint64_t *hashes = malloc(COUNT * sizeof *hashes);
    for (uint64_t i = 0; i < COUNT; i++)
        hashes[i] = brim__hash64(&i, sizeof i, 0);
    qsort(hashes, COUNT, sizeof *hashes, compare_u64);
    bool collision = false;
    for (int i = 1; i < COUNT; i++)
        collision |= hashes[i] == hashes[i - 1];
    free(hashes);
    assert_false(collision);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox4x32_10_gives_the_published_answers),
        cmocka_unit_test(a_random_number_is_a_function_of_its_coordinates),
        cmocka_unit_test(floats_are_uniform_in_the_unit_interval),
        cmocka_unit_test(bounded_numbers_meet_every_value_about_equally),
        cmocka_unit_test(equal_bytes_hash_equal_and_every_bit_counts),
        cmocka_unit_test(zero_bytes_at_the_end_change_the_hash),
        cmocka_unit_test(hashes_of_counting_numbers_do_not_collide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
