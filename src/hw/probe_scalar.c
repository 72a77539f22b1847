/* probe_scalar.c: the probes' bodies in plain C, for any CPU. "scalar" rates are what one value at
 * a time gives with the compiler's base instruction set; reading uses 16-byte vectors, which every
 * 64-bit CPU has. KEEP() makes a value opaque, so that nothing is hoisted, merged or vectorised. */
#include "hw/hw.h"

#if defined(__x86_64__)
#define KEEP(x) __asm__ volatile("" : "+x"(x))
#elif defined(__aarch64__)
#define KEEP(x) __asm__ volatile("" : "+w"(x))
#else
#define KEEP(x) __asm__ volatile("" : "+m"(x))
#endif
#define KEEP_INT(x) __asm__ volatile("" : "+r"(x))

typedef uint64_t vector16 __attribute__((vector_size(16)));

void brim__read_scalar(const void *data, size_t size, uint32_t streams)
{
    size_t part = size / streams;
    for (size_t i = 0; i + 256 <= part; i += 256) {
        for (uint32_t s = 0; s < streams; s++) {
            const vector16 *p = (const vector16 *)((const char *)data + s * part + i);
            for (int k = 0; k < 16; k++) {
                vector16 x = p[k];
                KEEP(x);
            }
        }
    }
}

/* Eight sums, none of which waits for another. */
void brim__rate_f32_scalar(uint64_t iterations)
{
    float x = 0.5f, y = 0.25f, a[8] = {0};
    for (uint64_t i = 0; i < iterations; i++) {
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            KEEP(x);
            a[k] += x * y;
            KEEP(a[k]);
        }
    }
}

void brim__rate_u8s8_scalar(uint64_t iterations)
{
    uint32_t x = 200, y = 100, a[4] = {0};
    for (uint64_t i = 0; i < iterations; i++) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            KEEP_INT(x);
            a[k] += x * y;
            KEEP_INT(a[k]);
        }
    }
}
