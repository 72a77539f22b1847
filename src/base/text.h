/* text.h: UTF-8, growing strings, and numbers from text. */
#ifndef BRIM_BASE_TEXT_H
#define BRIM_BASE_TEXT_H

#include "base/memory.h"

/* Length of the well-formed UTF-8 character (Unicode 15, table 3-7: no surrogates, no overlong
 * forms) at text[0..size), its code point in *out; 0 if there is none. */
size_t brim__utf8_decode(uint32_t *out, const char *text, size_t size);
/* Writes 1 to 4 bytes; 0 when `codepoint` is no scalar value. */
size_t brim__utf8_encode(char out[4], uint32_t codepoint);
/* Offset of the first byte that is not well-formed UTF-8, or `size` when all is well. */
size_t brim__utf8_check(const char *text, size_t size);
/* How many bytes at the end of text form the beginning of a character that is not complete yet:
 * 0 to 3. What streams text out holds these back. */
size_t brim__utf8_incomplete_tail(const char *text, size_t size);

/* A growing string, always 0-terminated. */
typedef struct brim__string {
    char *data; /* NULL before the first append */
    size_t size, capacity;
    brim_context *ctx;
} brim__string;

brim_status brim__string_append(brim__string *s, const void *data, size_t size);
brim_status brim__string_text(brim__string *s, const char *text);
brim_status brim__string_format(brim__string *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void brim__string_done(brim__string *s);

/* The whole text as a number; false when it is empty, has other characters around it, or is out
 * of [min, max]. Sizes allow the suffixes K, M, G (1024). */
bool brim__parse_i64(int64_t *out, const char *text, int64_t min, int64_t max);
bool brim__parse_u64(uint64_t *out, const char *text, uint64_t min, uint64_t max);
bool brim__parse_double(double *out, const char *text, double min, double max);
bool brim__parse_size(uint64_t *out, const char *text, uint64_t min, uint64_t max);

/* The edit distance of two short words (at most 63 bytes each), for "did you mean". */
size_t brim__edit_distance(const char *a, const char *b);

#endif
