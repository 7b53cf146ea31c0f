/* jinja_format.c: Python's two ways to format: "%5.2f" % x and "{:>8}".format(x). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_unicode.h"

#define MAX_PRECISION 300

typedef struct spec {
    int32_t fill;
    char align; /* < > ^ =, 0: the type's own */
    char sign;  /* + - blank, 0 */
    char group; /* , _ or 0 */
    char type;  /* 0: the value's own */
    bool alternate;
    int64_t width;
    int64_t precision; /* -1: none */
} spec;

/* ---- the pieces both share ---- */

/* prefix is a sign or 0x; with '=' the filling goes after it. */
static void put_padded(jrun *r, jsink *out, const spec *f, const char *prefix, const char *body, size_t len, char align) {
    size_t used = strlen(prefix) + uni_count(body, len), missing = f->width > (int64_t)used ? (size_t)f->width - used : 0;
    char fill[4];
    size_t fill_len = uni_encode(f->fill ? f->fill : ' ', fill), before = 0;
    if (f->align) align = f->align;
    if (align == '>') before = missing;
    if (align == '^') before = missing / 2;
    jinja_add_repeated(r, out, fill, fill_len, before);
    jinja_adds(r, out, prefix);
    if (align == '=') jinja_add_repeated(r, out, fill, fill_len, missing), missing = 0;
    jinja_add(r, out, body, len);
    jinja_add_repeated(r, out, fill, fill_len, missing - before);
}

/* Puts a separator between every three digits of the whole part. */
static void group_digits(const char *from, char separator, char *out, size_t cap) {
    size_t digits = strspn(from, "0123456789"), n = 0;
    for (size_t i = 0; from[i] && n + 2 < cap; i++) {
        if (i && i < digits && (digits - i) % 3 == 0) out[n++] = separator;
        out[n++] = from[i];
    }
    out[n] = 0;
}

static void put_number(jrun *r, jsink *out, const spec *f, bool negative, const char *radix, const char *digits) {
    char prefix[8], grouped[1200];
    snprintf(prefix, sizeof prefix, "%s%s", negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "", radix);
    if (f->group) {
        group_digits(digits, f->group, grouped, sizeof grouped);
        digits = grouped;
    }
    put_padded(r, out, f, prefix, digits, strlen(digits), '>');
}

static void put_int(jrun *r, jsink *out, const spec *f, int64_t i) {
    char digits[80];
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    unsigned base = f->type == 'x' || f->type == 'X' ? 16 : f->type == 'o' ? 8 : f->type == 'b' ? 2 : 10;
    char *p = digits + sizeof digits - 1;
    *p = 0;
    const char *figures = f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    do *--p = figures[u % base];
    while (u /= base);
    while (f->precision > 0 && digits + sizeof digits - 1 - p < f->precision && p > digits) *--p = '0';
    const char *radix = !f->alternate || base == 10 ? "" : f->type == 'x' ? "0x" : f->type == 'X' ? "0X" : f->type == 'o' ? "0o" : "0b";
    put_number(r, out, f, i < 0, radix, p);
}

static void put_float(jrun *r, jsink *out, const spec *f, double v) {
    char text[1024], pattern[16];
    bool percent = f->type == '%';
    char type = percent ? 'f' : f->type ? f->type : 'g';
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    if (f->precision > MAX_PRECISION) jinja_fail(r, HEARTH_FORMAT, "the precision of a number may be at most %d", MAX_PRECISION);
    if (percent) v *= 100;
    if (f->type == 0 && f->precision < 0) {
        jinja_float_text(fabs(v), text);
    } else {
        snprintf(pattern, sizeof pattern, "%%%s.*%c", f->alternate ? "#" : "", type);
        snprintf(text, sizeof text - 4, pattern, precision, fabs(v));
        if (f->type == 0 && isfinite(v) && !strpbrk(text, ".e")) strcat(text, ".0");
    }
    if (percent) strcat(text, "%");
    put_number(r, out, f, signbit(v) && !isnan(v), "", text);
}

static void put_text(jrun *r, jsink *out, const spec *f, jval text) {
    int64_t chars = (int64_t)jinja_chars(r, text.s);
    if (f->precision >= 0 && f->precision < chars) text = jinja_substring(r, text, 0, (size_t)f->precision);
    put_padded(r, out, f, "", text.s->data, text.s->len, '<');
}

static jval repr_of(jrun *r, jval v) {
    jsink s = {0};
    jinja_put_repr(r, &s, v);
    return jinja_sink_str(r, &s);
}

/* ---- percent ---- */

typedef struct percent {
    jrun *r;
    const char *p, *end;
    jval args;
    size_t next;
    bool escape; /* the format is marked safe, so its arguments are escaped */
} percent;

static _Noreturn void bad_format(jrun *r, const char *why) { jinja_fail(r, HEARTH_FORMAT, "%s", why); }

static jval next_argument(percent *f) {
    if (f->args.kind == J_TUPLE) {
        if (f->next >= f->args.l->n) bad_format(f->r, "not enough arguments for format string");
        return f->args.l->v[f->next++];
    }
    if (f->next++) bad_format(f->r, "not enough arguments for format string");
    return f->args;
}

static jval named_argument(percent *f) {
    const char *close = memchr(f->p, ')', (size_t)(f->end - f->p));
    if (!close) bad_format(f->r, "incomplete format key");
    if (f->args.kind != J_DICT) bad_format(f->r, "format requires a mapping");
    jval key = jinja_str(f->r, f->p, (size_t)(close - f->p));
    const jval *v = jinja_dict_get(f->r, f->args.d, key);
    if (!v) bad_format(f->r, "the format names a key that is not there");
    f->p = close + 1;
    return *v;
}

static int64_t percent_number(percent *f) {
    if (f->p < f->end && *f->p == '*') {
        f->p++;
        return jarg_int(f->r, next_argument(f), 0);
    }
    int64_t n = 0;
    while (f->p < f->end && *f->p >= '0' && *f->p <= '9') {
        n = n * 10 + (*f->p++ - '0');
        if (n > (int64_t)JINJA_MAX_OUTPUT) bad_format(f->r, "a width or precision is too large");
    }
    return n;
}

static spec percent_spec(percent *f) {
    spec s = {.precision = -1};
    bool zero = false;
    for (; f->p < f->end && *f->p && strchr("#0- +", *f->p); f->p++) {
        if (*f->p == '#') s.alternate = true;
        if (*f->p == '0') zero = true;
        if (*f->p == '-') s.align = '<';
        if (*f->p == '+' || (*f->p == ' ' && !s.sign)) s.sign = *f->p;
    }
    s.width = percent_number(f);
    if (s.width < 0) {
        s.align = '<';
        s.width = s.width < -(int64_t)JINJA_MAX_OUTPUT ? (int64_t)JINJA_MAX_OUTPUT : -s.width;
    }
    if (f->p < f->end && *f->p == '.') {
        f->p++;
        s.precision = percent_number(f);
        if (s.precision < 0) s.precision = 0;
    }
    while (f->p < f->end && *f->p && strchr("hlL", *f->p)) f->p++;
    if (f->p >= f->end) bad_format(f->r, "incomplete format");
    s.type = *f->p++;
    if (zero && !s.align && strchr("diouxXeEfFgG", s.type)) s.align = '=', s.fill = '0';
    if (!s.align) s.align = '>';
    return s;
}

static jval number_argument(percent *f, jval v, char type) {
    jinja_need_defined(f->r, v);
    if (!jinja_is_number(v)) jinja_fail(f->r, HEARTH_FORMAT, "%%%c format: a number is required, not %s", type, jinja_type_name(v));
    return v;
}

static void percent_char(percent *f, jsink *out, const spec *s, jval v) {
    jsink one = {0};
    if (jinja_is_int(v)) jinja_add_char(f->r, &one, jinja_int(v) < 0 || jinja_int(v) > 0x10FFFF ? 0xFFFD : (int32_t)jinja_int(v));
    else if (v.kind == J_STR && jinja_chars(f->r, v.s) == 1) jinja_add(f->r, &one, v.s->data, v.s->len);
    else bad_format(f->r, "%c requires int or char");
    put_padded(f->r, out, s, "", one.data, one.len, '>');
}

static void percent_value(percent *f, jsink *out, spec *s, jval v) {
    switch (s->type) {
    case 's':
        put_text(f->r, out, s, f->escape ? jinja_escape(f->r, v) : jinja_to_str(f->r, v));
        return;
    case 'r':
    case 'a':
        put_text(f->r, out, s, f->escape ? jinja_escape(f->r, repr_of(f->r, v)) : repr_of(f->r, v));
        return;
    case 'c':
        percent_char(f, out, s, v);
        return;
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X':
        v = number_argument(f, v, s->type);
        if (v.kind == J_FLOAT && (s->type == 'x' || s->type == 'X' || s->type == 'o' || !(fabs(v.f) < 0x1p63)))
            bad_format(f->r, "the format needs a whole number");
        put_int(f->r, out, s, v.kind == J_FLOAT ? (int64_t)v.f : jinja_int(v));
        return;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        put_float(f->r, out, s, jinja_number(number_argument(f, v, s->type)));
        return;
    default:
        bad_format(f->r, "unsupported format character");
    }
}

jval jinja_percent_format(jrun *r, jval format, jval args) {
    percent f = {.r = r, .p = format.s->data, .end = format.s->data + format.s->len, .args = args, .escape = format.safe};
    jsink out = {0};
    jinja_scan(r, format.s->len);
    while (f.p < f.end) {
        const char *mark = memchr(f.p, '%', (size_t)(f.end - f.p));
        size_t plain = mark ? (size_t)(mark - f.p) : (size_t)(f.end - f.p);
        jinja_add(r, &out, f.p, plain);
        if (!mark) break;
        f.p = mark + 1;
        if (f.p < f.end && *f.p == '%') {
            jinja_addc(r, &out, *f.p++);
            continue;
        }
        jval v = jval_of(J_ABSENT);
        if (f.p < f.end && *f.p == '(') {
            f.p++;
            v = named_argument(&f);
        }
        spec s = percent_spec(&f);
        if (v.kind == J_ABSENT) v = next_argument(&f);
        jinja_step(r, 1);
        percent_value(&f, &out, &s, v);
    }
    bool spare =
        args.kind == J_TUPLE ? f.next < args.l->n : f.next == 0 && args.kind != J_DICT && args.kind != J_LIST && args.kind != J_UNDEFINED;
    if (spare) bad_format(r, "not all arguments converted during string formatting");
    jval text = jinja_sink_str(r, &out);
    text.safe = format.safe;
    return text;
}

/* ---- braces ---- */

typedef struct brace {
    jrun *r;
    const jargs *a;
    size_t next;    /* the next argument of {} */
    bool numbered;  /* {0} was used */
    bool automatic; /* {} was used */
    bool escape;
} brace;

static bool is_align(int32_t c) { return c == '<' || c == '>' || c == '^' || c == '='; }

static int64_t brace_number(brace *f, const char **p, const char *end) {
    int64_t n = 0;
    while (*p < end && **p >= '0' && **p <= '9') {
        n = n * 10 + (*(*p)++ - '0');
        if (n > (int64_t)JINJA_MAX_OUTPUT) bad_format(f->r, "a width or precision is too large");
    }
    return n;
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static spec brace_spec(brace *f, const jstr *text) {
    spec s = {.precision = -1};
    const char *p = text->data, *end = p + text->len;
    size_t first = p < end ? uni_size(*p) : 0;
    if (first && p + first < end && is_align(p[first])) {
        s.fill = uni_decode(p, &first);
        s.align = p[first];
        p += first + 1;
    } else if (p < end && is_align(*p)) {
        s.align = *p++;
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' ')) s.sign = *p++;
    if (p < end && *p == '#') s.alternate = true, p++;
    if (p < end && *p == '0') {
        if (!s.align) s.align = '=', s.fill = '0';
        p++;
    }
    s.width = brace_number(f, &p, end);
    if (p < end && (*p == ',' || *p == '_')) s.group = *p++;
    if (p < end && *p == '.') {
        p++;
        if (p >= end || *p < '0' || *p > '9') bad_format(f->r, "Format specifier missing precision");
        s.precision = brace_number(f, &p, end);
    }
    if (p < end) s.type = *p++;
    if (p != end || (s.type && !strchr("sdbcoxXneEfFgG%", s.type))) bad_format(f->r, "Invalid format specifier");
    if (s.type == 'n') s.type = 0;
    return s;
}

static void brace_put(brace *f, jsink *out, jval v, const jstr *text) {
    if (text->len == 0) {
        jinja_put_str(f->r, out, f->escape ? jinja_escape(f->r, v) : v);
        return;
    }
    spec s = brace_spec(f, text);
    bool whole = s.type == 0 || strchr("dbcoxX", s.type), real = s.type && strchr("eEfFgG%", s.type);
    if (v.kind == J_STR && (s.type == 0 || s.type == 's') && s.align != '=') {
        put_text(f->r, out, &s, f->escape ? jinja_escape(f->r, v) : v);
    } else if (jinja_is_int(v) && s.type == 'c') {
        jsink one = {0};
        jinja_add_char(f->r, &one, jinja_int(v) < 0 || jinja_int(v) > 0x10FFFF ? 0xFFFD : (int32_t)jinja_int(v));
        put_padded(f->r, out, &s, "", one.data, one.len, '<');
    } else if (jinja_is_int(v) && whole) {
        if (s.precision >= 0) bad_format(f->r, "Precision not allowed in integer format specifier");
        put_int(f->r, out, &s, jinja_int(v));
    } else if (jinja_is_number(v) && (real || (s.type == 0 && v.kind == J_FLOAT))) {
        put_float(f->r, out, &s, jinja_number(v));
    } else {
        jinja_need_defined(f->r, v);
        jinja_fail(f->r, HEARTH_FORMAT, "this format does not fit a value of type %s", jinja_type_name(v));
    }
}

static jval brace_base(brace *f, const char *name, size_t len) {
    jstr key = {.data = name, .len = len};
    int64_t i = -1;
    if (len == 0) {
        f->automatic = true;
        i = (int64_t)f->next++;
    } else if (name[0] >= '0' && name[0] <= '9') {
        if (!jinja_parse_int(&key, 10, &i)) bad_format(f->r, "malformed field in format string");
        f->numbered = true;
    }
    if (f->automatic && f->numbered) bad_format(f->r, "cannot mix {} and {0} in one format string");
    if (i >= 0) {
        if ((uint64_t)i >= f->a->npos) bad_format(f->r, "the format string has more fields than there are arguments");
        return f->a->pos[i];
    }
    for (size_t k = 0; k < f->a->nkw; k++)
        if (f->a->kw[k].name->len == len && memcmp(f->a->kw[k].name->data, name, len) == 0) return f->a->kw[k].value;
    char quoted[80];
    jinja_fail(f->r, HEARTH_FORMAT, "format was not given '%s'", err_quote(quoted, sizeof quoted, name, len));
}

/* A field's value: name.attribute[item]... */
static jval brace_value(brace *f, const char *p, const char *end) {
    const char *stop = p;
    while (stop < end && *stop != '.' && *stop != '[') stop++;
    jval v = brace_base(f, p, (size_t)(stop - p));
    for (p = stop; p < end; p = stop) {
        jinja_step(f->r, 1);
        bool item = *p++ == '[';
        stop = p;
        while (stop < end && (item ? *stop != ']' : *stop != '.' && *stop != '[')) stop++;
        if (stop == p || (item && stop == end)) bad_format(f->r, "malformed field in format string");
        jval key = jinja_str(f->r, p, (size_t)(stop - p));
        int64_t i;
        if (!item) v = jinja_attribute(f->r, v, key.s);
        else v = jinja_item(f->r, v, *p >= '0' && *p <= '9' && jinja_parse_int(key.s, 10, &i) ? jval_int(i) : key);
        if (item) stop++;
    }
    return v;
}

static jval brace_text(brace *f, const jstr *format, int depth);

/* The inside of { }. */
static void brace_field(brace *f, jsink *out, const char *p, const char *end, int depth) {
    int nested = 0;
    const char *name_end = p;
    while (name_end < end && *name_end != ':' && *name_end != '!') {
        nested += *name_end == '['; /* a key may hold a colon */
        name_end++;
        while (nested && name_end < end && name_end[-1] != ']') name_end++;
        nested = 0;
    }
    jval v = brace_value(f, p, name_end);
    p = name_end;
    if (p < end && *p == '!') {
        char how = p + 1 < end ? p[1] : 0;
        if (how != 'r' && how != 's' && how != 'a') bad_format(f->r, "a conversion must be !r, !s or !a");
        v = how == 's' ? jinja_to_str(f->r, v) : repr_of(f->r, v);
        p += 2;
        if (p < end && *p != ':') bad_format(f->r, "expected ':' after conversion specifier");
    }
    jstr given = {.data = p < end ? p + 1 : p, .len = p < end ? (size_t)(end - p - 1) : 0};
    jval text = memchr(given.data, '{', given.len) ? brace_text(f, &given, depth + 1) : jinja_str(f->r, given.data, given.len);
    brace_put(f, out, v, text.s);
}

static const char *closing_brace(const char *p, const char *end) {
    for (int open = 1; p < end; p++) {
        open += *p == '{' ? 1 : *p == '}' ? -1 : 0;
        if (open == 0) return p;
    }
    return NULL;
}

static jval brace_text(brace *f, const jstr *format, int depth) {
    const char *p = format->data, *end = p + format->len;
    jsink out = {0};
    if (depth > 1) bad_format(f->r, "format fields are nested too deeply");
    while (p < end) {
        char c = *p++;
        bool twice = p < end && *p == c;
        if ((c == '{' || c == '}') && twice) {
            jinja_addc(f->r, &out, *p++);
        } else if (c == '{') {
            const char *close = closing_brace(p, end);
            if (!close) bad_format(f->r, "expected '}' before end of string");
            jinja_step(f->r, 1);
            brace_field(f, &out, p, close, depth);
            p = close + 1;
        } else if (c == '}') {
            bad_format(f->r, "Single '}' encountered in format string");
        } else {
            jinja_addc(f->r, &out, c);
        }
    }
    return jinja_sink_str(f->r, &out);
}

jval jinja_brace_format(jrun *r, jval format, const jargs *a) {
    brace f = {.r = r, .a = a, .escape = format.safe};
    jinja_scan(r, format.s->len);
    return brace_text(&f, format.s, 0);
}
