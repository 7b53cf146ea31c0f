/* grammar_schema.c: reads JSON schemas.
 *
 * What is generated is always valid; not everything valid can be generated: properties come in the order of the schema, what is not named
 * is left out unless additionalProperties asks for it, and white space is a space or a line end with an indent. */
#include "engine/grammar_schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint32_t schema_fail(schema *s, hearth_code code, const char *format, ...) {
    char text[400], path[100];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    err_quote(path, sizeof path, s->path.data ? s->path.data : "", s->path.len);
    return err_set(s->b->e, code, "the JSON schema at #%s: %s", path, text);
}

bool schema_step(schema *s) {
    if (grammar_failed(s->b)) return false;
    if (++s->work <= SCHEMA_MAX_WORK) return true;
    return schema_fail(s, HEARTH_LIMIT, "the schema is too large: more than %d schemas have to be looked at", SCHEMA_MAX_WORK);
}

/* A schema below this one. */
static uint32_t value_at(schema *s, const char *key, const char *name, const json_t *x) {
    size_t len = s->path.len;
    uint32_t out = 0;
    if (grammar_failed(s->b)) return 0;
    if (buf_addf(&s->path, s->b->e, name ? "/%s/%s" : "/%s", key, name)) out = schema_value(s, x);
    s->path.len = len;
    if (s->path.data) s->path.data[len] = 0;
    return out;
}

/* ---- references ---- */

/* One part of a JSON pointer with its escapes undone; returns where the next one starts. */
static const char *pointer_part(const char *at, buf *out, err *e) {
    out->len = 0;
    for (; *at && *at != '/'; at++) {
        char c = *at;
        unsigned code;
        int used = 0;
        if (c == '~' && (at[1] == '0' || at[1] == '1')) c = *++at == '0' ? '~' : '/';
        else if (c == '%' && sscanf(at + 1, "%2x%n", &code, &used) == 1 && used == 2) {
            c = (char)code;
            at += 2;
        }
        if (!buf_addc(out, c, e)) return NULL;
    }
    return at;
}

static const json_t *follow_pointer(schema *s, const char *at) {
    const json_t *x = s->root;
    buf part = {0};
    while (x && *at == '/') {
        at = pointer_part(at + 1, &part, s->b->e);
        if (!at) break;
        const char *name = part.data ? part.data : "";
        if (json_is_array(x)) {
            size_t index = 0, n = strspn(name, "0123456789");
            bool number = n > 0 && n < 10 && !name[n];
            if (number) sscanf(name, "%zu", &index);
            x = number ? json_array_get(x, index) : NULL;
        } else x = json_object_get(x, part.len ? name : "");
    }
    buf_free(&part);
    return at && !*at ? x : NULL;
}

const json_t *schema_find(schema *s, const char *ref) {
    const json_t *x = ref[0] == '#' ? follow_pointer(s, ref + 1) : NULL;
    char name[100];
    if (!x)
        schema_fail(s, HEARTH_UNSUPPORTED, "the $ref '%s' leads nowhere in this schema; only #/... is supported",
                    err_quote(name, sizeof name, ref, strlen(ref)));
    return x;
}

/* Every target is a rule, so that schemas may refer to themselves. */
static uint32_t reference(schema *s, const char *ref) {
    const json_t *target = schema_find(s, ref);
    if (!target) return 0;
    char key[32];
    snprintf(key, sizeof key, "%p", (const void *)target);
    const json_t *known = json_object_get(s->refs, key);
    if (known) return grammar_call(s->b, (uint32_t)json_integer_value(known));
    uint32_t rule = grammar_rule_new(s->b, ref, strlen(ref));
    if (json_object_set_new(s->refs, key, json_integer(rule)) != 0) return err_nomem(s->b->e, sizeof key);
    grammar_rule_set(s->b, rule, schema_value(s, target));
    return grammar_call(s->b, rule);
}

/* ---- objects ---- */

typedef struct member {
    const char *name;
    const json_t *schema;
    bool required;
    uint32_t rule;
} member;

typedef struct object {
    member *members;
    size_t n, cap;
    uint32_t more; /* a member that is not named; 0: there are none */
} object;

static uint32_t own_rule(schema *s, const char *name, uint32_t expr) {
    uint32_t rule = grammar_rule_new(s->b, name, strlen(name));
    grammar_rule_set(s->b, rule, expr);
    return rule;
}

/* The names as an object, in which they are found fast and once. */
static const json_t *required_names(schema *s, const json_t *x) {
    const json_t *list = json_object_get(x, "required");
    json_t *names = schema_keep(s, json_object());
    if (!names) return NULL;
    if (list && !json_is_array(list)) return schema_fail(s, HEARTH_ARGUMENT, "'required' must be a list of names"), NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name) return schema_fail(s, HEARTH_ARGUMENT, "'required' must be a list of names"), NULL;
        if (json_object_set_new(names, name, json_true()) != 0) return err_nomem(s->b->e, 0), NULL;
    }
    return names;
}

static bool add_member(schema *s, object *o, const char *name, const json_t *x, bool required) {
    if (!grammar_grow(&o->members, &o->cap, o->n, sizeof *o->members, s->b->e)) return false;
    o->members[o->n++] = (member){.name = name, .schema = x, .required = required};
    return true;
}

/* The named members: the properties in their order, then what is only required. */
static bool find_members(schema *s, const json_t *x, object *o) {
    const json_t *required = required_names(s, x), *rest = json_object_get(x, "additionalProperties");
    json_t *properties = json_object_get(x, "properties"), *value;
    const char *key;
    if (!required) return false;
    if (properties && !json_is_object(properties)) return schema_fail(s, HEARTH_ARGUMENT, "'properties' must be an object");
    json_object_foreach(properties, key, value) {
        if (!add_member(s, o, key, value, json_object_get(required, key) != NULL)) return false;
    }
    json_object_foreach((json_t *)required, key, value) {
        if (!json_object_get(properties, key) && !add_member(s, o, key, rest ? rest : value, true)) return false;
    }
    return true;
}

static uint32_t key_and(schema *s, uint32_t key, uint32_t value) {
    return GRAMMAR_SEQ_OF(s->b, key, grammar_text(s->b, ":"), schema_common(s, SCHEMA_SPACE), value);
}

static bool define_members(schema *s, const json_t *x, object *o) {
    const json_t *rest = json_object_get(x, "additionalProperties");
    for (size_t i = 0; i < o->n && !grammar_failed(s->b); i++) {
        member *m = &o->members[i];
        json_t *name = json_string(m->name);
        if (!name) return err_nomem(s->b->e, strlen(m->name));
        uint32_t key = schema_literal(s, name), value = value_at(s, "properties", m->name, m->schema);
        json_decref(name);
        m->rule = own_rule(s, m->name, key_and(s, key, value));
    }
    if (json_is_false(rest) || (!rest && o->n > 0)) return true;
    const char **names = mem_alloc(o->n, sizeof *names, s->b->e);
    for (size_t i = 0; names && i < o->n; i++) names[i] = o->members[i].name;
    if (names) {
        uint32_t key = schema_other_key(s, names, o->n);
        uint32_t value = rest ? value_at(s, "additionalProperties", NULL, rest) : schema_common(s, SCHEMA_VALUE);
        o->more = grammar_call(s->b, own_rule(s, "additional", key_and(s, key, value)));
    }
    mem_free(names);
    return !grammar_failed(s->b);
}

static uint32_t after_comma(schema *s, uint32_t x) {
    return GRAMMAR_SEQ_OF(s->b, grammar_text(s->b, ","), schema_common(s, SCHEMA_SPACE), x);
}

/* The members in order. rest[i]: what may follow when one was written before and i is next; first[i]: when none was. */
static uint32_t chain_members(schema *s, const object *o, uint32_t min_more, uint32_t max_more) {
    grammar_build *b = s->b;
    uint32_t rest = 0, first = grammar_never(b);
    if (o->more) {
        rest = grammar_repeat(b, after_comma(s, o->more), min_more ? min_more - 1 : 0, max_more >= GRAMMAR_MANY ? max_more : max_more - 1);
        first = GRAMMAR_SEQ_OF(b, o->more, rest);
        if (o->n) rest = grammar_repeat(b, after_comma(s, o->more), 0, GRAMMAR_MANY);
    }
    for (size_t i = o->n; i-- > 0 && !grammar_failed(b);) {
        const member *m = &o->members[i];
        uint32_t one = grammar_call(b, m->rule), here = GRAMMAR_SEQ_OF(b, one, rest), on = GRAMMAR_SEQ_OF(b, after_comma(s, one), rest);
        /* Rules of their own keep the expressions flat. */
        first = grammar_call(b, own_rule(s, m->name, m->required ? here : GRAMMAR_ALT_OF(b, here, first)));
        rest = grammar_call(b, own_rule(s, m->name, m->required ? on : GRAMMAR_ALT_OF(b, on, rest)));
    }
    return first;
}

static uint32_t object_of(schema *s, const json_t *x, object *o) {
    grammar_build *b = s->b;
    uint32_t min, max, n_required = 0;
    if (!schema_count(s, x, "minProperties", 0, &min) || !schema_count(s, x, "maxProperties", GRAMMAR_MANY, &max)) return 0;
    if (!find_members(s, x, o) || !define_members(s, x, o)) return 0;
    for (size_t i = 0; i < o->n; i++) n_required += o->members[i].required;
    if (o->n > 0 && (min > n_required || (max < GRAMMAR_MANY && (max < o->n || o->more))))
        return schema_fail(s, HEARTH_UNSUPPORTED, "'minProperties' and 'maxProperties' beside 'properties' are not supported");
    if (min > max) return schema_fail(s, HEARTH_ARGUMENT, "'minProperties' is more than 'maxProperties'");
    uint32_t space = schema_common(s, SCHEMA_SPACE), members = 0;
    if (max > 0) members = GRAMMAR_SEQ_OF(b, chain_members(s, o, min, max), space);
    if (n_required == 0 && min == 0) members = grammar_repeat(b, members, 0, 1);
    return GRAMMAR_SEQ_OF(b, grammar_text(b, "{"), space, members, grammar_text(b, "}"));
}

static uint32_t object_value(schema *s, const json_t *x) {
    static const char *const only_type[] = {"type", NULL};
    if (!schema_has_more(x, only_type)) return schema_common(s, SCHEMA_OBJECT);
    object o = {0};
    uint32_t out = object_of(s, x, &o);
    mem_free(o.members);
    return grammar_call(s->b, own_rule(s, "object", out));
}

/* ---- arrays ---- */

/* At least one item and at most max; at least min. item stands for those after the prefix, 0 when there are none. */
static uint32_t array_items(schema *s, const json_t *prefix, uint32_t item, uint32_t min, uint32_t max) {
    grammar_build *b = s->b;
    const uint32_t n = (uint32_t)json_array_size(prefix), before = n ? n : 1;
    uint32_t rest = 0;
    if (item && max > before)
        rest = grammar_repeat(b, after_comma(s, item), min > before ? min - before : 0, max >= GRAMMAR_MANY ? max : max - before);
    if (n == 0) return item ? GRAMMAR_SEQ_OF(b, item, rest) : grammar_never(b);
    for (uint32_t i = n < max ? n : max; i-- > 0 && !grammar_failed(b);) {
        char number[16];
        snprintf(number, sizeof number, "%u", i);
        uint32_t value = value_at(s, "prefixItems", number, json_array_get(prefix, i));
        rest = GRAMMAR_SEQ_OF(b, i ? after_comma(s, value) : value, rest);
        rest = grammar_call(b, own_rule(s, "item", i > 0 && i >= min ? grammar_repeat(b, rest, 0, 1) : rest));
    }
    return rest;
}

static uint32_t array_value(schema *s, const json_t *x) {
    static const char *const only_type[] = {"type", NULL};
    grammar_build *b = s->b;
    const json_t *prefix = json_object_get(x, "prefixItems"), *items = json_object_get(x, "items");
    uint32_t min, max, item = 0;
    if (!schema_has_more(x, only_type)) return schema_common(s, SCHEMA_ARRAY);
    if (prefix && !json_is_array(prefix)) return schema_fail(s, HEARTH_ARGUMENT, "'prefixItems' must be a list of schemas");
    if (json_is_array(items)) return schema_fail(s, HEARTH_UNSUPPORTED, "a list as 'items' is not supported; write 'prefixItems'");
    if (!schema_count(s, x, "minItems", (uint32_t)json_array_size(prefix), &min) || !schema_count(s, x, "maxItems", GRAMMAR_MANY, &max))
        return 0;
    if (!json_object_get(x, "minItems") && min > max) min = max;
    if (min > max) return schema_fail(s, HEARTH_ARGUMENT, "'minItems' is more than 'maxItems'");
    if (items ? !json_is_false(items) : json_array_size(prefix) == 0)
        item = items ? grammar_call(b, own_rule(s, "item", value_at(s, "items", NULL, items))) : schema_common(s, SCHEMA_VALUE);
    if (!item && min > json_array_size(prefix)) return schema_fail(s, HEARTH_ARGUMENT, "'minItems' asks for more items than there can be");
    uint32_t space = schema_common(s, SCHEMA_SPACE), list = 0;
    if (max > 0) list = grammar_repeat(b, GRAMMAR_SEQ_OF(b, array_items(s, prefix, item, min, max), space), min > 0, 1);
    return grammar_call(b, own_rule(s, "array", GRAMMAR_SEQ_OF(b, grammar_text(b, "["), space, list, grammar_text(b, "]"))));
}

/* ---- values ---- */

static const char *const type_names[] = {"object", "array", "string", "integer", "number", "boolean", "null"};
enum { TYPE_OBJECT, TYPE_ARRAY, TYPE_STRING, TYPE_INTEGER, TYPE_NUMBER, TYPE_BOOLEAN, TYPE_NULL, TYPES };

static uint32_t typed(schema *s, const json_t *x, int type) {
    switch (type) {
    case TYPE_OBJECT:
        return object_value(s, x);
    case TYPE_ARRAY:
        return array_value(s, x);
    case TYPE_STRING:
        return schema_string(s, x);
    case TYPE_INTEGER:
        return schema_number(s, x, true);
    case TYPE_NUMBER:
        return schema_number(s, x, false);
    case TYPE_BOOLEAN:
        return GRAMMAR_ALT_OF(s->b, grammar_text(s->b, "true"), grammar_text(s->b, "false"));
    default:
        return grammar_text(s->b, "null");
    }
}

static bool any_key(const json_t *x, const char *const *keys) {
    for (; *keys; keys++)
        if (json_object_get(x, *keys)) return true;
    return false;
}

/* The types that a schema without one must mean, as bits; 0: any. */
static unsigned implied_types(const json_t *x) {
    static const char *const of_object[] = {"properties", "required", "additionalProperties", "minProperties", "maxProperties", NULL};
    static const char *const of_array[] = {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", NULL};
    static const char *const of_string[] = {"minLength", "maxLength", "pattern", "format", NULL};
    static const char *const of_number[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", NULL};
    return (any_key(x, of_object) ? 1u << TYPE_OBJECT : 0) | (any_key(x, of_array) ? 1u << TYPE_ARRAY : 0) |
           (any_key(x, of_string) ? 1u << TYPE_STRING : 0) | (any_key(x, of_number) ? 1u << TYPE_NUMBER : 0);
}

/* As bits. 0 with the failure set, or when no type is named and none is implied. */
static unsigned types_of(schema *s, const json_t *x) {
    const json_t *type = json_object_get(x, "type");
    unsigned types = 0;
    if (!type) return implied_types(x);
    size_t n = json_is_array(type) ? json_array_size(type) : 1;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_is_array(type) ? json_array_get(type, i) : type);
        int found = TYPES;
        for (int t = 0; name && t < TYPES; t++)
            if (strcmp(name, type_names[t]) == 0) found = t;
        if (found == TYPES)
            return schema_fail(s, HEARTH_ARGUMENT,
                               "'type' must be one of object, array, string, integer, number, boolean, null, or a list of them");
        types |= 1u << found;
    }
    if (n == 0) return schema_fail(s, HEARTH_ARGUMENT, "'type' leaves no type");
    if (types & 1u << TYPE_NUMBER) types &= ~(1u << TYPE_INTEGER);
    return types;
}

static bool has_type(const json_t *value, unsigned types) {
    if (types == 0) return true;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return types & 1u << TYPE_OBJECT;
    case JSON_ARRAY:
        return types & 1u << TYPE_ARRAY;
    case JSON_STRING:
        return types & 1u << TYPE_STRING;
    case JSON_INTEGER:
        return types & (1u << TYPE_INTEGER | 1u << TYPE_NUMBER);
    case JSON_REAL:
        return types & 1u << TYPE_NUMBER;
    case JSON_NULL:
        return types & 1u << TYPE_NULL;
    default:
        return types & 1u << TYPE_BOOLEAN;
    }
}

/* enum and const: one of these values as they stand. */
static uint32_t fixed(schema *s, const json_t *x) {
    static const char *const allowed[] = {"type", "enum", "const", NULL};
    const json_t *list = json_object_get(x, "enum"), *constant = json_object_get(x, "const"), *value;
    if (list && !json_is_array(list)) return schema_fail(s, HEARTH_ARGUMENT, "'enum' must be a list of values");
    if (schema_has_more(x, allowed))
        return schema_fail(s, HEARTH_UNSUPPORTED, "'enum' and 'const' are supported only with 'type' beside them");
    const unsigned types = json_object_get(x, "type") ? types_of(s, x) : 0;
    grammar_list choices = {0};
    for (size_t i = 0; (value = list ? json_array_get(list, i) : i == 0 ? constant : NULL); i++)
        if (has_type(value, types) && (!constant || json_equal(value, constant)))
            grammar_list_add(s->b, &choices, schema_literal(s, value));
    uint32_t out = grammar_alt(s->b, choices.items, choices.n);
    if (choices.n == 0) schema_fail(s, HEARTH_ARGUMENT, "'enum', 'const' and 'type' leave no value");
    grammar_list_free(&choices);
    return out;
}

/* anyOf and oneOf: what stands beside them holds for every branch. */
static uint32_t branches(schema *s, const json_t *x, const char *key) {
    const char *const but[] = {key, NULL};
    const json_t *list = json_object_get(x, key), *rest = NULL;
    if (!json_is_array(list) || json_array_size(list) == 0) return schema_fail(s, HEARTH_ARGUMENT, "'%s' must be a list of schemas", key);
    if (schema_has_more(x, but) && !(rest = schema_without(s, x, key))) return 0;
    grammar_list choices = {0};
    for (size_t i = 0; i < json_array_size(list) && !grammar_failed(s->b); i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        const json_t *branch = json_array_get(list, i);
        if (rest) branch = schema_merge(s, rest, branch);
        if (branch) grammar_list_add(s->b, &choices, value_at(s, key, number, branch));
    }
    uint32_t out = grammar_alt(s->b, choices.items, choices.n);
    grammar_list_free(&choices);
    return grammar_call(s->b, own_rule(s, key, out));
}

static uint32_t plain_value(schema *s, const json_t *x) {
    if (json_object_get(x, "enum") || json_object_get(x, "const")) return fixed(s, x);
    const unsigned types = types_of(s, x);
    if (grammar_failed(s->b)) return 0;
    if (types == 0) return schema_common(s, SCHEMA_VALUE);
    grammar_list choices = {0};
    for (int t = 0; t < TYPES; t++)
        if (types & 1u << t) grammar_list_add(s->b, &choices, typed(s, x, t));
    uint32_t out = grammar_alt(s->b, choices.items, choices.n);
    grammar_list_free(&choices);
    return out;
}

static uint32_t value_of(schema *s, const json_t *x) {
    static const char *const only_ref[] = {"$ref", NULL};
    const json_t *ref = json_object_get(x, "$ref");
    if (!schema_check_keys(s, x)) return 0;
    if (ref && !json_is_string(ref)) return schema_fail(s, HEARTH_ARGUMENT, "'$ref' must be a string");
    if (ref && !schema_has_more(x, only_ref)) return reference(s, json_string_value(ref));
    if (ref || json_object_get(x, "allOf")) {
        const json_t *merged = schema_merge(s, x, schema_keep(s, json_object()));
        return merged ? schema_value(s, merged) : 0;
    }
    if (json_object_get(x, "anyOf")) return branches(s, x, "anyOf");
    if (json_object_get(x, "oneOf")) return branches(s, x, "oneOf");
    return plain_value(s, x);
}

uint32_t schema_value(schema *s, const json_t *x) {
    if (!schema_step(s)) return 0;
    if (json_is_true(x)) return schema_common(s, SCHEMA_VALUE);
    if (json_is_false(x)) return grammar_never(s->b);
    if (!json_is_object(x)) return schema_fail(s, HEARTH_ARGUMENT, "a schema must be an object, true or false");
    if (++s->depth > SCHEMA_MAX_DEPTH) return schema_fail(s, HEARTH_LIMIT, "schemas nest deeper than %d levels", SCHEMA_MAX_DEPTH);
    uint32_t out = value_of(s, x);
    s->depth--;
    return out;
}

uint32_t grammar_read_schema(grammar_build *b, const char *text, size_t len) {
    json_error_t why;
    schema s = {.b = b, .path = {.limit = 1 << 20}};
    s.root = json_loadb(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    s.made = json_array();
    s.refs = json_object();
    uint32_t out = 0;
    if (!s.root) err_set(b->e, HEARTH_ARGUMENT, "the JSON schema is no JSON: line %d: %s", why.line, why.text);
    else if (!s.made || !s.refs) err_nomem(b->e, 0);
    else out = schema_value(&s, s.root);
    json_decref(s.made);
    json_decref(s.root);
    json_decref(s.refs);
    buf_free(&s.path);
    return out;
}

uint32_t grammar_read_json(grammar_build *b) {
    schema s = {.b = b};
    return schema_common(&s, SCHEMA_OBJECT);
}
