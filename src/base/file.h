/* file.h: reading files: mapped read-only, or whole into memory under a limit. */
#ifndef BRIM_BASE_FILE_H
#define BRIM_BASE_FILE_H

#include "base/memory.h"

typedef struct brim__map {
    const uint8_t *data; /* NULL when size is 0 */
    size_t size;
} brim__map;

/* Maps a regular file read-only. Errors: NOT_FOUND, IO (not a regular file, not readable). */
brim_status brim__map_open(brim__map *out, const char *path);
void brim__map_close(brim__map *map);
/* Lets the pages of [offset, offset + size) go; they are read again from the file if touched. */
void brim__map_release(const brim__map *map, size_t offset, size_t size);

/* Reads a whole file ("-" is standard input) of at most `limit` bytes, with a 0 byte after the
 * last; freed with brim__free. Errors: NOT_FOUND, IO, LIMIT. */
brim_status brim__read_file(char **out, size_t *out_size, brim_context *ctx, const char *path,
                            size_t limit);
/* Writes through a temporary file beside `path` and renames it: all or nothing. */
brim_status brim__write_file(const char *path, const void *data, size_t size);

#endif
