/* test_api_tools.c: tool calls in what a model writes, whatever the borders between pieces. */
#include "tools/support.h"

#include "api/inner.h"

typedef struct heard {
    buf log; /* text as it is, calls as [name arguments] */
} heard;

static bool hear(void *user, const tool_event *e) {
    heard *h = user;
    if (e->kind == TOOL_TEXT) return buf_add(&h->log, e->text, e->len, NULL);
    return buf_addf(&h->log, NULL, "[%d %s %s]", e->index, e->name, e->arguments);
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
    check("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "[0 f {\"a\":1}]");
    check("Let me see.\n\n<tool_call>{\"name\":\"f\"}</tool_call>\n<tool_call>{\"name\":\"g\",\"parameters\":{}}</tool_call>", "Let me see.[0 f {}][1 g {}]");
    check("<tool_call>{\"name\":\"f\",\"arguments\":{}}", "[0 f {}]"); /* the closing tag was left out */
    check("{\"name\": \"f\", \"parameters\": {\"x\": [1, 2]}}", "[0 f {\"x\":[1,2]}]");
    check("  {\"name\":\"f\",\"arguments\":{}}  ", "[0 f {}]");
    check("{\"answer\": 42}", "{\"answer\": 42}"); /* JSON, but no call */
    check("{ not JSON", "{ not JSON");
    check("<tool_call>nonsense</tool_call> after", "<tool_call>nonsense</tool_call> after");
    check("<tool_call>{\"name\":5}</tool_call><tool_call>{\"name\":\"f\"}</tool_call>", "<tool_call>{\"name\":5}</tool_call>[0 f {}]");
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls), cmocka_unit_test(test_long_calls_are_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
