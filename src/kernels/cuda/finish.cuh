/* finish.cuh: the warp that adds the eight warps' sums of a tile, does what the op does with them
 * and publishes the result; it also learns what the next step is about.
 *
 * Threads come in four groups of eight, one a weight row of a tile. In the image of one row a group
 * is a tile (four tiles at a time); in that of eight rows a group is a row, and a tile takes two
 * rounds. */
#ifndef BRIM_FINISH_CUH
#define BRIM_FINISH_CUH

#include "kernels/cuda/fetch.cuh"

typedef struct finisher {
    int taken;             /* tiles so far, of all instructions */
    int first_row;         /* of its rows */
    float scale[OWN_ROWS]; /* 1 / rms of each row's input, or 1 */
} finisher;

FN float sum_of_granule(uint4 v)
{
    return (__uint_as_float(v.x) + __uint_as_float(v.y)) +
           (__uint_as_float(v.z) + __uint_as_float(v.w));
}
FN float sum_over_warp(float v)
{
#pragma unroll
    for (int n = 1; n < 32; n *= 2)
        v += __shfl_xor_sync(~0u, v, n);
    return v;
}
FN float inverse_rms(float sum, uint32_t columns, float epsilon)
{
    return rsqrtf(__fdividef(sum, (float)columns) + epsilon);
}

/* The sum of squares of a tile's 8 elements. */
template <bool IS_BF16>
FN float square_sum(uint4 v)
{
    float a = low16<IS_BF16>(v.x), b = high16<IS_BF16>(v.x), c = low16<IS_BF16>(v.y),
          d = high16<IS_BF16>(v.y), e = low16<IS_BF16>(v.z), f = high16<IS_BF16>(v.z),
          g = low16<IS_BF16>(v.w), h = high16<IS_BF16>(v.w);
    return ((__fmul_rn(a, a) + __fmul_rn(b, b)) + (__fmul_rn(c, c) + __fmul_rn(d, d))) +
           ((__fmul_rn(e, e) + __fmul_rn(f, f)) + (__fmul_rn(g, g) + __fmul_rn(h, h)));
}

/* Where a row of the embedding begins, and the 16 bytes of a tile of it. */
FN const char *embedding_tile(const lane *me, const char *tensor, uint32_t granules, uint32_t token,
                              uint32_t tile)
{
    return tensor + (uint64_t)(token / 8) * granules * 512 + (tile / 4) * 512 + token % 8 * 64 +
           tile % 4 * 16;
}

FN void scales_from_embedding(finisher *f, const lane *me, const step_info *info)
{
    uint32_t granules = field(me, RI_GRANULES);
    float epsilon = __uint_as_float(field(me, RI_EPSILON));
    const char *tensor = at_base(me, field(me, RI_EMBED));
#pragma unroll
    for (int own = 0; own < OWN_ROWS; own++) {
        int row = f->first_row + own;
        float sum = 0;
        for (uint32_t i = me->thread; i < granules && row < (int)info->rows; i += 32) {
            float k[4];
#pragma unroll
            for (int n = 0; n < 4; n++)
                k[n] = square_sum<BF16>(__ldg((const uint4 *)embedding_tile(
                    me, tensor, granules, info->token[row % R], 4 * i + n)));
            sum += (k[0] + k[1]) + (k[2] + k[3]);
        }
        f->scale[own] = inverse_rms(sum_over_warp(sum), 32 * granules, epsilon);
    }
}

/* A tile's sums of this finisher's four rows; those of rows that are not in use are 0. */
FN uint4 used_rows(uint4 v, int rows)
{
    return make_uint4(rows > 0 ? v.x : 0, rows > 1 ? v.y : 0, rows > 2 ? v.z : 0,
                      rows > 3 ? v.w : 0);
}

FN void scales_from_packets(finisher *f, const lane *me, const step_info *info)
{
    uint32_t granules = field(me, RI_GRANULES);
    float epsilon = __uint_as_float(field(me, RI_EPSILON));
    const char *ssq = in_set(me) + (uint64_t)field(me, RI_IN_SSQ) * 16;
    float sum[OWN_ROWS] = {};
    int rows = (int)info->rows - f->first_row;
    for (uint32_t first = 0; first < granules; first += 32) {
        uint32_t i = first + me->thread;
        bool wanted = i < granules;
        if (R == 1) {
            const char *at = ssq + i * 16;
            uint4 v = wanted ? ld_packet4(at) : make_uint4(0, 0, 0, 0);
            await_packet4(me, at, &v, wanted);
            sum[0] += sum_of_granule(v);
            continue;
        }
        wanted &= rows > 0;
        uint4 v[4];
        patience w = {0, 0};
#pragma unroll
        for (int n = 0; n < 4; n++)
            v[n] = wanted ? used_rows(ld_packet4(ssq + (4 * i + n) * (4 * R) + f->first_row * 4), rows)
                          : make_uint4(0, 0, 0, 0);
        for (;;) {
            bool missing = is_empty(v[0]) || is_empty(v[1]) || is_empty(v[2]) || is_empty(v[3]);
            if (!__any_sync(~0u, missing))
                break;
#pragma unroll
            for (int n = 0; n < 4; n++)
                if (is_empty(v[n]))
                    v[n] = used_rows(ld_packet4(ssq + (4 * i + n) * (4 * R) + f->first_row * 4), rows);
            still_waiting(me, &w, RES_WAIT_PACKET, packet_word(me, ssq), v[0].x);
        }
        if (OWN_ROWS == 4) {
            sum[0] += (__uint_as_float(v[0].x) + __uint_as_float(v[1].x)) +
                      (__uint_as_float(v[2].x) + __uint_as_float(v[3].x));
            sum[1 % OWN_ROWS] += (__uint_as_float(v[0].y) + __uint_as_float(v[1].y)) +
                                 (__uint_as_float(v[2].y) + __uint_as_float(v[3].y));
            sum[2 % OWN_ROWS] += (__uint_as_float(v[0].z) + __uint_as_float(v[1].z)) +
                                 (__uint_as_float(v[2].z) + __uint_as_float(v[3].z));
            sum[3 % OWN_ROWS] += (__uint_as_float(v[0].w) + __uint_as_float(v[1].w)) +
                                 (__uint_as_float(v[2].w) + __uint_as_float(v[3].w));
        }
    }
#pragma unroll
    for (int own = 0; own < OWN_ROWS; own++)
        f->scale[own] = inverse_rms(sum_over_warp(sum[own]), 32 * granules, epsilon);
}

/* ---- what is done with a row of sums ---- */

typedef struct finishing {
    uint32_t kind, vocab;
    uint64_t out, out_ssq;    /* bytes in the set of packets */
    const float *norm_out, *bias;
    const float *add;         /* NULL: the embedding */
    float *x;
    const char *embed;
    uint32_t embed_granules;
    const step_info *info;
    float best;               /* the head: largest logit so far of this thread's rows */
} finishing;

/* Loads that the row will need, before its sums are there. */
FN float early_value(const finishing *k, const lane *me, uint32_t tile, int row, int r, float *weight)
{
    uint32_t column = tile * 8 + r;
    if (k->kind == RES_OUT) {
        *weight = __ldg(k->norm_out + column);
        if (k->add)
            return __ldcg(k->add + (tile * R + row) * 8 + r);
        uint4 v = __ldg((const uint4 *)embedding_tile(me, k->embed, k->embed_granules,
                                                      k->info->token[row], tile));
        uint32_t pair = r < 2 ? v.x : r < 4 ? v.y : r < 6 ? v.z : v.w;
        return r & 1 ? high16<BF16>(pair) : low16<BF16>(pair);
    }
    if (k->kind == RES_QKV && k->bias)
        return __ldg(k->bias + column);
    return 0;
}

/* v: the sum times the row's scale. All threads come here, those that are not `ok` only along. */
FN void finish_row(finishing *k, const lane *me, uint32_t tile, int row, int r, bool ok, float v,
                   float early, float weight)
{
    uint64_t place = (uint64_t)tile * R + row;
    if (k->kind == RES_QKV) {
        v += early;
        float next = __shfl_down_sync(~0u, v, 1);
        if (ok && !(r & 1))
            publish<REPLICAS>(me, k->out + place * 16 + r * 2, pack16<false>(v, next));
    } else if (k->kind == RES_OUT) {
        /* What others wait for comes first. */
        float x = early + v;
        float y = __fmul_rn(x, weight), next = __shfl_down_sync(~0u, y, 1);
        uint64_t at = k->out + place * 16 + r * 2, ssq_at = k->out_ssq + place * 4;
        if (ok && !(r & 1))
            publish_only<REPLICAS>(me, at, pack16<BF16>(y, next));
        float square = __fmul_rn(x, x);
        square += __shfl_xor_sync(~0u, square, 1);
        square += __shfl_xor_sync(~0u, square, 2);
        square += __shfl_xor_sync(~0u, square, 4);
        if (ok && r == 1)
            publish_only<REPLICAS>(me, ssq_at, __float_as_uint(square));
        if (ok)
            __stcg(k->x + place * 8 + r, x);
        if (ok && !(r & 1))
            empty_only<REPLICAS>(me, at);
        if (ok && r == 1)
            empty_only<REPLICAS>(me, ssq_at);
    } else if (k->kind == RES_GATE_UP) {
        float up = __shfl_down_sync(~0u, v, 1);
        float h = __fdividef(v, 1.f + __expf(-v)) * up, next = __shfl_down_sync(~0u, h, 2);
        uint64_t at = ((uint64_t)(tile / 2) * R + row) * 16 + (tile & 1) * 8 + r;
        if (ok && !(r & 3))
            publish<REPLICAS>(me, k->out + at, pack16<BF16>(h, next));
    } else { /* the head */
        uint32_t column = tile * 8 + r;
        bool real = ok && column < k->vocab;
        float most = real ? v : __int_as_float(0xff800000);
        if (most != most)
            most = __int_as_float(0xff800000);
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 4));
        for (uint32_t i = 0; i < (R == 1 ? 1 : k->info->out); i++) {
            if (R > 1 && k->info->out_row[i] != (uint32_t)row)
                continue;
            if (real)
                __stcg(me->p->logits + (uint64_t)i * k->vocab + column, v);
            if (ok && r == 0)
                __stcg(me->p->tile_max + (uint64_t)i * me->p->head_tiles + tile, most);
        }
    }
}

FN float add_sums(const float *sums, int at)
{
    const int stride = R == 1 ? 8 : 64;
    float a[8];
#pragma unroll
    for (int w = 0; w < 8; w++)
        a[w] = sums[w * stride + at];
    return ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
}

FN void await_tile(const finisher *f, const lane *me, int n)
{
    int slot = (f->taken + n) % TILE_SLOTS;
    uint32_t bar = shared_address(me->s->tile) + 8 * slot, phase = (f->taken + n) / TILE_SLOTS & 1;
    patience w = {0, 0};
    while (!barrier_test(bar, phase)) /* at once when it is there: all lanes wait for this warp */
        still_waiting(me, &w, RES_WAIT_TILE, n, phase);
}

FN void finish_tiles_of_one_row(finisher *f, finishing *k, const lane *me)
{
    uint32_t first = field(me, RI_FIRST), stride = field(me, RI_STRIDE), pair = field(me, RI_PAIR);
    int tiles = field(me, RI_TILES), q = me->thread >> 3, r = me->thread & 7;
    for (int done = 0; done < tiles; done += 4) {
        int now = tiles - done < 4 ? tiles - done : 4, mine = q < now ? q : now - 1;
        uint32_t tile = lane_tile(first, stride, pair, done + mine);
        float weight = 0, early = early_value(k, me, tile, 0, r, &weight);
        for (int n = now - 1; n >= 0; n--)
            await_tile(f, me, n);
        float v = add_sums(me->s->sums[(f->taken + mine) % TILE_SLOTS], r) * f->scale[0];
        finish_row(k, me, tile, 0, r, q < now, v, early, weight);
        __syncwarp();
        if (me->thread < now)
            barrier_arrive(shared_address(&me->s->room[(f->taken + me->thread) % TILE_SLOTS]));
        f->taken += now;
    }
}

FN void finish_tiles_of_rows(finisher *f, finishing *k, const lane *me)
{
    uint32_t first = field(me, RI_FIRST), stride = field(me, RI_STRIDE), pair = field(me, RI_PAIR);
    int tiles = field(me, RI_TILES), q = me->thread >> 3, r = me->thread & 7;
    int row = (f->first_row + q) % R;
    bool used = row < (int)k->info->rows, any = f->first_row < (int)k->info->rows;
    float scale = f->scale[0];
#pragma unroll
    for (int i = 1; i < OWN_ROWS; i++)
        scale = q == i ? f->scale[i] : scale;
    for (int done = 0; done < tiles; done++) {
        uint32_t tile = lane_tile(first, stride, pair, done);
        float weight = 0, early = used ? early_value(k, me, tile, row, r, &weight) : 0;
        await_tile(f, me, 0);
        float v = add_sums(me->s->sums[f->taken % TILE_SLOTS], row * 8 + r) * scale;
        if (any)
            finish_row(k, me, tile, row, r, used, v, early, weight);
        __syncwarp();
        if (me->thread == 0)
            barrier_arrive(shared_address(&me->s->room[f->taken % TILE_SLOTS]));
        f->taken++;
    }
}

FN void finish_product(finisher *f, const lane *me, uint32_t kind)
{
    const step_info *info = &me->s->info[me->epoch & 1];
    finishing k = {};
    k.kind = kind;
    k.info = info;
    k.vocab = me->p->vocab;
    k.out = (uint64_t)field(me, RI_OUT) * 16;
    k.out_ssq = (uint64_t)field(me, RI_OUT_SSQ) * 16;
    k.norm_out = (const float *)at_base(me, field(me, RI_NORM_OUT));
    uint32_t bias = field(me, RI_BIAS), add = field(me, RI_ADD);
    k.bias = bias == (uint32_t)RES_NONE ? NULL : (const float *)at_base(me, bias);
    k.add = add == (uint32_t)RES_NONE ? NULL : (const float *)at_base(me, add);
    k.x = (float *)at_base(me, field(me, RI_X));
    k.embed = at_base(me, field(me, RI_EMBED));
    k.embed_granules = field(me, RI_HEAD);
    if (field(me, RI_FROM) == 1)
        scales_from_embedding(f, me, info);
    else if (field(me, RI_IN_SSQ) != (uint32_t)RES_NONE)
        scales_from_packets(f, me, info);
    else
#pragma unroll
        for (int own = 0; own < OWN_ROWS; own++)
            f->scale[own] = 1;
    if (R == 1)
        finish_tiles_of_one_row(f, &k, me);
    else
        finish_tiles_of_rows(f, &k, me);
}

/* ---- steps ---- */

/* What the step is about, from its buffer; all threads. */
FN void read_step(lane *me, step_info *info)
{
    const uint32_t *step = me->p->step[(me->p->epoch + me->epoch) & 1];
    uint32_t rows = __ldcg(step + 1), out = __ldcg(step + 2);
    if (me->thread < R) {
        uint32_t rows_max = me->p->rows;
        info->token[me->thread] = __ldcg(step + 16 + me->thread);
        info->position[me->thread] = __ldcg(step + 16 + rows_max + me->thread);
        info->slot[me->thread] = __ldcg(step + 16 + 2 * rows_max + me->thread);
        info->out_row[me->thread] = __ldcg(step + 16 + 3 * rows_max + me->thread);
    }
    if (me->thread == 0) {
        info->rows = rows < R ? rows : R;
        info->out = out < R ? out : R;
    }
}

/* Waits until the step may begin; false when there is none. */
FN bool begin_step(lane *me)
{
    step_info *info = &me->s->info[me->epoch & 1];
    if (me->epoch == 0)
        read_step(me, info);
    else {
        patience w = {0, 0};
        uint64_t go = 0;
        for (;;) {
            go = ld_acquire64(&me->p->control->go);
            if ((go & 0x80000000u) || (uint32_t)go >= me->epoch + 1)
                break;
            still_waiting(me, &w, RES_WAIT_STEP, me->epoch, (uint32_t)go);
        }
        go = __shfl_sync(~0u, go, 0);
        if (go & 0x80000000u)
            return false;
        if (R > 1)
            read_step(me, info);
        else if (me->thread == 0) {
            *info = me->s->info[(me->epoch + 1) & 1];
            info->token[0] = (uint32_t)(go >> 32);
            info->position[0]++;
        }
    }
    __syncwarp();
    if (me->thread == 0)
        barrier_arrive(shared_address(&me->s->step));
    return true;
}

FN void trace_ended(const lane *me, uint32_t i, uint32_t count)
{
    if (!me->p->events || me->thread != 0)
        return;
    uint32_t n = (me->epoch * count + i) % me->p->event_capacity;
    me->p->events[(uint64_t)this_lane() * me->p->event_capacity + n].ended = clock64();
}

/* The first finisher learns what the step is about; the second, of eight rows, hears it like the
 * consumers. */
FN void finish_warp(lane *me, bool more)
{
    const brim__res_params *p = me->p;
    uint32_t list = p->list_first[this_lane()], count = p->list_first[this_lane() + 1] - list;
    finisher f;
    f.taken = 0;
    f.first_row = more ? OWN_ROWS : 0;
    for (me->epoch = 0; me->epoch < p->limit; me->epoch++) {
        uint32_t next = instruction_word(me, list);
        if (more ? !await_step(me) : !begin_step(me))
            break;
        for (uint32_t i = 0; i < count; i++) {
            me->word = next;
            next = instruction_word(me, i + 1 < count ? list + i + 1 : list);
            me->instruction = field(me, RI_INDEX);
            look_anew(me);
            uint32_t kind = field(me, RI_KIND);
            if (kind == RES_QKV || kind == RES_OUT || kind == RES_GATE_UP ||
                (kind == RES_HEAD && me->s->info[me->epoch & 1].out > 0)) {
                finish_product(&f, me, kind);
                if (!more)
                    trace_ended(me, i, count);
            } else if (kind == RES_LANE_DONE && more)
                barrier_arrive_if(shared_address(&me->s->done), me->thread == 0);
            else if (kind == RES_LANE_DONE) {
                wait_barrier(me, shared_address(&me->s->done), me->epoch & 1, RES_WAIT_WARPS, 0);
                if (me->thread == 0)
                    red_release(&p->control->arrived, 1);
                __syncwarp();
            }
        }
    }
    if (!more && me->thread == 0)
        me->s->stop = 1; /* those who wait for the next step look at it */
}

#endif
