/* token_nfc.h: Unicode normalisation form C (UAX #15), which Qwen's tokenizers apply first. */
#ifndef BRIM_LLM_TOKEN_NFC_H
#define BRIM_LLM_TOKEN_NFC_H

#include "base/text.h"

/* Appends text[0..size), well-formed UTF-8, in form C. Linear but for sorting runs of combining
 * marks, which takes O(n log n). */
brim_status brim__nfc_append(brim__string *out, const char *text, size_t size);
/* Whether the text surely is in form C already: a quick test that may say no without need. */
bool brim__nfc_surely(const char *text, size_t size);

#endif
