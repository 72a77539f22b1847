/* machine.c: machine descriptions ("brim-machine", docs/hw.md), read from untrusted text or made
 * from a probe. Every key is known or refused, every value in its range. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "hw/hw_json.h"

enum { MACHINE_TEXT_MAX = 1 << 20, NOTE_BYTES_MAX = 4096 };

/* What is assumed where nothing was probed: an instruction's fetch, waits and signal take about
 * this long on a CPU lane; a signal to oneself is a store and a load. */
static const double assumed_instruction_ns = 100, assumed_own_signal_ns = 10;

const brim__machine_key brim__machine_keys[BRIM__MACHINE_KEY_COUNT] = {
    {"read_gb_s", offsetof(brim_machine, read_gb_s), 1e-3, 1e6},
    {"lane_read_gb_s", offsetof(brim_machine, lane_read_gb_s), 1e-3, 1e6},
    {"lane_gflop_s", offsetof(brim_machine, lane_gflop_s), 1e-3, 1e8},
    {"lane_gop_int8_s", offsetof(brim_machine, lane_gop_int8_s), 1e-3, 1e8},
    {"signal_ns", offsetof(brim_machine, signal_ns), 1e-1, 1e9},
    {"instruction_ns", offsetof(brim_machine, instruction_ns), 1e-1, 1e9},
};

double *brim__machine_field(brim_machine *machine, size_t index)
{
    return (double *)((char *)machine + brim__machine_keys[index].offset);
}

/* ---- reading ---- */

static brim_status check_note(const json_t *value, const char *key, const char *inner)
{
    BRIM_FAIL_IF(!json_is_string(value), FORMAT, "machine.type",
                 "machine key \"%s\": \"%s\" must be a text", key, inner);
    BRIM_FAIL_IF(json_string_length(value) > NOTE_BYTES_MAX, FORMAT, "machine.value",
                 "machine key \"%s\": \"%s\" is longer than %d bytes", key, inner, NOTE_BYTES_MAX);
    return BRIM_OK;
}

static brim_status check_confidence(const json_t *value, const char *key)
{
    static const char *const known[] = {"measured", "published", "derived", "assumed"};
    const char *text = json_string_value(value);
    for (size_t i = 0; text && i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i]) == 0)
            return BRIM_OK;
    BRIM_FAIL(FORMAT, "machine.value",
              "machine key \"%s\": \"confidence\" must be measured, published, derived or assumed",
              key);
}

/* A value is a number, or {"value": number, "source": text, "confidence": word}. */
static brim_status unwrap_value(const json_t **out, json_t *value, const char *key)
{
    *out = value;
    if (!json_is_object(value))
        return BRIM_OK;
    const char *inner;
    json_t *item;
    json_object_foreach(value, inner, item)
    {
        if (strcmp(inner, "value") == 0)
            continue;
        if (strcmp(inner, "source") == 0)
            BRIM_TRY(check_note(item, key, inner));
        else if (strcmp(inner, "confidence") == 0)
            BRIM_TRY(check_confidence(item, key));
        else
            BRIM_FAIL(FORMAT, "machine.key",
                      "machine key \"%s\": \"%.64s\" is unknown; known are value, source and "
                      "confidence",
                      key, inner);
    }
    *out = json_object_get(value, "value");
    BRIM_FAIL_IF(!*out, FORMAT, "machine.missing", "machine key \"%s\": \"value\" is missing", key);
    return BRIM_OK;
}

static brim_status read_value(double *out, json_t *value, const char *key, double min, double max)
{
    const json_t *number;
    BRIM_TRY(unwrap_value(&number, value, key));
    BRIM_FAIL_IF(!json_is_number(number), FORMAT, "machine.type",
                 "machine key \"%s\" must be a number, or an object with \"value\"", key);
    *out = json_number_value(number);
    BRIM_FAIL_IF(!(*out >= min && *out <= max), FORMAT, "machine.value",
                 "machine key \"%s\": %g is out of range: %g to %g are possible", key, *out, min,
                 max);
    return BRIM_OK;
}

static brim_status read_lane_count(uint32_t *out, json_t *value)
{
    double count;
    BRIM_TRY(read_value(&count, value, "lane_count", 1, BRIM_HW_THREADS_MAX));
    BRIM_FAIL_IF(count != floor(count), FORMAT, "machine.value",
                 "machine key \"lane_count\": %g is not a whole number", count);
    *out = (uint32_t)count;
    return BRIM_OK;
}

static brim_status read_name(char *out, size_t size, const json_t *value)
{
    const char *text = json_string_value(value);
    BRIM_FAIL_IF(!text, FORMAT, "machine.type", "machine key \"name\" must be a text");
    size_t length = json_string_length(value);
    BRIM_FAIL_IF(length == 0 || length >= size, FORMAT, "machine.value",
                 "machine key \"name\" must have 1 to %zu bytes, not %zu", size - 1, length);
    for (size_t i = 0; i < length; i++)
        BRIM_FAIL_IF((unsigned char)text[i] < ' ' || text[i] == 0x7F, FORMAT, "machine.value",
                     "machine key \"name\": byte %zu is a control character", i);
    memcpy(out, text, length + 1);
    return BRIM_OK;
}

/* One key of the document; which of the numbers it was is marked in *seen. */
static brim_status read_key(brim_machine *out, uint32_t *seen, const char *key, json_t *value)
{
    for (size_t i = 0; i < BRIM__MACHINE_KEY_COUNT; i++) {
        const brim__machine_key *known = &brim__machine_keys[i];
        if (strcmp(key, known->key) != 0)
            continue;
        *seen |= 1u << i;
        return read_value(brim__machine_field(out, i), value, key, known->min, known->max);
    }
    if (strcmp(key, "lane_count") == 0)
        return read_lane_count(&out->lane_count, value);
    if (strcmp(key, "name") == 0)
        return read_name(out->name, sizeof out->name, value);
    if (strcmp(key, "notes") == 0)
        return check_note(value, key, key);
    if (strcmp(key, "format") == 0 || strcmp(key, "version") == 0)
        return BRIM_OK; /* checked before */
    if (strcmp(key, "found") == 0 || strcmp(key, "probe") == 0) {
        /* What `brim hw` wrote for people: nothing is computed from it. */
        BRIM_FAIL_IF(!json_is_object(value), FORMAT, "machine.type",
                     "machine key \"%s\" must be an object", key);
        return BRIM_OK;
    }
    BRIM_FAIL(FORMAT, "machine.key",
              "machine key \"%.64s\" is unknown; docs/hw.md lists the keys there are", key);
}

static brim_status read_machine(brim_machine *out, json_t *root)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "version");
    BRIM_FAIL_IF(!format || strcmp(format, "brim-machine") != 0, FORMAT, "machine.format",
                 "this is no machine description: \"format\" must be \"brim-machine\"");
    BRIM_FAIL_IF(json_integer_value(version) != 1, FORMAT, "machine.format",
                 "this machine description has no \"version\" 1, the only one that is known");
    uint32_t seen = 0;
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) BRIM_TRY(read_key(out, &seen, key, value));
    for (size_t i = 0; i < BRIM__MACHINE_KEY_COUNT; i++)
        BRIM_FAIL_IF(!(seen >> i & 1), FORMAT, "machine.missing", "machine key \"%s\" is missing",
                     brim__machine_keys[i].key);
    BRIM_FAIL_IF(!out->lane_count, FORMAT, "machine.missing",
                 "machine key \"lane_count\" is missing");
    BRIM_FAIL_IF(!out->name[0], FORMAT, "machine.missing", "machine key \"name\" is missing");
    BRIM_FAIL_IF(out->lane_read_gb_s > out->read_gb_s, FORMAT, "machine.value",
                 "machine key \"lane_read_gb_s\": one lane alone reads %g GB/s, more than "
                 "\"read_gb_s\" gives all lanes together: %g",
                 out->lane_read_gb_s, out->read_gb_s);
    return BRIM_OK;
}

brim_status brim_machine_parse(brim_machine *out, brim_context *ctx, const char *json, size_t size)
{
    (void)ctx;
    json_error_t error;
    memset(out, 0, sizeof *out);
    BRIM_FAIL_IF(size > MACHINE_TEXT_MAX, FORMAT, "machine.size",
                 "the machine description has %zu bytes; %d are the limit", size, MACHINE_TEXT_MAX);
    BRIM_FAIL_IF(size == 0, FORMAT, "machine.json", "the machine description is empty");
    json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &error);
    BRIM_FAIL_IF(!root, FORMAT, "machine.json", "machine description, line %d, column %d: %s",
                 error.line, error.column, error.text);
    brim_machine machine = {0};
    brim_status status =
        json_is_object(root)
            ? read_machine(&machine, root)
            : brim__fail(BRIM_FORMAT, "machine.json",
                         "a machine description is one JSON object, this is something else");
    json_decref(root);
    if (status == BRIM_OK)
        *out = machine;
    return status;
}

/* ---- from a probe ---- */

/* The best rate of the types that kernels of this instruction set reach. */
static double best_rate(const brim_hw_probe *probe, const char *type, brim_isa isa)
{
    double best = 0;
    for (uint32_t i = 0; i < probe->rate_count && i < BRIM_HW_RATES_MAX; i++) {
        const brim_hw_rate *rate = &probe->rates[i];
        if (!rate->type || !rate->isa || strcmp(rate->type, type) != 0)
            continue;
        const brim__rate_kind *kind = brim__rate_kind_find(rate->type, rate->isa);
        if (kind && kind->level <= isa && rate->gop_s > best)
            best = rate->gop_s;
    }
    return best;
}

brim_machine brim_machine_from_probe(const brim_hw *hw, const brim_hw_probe *probe, uint32_t lanes)
{
    brim_machine machine = {0};
    size_t length = strlen(hw->cpu_name);
    memcpy(machine.name, hw->cpu_name, length < sizeof machine.name ? length + 1 : 0);
    lanes = lanes < 1 ? 1 : lanes > BRIM_HW_THREADS_MAX ? BRIM_HW_THREADS_MAX : lanes;
    machine.lane_count = lanes;
    for (uint32_t i = 0; i < lanes && i < probe->thread_count; i++)
        if (probe->read_gb_s[i] > machine.read_gb_s)
            machine.read_gb_s = probe->read_gb_s[i];
    machine.lane_read_gb_s = probe->read_gb_s[0];
    machine.lane_gflop_s = best_rate(probe, "f32", hw->isa);
    machine.lane_gop_int8_s = best_rate(probe, "u8s8", hw->isa);
    /* A barrier over two lanes is two signals, one each way, one after the other. */
    machine.signal_ns = lanes > 1 && probe->thread_count > 1 && probe->barrier_ns[1] > 0
                            ? probe->barrier_ns[1] / 2
                            : assumed_own_signal_ns;
    machine.instruction_ns = assumed_instruction_ns;
    return machine;
}
