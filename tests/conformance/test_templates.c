/* test_templates.c: the chat templates of published models, each over all conversations of the kit, byte for byte. */
#include "tools/support.h"

#include <dirent.h>

#include "text/jinja.h"

static json_t *load_kit_json(const char *name) {
    char relative[512];
    snprintf(relative, sizeof relative, "templates/%s", name);
    buf text = slurp(kit_path(relative));
    json_error_t why;
    json_t *j = json_loadb(text.data, text.len, JSON_ALLOW_NUL, &why);
    if (!j) fail_msg("%s: line %d: %s", name, why.line, why.text);
    buf_free(&text);
    return j;
}

static jinja *load_kit_template(const char *name) {
    char relative[512];
    snprintf(relative, sizeof relative, "templates/%s.jinja", name);
    buf text = slurp(kit_path(relative));
    err e = {0};
    jinja *t = jinja_parse(text.data, text.len, &e);
    if (!t) fail_msg("%s: %s", name, e.text);
    buf_free(&text);
    return t;
}

static json_t *case_variables(const json_t *file, const json_t *fixtures, const json_t *c) {
    const json_t *fixture = json_object_get(fixtures, json_string_value(json_object_get(c, "fixture")));
    json_t *v = json_object();
    json_object_set(v, "messages", json_object_get(fixture, "messages"));
    json_object_set(v, "tools", json_object_get(fixture, "tools"));
    json_object_set_new(v, "documents", json_null());
    json_object_set(v, "add_generation_prompt", json_object_get(c, "add_generation_prompt"));
    json_object_set(v, "bos_token", json_object_get(file, "bos_token"));
    json_object_set(v, "eos_token", json_object_get(file, "eos_token"));
    json_object_update(v, json_object_get(c, "extra_kwargs"));
    return v;
}

/* Says in words what differs, around the first byte that does. */
static void tell(const char *name, const json_t *c, bool ok, const char *got, size_t got_len, const char *want, size_t want_len) {
    char *extra = json_dumps(json_object_get(c, "extra_kwargs"), JSON_COMPACT), a[200], b[200];
    size_t at = 0;
    while (at < got_len && at < want_len && got[at] == want[at]) at++;
    size_t from = at > 30 ? at - 30 : 0;
    err_quote(a, sizeof a, got + from, got_len - from);
    err_quote(b, sizeof b, want + from, want_len - from);
    printf("# %s, fixture %s, add_generation_prompt %s, %s: %s\n#   at byte %zu got:  %s\n#   expected: %s\n", name,
           json_string_value(json_object_get(c, "fixture")), json_is_true(json_object_get(c, "add_generation_prompt")) ? "true" : "false",
           extra, ok ? "another text" : "an error", at, a, b);
    free(extra);
}

/* A case holds when its text comes out, or when it fails with the template's own words. Where the reference engine itself gave up,
 * an error is as good as a rendering, but a rendering must be the known one where there is one. */
static bool check_case(const char *name, const jinja *t, const json_t *c, const json_t *variables) {
    const struct tm now = {.tm_year = 126, .tm_mday = 15, .tm_wday = 4, .tm_yday = 14};
    const json_t *error = json_object_get(c, "error"), *mutable = json_object_get(c, "expected_if_mutable");
    bool engine = error && strcmp(json_string_value(json_object_get(error, "by")), "engine") == 0;
    const json_t *want = engine ? mutable : error ? json_object_get(error, "message") : json_object_get(c, "expected");
    buf out = {0};
    err e = {0};
    bool ok = jinja_render(t, variables, &now, &out, &e);
    const char *got = ok ? out.data : e.text;
    size_t len = ok ? out.len : strlen(e.text);
    bool holds = engine && (!ok || !mutable);
    if (!holds) {
        bool right_way = engine || ok == !error;
        holds = right_way && len == json_string_length(want) && memcmp(got, json_string_value(want), len) == 0;
        if (!holds) tell(name, c, ok, got, len, json_string_value(want), json_string_length(want));
    }
    if (!ok && (e.code == HEARTH_OK || !e.text[0])) fail_msg("%s: failed without a message", name);
    buf_free(&out);
    return holds;
}

typedef struct tally {
    int held, all;
} tally;

static void template_renders_every_case(void **state) {
    const char *name = *state;
    char file_name[300];
    snprintf(file_name, sizeof file_name, "%s.json", name);
    json_t *fixtures = load_kit_json("fixtures.json"), *file = load_kit_json(file_name);
    jinja *t = load_kit_template(name);
    const json_t *cases = json_object_get(file, "cases");
    /* Counted apart, as the kit asks: printed Python values, and texts escaped by way of |safe. */
    tally plain = {0}, repr = {0}, escape = {0};
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        json_t *variables = case_variables(file, fixtures, c);
        tally *group = json_object_get(c, "python_repr") ? &repr : json_object_get(c, "markup_escape") ? &escape : &plain;
        group->held += check_case(name, t, c, variables);
        group->all++;
        json_decref(variables);
    }
    jinja_free(t);
    json_decref(file);
    json_decref(fixtures);
    if (plain.all == 0) fail_msg("%s has no cases", name);
    if (plain.held != plain.all || repr.held != repr.all || escape.held != escape.all)
        fail_msg("%s: %d of %d cases, %d of %d with Python values, %d of %d with escaped text", name, plain.held, plain.all, repr.held,
                 repr.all, escape.held, escape.all);
}

static void kit_is_there(void **state) {
    (void)state;
    need_kit();
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct CMUnitTest *)a)->name, ((const struct CMUnitTest *)b)->name);
}

int main(void) {
    static struct CMUnitTest tests[256];
    size_t n = 0;
    const char *folder = kit_path("templates");
    DIR *d = folder ? opendir(folder) : NULL;
    for (struct dirent *f; d && (f = readdir(d)) && n < 255;) {
        size_t len = strlen(f->d_name);
        if (len < 7 || strcmp(f->d_name + len - 6, ".jinja") != 0) continue;
        char *name = strndup(f->d_name, len - 6);
        tests[n++] = (struct CMUnitTest){.name = name, .test_func = template_renders_every_case, .initial_state = name};
    }
    if (d) closedir(d);
    qsort(tests, n, sizeof *tests, by_name);
    if (n == 0) tests[n++] = (struct CMUnitTest){.name = "kit_is_there", .test_func = kit_is_there};
    int failed = _cmocka_run_group_tests("templates", tests, n, NULL, NULL);
    for (size_t i = 0; i < n; i++) free(tests[i].initial_state);
    return failed;
}
