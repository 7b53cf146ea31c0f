/* kquants.c: decoding of the types with a scale of scales: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K. A super-block of 256 elements has
 * one half scale (and one for minimums), and small blocks of 16 or 32 elements have integer scales in units of it.
 * kquants_encode.c is the other direction. */
#include "quant/blocks.h"

/* 64 bytes hold two runs of four planes: plane k of a run is bits 2k and 2k + 1 of its 32 bytes. */
static inline void unpack2(uint8_t q[QUANT_SUPER], const uint8_t qs[64]) {
    for (int run = 0; run < 2; run++)
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < 32; j++) q[128 * run + 32 * k + j] = qs[32 * run + j] >> 2 * k & 3;
}

/* 128 bytes hold four runs of two planes: the low and the high halves of its 32 bytes. */
static inline void unpack4(uint8_t q[QUANT_SUPER], const uint8_t qs[128]) {
    for (int run = 0; run < 4; run++)
        for (int j = 0; j < 32; j++) {
            q[64 * run + j] = qs[32 * run + j] & 15;
            q[64 * run + 32 + j] = qs[32 * run + j] >> 4;
        }
}

/* 32 bytes hold one bit of every element: plane k is bit k, worth `value`. */
static inline void add_bit(uint8_t q[QUANT_SUPER], const uint8_t qh[32], int value) {
    for (int k = 0; k < 8; k++)
        for (int j = 0; j < 32; j++) q[32 * k + j] |= (uint8_t)((qh[j] >> k & 1) * value);
}

/* Q4_K and Q5_K: eight scales and eight minimums of six bits. The first four of each are the low six bits of bytes 0..7; of the
 * others the low four bits are in bytes 8..11 (minimums in the high halves) and the top two in the top of bytes 0..7. */
static void unpack_scales_and_mins(uint8_t scale[8], uint8_t min[8], const uint8_t packed[12]) {
    for (int j = 0; j < 4; j++) {
        scale[j] = packed[j] & 63;
        min[j] = packed[4 + j] & 63;
        scale[4 + j] = (uint8_t)((packed[8 + j] & 15) | (packed[j] >> 6) << 4);
        min[4 + j] = (uint8_t)(packed[8 + j] >> 4 | (packed[4 + j] >> 6) << 4);
    }
}

/* Q3_K: sixteen signed scales of six bits. The low four bits are in bytes 0..7, the last eight in the high halves; the top two
 * bits are in bytes 8..11. */
static void unpack_signed_scales(int8_t scale[16], const uint8_t packed[12]) {
    for (int j = 0; j < 16; j++) {
        const int low = packed[j & 7] >> (j < 8 ? 0 : 4) & 15, high = packed[8 + (j & 3)] >> 2 * (j >> 2) & 3;
        scale[j] = (int8_t)((low | high << 4) - 32);
    }
}

void quant_decode_q2_k(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_q2_k *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++, dst += QUANT_SUPER) {
        const float d = quant_half_at(b->d), dmin = quant_half_at(b->dmin);
        uint8_t q[QUANT_SUPER];
        unpack2(q, b->qs);
        for (int s = 0; s < 16; s++) {
            const float scale = d * (float)(b->scales[s] & 15), min = dmin * (float)(b->scales[s] >> 4);
            for (int j = 16 * s; j < 16 * s + 16; j++) dst[j] = scale * (float)q[j] - min;
        }
    }
}

void quant_decode_q3_k(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_q3_k *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++, dst += QUANT_SUPER) {
        const float d = quant_half_at(b->d);
        uint8_t q[QUANT_SUPER];
        int8_t scales[16];
        unpack2(q, b->qs);
        add_bit(q, b->hmask, 4);
        unpack_signed_scales(scales, b->scales);
        for (int s = 0; s < 16; s++) {
            const float scale = d * (float)scales[s];
            for (int j = 16 * s; j < 16 * s + 16; j++) dst[j] = scale * (float)(q[j] - 4);
        }
    }
}

/* What Q4_K and Q5_K share once the codes are unpacked. */
static inline void decode_with_mins(float *restrict dst, const uint8_t *restrict q, const uint8_t *restrict packed, float d, float dmin) {
    uint8_t scales[8], mins[8];
    unpack_scales_and_mins(scales, mins, packed);
    for (int s = 0; s < 8; s++) {
        const float scale = d * (float)scales[s], min = dmin * (float)mins[s];
        for (int j = 32 * s; j < 32 * s + 32; j++) dst[j] = scale * (float)q[j] - min;
    }
}

void quant_decode_q4_k(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_q4_k *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++, dst += QUANT_SUPER) {
        uint8_t q[QUANT_SUPER];
        unpack4(q, b->qs);
        decode_with_mins(dst, q, b->scales, quant_half_at(b->d), quant_half_at(b->dmin));
    }
}

void quant_decode_q5_k(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_q5_k *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++, dst += QUANT_SUPER) {
        uint8_t q[QUANT_SUPER];
        unpack4(q, b->qs);
        add_bit(q, b->qh, 16);
        decode_with_mins(dst, q, b->scales, quant_half_at(b->d), quant_half_at(b->dmin));
    }
}

void quant_decode_q6_k(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_q6_k *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++, dst += QUANT_SUPER) {
        const float d = quant_half_at(b->d);
        uint8_t q[QUANT_SUPER], high[QUANT_SUPER];
        /* ql has two runs of 64 bytes: the low halves are the run's first 64 elements. */
        for (int run = 0; run < 2; run++)
            for (int j = 0; j < 64; j++) {
                q[128 * run + j] = b->ql[64 * run + j] & 15;
                q[128 * run + 64 + j] = b->ql[64 * run + j] >> 4;
            }
        unpack2(high, b->qh);
        for (int s = 0; s < 16; s++) {
            const float scale = d * (float)b->scales[s];
            for (int j = 16 * s; j < 16 * s + 16; j++) dst[j] = scale * (float)((q[j] | high[j] << 4) - 32);
        }
    }
}
