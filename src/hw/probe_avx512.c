/* probe_avx512.c: the probes' bodies with 64-byte vectors; see probe_avx2.c. */
#include "hw/hw.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define AVX512_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define KEEP(x) __asm__ volatile("" : "+v"(x))

AVX512 void brim__read_avx512(const void *data, size_t size, uint32_t streams)
{
    size_t part = size / streams;
    for (size_t i = 0; i + 256 <= part; i += 256) {
        for (uint32_t s = 0; s < streams; s++) {
            const __m512i *p = (const __m512i *)((const char *)data + s * part + i);
            for (int k = 0; k < 4; k++) {
                __m512i x = _mm512_load_si512(p + k);
                KEEP(x);
            }
        }
    }
}

AVX512 void brim__rate_f32_avx512(uint64_t iterations)
{
    __m512 x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(0.25f), a[12];
#pragma GCC unroll 12
    for (int k = 0; k < 12; k++)
        a[k] = _mm512_setzero_ps();
    for (uint64_t i = 0; i < iterations; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < 12; k++) {
            a[k] = _mm512_fmadd_ps(x, y, a[k]);
            KEEP(a[k]);
        }
    }
}

AVX512 void brim__rate_f16_avx512(uint64_t iterations)
{
    _Alignas(64) uint16_t halves[8 * 16] = {0};
    __m512 x = _mm512_set1_ps(0.5f), a[8];
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
        a[k] = _mm512_setzero_ps();
    for (uint64_t i = 0; i < iterations; i++) {
        __asm__ volatile("" : : "r"(halves) : "memory");
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            __m512 w = _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(halves + 16 * k)));
            a[k] = _mm512_fmadd_ps(w, x, a[k]);
            KEEP(a[k]);
        }
    }
}

AVX512 void brim__rate_u8s8_avx512(uint64_t iterations)
{
    __m512i x = _mm512_set1_epi8(100), y = _mm512_set1_epi8(-3), ones = _mm512_set1_epi16(1), a[8];
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
        a[k] = _mm512_setzero_si512();
    for (uint64_t i = 0; i < iterations; i++) {
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            __m512i pairs = _mm512_maddubs_epi16(x, y);
            a[k] = _mm512_add_epi32(a[k], _mm512_madd_epi16(pairs, ones));
            KEEP(a[k]);
            KEEP(x);
        }
    }
}

AVX512_VNNI void brim__rate_u8s8_avx512_vnni(uint64_t iterations)
{
    __m512i x = _mm512_set1_epi8(100), y = _mm512_set1_epi8(-3), a[12];
#pragma GCC unroll 12
    for (int k = 0; k < 12; k++)
        a[k] = _mm512_setzero_si512();
    for (uint64_t i = 0; i < iterations; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < 12; k++) {
            a[k] = _mm512_dpbusd_epi32(a[k], x, y);
            KEEP(a[k]);
        }
    }
}

AVX512_BF16 void brim__rate_bf16_avx512(uint64_t iterations)
{
    /* Zeros: the rate does not depend on the values. */
    __m512bh x = (__m512bh)_mm512_setzero_si512(), y = x;
    __m512 a[12];
#pragma GCC unroll 12
    for (int k = 0; k < 12; k++)
        a[k] = _mm512_setzero_ps();
    for (uint64_t i = 0; i < iterations; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < 12; k++) {
            a[k] = _mm512_dpbf16_ps(a[k], x, y);
            KEEP(a[k]);
        }
    }
}

#endif
