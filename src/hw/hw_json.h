/* hw_json.h: what the JSON readers and writers of this room share. */
#ifndef BRIM_HW_HW_JSON_H
#define BRIM_HW_HW_JSON_H

#include <jansson.h>

#include "hw/hw.h"

/* A probe as an object: "buffer_bytes", "read_gb_s", "barrier_ns", "rates", "probed_at". NULL when
 * out of memory. */
json_t *brim__probe_object(const brim_hw_probe *probe);
/* Ends the writing of a document: its text as a block of the context, indented. Takes `root`,
 * which is NULL when something in it could not be made. */
brim_status brim__json_finish(char **out, brim_context *ctx, json_t *root);

/* The keys of a machine description with their legal ranges. */
typedef struct brim__machine_key {
    const char *key;
    size_t offset; /* of the double in brim_machine; lane_count is apart */
    double min, max;
} brim__machine_key;

enum { BRIM__MACHINE_KEY_COUNT = 6 };
extern const brim__machine_key brim__machine_keys[BRIM__MACHINE_KEY_COUNT];
double *brim__machine_field(brim_machine *machine, size_t index);

#endif
