/* Rotation frequencies of every scaling, against numbers worked out from the published formulas, and the rotation itself. */
#include "tools/support.h"

#include <math.h>

#include "model/model.h"
#include "quant/quant.h"
#include "unit/gguf_builder.h"

static const arch pairs = {.name = "llama", .rope = ROPE_PAIRS};
static const arch exact_yarn = {.name = "gpt-oss", .traits = ARCH_YARN_EXACT};

static model_params plain(void) {
    return (model_params){.arch = &pairs, .n_rot = 16, .rope_base = 10000, .rope_base_window = 10000, .scaling_factor = 1, .attn_factor = 1,
                          .original_context = 4096, .beta_fast = 32, .beta_slow = 1};
}

/* Loads the rotation of these parameters from a file that holds only the given vectors. */
static bool load(model *m, model_params p, const char *const *names, const float (*values)[8], int n, err *e) {
    builder b = {0};
    add_text(&b, "general.architecture", "llama");
    for (int i = 0; i < n; i++) add_tensor(&b, names[i], QUANT_F32, 8, 1, values[i], sizeof values[i]);
    *m = (model){.params = p, .file = gguf_open(finish_file(&b, "rope.gguf"), e)};
    assert_non_null(m->file);
    return model_load_rope(m, e);
}

static void close_model(model *m) {
    gguf_close((gguf *)m->file);
    model_free(m);
}

static void check(const float *got, const double *want) {
    for (int i = 0; i < 8; i++)
        if (fabs(got[i] - want[i]) > 1e-6 * want[i]) fail_msg("frequency %d is %.9g, not %.9g", i, (double)got[i], want[i]);
}

static const double base[8] = {1, 0.316227766, 0.1, 0.0316227766, 0.01, 0.00316227766, 0.001, 0.000316227766};

static void plain_and_linear(void **state) {
    (void)state;
    err e = {0};
    model m;
    assert_true(load(&m, plain(), NULL, NULL, 0, &e));
    check(m.rope.full, base);
    close_model(&m);
    model_params p = plain();
    p.scaling = SCALING_LINEAR;
    p.scaling_factor = 4;
    p.rope_base_window = 100; /* Gemma's windowed layers: a base of their own, and no scaling */
    assert_true(load(&m, p, NULL, NULL, 0, &e));
    double quarter[8], window[8];
    for (int i = 0; i < 8; i++) quarter[i] = base[i] / 4, window[i] = pow(100, -i / 8.0);
    check(m.rope.full, quarter);
    check(m.rope.window, window);
    close_model(&m);
}

static void yarn(void **state) {
    (void)state;
    static const double rounded[8] = {1, 0.316227766, 0.1, 0.0247052942, 0.005625, 0.00108703295, 0.000125, 0.0000395284708};
    static const double unrounded[8] = {1, 0.316227766, 0.1, 0.0281120808, 0.00598313344, 0.000972857759, 0.000125, 0.0000395284708};
    err e = {0};
    model m;
    model_params p = plain();
    p.scaling = SCALING_YARN;
    p.scaling_factor = 8;
    assert_true(load(&m, p, NULL, NULL, 0, &e));
    check(m.rope.full, rounded);
    check(m.rope.window, rounded);
    close_model(&m);
    p.arch = &exact_yarn;
    assert_true(load(&m, p, NULL, NULL, 0, &e));
    check(m.rope.full, unrounded);
    close_model(&m);
}

static void factors(void **state) {
    (void)state;
    static const float few[2][8] = {{1, 1, 2, 4, 8, 8, 8, 8}, {2, 3, 4, 5, 6, 7, 8, 9}};
    err e = {0};
    model m;
    double want[8], want_long[8];
    for (int i = 0; i < 8; i++) want[i] = base[i] / few[0][i], want_long[i] = base[i] / few[1][i];
    assert_true(load(&m, plain(), (const char *const[]){"rope_freqs.weight"}, few, 1, &e));
    check(m.rope.full, want);
    assert_null(m.rope.full_long);
    close_model(&m);
    assert_true(load(&m, plain(), (const char *const[]){"rope_factors_short.weight", "rope_factors_long.weight"}, few, 2, &e));
    check(m.rope.full, want);
    check(m.rope.full_long, want_long);
    close_model(&m);
    assert_false(load(&m, plain(), (const char *const[]){"rope_factors_long.weight"}, few, 1, &e));
    assert_non_null(strstr(e.text, "only one"));
    close_model(&m);
    static const float zero[1][8] = {{0}};
    err_clear(&e);
    assert_false(load(&m, plain(), (const char *const[]){"rope_freqs.weight"}, zero, 1, &e));
    assert_non_null(strstr(e.text, "not positive"));
    close_model(&m);
}

static void rotation(void **state) {
    (void)state;
    err e = {0};
    model m;
    model_params p = plain();
    p.attn_factor = 2;
    assert_true(load(&m, p, NULL, NULL, 0, &e));
    float c[8], s[8];
    rope_angles(&m, m.rope.full, 3, c, s);
    assert_true(fabs(c[0] - 2 * cos(3)) < 1e-6 && fabs(s[2] - 2 * sin(0.3)) < 1e-6);
    for (int style = 0; style < 2; style++) {
        float head[20], was[20];
        for (int i = 0; i < 20; i++) head[i] = was[i] = (float)(i + 1);
        rope_rotate(style ? ROPE_HALVES : ROPE_PAIRS, head, 16, c, s);
        for (int i = 0; i < 8; i++) {
            int a = style ? i : 2 * i, b = style ? i + 8 : 2 * i + 1;
            assert_true(fabs(head[a] - (was[a] * c[i] - was[b] * s[i])) < 1e-4);
            assert_true(fabs(head[b] - (was[a] * s[i] + was[b] * c[i])) < 1e-4);
        }
        for (int i = 16; i < 20; i++) assert_true(head[i] == was[i]); /* beyond the rotated part nothing moves */
    }
    close_model(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_linear),
        cmocka_unit_test(yarn),
        cmocka_unit_test(factors),
        cmocka_unit_test(rotation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
