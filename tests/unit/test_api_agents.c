/* test_api_agents.c: agents over HTTP, with the default model and a store of its own. */
#include <pthread.h>

#include "base/clock.h"
#include "unit/api_kit.h"

static char folder[600];
static const char *kv_type;

static int start(void **state) {
    (void)state;
    hearth_engine_options eo = hearth_engine_defaults();
    eo.cache = false;
    eo.store = folder[0] != 0;
    eo.store_dir = folder;
    eo.kv_type = kv_type;
    return kit_start("models/ember-30m-q8_0.gguf", &eo);
}

static int stop(void **state) {
    (void)state;
    kit_stop();
    return 0;
}

static int start_with_store(void **state) {
    snprintf(folder, sizeof folder, "%s/store", temp_dir());
    return start(state);
}

/* A request that must answer with this status; the number is taken from the reply. */
static int number(const char *method, const char *path, const char *body, int want, const char *field) {
    int status;
    json_t *j = ask_with(method, path, NULL, body, &status);
    if (status != want) fail_msg("%s %s: %d, not %d: %s", method, path, status, want, json_dumps(j, 0));
    int n = int_at(j, field);
    json_decref(j);
    return n;
}
static void expect(const char *method, const char *path, const char *body, int want) { number(method, path, body, want, ""); }

static void expect_tier(const char *path, const char *tier) {
    int status;
    json_t *j = ask_with("GET", path, NULL, "", &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_at(j, "tier"), tier);
    json_decref(j);
}

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define REST ",\"temperature\":0,\"max_tokens\":12"

/* The whole conversation with a new question. */
static json_t *next_body(const json_t *messages, const char *question) {
    json_t *all = json_deep_copy(messages);
    json_array_append_new(all, json_pack("{s:s, s:s}", "role", "user", "content", question));
    return json_pack("{s:o, s:f, s:i}", "messages", all, "temperature", 0.0, "max_tokens", 12);
}

static json_t *messages_of(const char *path) {
    int status;
    json_t *j = ask_with("GET", path, NULL, "", &status);
    assert_int_equal(status, 200);
    json_t *m = json_incref((json_t *)at(j, "messages"));
    json_decref(j);
    return m;
}

static void chats_go_on(void **state) {
    (void)state;
    int status;
    json_t *j = ask_with("POST", "/v1/chat/completions", "X-Agent: anna\r\n", "{\"messages\":[" USER("Hello! Who are you?") "]" REST "}", &status);
    assert_int_equal(status, 200);
    int tokens = int_at(j, "usage.total_tokens");
    assert_true(json_is_real(at(j, "timings.first_token_ms")));
    json_decref(j);
    /* Ended by its length: all its tokens are kept, the last one too. */
    assert_int_equal(number("GET", "/v1/agents/anna", "", 200, "tokens"), tokens);
    expect_tier("/v1/agents/anna", "hot");
    json_t *messages = messages_of("/v1/agents/anna");
    assert_int_equal(json_array_size(messages), 2);
    assert_string_equal(text_at(messages, "1.role"), "assistant");
    json_t *body = next_body(messages, "Why?");
    char *text = json_dumps(body, 0);
    /* By the field 'session', streamed. */
    json_object_set_new(body, "session", json_string("anna"));
    json_object_set_new(body, "stream", json_true());
    json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    char *streamed = json_dumps(body, 0);
    reply r = client_ask(port, "POST", "/v1/chat/completions", NULL, streamed, strlen(streamed));
    assert_int_equal(r.status, 200);
    char cached[64];
    snprintf(cached, sizeof cached, "\"cached_tokens\":%d", tokens);
    if (!strstr(r.body, cached)) fail_msg("%s not in %s", cached, r.body);
    assert_non_null(strstr(r.body, "\"tokens_per_second\""));
    reply_free(&r);
    assert_int_equal(number("GET", "/v1/agents/anna", "", 200, "hits"), 1);
    json_t *now = messages_of("/v1/agents/anna");
    assert_int_equal(json_array_size(now), 4);
    json_decref(now);
    free(text), free(streamed);
    json_decref(body), json_decref(messages);
    /* Only the new message. */
    int before = number("GET", "/v1/agents/anna", "", 200, "tokens");
    j = ask_with("POST", "/v1/agents/anna/generate", NULL, "{\"messages\":[" USER("And you?") "]" REST "}", &status);
    assert_int_equal(status, 200);
    assert_true(int_at(j, "usage.prompt_tokens_details.cached_tokens") >= before - 1);
    json_decref(j);
    messages = messages_of("/v1/agents/anna");
    assert_int_equal(json_array_size(messages), 6);
    json_decref(messages);
    expect("POST", "/v1/agents/nobody/generate", "{\"messages\":[" USER("Hi") "]}", 404);
}

static void other_apis_have_agents_too(void **state) {
    (void)state;
    int status;
    json_t *j = ask_with("POST", "/v1/messages", "X-Agent: claude\r\n", "{\"model\":\"ember\",\"max_tokens\":6,\"system\":\"Be kind.\",\"messages\":[" USER("Hello!") "]}", &status);
    assert_int_equal(status, 200);
    json_decref(j);
    json_t *m = messages_of("/v1/agents/claude");
    assert_string_equal(text_at(m, "0.content"), "Be kind.");
    assert_string_equal(text_at(m, "2.role"), "assistant");
    json_decref(m);
    j = ask_with("POST", "/v1/completions", "X-Agent: writer\r\n", "{\"prompt\":\"Once upon\",\"max_tokens\":5,\"temperature\":0}", &status);
    assert_int_equal(status, 200);
    int tokens = int_at(j, "usage.total_tokens");
    json_decref(j);
    assert_int_equal(number("GET", "/v1/agents/writer", "", 200, "tokens"), tokens);
    expect("POST", "/v1/agents/writer/generate", "{\"messages\":[" USER("Hi") "]}", 400);
    /* Responses, streamed and whole, with the conversation so far. */
    j = ask_with("POST", "/v1/responses", "X-Agent: rosa\r\n", "{\"instructions\":\"Be kind.\",\"input\":\"Hello!\",\"max_output_tokens\":6,\"temperature\":0}", &status);
    assert_int_equal(status, 200);
    tokens = int_at(j, "usage.total_tokens");
    assert_int_equal(number("GET", "/v1/agents/rosa", "", 200, "tokens"), tokens);
    char body[300], remembered[64];
    snprintf(body, sizeof body, "{\"instructions\":\"Be kind.\",\"input\":\"Why?\",\"max_output_tokens\":6,\"temperature\":0,\"session\":\"rosa\",\"stream\":true,\"previous_response_id\":\"%s\"}",
             text_at(j, "id"));
    json_decref(j);
    buf events = stream("/v1/responses", body);
    snprintf(remembered, sizeof remembered, "\"cached_tokens\":%d", tokens);
    if (!strstr(events.data, remembered)) fail_msg("%s not in %s", remembered, events.data);
    buf_free(&events);
    m = messages_of("/v1/agents/rosa");
    assert_int_equal(json_array_size(m), 5);
    assert_string_equal(text_at(m, "3.content"), "Why?");
    json_decref(m);
    /* The field 'user' names one too, where it can be had. */
    expect("POST", "/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":2,\"user\":\"umberto\"}", 200);
    expect("POST", "/v1/completions", "{\"prompt\":[\"A\",\"B\"],\"max_tokens\":2,\"user\":\"umberto\"}", 200);
    expect("POST", "/v1/completions", "{\"prompt\":[\"A\",\"B\"],\"max_tokens\":2,\"session\":\"umberto\"}", 400);
    char long_name[200] = "{\"prompt\":\"Once\",\"max_tokens\":2,\"user\":\"";
    memset(long_name + strlen(long_name), 'x', 100);
    strcat(long_name, "\"}");
    expect("POST", "/v1/completions", long_name, 200);
    j = ask_with("POST", "/v1/completions", "X-Agent: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n", "{\"prompt\":\"Once\"}", &status);
    assert_int_equal(status, 400);
    json_decref(j);
    j = ask_with("POST", "/v1/messages", "X-Agent: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n",
            "{\"model\":\"ember\",\"max_tokens\":6,\"messages\":[" USER("Hello!") "]}", &status);
    assert_int_equal(status, 400);
    assert_string_equal(text_at(j, "type"), "error");
    json_decref(j);
}

/* All at once or some at a time, the last used first. */
static void lists_in_pieces(void **state) {
    (void)state;
    static const char *const names[] = {"p1", "p2", "p@3", "p 4", "p5"};
    char body[60], path[120], after[80] = "", all[1000] = "", pieces[1000] = "";
    for (size_t i = 0; i < 5; i++) {
        snprintf(body, sizeof body, "{\"id\":\"%s\"}", names[i]);
        expect("POST", "/v1/agents", body, 201);
    }
    int status;
    json_t *j = ask_with("GET", "/v1/agents", NULL, "", &status);
    assert_true(json_is_false(at(j, "has_more")));
    size_t n = json_array_size(at(j, "data"));
    for (size_t i = 0; i < n; i++) strcat(strcat(all, text_at(json_array_get(at(j, "data"), i), "id")), "|");
    for (size_t i = 1; i < n; i++) assert_true(int_at(json_array_get(at(j, "data"), i - 1), "last_used") >= int_at(json_array_get(at(j, "data"), i), "last_used"));
    json_decref(j);
    for (bool more = true; more;) {
        snprintf(path, sizeof path, "/v1/agents?limit=2%s%s", after[0] ? "&after=" : "", after);
        j = ask_with("GET", path, NULL, "", &status);
        assert_int_equal(status, 200);
        size_t got = json_array_size(at(j, "data"));
        assert_true(got == 2 || (got == 1 && n % 2));
        for (size_t i = 0; i < got; i++) strcat(strcat(pieces, text_at(json_array_get(at(j, "data"), i), "id")), "|");
        const char *last = text_at(json_array_get(at(j, "data"), got - 1), "id");
        snprintf(after, sizeof after, "%s", strcmp(last, "p 4") == 0 ? "p%204" : strcmp(last, "p@3") == 0 ? "p%403" : last);
        more = json_is_true(at(j, "has_more"));
        json_decref(j);
    }
    assert_string_equal(pieces, all);
    expect("GET", "/v1/agents?limit=0", "", 400);
    expect("GET", "/v1/agents?limit=2x", "", 400);
    expect("GET", "/v1/agents?after=nobody", "", 400);
}

/* An answer that broke off goes on, and is one message of the agent's with what was there. */
static void broken_answers_go_on(void **state) {
    (void)state;
    int status;
#define CUT "{\"role\":\"assistant\",\"content\":\"I am a\"}"
    json_t *j = ask_with("POST", "/v1/chat/completions", "X-Agent: cut\r\n", "{\"messages\":[" USER("Who are you?") "," CUT "],\"continue_final_message\":true" REST "}", &status);
    assert_int_equal(status, 200);
    json_t *m = messages_of("/v1/agents/cut");
    char whole[400];
    snprintf(whole, sizeof whole, "I am a%s", text_at(j, "choices.0.message.content"));
    assert_int_equal(json_array_size(m), 2);
    assert_string_equal(text_at(m, "1.content"), whole);
    json_decref(m);
    json_decref(j);
    expect("POST", "/v1/chat/completions", "{\"messages\":[" USER("Hi") "],\"continue_final_message\":true}", 400);
    expect("POST", "/v1/chat/completions", "{\"messages\":[" USER("Hi") "," CUT "],\"continue_final_message\":true,\"regex\":\"a\"}", 400);
    /* The same tokens as asking for text to go on behind it. */
    j = post("/apply-template", "{\"messages\":[" USER("Who are you?") "]}", &status);
    json_t *body = json_pack("{s:s+, s:f, s:i}", "prompt", text_at(j, "prompt"), "I am a", "temperature", 0.0, "max_tokens", 12);
    char *text = json_dumps(body, 0);
    json_t *plain = post("/v1/completions", text, &status), *again = post("/v1/chat/completions", "{\"messages\":[" USER("Who are you?") "," CUT "],\"continue_final_message\":true" REST "}", &status);
    assert_string_equal(text_at(plain, "choices.0.text"), text_at(again, "choices.0.message.content"));
    free(text);
    json_decref(body), json_decref(plain), json_decref(again), json_decref(j);
}

/* The calls of an answer are kept as the client saw them, and the agent goes on from the tokens that the model wrote. */
static void calls_are_calls(void **state) {
    (void)state;
    int status;
    static const char tools[] = "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"enum\":[\"Rome\",\"Oslo\"]}},"
                                "\"required\":[\"city\"],\"additionalProperties\":false}}}]";
    char body[1200];
    snprintf(body, sizeof body, "{\"messages\":[" USER("Weather?") "],%s,\"tool_choice\":\"required\",\"temperature\":0}", tools);
    json_t *j = ask_with("POST", "/v1/chat/completions", "X-Agent: caller\r\n", body, &status);
    assert_int_equal(status, 200);
    json_t *m = messages_of("/v1/agents/caller");
    assert_int_equal(json_array_size(m), 2);
    assert_true(json_is_null(at(m, "1.content")));
    assert_null(at(m, "1.written"));
    assert_true(json_equal(at(m, "1.tool_calls"), at(j, "choices.0.message.tool_calls")));
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"%s\",\"content\":\"sunny\"}],%s" REST "}", text_at(m, "1.tool_calls.0.id"), tools);
    int before = number("GET", "/v1/agents/caller", "", 200, "tokens");
    json_decref(j);
    j = ask_with("POST", "/v1/agents/caller/generate", NULL, body, &status);
    if (status != 200) fail_msg("%s", json_dumps(j, 0));
    assert_true(int_at(j, "usage.prompt_tokens_details.cached_tokens") >= before);
    json_decref(j);
    json_decref(m);
    m = messages_of("/v1/agents/caller");
    assert_int_equal(json_array_size(m), 4);
    assert_string_equal(text_at(m, "1.tool_calls.0.function.name"), "weather"); /* still */
    json_decref(m);
    expect("POST", "/v1/agents/caller/rewind", "{\"messages\":2}", 200);
    /* Nobody else may say what was written. */
    expect("POST", "/v1/agents/caller/generate", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"written\":\"y\"}]}", 400);
}

static void forks_and_rewinds(void **state) {
    (void)state;
    expect("POST", "/v1/agents", "{\"id\":\"root\"}", 201);
    expect("POST", "/v1/agents", "{\"id\":\"root\"}", 409);
    expect("POST", "/v1/agents", "{\"id\":\"x\",\"from\":\"nobody\"}", 404);
    assert_int_equal(number("GET", "/v1/agents/root", "", 200, "tokens"), 0);
    int turn = number("POST", "/v1/agents/root/generate", "{\"messages\":[" USER("Tell me about the sea and the ships that sail on it, please, and take your time.") "]" REST "}", 200, "usage.total_tokens");
    expect("POST", "/v1/agents/root/generate", "{\"messages\":[" USER("What is the name of the captain, and where does he come from? I would like to know.") "]" REST "}", 200);
    int tokens = number("GET", "/v1/agents/root", "", 200, "tokens");
    assert_int_equal(number("POST", "/v1/agents/root/fork", "{\"id\":\"branch\"}", 201, "tokens"), tokens);
    expect("POST", "/v1/agents/root/fork", "{\"id\":\"branch\"}", 409);
    /* Both answer the same, from what is known. */
    int status;
    json_t *a = ask_with("POST", "/v1/agents/root/generate", NULL, "{\"messages\":[" USER("Why?") "]" REST "}", &status);
    json_t *b = ask_with("POST", "/v1/agents/branch/generate", NULL, "{\"messages\":[" USER("Why?") "]" REST "}", &status);
    assert_string_equal(text_at(a, "choices.0.message.content"), text_at(b, "choices.0.message.content"));
    assert_true(int_at(b, "usage.prompt_tokens_details.cached_tokens") >= tokens);
    json_decref(b);
    /* Back to before that question, and again. */
    int shorter = number("POST", "/v1/agents/branch/rewind", "{\"messages\":4}", 200, "tokens");
    assert_true(shorter >= tokens && shorter <= tokens + 3); /* the end of the answer, which the next turn brought */
    b = ask_with("POST", "/v1/agents/branch/generate", NULL, "{\"messages\":[" USER("Why?") "]" REST "}", &status);
    assert_string_equal(text_at(a, "choices.0.message.content"), text_at(b, "choices.0.message.content"));
    json_decref(a), json_decref(b);
    /* To the end of the first answer, with the two tokens that end it; a token less cuts into that message. */
    char where[40];
    snprintf(where, sizeof where, "{\"tokens\":%d}", turn + 2);
    assert_int_equal(number("POST", "/v1/agents/branch/rewind", where, 200, "tokens"), turn + 2);
    json_t *m = messages_of("/v1/agents/branch");
    assert_int_equal(json_array_size(m), 2);
    json_decref(m);
    snprintf(where, sizeof where, "{\"tokens\":%d}", turn - 1);
    expect("POST", "/v1/agents/branch/rewind", where, 200);
    m = messages_of("/v1/agents/branch");
    assert_int_equal(json_array_size(m), 1);
    json_decref(m);
    expect("POST", "/v1/agents/branch/rewind", "{\"tokens\":5000}", 400);
    expect("POST", "/v1/agents/branch/rewind", "{\"messages\":9}", 400);
    expect("POST", "/v1/agents/branch/rewind", "{\"messages\":1,\"tokens\":2}", 400);
    expect("POST", "/v1/agents/branch/rewind", "{}", 400);
    assert_int_equal(number("POST", "/v1/agents/branch/rewind", "{\"messages\":0}", 200, "tokens"), 0);
    expect("POST", "/v1/agents/nobody/rewind", "{\"messages\":0}", 404);
    expect("POST", "/v1/agents/branch/fly", "{}", 404);
    expect("PUT", "/v1/agents/branch", "{}", 405);
}

static void pins_evicts_and_forgets(void **state) {
    (void)state;
    int status;
    expect("POST", "/v1/agents", "{\"id\":\"pia\"}", 201);
    expect("POST", "/v1/agents/pia/generate", "{\"messages\":[" USER("A long and winding question about the weather of tomorrow, and of the day after, and of the whole week, in all the cities of the world: what shall I wear, and when shall I go out, and will it rain or snow or shine?") "]" REST "}", 200);
    int tokens = number("GET", "/v1/agents/pia", "", 200, "tokens");
    assert_true(tokens > 64);
    json_t *j = ask_with("POST", "/v1/agents/pia/pin", NULL, "{\"pinned\":true}", &status);
    assert_true(status == 200 && json_is_true(at(j, "pinned")));
    json_decref(j);
    j = ask_with("POST", "/v1/agents/pia/pin", NULL, "{\"pinned\":false}", &status);
    assert_true(status == 200 && json_is_false(at(j, "pinned")));
    json_decref(j);
    expect("POST", "/v1/agents/pia/pin", "{}", 400);
    expect_tier("/v1/agents/pia", "hot");
    j = ask_with("POST", "/v1/agents/pia/evict", NULL, "{}", &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_at(j, "tier"), "warm");
    json_decref(j);
    j = ask_with("POST", "/v1/agents/pia/generate", NULL, "{\"messages\":[" USER("Why?") "]" REST "}", &status);
    assert_int_equal(int_at(j, "usage.prompt_tokens_details.cached_tokens"), tokens);
    json_decref(j);
    j = ask_with("GET", "/v1/agents", NULL, "", &status);
    assert_string_equal(text_at(j, "object"), "list");
    size_t n = json_array_size(at(j, "data"));
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        const json_t *agent = json_array_get(at(j, "data"), i);
        if (i > 0) assert_true(int_at(agent, "last_used") <= int_at(json_array_get(at(j, "data"), i - 1), "last_used"));
        if (strcmp(text_at(agent, "id"), "pia") != 0) continue;
        found = true;
        assert_int_equal(strncmp(text_at(agent, "title"), "A long and winding", 18), 0);
        assert_true(int_at(agent, "bytes") > 0 && json_is_false(at(agent, "running")));
        assert_string_equal(text_at(agent, "model"), "ember");
    }
    assert_true(found);
    json_decref(j);
    j = ask_with("DELETE", "/v1/agents/pia", NULL, "", &status);
    assert_true(status == 200 && json_is_true(at(j, "deleted")));
    json_decref(j);
    expect("DELETE", "/v1/agents/pia", "", 404);
    expect("GET", "/v1/agents/pia", "", 404);
}

/* One that runs cannot be changed; a second request waits for it. */
/* It never ends by itself: the tokens that would end it are banned, because an ending that is passed over is among the agent's tokens and not in its text. */
static void *long_answer(void *user) {
    int *tokens = user;
    *tokens = number("POST", "/v1/agents/busy/generate", "{\"messages\":[" USER("Tell me a story.") "],\"logit_bias\":{\"0\":-100,\"1\":-100,\"2\":-100},\"max_tokens\":150}", 200, "usage.total_tokens");
    return NULL;
}

static void one_request_at_a_time(void **state) {
    (void)state;
    int first = 0, status;
    pthread_t thread;
    expect("POST", "/v1/agents", "{\"id\":\"busy\"}", 201);
    assert_int_equal(pthread_create(&thread, NULL, long_answer, &first), 0);
    uint64_t until = clock_ns() + 20000000000u;
    for (bool running = false; !running && clock_ns() < until;) {
        json_t *j = ask_with("GET", "/v1/agents/busy", NULL, "", &status);
        running = json_is_true(at(j, "running"));
        json_decref(j);
    }
    expect("DELETE", "/v1/agents/busy", "", 409);
    expect("POST", "/v1/agents/busy/rewind", "{\"messages\":0}", 409);
    /* It is where it was, and can be forked from there. */
    assert_int_equal(number("POST", "/v1/agents/busy/fork", "{\"id\":\"idle\"}", 201, "tokens"), 0);
    json_t *j = NULL;
    do { /* on a slow machine the first answer takes longer than a request waits */
        json_decref(j);
        j = ask_with("POST", "/v1/agents/busy/generate", NULL, "{\"messages\":[" USER("Why?") "]" REST "}", &status);
    } while (status == 409);
    pthread_join(thread, NULL);
    assert_int_equal(status, 200);
    assert_true(int_at(j, "usage.prompt_tokens_details.cached_tokens") >= first - 1);
    json_decref(j);
    json_t *m = messages_of("/v1/agents/busy");
    assert_int_equal(json_array_size(m), 4);
    json_decref(m);
}

/* A client that leaves: the agent is as before, and free. */
static void leaving_changes_nothing(void **state) {
    (void)state;
    expect("POST", "/v1/agents", "{\"id\":\"left\"}", 201);
    int fd = client_open(port);
    const char *body = "{\"messages\":[" USER("Tell me a long story.") "],\"ignore_eos\":true,\"stream\":true}";
    char head[400];
    snprintf(head, sizeof head, "POST /v1/agents/left/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    client_write(fd, head, strlen(head));
    buf in = {0};
    while (in.len < 500 && client_read(fd, &in)) {}
    buf_free(&in);
    close(fd);
    expect("POST", "/v1/agents/left/generate", "{\"messages\":[" USER("Hello!") "]" REST "}", 200);
    json_t *m = messages_of("/v1/agents/left");
    assert_int_equal(json_array_size(m), 2);
    json_decref(m);
}

static double metric(const char *text, const char *name) {
    const char *line = strstr(text, name);
    while (line && line != text && line[-1] != '\n') line = strstr(line + 1, name);
    if (!line) fail_msg("no %s", name);
    return strtod(line + strlen(name), NULL);
}

static void metrics_agree(void **state) {
    (void)state;
    static const char *const names[] = {"hearth_prompt_tokens_total ", "hearth_completion_tokens_total ", "hearth_prompt_tokens_remembered_total ", "hearth_requests_total ",
                                        "hearth_answers_finished_total ", "hearth_kv_hits_total ", "hearth_store_saves_total "};
    double counted[7] = {0}, before[7], hot, warm;
    reply r = client_ask(port, "GET", "/metrics", NULL, "", 0);
    for (int i = 0; i < 7; i++) before[i] = metric(r.body, names[i]);
    reply_free(&r);
    int status;
    for (int i = 0; i < 6; i++) {
        char header[40], body[400];
        snprintf(header, sizeof header, "X-Agent: m%d\r\n", i % 3);
        if (i >= 3) expect("POST", i == 3 ? "/v1/agents/m0/evict" : i == 4 ? "/v1/agents/m1/evict" : "/v1/agents/m2/evict", "{}", 200);
        snprintf(body, sizeof body, "{\"messages\":[" USER("Count me in, number %d, and do it well, for I am going to count all of this too, and the sums must be the same in the end, mustn't they? Indeed they must.") "]" REST "}", i % 3);
        json_t *j = ask_with("POST", "/v1/chat/completions", header, body, &status);
        assert_int_equal(status, 200);
        counted[0] += int_at(j, "usage.prompt_tokens");
        counted[1] += int_at(j, "usage.completion_tokens");
        int cached = int_at(j, "usage.prompt_tokens_details.cached_tokens");
        counted[2] += cached;
        counted[3]++, counted[4]++, counted[6]++;
        counted[5] += cached > 0;
        if (i >= 3) assert_int_equal(cached, int_at(j, "usage.prompt_tokens") - 1);
        json_decref(j);
    }
    r = client_ask(port, "GET", "/metrics", NULL, "", 0);
    for (int i = 0; i < 7; i++)
        if (metric(r.body, names[i]) - before[i] != counted[i]) fail_msg("%s: %g, not %g", names[i], metric(r.body, names[i]) - before[i], counted[i]);
    hot = metric(r.body, "hearth_kv_tokens_remembered_total{tier=\"hot\"} ");
    warm = metric(r.body, "hearth_kv_tokens_remembered_total{tier=\"warm\"} ");
    assert_true(hot + warm == metric(r.body, names[2]) && warm > 64);
    assert_true(metric(r.body, "hearth_kv_saved_seconds_total{tier=\"hot\"} ") > 0 && metric(r.body, "hearth_kv_saved_seconds_total{tier=\"warm\"} ") > 0);
    assert_true(metric(r.body, "hearth_kv_bytes{tier=\"warm\"} ") > 0 && metric(r.body, "hearth_kv_evictions_total{tier=\"hot\"} ") > 0);
    reply_free(&r);
}

static void remembers_after_a_restart(void **state) {
    int status;
    expect("POST", "/v1/agents/root/generate", "{\"messages\":[" USER("What is your name?") "]" REST "}", 200);
    json_t *messages = messages_of("/v1/agents/root");
    int tokens = number("GET", "/v1/agents/root", "", 200, "tokens");
    stop(state);
    assert_int_equal(start(state), 0);
    json_t *again = messages_of("/v1/agents/root");
    assert_true(json_equal(messages, again));
    expect_tier("/v1/agents/root", "warm");
    json_t *j = ask_with("POST", "/v1/agents/root/generate", NULL, "{\"messages\":[" USER("Why?") "]" REST "}", &status);
    assert_int_equal(int_at(j, "usage.prompt_tokens_details.cached_tokens"), tokens);
    json_decref(j), json_decref(messages), json_decref(again);
    /* With other types of keys and values only its tokens are of use: long conversations and such that fill no block. */
    expect("POST", "/v1/agents", "{\"id\":\"short\"}", 201);
    expect("POST", "/v1/agents/short/generate", "{\"messages\":[" USER("Hi") "],\"max_tokens\":1}", 200);
    stop(state);
    kv_type = "q8_0";
    assert_int_equal(start(state), 0);
    expect_tier("/v1/agents/root", "cold");
    expect_tier("/v1/agents/short", "cold");
    j = ask_with("POST", "/v1/agents/root/generate", NULL, "{\"messages\":[" USER("Why?") "]" REST "}", &status);
    assert_true(status == 200 && int_at(j, "usage.prompt_tokens_details.cached_tokens") == 0 && int_at(j, "usage.prompt_tokens") > tokens);
    json_decref(j);
    expect_tier("/v1/agents/root", "hot");
    stop(state);
    assert_int_equal(start(state), 0);
    expect_tier("/v1/agents/root", "warm");
    stop(state);
    kv_type = NULL;
    assert_int_equal(start(state), 0);
    expect_tier("/v1/agents/root", "cold");
    expect_tier("/v1/agents/short", "warm");
}

static void without_a_store(void **state) {
    int status;
    stop(state);
    folder[0] = 0;
    assert_int_equal(start(state), 0);
    json_t *j = ask_with("POST", "/v1/chat/completions", "X-Agent: anna\r\n", "{\"messages\":[" USER("Hello!") "]" REST "}", &status);
    assert_int_equal(status, 400);
    assert_non_null(strstr(text_at(j, "error.message"), "store"));
    json_decref(j);
    expect("GET", "/v1/agents", "", 400);
    expect("POST", "/v1/chat/completions", "{\"user\":\"anna\",\"messages\":[" USER("Hello!") "]" REST "}", 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chats_go_on),           cmocka_unit_test(other_apis_have_agents_too), cmocka_unit_test(forks_and_rewinds),
        cmocka_unit_test(broken_answers_go_on),  cmocka_unit_test(calls_are_calls),       cmocka_unit_test(lists_in_pieces),
        cmocka_unit_test(pins_evicts_and_forgets), cmocka_unit_test(one_request_at_a_time),    cmocka_unit_test(leaving_changes_nothing),
        cmocka_unit_test(metrics_agree),         cmocka_unit_test(remembers_after_a_restart),  cmocka_unit_test(without_a_store),
    };
    return cmocka_run_group_tests(tests, start_with_store, stop);
}
