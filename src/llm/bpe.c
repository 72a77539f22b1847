/* bpe.c: the merge list and its application.
 *
 * A byte without a token of its own is dropped before joining, so that its neighbours meet: that
 * is what Hugging Face's tokenizers do, whose ids the models were trained on. */
#include "llm/bpe.h"

#include <string.h>

enum { MERGES_MAX = 1 << 24 };

static uint32_t pair_slot(const brim__bpe *bpe, uint32_t left, uint32_t right)
{
    uint64_t key = (uint64_t)left << 32 | right;
    return (uint32_t)((key * 0x9E3779B97F4A7C15u) >> bpe->pair_shift);
}

static brim__bpe_pair *find_pair(const brim__bpe *bpe, uint32_t left, uint32_t right)
{
    for (uint32_t at = pair_slot(bpe, left, right);; at = (at + 1) & bpe->pair_mask) {
        brim__bpe_pair *pair = &bpe->pairs[at];
        if ((pair->left == left && pair->right == right) || pair->rank == BRIM__RANK_NONE)
            return pair;
    }
}

static uint32_t pair_rank(const void *user, uint32_t left, uint32_t right, uint32_t after)
{
    (void)after;
    return find_pair(user, left, right)->rank;
}

/* Merges are looked up in batches of three texts each: left, right and the two joined. */
enum { BATCH = BRIM__FIND_MANY_MAX / 3, JOINED_BYTES = 2 * BRIM__TOKEN_TEXT_MAX };

/* Cuts "left right" into its parts, the joined text in `joined`. */
static brim_status parse_merge(brim__slice parts[3], char *joined, uint32_t index, const char *text,
                               size_t size)
{
    const char *space = memchr(text, ' ', size);
    size_t left = space ? (size_t)(space - text) : 0;
    size_t right = space ? size - left - 1 : 0;
    BRIM_FAIL_IF(!left || !right || memchr(space + 1, ' ', right) || size > JOINED_BYTES, FORMAT,
                 "tokenizer.merge",
                 "tokenizer.ggml.merges: item %u is \"%s\", not two tokens with one space between",
                 index, brim__label(text, size).text);
    memcpy(joined, text, left);
    memcpy(joined + left, space + 1, right);
    parts[0] = (brim__slice){text, left};
    parts[1] = (brim__slice){space + 1, right};
    parts[2] = (brim__slice){joined, left + right};
    return BRIM_OK;
}

/* Of a merge that is listed twice the first line counts. A merge that would make a special token
 * out of plain text is left out and counted. */
static brim_status add_merge(uint32_t *refused, brim__bpe *bpe, uint32_t rank,
                             const brim__slice parts[3], const brim_token ids[3])
{
    for (int i = 0; i < 3; i++)
        BRIM_FAIL_IF(
            ids[i] == BRIM_TOKEN_NONE, FORMAT, "tokenizer.merge",
            "tokenizer.ggml.merges: item %u needs the token \"%s\", which the vocabulary lacks; "
            "convert the model again",
            rank, brim__label(parts[i].text, parts[i].size).text);
    bpe->joined[rank] = (uint32_t)ids[2];
    if (!brim__vocab_plain(bpe->vocab, ids[2])) {
        ++*refused;
        return BRIM_OK;
    }
    brim__bpe_pair *pair = find_pair(bpe, (uint32_t)ids[0], (uint32_t)ids[1]);
    if (pair->rank == BRIM__RANK_NONE)
        *pair = (brim__bpe_pair){(uint32_t)ids[0], (uint32_t)ids[1], rank};
    return BRIM_OK;
}

static brim_status read_batch(uint32_t *refused, brim__bpe *bpe, char *joined,
                              const brim_model_file *file, const brim_meta *meta, uint32_t from,
                              uint32_t count)
{
    brim__slice parts[3 * BATCH];
    brim_token ids[3 * BATCH];
    for (uint32_t i = 0; i < count; i++) {
        const char *text;
        size_t size;
        BRIM_TRY(brim_meta_string(&text, &size, file, meta, from + i));
        BRIM_TRY(parse_merge(parts + 3 * i, joined + i * JOINED_BYTES, from + i, text, size));
    }
    brim__vocab_find_many(ids, bpe->vocab, parts, 3 * count);
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(
            &bpe->pairs[pair_slot(bpe, (uint32_t)ids[3 * i], (uint32_t)ids[3 * i + 1])], 1);
    for (uint32_t i = 0; i < count; i++)
        BRIM_TRY(add_merge(refused, bpe, from + i, parts + 3 * i, ids + 3 * i));
    return BRIM_OK;
}

static brim_status read_merges(brim__bpe *bpe, const brim_model_file *file, const brim_meta *meta)
{
    brim_context *ctx = bpe->vocab->ctx;
    uint32_t refused = 0;
    char *joined;
    BRIM_ALLOC(ctx, joined, BATCH * JOINED_BYTES);
    brim_status status = BRIM_OK;
    for (uint32_t from = 0; from < bpe->merge_count && status == BRIM_OK; from += BATCH) {
        uint32_t left = bpe->merge_count - from;
        status = read_batch(&refused, bpe, joined, file, meta, from, left < BATCH ? left : BATCH);
    }
    brim__free(ctx, joined);
    if (refused && status == BRIM_OK)
        brim__log(ctx, BRIM_LOG_WARN,
                  "tokenizer.ggml.merges: %u merges that make special tokens are left out",
                  refused);
    return status;
}

brim_status brim__bpe_read(brim__bpe *out, const brim__vocab *vocab, bool ignore_merges,
                           const brim_model_file *file)
{
    const char *key = "tokenizer.ggml.merges";
    const brim_meta *meta = brim_model_file_meta(file, key);
    brim_context *ctx = vocab->ctx;
    brim_status status = BRIM_NO_MEMORY;
    BRIM_FAIL_IF(!meta || meta->type != BRIM_META_ARRAY ||
                     (meta->count && meta->item_type != BRIM_META_STRING),
                 FORMAT, "tokenizer.merges",
                 "%s is absent or not a list of texts; convert the model again", key);
    BRIM_FAIL_IF(meta->count > MERGES_MAX, LIMIT, "tokenizer.size",
                 "%s has %llu items, the limit is %d", key, (unsigned long long)meta->count,
                 MERGES_MAX);
    *out = (brim__bpe){
        .vocab = vocab, .ignore_merges = ignore_merges, .merge_count = (uint32_t)meta->count};
    uint32_t bits = 4;
    while ((1u << bits) < 2 * out->merge_count)
        bits++;
    out->pair_mask = (1u << bits) - 1;
    out->pair_shift = 64 - bits;
    out->pairs = brim__alloc(ctx, sizeof *out->pairs << bits);
    out->joined = brim__alloc(ctx, sizeof *out->joined * (out->merge_count + 1));
    out->whole = brim__calloc(ctx, vocab->size, sizeof *out->whole);
    if (!out->pairs || !out->joined || !out->whole)
        goto fail;
    memset(out->pairs, 0xFF, sizeof *out->pairs << bits); /* every rank is BRIM__RANK_NONE */
    BRIM_TRY_GOTO(read_merges(out, file, meta), fail);
    return BRIM_OK;
fail:
    brim__bpe_done(out);
    return status;
}

void brim__bpe_done(brim__bpe *bpe)
{
    if (!bpe->vocab)
        return;
    brim_context *ctx = bpe->vocab->ctx;
    brim__free(ctx, bpe->pairs);
    brim__free(ctx, bpe->joined);
    brim__free(ctx, (void *)bpe->whole);
    *bpe = (brim__bpe){0};
}

/* Leaves the joined tokens in merger->symbols. */
static brim_status join_bytes(uint64_t *lost, const brim__bpe *bpe, brim__merger *merger,
                              const char *text, size_t size)
{
    BRIM_TRY(brim__merger_reserve(merger, size));
    merger->count = 0;
    merger->end = BRIM__RANK_NONE;
    for (size_t i = 0; i < size; i++) {
        brim_token id = bpe->vocab->byte_token[(uint8_t)text[i]];
        if (id == BRIM_TOKEN_NONE)
            ++*lost;
        else
            merger->symbols[merger->count++] = (uint32_t)id;
    }
    brim__merge_rules rules = {pair_rank, bpe, bpe->joined};
    return brim__merger_run(merger, &rules);
}

/* The token that the whole pre-token becomes, or BRIM_TOKEN_NONE when it is not one token or has
 * to be joined to know. */
static brim_token find_whole(const brim__bpe *bpe, const char *text, size_t size)
{
    const brim__vocab *vocab = bpe->vocab;
    char letters[2 * BRIM__TOKEN_TEXT_MAX];
    if (size > vocab->text_size_max) /* a letter is a byte at least */
        return BRIM_TOKEN_NONE;
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        const char *letter = vocab->letters[(uint8_t)text[i]];
        letters[used] = letter[0];
        letters[used + 1] = letter[1];
        used += letter[1] ? 2 : 1;
    }
    brim_token id = brim__vocab_find(vocab, letters, used);
    return id != BRIM_TOKEN_NONE && brim__vocab_plain(vocab, id) ? id : BRIM_TOKEN_NONE;
}

brim_status brim__bpe_encode(brim_tokens *out, uint64_t *lost, const brim__bpe *bpe,
                             brim__merger *merger, const char *text, size_t size)
{
    brim_context *ctx = merger->ctx;
    brim_token whole = find_whole(bpe, text, size);
    uint8_t known = 0;
    if (whole != BRIM_TOKEN_NONE) {
        known =
            bpe->ignore_merges ? 1 : atomic_load_explicit(&bpe->whole[whole], memory_order_relaxed);
        if (known == 1)
            return brim__tokens_push(out, ctx, whole);
    }
    BRIM_TRY(join_bytes(lost, bpe, merger, text, size));
    if (whole != BRIM_TOKEN_NONE && !known)
        atomic_store_explicit(&bpe->whole[whole],
                              merger->count == 1 && merger->symbols[0] == (uint32_t)whole ? 1 : 2,
                              memory_order_relaxed);
    BRIM_TRY(BRIM_GROW(ctx, out->ids, out->capacity, out->count + merger->count));
    for (size_t i = 0; i < merger->count; i++)
        out->ids[out->count++] = (brim_token)merger->symbols[i];
    return BRIM_OK;
}
