/* Order statistics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

#include "base/stats.h"

static void quantiles_interpolate_between_order_statistics(void **state)
{
    /* The values of R's quantile(x, type = 7). */
    double x[] = {40, 10, 30, 20};
    assert_true(fabs(brim__quantile(x, 4, 0) - (10)) <= 0);
    assert_true(fabs(brim__quantile(x, 4, 0.25) - (17.5)) <= 1e-12);
    assert_true(fabs(brim__quantile(x, 4, 0.5) - (25)) <= 1e-12);
    assert_true(fabs(brim__quantile(x, 4, 0.75) - (32.5)) <= 1e-12);
    assert_true(fabs(brim__quantile(x, 4, 1) - (40)) <= 0);
    assert_true(fabs(brim__quantile(x, 4, 1.5) - (40)) <= 0);
    assert_true(fabs(brim__quantile(x, 4, -1) - (10)) <= 0);
}

static void the_median_of_an_odd_count_is_the_middle(void **state)
{
    double x[] = {9, 1, 5};
    assert_true(fabs(brim__median(x, 3) - (5)) <= 0);
    assert_true(fabs(brim__median(x, 1) - (1)) <= 0); /* sorted by now */
}

static void an_empty_list_has_no_quantile(void **state)
{
    assert_true(isnan(brim__quantile(NULL, 0, 0.5)));
}

static void the_spread_is_half_the_interquartile_range_over_the_median(void **state)
{
    double x[] = {5, 1, 4, 2, 3};
    assert_true(fabs(brim__spread(x, 5) - ((4.0 - 2.0) / 2 / 3)) <= 1e-12);
    double same[] = {7, 7, 7};
    assert_true(fabs(brim__spread(same, 3) - (0)) <= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_interpolate_between_order_statistics),
        cmocka_unit_test(the_median_of_an_odd_count_is_the_middle),
        cmocka_unit_test(an_empty_list_has_no_quantile),
        cmocka_unit_test(the_spread_is_half_the_interquartile_range_over_the_median),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
