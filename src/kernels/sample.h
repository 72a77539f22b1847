/* sample.h: the choice of a token from logits: a pure function of the logits, the parameters, the
 * tokens before, and the position, so that it is the same in any batch and on any lane.
 *
 * Order of the steps (as llama.cpp's default chain has it): repetition penalty, top-k, top-p,
 * min-p, temperature, draw. Ties are broken by the lower token id everywhere. Top-p and min-p see
 * the probabilities at temperature 1 of what top-k left.
 *
 * The meaning, to the bit. A token's likeliness is e = exp(x - max), with the exp of kernels.h,
 * and its mass is e * 2^s cut to an integer, s = min(40, 62 - bits of the vocabulary's size): sums
 * of masses are exact in 64 bits, so no order of adding and no instruction set can change them. A
 * token less than about 2^-40 times as likely as the likeliest has mass 0 and is never drawn.
 * Top-p keeps the fewest of the most likely tokens whose mass is at least top_p times the mass of
 * all; min-p keeps those whose mass is at least that of e = min_p. The draw takes a uniform integer
 * below the mass of what is left, with e = exp((x - max) / temperature), and walks the tokens in
 * ascending order of id.
 *
 * No step is worse than linear in the vocabulary: cuts are found by radix descent over the bits of
 * the logits, and nothing is sorted.
 *
 * Top-p: Holtzman et al., "The Curious Case of Neural Text Degeneration", ICLR 2020. Min-p: Nguyen
 * et al., "Turning Up the Heat", ICLR 2025. Penalty: Keskar et al., "CTRL", 2019 (here divided or
 * multiplied by sign, as is usual since).
 */
#ifndef BRIM_SAMPLE_H
#define BRIM_SAMPLE_H

#include "kernels/kernels.h"

/* 40 bytes, as it lies in a buffer. Values out of range have a meaning all the same (in brackets),
 * since a buffer can hold anything; who takes parameters from a user refuses them. */
typedef struct brim__sample_params {
    float temperature;     /* 0: greedy, the largest logit after the penalty; at most 100 [negative,
                            * NaN: greedy] */
    float top_p;           /* (0, 1]; 1: off [NaN, above 1: off; 0 or less: the likeliest alone] */
    float min_p;           /* [0, 1]; 0: off [NaN, negative: off; above 1: as 1] */
    float penalty;         /* > 0; 1: off. Logits > 0 of recent tokens are divided by it, others
                            * multiplied; once a token, however often it occurs [else: off] */
    uint32_t top_k;        /* 0: off; 1: greedy */
    uint32_t penalty_last; /* how many of the last tokens count as recent (0: none) */
    uint64_t seed;
    uint32_t max_position; /* step-end: the chain stops before this position */
    uint32_t flags;        /* 1: also hash the logits */
} brim__sample_params;

_Static_assert(sizeof(brim__sample_params) == 40, "lies in buffers of programs");

/* Scratch that brim__sample() needs for a vocabulary: about 20 bytes a token. Any alignment. */
size_t brim__sample_scratch_bytes(uint32_t vocab);

/* The token chosen. `recent`: the tokens of this sequence, oldest first, the last being the one at
 * `position` (the row's own). The draw is random number (seed, stream 0, position) of base/rng.h.
 * NaN logits are never chosen (0 if all are NaN), nor is -infinity where anything else but NaN is
 * there (the lowest such id if not); +infinity draws as the largest finite value. Ids in `recent`
 * outside the vocabulary are ignored. An empty vocabulary gives 0. */
uint32_t brim__sample(const brim__kernels *k, const float *logits, uint32_t vocab,
                      const brim__sample_params *params, const uint32_t *recent,
                      uint32_t recent_count, uint32_t position, void *scratch);

#endif
