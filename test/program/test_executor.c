/* test_executor.c: random programs of lane lists, queues, counters, packets, tables and parity
 * buffers, on lanes (threads) and on the reference in many orders: the same bytes after many
 * epochs. */
#include "program/mix_program.h"

#include "base/hash.h"
#include "base/thread.h"

enum { LAYERS = 12, WIDTH = 6, CELL = 96, EPOCHS = 40 };

/* A program of LAYERS stages of WIDTH instructions. Each reads two cells of the stage before and
 * writes one; some stages pass their cells on as packets (then nobody waits for a counter), some
 * stand in a queue, some in the lanes' own lists. Step-end folds the last stage into the state and
 * the next input. */
static void random_program(mix *m, uint64_t seed, uint32_t lanes)
{
    *m = mix_begin(lanes);
    uint32_t input = mix_buffer(m, "input", 2 * CELL, BRIM_BUFFER_INPUT, true);
    uint32_t table = mix_buffer(m, "table", 4 * WIDTH, BRIM_BUFFER_CONST, false);
    uint32_t state = mix_buffer(m, "state", CELL, BRIM_BUFFER_STATE, false);
    uint32_t all =
        mix_counter(m, "all"); /* packets alone do not order everything before step-end */
    uint32_t draws = 0, before = 0, before_counter = BRIM_NONE;
    bool before_packet = false;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        char name[32];
        uint32_t kind = (uint32_t)brim__random_below(seed, 1, draws++,
                                                     4); /* 0 list, 1 queue, 2 packets, 3 table */
        snprintf(name, sizeof name, "cells.%u", layer);
        /* Where a table scatters to is not known to the check, so it can't see such scratch as
         * written. */
        brim_buffer_role role = kind == 3 ? BRIM_BUFFER_STATE : BRIM_BUFFER_SCRATCH;
        uint32_t cells = mix_buffer(m, name, CELL * WIDTH, role, kind == 2);
        snprintf(name, sizeof name, "done.%u", layer);
        uint32_t counter = mix_counter(m, name);
        snprintf(name, sizeof name, "queue.%u", layer);
        uint32_t queue = kind == 1 ? mix_queue(m, name) : 0;
        for (uint32_t i = 0; i < WIDTH; i++) {
            brim_instruction in = brim_instruction_make(m->op);
            if (layer == 0)
                mix_access(&in, BRIM_READ, input, 0, 2 * CELL);
            for (uint32_t n = 0; layer > 0 && n < 2; n++) {
                uint32_t from = (uint32_t)brim__random_below(seed, 1, draws++, WIDTH);
                mix_access(&in, BRIM_READ, before, from * CELL, CELL)->flags =
                    before_packet ? BRIM_ACCESS_PACKET : 0;
            }
            if (layer > 0 && !before_packet)
                in.waits[in.wait_count++] = (brim_wait){before_counter, WIDTH};
            brim_access *out = mix_access(&in, BRIM_WRITE, cells, kind == 3 ? 0 : i * CELL, CELL);
            out->flags = kind == 2 ? BRIM_ACCESS_PACKET : 0;
            if (kind == 3) {
                out->flags = BRIM_ACCESS_INJECTIVE;
                out->stride = CELL;
                out->table_buffer = table;
                out->table_offset = 4 * i;
                out->table_limit = WIDTH;
            }
            in.signals[in.signal_count++] = counter;
            in.signals[in.signal_count++] = all;
            if (kind == 1)
                assert_int_equal(brim_builder_piece(m->builder, queue, &in), BRIM_OK);
            else
                assert_int_equal(brim_builder_lane(m->builder, i % lanes, &in), BRIM_OK);
        }
        for (uint32_t l = 0; kind == 1 && l < lanes; l++)
            assert_int_equal(brim_builder_take(m->builder, l, queue), BRIM_OK);
        before = cells;
        before_counter = counter;
        before_packet = kind == 2;
    }
    brim_instruction end = brim_instruction_make(m->op_end);
    for (uint32_t i = 0; i < WIDTH; i++)
        mix_access(&end, BRIM_READ, before, i * CELL, CELL)->flags =
            before_packet ? BRIM_ACCESS_PACKET : 0;
    mix_access(&end, BRIM_WRITE, input, 0, 2 * CELL)->flags = BRIM_ACCESS_NEXT;
    mix_access(&end, BRIM_APPEND, state, 0, CELL);
    end.waits[end.wait_count++] = (brim_wait){all, LAYERS * WIDTH};
    assert_int_equal(brim_builder_lane(m->builder, 0, &end), BRIM_OK);
    assert_int_equal(brim_builder_finish(&m->program, m->builder), BRIM_OK);
}

static uint64_t run_program(mix *m, brim_executor_desc desc, brim_executor_stats *stats)
{
    brim_executor *x;
    assert_int_equal(brim_executor_create(&x, m->ctx, m->program, &desc), BRIM_OK);
    memset(brim_executor_buffer(x, 0, 0), 1, 2 * CELL);
    uint32_t *table = brim_executor_buffer(x, 1, 0);
    for (uint32_t i = 0; i < WIDTH; i++)
        table[i] = (i * 5 + 2) % WIDTH;
    if (brim_executor_run(x, EPOCHS) != BRIM_OK)
        fail_msg("%s", brim_last_message());
    assert_int_equal(brim_executor_epoch(x), EPOCHS);
    uint64_t hash = brim__hash64(brim_executor_buffer(x, 2, 0), CELL, 0);
    hash = brim__hash64(brim_executor_buffer(x, 0, EPOCHS), 2 * CELL, hash);
    if (stats)
        *stats = brim_executor_get_stats(x);
    brim_executor_destroy(x);
    return hash;
}

static void lanes_give_the_bytes_of_the_reference_in_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        uint64_t expected = 0;
        for (uint32_t lanes = 1; lanes <= 4; lanes++) {
            mix m;
            random_program(&m, seed, lanes);
            if (brim_program_check(m.program, m.ctx, 1, NULL, NULL) != BRIM_OK)
                fail_msg("%s", brim_last_message());
            brim_executor_desc desc = brim_executor_desc_default();
            desc.kind = BRIM_EXECUTOR_REFERENCE;
            desc.check_tables = true;
            for (desc.seed = 1; desc.seed <= 3; desc.seed++) {
                uint64_t hash = run_program(&m, desc, NULL);
                expected = expected ? expected : hash;
                assert_int_equal(hash, expected);
            }
            desc.kind = BRIM_EXECUTOR_CPU;
            desc.check_tables = false;
            assert_int_equal(run_program(&m, desc, NULL), expected);
            desc.redo_per_mille = 400;
            brim_executor_stats stats;
            assert_int_equal(run_program(&m, desc, &stats), expected);
            assert_int_equal(stats.instructions, (uint64_t)EPOCHS * (LAYERS * WIDTH + 1));
            mix_end(&m);
        }
    }
}

/* ---- a lane that is away ---- */

static _Atomic uint32_t slow_runs;

/* The first execution of the slow piece does not end before another one has begun (or 20 s have
 * passed). */
static void slow_body(const brim_op_env *env)
{
    if (atomic_fetch_add(&slow_runs, 1) == 0) {
        uint64_t until = brim__now_ns() + 20000000000u;
        while (atomic_load(&slow_runs) < 2 && brim__now_ns() < until)
            brim__cpu_pause();
    }
    *(uint32_t *)env->access[0] = 7;
}

static void end_body(const brim_op_env *env)
{
    ((uint32_t *)env->access[1])[0] = 0;
    ((uint32_t *)env->access[1])[1] = *(const uint32_t *)env->access[0] + 1;
}

static void an_overdue_piece_is_done_again_by_whoever_is_free(void **state)
{
    (void)state;
    mix m = mix_begin(2);
    uint32_t slow, end;
    assert_int_equal(
        brim_op_register(&slow, m.ops, &(brim_op_desc){.name = "slow", .body = slow_body}),
        BRIM_OK);
    assert_int_equal(
        brim_op_register(&end, m.ops,
                         &(brim_op_desc){.name = "end", .body = end_body, .step_end = true}),
        BRIM_OK);
    uint32_t cell = mix_buffer(&m, "cell", 4, BRIM_BUFFER_SCRATCH, false);
    uint32_t out = mix_buffer(&m, "out", 8, BRIM_BUFFER_OUTPUT, false);
    uint32_t done = mix_counter(&m, "done");
    brim_instruction in = brim_instruction_make(slow);
    mix_access(&in, BRIM_WRITE, cell, 0, 4);
    in.signals[in.signal_count++] = done;
    assert_int_equal(brim_builder_lane(m.builder, 1, &in), BRIM_OK);
    in = brim_instruction_make(end);
    mix_access(&in, BRIM_READ, cell, 0, 4);
    mix_access(&in, BRIM_WRITE, out, 0, 8);
    in.waits[in.wait_count++] = (brim_wait){done, 1};
    assert_int_equal(brim_builder_lane(m.builder, 0, &in), BRIM_OK);
    assert_int_equal(brim_builder_finish(&m.program, m.builder), BRIM_OK);
    brim_executor *x;
    atomic_store(&slow_runs, 0);
    assert_int_equal(brim_executor_create(&x, m.ctx, m.program, NULL), BRIM_OK);
    assert_int_equal(brim_executor_run(x, 1), BRIM_OK);
    assert_int_equal(((uint32_t *)brim_executor_buffer(x, out, 0))[1], 8);
    assert_int_equal(atomic_load(&slow_runs), 2);
    assert_int_equal(brim_executor_get_stats(x).redone, 1);
    brim_executor_destroy(x);
    mix_end(&m);
}

/* ---- the reference's debugger view ---- */

static void the_reference_stops_after_any_instruction(void **state)
{
    (void)state;
    mix m;
    random_program(&m, 1, 2);
    brim_executor_desc desc = brim_executor_desc_default();
    brim_executor *x;
    desc.kind = BRIM_EXECUTOR_REFERENCE;
    assert_int_equal(brim_executor_create(&x, m.ctx, m.program, &desc), BRIM_OK);
    memset(brim_executor_buffer(x, 0, 0), 1, 2 * CELL);
    for (uint32_t i = 0; i < WIDTH; i++)
        ((uint32_t *)brim_executor_buffer(x, 1, 0))[i] = i;
    uint32_t last, count = 0;
    bool ended = false;
    assert_int_equal(brim_executor_advance(&last, &ended, x, 1), BRIM_STATE);
    assert_int_equal(brim_executor_start(x, 1), BRIM_OK);
    while (!ended) {
        assert_int_equal(brim_executor_advance(&last, &ended, x, 1), BRIM_OK);
        assert_true(last < brim_program_instruction_count(m.program));
        count++;
    }
    assert_int_equal(count, brim_program_instruction_count(m.program));
    assert_int_equal(last, m.program->step_end);
    brim_executor_destroy(x);
    mix_end(&m);
}

static void a_stuck_program_says_who_waits_for_what(void **state)
{
    (void)state;
    mix m = mix_begin(1);
    uint32_t out = mix_buffer(&m, "out", 8, BRIM_BUFFER_OUTPUT, false);
    uint32_t never = mix_counter(&m, "never");
    brim_instruction in = brim_instruction_make(m.op_end);
    mix_access(&in, BRIM_WRITE, out, 0, 8);
    in.waits[in.wait_count++] = (brim_wait){never, 1};
    assert_int_equal(brim_builder_lane(m.builder, 0, &in), BRIM_OK);
    assert_int_equal(brim_builder_finish(&m.program, m.builder), BRIM_OK);
    brim_executor_desc desc = brim_executor_desc_default();
    brim_executor *x;
    desc.kind = BRIM_EXECUTOR_REFERENCE;
    assert_int_equal(brim_executor_create(&x, m.ctx, m.program, &desc), BRIM_OK);
    assert_int_equal(brim_executor_run(x, 1), BRIM_REFUSED);
    assert_string_equal(brim_last_id(), "run.stuck");
    assert_non_null(strstr(brim_last_message(), "never"));
    brim_executor_destroy(x);
    mix_end(&m);
}

static void a_table_entry_past_its_limit_ends_the_run_in_check_mode(void **state)
{
    (void)state;
    mix m = mix_begin(1);
    uint32_t table = mix_buffer(&m, "table", 8, BRIM_BUFFER_INPUT, false);
    uint32_t out = mix_buffer(&m, "out", 64, BRIM_BUFFER_OUTPUT, false);
    brim_instruction in = brim_instruction_make(m.op_end);
    brim_access *a = mix_access(&in, BRIM_WRITE, out, 0, 8);
    a->count = 2;
    a->stride = 8;
    a->flags = BRIM_ACCESS_INJECTIVE;
    a->table_buffer = table;
    a->table_limit = 8;
    assert_int_equal(brim_builder_lane(m.builder, 0, &in), BRIM_OK);
    assert_int_equal(brim_builder_finish(&m.program, m.builder), BRIM_OK);
    for (int kind = BRIM_EXECUTOR_REFERENCE; kind <= BRIM_EXECUTOR_CPU; kind++) {
        static const uint32_t bad[][2] = {{0, 8}, {3, 3}};
        brim_executor_desc desc = brim_executor_desc_default();
        brim_executor *x;
        desc.kind = (brim_executor_kind)kind;
        desc.check_tables = true;
        assert_int_equal(brim_executor_create(&x, m.ctx, m.program, &desc), BRIM_OK);
        for (int n = 0; n < 2; n++) {
            memcpy(brim_executor_buffer(x, table, 0), bad[n], 8);
            assert_int_equal(brim_executor_run(x, 1), BRIM_REFUSED);
            assert_string_equal(brim_last_id(), "run.table");
            if (kind == BRIM_EXECUTOR_REFERENCE)
                break; /* its epoch is not over: it stands at the instruction that failed */
        }
        brim_executor_destroy(x);
    }
    mix_end(&m);
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    mix m;
    random_program(&m, 1, 2);
    brim_executor *x;
    assert_int_equal(brim_executor_create(&x, m.ctx, m.program, NULL), BRIM_OK);
    for (uint32_t i = 0; i < WIDTH; i++)
        ((uint32_t *)brim_executor_buffer(x, 1, 0))[i] = i;
    assert_int_equal(brim_executor_run(x, 1), BRIM_OK);
    brim__memory_fail_at(m.ctx, 1); /* from here on every allocation fails */
    assert_int_equal(brim_executor_run(x, 20), BRIM_OK);
    assert_int_equal(brim__memory_fail_at(m.ctx, 0), 0);
    brim_executor_destroy(x);
    mix_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_give_the_bytes_of_the_reference_in_any_order),
        cmocka_unit_test(an_overdue_piece_is_done_again_by_whoever_is_free),
        cmocka_unit_test(the_reference_stops_after_any_instruction),
        cmocka_unit_test(a_stuck_program_says_who_waits_for_what),
        cmocka_unit_test(a_table_entry_past_its_limit_ends_the_run_in_check_mode),
        cmocka_unit_test(steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
