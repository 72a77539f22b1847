/* fuzz_program.c: program files from any bytes. What is read is checked; what is dumped is read
 * again and dumped as the same text; what passes the check is predicted, and if it is small it runs
 * on made-up inputs: no body may leave its regions (the sanitizers would see it), no order may get
 * stuck. */
#include <stdlib.h>
#include <string.h>

#include "brim/program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Larger programs are not run, so that an input takes little time and memory. */
enum { RUN_BYTES_MAX = 1 << 20, RUN_INSTRUCTIONS_MAX = 256 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_round_trip(brim_context *ctx, const brim_op_table *ops,
                             const brim_program *program)
{
    char *first, *second;
    size_t first_size, second_size;
    brim_program *again;
    if (brim_program_dump(&first, &first_size, program, ctx) != BRIM_OK)
        return;
    require(brim_program_parse(&again, ctx, ops, first, first_size) == BRIM_OK);
    require(brim_program_dump(&second, &second_size, again, ctx) == BRIM_OK);
    require(first_size == second_size && memcmp(first, second, first_size) == 0);
    brim_program_destroy(again);
    brim_free(ctx, first);
    brim_free(ctx, second);
}

/* Whether a run takes little: counts what is read, written and multiplied. */
static bool is_small(const brim_program *program)
{
    uint64_t bytes = 0;
    if (brim_program_instruction_count(program) > RUN_INSTRUCTIONS_MAX)
        return false;
    for (uint32_t i = 0; i < brim_program_buffer_count(program); i++)
        bytes += brim_program_buffer(program, i)->size;
    for (uint32_t i = 0; i < brim_program_tensor_count(program); i++)
        bytes += 4 * (uint64_t)brim_program_tensor(program, i)->rows *
                 brim_program_tensor(program, i)->cols;
    for (uint32_t i = 0; i < brim_program_instruction_count(program); i++) {
        const brim_instruction *in = brim_program_instruction(program, i);
        for (unsigned n = 0; n < in->access_count && bytes <= RUN_BYTES_MAX; n++)
            bytes += in->accesses[n].size * in->accesses[n].count;
    }
    return bytes <= RUN_BYTES_MAX;
}

/* Tables hold what the ops made of other inputs, so they may be refused while it runs. */
static void run(brim_context *ctx, const brim_program *program)
{
    brim_executor *executor;
    brim_executor_desc desc = brim_executor_desc_default();
    desc.kind = BRIM_EXECUTOR_REFERENCE;
    desc.check_tables = true;
    if (brim_executor_create(&executor, ctx, program, &desc) != BRIM_OK)
        return;
    brim_status status = brim_executor_fill(executor, 1);
    if (status == BRIM_OK)
        status = brim_executor_run(executor, 3);
    require(status == BRIM_OK || strcmp(brim_last_id(), "run.table") == 0 ||
            status == BRIM_NO_MEMORY || strcmp(brim_last_id(), "run.impure") == 0);
    brim_executor_destroy(executor);
}

static void use(brim_context *ctx, const brim_op_table *ops, const brim_program *program)
{
    static const brim_machine machine = {"fuzz", 2, 10, 8, 10, 20, 100, 100};
    brim_prediction prediction;
    check_round_trip(ctx, ops, program);
    if (brim_program_check(program, ctx, 16, NULL, NULL) != BRIM_OK)
        return;
    brim_status status = brim_program_predict(&prediction, program, ctx, &machine, NULL, 0, NULL);
    require(status == BRIM_OK || status == BRIM_NO_MEMORY);
    if (is_small(program))
        run(ctx, program);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    brim_context *ctx;
    brim_op_table *ops;
    brim_program *program;
    if (brim_context_create(&ctx, NULL) != BRIM_OK)
        return 0;
    if (brim_op_table_create(&ops, ctx) == BRIM_OK) {
        if (brim_program_parse(&program, ctx, ops, (const char *)data, size) == BRIM_OK) {
            use(ctx, ops, program);
            brim_program_destroy(program);
        }
        brim_op_table_destroy(ops);
    }
    require(brim_context_bytes(ctx) == 0);
    brim_context_destroy(ctx);
    return 0;
}
