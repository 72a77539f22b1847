/* resident.h: what the host and the resident kernel (resident.cu) agree on: the encoded instruction,
 * the parameters of a launch, and the words in memory that both sides touch. Plain C for both.
 *
 * Addresses. Packets lie in an arena of 2 x replicas copies (parity first), each packet_stride bytes;
 * a packet's place is an offset in units of 16 bytes. Everything else is found from `base` by an
 * offset in units of 256 bytes. Memory of 2^40 bytes can be named that way. */
#ifndef BRIM_KERNELS_CUDA_RESIDENT_H
#define BRIM_KERNELS_CUDA_RESIDENT_H

#include <stdint.h>

enum {
    RES_CONSUMERS = 8, /* warps that multiply */
    RES_WARPS = 12,    /* and one that fetches, two that finish rows, one that talks to the host */
    RES_SLOT_BYTES = 16384,
    RES_SLOTS_MAX = 32,
    RES_GROUP_TILES = 4, /* tiles that a warp holds sums of at a time */
    RES_BLOCK_COLS = 2048,
    RES_SHARED_1 = 10240, /* of shared memory for barriers and sums: image of 1 row */
    RES_SHARED_8 = 26624,
    RES_X_BLOCK_1 = RES_CONSUMERS * 8 * 64, /* of input: 2,048 columns */
    RES_X_BLOCK_8 = RES_CONSUMERS * 8 * 576,
    RES_WORK_MIN = 12288,
    RES_REPLICAS_1 = 4, /* copies of a packet, so that its readers don't crowd: image of 1 row */
    RES_REPLICAS_8 = 2,
    RES_NONE = -1,
};

/* Kinds of encoded instructions: the ops of ops_resident.h, and the end of a lane's list. */
enum {
    RES_BEGIN,
    RES_QKV,
    RES_ATTN,
    RES_COMBINE,
    RES_OUT, /* r.out and r.down */
    RES_GATE_UP,
    RES_APPEND,
    RES_HEAD,
    RES_SAMPLE,
    RES_STEP_END,
    RES_LANE_DONE, /* all that the lane wrote in this step is released */
};

/* 32 words: a lane of a warp holds one each. */
enum {
    RI_KIND,
    RI_INDEX, /* of the program's instruction, or the number of instructions for RES_LANE_DONE */
    RI_FIRST,
    RI_STRIDE,
    RI_TILES, /* tiles (not units) */
    RI_GRANULES, /* columns / 32 */
    RI_FROM,
    RI_IN,      /* packets */
    RI_IN_SSQ,  /* packets or none */
    RI_NORM_IN, /* base */
    RI_OUT,     /* packets; logits: base */
    RI_OUT_SSQ,
    RI_NORM_OUT, /* base */
    RI_ADD,      /* base or none */
    RI_X,        /* base */
    RI_BIAS,     /* base or none */
    RI_TENSOR,   /* base */
    RI_EMBED,    /* base */
    RI_EPSILON,
    RI_WINDOW,
    RI_SPLITS_MAX,
    RI_KV,     /* base: of the layer, or of the (layer, head) for append */
    RI_Q_NORM, /* base or none */
    RI_K_NORM,
    RI_PIECE,
    RI_PIECES,
    RI_ROW,     /* sample */
    RI_HEAD,    /* append: the KV head */
    RI_DIRECT,  /* attention: parts go to all replicas */
    RI_PAIR,    /* tiles of a unit: tile i of the lane is (first + i / pair * stride) * pair + i % pair */
    RI_WORDS = 32,
};

/* Device memory that the lanes order themselves with, zeroed before a launch. */
typedef struct brim__res_control {
    uint64_t go;      /* low: epochs that may run, bit 31: stop; high: row 0's token */
    uint32_t pad0[30];
    uint32_t arrived; /* lanes that have released a step: lanes * steps */
    uint32_t pad1[31];
    uint32_t sampled; /* rows that have been sampled */
    uint32_t pad2[31];
    uint32_t abort; /* 1: a lane has given up */
    uint32_t pad3[31];
} brim__res_control;

/* Who waited, in a report of the watchdog. */
#define BRIM__RES_ROLE_LIST(X)                                                                     \
    X(PACKET, "a packet")                                                                          \
    X(RING, "weights in the ring")                                                                 \
    X(SLOT, "a free slot of the ring")                                                             \
    X(TILE, "sums of a tile")                                                                      \
    X(FINISH, "room for sums of a tile")                                                           \
    X(STEP, "the next step")                                                                       \
    X(LANES, "all lanes to end the step")                                                          \
    X(ROWS, "the sampled rows")                                                                    \
    X(WARPS, "the other warps of its lane")                                                        \
    X(PLANTED, "nothing: the hang was planted")
enum {
#define BRIM__RES_ROLE_ENUM(name, text) RES_WAIT_##name,
    BRIM__RES_ROLE_LIST(BRIM__RES_ROLE_ENUM)
#undef BRIM__RES_ROLE_ENUM
        RES_WAIT_COUNT
};

/* What a warp waited for when it gave up; (lane, warp) in device memory. */
typedef struct brim__res_wait {
    uint32_t role; /* 1 + RES_WAIT_..., 0: it did not wait */
    uint32_t instruction, epoch;
    uint32_t awaited, seen; /* a packet's offset in words, a counter's value... */
} brim__res_wait;

/* Mapped host memory. */
typedef struct brim__res_mail {
    volatile uint32_t done;   /* steps of this launch whose results are in the ring */
    volatile uint32_t cancel; /* the host: end after this step */
    volatile uint32_t hung;   /* 1 + the lane that gave up first */
    uint32_t pad[29];
} brim__res_mail;

/* One event of a lane; clocks of its multiprocessor. */
typedef struct brim__res_event {
    uint32_t instruction, epoch;
    uint64_t taken, started, ended;
} brim__res_event;
typedef struct brim__res_clock {
    uint64_t clock_begin, timer_begin, clock_end, timer_end;
} brim__res_clock;

typedef struct brim__res_params {
    const uint32_t *lists;       /* encoded instructions, lane by lane */
    const uint32_t *list_first;  /* (lanes + 1) */
    char *base;
    char *packets;
    uint64_t packet_stride;
    uint32_t *step[2]; /* by parity */
    const uint32_t *tables;
    const void *sample_params; /* brim__sample_params (slot) */
    uint32_t *history;
    const uint32_t *ends;
    const uint32_t *mail; /* mapped: (slot) */
    void *result;         /* mapped ring of brim__sampled */
    float *logits;
    const float *rope;
    uint32_t *sampled;    /* (row) tokens */
    float *tile_max;      /* (row, tile) */
    char *sample_scratch; /* (row) */
    uint64_t sample_scratch_bytes;
    brim__res_control *control;
    brim__res_mail *host;
    brim__res_wait *waits; /* (lane, warp) */
    brim__res_event *events; /* (lane, capacity), NULL: no trace */
    brim__res_clock *clocks; /* (lane) */
    uint32_t event_capacity;
    uint32_t lanes, rows;
    uint32_t epoch;       /* parity of the first step */
    uint32_t limit;       /* steps at most */
    uint32_t kv_heads, group, head_size;
    uint32_t slots, context, blocks_max, blocks;
    uint32_t vocab, head_tiles;
    uint32_t rope_halves;
    float scale;
    uint32_t ring_slots;
    uint32_t keep_blocks; /* of 2,048 columns of input that a warp keeps */
    uint32_t work_bytes;  /* of shared memory behind the ring */
    uint32_t flow_high, flow_mid, flow_low, flow_few, flow_some; /* bytes in flight by slots landed */
    uint32_t watchdog_units; /* of 1,024 ns */
    uint32_t planted_lane, planted_epoch; /* a hang for tests: lane + 1, or 0 */
    uint32_t delays; /* seed of random delays for tests, or 0 */
} brim__res_params;

#endif
