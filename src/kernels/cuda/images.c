/* images.c: which of the embedded device images runs on a device. The table itself is made by the
 * build (tools/embed_images.cmake). */
#include "kernels/cuda/images.h"

#include <string.h>

static bool fits(const brim__cuda_image *image, int capability)
{
    return image->exact ? image->capability == capability : image->capability <= capability;
}

const brim__cuda_image *brim__cuda_image_find(const char *name, int capability, bool generic_only)
{
    const brim__cuda_image *generic = NULL;
    for (size_t i = 0; i < brim__cuda_image_count; i++) {
        const brim__cuda_image *image = &brim__cuda_images[i];
        if (strcmp(image->name, name) != 0 || !fits(image, capability)) {
            continue;
        }
        if (image->exact && !generic_only) {
            return image;
        }
        if (!image->exact && (generic == NULL || image->capability > generic->capability)) {
            generic = image;
        }
    }
    return generic;
}
