/* console.c: the text helpers of brim/console.h that are not tables or progress bars. */
#include "brim/console.h"

#include <string.h>

#include "base/text.h"

size_t brim_utf8_check(const char *text, size_t size)
{
    return brim__utf8_check(text, size);
}

size_t brim_utf8_incomplete_tail(const char *text, size_t size)
{
    return brim__utf8_incomplete_tail(text, size);
}

void brim_print_safe(FILE *file, const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        uint32_t codepoint;
        size_t n = brim__utf8_decode(&codepoint, text + at, size - at);
        bool control = n == 0 || codepoint < 0x20 || (codepoint >= 0x7F && codepoint < 0xA0);
        if (n == 0)
            n = 1;
        if (!control)
            fwrite(text + at, 1, n, file);
        else if (text[at] == '\n' || text[at] == '\t')
            fputs(text[at] == '\n' ? "\\n" : "\\t", file);
        else
            for (size_t i = 0; i < n; i++)
                fprintf(file, "\\x%02x", (unsigned char)text[at + i]);
        at += n;
    }
}

const char *brim_suggest(const char *word, const char *const *known)
{
    const char *best = NULL;
    size_t best_distance = 0, length = strlen(word);
    for (; *known; known++) {
        /* A beginning is what people type when they hope for completion. */
        if (length >= 3 && strncmp(word, *known, length) == 0)
            return *known;
        size_t distance = brim__edit_distance(word, *known);
        if (distance <= 1 + length / 4 && (!best || distance < best_distance)) {
            best = *known;
            best_distance = distance;
        }
    }
    return best;
}
