/* cuda_state.h: what the files of the CUDA back end share: an open device, and how a driver call is
 * checked. Once a call has said that the context is dead, no other call reaches the driver but the
 * one that lets the context go: that frees all there was in it. */
#ifndef BRIM_DEVICE_CUDA_STATE_H
#define BRIM_DEVICE_CUDA_STATE_H

#include "device/cuda.h"
#include "device/cuda_driver.h"

enum { BRIM__CUDA_STREAM_COUNT = 2, BRIM__CUDA_STAGING_BYTES = 1 << 20 };

typedef struct brim__cuda_state {
    const brim__cu_api *api;
    brim__cu_device handle;
    brim__cu_context context; /* NULL: not retained */
    brim__cu_stream streams[BRIM__CUDA_STREAM_COUNT];
    /* Pinned: small copies through it never make the driver wait for a running program. */
    char *staging;
    brim__cuda_facts facts;
    char name[96], pci_bus_id[32];
    uint32_t mapped_count; /* blocks not freed yet */
    /* The last function that was made ready for a launch, and with what. */
    brim__cu_function ready_function;
    uint32_t ready_shared_bytes;
    size_t ready_parameter_bytes;
    bool lost;
    char lost_why[320];
} brim__cuda_state;

static inline brim__cuda_state *brim__cuda_state_of(const brim_device *device)
{
    return device->state;
}

/* The status of a driver call. `call` is its name. */
brim_status brim__cuda_check(brim_device *device, brim__cu_result result, const char *call);
/* Before the first driver call of a function: is the device alive? Makes its context current. */
brim_status brim__cuda_enter(brim_device *device);
/* The same for functions that free: false when there is nothing to call the driver for. */
bool brim__cuda_enter_to_free(brim_device *device);

/* The symbols by field, for messages. */
typedef struct brim__cuda_symbols {
#define BRIM__CUDA_SYMBOL(field, symbol, version, required, parameters) const char *field;
    BRIM__CU_FUNCTION_LIST(BRIM__CUDA_SYMBOL)
#undef BRIM__CUDA_SYMBOL
} brim__cuda_symbols;
extern const brim__cuda_symbols brim__cuda_symbol_names;

/* A driver call with its check: BRIM_TRY(BRIM__CU(device, mem_free, address)). */
#define BRIM__CU(device, field, ...)                                                               \
    brim__cuda_check((device), brim__cuda_state_of(device)->api->field(__VA_ARGS__),               \
                     brim__cuda_symbol_names.field)

#endif
