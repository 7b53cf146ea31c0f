/* test_api_responses.c: /v1/responses: events, conversations that go on, also after a restart, and what is kept of them. */
#include "unit/api_kit.h"

static int start(void **state) {
    (void)state;
    static char folder[300];
    snprintf(folder, sizeof folder, "%s/responses", temp_dir());
    kit_responses_dir = folder;
    return kit_start("models/ember-30m-q8_0.gguf", NULL);
}
static int stop(void **state) {
    (void)state;
    kit_stop();
    return 0;
}

#define COLD "\"temperature\":0,\"max_output_tokens\":12"

/* A response to this body that must succeed; its id is copied to id when that is given. */
static json_t *respond(const char *body, char *id) {
    int status;
    json_t *j = post("/v1/responses", body, &status);
    if (status != 200) fail_msg("%s: %s", body, text_at(j, "error.message"));
    if (id) snprintf(id, 80, "%s", text_at(j, "id"));
    return j;
}

static json_t *go_on(const char *id, const char *words) {
    char body[512];
    snprintf(body, sizeof body, "{\"previous_response_id\":\"%s\",\"input\":\"%s\"," COLD "}", id, words);
    return respond(body, NULL);
}

static int status_of(const char *method, const char *path) {
    int status;
    json_decref(ask(method, path, "", &status));
    return status;
}

/* The text of the first message. */
static const char *text_of(const json_t *response) { return text_at(response, "output.0.content.0.text"); }

static void test_events(void **state) {
    (void)state;
    buf events = stream("/v1/responses", "{\"input\":\"Hello!\",\"stream\":true," COLD ",\"top_logprobs\":2}");
    static const char *const order[] = {"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
                                        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response."};
    const char *from = events.data;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        char line[80];
        snprintf(line, sizeof line, "event: %s", order[i]);
        if (!(from = strstr(from, line))) fail_msg("no %s in its place", order[i]);
    }
    int sequence = 0;
    buf text = {0};
    json_t *last = NULL;
    for (const char *p = events.data; (p = strstr(p, "data: ")) != NULL; p++) {
        json_t *j = json_loadb(p + 6, strcspn(p + 6, "\n"), 0, NULL);
        assert_int_equal(int_at(j, "sequence_number"), sequence++);
        if (strcmp(text_at(j, "type"), "response.output_text.delta") == 0) {
            assert_true(buf_adds(&text, text_at(j, "delta"), NULL));
            assert_int_equal(json_array_size(at(j, "logprobs.0.top_logprobs")), 2);
        }
        json_decref(last);
        last = j;
    }
    assert_string_equal(text_of(at(last, "response")), text.data);
    assert_int_equal(json_array_size(at(last, "response.output.0.content.0.logprobs")), int_at(last, "response.usage.output_tokens") - (strcmp(text_at(last, "type"), "response.completed") == 0));
    json_decref(last);
    buf_free(&text);
    buf_free(&events);
}

static void test_conversation(void **state) {
    (void)state;
    char first[80], other[80], path[128];
    json_t *a = respond("{\"instructions\":\"Be kind.\",\"input\":\"Hello! Who are you?\"," COLD "}", first);
    json_t *b = go_on(first, "Tell me more."), *c = go_on(first, "Tell me more.");
    assert_string_equal(text_of(b), text_of(c)); /* a fork, and the same again */
    assert_string_equal(text_at(b, "previous_response_id"), first);
    assert_true(int_at(c, "usage.input_tokens_details.cached_tokens") > 0);
    snprintf(other, sizeof other, "%s", text_at(b, "id"));
    json_t *d = go_on(other, "And then?");
    assert_true(int_at(d, "usage.input_tokens") > int_at(b, "usage.input_tokens"));
    /* After a restart all of it is there. */
    kit_stop();
    assert_int_equal(kit_start("models/ember-30m-q8_0.gguf", NULL), 0);
    json_t *e = go_on(other, "And then?");
    assert_string_equal(text_of(d), text_of(e));
    assert_int_equal(int_at(d, "usage.input_tokens"), int_at(e, "usage.input_tokens"));
    snprintf(path, sizeof path, "/v1/responses/%s", first);
    int status;
    json_t *shown = ask("GET", path, "", &status);
    assert_int_equal(status, 200);
    assert_true(json_equal(shown, a));
    json_decref(shown);
    /* Once the first is deleted, what came after it has no beginning. */
    assert_int_equal(status_of("DELETE", path), 200);
    assert_int_equal(status_of("DELETE", path), 404);
    assert_int_equal(status_of("GET", path), 404);
    char body[256];
    snprintf(body, sizeof body, "{\"previous_response_id\":\"%s\",\"input\":\"x\"}", other);
    json_t *broken = post("/v1/responses", body, &status);
    assert_int_equal(status, 400);
    assert_string_equal(text_at(broken, "error.code"), "previous_response_not_found");
    json_t *all[] = {a, b, c, d, e, broken};
    for (size_t i = 0; i < 6; i++) json_decref(all[i]);
}

static void test_damage(void **state) {
    (void)state;
    char id[80], path[512], route[128];
    json_decref(respond("{\"input\":\"Hi\"," COLD "}", id));
    snprintf(path, sizeof path, "%s/%s.json", kit_responses_dir, id);
    snprintf(route, sizeof route, "/v1/responses/%s", id);
    assert_int_equal(status_of("GET", route), 200);
    buf file = slurp(path);
    file.data[file.len / 2] ^= 1;
    spew(path, file.data, file.len);
    assert_int_equal(status_of("GET", route), 404);
    buf_free(&file);
    /* Not stored: not there. */
    json_decref(respond("{\"input\":\"Hi\",\"store\":false," COLD "}", id));
    snprintf(route, sizeof route, "/v1/responses/%s", id);
    assert_int_equal(status_of("GET", route), 404);
    static const char *const nowhere[] = {"/v1/responses/x", "/v1/responses/..%2Fx", "/v1/responses/", "/v1/responses/resp_x/input_items", "/v1/responses/resp_x/other"};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) assert_int_equal(status_of("GET", nowhere[i]), 404);
}

static void test_calls(void **state) {
    (void)state;
    static const char tools[] = "\"tools\":[{\"type\":\"function\",\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"enum\":[\"Rome\",\"Oslo\"]}},"
                                "\"required\":[\"city\"],\"additionalProperties\":false}}]";
    char body[1024], id[80];
    snprintf(body, sizeof body, "{\"input\":\"Weather?\",%s,\"tool_choice\":\"required\",\"temperature\":0}", tools);
    json_t *j = respond(body, id);
    assert_string_equal(text_at(j, "output.0.type"), "function_call");
    assert_string_equal(text_at(j, "output.0.name"), "weather");
    json_t *arguments = json_loads(text_at(j, "output.0.arguments"), 0, NULL);
    assert_true(json_is_string(at(arguments, "city")));
    snprintf(body, sizeof body, "{\"previous_response_id\":\"%s\",\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"%s\",\"output\":\"sunny\"}],%s,\"tool_choice\":\"none\"," COLD "}", id,
             text_at(j, "output.0.call_id"), tools);
    json_t *next = respond(body, NULL);
    assert_string_equal(text_at(next, "output.0.type"), "message");
    json_decref(arguments);
    json_decref(next);
    json_decref(j);
}

/* What one tenant was told is not there for another: not to be read, gone on from or deleted. */
static void test_tenants(void **state) {
    (void)state;
    err e = {0};
    char path[400], id[80], body[300], route[128];
    static const char keys[] = "alpha tenant=ann\nbeta tenant=bob\n";
    snprintf(path, sizeof path, "%s/keys", temp_dir());
    spew(path, keys, strlen(keys));
    http_options o = http_defaults();
    o.port = 0;
    o.keys = http_keys_new(&e);
    assert_true(http_keys_read(o.keys, path, &e));
    http_server *s = http_start(&o, api_handle, the_api, &e);
    assert_non_null(s);
    int open_port = port, status;
    port = http_port(s);
    json_t *j = ask_with("POST", "/v1/responses", "x-api-key: alpha\r\n", "{\"input\":\"Hello!\"," COLD "}", &status);
    assert_int_equal(status, 200);
    snprintf(id, sizeof id, "%s", text_at(j, "id"));
    json_decref(j);
    snprintf(route, sizeof route, "/v1/responses/%s", id);
    snprintf(body, sizeof body, "{\"previous_response_id\":\"%s\",\"input\":\"And?\"," COLD "}", id);
    static const struct { const char *key, *method; int status; } asked[] = {{"x-api-key: beta\r\n", "GET", 404},  {"x-api-key: beta\r\n", "POST", 400}, {"x-api-key: beta\r\n", "DELETE", 404},
                                                                             {"x-api-key: alpha\r\n", "GET", 200}, {"x-api-key: alpha\r\n", "POST", 200}, {"x-api-key: alpha\r\n", "DELETE", 200}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        bool posts = strcmp(asked[i].method, "POST") == 0;
        if (i == 3) { /* nor for those without one */
            int with_keys = port;
            port = open_port;
            assert_int_equal(status_of("GET", route), 404);
            port = with_keys;
        }
        json_decref(ask_with(asked[i].method, posts ? "/v1/responses" : route, asked[i].key, posts ? body : "", &status));
        assert_int_equal(status, asked[i].status);
    }
    port = open_port;
    http_stop(s);
    http_keys_free(o.keys);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_events), cmocka_unit_test(test_conversation), cmocka_unit_test(test_damage), cmocka_unit_test(test_calls),
                                       cmocka_unit_test(test_tenants)};
    return cmocka_run_group_tests(tests, start, stop);
}
