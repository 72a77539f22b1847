/* pretokenize.c: the rules of the pre-tokenizers. Each function below returns the end of the
 * piece that starts at `at` in text[0..end); what lies behind `end` is not looked at. */
#include "llm/pretokenize.h"

#include <string.h>

typedef struct pre_name {
    const char *name;
    brim__pre_kind kind;
} pre_name;

static const pre_name pre_names[] = {
    {"default", BRIM__PRE_DEFAULT},  {"gpt-2", BRIM__PRE_GPT2},    {"smollm", BRIM__PRE_SMOLLM},
    {"llama-bpe", BRIM__PRE_LLAMA3}, {"llama3", BRIM__PRE_LLAMA3}, {"llama-v3", BRIM__PRE_LLAMA3},
    {"qwen2", BRIM__PRE_QWEN2},
};

bool brim__pre_parse(brim__pre_kind *out, const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof pre_names / sizeof *pre_names; i++) {
        if (strlen(pre_names[i].name) != size || memcmp(pre_names[i].name, name, size))
            continue;
        *out = pre_names[i].kind;
        return true;
    }
    return false;
}

/* The class of the character at `at` and its length. */
static inline unsigned class_at(const brim__splitter *s, size_t at, size_t end, size_t *length)
{
    *length = 0;
    if (at >= end)
        return BRIM__CLASS_END;
    const unsigned char *c = (const unsigned char *)s->text + at;
    *length = 1;
    if (c[0] < 0x80)
        return s->classes[c[0]];
    *length = 2;
    if (c[0] < 0xE0)
        return s->classes[(c[0] & 0x1Fu) << 6 | (c[1] & 0x3Fu)];
    *length = 3;
    if (c[0] < 0xF0)
        return s->classes[(c[0] & 0x0Fu) << 12 | (c[1] & 0x3Fu) << 6 | (c[2] & 0x3Fu)];
    *length = 4;
    uint32_t codepoint =
        (c[0] & 0x07u) << 18 | (c[1] & 0x3Fu) << 12 | (c[2] & 0x3Fu) << 6 | (c[3] & 0x3Fu);
    return codepoint < BRIM__CLASSES_SIZE ? s->classes[codepoint] : BRIM__CLASS_OTHER;
}

/* Punctuation matters to the default rules alone; elsewhere it is like any other character. */
static inline unsigned plain_class_at(const brim__splitter *s, size_t at, size_t end,
                                      size_t *length)
{
    unsigned class = class_at(s, at, end, length);
    return class == BRIM__CLASS_PUNCTUATION ? BRIM__CLASS_OTHER : class;
}

/* The end of the characters of a class from `at` on. */
static size_t run_end(const brim__splitter *s, size_t at, size_t end, unsigned class)
{
    size_t length;
    while (plain_class_at(s, at, end, &length) == class)
        at += length;
    return at;
}

/* '(s|t|re|ve|m|ll|d), case ignored if `fold`; 0 when there is none. Under folding U+017F, the long
 * s, equals s (Unicode's simple case folding, as the published expressions' engines do). */
static size_t contraction_end(const brim__splitter *s, size_t at, size_t end, bool fold)
{
    const unsigned char *c = (const unsigned char *)s->text + at + 1;
    size_t left = end - at - 1;
    unsigned char lower = fold ? 0x20 : 0;
    if (!left)
        return 0;
    unsigned char first = c[0] | lower;
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return at + 2;
    if (left < 2)
        return 0;
    if (fold && c[0] == 0xC5 && c[1] == 0xBF)
        return at + 3;
    unsigned char second = c[1] | lower;
    if (((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l'))
        return at + 3;
    return 0;
}

/* \s+(?!\S)|\s+ : a run of white space leaves its last character to what follows. */
static size_t space_end(const brim__splitter *s, size_t at, size_t end)
{
    size_t length, last = at, next = at;
    while (plain_class_at(s, next, end, &length) == BRIM__CLASS_SPACE) {
        last = next;
        next += length;
    }
    return next < end && last > at ? last : next;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ (Radford et al. 2019,
 * GPT-2's encoder.py) */
static size_t gpt2_end(const brim__splitter *s, size_t at, size_t end)
{
    size_t length, contraction;
    if (s->text[at] == '\'' && (contraction = contraction_end(s, at, end, false)))
        return contraction;
    unsigned class = plain_class_at(s, at, end, &length);
    if (s->text[at] == ' ') {
        size_t next_length;
        unsigned next = plain_class_at(s, at + 1, end, &next_length);
        if (next != BRIM__CLASS_SPACE && next != BRIM__CLASS_END)
            return run_end(s, at + 1, end, next);
    }
    return class == BRIM__CLASS_SPACE ? space_end(s, at, end) : run_end(s, at, end, class);
}

static bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t space_or_newline_end(const brim__splitter *s, size_t at, size_t end)
{
    size_t length, last = at, next = at, newline = 0;
    while (plain_class_at(s, next, end, &length) == BRIM__CLASS_SPACE) {
        if (is_newline(s->text[next]))
            newline = next + 1;
        last = next;
        next += length;
    }
    if (newline)
        return newline;
    return next < end && last > at ? last : next;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n]*
 * |\s*[\r\n]+|\s+(?!\S)|\s+ : three digits in Llama 3's tokenizer.json, one in Qwen 2's. */
static size_t llama3_end(const brim__splitter *s, size_t at, size_t end, unsigned digits)
{
    size_t length, next_length, contraction;
    const char *text = s->text;
    if (text[at] == '\'' && (contraction = contraction_end(s, at, end, true)))
        return contraction;
    unsigned class = plain_class_at(s, at, end, &length);
    if (class == BRIM__CLASS_LETTER)
        return run_end(s, at, end, class);
    if (class == BRIM__CLASS_NUMBER) {
        for (unsigned i = 0; i < digits && plain_class_at(s, at, end, &length) == class; i++)
            at += length;
        return at;
    }
    unsigned next = plain_class_at(s, at + length, end, &next_length);
    if (next == BRIM__CLASS_LETTER && !is_newline(text[at]))
        return run_end(s, at + length, end, next);
    if (class == BRIM__CLASS_OTHER || (text[at] == ' ' && next == BRIM__CLASS_OTHER)) {
        at = run_end(s, class == BRIM__CLASS_OTHER ? at : at + 1, end, BRIM__CLASS_OTHER);
        while (at < end && is_newline(text[at]))
            at++;
        return at;
    }
    return space_or_newline_end(s, at, end);
}

/* The end of a run that either is of numbers or has none. */
static size_t number_run_end(const brim__splitter *s, size_t at, size_t end)
{
    size_t length;
    bool number = class_at(s, at, end, &length) == BRIM__CLASS_NUMBER;
    for (at += length; at < end; at += length)
        if ((class_at(s, at, end, &length) == BRIM__CLASS_NUMBER) != number)
            break;
    return at;
}

/* Each number alone (Hugging Face's Digits), then GPT-2's rules. */
static size_t smollm_end(brim__splitter *s, size_t at)
{
    size_t length;
    if (class_at(s, at, s->size, &length) == BRIM__CLASS_NUMBER)
        return at + length;
    if (at >= s->limits[0])
        s->limits[0] = number_run_end(s, at, s->size);
    return gpt2_end(s, at, s->limits[0]);
}

/* [\p{P}$+<=>^~|] */
static bool is_mark(const brim__splitter *s, size_t at, size_t *length)
{
    if (class_at(s, at, s->size, length) == BRIM__CLASS_PUNCTUATION)
        return true;
    char c = s->text[at];
    return c && strchr("$+<=>^~|", c);
}

static size_t mark_run_end(const brim__splitter *s, size_t at)
{
    size_t length;
    bool mark = is_mark(s, at, &length);
    for (at += length; at < s->size; at += length)
        if (is_mark(s, at, &length) != mark)
            break;
    return at;
}

/* Where three ASCII digits stand in text[at..end); `end` if nowhere. */
static size_t find_three_digits(const brim__splitter *s, size_t at, size_t end)
{
    for (size_t digits = 0; at < end; at++) {
        digits = s->text[at] >= '0' && s->text[at] <= '9' ? digits + 1 : 0;
        if (digits == 3)
            return at - 2;
    }
    return end;
}

/* What llama.cpp does for files without a rule of their own: four rules, each within the pieces of
 * the one before: runs of [\p{P}$+<=>^~|], GPT-2's rules, runs of \p{N}, three ASCII digits. */
static size_t default_end(brim__splitter *s, size_t at)
{
    if (at >= s->limits[0])
        s->limits[0] = mark_run_end(s, at);
    if (at >= s->limits[1])
        s->limits[1] = gpt2_end(s, at, s->limits[0]);
    if (at >= s->limits[2])
        s->limits[2] = number_run_end(s, at, s->limits[1]);
    size_t digits = find_three_digits(s, at, s->limits[2]);
    return digits == at ? at + 3 : digits;
}

bool brim__splitter_next(brim__splitter *s, size_t *out_start, size_t *out_end)
{
    size_t at = s->position;
    if (at >= s->size)
        return false;
    *out_start = at;
    switch (s->kind) {
    case BRIM__PRE_DEFAULT:
        s->position = default_end(s, at);
        break;
    case BRIM__PRE_GPT2:
        s->position = gpt2_end(s, at, s->size);
        break;
    case BRIM__PRE_SMOLLM:
        s->position = smollm_end(s, at);
        break;
    case BRIM__PRE_LLAMA3:
        s->position = llama3_end(s, at, s->size, 3);
        break;
    case BRIM__PRE_QWEN2:
        s->position = llama3_end(s, at, s->size, 1);
        break;
    }
    *out_end = s->position;
    return true;
}
