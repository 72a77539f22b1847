/* text_stream.c: bytes as they are generated become text that may be shown.
 *
 * Two stages, both a function of the bytes alone, however they are split into pushes:
 *   1. bytes become whole characters; a maximal subpart that is not UTF-8 becomes one U+FFFD (The
 *      Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts"),
 *   2. characters run through one matcher a stop string (Knuth, Morris and Pratt 1977). The stop
 *      that completes first wins; of several that end together, the longest.
 * What is held back is the longest end of the text that begins a stop string. Stop strings are
 * UTF-8, so that it begins and ends between characters.
 */
#include <assert.h>
#include <string.h>

#include "base/text.h"
#include "brim/llm.h"

enum { STOP_COUNT_MAX = 16, STOP_SIZE_MAX = 256, CHARACTER_MAX = 4 };

static const char replacement[] = "\xEF\xBF\xBD";

typedef struct stop_matcher {
    char text[STOP_SIZE_MAX + 1];
    size_t size;
    /* fallback[n]: the longest proper end of text[0..n) that is also its beginning */
    uint16_t fallback[STOP_SIZE_MAX + 1];
    size_t matched; /* bytes of text that the end of what was pushed agrees with; below size */
} stop_matcher;

struct brim_text_stream {
    brim_context *ctx;
    brim__string text; /* of this push; begins with what was held back */
    char held[STOP_SIZE_MAX];
    size_t held_size;
    char character[CHARACTER_MAX]; /* bytes that do not yet make a character */
    size_t character_size;
    bool stopped;
    size_t stop_count;
    stop_matcher stops[STOP_COUNT_MAX];
};

static void matcher_init(stop_matcher *m, const char *text, size_t size)
{
    memcpy(m->text, text, size);
    m->size = size;
    size_t matched = 0;
    for (size_t n = 1; n < size; n++) {
        while (matched && text[n] != text[matched])
            matched = m->fallback[matched];
        matched += text[n] == text[matched];
        m->fallback[n + 1] = (uint16_t)matched;
    }
}

/* True when this byte completes the stop string. */
static bool matcher_take(stop_matcher *m, char byte)
{
    while (m->matched && m->text[m->matched] != byte)
        m->matched = m->fallback[m->matched];
    m->matched += m->text[m->matched] == byte;
    return m->matched == m->size;
}

static brim_status check_stop(const char *stop, size_t index)
{
    BRIM_FAIL_IF(!stop, USAGE, "text.stop", "stop string %zu is a null pointer", index + 1);
    size_t size = strnlen(stop, STOP_SIZE_MAX + 1);
    BRIM_FAIL_IF(size == 0, USAGE, "text.stop",
                 "stop string %zu is empty; it must have 1 to %d bytes", index + 1, STOP_SIZE_MAX);
    BRIM_FAIL_IF(size > STOP_SIZE_MAX, USAGE, "text.stop",
                 "stop string %zu is longer than %d bytes", index + 1, STOP_SIZE_MAX);
    size_t bad = brim__utf8_check(stop, size);
    BRIM_FAIL_IF(bad < size, USAGE, "text.stop",
                 "stop string %zu is not UTF-8 at byte %zu (0x%02x); it could never be found",
                 index + 1, bad, (unsigned char)stop[bad]);
    return BRIM_OK;
}

brim_status brim_text_stream_create(brim_text_stream **out, brim_context *ctx,
                                    const char *const *stops, size_t stop_count)
{
    BRIM_FAIL_IF(stop_count > STOP_COUNT_MAX, USAGE, "text.stops",
                 "%zu stop strings are more than the %d that are allowed", stop_count,
                 STOP_COUNT_MAX);
    for (size_t i = 0; i < stop_count; i++)
        BRIM_TRY(check_stop(stops[i], i));
    brim_text_stream *stream;
    BRIM_CALLOC(ctx, stream, 1);
    stream->ctx = ctx;
    stream->text.ctx = ctx;
    stream->stop_count = stop_count;
    for (size_t i = 0; i < stop_count; i++)
        matcher_init(&stream->stops[i], stops[i], strlen(stops[i]));
    *out = stream;
    return BRIM_OK;
}

void brim_text_stream_destroy(brim_text_stream *stream)
{
    if (!stream)
        return;
    brim__string_done(&stream->text);
    brim__free(stream->ctx, stream);
}

/* Appends one whole character; when it completes a stop string, cuts the text before that. */
static brim_status take_character(brim_text_stream *stream, const char *bytes, size_t size)
{
    BRIM_TRY(brim__string_append(&stream->text, bytes, size));
    size_t found = 0;
    for (size_t i = 0; i < stream->stop_count; i++) {
        stop_matcher *m = &stream->stops[i];
        bool complete = false;
        for (size_t k = 0; k < size; k++)
            complete = matcher_take(m, bytes[k]);
        if (complete && m->size > found)
            found = m->size;
    }
    if (!found)
        return BRIM_OK;
    assert(found <= stream->text.size);
    stream->stopped = true;
    stream->text.size -= found;
    return BRIM_OK;
}

/* Bytes at the start of bytes[0..size), which is no character, that one U+FFFD stands for. */
static size_t maximal_subpart(const char *bytes, size_t size)
{
    for (size_t n = size < CHARACTER_MAX ? size : CHARACTER_MAX - 1; n > 1; n--)
        if (brim__utf8_incomplete_tail(bytes, n) == n)
            return n;
    return 1;
}

/* Takes from stream->character what is decided: whole characters, and bytes that can't become one.
 * With `end` nothing more will come. */
static brim_status settle(brim_text_stream *stream, bool end)
{
    char *bytes = stream->character;
    while (stream->character_size && !stream->stopped) {
        uint32_t codepoint;
        size_t size = stream->character_size;
        size_t n = brim__utf8_decode(&codepoint, bytes, size);
        if (n == 0 && !end && brim__utf8_incomplete_tail(bytes, size) == size)
            return BRIM_OK;
        if (n) {
            BRIM_TRY(take_character(stream, bytes, n));
        } else {
            n = maximal_subpart(bytes, size);
            BRIM_TRY(take_character(stream, replacement, sizeof replacement - 1));
        }
        stream->character_size -= n;
        memmove(bytes, bytes + n, stream->character_size);
    }
    return BRIM_OK;
}

/* Puts what was held back in front of the new text. */
static brim_status begin_text(brim_text_stream *stream)
{
    stream->text.size = 0;
    return brim__string_append(&stream->text, stream->held, stream->held_size);
}

/* Hands the text out, without its last `held` bytes, which are kept for later. */
static void hand_out(const char **out, size_t *out_size, brim_text_stream *stream, size_t held)
{
    assert(held <= stream->text.size && held < STOP_SIZE_MAX);
    stream->text.size -= held;
    memcpy(stream->held, stream->text.data + stream->text.size, held);
    stream->held_size = held;
    stream->text.data[stream->text.size] = 0;
    *out = stream->text.data;
    *out_size = stream->text.size;
}

static void hand_out_nothing(const char **out, size_t *out_size)
{
    *out = "";
    *out_size = 0;
}

brim_status brim_text_stream_push(const char **out, size_t *out_size, bool *out_stopped,
                                  brim_text_stream *stream, const char *bytes, size_t size)
{
    *out_stopped = stream->stopped;
    hand_out_nothing(out, out_size);
    if (stream->stopped)
        return BRIM_OK;
    BRIM_TRY(begin_text(stream));
    for (size_t i = 0; i < size && !stream->stopped; i++) {
        stream->character[stream->character_size++] = bytes[i];
        BRIM_TRY(settle(stream, false));
    }
    size_t held = 0;
    for (size_t i = 0; i < stream->stop_count && !stream->stopped; i++)
        held = stream->stops[i].matched > held ? stream->stops[i].matched : held;
    hand_out(out, out_size, stream, held);
    *out_stopped = stream->stopped;
    return BRIM_OK;
}

brim_status brim_text_stream_finish(const char **out, size_t *out_size, brim_text_stream *stream)
{
    hand_out_nothing(out, out_size);
    if (stream->stopped)
        return BRIM_OK;
    BRIM_TRY(begin_text(stream));
    BRIM_TRY(settle(stream, true));
    hand_out(out, out_size, stream, 0);
    stream->stopped = true; /* later calls give nothing */
    return BRIM_OK;
}
