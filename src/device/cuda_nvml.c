/* cuda_nvml.c: asks NVML for the driver's name, for clocks and power. Whatever goes wrong here only
 * leaves a figure unknown. Source: the NVML API reference
 * (docs.nvidia.com/deploy/nvml-api). */
#include "device/cuda_nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { /* nvmlClockType_t, nvmlTemperatureSensors_t */
       CLOCK_SM = 1,
       CLOCK_MEMORY = 2,
       SENSOR_GPU = 0,
};

#define NVML_LIST(X)                                                                               \
    X(init, "nvmlInit_v2", (void))                                                                 \
    X(driver_version, "nvmlSystemGetDriverVersion", (char *, unsigned))                            \
    X(handle_by_pci, "nvmlDeviceGetHandleByPciBusId_v2", (const char *, void **))                  \
    X(clock, "nvmlDeviceGetClockInfo", (void *, int, unsigned *))                                  \
    X(clock_max, "nvmlDeviceGetMaxClockInfo", (void *, int, unsigned *))                           \
    X(power, "nvmlDeviceGetPowerUsage", (void *, unsigned *))                                      \
    X(temperature, "nvmlDeviceGetTemperature", (void *, int, unsigned *))

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
#define NVML_FIELD(field, symbol, parameters) int(*field) parameters;
    NVML_LIST(NVML_FIELD)
#undef NVML_FIELD
    bool ready;
} nvml;

/* NVML stays open until the process ends. */
static void open_once(void)
{
    const char *name = getenv("BRIM_LIBNVML");
    void *library = dlopen(name && *name ? name : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    void *symbol;
#define NVML_FIND(field, text, parameters)                                                         \
    symbol = dlsym(library, text);                                                                 \
    memcpy(&nvml.field, &symbol, sizeof symbol);
    NVML_LIST(NVML_FIND)
#undef NVML_FIND
    nvml.ready = nvml.init && nvml.init() == 0;
}

void brim__nvml_driver_name(char *out, size_t size)
{
    out[0] = 0;
    pthread_once(&once, open_once);
    char name[96] = "";
    if (nvml.ready && nvml.driver_version && nvml.driver_version(name, sizeof name) == 0)
        snprintf(out, size, "%s", name);
}

bool brim__nvml_sample_of(brim__nvml_sample *out, const char *pci_bus_id)
{
    memset(out, 0, sizeof *out);
    pthread_once(&once, open_once);
    void *device = NULL;
    if (!nvml.ready || !nvml.handle_by_pci || nvml.handle_by_pci(pci_bus_id, &device) != 0)
        return false;
    unsigned value;
    if (nvml.clock && nvml.clock(device, CLOCK_SM, &value) == 0)
        out->sm_mhz = value;
    if (nvml.clock && nvml.clock(device, CLOCK_MEMORY, &value) == 0)
        out->memory_mhz = value;
    if (nvml.clock_max && nvml.clock_max(device, CLOCK_SM, &value) == 0)
        out->sm_mhz_max = value;
    if (nvml.power && nvml.power(device, &value) == 0)
        out->power_mw = value;
    if (nvml.temperature && nvml.temperature(device, SENSOR_GPU, &value) == 0)
        out->temperature_c = value;
    return true;
}
