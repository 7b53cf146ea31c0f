/* Sessions: what append, rewind and logits promise, on a model made up here. */
#include "tools/support.h"

#include <math.h>

#include "unit/tiny_model.h"

static hearth_engine *open_tiny(const tiny *m, const char *cpu) {
    err e = {0};
    hearth_engine_options o = hearth_engine_defaults();
    o.cpu = cpu;
    o.threads = 2;
    hearth_engine *en = hearth_engine_open(write_tiny(m, false, NULL), &o, &e);
    if (!en) fail_msg("%s", e.text);
    return en;
}

static hearth_session *new_session(hearth_engine *en) {
    err e = {0};
    hearth_session *s = hearth_session_new(en, &e);
    if (!s) fail_msg("%s", e.text);
    return s;
}

static void append(hearth_session *s, const int32_t *ids, size_t n) {
    err e = {0};
    if (!hearth_session_append(s, ids, n, &e)) fail_msg("%s", e.text);
}

/* Logits of a fresh session over the same tokens, to be freed. */
static float *fresh_logits(hearth_engine *en, const int32_t *ids, size_t n) {
    hearth_session *s = new_session(en);
    append(s, ids, n);
    float *copy = malloc(VOCAB * sizeof *copy);
    memcpy(copy, hearth_session_logits(s), VOCAB * sizeof *copy);
    hearth_session_free(s);
    return copy;
}

static void expect_fresh(hearth_engine *en, hearth_session *s, const char *what) {
    size_t n = hearth_session_length(s);
    float *want = fresh_logits(en, hearth_session_tokens(s), n);
    const float *got = hearth_session_logits(s);
    assert_non_null(got);
    if (memcmp(want, got, VOCAB * sizeof *want) != 0) fail_msg("%s: the logits after %zu tokens are not those of a fresh session", what, n);
    free(want);
}

static const int32_t ids[24] = {1, 80, 90, 100, 5, 77, 66, 55, 44, 33, 22, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24};

static void rewinding_is_as_if_the_rest_had_not_been(void **state) {
    (void)state;
    tiny m = make_llama();
    hearth_engine *en = open_tiny(&m, "ref");
    hearth_session *s = new_session(en);
    assert_null(hearth_session_logits(s));
    append(s, ids, 20);
    err e = {0};
    assert_true(hearth_session_rewind(s, 12, &e));
    assert_int_equal(hearth_session_length(s), 12);
    expect_fresh(en, s, "rewound");
    append(s, ids + 3, 5);
    expect_fresh(en, s, "rewound and gone on");
    assert_false(hearth_session_rewind(s, 18, &e));
    assert_true(hearth_session_rewind(s, 0, &e));
    assert_null(hearth_session_logits(s));
    append(s, ids, 2);
    expect_fresh(en, s, "begun anew");
    hearth_session_free(s);
    hearth_engine_close(en);
}

static void failed_appends_change_nothing(void **state) {
    (void)state;
    tiny m = make_llama();
    hearth_engine *en = open_tiny(&m, "ref");
    hearth_session *s = new_session(en);
    append(s, ids, 10);
    err e = {0};
    const int32_t wrong[2] = {5, VOCAB};
    assert_false(hearth_session_append(s, wrong, 2, &e));
    assert_non_null(strstr(e.text, "not one of"));
    int32_t many[64] = {0};
    assert_false(hearth_session_append(s, many, 64, &e)); /* the context is 64 */
    assert_int_equal(e.code, HEARTH_LIMIT);
    assert_int_equal(hearth_session_length(s), 10);
    expect_fresh(en, s, "after failures");
    for (long n = 1;; n++) {
        err_clear(&e);
        mem_fail_nth(n);
        bool ok = hearth_session_append(s, ids, 3, &e);
        mem_fail_nth(0);
        if (ok) break;
        assert_int_equal(e.code, HEARTH_MEMORY);
        assert_int_equal(hearth_session_length(s), 10);
    }
    expect_fresh(en, s, "after memory ran out");
    hearth_session_free(s);
    hearth_engine_close(en);
}

/* A model with two sets of rotation factors changes to the long ones when the conversation outgrows the original context, and back. */
static void outgrowing_the_original_context(void **state) {
    (void)state;
    tiny m = make_llama();
    for (int i = 0; i < m.n_keys; i++)
        if (strstr(m.keys[i].name, "rope.scaling.factor")) m.keys[i].number = 1;
    number(&m, "llama", "rope.scaling.original_context_length", GGUF_U32, 8);
    matrix(&m, "rope_factors_short.weight", QUANT_F32, 4, 1, 1);
    matrix(&m, "rope_factors_long.weight", QUANT_F32, 4, 1, 1);
    m.seed = 5; /* some factors of these seeds are negative and refused; this one has positive ones */
    hearth_engine_options o = hearth_engine_defaults();
    o.cpu = "ref";
    hearth_engine *en = NULL;
    for (; !en && m.seed < 4096; m.seed++) en = hearth_engine_open(write_tiny(&m, false, NULL), &o, NULL);
    assert_non_null(en);
    hearth_session *s = new_session(en);
    append(s, ids, 6);
    expect_fresh(en, s, "within the original context");
    append(s, ids + 6, 1);
    append(s, ids + 7, 1);
    append(s, ids + 8, 1);
    expect_fresh(en, s, "just beyond it");
    append(s, ids + 9, 5);
    expect_fresh(en, s, "far beyond it");
    assert_true(hearth_session_rewind(s, 5, NULL));
    expect_fresh(en, s, "back within it");
    append(s, ids, 4);
    expect_fresh(en, s, "beyond it again");
    hearth_session_free(s);
    hearth_engine_close(en);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewinding_is_as_if_the_rest_had_not_been),
        cmocka_unit_test(failed_appends_change_nothing),
        cmocka_unit_test(outgrowing_the_original_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
