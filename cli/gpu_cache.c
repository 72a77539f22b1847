/* gpu_cache.c: a GPU's probe as JSON, written to and read from $XDG_CACHE_HOME/brim/gpu-N-NAME.json
 * (else ~/.cache/brim). What GPU it was stands in the file too and is compared; every value is
 * checked when it is read. */
#include "gpu_cache.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const gpu_figure gpu_figures[GPU_FIGURE_COUNT] = {
    {"barrier_ns", "barrier of all multiprocessors", offsetof(brim_device_probed, barrier_ns), 1e3,
     "us"},
    {"packet_ns", "packet to another multiprocessor", offsetof(brim_device_probed, packet_ns), 1e3,
     "us"},
    {"mailbox_ns", "mailbox, one way", offsetof(brim_device_probed, mailbox_ns), 1e3, "us"},
    {"launch_ns", "launch, back to back", offsetof(brim_device_probed, launch_ns), 1e3, "us"},
    {"launch_wait_ns", "launch and wait", offsetof(brim_device_probed, launch_wait_ns), 1e3, "us"},
    {"read_word_ns", "read of one word", offsetof(brim_device_probed, read_word_ns), 1e3, "us"},
    {"copy_to_gb_s", "copy to the GPU, pinned", offsetof(brim_device_probed, copy_to_gb_s), 1,
     "GB/s"},
    {"copy_from_gb_s", "copy from the GPU, pinned", offsetof(brim_device_probed, copy_from_gb_s), 1,
     "GB/s"},
};

/* The words that a rate may have: what is read must outlive the document. */
static const char *const known_words[] = {"f32",      "f16", "bf16", "s8",
                                          "mma.sync", "fma", "dp4a", NULL};

/* ---- writing ---- */

static json_t *figure_json(const brim_device_figure *f)
{
    return json_pack("{s:f, s:f, s:f}", "median", f->median, "least", f->least, "most", f->most);
}

static json_t *reads_json(const brim_device_probed *p)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < p->read_count; i++)
        json_array_append_new(list, json_pack("{s:I, s:o}", "bytes", (json_int_t)p->reads[i].bytes,
                                              "gb_s", figure_json(&p->reads[i].gb_s)));
    return list;
}

static json_t *rates_json(const brim_device_probed *p)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < p->rate_count; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:o}", "type", p->rates[i].type, "how",
                                        p->rates[i].how, "gop_s", figure_json(&p->rates[i].gop_s)));
    return list;
}

json_t *gpu_probe_json(const gpu_probe *probe)
{
    const brim_device_probed *p = &probe->figures;
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "probed_at", (json_int_t)probe->probed_at,
                  "sm_mhz", (json_int_t)p->sm_mhz, "memory_mhz", (json_int_t)p->memory_mhz,
                  "power_mw", (json_int_t)p->power_mw, "barrier_blocks",
                  (json_int_t)p->barrier_blocks, "reads", reads_json(p), "rates", rates_json(p));
    for (size_t i = 0; i < GPU_FIGURE_COUNT; i++)
        json_object_set_new(object, gpu_figures[i].key,
                            figure_json((const void *)((const char *)p + gpu_figures[i].offset)));
    return object;
}

static json_t *key_json(const brim_device_info *info)
{
    return json_pack("{s:I, s:s, s:I, s:I, s:I, s:s}", "index", (json_int_t)info->index, "name",
                     info->name, "capability", (json_int_t)info->capability, "multiprocessors",
                     (json_int_t)info->lane_count_max, "memory_bytes",
                     (json_int_t)info->memory_bytes, "driver", info->driver);
}

/* ---- reading ---- */

static bool number(double *out, const json_t *object, const char *key, double most)
{
    const json_t *value = json_object_get(object, key);
    *out = json_number_value(value);
    return json_is_number(value) && *out >= 0 && *out <= most;
}

static bool count(uint32_t *out, const json_t *object, const char *key)
{
    double value;
    if (!number(&value, object, key, UINT32_MAX))
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool figure(brim_device_figure *out, const json_t *object, const char *key)
{
    const double most = 1e12;
    const json_t *value = json_object_get(object, key);
    return number(&out->median, value, "median", most) &&
           number(&out->least, value, "least", most) && number(&out->most, value, "most", most);
}

static const char *word(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    for (size_t i = 0; text && known_words[i]; i++)
        if (strcmp(text, known_words[i]) == 0)
            return known_words[i];
    return NULL;
}

static bool read_lists(brim_device_probed *p, const json_t *object)
{
    const json_t *reads = json_object_get(object, "reads"),
                 *rates = json_object_get(object, "rates");
    if (json_array_size(reads) > BRIM_DEVICE_READS_MAX || json_array_size(reads) == 0 ||
        json_array_size(rates) > BRIM_DEVICE_RATES_MAX)
        return false;
    for (size_t i = 0; i < json_array_size(reads); i++) {
        const json_t *item = json_array_get(reads, i);
        double bytes;
        if (!number(&bytes, item, "bytes", 1e15) || !figure(&p->reads[i].gb_s, item, "gb_s"))
            return false;
        p->reads[p->read_count++].bytes = (uint64_t)bytes;
    }
    for (size_t i = 0; i < json_array_size(rates); i++) {
        const json_t *item = json_array_get(rates, i);
        p->rates[i].type = word(item, "type");
        p->rates[i].how = word(item, "how");
        if (!p->rates[i].type || !p->rates[i].how || !figure(&p->rates[i].gop_s, item, "gop_s"))
            return false;
        p->rate_count++;
    }
    return true;
}

static bool read_probe(gpu_probe *out, const json_t *object)
{
    brim_device_probed *p = &out->figures;
    double at;
    bool good = number(&at, object, "probed_at", 1e12) && count(&p->sm_mhz, object, "sm_mhz") &&
                count(&p->memory_mhz, object, "memory_mhz") &&
                count(&p->power_mw, object, "power_mw") &&
                count(&p->barrier_blocks, object, "barrier_blocks") && read_lists(p, object);
    for (size_t i = 0; i < GPU_FIGURE_COUNT && good; i++)
        good = figure((void *)((char *)p + gpu_figures[i].offset), object, gpu_figures[i].key);
    out->probed_at = good ? (int64_t)at : 0;
    return good;
}

/* ---- files ---- */

/* In a file's name only letters, digits and dashes of the GPU's name stay. */
static bool find_path(char out[CLI_PATH_MAX], const brim_device_info *info)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char name[sizeof info->name];
    snprintf(name, sizeof name, "%s", info->name);
    for (char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '-')
            *p = '_';
    int n = -1;
    if (cache && *cache == '/')
        n = snprintf(out, CLI_PATH_MAX, "%s/brim/gpu-%u-%s.json", cache, info->index, name);
    else if (home && *home == '/')
        n = snprintf(out, CLI_PATH_MAX, "%s/.cache/brim/gpu-%u-%s.json", home, info->index, name);
    return n >= 0 && n < CLI_PATH_MAX;
}

bool gpu_probe_load(gpu_probe *out, const brim_device_info *info)
{
    char path[CLI_PATH_MAX];
    *out = (gpu_probe){0};
    if (!find_path(path, info))
        return false;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    json_t *key = key_json(info);
    const char *format = json_string_value(json_object_get(root, "format"));
    gpu_probe probe = {0};
    bool good = root && key && format && strcmp(format, "brim-gpu-probe") == 0 &&
                json_integer_value(json_object_get(root, "version")) == 1 &&
                json_equal(json_object_get(root, "gpu"), key) &&
                read_probe(&probe, json_object_get(root, "probe"));
    json_decref(key);
    json_decref(root);
    if (good)
        *out = probe;
    return good;
}

bool gpu_probe_save(char *why, size_t why_size, const gpu_probe *probe,
                    const brim_device_info *info)
{
    char path[CLI_PATH_MAX], partial[CLI_PATH_MAX + 32];
    if (!find_path(path, info)) {
        snprintf(why, why_size, "there is no cache folder: set HOME or XDG_CACHE_HOME");
        return false;
    }
    snprintf(partial, sizeof partial, "%s.%ld", path, (long)getpid());
    json_t *root = json_pack("{s:s, s:i, s:o, s:o}", "format", "brim-gpu-probe", "version", 1,
                             "gpu", key_json(info), "probe", gpu_probe_json(probe));
    errno = 0;
    bool good = root && cli_make_folders(path) &&
                json_dump_file(root, partial, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 &&
                rename(partial, path) == 0;
    if (!good) {
        snprintf(why, why_size, "%.3000s: cannot be written: %s", path,
                 errno ? strerror(errno) : "no memory");
        remove(partial);
    }
    json_decref(root);
    return good;
}

double gpu_probe_read_gb_s(const gpu_probe *probe)
{
    const brim_device_probed *p = &probe->figures;
    uint32_t best = 0;
    for (uint32_t i = 1; i < p->read_count; i++)
        if (p->reads[i].bytes > p->reads[best].bytes)
            best = i;
    return p->read_count ? p->reads[best].gb_s.median : 0;
}
