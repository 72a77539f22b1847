/* token_special.c: the special tokens in order of their texts; a place in a text is compared byte
 * by byte while the range of tokens that still fit shrinks. */
#include "llm/token_special.h"

#include <string.h>

static int compare_texts(const brim__vocab *vocab, uint32_t a, uint32_t b)
{
    size_t a_size, b_size;
    const char *a_text = brim__vocab_text(vocab, (brim_token)a, &a_size);
    const char *b_text = brim__vocab_text(vocab, (brim_token)b, &b_size);
    int order = memcmp(a_text, b_text, a_size < b_size ? a_size : b_size);
    return order ? order : a_size < b_size ? -1 : a_size > b_size;
}

/* Heapsort: qsort() has no argument for the vocabulary. */
static void sift(const brim__vocab *vocab, uint32_t *ids, uint32_t count, uint32_t at)
{
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && compare_texts(vocab, ids[child + 1], ids[child]) > 0)
            child++;
        if (compare_texts(vocab, ids[at], ids[child]) >= 0)
            return;
        uint32_t moved = ids[at];
        ids[at] = ids[child];
        ids[child] = moved;
    }
}

static void sort_by_text(const brim__vocab *vocab, uint32_t *ids, uint32_t count)
{
    for (uint32_t i = count / 2; i-- > 0;)
        sift(vocab, ids, count, i);
    for (uint32_t left = count; left > 1;) {
        uint32_t last = ids[--left];
        ids[left] = ids[0];
        ids[0] = last;
        sift(vocab, ids, left, 0);
    }
}

static bool is_special(const brim__vocab *vocab, uint32_t id)
{
    uint8_t kind = vocab->kind[id];
    bool empty = vocab->text_start[id] == vocab->text_start[id + 1];
    return !empty && (kind == BRIM_TOKEN_CONTROL || kind == BRIM_TOKEN_USER_DEFINED ||
                      kind == BRIM_TOKEN_UNKNOWN);
}

brim_status brim__specials_create(brim__specials *out, const brim__vocab *vocab)
{
    *out = (brim__specials){.vocab = vocab};
    for (uint32_t id = 0; id < vocab->size; id++)
        out->count += is_special(vocab, id);
    BRIM_ALLOC(vocab->ctx, out->ids, (out->count + 1) * sizeof *out->ids);
    uint32_t count = 0;
    for (uint32_t id = 0; id < vocab->size; id++)
        if (is_special(vocab, id))
            out->ids[count++] = id;
    sort_by_text(vocab, out->ids, count);
    for (uint32_t byte = 0, i = 0; byte <= 256; byte++) {
        while (i < count && (unsigned char)vocab->text[vocab->text_start[out->ids[i]]] < byte)
            i++;
        out->first[byte] = byte == 256 ? count : i;
    }
    return BRIM_OK;
}

void brim__specials_done(brim__specials *specials)
{
    if (specials->vocab)
        brim__free(specials->vocab->ctx, specials->ids);
    *specials = (brim__specials){0};
}

/* The first of ids[low..high) whose byte at `depth` is at least `byte`; all are longer. */
static uint32_t lower_bound(const brim__specials *s, uint32_t low, uint32_t high, size_t depth,
                            unsigned byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((unsigned char)s->vocab->text[s->vocab->text_start[s->ids[middle]] + depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest special token at text[0..size). */
static brim_token match_at(size_t *out_length, const brim__specials *s, const char *text,
                           size_t size)
{
    brim_token found = BRIM_TOKEN_NONE;
    uint32_t low = s->first[(unsigned char)text[0]], high = s->first[(unsigned char)text[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        /* Of those that share text[0..depth) the one that ends here comes first. */
        size_t length;
        brim__vocab_text(s->vocab, (brim_token)s->ids[low], &length);
        if (length == depth) {
            found = (brim_token)s->ids[low++];
            *out_length = depth;
        }
        if (depth == size)
            break;
        low = lower_bound(s, low, high, depth, (unsigned char)text[depth]);
        high = lower_bound(s, low, high, depth, (unsigned char)text[depth] + 1u);
    }
    return found;
}

brim_token brim__specials_find(size_t *out_at, size_t *out_length, const brim__specials *s,
                               const char *text, size_t size, size_t from)
{
    for (size_t at = from; at < size; at++) {
        unsigned byte = (unsigned char)text[at];
        if (s->first[byte] == s->first[byte + 1])
            continue;
        brim_token id = match_at(out_length, s, text + at, size - at);
        if (id == BRIM_TOKEN_NONE)
            continue;
        *out_at = at;
        return id;
    }
    *out_at = size;
    *out_length = 0;
    return BRIM_TOKEN_NONE;
}
