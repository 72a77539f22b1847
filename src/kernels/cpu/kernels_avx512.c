/* kernels_avx512.c: the table of the AVX-512 bodies. */
#if defined(__x86_64__)
#include "kernels/cpu/kernels_avx512.h"

#include "kernels/cpu/vector_avx512.h"

#define ENTRY(type, act) BRIM__MATMUL_ENTRY(avx512, type, act)
const brim__kernels brim__kernels_avx512 = {
    .isa = BRIM_ISA_AVX512,
    .matmul = {BRIM__MATMUL_LIST(ENTRY)},
    .rms_norm = brim__avx512_rms_norm,
    .quantize = brim__avx512_quantize,
    .add = brim__avx512_add,
    .silu_mul = brim__avx512_silu_mul,
    .rope = brim__avx512_rope,
    .attn_split = brim__avx512_attn_split,
    .attn_combine = brim__avx512_attn_combine,
    .kv_store = brim__avx512_kv_store,
    .argmax = brim__avx512_argmax,
    .exp = brim__avx512_exp,
};

#endif
