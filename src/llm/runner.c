/* runner.c: lanes, programs, one KV pool. Of two programs the decode program has few rows and
 * buffers of its own for every layer, so that a lane whose CPU was taken away can be a whole token
 * late before anybody waits for it; the prefill program has many rows and uses its buffers again.
 * A model whose weights live on a device has resident programs instead, of 1 and of 8 rows. All
 * programs of a runner give the same bits for a row. */
#include "llm/runner.h"

#include <math.h>
#include <string.h>

#include "base/thread.h"
#include "program/executor.h"

enum {
    DESC_FILLED = 0x52756e6e,
    CONTEXT_MAX = 1 << 20,
    SESSIONS_MAX = 1024,
    PREFILL_ROWS = 64,
    PREFILL_ROWS_MAX = 512,
    PREFILL_RING = 3,
    POOL_ALIGN = 512,
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

/* What follows from where a model's weights are. */
static brim_status fill_place(brim_runner_desc *d, const brim_llm *llm)
{
    brim_device_info info = {.kind = BRIM_DEVICE_CPU};
    if (llm->resident)
        BRIM_TRY(brim_device_query(&info, llm->resident->device));
    bool cuda = info.kind == BRIM_DEVICE_CUDA;
    if (cuda) {
        d->executor.kind = BRIM_EXECUTOR_CUDA;
        d->executor.device = llm->resident->device;
    }
    BRIM_FAIL_IF(!cuda && d->executor.kind == BRIM_EXECUTOR_CUDA, USAGE, "runner.executor",
                 "the CUDA executor needs a model whose weights live on a CUDA device");
    if (d->lanes == 0)
        d->lanes = cuda ? info.lane_count_max : brim__cpu_count();
    BRIM_FAIL_IF(d->lanes > BRIM_LANES_MAX, USAGE, "runner.lanes", "%u lanes; at most %d", d->lanes,
                 BRIM_LANES_MAX);
    BRIM_FAIL_IF(cuda && d->lanes > info.lane_count_max, USAGE, "runner.lanes",
                 "%u lanes; the device has %u multiprocessors", d->lanes, info.lane_count_max);
    if (llm->resident && d->numerics == BRIM_NUMERICS_DEFAULT)
        d->numerics = BRIM_NUMERICS_RESIDENT;
    if (llm->resident)
        d->prefill_rows = BRIM__RES_ROWS_MAX;
    BRIM_FAIL_IF(d->numerics > BRIM_NUMERICS_RESIDENT, USAGE, "runner.numerics",
                 "no such numerics");
    BRIM_FAIL_IF((d->numerics == BRIM_NUMERICS_RESIDENT) != (llm->resident != NULL), USAGE,
                 "runner.numerics", "numerics %s: %s", brim_numerics_name(d->numerics),
                 llm->resident ? "a model on a device has its own; --device cpu has these"
                               : "only models on a device have them");
    return BRIM_OK;
}

static brim_status fill_desc(brim_runner_desc *d, const brim_llm *llm)
{
    BRIM_FAIL_IF(d->do_not_set != DESC_FILLED, USAGE, "runner.desc",
                 "the description was not made by brim_runner_desc_default()");
    if (d->context == 0)
        d->context = brim__llm_context_default(llm);
    BRIM_FAIL_IF(d->context > CONTEXT_MAX, USAGE, "runner.context",
                 "a context of %u positions; at most %d", d->context, CONTEXT_MAX);
    BRIM_FAIL_IF(d->sessions == 0 || d->sessions > SESSIONS_MAX, USAGE, "runner.sessions",
                 "%u sessions; 1 to %d are possible", d->sessions, SESSIONS_MAX);
    BRIM_FAIL_IF(d->prefill_rows == 0 || d->prefill_rows > PREFILL_ROWS_MAX, USAGE, "runner.rows",
                 "%u prefill rows; 1 to %d are possible", d->prefill_rows, PREFILL_ROWS_MAX);
    return fill_place(d, llm);
}

/* Positions, rounded up to whole blocks. */
static uint32_t context_blocks(const brim_runner *r)
{
    return (r->desc.context + BRIM__KV_BLOCK - 1) / BRIM__KV_BLOCK;
}

static brim_status allocate_host(brim_runner *r, const int *kinds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const brim_program *p = r->engines[ENGINE_DECODE].program;
        uint64_t size = brim_program_buffer(p, (uint32_t)kinds[i])->size;
        r->shared[kinds[i]] = brim__calloc(r->ctx, 1, size);
        if (!r->shared[kinds[i]])
            return BRIM_NO_MEMORY;
    }
    return BRIM_OK;
}

static brim_status allocate_shared(brim_runner *r)
{
    static const int kinds[] = {LLM_BUFFER_TABLES, LLM_BUFFER_PARAMS, LLM_BUFFER_HISTORY,
                                LLM_BUFFER_ENDS, LLM_BUFFER_ROPE};
    BRIM_TRY(allocate_host(r, kinds, sizeof kinds / sizeof *kinds));
    /* Not zeroed: positions are written before they are read, and an untouched page costs nothing.
     */
    r->shared[LLM_BUFFER_KV] = brim__alloc_sparse(r->ctx, brim_runner_kv_bytes(r));
    if (!r->shared[LLM_BUFFER_KV])
        return BRIM_NO_MEMORY;
    brim__build_rope(r->shared[LLM_BUFFER_ROPE], r->llm, context_blocks(r) * BRIM__KV_BLOCK);
    return BRIM_OK;
}

/* The step's own inputs stay with the host, which uploads them; what grows lives on the device. */
static brim_status allocate_pool(brim_runner *r)
{
    static const int kinds[] = {LLM_BUFFER_TABLES, LLM_BUFFER_PARAMS, LLM_BUFFER_ENDS};
    static const int pooled[] = {LLM_BUFFER_KV, LLM_BUFFER_HISTORY, LLM_BUFFER_ROPE};
    const brim_program *p = r->engines[ENGINE_DECODE].program;
    uint32_t context = context_blocks(r) * BRIM__KV_BLOCK;
    uint64_t bytes = 0, buffers = 0, rope_bytes = brim_program_buffer(p, LLM_BUFFER_ROPE)->size;
    BRIM_TRY(allocate_host(r, kinds, sizeof kinds / sizeof *kinds));
    BRIM_CALLOC(r->ctx, r->tokens, (size_t)r->desc.sessions * context);
    for (size_t i = 0; i < sizeof pooled / sizeof *pooled; i++) {
        r->pool_offset[pooled[i]] = bytes;
        bytes += (brim_program_buffer(p, (uint32_t)pooled[i])->size + POOL_ALIGN - 1) / POOL_ALIGN *
                 POOL_ALIGN;
    }
    for (int e = 0; e < ENGINE_COUNT; e++)
        if (r->engines[e].program)
            buffers += brim__resident_buffer_bytes(r->engines[e].program);
    BRIM_TRY(brim__resident_room(r->llm->resident->device, 0, bytes, buffers));
    BRIM_TRY(brim_device_alloc(&r->pool, r->llm->resident->device, bytes));
    if (!brim_device_memory_host(r->pool)) {
        uint64_t rows = r->engines[ENGINE_PREFILL].rows;
        BRIM_ALLOC(r->ctx, r->logits, 4 * rows * r->llm->config.vocab_size);
    }
    float *rope;
    BRIM_ALLOC(r->ctx, rope, rope_bytes);
    brim__build_rope(rope, r->llm, context);
    brim_status status =
        brim_device_write(r->pool, r->pool_offset[LLM_BUFFER_ROPE], rope, rope_bytes);
    brim__free(r->ctx, rope);
    return status;
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

static brim_status create_resident(brim_runner *r, int engine, bool direct)
{
    static const char *const names[ENGINE_COUNT] = {"decode", "prefill", "decode.long",
                                                    "prefill.long"};
    brim__engine *e = &r->engines[engine];
    brim__resident_desc desc = {
        .name = names[engine],
        .lanes = r->desc.lanes,
        .rows = engine == ENGINE_DECODE || engine == ENGINE_DECODE_LONG ? 1 : BRIM__RES_ROWS_MAX,
        .slots = r->desc.sessions,
        .context = context_blocks(r) * BRIM__KV_BLOCK,
        .kv_blocks = r->desc.kv_blocks,
        .direct = direct,
    };
    e->rows = desc.rows;
    BRIM_TRY(brim__build_resident(&e->program, r->ctx, r->ops, r->llm, &desc));
    if (!r->desc.skip_check)
        BRIM_TRY(brim_program_check(e->program, r->ctx, 1, NULL, NULL));
    return BRIM_OK;
}

static brim_status create_engines(brim_runner *r)
{
    bool direct = !r->desc.long_programs;
    r->long_from = UINT32_MAX;
    if (!r->llm->resident) {
        BRIM_TRY(create_engine(&r->engines[ENGINE_DECODE], r, false));
        return create_engine(&r->engines[ENGINE_PREFILL], r, true);
    }
    BRIM_TRY(create_resident(r, ENGINE_DECODE, direct));
    BRIM_TRY(create_resident(r, ENGINE_PREFILL, direct));
    if (direct)
        r->long_from =
            brim__resident_direct_end(&r->llm->config, context_blocks(r) * BRIM__KV_BLOCK);
    if (r->long_from == UINT32_MAX)
        return BRIM_OK;
    BRIM_TRY(create_resident(r, ENGINE_DECODE_LONG, false));
    return create_resident(r, ENGINE_PREFILL_LONG, false);
}

static brim_status start_engine(brim__engine *e, brim_runner *r)
{
    BRIM_TRY(brim_executor_create(&e->executor, r->ctx, e->program, &r->desc.executor));
    if (r->llm->resident)
        BRIM_TRY(brim__resident_bind(e->executor, r->llm));
    else
        BRIM_TRY(brim__build_bind(e->executor, e->program, r->llm));
    for (uint32_t i = 0; i < LLM_BUFFER_COUNT; i++) {
        bool pooled = i == LLM_BUFFER_KV || i == LLM_BUFFER_HISTORY || i == LLM_BUFFER_ROPE;
        if (r->shared[i])
            BRIM_TRY(brim_executor_bind_buffer(e->executor, i, r->shared[i]));
        else if (r->pool && pooled)
            BRIM_TRY(brim_executor_bind_memory(e->executor, i, r->pool, r->pool_offset[i]));
    }
    return brim__executor_place(e->executor);
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
    BRIM_TRY(create_engines(r));
    BRIM_TRY(r->llm->resident ? allocate_pool(r) : allocate_shared(r));
    for (int e = 0; e < ENGINE_COUNT; e++)
        if (r->engines[e].program)
            BRIM_TRY(start_engine(&r->engines[e], r));
    return BRIM_OK;
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
    for (int e = 0; e < ENGINE_COUNT; e++)
        brim_executor_destroy(r->engines[e].executor);
    for (int e = 0; e < ENGINE_COUNT; e++)
        brim_program_destroy(r->engines[e].program);
    brim_op_table_destroy(r->ops);
    for (int i = 0; i < LLM_BUFFER_COUNT; i++)
        brim__free(r->ctx, r->shared[i]);
    brim_device_free(r->pool);
    brim__free(r->ctx, r->tokens);
    brim__free(r->ctx, r->logits);
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

brim_numerics brim_runner_numerics(const brim_runner *r)
{
    return r->desc.numerics;
}

uint64_t brim_runner_kv_bytes(const brim_runner *r)
{
    return brim_program_buffer(r->engines[ENGINE_DECODE].program, LLM_BUFFER_KV)->size;
}

const brim_program *brim_runner_program(const brim_runner *r, bool prefill)
{
    return r->engines[prefill ? ENGINE_PREFILL : ENGINE_DECODE].program;
}

brim_executor *brim_runner_executor(brim_runner *r, bool prefill)
{
    return r->engines[prefill ? ENGINE_PREFILL : ENGINE_DECODE].executor;
}

void brim_runner_cancel(brim_runner *r)
{
    atomic_store(&r->cancelled, 1);
    for (int e = 0; e < ENGINE_COUNT; e++)
        if (r->engines[e].executor)
            brim_executor_cancel(r->engines[e].executor);
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
    uint32_t most = brim__runner_rows_max(r);
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

static uint32_t last_position(const brim_row *rows, uint32_t count)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t position = rows[i].session->length + rows_before(rows, i);
        last = position > last ? position : last;
    }
    return last;
}

static brim__engine *engine_for(brim_runner *r, const brim_row *rows, uint32_t count)
{
    bool is_long = last_position(rows, count) >= r->long_from;
    int few = is_long ? ENGINE_DECODE_LONG : ENGINE_DECODE;
    int many = is_long ? ENGINE_PREFILL_LONG : ENGINE_PREFILL;
    return &r->engines[count <= r->engines[few].rows ? few : many];
}

uint32_t brim__runner_chain_max(const brim_runner *r, const brim_row *rows, uint32_t count,
                                uint32_t limit)
{
    uint32_t last = last_position(rows, count);
    return last < r->long_from && r->long_from - last < limit ? r->long_from - last : limit;
}

brim_status brim__runner_plan(brim__planned *out, brim_runner *r, const brim_row *rows,
                              uint32_t count)
{
    BRIM_TRY(check_rows(r, rows, count));
    for (uint32_t i = 0; i < count; i++)
        BRIM_TRY(brim__session_reserve(rows[i].session,
                                       rows[i].session->length + rows_before(rows, i) + 1));
    brim__engine *e = engine_for(r, rows, count);
    uint32_t *step =
        brim_executor_buffer(e->executor, LLM_BUFFER_STEP, brim_executor_epoch(e->executor));
    memset(step, 0, brim__step_bytes(e->rows));
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t position = rows[i].session->length + rows_before(rows, i);
        brim__session_note(rows[i].session, position, rows[i].token);
        step[brim__step_word(STEP_TOKEN, e->rows, i)] = (uint32_t)rows[i].token;
        step[brim__step_word(STEP_POSITION, e->rows, i)] = position;
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

brim_status brim__runner_logits(const float **out, brim_runner *r, brim__engine *e, uint32_t count)
{
    *out = r->logits;
    if (r->logits)
        return brim_executor_read(e->executor, r->logits, LLM_BUFFER_LOGITS, 0, 0,
                                  4 * (uint64_t)count * r->llm->config.vocab_size);
    *out = brim_executor_buffer(e->executor, LLM_BUFFER_LOGITS, 0);
    return BRIM_OK;
}

brim_status brim_runner_step(brim_runner *r, const brim_row *rows, uint32_t count,
                             const float **out_logits, size_t *out_stride)
{
    brim__planned plan;
    BRIM_TRY(brim__runner_plan(&plan, r, rows, count));
    BRIM_TRY(brim__runner_execute(r, &plan, rows, count));
    if (out_stride)
        *out_stride = r->llm->config.vocab_size;
    return out_logits ? brim__runner_logits(out_logits, r, plan.engine, plan.out_count) : BRIM_OK;
}
