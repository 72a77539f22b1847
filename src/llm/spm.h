/* spm.h: SentencePiece's BPE (Kudo and Richardson 2018): characters are joined to the piece with
 * the best score first; what is no piece falls back to its bytes. */
#ifndef BRIM_LLM_SPM_H
#define BRIM_LLM_SPM_H

#include <stdatomic.h>

#include "llm/token_merge.h"
#include "llm/token_vocab.h"

typedef struct brim__spm {
    const brim__vocab *vocab;
    uint32_t *rank; /* (token) by falling score, equal for equal scores; NONE: never joined to */
    brim_token unknown; /* or BRIM_TOKEN_NONE */
    bool space_prefix;  /* a text starts with a space that is not in it */
    /* No piece has a space behind another character: then a text may be cut there without
     * changing its tokens, and no piece of work is longer than a word. */
    bool cuts_at_spaces;
    _Atomic uint8_t *whole; /* as in bpe.h */
} brim__spm;

/* Reads tokenizer.ggml.scores and what else SentencePiece needs. On failure nothing is left
 * allocated. */
brim_status brim__spm_read(brim__spm *out, const brim__vocab *vocab, const brim_model_file *file);
void brim__spm_done(brim__spm *spm);

/* Appends the tokens of a text. Bytes that became the unknown token or nothing are counted. */
brim_status brim__spm_encode(brim_tokens *out, uint64_t *lost, const brim__spm *spm,
                             brim__merger *merger, const char *text, size_t size);

#endif
