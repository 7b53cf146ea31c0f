/* panel32_impl.h: products of the quantized types whose blocks have 32 columns, and the activations of all quantized types. In the words of an ops_*.h. */
#ifndef KERNELS_PANEL32_IMPL_H
#define KERNELS_PANEL32_IMPL_H

#include "kernels/panel_impl.h"

size_t SET(bytes_act_bytes)(int64_t cols, int64_t n) { return act_bytes(cols, n); }

void SET(bytes_act)(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t n, kern_part p) {
    for (int64_t t = p.t0; t < p.t1; t++) {
        int64_t tile = t / PANEL_TILE * PANEL_TILE, i = t - tile, w = min_of(PANEL_TILE, n - tile);
        uint8_t *at = (uint8_t *)dst + act_bytes(cols, tile) + act_bytes(p.c0, w);
        float total = 0;
        for (int64_t c = p.c0; c < p.c1; c += 32, at += PANEL_ACT * w) {
            int32_t minus[2];
            const float scale = quantize32((int8_t *)at + 32 * i, x + t * ldx + c - p.c0, minus);
            const int32_t sum = minus[0] + minus[1], halves[2] = {32 * minus[0], 32 * minus[1]};
            const float scaled = scale * (float)-sum;
            memcpy(at + 32 * w + 4 * i, &scale, 4);
            memcpy(at + 36 * w + 4 * i, &scaled, 4);
            memcpy(at + 40 * w + 4 * i, &sum, 4);
            memcpy(at + 44 * w + 4 * i, &halves[0], 4);
            memcpy(at + 48 * w + 4 * i, &halves[1], 4);
            total -= scaled;
            if ((c + 32) % PANEL_CHUNK && c + 32 < cols) continue;
            memcpy(at + PANEL_ACT * w + 4 * i, &total, 4);
            at += sizeof total * w;
            total = 0;
        }
    }
}

PANEL_TYPE(q8_0, 32, 34, 544)
PANEL_TYPE(q4_0, 32, 18, 288)
PANEL_TYPE(iq4_nl, 32, 18, 288)
PANEL_TYPE(mxfp4, 32, 17, 272)
PANEL_TYPE(q4_1, 32, 20, 320)
PANEL_TYPE(q5_0, 32, 22, 352)
PANEL_TYPE(q5_1, 32, 24, 384)

const kern_matmul SET(panel32)[QUANT_TYPE_END] = {
    [QUANT_Q8_0] = PANEL_PRODUCT(q8_0), [QUANT_Q4_0] = PANEL_PRODUCT(q4_0), [QUANT_IQ4_NL] = PANEL_PRODUCT(iq4_nl), [QUANT_MXFP4] = PANEL_PRODUCT(mxfp4),
    [QUANT_Q4_1] = PANEL_PRODUCT(q4_1), [QUANT_Q5_0] = PANEL_PRODUCT(q5_0), [QUANT_Q5_1] = PANEL_PRODUCT(q5_1),
};

#endif
