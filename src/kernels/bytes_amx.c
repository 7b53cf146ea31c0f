/* Products of many tokens on the tile unit in bytes, which it multiplies twice as fast as bfloat16 and reads at half the cost.
 *
 * The unit sums whole numbers, so all that it sums at once must share a scale: 256 columns of a row of weights, and of a token. Activations are rounded to bytes
 * with a scale per 256 columns. Weights have a scale per 16 or 32 columns in the file; they are brought to the largest one of 256 columns and rounded to 1/256 of the
 * range, about a tenth of what the type's own rounding is. A minimum, once weights are moved to lie around zero, is small; it is multiplied with the sums of
 * activations in bfloat16 and starts the sum.
 *
 * Columns are taken in slices of two chunks. The tiles of two panels for one slice (16 KiB) stay in the first-level cache while all tokens pass by, 16 at a time; the
 * slice's activations and the sums, which are continued from slice to slice, stay in the second. While the unit works on 16 tokens, the vector units scale and
 * add what it made of those before, and the weights that come next are asked for. */
#include "kernels/bytes_amx.h"

#include "kernels/ops_avx512.h"

#include "kernels/panel_types_impl.h"

#include "kernels/tiles_amx.h"

#define CHUNK_STEPS 4                           /* tiles of 64 columns in a chunk */
#define CHUNK_TILES (CHUNK_STEPS * TILE_BYTES)  /* bytes of a chunk's tiles, for 16 tokens or rows */
#define TILE_ROWS (PANELS * PANEL_ROWS)         /* rows that are computed at once */
#define SLICE 2                                 /* chunks */
#define GROUP 4                                 /* chunks whose sums (8 each) fill a tile */
#define BLOCK_TOKENS 512
#define BLOCK_ROWS 512
#define FEW_ROWS 128                            /* of a block where all activations stay near: its sums are then the smaller part */
#define NEAR (1 << 20)                          /* bytes: half of the second cache */
#define MINIMA_GROUPS 16                        /* taken at once: 16 Ki columns */

/* ---- activations ---- */

static int64_t chunks_of(int64_t cols) { return (cols + PANEL_CHUNK - 1) / PANEL_CHUNK; }
static int64_t padded_of(int64_t n) { return (n + 15) / 16 * 16; }
static int64_t groups_of(int64_t cols) { return (chunks_of(cols) + GROUP - 1) / GROUP; }

/* Three parts: tiles [slice][16 tokens][chunk][step], scales [chunk][token], sums of 32 columns as tiles [group][16 tokens]. */
static size_t scales_at(int64_t cols, int64_t n) { return (size_t)chunks_of(cols) * (size_t)padded_of(n) / 16 * CHUNK_TILES; }
static size_t sums_at(int64_t cols, int64_t n) { return scales_at(cols, n) + (size_t)chunks_of(cols) * (size_t)padded_of(n) * sizeof(float); }
size_t kern_amx_bytes_act_bytes(int64_t cols, int64_t n) { return sums_at(cols, n) + (size_t)groups_of(cols) * (size_t)padded_of(n) / 16 * TILE_BYTES; }

/* The tiles of chunk c for the 16 tokens from t. */
static size_t tiles_at(int64_t cols, int64_t n, int64_t c, int64_t t) {
    const int64_t first = c / SLICE * SLICE, wide = min_of(SLICE, chunks_of(cols) - first);
    return (size_t)(first * (padded_of(n) / 16) + t / 16 * wide + c - first) * CHUNK_TILES;
}

/* Four vectors of whole numbers to 64 bytes in order. */
INLINE __m512i bytes_of(const __m512i v[4]) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3])));
}

/* The sums of every 32 of 256 bytes, in order. */
INLINE __m256i sums_of(const __m512i bytes[4]) {
    const __m512i ones = _mm512_set1_epi8(1), zero = _mm512_setzero_si512();
    __m512i s[4];
    for (int i = 0; i < 4; i++) s[i] = _mm512_dpbusd_epi32(zero, ones, bytes[i]);
    const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
    const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
    const __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)); /* lane i of 128 bits: 16 bytes of each */
    const __m512i d = _mm512_add_epi32(c, _mm512_shuffle_i32x4(c, c, 0xB1));
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 8, 1, 9, 2, 10, 3, 11), d));
}

/* Up to 256 columns of a token to bytes, 64 at each of tile, tile + step, ...; eight sums in bfloat16; returns the scale. What is not finite makes the scale
 * not a number. */
INLINE float quantize_chunk(uint8_t *tile, size_t step, uint8_t *sums, const float *x, int64_t left) {
    __m512 v[16];
    __m512i size = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        v[i] = left >= PANEL_CHUNK ? _mm512_loadu_ps(x + 16 * i)
               : left > 16 * i     ? _mm512_maskz_loadu_ps((__mmask16)(left >= 16 * i + 16 ? 0xFFFF : (1u << (left - 16 * i)) - 1), x + 16 * i)
                                   : _mm512_setzero_ps();
        size = _mm512_max_epi32(size, _mm512_castps_si512(_mm512_abs_ps(v[i])));
    }
    const union { int32_t bits; float value; } most = {.bits = _mm512_reduce_max_epi32(size)};
    const bool finite = most.value < INFINITY;
    const __m512 inverse = _mm512_set1_ps(finite && most.value > 0 ? 127 / most.value : 0);
    const float scale = finite ? most.value / 127 : NAN;
    __m512i bytes[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i whole[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) whole[j] = _mm512_cvtps_epi32(_mm512_mul_ps(v[4 * i + j], inverse));
        bytes[i] = finite ? bytes_of(whole) : _mm512_setzero_si512();
        _mm512_store_si512(tile + step * (size_t)i, bytes[i]);
    }
    const __m256 sum = _mm256_mul_ps(_mm256_cvtepi32_ps(sums_of(bytes)), _mm256_set1_ps(scale));
    _mm_store_si128((void *)sums, (__m128i)_mm256_cvtneps_pbh(sum));
    return scale;
}

void kern_amx_bytes_act(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t n, kern_part p) {
    const int64_t chunks = chunks_of(cols), padded = padded_of(n), end = p.t1 == n ? padded : p.t1;
    const int64_t c0 = p.c0 / PANEL_CHUNK, c1 = p.c1 == cols ? groups_of(cols) * GROUP : p.c1 / PANEL_CHUNK;
    float *scales = (float *)(void *)((uint8_t *)dst + scales_at(cols, n));
    uint8_t *sums = (uint8_t *)dst + sums_at(cols, n);
    for (int64_t t = p.t0; t < end; t += 16)
        for (int64_t c = c0; c < c1; c++) {
            uint8_t *tile = (uint8_t *)dst + tiles_at(cols, n, c, t);
            uint8_t *sum = sums + (size_t)(c / GROUP * (padded / 16) + t / 16) * TILE_BYTES + (size_t)(c % GROUP) * 16;
            for (int64_t i = 0; i < 16; i++, tile += 64, sum += 64) {
                if (t + i < n && c < chunks) {
                    scales[c * padded + t + i] = quantize_chunk(tile, TILE_BYTES, sum, x + (t + i) * ldx + (c - c0) * PANEL_CHUNK, cols - c * PANEL_CHUNK);
                } else {
                    _mm_store_si128((void *)sum, _mm_setzero_si128());
                    if (c >= chunks) continue;
                    scales[c * padded + t + i] = 0;
                    for (int s = 0; s < CHUNK_STEPS; s++) _mm512_store_si512(tile + s * TILE_BYTES, _mm512_setzero_si512());
                }
            }
        }
}

/* ---- weights ---- */

/* What is subtracted from an unsigned weight so that weights lie around zero, and by what the largest scale is divided so that they fill a byte, whichever sign the
 * scale has. Signed bytes fill it as they are; -128, which has no opposite, is taken for -127. */
INLINE int center_of(const traits tr) { return 1 << (tr.bits - 1); }
INLINE float spread_of(const traits tr) { return tr.bits == 8 ? 1 : 127.0f / (float)center_of(tr); }

/* What a block of 32 columns needs beyond its bytes. */
typedef struct block_scales {
    vf scale, second;
} block_scales;

INLINE vi vf_size(vi most, vf x) { return _mm512_max_epi32(most, _mm512_castps_si512(_mm512_abs_ps(x))); }

/* Weights times factor / 256, rounded, as signed bytes: 16 bits at a time, which wrap around in between and fit in the end. */
INLINE vi bytes_scaled(vi w, vi factor, vi start) {
    const vi even = _mm512_add_epi16(_mm512_mullo_epi16(_mm512_and_si512(w, _mm512_set1_epi16(255)), factor), start);
    const vi odd = _mm512_add_epi16(_mm512_mullo_epi16(_mm512_srli_epi16(w, 8), factor), start);
    return _mm512_ternarylogic_epi32(_mm512_srli_epi16(even, 8), odd, _mm512_set1_epi16((short)0xFF00), 0xF8); /* first | (second & third) */
}

INLINE vi factor_of(vf scale, vf inverse) {
    const vi f = _mm512_and_si512(_mm512_cvtps_epi32(_mm512_mul_ps(scale, inverse)), _mm512_set1_epi32(0xFFFF));
    return _mm512_or_si512(f, _mm512_slli_epi32(f, 16));
}

/* Bytes of 32 columns: eight rows of a right tile. */
INLINE void block_store(uint8_t *dst, const vi w[8], const block_scales *s, vf inverse, const traits tr) {
    vi factor[2] = {factor_of(s->scale, inverse)}, start[2];
    if (tr.halved) factor[1] = factor_of(s->second, inverse);
    for (int i = 0; i < (tr.halved ? 2 : 1); i++) /* rounding, less the center's share */
        start[i] = _mm512_sub_epi16(_mm512_set1_epi16(128), _mm512_mullo_epi16(factor[i], _mm512_set1_epi16((short)center_of(tr))));
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const vi moved = tr.bits == 8 ? _mm512_max_epu8(w[i], _mm512_set1_epi8(1)) : w[i];
        _mm512_store_si512(dst + 64 * i, bytes_scaled(moved, factor[tr.halved ? i / 4 : 0], start[tr.halved ? i / 4 : 0]));
    }
}

/* A type as the loops see it. */
typedef struct bytes_type {
    int columns, bytes; /* of a block in the file */
    size_t chunk;       /* bytes of 32 columns in a packed chunk */
    void (*pack)(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead);
    void (*tiles)(uint8_t *dst, float *scale, const uint8_t *chunk, int blocks); /* a chunk's tiles and the scale of each row */
    void (*minima)(uint8_t *dst, const uint8_t *chunk, int blocks); /* of a chunk, four rows of a right tile in bfloat16; only of types that has_minima names */
} bytes_type;

typedef void unpack_fn(block *o, const uint8_t *chunk, int blocks, int b, int h);

/* Where the scales of 32 columns come without its weights, the compiler leaves the weights' part out. */
INLINE vf chunk_scales(block_scales s[8], const uint8_t *chunk, int blocks, unpack_fn *unpack, const traits tr) {
    vi most = vi_set(0);
    block o;
#pragma GCC unroll 8
    for (int b = 0; b < 8; b++) {
        s[b] = (block_scales){0};
        if (b >= blocks) continue;
        unpack(&o, chunk, blocks, b, 0);
        s[b].scale = o.scale;
        most = vf_size(most, o.scale);
        if (tr.halved) {
            s[b].second = o.second;
            most = vf_size(most, o.second);
        }
    }
    return _mm512_castsi512_ps(most);
}

INLINE void chunk_tiles(uint8_t *dst, float *scale, const uint8_t *chunk, int blocks, unpack_fn *unpack, const traits tr) {
    block_scales s[8];
    const vf most = chunk_scales(s, chunk, blocks, unpack, tr);
    const vf inverse = _mm512_maskz_div_ps(_mm512_cmp_ps_mask(most, _mm512_setzero_ps(), _CMP_GT_OQ), _mm512_set1_ps(256 * spread_of(tr)), most);
    _mm512_store_ps(scale, _mm512_mul_ps(most, _mm512_set1_ps(1 / spread_of(tr))));
    block o;
#pragma GCC unroll 8
    for (int b = 0; b < 8; b++) {
        if (b >= blocks) {
            memset(dst + 512 * b, 0, 512);
            continue;
        }
        unpack(&o, chunk, blocks, b, 0);
        block_store(dst + 512 * b, o.w, &s[b], inverse, tr);
        KEEP_ORDER();
    }
}

/* What is left to add, times the sum of 32 activations, after weights were moved to lie around zero. */
INLINE void chunk_minima(uint8_t *dst, const uint8_t *chunk, int blocks, unpack_fn *unpack, const traits tr) {
    vf add[8];
    block o;
#pragma GCC unroll 8
    for (int b = 0; b < 8; b++) {
        add[b] = vf_set(0);
        if (b >= blocks) continue;
        unpack(&o, chunk, blocks, b, 0);
        add[b] = vf_fma(o.scale, vf_set((float)center_of(tr)), o.min);
    }
    for (int i = 0; i < 4; i++) pair_store(dst + 64 * i, add[2 * i], add[2 * i + 1]);
}

#define X(name, number, block_columns, block_bytes, chunk_bytes)                                                                          \
    static void name##_tiles(uint8_t *dst, float *scale, const uint8_t *chunk, int blocks) {                                               \
        chunk_tiles(dst, scale, chunk, (block_columns) == 256 ? 8 : blocks, name##_unpack, name##_traits);                                 \
    }                                                                                                                                      \
    static void name##_minima(uint8_t *dst, const uint8_t *chunk, int blocks) {                                                            \
        if (name##_traits.min) chunk_minima(dst, chunk, (block_columns) == 256 ? 8 : blocks, name##_unpack, name##_traits);                 \
    }
BYTES_AMX_TYPES(X)
#undef X

static const bytes_type types[QUANT_TYPE_END] = {
#define X(name, number, block_columns, block_bytes, chunk_bytes)                                                                          \
    [number] = {.columns = block_columns, .bytes = block_bytes, .chunk = chunk_bytes, .pack = name##_pack, .tiles = name##_tiles, .minima = name##_minima},
    BYTES_AMX_TYPES(X)
#undef X
};
static bool has_minima(int type) {
#define X(name, number, block_columns, block_bytes, chunk_bytes) \
    if (type == (number)) return name##_traits.min;
    BYTES_AMX_TYPES(X)
#undef X
    return false;
}

/* ---- the product ---- */

/* A block of rows and tokens, and what it is computed from. */
typedef struct bytes_block {
    const bytes_type *type;
    bool minima;
    const uint8_t *w;
    bool packed;
    int64_t rows, cols, r0, r1;
    const uint8_t *act;
    int64_t n, t0, tokens;
    float *y;
    int64_t ldy;
} bytes_block;

/* The tiles of some panels for a slice. */
typedef struct bytes_panels {
    uint8_t tiles[SLICE][PANELS][CHUNK_TILES];
    float scale[SLICE][PANELS][PANEL_ROWS];
} bytes_panels;

/* Where a chunk of 16 rows is, packed on the way if need be. */
static const uint8_t *chunk_find(const bytes_block *b, uint8_t *buffer, int64_t panel, int64_t c, int blocks) {
    const bytes_type *p = b->type;
    const int64_t at = min_of(panel, (b->rows - 1) / PANEL_ROWS); /* beyond the last panel it is computed again, and not stored */
    const size_t panel_size = ((size_t)(b->cols / 32) * p->chunk + 63) & ~(size_t)63;
    if (b->packed) return b->w + (size_t)at * panel_size + (size_t)c * 8 * p->chunk;
    const uint8_t *row[PANEL_ROWS];
    panel_rows(row, b->w, (size_t)(b->cols / p->columns) * (size_t)p->bytes, at * PANEL_ROWS, b->rows);
    p->pack(buffer, row, c, blocks, ROWS_AHEAD);
    return buffer;
}

static int blocks_of(const bytes_block *b, int64_t c) { return (int)min_of(8, b->cols / 32 - 8 * c); }

static void panels_make(bytes_panels *to, const bytes_block *b, int64_t r, int64_t c0, int64_t c1) {
    _Alignas(64) uint8_t buffer[PANEL_CHUNK_MAX];
    for (int i = 0; i < PANELS; i++)
        for (int64_t c = c0; c < c1; c++) {
            const uint8_t *chunk = chunk_find(b, buffer, r / PANEL_ROWS + i, c, blocks_of(b, c));
            b->type->tiles(to->tiles[c - c0][i], to->scale[c - c0][i], chunk, blocks_of(b, c));
        }
}

/* The sums of 16 tokens. */
typedef float bytes_sums[PANELS * TILE_FLOATS];

/* Starts the sums of some rows with the minima times the sums of activations. */
static void minima_run(const bytes_block *b, bytes_sums *sums, int64_t r) {
    _Alignas(64) uint8_t tiles[PANELS][MINIMA_GROUPS][TILE_BYTES], buffer[PANEL_CHUNK_MAX];
    const int64_t groups = groups_of(b->cols), stride = padded_of(b->n) / 16;
    for (int64_t g0 = 0; g0 < groups; g0 += MINIMA_GROUPS) {
        const int64_t g1 = min_of(g0 + MINIMA_GROUPS, groups);
        for (int i = 0; i < PANELS; i++)
            for (int64_t c = g0 * GROUP; c < g1 * GROUP; c++) {
                uint8_t *to = tiles[i][c / GROUP - g0] + 256 * (c % GROUP);
                if (c < chunks_of(b->cols)) b->type->minima(to, chunk_find(b, buffer, r / PANEL_ROWS + i, c, blocks_of(b, c)), blocks_of(b, c));
                else memset(to, 0, 256);
            }
        const uint8_t *a = b->act + sums_at(b->cols, b->n) + (size_t)(g0 * stride + b->t0 / 16) * TILE_BYTES;
        for (int64_t t = 0; t < b->tokens; t += 16, a += TILE_BYTES, sums += 1)
            tiles_panels(*sums, a, (size_t)stride * TILE_BYTES, tiles[0][0], sizeof tiles[0], g1 - g0, g0 == 0);
        sums -= (b->tokens + 15) / 16;
    }
}

/* 16 tokens by the rows of two panels over one chunk: what the unit summed, and where it goes once scaled. */
typedef struct bytes_unit {
    const int32_t *whole;       /* a tile for each panel; NULL: there is no such unit */
    const float (*scale)[PANEL_ROWS];
    const float *token_scales;
    const float *from;          /* sums to be continued; NULL: none yet */
    float *to;                  /* sums, or the result: */
    int64_t stride;             /* 0, or from token to token of the result */
    int64_t tokens, rows;       /* of the result */
} bytes_unit;

/* A token's sum with one panel. */
INLINE __m512 unit_sum(const bytes_unit *u, int panel, int64_t t, bool start) {
    const __m512 whole = _mm512_cvtepi32_ps(_mm512_load_si512(u->whole + panel * TILE_FLOATS + 16 * t));
    const __m512 scaled = _mm512_mul_ps(whole, _mm512_load_ps(u->scale[panel])), token = _mm512_set1_ps(u->token_scales[t]);
    return start ? _mm512_mul_ps(scaled, token) : _mm512_fmadd_ps(scaled, token, _mm512_load_ps(u->from + panel * TILE_FLOATS + 16 * t));
}

/* Tokens [t0, t0 + 8) by one panel, to be continued or as the result. */
INLINE void unit_continue(const bytes_unit *u, int panel, int64_t t0, bool start) {
#pragma GCC unroll 8
    for (int64_t t = t0; t < t0 + 8; t++) _mm512_store_ps(u->to + panel * TILE_FLOATS + 16 * t, unit_sum(u, panel, t, start));
}
INLINE void unit_finish(const bytes_unit *u, int panel, int64_t t0, bool start) {
    const int64_t rows = u->rows - panel * PANEL_ROWS;
    const __mmask16 mask = (__mmask16)(rows >= 16 ? 0xFFFF : rows > 0 ? (1u << rows) - 1 : 0);
    for (int64_t t = t0; t < min_of(t0 + 8, u->tokens); t++)
        _mm512_mask_storeu_ps(u->to + panel * PANEL_ROWS + t * u->stride, mask, unit_sum(u, panel, t, start));
}

/* A fourth of the work of a unit. */
INLINE void unit_scale(const bytes_unit *u, int fourth) {
    if (!u->whole) return;
    const int panel = fourth / 2;
    const int64_t t = fourth % 2 * 8;
    if (!u->stride && u->from) unit_continue(u, panel, t, false);
    else if (!u->stride) unit_continue(u, panel, t, true);
    else if (u->from) unit_finish(u, panel, t, false);
    else unit_finish(u, panel, t, true);
}

/* Computes a unit's whole numbers while the unit before it is scaled. */
INLINE void unit_run(int32_t *whole, const uint8_t *a, const uint8_t *b, const bytes_unit *before) {
    TILES_ORDER();
    _tile_zero(0);
    _tile_zero(1);
#pragma GCC unroll 4
    for (int s = 0; s < CHUNK_STEPS; s++) {
        TILES_STEP(_tile_dpbssd, a + s * TILE_BYTES, b + s * TILE_BYTES, CHUNK_TILES);
        unit_scale(before, s);
    }
    _tile_stored(0, whole, 64);
    _tile_stored(1, whole + TILE_FLOATS, 64);
    TILES_ORDER();
}

/* Asks for a share of what is unpacked next, chunks [c0, c1) of the panels from row r, while tokens pass by. */
INLINE void panels_ask(const bytes_block *b, int64_t r, int64_t c0, int64_t c1, int64_t share, int64_t shares) {
    if (!b->packed) return;
    const size_t bytes = (size_t)(c1 - c0) * 8 * b->type->chunk, from = bytes * (size_t)share / (size_t)shares, to = bytes * (size_t)(share + 1) / (size_t)shares;
    for (int i = 0; i < PANELS; i++) {
        const uint8_t *at = chunk_find(b, NULL, r / PANEL_ROWS + i, c0, 8);
        for (size_t k = from; k < to; k += 64) ask(at, k);
    }
}

/* Chunks [c0, c1) of the panels from row r for all tokens of the block. */
static void slice_run(const bytes_block *b, bytes_sums *sums, const bytes_panels *w, int64_t r, int64_t c0, int64_t c1) {
    _Alignas(64) int32_t whole[2][PANELS * TILE_FLOATS];
    const int64_t padded = padded_of(b->n), chunks = chunks_of(b->cols), end = b->t0 + b->tokens;
    const float *token_scales = (const float *)(const void *)(b->act + scales_at(b->cols, b->n));
    bytes_unit before = {0};
    int turn = 0;
    const bool more = r + TILE_ROWS < b->r1; /* else the next slice begins with the first row */
    const int64_t next = more ? c0 : c1, rows = more ? r + TILE_ROWS : b->r0;
    for (int64_t t = b->t0; t < end; t += 16, sums++) {
        if (next < chunks) panels_ask(b, rows, next, min_of(next + SLICE, chunks), (t - b->t0) / 16, (b->tokens + 15) / 16);
        for (int64_t c = c0; c < c1; c++, turn ^= 1) {
            unit_run(whole[turn], b->act + tiles_at(b->cols, b->n, c, t), w->tiles[c - c0][0], &before);
            before = (bytes_unit){.whole = whole[turn], .scale = w->scale[c - c0], .token_scales = token_scales + c * padded + t,
                                  .from = c > 0 || b->minima ? *sums : NULL, .to = *sums};
            if (c < chunks - 1) continue;
            before.to = b->y + t * b->ldy + r;
            before.stride = b->ldy;
            before.tokens = min_of(16, end - t);
            before.rows = b->r1 - r;
        }
    }
    for (int fourth = 0; fourth < 4; fourth++) unit_scale(&before, fourth);
}

static void block_run(const bytes_block *b) {
    _Alignas(64) bytes_panels panels;
    _Alignas(64) bytes_sums sums[BLOCK_ROWS / TILE_ROWS][BLOCK_TOKENS / 16];
    const int64_t chunks = chunks_of(b->cols);
    for (int64_t c = 0; c < chunks; c += SLICE)
        for (int64_t r = b->r0; r < b->r1; r += TILE_ROWS) {
            bytes_sums *part = sums[(r - b->r0) / TILE_ROWS];
            if (c == 0 && b->minima) minima_run(b, part, r);
            panels_make(&panels, b, r, c, min_of(c + SLICE, chunks));
            slice_run(b, part, &panels, r, c, min_of(c + SLICE, chunks));
        }
}

void kern_amx_bytes_rows(int type, float *y, int64_t ldy, const void *w, bool packed, int64_t rows, int64_t cols, int64_t r0, int64_t r1, const void *act,
                         int64_t n) {
    tiles_begin();
    const int64_t step = cols * min_of(n, BLOCK_TOKENS) <= NEAR ? FEW_ROWS : BLOCK_ROWS;
    for (int64_t t = 0; t < n; t += BLOCK_TOKENS)
        for (int64_t r = r0; r < r1; r += step)
            block_run(&(bytes_block){.type = &types[type], .minima = has_minima(type), .w = w, .packed = packed, .rows = rows, .cols = cols, .r0 = r,
                                     .r1 = min_of(r + step, r1), .act = act, .n = n, .t0 = t, .tokens = min_of(BLOCK_TOKENS, n - t), .y = y, .ldy = ldy});
    _tile_release();
}
