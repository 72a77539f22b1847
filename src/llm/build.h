/* build.h: a model as a program. */
#ifndef BRIM_LLM_BUILD_H
#define BRIM_LLM_BUILD_H

#include "llm/llm.h"

typedef struct brim__build_desc {
    const char *name;
    uint32_t lanes;
    uint32_t rows;      /* of a step, at most */
    uint32_t slots;     /* sequences: rows of the block table */
    uint32_t context;   /* positions a sequence may have; a multiple of 32 */
    uint32_t kv_blocks; /* of the pool */
    brim_numerics numerics;
    bool split;    /* attention in splits over all lanes (few rows), or a row at a time (many) */
    uint32_t ring; /* layers after which activation buffers are used again */
} brim__build_desc;

/* Buffers that the host fills or shares between programs; the same names in every program. */
#define BRIM__LLM_BUFFERS(X)                                                                       \
    X(STEP, "step")                                                                                \
    X(TABLES, "tables")   /* u32 (slot, block of the sequence): block of the pool */               \
    X(PARAMS, "params")   /* brim__sample_params (slot) */                                         \
    X(HISTORY, "history") /* u32 (slot, position): tokens */                                       \
    X(MAIL, "mail")       /* u32 (slot): 1 asks the chain to stop */                               \
    X(ENDS, "ends")       /* u32: a count, then token ids */                                       \
    X(KV, "kv")           /* (layer, KV head, K or V, block of the pool, 32 positions) */          \
    X(ROPE, "rope")       /* f32 (position, cosines then sines) */                                 \
    X(RESULT, "result")   /* brim__sampled (entry, 1 + row) */                                     \
    X(LOGITS, "logits")   /* f32 (out row, vocabulary) */

enum {
#define BRIM__LLM_BUFFER_ENUM(name, text) LLM_BUFFER_##name,
    BRIM__LLM_BUFFERS(BRIM__LLM_BUFFER_ENUM)
#undef BRIM__LLM_BUFFER_ENUM
        LLM_BUFFER_COUNT
};

/* Builds the program of one step. The buffers above get the first indices, in that order; then the
 * weights' vectors. Tensors are bound with brim__build_bind(). */
brim_status brim__build_program(brim_program **out, brim_context *ctx, const brim_op_table *ops,
                                const brim_llm *llm, const brim__build_desc *desc);

/* Binds the model's matrices and vectors to an executor of such a program. */
brim_status brim__build_bind(brim_executor *executor, const brim_program *program,
                             const brim_llm *llm);

/* Bytes of the buffers above, the KV pool (0 here) excepted. */
void brim__build_sizes(uint64_t out[LLM_BUFFER_COUNT], const brim_model_config *config,
                       uint32_t rows, uint32_t slots, uint32_t context);

/* The RoPE table, f32 (context, rope_size): cosines, then sines. */
void brim__build_rope(float *out, const brim_llm *llm, uint32_t context);

#endif
