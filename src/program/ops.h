/* ops.h: the built-in ops. The X-macro is the one list; op_table.c guards every table indexed by
 * it. Each op's operands are an enum of indices into instruction.operands; derive() computes the
 * accesses from them, so that an instruction says what it touches and the check can compare. */
#ifndef BRIM_PROGRAM_OPS_H
#define BRIM_PROGRAM_OPS_H

#include "program/program.h"

/* name, text */
#define BRIM__OP_LIST(X)                                                                           \
    X(MIX, "mix")         /* a generic pure function of bytes: tests, examples */                  \
    X(MIX_END, "mix.end") /* the same as step-end */                                               \
    X(EMBED, "embed")                                                                              \
    X(NORM, "norm")                                                                                \
    X(QKV, "qkv")                                                                                  \
    X(ATTN_SPLIT, "attn.split")                                                                    \
    X(ATTN_COMBINE, "attn.combine")                                                                \
    X(ATTN, "attn")                                                                                \
    X(MATMUL_ADD, "matmul.add")                                                                    \
    X(GATE_UP, "gate.up")                                                                          \
    X(MATMUL, "matmul")                                                                            \
    X(SAMPLE, "sample")                                                                            \
    X(STEP_END, "step.end")                                                                        \
    X(R_BEGIN, "r.begin") /* the resident ops: ops_resident.h */                                   \
    X(R_QKV, "r.qkv")                                                                              \
    X(R_ATTN, "r.attn")                                                                            \
    X(R_COMBINE, "r.combine")                                                                      \
    X(R_OUT, "r.out")                                                                              \
    X(R_GATE_UP, "r.gate_up")                                                                      \
    X(R_DOWN, "r.down")                                                                            \
    X(R_APPEND, "r.append")                                                                        \
    X(R_HEAD, "r.head")

typedef enum brim__op {
#define BRIM__OP_ENUM(name, text) BRIM__OP_##name,
    BRIM__OP_LIST(BRIM__OP_ENUM)
#undef BRIM__OP_ENUM
        BRIM__OP_COUNT
} brim__op;

#define BRIM__OP_DECLARE(name, text) extern const brim_op_desc brim__op_##name;
BRIM__OP_LIST(BRIM__OP_DECLARE)
#undef BRIM__OP_DECLARE

#endif
