/* cuda_encode.h: a program as the words that the resident kernel interprets. */
#ifndef BRIM_CUDA_ENCODE_H
#define BRIM_CUDA_ENCODE_H

#include "kernels/cuda/resident.h"
#include "program/ops_resident.h"

/* What all instructions of a program have in common. */
typedef struct brim__cuda_shape {
    brim_dtype type;
    uint32_t rows, head_size, kv_heads, group, slots, context, blocks, blocks_max, vocab;
    uint32_t window;
    bool rope_halves, direct;
    float scale;
    uint32_t keep_blocks; /* of input: for products in several groups of tiles, if there is room */
    uint32_t keep_least;  /* for input that is no packet of activations: there must be */
    int32_t step, tables, params, history, ends, mail, result, logits, rope, kv; /* buffers */
} brim__cuda_shape;

/* Errors: UNSUPPORTED, ids "cuda.op", "cuda.shape". */
brim_status brim__cuda_shape_of(brim__cuda_shape *out, const brim_program *p);

/* Where things lie: packets by offset in bytes, others by address. */
typedef struct brim__cuda_places {
    uint64_t base;
    const uint64_t *buffer; /* packet: offset in a set; else the address */
    const bool *packet;
    const uint64_t *tensor;
} brim__cuda_places;

/* Instructions of a lane with the end of its list: their number. */
uint32_t brim__cuda_list_count(const brim_program *p, uint32_t lane);
void brim__cuda_encode_lane(uint32_t *out, const brim_program *p, const brim__cuda_shape *shape,
                            const brim__cuda_places *places, uint32_t lane);

#endif
