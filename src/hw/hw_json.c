/* hw_json.c: a machine and its probe written as JSON, and the probe's cache text read back.
 *
 * jansson ignores a NULL value that is put into an object or a list and reports failure; the
 * writers join these reports and give up the whole document when one failed. */
#include "hw/hw_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"

/* ---- writing ---- */

static json_t *number_list(const double *values, uint32_t count)
{
    json_t *list = json_array();
    bool bad = !list;
    for (uint32_t i = 0; i < count; i++)
        bad = json_array_append_new(list, json_real(values[i])) != 0 || bad;
    if (bad) {
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *rate_list(const brim_hw_probe *probe)
{
    json_t *list = json_array();
    bool bad = !list;
    for (uint32_t i = 0; i < probe->rate_count; i++) {
        const brim_hw_rate *rate = &probe->rates[i];
        json_t *item = json_pack("{s:s, s:s, s:f}", "type", rate->type, "isa", rate->isa, "gop_s",
                                 rate->gop_s);
        bad = json_array_append_new(list, item) != 0 || bad;
    }
    if (bad) {
        json_decref(list);
        return NULL;
    }
    return list;
}

json_t *brim__probe_object(const brim_hw_probe *probe)
{
    return json_pack("{s:I, s:I, s:o, s:o, s:o}", "probed_at", (json_int_t)probe->probed_at,
                     "buffer_bytes", (json_int_t)probe->buffer_bytes, "read_gb_s",
                     number_list(probe->read_gb_s, probe->thread_count), "barrier_ns",
                     number_list(probe->barrier_ns, probe->thread_count), "rates",
                     rate_list(probe));
}

static int append_text(const char *text, size_t size, void *user)
{
    return brim__string_append(user, text, size) == BRIM_OK ? 0 : -1;
}

brim_status brim__json_finish(char **out, brim_context *ctx, json_t *root)
{
    brim__string text = {.ctx = ctx};
    const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(6);
    bool good = root && json_dump_callback(root, append_text, &text, flags) == 0;
    json_decref(root);
    *out = good ? text.data : NULL;
    if (good)
        return BRIM_OK;
    brim__string_done(&text);
    BRIM_FAIL(NO_MEMORY, "memory.out", "no memory to write JSON");
}

brim_status brim__probe_to_text(char **out, brim_context *ctx, const brim_hw_probe *probe,
                                const brim__probe_key *key)
{
    json_t *root = json_pack("{s:s, s:i, s:s, s:i, s:s, s:o}", "format", "brim-probe", "version", 1,
                             "cpu_name", key->cpu_name, "thread_count", (int)key->thread_count,
                             "kernel", key->kernel, "probe", brim__probe_object(probe));
    return brim__json_finish(out, ctx, root);
}

static json_t *cache_object(uint32_t count, uint64_t bytes)
{
    return json_pack("{s:i, s:I}", "count", (int)count, "bytes", (json_int_t)bytes);
}

static json_t *found_object(const brim_hw *hw)
{
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:o, s:o, s:o, s:s, s:s}", "cpu_name", hw->cpu_name,
        "os", hw->os, "package_count", (int)hw->package_count, "core_count", (int)hw->core_count,
        "thread_count", (int)hw->thread_count, "numa_count", (int)hw->numa_count, "memory_bytes",
        (json_int_t)hw->memory_bytes, "l1d", cache_object(hw->l1d_count, hw->l1d_bytes), "l2",
        cache_object(hw->l2_count, hw->l2_bytes), "l3", cache_object(hw->l3_count, hw->l3_bytes),
        "isa", brim_isa_name(hw->isa), "isa_flags", hw->isa_flags);
}

static json_t *sourced_value(json_t *value, const char *source, const char *confidence)
{
    return json_pack("{s:o, s:s, s:s}", "value", value, "source", source, "confidence", confidence);
}

/* Where a value of the machine comes from. */
static void explain_value(const char **out_source, const char **out_confidence, size_t index,
                          bool signal_probed, const char *probed)
{
    const char *key = brim__machine_keys[index].key;
    *out_source = probed;
    *out_confidence = "measured";
    if (strcmp(key, "signal_ns") == 0 && signal_probed) {
        *out_source = "half of the probed barrier over two lanes";
        *out_confidence = "derived";
    } else if (strcmp(key, "signal_ns") == 0 || strcmp(key, "instruction_ns") == 0) {
        *out_source = "an assumption: it was not probed";
        *out_confidence = "assumed";
    }
}

/* Adds the values that `predict` needs. Those that a probe lacks are left out. */
static bool add_machine_values(json_t *root, const brim_hw *hw, const brim_hw_probe *probe)
{
    brim_machine machine = brim_machine_from_probe(hw, probe, hw->thread_count);
    bool signal_probed =
        machine.lane_count > 1 && probe->thread_count > 1 && probe->barrier_ns[1] > 0;
    char probed[96], day[16] = "an unknown day";
    time_t at = (time_t)probe->probed_at;
    struct tm parts;
    if (gmtime_r(&at, &parts))
        strftime(day, sizeof day, "%Y-%m-%d", &parts);
    snprintf(probed, sizeof probed, "probed by brim %s on %s", brim_version(), day);
    bool good = json_object_set_new(root, "lane_count", json_integer(machine.lane_count)) == 0;
    for (size_t i = 0; i < BRIM__MACHINE_KEY_COUNT; i++) {
        double value = *brim__machine_field(&machine, i);
        if (!(value > 0))
            continue;
        const char *source, *confidence;
        explain_value(&source, &confidence, i, signal_probed, probed);
        json_t *item = sourced_value(json_real(value), source, confidence);
        good = json_object_set_new(root, brim__machine_keys[i].key, item) == 0 && good;
    }
    return good;
}

brim_status brim_hw_to_json(char **out, brim_context *ctx, const brim_hw *hw,
                            const brim_hw_probe *probe)
{
    json_t *root =
        json_pack("{s:s, s:i, s:s}", "format", "brim-machine", "version", 1, "name", hw->cpu_name);
    bool good = root && (!probe || add_machine_values(root, hw, probe));
    good = good && json_object_set_new(root, "found", found_object(hw)) == 0;
    if (good && probe)
        good = json_object_set_new(root, "probe", brim__probe_object(probe)) == 0;
    if (!good) {
        json_decref(root);
        root = NULL;
    }
    return brim__json_finish(out, ctx, root);
}

/* ---- reading the cache ---- */

static bool read_number(double *out, const json_t *value, double min, double max)
{
    *out = json_number_value(value);
    return json_is_number(value) && *out >= min && *out <= max;
}

static bool read_list(double *out, uint32_t count, const json_t *list, double min, double max)
{
    bool good = json_is_array(list) && json_array_size(list) == count;
    for (uint32_t i = 0; good && i < count; i++)
        good = read_number(&out[i], json_array_get(list, i), min, max);
    return good;
}

static bool read_rates(brim_hw_probe *out, const json_t *list)
{
    size_t count = json_array_size(list);
    bool good = json_is_array(list) && count <= BRIM_HW_RATES_MAX;
    for (size_t i = 0; good && i < count; i++) {
        const json_t *item = json_array_get(list, i);
        const char *type = json_string_value(json_object_get(item, "type"));
        const char *isa = json_string_value(json_object_get(item, "isa"));
        const brim__rate_kind *kind = type && isa ? brim__rate_kind_find(type, isa) : NULL;
        good = kind && read_number(&out->rates[i].gop_s, json_object_get(item, "gop_s"), 1e-6, 1e9);
        if (good)
            out->rates[i].type = kind->type, out->rates[i].isa = kind->isa;
    }
    out->rate_count = good ? (uint32_t)count : 0;
    return good;
}

static bool read_probe_object(brim_hw_probe *out, const json_t *object)
{
    const json_t *reads = json_object_get(object, "read_gb_s");
    size_t threads = json_array_size(reads);
    double at, bytes;
    memset(out, 0, sizeof *out);
    if (threads < 1 || threads > sizeof out->read_gb_s / sizeof *out->read_gb_s)
        return false;
    out->thread_count = (uint32_t)threads;
    bool good =
        read_list(out->read_gb_s, out->thread_count, reads, 1e-6, 1e9) &&
        read_list(out->barrier_ns, out->thread_count, json_object_get(object, "barrier_ns"), 0,
                  1e12) &&
        read_number(&bytes, json_object_get(object, "buffer_bytes"), 1, 0x1p50) &&
        /* A day of grace: a clock may have been set back since. */
        read_number(&at, json_object_get(object, "probed_at"), 1, (double)time(NULL) + 86400) &&
        read_rates(out, json_object_get(object, "rates"));
    if (good) {
        out->buffer_bytes = (uint64_t)bytes;
        out->probed_at = (int64_t)at;
    }
    return good;
}

static bool text_is(const json_t *root, const char *key, const char *wanted)
{
    const char *text = json_string_value(json_object_get(root, key));
    return text && strcmp(text, wanted) == 0;
}

brim_status brim__probe_from_text(brim_hw_probe *out, const char *text, size_t size,
                                  const brim__probe_key *key)
{
    json_error_t error;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    BRIM_FAIL_IF(!root, FORMAT, "hw.cache", "the cached probe is damaged: line %d, column %d: %s",
                 error.line, error.column, error.text);
    brim_status status = BRIM_OK;
    if (!text_is(root, "format", "brim-probe") ||
        json_integer_value(json_object_get(root, "version")) != 1)
        status = brim__fail(BRIM_FORMAT, "hw.cache", "this is no \"brim-probe\" of version 1");
    else if (!text_is(root, "cpu_name", key->cpu_name) || !text_is(root, "kernel", key->kernel) ||
             json_integer_value(json_object_get(root, "thread_count")) != key->thread_count)
        status = brim__fail(BRIM_NOT_FOUND, "hw.no_probe", "the cached probe is another machine's");
    else if (!read_probe_object(out, json_object_get(root, "probe")))
        status = brim__fail(BRIM_FORMAT, "hw.cache",
                            "the cached probe is damaged: a value in it "
                            "is absent or impossible");
    json_decref(root);
    return status;
}
