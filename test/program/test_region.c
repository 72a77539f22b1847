/* Regions against the plain definition: bytes in a small array. */
#include "mix_program.h"

#include "program/region.h"

enum { SPACE = 256 };

static uint64_t draw(uint64_t *n, uint64_t bound)
{
    return brim__random_below(7, 1, (*n)++, bound);
}

static brim__region random_region(uint64_t *n)
{
    for (;;) {
        brim__region r = {draw(n, 40), 1 + draw(n, 12), 0, 1 + draw(n, 8)};
        r.stride = r.size + draw(n, 14);
        if (r.count == 1)
            r.stride = r.size;
        if (brim__region_end(&r) <= SPACE)
            return r;
    }
}

static void paint(bool *bytes, const brim__region *r)
{
    for (uint64_t i = 0; i < r->count; i++)
        memset(bytes + r->offset + i * r->stride, 1, r->size);
}

static void region_overlap_is_that_of_the_bytes(void **state)
{
    uint64_t n = 0;
    unsigned overlapping = 0;
    for (int round = 0; round < 20000; round++) {
        brim__region a = random_region(&n), b = random_region(&n);
        if (round & 1 && a.count > 1 && b.count > 1)
            b.stride = a.stride >= b.size ? a.stride : b.stride; /* the case of equal strides */
        if (brim__region_end(&b) > SPACE)
            continue;
        bool in_a[SPACE] = {0}, in_b[SPACE] = {0}, common = false;
        paint(in_a, &a);
        paint(in_b, &b);
        for (int i = 0; i < SPACE; i++)
            common |= in_a[i] && in_b[i];
        assert_int_equal(brim__regions_overlap(&a, &b), common);
        overlapping += common;
    }
    assert_true(overlapping > 2000 && overlapping < 18000);
}

static void region_overlap_of_huge_regions_is_conservative(void **state)
{
    /* Even and odd words of 2^40 bytes: apart; the same words shifted by one byte: touching. */
    brim__region even = {0, 4, 8, (uint64_t)1 << 37}, odd = {4, 4, 8, ((uint64_t)1 << 37) - 1};
    assert_false(brim__regions_overlap(&even, &odd));
    odd.offset = 3;
    assert_true(brim__regions_overlap(&even, &odd));
    /* Different strides, many runs: the common divisor tells these apart ... */
    brim__region a = {0, 2, 12, (uint64_t)1 << 30}, b = {3, 3, 18, (uint64_t)1 << 30};
    assert_false(brim__regions_overlap(&a, &b));
    /* ... and says nothing of these. */
    b = (brim__region){3, 3, 19, (uint64_t)1 << 30};
    assert_true(brim__regions_overlap(&a, &b));
}

static bool run_happens(const brim__part *part, uint64_t run, const uint32_t *words)
{
    if (part->condition.buffer == BRIM_NONE)
        return true;
    return part->condition.first + run * part->condition.step < words[part->condition.buffer];
}

static void paint_part(bool *bytes, const brim__part *part, const uint32_t *words)
{
    for (uint64_t i = 0; i < part->region.count; i++)
        if (run_happens(part, i, words))
            memset(bytes + part->region.offset + i * part->region.stride, 1, part->region.size);
}

static brim__condition random_condition(uint64_t *n)
{
    brim__condition c = {.buffer = BRIM_NONE};
    if (draw(n, 2))
        c = (brim__condition){(uint32_t)draw(n, 2), 0, (uint32_t)draw(n, 4),
                              1 + (uint32_t)draw(n, 3)};
    return c;
}

/* Covered means: for all values of the two count words. 16 is more than any run needs. */
static bool covered_by_definition(const brim__part *read, const brim__part *writes, size_t count)
{
    for (uint32_t n = 0; n < 32 * 32; n++) {
        uint32_t words[2] = {n % 32, n / 32};
        bool read_bytes[SPACE] = {0}, written[SPACE] = {0};
        paint_part(read_bytes, read, words);
        for (size_t i = 0; i < count; i++)
            paint_part(written, &writes[i], words);
        for (int i = 0; i < SPACE; i++)
            if (read_bytes[i] && !written[i])
                return false;
    }
    return true;
}

/* Writes that often cover: the read's own runs, whole or cut in columns. */
static brim__part likely_part(const brim__part *read, uint64_t *n)
{
    brim__part w = *read;
    switch (draw(n, 4)) {
    case 0:
        break;
    case 1:
        w.region.size = 1 + draw(n, w.region.size);
        break;
    case 2: {
        uint64_t skip = draw(n, w.region.size);
        w.region.offset += skip;
        w.region.size -= skip;
        break;
    }
    default:
        w.region = random_region(n);
    }
    if (draw(n, 3) == 0)
        w.condition = random_condition(n);
    return w;
}

static void region_cover_is_that_of_the_bytes(void **state)
{
    brim_context *ctx = NULL;
    assert_int_equal(brim_context_create(&ctx, NULL), BRIM_OK);
    uint64_t n = 1 << 20;
    unsigned covered = 0, missed = 0, total = 0;
    for (int round = 0; round < 3000; round++) {
        brim__part read = {random_region(&n), random_condition(&n)}, writes[6];
        size_t count = draw(&n, 7);
        for (size_t i = 0; i < count; i++)
            writes[i] = likely_part(&read, &n);
        brim__cover_result result;
        uint64_t missing = 0;
        assert_int_equal(brim__cover(&result, &missing, ctx, &read, writes, count), BRIM_OK);
        bool wanted = covered_by_definition(&read, writes, count);
        assert_int_not_equal(result, BRIM__COVER_UNKNOWN);
        if (result == BRIM__COVERED)
            assert_true(wanted);
        covered += result == BRIM__COVERED;
        missed += wanted && result != BRIM__COVERED;
        total += wanted;
    }
    print_message("%u of %u covered reads are found\n", covered, total);
    assert_true(covered > 300);
    /* It asks for one write, for each row, that happens whenever the row is read; that two writes
     * take turns by count words is not seen. */
    assert_true(missed * 50 < total);
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
}

static void region_cover_of_many_rows_is_quick(void **state)
{
    brim_context *ctx = NULL;
    assert_int_equal(brim_context_create(&ctx, NULL), BRIM_OK);
    enum { ROWS = 4096, COLUMNS = 512, WIDTH = 64 };
    static brim__part writes[COLUMNS];
    brim__condition by_rows = {0, 4, 0, 1};
    for (uint64_t i = 0; i < COLUMNS; i++)
        writes[i] = (brim__part){{i * WIDTH, WIDTH, COLUMNS * WIDTH, ROWS}, by_rows};
    brim__part read = {{0, COLUMNS * WIDTH, COLUMNS * WIDTH, ROWS}, by_rows};
    brim__cover_result result;
    uint64_t missing = 0;
    assert_int_equal(brim__cover(&result, &missing, ctx, &read, writes, COLUMNS), BRIM_OK);
    assert_int_equal(result, BRIM__COVERED);
    writes[77].region.count--;
    assert_int_equal(brim__cover(&result, &missing, ctx, &read, writes, COLUMNS), BRIM_OK);
    assert_int_equal(result, BRIM__NOT_COVERED);
    assert_int_equal(missing, (uint64_t)(ROWS - 1) * COLUMNS * WIDTH + 77 * WIDTH);
    brim_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(region_overlap_is_that_of_the_bytes),
        cmocka_unit_test(region_overlap_of_huge_regions_is_conservative),
        cmocka_unit_test(region_cover_is_that_of_the_bytes),
        cmocka_unit_test(region_cover_of_many_rows_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
