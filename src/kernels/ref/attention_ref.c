/* attention_ref.c: what one split of attention means, how splits combine, and how keys and values
 * enter the cache. */
#include "kernels/ref/kernels_ref.h"

#include <string.h>

#include "kernels/scalar_math.h"

static float element(const void *base, size_t index, bool f32)
{
    if (!f32)
        return brim__load_f16((const uint8_t *)base + 2 * index);
    float value;
    memcpy(&value, (const uint8_t *)base + 4 * index, sizeof value);
    return value;
}

/* Where position `slot` of a block has dimension d of its key. */
static size_t key_index(uint32_t slot, uint32_t d, uint32_t head_size)
{
    return (size_t)(slot / 16) * head_size * 16 + (size_t)d * 16 + slot % 16;
}

static float score(const brim__attn *a, const float *q, uint32_t position)
{
    const uint8_t *block = (const uint8_t *)a->k + a->blocks[position / 32] * a->block_bytes;
    float acc = 0;
    for (uint32_t d = 0; d < a->head_size; d++)
        acc = fmaf(q[d], element(block, key_index(position % 32, d, a->head_size), a->kv_f32), acc);
    return acc * a->scale;
}

static void split_head(brim__attn_part *part, const brim__attn *a, const float *q, uint32_t first,
                       uint32_t last)
{
    float e[BRIM__ATTN_SPLIT], max = -INFINITY, partial[16] = {0};
    for (uint32_t p = first; p <= last; p++) {
        e[p - first] = score(a, q, p);
        max = e[p - first] > max ? e[p - first] : max;
    }
    max += 0.0f; /* minus zero becomes zero, so that the order of equal scores does not matter */
    for (uint32_t p = first; p <= last; p++) {
        e[p - first] = brim__exp_scalar(e[p - first] - max);
        partial[p % 16] += e[p - first];
    }
    part->max = max;
    part->sum = brim__sum16_tree(partial);
    for (uint32_t d = 0; d < a->head_size; d++) {
        float acc = 0;
        for (uint32_t p = first; p <= last; p++) {
            const uint8_t *block = (const uint8_t *)a->v + a->blocks[p / 32] * a->block_bytes;
            acc = fmaf(e[p - first], element(block, (size_t)(p % 32) * a->head_size + d, a->kv_f32),
                       acc);
        }
        part->out[d] = acc;
    }
}

void brim__ref_attn_split(float *parts, const brim__attn *a, const float *q, uint32_t split)
{
    uint32_t first = split * BRIM__ATTN_SPLIT, last = first + BRIM__ATTN_SPLIT - 1;
    first = first > a->first ? first : a->first;
    last = last < a->last ? last : a->last;
    for (uint32_t h = 0; h < a->group; h++)
        split_head((brim__attn_part *)(parts + (size_t)h * (a->head_size + 2)), a,
                   q + (size_t)h * a->head_size, first, last);
}

void brim__ref_attn_combine(float *out, const float *parts, size_t stride_floats, uint32_t count,
                            uint32_t head_size)
{
    const brim__attn_part *part = (const brim__attn_part *)parts;
    float max = part->max, sum = part->sum;
    memcpy(out, part->out, head_size * sizeof *out);
    for (uint32_t i = 1; i < count; i++) {
        part = (const brim__attn_part *)(parts + i * stride_floats);
        float m = part->max > max ? part->max : max;
        float a = brim__exp_scalar(max - m), b = brim__exp_scalar(part->max - m);
        sum = fmaf(sum, a, part->sum * b);
        for (uint32_t d = 0; d < head_size; d++)
            out[d] = fmaf(out[d], a, part->out[d] * b);
        max = m;
    }
    for (uint32_t d = 0; d < head_size; d++)
        out[d] = out[d] / sum;
}

void brim__ref_kv_store(void *block, const float *x, uint32_t slot, uint32_t head_size, bool v,
                        bool f32)
{
    for (uint32_t d = 0; d < head_size; d++) {
        size_t i = v ? (size_t)slot * head_size + d : key_index(slot, d, head_size);
        if (f32)
            memcpy((uint8_t *)block + 4 * i, &x[d], sizeof *x);
        else
            brim__store_u16((uint8_t *)block + 2 * i, brim__f32_to_f16(x[d]));
    }
}
