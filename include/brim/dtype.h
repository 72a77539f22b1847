/* brim/dtype.h: the element types that tensors are stored in.
 *
 * A quantised type stores blocks of `block` elements in `bytes` bytes; the layouts are those of
 * the GGUF format (ggml, "ggml-common.h" and the GGUF specification). Everything is little-endian.
 */
#ifndef BRIM_DTYPE_H
#define BRIM_DTYPE_H

#include "brim/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* name, id in a GGUF file, elements a block, bytes a block */
#define BRIM_DTYPE_LIST(X)                                                                         \
    X(F32, 0, 1, 4)                                                                                \
    X(F16, 1, 1, 2)                                                                                \
    X(Q4_0, 2, 32, 18)                                                                             \
    X(Q4_1, 3, 32, 20)                                                                             \
    X(Q5_0, 6, 32, 22)                                                                             \
    X(Q5_1, 7, 32, 24)                                                                             \
    X(Q8_0, 8, 32, 34)                                                                             \
    X(Q4_K, 12, 256, 144)                                                                          \
    X(Q5_K, 13, 256, 176)                                                                          \
    X(Q6_K, 14, 256, 210)                                                                          \
    X(BF16, 30, 1, 2)

typedef enum brim_dtype {
#define BRIM_DTYPE_ENUM(name, id, block, bytes) BRIM_DTYPE_##name = id,
    BRIM_DTYPE_LIST(BRIM_DTYPE_ENUM)
#undef BRIM_DTYPE_ENUM
} brim_dtype;

/* Whether `id` (as in a GGUF file) is a type that Brim reads. */
BRIM_API bool brim_dtype_known(uint32_t id);
/* Its name, "Q4_1". For other ids that the GGUF specification lists, their name too ("IQ2_XS"),
 * so that a refusal can say it; "type N" style text is up to the caller: NULL when unlisted. */
BRIM_API const char *brim_dtype_name(uint32_t id);
/* Elements and bytes of one block; 0 for an unknown type. */
BRIM_API uint32_t brim_dtype_block(brim_dtype type);
BRIM_API uint32_t brim_dtype_block_bytes(brim_dtype type);
/* The type with this name, whatever the case; false when there is none. */
BRIM_API bool brim_dtype_parse(brim_dtype *out, const char *name);

#ifdef __cplusplus
}
#endif
#endif
