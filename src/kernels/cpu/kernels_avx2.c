/* kernels_avx2.c: the table of the AVX2 bodies. */
#if defined(__x86_64__)
#include "kernels/cpu/kernels_avx2.h"

#include "kernels/cpu/vector_avx2.h"

#define ENTRY(type, act) BRIM__MATMUL_ENTRY(avx2, type, act)
const brim__kernels brim__kernels_avx2 = {
    .isa = BRIM_ISA_AVX2,
    .matmul = {BRIM__MATMUL_LIST(ENTRY)},
    .rms_norm = brim__avx2_rms_norm,
    .quantize = brim__avx2_quantize,
    .add = brim__avx2_add,
    .silu_mul = brim__avx2_silu_mul,
    .rope = brim__avx2_rope,
    .attn_split = brim__avx2_attn_split,
    .attn_combine = brim__avx2_attn_combine,
    .kv_store = brim__avx2_kv_store,
    .argmax = brim__avx2_argmax,
    .exp = brim__avx2_exp,
};

#endif
