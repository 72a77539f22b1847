/* pretokenize.h: cuts a text into the pieces that byte-pair encoding never joins across.
 *
 * The rules are the regular expressions that the models' authors published, matched by hand: one
 * pass, no backtracking, linear in the text whatever it holds. The classes \p{L}, \p{N}, \p{P}
 * and \s are those of Unicode 16 (as in Hugging Face's tokenizers).
 */
#ifndef BRIM_LLM_PRETOKENIZE_H
#define BRIM_LLM_PRETOKENIZE_H

#include "base/memory.h"

typedef enum brim__pre_kind {
    BRIM__PRE_DEFAULT,
    BRIM__PRE_GPT2,
    BRIM__PRE_SMOLLM,
    BRIM__PRE_LLAMA3,
    BRIM__PRE_QWEN2
} brim__pre_kind;

/* The kind of a name of tokenizer.ggml.pre; false when it is not supported. */
bool brim__pre_parse(brim__pre_kind *out, const char *name, size_t size);
/* The supported names, for messages. */
#define BRIM__PRE_NAMES "default, gpt-2, smollm, llama-bpe (llama3, llama-v3), qwen2"

/* Classes of the code points below BRIM__CLASSES_SIZE; every other one is CLASS_OTHER. */
enum {
    BRIM__CLASS_OTHER,
    BRIM__CLASS_LETTER,
    BRIM__CLASS_NUMBER,
    BRIM__CLASS_PUNCTUATION,
    BRIM__CLASS_SPACE,
    BRIM__CLASS_END /* behind the text */
};
#define BRIM__CLASSES_SIZE 0x40000u

/* Makes the table of classes. */
brim_status brim__classes_create(uint8_t **out, brim_context *ctx);

typedef struct brim__splitter {
    const uint8_t *classes;
    brim__pre_kind kind;
    const char *text; /* well-formed UTF-8 */
    size_t size, position;
    size_t limits[3]; /* ends of the pieces of the coarser rules that `position` is in */
} brim__splitter;

static inline brim__splitter brim__splitter_start(brim__pre_kind kind, const uint8_t *classes,
                                                  const char *text, size_t size)
{
    return (brim__splitter){classes, kind, text, size, 0, {0, 0, 0}};
}

/* The next piece, text[*out_start .. *out_end), never empty; false at the end of the text. */
bool brim__splitter_next(brim__splitter *splitter, size_t *out_start, size_t *out_end);

#endif
