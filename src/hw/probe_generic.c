/* probe_generic.c: what can be probed on a CPU that has no bodies of its own. */
#include "hw/hw.h"

#if !defined(__x86_64__)

/* Operations: sums a turn, times two (a multiplication and an addition). */
static const brim__rate_kind kinds[] = {
    {"f32", "scalar", BRIM_ISA_SCALAR, 0, 8 * 2, brim__rate_f32_scalar},
    {"u8s8", "scalar", BRIM_ISA_SCALAR, 0, 4 * 2, brim__rate_u8s8_scalar},
};

const brim__rate_kind *brim__rate_kinds(size_t *out_count)
{
    *out_count = sizeof kinds / sizeof *kinds;
    return kinds;
}

bool brim__rate_usable(const brim__rate_kind *kind)
{
    return kind->flags == 0;
}

brim__read_body *brim__read_widest(void)
{
    return brim__read_scalar;
}

#endif
