/* probe_avx2.c: the probes' bodies with 32-byte vectors. The functions carry their instruction set
 * themselves, and the caller has asked the CPU. KEEP() makes a register opaque, so that the
 * compiler neither hoists a product out of the loop nor merges equal ones. */
#include "hw/hw.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define KEEP(x) __asm__ volatile("" : "+x"(x))

AVX2 void brim__read_avx2(const void *data, size_t size, uint32_t streams)
{
    size_t part = size / streams;
    for (size_t i = 0; i + 256 <= part; i += 256) {
        for (uint32_t s = 0; s < streams; s++) {
            const __m256i *p = (const __m256i *)((const char *)data + s * part + i);
            for (int k = 0; k < 8; k++) {
                __m256i x = _mm256_load_si256(p + k);
                KEEP(x);
            }
        }
    }
}

/* Ten sums: a multiplier-adder of 4 cycles, two of which start in each cycle, needs eight. */
AVX2 void brim__rate_f32_avx2(uint64_t iterations)
{
    __m256 x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(0.25f), a[10];
#pragma GCC unroll 10
    for (int k = 0; k < 10; k++)
        a[k] = _mm256_setzero_ps();
    for (uint64_t i = 0; i < iterations; i++) {
#pragma GCC unroll 10
        for (int k = 0; k < 10; k++) {
            a[k] = _mm256_fmadd_ps(x, y, a[k]);
            KEEP(a[k]);
        }
    }
}

/* Halves are read from the first cache and widened, as a kernel over f16 weights does. */
AVX2 void brim__rate_f16_avx2(uint64_t iterations)
{
    _Alignas(64) uint16_t halves[8 * 8] = {0};
    __m256 x = _mm256_set1_ps(0.5f), a[8];
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
        a[k] = _mm256_setzero_ps();
    for (uint64_t i = 0; i < iterations; i++) {
        __asm__ volatile("" : : "r"(halves) : "memory");
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            __m256 w = _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(halves + 8 * k)));
            a[k] = _mm256_fmadd_ps(w, x, a[k]);
            KEEP(a[k]);
        }
    }
}

/* Unsigned times signed bytes: pairs to 16 bits, pairs of those to 32 bits, then the sum. */
AVX2 void brim__rate_u8s8_avx2(uint64_t iterations)
{
    __m256i x = _mm256_set1_epi8(100), y = _mm256_set1_epi8(-3), ones = _mm256_set1_epi16(1), a[8];
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
        a[k] = _mm256_setzero_si256();
    for (uint64_t i = 0; i < iterations; i++) {
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            __m256i pairs = _mm256_maddubs_epi16(x, y);
            a[k] = _mm256_add_epi32(a[k], _mm256_madd_epi16(pairs, ones));
            KEEP(a[k]);
            KEEP(x);
        }
    }
}

__attribute__((target("avx2,avxvnni"))) void brim__rate_u8s8_avx_vnni(uint64_t iterations)
{
    __m256i x = _mm256_set1_epi8(100), y = _mm256_set1_epi8(-3), a[12];
#pragma GCC unroll 12
    for (int k = 0; k < 12; k++)
        a[k] = _mm256_setzero_si256();
    for (uint64_t i = 0; i < iterations; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < 12; k++) {
            a[k] = _mm256_dpbusd_avx_epi32(a[k], x, y);
            KEEP(a[k]);
        }
    }
}

#endif
