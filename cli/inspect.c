/* inspect.c: `brim inspect`: what a model file holds: metadata, the numbers of the model, tensors.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "brim/model.h"
#include "cli.h"

enum {
    ITEMS_SHOWN = 4, /* of an array, without --all */
    TEXT_SHOWN = 64, /* bytes of a string in the table, without --all */
    NUMBER_BYTES = 40,
};

typedef struct inspection {
    cli *c;
    brim_model_file *file;
    brim_model_config config;
    brim_status config_status; /* why there is no config */
    char config_id[64], config_message[1024];
    bool all;
} inspection;

/* ---- values as text ---- */

/* The shortest digits that give the same float. */
static void print_float(char out[NUMBER_BYTES], double value, bool narrow)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, NUMBER_BYTES, "%.*g", digits, value);
        double back = strtod(out, NULL);
        if (back == value || (narrow && (float)back == (float)value))
            return;
    }
}

static brim_meta_type value_type(const brim_meta *meta)
{
    return meta->type == BRIM_META_ARRAY ? meta->item_type : meta->type;
}

static void print_number(char out[NUMBER_BYTES], const inspection *in, const brim_meta *meta,
                         uint64_t index)
{
    uint64_t u;
    int64_t i;
    double f;
    bool yes;
    brim_meta_type type = value_type(meta);
    out[0] = 0;
    if (type == BRIM_META_BOOL && brim_meta_bool(&yes, in->file, meta, index) == BRIM_OK)
        snprintf(out, NUMBER_BYTES, "%s", yes ? "true" : "false");
    else if (type == BRIM_META_U64 && brim_meta_u64(&u, in->file, meta, index) == BRIM_OK)
        snprintf(out, NUMBER_BYTES, "%" PRIu64, u);
    else if (type == BRIM_META_F32 || type == BRIM_META_F64) {
        if (brim_meta_f64(&f, in->file, meta, index) == BRIM_OK)
            print_float(out, f, type == BRIM_META_F32);
    } else if (brim_meta_i64(&i, in->file, meta, index) == BRIM_OK)
        snprintf(out, NUMBER_BYTES, "%" PRId64, i);
}

static const char *type_name(brim_meta_type type)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (unsigned)type < CLI_COUNT(names) ? names[type] : "unknown";
}

/* A text being put together; `failed` when memory ran out. */
typedef struct builder {
    char *data;
    size_t size, capacity;
    bool failed;
} builder;

static void build(builder *b, const char *data, size_t size)
{
    if (b->size + size + 1 > b->capacity && !b->failed) {
        size_t capacity = 2 * (b->size + size + 1);
        char *grown = realloc(b->data, capacity);
        b->failed = !grown;
        b->data = grown ? grown : b->data;
        b->capacity = grown ? capacity : b->capacity;
    }
    if (b->failed)
        return;
    if (size)
        memcpy(b->data + b->size, data, size);
    b->size += size;
    b->data[b->size] = 0;
}

static void build_text(builder *b, const char *text)
{
    build(b, text, strlen(text));
}

/* A string, cut at a character's border, with its size behind it when it was cut. A table's cell
 * ends at a 0 byte, so one is shown as the two characters \0. */
static void build_string(builder *b, const inspection *in, const brim_meta *meta, uint64_t index)
{
    const char *text;
    size_t size;
    if (brim_meta_string(&text, &size, in->file, meta, index) != BRIM_OK)
        return;
    size_t shown = in->all || size <= TEXT_SHOWN ? size : TEXT_SHOWN;
    if (shown < size)
        shown -= brim_utf8_incomplete_tail(text, shown);
    for (size_t i = 0; i < shown;) {
        const char *zero = memchr(text + i, 0, shown - i);
        size_t run = zero ? (size_t)(zero - text) - i : shown - i;
        build(b, text + i, run);
        i += run;
        if (zero) {
            build_text(b, "\\0");
            i++;
        }
    }
    char note[64];
    snprintf(note, sizeof note, "... (%zu bytes)", size);
    if (shown < size)
        build_text(b, note);
}

static void build_item(builder *b, const inspection *in, const brim_meta *meta, uint64_t index)
{
    char number[NUMBER_BYTES];
    if (value_type(meta) == BRIM_META_STRING) {
        build_string(b, in, meta, index);
        return;
    }
    print_number(number, in, meta, index);
    build_text(b, number);
}

static void build_value(builder *b, const inspection *in, const brim_meta *meta)
{
    if (meta->type != BRIM_META_ARRAY) {
        build_item(b, in, meta, 0);
        return;
    }
    uint64_t shown = in->all || meta->count <= ITEMS_SHOWN ? meta->count : ITEMS_SHOWN;
    build_text(b, "[");
    for (uint64_t i = 0; i < shown; i++) {
        build_text(b, i ? ", " : "");
        build_item(b, in, meta, i);
    }
    char note[64];
    snprintf(note, sizeof note, ", ... %" PRIu64 " in all", meta->count);
    if (shown < meta->count)
        build_text(b, note);
    build_text(b, "]");
}

/* ---- for people ---- */

static brim_status print_metadata(const inspection *in)
{
    static const char *const columns[] = {"key", "type", "value", NULL};
    brim_table *table;
    brim_status status = brim_table_create(&table, in->c->ctx, columns);
    builder b = {0};
    for (size_t i = 0; status == BRIM_OK && i < brim_model_file_meta_count(in->file); i++) {
        const brim_meta *meta = brim_model_file_meta_at(in->file, i);
        bool array = meta->type == BRIM_META_ARRAY;
        b.size = 0;
        build_text(&b, "");
        build_value(&b, in, meta);
        brim_table_row(table);
        brim_table_cell(table, "%s", meta->key);
        brim_table_cell(table, "%s%s", type_name(value_type(meta)), array ? "[]" : "");
        brim_table_cell(table, "%s", b.failed ? "(no memory to show it)" : b.data);
    }
    if (status == BRIM_OK)
        status = brim_table_print(table, stdout, BRIM_TABLE_TEXT);
    brim_table_destroy(table);
    free(b.data);
    return status;
}

/* What the matrices become in a GPU's memory: two bytes an element, BF16 if all of them are that.
 */
static const char *device_weights(uint64_t *out_bytes, const inspection *in)
{
    bool all_bf16 = true;
    *out_bytes = 0;
    for (size_t i = 0; i < brim_model_file_tensor_count(in->file); i++) {
        const brim_tensor *t = brim_model_file_tensor_at(in->file, i);
        bool matrix = t->dim_count > 1;
        all_bf16 &= !matrix || t->type == BRIM_DTYPE_BF16;
        *out_bytes += t->dims[0] * (matrix ? 2 * ((t->row_count + 7) / 8 * 8) : 4);
    }
    return brim_dtype_name(all_bf16 ? BRIM_DTYPE_BF16 : BRIM_DTYPE_F16);
}

static void print_rope(const brim_model_config *m)
{
    char base[NUMBER_BYTES];
    print_float(base, (double)m->rope_base, true);
    printf("  rope              base %s, %u of %u dimensions, %s", base, m->rope_size, m->head_size,
           m->rope_kind == BRIM_ROPE_INTERLEAVED ? "interleaved pairs" : "halves");
    if (m->rope_scale_linear != 1)
        printf(", positions divided by %g", (double)m->rope_scale_linear);
    printf("%s\n", m->has_rope_factors ? ", factors of Llama 3" : "");
}

static void print_model(const inspection *in)
{
    const brim_model_config *m = &in->config;
    if (in->config_status != BRIM_OK) {
        printf("  not a model that Brim runs: ");
        brim_print_safe(stdout, in->config_message, strlen(in->config_message));
        printf(" [%s]\n", in->config_id);
        return;
    }
    char epsilon[NUMBER_BYTES];
    print_float(epsilon, (double)m->norm_epsilon, true);
    printf("  architecture      %s%s%s\n", brim_arch_name(m->arch),
           m->has_qkv_bias ? ", biases of q, k and v" : "",
           m->has_qk_norm ? ", norms of q and k" : "");
    printf("  layers            %u\n", m->layer_count);
    printf("  embedding         %u, %s\n", m->embed_size,
           m->tied_head ? "also the head" : "the head is apart");
    printf("  heads             %u, %u of keys and values, of %u elements\n", m->head_count,
           m->kv_head_count, m->head_size);
    printf("  feed-forward      %u\n", m->ffn_size);
    printf("  vocabulary        %u tokens\n", m->vocab_size);
    printf("  context           %u positions", m->context_trained);
    if (m->sliding_window)
        printf(", of which a token sees the last %u", m->sliding_window);
    printf("\n");
    print_rope(m);
    printf("  norm epsilon      %s\n", epsilon);
    printf("  parameters        %" PRIu64 "\n", m->parameter_count);
    printf("  weights           %" PRIu64 " bytes, %.2f bits a parameter\n", m->weight_bytes,
           8.0 * (double)m->weight_bytes / (double)m->parameter_count);
    uint64_t device_bytes;
    const char *device_type = device_weights(&device_bytes, in);
    printf("  on a GPU          %" PRIu64 " bytes of weights, as %s\n", device_bytes, device_type);
    printf("  a token           reads %" PRIu64 " bytes of weights, takes %" PRIu64
           " operations beside attention\n",
           m->decode_bytes, m->flops_per_token);
    printf("  KV cache          %" PRIu64 " elements a position, %" PRIu64 " bytes in f16\n",
           m->kv_elements_per_position, 2 * m->kv_elements_per_position);
}

static void print_shape(char out[96], const brim_tensor *t)
{
    size_t used = 0;
    for (uint32_t d = 0; d < t->dim_count && used < 96; d++)
        used += (size_t)snprintf(out + used, 96 - used, "%s%" PRIu64, d ? " x " : "", t->dims[d]);
}

static brim_status print_tensors(const inspection *in)
{
    static const char *const columns[] = {"tensor", "type", "shape", ">bytes", ">offset", NULL};
    static const char *const split_columns[] = {"tensor",  "type",  "shape", ">bytes",
                                                ">offset", ">part", NULL};
    bool split = brim_model_file_part_count(in->file) > 1;
    brim_table *table;
    brim_status status = brim_table_create(&table, in->c->ctx, split ? split_columns : columns);
    for (size_t i = 0; status == BRIM_OK && i < brim_model_file_tensor_count(in->file); i++) {
        const brim_tensor *t = brim_model_file_tensor_at(in->file, i);
        char shape[96] = "";
        print_shape(shape, t);
        brim_table_row(table);
        brim_table_cell(table, "%s", t->name);
        brim_table_cell(table, "%s", brim_dtype_name(t->type));
        brim_table_cell(table, "%s", shape);
        brim_table_cell(table, "%" PRIu64, t->size);
        brim_table_cell(table, "%" PRIu64, t->file_offset);
        if (split)
            brim_table_cell(table, "%u", t->part + 1);
    }
    if (status == BRIM_OK)
        status = brim_table_print(table, stdout, BRIM_TABLE_TEXT);
    brim_table_destroy(table);
    return status;
}

static int print_text(const inspection *in)
{
    const char *path = brim_model_file_path(in->file);
    uint32_t parts = brim_model_file_part_count(in->file);
    brim_print_safe(stdout, path, strlen(path));
    printf("\n  GGUF version %u, %.1f MiB in %u part%s, %zu keys, %zu tensors\n\n",
           brim_model_file_version(in->file), (double)brim_model_file_size(in->file) / (1 << 20),
           parts, parts == 1 ? "" : "s", brim_model_file_meta_count(in->file),
           brim_model_file_tensor_count(in->file));
    print_model(in);
    printf("\n");
    brim_status status = print_metadata(in);
    if (status == BRIM_OK && brim_model_file_tensor_count(in->file) > 0) {
        printf("\n");
        status = print_tensors(in);
    }
    if (status != BRIM_OK)
        return cli_fail(in->c, status);
    if (!in->all)
        fprintf(stderr, "Long values are shortened; --all shows them whole.\n");
    return CLI_OK;
}

/* ---- JSON ---- */

/* JSON has no number for these. */
static json_t *json_float(double value, bool narrow)
{
    char text[NUMBER_BYTES];
    print_float(text, value, narrow);
    return isfinite(value) ? json_real(strtod(text, NULL)) : json_string(text);
}

/* Text that is not UTF-8 comes as {"hex": ...}. */
static json_t *json_text(const char *text, size_t size)
{
    if (brim_utf8_check(text, size) == size)
        return json_stringn(text, size);
    char *hex = malloc(2 * size + 1);
    if (!hex)
        return NULL;
    for (size_t i = 0; i < size; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)text[i]);
    json_t *object = json_pack("{s:s}", "hex", hex);
    free(hex);
    return object;
}

static json_t *json_item(const inspection *in, const brim_meta *meta, uint64_t index)
{
    brim_meta_type type = value_type(meta);
    const char *text = NULL;
    size_t size = 0;
    bool yes = false;
    int64_t i = 0;
    double f = 0;
    char number[NUMBER_BYTES];
    if (type == BRIM_META_STRING &&
        brim_meta_string(&text, &size, in->file, meta, index) == BRIM_OK)
        return json_text(text, size);
    if (type == BRIM_META_BOOL && brim_meta_bool(&yes, in->file, meta, index) == BRIM_OK)
        return json_boolean(yes);
    if (type == BRIM_META_F32 || type == BRIM_META_F64) {
        if (brim_meta_f64(&f, in->file, meta, index) != BRIM_OK)
            return NULL;
        return json_float(f, type == BRIM_META_F32);
    }
    if (brim_meta_i64(&i, in->file, meta, index) == BRIM_OK)
        return json_integer(i);
    print_number(number, in, meta, index); /* a u64 above what JSON integers hold here */
    return json_string(number);
}

static json_t *json_meta(const inspection *in, const brim_meta *meta)
{
    json_t *object = json_pack("{s:s, s:I}", "type", type_name(meta->type), "offset",
                               (json_int_t)meta->file_offset);
    if (meta->type != BRIM_META_ARRAY) {
        json_object_set_new(object, "value", json_item(in, meta, 0));
        return object;
    }
    uint64_t shown = in->all || meta->count <= ITEMS_SHOWN ? meta->count : ITEMS_SHOWN;
    json_t *items = json_array();
    for (uint64_t i = 0; i < shown; i++)
        json_array_append_new(items, json_item(in, meta, i));
    json_object_set_new(object, "item_type", json_string(type_name(meta->item_type)));
    json_object_set_new(object, "count", json_integer((json_int_t)meta->count));
    json_object_set_new(object, "items", items);
    json_object_set_new(object, "shortened", json_boolean(shown < meta->count));
    return object;
}

static json_t *json_model(const inspection *in)
{
    const brim_model_config *m = &in->config;
    if (in->config_status != BRIM_OK)
        return json_null();
    json_t *object = json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:b}", "architecture",
        brim_arch_name(m->arch), "name", m->name, "layers", (int)m->layer_count, "embedding",
        (int)m->embed_size, "heads", (int)m->head_count, "kv_heads", (int)m->kv_head_count,
        "head_size", (int)m->head_size, "feed_forward", (int)m->ffn_size, "vocabulary",
        (int)m->vocab_size, "context", (int)m->context_trained, "tied_head", m->tied_head,
        "qkv_bias", m->has_qkv_bias, "qk_norm", m->has_qk_norm);
    uint64_t device_bytes;
    const char *device_type = device_weights(&device_bytes, in);
    const struct {
        const char *key;
        json_t *value;
    } rest[] = {
        {"norm_epsilon", json_float((double)m->norm_epsilon, true)},
        {"rope_base", json_float((double)m->rope_base, true)},
        {"rope_dimensions", json_integer(m->rope_size)},
        {"rope_pairs",
         json_string(m->rope_kind == BRIM_ROPE_INTERLEAVED ? "interleaved" : "halves")},
        {"rope_scale_linear", json_float((double)m->rope_scale_linear, true)},
        {"rope_factors", json_boolean(m->has_rope_factors)},
        {"sliding_window", json_integer(m->sliding_window)},
        {"parameters", json_integer((json_int_t)m->parameter_count)},
        {"weight_bytes", json_integer((json_int_t)m->weight_bytes)},
        {"device_type", json_string(device_type)},
        {"device_weight_bytes", json_integer((json_int_t)device_bytes)},
        {"decode_bytes", json_integer((json_int_t)m->decode_bytes)},
        {"kv_elements_per_position", json_integer((json_int_t)m->kv_elements_per_position)},
        {"flops_per_token", json_integer((json_int_t)m->flops_per_token)},
    };
    for (size_t i = 0; i < CLI_COUNT(rest); i++)
        json_object_set_new(object, rest[i].key, rest[i].value);
    return object;
}

static json_t *json_tensors(const inspection *in)
{
    json_t *list = json_array();
    for (size_t i = 0; i < brim_model_file_tensor_count(in->file); i++) {
        const brim_tensor *t = brim_model_file_tensor_at(in->file, i);
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->dim_count; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:o, s:I, s:I, s:i}", "name", t->name, "type",
                            brim_dtype_name(t->type), "shape", shape, "bytes", (json_int_t)t->size,
                            "offset", (json_int_t)t->file_offset, "part", (int)t->part + 1));
    }
    return list;
}

static int print_json(const inspection *in)
{
    const char *path = brim_model_file_path(in->file);
    json_t *metadata = json_object();
    for (size_t i = 0; i < brim_model_file_meta_count(in->file); i++) {
        const brim_meta *meta = brim_model_file_meta_at(in->file, i);
        json_object_set_new(metadata, meta->key, json_meta(in, meta));
    }
    json_t *error = json_null();
    size_t size = brim_utf8_check(in->config_message, strlen(in->config_message));
    if (in->config_status != BRIM_OK)
        error = json_pack("{s:s, s:s, s:s%}", "id", in->config_id, "status",
                          brim_status_name(in->config_status), "message", in->config_message, size);
    return cli_print_json(in->c, json_pack("{s:o, s:i, s:I, s:i, s:o, s:o, s:o, s:o}", "file",
                                           json_text(path, strlen(path)), "version",
                                           (int)brim_model_file_version(in->file), "bytes",
                                           (json_int_t)brim_model_file_size(in->file), "parts",
                                           (int)brim_model_file_part_count(in->file), "model",
                                           json_model(in), "model_error", error, "metadata",
                                           metadata, "tensors", json_tensors(in)));
}

/* ---- the command ---- */

static void read_config(inspection *in)
{
    in->config_status = brim_model_config_read(&in->config, in->file);
    if (in->config_status == BRIM_OK)
        return;
    snprintf(in->config_id, sizeof in->config_id, "%s", brim_last_id());
    snprintf(in->config_message, sizeof in->config_message, "%s", brim_last_message());
}

int brim_cli_inspect(cli *c, int argc, char **argv)
{
    inspection in = {.c = c};
    const cli_option options[] = {
        CLI_FLAG("all", 'a', &in.all, "long strings and arrays whole"),
        CLI_JSON(c),
    };
    const cli_spec spec = {
        .usage = "brim inspect MODEL [options]",
        .about = "Checks a model file whole and shows its metadata, the numbers of the model and\n"
                 "its tensors. MODEL is a file, or the name of a model that `brim pull` brought.\n"
                 "A file with a vocabulary alone will do.",
        .examples = "  brim inspect smollm2-135m\n"
                    "  brim inspect model.gguf --json | jq .model.parameters\n",
        .options = options,
        .option_count = CLI_COUNT(options),
        .args_min = 1,
        .args_max = 1,
        .args_what = "a model file",
    };
    int code;
    char path[CLI_PATH_MAX];
    if (!cli_parse(c, &spec, argc, argv, &code) || !cli_model_path(c, path, c->args[0], &code))
        return code;
    brim_status status = brim_model_file_open(&in.file, c->ctx, path);
    if (status != BRIM_OK)
        return cli_fail(c, status);
    read_config(&in);
    code = c->json ? print_json(&in) : print_text(&in);
    brim_model_file_close(in.file);
    return code;
}
