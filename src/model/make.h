/* make.h: what the files that make model files share: the shapes, the bytes under construction,
 * vocabularies and random weights. */
#ifndef BRIM_MODEL_MAKE_H
#define BRIM_MODEL_MAKE_H

#include "base/text.h"
#include "brim/model.h"

/* Bytes of a GGUF header under construction. The first failure stays in `status` and later calls
 * do nothing, so that a long list of puts is checked once. */
typedef struct make_bytes {
    brim__string text;
    brim_status status;
    uint64_t meta_count; /* keys put so far */
} make_bytes;

void make__put(make_bytes *b, const void *data, size_t size);
void make__put_u32(make_bytes *b, uint32_t value);
void make__put_u64(make_bytes *b, uint64_t value);
void make__put_string(make_bytes *b, const char *text);
/* A key and its value. */
void make__key_string(make_bytes *b, const char *key, const char *value);
void make__key_u32(make_bytes *b, const char *key, uint32_t value);
void make__key_f32(make_bytes *b, const char *key, float value);
void make__key_bool(make_bytes *b, const char *key, bool value);
/* A key and the head of an array; the caller puts its items. */
void make__key_array(make_bytes *b, const char *key, brim_meta_type item_type, uint64_t count);

typedef enum make_vocab_kind {
    MAKE_VOCAB_SMOLLM,
    MAKE_VOCAB_LLAMA3,
    MAKE_VOCAB_QWEN2,
    MAKE_VOCAB_QWEN3,
    MAKE_VOCAB_LLAMA2, /* SentencePiece */
    MAKE_VOCAB_MISTRAL /* SentencePiece */
} make_vocab_kind;

/* The smallest vocabulary of a kind: its bytes and special tokens. */
uint32_t make__vocab_min(make_vocab_kind kind);
/* Puts all tokenizer keys for `size` tokens, of which `padding` at the end are fillers. */
void make__put_vocab(make_bytes *b, make_vocab_kind kind, uint32_t size, uint32_t padding);

/* The published dimensions of a model. */
typedef struct make_shape {
    const char *name;
    brim_arch arch;
    uint32_t layer_count, embed_size, head_count, kv_head_count, head_size, ffn_size, vocab_size;
    uint32_t context, sliding_window;
    float rope_base, norm_epsilon;
    float rope_factor; /* Llama 3's rope scaling; 0: none */
    bool tied_head;
    make_vocab_kind vocab;
    uint32_t vocab_padding; /* fillers at the end of the vocabulary */
} make_shape;

extern const make_shape make__shapes[];
extern const size_t make__shape_count;
const make_shape *make__find_shape(const char *name);
/* Factors of Llama 3's rope scaling for head_size / 2 frequencies. */
void make__rope_factors(float *out, uint32_t head_size, float rope_base, float factor);

/* Random weights of one tensor: any part of it may be made, in any order. */
typedef struct make_weights {
    brim_dtype type;
    uint64_t seed, stream;
    uint16_t scales[256];  /* f16 block scales to pick from */
    uint16_t offsets[256]; /* f16 block minima that go with them */
    float levels[4097];    /* float types: quantiles, the last twice */
    uint16_t halves[4096]; /* F16 and BF16: the same, rounded */
} make_weights;

enum { MAKE_UNIT_BYTES = 16 }; /* bytes of one call of the generator */

/* Weights with this mean (float types alone) and standard deviation. */
void make__weights_init(make_weights *w, brim_dtype type, uint64_t seed, uint64_t stream,
                        float mean, float deviation);
/* Bytes [offset, offset + size) of the tensor; offset is a multiple of the block and of
 * MAKE_UNIT_BYTES, size one of the block. `out` has room for MAKE_UNIT_BYTES more. */
void make__weights_fill(const make_weights *w, uint8_t *out, uint64_t offset, size_t size);

#endif
