/* kernels_avx2.h: the bodies for CPUs with AVX2, FMA and F16C. */
#ifndef BRIM_KERNELS_AVX2_H
#define BRIM_KERNELS_AVX2_H

#include "kernels/cpu/matmul_list.h"

extern const brim__kernels brim__kernels_avx2;

#define DECLARE_AVX2(type, act) BRIM__MATMUL_DECLARE(avx2, type, act)
BRIM__MATMUL_LIST(DECLARE_AVX2)
#undef DECLARE_AVX2

#endif
