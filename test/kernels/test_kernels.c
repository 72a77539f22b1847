/* test_kernels.c: every op, shape, type and format of activations, in every variant that this CPU
 * has, against the reference: the same bits.
 *
 * BRIM_TEST_SEED draws other data; a failure names the case and the seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "kernel_data.h"
#include "kernels/cells.h"

static uint64_t test_seed(void)
{
    const char *text = getenv("BRIM_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 1;
}

/* The variants under test; returns how many. */
static int variants(const brim__kernels *out[BRIM_ISA_COUNT])
{
    int count = 0;
    for (int isa = BRIM_ISA_SCALAR + 1; isa < BRIM_ISA_COUNT; isa++)
        if (brim__kernels_get((brim_isa)isa))
            out[count++] = brim__kernels_get((brim_isa)isa);
    return count;
}

static bool both_nan(float a, float b)
{
    return a != a && b != b;
}

/* Equal bits, or both NaN: which NaN is not promised. */
static void assert_same(const float *got, const float *want, size_t n, const char *what,
                        const brim__kernels *k)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(got + i, want + i, 4) != 0 && !both_nan(got[i], want[i]))
            fail_msg("%s on %s: element %zu is %a, the reference has %a (BRIM_TEST_SEED=%llu)",
                     what, brim_isa_name(k->isa), i, got[i], want[i],
                     (unsigned long long)test_seed());
}

/* ---- matrix products ---- */

typedef struct matmul_case {
    uint32_t rows, cols, m; /* cols in cells of the type */
    data_kind weights, acts;
} matmul_case;

static void run_matmul_case(const matmul_case *c, brim_dtype type, brim__act act, draws *d)
{
    const brim__kernels *ref = brim__kernels_get(BRIM_ISA_SCALAR), *all[BRIM_ISA_COUNT];
    int count = variants(all);
    brim__tiling t;
    uint32_t unit = brim_dtype_block(type) > 32 ? brim_dtype_block(type) : 32;
    assert_int_equal(brim__tiling_of(&t, type, c->rows, c->cols * unit), BRIM_OK);
    uint8_t *rows = aligned_bytes(t.rows * file_row_bytes(type, t.cols));
    uint8_t *tiles = aligned_bytes(t.bytes);
    draw_matrix(rows, type, t.rows, t.cols, d, c->weights);
    brim__tile_pack(tiles, &t, rows, 0, t.row_blocks);

    size_t x_row = brim__act_row_bytes(act, t.cols),
           out_row = (size_t)t.row_blocks * t.tile_rows + 3;
    float *floats = aligned_bytes(t.cols * sizeof(float));
    uint8_t *x = aligned_bytes(c->m * x_row);
    for (uint32_t m = 0; m < c->m; m++) {
        draw_floats(floats, t.cols, d, c->acts);
        if (act == BRIM__ACT_Q16)
            ref->quantize((brim__q16 *)(x + m * x_row), floats, t.cols);
        else
            memcpy(x + m * x_row, floats, t.cols * sizeof(float));
    }
    float *want = aligned_bytes(c->m * out_row * sizeof(float));
    float *got = aligned_bytes(c->m * out_row * sizeof(float));
    memset(want, 0x55, c->m * out_row * sizeof(float));
    ref->matmul[act][type](want, out_row, &t, tiles, t.row_blocks, x, x_row, c->m);
    char what[128];
    snprintf(what, sizeof what, "matmul %s x %s, %u x %u, %u activation rows, data %d/%d",
             brim_dtype_name(type), act == BRIM__ACT_Q16 ? "q16" : "f32", t.rows, t.cols, c->m,
             c->weights, c->acts);
    for (int i = 0; i < count; i++) {
        memset(got, 0x55, c->m * out_row * sizeof(float)); /* the gap between rows stays as it is */
        all[i]->matmul[act][type](got, out_row, &t, tiles, t.row_blocks, x, x_row, c->m);
        assert_same(got, want, c->m * out_row, what, all[i]);
    }
    free(rows), free(tiles), free(floats), free(x), free(want), free(got);
}

static void every_matmul_equals_the_reference(void **state)
{
    (void)state;
    static const matmul_case fixed[] = {
        {1, 1, 1, DATA_GENTLE, DATA_GENTLE},  {16, 2, 1, DATA_GENTLE, DATA_GENTLE},
        {33, 3, 2, DATA_GENTLE, DATA_WILD},   {49, 5, 3, DATA_WILD, DATA_GENTLE},
        {64, 2, 70, DATA_GENTLE, DATA_FULL},  {70, 7, 5, DATA_FULL, DATA_FULL},
        {31, 17, 8, DATA_WILD, DATA_WILD},    {20, 9, 13, DATA_ZERO, DATA_WILD},
        {40, 90, 1, DATA_FULL, DATA_GENTLE},  {17, 3, 9, DATA_FULL, DATA_ZERO},
        {96, 1, 6, DATA_GENTLE, DATA_GENTLE}, {32, 60, 4, DATA_GENTLE, DATA_GENTLE},
    };
    draws d = {test_seed(), 0};
    for (int act = 0; act < BRIM__ACT_COUNT; act++)
        for (int i = 0; i < ALL_TYPE_COUNT; i++) {
            brim_dtype type = all_types[i];
            const brim__kernels *ref = brim__kernels_get(BRIM_ISA_SCALAR);
            if (!ref->matmul[act][type])
                continue;
            uint32_t divide = brim_dtype_block(type) > 32 ? 8 : 1;
            for (size_t j = 0; j < sizeof fixed / sizeof *fixed; j++) {
                matmul_case c = fixed[j];
                c.cols = c.cols / divide + (c.cols % divide != 0);
                run_matmul_case(&c, type, (brim__act)act, &d);
            }
            for (int j = 0; j < 6; j++) {
                matmul_case c = {1 + draw_below(&d, 80), 1 + draw_below(&d, 40 / divide),
                                 1 + draw_below(&d, 17), (data_kind)draw_below(&d, DATA_KIND_COUNT),
                                 (data_kind)draw_below(&d, DATA_KIND_COUNT)};
                run_matmul_case(&c, type, (brim__act)act, &d);
            }
        }
}

static void every_variant_has_every_body_of_the_reference(void **state)
{
    (void)state;
    const brim__kernels *ref = brim__kernels_get(BRIM_ISA_SCALAR), *all[BRIM_ISA_COUNT];
    int count = variants(all);
    for (int act = 0; act < BRIM__ACT_COUNT; act++)
        for (uint32_t id = 0; id < 32; id++) {
            bool expected = brim_dtype_known(id) &&
                            (act == BRIM__ACT_F32 || brim_dtype_block((brim_dtype)id) > 1);
            assert_int_equal(ref->matmul[act][id] != NULL, expected);
            for (int i = 0; i < count; i++)
                assert_int_equal(all[i]->matmul[act][id] != NULL, expected);
        }
    assert_null(brim__kernels_get(BRIM_ISA_COUNT));
}

/* ---- ops on vectors ---- */

enum { VECTOR_MAX = 1 << 12 };

typedef struct vectors {
    float a[VECTOR_MAX], b[VECTOR_MAX], want[VECTOR_MAX], got[VECTOR_MAX];
} vectors;

static void draw_vectors(vectors *v, draws *d, int round)
{
    data_kind kind = (data_kind)(round % DATA_KIND_COUNT);
    draw_floats(v->a, VECTOR_MAX, d, kind);
    draw_floats(v->b, VECTOR_MAX, d, kind);
}

static void vector_ops_equal_the_reference(void **state)
{
    (void)state;
    const brim__kernels *ref = brim__kernels_get(BRIM_ISA_SCALAR), *all[BRIM_ISA_COUNT];
    int count = variants(all);
    draws d = {test_seed() + 1, 0};
    vectors *v = aligned_bytes(sizeof *v);
    for (int round = 0; round < 60; round++) {
        draw_vectors(v, &d, round);
        uint32_t n = 1 + draw_below(&d, round % 2 ? 100 : VECTOR_MAX - 1), n16 = (n + 15) / 16 * 16;
        for (int i = 0; i < count; i++) {
            ref->add(v->want, v->a, v->b, n), all[i]->add(v->got, v->a, v->b, n);
            assert_same(v->got, v->want, n, "add", all[i]);
            ref->silu_mul(v->want, v->a, v->b, n), all[i]->silu_mul(v->got, v->a, v->b, n);
            assert_same(v->got, v->want, n, "silu_mul", all[i]);
            ref->exp(v->want, v->a, n), all[i]->exp(v->got, v->a, n);
            assert_same(v->got, v->want, n, "exp", all[i]);
            for (int weighted = 0; weighted < 2; weighted++) {
                const float *w = weighted ? v->b : NULL;
                ref->rms_norm(v->want, v->a, w, n16, 1e-5f);
                all[i]->rms_norm(v->got, v->a, w, n16, 1e-5f);
                assert_same(v->got, v->want, n16, "rms_norm", all[i]);
                memcpy(v->got, v->a, n16 * sizeof(float)); /* in place */
                all[i]->rms_norm(v->got, v->got, w, n16, 1e-5f);
                assert_same(v->got, v->want, n16, "rms_norm in place", all[i]);
            }
            for (int halves = 0; halves < 2; halves++) {
                uint32_t even = (n + 1) / 2 * 2;
                memcpy(v->want, v->a, even * sizeof(float));
                memcpy(v->got, v->a, even * sizeof(float));
                ref->rope(v->want, v->b, even, halves), all[i]->rope(v->got, v->b, even, halves);
                assert_same(v->got, v->want, even, halves ? "rope halves" : "rope pairs", all[i]);
            }
        }
    }
    free(v);
}

static void ops_write_nothing_past_their_end(void **state)
{
    (void)state;
    const brim__kernels *all[BRIM_ISA_COUNT];
    int count = variants(all);
    float a[80], b[80], y[80];
    for (int i = 0; i < 80; i++)
        a[i] = b[i] = 0.5f;
    for (int i = 0; i < count; i++)
        for (uint32_t n = 1; n < 64; n++) {
            memset(y, 0x55, sizeof y);
            all[i]->add(y, a, b, n);
            assert_true(brim__bits_of(y[n]) == 0x55555555u && y[n - 1] == 1.0f);
            all[i]->silu_mul(y, a, b, n);
            assert_true(brim__bits_of(y[n]) == 0x55555555u);
            all[i]->exp(y, a, n);
            assert_true(brim__bits_of(y[n]) == 0x55555555u);
            all[i]->rope(y, a, n / 2 * 2, n % 2);
            assert_true(brim__bits_of(y[n]) == 0x55555555u);
        }
}

static void quantize_equals_the_reference(void **state)
{
    (void)state;
    const brim__kernels *ref = brim__kernels_get(BRIM_ISA_SCALAR), *all[BRIM_ISA_COUNT];
    int count = variants(all);
    draws d = {test_seed() + 2, 0};
    float *x = aligned_bytes(VECTOR_MAX * sizeof(float));
    brim__q16 *want = aligned_bytes(VECTOR_MAX / 32 * sizeof *want);
    brim__q16 *got = aligned_bytes(VECTOR_MAX / 32 * sizeof *got);
    for (int round = 0; round < 40; round++) {
        draw_floats(x, VECTOR_MAX, &d, (data_kind)(round % DATA_KIND_COUNT));
        if (round >= 20) { /* blocks that are tiny, denormal, infinite or not a number */
            x[32] = INFINITY, x[100] = NAN, x[150] = -INFINITY;
            for (int i = 320; i < 640; i++)
                x[i] *= 0x1p-120f;
            for (int i = 640; i < 960; i++)
                x[i] *= 0x1p-112f;
        }
        memset(want, 1, VECTOR_MAX / 32 * sizeof *want);
        memset(got, 2, VECTOR_MAX / 32 * sizeof *got);
        ref->quantize(want, x, VECTOR_MAX);
        for (int i = 0; i < count; i++) {
            all[i]->quantize(got, x, VECTOR_MAX);
            for (int b = 0; b < VECTOR_MAX / 32; b++) {
                assert_same(&got[b].scale, &want[b].scale, 1, "quantize scale", all[i]);
                assert_same(&got[b].scaled_sum, &want[b].scaled_sum, 1, "quantize sum", all[i]);
                assert_memory_equal(got[b].hi, want[b].hi, 32);
                assert_memory_equal(got[b].lo, want[b].lo, 32);
                assert_memory_equal(got[b].sum, want[b].sum, sizeof want[b].sum);
            }
        }
    }
    free(x), free(want), free(got);
}

static void argmax_is_the_first_of_the_largest(void **state)
{
    (void)state;
    const brim__kernels *all[BRIM_ISA_COUNT];
    int count = variants(all);
    all[count++] = brim__kernels_get(BRIM_ISA_SCALAR);
    draws d = {test_seed() + 3, 0};
    float *x = aligned_bytes(1000 * sizeof(float));
    for (int i = 0; i < count; i++) {
        for (uint32_t n = 1; n <= 1000; n += n < 70 ? 1 : 61) {
            uint32_t at = draw_below(&d, n);
            for (uint32_t j = 0; j < n; j++)
                x[j] = j < at ? (draw(&d) & 1 ? NAN : 1.0f) : 2.0f;
            assert_int_equal(all[i]->argmax(x, n), at);
            for (uint32_t j = 0; j < n; j++)
                x[j] = j == at ? -INFINITY : NAN;
            assert_int_equal(all[i]->argmax(x, n), at);
            x[at] = NAN;
            assert_int_equal(all[i]->argmax(x, n), 0);
        }
        x[0] = -0.0f, x[1] = 0.0f;
        assert_int_equal(all[i]->argmax(x, 2), 0);
    }
    free(x);
}

/* ---- attention ---- */

typedef struct attn_case {
    uint32_t head_size, group, first, last;
    bool f32;
    data_kind kind;
} attn_case;

enum { POOL_BLOCKS = 24 };

/* Fills the pool through kv_store of `k`, block by block, position by position. */
static void fill_pool(uint8_t *pool, const brim__kernels *k, const attn_case *c,
                      uint64_t block_bytes, bool v, draws *d)
{
    float x[256];
    for (uint32_t b = 0; b < POOL_BLOCKS; b++)
        for (uint32_t slot = 0; slot < 32; slot++) {
            draw_floats(x, c->head_size, d, c->kind);
            k->kv_store(pool + b * block_bytes, x, slot, c->head_size, v, c->f32);
        }
}

static void run_attn_case(const attn_case *c, draws *d)
{
    const brim__kernels *ref = brim__kernels_get(BRIM_ISA_SCALAR), *all[BRIM_ISA_COUNT];
    int count = variants(all);
    uint64_t block_bytes = 32 * (uint64_t)c->head_size * (c->f32 ? 4 : 2);
    uint8_t *k = aligned_bytes(POOL_BLOCKS * block_bytes),
            *v = aligned_bytes(POOL_BLOCKS * block_bytes);
    uint8_t *other = aligned_bytes(POOL_BLOCKS * block_bytes);
    draws again = *d;
    fill_pool(k, ref, c, block_bytes, false, d);
    for (int i = 0; i < count; i++) {
        draws same = again;
        memset(other, 0x77, POOL_BLOCKS * block_bytes);
        fill_pool(other, all[i], c, block_bytes, false, &same);
        assert_memory_equal(other, k, POOL_BLOCKS * block_bytes);
    }
    again = *d;
    fill_pool(v, ref, c, block_bytes, true, d);
    for (int i = 0; i < count; i++) {
        draws same = again;
        fill_pool(other, all[i], c, block_bytes, true, &same);
        assert_memory_equal(other, v, POOL_BLOCKS * block_bytes);
    }
    uint32_t blocks[POOL_BLOCKS];
    for (uint32_t b = 0; b < POOL_BLOCKS; b++)
        blocks[b] = (b * 7 + 5) % POOL_BLOCKS; /* a permutation: 7 and 24 share no factor */
    brim__attn a = {k,        v,
                    blocks,   block_bytes,
                    c->f32,   c->head_size,
                    c->group, c->first,
                    c->last,  1.0f / sqrtf((float)c->head_size)};
    /* What is not seen in a block may hold anything, NaN too. */
    for (uint32_t p = 0; p < POOL_BLOCKS * 32; p++)
        if (p < c->first || p > c->last)
            for (uint32_t i = 0; i < c->head_size; i++) {
                size_t element = c->f32 ? 4 : 2, slot = p % 32;
                size_t at = slot / 16 * 16 * c->head_size + (size_t)i * 16 + slot % 16;
                memset(k + blocks[p / 32] * block_bytes + at * element, 0xff, element);
                memset(v + blocks[p / 32] * block_bytes + (slot * c->head_size + i) * element, 0xff,
                       element);
            }
    float *q = aligned_bytes(c->group * c->head_size * sizeof(float));
    draw_floats(q, c->group * c->head_size, d, c->kind);
    size_t part = c->head_size + 2, parts = part * c->group;
    float *want = aligned_bytes(3 * parts * sizeof(float)),
          *got = aligned_bytes(3 * parts * sizeof(float));
    float want_out[256], got_out[256];
    uint32_t from = c->first / 256, to = c->last / 256;
    for (uint32_t s = from; s <= to; s++)
        ref->attn_split(want + (s - from) * parts, &a, q, s);
    for (int i = 0; i < count; i++) {
        for (uint32_t s = from; s <= to; s++)
            all[i]->attn_split(got + (s - from) * parts, &a, q, s);
        assert_same(got, want, (to - from + 1) * parts, "attn_split", all[i]);
        for (uint32_t h = 0; h < c->group; h++) {
            ref->attn_combine(want_out, want + h * part, parts, to - from + 1, c->head_size);
            all[i]->attn_combine(got_out, want + h * part, parts, to - from + 1, c->head_size);
            assert_same(got_out, want_out, c->head_size, "attn_combine", all[i]);
        }
    }
    free(k), free(v), free(other), free(q), free(want), free(got);
}

static void attention_equals_the_reference(void **state)
{
    (void)state;
    draws d = {test_seed() + 4, 0};
    static const uint32_t sizes[] = {16, 32, 64, 80, 96, 112, 128, 256};
    for (int round = 0; round < 64; round++) {
        attn_case c = {.head_size = sizes[round % 8],
                       .group = 1 + draw_below(&d, 16),
                       .f32 = round % 3 == 0,
                       .kind = round % 5 == 4 ? DATA_ZERO : DATA_GENTLE};
        c.last = draw_below(&d, POOL_BLOCKS * 32);
        c.first = round % 4 ? 0 : draw_below(&d, c.last + 1);
        run_attn_case(&c, &d);
    }
    for (uint32_t last = 250; last < 260; last++) {
        attn_case c = {64, 3, 0, last, false, DATA_GENTLE},
                  window = {64, 3, last - 5, last, true, DATA_GENTLE};
        run_attn_case(&c, &d);
        run_attn_case(&window, &d);
    }
}

static void exp_equals_the_reference_over_its_range(void **state)
{
    (void)state;
    const brim__kernels *ref = brim__kernels_get(BRIM_ISA_SCALAR), *all[BRIM_ISA_COUNT];
    int count = variants(all);
    float *x = aligned_bytes(4096 * sizeof(float)), *want = aligned_bytes(4096 * sizeof(float));
    float *got = aligned_bytes(4096 * sizeof(float));
    /* Every 997th float from -inf to +inf. */
    uint64_t bits = 0;
    while (bits < UINT64_C(0x200000000)) {
        uint32_t n = 0;
        for (; n < 4096 && bits < UINT64_C(0x200000000); bits += 1 + 2 * 49873) {
            float f = brim__float_of((uint32_t)(bits & 1) << 31 | (uint32_t)(bits >> 2));
            if (f == f)
                x[n++] = f;
        }
        ref->exp(want, x, n);
        for (int i = 0; i < count; i++) {
            all[i]->exp(got, x, n);
            assert_same(got, want, n, "exp", all[i]);
        }
    }
    free(x), free(want), free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_has_every_body_of_the_reference),
        cmocka_unit_test(every_matmul_equals_the_reference),
        cmocka_unit_test(vector_ops_equal_the_reference),
        cmocka_unit_test(ops_write_nothing_past_their_end),
        cmocka_unit_test(quantize_equals_the_reference),
        cmocka_unit_test(argmax_is_the_first_of_the_largest),
        cmocka_unit_test(attention_equals_the_reference),
        cmocka_unit_test(exp_equals_the_reference_over_its_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
