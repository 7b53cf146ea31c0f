/* test_grammar.c: which texts the grammars accept. */
#include "tools/grammar_kit.h"

#include <math.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static kit_vocab kit;
static grammar_vocab *vocab;

static int open_vocab(void **state) {
    (void)state;
    err e = {0};
    uint64_t seed = 1;
    vocab = kit_make(&kit, 0, &seed, &e);
    return vocab ? 0 : -1;
}
static int close_vocab(void **state) {
    (void)state;
    grammar_vocab_free(vocab);
    return 0;
}

static hearth_grammar *make(hearth_grammar_kind kind, const char *text) {
    err e = {0};
    hearth_grammar *g = grammar_new(vocab, kind, text, strlen(text), &e);
    if (!g) fail_msg("%s: %s", text, e.text);
    return g;
}

static bool accepts(hearth_grammar *g, const char *text, size_t len) {
    err e = {0};
    grammar_state *s = grammar_state_new(g, &e);
    assert_non_null(s);
    bool yes = grammar_state_add(s, text, len, &e) && grammar_state_can_end(s);
    if (e.code != HEARTH_OK) assert_int_equal(e.code, HEARTH_ARGUMENT);
    grammar_state_free(s);
    return yes;
}

typedef struct example {
    const char *grammar, *yes[16], *no[16];
} example;

static void check_examples(hearth_grammar_kind kind, const example *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        hearth_grammar *g = make(kind, list[i].grammar);
        for (const char *const *t = list[i].yes; *t; t++)
            if (!accepts(g, *t, strlen(*t))) fail_msg("%s refuses %s", list[i].grammar, *t);
        for (const char *const *t = list[i].no; *t; t++)
            if (accepts(g, *t, strlen(*t))) fail_msg("%s accepts %s", list[i].grammar, *t);
        hearth_grammar_free(g);
    }
}

typedef struct refusal {
    const char *grammar, *says;
} refusal;

static void check_refusals(hearth_grammar_kind kind, const refusal *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        err e = {0};
        hearth_grammar *g = grammar_new(vocab, kind, list[i].grammar, strlen(list[i].grammar), &e);
        if (g) fail_msg("%s is not refused", list[i].grammar);
        if (!strstr(e.text, list[i].says)) fail_msg("%s: \"%s\" does not say \"%s\"", list[i].grammar, e.text, list[i].says);
    }
}
#define EXAMPLES(kind, list) check_examples(kind, list, sizeof list / sizeof *list)
#define REFUSALS(kind, list) check_refusals(kind, list, sizeof list / sizeof *list)

/* ---- GBNF ---- */

static void gbnf_accepts(void **state) {
    (void)state;
    static const example list[] = {
        {"root ::= \"a\" | \"bc\"", {"a", "bc"}, {"", "b", "abc", "ab"}},
        {"root ::= \"\"", {""}, {"a"}},
        {"root ::=\n  \"a\" # comment\nother ::= \"x\"\n", {"a"}, {"x"}},
        {"root ::= x y\nx ::= \"1\" |\n  \"2\"\ny ::= (\n \"3\"\n | \"4\" )\r\n", {"13", "24"}, {"1", "34"}},
        {"root ::= [a-c]* \"x\"+ [^0-9]?", {"x", "abcxx", "xé", "ax\n"}, {"", "abc", "x1", "dx"}},
        {"root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2} \"d\"{,1}", {"aab", "aabbbccd"}, {"ab", "aa", "aabccc", "aabdd"}},
        {"root ::= (\"a\" | \"b\"){2,3}", {"ab", "bbb"}, {"a", "abab"}},
        {"root ::= [\\x41-\\x43\\u00e9\\U0001F600\\]\\\\\\-]",
         {"A", "C", "\xC3\xA9", "\xF0\x9F\x98\x80", "]", "\\", "-"},
         {"D", "\xC3\xAA", "\xF0\x9F"}},
        {"root ::= \"\\t\\\"\\\\\\u20ac\"", {"\t\"\\\xE2\x82\xAC"}, {"t"}},
        {"root ::= .", {"x", "\n", "\xE2\x82\xAC"}, {"", "xx", "\xFF", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80"}},
        {"root ::= [ぁ-ゟ]+", {"ひらがな"}, {"カ", "a"}},
        {"root ::= list\nlist ::= \"x\" (\",\" list)?", {"x", "x,x,x"}, {"", "x,", ",x"}},
        {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", ")(", "(()"}},
        {"root ::= a a\na ::= b*\nb ::= \"x\" | \"yy\"", {"", "x", "yyx", "xyy"}, {"y", "xy"}},
        {"root ::= (\"a\"? \"b\"?){3}", {"", "ab", "ababab", "bbb"}, {"abababa", "bbbb"}},
        {"root ::= (\"a\"*)* (\"b\"+)+", {"b", "aaabbb"}, {"", "a"}},
        {"root ::= (\"ab\"{2,3}){2}", {"abababab", "ababababab", "abababababab"}, {"ababab", "ababababababab"}},
        {"root ::= \"a\" dead | \"b\"\ndead ::= \"c\" dead", {"b"}, {"a", "ac", "acc"}},
        {"root ::= \"x\"{0,99999999} \"y\"", {"y", "xxxxy"}, {"x"}},
        {"root ::= expr\nexpr ::= term ([+*] term)*\nterm ::= [0-9]+ | \"(\" expr \")\"", {"1", "1+2*(3+4)", "((7))"}, {"1+", "(1", "1)"}},
        {"root ::= \"for\" | \"foreach\" | \"format\" | \"f\" | \"for\"",
         {"for", "foreach", "format", "f"},
         {"fo", "forma", "foreac", "formate", "foror"}},
        {"root ::= (\"f\" | \"for\" | \"form\") \"x\"", {"fx", "forx", "formx"}, {"fxor", "fororx", "x", "fox"}},
    };
    EXAMPLES(HEARTH_GRAMMAR_GBNF, list);
}

static void gbnf_refuses(void **state) {
    (void)state;
    static const refusal list[] = {
        {"", "no rule named root"},
        {"rule ::= \"a\"", "no rule named root"},
        {"root ::= missing", "'missing'"},
        {"root ::= \"a\nroot2 ::= \"b\"", "line 1"},
        {"root ::= \"a\"\n\nroot ::= \"b\"", "line 3"},
        {"root = \"a\"", "::="},
        {"root ::= (\"a\"", "parenthesis"},
        {"root ::= \"a\")", "parenthesis"},
        {"root ::= [a-", "set"},
        {"root ::= [z-a]", "before it begins"},
        {"root ::= \"\\q\"", "backslash"},
        {"root ::= \"\\xZZ\"", "hexadecimal"},
        {"root ::= \"\\ud800\"", "Unicode"},
        {"root ::= \"\\UFFFFFFFF\"", "Unicode"},
        {"root ::= \"\xFF\"", "UTF-8"},
        {"root ::= \"a\"{3,2}", "at most"},
        {"root ::= \"a\"{x}", "{m"},
        {"root ::= \"a\"{999999999999}", "too high"},
        {"root ::= <think>", "tokens"},
        {"root ::= root \"a\" | \"b\"", "'root' begins with itself"},
        {"root ::= a\na ::= \"x\"? b\nb ::= a \"y\" | \"z\"", "begins with itself"},
        {"root ::= (root \"a\"){2} | \"b\"", "begins with itself"},
        {"root ::= root", "no text at all"},
        {"root ::= \"a\" root", "no text at all"},
        {"root ::= [^\\x00-\\U0010FFFF]", "no text at all"},
    };
    REFUSALS(HEARTH_GRAMMAR_GBNF, list);
}

/* ---- regular expressions ---- */

static void regex_accepts(void **state) {
    (void)state;
    static const example list[] = {
        {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
        {"^abc$", {"abc"}, {"abcd"}},
        {"^a|b$", {"a", "b"}, {"ab"}},
        {"", {""}, {"a"}},
        {"a|", {"", "a"}, {"b"}},
        {"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2})*", {"00", "1f:AA"}, {"0", "00:", "gg"}},
        {"\\d+\\.\\d*", {"1.", "12.34"}, {".5", "a.b"}},
        {"\\w+\\s\\W", {"ab_1 !"}, {"a!"}},
        {"[\\w.-]+@[^\\s@]+", {"a.b-c@d"}, {"a@", "@b", "a@ b"}},
        {"a*?b+?c??", {"b", "aabbc"}, {"ac"}},
        {"(?:ab|cd)(?<name>e)(?P<other>f)", {"abef", "cdef"}, {"ef"}},
        {"a{2}b{1,2}c{2,}", {"aabcc", "aabbccc"}, {"abcc", "aabc"}},
        {"a{b", {"a{b"}, {"a"}},
        {"x{1,}", {"x", "xxx"}, {""}},
        {"\\x41\\u0042\\u{1F600}\\x{43}",
         {"AB\xF0\x9F\x98\x80"
          "C"},
         {"AB"}},
        {".", {"a", "\xC3\xA9"}, {"\n", ""}},
        {"[^a]", {"b", "\n"}, {"a"}},
        {"[a\\-z]", {"-", "a", "z"}, {"b"}},
        {"[-a]", {"-", "a"}, {"b"}},
        {"[\\d-x]", {"5", "-", "x"}, {"w"}},
        {"\\$\\^\\(\\)\\[\\]\\/", {"$^()[]/"}, {"x"}},
        {"(a|b)*abb", {"abb", "ababb"}, {"ab"}},
        {"(a{0,3}){0,3}", {"", "aaaaaaaaa"}, {"aaaaaaaaaa"}},
    };
    EXAMPLES(HEARTH_GRAMMAR_REGEX, list);
}

static void regex_refuses(void **state) {
    (void)state;
    static const refusal list[] = {
        {"(a", "parenthesis"},
        {"a)", "parenthesis"},
        {"[a", "too early"},
        {"*a", "nothing to repeat"},
        {"a**", "nothing to repeat"},
        {"a*+", "possessive"},
        {"(a)\\1", "back-ref"},
        {"\\bword", "borders"},
        {"(?=a)", "(?"},
        {"(?<!a)b", "(?"},
        {"(?i)a", "(?"},
        {"\\p{L}", "\\p"},
        {"a\\", "backslash"},
        {"[z-a]", "range"},
        {"[a-\\d]", "range"},
        {"a^b", "^ and $"},
        {"(^a)", "^ and $"},
        {"[[:alpha:]]", "named"},
        {"[]", "empty set"},
        {"a{3,2}", "at most"},
        {"a{,3}", "{0,n}"},
        {"\\q", "escape"},
        {"\\xZZ", "hexadecimal"},
        {"\xFF", "UTF-8"},
        {"a{999999999}", "too high"},
    };
    REFUSALS(HEARTH_GRAMMAR_REGEX, list);
}

/* A random expression of few letters, so that random texts match now and then. */
static void random_regex(uint64_t *r, buf *out, int depth) {
    static const char *const atoms[] = {"a", "b", "c", "[ab]", "[^a]", ".", "\\w", "ab", "bca"};
    static const char *const repeats[] = {"", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}", "*?"};
    int parts = 1 + (int)(rng_next(r) % 3);
    for (int i = 0; i < parts; i++) {
        if (depth > 0 && rng_next(r) % 3 == 0) {
            buf_adds(out, rng_next(r) % 2 ? "(" : "(?:", NULL);
            random_regex(r, out, depth - 1);
            buf_adds(out, ")", NULL);
        } else buf_adds(out, rng_next(r) % 8 ? atoms[rng_next(r) % 6] : atoms[rng_next(r) % 9], NULL);
        buf_adds(out, repeats[rng_next(r) % (sizeof repeats / sizeof *repeats)], NULL);
        if (rng_next(r) % 5 == 0) buf_adds(out, "|", NULL);
    }
}

static void regex_agrees_with_pcre(void **state) {
    (void)state;
    uint64_t r = test_seed();
    int matched = 0;
    for (int round = 0; round < 300; round++) {
        buf pattern = {0};
        random_regex(&r, &pattern, 3);
        int code;
        size_t where;
        buf whole = {0};
        buf_addf(&whole, NULL, "(?:%s)", pattern.data);
        pcre2_code *re =
            pcre2_compile((PCRE2_SPTR)whole.data, whole.len, PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF, &code, &where, NULL);
        err e = {0};
        hearth_grammar *g = grammar_new(vocab, HEARTH_GRAMMAR_REGEX, pattern.data, pattern.len, &e);
        if (re && g) {
            pcre2_match_data *data = pcre2_match_data_create(1, NULL);
            for (int i = 0; i < 60; i++) {
                char text[12];
                size_t len = rng_next(&r) % 9;
                for (size_t k = 0; k < len; k++) text[k] = (char)('a' + rng_next(&r) % 4);
                int result = pcre2_match(re, (PCRE2_SPTR)text, len, 0, 0, data, NULL);
                if (result < 0 && result != PCRE2_ERROR_NOMATCH) continue; /* it gave up: too many ways to try */
                bool expected = result >= 0;
                if (accepts(g, text, len) != expected) fail_msg("%s on '%.*s': expected %d", pattern.data, (int)len, text, expected);
                matched += expected;
            }
            pcre2_match_data_free(data);
        }
        pcre2_code_free(re);
        hearth_grammar_free(g);
        buf_free(&pattern);
        buf_free(&whole);
    }
    assert_true(matched > 500);
}

/* ---- JSON schemas ---- */

#define PERSON                                                                                                                             \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"}},\"required\":[\"name\"]}"

static void schema_accepts(void **state) {
    (void)state;
    static const example list[] = {
        {"true",
         {"1", "-0.5e3", "\"x\"", "[]", "{\"a\":[1, null]}", "{\n  \"a\": true\n}"},
         {"", "01", "'x'", "[1,]", "{a:1}", "+1", "[1 ,2]", " 1"}},
        {"{}", {"null", "[true, false]"}, {"nul", "None"}},
        {"{\"type\":\"object\"}", {"{}", "{ }", "{\"a\": {\"b\": []}}"}, {"[]", "{\"a\"}"}},
        {PERSON,
         {"{\"name\":\"x\"}", "{\"name\": \"x\", \"age\": -3}", "{\n  \"name\": \"\"\n}"},
         {"{}", "{\"age\":1}", "{\"age\":1,\"name\":\"x\"}", "{\"name\":\"x\",\"b\":1}", "{\"name\":1}", "{\"name\":\"x\",}"}},
        {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"},\"c\":{\"type\":\"null\"}},\"required\":[\"b\"]}",
         {"{\"b\":null}", "{\"a\":null,\"b\":null}", "{\"b\":null,\"c\":null}", "{\"a\":null,\"b\":null,\"c\":null}"},
         {"{}", "{\"a\":null}", "{\"a\":null,\"c\":null}", "{\"b\":null,\"b\":null}"}},
        {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}}}",
         {"{}", "{\"a\":null}", "{\"b\":null}", "{\"a\":null,\"b\":null}"},
         {"{,\"b\":null}", "{\"b\":null,\"a\":null}"}},
        {"{\"properties\":{\"ab\":{\"type\":\"null\"},\"\xC3\xA9\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":\"boolean\"}}",
         {"{}", "{\"ab\":null}", "{\"x\":true}", "{\"a\":true,\"abc\":false}", "{\"ab\":null,\"\":true}", "{\"\xC3\xAA\":true}",
          "{\"x\\nb\":true}"},
         {"{\"ab\":true}", "{\"x\":null}", "{\"\xC3\xA9\":true}", "{\"\\u0061b\":true}"}},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"minProperties\":1,\"maxProperties\":2}",
         {"{\"a\":1}", "{\"a\":1,\"b\":2}"},
         {"{}", "{\"a\":1,\"b\":2,\"c\":3}", "{\"a\":true}"}},
        {"{\"type\":\"object\",\"additionalProperties\":false}", {"{}"}, {"{\"a\":1}"}},
        {"{\"required\":[\"x\"],\"properties\":{}}", {"{\"x\":[1]}"}, {"{}"}},
        {"{\"type\":[\"string\",\"null\"]}", {"\"\"", "null"}, {"1"}},
        {"{\"type\":\"boolean\"}", {"true", "false"}, {"1", "null"}},
        {"{\"enum\":[\"a\",1,null,{\"k\":[1.5]},\"q\\\"\"]}", {"\"a\"", "1", "null", "{\"k\":[1.5]}", "\"q\\\"\""}, {"\"b\"", "2", "{}"}},
        {"{\"type\":\"string\",\"enum\":[\"a\",1]}", {"\"a\""}, {"1"}},
        {"{\"const\":\"x\\u00e9\"}", {"\"x\xC3\xA9\""}, {"\"x\""}},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"const\":\"all\"}]}", {"1", "\"all\""}, {"\"al\"", "null"}},
        {"{\"oneOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"items\":{\"type\":\"null\"}}]}", {"null", "[null]"}, {"[1]"}},
        {"{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[1,2]}},\"anyOf\":[{\"required\":[\"k\"]},{\"properties\":{\"z\":{\"type\":"
         "\"null\"}},\"required\":[\"z\"]}]}",
         {"{\"k\":1}", "{\"k\":2,\"z\":null}", "{\"z\":null}"},
         {"{}", "{\"k\":3}", "{\"z\":1}"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{\"properties\":{\"b\":{\"type\":\"null\"},"
         "\"a\":{\"minimum\":3,\"maximum\":5}}}]}",
         {"{\"a\":3}", "{\"a\":5,\"b\":null}"},
         {"{\"a\":2}", "{\"b\":null}", "{}"}},
        {"{\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"$ref\":\"#/$defs/"
         "t\"}},\"required\":[\"v\"]}},\"$ref\":\"#/$defs/t\"}",
         {"{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3}}}"},
         {"{}", "{\"v\":1,\"next\":{}}"}},
        {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[], [[]]]"}, {"[1]", "[[]"}},
        {"{\"$ref\":\"#/definitions/a~1b%20c\",\"description\":\"x\",\"definitions\":{\"a/b c\":{\"type\":\"null\"}}}", {"null"}, {"1"}},
        {"{\"$defs\":{\"base\":{\"properties\":{\"id\":{\"type\":\"integer\"}},\"required\":[\"id\"]}},\"allOf\":[{\"$ref\":\"#/$defs/"
         "base\"}],\"properties\":{\"x\":{\"type\":\"null\"}}}",
         {"{\"x\":null,\"id\":1}"},
         {"{\"x\":null}"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         {"[1,2]", "[1, 2, 3]", "[\n  1,\n  2\n]"},
         {"[]", "[1]", "[1,2,3,4]"}},
        {"{\"type\":\"array\",\"maxItems\":0}", {"[]", "[ ]"}, {"[1]"}},
        {"{\"type\":\"array\",\"maxItems\":1}", {"[]", "[1]"}, {"[1,2]"}},
        {"{\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"boolean\"}]}", {"[null, true]"}, {"[]", "[null]", "[null, true, 1]"}},
        {"{\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"boolean\"}],\"minItems\":0,\"items\":{\"type\":\"integer\"}}",
         {"[]", "[null]", "[null,true]", "[null,true,1,2]"},
         {"[true]", "[1]", "[null,1]"}},
        {"{\"prefixItems\":[{\"type\":\"null\"}],\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         {"[null,1]", "[null,1,2]"},
         {"[null]", "[null,1,2,3]"}},
        {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":2}",
         {"\"a\"", "\"\xC3\xA9\xE2\x82\xAC\"", "\"\\n\\u00e9\"", "\"\\ud83d\\ude00x\""},
         {"\"\"", "\"abc\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\n\""}},
        {"{\"type\":\"string\"}", {"\"\"", "\"\\\\\\\"/\""}, {"\"", "\"\\x\"", "\"\\u12\"", "\"\\u0000\"", "\"\x01\"", "\"\xFF\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]{2}-\\\\d+$\"}", {"\"ab-1\"", "\"zz-123\""}, {"\"ab-\"", "\"xab-1\"", "ab-1"}},
        {"{\"type\":\"string\",\"pattern\":\"b+\"}", {"\"b\"", "\"abbc\"", "\"\\nb\""}, {"\"\"", "\"ac\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[\\\"\\\\\\\\\\t]$\"}", {"\"\\\"\"", "\"\\\\\"", "\"\\t\""}, {"\"\"\"", "\"\t\"", "\"t\""}},
        {"{\"type\":\"string\",\"pattern\":\"^a{3}$\",\"minLength\":1,\"maxLength\":3}", {"\"aaa\""}, {"\"a\""}},
        {"{\"type\":\"string\",\"format\":\"date\"}",
         {"\"2024-02-28\"", "\"1999-12-31\""},
         {"\"2024-13-01\"", "\"2024-04-31\"", "\"24-01-01\""}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}",
         {"\"2024-02-28T23:59:59Z\"", "\"2024-02-28T00:00:00.5+02:00\""},
         {"\"2024-02-28\"", "\"2024-02-28T24:00:00Z\""}},
        {"{\"type\":\"string\",\"format\":\"time\"}", {"\"01:02:03Z\""}, {"\"1:2:3Z\""}},
        {"{\"type\":\"string\",\"format\":\"duration\"}",
         {"\"P1D\"", "\"PT1H30M\"", "\"P2W\"", "\"P1Y2M3DT4S\""},
         {"\"P\"", "\"PT\"", "\"1D\""}},
        {"{\"type\":\"string\",\"format\":\"uuid\"}", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""}},
        {"{\"type\":\"string\",\"format\":\"email\"}", {"\"a.b+c@ex-ample.org\""}, {"\"a@b\"", "\"@b.c\"", "\"a@-b.com\""}},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", {"\"0.0.0.0\"", "\"255.1.20.199\""}, {"\"256.1.1.1\"", "\"1.2.3\"", "\"01.1.1.1\""}},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}",
         {"\"::\"", "\"::1\"", "\"fe80::1\"", "\"1:2:3:4:5:6:7:8\"", "\"1::\"", "\"1:2::7:8\""},
         {"\"1\"", "\"1:2:3:4:5:6:7:8:9\"", "\"1::2::3\""}},
        {"{\"type\":\"string\",\"format\":\"hostname\"}", {"\"a\"", "\"www.example.com\""}, {"\"-a\"", "\"a..b\""}},
        {"{\"type\":\"string\",\"format\":\"uri\"}",
         {"\"https://example.org/a?b=c#d\"", "\"ftp://h:21\""},
         {"\"example\"", "\"http:// x\""}},
        {"{\"properties\":{\"a\":false,\"b\":true}}", {"{}", "{\"b\":1}"}, {"{\"a\":1}"}},
        {"{\"title\":\"T\",\"default\":3,\"x-order\":1,\"type\":\"null\"}", {"null"}, {"1"}},
    };
    EXAMPLES(HEARTH_GRAMMAR_JSON_SCHEMA, list);
    static const example json[] = {{"", {"{}", "{\"a\": [1, {\"b\": null}]}"}, {"[]", "1", "", "{\"a\":1", "{\"a\":1}}"}}};
    EXAMPLES(HEARTH_GRAMMAR_JSON, json);
}

static void schema_refuses(void **state) {
    (void)state;
    static const refusal list[] = {
        {"{", "no JSON"},
        {"3", "must be an object"},
        {"{\"not\":{}}", "'not'"},
        {"{\"if\":{},\"then\":{}}", "'if'"},
        {"{\"patternProperties\":{}}", "'patternProperties'"},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "'uniqueItems'"},
        {"{\"type\":\"array\",\"contains\":{}}", "'contains'"},
        {"{\"type\":\"integer\",\"multipleOf\":5}", "'multipleOf'"},
        {"{\"requried\":[\"a\"]}", "'requried'"},
        {"{\"type\":\"strnig\"}", "'type'"},
        {"{\"properties\":{\"a\":{\"items\":{\"dependentRequired\":{}}}}}", "#/properties/a/items"},
        {"{\"$ref\":\"http://example.org/s\"}", "http://example.org/s"},
        {"{\"$ref\":\"#/$defs/missing\"}", "missing"},
        {"{\"$ref\":\"#\"}", "no text at all"},
        {"{\"allOf\":[{\"$ref\":\"#\"}]}", "without an end"},
        {"{\"type\":\"string\",\"format\":\"regex\"}", "'regex'"},
        {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "'pattern'"},
        {"{\"type\":\"string\",\"pattern\":\"^a*$\",\"maxLength\":3}", "maxLength"},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "'minLength' is more"},
        {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", "'minItems' is more"},
        {"{\"type\":\"array\",\"items\":[{}]}", "prefixItems"},
        {"{\"enum\":[]}", "no value"},
        {"{\"type\":\"integer\",\"enum\":[\"a\"]}", "no value"},
        {"{\"enum\":[\"abc\"],\"maxLength\":2}", "'enum'"},
        {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "'pattern'"},
        {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "no type"},
        {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no text at all"},
        {"{\"type\":\"number\",\"minimum\":1e300}", "1e+300"},
        {"{\"type\":\"integer\",\"minimum\":\"5\"}", "'minimum'"},
        {"{\"minLength\":-1}", "'minLength'"},
        {"false", "no text at all"},
        {"{\"properties\":{\"a\":false},\"required\":[\"a\"]}", "no text at all"},
        {"{\"type\":\"object\",\"type\":\"object\"}", "no JSON"},
    };
    REFUSALS(HEARTH_GRAMMAR_JSON_SCHEMA, list);
}

/* Random bounds, and numbers near them and anywhere, against the comparison of numbers. */
static void numbers_keep_their_bounds(void **state) {
    (void)state;
    uint64_t r = test_seed();
    int inside = 0;
    for (int round = 0; round < 250; round++) {
        const bool integer = round % 2, with_min = rng_next(&r) % 4 != 0, with_max = !with_min || rng_next(&r) % 4 != 0;
        const bool open_min = rng_next(&r) % 3 == 0, open_max = rng_next(&r) % 3 == 0;
        static const double scales[] = {1, 1, 10, 1000, 1e6, 1e9};
        const double scale = scales[rng_next(&r) % 6], grain = integer ? 1 : rng_next(&r) % 2 ? 0.25 : 0.001;
        double a = floor((rng_double(&r) - 0.5) * scale) + (integer ? 0 : grain * (double)(rng_next(&r) % 4));
        double z = a + floor(rng_double(&r) * scale) + (integer ? 1 : grain * (double)(1 + rng_next(&r) % 5));
        char schema[256];
        int n = snprintf(schema, sizeof schema, "{\"type\":\"%s\"", integer ? "integer" : "number");
        if (with_min) n += snprintf(schema + n, sizeof schema - (size_t)n, ",\"%s\":%.10g", open_min ? "exclusiveMinimum" : "minimum", a);
        if (with_max) n += snprintf(schema + n, sizeof schema - (size_t)n, ",\"%s\":%.10g", open_max ? "exclusiveMaximum" : "maximum", z);
        snprintf(schema + n, sizeof schema - (size_t)n, "}");
        /* As they were written. */
        const double low = with_min ? strtod(strchr(strstr(schema, "inimum"), ':') + 1, NULL) : 0;
        const double high = with_max ? strtod(strchr(strstr(schema, "aximum"), ':') + 1, NULL) : 0;
        err e = {0};
        hearth_grammar *g = grammar_new(vocab, HEARTH_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), &e);
        if (!g) {
            if (!(integer && open_min && open_max && z - a <= 1)) fail_msg("%s: %s", schema, e.text);
            continue;
        }
        for (int i = 0; i < 60; i++) {
            double base = rng_next(&r) % 3 == 0 ? 0 : rng_next(&r) % 2 ? a : z, x = base + (double)((int)(rng_next(&r) % 9) - 4) * grain;
            if (rng_next(&r) % 4 == 0) x = floor((rng_double(&r) - 0.5) * scale * 3);
            char text[64];
            snprintf(text, sizeof text, integer ? "%.0f" : rng_next(&r) % 2 ? "%.10g" : "%.4f", x);
            if (strchr(text, 'e') || (text[0] == '-' && strtod(text, NULL) == 0)) continue;
            double value = strtod(text, NULL);
            bool expected =
                (!with_min || (open_min ? value > low : value >= low)) && (!with_max || (open_max ? value < high : value <= high));
            if (accepts(g, text, strlen(text)) != expected) fail_msg("%s on %s: expected %d", schema, text, expected);
            inside += expected;
        }
        hearth_grammar_free(g);
    }
    assert_true(inside > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gbnf_accepts),           cmocka_unit_test(gbnf_refuses),
        cmocka_unit_test(regex_accepts),          cmocka_unit_test(regex_refuses),
        cmocka_unit_test(regex_agrees_with_pcre), cmocka_unit_test(schema_accepts),
        cmocka_unit_test(schema_refuses),         cmocka_unit_test(numbers_keep_their_bounds),
    };
    return cmocka_run_group_tests(tests, open_vocab, close_vocab);
}
