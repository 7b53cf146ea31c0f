/* probe_avx2.c: probes with 256-bit vectors. Twelve sums in flight hide the latency of the multiplier and leave registers for the factors. */
#include <immintrin.h>

#include "kernels/probe.h"

#define CHAINS 12
/* The compiler may not assume anything of x from here on: not that it equals another sum, nor that it is still the same factor. */
#define APART(x) __asm__ volatile("" : "+x"(x))

uint64_t kern_probe_read_avx2(const void *data, size_t bytes) {
    const __m256i *p = data;
    __m256i sums[8];
    for (int j = 0; j < 8; j++) sums[j] = _mm256_setzero_si256();
    for (size_t i = 0; i < bytes / 32; i += 8)
        for (int j = 0; j < 8; j++) sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256(p + i + j));
    for (int j = 1; j < 8; j++) sums[0] = _mm256_xor_si256(sums[0], sums[j]);
    uint64_t words[4];
    _mm256_storeu_si256((__m256i *)words, sums[0]);
    return words[0] ^ words[1] ^ words[2] ^ words[3];
}

double kern_probe_f32_avx2(int64_t rounds, double *proof) {
    __m256 a = _mm256_set1_ps(1), b = _mm256_set1_ps(2);
    const int64_t empty_after = 1 << 20; /* float sums stay exact below 2^24 */
    double total = 0;
    for (int64_t at = 0; at < rounds; at += empty_after) {
        int64_t n = rounds - at < empty_after ? rounds - at : empty_after;
        __m256 sums[CHAINS];
        for (int j = 0; j < CHAINS; j++) {
            sums[j] = _mm256_setzero_ps();
            APART(sums[j]);
        }
        for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 12
            for (int j = 0; j < CHAINS; j++) sums[j] = _mm256_fmadd_ps(a, b, sums[j]);
            APART(a);
            APART(b);
        }
        for (int j = 0; j < CHAINS; j++) {
            float lanes[8];
            _mm256_storeu_ps(lanes, sums[j]);
            for (int l = 0; l < 8; l++) total += (double)lanes[l];
        }
    }
    *proof = total;
    return (double)rounds * CHAINS * 8 * 2;
}

/* Without VNNI a dot product of bytes is three instructions: pairs to 16 bits, pairs to 32 bits, sum. */
double kern_probe_int8_avx2(int64_t rounds, double *proof) {
    __m256i a = _mm256_set1_epi8(1), b = _mm256_set1_epi8(1);
    __m256i ones = _mm256_set1_epi16(1);
    const int64_t empty_after = 1 << 24;
    double total = 0;
    for (int64_t at = 0; at < rounds; at += empty_after) {
        int64_t n = rounds - at < empty_after ? rounds - at : empty_after;
        __m256i sums[CHAINS];
        for (int j = 0; j < CHAINS; j++) {
            sums[j] = _mm256_setzero_si256();
            APART(sums[j]);
        }
        for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 12
            for (int j = 0; j < CHAINS; j++) {
                APART(a);
                APART(b);
                sums[j] = _mm256_add_epi32(sums[j], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
            }
        }
        for (int j = 0; j < CHAINS; j++) {
            int32_t lanes[8];
            _mm256_storeu_si256((__m256i *)lanes, sums[j]);
            for (int l = 0; l < 8; l++) total += lanes[l];
        }
    }
    *proof = total;
    return (double)rounds * CHAINS * 32 * 2;
}
