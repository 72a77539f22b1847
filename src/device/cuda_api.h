/* cuda_api.h: the few declarations of the CUDA driver API that Brim uses, in its own words, so that
 * no toolkit is needed to build it.
 *
 * Source: the CUDA Driver API reference (docs.nvidia.com/cuda/cuda-driver-api). The application
 * binary interface of an entry point never changes: a changed one gets a new version, and
 * cuGetProcAddress gives the one that was current at the version it is asked for. That number is
 * the third column below, so that a newer driver still hands out the functions declared here.
 * Contexts are the device's primary one, retained: cuCtxCreate has changed with almost every
 * release. */
#ifndef BRIM_DEVICE_CUDA_API_H
#define BRIM_DEVICE_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int brim__cu_result;       /* CUresult */
typedef int brim__cu_device;       /* CUdevice */
typedef uint64_t brim__cu_address; /* CUdeviceptr, on 64-bit systems */
/* CUcontext, CUmodule, CUfunction, CUstream, CUevent: pointers to what only the driver knows. */
typedef void *brim__cu_context, *brim__cu_module, *brim__cu_function, *brim__cu_stream,
    *brim__cu_event;

/* Results that mean something to Brim; the rest is "cuda.call". */
enum {
    BRIM__CU_SUCCESS = 0,
    BRIM__CU_INVALID_VALUE = 1,
    BRIM__CU_OUT_OF_MEMORY = 2,
    BRIM__CU_DEINITIALIZED = 4,
    BRIM__CU_DEVICE_UNAVAILABLE = 46,
    BRIM__CU_NO_DEVICE = 100,
    BRIM__CU_INVALID_DEVICE = 101,
    BRIM__CU_INVALID_IMAGE = 200,
    BRIM__CU_NO_BINARY_FOR_GPU = 209,
    BRIM__CU_ECC_UNCORRECTABLE = 214,
    BRIM__CU_INVALID_PTX = 218,
    BRIM__CU_NVLINK_UNCORRECTABLE = 220,
    BRIM__CU_JIT_COMPILER_NOT_FOUND = 221,
    BRIM__CU_UNSUPPORTED_PTX_VERSION = 222,
    BRIM__CU_JIT_COMPILATION_DISABLED = 223,
    BRIM__CU_CONTAINED = 226,
    BRIM__CU_INVALID_SOURCE = 300,
    BRIM__CU_NOT_FOUND = 500,
    BRIM__CU_NOT_READY = 600,
    BRIM__CU_ILLEGAL_ADDRESS = 700,
    BRIM__CU_LAUNCH_TIMEOUT = 702,
    BRIM__CU_CONTEXT_IS_DESTROYED = 709,
    BRIM__CU_ASSERT = 710,
    BRIM__CU_HARDWARE_STACK_ERROR = 714,
    BRIM__CU_ILLEGAL_INSTRUCTION = 715,
    BRIM__CU_MISALIGNED_ADDRESS = 716,
    BRIM__CU_INVALID_ADDRESS_SPACE = 717,
    BRIM__CU_INVALID_PC = 718,
    BRIM__CU_LAUNCH_FAILED = 719,
    BRIM__CU_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    BRIM__CU_TENSOR_MEMORY_LEAK = 721,
    BRIM__CU_SYSTEM_NOT_READY = 802,
    BRIM__CU_MPS_CLIENT_TERMINATED = 810,
    BRIM__CU_UNKNOWN = 999,
};

enum { /* CUdevice_attribute */
       BRIM__CU_CLOCK_RATE = 13,
       BRIM__CU_MULTIPROCESSOR_COUNT = 16,
       BRIM__CU_L2_CACHE_SIZE = 38,
       BRIM__CU_CAPABILITY_MAJOR = 75,
       BRIM__CU_CAPABILITY_MINOR = 76,
       BRIM__CU_COOPERATIVE_LAUNCH = 95,
       BRIM__CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

enum {
    BRIM__CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8, /* CUfunction_attribute */
    BRIM__CU_STREAM_NON_BLOCKING = 1,
    BRIM__CU_EVENT_DEFAULT = 0,
    BRIM__CU_MEMHOSTALLOC_PORTABLE = 1,
    BRIM__CU_MEMHOSTALLOC_DEVICEMAP = 2,
    BRIM__CU_JIT_ERROR_LOG_BUFFER = 5, /* CUjit_option */
    BRIM__CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
};

/* The only symbol of the library that is looked up by name; there since 12.0. The status says
 * whether the symbol is unknown or too new. */
typedef brim__cu_result brim__cu_get_proc_address(const char *symbol, void **out, int version,
                                                  uint64_t flags, int *status);

enum { BRIM__CU_VERSION_MIN = 12000 };

/* X(field, symbol, version of its interface, required, parameters) */
#define BRIM__CU_FUNCTION_LIST(X)                                                                  \
    X(get_error_name, "cuGetErrorName", 6000, 1, (brim__cu_result, const char **))                 \
    X(get_error_string, "cuGetErrorString", 6000, 1, (brim__cu_result, const char **))             \
    X(init, "cuInit", 2000, 1, (unsigned))                                                         \
    X(driver_get_version, "cuDriverGetVersion", 2020, 1, (int *))                                  \
    X(device_get_count, "cuDeviceGetCount", 2000, 1, (int *))                                      \
    X(device_get, "cuDeviceGet", 2000, 1, (brim__cu_device *, int))                                \
    X(device_get_name, "cuDeviceGetName", 2000, 1, (char *, int, brim__cu_device))                 \
    X(device_total_mem, "cuDeviceTotalMem", 3020, 1, (size_t *, brim__cu_device))                  \
    X(device_get_attribute, "cuDeviceGetAttribute", 2000, 1, (int *, int, brim__cu_device))        \
    X(device_get_pci_bus_id, "cuDeviceGetPCIBusId", 4010, 1, (char *, int, brim__cu_device))       \
    X(primary_ctx_retain, "cuDevicePrimaryCtxRetain", 7000, 1,                                     \
      (brim__cu_context *, brim__cu_device))                                                       \
    X(primary_ctx_release, "cuDevicePrimaryCtxRelease", 11000, 1, (brim__cu_device))               \
    X(ctx_set_current, "cuCtxSetCurrent", 4000, 1, (brim__cu_context))                             \
    X(mem_get_info, "cuMemGetInfo", 3020, 1, (size_t *, size_t *))                                 \
    X(mem_alloc, "cuMemAlloc", 3020, 1, (brim__cu_address *, size_t))                              \
    X(mem_free, "cuMemFree", 3020, 1, (brim__cu_address))                                          \
    X(mem_host_alloc, "cuMemHostAlloc", 2020, 1, (void **, size_t, unsigned))                      \
    X(mem_free_host, "cuMemFreeHost", 2000, 1, (void *))                                           \
    X(mem_host_get_device_pointer, "cuMemHostGetDevicePointer", 3020, 1,                           \
      (brim__cu_address *, void *, unsigned))                                                      \
    X(memcpy_htod_async, "cuMemcpyHtoDAsync", 3020, 1,                                             \
      (brim__cu_address, const void *, size_t, brim__cu_stream))                                   \
    X(memcpy_dtoh_async, "cuMemcpyDtoHAsync", 3020, 1,                                             \
      (void *, brim__cu_address, size_t, brim__cu_stream))                                         \
    X(memcpy_dtod_async, "cuMemcpyDtoDAsync", 3020, 1,                                             \
      (brim__cu_address, brim__cu_address, size_t, brim__cu_stream))                               \
    X(memset_d32_async, "cuMemsetD32Async", 3020, 1,                                               \
      (brim__cu_address, unsigned, size_t, brim__cu_stream))                                       \
    X(stream_create, "cuStreamCreate", 2000, 1, (brim__cu_stream *, unsigned))                     \
    X(stream_destroy, "cuStreamDestroy", 4000, 1, (brim__cu_stream))                               \
    X(stream_synchronize, "cuStreamSynchronize", 2000, 1, (brim__cu_stream))                       \
    X(stream_query, "cuStreamQuery", 2000, 1, (brim__cu_stream))                                   \
    X(module_load_data_ex, "cuModuleLoadDataEx", 2010, 1,                                          \
      (brim__cu_module *, const void *, unsigned, int *, void **))                                 \
    X(module_unload, "cuModuleUnload", 2000, 1, (brim__cu_module))                                 \
    X(module_get_function, "cuModuleGetFunction", 2000, 1,                                         \
      (brim__cu_function *, brim__cu_module, const char *))                                        \
    X(func_set_attribute, "cuFuncSetAttribute", 9000, 1, (brim__cu_function, int, int))            \
    X(func_get_param_info, "cuFuncGetParamInfo", 12040, 0,                                         \
      (brim__cu_function, size_t, size_t *, size_t *))                                             \
    X(occupancy_max_blocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050, 1,                \
      (int *, brim__cu_function, int, size_t))                                                     \
    X(launch_kernel, "cuLaunchKernel", 4000, 1,                                                    \
      (brim__cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,    \
       brim__cu_stream, void **, void **))                                                         \
    X(launch_cooperative_kernel, "cuLaunchCooperativeKernel", 9000, 1,                             \
      (brim__cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,    \
       brim__cu_stream, void **))                                                                  \
    X(event_create, "cuEventCreate", 2000, 1, (brim__cu_event *, unsigned))                        \
    X(event_destroy, "cuEventDestroy", 4000, 1, (brim__cu_event))                                  \
    X(event_record, "cuEventRecord", 2000, 1, (brim__cu_event, brim__cu_stream))                   \
    X(event_elapsed_time, "cuEventElapsedTime", 2000, 1, (float *, brim__cu_event, brim__cu_event))

typedef struct brim__cu_api {
#define BRIM__CU_FIELD(field, symbol, version, required, parameters)                               \
    brim__cu_result(*field) parameters;
    BRIM__CU_FUNCTION_LIST(BRIM__CU_FIELD)
#undef BRIM__CU_FIELD
} brim__cu_api;

#endif
