/* matmul_avx512.c: y = W x with a vector lane for each of 16 weight rows.
 *
 * Integers: a cell's numbers become unsigned bytes, four columns a lane, and vpdpbusd multiplies
 * them with four bytes of one plane of the activations, sent to all lanes. 256 * hi + lo and the
 * types' own offsets are put together in 32-bit integers, exactly; the float part follows
 * kernels.h operation by operation. No sum ever crosses lanes.
 *
 * Decode (one activation row) is bound by memory: several groups of rows run side by side to hide
 * latency, and the tile is fetched ahead. Prefill unpacks a cell once for up to 8 rows. */
#if defined(__x86_64__)
#include "kernels/cpu/kernels_avx512.h"

#include <immintrin.h>

#include "kernels/cpu/inline.h"

enum {
    SIDE_BY_SIDE = 2, /* groups of rows that one pass of decode works on */
    ROWS_AT_ONCE = 8, /* activation rows for which a cell is unpacked once */
    IN_STEP = 4,      /* of which these go side by side */
    FETCH_AHEAD = 4096,
};
/* ---- what a cell holds ---- */

static const brim__cell_layout layouts[] = {
#define LAYOUT(name, id, block, bytes) [BRIM_DTYPE_##name] = BRIM__CELL_##name,
    BRIM_DTYPE_LIST(LAYOUT)
#undef LAYOUT
};

static ALWAYS_INLINE __m512i load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static ALWAYS_INLINE __m512 load_halves(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* Shifts the bits of bytes; what crosses into the next byte is masked off by the caller. */
static ALWAYS_INLINE __m512i shift_left(__m512i v, int by)
{
    return by >= 0 ? _mm512_slli_epi16(v, (unsigned)by) : _mm512_srli_epi16(v, (unsigned)-by);
}

/* low | (bits & mask) */
static ALWAYS_INLINE __m512i merge_bits(__m512i low, __m512i bits, __m512i mask)
{
    return _mm512_ternarylogic_epi32(low, bits, mask, 0xf8);
}

/* w[g]: columns 4g .. 4g + 3 of 16 rows, as unsigned bytes. */
static ALWAYS_INLINE void unpack(__m512i w[8], brim_dtype type, const uint8_t *sub)
{
    if (type == BRIM_DTYPE_Q8_0) {
        UNROLL
        for (int g = 0; g < 8; g++)
            w[g] = load(sub + 64 * g);
        return;
    }
    const brim__cell_layout at = layouts[type];
    const __m512i low = _mm512_set1_epi8(15);
    UNROLL
    for (int g = 0; g < 4; g++) {
        __m512i nib = load(sub + at.high + 64 * g);
        w[g] = _mm512_and_si512(nib, low);
        w[4 + g] = _mm512_and_si512(_mm512_srli_epi16(nib, 4), low);
    }
    if (at.high == BRIM__HIGH_BYTES) {
        __m512i high = load(sub), mask = _mm512_set1_epi8(16);
        UNROLL
        for (int g = 0; g < 8; g++)
            w[g] = merge_bits(w[g], shift_left(high, 4 - g), mask);
    } else if (at.high) {
        __m512i mask = _mm512_set1_epi8(48);
        UNROLL
        for (int h = 0; h < 2; h++) {
            __m512i high = load(sub + 64 * h);
            UNROLL
            for (int g = 0; g < 4; g++)
                w[4 * h + g] = merge_bits(w[4 * h + g], shift_left(high, 4 - 2 * g), mask);
        }
    }
}

/* The scales of one sub-block: a for its halves (the same but in Q6_K), b what is added (m) or
 * taken away (dmin * mn). */
typedef struct scales {
    __m512 a[2], b;
} scales;

static ALWAYS_INLINE __m512 load_bytes(const uint8_t *p, bool is_signed)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return _mm512_cvtepi32_ps(is_signed ? _mm512_cvtepi8_epi32(bytes)
                                        : _mm512_cvtepu8_epi32(bytes));
}

static ALWAYS_INLINE bool has_offset(brim_dtype type)
{
    return layouts[type].m != 0;
}
static ALWAYS_INLINE bool takes_offset(brim_dtype type)
{
    return layouts[type].mn != 0;
}
static ALWAYS_INLINE bool has_halves(brim_dtype type)
{
    return type == BRIM_DTYPE_Q6_K;
}

static ALWAYS_INLINE scales read_scales(brim_dtype type, const uint8_t *cell, int sub)
{
    const brim__cell_layout at = layouts[type];
    scales s;
    __m512 d = load_halves(cell);
    s.a[0] = s.a[1] = d;
    s.b = at.m ? load_halves(cell + at.m) : _mm512_setzero_ps();
    if (has_halves(type)) {
        UNROLL
        for (int h = 0; h < 2; h++)
            s.a[h] = _mm512_mul_ps(d, load_bytes(cell + at.sc + 16 * (2 * sub + h), true));
    } else if (at.sc) {
        s.a[0] = s.a[1] = _mm512_mul_ps(d, load_bytes(cell + at.sc + 16 * sub, false));
        s.b = _mm512_mul_ps(s.b, load_bytes(cell + at.mn + 16 * sub, false));
    }
    return s;
}

/* ---- integers ---- */

/* log2 of what is added to a stored number to make it unsigned; -1: nothing. */
static ALWAYS_INLINE int bias_bits(brim_dtype type)
{
    return type == BRIM_DTYPE_Q4_0   ? 3
           : type == BRIM_DTYPE_Q5_0 ? 4
           : type == BRIM_DTYPE_Q6_K ? 5
           : type == BRIM_DTYPE_Q8_0 ? 7
                                     : -1;
}

static ALWAYS_INLINE __m512i send_i32(const void *p)
{
    return _mm512_set1_epi32((int)brim__load_u32(p));
}

/* Adds the sums of w * q over the column groups from..to to sum[i], in 32-bit integers, for some
 * streams (a group of weight rows and an activation row) in step: their independent chains keep
 * the multipliers busy. `split` makes two chains of each. */
static ALWAYS_INLINE void dot(__m512i *sum, const __m512i (*const *w)[8], const brim__q16 *const *x,
                              int streams, int from, int to, bool split)
{
    const int chains = split ? 2 : 1;
    __m512i hi[2 * IN_STEP], lo[2 * IN_STEP];
    UNROLL
    for (int i = 0; i < streams * chains; i++) {
        hi[i] = _mm512_setzero_si512();
        lo[i] = i < streams ? sum[i] : _mm512_setzero_si512();
    }
    UNROLL
    for (int g = from; g < to; g++)
        UNROLL
    for (int i = 0; i < streams; i++) {
        const int chain = i + (split ? g % 2 * streams : 0);
        hi[chain] = _mm512_dpbusd_epi32(hi[chain], (*w[i])[g], send_i32(x[i]->hi + 4 * g));
        lo[chain] = _mm512_dpbusd_epi32(lo[chain], (*w[i])[g], send_i32(x[i]->lo + 4 * g));
    }
    UNROLL
    for (int i = 0; i < streams; i++) {
        if (split) {
            hi[i] = _mm512_add_epi32(hi[i], hi[streams + i]);
            lo[i] = _mm512_add_epi32(lo[i], lo[streams + i]);
        }
        sum[i] = _mm512_add_epi32(_mm512_slli_epi32(hi[i], 8), lo[i]);
    }
}

/* What the stored numbers' bias adds to a sum, negated. */
static ALWAYS_INLINE __m512i bias_of(const brim__q16 *x, int from, int to, brim_dtype type)
{
    if (bias_bits(type) < 0)
        return _mm512_setzero_si512();
    __m512i sum = _mm512_setzero_si512();
    if (from == 0)
        sum = _mm512_sub_epi32(sum, send_i32(&x->sum[0]));
    if (to == 8)
        sum = _mm512_sub_epi32(sum, send_i32(&x->sum[1]));
    return _mm512_slli_epi32(sum, (unsigned)bias_bits(type));
}

/* One sub-block for some streams: adds to *acc[i]. */
static ALWAYS_INLINE void add_blocks(__m512 *const *acc, const __m512i (*const *w)[8],
                                     const scales *const *s, const brim__q16 *const *x, int streams,
                                     bool split, brim_dtype type)
{
    const int parts = has_halves(type) ? 2 : 1;
    UNROLL
    for (int h = 0; h < parts; h++) {
        int from = 4 * h, to = has_halves(type) ? from + 4 : 8;
        __m512i sum[IN_STEP];
        UNROLL
        for (int i = 0; i < streams; i++)
            sum[i] = bias_of(x[i], from, to, type);
        dot(sum, w, x, streams, from, to, split);
        UNROLL
        for (int i = 0; i < streams; i++) {
            __m512 a = _mm512_mul_ps(s[i]->a[h], _mm512_set1_ps(x[i]->scale));
            *acc[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i]), a, *acc[i]);
        }
    }
    if (!has_offset(type))
        return;
    UNROLL
    for (int i = 0; i < streams; i++) {
        __m512 scaled_sum = _mm512_set1_ps(x[i]->scaled_sum);
        *acc[i] = takes_offset(type) ? _mm512_fnmadd_ps(s[i]->b, scaled_sum, *acc[i])
                                     : _mm512_fmadd_ps(s[i]->b, scaled_sum, *acc[i]);
    }
}

/* ---- floats ---- */

/* Column `byte` of the four in w, of 16 rows, as floats; a is that of the columns' half. */
static ALWAYS_INLINE __m512 column(__m512i w, int byte, __m512 a, __m512 b, brim_dtype type)
{
    __m512i q = _mm512_and_si512(_mm512_srli_epi32(w, 8 * (unsigned)byte), _mm512_set1_epi32(255));
    if (bias_bits(type) >= 0)
        q = _mm512_sub_epi32(q, _mm512_set1_epi32(1 << bias_bits(type)));
    __m512 f = _mm512_cvtepi32_ps(q);
    if (takes_offset(type))
        return _mm512_fmsub_ps(f, a, b);
    return has_offset(type) ? _mm512_fmadd_ps(f, a, b) : _mm512_mul_ps(a, f);
}

static ALWAYS_INLINE __m512 float_column(const uint8_t *cell, int c, brim_dtype type)
{
    if (type == BRIM_DTYPE_F32)
        return _mm512_loadu_ps(cell + 64 * c);
    if (type == BRIM_DTYPE_F16)
        return load_halves(cell + 32 * c);
    __m256i halves = _mm256_loadu_si256((const __m256i *)(cell + 32 * c));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

static ALWAYS_INLINE bool is_float(brim_dtype type)
{
    return type == BRIM_DTYPE_F32 || type == BRIM_DTYPE_F16 || type == BRIM_DTYPE_BF16;
}

/* ---- one cell, for `groups` groups of weight rows and `rows` activation rows ---- */

/* Asks for what decode will read a little later, also past the end: a hint never faults. */
static ALWAYS_INLINE void fetch_ahead(const uint8_t *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)from + i, _MM_HINT_T0);
}

/* acc[g * rows + m]. The cells of neighbouring groups stand group_bytes apart, the activation
 * rows x_row_bytes. */
static ALWAYS_INLINE void add_cell_q16(__m512 *acc, int groups, int rows, const uint8_t *cell,
                                       size_t group_bytes, size_t ahead, const uint8_t *x,
                                       size_t x_row_bytes, brim_dtype type)
{
    const brim__cell_layout at = layouts[type];
    const size_t sub_share = at.sub_bytes + (at.subs + at.sub_count - 1u) / at.sub_count;
    for (int sub = 0; sub < at.sub_count; sub++, x += sizeof(brim__q16)) {
        __m512i w[SIDE_BY_SIDE][8];
        scales s[SIDE_BY_SIDE];
        UNROLL
        for (int g = 0; g < groups; g++) {
            const uint8_t *from = cell + (size_t)g * group_bytes;
            const uint8_t *bits = from + at.subs + sub * at.sub_bytes;
            if (rows == 1)
                fetch_ahead(from + ahead + sub * sub_share, sub_share);
            unpack(w[g], type, bits);
            s[g] = read_scales(type, from, sub);
        }
        const int step = groups * rows < IN_STEP ? groups * rows : IN_STEP;
        UNROLL
        for (int first = 0; first < groups * rows; first += step) {
            const __m512i(*weights[IN_STEP])[8];
            const scales *row_scales[IN_STEP];
            const brim__q16 *blocks[IN_STEP];
            __m512 *sums[IN_STEP];
            UNROLL
            for (int i = 0; i < step; i++) {
                int g = (first + i) / rows, m = (first + i) % rows;
                weights[i] = (const __m512i(*)[8]) & w[g];
                row_scales[i] = &s[g];
                blocks[i] = (const brim__q16 *)(x + (size_t)m * x_row_bytes);
                sums[i] = &acc[first + i];
            }
            add_blocks(sums, weights, row_scales, blocks, step, rows == 1, type);
        }
    }
}

static ALWAYS_INLINE void add_cell_f32(__m512 *acc, int groups, int rows, const uint8_t *cell,
                                       size_t group_bytes, const uint8_t *x, size_t x_row_bytes,
                                       brim_dtype type)
{
    const brim__cell_layout at = layouts[type];
    for (int sub = 0; sub < at.sub_count; sub++, x += BRIM__BLOCK_COLS * sizeof(float)) {
        __m512i w[SIDE_BY_SIDE][8];
        scales s[SIDE_BY_SIDE];
        for (int g = 0; g < groups; g++)
            if (!is_float(type)) {
                unpack(w[g], type, cell + (size_t)g * group_bytes + at.subs + sub * at.sub_bytes);
                s[g] = read_scales(type, cell + (size_t)g * group_bytes, sub);
            }
        for (int c = 0; c < BRIM__BLOCK_COLS; c += 4)
            UNROLL
        for (int i = 0; i < 4 * groups; i++) {
            int g = i % groups, byte = i / groups;
            __m512 f = is_float(type) ? float_column(cell + (size_t)g * group_bytes, c + byte, type)
                                      : column(w[g][c / 4], byte, s[g].a[c / 16], s[g].b, type);
            UNROLL
            for (int m = 0; m < rows; m++) {
                const float *value = (const float *)(x + (size_t)m * x_row_bytes) + c + byte;
                acc[g * rows + m] = _mm512_fmadd_ps(f, _mm512_set1_ps(*value), acc[g * rows + m]);
            }
        }
    }
}

/* ---- a whole row block ---- */

/* What a call works through. */
typedef struct product {
    const brim__tiling *t;
    const uint8_t *x;
    size_t x_row_bytes;
    float *out;
    size_t out_stride;
} product;

/* Groups first_group .. + groups of the row block at `block`, activation rows first_row .. + rows.
 */
static ALWAYS_INLINE void run_groups(const product *p, const uint8_t *block, float *out,
                                     uint32_t first_group, int groups, uint32_t first_row, int rows,
                                     brim_dtype type, brim__act act)
{
    const brim__tiling *t = p->t;
    const uint8_t *x = p->x + first_row * p->x_row_bytes;
    const size_t x_step =
        layouts[type].sub_count * (act == BRIM__ACT_Q16 ? sizeof(brim__q16) : 32 * sizeof(float));
    const size_t cell_bytes =
        layouts[type].subs + (size_t)layouts[type].sub_count * layouts[type].sub_bytes;
    __m512 acc[ROWS_AT_ONCE];
    UNROLL
    for (int i = 0; i < groups * rows; i++)
        acc[i] = _mm512_setzero_ps();
    for (uint32_t b = 0; b < t->col_blocks; b++) {
        uint32_t cells = brim__tile_cells(t, b);
        size_t group_bytes = cells * cell_bytes;
        const uint8_t *cell = block + brim__tile_offset(t, b) + first_group * group_bytes;
        for (uint32_t c = 0; c < cells; c++, cell += cell_bytes, x += x_step) {
            size_t ahead = FETCH_AHEAD;
            if (c * cell_bytes + FETCH_AHEAD >= group_bytes)
                ahead += group_bytes * (size_t)(groups - 1);
            if (act == BRIM__ACT_Q16)
                add_cell_q16(acc, groups, rows, cell, group_bytes, ahead, x, p->x_row_bytes, type);
            else
                add_cell_f32(acc, groups, rows, cell, group_bytes, x, p->x_row_bytes, type);
        }
    }
    UNROLL
    for (int g = 0; g < groups; g++)
        UNROLL
    for (int m = 0; m < rows; m++)
        _mm512_storeu_ps(out + (first_row + (uint32_t)m) * p->out_stride +
                             (first_group + (uint32_t)g) * BRIM__GROUP_ROWS,
                         acc[g * rows + m]);
}

static ALWAYS_INLINE void run(float *out, size_t out_stride, const brim__tiling *t,
                              const void *tiles, uint32_t row_block_count, const void *x,
                              size_t x_row_bytes, uint32_t row_count, brim_dtype type,
                              brim__act act)
{
    const product p = {t, x, x_row_bytes, out, out_stride};
    uint32_t groups = t->tile_rows / BRIM__GROUP_ROWS;
    for (uint32_t i = 0; i < row_block_count; i++, out += t->tile_rows) {
        const uint8_t *block = (const uint8_t *)tiles + i * t->row_block_bytes;
        uint32_t m = 0;
        for (; row_count - m >= 8; m += 8)
            for (uint32_t g = 0; g < groups; g++)
                run_groups(&p, block, out, g, 1, m, 8, type, act);
        if (row_count - m >= 4) {
            for (uint32_t g = 0; g < groups; g++)
                run_groups(&p, block, out, g, 1, m, 4, type, act);
            m += 4;
        }
        if (row_count - m >= 2) {
            for (uint32_t g = 0; g < groups; g++)
                run_groups(&p, block, out, g, 1, m, 2, type, act);
            m += 2;
        }
        if (row_count - m >= 1) {
            uint32_t g = 0;
            for (; g + SIDE_BY_SIDE <= groups; g += SIDE_BY_SIDE)
                run_groups(&p, block, out, g, SIDE_BY_SIDE, m, 1, type, act);
            for (; g < groups; g++)
                run_groups(&p, block, out, g, 1, m, 1, type, act);
        }
    }
}

#define MATMUL(type, act)                                                                          \
    void brim__avx512_matmul_##type##_##act(float *out, size_t out_stride, const brim__tiling *t,  \
                                            const void *tiles, uint32_t row_block_count,           \
                                            const void *x, size_t x_row_bytes, uint32_t row_count) \
    {                                                                                              \
        run(out, out_stride, t, tiles, row_block_count, x, x_row_bytes, row_count,                 \
            BRIM_DTYPE_##type, BRIM__ACT_##act);                                                   \
    }
BRIM__MATMUL_LIST(MATMUL)
#undef MATMUL

#endif
