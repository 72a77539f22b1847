/* region.h: strided regions of a buffer: when two overlap, and when many cover one.
 *
 * A region is `count` runs of `size` bytes, run i at offset + i * stride. Regions come from
 * accesses that lie within their buffers (at most 2^40 bytes), so that sums fit int64_t. */
#ifndef BRIM_PROGRAM_REGION_H
#define BRIM_PROGRAM_REGION_H

#include "program/program.h"

typedef struct brim__region {
    uint64_t offset, size, stride, count; /* stride >= size >= 1, count >= 1 */
} brim__region;

/* Every byte that an access may touch, whatever is in its table and its count word. Runs that lie
 * end to end are one run. */
brim__region brim__region_of(const brim_access *access);
static inline uint64_t brim__region_end(const brim__region *r)
{
    return r->offset + (r->count - 1) * r->stride + r->size;
}

/* False only if no byte is in both. Exact when the strides are equal or one has at most 4,096
 * runs; otherwise it may say true of two regions that interleave without touching. */
bool brim__regions_overlap(const brim__region *a, const brim__region *b);

/* Which runs of an access happen: run i does if first + i * step is less than the count word. */
typedef struct brim__condition {
    uint32_t buffer, offset; /* of the count word; buffer BRIM_NONE: every run happens */
    uint32_t first, step;
} brim__condition;

/* A region whose runs are kept apart (each has its own condition). */
typedef struct brim__part {
    brim__region region;
    brim__condition condition;
} brim__part;

/* The runs of an access, when no table chooses them. */
brim__part brim__part_of(const brim_access *access);

typedef enum brim__cover_result {
    BRIM__COVERED,
    BRIM__NOT_COVERED,
    BRIM__COVER_UNKNOWN, /* too irregular to say within the bounds on work */
} brim__cover_result;

/* Whether every byte of `read` that is used is in a run of `writes` that happens whenever the read
 * does. If not, *missing is the offset of a byte that is not. Errors: NO_MEMORY. */
brim_status brim__cover(brim__cover_result *out, uint64_t *missing, brim_context *ctx,
                        const brim__part *read, const brim__part *writes, size_t write_count);

#endif
