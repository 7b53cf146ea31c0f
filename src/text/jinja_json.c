/* jinja_json.c: values to and from JSON; tojson writes what Python's json.dumps writes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_unicode.h"

/* ---- from JSON ---- */

static jval from_object(jrun *r, const json_t *j) {
    jdict *d = jinja_dict(r);
    json_t *object = (json_t *)j; /* jansson's iterators take it without const and do not write */
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        jval key = jinja_str(r, json_object_iter_key(it), json_object_iter_key_len(it));
        jinja_dict_set(r, d, key, jinja_from_json(r, json_object_iter_value(it)));
    }
    return jval_dict(d);
}

jval jinja_from_json(jrun *r, const json_t *j) {
    jinja_check_stack(r);
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return from_object(r, j);
    case JSON_ARRAY: {
        jlist *l = jinja_list(r, json_array_size(j));
        for (size_t i = 0; i < json_array_size(j); i++) jinja_append(r, l, jinja_from_json(r, json_array_get(j, i)));
        return jval_list(l);
    }
    case JSON_STRING:
        return jinja_str(r, json_string_value(j), json_string_length(j));
    case JSON_INTEGER:
        return jval_int(json_integer_value(j));
    case JSON_REAL:
        return jval_float(json_real_value(j));
    case JSON_TRUE:
        return jval_bool(true);
    case JSON_FALSE:
        return jval_bool(false);
    default:
        return jval_of(J_NONE);
    }
}

/* A reader of its own, since what jansson allocates would be lost when a limit ends the run in the middle. */
typedef struct reader {
    jrun *r;
    const char *p, *end;
} reader;

static _Noreturn void bad_json(reader *s) { jinja_fail(s->r, HEARTH_FORMAT, "from_json was given text that is not JSON"); }

static void skip_blanks(reader *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r')) s->p++;
}

static bool take(reader *s, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0) return false;
    s->p += n;
    return true;
}

static int32_t read_hex4(reader *s) {
    int32_t c = 0;
    if (s->end - s->p < 4) bad_json(s);
    for (int i = 0; i < 4; i++) {
        char h = *s->p++;
        int d = h >= '0' && h <= '9' ? h - '0' : (h | 0x20) >= 'a' && (h | 0x20) <= 'f' ? (h | 0x20) - 'a' + 10 : -1;
        if (d < 0) bad_json(s);
        c = c * 16 + d;
    }
    return c;
}

static void read_escape(reader *s, jsink *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s->p >= s->end) bad_json(s);
    char c = *s->p++;
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        jinja_addc(s->r, out, to[at - from]);
        return;
    }
    if (c != 'u') bad_json(s);
    int32_t high = read_hex4(s);
    if (high >= 0xD800 && high < 0xDC00 && take(s, "\\u")) {
        int32_t low = read_hex4(s);
        high = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00) : 0xFFFD;
    }
    jinja_add_char(s->r, out, high);
}

static jval read_string(reader *s) {
    jsink out = {0};
    for (s->p++;;) {
        if (s->p >= s->end || (unsigned char)*s->p < 0x20) bad_json(s);
        char c = *s->p++;
        if (c == '"') return jinja_sink_str(s->r, &out);
        if (c == '\\') read_escape(s, &out);
        else jinja_addc(s->r, &out, c);
    }
}

static jval read_number(reader *s) {
    const char *start = s->p;
    bool whole = true;
    while (s->p < s->end && *s->p && strchr("0123456789+-.eE", *s->p)) {
        if (strchr(".eE", *s->p)) whole = false;
        s->p++;
    }
    jstr text = {.data = start, .len = (size_t)(s->p - start)};
    int64_t i;
    double f;
    if (whole && jinja_parse_int(&text, 10, &i)) return jval_int(i);
    if (text.len == 0 || !jinja_parse_float(&text, &f) || !isfinite(f)) bad_json(s);
    return jval_float(f);
}

static jval read_value(reader *s);

static jval read_array(reader *s) {
    jlist *l = jinja_list(s->r, 0);
    s->p++;
    skip_blanks(s);
    if (take(s, "]")) return jval_list(l);
    for (;;) {
        jinja_append(s->r, l, read_value(s));
        skip_blanks(s);
        if (take(s, "]")) return jval_list(l);
        if (!take(s, ",")) bad_json(s);
    }
}

static jval read_object(reader *s) {
    jdict *d = jinja_dict(s->r);
    s->p++;
    skip_blanks(s);
    if (take(s, "}")) return jval_dict(d);
    for (;;) {
        skip_blanks(s);
        if (s->p >= s->end || *s->p != '"') bad_json(s);
        jval key = read_string(s);
        skip_blanks(s);
        if (!take(s, ":")) bad_json(s);
        jinja_dict_set(s->r, d, key, read_value(s));
        skip_blanks(s);
        if (take(s, "}")) return jval_dict(d);
        if (!take(s, ",")) bad_json(s);
    }
}

static jval read_value(reader *s) {
    jinja_check_stack(s->r);
    jinja_step(s->r, 1);
    skip_blanks(s);
    if (s->p >= s->end) bad_json(s);
    if (*s->p == '{') return read_object(s);
    if (*s->p == '[') return read_array(s);
    if (*s->p == '"') return read_string(s);
    if (take(s, "true")) return jval_bool(true);
    if (take(s, "false")) return jval_bool(false);
    if (take(s, "null")) return jval_of(J_NONE);
    return read_number(s);
}

jval jinja_parse_json(jrun *r, jval text) {
    reader s = {r, text.s->data, text.s->data + text.s->len};
    jinja_scan(r, text.s->len);
    jval v = read_value(&s);
    skip_blanks(&s);
    if (s.p != s.end) bad_json(&s);
    return v;
}

/* ---- to JSON ---- */

typedef struct writer {
    jrun *r;
    jsink out;
    bool ascii, sort, indented;
    jval indent; /* the text of one level */
    jval item_separator, key_separator;
} writer;

void jinja_put_json_text(jrun *r, jsink *s, const jstr *text, bool ascii) {
    jinja_scan(r, text->len);
    jinja_addc(r, s, '"');
    for (size_t i = 0, n; i < text->len; i += n) {
        int32_t c = uni_decode(text->data + i, &n);
        char escaped[16] = "";
        switch (c) {
        case '"':
            strcpy(escaped, "\\\"");
            break;
        case '\\':
            strcpy(escaped, "\\\\");
            break;
        case '\n':
            strcpy(escaped, "\\n");
            break;
        case '\r':
            strcpy(escaped, "\\r");
            break;
        case '\t':
            strcpy(escaped, "\\t");
            break;
        case '\f':
            strcpy(escaped, "\\f");
            break;
        case '\b':
            strcpy(escaped, "\\b");
            break;
        default:
            if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000)) snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)c);
            else if (ascii && c >= 0x10000)
                snprintf(escaped, sizeof escaped, "\\u%04x\\u%04x", 0xD800 + (unsigned)((c - 0x10000) >> 10),
                         0xDC00 + (unsigned)((c - 0x10000) & 0x3FF));
        }
        if (escaped[0]) jinja_adds(r, s, escaped);
        else jinja_add(r, s, text->data + i, n);
    }
    jinja_addc(r, s, '"');
}

static void put_float(writer *w, double f) {
    char text[32];
    if (isnan(f)) jinja_adds(w->r, &w->out, "NaN");
    else if (isinf(f)) jinja_adds(w->r, &w->out, f < 0 ? "-Infinity" : "Infinity");
    else jinja_add(w->r, &w->out, text, (size_t)jinja_float_text(f, text));
}

static void put_value(writer *w, jval v, size_t depth);

static void put_break(writer *w, size_t depth) {
    if (!w->indented) return;
    jinja_addc(w->r, &w->out, '\n');
    jinja_add_repeated(w->r, &w->out, w->indent.s->data, w->indent.s->len, depth);
}

static void put_array(writer *w, const jlist *l, size_t depth) {
    if (l->n == 0) {
        jinja_adds(w->r, &w->out, "[]");
        return;
    }
    jinja_addc(w->r, &w->out, '[');
    for (size_t i = 0; i < l->n; i++) {
        if (i) jinja_put_str(w->r, &w->out, w->item_separator);
        put_break(w, depth + 1);
        put_value(w, l->v[i], depth + 1);
    }
    put_break(w, depth);
    jinja_addc(w->r, &w->out, ']');
}

static void put_key(writer *w, jval key) {
    jsink s = {0};
    switch (key.kind) {
    case J_STR:
        jinja_put_json_text(w->r, &w->out, key.s, w->ascii);
        return;
    case J_NONE:
        jinja_adds(w->r, &w->out, "\"null\"");
        return;
    case J_BOOL:
        jinja_adds(w->r, &w->out, key.b ? "\"true\"" : "\"false\"");
        return;
    case J_INT:
    case J_FLOAT:
        jinja_put_repr(w->r, &s, key);
        jinja_addc(w->r, &w->out, '"');
        jinja_add(w->r, &w->out, s.data, s.len);
        jinja_addc(w->r, &w->out, '"');
        return;
    default:
        jinja_fail(w->r, HEARTH_FORMAT, "keys must be str, int, float, bool or None, not %s", jinja_type_name(key));
    }
}

static void put_member(writer *w, bool first, jval key, jval value, size_t depth) {
    if (!first) jinja_put_str(w->r, &w->out, w->item_separator);
    put_break(w, depth);
    put_key(w, key);
    jinja_put_str(w->r, &w->out, w->key_separator);
    put_value(w, value, depth);
}

static void put_object(writer *w, const jdict *d, size_t depth) {
    if (d->n == 0) {
        jinja_adds(w->r, &w->out, "{}");
        return;
    }
    jinja_addc(w->r, &w->out, '{');
    if (w->sort) {
        jlist *pairs = jinja_list(w->r, d->n);
        for (size_t i = 0; i < d->n; i++) jinja_append(w->r, pairs, jinja_pair(w->r, d->e[i].key, d->e[i].value));
        jinja_sort(w->r, pairs, jinja_key_first, NULL, false);
        for (size_t i = 0; i < pairs->n; i++) put_member(w, i == 0, pairs->v[i].l->v[0], pairs->v[i].l->v[1], depth + 1);
    } else {
        for (size_t i = 0; i < d->n; i++) put_member(w, i == 0, d->e[i].key, d->e[i].value, depth + 1);
    }
    put_break(w, depth);
    jinja_addc(w->r, &w->out, '}');
}

static void put_value(writer *w, jval v, size_t depth) {
    jinja_check_stack(w->r);
    jinja_step(w->r, 1);
    switch (v.kind) {
    case J_NONE:
        jinja_adds(w->r, &w->out, "null");
        return;
    case J_BOOL:
        jinja_adds(w->r, &w->out, v.b ? "true" : "false");
        return;
    case J_INT:
        jinja_put_repr(w->r, &w->out, v);
        return;
    case J_FLOAT:
        put_float(w, v.f);
        return;
    case J_STR:
        jinja_put_json_text(w->r, &w->out, v.s, w->ascii);
        return;
    case J_LIST:
    case J_TUPLE:
        put_array(w, v.l, depth);
        return;
    case J_DICT:
        put_object(w, v.d, depth);
        return;
    default:
        jinja_fail(w->r, HEARTH_FORMAT, "Object of type %s is not JSON serializable", jinja_type_name(v));
    }
}

static void set_separators(writer *w, jval given) {
    w->item_separator = jinja_text(w->r, w->indented ? "," : ", ");
    w->key_separator = jinja_text(w->r, ": ");
    if (!jarg_given(given)) return;
    jlist *pair = jinja_to_list(w->r, given);
    if (pair->n != 2 || pair->v[0].kind != J_STR || pair->v[1].kind != J_STR)
        jinja_fail(w->r, HEARTH_FORMAT, "tojson: separators must be two strings");
    w->item_separator = pair->v[0];
    w->key_separator = pair->v[1];
}

jval jinja_filter_tojson(jrun *r, jval self, jargs *a) {
    writer w = {.r = r, .ascii = jarg_bool(r, a->slot[0], false), .sort = jarg_bool(r, a->slot[3], false)};
    jval indent = a->slot[1];
    w.indented = jarg_given(indent);
    if (w.indented && indent.kind == J_STR) w.indent = indent;
    if (w.indented && indent.kind != J_STR) {
        int64_t n = jarg_int(r, indent, 0);
        jsink blanks = {0};
        if (n > 0) jinja_add_repeated(r, &blanks, " ", 1, (size_t)n);
        w.indent = jinja_sink_str(r, &blanks);
    }
    set_separators(&w, a->slot[2]);
    put_value(&w, self, 0);
    return jinja_sink_str(r, &w.out);
}
