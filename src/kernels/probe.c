/* probe.c: the list of probes, and those in plain C. */
#include "kernels/probe.h"

#include <string.h>

#include "kernels/sets.h"

uint64_t kern_probe_read_ref(const void *data, size_t bytes) {
    const uint64_t *p = data;
    uint64_t sums[8] = {0};
    for (size_t i = 0; i < bytes / 8; i += 8)
        for (int j = 0; j < 8; j++) sums[j] ^= p[i + j];
    uint64_t all = 0;
    for (int j = 0; j < 8; j++) all ^= sums[j];
    return all;
}

/* Sums stay exact while they are below 2^24, so a chain is emptied into a double before that. */
enum { CHAINS = 32, EMPTY_AFTER = 1 << 20 };

double kern_probe_f32_ref(int64_t rounds, double *proof) {
    volatile float zero = 0, one = 1, two = 2; /* the compiler must not know them, nor that all sums are the same */
    const float a = one, b = two;
    double total = 0;
    for (int64_t at = 0; at < rounds; at += EMPTY_AFTER) {
        int64_t n = rounds - at < EMPTY_AFTER ? rounds - at : EMPTY_AFTER;
        float sums[CHAINS];
        for (int j = 0; j < CHAINS; j++) sums[j] = zero;
        for (int64_t i = 0; i < n; i++)
            for (int j = 0; j < CHAINS; j++) sums[j] = sums[j] * a + b;
        for (int j = 0; j < CHAINS; j++) total += (double)sums[j];
    }
    *proof = total;
    return (double)rounds * CHAINS * 2;
}

static bool runs_ref(void) { return true; }
static bool runs_avx2(void) { return kern_cpu_get()->avx2; }
static bool runs_avx512(void) { return kern_cpu_get()->avx512; }
static bool runs_amx(void) { return kern_cpu_get()->amx; }
static bool runs_neon(void) { return kern_cpu_get()->neon; }

/* Best set first; a set stands above all that follow it. */
static const struct {
    kern_probe probe;
    bool (*runs)(void);
} table[] = {
    {{"AMX int8", "amx", "op", true, kern_probe_int8_amx, 4.0 * 16 * 16 * 64}, runs_amx},
    {{"AMX bf16", "amx", "flop", true, kern_probe_bf16_amx, 4.0 * 16 * 16 * 32}, runs_amx},
    {{"AVX-512 int8", "avx512", "op", false, kern_probe_int8_avx512, 16.0 * 64}, runs_avx512},
    {{"AVX-512 bf16", "avx512", "flop", false, kern_probe_bf16_avx512, 16.0 * 32}, runs_avx512},
    {{"AVX-512 f32", "avx512", "flop", false, kern_probe_f32_avx512, 16.0 * 16 * 2}, runs_avx512},
    {{"AVX2 int8", "avx2", "op", false, kern_probe_int8_avx2, 12.0 * 32}, runs_avx2},
    {{"AVX2 f32", "avx2", "flop", false, kern_probe_f32_avx2, 12.0 * 8 * 2}, runs_avx2},
    {{"NEON int8", "neon", "op", false, kern_probe_int8_neon, 16.0 * 16}, runs_neon},
    {{"NEON f32", "neon", "flop", false, kern_probe_f32_neon, 16.0 * 4 * 2}, runs_neon},
    {{"plain C f32", "ref", "flop", false, kern_probe_f32_ref, CHAINS * 2.0}, runs_ref},
};

int kern_probes(const char *set, const kern_probe **out, int cap) {
    bool below = !set;
    int n = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const kern_probe *p = &table[i].probe;
        below |= set && strcmp(p->set, set) == 0;
        if (below && n < cap && p->multiply && table[i].runs()) out[n++] = p;
    }
    return n;
}

kern_probe_read *kern_probe_reader(void) {
    if (kern_probe_read_avx512 && runs_avx512()) return kern_probe_read_avx512;
    if (kern_probe_read_avx2 && runs_avx2()) return kern_probe_read_avx2;
    return kern_probe_read_ref;
}
