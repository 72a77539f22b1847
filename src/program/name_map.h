/* name_map.h: from names to indices, for lists whose length is known: open addressing. The names
 * belong to the caller and must outlive the map. */
#ifndef BRIM_PROGRAM_NAME_MAP_H
#define BRIM_PROGRAM_NAME_MAP_H

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "brim/program.h"

typedef struct brim__name_map {
    const char **names;
    uint32_t *values;
    size_t mask; /* slots - 1; at most half of them are used */
} brim__name_map;

static inline brim_status brim__name_map_init(brim__name_map *map, brim_context *ctx, size_t count)
{
    size_t slots = 8;
    while (slots < 2 * count + 2)
        slots *= 2;
    map->mask = slots - 1;
    BRIM_CALLOC(ctx, map->names, slots);
    BRIM_CALLOC(ctx, map->values, slots);
    return BRIM_OK;
}

static inline void brim__name_map_done(brim__name_map *map, brim_context *ctx)
{
    brim__free(ctx, (void *)map->names);
    brim__free(ctx, map->values);
}

static inline size_t brim__name_map_slot(const brim__name_map *map, const char *name)
{
    size_t slot = (size_t)brim__hash64(name, strlen(name), 0) & map->mask;
    while (map->names[slot] && strcmp(map->names[slot], name) != 0)
        slot = (slot + 1) & map->mask;
    return slot;
}

/* The value, or BRIM_NONE. */
static inline uint32_t brim__name_map_find(const brim__name_map *map, const char *name)
{
    size_t slot = brim__name_map_slot(map, name);
    return map->names[slot] ? map->values[slot] : BRIM_NONE;
}

/* False when the name is there already. */
static inline bool brim__name_map_add(brim__name_map *map, const char *name, uint32_t value)
{
    size_t slot = brim__name_map_slot(map, name);
    if (map->names[slot])
        return false;
    map->names[slot] = name;
    map->values[slot] = value;
    return true;
}

#endif
