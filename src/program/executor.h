/* executor.h: what the reference and the CPU executor share: memory, the state of instructions and
 * counters, and the life of one instruction.
 *
 * Invariants:
 * - state[i] only grows. In epoch e an instruction goes 4e+1 (claimed), 4e+2 (committing), 4e+3
 *   (done); anything below 4e+1 is free. Exactly one execution wins the step from claimed to
 *   committing, and it alone publishes and signals.
 * - counters only grow: in epoch e a wait (c, v) holds once the counter is at e * total + v.
 */
#ifndef BRIM_EXECUTOR_H
#define BRIM_EXECUTOR_H

#include <stdatomic.h>

#include "base/thread.h"
#include "program/program.h"

enum {
    BRIM__CLAIMED = 1,
    BRIM__COMMITTING = 2,
    BRIM__DONE = 3,
    BRIM__LANE_ALIGN = 64 /* what the allocator gives */
};

/* An instruction being executed by one lane. */
typedef struct brim__execution {
    brim_op_env env;
    void *access[BRIM_ACCESSES_MAX];
    uint32_t run_counts[BRIM_ACCESSES_MAX];
    const void *tiles[2];
} brim__execution;

typedef struct brim__cpu brim__cpu;             /* executor_cpu.c */
typedef struct brim__reference brim__reference; /* reference.c */
typedef struct brim__cuda_run brim__cuda_run;   /* executor_cuda.c */

struct brim_executor {
    brim_context *ctx;
    const brim_program *program;
    brim_executor_desc desc;
    uint64_t created_ns;

    char **memory; /* by buffer: copy 0 */
    bool *memory_owned;
    const void **tiles; /* by tensor */
    bool *tiles_owned;
    size_t scratch_bytes; /* of one lane: packed writes, packet copies and the op's own */

    _Atomic uint64_t *state;    /* by instruction */
    _Atomic uint64_t *counters; /* by counter */
    _Atomic uint64_t epoch;     /* that runs now or next */
    _Atomic uint32_t cancel;
    _Atomic uint32_t running;
    uint64_t end_epoch; /* exclusive: where the present run ends at the latest */

    _Atomic uint32_t failed; /* 1 while the first failure is written, 2 when it can be read */
    brim_status failure;
    char failure_id[64];
    char failure_text[512];

    brim_executor_stats stats; /* summed when a run has ended */
    brim__cpu *cpu;
    brim__reference *reference;
    brim__cuda_run *cuda;
};

const brim_program *brim__executor_program(const brim_executor *x);
/* Takes what the host needs of the memory that nobody has bound, and says why when it can't: then
 * brim_executor_buffer() gives no NULL for it later. */
brim_status brim__executor_place(brim_executor *x);

static inline bool brim__instruction_done(const brim_executor *x, uint32_t i, uint64_t epoch)
{
    return atomic_load_explicit(&x->state[i], memory_order_acquire) >= 4 * epoch + BRIM__DONE;
}

/* Whether all waits hold and all packets that it reads have come. */
bool brim__instruction_ready(const brim_executor *x, uint32_t i, uint64_t epoch);
/* Resolves pointers and counts; verifies tables in check mode. `scratch` is the lane's. */
brim_status brim__execution_prepare(brim__execution *out, brim_executor *x, char *scratch,
                                    uint32_t i, uint64_t epoch);
/* Computes into scratch. In check mode twice, comparing bits. */
brim_status brim__execution_compute(brim__execution *e, brim_executor *x, char *scratch);
/* Copies the packed writes to where they belong. */
void brim__execution_publish(brim__execution *e, brim_executor *x);
/* After a cancel: packets still come, as zeros, so that nobody waits for ever. */
void brim__execution_publish_nothing(brim_executor *x, uint32_t i, uint64_t epoch);
/* Whether a step-end instruction that was just published asks for another epoch. */
bool brim__execution_continues(const brim__execution *e);
/* The base address of the copy that an access means. */
char *brim__access_base(const brim_executor *x, const brim_access *a, uint64_t epoch);
/* Records the calling thread's last failure as the run's, if it is the first, and cancels. */
void brim__executor_fail(brim_executor *x, brim_status status);

brim_status brim__cpu_create(brim_executor *x);
void brim__cpu_destroy(brim_executor *x);
void brim__cpu_start(brim_executor *x);
void brim__cpu_wait(brim_executor *x);
bool brim__cpu_wait_epoch(brim_executor *x, uint64_t epoch, uint64_t timeout_ns);
size_t brim__cpu_trace(const brim_trace_event **out, brim_executor *x, uint32_t lane);

brim_status brim__reference_create(brim_executor *x);
void brim__reference_destroy(brim_executor *x);
brim_status brim__reference_run(brim_executor *x);
size_t brim__reference_trace(const brim_trace_event **out, brim_executor *x, uint32_t lane);

#endif
