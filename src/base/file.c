/* file.c: mapping, reading and writing files. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static brim_status open_failed(const char *path)
{
    if (errno == ENOENT || errno == ENOTDIR)
        return brim__fail(BRIM_NOT_FOUND, "file.absent", "%s: no such file", path);
    return brim__fail(BRIM_IO, "file.open", "%s: cannot open: %s", path, strerror(errno));
}

brim_status brim__map_open(brim__map *out, const char *path)
{
    *out = (brim__map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return open_failed(path);
    struct stat st;
    brim_status status = BRIM_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        status = brim__fail(BRIM_IO, "file.kind", "%s: not a regular file", path);
    } else if (st.st_size > 0) {
        void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = brim__fail(BRIM_IO, "file.map", "%s: cannot map: %s", path, strerror(errno));
        else
            *out = (brim__map){data, (size_t)st.st_size};
    }
    close(fd);
    return status;
}

void brim__map_close(brim__map *map)
{
    if (map->data)
        munmap((void *)map->data, map->size);
    *map = (brim__map){0};
}

void brim__map_release(const brim__map *map, size_t offset, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t start = (offset + page - 1) / page * page;
    size_t end = (offset + size) / page * page;
    if (end > start)
        madvise((void *)(map->data + start), end - start, MADV_DONTNEED);
}

static brim_status read_stream(char **out, size_t *out_size, brim_context *ctx, FILE *file,
                               const char *path, size_t limit)
{
    char *text = NULL;
    size_t size = 0, capacity = 0;
    for (;;) {
        brim_status status = brim__grow(ctx, (void **)&text, &capacity, size + 65536, 1);
        if (status != BRIM_OK) {
            brim__free(ctx, text);
            return status;
        }
        size_t got = fread(text + size, 1, capacity - size - 1, file);
        size += got;
        if (size > limit) {
            brim__free(ctx, text);
            BRIM_FAIL(LIMIT, "file.large", "%s: larger than the limit of %zu bytes", path, limit);
        }
        if (got == 0)
            break;
    }
    if (ferror(file)) {
        brim__free(ctx, text);
        BRIM_FAIL(IO, "file.read", "%s: cannot read: %s", path, strerror(errno));
    }
    text[size] = 0;
    *out = text;
    *out_size = size;
    return BRIM_OK;
}

brim_status brim__read_file(char **out, size_t *out_size, brim_context *ctx, const char *path,
                            size_t limit)
{
    *out = NULL;
    *out_size = 0;
    if (strcmp(path, "-") == 0)
        return read_stream(out, out_size, ctx, stdin, "standard input", limit);
    FILE *file = fopen(path, "rbe");
    if (!file)
        return open_failed(path);
    brim_status status = read_stream(out, out_size, ctx, file, path, limit);
    fclose(file);
    return status;
}

brim_status brim__write_file(const char *path, const void *data, size_t size)
{
    char temporary[4096];
    int n = snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
    BRIM_FAIL_IF(n < 0 || (size_t)n >= sizeof temporary, USAGE, "file.path", "path is too long");
    FILE *file = fopen(temporary, "wbe");
    BRIM_FAIL_IF(!file, IO, "file.write", "%s: cannot create: %s", path, strerror(errno));
    bool good = fwrite(data, 1, size, file) == size;
    good = fclose(file) == 0 && good;
    if (!good || rename(temporary, path) != 0) {
        int saved = errno;
        remove(temporary);
        BRIM_FAIL(IO, "file.write", "%s: cannot write: %s", path, strerror(saved));
    }
    return BRIM_OK;
}
