/* Each kind of malformed GGUF file is refused by its id, and well-formed ones give their values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

#include "base/memory.h"
#include "brim/model.h"
#include "model/gguf_builder.h"

static brim_context *ctx;

static int make_context(void **state)
{
    return brim_context_create(&ctx, NULL) == BRIM_OK ? 0 : -1;
}

static int check_context(void **state)
{
    size_t left = brim_context_bytes(ctx);
    brim_context_destroy(ctx);
    return left == 0 ? 0 : -1;
}

/* Opens what was built, as an exact-size block so that a sanitizer sees any byte read behind it. */
static brim_status open_built(brim_model_file **out, gguf_builder *b, uint8_t **block)
{
    gb_patch_counts(b);
    *block = malloc(b->size ? b->size : 1);
    memcpy(*block, b->data, b->size);
    return brim_model_file_open_memory(out, ctx, *block, b->size);
}

/* What was built is refused with this status and id, and the message says `text`. */
static void refuses(gguf_builder *b, brim_status status, const char *id, const char *text)
{
    brim_model_file *file = NULL;
    uint8_t *block;
    brim_status got = open_built(&file, b, &block);
    if (got == BRIM_OK)
        brim_model_file_close(file);
    if (got != status || strcmp(brim_last_id(), id) != 0 || !strstr(brim_last_message(), text))
        printf("got %s, id %s: %s\n", brim_status_name(got), brim_last_id(), brim_last_message());
    assert_int_equal(got, status);
    assert_string_equal(brim_last_id(), id);
    assert_non_null(strstr(brim_last_message(), text));
    free(block);
    gb_done(b);
}

static void accepts(gguf_builder *b)
{
    brim_model_file *file = NULL;
    uint8_t *block;
    brim_status got = open_built(&file, b, &block);
    if (got != BRIM_OK)
        printf("refused: %s\n", brim_last_message());
    assert_int_equal(got, BRIM_OK);
    brim_model_file_close(file);
    free(block);
    gb_done(b);
}

/* A file with one F32 tensor "t" of 8 elements, to be described by the caller. */
static gguf_builder with_key(void)
{
    gguf_builder b = gb_start(3);
    gb_key_string(&b, "general.architecture", "llama");
    return b;
}

static void finish_data(gguf_builder *b, size_t size)
{
    gb_align(b);
    gb_data(b, size);
}

/* ---- header ---- */

static void gguf_rejects_an_empty_file(void **state)
{
    gguf_builder b = gb_start(3);
    b.size = 24;
    uint64_t one = 1;
    brim_model_file *file;
    assert_int_equal(brim_model_file_open_memory(&file, ctx, &one, 0), BRIM_FORMAT);
    assert_string_equal(brim_last_id(), "gguf.magic");
    gb_done(&b);
}

static void gguf_rejects_another_magic(void **state)
{
    gguf_builder b = gb_start(3);
    memcpy(b.data, "GGUX", 4);
    refuses(&b, BRIM_FORMAT, "gguf.magic", "GGUF");
}

static void gguf_names_other_formats(void **state)
{
    static const struct {
        const char *start;
        size_t size;
        const char *says;
    } others[] = {{"lmggxxxx", 8, "GGML"},
                  {"PK\3\4xxxx", 8, "ZIP"},
                  {"\x1f\x8bxxxxxx", 8, "gzip"},
                  {"version https://git-lfs", 23, "LFS"},
                  {"\x10\0\0\0\0\0\0\0{\"a\":1}", 15, "safetensors"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        uint64_t copy[4] = {0};
        memcpy(copy, others[i].start, others[i].size);
        brim_model_file *file;
        assert_int_equal(brim_model_file_open_memory(&file, ctx, copy, others[i].size),
                         BRIM_FORMAT);
        assert_string_equal(brim_last_id(), "gguf.magic");
        assert_non_null(strstr(brim_last_message(), others[i].says));
    }
}

static void gguf_refuses_version_1_by_name(void **state)
{
    gguf_builder b = gb_start(1);
    refuses(&b, BRIM_UNSUPPORTED, "gguf.version", "version 1");
}

static void gguf_refuses_version_4_by_name(void **state)
{
    gguf_builder b = gb_start(4);
    refuses(&b, BRIM_UNSUPPORTED, "gguf.version", "version 4");
}

static void gguf_refuses_big_endian_by_name(void **state)
{
    gguf_builder b = gb_start(0x03000000);
    refuses(&b, BRIM_UNSUPPORTED, "gguf.endian", "big-endian");
}

static void gguf_rejects_a_misaligned_block_of_memory(void **state)
{
    uint64_t block[4] = {0};
    brim_model_file *file;
    assert_int_equal(brim_model_file_open_memory(&file, ctx, (char *)block + 1, 16), BRIM_USAGE);
    assert_string_equal(brim_last_id(), "gguf.memory");
}

static void gguf_accepts_version_2_and_no_keys(void **state)
{
    gguf_builder b = gb_start(2);
    accepts(&b);
}

/* The longest valid file here, cut after every byte, is refused each time. */
static void gguf_rejects_a_file_cut_at_any_byte(void **state)
{
    gguf_builder b = with_key();
    gb_key_array(&b, "a.strings", GB_STRING, 2);
    gb_string(&b, "one"), gb_string(&b, "");
    gb_key_array(&b, "a.bools", GB_BOOL, 3);
    gb_u8(&b, 1), gb_u8(&b, 0), gb_u8(&b, 1);
    gb_key_f32(&b, "a.float", 1.5f);
    gb_tensor(&b, "t", 0, 4, 2, 0);
    finish_data(&b, 32);
    gb_patch_counts(&b);
    for (size_t size = 0; size < b.size; size++) {
        uint8_t *block = malloc(size ? size : 1);
        memcpy(block, b.data, size);
        brim_model_file *file;
        brim_status status = brim_model_file_open_memory(&file, ctx, block, size);
        assert_int_equal(status, BRIM_FORMAT);
        assert_null(file);
        free(block);
    }
    accepts(&b);
}

/* ---- counts ---- */

static void gguf_rejects_key_count_beyond_the_bytes_left(void **state)
{
    gguf_builder b = with_key();
    b.meta_count = UINT64_MAX;
    refuses(&b, BRIM_FORMAT, "gguf.count", "keys");
}

static void gguf_rejects_tensor_count_beyond_the_bytes_left(void **state)
{
    gguf_builder b = with_key();
    b.tensor_count = UINT64_C(1) << 61; /* times the size of a description overflows to little */
    refuses(&b, BRIM_FORMAT, "gguf.count", "tensors");
}

static void gguf_rejects_more_keys_than_it_supports(void **state)
{
    gguf_builder b = gb_start(3);
    b.meta_count = 70000;
    gb_data(&b, 70000 * 14);
    refuses(&b, BRIM_LIMIT, "gguf.limit", "70000 keys");
}

static void gguf_rejects_array_count_whose_bytes_overflow(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_array(&b, "a", GB_U32, UINT64_C(1) << 62); /* times 4 is 0 */
    gb_data(&b, 64);
    refuses(&b, BRIM_FORMAT, "gguf.count", "\"a\"");
}

static void gguf_rejects_string_array_count_beyond_the_bytes_left(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_array(&b, "a", GB_STRING, UINT64_C(1) << 32); /* 0 when narrowed to 32 bits */
    gb_data(&b, 64);
    refuses(&b, BRIM_FORMAT, "gguf.count", "\"a\"");
}

static void gguf_rejects_string_longer_than_the_file(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key(&b, "a", GB_STRING);
    gb_u64(&b, UINT64_MAX); /* plus 1 for a terminator is 0 */
    gb_data(&b, 16);
    refuses(&b, BRIM_FORMAT, "gguf.string", "claims");
}

static void gguf_rejects_string_of_an_array_longer_than_the_file(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_array(&b, "a", GB_STRING, 1);
    gb_u64(&b, 1000);
    gb_data(&b, 999);
    refuses(&b, BRIM_FORMAT, "gguf.string", "1000");
}

static void gguf_rejects_key_longer_than_the_file(void **state)
{
    gguf_builder b = gb_start(3);
    b.meta_count = 1;
    gb_u64(&b, INT64_MAX);
    gb_data(&b, 32);
    refuses(&b, BRIM_FORMAT, "gguf.string", "key");
}

/* ---- keys ---- */

static void gguf_rejects_empty_key(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_u32(&b, "", 1);
    refuses(&b, BRIM_FORMAT, "gguf.key", "empty key");
}

static void gguf_rejects_key_of_65536_bytes(void **state)
{
    gguf_builder b = gb_start(3);
    char key[65537];
    memset(key, 'k', 65536), key[65536] = 0;
    gb_key_u32(&b, key, 1);
    refuses(&b, BRIM_FORMAT, "gguf.key", "65536");
}

static void gguf_accepts_key_of_65535_bytes(void **state)
{
    gguf_builder b = gb_start(3);
    char key[65536];
    memset(key, 'k', 65535), key[65535] = 0;
    gb_key_u32(&b, key, 1);
    accepts(&b);
}

static void gguf_rejects_key_with_a_zero_byte(void **state)
{
    gguf_builder b = gb_start(3);
    b.meta_count = 1;
    gb_bytes(&b, "a\0b", 3);
    gb_u32(&b, GB_U32), gb_u32(&b, 1);
    refuses(&b, BRIM_FORMAT, "gguf.key", "0x00");
}

static void gguf_rejects_key_with_an_escape_sequence(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_u32(&b, "a\x1b[2J", 1);
    refuses(&b, BRIM_FORMAT, "gguf.key", "0x1b");
}

static void gguf_rejects_key_that_is_not_utf8(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_u32(&b, "a\xff", 1);
    refuses(&b, BRIM_FORMAT, "gguf.key", "0xff");
}

static void gguf_rejects_duplicate_key(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_u32(&b, "a.x", 1), gb_key_u32(&b, "a.y", 2), gb_key_u32(&b, "a.x", 3);
    refuses(&b, BRIM_FORMAT, "gguf.key_duplicate", "\"a.x\"");
}

static void gguf_rejects_unknown_value_type(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key(&b, "a", 13);
    gb_u64(&b, 0);
    refuses(&b, BRIM_FORMAT, "gguf.type", "13");
}

static void gguf_rejects_unknown_array_item_type(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_array(&b, "a", UINT32_MAX, 1);
    gb_u64(&b, 0);
    refuses(&b, BRIM_FORMAT, "gguf.type", "4294967295");
}

static void gguf_refuses_nested_arrays_by_name(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_array(&b, "a", GB_ARRAY, 1);
    gb_u32(&b, GB_U8), gb_u64(&b, 1), gb_u8(&b, 0);
    refuses(&b, BRIM_FORMAT, "gguf.nested", "nested");
}

static void gguf_rejects_bool_that_is_neither_0_nor_1(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_bool(&b, "a", 2);
    refuses(&b, BRIM_FORMAT, "gguf.bool", "\"a\"");
    b = gb_start(3);
    gb_key_array(&b, "b", GB_BOOL, 3);
    gb_u8(&b, 1), gb_u8(&b, 0), gb_u8(&b, 255);
    refuses(&b, BRIM_FORMAT, "gguf.bool", "255");
}

/* ---- alignment ---- */

static void gguf_rejects_bad_alignment(void **state)
{
    static const uint32_t bad[] = {0, 1, 4, 24, 33, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gguf_builder b = gb_start(3);
        gb_key_u32(&b, "general.alignment", bad[i]);
        gb_tensor(&b, "t", 0, 8, 0, 0);
        finish_data(&b, 64);
        refuses(&b, BRIM_FORMAT, "gguf.alignment", "power of two");
    }
}

static void gguf_rejects_alignment_of_another_type(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key(&b, "general.alignment", GB_U64);
    gb_u64(&b, 32);
    refuses(&b, BRIM_FORMAT, "gguf.alignment", "u64");
}

static void gguf_places_data_by_the_alignment(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_u32(&b, "general.alignment", 256);
    gb_tensor(&b, "t", 0, 8, 0, 256);
    b.alignment = 256;
    finish_data(&b, 256 + 32);
    brim_model_file *file;
    uint8_t *block;
    assert_int_equal(open_built(&file, &b, &block), BRIM_OK);
    assert_int_equal(brim_model_file_tensor(file, "t")->file_offset, 512);
    brim_model_file_close(file);
    free(block);
    gb_done(&b);
}

static void gguf_rejects_alignment_that_puts_data_past_the_end(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_u32(&b, "general.alignment", UINT32_C(1) << 31);
    gb_tensor(&b, "t", 0, 8, 0, 0);
    finish_data(&b, 32);
    refuses(&b, BRIM_FORMAT, "gguf.range", "\"t\"");
}

/* ---- tensors ---- */

static void gguf_rejects_empty_tensor_name(void **state)
{
    gguf_builder b = with_key();
    gb_tensor(&b, "", 0, 8, 0, 0);
    finish_data(&b, 32);
    refuses(&b, BRIM_FORMAT, "gguf.name", "empty");
}

static void gguf_rejects_tensor_name_of_64_bytes(void **state)
{
    gguf_builder b = with_key();
    gb_tensor(&b, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 0, 8, 0, 0);
    finish_data(&b, 32);
    refuses(&b, BRIM_FORMAT, "gguf.name", "at most 63");
}

static void gguf_rejects_tensor_name_with_a_zero_byte(void **state)
{
    gguf_builder b = with_key();
    b.tensor_count = 1;
    gb_bytes(&b, "t\0u", 3);
    gb_u32(&b, 1), gb_u64(&b, 8), gb_u32(&b, 0), gb_u64(&b, 0);
    finish_data(&b, 32);
    refuses(&b, BRIM_FORMAT, "gguf.name", "0x00");
}

static void gguf_rejects_duplicate_tensor_name(void **state)
{
    gguf_builder b = with_key();
    gb_tensor(&b, "t", 0, 8, 0, 0), gb_tensor(&b, "u", 0, 8, 0, 32),
        gb_tensor(&b, "t", 0, 8, 0, 64);
    finish_data(&b, 96);
    refuses(&b, BRIM_FORMAT, "gguf.name_duplicate", "\"t\"");
}

static void gguf_rejects_dimension_counts_of_0_and_5(void **state)
{
    static const uint32_t bad[] = {0, 5, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        gguf_builder b = with_key();
        b.tensor_count = 1;
        gb_string(&b, "t");
        gb_u32(&b, bad[i]);
        for (int d = 0; d < 5; d++)
            gb_u64(&b, 1);
        gb_u32(&b, 0), gb_u64(&b, 0);
        finish_data(&b, 32);
        refuses(&b, BRIM_FORMAT, "gguf.dims", "1 to 4");
    }
}

static void gguf_rejects_a_dimension_of_zero(void **state)
{
    gguf_builder b = with_key();
    gb_tensor(&b, "t", 0, 0, 8, 0);
    finish_data(&b, 32);
    refuses(&b, BRIM_FORMAT, "gguf.dims", "is zero");
}

static void gguf_rejects_dimensions_whose_product_overflows(void **state)
{
    gguf_builder b = with_key();
    gb_tensor(&b, "t", 0, UINT64_C(1) << 32, UINT64_C(1) << 32, 0); /* 2^64 is 0 */
    finish_data(&b, 32);
    refuses(&b, BRIM_FORMAT, "gguf.dims", "2^63-1");
}

static void gguf_rejects_a_negative_dimension(void **state)
{
    gguf_builder b = with_key();
    gb_tensor(&b, "t", 0, UINT64_MAX, 0, 0);
    finish_data(&b, 32);
    refuses(&b, BRIM_FORMAT, "gguf.dims", "2^63-1");
}

static void gguf_rejects_a_tensor_size_that_overflows(void **state)
{
    gguf_builder b = with_key();
    gb_tensor(&b, "t", 0, UINT64_C(1) << 62, 0, 0); /* elements fit, 4 bytes each do not */
    finish_data(&b, 32);
    refuses(&b, BRIM_FORMAT, "gguf.size", "\"t\"");
}

static void gguf_rejects_rows_that_are_no_multiple_of_the_block(void **state)
{
    static const struct {
        uint32_t type;
        uint64_t columns;
    } bad[] = {{2, 33}, {3, 16}, {6, 48}, {7, 31}, {8, 40}, {12, 128}, {13, 255}, {14, 288}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gguf_builder b = with_key();
        gb_tensor(&b, "t", bad[i].type, bad[i].columns, 32, 0);
        finish_data(&b, 16384);
        refuses(&b, BRIM_FORMAT, "gguf.block", "multiple");
    }
}

static void gguf_refuses_other_tensor_types_by_name(void **state)
{
    static const struct {
        uint32_t type;
        const char *name;
    } other[] = {{10, "Q2_K"}, {11, "Q3_K"},    {17, "IQ2_XS"},
                 {24, "I8"},   {28, "F64"},     {39, "MXFP4"},
                 {4, "Q4_2"},  {77, "type 77"}, {UINT32_MAX, "type 4294967295"}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        gguf_builder b = with_key();
        gb_tensor(&b, "blk.0.x", other[i].type, 256, 1, 0);
        finish_data(&b, 4096);
        char *name = (char *)other[i].name;
        refuses(&b, BRIM_UNSUPPORTED, "gguf.dtype", name);
    }
}

static void gguf_rejects_unaligned_tensor_offset(void **state)
{
    gguf_builder b = with_key();
    gb_tensor(&b, "t", 0, 8, 0, 16);
    finish_data(&b, 64);
    refuses(&b, BRIM_FORMAT, "gguf.offset", "alignment 32");
}

static void gguf_rejects_tensor_past_end_of_file(void **state)
{
    gguf_builder b = with_key();
    gb_tensor(&b, "t", 0, 8, 0, 0);
    finish_data(&b, 31);
    refuses(&b, BRIM_FORMAT, "gguf.range", "\"t\"");
}

static void gguf_rejects_tensor_offset_that_overflows(void **state)
{
    gguf_builder b = with_key();
    gb_tensor(&b, "t", 0, 8, 0, UINT64_MAX - 31);
    finish_data(&b, 32);
    refuses(&b, BRIM_FORMAT, "gguf.range", "\"t\"");
}

static void gguf_rejects_overlapping_tensors(void **state)
{
    gguf_builder b = with_key();
    gb_tensor(&b, "t", 0, 16, 0, 0), gb_tensor(&b, "u", 0, 8, 0, 32);
    finish_data(&b, 64);
    refuses(&b, BRIM_FORMAT, "gguf.overlap", "\"u\"");
    b = with_key();
    gb_tensor(&b, "t", 0, 8, 0, 0), gb_tensor(&b, "u", 0, 8, 0, 0);
    finish_data(&b, 64);
    refuses(&b, BRIM_FORMAT, "gguf.overlap", "overlap");
}

static void gguf_accepts_tensors_in_any_order_with_gaps(void **state)
{
    gguf_builder b = with_key();
    gb_tensor(&b, "t", 0, 8, 0, 96), gb_tensor(&b, "u", 0, 8, 0, 0);
    finish_data(&b, 128);
    accepts(&b);
}

/* ---- values ---- */

static brim_model_file *open_good(gguf_builder *b, uint8_t **block)
{
    brim_model_file *file = NULL;
    brim_status status = open_built(&file, b, block);
    if (status != BRIM_OK)
        printf("refused: %s\n", brim_last_message());
    assert_int_equal(status, BRIM_OK);
    return file;
}

static void close_good(brim_model_file *file, uint8_t *block, gguf_builder *b)
{
    brim_model_file_close(file);
    free(block);
    gb_done(b);
}

static void gguf_reads_every_type_of_value(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key(&b, "u8", GB_U8), gb_u8(&b, 200);
    gb_key(&b, "i8", GB_I8), gb_u8(&b, 0x80);
    gb_key(&b, "u16", GB_U16), gb_u16(&b, 65535);
    gb_key(&b, "i16", GB_I16), gb_u16(&b, 0x8000);
    gb_key(&b, "u32", GB_U32), gb_u32(&b, UINT32_MAX);
    gb_key(&b, "i32", GB_I32), gb_u32(&b, 0x80000000u);
    gb_key(&b, "u64", GB_U64), gb_u64(&b, UINT64_MAX);
    gb_key(&b, "i64", GB_I64), gb_u64(&b, UINT64_C(1) << 63);
    gb_key_f32(&b, "f32", -0.5f);
    double d = 1e300;
    gb_key(&b, "f64", GB_F64), gb_put(&b, &d, 8);
    gb_key_bool(&b, "yes", 1);
    gb_key_string(&b, "empty", "");
    uint8_t *block;
    brim_model_file *file = open_good(&b, &block);
    static const struct {
        const char *key;
        int64_t value;
    } integers[] = {{"u8", 200},         {"i8", -128},       {"u16", 65535},    {"i16", -32768},
                    {"u32", UINT32_MAX}, {"i32", INT32_MIN}, {"i64", INT64_MIN}};
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        const brim_meta *meta = brim_model_file_meta(file, integers[i].key);
        int64_t value;
        uint64_t positive;
        assert_int_equal(brim_meta_i64(&value, file, meta, 0), BRIM_OK);
        assert_true(value == integers[i].value);
        brim_status status = brim_meta_u64(&positive, file, meta, 0);
        assert_int_equal(status, value < 0 ? BRIM_FORMAT : BRIM_OK);
        double as_float;
        assert_int_equal(brim_meta_f64(&as_float, file, meta, 0), BRIM_OK);
        assert_true(as_float == (double)integers[i].value);
    }
    uint64_t u;
    int64_t i;
    double f;
    bool yes = false;
    const char *text;
    size_t size = 1;
    assert_int_equal(brim_meta_u64(&u, file, brim_model_file_meta(file, "u64"), 0), BRIM_OK);
    assert_true(u == UINT64_MAX);
    assert_int_equal(brim_meta_i64(&i, file, brim_model_file_meta(file, "u64"), 0), BRIM_FORMAT);
    assert_string_equal(brim_last_id(), "gguf.value");
    assert_int_equal(brim_meta_u64(&u, file, brim_model_file_meta(file, "f32"), 0), BRIM_FORMAT);
    assert_int_equal(brim_meta_f64(&f, file, brim_model_file_meta(file, "f32"), 0), BRIM_OK);
    assert_true(f == -0.5);
    assert_int_equal(brim_meta_f64(&f, file, brim_model_file_meta(file, "f64"), 0), BRIM_OK);
    assert_true(f == 1e300);
    assert_int_equal(brim_meta_bool(&yes, file, brim_model_file_meta(file, "yes"), 0), BRIM_OK);
    assert_true(yes);
    assert_int_equal(brim_meta_bool(&yes, file, brim_model_file_meta(file, "u8"), 0), BRIM_FORMAT);
    assert_int_equal(brim_meta_u64(&u, file, brim_model_file_meta(file, "yes"), 0), BRIM_FORMAT);
    assert_int_equal(brim_meta_string(&text, &size, file, brim_model_file_meta(file, "empty"), 0),
                     BRIM_OK);
    assert_int_equal(size, 0);
    assert_int_equal(brim_meta_string(&text, &size, file, brim_model_file_meta(file, "u8"), 0),
                     BRIM_FORMAT);
    assert_null(brim_model_file_meta(file, "absent"));
    assert_null(brim_model_file_meta_at(file, 12));
    close_good(file, block, &b);
}

static void gguf_reads_arrays_by_index(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_array(&b, "strings", GB_STRING, 1000);
    char text[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "%.*s%d", i % 7, "-------", i);
        gb_string(&b, text);
    }
    gb_key_array(&b, "numbers", GB_I16, 3);
    gb_u16(&b, 1), gb_u16(&b, 0xffff), gb_u16(&b, 3);
    gb_key_array(&b, "nothing", GB_STRING, 0);
    uint8_t *block;
    brim_model_file *file = open_good(&b, &block);
    const brim_meta *strings = brim_model_file_meta(file, "strings");
    assert_int_equal(strings->count, 1000);
    for (int i = 999; i >= 0; i -= 37) {
        const char *found;
        size_t size;
        snprintf(text, sizeof text, "%.*s%d", i % 7, "-------", i);
        assert_int_equal(brim_meta_string(&found, &size, file, strings, (uint64_t)i), BRIM_OK);
        assert_int_equal(size, strlen(text));
        assert_memory_equal(found, text, size);
    }
    const char *found;
    size_t size;
    assert_int_equal(brim_meta_string(&found, &size, file, strings, 1000), BRIM_USAGE);
    int64_t value;
    brim_meta copy = *brim_model_file_meta(file, "numbers"); /* a copy serves as well */
    assert_int_equal(brim_meta_i64(&value, file, &copy, 1), BRIM_OK);
    assert_int_equal(value, -1);
    assert_int_equal(brim_meta_i64(&value, file, brim_model_file_meta(file, "nothing"), 0),
                     BRIM_USAGE);
    close_good(file, block, &b);
}

static void gguf_finds_each_of_many_keys_and_tensors(void **state)
{
    enum { COUNT = 3000 };
    gguf_builder b = gb_start(3);
    char name[32];
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "key.%u", i * 7919u % COUNT);
        gb_key_u32(&b, name, i);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "blk.%u.w", i * 7919u % COUNT);
        gb_tensor(&b, name, 0, 8, 0, 32ull * i);
    }
    finish_data(&b, 32 * COUNT);
    uint8_t *block;
    brim_model_file *file = open_good(&b, &block);
    assert_int_equal(brim_model_file_tensor_count(file), COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t value;
        snprintf(name, sizeof name, "key.%u", i * 7919u % COUNT);
        assert_int_equal(brim_meta_u64(&value, file, brim_model_file_meta(file, name), 0), BRIM_OK);
        assert_int_equal(value, i);
        snprintf(name, sizeof name, "blk.%u.w", i * 7919u % COUNT);
        const brim_tensor *tensor = brim_model_file_tensor(file, name);
        assert_ptr_equal(tensor, brim_model_file_tensor_at(file, i));
        assert_int_equal(((const uint8_t *)tensor->data)[1], (32 * i + 1) & 255);
    }
    assert_null(brim_model_file_tensor(file, "blk.3000.w"));
    close_good(file, block, &b);
}

static void gguf_describes_a_tensor_of_four_dimensions(void **state)
{
    gguf_builder b = with_key();
    b.tensor_count = 1;
    gb_string(&b, "t");
    gb_u32(&b, 4), gb_u64(&b, 64), gb_u64(&b, 3), gb_u64(&b, 2), gb_u64(&b, 5);
    gb_u32(&b, 3 /* Q4_1 */), gb_u64(&b, 0);
    finish_data(&b, 2 * 20 * 30);
    uint8_t *block;
    brim_model_file *file = open_good(&b, &block);
    const brim_tensor *t = brim_model_file_tensor(file, "t");
    assert_int_equal(t->type, BRIM_DTYPE_Q4_1);
    assert_int_equal(t->row_count, 30);
    assert_int_equal(t->row_bytes, 40);
    assert_int_equal(t->size, 1200);
    assert_ptr_equal(t->data, block + t->file_offset);
    close_good(file, block, &b);
}

/* ---- memory ---- */

static void gguf_leaks_nothing_when_any_allocation_fails(void **state)
{
    gguf_builder b = with_key();
    gb_key_array(&b, "a", GB_STRING, 2);
    gb_string(&b, "x"), gb_string(&b, "y");
    for (int i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "k.%d", i);
        gb_key_u32(&b, key, 1);
    }
    gb_tensor(&b, "t", 0, 8, 0, 0);
    finish_data(&b, 32);
    gb_patch_counts(&b);
    brim__memory_fail_at(ctx, 0);
    brim_model_file *file;
    assert_int_equal(brim_model_file_open_memory(&file, ctx, b.data, b.size), BRIM_OK);
    uint64_t count = brim__memory_fail_at(ctx, 0);
    brim_model_file_close(file);
    assert_true(count > 5);
    for (uint64_t i = 1; i <= count; i++) {
        brim__memory_fail_at(ctx, i);
        assert_int_equal(brim_model_file_open_memory(&file, ctx, b.data, b.size), BRIM_NO_MEMORY);
        assert_null(file);
        assert_int_equal(brim_context_bytes(ctx), 0);
    }
    brim__memory_fail_at(ctx, 0);
    gb_done(&b);
}

/* A hostile file of many claims makes the reader allocate in proportion to its own bytes. */
static void gguf_allocates_in_proportion_to_the_file(void **state)
{
    gguf_builder b = gb_start(3);
    gb_key_array(&b, "a", GB_STRING, 100000);
    for (int i = 0; i < 100000; i++)
        gb_u64(&b, 0);
    uint8_t *block;
    size_t before = brim_context_bytes_peak(ctx);
    brim_model_file *file = open_good(&b, &block);
    assert_true(brim_context_bytes_peak(ctx) - before < b.size);
    close_good(file, block, &b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_rejects_an_empty_file),
        cmocka_unit_test(gguf_rejects_another_magic),
        cmocka_unit_test(gguf_names_other_formats),
        cmocka_unit_test(gguf_refuses_version_1_by_name),
        cmocka_unit_test(gguf_refuses_version_4_by_name),
        cmocka_unit_test(gguf_refuses_big_endian_by_name),
        cmocka_unit_test(gguf_rejects_a_misaligned_block_of_memory),
        cmocka_unit_test(gguf_accepts_version_2_and_no_keys),
        cmocka_unit_test(gguf_rejects_a_file_cut_at_any_byte),
        cmocka_unit_test(gguf_rejects_key_count_beyond_the_bytes_left),
        cmocka_unit_test(gguf_rejects_tensor_count_beyond_the_bytes_left),
        cmocka_unit_test(gguf_rejects_more_keys_than_it_supports),
        cmocka_unit_test(gguf_rejects_array_count_whose_bytes_overflow),
        cmocka_unit_test(gguf_rejects_string_array_count_beyond_the_bytes_left),
        cmocka_unit_test(gguf_rejects_string_longer_than_the_file),
        cmocka_unit_test(gguf_rejects_string_of_an_array_longer_than_the_file),
        cmocka_unit_test(gguf_rejects_key_longer_than_the_file),
        cmocka_unit_test(gguf_rejects_empty_key),
        cmocka_unit_test(gguf_rejects_key_of_65536_bytes),
        cmocka_unit_test(gguf_accepts_key_of_65535_bytes),
        cmocka_unit_test(gguf_rejects_key_with_a_zero_byte),
        cmocka_unit_test(gguf_rejects_key_with_an_escape_sequence),
        cmocka_unit_test(gguf_rejects_key_that_is_not_utf8),
        cmocka_unit_test(gguf_rejects_duplicate_key),
        cmocka_unit_test(gguf_rejects_unknown_value_type),
        cmocka_unit_test(gguf_rejects_unknown_array_item_type),
        cmocka_unit_test(gguf_refuses_nested_arrays_by_name),
        cmocka_unit_test(gguf_rejects_bool_that_is_neither_0_nor_1),
        cmocka_unit_test(gguf_rejects_bad_alignment),
        cmocka_unit_test(gguf_rejects_alignment_of_another_type),
        cmocka_unit_test(gguf_places_data_by_the_alignment),
        cmocka_unit_test(gguf_rejects_alignment_that_puts_data_past_the_end),
        cmocka_unit_test(gguf_rejects_empty_tensor_name),
        cmocka_unit_test(gguf_rejects_tensor_name_of_64_bytes),
        cmocka_unit_test(gguf_rejects_tensor_name_with_a_zero_byte),
        cmocka_unit_test(gguf_rejects_duplicate_tensor_name),
        cmocka_unit_test(gguf_rejects_dimension_counts_of_0_and_5),
        cmocka_unit_test(gguf_rejects_a_dimension_of_zero),
        cmocka_unit_test(gguf_rejects_dimensions_whose_product_overflows),
        cmocka_unit_test(gguf_rejects_a_negative_dimension),
        cmocka_unit_test(gguf_rejects_a_tensor_size_that_overflows),
        cmocka_unit_test(gguf_rejects_rows_that_are_no_multiple_of_the_block),
        cmocka_unit_test(gguf_refuses_other_tensor_types_by_name),
        cmocka_unit_test(gguf_rejects_unaligned_tensor_offset),
        cmocka_unit_test(gguf_rejects_tensor_past_end_of_file),
        cmocka_unit_test(gguf_rejects_tensor_offset_that_overflows),
        cmocka_unit_test(gguf_rejects_overlapping_tensors),
        cmocka_unit_test(gguf_accepts_tensors_in_any_order_with_gaps),
        cmocka_unit_test(gguf_reads_every_type_of_value),
        cmocka_unit_test(gguf_reads_arrays_by_index),
        cmocka_unit_test(gguf_finds_each_of_many_keys_and_tensors),
        cmocka_unit_test(gguf_describes_a_tensor_of_four_dimensions),
        cmocka_unit_test(gguf_leaks_nothing_when_any_allocation_fails),
        cmocka_unit_test(gguf_allocates_in_proportion_to_the_file),
    };
    return cmocka_run_group_tests_name("gguf", tests, make_context, check_context);
}
