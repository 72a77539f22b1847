/* hw.h: what the files of this room share: CPU flags, the list of arithmetic rates, a crew of
 * threads with a barrier, and how the buffer of a bandwidth probe is sized. */
#ifndef BRIM_HW_HW_H
#define BRIM_HW_HW_H

#include <stdatomic.h>

#include "base/memory.h"
#include "brim/hw.h"

/* ---- the CPU (cpu_x86.c or cpu_generic.c) ---- */

/* Flags that matter to Brim; the text is the name that Linux gives them in /proc/cpuinfo. A flag
 * is set only when the operating system also saves the registers that it needs. */
#define BRIM__CPU_FLAG_LIST(X)                                                                     \
    X(SSE4_2, "sse4_2")                                                                            \
    X(AVX, "avx")                                                                                  \
    X(F16C, "f16c")                                                                                \
    X(FMA, "fma")                                                                                  \
    X(AVX2, "avx2")                                                                                \
    X(AVX_VNNI, "avx_vnni")                                                                        \
    X(AVX512F, "avx512f")                                                                          \
    X(AVX512BW, "avx512bw")                                                                        \
    X(AVX512DQ, "avx512dq")                                                                        \
    X(AVX512VL, "avx512vl")                                                                        \
    X(AVX512_VNNI, "avx512_vnni")                                                                  \
    X(AVX512_BF16, "avx512_bf16")                                                                  \
    X(AVX512_FP16, "avx512_fp16")                                                                  \
    X(AMX_TILE, "amx_tile")                                                                        \
    X(AMX_INT8, "amx_int8")                                                                        \
    X(AMX_BF16, "amx_bf16")                                                                        \
    X(ASIMD, "asimd")                                                                              \
    X(ASIMDDP, "asimddp")                                                                          \
    X(I8MM, "i8mm")                                                                                \
    X(BF16, "bf16")                                                                                \
    X(SVE, "sve")

typedef enum brim__cpu_flag {
#define BRIM__CPU_FLAG_ENUM(name, text) BRIM__CPU_##name,
    BRIM__CPU_FLAG_LIST(BRIM__CPU_FLAG_ENUM)
#undef BRIM__CPU_FLAG_ENUM
        BRIM__CPU_FLAG_COUNT
} brim__cpu_flag;

#define BRIM__CPU_BIT(name) (UINT64_C(1) << BRIM__CPU_##name)

/* Asks the CPU; slow in a virtual machine, so that isa.c keeps the answer. */
uint64_t brim__cpu_detect(void);
/* The CPU's own name, without a topology search; never empty. */
void brim__cpu_name(char *out, size_t size);

/* Copies a name without what is not printable ASCII; runs of spaces become one. */
void brim__cpu_name_clean(char *out, size_t size, const char *name);

/* The flags as a set of BRIM__CPU_BIT(), asked once in the life of the process. */
uint64_t brim__cpu_flags(void);
/* Writes the set as "avx2 fma ..." in the order of the list. */
void brim__cpu_flags_text(char *out, size_t size, uint64_t flags);
/* The best instruction set of a set of flags, lowered by `wanted` ("avx2" ...; NULL: not). */
brim_isa brim__isa_from_flags(uint64_t flags, const char *wanted);

/* ---- memory ---- */

/* Physical memory that this process may use: the machine's, or its control group's if less.
 * Zero when unknown. */
uint64_t brim__hw_memory_bytes(void);
/* The size of the last level of cache that one thread reads through, without a topology search;
 * 0 when unknown. */
uint64_t brim__hw_last_cache_bytes(void);
/* Four times the last cache and at least 256 MiB, but at most a quarter of memory. */
uint64_t brim__probe_buffer_bytes(uint64_t last_cache_bytes, uint64_t memory_bytes);

/* ---- a crew: lanes that start together ---- */

/* A sense-reversing barrier: the last lane to arrive turns the sense, the others spin on it. A
 * lane that has spun for long gives its time slice away, since the missing lane may need this
 * very core. Zero-initialise `arrived` and `sense`; each lane has a `sense` of its own, first 0. */
typedef struct brim__barrier {
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t sense;
    _Alignas(64) uint32_t lane_count;
} brim__barrier;

void brim__barrier_wait(brim__barrier *barrier, uint32_t *sense);

/* Runs body(lane, user) on `lane_count` threads once all of them exist, and waits for their end;
 * `pin` binds each to a CPU of its own as far as there are enough. When a thread can't be started
 * no body runs. */
brim_status brim__crew_run(brim_context *ctx, uint32_t lane_count, bool pin,
                           void (*body)(uint32_t lane, void *user), void *user);

/* Nanoseconds of one barrier over `lane_count` lanes, in the best of some batches; 0 for one. */
brim_status brim__probe_barrier(double *out_ns, brim_context *ctx, uint32_t lane_count);

/* ---- bodies of the probes, one file an instruction set ---- */

/* Reads `size` bytes (a multiple of 4,096) as `streams` streams side by side, each of them
 * sequential, with the widest loads of the set. */
typedef void brim__read_body(const void *data, size_t size, uint32_t streams);
brim__read_body brim__read_scalar, brim__read_avx2, brim__read_avx512;

/* Runs `iterations` of a loop of multiplications and additions that wait for nothing but each
 * other's unit. */
typedef void brim__rate_body(uint64_t iterations);
brim__rate_body brim__rate_f32_scalar, brim__rate_u8s8_scalar;
brim__rate_body brim__rate_f32_avx2, brim__rate_f16_avx2, brim__rate_u8s8_avx2,
    brim__rate_u8s8_avx_vnni;
brim__rate_body brim__rate_f32_avx512, brim__rate_f16_avx512, brim__rate_u8s8_avx512,
    brim__rate_u8s8_avx512_vnni, brim__rate_bf16_avx512;
brim__rate_body brim__rate_u8s8_amx, brim__rate_bf16_amx;
/* Asks the operating system for the tile registers, for the whole process; false when it won't. */
bool brim__amx_permit(void);

/* A rate that can be probed. Everything a rate's name may be is in this table, so that names read
 * from a file become pointers into it. */
typedef struct brim__rate_kind {
    const char *type, *isa;
    brim_isa level; /* kernels of this level and above use it; BRIM_ISA_COUNT: none does */
    uint64_t flags; /* that the CPU must have */
    uint32_t ops;   /* multiplications and additions of one iteration */
    brim__rate_body *body;
} brim__rate_kind;

/* Of the architecture (probe_x86.c or probe_generic.c): the kinds that it knows, at most
 * BRIM_HW_RATES_MAX; whether this CPU and operating system have one; the widest reads. */
const brim__rate_kind *brim__rate_kinds(size_t *out_count);
bool brim__rate_usable(const brim__rate_kind *kind);
brim__read_body *brim__read_widest(void);
/* NULL when there is no such kind. */
const brim__rate_kind *brim__rate_kind_find(const char *type, const char *isa);
/* 1e9 operations a second on this thread: the best of some batches. */
double brim__rate_measure(const brim__rate_kind *kind);

/* ---- the cache of the probe ---- */

/* What a cached probe is valid for. */
typedef struct brim__probe_key {
    char cpu_name[96];
    uint32_t thread_count;
    char kernel[96];
} brim__probe_key;

void brim__probe_key_here(brim__probe_key *out);
/* Text of a probe and back; everything read is checked. Errors of reading: FORMAT, id
 * "hw.cache", NOT_FOUND when the key is another machine's. */
brim_status brim__probe_to_text(char **out, brim_context *ctx, const brim_hw_probe *probe,
                                const brim__probe_key *key);
brim_status brim__probe_from_text(brim_hw_probe *out, const char *text, size_t size,
                                  const brim__probe_key *key);

#endif
