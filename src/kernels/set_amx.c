/* The set for AMX. Products with many tokens run on the tile unit: weights of few bits as bytes (bytes_amx.c), the others in bfloat16 here, where panels of
 * weights are unpacked to tiles in the first-level cache and the unit sums in float. Few tokens, and everything else, are AVX-512's: both sets share the packed
 * layout.
 *
 * The unit starves before it saturates, so what it reads again and again must lie near. Columns are taken in slices: the tiles of some panels for one slice
 * stay in the first-level cache while all tokens pass by, the activations of one slice in the second-level cache while all panels of the task do, and so do
 * the sums of the task, which are continued from slice to slice. */
#include "kernels/sets.h"

#include "kernels/ops_avx512.h"

#include "kernels/panel_types_impl.h"

#include "kernels/attention_amx.h"
#include "kernels/bytes_amx.h"
#include "kernels/tiles_amx.h"

#define AMX_LEAST 32 /* with fewer tokens unpacking to tiles costs more than the tiles save */
#define AMX_COLUMNS 256 /* of a slice */
#define AMX_TOKENS 512 /* that pass by at once: 256 KiB of activations in a slice */
#define TILE_ROWS (PANELS * PANEL_ROWS)
#define PAIRS 2 /* of panels that 16 tokens pass by before the next come: their tiles (32 KiB) and those of the tokens share the first-level cache */
#define AMX_ROWS (16 * TILE_ROWS) /* whose sums are kept from slice to slice: 1 MiB, of which each slice reads every byte once */
#define SLICE (AMX_COLUMNS / STEP)

static bool amx_usable(void) { return kern_cpu_get()->amx; }

/* ---- activations: left tiles of 16 tokens, padded with zeros; slice after slice, in a slice 16 tokens after 16 tokens ---- */

static int64_t steps_of(int64_t cols) { return (cols + STEP - 1) / STEP; }
static int64_t padded_tokens(int64_t n) { return (n + 15) / 16 * 16; }
static size_t tiles_act_bytes(int64_t cols, int64_t n) { return (size_t)padded_tokens(n) / 16 * (size_t)steps_of(cols) * TILE_BYTES; }

/* Where the slice that begins with step s (of `steps`) has its tiles for 16 tokens from t. */
static size_t act_at(int64_t s, int64_t steps, int64_t t, int64_t n) {
    return (size_t)(s * (padded_tokens(n) / 16) + t / 16 * min_of(SLICE, steps - s)) * TILE_BYTES;
}

/* 32 columns of a token, or as many as there are. */
INLINE __m512i act_columns(const float *x, int64_t left) {
    if (left >= STEP) return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
    const uint32_t mask = (1u << left) - 1;
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps((__mmask16)(mask >> 16), x + 16), _mm512_maskz_loadu_ps((__mmask16)mask, x));
}

/* Tile by tile: the memory is written from its beginning to its end. Tokens are parted at multiples of 16, columns at those of a slice. */
static void tiles_act(uint8_t *dst, const float *x, int64_t ldx, int64_t cols, int64_t n, kern_part p) {
    const int64_t steps = steps_of(cols), end = p.t1 == n ? padded_tokens(n) : p.t1;
    for (int64_t k = p.c0 / STEP; k < steps_of(p.c1); k += SLICE) {
        uint8_t *at = dst + act_at(k, steps, p.t0, n);
        for (int64_t t = p.t0; t < end; t += 16)
            for (int64_t s = k; s < min_of(k + SLICE, steps); s++)
                for (int64_t i = t; i < t + 16; i++, at += 64)
                    _mm512_store_si512(at, i < n ? act_columns(x + i * ldx + s * STEP - p.c0, cols - s * STEP) : _mm512_setzero_si512());
    }
}

/* The form that AVX-512 uses for a type when there are few tokens, ours when there are many. */
#define AMX_ACT(name, like, many)                                                                                                         \
    static size_t name##_act_bytes(int64_t cols, int64_t n) {                                                                              \
        return n < AMX_LEAST ? kern_avx512.matmul(like)->act_bytes(cols, n) : many##_act_bytes(cols, n);                                   \
    }                                                                                                                                      \
    static void name##_act(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t n, kern_part p) {                                 \
        if (n < AMX_LEAST) kern_avx512.matmul(like)->act(dst, x, ldx, cols, n, p);                                                         \
        else many##_act(dst, x, ldx, cols, n, p);                                                                                          \
    }
AMX_ACT(bytes, QUANT_Q8_0, kern_amx_bytes)
AMX_ACT(rounded, QUANT_Q8_0, tiles)
AMX_ACT(floats, QUANT_F16, tiles)

/* ---- weights: 32 columns of a panel are a tile of 16 pairs of columns by 16 rows ---- */

/* Weights are unsigned bytes here; what was added to make them so, or a minimum, is added in float. */
INLINE void tile_store(uint8_t *dst, const block *o, const traits tr) {
    const float moved = tr.bits == 8 ? -128 : tr.offset >= 0 ? -(float)(1 << tr.offset) : 0;
    const vi byte = vi_set(255);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        vf scale = tr.halved && i >= 4 ? o->second : o->scale;
        vf add = tr.min ? (tr.halved && i >= 4 ? o->second_min : o->min) : vf_mul(scale, vf_set(moved));
        vi w = o->w[i];
        vf a = vf_fma(vf_of(vi_and(w, byte)), scale, add), b = vf_fma(vf_of(vi_and(vi_shr(w, 8), byte)), scale, add);
        vf c = vf_fma(vf_of(vi_and(vi_shr(w, 16), byte)), scale, add), d = vf_fma(vf_of(vi_shr(w, 24)), scale, add);
        pair_store(dst + 128 * i, a, b);
        pair_store(dst + 128 * i + 64, c, d);
    }
}

/* A type as the loops see it. */
typedef struct amx_type {
    int columns, bytes; /* of a block in the file */
    size_t chunk;       /* bytes of 32 columns in a packed chunk */
    /* Tiles of columns [from, to) of one panel: packed, or where row is given from there. */
    void (*panel)(const struct amx_type *p, uint8_t *dst, const uint8_t *panel, const uint8_t *const *row, int64_t from, int64_t to);
    /* Quantized types: a chunk from the file, and a tile per 32 columns of a chunk. */
    void (*pack)(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead);
    void (*tiles)(uint8_t *dst, const uint8_t *chunk, int blocks);
    const quant_info *decode; /* types that are decoded to float on the way */
} amx_type;

static void quantized_panel(const amx_type *p, uint8_t *dst, const uint8_t *panel, const uint8_t *const *row, int64_t from, int64_t to) {
    _Alignas(64) uint8_t buffer[PANEL_CHUNK_MAX];
    for (int64_t c = from / PANEL_CHUNK; c * PANEL_CHUNK < to; c++, dst += PANEL_CHUNK / STEP * TILE_BYTES) {
        const int blocks = (int)min_of(8, to / 32 - 8 * c);
        if (row) p->pack(buffer, row, c, blocks, ROWS_AHEAD);
        p->tiles(dst, row ? buffer : panel + (size_t)c * 8 * p->chunk, blocks);
    }
}

/* Halves are rounded to bfloat16, which has their range and is rounded less than byte activations are. */
static void halves_panel(const amx_type *p, uint8_t *dst, const uint8_t *panel, const uint8_t *const *row, int64_t from, int64_t to) {
    (void)p;
    const int64_t padded = float_padded(to - from), steps = steps_of(to - from);
    if (row) float_pack(dst, row, (size_t)from * 2, (size_t)(to - from) * 2, (size_t)padded * 2, ROWS_AHEAD);
    for (int64_t pair = 0; pair < padded / 2; pair++) {
        vi x = vi_load(row ? dst + 64 * pair : panel + (size_t)from * 32 + 64 * (size_t)pair);
        pair_store(dst + 64 * pair, vf_half_low(x), vf_half_high(x));
    }
    memset(dst + 32 * padded, 0, (size_t)(steps * STEP - padded) * 32);
}

static void bfloats_panel(const amx_type *p, uint8_t *dst, const uint8_t *panel, const uint8_t *const *row, int64_t from, int64_t to) {
    (void)p;
    const int64_t padded = float_padded(to - from), steps = steps_of(to - from);
    if (row) float_pack(dst, row, (size_t)from * 2, (size_t)(to - from) * 2, (size_t)padded * 2, ROWS_AHEAD);
    else memcpy(dst, panel + (size_t)from * 32, (size_t)padded * 32);
    memset(dst + 32 * padded, 0, (size_t)(steps * STEP - padded) * 32);
}

static void decoded_panel(const amx_type *p, uint8_t *dst, const uint8_t *panel, const uint8_t *const *row, int64_t from, int64_t to) {
    (void)panel;
    _Alignas(64) float decoded[PANEL_ROWS][PANEL_CHUNK];
    _Alignas(64) uint8_t words[16 * STEP * sizeof(float)];
    const uint8_t *at[PANEL_ROWS];
    for (int64_t c = from; c < to; c += PANEL_CHUNK) {
        const int64_t cols = min_of(PANEL_CHUNK, to - c);
        for (int r = 0; r < PANEL_ROWS; r++) {
            p->decode->decode(decoded[r], row[r] + quant_bytes(p->decode, (uint64_t)c), cols);
            at[r] = (const uint8_t *)decoded[r];
        }
        for (int64_t s = 0; s < cols; s += STEP, dst += TILE_BYTES) { /* blocks are multiples of 32 columns */
            float_pack(words, at, (size_t)s * 4, STEP * 4, STEP * 4, 0);
            for (int pair = 0; pair < STEP / 2; pair++)
                pair_store(dst + 64 * pair, vf_load((const float *)(const void *)(words + 128 * pair)),
                           vf_load((const float *)(const void *)(words + 128 * pair + 64)));
        }
    }
}

/* The sums of some tokens, at most 16, to their places. */
static void sums_store(float *y, int64_t ldy, const float *c, int64_t tokens, int64_t rows) {
    for (int panel = 0; panel < PANELS; panel++, c += TILE_FLOATS) {
        const int64_t count = min_of(16, rows - 16 * panel);
        if (count <= 0) return;
        for (int64_t t = 0; t < tokens; t++)
            _mm512_mask_storeu_ps(y + t * ldy + 16 * panel, (__mmask16)((1u << count) - 1), _mm512_load_ps(c + 16 * t));
    }
}

/* What a block of rows, at most AMX_ROWS, and of tokens, at most AMX_TOKENS, is computed from. */
typedef struct amx_block {
    const amx_type *type;
    const uint8_t *w;
    bool packed;
    int64_t rows, cols, r0, r1;
    const uint8_t *act;
    int64_t n, t0, tokens;
    float *y;
    int64_t ldy;
} amx_block;

typedef uint8_t panel_tiles[SLICE * TILE_BYTES];
typedef float amx_sums[PANELS * TILE_FLOATS];

/* Columns [k, to) of some panels as tiles. */
static void slice_tiles(const amx_block *b, panel_tiles *tiles, int64_t r, int pairs, int64_t k, int64_t to) {
    const amx_type *p = b->type;
    const size_t row_bytes = (size_t)(b->cols / p->columns) * (size_t)p->bytes, panel_size = ((size_t)float_padded(b->cols) * p->chunk / 32 + 63) & ~(size_t)63;
    for (int i = 0; i < PANELS * pairs; i++) {
        const int64_t at = min_of(r / PANEL_ROWS + i, (b->rows - 1) / PANEL_ROWS); /* beyond the last panel it is computed again, and not stored */
        const uint8_t *row[PANEL_ROWS];
        if (!b->packed) panel_rows(row, b->w, row_bytes, at * PANEL_ROWS, b->rows);
        p->panel(p, tiles[i], b->w + (size_t)at * panel_size, b->packed ? NULL : row, k, to);
    }
}

/* The same columns of some panels for all tokens of the block. */
static void slice_run(const amx_block *b, amx_sums (*sums)[AMX_TOKENS / 16], const panel_tiles *tiles, int64_t r, int pairs, int64_t k, int64_t to) {
    const int64_t steps = steps_of(b->cols), count = steps_of(to - k);
    const uint8_t *act = b->act + act_at(k / STEP, steps, b->t0, b->n);
    for (int64_t t = 0; t < b->tokens; t += 16, act += (size_t)count * TILE_BYTES)
        for (int pair = 0; pair < pairs; pair++) {
            float *sum = sums[pair][t / 16];
            const int64_t row = r + pair * TILE_ROWS;
            tiles_panels(sum, act, TILE_BYTES, tiles[PANELS * pair], sizeof *tiles, count, k == 0);
            if (to == b->cols) sums_store(b->y + (b->t0 + t) * b->ldy + row, b->ldy, sum, min_of(16, b->tokens - t), b->r1 - row);
        }
}

static void block_run(const amx_block *b) {
    _Alignas(64) panel_tiles tiles[PAIRS * PANELS];
    _Alignas(64) amx_sums sums[AMX_ROWS / TILE_ROWS][AMX_TOKENS / 16];
    for (int64_t k = 0; k < b->cols; k += AMX_COLUMNS) {
        const int64_t to = min_of(k + AMX_COLUMNS, b->cols);
        for (int64_t r = b->r0; r < b->r1; r += PAIRS * TILE_ROWS) {
            const int pairs = (int)min_of(PAIRS, (b->r1 - r + TILE_ROWS - 1) / TILE_ROWS);
            slice_tiles(b, tiles, r, pairs, k, to);
            slice_run(b, sums + (r - b->r0) / TILE_ROWS, tiles, r, pairs, k, to);
        }
    }
}

static void amx_run(const amx_type *p, float *y, int64_t ldy, const void *w, bool packed, int64_t rows, int64_t cols, int64_t r0, int64_t r1,
                    const uint8_t *act, int64_t n) {
    tiles_begin();
    for (int64_t t = 0; t < n; t += AMX_TOKENS)
        for (int64_t r = r0; r < r1; r += AMX_ROWS)
            block_run(&(amx_block){.type = p, .w = w, .packed = packed, .rows = rows, .cols = cols, .r0 = r, .r1 = min_of(r + AMX_ROWS, r1), .act = act, .n = n,
                                   .t0 = t, .tokens = min_of(AMX_TOKENS, n - t), .y = y, .ldy = ldy});
    _tile_release();
}

/* The calls of a type; many(which, ...) computes with many tokens, from its packed form or from the file. */
#define AMX_CALLS(name, number, many, which)                                                                                                 \
    static void name##_rows(float *y, int64_t ldy, const void *w, int64_t rows, int64_t cols, int64_t r0, int64_t r1, const void *act,    \
                            int64_t n) {                                                                                                   \
        if (n < AMX_LEAST) kern_avx512.matmul(number)->rows(y, ldy, w, rows, cols, r0, r1, act, n);                                        \
        else many(which, y, ldy, w, false, rows, cols, r0, r1, act, n);                                                                          \
    }                                                                                                                                      \
    static void name##_rows_packed(float *y, int64_t ldy, const void *w, int64_t rows, int64_t cols, int64_t r0, int64_t r1,              \
                                   const void *act, int64_t n) {                                                                           \
        if (n < AMX_LEAST) kern_avx512.matmul(number)->rows_packed(y, ldy, w, rows, cols, r0, r1, act, n);                                 \
        else many(which, y, ldy, w, true, rows, cols, r0, r1, act, n);                                                                           \
    }                                                                                                                                      \
    static void name##_pairs_packed(float *const y[2], const void *const w[2], int64_t cols, int64_t r0, int64_t r1, const void *act) {    \
        kern_avx512.matmul(number)->pairs_packed(y, w, cols, r0, r1, act);                                                                 \
    }                                                                                                                                      \
    static size_t name##_packed_bytes(int64_t rows, int64_t cols) { return kern_avx512.matmul(number)->packed_bytes(rows, cols); }        \
    static void name##_pack_rows(void *dst, const void *src, int64_t rows, int64_t cols, int64_t r0, int64_t r1) {                        \
        kern_avx512.matmul(number)->pack(dst, src, rows, cols, r0, r1);                                                                    \
    }

#define AMX_TILES(name, number, block_columns, block_bytes, chunk_bytes)                                                                   \
    static void name##_tiles(uint8_t *dst, const uint8_t *chunk, int blocks) {                                                             \
        block o;                                                                                                                           \
        if ((block_columns) == 256) {                                                                                                      \
            UNROLL_8 for (int b = 0; b < 8; b++) {                                                                                         \
                name##_unpack(&o, chunk, 8, b, 0);                                                                                         \
                tile_store(dst + TILE_BYTES * b, &o, name##_traits);                                                                       \
                KEEP_ORDER();                                                                                                              \
            }                                                                                                                              \
        } else {                                                                                                                           \
            for (int b = 0; b < blocks; b++) {                                                                                             \
                name##_unpack(&o, chunk, blocks, b, 0);                                                                                    \
                tile_store(dst + TILE_BYTES * b, &o, name##_traits);                                                                       \
            }                                                                                                                              \
        }                                                                                                                                  \
    }                                                                                                                                      \
    static const amx_type name##_type = {.columns = block_columns, .bytes = block_bytes, .chunk = chunk_bytes, .panel = quantized_panel,    \
                                         .pack = name##_pack, .tiles = name##_tiles};

#define UNROLL_8 _Pragma("GCC unroll 8")

#define ROUNDED_TYPES(X)                 \
    X(mxfp4, QUANT_MXFP4, 32, 17, 272)   \
    X(q2_k, QUANT_Q2_K, 256, 84, 168)
ROUNDED_TYPES(AMX_TILES)
BYTES_AMX_TYPES(AMX_TILES)

static const amx_type f16_type = {.columns = 1, .bytes = 2, .chunk = 1024, .panel = halves_panel};
static const amx_type bf16_type = {.columns = 1, .bytes = 2, .chunk = 1024, .panel = bfloats_panel};
AMX_CALLS(f16, QUANT_F16, amx_run, &f16_type)
AMX_CALLS(bf16, QUANT_BF16, amx_run, &bf16_type)

#define X(name, number, block_columns, block_bytes, chunk_bytes) AMX_CALLS(name, number, amx_run, &name##_type)
ROUNDED_TYPES(X)
BYTES_AMX_TYPES(X)
#undef X
#define X(name, number, block_columns, block_bytes, chunk_bytes) AMX_CALLS(bytes_##name, number, kern_amx_bytes_rows, number)
BYTES_AMX_TYPES(X)
#undef X

/* Every other quantized type. */
#define X(name, number, block, size)                                                                                                      \
    static void any_##name##_rows(float *y, int64_t ldy, const void *w, int64_t rows, int64_t cols, int64_t r0, int64_t r1,               \
                                  const void *act, int64_t n) {                                                                            \
        const amx_type type = {.columns = block, .bytes = size, .panel = decoded_panel, .decode = quant_find(number)};                     \
        if (n < AMX_LEAST) kern_avx512.matmul(number)->rows(y, ldy, w, rows, cols, r0, r1, act, n);                                        \
        else amx_run(&type, y, ldy, w, false, rows, cols, r0, r1, act, n);                                                                 \
    }
QUANT_TYPES(X)
#undef X

#define AMX_PRODUCT(name, form)                                                                                                           \
    {.act_bytes = form##_act_bytes, .act = form##_act, .act_step = 16, .many = AMX_LEAST, .rows = name##_rows, .row_step = TILE_ROWS,                    \
     .packed_bytes = name##_packed_bytes, .pack = name##_pack_rows, .rows_packed = name##_rows_packed, .pairs_packed = name##_pairs_packed}

static const kern_matmul bytes_products[QUANT_TYPE_END] = {
#define X(name, number, block_columns, block_bytes, chunk_bytes) [number] = AMX_PRODUCT(bytes_##name, bytes),
    BYTES_AMX_TYPES(X)
#undef X
};

static const kern_matmul products[QUANT_TYPE_END] = {
#define X(name, number, block_columns, block_bytes, chunk_bytes) [number] = AMX_PRODUCT(name, rounded),
    ROUNDED_TYPES(X)
    BYTES_AMX_TYPES(X)
#undef X
    [QUANT_F16] = AMX_PRODUCT(f16, floats),
    [QUANT_BF16] = AMX_PRODUCT(bf16, floats),
};

static const kern_matmul any_products[QUANT_TYPE_END] = {
#define X(name, number, block, bytes)                                                                                                     \
    [number] = {.act_bytes = floats_act_bytes, .act = floats_act, .act_step = 16, .many = AMX_LEAST, .rows = any_##name##_rows,            \
                .row_step = TILE_ROWS},
    QUANT_TYPES(X)
#undef X
};

/* Single numbers of 32 bits and more stay what they are: AVX-512 multiplies them in float. */
static const kern_matmul *amx_matmul_fine(int type) {
    const quant_info *info = quant_find(type);
    if (!info || !info->decode) return NULL;
    if (products[type].rows) return &products[type];
    return info->block > 1 ? &any_products[type] : NULL;
}

static const kern_matmul *amx_matmul(int type) {
    return type >= 0 && type < QUANT_TYPE_END && bytes_products[type].rows ? &bytes_products[type] : amx_matmul_fine(type);
}

static void amx_attention(const kern_attention *a) {
    if (a->n_q < AMX_LEAST) kern_avx512.attention(a);
    else kern_attention_amx(a);
}
static void amx_rms_norm(float *y, const float *x, const float *weight, int64_t n, float eps) { kern_avx512.rms_norm(y, x, weight, n, eps); }
static void amx_add(float *y, const float *x, float scale, int64_t n) { kern_avx512.add(y, x, scale, n); }
static void amx_silu_mul(float *y, const float *gate, const float *up, int64_t n) { kern_avx512.silu_mul(y, gate, up, n); }
static void amx_gelu_mul(float *y, const float *gate, const float *up, int64_t n) { kern_avx512.gelu_mul(y, gate, up, n); }
static void amx_to_f16(uint16_t *dst, const float *src, int64_t n) { kern_avx512.to_f16(dst, src, n); }
static void amx_to_blocks(int type, void *dst, const float *src, int64_t n) { kern_avx512.to_blocks(type, dst, src, n); }
static float amx_dot(const float *a, const float *b, int64_t n) { return kern_avx512.dot(a, b, n); }

const kernels kern_amx = {
    .name = "amx",
    .usable = amx_usable,
    .matmul = amx_matmul,
    .matmul_fine = amx_matmul_fine,
    .attention = amx_attention,
    .attention_many = AMX_LEAST,
    .attention_rows = 256,
    .rms_norm = amx_rms_norm,
    .add = amx_add,
    .silu_mul = amx_silu_mul,
    .gelu_mul = amx_gelu_mul,
    .to_f16 = amx_to_f16,
    .to_blocks = amx_to_blocks,
    .dot = amx_dot,
};
