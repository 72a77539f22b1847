/* Status values, messages and the context's life. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"

static void every_status_has_a_name_and_a_text(void **state)
{
    assert_string_equal(brim_status_name(BRIM_FORMAT), "FORMAT");
    assert_string_equal(brim_status_name(BRIM_OK), "OK");
    assert_string_equal(brim_status_name((brim_status)99), "UNKNOWN");
    assert_string_equal(brim_status_text((brim_status)99), "not a status");
    assert_true(strlen(brim_status_text(BRIM_REFUSED)) > 0);
}

static brim_status fail_if_odd(int n)
{
    BRIM_FAIL_IF(n % 2, LIMIT, "test.odd", "%d is odd", n);
    return BRIM_OK;
}

static brim_status pass_on(int n)
{
    BRIM_TRY(fail_if_odd(n));
    return BRIM_OK;
}

static void a_failure_keeps_its_code_message_and_id(void **state)
{
    assert_int_equal(pass_on(4), BRIM_OK);
    assert_int_equal(pass_on(7), BRIM_LIMIT);
    assert_string_equal(brim_last_message(), "7 is odd");
    assert_string_equal(brim_last_id(), "test.odd");
    brim__fail_prefix("file %s", "a.gguf");
    assert_string_equal(brim_last_message(), "file a.gguf: 7 is odd");
    assert_string_equal(brim_last_id(), "test.odd");
}

static void an_overlong_message_is_cut_not_overrun(void **state)
{
    char big[4000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    brim__fail(BRIM_IO, big, "%s", big);
    assert_int_equal(strlen(brim_last_message()), 1023);
    assert_int_equal(strlen(brim_last_id()), 63);
    brim__fail_prefix("%s", big);
    assert_int_equal(strlen(brim_last_message()), 1023);
}

static void fail_elsewhere(void *user)
{
    assert_string_equal(brim_last_message(), "");
    brim__fail(BRIM_IO, "test.other", "from another thread");
}

static void messages_belong_to_their_thread(void **state)
{
    brim_context *ctx;
    assert_int_equal(brim_context_create(&ctx, NULL), BRIM_OK);
    brim__fail(BRIM_IO, "test.mine", "mine");
    brim__thread *thread;
    assert_int_equal(brim__thread_start(&thread, ctx, "other", fail_elsewhere, NULL), BRIM_OK);
    brim__thread_join(thread, ctx);
    assert_string_equal(brim_last_message(), "mine");
    assert_int_equal(brim_context_bytes(ctx), 0);
    brim_context_destroy(ctx);
}

static void the_version_is_that_of_the_header(void **state)
{
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", BRIM_VERSION_MAJOR, BRIM_VERSION_MINOR,
             BRIM_VERSION_PATCH);
    assert_string_equal(brim_version(), expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_and_a_text),
        cmocka_unit_test(a_failure_keeps_its_code_message_and_id),
        cmocka_unit_test(an_overlong_message_is_cut_not_overrun),
        cmocka_unit_test(messages_belong_to_their_thread),
        cmocka_unit_test(the_version_is_that_of_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
