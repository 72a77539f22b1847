/* gpu_cache.h: what `brim hw` measured on a GPU, kept for the commands that compare themselves with
 * it: one file a GPU, beside the probe of the CPU. */
#ifndef BRIM_CLI_GPU_CACHE_H
#define BRIM_CLI_GPU_CACHE_H

#include "brim/device.h"
#include "cli.h"

typedef struct gpu_probe {
    brim_device_probed figures;
    int64_t probed_at; /* Unix seconds */
} gpu_probe;

/* The figures that are no table of their own. */
typedef struct gpu_figure {
    const char *key;  /* "barrier_ns" */
    const char *text; /* for people */
    size_t offset;    /* in brim_device_probed */
    double unit;      /* for people: what the value is divided by */
    const char *unit_name;
} gpu_figure;
enum { GPU_FIGURE_COUNT = 8 };
extern const gpu_figure gpu_figures[GPU_FIGURE_COUNT];

/* The probe as one JSON object; NULL when memory ran out. */
json_t *gpu_probe_json(const gpu_probe *probe);
/* The kept probe of this GPU (same index, name, size, driver); false when there is none. A damaged
 * file counts as none. */
bool gpu_probe_load(gpu_probe *out, const brim_device_info *info);
/* False: `why` says what failed. */
bool gpu_probe_save(char *why, size_t why_size, const gpu_probe *probe,
                    const brim_device_info *info);
/* GB/s that are read from the GPU's memory, not from its caches: of the largest buffer. */
double gpu_probe_read_gb_s(const gpu_probe *probe);

#endif
