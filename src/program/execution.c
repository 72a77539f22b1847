/* execution.c: the life of one instruction: ready, prepared, computed into private scratch,
 * published. A body sees its inputs in place and its outputs as packed scratch, so an instruction
 * that is done twice, or abandoned, leaves no trace. */
#include "program/executor.h"

#include <string.h>

#include "base/hash.h"

static uint64_t round_up_64(uint64_t n)
{
    return (n + 63) / 64 * 64;
}

const brim_program *brim__executor_program(const brim_executor *x)
{
    return x->program;
}

char *brim__access_base(const brim_executor *x, const brim_access *a, uint64_t epoch)
{
    const brim_buffer_desc *buffer = &x->program->buffers[a->buffer];
    uint64_t copy = buffer->parity ? (epoch + (a->flags & BRIM_ACCESS_NEXT ? 1 : 0)) & 1 : 0;
    return x->memory[a->buffer] + copy * brim__buffer_copy_bytes(buffer);
}

static const char *current_copy(const brim_executor *x, uint32_t buffer, uint64_t epoch)
{
    const brim_buffer_desc *desc = &x->program->buffers[buffer];
    uint64_t copy = desc->parity ? epoch & 1 : 0;
    return x->memory[buffer] + copy * brim__buffer_copy_bytes(desc);
}

static uint32_t runs_in_use(const brim_executor *x, const brim_access *a, uint64_t epoch)
{
    if (a->count_buffer == BRIM_NONE)
        return a->count;
    uint32_t n;
    memcpy(&n, current_copy(x, a->count_buffer, epoch) + a->count_offset, sizeof n);
    return brim__access_runs(a, n);
}

static const uint32_t *table_of(const brim_executor *x, const brim_access *a, uint64_t epoch)
{
    if (a->table_buffer == BRIM_NONE)
        return NULL;
    return (const uint32_t *)(current_copy(x, a->table_buffer, epoch) + a->table_offset);
}

static char *run_address(char *base, const brim_access *a, const uint32_t *table, uint32_t run)
{
    return base + a->offset + (table ? table[run] : run) * a->stride;
}

static bool packet_came(const brim_executor *x, const brim_access *a, uint64_t epoch)
{
    char *base = brim__access_base(x, a, epoch);
    const uint32_t *table = table_of(x, a, epoch);
    uint32_t runs = runs_in_use(x, a, epoch);
    for (uint32_t run = 0; run < runs; run++) {
        const _Atomic uint32_t *word = (const void *)run_address(base, a, table, run);
        for (uint64_t w = 0; w < a->size / 4; w++)
            if (atomic_load_explicit(&word[w], memory_order_acquire) == BRIM_PACKET_EMPTY)
                return false;
    }
    return true;
}

bool brim__instruction_ready(const brim_executor *x, uint32_t i, uint64_t epoch)
{
    const brim_program *p = x->program;
    const brim_instruction *in = &p->instructions[i];
    for (unsigned w = 0; w < in->wait_count; w++) {
        uint32_t c = in->waits[w].counter;
        uint64_t need = epoch * p->counters[c].total + in->waits[w].value;
        if (atomic_load_explicit(&x->counters[c], memory_order_acquire) < need)
            return false;
    }
    for (unsigned a = 0; a < in->access_count; a++)
        if (in->accesses[a].kind == BRIM_READ && (in->accesses[a].flags & BRIM_ACCESS_PACKET) &&
            !packet_came(x, &in->accesses[a], epoch))
            return false;
    return true;
}

static brim_status check_table(const brim_executor *x, const brim_access *a, uint32_t runs,
                               uint64_t epoch, uint32_t instruction)
{
    const uint32_t *table = table_of(x, a, epoch);
    char where[128];
    for (uint32_t i = 0; i < runs; i++) {
        bool twice = false;
        for (uint32_t j = 0; (a->flags & BRIM_ACCESS_INJECTIVE) && j < i; j++)
            twice |= table[j] == table[i];
        if (table[i] < a->table_limit && !twice)
            continue;
        brim__program_where(where, sizeof where, x->program, instruction);
        BRIM_FAIL(REFUSED, "run.table", "%s: entry %u of table %s is %u: %s", where, i,
                  x->program->buffers[a->table_buffer].name, table[i],
                  twice ? "it stands twice in a table declared injective"
                        : "past the table's limit");
    }
    return BRIM_OK;
}

static void copy_packet(char *to, char *base, const brim_access *a, const uint32_t *table,
                        uint32_t runs)
{
    for (uint32_t run = 0; run < runs; run++) {
        const _Atomic uint32_t *word = (const void *)run_address(base, a, table, run);
        uint32_t *copy = (uint32_t *)(to + run * a->size);
        for (uint64_t w = 0; w < a->size / 4; w++)
            copy[w] = atomic_load_explicit(&word[w], memory_order_acquire);
    }
}

brim_status brim__execution_prepare(brim__execution *out, brim_executor *x, char *scratch,
                                    uint32_t i, uint64_t epoch)
{
    const brim_program *p = x->program;
    const brim_instruction *in = &p->instructions[i];
    const brim_op_desc *op = brim_op_get(p->ops, in->op);
    uint64_t used = 0;
    for (unsigned n = 0; n < in->access_count; n++) {
        const brim_access *a = &in->accesses[n];
        uint32_t runs = out->run_counts[n] = runs_in_use(x, a, epoch);
        if (a->table_buffer != BRIM_NONE && x->desc.check_tables)
            BRIM_TRY(check_table(x, a, runs, epoch, i));
        bool packet = a->flags & BRIM_ACCESS_PACKET;
        if (a->kind == BRIM_READ && !packet) {
            out->access[n] = brim__access_base(x, a, epoch) + a->offset;
            continue;
        }
        if (a->kind == BRIM_APPEND && op->append) {
            out->access[n] = NULL;
            continue;
        }
        out->access[n] = scratch + used;
        used += round_up_64(a->size * a->count);
        if (a->kind == BRIM_READ)
            copy_packet(out->access[n], brim__access_base(x, a, epoch), a, table_of(x, a, epoch),
                        runs);
    }
    for (unsigned r = 0; r < 2; r++) {
        const brim_tile_run *run = &in->runs[r];
        out->tiles[r] = run->tensor == BRIM_NONE
                            ? NULL
                            : (const char *)x->tiles[run->tensor] +
                                  run->first * p->tensors[run->tensor].tiling.row_block_bytes;
    }
    out->env = (brim_op_env){
        .program = p,
        .instruction = in,
        .access = out->access,
        .run_counts = out->run_counts,
        .tiles = out->tiles,
        .scratch = scratch + used,
        .epoch = epoch,
        .isa = x->desc.isa,
        .user = op->user,
    };
    return BRIM_OK;
}

/* A hash of the packed writes: what an execution would publish. */
static uint64_t writes_hash(const brim__execution *e)
{
    const brim_instruction *in = e->env.instruction;
    uint64_t hash = 0;
    for (unsigned n = 0; n < in->access_count; n++)
        if (in->accesses[n].kind != BRIM_READ && e->access[n])
            hash = brim__hash64(e->access[n], in->accesses[n].size * e->run_counts[n], hash);
    return hash;
}

brim_status brim__execution_compute(brim__execution *e, brim_executor *x, char *scratch)
{
    const brim_op_desc *op = brim_op_get(x->program->ops, e->env.instruction->op);
    op->body(&e->env);
    if (!x->desc.check_tables || op->step_end)
        return BRIM_OK;
    uint64_t first = writes_hash(e);
    op->body(&e->env);
    if (writes_hash(e) == first)
        return BRIM_OK;
    char where[128];
    brim__program_where(where, sizeof where, x->program,
                        (uint32_t)(e->env.instruction - x->program->instructions));
    BRIM_FAIL(REFUSED, "run.impure", "%s gave other bits when it was done again", where);
}

static void store_run(char *to, const char *from, const brim_access *a)
{
    if (!(a->flags & BRIM_ACCESS_PACKET)) {
        memcpy(to, from, a->size);
        return;
    }
    const uint32_t *words = (const uint32_t *)from;
    for (uint64_t w = 0; w < a->size / 4; w++)
        atomic_store_explicit((_Atomic uint32_t *)to + w, words[w], memory_order_release);
}

/* The copy of the next epoch is emptied now: its readers, one epoch ago, are all done. */
static void empty_next_packet(const brim_executor *x, const brim_access *a, const uint32_t *table,
                              uint32_t runs, uint64_t epoch)
{
    char *base = brim__access_base(x, a, epoch + 1);
    for (uint32_t run = 0; run < runs; run++) {
        _Atomic uint32_t *word = (void *)run_address(base, a, table, run);
        for (uint64_t w = 0; w < a->size / 4; w++)
            atomic_store_explicit(&word[w], BRIM_PACKET_EMPTY, memory_order_relaxed);
    }
}

void brim__execution_publish(brim__execution *e, brim_executor *x)
{
    const brim_instruction *in = e->env.instruction;
    const brim_op_desc *op = brim_op_get(x->program->ops, in->op);
    for (unsigned n = 0; n < in->access_count; n++) {
        const brim_access *a = &in->accesses[n];
        if (a->kind == BRIM_READ)
            continue;
        char *base = brim__access_base(x, a, e->env.epoch);
        if (a->kind == BRIM_APPEND && op->append) {
            op->append(&e->env, n, base);
            continue;
        }
        const uint32_t *table = table_of(x, a, e->env.epoch);
        if (a->flags & BRIM_ACCESS_PACKET)
            empty_next_packet(x, a, table, a->count, e->env.epoch);
        for (uint32_t run = 0; run < e->run_counts[n]; run++)
            store_run(run_address(base, a, table, run), (char *)e->access[n] + run * a->size, a);
    }
}

void brim__execution_publish_nothing(brim_executor *x, uint32_t i, uint64_t epoch)
{
    const brim_instruction *in = &x->program->instructions[i];
    for (unsigned n = 0; n < in->access_count; n++) {
        const brim_access *a = &in->accesses[n];
        if (a->kind == BRIM_READ || !(a->flags & BRIM_ACCESS_PACKET))
            continue;
        const uint32_t *table = table_of(x, a, epoch);
        empty_next_packet(x, a, table, a->count, epoch);
        char *base = brim__access_base(x, a, epoch);
        for (uint32_t run = 0; run < runs_in_use(x, a, epoch); run++)
            for (uint64_t w = 0; w < a->size / 4; w++)
                atomic_store_explicit((_Atomic uint32_t *)run_address(base, a, table, run) + w, 0,
                                      memory_order_release);
    }
}

bool brim__execution_continues(const brim__execution *e)
{
    const brim_instruction *in = e->env.instruction;
    for (unsigned n = 0; n < in->access_count; n++) {
        if (in->accesses[n].kind != BRIM_WRITE)
            continue;
        uint32_t word;
        memcpy(&word, e->access[n], sizeof word);
        return word == 1;
    }
    return false;
}
