/* stats.c: order statistics of measured values. */
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double brim__quantile(double *values, size_t count, double q)
{
    if (count == 0)
        return NAN;
    qsort(values, count, sizeof *values, compare_doubles);
    if (!(q > 0))
        return values[0];
    double position = q * (double)(count - 1);
    size_t below = (size_t)position;
    if (below >= count - 1)
        return values[count - 1];
    double part = position - (double)below;
    return values[below] + part * (values[below + 1] - values[below]);
}

double brim__median(double *values, size_t count)
{
    return brim__quantile(values, count, 0.5);
}

double brim__spread(double *values, size_t count)
{
    double first = brim__quantile(values, count, 0.25);
    double third = brim__quantile(values, count, 0.75);
    return (third - first) / 2 / brim__median(values, count);
}
