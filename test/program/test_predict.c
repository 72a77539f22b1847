/* The prediction, on programs whose time can be computed by hand. */
#include "mix_program.h"

#include <math.h>

/* 10 GB/s in all, 8 for one lane; 1 us an instruction, 0.5 us a signal. */
static const brim_machine machine = {
    .name = "by hand",
    .lane_count = 4,
    .read_gb_s = 10,
    .lane_read_gb_s = 8,
    .lane_gflop_s = 2,
    .lane_gop_int8_s = 4,
    .signal_ns = 500,
    .instruction_ns = 1000,
};

static void near(double got, double wanted)
{
    if (fabs(got - wanted) > 1e-6 * wanted + 1e-9)
        print_error("got %.9g, wanted %.9g\n", got, wanted);
    assert_true(fabs(got - wanted) <= 1e-6 * wanted + 1e-9);
}

typedef struct parts {
    mix m;
    uint32_t input, out, done;
} parts;

static parts begin(uint32_t lanes)
{
    parts p = {.m = mix_begin(lanes)};
    p.input = mix_buffer(&p.m, "input", 1 << 20, BRIM_BUFFER_INPUT, false);
    p.out = mix_buffer(&p.m, "out", 1 << 20, BRIM_BUFFER_OUTPUT, false);
    p.done = mix_counter(&p.m, "done");
    return p;
}

static brim_instruction reader(parts *p, uint64_t bytes)
{
    brim_instruction in = brim_instruction_make(p->m.op);
    if (bytes)
        mix_access(&in, BRIM_READ, p->input, 0, bytes);
    mix_signal(&in, p->done);
    return in;
}

/* Waits for `value`; its own cost is the fixed one and 4 bytes. */
static void finish(parts *p, uint32_t value)
{
    brim_instruction end = brim_instruction_make(p->m.op_end);
    mix_access(&end, BRIM_WRITE, p->out, 0, 4);
    mix_wait(&end, p->done, value);
    mix_lane(&p->m, 0, &end);
    mix_finish(&p->m);
}

static brim_prediction predict(parts *p, brim_trace_event *events, size_t capacity, size_t *count)
{
    brim_prediction out;
    brim_status status =
        brim_program_predict(&out, p->m.program, p->m.ctx, &machine, events, capacity, count);
    if (status != BRIM_OK)
        print_error("%s\n", brim_last_message());
    assert_int_equal(status, BRIM_OK);
    return out;
}

static void predict_one_lane_is_the_sum_of_its_instructions(void **state)
{
    parts p = begin(1);
    brim_instruction in = reader(&p, 8000); /* 8000 bytes at 8 a nanosecond: 1 us */
    mix_lane(&p.m, 0, &in);
    mix_lane(&p.m, 0, &in);
    finish(&p, 2);
    brim_prediction out = predict(&p, NULL, 0, NULL);
    near(out.total_us, 2 * (1 + 1) + 1 + 0.0005);
    near(out.busy_us, out.total_us);
    near(out.bytes, 16004);
    near(out.bandwidth_bound_us, 1.6004);
    assert_int_equal(out.critical_count, 3);
    mix_end(&p.m);
}

static void predict_lanes_share_the_bandwidth(void **state)
{
    parts p = begin(4);
    brim_instruction in = reader(&p, 8000);
    for (uint32_t l = 0; l < 4; l++)
        mix_lane(&p.m, l, &in);
    finish(&p, 4);
    /* Four read at 2.5 a nanosecond each: 3.2 us; another lane's signal takes 0.5 us. */
    brim_prediction out = predict(&p, NULL, 0, NULL);
    near(out.total_us, 1 + 3.2 + 0.5 + 1 + 0.0005);
    assert_int_equal(out.critical_count, 2);
    mix_end(&p.m);
}

static void costed(brim_op_cost *out, const brim_program *program, const brim_instruction *in)
{
    *out = (brim_op_cost){in->operands[0], in->operands[1], in->operands[2]};
}

static void nothing(const brim_op_env *env)
{
    (void)env;
}

static void predict_arithmetic_and_bytes_overlap(void **state)
{
    const struct {
        int32_t bytes, flops, int8_ops;
        double us;
    } cases[] = {
        {8000, 1000, 0, 1}, {800, 4000, 0, 2}, {0, 2000, 4000, 2}, {0, 0, 0, 0}, {-5, -5, -5, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        parts p = begin(1);
        uint32_t op = 0;
        brim_op_desc desc = {.name = "costed", .body = nothing, .cost = costed};
        assert_int_equal(brim_op_register(&op, p.m.ops, &desc), BRIM_OK);
        brim_instruction in = brim_instruction_make(op);
        in.operand_count = 3;
        in.operands[0] = cases[i].bytes, in.operands[1] = cases[i].flops,
        in.operands[2] = cases[i].int8_ops;
        mix_signal(&in, p.done);
        mix_lane(&p.m, 0, &in);
        finish(&p, 1);
        near(predict(&p, NULL, 0, NULL).total_us, 1 + cases[i].us + 1 + 0.0005);
        mix_end(&p.m);
    }
}

static void predict_queue_pieces_go_to_free_lanes(void **state)
{
    parts p = begin(2);
    uint32_t queue = mix_queue(&p.m, "q");
    brim_instruction slow = reader(&p, 80000), quick = reader(&p, 0);
    mix_piece(&p.m, queue, &slow);
    for (int i = 0; i < 5; i++)
        mix_piece(&p.m, queue, &quick);
    mix_take(&p.m, 0, queue);
    mix_take(&p.m, 1, queue);
    finish(&p, 6);
    brim_trace_event events[7];
    size_t count = 0;
    brim_prediction out = predict(&p, events, 7, &count);
    assert_int_equal(count, 7);
    /* Lane 0 reads 10 us; lane 1 does the five others meanwhile. */
    near(out.total_us, 1 + 10 + 1 + 0.0005);
    size_t quick_on_1 = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(events[i].taken_ns <= events[i].started_ns &&
                    events[i].started_ns <= events[i].ended_ns);
        quick_on_1 += events[i].lane == 1;
    }
    assert_int_equal(quick_on_1, 5);
    /* Fewer are stored, all are counted. */
    predict(&p, events, 2, &count);
    assert_int_equal(count, 7);
    mix_end(&p.m);
}

static void predict_waits_for_packets(void **state)
{
    parts p = begin(2);
    uint32_t x = mix_buffer(&p.m, "packets", 64, BRIM_BUFFER_SCRATCH, true);
    brim_instruction a = brim_instruction_make(p.m.op), b = reader(&p, 0);
    mix_access(&a, BRIM_WRITE, x, 0, 64)->flags = BRIM_ACCESS_PACKET;
    mix_access(&b, BRIM_READ, x, 0, 64)->flags = BRIM_ACCESS_PACKET;
    mix_lane(&p.m, 1, &a);
    mix_lane(&p.m, 0, &b);
    finish(&p, 1);
    brim_prediction out = predict(&p, NULL, 0, NULL);
    near(out.total_us, (1 + 0.008) + 0.5 + (1 + 0.008) + (1 + 0.0005));
    assert_int_equal(out.critical_count, 3);
    mix_end(&p.m);
}

static void predict_is_never_below_the_bounds(void **state)
{
    for (uint32_t n = 0; n < 6; n++) {
        layered shape = {.lanes = 1 + n % 3, .layers = 4, .pieces = 7, .rows = 64, .queues = n & 1};
        mix m = layered_build(&shape);
        brim_prediction out;
        assert_int_equal(brim_program_predict(&out, m.program, m.ctx, &machine, NULL, 0, NULL),
                         BRIM_OK);
        assert_true(out.total_us >= out.bandwidth_bound_us);
        assert_true(out.total_us * shape.lanes >= out.busy_us * 0.999999);
        assert_true(out.critical_count >= shape.layers + 1);
        mix_end(&m);
    }
}

static void predict_refuses_bad_machines_and_bad_programs(void **state)
{
    parts p = begin(1);
    brim_instruction in = reader(&p, 8);
    mix_lane(&p.m, 0, &in);
    finish(&p, 2);
    brim_prediction out;
    assert_int_equal(brim_program_predict(&out, p.m.program, p.m.ctx, &machine, NULL, 0, NULL),
                     BRIM_REFUSED);
    assert_string_equal(brim_last_id(), "check.deadlock");
    brim_machine bad = machine;
    bad.read_gb_s = 0;
    assert_int_equal(brim_program_predict(&out, p.m.program, p.m.ctx, &bad, NULL, 0, NULL),
                     BRIM_USAGE);
    assert_string_equal(brim_last_id(), "predict.machine");
    bad = machine;
    bad.signal_ns = NAN;
    assert_int_equal(brim_program_predict(&out, p.m.program, p.m.ctx, &bad, NULL, 0, NULL),
                     BRIM_USAGE);
    mix_end(&p.m);
}

static void predict_survives_the_failure_of_each_allocation(void **state)
{
    layered shape = {.lanes = 2, .layers = 3, .pieces = 3, .rows = 2, .queues = true};
    mix m = layered_build(&shape);
    size_t before = brim_context_bytes(m.ctx);
    brim_status status = BRIM_NO_MEMORY;
    for (uint64_t n = 1; status == BRIM_NO_MEMORY; n++) {
        brim_prediction out;
        brim__memory_fail_at(m.ctx, n);
        status = brim_program_predict(&out, m.program, m.ctx, &machine, NULL, 0, NULL);
        brim__memory_fail_at(m.ctx, 0);
        assert_int_equal(brim_context_bytes(m.ctx), before);
    }
    assert_int_equal(status, BRIM_OK);
    mix_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predict_one_lane_is_the_sum_of_its_instructions),
        cmocka_unit_test(predict_lanes_share_the_bandwidth),
        cmocka_unit_test(predict_arithmetic_and_bytes_overlap),
        cmocka_unit_test(predict_queue_pieces_go_to_free_lanes),
        cmocka_unit_test(predict_waits_for_packets),
        cmocka_unit_test(predict_is_never_below_the_bounds),
        cmocka_unit_test(predict_refuses_bad_machines_and_bad_programs),
        cmocka_unit_test(predict_survives_the_failure_of_each_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
