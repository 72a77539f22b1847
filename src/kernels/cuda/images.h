/* images.h: the device code that is embedded in the library: one interpreter source, several images.
 * A build without nvcc has none. */
#ifndef BRIM_KERNELS_CUDA_IMAGES_H
#define BRIM_KERNELS_CUDA_IMAGES_H

#include <stddef.h>

#include "brim/dtype.h"

typedef struct brim__cuda_image {
    const char *name;  /* "resident_bf16_hs64_r1" */
    const char *arch;  /* "sm_90a", or "compute_80" for PTX that the driver compiles */
    const void *data;  /* 0-terminated if it is PTX */
    size_t size;
    int capability;    /* least: 80, 90; an 'a' architecture needs exactly it */
    bool exact;        /* runs on that capability alone */
    brim_dtype type;   /* of resident images: BF16 or F16; F32 for probes */
    int head_size, rows; /* 0 for others */
} brim__cuda_image;

extern const brim__cuda_image brim__cuda_images[];
extern const size_t brim__cuda_image_count;

/* The image with this name for a device of this capability: the exact one first, then the generic
 * one. NULL when there is none. */
const brim__cuda_image *brim__cuda_image_find(const char *name, int capability, bool generic_only);

#endif
