/* test_tile.c: tiles hold exactly what the file holds: every value of every type, at every place,
 * against dequantisation straight from the file's layout and against blocks worked out by hand. */
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

static const shape shapes[] = {{1, 256},   {16, 512},  {17, 256},   {33, 768},
                               {64, 1536}, {100, 256}, {130, 4096}, {48, 5120}};

static void assert_same_bits(const float *a, const float *b, uint32_t n, const char *what)
{
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, 4) != 0)
            fail_msg("%s: element %u is %a, expected %a", what, i, a[i], b[i]);
}

static void check_rows(const brim__tiling *t, const uint8_t *rows, const uint8_t *tiles)
{
    float *got = aligned_bytes(t->cols * sizeof(float));
    float *want = aligned_bytes(t->cols * sizeof(float));
    for (uint32_t r = 0; r < t->row_blocks * t->tile_rows; r++) {
        memset(want, 0, t->cols * sizeof(float));
        if (r < t->rows)
            brim__dequantize_row(want, t->type, rows + r * file_row_bytes(t->type, t->cols),
                                 t->cols);
        brim__tile_row(got, t, tiles, r);
        if (r < t->rows)
            assert_same_bits(got, want, t->cols, brim_dtype_name(t->type));
        else
            for (uint32_t c = 0; c < t->cols; c++)
                assert_true(got[c] == 0);
    }
    free(got);
    free(want);
}

static void tile_row_equals_dequantized_row_for_every_type(void **state)
{
    (void)state;
    draws d = {11, 0};
    for (int i = 0; i < ALL_TYPE_COUNT; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            brim__tiling t;
            assert_int_equal(brim__tiling_of(&t, all_types[i], shapes[s].rows, shapes[s].cols),
                             BRIM_OK);
            size_t row_bytes = file_row_bytes(t.type, t.cols);
            uint8_t *rows = aligned_bytes(t.rows * row_bytes), *tiles = aligned_bytes(t.bytes);
            draw_matrix(rows, t.type, t.rows, t.cols, &d, (data_kind)(s % 3));
            brim__tile_pack(tiles, &t, rows, 0, t.row_blocks);
            check_rows(&t, rows, tiles);
            free(rows);
            free(tiles);
        }
}

static void packing_in_pieces_equals_packing_at_once(void **state)
{
    (void)state;
    draws d = {12, 0};
    for (int i = 0; i < ALL_TYPE_COUNT; i++) {
        brim__tiling t;
        assert_int_equal(brim__tiling_of(&t, all_types[i], 150, 1024), BRIM_OK);
        uint8_t *rows = aligned_bytes(t.rows * file_row_bytes(t.type, t.cols));
        uint8_t *whole = aligned_bytes(t.bytes), *pieces = aligned_bytes(t.bytes);
        draw_matrix(rows, t.type, t.rows, t.cols, &d, DATA_GENTLE);
        brim__tile_pack(whole, &t, rows, 0, t.row_blocks);
        for (uint32_t b = t.row_blocks; b-- > 0;)
            brim__tile_pack(pieces + b * t.row_block_bytes, &t, rows, b, 1);
        assert_memory_equal(whole, pieces, t.bytes);
        free(rows);
        free(whole);
        free(pieces);
    }
}

static void tiles_keep_their_promised_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < ALL_TYPE_COUNT; i++)
        for (uint32_t rows = 1; rows < 5000; rows = rows * 2 + 3)
            for (uint32_t cols = 256; cols <= 16384; cols += 1280) {
                brim__tiling t;
                assert_int_equal(brim__tiling_of(&t, all_types[i], rows, cols), BRIM_OK);
                uint64_t tile =
                    (uint64_t)t.tile_rows / 16 * (t.tile_cols / t.cell_cols) * t.cell_bytes;
                assert_true(t.tile_rows % 16 == 0 && t.tile_cols % t.cell_cols == 0);
                assert_true(tile <= 32 << 10);
                assert_true(tile >= 8 << 10 || t.tile_rows >= rows);
                assert_true((uint64_t)t.row_blocks * t.tile_rows >= rows);
                assert_true((uint64_t)(t.row_blocks - 1) * t.tile_rows < rows);
                assert_true((uint64_t)t.col_blocks * t.tile_cols >= cols);
                assert_true((uint64_t)(t.col_blocks - 1) * t.tile_cols < cols);
                assert_true(t.bytes == t.row_blocks * t.row_block_bytes);
                assert_true(rows <= 16 || (tile % 64 == 0 && t.row_block_bytes % 64 == 0));
                assert_true(t.bytes < (1 + 1.0 / 8) * rows * file_row_bytes(t.type, cols) ||
                            rows < 8 * t.tile_rows);
            }
}

static void tiling_refuses_shapes_that_no_cell_fits(void **state)
{
    (void)state;
    static const struct {
        uint32_t type, rows, cols;
    } bad[] = {{BRIM_DTYPE_Q4_1, 0, 32},
               {BRIM_DTYPE_Q4_1, 4, 0},
               {BRIM_DTYPE_Q4_1, 4, 48},
               {BRIM_DTYPE_Q6_K, 4, 32},
               {BRIM_DTYPE_F32, 4, 31},
               {BRIM_DTYPE_Q4_K, 1, 384},
               {4, 32, 32},
               {0xffffffffu, 32, 32}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        brim__tiling t;
        assert_int_equal(brim__tiling_of(&t, (brim_dtype)bad[i].type, bad[i].rows, bad[i].cols),
                         BRIM_UNSUPPORTED);
        assert_string_equal(brim_last_id(), "tile.shape");
    }
}

/* ---- blocks worked out by hand from the formats' definitions ---- */

static void q4_block_values_are_those_of_the_format(void **state)
{
    (void)state;
    /* d = 0.5 (0x3800), m = -2 (0xc000); byte 0 = 0xf1: column 0 is 1, column 16 is 15. */
    uint8_t q4_0[18] = {0x00, 0x38, 0xf1, 0x80}, q4_1[20] = {0x00, 0x38, 0x00, 0xc0, 0xf1, 0x80};
    float out[32];
    brim__dequantize_row(out, BRIM_DTYPE_Q4_0, q4_0, 32);
    assert_true(out[0] == -3.5f && out[16] == 3.5f && out[1] == -4.0f && out[17] == 0.0f);
    assert_true(out[2] == -4.0f && out[31] == -4.0f);
    brim__dequantize_row(out, BRIM_DTYPE_Q4_1, q4_1, 32);
    assert_true(out[0] == -1.5f && out[16] == 5.5f && out[1] == -2.0f && out[17] == 2.0f);
}

static void q5_block_values_are_those_of_the_format(void **state)
{
    (void)state;
    /* Fifth bits 0x80000001: columns 0 and 31. */
    uint8_t q5_0[22] = {0x00, 0x3c, 0x01, 0, 0, 0x80, 0xf1}, q5_1[24] = {0x00, 0x3c, 0x00, 0x3c};
    memcpy(q5_1 + 4, q5_0 + 2, 5);
    q5_0[21] = 0x20; /* column 15 is 0, column 31 is 2 */
    float out[32];
    brim__dequantize_row(out, BRIM_DTYPE_Q5_0, q5_0, 32);
    assert_true(out[0] == 1.0f && out[16] == -1.0f && out[15] == -16.0f && out[31] == 2.0f);
    brim__dequantize_row(out, BRIM_DTYPE_Q5_1, q5_1, 32);
    assert_true(out[0] == 18.0f && out[16] == 16.0f && out[31] == 17.0f && out[1] == 1.0f);
}

static void q8_block_values_are_those_of_the_format(void **state)
{
    (void)state;
    uint8_t q8_0[34] = {0x00, 0xb4, 0x80, 0x7f, 0xff}; /* d = -0.25; -128, 127, -1 */
    float out[32];
    brim__dequantize_row(out, BRIM_DTYPE_Q8_0, q8_0, 32);
    assert_true(out[0] == 32.0f && out[1] == -31.75f && out[2] == 0.25f && out[3] == 0.0f);
}

static void k_block_values_are_those_of_the_format(void **state)
{
    (void)state;
    /* d = 1, dmin = 2. Sub-block 0: scale 5, minimum 3. Sub-block 5: scale 0x2a (low nibble of
     * byte 9 is 10, top two bits of byte 1 are 2), minimum 0x17 (high nibble 7, byte 5's top 1). */
    uint8_t q4_k[144] = {0x00, 0x3c, 0x00, 0x40, 5, 0x80, 0, 0, 3, 0x40, 0, 0, 0, 0x7a};
    q4_k[16] = 0x09;           /* column 0 is 9, column 32 is 0 */
    q4_k[16 + 64 + 31] = 0xc0; /* column 128 + 31 is 0, column 160 + 31 is 12 */
    float out[256];
    brim__dequantize_row(out, BRIM_DTYPE_Q4_K, q4_k, 256);
    assert_true(out[0] == 9 * 5 - 2 * 3 && out[1] == -6 && out[32] == 0);
    assert_true(out[191] == 12 * 42 - 2 * 23 && out[190] == -46);
    uint8_t q5_k[176] = {0};
    memcpy(q5_k, q4_k, 16);
    memcpy(q5_k + 48, q4_k + 16, 128);
    q5_k[16 + 0] = 1 << 0;  /* fifth bit of column 0 */
    q5_k[16 + 31] = 1 << 5; /* fifth bit of column 160 + 31 */
    brim__dequantize_row(out, BRIM_DTYPE_Q5_K, q5_k, 256);
    assert_true(out[0] == 25 * 5 - 6 && out[1] == -6 && out[191] == 28 * 42 - 46);
}

static void q6_block_values_are_those_of_the_format(void **state)
{
    (void)state;
    uint8_t q6_k[210] = {0};
    q6_k[209] = 0x3c; /* d = 1 */
    for (int i = 0; i < 16; i++)
        q6_k[192 + i] = (uint8_t)(i - 8);
    q6_k[0] = 0x5a;             /* columns 0 and 64 */
    q6_k[128] = 0xe4;           /* columns 0, 32, 64, 96: 0, 1, 2, 3 */
    q6_k[64 + 63] = 0x30;       /* columns 128 + 63 and 128 + 127 */
    q6_k[128 + 32 + 31] = 0x80; /* column 128 + 127: 2 */
    float out[256];
    brim__dequantize_row(out, BRIM_DTYPE_Q6_K, q6_k, 256);
    assert_true(out[0] == (0x0a - 32) * -8 && out[64] == (0x25 - 32) * -4);
    assert_true(out[32] == (0x10 - 32) * -6 && out[96] == (0x30 - 32) * -2);
    assert_true(out[255] == (0x23 - 32) * 7 && out[191] == (0 - 32) * 3);
}

static void float_formats_convert_as_ieee_says(void **state)
{
    (void)state;
    assert_true(brim__f16_to_f32(0x0001) == 0x1p-24f && brim__f16_to_f32(0x7bff) == 65504.0f);
    assert_true(brim__f16_to_f32(0x8400) == -0x1p-14f && brim__f16_to_f32(0x3555) == 0x1.554p-2f);
    assert_true(isinf(brim__f16_to_f32(0xfc00)) && isnan(brim__f16_to_f32(0x7c01)));
    assert_int_equal(brim__f32_to_f16(1 + 0x1p-11f), 0x3c00); /* a tie goes to even */
    assert_int_equal(brim__f32_to_f16(1 + 0x3p-11f), 0x3c02);
    assert_int_equal(brim__f32_to_f16(1 + 0x1.002p-11f), 0x3c01);
    assert_int_equal(brim__f32_to_f16(0x1p-25f), 0x0000); /* half the least denormal */
    assert_int_equal(brim__f32_to_f16(0x1.8p-25f), 0x0001);
    assert_int_equal(brim__f32_to_f16(-0x1.ffcp-15f), 0x8400 - 1 + 1); /* rounds up to normal */
    assert_int_equal(brim__f32_to_f16(65520.0f), 0x7bff);              /* not infinity */
    assert_int_equal(brim__f32_to_f16(-INFINITY), 0xfbff);
    for (uint32_t h = 0; h < 0x10000; h++)
        if ((h >> 10 & 31) != 31)
            assert_int_equal(brim__f32_to_f16(brim__f16_to_f32((uint16_t)h)), h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tile_row_equals_dequantized_row_for_every_type),
        cmocka_unit_test(packing_in_pieces_equals_packing_at_once),
        cmocka_unit_test(tiles_keep_their_promised_sizes),
        cmocka_unit_test(tiling_refuses_shapes_that_no_cell_fits),
        cmocka_unit_test(q4_block_values_are_those_of_the_format),
        cmocka_unit_test(q5_block_values_are_those_of_the_format),
        cmocka_unit_test(q8_block_values_are_those_of_the_format),
        cmocka_unit_test(k_block_values_are_those_of_the_format),
        cmocka_unit_test(q6_block_values_are_those_of_the_format),
        cmocka_unit_test(float_formats_convert_as_ieee_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
