/* find.c: what the machine is, as far as this process may use it: hwloc's view restricted to the
 * process's CPUs, the CPU's own name and flags, and the memory that its control group allows. */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/thread.h"
#include "hw/hw.h"

/* The first line of a small file without its newline; false when there is none. */
static bool read_line(char *out, size_t size, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool good = fgets(out, (int)size, file) != NULL;
    fclose(file);
    if (good)
        out[strcspn(out, "\n")] = 0;
    return good;
}

/* A number such as "107520K" or "max" (0). */
static uint64_t read_bytes(const char *path)
{
    char line[64], *end;
    if (!read_line(line, sizeof line, path))
        return 0;
    uint64_t value = strtoull(line, &end, 10);
    return *end == 'K' ? value << 10 : *end == 'M' ? value << 20 : value;
}

/* The least limit of this process's control group (version 2) and of those around it; 0: none. */
static uint64_t control_group_limit(void)
{
    char group[512], path[1024];
    uint64_t least = 0;
    if (!read_line(group, sizeof group, "/proc/self/cgroup") || strncmp(group, "0::/", 4) != 0)
        return read_bytes("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    for (char *slash = group + strlen(group);; *slash = 0) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group + 3);
        uint64_t limit = read_bytes(path);
        if (limit && (!least || limit < least))
            least = limit;
        slash = strrchr(group + 3, '/');
        if (!slash)
            return least;
    }
}

uint64_t brim__hw_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t all = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    uint64_t limit = control_group_limit();
    return limit && (!all || limit < all) ? limit : all;
}

/* CPUs in a mask such as "ff,ffffffff"; at least 1. */
static unsigned mask_count(const char *mask)
{
    unsigned count = 0;
    for (; *mask; mask++) {
        char digit[2] = {*mask, 0};
        if (*mask != ',')
            count += (unsigned)__builtin_popcountl(strtoul(digit, NULL, 16));
    }
    return count ? count : 1;
}

uint64_t brim__hw_last_cache_bytes(void)
{
    uint64_t most = 0;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (int index = 0; index < 10; index++) {
        char path[96], mask[4096];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        uint64_t size = read_bytes(path);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/shared_cpu_map",
                 index);
        if (!size || !read_line(mask, sizeof mask, path))
            continue;
        uint64_t instances = online > 0 ? (uint64_t)online / mask_count(mask) : 1;
        size *= instances ? instances : 1;
        most = size > most ? size : most;
    }
    if (!most && sysconf(_SC_LEVEL3_CACHE_SIZE) > 0)
        most = (uint64_t)sysconf(_SC_LEVEL3_CACHE_SIZE);
    return most;
}

static void find_cache(uint64_t *out_bytes, uint32_t *out_count, hwloc_topology_t topology,
                       hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_by_type(topology, type);
    hwloc_obj_t first = count > 0 ? hwloc_get_obj_by_type(topology, type, 0) : NULL;
    *out_count = first ? (uint32_t)count : 0;
    *out_bytes = first && first->attr ? first->attr->cache.size : 0;
}

static uint32_t count_of(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_by_type(topology, type);
    return count > 0 ? (uint32_t)count : 0;
}

/* Leaves in the topology only what has a CPU that this process may run on. */
static void restrict_to_process(hwloc_topology_t topology)
{
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    if (cpus && hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_PROCESS) == 0)
        hwloc_topology_restrict(topology, cpus, 0);
    hwloc_bitmap_free(cpus);
}

brim_status brim_hw_find(brim_hw *out, brim_context *ctx)
{
    (void)ctx;
    memset(out, 0, sizeof *out);
    hwloc_topology_t topology;
    BRIM_FAIL_IF(hwloc_topology_init(&topology) != 0, SYSTEM, "hw.topology",
                 "hwloc cannot make a topology");
    if (hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        BRIM_FAIL(SYSTEM, "hw.topology", "hwloc cannot read this machine's topology");
    }
    restrict_to_process(topology);
    out->package_count = count_of(topology, HWLOC_OBJ_PACKAGE);
    out->core_count = count_of(topology, HWLOC_OBJ_CORE);
    out->numa_count = count_of(topology, HWLOC_OBJ_NUMANODE);
    find_cache(&out->l1d_bytes, &out->l1d_count, topology, HWLOC_OBJ_L1CACHE);
    find_cache(&out->l2_bytes, &out->l2_count, topology, HWLOC_OBJ_L2CACHE);
    find_cache(&out->l3_bytes, &out->l3_count, topology, HWLOC_OBJ_L3CACHE);
    hwloc_topology_destroy(topology);

    out->thread_count = brim__cpu_count();
    out->memory_bytes = brim__hw_memory_bytes();
    brim__cpu_name(out->cpu_name, sizeof out->cpu_name);
    struct utsname os;
    if (uname(&os) == 0)
        snprintf(out->os, sizeof out->os, "%.20s %.50s %.20s", os.sysname, os.release, os.machine);
    brim__cpu_flags_text(out->isa_flags, sizeof out->isa_flags, brim__cpu_flags());
    out->isa = brim_isa_best();
    return BRIM_OK;
}
