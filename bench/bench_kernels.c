/* bench_kernels.c: matrix products on one thread: bytes of weights a second beside the plain read
 * bandwidth of one thread probed in the same run, and multiplications-and-additions a second.
 *
 *   bench_kernels [--json] [--isa NAME] [--type NAME] [--act q16|f32] [--cols N] [--rows N]
 *                 [--mib N] [--pack]
 *
 * --rows is the number of activation rows: 1 (decode), 8 and 64 (prefill) unless given. Decode
 * streams a matrix of --mib MiB (256: beyond most last caches), the others a sixteenth of it.
 * --pack times the packing of tiles from the file's layout instead. Medians of 9 runs and their
 * spread (half the interquartile range over the median); the probe is the best of one before and
 * one after each matrix.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/stats.h"
#include "base/thread.h"
#include "brim/console.h"
#include "kernels/kernels.h"

enum { RUNS = 9, COLS_MAX = 1 << 16, ROWS_MAX = 1 << 12 };

typedef struct options {
    bool json, pack;
    brim_isa isa;
    int64_t type;             /* -1: all */
    int act;                  /* -1: q16 where there is such a body, else f32 */
    uint64_t cols, rows, mib; /* 0: the usual ones */
} options;

typedef struct bench {
    brim_context *ctx;
    const options *opt;
    const brim__kernels *kernels;
    brim_table *table;
    uint8_t *file, *tiles; /* room for the largest matrix */
} bench;

static double seconds_since(uint64_t start)
{
    return (double)(brim__now_ns() - start) * 1e-9;
}

/* Bytes whose f16 and f32 views are all finite and normal, so that no value costs more time than
 * another. */
static void fill(uint8_t *to, size_t size)
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word = brim__random_u64(1, 2, i) & UINT64_C(0x3f3f3f3f3f3f3f3f);
        word |= UINT64_C(0x2020202020202020);
        memcpy(to + i, &word, 8);
    }
}

static brim_status probe(bench *b, double *best)
{
    double gb_s;
    BRIM_TRY(brim_hw_probe_read(&gb_s, b->ctx, 1, 0.2));
    *best = gb_s > *best ? gb_s : *best;
    return BRIM_OK;
}

/* A matrix of about `bytes` bytes of tiles. */
static brim_status shape(brim__tiling *out, brim_dtype type, uint32_t cols, uint64_t bytes)
{
    brim__tiling one;
    BRIM_TRY(brim__tiling_of(&one, type, BRIM__KV_BLOCK, cols));
    uint64_t rows = bytes / one.row_block_bytes * one.tile_rows;
    return brim__tiling_of(out, type, (uint32_t)(rows ? rows : one.tile_rows), cols);
}

static uint64_t file_bytes(const brim__tiling *t)
{
    return (uint64_t)t->rows * (t->cols / brim_dtype_block(t->type)) *
           brim_dtype_block_bytes(t->type);
}

static brim_status time_pack(bench *b, brim_dtype type, uint32_t cols, uint64_t bytes)
{
    brim__tiling t;
    BRIM_TRY(shape(&t, type, cols, bytes));
    double rates[RUNS];
    for (int i = 0; i < RUNS; i++) {
        uint64_t start = brim__now_ns();
        brim__tile_pack(b->tiles, &t, b->file, 0, t.row_blocks);
        rates[i] = (double)file_bytes(&t) / seconds_since(start) * 1e-9;
    }
    BRIM_TRY(brim_table_row(b->table));
    brim_table_cell(b->table, "%s", brim_dtype_name(type));
    brim_table_cell(b->table, "%u", cols);
    brim_table_cell(b->table, "%.2f", brim__median(rates, RUNS));
    return brim_table_cell(b->table, "%.1f", 100 * brim__spread(rates, RUNS));
}

static brim_status report(bench *b, const brim__tiling *t, brim__act act, uint32_t m, double *times,
                          double read_gb_s)
{
    double s = brim__median(times, RUNS), gb_s = (double)t->bytes / s * 1e-9;
    BRIM_TRY(brim_table_row(b->table));
    brim_table_cell(b->table, "%s", brim_dtype_name(t->type));
    brim_table_cell(b->table, "%s", act == BRIM__ACT_Q16 ? "q16" : "f32");
    brim_table_cell(b->table, "%s", brim_isa_name(b->kernels->isa));
    brim_table_cell(b->table, "%u", t->cols);
    brim_table_cell(b->table, "%u", m);
    brim_table_cell(b->table, "%.2f", gb_s);
    brim_table_cell(b->table, "%.2f", read_gb_s);
    brim_table_cell(b->table, "%.0f", 100 * gb_s / read_gb_s);
    brim_table_cell(b->table, "%.1f", (double)t->rows * t->cols * m / s * 1e-9);
    return brim_table_cell(b->table, "%.1f", 100 * brim__spread(times, RUNS));
}

static brim_status time_rows(bench *b, const brim__tiling *t, brim__act act, uint32_t m,
                             double read_gb_s)
{
    size_t x_row = brim__act_row_bytes(act, t->cols),
           out_row = (size_t)t->row_blocks * t->tile_rows;
    uint8_t *x;
    BRIM_ALLOC(b->ctx, x, m * x_row);
    float *out = brim__alloc(b->ctx, m * out_row * sizeof *out);
    float *values = brim__alloc(b->ctx, t->cols * sizeof *values);
    brim_status status = out && values ? BRIM_OK : BRIM_NO_MEMORY;
    double times[RUNS];
    for (uint32_t i = 0; i < m && status == BRIM_OK; i++) {
        for (uint32_t c = 0; c < t->cols; c++)
            values[c] = brim__random_float(3, i, c) - 0.5f;
        if (act == BRIM__ACT_Q16)
            b->kernels->quantize((brim__q16 *)(x + i * x_row), values, t->cols);
        else
            memcpy(x + i * x_row, values, t->cols * sizeof *values);
    }
    for (int i = -1; i < RUNS && status == BRIM_OK; i++) { /* one run to warm up */
        uint64_t start = brim__now_ns();
        b->kernels->matmul[act][t->type](out, out_row, t, b->tiles, t->row_blocks, x, x_row, m);
        if (i >= 0)
            times[i] = seconds_since(start);
    }
    brim__free(b->ctx, x);
    brim__free(b->ctx, out);
    brim__free(b->ctx, values);
    return status == BRIM_OK ? report(b, t, act, m, times, read_gb_s) : status;
}

static brim_status time_matrix(bench *b, brim_dtype type, brim__act act, uint32_t cols)
{
    static const uint32_t usual[] = {1, 8, 64};
    uint64_t bytes = b->opt->mib << 20;
    double read_gb_s = 0;
    BRIM_TRY(probe(b, &read_gb_s));
    for (size_t i = 0; i < (b->opt->rows ? 1 : 3); i++) {
        uint32_t m = b->opt->rows ? (uint32_t)b->opt->rows : usual[i];
        brim__tiling t;
        BRIM_TRY(shape(&t, type, cols, m == 1 ? bytes : bytes / 16));
        if (i == 0) {
            brim__tile_pack(b->tiles, &t, b->file, 0, t.row_blocks);
            BRIM_TRY(probe(b, &read_gb_s));
        }
        BRIM_TRY(time_rows(b, &t, act, m, read_gb_s));
    }
    return BRIM_OK;
}

static brim_status run_all(bench *b)
{
    static const uint32_t usual[] = {576, 1536, 4096};
    static const brim_dtype types[] = {
#define TYPE(name, id, block, bytes) BRIM_DTYPE_##name,
        BRIM_DTYPE_LIST(TYPE)
#undef TYPE
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (b->opt->type >= 0 && (uint32_t)b->opt->type != (uint32_t)types[i])
            continue;
        int act = b->opt->act;
        if (act < 0)
            act = b->kernels->matmul[BRIM__ACT_Q16][types[i]] ? BRIM__ACT_Q16 : BRIM__ACT_F32;
        for (int j = 0; j < (b->opt->cols ? 1 : 3); j++) {
            uint32_t cols = b->opt->cols ? (uint32_t)b->opt->cols : usual[j];
            if (!b->kernels->matmul[act][types[i]] || cols % brim_dtype_block(types[i]))
                continue;
            if (b->opt->pack)
                BRIM_TRY(time_pack(b, types[i], cols, b->opt->mib << 20));
            else
                BRIM_TRY(time_matrix(b, types[i], (brim__act)act, cols));
        }
    }
    return BRIM_OK;
}

static brim_status run(const options *opt)
{
    static const char *const matmul_columns[] = {
        "type",       "act",       "isa",     ">cols",       ">rows", ">gb_s",
        ">read_gb_s", ">read_pct", ">gmac_s", ">spread_pct", NULL};
    static const char *const pack_columns[] = {"type", ">cols", ">file_gb_s", ">spread_pct", NULL};
    bench b = {.opt = opt, .kernels = brim__kernels_get(opt->isa)};
    BRIM_FAIL_IF(!b.kernels, UNSUPPORTED, "bench.isa", "this CPU does not have %s",
                 brim_isa_name(opt->isa));
    size_t room = (opt->mib << 20) + (64 << 20);
    BRIM_TRY(brim_context_create(&b.ctx, NULL));
    brim_status status =
        brim_table_create(&b.table, b.ctx, opt->pack ? pack_columns : matmul_columns);
    if (status == BRIM_OK) {
        b.file = brim__alloc(b.ctx, room);
        b.tiles = brim__alloc(b.ctx, room);
        status = b.file && b.tiles ? BRIM_OK : BRIM_NO_MEMORY;
    }
    if (status == BRIM_OK) {
        fill(b.file, room);
        status = run_all(&b);
        brim_status printed =
            brim_table_print(b.table, stdout, opt->json ? BRIM_TABLE_JSON : BRIM_TABLE_TEXT);
        status = status == BRIM_OK ? printed : status;
    }
    brim_table_destroy(b.table);
    brim__free(b.ctx, b.file);
    brim__free(b.ctx, b.tiles);
    brim_context_destroy(b.ctx);
    return status;
}

static bool parse_number(uint64_t *out, const char *text, uint64_t max)
{
    char *end;
    *out = strtoull(text, &end, 10);
    return *text && !*end && *out > 0 && *out <= max;
}

static bool parse_named(options *o, const char *name, const char *value)
{
    brim_dtype type;
    if (strcmp(name, "--type") == 0 && brim_dtype_parse(&type, value))
        o->type = type;
    else if (strcmp(name, "--act") == 0 && strcmp(value, "q16") == 0)
        o->act = BRIM__ACT_Q16;
    else if (strcmp(name, "--act") == 0 && strcmp(value, "f32") == 0)
        o->act = BRIM__ACT_F32;
    else if (strcmp(name, "--cols") == 0)
        return parse_number(&o->cols, value, COLS_MAX);
    else if (strcmp(name, "--rows") == 0)
        return parse_number(&o->rows, value, ROWS_MAX);
    else if (strcmp(name, "--mib") == 0)
        return parse_number(&o->mib, value, 1 << 14);
    else if (strcmp(name, "--isa") == 0) {
        for (int isa = 0; isa < BRIM_ISA_COUNT; isa++)
            if (strcmp(value, brim_isa_name((brim_isa)isa)) == 0) {
                o->isa = (brim_isa)isa;
                return true;
            }
        return false;
    } else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    options o = {.isa = brim_isa_best(), .type = -1, .act = -1, .mib = 256};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            o.json = true;
        else if (strcmp(argv[i], "--pack") == 0)
            o.pack = true;
        else if (i + 1 < argc && parse_named(&o, argv[i], argv[i + 1]))
            i++;
        else {
            fprintf(stderr, "bench_kernels: %s is not an option, or its value is wrong\n", argv[i]);
            return 2;
        }
    }
    if (run(&o) == BRIM_OK)
        return 0;
    fprintf(stderr, "bench_kernels: %s\n", brim_last_message());
    return 1;
}
