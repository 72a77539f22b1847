/* vector_ref.c: what the ops on one vector mean: norm, rounding, sums, activations, rotation,
 * exp and argmax. */
#include "kernels/ref/kernels_ref.h"

#include <string.h>

#include "kernels/scalar_math.h"

void brim__ref_rms_norm(float *y, const float *x, const float *w, uint32_t n, float epsilon)
{
    float partial[16] = {0};
    for (uint32_t i = 0; i < n; i++)
        partial[i % 16] = fmaf(x[i], x[i], partial[i % 16]);
    float r = 1.0f / sqrtf(brim__sum16_tree(partial) / (float)n + epsilon);
    for (uint32_t i = 0; i < n; i++)
        y[i] = w ? x[i] * r * w[i] : x[i] * r;
}

static void quantize_block(brim__q16 *out, const float *x)
{
    memset(out, 0, sizeof *out);
    float amax = 0;
    for (int i = 0; i < 32; i++) {
        if (!isfinite(x[i])) {
            out->scale = out->scaled_sum = NAN;
            return;
        }
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    }
    float inverse = 32512.0f / amax;
    if (!isfinite(inverse)) /* a division by zero, or nearly so */
        return;
    out->scale = amax / 32512.0f;
    for (int i = 0; i < 32; i++) {
        int q = (int)rintf(x[i] * inverse);
        int lo = (q & 255) < 128 ? q & 255 : (q & 255) - 256;
        out->lo[i] = (int8_t)lo;
        out->hi[i] = (int8_t)((q - lo) / 256);
        out->sum[i / 16] += q;
    }
    out->scaled_sum = out->scale * (float)(out->sum[0] + out->sum[1]);
}

void brim__ref_quantize(brim__q16 *out, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 32)
        quantize_block(out++, x + i);
}

void brim__ref_add(float *y, const float *a, const float *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

void brim__ref_silu_mul(float *y, const float *gate, const float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = brim__silu_scalar(gate[i]) * up[i];
}

void brim__ref_rope(float *x, const float *cos_sin, uint32_t n, bool halves)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        float c = cos_sin[i], s = cos_sin[n / 2 + i];
        float *first = halves ? &x[i] : &x[2 * i], *second = halves ? &x[i + n / 2] : &x[2 * i + 1];
        float a = *first, b = *second;
        *first = fmaf(a, c, -(b * s));
        *second = fmaf(a, s, b * c);
    }
}

uint32_t brim__ref_argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    bool found = false;
    for (uint32_t i = 0; i < n; i++)
        if (!isnan(x[i]) && (!found || x[i] > x[best])) {
            best = i;
            found = true;
        }
    return best;
}

void brim__ref_exp(float *y, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = brim__exp_scalar(x[i]);
}
