/* model_open.h: what run, bench and perplexity share: a model opened from a name, and a runner made
 * from the options that say how it is executed.
 */
#ifndef BRIM_CLI_MODEL_OPEN_H
#define BRIM_CLI_MODEL_OPEN_H

#include "brim/hw.h"
#include "brim/llm.h"
#include "cli.h"

typedef struct cli_model {
    cli *c;
    char path[CLI_PATH_MAX];
    brim_model_file *file; /* NULL after cli_model_load() */
    brim_tokenizer *tokenizer;
    brim_llm *llm;
    brim_runner *runner; /* NULL before cli_model_runner() */
    brim_numerics numerics;
    brim_device *device;   /* of the weights; NULL: the CPU, with tiles of the file's own types */
    bool on_gpu;           /* false with a device: the GPU's programs, on the CPU */
    char device_name[160]; /* "cpu", "cuda:0", "resident" */
    char device_model[96]; /* "NVIDIA H200"; "" for the CPU */
} cli_model;

/* How a model is executed. Zero, in every number, is the default of brim_runner_desc. */
typedef struct cli_execution {
    int64_t threads, lanes, prefill_rows, redo_per_mille, seed_order;
    const char *device; /* NULL: as $BRIM_DEVICE says, else auto */
    uint32_t context;   /* positions that the runner will have; 0: the default */
    int numerics;       /* index in the words of the option; a brim_numerics */
    int executor;       /* 0: CPU, 1: reference */
    int isa;            /* a brim_isa; -1: the executor's own choice */
    bool pin;
    uint32_t trace_events;
} cli_execution;

#define CLI_EXECUTION_DEFAULT                                                                      \
    {                                                                                              \
        .isa = -1                                                                                  \
    }

/* clang-format off */
#define CLI_EXECUTION_OPTIONS(x)                                                                   \
    CLI_TEXT("device", 0, "cpu|cuda[:N]|auto", &(x)->device,                                       \
             "where the model runs (default: $BRIM_DEVICE, else auto: a GPU if there is one)"),    \
    CLI_INT("lanes", 0, "N", &(x)->lanes, 1, BRIM_LANES_MAX,                                       \
            "lanes of the program (default: one a thread; on a GPU one a multiprocessor)"),        \
    CLI_CHOICE("numerics", 0, "default|exact", &(x)->numerics,                                     \
               "exact: float32 activations and KV cache, slower"),                                 \
    CLI_CHOICE("executor", 0, "cpu|reference", &(x)->executor,                                     \
               "reference: one thread, plain C, very slow, the same bits"),                        \
    CLI_CHOICE("isa", 0, "scalar|avx2|avx512", &(x)->isa,                                          \
               "instruction set (default: the best there is)"),                                    \
    CLI_FLAG("pin", 0, &(x)->pin, "bind each thread to one CPU"),                                  \
    CLI_INT("prefill-rows", 0, "N", &(x)->prefill_rows, 1, 512,                                    \
            "tokens of a prompt in one step (default: 64)"),                                       \
    CLI_INT("redo-per-mille", 0, "N", &(x)->redo_per_mille, 0, 1000,                               \
            "do so many pieces twice, by chance (a test: same bits)"),                             \
    CLI_INT("seed-order", 0, "N", &(x)->seed_order, 0, INT64_MAX,                                  \
            "picks the reference's order and the pieces done twice")
/* clang-format on */

/* Opens the file, the tokenizer and nothing else. False: the failure was printed and *code is the
 * exit code; cli_model_done() is called in either case. */
bool cli_model_open(cli_model *m, cli *c, const char *name, int *code);
/* Opens the device and puts the weights there, with a progress bar, and closes the file. Says what
 * it uses, unless that is the CPU because there is no GPU. */
bool cli_model_load(cli_model *m, const cli_execution *x, int *code);
/* Makes a runner for one session of x->context positions. */
bool cli_model_runner(cli_model *m, const cli_execution *x, int *code);
void cli_model_runner_done(cli_model *m);
void cli_model_done(cli_model *m);
/* The model's own name, or its file's. */
const char *cli_model_name(const cli_model *m);

/* The first Ctrl-C cancels what the model's runner does; cli_interrupts() says that it came. */
void cli_model_catch_interrupt(const cli_model *m);

/* Bytes of KV cache read by a step that evaluates the token at `position`. */
double cli_model_kv_read(const cli_model *m, uint64_t position);

/* The best read bandwidth of the cached probe of where the model runs, in GB/s, and its age; false
 * when there is none. */
bool cli_model_bandwidth(const cli_model *m, double *out_gb_s, double *out_age_s);
/* "12 minutes ago" */
void cli_age_text(char out[32], double seconds);

#endif
