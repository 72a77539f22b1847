/* build_resident.h: a model as a resident program: decode of 1 or 8 rows. */
#ifndef BRIM_LLM_BUILD_RESIDENT_H
#define BRIM_LLM_BUILD_RESIDENT_H

#include "llm/build.h"
#include "llm/resident_weights.h"
#include "program/ops_resident.h"

typedef struct brim__resident_desc {
    const char *name;
    uint32_t lanes;
    uint32_t rows;      /* of a step, at most: 1 to 8 */
    uint32_t slots;     /* sequences: rows of the block table */
    uint32_t context;   /* positions a sequence may have; a multiple of 32 */
    uint32_t kv_blocks; /* of the pool */
    bool direct; /* the output product combines attention's parts itself: for steps whose rows see
                    BRIM__RES_DIRECT_MAX splits at most (brim__resident_direct_end()) */
} brim__resident_desc;

/* Splits of positions that one row may see. */
uint32_t brim__resident_splits(const brim_model_config *config, uint32_t context);
/* Positions below this may be served by a direct program; UINT32_MAX: all of them. */
uint32_t brim__resident_direct_end(const brim_model_config *config, uint32_t context);

/* Builds the program of one step. The buffers of BRIM__LLM_BUFFERS get the first indices, then the
 * vectors; tensor 0 is the embedding, tensor 1 the head. */
brim_status brim__build_resident(brim_program **out, brim_context *ctx, const brim_op_table *ops,
                                 const brim_llm *llm, const brim__resident_desc *desc);
/* Binds the weights to an executor of such a program. */
brim_status brim__resident_bind(brim_executor *executor, const brim_llm *llm);

/* Bytes of the KV pool, and of a program's own buffers. */
uint64_t brim__resident_kv_bytes(const brim_model_config *config, uint32_t kv_blocks);
uint64_t brim__resident_buffer_bytes(const brim_program *program);
/* The latter of all programs of a runner, from the numbers alone: a little too high. */
uint64_t brim__resident_buffers_about(const brim_model_config *config, uint32_t context);

#endif
