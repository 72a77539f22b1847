/* program_dump.c: a program as text ("brim-program", docs/program.md), one instruction a line.
 * program_parse.c reads it; what it reads and dumps again is the same text, byte by byte, so the
 * order of keys and the fields that are left out are part of the format. */
#include "program/program.h"

#include <inttypes.h>

#include "base/text.h"
#include "program/name_map.h"

static const char *const role_names[] = {
#define ROLE_NAME(name, text) text,
    BRIM_BUFFER_ROLE_LIST(ROLE_NAME)
#undef ROLE_NAME
};

static const char *const layout_names[] = {
#define LAYOUT_NAME(name, text) text,
    BRIM_LAYOUT_LIST(LAYOUT_NAME)
#undef LAYOUT_NAME
};

static const char *const kind_names[] = {"read", "write", "append"};

typedef struct dump {
    const brim_program *p;
    brim__string s;
} dump;

#define PUT(...) BRIM_TRY(brim__string_format(&d->s, __VA_ARGS__))

/* A JSON string. Names are UTF-8 (checked before). */
static brim_status put_text(dump *d, const char *text)
{
    BRIM_TRY(brim__string_text(&d->s, "\""));
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            PUT("\\%c", c);
        else if (c < 0x20)
            PUT("\\u%04x", c);
        else
            BRIM_TRY(brim__string_append(&d->s, text, 1));
    }
    return brim__string_text(&d->s, "\"");
}

/* `"key": "text"` with what stands before it. */
static brim_status put_named(dump *d, const char *before, const char *key, const char *text)
{
    PUT("%s\"%s\": ", before, key);
    return put_text(d, text);
}

static brim_status put_flags(dump *d, uint32_t flags)
{
    static const struct {
        uint32_t flag;
        const char *name;
    } known[] = {{BRIM_ACCESS_NEXT, "next"},
                 {BRIM_ACCESS_PACKET, "packet"},
                 {BRIM_ACCESS_INJECTIVE, "injective"}};
    if (flags == 0)
        return BRIM_OK;
    const char *before = ", \"flags\": [";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (flags & known[i].flag) {
            PUT("%s\"%s\"", before, known[i].name);
            before = ", ";
        }
    return brim__string_text(&d->s, "]");
}

static brim_status put_access(dump *d, const brim_access *a)
{
    const brim_program *p = d->p;
    PUT("{\"kind\": \"%s\"", kind_names[a->kind]);
    BRIM_TRY(put_named(d, ", ", "buffer", p->buffers[a->buffer].name));
    PUT(", \"offset\": %" PRIu64 ", \"size\": %" PRIu64, a->offset, a->size);
    if (a->count != 1 || a->stride != a->size)
        PUT(", \"stride\": %" PRIu64 ", \"count\": %" PRIu32, a->stride, a->count);
    BRIM_TRY(put_flags(d, a->flags));
    if (a->count_buffer != BRIM_NONE) {
        BRIM_TRY(put_named(d, ", \"count_from\": {", "buffer", p->buffers[a->count_buffer].name));
        PUT(", \"offset\": %" PRIu32 ", \"first\": %" PRIu32 ", \"step\": %" PRIu32 "}",
            a->count_offset, a->count_first, a->count_step);
    }
    if (a->table_buffer != BRIM_NONE) {
        BRIM_TRY(put_named(d, ", \"table\": {", "buffer", p->buffers[a->table_buffer].name));
        PUT(", \"offset\": %" PRIu32 ", \"limit\": %" PRIu32 "}", a->table_offset, a->table_limit);
    }
    return brim__string_text(&d->s, "}");
}

static brim_status put_accesses(dump *d, const brim_instruction *in)
{
    for (unsigned n = 0; n < in->access_count; n++) {
        PUT("%s", n ? ", " : ", \"accesses\": [");
        BRIM_TRY(put_access(d, &in->accesses[n]));
    }
    return in->access_count ? brim__string_text(&d->s, "]") : BRIM_OK;
}

static brim_status put_waits_and_signals(dump *d, const brim_instruction *in)
{
    for (unsigned w = 0; w < in->wait_count; w++) {
        BRIM_TRY(put_named(d, w ? ", {" : ", \"waits\": [{", "counter",
                           d->p->counters[in->waits[w].counter].name));
        PUT(", \"value\": %" PRIu32 "}", in->waits[w].value);
    }
    PUT("%s", in->wait_count ? "]" : "");
    for (unsigned s = 0; s < in->signal_count; s++) {
        PUT("%s", s ? ", " : ", \"signals\": [");
        BRIM_TRY(put_text(d, d->p->counters[in->signals[s]].name));
    }
    PUT("%s", in->signal_count ? "]" : "");
    return BRIM_OK;
}

/* Two runs at most; a first one that is not used is null. */
static brim_status put_tiles(dump *d, const brim_instruction *in)
{
    unsigned count = in->runs[1].tensor != BRIM_NONE ? 2 : in->runs[0].tensor != BRIM_NONE;
    for (unsigned r = 0; r < count; r++) {
        const brim_tile_run *run = &in->runs[r];
        PUT("%s", r ? ", " : ", \"tiles\": [");
        if (run->tensor == BRIM_NONE) {
            PUT("null");
            continue;
        }
        BRIM_TRY(put_named(d, "{", "tensor", d->p->tensors[run->tensor].desc.name));
        PUT(", \"first\": %" PRIu32 ", \"count\": %" PRIu32 "}", run->first, run->count);
    }
    PUT("%s", count ? "]" : "");
    return BRIM_OK;
}

static brim_status put_instruction(dump *d, uint32_t index)
{
    const brim_instruction *in = &d->p->instructions[index];
    BRIM_TRY(put_named(d, "{", "op", brim_op_get(d->p->ops, in->op)->name));
    for (unsigned n = 0; n < in->operand_count; n++)
        PUT("%s%" PRId32, n ? ", " : ", \"operands\": [", in->operands[n]);
    PUT("%s", in->operand_count ? "]" : "");
    BRIM_TRY(put_waits_and_signals(d, in));
    BRIM_TRY(put_accesses(d, in));
    BRIM_TRY(put_tiles(d, in));
    return brim__string_text(&d->s, "}");
}

static brim_status put_buffers(dump *d)
{
    const brim_program *p = d->p;
    PUT("\"buffers\": [");
    for (size_t i = 0; i < p->buffer_count; i++) {
        const brim_buffer_desc *b = &p->buffers[i];
        BRIM_TRY(put_named(d, i ? ",\n  {" : "\n  {", "name", b->name));
        PUT(", \"size\": %" PRIu64 ", \"role\": \"%s\"%s%s}", b->size, role_names[b->role],
            b->parity ? ", \"parity\": true" : "", b->mapped ? ", \"mapped\": true" : "");
    }
    PUT("%s],\n", p->buffer_count ? "\n" : "");
    return BRIM_OK;
}

static brim_status put_tensors_and_counters(dump *d)
{
    const brim_program *p = d->p;
    PUT("\"tensors\": [");
    for (size_t i = 0; i < p->tensor_count; i++) {
        const brim_tensor_desc *t = &p->tensors[i].desc;
        BRIM_TRY(put_named(d, i ? ",\n  {" : "\n  {", "name", t->name));
        PUT(", \"type\": \"%s\", \"rows\": %" PRIu32 ", \"cols\": %" PRIu32,
            brim_dtype_name(t->type), t->rows, t->cols);
        if (t->layout != BRIM_LAYOUT_ROWS16)
            PUT(", \"layout\": \"%s\"", layout_names[t->layout]);
        PUT("}");
    }
    PUT("%s],\n\"counters\": [", p->tensor_count ? "\n" : "");
    for (size_t i = 0; i < p->counter_count; i++) {
        PUT("%s", i ? ",\n  " : "\n  ");
        BRIM_TRY(put_text(d, p->counters[i].name));
    }
    PUT("%s],\n", p->counter_count ? "\n" : "");
    return BRIM_OK;
}

static brim_status put_lists(dump *d)
{
    const brim_program *p = d->p;
    PUT("\"queues\": [");
    for (size_t q = 0; q < p->queue_count; q++) {
        BRIM_TRY(put_named(d, q ? ",\n  {" : "\n  {", "name", p->queues[q].name));
        PUT(", \"instructions\": [");
        for (size_t i = 0; i < p->queues[q].count; i++) {
            PUT("%s", i ? ",\n    " : "\n    ");
            BRIM_TRY(put_instruction(d, p->queues[q].items[i]));
        }
        PUT("]}");
    }
    PUT("%s],\n\"lane_lists\": [", p->queue_count ? "\n" : "");
    for (uint32_t l = 0; l < p->lane_count; l++) {
        PUT("%s", l ? ",\n  [" : "\n  [");
        for (size_t i = 0; i < p->lanes[l].count; i++) {
            const brim__item *item = &p->lanes[l].items[i];
            PUT("%s", i ? ",\n    " : "\n    ");
            if (item->queue == BRIM_NONE) {
                BRIM_TRY(put_instruction(d, item->instruction));
            } else {
                BRIM_TRY(put_named(d, "{", "queue", p->queues[item->queue].name));
                PUT("}");
            }
        }
        PUT("]");
    }
    PUT("\n]\n}\n");
    return BRIM_OK;
}

/* In the file, things are known by their names. */
static brim_status check_name(brim__name_map *map, const char *what, const char *name, size_t index)
{
    size_t size = strlen(name);
    BRIM_FAIL_IF(brim__utf8_check(name, size) != size, USAGE, "program.name",
                 "the name of %s %zu is not UTF-8: a program file cannot hold it", what, index);
    BRIM_FAIL_IF(map && !brim__name_map_add(map, name, (uint32_t)index), USAGE, "program.name",
                 "two %ss are named '%s': a program file knows them by name", what, name);
    return BRIM_OK;
}

static brim_status check_names(const brim_program *p, brim__name_map *counters,
                               brim__name_map *queues)
{
    BRIM_TRY(check_name(NULL, "program", p->name, 0));
    for (size_t i = 0; i < p->buffer_count; i++)
        BRIM_TRY(check_name(NULL, "buffer", p->buffers[i].name, i));
    for (size_t i = 0; i < p->tensor_count; i++)
        BRIM_TRY(check_name(NULL, "tensor", p->tensors[i].desc.name, i));
    for (size_t i = 0; i < p->counter_count; i++)
        BRIM_TRY(check_name(counters, "counter", p->counters[i].name, i));
    for (size_t i = 0; i < p->queue_count; i++)
        BRIM_TRY(check_name(queues, "queue", p->queues[i].name, i));
    return BRIM_OK;
}

static brim_status put_program(dump *d)
{
    PUT("{\n\"format\": \"brim-program\",\n\"version\": 1,\n");
    BRIM_TRY(put_named(d, "", "name", d->p->name));
    PUT(",\n\"lanes\": %" PRIu32 ",\n", d->p->lane_count);
    BRIM_TRY(put_buffers(d));
    BRIM_TRY(put_tensors_and_counters(d));
    return put_lists(d);
}

brim_status brim_program_dump(char **out, size_t *out_size, const brim_program *program,
                              brim_context *ctx)
{
    *out = NULL;
    *out_size = 0;
    brim__name_map counters = {0}, queues = {0};
    brim_status status = brim__name_map_init(&counters, ctx, program->counter_count);
    if (status == BRIM_OK)
        status = brim__name_map_init(&queues, ctx, program->queue_count);
    if (status == BRIM_OK)
        status = check_names(program, &counters, &queues);
    brim__name_map_done(&counters, ctx);
    brim__name_map_done(&queues, ctx);
    if (status != BRIM_OK)
        return status;
    dump d = {.p = program, .s = {.ctx = ctx}};
    status = put_program(&d);
    if (status != BRIM_OK) {
        brim__string_done(&d.s);
        return status;
    }
    *out = d.s.data;
    *out_size = d.s.size;
    return BRIM_OK;
}
