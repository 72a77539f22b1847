/* token_merge.c: joining by rank. Few symbols (nearly every word) are searched one by one; many
 * go through a heap with links.
 *
 * An entry of the heap is stale when its position no longer has that rank: each position holds
 * the rank of its pair at present, so that nothing is ever removed from inside the heap. */
#include "llm/token_merge.h"

#include <string.h>

enum { FEW_SYMBOLS = 40 };
#define NO_LINK UINT32_MAX

typedef struct brim__merge_link {
    uint32_t symbol, before, next;
    uint32_t rank; /* of the pair with the next; NONE when joined away */
} brim__merge_link;

brim_status brim__merger_reserve(brim__merger *merger, size_t count)
{
    return BRIM_GROW(merger->ctx, merger->symbols, merger->capacity, count + 1);
}

void brim__merger_done(brim__merger *merger)
{
    brim__free(merger->ctx, merger->symbols);
    brim__free(merger->ctx, merger->links);
    brim__free(merger->ctx, merger->heap);
    *merger = (brim__merger){.ctx = merger->ctx};
}

static void run_few(brim__merger *merger, const brim__merge_rules *rules)
{
    uint32_t *symbols = merger->symbols;
    uint32_t ranks[FEW_SYMBOLS];
    size_t count = merger->count;
    symbols[count] = merger->end;
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] = rules->rank(rules->user, symbols[i], symbols[i + 1], symbols[i + 2]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best])
                best = i;
        uint32_t rank = ranks[best];
        if (rank == BRIM__RANK_NONE)
            break;
        if (rules->joined)
            symbols[best] = rules->joined[rank];
        /* The end mark moves down with the symbols behind the pair. */
        memmove(symbols + best + 1, symbols + best + 2, (count - best - 1) * sizeof *symbols);
        memmove(ranks + best, ranks + best + 1, (count - best - 2) * sizeof *ranks);
        count--;
        if (best + 1 < count)
            ranks[best] =
                rules->rank(rules->user, symbols[best], symbols[best + 1], symbols[best + 2]);
        if (best > 0)
            ranks[best - 1] =
                rules->rank(rules->user, symbols[best - 1], symbols[best], symbols[best + 1]);
    }
    merger->count = count;
}

static void sift_down(uint64_t *heap, size_t count, size_t at)
{
    uint64_t entry = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (entry <= heap[child])
            break;
        heap[at] = heap[child];
    }
    heap[at] = entry;
}

static void heap_push(brim__merger *merger, uint32_t rank, uint32_t position)
{
    uint64_t entry = (uint64_t)rank << 32 | position, *heap = merger->heap;
    size_t at = merger->heap_count++;
    for (size_t parent; at && heap[parent = (at - 1) / 2] > entry; at = parent)
        heap[at] = heap[parent];
    heap[at] = entry;
}

/* Ranks the pair that starts at a position anew; an entry is pushed if it can join. */
static void rank_pair(brim__merger *merger, const brim__merge_rules *rules, uint32_t position)
{
    brim__merge_link *link = &merger->links[position];
    link->rank = BRIM__RANK_NONE;
    if (link->next == NO_LINK)
        return;
    const brim__merge_link *right = &merger->links[link->next];
    uint32_t after = right->next == NO_LINK ? merger->end : merger->links[right->next].symbol;
    link->rank = rules->rank(rules->user, link->symbol, right->symbol, after);
    if (link->rank != BRIM__RANK_NONE)
        heap_push(merger, link->rank, position);
}

static brim_status start_heap(brim__merger *merger, const brim__merge_rules *rules)
{
    uint32_t count = (uint32_t)merger->count;
    BRIM_TRY(BRIM_GROW(merger->ctx, merger->links, merger->link_capacity, count));
    /* At most one entry a pair at first, then each join takes one out and puts two in. */
    BRIM_TRY(BRIM_GROW(merger->ctx, merger->heap, merger->heap_capacity, 2 * (size_t)count));
    merger->heap_count = 0;
    for (uint32_t i = 0; i < count; i++)
        merger->links[i] = (brim__merge_link){merger->symbols[i], i ? i - 1 : NO_LINK,
                                              i + 1 < count ? i + 1 : NO_LINK, BRIM__RANK_NONE};
    for (uint32_t i = 0; i < count; i++)
        rank_pair(merger, rules, i);
    return BRIM_OK;
}

static brim_status run_many(brim__merger *merger, const brim__merge_rules *rules)
{
    BRIM_TRY(start_heap(merger, rules));
    brim__merge_link *links = merger->links;
    while (merger->heap_count) {
        uint64_t top = merger->heap[0];
        merger->heap[0] = merger->heap[--merger->heap_count];
        if (merger->heap_count)
            sift_down(merger->heap, merger->heap_count, 0);
        uint32_t at = (uint32_t)top, rank = (uint32_t)(top >> 32);
        brim__merge_link *left = &links[at];
        if (left->rank != rank)
            continue;
        brim__merge_link *right = &links[left->next];
        if (rules->joined)
            left->symbol = rules->joined[rank];
        right->rank = BRIM__RANK_NONE;
        left->next = right->next;
        if (left->next != NO_LINK)
            links[left->next].before = at;
        rank_pair(merger, rules, at);
        if (left->before != NO_LINK)
            rank_pair(merger, rules, left->before);
    }
    size_t kept = 0;
    for (uint32_t i = 0; i != NO_LINK; i = links[i].next)
        merger->symbols[kept++] = links[i].symbol;
    merger->count = kept;
    return BRIM_OK;
}

brim_status brim__merger_run(brim__merger *merger, const brim__merge_rules *rules)
{
    if (merger->count <= FEW_SYMBOLS) {
        run_few(merger, rules);
        return BRIM_OK;
    }
    return run_many(merger, rules);
}
