/* hw_gpu.c: the GPUs in `brim hw`. One that fails is said and left out: the others, and the CPU,
 * are shown all the same. */
#include "hw_gpu.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model_open.h"

/* ---- finding ---- */

static void note_error(char id[64], char why[512])
{
    snprintf(id, 64, "%s", brim_last_id());
    snprintf(why, 512, "%s", brim_last_message());
}

static brim_status probe_one(hw_gpu *gpu, brim_device *device,
                             void (*progress)(const char *what, void *user))
{
    char why[4096];
    gpu->probe = (gpu_probe){.probed_at = (int64_t)time(NULL)};
    brim_status status = brim_device_probe(&gpu->probe.figures, device, progress, NULL);
    gpu->probed = gpu->fresh = status == BRIM_OK;
    if (status == BRIM_OK && !gpu_probe_save(why, sizeof why, &gpu->probe, &gpu->info))
        fprintf(stderr, "brim hw: the probe could not be kept: %s\n", why);
    return status;
}

static brim_status find_one(hw_gpu *gpu, cli *c, uint32_t index, bool probe,
                            void (*progress)(const char *what, void *user))
{
    brim_device *device = NULL;
    gpu->info.index = index;
    brim_status status = brim_device_open_index(&device, c->ctx, BRIM_DEVICE_CUDA, index);
    if (status == BRIM_OK)
        status = brim_device_query(&gpu->info, device);
    if (status == BRIM_OK && probe)
        status = probe_one(gpu, device, progress);
    else if (status == BRIM_OK)
        gpu->probed = gpu_probe_load(&gpu->probe, &gpu->info);
    if (status != BRIM_OK)
        note_error(gpu->id, gpu->why);
    brim_device_close(device);
    return status;
}

brim_status hw_gpus_find(hw_gpus *out, cli *c, int64_t index, bool probe,
                         void (*progress)(const char *what, void *user))
{
    *out = (hw_gpus){.c = c};
    uint32_t first = index < 0 ? 0 : (uint32_t)index;
    brim_status status = brim_device_usable(BRIM_DEVICE_CUDA, first);
    if (status != BRIM_OK) {
        note_error(out->id, out->why);
        return index < 0 ? BRIM_OK : status;
    }
    uint32_t count = index < 0 ? brim_device_count(BRIM_DEVICE_CUDA) : 1;
    for (uint32_t i = 0; i < count && i < HW_GPUS_MAX; i++) {
        status = find_one(&out->items[out->count++], c, first + i, probe, progress);
        if (status != BRIM_OK && index >= 0)
            return status;
    }
    return BRIM_OK;
}

/* ---- for people ---- */

static void print_info(const hw_gpu *gpu)
{
    const brim_device_info *info = &gpu->info;
    const double gib = 1.0 / (1 << 30);
    printf("cuda:%u", info->index);
    if (info->name[0]) {
        printf(", ");
        brim_print_safe(stdout, info->name, strlen(info->name));
        printf("\n  driver   %s\n", info->driver);
        printf("  lanes    %u multiprocessors of compute capability %u.%u", info->lane_count_max,
               info->capability / 10, info->capability % 10);
        if (info->clock_mhz_max)
            printf(", at most %u MHz", info->clock_mhz_max);
        printf("\n  memory   %.1f GiB, %.1f free\n", (double)info->memory_bytes * gib,
               (double)info->memory_free_bytes * gib);
    } else {
        printf("\n");
    }
    if (gpu->why[0]) {
        printf("  %s: ", info->name[0] ? "not probed" : "cannot be opened");
        brim_print_safe(stdout, gpu->why, strlen(gpu->why));
        printf(" [%s]\n", gpu->id);
    }
}

static void fill_figure(brim_table *table, const char *name, const brim_device_figure *f,
                        double unit, const char *unit_name)
{
    brim_table_row(table);
    brim_table_cell(table, "  %s", name);
    brim_table_cell(table, "%.2f", f->median / unit);
    brim_table_cell(table, "%s", unit_name);
    brim_table_cell(table, "%.2f", f->least / unit);
    brim_table_cell(table, "%.2f", f->most / unit);
}

static void fill_probe(brim_table *table, const brim_device_probed *p)
{
    char name[64];
    for (uint32_t i = 0; i < p->read_count; i++) {
        snprintf(name, sizeof name, "read %llu MiB again and again",
                 (unsigned long long)(p->reads[i].bytes >> 20));
        fill_figure(table, name, &p->reads[i].gb_s, 1, "GB/s");
    }
    for (uint32_t i = 0; i < p->rate_count; i++) {
        snprintf(name, sizeof name, "%s by %s", p->rates[i].type, p->rates[i].how);
        fill_figure(table, name, &p->rates[i].gop_s, 1e3, "Top/s");
    }
    for (size_t i = 0; i < GPU_FIGURE_COUNT; i++) {
        const brim_device_figure *f = (const void *)((const char *)p + gpu_figures[i].offset);
        if (f->median > 0)
            fill_figure(table, gpu_figures[i].text, f, gpu_figures[i].unit,
                        gpu_figures[i].unit_name);
    }
}

static brim_status print_probe(const hw_gpu *gpu, brim_context *ctx)
{
    static const char *const columns[] = {"  what", ">median", "unit", ">least", ">most", NULL};
    const brim_device_probed *p = &gpu->probe.figures;
    char age[32];
    double seconds = difftime(time(NULL), (time_t)gpu->probe.probed_at);
    cli_age_text(age, seconds > 0 ? seconds : 0);
    printf("  probed   %s", gpu->fresh ? "now" : age);
    if (p->sm_mhz)
        printf("; afterwards at %u MHz, memory at %u MHz, %.0f W", p->sm_mhz, p->memory_mhz,
               p->power_mw * 1e-3);
    printf("\n");
    brim_table *table;
    brim_status status = brim_table_create(&table, ctx, columns);
    if (status != BRIM_OK)
        return status;
    fill_probe(table, p);
    status = brim_table_print(table, stdout, BRIM_TABLE_TEXT);
    brim_table_destroy(table);
    return status;
}

brim_status hw_gpus_print(const hw_gpus *gpus, bool apart)
{
    brim_status status = BRIM_OK;
    if (gpus->count == 0) {
        printf("%sno GPU: ", apart ? "\n" : "");
        brim_print_safe(stdout, gpus->why, strlen(gpus->why));
        printf("\n");
    }
    for (uint32_t i = 0; i < gpus->count && status == BRIM_OK; i++) {
        if (apart || i > 0)
            printf("\n");
        print_info(&gpus->items[i]);
        if (gpus->items[i].probed)
            status = print_probe(&gpus->items[i], gpus->c->ctx);
        else if (!gpus->items[i].why[0])
            printf("  probed   never: `brim hw` without --no-probe does\n");
    }
    return status;
}

/* ---- JSON ---- */

static json_t *reason_json(const char *id, const char *why)
{
    size_t size = brim_utf8_check(why, strlen(why));
    return why[0] ? json_pack("{s:s, s:s%}", "id", id, "message", why, size) : json_null();
}

json_t *hw_gpus_reason_json(const hw_gpus *gpus)
{
    return reason_json(gpus->id, gpus->why);
}

json_t *hw_gpus_json(const hw_gpus *gpus)
{
    json_t *list = json_array();
    bool bad = !list;
    for (uint32_t i = 0; i < gpus->count; i++) {
        const hw_gpu *gpu = &gpus->items[i];
        const brim_device_info *info = &gpu->info;
        json_t *item = json_pack(
            "{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o}", "index", (json_int_t)info->index,
            "name", info->name, "capability", (json_int_t)info->capability, "multiprocessors",
            (json_int_t)info->lane_count_max, "clock_mhz_max", (json_int_t)info->clock_mhz_max,
            "memory_bytes", (json_int_t)info->memory_bytes, "memory_free_bytes",
            (json_int_t)info->memory_free_bytes, "driver", info->driver, "probe",
            gpu->probed ? gpu_probe_json(&gpu->probe) : json_null(), "error",
            reason_json(gpu->id, gpu->why));
        bad = json_array_append_new(list, item) != 0 || bad;
    }
    if (bad) {
        json_decref(list);
        return NULL;
    }
    return list;
}
