/* executor_cuda.h: the CUDA executor's side of executor.c. */
#ifndef BRIM_EXECUTOR_CUDA_H
#define BRIM_EXECUTOR_CUDA_H

#include "program/executor.h"

/* Errors: UNSUPPORTED, ids "cuda.op" (an op that the device can't run: which), "cuda.shape",
 * "cuda.image" (no image for this architecture or build); NO_MEMORY; those of the device. */
brim_status brim__cuda_executor_create(brim_executor *x);
void brim__cuda_executor_destroy(brim_executor *x);
/* Sends inputs there and starts the kernel. */
brim_status brim__cuda_executor_start(brim_executor *x);
bool brim__cuda_executor_wait_epoch(brim_executor *x, uint64_t epoch, uint64_t timeout_ns);
brim_status brim__cuda_executor_wait(brim_executor *x);
void brim__cuda_executor_cancel(brim_executor *x);
brim_status brim__cuda_executor_bind_memory(brim_executor *x, uint32_t buffer,
                                            brim_device_memory *memory, uint64_t offset);
brim_status brim__cuda_executor_bind_tensor(brim_executor *x, uint32_t tensor,
                                            brim_device_memory *memory, uint64_t offset);
/* The caller's host memory: inputs and constants, which are sent; tiles too. */
brim_status brim__cuda_executor_bind_host(brim_executor *x, uint32_t buffer, void *memory);
brim_status brim__cuda_executor_bind_host_tensor(brim_executor *x, uint32_t tensor,
                                                 const void *tiles);
/* The host's side of buffers: copies of inputs, mapped memory. */
brim_status brim__cuda_executor_place(brim_executor *x);
void *brim__cuda_executor_buffer(brim_executor *x, uint32_t buffer, uint64_t epoch);
brim_status brim__cuda_executor_read(brim_executor *x, void *out, uint32_t buffer, uint64_t epoch,
                                     uint64_t offset, uint64_t size);
size_t brim__cuda_executor_trace(const brim_trace_event **out, brim_executor *x, uint32_t lane);
/* For tests: the lane (and step) that hangs on purpose; the seed of random delays. */
void brim__cuda_executor_plant(brim_executor *x, uint32_t lane, uint32_t epoch, uint32_t delays);

#endif
