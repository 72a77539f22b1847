/* generate.c: tokens one after another. Tokens are chained inside the program: step-end makes the
 * next step from what was sampled, and the host reads results from a ring as they come. What ran
 * past a stop that only the host could see is forgotten. */
#include "llm/runner.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/thread.h"

enum { DESC_FILLED = 0x47656e65, REPEAT_LAST = 64 };

brim_sampling brim_sampling_default(void)
{
    return (brim_sampling){.temperature = 0.8f,
                           .top_k = 40,
                           .top_p = 0.95f,
                           .min_p = 0.05f,
                           .repeat_penalty = 1,
                           .repeat_last = REPEAT_LAST};
}

brim_generate_desc brim_generate_desc_default(void)
{
    return (brim_generate_desc){.sampling = brim_sampling_default(), .do_not_set = DESC_FILLED};
}

void brim_generate_ends(brim_generate_desc *desc, const brim_tokenizer *tokenizer)
{
    uint32_t size = brim_tokenizer_size(tokenizer);
    desc->end_count = 0;
    for (uint32_t id = 0; id < size && desc->end_count < ENDS_MAX; id++)
        if (brim_tokenizer_ends(tokenizer, (brim_token)id))
            desc->ends[desc->end_count++] = (brim_token)id;
}

/* ---- parameters ---- */

static brim_status check_sampling(const brim_sampling *s)
{
    BRIM_FAIL_IF(!(s->temperature >= 0 && s->temperature <= 100), USAGE, "sampling.temperature",
                 "temperature %g; 0 to 100 are possible", (double)s->temperature);
    BRIM_FAIL_IF(!(s->top_p > 0 && s->top_p <= 1), USAGE, "sampling.top_p",
                 "top-p %g; above 0 and at most 1", (double)s->top_p);
    BRIM_FAIL_IF(!(s->min_p >= 0 && s->min_p <= 1), USAGE, "sampling.min_p",
                 "min-p %g; 0 to 1 are possible", (double)s->min_p);
    BRIM_FAIL_IF(!(s->repeat_penalty > 0 && s->repeat_penalty <= 10), USAGE, "sampling.penalty",
                 "repeat penalty %g; above 0 and at most 10", (double)s->repeat_penalty);
    return BRIM_OK;
}

static brim_status set_params(brim_session *session, const brim_generate_desc *desc,
                              uint32_t max_position)
{
    const brim_sampling *s = &desc->sampling;
    BRIM_FAIL_IF(desc->do_not_set != DESC_FILLED, USAGE, "generate.desc",
                 "the description was not made by brim_generate_desc_default()");
    BRIM_FAIL_IF(desc->end_count > ENDS_MAX, USAGE, "generate.ends", "%u end tokens; at most %d",
                 desc->end_count, ENDS_MAX);
    BRIM_TRY(check_sampling(s));
    *brim__runner_params(session->runner, session->slot) = (brim__sample_params){
        .temperature = s->temperature,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .penalty = s->repeat_penalty,
        .top_k = s->top_k,
        .penalty_last = s->repeat_last,
        .seed = s->seed,
        .max_position = max_position,
        .flags = desc->hash_logits && !brim__runner_hashes(session->runner),
    };
    uint32_t *ends = session->runner->shared[LLM_BUFFER_ENDS];
    ends[0] = desc->end_count;
    for (uint32_t i = 0; i < desc->end_count; i++)
        ends[1 + i] = (uint32_t)desc->ends[i];
    return BRIM_OK;
}

static void set_mail(brim__engine *engine, const brim_session *session, uint32_t value)
{
    _Atomic uint32_t *mail = brim_executor_buffer(engine->executor, LLM_BUFFER_MAIL, 0);
    if (mail)
        atomic_store(&mail[session->slot], value);
}

/* ---- a chain of steps ---- */

/* Starts a chain on rows that each want logits. *limit: steps at most; it is lowered to what one
 * engine may chain. */
static brim_status start_chain(brim__planned *plan, brim_runner *r, const brim_row *rows,
                               uint32_t count, uint32_t *limit)
{
    *limit = brim__runner_chain_max(r, rows, count, *limit);
    for (uint32_t i = 0; i < count; i++)
        BRIM_TRY(brim__session_reserve(rows[i].session, rows[i].session->length + *limit));
    BRIM_TRY(brim__runner_plan(plan, r, rows, count));
    plan->step[STEP_CHAIN] = 1;
    /* A cancelled step fills nothing: what an earlier chain left must not look like its result. */
    brim__sampled *ring = brim_executor_buffer(plan->engine->executor, LLM_BUFFER_RESULT, 0);
    for (uint32_t n = 0; n < RESULT_RING; n++)
        ring[(size_t)n * (plan->engine->rows + 1)].token = 0;
    for (uint32_t i = 0; i < count; i++)
        set_mail(plan->engine, rows[i].session, 0);
    return brim_executor_start(plan->engine->executor, *limit);
}

/* ---- one session ---- */

typedef struct generation {
    brim_session *session;
    const brim_generate_desc *desc;
    brim_generate_stats *stats;
    bool stopped; /* by the caller or an end token */
    brim_token last;
} generation;

/* Takes a result; says whether generation goes on. */
static bool take_token(generation *g, const brim__sampled *sampled)
{
    brim_generated generated = {(brim_token)sampled->token, sampled->ended == 1, sampled->hash};
    g->last = generated.token;
    g->stats->tokens++;
    g->stats->ended = generated.ended;
    if (g->desc->hash_logits)
        g->stats->logits_hash =
            brim__hash_mix(g->stats->logits_hash ^ sampled->hash, g->stats->tokens);
    bool wanted = !g->desc->token || g->desc->token(&generated, g->desc->user);
    g->stopped = !wanted || generated.ended;
    return !g->stopped;
}

/* The result of a step; of one whose logits are hashed here, which is the only one that runs, their
 * hash too. */
static brim_status take_result(brim__sampled *out, generation *g, const brim__planned *plan,
                               uint32_t entry)
{
    brim_runner *r = g->session->runner;
    *out = brim__runner_result(r, plan->engine, entry)[1];
    if (!g->desc->hash_logits || !brim__runner_hashes(r))
        return BRIM_OK;
    const float *logits;
    BRIM_TRY(brim_executor_wait(plan->engine->executor));
    BRIM_TRY(brim__runner_logits(&logits, r, plan->engine, 1));
    out->hash = brim__hash64(logits, 4 * (size_t)r->llm->config.vocab_size, 0);
    return BRIM_OK;
}

/* The prompt's last token is evaluated with its logits; the first token is sampled from them. */
static brim_status first_token(generation *g, const brim_token *prompt, uint32_t count)
{
    brim_session *s = g->session;
    brim_runner *r = s->runner;
    uint64_t started = brim__now_ns();
    uint32_t chunk = r->engines[ENGINE_PREFILL].rows, last = (count - 1) % chunk + 1;
    BRIM_TRY(brim_session_feed(s, prompt, count - last, NULL, NULL));
    brim_row *rows;
    BRIM_CALLOC(r->ctx, rows, last);
    for (uint32_t i = 0; i < last; i++)
        rows[i] = (brim_row){s, prompt[count - last + i], i == last - 1};
    brim__planned plan;
    brim_status status = brim__runner_plan(&plan, r, rows, last);
    if (status == BRIM_OK)
        status = brim__runner_execute(r, &plan, rows, last);
    brim__free(r->ctx, rows);
    BRIM_TRY(status);
    g->stats->prefill_ns = g->stats->first_token_ns = brim__now_ns() - started;
    brim__sampled result;
    BRIM_TRY(take_result(&result, g, &plan, 0));
    take_token(g, &result);
    return BRIM_OK;
}

/* A chain of up to `limit` steps; results are taken as they come. */
static brim_status chain(generation *g, uint32_t limit)
{
    brim_session *s = g->session;
    brim_runner *r = s->runner;
    brim_row row = {s, g->last, true};
    brim__planned plan;
    if (g->desc->hash_logits && brim__runner_hashes(r))
        limit = 1;
    BRIM_TRY(start_chain(&plan, r, &row, 1, &limit));
    brim_executor *x = plan.engine->executor;
    uint64_t first = brim_executor_epoch(x);
    uint32_t taken = 0, start_length = s->length;
    brim_status taking = BRIM_OK;
    while (taken < limit && brim_executor_wait_epoch(x, first + taken, 0)) {
        brim__sampled result;
        if (brim__runner_result(r, plan.engine, taken)->token != 1)
            break; /* a cancelled step fills nothing */
        taking = take_result(&result, g, &plan, taken);
        if (taking != BRIM_OK)
            break;
        brim__session_note(s, start_length + taken, g->last);
        taken++;
        s->length++;
        if (!take_token(g, &result)) {
            set_mail(plan.engine, s, 1);
            break;
        }
    }
    brim_status status = brim_executor_wait(x);
    status = taking != BRIM_OK ? taking : status;
    s->length = start_length + taken;
    return g->stopped ? BRIM_OK : status;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

brim_status brim_session_generate(brim_generate_stats *out, brim_session *session,
                                  const brim_token *prompt, uint32_t prompt_count,
                                  const brim_generate_desc *desc)
{
    brim_runner *r = session->runner;
    *out = (brim_generate_stats){.prompt_tokens = prompt_count};
    BRIM_FAIL_IF(prompt_count == 0, USAGE, "generate.prompt",
                 "there is no prompt: at least one token is needed");
    atomic_store(&r->cancelled, 0);
    BRIM_TRY(set_params(session, desc, r->desc.context));
    generation g = {session, desc, out, false, BRIM_TOKEN_NONE};
    BRIM_TRY(first_token(&g, prompt, prompt_count));
    uint32_t most = desc->max_tokens ? desc->max_tokens : UINT32_MAX;
    uint64_t started = brim__now_ns();
    brim_status status = BRIM_OK;
    while (!g.stopped && out->tokens < most && session->length < r->desc.context &&
           status == BRIM_OK) {
        BRIM_FAIL_IF(atomic_load(&r->cancelled), CANCELLED, "run.cancelled",
                     "the run was cancelled");
        uint32_t limit = smaller(most - out->tokens, r->desc.context - session->length);
        uint32_t free_positions =
            (r->free_block_count + session->block_count) * BRIM__KV_BLOCK - session->length;
        limit = smaller(smaller(limit, RESULT_RING), free_positions ? free_positions : 1);
        status = chain(&g, limit);
    }
    out->decode_ns = brim__now_ns() - started;
    out->full = !g.stopped && session->length >= r->desc.context;
    brim_session_truncate(session, session->length); /* blocks granted ahead go back */
    return status;
}

/* ---- several sessions ---- */

brim_status brim_runner_decode(brim_token *out, uint32_t *out_steps, brim_runner *r,
                               brim_session *const *sessions, const brim_token *tokens,
                               uint32_t count, uint32_t steps, const brim_generate_desc *desc)
{
    *out_steps = 0;
    BRIM_FAIL_IF(count == 0 || count > BRIM_DECODE_ROWS, USAGE, "runner.rows",
                 "%u sessions in a step; 1 to %d are possible", count, BRIM_DECODE_ROWS);
    brim_row rows[BRIM_DECODE_ROWS];
    for (uint32_t i = 0; i < count; i++) {
        BRIM_TRY(set_params(sessions[i], desc, r->desc.context));
        rows[i] = (brim_row){sessions[i], tokens[i], true};
    }
    bool ended = false;
    while (*out_steps < steps && !ended) {
        brim__planned plan;
        uint32_t limit = smaller(steps - *out_steps, RESULT_RING);
        BRIM_TRY(start_chain(&plan, r, rows, count, &limit));
        uint64_t first = brim_executor_epoch(plan.engine->executor);
        BRIM_TRY(brim_executor_wait(plan.engine->executor));
        uint32_t made = (uint32_t)(brim_executor_epoch(plan.engine->executor) - first);
        for (uint32_t n = 0; n < made; n++, ++*out_steps)
            for (uint32_t i = 0; i < count; i++) {
                const brim__sampled *result = brim__runner_result(r, plan.engine, n) + 1 + i;
                brim__session_note(sessions[i], sessions[i]->length + n, rows[i].token);
                out[(size_t)*out_steps * count + i] = rows[i].token = (brim_token)result->token;
                ended |= result->ended != 0;
            }
        for (uint32_t i = 0; i < count; i++)
            sessions[i]->length += made;
    }
    return BRIM_OK;
}
