/* Mapping, reading and writing files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

static char folder[] = "/tmp/brim-test-file-XXXXXX";
static brim_context *ctx;

static const char *in_folder(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    assert_int_equal(brim_context_create(&ctx, NULL), BRIM_OK);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            unlink(in_folder(entry->d_name));
    closedir(dir);
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
    return rmdir(folder);
}

static void what_was_written_is_read_and_mapped(void **state)
{
    size_t size = 200000;
    char *data = brim__alloc(ctx, size);
    for (size_t i = 0; i < size; i++)
        data[i] = (char)(i * 7);
    assert_int_equal(brim__write_file(in_folder("a"), data, size), BRIM_OK);
    char *text;
    size_t text_size;
    assert_int_equal(brim__read_file(&text, &text_size, ctx, in_folder("a"), size), BRIM_OK);
    assert_int_equal(text_size, size);
    assert_memory_equal(text, data, size);
    assert_int_equal(text[size], 0);
    brim__map map;
    assert_int_equal(brim__map_open(&map, in_folder("a")), BRIM_OK);
    assert_int_equal(map.size, size);
    assert_memory_equal(map.data, data, size);
    brim__map_release(&map, 5000, 100000);
    assert_memory_equal(map.data, data, size);
    brim__map_close(&map);
    brim__free(ctx, text);
    brim__free(ctx, data);
}

static void an_empty_file_maps_to_nothing(void **state)
{
    assert_int_equal(brim__write_file(in_folder("empty"), "", 0), BRIM_OK);
    brim__map map;
    assert_int_equal(brim__map_open(&map, in_folder("empty")), BRIM_OK);
    assert_null(map.data);
    assert_int_equal(map.size, 0);
    brim__map_close(&map);
    char *text;
    size_t size;
    assert_int_equal(brim__read_file(&text, &size, ctx, in_folder("empty"), 10), BRIM_OK);
    assert_string_equal(text, "");
    brim__free(ctx, text);
}

static void absent_files_and_folders_are_told_apart(void **state)
{
    brim__map map;
    assert_int_equal(brim__map_open(&map, in_folder("none")), BRIM_NOT_FOUND);
    assert_string_equal(brim_last_id(), "file.absent");
    assert_int_equal(brim__map_open(&map, folder), BRIM_IO);
    assert_string_equal(brim_last_id(), "file.kind");
    char *text;
    size_t size;
    assert_int_equal(brim__read_file(&text, &size, ctx, in_folder("none"), 1), BRIM_NOT_FOUND);
    assert_int_equal(brim__read_file(&text, &size, ctx, folder, 1), BRIM_IO);
    assert_string_equal(brim_last_id(), "file.read");
    assert_int_equal(brim__write_file(in_folder("none/x"), "x", 1), BRIM_IO);
}

static void a_file_above_the_limit_is_refused(void **state)
{
    assert_int_equal(brim__write_file(in_folder("b"), "12345", 5), BRIM_OK);
    char *text;
    size_t size;
    assert_int_equal(brim__read_file(&text, &size, ctx, in_folder("b"), 4), BRIM_LIMIT);
    assert_null(text);
    assert_int_equal(brim__read_file(&text, &size, ctx, in_folder("b"), 5), BRIM_OK);
    brim__free(ctx, text);
}

static void a_failed_write_leaves_no_temporary_file(void **state)
{
    /* A folder that is not empty cannot be replaced by a file. */
    assert_int_equal(brim__write_file(folder, "x", 1), BRIM_IO);
    char temporary[400];
    snprintf(temporary, sizeof temporary, "%s.tmp.%ld", folder, (long)getpid());
    assert_int_equal(access(temporary, F_OK), -1);
}

static void each_allocation_of_a_read_may_fail(void **state)
{
    size_t size = 300000;
    char *data = brim__calloc(ctx, size, 1);
    assert_int_equal(brim__write_file(in_folder("c"), data, size), BRIM_OK);
    brim__free(ctx, data);
    for (uint64_t n = 1;; n++) {
        char *text;
        brim__memory_fail_at(ctx, n);
        brim_status status = brim__read_file(&text, &size, ctx, in_folder("c"), size);
        brim__memory_fail_at(ctx, 0);
        if (status == BRIM_OK) {
            assert_true(n > 1);
            brim__free(ctx, text);
            break;
        }
        assert_int_equal(status, BRIM_NO_MEMORY);
        assert_null(text);
        assert_int_equal(brim_context_bytes(ctx), 0);
        size = 300000;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read_and_mapped),
        cmocka_unit_test(an_empty_file_maps_to_nothing),
        cmocka_unit_test(absent_files_and_folders_are_told_apart),
        cmocka_unit_test(a_file_above_the_limit_is_refused),
        cmocka_unit_test(a_failed_write_leaves_no_temporary_file),
        cmocka_unit_test(each_allocation_of_a_read_may_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
