/* cuda_nvml.h: NVML, the management library beside the driver, opened at run time. Where it is
 * absent its figures are unknown, which is no error. BRIM_LIBNVML in the environment names another
 * file. */
#ifndef BRIM_DEVICE_CUDA_NVML_H
#define BRIM_DEVICE_CUDA_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What NVML says of a device now; a field that it does not know is 0. */
typedef struct brim__nvml_sample {
    uint32_t sm_mhz, memory_mhz;
    uint32_t sm_mhz_max;
    uint32_t power_mw;
    uint32_t temperature_c;
} brim__nvml_sample;

/* The driver's name, "580.159.04"; "" when there is no NVML, which is no error. */
void brim__nvml_driver_name(char *out, size_t size);
/* By the device's PCI address; false when there is no NVML or it does not know the device. */
bool brim__nvml_sample_of(brim__nvml_sample *out, const char *pci_bus_id);

#endif
