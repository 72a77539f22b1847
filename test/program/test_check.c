/* The check: each kind of finding on a small bad program, and its good twin without one. */
#include "mix_program.h"

#include "base/thread.h"

/* A two-instruction program (and step-end) that most tests spoil in one place: `a` on lane 0
 * writes x[0..64), `b` on lane 1 waits for it, reads x and writes y, step-end waits for b. */
typedef struct pair {
    mix m;
    uint32_t x, y, step, state, out, constant, done_a, done_b;
    brim_instruction a, b, end;
} pair;

static pair pair_begin(void)
{
    pair p = {.m = mix_begin(2)};
    p.x = mix_buffer(&p.m, "x", 256, BRIM_BUFFER_SCRATCH, false);
    p.y = mix_buffer(&p.m, "y", 64, BRIM_BUFFER_SCRATCH, false);
    p.step = mix_buffer(&p.m, "step", 64, BRIM_BUFFER_INPUT, true);
    p.state = mix_buffer(&p.m, "state", 256, BRIM_BUFFER_STATE, false);
    p.out = mix_buffer(&p.m, "out", 64, BRIM_BUFFER_OUTPUT, false);
    p.constant = mix_buffer(&p.m, "constant", 64, BRIM_BUFFER_CONST, false);
    p.done_a = mix_counter(&p.m, "a is done");
    p.done_b = mix_counter(&p.m, "b is done");
    p.a = brim_instruction_make(p.m.op);
    mix_access(&p.a, BRIM_WRITE, p.x, 0, 64);
    mix_signal(&p.a, p.done_a);
    p.b = brim_instruction_make(p.m.op);
    mix_wait(&p.b, p.done_a, 1);
    mix_access(&p.b, BRIM_READ, p.x, 0, 64);
    mix_access(&p.b, BRIM_WRITE, p.y, 0, 64);
    mix_signal(&p.b, p.done_b);
    p.end = brim_instruction_make(p.m.op_end);
    mix_wait(&p.end, p.done_b, 1);
    mix_access(&p.end, BRIM_WRITE, p.step, 0, 64)->flags = BRIM_ACCESS_NEXT;
    return p;
}

static void pair_finish(pair *p)
{
    mix_lane(&p->m, 0, &p->a);
    mix_lane(&p->m, 1, &p->b);
    mix_lane(&p->m, 0, &p->end);
    mix_finish(&p->m);
}

static void expect_good(mix *m)
{
    brim_status status = mix_check(m);
    if (status != BRIM_OK)
        print_error("%s: %s\n", brim_last_id(), brim_last_message());
    assert_int_equal(status, BRIM_OK);
    assert_int_equal(m->finding_count, 0);
    mix_end(m);
}

static void expect_finding(mix *m, const char *id)
{
    assert_int_equal(mix_check(m), BRIM_REFUSED);
    if (!mix_found(m, id)) {
        print_error("wanted %s\n", id);
        for (uint32_t i = 0; i < m->finding_count; i++)
            print_error("got    %s: %s\n", m->findings[i].id, m->findings[i].text);
    }
    assert_true(mix_found(m, id));
    mix_end(m);
}

/* ---- order ---- */

static void check_accepts_a_program_whose_reads_follow_their_writes(void **state)
{
    pair p = pair_begin();
    pair_finish(&p);
    expect_good(&p.m);
}

static void check_refuses_a_read_that_nothing_orders_after_its_write(void **state)
{
    pair p = pair_begin();
    p.b.wait_count = 0;
    mix_wait(&p.end, p.done_a, 1);
    pair_finish(&p);
    assert_int_equal(mix_check(&p.m), BRIM_REFUSED);
    assert_string_equal(p.m.findings[0].id, "check.race");
    assert_int_equal(p.m.findings[0].instruction, 0);
    assert_int_equal(p.m.findings[0].other, 1);
    assert_non_null(strstr(p.m.findings[0].text, "instruction 0"));
    assert_non_null(strstr(p.m.findings[0].text, "instruction 1"));
    assert_non_null(strstr(p.m.findings[0].text, "buffer x"));
    assert_string_equal(brim_last_id(), "check.race");
    mix_end(&p.m);
}

static void check_lets_one_lane_list_order_without_a_wait(void **state)
{
    pair p = pair_begin();
    p.b.wait_count = 0;
    mix_lane(&p.m, 1, &p.a);
    mix_lane(&p.m, 1, &p.b);
    mix_lane(&p.m, 0, &p.end);
    mix_finish(&p.m);
    expect_good(&p.m);
}

static void check_does_not_let_a_queue_order_its_pieces(void **state)
{
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        pair p = pair_begin();
        uint32_t queue = mix_queue(&p.m, "q");
        if (spoilt)
            p.b.wait_count = 0;
        mix_wait(&p.end, p.done_a, 1);
        mix_piece(&p.m, queue, &p.a);
        mix_piece(&p.m, queue, &p.b);
        mix_take(&p.m, 0, queue);
        mix_lane(&p.m, 0, &p.end);
        mix_finish(&p.m);
        if (spoilt)
            expect_finding(&p.m, "check.race");
        else
            expect_good(&p.m);
    }
}

static void check_does_not_let_a_queue_order_what_follows_it(void **state)
{
    pair p = pair_begin();
    uint32_t queue = mix_queue(&p.m, "q");
    p.b.wait_count = 0;
    mix_wait(&p.end, p.done_a, 1);
    mix_piece(&p.m, queue, &p.a);
    mix_take(&p.m, 0, queue);
    mix_lane(&p.m, 0, &p.b); /* a helper may still be at the piece */
    mix_lane(&p.m, 0, &p.end);
    mix_finish(&p.m);
    expect_finding(&p.m, "check.race");
}

/* Two writers signal one counter; a reader of both that waits for one of them only. */
static void check_wants_all_signals_of_writers_that_share_a_counter(void **state)
{
    for (uint32_t value = 1; value <= 2; value++) {
        pair p = pair_begin();
        brim_instruction second = brim_instruction_make(p.m.op);
        mix_access(&second, BRIM_WRITE, p.x, 64, 64);
        mix_signal(&second, p.done_a);
        p.b.waits[0].value = value;
        p.b.accesses[0].size = 128;
        mix_wait(&p.end, p.done_a, 2);
        mix_lane(&p.m, 0, &p.a);
        mix_lane(&p.m, 1, &second);
        mix_lane(&p.m, 1, &p.b);
        mix_lane(&p.m, 0, &p.end);
        mix_finish(&p.m);
        if (value == 2)
            expect_good(&p.m);
        else
            expect_finding(&p.m, "check.race");
    }
}

/* root, then two signallers after it: whoever waits for one signal is still after root. */
static void check_follows_a_partial_wait_to_what_all_signallers_share(void **state)
{
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        pair p = pair_begin();
        uint32_t either = mix_counter(&p.m, "either");
        brim_instruction one = brim_instruction_make(p.m.op), two = brim_instruction_make(p.m.op);
        mix_wait(&one, p.done_a, 1);
        if (!spoilt)
            mix_wait(&two, p.done_a, 1);
        mix_signal(&one, either);
        mix_signal(&two, either);
        p.b.waits[0] = (brim_wait){either, 1};
        mix_wait(&p.end, either, 2);
        uint32_t queue = mix_queue(&p.m, "q");
        mix_piece(&p.m, queue, &p.a);
        mix_piece(&p.m, queue, &one);
        mix_piece(&p.m, queue, &two);
        mix_piece(&p.m, queue, &p.b);
        mix_take(&p.m, 1, queue);
        mix_lane(&p.m, 0, &p.end);
        mix_finish(&p.m);
        if (spoilt)
            expect_finding(&p.m, "check.race");
        else
            expect_good(&p.m);
    }
}

/* ---- deadlock ---- */

static void check_refuses_a_wait_for_more_signals_than_there_are(void **state)
{
    pair p = pair_begin();
    p.b.waits[0].value = 2;
    pair_finish(&p);
    expect_finding(&p.m, "check.deadlock");
}

static void check_refuses_a_wait_for_no_signal(void **state)
{
    pair p = pair_begin();
    p.b.waits[0].value = 0;
    pair_finish(&p);
    expect_finding(&p.m, "check.wait");
}

static void check_names_the_instructions_that_wait_for_each_other(void **state)
{
    pair p = pair_begin();
    mix_wait(&p.a, p.done_b, 1);
    pair_finish(&p);
    assert_int_equal(mix_check(&p.m), BRIM_REFUSED);
    assert_string_equal(p.m.findings[0].id, "check.deadlock");
    assert_true(p.m.findings[0].instruction < 2 && p.m.findings[0].other < 2);
    assert_non_null(strstr(p.m.findings[0].text, "instruction 0"));
    assert_non_null(strstr(p.m.findings[0].text, "instruction 1"));
    mix_end(&p.m);
}

static void check_refuses_an_instruction_that_waits_for_itself(void **state)
{
    pair p = pair_begin();
    mix_wait(&p.b, p.done_b, 1);
    pair_finish(&p);
    expect_finding(&p.m, "check.deadlock");
}

static void check_refuses_a_piece_that_waits_for_a_later_one_of_its_queue(void **state)
{
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        pair p = pair_begin();
        uint32_t queue = mix_queue(&p.m, "q");
        mix_piece(&p.m, queue, spoilt ? &p.b : &p.a);
        mix_piece(&p.m, queue, spoilt ? &p.a : &p.b);
        mix_take(&p.m, 0, queue);
        mix_lane(&p.m, 0, &p.end);
        mix_finish(&p.m);
        if (spoilt)
            expect_finding(&p.m, "check.deadlock");
        else
            expect_good(&p.m);
    }
}

static void check_refuses_a_piece_that_waits_for_what_follows_its_queue(void **state)
{
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        pair p = pair_begin();
        uint32_t queue = mix_queue(&p.m, "q");
        mix_piece(&p.m, queue, &p.b);
        if (!spoilt)
            mix_lane(&p.m, 1, &p.a);
        mix_take(&p.m, 1, queue);
        if (spoilt)
            mix_lane(&p.m, 1, &p.a);
        mix_lane(&p.m, 0, &p.end);
        mix_finish(&p.m);
        if (spoilt)
            expect_finding(&p.m, "check.deadlock");
        else
            expect_good(&p.m);
    }
}

static void check_refuses_a_queue_that_no_lane_takes(void **state)
{
    pair p = pair_begin();
    uint32_t queue = mix_queue(&p.m, "q");
    mix_piece(&p.m, queue, &p.a);
    mix_lane(&p.m, 1, &p.b);
    mix_lane(&p.m, 0, &p.end);
    mix_finish(&p.m);
    expect_finding(&p.m, "check.queue");
}

static void check_refuses_a_lane_that_takes_a_queue_twice(void **state)
{
    pair p = pair_begin();
    uint32_t queue = mix_queue(&p.m, "q");
    mix_piece(&p.m, queue, &p.a);
    mix_take(&p.m, 1, queue);
    mix_lane(&p.m, 1, &p.b);
    mix_take(&p.m, 1, queue);
    mix_lane(&p.m, 0, &p.end);
    mix_finish(&p.m);
    expect_finding(&p.m, "check.queue");
}

/* ---- step-end ---- */

static void check_refuses_a_program_without_step_end(void **state)
{
    pair p = pair_begin();
    mix_lane(&p.m, 0, &p.a);
    mix_lane(&p.m, 1, &p.b);
    mix_finish(&p.m);
    expect_finding(&p.m, "check.step_end");
}

static void check_refuses_two_step_ends(void **state)
{
    pair p = pair_begin();
    pair_finish(&p); /* finished with one; another program has two */
    expect_good(&p.m);
    p = pair_begin();
    mix_lane(&p.m, 0, &p.a);
    mix_lane(&p.m, 1, &p.b);
    mix_lane(&p.m, 0, &p.end);
    mix_lane(&p.m, 1, &p.end);
    mix_finish(&p.m);
    expect_finding(&p.m, "check.step_end");
}

static void check_refuses_a_step_end_in_a_queue(void **state)
{
    pair p = pair_begin();
    uint32_t queue = mix_queue(&p.m, "q");
    mix_lane(&p.m, 0, &p.a);
    mix_lane(&p.m, 1, &p.b);
    mix_piece(&p.m, queue, &p.end);
    mix_take(&p.m, 0, queue);
    mix_finish(&p.m);
    expect_finding(&p.m, "check.step_end");
}

static void check_refuses_what_is_not_ordered_before_step_end(void **state)
{
    pair p = pair_begin();
    p.end.wait_count = 0;
    pair_finish(&p);
    expect_finding(&p.m, "check.step_end");
}

static void check_refuses_a_step_end_that_cannot_say_whether_to_go_on(void **state)
{
    pair p = pair_begin();
    p.end.access_count = 0;
    pair_finish(&p);
    expect_finding(&p.m, "check.step_end");
    p = pair_begin();
    p.end.accesses[0].size = 2;
    pair_finish(&p);
    expect_finding(&p.m, "check.step_end");
}

/* ---- bounds ---- */

static void spoil_offset(pair *p)
{
    p->b.accesses[0].offset = 193;
}
static void spoil_overflow(pair *p)
{
    p->b.accesses[0].offset = UINT64_MAX - 10;
}
static void spoil_size(pair *p)
{
    p->b.accesses[0].size = 0;
}
static void spoil_count(pair *p)
{
    p->b.accesses[0].count = 0;
}
static void spoil_stride(pair *p)
{
    p->b.accesses[0].count = 2, p->b.accesses[0].stride = 63;
}
static void spoil_stride_overflow(pair *p)
{
    p->b.accesses[0].count = 3, p->b.accesses[0].stride = UINT64_MAX / 2;
}
static void spoil_run_past_end(pair *p)
{
    p->b.accesses[0].count = 4, p->b.accesses[0].stride = 65;
}
static void spoil_flags(pair *p)
{
    p->b.accesses[0].flags = 8;
}
static void spoil_count_word(pair *p)
{
    p->b.accesses[0].count_buffer = p->step, p->b.accesses[0].count_offset = 64;
}
static void spoil_count_alignment(pair *p)
{
    p->b.accesses[0].count_buffer = p->step, p->b.accesses[0].count_offset = 2;
}
static void spoil_table(pair *p)
{
    p->b.accesses[0].table_buffer = p->step, p->b.accesses[0].table_offset = 64,
    p->b.accesses[0].table_limit = 1;
}
static void spoil_table_limit(pair *p)
{
    p->b.accesses[0].table_buffer = p->step;
}
static void spoil_table_reach(pair *p)
{
    p->b.accesses[0].table_buffer = p->step, p->b.accesses[0].table_limit = 5;
}
static void spoil_injective(pair *p)
{
    p->b.accesses[1].flags = BRIM_ACCESS_INJECTIVE;
}

static void check_refuses_every_way_out_of_bounds(void **state)
{
    void (*const spoil[])(pair *) = {
        spoil_offset,          spoil_overflow,  spoil_size,
        spoil_count,           spoil_stride,    spoil_run_past_end,
        spoil_stride_overflow, spoil_flags,     spoil_count_word,
        spoil_count_alignment, spoil_table,     spoil_table_limit,
        spoil_table_reach,     spoil_injective,
    };
    for (size_t i = 0; i < sizeof spoil / sizeof *spoil; i++) {
        pair p = pair_begin();
        spoil[i](&p);
        pair_finish(&p);
        print_message("spoil %zu\n", i);
        expect_finding(&p.m, "check.bounds");
    }
}

static void check_refuses_tile_runs_past_the_tensor(void **state)
{
    const struct {
        uint32_t first, count;
        bool good;
    } cases[] = {{0, 1, true},
                 {0, 0, false},
                 {0, 100000, false},
                 {UINT32_MAX, 2, false},
                 {100000, 1, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pair p = pair_begin();
        uint32_t tensor = 0;
        brim_tensor_desc desc = {.name = "w", .type = BRIM_DTYPE_Q8_0, .rows = 64, .cols = 64};
        assert_int_equal(brim_builder_tensor(&tensor, p.m.builder, &desc), BRIM_OK);
        p.b.runs[0] = (brim_tile_run){tensor, cases[i].first, cases[i].count};
        pair_finish(&p);
        if (cases[i].good)
            expect_good(&p.m);
        else
            expect_finding(&p.m, "check.bounds");
    }
}

/* ---- roles ---- */

static void expect_role(brim_access_kind kind, int which, bool end, uint32_t flags, const char *id)
{
    pair p = pair_begin();
    const uint32_t buffers[] = {p.y, p.step, p.state, p.out, p.constant};
    brim_instruction *in = end ? &p.end : &p.b;
    mix_access(in, kind, buffers[which], 0, 32)->flags = flags;
    if (which == 0)
        p.b.accesses[1].offset = 32, p.b.accesses[1].size = 32;
    pair_finish(&p);
    if (id)
        expect_finding(&p.m, id);
    else
        expect_good(&p.m);
}

static void check_keeps_the_roles_of_buffers(void **state)
{
    enum { SCRATCH, INPUT, STATE, OUTPUT, CONST };
    expect_role(BRIM_READ, CONST, false, 0, NULL);
    expect_role(BRIM_WRITE, CONST, false, 0, "check.role");
    expect_role(BRIM_APPEND, CONST, false, 0, "check.role");
    expect_role(BRIM_READ, INPUT, false, 0, NULL);
    expect_role(BRIM_WRITE, INPUT, false, 0, "check.role");
    expect_role(BRIM_WRITE, INPUT, true, 0, "check.role");
    expect_role(BRIM_READ, OUTPUT, false, 0, "check.role");
    expect_role(BRIM_WRITE, OUTPUT, false, 0, NULL);
    expect_role(BRIM_APPEND, OUTPUT, false, 0, "check.role");
    expect_role(BRIM_READ, STATE, false, 0, NULL);
    expect_role(BRIM_WRITE, STATE, false, 0, NULL);
    expect_role(BRIM_APPEND, STATE, false, 0, NULL);
    expect_role(BRIM_WRITE, SCRATCH, false, 0, NULL);
    expect_role(BRIM_APPEND, SCRATCH, false, 0, "check.role");
}

static void check_keeps_the_next_epoch_for_step_end(void **state)
{
    enum { SCRATCH, INPUT, STATE };
    expect_role(BRIM_WRITE, INPUT, false, BRIM_ACCESS_NEXT, "check.next");
    expect_role(BRIM_WRITE, STATE, true, BRIM_ACCESS_NEXT, "check.next"); /* no parity */
    expect_role(BRIM_WRITE, SCRATCH, true, BRIM_ACCESS_NEXT, "check.next");
}

/* ---- publish once, redo ---- */

static void check_refuses_an_output_byte_written_twice_even_in_order(void **state)
{
    for (uint64_t offset = 31; offset <= 32; offset++) {
        pair p = pair_begin();
        mix_access(&p.a, BRIM_WRITE, p.out, 0, 32);
        mix_access(&p.b, BRIM_WRITE, p.out, offset, 32);
        pair_finish(&p);
        if (offset == 32)
            expect_good(&p.m);
        else
            expect_finding(&p.m, "check.race");
    }
}

/* a writes x, b reads it and writes y, c writes x again, and d reads that. */
static void check_lets_scratch_be_used_again_in_order(void **state)
{
    for (int spoilt = 0; spoilt < 3; spoilt++) {
        pair p = pair_begin();
        uint32_t again = mix_counter(&p.m, "again"), last = mix_counter(&p.m, "last");
        brim_instruction c = brim_instruction_make(p.m.op), d = brim_instruction_make(p.m.op);
        mix_wait(&c, spoilt == 1 ? p.done_a : p.done_b, 1); /* 1: b may still be reading */
        mix_access(&c, BRIM_WRITE, p.x, 0, 64);
        mix_signal(&c, again);
        mix_wait(&d, spoilt == 2 ? p.done_b : again, 1); /* 2: d may come before c */
        mix_access(&d, BRIM_READ, p.x, 0, 64);
        mix_signal(&d, last);
        mix_wait(&p.end, last, 1);
        mix_wait(&p.end, again, 1);
        uint32_t queue = mix_queue(&p.m, "q");
        mix_piece(&p.m, queue, &p.a);
        mix_piece(&p.m, queue, &p.b);
        mix_piece(&p.m, queue, &c);
        mix_piece(&p.m, queue, &d);
        mix_take(&p.m, 0, queue);
        mix_lane(&p.m, 0, &p.end);
        mix_finish(&p.m);
        if (spoilt)
            expect_finding(&p.m, "check.race");
        else
            expect_good(&p.m);
    }
}

/* Only what is ordered before a read can have written it. */
static void check_does_not_count_later_writes_as_written(void **state)
{
    pair p = pair_begin();
    brim_instruction c = brim_instruction_make(p.m.op);
    mix_wait(&c, p.done_b, 1);
    mix_access(&c, BRIM_WRITE, p.x, 0, 128);
    mix_lane(&p.m, 0, &p.a);
    p.b.accesses[0].size = 128;
    mix_lane(&p.m, 1, &p.b);
    mix_lane(&p.m, 0, &c);
    mix_lane(&p.m, 0, &p.end);
    mix_finish(&p.m);
    assert_int_equal(mix_check(&p.m), BRIM_REFUSED);
    assert_int_equal(p.m.finding_count, 1);
    assert_string_equal(p.m.findings[0].id, "check.uninitialised");
    assert_int_equal(p.m.findings[0].instruction, 1);
    assert_int_equal(p.m.findings[0].other, 2);
    assert_non_null(strstr(p.m.findings[0].text, "byte 64"));
    mix_end(&p.m);
}

static void check_lets_state_be_written_again_in_order(void **state)
{
    pair p = pair_begin();
    mix_access(&p.a, BRIM_WRITE, p.state, 0, 64);
    mix_access(&p.b, BRIM_APPEND, p.state, 0, 64);
    pair_finish(&p);
    expect_good(&p.m);
}

static void check_refuses_an_instruction_that_writes_what_it_reads(void **state)
{
    pair p = pair_begin();
    mix_access(&p.b, BRIM_READ, p.state, 0, 64);
    mix_access(&p.b, BRIM_WRITE, p.state, 32, 64);
    pair_finish(&p);
    expect_finding(&p.m, "check.in_place");
}

static void check_refuses_a_read_that_is_ordered_before_its_write(void **state)
{
    pair p = pair_begin();
    p.a.signal_count = 0, p.b.wait_count = 0;
    mix_wait(&p.a, p.done_b, 1);
    mix_lane(&p.m, 1, &p.b);
    mix_lane(&p.m, 0, &p.a);
    mix_lane(&p.m, 0, &p.end);
    mix_finish(&p.m);
    expect_finding(&p.m, "check.uninitialised");
}

/* ---- what is read has been written ---- */

static void check_refuses_a_read_of_one_byte_that_nobody_writes(void **state)
{
    pair p = pair_begin();
    p.b.accesses[0].size = 65;
    pair_finish(&p);
    assert_int_equal(mix_check(&p.m), BRIM_REFUSED);
    assert_string_equal(p.m.findings[0].id, "check.uninitialised");
    assert_int_equal(p.m.findings[0].instruction, 1);
    assert_non_null(strstr(p.m.findings[0].text, "byte 64 of buffer x"));
    mix_end(&p.m);
}

/* The writer brings rows 0, 2, 4 ..., another one rows 1, 3, 5 ..., as long as they are less than
 * the count word; the reader reads the rows less than it. */
static void check_follows_counted_rows(void **state)
{
    for (int spoilt = 0; spoilt < 4; spoilt++) {
        pair p = pair_begin();
        brim_instruction second = brim_instruction_make(p.m.op);
        brim_access *even = &p.a.accesses[0], *odd = mix_access(&second, BRIM_WRITE, p.x, 32, 32);
        *even = *odd;
        even->offset = 0;
        even->stride = odd->stride = 64;
        even->count = odd->count = 4;
        even->count_buffer = odd->count_buffer = p.step;
        even->count_step = odd->count_step = 2;
        odd->count_first = 1;
        brim_access *all = &p.b.accesses[0];
        all->size = all->stride = 32;
        all->count = 8;
        all->count_buffer = p.step;
        all->count_step = 1;
        if (spoilt == 1)
            odd->count_first = 2; /* row 1 comes only with three rows */
        if (spoilt == 2)
            all->count_buffer = BRIM_NONE; /* always eight rows */
        if (spoilt == 3)
            all->count_offset = 4; /* counted by something else */
        mix_signal(&second, p.done_a);
        p.b.waits[0].value = 2;
        mix_lane(&p.m, 0, &p.a);
        mix_lane(&p.m, 1, &second);
        mix_lane(&p.m, 1, &p.b);
        mix_lane(&p.m, 0, &p.end);
        mix_finish(&p.m);
        if (spoilt)
            expect_finding(&p.m, "check.uninitialised");
        else
            expect_good(&p.m);
    }
}

static void check_wants_count_words_and_tables_written_first(void **state)
{
    for (int which = 0; which < 2; which++)
        for (int spoilt = 0; spoilt < 2; spoilt++) {
            pair p = pair_begin();
            p.b.access_count = 0;
            brim_access *w = mix_access(&p.b, BRIM_WRITE, p.y, 0, 64);
            if (which)
                w->table_buffer = p.x, w->table_limit = 1;
            else
                w->count_buffer = p.x;
            if (spoilt)
                p.b.wait_count = 0;
            mix_wait(&p.end, p.done_a, 1);
            pair_finish(&p);
            if (spoilt)
                expect_finding(&p.m, "check.race");
            else
                expect_good(&p.m);
        }
}

/* ---- tables ---- */

/* Two unordered writers scatter rows of 16 bytes by entries [0, 4) and [from, from + 4). */
static void scatter(uint32_t from, uint32_t flags, const char *id)
{
    pair p = pair_begin();
    p.b = brim_instruction_make(p.m.op);
    p.a.access_count = 0;
    brim_access *a = mix_strided(&p.a, BRIM_WRITE, p.x, 0, 16, 16, 4);
    brim_access *b = mix_strided(&p.b, BRIM_WRITE, p.x, 0, 16, 16, 4);
    a->table_buffer = b->table_buffer = p.step;
    a->table_limit = b->table_limit = 16;
    a->flags = b->flags = flags;
    b->table_offset = 4 * from;
    mix_signal(&p.b, p.done_b);
    mix_wait(&p.end, p.done_a, 1);
    pair_finish(&p);
    if (id)
        expect_finding(&p.m, id);
    else
        expect_good(&p.m);
}

static void check_keeps_injective_scatters_apart_by_their_entries(void **state)
{
    scatter(4, BRIM_ACCESS_INJECTIVE, NULL);
    scatter(3, BRIM_ACCESS_INJECTIVE, "check.race");
    scatter(4, 0, "check.table");
}

/* ---- packets ---- */

/* a writes packet words [0, 64) of x; b reads [from, from + size) of them without a counter. */
static void packet(uint64_t from, uint64_t size, bool parity, bool signals, bool other_write,
                   const char *id)
{
    pair p = pair_begin();
    uint32_t x = mix_buffer(&p.m, "packets", 128, BRIM_BUFFER_SCRATCH, parity);
    p.a.access_count = p.a.signal_count = p.b.wait_count = p.b.access_count = 0;
    mix_access(&p.a, BRIM_WRITE, x, 0, 64)->flags = BRIM_ACCESS_PACKET;
    mix_access(&p.b, BRIM_READ, x, from, size)->flags = BRIM_ACCESS_PACKET;
    if (other_write) {
        mix_access(&p.a, BRIM_WRITE, p.x, 0, 64);
        mix_access(&p.b, BRIM_READ, p.x, 0, 64);
    }
    if (signals) {
        mix_signal(&p.a, p.done_a);
        mix_wait(&p.end, p.done_a, 1);
    }
    mix_lane(&p.m, 0, &p.a);
    mix_lane(&p.m, 1, &p.b);
    mix_lane(&p.m, 1, &p.end);
    mix_finish(&p.m);
    if (id)
        expect_finding(&p.m, id);
    else
        expect_good(&p.m);
}

static void check_takes_packets_as_order(void **state)
{
    packet(0, 64, true, false, false, NULL);
    packet(0, 32, true, true, false, NULL);
    packet(0, 32, true, false, false, "check.step_end"); /* a may still write the rest */
    packet(0, 64, false, false, false, "check.packet");  /* no second copy to reset */
    packet(2, 32, true, true, false, "check.packet");    /* not whole words */
    packet(32, 64, true, true, false, "check.deadlock"); /* words that never come */
    packet(0, 64, true, true, true, "check.race");       /* the other write may come later */
}

static void check_refuses_a_plain_write_among_packets(void **state)
{
    pair p = pair_begin();
    uint32_t x = mix_buffer(&p.m, "packets", 128, BRIM_BUFFER_SCRATCH, true);
    mix_access(&p.a, BRIM_WRITE, x, 0, 64);
    mix_access(&p.b, BRIM_READ, x, 0, 64)->flags = BRIM_ACCESS_PACKET;
    pair_finish(&p);
    expect_finding(&p.m, "check.packet");
}

/* ---- derived accesses ---- */

static void no_body(const brim_op_env *env)
{
    (void)env;
}

static brim_status copy_derive(brim_instruction *out, const brim_program *program,
                               const brim_instruction *in)
{
    if (in->operand_count != 2)
        return brim__fail(BRIM_REFUSED, "op.operand", "copy has 2 operands");
    out->accesses[0] = brim_access_make(BRIM_READ, (uint32_t)in->operands[0], 0, 64);
    out->accesses[1] = brim_access_make(BRIM_WRITE, (uint32_t)in->operands[1], 0, 64);
    out->access_count = 2;
    out->runs[0] = (brim_tile_run){0, 0, 1};
    return BRIM_OK;
}

static void check_compares_declared_accesses_with_the_op(void **state)
{
    static const char *const fields[] = {NULL,       "offset",          "size",    "kind",
                                         "accesses", "row block count", "operands"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        pair p = pair_begin();
        uint32_t op = 0, tensor = 0;
        brim_op_desc desc = {.name = "copy", .body = no_body, .derive = copy_derive};
        assert_int_equal(brim_op_register(&op, p.m.ops, &desc), BRIM_OK);
        brim_tensor_desc w = {.name = "w", .type = BRIM_DTYPE_F32, .rows = 1024, .cols = 1024};
        assert_int_equal(brim_builder_tensor(&tensor, p.m.builder, &w), BRIM_OK);
        p.b.op = op;
        p.b.operand_count = 2;
        p.b.operands[0] = (int32_t)p.x, p.b.operands[1] = (int32_t)p.y;
        assert_int_equal(brim_builder_derive(p.m.builder, &p.b), BRIM_OK);
        if (i == 1)
            p.b.accesses[0].offset = 4, p.b.accesses[0].size = 60;
        if (i == 2)
            p.b.accesses[1].size = 60;
        if (i == 3)
            p.b.accesses[1].kind = BRIM_READ;
        if (i == 4)
            p.b.access_count = 1;
        if (i == 5)
            p.b.runs[0].count = 2;
        if (i == 6)
            p.b.operand_count = 1;
        pair_finish(&p);
        if (i == 0) {
            expect_good(&p.m);
            continue;
        }
        assert_int_equal(mix_check(&p.m), BRIM_REFUSED);
        assert_string_equal(p.m.findings[0].id, i == 6 ? "check.operand" : "check.access");
        assert_int_equal(p.m.findings[0].instruction, 1);
        assert_non_null(strstr(p.m.findings[0].text, fields[i]));
        mix_end(&p.m);
    }
}

/* ---- the frame ---- */

static void check_reports_no_more_findings_than_asked_for(void **state)
{
    pair p = pair_begin();
    spoil_offset(&p);
    p.end.access_count = 0;
    pair_finish(&p);
    p.m.finding_count = 0;
    assert_int_equal(brim_program_check(p.m.program, p.m.ctx, 1, mix_report, &p.m), BRIM_REFUSED);
    assert_int_equal(p.m.finding_count, 1);
    assert_int_equal(brim_program_check(p.m.program, p.m.ctx, 0, NULL, NULL), BRIM_REFUSED);
    mix_end(&p.m);
}

static void check_survives_the_failure_of_each_allocation(void **state)
{
    layered shape = {.lanes = 2, .layers = 3, .pieces = 4, .rows = 2, .queues = true};
    mix m = layered_build(&shape);
    uint64_t failures = 0;
    brim_status status = BRIM_NO_MEMORY;
    size_t before = brim_context_bytes(m.ctx);
    while (status == BRIM_NO_MEMORY) {
        brim__memory_fail_at(m.ctx, ++failures);
        status = mix_check(&m);
        brim__memory_fail_at(m.ctx, 0);
        assert_int_equal(brim_context_bytes(m.ctx), before);
    }
    assert_int_equal(status, BRIM_OK);
    assert_true(failures > 20);
    mix_end(&m);
}

static void check_accepts_layered_programs(void **state)
{
    for (uint32_t n = 0; n < 8; n++) {
        layered shape = {.lanes = 1 + n % 4,
                         .layers = 1 + n,
                         .pieces = 5,
                         .rows = 1 + 3 * (n % 2),
                         .queues = n & 4};
        mix m = layered_build(&shape);
        expect_good(&m);
    }
}

static void check_takes_well_under_a_second_for_ten_thousand_instructions(void **state)
{
    for (int queues = 0; queues < 2; queues++) {
        layered shape = {.lanes = 8, .layers = 60, .pieces = 166, .rows = 64, .queues = queues};
        mix m = layered_build(&shape);
        uint64_t start = brim__now_ns();
        assert_int_equal(mix_check(&m), BRIM_OK);
        double seconds = (double)(brim__now_ns() - start) * 1e-9;
        print_message("%u instructions (%s): %.3f s\n", brim_program_instruction_count(m.program),
                      queues ? "queues" : "lists", seconds);
        /* Sanitizers and a busy machine are slow; the figure above is the measurement. */
        assert_true(seconds < 20);
        mix_end(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_accepts_a_program_whose_reads_follow_their_writes),
        cmocka_unit_test(check_refuses_a_read_that_nothing_orders_after_its_write),
        cmocka_unit_test(check_lets_one_lane_list_order_without_a_wait),
        cmocka_unit_test(check_does_not_let_a_queue_order_its_pieces),
        cmocka_unit_test(check_does_not_let_a_queue_order_what_follows_it),
        cmocka_unit_test(check_wants_all_signals_of_writers_that_share_a_counter),
        cmocka_unit_test(check_follows_a_partial_wait_to_what_all_signallers_share),
        cmocka_unit_test(check_refuses_a_wait_for_more_signals_than_there_are),
        cmocka_unit_test(check_refuses_a_wait_for_no_signal),
        cmocka_unit_test(check_names_the_instructions_that_wait_for_each_other),
        cmocka_unit_test(check_refuses_an_instruction_that_waits_for_itself),
        cmocka_unit_test(check_refuses_a_piece_that_waits_for_a_later_one_of_its_queue),
        cmocka_unit_test(check_refuses_a_piece_that_waits_for_what_follows_its_queue),
        cmocka_unit_test(check_refuses_a_queue_that_no_lane_takes),
        cmocka_unit_test(check_refuses_a_lane_that_takes_a_queue_twice),
        cmocka_unit_test(check_refuses_a_program_without_step_end),
        cmocka_unit_test(check_refuses_two_step_ends),
        cmocka_unit_test(check_refuses_a_step_end_in_a_queue),
        cmocka_unit_test(check_refuses_what_is_not_ordered_before_step_end),
        cmocka_unit_test(check_refuses_a_step_end_that_cannot_say_whether_to_go_on),
        cmocka_unit_test(check_refuses_every_way_out_of_bounds),
        cmocka_unit_test(check_refuses_tile_runs_past_the_tensor),
        cmocka_unit_test(check_keeps_the_roles_of_buffers),
        cmocka_unit_test(check_keeps_the_next_epoch_for_step_end),
        cmocka_unit_test(check_refuses_an_output_byte_written_twice_even_in_order),
        cmocka_unit_test(check_lets_scratch_be_used_again_in_order),
        cmocka_unit_test(check_does_not_count_later_writes_as_written),
        cmocka_unit_test(check_lets_state_be_written_again_in_order),
        cmocka_unit_test(check_refuses_an_instruction_that_writes_what_it_reads),
        cmocka_unit_test(check_refuses_a_read_that_is_ordered_before_its_write),
        cmocka_unit_test(check_refuses_a_read_of_one_byte_that_nobody_writes),
        cmocka_unit_test(check_follows_counted_rows),
        cmocka_unit_test(check_wants_count_words_and_tables_written_first),
        cmocka_unit_test(check_keeps_injective_scatters_apart_by_their_entries),
        cmocka_unit_test(check_takes_packets_as_order),
        cmocka_unit_test(check_refuses_a_plain_write_among_packets),
        cmocka_unit_test(check_compares_declared_accesses_with_the_op),
        cmocka_unit_test(check_reports_no_more_findings_than_asked_for),
        cmocka_unit_test(check_survives_the_failure_of_each_allocation),
        cmocka_unit_test(check_accepts_layered_programs),
        cmocka_unit_test(check_takes_well_under_a_second_for_ten_thousand_instructions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
