/* chat_encode.c: a rendered conversation as tokens of a vocabulary. */
#include <string.h>

#include "llm/chat.h"
#include "llm/tokenizer.h"

/* The file's own rules where they are of the kind asked for; else the kind's, and for Mistral the
 * spacing that the vocabulary tells. */
static void choose_rules(brim__chat_rules *out, const brim_tokenizer *t, brim_chat_kind kind)
{
    if (t->chat.known && t->chat.kind == kind) {
        *out = t->chat;
        return;
    }
    brim__chat_rules_of(out, kind);
    brim_token inst = brim__vocab_find(&t->vocab, "[INST]", 6);
    if (kind == BRIM_CHAT_MISTRAL && inst != BRIM_TOKEN_NONE && !brim__vocab_plain(&t->vocab, inst))
        out->style =
            t->vocab.family == BRIM__VOCAB_SPM ? BRIM__CHAT_MISTRAL_V3 : BRIM__CHAT_MISTRAL_TEKKEN;
}

/* The token of a mark; BRIM_TOKEN_NONE when the mark is plain text or nothing here. */
static brim_status mark_token(brim_token *out, const brim_tokenizer *t,
                              const brim__chat_piece *piece, const char *text)
{
    switch (piece->mark) {
    case BRIM__MARK_BOS:
        *out = t->bos;
        return BRIM_OK;
    case BRIM__MARK_BOS_IF_ADDED:
        *out = t->adds_bos ? t->bos : BRIM_TOKEN_NONE;
        return BRIM_OK;
    case BRIM__MARK_EOS:
        *out = t->eos;
        BRIM_FAIL_IF(t->eos == BRIM_TOKEN_NONE, FORMAT, "chat.token",
                     "the chat template needs an end-of-text token, and the file names none "
                     "(tokenizer.ggml.eos_token_id); choose another with --template");
        return BRIM_OK;
    case BRIM__MARK_OPTIONAL:
        *out = brim__vocab_find(&t->vocab, text, piece->size);
        if (*out != BRIM_TOKEN_NONE && brim__vocab_plain(&t->vocab, *out))
            *out = BRIM_TOKEN_NONE;
        return BRIM_OK;
    case BRIM__MARK_TOKEN:
        break;
    }
    *out = brim__vocab_find(&t->vocab, text, piece->size);
    BRIM_FAIL_IF(*out == BRIM_TOKEN_NONE, FORMAT, "chat.token",
                 "the chat template needs the token %s, which the vocabulary lacks; choose another "
                 "with --template",
                 brim__label(text, piece->size).text);
    return BRIM_OK;
}

/* Where SentencePiece puts a space before a text by itself, the template's own is left out. */
static brim_status encode_text(brim_tokens *out, uint64_t *lost, brim_context *ctx,
                               const brim_tokenizer *t, const char *text, size_t size,
                               bool after_mark)
{
    if (after_mark && t->vocab.family == BRIM__VOCAB_SPM && t->spm.space_prefix && size &&
        *text == ' ')
        text++, size--;
    BRIM_FAIL_IF(size > BRIM__ENCODE_BYTES_MAX, LIMIT, "tokenizer.text",
                 "a message has %zu bytes, the limit is %d", size, BRIM__ENCODE_BYTES_MAX);
    return brim__encode_plain(out, lost, ctx, t, text, size);
}

static brim_status encode_rendered(brim_tokens *out, uint64_t *lost, brim_context *ctx,
                                   const brim_tokenizer *t, const brim__chat_text *rendered)
{
    size_t at = 0;
    bool after_mark = false;
    for (size_t i = 0; i < rendered->mark_count; i++) {
        const brim__chat_piece *piece = &rendered->marks[i];
        const char *text = rendered->text.data;
        brim_token id;
        BRIM_TRY(mark_token(&id, t, piece, text + piece->start));
        if (id == BRIM_TOKEN_NONE)
            continue;
        BRIM_TRY(encode_text(out, lost, ctx, t, text + at, piece->start - at, after_mark));
        BRIM_TRY(brim__tokens_push(out, ctx, id));
        at = piece->start + piece->size;
        after_mark = true;
    }
    return encode_text(out, lost, ctx, t, rendered->text.data + at, rendered->text.size - at,
                       after_mark);
}

brim_status brim_chat_encode(brim_tokens *out, uint64_t *out_lost, brim_context *ctx,
                             const brim_tokenizer *t, brim_chat_kind kind,
                             const brim_message *messages, size_t count, bool continued,
                             bool generate)
{
    uint64_t lost = 0;
    size_t before = out->count;
    brim__chat_rules rules;
    choose_rules(&rules, t, kind);
    brim__chat_text rendered;
    brim_status status =
        brim__chat_render(&rendered, ctx, &rules, messages, count, continued, generate);
    if (status == BRIM_OK)
        status = encode_rendered(out, &lost, ctx, t, &rendered);
    brim__chat_text_done(&rendered);
    if (status != BRIM_OK)
        out->count = before;
    if (out_lost)
        *out_lost = lost;
    return status;
}
