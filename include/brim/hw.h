/* brim/hw.h: what this machine is: found through hwloc, and probed.
 *
 * A probe takes seconds; its result is cached on disk by machine so that `brim run` can say what
 * per cent of the bandwidth it reached, with the probe's age.
 */
#ifndef BRIM_HW_H
#define BRIM_HW_H

#include "brim/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Instruction sets that have a body of their own, worst first. */
typedef enum brim_isa { BRIM_ISA_SCALAR, BRIM_ISA_AVX2, BRIM_ISA_AVX512, BRIM_ISA_COUNT } brim_isa;

BRIM_API const char *brim_isa_name(brim_isa isa);
/* The best set that this CPU and operating system have. BRIM_ISA in the environment ("scalar",
 * "avx2", "avx512") lowers it; a set that is not there is ignored. */
BRIM_API brim_isa brim_isa_best(void);

#define BRIM_HW_THREADS_MAX 1024
#define BRIM_HW_RATES_MAX 16

/* The machine as found. Zero means unknown. */
typedef struct brim_hw {
    char cpu_name[96];
    uint32_t package_count, core_count, thread_count; /* that this process may use */
    uint32_t numa_count;
    uint64_t l1d_bytes, l2_bytes, l3_bytes; /* of one instance each */
    uint32_t l1d_count, l2_count, l3_count;
    uint64_t memory_bytes;
    char os[96];
    char isa_flags[256]; /* "avx2 fma avx512f ..." */
    brim_isa isa;
} brim_hw;

BRIM_API brim_status brim_hw_find(brim_hw *out, brim_context *ctx);

/* An arithmetic rate. */
typedef struct brim_hw_rate {
    const char *type; /* "f32", "f16-to-f32", "bf16", "u8s8" ... */
    const char *isa;  /* "scalar", "avx2", "avx512", "avx512-vnni", "avx512-bf16", "amx-int8" ... */
    double gop_s;     /* 1e9 multiplications and additions (counted as two) a second, one thread */
} brim_hw_rate;

typedef struct brim_hw_probe {
    uint64_t buffer_bytes; /* of each bandwidth probe: 4 times the last cache or more */
    uint32_t thread_count; /* entries of read_gb_s in use */
    double read_gb_s[64];  /* 1e9 bytes a second, with 1, 2, ... threads (of at most 64) */
    uint32_t rate_count;
    brim_hw_rate rates[BRIM_HW_RATES_MAX];
    double barrier_ns[64]; /* one barrier over 1, 2, ... lanes that spin; 0 for one */
    int64_t probed_at;     /* Unix seconds */
} brim_hw_probe;

/* Probes bandwidth only, with `threads` threads for about `seconds` (0: 0.5); GB/s in *out. */
BRIM_API brim_status brim_hw_probe_read(double *out_gb_s, brim_context *ctx, uint32_t threads,
                                        double seconds);
/* The whole probe: some 10 seconds. `progress` may be NULL. */
BRIM_API brim_status brim_hw_probe_all(brim_hw_probe *out, brim_context *ctx,
                                       void (*progress)(const char *what, void *user), void *user);
/* The cached probe of this very machine (same CPU name, threads, kernel): NOT_FOUND when there is
 * none. $XDG_CACHE_HOME/brim/ or ~/.cache/brim/. A damaged cache file counts as none. */
BRIM_API brim_status brim_hw_probe_load(brim_hw_probe *out, brim_context *ctx);
BRIM_API brim_status brim_hw_probe_save(const brim_hw_probe *probe, brim_context *ctx);

/* A machine description as JSON text ("brim-machine" format, docs/hw.md): what `predict` and the
 * planner read. The text is freed with brim_free(). */
BRIM_API brim_status brim_hw_to_json(char **out, brim_context *ctx, const brim_hw *hw,
                                     const brim_hw_probe *probe);

/* A machine description for `predict`: costs are computed from these alone. */
typedef struct brim_machine {
    char name[96];
    uint32_t lane_count;
    double read_gb_s;       /* all lanes together */
    double lane_read_gb_s;  /* one lane alone */
    double lane_gflop_s;    /* f32 */
    double lane_gop_int8_s; /* 8-bit integer, multiplications and additions */
    double signal_ns;       /* from a signal to the waiting lane going on */
    double instruction_ns;  /* fixed cost of an instruction */
} brim_machine;

/* Reads one; every field is checked (finite, positive, in a sane range). Errors: FORMAT, ids
 * "machine.*", with the line or the key. */
BRIM_API brim_status brim_machine_parse(brim_machine *out, brim_context *ctx, const char *json,
                                        size_t size);
/* From a probe of this machine. */
BRIM_API brim_machine brim_machine_from_probe(const brim_hw *hw, const brim_hw_probe *probe,
                                              uint32_t lanes);

#ifdef __cplusplus
}
#endif
#endif
