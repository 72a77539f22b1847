/* The check against brute force: all interleavings of small random programs, and random mutants
 * run in many orders. */
#include "mix_program.h"

#include "base/hash.h"
#include "program/check.h"

enum { SMALL_MAX = 8, STATES_MAX = 1 << 17 };

typedef struct draws {
    uint64_t seed, n;
} draws;

static uint32_t draw(draws *d, uint32_t bound)
{
    return (uint32_t)brim__random_below(d->seed, 3, d->n++, bound);
}

/* ---- random programs ---- */

typedef struct small {
    mix m;
    brim_instruction in[SMALL_MAX];
    uint32_t count, lanes, queues;
    /* place[i]: lane of an instruction, or lanes + queue */
    uint32_t place[SMALL_MAX];
} small;

static void random_accesses(brim_instruction *in, draws *d, const uint32_t *buffers)
{
    for (uint32_t k = draw(d, 3); k > 0; k--) {
        bool write = draw(d, 2);
        uint32_t buffer = buffers[draw(d, 2)];
        mix_access(in, write ? BRIM_WRITE : BRIM_READ, buffer, 8 * draw(d, 3),
                   8 * (1 + draw(d, 2)));
    }
}

static void random_waits(small *s, draws *d, const uint32_t *counters, uint32_t counter_count)
{
    uint32_t totals[4] = {0};
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t k = draw(d, 3); k > 0; k--) {
            uint32_t c = draw(d, counter_count);
            mix_signal(&s->in[i], counters[c]);
            totals[c]++;
        }
    bool later[SMALL_MAX][4] = {{false}}; /* whether i or a later one signals */
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t k = i; k < s->count; k++)
            for (unsigned n = 0; n < s->in[k].signal_count; n++)
                later[i][s->in[k].signals[n]] = true;
    for (uint32_t i = 0; i < s->count; i++) {
        /* Some programs wait for all signals, some for any number. */
        uint32_t waits = i + 1 == s->count ? counter_count : draw(d, 3);
        for (uint32_t k = 0; k < waits; k++) {
            uint32_t c = i + 1 == s->count ? k : draw(d, counter_count);
            /* Most waits for what is signalled later would only make deadlocks. */
            if (totals[c] && (!later[i][counters[c]] || draw(d, 8) == 0))
                mix_wait(&s->in[i], counters[c],
                         i + 1 == s->count || draw(d, 3) ? totals[c] : 1 + draw(d, totals[c]));
        }
    }
}

static small random_small(uint64_t seed)
{
    draws d = {seed, 0};
    small s = {
        .count = 3 + draw(&d, SMALL_MAX - 2), .lanes = 1 + draw(&d, 3), .queues = draw(&d, 3)};
    s.m = mix_begin(s.lanes);
    uint32_t buffers[2] = {mix_buffer(&s.m, "state", 64, BRIM_BUFFER_STATE, false),
                           mix_buffer(&s.m, "scratch", 64, BRIM_BUFFER_SCRATCH, false)};
    uint32_t out = mix_buffer(&s.m, "out", 64, BRIM_BUFFER_OUTPUT, false);
    uint32_t counters[4], counter_count = 1 + draw(&d, 4), queues[2];
    for (uint32_t c = 0; c < counter_count; c++) {
        char name[16];
        snprintf(name, sizeof name, "c%u", c);
        counters[c] = mix_counter(&s.m, name);
    }
    for (uint32_t q = 0; q < s.queues; q++)
        queues[q] = mix_queue(&s.m, q ? "q1" : "q0");
    for (uint32_t i = 0; i < s.count; i++) {
        s.in[i] = brim_instruction_make(i + 1 == s.count ? s.m.op_end : s.m.op);
        if (i + 1 < s.count)
            random_accesses(&s.in[i], &d, buffers);
        else
            mix_access(&s.in[i], BRIM_WRITE, out, 0, 8);
    }
    random_waits(&s, &d, counters, counter_count);
    bool taken[3][2] = {{false}};
    for (uint32_t i = 0; i < s.count; i++) {
        uint32_t place = i + 1 == s.count ? 0 : draw(&d, s.lanes + s.queues);
        s.place[i] = place;
        if (place >= s.lanes)
            mix_piece(&s.m, queues[place - s.lanes], &s.in[i]);
        else
            mix_lane(&s.m, place, &s.in[i]);
        for (uint32_t q = 0; q < s.queues; q++) {
            uint32_t lane = draw(&d, s.lanes);
            if (!taken[lane][q] && draw(&d, 3) == 0) {
                taken[lane][q] = true;
                mix_take(&s.m, lane, queues[q]);
            }
        }
    }
    for (uint32_t q = 0; q < s.queues; q++)
        if (!taken[0][q] && !taken[1][q] && !taken[2][q])
            mix_take(&s.m, draw(&d, s.lanes), queues[q]);
    mix_finish(&s.m);
    return s;
}

/* ---- what can happen ---- */

static bool waits_hold(const small *s, uint32_t i, uint32_t done)
{
    for (unsigned w = 0; w < s->in[i].wait_count; w++) {
        uint32_t reached = 0;
        for (uint32_t k = 0; k < s->count; k++)
            for (unsigned n = 0; n < s->in[k].signal_count; n++)
                reached += (done >> k & 1) && s->in[k].signals[n] == s->in[i].waits[w].counter;
        if (reached < s->in[i].waits[w].value)
            return false;
    }
    return true;
}

static bool list_allows(const small *s, uint32_t i, uint32_t done)
{
    for (uint32_t k = 0; k < i; k++)
        if (s->place[k] == s->place[i] && s->place[i] < s->lanes && !(done >> k & 1))
            return false;
    return true;
}

/* before[a][b]: in every interleaving of waits and lists in which b starts, a was done. */
static void orders_by_force(const small *s, bool before[SMALL_MAX][SMALL_MAX])
{
    static bool reachable[1 << SMALL_MAX];
    memset(reachable, 0, sizeof reachable);
    reachable[0] = true;
    for (uint32_t a = 0; a < s->count; a++)
        for (uint32_t b = 0; b < s->count; b++)
            before[a][b] = a != b;
    for (uint32_t done = 0; done < 1u << s->count; done++) {
        if (!reachable[done])
            continue;
        for (uint32_t b = 0; b < s->count; b++) {
            if (done >> b & 1 || !waits_hold(s, b, done) || !list_allows(s, b, done))
                continue;
            reachable[done | 1u << b] = true;
            for (uint32_t a = 0; a < s->count; a++)
                before[a][b] &= done >> a & 1;
        }
    }
}

/* Lanes that take their items in order and help nobody: a state is what is done, where each lane
 * is and which piece it holds, and how far each queue is taken. True if some state is stuck. */
typedef struct lanes_state {
    uint8_t done, item[3], held[3], taken[2]; /* held: 1 + piece */
} lanes_state;

typedef struct explorer {
    const small *s;
    lanes_state *seen, *todo;
    size_t seen_count, todo_count;
    bool stuck;
} explorer;

static void visit(explorer *x, lanes_state state)
{
    uint64_t slot = brim__hash64(&state, sizeof state, 1) % STATES_MAX;
    static const lanes_state none;
    for (; memcmp(&x->seen[slot], &none, sizeof none) != 0; slot = (slot + 1) % STATES_MAX)
        if (memcmp(&x->seen[slot], &state, sizeof state) == 0)
            return;
    x->seen[slot] = state;
    assert_true(++x->seen_count < STATES_MAX / 2);
    x->todo[x->todo_count++] = state;
}

static bool advance_lane(explorer *x, const lanes_state *from, uint32_t l)
{
    const brim_program *p = x->s->m.program;
    const brim__lane_list *list = &p->lanes[l];
    lanes_state next = *from;
    if (next.held[l]) {
        uint32_t i = next.held[l] - 1u;
        if (!waits_hold(x->s, i, from->done))
            return false;
        next.done |= (uint8_t)(1u << i);
        next.held[l] = 0;
    } else if (next.item[l] == list->count) {
        return false;
    } else if (list->items[next.item[l]].queue == BRIM_NONE) {
        next.held[l] = (uint8_t)(list->items[next.item[l]++].instruction + 1);
    } else {
        uint32_t q = list->items[next.item[l]].queue;
        if (next.taken[q] == p->queues[q].count)
            next.item[l]++;
        else
            next.held[l] = (uint8_t)(p->queues[q].items[next.taken[q]++] + 1);
    }
    visit(x, next);
    return true;
}

static bool can_get_stuck(const small *s)
{
    static lanes_state seen[STATES_MAX], todo[STATES_MAX];
    memset(seen, 0, sizeof seen);
    explorer x = {.s = s, .seen = seen, .todo = todo};
    lanes_state start = {0};
    x.todo[x.todo_count++] = start;
    while (x.todo_count) {
        lanes_state state = x.todo[--x.todo_count];
        bool moved = false;
        for (uint32_t l = 0; l < s->lanes; l++)
            moved |= advance_lane(&x, &state, l);
        if (!moved && state.done != (1u << s->count) - 1)
            return true;
    }
    return false;
}

/* ---- the properties ---- */

static bool conflict(const small *s, uint32_t a, uint32_t b)
{
    for (unsigned i = 0; i < s->in[a].access_count; i++)
        for (unsigned k = 0; k < s->in[b].access_count; k++) {
            const brim_access *x = &s->in[a].accesses[i], *y = &s->in[b].accesses[k];
            if (x->buffer == y->buffer && (x->kind != BRIM_READ || y->kind != BRIM_READ) &&
                x->offset < y->offset + y->size && y->offset < x->offset + x->size)
                return true;
        }
    return false;
}

static void check_that_passes_means_fixed_orders_and_no_deadlock(void **state)
{
    uint32_t passed = 0, ran = 0, refused = 0, deadlocks = 0, deadlocks_real = 0, races = 0,
             races_real = 0;
    for (uint64_t seed = 0; seed < 30000; seed++) {
        small s = random_small(seed);
        bool before[SMALL_MAX][SMALL_MAX];
        brim_status status = mix_check(&s.m);
        bool stuck = can_get_stuck(&s);
        if (mix_found(&s.m, "check.deadlock")) {
            deadlocks++;
            deadlocks_real += stuck;
            mix_end(&s.m);
            continue;
        }
        assert_false(stuck);
        ran++;
        orders_by_force(&s, before);
        bool race = false;
        for (uint32_t a = 0; a < s.count; a++)
            for (uint32_t b = 0; b < s.count; b++)
                race |= a != b && conflict(&s, a, b) && !before[a][b] && !before[b][a];
        if (status == BRIM_OK) {
            passed++;
            assert_false(race);
            for (uint32_t a = 0; a + 1 < s.count; a++)
                assert_true(before[a][s.count - 1]);
        } else if (mix_found(&s.m, "check.race")) {
            refused++;
        }
        races += race;
        races_real += race && status != BRIM_OK;
        mix_end(&s.m);
    }
    print_message("%u pass; of %u that run, %u have a race (%u found); %u are refused for "
                  "deadlock, %u of them can "
                  "get stuck without helpers\n",
                  passed, ran, races, races_real, deadlocks, deadlocks_real);
    assert_true(passed > 100 && refused > 100 && deadlocks > 100);
    assert_int_equal(races, races_real);
}

/* The computed order itself: never more than there is; how much of it is found is printed. */
static void check_order_is_sound_and_nearly_complete(void **state)
{
    uint64_t found = 0, real = 0;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        small s = random_small(seed);
        bool before[SMALL_MAX][SMALL_MAX], ran = false;
        brim__check c = {.program = s.m.program, .ctx = s.m.ctx, .limit = 1};
        c.unsound = brim__calloc(s.m.ctx, s.count, sizeof *c.unsound);
        assert_int_equal(brim__check_collect(&c), BRIM_OK);
        assert_int_equal(brim__check_run(&ran, &c), BRIM_OK);
        if (ran) {
            assert_int_equal(brim__check_order(&c), BRIM_OK);
            orders_by_force(&s, before);
            /* Instructions are numbered in the order they were added: the order of small.in. */
            for (uint32_t a = 0; a < s.count; a++)
                for (uint32_t b = 0; b < s.count; b++) {
                    if (a == b)
                        continue;
                    bool says = brim__check_before(&c, a, b);
                    assert_true(!says || before[a][b]);
                    found += says;
                    real += before[a][b];
                }
        }
        brim__free(s.m.ctx, c.unsound);
        brim__free(s.m.ctx, c.uses);
        brim__free(s.m.ctx, c.use_start);
        brim__free(s.m.ctx, c.unstable);
        brim__free(s.m.ctx, c.list_before);
        brim__free(s.m.ctx, c.order.sequence);
        brim__free(s.m.ctx, c.order.place);
        brim__free(s.m.ctx, c.order.bits);
        brim__free(s.m.ctx, c.order.row);
        mix_end(&s.m);
    }
    print_message("%llu of %llu ordered pairs are found\n", (unsigned long long)found,
                  (unsigned long long)real);
    assert_true(found * 1000 >= real * 990);
}

/* ---- mutants ---- */

static void mutate(brim_program *p, draws *d)
{
    for (;;) {
        brim_instruction *in = &p->instructions[draw(d, (uint32_t)p->instruction_count)];
        brim_access *a = in->access_count ? &in->accesses[draw(d, in->access_count)] : NULL;
        switch (draw(d, 5)) {
        case 0: /* a wait dropped */
            if (in->wait_count == 0)
                continue;
            in->waits[draw(d, in->wait_count)] = in->waits[in->wait_count - 1];
            in->wait_count--;
            return;
        case 1: /* a count lowered */
            if (in->wait_count == 0 || in->waits[0].value == 1)
                continue;
            in->waits[0].value -= 1 + draw(d, in->waits[0].value - 1);
            return;
        case 2: /* a region moved */
            if (!a)
                continue;
            a->offset += (uint64_t)(1 + draw(d, 4)) * (draw(d, 2) ? LAYERED_COLUMN : 4);
            return;
        case 3: { /* a signal swapped */
            brim_instruction *other = &p->instructions[draw(d, (uint32_t)p->instruction_count)];
            if (!in->signal_count || !other->signal_count || in->signals[0] == other->signals[0])
                continue;
            uint32_t c = in->signals[0];
            in->signals[0] = other->signals[0];
            other->signals[0] = c;
            return;
        }
        case 4: /* a run shortened */
            if (!a)
                continue;
            if (a->count > 1)
                a->count -= 1;
            else
                a->size -= a->size > 4 ? 4 : 0;
            return;
        }
    }
}

/* A hash of what outlives an epoch, after one; 0: stuck. */
static uint64_t run_hash(mix *m, uint64_t seed)
{
    brim_executor_desc desc = brim_executor_desc_default();
    desc.kind = BRIM_EXECUTOR_REFERENCE;
    desc.seed = seed;
    brim_executor *x = NULL;
    assert_int_equal(brim_executor_create(&x, m->ctx, m->program, &desc), BRIM_OK);
    for (uint64_t e = 0; e < 2; e++) {
        uint32_t *step = brim_executor_buffer(x, 0, e);
        for (uint32_t i = 0; i < 16; i++)
            step[i] = i ? 100 + i : 2;
    }
    uint64_t hash = 0;
    if (brim_executor_run(x, 1) == BRIM_OK) {
        hash = 1;
        for (uint32_t b = 0; b < brim_program_buffer_count(m->program); b++) {
            const brim_buffer_desc *buffer = brim_program_buffer(m->program, b);
            if (buffer->role != BRIM_BUFFER_SCRATCH)
                hash = brim__hash64(brim_executor_buffer(x, b, 1), buffer->size, hash);
        }
    }
    brim_executor_destroy(x);
    return hash;
}

/* Recounts what a mutant signals: a file with the same change would be counted when it is read. */
static void recount(brim_program *p)
{
    for (size_t k = 0; k < p->counter_count; k++)
        p->counters[k].total = 0;
    for (size_t i = 0; i < p->instruction_count; i++)
        for (unsigned s = 0; s < p->instructions[i].signal_count; s++)
            p->counters[p->instructions[i].signals[s]].total++;
}

static void check_flags_mutants_or_their_orders_agree(void **state)
{
    uint32_t flagged = 0, harmless = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        draws d = {seed, 0};
        layered shape = {.lanes = 1 + draw(&d, 3),
                         .layers = 2 + draw(&d, 3),
                         .pieces = 2 + draw(&d, 3),
                         .rows = 1 + draw(&d, 3),
                         .queues = draw(&d, 2)};
        mix m = layered_build(&shape);
        mutate(m.program, &d);
        recount(m.program);
        if (mix_check(&m) != BRIM_OK) {
            flagged++;
        } else {
            harmless++;
            uint64_t first = run_hash(&m, 0);
            for (uint64_t order = 1; order < 40; order++) {
                uint64_t hash = run_hash(&m, order);
                if (hash != first || hash == 0)
                    print_error("seed %llu, order %llu: %s\n", (unsigned long long)seed,
                                (unsigned long long)order,
                                hash ? "another result" : brim_last_message());
                assert_true(hash == first && hash != 0);
            }
        }
        mix_end(&m);
    }
    print_message("%u mutants flagged, %u gave one result in 40 orders\n", flagged, harmless);
    assert_true(flagged > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_that_passes_means_fixed_orders_and_no_deadlock),
        cmocka_unit_test(check_order_is_sound_and_nearly_complete),
        cmocka_unit_test(check_flags_mutants_or_their_orders_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
