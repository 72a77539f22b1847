/* chat.h: what a chat template does, found in its text; and a conversation rendered by it. */
#ifndef BRIM_LLM_CHAT_H
#define BRIM_LLM_CHAT_H

#include "base/text.h"
#include "brim/token.h"

/* How the kinds differ among themselves: the same name was given to several renderings. */
typedef enum brim__chat_style {
    BRIM__CHAT_IM,       /* <|im_start|>role ... <|im_end|> */
    BRIM__CHAT_IM_THINK, /* the same with Qwen 3's thinking blocks */
    BRIM__CHAT_LLAMA2,
    BRIM__CHAT_LLAMA3,        /* 3.0 */
    BRIM__CHAT_LLAMA3_DATED,  /* 3.1 to 3.3: always a system block that starts with two dates */
    BRIM__CHAT_MISTRAL_PLAIN, /* v0.1's first template: no spaces around answers, no system */
    BRIM__CHAT_MISTRAL_V1,    /* [INST] is plain text with spaces around it */
    BRIM__CHAT_MISTRAL_V3,    /* [INST] is a token, texts start with a space */
    BRIM__CHAT_MISTRAL_TEKKEN /* [INST] is a token, no spaces */
} brim__chat_style;

enum { BRIM__CHAT_SYSTEM_MAX = 512 };

typedef struct brim__chat_rules {
    bool known; /* false: the rest is unset */
    brim_chat_kind kind;
    brim__chat_style style;
    size_t system_size; /* of the default system prompt; 0: none */
    char system[BRIM__CHAT_SYSTEM_MAX];
} brim__chat_rules;

/* What the template's text asks for; known = false when it is none of those supported. */
void brim__chat_analyse(brim__chat_rules *out, const char *text, size_t size);
/* The rules of a kind that the user named, for a file without a template of that kind. */
void brim__chat_rules_of(brim__chat_rules *out, brim_chat_kind kind);

/* A rendered conversation: text with marks in it. */
typedef enum brim__chat_mark {
    BRIM__MARK_TOKEN,        /* the token with this text, which the vocabulary must have */
    BRIM__MARK_OPTIONAL,     /* the special token with this text; plain text where there is none */
    BRIM__MARK_BOS,          /* if the vocabulary has one */
    BRIM__MARK_BOS_IF_ADDED, /* if the file asks for one */
    BRIM__MARK_EOS
} brim__chat_mark;

typedef struct brim__chat_piece {
    size_t start, size; /* in the text; of a mark: its own */
    brim__chat_mark mark;
} brim__chat_piece;

typedef struct brim__chat_text {
    brim__string text;
    brim__chat_piece *marks; /* in order; what lies between two marks is plain text */
    size_t mark_count, mark_capacity;
} brim__chat_text;

/* Appends to *out; on failure too it is freed with brim__chat_text_done(). */
brim_status brim__chat_render(brim__chat_text *out, brim_context *ctx,
                              const brim__chat_rules *rules, const brim_message *messages,
                              size_t count, bool continued, bool generate);
void brim__chat_text_done(brim__chat_text *text);

#endif
