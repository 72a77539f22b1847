/* Traces: what is drawn of a run, and of a prediction. */
#include "mix_program.h"

#include <jansson.h>
#include <unistd.h>

#include "base/file.h"
#include "program/trace.h"

static size_t count_of(const char *text, const char *what)
{
    size_t count = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        count++;
    return count;
}

static brim_executor *run_traced(mix *m, uint64_t epochs, uint32_t events)
{
    brim_executor *x = NULL;
    brim_executor_desc desc = brim_executor_desc_default();
    desc.kind = BRIM_EXECUTOR_REFERENCE;
    desc.trace_events = events;
    assert_int_equal(brim_executor_create(&x, m->ctx, m->program, &desc), BRIM_OK);
    uint32_t rows = 2;
    memcpy(brim_executor_buffer(x, 0, 0), &rows, sizeof rows);
    memcpy(brim_executor_buffer(x, 0, 1), &rows, sizeof rows);
    assert_int_equal(brim_executor_run(x, epochs), BRIM_OK);
    return x;
}

static void path_for(char *out, size_t size, const char *suffix)
{
    const char *folder = getenv("TMPDIR");
    snprintf(out, size, "%s/brim-trace-%ld.%s", folder ? folder : "/tmp", (long)getpid(), suffix);
}

static const layered shape = {.lanes = 2, .layers = 3, .pieces = 4, .rows = 2, .queues = true};

static void trace_json_has_a_slice_for_every_instruction(void **state)
{
    mix m = layered_build(&shape);
    brim_executor *x = run_traced(&m, 3, 1000);
    char path[256];
    path_for(path, sizeof path, "json");
    assert_int_equal(brim_trace_write_json(x, path), BRIM_OK);
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    assert_non_null(root);
    json_t *events = json_object_get(root, "traceEvents");
    size_t slices = 0, lanes = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *e = json_array_get(events, i);
        const char *ph = json_string_value(json_object_get(e, "ph"));
        const char *category = json_string_value(json_object_get(e, "cat"));
        lanes += strcmp(json_string_value(json_object_get(e, "name")), "thread_name") == 0;
        if (strcmp(ph, "X") != 0 || strcmp(category, "op") != 0)
            continue;
        slices++;
        assert_true(json_number_value(json_object_get(e, "ts")) >= 0);
        assert_true(json_number_value(json_object_get(e, "dur")) >= 0);
        assert_true(json_is_integer(json_object_get(json_object_get(e, "args"), "epoch")));
    }
    assert_int_equal(slices, 3 * brim_program_instruction_count(m.program));
    assert_int_equal(lanes, 2);
    json_decref(root);
    remove(path);
    brim_executor_destroy(x);
    mix_end(&m);
}

static void trace_svg_draws_lanes_ops_and_axis(void **state)
{
    mix m = layered_build(&shape);
    brim_executor *x = run_traced(&m, 2, 1000);
    char path[256], *text = NULL;
    size_t size = 0;
    path_for(path, sizeof path, "svg");
    assert_int_equal(brim_trace_write_svg(x, path), BRIM_OK);
    assert_int_equal(brim__read_file(&text, &size, m.ctx, path, 1 << 24), BRIM_OK);
    assert_int_equal(memcmp(text, "<svg ", 5), 0);
    assert_int_equal(count_of(text, ">lane 0</text>"), 1);
    assert_int_equal(count_of(text, ">lane 1</text>"), 1);
    assert_true(count_of(text, "mix.end") >= 2);
    assert_int_equal(count_of(text, "epoch 1</text>"), 1);
    assert_int_equal(count_of(text, "<title>"), count_of(text, "</title>"));
    assert_non_null(strstr(text, "</svg>"));
    brim__free(m.ctx, text);
    remove(path);
    brim_executor_destroy(x);
    mix_end(&m);
}

static void trace_without_events_is_an_error(void **state)
{
    mix m = layered_build(&shape);
    brim_executor *x = run_traced(&m, 1, 0);
    assert_int_equal(brim_trace_write_json(x, "unwritten"), BRIM_STATE);
    assert_string_equal(brim_last_id(), "trace.empty");
    assert_int_equal(brim_trace_write_svg(x, "unwritten"), BRIM_STATE);
    brim_executor_destroy(x);
    x = run_traced(&m, 1, 16);
    assert_int_equal(brim_trace_write_svg(x, "/no/such/folder/trace.svg"), BRIM_IO);
    brim_executor_destroy(x);
    mix_end(&m);
}

static void trace_svg_says_which_epochs_it_leaves_out(void **state)
{
    mix m = layered_build(&shape);
    uint32_t instructions = brim_program_instruction_count(m.program);
    size_t count = 1000 * (size_t)instructions;
    brim_trace_event *events = brim__calloc(m.ctx, count, sizeof *events);
    for (size_t i = 0; i < count; i++)
        events[i] = (brim_trace_event){.epoch = i / instructions,
                                       .instruction = (uint32_t)(i % instructions),
                                       .lane = (uint32_t)(i & 1),
                                       .taken_ns = 1000 * i,
                                       .started_ns = 1000 * i + 300,
                                       .ended_ns = 1000 * i + 1500};
    brim__string text = {.ctx = m.ctx};
    assert_int_equal(brim__trace_render_svg(&text, m.program, events, count, "a <b> & \"c\""),
                     BRIM_OK);
    assert_non_null(strstr(text.data, "earlier ones left out"));
    assert_non_null(strstr(text.data, "a &#60;b&#62; &#38; &#34;c&#34;"));
    assert_true(count_of(text.data, "<rect") < 15000);
    brim__string_done(&text);
    assert_int_equal(brim__trace_render_svg(&text, m.program, NULL, 0, "nothing"), BRIM_OK);
    brim__string_done(&text);
    events[0].lane = 2;
    assert_int_equal(brim_trace_write_events_svg(m.program, m.ctx, events, 1, "x", "unwritten"),
                     BRIM_USAGE);
    assert_string_equal(brim_last_id(), "trace.event");
    brim__free(m.ctx, events);
    mix_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_json_has_a_slice_for_every_instruction),
        cmocka_unit_test(trace_svg_draws_lanes_ops_and_axis),
        cmocka_unit_test(trace_without_events_is_an_error),
        cmocka_unit_test(trace_svg_says_which_epochs_it_leaves_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
