/* quant.c: the table of types, and the types that are plain numbers. */
#include "quant/quant.h"

#include <string.h>
#include <strings.h>

#include "quant/blocks.h"

float quant_f16_to_f32(uint16_t h) { return quant_half(h); }
uint16_t quant_f32_to_f16(float f) { return quant_to_half(f); }

uint16_t quant_f32_to_bf16(float f) {
    const uint32_t u = quant_bits(f);
    const uint32_t rounded = (u + 0x7FFFu + (u >> 16 & 1u)) >> 16;
    return (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? u >> 16 | 0x40u : rounded); /* a NaN stays one, and quiet */
}

static void decode_f32(float *restrict dst, const void *restrict src, int64_t n) { memcpy(dst, src, (size_t)n * 4); }
static void encode_f32(void *restrict dst, const float *restrict src, int64_t n) { memcpy(dst, src, (size_t)n * 4); }

static void decode_f64(float *restrict dst, const void *restrict src, int64_t n) {
    const unsigned char *p = src;
    for (int64_t i = 0; i < n; i++) {
        double v;
        memcpy(&v, p + 8 * i, 8);
        dst[i] = (float)v;
    }
}

static void decode_f16(float *restrict dst, const void *restrict src, int64_t n) {
    const uint8_t *p = src;
    for (int64_t i = 0; i < n; i++) dst[i] = quant_half_at(p + 2 * i);
}

static void encode_f16(void *restrict dst, const float *restrict src, int64_t n) {
    uint8_t *p = dst;
    for (int64_t i = 0; i < n; i++) quant_put_u16(p + 2 * i, quant_to_half(src[i]));
}

static void decode_bf16(float *restrict dst, const void *restrict src, int64_t n) {
    const uint8_t *p = src;
    for (int64_t i = 0; i < n; i++) dst[i] = quant_bf16_to_f32(quant_u16(p + 2 * i));
}

static void encode_bf16(void *restrict dst, const float *restrict src, int64_t n) {
    uint8_t *p = dst;
    for (int64_t i = 0; i < n; i++) quant_put_u16(p + 2 * i, quant_f32_to_bf16(src[i]));
}

#define TYPE(name, decode, encode) [QUANT_##name] = {#name, QUANT_##name, QUANT_BLOCK_##name, QUANT_BYTES_##name, decode, encode}
static const quant_info infos[QUANT_TYPE_END] = {
    TYPE(F32, decode_f32, encode_f32),
    TYPE(F16, decode_f16, encode_f16),
    TYPE(BF16, decode_bf16, encode_bf16),
    TYPE(F64, decode_f64, NULL),
    TYPE(I8, NULL, NULL),
    TYPE(I16, NULL, NULL),
    TYPE(I32, NULL, NULL),
    TYPE(I64, NULL, NULL),
    TYPE(Q4_0, quant_decode_q4_0, quant_encode_q4_0),
    TYPE(Q4_1, quant_decode_q4_1, quant_encode_q4_1),
    TYPE(Q5_0, quant_decode_q5_0, quant_encode_q5_0),
    TYPE(Q5_1, quant_decode_q5_1, quant_encode_q5_1),
    TYPE(Q8_0, quant_decode_q8_0, quant_encode_q8_0),
    TYPE(Q2_K, quant_decode_q2_k, quant_encode_q2_k),
    TYPE(Q3_K, quant_decode_q3_k, quant_encode_q3_k),
    TYPE(Q4_K, quant_decode_q4_k, quant_encode_q4_k),
    TYPE(Q5_K, quant_decode_q5_k, quant_encode_q5_k),
    TYPE(Q6_K, quant_decode_q6_k, quant_encode_q6_k),
    TYPE(IQ2_XXS, quant_decode_iq2_xxs, NULL),
    TYPE(IQ2_XS, quant_decode_iq2_xs, NULL),
    TYPE(IQ2_S, quant_decode_iq2_s, NULL),
    TYPE(IQ3_XXS, quant_decode_iq3_xxs, NULL),
    TYPE(IQ3_S, quant_decode_iq3_s, NULL),
    TYPE(IQ1_S, quant_decode_iq1_s, NULL),
    TYPE(IQ1_M, quant_decode_iq1_m, NULL),
    TYPE(IQ4_NL, quant_decode_iq4_nl, quant_encode_iq4_nl),
    TYPE(IQ4_XS, quant_decode_iq4_xs, quant_encode_iq4_xs),
    TYPE(TQ1_0, quant_decode_tq1_0, quant_encode_tq1_0),
    TYPE(TQ2_0, quant_decode_tq2_0, quant_encode_tq2_0),
    TYPE(MXFP4, quant_decode_mxfp4, quant_encode_mxfp4),
    TYPE(NVFP4, quant_decode_nvfp4, NULL),
};

const quant_info *quant_find(int type) { return type >= 0 && type < QUANT_TYPE_END && infos[type].name ? &infos[type] : NULL; }

const quant_info *quant_find_name(const char *name) {
    for (int type = 0; type < QUANT_TYPE_END; type++)
        if (infos[type].name && strcasecmp(infos[type].name, name) == 0) return &infos[type];
    return NULL;
}
