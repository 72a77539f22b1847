/* cuda.h: what the CUDA executor and the probes need of a CUDA device, above its memory.
 *
 * libcuda is opened at run time (device_cuda.c), so that one binary starts everywhere. Every
 * function here names the driver call that failed, with the driver's own words. Functions are
 * called by one thread at a time and make the device's context current themselves. Work on a stream
 * is in order; a device has one stream for programs and one for copies that must not wait for them.
 */
#ifndef BRIM_DEVICE_CUDA_H
#define BRIM_DEVICE_CUDA_H

#include "device/device.h"

typedef struct brim__cuda_module brim__cuda_module;
typedef struct brim__cuda_event brim__cuda_event;
typedef void *brim__cuda_function;   /* of a module */
typedef uint64_t brim__cuda_address; /* in the device's memory */

typedef enum brim__cuda_stream { BRIM__CUDA_PROGRAMS, BRIM__CUDA_COPIES } brim__cuda_stream;

typedef struct brim__cuda_facts {
    int ordinal;
    int capability;       /* 90 for 9.0 */
    int driver_version;   /* as cuDriverGetVersion gives it: 13000 is 13.0 */
    char driver_name[32]; /* "580.159.04" from NVML, "" when NVML is absent */
    uint32_t sm_count;
    uint32_t shared_bytes_max; /* of a block, opted in */
    uint64_t l2_bytes;
    uint64_t memory_bytes;
    uint32_t clock_khz_max;
    bool cooperative;
} brim__cuda_facts;

const brim__cuda_facts *brim__cuda_facts_of(const brim_device *device);
/* Clocks, power and temperature now, from NVML (device/cuda_nvml.h); false when it is absent. */
struct brim__nvml_sample;
bool brim__cuda_sensors_of(struct brim__nvml_sample *out, const brim_device *device);
/* Free and total bytes now. */
brim_status brim__cuda_memory_free(uint64_t *out_free, uint64_t *out_total, brim_device *device);

/* The address of memory of this device. */
brim__cuda_address brim__cuda_address_of(const brim_device_memory *memory);

/* Pinned host memory that the device can read and write while programs run, zeroed. */
brim_status brim__cuda_mapped_alloc(void **out_host, brim__cuda_address *out_device,
                                    brim_device *device, size_t size);
void brim__cuda_mapped_free(brim_device *device, void *host);

/* A cubin, fat binary or PTX text (0-terminated) in memory. Errors: UNSUPPORTED, id "cuda.image"
 * (no code for this architecture: which, and what to do), SYSTEM. */
brim_status brim__cuda_module_load(brim__cuda_module **out, brim_device *device, const void *image,
                                   const char *name);
void brim__cuda_module_unload(brim__cuda_module *module);
brim_status brim__cuda_module_function(brim__cuda_function *out, brim__cuda_module *module,
                                       const char *name);

typedef struct brim__cuda_launch {
    brim__cuda_function function;
    uint32_t blocks, threads;
    uint32_t shared_bytes; /* dynamic; the function's limit is raised to it */
    bool cooperative;      /* all blocks run at the same time, or the launch fails */
} brim__cuda_launch;

/* Blocks of the function that fit on the whole device at the same time. */
brim_status brim__cuda_blocks_max(uint32_t *out, brim_device *device,
                                  const brim__cuda_launch *launch);
/* One parameter: `size` bytes at `parameters`, a struct passed by value. Does not wait. */
brim_status brim__cuda_launch_kernel(brim_device *device, const brim__cuda_launch *launch,
                                     const void *parameters, size_t size);
/* Bytes, in order on the stream; host memory must stay as it is until the stream is there. */
brim_status brim__cuda_write_async(brim_device *device, brim__cuda_stream stream,
                                   brim__cuda_address to, const void *from, size_t size);
/* size must be a multiple of 4: fills with a 32-bit word. */
brim_status brim__cuda_fill_async(brim_device *device, brim__cuda_stream stream,
                                  brim__cuda_address to, uint32_t word, size_t size);
/* Waits for what is on the stream. Errors: SYSTEM, ids "cuda.lost" (the device is lost or the
 * context is dead: nothing on it can go on; destroy what uses it), "cuda.call". */
brim_status brim__cuda_synchronize(brim_device *device, brim__cuda_stream stream);
/* Bytes to the host, in order on the stream; they are there when the stream is. Not to memory that
 * is neither pinned nor mapped while a program runs: the driver may wait for it. */
brim_status brim__cuda_read_async(void *to, brim_device *device, brim__cuda_stream stream,
                                  brim__cuda_address from, size_t size);
/* Copies that do not wait for programs (they use the other stream) and are done on return. */
brim_status brim__cuda_read_now(void *to, brim_device *device, brim__cuda_address from,
                                size_t size);
/* Whether the stream has finished; does not wait. Errors as synchronize. */
brim_status brim__cuda_finished(bool *out, brim_device *device, brim__cuda_stream stream);
/* Events with time; milliseconds between two that have passed. */
brim_status brim__cuda_event_create(brim__cuda_event **out, brim_device *device);
void brim__cuda_event_destroy(brim__cuda_event *event);
brim_status brim__cuda_event_record(brim__cuda_event *event, brim__cuda_stream stream);
brim_status brim__cuda_event_elapsed(float *out_ms, brim__cuda_event *from, brim__cuda_event *to);

#endif
