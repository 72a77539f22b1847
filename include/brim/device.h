/* brim/device.h: where programs run and their memory lives.
 *
 * A device owns memory; memory has a home device and moves by copies. Memory of some devices can
 * be touched by the host too (the CPU's), that of others only be copied from and to. A device and
 * its memory are used by one thread at a time; copies are done when the call returns.
 */
#ifndef BRIM_DEVICE_H
#define BRIM_DEVICE_H

#include "brim/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* name, text. CPU: the host itself. DUMMY: for tests; its memory can't be touched by the host, it
 * counts the calls that reach it and fails one of them when told to. CUDA: an NVIDIA GPU; its
 * driver is opened at run time, so that a machine without one runs the same program. */
#define BRIM_DEVICE_LIST(X)                                                                        \
    X(CPU, "cpu")                                                                                  \
    X(DUMMY, "dummy")                                                                              \
    X(CUDA, "cuda")

typedef enum brim_device_kind {
#define BRIM_DEVICE_ENUM(name, text) BRIM_DEVICE_##name,
    BRIM_DEVICE_LIST(BRIM_DEVICE_ENUM)
#undef BRIM_DEVICE_ENUM
        BRIM_DEVICE_COUNT
} brim_device_kind;

BRIM_API const char *brim_device_kind_name(brim_device_kind kind);
/* The kind with this name; false when there is none. */
BRIM_API bool brim_device_kind_parse(brim_device_kind *out, const char *name);
/* "cpu", "cuda" (the first), "cuda:1". Says nothing about whether the device is there. Errors:
 * USAGE, id "device.name". */
BRIM_API brim_status brim_device_parse(brim_device_kind *out_kind, uint32_t *out_index,
                                       const char *text);

/* How many devices of this kind can be opened here; 0 where the driver is missing or broken. */
BRIM_API uint32_t brim_device_count(brim_device_kind kind);
/* OK when this device can probably be opened; otherwise the error that opening it would give, whose
 * message is the reason. Cheap: no context is made on the device. */
BRIM_API brim_status brim_device_usable(brim_device_kind kind, uint32_t index);

typedef struct brim_device brim_device;
typedef struct brim_device_memory brim_device_memory;

typedef struct brim_device_info {
    brim_device_kind kind;
    char name[96];
    uint32_t lane_count_max; /* lanes that execute at the same time; CUDA: multiprocessors (SMs) */
    uint64_t memory_bytes;   /* in all, whoever uses it; 0: unknown */
    bool host_accessible;    /* brim_device_memory_host() gives a pointer */
    uint32_t index;          /* among the devices of its kind */
    uint32_t capability;     /* CUDA: 90 for compute capability 9.0; else 0 */
    uint32_t clock_mhz_max;  /* 0: unknown */
    uint64_t memory_free_bytes; /* now; 0: unknown */
    char driver[64];            /* CUDA: "CUDA 13.0, driver 580.159.04"; else "" */
} brim_device_info;

/* Opens a device; the same one may be opened several times. CUDA: makes the device's primary
 * context current to every thread that calls. Errors: USAGE, id "device.kind"; NOT_FOUND, ids
 * "device.index", "cuda.index" (there is no such device: how many there are), "cuda.absent" (no
 * driver); SYSTEM "cuda.init" (the driver does not start); UNSUPPORTED "cuda.driver_old";
 * NO_MEMORY.
 *
 * Calls on an open CUDA device may also fail with NO_MEMORY "memory.device" (what was asked for,
 * what is free), SYSTEM "cuda.call" (which driver call, and the driver's words) and SYSTEM
 * "cuda.lost": its context is dead and every later call fails the same way; all that can still be
 * done, and must be, is to free its memory and close it. Other devices go on. */
BRIM_API brim_status brim_device_open_index(brim_device **out, brim_context *ctx,
                                            brim_device_kind kind, uint32_t index);
/* The first device of its kind. */
BRIM_API brim_status brim_device_open(brim_device **out, brim_context *ctx, brim_device_kind kind);
/* Its memory must have been freed before: what is left is a bug of the caller, which is logged.
 * NULL is allowed. */
BRIM_API void brim_device_close(brim_device *device);
BRIM_API brim_status brim_device_query(brim_device_info *out, brim_device *device);

/* Memory of `size` bytes, 1 or more, aligned to 64; its content is undefined. Errors: USAGE, id
 * "device.size"; NO_MEMORY (of a CUDA device: id "memory.device"). */
BRIM_API brim_status brim_device_alloc(brim_device_memory **out, brim_device *device, size_t size);
/* NULL is allowed. */
BRIM_API void brim_device_free(brim_device_memory *memory);
BRIM_API size_t brim_device_memory_size(const brim_device_memory *memory);
BRIM_API brim_device *brim_device_memory_home(const brim_device_memory *memory);
/* The bytes themselves; NULL when the host can't touch them. */
BRIM_API void *brim_device_memory_host(brim_device_memory *memory);

/* From the host, to the host, and from memory to memory of the same or of another device. The
 * ranges of one memory may overlap. Errors: USAGE, id "device.range" (past the end: what, where).
 */
BRIM_API brim_status brim_device_write(brim_device_memory *to, size_t offset, const void *from,
                                       size_t size);
BRIM_API brim_status brim_device_read(void *to, const brim_device_memory *from, size_t offset,
                                      size_t size);
BRIM_API brim_status brim_device_copy(brim_device_memory *to, size_t to_offset,
                                      const brim_device_memory *from, size_t from_offset,
                                      size_t size);

/* The dummy's calls (query, alloc, free, write, read, copy) so far; 0 for other devices. */
BRIM_API uint64_t brim_device_dummy_calls(const brim_device *device);
/* Makes the dummy's n-th call from now (1: the next) fail with SYSTEM, id "device.dummy"; 0: none.
 * A free that fails still frees. Errors: USAGE for another device. */
BRIM_API brim_status brim_device_dummy_fail_at(brim_device *device, uint64_t n);

/* ---- what a GPU reaches ---- */

#define BRIM_DEVICE_READS_MAX 16
#define BRIM_DEVICE_RATES_MAX 8

/* The median of some runs, with the least and the most. */
typedef struct brim_device_figure {
    double median, least, most;
} brim_device_figure;

typedef struct brim_device_probed {
    uint32_t read_count;
    struct {
        uint64_t bytes; /* read again and again by all multiprocessors: what fits stays in the L2 */
        brim_device_figure gb_s;
    } reads[BRIM_DEVICE_READS_MAX];
    uint32_t rate_count;
    struct {
        const char *type;         /* "f32", "f16", "bf16", "s8" */
        const char *how;          /* the instruction: "fma", "mma.sync", "dp4a" */
        brim_device_figure gop_s; /* 1e9 multiplications and additions (counted as two) a second */
    } rates[BRIM_DEVICE_RATES_MAX];
    uint32_t barrier_blocks;       /* one a multiprocessor */
    brim_device_figure barrier_ns; /* a barrier of all of them, through one counter */
    brim_device_figure packet_ns;  /* a word from one multiprocessor to another; over some pairs */
    brim_device_figure
        mailbox_ns; /* a word from the host to a running kernel; half of there and back */
    brim_device_figure launch_ns;      /* of one of many empty kernels, back to back */
    brim_device_figure launch_wait_ns; /* one empty kernel, launched and waited for */
    brim_device_figure copy_to_gb_s;   /* 1e9 bytes a second from pinned memory of the host */
    brim_device_figure copy_from_gb_s; /* and to it */
    brim_device_figure read_word_ns;   /* brim_device_read() of 4 bytes */
    uint32_t sm_mhz, memory_mhz;       /* clocks after the work; 0: unknown */
    uint32_t power_mw;                 /* then, too */
} brim_device_probed;

/* Measures it all in a few seconds; needs a CUDA device and a build with device code, uses up to 4
 * GiB of its memory. `progress` may be NULL. Errors: UNSUPPORTED, ids "device.probe" (no such
 * device), "cuda.image" (no device code for it); SYSTEM "cuda.stuck" (a wait did not end within two
 * seconds); those of the device. */
BRIM_API brim_status brim_device_probe(brim_device_probed *out, brim_device *device,
                                       void (*progress)(const char *what, void *user), void *user);

#ifdef __cplusplus
}
#endif
#endif
