/* ops_neon.h: the vector words of panel_impl.h, attention_impl.h and float_impl.h for ARM with the dot product extension: four 32-bit lanes, a
 * quarter of a panel at a time. Included only by *_neon.c. */
#ifndef KERNELS_OPS_NEON_H
#define KERNELS_OPS_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Names that the files of this set share. */
#define SET(name) kern_neon_##name
#define INLINE static inline __attribute__((always_inline))
#define LANES 4
#define TILE_STEP 8

typedef int32x4_t vi;
typedef float32x4_t vf;

INLINE vi vi_load(const void *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
INLINE void vi_store(void *p, vi x) { vst1q_u8(p, vreinterpretq_u8_s32(x)); }
INLINE vi vi_set(int32_t x) { return vdupq_n_s32(x); }
INLINE vi vi_bytes(int8_t x) { return vreinterpretq_s32_s8(vdupq_n_s8(x)); }
INLINE vi vi_cast(const void *p) {
    int32_t x;
    memcpy(&x, p, 4);
    return vdupq_n_s32(x);
}
INLINE vi vi_and(vi a, vi b) { return vandq_s32(a, b); }
INLINE vi vi_or(vi a, vi b) { return vorrq_s32(a, b); }
INLINE vi vi_xor(vi a, vi b) { return veorq_s32(a, b); }
INLINE vi vi_add(vi a, vi b) { return vaddq_s32(a, b); }
INLINE vi vi_sub(vi a, vi b) { return vsubq_s32(a, b); }
INLINE vi vi_shl(vi a, int n) { return vreinterpretq_s32_u32(vreinterpretq_u32_s32(a) << (uint32_t)n); }
INLINE vi vi_shr(vi a, int n) { return vreinterpretq_s32_u32(vreinterpretq_u32_s32(a) >> (uint32_t)n); }
INLINE vi vi_sar(vi a, int n) { return a >> n; }

INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
INLINE void vf_store(float *p, vf x) { vst1q_f32(p, x); }
INLINE vf vf_load_part(const float *p, int n) {
    float all[4] = {0};
    memcpy(all, p, (size_t)n * sizeof *p);
    return vld1q_f32(all);
}
INLINE void vf_store_part(float *p, vf x, int n) {
    float all[4];
    vst1q_f32(all, x);
    memcpy(p, all, (size_t)n * sizeof *p);
}
INLINE vf vf_set(float x) { return vdupq_n_f32(x); }
INLINE vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
INLINE vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
INLINE vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
INLINE vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
INLINE vf vf_inverse(vf a) { return vdivq_f32(vdupq_n_f32(1), a); }
INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
INLINE vf vf_fms(vf a, vf b, vf c) { return vfmaq_f32(vnegq_f32(c), a, b); }
INLINE vf vf_max(vf a, vf b) { return vmaxq_f32(a, b); }
INLINE vf vf_min(vf a, vf b) { return vminq_f32(a, b); }
INLINE vf vf_where_above(vf x, float limit, vf value) {
    return vreinterpretq_f32_u32(vandq_u32(vcgtq_f32(x, vdupq_n_f32(limit)), vreinterpretq_u32_f32(value)));
}
INLINE vf vf_round(vf a) { return vrndnq_f32(a); }
INLINE vf vf_of(vi a) { return vcvtq_f32_s32(a); }
INLINE vi vi_of(vf a) { return vcvtnq_s32_f32(a); }
INLINE vf vf_bits(vi a) { return vreinterpretq_f32_s32(a); }
#define KEPT(x) (void)(x) /* the compiler does */
typedef struct byte_places {
    vi third, top;
} byte_places;
INLINE byte_places byte_places_make(void) { return (byte_places){.third = vi_set(0xFF0000), .top = vi_set((int32_t)0xFF000000)}; }
INLINE vi third_byte(const byte_places *p, vi word, int i) { return vi_and(i < 2 ? vi_shl(word, 16 - 8 * i) : vi_shr(word, 8 * i - 16), p->third); }
INLINE vf one_and(const byte_places *p, vi word, int i) { return vf_bits(vi_or(third_byte(p, word, i), vi_set(0x3F000000))); }
INLINE vf sixteenth_and(const byte_places *p, vi word, int i) { return vf_bits(vi_or(third_byte(p, word, i), vi_set(0x3D000000))); }
INLINE vi top_byte(const byte_places *p, vi word, int i) { return vi_and(vi_shl(word, 24 - 8 * i), p->top); }
INLINE vf vf_pair(const float *p) {
    float32x2_t both = vld1_f32(p);
    return vcombine_f32(both, both);
}
INLINE vf vf_evens(vf a, vf b) { return vuzp1q_f32(a, b); }
INLINE vf vf_odds(vf a, vf b) { return vuzp2q_f32(a, b); }
INLINE float vf_sum(vf a) { return vaddvq_f32(a); }
INLINE float vf_largest(vf a) { return vmaxvq_f32(a); }

INLINE vf vf_half_low(vi a) { return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(a)))); }
INLINE vf vf_half_high(vi a) { return vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(vreinterpretq_u32_s32(a), 16))); }
INLINE vf vf_half_load(const void *p) {
    uint16_t all[4];
    memcpy(all, p, sizeof all);
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(all)));
}
INLINE void vf_half_store(void *p, vf x) {
    uint16_t all[4];
    vst1_u16(all, vreinterpret_u16_f16(vcvt_f16_f32(x)));
    memcpy(p, all, sizeof all);
}
INLINE vi vi_unsigned_bytes(const void *p) {
    uint32_t all;
    memcpy(&all, p, sizeof all);
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(all)))));
}
INLINE vi vi_signed_bytes(const void *p) {
    uint32_t all;
    memcpy(&all, p, sizeof all);
    return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(all))));
}
INLINE vf vf_e8m0_half_load(const uint8_t *p) {
    vi e = {p[0], p[1], p[2], p[3]};
    vi normal = vshlq_n_s32(vsubq_s32(e, vdupq_n_s32(1)), 23), tiny = vshlq_s32(vdupq_n_s32(0x00200000), e);
    return vreinterpretq_f32_s32(vbslq_s32(vcltq_s32(e, vdupq_n_s32(2)), tiny, normal));
}

INLINE vi vi_table(const int8_t *t16) { return vreinterpretq_s32_s8(vld1q_s8(t16)); }
INLINE vi vi_lookup(vi table, vi index) { return vreinterpretq_s32_s8(vqtbl1q_s8(vreinterpretq_s8_s32(table), vreinterpretq_u8_s32(index))); }

/* Both sides are signed; weights of few bits are positive in it. */
INLINE vi signed_weight(vi w) { return w; }
INLINE vi signed_start(const void *minus_sum) {
    (void)minus_sum;
    return vdupq_n_s32(0);
}
#define DOTS_TAKE_BYTES 0
INLINE void dots(vi *sum, const vi *w, const int8_t *x, int count, int bits, int tokens) {
    (void)bits;
#pragma GCC unroll 8
    for (int t = 0; t < tokens; t++)
#pragma GCC unroll 2
        for (int i = 0; i < count; i += 4) {
            int8x16_t a = vld1q_s8(x + 32 * t + 4 * i);
            sum[t] = vdotq_laneq_s32(sum[t], vreinterpretq_s8_s32(w[i]), a, 0);
            sum[t] = vdotq_laneq_s32(sum[t], vreinterpretq_s8_s32(w[i + 1]), a, 1);
            sum[t] = vdotq_laneq_s32(sum[t], vreinterpretq_s8_s32(w[i + 2]), a, 2);
            sum[t] = vdotq_laneq_s32(sum[t], vreinterpretq_s8_s32(w[i + 3]), a, 3);
        }
}

INLINE void transpose16(uint8_t *dst, const uint8_t *const row[16], size_t offset) {
    for (int h = 0; h < 4; h++, row += 4, dst += 16) {
        uint32x4_t z[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) z[i] = vreinterpretq_u32_u8(vld1q_u8(row[i] + offset));
        uint64x2_t a = vreinterpretq_u64_u32(vtrn1q_u32(z[0], z[1])), b = vreinterpretq_u64_u32(vtrn2q_u32(z[0], z[1]));
        uint64x2_t c = vreinterpretq_u64_u32(vtrn1q_u32(z[2], z[3])), d = vreinterpretq_u64_u32(vtrn2q_u32(z[2], z[3]));
        vst1q_u8(dst, vreinterpretq_u8_u64(vtrn1q_u64(a, c)));
        vst1q_u8(dst + 64, vreinterpretq_u8_u64(vtrn1q_u64(b, d)));
        vst1q_u8(dst + 128, vreinterpretq_u8_u64(vtrn2q_u64(a, c)));
        vst1q_u8(dst + 192, vreinterpretq_u8_u64(vtrn2q_u64(b, d)));
    }
}

/* 128 times a byte and another one. */
#define QUERY_MOST 16256
INLINE void query_put(void *dst, const int32_t number[32]) {
    int8_t *upper = dst, *lower = upper + 32;
    for (int i = 0; i < 32; i++) {
        upper[i] = (int8_t)((number[i] + 64) >> 7);
        lower[i] = (int8_t)(number[i] - upper[i] * 128);
    }
}
INLINE void query_dots(vi *sum, const vi *w, const int8_t *x, int count) {
    vi part[2 * (TILE_STEP / 2)];
#pragma GCC unroll 8
    for (int t = 0; t < 2 * count; t++) part[t] = vdupq_n_s32(0);
    dots(part, w, x, 8, 8, 2 * count);
#pragma GCC unroll 4
    for (int t = 0; t < count; t++) sum[t] = vaddq_s32(sum[t], vaddq_s32(vshlq_n_s32(part[2 * t], 7), part[2 * t + 1]));
}

INLINE float quantize32(int8_t *q, const float *x, int32_t minus_sum[2]) {
    vf largest = vdupq_n_f32(0);
    for (int i = 0; i < 8; i++) largest = vmaxq_f32(largest, vabsq_f32(vld1q_f32(x + 4 * i)));
    const float most = vmaxvq_f32(largest); /* not a number when one is */
    if (!(most < INFINITY)) {
        memset(q, 0, 32);
        minus_sum[0] = minus_sum[1] = 0;
        return NAN;
    }
    const vf inverse = vdupq_n_f32(most > 0 ? 127 / most : 0);
    for (int half = 0; half < 2; half++) {
        vi n[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) n[i] = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x + 16 * half + 4 * i), inverse));
        int16x8_t low = vcombine_s16(vqmovn_s32(n[0]), vqmovn_s32(n[1])), high = vcombine_s16(vqmovn_s32(n[2]), vqmovn_s32(n[3]));
        vst1q_s8(q + 16 * half, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
        minus_sum[half] = -vaddvq_s32(vaddq_s32(vaddq_s32(n[0], n[1]), vaddq_s32(n[2], n[3])));
    }
    return most / 127;
}

#endif
