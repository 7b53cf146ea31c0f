/* test_jinja_render.c: `hearth debug render` as a user meets it. */
#include "tools/support.h"

typedef struct outcome {
    int status;
    buf out, error;
} outcome;

static const char *temp_file(const char *name, const char *text, size_t len) {
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", temp_dir(), name);
    spew(path, text, len);
    return path;
}

static outcome render(const char *source, const char *input) {
    const char *argv[] = {hearth_program(),
                          "debug",
                          "render",
                          "--template",
                          temp_file("t.jinja", source, strlen(source)),
                          "--input",
                          temp_file("case.json", input, strlen(input)),
                          NULL};
    outcome o = {0};
    o.status = run_program(argv, NULL, 0, &o.out, &o.error, 60);
    return o;
}

static void expect(const char *source, const char *input, int status, const char *out, const char *error) {
    outcome o = render(source, input);
    const char *got = o.out.data ? o.out.data : "", *said = o.error.data ? o.error.data : "";
    bool same = error ? strstr(said, error) != NULL : said[0] == 0;
    if (o.status != status || strcmp(got, out) != 0 || !same)
        fail_msg("%s with %s: status %d, wrote \"%s\", said \"%s\"", source, input, o.status, got, said);
    if (error && (strncmp(said, "hearth: ", 8) != 0 || strchr(said, '\n') != said + strlen(said) - 1))
        fail_msg("%s: not one sentence: \"%s\"", source, said);
    buf_free(&o.out);
    buf_free(&o.error);
}

static void writes_the_text_exactly(void **state) {
    (void)state;
    expect("{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}",
           "{\"bos_token\": \"<s>\", \"messages\": [{\"role\": \"user\", \"content\": \"hé\\u0001\"}]}", 0, "<s>user: hé\x01\n\n", NULL);
    expect("", "{}", 0, "", NULL);
    expect("{{ a }} {{ b }} {{ now is defined }}", "{\"a\": 9007199254740993, \"b\": 1.0, \"now\": \"2026-01-15\"}", 0,
           "9007199254740993 1.0 False", NULL);
}

static void now_fixes_the_clock(void **state) {
    (void)state;
    const char *source = "{{ strftime_now('%Y-%m-%d %H:%M:%S %a %j') }}";
    expect(source, "{\"now\": \"2026-01-15T00:00:00\"}", 0, "2026-01-15 00:00:00 Thu 015", NULL);
    expect(source, "{\"now\": \"2024-02-29 23:59:58\"}", 0, "2024-02-29 23:59:58 Thu 060", NULL);
    expect(source, "{\"now\": \"2026-12-31T08:30Z\"}", 0, "2026-12-31 08:30:00 Thu 365", NULL);
    expect(source, "{\"now\": \"2026-07-04T08:30:15.123456+02:00\"}", 0, "2026-07-04 08:30:15 Sat 185", NULL);
    expect(source, "{\"now\": \"1999-01-01\"}", 0, "1999-01-01 00:00:00 Fri 001", NULL);
    static const char *const wrong[] = {
        "5", "null", "\"\"", "\"today\"", "\"2026-02-30\"", "\"2026-13-01\"", "\"2026-01-01T25:00\"", "\"2026-01-15x\"", "\"26-1-1\""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char input[64];
        snprintf(input, sizeof input, "{\"now\": %s}", wrong[i]);
        expect(source, input, 1, "", "now must be a time such as");
    }
    outcome o = render("{{ strftime_now('%Y') }}", "{}");
    assert_int_equal(o.status, 0);
    assert_int_equal(o.out.len, 4);
    buf_free(&o.out);
    buf_free(&o.error);
}

static void failures_are_one_sentence(void **state) {
    (void)state;
    outcome o = render("{{ raise_exception('Roles must alternate!') }}", "{}");
    assert_int_equal(o.status, 1);
    assert_string_equal(o.error.data, "hearth: Roles must alternate!\n");
    buf_free(&o.out);
    buf_free(&o.error);
    expect("text{{ raise_exception('late') }}", "{}", 1, "", "hearth: late\n");
    expect("a\n{{ x.y }}", "{}", 1, "", "t.jinja: line 2: 'x' is undefined");
    expect("{% if %}", "{}", 1, "", "t.jinja: line 1: expected an expression");
    expect("{{ 'a' * 10 ** 12 }}", "{}", 1, "", "limit");
    expect("a", "[1]", 1, "", "case.json: must be a JSON object");
    expect("a", "{\"a\":", 1, "", "case.json: not valid JSON");
    expect("a", "{\"a\": 99999999999999999999999}", 1, "", "case.json: not valid JSON");
    expect("a", "{\"a\": \"\xFF\"}", 1, "", "case.json: not valid JSON");
    expect("a", "", 1, "", "case.json: not valid JSON");
    expect("a\xFF", "{}", 1, "", "not valid UTF-8");
}

static void wrong_use_is_explained(void **state) {
    (void)state;
    static const char *const uses[][8] = {
        {"", "debug", "render"},
        {"", "debug", "render", "--template", "/nonexistent/x", "--input", "/nonexistent/y"},
        {"", "debug", "render", "--input", "/dev/null"},
        {"", "debug", "render", "more"},
    };
    static const int statuses[] = {2, 1, 2, 2};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const char *argv[9] = {hearth_program()};
        for (int k = 1; k < 8; k++) argv[k] = uses[i][k];
        buf error = {0};
        assert_int_equal(run_program(argv, NULL, 0, NULL, &error, 60), statuses[i]);
        assert_true(strncmp(error.data, "hearth: ", 8) == 0);
        buf_free(&error);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_the_text_exactly),
        cmocka_unit_test(now_fixes_the_clock),
        cmocka_unit_test(failures_are_one_sentence),
        cmocka_unit_test(wrong_use_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
