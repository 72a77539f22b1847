/* ops_derive.c: what the built-in ops' derive() functions are made of. Operands may come from a
 * file, so each is checked before it is used in arithmetic; a failure sticks. */
#include "program/ops_llm.h"

brim__deriving brim__derive_begin(brim_instruction *out, const brim_program *program,
                                  const brim_instruction *in, uint32_t operand_count)
{
    *out = *in;
    out->access_count = 0;
    out->runs[0] = out->runs[1] = (brim_tile_run){.tensor = BRIM_NONE};
    brim__deriving d = {out, program, BRIM_OK};
    if (in->operand_count != operand_count)
        d.status =
            brim__fail(BRIM_REFUSED, "op.operand", "%s has %u operands, not %u",
                       brim_op_get(program->ops, in->op)->name, operand_count, in->operand_count);
    return d;
}

void brim__derive_require(brim__deriving *d, bool good, const char *what)
{
    if (d->status == BRIM_OK && !good)
        d->status = brim__fail(BRIM_REFUSED, "op.operand", "%s: %s",
                               brim_op_get(d->program->ops, d->out->op)->name, what);
}

brim_access *brim__derive_access(brim__deriving *d, brim_access_kind kind, int32_t buffer,
                                 uint64_t offset, uint64_t size)
{
    static _Thread_local brim_access nowhere;
    brim__derive_require(d, buffer >= 0 && (size_t)buffer < d->program->buffer_count,
                         "an operand names no buffer");
    brim__derive_require(d, d->out->access_count < BRIM_ACCESSES_MAX, "too many accesses");
    if (d->status != BRIM_OK)
        return &nowhere;
    brim_access *a = &d->out->accesses[d->out->access_count++];
    *a = brim_access_make(kind, (uint32_t)buffer, offset, size);
    return a;
}

void brim__derive_whole(brim__deriving *d, int32_t buffer)
{
    brim_access *a = brim__derive_access(d, BRIM_READ, buffer, 0, 1);
    if (d->status == BRIM_OK)
        a->size = a->stride = d->program->buffers[a->buffer].size;
}

brim_access *brim__derive_rows(brim__deriving *d, brim_access_kind kind, int32_t buffer,
                               int32_t step, uint32_t count_word, uint32_t rows, uint32_t first,
                               uint32_t by, uint64_t row_bytes, uint64_t offset, uint64_t size)
{
    brim__derive_require(d, step >= 0 && (size_t)step < d->program->buffer_count,
                         "an operand names no step buffer");
    brim__derive_require(d, by > 0 && by <= rows && first < by && first < rows,
                         "rows are first, first + by, ...");
    brim_access *a = brim__derive_access(d, kind, buffer, first * row_bytes + offset, size);
    if (d->status != BRIM_OK)
        return a;
    a->stride = by * row_bytes;
    a->count = (rows - first + by - 1) / by;
    a->count_buffer = (uint32_t)step;
    a->count_offset = 4 * count_word;
    a->count_first = first;
    a->count_step = by;
    return a;
}

void brim__derive_run(brim__deriving *d, unsigned run, int32_t tensor, uint32_t first, uint32_t end)
{
    brim__derive_require(d, tensor >= 0 && (size_t)tensor < d->program->tensor_count,
                         "an operand names no tensor");
    if (d->status != BRIM_OK)
        return;
    const brim__tiling *t = &d->program->tensors[tensor].tiling;
    brim__derive_require(d, !brim__tiling_is_mma8(t),
                         "the tensor's layout is for the resident ops");
    brim__derive_require(d,
                         first < end && end <= t->rows && first % t->tile_rows == 0 &&
                             (end % t->tile_rows == 0 || end == t->rows),
                         "rows must be whole row blocks of the tensor");
    if (d->status == BRIM_OK)
        d->out->runs[run] =
            (brim_tile_run){(uint32_t)tensor, first / t->tile_rows,
                            (end + t->tile_rows - 1) / t->tile_rows - first / t->tile_rows};
}

void brim__matmul_cost(brim_op_cost *out, const brim_program *p, const brim_instruction *in,
                       uint32_t rows)
{
    for (unsigned r = 0; r < 2; r++) {
        if (in->runs[r].tensor == BRIM_NONE)
            continue;
        const brim__tiling *t = &p->tensors[in->runs[r].tensor].tiling;
        double products = 2.0 * rows * in->runs[r].count * t->tile_rows * t->cols;
        out->bytes += (double)in->runs[r].count * (double)t->row_block_bytes;
        if (brim_dtype_block(t->type) == 1)
            out->flops += products;
        else
            out->int8_ops += 2 * products; /* two byte planes */
    }
}
