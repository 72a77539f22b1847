/* fuzz_token.c: any text through a small vocabulary of each kind, and hostile vocabularies.
 *
 * The first byte says what: 0 to 5 a vocabulary (its 0x10 bit: special tokens are recognised), and
 * the rest is text, which must come back from decoding. Otherwise the rest describes a vocabulary,
 * well-formed as GGUF and wrong in any other way, which is created and, if it can be, used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test/model/gguf_builder.h"
#include "base/text.h"
#include "brim/token.h"
#include "llm/token_nfc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const pres[] = {"default", "gpt-2", "smollm", "llama-bpe", "qwen2"};
enum { BPE_COUNT = 5, QWEN2 = 4, SPM = 5, VOCAB_COUNT = 6, SPECIAL = 0x10, HOSTILE = 0x80 };

static void quiet(brim_log_level level, const char *line, void *user)
{
    (void)level, (void)line, (void)user;
}

static brim_context *make_context(void)
{
    brim_context *ctx;
    brim_context_desc desc = brim_context_desc_default();
    desc.log = quiet;
    if (brim_context_create(&ctx, &desc) != BRIM_OK)
        abort();
    return ctx;
}

static brim_status create(brim_tokenizer **out, brim_context *ctx, gguf_builder *b)
{
    gb_patch_counts(b);
    brim_model_file *file;
    brim_status status = brim_model_file_open_memory(&file, ctx, b->data, b->size);
    if (status == BRIM_OK) {
        status = brim_tokenizer_create(out, ctx, file);
        brim_model_file_close(file);
    }
    gb_done(b);
    return status;
}

/* The alphabet of GPT-2, made from its description. */
static void put_letter(gguf_builder *b, unsigned byte)
{
    unsigned next = 256, codepoint = 0;
    char text[4];
    for (unsigned i = 0; i <= byte; i++)
        codepoint = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174 ? i : next++;
    gb_bytes(b, text, brim__utf8_encode(text, codepoint));
}

static const char *const bpe_tokens[] = {
    "\xC4\xA0\xC4\xA0", "th",    "the",    "\xC4\xA0the", "'s", "aa", "aaaa",
    "\xC3\xA9",         "<|x|>", "<|x|>y", "[U]"};
static const char *const bpe_merges[] = {
    "\xC4\xA0 \xC4\xA0", "t h", "th e", "\xC4\xA0 the", "' s", "a a", "aa aa"};
static const char *const spm_tokens[] = {"<unk>",
                                         "<s>",
                                         "</s>",
                                         "\xE2\x96\x81",
                                         "a",
                                         "t",
                                         "h",
                                         "e",
                                         "th",
                                         "the",
                                         "\xE2\x96\x81the",
                                         "\xE2\x96\x81\xE2\x96\x81",
                                         "aa",
                                         "\xC3\xA9"};
enum {
    BPE_TOKENS = sizeof bpe_tokens / sizeof *bpe_tokens,
    BPE_MERGES = sizeof bpe_merges / sizeof *bpe_merges,
    SPM_TOKENS = sizeof spm_tokens / sizeof *spm_tokens
};

static brim_tokenizer *small_bpe(brim_context *ctx, const char *pre)
{
    gguf_builder b = gb_start(3);
    gb_key_string(&b, "tokenizer.ggml.model", "gpt2");
    gb_key_string(&b, "tokenizer.ggml.pre", pre);
    gb_key_array(&b, "tokenizer.ggml.tokens", GB_STRING, 256 + BPE_TOKENS);
    for (unsigned i = 0; i < 256; i++)
        put_letter(&b, i);
    for (unsigned i = 0; i < BPE_TOKENS; i++)
        gb_string(&b, i == 7 ? "\xC3\x83\xC2\xA9" : bpe_tokens[i]);
    gb_key_array(&b, "tokenizer.ggml.token_type", GB_I32, 256 + BPE_TOKENS);
    for (unsigned i = 0; i < 256 + BPE_TOKENS; i++)
        gb_u32(&b, i < 256 + 8 ? 1 : i < 256 + 10 ? 3 : 4);
    gb_key_array(&b, "tokenizer.ggml.merges", GB_STRING, BPE_MERGES);
    for (unsigned i = 0; i < BPE_MERGES; i++)
        gb_string(&b, bpe_merges[i]);
    brim_tokenizer *t;
    return create(&t, ctx, &b) == BRIM_OK ? t : NULL;
}

static brim_tokenizer *small_spm(brim_context *ctx)
{
    gguf_builder b = gb_start(3);
    char text[8];
    gb_key_string(&b, "tokenizer.ggml.model", "llama");
    gb_key_array(&b, "tokenizer.ggml.tokens", GB_STRING, 256 + SPM_TOKENS);
    for (unsigned i = 0; i < 256; i++) {
        const char *hex = "0123456789ABCDEF";
        memcpy(text, "<0x..>", 7);
        text[3] = hex[i >> 4], text[4] = hex[i & 15];
        gb_string(&b, text);
    }
    for (unsigned i = 0; i < SPM_TOKENS; i++)
        gb_string(&b, spm_tokens[i]);
    gb_key_array(&b, "tokenizer.ggml.token_type", GB_I32, 256 + SPM_TOKENS);
    for (unsigned i = 0; i < 256 + SPM_TOKENS; i++)
        gb_u32(&b, i < 256 ? 6 : i == 256 ? 2 : i < 256 + 3 ? 3 : 1);
    gb_key_array(&b, "tokenizer.ggml.scores", GB_F32, 256 + SPM_TOKENS);
    for (unsigned i = 0; i < 256 + SPM_TOKENS; i++)
        gb_f32(&b, -(float)(i % 7));
    brim_tokenizer *t;
    return create(&t, ctx, &b) == BRIM_OK ? t : NULL;
}

/* What decoding must give: the text; for qwen2 in form C, where invalid UTF-8 stays; for
 * SentencePiece with spaces for U+2581, which is its mark for a space. */
static void expected_text(brim__string *out, unsigned vocabulary, const char *text, size_t size)
{
    bool form_c = vocabulary == QWEN2, spm = vocabulary == SPM;
    for (size_t at = 0; at < size;) {
        size_t valid = form_c ? brim__utf8_check(text + at, size - at) : 0;
        brim_status status = brim__nfc_append(out, text + at, valid);
        at += valid;
        if (status == BRIM_OK && spm && size - at >= 3 && !memcmp(text + at, "\xE2\x96\x81", 3)) {
            status = brim__string_append(out, " ", 1);
            at += 3;
        } else if (status == BRIM_OK && at < size) {
            status = brim__string_append(out, text + at++, 1);
        }
        if (status != BRIM_OK)
            abort();
    }
}

static void round_trip(brim_context *ctx, const brim_tokenizer *t, unsigned vocabulary,
                       bool special, const char *text, size_t size)
{
    brim_encode_options options = {.special = special};
    brim_tokens tokens = {0};
    uint64_t lost;
    char *back;
    size_t back_size;
    if (brim_encode(&tokens, &lost, ctx, t, text, size, &options) != BRIM_OK || lost ||
        brim_decode(&back, &back_size, ctx, t, tokens.ids, tokens.count, special) != BRIM_OK)
        abort();
    brim__string expected = {.ctx = ctx};
    expected_text(&expected, vocabulary, text, size);
    /* Form C is made between special tokens, hence of other texts than the whole. */
    bool comparable = vocabulary != QWEN2 || !special;
    if (comparable &&
        (back_size != expected.size || (back_size && memcmp(back, expected.data, back_size))))
        abort();
    brim__string_done(&expected);
    brim_free(ctx, back);
    brim_tokens_done(&tokens, ctx);
}

/* ---- hostile vocabularies ---- */

typedef struct source {
    const uint8_t *data;
    size_t size;
} source;

static unsigned take(source *s)
{
    if (!s->size)
        return 0;
    s->size--;
    return *s->data++;
}

/* A short text: raw bytes, or one that matters. */
static void put_text(gguf_builder *b, source *s)
{
    static const char *const words[] = {"",
                                        "a",
                                        "b",
                                        "ab",
                                        "a b",
                                        "<0x41>",
                                        "<0x4G>",
                                        "\xE2\x96\x81",
                                        "\xE2\x96\x81"
                                        "a",
                                        "</s>",
                                        "<|im_end|>",
                                        "\xC4\xA0",
                                        "a a"};
    unsigned choice = take(s), count = sizeof words / sizeof *words;
    if (choice < 4 * count) {
        gb_string(b, words[choice % count]);
        return;
    }
    size_t size = choice % 8 < s->size ? choice % 8 : s->size;
    gb_bytes(b, s->data, size);
    s->data += size, s->size -= size;
}

static void put_array(gguf_builder *b, source *s, const char *key, uint32_t usual)
{
    uint32_t type = take(s) < 240 ? usual : GB_U8;
    unsigned count = take(s) % 40;
    gb_key_array(b, key, type, count);
    for (unsigned i = 0; i < count; i++) {
        if (type == GB_STRING)
            put_text(b, s);
        else if (type == GB_I32)
            gb_u32(b, take(s) % 9 - (take(s) == 255));
        else if (type == GB_F32)
            gb_u32(b, take(s) << 24 | take(s) << 16);
        else
            gb_u8(b, (uint8_t)take(s));
    }
}

static void hostile(brim_context *ctx, source s)
{
    static const char *const models[] = {"gpt2", "llama", "bert", ""};
    static const char *const ids[] = {"bos", "eos", "eot", "unknown"};
    gguf_builder b = gb_start(3);
    unsigned flags = take(&s);
    gb_key_string(&b, "tokenizer.ggml.model", models[flags % 8 < 2 ? flags % 8 : flags % 4 % 2]);
    if (flags & 0x10)
        gb_key_string(&b, "tokenizer.ggml.pre", pres[take(&s) % BPE_COUNT]);
    put_array(&b, &s, "tokenizer.ggml.tokens", GB_STRING);
    if (flags & 0x20)
        put_array(&b, &s, "tokenizer.ggml.token_type", GB_I32);
    if (flags & 0x40)
        put_array(&b, &s, "tokenizer.ggml.scores", GB_F32);
    if (flags & 0x80)
        put_array(&b, &s, "tokenizer.ggml.merges", GB_STRING);
    for (unsigned i = 0; i < 4; i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ids[i]);
        if (take(&s) & 1)
            gb_key_u32(&b, key, take(&s) % 50);
    }
    brim_tokenizer *t;
    if (create(&t, ctx, &b) != BRIM_OK)
        return;
    brim_encode_options options = {.special = take(&s) & 1};
    brim_tokens tokens = {0};
    char *back;
    size_t back_size;
    if (brim_encode(&tokens, NULL, ctx, t, (const char *)s.data, s.size, &options) != BRIM_OK ||
        brim_decode(&back, &back_size, ctx, t, tokens.ids, tokens.count, true) != BRIM_OK)
        abort();
    brim_free(ctx, back);
    brim_tokens_done(&tokens, ctx);
    brim_tokenizer_destroy(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static brim_context *ctx;
    static brim_tokenizer *tokenizers[VOCAB_COUNT];
    if (!ctx) {
        ctx = make_context();
        for (int i = 0; i < BPE_COUNT; i++)
            tokenizers[i] = small_bpe(ctx, pres[i]);
        tokenizers[BPE_COUNT] = small_spm(ctx);
        for (int i = 0; i < VOCAB_COUNT; i++)
            if (!tokenizers[i])
                abort();
    }
    if (!size)
        return 0;
    size_t before = brim_context_bytes(ctx);
    unsigned what = data[0];
    if (what & HOSTILE)
        hostile(ctx, (source){data + 1, size - 1});
    else
        round_trip(ctx, tokenizers[what % SPECIAL % VOCAB_COUNT], what % SPECIAL % VOCAB_COUNT,
                   what & SPECIAL, (const char *)data + 1, size - 1);
    if (brim_context_bytes(ctx) != before)
        abort();
    return 0;
}
