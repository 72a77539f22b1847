/* product.cuh: the warps that multiply. Warp w has granules w, w + 8, ... of the columns: it waits
 * for its own part of the input only, keeps it in shared memory, and multiplies the tiles as they
 * come through the ring. */
#ifndef BRIM_PRODUCT_CUH
#define BRIM_PRODUCT_CUH

#include "kernels/cuda/finish.cuh"

/* Places are kept as addresses in shared memory that move on: the fewer instructions a tile takes, the
 * sooner the next lane has it. */
typedef struct consumer {
    uint32_t full;       /* barrier of the ring's next slot; that of `empty` lies beside it */
    uint32_t slot_at;    /* this thread's 16 bytes of this warp's first granule in the slot */
    uint32_t slot_phase;
    uint32_t tile;       /* barrier of the next sums; that of `room` lies beside it */
    uint32_t sums_at;    /* where this thread's sums go */
    uint32_t room_phase;
    uint32_t join_phase;
    item first_item;     /* of attention: the same in every layer of a step */
} consumer;

/* ---- input ---- */

/* The input block's bytes of this warp in shared memory: granule i of it at i * X_GRANULE. */
FN uint32_t input_place(const lane *me, uint32_t block)
{
    return me->work + (block * RES_CONSUMERS + me->warp) * X_BLOCK;
}

/* Eight input elements as the matrix unit's operand: words 0 and 1 in rows 0 to 7, words 2 and 3 in
 * rows 8 to 15; see multiply_granule(). */
FN uint4 as_operand(uint4 v)
{
    return make_uint4(v.x, v.z, v.y, v.w);
}

/* What a thread looks after: one row image: granule thread / 4, 16-byte piece thread % 4, all in
 * one go. Eight rows: of each granule i tile thread / 8, row thread % 8. */
FN uint32_t granule_of(uint32_t block, const lane *me, int i)
{
    return block * 64 + me->warp + 8 * i;
}

/* One row: a first look at a block, so that the next one is on its way while this one is used. */
FN uint4 look_ahead(const lane *me, const char *in, uint32_t granules, uint32_t block)
{
    uint32_t granule = granule_of(block, me, me->thread >> 2);
    return granule < granules ? ld_packet4(in + granule * 64 + (me->thread & 3) * 16)
                              : make_uint4(0, 0, 0, 0);
}

FN void input_from_packets(const lane *me, const step_info *info, const char *in, uint32_t granules,
                           uint32_t block, uint32_t to, uint4 *ahead)
{
    if (R == 1) {
        uint32_t granule = granule_of(block, me, me->thread >> 2);
        uint4 v = *ahead;
        *ahead = look_ahead(me, in, granules, block + 1);
        await_packet4(me, in + granule * 64 + (me->thread & 3) * 16, &v, granule < granules);
        sts4(to + me->thread * 16, as_operand(v));
    } else {
        uint4 v[8];
        bool row_used = (me->thread & 7) < (int)info->rows;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t granule = granule_of(block, me, i);
            v[i] = row_used && granule < granules
                       ? ld_packet4(in + (uint64_t)granule * 64 * R + me->thread * 16)
                       : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t granule = granule_of(block, me, i);
            await_packet4(me, in + (uint64_t)granule * 64 * R + me->thread * 16, &v[i],
                          row_used && granule < granules);
            sts4(to + i * X_GRANULE + (me->thread & 7) * 64 + (me->thread >> 3) * 16,
                 as_operand(v[i]));
        }
    }
}

FN uint4 times_norm(uint4 v, const float *weight)
{
    float4 a = __ldg((const float4 *)weight), b = __ldg((const float4 *)weight + 1);
    return make_uint4(
        pack16<BF16>(__fmul_rn(low16<BF16>(v.x), a.x), __fmul_rn(high16<BF16>(v.x), a.y)),
        pack16<BF16>(__fmul_rn(low16<BF16>(v.y), a.z), __fmul_rn(high16<BF16>(v.y), a.w)),
        pack16<BF16>(__fmul_rn(low16<BF16>(v.z), b.x), __fmul_rn(high16<BF16>(v.z), b.y)),
        pack16<BF16>(__fmul_rn(low16<BF16>(v.w), b.z), __fmul_rn(high16<BF16>(v.w), b.w)));
}

FN void input_from_embedding(const lane *me, const step_info *info, uint32_t granules,
                             uint32_t block, uint32_t to)
{
    const char *tensor = at_base(me, field(me, RI_EMBED));
    const float *norm = (const float *)at_base(me, field(me, RI_NORM_IN));
    if (R == 1) {
        uint32_t granule = granule_of(block, me, me->thread >> 2);
        uint4 v = make_uint4(0, 0, 0, 0);
        uint32_t tile = granule * 4 + (me->thread & 3);
        if (granule < granules)
            v = times_norm(__ldg((const uint4 *)embedding_tile(me, tensor, granules,
                                                               info->token[0], tile)),
                           norm + tile * 8);
        sts4(to + me->thread * 16, as_operand(v));
    } else {
        int row = me->thread & 7;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t granule = granule_of(block, me, i);
            uint4 v = make_uint4(0, 0, 0, 0);
            uint32_t tile = granule * 4 + (me->thread >> 3);
            if (granule < granules && row < (int)info->rows)
                v = times_norm(__ldg((const uint4 *)embedding_tile(me, tensor, granules,
                                                                   info->token[row % R], tile)),
                               norm + tile * 8);
            sts4(to + i * X_GRANULE + row * 64 + (me->thread >> 3) * 16, as_operand(v));
        }
    }
}

/* Four parts' eight elements, weighted and added as ((0 + 1) + (2 + 3)). */
FN void add_parts(float total[8], const uint4 o[4], const float f[4])
{
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float lo[4], hi[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t v = n == 0 ? o[i].x : n == 1 ? o[i].y : n == 2 ? o[i].z : o[i].w;
            lo[i] = __fmul_rn(f[i], low16<false>(v));
            hi[i] = __fmul_rn(f[i], high16<false>(v));
        }
        total[2 * n] = __fadd_rn(__fadd_rn(lo[0], lo[1]), __fadd_rn(lo[2], lo[3]));
        total[2 * n + 1] = __fadd_rn(__fadd_rn(hi[0], hi[1]), __fadd_rn(hi[2], hi[3]));
    }
}

/* Parts of attention, at most 8 splits, combined. `item` is the first of the (row, KV head). */
FN uint4 combined_parts(const lane *me, const char *parts, uint32_t first, uint32_t splits,
                        uint32_t part_bytes, uint32_t out_at, uint32_t lse_at, bool wanted)
{
    const char *at = parts + (uint64_t)first * part_bytes;
    uint4 o[4];
    uint32_t e[8];
    bool more = __any_sync(~0u, splits > 4);
    int have = wanted ? (int)splits : 0;
#pragma unroll
    for (int s = 0; s < 4; s++) {
        o[s] = s < have ? ld_packet4(at + s * part_bytes + out_at) : make_uint4(0, 0, 0, 0);
        e[s] = s < have ? ld_packet(at + s * part_bytes + lse_at) : 0xff800000u;
        e[4 + s] = 0xff800000u;
    }
    patience w = {0, 0};
    for (;;) {
        bool missing = false;
#pragma unroll
        for (int s = 0; s < 4; s++)
            missing |= s < have && (is_empty(o[s]) || e[s] == EMPTY);
        if (!__any_sync(~0u, missing))
            break;
#pragma unroll
        for (int s = 0; s < 4; s++)
            if (s < have && (is_empty(o[s]) || e[s] == EMPTY)) {
                o[s] = ld_packet4(at + s * part_bytes + out_at);
                e[s] = ld_packet(at + s * part_bytes + lse_at);
            }
        still_waiting(me, &w, RES_WAIT_PACKET, packet_word(me, at), e[0]);
    }
    if (more) {
#pragma unroll
        for (int s = 4; s < 8; s++) {
            e[s] = s < have ? ld_packet(at + s * part_bytes + lse_at) : 0xff800000u;
            await_packet1(me, at + s * part_bytes + lse_at, &e[s], s < have);
        }
    }
    float most = fmaxf(fmaxf(__uint_as_float(e[0]), __uint_as_float(e[1])),
                       fmaxf(__uint_as_float(e[2]), __uint_as_float(e[3])));
    if (more)
        most = fmaxf(most, fmaxf(fmaxf(__uint_as_float(e[4]), __uint_as_float(e[5])),
                                 fmaxf(__uint_as_float(e[6]), __uint_as_float(e[7]))));
    float f[8], total[8];
#pragma unroll
    for (int s = 0; s < 4; s++) {
        f[s] = s < have ? __expf(__uint_as_float(e[s]) - most) : 0.f;
        f[4 + s] = more && 4 + s < have ? __expf(__uint_as_float(e[4 + s]) - most) : 0.f;
    }
    float sum = ((f[0] + f[1]) + (f[2] + f[3])) + ((f[4] + f[5]) + (f[6] + f[7]));
    float inverse = __fdividef(1.f, sum);
    add_parts(total, o, f);
    if (more) {
        float second[8];
#pragma unroll
        for (int s = 0; s < 4; s++) {
            const char *part = at + (4 + s) * part_bytes + out_at;
            o[s] = 4 + s < have ? ld_packet4(part) : make_uint4(0, 0, 0, 0);
            await_packet4(me, part, &o[s], 4 + s < have);
        }
        add_parts(second, o, f + 4);
#pragma unroll
        for (int i = 0; i < 8; i++)
            total[i] += second[i];
    }
    return make_uint4(pack16<BF16>(total[0] * inverse, total[1] * inverse),
                      pack16<BF16>(total[2] * inverse, total[3] * inverse),
                      pack16<BF16>(total[4] * inverse, total[5] * inverse),
                      pack16<BF16>(total[6] * inverse, total[7] * inverse));
}

FN void input_from_parts(const lane *me, const step_info *info, const char *in, uint32_t granules,
                         uint32_t block, uint32_t to)
{
    const brim__res_params *p = me->p;
    uint32_t window = field(me, RI_WINDOW);
    uint32_t part_bytes = 2 * p->group * HS + (p->group + 3) / 4 * 16;
#pragma unroll 1
    for (int i = 0; i < (R == 1 ? 1 : 8); i++) {
        int row = R == 1 ? 0 : me->thread & 7, piece = R == 1 ? me->thread & 3 : me->thread >> 3;
        uint32_t granule = granule_of(block, me, R == 1 ? me->thread >> 2 : i);
        bool wanted = granule < granules && row < (int)info->rows;
        uint32_t head = granule * 32 / HS, kv_head = head / p->group, own = head % p->group;
        uint32_t position = info->position[row % R];
        uint32_t splits = wanted ? splits_of(p, window, position) : 0;
        uint32_t first = wanted ? first_item(p, info, window, row) + kv_head * splits : 0;
        uint4 v = combined_parts(me, in, first, splits, part_bytes,
                                 2 * (own * HS + granule * 32 % HS + piece * 8),
                                 2 * p->group * HS + own * 4, wanted);
        if (!wanted)
            v = make_uint4(0, 0, 0, 0);
        if (R == 1)
            sts4(to + me->thread * 16, as_operand(v));
        else
            sts4(to + i * X_GRANULE + row * 64 + piece * 16, as_operand(v));
    }
}

FN void fetch_input(const lane *me, const step_info *info, uint32_t from, const char *in,
                    uint32_t granules, uint32_t block, uint32_t to, uint4 *ahead)
{
    if (from == 0)
        input_from_packets(me, info, in, granules, block, to, ahead);
    else if (from == 1)
        input_from_embedding(me, info, granules, block, to);
    else
        input_from_parts(me, info, in, granules, block, to);
    __syncwarp();
}

/* ---- the ring ---- */

enum {
    EMPTY_BESIDE = RES_SLOTS_MAX * 8,
    ROOM_BESIDE = TILE_SLOTS * 8,
};

FN void consumer_begin(consumer *c, const lane *me)
{
    c->full = shared_address(me->s->full);
    c->slot_at = me->ring + me->warp * 512 + me->thread * 16;
    c->slot_phase = 0;
    c->tile = shared_address(me->s->tile);
    c->sums_at = shared_address(me->s->sums[0]) +
                 4 * (R == 1 ? me->warp * 8 + 2 * (me->thread & 3)
                             : me->warp * 64 + (me->thread >> 2) * 8 + 2 * (me->thread & 3));
    c->room_phase = 1; /* there is room at first */
    c->join_phase = 0;
}

FN void await_ring(const consumer *c, const lane *me)
{
    wait_barrier(me, c->full, c->slot_phase, RES_WAIT_RING, c->full);
}
FN void next_slot(consumer *c, const lane *me)
{
    c->full += 8;
    c->slot_at += RES_SLOT_BYTES;
    if (c->full == shared_address(me->s->full) + 8 * me->p->ring_slots) {
        c->full = shared_address(me->s->full);
        c->slot_at -= RES_SLOT_BYTES * me->p->ring_slots;
        c->slot_phase ^= 1;
    }
}
/* After all threads' loads. */
FN void release_ring(consumer *c, const lane *me)
{
    barrier_arrive_if(c->full + EMPTY_BESIDE, me->thread == 0);
    next_slot(c, me);
}

/* A granule of a tile: this thread's 16 bytes of weights v (row thread / 4, columns 8 (thread % 4)
 * on), and of input x. Columns 0 to 3 of each 8 are multiplied in rows 0 to 7 of the first sums,
 * the others in rows 8 to 15 of the second: so four words of input are the operand as they are.
 * What lands in the other rows is never looked at. */
FN void multiply_granule(float sums[2][4], uint4 x, uint4 v)
{
    mma16<BF16>(sums[0], x.x, x.y, x.z, x.w, v.x, v.y);
    mma16<BF16>(sums[1], x.x, x.y, x.z, x.w, v.z, v.w);
}

/* Takes this warp's granules of a block of a tile out of the ring: four of each of two slots; or what
 * there is, the rest being zeros. */
FN void take_weights(consumer *c, const lane *me, uint32_t left, uint4 v[8])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (half == 1 && left <= 32) {
#pragma unroll
            for (int i = 4; i < 8; i++)
                v[i] = make_uint4(0, 0, 0, 0);
            return;
        }
        await_ring(c, me);
        if (left >= 64) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[4 * half + i] = lds4(c->slot_at + i * 4096);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[4 * half + i] = (uint32_t)(me->warp + 8 * (4 * half + i)) < left
                                      ? lds4(c->slot_at + i * 4096)
                                      : make_uint4(0, 0, 0, 0);
        }
        __syncwarp();
        release_ring(c, me);
    }
}

/* Adds a block of a tile to its sums. */
FN void add_block(float sums[2][4], uint32_t left, const uint4 x[8], const uint4 v[8])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        multiply_granule(sums, x[i], v[i]);
    if (left <= 32)
        return;
#pragma unroll
    for (int i = 4; i < 8; i++)
        multiply_granule(sums, x[i], v[i]);
}

/* Hands the warp's sums of a tile to the finisher. */
FN void put_sums(consumer *c, const lane *me, const float sums[2][4])
{
    wait_barrier(me, c->tile + ROOM_BESIDE, c->room_phase, RES_WAIT_FINISH, c->tile);
    sts2_if(c->sums_at, sums[0][0] + sums[1][2], sums[0][1] + sums[1][3],
            R > 1 || me->thread < 4);
    __syncwarp();
    barrier_arrive_if(c->tile, me->thread == 0);
    c->tile += 8;
    c->sums_at += 4 * TILE_SLOT_FLOATS;
    if (c->tile == shared_address(me->s->tile) + 8 * TILE_SLOTS) {
        c->tile -= 8 * TILE_SLOTS;
        c->sums_at -= 4 * TILE_SLOT_FLOATS * TILE_SLOTS;
        c->room_phase ^= 1;
    }
}

FN void trace_begun(const lane *me, uint32_t i, uint32_t count, bool started)
{
    if (!me->p->events || me->warp != 0 || me->thread != 0)
        return;
    uint32_t n = (me->epoch * count + i) % me->p->event_capacity;
    brim__res_event *e = &me->p->events[(uint64_t)this_lane() * me->p->event_capacity + n];
    if (started)
        e->started = clock64();
    else {
        e->instruction = me->instruction;
        e->epoch = me->epoch;
        e->taken = clock64();
        e->ended = 0;
    }
}

FN void load_operand(uint4 x[8], const lane *me, uint32_t place)
{
    uint32_t at = place + (R == 1 ? 0 : (me->thread >> 2) * 64) + (me->thread & 3) * 16;
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i] = lds4(at + i * X_GRANULE);
}

FN void clear(float sums[2][4])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        sums[i / 4][i % 4] = 0;
}

/* The first block of the first tile (narrow products: of two tiles, where registers are left) is taken
 * out of the ring before the input has come: it is multiplied at once, and the ring has room for more. */
enum { EARLY_TWO = R == 1 };

/* At most 2,048 columns: tile by tile, the sums of one being handed over while the matrix unit works
 * on the next. */
FN void multiply_narrow(consumer *c, const lane *me, const uint4 early[8], uint4 v[8],
                        uint32_t tiles, uint32_t granules)
{
    uint4 x[8];
    float even[2][4], odd[2][4];
    load_operand(x, me, input_place(me, 0));
    clear(even);
    add_block(even, granules, x, early);
    if (tiles == 1) {
        put_sums(c, me, even);
        return;
    }
    clear(odd);
    if (!EARLY_TWO)
        take_weights(c, me, granules, v);
    add_block(odd, granules, x, v);
    put_sums(c, me, even);
#pragma unroll 1
    for (uint32_t t = 2; t < tiles; t += 2) {
        take_weights(c, me, granules, v);
        clear(even);
        add_block(even, granules, x, v);
        put_sums(c, me, odd);
        if (t + 1 == tiles) {
            put_sums(c, me, even);
            return;
        }
        take_weights(c, me, granules, v);
        clear(odd);
        add_block(odd, granules, x, v);
        put_sums(c, me, even);
    }
    put_sums(c, me, odd);
}

/* More: groups of tiles, so that input is looked at once a group; all tiles' sums are kept. Input
 * that does not fit is looked at block by block, once for each group. */
FN void multiply_wide(consumer *c, const lane *me, const step_info *info, const char *in, bool kept,
                      const uint4 early[8], uint32_t tiles, uint32_t granules)
{
#pragma unroll 1
    for (uint32_t group = 0; group < tiles; group += RES_GROUP_TILES) {
        int now = tiles - group < RES_GROUP_TILES ? tiles - group : RES_GROUP_TILES;
        float sums[RES_GROUP_TILES][2][4] = {};
        uint4 ahead = make_uint4(0, 0, 0, 0);
        if (R == 1 && !kept)
            ahead = look_ahead(me, in, granules, 0);
#pragma unroll 1
        for (uint32_t block = 0; block * 64 < granules; block++) {
            uint32_t place = input_place(me, kept ? block : 0), left = granules - block * 64;
            if (!kept) {
                __syncwarp();
                input_from_packets(me, info, in, granules, block, place, &ahead);
                __syncwarp();
            }
            uint4 x[8];
            load_operand(x, me, place);
            bool first = group == 0 && block == 0;
#pragma unroll
            for (int t = 0; t < RES_GROUP_TILES; t++) {
                if (t >= now)
                    continue;
                if (t == 0 && first) {
                    add_block(sums[t], left, x, early);
                    continue;
                }
                uint4 v[8];
                take_weights(c, me, left, v);
                add_block(sums[t], left, x, v);
            }
            if (left <= 64) {
#pragma unroll
                for (int t = 0; t < RES_GROUP_TILES; t++)
                    if (t < now)
                        put_sums(c, me, sums[t]);
            }
        }
    }
}

FN void multiply(consumer *c, const lane *me, uint32_t number, uint32_t count)
{
    const step_info *info = &me->s->info[me->epoch & 1];
    uint32_t granules = field(me, RI_GRANULES), from = field(me, RI_FROM);
    uint32_t blocks = (granules + 63) / 64, tiles = field(me, RI_TILES);
    const char *in = in_set(me) + (uint64_t)field(me, RI_IN) * 16;
    bool kept = blocks <= me->p->keep_blocks;
    uint4 early[8];
    take_weights(c, me, granules, early);
    if (blocks == 1) {
        uint4 second[8], ahead = make_uint4(0, 0, 0, 0);
        if (EARLY_TWO && tiles > 1)
            take_weights(c, me, granules, second);
        if (R == 1 && from == 0)
            ahead = look_ahead(me, in, granules, 0);
        fetch_input(me, info, from, in, granules, 0, input_place(me, 0), &ahead);
        trace_begun(me, number, count, true);
        multiply_narrow(c, me, early, second, tiles, granules);
        return;
    }
    if (kept) {
        uint4 ahead = make_uint4(0, 0, 0, 0);
        if (R == 1 && from == 0)
            ahead = look_ahead(me, in, granules, 0);
#pragma unroll 1
        for (uint32_t block = 0; block < blocks; block++)
            fetch_input(me, info, from, in, granules, block, input_place(me, block), &ahead);
    }
    trace_begun(me, number, count, true);
    multiply_wide(c, me, info, in, kept, early, tiles, granules);
}

#endif
