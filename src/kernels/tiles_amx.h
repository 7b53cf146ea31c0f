/* tiles_amx.h: what the products and attention on the tile unit share. Included only by *_amx.c, after ops_avx512.h.
 *
 * A tile is 16 rows of 64 bytes, and tiles lie one after another without gaps: rows at a power-of-two distance would fall into one set of the caches.
 * A left tile has 16 rows of 32 columns in bfloat16, a right one 16 pairs of columns by 16 columns of the result. */
#ifndef KERNELS_TILES_AMX_H
#define KERNELS_TILES_AMX_H

#define TILE_BYTES 1024
#define TILE_FLOATS 256
#define STEP 32 /* columns of a tile that are summed over */

/* Loads of tiles do not tell the compiler that they read memory, nor stores that they write it. */
#define TILES_ORDER() __asm__ volatile("" ::: "memory")

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t column_bytes[16];
    uint8_t rows[16];
} tile_config;

/* All eight tiles are whole. The permission and the configuration are each thread's own. */
INLINE void tiles_begin(void) {
    tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.column_bytes[i] = 64;
        config.rows[i] = 16;
    }
    /* gcc 12 believes that only the first bytes are read and drops the other stores. */
    __asm__ volatile("" : "+m"(config));
    _tile_loadconfig(&config);
}

/* A pair of columns of a right tile. */
INLINE void pair_store(uint8_t *dst, __m512 first, __m512 second) {
    const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1,
                                                16, 0);
    _mm512_store_si512(dst, _mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh(second, first)));
}

/* Products with weights take one left tile by two right ones (two panels), through four registers. Where two threads share a core each has half of the registers that
 * loads are renamed to, and with all eight tiles in use next to none is left: loads then wait for products. Measured there: two by two 22 ns a product, with
 * fewer registers 13; on a core of its own all run at the unit's speed. */
#define PANELS 2

/* One step: a left tile by two right ones that lie b_step bytes apart, added to tiles 0 and 1 with `multiply`. */
#define TILES_STEP(multiply, a, b, b_step)      \
    do {                                        \
        _tile_loadd(4, a, 64);                  \
        _tile_loadd(6, b, 64);                  \
        multiply(0, 4, 6);                      \
        _tile_loadd(6, (b) + (b_step), 64);     \
        multiply(1, 4, 6);                      \
    } while (0)

/* A left tile by those of two panels in bfloat16 over `steps` tiles of columns. The left ones follow a_step bytes apart, the right ones of a panel one after another and
 * the panels b_step bytes apart. c is two tiles of sums that are continued unless this is the start. */
INLINE void tiles_panels(float *c, const uint8_t *a, size_t a_step, const uint8_t *b, size_t b_step, int64_t steps, bool start) {
    TILES_ORDER();
    if (start) {
        _tile_zero(0);
        _tile_zero(1);
    } else {
        _tile_loadd(0, c, 64);
        _tile_loadd(1, c + TILE_FLOATS, 64);
    }
    for (int64_t s = 0; s < steps; s++, a += a_step, b += TILE_BYTES) TILES_STEP(_tile_dpbf16ps, a, b, b_step);
    _tile_stored(0, c, 64);
    _tile_stored(1, c + TILE_FLOATS, 64);
    TILES_ORDER();
}

/* Two left tiles by two right ones over `steps` tiles of columns: every load feeds two products. The left ones start at a0 and a1 and follow a_step bytes apart, the right
 * ones at b0 and b1 one after another. c is four tiles of sums, left by right, that are continued unless this is the start; its rows are `stride` bytes apart. */
INLINE void tiles_product(float *c00, float *c01, float *c10, float *c11, size_t stride, const uint8_t *a0, const uint8_t *a1, size_t a_step, const uint8_t *b0,
                          const uint8_t *b1, int64_t steps, bool start) {
    TILES_ORDER();
    if (start) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, c00, stride);
        _tile_loadd(1, c01, stride);
        _tile_loadd(2, c10, stride);
        _tile_loadd(3, c11, stride);
    }
    for (int64_t s = 0; s < steps; s++) {
        _tile_loadd(4, a0 + (size_t)s * a_step, 64);
        _tile_loadd(6, b0 + s * TILE_BYTES, 64);
        _tile_loadd(7, b1 + s * TILE_BYTES, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a1 + (size_t)s * a_step, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c00, stride);
    _tile_stored(1, c01, stride);
    _tile_stored(2, c10, stride);
    _tile_stored(3, c11, stride);
    TILES_ORDER();
}

#endif
