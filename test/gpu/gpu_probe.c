/* gpu_probe.c: prints what a GPU reaches. A program, no unit test: it needs the device.
 *
 *   gpu_probe [--json] [cuda:N]
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "brim/device.h"

static void show_step(const char *what, void *user)
{
    fprintf(stderr, "\r\033[K%s", what);
}

static void print_figure(const char *name, brim_device_figure f, double unit, const char *unit_name)
{
    printf("  %-34s %10.2f %-6s (%.2f to %.2f)\n", name, f.median / unit, unit_name, f.least / unit,
           f.most / unit);
}

static void print_table(const brim_device_info *info, const brim_device_probed *p)
{
    printf("%s, compute capability %u.%u, %s\n", info->name, info->capability / 10,
           info->capability % 10, info->driver);
    printf("  %u multiprocessors, at most %u MHz; %.1f of %.1f GiB free\n", info->lane_count_max,
           info->clock_mhz_max, (double)info->memory_free_bytes / (1 << 30),
           (double)info->memory_bytes / (1 << 30));
    if (p->sm_mhz)
        printf("  after the work: %u MHz, memory %u MHz, %.1f W\n", p->sm_mhz, p->memory_mhz,
               p->power_mw / 1000.0);
    char name[64];
    for (uint32_t i = 0; i < p->read_count; i++) {
        snprintf(name, sizeof name, "read %llu MiB", (unsigned long long)(p->reads[i].bytes >> 20));
        print_figure(name, p->reads[i].gb_s, 1, "GB/s");
    }
    for (uint32_t i = 0; i < p->rate_count; i++) {
        snprintf(name, sizeof name, "%s %s", p->rates[i].type, p->rates[i].how);
        print_figure(name, p->rates[i].gop_s, 1000, "Top/s");
    }
    snprintf(name, sizeof name, "barrier of %u blocks", p->barrier_blocks);
    print_figure(name, p->barrier_ns, 1, "ns");
    print_figure("packet between multiprocessors", p->packet_ns, 1, "ns");
    print_figure("mailbox, one way", p->mailbox_ns, 1, "ns");
    print_figure("launch, back to back", p->launch_ns, 1000, "us");
    print_figure("launch and wait", p->launch_wait_ns, 1000, "us");
    print_figure("copy to the device, pinned", p->copy_to_gb_s, 1, "GB/s");
    print_figure("copy from the device, pinned", p->copy_from_gb_s, 1, "GB/s");
    print_figure("read of one word", p->read_word_ns, 1000, "us");
}

static void json_figure(const char *name, brim_device_figure f)
{
    printf(",\n  \"%s\": {\"median\": %.6g, \"least\": %.6g, \"most\": %.6g}", name, f.median,
           f.least, f.most);
}

static void print_json(const brim_device_info *info, const brim_device_probed *p)
{
    printf("{\n  \"name\": \"%s\",\n  \"capability\": %u,\n  \"driver\": \"%s\"", info->name,
           info->capability, info->driver);
    printf(",\n  \"multiprocessors\": %u,\n  \"memory_bytes\": %llu", info->lane_count_max,
           (unsigned long long)info->memory_bytes);
    printf(",\n  \"sm_mhz\": %u,\n  \"memory_mhz\": %u,\n  \"power_mw\": %u", p->sm_mhz,
           p->memory_mhz, p->power_mw);
    char name[64];
    for (uint32_t i = 0; i < p->read_count; i++) {
        snprintf(name, sizeof name, "read_%llu_mib_gb_s",
                 (unsigned long long)(p->reads[i].bytes >> 20));
        json_figure(name, p->reads[i].gb_s);
    }
    for (uint32_t i = 0; i < p->rate_count; i++) {
        snprintf(name, sizeof name, "%s %s gop_s", p->rates[i].type, p->rates[i].how);
        json_figure(name, p->rates[i].gop_s);
    }
    printf(",\n  \"barrier_blocks\": %u", p->barrier_blocks);
    json_figure("barrier_ns", p->barrier_ns);
    json_figure("packet_ns", p->packet_ns);
    json_figure("mailbox_ns", p->mailbox_ns);
    json_figure("launch_ns", p->launch_ns);
    json_figure("launch_wait_ns", p->launch_wait_ns);
    json_figure("copy_to_gb_s", p->copy_to_gb_s);
    json_figure("copy_from_gb_s", p->copy_from_gb_s);
    json_figure("read_word_ns", p->read_word_ns);
    printf("\n}\n");
}

static brim_status probe(brim_context *ctx, const char *name, bool json)
{
    brim_device_kind kind;
    uint32_t index;
    brim_device *device;
    brim_device_info info;
    brim_device_probed probed;
    brim_status status = brim_device_parse(&kind, &index, name);
    if (status == BRIM_OK)
        status = brim_device_open_index(&device, ctx, kind, index);
    if (status != BRIM_OK)
        return status;
    status = brim_device_query(&info, device);
    bool draws = isatty(STDERR_FILENO);
    if (status == BRIM_OK)
        status = brim_device_probe(&probed, device, draws ? show_step : NULL, NULL);
    if (draws)
        fprintf(stderr, "\r\033[K");
    brim_device_close(device);
    if (status == BRIM_OK)
        json ? print_json(&info, &probed) : print_table(&info, &probed);
    return status;
}

int main(int argc, char **argv)
{
    bool json = false;
    const char *name = "cuda";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else
            name = argv[i];
    }
    brim_context *ctx;
    if (brim_context_create(&ctx, NULL) != BRIM_OK)
        return 1;
    brim_status status = probe(ctx, name, json);
    if (status != BRIM_OK)
        fprintf(stderr, "gpu_probe: %s [%s]\n", brim_last_message(), brim_last_id());
    brim_context_destroy(ctx);
    return status == BRIM_OK ? 0 : 1;
}
