/* Program files: what is dumped is read again, byte by byte; what is wrong is refused with its
 * place. */
#include "mix_program.h"

#include "base/file.h"

#define HEAD "{\"format\": \"brim-program\", \"version\": 1, \"name\": \"n\", \"lanes\": 1, "
#define BUFFERS "\"buffers\": [{\"name\": \"x\", \"size\": 64, \"role\": \"output\"}], "
#define TENSORS "\"tensors\": [{\"name\": \"w\", \"type\": \"Q8_0\", \"rows\": 32, \"cols\": 32}], "
#define COUNTERS "\"counters\": [\"c\"], "
#define QUEUES "\"queues\": [{\"name\": \"q\", \"instructions\": []}], "
#define END_ACCESS                                                                                 \
    "\"accesses\": [{\"kind\": \"write\", \"buffer\": \"x\", \"offset\": 0, \"size\": 4}]"
#define LISTS(item) "\"lane_lists\": [[" item "]]}"
#define END "{\"op\": \"mix.end\", " END_ACCESS "}"
#define WITH(item) HEAD BUFFERS TENSORS COUNTERS QUEUES LISTS(item)

typedef struct fixture {
    brim_context *ctx;
    brim_op_table *ops;
} fixture;

static fixture begin(void)
{
    fixture f = {0};
    assert_int_equal(brim_context_create(&f.ctx, NULL), BRIM_OK);
    assert_int_equal(brim_op_table_create(&f.ops, f.ctx), BRIM_OK);
    return f;
}

static void end(fixture *f)
{
    brim_op_table_destroy(f->ops);
    assert_int_equal(brim_context_bytes(f->ctx), 0);
    brim_context_destroy(f->ctx);
}

static void json_round_trip_is_the_same_text(void **state)
{
    for (int queues = 0; queues < 2; queues++) {
        layered shape = {.lanes = 3, .layers = 4, .pieces = 5, .rows = 2, .queues = queues};
        mix m = layered_build(&shape);
        char *first = NULL, *second = NULL;
        size_t first_size = 0, second_size = 0;
        brim_program *read = NULL;
        assert_int_equal(brim_program_dump(&first, &first_size, m.program, m.ctx), BRIM_OK);
        assert_int_equal(brim_program_parse(&read, m.ctx, m.ops, first, first_size), BRIM_OK);
        assert_int_equal(brim_program_check(read, m.ctx, 1, NULL, NULL), BRIM_OK);
        assert_int_equal(brim_program_dump(&second, &second_size, read, m.ctx), BRIM_OK);
        assert_int_equal(first_size, second_size);
        assert_memory_equal(first, second, first_size);
        brim_program_destroy(read);
        brim_free(m.ctx, first);
        brim_free(m.ctx, second);
        mix_end(&m);
    }
}

/* Every field of an instruction, with values that are no defaults. */
static void json_keeps_every_field(void **state)
{
    mix m = mix_begin(2);
    uint32_t x = mix_buffer(&m, "a \"name\" \\ with\ttab \xC3\xA9", (uint64_t)1 << 39,
                            BRIM_BUFFER_STATE, true);
    uint32_t t = mix_buffer(&m, "table", 4096, BRIM_BUFFER_CONST, false);
    uint32_t c = mix_counter(&m, "c"), q = mix_queue(&m, "q");
    uint32_t w = 0;
    brim_tensor_desc desc = {.name = "w", .type = BRIM_DTYPE_Q4_K, .rows = 512, .cols = 512};
    assert_int_equal(brim_builder_tensor(&w, m.builder, &desc), BRIM_OK);
    brim_instruction in = brim_instruction_make(m.op);
    in.operand_count = 3;
    in.operands[0] = INT32_MIN, in.operands[1] = INT32_MAX, in.operands[2] = -1;
    mix_wait(&in, c, UINT32_MAX);
    mix_wait(&in, c, 1);
    mix_signal(&in, c);
    mix_signal(&in, c);
    brim_access *a = mix_strided(&in, BRIM_APPEND, x, (uint64_t)1 << 38, 12, 16, 7);
    a->flags = BRIM_ACCESS_NEXT | BRIM_ACCESS_PACKET | BRIM_ACCESS_INJECTIVE;
    a->count_buffer = t, a->count_offset = 8, a->count_first = 3, a->count_step = 0;
    a->table_buffer = t, a->table_offset = 16, a->table_limit = UINT32_MAX;
    mix_strided(&in, BRIM_READ, t, 0, 4, 0, 1);
    in.runs[1] = (brim_tile_run){w, 3, UINT32_MAX};
    mix_piece(&m, q, &in);
    mix_take(&m, 1, q);
    mix_finish(&m);
    char *text = NULL;
    size_t size = 0;
    brim_program *read = NULL;
    assert_int_equal(brim_program_dump(&text, &size, m.program, m.ctx), BRIM_OK);
    assert_int_equal(brim_program_parse(&read, m.ctx, m.ops, text, size), BRIM_OK);
    const brim_instruction *got = brim_program_instruction(read, 0);
    assert_int_equal(got->op, in.op);
    assert_int_equal(got->wait_count, 2);
    assert_int_equal(got->signal_count, 2);
    assert_memory_equal(got->operands, in.operands, sizeof in.operands);
    assert_memory_equal(got->waits, in.waits, sizeof in.waits);
    assert_memory_equal(got->runs, in.runs, sizeof in.runs[1]);
    assert_memory_equal(&got->accesses[0], &in.accesses[0], sizeof in.accesses[0]);
    assert_int_equal(got->accesses[1].stride, 0);
    assert_int_equal(got->accesses[1].count_buffer, BRIM_NONE);
    assert_int_equal(got->runs[1].count, UINT32_MAX);
    const brim_buffer_desc *buffer = brim_program_buffer(read, 0),
                           *wanted = brim_program_buffer(m.program, 0);
    assert_string_equal(buffer->name, wanted->name);
    assert_int_equal(buffer->size, wanted->size);
    assert_int_equal(buffer->role, BRIM_BUFFER_STATE);
    assert_true(buffer->parity);
    brim_program_destroy(read);
    brim_free(m.ctx, text);
    mix_end(&m);
}

static void json_reads_a_hand_written_file(void **state)
{
    fixture f = begin();
    static const char text[] = WITH(END);
    brim_program *program = NULL;
    brim_status status = brim_program_parse(&program, f.ctx, f.ops, text, sizeof text - 1);
    if (status != BRIM_OK)
        print_error("%s\n", brim_last_message());
    assert_int_equal(status, BRIM_OK);
    assert_string_equal(brim_program_name(program), "n");
    assert_int_equal(brim_program_check(program, f.ctx, 1, NULL, NULL), BRIM_OK);
    brim_program_destroy(program);
    end(&f);
}

static void json_example_of_the_docs_passes_the_check(void **state)
{
    fixture f = begin();
    char *page = NULL;
    size_t size = 0;
    assert_int_equal(
        brim__read_file(&page, &size, f.ctx, BRIM_SOURCE_DIR "/docs/program.md", 1 << 20), BRIM_OK);
    char *start = strstr(page, "```\n{\n");
    assert_non_null(start);
    start += 4;
    size_t length = (size_t)(strstr(start, "```") - start), again_size = 0;
    brim_program *program = NULL;
    char *again = NULL;
    assert_int_equal(brim_program_parse(&program, f.ctx, f.ops, start, length), BRIM_OK);
    assert_int_equal(brim_program_check(program, f.ctx, 1, NULL, NULL), BRIM_OK);
    assert_int_equal(brim_program_dump(&again, &again_size, program, f.ctx), BRIM_OK);
    assert_int_equal(again_size, length);
    assert_memory_equal(again, start, length);
    brim_free(f.ctx, again);
    brim_program_destroy(program);
    brim__free(f.ctx, page);
    end(&f);
}

typedef struct bad {
    const char *text, *id, *path;
} bad;

static const bad bad_texts[] = {
    {"", "program.json", "line"},
    {"{", "program.json", "line 1"},
    {"[]", "program.type", "the program"},
    {"{}", "program.key", "the program: \"format\""},
    {"{\"format\": \"brim-program\", \"format\": \"brim-program\"}", "program.json", "duplicate"},
    {"{\"format\": \"other\"}", "program.format", "format"},
    {"{\"format\": \"brim-program\", \"version\": 2}", "program.version", "version"},
    {"{\"format\": \"brim-program\", \"version\": 1, \"name\": \"n\", \"lanes\": 0}",
     "program.value", "lanes"},
    {"{\"format\": \"brim-program\", \"version\": 1, \"name\": \"n\", \"lanes\": 1025}",
     "program.value", "lanes"},
    {"{\"format\": \"brim-program\", \"version\": 1, \"name\": \"n\", \"lanes\": 1.0}",
     "program.type", "lanes"},
    {"{\"format\": \"brim-program\", \"version\": 1, \"name\": \"n\", \"lanes\": 1, \"more\": 1}",
     "program.key", "more"},
    {HEAD "\"buffers\": {}}", "program.type", "buffers"},
    {HEAD "\"buffers\": [{\"name\": \"x\", \"size\": 0, \"role\": \"output\"}]}", "program.buffer",
     "buffers[0]"},
    {HEAD "\"buffers\": [{\"name\": \"x\", \"size\": 64, \"role\": \"other\"}]}", "program.value",
     "buffers[0].role"},
    {HEAD "\"buffers\": [{\"name\": \"\", \"size\": 64, \"role\": \"output\"}]}", "program.name",
     "buffers[0]"},
    {HEAD "\"buffers\": [{\"name\": \"x\", \"size\": -1, \"role\": \"output\"}]}", "program.value",
     "buffers[0].size"},
    {HEAD "\"buffers\": [{\"name\": \"x\", \"size\": 1, \"role\": \"output\", \"parity\": 1}]}",
     "program.type", "buffers[0].parity"},
    {HEAD "\"buffers\": [{\"name\": \"x\", \"size\": 1, \"role\": \"const\"}, {\"name\": \"x\", "
          "\"size\": 1, \"role\": "
          "\"const\"}]}",
     "program.name", "buffers[1].name"},
    {HEAD BUFFERS "\"tensors\": [{\"name\": \"w\", \"type\": \"Q9\", \"rows\": 1, \"cols\": 32}]}",
     "program.value", "tensors[0].type"},
    {HEAD BUFFERS
     "\"tensors\": [{\"name\": \"w\", \"type\": \"Q8_0\", \"rows\": 1, \"cols\": 31}]}",
     "tile.shape", "tensors[0]"},
    {HEAD BUFFERS
     "\"tensors\": [{\"name\": \"w\", \"type\": \"Q8_0\", \"rows\": 0, \"cols\": 32}]}",
     "tile.shape", "tensors[0]"},
    {HEAD BUFFERS TENSORS "\"counters\": [1]}", "program.type", "counters[0]"},
    {HEAD BUFFERS TENSORS "\"counters\": [\"c\", \"c\"]}", "program.name", "counters[1]"},
    {HEAD BUFFERS TENSORS COUNTERS "\"queues\": [{\"name\": \"q\"}]}", "program.key", "queues[0]"},
    {HEAD BUFFERS TENSORS COUNTERS
     "\"queues\": [{\"name\": \"q\", \"instructions\": [{\"op\": \"none\"}]}]}",
     "program.op", "queues[0].instructions[0].op"},
    {HEAD BUFFERS TENSORS COUNTERS QUEUES "\"lane_lists\": []}", "program.value", "lane_lists"},
    {HEAD BUFFERS TENSORS COUNTERS QUEUES "\"lane_lists\": [[]]}", "program.empty", "lane_lists"},
    {WITH("{\"queue\": \"other\"}"), "program.name", "lane_lists[0][0].queue"},
    {WITH("{\"queue\": \"q\", \"op\": \"mix\"}"), "program.key", "lane_lists[0][0].op"},
    {WITH("{\"operands\": []}"), "program.key", "lane_lists[0][0]: \"op\""},
    {WITH("7"), "program.type", "lane_lists[0][0]"},
    {WITH("{\"op\": \"mix\", \"operands\": [2147483648]}"), "program.value",
     "lane_lists[0][0].operands[0]"},
    {WITH("{\"op\": \"mix\", \"operands\": "
          "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25]}"),
     "program.limit", "lane_lists[0][0].operands"},
    {WITH("{\"op\": \"mix\", \"waits\": [{\"counter\": \"c\", \"value\": 1}, {\"counter\": \"d\", "
          "\"value\": 1}]}"),
     "program.name", "lane_lists[0][0].waits[1].counter"},
    {WITH("{\"op\": \"mix\", \"waits\": [{\"counter\": \"c\", \"value\": 4294967296}]}"),
     "program.value", "lane_lists[0][0].waits[0].value"},
    {WITH("{\"op\": \"mix\", \"waits\": [{\"counter\": \"c\", \"value\": 1, \"x\": 1}]}"),
     "program.key", "lane_lists[0][0].waits[0].x"},
    {WITH("{\"op\": \"mix\", \"signals\": [\"c\", \"c\", \"c\"]}"), "program.limit",
     "lane_lists[0][0].signals"},
    {WITH("{\"op\": \"mix\", \"signals\": [\"d\"]}"), "program.name",
     "lane_lists[0][0].signals[0]"},
    {WITH("{\"op\": \"mix\", \"accesses\": [{\"kind\": \"move\"}]}"), "program.value",
     "lane_lists[0][0].accesses[0].kind"},
    {WITH("{\"op\": \"mix\", \"accesses\": [{\"kind\": \"read\", \"buffer\": \"y\"}]}"),
     "program.name", "lane_lists[0][0].accesses[0].buffer"},
    {WITH("{\"op\": \"mix\", \"accesses\": [{\"kind\": \"read\", \"buffer\": \"x\", \"offset\": "
          "0}]}"),
     "program.key", "lane_lists[0][0].accesses[0]: \"size\""},
    {WITH("{\"op\": \"mix\", \"accesses\": [{\"kind\": \"read\", \"buffer\": \"x\", \"offset\": 0, "
          "\"size\": 1, "
          "\"flags\": [\"next\", \"next\"]}]}"),
     "program.value", "lane_lists[0][0].accesses[0].flags[1]"},
    {WITH("{\"op\": \"mix\", \"accesses\": [{\"kind\": \"read\", \"buffer\": \"x\", \"offset\": 0, "
          "\"size\": 1, "
          "\"count_from\": {\"buffer\": \"x\"}}]}"),
     "program.key", "lane_lists[0][0].accesses[0].count_from: \"offset\""},
    {WITH("{\"op\": \"mix\", \"accesses\": [{\"kind\": \"read\", \"buffer\": \"x\", \"offset\": 0, "
          "\"size\": 1, "
          "\"table\": {\"buffer\": \"x\", \"offset\": 0, \"limit\": -1}}]}"),
     "program.value", "lane_lists[0][0].accesses[0].table.limit"},
    {WITH("{\"op\": \"mix\", \"tiles\": [{\"tensor\": \"v\", \"first\": 0, \"count\": 1}]}"),
     "program.name", "lane_lists[0][0].tiles[0].tensor"},
    {WITH(END) " more", "program.json", "line"},
};

static void json_refuses_what_is_wrong_and_says_where(void **state)
{
    fixture f = begin();
    for (size_t i = 0; i < sizeof bad_texts / sizeof *bad_texts; i++) {
        const bad *b = &bad_texts[i];
        brim_program *program = NULL;
        brim_status status = brim_program_parse(&program, f.ctx, f.ops, b->text, strlen(b->text));
        bool good = status == BRIM_FORMAT && strcmp(brim_last_id(), b->id) == 0 &&
                    strstr(brim_last_message(), b->path);
        if (!good)
            print_error("case %zu: %s\n wanted %s at %s\n got %s: %s\n", i, b->text, b->id, b->path,
                        brim_last_id(), brim_last_message());
        assert_true(good);
        assert_null(program);
    }
    end(&f);
}

/* Cut at every byte, the text is refused and nothing leaks. */
static void json_refuses_every_cut(void **state)
{
    fixture f = begin();
    static const char text[] = WITH(END);
    for (size_t size = 0; size < sizeof text - 1; size++) {
        brim_program *program = NULL;
        assert_int_equal(brim_program_parse(&program, f.ctx, f.ops, text, size), BRIM_FORMAT);
    }
    end(&f);
}

static void json_refuses_more_values_than_a_program_can_have(void **state)
{
    fixture f = begin();
    size_t size = (size_t)26 << 20;
    char *text = brim__alloc(f.ctx, size);
    memset(text, ',', size);
    brim_program *program = NULL;
    assert_int_equal(brim_program_parse(&program, f.ctx, f.ops, text, size), BRIM_LIMIT);
    assert_string_equal(brim_last_id(), "program.limit");
    brim__free(f.ctx, text);
    end(&f);
}

static void builder_refuses_two_counters_or_queues_of_one_name(void **state)
{
    for (int queues = 0; queues <= 1; queues++) {
        mix m = mix_begin(1);
        uint32_t out = mix_buffer(&m, "out", 64, BRIM_BUFFER_OUTPUT, false);
        for (int twice = 0; twice < 2; twice++) {
            if (queues)
                mix_queue(&m, "same");
            else
                mix_counter(&m, "same");
        }
        brim_instruction in = brim_instruction_make(m.op_end);
        mix_access(&in, BRIM_WRITE, out, 0, 64);
        mix_lane(&m, 0, &in);
        assert_int_equal(brim_builder_finish(&m.program, m.builder), BRIM_USAGE);
        assert_string_equal(brim_last_id(), "program.name");
        mix_end(&m);
    }
}

static void json_survives_the_failure_of_each_allocation(void **state)
{
    layered shape = {.lanes = 2, .layers = 2, .pieces = 2, .rows = 2, .queues = true};
    mix m = layered_build(&shape);
    char *text = NULL;
    size_t size = 0;
    brim_status status = BRIM_NO_MEMORY;
    for (uint64_t n = 1; status == BRIM_NO_MEMORY; n++) {
        brim__memory_fail_at(m.ctx, n);
        status = brim_program_dump(&text, &size, m.program, m.ctx);
        brim__memory_fail_at(m.ctx, 0);
    }
    assert_int_equal(status, BRIM_OK);
    size_t before = brim_context_bytes(m.ctx);
    status = BRIM_NO_MEMORY;
    for (uint64_t n = 1; status == BRIM_NO_MEMORY; n++) {
        brim_program *read = NULL;
        brim__memory_fail_at(m.ctx, n);
        status = brim_program_parse(&read, m.ctx, m.ops, text, size);
        brim__memory_fail_at(m.ctx, 0);
        brim_program_destroy(read);
        assert_int_equal(brim_context_bytes(m.ctx), before);
    }
    assert_int_equal(status, BRIM_OK);
    brim_free(m.ctx, text);
    mix_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_round_trip_is_the_same_text),
        cmocka_unit_test(json_keeps_every_field),
        cmocka_unit_test(json_reads_a_hand_written_file),
        cmocka_unit_test(json_example_of_the_docs_passes_the_check),
        cmocka_unit_test(json_refuses_what_is_wrong_and_says_where),
        cmocka_unit_test(json_refuses_every_cut),
        cmocka_unit_test(json_refuses_more_values_than_a_program_can_have),
        cmocka_unit_test(builder_refuses_two_counters_or_queues_of_one_name),
        cmocka_unit_test(json_survives_the_failure_of_each_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
