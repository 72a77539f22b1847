#!/usr/bin/env python3
"""Writes src/llm/pretokenize_classes.c: the character classes of the pre-tokenizers.

Needs the Unicode Character Database of the version named below as a Python module:
pip install unicodedata2==16.0.0
"""
import sys

import unicodedata2 as ucd

VERSION = "16.0.0"
SIZE = 0x40000  # classes above are all "other", which main() checks
# White_Space of PropList.txt
SPACES = [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
          0x202F, 0x205F, 0x3000]

HEAD = """/* pretokenize_classes.c: which characters are letters, numbers, punctuation and white space: the
 * general categories L, N and P and the property White_Space of Unicode {version}. Written by
 * tools/unicode_classes.py. */
#include "llm/pretokenize.h"

#include <string.h>

typedef struct class_range {{
    uint32_t first, last;
    uint8_t class;
}} class_range;

enum {{
    L = BRIM__CLASS_LETTER,
    N = BRIM__CLASS_NUMBER,
    P = BRIM__CLASS_PUNCTUATION,
    S = BRIM__CLASS_SPACE
}};

/* clang-format off */
static const class_range ranges[] = {{
"""
TAIL = """};
/* clang-format on */

brim_status brim__classes_create(uint8_t **out, brim_context *ctx)
{
    BRIM_CALLOC(ctx, *out, BRIM__CLASSES_SIZE);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        memset(*out + ranges[i].first, ranges[i].class, ranges[i].last - ranges[i].first + 1);
    return BRIM_OK;
}
"""


def class_of(codepoint):
    if codepoint in SPACES:
        return "S"
    category = ucd.category(chr(codepoint))[0]
    return category if category in "LNP" else ""


def main():
    assert ucd.unidata_version == VERSION
    assert not any(class_of(c) for c in range(SIZE, 0x110000))
    ranges = []
    for codepoint in range(SIZE):
        found = class_of(codepoint)
        if ranges and ranges[-1][2] == found and ranges[-1][1] == codepoint - 1:
            ranges[-1][1] = codepoint
        elif found:
            ranges.append([codepoint, codepoint, found])
    items = ["{0x%X,0x%X,%s}," % tuple(r) for r in ranges]
    lines = [""]
    for item in items:
        if len(lines[-1]) + len(item) > 96:
            lines.append("")
        lines[-1] += item
    sys.stdout.write(HEAD.format(version=VERSION))
    sys.stdout.write("".join("    %s\n" % line for line in lines))
    sys.stdout.write(TAIL)


main()
