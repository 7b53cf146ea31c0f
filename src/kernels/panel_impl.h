/* panel_impl.h: products of quantized weights with byte activations, written once in the words of an ops_*.h and compiled for each
 * instruction set. panel.h says how everything lies in memory.
 *
 * For every type there are two small functions: pack (file to chunk) and unpack (32 columns of a chunk to weights and scales in registers). All
 * else is common: a chunk is unpacked for up to eight tokens at a time, which hides behind their products. The arithmetic of a token is
 * the same however many there are, and so are its bits: whole numbers within 32 columns, then one fused multiply-add per 32 columns in order. */
#ifndef KERNELS_PANEL_IMPL_H
#define KERNELS_PANEL_IMPL_H

#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "quant/quant.h"

#define CHUNK_AHEAD 4096   /* bytes that packed weights are asked for before they are read */
#define ROWS_AHEAD 384     /* the same for each of the 16 rows of a panel in the file; the hardware cannot follow so many streams */

/* 32 columns of LANES rows, unpacked. */
typedef struct block {
    vi w[8];  /* weights, four columns each */
    vf scale; /* of all 32, or of the first 16 */
    vf second; /* scale of the last 16 (halved types only) */
    vf min;   /* times the sum of activations is added (types with a minimum only) */
} block;

/* What a type needs beyond the common way; all constant at compile time. */
typedef struct traits {
    int bits;      /* of an unsigned weight; 8: signed bytes */
    int offset;    /* log2 of what is subtracted from an unsigned weight; -1: nothing */
    bool min;      /* has a minimum */
    bool halved;   /* a scale per 16 columns */
} traits;

/* The word of a chunk for the lane group that starts at row h. */
#define WORD(chunk, i) ((chunk) + 64 * (i) + 4 * h)

/* Keeps the compiler from moving the loads of later blocks up to here: it would run out of registers. */
#define KEEP_ORDER() __asm__ volatile("" ::: "memory")

/* ---- the types ---- */

INLINE void gather_halves(uint8_t *dst, const uint8_t *const row[16], size_t offset) {
    for (int r = 0; r < PANEL_ROWS; r++) memcpy(dst + 2 * r, row[r] + offset, 2);
}

/* 16 bytes of every row to four words of a chunk. Four in a row ask for one line of every row. */
INLINE void words_pack(uint8_t *dst, const uint8_t *const row[16], size_t offset, size_t ahead) {
    transpose16(dst, row, offset);
    for (size_t r = offset / 16 % 4; r < PANEL_ROWS; r += 4) __builtin_prefetch(row[r] + offset + ahead);
}

INLINE void pieces_pack(uint8_t *dst, const uint8_t *const row[16], size_t offset, int pieces, size_t ahead) {
    for (int i = 0; i < pieces; i++) words_pack(dst + 256 * i, row, offset + 16 * (size_t)i, ahead);
}

/* Nibbles of one block: the low ones are columns 0 to 15, the high ones 16 to 31. */
INLINE void nibbles_split(vi w[8], const uint8_t *words, int h) {
    const vi low = vi_bytes(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        vi x = vi_load(WORD(words, i));
        w[i] = vi_and(x, low);
        w[i + 4] = vi_and(vi_shr(x, 4), low);
    }
}

static const traits q8_0_traits = {.bits = 8, .offset = -1};
INLINE void q8_0_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    for (int b = 0; b < blocks; b++) {
        size_t at = (size_t)(chunk * 8 + b) * 34;
        pieces_pack(dst + 512 * b, row, at + 2, 2, ahead);
        gather_halves(dst + 512 * blocks + 32 * b, row, at);
    }
}
INLINE void q8_0_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) o->w[i] = signed_weight(vi_load(WORD(chunk + 512 * b, i)));
    o->scale = vf_half_load(chunk + 512 * blocks + 32 * b + 2 * h);
}

static const traits q4_0_traits = {.bits = 4, .offset = 3};
INLINE void q4_0_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    for (int b = 0; b < blocks; b++) {
        size_t at = (size_t)(chunk * 8 + b) * 18;
        words_pack(dst + 256 * b, row, at + 2, ahead);
        gather_halves(dst + 256 * blocks + 32 * b, row, at);
    }
}
INLINE void q4_0_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    nibbles_split(o->w, chunk + 256 * b, h);
    o->scale = vf_half_load(chunk + 256 * blocks + 32 * b + 2 * h);
}

INLINE void table_weights(vi w[8], const int8_t *values) {
    const vi table = vi_table(values);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) w[i] = signed_weight(vi_lookup(table, w[i]));
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const traits iq4_nl_traits = {.bits = 8, .offset = -1};
#define iq4_nl_pack q4_0_pack
INLINE void iq4_nl_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    q4_0_unpack(o, chunk, blocks, b, h);
    table_weights(o->w, iq4_values);
}

static const int8_t mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; /* doubled */
static const traits mxfp4_traits = {.bits = 8, .offset = -1};
INLINE void mxfp4_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    for (int b = 0; b < blocks; b++) {
        size_t at = (size_t)(chunk * 8 + b) * 17;
        words_pack(dst + 256 * b, row, at + 1, ahead);
        for (int r = 0; r < PANEL_ROWS; r++) dst[256 * blocks + 16 * b + r] = row[r][at];
    }
}
INLINE void mxfp4_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    nibbles_split(o->w, chunk + 256 * b, h);
    table_weights(o->w, mxfp4_values);
    o->scale = vf_e8m0_half_load(chunk + 256 * blocks + 16 * b + h);
}

/* Scale and minimum of block b from the 12 bytes that hold eight pairs of 6 bits: the first four pairs lie whole in words 1 and 2, the last four
 * have their low bits in word 3 and their high bits atop words 1 and 2. */
INLINE void k_scales(block *o, const uint8_t *head, int b, int h) {
    vi d = vi_load(WORD(head, 0)), scales = vi_load(WORD(head, 1)), mins = vi_load(WORD(head, 2)), scale, min;
    if (b < 4) {
        scale = vi_and(vi_shr(scales, 8 * b), vi_set(63));
        min = vi_and(vi_shr(mins, 8 * b), vi_set(63));
    } else {
        vi low = vi_load(WORD(head, 3));
        scale = vi_or(vi_and(vi_shr(low, 8 * (b - 4)), vi_set(15)), vi_and(vi_shr(scales, 8 * (b - 4) + 2), vi_set(48)));
        min = vi_or(vi_and(vi_shr(low, 8 * (b - 4) + 4), vi_set(15)), vi_and(vi_shr(mins, 8 * (b - 4) + 2), vi_set(48)));
    }
    o->scale = vf_mul(vf_half_low(d), vf_of(scale));
    o->min = vf_sub(vf_set(0), vf_mul(vf_half_high(d), vf_of(min)));
}

static const traits q4_k_traits = {.bits = 4, .offset = -1, .min = true};
INLINE void q4_k_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    (void)blocks;
    pieces_pack(dst, row, (size_t)chunk * 144, 9, ahead);
}
/* The low nibbles of 32 bytes are one block, the high ones the next. */
INLINE void pair_split(vi w[8], const uint8_t *words, int b, int h) {
    const vi low = vi_bytes(15);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        vi x = vi_load(WORD(words, 8 * (b / 2) + i));
        w[i] = vi_and(b & 1 ? vi_shr(x, 4) : x, low);
    }
}
INLINE void q4_k_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    (void)blocks;
    pair_split(o->w, chunk + 256, b, h);
    k_scales(o, chunk, b, h);
}

static const traits q5_k_traits = {.bits = 5, .offset = -1, .min = true};
INLINE void q5_k_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    (void)blocks;
    pieces_pack(dst, row, (size_t)chunk * 176, 11, ahead);
}
INLINE void q5_k_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    (void)blocks;
    pair_split(o->w, chunk + 768, b, h);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        vi fifth = vi_load(WORD(chunk + 256, i));
        fifth = b < 4 ? vi_shl(fifth, 4 - b) : vi_shr(fifth, b - 4);
        o->w[i] = vi_or(o->w[i], vi_and(fifth, vi_bytes(16)));
    }
    k_scales(o, chunk, b, h);
}

static const traits q6_k_traits = {.bits = 6, .offset = 5, .halved = true};
INLINE void q6_k_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    (void)blocks;
    size_t at = (size_t)chunk * 210;
    for (int r = 0; r < PANEL_ROWS; r++) {
        uint16_t d;
        memcpy(&d, row[r] + at + 208, 2);
        float f = quant_f16_to_f32(d);
        memcpy(dst + 4 * r, &f, 4);
    }
    words_pack(dst + 64, row, at + 192, ahead);
    for (int half = 0; half < 2; half++) { /* in the order in which they are read */
        pieces_pack(dst + 320 + 1536 * half, row, at + 128 + 32 * (size_t)half, 2, ahead);
        pieces_pack(dst + 832 + 1536 * half, row, at + 64 * (size_t)half, 4, ahead);
    }
}
INLINE void q6_k_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    (void)blocks;
    int half = b / 4, j = b % 4; /* 128 columns share 8 words of upper pairs and 16 of nibbles */
    const uint8_t *upper = chunk + 320 + 1536 * half, *nibbles = upper + 512 + 512 * (j & 1);
    vi u[8]; /* first these, then the nibbles: the hardware follows straight lines */
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) u[i] = vi_load(WORD(upper, i));
    KEEP_ORDER();
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        vi x = vi_load(WORD(nibbles, i));
        u[i] = j < 3 ? vi_shl(u[i], 4 - 2 * j) : vi_shr(u[i], 2);
        o->w[i] = vi_or(vi_and(j < 2 ? x : vi_shr(x, 4), vi_bytes(15)), vi_and(u[i], vi_bytes(48)));
    }
    vi scales = vi_load(WORD(chunk + 64, b / 2)); /* two blocks to a word */
    vf d = vf_load((const float *)(const void *)WORD(chunk, 0));
    o->scale = vf_mul(d, vf_of(vi_sar(vi_shl(scales, b & 1 ? 8 : 24), 24)));
    o->second = vf_mul(d, vf_of(vi_sar(vi_shl(scales, b & 1 ? 0 : 16), 24)));
}

static const traits iq4_xs_traits = {.bits = 8, .offset = -1};
INLINE void iq4_xs_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    (void)blocks;
    size_t at = (size_t)chunk * 136;
    transpose16(dst, row, at); /* of its four words the last two are weights, written over at once */
    pieces_pack(dst + 128, row, at + 8, 8, ahead);
}
INLINE void iq4_xs_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    (void)blocks;
    nibbles_split(o->w, chunk + 128 + 256 * b, h);
    table_weights(o->w, iq4_values);
    vi d = vi_load(WORD(chunk, 0)), low = vi_load(WORD(chunk, 1));
    vi scale = vi_or(vi_and(vi_shr(low, 4 * b), vi_set(15)), vi_and(vi_shr(d, 12 + 2 * b), vi_set(48)));
    o->scale = vf_mul(vf_half_low(d), vf_of(vi_sub(scale, vi_set(32))));
}

/* ---- the common way ---- */

/* One token's activations for 32 columns, in a tile of w tokens. */
#define ACT_SCALE(x, w, t) vf_set(((const float *)(const void *)((x) + 32 * (w)))[t])
#define ACT_SCALED_SUM(x, w, t) vf_set(((const float *)(const void *)((x) + 36 * (w)))[t])
#define ACT_MINUS_SUM(x, w, t, which) ((x) + (40 + 4 * (which)) * (w) + 4 * (t))

INLINE vf block_add(vf acc, const block *o, const uint8_t *x, int w, int t, const traits tr) {
    const int8_t *q = (const int8_t *)x + 32 * t;
    vf scale = ACT_SCALE(x, w, t);
    if (tr.halved) {
        vi a = vi_shl(vi_cast(ACT_MINUS_SUM(x, w, t, 1)), tr.offset), b = vi_shl(vi_cast(ACT_MINUS_SUM(x, w, t, 2)), tr.offset);
        a = dot_unsigned(a, o->w, q, 4, tr.bits);
        b = dot_unsigned(b, o->w + 4, q + 16, 4, tr.bits);
        return vf_fma(vf_fma(vf_of(b), o->second, vf_mul(vf_of(a), o->scale)), scale, acc);
    }
    vi sum;
    if (tr.bits == 8) sum = dot_signed(signed_start(ACT_MINUS_SUM(x, w, t, 0)), o->w, q, 8);
    else sum = dot_unsigned(tr.offset < 0 ? vi_set(0) : vi_shl(vi_cast(ACT_MINUS_SUM(x, w, t, 0)), tr.offset), o->w, q, 8, tr.bits);
    acc = vf_fma(vf_of(sum), vf_mul(o->scale, scale), acc);
    return tr.min ? vf_fma(o->min, ACT_SCALED_SUM(x, w, t), acc) : acc;
}

typedef void unpack_fn(block *o, const uint8_t *chunk, int blocks, int b, int h);

/* Asks for what is read a little later; in small portions, because the CPU can wait for only so many lines at a time. */
INLINE void prefetch_block(const uint8_t *chunk, size_t bytes, int b) {
#pragma GCC unroll 9
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(chunk + bytes * (size_t)b + i);
}

/* Tokens [t0, t0 + count) of a tile of w. acc has 16 floats a token. */
INLINE void tile_part(float *acc, const uint8_t *chunk, size_t bytes, int blocks, bool whole, const uint8_t *x, int w, size_t ahead, int t0, int count,
                      unpack_fn *unpack, const traits tr) {
    for (int h = 0; h < PANEL_ROWS; h += LANES) {
        vf sum[TILE_STEP];
        block o;
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) sum[t] = vf_load(acc + PANEL_ROWS * (t0 + t) + h);
        if (whole) { /* blocks of 256 columns take their scales apart by number: unrolled, the numbers are constants */
#pragma GCC unroll 8
            for (int b = 0; b < 8; b++) {
                unpack(&o, chunk, 8, b, h);
                if (h == 0 && count > 1) prefetch_block(chunk + ahead, bytes, b);
                KEEP_ORDER();
#pragma GCC unroll 8
                for (int t = 0; t < count; t++) sum[t] = block_add(sum[t], &o, x + (size_t)b * PANEL_ACT * w, w, t0 + t, tr);
                KEEP_ORDER();
            }
        } else {
            for (int b = 0; b < blocks; b++) {
                unpack(&o, chunk, blocks, b, h);
                if (h == 0 && count > 1) prefetch_block(chunk + ahead, bytes, b);
#pragma GCC unroll 8
                for (int t = 0; t < count; t++) sum[t] = block_add(sum[t], &o, x + (size_t)b * PANEL_ACT * w, w, t0 + t, tr);
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < count; t++) vf_store(acc + PANEL_ROWS * (t0 + t) + h, sum[t]);
    }
}

INLINE int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }

/* Where the rows of a panel lie in the file; those beyond the last repeat it. */
INLINE void panel_rows(const uint8_t *row[16], const void *w, size_t row_bytes, int64_t r, int64_t rows) {
    for (int i = 0; i < PANEL_ROWS; i++) row[i] = (const uint8_t *)w + (size_t)min_of(r + i, rows - 1) * row_bytes;
}

INLINE void store_rows(float *y, int64_t ldy, const float *acc, int64_t tokens, int64_t count) {
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < count; i++) y[t * ldy + i] = acc[PANEL_ROWS * t + i];
}

/* Tokens that are computed in one go: their activations should stay in the second-level cache. */
INLINE int64_t tokens_at_once(size_t token_bytes) {
    int64_t fit = (int64_t)(PANEL_L2 / token_bytes) / PANEL_TILE * PANEL_TILE;
    return fit < PANEL_TILE ? PANEL_TILE : fit > PANEL_TOKENS ? PANEL_TOKENS : fit;
}

static size_t bytes_act_bytes(int64_t cols, int64_t n) { return (size_t)(cols / 32) * (size_t)n * PANEL_ACT; }

static void bytes_act(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t n, int64_t t0, int64_t t1) {
    for (int64_t t = t0; t < t1; t++) {
        int64_t tile = t / PANEL_TILE * PANEL_TILE, i = t - tile, w = min_of(PANEL_TILE, n - tile);
        uint8_t *at = (uint8_t *)dst + bytes_act_bytes(cols, tile);
        for (int64_t c = 0; c < cols; c += 32, at += PANEL_ACT * w) {
            int32_t minus[2];
            float scale = quantize32((int8_t *)at + 32 * i, x + t * ldx + c, minus);
            int32_t sum = minus[0] + minus[1];
            float scaled = scale * (float)-sum;
            memcpy(at + 32 * w + 4 * i, &scale, 4);
            memcpy(at + 36 * w + 4 * i, &scaled, 4);
            memcpy(at + 40 * w + 4 * i, &sum, 4);
            memcpy(at + 44 * w + 4 * i, &minus[0], 4);
            memcpy(at + 48 * w + 4 * i, &minus[1], 4);
        }
    }
}

/* A type as the loops over rows, chunks and tokens see it. */
typedef struct panel_type {
    int columns, bytes; /* of a block in the file */
    size_t chunk;       /* bytes of 32 columns in a chunk */
    void (*pack)(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead);
    /* Adds a chunk's products to acc (16 floats a token) for a tile of w tokens, whose activations start at x. What lies `ahead` bytes later is asked for. */
    void (*tile)(float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, int w, size_t ahead);
} panel_type;

INLINE size_t panel_bytes(const panel_type *p, int64_t cols) { return ((size_t)(cols / 32) * p->chunk + 63) & ~(size_t)63; }

static void panel_run(const panel_type *p, float *y, int64_t ldy, const void *w, bool packed, int64_t rows, int64_t cols, int64_t r0, int64_t r1,
                      const uint8_t *act, int64_t n) {
    const size_t row_bytes = (size_t)(cols / p->columns) * (size_t)p->bytes, chunk_bytes = (size_t)(PANEL_CHUNK / p->columns * p->bytes);
    const int64_t at_once = tokens_at_once(bytes_act_bytes(cols, 1));
    _Alignas(64) uint8_t buffer[PANEL_CHUNK_MAX];
    _Alignas(64) float acc[PANEL_TOKENS * PANEL_ROWS];
    for (int64_t t0 = 0; t0 < n; t0 += at_once) {
        const int64_t tokens = min_of(at_once, n - t0);
        const uint8_t *x = act + bytes_act_bytes(cols, t0);
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
                    const uint8_t *tile = x + bytes_act_bytes(cols, t) + (size_t)c * 8 * PANEL_ACT * (size_t)width;
                    p->tile(acc + PANEL_ROWS * t, packed ? chunk : buffer, blocks, tile, width, t ? 0 : CHUNK_AHEAD);
                }
            }
            store_rows(y + t0 * ldy + r, ldy, acc, tokens, min_of(PANEL_ROWS, r1 - r));
        }
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

/* All widths of a tile, as constants. */
#if TILE_STEP == 8
#define TILE_CASES(ONE)                                                                                                                   \
    switch (w) {                                                                                                                          \
    case 1: ONE(acc, chunk, blocks, x, 1, ahead, 0, 1); break;                                                                                                          \
    case 2: ONE(acc, chunk, blocks, x, 2, ahead, 0, 2); break;                                                                                                          \
    case 3: ONE(acc, chunk, blocks, x, 3, ahead, 0, 3); break;                                                                                                          \
    case 4: ONE(acc, chunk, blocks, x, 4, ahead, 0, 4); break;                                                                                                          \
    case 5: ONE(acc, chunk, blocks, x, 5, ahead, 0, 5); break;                                                                                                          \
    case 6: ONE(acc, chunk, blocks, x, 6, ahead, 0, 6); break;                                                                                                          \
    case 7: ONE(acc, chunk, blocks, x, 7, ahead, 0, 7); break;                                                                                                          \
    default: ONE(acc, chunk, blocks, x, 8, ahead, 0, 8); break;                                                                                                         \
    }
#else
#define TILE_CASES(ONE)                                                                                                                   \
    int t = 0;                                                                                                                            \
    for (; t + 4 <= w; t += 4) ONE(acc, chunk, blocks, x, w, ahead, t, 4);                                                                                              \
    if (w - t == 3) ONE(acc, chunk, blocks, x, w, ahead, t, 3);                                                                                                         \
    else if (w - t == 2) ONE(acc, chunk, blocks, x, w, ahead, t, 2);                                                                                                    \
    else if (w - t == 1) ONE(acc, chunk, blocks, x, w, ahead, t, 1);
#endif

/* The functions of one type, from its pack, unpack and traits. */
#define PANEL_TYPE(name, block_columns, block_bytes, chunk_bytes)                                                                          \
    INLINE void name##_part(float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, int w, size_t ahead, int t0, int count) {                 \
        tile_part(acc, chunk, chunk_bytes, blocks, (block_columns) == 256, x, w, ahead, t0, count, name##_unpack, name##_traits);                 \
    }                                                                                                                                      \
    static void name##_tile(float *acc, const uint8_t *chunk, int blocks, const uint8_t *x, int w, size_t ahead) {                                       \
        TILE_CASES(name##_part)                                                                                                            \
    }                                                                                                                                      \
    static const panel_type name##_type = {.columns = block_columns, .bytes = block_bytes, .chunk = chunk_bytes, .pack = name##_pack,      \
                                           .tile = name##_tile};                                                                          \
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

#define PANEL_PRODUCT(name)                                                                                                                \
    {.act_bytes = bytes_act_bytes, .act = bytes_act, .act_step = PANEL_TILE, .rows = name##_rows, .row_step = PANEL_ROWS,                  \
     .packed_bytes = name##_packed_bytes, .pack = name##_pack_rows, .rows_packed = name##_rows_packed}

PANEL_TYPE(q8_0, 32, 34, 544)
PANEL_TYPE(q4_0, 32, 18, 288)
PANEL_TYPE(iq4_nl, 32, 18, 288)
PANEL_TYPE(mxfp4, 32, 17, 272)
PANEL_TYPE(q4_k, 256, 144, 288)
PANEL_TYPE(q5_k, 256, 176, 352)
PANEL_TYPE(q6_k, 256, 210, 424)
PANEL_TYPE(iq4_xs, 256, 136, 272)

static const kern_matmul panel_products[QUANT_TYPE_END] = {
    [QUANT_Q8_0] = PANEL_PRODUCT(q8_0),     [QUANT_Q4_0] = PANEL_PRODUCT(q4_0), [QUANT_IQ4_NL] = PANEL_PRODUCT(iq4_nl),
    [QUANT_MXFP4] = PANEL_PRODUCT(mxfp4),   [QUANT_Q4_K] = PANEL_PRODUCT(q4_k), [QUANT_Q5_K] = PANEL_PRODUCT(q5_k),
    [QUANT_Q6_K] = PANEL_PRODUCT(q6_k),     [QUANT_IQ4_XS] = PANEL_PRODUCT(iq4_xs),
};

#endif
