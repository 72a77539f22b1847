/* scalar_math.h: the scalar pieces of kernels.h that every body uses for what is left over or
 * happens once a row. Inlined, so that a body built for a set with fused multiply-add needs no
 * call for fmaf(). */
#ifndef BRIM_KERNELS_SCALAR_MATH_H
#define BRIM_KERNELS_SCALAR_MATH_H

#include <math.h>

#include "kernels/cells.h"
#include "kernels/exp_constants.h"

static inline float brim__power_of_two(int exponent) /* -126..127 */
{
    return brim__float_of((uint32_t)(exponent + 127) << 23);
}

static inline float brim__exp_scalar(float x)
{
    if (x != x)
        return x;
    x = x > BRIM__EXP_MIN ? x : BRIM__EXP_MIN;
    x = x < BRIM__EXP_MAX ? x : BRIM__EXP_MAX;
    float k = rintf(x * BRIM__EXP_LOG2E);
    float r = fmaf(k, -BRIM__EXP_LN2_HI, x);
    r = fmaf(k, -BRIM__EXP_LN2_LO, r);
    float p = fmaf(BRIM__EXP_C6, r, BRIM__EXP_C5);
    p = fmaf(p, r, BRIM__EXP_C4);
    p = fmaf(p, r, BRIM__EXP_C3);
    p = fmaf(p, r, BRIM__EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    int exponent = (int)k, first = exponent >> 1;
    return p * brim__power_of_two(first) * brim__power_of_two(exponent - first);
}

static inline float brim__silu_scalar(float x)
{
    return x / (1.0f + brim__exp_scalar(-x));
}

/* The last step of sum16. */
static inline float brim__sum16_tree(const float partial[16])
{
    float v[8];
    for (int j = 0; j < 8; j++)
        v[j] = partial[j] + partial[j + 8];
    for (int width = 4; width >= 1; width /= 2)
        for (int j = 0; j < width; j++)
            v[j] = v[j] + v[j + width];
    return v[0];
}

#endif
