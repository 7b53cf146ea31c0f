/* attention_quant_impl.h: what attention needs for quantized keys and values (Q8_0, Q4_0), in the words of an ops_*.h.
 *
 * Scores are sums of whole numbers. Each 32 numbers of a query become whole numbers of 15 bits with one scale, so that sums with the codes of a key are exact within
 * 32 columns, and a query's bits do not depend on the queries beside it. The rounding of a query (2^-15 of its largest number) is far below that of
 * a half. Values are turned to floats in registers; their scales go into the weights of the softmax, once for every 32 columns. */
#ifndef KERNELS_ATTENTION_QUANT_IMPL_H
#define KERNELS_ATTENTION_QUANT_IMPL_H

#include "kernels/panel_types_impl.h"
#include "kernels/vector_impl.h"

#define ATT_ROWS 64              /* most rows whose scales are taken at once */
#define ATT_STEP (TILE_STEP / 2) /* queries that share their places in registers */

/* Queries in steps of ATT_STEP (the last may be smaller, w): for every 32 columns w times 64 bytes, as query_put lays them out. Apart, for each query and 32
 * columns: the scale, and minus the sum of the whole numbers. */
typedef struct att_queries {
    int8_t *bytes;
    float *scale;
    int32_t *minus_sum;
    int blocks; /* of 32 columns */
} att_queries;

INLINE int step_width(int n_q, int q) { return n_q - q / ATT_STEP * ATT_STEP < ATT_STEP ? n_q - q / ATT_STEP * ATT_STEP : ATT_STEP; }
INLINE int8_t *step_bytes(const att_queries *s, int q) { return s->bytes + (int64_t)(q / ATT_STEP * ATT_STEP) * s->blocks * 64; }

/* 32 numbers as whole ones. Returns the scale, which is not a number when one of them is not finite. */
static float query_block(int8_t *dst, const float *x, int32_t *minus_sum) {
    vf largest = vf_set(0), none = vf_set(0);
    for (int i = 0; i < 32; i += LANES) {
        const vf v = vf_load(x + i);
        largest = vf_max(vf_max(v, vf_sub(vf_set(0), v)), largest);
        none = vf_fma(v, vf_set(0), none);
    }
    const float most = vf_largest(largest), units = QUERY_MOST;
    *minus_sum = 0;
    if (vf_sum(none) != 0 || !(most < INFINITY)) {
        memset(dst, 0, 64);
        return NAN;
    }
    int32_t number[32];
    const vf inverse = vf_set(most > 0 ? units / most : 0);
    for (int i = 0; i < 32; i += LANES) vi_store(number + i, vi_of(vf_mul(vf_load(x + i), inverse)));
    for (int i = 0; i < 32; i++) *minus_sum -= number[i];
    query_put(dst, number);
    return most / units;
}

static void att_bytes_queries(const att_queries *s, const kern_attention *a) {
    for (int q = 0; q < a->n_q; q++) {
        const int w = step_width(a->n_q, q);
        int8_t *at = step_bytes(s, q) + q % ATT_STEP * 64;
        for (int b = 0; b < s->blocks; b++, at += 64 * w) {
            float x[32] = {0};
            memcpy(x, a->q + q * a->ldq + 32 * b, (size_t)(a->k_dim - 32 * b < 32 ? a->k_dim - 32 * b : 32) * sizeof *x);
            s->scale[q * s->blocks + b] = query_block(at, x, &s->minus_sum[q * s->blocks + b]);
        }
    }
}

/* Sixteen keys side by side, as a chunk of weights of their type but of any number of blocks. */
INLINE void att_pack_keys(uint8_t *dst, const uint8_t *const row[16], int blocks, int bits, size_t ahead) {
    const size_t piece = bits == 8 ? 512 : 256, bytes = bits == 8 ? 34 : 18;
    for (int b = 0; b < blocks; b++) {
        gather_halves(dst + 32 * b, row, bytes * (size_t)b);
        for (size_t i = 0; i < piece / 256; i++) transpose16(dst + 32 * (size_t)blocks + piece * (size_t)b + 256 * i, row, bytes * (size_t)b + 2 + 16 * i);
        for (size_t i = 0; ahead && i < 16 * bytes; i += 64) ask(row[0], ahead + 16 * bytes * (size_t)b + i);
    }
}

/* As q8_0_unpack, but with the sign left as it is. */
INLINE void att_unpack_bytes(block *o, const uint8_t *keys, int blocks, int b, int h) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) o->w[i] = vi_load(WORD(keys + 32 * blocks + 512 * b, i));
    o->scale = vf_half_load(keys + 32 * b + 2 * h);
}

/* Scores of `count` queries from q (a multiple of ATT_STEP) over 16 keys: score is 16 floats, row after row `ld` apart. */
INLINE void att_bytes_part(const att_queries *s, float *score, int ld, const uint8_t *keys, int q, int count, const int bits) {
    for (int h = 0; h < PANEL_ROWS; h += LANES) {
        const int8_t *x = step_bytes(s, q);
        vf sum[ATT_STEP];
#pragma GCC unroll 4
        for (int t = 0; t < count; t++) sum[t] = vf_set(0);
        for (int b = 0; b < s->blocks; b++, x += 64 * count) {
            block o;
            vi n[ATT_STEP];
            if (bits == 8) att_unpack_bytes(&o, keys, s->blocks, b, h);
            else q4_0_unpack(&o, keys, s->blocks, b, h);
#pragma GCC unroll 4
            for (int t = 0; t < count; t++) n[t] = bits == 8 ? vi_set(0) : vi_shl(vi_cast(&s->minus_sum[(q + t) * s->blocks + b]), 3);
            query_dots(n, o.w, x, count);
#pragma GCC unroll 4
            for (int t = 0; t < count; t++) sum[t] = vf_fma(vf_of(n[t]), vf_mul(o.scale, vf_set(s->scale[(q + t) * s->blocks + b])), sum[t]);
        }
#pragma GCC unroll 4
        for (int t = 0; t < count; t++) vf_store(score + t * ld + h, sum[t]);
    }
}

#define ATT_BYTES(name, bits)                                                                                                             \
    static void att_bytes_##name(const att_queries *s, float *score, int ld, const uint8_t *keys, int q, int w) {                         \
        if (w >= ATT_STEP) att_bytes_part(s, score, ld, keys, q, ATT_STEP, bits);                                                         \
        else if (w == 3) att_bytes_part(s, score, ld, keys, q, 3, bits);                                                                  \
        else if (w == 2) att_bytes_part(s, score, ld, keys, q, 2, bits);                                                                  \
        else att_bytes_part(s, score, ld, keys, q, 1, bits);                                                                              \
    }
ATT_BYTES(q8_0, 8)
ATT_BYTES(q4_0, 4)

/* The scales of rows first..last: for every 32 columns `ld` floats. */
static void att_row_scales(float *dst, int ld, const uint8_t *const *row, int first, int last, int blocks, int bits) {
    const size_t bytes = bits == 8 ? 34 : 18;
    for (int b = 0; b < blocks; b++, dst += ld) {
        uint16_t halves[ATT_ROWS];
        for (int i = first; i <= last; i++) memcpy(&halves[i], row[i] + bytes * (size_t)b, 2);
        for (int i = first / LANES * LANES; i <= last; i += LANES) vf_store(dst + i, vf_half_load(halves + i));
    }
}

/* LANES numbers of a row from column `at`, a multiple of LANES, without their scale. */
INLINE vf att_row_bytes(const uint8_t *row, int64_t at) { return vf_of(vi_signed_bytes(row + at / 32 * 34 + 2 + at % 32)); }
INLINE vf att_row_nibbles(const uint8_t *row, int64_t at) {
    const vi pair = vi_unsigned_bytes(row + at / 32 * 18 + 2 + at % 16);
    return vf_of(vi_sub(at % 32 < 16 ? vi_and(pair, vi_set(15)) : vi_shr(pair, 4), vi_set(8)));
}

/* ---- to blocks ---- */

static float vec_q8_0_block(uint8_t *dst, const float *x) {
    int32_t minus_sum[2];
    return quantize32((int8_t *)dst, x, minus_sum);
}

static float vec_q4_0_block(uint8_t *dst, const float *x) {
    vf most = vf_set(0), least = vf_set(0), none = vf_set(0);
    for (int i = 0; i < 32; i += LANES) {
        const vf v = vf_load(x + i);
        most = vf_max(v, most), least = vf_max(vf_sub(vf_set(0), v), least);
        none = vf_fma(v, vf_set(0), none);
    }
    const float high = vf_largest(most), low = vf_largest(least), scale = high > low ? high / -8 : low / 8; /* the largest in size is -8 */
    uint32_t code[32];
    const vf inverse = vf_set(scale != 0 ? 1 / scale : 0);
    for (int i = 0; i < 32; i += LANES) vi_store(code + i, vi_of(vf_min(vf_add(vf_mul(vf_load(x + i), inverse), vf_set(8)), vf_set(15))));
    for (int i = 0; i < 16; i++) dst[i] = (uint8_t)((code[i] & 15) | (code[i + 16] & 15) << 4);
    return vf_sum(none) != 0 ? NAN : scale;
}

static void vec_to_blocks(int type, void *dst, const float *src, int64_t n) {
    const int bytes = type == QUANT_Q8_0 ? 34 : 18;
    for (uint8_t *at = dst; n > 0; n -= 32, src += 32, at += bytes) {
        float x[32] = {0}, scale[LANES] = {0};
        uint16_t half[LANES];
        memcpy(x, src, (size_t)(n < 32 ? n : 32) * sizeof *x);
        scale[0] = type == QUANT_Q8_0 ? vec_q8_0_block(at + 2, x) : vec_q4_0_block(at + 2, x);
        vf_half_store(half, vf_load(scale));
        memcpy(at, half, 2);
    }
}

#endif
