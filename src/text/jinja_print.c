/* jinja_print.c: values as text, the way Python's str and repr write them, numbers read from text, and HTML escaping. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_tree.h"
#include "text/jinja_unicode.h"

/* ---- numbers ---- */

int jinja_float_text(double f, char out[32]) {
    if (isnan(f)) return sprintf(out, "nan");
    if (isinf(f)) return sprintf(out, f < 0 ? "-inf" : "inf");
    /* The fewest digits that read back as the same number. */
    char digits[32];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, f);
        if (strtod(digits, NULL) == f) break;
    }
    char *e = strchr(digits, 'e');
    int exponent = atoi(e + 1);
    if (exponent < -4 || exponent >= 16) {
        *e = 0;
        return snprintf(out, 32, "%.24se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    }
    int significant = 0;
    for (const char *p = digits; p < e; p++) significant += *p >= '0' && *p <= '9';
    int decimals = significant - 1 - exponent;
    return snprintf(out, 32, "%.*f", decimals < 1 ? 1 : decimals, f);
}

static void blanks_off(const char **s, size_t *len) {
    jstr text = {.data = *s, .len = *len};
    size_t start, end;
    uni_strip(&text, NULL, UNI_BOTH, &start, &end);
    *s += start;
    *len = end - start;
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
    return 99;
}

static int prefix_base(const char *s, size_t len) {
    if (len < 2 || s[0] != '0') return 0;
    char c = s[1] | 0x20;
    return c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
}

bool jinja_parse_int(const jstr *text, int base, int64_t *out) {
    const char *s = text->data;
    size_t len = text->len;
    if (base != 0 && (base < 2 || base > 36)) return false;
    blanks_off(&s, &len);
    bool negative = len && *s == '-';
    if (len && (*s == '-' || *s == '+')) s++, len--;
    int prefix = prefix_base(s, len);
    if (prefix && (base == 0 || base == prefix)) {
        base = prefix;
        s += 2, len -= 2;
        if (len && *s == '_') s++, len--;
    }
    if (base == 0) base = 10;
    if (len == 0 || s[len - 1] == '_') return false;
    int64_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '_' && i > 0 && s[i - 1] != '_') continue;
        int d = digit_of(s[i]);
        if (d >= base || __builtin_mul_overflow(n, base, &n) || __builtin_sub_overflow(n, d, &n)) return false;
    }
    if (!negative && n == INT64_MIN) return false;
    *out = negative ? n : -n;
    return true;
}

bool jinja_parse_float(const jstr *text, double *out) {
    const char *s = text->data;
    size_t len = text->len, n = 0;
    char copy[512];
    blanks_off(&s, &len);
    if (len == 0 || len >= sizeof copy) return false;
    for (size_t i = 0; i < len; i++) {
        bool between = s[i] == '_' && i > 0 && i + 1 < len && digit_of(s[i - 1]) < 10 && digit_of(s[i + 1]) < 10;
        if (between) continue;
        if (!strchr("0123456789+-.eEinfatyINFATY", s[i]) || s[i] == 0) return false; /* no hexadecimal, as in Python */
        copy[n++] = s[i];
    }
    copy[n] = 0;
    char *end;
    *out = strtod(copy, &end);
    return end != copy && *end == 0;
}

/* ---- str and repr ---- */

static void put_quoted(jrun *r, jsink *s, const jstr *text) {
    bool single = memchr(text->data, '\'', text->len), twice = memchr(text->data, '"', text->len);
    char quote = single && !twice ? '"' : '\'';
    jinja_scan(r, text->len);
    jinja_addc(r, s, quote);
    for (size_t i = 0, n; i < text->len; i += n) {
        int32_t c = uni_decode(text->data + i, &n);
        char escaped[16] = "";
        if (c == quote || c == '\\') snprintf(escaped, sizeof escaped, "\\%c", (char)c);
        else if (c == '\n') strcpy(escaped, "\\n");
        else if (c == '\r') strcpy(escaped, "\\r");
        else if (c == '\t') strcpy(escaped, "\\t");
        else if (c >= 0x20 && c < 0x7F) escaped[0] = 0;
        else if (c < 0x100 && !uni_printable(c)) snprintf(escaped, sizeof escaped, "\\x%02x", (unsigned)c);
        else if (c < 0x10000 && !uni_printable(c)) snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)c);
        else if (!uni_printable(c)) snprintf(escaped, sizeof escaped, "\\U%08x", (unsigned)c);
        if (escaped[0]) jinja_adds(r, s, escaped);
        else jinja_add(r, s, text->data + i, n);
    }
    jinja_addc(r, s, quote);
}

static void put_items(jrun *r, jsink *s, const jlist *l, const char *open, const char *close) {
    jinja_adds(r, s, open);
    for (size_t i = 0; i < l->n; i++) {
        if (i) jinja_add(r, s, ", ", 2);
        jinja_put_repr(r, s, l->v[i]);
    }
    jinja_adds(r, s, close);
}

static void put_list(jrun *r, jsink *s, jval v) {
    static const char *const views[] = {[JVIEW_KEYS] = "dict_keys(", [JVIEW_VALUES] = "dict_values(", [JVIEW_ITEMS] = "dict_items("};
    const char *view = v.kind == J_LIST && v.l->view >= JVIEW_KEYS && v.l->view <= JVIEW_ITEMS ? views[v.l->view] : NULL;
    if (view) jinja_adds(r, s, view);
    if (v.kind == J_TUPLE) put_items(r, s, v.l, "(", v.l->n == 1 ? ",)" : ")");
    else put_items(r, s, v.l, "[", "]");
    if (view) jinja_addc(r, s, ')');
}

static void put_dict(jrun *r, jsink *s, const jdict *d) {
    jinja_addc(r, s, '{');
    for (size_t i = 0; i < d->n; i++) {
        if (i) jinja_add(r, s, ", ", 2);
        jinja_put_repr(r, s, d->e[i].key);
        jinja_add(r, s, ": ", 2);
        jinja_put_repr(r, s, d->e[i].value);
    }
    jinja_addc(r, s, '}');
}

static void put_range(jrun *r, jsink *s, const jrange *g) {
    char text[96];
    if (g->step == 1) snprintf(text, sizeof text, "range(%lld, %lld)", (long long)g->start, (long long)g->stop);
    else snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)g->start, (long long)g->stop, (long long)g->step);
    jinja_adds(r, s, text);
}

static void put_object(jrun *r, jsink *s, jval v) {
    if (v.kind == J_MACRO) {
        jinja_adds(r, s, "<Macro ");
        if (v.macro->node->name) put_quoted(r, s, v.macro->node->name);
        else jinja_adds(r, s, "anonymous");
        jinja_addc(r, s, '>');
        return;
    }
    const char *name = v.kind == J_FUNC ? v.func->name : v.kind == J_METHOD ? v.method->func->name : NULL;
    jinja_adds(r, s, "<");
    jinja_adds(r, s, jinja_type_name(v));
    if (name) {
        jinja_addc(r, s, ' ');
        jinja_adds(r, s, name);
    }
    jinja_addc(r, s, '>');
}

void jinja_put_repr(jrun *r, jsink *s, jval v) {
    char text[32];
    jinja_step(r, 1);
    jinja_check_stack(r);
    switch (v.kind) {
    case J_ABSENT:
    case J_UNDEFINED:
        jinja_adds(r, s, "Undefined");
        return;
    case J_NONE:
        jinja_adds(r, s, "None");
        return;
    case J_BOOL:
        jinja_adds(r, s, v.b ? "True" : "False");
        return;
    case J_INT:
        jinja_add(r, s, text, (size_t)sprintf(text, "%lld", (long long)v.i));
        return;
    case J_FLOAT:
        jinja_add(r, s, text, (size_t)jinja_float_text(v.f, text));
        return;
    case J_STR:
        if (v.safe) jinja_adds(r, s, "Markup(");
        put_quoted(r, s, v.s);
        if (v.safe) jinja_addc(r, s, ')');
        return;
    case J_LIST:
    case J_TUPLE:
        put_list(r, s, v);
        return;
    case J_DICT:
        put_dict(r, s, v.d);
        return;
    case J_RANGE:
        put_range(r, s, v.range);
        return;
    case J_NAMESPACE:
        jinja_adds(r, s, "<Namespace ");
        put_dict(r, s, v.d);
        jinja_addc(r, s, '>');
        return;
    default:
        put_object(r, s, v);
    }
}

void jinja_put_str(jrun *r, jsink *s, jval v) {
    if (v.kind == J_STR) {
        jinja_scan(r, v.s->len);
        jinja_add(r, s, v.s->data, v.s->len);
    } else if (v.kind != J_UNDEFINED) {
        jinja_put_repr(r, s, v);
    }
}

jval jinja_to_str(jrun *r, jval v) {
    if (v.kind == J_STR) return (jval){.kind = J_STR, .s = v.s};
    jsink s = {0};
    jinja_put_str(r, &s, v);
    return jinja_sink_str(r, &s);
}

jval jinja_escape(jrun *r, jval v) {
    if (v.kind == J_STR && v.safe) return v;
    jval text = jinja_to_str(r, v);
    jsink s = {0};
    jinja_scan(r, text.s->len);
    for (size_t i = 0; i < text.s->len; i++) {
        char c = text.s->data[i];
        switch (c) {
        case '&':
            jinja_adds(r, &s, "&amp;");
            break;
        case '<':
            jinja_adds(r, &s, "&lt;");
            break;
        case '>':
            jinja_adds(r, &s, "&gt;");
            break;
        case '\'':
            jinja_adds(r, &s, "&#39;");
            break;
        case '"':
            jinja_adds(r, &s, "&#34;");
            break;
        default:
            jinja_addc(r, &s, c);
        }
    }
    text = jinja_sink_str(r, &s);
    text.safe = true;
    return text;
}
