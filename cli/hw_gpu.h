/* hw_gpu.h: the GPUs in `brim hw`: found, probed, shown. */
#ifndef BRIM_CLI_HW_GPU_H
#define BRIM_CLI_HW_GPU_H

#include "gpu_cache.h"

enum { HW_GPUS_MAX = 32 };

typedef struct hw_gpu {
    brim_device_info info;
    gpu_probe probe;
    bool probed, fresh; /* `probe` holds something; it was made just now */
    /* Why it could not be opened or probed; "" when nothing went wrong. */
    char id[64], why[512];
} hw_gpu;

typedef struct hw_gpus {
    cli *c;
    uint32_t count;
    hw_gpu items[HW_GPUS_MAX];
    char id[64], why[512]; /* there is none, and why */
} hw_gpus;

/* Finds the GPUs, or the one with this index (-1: all of them), with the probes that are kept, or
 * with `probe` measures each anew; `progress` may be NULL. OK also when there is none or one fails,
 * unless that one was asked for: then its error is this thread's last. */
brim_status hw_gpus_find(hw_gpus *out, cli *c, int64_t index, bool probe,
                         void (*progress)(const char *what, void *user));
/* `apart`: an empty line comes first. */
brim_status hw_gpus_print(const hw_gpus *gpus, bool apart);
/* A list, for JSON; and the reason why it is empty, or null. NULL when memory ran out. */
json_t *hw_gpus_json(const hw_gpus *gpus);
json_t *hw_gpus_reason_json(const hw_gpus *gpus);

#endif
