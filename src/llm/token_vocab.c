/* token_vocab.c: reads a vocabulary, checks it and builds the table that finds a token by text.
 *
 * The alphabet of byte-level BPE is that of GPT-2 (Radford et al. 2019, encoder.py's
 * bytes_to_unicode): the bytes that print in Latin-1 stand for themselves, the other 68 for the
 * code points from 256 on, in order. */
#include "llm/token_vocab.h"

#include <string.h>

#include "base/hash.h"
#include "base/text.h"

enum { LETTERS_END = 256 + 68 };

static bool byte_prints(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* How many of the bytes below `byte` do not print. */
static unsigned unprinted_below(unsigned byte)
{
    if (byte <= 33)
        return byte;
    if (byte <= 127)
        return 33;
    if (byte <= 161)
        return 33 + byte - 127;
    return byte <= 173 ? 67 : 68;
}

/* Both ways: the letter of each byte in UTF-8, and the byte of each letter (-1 where a code point
 * below LETTERS_END is none). */
static void fill_letters(char out[256][2], int16_t bytes[LETTERS_END])
{
    for (int i = 0; i < LETTERS_END; i++)
        bytes[i] = -1;
    for (unsigned byte = 0; byte < 256; byte++) {
        unsigned codepoint = byte_prints(byte) ? byte : 256 + unprinted_below(byte);
        bool one = codepoint < 0x80;
        out[byte][0] = (char)(one ? codepoint : 0xC0 | codepoint >> 6);
        out[byte][1] = (char)(one ? 0 : 0x80 | (codepoint & 63));
        bytes[codepoint] = (int16_t)byte;
    }
}

brim__token_label brim__label(const char *text, size_t size)
{
    brim__token_label label;
    size_t shown = size < 60 ? size : 60;
    for (size_t i = 0; i < shown; i++)
        label.text[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    memcpy(label.text + shown, shown < size ? "..." : "", shown < size ? 4 : 1);
    return label;
}

static brim_token find_hashed(const brim__vocab *vocab, uint64_t hash, const char *text,
                              size_t size)
{
    for (uint32_t at = (uint32_t)hash & vocab->slot_mask;; at = (at + 1) & vocab->slot_mask) {
        uint64_t slot = vocab->slots[at];
        if (!slot)
            return BRIM_TOKEN_NONE;
        if (slot >> 32 != hash >> 32)
            continue;
        brim_token id = (brim_token)((uint32_t)slot - 1);
        uint32_t start = vocab->text_start[id];
        if (vocab->text_start[id + 1] - start == size && !memcmp(vocab->text + start, text, size))
            return id;
    }
}

brim_token brim__vocab_find(const brim__vocab *vocab, const char *text, size_t size)
{
    if (!size || size > vocab->text_size_max)
        return BRIM_TOKEN_NONE;
    return find_hashed(vocab, brim__hash64(text, size, 0), text, size);
}

void brim__vocab_find_many(brim_token *out, const brim__vocab *vocab, const brim__slice *texts,
                           size_t count)
{
    uint64_t hashes[BRIM__FIND_MANY_MAX];
    for (size_t i = 0; i < count; i++) {
        hashes[i] = brim__hash64(texts[i].text, texts[i].size, 0);
        __builtin_prefetch(&vocab->slots[(uint32_t)hashes[i] & vocab->slot_mask]);
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t likely = (uint32_t)vocab->slots[(uint32_t)hashes[i] & vocab->slot_mask];
        out[i] = likely ? (brim_token)(likely - 1) : 0;
        __builtin_prefetch(&vocab->text_start[out[i]]);
    }
    for (size_t i = 0; i < count; i++)
        __builtin_prefetch(vocab->text + vocab->text_start[out[i]]);
    for (size_t i = 0; i < count; i++)
        out[i] = texts[i].size ? find_hashed(vocab, hashes[i], texts[i].text, texts[i].size)
                               : BRIM_TOKEN_NONE;
}

static brim_status copy_texts(brim__vocab *vocab, const brim_model_file *file,
                              const brim_meta *meta)
{
    size_t capacity = 0, used = 0;
    for (uint32_t id = 0; id < vocab->size; id++) {
        const char *text;
        size_t size;
        BRIM_TRY(brim_meta_string(&text, &size, file, meta, id));
        BRIM_FAIL_IF(
            size > BRIM__TOKEN_TEXT_MAX, FORMAT, "tokenizer.token",
            "tokenizer.ggml.tokens: token %u has %zu bytes, more than %d; the file is damaged "
            "or not a vocabulary",
            id, size, BRIM__TOKEN_TEXT_MAX);
        BRIM_FAIL_IF(used + size > UINT32_MAX / 4, LIMIT, "tokenizer.size",
                     "tokenizer.ggml.tokens holds more than 1 GiB of text");
        BRIM_TRY(BRIM_GROW(vocab->ctx, vocab->text, capacity, used + size + 1));
        memcpy(vocab->text + used, text, size);
        vocab->text_start[id] = (uint32_t)used;
        used += size;
        if (size > vocab->text_size_max)
            vocab->text_size_max = (uint32_t)size;
    }
    vocab->text_start[vocab->size] = (uint32_t)used;
    return BRIM_OK;
}

static brim_status index_text(brim__vocab *vocab, uint32_t id, uint64_t hash)
{
    size_t size;
    const char *text = brim__vocab_text(vocab, (brim_token)id, &size);
    if (!size) /* a hole in the vocabulary: it is kept as an id and never matched */
        return BRIM_OK;
    brim_token before = find_hashed(vocab, hash, text, size);
    BRIM_FAIL_IF(before != BRIM_TOKEN_NONE, FORMAT, "tokenizer.duplicate",
                 "tokenizer.ggml.tokens: tokens %d and %u have the same text \"%s\"; convert the "
                 "model again",
                 before, id, brim__label(text, size).text);
    uint32_t at = (uint32_t)hash & vocab->slot_mask;
    while (vocab->slots[at])
        at = (at + 1) & vocab->slot_mask;
    vocab->slots[at] = (hash >> 32 << 32) | (id + 1);
    return BRIM_OK;
}

static brim_status index_texts(brim__vocab *vocab)
{
    uint64_t slot_count = 16, hashes[BRIM__FIND_MANY_MAX];
    while (slot_count < 2 * (uint64_t)vocab->size)
        slot_count *= 2;
    BRIM_CALLOC(vocab->ctx, vocab->slots, slot_count);
    vocab->slot_mask = (uint32_t)slot_count - 1;
    for (uint32_t from = 0, count; from < vocab->size; from += count) {
        count = vocab->size - from < BRIM__FIND_MANY_MAX ? vocab->size - from : BRIM__FIND_MANY_MAX;
        for (uint32_t i = 0; i < count; i++) {
            size_t size;
            const char *text = brim__vocab_text(vocab, (brim_token)(from + i), &size);
            hashes[i] = brim__hash64(text, size, 0);
            __builtin_prefetch(&vocab->slots[(uint32_t)hashes[i] & vocab->slot_mask], 1);
        }
        for (uint32_t i = 0; i < count; i++)
            BRIM_TRY(index_text(vocab, from + i, hashes[i]));
    }
    return BRIM_OK;
}

/* The byte of a text like "<0x0A>", or -1. */
static int byte_of_text(const char *text, size_t size)
{
    if (size != 6 || memcmp(text, "<0x", 3) || text[5] != '>')
        return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        int c = (unsigned char)text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Without token types every token is normal; a SentencePiece vocabulary's bytes are known by
 * their text. */
static brim_status read_kinds(brim__vocab *vocab, const brim_model_file *file)
{
    const char *key = "tokenizer.ggml.token_type";
    const brim_meta *meta = brim_model_file_meta(file, key);
    BRIM_ALLOC(vocab->ctx, vocab->kind, vocab->size);
    memset(vocab->kind, BRIM_TOKEN_NORMAL, vocab->size);
    BRIM_FAIL_IF(meta && (meta->type != BRIM_META_ARRAY || meta->count != vocab->size), FORMAT,
                 "tokenizer.type",
                 "%s has %llu items, the vocabulary has %u tokens; convert the model again", key,
                 (unsigned long long)meta->count, vocab->size);
    for (uint32_t id = 0; id < vocab->size; id++) {
        if (!meta) {
            size_t size;
            const char *text = brim__vocab_text(vocab, (brim_token)id, &size);
            if (vocab->family == BRIM__VOCAB_SPM && byte_of_text(text, size) >= 0)
                vocab->kind[id] = BRIM_TOKEN_BYTE;
            continue;
        }
        int64_t kind;
        BRIM_TRY(brim_meta_i64(&kind, file, meta, id));
        BRIM_FAIL_IF(kind < 0 || kind > BRIM_TOKEN_BYTE, FORMAT, "tokenizer.type",
                     "%s: token %u is of type %lld; the types are 0 to %d", key, id,
                     (long long)kind, BRIM_TOKEN_BYTE);
        if (kind) /* 0 is "undefined": such a token is taken as a normal one */
            vocab->kind[id] = (uint8_t)kind;
    }
    return BRIM_OK;
}

/* Letters back to bytes; false when the text has a character that is no letter of the alphabet:
 * then the token stands for its text. */
static bool bytes_of_letters(char *out, size_t *out_size, const int16_t letters[LETTERS_END],
                             const char *text, size_t size)
{
    *out_size = 0;
    for (size_t i = 0, length; i < size; i += length) {
        uint32_t codepoint;
        length = brim__utf8_decode(&codepoint, text + i, size - i);
        if (!length || codepoint >= LETTERS_END || letters[codepoint] < 0)
            return false;
        out[(*out_size)++] = (char)letters[codepoint];
    }
    return true;
}

/* U+2581 back to spaces. */
static size_t bytes_of_piece(char *out, const char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < size;) {
        bool space = size - i >= 3 && !memcmp(text + i, "\xE2\x96\x81", 3);
        out[used++] = space ? ' ' : text[i];
        i += space ? 3 : 1;
    }
    return used;
}

/* What each token stands for is never longer than its text. */
static brim_status fill_bytes(brim__vocab *vocab)
{
    int16_t letters[LETTERS_END];
    fill_letters(vocab->letters, letters);
    BRIM_ALLOC(vocab->ctx, vocab->bytes, (size_t)vocab->text_start[vocab->size] + 1);
    size_t used = 0;
    for (uint32_t id = 0; id < vocab->size; id++) {
        size_t size, made = 0;
        const char *text = brim__vocab_text(vocab, (brim_token)id, &size);
        char *out = vocab->bytes + used;
        bool done = false;
        if (vocab->family == BRIM__VOCAB_SPM && vocab->kind[id] == BRIM_TOKEN_BYTE) {
            int byte = byte_of_text(text, size);
            BRIM_FAIL_IF(byte < 0, FORMAT, "tokenizer.byte",
                         "tokenizer.ggml.tokens: token %u is of type byte, but its text is \"%s\", "
                         "not like <0x0A>",
                         id, brim__label(text, size).text);
            out[0] = (char)byte, made = 1, done = true;
        } else if (brim__vocab_plain(vocab, (brim_token)id) || vocab->kind[id] == BRIM_TOKEN_BYTE) {
            done = vocab->family == BRIM__VOCAB_BPE
                       ? bytes_of_letters(out, &made, letters, text, size)
                       : (made = bytes_of_piece(out, text, size), true);
        }
        if (!done) {
            memcpy(out, text, size);
            made = size;
        }
        vocab->bytes_start[id] = (uint32_t)used;
        used += made;
    }
    vocab->bytes_start[vocab->size] = (uint32_t)used;
    return BRIM_OK;
}

static void find_byte_tokens(brim__vocab *vocab)
{
    for (unsigned byte = 0; byte < 256; byte++)
        vocab->byte_token[byte] = BRIM_TOKEN_NONE;
    if (vocab->family == BRIM__VOCAB_BPE) {
        for (unsigned byte = 0; byte < 256; byte++) {
            const char *letter = vocab->letters[byte];
            brim_token id = brim__vocab_find(vocab, letter, letter[1] ? 2 : 1);
            if (id != BRIM_TOKEN_NONE && brim__vocab_plain(vocab, id))
                vocab->byte_token[byte] = id;
        }
        return;
    }
    for (uint32_t id = vocab->size; id-- > 0;)
        if (vocab->kind[id] == BRIM_TOKEN_BYTE)
            vocab->byte_token[(uint8_t)vocab->bytes[vocab->bytes_start[id]]] = (brim_token)id;
}

brim_status brim__vocab_read(brim__vocab *out, brim_context *ctx, brim__vocab_family family,
                             const brim_model_file *file)
{
    const char *key = "tokenizer.ggml.tokens";
    const brim_meta *meta = brim_model_file_meta(file, key);
    *out = (brim__vocab){.ctx = ctx, .family = family};
    BRIM_FAIL_IF(!meta || meta->type != BRIM_META_ARRAY || meta->item_type != BRIM_META_STRING ||
                     !meta->count,
                 FORMAT, "tokenizer.vocab",
                 "%s is absent, empty or not a list of texts: the file has no vocabulary", key);
    BRIM_FAIL_IF(meta->count > BRIM__VOCAB_TOKENS_MAX, LIMIT, "tokenizer.size",
                 "%s has %llu tokens, the limit is %d", key, (unsigned long long)meta->count,
                 BRIM__VOCAB_TOKENS_MAX);
    out->size = (uint32_t)meta->count;
    brim_status status = BRIM_NO_MEMORY;
    out->text_start = brim__alloc(ctx, (out->size + 1) * sizeof *out->text_start);
    out->bytes_start = brim__alloc(ctx, (out->size + 1) * sizeof *out->bytes_start);
    if (!out->text_start || !out->bytes_start)
        goto fail;
    BRIM_TRY_GOTO(copy_texts(out, file, meta), fail);
    BRIM_TRY_GOTO(index_texts(out), fail);
    BRIM_TRY_GOTO(read_kinds(out, file), fail);
    BRIM_TRY_GOTO(fill_bytes(out), fail);
    find_byte_tokens(out);
    return BRIM_OK;
fail:
    brim__vocab_done(out);
    return status;
}

void brim__vocab_done(brim__vocab *vocab)
{
    brim_context *ctx = vocab->ctx;
    brim__free(ctx, vocab->text);
    brim__free(ctx, vocab->text_start);
    brim__free(ctx, vocab->bytes);
    brim__free(ctx, vocab->bytes_start);
    brim__free(ctx, vocab->kind);
    brim__free(ctx, vocab->slots);
    *vocab = (brim__vocab){0};
}
