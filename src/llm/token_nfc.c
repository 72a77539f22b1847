/* token_nfc.c: form C, piece by piece. A text may be cut before a character that neither joins
 * with what stands before it nor is moved by reordering; most text is copied between such cuts,
 * only pieces with something to do go through utf8proc's tables.
 *
 * utf8proc's own utf8proc_map() is not used: it allocates by itself and orders long runs of
 * combining marks in quadratic time. */
#include "llm/token_nfc.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* One code point decomposes into at most this many (18 under compatibility rules). */
enum { DECOMPOSED_MAX = 32 };

typedef struct nfc_work {
    brim_context *ctx;
    utf8proc_int32_t *codepoints;
    size_t count, capacity;
    uint64_t *marks; /* a run of combining marks: class, place, code point */
    size_t mark_capacity;
} nfc_work;

bool brim__nfc_surely(const char *text, size_t size)
{
    /* Everything below U+0300 is in form C; its UTF-8 starts with a byte below 0xCC. */
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] >= 0xCC)
            return false;
    return true;
}

/* A text may be cut before such a character: it is a letter (or below U+0300) and never the
 * second part of a composition. Those are combining marks, the vowels and finals of Hangul, and
 * the vowel signs of Kirat Rai (letters since Unicode 16). */
static bool cuts_before(uint32_t c)
{
    if (c < 0x300 || (c >= 0x3400 && c <= 0x9FFF))
        return true;
    if ((c >= 0x1160 && c <= 0x11FF) || (c >= 0xD7B0 && c <= 0xD7FF) ||
        (c >= 0x16D40 && c <= 0x16D7F))
        return false;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

/* Alone between two cuts such a character stays what it is. */
static bool stays_alone(uint32_t c)
{
    return c < 0x300 || (c >= 0x3400 && c <= 0x9FFF) || (c >= 0xAC00 && c <= 0xD7A3);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static unsigned combining_class(utf8proc_int32_t c)
{
    return (unsigned)utf8proc_get_property(c)->combining_class;
}

/* Canonical ordering of the marks in codepoints[from..to): by class, equal ones in place. Each is
 * packed into one number: 8 bits of class, 32 of place, 24 of code point. */
static brim_status order_marks(nfc_work *work, size_t from, size_t to)
{
    BRIM_TRY(BRIM_GROW(work->ctx, work->marks, work->mark_capacity, to - from));
    for (size_t i = from; i < to; i++) {
        uint32_t c = (uint32_t)work->codepoints[i];
        work->marks[i - from] =
            (uint64_t)combining_class((utf8proc_int32_t)c) << 56 | (uint64_t)(i - from) << 24 | c;
    }
    qsort(work->marks, to - from, sizeof *work->marks, by_value);
    for (size_t i = from; i < to; i++)
        work->codepoints[i] = (utf8proc_int32_t)(work->marks[i - from] & 0xFFFFFF);
    return BRIM_OK;
}

static brim_status order_all_marks(nfc_work *work)
{
    for (size_t i = 0; i < work->count;) {
        size_t from = i;
        bool ordered = true;
        unsigned before = 0;
        for (unsigned class; i < work->count && (class = combining_class(work->codepoints[i]));
             i++) {
            ordered &= class >= before;
            before = class;
        }
        if (!ordered)
            BRIM_TRY(order_marks(work, from, i));
        if (i == from)
            i++;
    }
    return BRIM_OK;
}

/* Normalises the text between two cuts. */
static brim_status append_piece(brim__string *out, nfc_work *work, const char *text, size_t size)
{
    work->count = 0;
    for (size_t i = 0; i < size;) {
        uint32_t c;
        int boundary = UTF8PROC_BOUNDCLASS_START;
        i += brim__utf8_decode(&c, text + i, size - i);
        BRIM_TRY(
            BRIM_GROW(work->ctx, work->codepoints, work->capacity, work->count + DECOMPOSED_MAX));
        utf8proc_ssize_t made =
            utf8proc_decompose_char((utf8proc_int32_t)c, work->codepoints + work->count,
                                    DECOMPOSED_MAX, UTF8PROC_DECOMPOSE, &boundary);
        if (made <= 0 || made > DECOMPOSED_MAX) { /* no scalar value: the caller checked for that */
            work->codepoints[work->count] = (utf8proc_int32_t)c;
            made = 1;
        }
        work->count += (size_t)made;
    }
    BRIM_TRY(order_all_marks(work));
    utf8proc_ssize_t left = utf8proc_normalize_utf32(
        work->codepoints, (utf8proc_ssize_t)work->count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < left; i++) {
        char bytes[4];
        BRIM_TRY(brim__string_append(out, bytes,
                                     brim__utf8_encode(bytes, (uint32_t)work->codepoints[i])));
    }
    return BRIM_OK;
}

static brim_status append_pieces(brim__string *out, nfc_work *work, const char *text, size_t size)
{
    size_t copied = 0, start = 0; /* text[copied..start) is in form C as it is */
    while (start < size) {
        uint32_t first, c;
        size_t at = start + brim__utf8_decode(&first, text + start, size - start), length = 0,
               count = 1;
        for (; at < size; at += length, count++) {
            length = brim__utf8_decode(&c, text + at, size - at);
            if (cuts_before(c))
                break;
        }
        if (count > 1 || !stays_alone(first)) {
            BRIM_TRY(brim__string_append(out, text + copied, start - copied));
            BRIM_TRY(append_piece(out, work, text + start, at - start));
            copied = at;
        }
        start = at;
    }
    return brim__string_append(out, text + copied, size - copied);
}

brim_status brim__nfc_append(brim__string *out, const char *text, size_t size)
{
    nfc_work work = {.ctx = out->ctx};
    brim_status status = append_pieces(out, &work, text, size);
    brim__free(work.ctx, work.codepoints);
    brim__free(work.ctx, work.marks);
    return status;
}
