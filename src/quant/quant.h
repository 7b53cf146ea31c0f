/* quant.h: the block formats of GGUF tensors. Plain C, the truth that the kernels are tested against. */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H

#include "base/err.h"

/* X(name, number in the file, elements per block, bytes per block) */
#define QUANT_TYPES(X)                                                                              \
    X(F32, 0, 1, 4)                                                                                 \
    X(F16, 1, 1, 2)                                                                                 \
    X(Q4_0, 2, 32, 18)                                                                              \
    X(Q4_1, 3, 32, 20)                                                                              \
    X(Q5_0, 6, 32, 22)                                                                              \
    X(Q5_1, 7, 32, 24)                                                                              \
    X(Q8_0, 8, 32, 34)                                                                              \
    X(Q2_K, 10, 256, 84)                                                                            \
    X(Q3_K, 11, 256, 110)                                                                           \
    X(Q4_K, 12, 256, 144)                                                                           \
    X(Q5_K, 13, 256, 176)                                                                           \
    X(Q6_K, 14, 256, 210)                                                                           \
    X(IQ2_XXS, 16, 256, 66)                                                                         \
    X(IQ2_XS, 17, 256, 74)                                                                          \
    X(IQ3_XXS, 18, 256, 98)                                                                         \
    X(IQ1_S, 19, 256, 50)                                                                           \
    X(IQ4_NL, 20, 32, 18)                                                                           \
    X(IQ3_S, 21, 256, 110)                                                                          \
    X(IQ2_S, 22, 256, 82)                                                                           \
    X(IQ4_XS, 23, 256, 136)                                                                         \
    X(I8, 24, 1, 1)                                                                                 \
    X(I16, 25, 1, 2)                                                                                \
    X(I32, 26, 1, 4)                                                                                \
    X(I64, 27, 1, 8)                                                                                \
    X(F64, 28, 1, 8)                                                                                \
    X(IQ1_M, 29, 256, 56)                                                                           \
    X(BF16, 30, 1, 2)                                                                               \
    X(TQ1_0, 34, 256, 54)                                                                           \
    X(TQ2_0, 35, 256, 66)                                                                           \
    X(MXFP4, 39, 32, 17)                                                                            \
    X(NVFP4, 40, 64, 36)

enum quant_type {
#define X(name, number, block, bytes) QUANT_##name = number,
    QUANT_TYPES(X)
#undef X
    QUANT_TYPE_END = 41,
};

/* Both work on whole blocks: n is a multiple of the block's elements. Packed bytes may have any alignment, and any bytes can be
 * decoded. Encoding to F32, F16 and BF16 keeps NaN and infinities. A block of another type has no place for them: there a NaN
 * counts as 0, and what is too large for the type's scale as the largest it has. Callers that mind check before. */
typedef void quant_decode_fn(float *dst, const void *src, int64_t n);
typedef void quant_encode_fn(void *dst, const float *src, int64_t n);

typedef struct quant_info {
    const char *name;
    int type;
    int block; /* elements per block */
    int bytes; /* bytes per block */
    quant_decode_fn *decode; /* NULL: hearth cannot compute with it (the integer types) */
    quant_encode_fn *encode; /* NULL: hearth cannot write it */
} quant_info;

const quant_info *quant_find(int type);             /* NULL for an unknown number */
const quant_info *quant_find_name(const char *name); /* any case; NULL when unknown */
/* Bytes of n elements; n must be a multiple of the block. */
static inline uint64_t quant_bytes(const quant_info *q, uint64_t n) { return n / (uint64_t)q->block * (uint64_t)q->bytes; }

/* Conversions used everywhere; bit-exact, round to nearest even. */
float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f);
static inline float quant_bf16_to_f32(uint16_t h) {
    union { uint32_t u; float f; } v = {.u = (uint32_t)h << 16};
    return v.f;
}
uint16_t quant_f32_to_bf16(float f);

#endif
