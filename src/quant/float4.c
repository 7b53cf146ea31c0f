/* float4.c: MXFP4 and NVFP4, whose codes are floats of four bits (sign, two exponent bits, one mantissa bit: E2M1). */
#include <float.h>
#include <math.h>

#include "quant/blocks.h"

const int8_t quant_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e - 128): half of what the exponent byte says, because the values above are doubled. */
static inline float exponent_scale(uint8_t e) { return quant_float(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23); }

void quant_decode_mxfp4(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_mxfp4 *b = src;
    for (; n > 0; n -= 32, b++, dst += 32) {
        const float d = exponent_scale(b->e);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)quant_fp4_values[b->qs[j] & 15];
            dst[j + 16] = d * (float)quant_fp4_values[b->qs[j] >> 4];
        }
    }
}

/* Half of an unsigned float of eight bits (four exponent bits, three mantissa bits: E4M3). 0x7F, its NaN, counts as zero. */
static inline float e4m3_scale(uint8_t v) {
    const int exponent = v >> 3 & 15, mantissa = v & 7;
    if (v == 0x7F) return 0;
    if (exponent == 0) return (float)mantissa * 0x1p-10f;
    return (float)(8 + mantissa) * quant_float((uint32_t)(exponent + 127 - 11) << 23);
}

void quant_decode_nvfp4(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_nvfp4 *b = src;
    for (; n > 0; n -= 64, b++)
        for (int group = 0; group < 4; group++, dst += 16) {
            const float d = e4m3_scale(b->d[group]);
            const uint8_t *q = b->qs + 8 * group;
            for (int j = 0; j < 8; j++) {
                dst[j] = d * (float)quant_fp4_values[q[j] & 15];
                dst[j + 8] = d * (float)quant_fp4_values[q[j] >> 4];
            }
        }
}

/* The code whose value is nearest; the first of equals, so that zero is never written as minus zero. */
static inline int nearest(float x, float d) {
    int best = 0;
    float least = fabsf(x);
    for (int q = 1; q < 16; q++) {
        const float miss = fabsf(d * (float)quant_fp4_values[q] - x);
        const bool better = miss < least;
        best = better ? q : best;
        least = better ? miss : least;
    }
    return best;
}

void quant_encode_mxfp4(void *restrict dst, const float *restrict src, int64_t n) {
    quant_mxfp4 *b = dst;
    for (; n > 0; n -= 32, b++, src += 32) {
        float x[32], top = 0;
        quant_load(x, src, 32, FLT_MAX);
        for (int j = 0; j < 32; j++) top = fabsf(x[j]) > top ? fabsf(x[j]) : top;
        /* By convention the exponent comes from the rounded logarithm, also just below a power of two. */
        const float e = top > 0 ? floorf(log2f(top)) - 2 + 127 : 0;
        b->e = (uint8_t)(e < 0 ? 0 : e);
        const float d = exponent_scale(b->e);
        for (int j = 0; j < 16; j++) b->qs[j] = (uint8_t)(nearest(x[j], d) | nearest(x[j + 16], d) << 4);
    }
}
