/* Whole models that are wrong in one place: every metadata key absent, absurd or of another type, every tensor absent, misshapen or
 * of another type, weights full of noise. hearth refuses in one sentence, or runs; it never crashes, hangs or asks for absurd memory. */
#include "tools/support.h"

#include <math.h>
#include <sys/resource.h>

#include "unit/tiny_model.h"

/* Writes the model, opens it, and when it opens computes a few tokens. Returns whether it ran. */
static bool try_model(const tiny *m, bool noise, const char *what) {
    bool noisy;
    const char *path = write_tiny(m, noise, &noisy);
    err e = {0};
    hearth_engine_options o = hearth_engine_defaults();
    o.threads = 2;
    hearth_engine *en = hearth_engine_open(path, &o, &e);
    if (!en) {
        if (e.code == HEARTH_OK || strlen(e.text) < 10) fail_msg("%s: refused without a reason", what);
        return false;
    }
    hearth_session *s = hearth_session_new(en, &e);
    if (!s) fail_msg("%s: %s", what, e.text);
    const int32_t ids[] = {1, 80, 90, 100, 5};
    bool ok = hearth_session_append(s, ids, 5, &e) && hearth_session_append(s, ids + 1, 1, &e);
    if (ok && !noisy)
        for (int i = 0; i < VOCAB; i++) assert_true(isfinite(hearth_session_logits(s)[i]));
    hearth_session_free(s);
    hearth_engine_close(en);
    return ok;
}

static void bad_keys(tiny base) {
    static const double absurd[] = {0, 1, 3, 255, 65537, 2147483647.0, 4294967295.0, -1, 1e30, 1e-30};
    char what[128];
    for (int k = 1; k < base.n_keys; k++) {
        for (size_t v = 0; v < sizeof absurd / sizeof *absurd; v++) {
            tiny m = base;
            m.keys[k].number = absurd[v];
            if (absurd[v] > 4e9) m.keys[k].type = GGUF_U64;
            snprintf(what, sizeof what, "%s = %g", m.keys[k].name, absurd[v]);
            try_model(&m, false, what);
        }
        tiny m = base;
        m.keys[k] = (key){.type = GGUF_STRING, .text = "many"};
        strcpy(m.keys[k].name, base.keys[k].name);
        snprintf(what, sizeof what, "%s is text", base.keys[k].name);
        if (try_model(&m, false, what)) fail_msg("%s: accepted", what);
        m = base;
        m.keys[k].type = GGUF_F32;
        m.keys[k].number = NAN;
        snprintf(what, sizeof what, "%s is not a number", base.keys[k].name);
        if (try_model(&m, false, what)) fail_msg("%s: accepted", what);
        m = base;
        memmove(&m.keys[k], &m.keys[k + 1], sizeof(key) * (size_t)(base.n_keys - k - 1));
        m.n_keys--;
        snprintf(what, sizeof what, "%s is missing", base.keys[k].name);
        try_model(&m, false, what);
    }
}

static void bad_tensors(tiny base) {
    char what[128];
    for (int i = 0; i < base.n_tensors; i++) {
        const char *name = base.tensors[i].name;
        bool optional = strstr(name, "exp_probs_b") != NULL;
        tiny m = base;
        memmove(&m.tensors[i], &m.tensors[i + 1], sizeof(tensor) * (size_t)(base.n_tensors - i - 1));
        m.n_tensors--;
        snprintf(what, sizeof what, "%s is missing", name);
        if (try_model(&m, false, what) != optional) fail_msg("%s: %s", what, optional ? "refused" : "accepted");
        for (int d = 0; d < 3; d++) {
            const uint64_t sizes[] = {base.tensors[i].ne[d] + 32, base.tensors[i].ne[d] * 2, 1};
            for (int k = 0; k < 3; k++) {
                m = base;
                m.tensors[i].ne[d] = sizes[k];
                if (d >= m.tensors[i].n_dims) m.tensors[i].n_dims = d + 1;
                if (memcmp(m.tensors[i].ne, base.tensors[i].ne, sizeof m.tensors[i].ne) == 0) continue;
                snprintf(what, sizeof what, "%s has dimension %d of size %d", name, d, (int)sizes[k]);
                /* An embedding may have more rows than there are tokens: many are padded. */
                bool padded = strcmp(name, "token_embd.weight") == 0 && d == 1 && sizes[k] > VOCAB;
                if (try_model(&m, false, what) != padded) fail_msg("%s: %s", what, padded ? "refused" : "accepted");
            }
        }
        static const int types[] = {QUANT_I8, QUANT_I32, QUANT_I64, QUANT_F64, QUANT_Q4_K, QUANT_IQ1_M, QUANT_Q4_1, QUANT_F32};
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            m = base;
            m.tensors[i].type = types[k];
            snprintf(what, sizeof what, "%s has type %s", name, quant_find(types[k])->name);
            bool ran = try_model(&m, false, what);
            if (ran && !quant_find(types[k])->decode) fail_msg("%s: accepted", what);
        }
    }
    tiny m = base;
    matrix(&m, "blk.0.surprise.weight", QUANT_F32, EMBD, 2, 1);
    if (try_model(&m, false, "an unknown tensor")) fail_msg("an unknown tensor: accepted");
}

static void limit_memory(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* Every one of these files is under a megabyte: nothing here may ask for gigabytes. */
    struct rlimit r = {.rlim_cur = (rlim_t)2 << 30, .rlim_max = (rlim_t)2 << 30};
    setrlimit(RLIMIT_AS, &r);
#endif
}

static void llama_with_bad_keys(void **state) { (void)state, bad_keys(make_llama()); }
static void llama_with_bad_tensors(void **state) { (void)state, bad_tensors(make_llama()); }
static void deepseek_with_bad_keys(void **state) { (void)state, bad_keys(make_deepseek()); }
static void deepseek_with_bad_tensors(void **state) { (void)state, bad_tensors(make_deepseek()); }

static void good_models_run(void **state) {
    (void)state;
    tiny a = make_llama(), b = make_deepseek();
    assert_true(try_model(&a, false, "llama"));
    assert_true(try_model(&b, false, "deepseek2"));
}

static void noise_in_the_weights_is_survived(void **state) {
    (void)state;
    uint64_t seed = test_seed();
    for (int i = 0; i < 20; i++) {
        tiny a = make_llama(), b = make_deepseek();
        a.seed = rng_next(&seed);
        b.seed = rng_next(&seed);
        try_model(&a, true, "noise in llama");
        try_model(&b, true, "noise in deepseek2");
    }
}

int main(void) {
    limit_memory();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_models_run),          cmocka_unit_test(llama_with_bad_keys),       cmocka_unit_test(llama_with_bad_tensors),
        cmocka_unit_test(deepseek_with_bad_keys),   cmocka_unit_test(deepseek_with_bad_tensors), cmocka_unit_test(noise_in_the_weights_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
