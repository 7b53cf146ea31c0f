#include <math.h>
#include <string.h>

#include "api/inner.h"

static const char *type_name(const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

static bool wrong_type(refusal *f, const field *d, const json_t *v, const char *wanted) {
    return refuse(f, d->name, "'%s' must be %s, not %s.", d->name, wanted, type_name(v));
}

static bool in_range(refusal *f, const field *d, double number) {
    if (!(d->min < d->max) || (number >= d->min && number <= d->max)) return true;
    return refuse(f, d->name, "'%s' must be from %.15g to %.15g, not %.15g.", d->name, d->min, d->max, number);
}

static bool read_value(const field *d, const json_t *v, refusal *f) {
    switch (d->kind) {
    case FIELD_BOOL:
        if (!json_is_boolean(v)) return wrong_type(f, d, v, "a boolean");
        *(bool *)d->target = json_is_true(v);
        return true;
    case FIELD_INT: {
        /* Some clients write 256.0. */
        double number = json_number_value(v);
        if (!json_is_number(v) || number != floor(number) || fabs(number) > 9e18) return wrong_type(f, d, v, "an integer");
        if (!in_range(f, d, number)) return false;
        *(int64_t *)d->target = json_is_integer(v) ? (int64_t)json_integer_value(v) : (int64_t)number;
        return true;
    }
    case FIELD_FLOAT:
        if (!json_is_number(v)) return wrong_type(f, d, v, "a number");
        if (!in_range(f, d, json_number_value(v))) return false;
        *(float *)d->target = (float)json_number_value(v);
        return true;
    case FIELD_TEXT:
        if (!json_is_string(v)) return wrong_type(f, d, v, "a string");
        *(const char **)d->target = json_string_value(v);
        return true;
    case FIELD_JSON: *(const json_t **)d->target = v; return true;
    case FIELD_MEANINGLESS: return true;
    case FIELD_REFUSED: break;
    }
    return refuse_with(f, 400, "unsupported_parameter", d->name, "'%s' is not supported%s%s.", d->name, d->why ? ": " : "", d->why ? d->why : "");
}

static const field *find(const field *table, const char *name) {
    for (; table && table->name; table++)
        if (strcmp(table->name, name) == 0) return table;
    return NULL;
}

bool fields_read(const json_t *object, const field *table, const field *more, refusal *f) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)object, name, v) {
        const field *d = find(table, name);
        if (!d) d = find(more, name);
        if (!d) {
            char quoted[64];
            err_quote(quoted, sizeof quoted, name, strlen(name));
            return refuse_with(f, 400, "unknown_parameter", quoted, "Unknown parameter: '%s'.", quoted);
        }
        if (!json_is_null(v) && !read_value(d, v, f)) return false;
    }
    return true;
}

json_t *api_body(const http_request *r, refusal *f) {
    json_t *read = models_body(r);
    if (read) return read;
    size_t len;
    const char *text = http_body(r, &len);
    json_error_t je;
    json_t *body = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!body) {
        refuse(f, "", "The body of the request is no valid JSON: %s (line %d, column %d).", je.text, je.line, je.column);
    } else if (!json_is_object(body)) {
        refuse(f, "", "The body of the request must be a JSON object, not %s.", type_name(body));
        json_decref(body);
        body = NULL;
    }
    return body;
}
