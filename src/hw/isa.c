/* isa.c: which instruction set the kernels use here.
 *
 * The levels are sets of flags that always come together on the CPUs that have a body written for
 * them; a CPU that lacks one flag of a level is a CPU of the level below. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hw/hw.h"

static const char *const isa_names[] = {"scalar", "avx2", "avx512"};
_Static_assert(sizeof isa_names / sizeof *isa_names == BRIM_ISA_COUNT, "a name for each set");

static const char *const flag_names[] = {
#define FLAG_NAME(name, text) text,
    BRIM__CPU_FLAG_LIST(FLAG_NAME)
#undef FLAG_NAME
};
_Static_assert(BRIM__CPU_FLAG_COUNT < 63, "flags and the bit that says they were asked fit a word");

static const uint64_t isa_flags[BRIM_ISA_COUNT] = {
    [BRIM_ISA_AVX2] = BRIM__CPU_BIT(AVX2) | BRIM__CPU_BIT(FMA) | BRIM__CPU_BIT(F16C),
    [BRIM_ISA_AVX512] = BRIM__CPU_BIT(AVX2) | BRIM__CPU_BIT(FMA) | BRIM__CPU_BIT(F16C) |
                        BRIM__CPU_BIT(AVX512F) | BRIM__CPU_BIT(AVX512BW) | BRIM__CPU_BIT(AVX512DQ) |
                        BRIM__CPU_BIT(AVX512VL) | BRIM__CPU_BIT(AVX512_VNNI),
};

const char *brim_isa_name(brim_isa isa)
{
    return (unsigned)isa < BRIM_ISA_COUNT ? isa_names[isa] : "unknown";
}

void brim__cpu_name_clean(char *out, size_t size, const char *name)
{
    size_t used = 0;
    for (const char *p = name; *p && used + 1 < size; p++) {
        bool space = *p == ' ';
        if (*p < ' ' || *p > '~' || (space && (used == 0 || out[used - 1] == ' ')))
            continue;
        out[used++] = *p;
    }
    while (used && out[used - 1] == ' ')
        used--;
    out[used] = 0;
}

uint64_t brim__cpu_flags(void)
{
    static _Atomic uint64_t kept;
    const uint64_t asked = UINT64_C(1) << 63;
    uint64_t flags = atomic_load_explicit(&kept, memory_order_relaxed);
    if (!(flags & asked)) {
        flags = brim__cpu_detect() | asked;
        atomic_store_explicit(&kept, flags, memory_order_relaxed);
    }
    return flags & ~asked;
}

void brim__cpu_flags_text(char *out, size_t size, uint64_t flags)
{
    size_t used = 0;
    out[0] = 0;
    for (unsigned i = 0; i < BRIM__CPU_FLAG_COUNT; i++) {
        size_t length = strlen(flag_names[i]);
        if (!(flags >> i & 1) || used + length + 2 > size)
            continue;
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? " " : "", flag_names[i]);
    }
}

brim_isa brim__isa_from_flags(uint64_t flags, const char *wanted)
{
    brim_isa best = BRIM_ISA_SCALAR;
    for (brim_isa isa = BRIM_ISA_SCALAR; isa < BRIM_ISA_COUNT; isa++)
        if ((flags & isa_flags[isa]) == isa_flags[isa])
            best = isa;
    for (brim_isa isa = BRIM_ISA_SCALAR; wanted && isa < best; isa++)
        if (strcmp(wanted, isa_names[isa]) == 0)
            return isa;
    return best;
}

brim_isa brim_isa_best(void)
{
    return brim__isa_from_flags(brim__cpu_flags(), getenv("BRIM_ISA"));
}
