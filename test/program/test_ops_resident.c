/* test_ops_resident.c: each resident op against the same computation in float64 on the very inputs
 * that it had, within bounds that follow from the formats; and properties that need no bound: a
 * row's bits do not depend on other rows, on lanes, or on where a key came from.
 *
 * Bounds. u = 2^-24 is float32's rounding error, t that of T or f16 (2^-11, 2^-8 for bf16), both
 * relative; below 2^-14 an f16 is off by 2^-25 at most. Products of two 16-bit floats are exact in
 * float32. A sum of values that passes n additions is off by at most n u sum |value| (to first
 * order: Higham, Accuracy and Stability of Numerical Algorithms, 4.2; n u < 0.001 here, so that the
 * factor 1.01 covers the rest).
 * - Product of K columns: an accumulator takes 16 ceil(K / 256) values, in whatever order, and 4
 *   more additions follow.
 * - Norm: the sum of squares passes 1 + 3 + 2 + ceil(K / 1024) + 5 roundings, all terms positive,
 * so that is its relative error; half of it is left in r, and 4 roundings make r of it.
 * - A value rounded to T from one that is off by e: e + t |value|, and 2^-25 for f16.
 * - Query or key: two products, a sum and the rounding to f16, on values scaled by r w (5 u).
 * - Score: what query and key are off by, times each other, and a dot product of head_size / 8 + 4
 *   additions. With all scores off by D at most, a weight exp(score - max) is off by the factor
 *   exp(2 D); the exponential (2 ulp), its argument's rounding and the rounding to f16 add to that.
 */
#include "resident_model.h"

#include "program/ops_resident_body.h"

#define U 0x1p-24

/* A value and how much what is computed may be off. */
typedef struct near {
    double value, error;
} near;

static double half_rounding(brim_dtype type, double value)
{
    return type == BRIM_DTYPE_F16 ? 0x1p-11 * fabs(value) + 0x1p-25 : 0x1p-8 * fabs(value);
}

static near rounded_to(brim_dtype type, near x)
{
    x.error += half_rounding(type, fabs(x.value) + x.error);
    return x;
}

static double worst; /* error over bound, of all that was looked at */

static void assert_near(double got, near want, const char *what, uint32_t row, uint32_t index)
{
    double off = fabs(got - want.value) / want.error;
    if (!(off <= 1))
        fail_msg("%s: row %u, element %u is %.9g, not %.9g within %.3g", what, row, index, got,
                 want.value, want.error);
    worst = off > worst ? off : worst;
}

static double half_of(brim_dtype type, uint16_t bits)
{
    float x;
    brim__halves_widen(&x, type, &bits, 1);
    return x;
}

/* Element `col` of row `row` of a vector (tile, row, 8) of 16-bit floats. */
static uint16_t bits_at(const uint16_t *vector, uint32_t rows, uint32_t row, uint32_t col)
{
    return vector[(col / 8 * (size_t)rows + row) * 8 + col % 8];
}

static const void *buffer_of(const model *m, uint32_t buffer, uint64_t epoch)
{
    return brim_executor_buffer(m->x, buffer, epoch);
}

/* What one row of a product is computed from. */
typedef struct input {
    double *y;
    uint32_t cols;
    near scale; /* value 1, error 0: no norm */
} input;

static near product_of_row(const matrix *m, uint32_t index, const input *in)
{
    double sum = 0, size = 0;
    for (uint32_t c = 0; c < m->cols; c++) {
        double p = half_of(m->tiling.type, m->bits[(size_t)index * m->cols + c]) * in->y[c];
        sum += p;
        size += fabs(p);
    }
    double n = 16.0 * ((m->cols + 255) / 256) + 4;
    near p = {sum, 1.01 * n * U * size};
    p.error = p.error * in->scale.value + fabs(sum) * in->scale.error;
    p.value *= in->scale.value;
    p.error += in->scale.error > 0 ? U * fabs(p.value) : 0;
    return p;
}

static near scale_of(double squares, uint32_t cols)
{
    double r = 1 / sqrt(squares / cols + (double)NORM_EPSILON);
    double relative = (11.0 + (cols + 1023) / 1024) / 2 + 4;
    return (near){r, 1.01 * relative * U * r};
}

/* y of a row as r.qkv of the first layer makes it: a float product, rounded to T. */
static input input_from_embedding(const model *m, uint32_t token)
{
    const weights *w = m->w;
    input in = {.y = malloc(8 * w->s->embed), .cols = w->s->embed};
    double squares = 0;
    for (uint32_t c = 0; c < in.cols; c++) {
        float x = (float)half_of(w->s->type, w->embedding.bits[(size_t)token * in.cols + c]);
        float product = x * w->attn_norm[0][c];
        uint16_t y;
        squares += (double)x * x;
        brim__halves_round(&y, w->s->type, &product, 1);
        in.y[c] = half_of(w->s->type, y);
    }
    in.scale = scale_of(squares, in.cols);
    return in;
}

static input input_from(const model *m, uint64_t epoch, uint32_t y, int64_t ssq, uint32_t cols,
                        uint32_t row)
{
    const uint16_t *packets = buffer_of(m, y, epoch);
    const float *squares = ssq >= 0 ? buffer_of(m, (uint32_t)ssq, epoch) : NULL;
    input in = {.y = malloc(8 * cols), .cols = cols, .scale = {1, 0}};
    double sum = 0;
    for (uint32_t c = 0; c < cols; c++)
        in.y[c] = half_of(m->w->s->type, bits_at(packets, m->rows, row, c));
    for (uint32_t t = 0; squares && t < cols / 8; t++)
        sum += (double)squares[t * m->rows + row];
    if (squares)
        in.scale = scale_of(sum, cols);
    return in;
}

/* ---- each op ---- */

static void check_qkv(const model *m, uint64_t epoch, uint32_t n, const step_row *r,
                      uint32_t row_index)
{
    const shape *s = m->w->s;
    input in = n == 0 ? input_from_embedding(m, r->token)
                      : input_from(m, epoch, m->at[n].y, m->at[n].ssq, s->embed, row_index);
    const uint16_t *qkv = buffer_of(m, m->at[n].qkv, epoch);
    for (uint32_t i = 0; i < qkv_cols(s); i++) {
        near v = product_of_row(&m->w->qkv[n], i, &in);
        if (s->bias) {
            v.value += (double)m->w->bias[i];
            v.error += U * (fabs(v.value) + v.error);
        }
        assert_near(half_of(BRIM_DTYPE_F16, bits_at(qkv, m->rows, row_index, i)),
                    rounded_to(BRIM_DTYPE_F16, v), "qkv", row_index, i);
    }
    free(in.y);
}

/* x' = added + product; y and ssq are functions of x' alone. */
static void check_residual(const model *m, uint64_t epoch, const matrix *w, const input *in,
                           const float *added, uint32_t x, uint32_t y, uint32_t ssq,
                           const float *norm, const step_row *r, uint32_t row_index)
{
    const shape *s = m->w->s;
    const float *x_out = buffer_of(m, x, epoch), *squares = buffer_of(m, ssq, epoch);
    const uint16_t *y_out = buffer_of(m, y, epoch);
    double sum = 0;
    for (uint32_t i = 0; i < s->embed; i++) {
        size_t at = (i / 8 * (size_t)m->rows + row_index) * 8 + i % 8;
        double before =
            added ? (double)added[at]
                  : half_of(s->type, m->w->embedding.bits[(size_t)r->token * s->embed + i]);
        near v = product_of_row(w, i, in);
        v.value += before;
        v.error += U * (fabs(v.value) + v.error);
        assert_near((double)x_out[at], v, "x", row_index, i);
        uint16_t want;
        float product = x_out[at] * norm[i];
        brim__halves_round(&want, s->type, &product, 1);
        assert_int_equal(y_out[at], want);
        sum = i % 8 ? sum : 0;
        sum += (double)x_out[at] * (double)x_out[at];
        if (i % 8 == 7)
            assert_near((double)squares[i / 8 * m->rows + row_index],
                        (near){sum, 1.01 * 4 * U * sum}, "ssq", row_index, i / 8);
    }
}

static near silu_near(near x)
{
    double value = x.value / (1 + exp(-x.value));
    /* The slope is at most 1.1; exp, a sum and a quotient: 2^-23 + 2 u and less. */
    return (near){value, 1.1 * x.error + 5 * U * fabs(value) + 1e-30};
}

static void check_gate_up(const model *m, uint64_t epoch, uint32_t n, uint32_t row_index)
{
    const shape *s = m->w->s;
    input in = input_from(m, epoch, m->at[n].y_mid, m->at[n].ssq_mid, s->embed, row_index);
    const uint16_t *h = buffer_of(m, m->at[n].h, epoch);
    for (uint32_t i = 0; i < s->ffn; i++) {
        near gate = silu_near(product_of_row(&m->w->gate_up[n], 2 * i, &in));
        near up = product_of_row(&m->w->gate_up[n], 2 * i + 1, &in);
        near v = {gate.value * up.value, gate.error * (fabs(up.value) + up.error) +
                                             fabs(gate.value) * up.error +
                                             U * fabs(gate.value * up.value)};
        assert_near(half_of(s->type, bits_at(h, m->rows, row_index, i)), rounded_to(s->type, v),
                    "h", row_index, i);
    }
    free(in.y);
}

static void check_head(const model *m, uint64_t epoch, uint32_t row_index, uint32_t out_row)
{
    const shape *s = m->w->s;
    input in = input_from(m, epoch, m->at[s->layers].y, m->at[s->layers].ssq, s->embed, row_index);
    const float *logits = buffer_of(m, m->logits, epoch);
    for (uint32_t i = 0; i < s->vocab; i++)
        assert_near((double)logits[out_row * s->vocab + i], product_of_row(&m->w->head, i, &in),
                    "logits", row_index, i);
    free(in.y);
}

/* ---- attention ---- */

/* Head norm and RoPE of head `col / head_size`. */
static void turned(near *out, const model *m, const uint16_t *qkv, uint32_t row_index, uint32_t col,
                   const float *norm, uint32_t position)
{
    const shape *s = m->w->s;
    uint32_t hs = s->head_size;
    double x[128], squares = 0, r;
    for (uint32_t d = 0; d < hs; d++) {
        x[d] = half_of(BRIM_DTYPE_F16, bits_at(qkv, m->rows, row_index, col + d));
        squares += x[d] * x[d];
    }
    r = 1 / sqrt(squares / hs + (double)NORM_EPSILON);
    for (uint32_t d = 0; d < hs && s->head_norm; d++)
        x[d] *= r * (double)norm[d];
    for (uint32_t i = 0; i < hs / 2; i++) {
        uint32_t a = s->halves ? i : 2 * i, b = s->halves ? i + hs / 2 : 2 * i + 1;
        double c = (double)m->w->rope[position * hs + i];
        double sine = (double)m->w->rope[position * hs + hs / 2 + i];
        /* Norm: hs / 16 + 4 additions and 5 roundings; turning: 2. */
        double error = (hs / 16 + 4 + 7) * U * (fabs(x[a]) + fabs(x[b]));
        out[a] = rounded_to(BRIM_DTYPE_F16, (near){x[a] * c - x[b] * sine, error});
        out[b] = rounded_to(BRIM_DTYPE_F16, (near){x[a] * sine + x[b] * c, error});
    }
}

static uint64_t pool_element(const model *m, uint32_t layer, uint32_t head, bool v, uint32_t slot,
                             uint32_t position, uint32_t d)
{
    const shape *s = m->w->s;
    uint32_t blocks = blocks_of(s), hs = s->head_size;
    uint64_t block = s->slots * (blocks - 1 - position / 32) + slot;
    uint64_t at = ((layer * s->kv_heads + head) * (uint64_t)(s->slots * blocks) + block) * 2 + v;
    uint32_t chunk = (d / 8) ^ (position % 8);
    return (at * 32 + position % 32) * hs + chunk * 8 + d % 8;
}

/* Keys and values of a position: from the row of this step that has it, else from the pool. */
static void key_and_value(near *k, double *v, const model *m, uint64_t epoch, uint32_t layer,
                          uint32_t head, const step_row *rows, uint32_t count, uint32_t slot,
                          uint32_t position)
{
    const shape *s = m->w->s;
    const uint16_t *qkv = buffer_of(m, m->at[layer].qkv, epoch);
    uint32_t key = (s->kv_heads * s->group + head) * s->head_size;
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].slot == slot && rows[i].position == position) {
            turned(k, m, qkv, i, key, m->w->k_norm, position);
            for (uint32_t d = 0; d < s->head_size; d++)
                v[d] = half_of(BRIM_DTYPE_F16,
                               bits_at(qkv, m->rows, i, key + s->kv_heads * s->head_size + d));
            return;
        }
    for (uint32_t d = 0; d < s->head_size; d++) {
        const uint16_t *pool = m->w->pool;
        k[d] = (near){
            half_of(BRIM_DTYPE_F16, pool[pool_element(m, layer, head, false, slot, position, d)]),
            0};
        v[d] = half_of(BRIM_DTYPE_F16, pool[pool_element(m, layer, head, true, slot, position, d)]);
    }
}

static near score_of(const near *q, const near *k, uint32_t hs)
{
    double sum = 0, size = 0, error = 0, scale = 1 / sqrt((double)hs);
    for (uint32_t d = 0; d < hs; d++) {
        sum += q[d].value * k[d].value;
        size += fabs(q[d].value * k[d].value);
        error += q[d].error * fabs(k[d].value) + (fabs(q[d].value) + q[d].error) * k[d].error;
    }
    error += 1.01 * (hs / 8 + 4) * U * (size + error);
    return (near){sum * scale, (error + 2 * U * fabs(sum)) * scale};
}

/* Scores and values of one item, for each query head of the group. */
typedef struct attended_item {
    uint32_t count;
    near score[BRIM__RES_SPLIT];
    double v[BRIM__RES_SPLIT][128];
} attended_item;

static void check_part(const model *m, const attended_item *it, const char *part, uint32_t g,
                       uint32_t row_index)
{
    const shape *s = m->w->s;
    double max = -INFINITY, least = INFINITY, off = 0, sum = 0;
    for (uint32_t i = 0; i < it->count; i++) {
        max = fmax(max, it->score[i].value);
        least = fmin(least, it->score[i].value);
        off = fmax(off, it->score[i].error);
    }
    /* Of a weight, relative: scores, exp and its argument twice (in a warp, then of the warps),
     * f16, and 16 + 8 + 3 additions and products. */
    double relative = expm1(2 * off) + 2 * (0x1p-22 + 2 * U * (max - least)) + 0x1p-11 + 27 * U;
    for (uint32_t i = 0; i < it->count; i++)
        sum += exp(it->score[i].value - max);
    for (uint32_t d = 0; d < s->head_size; d++) {
        double out = 0, size = 0, largest = 0;
        for (uint32_t i = 0; i < it->count; i++) {
            double e = exp(it->score[i].value - max) / sum;
            out += e * it->v[i][d];
            size += e * fabs(it->v[i][d]);
            largest = fmax(largest, fabs(it->v[i][d]));
        }
        near want = {out, 1.1 * 2 * relative * size + it->count * 0x1p-25 * largest};
        uint16_t bits;
        memcpy(&bits, part + 2 * (g * s->head_size + d), 2);
        assert_near(half_of(BRIM_DTYPE_F16, bits), rounded_to(BRIM_DTYPE_F16, want), "part",
                    row_index, d);
    }
    float lse;
    memcpy(&lse, part + 2 * s->group * s->head_size + 4 * g, 4);
    double want = max + log(sum);
    assert_near((double)lse, (near){want, off + relative + 4 * U * (fabs(max) + fabs(want))}, "lse",
                row_index, g);
}

/* All items of a row in one layer; `item` is the first. Returns the next. */
static uint64_t check_attention(const model *m, uint64_t epoch, uint32_t layer,
                                const step_row *rows, uint32_t count, uint32_t r, uint64_t item)
{
    const shape *s = m->w->s;
    uint32_t p = rows[r].position, w = s->window, first = w && p >= w ? p - w + 1 : 0;
    const char *parts = buffer_of(m, m->at[layer].parts, epoch);
    const uint16_t *qkv = buffer_of(m, m->at[layer].qkv, epoch);
    near q[128], k[128];
    attended_item *it = malloc(sizeof *it);
    for (uint32_t head = 0; head < s->kv_heads; head++)
        for (uint32_t split = first / 128; split <= p / 128; split++, item++)
            for (uint32_t g = 0; g < s->group; g++) {
                turned(q, m, qkv, r, (head * s->group + g) * s->head_size, m->w->q_norm, p);
                it->count = 0;
                for (uint32_t at = split * 128; at < split * 128 + 128; at++) {
                    if (at < first || at > p)
                        continue;
                    key_and_value(k, it->v[it->count], m, epoch, layer, head, rows, count,
                                  rows[r].slot, at);
                    it->score[it->count++] = score_of(q, k, s->head_size);
                }
                check_part(m, it, parts + item * brim__res_part_bytes(s->group, s->head_size), g,
                           r);
            }
    free(it);
    return item;
}

/* What parts are combined to, against their softmax in float64. `stride` bytes apart. */
static near combined(const char *part, uint64_t stride, uint32_t splits, uint32_t group,
                     uint32_t head_size, uint32_t g, uint32_t d)
{
    double max = -INFINITY, least = INFINITY, sum = 0, out = 0, size = 0;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < splits; i++) {
            float lse;
            uint16_t bits;
            memcpy(&lse, part + i * stride + 2 * group * head_size + 4 * g, 4);
            memcpy(&bits, part + i * stride + 2 * (g * head_size + d), 2);
            max = fmax(max, (double)lse);
            least = fmin(least, (double)lse);
            double f = pass * exp((double)lse - max), x = half_of(BRIM_DTYPE_F16, bits);
            sum += f;
            out += f * x;
            size += f * fabs(x);
        }
    /* exp and its argument; ceil(splits / 64) + 6 additions; a product and a quotient. */
    double relative = 0x1p-22 + U * (max - least) + (splits / 64 + 1 + 6 + 2) * U;
    return (near){out / sum, 2.1 * relative * size / sum};
}

static void check_combine(const model *m, uint64_t epoch, uint32_t layer, const step_row *rows,
                          uint32_t r, uint64_t item)
{
    const shape *s = m->w->s;
    uint32_t p = rows[r].position, w = s->window, first = w && p >= w ? p - w + 1 : 0;
    uint32_t splits = p / 128 - first / 128 + 1, hs = s->head_size;
    uint64_t bytes = brim__res_part_bytes(s->group, hs);
    const char *parts = buffer_of(m, m->at[layer].parts, epoch);
    const uint16_t *attended = buffer_of(m, m->at[layer].attended, epoch);
    for (uint32_t col = 0; col < q_cols(s); col++) {
        uint32_t head = col / hs / s->group;
        near want = combined(parts + (item + (uint64_t)head * splits) * bytes, bytes, splits,
                             s->group, hs, col / hs % s->group, col % hs);
        assert_near(half_of(s->type, bits_at(attended, m->rows, r, col)), rounded_to(s->type, want),
                    "attended", r, col);
    }
}

/* The pool after the step: this step's rows are in it, the rest is as it was. */
static void check_append(const model *m, uint64_t epoch, const step_row *rows, uint32_t count)
{
    const shape *s = m->w->s;
    const uint16_t *pool = buffer_of(m, m->kv, 0);
    uint16_t *want = malloc(m->w->pool_bytes);
    memcpy(want, m->w->pool, m->w->pool_bytes);
    for (uint32_t n = 0; n < s->layers * s->kv_heads; n++)
        for (uint32_t i = 0; i < count; i++) {
            uint32_t layer = n / s->kv_heads, head = n % s->kv_heads;
            near k[128];
            double v[128];
            key_and_value(k, v, m, epoch, layer, head, rows, count, rows[i].slot, rows[i].position);
            for (uint32_t d = 0; d < s->head_size; d++) {
                uint64_t at =
                    pool_element(m, layer, head, false, rows[i].slot, rows[i].position, d);
                assert_near(half_of(BRIM_DTYPE_F16, pool[at]), k[d], "key in the pool", i, d);
                want[at] = pool[at];
                at = pool_element(m, layer, head, true, rows[i].slot, rows[i].position, d);
                float exact = (float)v[d];
                brim__halves_round(&want[at], BRIM_DTYPE_F16, &exact, 1);
            }
        }
    assert_memory_equal(pool, want, m->w->pool_bytes);
    free(want);
}

/* ---- a whole step ---- */

static void check_zeros(const model *m, uint64_t epoch, uint32_t vector, uint32_t cols,
                        uint32_t count)
{
    const uint16_t *packets = buffer_of(m, vector, epoch);
    for (uint32_t r = count; r < m->rows; r++)
        for (uint32_t c = 0; c < cols; c++)
            assert_int_equal(bits_at(packets, m->rows, r, c), 0);
}

static void check_layer(const model *m, uint64_t epoch, uint32_t n, const step_row *rows,
                        uint32_t count)
{
    const weights *w = m->w;
    const shape *s = w->s;
    const layer_vectors *at = &m->at[n], *next = &m->at[n + 1];
    uint64_t item = 0;
    for (uint32_t r = 0; r < count; r++) {
        check_qkv(m, epoch, n, &rows[r], r);
        check_combine(m, epoch, n, rows, r, item);
        item = check_attention(m, epoch, n, rows, count, r, item);
        if (!m->direct) {
            input in = input_from(m, epoch, at->attended, -1, q_cols(s), r);
            const float *x = n ? buffer_of(m, m->at[n - 1].x, epoch) : NULL;
            check_residual(m, epoch, &w->out[n], &in, x, at->x_mid, at->y_mid, at->ssq_mid,
                           w->ffn_norm[n], &rows[r], r);
            free(in.y);
        }
        check_gate_up(m, epoch, n, r);
        input in = input_from(m, epoch, at->h, -1, s->ffn, r);
        check_residual(m, epoch, &w->down[n], &in, buffer_of(m, at->x_mid, epoch), at->x, next->y,
                       next->ssq, w->attn_norm[n + 1], &rows[r], r);
        free(in.y);
    }
    uint64_t bytes = brim__res_part_bytes(s->group, s->head_size);
    const char *parts = buffer_of(m, at->parts, epoch);
    for (uint64_t b = item * bytes;
         b < brim__res_items_max(m->rows, s->kv_heads, m->splits) * bytes; b++)
        assert_int_equal(parts[b], 0);
    check_zeros(m, epoch, at->qkv, qkv_cols(s), count);
    check_zeros(m, epoch, at->attended, q_cols(s), count);
    check_zeros(m, epoch, at->y_mid, s->embed, count);
    check_zeros(m, epoch, at->h, s->ffn, count);
    check_zeros(m, epoch, next->y, s->embed, count);
}

static void check_step(const weights *w, uint32_t rows, uint32_t lanes, bool direct,
                       const step_row *step, uint32_t count)
{
    model m = model_make(w, rows, lanes, direct, BRIM_EXECUTOR_REFERENCE);
    uint64_t epoch = model_step(&m, step, count);
    const uint32_t *history = buffer_of(&m, m.history, 0);
    for (uint32_t n = 0; n < w->s->layers; n++)
        check_layer(&m, epoch, n, step, count);
    check_append(&m, epoch, step, count);
    for (uint32_t r = 0; r < count; r++) {
        check_head(&m, epoch, r, count - 1 - r);
        assert_int_equal(history[step[r].slot * w->s->context + step[r].position], step[r].token);
    }
    model_free(&m);
}

static const shape shapes[] = {
    {"bf16 96", BRIM_DTYPE_BF16, 96, 64, 1, 3, 64, 100, 2, 3, 288, 0, false, false, true},
    {"f16 64", BRIM_DTYPE_F16, 64, 96, 2, 1, 128, 61, 2, 3, 288, 40, true, false, false},
    {"f16 576", BRIM_DTYPE_F16, 576, 160, 3, 3, 64, 48, 1, 3, 288, 0, false, true, false},
    {"bf16 2112", BRIM_DTYPE_BF16, 2112, 64, 2, 8, 128, 40, 1, 2, 288, 150, true, true, true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* One row; several sessions, one of them with four rows over a boundary of splits and one at its
 * first position; a single long one. Slots beyond what a shape has are folded. */
static const step_row one_row[] = {{7, 270, 1}};
static const step_row eight_rows[] = {{1, 126, 0}, {2, 127, 0}, {3, 128, 0}, {4, 129, 0},
                                      {5, 0, 1},   {6, 1, 1},   {9, 2, 1},   {8, 3, 1}};
static const step_row three_rows[] = {{11, 33, 1}, {12, 255, 0}, {13, 256, 0}};

static void every_op_means_what_its_definition_says(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        weights w = weights_make(&shapes[i]);
        worst = 0;
        check_step(&w, 1, 3, false, one_row, 1);
        check_step(&w, 8, 4, false, eight_rows, 8);
        check_step(&w, 8, 1, true, three_rows, 3);
        check_step(&w, 3, 5, false, three_rows, 3);
        print_message("%s: at most %.2f of a bound\n", shapes[i].name, worst);
        weights_free(&w);
    }
}

/* Bytes of row r's logits and of its residual after the last layer. */
static void copy_row(float *logits, float *x, const model *m, uint64_t epoch, uint32_t r,
                     uint32_t out_row)
{
    const shape *s = m->w->s;
    memcpy(logits, (const float *)buffer_of(m, m->logits, epoch) + (size_t)out_row * s->vocab,
           4 * s->vocab);
    const float *from = buffer_of(m, m->at[s->layers - 1].x, epoch);
    for (uint32_t t = 0; t < s->embed / 8; t++)
        memcpy(x + t * 8, from + ((size_t)t * m->rows + r) * 8, 32);
}

/* A row of one step of eight, on any lanes and with either executor, and the same row alone, after
 * the rows before it of its sequence, which then come from the pool. */
static void a_rows_bits_are_those_of_running_alone(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        weights w = weights_make(&shapes[i]);
        const shape *s = &shapes[i];
        float *logits[2], *x[2];
        for (int k = 0; k < 2; k++) {
            logits[k] = malloc(4 * s->vocab);
            x[k] = malloc(4 * s->embed);
        }
        model many = model_make(&w, 8, 4, false, BRIM_EXECUTOR_CPU);
        model alone = model_make(&w, 1, 2, true, BRIM_EXECUTOR_REFERENCE);
        uint64_t epoch = model_step(&many, eight_rows, 8);
        for (uint32_t r = 0; r < 8; r++) {
            uint64_t own = model_step(&alone, &eight_rows[r], 1);
            copy_row(logits[0], x[0], &many, epoch, r, 7 - r);
            copy_row(logits[1], x[1], &alone, own, 0, 0);
            assert_memory_equal(x[0], x[1], 4 * s->embed);
            assert_memory_equal(logits[0], logits[1], 4 * s->vocab);
        }
        assert_memory_equal(buffer_of(&many, many.kv, 0), buffer_of(&alone, alone.kv, 0),
                            w.pool_bytes);
        model_free(&many);
        model_free(&alone);
        for (int k = 0; k < 2; k++) {
            free(logits[k]);
            free(x[k]);
        }
        weights_free(&w);
    }
}

static void combining_in_the_product_gives_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        weights w = weights_make(&shapes[i]);
        model apart = model_make(&w, 8, 3, false, BRIM_EXECUTOR_REFERENCE);
        model direct = model_make(&w, 8, 3, true, BRIM_EXECUTOR_REFERENCE);
        model_step(&apart, three_rows, 3);
        model_step(&direct, three_rows, 3);
        for (uint32_t n = 0; n < shapes[i].layers; n++)
            assert_memory_equal(buffer_of(&apart, apart.at[n].y_mid, 0),
                                buffer_of(&direct, direct.at[n].y_mid, 0),
                                brim__res_vector_bytes(8, shapes[i].embed));
        assert_memory_equal(buffer_of(&apart, apart.logits, 0),
                            buffer_of(&direct, direct.logits, 0), 4 * 3 * shapes[i].vocab);
        model_free(&apart);
        model_free(&direct);
        weights_free(&w);
    }
}

/* More splits than partial sums, and fewer, and one. */
static void parts_combine_to_their_softmax(void **state)
{
    (void)state;
    enum { GROUP = 2, HS = 64, SPLITS = 150 };
    static const uint32_t counts[] = {1, 2, 5, 8, 40, 63, 64, 65, 130, SPLITS};
    brim__res_heads h = {
        .rows = 1, .kv_heads = 1, .group = GROUP, .head_size = HS, .splits_max = SPLITS};
    uint64_t bytes = brim__res_part_bytes(GROUP, HS);
    char *parts = malloc(SPLITS * bytes);
    for (uint32_t i = 0; i < SPLITS; i++) {
        for (uint32_t k = 0; k < GROUP * HS; k++) {
            float x = drawn(5, i * GROUP * HS + k);
            uint16_t bits;
            brim__halves_round(&bits, BRIM_DTYPE_F16, &x, 1);
            memcpy(parts + i * bytes + 2 * k, &bits, 2);
        }
        for (uint32_t g = 0; g < GROUP; g++) {
            float lse = 6 * drawn(6, GROUP * i + g) + 3;
            memcpy(parts + i * bytes + 2 * GROUP * HS + 4 * g, &lse, 4);
        }
    }
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        uint32_t step[STEP_HEADER + STEP_ARRAYS] = {[STEP_ROWS] = 1};
        step[brim__step_word(STEP_POSITION, 1, 0)] = 128 * counts[n] - 1;
        void *access[] = {step};
        brim_op_env env = {.access = access, .isa = BRIM_ISA_SCALAR};
        for (uint32_t col = 0; col < GROUP * HS; col += 32) {
            uint16_t out[32];
            brim__res_combine(out, BRIM_DTYPE_BF16, &h, &env, 0, parts, 0, col, 32);
            for (uint32_t c = 0; c < 32; c++)
                assert_near(half_of(BRIM_DTYPE_BF16, out[c]),
                            rounded_to(BRIM_DTYPE_BF16, combined(parts, bytes, counts[n], GROUP, HS,
                                                                 col / HS, (col + c) % HS)),
                            "combined", n, col + c);
        }
    }
    free(parts);
}

static void splits_in_view_are_those_of_the_positions_seen(void **state)
{
    (void)state;
    static const uint32_t windows[] = {0, 1, 2, 100, 128, 129, 130, 4096};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        uint32_t w = windows[i], most = 0, context = 1500;
        for (uint32_t p = 0; p < context; p++) {
            uint32_t seen = 0, last = BRIM_NONE;
            for (uint32_t at = 0; at <= p; at++)
                if ((w == 0 || at + w > p) && at / 128 != last) {
                    seen++;
                    last = at / 128;
                }
            assert_int_equal(brim__res_splits(p, w, 1000), seen);
            most = seen > most ? seen : most;
        }
        assert_int_equal(brim__res_splits_of_context(context, w), most);
    }
}

/* ---- files, and programs that are refused ---- */

static void a_resident_program_survives_its_file(void **state)
{
    (void)state;
    weights w = weights_make(&shapes[0]);
    model m = model_make(&w, 8, 3, false, BRIM_EXECUTOR_REFERENCE);
    char *text, *again;
    size_t size, again_size;
    brim_program *copy;
    assert_int_equal(brim_program_dump(&text, &size, m.m.program, m.m.ctx), BRIM_OK);
    assert_int_equal(brim_program_parse(&copy, m.m.ctx, m.m.ops, text, size), BRIM_OK);
    assert_int_equal(brim_program_tensor(copy, TENSOR_HEAD)->layout, BRIM_LAYOUT_MMA8);
    assert_int_equal(brim_program_check(copy, m.m.ctx, 1, NULL, NULL), BRIM_OK);
    assert_int_equal(brim_program_dump(&again, &again_size, copy, m.m.ctx), BRIM_OK);
    assert_string_equal(text, again);
    brim_free(m.m.ctx, text);
    brim_free(m.m.ctx, again);
    brim_program_destroy(copy);
    model_free(&m);
    weights_free(&w);
}

/* Ops that know tiles of 16 rows must not read those of 8, nor the other way round. */
static void layouts_are_not_mistaken_for_each_other(void **state)
{
    (void)state;
    mix m = mix_begin(1);
    uint32_t step = mix_buffer(&m, "step", brim__step_bytes(1), BRIM_BUFFER_INPUT, true);
    uint32_t x = mix_buffer(&m, "x", 4096, BRIM_BUFFER_SCRATCH, true);
    uint32_t history = mix_buffer(&m, "history", 64, BRIM_BUFFER_STATE, false);
    uint32_t mma8 = 0, rows16 = 0, bad = 0;
    brim_tensor_desc desc = {"mma8", BRIM_DTYPE_F16, 64, 64, BRIM_LAYOUT_MMA8};
    assert_int_equal(brim_builder_tensor(&mma8, m.builder, &desc), BRIM_OK);
    desc = (brim_tensor_desc){.name = "rows16", .type = BRIM_DTYPE_F16, .rows = 64, .cols = 64};
    assert_int_equal(brim_builder_tensor(&rows16, m.builder, &desc), BRIM_OK);
    desc = (brim_tensor_desc){"q8", BRIM_DTYPE_Q8_0, 64, 64, BRIM_LAYOUT_MMA8};
    assert_int_equal(brim_builder_tensor(&bad, m.builder, &desc), BRIM_UNSUPPORTED);
    brim_instruction embed = brim_instruction_make(BRIM__OP_EMBED);
    const int32_t operands[EMBED_COUNT] = {
        (int32_t)step, (int32_t)x, (int32_t)history, (int32_t)mma8, 1, 8, 2};
    embed.operand_count = EMBED_COUNT;
    memcpy(embed.operands, operands, sizeof operands);
    assert_int_equal(brim_builder_derive(m.builder, &embed), BRIM_REFUSED);
    assert_string_equal(brim_last_id(), "op.operand");
    embed.operands[EMBED_TENSOR] = (int32_t)rows16;
    assert_int_equal(brim_builder_derive(m.builder, &embed), BRIM_OK);
    brim_instruction product = brim_instruction_make(BRIM__OP_R_QKV);
    const int32_t of_product[RV_COUNT] = {(int32_t)step,
                                          (int32_t)x,
                                          -1,
                                          -1,
                                          (int32_t)x,
                                          -1,
                                          -1,
                                          -1,
                                          -1,
                                          -1,
                                          (int32_t)rows16,
                                          -1,
                                          1,
                                          0,
                                          1,
                                          8,
                                          0,
                                          RV_FROM_Y,
                                          0,
                                          0,
                                          0,
                                          0};
    product.operand_count = RV_COUNT;
    memcpy(product.operands, of_product, sizeof of_product);
    assert_int_equal(brim_builder_derive(m.builder, &product), BRIM_REFUSED);
    product.operands[RV_TENSOR] = (int32_t)mma8;
    assert_int_equal(brim_builder_derive(m.builder, &product), BRIM_OK);
    mix_end(&m);
}

enum { PROGRAMS = 1500 };

typedef struct draws {
    uint64_t seed, n;
} draws;

static uint32_t draw(draws *d, size_t bound)
{
    return (uint32_t)brim__random_below(d->seed, 9, d->n++, bound);
}

static void spoil(brim_program *p, draws *d)
{
    static const int32_t odd[] = {0,  1,  2,  3,    7,       8,         9,        16,    31,
                                  32, 33, 64, 96,   128,     -1,        1024,     65536, 1 << 24,
                                  5,  4,  30, 4096, 1 << 20, INT32_MAX, INT32_MIN};
    for (uint32_t k = 1 + draw(d, 3); k > 0; k--) {
        brim_instruction *in = &p->instructions[draw(d, p->instruction_count)];
        if (in->operand_count == 0)
            continue;
        int32_t *operand = &in->operands[draw(d, in->operand_count)];
        int32_t near_it = (int32_t)((uint32_t)*operand + draw(d, 5) - 2u);
        *operand = draw(d, 2) ? odd[draw(d, sizeof odd / sizeof *odd)] : near_it;
    }
}

/* False: refused, with a reason. */
static bool derive_all(brim_program *p)
{
    for (size_t i = 0; i < p->instruction_count; i++) {
        brim_instruction derived = p->instructions[i];
        const brim_op_desc *op = brim_op_get(p->ops, derived.op);
        if (op->derive && op->derive(&derived, p, &p->instructions[i]) != BRIM_OK) {
            assert_string_equal(brim_last_id(), "op.operand");
            return false;
        }
        p->instructions[i] = derived;
    }
    return true;
}

/* Steps as nobody checked them: rows, positions, slots and tokens out of every range. */
static void run_hostile(model *m, draws *d)
{
    brim_executor *x;
    brim_executor_desc desc = brim_executor_desc_default();
    desc.kind = BRIM_EXECUTOR_REFERENCE;
    desc.check_tables = true;
    assert_int_equal(brim_executor_create(&x, m->m.ctx, m->m.program, &desc), BRIM_OK);
    brim_executor *kept = m->x;
    m->x = x;
    fill_model(m);
    uint32_t *tables = brim_executor_buffer(x, m->tables, 0);
    for (uint32_t i = 0; i < 20; i++)
        tables[draw(d, m->w->s->slots * blocks_of(m->w->s))] =
            draw(d, 2) ? UINT32_MAX : draw(d, 99);
    for (int n = 0; n < 2; n++) {
        uint32_t *step = brim_executor_buffer(x, m->step, brim_executor_epoch(x));
        for (uint64_t i = 0; i < brim__step_bytes(m->rows) / 4; i++) {
            static const uint32_t odd[] = {0, 1, 2, 3, 8, 9, 127, 128, 287, 288, 100, 1 << 20};
            step[i] =
                draw(d, 8) ? odd[draw(d, 12)] : (uint32_t)brim__random_u64(d->seed, 3, d->n++);
        }
        assert_int_equal(brim_executor_run(x, 1), BRIM_OK);
    }
    brim_executor_destroy(x);
    m->x = kept;
}

static void hostile_operands_and_steps_stay_in_their_regions(void **state)
{
    (void)state;
    static const shape small = {"small", BRIM_DTYPE_F16, 32,   32,  1, 2, 64, 30, 1, 2, 160,
                                0,       true,           true, true};
    weights w = weights_make(&small);
    uint32_t derived = 0, ran = 0;
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
        draws d = {seed, 0};
        model m = model_make(&w, 3, 2, seed % 2, BRIM_EXECUTOR_REFERENCE);
        brim_program *p = m.m.program;
        if (seed > 20)
            spoil(p, &d);
        if (derive_all(p)) {
            derived++;
            if (brim_program_check(p, m.m.ctx, 1, NULL, NULL) == BRIM_OK) {
                ran++;
                run_hostile(&m, &d);
            }
        }
        model_free(&m);
    }
    print_message(
        "of %d programs, %u have operands that derive() takes, %u pass the check and run\n",
        PROGRAMS, derived, ran);
    assert_true(ran > PROGRAMS / 20);
    weights_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_means_what_its_definition_says),
        cmocka_unit_test(a_rows_bits_are_those_of_running_alone),
        cmocka_unit_test(combining_in_the_product_gives_the_same_bits),
        cmocka_unit_test(parts_combine_to_their_softmax),
        cmocka_unit_test(splits_in_view_are_those_of_the_positions_seen),
        cmocka_unit_test(a_resident_program_survives_its_file),
        cmocka_unit_test(layouts_are_not_mistaken_for_each_other),
        cmocka_unit_test(hostile_operands_and_steps_stay_in_their_regions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
