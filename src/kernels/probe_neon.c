/* probe_neon.c: probes with 128-bit vectors of ARM, with the byte dot product. Reading memory needs no code of its own: plain C loads vectors too. */
#include <arm_neon.h>

#include "kernels/probe.h"

#define CHAINS 16
/* The compiler may not assume anything of x from here on: not that it equals another sum, nor that it is still the same factor. */
#define APART(x) __asm__ volatile("" : "+w"(x))

double kern_probe_f32_neon(int64_t rounds, double *proof) {
    float32x4_t a = vdupq_n_f32(1), b = vdupq_n_f32(2);
    const int64_t empty_after = 1 << 20; /* float sums stay exact below 2^24 */
    double total = 0;
    for (int64_t at = 0; at < rounds; at += empty_after) {
        int64_t n = rounds - at < empty_after ? rounds - at : empty_after;
        float32x4_t sums[CHAINS];
        for (int j = 0; j < CHAINS; j++) {
            sums[j] = vdupq_n_f32(0);
            APART(sums[j]);
        }
        for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 16
            for (int j = 0; j < CHAINS; j++) sums[j] = vfmaq_f32(sums[j], a, b);
            APART(a);
            APART(b);
        }
        for (int j = 0; j < CHAINS; j++) {
            float lanes[4];
            vst1q_f32(lanes, sums[j]);
            for (int l = 0; l < 4; l++) total += (double)lanes[l];
        }
    }
    *proof = total;
    return (double)rounds * CHAINS * 4 * 2;
}

double kern_probe_int8_neon(int64_t rounds, double *proof) {
    int8x16_t a = vdupq_n_s8(1), b = vdupq_n_s8(1);
    const int64_t empty_after = 1 << 24;
    double total = 0;
    for (int64_t at = 0; at < rounds; at += empty_after) {
        int64_t n = rounds - at < empty_after ? rounds - at : empty_after;
        int32x4_t sums[CHAINS];
        for (int j = 0; j < CHAINS; j++) {
            sums[j] = vdupq_n_s32(0);
            APART(sums[j]);
        }
        for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 16
            for (int j = 0; j < CHAINS; j++) sums[j] = vdotq_s32(sums[j], a, b);
            APART(a);
            APART(b);
        }
        for (int j = 0; j < CHAINS; j++) {
            int32_t lanes[4];
            vst1q_s32(lanes, sums[j]);
            for (int l = 0; l < 4; l++) total += lanes[l];
        }
    }
    *proof = total;
    return (double)rounds * CHAINS * 16 * 2;
}
