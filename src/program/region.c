/* region.c: overlap and coverage of strided regions.
 *
 * Coverage works in two dimensions. The read is seen as rows of one stride: row i, byte c of the
 * row. A write of the same stride is then at most two rectangles (its runs may straddle the border
 * between rows), any other write is a few rectangles for each of its runs. The conditions, which
 * are linear in the row, cut rectangles by rows. A sweep over the rows asks of every band of equal
 * rows whether its columns are covered. */
#include "program/region.h"

#include <stdlib.h>

/* Bounds on work, reached only by programs that no generator would make. */
enum { REGION_ENUMERATE_MAX = 4096, COVER_RECTS_MAX = 1 << 18 };
#define COVER_STEPS_MAX ((uint64_t)1 << 27)

typedef __int128 wide;

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static wide ceil_div_wide(wide a, wide b)
{
    wide q = a / b;
    return a % b != 0 && (a < 0) == (b < 0) ? q + 1 : q;
}

static wide floor_div_wide(wide a, wide b)
{
    wide q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static brim__region region_make(uint64_t offset, uint64_t size, uint64_t stride, uint64_t count)
{
    brim__region r = {offset, size, stride, count};
    if (count == 1)
        r.stride = size;
    if (r.count > 1 && r.stride == r.size) {
        r.size *= r.count;
        r.stride = r.size;
        r.count = 1;
    }
    return r;
}

brim__region brim__region_of(const brim_access *a)
{
    uint64_t count = a->table_buffer == BRIM_NONE ? a->count : a->table_limit;
    return region_make(a->offset, a->size, a->stride, count);
}

brim__part brim__part_of(const brim_access *a)
{
    brim__part part = {.condition = {.buffer = BRIM_NONE}};
    if (a->count_buffer == BRIM_NONE) {
        part.region = region_make(a->offset, a->size, a->stride, a->count);
        return part;
    }
    part.region = (brim__region){a->offset, a->size, a->count == 1 ? a->size : a->stride, a->count};
    part.condition = (brim__condition){a->count_buffer, a->count_offset, a->count_first,
                                       a->count_step ? a->count_step : 1};
    return part;
}

/* ---- overlap ---- */

/* Whether some integer k in [k_min, k_max] has low < d + k * s < high. */
static bool multiple_between(int64_t d, int64_t s, int64_t low, int64_t high, int64_t k_min,
                             int64_t k_max)
{
    int64_t first = floor_div(low - d, s) + 1; /* the least k with d + k * s > low */
    if (first < k_min)
        first = k_min;
    return first <= k_max && d + first * s < high;
}

/* The run [offset, offset + size) against all runs of `b`. */
static bool run_overlaps(int64_t offset, int64_t size, const brim__region *b)
{
    /* Run j of b touches it if -b.size < (b.offset - offset) + j * stride < size. */
    return multiple_between((int64_t)b->offset - offset, (int64_t)b->stride, -(int64_t)b->size,
                            size, 0, (int64_t)b->count - 1);
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

bool brim__regions_overlap(const brim__region *a, const brim__region *b)
{
    if (a->offset >= brim__region_end(b) || b->offset >= brim__region_end(a))
        return false;
    int64_t d = (int64_t)a->offset - (int64_t)b->offset;
    if (a->stride == b->stride)
        return multiple_between(d, (int64_t)a->stride, -(int64_t)a->size, (int64_t)b->size,
                                -((int64_t)b->count - 1), (int64_t)a->count - 1);
    const brim__region *few = a->count <= b->count ? a : b, *many = few == a ? b : a;
    if (few->count > REGION_ENUMERATE_MAX) {
        /* Differences of the runs' offsets are d plus multiples of the greatest common divisor. */
        int64_t g = (int64_t)gcd(a->stride, b->stride);
        return multiple_between(d, g, -(int64_t)a->size, (int64_t)b->size, INT64_MIN / 4 / g,
                                INT64_MAX / 4 / g);
    }
    for (uint64_t i = 0; i < few->count; i++)
        if (run_overlaps((int64_t)(few->offset + i * few->stride), (int64_t)few->size, many))
            return true;
    return false;
}

/* ---- coverage ---- */

typedef struct cover_rect {
    uint64_t row, row_end, col, col_end;
} cover_rect;

typedef struct cover {
    brim_context *ctx;
    /* The read: `rows` rows of `cols` bytes, row i at base + i * stride. */
    uint64_t base, stride, rows, cols;
    brim__condition condition;
    cover_rect *rects;
    size_t count, capacity;
    bool overflow;
} cover;

static bool same_word(const brim__condition *a, const brim__condition *b)
{
    return a->buffer == b->buffer && a->offset == b->offset;
}

/* Keeps of [*row, *row_end) the rows i whose read implies the write that is run i - shift of a
 * write with condition `w` and step `w_step` (0: the same run for all rows). */
static void cut_by_condition(const cover *c, const brim__condition *w, wide shift, wide w_step,
                             wide *row, wide *row_end)
{
    if (w->buffer == BRIM_NONE)
        return;
    if (!same_word(w, &c->condition)) {
        *row_end = *row;
        return;
    }
    /* The write happens if w.first + (i - shift) * w_step <= first + i * step. */
    wide factor = (wide)c->condition.step - w_step;
    wide bound = (wide)w->first - shift * w_step - (wide)c->condition.first;
    if (factor == 0) {
        if (bound > 0)
            *row_end = *row;
    } else if (factor > 0) {
        wide least = ceil_div_wide(bound, factor);
        *row = least > *row ? least : *row;
    } else {
        wide most = floor_div_wide(bound, factor);
        *row_end = most + 1 < *row_end ? most + 1 : *row_end;
    }
}

static brim_status add_rect(cover *c, wide row, wide row_end, uint64_t col, uint64_t col_end)
{
    row = row < 0 ? 0 : row;
    row_end = row_end > (wide)c->rows ? (wide)c->rows : row_end;
    col_end = col_end > c->cols ? c->cols : col_end;
    if (row >= row_end || col >= col_end)
        return BRIM_OK;
    if (c->count == COVER_RECTS_MAX) {
        c->overflow = true;
        return BRIM_OK;
    }
    BRIM_TRY(BRIM_GROW(c->ctx, c->rects, c->capacity, c->count + 1));
    c->rects[c->count++] = (cover_rect){(uint64_t)row, (uint64_t)row_end, col, col_end};
    return BRIM_OK;
}

/* A write of the read's stride: its runs are columns. */
static brim_status add_columns(cover *c, const brim__part *w)
{
    int64_t d = (int64_t)w->region.offset - (int64_t)c->base;
    int64_t shift = floor_div(d, (int64_t)c->stride);
    uint64_t col = (uint64_t)(d - shift * (int64_t)c->stride), end = col + w->region.size;
    wide row = shift, row_end = (wide)shift + w->region.count;
    cut_by_condition(c, &w->condition, shift, w->condition.step, &row, &row_end);
    BRIM_TRY(add_rect(c, row, row_end, col, end < c->stride ? end : c->stride));
    if (end <= c->stride)
        return BRIM_OK;
    row = (wide)shift + 1;
    row_end = (wide)shift + 1 + w->region.count;
    cut_by_condition(c, &w->condition, (wide)shift + 1, w->condition.step, &row, &row_end);
    return add_rect(c, row, row_end, 0, end - c->stride);
}

/* One run [begin, end) of a write, relative to the read's base, whose condition is `w` with its
 * first moved to this run. */
static brim_status add_run(cover *c, const brim__condition *w, wide begin, wide end)
{
    wide stride = (wide)c->stride, limit = (wide)(c->rows - 1) * stride + (wide)c->cols;
    begin = begin < 0 ? 0 : begin;
    end = end > limit ? limit : end;
    if (begin >= end)
        return BRIM_OK;
    wide row = 0, row_end = (wide)c->rows;
    cut_by_condition(c, w, 0, 0, &row, &row_end);
    wide first = begin / stride, last = (end - 1) / stride;
    wide col = begin - first * stride, col_end = end - last * stride;
    wide rows[3][2] = {{first, first + 1}, {first + 1, last}, {last, last + 1}};
    for (int k = first == last ? 2 : 0; k < 3; k++) {
        wide r = rows[k][0] > row ? rows[k][0] : row;
        wide r_end = rows[k][1] < row_end ? rows[k][1] : row_end;
        BRIM_TRY(add_rect(c, r, r_end, k == 0 || first == last ? (uint64_t)col : 0,
                          k == 2 ? (uint64_t)col_end : c->stride));
    }
    return BRIM_OK;
}

/* A write of another stride: run by run, those that the read's extent touches. */
static brim_status add_runs(cover *c, const brim__part *w)
{
    wide d = (wide)w->region.offset - (wide)c->base, stride = (wide)w->region.stride;
    wide extent = (wide)(c->rows - 1) * (wide)c->stride + (wide)c->cols;
    wide first = floor_div_wide(-(wide)w->region.size - d, stride) + 1;
    wide last = ceil_div_wide(extent - d, stride) - 1;
    first = first < 0 ? 0 : first;
    last = last > (wide)w->region.count - 1 ? (wide)w->region.count - 1 : last;
    if (last - first >= COVER_RECTS_MAX) {
        c->overflow = true;
        return BRIM_OK;
    }
    for (wide j = first; j <= last && !c->overflow; j++) {
        brim__condition run = w->condition;
        wide at = (wide)run.first + j * (wide)run.step;
        if (run.buffer != BRIM_NONE && at > UINT32_MAX)
            break; /* no count reaches it */
        run.first = (uint32_t)at;
        BRIM_TRY(add_run(c, &run, d + j * stride, d + j * stride + (wide)w->region.size));
    }
    return BRIM_OK;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int compare_by_row(const void *a, const void *b)
{
    const cover_rect *x = a, *y = b;
    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return (x->col > y->col) - (x->col < y->col);
}

static int compare_by_col(const void *a, const void *b)
{
    const cover_rect *x = a, *y = b;
    return (x->col > y->col) - (x->col < y->col);
}

/* The first column of [0, cols) that no active rectangle covers; cols if all are. */
static uint64_t first_gap(const cover_rect *active, size_t count, uint64_t cols)
{
    uint64_t reached = 0;
    for (size_t i = 0; i < count && active[i].col <= reached; i++)
        if (active[i].col_end > reached)
            reached = active[i].col_end;
    return reached < cols ? reached : cols;
}

/* Sweeps the bands between `borders` (sorted); `active` has room for all rectangles. */
static brim__cover_result sweep(const cover *c, const uint64_t *borders, size_t border_count,
                                cover_rect *active, uint64_t *missing)
{
    size_t active_count = 0, next = 0;
    uint64_t steps = 0;
    for (size_t i = 0; i + 1 < border_count; i++) {
        uint64_t row = borders[i];
        if (row == borders[i + 1])
            continue;
        size_t kept = 0;
        for (size_t k = 0; k < active_count; k++)
            if (active[k].row_end > row)
                active[kept++] = active[k];
        active_count = kept;
        bool added = false;
        for (; next < c->count && c->rects[next].row <= row; next++, added = true)
            active[active_count++] = c->rects[next];
        if (added && kept)
            qsort(active, active_count, sizeof *active, compare_by_col);
        uint64_t gap = first_gap(active, active_count, c->cols);
        if (gap < c->cols) {
            *missing = c->base + row * c->stride + gap;
            return BRIM__NOT_COVERED;
        }
        steps += active_count + 1;
        if (steps > COVER_STEPS_MAX)
            return BRIM__COVER_UNKNOWN;
    }
    return BRIM__COVERED;
}

static brim_status judge(brim__cover_result *out, uint64_t *missing, cover *c)
{
    if (c->overflow) {
        *out = BRIM__COVER_UNKNOWN;
        *missing = c->base;
        return BRIM_OK;
    }
    if (c->count)
        qsort(c->rects, c->count, sizeof *c->rects, compare_by_row);
    uint64_t *borders;
    BRIM_ALLOC(c->ctx, borders, (2 * c->count + 2) * sizeof *borders);
    cover_rect *active = brim__alloc(c->ctx, (c->count + 1) * sizeof *active);
    if (!active) {
        brim__free(c->ctx, borders);
        return BRIM_NO_MEMORY;
    }
    size_t n = 0;
    borders[n++] = 0;
    borders[n++] = c->rows;
    for (size_t i = 0; i < c->count; i++) {
        borders[n++] = c->rects[i].row;
        borders[n++] = c->rects[i].row_end;
    }
    qsort(borders, n, sizeof *borders, compare_u64);
    *out = sweep(c, borders, n, active, missing);
    brim__free(c->ctx, active);
    brim__free(c->ctx, borders);
    return BRIM_OK;
}

static brim_status cover_rows(brim__cover_result *out, uint64_t *missing, brim_context *ctx,
                              const cover *shape, const brim__part *writes, size_t write_count)
{
    cover c = *shape;
    c.ctx = ctx;
    brim_status status = BRIM_OK;
    for (size_t i = 0; i < write_count && status == BRIM_OK && !c.overflow; i++)
        status = writes[i].region.count > 1 && writes[i].region.stride == c.stride
                     ? add_columns(&c, &writes[i])
                     : add_runs(&c, &writes[i]);
    if (status == BRIM_OK)
        status = judge(out, missing, &c);
    brim__free(ctx, c.rects);
    return status;
}

/* The stride in which most is said in few rectangles: that of the first write with several runs. */
static uint64_t stride_of_writes(const brim__part *writes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (writes[i].region.count > 1)
            return writes[i].region.stride;
    return 0;
}

brim_status brim__cover(brim__cover_result *out, uint64_t *missing, brim_context *ctx,
                        const brim__part *read, const brim__part *writes, size_t write_count)
{
    const brim__region *r = &read->region;
    cover shape = {.base = r->offset,
                   .stride = r->stride,
                   .rows = r->count,
                   .cols = r->size,
                   .condition = read->condition};
    uint64_t stride = r->count > 1 ? 0 : stride_of_writes(writes, write_count);
    if (stride == 0 || read->condition.buffer != BRIM_NONE)
        return cover_rows(out, missing, ctx, &shape, writes, write_count);
    /* One long run, written in rows: whole rows first, then what is left of it. */
    uint64_t rows = r->size / stride, rest = r->size % stride;
    *out = BRIM__COVERED;
    if (rows) {
        shape.stride = shape.cols = stride;
        shape.rows = rows;
        BRIM_TRY(cover_rows(out, missing, ctx, &shape, writes, write_count));
    }
    if (*out != BRIM__COVERED || rest == 0)
        return BRIM_OK;
    shape.base = r->offset + rows * stride;
    shape.stride = stride;
    shape.cols = rest;
    shape.rows = 1;
    return cover_rows(out, missing, ctx, &shape, writes, write_count);
}
