/* ops_resident_body.h: what the bodies of the resident ops share (ops_resident.c,
 * ops_resident_attn.c). */
#ifndef BRIM_OPS_RESIDENT_BODY_H
#define BRIM_OPS_RESIDENT_BODY_H

#include "program/ops_resident.h"

/* What the parts of attention are combined with. */
typedef struct brim__res_heads {
    uint32_t rows, kv_heads, group, head_size, window, splits_max;
} brim__res_heads;

/* Rows, heads, group, head size, window and splits in their ranges. */
void brim__res_require_heads(brim__deriving *d, int64_t rows, int64_t kv_heads, int64_t group,
                             int64_t head_size, int64_t window, int64_t splits_max);

/* Rows in use. */
static inline uint32_t brim__res_rows_used(const uint32_t *step, uint32_t rows)
{
    return step[STEP_ROWS] < rows ? step[STEP_ROWS] : rows;
}

/* A float as it goes in a packet. */
static inline float brim__res_packet_float(float x)
{
    return x == x ? x : brim__float_of(INT32_MAX);
}

/* `count` elements (at most 32) from column `col` on, all of one query head, of what attention
 * gives row `row`, from its parts, rounded to T. The step is an access of `env`. */
void brim__res_combine(uint16_t *out, brim_dtype type, const brim__res_heads *h,
                       const brim_op_env *env, unsigned step_access, const void *parts,
                       uint32_t row, uint32_t col, uint32_t count);

#endif
