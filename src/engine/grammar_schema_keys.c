/* grammar_schema_keys.c: the keywords of JSON schemas, and two schemas made into one that both agree with. */
#include <string.h>

#include "engine/grammar_schema.h"

static bool listed(const char *const *list, const char *key) {
    for (; *list; list++)
        if (strcmp(*list, key) == 0) return true;
    return false;
}

static const char *const annotations[] = {
    "title",    "description", "default",     "examples",        "example", "deprecated",  "readOnly", "writeOnly",        "$schema", "$id",
    "$comment", "$defs",       "definitions", "contentEncoding", "id",      "$vocabulary", "$anchor",  "contentMediaType", NULL};
static const char *const shapes[] = {"type",  "properties", "required", "additionalProperties", "enum", "const", "anyOf", "oneOf",
                                     "allOf", "$ref",       "items",    "prefixItems",          NULL};
static const char *const limits[] = {"minItems",         "maxItems",      "minLength",     "maxLength",   "pattern",
                                     "format",           "minimum",       "maximum",       "multipleOf",  "exclusiveMinimum",
                                     "exclusiveMaximum", "minProperties", "maxProperties", "uniqueItems", NULL};

bool schema_is_annotation(const char *key) { return listed(annotations, key) || strncmp(key, "x-", 2) == 0; }

bool schema_check_keys(schema *s, const json_t *x) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)x, key, value) {
        /* These are allowed where they say nothing. */
        if (strcmp(key, "uniqueItems") == 0 && !json_is_false(value))
            return schema_fail(s, HEARTH_UNSUPPORTED, "the keyword 'uniqueItems' is not supported");
        if (strcmp(key, "unevaluatedProperties") == 0 || strcmp(key, "unevaluatedItems") == 0)
            if (json_is_true(value)) continue;
        if (schema_is_annotation(key) || listed(shapes, key) || listed(limits, key)) continue;
        char name[64];
        return schema_fail(s, HEARTH_UNSUPPORTED, "the keyword '%s' is not supported", err_quote(name, sizeof name, key, strlen(key)));
    }
    return true;
}

bool schema_has_more(const json_t *x, const char *const *but) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)x, key, value) {
        if (!schema_is_annotation(key) && !listed(but, key)) return true;
    }
    return false;
}

json_t *schema_keep(schema *s, json_t *x) {
    if (x && json_array_append_new(s->made, x) == 0) return x;
    err_nomem(s->b->e, 0);
    return NULL;
}

const json_t *schema_without(schema *s, const json_t *x, const char *key) {
    json_t *copy = schema_keep(s, json_copy((json_t *)x));
    if (copy) json_object_del(copy, key);
    return copy;
}

/* ---- merging ---- */

static json_t *no_memory(schema *s) {
    err_nomem(s->b->e, 0);
    return NULL;
}

/* Lists are compared item by item. */
static bool short_enough(schema *s, const json_t *x, const json_t *y) {
    if ((double)json_array_size(x) * (double)json_array_size(y) <= 1e6) return true;
    return schema_fail(s, HEARTH_LIMIT, "lists of %zu and %zu items that must both hold are too long", json_array_size(x),
                       json_array_size(y));
}

/* What both lists have. With types, an "integer" in one is also a "number" in the other. */
static json_t *in_both(schema *s, const json_t *x, const json_t *y, bool types) {
    if (!short_enough(s, x, y)) return NULL;
    json_t *out = schema_keep(s, json_array());
    const json_t *a, *b;
    size_t i, k;
    for (i = 0; out && (a = json_is_array(x) ? json_array_get(x, i) : i == 0 ? x : NULL); i++)
        for (k = 0; (b = json_is_array(y) ? json_array_get(y, k) : k == 0 ? y : NULL); k++) {
            bool a_number = types && json_is_string(a) && strcmp(json_string_value(a), "number") == 0;
            bool b_number = types && json_is_string(b) && strcmp(json_string_value(b), "number") == 0;
            bool a_integer = types && json_is_string(a) && strcmp(json_string_value(a), "integer") == 0;
            bool b_integer = types && json_is_string(b) && strcmp(json_string_value(b), "integer") == 0;
            const json_t *both = json_equal(a, b) || (a_integer && b_number) ? a : b_integer && a_number ? b : NULL;
            if (both && json_array_append(out, (json_t *)both) != 0) return no_memory(s);
        }
    return out;
}

static json_t *in_either(schema *s, const json_t *x, const json_t *y) {
    if (!short_enough(s, x, y)) return NULL;
    json_t *out = schema_keep(s, json_copy((json_t *)x)), *item;
    size_t i, k;
    json_array_foreach(y, i, item) {
        bool there = false;
        for (k = 0; k < json_array_size(x) && !there; k++) there = json_equal(json_array_get(x, k), item);
        if (out && !there && json_array_append(out, item) != 0) return no_memory(s);
    }
    return out;
}

/* The properties of x as the other schema sees them: what it does not name falls under its additionalProperties. */
static json_t *seen_by(schema *s, const json_t *x, const json_t *other) {
    const json_t *rest = json_object_get(other, "additionalProperties"), *names = json_object_get(other, "properties");
    json_t *out = schema_keep(s, json_object()), *value;
    const char *key;
    json_object_foreach(json_object_get(x, "properties"), key, value) {
        const json_t *both = value;
        if (rest && !json_object_get(names, key) && !(both = schema_merge(s, value, rest))) return NULL;
        if (out && json_object_set(out, key, (json_t *)both) != 0) return no_memory(s);
    }
    return out;
}

static json_t *merge_properties(schema *s, const json_t *x, const json_t *y) {
    json_t *out = seen_by(s, x, y), *more = seen_by(s, y, x), *value;
    const char *key;
    if (!out || !more) return NULL;
    json_object_foreach(more, key, value) {
        const json_t *mine = json_object_get(out, key), *both = mine ? schema_merge(s, mine, value) : value;
        if (!both) return NULL;
        if (json_object_set(out, key, (json_t *)both) != 0) return no_memory(s);
    }
    return out;
}

static json_t *merge_key(schema *s, const char *key, json_t *x, json_t *y) {
    static const char *const lower[] = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", NULL};
    static const char *const upper[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", NULL};
    if (schema_is_annotation(key) || json_equal(x, y)) return x;
    if (json_is_number(x) && json_is_number(y) && listed(lower, key)) return json_number_value(x) > json_number_value(y) ? x : y;
    if (json_is_number(x) && json_is_number(y) && listed(upper, key)) return json_number_value(x) < json_number_value(y) ? x : y;
    if (strcmp(key, "type") == 0 || strcmp(key, "enum") == 0) return in_both(s, x, y, key[0] == 't');
    if (strcmp(key, "required") == 0) return in_either(s, x, y);
    if (strcmp(key, "items") == 0 || strcmp(key, "additionalProperties") == 0) return (json_t *)schema_merge(s, x, y);
    schema_fail(s, HEARTH_UNSUPPORTED, "two different '%s' that must both hold are not supported", key);
    return NULL;
}

/* A schema without $ref and allOf at its top. */
static const json_t *flatten(schema *s, const json_t *x) {
    const json_t *ref = json_object_get(x, "$ref"), *all = json_object_get(x, "allOf");
    if (ref && json_is_string(ref)) {
        const json_t *target = schema_find(s, json_string_value(ref)), *rest = schema_without(s, x, "$ref");
        return target && rest ? schema_merge(s, target, rest) : NULL;
    }
    if (!all) return x;
    if (!json_is_array(all)) return schema_fail(s, HEARTH_ARGUMENT, "'allOf' must be a list of schemas"), NULL;
    const json_t *sum = schema_without(s, x, "allOf");
    for (size_t i = 0; sum && i < json_array_size(all); i++) sum = schema_merge(s, sum, json_array_get(all, i));
    return sum;
}

static const json_t *merge_flat(schema *s, const json_t *x, const json_t *y) {
    json_t *out = schema_keep(s, json_copy((json_t *)x)), *value, *properties = NULL;
    const char *key;
    if (!out) return NULL;
    if (json_object_get(x, "properties") || json_object_get(y, "properties")) {
        properties = merge_properties(s, x, y);
        if (!properties) return NULL;
    }
    json_object_foreach((json_t *)y, key, value) {
        json_t *mine = json_object_get(x, key), *both = value;
        if (strcmp(key, "properties") == 0) continue;
        if (mine && !(both = merge_key(s, key, mine, value))) return NULL;
        if (json_object_set(out, key, both) != 0) return no_memory(s);
    }
    if (properties && json_object_set(out, "properties", properties) != 0) return no_memory(s);
    return out;
}

const json_t *schema_merge(schema *s, const json_t *x, const json_t *y) {
    if (!schema_step(s)) return NULL;
    if (json_is_true(x) || json_is_false(y)) return y;
    if (json_is_true(y) || json_is_false(x)) return x;
    if (!json_is_object(x) || !json_is_object(y)) return schema_fail(s, HEARTH_ARGUMENT, "a schema must be an object, true or false"), NULL;
    if (++s->depth > SCHEMA_MAX_DEPTH)
        return schema_fail(s, HEARTH_LIMIT, "schemas refer to each other without an end, or nest deeper than %d levels", SCHEMA_MAX_DEPTH),
               NULL;
    const json_t *a = flatten(s, x), *b = a ? flatten(s, y) : NULL, *out = NULL;
    if (a && b) out = json_is_object(a) && json_is_object(b) ? merge_flat(s, a, b) : schema_merge(s, a, b);
    s->depth--;
    return out;
}
