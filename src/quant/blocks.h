/* blocks.h: how each block lies in a file, and the small helpers that the codecs share.
 *
 * Every field is an array of bytes, so a block has no padding and no alignment: a pointer into a mapped file may be
 * read as one wherever it points. Numbers of two and four bytes are little-endian. */
#ifndef QUANT_BLOCKS_H
#define QUANT_BLOCKS_H

#include "quant/quant.h"

#include <string.h>

enum {
#define X(name, number, block, bytes) QUANT_BLOCK_##name = block, QUANT_BYTES_##name = bytes,
    QUANT_TYPES(X)
#undef X
    QUANT_SUPER = 256, /* elements of a super-block: one scale for many small blocks with coarse scales of their own */
};

/* 32 elements: code of element j in the low half of qs[j], of element j + 16 in the high half. */
typedef struct { uint8_t d[2], qs[16]; } quant_q4_0;             /* d * (q - 8) */
typedef struct { uint8_t d[2], m[2], qs[16]; } quant_q4_1;       /* d * q + m */
typedef struct { uint8_t d[2], qh[4], qs[16]; } quant_q5_0;      /* d * (q - 16); bit j of qh is the fifth bit of element j */
typedef struct { uint8_t d[2], m[2], qh[4], qs[16]; } quant_q5_1;
typedef struct { uint8_t d[2]; int8_t qs[32]; } quant_q8_0;      /* d * q */
typedef struct { uint8_t d[2], qs[16]; } quant_iq4_nl;           /* d * quant_iq4_values[q] */
typedef struct { uint8_t e, qs[16]; } quant_mxfp4;               /* 2^(e - 128) * quant_fp4_values[q] */
/* 64 elements in four groups of 16: element j of group g in the low half of qs[8 g + j], element j + 8 in the high half. */
typedef struct { uint8_t d[4], qs[32]; } quant_nvfp4;

/* 256 elements. How the codes are spread over the bytes: see the unpack functions in kquants.c. */
typedef struct { uint8_t scales[16], qs[64], d[2], dmin[2]; } quant_q2_k;          /* per 16: d * sc * q - dmin * m */
typedef struct { uint8_t hmask[32], qs[64], scales[12], d[2]; } quant_q3_k;        /* per 16: d * (sc - 32) * (q - 4) */
typedef struct { uint8_t d[2], dmin[2], scales[12], qs[128]; } quant_q4_k;         /* per 32: d * sc * q - dmin * m */
typedef struct { uint8_t d[2], dmin[2], scales[12], qh[32], qs[128]; } quant_q5_k; /* the same with five bits */
typedef struct { uint8_t ql[128], qh[64]; int8_t scales[16]; uint8_t d[2]; } quant_q6_k; /* per 16: d * sc * (q - 32) */
typedef struct { uint8_t d[2], scales_h[2], scales_l[4], qs[128]; } quant_iq4_xs;  /* per 32: d * (sc - 32) * quant_iq4_values[q] */

/* 256 elements; qs holds indices of grid points of 4 or 8 magnitudes (see grids.h). */
typedef struct { uint8_t d[2], qs[64]; } quant_iq2_xxs;                           /* per 32: 4 indices, 4 x 7 sign bits, 4-bit scale */
typedef struct { uint8_t d[2], qs[64], scales[8]; } quant_iq2_xs;                 /* per 8: 9-bit index, 7 sign bits */
typedef struct { uint8_t d[2], qs[32], signs[32], qh[8], scales[8]; } quant_iq2_s; /* per 8: 10-bit index, 8 sign bits */
typedef struct { uint8_t d[2], qs[64], signs[32]; } quant_iq3_xxs;                /* per 32: 8 indices; 4 x 7 sign bits, 4-bit scale */
typedef struct { uint8_t d[2], qs[64], qh[8], signs[32], scales[4]; } quant_iq3_s; /* per 4: 9-bit index, 4 sign bits */
typedef struct { uint8_t d[2], qs[32], qh[16]; } quant_iq1_s;                     /* per 8: 11-bit index; per 32: scale and shift */
typedef struct { uint8_t qs[32], qh[16], scales[8]; } quant_iq1_m; /* per 8: 11-bit index, shift; d in the scales' top bits */

/* 256 elements of -1, 0, 1. */
typedef struct { uint8_t qs[48], qh[4], d[2]; } quant_tq1_0; /* five (qs) or four (qh) base-3 digits in a byte */
typedef struct { uint8_t qs[64], d[2]; } quant_tq2_0;        /* two bits each */

#define QUANT_SIZE(type, name) _Static_assert(sizeof(quant_##type) == QUANT_BYTES_##name, #name)
QUANT_SIZE(q4_0, Q4_0);
QUANT_SIZE(q4_1, Q4_1);
QUANT_SIZE(q5_0, Q5_0);
QUANT_SIZE(q5_1, Q5_1);
QUANT_SIZE(q8_0, Q8_0);
QUANT_SIZE(q2_k, Q2_K);
QUANT_SIZE(q3_k, Q3_K);
QUANT_SIZE(q4_k, Q4_K);
QUANT_SIZE(q5_k, Q5_K);
QUANT_SIZE(q6_k, Q6_K);
QUANT_SIZE(iq2_xxs, IQ2_XXS);
QUANT_SIZE(iq2_xs, IQ2_XS);
QUANT_SIZE(iq2_s, IQ2_S);
QUANT_SIZE(iq3_xxs, IQ3_XXS);
QUANT_SIZE(iq3_s, IQ3_S);
QUANT_SIZE(iq1_s, IQ1_S);
QUANT_SIZE(iq1_m, IQ1_M);
QUANT_SIZE(iq4_nl, IQ4_NL);
QUANT_SIZE(iq4_xs, IQ4_XS);
QUANT_SIZE(tq1_0, TQ1_0);
QUANT_SIZE(tq2_0, TQ2_0);
QUANT_SIZE(mxfp4, MXFP4);
QUANT_SIZE(nvfp4, NVFP4);

extern const int8_t quant_iq4_values[16];
extern const int8_t quant_fp4_values[16]; /* twice the value of each E2M1 code */

quant_decode_fn quant_decode_q4_0, quant_decode_q4_1, quant_decode_q5_0, quant_decode_q5_1, quant_decode_q8_0;
quant_encode_fn quant_encode_q4_0, quant_encode_q4_1, quant_encode_q5_0, quant_encode_q5_1, quant_encode_q8_0;
quant_decode_fn quant_decode_q2_k, quant_decode_q3_k, quant_decode_q4_k, quant_decode_q5_k, quant_decode_q6_k;
quant_encode_fn quant_encode_q2_k, quant_encode_q3_k, quant_encode_q4_k, quant_encode_q5_k, quant_encode_q6_k;
quant_decode_fn quant_decode_iq2_xxs, quant_decode_iq2_xs, quant_decode_iq2_s, quant_decode_iq3_xxs, quant_decode_iq3_s;
quant_decode_fn quant_decode_iq1_s, quant_decode_iq1_m, quant_decode_iq4_nl, quant_decode_iq4_xs;
quant_encode_fn quant_encode_iq4_nl, quant_encode_iq4_xs;
quant_decode_fn quant_decode_tq1_0, quant_decode_tq2_0, quant_decode_mxfp4, quant_decode_nvfp4;
quant_encode_fn quant_encode_tq1_0, quant_encode_tq2_0, quant_encode_mxfp4;

static inline uint32_t quant_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float quant_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* All selections are by value, so that loops over them vectorise. */
static inline float quant_half(uint16_t h) {
    const uint32_t magnitude = h & 0x7FFFu;
    const uint32_t normal = (magnitude << 13) + (112u << 23);
    const uint32_t special = 0x7F800000u | magnitude << 13 | (magnitude > 0x7C00u ? 0x00400000u : 0u); /* a NaN becomes quiet */
    const uint32_t subnormal = quant_bits((float)(int32_t)magnitude * 0x1p-24f);
    const uint32_t u = magnitude < 0x0400u ? subnormal : magnitude < 0x7C00u ? normal : special;
    return quant_float(u | (uint32_t)(h & 0x8000u) << 16);
}

static inline uint16_t quant_to_half(float f) {
    const uint32_t bits = quant_bits(f), u = bits & 0x7FFFFFFFu;
    const uint32_t special = u > 0x7F800000u ? 0x7E00u | (u >> 13 & 0x3FFu) : 0x7C00u;
    const uint32_t normal = (u - (112u << 23) + 0xFFFu + (u >> 13 & 1u)) >> 13;
    /* Below 2^-14 the unit is 2^-24, which is the unit of floats just above one half: adding one half rounds to it. */
    const uint32_t subnormal = quant_bits(quant_float(u) + 0.5f) - quant_bits(0.5f);
    const uint32_t h = u < (113u << 23) ? subnormal : u < quant_bits(65520.0f) ? normal : special;
    return (uint16_t)(h | (bits >> 16 & 0x8000u));
}

static inline uint16_t quant_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t quant_u32(const uint8_t *p) { return quant_u16(p) | (uint32_t)quant_u16(p + 2) << 16; }
static inline float quant_half_at(const uint8_t *p) { return quant_half(quant_u16(p)); }
static inline void quant_put_u16(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
/* The scale of a block, kept finite: one infinite scale would turn every zero of its block into a NaN. */
static inline void quant_put_scale(uint8_t *p, float f) {
    quant_put_u16(p, quant_to_half(f > 65504.0f ? 65504.0f : f < -65504.0f ? -65504.0f : f));
}

/* Copies n elements to where an encoder can compute with them without overflow: NaN becomes 0, what is beyond the limit
 * becomes the limit. */
static inline void quant_load(float *restrict to, const float *restrict from, int n, float limit) {
    for (int i = 0; i < n; i++) {
        const float x = from[i], y = x > limit ? limit : x;
        to[i] = y < -limit ? -limit : y == y ? y : 0.0f;
    }
}

#endif
