/* gpu_sample.cu: the device's sampler on the device: chooses what sample.c chooses, and how long it
 * takes. A program, no unit test: it needs the device. Exit code 1: a token differs; 2: no device.
 *
 *   gpu_sample [SMALL_CASES [LARGE_CASES]]
 *
 * Times are those of one block on one multiprocessor with its data in the L2, for a vocabulary of
 * 128,256: cycles from clock64 (the median of the repeats) and microseconds of the global timer
 * (the mean), when nothing else runs and ("cold") after other code has filled the instruction
 * cache. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/sample.cuh"

#include "../kernels/sample_cases.h"

/* kernels.h and sample.h, which are C. */
extern "C" {
struct brim__kernels;
const brim__kernels *brim__kernels_get(int isa);
size_t brim__sample_scratch_bytes(uint32_t vocab);
uint32_t brim__sample(const brim__kernels *k, const float *logits, uint32_t vocab,
                      const brim_sample_params *params, const uint32_t *recent,
                      uint32_t recent_count, uint32_t position, void *scratch);
}

enum { THREADS = 352, REPEATS = 40, WARM_UP = 3 };

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "gpu_sample: %s: %s\n", what, cudaGetErrorString(error));
    exit(error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ? 2 : 1);
}

/* Takes the instruction cache, as the rest of a resident kernel may: 128 KiB of code. */
static __device__ __noinline__ uint32_t other_code(uint32_t x)
{
#pragma unroll
    for (uint32_t i = 0; i < 8192; i++)
        asm volatile("mad.lo.u32 %0,%0,%1,%2;" : "+r"(x) : "r"(x), "r"(i));
    return x;
}

/* A block a row, as the resident kernel calls it: 256 of 352 threads. All must say the same. */
static __global__ void __launch_bounds__(THREADS, 1)
    choose(const brim_sample_in *rows, uint32_t *tokens, uint64_t *cycles, uint64_t *ns,
           int repeats, bool cold)
{
    __shared__ __align__(16) char shared[12288];
    if (threadIdx.x >= SAMPLE_THREADS)
        return;
    brim_sample_in in = rows[blockIdx.x];
    for (int i = 0; i < repeats; i++) {
        if (cold && other_code(threadIdx.x) == 1)
            tokens[0] = 0;
        SAMPLE_BARRIER();
        uint64_t began = clock64(), began_ns = timer_ns();
        uint32_t token = brim_sample_block(&in, shared, (int)threadIdx.x);
        SAMPLE_BARRIER();
        if (cycles && threadIdx.x == 0) {
            cycles[i] = clock64() - began;
            ns[i] = timer_ns() - began_ns;
        }
        tokens[blockIdx.x * SAMPLE_THREADS + threadIdx.x] = token;
    }
}

/* Memory that one call takes and all of it frees. */
struct arena {
    char *begin, *at;
    size_t bytes;
};

static void *take(arena *a, size_t bytes)
{
    void *taken = a->at;
    a->at += (bytes + 255) / 256 * 256;
    if (a->at > a->begin + a->bytes) {
        fprintf(stderr, "gpu_sample: the arena is too small\n");
        exit(1);
    }
    return taken;
}

static void *put(arena *a, const void *from, size_t bytes, size_t skip)
{
    char *to = (char *)take(a, bytes + skip) + skip;
    if (bytes)
        check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "a copy to the device");
    return to;
}

static brim_sample_in put_case(arena *a, const sample_case *c, uint32_t row)
{
    brim_sample_in in;
    in.logits = (const float *)put(a, c->logits, c->vocab * sizeof(float), row % 4 * 4);
    in.vocab = c->vocab;
    in.tile_max =
        (const float *)put(a, c->tile_max, (c->vocab + 7) / 8 * sizeof(float), row % 4 * 4);
    in.params = c->params;
    in.recent = (const uint32_t *)put(a, c->recent, c->recent_count * sizeof(uint32_t), 0);
    in.recent_count = c->recent_count;
    in.position = c->position;
    in.scratch = take(a, brim__sample_scratch_bytes(c->vocab) + 64);
    return in;
}

static uint32_t host_pick(const sample_case *c)
{
    static std::vector<char> scratch;
    scratch.resize(brim__sample_scratch_bytes(c->vocab));
    return brim__sample(brim__kernels_get(0), c->logits, c->vocab, &c->params, c->recent,
                        c->recent_count, c->position, scratch.data());
}

struct room {
    std::vector<float> logits, tile_max;
};

static void make_room(room *r, sample_case *c, uint32_t vocab)
{
    r->logits.assign(vocab, 0);
    r->tile_max.assign((vocab + 7) / 8, 0);
    c->logits = r->logits.data();
    c->tile_max = r->tile_max.data();
    c->vocab = vocab;
}

static uint32_t tell(const sample_case *c, uint64_t seed, uint32_t want, const uint32_t *got)
{
    for (int i = 0; i < SAMPLE_THREADS; i++)
        if (got[i] != want) {
            const brim_sample_params *p = &c->params;
            printf(
                "case %llu, vocabulary %u: thread %d picks %u, the host %u (temperature %g, top-p "
                "%g, min-p %g, penalty %g of %u of %u, top-k %u)\n",
                (unsigned long long)seed, c->vocab, i, got[i], want, p->temperature, p->top_p,
                p->min_p, p->penalty, p->penalty_last, c->recent_count, p->top_k);
            return 1;
        }
    return 0;
}

/* Runs random cases, as the host's test has them, in batches of a block each. */
static uint32_t compare(const uint32_t *vocabs, uint32_t vocab_count, uint64_t first,
                        uint64_t count, uint32_t batch, arena *a)
{
    uint32_t wrong = 0;
    std::vector<uint32_t> want(batch), got(batch * SAMPLE_THREADS);
    std::vector<brim_sample_in> rows(batch);
    std::vector<sample_case> cases(batch);
    room r;
    for (uint64_t seed = first; seed < first + count; seed += batch) {
        a->at = a->begin;
        for (uint32_t i = 0; i < batch; i++) {
            sample_case *c = &cases[i];
            make_room(&r, c, vocabs[brim__random_below(seed + i, 9, 0, vocab_count)]);
            case_make(c, (sample_shape)((seed + i) % CASE_SHAPES), seed + i);
            want[i] = host_pick(c);
            rows[i] = put_case(a, c, (uint32_t)(seed + i) / 3);
        }
        const brim_sample_in *in =
            (const brim_sample_in *)put(a, rows.data(), batch * sizeof rows[0], 0);
        uint32_t *tokens = (uint32_t *)take(a, got.size() * sizeof got[0]);
        choose<<<batch, THREADS>>>(in, tokens, NULL, NULL, 2, false);
        check(cudaMemcpy(got.data(), tokens, got.size() * sizeof got[0], cudaMemcpyDeviceToHost),
              "the kernel");
        for (uint32_t i = 0; i < batch; i++)
            wrong += tell(&cases[i], seed + i, want[i], &got[i * SAMPLE_THREADS]);
    }
    return wrong;
}

struct timing {
    const char *name;
    float temperature, top_p, min_p;
    uint32_t top_k, recent;
    bool flat; /* no token far above the others */
};

static const timing timings[] = {
    {"greedy", 0, 1, 0, 0, 0, false},
    {"greedy, penalty of 64", 0, 1, 0, 0, 64, false},
    {"top-k 40", 0.8f, 1, 0, 40, 0, false},
    {"top-k 40, no token far above", 0.8f, 1, 0, 40, 0, true},
    {"top-k 40, top-p 0.95", 0.8f, 0.95f, 0, 40, 0, false},
    {"top-k 40, top-p 0.95, penalty of 64", 0.8f, 0.95f, 0, 40, 64, false},
    {"top-k 40, min-p 0.05, penalty of 256", 0.8f, 1, 0.05f, 40, 256, false},
    {"top-k 256, top-p 0.95", 0.8f, 0.95f, 0, 256, 0, false},
    {"top-k 256, no token far above", 0.8f, 1, 0, 256, 0, true},
    {"min-p 0.05", 0.8f, 1, 0.05f, 0, 0, false},
    {"top-p 0.95", 0.8f, 0.95f, 0, 0, 0, false},
    {"top-p 0.95, no token far above", 0.8f, 0.95f, 0, 0, 0, true},
    {"top-k 1000", 0.8f, 1, 0, 1000, 0, false},
    {"temperature alone", 0.8f, 1, 0, 0, 0, false},
    {"greedy, penalty of 600", 0, 1, 0, 0, 600, false},
};

static void make_timed(sample_case *c, const timing *t, uint64_t seed)
{
    c->params.temperature = t->temperature;
    c->params.top_p = t->top_p;
    c->params.min_p = t->min_p;
    c->params.penalty = t->recent ? 1.1f : 1;
    c->params.top_k = t->top_k;
    c->params.penalty_last = t->recent;
    c->params.seed = seed;
    c->params.max_position = 0xffffffffu;
    c->params.flags = 0;
    c->position = (uint32_t)seed;
    for (uint32_t i = 0; i < c->vocab; i++)
        c->logits[i] = 2.5f * case_normal(seed, i);
    for (uint32_t i = 0; i < 10 && !t->flat; i++)
        c->logits[brim__random_below(seed, 8, i, c->vocab)] = 24 - 0.5f * (float)i;
    case_tiles(c);
    case_recent(c, seed);
    c->recent_count = CASE_RECENT;
    for (uint32_t i = 0; i < CASE_RECENT; i++)
        c->recent[i] = (uint32_t)brim__random_below(seed, 6, i, c->vocab);
}

/* The median cycles of a call, and the mean of its microseconds. */
static void time_calls(arena *a, const brim_sample_in *in, bool cold, uint64_t *median, double *us,
                       uint32_t got[SAMPLE_THREADS])
{
    uint32_t *tokens = (uint32_t *)take(a, SAMPLE_THREADS * sizeof *tokens);
    uint64_t cycles[REPEATS], ns[REPEATS];
    uint64_t *device_cycles = (uint64_t *)take(a, sizeof cycles);
    uint64_t *device_ns = (uint64_t *)take(a, sizeof ns);
    choose<<<1, THREADS>>>(in, tokens, device_cycles, device_ns, REPEATS, cold);
    check(cudaMemcpy(got, tokens, SAMPLE_THREADS * sizeof *tokens, cudaMemcpyDeviceToHost),
          "the kernel");
    check(cudaMemcpy(cycles, device_cycles, sizeof cycles, cudaMemcpyDeviceToHost), "a copy");
    check(cudaMemcpy(ns, device_ns, sizeof ns, cudaMemcpyDeviceToHost), "a copy");
    std::sort(cycles + WARM_UP, cycles + REPEATS);
    double sum = 0;
    for (int i = WARM_UP; i < REPEATS; i++)
        sum += (double)ns[i];
    *median = cycles[(WARM_UP + REPEATS) / 2];
    *us = sum / (REPEATS - WARM_UP) / 1000;
}

static uint32_t measure(arena *a)
{
    uint32_t wrong = 0;
    printf("%-38s %9s %9s %9s %9s\n", "vocabulary 128,256", "cycles", "us", "cold", "us");
    for (const timing &t : timings) {
        sample_case c;
        room r;
        make_room(&r, &c, 128256);
        make_timed(&c, &t, 17);
        a->at = a->begin;
        brim_sample_in row = put_case(a, &c, 0);
        const brim_sample_in *in = (const brim_sample_in *)put(a, &row, sizeof row, 0);
        uint32_t got[SAMPLE_THREADS], want = host_pick(&c);
        uint64_t warm, cold;
        double warm_us, cold_us;
        time_calls(a, in, false, &warm, &warm_us, got);
        wrong += tell(&c, 17, want, got);
        time_calls(a, in, true, &cold, &cold_us, got);
        wrong += tell(&c, 17, want, got);
        printf("%-38s %9llu %9.2f %9llu %9.2f\n", t.name, (unsigned long long)warm, warm_us,
               (unsigned long long)cold, cold_us);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    uint64_t small_count = argc > 1 ? strtoull(argv[1], NULL, 10) : 6000;
    uint64_t large_count = argc > 2 ? strtoull(argv[2], NULL, 10) : 264;
    static const uint32_t small_vocabs[] = {1, 2, 7, 8, 9, 31, 32, 33, 300, 1023, 1025, 2500};
    static const uint32_t large_vocabs[] = {49152, 50257, 128256, 151936, 270000};
    arena a;
    a.bytes = (size_t)1 << 30;
    check(cudaMalloc(&a.begin, a.bytes), "memory");
    uint32_t wrong = compare(small_vocabs, 12, 0, small_count, 500, &a);
    wrong += compare(large_vocabs, 5, 1000000, large_count, 66, &a);
    printf("%llu small and %llu large cases: %u differ\n", (unsigned long long)small_count,
           (unsigned long long)large_count, wrong);
    wrong += measure(&a);
    check(cudaFree(a.begin), "memory");
    return wrong ? 1 : 0;
}
