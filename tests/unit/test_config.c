/* test_config.c: options of `hearth serve` from a file. */
#include "tools/support.h"

static char folder[300], file[400];

/* Runs `hearth serve --print-config` with these arguments; the exit status, and what it printed on both. */
static int print_config(const char *config, const char *const *more, buf *out, buf *problem) {
    const char *argv[20] = {hearth_program(), "serve", "--print-config"};
    int n = 3;
    if (config) {
        spew(file, config, strlen(config));
        argv[n++] = "--config";
        argv[n++] = file;
    }
    for (; more && *more; more++) argv[n++] = *more;
    out->len = problem->len = 0;
    int status = run_program(argv, "", 0, out, problem, 60);
    buf_addc(out, 0, NULL), buf_addc(problem, 0, NULL);
    return status;
}

static int set_up(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "%s/config", temp_dir());
    snprintf(file, sizeof file, "%s/test.conf", temp_dir());
    setenv("XDG_CONFIG_HOME", folder, 1);
    return 0;
}

static void test_values(void **state) {
    (void)state;
    buf out = {0}, problem = {0};
    assert_int_equal(print_config(NULL, NULL, &out, &problem), 0);
    assert_non_null(strstr(out.data, "\nport = 8080\n"));
    assert_non_null(strstr(out.data, "\nopen = off\n"));
    assert_non_null(strstr(out.data, "\nmodels-memory = auto\n"));
    assert_non_null(strstr(out.data, "\n# models-dir is not set\n"));
    const char *config = "# all kinds\n\nport = 1234\n  host=::1  \r\nopen = on\ncors = http://a\ncors = http://b\nkv-memory = 1GiB\ntemperature = 0.25\ncache = off\n"
                         "api-key = secret\nmodel = x=a b.gguf\nlog = json\n";
    assert_int_equal(print_config(config, NULL, &out, &problem), 0);
    static const char *const lines[] = {"host = ::1", "port = 1234", "open = on", "cors = http://a", "cors = http://b", "kv-memory = 1073741824", "temperature = 0.25", "cache = off",
                                        "model = x=a b.gguf", "log = json", "# api-key is set and not shown"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char line[100];
        snprintf(line, sizeof line, "%s%s\n", i ? "\n" : "", lines[i]);
        if (!strstr(out.data, line)) fail_msg("'%s' is not in:\n%s", lines[i], out.data);
    }
    assert_null(strstr(out.data, "secret"));
    /* What was printed means the same. */
    char *first = strdup(out.data);
    assert_int_equal(print_config(first, NULL, &out, &problem), 0);
    char *hidden = strstr(first, "# api-key is set and not shown");
    memcpy(hidden, "# api-key is not set", 20);
    memmove(hidden + 20, hidden + 30, strlen(hidden + 30) + 1);
    assert_string_equal(out.data, first);
    free(first);
    /* The command line wins, a list as a whole. */
    const char *const more[] = {"--port", "99", "--cors", "http://c", "mine.gguf", NULL};
    assert_int_equal(print_config(config, more, &out, &problem), 0);
    assert_non_null(strstr(out.data, "\nport = 99\n"));
    assert_non_null(strstr(out.data, "\ncors = http://c\n"));
    assert_null(strstr(out.data, "http://a"));
    assert_non_null(strstr(out.data, "\nmodel = mine.gguf\n"));
    assert_null(strstr(out.data, "x=a b.gguf"));
    buf_free(&out);
    buf_free(&problem);
}

static void test_usual_file(void **state) {
    (void)state;
    buf out = {0}, problem = {0};
    char path[400];
    snprintf(path, sizeof path, "%s/hearth", folder);
    assert_true(file_make_folder(path, NULL));
    snprintf(path, sizeof path, "%s/hearth/hearth.conf", folder);
    spew(path, "port = 77\n", 10);
    assert_int_equal(print_config(NULL, NULL, &out, &problem), 0);
    assert_non_null(strstr(out.data, "\nport = 77\n"));
    /* Another one is there instead of it. */
    assert_int_equal(print_config("idle = 5", NULL, &out, &problem), 0);
    assert_non_null(strstr(out.data, "\nport = 8080\n"));
    assert_non_null(strstr(out.data, "\nidle = 5\n"));
    spew(path, "prot = 77\n", 10);
    assert_int_equal(print_config(NULL, NULL, &out, &problem), 2);
    assert_non_null(strstr(problem.data, "hearth.conf, line 1: there is no option 'prot'"));
    assert_true(file_remove(path, NULL));
    buf_free(&out);
    buf_free(&problem);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *config, *problem;
    } cases[] = {
        {"port = 80\n\n# x\nno-such = 1\n", "line 4: there is no option 'no-such'"},
        {"--port = 80\n", "line 1: there is no option '--port'"},
        {"port\n", "line 1: 'port' is no line of the form name = value"},
        {"port = many\n", "line 1: --port needs a whole number, not 'many'"},
        {"port = 70000\n", "line 1: --port 70000 is out of range"},
        {"port =\n", "line 1: 'port' needs a value"},
        {"open = yes\n", "line 1: --open needs on or off, not 'yes'"},
        {"kv-memory = lots\n", "line 1: --kv-memory needs a number of bytes"},
        {"config = other.conf\n", "line 1: there is no option 'config'"},
        {"print-config = on\n", "line 1: there is no option 'print-config'"},
        {"= 5\n", "line 1: there is no option ''"},
        {"\x01\xff = 5\n", "line 1: there is no option '\\x01\\xFF'"},
    };
    buf out = {0}, problem = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(print_config(cases[i].config, NULL, &out, &problem), 2);
        if (!strstr(problem.data, cases[i].problem)) fail_msg("'%s' is not in: %s", cases[i].problem, problem.data);
        assert_int_equal(strlen(out.data), 0);
    }
    assert_int_equal(print_config(NULL, (const char *const[]){"--config", "/no/such/file", NULL}, &out, &problem), 2);
    assert_non_null(strstr(problem.data, "/no/such/file"));
    spew(file, "port = 1\0x", 10);
    assert_int_equal(print_config(NULL, (const char *const[]){"--config", file, NULL}, &out, &problem), 2);
    buf_free(&out);
    buf_free(&problem);
}

/* Every option of --help can stand in the file: with what --print-config says, or with something wrong for its kind. */
static void test_all_options(void **state) {
    (void)state;
    buf help = {0}, out = {0}, problem = {0};
    const char *const argv[] = {hearth_program(), "serve", "--help", NULL};
    assert_int_equal(run_program(argv, "", 0, &help, NULL, 60), 0);
    assert_true(buf_addc(&help, 0, NULL));
    assert_int_equal(print_config(NULL, NULL, &out, &problem), 0);
    int n = 0;
    for (const char *p = help.data; (p = strstr(p, "--"));) {
        /* At the beginning of a line, perhaps after a letter. */
        const char *line = p;
        while (line > help.data && line[-1] != '\n') line--;
        char name[64], in_config[80];
        size_t len = strcspn(p + 2, " \n");
        snprintf(name, sizeof name, "%.*s", (int)len, p + 2);
        p += 2 + len;
        if (p - line > 40 || strncmp(line, "  ", 2) != 0 || strcmp(name, "help") == 0 || strcmp(name, "config") == 0 || strcmp(name, "print-config") == 0) continue;
        snprintf(in_config, sizeof in_config, "%s = ", name);
        bool set = strstr(out.data, in_config) != NULL;
        snprintf(in_config, sizeof in_config, "# %s is not set", name);
        if (!set && !strstr(out.data, in_config)) fail_msg("--%s is not printed", name);
        n++;
    }
    assert_true(n > 40);
    buf_free(&help);
    buf_free(&out);
    buf_free(&problem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_usual_file),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_all_options),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
