/* iquants.c: decoding of the types whose codes are indices of published points: IQ1_*, IQ2_*, IQ3_* (grids of 4 or 8
 * magnitudes, with signs apart) and IQ4_* (16 values at uneven distances). */
#include "quant/blocks.h"
#include "quant/grids.h"

const int8_t quant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* Eight signs in seven bits: the number of minus signs is even, so the last one follows from the others. */
static inline unsigned signs_of(uint32_t seven) {
    seven &= 127;
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

static inline float *put_signed(float *restrict dst, float d, const int8_t *restrict point, int n, unsigned signs) {
    for (int j = 0; j < n; j++) dst[j] = d * (float)(signs >> j & 1 ? -point[j] : point[j]);
    return dst + n;
}

void quant_decode_iq2_xxs(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_iq2_xxs *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++) {
        const float d = quant_half_at(b->d);
        for (const uint8_t *p = b->qs; p < b->qs + 64; p += 8) {
            const uint32_t signs = quant_u32(p + 4);
            const float scale = d * (0.5f + (float)(signs >> 28)) * 0.25f;
            for (int k = 0; k < 4; k++) dst = put_signed(dst, scale, quant_grid_iq2_xxs[p[k]], 8, signs_of(signs >> 7 * k));
        }
    }
}

void quant_decode_iq2_xs(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_iq2_xs *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++) {
        const float d = quant_half_at(b->d);
        for (int k = 0; k < 32; k++) { /* 8 elements each; two of these share a scale, four a byte of scales */
            const unsigned q = quant_u16(b->qs + 2 * k), s = b->scales[k / 4] >> (k & 2 ? 4 : 0) & 15;
            dst = put_signed(dst, d * (0.5f + (float)s) * 0.25f, quant_grid_iq2_xs[q & 511], 8, signs_of(q >> 9));
        }
    }
}

void quant_decode_iq2_s(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_iq2_s *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++) {
        const float d = quant_half_at(b->d);
        for (int k = 0; k < 32; k++) {
            const unsigned q = b->qs[k] | (b->qh[k / 4] >> 2 * (k & 3) & 3u) << 8, s = b->scales[k / 4] >> (k & 2 ? 4 : 0) & 15;
            dst = put_signed(dst, d * (0.5f + (float)s) * 0.25f, quant_grid_iq2_s[q], 8, b->signs[k]);
        }
    }
}

void quant_decode_iq3_xxs(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_iq3_xxs *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++) {
        const float d = quant_half_at(b->d);
        for (int s = 0; s < 8; s++) {
            const uint32_t word = quant_u32(b->signs + 4 * s);
            const float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
            for (int k = 0; k < 4; k++) {
                const unsigned signs = signs_of(word >> 7 * k);
                const uint8_t *q = b->qs + 8 * s + 2 * k;
                dst = put_signed(dst, scale, quant_grid_iq3_xxs[q[0]], 4, signs);
                dst = put_signed(dst, scale, quant_grid_iq3_xxs[q[1]], 4, signs >> 4);
            }
        }
    }
}

void quant_decode_iq3_s(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_iq3_s *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++) {
        const float d = quant_half_at(b->d);
        for (int k = 0; k < 64; k++) { /* 4 elements each, eight of these to a scale */
            const unsigned q = b->qs[k] | (b->qh[k / 8] >> (k & 7) & 1u) << 8, s = b->scales[k / 16] >> (k & 8 ? 4 : 0) & 15;
            dst = put_signed(dst, d * (float)(1 + 2 * s), quant_grid_iq3_s[q], 4, b->signs[k / 2] >> (k & 1 ? 4 : 0));
        }
    }
}

/* In the IQ1 types every element of a run is moved by an eighth, up or down. */
static inline float *put_shifted(float *restrict dst, float d, const int8_t *restrict point, bool down) {
    const float shift = down ? -0.125f : 0.125f;
    for (int j = 0; j < 8; j++) dst[j] = d * ((float)point[j] + shift);
    return dst + 8;
}

void quant_decode_iq1_s(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_iq1_s *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++) {
        const float d = quant_half_at(b->d);
        for (int k = 0; k < 32; k++) {
            const unsigned h = quant_u16(b->qh + 2 * (k / 4)), q = b->qs[k] | (h >> 3 * (k & 3) & 7u) << 8;
            dst = put_shifted(dst, d * (float)(2 * (h >> 12 & 7) + 1), quant_grid_iq1[q], h >> 15);
        }
    }
}

void quant_decode_iq1_m(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_iq1_m *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++) {
        /* The half scale is in the top four bits of the four words of scales, lowest bits first. */
        unsigned bits = 0;
        for (int w = 0; w < 4; w++) bits |= (unsigned)(b->scales[2 * w + 1] >> 4) << 4 * w;
        const float d = quant_half((uint16_t)bits);
        for (int k = 0; k < 32; k++) { /* 8 elements each; two of these share a scale, eight a word of scales */
            const unsigned s = quant_u16(b->scales + 2 * (k / 8)) >> 3 * (k / 2 & 3) & 7u;
            const unsigned h = b->qh[k / 2] >> (k & 1 ? 4 : 0) & 15u, q = b->qs[k] | (h & 7) << 8;
            dst = put_shifted(dst, d * (float)(2 * s + 1), quant_grid_iq1[q], h >> 3);
        }
    }
}

static inline void put_iq4(float *restrict dst, float d, const uint8_t *restrict qs) {
    for (int j = 0; j < 16; j++) {
        dst[j] = d * (float)quant_iq4_values[qs[j] & 15];
        dst[j + 16] = d * (float)quant_iq4_values[qs[j] >> 4];
    }
}

void quant_decode_iq4_nl(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_iq4_nl *b = src;
    for (; n > 0; n -= 32, b++, dst += 32) put_iq4(dst, quant_half_at(b->d), b->qs);
}

void quant_decode_iq4_xs(float *restrict dst, const void *restrict src, int64_t n) {
    const quant_iq4_xs *b = src;
    for (; n > 0; n -= QUANT_SUPER, b++) {
        const float d = quant_half_at(b->d);
        for (int s = 0; s < 8; s++, dst += 32) {
            const int low = b->scales_l[s / 2] >> (s & 1 ? 4 : 0) & 15, high = quant_u16(b->scales_h) >> 2 * s & 3;
            put_iq4(dst, d * (float)((low | high << 4) - 32), b->qs + 16 * s);
        }
    }
}
