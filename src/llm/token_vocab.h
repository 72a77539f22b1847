/* token_vocab.h: the vocabulary of a model file, copied and validated.
 *
 * Invariants after brim__vocab_read(): every id in [0, size) has a text, a kind and the bytes it
 * stands for; a text that is not empty belongs to one id; lookups are by exact text.
 */
#ifndef BRIM_LLM_TOKEN_VOCAB_H
#define BRIM_LLM_TOKEN_VOCAB_H

#include "base/memory.h"
#include "brim/token.h"

enum {
    BRIM__VOCAB_TOKENS_MAX = 1 << 22, /* the largest vocabularies have some 2^18 */
    BRIM__TOKEN_TEXT_MAX = 4096,      /* bytes; the longest known tokens have 512 */
};

typedef enum brim__vocab_family {
    BRIM__VOCAB_BPE, /* texts are bytes in the printable alphabet of GPT-2 */
    BRIM__VOCAB_SPM  /* texts are UTF-8 with U+2581 for a space */
} brim__vocab_family;

typedef struct brim__vocab {
    brim_context *ctx;
    brim__vocab_family family;
    uint32_t size;          /* tokens */
    uint32_t text_size_max; /* bytes of the longest text */
    char *text;             /* all texts, one after the other */
    uint32_t *text_start;   /* (size + 1) */
    char *bytes;            /* what each token stands for, likewise */
    uint32_t *bytes_start;  /* (size + 1) */
    uint8_t *kind;          /* brim_token_kind */
    uint64_t *slots;        /* open addressing: high half of the hash, id + 1; 0 is free */
    uint32_t slot_mask;
    char letters[256][2];       /* each byte in the alphabet of GPT-2; the second is 0 if unused */
    brim_token byte_token[256]; /* the token of a single byte, or BRIM_TOKEN_NONE */
} brim__vocab;

/* Reads tokenizer.ggml.tokens and token_type. On failure nothing is left allocated. */
brim_status brim__vocab_read(brim__vocab *out, brim_context *ctx, brim__vocab_family family,
                             const brim_model_file *file);
void brim__vocab_done(brim__vocab *vocab);

/* BRIM_TOKEN_NONE when no token has this text. */
brim_token brim__vocab_find(const brim__vocab *vocab, const char *text, size_t size);
/* The same for many texts at once, whose cache misses then overlap: `out` gets an id each. */
enum { BRIM__FIND_MANY_MAX = 48 };
typedef struct brim__slice {
    const char *text;
    size_t size;
} brim__slice;
void brim__vocab_find_many(brim_token *out, const brim__vocab *vocab, const brim__slice *texts,
                           size_t count);

static inline const char *brim__vocab_text(const brim__vocab *vocab, brim_token id,
                                           size_t *out_size)
{
    *out_size = vocab->text_start[id + 1] - vocab->text_start[id];
    return vocab->text + vocab->text_start[id];
}

/* Whether plain text may become this token. */
static inline bool brim__vocab_plain(const brim__vocab *vocab, brim_token id)
{
    return vocab->kind[id] == BRIM_TOKEN_NORMAL || vocab->kind[id] == BRIM_TOKEN_UNUSED;
}

/* The token's text for a message: at most 60 bytes, others than printable ASCII replaced. */
typedef struct brim__token_label {
    char text[64];
} brim__token_label;
brim__token_label brim__label(const char *text, size_t size);

#endif
