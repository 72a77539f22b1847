/* kernels_ref.h: the reference bodies, plain C, one obvious loop each. They define what kernels.h
 * says in words; no variant may differ from them in a bit. */
#ifndef BRIM_KERNELS_REF_H
#define BRIM_KERNELS_REF_H

#include "kernels/kernels.h"

void brim__ref_matmul_f32(float *out, size_t out_stride, const brim__tiling *t, const void *tiles,
                          uint32_t row_block_count, const void *x, size_t x_row_bytes,
                          uint32_t row_count);
void brim__ref_matmul_q16(float *out, size_t out_stride, const brim__tiling *t, const void *tiles,
                          uint32_t row_block_count, const void *x, size_t x_row_bytes,
                          uint32_t row_count);
void brim__ref_rms_norm(float *y, const float *x, const float *w, uint32_t n, float epsilon);
void brim__ref_quantize(brim__q16 *out, const float *x, uint32_t n);
void brim__ref_add(float *y, const float *a, const float *b, uint32_t n);
void brim__ref_silu_mul(float *y, const float *gate, const float *up, uint32_t n);
void brim__ref_rope(float *x, const float *cos_sin, uint32_t n, bool halves);
uint32_t brim__ref_argmax(const float *x, uint32_t n);
void brim__ref_exp(float *y, const float *x, uint32_t n);
void brim__ref_attn_split(float *parts, const brim__attn *a, const float *q, uint32_t split);
void brim__ref_attn_combine(float *out, const float *parts, size_t stride_floats, uint32_t count,
                            uint32_t head_size);
void brim__ref_kv_store(void *block, const float *x, uint32_t slot, uint32_t head_size, bool v,
                        bool f32);

#endif
