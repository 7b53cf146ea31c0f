/* panel256_impl.h: products of the common quantized types whose blocks have 256 columns. In the words of an ops_*.h.
 *
 * With one token the products themselves are no more than two steps for 64 weights (take them out, multiply), so what scales cost counts. Their factors, which 256
 * columns have in common, are multiplied once, at the end. Constants are kept in registers. */
#ifndef KERNELS_PANEL256_IMPL_H
#define KERNELS_PANEL256_IMPL_H

#include "kernels/panel_impl.h"

/* Were it known not to be 0, the compiler would ask for many lines at once, and four tokens lose 4 %. */
#define UNKNOWN(ahead) __asm__("" : "+r"(ahead))

/* Calls part with a last argument: where weights are asked for a second time (ask_block). With several tokens that depends on the CPU, and as a constant it costs nothing. */
#define ASKING(part, w, ahead, ...)                                              \
    do {                                                                         \
        if ((w) == 1 || (ahead) > CHUNK_AHEAD) part(__VA_ARGS__, ASK_NEAR);      \
        else part(__VA_ARGS__, 0);                                               \
    } while (0)

INLINE void sums_clear(vf *sum, int count) {
#pragma GCC unroll 8
    for (int t = 0; t < count; t++) sum[t] = vf_set(0);
}

/* ---- Q4_K, Q5_K ----
 * Scales and minima are numbers n of 6 bits. They become floats without a conversion, as the upper bits of a fraction: 1 + n / 128. The one is taken away where that costs
 * little: from a scale in the fused multiplication with the activations' scale, exactly; from minima by starting with minus the sums they are multiplied with. */

typedef struct k_head {
    vf d, minus_dmin;        /* times 128 */
    vi scales[2], minima[2]; /* four to a word, as bytes with the highest bit set */
} k_head;

INLINE k_head k_head_load(const uint8_t *head, int h) {
    k_head k = {.d = vf_mul(vf_half_load(head + 2 * h), vf_set(128)), .minus_dmin = vf_mul(vf_half_load(head + 32 + 2 * h), vf_set(-128))};
    k_six_bits(k.scales, k.minima, head, h);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        k.scales[i] = vi_or(k.scales[i], vi_bytes(-128));
        k.minima[i] = vi_or(k.minima[i], vi_bytes(-128));
    }
    return k;
}

INLINE void k_minima(vf *sum, const k_head *k, const byte_places *p, const uint8_t *x, int w, int t0, int count) {
#pragma GCC unroll 8
    for (int t = 0; t < count; t++) sum[t] = ACT_MINUS_TOTAL(x, w, t0 + t);
#pragma GCC unroll 8
    for (int b = 0; b < 8; b++) {
        const vf min = one_and(p, k->minima[b / 4], b % 4);
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) sum[t] = vf_fma(min, ACT_SCALED_SUM(x + (size_t)b * PANEL_ACT * w, w, t0 + t), sum[t]);
    }
}

/* Takes the weights of block b out of a chunk. times16: those of odd blocks are sixteen times as large as they should be. */
typedef struct k_masks {
    vi low, high, fifth;
} k_masks;
typedef void k_weights_fn(vi w[8], const uint8_t *chunk, int b, int h, const k_masks *m);

INLINE void k_block_add(vf *sum, const vi weights[8], const k_head *k, const byte_places *p, int b, const uint8_t *x, int w, int t0, int count, int bits, bool times16) {
    const vf one_more = times16 ? sixteenth_and(p, k->scales[b / 4], b % 4) : one_and(p, k->scales[b / 4], b % 4);
    const vf scale = vf_sub(one_more, vf_set(times16 ? 1.0f / 16 : 1));
    const bool fused = count == 1 && !times16; /* saves the subtraction; the product is the same to the bit */
    vi a[TILE_STEP];
#pragma GCC unroll 8
    for (int t = 0; t < count; t++) a[t] = vi_set(0);
    dots(a, weights, (const int8_t *)x + 32 * t0, 8, bits, count);
#pragma GCC unroll 8
    for (int t = 0; t < count; t++) {
        const vf of_token = ACT_SCALE(x, w, t0 + t);
        sum[t] = vf_fma(vf_of(a[t]), fused ? vf_fms(one_more, of_token, of_token) : vf_mul(scale, of_token), sum[t]);
    }
}

INLINE void k_part(float *acc, const uint8_t *chunk, size_t bytes, const uint8_t *x, int w, size_t ahead, int t0, int count, k_weights_fn *take, int bits, bool times16, const size_t near) {
    UNKNOWN(ahead);
    const byte_places p = byte_places_make();
    k_masks m = {vi_bytes(15), vi_bytes(-16), vi_bytes(16)};
    KEPT(m.low);
    KEPT(m.high);
    KEPT(m.fifth);
    if (ahead) ask_act(x, 8, w, ahead); /* where hardware asks for weights, it lacks nothing */
    for (int h = 0; h < PANEL_ROWS; h += LANES) {
        const k_head k = k_head_load(chunk, h);
        vf sum[TILE_STEP], minima[TILE_STEP];
        /* What is read first should be used first, or memory is read a tenth slower; several tokens have no registers for it yet. */
        if (count == 1) k_minima(minima, &k, &p, x, w, t0, count);
        sums_clear(sum, count);
#pragma GCC unroll 8
        for (int b = 0; b < 8; b++) {
            /* One token's blocks of Q4_K go in pairs, which have their nibbles in the same words: the compiler then loads them once. Q5_K without order was three times as slow. */
            const bool ordered = count > 1 || !times16 || b % 2;
            vi weights[8];
            take(weights, chunk, b, h, &m);
            if (h == 0 && LIKELY(ahead)) ask_block(chunk, bytes, b, ahead, near);
            if (ordered) KEEP_ORDER();
            k_block_add(sum, weights, &k, &p, b, x + (size_t)b * PANEL_ACT * w, w, t0, count, bits, times16 && b % 2);
            if (ordered) KEEP_ORDER();
        }
        if (count > 1) k_minima(minima, &k, &p, x, w, t0, count);
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) {
            float *to = acc + PANEL_ROWS * (t0 + t) + h;
            vf_store(to, vf_fma(k.d, sum[t], vf_fma(k.minus_dmin, minima[t], vf_load(to))));
        }
    }
}

/* High nibbles stay where they are, if a product takes so large a weight. */
INLINE void q4_k_take(vi w[8], const uint8_t *chunk, int b, int h, const k_masks *m) {
    if (!DOTS_TAKE_BYTES || b % 2 == 0) pair_split(w, chunk + 256, b, h, m->low);
    else
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) w[i] = vi_and(vi_load(WORD(chunk + 256, 8 * (b / 2) + i)), m->high);
}
INLINE void q4_k_part(float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, int w, size_t ahead, int t0, int count) {
    (void)blocks;
    ASKING(k_part, w, ahead, acc, chunk, 288, x, w, ahead, t0, count, q4_k_take, 4, DOTS_TAKE_BYTES);
}
PANEL_FUNCTIONS(TILE_CASES, q4_k, 256, 144, 288, true)

INLINE void q5_k_take(vi w[8], const uint8_t *chunk, int b, int h, const k_masks *m) { q5_k_weights(w, chunk, b, h, m->low, m->fifth); }
INLINE void q5_k_part(float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, int w, size_t ahead, int t0, int count) {
    (void)blocks;
    ASKING(k_part, w, ahead, acc, chunk, 352, x, w, ahead, t0, count, q5_k_take, 5, false);
}
PANEL_FUNCTIONS(TILE_CASES, q5_k, 256, 176, 352, true)

/* ---- Q6_K ----
 * Scales are signed bytes for 16 columns each; they become 2^24 times themselves. */

INLINE void q6_k_block_add(vf *sum, const uint8_t *chunk, const byte_places *p, const q6_k_masks *m, int b, int h, const uint8_t *x, int w, int t0, int count) {
    const vi scales = vi_load(WORD(chunk + 64, b / 2)); /* two blocks to a word */
    vf part[TILE_STEP];
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        const vf scale = vf_of(top_byte(p, scales, b % 2 * 2 + half));
        vi weights[4], a[TILE_STEP];
        q6_k_weights(weights, chunk, 2 * b + half, h, m);
        if (count > 1) KEEP_ORDER();
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) a[t] = vi_cast(ACT_MINUS_32_SUM(x, w, t0 + t, half));
        dots(a, weights, (const int8_t *)x + 32 * t0 + 16 * half, 4, 6, count);
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) part[t] = half ? vf_fma(vf_of(a[t]), scale, part[t]) : vf_mul(vf_of(a[t]), scale);
        if (count > 1) KEEP_ORDER();
    }
#pragma GCC unroll 8
    for (int t = 0; t < count; t++) sum[t] = vf_fma(part[t], ACT_SCALE(x, w, t0 + t), sum[t]);
}

INLINE void six_part(float *acc, const uint8_t *chunk, const uint8_t *x, int w, size_t ahead, int t0, int count, const size_t near) {
    UNKNOWN(ahead);
    const byte_places p = byte_places_make();
    q6_k_masks m = {vi_bytes(63), {vi_bytes(3), vi_bytes(12), vi_bytes(48)}};
    KEPT(m.six);
    KEPT(m.pair[0]);
    KEPT(m.pair[1]);
    KEPT(m.pair[2]);
    ask_act(x, 8, w, ahead);
    for (int h = 0; h < PANEL_ROWS; h += LANES) {
        vf sum[TILE_STEP];
        sums_clear(sum, count);
#pragma GCC unroll 8
        for (int b = 0; b < 8; b++) {
            if (h == 0 && LIKELY(ahead)) ask_block(chunk, 424, b, ahead, near);
            q6_k_block_add(sum, chunk, &p, &m, b, h, x + (size_t)b * PANEL_ACT * w, w, t0, count);
            if (count > 1 || b % 2) KEEP_ORDER();
        }
        const vf d = vf_mul(vf_load((const float *)(const void *)WORD(chunk, 0)), vf_set(0x1p-24f));
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) {
            float *to = acc + PANEL_ROWS * (t0 + t) + h;
            vf_store(to, vf_fma(d, sum[t], vf_load(to)));
        }
    }
}
INLINE void q6_k_part(float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, int w, size_t ahead, int t0, int count) {
    (void)blocks;
    ASKING(six_part, w, ahead, acc, chunk, x, w, ahead, t0, count);
}
PANEL_FUNCTIONS(TILE_CASES, q6_k, 256, 210, 424, true)

const kern_matmul SET(panel256)[QUANT_TYPE_END] = {
    [QUANT_Q4_K] = PANEL_PRODUCT(q4_k), [QUANT_Q5_K] = PANEL_PRODUCT(q5_k), [QUANT_Q6_K] = PANEL_PRODUCT(q6_k),
};

#endif
