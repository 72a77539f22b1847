/* fuzz_chat.c: any bytes as a chat template, and any messages through each kind.
 *
 * The first byte: its high bit makes the rest a template, which is recognised or refused and, if
 * recognised, renders a conversation. Otherwise it names a kind, and the rest is cut into messages
 * by bytes below 3, which are their roles. No message may bring a special token. */
#include <stdlib.h>
#include <string.h>

#include "../test/model/gguf_builder.h"
#include "base/text.h"
#include "llm/chat.h"

enum { KINDS = BRIM_CHAT_QWEN3 + 1, MESSAGES_MAX = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const specials[] = {"<|im_start|>",
                                       "<|im_end|>",
                                       "<|start_header_id|>",
                                       "<|end_header_id|>",
                                       "<|eot_id|>",
                                       "<s>",
                                       "</s>",
                                       "[INST]",
                                       "[/INST]",
                                       "<think>",
                                       "</think>"};
enum { SPECIALS = sizeof specials / sizeof *specials };

static brim_tokenizer *make_tokenizer(brim_context *ctx)
{
    gguf_builder b = gb_start(3);
    gb_key_string(&b, "tokenizer.ggml.model", "gpt2");
    gb_key_string(&b, "tokenizer.ggml.pre", "qwen2");
    gb_key_array(&b, "tokenizer.ggml.tokens", GB_STRING, 256 + SPECIALS);
    for (unsigned byte = 0, next = 256; byte < 256; byte++) {
        bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        char text[4];
        gb_bytes(&b, text, brim__utf8_encode(text, prints ? byte : next++));
    }
    for (unsigned i = 0; i < SPECIALS; i++)
        gb_string(&b, specials[i]);
    gb_key_array(&b, "tokenizer.ggml.token_type", GB_I32, 256 + SPECIALS);
    for (unsigned i = 0; i < 256 + SPECIALS; i++)
        gb_u32(&b, i < 256 ? 1 : 3);
    gb_key_array(&b, "tokenizer.ggml.merges", GB_STRING, 0);
    gb_key_u32(&b, "tokenizer.ggml.bos_token_id", 256 + 5);
    gb_key_u32(&b, "tokenizer.ggml.eos_token_id", 256 + 6);
    gb_patch_counts(&b);
    brim_model_file *file;
    brim_tokenizer *t;
    if (brim_model_file_open_memory(&file, ctx, b.data, b.size) != BRIM_OK ||
        brim_tokenizer_create(&t, ctx, file) != BRIM_OK)
        abort();
    brim_model_file_close(file);
    gb_done(&b);
    return t;
}

static void as_template(brim_context *ctx, const char *text, size_t size)
{
    static const brim_message talk[] = {
        {BRIM_ROLE_USER, "a", 1}, {BRIM_ROLE_ASSISTANT, "b", 1}, {BRIM_ROLE_USER, "c", 1}};
    brim_chat_kind kind;
    brim__chat_rules rules;
    bool known = brim_chat_recognise_text(&kind, text, size) == BRIM_OK;
    brim__chat_analyse(&rules, text, size);
    if (rules.known != known || (known && rules.kind != kind))
        abort();
    if (!known)
        return;
    brim__chat_text rendered;
    if (brim__chat_render(&rendered, ctx, &rules, talk, 3, false, true) != BRIM_OK)
        abort();
    brim__chat_text_done(&rendered);
}

static size_t special_count(const brim_tokens *tokens)
{
    size_t count = 0;
    for (size_t i = 0; i < tokens->count; i++)
        count += tokens->ids[i] >= 256;
    return count;
}

/* The same conversation with harmless texts has as many special tokens. (Not Qwen 3, which looks
 * for thoughts in the answers and renders them by their own marks.) */
static void as_messages(brim_context *ctx, const brim_tokenizer *t, unsigned what, const char *text,
                        size_t size)
{
    brim_message messages[MESSAGES_MAX], harmless[MESSAGES_MAX];
    size_t count = 0;
    for (size_t at = 0; at < size && count < MESSAGES_MAX; count++) {
        brim_role role = (unsigned char)text[at] < 3 ? (brim_role)text[at++] : BRIM_ROLE_USER;
        size_t from = at;
        while (at < size && (unsigned char)text[at] >= 3)
            at++;
        messages[count] = (brim_message){role, text + from, at - from};
        harmless[count] = (brim_message){role, "x", 1};
    }
    brim_tokens a = {0}, b = {0};
    brim_chat_kind kind = (brim_chat_kind)(what % KINDS);
    bool continued = what & 16, generate = what & 32;
    brim_status status =
        brim_chat_encode(&a, NULL, ctx, t, kind, messages, count, continued, generate);
    if (status != brim_chat_encode(&b, NULL, ctx, t, kind, harmless, count, continued, generate))
        abort();
    if (kind != BRIM_CHAT_QWEN3 && special_count(&a) != special_count(&b))
        abort();
    brim_tokens_done(&a, ctx);
    brim_tokens_done(&b, ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static brim_context *ctx;
    static brim_tokenizer *tokenizer;
    if (!ctx) {
        if (brim_context_create(&ctx, NULL) != BRIM_OK)
            abort();
        tokenizer = make_tokenizer(ctx);
    }
    if (!size)
        return 0;
    size_t before = brim_context_bytes(ctx);
    if (data[0] & 0x80)
        as_template(ctx, (const char *)data + 1, size - 1);
    else
        as_messages(ctx, tokenizer, data[0], (const char *)data + 1, size - 1);
    if (brim_context_bytes(ctx) != before)
        abort();
    return 0;
}
