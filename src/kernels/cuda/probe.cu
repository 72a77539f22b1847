/* probe.cu: small kernels that show what a GPU reaches: reading, arithmetic, a barrier, a packet
 * from one multiprocessor to another, a word from the host and back. Their host code is
 * src/program/probe_cuda.c. Every wait ends after a limit, so that a fault cannot hang the device.
 *
 * Instructions: the PTX ISA reference (docs.nvidia.com/cuda/parallel-thread-execution), sm_80 on. */
#include "probe_args.h"

#define PROBE extern "C" __global__ void

static __device__ __forceinline__ uint32_t *word_of(const brim__probe_args &args, uint32_t index)
{
    return (uint32_t *)args.words + index;
}

/* ---- reading ---- */

static __device__ __forceinline__ uint4 load_once(const uint4 *from)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

/* All bytes, round and round, `repeat` times: from memory, or from the L2 if they fit there, past the
 * L1. Eight loads a thread are asked for at once whatever the size, and no thread has a place of its
 * own: it comes to another one in each round. */
PROBE __launch_bounds__(BRIM__PROBE_THREADS) probe_read(brim__probe_args args)
{
    const uint4 *data = (const uint4 *)args.data;
    uint64_t mask = args.size / sizeof(uint4) - 1;
    uint64_t count = (mask + 1) * args.repeat;
    uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t sum = 0;
    for (; i + 7 * stride < count; i += 8 * stride) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; k++)
            v[k] = load_once(data + ((i + k * stride) & mask));
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < count; i += stride) {
        uint4 v = load_once(data + (i & mask));
        sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x12345679)
        *word_of(args, BRIM__PROBE_SINK) = sum;
}

/* ---- arithmetic: independent chains in registers ---- */

PROBE probe_f32(brim__probe_args args)
{
    float x[BRIM__PROBE_CHAINS], a = 0.999f + 1e-6f * threadIdx.x, b = 1e-3f;
    for (int k = 0; k < BRIM__PROBE_CHAINS; k++)
        x[k] = (float)k;
#pragma unroll 1
    for (uint32_t pass = 0; pass < args.repeat; pass++) {
#pragma unroll
        for (int turn = 0; turn < 16; turn++) {
#pragma unroll
            for (int k = 0; k < BRIM__PROBE_CHAINS; k++)
                x[k] = fmaf(x[k], a, b);
        }
    }
    float sum = 0;
    for (int k = 0; k < BRIM__PROBE_CHAINS; k++)
        sum += x[k];
    if (sum == 12345.0f)
        *word_of(args, BRIM__PROBE_SINK) = 1;
}

PROBE probe_dp4a(brim__probe_args args)
{
    int x[BRIM__PROBE_CHAINS], a = (int)(threadIdx.x * 2654435761u), b = (int)args.repeat;
    for (int k = 0; k < BRIM__PROBE_CHAINS; k++)
        x[k] = k;
#pragma unroll 1
    for (uint32_t pass = 0; pass < args.repeat; pass++) {
#pragma unroll
        for (int turn = 0; turn < 16; turn++) {
#pragma unroll
            for (int k = 0; k < BRIM__PROBE_CHAINS; k++)
                asm volatile("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(x[k]) : "r"(a), "r"(b));
        }
    }
    int sum = 0;
    for (int k = 0; k < BRIM__PROBE_CHAINS; k++)
        sum ^= x[k];
    if (sum == 0x12345679)
        *word_of(args, BRIM__PROBE_SINK) = 1;
}

/* A warp multiplies 16 x K by K x 8, again and again into eight accumulators of its own. */
#define PROBE_MMA_FLOAT(name, shape)                                                               \
    PROBE name(brim__probe_args args)                                                              \
    {                                                                                              \
        float c[BRIM__PROBE_CHAINS][4] = {};                                                       \
        uint32_t a = 0x00010001u * threadIdx.x, b = 0x00010001u * blockIdx.x;                      \
        _Pragma("unroll 1") for (uint32_t pass = 0; pass < args.repeat; pass++)                    \
        {                                                                                          \
            _Pragma("unroll") for (int turn = 0; turn < 4; turn++)                                 \
            {                                                                                      \
                _Pragma("unroll") for (int k = 0; k < BRIM__PROBE_CHAINS; k++)                     \
                    asm volatile("mma.sync.aligned." shape " {%0, %1, %2, %3}, {%4, %4, %4, %4}, " \
                                 "{%5, %5}, {%0, %1, %2, %3};"                                     \
                                 : "+f"(c[k][0]), "+f"(c[k][1]), "+f"(c[k][2]), "+f"(c[k][3])      \
                                 : "r"(a), "r"(b));                                                \
            }                                                                                      \
        }                                                                                          \
        float sum = 0;                                                                             \
        for (int k = 0; k < BRIM__PROBE_CHAINS; k++)                                               \
            sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];                                          \
        if (sum == 12345.0f)                                                                       \
            *word_of(args, BRIM__PROBE_SINK) = 1;                                                  \
    }

PROBE_MMA_FLOAT(probe_mma_f16, "m16n8k16.row.col.f32.f16.f16.f32")
PROBE_MMA_FLOAT(probe_mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")

PROBE probe_mma_s8(brim__probe_args args)
{
    int c[BRIM__PROBE_CHAINS][4] = {};
    uint32_t a = 0x01010101u * threadIdx.x, b = 0x01010101u * blockIdx.x;
#pragma unroll 1
    for (uint32_t pass = 0; pass < args.repeat; pass++) {
#pragma unroll
        for (int turn = 0; turn < 4; turn++) {
#pragma unroll
            for (int k = 0; k < BRIM__PROBE_CHAINS; k++)
                asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                             "{%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};"
                             : "+r"(c[k][0]), "+r"(c[k][1]), "+r"(c[k][2]), "+r"(c[k][3])
                             : "r"(a), "r"(b));
        }
    }
    int sum = 0;
    for (int k = 0; k < BRIM__PROBE_CHAINS; k++)
        sum ^= c[k][0] ^ c[k][1] ^ c[k][2] ^ c[k][3];
    if (sum == 0x12345679)
        *word_of(args, BRIM__PROBE_SINK) = 1;
}

/* ---- waiting for one another ---- */

static __device__ __forceinline__ uint64_t now_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

static __device__ __forceinline__ uint32_t load_acquire(const uint32_t *from)
{
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
}

static __device__ __forceinline__ uint32_t load_relaxed(const uint32_t *from)
{
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
}

static __device__ __forceinline__ void store_relaxed(uint32_t *to, uint32_t v)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(to), "r"(v) : "memory");
}

/* Whether a wait that began at `start` is over its limit; asked now and then, since the clock is
 * slow. Then all others give up too. */
static __device__ bool overdue(const brim__probe_args &args, uint32_t turn, uint64_t start)
{
    if (turn % 4096 != 4095)
        return false;
    if (load_relaxed(word_of(args, BRIM__PROBE_FAILED)))
        return true;
    if (now_ns() - start < BRIM__PROBE_LIMIT_NS)
        return false;
    store_relaxed(word_of(args, BRIM__PROBE_FAILED), 1);
    return true;
}

/* A barrier of all blocks: one addition a block, then everyone polls until the count is there. */
PROBE probe_barrier(brim__probe_args args)
{
    __shared__ uint32_t ended;
    uint64_t start = now_ns();
    uint32_t *count = word_of(args, BRIM__PROBE_PING);
    if (threadIdx.x == 0)
        ended = 0;
    for (uint32_t i = 1; i <= args.repeat; i++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" : : "l"(count) : "memory");
            for (uint32_t turn = 0; load_acquire(count) < i * gridDim.x; turn++) {
                if (overdue(args, turn, start)) {
                    ended = 1;
                    break;
                }
            }
        }
        __syncthreads();
        if (ended)
            return;
    }
}

/* Block 0 sends a word, the partner sends it back: a packet is a word that says itself that it is
 * there, so that no fence is needed. */
PROBE probe_packet(brim__probe_args args)
{
    bool first = blockIdx.x == 0;
    if (threadIdx.x != 0 || (!first && blockIdx.x != args.partner))
        return;
    uint64_t start = now_ns();
    uint32_t *to = word_of(args, first ? BRIM__PROBE_PING : BRIM__PROBE_PONG);
    uint32_t *from = word_of(args, first ? BRIM__PROBE_PONG : BRIM__PROBE_PING);
    for (uint32_t i = 1; i <= args.repeat; i++) {
        if (first)
            store_relaxed(to, i);
        for (uint32_t turn = 0; load_relaxed(from) != i; turn++) {
            if (overdue(args, turn, start))
                return;
        }
        if (!first)
            store_relaxed(to, i);
    }
}

/* Answers words of the host, in memory that both reach: word 0 is the host's, word 32 the device's. */
PROBE probe_mailbox(brim__probe_args args)
{
    uint32_t *mail = (uint32_t *)args.data;
    uint64_t start = now_ns();
    for (uint32_t i = 1; i <= args.repeat; i++) {
        for (uint32_t turn = 0;; turn++) {
            uint32_t v;
            asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(mail) : "memory");
            if (v == i)
                break;
            if (overdue(args, turn, start))
                return;
        }
        asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(mail + 32), "r"(i) : "memory");
    }
}

PROBE probe_empty(brim__probe_args args)
{
}
