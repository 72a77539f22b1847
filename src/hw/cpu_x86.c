/* cpu_x86.c: what an x86-64 CPU says of itself: cpuid, and xgetbv for what the operating system
 * saves. Leaves and bits as in the Intel Software Developer's Manual, volume 2A, CPUID, and
 * "Intel Architecture Instruction Set Extensions Programming Reference". */
#include "hw/hw.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <string.h>

/* State components of XCR0 that a flag needs: SSE and AVX registers; the AVX-512 masks and
 * registers; the tiles. */
enum { STATE_AVX = 0x6, STATE_AVX512 = 0xE6, STATE_AMX = 0x60000 };

enum { EAX, EBX, ECX, EDX };

typedef struct flag_place {
    uint8_t flag, leaf, subleaf, reg, bit;
    uint32_t state;
} flag_place;

static const flag_place places[] = {
    {BRIM__CPU_SSE4_2, 1, 0, ECX, 20, 0},
    {BRIM__CPU_AVX, 1, 0, ECX, 28, STATE_AVX},
    {BRIM__CPU_F16C, 1, 0, ECX, 29, STATE_AVX},
    {BRIM__CPU_FMA, 1, 0, ECX, 12, STATE_AVX},
    {BRIM__CPU_AVX2, 7, 0, EBX, 5, STATE_AVX},
    {BRIM__CPU_AVX_VNNI, 7, 1, EAX, 4, STATE_AVX},
    {BRIM__CPU_AVX512F, 7, 0, EBX, 16, STATE_AVX512},
    {BRIM__CPU_AVX512DQ, 7, 0, EBX, 17, STATE_AVX512},
    {BRIM__CPU_AVX512BW, 7, 0, EBX, 30, STATE_AVX512},
    {BRIM__CPU_AVX512VL, 7, 0, EBX, 31, STATE_AVX512},
    {BRIM__CPU_AVX512_VNNI, 7, 0, ECX, 11, STATE_AVX512},
    {BRIM__CPU_AVX512_BF16, 7, 1, EAX, 5, STATE_AVX512},
    {BRIM__CPU_AVX512_FP16, 7, 0, EDX, 23, STATE_AVX512},
    {BRIM__CPU_AMX_BF16, 7, 0, EDX, 22, STATE_AMX},
    {BRIM__CPU_AMX_TILE, 7, 0, EDX, 24, STATE_AMX},
    {BRIM__CPU_AMX_INT8, 7, 0, EDX, 25, STATE_AMX},
};

/* XCR0: the register states that the operating system saves; 0 without OSXSAVE. */
static uint64_t saved_states(void)
{
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx >> 27 & 1))
        return 0;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

uint64_t brim__cpu_detect(void)
{
    uint64_t states = saved_states(), flags = 0;
    unsigned leaf1[4] = {0}, leaf7[2][4] = {{0}};
    __get_cpuid_count(1, 0, &leaf1[0], &leaf1[1], &leaf1[2], &leaf1[3]);
    /* EAX of leaf 7.0 is the last sub-leaf. */
    if (__get_cpuid_count(7, 0, &leaf7[0][0], &leaf7[0][1], &leaf7[0][2], &leaf7[0][3]) &&
        leaf7[0][EAX] >= 1)
        __get_cpuid_count(7, 1, &leaf7[1][0], &leaf7[1][1], &leaf7[1][2], &leaf7[1][3]);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const flag_place *p = &places[i];
        const unsigned *regs = p->leaf == 1 ? leaf1 : leaf7[p->subleaf];
        if ((regs[p->reg] >> p->bit & 1) && (states & p->state) == p->state)
            flags |= UINT64_C(1) << p->flag;
    }
    return flags;
}

void brim__cpu_name(char *out, size_t size)
{
    unsigned words[12] = {0};
    char brand[sizeof words + 1] = {0};
    for (unsigned i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                    &words[4 * i + 3]);
    memcpy(brand, words, sizeof words);
    brim__cpu_name_clean(out, size, brand[0] ? brand : "x86-64");
}

#endif
