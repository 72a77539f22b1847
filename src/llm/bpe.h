/* bpe.h: byte-level byte-pair encoding of one pre-token (Sennrich et al. 2016; Radford et al.
 * 2019): the bytes are joined in the order of the file's merge list. */
#ifndef BRIM_LLM_BPE_H
#define BRIM_LLM_BPE_H

#include <stdatomic.h>

#include "llm/token_merge.h"
#include "llm/token_vocab.h"

typedef struct brim__bpe_pair {
    uint32_t left, right, rank; /* rank BRIM__RANK_NONE: a free slot */
} brim__bpe_pair;

typedef struct brim__bpe {
    const brim__vocab *vocab;
    bool ignore_merges;    /* a pre-token that is a token is taken whole, merges or not */
    brim__bpe_pair *pairs; /* open addressing */
    uint32_t pair_mask, pair_shift;
    uint32_t *joined; /* (rank) token */
    uint32_t merge_count;
    /* (token): does joining its bytes give the token itself? 0: not tried yet, 1: yes, 2: no.
     * Every thread that tries finds the same answer, so that relaxed order is enough. */
    _Atomic uint8_t *whole;
} brim__bpe;

/* Reads tokenizer.ggml.merges. On failure nothing is left allocated. */
brim_status brim__bpe_read(brim__bpe *out, const brim__vocab *vocab, bool ignore_merges,
                           const brim_model_file *file);
void brim__bpe_done(brim__bpe *bpe);

/* Appends the tokens of one pre-token. Bytes without a token are left out and counted. */
brim_status brim__bpe_encode(brim_tokens *out, uint64_t *lost, const brim__bpe *bpe,
                             brim__merger *merger, const char *text, size_t size);

/* Appends one token. */
static inline brim_status brim__tokens_push(brim_tokens *tokens, brim_context *ctx, brim_token id)
{
    if (tokens->count == tokens->capacity)
        BRIM_TRY(BRIM_GROW(ctx, tokens->ids, tokens->capacity, tokens->count + 1));
    tokens->ids[tokens->count++] = id;
    return BRIM_OK;
}

#endif
