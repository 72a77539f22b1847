/* rng.h: counter-based random numbers: a value is a function of (key, counter), so that streams
 * need no state and can be drawn in any order on any lane. Philox4x32-10: Salmon et al.,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the test has its published vectors. */
#ifndef BRIM_BASE_RNG_H
#define BRIM_BASE_RNG_H

#include <stdint.h>

static inline void brim__philox4x32(uint32_t out[4], const uint32_t counter[4],
                                    const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* 64 random bits for (seed, stream, index). */
static inline uint64_t brim__random_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                           (uint32_t)(stream >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];
    brim__philox4x32(out, counter, key);
    return (uint64_t)out[1] << 32 | out[0];
}

/* Uniform in [0, 1): 24 bits, exact in float. */
static inline float brim__random_float(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (float)(brim__random_u64(seed, stream, index) >> 40) * 0x1p-24f;
}

/* Uniform in [0, bound), bound > 0; the bias is below 2^-32 for bounds that fit 32 bits. */
static inline uint64_t brim__random_below(uint64_t seed, uint64_t stream, uint64_t index,
                                          uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)brim__random_u64(seed, stream, index) * bound) >> 64);
}

#endif
