/* token_encode.c: text to tokens and back.
 *
 * Special tokens are found first, in the bytes as they came; what lies between them is plain text:
 * normalised, cut into pre-tokens and joined. A byte that is no part of well-formed UTF-8 is a
 * pre-token by itself. */
#include <string.h>

#include "base/text.h"
#include "llm/token_nfc.h"
#include "llm/tokenizer.h"

void brim_tokens_done(brim_tokens *tokens, brim_context *ctx)
{
    brim__free(ctx, tokens->ids);
    *tokens = (brim_tokens){0};
}

/* Well-formed UTF-8. */
static brim_status encode_pieces(brim_tokens *out, uint64_t *lost, const brim_tokenizer *t,
                                 brim__merger *merger, const char *text, size_t size)
{
    brim__splitter splitter = brim__splitter_start(t->pre, t->classes, text, size);
    size_t start, end;
    while (brim__splitter_next(&splitter, &start, &end))
        BRIM_TRY(brim__bpe_encode(out, lost, &t->bpe, merger, text + start, end - start));
    return BRIM_OK;
}

static brim_status encode_valid(brim_tokens *out, uint64_t *lost, const brim_tokenizer *t,
                                brim__merger *merger, const char *text, size_t size)
{
    if (t->pre != BRIM__PRE_QWEN2 || brim__nfc_surely(text, size))
        return encode_pieces(out, lost, t, merger, text, size);
    brim__string normal = {.ctx = merger->ctx};
    brim_status status = brim__nfc_append(&normal, text, size);
    if (status == BRIM_OK)
        status = encode_pieces(out, lost, t, merger, normal.data, normal.size);
    brim__string_done(&normal);
    return status;
}

static brim_status encode_bytes(brim_tokens *out, uint64_t *lost, const brim_tokenizer *t,
                                brim__merger *merger, const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t valid = brim__utf8_check(text + at, size - at);
        if (valid)
            BRIM_TRY(encode_valid(out, lost, t, merger, text + at, valid));
        at += valid;
        if (at < size)
            BRIM_TRY(brim__bpe_encode(out, lost, &t->bpe, merger, text + at++, 1));
    }
    return BRIM_OK;
}

static brim_status encode_with(brim_tokens *out, uint64_t *lost, const brim_tokenizer *t,
                               brim__merger *merger, const char *text, size_t size)
{
    if (!size)
        return BRIM_OK;
    return t->vocab.family == BRIM__VOCAB_SPM
               ? brim__spm_encode(out, lost, &t->spm, merger, text, size)
               : encode_bytes(out, lost, t, merger, text, size);
}

brim_status brim__encode_plain(brim_tokens *out, uint64_t *lost, brim_context *ctx,
                               const brim_tokenizer *t, const char *text, size_t size)
{
    brim__merger merger = {.ctx = ctx};
    brim_status status = encode_with(out, lost, t, &merger, text, size);
    brim__merger_done(&merger);
    return status;
}

static brim_status encode_special(brim_tokens *out, uint64_t *lost, const brim_tokenizer *t,
                                  brim__merger *merger, const char *text, size_t size)
{
    for (size_t from = 0; from < size;) {
        size_t at, length;
        brim_token id = brim__specials_find(&at, &length, &t->specials, text, size, from);
        BRIM_TRY(encode_with(out, lost, t, merger, text + from, at - from));
        if (id != BRIM_TOKEN_NONE)
            BRIM_TRY(brim__tokens_push(out, merger->ctx, id));
        from = at + length;
    }
    return BRIM_OK;
}

brim_status brim_encode(brim_tokens *out, uint64_t *out_lost, brim_context *ctx,
                        const brim_tokenizer *t, const char *text, size_t size,
                        const brim_encode_options *options)
{
    brim_encode_options o = options ? *options : (brim_encode_options){0};
    size_t count = out->count;
    uint64_t lost = 0;
    BRIM_FAIL_IF(size > BRIM__ENCODE_BYTES_MAX, LIMIT, "tokenizer.text",
                 "the text has %zu bytes, the limit is %d; encode it in parts", size,
                 BRIM__ENCODE_BYTES_MAX);
    BRIM_FAIL_IF(o.bos && t->bos == BRIM_TOKEN_NONE, USAGE, "tokenizer.bos",
                 "the vocabulary has no BOS token (tokenizer.ggml.bos_token_id); leave it out");
    if (o.bos)
        BRIM_TRY(brim__tokens_push(out, ctx, t->bos));
    brim__merger merger = {.ctx = ctx};
    brim_status status = o.special ? encode_special(out, &lost, t, &merger, text, size)
                                   : encode_with(out, &lost, t, &merger, text, size);
    brim__merger_done(&merger);
    if (status != BRIM_OK)
        out->count = count;
    if (out_lost)
        *out_lost = lost;
    return status;
}

/* ---- back to bytes ---- */

brim_status brim_token_bytes(const char **out, size_t *out_size, const brim_tokenizer *t,
                             brim_token id, bool special)
{
    *out = "";
    *out_size = 0;
    BRIM_FAIL_IF(id < 0 || (uint32_t)id >= t->vocab.size, USAGE, "tokenizer.range",
                 "token %d is out of range: the vocabulary has %u tokens", id, t->vocab.size);
    uint8_t kind = t->vocab.kind[id];
    if (!special && (kind == BRIM_TOKEN_CONTROL || kind == BRIM_TOKEN_UNKNOWN))
        return BRIM_OK;
    uint32_t start = t->vocab.bytes_start[id];
    *out = t->vocab.bytes + start;
    *out_size = t->vocab.bytes_start[id + 1] - start;
    return BRIM_OK;
}

/* Whether plain text behind this token got a space of its own when it was encoded. */
static bool starts_text(const brim_tokenizer *t, brim_token id)
{
    uint8_t kind = t->vocab.kind[id];
    return kind == BRIM_TOKEN_CONTROL || kind == BRIM_TOKEN_USER_DEFINED ||
           kind == BRIM_TOKEN_UNKNOWN;
}

static brim_status append_decoded(brim__string *out, const brim_tokenizer *t, const brim_token *ids,
                                  size_t count, bool special)
{
    bool prefix = t->vocab.family == BRIM__VOCAB_SPM && t->spm.space_prefix, at_start = prefix;
    BRIM_TRY(brim__string_append(out, "", 0));
    for (size_t i = 0; i < count; i++) {
        const char *bytes;
        size_t size;
        BRIM_TRY(brim_token_bytes(&bytes, &size, t, ids[i], special));
        bool starts = starts_text(t, ids[i]);
        if (at_start && !starts && size && *bytes == ' ')
            bytes++, size--;
        at_start = prefix && starts;
        BRIM_TRY(brim__string_append(out, bytes, size));
    }
    return BRIM_OK;
}

brim_status brim_decode(char **out, size_t *out_size, brim_context *ctx, const brim_tokenizer *t,
                        const brim_token *ids, size_t count, bool special)
{
    brim__string text = {.ctx = ctx};
    *out = NULL;
    *out_size = 0;
    brim_status status = append_decoded(&text, t, ids, count, special);
    if (status != BRIM_OK) {
        brim__string_done(&text);
        return status;
    }
    *out = text.data;
    *out_size = text.size;
    return BRIM_OK;
}
