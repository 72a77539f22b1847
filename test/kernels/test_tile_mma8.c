/* test_tile_mma8.c: tiles of 8 rows hold the file's rows, element by element at the place that the
 * formula of kernels.h gives, and conversions to 16-bit floats are IEEE's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

#include "kernel_data.h"
#include "kernels/cells.h"

typedef struct shape {
    uint32_t rows, cols;
} shape;

static const shape shapes[] = {{1, 32}, {8, 64}, {13, 96}, {24, 576}, {7, 2112}, {65, 256}};
static const brim_dtype halves[] = {BRIM_DTYPE_F16, BRIM_DTYPE_BF16};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Element (row, col) of a packed matrix. */
static uint16_t element(const uint8_t *tiles, uint32_t cols, uint32_t row, uint32_t col)
{
    size_t index = (size_t)(row / 8) * 8 * cols + col / 32 * 256 + row % 8 * 32 + col % 32;
    return brim__load_u16(tiles + 2 * index);
}

static brim__mma8_matrix one_source(const void *rows, brim_dtype type, uint32_t count)
{
    return (brim__mma8_matrix){.sources = {{rows, type, count}}, .source_count = 1};
}

/* The value of a half, from the formats' definitions. */
static double half_value(brim_dtype type, uint16_t h)
{
    int mantissa_bits = type == BRIM_DTYPE_F16 ? 10 : 7, exponent_bits = 15 - mantissa_bits;
    int bias = (1 << (exponent_bits - 1)) - 1,
        exponent = h >> mantissa_bits & ((1 << exponent_bits) - 1);
    int mantissa = h & ((1 << mantissa_bits) - 1);
    double sign = h >> 15 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

/* The half nearest to a finite x, ties to the even one; overflow as if the format had one more
 * exponent, then to infinity. By bisection over the magnitudes, which are ordered as their bits. */
static uint16_t nearest_half(brim_dtype type, double x)
{
    uint16_t top = type == BRIM_DTYPE_F16 ? 0x7c00 : 0x7f80, low = 0, high = top;
    double a = fabs(x), beyond = 2 * half_value(type, top - 1) - half_value(type, top - 2);
    while (low + 1 < high) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (half_value(type, middle) <= a)
            low = middle;
        else
            high = middle;
    }
    double under = a - half_value(type, low);
    double over = (high == top ? beyond : half_value(type, high)) - a;
    uint16_t best = under < over ? low : over < under ? high : low % 2 ? high : low;
    return (uint16_t)(best | (signbit(x) ? 0x8000 : 0));
}

static void elements_stand_where_the_formula_says(void **state)
{
    (void)state;
    draws d = {21, 0};
    for (size_t n = 0; n < 2 * SHAPES; n++) {
        brim_dtype type = halves[n % 2];
        shape s = shapes[n / 2];
        brim__tiling t;
        assert_int_equal(brim__tiling_mma8(&t, type, s.rows, s.cols), BRIM_OK);
        uint16_t *rows = aligned_bytes(2 * (size_t)s.rows * s.cols);
        uint8_t *tiles = aligned_bytes(t.bytes);
        for (size_t i = 0; i < (size_t)s.rows * s.cols; i++)
            rows[i] = (uint16_t)draw(&d); /* every pattern, NaNs too */
        brim__mma8_matrix m = one_source(rows, type, s.rows);
        assert_int_equal(brim__tile_mma8_pack(tiles, &t, &m, 0, t.row_blocks, NULL, "w"), BRIM_OK);
        for (uint32_t r = 0; r < t.row_blocks * 8; r++)
            for (uint32_t c = 0; c < s.cols; c++)
                assert_int_equal(element(tiles, s.cols, r, c),
                                 r < s.rows ? rows[(size_t)r * s.cols + c] : 0);
        free(rows);
        free(tiles);
    }
}

static void rows_read_back_are_the_values(void **state)
{
    (void)state;
    draws d = {22, 0};
    for (size_t n = 0; n < 2 * SHAPES; n++) {
        brim_dtype type = halves[n % 2];
        shape s = shapes[n / 2];
        brim__tiling t;
        assert_int_equal(brim__tiling_mma8(&t, type, s.rows, s.cols), BRIM_OK);
        uint8_t *rows = aligned_bytes(2 * (size_t)s.rows * s.cols), *tiles = aligned_bytes(t.bytes);
        float *got = aligned_bytes(4 * s.cols), *want = aligned_bytes(4 * s.cols);
        draw_matrix(rows, type, s.rows, s.cols, &d, DATA_WILD);
        brim__mma8_matrix m = one_source(rows, type, s.rows);
        assert_int_equal(brim__tile_mma8_pack(tiles, &t, &m, 0, t.row_blocks, NULL, "w"), BRIM_OK);
        for (uint32_t r = 0; r < s.rows; r++) {
            brim__tile_mma8_row(got, &t, tiles, r);
            brim__dequantize_row(want, type, rows + 2 * (size_t)r * s.cols, s.cols);
            assert_memory_equal(got, want, 4 * s.cols);
        }
        free(rows);
        free(tiles);
        free(got);
        free(want);
    }
}

static void other_types_are_rounded_once(void **state)
{
    (void)state;
    draws d = {23, 0};
    enum { ROWS = 11, COLS = 512 };
    float *x = aligned_bytes(4 * COLS), *scratch = aligned_bytes(4 * COLS);
    for (int i = 0; i < ALL_TYPE_COUNT; i++)
        for (int k = 0; k < 2; k++) {
            brim__tiling t;
            assert_int_equal(brim__tiling_mma8(&t, halves[k], ROWS, COLS), BRIM_OK);
            size_t row_bytes = file_row_bytes(all_types[i], COLS);
            uint8_t *rows = aligned_bytes(ROWS * row_bytes), *tiles = aligned_bytes(t.bytes);
            draw_matrix(rows, all_types[i], ROWS, COLS, &d, DATA_GENTLE);
            brim__mma8_matrix m = one_source(rows, all_types[i], ROWS);
            assert_int_equal(brim__tile_mma8_pack(tiles, &t, &m, 0, t.row_blocks, scratch, "w"),
                             BRIM_OK);
            for (uint32_t r = 0; r < ROWS; r++) {
                brim__dequantize_row(x, all_types[i], rows + r * row_bytes, COLS);
                for (uint32_t c = 0; c < COLS; c++)
                    assert_int_equal(element(tiles, COLS, r, c), nearest_half(halves[k], x[c]));
            }
            free(rows);
            free(tiles);
        }
    free(x);
    free(scratch);
}

/* Three sources after one another, of which one has another type, and two row by row. */
static void fused_matrices_have_their_sources_rows(void **state)
{
    (void)state;
    draws d = {24, 0};
    enum { COLS = 96, Q = 13, K = 3, V = 5 };
    uint16_t q[Q * COLS], v[V * COLS];
    float k[K * COLS], scratch[COLS];
    draw_matrix((uint8_t *)q, BRIM_DTYPE_BF16, Q, COLS, &d, DATA_GENTLE);
    draw_matrix((uint8_t *)v, BRIM_DTYPE_BF16, V, COLS, &d, DATA_GENTLE);
    draw_floats(k, K * COLS, &d, DATA_GENTLE);
    brim__tiling t;
    assert_int_equal(brim__tiling_mma8(&t, BRIM_DTYPE_BF16, Q + K + V, COLS), BRIM_OK);
    uint8_t *tiles = aligned_bytes(t.bytes);
    brim__mma8_matrix m = {
        .sources = {{q, BRIM_DTYPE_BF16, Q}, {k, BRIM_DTYPE_F32, K}, {v, BRIM_DTYPE_BF16, V}},
        .source_count = 3};
    assert_int_equal(brim__tile_mma8_pack(tiles, &t, &m, 0, t.row_blocks, scratch, "qkv"), BRIM_OK);
    for (uint32_t c = 0; c < COLS; c++) {
        for (uint32_t r = 0; r < Q; r++)
            assert_int_equal(element(tiles, COLS, r, c), q[r * COLS + c]);
        for (uint32_t r = 0; r < K; r++)
            assert_int_equal(element(tiles, COLS, Q + r, c),
                             nearest_half(BRIM_DTYPE_BF16, k[r * COLS + c]));
        for (uint32_t r = 0; r < V; r++)
            assert_int_equal(element(tiles, COLS, Q + K + r, c), v[r * COLS + c]);
    }
    brim__mma8_matrix pair = {
        .sources = {{q, BRIM_DTYPE_BF16, V}, {v, BRIM_DTYPE_BF16, V}},
        .source_count = 2,
        .interleaved = true,
    };
    assert_int_equal(brim__tiling_mma8(&t, BRIM_DTYPE_BF16, 2 * V, COLS), BRIM_OK);
    assert_int_equal(brim__tile_mma8_pack(tiles, &t, &pair, 0, t.row_blocks, NULL, "gate_up"),
                     BRIM_OK);
    for (uint32_t r = 0; r < V; r++)
        for (uint32_t c = 0; c < COLS; c++) {
            assert_int_equal(element(tiles, COLS, 2 * r, c), q[r * COLS + c]);
            assert_int_equal(element(tiles, COLS, 2 * r + 1, c), v[r * COLS + c]);
        }
    free(tiles);
}

static void packing_in_pieces_equals_packing_at_once(void **state)
{
    (void)state;
    draws d = {25, 0};
    enum { ROWS = 61, COLS = 288 };
    static const brim_dtype from[] = {BRIM_DTYPE_F16, BRIM_DTYPE_Q8_0};
    float scratch[COLS];
    for (int i = 0; i < 2; i++) {
        brim__tiling t;
        assert_int_equal(brim__tiling_mma8(&t, BRIM_DTYPE_F16, ROWS, COLS), BRIM_OK);
        uint8_t *rows = aligned_bytes(ROWS * file_row_bytes(from[i], COLS));
        uint8_t *whole = aligned_bytes(t.bytes), *pieces = aligned_bytes(t.bytes);
        draw_matrix(rows, from[i], ROWS, COLS, &d, DATA_GENTLE);
        brim__mma8_matrix m = one_source(rows, from[i], ROWS);
        assert_int_equal(brim__tile_mma8_pack(whole, &t, &m, 0, t.row_blocks, scratch, "w"),
                         BRIM_OK);
        for (uint32_t b = t.row_blocks; b-- > 0;)
            assert_int_equal(
                brim__tile_mma8_pack(pieces + b * t.row_block_bytes, &t, &m, b, 1, scratch, "w"),
                BRIM_OK);
        assert_memory_equal(whole, pieces, t.bytes);
        free(rows);
        free(whole);
        free(pieces);
    }
}

static void a_value_beyond_the_range_is_refused_by_name(void **state)
{
    (void)state;
    enum { COLS = 64 };
    float rows[2 * COLS] = {0}, scratch[COLS];
    uint8_t tiles[16 * COLS];
    brim__mma8_matrix m = one_source(rows, BRIM_DTYPE_F32, 2);
    brim__tiling t;
    assert_int_equal(brim__tiling_mma8(&t, BRIM_DTYPE_F16, 2, COLS), BRIM_OK);
    rows[COLS + 40] = 65519.0f; /* rounds to 65504 */
    rows[3] = -INFINITY;        /* as it is */
    rows[4] = NAN;
    assert_int_equal(brim__tile_mma8_pack(tiles, &t, &m, 0, 1, scratch, "blk.3.down"), BRIM_OK);
    assert_int_equal(element(tiles, COLS, 1, 40), 0x7bff);
    assert_int_equal(element(tiles, COLS, 0, 3), 0xfc00);
    assert_int_equal(element(tiles, COLS, 0, 4), 0x7fff);
    rows[COLS + 40] = -65520.0f;
    assert_int_equal(brim__tile_mma8_pack(tiles, &t, &m, 0, 1, scratch, "blk.3.down"),
                     BRIM_UNSUPPORTED);
    assert_string_equal(brim_last_id(), "tile.range");
    assert_non_null(strstr(brim_last_message(), "blk.3.down"));
    assert_non_null(strstr(brim_last_message(), "row 1"));
    assert_non_null(strstr(brim_last_message(), "-65520"));
    assert_int_equal(brim__tiling_mma8(&t, BRIM_DTYPE_BF16, 2, COLS), BRIM_OK);
    assert_int_equal(brim__tile_mma8_pack(tiles, &t, &m, 0, 1, scratch, "w"), BRIM_OK);
    rows[7] = 3.4e38f; /* finite, nearer to 2^128 than to the largest bf16 */
    assert_int_equal(brim__tile_mma8_pack(tiles, &t, &m, 0, 1, scratch, "w"), BRIM_UNSUPPORTED);
}

static void sources_that_do_not_make_the_matrix_are_refused(void **state)
{
    (void)state;
    uint8_t rows[2 * 16 * 32] = {0}, tiles[1024];
    brim__tiling t;
    assert_int_equal(brim__tiling_mma8(&t, BRIM_DTYPE_F16, 16, 32), BRIM_OK);
    const brim__mma8_source f16 = {rows, BRIM_DTYPE_F16, 8}, short_one = {rows, BRIM_DTYPE_F16, 7},
                            k = {rows, BRIM_DTYPE_Q4_K, 8}, none = {rows, (brim_dtype)4, 8};
    const brim__mma8_matrix bad[] = {
        {.sources = {f16}, .source_count = 1},
        {.sources = {f16, short_one}, .source_count = 2},
        {.sources = {f16, k}, .source_count = 2}, /* blocks of 256 columns */
        {.sources = {f16, none}, .source_count = 2},
        {.sources = {f16, f16, f16}, .source_count = 3, .interleaved = true},
        {.source_count = 0},
        {.source_count = 4},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(brim__tile_mma8_pack(tiles, &t, &bad[i], 0, 2, NULL, "w"), BRIM_USAGE);
        assert_string_equal(brim_last_id(), "tile.sources");
    }
}

static void tiling_refuses_what_a_matrix_unit_cannot_take(void **state)
{
    (void)state;
    static const struct {
        uint32_t type, rows, cols;
    } bad[] = {{BRIM_DTYPE_F16, 0, 32},  {BRIM_DTYPE_F16, 8, 0},         {BRIM_DTYPE_BF16, 8, 48},
               {BRIM_DTYPE_F32, 8, 32},  {BRIM_DTYPE_Q8_0, 8, 32},       {0xffffffffu, 8, 32},
               {BRIM_DTYPE_BF16, 8, 16}, {BRIM_DTYPE_F16, 8, 32 * 3 + 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        brim__tiling t;
        assert_int_equal(brim__tiling_mma8(&t, (brim_dtype)bad[i].type, bad[i].rows, bad[i].cols),
                         BRIM_UNSUPPORTED);
        assert_string_equal(brim_last_id(), "tile.shape");
    }
    brim__tiling t;
    assert_int_equal(brim__tiling_mma8(&t, BRIM_DTYPE_BF16, 4294967295u, 1 << 20), BRIM_OK);
    assert_true(t.bytes == ((uint64_t)1 << 29) * 16 * (1 << 20)); /* nothing overflows */
}

static void halves_widen_exactly_and_come_back(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++)
        for (uint32_t h = 0; h < 0x10000; h++) {
            uint16_t half = (uint16_t)h, back;
            float x;
            brim__halves_widen(&x, halves[k], &half, 1);
            double want = half_value(halves[k], half);
            assert_true(isnan(want) ? isnan(x) : x == want && !signbit(x) == !signbit(want));
            brim__halves_round(&back, halves[k], &x, 1);
            assert_int_equal(back, isnan(want) ? 0x7fff : half);
        }
}

static void floats_round_to_the_nearest_half(void **state)
{
    (void)state;
    draws d = {26, 0};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 200000; i++) {
            uint32_t bits = (uint32_t)draw(&d);
            if (i % 2) /* a tie, or next to one */
                bits = (bits & 0xffff0000u) + (halves[k] == BRIM_DTYPE_BF16 ? 0x8000u : 0x1000u) +
                       draw_below(&d, 3) - 1;
            if (halves[k] == BRIM_DTYPE_F16 && i % 4) /* 2^-27 .. 2^17 */
                bits = (bits & 0x807fffffu) | (100 + draw_below(&d, 45)) << 23;
            float x = brim__float_of(bits);
            uint16_t got;
            brim__halves_round(&got, halves[k], &x, 1);
            if (isnan(x))
                assert_int_equal(got, 0x7fff);
            else if (!isinf(x))
                assert_int_equal(got, nearest_half(halves[k], x));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_stand_where_the_formula_says),
        cmocka_unit_test(rows_read_back_are_the_values),
        cmocka_unit_test(other_types_are_rounded_once),
        cmocka_unit_test(fused_matrices_have_their_sources_rows),
        cmocka_unit_test(packing_in_pieces_equals_packing_at_once),
        cmocka_unit_test(a_value_beyond_the_range_is_refused_by_name),
        cmocka_unit_test(sources_that_do_not_make_the_matrix_are_refused),
        cmocka_unit_test(tiling_refuses_what_a_matrix_unit_cannot_take),
        cmocka_unit_test(halves_widen_exactly_and_come_back),
        cmocka_unit_test(floats_round_to_the_nearest_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
