/* The built-in ops with operands as a hostile file may have them: what derive() and the check let
 * pass runs without leaving its regions (the sanitizers watch) and gives one result in any order.
 * The program is a whole model in small: fuzz/corpus/program/model.json. */
#include "mix_program.h"

#include "base/file.h"
#include "base/hash.h"

enum { PROGRAMS = 1500, BUFFER_BYTES_MAX = 16 << 20 };

typedef struct draws {
    uint64_t seed, n;
} draws;

static uint32_t draw(draws *d, size_t bound)
{
    return (uint32_t)brim__random_below(d->seed, 9, d->n++, bound);
}

static void spoil(brim_program *p, draws *d)
{
    static const int32_t odd[] = {0,  1,  2,   3,   4,  16,   31,    32,        33,       48,
                                  64, 96, 128, 256, -1, 1024, 65536, INT32_MAX, INT32_MIN};
    for (uint32_t k = 1 + draw(d, 3); k > 0; k--) {
        brim_buffer_desc *buffer = &p->buffers[draw(d, p->buffer_count)];
        if (draw(d, 6) == 0)
            buffer->size =
                draw(d, 2) ? buffer->size * (1 + draw(d, 4)) : buffer->size + 64 * draw(d, 64);
        brim_instruction *in = &p->instructions[draw(d, p->instruction_count)];
        int32_t *operand = &in->operands[draw(d, in->operand_count)];
        int32_t near = (int32_t)((uint32_t)*operand + draw(d, 5) - 2u);
        *operand = draw(d, 2) ? odd[draw(d, sizeof odd / sizeof *odd)] : near;
    }
}

static bool derive_all(brim_program *p)
{
    for (size_t i = 0; i < p->instruction_count; i++) {
        brim_instruction derived = p->instructions[i];
        const brim_op_desc *op = brim_op_get(p->ops, derived.op);
        if (op->derive && op->derive(&derived, p, &p->instructions[i]) != BRIM_OK)
            return false;
        p->instructions[i] = derived;
    }
    return true;
}

static uint64_t total_bytes(const brim_program *p)
{
    uint64_t bytes = 0;
    for (size_t b = 0; b < p->buffer_count; b++)
        bytes += p->buffers[b].size;
    return bytes;
}

/* A hash of the outputs; a table out of bounds or out of order is refused while it runs. */
static uint64_t run_hash(brim_context *ctx, const brim_program *p, uint64_t seed, brim_isa isa)
{
    brim_executor *x;
    brim_executor_desc desc = brim_executor_desc_default();
    desc.kind = BRIM_EXECUTOR_REFERENCE;
    desc.check_tables = true;
    desc.isa = isa;
    desc.seed = seed;
    assert_int_equal(brim_executor_create(&x, ctx, p, &desc), BRIM_OK);
    assert_int_equal(brim_executor_fill(x, 1), BRIM_OK);
    uint64_t hash = 0;
    brim_status status = brim_executor_run(x, 2);
    if (status != BRIM_OK)
        assert_string_equal(brim_last_id(), "run.table");
    for (uint32_t b = 0; b < p->buffer_count && status == BRIM_OK; b++)
        if (p->buffers[b].role == BRIM_BUFFER_STATE || p->buffers[b].role == BRIM_BUFFER_OUTPUT)
            hash = brim__hash64(brim_executor_buffer(x, b, 0), p->buffers[b].size, hash);
    brim_executor_destroy(x);
    return hash;
}

static void ops_with_hostile_operands_stay_in_their_regions(void **state)
{
    mix m = mix_begin(1);
    char *text = NULL;
    size_t size = 0;
    const char *path = BRIM_SOURCE_DIR "/fuzz/corpus/program/model.json";
    assert_int_equal(brim__read_file(&text, &size, m.ctx, path, 1 << 20), BRIM_OK);
    uint32_t derived = 0, ran = 0;
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
        draws d = {seed, 0};
        brim_program *p;
        assert_int_equal(brim_program_parse(&p, m.ctx, m.ops, text, size), BRIM_OK);
        if (seed > 0)
            spoil(p, &d);
        if (derive_all(p)) {
            derived++;
            if (brim_program_check(p, m.ctx, 1, NULL, NULL) == BRIM_OK &&
                total_bytes(p) < BUFFER_BYTES_MAX) {
                ran++;
                uint64_t hash = run_hash(m.ctx, p, 0, BRIM_ISA_SCALAR);
                assert_int_equal(run_hash(m.ctx, p, 1, BRIM_ISA_SCALAR), hash);
            }
        }
        brim_program_destroy(p);
    }
    print_message(
        "of %u programs, %u have operands that derive() takes, %u pass the check and run\n",
        PROGRAMS, derived, ran);
    assert_true(ran > PROGRAMS / 20);
    brim__free(m.ctx, text);
    mix_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_with_hostile_operands_stay_in_their_regions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
