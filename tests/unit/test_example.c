/* test_example.c: the example is short, builds against the static and the shared library, and runs. */
#include "tools/support.h"

#include <unistd.h>

static const char *build_folder(void) {
    const char *build = getenv("HEARTH_TEST_BUILD");
    return build ? build : "build";
}

/* The libraries of a sanitizer build need the same sanitizer in the program. */
static const char *sanitizer(void) {
    const char *build = build_folder(), *slash = strrchr(build, '/'), *name = slash ? slash + 1 : build;
    if (strcmp(name, "asan") == 0) return "-fsanitize=address";
    if (strcmp(name, "ubsan") == 0) return "-fsanitize=undefined";
    if (strcmp(name, "tsan") == 0) return "-fsanitize=thread";
    return "";
}

static void must_work(const char *command) {
    buf out = {0};
    int status = run_program((const char *[]){"sh", "-c", command, NULL}, NULL, 0, &out, &out, 120);
    if (status != 0) fail_msg("%s\nended with %d: %s", command, status, out.data ? out.data : "");
    buf_free(&out);
}

static const char *model_path(void) {
    static const char *const paths[] = {"models/ember-30m-q8_0.gguf", "models/ember-30m-q4_k_m.gguf", "models/ember-30m-f16.gguf"};
    for (int i = 0; i < 3; i++)
        if (access(paths[i], R_OK) == 0) return paths[i];
    fail_msg("the default model is not in models/");
    return NULL;
}

static void build_and_ask(const char *link) {
    char command[4096], program[256];
    snprintf(program, sizeof program, "%s/embed", temp_dir());
    snprintf(command, sizeof command, "b=%s; ${CC:-cc} -std=c11 -Wall -Wextra -Werror %s examples/embed.c -Iinclude -o %s %s", build_folder(),
             sanitizer(), program, link);
    must_work(command);
    buf out = {0}, errors = {0};
    assert_int_equal(run_program((const char *[]){program, model_path(), "Hello!", NULL}, NULL, 0, &out, &errors, 120), 0);
    assert_true(out.len > 2);
    buf_free(&out);
    buf_free(&errors);
    assert_int_equal(run_program((const char *[]){program, "/nowhere.gguf", NULL}, NULL, 0, NULL, &errors, 120), 1);
    assert_non_null(strstr(errors.data, "/nowhere.gguf"));
    buf_free(&errors);
}

static void example_links_statically(void **state) {
    (void)state;
    build_and_ask("$b/libhearth.a $(pkg-config --libs $(PKG_CONFIG_PATH=$b pkg-config --print-requires-private hearth)) -lm -pthread");
}

static void example_links_dynamically(void **state) {
    (void)state;
    build_and_ask("-L$b -Wl,-rpath,$PWD/$b -lhearth");
}

static void example_is_short(void **state) {
    (void)state;
    buf b = slurp("examples/embed.c");
    int lines = 0;
    for (size_t i = 0; i < b.len; i++) lines += b.data[i] == '\n';
    assert_true(lines < 60);
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_is_short),
        cmocka_unit_test(example_links_statically),
        cmocka_unit_test(example_links_dynamically),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
