/* legacy.c: the types with one scale per 32 elements: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
 *
 * Their encoders are fixed by convention to the last bit: the scale follows from the extreme elements, codes are rounded
 * with the scale before it became a half. */
#include <math.h>

#include "quant/blocks.h"

enum { N = 32 };

/* Far beyond what a half scale can reach, and far from overflow in what follows. */
static const float limit = 0x1p100f;

void quant_decode_q4_0(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_q4_0 *b = src;
    for (; n > 0; n -= N, b++, dst += N) {
        const float d = quant_half_at(b->d);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)((b->qs[j] & 15) - 8);
            dst[j + 16] = d * (float)((b->qs[j] >> 4) - 8);
        }
    }
}

void quant_decode_q4_1(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_q4_1 *b = src;
    for (; n > 0; n -= N, b++, dst += N) {
        const float d = quant_half_at(b->d), m = quant_half_at(b->m);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)(b->qs[j] & 15) + m;
            dst[j + 16] = d * (float)(b->qs[j] >> 4) + m;
        }
    }
}

/* Codes of five bits, in the order of the elements. */
static inline void unpack5(int q[N], const uint8_t qh[4], const uint8_t qs[16]) {
    const uint32_t high = quant_u32(qh);
    for (int j = 0; j < 16; j++) {
        q[j] = (qs[j] & 15) | (int)(high >> j << 4 & 16u);
        q[j + 16] = (qs[j] >> 4) | (int)(high >> (j + 16) << 4 & 16u);
    }
}

void quant_decode_q5_0(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_q5_0 *b = src;
    for (; n > 0; n -= N, b++, dst += N) {
        const float d = quant_half_at(b->d);
        int q[N];
        unpack5(q, b->qh, b->qs);
        for (int j = 0; j < N; j++) dst[j] = d * (float)(q[j] - 16);
    }
}

void quant_decode_q5_1(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_q5_1 *b = src;
    for (; n > 0; n -= N, b++, dst += N) {
        const float d = quant_half_at(b->d), m = quant_half_at(b->m);
        int q[N];
        unpack5(q, b->qh, b->qs);
        for (int j = 0; j < N; j++) dst[j] = d * (float)q[j] + m;
    }
}

void quant_decode_q8_0(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_q8_0 *b = src;
    for (; n > 0; n -= N, b++, dst += N) {
        const float d = quant_half_at(b->d);
        for (int j = 0; j < N; j++) dst[j] = d * (float)b->qs[j];
    }
}

/* The element of greatest magnitude, with its sign; the first of equals. */
static float extreme(const float x[N]) {
    float best = 0;
    for (int j = 0; j < N; j++)
        if (fabsf(x[j]) > fabsf(best)) best = x[j];
    return best;
}

static void range(const float x[N], float *low, float *high) {
    *low = *high = x[0];
    for (int j = 1; j < N; j++) {
        if (x[j] < *low) *low = x[j];
        if (x[j] > *high) *high = x[j];
    }
}

static inline float inverse(float d) {
    const float id = d != 0 ? 1.0f / d : 0.0f;
    return isinf(id) ? 0.0f : id; /* only for a d that is a zero among the halves */
}

/* Codes 0..top of x * id + offset. */
static inline void round_codes(int q[N], const float x[N], float id, float minus, float offset, int top) {
    for (int j = 0; j < N; j++) {
        const float v = (x[j] - minus) * id + offset;
        const int code = (int)v;
        q[j] = code < 0 ? 0 : code > top ? top : code;
    }
}

static inline void pack4(uint8_t qs[16], const int q[N]) {
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
}

static inline void pack5(uint8_t qh[4], uint8_t qs[16], const int q[N]) {
    uint32_t high = 0;
    for (int j = 0; j < N; j++) high |= (uint32_t)(q[j] >> 4) << j;
    quant_put_u16(qh, high);
    quant_put_u16(qh + 2, high >> 16);
    pack4(qs, q);
}

void quant_encode_q4_0(void *restrict dst, const float *restrict src, int64_t n) {
    quant_q4_0 *b = dst;
    for (; n > 0; n -= N, b++, src += N) {
        float x[N];
        int q[N];
        quant_load(x, src, N, limit);
        const float d = extreme(x) / -8;
        round_codes(q, x, inverse(d), 0, 8.5f, 15);
        quant_put_scale(b->d, d);
        pack4(b->qs, q);
    }
}

void quant_encode_q5_0(void *restrict dst, const float *restrict src, int64_t n) {
    quant_q5_0 *b = dst;
    for (; n > 0; n -= N, b++, src += N) {
        float x[N];
        int q[N];
        quant_load(x, src, N, limit);
        const float d = extreme(x) / -16;
        round_codes(q, x, inverse(d), 0, 16.5f, 31);
        quant_put_scale(b->d, d);
        pack5(b->qh, b->qs, q);
    }
}

void quant_encode_q4_1(void *restrict dst, const float *restrict src, int64_t n) {
    quant_q4_1 *b = dst;
    for (; n > 0; n -= N, b++, src += N) {
        float x[N], low, high;
        int q[N];
        quant_load(x, src, N, limit);
        range(x, &low, &high);
        const float d = (high - low) / 15;
        round_codes(q, x, inverse(d), low, 0.5f, 15);
        quant_put_scale(b->d, d);
        quant_put_scale(b->m, low);
        pack4(b->qs, q);
    }
}

void quant_encode_q5_1(void *restrict dst, const float *restrict src, int64_t n) {
    quant_q5_1 *b = dst;
    for (; n > 0; n -= N, b++, src += N) {
        float x[N], low, high;
        int q[N];
        quant_load(x, src, N, limit);
        range(x, &low, &high);
        const float d = (high - low) / 31;
        round_codes(q, x, inverse(d), low, 0.5f, 31);
        quant_put_scale(b->d, d);
        quant_put_scale(b->m, low);
        pack5(b->qh, b->qs, q);
    }
}

void quant_encode_q8_0(void *restrict dst, const float *restrict src, int64_t n) {
    quant_q8_0 *b = dst;
    for (; n > 0; n -= N, b++, src += N) {
        float x[N];
        quant_load(x, src, N, limit);
        const float d = fabsf(extreme(x)) / 127, id = inverse(d);
        for (int j = 0; j < N; j++) {
            /* to the nearest, halves away from zero; the fraction is exact */
            const float v = x[j] * id, a = fabsf(v);
            const int whole = (int)a, q = whole + (a - (float)whole >= 0.5f);
            b->qs[j] = (int8_t)(v < 0 ? -q : q);
        }
        quant_put_scale(b->d, d);
    }
}
