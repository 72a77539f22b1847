/* kernels_avx512.h: the bodies for CPUs with AVX-512 F, BW, DQ, VL and VNNI. */
#ifndef BRIM_KERNELS_AVX512_H
#define BRIM_KERNELS_AVX512_H

#include "kernels/cpu/matmul_list.h"

extern const brim__kernels brim__kernels_avx512;

#define DECLARE_AVX512(type, act) BRIM__MATMUL_DECLARE(avx512, type, act)
BRIM__MATMUL_LIST(DECLARE_AVX512)
#undef DECLARE_AVX512

#endif
