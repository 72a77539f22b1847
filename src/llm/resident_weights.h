/* resident_weights.h: a model's weights in one block of a device's memory, as the resident ops want
 * them (program/ops_resident.h): 16-bit matrices in tiles of 8 rows, vectors in float32.
 *
 * The type is BF16 if every matrix of the file is BF16, else F16: quantised types, F32 and BF16
 * beside others are rounded to the nearest F16 once.
 */
#ifndef BRIM_LLM_RESIDENT_WEIGHTS_H
#define BRIM_LLM_RESIDENT_WEIGHTS_H

#include "brim/device.h"
#include "llm/llm.h"

/* name, text. QKV: query, key and value rows one after another. GATE_UP: row 2i is the gate's row
 * i, row 2i + 1 that of up. */
#define BRIM__RES_MATRICES(X)                                                                      \
    X(QKV, "attn_qkv")                                                                             \
    X(OUT, "attn_output")                                                                          \
    X(GATE_UP, "ffn_gate_up")                                                                      \
    X(DOWN, "ffn_down")

enum {
#define BRIM__RES_MATRIX_ENUM(name, text) RES_MATRIX_##name,
    BRIM__RES_MATRICES(BRIM__RES_MATRIX_ENUM)
#undef BRIM__RES_MATRIX_ENUM
        RES_MATRIX_COUNT
};

#define BRIM__RES_VECTORS(X)                                                                       \
    X(ATTN_NORM, "attn_norm")                                                                      \
    X(FFN_NORM, "ffn_norm")                                                                        \
    X(Q_NORM, "attn_q_norm")                                                                       \
    X(K_NORM, "attn_k_norm")                                                                       \
    X(QKV_BIAS, "attn_qkv_bias")

enum {
#define BRIM__RES_VECTOR_ENUM(name, text) RES_VECTOR_##name,
    BRIM__RES_VECTORS(BRIM__RES_VECTOR_ENUM)
#undef BRIM__RES_VECTOR_ENUM
        RES_VECTOR_COUNT
};

/* Where it lies in the block. */
typedef struct brim__res_matrix {
    uint32_t rows, cols;
    uint64_t offset;
} brim__res_matrix;

typedef struct brim__res_vector {
    uint32_t count; /* 0: the model has none */
    uint64_t offset;
} brim__res_vector;

typedef struct brim__res_layer {
    brim__res_matrix matrices[RES_MATRIX_COUNT];
    brim__res_vector vectors[RES_VECTOR_COUNT];
} brim__res_layer;

struct brim__resident {
    brim_context *ctx;
    brim_device *device;
    brim_device_memory *memory;
    brim_dtype type; /* F16 or BF16 */
    uint64_t bytes;  /* of the block */
    brim__res_matrix embedding;
    brim__res_matrix head; /* the embedding's place when it is tied */
    brim__res_vector final_norm;
    brim__res_layer *layers;
};

static inline uint64_t brim__res_matrix_bytes(const brim__res_matrix *m)
{
    return 16 * (uint64_t)((m->rows + 7) / 8) * m->cols;
}

/* Reads the file's weights into memory of desc->device. Errors: UNSUPPORTED, id "resident.model"
 * (what the model has that the resident ops lack), "tile.range" (a weight that F16 can't hold);
 * NO_MEMORY, id "resident.memory", before anything is copied. */
brim_status brim__resident_create(brim__resident **out, const brim_llm *llm,
                                  const brim_model_file *file, const brim_llm_desc *desc);
void brim__resident_destroy(brim__resident *resident);
/* Bytes of matrices that a step reads. */
uint64_t brim__resident_decode_bytes(const brim__resident *resident,
                                     const brim_model_config *config);

/* NO_MEMORY, id "resident.memory", unless weights + kv + buffers bytes are free on the device. */
brim_status brim__resident_room(brim_device *device, uint64_t weights, uint64_t kv,
                                uint64_t buffers);

#endif
