/* iq4_encode.c: encoding of IQ4_NL and IQ4_XS, whose codes are indices of 16 values at uneven distances. */
#include "quant/search.h"

static int index_of(int value) {
    int k = 0;
    while (k < 15 && quant_iq4_values[k] < value) k++;
    return k;
}

static void pack(uint8_t qs[16], const int8_t *values) {
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)(index_of(values[j]) | index_of(values[j + 16]) << 4);
}

void quant_encode_iq4_nl(void *restrict dst, const float *restrict src, int64_t n) {
    /* The scale of scales is the scale, unless zero is better: no value is zero. */
    static const search_plain_shape shape = {
        .n = 32, .count = 1, .values = quant_iq4_values, .scale_low = 0, .scale_high = 1, .from = 95.0f, .to = 135.0f, .steps = 11};
    quant_iq4_nl *out = dst;
    for (; n > 0; n -= 32, out++, src += 32) {
        search_block b;
        search_plain c;
        memset(out, 0, sizeof *out);
        if (!search_load(&b, src, 32)) continue;
        search_without_mins(&c, &b, &shape);
        quant_put_scale(out->d, c.d * (float)c.scale[0] * b.unit);
        pack(out->qs, c.q);
    }
}

void quant_encode_iq4_xs(void *restrict dst, const float *restrict src, int64_t n) {
    static const search_plain_shape shape = {
        .n = 32, .count = 8, .values = quant_iq4_values, .scale_low = -32, .scale_high = 31, .from = 95.0f, .to = 135.0f, .steps = 11};
    quant_iq4_xs *out = dst;
    for (; n > 0; n -= QUANT_SUPER, out++, src += QUANT_SUPER) {
        search_block b;
        search_plain c;
        unsigned high = 0;
        memset(out, 0, sizeof *out);
        if (!search_load(&b, src, QUANT_SUPER)) continue;
        search_without_mins(&c, &b, &shape);
        quant_put_scale(out->d, c.d * b.unit);
        for (int s = 0; s < 8; s++) {
            const unsigned scale = (unsigned)(c.scale[s] + 32);
            out->scales_l[s / 2] |= (uint8_t)((scale & 15) << (s & 1 ? 4 : 0));
            high |= scale >> 4 << 2 * s;
            pack(out->qs + 16 * s, c.q + 32 * s);
        }
        quant_put_u16(out->scales_h, high);
    }
}
