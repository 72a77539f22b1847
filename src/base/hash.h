/* hash.h: a fast 64-bit hash of bytes, for comparing results and for tables. Not cryptographic.
 * Eight bytes a step, mixed by a 64x64 -> 128 bit product folded to 64 bits. Little-endian. */
#ifndef BRIM_BASE_HASH_H
#define BRIM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t brim__hash_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 p = (unsigned __int128)(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD1B54A32D192ED03u);
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static inline uint64_t brim__hash64(const void *data, size_t size, uint64_t seed)
{
    const unsigned char *p = (const unsigned char *)data;
    uint64_t h = brim__hash_mix(seed, size), word;
    for (; size >= 8; size -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = brim__hash_mix(h ^ word, 0xA0761D6478BD642Fu);
    }
    if (size) {
        word = 0;
        memcpy(&word, p, size);
        h = brim__hash_mix(h ^ word, 0xE7037ED1A0B428DBu);
    }
    return h;
}

#endif
