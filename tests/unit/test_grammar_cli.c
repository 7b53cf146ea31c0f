/* test_grammar_cli.c: grammars through the program and through hearth_generate, with the default model. */
#include "tools/support.h"

#include <jansson.h>

#include "hearth.h"

#define MODEL "models/ember-30m-q8_0.gguf"

static int hearth(buf *out, buf *err_out, const char *const *more) {
    const char *argv[24] = {hearth_program(), "run", MODEL, "Say something.", "-n", "120", "--seed", "3"};
    int n = 8;
    while (*more) argv[n++] = *more++;
    return run_program(argv, "", 0, out, err_out, 120);
}

static void answers_follow_the_options(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/schema.json", temp_dir());
    const char *schema = "{\"properties\":{\"kind\":{\"enum\":[\"cat\",\"dog\"]},\"age\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":"
                         "20}},\"required\":[\"kind\",\"age\"]}";
    spew(path, schema, strlen(schema));
    buf out = {0}, err_out = {0};
    assert_int_equal(hearth(&out, &err_out, (const char *const[]){"--json-schema", path, NULL}), 0);
    json_t *v = json_loadb(out.data, out.len, 0, NULL);
    assert_non_null(v);
    assert_true(json_integer_value(json_object_get(v, "age")) >= 1 && json_integer_value(json_object_get(v, "age")) <= 20);
    assert_non_null(json_object_get(v, "kind"));
    json_decref(v);
    out.len = 0;
    assert_int_equal(hearth(&out, &err_out, (const char *const[]){"--regex", "[0-9]{3}-(yes|no)", NULL}), 0);
    assert_true((out.len == 7 || out.len == 8) && out.data[3] == '-');
    out.len = 0;
    snprintf(path, sizeof path, "%s/list.gbnf", temp_dir());
    spew(path, "root ::= (\"- \" [a-z]{2,9} \"\\n\"){2}", 34);
    assert_int_equal(hearth(&out, &err_out, (const char *const[]){"--grammar", path, NULL}), 0);
    assert_true(strncmp(out.data, "- ", 2) == 0 && strstr(out.data, "\n- "));
    buf_free(&out);
    buf_free(&err_out);
}

static void wrong_use_is_told(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/wrong.gbnf", temp_dir());
    spew(path, "root ::= missing", 16);
    buf out = {0}, err_out = {0};
    assert_int_equal(hearth(&out, &err_out, (const char *const[]){"--json", "--regex", "a", NULL}), 2);
    assert_int_equal(hearth(&out, &err_out, (const char *const[]){"--json", "--ignore-end", NULL}), 2);
    err_out.len = 0;
    assert_int_equal(hearth(&out, &err_out, (const char *const[]){"--grammar", path, NULL}), 1);
    assert_non_null(strstr(err_out.data, "wrong.gbnf"));
    assert_non_null(strstr(err_out.data, "'missing'"));
    assert_int_equal(hearth(&out, &err_out, (const char *const[]){"--regex", "(a", NULL}), 1);
    buf_free(&out);
    buf_free(&err_out);
}

static bool collect(void *user, const char *text, size_t len) { return buf_add(user, text, len, NULL); }

/* Each answer of a sampler starts the grammar again, and one that was cut short goes on. */
static void generate_starts_and_goes_on(void **state) {
    (void)state;
    hearth_error e;
    hearth_engine *engine = hearth_engine_open(MODEL, NULL, &e), *other = hearth_engine_open(MODEL, NULL, &e);
    assert_non_null(engine);
    hearth_sampler_options o = hearth_sampler_defaults();
    o.grammar = hearth_grammar_new(engine, HEARTH_GRAMMAR_REGEX, "([0-9]{4},){3}", 14, &e);
    assert_non_null(o.grammar);
    assert_null(hearth_sampler_new(other, &o, &e));
    hearth_sampler *sampler = hearth_sampler_new(engine, &o, &e);
    hearth_grammar_free(o.grammar);
    hearth_session *session = hearth_session_new(engine, &e);
    int32_t prompt[8];
    int64_t n = hearth_tokenize(engine, "a b", 3, 0, prompt, 8, &e);
    for (int round = 0; round < 2; round++) {
        buf text = {0};
        hearth_generate_options g = hearth_generate_defaults();
        g.on_text = collect;
        g.user = &text;
        g.max_tokens = 2;
        hearth_generated result = {0};
        assert_true(hearth_session_append(session, prompt, (size_t)n, &e));
        do assert_true(hearth_generate(session, sampler, &g, &result, &e));
        while (result.finish == HEARTH_FINISH_LENGTH);
        assert_int_equal(text.len, 15);
        assert_true(text.data[4] == ',' && text.data[9] == ',' && text.data[14] == ',');
        g.ignore_end = true;
        assert_false(hearth_generate(session, sampler, &g, &result, &e));
        buf_free(&text);
    }
    hearth_session_free(session);
    hearth_sampler_free(sampler);
    hearth_engine_close(engine);
    hearth_engine_close(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_follow_the_options), cmocka_unit_test(wrong_use_is_told),
                                       cmocka_unit_test(generate_starts_and_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
