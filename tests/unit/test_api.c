/* test_api.c: the routes, over HTTP, with the default model. */
#include <pthread.h>

#include "base/clock.h"
#include "unit/api_kit.h"

static int start(void **state) {
    (void)state;
    static const char *const aliases[] = {"gpt-test", NULL};
    kit_aliases = aliases;
    return kit_start("models/ember-30m-q8_0.gguf", NULL);
}

static int stop(void **state) {
    (void)state;
    kit_stop();
    return 0;
}

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"Hello! Who are you?\"}],\"temperature\":0"

static void test_chat(void **state) {
    (void)state;
    int status;
    json_t *j = post("/v1/chat/completions", "{\"model\":\"ember\"," HELLO ",\"max_completion_tokens\":8}", &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_at(j, "object"), "chat.completion");
    assert_string_equal(text_at(j, "choices.0.finish_reason"), "length");
    assert_string_equal(text_at(j, "choices.0.message.role"), "assistant");
    assert_int_equal(int_at(j, "usage.completion_tokens"), 8);
    assert_int_equal(int_at(j, "usage.total_tokens"), 8 + int_at(j, "usage.prompt_tokens"));
    char *first = strdup(text_at(j, "choices.0.message.content"));
    json_decref(j);
    /* Again, as parts, by another role's name and another name of the model: the same text, and remembered. */
    j = post("/v1/chat/completions",
             "{\"model\":\"gpt-test\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hello! \"},{\"type\":\"text\",\"text\":\"Who are you?\"}]}],"
             "\"temperature\":0,\"max_tokens\":8,\"n\":2,\"logprobs\":true,\"top_logprobs\":3,\"seed\":5,\"user\":\"x\",\"stop\":null,\"tools\":[],\"response_format\":{\"type\":\"text\"}}",
             &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_at(j, "choices.0.message.content"), first);
    assert_string_equal(text_at(j, "choices.1.message.content"), first);
    assert_int_equal(int_at(j, "usage.prompt_tokens_details.cached_tokens"), int_at(j, "usage.prompt_tokens") - 1);
    assert_int_equal(int_at(j, "usage.completion_tokens"), 16);
    assert_int_equal(json_array_size(at(j, "choices.1.logprobs.content")), 8);
    assert_int_equal(json_array_size(at(j, "choices.1.logprobs.content.0.top_logprobs")), 3);
    assert_string_equal(text_at(j, "choices.0.logprobs.content.0.token"), text_at(j, "choices.0.logprobs.content.0.top_logprobs.0.token"));
    json_decref(j);
    free(first);
}

static void test_chat_stream(void **state) {
    (void)state;
    int status;
    json_t *whole = post("/v1/chat/completions", "{" HELLO ",\"stop\":[\"little\"]}", &status);
    buf events = stream("/v1/chat/completions", "{" HELLO ",\"stop\":\"little\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    buf text = {0};
    char *rest = NULL;
    const char *finish = NULL;
    int usage = -1;
    bool done = false;
    for (char *line = strtok_r(events.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        assert_false(done);
        assert_int_equal(strncmp(line, "data: ", 6), 0);
        if ((done = strcmp(line, "data: [DONE]") == 0)) continue;
        json_t *j = json_loads(line + 6, 0, NULL);
        assert_string_equal(text_at(j, "object"), "chat.completion.chunk");
        const json_t *content = at(j, "choices.0.delta.content");
        if (content) assert_true(buf_adds(&text, json_string_value(content), NULL));
        if (json_is_string(at(j, "choices.0.finish_reason"))) finish = strcmp(text_at(j, "choices.0.finish_reason"), "stop") == 0 ? "stop" : "other";
        if (json_is_object(at(j, "usage"))) usage = int_at(j, "usage.completion_tokens");
        json_decref(j);
    }
    assert_true(done);
    assert_string_equal(finish, "stop");
    assert_int_equal(usage, int_at(whole, "usage.completion_tokens"));
    assert_string_equal(text.data, text_at(whole, "choices.0.message.content"));
    assert_null(strstr(text.data, "little"));
    buf_free(&text);
    buf_free(&events);
    json_decref(whole);
}

static void test_completions(void **state) {
    (void)state;
    int status;
    json_t *j = post("/v1/completions", "{\"prompt\":[\"Once upon\",\"The\"],\"max_tokens\":4,\"temperature\":0,\"logprobs\":2,\"n\":2}", &status);
    assert_int_equal(status, 200);
    assert_int_equal(json_array_size(at(j, "choices")), 4);
    assert_int_equal(int_at(j, "choices.3.index"), 3);
    assert_string_equal(text_at(j, "choices.2.text"), text_at(j, "choices.3.text"));
    assert_int_equal(json_array_size(at(j, "choices.0.logprobs.tokens")), 4);
    json_decref(j);
    j = post("/v1/completions", "{\"prompt\":\"Once upon\",\"max_tokens\":1,\"echo\":true,\"temperature\":0}", &status);
    assert_int_equal(status, 200);
    assert_int_equal(strncmp(text_at(j, "choices.0.text"), "Once upon", 9), 0);
    json_decref(j);
    j = post("/v1/completions", "{\"prompt\":[5,6,7],\"max_tokens\":1}", &status);
    assert_int_equal(status, 200);
    assert_int_equal(int_at(j, "usage.prompt_tokens"), 3);
    json_decref(j);
    buf events = stream("/v1/completions", "{\"prompt\":[\"A\",\"B\"],\"max_tokens\":2,\"stream\":true}");
    assert_non_null(strstr(events.data, "\"index\":1"));
    assert_non_null(strstr(events.data, "data: [DONE]\n\n"));
    buf_free(&events);
}

static void test_bias_and_penalties(void **state) {
    (void)state;
    int status;
    /* Only one token is possible, then none but it. */
    json_t *j = post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":3,\"temperature\":0,\"logit_bias\":{\"300\":100}}", &status);
    json_t *t = post("/detokenize", "{\"tokens\":[300,300,300]}", &status);
    assert_string_equal(text_at(j, "choices.0.text"), text_at(t, "content"));
    json_decref(j);
    json_decref(t);
    j = post("/v1/completions", "{\"prompt\":\"Once upon\",\"max_tokens\":24,\"temperature\":0,\"frequency_penalty\":2,\"presence_penalty\":2,\"ignore_eos\":true}", &status);
    assert_int_equal(status, 200);
    assert_int_equal(int_at(j, "usage.completion_tokens"), 24);
    json_decref(j);
}

static void test_messages(void **state) {
    (void)state;
    int status;
    json_t *j = post("/v1/messages", "{\"model\":\"ember\",\"max_tokens\":40,\"system\":[{\"type\":\"text\",\"text\":\"Be kind.\",\"cache_control\":{\"type\":\"ephemeral\"}}]," HELLO
                                     ",\"stop_sequences\":[\"little\"]}", &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_at(j, "type"), "message");
    assert_string_equal(text_at(j, "content.0.type"), "text");
    int made = int_at(j, "usage.cache_creation_input_tokens"), all = int_at(j, "usage.input_tokens") + int_at(j, "usage.cache_read_input_tokens") + made;
    assert_true(made > 0 && int_at(j, "usage.input_tokens") > 0); /* the system text was asked to be kept, the rest was not */
    char *text = strdup(text_at(j, "content.0.text"));
    json_decref(j);
    j = post("/v1/messages/count_tokens", "{\"model\":\"ember\",\"system\":\"Be kind.\"," HELLO "}", &status);
    assert_int_equal(status, 200);
    assert_int_equal(int_at(j, "input_tokens"), all);
    json_decref(j);
    buf events = stream("/v1/messages", "{\"model\":\"ember\",\"max_tokens\":40,\"system\":\"Be kind.\",\"stream\":true," HELLO ",\"stop_sequences\":[\"little\"]}");
    static const char *const order[] = {"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"};
    const char *from = events.data;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        char line[64];
        snprintf(line, sizeof line, "event: %s\ndata: {\"type\":\"%s\"", order[i], order[i]);
        from = strstr(from, line);
        if (!from) fail_msg("no %s in its place", order[i]);
    }
    buf joined = {0};
    for (const char *p = events.data; (p = strstr(p, "\"text_delta\",\"text\":\"")); p++) {
        p += strlen("\"text_delta\",\"text\":\"");
        assert_true(buf_add(&joined, p, strcspn(p, "\""), NULL));
    }
    assert_string_equal(joined.data ? joined.data : "", text);
    buf_free(&joined);
    buf_free(&events);
    free(text);
    j = post("/v1/messages", "{\"model\":\"ember\"," HELLO "}", &status);
    assert_int_equal(status, 400);
    assert_string_equal(text_at(j, "type"), "error");
    assert_string_equal(text_at(j, "error.type"), "invalid_request_error");
    assert_non_null(strstr(text_at(j, "error.message"), "max_tokens"));
    json_decref(j);
}

#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"enum\":[\"Rome\",\"Oslo\"]}}," \
              "\"required\":[\"city\"],\"additionalProperties\":false}}},{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]"

static void test_shapes(void **state) {
    (void)state;
    int status;
    json_t *j = post("/v1/chat/completions", "{" HELLO ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"strict\":true,\"schema\":{\"type\":\"object\","
                     "\"properties\":{\"yes\":{\"type\":\"boolean\"},\"n\":{\"enum\":[1,2]}},\"required\":[\"yes\",\"n\"],\"additionalProperties\":false}}}}", &status);
    assert_int_equal(status, 200);
    json_t *made = json_loads(text_at(j, "choices.0.message.content"), 0, NULL);
    assert_true(json_is_boolean(at(made, "yes")) && json_is_integer(at(made, "n")));
    json_decref(made);
    json_decref(j);
    for (int i = 0; i < 2; i++) { /* the second time it is kept */
        j = post("/v1/chat/completions", "{" HELLO ",\"regex\":\"(red|green) [0-9]{3}\"}", &status);
        assert_int_equal(status, 200);
        assert_non_null(strchr(text_at(j, "choices.0.message.content"), ' '));
        assert_string_equal(text_at(j, "choices.0.finish_reason"), "stop");
        json_decref(j);
    }
    j = post("/v1/completions", "{\"prompt\":\"Colours:\",\"grammar\":\"root ::= \\\"blue\\\"\"}", &status);
    assert_string_equal(text_at(j, "choices.0.text"), "blue");
    json_decref(j);
}

static void test_calls(void **state) {
    (void)state;
    int status;
    json_t *j = post("/v1/chat/completions", "{" HELLO "," TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"weather\"}}}", &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_at(j, "choices.0.finish_reason"), "tool_calls");
    assert_true(json_is_null(at(j, "choices.0.message.content")));
    assert_string_equal(text_at(j, "choices.0.message.tool_calls.0.function.name"), "weather");
    assert_non_null(strstr(text_at(j, "choices.0.message.tool_calls.0.function.arguments"), "\"city\""));
    json_decref(j);
    buf events = stream("/v1/chat/completions", "{" HELLO "," TOOLS ",\"tool_choice\":\"required\",\"stream\":true}");
    assert_non_null(strstr(events.data, "\"tool_calls\":[{\"id\":\"call_"));
    assert_non_null(strstr(events.data, "\"finish_reason\":\"tool_calls\""));
    buf_free(&events);
    /* The turn after a call, and tools that need not be used. */
    j = post("/v1/chat/completions",
             "{\"messages\":[{\"role\":\"user\",\"content\":\"Weather?\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"weather\","
             "\"arguments\":\"{\\\"city\\\":\\\"Rome\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"sunny\"}]," TOOLS ",\"max_tokens\":8}", &status);
    assert_int_equal(status, 200);
    json_decref(j);
    j = post("/v1/messages", "{\"model\":\"ember\",\"max_tokens\":60," HELLO ",\"tools\":[{\"name\":\"now\",\"input_schema\":{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}}],"
                             "\"tool_choice\":{\"type\":\"any\"}}", &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_at(j, "stop_reason"), "tool_use");
    assert_string_equal(text_at(j, "content.0.type"), "tool_use");
    assert_string_equal(text_at(j, "content.0.name"), "now");
    assert_true(json_is_object(at(j, "content.0.input")));
    json_decref(j);
}

static void test_text_routes(void **state) {
    (void)state;
    int status;
    json_t *j = post("/apply-template", "{" "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]" "}", &status);
    assert_string_equal(text_at(j, "prompt"), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    json_decref(j);
    j = post("/tokenize", "{\"content\":\"Grüße, 世界! \\u0000 <|im_end|>\"}", &status);
    assert_int_equal(status, 200);
    char *dumped = json_dumps(j, 0);
    json_t *back = post("/detokenize", dumped, &status);
    assert_int_equal(status, 200);
    const json_t *content = at(back, "content");
    assert_memory_equal(json_string_value(content), "Grüße, 世界! \0 <|im_end|>", json_string_length(content));
    free(dumped);
    json_decref(back);
    json_decref(j);
    /* Half a character is shown as such. */
    j = post("/detokenize", "{\"tokens\":[160]}", &status);
    assert_int_equal(status, 200);
    json_decref(j);
    reply r = client_ask(port, "GET", "/metrics", NULL, "", 0);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\nhearth_completion_tokens_total "));
    assert_non_null(strstr(r.body, "hearth_first_token_seconds_bucket{le=\"+Inf\"} "));
    reply_free(&r);
    static const char *const pages[] = {"/", "/app.js", "/style.css", "/markdown.js", "/icon.svg", "/health", "/v1/models", "/v1/models/ember"};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        r = client_ask(port, "GET", pages[i], NULL, "", 0);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *path, *body;
        int status;
        const char *param;
    } wrong[] = {
        {"/v1/chat/completions", "", 400, NULL},
        {"/v1/chat/completions", "{", 400, NULL},
        {"/v1/chat/completions", "[]", 400, NULL},
        {"/v1/chat/completions", "{\"messages\":1}", 400, "messages"},
        {"/v1/chat/completions", "{}", 400, "messages"},
        {"/v1/chat/completions", "{\"messages\":[]}", 400, "messages"},
        {"/v1/chat/completions", "{\"messages\":[1]}", 400, "messages"},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]}", 400, "messages"},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages"},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400, "messages"},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"speed\":1}]}", 400, "messages"},
        {"/v1/chat/completions", "{" HELLO ",\"speed\":1}", 400, "speed"},
        {"/v1/chat/completions", "{" HELLO ",\"model\":\"gpt-9\"}", 404, "model"},
        {"/v1/chat/completions", "{" HELLO ",\"max_tokens\":0}", 400, "max_tokens"},
        {"/v1/chat/completions", "{" HELLO ",\"max_tokens\":1.5}", 400, "max_tokens"},
        {"/v1/chat/completions", "{" HELLO ",\"max_tokens\":1e300}", 400, "max_tokens"},
        {"/v1/chat/completions", "{" HELLO ",\"n\":0}", 400, "n"},
        {"/v1/chat/completions", "{" HELLO ",\"n\":100}", 400, NULL},
        {"/v1/chat/completions", "{" HELLO ",\"top_p\":2}", 400, "top_p"},
        {"/v1/chat/completions", "{" HELLO ",\"stream\":\"yes\"}", 400, "stream"},
        {"/v1/chat/completions", "{" HELLO ",\"stream_options\":{}}", 400, "stream_options"},
        {"/v1/chat/completions", "{" HELLO ",\"stop\":[\"a\",\"\"]}", 400, "stop"},
        {"/v1/chat/completions", "{" HELLO ",\"stop\":{}}", 400, "stop"},
        {"/v1/chat/completions", "{" HELLO ",\"logit_bias\":{\"-1\":1}}", 400, "logit_bias"},
        {"/v1/chat/completions", "{" HELLO ",\"logit_bias\":{\"1\":1e9}}", 400, "logit_bias"},
        {"/v1/chat/completions", "{" HELLO ",\"top_logprobs\":3}", 400, "top_logprobs"},
        {"/v1/chat/completions", "{" HELLO ",\"tools\":[{\"type\":\"function\",\"function\":{}}]}", 400, "tools"},
        {"/v1/chat/completions", "{" HELLO ",\"tool_choice\":\"required\"}", 400, "tool_choice"},
        {"/v1/chat/completions", "{" HELLO ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}}", 400,
         "tool_choice"},
        {"/v1/chat/completions", "{" HELLO ",\"response_format\":{\"type\":\"xml\"}}", 400, "response_format"},
        {"/v1/chat/completions", "{" HELLO ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}}", 400, "response_format"},
        {"/v1/chat/completions", "{" HELLO ",\"response_format\":{\"type\":\"json_object\"},\"regex\":\"a\"}", 400, "regex"},
        {"/v1/chat/completions", "{" HELLO ",\"grammar\":\"root ::= (\"}", 400, "grammar"},
        {"/v1/chat/completions", "{" HELLO ",\"regex\":\"a\",\"ignore_eos\":true}", 400, "ignore_eos"},
        {"/v1/chat/completions", "{" HELLO ",\"functions\":[]}", 400, "functions"},
        {"/v1/chat/completions", "{" HELLO ",\"store\":true}", 400, "store"},
        {"/v1/completions", "{}", 400, "prompt"},
        {"/v1/completions", "{\"prompt\":\"\"}", 400, "prompt"},
        {"/v1/completions", "{\"prompt\":[[1],\"a\",{}]}", 400, "prompt"},
        {"/v1/completions", "{\"prompt\":[99999999]}", 400, "prompt"},
        {"/v1/completions", "{\"prompt\":\"a\",\"suffix\":\"b\"}", 400, "suffix"},
        {"/v1/completions", "{\"prompt\":\"a\",\"best_of\":5}", 400, "best_of"},
        {"/tokenize", "{\"content\":5}", 400, "content"},
        {"/detokenize", "{\"tokens\":[-1]}", 400, "tokens"},
        {"/v1/nothing", "{}", 404, NULL},
        {"/v1/models", "{}", 405, NULL},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int status;
        json_t *j = post(wrong[i].path, wrong[i].body, &status);
        const char *param = json_string_value(at(j, "error.param"));
        if (status != wrong[i].status || (wrong[i].param && (!param || strcmp(param, wrong[i].param) != 0)))
            fail_msg("%s %s: %d, param %s: %s", wrong[i].path, wrong[i].body, status, param ? param : "null", text_at(j, "error.message"));
        assert_true(strlen(text_at(j, "error.message")) > 5);
        json_decref(j);
    }
}

/* A prompt that does not fit, deep nesting, a large body, broken UTF-8. */
static void test_hostile_bodies(void **state) {
    (void)state;
    int status;
    buf b = {0};
    assert_true(buf_adds(&b, "{\"messages\":[{\"role\":\"user\",\"content\":\"", NULL));
    for (int i = 0; i < 4000; i++) assert_true(buf_adds(&b, "word and ", NULL));
    assert_true(buf_adds(&b, "\"}]}", NULL));
    json_t *j = post("/v1/chat/completions", b.data, &status);
    assert_int_equal(status, 400);
    assert_string_equal(text_at(j, "error.code"), "context_length_exceeded");
    json_decref(j);
    b.len = 0;
    for (int i = 0; i < 100000; i++) assert_true(buf_addc(&b, '[', NULL));
    j = post("/v1/chat/completions", b.data, &status);
    assert_int_equal(status, 400);
    json_decref(j);
    b.len = 0;
    assert_true(buf_adds(&b, "{\"chat_template_kwargs\":", NULL));
    for (int i = 0; i < 1500; i++) assert_true(buf_adds(&b, "{\"a\":", NULL));
    assert_true(buf_adds(&b, "1", NULL));
    for (int i = 0; i < 1501; i++) assert_true(buf_addc(&b, '}', NULL));
    j = post("/v1/chat/completions", b.data, &status);
    assert_int_equal(status, 400);
    json_decref(j);
    b.len = 0;
    for (int i = 0; i < (1 << 20) + 1; i++) assert_true(buf_addc(&b, ' ', NULL));
    j = post("/v1/chat/completions", b.data, &status);
    assert_int_equal(status, 413);
    json_decref(j);
    j = post("/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}", &status);
    assert_int_equal(status, 400);
    json_decref(j);
    buf_free(&b);
}

/* Good requests with bytes changed, dropped and repeated: always a reply in JSON, never 5xx. */
static void test_damaged_requests(void **state) {
    (void)state;
    static const char *const good[][2] = {
        {"/v1/chat/completions", "{" HELLO "," TOOLS ",\"max_tokens\":1,\"timeout\":5,\"stop\":[\"a\"],\"logit_bias\":{\"5\":-1},\"logprobs\":true}"},
        {"/v1/completions", "{\"prompt\":[\"a\",\"b\"],\"max_tokens\":1,\"timeout\":5,\"n\":2,\"echo\":true}"},
        {"/v1/messages", "{\"model\":\"ember\",\"max_tokens\":1,\"system\":[{\"type\":\"text\",\"text\":\"x\"}]," HELLO "}"},
        {"/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}],\"chat_template_kwargs\":{\"a\":[1]}}"},
        {"/detokenize", "{\"tokens\":[1,2,3]}"},
    };
    uint64_t seed = test_seed();
    for (int i = 0; i < 300; i++) {
        const char *const *g = good[(size_t)i % (sizeof good / sizeof *good)];
        char body[2048];
        size_t len = strlen(g[1]);
        memcpy(body, g[1], len);
        for (uint64_t k = rng_next(&seed) % 3 + 1; k > 0; k--) {
            size_t where = rng_next(&seed) % len, n = rng_next(&seed) % 8;
            if (where + n > len || len + n > sizeof body) continue;
            switch (rng_next(&seed) % 3) {
            case 0: body[where] = (char)rng_next(&seed); break;
            case 1:
                memmove(body + where, body + where + n, len - where - n);
                len -= n;
                break;
            default:
                memmove(body + where + n, body + where, len - where);
                len += n;
            }
        }
        reply r = client_ask(port, "POST", g[0], NULL, body, len);
        json_t *j = json_loads(r.body, JSON_ALLOW_NUL, NULL);
        if (r.status < 200 || r.status >= 500 || !j) fail_msg("%s %.*s: %s", g[0], (int)len, body, r.all.data);
        json_decref(j);
        reply_free(&r);
    }
}

/* ---- many at once ---- */

static void *one_of_many(void *user) {
    int *ok = user;
    const char *body = "{" HELLO ",\"max_tokens\":20,\"stream\":true}";
    reply r = client_ask(port, "POST", "/v1/chat/completions", NULL, body, strlen(body));
    *ok = r.status == 200 && strstr(r.body, "[DONE]") && strstr(r.body, "Ember");
    reply_free(&r);
    return NULL;
}

static void *leaves_early(void *user) {
    (void)user;
    int fd = client_open(port);
    const char *body = "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a long story.\"}],\"ignore_eos\":true,\"stream\":true}";
    char head[256];
    snprintf(head, sizeof head, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    client_write(fd, head, strlen(head));
    buf in = {0};
    while (in.len < 500 && client_read(fd, &in)) {}
    buf_free(&in);
    close(fd);
    return NULL;
}

static void test_many_at_once(void **state) {
    (void)state;
    enum { N = 8, LEAVERS = 4 };
    pthread_t threads[N + LEAVERS];
    int ok[N] = {0};
    for (int i = 0; i < LEAVERS; i++) assert_int_equal(pthread_create(&threads[N + i], NULL, leaves_early, NULL), 0);
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&threads[i], NULL, one_of_many, &ok[i]), 0);
    for (int i = 0; i < N + LEAVERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N; i++) assert_true(ok[i]);
    /* What the leavers began is cancelled. */
    uint64_t until = clock_ns() + 20000000000u;
    loop_stats s;
    do {
        usleep(5000);
        s = loop_count(the_loop);
    } while (s.running + s.waiting > 0 && clock_ns() < until);
    assert_int_equal(s.running + s.waiting, 0);
    assert_true(s.cancelled >= 1);
}

static void test_too_many(void **state) {
    (void)state;
    /* 16 run and 4 wait; the rest is told when to come back. */
    int status = 200, fds[24];
    const char *body = "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a long story.\"}],\"ignore_eos\":true,\"stream\":true}";
    char head[256];
    snprintf(head, sizeof head, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    for (int i = 0; i < 20; i++) {
        fds[i] = client_open(port);
        client_write(fds[i], head, strlen(head));
    }
    uint64_t until = clock_ns() + 20000000000u;
    while (loop_count(the_loop).running + loop_count(the_loop).waiting < 20 && clock_ns() < until) usleep(2000);
    reply r = client_ask(port, "POST", "/v1/chat/completions", NULL, "{" HELLO "}", strlen("{" HELLO "}"));
    status = r.status;
    assert_int_equal(status, 429);
    assert_non_null(strstr(r.all.data, "Retry-After: "));
    assert_non_null(strstr(r.body, "rate_limit_exceeded"));
    reply_free(&r);
    for (int i = 0; i < 20; i++) close(fds[i]);
    until = clock_ns() + 20000000000u;
    while (loop_count(the_loop).running + loop_count(the_loop).waiting > 0 && clock_ns() < until) usleep(2000);
    json_t *j = post("/v1/chat/completions", "{" HELLO ",\"max_tokens\":2}", &status);
    assert_int_equal(status, 200);
    json_decref(j);
    j = post("/v1/chat/completions", "{" HELLO ",\"ignore_eos\":true,\"timeout\":0.02}", &status);
    assert_int_equal(status, 504);
    json_decref(j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),       cmocka_unit_test(test_chat_stream),   cmocka_unit_test(test_completions), cmocka_unit_test(test_bias_and_penalties),
        cmocka_unit_test(test_messages),   cmocka_unit_test(test_shapes),     cmocka_unit_test(test_calls),         cmocka_unit_test(test_text_routes),   cmocka_unit_test(test_refusals),    cmocka_unit_test(test_hostile_bodies),
        cmocka_unit_test(test_damaged_requests), cmocka_unit_test(test_many_at_once), cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
