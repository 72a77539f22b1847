/* fetch.c: downloads with libcurl. Bytes go to the part file as they come, so that a download that
 * broke off, or that Ctrl-C stopped, goes on where it ended. Whether the server honoured the range
 * is read from the status of its answer before the first byte is written. */
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pull.h"

enum { ATTEMPTS_MAX = 5, CONNECT_SECONDS = 20, STALL_SECONDS = 60, REDIRECTS_MAX = 10 };

typedef struct transfer {
    CURL *curl;
    int fd;
    uint64_t have;  /* bytes in the part file */
    uint64_t bytes; /* wanted in all; 0: unknown */
    bool begun;     /* the answer's status was looked at */
    bool resumed;
    int write_errno;
    bool too_long;
    brim_progress progress;
} transfer;

/* A server that ignores the range answers 200 with the whole file. */
static bool begin_answer(transfer *t)
{
    long code = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    t->begun = true;
    if (code != 206 && t->have > 0) {
        if (ftruncate(t->fd, 0) != 0 || lseek(t->fd, 0, SEEK_SET) < 0)
            return false;
        t->have = 0;
        t->resumed = false;
    }
    return true;
}

static size_t on_bytes(char *data, size_t size, size_t count, void *user)
{
    transfer *t = user;
    size_t left = size * count;
    if (!t->begun && !begin_answer(t)) {
        t->write_errno = errno;
        return 0;
    }
    t->too_long = t->bytes && left > t->bytes - t->have;
    while (left && !t->too_long) {
        ssize_t written = write(t->fd, data, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            t->write_errno = errno ? errno : EIO;
            return 0;
        }
        data += written;
        left -= (size_t)written;
        t->have += (uint64_t)written;
    }
    return t->too_long ? 0 : size * count;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total,
                       curl_off_t up_now)
{
    (void)up_total, (void)up_now;
    transfer *t = user;
    if (!t->progress.total && total > 0 && t->begun)
        t->progress.total = t->have + (uint64_t)(total - now);
    brim_progress_update(&t->progress, t->have);
    return cli_interrupts() > 0;
}

static void set_options(transfer *t, const char *url, char *message)
{
    CURL *curl = t->curl;
    curl_easy_setopt(curl, CURLOPT_URL, url);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "brim");
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, message);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
}

/* Failures of the line, after which trying again can help; a refusal will be repeated. */
static bool is_passing(CURLcode result)
{
    return result == CURLE_PARTIAL_FILE || result == CURLE_RECV_ERROR ||
           result == CURLE_GOT_NOTHING || result == CURLE_OPERATION_TIMEDOUT ||
           result == CURLE_SEND_ERROR;
}

/* One request for what is missing. */
static CURLcode ask(transfer *t, const char *url, char message[CURL_ERROR_SIZE])
{
    char range[32];
    curl_easy_reset(t->curl);
    message[0] = 0;
    set_options(t, url, message);
    t->begun = false;
    if (t->have > 0) {
        snprintf(range, sizeof range, "%llu-", (unsigned long long)t->have);
        curl_easy_setopt(t->curl, CURLOPT_RANGE, range);
    }
    CURLcode result = curl_easy_perform(t->curl);
    long code = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    if (code == 416 && t->have > 0)
        return CURLE_OK; /* the server has no more than is there already */
    return result;
}

static bool explain(pull_error *error, const transfer *t, const char *url, CURLcode result,
                    const char *message)
{
    if (cli_interrupts())
        return pull_fail(error, BRIM_CANCELLED, "pull.interrupted",
                         "stopped; what arrived is kept, and the same command goes on from there");
    if (t->write_errno)
        return pull_fail(error, BRIM_IO, "pull.write", "the download cannot be written: %s",
                         strerror(t->write_errno));
    if (t->too_long)
        return pull_fail(error, BRIM_FORMAT, "pull.size",
                         "%s: sends more than the %llu bytes the model has", url,
                         (unsigned long long)t->bytes);
    if (result == CURLE_OK)
        return pull_fail(error, BRIM_IO, "pull.size", "%s: ended after %llu of %llu bytes", url,
                         (unsigned long long)t->have, (unsigned long long)t->bytes);
    return pull_fail(error, BRIM_IO, "pull.download", "%s: %s", url,
                     *message ? message : curl_easy_strerror(result));
}

static bool transfer_all(pull_error *error, transfer *t, const char *url)
{
    char message[CURL_ERROR_SIZE];
    CURLcode result = CURLE_OK;
    for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        uint64_t before = t->have;
        result = ask(t, url, message);
        bool whole = !t->bytes || t->have == t->bytes;
        if (result == CURLE_OK && whole)
            return true;
        bool moved = t->have > before;
        if (cli_interrupts() || t->write_errno || t->too_long || !moved ||
            (result != CURLE_OK && !is_passing(result)))
            break;
    }
    return explain(error, t, url, result, message);
}

/* Opens the part file for this process alone. */
static int open_part(pull_error *error, const char *part)
{
    int fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        pull_fail(error, BRIM_IO, "pull.write", "%s: cannot create: %s", part, strerror(errno));
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        pull_fail(error, BRIM_STATE, "pull.busy", "%s: another brim pull is writing it", part);
        close(fd);
        return -1;
    }
    return fd;
}

bool pull_fetch(pull_error *error, bool *out_resumed, const char *url, const char *part,
                uint64_t bytes, bool resume)
{
    *out_resumed = false;
    transfer t = {.bytes = bytes, .fd = open_part(error, part)};
    if (t.fd < 0)
        return false;
    off_t there = lseek(t.fd, 0, SEEK_END);
    if (there > 0 && (!resume || (bytes && (uint64_t)there > bytes))) {
        bool emptied = ftruncate(t.fd, 0) == 0 && lseek(t.fd, 0, SEEK_SET) == 0;
        there = emptied ? 0 : -1;
    }
    bool good = there >= 0;
    t.have = good ? (uint64_t)there : 0;
    t.resumed = t.have > 0;
    if (!good) {
        pull_fail(error, BRIM_IO, "pull.write", "%s: cannot write: %s", part, strerror(errno));
    } else if (!bytes || t.have < bytes) {
        t.curl = curl_easy_init();
        if (!t.curl)
            good = pull_fail(error, BRIM_NO_MEMORY, "memory.out", "no memory for a download");
        brim_progress_start(&t.progress, "downloading", bytes, "B");
        good = good && transfer_all(error, &t, url);
        brim_progress_finish(&t.progress);
        curl_easy_cleanup(t.curl);
    }
    *out_resumed = t.resumed;
    if (!good && t.have == 0)
        remove(part);
    close(t.fd);
    return good;
}
