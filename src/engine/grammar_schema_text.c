/* grammar_schema_text.c: strings of JSON schemas, constant values, and the rules that all schemas share. */
#include <stdlib.h>
#include <string.h>

#include "engine/grammar_schema.h"

/* ---- shared rules ---- */

#define NAME_PART "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define DATE "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define TIME_SPAN "T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)"
#define DAY_SPAN "(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define H16 "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                                                                               \
    "(?:" H16 ":){7}" H16 "|(?:" H16 ":){1,7}:|(?:" H16 ":){1,6}:" H16 "|(?:" H16 ":){1,5}(?::" H16 "){1,2}|(?:" H16 ":){1,4}(?::" H16     \
    "){1,3}|(?:" H16 ":){1,3}(?::" H16 "){1,4}|(?:" H16 ":){1,2}(?::" H16 "){1,5}|" H16 ":(?::" H16 "){1,6}|:(?::" H16 "){1,7}|::"
#define URI_TAIL "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-F]{2})*"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(?:[0-9]{1,9}W|" DAY_SPAN "(?:" TIME_SPAN ")?|" TIME_SPAN ")"},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
    {"email", "[A-Za-z0-9_%+-]{1,32}(?:\\.[A-Za-z0-9_%+-]{1,15}){0,2}@(?:" NAME_PART "\\.){1,3}[A-Za-z]{2,18}"},
    {"hostname", NAME_PART "(?:\\." NAME_PART "){0,3}"},
    {"ipv4", "(?:" OCTET "\\.){3}" OCTET},
    {"ipv6", IPV6},
    {"uri", "[a-z][a-z0-9+.-]{0,15}://" NAME_PART "(?:\\." NAME_PART "){0,3}(?::[1-9][0-9]{0,3})?(?:/" URI_TAIL ")?(?:#" URI_TAIL ")?"},
};

static uint32_t regex(schema *s, const char *pattern) {
    return grammar_read_regex(s->b, pattern, strlen(pattern), GRAMMAR_REGEX_WHOLE).expr;
}

/* One character of a string; an escaped one counts as one too, and what UTF-16 spells in two escapes. */
static const char one_char[] =
    "[^\"\\\\\\x00-\\x1f]|\\\\(?:[\"\\\\/bfnrt]|u(?:[1-9A-Ca-cE-Fe-f][0-9A-Fa-f]{3}|[dD][0-7][0-9A-Fa-f]{2}|0[1-9A-Fa-f][0-9A-Fa-f]{2}|"
    "00[1-9A-Fa-f][0-9A-Fa-f]|000[1-9A-Fa-f]|[dD][89ABab][0-9A-Fa-f]{2}\\\\u[dD][C-Fc-f][0-9A-Fa-f]{2}))";

/* first ( "," space item )* in brackets. */
static uint32_t in_brackets(schema *s, const char *open, uint32_t item, const char *close) {
    uint32_t space = schema_common(s, SCHEMA_SPACE), comma = GRAMMAR_SEQ_OF(s->b, grammar_text(s->b, ","), space, item);
    uint32_t items = GRAMMAR_SEQ_OF(s->b, item, grammar_repeat(s->b, comma, 0, GRAMMAR_MANY), space);
    return GRAMMAR_SEQ_OF(s->b, grammar_text(s->b, open), space, grammar_repeat(s->b, items, 0, 1), grammar_text(s->b, close));
}

static uint32_t shared_rule(schema *s, schema_shared which) {
    grammar_build *b = s->b;
    switch (which) {
    case SCHEMA_SPACE:
        return regex(s, "(?: |\n[ \t]{0,20})?");
    case SCHEMA_CHAR:
        return regex(s, one_char);
    case SCHEMA_REST:
        return GRAMMAR_SEQ_OF(b, grammar_repeat(b, regex(s, one_char), 0, GRAMMAR_MANY), grammar_text(b, "\""));
    case SCHEMA_STRING:
        return GRAMMAR_SEQ_OF(b, grammar_text(b, "\""), schema_common(s, SCHEMA_REST));
    case SCHEMA_INTEGER:
        return regex(s, "-?(?:0|[1-9][0-9]{0,17})");
    case SCHEMA_NUMBER:
        return regex(s, "-?(?:0|[1-9][0-9]{0,14})(?:\\.[0-9]{1,16})?(?:[eE][+-]?[0-9]{1,2})?");
    case SCHEMA_OBJECT: {
        uint32_t colon = grammar_text(b, ":"), space = schema_common(s, SCHEMA_SPACE);
        return in_brackets(s, "{", GRAMMAR_SEQ_OF(b, schema_common(s, SCHEMA_STRING), colon, space, schema_common(s, SCHEMA_VALUE)), "}");
    }
    case SCHEMA_ARRAY:
        return in_brackets(s, "[", schema_common(s, SCHEMA_VALUE), "]");
    case SCHEMA_VALUE:
    case SCHEMA_SHARED:
        break;
    }
    return GRAMMAR_ALT_OF(b, schema_common(s, SCHEMA_OBJECT), schema_common(s, SCHEMA_ARRAY), schema_common(s, SCHEMA_STRING),
                          schema_common(s, SCHEMA_NUMBER), grammar_text(b, "true"), grammar_text(b, "false"), grammar_text(b, "null"));
}

uint32_t schema_common(schema *s, schema_shared which) {
    static const char *const names[] = {"space", "char", "rest", "string", "integer", "number", "object", "array", "value"};
    if (!s->shared[which]) {
        uint32_t rule = grammar_rule_new(s->b, names[which], strlen(names[which]));
        if (grammar_failed(s->b)) return 0;
        s->shared[which] = rule + 1; /* before it is defined: values hold values */
        grammar_rule_set(s->b, rule, shared_rule(s, which));
    }
    return grammar_call(s->b, s->shared[which] - 1);
}

/* ---- strings ---- */

bool schema_count(schema *s, const json_t *x, const char *key, uint32_t fallback, uint32_t *out) {
    const json_t *value = json_object_get(x, key);
    *out = fallback;
    if (!value) return true;
    double n = json_is_number(value) ? json_number_value(value) : -1;
    if (!(n >= 0) || n > 1e15 || n != (double)(uint64_t)n)
        return schema_fail(s, HEARTH_ARGUMENT, "'%s' must be a whole number of 0 or more", key);
    *out = n >= GRAMMAR_MANY ? GRAMMAR_MANY : (uint32_t)n;
    return true;
}

static uint32_t quoted(schema *s, uint32_t x) {
    uint32_t quote = grammar_text(s->b, "\"");
    return GRAMMAR_SEQ_OF(s->b, quote, x, quote);
}

/* A pattern or format; lengths beside it are accepted where they change nothing. */
static uint32_t matching(schema *s, const char *key, const char *pattern, size_t len, grammar_regex_use use, uint32_t min, uint32_t max) {
    grammar_regex r = grammar_read_regex(s->b, pattern, len, use);
    if (grammar_failed(s->b)) {
        err_prefix(s->b->e, "'%s'", key);
        return 0;
    }
    if (r.shortest < min || (max < GRAMMAR_MANY && r.longest > max))
        return schema_fail(s, HEARTH_UNSUPPORTED,
                           "'minLength' and 'maxLength' beside '%s' are not supported; let the pattern say how long the text is", key);
    return quoted(s, r.expr);
}

uint32_t schema_string(schema *s, const json_t *x) {
    const json_t *pattern = json_object_get(x, "pattern"), *format = json_object_get(x, "format");
    uint32_t min, max;
    if (!schema_count(s, x, "minLength", 0, &min) || !schema_count(s, x, "maxLength", GRAMMAR_MANY, &max)) return 0;
    if (min > max) return schema_fail(s, HEARTH_ARGUMENT, "'minLength' is more than 'maxLength'");
    if (pattern && format) return schema_fail(s, HEARTH_UNSUPPORTED, "'pattern' and 'format' together are not supported");
    if ((pattern && !json_is_string(pattern)) || (format && !json_is_string(format)))
        return schema_fail(s, HEARTH_ARGUMENT, "'pattern' and 'format' must be strings");
    if (pattern)
        return matching(s, "pattern", json_string_value(pattern), json_string_length(pattern), GRAMMAR_REGEX_JSON_SEARCH, min, max);
    for (size_t i = 0; format && i < sizeof formats / sizeof *formats; i++)
        if (strcmp(json_string_value(format), formats[i].name) == 0)
            return matching(s, "format", formats[i].pattern, strlen(formats[i].pattern), GRAMMAR_REGEX_JSON_WHOLE, min, max);
    if (format) {
        char name[64];
        err_quote(name, sizeof name, json_string_value(format), json_string_length(format));
        return schema_fail(s, HEARTH_UNSUPPORTED, "the format '%s' is not supported", name);
    }
    if (min == 0 && max >= GRAMMAR_MANY) return schema_common(s, SCHEMA_STRING);
    return quoted(s, grammar_repeat(s->b, schema_common(s, SCHEMA_CHAR), min, max));
}

/* ---- constants ---- */

/* With as few digits as give the same number back. */
static char *dump(const json_t *value, size_t *len) {
    for (size_t precision = 15; precision <= 17; precision++) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(precision));
        json_t *again = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
        bool same = again && json_equal(again, value);
        json_decref(again);
        if (!text || same || precision == 17) {
            *len = text ? strlen(text) : 0;
            return text;
        }
        free(text);
    }
    return NULL;
}

uint32_t schema_literal(schema *s, const json_t *value) {
    size_t len = 0;
    char *text = dump(value, &len);
    if (!text) return err_nomem(s->b->e, 0);
    uint32_t x = grammar_bytes_of(s->b, text, len);
    free(text);
    return x;
}

/* ---- keys that are not taken ---- */

/* The names from first to last, which are sorted, share their first `at` bytes. What may come after those bytes, up to the closing quote.
 */
static uint32_t other_key(schema *s, char *const *names, size_t first, size_t last, size_t at, int depth) {
    uint32_t rest = schema_common(s, SCHEMA_REST);
    grammar_list choices = {0};
    grammar_range *taken = mem_alloc(last - first + 3, sizeof *taken, s->b->e);
    size_t n = 0;
    if (!taken) return 0;
    taken[n++] = (grammar_range){0, 0x1F};
    taken[n++] = (grammar_range){'"', '"'};
    taken[n++] = (grammar_range){'\\', '\\'}; /* what differs by an escape may be equal all the same */
    bool is_name = false;
    for (size_t i = first, end; i < last && !grammar_failed(s->b); i = end) {
        uint32_t c = 0;
        size_t len = 1;
        end = i + 1;
        if (!names[i][at]) {
            is_name = true;
            continue;
        }
        if (!grammar_utf8(names[i] + at, strlen(names[i] + at), &c, &len)) break; /* cannot be: they came out of a JSON text */
        for (; end < last && strncmp(names[end] + at, names[i] + at, len) == 0; end++) {}
        taken[n++] = (grammar_range){c, c};
        if (depth < GRAMMAR_MAX_DEPTH / 4) {
            uint32_t below = other_key(s, names, i, end, at + len, depth + 1);
            grammar_list_add(s->b, &choices, GRAMMAR_SEQ_OF(s->b, grammar_bytes_of(s->b, names[i] + at, len), below));
        }
    }
    if (!is_name) grammar_list_add(s->b, &choices, grammar_text(s->b, "\""));
    grammar_list_add(s->b, &choices, GRAMMAR_SEQ_OF(s->b, grammar_chars(s->b, taken, n, true), rest));
    uint32_t x = grammar_alt(s->b, choices.items, choices.n);
    mem_free(taken);
    grammar_list_free(&choices);
    return x;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

uint32_t schema_other_key(schema *s, const char *const *names, size_t n) {
    if (n == 0) return schema_common(s, SCHEMA_STRING);
    char **escaped = mem_zalloc(n, sizeof *escaped, s->b->e);
    bool ok = escaped != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        json_t *name = json_string(names[i]);
        escaped[i] = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
        json_decref(name);
        ok = escaped[i] != NULL || err_nomem(s->b->e, strlen(names[i]));
        if (ok) escaped[i][strlen(escaped[i]) - 1] = 0; /* without the closing quote */
    }
    uint32_t x = 0;
    if (ok) {
        qsort(escaped, n, sizeof *escaped, by_text);
        x = GRAMMAR_SEQ_OF(s->b, grammar_text(s->b, "\""), other_key(s, escaped, 0, n, 1, 0));
    }
    for (size_t i = 0; escaped && i < n; i++) free(escaped[i]);
    mem_free(escaped);
    return x;
}
