/* Checks every usable set of kernels against ref and times it. Self-contained: needs only the rooms base, quant and kernels.
 *
 *   kernels                    check all sets
 *   kernels --bench [SET]      time products of realistic shapes: GB/s of weights read and Gop/s (2 per multiply-add), best of several
 *   kernels --bench SET TYPE   only one type, or "attention"
 *   kernels --threads N        for --bench (default 1) */
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/matmul.h"
#include "tools/kernel_check.h"

static int failures;

static void check_set(const kernels *k) {
    static const int64_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 40, 140};
    for (int type = 0; type < QUANT_TYPE_END; type++) {
        const quant_info *info = quant_find(type);
        if (!info || !info->decode) continue;
        const bool packs = kernels_matmul(k, type)->pack != NULL;
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
            for (int flags = 0; flags < (packs ? 4 : 2); flags++) {
                const check_case c = {.type = type, .rows = 37, .cols = info->block == 256 ? 768 : info->block == 1 ? 333 : 320, .n = tokens[i],
                                      .exact = flags & 1, .packed = flags & 2, .scale = 0.0078125f};
                double worst = check_product(k, &c, (uint64_t)type * 1000 + i);
                if (worst >= 0 && worst <= check_limit(k, &c)) continue;
                failures++;
                printf("WRONG %s %s %ldx%ld n=%ld %s%s: error %g\n", k->name, info->name, (long)c.rows, (long)c.cols, (long)c.n,
                       c.exact ? "exact" : "random", c.packed ? " packed" : "", worst);
            }
    }
    static const int types[] = {QUANT_F32, QUANT_F16, QUANT_Q8_0, QUANT_Q4_0};
    for (int i = 0; i < 16; i++) {
        const check_att a = {.n_q = 1 + 5 * i, .k_dim = i & 2 ? 128 : 72, .v_dim = i & 4 ? 64 : 100, .keys = 30 + 70 * i, .window = i == 3 ? 40 : 0,
                             .cap = i == 5 ? 20 : 0, .sink = i == 6, .k_type = types[i / 4], .v_type = types[i % 4]};
        double worst = check_attention(k, &a, (uint64_t)i);
        if (worst >= 0 && worst <= check_att_limit(k, &a)) continue;
        failures++;
        printf("WRONG %s attention, case %d: error %g\n", k->name, i, worst);
    }
    for (int n = 1; n < 300; n++) {
        const char *wrong = check_vectors(k, n, (uint64_t)n);
        if (!wrong) continue;
        failures++;
        printf("WRONG %s %s, %d numbers\n", k->name, wrong, n);
    }
}

/* One thread is timed by the time it had on a core: other programs then disturb less. */
static double now(const pool *p) {
    if (pool_threads(p) > 1) return clock_seconds();
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void time_product(const kernels *k, pool *p, int type, int64_t rows, int64_t cols, int64_t n, bool packed) {
    const quant_info *info = quant_find(type);
    const kern_matmul *m = kernels_matmul(k, type);
    if (packed && !m->pack) return;
    size_t bytes = quant_bytes(info, (uint64_t)(rows * cols)), held = packed ? m->packed_bytes(rows, cols) : bytes;
    /* For few tokens as many copies as it takes to be larger than the caches. */
    int copies = n <= 8 ? (int)((512u << 20) / held) + 1 : 1;
    uint64_t seed = 1;
    uint8_t *w = mem_aligned(bytes, 1, NULL), *data = mem_reserve(held * (size_t)copies, NULL); /* as the weights of a model are */
    check_weights(w, info, rows * cols, &seed);
    for (int i = 0; i < copies; i++) {
        if (packed) m->pack(data + held * (size_t)i, w, rows, cols, 0, rows);
        else memcpy(data + held * (size_t)i, w, bytes);
    }
    float *x = mem_aligned((size_t)(n * cols), 4, NULL), *y = mem_aligned((size_t)(n * rows), 4, NULL);
    for (int64_t i = 0; i < n * cols; i++) x[i] = check_normal(&seed);
    kern_scratch s = {0};
    double best = 1e9;
    for (int round = 0; round < 7; round++) {
        double start = now(p);
        for (int i = 0; i < copies; i++) {
            const uint8_t *at = data + held * (size_t)i;
            kern_weight weight = {.type = type, .rows = rows, .cols = cols, .data = at, .packed = packed ? at : NULL};
            kern_mul(k, p, &weight, x, cols, n, y, rows, &s, NULL);
        }
        double took = (now(p) - start) / copies;
        if (took < best) best = took;
    }
    printf("%-7s %-7s %5ldx%-5ld n=%-4ld %-6s %8.3f ms %7.1f GB/s %8.1f Gop/s\n", k->name, info->name, (long)rows, (long)cols, (long)n,
           packed ? "packed" : "raw", best * 1e3, (double)held / best * 1e-9, 2.0 * (double)(rows * cols * n) / best * 1e-9);
    fflush(stdout);
    kern_scratch_free(&s);
    mem_reserve_free(data, held * (size_t)copies);
    mem_free(w), mem_free(x), mem_free(y);
}

/* One KV head: GB/s of keys and values read, Gop/s of both products. One thread, whatever --threads says. */
static void time_attention(const kernels *k, pool *p, int n_q, int64_t keys, int type) {
    const check_att c = {.n_q = n_q, .k_dim = 128, .v_dim = 128, .keys = keys, .k_type = type, .v_type = type};
    check_att_data d;
    check_att_make(&d, &c, 1);
    double best = 1e9;
    for (int round = 0; round < 15; round++) {
        double start = now(p);
        k->attention(&d.a);
        double took = now(p) - start;
        if (took < best) best = took;
    }
    check_att_free(&d, &c);
    printf("%-7s attention %s, %d queries, %ld keys of 128: %8.3f ms %7.1f GB/s %8.1f Gop/s\n", k->name, quant_find(type)->name, n_q, (long)keys, best * 1e3,
           (double)keys * 2 * (double)check_row_bytes(type, 128) / best * 1e-9, (double)keys * n_q * 512 / best * 1e-9);
}

static void time_set(const kernels *k, pool *p, const char *only) {
    if (!only || strcmp(only, "attention") == 0) {
        static const int kv_types[] = {QUANT_F16, QUANT_Q8_0, QUANT_Q4_0};
        for (int i = 0; i < 3; i++) {
            time_attention(k, p, 1, 8192, kv_types[i]);
            time_attention(k, p, 1, 262144, kv_types[i]); /* larger than the caches */
            time_attention(k, p, 4, 262144, kv_types[i]);
            time_attention(k, p, 4, 8192, kv_types[i]);
            time_attention(k, p, 8, 8192, kv_types[i]);
            time_attention(k, p, 256, 2048, kv_types[i]);
        }
    }
    static const int types[] = {QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_IQ4_NL,
                                QUANT_IQ4_XS, QUANT_MXFP4, QUANT_Q3_K, QUANT_Q5_0, QUANT_IQ2_XS};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (only && strcmp(only, quant_find(types[i])->name) != 0) continue;
        for (int packed = 0; packed < 2; packed++) {
            time_product(k, p, types[i], 2048, 2048, 1, packed);
            time_product(k, p, types[i], 2048, 2048, 4, packed);
            time_product(k, p, types[i], 2048, 8192, 8, packed);
            time_product(k, p, types[i], 2048, 2048, 512, packed);
        }
    }
}

int main(int argc, char **argv) {
    bool bench = false;
    const char *set = NULL, *type = NULL;
    int threads = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0) bench = true;
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) threads = atoi(argv[++i]);
        else if (!set) set = argv[i];
        else type = argv[i];
    }
    err e = {0};
    pool *p = pool_new(threads, &e);
    if (!p || (set && !kernels_find(set, &e))) {
        fprintf(stderr, "%s\n", e.text);
        return 2;
    }
    for (int i = 0; kernels_all()[i]; i++) {
        const kernels *k = kernels_all()[i];
        if (!k->usable()) printf("%s: not on this machine\n", k->name);
        if (!k->usable() || (set && strcmp(set, k->name) != 0)) continue;
        if (bench) time_set(k, p, type);
        else check_set(k);
    }
    pool_free(p);
    if (!bench) printf(failures ? "%d wrong\n" : "all right\n", failures);
    return failures ? 1 : 0;
}
