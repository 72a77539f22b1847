/* brim/program.h: programs on lanes: build, check, run, trace, predict, dump and load.
 *
 * A lane executes instructions in order. A program holds a list of items for every lane (an
 * instruction, or "take pieces from this queue until it is empty"), queues of instructions that
 * any lane may take, buffers, tiled tensors, and counters. It is built once and run for many
 * steps; an epoch is one execution of the step. What changes from step to step is in buffers.
 *
 * Order comes from waits and signals alone: an instruction starts when each counter it waits for
 * has reached its value (relative to the epoch: every counter starts each epoch at 0), and signals
 * when its writes can be seen. Instructions of one lane's own list are also ordered by the list;
 * pieces of a queue are not ordered among themselves, nor with the lists of lanes.
 *
 * An instruction is pure: it reads its inputs, writes only its declared outputs, never accumulates
 * in place, and publishes once. So any lane may do it again when its owner was taken away.
 *
 * The last thing in an epoch is the step-end instruction: everything is ordered before it, it alone
 * writes the next epoch's inputs, and it says whether another epoch follows.
 */
#ifndef BRIM_PROGRAM_H
#define BRIM_PROGRAM_H

#include "brim/device.h"
#include "brim/dtype.h"
#include "brim/hw.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_NONE UINT32_MAX
#define BRIM_OPERANDS_MAX 24
#define BRIM_ACCESSES_MAX 10
#define BRIM_WAITS_MAX 4
#define BRIM_SIGNALS_MAX 2
/* Bounds on a program; a larger one is refused with BRIM_LIMIT. */
#define BRIM_LANES_MAX 1024
#define BRIM_INSTRUCTIONS_MAX 65536
#define BRIM_BUFFERS_MAX 65536
#define BRIM_COUNTERS_MAX 65536
/* The word of a packet that has not been written in this epoch. */
#define BRIM_PACKET_EMPTY UINT32_MAX

/* ---- what a program is made of ---- */

/* role, text. scratch: written and read within an epoch. input: read only, except that the step-end
 * instruction writes its next copy; filled by the host. state: kept from epoch to epoch, appended
 * to. output: written by the program, read by the host. const: never written. */
#define BRIM_BUFFER_ROLE_LIST(X)                                                                   \
    X(SCRATCH, "scratch")                                                                          \
    X(INPUT, "input")                                                                              \
    X(STATE, "state")                                                                              \
    X(OUTPUT, "output")                                                                            \
    X(CONST, "const")

typedef enum brim_buffer_role {
#define BRIM_BUFFER_ROLE_ENUM(name, text) BRIM_BUFFER_##name,
    BRIM_BUFFER_ROLE_LIST(BRIM_BUFFER_ROLE_ENUM)
#undef BRIM_BUFFER_ROLE_ENUM
} brim_buffer_role;

typedef struct brim_buffer_desc {
    const char *name; /* unique, at most 63 bytes */
    uint64_t size;    /* bytes of one copy, 1 .. 2^40 */
    brim_buffer_role role;
    bool parity; /* two copies: epoch e uses copy e % 2. Needed for next-epoch writes and packets */
    bool mapped; /* host and program both touch it while the program runs (mail, results): on a
                    device it lies in host memory that the device reaches */
} brim_buffer_desc;

/* layout, text. rows16: tiles of a multiple of 16 rows, for every type. mma8: tiles of 8 rows by
 * all columns, for F16 and BF16 with columns in a multiple of 32: what the resident ops read. */
#define BRIM_LAYOUT_LIST(X)                                                                        \
    X(ROWS16, "rows16")                                                                            \
    X(MMA8, "mma8")

typedef enum brim_layout {
#define BRIM_LAYOUT_ENUM(name, text) BRIM_LAYOUT_##name,
    BRIM_LAYOUT_LIST(BRIM_LAYOUT_ENUM)
#undef BRIM_LAYOUT_ENUM
} brim_layout;

/* A matrix stored as tiles, read-only, shared between programs. */
typedef struct brim_tensor_desc {
    const char *name; /* unique, at most 63 bytes */
    brim_dtype type;
    uint32_t rows, cols;
    brim_layout layout; /* default: rows16 */
} brim_tensor_desc;

typedef enum brim_access_kind { BRIM_READ, BRIM_WRITE, BRIM_APPEND } brim_access_kind;

enum {
    BRIM_ACCESS_NEXT = 1,      /* the copy of the next epoch (step-end only) */
    BRIM_ACCESS_PACKET = 2,    /* words are valid once they differ from BRIM_PACKET_EMPTY; size and
                                  offset multiples of 4 */
    BRIM_ACCESS_INJECTIVE = 4, /* the table's entries are distinct (proven by who fills it; verified
                                  each step in check mode) */
};

/* A region of a buffer: `count` runs of `size` bytes, run i at offset + i * stride; with a table,
 * at offset + table[i] * stride. The number of runs in use may come from a buffer: with
 * count_buffer, n = the u32 at count_offset there, and the runs used are those i < count with
 * count_first + i * count_step < n. A table is u32 entries in table_buffer from table_offset on,
 * each below table_limit. */
typedef struct brim_access {
    brim_access_kind kind;
    uint32_t flags;
    uint32_t buffer;
    uint32_t count;
    uint64_t offset, size, stride; /* stride >= size unless count is 1 */
    uint32_t count_buffer, count_offset, count_first,
        count_step;                                   /* count_buffer BRIM_NONE: all runs */
    uint32_t table_buffer, table_offset, table_limit; /* table_buffer BRIM_NONE: no table */
} brim_access;

/* Row blocks of a tensor, all columns: contiguous tiles. */
typedef struct brim_tile_run {
    uint32_t tensor; /* BRIM_NONE: the instruction reads no tiles */
    uint32_t first;  /* row block */
    uint32_t count;  /* row blocks */
} brim_tile_run;

typedef struct brim_wait {
    uint32_t counter;
    uint32_t value; /* signals of this epoch that must have come, at least 1 */
} brim_wait;

typedef struct brim_instruction {
    uint32_t op;
    uint16_t wait_count, signal_count, access_count, operand_count;
    brim_wait waits[BRIM_WAITS_MAX];
    uint32_t signals[BRIM_SIGNALS_MAX]; /* counters, each raised by one */
    int32_t operands[BRIM_OPERANDS_MAX];
    brim_access accesses[BRIM_ACCESSES_MAX];
    brim_tile_run runs[2]; /* unused: tensor BRIM_NONE */
} brim_instruction;

/* An instruction with nothing in it but its op. */
BRIM_API brim_instruction brim_instruction_make(uint32_t op);
/* A plain access: one run. */
BRIM_API brim_access brim_access_make(brim_access_kind kind, uint32_t buffer, uint64_t offset,
                                      uint64_t size);

/* ---- ops ---- */

typedef struct brim_program brim_program;

/* What a body sees. It may read its READ regions and tiles and write its own scratch, nothing else.
 */
typedef struct brim_op_env {
    const brim_program *program;
    const brim_instruction *instruction;
    /* READ: the buffer's copy at `offset` (runs as declared; for a packet a packed copy).
     * WRITE and APPEND: packed scratch, run i at i * size; what is in it is published afterwards.
     * APPEND of an op with its own append(): NULL, the body keeps the values in `scratch`. */
    void *const *access;
    uint32_t *run_counts; /* runs in use, for each access; a body may lower that of a write: only
                             the first runs are published */
    const void *const *tiles; /* first tile of runs[0] and runs[1] */
    void *scratch;            /* as many bytes as the op asked for, 64-byte aligned */
    uint64_t epoch;
    brim_isa isa;
    void *user;
} brim_op_env;

typedef struct brim_op_cost {
    double bytes;    /* read and written, tiles included */
    double flops;    /* float operations */
    double int8_ops; /* 8-bit integer operations */
} brim_op_cost;

typedef struct brim_op_desc {
    const char *name; /* unique, [a-z0-9_.] */
    /* Computes from env->access, tiles and operands into the packed scratch of its writes. */
    void (*body)(const brim_op_env *env);
    /* Fills `out`'s accesses, counts and runs from the operands (and what they name): what the op
     * will touch. The check refuses an instruction whose declared accesses differ. NULL: the
     * declared ones are taken as they are. Errors: REFUSED, id "op.operand". */
    brim_status (*derive)(brim_instruction *out, const brim_program *program,
                          const brim_instruction *in);
    /* Stores an APPEND access itself, given the real address of its buffer's copy (table lookups
     * are its business); NULL for ops without APPEND, or where APPEND runs are plain. */
    void (*append)(const brim_op_env *env, uint32_t access, void *buffer);
    void (*cost)(brim_op_cost *out, const brim_program *program,
                 const brim_instruction *in); /* may be NULL */
    size_t (*scratch_bytes)(const brim_program *program,
                            const brim_instruction *in); /* may be NULL */
    bool step_end; /* its first write region begins with a u32: 1 if another epoch follows */
    void *user;
} brim_op_desc;

/* The table of ops: the built-in ones, and the user range from BRIM_OP_USER on. Filled before it
 * is used, then read-only. */
#define BRIM_OP_USER 1024
typedef struct brim_op_table brim_op_table;
BRIM_API brim_status brim_op_table_create(brim_op_table **out, brim_context *ctx);
BRIM_API void brim_op_table_destroy(brim_op_table *table);
/* Registers a user op; its number in *out. Errors: USAGE (no body, a name that is taken or odd),
 * LIMIT. */
BRIM_API brim_status brim_op_register(uint32_t *out, brim_op_table *table,
                                      const brim_op_desc *desc);
/* NULL when there is none. */
BRIM_API const brim_op_desc *brim_op_get(const brim_op_table *table, uint32_t op);
BRIM_API uint32_t brim_op_find(const brim_op_table *table,
                               const char *name); /* BRIM_NONE when absent */

/* ---- building ---- */

typedef struct brim_builder brim_builder;

/* The table must outlive the builder and the program. Errors: USAGE (lanes 0 or above the limit).
 */
BRIM_API brim_status brim_builder_create(brim_builder **out, brim_context *ctx,
                                         const brim_op_table *ops, const char *name,
                                         uint32_t lane_count);
BRIM_API void brim_builder_destroy(brim_builder *builder);
BRIM_API brim_status brim_builder_buffer(uint32_t *out, brim_builder *builder,
                                         const brim_buffer_desc *desc);
BRIM_API brim_status brim_builder_tensor(uint32_t *out, brim_builder *builder,
                                         const brim_tensor_desc *desc);
BRIM_API brim_status brim_builder_counter(uint32_t *out, brim_builder *builder, const char *name);
BRIM_API brim_status brim_builder_queue(uint32_t *out, brim_builder *builder, const char *name);
/* Appends to a lane's list. */
BRIM_API brim_status brim_builder_lane(brim_builder *builder, uint32_t lane,
                                       const brim_instruction *instruction);
/* Appends to a queue. */
BRIM_API brim_status brim_builder_piece(brim_builder *builder, uint32_t queue,
                                        const brim_instruction *instruction);
/* Appends "take from this queue until it is empty" to a lane's list. */
BRIM_API brim_status brim_builder_take(brim_builder *builder, uint32_t lane, uint32_t queue);
/* Lets the op's derive() fill an instruction's accesses and runs. */
BRIM_API brim_status brim_builder_derive(brim_builder *builder, brim_instruction *instruction);
/* Makes the program; the builder is empty afterwards. Only shape errors are found here (an index
 * that names nothing); brim_program_check() does the rest. */
BRIM_API brim_status brim_builder_finish(brim_program **out, brim_builder *builder);
BRIM_API void brim_program_destroy(brim_program *program);

BRIM_API const char *brim_program_name(const brim_program *program);
BRIM_API uint32_t brim_program_lane_count(const brim_program *program);
BRIM_API uint32_t brim_program_instruction_count(const brim_program *program);
BRIM_API const brim_instruction *brim_program_instruction(const brim_program *program,
                                                          uint32_t index);
BRIM_API uint32_t brim_program_buffer_count(const brim_program *program);
BRIM_API const brim_buffer_desc *brim_program_buffer(const brim_program *program, uint32_t index);
BRIM_API uint32_t brim_program_buffer_find(const brim_program *program, const char *name);
BRIM_API uint32_t brim_program_tensor_count(const brim_program *program);
BRIM_API const brim_tensor_desc *brim_program_tensor(const brim_program *program, uint32_t index);

/* ---- check ---- */

typedef struct brim_finding {
    const char *id; /* "check.deadlock", "check.race", "check.bounds", "check.uninitialised", ... */
    uint32_t instruction; /* BRIM_NONE: the whole program */
    uint32_t other;       /* the second instruction of a conflict, or BRIM_NONE */
    char text[240];
} brim_finding;

/* Proves that the program cannot deadlock, has no two unordered conflicting accesses, no operand or
 * region out of bounds, no read of what was not written, and that its declared accesses are those
 * of its ops. Calls `report` for each finding (at most `limit`). BRIM_OK when there is none, else
 * REFUSED with the first finding as the message. LIMIT when the program is too large to check. */
BRIM_API brim_status brim_program_check(const brim_program *program, brim_context *ctx,
                                        uint32_t limit,
                                        void (*report)(const brim_finding *finding, void *user),
                                        void *user);

/* ---- files ---- */

/* The program as JSON text ("brim-program" format, docs/program.md), freed with brim_free(). */
BRIM_API brim_status brim_program_dump(char **out, size_t *out_size, const brim_program *program,
                                       brim_context *ctx);
/* Errors: FORMAT, ids "program.*", with the path of the JSON value
 * ("queues[0].instructions[12].waits[0].counter"); LIMIT. */
BRIM_API brim_status brim_program_parse(brim_program **out, brim_context *ctx,
                                        const brim_op_table *ops, const char *json, size_t size);

/* ---- run ---- */

/* cuda: one persistent kernel, a lane a multiprocessor, for programs of the resident ops ("r.*",
 * docs/program.md). */
typedef enum brim_executor_kind {
    BRIM_EXECUTOR_REFERENCE,
    BRIM_EXECUTOR_CPU,
    BRIM_EXECUTOR_CUDA,
} brim_executor_kind;

typedef struct brim_executor_desc {
    brim_executor_kind kind;
    brim_isa isa;      /* bodies to use; default: the best there is (reference: scalar) */
    bool pin;          /* CPU: binds lane i to the i-th allowed CPU */
    bool check_tables; /* verifies table bounds and injectivity each step, and (CPU) redoes pieces
                          to compare bits */
    uint64_t seed;     /* reference: picks the order; CPU: picks pieces to redo */
    uint32_t
        redo_per_mille;  /* CPU: pieces redone at random by idle lanes though not overdue (tests) */
    uint32_t overdue_us; /* CPU: a piece is overdue after this plus twice its cost; default 20 */
    uint32_t trace_events; /* events kept a lane; 0: no trace */
    brim_device *device;   /* CUDA: where it runs; must outlive the executor. Else NULL */
    uint32_t watchdog_ms;  /* CUDA: a lane that waits longer ends the run; default 2,000 */
    uint32_t ring_bytes;   /* CUDA: of shared memory for weights on their way; 0: all there is */
    bool generic_image;    /* CUDA: the image for all architectures, even where there is a better */
    uint32_t do_not_set;
} brim_executor_desc;

typedef struct brim_executor brim_executor;

BRIM_API brim_executor_desc brim_executor_desc_default(void);
/* Makes an executor; a CPU executor starts its lanes' threads, which sleep. All memory it will need
 * is allocated here. The program must have passed the check and must outlive it.
 * Buffers start as zeros, scratch excepted (packets: empty); tensors must be bound before the first
 * run. */
BRIM_API brim_status brim_executor_create(brim_executor **out, brim_context *ctx,
                                          const brim_program *program,
                                          const brim_executor_desc *desc);
BRIM_API void brim_executor_destroy(brim_executor *executor);
/* Uses the caller's memory (64-byte aligned; two copies one after the other, each rounded up to 64
 * bytes, if it has parity) for a buffer, or its tiles for a tensor. Only while nothing runs. */
BRIM_API brim_status brim_executor_bind_buffer(brim_executor *executor, uint32_t buffer,
                                               void *memory);
BRIM_API brim_status brim_executor_bind_tensor(brim_executor *executor, uint32_t tensor,
                                               const void *tiles);
/* The same with memory of the executor's device (of a CPU executor: memory that the host can touch),
 * from `offset` on, a multiple of 64. Several executors may share it. Errors: USAGE (another device,
 * too small). */
BRIM_API brim_status brim_executor_bind_memory(brim_executor *executor, uint32_t buffer,
                                               brim_device_memory *memory, uint64_t offset);
BRIM_API brim_status brim_executor_bind_tensor_memory(brim_executor *executor, uint32_t tensor,
                                                      brim_device_memory *memory, uint64_t offset);
/* Copies bytes of the copy of a buffer that epoch `epoch` uses; works for every executor. Only while
 * nothing runs. Errors: USAGE (past the end), those of the device. */
BRIM_API brim_status brim_executor_read(brim_executor *executor, void *out, uint32_t buffer,
                                        uint64_t epoch, uint64_t offset, uint64_t size);
/* Fills every buffer that is an input, a state or a constant, and every tensor that is not bound,
 * with values made from a seed, so that a program from a file can run: `brim program run`. Owned by
 * the executor. */
BRIM_API brim_status brim_executor_fill(brim_executor *executor, uint64_t seed);
/* The copy of a buffer that epoch `epoch` uses; NULL where the host can't touch it: on a device,
 * only inputs (which go there at every start), mapped buffers, and what the host has bound. */
BRIM_API void *brim_executor_buffer(brim_executor *executor, uint32_t buffer, uint64_t epoch);
/* The epoch that runs now or next; starts at 0. */
BRIM_API uint64_t brim_executor_epoch(const brim_executor *executor);

/* Starts epochs: one after another until step-end says stop, `limit` epochs are done, or it is
 * cancelled. Returns at once. Errors: STATE (running; a tensor not bound). */
BRIM_API brim_status brim_executor_start(brim_executor *executor, uint64_t limit);
/* Waits until `epoch` has ended or nothing runs any more. timeout_ns 0: no limit. True if it has
 * ended. */
BRIM_API bool brim_executor_wait_epoch(brim_executor *executor, uint64_t epoch,
                                       uint64_t timeout_ns);
/* Waits for the end of what was started. Errors: CANCELLED; REFUSED, id "run.table" (check mode),
 * "run.stuck" (reference: nothing can go on; names what waits for what), "run.impure" (check mode:
 * a piece gave other bits when done again). */
BRIM_API brim_status brim_executor_wait(brim_executor *executor);
/* start and wait. */
BRIM_API brim_status brim_executor_run(brim_executor *executor, uint64_t limit);
/* Ends what runs at the next instruction boundary: pieces are skipped, the epoch still ends. From
 * any thread or a signal handler. */
BRIM_API void brim_executor_cancel(brim_executor *executor);

/* Reference executor: at most `limit` further instructions of the present epoch; *out_last is the
 * last one done (BRIM_NONE: none). The epoch goes on with the next call. True in *out_ended when
 * the epoch has ended. */
BRIM_API brim_status brim_executor_advance(uint32_t *out_last, bool *out_ended,
                                           brim_executor *executor, uint64_t limit);

typedef struct brim_executor_stats {
    uint64_t instructions; /* done */
    uint64_t helped;       /* ready pieces done for a lane that had not begun them */
    uint64_t redone;       /* pieces done again because they were overdue */
    uint64_t redo_lost;    /* of those, finished by the owner first */
    uint64_t sleeps;
} brim_executor_stats;
BRIM_API brim_executor_stats brim_executor_get_stats(const brim_executor *executor);

/* ---- trace ---- */

typedef struct brim_trace_event {
    uint64_t epoch;
    uint32_t instruction;
    uint32_t lane;
    uint64_t taken_ns, started_ns,
        ended_ns;   /* taken, inputs ready, published; from the executor's creation */
    uint32_t flags; /* 1: done for another lane, 2: done again, 4: lost the race */
} brim_trace_event;

/* Events of a lane, oldest first; the ring keeps the last trace_events. Only while nothing runs. */
BRIM_API size_t brim_executor_trace(const brim_trace_event **out, brim_executor *executor,
                                    uint32_t lane);
/* Writes Chrome/Perfetto JSON, or an SVG timeline with a row a lane. Errors: IO, STATE (no trace).
 */
BRIM_API brim_status brim_trace_write_json(brim_executor *executor, const char *path);
BRIM_API brim_status brim_trace_write_svg(brim_executor *executor, const char *path);
/* The same picture of events that brim_program_predict() gave; `title` stands above it. Errors: IO,
 * USAGE (an event of a lane or instruction that the program does not have). */
BRIM_API brim_status brim_trace_write_events_svg(const brim_program *program, brim_context *ctx,
                                                 const brim_trace_event *events, size_t count,
                                                 const char *title, const char *path);

/* ---- predict ---- */

typedef struct brim_prediction {
    double total_us; /* of one epoch */
    double busy_us;  /* summed over lanes: inside instructions */
    double bytes, flops, int8_ops;
    double bandwidth_bound_us; /* bytes over the machine's bandwidth */
    uint32_t critical_count;   /* instructions on the longest chain */
} brim_prediction;

/* Simulates one epoch on a machine description. `events` (may be NULL) gets up to `event_capacity`
 * events. Errors: REFUSED (a program that gets stuck), USAGE. */
BRIM_API brim_status brim_program_predict(brim_prediction *out, const brim_program *program,
                                          brim_context *ctx, const brim_machine *machine,
                                          brim_trace_event *events, size_t event_capacity,
                                          size_t *out_event_count);

#ifdef __cplusplus
}
#endif
#endif
