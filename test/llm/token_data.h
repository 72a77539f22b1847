/* token_data.h: vocabularies for the tokenizer tests: real ones from the data folder or a model
 * file, and small ones made here. */
#ifndef BRIM_TEST_TOKEN_DATA_H
#define BRIM_TEST_TOKEN_DATA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "brim/token.h"
#include "model/gguf_builder.h"

/* A whole file, gzipped or not, 0-terminated; NULL when it cannot be read. Freed with free(). */
static inline char *td_read(const char *path, size_t *out_size)
{
    gzFile file = gzopen(path, "rb");
    if (!file)
        return NULL;
    size_t size = 0, capacity = 1 << 16;
    char *data = malloc(capacity);
    int got;
    while (data && (got = gzread(file, data + size, (unsigned)(capacity - size - 1))) > 0) {
        size += (size_t)got;
        if (capacity - size < 2)
            data = realloc(data, capacity *= 2);
    }
    gzclose(file);
    if (data)
        data[size] = 0;
    *out_size = size;
    return data;
}

/* A file of the tokenizer data: $BRIM_DATA or ../shared/data beside the repository. */
static inline char *td_data(const char *name, const char *suffix, size_t *out_size)
{
    char path[4096];
    const char *folder = getenv("BRIM_DATA");
    snprintf(path, sizeof path, "%s/tokenizer/%s%s",
             folder ? folder : BRIM_SOURCE_DIR "/../shared/data", name, suffix);
    return td_read(path, out_size);
}

/* The path of the real model, NULL when there is none. */
static inline const char *td_model_path(void)
{
    const char *path = getenv("BRIM_MODEL");
    if (!path)
        path = BRIM_SOURCE_DIR "/models/smollm2-135m.gguf";
    return access(path, R_OK) == 0 ? path : NULL;
}

static inline brim_tokenizer *td_from_file(brim_context *ctx, brim_status opened,
                                           brim_model_file **file)
{
    brim_tokenizer *tokenizer = NULL;
    if (opened != BRIM_OK || brim_tokenizer_create(&tokenizer, ctx, *file) != BRIM_OK)
        print_message("%s: %s\n", brim_last_id(), brim_last_message());
    if (opened == BRIM_OK)
        brim_model_file_close(*file);
    return tokenizer;
}

/* The tokenizer of a data vocabulary, or of the model for "smollm"; NULL when the file is absent.
 */
static inline brim_tokenizer *td_vocabulary(brim_context *ctx, const char *name)
{
    brim_model_file *file = NULL;
    if (!strcmp(name, "smollm")) {
        const char *path = td_model_path();
        return path ? td_from_file(ctx, brim_model_file_open(&file, ctx, path), &file) : NULL;
    }
    size_t size;
    char *data = td_data(name, ".gguf.gz", &size);
    if (!data)
        return NULL;
    brim_tokenizer *tokenizer =
        td_from_file(ctx, brim_model_file_open_memory(&file, ctx, data, size), &file);
    free(data);
    return tokenizer;
}

/* ---- small vocabularies ---- */

typedef struct td_vocab {
    const char *model, *pre;   /* NULL: absent */
    const char *const *tokens; /* NULL-terminated; for gpt2 the 256 bytes come before them */
    const char *const *merges; /* NULL-terminated; NULL: absent */
    const uint8_t *kinds;      /* a kind a token of `tokens`; NULL: all normal */
    const float *scores;       /* a score a token of `tokens`; NULL: falling from 0 */
    const char *chat;          /* a template, NULL: absent */
    int64_t bos, eos;          /* index in `tokens`; negative: absent */
    bool no_bytes;             /* leave the bytes out */
} td_vocab;

/* Byte `byte` in the alphabet of GPT-2, 0-terminated, written from its description: printable
 * Latin-1 stands for itself, the others for U+0100 on, in order. */
static inline void td_letter(char out[3], unsigned byte)
{
    unsigned next = 256, codepoint = 0;
    for (unsigned b = 0; b <= byte; b++) {
        bool prints =
            (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
        codepoint = prints ? b : next++;
    }
    out[0] = (char)(codepoint < 128 ? codepoint : 0xC0 | codepoint >> 6);
    out[1] = (char)(codepoint < 128 ? 0 : 0x80 | (codepoint & 63));
    out[2] = 0;
}

static inline size_t td_count(const char *const *texts)
{
    size_t count = 0;
    while (texts && texts[count])
        count++;
    return count;
}

static inline void td_put_tokens(gguf_builder *b, const td_vocab *v, bool bpe, size_t bytes)
{
    char text[8];
    size_t count = td_count(v->tokens);
    gb_key_array(b, "tokenizer.ggml.tokens", GB_STRING, bytes + count);
    for (unsigned byte = 0; byte < bytes; byte++) {
        if (bpe)
            td_letter(text, byte);
        else
            snprintf(text, sizeof text, "<0x%02X>", byte);
        gb_string(b, text);
    }
    for (size_t i = 0; i < count; i++)
        gb_string(b, v->tokens[i]);
    gb_key_array(b, "tokenizer.ggml.token_type", GB_I32, bytes + count);
    for (size_t i = 0; i < bytes + count; i++)
        gb_u32(b, i < bytes ? (bpe ? 1 : 6) : v->kinds ? v->kinds[i - bytes] : 1);
}

/* The vocabulary as a GGUF file. Ids: the 256 bytes (unless left out), then the tokens. */
static inline gguf_builder td_build(const td_vocab *v)
{
    gguf_builder b = gb_start(3);
    bool bpe = v->model && !strcmp(v->model, "gpt2");
    size_t bytes = v->no_bytes ? 0 : 256, count = td_count(v->tokens);
    if (v->model)
        gb_key_string(&b, "tokenizer.ggml.model", v->model);
    if (v->pre)
        gb_key_string(&b, "tokenizer.ggml.pre", v->pre);
    td_put_tokens(&b, v, bpe, bytes);
    if (!bpe) {
        gb_key_array(&b, "tokenizer.ggml.scores", GB_F32, bytes + count);
        for (size_t i = 0; i < bytes + count; i++)
            gb_f32(&b, i < bytes ? 0 : v->scores ? v->scores[i - bytes] : -(float)(i - bytes));
    }
    if (v->merges) {
        gb_key_array(&b, "tokenizer.ggml.merges", GB_STRING, td_count(v->merges));
        for (size_t i = 0; v->merges[i]; i++)
            gb_string(&b, v->merges[i]);
    }
    if (v->bos >= 0)
        gb_key_u32(&b, "tokenizer.ggml.bos_token_id", (uint32_t)(bytes + (size_t)v->bos));
    if (v->eos >= 0)
        gb_key_u32(&b, "tokenizer.ggml.eos_token_id", (uint32_t)(bytes + (size_t)v->eos));
    if (v->chat)
        gb_key_string(&b, "tokenizer.chat_template", v->chat);
    return b;
}

/* Creates a tokenizer from what was built; the builder is done afterwards. */
static inline brim_status td_create(brim_tokenizer **out, brim_context *ctx, gguf_builder *b)
{
    gb_patch_counts(b);
    brim_model_file *file = NULL;
    brim_status status = brim_model_file_open_memory(&file, ctx, b->data, b->size);
    *out = NULL;
    if (status == BRIM_OK) {
        status = brim_tokenizer_create(out, ctx, file);
        brim_model_file_close(file);
    }
    gb_done(b);
    return status;
}

static inline brim_tokenizer *td_make(brim_context *ctx, const td_vocab *v)
{
    brim_tokenizer *tokenizer;
    gguf_builder b = td_build(v);
    brim_status status = td_create(&tokenizer, ctx, &b);
    if (status != BRIM_OK)
        print_message("%s: %s\n", brim_last_id(), brim_last_message());
    assert_int_equal(status, BRIM_OK);
    return tokenizer;
}

/* The ids of a text, printed with blanks between into `out`; lost bytes as " -N". */
static inline void td_ids(char *out, size_t room, brim_context *ctx, const brim_tokenizer *t,
                          const char *text, size_t size, const brim_encode_options *options)
{
    brim_tokens tokens = {0};
    uint64_t lost;
    assert_int_equal(brim_encode(&tokens, &lost, ctx, t, text, size, options), BRIM_OK);
    size_t used = 0;
    *out = 0;
    for (size_t i = 0; i < tokens.count && used + 12 < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%d", i ? " " : "", tokens.ids[i]);
    if (lost)
        snprintf(out + used, room - used, " -%llu", (unsigned long long)lost);
    brim_tokens_done(&tokens, ctx);
}

#endif
