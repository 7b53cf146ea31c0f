/* float_tile_impl.h: sums of float products of one chunk, for weights and for the keys of attention. In the words of an ops_*.h; panel.h says how chunks lie in
 * memory. */
#ifndef KERNELS_FLOAT_TILE_IMPL_H
#define KERNELS_FLOAT_TILE_IMPL_H

#include "kernels/panel_types_impl.h"

/* What the words of a chunk hold. */
enum { WORD_F32, WORD_F16, WORD_BF16 };

/* Two columns of LANES rows: each column, or in halves, which are turned to floats as they lie, the columns of the first rows side by side and those of the last. */
INLINE void float_pair(vf *first, vf *second, const uint8_t *chunk, int64_t pair, int h, const int kind) {
    if (kind == WORD_F32) {
        *first = vf_bits(vi_load(WORD(chunk, 2 * pair)));
        *second = vf_bits(vi_load(WORD(chunk, 2 * pair + 1)));
    } else if (kind == WORD_F16) {
        *first = vf_half_load(WORD(chunk, pair));
        *second = vf_half_load(WORD(chunk, pair) + 2 * LANES);
    } else {
        vi x = vi_load(WORD(chunk, pair));
        *first = vf_bits(vi_shl(x, 16));
        *second = vf_bits(vi_and(x, vi_set((int32_t)0xFFFF0000)));
    }
}


/* Sums of the products of a chunk for tokens [t0, t0 + count) of a tile of w, `ld` floats from token to token; added to what is there unless fresh. What lies `ahead`
 * bytes later is asked for, and what lies `near` once more; 0: nothing is. Even and odd columns are summed apart, which keeps two chains of additions going; a token's
 * result does not depend on the others. */
INLINE void float_part(float *acc, int ld, const bool fresh, const uint8_t *chunk, int64_t cols, const float *x, int w, size_t ahead, size_t near, int t0, int count, const int kind) {
    for (int h = 0; h < PANEL_ROWS; h += LANES) {
        vf a[TILE_STEP], b[TILE_STEP];
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) a[t] = b[t] = vf_set(0);
        for (int64_t k = 0; k < cols; k += 2) {
            vf first, second;
            float_pair(&first, &second, chunk, k / 2, h, kind);
            if (h == 0 && kind != WORD_F32 && ahead) {
                ask(chunk, ahead + 32 * (size_t)k);
                if (near) ask_near(chunk, near + 32 * (size_t)k);
            }
#pragma GCC unroll 8
            for (int t = 0; t < count; t++) {
                const float *at = x + k * w + 2 * (t0 + t);
                a[t] = vf_fma(first, kind == WORD_F16 ? vf_pair(at) : vf_set(at[0]), a[t]);
                b[t] = vf_fma(second, kind == WORD_F16 ? vf_pair(at) : vf_set(at[1]), b[t]);
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) {
            const vf even = kind == WORD_F16 ? vf_evens(a[t], b[t]) : a[t], odd = kind == WORD_F16 ? vf_odds(a[t], b[t]) : b[t];
            float *sum = acc + ld * (t0 + t) + h;
            vf_store(sum, fresh ? vf_add(even, odd) : vf_add(vf_load(sum), vf_add(even, odd)));
        }
    }
}

/* One token's activations, which weights have driven to the second cache. */
INLINE void ask_floats(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) ask_near(x + i, 0);
}

#define FLOAT_TILE(name, kind)                                                                                                            \
    INLINE void name##_part(float *acc, const uint8_t *chunk, int64_t blocks, const float *x, int w, size_t ahead, int t0, int count) {    \
        if (w == 1 && ahead) ask_floats(x + PANEL_CHUNK, blocks);                                                                          \
        float_part(acc, PANEL_ROWS, false, chunk, blocks, x, w, ahead, w == 1 ? ASK_NEAR : 0, t0, count, kind);                            \
    }                                                                                                                                      \
    static void name##_tile(float *acc, const uint8_t *chunk, int64_t blocks, const float *x, int w, size_t ahead) {                       \
        TILE_CASES(name##_part)                                                                                                            \
    }
FLOAT_TILE(f32, WORD_F32)
FLOAT_TILE(f16, WORD_F16)
FLOAT_TILE(bf16, WORD_BF16)

/* Adds the products of a chunk of cols (padded) columns for a tile of w tokens. What lies `ahead` bytes later is asked for. */
INLINE void float_tile(float *acc, const uint8_t *chunk, int64_t cols, const float *x, int w, size_t ahead, int kind) {
    if (kind == WORD_F32) f32_tile(acc, chunk, cols, x, w, ahead);
    else if (kind == WORD_F16) f16_tile(acc, chunk, cols, x, w, ahead);
    else bf16_tile(acc, chunk, cols, x, w, ahead);
}

#endif
