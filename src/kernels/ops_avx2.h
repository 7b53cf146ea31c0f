/* ops_avx2.h: the vector words of panel_impl.h, attention_impl.h and float_impl.h for AVX2 with FMA and F16C: eight 32-bit lanes, half a panel at a
 * time. Included only by *_avx2.c. */
#ifndef KERNELS_OPS_AVX2_H
#define KERNELS_OPS_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Names that the files of this set share. */
#define SET(name) kern_avx2_##name
#define INLINE static inline __attribute__((always_inline))
#define LANES 8
#define TILE_STEP 4

typedef __m256i vi;
typedef __m256 vf;

INLINE vi vi_load(const void *p) { return _mm256_loadu_si256(p); }
INLINE void vi_store(void *p, vi x) { _mm256_storeu_si256(p, x); }
INLINE vi vi_set(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vi vi_bytes(int8_t x) { return _mm256_set1_epi8(x); }
INLINE vi vi_cast(const void *p) {
    int32_t x;
    memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
}
INLINE vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
INLINE vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
INLINE vi vi_sub(vi a, vi b) { return _mm256_sub_epi32(a, b); }
#define vi_shl(a, n) _mm256_slli_epi32(a, n)
#define vi_shr(a, n) _mm256_srli_epi32(a, n)
#define vi_sar(a, n) _mm256_srai_epi32(a, n)

INLINE vi part_mask(int n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }

INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
INLINE vf vf_load_part(const float *p, int n) { return _mm256_maskload_ps(p, part_mask(n)); }
INLINE void vf_store_part(float *p, vf x, int n) { _mm256_maskstore_ps(p, part_mask(n), x); }
INLINE vf vf_set(float x) { return _mm256_set1_ps(x); }
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf vf_inverse(vf a) { return _mm256_div_ps(_mm256_set1_ps(1), a); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vf_fms(vf a, vf b, vf c) { return _mm256_fmsub_ps(a, b, c); }
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf vf_where_above(vf x, float limit, vf value) {
    return _mm256_and_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_GT_OQ), value);
}
INLINE vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf vf_of(vi a) { return _mm256_cvtepi32_ps(a); }
INLINE vi vi_of(vf a) { return _mm256_cvtps_epi32(a); }
INLINE vf vf_bits(vi a) { return _mm256_castsi256_ps(a); }
#define KEPT(x) (void)(x) /* there are too few registers to keep constants */
typedef struct byte_places {
    vi third[4], top[4];
} byte_places;
INLINE byte_places byte_places_make(void) {
    byte_places p;
    for (int i = 0; i < 4; i++) {
        const __m128i from = _mm_add_epi32(_mm_setr_epi32(0, 4, 8, 12), _mm_set1_epi32(i));
        p.third[i] = _mm256_broadcastsi128_si256(_mm_or_si128(_mm_slli_epi32(from, 16), _mm_set1_epi32((int32_t)0x80008080)));
        p.top[i] = _mm256_broadcastsi128_si256(_mm_or_si128(_mm_slli_epi32(from, 24), _mm_set1_epi32(0x00808080)));
    }
    return p;
}
INLINE vf one_and(const byte_places *p, vi word, int i) { return vf_bits(vi_or(_mm256_shuffle_epi8(word, p->third[i]), vi_set(0x3F000000))); }
INLINE vf sixteenth_and(const byte_places *p, vi word, int i) { return vf_bits(vi_or(_mm256_shuffle_epi8(word, p->third[i]), vi_set(0x3D000000))); }
INLINE vi top_byte(const byte_places *p, vi word, int i) { return _mm256_shuffle_epi8(word, p->top[i]); }
INLINE vf vf_pair(const float *p) {
    double both;
    memcpy(&both, p, 8);
    return _mm256_castpd_ps(_mm256_set1_pd(both));
}
INLINE vf in_order(vf a) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), 0xD8)); }
INLINE vf vf_evens(vf a, vf b) { return in_order(_mm256_shuffle_ps(a, b, 0x88)); }
INLINE vf vf_odds(vf a, vf b) { return in_order(_mm256_shuffle_ps(a, b, 0xDD)); }
INLINE float vf_sum(vf a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
INLINE float vf_largest(vf a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

INLINE vf half_lanes(vi a) { /* halves in the low 16 bits, the upper ones zero */
    vi packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, a), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
INLINE vf vf_half_low(vi a) { return half_lanes(_mm256_and_si256(a, _mm256_set1_epi32(0xFFFF))); }
INLINE vf vf_half_high(vi a) { return half_lanes(_mm256_srli_epi32(a, 16)); }
INLINE vf vf_half_load(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
INLINE void vf_half_store(void *p, vf x) { _mm_storeu_si128(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }
INLINE vi vi_signed_bytes(const void *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p)); }
INLINE vi vi_unsigned_bytes(const void *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }
INLINE vf vf_e8m0_half_load(const uint8_t *p) {
    vi e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
    vi normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    vi tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

INLINE vi vi_table(const int8_t *t16) { return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)t16)); }
INLINE vi vi_lookup(vi table, vi index) { return _mm256_shuffle_epi8(table, index); }

/* Without a dot product of bytes: pairs of products in 16 bits, then pairs of those. Signed weights lend their sign to the activations; a pair of such products
 * fills 16 bits (2 * 128 * 127), a pair with a weight of 4, 5 or 6 bits leaves room to add 8, 4 or 2 of them. */
INLINE vi signed_weight(vi w) { return w; }
INLINE vi signed_start(const void *minus_sum) {
    (void)minus_sum;
    return _mm256_setzero_si256();
}
INLINE vi dot_signed(vi start, const vi *w, const int8_t *x, int count) {
    const vi ones = _mm256_set1_epi16(1);
    vi sum = start;
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
        vi pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w[i]), _mm256_sign_epi8(vi_cast(x + 4 * i), w[i]));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
}
INLINE vi dot_unsigned(vi start, const vi *w, const int8_t *x, int count, int bits) {
    const vi ones = _mm256_set1_epi16(1);
    const int fits = bits <= 4 ? 8 : bits == 5 ? 4 : 2, room = fits < count ? fits : count;
    vi sum = start;
#pragma GCC unroll 8
    for (int i = 0; i < count; i += room) {
        vi pairs = _mm256_maddubs_epi16(w[i], vi_cast(x + 4 * i));
        for (int j = i + 1; j < i + room; j++) pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(w[j], vi_cast(x + 4 * j)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
}

#define DOTS_TAKE_BYTES 0
INLINE void dots(vi *sum, const vi *w, const int8_t *x, int count, int bits, int tokens) {
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) sum[t] = bits == 8 ? dot_signed(sum[t], w, x + 32 * t, count) : dot_unsigned(sum[t], w, x + 32 * t, count, bits);
}

#define QUERY_MOST 16256
INLINE void query_put(void *dst, const int32_t number[32]) {
    int16_t pair[32];
    for (int i = 0; i < 32; i++) pair[i / 4 * 4 + i % 2 * 2 + i % 4 / 2] = (int16_t)number[i];
    memcpy(dst, pair, sizeof pair);
}
INLINE void query_dots(vi *sum, const vi *w, const int8_t *x, int count) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const vi even = _mm256_srai_epi16(_mm256_slli_epi16(w[i], 8), 8), odd = _mm256_srai_epi16(w[i], 8);
#pragma GCC unroll 4
        for (int t = 0; t < count; t++) {
            sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(even, vi_cast(x + 64 * t + 8 * i)));
            sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(odd, vi_cast(x + 64 * t + 8 * i + 4)));
        }
    }
}

INLINE void transpose16(uint8_t *dst, const uint8_t *const row[16], size_t offset) {
    for (int h = 0; h < 2; h++, row += 8, dst += 32) {
        vi z[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            z[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)(row[i] + offset))),
                                           _mm_loadu_si128((const void *)(row[4 + i] + offset)), 1);
        vi a = _mm256_unpacklo_epi32(z[0], z[1]), b = _mm256_unpackhi_epi32(z[0], z[1]);
        vi c = _mm256_unpacklo_epi32(z[2], z[3]), d = _mm256_unpackhi_epi32(z[2], z[3]);
        _mm256_storeu_si256((void *)dst, _mm256_unpacklo_epi64(a, c));
        _mm256_storeu_si256((void *)(dst + 64), _mm256_unpackhi_epi64(a, c));
        _mm256_storeu_si256((void *)(dst + 128), _mm256_unpacklo_epi64(b, d));
        _mm256_storeu_si256((void *)(dst + 192), _mm256_unpackhi_epi64(b, d));
    }
}

INLINE int32_t lanes_sum(vi a) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

INLINE int32_t lanes_largest(vi a) {
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

/* Sizes are compared as whole numbers, where what is not finite comes out largest; the scale is then not a number, and so is every product. */
INLINE float quantize32(int8_t *q, const float *x, int32_t minus_sum[2]) {
    const vi no_sign = _mm256_set1_epi32(0x7FFFFFFF);
    vf a[4];
    vi n[4];
    vi sizes = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        a[i] = _mm256_loadu_ps(x + 8 * i);
        sizes = _mm256_max_epi32(sizes, _mm256_and_si256(_mm256_castps_si256(a[i]), no_sign));
    }
    const union { int32_t bits; float value; } largest = {.bits = lanes_largest(sizes)};
    const float most = largest.value;
    if (!(most < INFINITY)) {
        memset(q, 0, 32);
        minus_sum[0] = minus_sum[1] = 0;
        return NAN;
    }
    vf inverse = _mm256_set1_ps(most > 0 ? 127 / most : 0);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(a[i], inverse));
    vi bytes = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    _mm256_storeu_si256((void *)q, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
    minus_sum[0] = -lanes_sum(_mm256_add_epi32(n[0], n[1]));
    minus_sum[1] = -lanes_sum(_mm256_add_epi32(n[2], n[3]));
    return most / 127;
}

#endif
