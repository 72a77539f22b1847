/* status.c: status names and this thread's last message. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 1024, ID_BYTES = 64 };

static _Thread_local char last_message[MESSAGE_BYTES];
static _Thread_local char last_id[ID_BYTES];

const char *brim_status_name(brim_status status)
{
    switch (status) {
#define STATUS_NAME(code, value, text)                                                             \
    case BRIM_##code:                                                                              \
        return #code;
        BRIM_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

const char *brim_status_text(brim_status status)
{
    switch (status) {
#define STATUS_TEXT(code, value, text)                                                             \
    case BRIM_##code:                                                                              \
        return text;
        BRIM_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "not a status";
}

const char *brim_last_message(void)
{
    return last_message;
}

const char *brim_last_id(void)
{
    return last_id;
}

brim_status brim__fail(brim_status code, const char *id, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(last_message, sizeof last_message, fmt, args);
    va_end(args);
    snprintf(last_id, sizeof last_id, "%s", id);
    return code;
}

void brim__fail_prefix(const char *fmt, ...)
{
    char old[MESSAGE_BYTES];
    memcpy(old, last_message, sizeof old);
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(last_message, sizeof last_message, fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof last_message)
        snprintf(last_message + n, sizeof last_message - (size_t)n, ": %s", old);
}

const char *brim_version(void)
{
#define VERSION_TEXT2(a, b, c) #a "." #b "." #c
#define VERSION_TEXT(a, b, c) VERSION_TEXT2(a, b, c)
    return VERSION_TEXT(BRIM_VERSION_MAJOR, BRIM_VERSION_MINOR, BRIM_VERSION_PATCH);
}
