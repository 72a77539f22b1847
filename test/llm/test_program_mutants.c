/* The programs that models become: they pass the check; a mutant of one is flagged, or gives the
 * same bits in every order of the reference executor. $BRIM_MUTANTS and $BRIM_ORDERS ask for more
 * of them than an ordinary run tries. */
#include "llm/llm_fixture.h"

#include "base/hash.h"
#include "base/rng.h"
#include "program/executor.h"
#include "program/ops_llm.h"

enum { CONTEXT = 384, PREFILL_ROWS = 8, MUTANTS = 300, ORDERS = 12 };

typedef struct draws {
    uint64_t seed, n;
} draws;

static uint32_t draw(draws *d, size_t bound)
{
    return (uint32_t)brim__random_below(d->seed, 5, d->n++, bound);
}

static uint64_t asked(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* ---- mutants ---- */

static const char *const kinds[] = {"wait dropped",   "count lowered",      "region moved",
                                    "signal swapped", "tile run shortened", "region shortened"};
enum { KIND_COUNT = 6 };

static bool try_mutation(brim_program *p, draws *d, uint32_t kind)
{
    brim_instruction *in = &p->instructions[draw(d, p->instruction_count)];
    brim_instruction *other = &p->instructions[draw(d, p->instruction_count)];
    brim_access *a = in->access_count ? &in->accesses[draw(d, in->access_count)] : NULL;
    brim_wait *w = in->wait_count ? &in->waits[draw(d, in->wait_count)] : NULL;
    uint32_t counter;
    switch (kind) {
    case 0:
        if (!w)
            return false;
        *w = in->waits[--in->wait_count];
        return true;
    case 1:
        if (!w || w->value < 2)
            return false;
        w->value -= 1 + draw(d, w->value - 1);
        return true;
    case 2:
        if (!a)
            return false;
        a->offset += draw(d, 2) || a->offset < 64 ? 4u << draw(d, 6)
                                                  : (uint64_t) - (int64_t)(4u << draw(d, 5));
        return true;
    case 3:
        if (!in->signal_count || !other->signal_count || in->signals[0] == other->signals[0])
            return false;
        counter = in->signals[0];
        in->signals[0] = other->signals[0];
        other->signals[0] = counter;
        return true;
    case 4:
        if (in->runs[0].tensor == BRIM_NONE || in->runs[0].count < 2)
            return false;
        in->runs[0].count -= 1 + draw(d, in->runs[0].count - 1);
        return true;
    default:
        if (!a || (a->count == 1 && a->size <= 4))
            return false;
        if (a->count > 1)
            a->count--;
        else
            a->size -= 4;
        return true;
    }
}

static void recount(brim_program *p)
{
    for (size_t k = 0; k < p->counter_count; k++)
        p->counters[k].total = 0;
    for (size_t i = 0; i < p->instruction_count; i++)
        for (unsigned s = 0; s < p->instructions[i].signal_count; s++)
            p->counters[p->instructions[i].signals[s]].total++;
}

/* ---- runs ---- */

/* A step of as many rows as there can be, one sequence, every row's logits wanted and hashed. */
static void put_inputs(brim_executor *x, uint32_t rows)
{
    const brim_program *p = x->program;
    uint32_t *step = brim_executor_buffer(x, brim_program_buffer_find(p, "step"), 0);
    memset(step, 0, brim__step_bytes(rows));
    step[STEP_ROWS] = step[STEP_OUT] = rows;
    for (uint32_t i = 0; i < rows; i++) {
        step[brim__step_word(STEP_TOKEN, rows, i)] = 7 * i + 3;
        step[brim__step_word(STEP_POSITION, rows, i)] = i;
        step[brim__step_word(STEP_OUT_ROW, rows, i)] = i;
    }
    uint32_t *tables = brim_executor_buffer(x, brim_program_buffer_find(p, "tables"), 0);
    for (uint32_t i = 0; i < CONTEXT / BRIM__KV_BLOCK; i++)
        tables[i] = i;
    brim__sample_params *params = brim_executor_buffer(x, brim_program_buffer_find(p, "params"), 0);
    memset(params, 0, sizeof *params);
    params->flags = 1;
    params->max_position = CONTEXT;
}

typedef struct fixture_program {
    const fixture *f;
    brim_op_table *ops;
    char *text;
    size_t size;
    uint32_t rows;
    brim_executor *weights; /* of an unchanged program: its tensors are everybody's */
    brim_program *unchanged;
} fixture_program;

/* 0: stuck. */
static uint64_t run_hash(const fixture_program *fp, const brim_program *p, uint64_t order)
{
    brim_executor_desc desc = brim_executor_desc_default();
    desc.kind = BRIM_EXECUTOR_REFERENCE;
    desc.seed = order;
    brim_executor *x;
    assert_ok(brim_executor_create(&x, fp->f->ctx, p, &desc));
    for (uint32_t t = 0; t < p->tensor_count; t++)
        assert_ok(brim_executor_bind_tensor(x, t, fp->weights->tiles[t]));
    assert_ok(brim_executor_fill(x, 1));
    put_inputs(x, fp->rows);
    uint64_t hash = 0;
    if (brim_executor_run(x, 1) == BRIM_OK) {
        hash = 1;
        for (uint32_t b = 0; b < p->buffer_count; b++)
            if (p->buffers[b].role == BRIM_BUFFER_STATE || p->buffers[b].role == BRIM_BUFFER_OUTPUT)
                hash = brim__hash64(x->memory[b], p->buffers[b].size, hash);
    }
    brim_executor_destroy(x);
    return hash;
}

static void open_program(fixture_program *fp, const fixture *f, const brim_program *p,
                         uint32_t rows)
{
    *fp = (fixture_program){.f = f, .rows = rows};
    assert_ok(brim_op_table_create(&fp->ops, f->ctx));
    assert_ok(brim_program_dump(&fp->text, &fp->size, p, f->ctx));
    assert_ok(brim_program_parse(&fp->unchanged, f->ctx, fp->ops, fp->text, fp->size));
    assert_ok(brim_executor_create(&fp->weights, f->ctx, fp->unchanged, NULL));
    assert_ok(brim_executor_fill(fp->weights, 1));
}

static void close_program(fixture_program *fp)
{
    brim_executor_destroy(fp->weights);
    brim_program_destroy(fp->unchanged);
    brim_free(fp->f->ctx, fp->text);
    brim_op_table_destroy(fp->ops);
}

/* ---- tests ---- */

static brim_runner *create_runner(const fixture *f, brim_numerics numerics, uint32_t lanes)
{
    brim_runner_desc desc = brim_runner_desc_default();
    desc.lanes = lanes;
    desc.prefill_rows = PREFILL_ROWS;
    desc.context = CONTEXT;
    desc.numerics = numerics;
    desc.skip_check = true;
    brim_runner *runner;
    assert_ok(brim_runner_create(&runner, f->ctx, f->llm, &desc));
    return runner;
}

static void model_programs_pass_the_check(void **state)
{
    static const char *const shapes[] = {"smollm2-135m", "qwen3-0.6b", "llama-3.2-1b"};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        fixture f;
        fixture_make(&f, shapes[s], "Q4_0", 2);
        for (uint32_t lanes = 1; lanes <= 4; lanes++) {
            brim_runner *runner =
                create_runner(&f, lanes & 1 ? BRIM_NUMERICS_DEFAULT : BRIM_NUMERICS_EXACT, lanes);
            assert_ok(brim_program_check(brim_runner_program(runner, false), f.ctx, 1, NULL, NULL));
            assert_ok(brim_program_check(brim_runner_program(runner, true), f.ctx, 1, NULL, NULL));
            brim_runner_destroy(runner);
        }
        fixture_close(&f);
    }
}

static void check_mutants(const fixture_program *fp, uint64_t first_seed, uint64_t mutants,
                          uint64_t orders)
{
    uint32_t flagged[KIND_COUNT] = {0}, passed[KIND_COUNT] = {0};
    for (uint64_t seed = first_seed; seed < first_seed + mutants; seed++) {
        draws d = {seed, 0};
        brim_program *p;
        assert_ok(brim_program_parse(&p, fp->f->ctx, fp->ops, fp->text, fp->size));
        uint32_t kind = draw(&d, KIND_COUNT);
        while (!try_mutation(p, &d, kind))
            continue;
        recount(p);
        if (brim_program_check(p, fp->f->ctx, 1, NULL, NULL) != BRIM_OK) {
            flagged[kind]++;
        } else {
            passed[kind]++;
            uint64_t wanted = run_hash(fp, p, 0);
            assert_true(wanted != 0);
            for (uint64_t order = 1; order < orders; order++)
                if (run_hash(fp, p, order) != wanted)
                    fail_msg("mutant %llu (%s) passes the check, and order %llu gives other bits",
                             (unsigned long long)seed, kinds[kind], (unsigned long long)order);
        }
        brim_program_destroy(p);
    }
    for (uint32_t k = 0; k < KIND_COUNT; k++)
        print_message("  %-20s %4u flagged, %3u gave one result in %llu orders\n", kinds[k],
                      flagged[k], passed[k], (unsigned long long)orders);
}

static void mutants_of_model_programs_are_flagged_or_give_the_same_bits(void **state)
{
    uint64_t mutants = asked("BRIM_MUTANTS", MUTANTS), orders = asked("BRIM_ORDERS", ORDERS);
    fixture f;
    fixture_make(&f, "smollm2-135m", "Q4_1", 2);
    brim_runner *runner = create_runner(&f, BRIM_NUMERICS_DEFAULT, 2);
    for (int prefill = 0; prefill < 2; prefill++) {
        fixture_program fp;
        const brim_program *p = brim_runner_program(runner, prefill);
        print_message("%s, %u instructions:\n", brim_program_name(p),
                      brim_program_instruction_count(p));
        open_program(&fp, &f, p, prefill ? PREFILL_ROWS : BRIM_DECODE_ROWS);
        check_mutants(&fp, prefill ? 1u << 20 : 0, mutants / 2, orders);
        close_program(&fp);
    }
    brim_runner_destroy(runner);
    fixture_close(&f);
}

/* The oracle of the test above can see a wrong order: a program whose waits are all dropped gives
 * other bits in some order. */
static void dropped_waits_change_the_bits_in_some_order(void **state)
{
    fixture f;
    fixture_make(&f, "smollm2-135m", "Q4_1", 2);
    brim_runner *runner = create_runner(&f, BRIM_NUMERICS_DEFAULT, 2);
    fixture_program fp;
    open_program(&fp, &f, brim_runner_program(runner, false), BRIM_DECODE_ROWS);
    uint64_t right = run_hash(&fp, fp.unchanged, 0);
    assert_true(right != 0 && run_hash(&fp, fp.unchanged, 1) == right);
    brim_program *p;
    assert_ok(brim_program_parse(&p, f.ctx, fp.ops, fp.text, fp.size));
    for (size_t i = 0; i < p->instruction_count; i++)
        if (i != p->step_end)
            p->instructions[i].wait_count = 0;
    uint32_t different = 0;
    for (uint64_t order = 0; order < 4; order++)
        different += run_hash(&fp, p, order) != right;
    assert_true(different > 0);
    brim_program_destroy(p);
    close_program(&fp);
    brim_runner_destroy(runner);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_programs_pass_the_check),
        cmocka_unit_test(dropped_waits_change_the_bits_in_some_order),
        cmocka_unit_test(mutants_of_model_programs_are_flagged_or_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
