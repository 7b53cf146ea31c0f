/* `hearth debug decode` and `hearth debug encode`: whole files out, or one sentence and nothing. */
#include "tools/support.h"

#include <math.h>
#include <unistd.h>

#include "quant/quant.h"

static const char *path(const char *name) {
    static char paths[4][256];
    static int turn;
    char *out = paths[turn++ % 4];
    snprintf(out, sizeof paths[0], "%s/%s", temp_dir(), name);
    return out;
}

static void spew_floats(const char *name, int64_t n) {
    float *x = malloc((size_t)n * sizeof *x);
    uint64_t rng = test_seed();
    for (int64_t i = 0; i < n; i++) x[i] = (float)rng_normal(&rng);
    spew(path(name), x, (size_t)n * sizeof *x);
    free(x);
}

/* Runs `hearth debug FORM TYPE IN OUT`; text gets what it says. */
static int debug(const char *form, const char *type, const char *in, const char *out, char text[1024]) {
    const char *argv[] = {hearth_program(), "debug", form, type, path(in), path(out), NULL};
    buf said = {0};
    const int status = run_program(argv, NULL, 0, &said, &said, 60);
    snprintf(text, 1024, "%s", said.data ? said.data : "");
    buf_free(&said);
    return status;
}

static void refused(const char *form, const char *type, const char *in, const char *why) {
    char text[1024];
    assert_int_equal(debug(form, type, in, "refused", text), 1);
    if (!strstr(text, why)) fail_msg("'%s' does not say '%s'", text, why);
    assert_non_null(strchr(text, '\n'));
    assert_int_equal(strchr(text, '\n')[1], 0); /* one sentence, one line */
    assert_int_not_equal(access(path("refused"), F_OK), 0);
}

/* More than one chunk and a part of one, against the functions themselves. */
static void files_hold_what_the_functions_give(void **state) {
    (void)state;
    const int64_t n = 256 * 600;
    char text[1024];
    spew_floats("in.f32", n);
    buf source = slurp(path("in.f32"));
    float *values = malloc(source.len);
    memcpy(values, source.data, source.len);
    static const char *const types[] = {"Q4_K", "q8_0", "Tq1_0", "bf16", "F32"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const quant_info *q = quant_find_name(types[i]);
        assert_int_equal(debug("encode", types[i], "in.f32", "packed", text), 0);
        assert_string_equal(text, "");
        buf got = slurp(path("packed"));
        void *want = malloc(quant_bytes(q, (uint64_t)n));
        q->encode(want, values, n);
        assert_int_equal(got.len, quant_bytes(q, (uint64_t)n));
        assert_memory_equal(got.data, want, got.len);
        buf_free(&got);
        assert_int_equal(debug("decode", types[i], "packed", "back.f32", text), 0);
        got = slurp(path("back.f32"));
        float *back = malloc(source.len);
        q->decode(back, want, n);
        assert_int_equal(got.len, source.len);
        assert_memory_equal(got.data, back, got.len);
        buf_free(&got);
        free(back);
        free(want);
    }
    free(values);
    buf_free(&source);
}

static void an_empty_file_gives_an_empty_file(void **state) {
    (void)state;
    char text[1024];
    spew(path("empty"), "", 0);
    assert_int_equal(debug("decode", "Q6_K", "empty", "none", text), 0);
    buf b = slurp(path("none"));
    assert_int_equal(b.len, 0);
    buf_free(&b);
}

static void what_cannot_be_done_is_refused_in_words(void **state) {
    (void)state;
    spew_floats("part.f32", 255);
    refused("encode", "Q4_K", "part.f32", "1020 bytes are no whole number of Q4_K blocks");
    refused("decode", "Q4_K", "part.f32", "1020 bytes are no whole number of Q4_K blocks");
    refused("decode", "F16X", "part.f32", "unknown type 'F16X': hearth can decode F32, F16");
    refused("decode", "i32", "part.f32", "cannot decode I32; it can decode F32, F16");
    refused("encode", "IQ1_M", "part.f32", "cannot encode IQ1_M; it can encode F32, F16");
    refused("decode", "Q4_K", "missing", "missing: cannot open");
    refused("decode", "a\nb\x1b[31m", "part.f32", "unknown type 'a\\x0Ab\\x1B[31m'");
    spew(path("odd"), "abc", 3);
    refused("encode", "F16", "odd", "3 bytes are no whole number of F16 blocks");
}

static void numbers_without_a_place_are_refused(void **state) {
    (void)state;
    char text[1024];
    static float x[256 * 300];
    x[256 * 290 + 7] = NAN;
    spew(path("nan.f32"), x, sizeof x);
    refused("encode", "Q4_0", "nan.f32", "element 74247 is not a finite number");
    x[256 * 290 + 7] = -INFINITY;
    spew(path("inf.f32"), x, sizeof x);
    refused("encode", "Q6_K", "inf.f32", "element 74247 is not a finite number");
    assert_int_equal(debug("encode", "F16", "inf.f32", "inf.bin", text), 0);
    buf b = slurp(path("inf.bin"));
    assert_memory_equal(b.data + 2 * 74247, "\x00\xFC", 2);
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_hold_what_the_functions_give),
        cmocka_unit_test(an_empty_file_gives_an_empty_file),
        cmocka_unit_test(what_cannot_be_done_is_refused_in_words),
        cmocka_unit_test(numbers_without_a_place_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
