/* stats.h: the order statistics that every benchmark prints. */
#ifndef BRIM_BASE_STATS_H
#define BRIM_BASE_STATS_H

#include <stddef.h>

/* The q-quantile (0..1) with linear interpolation between order statistics; sorts `values`.
 * NaN for an empty list. */
double brim__quantile(double *values, size_t count, double q);
/* The median; sorts `values`. */
double brim__median(double *values, size_t count);
/* Half the distance from the first to the third quartile, over the median: the spread that is
 * printed beside a median. Sorts `values`. */
double brim__spread(double *values, size_t count);

#endif
