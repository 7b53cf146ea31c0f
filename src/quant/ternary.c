/* ternary.c: TQ1_0 and TQ2_0, where an element is -1, 0 or 1 times the block's scale. */
#include <math.h>

#include "quant/blocks.h"

static const uint8_t powers[5] = {1, 3, 9, 27, 81};

/* A byte holds up to five base-3 digits as a fraction of 256: multiplying by 3^k brings digit k in front of the point. */
static inline int digit(uint8_t byte, int k) { return ((uint8_t)(byte * powers[k]) * 3) >> 8; }

/* `width` bytes hold `digits` runs of `width` elements. */
static float *decode_run(float *restrict dst, const uint8_t *restrict bytes, int width, int digits, float d) {
    for (int k = 0; k < digits; k++)
        for (int j = 0; j < width; j++) *dst++ = d * (float)(digit(bytes[j], k) - 1);
    return dst;
}

void quant_decode_tq1_0(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_tq1_0 *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++) {
        const float d = quant_half_at(b->d);
        dst = decode_run(dst, b->qs, 32, 5, d);
        dst = decode_run(dst, b->qs + 32, 16, 5, d);
        dst = decode_run(dst, b->qh, 4, 4, d);
    }
}

void quant_decode_tq2_0(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_tq2_0 *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++) {
        const float d = quant_half_at(b->d);
        for (int half = 0; half < 2; half++)
            for (int k = 0; k < 4; k++)
                for (int j = 0; j < 32; j++) *dst++ = d * (float)((b->qs[32 * half + j] >> 2 * k & 3) - 1);
    }
}

/* Codes 0, 1, 2 and the scale: the greatest magnitude. Half of it and more rounds away from zero. */
static float round_block(uint8_t q[QUANT_SUPER], const float *src) {
    float x[QUANT_SUPER], d = 0;
    quant_load(x, src, QUANT_SUPER, 0x1p100f);
    for (int j = 0; j < QUANT_SUPER; j++) d = fabsf(x[j]) > d ? fabsf(x[j]) : d;
    const float id = d > 0x1p-127f ? 1.0f / d : 0.0f;
    for (int j = 0; j < QUANT_SUPER; j++) {
        const float v = x[j] * id;
        q[j] = (uint8_t)(1 + (v >= 0.5f) - (v <= -0.5f));
    }
    return d;
}

static const uint8_t *encode_run(uint8_t *bytes, const uint8_t *q, int width, int digits) {
    for (int j = 0; j < width; j++) {
        int v = 0;
        for (int k = 0; k < digits; k++) v += q[k * width + j] * powers[4 - k];
        bytes[j] = (uint8_t)((v * 256 + 242) / 243); /* v / 243 as a fraction of 256, rounded up */
    }
    return q + width * digits;
}

void quant_encode_tq1_0(void *restrict dst, const float *restrict src, int64_t n) {
    quant_tq1_0 *b = dst;
    for (; n > 0; n -= QUANT_SUPER, b++, src += QUANT_SUPER) {
        uint8_t codes[QUANT_SUPER];
        quant_put_scale(b->d, round_block(codes, src));
        const uint8_t *q = encode_run(b->qs, codes, 32, 5);
        q = encode_run(b->qs + 32, q, 16, 5);
        encode_run(b->qh, q, 4, 4);
    }
}

void quant_encode_tq2_0(void *restrict dst, const float *restrict src, int64_t n) {
    quant_tq2_0 *b = dst;
    for (; n > 0; n -= QUANT_SUPER, b++, src += QUANT_SUPER) {
        uint8_t q[QUANT_SUPER];
        quant_put_scale(b->d, round_block(q, src));
        for (int half = 0; half < 2; half++)
            for (int j = 0; j < 32; j++) {
                const uint8_t *e = q + 128 * half + j;
                b->qs[32 * half + j] = (uint8_t)(e[0] | e[32] << 2 | e[64] << 4 | e[96] << 6);
            }
    }
}
