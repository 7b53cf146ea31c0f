/* test_models.c: several models by name in one server: loaded when asked for, leaving when there is no room, never while in use. */
#include "tools/support.h"

#include <jansson.h>
#include <pthread.h>
#include <sys/stat.h>

#include "api/models.h"
#include "base/clock.h"
#include "gguf/folder.h"
#include "unit/http_client.h"

static const char EMBER[] = "models/ember-30m-q8_0.gguf";
static models *registry;
static http_server *server;
static int port;

static void start(uint64_t room, const char *folder) {
    static const char *const aliases[] = {"alias", NULL};
    err e = {0};
    models_options o = {.engine = hearth_engine_defaults(), .loop = loop_defaults(), .memory = room, .folder = folder};
    o.api = (api_options){.aliases = aliases, .sampler = hearth_sampler_defaults()};
    o.engine.cache = false;
    o.engine.preload = "none";
    o.loop.max_queue = 100;
    registry = models_new(&o, &e);
    if (!registry || !models_add(registry, "one", EMBER, &e) || !models_add(registry, "two", EMBER, &e) || !models_add(registry, "broken", "Makefile", &e)) fail_msg("%s", e.text);
    http_options h = http_defaults();
    h.port = 0;
    h.heartbeat_s = 1;
    server = http_start(&h, api_handle, models_api(registry), &e);
    if (!server) fail_msg("%s", e.text);
    port = http_port(server);
}

static void stop(void) {
    http_quiesce(server);
    models_drain(registry, 5000000000u);
    models_end(registry);
    http_stop(server);
    models_free(registry);
}

static json_t *ask(const char *method, const char *path, const char *body, int expected) {
    reply r = client_ask(port, method, path, NULL, body, strlen(body));
    if (r.status != expected) fail_msg("%s %s: %s", path, body, r.all.data);
    json_t *json = json_loads(r.body, 0, NULL);
    reply_free(&r);
    return json;
}

static json_t *chat(const char *model, int expected) {
    char body[300];
    snprintf(body, sizeof body, "{%s%s%s\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}],\"max_tokens\":4,\"temperature\":0}", model ? "\"model\":\"" : "", model ? model : "",
             model ? "\"," : "");
    return ask("POST", "/v1/chat/completions", body, expected);
}

/* The model that answers. */
static void assert_answers(const char *model, const char *expected) {
    json_t *j = chat(model, 200);
    assert_string_equal(json_string_value(json_object_get(j, "model")), expected);
    json_decref(j);
}

static void assert_state(const char *model, const char *expected) {
    char path[200];
    snprintf(path, sizeof path, "/v1/models/%s", model);
    json_t *j = ask("GET", path, "", 200);
    assert_string_equal(json_string_value(json_object_get(j, "state")), expected);
    json_decref(j);
}

static void await_state(const char *model, const char *expected) {
    char path[200];
    snprintf(path, sizeof path, "/v1/models/%s", model);
    for (bool there = false; !there; usleep(1000)) {
        json_t *j = ask("GET", path, "", 200);
        there = strcmp(json_string_value(json_object_get(j, "state")), expected) == 0;
        json_decref(j);
    }
}

static void test_names(void **state) {
    (void)state;
    start(UINT64_MAX, NULL);
    assert_state("one", "unloaded");
    assert_answers(NULL, "one");
    assert_answers("", "one");
    assert_answers("alias", "one");
    assert_state("two", "unloaded");
    assert_answers("two", "two");
    assert_state("one", "loaded");
    assert_state("two", "loaded");
    json_t *j = chat("three", 404);
    assert_string_equal(json_string_value(json_object_get(json_object_get(j, "error"), "code")), "model_not_found");
    json_decref(j);
    j = ask("POST", "/v1/messages", "{\"model\":\"three\",\"max_tokens\":4,\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}]}", 404);
    assert_string_equal(json_string_value(json_object_get(json_object_get(j, "error"), "type")), "not_found_error");
    json_decref(j);
    json_decref(ask("GET", "/v1/models/three", "", 404));
    j = ask("POST", "/tokenize?model=two", "{\"content\":\"a\"}", 200);
    json_decref(j);
    json_decref(ask("POST", "/tokenize", "{\"content\":\"a\",\"model\":\"three\"}", 404));
    json_decref(ask("POST", "/tokenize", "{", 400));
    j = ask("GET", "/v1/models", "", 200);
    const json_t *data = json_object_get(j, "data");
    assert_int_equal(json_array_size(data), 4); /* one, its alias, two, broken */
    assert_true(json_is_true(json_object_get(json_array_get(data, 0), "default")));
    assert_true(json_is_false(json_object_get(json_array_get(data, 2), "default")));
    json_decref(j);
    /* The default can be another one, and keeps its aliases. */
    err e = {0};
    assert_true(models_set_default(registry, "two", &e));
    assert_answers(NULL, "two");
    assert_answers("alias", "two");
    assert_answers("one", "one");
    assert_false(models_set_default(registry, "three", &e));
    stop();
}

static void test_broken(void **state) {
    (void)state;
    start(UINT64_MAX, NULL);
    for (int i = 0; i < 2; i++) {
        json_t *j = chat("broken", 500);
        assert_non_null(strstr(json_string_value(json_object_get(json_object_get(j, "error"), "message")), "broken"));
        json_decref(j);
    }
    assert_state("broken", "failed");
    assert_answers("one", "one");
    stop();
}

static void test_room(void **state) {
    (void)state;
    uint64_t bytes = gguf_model_bytes(EMBER);
    assert_true(bytes > 1 << 20);
    start(bytes * 3 / 2, NULL);
    assert_answers("one", "one");
    assert_answers("two", "two");
    assert_state("one", "unloaded");
    assert_answers("one", "one");
    assert_state("two", "unloaded");
    /* Counts outlive their models. */
    reply r = client_ask(port, "GET", "/metrics", NULL, "", 0);
    assert_non_null(strstr(r.body, "\nhearth_requests_total 3\n"));
    assert_non_null(strstr(r.body, "\nhearth_completion_tokens_total 12\n"));
    reply_free(&r);
    err e = {0};
    assert_true(models_unload(registry, "one", &e));
    assert_state("one", "unloaded");
    assert_true(models_unload(registry, "one", &e)); /* it is so already */
    stop();
    /* Larger than the room: alone, but it works. */
    start(1000, NULL);
    assert_answers("one", "one");
    assert_answers("two", "two");
    assert_state("one", "unloaded");
    stop();
}

static void *ask_in_thread(void *model) {
    assert_answers(model, model);
    return NULL;
}

/* A stream keeps its model: who wants the room waits, with heartbeats, and then goes on. */
static void test_in_use(void **state) {
    (void)state;
    start(gguf_model_bytes(EMBER) * 3 / 2, NULL);
    int fd = client_open(port);
    const char *body = "{\"model\":\"one\",\"prompt\":\"Once\",\"max_tokens\":100000,\"n\":12,\"ignore_eos\":true,\"stream\":true}";
    buf out = {0}, in = {0};
    assert_true(buf_addf(&out, NULL, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body));
    client_write(fd, out.data, out.len);
    while (!in.data || !strstr(in.data, "data: ")) assert_true(client_read(fd, &in));
    /* Another model's stream: it begins although its model cannot be loaded yet. */
    int waiting = client_open(port);
    body = "{\"model\":\"two\",\"prompt\":\"Once\",\"max_tokens\":3,\"stream\":true}";
    out.len = in.len = 0;
    assert_true(buf_addf(&out, NULL, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body));
    client_write(waiting, out.data, out.len);
    while (!in.data || !strstr(in.data, ": heartbeat")) assert_true(client_read(waiting, &in));
    assert_null(strstr(in.data, "data: "));
    assert_state("one", "unloading");
    assert_state("two", "loading");
    /* Whoever wants the first one now comes after the second. */
    pthread_t thread;
    pthread_create(&thread, NULL, ask_in_thread, (void *)"one");
    close(fd);
    while (client_read(waiting, &in)) {}
    assert_non_null(strstr(in.data, "data: {"));
    assert_non_null(strstr(in.data, "\"model\":\"two\""));
    assert_non_null(strstr(in.data, "data: [DONE]"));
    pthread_join(thread, NULL);
    assert_state("one", "loaded");
    close(waiting);
    buf_free(&out);
    buf_free(&in);
    stop();
}

/* Who waits for a model and leaves does not drive out the one that runs; who waits when the server stops is told. */
static void test_gone_while_waiting(void **state) {
    (void)state;
    start(gguf_model_bytes(EMBER) * 3 / 2, NULL);
    int fd = client_open(port), waiting = client_open(port);
    const char *body = "{\"model\":\"one\",\"prompt\":\"Once\",\"max_tokens\":100000,\"n\":12,\"ignore_eos\":true,\"stream\":true}";
    buf out = {0}, in = {0};
    assert_true(buf_addf(&out, NULL, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body));
    client_write(fd, out.data, out.len);
    while (!in.data || !strstr(in.data, "data: ")) assert_true(client_read(fd, &in));
    body = "{\"model\":\"two\",\"prompt\":\"Once\",\"max_tokens\":3}";
    out.len = 0;
    assert_true(buf_addf(&out, NULL, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body));
    client_write(waiting, out.data, out.len);
    await_state("one", "unloading");
    close(waiting);
    assert_answers("one", "one"); /* returns although the stream still runs */
    waiting = client_open(port);
    client_write(waiting, out.data, out.len);
    await_state("two", "loading");
    http_quiesce(server);
    models_drain(registry, 0);
    models_end(registry);
    reply r = client_reply(waiting);
    assert_int_equal(r.status, 503);
    reply_free(&r);
    close(fd);
    close(waiting);
    http_stop(server);
    models_free(registry);
    buf_free(&out);
    buf_free(&in);
}

static void test_folder(void **state) {
    (void)state;
    char folder[400], path[600];
    snprintf(folder, sizeof folder, "%s/models", temp_dir());
    snprintf(path, sizeof path, "%s/owner/repo", folder);
    assert_true(file_make_folder(path, NULL));
    buf data = slurp(EMBER);
    snprintf(path, sizeof path, "%s/owner/repo/first.gguf", folder);
    spew(path, data.data, data.len);
    start(UINT64_MAX, folder);
    assert_answers("first", "first");
    json_decref(chat("later", 404));
    json_decref(chat("../models/owner/repo/first", 404));
    json_decref(chat("owner/repo/first.gguf", 404));
    /* What comes later is found when it is asked for. */
    snprintf(path, sizeof path, "%s/later-00001-of-00002.gguf", folder);
    spew(path, data.data, data.len);
    snprintf(path, sizeof path, "%s/later-00002-of-00002.gguf", folder);
    spew(path, "x", 1);
    json_t *j = ask("GET", "/v1/models", "", 200);
    assert_int_equal(json_array_size(json_object_get(j, "data")), 6);
    json_decref(j);
    j = ask("GET", "/v1/models/later", "", 200);
    assert_int_equal(json_integer_value(json_object_get(j, "bytes")), data.len + 1);
    json_decref(j);
    buf_free(&data);
    stop();
    gguf_folder f;
    err e = {0};
    snprintf(path, sizeof path, "%s/other", folder);
    assert_true(file_make_folder(path, NULL));
    snprintf(path, sizeof path, "%s/other/first.gguf", folder);
    spew(path, "x", 1);
    assert_true(gguf_folder_scan(&f, folder, &e));
    assert_int_equal(f.n, 3);
    bool several;
    assert_null(gguf_folder_find(&f, "first", &several));
    assert_true(several);
    assert_non_null(gguf_folder_find(&f, "other/first", &several));
    assert_non_null(gguf_folder_find(&f, "owner/repo/first.gguf", &several));
    assert_non_null(gguf_folder_find(&f, "later", &several));
    assert_null(gguf_folder_find(&f, "none", &several));
    assert_false(several);
    gguf_folder_free(&f);
    assert_true(gguf_folder_scan(&f, "no such folder", &e));
    assert_int_equal(f.n, 0);
    char name[20];
    int number, count;
    assert_string_equal(gguf_model_name("a/b-00001-of-00003.gguf", name, sizeof name), "b");
    assert_string_equal(gguf_model_name("-00001-of-00003.gguf", name, sizeof name), "-00001-of-00003");
    assert_string_equal(gguf_model_name("plain", name, sizeof name), "plain");
    assert_false(gguf_is_part("b-00001-of-00003", &number, &count) || gguf_is_part("b-0001-of-00003.gguf", &number, &count) || gguf_is_part("b.gguf", &number, &count));
    assert_true(gguf_is_part("b-00002-of-00003.gguf", &number, &count) && number == 2 && count == 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),  cmocka_unit_test(test_broken),             cmocka_unit_test(test_room),
        cmocka_unit_test(test_in_use), cmocka_unit_test(test_gone_while_waiting), cmocka_unit_test(test_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
