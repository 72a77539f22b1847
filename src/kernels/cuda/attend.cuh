/* attend.cuh: attention of an item (row, KV head, split of 128 positions) by the eight consumer
 * warps, 16 positions each; combining many splits; and what a step appends to the KV pool.
 *
 * Old positions come through the ring, those of this step's rows from packets: the pool is not
 * written while anybody reads it. A position that is not in view has no influence, whatever lies
 * there: its score is -infinity and its value row is a row of zeros. */
#ifndef BRIM_ATTEND_CUH
#define BRIM_ATTEND_CUH

#include "kernels/cuda/product.cuh"

enum { HEAD_WORDS = HS / 64 }; /* 32-bit words of a head that a thread looks after: 1 or 2 */

/* Two or four neighbouring elements of a head: thread t has elements (HS / 32) t on. */
typedef struct head_part {
    float v[2 * HEAD_WORDS];
} head_part;

FN uint64_t qkv_place(uint32_t head, int row, int thread)
{
    uint32_t element = head * HS + thread * 2 * HEAD_WORDS;
    return ((uint64_t)(element / 8) * R + row) * 16 + element % 8 * 2;
}

FN void load_head(const lane *me, const char *qkv, uint32_t head, int row, uint32_t words[2])
{
    const char *at = qkv + qkv_place(head, row, me->thread);
    if (HEAD_WORDS == 1) {
        words[0] = ld_packet(at);
        await_packet1(me, at, &words[0], true);
    } else {
        uint2 v = ld_packet2(at);
        await_packet2(me, at, &v, true);
        words[0] = v.x;
        words[1] = v.y;
    }
}

/* What RoPE needs of a position, loaded before the head has come. */
typedef struct rotation {
    float cosine[2 * HEAD_WORDS], sine[2 * HEAD_WORDS];
} rotation;

FN float ld_early(const float *p)
{
    float v;
    asm volatile("ld.global.nc.f32 %0,[%1];" : "=f"(v) : "l"(p));
    return v;
}

FN void load_rotation(rotation *r, const lane *me, uint32_t position)
{
    const float *cosines = me->p->rope + (uint64_t)position * HS, *sines = cosines + HS / 2;
    int first = me->thread * 2 * HEAD_WORDS;
#pragma unroll
    for (int i = 0; i < 2 * HEAD_WORDS; i++) {
        int pair = me->p->rope_halves ? (first + i) & (HS / 2 - 1) : (first + i) / 2;
        r->cosine[i] = ld_early(cosines + pair);
        r->sine[i] = ld_early(sines + pair);
    }
}

/* Norm of the head, if there is one, then RoPE; to 16-bit words. */
FN void turn_head(const lane *me, uint32_t words[2], uint32_t norm, const rotation *r)
{
    const brim__res_params *p = me->p;
    head_part h;
#pragma unroll
    for (int i = 0; i < HEAD_WORDS; i++) {
        h.v[2 * i] = low16<false>(words[i]);
        h.v[2 * i + 1] = high16<false>(words[i]);
    }
    int first = me->thread * 2 * HEAD_WORDS;
    if (norm != (uint32_t)RES_NONE) {
        const float *w = (const float *)at_base(me, norm);
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 2 * HEAD_WORDS; i++)
            sum += h.v[i] * h.v[i];
        float scale = inverse_rms(sum_over_warp(sum), HS, __uint_as_float(field(me, RI_EPSILON)));
#pragma unroll
        for (int i = 0; i < 2 * HEAD_WORDS; i++)
            h.v[i] = h.v[i] * scale * __ldg(w + first + i);
    }
    if (p->rope_halves) {
        bool upper = me->thread >= 16;
#pragma unroll
        for (int i = 0; i < 2 * HEAD_WORDS; i++) {
            float other = __shfl_xor_sync(~0u, h.v[i], 16), v = h.v[i];
            h.v[i] = upper ? __fmaf_rn(other, r->sine[i], __fmul_rn(v, r->cosine[i]))
                           : __fmaf_rn(v, r->cosine[i], -__fmul_rn(other, r->sine[i]));
        }
    } else {
#pragma unroll
        for (int i = 0; i < HEAD_WORDS; i++) {
            float c = r->cosine[2 * i], s = r->sine[2 * i], a = h.v[2 * i], b = h.v[2 * i + 1];
            h.v[2 * i] = __fmaf_rn(a, c, -__fmul_rn(b, s));
            h.v[2 * i + 1] = __fmaf_rn(a, s, __fmul_rn(b, c));
        }
    }
#pragma unroll
    for (int i = 0; i < HEAD_WORDS; i++)
        words[i] = pack16<false>(h.v[2 * i], h.v[2 * i + 1]);
}

/* Stores a head's row of the pool, or its copy in shared memory: 16-byte chunks are swizzled. */
FN void store_row(void *row, int thread, uint32_t position, const uint32_t words[2])
{
    uint32_t byte = thread * 4 * HEAD_WORDS, chunk = byte / 16 ^ position % 8;
    uint32_t *to = (uint32_t *)((char *)row + chunk * 16 + byte % 16);
#pragma unroll
    for (int i = 0; i < HEAD_WORDS; i++)
        to[i] = words[i];
}

typedef struct attention {
    const step_info *info;
    const char *qkv;
    item it;
    uint32_t position, first; /* in view: first .. position */
    int fresh_row;            /* first row of this sequence in the step */
    uint32_t fresh;           /* its position: from here on rows come from packets */
    int blocks;
} attention;

/* Fresh rows of the item's sequence are numbered in order; that at a position: position - fresh. */
FN int row_of_fresh(const attention *a, int n)
{
    int seen = 0;
    for (int i = a->fresh_row; i <= a->it.row; i++)
        if (a->info->slot[i] == a->info->slot[a->it.row] && seen++ == n)
            return i;
    return a->it.row;
}

/* Queries of the group, and keys and values of this step's rows in the split: a warp each. */
FN void gather_heads(const attention *a, const lane *me)
{
    const brim__res_params *p = me->p;
    lane_shared *s = me->s;
    uint32_t begin = a->it.split * SPLIT, end = begin + SPLIT;
    uint32_t low = a->fresh > begin ? a->fresh : begin;
    uint32_t high = a->position + 1 < end ? a->position + 1 : end;
    int fresh = high > low ? (int)(high - low) : 0;
    uint32_t q_norm = field(me, RI_Q_NORM), k_norm = field(me, RI_K_NORM);
    uint32_t q_heads = p->kv_heads * p->group;
    for (int task = me->warp; task < (int)p->group + 2 * fresh; task += RES_CONSUMERS) {
        uint32_t words[2];
        rotation r;
        if (task < (int)p->group) {
            load_rotation(&r, me, a->position);
            load_head(me, a->qkv, a->it.head * p->group + task, a->it.row, words);
            turn_head(me, words, q_norm, &r);
#pragma unroll
            for (int i = 0; i < HEAD_WORDS; i++) {
                /* Words 1 and 2 of each four change places: as_operand(). */
                int word = me->thread * HEAD_WORDS + i, low = word & 3;
                word = (word & ~3) | (low == 1 ? 2 : low == 2 ? 1 : low);
                *(uint32_t *)(s->q[task] + word * 4) = words[i];
            }
            continue;
        }
        int n = (task - (int)p->group) / 2, value = (task - (int)p->group) % 2;
        uint32_t position = low + n;
        int number = (int)(position - a->fresh), row = R == 1 ? 0 : row_of_fresh(a, number);
        load_rotation(&r, me, position);
        load_head(me, a->qkv, q_heads + value * p->kv_heads + a->it.head, row, words);
        if (!value)
            turn_head(me, words, k_norm, &r);
        store_row(value ? s->fresh_v[number % R] : s->fresh_k[number % R], me->thread, position,
                  words);
    }
}

/* Where a position's row of 16 lies: in the ring, in this step's rows, or nowhere: zeros. */
FN uint32_t row_address(const attention *a, const lane *me, uint32_t ring_row,
                        char (*fresh)[2 * HS], uint32_t position)
{
    uint32_t at = position >= a->fresh ? shared_address(fresh[(position - a->fresh) % R]) : ring_row;
    return position < a->first || position > a->position ? shared_address(me->s->zero_row) : at;
}

/* One warp: 16 positions; its part of the result goes to shared memory. ring: its block's K rows. As
 * in products, the operand's rows 8 to 15 hold the other half of each eight elements. */
FN void attend_warp(const attention *a, const lane *me, uint32_t ring, float *out)
{
    lane_shared *s = me->s;
    int g = me->thread >> 2, t4 = me->thread & 3;
    uint32_t begin = a->it.split * SPLIT + me->warp * 16;
    bool plain = begin >= a->first && begin + 15 < a->fresh; /* all old, all in view */
    uint32_t rows = ring + (me->warp & 1) * 16 * 2 * HS;
    uint32_t k0 = rows + g * 2 * HS, k1 = k0 + 16 * HS;
    if (!plain) {
        k0 = row_address(a, me, k0, s->fresh_k, begin + g);
        k1 = row_address(a, me, k1, s->fresh_k, begin + 8 + g);
    }
    float c[2][2][4] = {};
    uint32_t q_at = shared_address(s->q[g]) + t4 * 16;
#pragma unroll
    for (int n = 0; n < HS / 32; n++) {
        uint4 q = lds4(q_at + n * 64); /* heads past the group: whatever, not looked at */
        uint32_t chunk = ((t4 + 4 * n) ^ g) * 16; /* begin is a multiple of 8 */
        uint4 a0 = lds4(k0 + chunk), a1 = lds4(k1 + chunk);
        mma16<false>(c[0][0], q.x, q.y, q.z, q.w, a0.x, a0.y);
        mma16<false>(c[1][0], q.x, q.y, q.z, q.w, a1.x, a1.y);
        mma16<false>(c[0][1], q.x, q.y, q.z, q.w, a0.z, a0.w);
        mma16<false>(c[1][1], q.x, q.y, q.z, q.w, a1.z, a1.w);
    }
    const float nothing = __int_as_float(0xff800000);
    float score[4];
#pragma unroll
    for (int n = 0; n < 4; n++)
        score[n] = (c[n >> 1][0][n & 1] + c[n >> 1][1][2 + (n & 1)]) * me->p->scale;
    if (!plain) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint32_t position = begin + (n >> 1) * 8 + 2 * t4 + (n & 1);
            score[n] = position >= a->first && position <= a->position ? score[n] : nothing;
        }
    }
    float most = fmaxf(fmaxf(score[0], score[1]), fmaxf(score[2], score[3]));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    float base = most == nothing ? 0.f : most, e[4], sum;
#pragma unroll
    for (int n = 0; n < 4; n++)
        e[n] = __expf(score[n] - base);
    sum = (e[0] + e[1]) + (e[2] + e[3]);
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    uint32_t e0 = pack16<false>(e[0], e[1]), e1 = pack16<false>(e[2], e[3]);
    int row = me->thread & 15;
    uint32_t v = rows + KV_BLOCK * HS * 2 + row * 2 * HS;
    if (!plain)
        v = row_address(a, me, v, s->fresh_v, begin + row);
    bool mine = g < (int)me->p->group;
    float *to = out + g * (HS + 8) + 2 * t4;
#pragma unroll
    for (int n = 0; n < HS / 16; n++) {
        uint32_t b[4];
        ldmatrix4t(v + ((2 * n + (me->thread >> 4)) ^ (row & 7)) * 16, b);
        float o[2][4] = {};
        mma16<false>(o[0], e0, e0, e1, e1, b[0], b[1]);
        mma16<false>(o[1], e0, e0, e1, e1, b[2], b[3]);
        if (mine) {
            *(float2 *)(to + n * 16) = make_float2(o[0][0], o[0][1]);
            *(float2 *)(to + n * 16 + 8) = make_float2(o[1][0], o[1][1]);
        }
    }
    if (mine && t4 == 0) {
        s->att_max[g][me->warp] = most;
        s->att_sum[g][me->warp] = sum;
    }
}

/* The eight warps' parts become the item's, which is published. */
template <int COUNT>
FN void publish_item(const lane *me, uint64_t at, const float *all)
{
    const brim__res_params *p = me->p;
    uint32_t group = p->group, words = group * HS / 2;
    for (uint32_t n = me->warp * 32 + me->thread; n < words; n += 256) {
        uint32_t head = n / (HS / 2), column = n % (HS / 2) * 2;
        float maxes[8], sums[8];
        *(float4 *)maxes = *(const float4 *)me->s->att_max[head];
        *(float4 *)(maxes + 4) = *(const float4 *)(me->s->att_max[head] + 4);
        *(float4 *)sums = *(const float4 *)me->s->att_sum[head];
        *(float4 *)(sums + 4) = *(const float4 *)(me->s->att_sum[head] + 4);
        float most = maxes[0], x = 0, y = 0, sum = 0;
#pragma unroll
        for (int w = 1; w < 8; w++)
            most = fmaxf(most, maxes[w]);
#pragma unroll
        for (int w = 0; w < 8; w++) {
            float f = __expf(maxes[w] - most); /* 0 where nothing was in view */
            float2 v = *(const float2 *)(all + (w * group + head) * (HS + 8) + column);
            sum = __fmaf_rn(f, sums[w], sum);
            x = __fmaf_rn(f, v.x, x);
            y = __fmaf_rn(f, v.y, y);
        }
        float inverse = __fdividef(1.f, sum);
        publish<COUNT>(me, at + n * 4, pack16<false>(x * inverse, y * inverse));
        if (column == 0)
            publish<COUNT>(me, at + 2 * group * HS + head * 4,
                           __float_as_uint(most + __logf(sum)));
    }
}

FN void attend_item(consumer *c, const lane *me, attention *a, uint64_t at, bool direct,
                    int number, uint32_t count)
{
    gather_heads(a, me);
    join_consumers(me, &c->join_phase);
    if (number != RES_NONE)
        trace_begun(me, number, count, true);
    float *all = (float *)work_memory(me);
    float *out = all + me->warp * me->p->group * (HS + 8);
    int mine = me->warp / 2;
    bool attended = false;
    for (int b = 0; b < a->blocks; b += BLOCKS_PER_SLOT) {
        await_ring(c, me);
        __syncwarp();
        uint32_t slot = c->slot_at - me->warp * 512 - me->thread * 16;
        if (mine >= b && mine < b + BLOCKS_PER_SLOT) {
            attend_warp(a, me, slot + (mine - b) * BLOCK_BYTES, out);
            attended = true;
        }
        __syncwarp();
        release_ring(c, me);
    }
    if (!attended) /* no old position: rows of this step, or none at all */
        attend_warp(a, me, me->ring, out);
    join_consumers(me, &c->join_phase);
    if (direct)
        publish_item<REPLICAS>(me, at, all);
    else
        publish_item<1>(me, at, all);
}

/* Items that the step before had and this one has not: a split has left the window. Nobody publishes
 * them, so they are emptied here: the next step reads the set they lie in. n: this lane's first. */
FN void empty_items(const lane *me, const step_info *info, uint32_t window, uint32_t n, uint32_t by,
                    uint64_t out, uint64_t part_bytes, bool direct)
{
    const brim__res_params *p = me->p;
    uint32_t before = 0;
    for (int row = 0; row < (int)info->rows; row++) {
        uint32_t position = info->position[row % R];
        before += splits_of(p, window, position ? position - 1 : 0) * p->kv_heads;
    }
    for (; n < before; n += by)
        for (uint32_t at = me->warp * 32 + me->thread; at < part_bytes / 4; at += 256)
            for (int i = 0; i < (direct ? REPLICAS : 1); i++)
                st_packet(replica(me, empty_set(me), i) + out + n * part_bytes + at * 4, EMPTY);
}

FN void attend(consumer *c, const lane *me, uint32_t number, uint32_t count)
{
    const brim__res_params *p = me->p;
    attention a;
    a.info = &me->s->info[me->epoch & 1];
    a.qkv = in_set(me) + (uint64_t)field(me, RI_IN) * 16;
    uint32_t window = field(me, RI_WINDOW), by = field(me, RI_PIECES);
    uint64_t out = (uint64_t)field(me, RI_OUT) * 16;
    uint64_t part_bytes = 2 * p->group * HS + (p->group + 3) / 4 * 16;
    bool direct = field(me, RI_DIRECT);
    bool first = true;
    uint32_t n = field(me, RI_PIECE);
    for (;; n += by) {
        a.it = first && c->first_item.row != -2 ? c->first_item
                                                : find_item(p, a.info, window, n);
        if (first)
            c->first_item = a.it;
        if (a.it.row < 0)
            break;
        a.position = a.info->position[a.it.row % R];
        a.first = first_in_view(p, window, a.position);
        a.fresh_row = first_fresh_row(a.info, a.it.row);
        a.fresh = a.info->position[a.fresh_row % R];
        a.blocks = item_blocks(a.it.split, a.fresh);
        if (!first)
            join_consumers(me, &c->join_phase); /* the last item's parts have been read */
        attend_item(c, me, &a, out + n * part_bytes, direct, first ? (int)number : RES_NONE,
                    count);
        first = false;
    }
    if (window)
        empty_items(me, a.info, window, n, by, out, part_bytes, direct);
    if (!first)
        join_consumers(me, &c->join_phase);
}

/* ---- combining many splits ---- */

FN void combine_row(consumer *c, const lane *me, const char *parts, uint32_t granule, int row,
                    uint32_t first, uint32_t splits, uint64_t out)
{
    const brim__res_params *p = me->p;
    uint32_t part_bytes = 2 * p->group * HS + (p->group + 3) / 4 * 16;
    uint32_t head = granule * 32 / HS, own = head % p->group;
    uint32_t out_at = 2 * (own * HS + granule * 32 % HS + (me->thread & 3) * 8);
    uint32_t lse_at = 2 * p->group * HS + own * 4;
    const float nothing = __int_as_float(0xff800000);
    float most = nothing;
    for (uint32_t base = 0; base < splits; base += 32) {
        uint32_t s = base + me->thread;
        bool wanted = s < splits;
        const char *at = parts + (uint64_t)(first + s) * part_bytes + lse_at;
        uint32_t e = wanted ? ld_packet(at) : __float_as_uint(nothing);
        await_packet1(me, at, &e, wanted);
        most = fmaxf(most, __uint_as_float(e));
    }
#pragma unroll
    for (int n = 1; n < 32; n *= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, n));
    float v[8] = {}, sum = 0;
    for (uint32_t base = 0; base < splits; base += 64) {
        uint32_t s = base + me->warp + 8 * (me->thread >> 2);
        bool wanted = s < splits;
        const char *part = parts + (uint64_t)(first + s) * part_bytes;
        uint4 o = wanted ? ld_packet4(part + out_at) : make_uint4(0, 0, 0, 0);
        uint32_t e = wanted ? ld_packet(part + lse_at) : 0;
        await_packet4(me, part + out_at, &o, wanted);
        await_packet1(me, part + lse_at, &e, wanted);
        float f = wanted ? __expf(__uint_as_float(e) - most) : 0.f;
        sum += f;
        uint32_t w[4] = {o.x, o.y, o.z, o.w};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            v[2 * n] += __fmul_rn(f, low16<false>(w[n]));
            v[2 * n + 1] += __fmul_rn(f, high16<false>(w[n]));
        }
    }
#pragma unroll
    for (int n = 4; n < 32; n *= 2) {
        sum += __shfl_xor_sync(~0u, sum, n);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] += __shfl_xor_sync(~0u, v[i], n);
    }
    float *all = (float *)work_memory(me); /* (warp, piece, 8 + 1) */
    if (me->thread < 4) {
        float *to = all + (me->warp * 4 + me->thread) * 9;
#pragma unroll
        for (int i = 0; i < 8; i++)
            to[i] = v[i];
        to[8] = sum;
    }
    join_consumers(me, &c->join_phase);
    if (me->warp == 0 && me->thread < 16) {
        int piece = me->thread >> 2, pair = me->thread & 3;
        float t[3][8];
#pragma unroll
        for (int w = 0; w < 8; w++) {
            const float *from = all + (w * 4 + piece) * 9;
            t[0][w] = from[2 * pair];
            t[1][w] = from[2 * pair + 1];
            t[2][w] = from[8];
        }
        float r[3];
#pragma unroll
        for (int i = 0; i < 3; i++)
            r[i] = ((t[i][0] + t[i][1]) + (t[i][2] + t[i][3])) +
                   ((t[i][4] + t[i][5]) + (t[i][6] + t[i][7]));
        uint64_t at = out + ((uint64_t)(granule * 4 + piece) * R + row) * 16 + pair * 4;
        float inverse = __fdividef(1.f, r[2]);
        publish<REPLICAS>(me, at, pack16<BF16>(r[0] * inverse, r[1] * inverse));
    }
    join_consumers(me, &c->join_phase);
}

FN void combine(consumer *c, const lane *me, uint32_t number, uint32_t count)
{
    const brim__res_params *p = me->p;
    const step_info *info = &me->s->info[me->epoch & 1];
    uint32_t window = field(me, RI_WINDOW), granules = field(me, RI_GRANULES);
    const char *parts = out_set(me) + (uint64_t)field(me, RI_IN) * 16; /* one replica */
    uint64_t out = (uint64_t)field(me, RI_OUT) * 16;
    join_consumers(me, &c->join_phase); /* the product before is done with its input */
    trace_begun(me, number, count, true);
    for (uint32_t g = field(me, RI_PIECE); g < granules; g += field(me, RI_PIECES))
        for (int row = 0; row < (int)info->rows; row++) {
            uint32_t splits = splits_of(p, window, info->position[row % R]);
            uint32_t kv_head = g * 32 / HS / p->group;
            combine_row(c, me, parts, g, row, first_item(p, info, window, row) + kv_head * splits,
                        splits, out);
        }
}

/* ---- appending ---- */

/* All words of a y buffer have come: so every lane has read what it wanted of the pool. */
FN void await_whole(const lane *me, const step_info *info, const char *in, uint32_t granules)
{
    uint4 ahead = make_uint4(0, 0, 0, 0);
    if (R == 1)
        ahead = look_ahead(me, in, granules, 0);
    for (uint32_t block = 0; block * 64 < granules; block++)
        input_from_packets(me, info, in, granules, block, input_place(me, 0), &ahead);
}

FN void append(consumer *c, const lane *me)
{
    const brim__res_params *p = me->p;
    const step_info *info = &me->s->info[me->epoch & 1];
    const char *qkv = in_set(me) + (uint64_t)field(me, RI_IN) * 16;
    if (field(me, RI_FIRST)) {
        await_whole(me, info, in_set(me) + (uint64_t)field(me, RI_OUT) * 16,
                    field(me, RI_GRANULES));
        join_consumers(me, &c->join_phase);
    }
    char *kv = at_base(me, field(me, RI_KV));
    uint32_t head = field(me, RI_HEAD), k_norm = field(me, RI_K_NORM);
    uint32_t q_heads = p->kv_heads * p->group;
    for (int task = me->warp; task < 2 * (int)info->rows; task += RES_CONSUMERS) {
        int row = task / 2, value = task % 2;
        uint32_t words[2], position = info->position[row % R], slot = info->slot[row % R];
        rotation r;
        load_rotation(&r, me, position < p->context ? position : 0);
        load_head(me, qkv, q_heads + value * p->kv_heads + head, row, words);
        if (!value)
            turn_head(me, words, k_norm, &r);
        if (slot >= p->slots || position / KV_BLOCK >= p->blocks_max)
            continue;
        uint32_t block = p->tables[(uint64_t)slot * p->blocks_max + position / KV_BLOCK];
        if (block >= p->blocks)
            continue;
        store_row(kv + (uint64_t)block * BLOCK_BYTES + value * KV_BLOCK * HS * 2 +
                      position % KV_BLOCK * HS * 2,
                  me->thread, position, words);
    }
    fence_proxy(); /* beside that of the reader: the ISA does not say on which side it must be */
}

#endif
