/* text.c: UTF-8, growing strings, numbers from text, edit distance. */
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The Unicode Standard, table 3-7: what the first byte says of the length and of the second byte's
 * range. Every later byte is 80..BF. */
typedef struct utf8_lead {
    uint8_t length; /* 0: no character starts with this byte */
    uint8_t second_min, second_max;
} utf8_lead;

static utf8_lead lead_of(uint8_t byte)
{
    if (byte < 0x80)
        return (utf8_lead){1, 0, 0};
    if (byte < 0xC2)
        return (utf8_lead){0, 0, 0};
    if (byte < 0xE0)
        return (utf8_lead){2, 0x80, 0xBF};
    if (byte < 0xF0)
        return (utf8_lead){3, byte == 0xE0 ? 0xA0 : 0x80, byte == 0xED ? 0x9F : 0xBF};
    if (byte < 0xF5)
        return (utf8_lead){4, byte == 0xF0 ? 0x90 : 0x80, byte == 0xF4 ? 0x8F : 0xBF};
    return (utf8_lead){0, 0, 0};
}

/* How many of the first bytes of text agree with a character of lead->length bytes. */
static size_t utf8_agreeing(const uint8_t *text, size_t size, const utf8_lead *lead)
{
    size_t n = 1;
    if (n < size && n < lead->length && text[1] >= lead->second_min && text[1] <= lead->second_max)
        n++;
    else
        return n;
    while (n < size && n < lead->length && (text[n] & 0xC0) == 0x80)
        n++;
    return n;
}

size_t brim__utf8_decode(uint32_t *out, const char *text, size_t size)
{
    const uint8_t *bytes = (const uint8_t *)text;
    if (size == 0)
        return 0;
    utf8_lead lead = lead_of(bytes[0]);
    if (lead.length == 0 || utf8_agreeing(bytes, size, &lead) < lead.length)
        return 0;
    static const uint8_t lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t codepoint = bytes[0] & lead_mask[lead.length];
    for (size_t i = 1; i < lead.length; i++)
        codepoint = codepoint << 6 | (bytes[i] & 0x3Fu);
    *out = codepoint;
    return lead.length;
}

size_t brim__utf8_encode(char out[4], uint32_t codepoint)
{
    if (codepoint < 0x80) {
        out[0] = (char)codepoint;
        return 1;
    }
    if (codepoint > 0x10FFFF || (codepoint >= 0xD800 && codepoint <= 0xDFFF))
        return 0;
    size_t length = codepoint < 0x800 ? 2 : codepoint < 0x10000 ? 3 : 4;
    static const uint8_t lead_bits[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--, codepoint >>= 6)
        out[i] = (char)(0x80 | (codepoint & 0x3F));
    out[0] = (char)(lead_bits[length] | codepoint);
    return length;
}

size_t brim__utf8_check(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size) {
        uint32_t codepoint;
        size_t n = brim__utf8_decode(&codepoint, text + at, size - at);
        if (n == 0)
            return at;
        at += n;
    }
    return size;
}

size_t brim__utf8_incomplete_tail(const char *text, size_t size)
{
    const uint8_t *bytes = (const uint8_t *)text;
    for (size_t tail = 1; tail <= 3 && tail <= size; tail++) {
        const uint8_t *start = bytes + size - tail;
        if ((*start & 0xC0) == 0x80)
            continue;
        utf8_lead lead = lead_of(*start);
        bool begins = lead.length > tail && utf8_agreeing(start, tail, &lead) == tail;
        return begins ? tail : 0;
    }
    return 0;
}

brim_status brim__string_append(brim__string *s, const void *data, size_t size)
{
    size_t need;
    BRIM_FAIL_IF(!brim__add_size(&need, s->size, size) || !brim__add_size(&need, need, 1),
                 NO_MEMORY, "memory.out", "no memory for a string of %zu and %zu bytes", s->size,
                 size);
    BRIM_TRY(BRIM_GROW(s->ctx, s->data, s->capacity, need));
    if (size)
        memcpy(s->data + s->size, data, size);
    s->size += size;
    s->data[s->size] = 0;
    return BRIM_OK;
}

brim_status brim__string_text(brim__string *s, const char *text)
{
    return brim__string_append(s, text, strlen(text));
}

brim_status brim__string_format(brim__string *s, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    brim_status status = BRIM_OK;
    if (size < 0)
        status = brim__fail(BRIM_USAGE, "text.format", "a format could not be written");
    else
        status = BRIM_GROW(s->ctx, s->data, s->capacity, s->size + (size_t)size + 1);
    if (status == BRIM_OK) {
        vsnprintf(s->data + s->size, (size_t)size + 1, fmt, again);
        s->size += (size_t)size;
    }
    va_end(again);
    return status;
}

void brim__string_done(brim__string *s)
{
    brim__free(s->ctx, s->data);
    *s = (brim__string){.ctx = s->ctx};
}

/* strtoll and its kin skip white space and take "+": here a number starts with a digit, or with a
 * sign and a digit. */
static bool starts_like_integer(const char *text, bool sign)
{
    if (sign && *text == '-')
        text++;
    return isdigit((unsigned char)*text);
}

bool brim__parse_i64(int64_t *out, const char *text, int64_t min, int64_t max)
{
    if (!starts_like_integer(text, true))
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || *end || value < min || value > max)
        return false;
    *out = value;
    return true;
}

static bool parse_digits(uint64_t *out, const char **end, const char *text)
{
    if (!starts_like_integer(text, false))
        return false;
    char *after;
    errno = 0;
    *out = strtoull(text, &after, 10);
    *end = after;
    return errno == 0;
}

bool brim__parse_u64(uint64_t *out, const char *text, uint64_t min, uint64_t max)
{
    uint64_t value;
    const char *end;
    if (!parse_digits(&value, &end, text) || *end || value < min || value > max)
        return false;
    *out = value;
    return true;
}

bool brim__parse_double(double *out, const char *text, double min, double max)
{
    const char *first = *text == '-' ? text + 1 : text;
    if (!isdigit((unsigned char)*first) && *first != '.')
        return false;
    char *end;
    double value = strtod(text, &end);
    /* Written so that a NaN fails too. */
    if (end == text || *end || !(value >= min && value <= max))
        return false;
    *out = value;
    return true;
}

bool brim__parse_size(uint64_t *out, const char *text, uint64_t min, uint64_t max)
{
    uint64_t value, unit = 1;
    const char *end;
    if (!parse_digits(&value, &end, text))
        return false;
    switch (*end) {
    case 'k':
    case 'K':
        unit = 1u << 10;
        break;
    case 'm':
    case 'M':
        unit = 1u << 20;
        break;
    case 'g':
    case 'G':
        unit = 1u << 30;
        break;
    }
    if (unit > 1)
        end++;
    if (*end || __builtin_mul_overflow(value, unit, &value) || value < min || value > max)
        return false;
    *out = value;
    return true;
}

enum { WORD_MAX = 63 };

size_t brim__edit_distance(const char *a, const char *b)
{
    size_t m = strnlen(a, WORD_MAX), n = strnlen(b, WORD_MAX);
    size_t row[WORD_MAX + 1];
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above = row[j];
            size_t best = above < row[j - 1] ? above + 1 : row[j - 1] + 1;
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            row[j] = replaced < best ? replaced : best;
            diagonal = above;
        }
    }
    return row[n];
}
