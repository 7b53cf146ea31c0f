/* ops_avx512.h: the vector words that panel_impl.h, attention_impl.h and float_impl.h are written in, for AVX-512 with VNNI: sixteen 32-bit
 * lanes, one per row of a panel. Included only by *_avx512.c and *_amx.c. */
#ifndef KERNELS_OPS_AVX512_H
#define KERNELS_OPS_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Names that the files of this set share. */
#define SET(name) kern_avx512_##name
#define INLINE static inline __attribute__((always_inline))
#define LANES 16
#define TILE_STEP 8    /* tokens that one pass of the product kernels holds in registers */

typedef __m512i vi;
typedef __m512 vf;

INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE void vi_store(void *p, vi x) { _mm512_storeu_si512(p, x); }
INLINE vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }
INLINE vi vi_bytes(int8_t x) { return _mm512_set1_epi8(x); }
INLINE vi vi_cast(const void *p) { /* four bytes in every lane */
    int32_t x;
    memcpy(&x, p, 4);
    return _mm512_set1_epi32(x);
}
INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
INLINE vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
#define vi_shl(a, n) _mm512_slli_epi32(a, n)
#define vi_shr(a, n) _mm512_srli_epi32(a, n)
#define vi_sar(a, n) _mm512_srai_epi32(a, n)

INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
INLINE vf vf_load_part(const float *p, int n) { return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); } /* n < LANES; the rest is zero */
INLINE void vf_store_part(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x); }
INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_inverse(vf a) { /* of finite numbers above zero, to 2e-7: an estimate made twice as good, because divisions take 16 cycles */
    const vf r = _mm512_rcp14_ps(a);
    return _mm512_mul_ps(r, _mm512_fnmadd_ps(a, r, _mm512_set1_ps(2)));
}
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_fms(vf a, vf b, vf c) { return _mm512_fmsub_ps(a, b, c); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vf_where_above(vf x, float limit, vf value) { /* zero elsewhere, also where x is not a number */
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_GT_OQ), value);
}
INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf vf_of(vi a) { return _mm512_cvtepi32_ps(a); }
INLINE vi vi_of(vf a) { return _mm512_cvtps_epi32(a); }
INLINE vf vf_bits(vi a) { return _mm512_castsi512_ps(a); }
/* The compiler keeps x in a register. A constant it would make anew for each use, in steps of the units that products need. */
#define KEPT(x) __asm__("" : "+v"(x))
/* Byte i of every word in another place. As the third byte of a float a byte 128 + n, n below 128, is 1 + n / 128 (one_and), or a sixteenth of that; as the highest byte of a
 * number it is 2^24 times itself, with its sign. */
typedef struct byte_places {
    vi third[4], top[4], one, sixteenth;
    __mmask64 thirds;
} byte_places;
INLINE byte_places byte_places_make(void) {
    byte_places p = {.one = vi_set(0x3F000000), .sixteenth = vi_set(0x3D000000), .thirds = 0x4444444444444444};
    __asm__("" : "+Yk"(p.thirds));
    KEPT(p.one);
    KEPT(p.sixteenth);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m128i from = _mm_add_epi32(_mm_setr_epi32(0, 4, 8, 12), _mm_set1_epi32(i));
        p.third[i] = _mm512_broadcast_i32x4(_mm_slli_epi32(from, 16));
        p.top[i] = _mm512_broadcast_i32x4(_mm_or_si128(_mm_slli_epi32(from, 24), _mm_set1_epi32(0x00808080)));
        KEPT(p.third[i]);
        KEPT(p.top[i]);
    }
    return p;
}
INLINE vf one_and(const byte_places *p, vi word, int i) { return vf_bits(_mm512_mask_shuffle_epi8(p->one, p->thirds, word, p->third[i])); }
INLINE vf sixteenth_and(const byte_places *p, vi word, int i) { return vf_bits(_mm512_mask_shuffle_epi8(p->sixteenth, p->thirds, word, p->third[i])); }
INLINE vi top_byte(const byte_places *p, vi word, int i) { return _mm512_shuffle_epi8(word, p->top[i]); }
/* Two floats over and over; the even and the odd lanes of two vectors. */
INLINE vf vf_pair(const float *p) {
    double both;
    memcpy(&both, p, 8);
    return _mm512_castpd_ps(_mm512_set1_pd(both));
}
INLINE vf vf_evens(vf a, vf b) {
    return _mm512_permutex2var_ps(a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
}
INLINE vf vf_odds(vf a, vf b) {
    return _mm512_permutex2var_ps(a, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), b);
}
INLINE float vf_sum(vf a) { return _mm512_reduce_add_ps(a); }
INLINE float vf_largest(vf a) { return _mm512_reduce_max_ps(a); }

/* Halves: the low and high 16 bits of every lane, 16 in a row, and to memory. */
INLINE vf vf_half_low(vi a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }
INLINE vf vf_half_high(vi a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(a, 16))); }
INLINE vf vf_half_load(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
INLINE void vf_half_store(void *p, vf x) { _mm256_storeu_si256(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }
/* Sixteen bytes, one in a lane. */
INLINE vi vi_signed_bytes(const void *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(p)); }
INLINE vi vi_unsigned_bytes(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }
/* Power-of-two scales (one byte each), halved because the table of values is doubled. */
INLINE vf vf_e8m0_half_load(const uint8_t *p) {
    vi e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
    vi normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    vi tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(_mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), normal, tiny));
}

/* Sixteen signed bytes by the low four bits of each byte; the other bits must be zero. */
INLINE vi vi_table(const int8_t *t16) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)t16)); }
INLINE vi vi_lookup(vi table, vi index) { return _mm512_shuffle_epi8(table, index); }

/* Dot products of bytes, four per lane. Weights of few bits are unsigned and go in as they are; signed weights are first moved
 * by 128 to be unsigned (signed_weight), and the sum starts at -128 times the sum of the activations (signed_start). */
INLINE vi signed_weight(vi w) { return _mm512_xor_si512(w, _mm512_set1_epi8(-128)); }
INLINE vi signed_start(const void *minus_sum) { return _mm512_slli_epi32(vi_cast(minus_sum), 7); }
#define DOTS_TAKE_BYTES 1 /* weights may be as large as a byte */
INLINE vi dot4(vi sum, vi w, const int8_t *x) { /* the compiler would load x to a register first, at the cost of an instruction */
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const int8_t (*)[4])x));
    return sum;
}
/* Adds the products of `count` vectors of weights with the bytes of `tokens` tokens (32 bytes apart). All tokens take a step before any takes the next: each waits for its
 * own sum, and the CPU sees others to go on with; one alone has its sum in two halves. bits: of a weight. */
INLINE void dots(vi *sum, const vi *w, const int8_t *x, int count, int bits, int tokens) {
    if (tokens == 1 && count == 8) {
        vi half = vi_set(0);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            *sum = dot4(*sum, w[i], x + 4 * i);
            half = dot4(half, w[4 + i], x + 16 + 4 * i);
        }
        *sum = vi_add(*sum, half);
        return;
    }
    const bool loaded = bits == 8 && tokens == 4; /* there it is faster, by 6 % on Zen 4 */
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
#pragma GCC unroll 8
        for (int t = 0; t < tokens; t++) {
            const int8_t *at = x + 32 * t + 4 * i;
            sum[t] = loaded ? _mm512_dpbusd_epi32(sum[t], w[i], vi_cast(at)) : dot4(sum[t], w[i], at);
        }
}

/* Dot products of whole numbers of up to 15 bits (a query: QUERY_MOST at most in size) with signed bytes. query_put lays out 32 of them in 64 bytes; query_dots adds
 * the products of eight vectors of bytes with `count` of those, one after another. Here they are pairs of columns (0, 2), (1, 3) and so on. */
#define QUERY_MOST 16256
INLINE void query_put(void *dst, const int32_t number[32]) {
    int16_t pair[32];
    for (int i = 0; i < 32; i++) pair[i / 4 * 4 + i % 2 * 2 + i % 4 / 2] = (int16_t)number[i];
    memcpy(dst, pair, sizeof pair);
}
INLINE void query_dots(vi *sum, const vi *w, const int8_t *x, int count) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const vi even = _mm512_srai_epi16(_mm512_slli_epi16(w[i], 8), 8), odd = _mm512_srai_epi16(w[i], 8);
#pragma GCC unroll 4
        for (int t = 0; t < count; t++) {
            sum[t] = _mm512_dpwssd_epi32(sum[t], even, vi_cast(x + 64 * t + 8 * i));
            sum[t] = _mm512_dpwssd_epi32(sum[t], odd, vi_cast(x + 64 * t + 8 * i + 4));
        }
    }
}

/* 16 bytes of each of 16 rows, to four runs of 16 dwords. */
INLINE void transpose16(uint8_t *dst, const uint8_t *const row[16], size_t offset) {
    __m512i z[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        z[i] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(row[i] + offset)));
        z[i] = _mm512_inserti32x4(z[i], _mm_loadu_si128((const void *)(row[4 + i] + offset)), 1);
        z[i] = _mm512_inserti32x4(z[i], _mm_loadu_si128((const void *)(row[8 + i] + offset)), 2);
        z[i] = _mm512_inserti32x4(z[i], _mm_loadu_si128((const void *)(row[12 + i] + offset)), 3);
    }
    __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
    __m512i c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    _mm512_storeu_si512(dst, _mm512_unpacklo_epi64(a, c));
    _mm512_storeu_si512(dst + 64, _mm512_unpackhi_epi64(a, c));
    _mm512_storeu_si512(dst + 128, _mm512_unpacklo_epi64(b, d));
    _mm512_storeu_si512(dst + 192, _mm512_unpackhi_epi64(b, d));
}

/* 32 activations to bytes: returns the scale, the bytes, and minus the sums of both halves. Sizes are compared as whole numbers,
 * where what is not finite comes out largest; the scale is then not a number, and so is every product with these bytes. */
INLINE float quantize32(int8_t *q, const float *x, int32_t minus_sum[2]) {
    vf a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    vi sizes = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(a)), _mm512_castps_si512(_mm512_abs_ps(b)));
    const union { int32_t bits; float value; } most = {.bits = _mm512_reduce_max_epi32(sizes)};
    const float largest = most.value;
    if (!(largest < INFINITY)) {
        memset(q, 0, 32);
        minus_sum[0] = minus_sum[1] = 0;
        return NAN;
    }
    vf inverse = _mm512_set1_ps(largest > 0 ? 127 / largest : 0);
    vi ia = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)), ib = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
    _mm_storeu_si128((void *)q, _mm512_cvtsepi32_epi8(ia));
    _mm_storeu_si128((void *)(q + 16), _mm512_cvtsepi32_epi8(ib));
    minus_sum[0] = -_mm512_reduce_add_epi32(ia);
    minus_sum[1] = -_mm512_reduce_add_epi32(ib);
    return largest / 127;
}

#endif
