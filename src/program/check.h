/* check.h: what the parts of the check share.
 *
 * The parts run in this order, each standing on what the ones before have shown:
 *   check.c         every index, region, tile run and role is in bounds; declared accesses are
 *                   those of the op
 *   check_access.c  collects the uses of every buffer: accesses, and the count words and tables
 *                   that accesses read; finds which packet is read by whom
 *   check_order.c   runs the program in the most restrictive order (or names a cycle), then
 *                   computes what is ordered before what
 *   check_access.c  every two conflicting uses are ordered, and what is read has been written
 */
#ifndef BRIM_PROGRAM_CHECK_H
#define BRIM_PROGRAM_CHECK_H

#include "program/program.h"
#include "program/region.h"

typedef enum brim__use_what {
    BRIM__USE_ACCESS, /* the region of an access */
    BRIM__USE_COUNT,  /* its count word, read */
    BRIM__USE_TABLE,  /* its table, read */
} brim__use_what;

/* One instruction's use of bytes of a buffer. */
typedef struct brim__use {
    brim__region region; /* at most these bytes */
    uint32_t instruction;
    uint8_t access; /* index in the instruction */
    uint8_t what;   /* brim__use_what */
    bool writes;    /* WRITE or APPEND */
    bool packet, next;
} brim__use;

/* `after` starts after `before` has published its packets. `whole`: it has published everything
 * then, so that the two are ordered; else only what precedes `before` is. `certain`: whatever the
 * count words say. */
typedef struct brim__packet_edge {
    uint32_t before, after;
    bool whole, certain;
} brim__packet_edge;

/* What is ordered before what. Instructions are numbered by their place in one legal order, so
 * that row p needs p bits only. */
typedef struct brim__order {
    uint32_t *sequence; /* place -> instruction */
    uint32_t *place;    /* instruction -> place */
    uint64_t *bits;
    size_t *row; /* by place: index of the row's first word in bits */
} brim__order;

typedef struct brim__check {
    const brim_program *program;
    brim_context *ctx;
    uint32_t limit, found;
    void (*report)(const brim_finding *finding, void *user);
    void *user;
    brim_finding first;

    bool *unsound; /* by instruction: its regions are out of bounds and are not looked at further */
    brim__use *uses;
    size_t *use_start; /* by buffer; one more entry than buffers */
    bool *unstable;    /* by buffer: its count words and tables may change within an epoch */
    brim__packet_edge *packets;
    size_t packet_count, packet_capacity;
    uint32_t
        *list_before; /* by instruction: the one before it in its lane's own list, or BRIM_NONE */
    brim__order order;
} brim__check;

/* Records a finding; the text says both instructions where two are concerned. */
void brim__check_report(brim__check *c, const char *id, uint32_t instruction, uint32_t other,
                        const char *fmt, ...) __attribute__((format(printf, 5, 6)));
static inline bool brim__check_full(const brim__check *c)
{
    return c->found >= c->limit;
}

/* An instruction's name for a message. */
typedef struct brim__where {
    char text[96];
} brim__where;
brim__where brim__check_where(const brim__check *c, uint32_t instruction);

brim_status brim__check_collect(brim__check *c); /* check_access.c */
brim_status brim__check_packets(brim__check *c);
brim_status brim__check_races(brim__check *c);
brim_status brim__check_reads(brim__check *c);

/* False in *out_ran: it cannot run to its end (reported). check_order.c */
brim_status brim__check_run(bool *out_ran, brim__check *c);
brim_status brim__check_order(brim__check *c);

/* Whether `a` is done, its effects visible, before `b` starts in every execution. */
static inline bool brim__check_before(const brim__check *c, uint32_t a, uint32_t b)
{
    uint32_t p = c->order.place[a], q = c->order.place[b];
    return p < q && (c->order.bits[c->order.row[q] + p / 64] >> (p % 64) & 1);
}

/* Fills c->packets of a program whose bounds are known to be right: for predict. */
brim_status brim__packet_edges(brim__packet_edge **out, size_t *out_count,
                               const brim_program *program, brim_context *ctx);

#endif
