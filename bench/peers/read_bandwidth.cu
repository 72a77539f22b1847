/* read_bandwidth.cu: the floor. How long a GPU takes to read N bytes once, in two ways:
 *   ld16   every thread loads 16 bytes at a time, eight loads in flight
 *   bulk   one block a multiprocessor copies pieces into shared memory (cp.async.bulk), as a decode
 *          kernel does; warps read each piece from there
 * Both compute the xor of all words, which is compared with that of a simple kernel, so nothing can
 * be left out. JSON lines; `us` is the median of the launches, each timed by events around it.
 *   read_bandwidth [GIGABYTES...]     default: 2.5 16 */
#include "peer.cuh"

static const int PIECE = 16384;
static const int READERS = 8; /* warps that read a piece in shared memory */

__device__ unsigned fold(unsigned x)
{
    for (int i = 16; i > 0; i /= 2) {
        x ^= __shfl_xor_sync(~0u, x, i);
    }
    return x;
}

__global__ void fill(uint4 *data, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        unsigned h = (unsigned)i * 2654435761u ^ (unsigned)(i >> 32);
        data[i] = make_uint4(h, h * 3 + 1, h * 5 + 2, h * 7 + 3);
    }
}

__global__ void plain_xor(const uint4 *data, size_t n, unsigned *out)
{
    unsigned x = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint4 v = data[i];
        x ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    x = fold(x);
    if (threadIdx.x % 32 == 0) {
        atomicXor(out, x);
    }
}

__global__ void __launch_bounds__(512) read_ld16(const uint4 *data, size_t n, unsigned *out)
{
    const int depth = 8;
    size_t threads = (size_t)gridDim.x * blockDim.x;
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    unsigned x = 0;
    for (; i + (depth - 1) * threads < n; i += depth * threads) {
        uint4 v[depth];
#pragma unroll
        for (int k = 0; k < depth; k++) {
            const uint4 *from = data + i + k * threads;
            asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z), "=r"(v[k].w)
                         : "l"(from));
        }
#pragma unroll
        for (int k = 0; k < depth; k++) {
            x ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
        }
    }
    for (; i < n; i += threads) {
        uint4 v = data[i];
        x ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    x = fold(x);
    if (threadIdx.x % 32 == 0) {
        atomicXor(out, x);
    }
}

__device__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

__device__ void barrier_wait(unsigned barrier, unsigned parity)
{
    asm volatile("{\n.reg .pred p;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again;\n}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Block b reads pieces b, b + blocks, ...; `slots` of them are in flight or being read. */
__global__ void __launch_bounds__(32 * (READERS + 1))
    read_bulk(const char *data, size_t pieces, int slots, unsigned *out)
{
    extern __shared__ __align__(128) char ring[];
    __shared__ __align__(8) unsigned long long full[32], empty[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x < slots) {
        asm volatile(
            "mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[threadIdx.x])));
        asm volatile(
            "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&empty[threadIdx.x])),
            "r"(READERS));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    size_t count = pieces > blockIdx.x ? (pieces - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
    if (warp == READERS) {
        for (size_t i = 0; lane == 0 && i < count; i++) {
            int slot = (int)(i % slots);
            if (i >= (size_t)slots) {
                barrier_wait(shared_address(&empty[slot]), (unsigned)(i / slots - 1) & 1);
            }
            unsigned barrier = shared_address(&full[slot]);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                         "r"(PIECE)
                         : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                         "[%1], %2, [%3];" ::"r"(shared_address(ring + (size_t)slot * PIECE)),
                         "l"(data + (blockIdx.x + i * gridDim.x) * PIECE), "r"(PIECE), "r"(barrier)
                         : "memory");
        }
        return;
    }
    unsigned x = 0;
    for (size_t i = 0; i < count; i++) {
        int slot = (int)(i % slots);
        barrier_wait(shared_address(&full[slot]), (unsigned)(i / slots) & 1);
        const uint4 *from = (const uint4 *)(ring + (size_t)slot * PIECE) + threadIdx.x;
#pragma unroll
        for (int k = 0; k < PIECE / 16 / (READERS * 32); k++) {
            uint4 v = from[k * READERS * 32];
            x ^= v.x ^ v.y ^ v.z ^ v.w;
        }
        __syncwarp();
        if (lane == 0) {
            asm volatile(
                "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&empty[slot]))
                : "memory");
        }
    }
    x = fold(x);
    if (lane == 0) {
        atomicXor(out, x);
    }
}

static void report(const char *method, int setting, size_t bytes, peer_times t, bool right)
{
    printf("{\"peer\": \"read_bandwidth\", \"method\": \"%s\", \"setting\": %d, \"bytes\": %zu, ",
           method, setting, bytes);
    peer_print_times(t);
    printf(", \"tb_s\": %.3f, \"ok\": %s}\n", bytes / t.median_us * 1e-6, right ? "true" : "false");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    cudaDeviceProp device;
    PEER_CHECK(cudaGetDeviceProperties(&device, 0));
    int sms = device.multiProcessorCount;
    const double defaults[] = {2.5, 16};
    int sizes = argc > 1 ? argc - 1 : 2;
    bool all_right = true;
    unsigned *out, *expected;
    PEER_CHECK(cudaMalloc(&out, 8));
    expected = out + 1;
    for (int s = 0; s < sizes; s++) {
        size_t bytes =
            (size_t)((argc > 1 ? strtod(argv[s + 1], NULL) : defaults[s]) * 1e9) / PIECE * PIECE;
        char *data;
        PEER_CHECK(cudaMalloc(&data, bytes));
        size_t n = bytes / 16;
        fill<<<sms * 8, 256>>>((uint4 *)data, n);
        PEER_CHECK(cudaMemset(out, 0, 8));
        plain_xor<<<sms * 8, 256>>>((uint4 *)data, n, expected);
        unsigned right = 0;
        PEER_CHECK(cudaMemcpy(&right, expected, 4, cudaMemcpyDeviceToHost));
        int runs = bytes > (size_t)8e9 ? 9 : 25;
        auto measure = [&](const char *method, int setting, auto launch) {
            PEER_CHECK(cudaMemset(out, 0, 4));
            launch();
            PEER_CHECK(cudaGetLastError());
            unsigned got = 0;
            PEER_CHECK(cudaMemcpy(&got, out, 4, cudaMemcpyDeviceToHost));
            all_right = all_right && got == right;
            report(method, setting, bytes, peer_time(runs, launch), got == right);
        };
        for (int blocks = 2; blocks <= 4; blocks *= 2) {
            measure("ld16", blocks,
                    [&] { read_ld16<<<sms * blocks, 512>>>((uint4 *)data, n, out); });
        }
        for (int slots = 4; slots <= 12; slots += 4) {
            size_t shared = (size_t)slots * PIECE;
            PEER_CHECK(cudaFuncSetAttribute(read_bulk, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)shared));
            measure("bulk", slots * PIECE / 1024, [&] {
                read_bulk<<<sms, 32 * (READERS + 1), shared>>>(data, bytes / PIECE, slots, out);
            });
        }
        PEER_CHECK(cudaFree(data));
    }
    return all_right ? 0 : 1;
}
