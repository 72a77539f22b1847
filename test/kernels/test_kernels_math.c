/* test_kernels_math.c: the reference bodies against mathematics: float64 within bounds derived from
 * the order of operations that kernels.h gives, libm, and sums written out by hand. The vectorised
 * bodies equal the reference to the bit (test_kernels.c), so what holds here holds for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

#include "base/hash.h"
#include "kernel_data.h"
#include "kernels/cells.h"

static const double u = 0x1p-24; /* unit roundoff of binary32 */

static const brim__kernels *ref(void)
{
    return brim__kernels_get(BRIM_ISA_SCALAR);
}

/* ---- exp ---- */

static double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    double ulp = ldexp(1.0, exponent - 24);
    return fabs((double)got - want) / (ulp < 0x1p-149 ? 0x1p-149 : ulp);
}

static void exp_is_within_two_ulp_of_libm(void **state)
{
    (void)state;
    enum { N = 1 << 12 };
    float x[N], y[N];
    double worst = 0;
    for (int part = 0; part < 1 << 9; part++) { /* 2 million steps over -104 .. 88.7228 */
        for (int i = 0; i < N; i++) {
            x[i] = -104.0f + (float)(part * N + i) * (192.7228f / (float)((1 << 9) * N));
            x[i] = x[i] > 88.7228317f ? 88.7228317f : x[i];
        }
        ref()->exp(y, x, N);
        for (int i = 0; i < N; i++) {
            double error = ulps(y[i], exp((double)x[i]));
            worst = error > worst ? error : worst;
        }
    }
    print_message("largest error of exp: %.3f ulp\n", worst);
    assert_true(worst < 2);
}

static void exp_keeps_to_its_extremes(void **state)
{
    (void)state;
    const float x[] = {0.0f, -0.0f, INFINITY, 1000.0f, -104.0f, -INFINITY, -103.9f, 0x1p-149f, NAN};
    float y[9];
    ref()->exp(y, x, 9);
    assert_true(y[0] == 1 && y[1] == 1 && y[7] == 1);
    assert_true(isfinite(y[2]) && y[2] == y[3] && y[2] > 3.4e38f);
    assert_true(y[4] >= 0 && y[4] <= 0x1p-149f && y[5] == y[4]);
    assert_true(y[6] == 0x1p-149f);
    assert_true(isnan(y[8]));
}

/* ---- rounding of activations ---- */

static void check_quantized(const brim__q16 *b, const float *x)
{
    float amax = 0;
    int32_t sum[2] = {0, 0};
    for (int i = 0; i < 32; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    for (int i = 0; i < 32; i++) {
        int q = 256 * b->hi[i] + b->lo[i];
        assert_true(q >= -32512 && q <= 32512);
        sum[i / 16] += q;
        /* Half a step, plus the roundings of 32512 / amax and of the product: 2u * 32512 steps. */
        double error = fabs((double)x[i] - (double)b->scale * q);
        assert_true(error <= (double)b->scale * (0.5 + 6 * u * 32512));
        if (fabsf(x[i]) == amax)
            assert_true(q == 32512 || q == -32512);
    }
    assert_true(b->scale == amax / 32512.0f);
    assert_true(sum[0] == b->sum[0] && sum[1] == b->sum[1]);
    assert_true(b->scaled_sum == b->scale * (float)(sum[0] + sum[1]));
}

static void quantize_stays_within_half_a_step(void **state)
{
    (void)state;
    draws d = {21, 0};
    float x[32];
    brim__q16 b;
    for (int round = 0; round < 2000; round++) {
        float magnitude = ldexpf(1.0f, (int)draw_below(&d, 200) - 90);
        for (int i = 0; i < 32; i++)
            x[i] = draw_unit(&d) * magnitude * (draw_below(&d, 3) ? 1.0f : 0x1p-9f);
        ref()->quantize(&b, x, 32);
        check_quantized(&b, x);
    }
    memset(x, 0, sizeof x);
    ref()->quantize(&b, x, 32);
    assert_true(b.scale == 0 && b.scaled_sum == 0 && b.sum[0] == 0 && b.hi[3] == 0 && b.lo[3] == 0);
}

static void a_block_that_is_not_finite_makes_its_products_nan(void **state)
{
    (void)state;
    float x[64] = {0}, out[16];
    brim__q16 b[2];
    x[40] = INFINITY;
    ref()->quantize(b, x, 64);
    assert_true(b[0].scale == 0 && isnan(b[1].scale) && b[1].hi[8] == 0 && b[1].lo[8] == 0);
    uint8_t row[36] = {0}, tile[2 * 288];
    brim__tiling t;
    assert_int_equal(brim__tiling_of(&t, BRIM_DTYPE_Q4_0, 1, 64), BRIM_OK);
    brim__tile_pack(tile, &t, row, 0, 1);
    ref()->matmul[BRIM__ACT_Q16][BRIM_DTYPE_Q4_0](out, 16, &t, tile, 1, b, 192, 1);
    assert_true(isnan(out[0]) && isnan(out[15]));
}

/* ---- matrix products against float64 ---- */

/* Where the numbers of a block begin and end: what is left with them at zero is its offset. */
static void zero_numbers(uint8_t *row, brim_dtype type, uint32_t cols)
{
    uint32_t bytes = brim_dtype_block_bytes(type), from = 2, to = bytes;
    if (type == BRIM_DTYPE_Q4_1 || type == BRIM_DTYPE_Q5_1)
        from = 4;
    else if (type == BRIM_DTYPE_Q4_K || type == BRIM_DTYPE_Q5_K)
        from = 16;
    else if (type == BRIM_DTYPE_Q6_K)
        from = 0, to = 192;
    for (uint32_t i = 0; i < cols / brim_dtype_block(type); i++)
        memset(row + i * bytes + from, 0, to - from);
}

static void check_product(brim_dtype type, brim__act act, uint32_t cols, draws *d)
{
    enum { ROWS = 20 };
    size_t row_bytes = file_row_bytes(type, cols);
    brim__tiling t;
    assert_int_equal(brim__tiling_of(&t, type, ROWS, cols), BRIM_OK);
    uint8_t *rows = aligned_bytes(ROWS * row_bytes), *tiles = aligned_bytes(t.bytes);
    float *w = aligned_bytes(cols * sizeof *w), *w0 = aligned_bytes(cols * sizeof *w0);
    float *x = aligned_bytes(cols * sizeof *x), out[64];
    void *acts = aligned_bytes(brim__act_row_bytes(act, cols));
    draw_matrix(rows, type, ROWS, cols, d, DATA_GENTLE);
    draw_floats(x, cols, d, DATA_GENTLE);
    brim__tile_pack(tiles, &t, rows, 0, t.row_blocks);
    memcpy(acts, x, act == BRIM__ACT_F32 ? cols * sizeof *x : 0);
    if (act == BRIM__ACT_Q16)
        ref()->quantize(acts, x, cols);
    ref()->matmul[act][type](out, 64, &t, tiles, t.row_blocks, acts, 0, 1);
    for (uint32_t r = 0; r < ROWS; r++) {
        brim__dequantize_row(w, type, rows + r * row_bytes, cols);
        if (brim_dtype_block(type) > 1)
            zero_numbers(rows + r * row_bytes, type, cols);
        brim__dequantize_row(w0, type, rows + r * row_bytes, cols);
        double want = 0, terms = 0;
        for (uint32_t c = 0; c < cols; c++) {
            const brim__q16 *b = (const brim__q16 *)acts + c / 32;
            double value = act == BRIM__ACT_F32
                               ? (double)x[c]
                               : (double)b->scale * (256 * b->hi[c % 32] + b->lo[c % 32]);
            want += (double)w[c] * value;
            terms += (fabs((double)w[c]) + 2 * fabs((double)w0[c])) * fabs(value);
        }
        /* The chain has a rounding a column, or at most two a block of 32; each term of it has had
         * four roundings at most. */
        double roundings = 5 + (act == BRIM__ACT_F32 ? cols : 2 * (cols / 32));
        assert_true(fabs((double)out[r] - want) <= roundings * u * terms * 1.001);
    }
    free(rows), free(tiles), free(w), free(w0), free(x), free(acts);
}

static void products_are_within_the_derived_bound_of_float64(void **state)
{
    (void)state;
    draws d = {22, 0};
    for (int act = 0; act < BRIM__ACT_COUNT; act++)
        for (int i = 0; i < ALL_TYPE_COUNT; i++)
            for (uint32_t cols = 256; cols <= 4096 && ref()->matmul[act][all_types[i]]; cols *= 4)
                check_product(all_types[i], (brim__act)act, cols, &d);
}

/* ---- the tree of sum16, written out ---- */

static void rms_norm_sums_in_the_order_of_sum16(void **state)
{
    (void)state;
    draws d = {23, 0};
    for (int round = 0; round < 200; round++) {
        float x[48], y[48], w[48], p[16];
        for (int i = 0; i < 48; i++)
            x[i] = draw_f32(&d, DATA_GENTLE) * (i % 5 ? 1.0f : 1000.0f), w[i] = draw_unit(&d);
        for (int j = 0; j < 16; j++)
            p[j] = fmaf(x[j + 32], x[j + 32], fmaf(x[j + 16], x[j + 16], x[j] * x[j]));
        float even = ((p[0] + p[8]) + (p[4] + p[12])) + ((p[2] + p[10]) + (p[6] + p[14]));
        float odd = ((p[1] + p[9]) + (p[5] + p[13])) + ((p[3] + p[11]) + (p[7] + p[15]));
        float r = 1.0f / sqrtf((even + odd) / 48.0f + 1e-5f);
        ref()->rms_norm(y, x, w, 48, 1e-5f);
        for (int i = 0; i < 48; i++)
            assert_true(y[i] == (x[i] * r) * w[i]);
    }
}

static void rope_turns_pairs_by_their_angle(void **state)
{
    (void)state;
    /* 90 degrees, 180 degrees: exact. */
    const float cos_sin[4] = {0, -1, 1, 0};
    float neighbours[4] = {1, 2, 3, 4}, halves[4] = {1, 2, 3, 4};
    ref()->rope(neighbours, cos_sin, 4, false);
    assert_true(neighbours[0] == -2 && neighbours[1] == 1);
    assert_true(neighbours[2] == -3 && neighbours[3] == -4);
    ref()->rope(halves, cos_sin, 4, true);
    assert_true(halves[0] == -3 && halves[2] == 1 && halves[1] == -2 && halves[3] == -4);
}

static void silu_is_x_times_the_logistic_function(void **state)
{
    (void)state;
    float one = 1, y;
    for (float x = -120; x < 120; x += 0.37f) {
        ref()->silu_mul(&y, &x, &one, 1);
        double want = (double)x / (1 + exp(-(double)x));
        assert_true(fabs((double)y - want) <= 8 * u * fabs(want) + 1e-36);
    }
}

/* ---- attention against float64 ---- */

enum { SIZE = 64, POSITIONS = 600, BLOCKS = (POSITIONS + 31) / 32 };

typedef struct attention {
    float keys[POSITIONS][SIZE], values[POSITIONS][SIZE]; /* as stored: exact in f16 */
    float q[SIZE];
    uint16_t k[BLOCKS * 32 * SIZE], v[BLOCKS * 32 * SIZE];
    uint32_t blocks[BLOCKS];
} attention;

static void fill_attention(attention *a, draws *d)
{
    for (uint32_t i = 0; i < SIZE; i++)
        a->q[i] = draw_unit(d);
    for (uint32_t b = 0; b < BLOCKS; b++)
        a->blocks[b] = BLOCKS - 1 - b;
    for (uint32_t p = 0; p < POSITIONS; p++) {
        for (uint32_t i = 0; i < SIZE; i++) {
            a->keys[p][i] = brim__f16_to_f32(brim__f32_to_f16(draw_unit(d)));
            a->values[p][i] = brim__f16_to_f32(brim__f32_to_f16(draw_unit(d)));
        }
        size_t at = (size_t)a->blocks[p / 32] * 32 * SIZE;
        ref()->kv_store(a->k + at, a->keys[p], p % 32, SIZE, false, false);
        ref()->kv_store(a->v + at, a->values[p], p % 32, SIZE, true, false);
    }
}

static void check_attention(const attention *a, uint32_t first, uint32_t last)
{
    brim__attn desc = {a->k, a->v, a->blocks, 32 * SIZE * 2, false, SIZE, 1, first, last, 0.125f};
    float parts[3 * (SIZE + 2)], out[SIZE];
    double want[SIZE] = {0}, sizes[SIZE] = {0}, sum = 0, score_error = 0;
    for (uint32_t s = first / 256; s <= last / 256; s++)
        ref()->attn_split(parts + (s - first / 256) * (SIZE + 2), &desc, a->q, s);
    ref()->attn_combine(out, parts, SIZE + 2, last / 256 - first / 256 + 1, SIZE);
    for (uint32_t p = first; p <= last; p++) {
        double score = 0, size = 0;
        for (uint32_t i = 0; i < SIZE; i++) {
            score += (double)a->q[i] * (double)a->keys[p][i];
            size += fabs((double)a->q[i] * (double)a->keys[p][i]);
        }
        score_error = fmax(score_error, 0.125 * size * (SIZE + 3) * u);
        double e = exp(0.125 * score);
        sum += e;
        for (uint32_t i = 0; i < SIZE; i++) {
            want[i] += e * (double)a->values[p][i];
            sizes[i] += e * fabs((double)a->values[p][i]);
        }
    }
    /* A weight is off by the error of its score and the largest, and 4u for exp and the
     * difference; numerator and denominator then add a rounding a position and some for combining.
     */
    double relative = 2 * (2 * score_error + 4 * u + (last - first + 12) * u) * 1.01;
    for (uint32_t i = 0; i < SIZE; i++)
        assert_true(fabs((double)out[i] - want[i] / sum) <= relative * sizes[i] / sum);
}

static void attention_is_within_the_derived_bound_of_float64(void **state)
{
    (void)state;
    draws d = {24, 0};
    attention *a = aligned_bytes(sizeof *a);
    fill_attention(a, &d);
    check_attention(a, 0, 0);
    check_attention(a, 0, 31);
    check_attention(a, 0, 255);
    check_attention(a, 0, 256);
    check_attention(a, 17, 299);
    check_attention(a, 511, 512);
    check_attention(a, 0, POSITIONS - 1);
    free(a);
}

/* ---- the meaning does not drift ---- */

static uint64_t hash_of_all_ops(void)
{
    draws d = {25, 0};
    uint64_t hash = 0;
    enum { COLS = 768, ROWS = 21, M = 3 };
    float *x = aligned_bytes(COLS * sizeof *x), y[COLS], out[M * 64];
    for (int act = 0; act < BRIM__ACT_COUNT; act++)
        for (int i = 0; i < ALL_TYPE_COUNT; i++) {
            brim__tiling t;
            if (!ref()->matmul[act][all_types[i]])
                continue;
            assert_int_equal(brim__tiling_of(&t, all_types[i], ROWS, COLS), BRIM_OK);
            uint8_t *rows = aligned_bytes(ROWS * file_row_bytes(t.type, COLS));
            uint8_t *tiles = aligned_bytes(t.bytes), *acts = aligned_bytes(M * 4 * COLS);
            size_t stride = brim__act_row_bytes((brim__act)act, COLS);
            draw_matrix(rows, t.type, ROWS, COLS, &d, DATA_GENTLE);
            brim__tile_pack(tiles, &t, rows, 0, t.row_blocks);
            for (int m = 0; m < M; m++) {
                draw_floats(x, COLS, &d, DATA_GENTLE);
                if (act == BRIM__ACT_Q16)
                    ref()->quantize((brim__q16 *)(acts + (size_t)m * stride), x, COLS);
                else
                    memcpy(acts + (size_t)m * stride, x, COLS * sizeof *x);
            }
            ref()->matmul[act][t.type](out, 64, &t, tiles, t.row_blocks, acts, stride, M);
            for (int m = 0; m < M; m++)
                hash = brim__hash64(out + 64 * m, ROWS * sizeof *out, hash);
            free(rows), free(tiles), free(acts);
        }
    ref()->exp(y, x, COLS);
    hash = brim__hash64(y, sizeof y, hash);
    ref()->silu_mul(y, x, y, COLS);
    hash = brim__hash64(y, sizeof y, hash);
    ref()->rms_norm(y, y, x, COLS, 1e-6f);
    hash = brim__hash64(y, sizeof y, hash);
    free(x);
    return hash;
}

/* A change of this number is a change of every model's output: it needs a reason, a line in the
 * changelog and new golden files. It is the same for all compilers and architectures. */
static void the_bits_of_all_ops_have_not_changed(void **state)
{
    (void)state;
    uint64_t hash = hash_of_all_ops();
    if (hash != UINT64_C(0x1ab29aab2462cb5c))
        fail_msg("the ops' bits hash to 0x%016llx", (unsigned long long)hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_two_ulp_of_libm),
        cmocka_unit_test(exp_keeps_to_its_extremes),
        cmocka_unit_test(quantize_stays_within_half_a_step),
        cmocka_unit_test(a_block_that_is_not_finite_makes_its_products_nan),
        cmocka_unit_test(products_are_within_the_derived_bound_of_float64),
        cmocka_unit_test(rms_norm_sums_in_the_order_of_sum16),
        cmocka_unit_test(rope_turns_pairs_by_their_angle),
        cmocka_unit_test(silu_is_x_times_the_logistic_function),
        cmocka_unit_test(attention_is_within_the_derived_bound_of_float64),
        cmocka_unit_test(the_bits_of_all_ops_have_not_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
