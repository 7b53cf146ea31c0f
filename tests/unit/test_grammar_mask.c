/* test_grammar_mask.c: masks against trying every token, texts made of allowed tokens against the schema, hostile grammars, failing
 * allocations. */
#include "tools/grammar_kit.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>

#include "base/clock.h"
#include "engine/sampler.h"

enum { N_RANDOM = 600 };
static kit_vocab kit;
static grammar_vocab *vocab;
static size_t words;

static int open_vocab(void **state) {
    (void)state;
    err e = {0};
    uint64_t seed = test_seed();
    vocab = kit_make(&kit, N_RANDOM, &seed, &e);
    if (vocab) words = grammar_mask_words(vocab);
    return vocab ? 0 : -1;
}
static int close_vocab(void **state) {
    (void)state;
    grammar_vocab_free(vocab);
    return 0;
}

typedef struct source {
    hearth_grammar_kind kind;
    const char *text;
} source;

#define RECURSIVE                                                                                                                          \
    "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120},\"kids\":{"       \
    "\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/n\"},"                                                                               \
    "\"maxItems\":2},\"tag\":{\"enum\":[\"a\",\"ab\",null,1.5]}},\"required\":[\"id\"]}},\"$ref\":\"#/$defs/n\"}"
#define MIXED                                                                                                                              \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":5},\"score\":{\"type\":\"number\","  \
    "\"minimum\":0,\"exclusiveMaximum\":2.5},"                                                                                             \
    "\"pair\":{\"prefixItems\":[{\"type\":\"boolean\"},{\"type\":[\"string\",\"null\"]}]},\"more\":{\"additionalProperties\":{\"anyOf\":[" \
    "{\"type\":\"integer\"},{\"const\":\"x\"}]}}},"                                                                                        \
    "\"required\":[\"name\",\"pair\"]}"
static const source sources[] = {
    {HEARTH_GRAMMAR_JSON, ""},
    {HEARTH_GRAMMAR_JSON_SCHEMA, RECURSIVE},
    {HEARTH_GRAMMAR_JSON_SCHEMA, MIXED},
    {HEARTH_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":40},\"minItems\":1,\"maxItems\":50}"},
    {HEARTH_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":30,\"maxLength\":90}"},
    {HEARTH_GRAMMAR_REGEX, "(ab|a|abc){2,5} ?(true|null)*|.{3,40}"},
    {HEARTH_GRAMMAR_GBNF, "root ::= (line \"\\n\")*\nline ::= [^\\n]*"},
    {HEARTH_GRAMMAR_GBNF, "root ::= s\ns ::= \"(\" s \")\" s | \"a\" s | \"\"\n"},
    {HEARTH_GRAMMAR_GBNF, "root ::= word (\" \" word){1,60} \".\"\nword ::= char+\nchar ::= [a-zA-Z] | \"\\u00e9\" | \"\\U0001F600\""},
    {HEARTH_GRAMMAR_GBNF, "root ::= (\"a\"? \"b\"? \" \"?){0,12} \"12\"{3,} "},
};
enum { N_SOURCES = sizeof sources / sizeof *sources };

static hearth_grammar *make(const source *s) {
    err e = {0};
    hearth_grammar *g = grammar_new(vocab, s->kind, s->text, strlen(s->text), &e);
    if (!g) fail_msg("%s: %s", s->text, e.text);
    return g;
}

static bool bit(const uint64_t *bits, int32_t t) { return bits[t / 64] >> (t % 64) & 1; }

/* One of the allowed tokens; ends when it can, sooner in long texts, and then prefers what closes something. */
static int32_t pick(const uint64_t *bits, int length, uint64_t *r) {
    static const char closing[] = "\"}],:)0na. ";
    if (bit(bits, KIT_END) && rng_next(r) % 100 < (uint64_t)(length > 60 ? 80 : 20)) return KIT_END;
    if (length > 60 || rng_next(r) % 3 == 0)
        for (const char *c = closing; *c; c++)
            if (bit(bits, (unsigned char)*c) && rng_next(r) % 3) return (unsigned char)*c;
    int32_t n = 0, chosen = -1;
    for (int32_t t = 0; t < kit.n; t++)
        if (bit(bits, t) && rng_next(r) % (uint64_t)++n == 0) chosen = t;
    return chosen;
}

/* ---- masks ---- */

static void check_mask(grammar_state *s, const uint64_t *bits, const char *name) {
    for (int32_t t = 0; t < kit.n; t++) {
        err e = {0};
        grammar_state *copy = grammar_state_copy(s, &e);
        bool allowed = grammar_state_accept(copy, t, &e);
        if (!allowed) assert_int_equal(e.code, HEARTH_ARGUMENT);
        if (allowed != bit(bits, t)) fail_msg("%s: token %d is %s, the mask says otherwise", name, t, allowed ? "allowed" : "not allowed");
        grammar_state_free(copy);
    }
}

static void masks_agree_with_trying(void **state) {
    (void)state;
    uint64_t r = test_seed();
    uint64_t bits[(KIT_MAX + 63) / 64];
    for (int i = 0; i < N_SOURCES; i++) {
        hearth_grammar *g = make(&sources[i]);
        for (int walk = 0; walk < 4; walk++) {
            err e = {0};
            /* Half of the walks work with next to no memory: everything is forgotten all the time. */
            if (walk == 2) grammar_set_budget(g, 1 << 18);
            grammar_state *s = grammar_state_new(g, &e);
            for (int step = 0; step < 40; step++) {
                if (!grammar_state_mask(s, bits, &e)) fail_msg("%s: %s", sources[i].text, e.text);
                assert_int_equal(grammar_state_can_end(s), bit(bits, KIT_END));
                assert_int_equal(bit(bits, KIT_END_TOO), bit(bits, KIT_END));
                if (step % 4 == walk) check_mask(s, bits, sources[i].text);
                int32_t t = pick(bits, step, &r);
                if (t == KIT_END) break;
                assert_true(grammar_state_accept(s, t, &e));
            }
            grammar_state_free(s);
        }
        hearth_grammar_free(g);
    }
}

/* Every distance from both bounds, with tokens that reach across them. */
static void masks_agree_near_bounds(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":30}}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":28}}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":14,\"maxLength\":17}}",
        "{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":9},\"maxItems\":3},\"minItems\":3,"
        "\"maxItems\":4}",
    };
    uint64_t bits[(KIT_MAX + 63) / 64];
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        /* Far from the bounds first, so that others can be made from it, and the other way round. */
        for (int down = 0; down < 2; down++) {
            err e = {0};
            hearth_grammar *g = make(&(source){HEARTH_GRAMMAR_JSON_SCHEMA, schemas[i]});
            for (int k = 0; k <= 30; k++) {
                buf text = {0};
                buf_adds(&text, i == 3 ? "[[\"" : "[\"", NULL);
                for (int n = down ? 30 - k : k; n > 0; n--) buf_addc(&text, 'x', NULL);
                grammar_state *s = grammar_state_new(g, &e);
                if (grammar_state_add(s, text.data, text.len, &e)) {
                    assert_true(grammar_state_mask(s, bits, &e));
                    check_mask(s, bits, schemas[i]);
                }
                err_clear(&e);
                grammar_state_free(s);
                buf_free(&text);
            }
            hearth_grammar_free(g);
        }
    }
}

/* ---- what comes out ---- */

static const json_t *resolve(const json_t *root, const json_t *x) {
    const char *ref = json_string_value(json_object_get(x, "$ref"));
    return ref ? json_object_get(json_object_get(root, "$defs"), strrchr(ref, '/') + 1) : x;
}

static size_t characters(const char *s) {
    size_t n = 0;
    for (; *s; s++) n += (*s & 0xC0) != 0x80;
    return n;
}

static bool fits_type(const char *type, const json_t *v) {
    if (strcmp(type, "object") == 0) return json_is_object(v);
    if (strcmp(type, "array") == 0) return json_is_array(v);
    if (strcmp(type, "string") == 0) return json_is_string(v);
    if (strcmp(type, "integer") == 0) return json_is_integer(v);
    if (strcmp(type, "number") == 0) return json_is_number(v);
    if (strcmp(type, "boolean") == 0) return json_is_boolean(v);
    return json_is_null(v);
}

static bool within(const json_t *x, const char *least, const char *most, double n) {
    const json_t *a = json_object_get(x, least), *z = json_object_get(x, most);
    return (!a || n >= json_number_value(a)) && (!z || n <= json_number_value(z));
}

/* The part of JSON schema that the schemas above use. */
static bool fits(const json_t *root, const json_t *x, const json_t *v) {
    x = resolve(root, x);
    const json_t *type = json_object_get(x, "type"), *list, *item, *rest = json_object_get(x, "additionalProperties");
    size_t i;
    bool ok = !type || (json_is_string(type) && fits_type(json_string_value(type), v));
    for (i = 0; !ok && i < json_array_size(type); i++) ok = fits_type(json_string_value(json_array_get(type, i)), v);
    if ((list = json_object_get(x, "enum"))) {
        bool found = false;
        json_array_foreach(list, i, item) found = found || json_equal(item, v);
        ok = ok && found;
    }
    if ((item = json_object_get(x, "const"))) ok = ok && json_equal(item, v);
    if ((list = json_object_get(x, "anyOf"))) {
        bool found = false;
        json_array_foreach(list, i, item) found = found || fits(root, item, v);
        ok = ok && found;
    }
    if (json_is_string(v)) ok = ok && within(x, "minLength", "maxLength", (double)characters(json_string_value(v)));
    if (json_is_number(v)) {
        const json_t *open = json_object_get(x, "exclusiveMaximum");
        ok = ok && within(x, "minimum", "maximum", json_number_value(v)) && (!open || json_number_value(v) < json_number_value(open));
    }
    if (json_is_array(v)) {
        const json_t *prefix = json_object_get(x, "prefixItems"), *items = json_object_get(x, "items");
        ok = ok && within(x, "minItems", "maxItems", (double)json_array_size(v));
        json_array_foreach(v, i, item) {
            const json_t *of = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
            ok = ok && (!of || fits(root, of, item));
        }
    }
    if (json_is_object(v)) {
        const char *key;
        json_t *member, *properties = json_object_get(x, "properties");
        json_object_foreach((json_t *)v, key, member) {
            const json_t *of = json_object_get(properties, key);
            ok = ok && (of ? fits(root, of, member) : !properties || (rest && fits(root, rest, member)));
        }
        json_array_foreach(json_object_get(x, "required"), i, item) ok = ok && json_object_get(v, json_string_value(item));
    }
    return ok;
}

static void what_comes_out_fits(void **state) {
    (void)state;
    uint64_t r = test_seed();
    uint64_t bits[(KIT_MAX + 63) / 64];
    int finished = 0;
    for (int i = 0; i < N_SOURCES; i++) {
        if (sources[i].kind > HEARTH_GRAMMAR_JSON || sources[i].kind == HEARTH_GRAMMAR_GBNF || sources[i].kind == HEARTH_GRAMMAR_REGEX)
            continue;
        json_t *schema = json_loads(sources[i].kind == HEARTH_GRAMMAR_JSON ? "{\"type\":\"object\"}" : sources[i].text, 0, NULL);
        hearth_grammar *g = make(&sources[i]);
        for (int walk = 0; walk < 60; walk++) {
            err e = {0};
            buf text = {0};
            grammar_state *s = grammar_state_new(g, &e);
            int32_t t = -1;
            for (int step = 0; step < 400 && t != KIT_END; step++) {
                if (!grammar_state_mask(s, bits, &e)) fail_msg("%s: %s", sources[i].text, e.text);
                t = pick(bits, step, &r);
                if (t == KIT_END) break;
                assert_true(grammar_state_accept(s, t, &e));
                buf_add(&text, kit.text[t], kit.len[t], NULL);
            }
            if (t == KIT_END) {
                json_error_t why;
                json_t *v = json_loadb(text.data, text.len, JSON_DECODE_ANY, &why);
                if (!v) fail_msg("%s made %s: %s", sources[i].text, text.data, why.text);
                if (!fits(schema, schema, v)) fail_msg("%s made %s", sources[i].text, text.data);
                json_decref(v);
                finished++;
            }
            grammar_state_free(s);
            buf_free(&text);
        }
        hearth_grammar_free(g);
        json_decref(schema);
    }
    assert_true(finished > 150);
}

/* ---- states ---- */

static void states_are_independent(void **state) {
    (void)state;
    err e = {0};
    hearth_grammar *g = make(&(source){HEARTH_GRAMMAR_GBNF, "root ::= \"ab\" | \"cd\""});
    grammar_state *s = grammar_state_new(g, &e), *copy;
    assert_true(grammar_state_add(s, "a", 1, &e));
    copy = grammar_state_copy(s, &e);
    hearth_grammar_free(g); /* the states keep it */
    assert_true(grammar_state_add(s, "b", 1, &e));
    assert_true(grammar_state_can_end(s));
    assert_false(grammar_state_can_end(copy));
    assert_false(grammar_state_add(copy, "c", 1, &e));
    assert_string_equal(e.text, "the grammar does not allow 'c' here");
    err_clear(&e);
    assert_true(grammar_state_add(copy, "b", 1, &e));
    grammar_state_restart(copy);
    assert_true(grammar_state_add(copy, "cd", 2, &e));
    assert_false(grammar_state_accept(copy, KIT_CONTROL, &e));
    err_clear(&e);
    assert_true(grammar_state_accept(copy, KIT_END, &e));
    assert_false(grammar_state_accept(copy, kit.n, &e));
    grammar_state_free(s);
    grammar_state_free(copy);
}

static const char *only_letters(const void *context, int32_t token, size_t *len) {
    *len = 1;
    return (const char *)context + token;
}
static bool never(const void *context, int32_t token) { return (void)context, (void)token, false; }

static void says_when_nothing_is_allowed(void **state) {
    (void)state;
    err e = {0};
    uint64_t bits[1];
    grammar_vocab *small = grammar_vocab_new(2, only_letters, never, "ab", &e);
    hearth_grammar *g = grammar_new(small, HEARTH_GRAMMAR_REGEX, "ac", 2, &e);
    grammar_state *s = grammar_state_new(g, &e);
    assert_true(grammar_state_mask(s, bits, &e) && bits[0] == 1);
    assert_true(grammar_state_accept(s, 0, &e));
    assert_false(grammar_state_mask(s, bits, &e));
    assert_int_equal(e.code, HEARTH_UNSUPPORTED);
    grammar_state_free(s);
    hearth_grammar_free(g);
    grammar_vocab_free(small);
}

/* ---- the sampler ---- */

static void sampler_follows_the_grammar(void **state) {
    (void)state;
    err e = {0};
    uint64_t r = test_seed();
    float *logits = malloc((size_t)kit.n * sizeof *logits);
    hearth_grammar *g = make(&(source){HEARTH_GRAMMAR_REGEX, "[a-c]{4,6}x"});
    hearth_sampler_options o = hearth_sampler_defaults();
    o.grammar = g;
    hearth_sampler *s = sampler_new(kit.n, kit_bytes, &kit, &o, &e);
    hearth_grammar_free(g);
    const int32_t prompt[] = {'!', '?'};
    for (int round = 0; round < 30; round++) {
        int32_t tokens[16] = {prompt[round % 2]};
        size_t n = 1;
        assert_true(sampler_sync(s, tokens, n, &e)); /* a new prompt: the grammar starts again */
        for (;;) {
            for (int32_t i = 0; i < kit.n; i++) logits[i] = (float)rng_normal(&r);
            int32_t t = hearth_sampler_pick(s, logits, &e);
            if (t < 0) fail_msg("%s", e.text);
            if (t == KIT_END || t == KIT_END_TOO) break;
            assert_true(n < 16);
            tokens[n++] = t;
            assert_true(hearth_sampler_accept(s, t, &e));
            if (n == 4 && rng_next(&r) % 2) { /* back, and on from there */
                n = 2;
                assert_true(sampler_sync(s, tokens, n, &e));
            }
        }
        buf text = {0};
        for (size_t i = 1; i < n; i++) buf_add(&text, kit.text[tokens[i]], kit.len[tokens[i]], NULL);
        assert_true(text.len >= 5 && text.len <= 7 && text.data[text.len - 1] == 'x' && strspn(text.data, "abc") == text.len - 1);
        buf_free(&text);
    }
    assert_false(hearth_sampler_accept(s, '!', &e));
    hearth_sampler_free(s);
    free(logits);
}

/* ---- threads ---- */

static void *walk_shared(void *grammar) {
    err e = {0};
    uint64_t r = 7, bits[(KIT_MAX + 63) / 64];
    for (int i = 0; i < 10; i++) {
        grammar_state *s = grammar_state_new(grammar, &e);
        for (int step = 0; step < 30 && e.code == HEARTH_OK; step++) {
            if (!grammar_state_mask(s, bits, &e)) break;
            int32_t t = pick(bits, step, &r);
            if (t == KIT_END || !grammar_state_accept(s, t, &e)) break;
        }
        grammar_state_free(s);
    }
    return e.code == HEARTH_OK ? NULL : grammar;
}

static void threads_share_a_grammar(void **state) {
    (void)state;
    hearth_grammar *g = make(&sources[1]);
    grammar_set_budget(g, 1 << 18);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, walk_shared, g), 0);
    for (int i = 0; i < 3; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    hearth_grammar_free(g);
}

/* ---- hostile grammars ---- */

/* Whatever happens, it ends, in an error or in masks. */
static void try_grammar(hearth_grammar_kind kind, const char *text, size_t len, uint64_t *r) {
    err e = {0};
    uint64_t bits[(KIT_MAX + 63) / 64];
    hearth_grammar *g = grammar_new(vocab, kind, text, len, &e);
    if (!g) {
        assert_true(e.code != HEARTH_OK && e.text[0]);
        return;
    }
    grammar_set_budget(g, 1 << 22);
    grammar_state *s = grammar_state_new(g, &e);
    for (int step = 0; step < 12; step++) {
        if (!grammar_state_mask(s, bits, &e)) break;
        int32_t t = pick(bits, step, r);
        if (t == KIT_END || t < 0) break;
        if (!grammar_state_accept(s, t, &e)) {
            /* A grammar may become too ambiguous to follow at any byte. */
            if (e.code != HEARTH_LIMIT) fail_msg("allowed token %d is refused: %s", t, e.text);
            break;
        }
    }
    if (e.code != HEARTH_OK) assert_true(e.code == HEARTH_LIMIT || e.code == HEARTH_UNSUPPORTED);
    grammar_state_free(s);
    hearth_grammar_free(g);
}

static void hostile_grammars_end(void **state) {
    (void)state;
    uint64_t r = test_seed();
    static const source list[] = {
        {HEARTH_GRAMMAR_GBNF, "root ::= a{0,99999999}\na ::= b{0,99999999}\nb ::= c?\nc ::= \"x\"{0,99999999}"},
        {HEARTH_GRAMMAR_GBNF, "root ::= (((\"a\"?){1000}){1000}){1000} \"b\""},
        {HEARTH_GRAMMAR_GBNF, "root ::= ((((((\"a\"{0,9} [ab]{0,9}){0,999} .{0,9}){0,999}){0,999}){0,999}){0,999}){0,999}"},
        {HEARTH_GRAMMAR_GBNF, "root ::= \"a\" root x | \"a\" root y | \"a\"\nx ::= \"x\"?\ny ::= \"y\"?"},
        {HEARTH_GRAMMAR_GBNF, "root ::= s\ns ::= [a-z] s s s | [a-z] s s | [a-z] s | [a-z]"},
        {HEARTH_GRAMMAR_GBNF, "root ::= (.* .*){5} (.? .*){9} \"zq\""},
        {HEARTH_GRAMMAR_REGEX, "(a*)*(a*)*(a+)+((b?){50}){50}.*.*.*.*x"},
        {HEARTH_GRAMMAR_REGEX, "(.{1,1000}){1,1000}(.{1,1000}){1,1000}"},
        {HEARTH_GRAMMAR_REGEX, "((((((((((.?.?)?.?)?.?)?.?)?.?)*.?)*.?)*.?)*.?)*.?)*"},
        {HEARTH_GRAMMAR_JSON_SCHEMA,
         "{\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/b\"},{\"$ref\":\"#/$defs/b\"}]},\"b\":{\"allOf\":[{\"$ref\":\"#/$defs/"
         "a\"},{\"$ref\":\"#/$defs/a\"}]}},\"$ref\":\"#/$defs/a\"}"},
        {HEARTH_GRAMMAR_JSON_SCHEMA, "{\"anyOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"},{\"type\":\"null\"}]}"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) try_grammar(list[i].kind, list[i].text, strlen(list[i].text), &r);
}

static void append_many(buf *b, const char *text, int n) {
    for (int i = 0; i < n; i++) buf_adds(b, text, NULL);
}

static void large_grammars_end(void **state) {
    (void)state;
    uint64_t r = test_seed();
    buf b = {0};
    static const struct {
        hearth_grammar_kind kind;
        const char *before, *open, *middle, *close;
        int n;
    } nested[] = {
        {HEARTH_GRAMMAR_GBNF, "root ::= ", "(", "\"a\"", ")", 100000},
        {HEARTH_GRAMMAR_GBNF, "root ::= \"a\"", "{2}", "", "", 5000},
        {HEARTH_GRAMMAR_GBNF, "root ::= \"a\"", "+", "", "", 5000},
        {HEARTH_GRAMMAR_REGEX, "", "(", "a", ")", 100000},
        {HEARTH_GRAMMAR_JSON_SCHEMA, "", "{\"items\":", "{}", "}", 1000},
        {HEARTH_GRAMMAR_JSON_SCHEMA, "", "{\"items\":", "{}", "}", 90},
        {HEARTH_GRAMMAR_JSON_SCHEMA, "", "[", "", "]", 100000},
        {HEARTH_GRAMMAR_JSON_SCHEMA, "", "{\"anyOf\":[{\"type\":\"null\"},", "true", "]}", 60},
    };
    for (size_t i = 0; i < sizeof nested / sizeof *nested; i++) {
        b.len = 0;
        buf_adds(&b, nested[i].before, NULL);
        append_many(&b, nested[i].open, nested[i].n);
        buf_adds(&b, nested[i].middle, NULL);
        append_many(&b, nested[i].close, nested[i].n);
        try_grammar(nested[i].kind, b.data, b.len, &r);
    }
    /* Many rules in a chain, each a bit of the next. */
    b.len = 0;
    buf_adds(&b, "root ::= r0\n", NULL);
    for (int i = 0; i < 20000; i++) buf_addf(&b, NULL, "r%d ::= \"x\" r%d | r%d?\n", i, i + 1, i + 1);
    buf_adds(&b, "r20000 ::= \"y\"\n", NULL);
    try_grammar(HEARTH_GRAMMAR_GBNF, b.data, b.len, &r);
    /* A long list of words is an ordinary thing. */
    b.len = 0;
    buf_adds(&b, "{\"enum\":[\"w\"", NULL);
    for (int i = 0; i < 20000; i++) buf_addf(&b, NULL, ",\"word%d\"", i);
    buf_adds(&b, "]}", NULL);
    err e = {0};
    hearth_grammar *g = grammar_new(vocab, HEARTH_GRAMMAR_JSON_SCHEMA, b.data, b.len, &e);
    grammar_state *s = grammar_state_new(g, &e);
    assert_true(grammar_state_add(s, "\"word19999\"", 11, &e) && grammar_state_can_end(s));
    grammar_state_free(s);
    hearth_grammar_free(g);
    buf_free(&b);
}

/* A list of a hundred thousand items needs no deep stack, and a deep one no more than it holds. */
static void long_texts_stay_cheap(void **state) {
    (void)state;
    err e = {0};
    hearth_grammar *g = make(&sources[0]);
    grammar_state *s = grammar_state_new(g, &e);
    assert_true(grammar_state_add(s, "{\"a\":[1", 7, &e));
    for (int i = 0; i < 100000; i++) assert_true(grammar_state_add(s, ",\"x\"", 4, &e));
    for (int i = 0; i < 20000; i++) assert_true(grammar_state_add(s, ",[0", 3, &e));
    for (int i = 0; i < 20000; i++) assert_true(grammar_state_add(s, "]", 1, &e));
    assert_true(grammar_state_add(s, "]}", 2, &e) && grammar_state_can_end(s));
    grammar_state_free(s);
    hearth_grammar_free(g);
}

static void damaged_grammars_end(void **state) {
    (void)state;
    uint64_t r = test_seed();
    static const char alphabet[] = "(){}[]|*+?\"\\:=,.-^$#\n ax09u<>!/~%";
    for (int round = 0; round < 1500; round++) {
        const source *from = &sources[1 + rng_next(&r) % (N_SOURCES - 1)];
        buf b = {0};
        buf_adds(&b, from->text, NULL);
        for (uint64_t n = 1 + rng_next(&r) % 4; n > 0; n--) {
            size_t at = rng_next(&r) % b.len, other = rng_next(&r) % b.len;
            switch (rng_next(&r) % 5) {
            case 0:
                b.data[at] = (char)rng_next(&r);
                break;
            case 1:
                b.data[at] = alphabet[rng_next(&r) % (sizeof alphabet - 1)];
                break;
            case 2:
                b.len = at + 1;
                break;
            case 3:
                b.data[at] = b.data[other];
                break;
            default: {
                size_t len = rng_next(&r) % 12 + 1;
                if (other + len > b.len || at + len > b.len) break;
                memmove(b.data + at, b.data + other, len);
            }
            }
        }
        try_grammar(rng_next(&r) % 16 ? from->kind : (hearth_grammar_kind)(rng_next(&r) % 4), b.data, b.len, &r);
        buf_free(&b);
    }
}

/* ---- failing allocations ---- */

/* True when everything worked. */
static bool use_everything(const source *from) {
    err e = {0};
    kit_vocab *small = malloc(sizeof *small);
    uint64_t seed = 3, bits[(KIT_MAX + 63) / 64];
    grammar_vocab *v = kit_make(small, 5, &seed, &e);
    hearth_grammar *g = v ? grammar_new(v, from->kind, from->text, strlen(from->text), &e) : NULL;
    grammar_state *s = g ? grammar_state_new(g, &e) : NULL;
    if (g) grammar_set_budget(g, 20000);
    for (int step = 0; s && step < 6; step++) {
        if (!grammar_state_mask(s, bits, &e)) break;
        int32_t t = 0;
        while (t < small->n && (t == KIT_END || t == KIT_END_TOO || !bit(bits, t))) t++;
        if (t == small->n || !grammar_state_accept(s, t, &e)) break;
    }
    assert_true(e.code == HEARTH_OK || e.code == HEARTH_MEMORY);
    grammar_state_free(s);
    hearth_grammar_free(g);
    grammar_vocab_free(v);
    free(small);
    return e.code == HEARTH_OK;
}

static void failing_allocations_are_reported(void **state) {
    (void)state;
    static const int which[] = {2, 5, 8};
    for (int i = 0; i < 3; i++) {
        const source *from = &sources[which[i]];
        mem_fail_nth(0);
        assert_true(use_everything(from));
        const long total = mem_count();
        const long step = total / 400 + 1;
        for (long n = 1; n <= total; n += n < 200 ? 1 : step) {
            mem_fail_nth(n);
            assert_false(use_everything(from));
        }
        mem_fail_nth(0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_agree_with_trying),      cmocka_unit_test(masks_agree_near_bounds),
        cmocka_unit_test(what_comes_out_fits),          cmocka_unit_test(states_are_independent),
        cmocka_unit_test(says_when_nothing_is_allowed), cmocka_unit_test(sampler_follows_the_grammar),
        cmocka_unit_test(threads_share_a_grammar),      cmocka_unit_test(hostile_grammars_end),
        cmocka_unit_test(large_grammars_end),           cmocka_unit_test(long_texts_stay_cheap),
        cmocka_unit_test(damaged_grammars_end),         cmocka_unit_test(failing_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, open_vocab, close_vocab);
}
