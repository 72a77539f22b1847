/* make_shapes.c: the dimensions of published models, from the config.json that each was published
 * with, and the rope factors of Llama 3. */
#include "model/make.h"

#include <math.h>
#include <string.h>

/* clang-format off */
const make_shape make__shapes[] = {
    /* name, arch, layers, embed, heads, kv heads, head, ffn, vocab, context, window, rope base, epsilon, rope factor, tied, vocab, padding */
    {"smollm2-135m", BRIM_ARCH_LLAMA, 30, 576, 9, 3, 64, 1536, 49152, 8192, 0, 100000, 1e-5f, 0, true, MAKE_VOCAB_SMOLLM, 0},
    {"smollm2-360m", BRIM_ARCH_LLAMA, 32, 960, 15, 5, 64, 2560, 49152, 8192, 0, 100000, 1e-5f, 0, true, MAKE_VOCAB_SMOLLM, 0},
    {"llama-3.2-1b", BRIM_ARCH_LLAMA, 16, 2048, 32, 8, 64, 8192, 128256, 131072, 0, 500000, 1e-5f, 32, true, MAKE_VOCAB_LLAMA3, 245},
    {"llama-3.2-3b", BRIM_ARCH_LLAMA, 28, 3072, 24, 8, 128, 8192, 128256, 131072, 0, 500000, 1e-5f, 32, true, MAKE_VOCAB_LLAMA3, 245},
    {"llama-3.1-8b", BRIM_ARCH_LLAMA, 32, 4096, 32, 8, 128, 14336, 128256, 131072, 0, 500000, 1e-5f, 8, false, MAKE_VOCAB_LLAMA3, 245},
    {"llama-2-7b", BRIM_ARCH_LLAMA, 32, 4096, 32, 32, 128, 11008, 32000, 4096, 0, 10000, 1e-5f, 0, false, MAKE_VOCAB_LLAMA2, 0},
    {"mistral-7b", BRIM_ARCH_LLAMA, 32, 4096, 32, 8, 128, 14336, 32000, 32768, 4096, 10000, 1e-5f, 0, false, MAKE_VOCAB_MISTRAL, 0},
    {"qwen2.5-0.5b", BRIM_ARCH_QWEN2, 24, 896, 14, 2, 64, 4864, 151936, 32768, 0, 1000000, 1e-6f, 0, true, MAKE_VOCAB_QWEN2, 271},
    {"qwen2.5-1.5b", BRIM_ARCH_QWEN2, 28, 1536, 12, 2, 128, 8960, 151936, 32768, 0, 1000000, 1e-6f, 0, true, MAKE_VOCAB_QWEN2, 271},
    {"qwen3-0.6b", BRIM_ARCH_QWEN3, 28, 1024, 16, 8, 128, 3072, 151936, 40960, 0, 1000000, 1e-6f, 0, true, MAKE_VOCAB_QWEN3, 267},
    {"qwen3-8b", BRIM_ARCH_QWEN3, 36, 4096, 32, 8, 128, 12288, 151936, 40960, 0, 1000000, 1e-6f, 0, false, MAKE_VOCAB_QWEN3, 267},
};
/* clang-format on */
const size_t make__shape_count = sizeof make__shapes / sizeof *make__shapes;

const make_shape *make__find_shape(const char *name)
{
    for (size_t i = 0; i < make__shape_count; i++)
        if (strcmp(make__shapes[i].name, name) == 0)
            return &make__shapes[i];
    return NULL;
}

const char *brim_make_shape_at(size_t index)
{
    return index < make__shape_count ? make__shapes[index].name : NULL;
}

/* "llama3" rope scaling as Meta published it with Llama 3.1: wavelengths shorter than the original
 * context over high_freq_factor stay, those longer than it over low_freq_factor are stretched by
 * the factor, and in between the two are blended. GGUF stores what each frequency is divided by. */
void make__rope_factors(float *out, uint32_t head_size, float rope_base, float factor)
{
    const double low = 1, high = 4, context = 8192, two_pi = 6.283185307179586;
    for (uint32_t i = 0; i < head_size / 2; i++) {
        double wavelength = two_pi * pow((double)rope_base, 2.0 * i / head_size);
        if (wavelength < context / high) {
            out[i] = 1;
        } else if (wavelength > context / low) {
            out[i] = factor;
        } else {
            double smooth = (context / wavelength - low) / (high - low);
            out[i] = (float)(1 / ((1 - smooth) / (double)factor + smooth));
        }
    }
}
