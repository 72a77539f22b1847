/* spm.c: scores become ranks once; a text is cut into words, its spaces become U+2581, and each
 * word's characters are joined. */
#include "llm/spm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "llm/bpe.h"

#define SPACE_MARK "\xE2\x96\x81"

typedef struct scored_token {
    double score;
    uint32_t id;
} scored_token;

static int by_falling_score(const void *a, const void *b)
{
    const scored_token *x = a, *y = b;
    return x->score < y->score ? 1 : x->score > y->score ? -1 : x->id < y->id ? -1 : x->id > y->id;
}

static brim_status rank_scores(brim__spm *spm, scored_token *order, const brim_model_file *file,
                               const brim_meta *meta)
{
    uint32_t size = spm->vocab->size;
    for (uint32_t id = 0; id < size; id++) {
        order[id].id = id;
        BRIM_TRY(brim_meta_f64(&order[id].score, file, meta, id));
        BRIM_FAIL_IF(isnan(order[id].score), FORMAT, "tokenizer.scores",
                     "tokenizer.ggml.scores: the score of token %u is not a number", id);
    }
    qsort(order, size, sizeof *order, by_falling_score);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < size; i++) {
        if (i && order[i].score != order[i - 1].score)
            rank++;
        bool plain = brim__vocab_plain(spm->vocab, (brim_token)order[i].id);
        spm->rank[order[i].id] = plain ? rank : BRIM__RANK_NONE;
    }
    return BRIM_OK;
}

static brim_status read_scores(brim__spm *spm, const brim_model_file *file)
{
    const char *key = "tokenizer.ggml.scores";
    const brim_meta *meta = brim_model_file_meta(file, key);
    uint32_t size = spm->vocab->size;
    BRIM_FAIL_IF(
        !meta || meta->type != BRIM_META_ARRAY || meta->count != size, FORMAT, "tokenizer.scores",
        "%s is absent or does not have an item for each of the %u tokens; convert the model again",
        key, size);
    brim_context *ctx = spm->vocab->ctx;
    BRIM_ALLOC(ctx, spm->rank, size * sizeof *spm->rank);
    scored_token *order;
    BRIM_ALLOC(ctx, order, size * sizeof *order);
    brim_status status = rank_scores(spm, order, file, meta);
    brim__free(ctx, order);
    return status;
}

/* The token of tokenizer.ggml.unknown_token_id, or the first of that kind. */
static brim_status read_unknown(brim__spm *spm, const brim_model_file *file)
{
    const char *key = "tokenizer.ggml.unknown_token_id";
    const brim_meta *meta = brim_model_file_meta(file, key);
    spm->unknown = BRIM_TOKEN_NONE;
    if (meta) {
        uint64_t id;
        BRIM_TRY(brim_meta_u64(&id, file, meta, 0));
        BRIM_FAIL_IF(id >= spm->vocab->size, FORMAT, "tokenizer.id",
                     "%s is %llu, the vocabulary has %u tokens", key, (unsigned long long)id,
                     spm->vocab->size);
        spm->unknown = (brim_token)id;
        return BRIM_OK;
    }
    for (uint32_t id = 0; id < spm->vocab->size; id++) {
        if (spm->vocab->kind[id] == BRIM_TOKEN_UNKNOWN) {
            spm->unknown = (brim_token)id;
            break;
        }
    }
    return BRIM_OK;
}

/* Whether no piece has a space mark directly behind something else. */
static bool pieces_start_with_spaces(const brim__vocab *vocab)
{
    for (uint32_t id = 0; id < vocab->size; id++) {
        if (!brim__vocab_plain(vocab, (brim_token)id))
            continue;
        size_t size;
        const char *text = brim__vocab_text(vocab, (brim_token)id, &size);
        bool started = false;
        for (size_t i = 0; i < size;) {
            bool mark = size - i >= 3 && !memcmp(text + i, SPACE_MARK, 3);
            if (mark && started)
                return false;
            started = !mark;
            i += mark ? 3 : 1;
        }
    }
    return true;
}

brim_status brim__spm_read(brim__spm *out, const brim__vocab *vocab, const brim_model_file *file)
{
    brim_status status;
    *out = (brim__spm){.vocab = vocab, .space_prefix = true};
    const brim_meta *meta = brim_model_file_meta(file, "tokenizer.ggml.add_space_prefix");
    if (meta)
        BRIM_TRY(brim_meta_bool(&out->space_prefix, file, meta, 0));
    BRIM_TRY(read_unknown(out, file));
    out->cuts_at_spaces = pieces_start_with_spaces(vocab);
    BRIM_TRY_GOTO(read_scores(out, file), fail);
    out->whole = brim__calloc(vocab->ctx, vocab->size, sizeof *out->whole);
    if (out->whole)
        return BRIM_OK;
    status = BRIM_NO_MEMORY;
fail:
    brim__spm_done(out);
    return status;
}

void brim__spm_done(brim__spm *spm)
{
    if (!spm->vocab)
        return;
    brim__free(spm->vocab->ctx, spm->rank);
    brim__free(spm->vocab->ctx, (void *)spm->whole);
    *spm = (brim__spm){0};
}

/* A word with its spaces as marks: what the symbols of the merger point into. */
typedef struct spm_word {
    const brim__spm *spm;
    const char *text;
} spm_word;

static brim_token find_piece(const brim__spm *spm, const char *text, size_t size)
{
    brim_token id = brim__vocab_find(spm->vocab, text, size);
    return id != BRIM_TOKEN_NONE && brim__vocab_plain(spm->vocab, id) ? id : BRIM_TOKEN_NONE;
}

static uint32_t join_rank(const void *user, uint32_t left, uint32_t right, uint32_t after)
{
    (void)right;
    const spm_word *word = user;
    brim_token id = find_piece(word->spm, word->text + left, after - left);
    return id == BRIM_TOKEN_NONE ? BRIM__RANK_NONE : word->spm->rank[id];
}

/* What is no piece: its bytes; where the vocabulary lacks one, the unknown token, once for a run
 * of unknown characters. */
static brim_status push_bytes(brim_tokens *out, uint64_t *lost, bool *after_unknown,
                              const brim__spm *spm, const char *text, size_t size)
{
    brim_context *ctx = spm->vocab->ctx;
    bool known = true;
    for (size_t i = 0; i < size; i++)
        known &= spm->vocab->byte_token[(uint8_t)text[i]] != BRIM_TOKEN_NONE;
    if (!known) {
        bool mark = size == 3 && !memcmp(text, SPACE_MARK, 3);
        *lost += mark ? 1 : size;
        if (spm->unknown != BRIM_TOKEN_NONE && !*after_unknown)
            BRIM_TRY(brim__tokens_push(out, ctx, spm->unknown));
        *after_unknown = true;
        return BRIM_OK;
    }
    *after_unknown = false;
    for (size_t i = 0; i < size; i++)
        BRIM_TRY(brim__tokens_push(out, ctx, spm->vocab->byte_token[(uint8_t)text[i]]));
    return BRIM_OK;
}

static brim_status join_word(brim__merger *merger, const brim__spm *spm, const char *text,
                             size_t size)
{
    spm_word word = {spm, text};
    brim__merge_rules rules = {join_rank, &word, NULL};
    BRIM_TRY(brim__merger_reserve(merger, size));
    merger->count = 0;
    merger->end = (uint32_t)size;
    for (size_t i = 0; i < size;) {
        uint32_t codepoint;
        size_t length = brim__utf8_decode(&codepoint, text + i, size - i);
        merger->symbols[merger->count++] = (uint32_t)i;
        i += length ? length : 1;
    }
    return brim__merger_run(merger, &rules);
}

static brim_status encode_word(brim_tokens *out, uint64_t *lost, bool *after_unknown,
                               const brim__spm *spm, brim__merger *merger, const char *text,
                               size_t size)
{
    brim_context *ctx = merger->ctx;
    brim_token whole = find_piece(spm, text, size);
    uint8_t known = 0;
    if (whole != BRIM_TOKEN_NONE) {
        known = atomic_load_explicit(&spm->whole[whole], memory_order_relaxed);
        if (known == 1) {
            *after_unknown = false;
            return brim__tokens_push(out, ctx, whole);
        }
    }
    BRIM_TRY(join_word(merger, spm, text, size));
    if (whole != BRIM_TOKEN_NONE && !known)
        atomic_store_explicit(&spm->whole[whole], merger->count == 1 ? 1 : 2, memory_order_relaxed);
    for (size_t i = 0; i < merger->count; i++) {
        size_t start = merger->symbols[i];
        size_t end = i + 1 < merger->count ? merger->symbols[i + 1] : size;
        brim_token id = find_piece(spm, text + start, end - start);
        if (id == BRIM_TOKEN_NONE) {
            BRIM_TRY(push_bytes(out, lost, after_unknown, spm, text + start, end - start));
            continue;
        }
        *after_unknown = false;
        BRIM_TRY(brim__tokens_push(out, ctx, id));
    }
    return BRIM_OK;
}

/* The end of the word that starts at `at`: spaces, then other characters. A mark that stands in
 * the text itself may join with the spaces behind it. */
static size_t word_end(const brim__spm *spm, const char *text, size_t size, size_t at)
{
    if (!spm->cuts_at_spaces)
        return size;
    for (;;) {
        while (at < size && text[at] == ' ')
            at++;
        const char *space = memchr(text + at, ' ', size - at);
        if (!space)
            return size;
        at = (size_t)(space - text);
        if (at < 3 || memcmp(space - 3, SPACE_MARK, 3))
            return at;
    }
}

brim_status brim__spm_encode(brim_tokens *out, uint64_t *lost, const brim__spm *spm,
                             brim__merger *merger, const char *text, size_t size)
{
    brim_status status = BRIM_OK;
    bool after_unknown = false;
    size_t room = 0;
    char *marked = NULL;
    for (size_t at = 0, end; at < size; at = end) {
        end = word_end(spm, text, size, at);
        size_t used = 0;
        BRIM_TRY_GOTO(BRIM_GROW(merger->ctx, marked, room, 3 * (end - at + 1)), done);
        if (!at && spm->space_prefix) {
            memcpy(marked, SPACE_MARK, 3);
            used = 3;
        }
        for (size_t i = at; i < end; i++) {
            bool space = text[i] == ' ';
            memcpy(marked + used, space ? SPACE_MARK : text + i, space ? 3 : 1);
            used += space ? 3 : 1;
        }
        BRIM_TRY_GOTO(encode_word(out, lost, &after_unknown, spm, merger, marked, used), done);
    }
done:
    brim__free(merger->ctx, marked);
    return status;
}
