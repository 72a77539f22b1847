/* runner.c: lanes, two programs, one KV pool. The decode program has few rows and buffers of its
 * own for every layer, so that a lane whose CPU was taken away can be a whole token late before
 * anybody waits for it; the prefill program has many rows and uses its buffers again. Both give
 * the same bits for a row. */
#include "llm/runner.h"

#include <math.h>
#include <string.h>

#include "base/thread.h"

enum {
    DESC_FILLED = 0x52756e6e,
    CONTEXT_DEFAULT_MAX = 4096,
    CONTEXT_MAX = 1 << 20,
    SESSIONS_MAX = 1024,
    PREFILL_ROWS = 64,
    PREFILL_ROWS_MAX = 512,
    PREFILL_RING = 3,
};

static const char *const numerics_names[] = {
#define NUMERICS_TEXT(name, text) text,
    BRIM_NUMERICS_LIST(NUMERICS_TEXT)
#undef NUMERICS_TEXT
};

const char *brim_numerics_name(brim_numerics numerics)
{
    return (size_t)numerics < sizeof numerics_names / sizeof *numerics_names
               ? numerics_names[numerics]
               : "unknown";
}

bool brim_numerics_parse(brim_numerics *out, const char *name)
{
    for (size_t i = 0; i < sizeof numerics_names / sizeof *numerics_names; i++)
        if (strcmp(numerics_names[i], name) == 0) {
            *out = (brim_numerics)i;
            return true;
        }
    return false;
}

brim_runner_desc brim_runner_desc_default(void)
{
    return (brim_runner_desc){
        .sessions = 1,
        .prefill_rows = PREFILL_ROWS,
        .executor = brim_executor_desc_default(),
        .do_not_set = DESC_FILLED,
    };
}

/* ---- creation ---- */

static brim_status fill_desc(brim_runner_desc *d, const brim_llm *llm)
{
    BRIM_FAIL_IF(d->do_not_set != DESC_FILLED, USAGE, "runner.desc",
                 "the description was not made by brim_runner_desc_default()");
    uint32_t trained = llm->config.context_trained;
    if (d->context == 0)
        d->context = trained < CONTEXT_DEFAULT_MAX ? trained : CONTEXT_DEFAULT_MAX;
    BRIM_FAIL_IF(d->context > CONTEXT_MAX, USAGE, "runner.context",
                 "a context of %u positions; at most %d", d->context, CONTEXT_MAX);
    if (d->lanes == 0)
        d->lanes = brim__cpu_count();
    BRIM_FAIL_IF(d->lanes > BRIM_LANES_MAX, USAGE, "runner.lanes", "%u lanes; at most %d", d->lanes,
                 BRIM_LANES_MAX);
    BRIM_FAIL_IF(d->sessions == 0 || d->sessions > SESSIONS_MAX, USAGE, "runner.sessions",
                 "%u sessions; 1 to %d are possible", d->sessions, SESSIONS_MAX);
    BRIM_FAIL_IF(d->prefill_rows == 0 || d->prefill_rows > PREFILL_ROWS_MAX, USAGE, "runner.rows",
                 "%u prefill rows; 1 to %d are possible", d->prefill_rows, PREFILL_ROWS_MAX);
    BRIM_FAIL_IF(d->numerics > BRIM_NUMERICS_EXACT, USAGE, "runner.numerics", "no such numerics");
    return BRIM_OK;
}

/* Positions, rounded up to whole blocks. */
static uint32_t context_blocks(const brim_runner *r)
{
    return (r->desc.context + BRIM__KV_BLOCK - 1) / BRIM__KV_BLOCK;
}

static brim_status allocate_shared(brim_runner *r)
{
    static const int kinds[] = {LLM_BUFFER_TABLES, LLM_BUFFER_PARAMS, LLM_BUFFER_HISTORY,
                                LLM_BUFFER_MAIL,   LLM_BUFFER_ENDS,   LLM_BUFFER_ROPE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        uint64_t size = brim_program_buffer(r->decode.program, (uint32_t)kinds[i])->size;
        r->shared[kinds[i]] = brim__calloc(r->ctx, 1, size);
        if (!r->shared[kinds[i]])
            return BRIM_NO_MEMORY;
    }
    /* Not zeroed: positions are written before they are read, and an untouched page costs nothing.
     */
    r->shared[LLM_BUFFER_KV] =
        brim__alloc_sparse(r->ctx, brim_program_buffer(r->decode.program, LLM_BUFFER_KV)->size);
    if (!r->shared[LLM_BUFFER_KV])
        return BRIM_NO_MEMORY;
    brim__build_rope(r->shared[LLM_BUFFER_ROPE], r->llm, context_blocks(r) * BRIM__KV_BLOCK);
    return BRIM_OK;
}

static brim_status create_engine(brim__engine *out, brim_runner *r, bool prefill)
{
    brim__build_desc desc = {
        .name = prefill ? "prefill" : "decode",
        .lanes = r->desc.lanes,
        .rows = prefill ? r->desc.prefill_rows : BRIM_DECODE_ROWS,
        .slots = r->desc.sessions,
        .context = context_blocks(r) * BRIM__KV_BLOCK,
        .kv_blocks = r->desc.kv_blocks,
        .numerics = r->desc.numerics,
        .split = !prefill,
        .ring = prefill ? PREFILL_RING : UINT32_MAX,
    };
    out->rows = desc.rows;
    BRIM_TRY(brim__build_program(&out->program, r->ctx, r->ops, r->llm, &desc));
    if (!r->desc.skip_check)
        BRIM_TRY(brim_program_check(out->program, r->ctx, 1, NULL, NULL));
    return BRIM_OK;
}

static brim_status start_engine(brim__engine *e, brim_runner *r)
{
    BRIM_TRY(brim_executor_create(&e->executor, r->ctx, e->program, &r->desc.executor));
    BRIM_TRY(brim__build_bind(e->executor, e->program, r->llm));
    for (int i = 0; i < LLM_BUFFER_COUNT; i++)
        if (r->shared[i])
            BRIM_TRY(brim_executor_bind_buffer(e->executor, (uint32_t)i, r->shared[i]));
    BRIM_FAIL_IF(!brim_executor_buffer(e->executor, LLM_BUFFER_STEP, 0), NO_MEMORY, "memory.out",
                 "no memory for the %s program's buffers", brim_program_name(e->program));
    return BRIM_OK;
}

static brim_status create_parts(brim_runner *r)
{
    r->blocks_max = context_blocks(r);
    if (r->desc.kv_blocks == 0)
        r->desc.kv_blocks = r->blocks_max * r->desc.sessions;
    BRIM_CALLOC(r->ctx, r->slots, r->desc.sessions);
    BRIM_CALLOC(r->ctx, r->free_blocks, r->desc.kv_blocks);
    /* The lowest block is handed out first. */
    for (uint32_t i = 0; i < r->desc.kv_blocks; i++)
        r->free_blocks[i] = r->desc.kv_blocks - 1 - i;
    r->free_block_count = r->desc.kv_blocks;
    BRIM_TRY(brim_op_table_create(&r->ops, r->ctx));
    BRIM_TRY(create_engine(&r->decode, r, false));
    BRIM_TRY(create_engine(&r->prefill, r, true));
    BRIM_TRY(allocate_shared(r));
    BRIM_TRY(start_engine(&r->decode, r));
    return start_engine(&r->prefill, r);
}

brim_status brim_runner_create(brim_runner **out, brim_context *ctx, const brim_llm *llm,
                               const brim_runner_desc *desc)
{
    *out = NULL;
    brim_runner_desc filled = desc ? *desc : brim_runner_desc_default();
    BRIM_TRY(fill_desc(&filled, llm));
    brim_runner *r;
    BRIM_CALLOC(ctx, r, 1);
    r->ctx = ctx;
    r->llm = llm;
    r->desc = filled;
    brim_status status = create_parts(r);
    if (status != BRIM_OK) {
        brim_runner_destroy(r);
        return status;
    }
    *out = r;
    return BRIM_OK;
}

void brim_runner_destroy(brim_runner *r)
{
    if (!r)
        return;
    brim_executor_destroy(r->decode.executor);
    brim_executor_destroy(r->prefill.executor);
    brim_program_destroy(r->decode.program);
    brim_program_destroy(r->prefill.program);
    brim_op_table_destroy(r->ops);
    for (int i = 0; i < LLM_BUFFER_COUNT; i++)
        brim__free(r->ctx, r->shared[i]);
    brim__free(r->ctx, r->free_blocks);
    brim__free(r->ctx, r->slots);
    brim__free(r->ctx, r);
}

uint32_t brim_runner_lanes(const brim_runner *r)
{
    return r->desc.lanes;
}
uint32_t brim_runner_context(const brim_runner *r)
{
    return r->desc.context;
}

uint64_t brim_runner_kv_bytes(const brim_runner *r)
{
    return brim_program_buffer(r->decode.program, LLM_BUFFER_KV)->size;
}

const brim_program *brim_runner_program(const brim_runner *r, bool prefill)
{
    return prefill ? r->prefill.program : r->decode.program;
}

brim_executor *brim_runner_executor(brim_runner *r, bool prefill)
{
    return prefill ? r->prefill.executor : r->decode.executor;
}

void brim_runner_cancel(brim_runner *r)
{
    atomic_store(&r->cancelled, 1);
    brim_executor_cancel(r->decode.executor);
    brim_executor_cancel(r->prefill.executor);
}

/* ---- steps ---- */

static uint32_t rows_before(const brim_row *rows, uint32_t n)
{
    uint32_t same = 0;
    for (uint32_t i = 0; i < n; i++)
        same += rows[i].session == rows[n].session;
    return same;
}

static brim_status check_rows(brim_runner *r, const brim_row *rows, uint32_t count)
{
    uint32_t most = r->prefill.rows > r->decode.rows ? r->prefill.rows : r->decode.rows;
    BRIM_FAIL_IF(count == 0 || count > most, USAGE, "runner.rows",
                 "%u rows in a step; 1 to %u are possible", count, most);
    for (uint32_t i = 0; i < count; i++) {
        BRIM_FAIL_IF(!rows[i].session || rows[i].session->runner != r, USAGE, "runner.session",
                     "row %u has no session of this runner", i);
        BRIM_FAIL_IF(rows[i].token < 0 || (uint32_t)rows[i].token >= r->llm->config.vocab_size,
                     USAGE, "runner.token", "row %u has token %d; the vocabulary has %u", i,
                     rows[i].token, r->llm->config.vocab_size);
    }
    return BRIM_OK;
}

brim_status brim__runner_plan(brim__planned *out, brim_runner *r, const brim_row *rows,
                              uint32_t count)
{
    BRIM_TRY(check_rows(r, rows, count));
    for (uint32_t i = 0; i < count; i++)
        BRIM_TRY(brim__session_reserve(rows[i].session,
                                       rows[i].session->length + rows_before(rows, i) + 1));
    brim__engine *e = count <= r->decode.rows ? &r->decode : &r->prefill;
    uint32_t *step =
        brim_executor_buffer(e->executor, LLM_BUFFER_STEP, brim_executor_epoch(e->executor));
    memset(step, 0, brim__step_bytes(e->rows));
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < count; i++) {
        step[brim__step_word(STEP_TOKEN, e->rows, i)] = (uint32_t)rows[i].token;
        step[brim__step_word(STEP_POSITION, e->rows, i)] =
            rows[i].session->length + rows_before(rows, i);
        step[brim__step_word(STEP_SLOT, e->rows, i)] = rows[i].session->slot;
        if (rows[i].logits)
            step[brim__step_word(STEP_OUT_ROW, e->rows, wanted++)] = i;
    }
    step[STEP_ROWS] = count;
    step[STEP_OUT] = wanted;
    *out = (brim__planned){e, step, wanted};
    return BRIM_OK;
}

brim_status brim__runner_execute(brim_runner *r, const brim__planned *plan, const brim_row *rows,
                                 uint32_t count)
{
    (void)r;
    BRIM_TRY(brim_executor_run(plan->engine->executor, 1));
    for (uint32_t i = 0; i < count; i++)
        rows[i].session->length++;
    return BRIM_OK;
}

brim_status brim_runner_step(brim_runner *r, const brim_row *rows, uint32_t count,
                             const float **out_logits, size_t *out_stride)
{
    brim__planned plan;
    BRIM_TRY(brim__runner_plan(&plan, r, rows, count));
    BRIM_TRY(brim__runner_execute(r, &plan, rows, count));
    if (out_logits)
        *out_logits = brim_executor_buffer(plan.engine->executor, LLM_BUFFER_LOGITS, 0);
    if (out_stride)
        *out_stride = brim__llm_head(r->llm)->tiling.rows;
    return BRIM_OK;
}
