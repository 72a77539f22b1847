/* peer.cuh: what the peers share: checks, times of launches, their figures as JSON. */
#ifndef BRIM_BENCH_PEER_CUH
#define BRIM_BENCH_PEER_CUH

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#define PEER_CHECK(call)                                                                           \
    do {                                                                                           \
        cudaError_t peer_error = (call);                                                           \
        if (peer_error != cudaSuccess) {                                                           \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                          \
                    cudaGetErrorString(peer_error));                                               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct peer_times {
    double median_us, min_us, p90_us;
    int runs;
};

static inline peer_times peer_summary(std::vector<double> us)
{
    std::sort(us.begin(), us.end());
    size_t n = us.size();
    return {us[n / 2], us[0], us[(n * 9) / 10], (int)n};
}

/* Each launch timed by events around it, after three that warm up. */
template <typename Launch>
static peer_times peer_time(int runs, Launch launch, cudaStream_t stream = 0)
{
    cudaEvent_t begin, end;
    PEER_CHECK(cudaEventCreate(&begin));
    PEER_CHECK(cudaEventCreate(&end));
    std::vector<double> us;
    for (int i = -3; i < runs; i++) {
        PEER_CHECK(cudaEventRecord(begin, stream));
        launch();
        PEER_CHECK(cudaEventRecord(end, stream));
        PEER_CHECK(cudaEventSynchronize(end));
        float ms = 0;
        PEER_CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 0) {
            us.push_back(ms * 1000.0);
        }
    }
    PEER_CHECK(cudaGetLastError());
    PEER_CHECK(cudaEventDestroy(begin));
    PEER_CHECK(cudaEventDestroy(end));
    return peer_summary(us);
}

static inline void peer_print_times(peer_times t)
{
    printf("\"us\": %.2f, \"us_min\": %.2f, \"us_p90\": %.2f, \"runs\": %d", t.median_us, t.min_us,
           t.p90_us, t.runs);
}

#endif
