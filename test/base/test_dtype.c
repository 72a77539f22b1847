/* Element types: the block layouts of the GGUF specification. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "brim/dtype.h"

/* From the members of ggml's block structs: d (f16), m (f16), scales, high bits, quants. */
static const struct {
    const char *name;
    uint32_t id, block, bytes;
} layouts[] = {
    {"F32", 0, 1, 4},
    {"F16", 1, 1, 2},
    {"BF16", 30, 1, 2},
    {"Q4_0", 2, 32, 2 + 16},
    {"Q4_1", 3, 32, 2 + 2 + 16},
    {"Q5_0", 6, 32, 2 + 4 + 16},
    {"Q5_1", 7, 32, 2 + 2 + 4 + 16},
    {"Q8_0", 8, 32, 2 + 32},
    {"Q4_K", 12, 256, 2 + 2 + 12 + 128},
    {"Q5_K", 13, 256, 2 + 2 + 12 + 32 + 128},
    {"Q6_K", 14, 256, 128 + 64 + 16 + 2},
};

static void blocks_have_the_sizes_of_the_specification(void **state)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        assert_true(brim_dtype_known(layouts[i].id));
        assert_string_equal(brim_dtype_name(layouts[i].id), layouts[i].name);
        assert_int_equal(brim_dtype_block((brim_dtype)layouts[i].id), layouts[i].block);
        assert_int_equal(brim_dtype_block_bytes((brim_dtype)layouts[i].id), layouts[i].bytes);
    }
}

static void only_eleven_ids_are_known(void **state)
{
    unsigned known = 0;
    for (uint32_t id = 0; id < 1000; id++)
        known += brim_dtype_known(id);
    assert_int_equal(known, sizeof layouts / sizeof *layouts);
    assert_false(brim_dtype_known(UINT32_MAX));
}

static void types_that_are_refused_still_have_their_names(void **state)
{
    assert_string_equal(brim_dtype_name(10), "Q2_K");
    assert_string_equal(brim_dtype_name(17), "IQ2_XS");
    assert_null(brim_dtype_name(31));
    assert_null(brim_dtype_name(UINT32_MAX));
    assert_int_equal(brim_dtype_block((brim_dtype)10), 0);
}

static void names_parse_whatever_their_case(void **state)
{
    brim_dtype type;
    assert_true(brim_dtype_parse(&type, "q4_k"));
    assert_int_equal(type, BRIM_DTYPE_Q4_K);
    assert_true(brim_dtype_parse(&type, "BF16"));
    assert_int_equal(type, BRIM_DTYPE_BF16);
    assert_false(brim_dtype_parse(&type, "Q2_K"));
    assert_false(brim_dtype_parse(&type, ""));
    assert_int_equal(type, BRIM_DTYPE_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_have_the_sizes_of_the_specification),
        cmocka_unit_test(only_eleven_ids_are_known),
        cmocka_unit_test(types_that_are_refused_still_have_their_names),
        cmocka_unit_test(names_parse_whatever_their_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
