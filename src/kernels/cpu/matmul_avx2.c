/* matmul_avx2.c: y = W x with a vector lane for each of 8 weight rows, half a cell at a time.
 *
 * Integers without VNNI: up to six bits, vpmaddubsw multiplies unsigned bytes with one plane of
 * the activations and the pairs are summed in 16 bits for as long as they cannot overflow: eight
 * column groups at four bits (8 * 2 * 15 * 128 < 2^15), four at five (4 * 2 * 31 * 128), two at
 * six (2 * 2 * 63 * 128). Bytes at full range would saturate at once, so that Q8_0 widens its
 * numbers to 16 bits and multiplies pairs of whole q with vpmaddwd; those pairs are made from the
 * planes once for a tile. All of it is exact; the float part follows kernels.h. */
#if defined(__x86_64__)
#include "kernels/cpu/kernels_avx2.h"

#include <assert.h>
#include <immintrin.h>

#include "kernels/cpu/inline.h"

enum {
    LANES = 8,
    HALF_BYTES = 32,  /* of a vector of numbers: the second half of a cell stands behind it */
    ROWS_AT_ONCE = 4, /* activation rows for which a cell is unpacked once */
    FETCH_AHEAD = 4096,
    TILE_BLOCKS_MAX = BRIM__TILE_BYTES_MAX / 288, /* blocks of 32 columns, in the densest type */
};

/* ---- what half a cell holds ---- */

static const brim__cell_layout layouts[] = {
#define LAYOUT(name, id, block, bytes) [BRIM_DTYPE_##name] = BRIM__CELL_##name,
    BRIM_DTYPE_LIST(LAYOUT)
#undef LAYOUT
};

static ALWAYS_INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static ALWAYS_INLINE __m256 load_halves(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

/* Shifts the bits of bytes; what crosses into the next byte is masked off by the caller. */
static ALWAYS_INLINE __m256i shift_left(__m256i v, int by)
{
    return by == 0 ? v : by > 0 ? _mm256_slli_epi16(v, by) : _mm256_srli_epi16(v, -by);
}

static ALWAYS_INLINE __m256i merge_bits(__m256i low, __m256i bits, __m256i mask)
{
    return _mm256_or_si256(low, _mm256_and_si256(bits, mask));
}

/* w[g]: columns 4g .. 4g + 3 of 8 rows, as unsigned bytes. `sub` is already that of the half. */
static ALWAYS_INLINE void unpack(__m256i w[8], brim_dtype type, const uint8_t *sub)
{
    if (type == BRIM_DTYPE_Q8_0) {
        UNROLL
        for (int g = 0; g < 8; g++)
            w[g] = load(sub + 64 * g);
        return;
    }
    const brim__cell_layout at = layouts[type];
    const __m256i low = _mm256_set1_epi8(15);
    UNROLL
    for (int g = 0; g < 4; g++) {
        __m256i nib = load(sub + at.high + 64 * g);
        w[g] = _mm256_and_si256(nib, low);
        w[4 + g] = _mm256_and_si256(_mm256_srli_epi16(nib, 4), low);
    }
    if (at.high == BRIM__HIGH_BYTES) {
        __m256i high = load(sub), mask = _mm256_set1_epi8(16);
        UNROLL
        for (int g = 0; g < 8; g++)
            w[g] = merge_bits(w[g], shift_left(high, 4 - g), mask);
    } else if (at.high) {
        __m256i mask = _mm256_set1_epi8(48);
        UNROLL
        for (int g = 0; g < 8; g++)
            w[g] = merge_bits(w[g], shift_left(load(sub + 64 * (g / 4)), 4 - 2 * (g % 4)), mask);
    }
}

/* The scales of one sub-block: a for its halves (the same but in Q6_K), b what is added (m) or
 * taken away (dmin * mn). */
typedef struct scales {
    __m256 a[2], b;
} scales;

static ALWAYS_INLINE __m256 load_bytes(const uint8_t *p, bool is_signed)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)p);
    return _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(bytes)
                                        : _mm256_cvtepu8_epi32(bytes));
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

static ALWAYS_INLINE scales read_scales(brim_dtype type, const uint8_t *cell, int sub, int half)
{
    const brim__cell_layout at = layouts[type];
    scales s;
    __m256 d = load_halves(cell + 2 * LANES * half);
    s.a[0] = s.a[1] = d;
    s.b = at.m ? load_halves(cell + at.m + 2 * LANES * half) : _mm256_setzero_ps();
    const uint8_t *sc = cell + at.sc + LANES * half, *mn = cell + at.mn + LANES * half;
    if (has_halves(type)) {
        UNROLL
        for (int h = 0; h < 2; h++)
            s.a[h] = _mm256_mul_ps(d, load_bytes(sc + 16 * (2 * sub + h), true));
    } else if (at.sc) {
        s.a[0] = s.a[1] = _mm256_mul_ps(d, load_bytes(sc + 16 * sub, false));
        s.b = _mm256_mul_ps(s.b, load_bytes(mn + 16 * sub, false));
    }
    return s;
}

/* ---- integers ---- */

/* The q of a block as pairs of 16 bits: even[g] holds columns 4g and 4g + 2, odd[g] 4g + 1 and
 * 4g + 3, as vpmaddwd meets them in the even and odd bytes of a lane. */
typedef struct pairs {
    int32_t even[8], odd[8];
} pairs;

static ALWAYS_INLINE void make_pairs(pairs *out, const brim__q16 *x)
{
    __m256i hi = load(x->hi), lo = load(x->lo);
    __m256i even =
        _mm256_add_epi16(_mm256_slli_epi16(hi, 8), _mm256_srai_epi16(_mm256_slli_epi16(lo, 8), 8));
    __m256i odd = _mm256_add_epi16(_mm256_and_si256(hi, _mm256_set1_epi16((short)0xff00)),
                                   _mm256_srai_epi16(lo, 8));
    _mm256_storeu_si256((__m256i *)out->even, even);
    _mm256_storeu_si256((__m256i *)out->odd, odd);
}

/* Activations of one block: `pairs` for Q8_0 only. */
typedef struct block_acts {
    const brim__q16 *x;
    const pairs *pairs;
} block_acts;

/* log2 of what is added to a stored number to make it unsigned; -1: nothing. */
static ALWAYS_INLINE int bias_bits(brim_dtype type)
{
    return type == BRIM_DTYPE_Q4_0   ? 3
           : type == BRIM_DTYPE_Q5_0 ? 4
           : type == BRIM_DTYPE_Q6_K ? 5
           : type == BRIM_DTYPE_Q8_0 ? 7
                                     : -1;
}

/* Column groups whose products 16 bits can sum. */
static ALWAYS_INLINE int groups_in_16_bits(brim_dtype type)
{
    return layouts[type].high == 0 ? 8 : layouts[type].high == BRIM__HIGH_BYTES ? 4 : 2;
}

static ALWAYS_INLINE __m256i send_i32(const void *p)
{
    return _mm256_set1_epi32((int)brim__load_u32(p));
}

/* Ties a partial sum down where it is made. Compilers like to turn a chain of integer additions
 * into a tree, for which 16 registers are far too few. */
static ALWAYS_INLINE __m256i in_order(__m256i sum)
{
    __asm__("" : "+x"(sum));
    return sum;
}

static ALWAYS_INLINE __m256i dot_planes(const __m256i w[8], const brim__q16 *x, int from, int to,
                                        brim_dtype type)
{
    const int span = groups_in_16_bits(type);
    const __m256i ones = _mm256_set1_epi16(1), places = _mm256_set1_epi16(256);
    __m256i all = _mm256_setzero_si256(), hi = all, lo = all;
    UNROLL
    for (int g = from; g < to; g++) {
        __m256i high = _mm256_maddubs_epi16(w[g], send_i32(x->hi + 4 * g));
        __m256i low = _mm256_maddubs_epi16(w[g], send_i32(x->lo + 4 * g));
        hi = in_order(g % span ? _mm256_add_epi16(hi, high) : high);
        lo = in_order(g % span ? _mm256_add_epi16(lo, low) : low);
        if (g % span == span - 1) {
            __m256i sum =
                _mm256_add_epi32(_mm256_madd_epi16(hi, places), _mm256_madd_epi16(lo, ones));
            all = in_order(g / span > from / span ? _mm256_add_epi32(all, sum) : sum);
        }
    }
    return all;
}

static ALWAYS_INLINE __m256i dot_pairs(const __m256i w[8], const pairs *x)
{
    const __m256i even = _mm256_set1_epi16(255);
    __m256i a = _mm256_setzero_si256(), b = a;
    UNROLL
    for (int g = 0; g < 8; g++) {
        __m256i first = _mm256_madd_epi16(_mm256_and_si256(w[g], even), send_i32(&x->even[g]));
        __m256i second = _mm256_madd_epi16(_mm256_srli_epi16(w[g], 8), send_i32(&x->odd[g]));
        a = in_order(_mm256_add_epi32(a, first));
        b = in_order(_mm256_add_epi32(b, second));
    }
    return _mm256_add_epi32(a, b);
}

/* As a float, the sum of w * q over the column groups from..to; `sum` is that of q. */
static ALWAYS_INLINE __m256 dot(const __m256i w[8], block_acts x, int from, int to, __m256i sum,
                                brim_dtype type)
{
    __m256i all =
        type == BRIM_DTYPE_Q8_0 ? dot_pairs(w, x.pairs) : dot_planes(w, x.x, from, to, type);
    if (bias_bits(type) >= 0)
        all = _mm256_sub_epi32(all, _mm256_slli_epi32(sum, bias_bits(type)));
    return _mm256_cvtepi32_ps(all);
}

static ALWAYS_INLINE __m256 add_block(__m256 acc, const __m256i w[8], const scales *s, block_acts b,
                                      brim_dtype type)
{
    const brim__q16 *x = b.x;
    __m256 scale = _mm256_set1_ps(x->scale);
    if (has_halves(type)) {
        UNROLL
        for (int h = 0; h < 2; h++)
            acc = _mm256_fmadd_ps(dot(w, b, 4 * h, 4 * h + 4, send_i32(&x->sum[h]), type),
                                  _mm256_mul_ps(s->a[h], scale), acc);
        return acc;
    }
    __m256i sum = _mm256_setzero_si256();
    if (bias_bits(type) >= 0)
        sum = _mm256_add_epi32(send_i32(&x->sum[0]), send_i32(&x->sum[1]));
    acc = _mm256_fmadd_ps(dot(w, b, 0, 8, sum, type), _mm256_mul_ps(s->a[0], scale), acc);
    if (takes_offset(type))
        return _mm256_fnmadd_ps(s->b, _mm256_set1_ps(x->scaled_sum), acc);
    if (has_offset(type))
        return _mm256_fmadd_ps(s->b, _mm256_set1_ps(x->scaled_sum), acc);
    return acc;
}

/* ---- floats ---- */

/* Column `byte` of the four in w, of 8 rows, as floats; a is that of the columns' half. */
static ALWAYS_INLINE __m256 column(__m256i w, int byte, __m256 a, __m256 b, brim_dtype type)
{
    __m256i q = _mm256_and_si256(_mm256_srli_epi32(w, 8 * byte), _mm256_set1_epi32(255));
    if (bias_bits(type) >= 0)
        q = _mm256_sub_epi32(q, _mm256_set1_epi32(1 << bias_bits(type)));
    __m256 f = _mm256_cvtepi32_ps(q);
    if (takes_offset(type))
        return _mm256_fmsub_ps(f, a, b);
    return has_offset(type) ? _mm256_fmadd_ps(f, a, b) : _mm256_mul_ps(a, f);
}

static ALWAYS_INLINE __m256 float_column(const uint8_t *cell, int c, int half, brim_dtype type)
{
    int first = BRIM__GROUP_ROWS * c + LANES * half;
    if (type == BRIM_DTYPE_F32)
        return _mm256_loadu_ps((const float *)cell + first);
    if (type == BRIM_DTYPE_F16)
        return load_halves(cell + 2 * first);
    __m128i halves = _mm_loadu_si128((const __m128i *)(cell + 2 * first));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

static ALWAYS_INLINE bool is_float(brim_dtype type)
{
    return type == BRIM_DTYPE_F32 || type == BRIM_DTYPE_F16 || type == BRIM_DTYPE_BF16;
}

/* ---- one cell, for halves first_half .. + halves and `rows` activation rows ---- */

/* Asks for what decode will read a little later, also past the end: a hint never faults. */
static ALWAYS_INLINE void fetch_ahead(const uint8_t *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)from + i, _MM_HINT_T0);
}

/* acc[half * rows + m]; the activation rows are x_step bytes apart, their pairs TILE_BLOCKS_MAX. */
static ALWAYS_INLINE void add_cell_q16(__m256 *acc, int first_half, int halves, int rows,
                                       const uint8_t *cell, const uint8_t *x, size_t x_row_bytes,
                                       const pairs *panel, brim_dtype type)
{
    const brim__cell_layout at = layouts[type];
    const size_t sub_share = at.sub_bytes + (at.subs + at.sub_count - 1u) / at.sub_count;
    for (int sub = 0; sub < at.sub_count; sub++, x += sizeof(brim__q16), panel++) {
        if (rows == 1)
            fetch_ahead(cell + FETCH_AHEAD + (size_t)sub * sub_share, sub_share);
        UNROLL
        for (int h = 0; h < halves; h++) {
            __m256i w[8];
            unpack(w, type, cell + at.subs + sub * at.sub_bytes + HALF_BYTES * (first_half + h));
            scales s = read_scales(type, cell, sub, first_half + h);
            UNROLL
            for (int m = 0; m < rows; m++) {
                block_acts b = {(const brim__q16 *)(x + (size_t)m * x_row_bytes),
                                panel + (size_t)m * TILE_BLOCKS_MAX};
                acc[h * rows + m] = add_block(acc[h * rows + m], w, &s, b, type);
            }
        }
    }
}

static ALWAYS_INLINE void add_cell_f32(__m256 *acc, int first_half, int halves, int rows,
                                       const uint8_t *cell, const uint8_t *x, size_t x_row_bytes,
                                       brim_dtype type)
{
    const brim__cell_layout at = layouts[type];
    for (int sub = 0; sub < at.sub_count; sub++, x += BRIM__BLOCK_COLS * sizeof(float)) {
        __m256i w[2][8];
        scales s[2];
        for (int h = 0; h < halves; h++)
            if (!is_float(type)) {
                unpack(w[h], type,
                       cell + at.subs + sub * at.sub_bytes + HALF_BYTES * (first_half + h));
                s[h] = read_scales(type, cell, sub, first_half + h);
            }
        for (int c = 0; c < BRIM__BLOCK_COLS; c += 4)
            UNROLL
        for (int i = 0; i < 4 * halves; i++) {
            int h = i % halves, byte = i / halves;
            __m256 f = is_float(type) ? float_column(cell, c + byte, first_half + h, type)
                                      : column(w[h][c / 4], byte, s[h].a[c / 16], s[h].b, type);
            UNROLL
            for (int m = 0; m < rows; m++) {
                const float *value = (const float *)(x + (size_t)m * x_row_bytes) + c + byte;
                acc[h * rows + m] = _mm256_fmadd_ps(f, _mm256_set1_ps(*value), acc[h * rows + m]);
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
    size_t out_stride;
} product;

/* Makes the pairs of `rows` activation rows for the columns of one tile. */
static void make_panel(pairs *panel, const uint8_t *x, size_t x_row_bytes, int rows,
                       uint32_t blocks)
{
    for (int m = 0; m < rows; m++)
        for (uint32_t b = 0; b < blocks; b++)
            make_pairs(panel + (size_t)m * TILE_BLOCKS_MAX + b,
                       (const brim__q16 *)(x + (size_t)m * x_row_bytes) + b);
}

/* One tile times `rows` activation rows (at x): adds to sums[unit * rows + m], a unit being half
 * a group. Decode takes both halves of a cell, to hide latency. */
static ALWAYS_INLINE void run_tile(__m256 *sums, const product *p, const uint8_t *cell,
                                   uint32_t cells, const uint8_t *x, const pairs *panel, int rows,
                                   brim_dtype type, brim__act act)
{
    const brim__cell_layout at = layouts[type];
    const size_t x_step =
        at.sub_count * (act == BRIM__ACT_Q16 ? sizeof(brim__q16) : 32 * sizeof(float));
    const size_t cell_bytes = at.subs + (size_t)at.sub_count * at.sub_bytes;
    const int halves = rows == 1 ? 2 : 1;
    for (uint32_t g = 0; g < p->t->tile_rows / BRIM__GROUP_ROWS; g++, cell += cells * cell_bytes)
        for (int first = 0; first < 2; first += halves, sums += halves * rows) {
            __m256 acc[ROWS_AT_ONCE];
            UNROLL
            for (int i = 0; i < halves * rows; i++)
                acc[i] = sums[i];
            for (uint32_t c = 0; c < cells; c++) {
                const uint8_t *from = cell + c * cell_bytes;
                if (act == BRIM__ACT_Q16)
                    add_cell_q16(acc, first, halves, rows, from, x + c * x_step, p->x_row_bytes,
                                 panel + c * at.sub_count, type);
                else
                    add_cell_f32(acc, first, halves, rows, from, x + c * x_step, p->x_row_bytes,
                                 type);
            }
            UNROLL
            for (int i = 0; i < halves * rows; i++)
                sums[i] = acc[i];
        }
}

/* All of one row block times `rows` activation rows. */
static ALWAYS_INLINE void run_row_block(float *out, const product *p, const uint8_t *tiles,
                                        uint32_t first_row, int rows, brim_dtype type,
                                        brim__act act)
{
    const brim__tiling *t = p->t;
    const bool use_pairs = type == BRIM_DTYPE_Q8_0 && act == BRIM__ACT_Q16;
    pairs panel[ROWS_AT_ONCE * TILE_BLOCKS_MAX]; /* takes no room in types that don't use it */
    __m256 sums[BRIM__TILE_ROWS_MAX / LANES * ROWS_AT_ONCE];
    for (uint32_t i = 0; i < t->tile_rows / LANES * (uint32_t)rows; i++)
        sums[i] = _mm256_setzero_ps();
    const uint8_t *x = p->x + first_row * p->x_row_bytes;
    for (uint32_t b = 0; b < t->col_blocks; b++) {
        uint32_t cells = brim__tile_cells(t, b), blocks = cells * layouts[type].sub_count;
        if (use_pairs)
            make_panel(panel, x, p->x_row_bytes, rows, blocks);
        run_tile(sums, p, tiles + brim__tile_offset(t, b), cells, x, panel, rows, type, act);
        x += blocks * (act == BRIM__ACT_Q16 ? sizeof(brim__q16) : 32 * sizeof(float));
    }
    for (uint32_t unit = 0; unit < t->tile_rows / LANES; unit++)
        for (int m = 0; m < rows; m++)
            _mm256_storeu_ps(out + (first_row + (uint32_t)m) * p->out_stride + unit * LANES,
                             sums[unit * (uint32_t)rows + (uint32_t)m]);
}

static ALWAYS_INLINE void run(float *out, size_t out_stride, const brim__tiling *t,
                              const void *tiles, uint32_t row_block_count, const void *x,
                              size_t x_row_bytes, uint32_t row_count, brim_dtype type,
                              brim__act act)
{
    assert(t->tile_rows <= BRIM__TILE_ROWS_MAX &&
           t->tile_cols <= TILE_BLOCKS_MAX * BRIM__BLOCK_COLS);
    const product p = {t, x, x_row_bytes, out_stride};
    for (uint32_t i = 0; i < row_block_count; i++, out += t->tile_rows) {
        const uint8_t *block = (const uint8_t *)tiles + i * t->row_block_bytes;
        uint32_t m = 0;
        for (; row_count - m >= 4; m += 4)
            run_row_block(out, &p, block, m, 4, type, act);
        if (row_count - m >= 2) {
            run_row_block(out, &p, block, m, 2, type, act);
            m += 2;
        }
        if (row_count - m >= 1)
            run_row_block(out, &p, block, m, 1, type, act);
    }
}

#define MATMUL(type, act)                                                                          \
    void brim__avx2_matmul_##type##_##act(float *out, size_t out_stride, const brim__tiling *t,    \
                                          const void *tiles, uint32_t row_block_count,             \
                                          const void *x, size_t x_row_bytes, uint32_t row_count)   \
    {                                                                                              \
        run(out, out_stride, t, tiles, row_block_count, x, x_row_bytes, row_count,                 \
            BRIM_DTYPE_##type, BRIM__ACT_##act);                                                   \
    }
BRIM__MATMUL_LIST(MATMUL)
#undef MATMUL

#endif
