/* session.c: a timeline in a runner: its blocks of the KV pool and its tokens. */
#include "llm/runner.h"

#include <string.h>

brim_status brim_session_create(brim_session **out, brim_runner *r)
{
    *out = NULL;
    uint32_t slot = 0;
    while (slot < r->desc.sessions && r->slots[slot])
        slot++;
    BRIM_FAIL_IF(slot == r->desc.sessions, LIMIT, "session.limit",
                 "the runner has all of its %u sessions; destroy one, or create it for more",
                 r->desc.sessions);
    brim_session *s;
    BRIM_CALLOC(r->ctx, s, 1);
    s->runner = r;
    s->slot = slot;
    r->slots[slot] = s;
    *brim__runner_params(r, slot) =
        (brim__sample_params){.top_p = 1, .penalty = 1, .max_position = r->desc.context};
    *out = s;
    return BRIM_OK;
}

static uint32_t *table_of(const brim_session *s)
{
    return (uint32_t *)s->runner->shared[LLM_BUFFER_TABLES] +
           (size_t)s->slot * s->runner->blocks_max;
}

/* Gives back the blocks that `length` tokens do not need. */
static void release_blocks(brim_session *s, uint32_t length)
{
    uint32_t needed = (length + BRIM__KV_BLOCK - 1) / BRIM__KV_BLOCK;
    while (s->block_count > needed) {
        uint32_t *entry = &table_of(s)[--s->block_count];
        s->runner->free_blocks[s->runner->free_block_count++] = *entry;
        *entry = 0;
    }
}

void brim_session_destroy(brim_session *s)
{
    if (!s)
        return;
    release_blocks(s, 0);
    s->runner->slots[s->slot] = NULL;
    brim__free(s->runner->ctx, s);
}

brim_status brim__session_reserve(brim_session *s, uint32_t length)
{
    brim_runner *r = s->runner;
    BRIM_FAIL_IF(length > r->desc.context, LIMIT, "session.full",
                 "the context is full: %u positions are needed and it has %u; give a larger --ctx, "
                 "or --shift",
                 length, r->desc.context);
    uint32_t needed = (length + BRIM__KV_BLOCK - 1) / BRIM__KV_BLOCK;
    uint32_t more = needed > s->block_count ? needed - s->block_count : 0;
    BRIM_FAIL_IF(more > r->free_block_count, LIMIT, "session.blocks",
                 "the KV pool has no %u more blocks of %d positions (%u are free); end a session, "
                 "or make it larger",
                 more, BRIM__KV_BLOCK, r->free_block_count);
    while (s->block_count < needed)
        table_of(s)[s->block_count++] = r->free_blocks[--r->free_block_count];
    return BRIM_OK;
}

uint32_t brim_session_length(const brim_session *s)
{
    return s->length;
}

static const uint32_t *history_of(const brim_session *s)
{
    size_t context = (size_t)s->runner->blocks_max * BRIM__KV_BLOCK;
    const uint32_t *tokens =
        s->runner->tokens ? s->runner->tokens : s->runner->shared[LLM_BUFFER_HISTORY];
    return tokens + s->slot * context;
}

brim_token brim_session_token(const brim_session *s, uint32_t position)
{
    return position < s->length ? (brim_token)history_of(s)[position] : BRIM_TOKEN_NONE;
}

brim_status brim_session_truncate(brim_session *s, uint32_t length)
{
    BRIM_FAIL_IF(length > s->length, USAGE, "session.truncate", "the session has %u tokens, not %u",
                 s->length, length);
    s->length = length;
    release_blocks(s, length);
    return BRIM_OK;
}

brim_status brim_session_feed(brim_session *s, const brim_token *tokens, uint32_t count,
                              bool (*logits)(uint32_t position, const float *logits, void *user),
                              void *user)
{
    brim_row *rows;
    uint32_t chunk = s->runner->engines[ENGINE_PREFILL].rows;
    BRIM_CALLOC(s->runner->ctx, rows, chunk);
    brim_status status =
        brim__session_reserve(s, s->length + count < s->length ? UINT32_MAX : s->length + count);
    for (uint32_t at = 0; at < count && status == BRIM_OK;) {
        uint32_t n = count - at < chunk ? count - at : chunk;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = (brim_row){s, tokens[at + i], logits != NULL};
        const float *values = NULL;
        size_t stride = 0;
        status = brim_runner_step(s->runner, rows, n, logits ? &values : NULL, &stride);
        for (uint32_t i = 0; i < n && logits && status == BRIM_OK; i++)
            if (!logits(s->length - n + i, values + i * stride, user))
                status = brim__fail(BRIM_CANCELLED, "run.cancelled", "ended by the caller");
        at += n;
    }
    brim__free(s->runner->ctx, rows);
    return status;
}

brim_status brim_session_shift(brim_session *s, uint32_t keep, uint32_t tail)
{
    BRIM_FAIL_IF(keep > s->length || tail > s->length - keep, USAGE, "session.shift",
                 "the session has %u tokens: it cannot keep %u and %u", s->length, keep, tail);
    brim_token *tokens;
    BRIM_CALLOC(s->runner->ctx, tokens, (size_t)tail + 1);
    for (uint32_t i = 0; i < tail; i++)
        tokens[i] = brim_session_token(s, s->length - tail + i);
    brim_status status = brim_session_truncate(s, keep);
    if (status == BRIM_OK && tail > 0)
        status = brim_session_feed(s, tokens, tail, NULL, NULL);
    brim__free(s->runner->ctx, tokens);
    return status;
}
