/* brim/llm.h: language models: weights as tiles, runners (lanes, programs, KV pool), sessions.
 *
 * A brim_llm is a model's weights, read-only and shared. A brim_runner executes it: it owns the
 * lanes, one program for few rows (decode) and one for many (prefill), and a pool of KV blocks. A
 * brim_session is one timeline in a runner: its tokens, its KV blocks, its position.
 *
 * Weights may live on a device (brim_llm_desc.device): then they are 16-bit floats, and the runner
 * has resident programs, of 1 and of 8 rows, which a GPU executes as one kernel, a lane a
 * multiprocessor. The CPU executes the same programs if the device is the CPU.
 *
 * The same tokens give the same bits of logits whatever the number of lanes, the way in which a
 * prompt is split into steps, and the other sessions in a step.
 *
 * One thread at a time may use a runner and its sessions, except where a function says otherwise.
 */
#ifndef BRIM_LLM_H
#define BRIM_LLM_H

#include "brim/program.h"
#include "brim/token.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- weights ---- */

typedef struct brim_llm brim_llm;

typedef struct brim_llm_desc {
    uint32_t threads; /* for making tiles; 0: all CPUs */
    void (*progress)(uint64_t done, uint64_t total,
                     void *user); /* bytes; may be NULL; one thread at a time */
    void *user;
    /* Where the weights live. NULL: in the host's memory, in the file's own quantisation. Else all
     * of them in one block of this device's memory, as 16-bit floats, for programs that keep the
     * whole token on the device; it must outlive the model. */
    brim_device *device;
    /* With a device: what its runners will have, so that memory is checked before weights are
     * copied. 0: as brim_runner_desc. */
    uint32_t context, sessions;
    uint32_t do_not_set;
} brim_llm_desc;

BRIM_API brim_llm_desc brim_llm_desc_default(void);
/* Reads the architecture and turns every matrix into tiles; the file's pages are let go as it
 * goes, and the file may be closed afterwards. Errors: those of brim_model_config_read();
 * FORMAT, id "llm.values" (a norm or bias that is not finite); NO_MEMORY. With a device:
 * UNSUPPORTED, ids "resident.model" (what its programs lack), "tile.range" (a weight beyond F16);
 * NO_MEMORY, id "resident.memory" (how much is needed, free and missing), before anything is
 * copied. */
BRIM_API brim_status brim_llm_create(brim_llm **out, brim_context *ctx, const brim_model_file *file,
                                     const brim_llm_desc *desc);
BRIM_API void brim_llm_destroy(brim_llm *llm);
BRIM_API const brim_model_config *brim_llm_config(const brim_llm *llm);
/* Bytes of tiles read for one decoded token (all layers and the head). */
BRIM_API uint64_t brim_llm_decode_bytes(const brim_llm *llm);
/* The device of the weights; NULL when they are tiles in the host's memory. */
BRIM_API brim_device *brim_llm_device(const brim_llm *llm);
/* The type of the weights there: BF16 if every matrix of the file is, else F16. False without a
 * device. */
BRIM_API bool brim_llm_device_type(brim_dtype *out, const brim_llm *llm);

/* ---- runners ---- */

/* default: activations rounded to 16 bits a block of 32, KV cache in f16.
 * exact: float32 activations and KV cache.
 * resident: that of models whose weights live on a device: weights and activations of one 16-bit
 * float type, sums in float32 in the order of a matrix unit, KV cache in f16. It is taken for such
 * models, and cannot be asked of others. */
#define BRIM_NUMERICS_LIST(X)                                                                      \
    X(DEFAULT, "default")                                                                          \
    X(EXACT, "exact")                                                                              \
    X(RESIDENT, "resident")

typedef enum brim_numerics {
#define BRIM_NUMERICS_ENUM(name, text) BRIM_NUMERICS_##name,
    BRIM_NUMERICS_LIST(BRIM_NUMERICS_ENUM)
#undef BRIM_NUMERICS_ENUM
} brim_numerics;
BRIM_API const char *brim_numerics_name(brim_numerics numerics);
BRIM_API bool brim_numerics_parse(brim_numerics *out, const char *name);

typedef struct brim_runner brim_runner;

typedef struct brim_runner_desc {
    uint32_t lanes;         /* 0: one a CPU that this process may use; CUDA: one a multiprocessor */
    uint32_t context;       /* positions a session may have; 0: the trained length, at most 4,096 */
    uint32_t sessions;      /* at most that many at a time; default 1 */
    uint32_t kv_blocks;     /* of 32 positions, for all sessions; 0: enough for all of them */
    uint32_t prefill_rows;  /* rows of a prefill step; default 64; resident: always 8 */
    brim_numerics numerics; /* default: of models with a device, resident */
    brim_executor_desc executor; /* its kind and device follow from a model's CUDA device */
    bool
        skip_check; /* do not check the programs (they are checked by default: some milliseconds) */
    bool
        long_programs; /* resident: those for long contexts at every position (a test: same bits) */
    uint32_t do_not_set;
} brim_runner_desc;

#define BRIM_DECODE_ROWS 8 /* rows of the decode program */

BRIM_API brim_runner_desc brim_runner_desc_default(void);
/* Errors: USAGE (context above what RoPE's table may hold, rows out of range; id "runner.numerics":
 * not those of this model), NO_MEMORY (id "resident.memory": the device's), REFUSED (a program that
 * does not pass its check). */
BRIM_API brim_status brim_runner_create(brim_runner **out, brim_context *ctx, const brim_llm *llm,
                                        const brim_runner_desc *desc);
/* Every session must be destroyed before. */
BRIM_API void brim_runner_destroy(brim_runner *runner);
BRIM_API uint32_t brim_runner_lanes(const brim_runner *runner);
BRIM_API uint32_t brim_runner_context(const brim_runner *runner);
BRIM_API uint64_t brim_runner_kv_bytes(const brim_runner *runner); /* of the pool, touched or not */
/* The numerics that it has. */
BRIM_API brim_numerics brim_runner_numerics(const brim_runner *runner);
/* The programs and their executors, for trace, dump and statistics. Of a resident runner: those of
 * 1 row, and of 8 rows, for contexts that are not long. */
BRIM_API const brim_program *brim_runner_program(const brim_runner *runner, bool prefill);
BRIM_API brim_executor *brim_runner_executor(brim_runner *runner, bool prefill);
/* Ends the step that runs at the next instruction boundary. From any thread or a signal handler. */
BRIM_API void brim_runner_cancel(brim_runner *runner);

/* ---- sessions ---- */

typedef struct brim_session brim_session;

/* Errors: LIMIT, id "session.limit" (the runner has no free place). */
BRIM_API brim_status brim_session_create(brim_session **out, brim_runner *runner);
BRIM_API void brim_session_destroy(brim_session *session);
/* Tokens in the KV cache, and those tokens. */
BRIM_API uint32_t brim_session_length(const brim_session *session);
BRIM_API brim_token brim_session_token(const brim_session *session, uint32_t position);
/* Forgets every position from `length` on. USAGE if it is longer than the session. */
BRIM_API brim_status brim_session_truncate(brim_session *session, uint32_t length);
/* Forgets the oldest tokens: keeps the first `keep` and the last `tail`, which are evaluated again
 * at their new positions (prefill of `tail` tokens). This is what --shift does. */
BRIM_API brim_status brim_session_shift(brim_session *session, uint32_t keep, uint32_t tail);

typedef struct brim_row {
    brim_session *session;
    brim_token
        token;   /* goes to the next position of the session: rows of one session stand in order */
    bool logits; /* this row's logits are wanted */
} brim_row;

/* Evaluates rows of any sessions in one step. count is at most the runner's prefill_rows (or 8, if
 * larger). *out_logits (may be NULL) gets the logits of the rows that want them, in the order of
 * the rows: float32 (wanted, stride), the stride in *out_stride (may be NULL); valid until the
 * runner's next step. Errors: USAGE (a token outside the vocabulary); LIMIT, ids "session.full"
 * (context), "session.blocks" (pool): nothing was evaluated; CANCELLED: nothing was added. */
BRIM_API brim_status brim_runner_step(brim_runner *runner, const brim_row *rows, uint32_t count,
                                      const float **out_logits, size_t *out_stride);

/* Evaluates tokens at the end of a session, in steps of at most prefill_rows. With `logits` each
 * position's logits are handed over (float32, vocab values); a callback that returns false ends it
 * there (CANCELLED). */
BRIM_API brim_status
brim_session_feed(brim_session *session, const brim_token *tokens, uint32_t count,
                  bool (*logits)(uint32_t position, const float *logits, void *user), void *user);

/* ---- generation ---- */

typedef struct brim_sampling {
    float temperature;    /* 0: greedy; 0 .. 100 */
    uint32_t top_k;       /* 0: off */
    float top_p;          /* (0, 1]; 1: off */
    float min_p;          /* [0, 1]; 0: off */
    float repeat_penalty; /* (0, 10]; 1: off */
    uint32_t repeat_last; /* tokens that the penalty looks back at; default 64 */
    uint64_t seed;
} brim_sampling;

/* Temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, no penalty, seed 0. */
BRIM_API brim_sampling brim_sampling_default(void);

typedef struct brim_generated {
    brim_token token;
    bool ended;           /* an end token: generation stops after it */
    uint64_t logits_hash; /* of the logits it was chosen from, if asked for */
} brim_generated;

typedef struct brim_generate_desc {
    brim_sampling sampling;
    uint32_t max_tokens; /* 0: until the context is full */
    bool hash_logits;
    brim_token ends[31]; /* tokens that end generation */
    uint32_t end_count;
    /* Called for each token as it comes; false stops (tokens that ran ahead are forgotten). */
    bool (*token)(const brim_generated *generated, void *user);
    void *user;
    uint32_t do_not_set;
} brim_generate_desc;

typedef struct brim_generate_stats {
    uint32_t prompt_tokens, tokens;
    uint64_t prefill_ns, first_token_ns, decode_ns; /* decode: from the first token to the last */
    bool ended;                                     /* by an end token */
    bool full;                                      /* the context is full */
    uint64_t logits_hash; /* combined over the generated tokens, if asked for */
} brim_generate_stats;

BRIM_API brim_generate_desc brim_generate_desc_default(void);
/* Puts the tokenizer's end tokens into desc->ends. */
BRIM_API void brim_generate_ends(brim_generate_desc *desc, const brim_tokenizer *tokenizer);

/* Evaluates the prompt (at least one token), then generates. The generated tokens are in the
 * session afterwards, the last one excepted: it was not evaluated. Errors: those of
 * brim_runner_step(); USAGE (sampling out of range, no prompt). With CANCELLED the session holds
 * what had been evaluated. */
BRIM_API brim_status brim_session_generate(brim_generate_stats *out, brim_session *session,
                                           const brim_token *prompt, uint32_t prompt_count,
                                           const brim_generate_desc *desc);

/* Decodes several sessions in one step each, greedily or by their desc's sampling: sessions[i]
 * continues from tokens[i] (evaluated first), for `steps` tokens each, or fewer if one ends (then
 * all stop there). out is (steps, count) tokens, *out_steps what was made. */
BRIM_API brim_status brim_runner_decode(brim_token *out, uint32_t *out_steps, brim_runner *runner,
                                        brim_session *const *sessions, const brim_token *tokens,
                                        uint32_t count, uint32_t steps,
                                        const brim_generate_desc *desc);

/* ---- text as it comes ---- */

/* Turns pieces of bytes into text that may be shown: holds back incomplete UTF-8 and what may be
 * the beginning of a stop string; bytes that are not UTF-8 become U+FFFD. */
typedef struct brim_text_stream brim_text_stream;

/* stops: 0-terminated strings, copied; at most 16, each 1 to 256 bytes. */
BRIM_API brim_status brim_text_stream_create(brim_text_stream **out, brim_context *ctx,
                                             const char *const *stops, size_t stop_count);
BRIM_API void brim_text_stream_destroy(brim_text_stream *stream);
/* Takes bytes; *out (0-terminated, may be empty) is text that may be shown, valid until the next
 * call. *out_stopped: a stop string was found; text before it is handed out, the string and what
 * follows are dropped, and later calls give nothing. */
BRIM_API brim_status brim_text_stream_push(const char **out, size_t *out_size, bool *out_stopped,
                                           brim_text_stream *stream, const char *bytes,
                                           size_t size);
/* The end: hands out what was held back; an incomplete character becomes U+FFFD. */
BRIM_API brim_status brim_text_stream_finish(const char **out, size_t *out_size,
                                             brim_text_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
