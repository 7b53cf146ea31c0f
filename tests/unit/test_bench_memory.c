/* `hearth bench --memory` as scripts see it, on a model that is made here. Nothing depends on how fast anything is. */
#include "tools/support.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>

#include "unit/tiny_model.h"

static const char *model; /* made once */
static char folder[600];
static buf out, errors;

static int make_model(void **state) {
    (void)state;
    tiny m = make_llama();
    for (int i = 0; i < m.n_keys; i++)
        if (strstr(m.keys[i].name, "context_length")) m.keys[i].number = 1000;
    model = write_tiny(&m, false, NULL);
    snprintf(folder, sizeof folder, "%s/store", temp_dir());
    return 0;
}

static int hearth_bench(const char *const *args) {
    const char *argv[40] = {hearth_program(), "bench"};
    int n = 2;
    for (; args[n - 2]; n++) argv[n] = args[n - 2];
    out.len = errors.len = 0;
    int status = run_program(argv, NULL, 0, &out, &errors, 120);
    buf_add(&out, "", 0, NULL);
    buf_add(&errors, "", 0, NULL);
    return status;
}
#define BENCH(...) hearth_bench((const char *[]){__VA_ARGS__, NULL})
#define QUICK "--memory", "--cpu", "ref", "--threads", "1", "--cache", "off", "--store-dir", folder

static void must_hold(const buf *b, const char *text) {
    if (!strstr(b->data, text)) fail_msg("'%s' is not in '%s'", text, b->data);
}

static double positive(const json_t *o, const char *name) {
    double v = json_number_value(json_object_get(o, name));
    if (!(v > 0) || !isfinite(v)) fail_msg("%s is %g in '%s'", name, v, out.data);
    return v;
}

/* What was made for measuring is gone. */
static void folder_is_empty(void) {
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d)) != NULL;)
        if (x->d_name[0] != '.') fail_msg("%s was left", x->d_name);
    closedir(d);
}

static void json_has_the_promised_form(void **state) {
    (void)state;
    char plot[700];
    snprintf(plot, sizeof plot, "%s/plot.svg", temp_dir());
    /* 150 and a turn of 50 cross a block; the second turn must not find the first. */
    assert_int_equal(BENCH(model, QUICK, "--contexts", "64,150", "--batch-sizes", "1,3", "--turn", "50", "--runs", "2", "--json", "--plot", plot), 0);
    json_t *o = json_loadb(out.data, out.len, 0, NULL), *list = json_object_get(json_object_get(o, "memory"), "results");
    assert_int_equal(json_array_size(list), 4);
    static const char *const times[] = {"cold", "warm", "warm_dropped", "hot", "prefill", "prefill_saving", "stall", "durable", "turn_durable"};
    for (size_t i = 0; i < 4; i++) {
        const json_t *x = json_array_get(list, i);
        assert_int_equal(json_integer_value(json_object_get(x, "context")), i < 2 ? 64 : 150);
        assert_int_equal(json_integer_value(json_object_get(x, "batch")), i % 2 ? 3 : 1);
        for (size_t k = 0; k < sizeof times / sizeof *times; k++) {
            const json_t *t = json_object_get(x, times[k]);
            positive(t, "seconds");
            assert_int_equal(json_array_size(json_object_get(t, "samples")), k < 5 || k == 8 ? 2 : 1);
        }
        double bytes = positive(x, "bytes_per_token");
        assert_float_equal(positive(x, "agents_per_gigabyte"), 1e9 / bytes / (i < 2 ? 64 : 150), 1e-3 * 1e9 / bytes);
        positive(x, "cold_over_warm"), positive(x, "warm_over_hot"), positive(x, "stall_over_prefill");
    }
    json_decref(o);
    folder_is_empty();
    buf svg = slurp(plot);
    must_hold(&svg, "150 tokens, 3 agents");
    must_hold(&svg, "</svg>");
    buf_free(&svg);
}

static void a_factor_not_reached_is_a_failure(void **state) {
    (void)state;
    assert_int_equal(BENCH(model, QUICK, "--contexts", "64", "--runs", "1", "--validate", "100000"), 1);
    must_hold(&out, "cold/warm");
    must_hold(&errors, "not 100000 times");
    folder_is_empty();
    assert_int_equal(BENCH(model, QUICK, "--contexts", "64", "--runs", "1", "--validate", "0.001"), 0);
}

static void what_is_not_warm_is_not_timed(void **state) {
    (void)state;
    char step[700];
    snprintf(step, sizeof step, "warm,100,1,0,%s/empty", temp_dir());
    assert_int_equal(BENCH(model, "--cpu", "ref", "--cache", "off", "--memory-step", step), 1);
    must_hold(&errors, "means nothing");
    assert_int_equal(out.len, 0);
    assert_int_equal(BENCH(model, "--memory-step", "tepid,100,1,0,x"), 1);
    must_hold(&errors, "not 'tepid'");
    assert_int_equal(BENCH(model, "--memory-step", "warm,100,1"), 1);
    must_hold(&errors, "KIND,CONTEXT,BATCH,VARIANT,FOLDER");
    assert_int_equal(BENCH(model, QUICK, "--contexts", "990"), 1);
    must_hold(&errors, "do not fit into the model's context of 1000");
    assert_int_equal(BENCH(model, QUICK, "--contexts", "64", "--kv-typo"), 2);
    assert_int_equal(BENCH(model, QUICK, "-p", "64"), 2);
    must_hold(&errors, "leave out");
    assert_int_equal(BENCH(model, "--contexts", "64"), 2);
    must_hold(&errors, "for --memory");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_the_promised_form),
        cmocka_unit_test(a_factor_not_reached_is_a_failure),
        cmocka_unit_test(what_is_not_warm_is_not_timed),
    };
    return cmocka_run_group_tests(tests, make_model, NULL);
}
