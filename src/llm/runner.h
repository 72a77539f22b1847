/* runner.h: what runner, session and generation share. */
#ifndef BRIM_LLM_RUNNER_H
#define BRIM_LLM_RUNNER_H

#include <stdatomic.h>

#include "llm/build_resident.h"

/* A program with its executor. */
typedef struct brim__engine {
    brim_program *program; /* NULL: the runner does without */
    brim_executor *executor;
    uint32_t rows;
} brim__engine;

/* Few rows and many; resident runners with a long context have two kinds of each. */
enum { ENGINE_DECODE, ENGINE_PREFILL, ENGINE_DECODE_LONG, ENGINE_PREFILL_LONG, ENGINE_COUNT };

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
    brim__engine engines[ENGINE_COUNT];
    uint32_t long_from; /* steps with this position or a later one need the long engines */
    /* Memory bound to all programs, in the host's memory or in a device's; NULL for the programs'
     * own. */
    void *shared[LLM_BUFFER_COUNT];
    brim_device_memory *pool;
    uint64_t pool_offset[LLM_BUFFER_COUNT]; /* of KV, history and RoPE */
    uint32_t *tokens;      /* resident: what the host knows of the history, (slot, position) */
    float *logits;         /* of a device whose memory the host can't touch */
    uint32_t *free_blocks; /* a stack */
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

/* `limit`, or as many steps as rows from their sessions' next positions on may be chained in one
 * engine. */
uint32_t brim__runner_chain_max(const brim_runner *runner, const brim_row *rows, uint32_t count,
                                uint32_t limit);

/* Logits of the first `count` out rows of the engine's last step, valid until the next. */
brim_status brim__runner_logits(const float **out, brim_runner *runner, brim__engine *engine,
                                uint32_t count);

/* Whether logits are hashed here, because no CPU samples from them. */
static inline bool brim__runner_hashes(const brim_runner *runner)
{
    return runner->desc.executor.kind == BRIM_EXECUTOR_CUDA;
}

static inline uint32_t brim__runner_rows_max(const brim_runner *runner)
{
    uint32_t few = runner->engines[ENGINE_DECODE].rows, many = runner->engines[ENGINE_PREFILL].rows;
    return few > many ? few : many;
}

/* Tells the host's copy of the history, where there is one, what stands at a position. */
static inline void brim__session_note(brim_session *session, uint32_t position, brim_token token)
{
    brim_runner *r = session->runner;
    if (r->tokens && position < r->blocks_max * BRIM__KV_BLOCK)
        r->tokens[(size_t)session->slot * r->blocks_max * BRIM__KV_BLOCK + position] =
            (uint32_t)token;
}

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
