/* program_parse.c: reads a program file ("brim-program", docs/program.md). The text is not
 * trusted: its size and number of values are bounded before anything is built from it, keys are
 * known or refused, every number is in its range, and each error names the value by its path.
 * The builder makes the program; whether it is right is the check's business. */
#include "program/program.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"
#include "program/name_map.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)
/* Values cost the JSON reader some 40 bytes each: this bounds it at about 1 GiB. */
#define VALUES_MAX ((size_t)24 << 20)

/* ---- where an error is ---- */

typedef struct path {
    const struct path *up;
    const char *key; /* NULL: an element of a list */
    size_t index;
} path;

#define KEY(parent, name) (&(path){(parent), (name), 0})
#define ELEMENT(parent, i) (&(path){(parent), NULL, (i)})

static size_t path_text(char *out, size_t size, const path *at)
{
    size_t used = at->up ? path_text(out, size, at->up) : 0;
    if (used >= size)
        return used;
    int n = at->key ? snprintf(out + used, size - used, "%s%s", used ? "." : "", at->key)
                    : snprintf(out + used, size - used, "[%zu]", at->index);
    return used + (size_t)(n > 0 ? n : 0);
}

static brim_status fail(const path *at, const char *id, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static brim_status fail(const path *at, const char *id, const char *fmt, ...)
{
    char where[160] = "the program", what[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (at)
        path_text(where, sizeof where, at);
    return brim__fail(BRIM_FORMAT, id, "%s: %s", where, what);
}

/* What the builder refused, at its place in the file. */
static brim_status placed(const path *at, brim_status status)
{
    if (status == BRIM_OK || status == BRIM_NO_MEMORY)
        return status;
    char id[64], what[512], where[160];
    snprintf(id, sizeof id, "%s", brim_last_id());
    snprintf(what, sizeof what, "%s", brim_last_message());
    path_text(where, sizeof where, at);
    return brim__fail(status == BRIM_LIMIT ? BRIM_LIMIT : BRIM_FORMAT, id, "%s: %s", where, what);
}

/* ---- values ---- */

static brim_status want_object(const json_t *value, const path *at, const char *const *keys)
{
    if (!json_is_object(value))
        return fail(at, "program.type", "an object is wanted here");
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)value, key, item)
    {
        size_t i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        if (!keys[i])
            return fail(KEY(at, key), "program.key", "no such key is known");
    }
    return BRIM_OK;
}

/* A list of at most `most` values; absent counts as empty unless `required`. */
static brim_status want_list(json_t **out, const json_t *object, const char *key, const path *at,
                             size_t most, bool required)
{
    *out = json_object_get(object, key);
    if (!*out && !required)
        return BRIM_OK;
    if (!*out)
        return fail(at, "program.key", "\"%s\" is missing", key);
    if (!json_is_array(*out))
        return fail(KEY(at, key), "program.type", "a list is wanted here");
    if (json_array_size(*out) > most)
        return fail(KEY(at, key), "program.limit", "%zu values; at most %zu are possible",
                    json_array_size(*out), most);
    return BRIM_OK;
}

static brim_status to_integer(int64_t *out, const json_t *value, const path *at, int64_t min,
                              int64_t max)
{
    if (!json_is_integer(value))
        return fail(at, "program.type", "a whole number is wanted here");
    *out = json_integer_value(value);
    if (*out < min || *out > max)
        return fail(at, "program.value", "%lld is out of range: %lld to %lld", (long long)*out,
                    (long long)min, (long long)max);
    return BRIM_OK;
}

static brim_status want_integer(int64_t *out, const json_t *object, const char *key, const path *at,
                                int64_t min, int64_t max)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return fail(at, "program.key", "\"%s\" is missing", key);
    return to_integer(out, value, KEY(at, key), min, max);
}

static brim_status want_u32(uint32_t *out, const json_t *object, const char *key, const path *at)
{
    int64_t value = 0;
    BRIM_TRY(want_integer(&value, object, key, at, 0, UINT32_MAX));
    *out = (uint32_t)value;
    return BRIM_OK;
}

static brim_status want_u64(uint64_t *out, const json_t *object, const char *key, const path *at)
{
    int64_t value = 0;
    BRIM_TRY(want_integer(&value, object, key, at, 0, INT64_MAX));
    *out = (uint64_t)value;
    return BRIM_OK;
}

static brim_status want_text(const char **out, const json_t *object, const char *key,
                             const path *at)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return fail(at, "program.key", "\"%s\" is missing", key);
    if (!json_is_string(value))
        return fail(KEY(at, key), "program.type", "a text is wanted here");
    *out = json_string_value(value);
    return BRIM_OK;
}

/* True or false; absent means false. */
static brim_status want_flag(bool *out, const json_t *object, const char *key, const path *at)
{
    const json_t *value = json_object_get(object, key);
    if (value && !json_is_boolean(value))
        return fail(KEY(at, key), "program.type", "true or false is wanted here");
    *out = json_is_true(value);
    return BRIM_OK;
}

/* ---- the parser ---- */

typedef struct parser {
    brim_context *ctx;
    const brim_op_table *ops;
    const json_t *root;
    brim_builder *builder;
    brim__name_map buffers, tensors, counters, queues;
} parser;

static brim_status look_up(uint32_t *out, const brim__name_map *map, const char *what,
                           const char *name, const path *at)
{
    *out = brim__name_map_find(map, name);
    if (*out == BRIM_NONE)
        return fail(at, "program.name", "no %s is named '%.64s'", what, name);
    return BRIM_OK;
}

static brim_status want_name(uint32_t *out, const json_t *object, const char *key, const path *at,
                             const brim__name_map *map, const char *what)
{
    const char *name = NULL;
    BRIM_TRY(want_text(&name, object, key, at));
    return look_up(out, map, what, name, KEY(at, key));
}

static brim_status add_name(brim__name_map *map, const char *what, const char *name, uint32_t index,
                            const path *at)
{
    if (!brim__name_map_add(map, name, index))
        return fail(at, "program.name", "two %ss are named '%.64s'", what, name);
    return BRIM_OK;
}

/* The index of `text` in a list of words. */
static brim_status word_index(uint32_t *out, const char *text, const char *const *words,
                              uint32_t count, const path *at)
{
    char all[128] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(words[i], text) == 0) {
            *out = i;
            return BRIM_OK;
        }
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", words[i]);
    }
    return fail(at, "program.value", "'%.32s' is none of: %s", text, all);
}

static brim_status want_word(uint32_t *out, const json_t *object, const char *key, const path *at,
                             const char *const *words, uint32_t count)
{
    const char *text = NULL;
    BRIM_TRY(want_text(&text, object, key, at));
    return word_index(out, text, words, count, KEY(at, key));
}

/* ---- an instruction ---- */

static brim_status parse_flags(brim_access *a, const json_t *value, const path *at)
{
    static const char *const names[] = {"next", "packet", "injective"};
    static const uint32_t bits[] = {BRIM_ACCESS_NEXT, BRIM_ACCESS_PACKET, BRIM_ACCESS_INJECTIVE};
    json_t *list;
    BRIM_TRY(want_list(&list, value, "flags", at, 3, false));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const path *here = ELEMENT(KEY(at, "flags"), i);
        const char *text = json_string_value(json_array_get(list, i));
        uint32_t index = 0;
        if (!text)
            return fail(here, "program.type", "a text is wanted here");
        BRIM_TRY(word_index(&index, text, names, 3, here));
        if (a->flags & bits[index])
            return fail(here, "program.value", "'%s' stands here twice", text);
        a->flags |= bits[index];
    }
    return BRIM_OK;
}

static brim_status parse_count_from(const parser *s, brim_access *a, const json_t *value,
                                    const path *at)
{
    static const char *const keys[] = {"buffer", "offset", "first", "step", NULL};
    BRIM_TRY(want_object(value, at, keys));
    BRIM_TRY(want_name(&a->count_buffer, value, "buffer", at, &s->buffers, "buffer"));
    BRIM_TRY(want_u32(&a->count_offset, value, "offset", at));
    BRIM_TRY(want_u32(&a->count_first, value, "first", at));
    return want_u32(&a->count_step, value, "step", at);
}

static brim_status parse_table(const parser *s, brim_access *a, const json_t *value, const path *at)
{
    static const char *const keys[] = {"buffer", "offset", "limit", NULL};
    BRIM_TRY(want_object(value, at, keys));
    BRIM_TRY(want_name(&a->table_buffer, value, "buffer", at, &s->buffers, "buffer"));
    BRIM_TRY(want_u32(&a->table_offset, value, "offset", at));
    return want_u32(&a->table_limit, value, "limit", at);
}

static brim_status parse_access(const parser *s, brim_access *out, const json_t *value,
                                const path *at)
{
    static const char *const keys[] = {"kind",  "buffer", "offset",     "size",  "stride",
                                       "count", "flags",  "count_from", "table", NULL};
    static const char *const kinds[] = {"read", "write", "append"};
    uint32_t kind = 0, buffer = 0;
    uint64_t offset = 0, size = 0;
    BRIM_TRY(want_object(value, at, keys));
    BRIM_TRY(want_word(&kind, value, "kind", at, kinds, 3));
    BRIM_TRY(want_name(&buffer, value, "buffer", at, &s->buffers, "buffer"));
    BRIM_TRY(want_u64(&offset, value, "offset", at));
    BRIM_TRY(want_u64(&size, value, "size", at));
    *out = brim_access_make((brim_access_kind)kind, buffer, offset, size);
    if (json_object_get(value, "stride"))
        BRIM_TRY(want_u64(&out->stride, value, "stride", at));
    if (json_object_get(value, "count"))
        BRIM_TRY(want_u32(&out->count, value, "count", at));
    BRIM_TRY(parse_flags(out, value, at));
    const json_t *from = json_object_get(value, "count_from"),
                 *table = json_object_get(value, "table");
    if (from)
        BRIM_TRY(parse_count_from(s, out, from, KEY(at, "count_from")));
    return table ? parse_table(s, out, table, KEY(at, "table")) : BRIM_OK;
}

static brim_status parse_waits(const parser *s, brim_instruction *in, const json_t *value,
                               const path *at)
{
    static const char *const keys[] = {"counter", "value", NULL};
    json_t *list;
    BRIM_TRY(want_list(&list, value, "waits", at, BRIM_WAITS_MAX, false));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const path *here = ELEMENT(KEY(at, "waits"), i);
        const json_t *wait = json_array_get(list, i);
        BRIM_TRY(want_object(wait, here, keys));
        BRIM_TRY(want_name(&in->waits[i].counter, wait, "counter", here, &s->counters, "counter"));
        BRIM_TRY(want_u32(&in->waits[i].value, wait, "value", here));
    }
    in->wait_count = (uint16_t)json_array_size(list);
    return BRIM_OK;
}

static brim_status parse_signals(const parser *s, brim_instruction *in, const json_t *value,
                                 const path *at)
{
    json_t *list;
    BRIM_TRY(want_list(&list, value, "signals", at, BRIM_SIGNALS_MAX, false));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const path *here = ELEMENT(KEY(at, "signals"), i);
        const char *name = json_string_value(json_array_get(list, i));
        if (!name)
            return fail(here, "program.type", "a counter's name is wanted here");
        BRIM_TRY(look_up(&in->signals[i], &s->counters, "counter", name, here));
    }
    in->signal_count = (uint16_t)json_array_size(list);
    return BRIM_OK;
}

static brim_status parse_operands(brim_instruction *in, const json_t *value, const path *at)
{
    json_t *list;
    BRIM_TRY(want_list(&list, value, "operands", at, BRIM_OPERANDS_MAX, false));
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t operand = 0;
        BRIM_TRY(to_integer(&operand, json_array_get(list, i), ELEMENT(KEY(at, "operands"), i),
                            INT32_MIN, INT32_MAX));
        in->operands[i] = (int32_t)operand;
    }
    in->operand_count = (uint16_t)json_array_size(list);
    return BRIM_OK;
}

static brim_status parse_tiles(const parser *s, brim_instruction *in, const json_t *value,
                               const path *at)
{
    static const char *const keys[] = {"tensor", "first", "count", NULL};
    json_t *list;
    BRIM_TRY(want_list(&list, value, "tiles", at, 2, false));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const path *here = ELEMENT(KEY(at, "tiles"), i);
        const json_t *run = json_array_get(list, i);
        if (json_is_null(run))
            continue;
        BRIM_TRY(want_object(run, here, keys));
        BRIM_TRY(want_name(&in->runs[i].tensor, run, "tensor", here, &s->tensors, "tensor"));
        BRIM_TRY(want_u32(&in->runs[i].first, run, "first", here));
        BRIM_TRY(want_u32(&in->runs[i].count, run, "count", here));
    }
    return BRIM_OK;
}

static brim_status parse_instruction(const parser *s, brim_instruction *out, const json_t *value,
                                     const path *at)
{
    static const char *const keys[] = {"op",       "operands", "waits", "signals",
                                       "accesses", "tiles",    NULL};
    const char *name = NULL;
    BRIM_TRY(want_object(value, at, keys));
    BRIM_TRY(want_text(&name, value, "op", at));
    uint32_t op = brim_op_find(s->ops, name);
    if (op == BRIM_NONE)
        return fail(KEY(at, "op"), "program.op", "no op is named '%.64s'", name);
    *out = brim_instruction_make(op);
    BRIM_TRY(parse_operands(out, value, at));
    BRIM_TRY(parse_waits(s, out, value, at));
    BRIM_TRY(parse_signals(s, out, value, at));
    json_t *list;
    BRIM_TRY(want_list(&list, value, "accesses", at, BRIM_ACCESSES_MAX, false));
    for (size_t i = 0; i < json_array_size(list); i++)
        BRIM_TRY(parse_access(s, &out->accesses[i], json_array_get(list, i),
                              ELEMENT(KEY(at, "accesses"), i)));
    out->access_count = (uint16_t)json_array_size(list);
    return parse_tiles(s, out, value, at);
}

/* ---- declarations ---- */

static brim_status parse_buffers(parser *s)
{
    static const char *const keys[] = {"name", "size", "role", "parity", "mapped", NULL};
    static const char *const roles[] = {
#define ROLE_TEXT(name, text) text,
        BRIM_BUFFER_ROLE_LIST(ROLE_TEXT)
#undef ROLE_TEXT
    };
    json_t *list;
    BRIM_TRY(want_list(&list, s->root, "buffers", NULL, BRIM_BUFFERS_MAX, true));
    BRIM_TRY(brim__name_map_init(&s->buffers, s->ctx, json_array_size(list)));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const path *at = ELEMENT(KEY(NULL, "buffers"), i);
        const json_t *value = json_array_get(list, i);
        brim_buffer_desc desc = {0};
        uint32_t role = 0, index = 0;
        BRIM_TRY(want_object(value, at, keys));
        BRIM_TRY(want_text(&desc.name, value, "name", at));
        BRIM_TRY(want_u64(&desc.size, value, "size", at));
        BRIM_TRY(want_word(&role, value, "role", at, roles, sizeof roles / sizeof *roles));
        desc.role = (brim_buffer_role)role;
        BRIM_TRY(want_flag(&desc.parity, value, "parity", at));
        BRIM_TRY(want_flag(&desc.mapped, value, "mapped", at));
        BRIM_TRY(add_name(&s->buffers, "buffer", desc.name, (uint32_t)i, KEY(at, "name")));
        BRIM_TRY(placed(at, brim_builder_buffer(&index, s->builder, &desc)));
    }
    return BRIM_OK;
}

static brim_status parse_tensors(parser *s)
{
    static const char *const keys[] = {"name", "type", "rows", "cols", "layout", NULL};
    static const char *const layouts[] = {
#define LAYOUT_TEXT(name, text) text,
        BRIM_LAYOUT_LIST(LAYOUT_TEXT)
#undef LAYOUT_TEXT
    };
    json_t *list;
    BRIM_TRY(want_list(&list, s->root, "tensors", NULL, BRIM_BUFFERS_MAX, true));
    BRIM_TRY(brim__name_map_init(&s->tensors, s->ctx, json_array_size(list)));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const path *at = ELEMENT(KEY(NULL, "tensors"), i);
        const json_t *value = json_array_get(list, i);
        const char *type = NULL;
        brim_tensor_desc desc = {0};
        uint32_t index = 0, layout = BRIM_LAYOUT_ROWS16;
        BRIM_TRY(want_object(value, at, keys));
        BRIM_TRY(want_text(&desc.name, value, "name", at));
        BRIM_TRY(want_text(&type, value, "type", at));
        if (json_object_get(value, "layout"))
            BRIM_TRY(
                want_word(&layout, value, "layout", at, layouts, sizeof layouts / sizeof *layouts));
        desc.layout = (brim_layout)layout;
        if (!brim_dtype_parse(&desc.type, type))
            return fail(KEY(at, "type"), "program.value", "no type is named '%.32s'", type);
        BRIM_TRY(want_u32(&desc.rows, value, "rows", at));
        BRIM_TRY(want_u32(&desc.cols, value, "cols", at));
        BRIM_TRY(add_name(&s->tensors, "tensor", desc.name, (uint32_t)i, KEY(at, "name")));
        BRIM_TRY(placed(at, brim_builder_tensor(&index, s->builder, &desc)));
    }
    return BRIM_OK;
}

static brim_status parse_counters(parser *s)
{
    json_t *list;
    BRIM_TRY(want_list(&list, s->root, "counters", NULL, BRIM_COUNTERS_MAX, true));
    BRIM_TRY(brim__name_map_init(&s->counters, s->ctx, json_array_size(list)));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const path *at = ELEMENT(KEY(NULL, "counters"), i);
        const char *name = json_string_value(json_array_get(list, i));
        uint32_t index = 0;
        if (!name)
            return fail(at, "program.type", "a name is wanted here");
        BRIM_TRY(add_name(&s->counters, "counter", name, (uint32_t)i, at));
        BRIM_TRY(placed(at, brim_builder_counter(&index, s->builder, name)));
    }
    return BRIM_OK;
}

/* ---- lists ---- */

static brim_status parse_queue(parser *s, const json_t *value, uint32_t index, const path *at)
{
    static const char *const keys[] = {"name", "instructions", NULL};
    const char *name = NULL;
    json_t *list;
    uint32_t queue = 0;
    BRIM_TRY(want_object(value, at, keys));
    BRIM_TRY(want_text(&name, value, "name", at));
    BRIM_TRY(add_name(&s->queues, "queue", name, index, KEY(at, "name")));
    BRIM_TRY(placed(at, brim_builder_queue(&queue, s->builder, name)));
    BRIM_TRY(want_list(&list, value, "instructions", at, BRIM_INSTRUCTIONS_MAX, true));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const path *here = ELEMENT(KEY(at, "instructions"), i);
        brim_instruction in;
        BRIM_TRY(parse_instruction(s, &in, json_array_get(list, i), here));
        BRIM_TRY(placed(here, brim_builder_piece(s->builder, queue, &in)));
    }
    return BRIM_OK;
}

static brim_status parse_queues(parser *s)
{
    json_t *list;
    BRIM_TRY(want_list(&list, s->root, "queues", NULL, BRIM_INSTRUCTIONS_MAX, true));
    BRIM_TRY(brim__name_map_init(&s->queues, s->ctx, json_array_size(list)));
    for (size_t i = 0; i < json_array_size(list); i++)
        BRIM_TRY(
            parse_queue(s, json_array_get(list, i), (uint32_t)i, ELEMENT(KEY(NULL, "queues"), i)));
    return BRIM_OK;
}

static brim_status parse_item(parser *s, uint32_t lane, const json_t *value, const path *at)
{
    static const char *const keys[] = {"queue", NULL};
    if (json_object_get(value, "queue")) {
        uint32_t queue = 0;
        BRIM_TRY(want_object(value, at, keys));
        BRIM_TRY(want_name(&queue, value, "queue", at, &s->queues, "queue"));
        return placed(at, brim_builder_take(s->builder, lane, queue));
    }
    brim_instruction in;
    BRIM_TRY(parse_instruction(s, &in, value, at));
    return placed(at, brim_builder_lane(s->builder, lane, &in));
}

static brim_status parse_lanes(parser *s, size_t lanes)
{
    json_t *lists;
    BRIM_TRY(want_list(&lists, s->root, "lane_lists", NULL, BRIM_LANES_MAX, true));
    if (json_array_size(lists) != lanes)
        return fail(KEY(NULL, "lane_lists"), "program.value", "%zu lists for %zu lanes",
                    json_array_size(lists), lanes);
    for (size_t l = 0; l < lanes; l++) {
        const path *at = ELEMENT(KEY(NULL, "lane_lists"), l);
        const json_t *items = json_array_get(lists, l);
        if (!json_is_array(items))
            return fail(at, "program.type", "a list is wanted here");
        if (json_array_size(items) > 2 * BRIM_INSTRUCTIONS_MAX)
            return fail(at, "program.limit", "a lane has too many items");
        for (size_t i = 0; i < json_array_size(items); i++)
            BRIM_TRY(parse_item(s, (uint32_t)l, json_array_get(items, i), ELEMENT(at, i)));
    }
    return BRIM_OK;
}

/* ---- the whole ---- */

static brim_status parse_program(parser *s, brim_program **out)
{
    static const char *const keys[] = {"format",  "version",  "name",   "lanes",      "buffers",
                                       "tensors", "counters", "queues", "lane_lists", NULL};
    const char *text = NULL, *name = NULL;
    int64_t version = 0, lanes = 0;
    BRIM_TRY(want_object(s->root, NULL, keys));
    BRIM_TRY(want_text(&text, s->root, "format", NULL));
    if (strcmp(text, "brim-program") != 0)
        return fail(KEY(NULL, "format"), "program.format", "'%.32s' is not brim-program", text);
    BRIM_TRY(want_integer(&version, s->root, "version", NULL, INT64_MIN, INT64_MAX));
    if (version != 1)
        return fail(KEY(NULL, "version"), "program.version",
                    "version %lld; this library reads version 1", (long long)version);
    BRIM_TRY(want_text(&name, s->root, "name", NULL));
    BRIM_TRY(want_integer(&lanes, s->root, "lanes", NULL, 1, BRIM_LANES_MAX));
    BRIM_TRY(placed(KEY(NULL, "lanes"),
                    brim_builder_create(&s->builder, s->ctx, s->ops, name, (uint32_t)lanes)));
    BRIM_TRY(parse_buffers(s));
    BRIM_TRY(parse_tensors(s));
    BRIM_TRY(parse_counters(s));
    BRIM_TRY(parse_queues(s));
    BRIM_TRY(parse_lanes(s, (size_t)lanes));
    return placed(KEY(NULL, "lane_lists"), brim_builder_finish(out, s->builder));
}

/* Every value but the first of its list follows a comma. */
static brim_status check_size(const char *json, size_t size)
{
    BRIM_FAIL_IF(size > FILE_BYTES_MAX, LIMIT, "program.limit",
                 "the file has %zu bytes; at most %zu are read", size, FILE_BYTES_MAX);
    size_t values = 0;
    for (size_t i = 0; i < size; i++)
        values += json[i] == ',' || json[i] == '[' || json[i] == '{';
    BRIM_FAIL_IF(values > VALUES_MAX, LIMIT, "program.limit",
                 "the file has %zu values; at most %zu are read", values, VALUES_MAX);
    return BRIM_OK;
}

brim_status brim_program_parse(brim_program **out, brim_context *ctx, const brim_op_table *ops,
                               const char *json, size_t size)
{
    *out = NULL;
    BRIM_TRY(check_size(json, size));
    json_error_t error;
    json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        BRIM_FAIL(FORMAT, "program.json", "line %d, column %d: %s", error.line, error.column,
                  error.text);
    parser s = {.ctx = ctx, .ops = ops, .root = root};
    brim_status status = parse_program(&s, out);
    brim_builder_destroy(s.builder);
    brim__name_map_done(&s.buffers, ctx);
    brim__name_map_done(&s.tensors, ctx);
    brim__name_map_done(&s.counters, ctx);
    brim__name_map_done(&s.queues, ctx);
    json_decref(root);
    return status;
}
