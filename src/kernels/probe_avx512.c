/* probe_avx512.c: probes with 512-bit vectors, with the byte and bf16 dot products that come with them. */
#include <immintrin.h>

#include "kernels/probe.h"

#define CHAINS 16
/* The compiler may not assume anything of x from here on: not that it equals another sum, nor that it is still the same factor. */
#define APART(x) __asm__ volatile("" : "+v"(x))

uint64_t kern_probe_read_avx512(const void *data, size_t bytes) {
    const char *p = data;
    __m512i sums[8];
    for (int j = 0; j < 8; j++) sums[j] = _mm512_setzero_si512();
    for (size_t i = 0; i < bytes; i += 512) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512(p + i + 64 * j));
    }
    for (int j = 1; j < 8; j++) sums[0] = _mm512_xor_si512(sums[0], sums[j]);
    uint64_t words[8], all = 0;
    _mm512_storeu_si512(words, sums[0]);
    for (int j = 0; j < 8; j++) all ^= words[j];
    return all;
}

static double sum_floats(const __m512 *sums) {
    double total = 0;
    for (int j = 0; j < CHAINS; j++) {
        float lanes[16];
        _mm512_storeu_ps(lanes, sums[j]);
        for (int l = 0; l < 16; l++) total += (double)lanes[l];
    }
    return total;
}

double kern_probe_f32_avx512(int64_t rounds, double *proof) {
    __m512 a = _mm512_set1_ps(1), b = _mm512_set1_ps(2);
    const int64_t empty_after = 1 << 20; /* float sums stay exact below 2^24 */
    double total = 0;
    for (int64_t at = 0; at < rounds; at += empty_after) {
        int64_t n = rounds - at < empty_after ? rounds - at : empty_after;
        __m512 sums[CHAINS];
        for (int j = 0; j < CHAINS; j++) {
            sums[j] = _mm512_setzero_ps();
            APART(sums[j]);
        }
        for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 16
            for (int j = 0; j < CHAINS; j++) sums[j] = _mm512_fmadd_ps(a, b, sums[j]);
            APART(a);
            APART(b);
        }
        total += sum_floats(sums);
    }
    *proof = total;
    return (double)rounds * CHAINS * 16 * 2;
}

double kern_probe_bf16_avx512(int64_t rounds, double *proof) {
    /* 1.0 in bf16 is 0x3F80; every lane adds two products of one and one */
    __m512i a = _mm512_set1_epi16(0x3F80), b = _mm512_set1_epi16(0x3F80);
    const int64_t empty_after = 1 << 20;
    double total = 0;
    for (int64_t at = 0; at < rounds; at += empty_after) {
        int64_t n = rounds - at < empty_after ? rounds - at : empty_after;
        __m512 sums[CHAINS];
        for (int j = 0; j < CHAINS; j++) {
            sums[j] = _mm512_setzero_ps();
            APART(sums[j]);
        }
        for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 16
            for (int j = 0; j < CHAINS; j++) sums[j] = _mm512_dpbf16_ps(sums[j], (__m512bh)a, (__m512bh)b);
            APART(a);
            APART(b);
        }
        total += sum_floats(sums);
    }
    *proof = total;
    return (double)rounds * CHAINS * 32 * 2;
}

double kern_probe_int8_avx512(int64_t rounds, double *proof) {
    __m512i a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(1);
    const int64_t empty_after = 1 << 24;
    double total = 0;
    for (int64_t at = 0; at < rounds; at += empty_after) {
        int64_t n = rounds - at < empty_after ? rounds - at : empty_after;
        __m512i sums[CHAINS];
        for (int j = 0; j < CHAINS; j++) {
            sums[j] = _mm512_setzero_si512();
            APART(sums[j]);
        }
        for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 16
            for (int j = 0; j < CHAINS; j++) sums[j] = _mm512_dpbusd_epi32(sums[j], a, b);
            APART(a);
            APART(b);
        }
        for (int j = 0; j < CHAINS; j++) {
            int32_t lanes[16];
            _mm512_storeu_si512(lanes, sums[j]);
            for (int l = 0; l < 16; l++) total += lanes[l];
        }
    }
    *proof = total;
    return (double)rounds * CHAINS * 64 * 2;
}
