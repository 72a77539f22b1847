/* test_images.c: the embedded device images are what their table says, and the right one is found.
 */
#include "kernels/cuda/images.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void every_image_is_machine_code_or_terminated_ptx(void **state)
{
    for (size_t i = 0; i < brim__cuda_image_count; i++) {
        const brim__cuda_image *image = &brim__cuda_images[i];
        const char *text = image->data;
        assert_true(image->size > 64);
        assert_int_equal((uintptr_t)image->data % 64, 0);
        if (strncmp(image->arch, "sm_", 3) == 0) {
            assert_memory_equal(text, "\177ELF", 4);
        } else {
            assert_int_equal(strlen(text), image->size);
            assert_non_null(strstr(text, ".version"));
            assert_non_null(strstr(text, ".entry"));
        }
    }
}

static void an_exact_image_is_found_on_its_capability_alone(void **state)
{
    for (size_t i = 0; i < brim__cuda_image_count; i++) {
        const brim__cuda_image *image = &brim__cuda_images[i];
        if (!image->exact) {
            continue;
        }
        assert_ptr_equal(brim__cuda_image_find(image->name, image->capability, false), image);
        assert_ptr_not_equal(brim__cuda_image_find(image->name, image->capability, true), image);
        assert_ptr_not_equal(brim__cuda_image_find(image->name, image->capability + 10, false),
                             image);
        assert_ptr_not_equal(brim__cuda_image_find(image->name, image->capability - 1, false),
                             image);
    }
}

static void a_generic_image_is_found_on_every_later_device(void **state)
{
    for (size_t i = 0; i < brim__cuda_image_count; i++) {
        const brim__cuda_image *image = &brim__cuda_images[i];
        if (image->exact) {
            continue;
        }
        assert_ptr_equal(brim__cuda_image_find(image->name, image->capability, true), image);
        assert_ptr_equal(brim__cuda_image_find(image->name, 120, true), image);
        assert_null(brim__cuda_image_find(image->name, image->capability - 1, true));
    }
}

static void an_unknown_name_has_no_image(void **state)
{
    assert_null(brim__cuda_image_find("resident", 90, false));
    assert_null(brim__cuda_image_find("", 90, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_image_is_machine_code_or_terminated_ptx),
        cmocka_unit_test(an_exact_image_is_found_on_its_capability_alone),
        cmocka_unit_test(a_generic_image_is_found_on_every_later_device),
        cmocka_unit_test(an_unknown_name_has_no_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
