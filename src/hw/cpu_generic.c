/* cpu_generic.c: what a CPU that is not x86-64 says of itself: the kernel's capability bits on
 * aarch64, and a name from /proc/cpuinfo. */
#include "hw/hw.h"

#if !defined(__x86_64__)

#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/utsname.h>

uint64_t brim__cpu_detect(void)
{
    uint64_t flags = 0;
#if defined(__aarch64__)
    /* Bits of AT_HWCAP and AT_HWCAP2: Linux, arch/arm64/include/uapi/asm/hwcap.h. */
    unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    flags |= cap >> 1 & 1 ? BRIM__CPU_BIT(ASIMD) : 0;
    flags |= cap >> 20 & 1 ? BRIM__CPU_BIT(ASIMDDP) : 0;
    flags |= cap >> 22 & 1 ? BRIM__CPU_BIT(SVE) : 0;
    flags |= cap2 >> 13 & 1 ? BRIM__CPU_BIT(I8MM) : 0;
    flags |= cap2 >> 14 & 1 ? BRIM__CPU_BIT(BF16) : 0;
#endif
    return flags;
}

/* The value of the first "key : value" line of /proc/cpuinfo; false when there is none. */
static bool cpuinfo_value(char *out, size_t size, const char *key)
{
    char line[512];
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        colon += strspn(colon, ": \t");
        colon[strcspn(colon, "\n")] = 0;
        snprintf(out, size, "%s", colon);
        found = *colon != 0;
    }
    if (file)
        fclose(file);
    return found;
}

void brim__cpu_name(char *out, size_t size)
{
    struct utsname os;
    char implementer[16], part[16], name[128];
    const char *machine = uname(&os) == 0 ? os.machine : "unknown CPU";
    if (cpuinfo_value(name, sizeof name, "model name"))
        ;
    else if (cpuinfo_value(implementer, sizeof implementer, "CPU implementer") &&
             cpuinfo_value(part, sizeof part, "CPU part"))
        snprintf(name, sizeof name, "%.32s implementer %s part %s", machine, implementer, part);
    else
        snprintf(name, sizeof name, "%.64s", machine);
    brim__cpu_name_clean(out, size, name);
}

#endif
