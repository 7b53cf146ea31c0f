/* panel256_impl.h: products of the common quantized types whose blocks have 256 columns. In the words of an ops_*.h.
 *
 * With one token the products themselves are no more than two steps for 64 weights (take them out, multiply), so what scales cost counts. Their factors, which 256
 * columns have in common, are multiplied once, at the end. Constants are kept in registers. */
#ifndef KERNELS_PANEL256_IMPL_H
#define KERNELS_PANEL256_IMPL_H

#include "kernels/panel_impl.h"

/* The compiler forgets what it knows of x. Were `ahead` known not to be 0, it would ask for many lines at once, and four tokens lose 4 %. */
#define UNKNOWN(x) __asm__("" : "+r"(x))

/* What a part is told about asking; constant at compile time. */
typedef struct asking {
    bool sure;   /* that ahead is not 0 */
    size_t near; /* see ask_block */
} asking;

/* Calls part with a last argument. With several tokens it depends on the CPU whether weights are asked for a second time. */
#define ASKING(part, w, ahead, ...)                                                               \
    do {                                                                                          \
        if ((w) == 1 || (ahead) > CHUNK_AHEAD) part(__VA_ARGS__, (asking){.near = ASK_NEAR});     \
        else part(__VA_ARGS__, (asking){0});                                                      \
    } while (0)

/* Pairs of rows for one token. Of a chunk's instructions a fifth would make constants and look whether to ask; without them memory gives 1 % more. Were the addresses known to be the same for both weights, the
 * compiler would keep them all, in memory. */
#define ASKS ((asking){.sure = true, .near = ASK_NEAR})
#define ONE_TOKEN(name, fixed_type, part)                                                                                                  \
    INLINE void name##_one(const panel_type *p, float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, size_t ahead, const void *fixed) { \
        (void)p, (void)blocks;                                                                                                             \
        UNKNOWN(chunk);                                                                                                                    \
        UNKNOWN(x);                                                                                                                        \
        part;                                                                                                                              \
    }                                                                                                                                      \
    static void name##_pairs_packed(float *const y[2], const void *const w[2], int64_t cols, int64_t r0, int64_t r1, const void *act) {    \
        const fixed_type f = fixed_type##_make();                                                                                          \
        panel_pairs(&name##_type, y, w, cols, r0, r1, act, name##_one, &f);                                                                \
    }

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
typedef struct k_fixed {
    byte_places p;
    k_masks m;
} k_fixed;
INLINE k_fixed k_fixed_make(void) {
    k_fixed f = {byte_places_make(), {vi_bytes(15), vi_bytes(-16), vi_bytes(16)}};
    KEPT(f.m.low);
    KEPT(f.m.high);
    KEPT(f.m.fifth);
    return f;
}
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

INLINE void k_part(float *acc, const uint8_t *chunk, size_t bytes, const uint8_t *x, int w, size_t ahead, int t0, int count, k_weights_fn *take, int bits, bool times16, const k_fixed *f, const asking a) {
    UNKNOWN(ahead);
    if (a.sure || ahead) ask_act(x, 8, w, ahead); /* where hardware asks for weights, it lacks nothing */
    for (int h = 0; h < PANEL_ROWS; h += LANES) {
        const k_head k = k_head_load(chunk, h);
        vf sum[TILE_STEP], minima[TILE_STEP];
        /* What is read first should be used first, or memory is read a tenth slower; several tokens have no registers for it yet. */
        if (count == 1) k_minima(minima, &k, &f->p, x, w, t0, count);
        sums_clear(sum, count);
#pragma GCC unroll 8
        for (int b = 0; b < 8; b++) {
            vi weights[8];
            take(weights, chunk, b, h, &f->m);
            if (h == 0 && (a.sure || LIKELY(ahead))) ask_block(chunk, bytes, b, ahead, a.near);
            KEEP_ORDER(); /* also between two that have their nibbles in the same words: to load those again as a part of another instruction takes one less */
            k_block_add(sum, weights, &k, &f->p, b, x + (size_t)b * PANEL_ACT * w, w, t0, count, bits, times16 && b % 2);
            KEEP_ORDER();
        }
        if (count > 1) k_minima(minima, &k, &f->p, x, w, t0, count);
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
    const k_fixed f = k_fixed_make();
    ASKING(k_part, w, ahead, acc, chunk, 288, x, w, ahead, t0, count, q4_k_take, 4, DOTS_TAKE_BYTES, &f);
}
PANEL_FUNCTIONS(TILE_CASES, q4_k, 256, 144, 288, true)
ONE_TOKEN(q4_k, k_fixed, k_part(acc, chunk, 288, x, 1, ahead, 0, 1, q4_k_take, 4, DOTS_TAKE_BYTES, fixed, ASKS))

INLINE void q5_k_take(vi w[8], const uint8_t *chunk, int b, int h, const k_masks *m) { q5_k_weights(w, chunk, b, h, m->low, m->fifth); }
INLINE void q5_k_part(float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, int w, size_t ahead, int t0, int count) {
    (void)blocks;
    const k_fixed f = k_fixed_make();
    ASKING(k_part, w, ahead, acc, chunk, 352, x, w, ahead, t0, count, q5_k_take, 5, false, &f);
}
PANEL_FUNCTIONS(TILE_CASES, q5_k, 256, 176, 352, true)
ONE_TOKEN(q5_k, k_fixed, k_part(acc, chunk, 352, x, 1, ahead, 0, 1, q5_k_take, 5, false, fixed, ASKS))

/* ---- Q6_K ----
 * Scales are signed bytes for 16 columns each; they become 2^24 times themselves. */

typedef struct q6_k_fixed {
    byte_places p;
    q6_k_masks m;
} q6_k_fixed;
INLINE q6_k_fixed q6_k_fixed_make(void) {
    q6_k_fixed f = {byte_places_make(), {vi_bytes(63), {vi_bytes(3), vi_bytes(12), vi_bytes(48)}}};
    KEPT(f.m.six);
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++) KEPT(f.m.pair[i]);
    return f;
}

INLINE void q6_k_block_add(vf *sum, const uint8_t *chunk, const q6_k_fixed *f, int b, int h, const uint8_t *x, int w, int t0, int count) {
    const vi scales = vi_load(WORD(chunk + 64, b / 2)); /* two blocks to a word */
    vf part[TILE_STEP];
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        const vf scale = vf_of(top_byte(&f->p, scales, b % 2 * 2 + half));
        vi weights[4], a[TILE_STEP];
        q6_k_weights(weights, chunk, 2 * b + half, h, &f->m);
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

INLINE void six_part(float *acc, const uint8_t *chunk, const uint8_t *x, int w, size_t ahead, int t0, int count, const q6_k_fixed *f, const asking a) {
    UNKNOWN(ahead);
    ask_act(x, 8, w, ahead);
    for (int h = 0; h < PANEL_ROWS; h += LANES) {
        vf sum[TILE_STEP];
        sums_clear(sum, count);
#pragma GCC unroll 8
        for (int b = 0; b < 8; b++) {
            if (h == 0 && (a.sure || LIKELY(ahead))) ask_block(chunk, 424, b, ahead, a.near);
            q6_k_block_add(sum, chunk, f, b, h, x + (size_t)b * PANEL_ACT * w, w, t0, count);
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
    const q6_k_fixed f = q6_k_fixed_make();
    ASKING(six_part, w, ahead, acc, chunk, x, w, ahead, t0, count, &f);
}
PANEL_FUNCTIONS(TILE_CASES, q6_k, 256, 210, 424, true)
ONE_TOKEN(q6_k, q6_k_fixed, six_part(acc, chunk, x, 1, ahead, 0, 1, fixed, ASKS))

const kern_matmul SET(panel256)[QUANT_TYPE_END] = {
    [QUANT_Q4_K] = PANEL_PRODUCT(q4_k), [QUANT_Q5_K] = PANEL_PRODUCT(q5_k), [QUANT_Q6_K] = PANEL_PRODUCT(q6_k),
};

#endif
