/* test_api_tools.c: tool calls in what a model writes, whatever the borders between pieces. */
#include "tools/support.h"

#include "api/inner.h"

typedef struct heard {
    buf log; /* text as it is, calls as [name arguments] */
} heard;

static bool hear(void *user, const tool_event *e) {
    heard *h = user;
    if (e->kind == TOOL_CALL) return buf_addf(&h->log, NULL, "[%d %s ", e->index, e->name);
    if (e->kind == TOOL_CALL_END) return buf_addc(&h->log, ']', NULL);
    return buf_add(&h->log, e->text, e->len, NULL);
}

static void check(const char *text, const char *expected) {
    size_t n = strlen(text);
    uint64_t seed = test_seed();
    for (int round = 0; round < 40; round++) {
        heard h = {0};
        tool_parser *p = tool_parser_new(true, NULL);
        for (size_t at = 0; at < n;) {
            size_t piece = round == 0 ? n : round == 1 ? 1 : 1 + rng_next(&seed) % 9;
            if (piece > n - at) piece = n - at;
            assert_true(tool_parser_add(p, text + at, piece, hear, &h, NULL));
            at += piece;
        }
        assert_true(tool_parser_end(p, hear, &h, NULL));
        assert_true(buf_addc(&h.log, 0, NULL));
        assert_string_equal(h.log.data, expected);
        tool_parser_free(p);
        buf_free(&h.log);
    }
}

static void test_calls(void **state) {
    (void)state;
    check("", "");
    check("Just text with a < and a <tool_ca", "Just text with a < and a <tool_ca");
    check("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "[0 f {\"a\": 1}]");
    check("Let me see.\n\n<tool_call>{\"name\":\"f\"}</tool_call>\n<tool_call>{\"name\":\"g\",\"parameters\":{}}</tool_call>", "Let me see.[0 f {}][1 g {}]");
    check("<tool_call>{\"name\":\"f\",\"arguments\":{}}", "[0 f {}]"); /* the closing tag was left out */
    check("{\"name\": \"f\", \"parameters\": {\"x\": [1, 2]}}", "[0 f {\"x\": [1, 2]}]");
    check("  {\"name\":\"f\",\"arguments\":{}}  ", "[0 f {}]");
    check("{\"answer\": 42}", "{\"answer\": 42}"); /* JSON, but no call */
    check("{ not JSON", "{ not JSON");
    check("<tool_call>nonsense</tool_call> after", "<tool_call>nonsense</tool_call> after");
    check("<tool_call>{\"name\":5}</tool_call><tool_call>{\"name\":\"f\"}</tool_call>", "<tool_call>{\"name\":5}</tool_call>[0 f {}]");
    check("{\"parameters\": {\"x\": 1}, \"name\": \"f\"}", "[0 f {\"x\":1}]"); /* another order */
    check("<tool_call>{\"arguments\":{\"a\":\"</b>\"},\"name\":\"f\"}</tool_call> and", "[0 f {\"a\":\"</b>\"}] and");
    check("<tool_call>{\"name\":\"a \\\"b\\u0041\",\"arguments\":{\"s\":\"}{\\\"]\",\"t\":[{}]},\"id\":{\"a\":1}}</tool_call>x", "[0 a \"bA {\"s\":\"}{\\\"]\",\"t\":[{}]}]x");
    check("{\"name\":\"f\",\"arguments\":{\"a\":\"cut", "[0 f {\"a\":\"cut]"); /* cut off */
    check("{\"name\":\"f\",\"arguments\":{}} said it", "[0 f {}] said it");
    check("<tool_call>{\"name\":\"f\",\"arguments\":{}}<tool_call>{\"name\":\"g\",\"arguments\":{}}\n", "[0 f {}][1 g {}]");
    check("a <tool_call><tool_call>{\"name\":\"f\"}</tool_call>", "a <tool_call><tool_call>{\"name\":\"f\"}</tool_call>");
}

static void test_long_calls_are_text(void **state) {
    (void)state;
    heard h = {0};
    tool_parser *p = tool_parser_new(false, NULL);
    assert_true(tool_parser_add(p, "<tool_call>", 11, hear, &h, NULL));
    static char part[1 << 16];
    memset(part, 'a', sizeof part);
    for (int i = 0; i < 32; i++) assert_true(tool_parser_add(p, part, sizeof part, hear, &h, NULL));
    assert_true(h.log.len > (size_t)1 << 19);
    assert_true(tool_parser_end(p, hear, &h, NULL));
    assert_int_equal(h.log.len, 11 + 32 * sizeof part);
    tool_parser_free(p);
    buf_free(&h.log);
}

/* ---- thoughts ---- */

static bool hear_thoughts(void *user, const tool_event *e) {
    heard *h = user;
    if (e->kind != TOOL_THOUGHT) return hear(user, e);
    return buf_addc(&h->log, '(', NULL) && buf_add(&h->log, e->text, e->len, NULL) && buf_addc(&h->log, ')', NULL);
}

/* Pieces of a thought that follow each other are one. */
static void join_thoughts(char *log) {
    for (char *p; (p = strstr(log, ")(")) != NULL;) memmove(p, p + 2, strlen(p + 2) + 1);
}

static void check_thoughts(const char *template, bool inside, bool tools, const char *text, const char *expected) {
    size_t n = strlen(text);
    uint64_t seed = test_seed();
    const thinking *kind = thinking_find(template);
    for (int round = 0; round < 40; round++) {
        heard h = {0};
        answer *a = answer_new(kind, inside, tools, NULL);
        for (size_t at = 0; at < n;) {
            size_t piece = round == 0 ? n : round == 1 ? 1 : 1 + rng_next(&seed) % 9;
            if (piece > n - at) piece = n - at;
            assert_true(answer_add(a, text + at, piece, hear_thoughts, &h, NULL));
            at += piece;
        }
        assert_true(answer_end(a, hear_thoughts, &h, NULL));
        assert_true(buf_addc(&h.log, 0, NULL));
        join_thoughts(h.log.data);
        assert_string_equal(h.log.data, expected);
        answer_free(a);
        buf_free(&h.log);
    }
}

static void test_thoughts(void **state) {
    (void)state;
    static const char qwen[] = "{{ x.split('</think>') }}", mistral[] = "[THINK]", oss[] = "<|channel|>analysis<|message|>";
    assert_null(thinking_find("{{ messages }}"));
    assert_null(thinking_find(NULL));
    check_thoughts("", false, false, "<think>a</think>b", "<think>a</think>b"); /* a model that does not think */
    check_thoughts(qwen, false, false, "<think>\nI see. \n</think>\n\nHello", "(I see.)Hello");
    check_thoughts(qwen, false, false, " \n<think></think>Hello", "Hello");
    check_thoughts(qwen, true, false, "I see </thin> k</think> Hello <think>", "(I see </thin> k)Hello <think>");
    check_thoughts(qwen, false, false, "<thin", "<thin");
    check_thoughts(qwen, false, false, "Hello</think>", "Hello</think>");
    check_thoughts(qwen, true, false, "cut off </thi", "(cut off </thi)");
    check_thoughts(qwen, false, true, "<think>a <tool_call>{} b</think>\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "(a <tool_call>{} b)[0 f {}]");
    static const char granite[] = "<think> <response>";
    check_thoughts(granite, false, false, "<think>a</think>\n<response>\nHello </resp\n</response>\n", "(a)\nHello </resp\n");
    check_thoughts(granite, false, false, "<think>a</think>Hello </response>", "(a)Hello </response>");
    check_thoughts(granite, false, false, "Hello", "Hello");
    check_thoughts(granite, false, false, "<think>a</think> <resp", "(a)<resp");
    check_thoughts(mistral, false, false, "[THINK]x[/THINK]y", "(x)y");
    check_thoughts(oss, false, true, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello", "(Hm.)Hello");
    check_thoughts(oss, false, true, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}",
                   "(Hm.)[0 f {\"a\":1}]");
    check_thoughts(oss, false, true, "<|channel|>commentary<|message|>Now <tool_call>.<|end|><|start|>assistant to=functions.g<|channel|>commentary<|message|>{}", "Now <tool_call>.[0 g {}]");
    check_thoughts(oss, false, true, "{\"name\":\"f\",\"arguments\":{}}", "[0 f {}]"); /* a call that was demanded */
    check_thoughts(oss, false, false, "Plain < text", "Plain < text");
    check_thoughts(oss, false, false, "<|channel|>final", "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls), cmocka_unit_test(test_long_calls_are_text), cmocka_unit_test(test_thoughts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
