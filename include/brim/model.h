/* brim/model.h: what a model is, read from its file: metadata, tensors, and the architecture with
 * its parameter, KV and FLOP counts.
 *
 * A file is mapped and validated whole before anything in it is trusted: every count, size,
 * offset and type is checked against the bytes that are there. A model file object is read-only
 * after it was opened and may be used from any thread.
 */
#ifndef BRIM_MODEL_H
#define BRIM_MODEL_H

#include "brim/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_model_file brim_model_file;

/* Types of metadata values; numbers as in the GGUF specification. */
typedef enum brim_meta_type {
    BRIM_META_U8,
    BRIM_META_I8,
    BRIM_META_U16,
    BRIM_META_I16,
    BRIM_META_U32,
    BRIM_META_I32,
    BRIM_META_F32,
    BRIM_META_BOOL,
    BRIM_META_STRING,
    BRIM_META_ARRAY,
    BRIM_META_U64,
    BRIM_META_I64,
    BRIM_META_F64
} brim_meta_type;

typedef struct brim_meta {
    const char *key; /* 0-terminated */
    brim_meta_type type;
    brim_meta_type item_type; /* of an array */
    uint64_t count;           /* items of an array; 1 otherwise */
    uint64_t file_offset;     /* of the value in its file part, bytes */
} brim_meta;

#define BRIM_TENSOR_DIMS_MAX 4

typedef struct brim_tensor {
    const char *name; /* 0-terminated, at most 63 bytes */
    brim_dtype type;
    uint32_t dim_count;                  /* 1 to 4 */
    uint64_t dims[BRIM_TENSOR_DIMS_MAX]; /* innermost first, as in the file: dims[0] is the row
                                            length; unused are 1 */
    uint64_t row_count;                  /* dims[1] * dims[2] * dims[3] */
    uint64_t row_bytes;                  /* of one row of dims[0] elements */
    uint64_t size;                       /* bytes */
    const void *data;                    /* in the mapped file; NULL in a vocabulary-only file */
    uint64_t file_offset;                /* of data in its part */
    uint32_t part;                       /* which part of a split file */
} brim_tensor;

/* Opens a GGUF file, version 2 or 3. If it is the first part of a split model
 * ("NAME-00001-of-0000N.gguf"), the other parts are opened too.
 * Errors: NOT_FOUND, IO, FORMAT (ids "gguf.*": what, and the offset), UNSUPPORTED (a tensor type,
 * a version, big-endian: named), LIMIT, NO_MEMORY. */
BRIM_API brim_status brim_model_file_open(brim_model_file **out, brim_context *ctx,
                                          const char *path);
/* The same for bytes in memory, which must outlive the object and begin at a multiple of 8 (tests
 * and fuzzers). Errors: also USAGE, id "gguf.memory". */
BRIM_API brim_status brim_model_file_open_memory(brim_model_file **out, brim_context *ctx,
                                                 const void *data, size_t size);
BRIM_API void brim_model_file_close(brim_model_file *file);

BRIM_API const char *brim_model_file_path(const brim_model_file *file);
BRIM_API uint32_t brim_model_file_version(const brim_model_file *file);
BRIM_API uint64_t brim_model_file_size(const brim_model_file *file); /* all parts, bytes */
BRIM_API uint32_t brim_model_file_part_count(const brim_model_file *file);

/* Metadata by index, or by key (NULL when absent). */
BRIM_API size_t brim_model_file_meta_count(const brim_model_file *file);
BRIM_API const brim_meta *brim_model_file_meta_at(const brim_model_file *file, size_t index);
BRIM_API const brim_meta *brim_model_file_meta(const brim_model_file *file, const char *key);

/* Value `index` of an entry (0 for a scalar) as a type; integers convert where the value fits,
 * floats from any number. Errors: FORMAT, id "gguf.value" (wrong type, or does not fit: key and
 * offset named), USAGE (index out of range). A string is not 0-terminated and may hold any byte. */
BRIM_API brim_status brim_meta_u64(uint64_t *out, const brim_model_file *file,
                                   const brim_meta *meta, uint64_t index);
BRIM_API brim_status brim_meta_i64(int64_t *out, const brim_model_file *file, const brim_meta *meta,
                                   uint64_t index);
BRIM_API brim_status brim_meta_f64(double *out, const brim_model_file *file, const brim_meta *meta,
                                   uint64_t index);
BRIM_API brim_status brim_meta_bool(bool *out, const brim_model_file *file, const brim_meta *meta,
                                    uint64_t index);
BRIM_API brim_status brim_meta_string(const char **out, size_t *out_size,
                                      const brim_model_file *file, const brim_meta *meta,
                                      uint64_t index);

BRIM_API size_t brim_model_file_tensor_count(const brim_model_file *file);
BRIM_API const brim_tensor *brim_model_file_tensor_at(const brim_model_file *file, size_t index);
/* NULL when absent. */
BRIM_API const brim_tensor *brim_model_file_tensor(const brim_model_file *file, const char *name);
/* Lets the pages of a tensor's data go (they are read again from the file when touched). */
BRIM_API void brim_model_file_release(const brim_model_file *file, const brim_tensor *tensor);

/* ---- the architecture ---- */

typedef enum brim_arch { BRIM_ARCH_LLAMA, BRIM_ARCH_QWEN2, BRIM_ARCH_QWEN3 } brim_arch;

typedef enum brim_rope_kind {
    BRIM_ROPE_INTERLEAVED, /* pairs (2i, 2i+1): llama, as GGUF converters permute it */
    BRIM_ROPE_HALVES       /* pairs (i, i + n/2): qwen2, qwen3 */
} brim_rope_kind;

/* The numbers of a decoder of the Llama family. */
typedef struct brim_model_config {
    brim_arch arch;
    char name[64]; /* general.name, or "" ; cut at a character border if longer */
    uint32_t layer_count;
    uint32_t embed_size;    /* d */
    uint32_t head_count;    /* query heads */
    uint32_t kv_head_count; /* divides head_count */
    uint32_t head_size;     /* even */
    uint32_t ffn_size;
    uint32_t vocab_size;
    uint32_t context_trained; /* positions */
    float norm_epsilon;
    brim_rope_kind rope_kind;
    float rope_base;         /* theta */
    float rope_scale_linear; /* positions are divided by it; 1 when absent */
    uint32_t rope_size;      /* dimensions that are rotated, at most head_size */
    bool has_rope_factors;   /* tensor rope_freqs.weight: each frequency is divided by its factor */
    uint32_t sliding_window; /* 0: none; position p sees p-window+1 .. p */
    bool has_qkv_bias;       /* qwen2 */
    bool has_qk_norm;        /* qwen3 */
    bool tied_head;          /* no output.weight: the head is the embedding */
    uint64_t parameter_count; /* elements of all tensors; rope_freqs.weight, a constant, is none */
    uint64_t weight_bytes;    /* bytes of all tensors */
    uint64_t decode_bytes; /* weight bytes read for one token: everything but the embedding, and the
                              head even if it is tied */
    uint64_t kv_elements_per_position; /* 2 * layers * kv heads * head size */
    uint64_t flops_per_token;          /* 2 * the elements of decode_bytes; attention not counted */
} brim_model_config;

/* Reads and validates the numbers and that every tensor of the architecture is there with the
 * shape that the numbers give. Errors: UNSUPPORTED, id "model.arch" (the name, and what is
 * supported), "model.feature" (MoE and others, by key); FORMAT, id "model.key" (absent, zero, out
 * of range: key, value, offset), "model.tensor" (absent, or its shape against the one expected). */
BRIM_API brim_status brim_model_config_read(brim_model_config *out, const brim_model_file *file);

BRIM_API const char *brim_arch_name(brim_arch arch);

/* ---- making a model file ---- */

typedef struct brim_make_desc {
    const char *shape; /* "llama-3.2-1b" ...: brim_make_shape_at() */
    const char *type;  /* a dtype's name, or the mixes "Q4_K_M" and "Q5_K_M"; default "Q4_1" */
    uint64_t seed;
    uint32_t layer_count; /* 0: the shape's own; fewer makes a smaller file for tests */
    uint32_t vocab_size;  /* 0: the shape's own */
    void (*progress)(uint64_t done, uint64_t total, void *user); /* bytes; may be NULL */
    /* Asked every few MiB; true ends the call with CANCELLED and no file. May be NULL. */
    bool (*cancelled)(void *user);
    void *user;
    uint32_t do_not_set;
} brim_make_desc;

BRIM_API brim_make_desc brim_make_desc_default(void);
/* The shapes by index; NULL past the last. */
BRIM_API const char *brim_make_shape_at(size_t index);
/* Writes a valid GGUF file of that shape with random weights and a vocabulary that llama.cpp loads
 * too: byte-level BPE (the 256 bytes, merges and special tokens), or SentencePiece for the shapes
 * whose models have it (llama-2-7b, mistral-7b). The same desc gives the same bytes. The file takes
 * its name when it is whole. Errors: USAGE (ids "make.shape", "make.type", "make.vocab",
 * "make.layers": what there is), IO (id "make.write"), CANCELLED (id "make.cancelled"). */
BRIM_API brim_status brim_make(brim_context *ctx, const char *path, const brim_make_desc *desc);

#ifdef __cplusplus
}
#endif
#endif
