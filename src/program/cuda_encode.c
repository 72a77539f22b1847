/* cuda_encode.c: operands become words: buffers and tensors become places, and what the kernel would
 * have to look up in the program is looked up here. */
#include "program/cuda_encode.h"

#include <string.h>

static bool is_product(uint32_t op)
{
    return op == BRIM__OP_R_QKV || op == BRIM__OP_R_OUT || op == BRIM__OP_R_GATE_UP ||
           op == BRIM__OP_R_DOWN || op == BRIM__OP_R_HEAD;
}

static bool is_known(uint32_t op)
{
    return is_product(op) || op == BRIM__OP_R_BEGIN || op == BRIM__OP_R_ATTN ||
           op == BRIM__OP_R_COMBINE || op == BRIM__OP_R_APPEND || op == BRIM__OP_SAMPLE ||
           op == BRIM__OP_STEP_END;
}

static uint32_t tile_count(const brim_instruction *in)
{
    uint32_t units = (uint32_t)in->operands[RV_TILES];
    return in->op == BRIM__OP_R_GATE_UP ? 2 * units : units;
}

static brim_status note_product(brim__cuda_shape *s, const brim_program *p,
                                const brim_instruction *in)
{
    const int32_t *o = in->operands;
    const brim_tensor_desc *t = &p->tensors[o[RV_TENSOR]].desc;
    BRIM_FAIL_IF(t->layout != BRIM_LAYOUT_MMA8 ||
                     (t->type != BRIM_DTYPE_BF16 && t->type != BRIM_DTYPE_F16),
                 UNSUPPORTED, "cuda.shape",
                 "tensor '%s' is %s: the device multiplies BF16 and F16 tiles of 8 rows", t->name,
                 brim_dtype_name(t->type));
    BRIM_FAIL_IF(s->type != BRIM_DTYPE_F32 && s->type != t->type, UNSUPPORTED, "cuda.shape",
                 "tensor '%s' is %s, others are %s: a program has one type", t->name,
                 brim_dtype_name(t->type), brim_dtype_name(s->type));
    s->type = t->type;
    s->rows = (uint32_t)o[RV_ROWS];
    s->step = o[RV_STEP];
    uint32_t blocks = (t->cols + RES_BLOCK_COLS - 1) / RES_BLOCK_COLS;
    if (tile_count(in) > RES_GROUP_TILES && blocks > s->keep_blocks)
        s->keep_blocks = blocks;
    if (o[RV_FROM] != RV_FROM_Y && blocks > s->keep_least)
        s->keep_least = blocks;
    if (in->op == BRIM__OP_R_HEAD) {
        s->vocab = t->rows;
        s->logits = o[RV_OUT];
    }
    return BRIM_OK;
}

static void note_attention(brim__cuda_shape *s, const int32_t *o)
{
    s->head_size = (uint32_t)o[RA_HEAD_SIZE];
    s->kv_heads = (uint32_t)o[RA_KV_HEADS];
    s->group = (uint32_t)o[RA_GROUP];
    s->slots = (uint32_t)o[RA_SLOTS];
    s->blocks = (uint32_t)o[RA_BLOCKS];
    s->blocks_max = (uint32_t)o[RA_BLOCKS_MAX];
    s->scale = brim__float_of(o[RA_SCALE]);
    s->rope_halves = o[RA_ROPE_HALVES];
    s->tables = o[RA_TABLES];
    s->rope = o[RA_ROPE];
    s->kv = o[RA_KV];
}

brim_status brim__cuda_shape_of(brim__cuda_shape *out, const brim_program *p)
{
    *out = (brim__cuda_shape){.type = BRIM_DTYPE_F32, 
                              .keep_blocks = 1,
                              .keep_least = 1,
                              .direct = true};
    out->step = out->logits = out->kv = out->history = out->params = -1;
    bool ends = false, samples = false;
    for (size_t i = 0; i < p->instruction_count; i++) {
        const brim_instruction *in = &p->instructions[i];
        const int32_t *o = in->operands;
        BRIM_FAIL_IF(!is_known(in->op), UNSUPPORTED, "cuda.op",
                     "instruction %zu is '%s': a CUDA device runs the resident ops ('r.*', sample, "
                     "step.end); use the CPU executor",
                     i, brim_op_get(p->ops, in->op)->name);
        if (is_product(in->op))
            BRIM_TRY(note_product(out, p, in));
        else if (in->op == BRIM__OP_R_ATTN)
            note_attention(out, o);
        else if (in->op == BRIM__OP_R_COMBINE)
            out->direct = false;
        else if (in->op == BRIM__OP_SAMPLE) {
            samples = true;
            out->params = o[SAMPLE_PARAMS];
            out->history = o[SAMPLE_HISTORY];
            out->context = (uint32_t)o[SAMPLE_CONTEXT];
        } else if (in->op == BRIM__OP_STEP_END) {
            ends = true;
            out->ends = o[END_ENDS];
            out->mail = o[END_MAIL];
            out->result = o[END_RESULT];
        }
    }
    BRIM_FAIL_IF(out->logits < 0 || out->kv < 0 || !ends || !samples, UNSUPPORTED, "cuda.shape",
                 "a program for a CUDA device needs r.attn, r.head, sample and step.end");
    BRIM_FAIL_IF(out->rows != 1 && out->rows != BRIM__RES_ROWS_MAX, UNSUPPORTED, "cuda.shape",
                 "a program of %u rows: there are images for 1 and %d", out->rows,
                 BRIM__RES_ROWS_MAX);
    BRIM_FAIL_IF(p->queue_count > 0, UNSUPPORTED, "cuda.shape",
                 "the program has queues: on a CUDA device every lane has its own list");
    return BRIM_OK;
}

/* ---- encoding ---- */

typedef struct encoder {
    uint32_t *w;
    const brim_program *p;
    const brim__cuda_shape *shape;
    const brim__cuda_places *at;
} encoder;

static uint32_t packet_at(const encoder *e, int32_t buffer)
{
    return buffer < 0 ? (uint32_t)RES_NONE : (uint32_t)(e->at->buffer[buffer] / 16);
}
static uint32_t plain_at(const encoder *e, int32_t buffer)
{
    return buffer < 0 ? (uint32_t)RES_NONE
                      : (uint32_t)((e->at->buffer[buffer] - e->at->base) / 256);
}
static uint32_t tensor_at(const encoder *e, int32_t tensor)
{
    return tensor < 0 ? (uint32_t)RES_NONE
                      : (uint32_t)((e->at->tensor[tensor] - e->at->base) / 256);
}

static void encode_product(encoder *e, const brim_instruction *in)
{
    const int32_t *o = in->operands;
    uint32_t *w = e->w;
    w[RI_KIND] = in->op == BRIM__OP_R_QKV       ? RES_QKV
                 : in->op == BRIM__OP_R_GATE_UP ? RES_GATE_UP
                 : in->op == BRIM__OP_R_HEAD    ? RES_HEAD
                                                : RES_OUT;
    w[RI_FIRST] = (uint32_t)o[RV_FIRST];
    w[RI_STRIDE] = (uint32_t)o[RV_STRIDE];
    w[RI_TILES] = tile_count(in);
    w[RI_PAIR] = in->op == BRIM__OP_R_GATE_UP ? 2 : 1;
    w[RI_GRANULES] = e->p->tensors[o[RV_TENSOR]].desc.cols / 32;
    w[RI_FROM] = (uint32_t)o[RV_FROM];
    w[RI_IN] = packet_at(e, o[RV_IN]);
    w[RI_IN_SSQ] = packet_at(e, o[RV_IN_SSQ]);
    w[RI_NORM_IN] = plain_at(e, o[RV_NORM_IN]);
    w[RI_OUT] = in->op == BRIM__OP_R_HEAD ? plain_at(e, o[RV_OUT]) : packet_at(e, o[RV_OUT]);
    w[RI_OUT_SSQ] = packet_at(e, o[RV_OUT_SSQ]);
    w[RI_NORM_OUT] = plain_at(e, o[RV_NORM_OUT]);
    w[RI_ADD] = plain_at(e, o[RV_ADD]);
    w[RI_X] = plain_at(e, o[RV_X]);
    w[RI_BIAS] = plain_at(e, o[RV_BIAS]);
    w[RI_TENSOR] = tensor_at(e, o[RV_TENSOR]);
    w[RI_EMBED] = tensor_at(e, o[RV_EMBED]);
    w[RI_HEAD] = o[RV_EMBED] < 0 ? 0 : e->p->tensors[o[RV_EMBED]].desc.cols / 32;
    w[RI_EPSILON] = (uint32_t)o[RV_EPSILON];
    w[RI_WINDOW] = (uint32_t)o[RV_WINDOW];
}

static uint64_t layer_bytes(const encoder *e)
{
    return (uint64_t)e->shape->blocks * e->shape->kv_heads * 4 * BRIM__KV_BLOCK *
           e->shape->head_size;
}

static void encode_attention(encoder *e, const brim_instruction *in)
{
    const int32_t *o = in->operands;
    uint32_t *w = e->w;
    w[RI_KIND] = RES_ATTN;
    w[RI_IN] = packet_at(e, o[RA_QKV]);
    w[RI_OUT] = packet_at(e, o[RA_PARTS]);
    w[RI_KV] = plain_at(e, o[RA_KV]) + (uint32_t)((uint32_t)o[RA_LAYER] * layer_bytes(e) / 256);
    w[RI_Q_NORM] = plain_at(e, o[RA_Q_NORM]);
    w[RI_K_NORM] = plain_at(e, o[RA_K_NORM]);
    w[RI_EPSILON] = (uint32_t)o[RA_EPSILON];
    w[RI_WINDOW] = (uint32_t)o[RA_WINDOW];
    w[RI_PIECE] = (uint32_t)o[RA_FIRST];
    w[RI_PIECES] = (uint32_t)o[RA_BY];
    w[RI_DIRECT] = e->shape->direct;
}

static void encode_append(encoder *e, const brim_instruction *in, bool first)
{
    const int32_t *o = in->operands;
    uint32_t *w = e->w;
    uint64_t head = layer_bytes(e) / e->shape->kv_heads;
    w[RI_KIND] = RES_APPEND;
    w[RI_FIRST] = first;
    w[RI_IN] = packet_at(e, o[RP_QKV]);
    w[RI_OUT] = packet_at(e, o[RP_AFTER]);
    w[RI_GRANULES] = (uint32_t)o[RP_AFTER_COLS] / 32;
    w[RI_KV] = plain_at(e, o[RP_KV]) + (uint32_t)((uint32_t)o[RP_LAYER] * layer_bytes(e) / 256 +
                                                  (uint32_t)o[RP_HEAD] * head / 256);
    w[RI_K_NORM] = plain_at(e, o[RP_K_NORM]);
    w[RI_EPSILON] = (uint32_t)o[RP_EPSILON];
    w[RI_HEAD] = (uint32_t)o[RP_HEAD];
}

static void encode_combine(encoder *e, const brim_instruction *in)
{
    const int32_t *o = in->operands;
    uint32_t *w = e->w;
    w[RI_KIND] = RES_COMBINE;
    w[RI_IN] = packet_at(e, o[RC_PARTS]);
    w[RI_OUT] = packet_at(e, o[RC_OUT]);
    w[RI_GRANULES] = (uint32_t)(o[RC_KV_HEADS] * o[RC_GROUP] * o[RC_HEAD_SIZE]) / 32;
    w[RI_WINDOW] = (uint32_t)o[RC_WINDOW];
    w[RI_PIECE] = (uint32_t)o[RC_FIRST];
    w[RI_PIECES] = (uint32_t)o[RC_BY];
}

static void encode_instruction(encoder *e, uint32_t i, bool first_append)
{
    const brim_instruction *in = &e->p->instructions[i];
    memset(e->w, 0, 4 * RI_WORDS);
    e->w[RI_INDEX] = i;
    switch (in->op) {
    case BRIM__OP_R_BEGIN:
        e->w[RI_KIND] = RES_BEGIN;
        break;
    case BRIM__OP_R_ATTN:
        encode_attention(e, in);
        break;
    case BRIM__OP_R_COMBINE:
        encode_combine(e, in);
        break;
    case BRIM__OP_R_APPEND:
        encode_append(e, in, first_append);
        break;
    case BRIM__OP_SAMPLE:
        e->w[RI_KIND] = RES_SAMPLE;
        e->w[RI_ROW] = (uint32_t)in->operands[SAMPLE_FIRST];
        break;
    case BRIM__OP_STEP_END:
        e->w[RI_KIND] = RES_STEP_END;
        break;
    default:
        encode_product(e, in);
    }
}

uint32_t brim__cuda_list_count(const brim_program *p, uint32_t lane)
{
    return (uint32_t)p->lanes[lane].count + 1;
}

static bool after_the_lane(const brim_program *p, uint32_t instruction)
{
    uint32_t op = p->instructions[instruction].op;
    return op == BRIM__OP_SAMPLE || op == BRIM__OP_STEP_END;
}

void brim__cuda_encode_lane(uint32_t *out, const brim_program *p, const brim__cuda_shape *shape,
                            const brim__cuda_places *places, uint32_t lane)
{
    const brim__lane_list *list = &p->lanes[lane];
    bool appended = false, done = false;
    for (size_t n = 0; n <= list->count; n++) {
        bool end = n == list->count;
        if (!done && (end || after_the_lane(p, list->items[n].instruction))) {
            memset(out, 0, 4 * RI_WORDS);
            out[RI_KIND] = RES_LANE_DONE;
            out[RI_INDEX] = (uint32_t)p->instruction_count;
            out += RI_WORDS;
            done = true;
        }
        if (end)
            break;
        encoder e = {out, p, shape, places};
        encode_instruction(&e, list->items[n].instruction, !appended);
        appended |= p->instructions[list->items[n].instruction].op == BRIM__OP_R_APPEND;
        out += RI_WORDS;
    }
}
