/* Every set of kernels that this machine runs, against ref on random data. */
#include "tools/support.h"

#include <math.h>

#include "kernels/matmul.h"
#include "tools/kernel_check.h"

static uint64_t seed_of(int a, int b) { return test_seed() * 31 + (uint64_t)a * 1009 + (uint64_t)b; }

static void products_match_ref(void **state) {
    (void)state;
    static const int64_t tokens[] = {1, 3, 8, 13, 22, 135};
    for (int s = 0; kernels_all()[s]; s++) {
        const kernels *k = kernels_all()[s];
        if (!k->usable()) continue;
        for (int type = 0; type < QUANT_TYPE_END; type++) {
            const quant_info *info = quant_find(type);
            if (!info || !info->decode) continue;
            const bool packs = kernels_matmul(k, type)->pack != NULL;
            for (int i = 0; i < (int)(sizeof tokens / sizeof *tokens); i++) {
                const check_case c = {.type = type,
                                      .rows = i & 1 ? 35 : 16,
                                      .cols = info->block == 256 ? 512 : info->block == 1 ? 267 + i : 320,
                                      .n = tokens[i],
                                      .exact = i != 3,
                                      .packed = packs && (i & 2),
                                      .scale = i == 1 ? 0x1p-60f : i == 2 ? 0x1p60f : 0x1p-7f};
                double worst = check_product(k, &c, seed_of(type, i));
                if (!(worst >= 0 && worst <= check_limit(k, &c)))
                    fail_msg("%s %s %ldx%ld n=%ld%s: error %g", k->name, info->name, (long)c.rows, (long)c.cols, (long)c.n,
                             c.packed ? " packed" : "", worst);
            }
        }
    }
}

static void zero_activations_give_zero(void **state) {
    (void)state;
    for (int s = 0; kernels_all()[s]; s++) {
        const kernels *k = kernels_all()[s];
        if (!k->usable()) continue;
        const kern_matmul *m = kernels_matmul(k, QUANT_Q4_K);
        float x[256] = {0}, y[16];
        uint8_t w[16 * 144];
        uint64_t seed = 1;
        check_weights(w, quant_find(QUANT_Q4_K), 16 * 256, &seed);
        void *act = mem_aligned(m->act_bytes(256, 1), 1, NULL);
        m->act(act, x, 256, 256, 1, 0, 1);
        m->rows(y, 16, w, 16, 256, 0, 16, act, 1);
        for (int r = 0; r < 16; r++) assert_true(y[r] == 0);
        mem_free(act);
    }
}

/* ---- attention ---- */

typedef struct att_data {
    kern_attention a;
    float *q, *out;
    int64_t *first, *last;
    float *sink;
    uint8_t *k[64], *v[64];
} att_data;

static void att_make(att_data *d, int n_q, int k_dim, int v_dim, int64_t keys, int type, float cap, bool sink, int64_t window, uint64_t seed) {
    const int block = 32, size = type == QUANT_F32 ? 4 : 2;
    *d = (att_data){0};
    d->q = mem_alloc((size_t)(n_q * (k_dim + 3)), 4, NULL);
    d->out = mem_alloc((size_t)(n_q * (v_dim + 5)), 4, NULL);
    d->first = mem_alloc((size_t)n_q, sizeof *d->first, NULL);
    d->last = mem_alloc((size_t)n_q, sizeof *d->last, NULL);
    d->sink = mem_alloc((size_t)n_q, 4, NULL);
    for (int i = 0; i < n_q * (k_dim + 3); i++) d->q[i] = check_normal(&seed) * 2;
    for (int i = 0; i < n_q * (v_dim + 5); i++) d->out[i] = 777;
    const size_t k_stride = (size_t)(k_dim * size + 16), v_stride = (size_t)(v_dim * size);
    for (int64_t b = 0; b * block < keys; b++) {
        /* Rows that do not exist are not there: a read of them is seen by the address sanitizer, and they hold no number. */
        int64_t rows = keys - b * block < block ? keys - b * block : block;
        size_t kn = (size_t)(rows - 1) * k_stride + (size_t)(k_dim * size), vn = (size_t)rows * v_stride;
        d->k[b] = mem_alloc(kn, 1, NULL), d->v[b] = mem_alloc(vn, 1, NULL);
        for (size_t i = 0; i < kn / (size_t)size; i++) {
            if (size == 4) memcpy(d->k[b] + 4 * i, &(float){check_normal(&seed)}, 4);
            else memcpy(d->k[b] + 2 * i, &(uint16_t){quant_f32_to_f16(check_normal(&seed))}, 2);
        }
        for (size_t i = 0; i < vn / (size_t)size; i++) {
            if (size == 4) memcpy(d->v[b] + 4 * i, &(float){check_normal(&seed)}, 4);
            else memcpy(d->v[b] + 2 * i, &(uint16_t){quant_f32_to_f16(check_normal(&seed))}, 2);
        }
    }
    for (int q = 0; q < n_q; q++) {
        d->last[q] = keys - 1 - (n_q - 1 - q) / 2;
        if (d->last[q] < 0) d->last[q] = 0;
        d->first[q] = window && d->last[q] >= window ? d->last[q] - window + 1 : 0;
        d->sink[q] = check_normal(&seed);
    }
    d->a = (kern_attention){.q = d->q, .ldq = k_dim + 3, .out = d->out, .ldo = v_dim + 5, .n_q = n_q, .first = d->first, .last = d->last,
                            .sink = sink ? d->sink : NULL, .k_dim = k_dim, .v_dim = v_dim, .scale = 1 / sqrtf((float)k_dim), .cap = cap,
                            .kv_type = type, .k = (const uint8_t *const *)d->k, .v = (const uint8_t *const *)d->v, .k_stride = k_stride,
                            .v_stride = v_stride, .block = block};
}

static void att_free(att_data *d) {
    mem_free(d->q), mem_free(d->out), mem_free(d->first), mem_free(d->last), mem_free(d->sink);
    for (int b = 0; b < 64; b++) mem_free(d->k[b]), mem_free(d->v[b]);
}

static void att_run(const kernels *k, att_data *d) {
    d->a.scratch = mem_aligned(kern_attention_scratch(d->a.n_q, d->a.k_dim, d->a.v_dim), 4, NULL);
    k->attention(&d->a);
    mem_free(d->a.scratch);
}

static void attention_case(const kernels *k, int n_q, int k_dim, int v_dim, int64_t keys, int type, float cap, bool sink, int64_t window) {
    att_data d;
    att_make(&d, n_q, k_dim, v_dim, keys, type, cap, sink, window, seed_of(n_q * k_dim, (int)keys));
    const size_t floats = (size_t)(n_q * (v_dim + 5));
    att_run(kernels_find("ref", NULL), &d);
    float *truth = mem_alloc(floats, 4, NULL);
    memcpy(truth, d.out, floats * 4);
    for (size_t i = 0; i < floats; i++) d.out[i] = 777;
    att_run(k, &d);
    /* Values are of size one and the weights sum to one; float sums over the keys and an exponential good to 2e-7 stay within this. */
    for (int q = 0; q < n_q; q++)
        for (int i = 0; i < v_dim + 5; i++) {
            float got = d.out[q * (v_dim + 5) + i], want = truth[q * (v_dim + 5) + i];
            if (i >= v_dim) assert_true(got == 777);
            else if (!(fabsf(got - want) < 2e-5f))
                fail_msg("%s attention n_q=%d k=%d v=%d keys=%ld: %g for %g", k->name, n_q, k_dim, v_dim, (long)keys, (double)got, (double)want);
        }
    /* Any query alone has the same bits. */
    memcpy(truth, d.out, floats * 4);
    kern_attention whole = d.a;
    int q = n_q / 2;
    d.a.n_q = 1, d.a.q += q * whole.ldq, d.a.first += q, d.a.last += q, d.a.out += q * whole.ldo;
    if (d.a.sink) d.a.sink += q;
    att_run(k, &d);
    assert_memory_equal(truth + q * (v_dim + 5), d.out + q * (v_dim + 5), (size_t)v_dim * 4);
    mem_free(truth);
    att_free(&d);
}

static void attention_matches_ref(void **state) {
    (void)state;
    for (int s = 0; kernels_all()[s]; s++) {
        const kernels *k = kernels_all()[s];
        if (!k->usable()) continue;
        for (int type = QUANT_F32; type <= QUANT_F16; type++) {
            attention_case(k, 1, 64, 64, 1, type, 0, false, 0);
            attention_case(k, 4, 128, 128, 200, type, 0, false, 0);
            attention_case(k, 19, 80, 48, 333, type, 0, true, 0);
            attention_case(k, 9, 192, 128, 130, type, 30, false, 50);
            attention_case(k, 3, 20, 13, 77, type, 0, true, 7);
            attention_case(k, 33, 576, 512, 70, type, 0, false, 0);
        }
    }
}

/* ---- along a vector ---- */

static void close_to(const char *what, const kernels *k, const float *got, const float *want, int64_t n, double limit) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= limit * (1e-30 + fabs((double)want[i]))))
            fail_msg("%s %s [%ld of %ld]: %g for %g", k->name, what, (long)i, (long)n, (double)got[i], (double)want[i]);
    assert_true(got[n] == 777);
}

static void vectors_match_ref(void **state) {
    (void)state;
    const kernels *ref = kernels_find("ref", NULL);
    static float a[300], b[300], y[301], z[301];
    static uint16_t h[301], g[301];
    uint64_t seed = seed_of(1, 2);
    for (int s = 0; kernels_all()[s]; s++) {
        const kernels *k = kernels_all()[s];
        if (!k->usable()) continue;
        for (int n = 1; n < 300; n += n < 70 ? 1 : 37) {
            for (int i = 0; i < n; i++) a[i] = check_normal(&seed) * (i % 7 == 3 ? 20 : 1), b[i] = check_normal(&seed);
            y[n] = z[n] = 777;
            k->rms_norm(y, a, b, n, 1e-5f), ref->rms_norm(z, a, b, n, 1e-5f);
            close_to("rms_norm", k, y, z, n, 2e-6);
            k->rms_norm(y, a, NULL, n, 1e-5f), ref->rms_norm(z, a, NULL, n, 1e-5f);
            close_to("rms_norm", k, y, z, n, 2e-6);
            k->silu_mul(y, a, b, n), ref->silu_mul(z, a, b, n);
            close_to("silu_mul", k, y, z, n, 3e-6);
            /* The exponent of a gelu is a rounded float up to 87; its error becomes one of the result, which then is close to zero. */
            k->gelu_mul(y, a, b, n), ref->gelu_mul(z, a, b, n);
            for (int i = 0; i < n; i++)
                if (fabsf(z[i]) < 1e-7f && fabsf(y[i]) < 1e-7f) y[i] = z[i];
            close_to("gelu_mul", k, y, z, n, 3e-5);
            for (int i = 0; i < n; i++) y[i] = z[i] = a[i] + b[i] * 0.5f;
            k->add(y, b, 1.5f, n), ref->add(z, b, 1.5f, n);
            for (int i = 0; i < n; i++)
                if (!(fabsf(y[i] - z[i]) <= 1e-6f * (fabsf(a[i]) + 3 * fabsf(b[i])))) fail_msg("%s add", k->name);
            h[n] = g[n] = 777;
            a[0] = n % 3 ? 1e6f : 3e-7f;
            k->to_f16(h, a, n), ref->to_f16(g, a, n);
            assert_memory_equal(h, g, sizeof *h * (size_t)(n + 1));
            double size = 0;
            for (int i = 0; i < n; i++) size += fabs((double)a[i] * (double)b[i]);
            if (!(fabs((double)k->dot(a, b, n) - (double)ref->dot(a, b, n)) <= 2e-6 * size)) fail_msg("%s dot", k->name);
        }
    }
}

/* ---- on the pool ---- */

static void pool_products_do_not_depend_on_threads(void **state) {
    (void)state;
    enum { rows = 200, cols = 256, n = 21, experts = 5 };
    err e = {0};
    uint64_t seed = seed_of(3, 4);
    const quant_info *info = quant_find(QUANT_Q4_K), *six = quant_find(QUANT_Q6_K);
    uint8_t *w = mem_alloc(experts * rows, 144, &e), *u = mem_alloc(rows, 210, &e);
    check_weights(w, info, experts * rows * cols, &seed);
    check_weights(u, six, rows * cols, &seed);
    static float x[n * cols], one[n * rows], two[n * rows], alone[n * rows], grouped[experts][n * rows];
    for (int i = 0; i < n * cols; i++) x[i] = check_normal(&seed);
    const kernels *k = kernels_find(NULL, &e);
    pool *p1 = pool_new(1, &e), *p3 = pool_new(3, &e);
    kern_scratch s = {0};
    const kern_weight a = {.type = QUANT_Q4_K, .rows = rows, .cols = cols, .data = w}, b = {.type = QUANT_Q6_K, .rows = rows, .cols = cols, .data = u};
    const kern_weight *both[2] = {&a, &b};
    float *ys[2] = {one, two};
    const int64_t ldy[2] = {rows, rows};
    assert_true(kern_mul_many(k, p3, both, 2, x, cols, n, ys, ldy, &s, &e));
    assert_true(kern_mul(k, p1, &a, x, cols, n, alone, rows, &s, &e));
    assert_memory_equal(one, alone, sizeof one);
    assert_true(kern_mul(k, p1, &b, x, cols, n, alone, rows, &s, &e));
    assert_memory_equal(two, alone, sizeof two);

    kern_weight expert[experts];
    kern_group groups[experts];
    int32_t tokens[experts][n];
    for (int i = 0; i < experts; i++) {
        expert[i] = (kern_weight){.type = QUANT_Q4_K, .rows = rows, .cols = cols, .data = w + (size_t)i * rows * 144};
        int count = 0;
        for (int t = n - 1; t >= 0; t--)
            if ((t + i) % experts < i) tokens[i][count++] = t;
        groups[i] = (kern_group){.w = {&expert[i]}, .y = {grouped[i]}, .ldy = {rows}, .count = 1, .x = x, .ldx = cols, .tokens = tokens[i], .n = count};
    }
    assert_int_equal(groups[0].n, 0);
    assert_true(kern_mul_groups(k, p3, groups, experts, &s, &e));
    for (int i = 0; i < experts; i++) {
        assert_true(kern_mul(k, p1, &expert[i], x, cols, n, alone, rows, &s, &e));
        for (int64_t j = 0; j < groups[i].n; j++) assert_memory_equal(grouped[i] + j * rows, alone + tokens[i][j] * rows, rows * sizeof(float));
    }
    const kern_weight integer = {.type = QUANT_I32, .rows = rows, .cols = cols, .data = w};
    assert_false(kern_mul(k, p1, &integer, x, cols, n, alone, rows, &s, &e));
    assert_non_null(strstr(e.text, "I32"));
    kern_scratch_free(&s);
    err none = {0};
    mem_fail_nth(1);
    assert_false(kern_mul(k, p1, &a, x, cols, n, alone, rows, &s, &none));
    mem_fail_nth(0);
    assert_int_equal(none.code, HEARTH_MEMORY);
    kern_scratch_free(&s);
    pool_free(p1), pool_free(p3);
    mem_free(w), mem_free(u);
}

static void names_are_found_or_listed(void **state) {
    (void)state;
    err e = {0};
    assert_string_equal(kernels_find("ref", &e)->name, "ref");
    assert_ptr_equal(kernels_find(NULL, &e), kernels_find("auto", &e));
    assert_null(kernels_find("mmx\n", &e));
    assert_non_null(strstr(e.text, "\"mmx\\x0A\""));
    assert_non_null(strstr(e.text, "ref"));
    for (int i = 0; kernels_all()[i]; i++) {
        err why = {0};
        const kernels *k = kernels_all()[i];
        if (k->usable()) assert_ptr_equal(kernels_find(k->name, &why), k);
        else assert_null(kernels_find(k->name, &why));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_match_ref),
        cmocka_unit_test(zero_activations_give_zero),
        cmocka_unit_test(attention_matches_ref),
        cmocka_unit_test(vectors_match_ref),
        cmocka_unit_test(pool_products_do_not_depend_on_threads),
        cmocka_unit_test(names_are_found_or_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
