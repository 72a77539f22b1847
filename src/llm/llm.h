/* llm.h: a model's weights as the programs see them. */
#ifndef BRIM_LLM_INTERNAL_H
#define BRIM_LLM_INTERNAL_H

#include "brim/llm.h"
#include "base/memory.h"
#include "kernels/kernels.h"
#include "program/ops_llm.h"

/* A matrix as tiles. tiles is NULL for one the model does not have. */
typedef struct brim__matrix {
    brim__tiling tiling;
    void *tiles;
} brim__matrix;

/* name within the layer, text of the tensor "blk.N.TEXT.weight" */
#define BRIM__LAYER_MATRICES(X)                                                                    \
    X(Q, "attn_q")                                                                                 \
    X(K, "attn_k")                                                                                 \
    X(V, "attn_v")                                                                                 \
    X(O, "attn_output")                                                                            \
    X(GATE, "ffn_gate")                                                                            \
    X(UP, "ffn_up")                                                                                \
    X(DOWN, "ffn_down")

enum {
#define BRIM__LAYER_MATRIX_ENUM(name, text) MATRIX_##name,
    BRIM__LAYER_MATRICES(BRIM__LAYER_MATRIX_ENUM)
#undef BRIM__LAYER_MATRIX_ENUM
        MATRIX_COUNT
};

/* Vectors of a layer: name, tensor "blk.N.TEXT", present when. */
#define BRIM__LAYER_VECTORS(X)                                                                     \
    X(ATTN_NORM, "attn_norm.weight", true)                                                         \
    X(FFN_NORM, "ffn_norm.weight", true)                                                           \
    X(Q_NORM, "attn_q_norm.weight", config->has_qk_norm)                                           \
    X(K_NORM, "attn_k_norm.weight", config->has_qk_norm)                                           \
    X(Q_BIAS, "attn_q.bias", config->has_qkv_bias)                                                 \
    X(K_BIAS, "attn_k.bias", config->has_qkv_bias)                                                 \
    X(V_BIAS, "attn_v.bias", config->has_qkv_bias)

enum {
#define BRIM__LAYER_VECTOR_ENUM(name, text, present) VECTOR_##name,
    BRIM__LAYER_VECTORS(BRIM__LAYER_VECTOR_ENUM)
#undef BRIM__LAYER_VECTOR_ENUM
        VECTOR_COUNT
};

typedef struct brim__vector {
    float *values; /* NULL when absent */
    uint32_t count;
} brim__vector;

typedef struct brim__layer {
    brim__matrix matrices[MATRIX_COUNT];
    brim__vector vectors[VECTOR_COUNT];
} brim__layer;

typedef struct brim__resident brim__resident; /* resident_weights.h */

struct brim_llm {
    brim_context *ctx;
    brim_model_config config;
    brim__resident *resident; /* weights on a device; then there are no tiles and vectors below */
    brim__layer *layers;
    brim__matrix embedding; /* the head too when it is tied */
    brim__matrix head;      /* tiles NULL when it is tied */
    brim__vector final_norm;
    brim__vector rope_factors; /* of either kind */
    uint64_t decode_bytes;
};

/* One row of floats, finite. Errors: FORMAT. On failure *out is empty or may be freed as it is. */
brim_status brim__llm_read_vector(brim__vector *out, brim_context *ctx, const brim_model_file *file,
                                  const char *name);
/* Positions that a runner has unless told otherwise. */
uint32_t brim__llm_context_default(const brim_llm *llm);

static inline const brim__matrix *brim__llm_head(const brim_llm *llm)
{
    return llm->head.tiles ? &llm->head : &llm->embedding;
}

#endif
