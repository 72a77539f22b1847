/* matmul_list.h: every matrix product that has a vectorised body, by weight type and format of
 * activations; each set's file makes one function a line from its templates. */
#ifndef BRIM_KERNELS_MATMUL_LIST_H
#define BRIM_KERNELS_MATMUL_LIST_H

#include "kernels/cells.h"

#define BRIM__MATMUL_QUANTISED(X, act)                                                             \
    X(Q4_0, act)                                                                                   \
    X(Q4_1, act)                                                                                   \
    X(Q5_0, act)                                                                                   \
    X(Q5_1, act)                                                                                   \
    X(Q8_0, act)                                                                                   \
    X(Q4_K, act)                                                                                   \
    X(Q5_K, act)                                                                                   \
    X(Q6_K, act)

#define BRIM__MATMUL_LIST(X)                                                                       \
    BRIM__MATMUL_QUANTISED(X, Q16)                                                                 \
    BRIM__MATMUL_QUANTISED(X, F32)                                                                 \
    X(F32, F32)                                                                                    \
    X(F16, F32)                                                                                    \
    X(BF16, F32)

#define BRIM__MATMUL_DECLARE(set, type, act)                                                       \
    void brim__##set##_matmul_##type##_##act(                                                      \
        float *out, size_t out_stride, const brim__tiling *t, const void *tiles,                   \
        uint32_t row_block_count, const void *x, size_t x_row_bytes, uint32_t row_count);
#define BRIM__MATMUL_ENTRY(set, type, act)                                                         \
    [BRIM__ACT_##act][BRIM_DTYPE_##type] = brim__##set##_matmul_##type##_##act,

#endif
