/* float_impl.h: products of float weights, and of every type that has no path of its own (decoded to float on the way). Written in the words of an ops_*.h
 * like panel_impl.h; panel.h says how chunks lie in memory. */
#ifndef KERNELS_FLOAT_IMPL_H
#define KERNELS_FLOAT_IMPL_H

#include "kernels/float_tile_impl.h"
#include "kernels/sets.h"

static size_t floats_act_bytes(int64_t cols, int64_t n) { return (size_t)float_padded(cols) * (size_t)n * sizeof(float); }

static void floats_act(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t n, kern_part p) {
    const int64_t padded = float_padded(cols), end = p.c1 == cols ? padded : p.c1;
    for (int64_t t = p.t0; t < p.t1; t++) {
        const int64_t tile = t / PANEL_TILE * PANEL_TILE, w = min_of(PANEL_TILE, n - tile);
        float *at = (float *)dst + tile * padded + 2 * (t - tile);
        for (int64_t c = p.c0; c < end; c++) at[c / 2 * 2 * w + c % 2] = c < cols ? x[t * ldx + c - p.c0] : 0;
    }
}

#define FLOAT_AHEAD 4096 /* bytes that packed weights are asked for before they are read, with several tokens */

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
    const size_t packed_ahead = n == 1 ? kern_cpu_get()->ahead_one : FLOAT_AHEAD;
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
                    float_tile(acc + PANEL_ROWS * t, chunk, width, act + (t0 + t) * padded + c * tile, (int)tile, t || !packed ? 0 : packed_ahead, f->kind);
                }
            }
            store_rows(y + t0 * ldy + r, ldy, acc, tokens, min_of(PANEL_ROWS, r1 - r));
        }
    }
}

static void float_pairs(const float_type *f, float *const y[2], const void *const w[2], int64_t cols, int64_t r0, int64_t r1, const float *act) {
    const int64_t padded = float_padded(cols);
    const size_t ahead = kern_cpu_get()->ahead_pair;
    _Alignas(64) float acc[2][PANEL_ROWS];
    for (int64_t r = r0; r < r1; r += PANEL_ROWS) {
        memset(acc, 0, sizeof acc);
        for (int64_t c = 0; c < padded; c += PANEL_CHUNK) {
            const size_t at = (size_t)(r * padded + c * PANEL_ROWS) * (size_t)f->size;
            for (int i = 0; i < 2; i++) float_tile(acc[i], (const uint8_t *)w[i] + at, min_of(PANEL_CHUNK, padded - c), act + c, 1, ahead, f->kind);
        }
        for (int i = 0; i < 2; i++) memcpy(y[i] + r, acc[i], sizeof acc[i]);
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
    static void name##_pairs_packed(float *const y[2], const void *const w[2], int64_t cols, int64_t r0, int64_t r1, const void *act) {    \
        float_pairs(&name##_type, y, w, cols, r0, r1, act);                                                                                \
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
    {FLOAT_ACT, .rows = name##_rows, .packed_bytes = name##_packed_bytes, .pack = name##_pack_rows, .rows_packed = name##_rows_packed, .pairs_packed = name##_pairs_packed}

const kern_matmul SET(floats)[QUANT_TYPE_END] = {
    [QUANT_F32] = FLOAT_PRODUCT(f32), [QUANT_F16] = FLOAT_PRODUCT(f16), [QUANT_BF16] = FLOAT_PRODUCT(bf16),
};

const kern_matmul SET(decoded)[QUANT_TYPE_END] = {
#define X(name, number, block, bytes) [number] = {FLOAT_ACT, .rows = any_##name##_rows},
    QUANT_TYPES(X)
#undef X
};

#endif
