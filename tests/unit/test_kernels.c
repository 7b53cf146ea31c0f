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

/* Where many tokens are computed in another way, how depends on whether their activations stay near; those above do. */
static void wide_products_match_ref(void **state) {
    (void)state;
    static const int types[] = {QUANT_Q4_K, QUANT_Q6_K, QUANT_F16};
    for (int s = 0; kernels_all()[s]; s++) {
        const kernels *k = kernels_all()[s];
        for (int i = 0; k->usable() && i < 3; i++) {
            if (!kernels_matmul(k, types[i])->many) continue;
            const check_case c = {.type = types[i], .rows = 200, .cols = 4096, .n = 530, .packed = i != 2, .scale = 0x1p-7f};
            double worst = check_product(k, &c, seed_of(types[i], 77));
            if (!(worst >= 0 && worst <= check_limit(k, &c))) fail_msg("%s %s: error %g", k->name, quant_find(types[i])->name, worst);
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
        m->act(act, x, 256, 256, 1, (kern_part){0, 1, 0, 256});
        m->rows(y, 16, w, 16, 256, 0, 16, act, 1);
        for (int r = 0; r < 16; r++) assert_true(y[r] == 0);
        mem_free(act);
    }
}

static void attention_matches_ref(void **state) {
    (void)state;
    static const check_att cases[] = {
        {.n_q = 1, .k_dim = 64, .v_dim = 64, .keys = 1},
        {.n_q = 4, .k_dim = 128, .v_dim = 128, .keys = 200},
        {.n_q = 19, .k_dim = 80, .v_dim = 48, .keys = 333, .sink = true},
        {.n_q = 9, .k_dim = 192, .v_dim = 128, .keys = 130, .cap = 30, .window = 50},
        {.n_q = 3, .k_dim = 20, .v_dim = 13, .keys = 77, .sink = true, .window = 7},
        {.n_q = 33, .k_dim = 576, .v_dim = 512, .keys = 70},
        {.n_q = 77, .k_dim = 64, .v_dim = 64, .keys = 700},
        {.n_q = 50, .k_dim = 40, .v_dim = 24, .keys = 411, .sink = true, .window = 150},
        {.n_q = 64, .k_dim = 128, .v_dim = 72, .keys = 300, .cap = 20, .window = 33},
    };
    static const int types[][2] = {{QUANT_F32, QUANT_F32},   {QUANT_F16, QUANT_F16},  {QUANT_Q8_0, QUANT_Q8_0},
                                   {QUANT_Q4_0, QUANT_Q4_0}, {QUANT_Q8_0, QUANT_Q4_0}, {QUANT_F16, QUANT_Q8_0}};
    enum { N_TYPES = sizeof types / sizeof *types };
    for (int s = 0; kernels_all()[s]; s++) {
        const kernels *k = kernels_all()[s];
        for (int i = 0; k->usable() && i < N_TYPES * (int)(sizeof cases / sizeof *cases); i++) {
            check_att c = cases[i / N_TYPES];
            c.k_type = types[i % N_TYPES][0], c.v_type = types[i % N_TYPES][1];
            double worst = check_attention(k, &c, seed_of(i, 7));
            if (!(worst >= 0 && worst <= check_att_limit(k, &c))) fail_msg("%s attention, case %d: error %g", k->name, i, worst);
        }
    }
}

static void vectors_match_ref(void **state) {
    (void)state;
    for (int s = 0; kernels_all()[s]; s++) {
        const kernels *k = kernels_all()[s];
        for (int n = 1; k->usable() && n < 300; n += n < 70 ? 1 : 37) {
            const char *wrong = check_vectors(k, n, seed_of(n, 9));
            if (wrong) fail_msg("%s %s, %d numbers", k->name, wrong, n);
        }
    }
}

/* ---- on the pool ---- */

typedef struct row_maker {
    float *to;
    const float *from;
    int n;
} row_maker;

static void make_columns(void *context, int64_t t, int64_t first, int64_t n) {
    const row_maker *m = context;
    memcpy(m->to + t * m->n + first, m->from + t * m->n + first, (size_t)n * sizeof(float));
}

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
    assert_true(kern_mul_many(k, p3, both, 2, NULL, NULL, x, cols, n, ys, ldy, &s, &e));
    assert_true(kern_mul(k, p1, &a, x, cols, n, alone, rows, &s, &e));
    assert_memory_equal(one, alone, sizeof one);
    assert_true(kern_mul(k, p1, &b, x, cols, n, alone, rows, &s, &e));
    assert_memory_equal(two, alone, sizeof two);

    /* Activations that are made on the way, for one reader and for two that prepare them differently. */
    static uint16_t halves[rows * cols];
    static float made[n * cols];
    row_maker maker = {.to = made, .from = x, .n = cols};
    const kern_weight c = {.type = QUANT_F16, .rows = rows, .cols = cols, .data = halves}, *apart[2] = {&a, &c};
    for (int count = 1; count <= 2; count++) {
        memset(made, 0, sizeof made);
        assert_true(kern_mul_many(k, p3, apart, count, make_columns, &maker, made, cols, n, ys, ldy, &s, &e));
        assert_true(kern_mul(k, p1, &a, x, cols, n, alone, rows, &s, &e));
        assert_memory_equal(one, alone, sizeof one);
    }

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

/* A weight of numbers by chance, packed where the set packs. */
static kern_weight make_weight(const kernels *k, int type, int64_t rows, int64_t cols, uint64_t *seed) {
    const quant_info *info = quant_find(type);
    const kern_matmul *m = kernels_matmul(k, type);
    uint8_t *data = mem_alloc(quant_bytes(info, (uint64_t)(rows * cols)), 1, NULL);
    check_weights(data, info, rows * cols, seed);
    void *packed = m->pack ? mem_aligned(m->packed_bytes(rows, cols), 1, NULL) : NULL;
    if (packed) m->pack(packed, data, rows, cols, 0, rows);
    return (kern_weight){.type = type, .rows = rows, .cols = cols, .data = data, .packed = packed};
}

static void free_weight(const kern_weight *w) { mem_free((void *)w->data), mem_free((void *)w->packed); }

/* One token's weights are read at two places in turns, a weight with the next of its kind or with its own other half; the bits are those of the rows one after the other. */
static void one_token_has_the_same_bits_in_pairs(void **state) {
    (void)state;
    enum { cols = 512, most = 311 };
    static const struct { int type[3]; int64_t rows[3]; } cases[] = {
        {{QUANT_Q4_K, QUANT_Q4_K, QUANT_Q4_K}, {160, 48, 48}}, {{QUANT_Q4_K, QUANT_Q4_K, QUANT_Q6_K}, {311, 87, 87}}, {{QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0}, {96, 96, 16}},
        {{QUANT_F16, QUANT_F16, QUANT_BF16}, {31, 31, 33}},    {{QUANT_IQ4_XS, QUANT_Q2_K, QUANT_Q2_K}, {5, 240, 240}},
    };
    err e = {0};
    uint64_t seed = seed_of(7, 8);
    static float x[cols], in_pairs[3][most], apart[most];
    for (int i = 0; i < cols; i++) x[i] = check_normal(&seed);
    kern_scratch s = {0};
    for (int set = 0; kernels_all()[set]; set++) {
        const kernels *k = kernels_all()[set];
        for (size_t i = 0; k->usable() && i < 3 * sizeof cases / sizeof *cases; i++) {
            const int threads = 1 + (int)i % 3;
            pool *p = pool_new(threads, &e);
            kern_weight w[3];
            const kern_weight *all[3];
            float *y[3];
            int64_t ldy[3];
            for (int j = 0; j < 3; j++) {
                w[j] = make_weight(k, cases[i / 3].type[j], cases[i / 3].rows[j], cols, &seed);
                all[j] = &w[j], y[j] = in_pairs[j], ldy[j] = w[j].rows;
            }
            assert_true(kern_mul_many(k, p, all, 3, NULL, NULL, x, cols, 1, y, ldy, &s, &e));
            for (int j = 0; j < 3; j++) {
                kern_weight raw = w[j];
                raw.packed = NULL;
                assert_true(kern_mul(k, p, &raw, x, cols, 1, apart, raw.rows, &s, &e));
                if (memcmp(in_pairs[j], apart, (size_t)raw.rows * sizeof(float)) != 0)
                    fail_msg("%s, %s of %ld rows, %d threads: other bits", k->name, quant_find(raw.type)->name, (long)raw.rows, threads);
                free_weight(&w[j]);
            }
            pool_free(p);
        }
    }
    kern_scratch_free(&s);
}

typedef struct joiner {
    const kernels *k;
    const float *bias; /* columns differ, so that it matters which they are */
} joiner;

static void join_columns(void *context, float *gate, float *up, int64_t first, int64_t n) {
    const joiner *j = context;
    j->k->add(up, j->bias + first, 1, n);
    j->k->silu_mul(gate, gate, up, n);
}

/* What is joined while it is near has the bits of three products one after the other. */
static void gated_products_are_as_three(void **state) {
    (void)state;
    enum { width = 256, wide = 2 * KERN_COLUMNS + 64, most = 70 };
    static const int types[][3] = {{QUANT_Q4_K, QUANT_Q6_K, QUANT_Q8_0}, {QUANT_Q4_0, QUANT_F16, QUANT_BF16}, {QUANT_Q4_K, QUANT_Q4_K, QUANT_Q8_0}};
    static float x[most * width], bias[wide], gate[most * wide], up[most * wide], apart[most * width], joined[most * width];
    err e = {0};
    uint64_t seed = seed_of(5, 6);
    for (int i = 0; i < most * width; i++) x[i] = check_normal(&seed);
    for (int i = 0; i < wide; i++) bias[i] = check_normal(&seed);
    pool *p = pool_new(3, &e);
    kern_scratch s = {0};
    for (int set = 0; kernels_all()[set]; set++) {
        const kernels *k = kernels_all()[set];
        if (!k->usable()) continue;
        for (int i = 0; i < 9; i++) {
            const int *type = types[i / 3];
            const int64_t n = (const int64_t[]){1, 5, most}[i % 3];
            kern_weight w[3];
            for (int j = 0; j < 3; j++) w[j] = make_weight(k, type[j], j < 2 ? wide : width, j < 2 ? width : wide, &seed);
            joiner j = {.k = k, .bias = bias};
            /* in two parts, after one that has no tokens */
            const kern_gated g = {.gate = &w[0], .up = &w[1], .down = &w[2], .join = join_columns, .context = &j, .x = x, .ldx = width, .n = n, .y = joined, .ldy = width};
            int32_t tokens[most];
            for (int32_t t = 0; t < most; t++) tokens[t] = t;
            kern_gated parts[3] = {{.n = 0}, g, g};
            parts[1].n = n / 3;
            parts[2].n = n - n / 3, parts[2].tokens = tokens + n / 3, parts[2].y = joined + n / 3 * width;
            const kern_matmul *many = kernels_matmul(k, type[0]);
            const bool whole = n == 1 || (many->many && n >= many->many); /* with fewer tokens it would be computed in another way */
            assert_true(kern_mul_gated(k, p, whole ? &g : parts, whole ? 1 : 3, &s, &e));
            assert_true(kern_mul(k, p, &w[0], x, width, n, gate, wide, &s, &e));
            assert_true(kern_mul(k, p, &w[1], x, width, n, up, wide, &s, &e));
            for (int64_t t = 0; t < n; t++) join_columns(&j, gate + t * wide, up + t * wide, 0, wide);
            assert_true(kern_mul(k, p, &w[2], gate, wide, n, apart, width, &s, &e));
            if (memcmp(joined, apart, (size_t)(n * width) * sizeof(float)) != 0) fail_msg("%s, %ld tokens, down %s: other bits", k->name, (long)n, quant_find(type[2])->name);
            memset(joined, 0, sizeof joined);
            for (int part = 0; part < KERN_GATED_PARTS; part++) assert_true(kern_mul_gated_part(k, p, whole ? &g : parts, whole ? 1 : 3, part, &s, &e));
            if (memcmp(joined, apart, (size_t)(n * width) * sizeof(float)) != 0) fail_msg("%s, %ld tokens, down %s, part by part: other bits", k->name, (long)n, quant_find(type[2])->name);
            for (int m = 0; m < 3; m++) free_weight(&w[m]);
        }
    }
    kern_scratch_free(&s);
    pool_free(p);
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

/* A model whose numbers overflow must show it, not answer from what the quantization made of them. */
static void what_is_not_finite_stays_so(void **state) {
    (void)state;
    static const int types[] = {QUANT_F32, QUANT_F16, QUANT_Q8_0, QUANT_Q4_0, QUANT_Q4_K, QUANT_Q6_K, QUANT_IQ4_XS, QUANT_MXFP4, QUANT_IQ2_S};
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    enum { ROWS = 16, COLS = 256 };
    err e = {0};
    pool *p = pool_new(1, &e);
    kern_scratch scratch = {0};
    for (int s = 0; kernels_all()[s]; s++) {
        const kernels *k = kernels_all()[s];
        for (size_t i = 0; k->usable() && i < sizeof types / sizeof *types; i++) {
            uint64_t seed = seed_of(types[i], 77);
            uint8_t data[ROWS * COLS * 4];
            for (size_t b = 0; b < sizeof data; b++) data[b] = (uint8_t)(rng_next(&seed) & 0x3F); /* scales stay finite */
            kern_weight w = {.type = types[i], .rows = ROWS, .cols = COLS, .data = data};
            for (int o = 0; o < 3; o++) {
                float x[COLS], y[ROWS];
                for (int c = 0; c < COLS; c++) x[c] = 1;
                x[37 * (o + 1)] = odd[o];
                assert_true(kern_mul(k, p, &w, x, COLS, 1, y, ROWS, &scratch, &e));
                for (int r = 0; r < ROWS; r++)
                    if (isfinite(y[r])) fail_msg("%s: %s: %g among the activations gives %g", k->name, quant_find(types[i])->name, (double)odd[o], (double)y[r]);
            }
        }
    }
    kern_scratch_free(&scratch);
    pool_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_match_ref),
        cmocka_unit_test(wide_products_match_ref),
        cmocka_unit_test(zero_activations_give_zero),
        cmocka_unit_test(what_is_not_finite_stays_so),
        cmocka_unit_test(attention_matches_ref),
        cmocka_unit_test(vectors_match_ref),
        cmocka_unit_test(pool_products_do_not_depend_on_threads),
        cmocka_unit_test(one_token_has_the_same_bits_in_pairs),
        cmocka_unit_test(gated_products_are_as_three),
        cmocka_unit_test(names_are_found_or_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
