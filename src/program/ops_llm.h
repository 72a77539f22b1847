/* ops_llm.h: the operands of the language-model ops, and the words of the step buffer.
 *
 * A step has up to R rows; a row is one token of one sequence. The step buffer (input, parity) is
 * u32 words: the header below, then four arrays of R words. What is in it changes from step to
 * step; instructions never do.
 */
#ifndef BRIM_OPS_LLM_H
#define BRIM_OPS_LLM_H

#include "program/ops.h"
#include "kernels/sample.h"

/* Words of the step buffer's header. */
enum {
    STEP_RUN,   /* written by step-end: 1 if another epoch follows */
    STEP_ROWS,  /* rows in use, 1 .. R */
    STEP_OUT,   /* rows whose logits are wanted, 0 .. R */
    STEP_CHAIN, /* 1: step-end makes the next step from what was sampled */
    STEP_RING,  /* entry of the result ring that this step fills */
    STEP_HEADER = 16,
};
/* Arrays behind the header, each of R words. */
enum {
    STEP_TOKEN,    /* the row's token */
    STEP_POSITION, /* its position in its sequence */
    STEP_SLOT,     /* its sequence: row of the block table, of the history and of the parameters */
    STEP_OUT_ROW,  /* out row i is row STEP_OUT_ROW[i] */
    STEP_ARRAYS,
};
static inline uint32_t brim__step_word(uint32_t array, uint32_t rows, uint32_t row)
{
    return STEP_HEADER + array * rows + row;
}
static inline uint64_t brim__step_bytes(uint32_t rows)
{
    return 4 * (uint64_t)brim__step_word(STEP_ARRAYS, rows, 0);
}

/* A sampled token; an entry of the result ring is R of them after a header of the same size
 * whose `token` is the number of out rows. */
typedef struct brim__sampled {
    uint32_t token;
    uint32_t ended; /* 1: an end token, 2: the last position granted */
    uint64_t hash;  /* of the logits, if the parameters ask for it */
} brim__sampled;
enum { RESULT_RING = 64 };

/* Shared by all: buffers and sizes come as operands. Names are indices into instruction.operands.
 */
enum {
    EMBED_STEP,
    EMBED_X,
    EMBED_HISTORY,
    EMBED_TENSOR,
    EMBED_ROWS,
    EMBED_CONTEXT,
    EMBED_SLOTS,
    EMBED_COUNT
};

enum {
    NORM_STEP,
    NORM_X,
    NORM_WEIGHT,
    NORM_OUT,
    NORM_ACT,
    NORM_COLS,
    NORM_ROWS,
    NORM_EPSILON, /* float bits */
    NORM_GATHER,  /* 1: row i of the output is x[out_row[i]] */
    NORM_FIRST,
    NORM_BY, /* rows first, first + by, ... */
    NORM_COUNT
};

enum {
    QKV_STEP,
    QKV_TABLES,
    QKV_IN,
    QKV_OUT, /* query: the q buffer; key and value: the KV pool */
    QKV_TENSOR,
    QKV_ROPE,
    QKV_BIAS,
    QKV_HEAD_NORM, /* BRIM_NONE as -1 */
    QKV_ACT,
    QKV_ROWS,
    QKV_KIND, /* 0 query, 1 key, 2 value */
    QKV_HEAD_FIRST,
    QKV_HEAD_COUNT,
    QKV_HEAD_SIZE,
    QKV_HEADS, /* of the tensor */
    QKV_LAYER,
    QKV_BLOCKS,
    QKV_BLOCKS_MAX,
    QKV_KV_F32,
    QKV_ROPE_SIZE,
    QKV_ROPE_HALVES,
    QKV_EPSILON,
    QKV_SLOTS,
    QKV_COUNT
};

enum {
    ATTN_STEP,
    ATTN_TABLES,
    ATTN_Q,
    ATTN_KV,
    ATTN_OUT,
    ATTN_ROWS,
    ATTN_LAYER,
    ATTN_KV_HEADS,
    ATTN_GROUP,
    ATTN_HEAD_SIZE,
    ATTN_KV_F32,
    ATTN_BLOCKS,
    ATTN_BLOCKS_MAX,
    ATTN_WINDOW,
    ATTN_SCALE, /* float bits */
    ATTN_ACT,   /* attn, attn.combine */
    ATTN_FIRST,
    ATTN_BY,    /* attn.split: piece and pieces; attn, attn.combine: rows first, first + by ... */
    ATTN_HEAD,  /* attn: the KV head */
    ATTN_SLOTS, /* sequences: rows of the block table */
    ATTN_COUNT
};

enum {
    MM_STEP,
    MM_IN,
    MM_OUT,
    MM_ADD, /* matmul.add: what is added */
    MM_TENSOR,
    MM_TENSOR2, /* gate.up: gate and up */
    MM_ACT,
    MM_ROWS,
    MM_COLS,
    MM_FIRST,
    MM_END,      /* output columns */
    MM_OUT_COLS, /* of the whole output row */
    MM_OUT_ACT,  /* gate.up */
    MM_BY_OUT,   /* 1: rows counted by STEP_OUT */
    MM_COUNT
};

enum {
    SAMPLE_STEP,
    SAMPLE_LOGITS,
    SAMPLE_PARAMS,
    SAMPLE_HISTORY,
    SAMPLE_OUT,
    SAMPLE_ROWS,
    SAMPLE_VOCAB,
    SAMPLE_LOGIT_COLS,
    SAMPLE_CONTEXT,
    SAMPLE_SLOTS,
    SAMPLE_FIRST,
    SAMPLE_BY,
    SAMPLE_COUNT
};

enum {
    END_STEP,
    END_SAMPLED,
    END_PARAMS,
    END_ENDS,
    END_MAIL,
    END_RESULT,
    END_ROWS,
    END_SLOTS,
    END_COUNT
};
enum { ENDS_MAX = 31 }; /* the ends buffer: a count, then as many token ids */

/* Bytes of an attention partial of one query head, and of an item (a KV head's group). */
static inline uint64_t brim__part_bytes(uint32_t head_size)
{
    return 4 * (uint64_t)(head_size + 2);
}
/* Items that one piece of attn.split may have. */
static inline uint32_t brim__attn_items(uint32_t rows, uint32_t kv_heads, uint32_t blocks_max,
                                        uint32_t pieces)
{
    uint32_t splits = (blocks_max * BRIM__KV_BLOCK + BRIM__ATTN_SPLIT - 1) / BRIM__ATTN_SPLIT;
    return (rows * kv_heads * splits + pieces - 1) / pieces;
}
/* Bytes of one block of one part (K or V of a layer's KV head), and of a part. */
static inline uint64_t brim__kv_block_bytes(uint32_t head_size, bool f32)
{
    return (uint64_t)BRIM__KV_BLOCK * head_size * (f32 ? 4 : 2);
}

/* Bytes of a row of activations that are used: a row's stride is rounded up, brim__act_row_bytes().
 */
static inline uint64_t brim__act_bytes(int32_t act, uint32_t cols)
{
    return act == BRIM__ACT_Q16 ? cols / 32 * sizeof(brim__q16) : 4 * (uint64_t)cols;
}

/* What derive() functions build accesses with. */
typedef struct brim__deriving {
    brim_instruction *out;
    const brim_program *program;
    brim_status status;
} brim__deriving;

/* Adds an access; a buffer index that names nothing makes the derivation fail. */
brim_access *brim__derive_access(brim__deriving *d, brim_access_kind kind, int32_t buffer,
                                 uint64_t offset, uint64_t size);
/* The whole buffer, read. */
void brim__derive_whole(brim__deriving *d, int32_t buffer);
/* Rows first, first + by, ... below the step buffer's word `count_word` (at most `rows`): of
 * row_bytes each, from `offset` on `size` bytes. */
brim_access *brim__derive_rows(brim__deriving *d, brim_access_kind kind, int32_t buffer,
                               int32_t step, uint32_t count_word, uint32_t rows, uint32_t first,
                               uint32_t by, uint64_t row_bytes, uint64_t offset, uint64_t size);
/* Rows [first, end) of a tensor as a tile run; they must be whole row blocks (the end may be the
 * matrix's). */
void brim__derive_run(brim__deriving *d, unsigned run, int32_t tensor, uint32_t first,
                      uint32_t end);
/* Fails with id "op.operand" unless `good`. */
void brim__derive_require(brim__deriving *d, bool good, const char *what);
brim__deriving brim__derive_begin(brim_instruction *out, const brim_program *program,
                                  const brim_instruction *in, uint32_t operand_count);
/* Bytes and operations of a matrix product over a tile run. */
void brim__matmul_cost(brim_op_cost *out, const brim_program *program, const brim_instruction *in,
                       uint32_t rows);

static inline float brim__float_of(int32_t bits)
{
    union {
        int32_t i;
        float f;
    } u = {.i = bits};
    return u.f;
}
static inline int32_t brim__bits_of(float value)
{
    union {
        int32_t i;
        float f;
    } u = {.f = value};
    return u.i;
}

#endif
