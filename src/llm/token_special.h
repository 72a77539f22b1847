/* token_special.h: finds special tokens (control, user-defined, unknown) in a text, the longest
 * at the leftmost place, as Hugging Face's tokenizers do. */
#ifndef BRIM_LLM_TOKEN_SPECIAL_H
#define BRIM_LLM_TOKEN_SPECIAL_H

#include "llm/token_vocab.h"

typedef struct brim__specials {
    const brim__vocab *vocab;
    uint32_t *ids; /* ordered by text, as unsigned bytes */
    uint32_t count;
    uint32_t first[257]; /* ids[first[b] .. first[b + 1]) start with byte b */
} brim__specials;

brim_status brim__specials_create(brim__specials *out, const brim__vocab *vocab);
void brim__specials_done(brim__specials *specials);

/* The next special token in text[from..size): its place in *out_at, its bytes in *out_length;
 * BRIM_TOKEN_NONE and *out_at = size if there is none. */
brim_token brim__specials_find(size_t *out_at, size_t *out_length, const brim__specials *specials,
                               const char *text, size_t size, size_t from);

#endif
