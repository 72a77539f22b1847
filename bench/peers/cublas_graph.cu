/* cublas_graph.cu: batch-1 decode of a Llama-shaped model with random bf16 weights, as a CUDA graph
 * of cuBLAS products and small kernels for the rest: what a careful program without a resident
 * kernel can reach. Every product is tuned first: cublasGemmEx and the best of cublasLt's proposals
 * are timed over the layers' own weights, and the faster one is taken. Tokens are chained on the
 * device; each step looks at POSITIONS positions, the last of them appended by the step.
 *   cublas_graph [1b|8b...]
 * JSON lines: one a product, one a model. The embedding is looked up in the head's weights. */
#include "peer.cuh"

#include <cmath>
#include <cstring>

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>

#define BLAS_CHECK(call)                                                                           \
    do {                                                                                           \
        cublasStatus_t blas_error = (call);                                                        \
        if (blas_error != CUBLAS_STATUS_SUCCESS) {                                                 \
            fprintf(stderr, "%s:%d: %s: cuBLAS status %d\n", __FILE__, __LINE__, #call,            \
                    (int)blas_error);                                                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

typedef __nv_bfloat16 bf16;
static const int POSITIONS = 512, SPLITS = 8, PROPOSALS = 12;
static const size_t WORKSPACE = 32u << 20;

struct shape {
    const char *name;
    int d, layers, heads, kv_heads, head, ffn, vocab;
};
static const shape SHAPES[] = {{"1b", 2048, 16, 32, 8, 64, 8192, 128256},
                               {"8b", 4096, 32, 32, 8, 128, 14336, 128256}};

/* ---- small kernels ---- */

__device__ unsigned hash(unsigned x)
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

__global__ void fill(bf16 *out, size_t n, unsigned seed, float scale)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        float u = (int)hash((unsigned)i + seed * 0x9e3779b9u + (unsigned)(i >> 32) * 77u) *
                  (1.0f / 2147483648.0f);
        out[i] = __float2bfloat16(u * scale);
    }
}

__device__ float block_sum(float x, float *shared)
{
    for (int i = 16; i > 0; i /= 2) {
        x += __shfl_xor_sync(~0u, x, i);
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = x;
    }
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : 0;
    for (int i = 16; i > 0; i /= 2) {
        x += __shfl_xor_sync(~0u, x, i);
    }
    return x;
}

__global__ void embed(const bf16 *table, const int *token, bf16 *x, int d)
{
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        x[i] = table[(size_t)*token * d + i];
    }
}

__global__ void norm(const bf16 *x, const bf16 *weight, bf16 *out, int d)
{
    __shared__ float shared[32];
    float sum = 0;
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        float v = __bfloat162float(x[i]);
        sum += v * v;
    }
    float scale = rsqrtf(block_sum(sum, shared) / d + 1e-5f);
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        out[i] = __float2bfloat16(__bfloat162float(x[i]) * scale * __bfloat162float(weight[i]));
    }
}

/* A block a head of q and k and v: rotates q in place, rotates k and puts k and v into the cache.
 */
__global__ void rope_append(bf16 *qkv, const float2 *rope, bf16 *k_cache, bf16 *v_cache, shape s)
{
    int head = blockIdx.x, i = threadIdx.x, half = s.head / 2;
    bf16 *v = qkv + head * s.head;
    int kv = head - s.heads;
    if (kv >= s.kv_heads) {
        kv -= s.kv_heads;
        bf16 *to = v_cache + ((size_t)kv * POSITIONS + POSITIONS - 1) * s.head;
        to[i] = v[i];
        to[i + half] = v[i + half];
        return;
    }
    float2 turn = rope[i];
    float a = __bfloat162float(v[i]), b = __bfloat162float(v[i + half]);
    bf16 *to = kv < 0 ? v : k_cache + ((size_t)kv * POSITIONS + POSITIONS - 1) * s.head;
    to[i] = __float2bfloat16(a * turn.x - b * turn.y);
    to[i + half] = __float2bfloat16(b * turn.x + a * turn.y);
}

/* Block (KV head, split): 64 positions of one KV head for the group's heads, a warp a query head.
 * The scores of a warp's lanes are of different positions; the values are summed a dimension a
 * lane. */
template <int HEAD, int GROUP>
__global__ void attend(const bf16 *qkv, const bf16 *k_cache, const bf16 *v_cache, float *parts)
{
    const int count = POSITIONS / SPLITS, each = HEAD / 32;
    __shared__ __align__(16) bf16 keys[count][HEAD + 8];
    __shared__ __align__(16) bf16 values[count][HEAD];
    __shared__ float probabilities[GROUP][count];
    int kv = blockIdx.x, split = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    size_t first = ((size_t)kv * POSITIONS + (size_t)split * count) * HEAD;
    for (int i = threadIdx.x; i < count * HEAD / 8; i += blockDim.x) {
        int row = i / (HEAD / 8), column = i % (HEAD / 8) * 8;
        *(uint4 *)&keys[row][column] = ((const uint4 *)(k_cache + first))[i];
        *(uint4 *)&values[row][column] = ((const uint4 *)(v_cache + first))[i];
    }
    __syncthreads();
    int head = kv * GROUP + warp;
    const bf16 *q = qkv + head * HEAD;
    float score[count / 32], most = -INFINITY, total = 0;
    for (int p = 0; p < count / 32; p++) {
        float sum = 0;
        for (int d = 0; d < HEAD; d += 8) {
            uint4 key = *(const uint4 *)&keys[p * 32 + lane][d], query = *(const uint4 *)&q[d];
            for (int i = 0; i < 4; i++) {
                float2 a = __bfloat1622float2(((const __nv_bfloat162 *)&key)[i]);
                float2 b = __bfloat1622float2(((const __nv_bfloat162 *)&query)[i]);
                sum += a.x * b.x + a.y * b.y;
            }
        }
        score[p] = sum * rsqrtf((float)HEAD);
        most = fmaxf(most, score[p]);
    }
    for (int i = 16; i > 0; i /= 2) {
        most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
    }
    for (int p = 0; p < count / 32; p++) {
        float e = __expf(score[p] - most);
        probabilities[warp][p * 32 + lane] = e;
        total += e;
    }
    for (int i = 16; i > 0; i /= 2) {
        total += __shfl_xor_sync(~0u, total, i);
    }
    __syncwarp();
    float *part = parts + ((size_t)head * SPLITS + split) * (HEAD + 2);
    float sum[each] = {};
    for (int p = 0; p < count; p++) {
        for (int k = 0; k < each; k++) {
            sum[k] += probabilities[warp][p] * __bfloat162float(values[p][k * 32 + lane]);
        }
    }
    for (int k = 0; k < each; k++) {
        part[k * 32 + lane] = sum[k];
    }
    if (lane == 0) {
        part[HEAD] = most;
        part[HEAD + 1] = total;
    }
}

__global__ void combine(const float *parts, bf16 *out, int head)
{
    const float *part = parts + (size_t)blockIdx.x * SPLITS * (head + 2);
    float most = -INFINITY, total = 0, sum = 0;
    for (int s = 0; s < SPLITS; s++) {
        most = fmaxf(most, part[s * (head + 2) + head]);
    }
    for (int s = 0; s < SPLITS; s++) {
        float scale = __expf(part[s * (head + 2) + head] - most);
        total += scale * part[s * (head + 2) + head + 1];
        sum += scale * part[s * (head + 2) + threadIdx.x];
    }
    out[blockIdx.x * head + threadIdx.x] = __float2bfloat16(sum / total);
}

__global__ void silu_product(const bf16 *gate_up, bf16 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float g = __bfloat162float(gate_up[i]);
        out[i] = __float2bfloat16(g / (1 + __expf(-g)) * __bfloat162float(gate_up[n + i]));
    }
}

/* A word that grows with the value and, for equal values, with a smaller index. */
__device__ unsigned long long rank_of(float value, int index)
{
    unsigned bits = __float_as_uint(value);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (unsigned long long)bits << 32 | (0xffffffffu - (unsigned)index);
}

__global__ void arg_max(const bf16 *logits, int n, unsigned long long *best)
{
    unsigned long long mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        mine = max(mine, rank_of(__bfloat162float(logits[i]), i));
    }
    for (int i = 16; i > 0; i /= 2) {
        mine = max(mine, __shfl_xor_sync(~0u, mine, i));
    }
    if (threadIdx.x % 32 == 0) {
        atomicMax(best, mine);
    }
}

__global__ void take_token(unsigned long long *best, int *token)
{
    *token = (int)(0xffffffffu - (unsigned)*best);
    *best = 0;
}

/* The product's meaning, to check the tuned ones: a warp a row. */
__global__ void plain_product(const bf16 *w, const bf16 *x, float *y, int n, int k)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    float sum = 0;
    for (int i = lane; row < n && i < k; i += 32) {
        sum += __bfloat162float(w[(size_t)row * k + i]) * __bfloat162float(x[i]);
    }
    for (int i = 16; i > 0; i /= 2) {
        sum += __shfl_xor_sync(~0u, sum, i);
    }
    if (row < n && lane == 0) {
        y[row] = sum;
    }
}

/* ---- products ---- */

struct blas {
    cublasHandle_t plain;
    cublasLtHandle_t lt;
    void *workspace;
    cudaStream_t stream;
};

/* y (n) = W (n, k) x, or y += with beta 1. */
struct product {
    const char *name;
    int n, k;
    float beta;
    bool use_lt;
    cublasLtMatmulAlgo_t algo;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t w_layout, x_layout, y_layout;
};

static cublasStatus_t multiply(blas &b, product &p, const bf16 *w, const bf16 *x, bf16 *y, bool lt)
{
    float alpha = 1;
    if (!lt) {
        return cublasGemmEx(b.plain, CUBLAS_OP_T, CUBLAS_OP_N, p.n, 1, p.k, &alpha, w, CUDA_R_16BF,
                            p.k, x, CUDA_R_16BF, p.k, &p.beta, y, CUDA_R_16BF, p.n,
                            CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    }
    return cublasLtMatmul(b.lt, p.desc, &alpha, w, p.w_layout, x, p.x_layout, &p.beta, y,
                          p.y_layout, y, p.y_layout, &p.algo, b.workspace, WORKSPACE, b.stream);
}

/* Times one way of multiplying over the weights of several layers, so that none lies in the cache.
 */
static double time_product(blas &b, product &p, const std::vector<const bf16 *> &w, const bf16 *x,
                           bf16 *y, bool lt)
{
    size_t i = 0;
    int each = w.size() > 1 ? (int)w.size() : 2;
    peer_times t = peer_time(
        5,
        [&] {
            for (int k = 0; k < each; k++) {
                BLAS_CHECK(multiply(b, p, w[i++ % w.size()], x, y, lt));
            }
        },
        b.stream);
    return t.median_us / each;
}

static double relative_error(blas &b, product &p, const bf16 *w, const bf16 *x, bf16 *y)
{
    float *plain;
    PEER_CHECK(cudaMalloc(&plain, p.n * sizeof(float)));
    plain_product<<<(p.n * 32 + 255) / 256, 256, 0, b.stream>>>(w, x, plain, p.n, p.k);
    PEER_CHECK(cudaMemsetAsync(y, 0, p.n * sizeof(bf16), b.stream));
    BLAS_CHECK(multiply(b, p, w, x, y, p.use_lt));
    std::vector<float> want(p.n);
    std::vector<bf16> got(p.n);
    PEER_CHECK(cudaStreamSynchronize(b.stream));
    PEER_CHECK(cudaMemcpy(want.data(), plain, p.n * sizeof(float), cudaMemcpyDeviceToHost));
    PEER_CHECK(cudaMemcpy(got.data(), y, p.n * sizeof(bf16), cudaMemcpyDeviceToHost));
    PEER_CHECK(cudaFree(plain));
    double difference = 0, norm2 = 0;
    for (int i = 0; i < p.n; i++) {
        double d = __bfloat162float(got[i]) - want[i];
        difference += d * d;
        norm2 += (double)want[i] * want[i];
    }
    return sqrt(difference / norm2);
}

/* Picks the fastest way; false if it is wrong. */
static bool tune(blas &b, product &p, const char *model, const std::vector<const bf16 *> &w,
                 const bf16 *x, bf16 *y)
{
    BLAS_CHECK(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasOperation_t transposed = CUBLAS_OP_T;
    BLAS_CHECK(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                              sizeof transposed));
    BLAS_CHECK(cublasLtMatrixLayoutCreate(&p.w_layout, CUDA_R_16BF, p.k, p.n, p.k));
    BLAS_CHECK(cublasLtMatrixLayoutCreate(&p.x_layout, CUDA_R_16BF, p.k, 1, p.k));
    BLAS_CHECK(cublasLtMatrixLayoutCreate(&p.y_layout, CUDA_R_16BF, p.n, 1, p.n));
    cublasLtMatmulPreference_t preference;
    BLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    BLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE, sizeof WORKSPACE));
    cublasLtMatmulHeuristicResult_t proposals[PROPOSALS];
    int found = 0;
    cublasLtMatmulAlgoGetHeuristic(b.lt, p.desc, p.w_layout, p.x_layout, p.y_layout, p.y_layout,
                                   preference, PROPOSALS, proposals, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    p.use_lt = false;
    double best = time_product(b, p, w, x, y, false), gemm_ex = best, lt_best = INFINITY;
    cublasLtMatmulAlgo_t chosen = {};
    for (int i = 0; i < found; i++) {
        p.algo = proposals[i].algo;
        if (multiply(b, p, w[0], x, y, true) != CUBLAS_STATUS_SUCCESS) {
            continue;
        }
        double us = time_product(b, p, w, x, y, true);
        lt_best = fmin(lt_best, us);
        if (us < best) {
            best = us;
            chosen = p.algo;
            p.use_lt = true;
        }
    }
    p.algo = chosen;
    double error = relative_error(b, p, w[0], x, y);
    double bytes = 2.0 * p.n * p.k;
    printf("{\"peer\": \"cublas_product\", \"model\": \"%s\", \"product\": \"%s\", \"n\": %d, "
           "\"k\": %d, "
           "\"gemm_ex_us\": %.2f, \"lt_us\": %.2f, \"tb_s\": %.3f, \"error\": %.2g, \"ok\": %s}\n",
           model, p.name, p.n, p.k, gemm_ex, std::isfinite(lt_best) ? lt_best : -1.0,
           bytes / best * 1e-6, error, error < 1e-2 ? "true" : "false");
    fflush(stdout);
    return error < 1e-2;
}

/* ---- the model ---- */

struct layer {
    bf16 *qkv, *o, *gate_up, *down, *norm1, *norm2, *k, *v;
};
struct model {
    shape s;
    std::vector<layer> layers;
    bf16 *head, *norm, *x, *y, *qkv, *attended, *gate_up, *h, *logits;
    float *parts;
    float2 *rope;
    int *token;
    unsigned long long *best;
    product p_qkv, p_o, p_gate_up, p_down, p_head;
    size_t weight_bytes, kv_bytes;
};

static bf16 *random_bf16(size_t n, float scale)
{
    static unsigned seed = 1;
    bf16 *out;
    PEER_CHECK(cudaMalloc(&out, n * sizeof(bf16)));
    fill<<<1024, 256>>>(out, n, seed++, scale);
    return out;
}

static void make(model &m, const shape &s)
{
    m.s = s;
    int qkv_rows = (s.heads + 2 * s.kv_heads) * s.head, attended = s.heads * s.head;
    float w = 0.035f; /* of a uniform distribution: standard deviation 0.02 */
    for (int i = 0; i < s.layers; i++) {
        size_t cache = (size_t)s.kv_heads * POSITIONS * s.head;
        m.layers.push_back({random_bf16((size_t)qkv_rows * s.d, w),
                            random_bf16((size_t)s.d * attended, w),
                            random_bf16((size_t)2 * s.ffn * s.d, w),
                            random_bf16((size_t)s.d * s.ffn, w), random_bf16(s.d, 1),
                            random_bf16(s.d, 1), random_bf16(cache, 1), random_bf16(cache, 1)});
    }
    m.head = random_bf16((size_t)s.vocab * s.d, w);
    m.norm = random_bf16(s.d, 1);
    m.x = random_bf16(s.d, 1);
    m.y = random_bf16(s.d, 1);
    m.qkv = random_bf16(qkv_rows, 1);
    m.attended = random_bf16(attended, 1);
    m.gate_up = random_bf16(2 * s.ffn, 1);
    m.h = random_bf16(s.ffn, 1);
    m.logits = random_bf16(s.vocab, 1);
    PEER_CHECK(cudaMalloc(&m.parts, (size_t)s.heads * SPLITS * (s.head + 2) * sizeof(float)));
    PEER_CHECK(cudaMalloc(&m.token, sizeof(int)));
    PEER_CHECK(cudaMemset(m.token, 0, sizeof(int)));
    PEER_CHECK(cudaMalloc(&m.best, 8));
    PEER_CHECK(cudaMemset(m.best, 0, 8));
    std::vector<float2> rope(s.head / 2);
    for (int i = 0; i < s.head / 2; i++) {
        double angle = (POSITIONS - 1) / pow(500000.0, 2.0 * i / s.head);
        rope[i] = make_float2((float)cos(angle), (float)sin(angle));
    }
    PEER_CHECK(cudaMalloc(&m.rope, rope.size() * sizeof(float2)));
    PEER_CHECK(
        cudaMemcpy(m.rope, rope.data(), rope.size() * sizeof(float2), cudaMemcpyHostToDevice));
    size_t a_layer =
        (size_t)qkv_rows * s.d + (size_t)s.d * attended + (size_t)3 * s.ffn * s.d + 2 * s.d;
    m.weight_bytes = 2 * (a_layer * s.layers + (size_t)s.vocab * s.d + s.d);
    m.kv_bytes = (size_t)2 * 2 * s.layers * s.kv_heads * POSITIONS * s.head;
    m.p_qkv = {"qkv", qkv_rows, s.d, 0};
    m.p_o = {"o", s.d, attended, 1};
    m.p_gate_up = {"gate_up", 2 * s.ffn, s.d, 0};
    m.p_down = {"down", s.d, s.ffn, 1};
    m.p_head = {"head", s.vocab, s.d, 0};
    PEER_CHECK(cudaDeviceSynchronize());
}

static bool tune_all(blas &b, model &m)
{
    std::vector<const bf16 *> qkv, o, gate_up, down;
    for (layer &l : m.layers) {
        qkv.push_back(l.qkv);
        o.push_back(l.o);
        gate_up.push_back(l.gate_up);
        down.push_back(l.down);
    }
    bool ok = tune(b, m.p_qkv, m.s.name, qkv, m.x, m.qkv);
    ok = tune(b, m.p_o, m.s.name, o, m.attended, m.y) && ok;
    ok = tune(b, m.p_gate_up, m.s.name, gate_up, m.x, m.gate_up) && ok;
    ok = tune(b, m.p_down, m.s.name, down, m.h, m.y) && ok;
    return tune(b, m.p_head, m.s.name, {m.head}, m.x, m.logits) && ok;
}

static void step(blas &b, model &m)
{
    const shape &s = m.s;
    auto go = [&](product &p, const bf16 *w, const bf16 *x, bf16 *y) {
        BLAS_CHECK(multiply(b, p, w, x, y, p.use_lt));
    };
    dim3 grid(s.kv_heads, SPLITS);
    embed<<<1, 512, 0, b.stream>>>(m.head, m.token, m.x, s.d);
    for (layer &l : m.layers) {
        norm<<<1, 1024, 0, b.stream>>>(m.x, l.norm1, m.y, s.d);
        go(m.p_qkv, l.qkv, m.y, m.qkv);
        rope_append<<<s.heads + 2 * s.kv_heads, s.head / 2, 0, b.stream>>>(m.qkv, m.rope, l.k, l.v,
                                                                           s);
        if (s.head == 64) {
            attend<64, 4><<<grid, 128, 0, b.stream>>>(m.qkv, l.k, l.v, m.parts);
        } else {
            attend<128, 4><<<grid, 128, 0, b.stream>>>(m.qkv, l.k, l.v, m.parts);
        }
        combine<<<s.heads, s.head, 0, b.stream>>>(m.parts, m.attended, s.head);
        go(m.p_o, l.o, m.attended, m.x);
        norm<<<1, 1024, 0, b.stream>>>(m.x, l.norm2, m.y, s.d);
        go(m.p_gate_up, l.gate_up, m.y, m.gate_up);
        silu_product<<<(s.ffn + 255) / 256, 256, 0, b.stream>>>(m.gate_up, m.h, s.ffn);
        go(m.p_down, l.down, m.h, m.x);
    }
    norm<<<1, 1024, 0, b.stream>>>(m.x, m.norm, m.y, s.d);
    go(m.p_head, m.head, m.y, m.logits);
    arg_max<<<64, 256, 0, b.stream>>>(m.logits, s.vocab, m.best);
    take_token<<<1, 1, 0, b.stream>>>(m.best, m.token);
    PEER_CHECK(cudaGetLastError());
}

static bool logits_are_finite(model &m)
{
    std::vector<bf16> logits(m.s.vocab);
    PEER_CHECK(
        cudaMemcpy(logits.data(), m.logits, logits.size() * sizeof(bf16), cudaMemcpyDeviceToHost));
    for (bf16 value : logits) {
        if (!std::isfinite(__bfloat162float(value))) {
            return false;
        }
    }
    return true;
}

static bool run(blas &b, const shape &s)
{
    model m = {};
    make(m, s);
    bool ok = tune_all(b, m);
    step(b, m); /* what is loaded at first use is loaded outside the graph */
    PEER_CHECK(cudaStreamSynchronize(b.stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    PEER_CHECK(cudaStreamBeginCapture(b.stream, cudaStreamCaptureModeThreadLocal));
    step(b, m);
    PEER_CHECK(cudaStreamEndCapture(b.stream, &graph));
    PEER_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    size_t nodes = 0;
    PEER_CHECK(cudaGraphGetNodes(graph, NULL, &nodes));
    const int row = 20;
    peer_times alone = peer_time(
        100, [&] { PEER_CHECK(cudaGraphLaunch(exec, b.stream)); }, b.stream);
    peer_times chained = peer_time(
        15,
        [&] {
            for (int i = 0; i < row; i++) {
                PEER_CHECK(cudaGraphLaunch(exec, b.stream));
            }
        },
        b.stream);
    ok = logits_are_finite(m) && ok;
    printf("{\"peer\": \"cublas_graph\", \"model\": \"%s\", \"positions\": %d, \"nodes\": %zu, "
           "\"weight_bytes\": %zu, \"kv_bytes\": %zu, ",
           s.name, POSITIONS, nodes, m.weight_bytes, m.kv_bytes);
    peer_print_times(alone);
    printf(", \"us_in_a_row\": %.2f, \"us_in_a_row_min\": %.2f, \"tb_s\": %.3f, \"ok\": %s}\n",
           chained.median_us / row, chained.min_us / row,
           (m.weight_bytes + m.kv_bytes) / (chained.median_us / row) * 1e-6, ok ? "true" : "false");
    fflush(stdout);
    PEER_CHECK(cudaGraphExecDestroy(exec));
    PEER_CHECK(cudaGraphDestroy(graph));
    for (layer &l : m.layers) {
        for (bf16 *p : {l.qkv, l.o, l.gate_up, l.down, l.norm1, l.norm2, l.k, l.v}) {
            PEER_CHECK(cudaFree(p));
        }
    }
    PEER_CHECK(cudaFree(m.head)); /* the rest is small and goes with the process */
    return ok;
}

int main(int argc, char **argv)
{
    blas b;
    PEER_CHECK(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    BLAS_CHECK(cublasCreate(&b.plain));
    BLAS_CHECK(cublasLtCreate(&b.lt));
    PEER_CHECK(cudaMalloc(&b.workspace, 2 * WORKSPACE));
    BLAS_CHECK(cublasSetStream(b.plain, b.stream));
    BLAS_CHECK(cublasSetWorkspace(b.plain, (char *)b.workspace + WORKSPACE, WORKSPACE));
    bool ok = true;
    for (const shape &s : SHAPES) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; i++) {
            wanted = wanted || strcmp(argv[i], s.name) == 0;
        }
        ok = !wanted || (run(b, s) && ok);
    }
    return ok ? 0 : 1;
}
