/* token_merge.h: joins neighbouring symbols, the pair of lowest rank first, among equal ranks the
 * leftmost: what byte-level BPE (rank: line of the merge list) and SentencePiece's BPE (rank:
 * order of scores) have in common.
 *
 * A symbol is one number whose meaning belongs to the rules: a token id, or where it starts.
 * Takes O(n log n) steps for n symbols; working memory is 32 bytes a symbol at most.
 */
#ifndef BRIM_LLM_TOKEN_MERGE_H
#define BRIM_LLM_TOKEN_MERGE_H

#include "base/memory.h"

#define BRIM__RANK_NONE UINT32_MAX

typedef struct brim__merge_rules {
    /* The rank of joining `left` and `right`; `after` is the symbol behind them (merger.end at
     * the end). BRIM__RANK_NONE: they do not join. */
    uint32_t (*rank)(const void *user, uint32_t left, uint32_t right, uint32_t after);
    const void *user;
    const uint32_t *joined; /* (rank) the new symbol; NULL: it is the left one */
} brim__merge_rules;

typedef struct brim__merger {
    brim_context *ctx;
    uint32_t *symbols; /* (count): filled by the caller, holds the result afterwards */
    size_t count, capacity;
    uint32_t end; /* what `after` is behind the last symbol */
    struct brim__merge_link *links;
    size_t link_capacity;
    uint64_t *heap; /* rank, then position: 32 bits each */
    size_t heap_count, heap_capacity;
} brim__merger;

/* Makes room for `count` symbols. */
brim_status brim__merger_reserve(brim__merger *merger, size_t count);
brim_status brim__merger_run(brim__merger *merger, const brim__merge_rules *rules);
void brim__merger_done(brim__merger *merger);

#endif
