/* probe_cache.c: the probe of this machine, kept on disk. One file a key, so that a home shared by
 * several machines keeps them apart; the key stands in the file too, and is compared. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/thread.h"
#include "hw/hw.h"

enum { CACHE_FILE_MAX = 64 << 10, PATH_BYTES = 4096 };

void brim__probe_key_here(brim__probe_key *out)
{
    struct utsname os;
    memset(out, 0, sizeof *out);
    brim__cpu_name(out->cpu_name, sizeof out->cpu_name);
    out->thread_count = brim__cpu_count();
    if (uname(&os) == 0)
        snprintf(out->kernel, sizeof out->kernel, "%s", os.release);
}

/* The cache's folder, by the XDG base directory specification: a relative $XDG_CACHE_HOME does not
 * count. */
static brim_status cache_folder(char *out, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && cache[0] == '/')
        n = snprintf(out, size, "%s/brim", cache);
    else if (home && home[0] == '/')
        n = snprintf(out, size, "%s/.cache/brim", home);
    BRIM_FAIL_IF(n < 0 || (size_t)n >= size, NOT_FOUND, "hw.no_cache",
                 "there is no cache folder: set HOME or XDG_CACHE_HOME to an absolute path");
    return BRIM_OK;
}

static brim_status cache_path(char *out, size_t size, const brim__probe_key *key)
{
    char folder[PATH_BYTES];
    BRIM_TRY(cache_folder(folder, sizeof folder));
    uint64_t hash = brim__hash64(key, sizeof *key, 0);
    int n = snprintf(out, size, "%s/probe-%016llx.json", folder, (unsigned long long)hash);
    BRIM_FAIL_IF(n < 0 || (size_t)n >= size, NOT_FOUND, "hw.no_cache",
                 "the path of the cache folder is too long");
    return BRIM_OK;
}

/* Makes the folders of a path, all but its last part. */
static brim_status make_folders(char *path)
{
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        int failed = mkdir(path, 0700) != 0 && errno != EEXIST ? errno : 0;
        if (failed)
            brim__fail(BRIM_IO, "hw.no_cache", "%s: cannot make this folder: %s", path,
                       strerror(failed));
        *p = '/';
        if (failed)
            return BRIM_IO;
    }
    return BRIM_OK;
}

brim_status brim_hw_probe_load(brim_hw_probe *out, brim_context *ctx)
{
    brim__probe_key key;
    char path[PATH_BYTES], *text;
    size_t size;
    memset(out, 0, sizeof *out);
    brim__probe_key_here(&key);
    BRIM_TRY(cache_path(path, sizeof path, &key));
    brim_status status = brim__read_file(&text, &size, ctx, path, CACHE_FILE_MAX);
    if (status == BRIM_NO_MEMORY)
        return status;
    if (status == BRIM_OK) {
        brim_hw_probe probe;
        status = brim__probe_from_text(&probe, text, size, &key);
        if (status == BRIM_OK)
            *out = probe;
        else
            brim__log(ctx, BRIM_LOG_INFO, "%s: %s", path, brim_last_message());
        brim__free(ctx, text);
    }
    BRIM_FAIL_IF(status != BRIM_OK, NOT_FOUND, "hw.no_probe",
                 "%s: there is no probe of this machine: `brim hw` makes one", path);
    return BRIM_OK;
}

brim_status brim_hw_probe_save(const brim_hw_probe *probe, brim_context *ctx)
{
    brim__probe_key key;
    char path[PATH_BYTES], *text;
    brim__probe_key_here(&key);
    BRIM_TRY(cache_path(path, sizeof path, &key));
    BRIM_TRY(make_folders(path));
    BRIM_TRY(brim__probe_to_text(&text, ctx, probe, &key));
    brim_status status = brim__write_file(path, text, strlen(text));
    brim__free(ctx, text);
    return status;
}
