/* jinja_examples.h: tables of template, variables and result, and the loop that checks them. */
#ifndef TESTS_JINJA_EXAMPLES_H
#define TESTS_JINJA_EXAMPLES_H

#include "tools/support.h"

#include "text/jinja.h"

/* variables is JSON with ' for "; NULL for none. A table ends with an empty row. */
typedef struct example {
    const char *source, *variables, *expected;
} example;

static inline json_t *example_variables(const char *text) {
    if (!text) return json_object();
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        if (*p == '\'') *p = '"';
    json_error_t why;
    json_t *j = json_loads(copy, JSON_ALLOW_NUL, &why);
    if (!j) fail_msg("the variables of a test are not JSON: %s: %s", copy, why.text);
    free(copy);
    return j;
}

/* Parses and renders on Thursday 2026-01-15 at midnight. */
static inline bool example_render(const char *source, size_t len, const json_t *variables, buf *out, err *e) {
    const struct tm now = {.tm_year = 126, .tm_mday = 15, .tm_wday = 4, .tm_yday = 14};
    jinja *t = jinja_parse(source, len, e);
    bool ok = t && jinja_render(t, variables, &now, out, e);
    jinja_free(t);
    return ok;
}

/* fails: the templates must fail with the expected text as message. */
static inline void check_examples(const example *x, bool fails) {
    int wrong = 0;
    for (; x->source; x++) {
        err e = {0};
        buf out = {0};
        json_t *variables = example_variables(x->variables);
        bool ok = example_render(x->source, strlen(x->source), variables, &out, &e);
        const char *got = ok ? out.data : e.text;
        if (ok == fails || strcmp(got, x->expected) != 0) {
            printf("# template: %s\n#  expected: %s\n#  %s: %s\n", x->source, x->expected, ok ? "rendered" : "failed", got);
            wrong++;
        }
        if (!ok && out.len) fail_msg("a failed rendering left text behind: %s", x->source);
        json_decref(variables);
        buf_free(&out);
    }
    if (wrong) fail_msg("%d examples went wrong", wrong);
}

#define EXAMPLES_TEST(table, fails)                                                                                                        \
    static void table##_come_out(void **state) {                                                                                           \
        (void)state;                                                                                                                       \
        check_examples(table, fails);                                                                                                      \
    }

#endif
