/* program.c: a program of one's own: two lanes square numbers in pieces, a third op adds them up.
 *
 *     build/examples/program
 */
#include <stdio.h>

#include <brim/program.h>

enum { NUMBERS = 1024, PIECES = 8, EACH = NUMBERS / PIECES };

/* Bodies read what they declared as READ and fill packed scratch for what they declared as WRITE.
 */
static void square_body(const brim_op_env *env)
{
    const uint32_t *in = env->access[0];
    uint32_t *out = env->access[1];
    for (int i = 0; i < EACH; i++)
        out[i] = in[i] * in[i];
}

/* Step-end: its first word says whether another epoch follows. */
static void sum_body(const brim_op_env *env)
{
    const uint32_t *in = env->access[0];
    uint32_t *out = env->access[1];
    out[0] = 0;
    out[1] = 0;
    for (int i = 0; i < NUMBERS; i++)
        out[1] += in[i];
}

static brim_status build(brim_program **out, brim_context *ctx, brim_op_table *ops)
{
    uint32_t square, sum, numbers = 0, squares = 0, result = 0, done = 0, queue = 0;
    brim_builder *b;
    brim_op_register(&square, ops, &(brim_op_desc){.name = "square", .body = square_body});
    brim_op_register(&sum, ops, &(brim_op_desc){.name = "sum", .body = sum_body, .step_end = true});
    brim_status status = brim_builder_create(&b, ctx, ops, "squares", 2);
    if (status != BRIM_OK)
        return status;
    brim_builder_buffer(
        &numbers, b,
        &(brim_buffer_desc){.name = "numbers", .size = 4 * NUMBERS, .role = BRIM_BUFFER_INPUT});
    brim_builder_buffer(
        &squares, b,
        &(brim_buffer_desc){.name = "squares", .size = 4 * NUMBERS, .role = BRIM_BUFFER_SCRATCH});
    brim_builder_buffer(
        &result, b, &(brim_buffer_desc){.name = "result", .size = 8, .role = BRIM_BUFFER_OUTPUT});
    brim_builder_counter(&done, b, "squared");
    brim_builder_queue(&queue, b, "pieces");
    for (uint32_t piece = 0; piece < PIECES; piece++) {
        brim_instruction in = brim_instruction_make(square);
        in.accesses[in.access_count++] =
            brim_access_make(BRIM_READ, numbers, 4 * EACH * piece, 4 * EACH);
        in.accesses[in.access_count++] =
            brim_access_make(BRIM_WRITE, squares, 4 * EACH * piece, 4 * EACH);
        in.signals[in.signal_count++] = done;
        brim_builder_piece(b, queue, &in);
    }
    brim_builder_take(b, 0, queue);
    brim_builder_take(b, 1, queue);
    brim_instruction end = brim_instruction_make(sum);
    end.waits[end.wait_count++] = (brim_wait){done, PIECES};
    end.accesses[end.access_count++] = brim_access_make(BRIM_READ, squares, 0, 4 * NUMBERS);
    end.accesses[end.access_count++] = brim_access_make(BRIM_WRITE, result, 0, 8);
    brim_builder_lane(b, 0, &end);
    status = brim_builder_finish(out, b);
    brim_builder_destroy(b);
    return status;
}

int main(void)
{
    brim_context *ctx = NULL;
    brim_op_table *ops = NULL;
    brim_program *program = NULL;
    brim_executor *executor = NULL;
    brim_status status = brim_context_create(&ctx, NULL);
    if (status == BRIM_OK)
        status = brim_op_table_create(&ops, ctx);
    if (status == BRIM_OK)
        status = build(&program, ctx, ops);
    if (status == BRIM_OK)
        status = brim_program_check(program, ctx, 10, NULL, NULL);
    if (status == BRIM_OK)
        status = brim_executor_create(&executor, ctx, program, NULL);
    if (status == BRIM_OK) {
        uint32_t *numbers = brim_executor_buffer(executor, 0, 0);
        for (uint32_t i = 0; i < NUMBERS; i++)
            numbers[i] = i;
        status = brim_executor_run(executor, 1);
    }
    if (status == BRIM_OK)
        printf("the squares of 0 to %d add up to %u\n", NUMBERS - 1,
               ((uint32_t *)brim_executor_buffer(executor, 2, 0))[1]);
    else
        fprintf(stderr, "program: %s\n", brim_last_message());
    brim_executor_destroy(executor);
    brim_program_destroy(program);
    brim_op_table_destroy(ops);
    brim_context_destroy(ctx);
    return status == BRIM_OK ? 0 : 1;
}
