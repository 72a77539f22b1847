/* ops_mix.c: a generic pure op: its outputs are a hash of its inputs. Programs made of it show
 * whether an executor keeps order: any stale, torn or foreign byte changes everything after it. */
#include "program/ops.h"

#include <string.h>

#include "base/hash.h"

static const brim_access *access_of(const brim_op_env *env, unsigned n)
{
    return &env->instruction->accesses[n];
}

/* Reads are hashed run by run; a table is part of what is read. */
static uint64_t hash_reads(const brim_op_env *env)
{
    uint64_t hash = 0;
    for (unsigned i = 0; i < env->instruction->operand_count; i++)
        hash = brim__hash_mix(hash, (uint32_t)env->instruction->operands[i]);
    for (unsigned n = 0; n < env->instruction->access_count; n++) {
        const brim_access *a = access_of(env, n);
        if (a->kind != BRIM_READ || a->table_buffer != BRIM_NONE)
            continue;
        uint64_t stride = a->flags & BRIM_ACCESS_PACKET ? a->size : a->stride;
        for (uint32_t run = 0; run < env->run_counts[n]; run++)
            hash = brim__hash64((const char *)env->access[n] + run * stride, a->size, hash);
    }
    return hash;
}

static void mix_body(const brim_op_env *env)
{
    uint64_t hash = hash_reads(env);
    for (unsigned n = 0; n < env->instruction->access_count; n++) {
        const brim_access *a = access_of(env, n);
        if (a->kind == BRIM_READ)
            continue;
        uint32_t *words = env->access[n];
        uint64_t count = a->size * env->run_counts[n] / 4;
        for (uint64_t w = 0; w < count; w++) {
            uint32_t word = (uint32_t)brim__hash_mix(hash + w, n);
            words[w] = word == BRIM_PACKET_EMPTY ? 0 : word;
        }
        memset((char *)env->access[n] + 4 * count, (int)(hash & 0x7f),
               a->size * env->run_counts[n] - 4 * count);
    }
}

static void mix_end_body(const brim_op_env *env)
{
    mix_body(env);
    for (unsigned n = 0; n < env->instruction->access_count; n++)
        if (access_of(env, n)->kind == BRIM_WRITE) {
            *(uint32_t *)env->access[n] = 1;
            return;
        }
}

static void mix_cost(brim_op_cost *out, const brim_program *program, const brim_instruction *in)
{
    (void)program;
    for (unsigned n = 0; n < in->access_count; n++)
        out->bytes += (double)in->accesses[n].size * in->accesses[n].count;
}

const brim_op_desc brim__op_MIX = {.name = "mix", .body = mix_body, .cost = mix_cost};
const brim_op_desc brim__op_MIX_END = {
    .name = "mix.end", .body = mix_end_body, .cost = mix_cost, .step_end = true};
