/* probe_x86.c: what can be probed on x86-64, and with which bodies. */
#include "hw/hw.h"

#if defined(__x86_64__)

#define AVX2_BASE (BRIM__CPU_BIT(AVX2) | BRIM__CPU_BIT(FMA) | BRIM__CPU_BIT(F16C))
#define AVX512_BASE (BRIM__CPU_BIT(AVX512F) | BRIM__CPU_BIT(AVX512BW) | BRIM__CPU_BIT(AVX512VL))

/* Operations: sums a turn, times products a sum, times two (a multiplication and an addition).
 * The level says which kernels may be compared with the rate: AVX-VNNI alone belongs to no level,
 * and the tile unit sums in an order of its own. */
static const brim__rate_kind kinds[] = {
    {"f32", "scalar", BRIM_ISA_SCALAR, 0, 8 * 2, brim__rate_f32_scalar},
    {"u8s8", "scalar", BRIM_ISA_SCALAR, 0, 4 * 2, brim__rate_u8s8_scalar},
    {"f32", "avx2", BRIM_ISA_AVX2, AVX2_BASE, 10 * 8 * 2, brim__rate_f32_avx2},
    {"f16-to-f32", "avx2", BRIM_ISA_AVX2, AVX2_BASE, 8 * 8 * 2, brim__rate_f16_avx2},
    {"u8s8", "avx2", BRIM_ISA_AVX2, AVX2_BASE, 8 * 32 * 2, brim__rate_u8s8_avx2},
    {"u8s8", "avx-vnni", BRIM_ISA_COUNT, BRIM__CPU_BIT(AVX2) | BRIM__CPU_BIT(AVX_VNNI), 12 * 32 * 2,
     brim__rate_u8s8_avx_vnni},
    {"f32", "avx512", BRIM_ISA_AVX512, AVX512_BASE, 12 * 16 * 2, brim__rate_f32_avx512},
    {"f16-to-f32", "avx512", BRIM_ISA_AVX512, AVX512_BASE, 8 * 16 * 2, brim__rate_f16_avx512},
    {"u8s8", "avx512", BRIM_ISA_AVX512, AVX512_BASE, 8 * 64 * 2, brim__rate_u8s8_avx512},
    {"u8s8", "avx512-vnni", BRIM_ISA_AVX512, AVX512_BASE | BRIM__CPU_BIT(AVX512_VNNI), 12 * 64 * 2,
     brim__rate_u8s8_avx512_vnni},
    {"bf16", "avx512-bf16", BRIM_ISA_AVX512, AVX512_BASE | BRIM__CPU_BIT(AVX512_BF16), 12 * 32 * 2,
     brim__rate_bf16_avx512},
    {"u8s8", "amx-int8", BRIM_ISA_COUNT, BRIM__CPU_BIT(AMX_TILE) | BRIM__CPU_BIT(AMX_INT8),
     4 * 16 * 16 * 64 * 2, brim__rate_u8s8_amx},
    {"bf16", "amx-bf16", BRIM_ISA_COUNT, BRIM__CPU_BIT(AMX_TILE) | BRIM__CPU_BIT(AMX_BF16),
     4 * 16 * 16 * 32 * 2, brim__rate_bf16_amx},
};
_Static_assert(sizeof kinds / sizeof *kinds <= BRIM_HW_RATES_MAX, "a probe has room for each kind");

const brim__rate_kind *brim__rate_kinds(size_t *out_count)
{
    *out_count = sizeof kinds / sizeof *kinds;
    return kinds;
}

bool brim__rate_usable(const brim__rate_kind *kind)
{
    if ((brim__cpu_flags() & kind->flags) != kind->flags)
        return false;
    return !(kind->flags & BRIM__CPU_BIT(AMX_TILE)) || brim__amx_permit();
}

brim__read_body *brim__read_widest(void)
{
    uint64_t flags = brim__cpu_flags();
    if ((flags & AVX512_BASE) == AVX512_BASE)
        return brim__read_avx512;
    return (flags & AVX2_BASE) == AVX2_BASE ? brim__read_avx2 : brim__read_scalar;
}

#endif
