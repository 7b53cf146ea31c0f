/* test_api_thoughts.c: a model that thinks, in every API; and the bound on its thoughts. */
#include "unit/tiny_model.h"

#include "unit/api_kit.h"

/* The answer begins inside a thought unless thinking is switched off; a model of noise never ends it. */
static const char template[] = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}({{ m.reasoning_content }}){% endfor %}{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}";

static int start(void **state) {
    (void)state;
    tiny m = make_llama();
    m.keys[m.n_keys++] = (key){.name = "tokenizer.chat_template", .type = GGUF_STRING, .text = template};
    for (int i = 0; i < m.n_keys; i++)
        if (strcmp(m.keys[i].name, "llama.context_length") == 0) m.keys[i].number = 4096;
    hearth_engine_options o = hearth_engine_defaults();
    o.cpu = "ref";
    o.cache = o.store = false;
    return kit_start(write_tiny(&m, false, NULL), &o);
}
static int stop(void **state) {
    (void)state;
    kit_stop();
    return 0;
}

#define USER "{\"role\":\"user\",\"content\":\"Hi\"}"
#define CHAT "\"messages\":[" USER "],\"temperature\":0"

static void test_chat(void **state) {
    (void)state;
    int status;
    json_t *j = post("/v1/chat/completions", "{" CHAT ",\"max_tokens\":12}", &status);
    assert_int_equal(status, 200);
    assert_true(strlen(text_at(j, "choices.0.message.reasoning_content")) > 0);
    assert_string_equal(text_at(j, "choices.0.message.content"), "");
    assert_true(int_at(j, "usage.completion_tokens_details.reasoning_tokens") > 0);
    json_decref(j);
    /* Not asked to think, or the answer must have a shape: it is the answer. */
    static const char *const plain[] = {"\"reasoning_effort\":\"none\"", "\"chat_template_kwargs\":{\"enable_thinking\":false}", "\"regex\":\"[ab]{3}\""};
    for (size_t i = 0; i < 3; i++) {
        char body[512];
        snprintf(body, sizeof body, "{" CHAT ",\"max_tokens\":12,%s}", plain[i]);
        j = post("/v1/chat/completions", body, &status);
        assert_int_equal(status, 200);
        assert_null(at(j, "choices.0.message.reasoning_content"));
        assert_true(strlen(text_at(j, "choices.0.message.content")) > 0);
        json_decref(j);
    }
    /* Demands that cannot be met together are the client's mistake. */
    j = post("/v1/chat/completions", "{" CHAT ",\"regex\":\"a\",\"logit_bias\":{\"2\":-100}}", &status);
    assert_int_equal(status, 400);
    json_decref(j);
    buf events = stream("/v1/chat/completions", "{" CHAT ",\"max_tokens\":12,\"stream\":true,\"reasoning_effort\":\"high\"}");
    assert_non_null(strstr(events.data, "{\"reasoning_content\":\""));
    buf_free(&events);
}

static void test_messages(void **state) {
    (void)state;
    int status;
    json_t *j = post("/v1/messages", "{\"model\":\"ember\",\"max_tokens\":8,\"thinking\":{\"type\":\"adaptive\"},\"temperature\":0,\"messages\":[" USER "]}", &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_at(j, "content.0.type"), "thinking");
    assert_true(strlen(text_at(j, "content.0.thinking")) > 0);
    json_decref(j);
    j = post("/v1/messages", "{\"model\":\"ember\",\"max_tokens\":8,\"temperature\":0,\"messages\":[" USER "]}", &status);
    assert_string_equal(text_at(j, "content.0.type"), "text");
    json_decref(j);
    buf events = stream("/v1/messages", "{\"model\":\"ember\",\"max_tokens\":8,\"stream\":true,\"thinking\":{\"type\":\"adaptive\"},\"temperature\":0,\"messages\":[" USER "]}");
    static const char *const order[] = {"\"content_block\":{\"type\":\"thinking\"", "\"thinking_delta\"", "\"signature_delta\"", "event: content_block_stop", "event: message_stop"};
    const char *from = events.data;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (!(from = strstr(from, order[i]))) fail_msg("no %s in its place", order[i]);
    buf_free(&events);
    /* This model's thoughts end with several tokens: a bound cannot be kept, which is said. */
    j = post("/v1/messages", "{\"model\":\"ember\",\"max_tokens\":2000,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024},\"messages\":[" USER "]}", &status);
    assert_int_equal(status, 400);
    assert_non_null(strstr(text_at(j, "error.message"), "budget_tokens"));
    json_decref(j);
}

static void test_responses(void **state) {
    (void)state;
    int status;
    json_t *j = post("/v1/responses", "{\"input\":\"Hi\",\"max_output_tokens\":8,\"temperature\":0}", &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_at(j, "output.0.type"), "reasoning");
    assert_true(strlen(text_at(j, "output.0.content.0.text")) > 0);
    assert_true(int_at(j, "usage.output_tokens_details.reasoning_tokens") > 0);
    /* Its thoughts are part of the conversation that goes on. */
    char body[256];
    snprintf(body, sizeof body, "{\"input\":\"Hi\",\"temperature\":0,\"max_output_tokens\":8,\"previous_response_id\":\"%s\"}", text_at(j, "id"));
    json_t *next = post("/v1/responses", body, &status);
    assert_int_equal(status, 200);
    assert_true(int_at(next, "usage.input_tokens") > int_at(j, "usage.input_tokens"));
    json_decref(next);
    json_decref(j);
    buf events = stream("/v1/responses", "{\"input\":\"Hi\",\"temperature\":0,\"max_output_tokens\":8,\"stream\":true}");
    assert_non_null(strstr(events.data, "event: response.reasoning_text.delta"));
    assert_non_null(strstr(events.data, "event: response.incomplete"));
    buf_free(&events);
}

/* At the bound the tokens that end a thought are put in, once. */
static void test_bound(void **state) {
    (void)state;
    enum { END = 50, AFTER = 51 };
    const int32_t prompt[] = {10, 11, 12};
    const hearth_logit_bias ban[] = {{.token = END, .bias = -1e9f}, {.token = AFTER, .bias = -1e9f}, {.token = 2, .bias = -1e9f}};
    for (int inside = 0; inside < 2; inside++) {
        loop_request r = loop_request_defaults();
        r.tokens = prompt;
        r.n_tokens = 3;
        r.max_tokens = 20;
        r.sampler.logit_bias = ban;
        r.sampler.n_logit_bias = 3;
        r.thoughts = (loop_thoughts){.limit = 5, .inside = inside, .open = HEARTH_TOKEN_NONE, .end = END, .close = {END, AFTER}, .n_close = 2};
        loop_ticket *t = loop_submit(the_loop, &r, NULL);
        int32_t got[32];
        size_t n = 0;
        loop_piece piece;
        while (loop_next(t, 60000000000u, &piece, NULL) == LOOP_PIECE)
            for (size_t i = 0; i < piece.n_tokens && n < 32; i++) got[n++] = piece.tokens[i].token;
        assert_int_equal(n, 20);
        for (size_t i = 0; i < n; i++) {
            if (inside && i == 5) assert_int_equal(got[i], END);
            else if (inside && i == 6) assert_int_equal(got[i], AFTER);
            else assert_true(got[i] != END && got[i] != AFTER);
        }
        loop_ticket_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chat), cmocka_unit_test(test_messages), cmocka_unit_test(test_responses), cmocka_unit_test(test_bound)};
    return cmocka_run_group_tests(tests, start, stop);
}
