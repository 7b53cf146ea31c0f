/* kquants_encode.c: encoding of Q2_K, Q3_K, Q4_K, Q5_K, Q6_K: what search.c finds, packed as kquants.c unpacks it. A super-block
 * that is as good as zero becomes zero bytes. */
#include "quant/search.h"

static void pack2(uint8_t qs[64], const uint8_t q[QUANT_SUPER]) {
    for (int run = 0; run < 2; run++)
        for (int j = 0; j < 32; j++) {
            const uint8_t *e = q + 128 * run + j;
            qs[32 * run + j] = (uint8_t)((e[0] & 3) | (e[32] & 3) << 2 | (e[64] & 3) << 4 | (e[96] & 3) << 6);
        }
}

static void pack4(uint8_t qs[128], const uint8_t q[QUANT_SUPER]) {
    for (int run = 0; run < 4; run++)
        for (int j = 0; j < 32; j++) qs[32 * run + j] = (uint8_t)((q[64 * run + j] & 15) | (q[64 * run + 32 + j] & 15) << 4);
}

/* One bit of every code. */
static void pack_bit(uint8_t qh[32], const uint8_t q[QUANT_SUPER], int bit) {
    memset(qh, 0, 32);
    for (int k = 0; k < 8; k++)
        for (int j = 0; j < 32; j++) qh[j] |= (uint8_t)((q[32 * k + j] >> bit & 1) << k);
}

static void pack_k_scales(uint8_t packed[12], const uint8_t *scale, const uint8_t *min) {
    for (int j = 0; j < 4; j++) {
        packed[j] = (uint8_t)(scale[j] | scale[4 + j] >> 4 << 6);
        packed[4 + j] = (uint8_t)(min[j] | min[4 + j] >> 4 << 6);
        packed[8 + j] = (uint8_t)((scale[4 + j] & 15) | (min[4 + j] & 15) << 4);
    }
}

static void pack_q3_k_scales(uint8_t packed[12], const int *scale) {
    memset(packed, 0, 12);
    for (int j = 0; j < 16; j++) {
        const unsigned v = (unsigned)(scale[j] + 32);
        packed[j & 7] |= (uint8_t)((v & 15) << (j < 8 ? 0 : 4));
        packed[8 + (j & 3)] |= (uint8_t)(v >> 4 << 2 * (j >> 2));
    }
}

void quant_encode_q2_k(void *restrict dst, const float *restrict src, int64_t n) {
    static const search_mins_shape shape = {.n = 16, .count = 16, .top = 3, .levels = 15, .from = -0.8f, .to = 0.8f, .steps = 9};
    quant_q2_k *out = dst;
    for (; n > 0; n -= QUANT_SUPER, out++, src += QUANT_SUPER) {
        search_block b;
        search_mins c;
        memset(out, 0, sizeof *out);
        if (!search_load(&b, src, QUANT_SUPER)) continue;
        search_with_mins(&c, &b, &shape);
        quant_put_scale(out->d, c.d * b.unit);
        quant_put_scale(out->dmin, c.dmin * b.unit);
        for (int s = 0; s < 16; s++) out->scales[s] = (uint8_t)(c.scale[s] | c.min[s] << 4);
        pack2(out->qs, c.q);
    }
}

void quant_encode_q3_k(void *restrict dst, const float *restrict src, int64_t n) {
    static const search_plain_shape shape = {
        .n = 16, .count = 16, .low = -4, .high = 3, .scale_low = -32, .scale_high = 31, .from = 2.6f, .to = 6.0f, .steps = 9};
    quant_q3_k *out = dst;
    for (; n > 0; n -= QUANT_SUPER, out++, src += QUANT_SUPER) {
        search_block b;
        search_plain c;
        uint8_t q[QUANT_SUPER];
        memset(out, 0, sizeof *out);
        if (!search_load(&b, src, QUANT_SUPER)) continue;
        search_without_mins(&c, &b, &shape);
        quant_put_scale(out->d, c.d * b.unit);
        pack_q3_k_scales(out->scales, c.scale);
        for (int i = 0; i < QUANT_SUPER; i++) q[i] = (uint8_t)(c.q[i] + 4);
        pack_bit(out->hmask, q, 2);
        pack2(out->qs, q);
    }
}

void quant_encode_q4_k(void *restrict dst, const float *restrict src, int64_t n) {
    static const search_mins_shape shape = {.n = 32, .count = 8, .top = 15, .levels = 63, .from = -2.0f, .to = 1.0f, .steps = 16};
    quant_q4_k *out = dst;
    for (; n > 0; n -= QUANT_SUPER, out++, src += QUANT_SUPER) {
        search_block b;
        search_mins c;
        memset(out, 0, sizeof *out);
        if (!search_load(&b, src, QUANT_SUPER)) continue;
        search_with_mins(&c, &b, &shape);
        quant_put_scale(out->d, c.d * b.unit);
        quant_put_scale(out->dmin, c.dmin * b.unit);
        pack_k_scales(out->scales, c.scale, c.min);
        pack4(out->qs, c.q);
    }
}

void quant_encode_q5_k(void *restrict dst, const float *restrict src, int64_t n) {
    static const search_mins_shape shape = {.n = 32, .count = 8, .top = 31, .levels = 63, .from = -2.5f, .to = 0.5f, .steps = 16};
    quant_q5_k *out = dst;
    for (; n > 0; n -= QUANT_SUPER, out++, src += QUANT_SUPER) {
        search_block b;
        search_mins c;
        memset(out, 0, sizeof *out);
        if (!search_load(&b, src, QUANT_SUPER)) continue;
        search_with_mins(&c, &b, &shape);
        quant_put_scale(out->d, c.d * b.unit);
        quant_put_scale(out->dmin, c.dmin * b.unit);
        pack_k_scales(out->scales, c.scale, c.min);
        pack_bit(out->qh, c.q, 4);
        pack4(out->qs, c.q);
    }
}

void quant_encode_q6_k(void *restrict dst, const float *restrict src, int64_t n) {
    static const search_plain_shape shape = {
        .n = 16, .count = 16, .low = -32, .high = 31, .scale_low = -128, .scale_high = 127, .from = 28.0f, .to = 32.5f, .steps = 8};
    quant_q6_k *out = dst;
    for (; n > 0; n -= QUANT_SUPER, out++, src += QUANT_SUPER) {
        search_block b;
        search_plain c;
        uint8_t q[QUANT_SUPER], high[QUANT_SUPER];
        memset(out, 0, sizeof *out);
        if (!search_load(&b, src, QUANT_SUPER)) continue;
        search_without_mins(&c, &b, &shape);
        quant_put_scale(out->d, c.d * b.unit);
        for (int s = 0; s < 16; s++) out->scales[s] = (int8_t)c.scale[s];
        for (int i = 0; i < QUANT_SUPER; i++) {
            q[i] = (uint8_t)(c.q[i] + 32);
            high[i] = q[i] >> 4;
        }
        for (int run = 0; run < 2; run++)
            for (int j = 0; j < 64; j++) out->ql[64 * run + j] = (uint8_t)((q[128 * run + j] & 15) | (q[128 * run + 64 + j] & 15) << 4);
        pack2(out->qh, high);
    }
}
