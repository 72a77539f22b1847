/* runner.h: what runner, session and generation share. */
#ifndef BRIM_LLM_RUNNER_H
#define BRIM_LLM_RUNNER_H

#include <stdatomic.h>

#include "llm/build.h"

/* One of the two programs with its executor. */
typedef struct brim__engine {
    brim_program *program;
    brim_executor *executor;
    uint32_t rows;
} brim__engine;

struct brim_session {
    brim_runner *runner;
    uint32_t slot;
    uint32_t length;      /* tokens in the KV cache */
    uint32_t block_count; /* blocks that the table holds */
};

struct brim_runner {
    brim_context *ctx;
    const brim_llm *llm;
    brim_runner_desc desc;
    brim_op_table *ops;
    brim__engine decode, prefill;
    void *shared[LLM_BUFFER_COUNT]; /* memory bound to both programs; NULL for the programs' own */
    uint32_t *free_blocks;          /* a stack */
    uint32_t free_block_count;
    brim_session **slots; /* by slot; NULL: free */
    uint32_t blocks_max;  /* of a session */
    _Atomic uint32_t cancelled;
};

/* A place in a step. */
typedef struct brim__planned {
    brim__engine *engine;
    uint32_t *step; /* words for the epoch that comes next */
    uint32_t out_count;
} brim__planned;

/* Grants blocks so that the session can hold `length` tokens. Errors: LIMIT. */
brim_status brim__session_reserve(brim_session *session, uint32_t length);

/* Writes rows into the step buffer of the engine that fits, at the sessions' next positions. */
brim_status brim__runner_plan(brim__planned *out, brim_runner *runner, const brim_row *rows,
                              uint32_t count);

/* Runs what was planned: one epoch. On success the sessions' lengths have grown. */
brim_status brim__runner_execute(brim_runner *runner, const brim__planned *plan,
                                 const brim_row *rows, uint32_t count);

/* The ring's entry that epoch-in-run n of an engine has filled (see STEP_RING). */
static inline const brim__sampled *brim__runner_result(const brim_runner *runner,
                                                       const brim__engine *engine, uint32_t entry)
{
    (void)runner;
    return (const brim__sampled *)brim_executor_buffer(engine->executor, LLM_BUFFER_RESULT, 0) +
           (size_t)(entry % RESULT_RING) * (engine->rows + 1);
}

static inline brim__sample_params *brim__runner_params(brim_runner *runner, uint32_t slot)
{
    return (brim__sample_params *)runner->shared[LLM_BUFFER_PARAMS] + slot;
}

#endif
