/* dispatch.c: the tables of bodies, one for an instruction set. A set's table is handed out only
 * where this CPU and operating system have the set. */
#include "kernels/kernels.h"

#include "hw/hw.h"
#include "kernels/ref/kernels_ref.h"
#if defined(__x86_64__)
#include "kernels/cpu/kernels_avx2.h"
#include "kernels/cpu/kernels_avx512.h"
#endif

static const brim__kernels reference = {
    .isa = BRIM_ISA_SCALAR,
#define REFERENCE_F32(name, id, block, bytes) [BRIM__ACT_F32][id] = brim__ref_matmul_f32,
#define REFERENCE_Q16(name, id, block, bytes)                                                      \
    [BRIM__ACT_Q16][id] = (block) > 1 ? brim__ref_matmul_q16 : NULL,
    .matmul = {BRIM_DTYPE_LIST(REFERENCE_F32) BRIM_DTYPE_LIST(REFERENCE_Q16)},
    .rms_norm = brim__ref_rms_norm,
    .quantize = brim__ref_quantize,
    .add = brim__ref_add,
    .silu_mul = brim__ref_silu_mul,
    .rope = brim__ref_rope,
    .attn_split = brim__ref_attn_split,
    .attn_combine = brim__ref_attn_combine,
    .kv_store = brim__ref_kv_store,
    .argmax = brim__ref_argmax,
    .exp = brim__ref_exp,
};

const brim__kernels *brim__kernels_get(brim_isa isa)
{
    if (isa > brim__isa_from_flags(brim__cpu_flags(), NULL))
        return NULL;
    switch (isa) {
    case BRIM_ISA_SCALAR:
        return &reference;
#if defined(__x86_64__)
    case BRIM_ISA_AVX2:
        return &brim__kernels_avx2;
    case BRIM_ISA_AVX512:
        return &brim__kernels_avx512;
#endif
    default:
        return NULL;
    }
}
