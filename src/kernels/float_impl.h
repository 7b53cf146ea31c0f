/* float_impl.h: products of float weights, and of every type that has no path of its own (decoded to float on the way), then the functions that run along a
 * vector. Written in the words of an ops_*.h like panel_impl.h; panel.h says how chunks lie in memory. */
#ifndef KERNELS_FLOAT_IMPL_H
#define KERNELS_FLOAT_IMPL_H

#include "kernels/panel_impl.h"

/* What the words of a chunk hold. */
enum { WORD_F32, WORD_F16, WORD_BF16 };

/* Two columns of LANES rows. */
INLINE void float_pair(vf *first, vf *second, const uint8_t *chunk, int64_t pair, int h, const int kind) {
    if (kind == WORD_F32) {
        *first = vf_bits(vi_load(WORD(chunk, 2 * pair)));
        *second = vf_bits(vi_load(WORD(chunk, 2 * pair + 1)));
        return;
    }
    vi x = vi_load(WORD(chunk, pair));
    *first = kind == WORD_F16 ? vf_half_low(x) : vf_bits(vi_shl(x, 16));
    *second = kind == WORD_F16 ? vf_half_high(x) : vf_bits(vi_and(x, vi_set((int32_t)0xFFFF0000)));
}

/* Adds the products of a chunk for tokens [t0, t0 + count) of a tile of w. Even and odd columns are summed apart, which keeps two chains
 * of additions going; a token's result does not depend on the others. */
INLINE void float_part(float *acc, const uint8_t *chunk, int64_t cols, const float *x, int w, int t0, int count, const int kind) {
    for (int h = 0; h < PANEL_ROWS; h += LANES) {
        vf even[TILE_STEP], odd[TILE_STEP];
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) {
            even[t] = vf_load(acc + PANEL_ROWS * (t0 + t) + h);
            odd[t] = vf_set(0);
        }
        for (int64_t k = 0; k < cols; k += 2) {
            vf first, second;
            float_pair(&first, &second, chunk, k / 2, h, kind);
#pragma GCC unroll 8
            for (int t = 0; t < count; t++) {
                even[t] = vf_fma(first, vf_set(x[k * w + t0 + t]), even[t]);
                odd[t] = vf_fma(second, vf_set(x[(k + 1) * w + t0 + t]), odd[t]);
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) vf_store(acc + PANEL_ROWS * (t0 + t) + h, vf_add(even[t], odd[t]));
    }
}

#define FLOAT_TILE(name, kind)                                                                                                            \
    INLINE void name##_part(float *acc, const uint8_t *chunk, int64_t blocks, const float *x, int w, size_t ahead, int t0, int count) {    \
        (void)ahead;                                                                                                                       \
        float_part(acc, chunk, blocks, x, w, t0, count, kind);                                                                             \
    }                                                                                                                                      \
    static void name##_tile(float *acc, const uint8_t *chunk, int64_t blocks, const float *x, int w) {                                     \
        const size_t ahead = 0;                                                                                                            \
        TILE_CASES(name##_part)                                                                                                            \
    }
FLOAT_TILE(f32, WORD_F32)
FLOAT_TILE(f16, WORD_F16)
FLOAT_TILE(bf16, WORD_BF16)

/* Adds the products of a chunk of cols (padded) columns for a tile of w tokens. */
INLINE void float_tile(float *acc, const uint8_t *chunk, int64_t cols, const float *x, int w, int kind) {
    if (kind == WORD_F32) f32_tile(acc, chunk, cols, x, w);
    else if (kind == WORD_F16) f16_tile(acc, chunk, cols, x, w);
    else bf16_tile(acc, chunk, cols, x, w);
}

static size_t floats_act_bytes(int64_t cols, int64_t n) { return (size_t)float_padded(cols) * (size_t)n * sizeof(float); }

static void floats_act(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t n, int64_t t0, int64_t t1) {
    const int64_t padded = float_padded(cols);
    for (int64_t t = t0; t < t1; t++) {
        const int64_t tile = t / PANEL_TILE * PANEL_TILE, w = min_of(PANEL_TILE, n - tile);
        float *at = (float *)dst + tile * padded + (t - tile);
        for (int64_t c = 0; c < padded; c++) at[c * w] = c < cols ? x[t * ldx + c] : 0;
    }
}

/* How the columns of a row become a chunk: as they are, or decoded to float. */
typedef struct float_type {
    int kind;
    int size; /* bytes of a column in a chunk */
    const quant_info *decode; /* NULL: the file holds what the chunk holds */
} float_type;

static void float_chunk(uint8_t *chunk, const float_type *f, const uint8_t *const row[16], size_t row_bytes, int64_t from, int64_t cols) {
    const size_t bytes = (size_t)cols * (size_t)f->size, padded = (size_t)float_padded(cols) * (size_t)f->size;
    if (!f->decode) {
        const size_t at = (size_t)from * (size_t)f->size;
        float_pack(chunk, row, at, bytes, padded, at + ROWS_AHEAD < row_bytes ? ROWS_AHEAD : ROWS_AHEAD + (PANEL_ROWS - 1) * row_bytes);
        return;
    }
    _Alignas(64) float decoded[PANEL_ROWS][PANEL_CHUNK];
    const uint8_t *at[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++) {
        f->decode->decode(decoded[r], row[r] + quant_bytes(f->decode, (uint64_t)from), cols);
        at[r] = (const uint8_t *)decoded[r];
    }
    float_pack(chunk, at, 0, bytes, padded, 0);
}

static void float_run(const float_type *f, float *y, int64_t ldy, const void *w, bool packed, int64_t rows, int64_t cols, int64_t r0, int64_t r1,
                      const float *act, int64_t n) {
    const size_t row_bytes = f->decode ? quant_bytes(f->decode, (uint64_t)cols) : (size_t)cols * (size_t)f->size;
    const size_t panel_size = (size_t)float_padded(cols) * (size_t)f->size * PANEL_ROWS;
    const int64_t at_once = tokens_at_once(floats_act_bytes(cols, 1)), padded = float_padded(cols);
    _Alignas(64) uint8_t buffer[PANEL_CHUNK * PANEL_ROWS * sizeof(float)];
    _Alignas(64) float acc[PANEL_TOKENS * PANEL_ROWS];
    for (int64_t t0 = 0; t0 < n; t0 += at_once) {
        const int64_t tokens = min_of(at_once, n - t0);
        for (int64_t r = r0; r < r1; r += PANEL_ROWS) {
            const uint8_t *row[PANEL_ROWS], *panel = (const uint8_t *)w + (size_t)(r / PANEL_ROWS) * panel_size;
            if (!packed) panel_rows(row, w, row_bytes, r, rows);
            memset(acc, 0, (size_t)tokens * PANEL_ROWS * sizeof(float));
            for (int64_t c = 0; c < padded; c += PANEL_CHUNK) {
                const int64_t width = min_of(PANEL_CHUNK, padded - c);
                const uint8_t *chunk = packed ? panel + (size_t)c * (size_t)f->size * PANEL_ROWS : buffer;
                if (!packed) float_chunk(buffer, f, row, row_bytes, c, min_of(PANEL_CHUNK, cols - c));
                for (int64_t t = 0; t < tokens; t += PANEL_TILE) {
                    const int64_t tile = min_of(PANEL_TILE, tokens - t);
                    float_tile(acc + PANEL_ROWS * t, chunk, width, act + (t0 + t) * padded + c * tile, (int)tile, f->kind);
                }
            }
            store_rows(y + t0 * ldy + r, ldy, acc, tokens, min_of(PANEL_ROWS, r1 - r));
        }
    }
}

static void float_pack_rows(const float_type *f, uint8_t *dst, const void *src, int64_t rows, int64_t cols, int64_t r0, int64_t r1) {
    const size_t row_bytes = (size_t)cols * (size_t)f->size, panel_size = (size_t)float_padded(cols) * (size_t)f->size * PANEL_ROWS;
    for (int64_t r = r0; r < r1; r += PANEL_ROWS) {
        const uint8_t *row[PANEL_ROWS];
        panel_rows(row, src, row_bytes, r, rows);
        uint8_t *panel = dst + (size_t)(r / PANEL_ROWS) * panel_size;
        for (int64_t c = 0; c < cols; c += PANEL_CHUNK)
            float_chunk(panel + (size_t)c * (size_t)f->size * PANEL_ROWS, f, row, row_bytes, c, min_of(PANEL_CHUNK, cols - c));
    }
}

/* Types whose bits the chunk keeps. */
#define FLOAT_TYPE(name, word, bytes)                                                                                                     \
    static const float_type name##_type = {.kind = word, .size = bytes};                                                                  \
    static void name##_rows(float *y, int64_t ldy, const void *w, int64_t rows, int64_t cols, int64_t r0, int64_t r1, const void *act,    \
                            int64_t n) {                                                                                                   \
        float_run(&name##_type, y, ldy, w, false, rows, cols, r0, r1, act, n);                                                             \
    }                                                                                                                                      \
    static void name##_rows_packed(float *y, int64_t ldy, const void *w, int64_t rows, int64_t cols, int64_t r0, int64_t r1,              \
                                   const void *act, int64_t n) {                                                                           \
        float_run(&name##_type, y, ldy, w, true, rows, cols, r0, r1, act, n);                                                              \
    }                                                                                                                                      \
    static size_t name##_packed_bytes(int64_t rows, int64_t cols) {                                                                        \
        return (size_t)((rows + PANEL_ROWS - 1) / PANEL_ROWS) * (size_t)float_padded(cols) * (bytes)*PANEL_ROWS;                           \
    }                                                                                                                                      \
    static void name##_pack_rows(void *dst, const void *src, int64_t rows, int64_t cols, int64_t r0, int64_t r1) {                        \
        float_pack_rows(&name##_type, dst, src, rows, cols, r0, r1);                                                                       \
    }
FLOAT_TYPE(f32, WORD_F32, 4)
FLOAT_TYPE(f16, WORD_F16, 2)
FLOAT_TYPE(bf16, WORD_BF16, 2)

/* Types that are decoded with quant.h on the way. */
#define X(name, number, block, bytes)                                                                                                     \
    static void any_##name##_rows(float *y, int64_t ldy, const void *w, int64_t rows, int64_t cols, int64_t r0, int64_t r1,               \
                                  const void *act, int64_t n) {                                                                            \
        const float_type f = {.kind = WORD_F32, .size = 4, .decode = quant_find(number)};                                                  \
        float_run(&f, y, ldy, w, false, rows, cols, r0, r1, act, n);                                                                       \
    }
QUANT_TYPES(X)
#undef X

#define FLOAT_ACT .act_bytes = floats_act_bytes, .act = floats_act, .act_step = PANEL_TILE, .row_step = PANEL_ROWS
#define FLOAT_PRODUCT(name)                                                                                                               \
    {FLOAT_ACT, .rows = name##_rows, .packed_bytes = name##_packed_bytes, .pack = name##_pack_rows, .rows_packed = name##_rows_packed}

static const kern_matmul float_products[QUANT_TYPE_END] = {
    [QUANT_F32] = FLOAT_PRODUCT(f32), [QUANT_F16] = FLOAT_PRODUCT(f16), [QUANT_BF16] = FLOAT_PRODUCT(bf16),
};

static const kern_matmul any_products[QUANT_TYPE_END] = {
#define X(name, number, block, bytes) [number] = {FLOAT_ACT, .rows = any_##name##_rows},
    QUANT_TYPES(X)
#undef X
};

/* The product for a type: bytes, floats, or decoded to floats. */
static const kern_matmul *panel_matmul(int type) {
    const quant_info *info = quant_find(type);
    if (!info || !info->decode) return NULL;
    if (panel_products[type].rows) return &panel_products[type];
    if (float_products[type].rows) return &float_products[type];
    return &any_products[type];
}

/* ---- along a vector ---- */

/* e^x with a relative error below 2e-7; 0 below -87, at most e^88. */
INLINE vf vf_exp(vf x) {
    vf clamped = vf_min(vf_max(x, vf_set(-87)), vf_set(88));
    vf n = vf_round(vf_mul(clamped, vf_set(1.44269504f)));
    vf r = vf_fma(n, vf_set(-0.693359375f), clamped);
    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    vf p = vf_set(1.0f / 720);
    p = vf_fma(p, r, vf_set(1.0f / 120));
    p = vf_fma(p, r, vf_set(1.0f / 24));
    p = vf_fma(p, r, vf_set(1.0f / 6));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_fma(p, r, vf_set(1));
    p = vf_fma(p, r, vf_set(1));
    vf power = vf_bits(vi_shl(vi_add(vi_of(n), vi_set(127)), 23));
    return vf_where_above(x, -87, vf_mul(p, power));
}

/* A tail that is shorter than a vector, by way of a whole one. */
INLINE vf vf_load_some(const float *p, int64_t n) { return n >= LANES ? vf_load(p) : vf_load_part(p, (int)n); }
INLINE void vf_store_some(float *p, vf x, int64_t n) {
    if (n >= LANES) vf_store(p, x);
    else vf_store_part(p, x, (int)n);
}

static float vec_dot(const float *a, const float *b, int64_t n) {
    vf sum[4] = {vf_set(0), vf_set(0), vf_set(0), vf_set(0)};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++) sum[l] = vf_fma(vf_load(a + i + l * LANES), vf_load(b + i + l * LANES), sum[l]);
    for (; i < n; i += LANES) sum[0] = vf_fma(vf_load_some(a + i, n - i), vf_load_some(b + i, n - i), sum[0]);
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

static void vec_rms_norm(float *y, const float *x, const float *weight, int64_t n, float eps) {
    const vf factor = vf_set(1 / sqrtf(vec_dot(x, x, n) / (float)n + eps));
    for (int64_t i = 0; i < n; i += LANES) {
        vf v = vf_mul(vf_load_some(x + i, n - i), factor);
        if (weight) v = vf_mul(v, vf_load_some(weight + i, n - i));
        vf_store_some(y + i, v, n - i);
    }
}

static void vec_add(float *y, const float *x, float scale, int64_t n) {
    const vf s = vf_set(scale);
    for (int64_t i = 0; i < n; i += LANES) vf_store_some(y + i, vf_fma(s, vf_load_some(x + i, n - i), vf_load_some(y + i, n - i)), n - i);
}

static void vec_silu_mul(float *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        vf g = vf_load_some(gate + i, n - i), u = vf_load_some(up + i, n - i);
        vf s = vf_div(g, vf_add(vf_set(1), vf_exp(vf_sub(vf_set(0), g))));
        vf_store_some(y + i, vf_mul(s, u), n - i);
    }
}

/* (1 + tanh(u)) / 2 is 1 / (1 + e^(-2u)). */
static void vec_gelu_mul(float *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        vf g = vf_load_some(gate + i, n - i), u = vf_load_some(up + i, n - i);
        vf inner = vf_mul(vf_mul(g, vf_set(-1.5957691216f)), vf_fma(vf_mul(g, vf_set(0.044715f)), g, vf_set(1)));
        vf s = vf_div(g, vf_add(vf_set(1), vf_exp(inner)));
        vf_store_some(y + i, vf_mul(s, u), n - i);
    }
}

static void vec_to_f16(uint16_t *dst, const float *src, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) vf_half_store(dst + i, vf_load(src + i));
    if (i < n) {
        uint16_t rest[LANES];
        vf_half_store(rest, vf_load_part(src + i, (int)(n - i)));
        memcpy(dst + i, rest, (size_t)(n - i) * sizeof *rest);
    }
}

#endif
