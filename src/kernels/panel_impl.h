/* panel_impl.h: products of quantized weights with byte activations, written once in the words of an ops_*.h and compiled for each
 * instruction set. panel.h says how everything lies in memory.
 *
 * For every type there are two small functions: pack (file to chunk) and unpack (32 columns of a chunk to weights and scales in registers). All
 * else is common: a chunk is unpacked for up to eight tokens at a time, which hides behind their products. The arithmetic of a token is
 * the same however many there are, and so are its bits: whole numbers within 32 columns, then one fused multiply-add per 32 columns in order. */
#ifndef KERNELS_PANEL_IMPL_H
#define KERNELS_PANEL_IMPL_H

#include "kernels/panel_types_impl.h"
#include "kernels/sets.h"

#define CHUNK_AHEAD 4096   /* bytes that packed weights are asked for before they are read, with several tokens; with one see kern_cpu.ahead_one */

/* One token's activations for 32 columns, in a tile of w tokens. */
#define ACT_SCALE(x, w, t) vf_set(((const float *)(const void *)((x) + 32 * (w)))[t])
#define ACT_SCALED_SUM(x, w, t) vf_set(((const float *)(const void *)((x) + 36 * (w)))[t])
#define ACT_MINUS_SUM(x, w, t) ((x) + 40 * (w) + 4 * (t))
#define ACT_MINUS_32_SUM(x, w, t, half) ((x) + (44 + 4 * (half)) * (w) + 4 * (t))
/* Of a whole chunk. */
#define ACT_MINUS_TOTAL(x, w, t) vf_set(((const float *)(const void *)((x) + 8 * PANEL_ACT * (w)))[t])

/* What the whole numbers of a token's columns start with, so that weights are as if they had their sign: of all 32, and of the first or last 16. */
INLINE vi sum_start(const uint8_t *x, int w, int t, const traits tr) {
    const uint8_t *minus_sum = ACT_MINUS_SUM(x, w, t);
    return tr.bits == 8 ? signed_start(minus_sum) : tr.offset < 0 ? vi_set(0) : vi_shl(vi_cast(minus_sum), tr.offset < 0 ? 0 : tr.offset);
}
INLINE vi half_start(const uint8_t *x, int w, int t, int half, const traits tr) {
    return tr.offset < 0 ? vi_set(0) : vi_sar(vi_cast(ACT_MINUS_32_SUM(x, w, t, half)), 5 - (tr.offset < 0 ? 0 : tr.offset));
}

/* Adds the products of 32 columns to the sums of tokens [t0, t0 + count). */
INLINE void block_add(vf *acc, const block *o, const uint8_t *x, int w, int t0, int count, const traits tr) {
    const int8_t *q = (const int8_t *)x + 32 * t0;
    vi a[TILE_STEP];
#pragma GCC unroll 8
    for (int t = 0; t < count; t++) a[t] = sum_start(x, w, t0 + t, tr);
    dots(a, o->w, q, 8, tr.bits, count);
#pragma GCC unroll 8
    for (int t = 0; t < count; t++) {
        acc[t] = vf_fma(vf_of(a[t]), vf_mul(o->scale, ACT_SCALE(x, w, t0 + t)), acc[t]);
        if (tr.min) acc[t] = vf_fma(o->min, ACT_SCALED_SUM(x, w, t0 + t), acc[t]);
    }
}

/* The same for types with a scale per 16 columns: one half after the other, because both at once would not fit the registers. */
INLINE void halves_add(vf *acc, const block *o, const uint8_t *x, int w, int t0, int count, const traits tr) {
    const int8_t *q = (const int8_t *)x + 32 * t0;
    vi a[TILE_STEP];
    vf sum[TILE_STEP];
#pragma GCC unroll 8
    for (int t = 0; t < count; t++) a[t] = half_start(x, w, t0 + t, 0, tr);
    dots(a, o->w, q, 4, tr.bits, count);
#pragma GCC unroll 8
    for (int t = 0; t < count; t++) sum[t] = vf_mul(vf_of(a[t]), o->scale);
    if (count > 1) KEEP_ORDER();
#pragma GCC unroll 8
    for (int t = 0; t < count; t++) a[t] = half_start(x, w, t0 + t, 1, tr);
    dots(a, o->w + 4, q + 16, 4, tr.bits, count);
#pragma GCC unroll 8
    for (int t = 0; t < count; t++) {
        sum[t] = vf_fma(vf_of(a[t]), o->second, sum[t]);
        if (tr.min) {
            const vf part = vf_set(1.0f / 32);
            sum[t] = vf_sub(sum[t], vf_mul(vf_mul(o->min, part), vf_of(vi_cast(ACT_MINUS_32_SUM(x, w, t0 + t, 0)))));
            sum[t] = vf_sub(sum[t], vf_mul(vf_mul(o->second_min, part), vf_of(vi_cast(ACT_MINUS_32_SUM(x, w, t0 + t, 1)))));
        }
        acc[t] = vf_fma(sum[t], ACT_SCALE(x, w, t0 + t), acc[t]);
    }
}

INLINE void columns_add(vf *acc, const block *o, const uint8_t *x, int w, int t0, int count, const traits tr) {
    if (tr.halved) halves_add(acc, o, x, w, t0, count, tr);
    else block_add(acc, o, x, w, t0, count, tr);
}

typedef void unpack_fn(block *o, const uint8_t *chunk, int blocks, int b, int h);

/* Asks for what is read a little later; in small portions, because the CPU can wait for only so many lines at a time. A line that two blocks share is asked for once
 * where b is a constant. near 0: once, else a second time so many bytes before they are read; constant at compile time. Line by line, each for the first and for the second time: one kind after the other
 * is half a percent slower. */
INLINE void ask_block(const uint8_t *chunk, size_t bytes, int b, size_t ahead, const size_t near) {
    const size_t start = bytes * (size_t)b, end = start + bytes;
#pragma GCC unroll 9
    for (size_t at = __builtin_constant_p(b) ? (start + 63) / 64 * 64 : start; at < end; at += 64) {
        ask(chunk, ahead + at);
        if (!near) continue;
        KEEP_ORDER();
        ask_near(chunk, near + at);
        KEEP_ORDER();
    }
}

/* Asks for one token's activations of a chunk, which weights have driven to the second cache: of the chunk after the next, or, where hardware asks for weights by itself (ahead 0), of
 * this one, all at once: read one by one between the weights they disturb it. */
INLINE void ask_act(const uint8_t *x, int blocks, int w, size_t ahead) {
    const size_t from = ahead ? 2 * (8 * PANEL_ACT + sizeof(float)) : 0;
    for (int i = 0; w == 1 && i < blocks * PANEL_ACT; i += 64) ask_near(x, from + (size_t)i);
}

/* Tokens [t0, t0 + count) of a tile of w. acc has 16 floats a token. */
INLINE void tile_part(float *acc, const uint8_t *chunk, size_t bytes, int blocks, bool whole, const uint8_t *x, int w, size_t ahead, int t0, int count,
                      unpack_fn *unpack, const traits tr) {
    ask_act(x, blocks, w, ahead);
    for (int h = 0; h < PANEL_ROWS; h += LANES) {
        vf sum[TILE_STEP];
        block o;
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) sum[t] = vf_load(acc + PANEL_ROWS * (t0 + t) + h);
        if (whole) { /* blocks of 256 columns take their scales apart by number: unrolled, the numbers are constants */
#pragma GCC unroll 8
            for (int b = 0; b < 8; b++) {
                unpack(&o, chunk, 8, b, h);
                if (h == 0 && LIKELY(ahead)) ask_block(chunk, bytes, b, ahead, w == 1 ? ASK_NEAR : 0);
                KEEP_ORDER();
                columns_add(sum, &o, x + (size_t)b * PANEL_ACT * w, w, t0, count, tr);
                KEEP_ORDER();
            }
        } else {
            for (int b = 0; b < blocks; b++) {
                unpack(&o, chunk, blocks, b, h);
                if (h == 0 && LIKELY(ahead)) ask_block(chunk, bytes, b, ahead, w == 1 ? ASK_NEAR : 0);
                columns_add(sum, &o, x + (size_t)b * PANEL_ACT * w, w, t0, count, tr);
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) vf_store(acc + PANEL_ROWS * (t0 + t) + h, sum[t]);
    }
}

INLINE size_t act_bytes(int64_t cols, int64_t n) { return (size_t)n * ((size_t)(cols / 32) * PANEL_ACT + (size_t)((cols + PANEL_CHUNK - 1) / PANEL_CHUNK) * sizeof(float)); }

/* All types share their activations, and so must all files of a set. */
size_t SET(bytes_act_bytes)(int64_t cols, int64_t n);
void SET(bytes_act)(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t n, kern_part p);

/* A type as the loops over rows, chunks and tokens see it. */
typedef struct panel_type {
    int columns, bytes; /* of a block in the file */
    size_t chunk;       /* bytes of 32 columns in a chunk */
    bool asks_twice;    /* for several tokens too, and as far ahead as for one; for types of 32 columns that is slower */
    void (*pack)(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead);
    /* Adds a chunk's products to acc (16 floats a token) for a tile of w tokens, whose activations start at x. What lies `ahead` bytes later is asked for; 0: nothing is. */
    void (*tile)(float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, int w, size_t ahead);
} panel_type;

INLINE size_t panel_bytes(const panel_type *p, int64_t cols) { return ((size_t)(cols / 32) * p->chunk + 63) & ~(size_t)63; }

static void panel_run(const panel_type *p, float *y, int64_t ldy, const void *w, bool packed, int64_t rows, int64_t cols, int64_t r0, int64_t r1,
                      const uint8_t *act, int64_t n) {
    const size_t row_bytes = (size_t)(cols / p->columns) * (size_t)p->bytes, chunk_bytes = (size_t)(PANEL_CHUNK / p->columns * p->bytes);
    const int64_t at_once = tokens_at_once(act_bytes(cols, 1));
    const size_t wanted = kern_cpu_get()->ahead_one, packed_ahead = n == 1 || (p->asks_twice && wanted) ? wanted : CHUNK_AHEAD;
    _Alignas(64) uint8_t buffer[PANEL_CHUNK_MAX];
    _Alignas(64) float acc[PANEL_TOKENS * PANEL_ROWS];
    for (int64_t t0 = 0; t0 < n; t0 += at_once) {
        const int64_t tokens = min_of(at_once, n - t0);
        const uint8_t *x = act + act_bytes(cols, t0);
        for (int64_t r = r0; r < r1; r += PANEL_ROWS) {
            const uint8_t *row[PANEL_ROWS], *chunk = (const uint8_t *)w + (size_t)(r / PANEL_ROWS) * panel_bytes(p, cols);
            if (!packed) panel_rows(row, w, row_bytes, r, rows);
            memset(acc, 0, (size_t)tokens * PANEL_ROWS * sizeof(float));
            for (int64_t c = 0; c * PANEL_CHUNK < cols; c++, chunk += 8 * p->chunk) {
                const int blocks = (int)min_of(8, cols / 32 - 8 * c);
                if (!packed) {
                    size_t ahead = (size_t)c * chunk_bytes + ROWS_AHEAD < row_bytes ? ROWS_AHEAD : ROWS_AHEAD + (PANEL_ROWS - 1) * row_bytes;
                    p->pack(buffer, row, c, blocks, ahead);
                }
                for (int64_t t = 0; t < tokens; t += PANEL_TILE) {
                    const int width = (int)min_of(PANEL_TILE, tokens - t);
                    const uint8_t *tile = x + act_bytes(cols, t) + act_bytes(c * PANEL_CHUNK, width);
                    p->tile(acc + PANEL_ROWS * t, packed ? chunk : buffer, blocks, tile, width, t || !packed ? 0 : packed_ahead);
                }
            }
            store_rows(y + t0 * ldy + r, ldy, acc, tokens, min_of(PANEL_ROWS, r1 - r));
        }
    }
}

/* Adds a chunk's products to acc for one token. fixed: constants that the caller keeps in registers. */
typedef void one_fn(const panel_type *p, float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, size_t ahead, const void *fixed);
INLINE void tile_one(const panel_type *p, float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, size_t ahead, const void *fixed) {
    (void)fixed;
    p->tile(acc, chunk, blocks, x, 1, ahead);
}

INLINE void panel_pairs(const panel_type *p, float *const y[2], const void *const w[2], int64_t cols, int64_t r0, int64_t r1, const uint8_t *x, one_fn *one, const void *fixed) {
    const size_t size = panel_bytes(p, cols), ahead = kern_cpu_get()->ahead_pair;
    _Alignas(64) float acc[2][PANEL_ROWS];
    for (int64_t r = r0; r < r1; r += PANEL_ROWS) {
        memset(acc, 0, sizeof acc);
        for (int64_t c = 0; c * PANEL_CHUNK < cols; c++) {
            const int blocks = (int)min_of(8, cols / 32 - 8 * c);
            const size_t at = (size_t)(r / PANEL_ROWS) * size + (size_t)c * 8 * p->chunk;
            for (int i = 0; i < 2; i++) one(p, acc[i], (const uint8_t *)w[i] + at, blocks, x + act_bytes(c * PANEL_CHUNK, 1), ahead, fixed);
        }
        for (int i = 0; i < 2; i++) memcpy(y[i] + r, acc[i], sizeof acc[i]);
    }
}

static void panel_pack(const panel_type *p, uint8_t *dst, const void *src, int64_t rows, int64_t cols, int64_t r0, int64_t r1) {
    const size_t row_bytes = (size_t)(cols / p->columns) * (size_t)p->bytes;
    for (int64_t r = r0; r < r1; r += PANEL_ROWS) {
        const uint8_t *row[PANEL_ROWS];
        uint8_t *chunk = dst + (size_t)(r / PANEL_ROWS) * panel_bytes(p, cols);
        panel_rows(row, src, row_bytes, r, rows);
        for (int64_t c = 0; c * PANEL_CHUNK < cols; c++, chunk += 8 * p->chunk) p->pack(chunk, row, c, (int)min_of(8, cols / 32 - 8 * c), ROWS_AHEAD);
    }
}

/* The functions of one type, from its pack, unpack and traits; PANEL_FUNCTIONS: from its pack and part, all but pairs_packed. */
#define PANEL_TYPE_IN(CASES, name, block_columns, block_bytes, chunk_bytes)                                                                          \
    INLINE void name##_part(float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, int w, size_t ahead, int t0, int count) {                 \
        tile_part(acc, chunk, chunk_bytes, blocks, (block_columns) == 256, x, w, ahead, t0, count, name##_unpack, name##_traits);                 \
    }                                                                                                                                      \
    PANEL_FUNCTIONS(CASES, name, block_columns, block_bytes, chunk_bytes, false)                                                          \
    static void name##_pairs_packed(float *const y[2], const void *const w[2], int64_t cols, int64_t r0, int64_t r1, const void *act) {    \
        panel_pairs(&name##_type, y, w, cols, r0, r1, act, tile_one, NULL);                                                                \
    }

#define PANEL_FUNCTIONS(CASES, name, block_columns, block_bytes, chunk_bytes, twice)                                                      \
    static void name##_tile(float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, int w, size_t ahead) {                                       \
        CASES(name##_part)                                                                                                                 \
    }                                                                                                                                      \
    static const panel_type name##_type = {.columns = block_columns, .bytes = block_bytes, .chunk = chunk_bytes, .pack = name##_pack,      \
                                           .tile = name##_tile, .asks_twice = twice};                                                                          \
    static void name##_rows(float *y, int64_t ldy, const void *w, int64_t rows, int64_t cols, int64_t r0, int64_t r1, const void *act,    \
                            int64_t n) {                                                                                                   \
        panel_run(&name##_type, y, ldy, w, false, rows, cols, r0, r1, act, n);                                                             \
    }                                                                                                                                      \
    static void name##_rows_packed(float *y, int64_t ldy, const void *w, int64_t rows, int64_t cols, int64_t r0, int64_t r1,              \
                                   const void *act, int64_t n) {                                                                           \
        panel_run(&name##_type, y, ldy, w, true, rows, cols, r0, r1, act, n);                                                              \
    }                                                                                                                                      \
    static size_t name##_packed_bytes(int64_t rows, int64_t cols) {                                                                        \
        return (size_t)((rows + PANEL_ROWS - 1) / PANEL_ROWS) * panel_bytes(&name##_type, cols);                                           \
    }                                                                                                                                      \
    static void name##_pack_rows(void *dst, const void *src, int64_t rows, int64_t cols, int64_t r0, int64_t r1) {                        \
        panel_pack(&name##_type, dst, src, rows, cols, r0, r1);                                                                            \
    }

#define PANEL_TYPE(name, block_columns, block_bytes, chunk_bytes) PANEL_TYPE_IN(TILE_CASES, name, block_columns, block_bytes, chunk_bytes)

#define PANEL_PRODUCT(name)                                                                                                                \
    {.act_bytes = SET(bytes_act_bytes), .act = SET(bytes_act), .act_step = PANEL_ACT_STEP, .rows = name##_rows, .row_step = PANEL_ROWS,                  \
     .packed_bytes = name##_packed_bytes, .pack = name##_pack_rows, .rows_packed = name##_rows_packed, .pairs_packed = name##_pairs_packed}

#endif
