/* cuda_driver.h: libcuda, opened at run time, once for the process.
 *
 * BRIM_LIBCUDA in the environment names another file to open: tests put a library of their own
 * there, and a name that does not exist hides the GPUs. */
#ifndef BRIM_DEVICE_CUDA_DRIVER_H
#define BRIM_DEVICE_CUDA_DRIVER_H

#include "base/status.h"
#include "device/cuda_api.h"

/* The driver's functions, after cuInit. A failure is not kept: the next call tries again. Errors:
 * NOT_FOUND "cuda.absent", SYSTEM "cuda.init", UNSUPPORTED "cuda.driver_old". Any thread. */
brim_status brim__cuda_driver_open(const brim__cu_api **out);
/* For tests: closes libcuda, so that the next call opens another one. No device may be open. */
void brim__cuda_driver_forget(void);
/* 13000 is 13.0; 0 before the driver is open. */
int brim__cuda_driver_version(void);
brim_status brim__cuda_driver_device_count(uint32_t *out);

/* "CUDA_ERROR_X: what the driver says of it". */
void brim__cuda_error_text(char *out, size_t size, const brim__cu_api *api, brim__cu_result result);
/* Whether the result says that the context, if not the device, is dead. */
bool brim__cuda_result_kills(brim__cu_result result);

#endif
