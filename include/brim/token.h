/* brim/token.h: tokenizers and chat templates, from a model file's metadata.
 *
 * Byte-level BPE (tokenizer.ggml.model "gpt2") with the pre-tokenizers default, gpt-2, smollm,
 * llama-bpe and qwen2, and SentencePiece (tokenizer.ggml.model "llama"). A tokenizer is read-only
 * after creation and may be used from any thread.
 */
#ifndef BRIM_TOKEN_H
#define BRIM_TOKEN_H

#include "brim/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_tokenizer brim_tokenizer;
typedef int32_t brim_token;
#define BRIM_TOKEN_NONE (-1)

/* Kinds of tokens, tokenizer.ggml.token_type. */
typedef enum brim_token_kind {
    BRIM_TOKEN_NORMAL = 1,
    BRIM_TOKEN_UNKNOWN,
    BRIM_TOKEN_CONTROL,
    BRIM_TOKEN_USER_DEFINED,
    BRIM_TOKEN_UNUSED,
    BRIM_TOKEN_BYTE
} brim_token_kind;

/* Errors: UNSUPPORTED, ids "tokenizer.model", "tokenizer.pre" (the name, and those supported);
 * FORMAT, id "tokenizer.*": a vocabulary that is absent, arrays of different lengths, an id out of
 * range, a merge of tokens that do not exist. The file may be closed afterwards. */
BRIM_API brim_status brim_tokenizer_create(brim_tokenizer **out, brim_context *ctx,
                                           const brim_model_file *file);
BRIM_API void brim_tokenizer_destroy(brim_tokenizer *tokenizer);

BRIM_API uint32_t brim_tokenizer_size(const brim_tokenizer *tokenizer);
/* BRIM_TOKEN_NONE when the vocabulary has none. */
BRIM_API brim_token brim_tokenizer_bos(const brim_tokenizer *tokenizer);
BRIM_API brim_token brim_tokenizer_eos(const brim_tokenizer *tokenizer);
/* Whether the file asks for BOS before a text (tokenizer.ggml.add_bos_token; SentencePiece: true
 * when absent; llama-bpe: as llama.cpp decides). */
BRIM_API bool brim_tokenizer_adds_bos(const brim_tokenizer *tokenizer);
/* Whether generation ends at this token: eos, eot, eom of the metadata, and tokens whose text is
 * a known end of turn (<|im_end|>, <|eot_id|>, <|endoftext|>, </s> ...). */
BRIM_API bool brim_tokenizer_ends(const brim_tokenizer *tokenizer, brim_token token);
BRIM_API brim_token_kind brim_tokenizer_kind(const brim_tokenizer *tokenizer, brim_token token);
/* The token with exactly this text in the vocabulary, BRIM_TOKEN_NONE when absent. */
BRIM_API brim_token brim_tokenizer_find(const brim_tokenizer *tokenizer, const char *text,
                                        size_t size);

typedef struct brim_encode_options {
    bool special; /* recognise special tokens in the text; false: they are plain text */
    bool bos;     /* put BOS first; USAGE if there is none */
} brim_encode_options;

/* A growing list of tokens; zero-initialise it, free with brim_tokens_done(). */
typedef struct brim_tokens {
    brim_token *ids;
    size_t count, capacity;
} brim_tokens;
BRIM_API void brim_tokens_done(brim_tokens *tokens, brim_context *ctx);

/* Appends the tokens of text[0..size), any bytes. Bytes that the vocabulary cannot express (BPE
 * without that byte and without an unknown token) are left out and counted in *out_lost (may be
 * NULL); nothing else is lost. Invalid UTF-8 is encoded byte by byte. Errors: LIMIT (above 64 MiB),
 * NO_MEMORY. */
BRIM_API brim_status brim_encode(brim_tokens *out, uint64_t *out_lost, brim_context *ctx,
                                 const brim_tokenizer *tokenizer, const char *text, size_t size,
                                 const brim_encode_options *options);

/* The bytes of one token, *out valid as long as the tokenizer; control tokens have their text only
 * when `special` (else no bytes). For SentencePiece the piece with its spaces; that the first
 * space of a text is dropped is brim_decode()'s business. Errors: USAGE (id out of range). */
BRIM_API brim_status brim_token_bytes(const char **out, size_t *out_size,
                                      const brim_tokenizer *tokenizer, brim_token token,
                                      bool special);

/* Decodes into a new block (0-terminated, freed with brim_free). */
BRIM_API brim_status brim_decode(char **out, size_t *out_size, brim_context *ctx,
                                 const brim_tokenizer *tokenizer, const brim_token *ids,
                                 size_t count, bool special);

/* ---- chat templates ---- */

/* name, text. "plain" is a raw continuation, no template at all. */
#define BRIM_CHAT_LIST(X)                                                                          \
    X(CHATML, "chatml")                                                                            \
    X(SMOLLM2, "smollm2")                                                                          \
    X(LLAMA2, "llama2")                                                                            \
    X(LLAMA3, "llama3")                                                                            \
    X(MISTRAL, "mistral")                                                                          \
    X(QWEN2, "qwen2")                                                                              \
    X(QWEN3, "qwen3")

typedef enum brim_chat_kind {
#define BRIM_CHAT_ENUM(name, text) BRIM_CHAT_##name,
    BRIM_CHAT_LIST(BRIM_CHAT_ENUM)
#undef BRIM_CHAT_ENUM
} brim_chat_kind;

typedef enum brim_role { BRIM_ROLE_SYSTEM, BRIM_ROLE_USER, BRIM_ROLE_ASSISTANT } brim_role;

typedef struct brim_message {
    brim_role role;
    const char *text;
    size_t size;
} brim_message;

BRIM_API const char *brim_chat_name(brim_chat_kind kind);
BRIM_API bool brim_chat_parse(brim_chat_kind *out, const char *name);
/* Recognises the file's own template (tokenizer.chat_template). Errors: NOT_FOUND, id "chat.none"
 * (no template in the file), UNSUPPORTED, id "chat.unknown": both messages name --template and its
 * values. */
BRIM_API brim_status brim_chat_recognise(brim_chat_kind *out, const brim_model_file *file);
/* The same from the template's text, any bytes. */
BRIM_API brim_status brim_chat_recognise_text(brim_chat_kind *out, const char *text, size_t size);

/* Appends the tokens of messages[0..count): the template's own markers become special tokens,
 * the messages' text never does. `continued`: these messages follow an answer that is in the KV
 * cache without its end token (as sampling leaves it, whether the answer ended by itself or was
 * cut): the tokens start with those that close that answer; no BOS of the text, no default system
 * prompt. `generate`: ends with the header that starts the assistant's answer. Errors: USAGE, id
 * "chat.order" (a role order that the template refuses), FORMAT, id "chat.token" (a marker that the
 * vocabulary lacks), LIMIT, NO_MEMORY. */
BRIM_API brim_status brim_chat_encode(brim_tokens *out, uint64_t *out_lost, brim_context *ctx,
                                      const brim_tokenizer *tokenizer, brim_chat_kind kind,
                                      const brim_message *messages, size_t count, bool continued,
                                      bool generate);

#ifdef __cplusplus
}
#endif
#endif
