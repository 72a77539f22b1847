/* tokenizer.h: what a tokenizer holds, and encoding without the options of brim_encode(). */
#ifndef BRIM_LLM_TOKENIZER_H
#define BRIM_LLM_TOKENIZER_H

#include "llm/bpe.h"
#include "llm/chat.h"
#include "llm/pretokenize.h"
#include "llm/spm.h"
#include "llm/token_special.h"

struct brim_tokenizer {
    brim_context *ctx;
    brim__vocab vocab;
    brim__specials specials;
    brim__pre_kind pre; /* of a BPE vocabulary */
    uint8_t *classes;   /* likewise; NULL otherwise */
    brim__bpe bpe;
    brim__spm spm;
    brim_token bos, eos;
    bool adds_bos;
    uint64_t *ends;        /* a bit a token */
    brim__chat_rules chat; /* of the file's own template */
};

enum { BRIM__ENCODE_BYTES_MAX = 64 << 20 };

/* Appends the tokens of plain text: no special tokens, no BOS. */
brim_status brim__encode_plain(brim_tokens *out, uint64_t *lost, brim_context *ctx,
                               const brim_tokenizer *tokenizer, const char *text, size_t size);

#endif
