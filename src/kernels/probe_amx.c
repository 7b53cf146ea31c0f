/* probe_amx.c: probes of the tile unit. Two by two tiles of sums, as a product kernel holds them: four products per round from four tiles that
 * were loaded once, so nothing but the unit itself limits the speed. */
#include <immintrin.h>
#include <string.h>

#include "kernels/probe.h"

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Eight tiles of 16 rows and 64 bytes. */
static void configure(void) {
    _Alignas(64) tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) c.row_bytes[i] = 64, c.rows[i] = 16;
    /* The compiler believes that only the first bytes are read and drops the stores to the rest: the barrier keeps them. */
    __asm__ volatile("" : : "r"(&c), "m"(c) : "memory");
    _tile_loadconfig(&c);
}

static void load_factors(const void *tile) {
    _tile_loadd(4, tile, 64);
    _tile_loadd(5, tile, 64);
    _tile_loadd(6, tile, 64);
    _tile_loadd(7, tile, 64);
}

static void zero_sums(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

static void store_sums(void *out) {
    _tile_stored(0, out, 64);
    _tile_stored(1, (char *)out + 1024, 64);
    _tile_stored(2, (char *)out + 2048, 64);
    _tile_stored(3, (char *)out + 3072, 64);
}

double kern_probe_int8_amx(int64_t rounds, double *proof) {
    _Alignas(64) int8_t ones[1024];
    _Alignas(64) int32_t sums[1024];
    memset(ones, 1, sizeof ones);
    const int64_t empty_after = 1 << 20; /* 64 per round and sum: far from overflow */
    double total = 0;
    configure();
    load_factors(ones);
    for (int64_t at = 0; at < rounds; at += empty_after) {
        int64_t n = rounds - at < empty_after ? rounds - at : empty_after;
        zero_sums();
        for (int64_t i = 0; i < n; i++) {
            _tile_dpbssd(0, 4, 6);
            _tile_dpbssd(1, 4, 7);
            _tile_dpbssd(2, 5, 6);
            _tile_dpbssd(3, 5, 7);
        }
        store_sums(sums);
        for (int i = 0; i < 1024; i++) total += sums[i];
    }
    _tile_release();
    *proof = total;
    return (double)rounds * 4 * 16 * 16 * 64 * 2;
}

double kern_probe_bf16_amx(int64_t rounds, double *proof) {
    _Alignas(64) uint16_t ones[512];
    _Alignas(64) float sums[1024];
    for (int i = 0; i < 512; i++) ones[i] = 0x3F80; /* 1.0 */
    const int64_t empty_after = 1 << 18; /* 32 per round and sum: exact below 2^24 */
    double total = 0;
    configure();
    load_factors(ones);
    for (int64_t at = 0; at < rounds; at += empty_after) {
        int64_t n = rounds - at < empty_after ? rounds - at : empty_after;
        zero_sums();
        for (int64_t i = 0; i < n; i++) {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        store_sums(sums);
        for (int i = 0; i < 1024; i++) total += (double)sums[i];
    }
    _tile_release();
    *proof = total;
    return (double)rounds * 4 * 16 * 16 * 32 * 2;
}
