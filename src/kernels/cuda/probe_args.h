/* probe_args.h: what the probes' kernels (probe.cu) and their host code share. */
#ifndef BRIM_KERNELS_CUDA_PROBE_ARGS_H
#define BRIM_KERNELS_CUDA_PROBE_ARGS_H

#include <stdint.h>

/* The parameter of every kernel. Addresses are the device's. */
typedef struct brim__probe_args {
    uint64_t data;    /* what is read; of probe_mailbox: two words in mapped memory */
    uint64_t size;    /* bytes of it, a power of two, 16 or more */
    uint64_t words;   /* BRIM__PROBE_WORDS words, zero before the launch */
    uint32_t repeat;  /* passes, loops, barriers or round trips */
    uint32_t partner; /* probe_packet: the block that answers block 0 */
} brim__probe_args;

enum {
    BRIM__PROBE_THREADS = 512,
    BRIM__PROBE_WORDS = 256,
    /* Indices of words; those that are waited for lie in lines of their own. */
    BRIM__PROBE_FAILED = 0, /* 1 when a wait took longer than the limit */
    BRIM__PROBE_SINK = 1,   /* written by nobody in practice: it keeps results alive */
    BRIM__PROBE_PING = 64,
    BRIM__PROBE_PONG = 128,
    /* Of one thread in one turn of the loop: operations, a multiplication and an addition being
     * two. A warp's matrix instruction is shared by its 32 threads. */
    BRIM__PROBE_CHAINS = 8,
    BRIM__PROBE_F32_OPS = 16 * BRIM__PROBE_CHAINS * 2,
    BRIM__PROBE_DP4A_OPS = 16 * BRIM__PROBE_CHAINS * 8,
    BRIM__PROBE_MMA_F16_OPS = 4 * BRIM__PROBE_CHAINS * (16 * 8 * 16 * 2) / 32,
    BRIM__PROBE_MMA_S8_OPS = 4 * BRIM__PROBE_CHAINS * (16 * 8 * 32 * 2) / 32,
};

/* Nanoseconds after which a wait on the device gives up. */
#define BRIM__PROBE_LIMIT_NS 2000000000ull

#endif
