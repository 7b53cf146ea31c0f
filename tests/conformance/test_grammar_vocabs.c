/* Grammars over the vocabularies of the tokenizer kit: texts that fit are allowed token by token as the tokenizer writes them, masks agree
 * with trying every token, and what a mask costs is printed (and decides nothing). */
#include "tools/support.h"

#include <time.h>

#include "engine/grammar.h"
#include "text/tokenizer.h"

static const char *const folders[] = {"llama-2", "llama-3", "qwen3", "gemma-3", "gpt-oss", "mistral-nemo"};

/* Of this thread only: the machine may have other work. */
static uint64_t own_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const char *bytes_of(const void *t, int32_t token, size_t *len) { return tokenizer_bytes(t, token, false, len); }
static bool ends_of(const void *t, int32_t token) { return tokenizer_ends(t, token); }

typedef struct pair {
    const char *name;
    hearth_grammar_kind kind;
    const char *grammar, *text;
} pair;

#define ORDER                                                                                                                              \
    "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"format\":\"uuid\"},\"customer\":{\"type\":\"object\","             \
    "\"properties\":{\"name\":{\"type\":\"string\"},\"email\":{\"type\":\"string\","                                                       \
    "\"format\":\"email\"},\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150}},\"required\":[\"name\",\"email\"]},\"items\":{"   \
    "\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"sku\":"                                                           \
    "{\"type\":\"string\",\"pattern\":\"^[A-Z]{3}-[0-9]{4}$\"},\"note\":{\"type\":\"string\",\"maxLength\":200},\"price\":{\"type\":"      \
    "\"number\",\"minimum\":0},\"state\":{\"enum\":[\"new\",\"packed\",\"sent\"]}},"                                                       \
    "\"required\":[\"sku\",\"price\"]},\"maxItems\":20},\"created\":{\"type\":\"string\",\"format\":\"date-time\"},\"comment\":{\"type\":" \
    "[\"string\",\"null\"]}},\"required\":[\"id\",\"customer\",\"items\"]}"
#define ORDER_TEXT                                                                                                                         \
    "{\n  \"id\": \"123e4567-e89b-12d3-a456-426614174000\",\n  \"customer\": {\n    \"name\": \"Zo\xC3\xAB van der Berg\",\n    "          \
    "\"email\": \"zoe.berg@example.org\",\n    \"age\": 37\n  },\n  \"items\": [\n    {\n"                                                 \
    "      \"sku\": \"ABC-1234\",\n      \"note\": \"Please wrap this one as a present, and add a card that says \\\"Happy "               \
    "birthday\\\".\",\n      \"price\": 19.95,\n      \"state\": \"new\"\n    },\n    {\n"                                                 \
    "      \"sku\": \"XYZ-0001\",\n      \"price\": 5\n    }\n  ],\n  \"created\": \"2026-03-14T15:09:26Z\",\n  \"comment\": \"The "       \
    "customer called twice; \xE6\x9D\xB1\xE4\xBA\xAC office \xF0\x9F\x9A\x80\"\n}"

static const pair pairs[] = {
    {"JSON object", HEARTH_GRAMMAR_JSON, "", ORDER_TEXT},
    {"JSON schema", HEARTH_GRAMMAR_JSON_SCHEMA, ORDER, ORDER_TEXT},
    {"bounded", HEARTH_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":10,\"maxLength\":60}}",
     "[\"A string of some length that is bounded above and below\", \"ten letters\", \"and one more that comes close to its sixty letters, "
     "all told\"]"},
    {"regex", HEARTH_GRAMMAR_REGEX, "Answer: (yes|no)\\nReason: .{20,300}\\.",
     "Answer: yes\nReason: the moon was full that night, and nobody in the village had seen a wolf for more than 20 years."},
    {"GBNF", HEARTH_GRAMMAR_GBNF,
     "root ::= statement+\nstatement ::= ident \" = \" expr \";\\n\"\nexpr ::= term ((\" + \" | \" * \") term)*\nterm ::= ident | number | "
     "\"(\" expr \")\"\n"
     "ident ::= [a-z] [a-z0-9_]*\nnumber ::= [0-9]+ (\".\" [0-9]+)?\n",
     "total = price * (1 + vat_rate);\nnet = total * 0.85 + (((a + b) * c) + 12.5);\nlong_variable_name = another_variable_name * 2;\n"},
};

typedef struct timing {
    double *us;
    size_t n, cap;
} timing;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_timing(const char *folder, const char *name, const char *pass, timing *t) {
    qsort(t->us, t->n, sizeof *t->us, by_value);
    printf("# %-12s %-11s %-6s %4zu masks: p50 %7.1f us, p99 %7.1f us, most %7.1f us\n", folder, name, pass, t->n, t->us[t->n / 2],
           t->us[t->n * 99 / 100], t->us[t->n - 1]);
    t->n = 0;
}

static void check_all(grammar_state *s, const uint64_t *bits, int32_t n) {
    err e = {0};
    grammar_state *copy = grammar_state_copy(s, &e);
    for (int32_t t = 0; t < n; t++) {
        err_clear(&e);
        bool allowed = grammar_state_accept(copy, t, &e);
        if (allowed != (bits[t / 64] >> (t % 64) & 1)) fail_msg("token %d: the mask disagrees", t);
        if (!allowed) continue;
        grammar_state_free(copy);
        copy = grammar_state_copy(s, &e);
    }
    grammar_state_free(copy);
}

static void follow(hearth_grammar *g, const grammar_vocab *v, const tokenizer *t, const token_list *tokens, bool check, timing *spent) {
    err e = {0};
    uint64_t *bits = calloc(grammar_mask_words(v), sizeof *bits);
    grammar_state *s = grammar_state_new(g, &e);
    for (size_t i = 0; i <= tokens->n; i++) {
        uint64_t start = own_ns();
        if (!grammar_state_mask(s, bits, &e)) fail_msg("%s", e.text);
        spent->us[spent->n++] = (double)(own_ns() - start) / 1e3;
        if (check && i % 16 == 5) check_all(s, bits, tokenizer_size(t));
        if (i == tokens->n) break;
        int32_t token = tokens->ids[i];
        size_t len = 0;
        const char *bytes = tokenizer_bytes(t, token, false, &len);
        if (!(bits[token / 64] >> (token % 64) & 1) || !grammar_state_accept(s, token, &e))
            fail_msg("token %zu, '%.*s', is not allowed: %s", i, (int)len, bytes, e.text);
    }
    assert_true(grammar_state_can_end(s));
    grammar_state_free(s);
    free(bits);
}

static void masks_over_real_vocabularies(void **state) {
    (void)state;
    need_kit();
    timing spent = {.us = calloc(4096, sizeof(double))};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        err e = {0};
        char path[64];
        snprintf(path, sizeof path, "tokenizers/%s/vocab.gguf", folders[f]);
        gguf *file = gguf_open(kit_path(path), &e);
        tokenizer *t = file ? tokenizer_new(file, &e) : NULL;
        gguf_close(file);
        uint64_t start = own_ns();
        grammar_vocab *v = t ? grammar_vocab_new(tokenizer_size(t), bytes_of, ends_of, t, &e) : NULL;
        if (!v) fail_msg("%s: %s", folders[f], e.text);
        printf("# %-12s %d tokens, trie made in %.0f ms\n", folders[f], tokenizer_size(t), (double)(own_ns() - start) / 1e6);
        for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
            token_list tokens = {0};
            assert_true(tokenizer_encode(t, pairs[p].text, strlen(pairs[p].text), false, &tokens, &e));
            /* SentencePiece may put a space first, which is not part of the text. */
            size_t len = 0;
            if (tokenizer_adds_space(t) && tokenizer_bytes(t, tokens.ids[0], false, &len)[0] == ' ') {
                token_list_free(&tokens);
                continue;
            }
            hearth_grammar *g = grammar_new(v, pairs[p].kind, pairs[p].grammar, strlen(pairs[p].grammar), &e);
            if (!g) fail_msg("%s", e.text);
            follow(g, v, t, &tokens, false, &spent);
            print_timing(folders[f], pairs[p].name, "first", &spent);
            follow(g, v, t, &tokens, false, &spent);
            print_timing(folders[f], pairs[p].name, "again", &spent);
            if (f < 2) follow(g, v, t, &tokens, true, &spent);
            spent.n = 0;
            hearth_grammar_free(g);
            token_list_free(&tokens);
        }
        grammar_vocab_free(v);
        tokenizer_free(t);
    }
    free(spent.us);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(masks_over_real_vocabularies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
