/* test_serve.c: `hearth serve` as a program: where it listens, administrators, stopping. */
#include "tools/support.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "unit/http_client.h"

typedef struct child {
    pid_t pid;
    int out;
    int port;
    char said[300]; /* its first line */
} child;

/* Starts it. socket is given to it as systemd would; -1: none. */
static child launched(const char *const *options, int socket) {
    child c = {0};
    int pipes[2];
    const char *argv[30] = {hearth_program(), "serve", "--cache", "off", "--preload", "none"};
    for (int n = 6; *options; options++) argv[n++] = *options;
    assert_int_equal(pipe(pipes), 0);
    c.pid = fork();
    if (c.pid == 0) {
        char pid[20];
        dup2(pipes[1], 1);
        close(pipes[0]);
        close(pipes[1]);
        if (socket >= 0) {
            snprintf(pid, sizeof pid, "%d", (int)getpid());
            setenv("LISTEN_PID", pid, 1);
            setenv("LISTEN_FDS", "1", 1);
            dup2(socket, 3);
        }
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(pipes[1]);
    c.out = pipes[0];
    return c;
}

/* The same, and waits until it says where. */
static child started(const char *const *options, int socket) {
    child c = launched(options, socket);
    for (size_t n = 0; n + 1 < sizeof c.said && !strchr(c.said, '\n'); n++)
        if (read(c.out, c.said + n, 1) != 1) fail_msg("it ended and said '%s'", c.said);
    const char *colon = strrchr(c.said, ':');
    c.port = colon ? atoi(colon + 1) : 0;
    return c;
}

/* The exit status after a signal; 0: wait only. Who does not end within two minutes is killed. */
static int ended(child *c, int number) {
    int status = 0, waits = 0;
    if (number) kill(c->pid, number);
    while (waitpid(c->pid, &status, WNOHANG) == 0) {
        if (++waits == 24000) kill(c->pid, SIGKILL);
        usleep(5000);
    }
    close(c->out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static json_t *ask(int port, const char *key, const char *method, const char *path, const char *body, int expected) {
    char header[200] = "";
    if (key) snprintf(header, sizeof header, "Authorization: Bearer %s\r\n", key);
    reply r = client_ask(port, method, path, header, body, strlen(body));
    if (r.status != expected) fail_msg("%s %s %s: %s", method, path, body, r.all.data);
    json_t *json = json_loads(r.body, 0, NULL);
    reply_free(&r);
    return json;
}

static const char *text_of(const json_t *j, const char *name) {
    const char *s = json_string_value(json_object_get(j, name));
    return s ? s : "(none)";
}

static void test_admin(void **state) {
    (void)state;
    child c = started((const char *const[]){"--port", "0", "--log", "off", "--admin-key", "boss", "one=models/ember-30m-q8_0.gguf", "two=models/ember-30m-q8_0.gguf", NULL}, -1);
    assert_non_null(strstr(c.said, "hearth serves one at http://127.0.0.1:"));
    json_decref(ask(c.port, NULL, "GET", "/v1/models", "", 200)); /* the rest needs no key */
    json_decref(ask(c.port, NULL, "GET", "/admin/models", "", 401));
    json_decref(ask(c.port, "other", "POST", "/admin/unload", "{\"model\":\"one\"}", 401));
    json_t *j = ask(c.port, "boss", "GET", "/admin/models", "", 200);
    assert_int_equal(json_array_size(json_object_get(j, "data")), 2);
    json_decref(j);
    j = ask(c.port, "boss", "POST", "/admin/load", "{\"model\":\"two\"}", 200);
    assert_string_equal(text_of(j, "state"), "loaded");
    json_decref(j);
    j = ask(c.port, "boss", "POST", "/admin/unload", "{\"model\":\"one\"}", 200);
    assert_string_equal(text_of(j, "state"), "unloaded");
    json_decref(j);
    json_decref(ask(c.port, NULL, "GET", "/health", "", 200)); /* also while the default is not loaded */
    j = ask(c.port, "boss", "POST", "/admin/default", "{\"model\":\"two\"}", 200);
    assert_true(json_is_true(json_object_get(j, "default")));
    json_decref(j);
    j = ask(c.port, NULL, "POST", "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}", 200);
    assert_string_equal(text_of(j, "model"), "two");
    json_decref(j);
    json_decref(ask(c.port, "boss", "POST", "/admin/load", "{\"model\":\"three\"}", 404));
    json_decref(ask(c.port, "boss", "POST", "/admin/load", "{}", 400));
    json_decref(ask(c.port, "boss", "POST", "/admin/load", "{\"model\":\"one\",\"x\":1}", 400));
    json_decref(ask(c.port, "boss", "POST", "/admin/load", "no", 400));
    json_decref(ask(c.port, "boss", "POST", "/admin/nothing", "{}", 404));
    assert_int_equal(ended(&c, SIGTERM), 0);
    /* Without a key for it there is no such thing. */
    c = started((const char *const[]){"--port", "0", "--log", "off", NULL}, -1);
    json_decref(ask(c.port, "boss", "GET", "/admin/models", "", 404));
    json_decref(ask(c.port, NULL, "POST", "/admin/load", "{\"model\":\"one\"}", 404));
    assert_int_equal(ended(&c, SIGINT), 0);
}

/* The first file with this ending below a folder. */
static bool find_file(const char *in, const char *ending, char found[600]) {
    char command[800];
    snprintf(command, sizeof command, "find '%s' -name '*%s' | sort | head -n 1", in, ending);
    buf out = {0};
    const char *const argv[] = {"/bin/sh", "-c", command, NULL};
    assert_int_equal(run_program(argv, "", 0, &out, NULL, 30), 0);
    snprintf(found, 600, "%.*s", (int)(out.data ? strcspn(out.data, "\n") : 0), out.data ? out.data : "");
    buf_free(&out);
    return found[0] != 0;
}

static void test_admin_cache(void **state) {
    (void)state;
    char folder[400], block[600];
    snprintf(folder, sizeof folder, "%s/kv", temp_dir());
    child c = started((const char *const[]){"--port", "0", "--log", "off", "--admin-key", "boss", "--store-dir", folder, NULL}, -1);
    buf body = {0};
    assert_true(buf_adds(&body, "{\"max_tokens\":1,\"prompt\":[5", NULL));
    for (int i = 0; i < 200; i++) assert_true(buf_addf(&body, NULL, ",%d", 100 + i));
    assert_true(buf_adds(&body, "]}", NULL));
    json_decref(ask(c.port, NULL, "POST", "/v1/completions", body.data, 200));
    while (!find_file(folder, ".safetensors", block)) usleep(10000);
    json_t *j = ask(c.port, "boss", "POST", "/admin/cache/verify", "", 200);
    assert_true(json_integer_value(json_object_get(j, "whole")) >= 1);
    assert_int_equal(json_array_size(json_object_get(j, "damaged")), 0);
    json_decref(j);
    buf data = slurp(block);
    data.data[data.len - 1]++;
    spew(block, data.data, data.len);
    buf_free(&data);
    j = ask(c.port, "boss", "POST", "/admin/cache/verify", "", 200);
    assert_int_equal(json_array_size(json_object_get(j, "damaged")), 1);
    assert_true(json_is_true(json_object_get(json_array_get(json_object_get(j, "damaged"), 0), "set_aside")));
    json_decref(j);
    j = ask(c.port, "boss", "POST", "/admin/cache/gc", "", 200);
    assert_true(json_is_integer(json_object_get(j, "freed")));
    json_decref(j);
    j = ask(c.port, "boss", "POST", "/admin/cache/verify", "", 200);
    assert_int_equal(json_array_size(json_object_get(j, "damaged")), 0);
    json_decref(j);
    json_decref(ask(c.port, NULL, "POST", "/v1/completions", body.data, 200)); /* what is gone is computed again */
    buf_free(&body);
    assert_int_equal(ended(&c, SIGTERM), 0);
    c = started((const char *const[]){"--port", "0", "--log", "off", "--admin-key", "boss", "--store", "off", NULL}, -1);
    json_decref(ask(c.port, "boss", "POST", "/admin/cache/gc", "", 400));
    assert_int_equal(ended(&c, SIGTERM), 0);
}

static void test_given_socket(void **state) {
    (void)state;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0), notify = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    snprintf(u.sun_path, sizeof u.sun_path, "%.80s/notify", temp_dir());
    assert_int_equal(bind(notify, (struct sockaddr *)&u, sizeof u), 0);
    setenv("NOTIFY_SOCKET", u.sun_path, 1);
    child c = started((const char *const[]){"--log", "off", NULL}, fd);
    unsetenv("NOTIFY_SOCKET");
    char text[64] = "";
    assert_true(recv(notify, text, sizeof text - 1, 0) > 0);
    assert_string_equal(text, "READY=1");
    json_decref(ask(ntohs(a.sin_port), NULL, "GET", "/health", "", 200));
    assert_int_equal(ended(&c, SIGTERM), 0);
    memset(text, 0, sizeof text);
    assert_true(recv(notify, text, sizeof text - 1, 0) > 0);
    assert_string_equal(text, "STOPPING=1");
    /* The socket outlives the server: who comes between two of them waits and is served by the next. */
    const char *request = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    int early = client_open(ntohs(a.sin_port));
    client_write(early, request, strlen(request));
    c = started((const char *const[]){"--log", "off", NULL}, fd);
    buf in = {0};
    while (client_read(early, &in)) {}
    assert_non_null(strstr(in.data, "\"status\":\"ok\""));
    buf_free(&in);
    close(early);
    assert_int_equal(ended(&c, SIGTERM), 0);
    close(fd);
    close(notify);
}

/* An answer that runs when the server is told to end is whole. */
static void test_drain(void **state) {
    (void)state;
    child c = started((const char *const[]){"--port", "0", "--log", "off", NULL}, -1);
    int fd = client_open(c.port);
    const char *body = "{\"prompt\":\"Once\",\"max_tokens\":60,\"ignore_eos\":true,\"stream\":true}";
    buf out = {0}, in = {0};
    assert_true(buf_addf(&out, NULL, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body));
    client_write(fd, out.data, out.len);
    while (!in.data || !strstr(in.data, "data: ")) assert_true(client_read(fd, &in));
    kill(c.pid, SIGTERM);
    while (client_read(fd, &in)) {}
    assert_non_null(strstr(in.data, "\"finish_reason\":\"length\""));
    assert_non_null(strstr(in.data, "data: [DONE]"));
    assert_int_equal(ended(&c, 0), 0);
    close(fd);
    buf_free(&out);
    buf_free(&in);
}

/* Whether a process holds SIGTERM back. */
static bool blocks_term(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    buf text = slurp(path);
    const char *line = strstr(text.data, "SigBlk:");
    bool blocks = line && (strtoull(line + 7, NULL, 16) & (1ull << (SIGTERM - 1)));
    buf_free(&text);
    return blocks;
}

/* Who is told to end before it serves does not load to the end first. The keys are in a pipe that nobody writes to, so the start takes forever. */
static void test_stop_while_starting(void **state) {
    (void)state;
    char pipe_path[400];
    snprintf(pipe_path, sizeof pipe_path, "%s/keys", temp_dir());
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    child c = launched((const char *const[]){"--port", "0", "--log", "off", "--keys", pipe_path, NULL}, -1);
    while (!blocks_term(c.pid)) usleep(1000);
    assert_int_equal(ended(&c, SIGTERM), 128 + SIGTERM);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *const options[4];
        const char *problem;
    } cases[] = {
        {{"--host", "0.0.0.0"}, "can be reached from other machines"},
        {{"--log", "loud"}, "--log must be text, json or off"},
        {{"nosuchmodel"}, "there is no file 'nosuchmodel'"},
        {{"x=nosuch.gguf"}, "nosuch.gguf"},
        {{"=x.gguf"}, "is no model"},
        {{"models/ember-30m-q8_0.gguf", "models/ember-30m-q8_0.gguf"}, "two models have the name"},
        {{"--default", "other"}, "there is no model 'other'"},
        {{"--tls-cert", "Makefile"}, "--tls-key"},
        {{"--keys", "/no/such"}, "/no/such"},
        {{"--api-key", ""}, "--api-key: a key must not be empty"},
        {{"Makefile"}, "Makefile"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *argv[12] = {hearth_program(), "serve", "--port", "0", "--cache", "off"};
        for (int k = 0; k < 4 && cases[i].options[k]; k++) argv[6 + k] = cases[i].options[k];
        buf problem = {0};
        int status = run_program(argv, "", 0, NULL, &problem, 60);
        assert_true(status == 1 || status == 2);
        assert_true(buf_addc(&problem, 0, NULL));
        if (!strstr(problem.data, cases[i].problem)) fail_msg("'%s' is not in: %s", cases[i].problem, problem.data);
        buf_free(&problem);
    }
}

static int set_up(void **state) {
    (void)state;
    setenv("XDG_CONFIG_HOME", temp_dir(), 1);
    setenv("XDG_DATA_HOME", temp_dir(), 1);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_admin),
        cmocka_unit_test(test_admin_cache),
        cmocka_unit_test(test_given_socket),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_stop_while_starting),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
