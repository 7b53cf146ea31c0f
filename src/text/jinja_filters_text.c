/* jinja_filters_text.c: filters that make or change text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_unicode.h"

/* The value as text that stays marked safe. */
static jval soft(jrun *r, jval v) { return v.kind == J_STR ? v : jinja_to_str(r, v); }

static jval as_safe_as(jval text, jval origin) {
    text.safe = origin.kind == J_STR && origin.safe;
    return text;
}

static jval need_text(jrun *r, jval v, const char *filter) {
    jinja_need_defined(r, v);
    if (v.kind != J_STR) jinja_fail(r, HEARTH_FORMAT, "%s needs a string, not %s", filter, jinja_type_name(v));
    return v;
}

static jval filter_string(jrun *r, jval self, jargs *a) {
    (void)a;
    return soft(r, self);
}

static jval filter_safe(jrun *r, jval self, jargs *a) {
    (void)a;
    jval v = jinja_to_str(r, self);
    v.safe = true;
    return v;
}

static jval filter_escape(jrun *r, jval self, jargs *a) {
    (void)a;
    return jinja_escape(r, self);
}

static jval filter_forceescape(jrun *r, jval self, jargs *a) {
    (void)a;
    return jinja_escape(r, jinja_to_str(r, self));
}

static jval filter_upper(jrun *r, jval self, jargs *a) {
    (void)a;
    return as_safe_as(uni_map_case(r, soft(r, self).s, UNI_UPPER), self);
}

static jval filter_lower(jrun *r, jval self, jargs *a) {
    (void)a;
    return as_safe_as(uni_map_case(r, soft(r, self).s, UNI_LOWER), self);
}

static jval filter_capitalize(jrun *r, jval self, jargs *a) {
    (void)a;
    return as_safe_as(jinja_capitalize(r, soft(r, self).s), self);
}

static jval filter_title(jrun *r, jval self, jargs *a) {
    (void)a;
    const jstr *s = soft(r, self).s;
    jsink out = {0};
    bool start = true;
    jinja_scan(r, s->len);
    for (size_t i = 0, n; i < s->len; i += n) {
        int32_t c = uni_decode(s->data + i, &n);
        uni_add_case(r, &out, s, i, start ? UNI_UPPER : UNI_LOWER);
        start = uni_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    }
    return jinja_sink_str(r, &out);
}

static jval filter_trim(jrun *r, jval self, jargs *a) { return jinja_strip(r, soft(r, self), a->slot[0], UNI_BOTH); }

static jval filter_center(jrun *r, jval self, jargs *a) {
    return as_safe_as(jinja_pad(r, soft(r, self), jarg_int(r, a->slot[0], 80), jval_of(J_ABSENT), '^'), self);
}

static jval filter_replace(jrun *r, jval self, jargs *a) {
    int64_t count = jarg_given(a->slot[2]) ? jarg_int(r, a->slot[2], -1) : -1;
    return jinja_replace(r, jinja_to_str(r, self).s, jinja_to_str(r, a->slot[0]).s, jinja_to_str(r, a->slot[1]).s, count);
}

static jval filter_format(jrun *r, jval self, jargs *a) {
    if (a->npos && a->nkw) jinja_fail(r, HEARTH_FORMAT, "format cannot take arguments by position and by name at the same time");
    if (a->nkw) {
        jdict *d = jinja_dict(r);
        for (size_t i = 0; i < a->nkw; i++) jinja_dict_set(r, d, (jval){.kind = J_STR, .s = (jstr *)a->kw[i].name}, a->kw[i].value);
        return jinja_percent_format(r, soft(r, self), jval_dict(d));
    }
    jlist *l = jinja_list(r, a->npos);
    for (size_t i = 0; i < a->npos; i++) jinja_append(r, l, a->pos[i]);
    return jinja_percent_format(r, soft(r, self), (jval){.kind = J_TUPLE, .l = l});
}

static jval filter_indent(jrun *r, jval self, jargs *a) {
    jval s = need_text(r, self, "indent");
    jsink blanks = {0}, out = {0};
    if (a->slot[0].kind == J_STR) {
        jinja_add(r, &blanks, a->slot[0].s->data, a->slot[0].s->len);
    } else {
        int64_t width = jarg_int(r, a->slot[0], 4);
        jinja_add_repeated(r, &blanks, " ", 1, width < 0 ? 0 : (size_t)width);
    }
    bool first = jarg_bool(r, a->slot[1], false), blank = jarg_bool(r, a->slot[2], false);
    /* A newline is added so that one at the end counts as the start of an empty line. */
    jlist *lines = jinja_splitlines(r, jinja_concat(r, s, jinja_text(r, "\n")), false);
    for (size_t i = 0; i < lines->n; i++) {
        const jstr *line = lines->v[i].s;
        if (i) jinja_addc(r, &out, '\n');
        if (i == 0 ? first : blank || line->len) jinja_add(r, &out, blanks.data, blanks.len);
        jinja_add(r, &out, line->data, line->len);
    }
    return as_safe_as(jinja_sink_str(r, &out), self);
}

static jval filter_truncate(jrun *r, jval self, jargs *a) {
    jval s = self;
    jval end = a->slot[2].kind == J_ABSENT ? jinja_text(r, "...") : need_text(r, a->slot[2], "truncate");
    int64_t length = jarg_int(r, a->slot[0], 255), leeway = jarg_given(a->slot[3]) ? jarg_int(r, a->slot[3], 5) : 5;
    int64_t have = jinja_length(r, s) == SIZE_MAX ? INT64_MAX : (int64_t)jinja_length(r, s), tail = (int64_t)jinja_chars(r, end.s);
    if (length < tail || leeway < 0) jinja_fail(r, HEARTH_FORMAT, "truncate needs a length of at least its ending, and no negative leeway");
    if (have <= length || have - length <= leeway) return s;
    jval cut = jinja_substring(r, need_text(r, s, "truncate"), 0, (size_t)(length - tail));
    if (!jarg_bool(r, a->slot[1], false)) {
        const char *blank = memrchr(cut.s->data, ' ', cut.s->len);
        if (blank) cut = jinja_str(r, cut.s->data, (size_t)(blank - cut.s->data));
    }
    return jinja_concat(r, cut, end);
}

static bool word_char(int32_t c) { return c == '_' || uni_alpha(c) || uni_numeric(c); }

static jval filter_wordcount(jrun *r, jval self, jargs *a) {
    (void)a;
    const jstr *s = soft(r, self).s;
    int64_t words = 0;
    bool inside = false;
    jinja_scan(r, s->len);
    for (size_t i = 0, n; i < s->len; i += n) {
        bool word = word_char(uni_decode(s->data + i, &n));
        words += word && !inside;
        inside = word;
    }
    return jval_int(words);
}

/* Wraps one line: words as long as they fit; longer ones are cut when that is allowed. */
static void wrap_line(jrun *r, jsink *out, const jstr *line, size_t width, bool cut, const jstr *newline) {
    size_t column = 0, at = 0;
    bool begun = false;
    while (at < line->len) {
        size_t blank = at, n;
        while (blank < line->len && uni_space(uni_decode(line->data + blank, &n))) blank += n;
        size_t end = blank, word = 0;
        while (end < line->len && !uni_space(uni_decode(line->data + end, &n))) end += n, word++;
        size_t gap = uni_count(line->data + at, blank - at);
        if (word == 0) break;
        if (begun && column + gap + word > width) {
            jinja_add(r, out, newline->data, newline->len);
            column = gap = 0;
        } else {
            jinja_add(r, out, line->data + at, blank - at);
        }
        while (cut && word > width) {
            size_t bytes = uni_offset(line->data + blank, end - blank, width);
            jinja_add(r, out, line->data + blank, bytes);
            jinja_add(r, out, newline->data, newline->len);
            jinja_step(r, 1);
            blank += bytes;
            word -= width;
        }
        jinja_add(r, out, line->data + blank, end - blank);
        column += gap + word;
        begun = true;
        at = end;
    }
}

static jval filter_wordwrap(jrun *r, jval self, jargs *a) {
    jval s = need_text(r, self, "wordwrap");
    int64_t width = jarg_int(r, a->slot[0], 79);
    if (width < 1) jinja_fail(r, HEARTH_FORMAT, "wordwrap needs a width of at least 1");
    jval newline = jarg_given(a->slot[2]) ? need_text(r, a->slot[2], "wordwrap") : jinja_text(r, "\n");
    jlist *lines = jinja_splitlines(r, s, false);
    jsink out = {0};
    jinja_scan(r, s.s->len);
    for (size_t i = 0; i < lines->n; i++) {
        if (i) jinja_add(r, &out, newline.s->data, newline.s->len);
        wrap_line(r, &out, lines->v[i].s, (size_t)width, jarg_bool(r, a->slot[1], true), newline.s);
    }
    return jinja_sink_str(r, &out);
}

/* Without tags and comments, blanks collapsed. Character references are left as they are. */
static jval filter_striptags(jrun *r, jval self, jargs *a) {
    (void)a;
    const jstr *s = soft(r, self).s;
    jsink out = {0};
    bool blank = false;
    jinja_scan(r, s->len);
    for (size_t i = 0, n; i < s->len; i += n) {
        int32_t c = uni_decode(s->data + i, &n);
        if (c == '<') {
            bool comment = s->len - i >= 4 && memcmp(s->data + i, "<!--", 4) == 0;
            const jstr close = {.data = comment ? "-->" : ">", .len = comment ? 3 : 1};
            const char *end = jinja_find_text(r, s->data + i, s->len - i, &close);
            if (end) {
                n = (size_t)(end - (s->data + i)) + close.len;
                continue;
            }
        }
        if (uni_space(c)) {
            blank = true;
            continue;
        }
        if (blank && out.len) jinja_addc(r, &out, ' ');
        blank = false;
        jinja_add(r, &out, s->data + i, n);
    }
    return jinja_sink_str(r, &out);
}

static void put_quoted_url(jrun *r, jsink *out, jval v, bool query) {
    const jstr *s = jinja_to_str(r, v).s;
    jinja_scan(r, s->len);
    for (size_t i = 0; i < s->len; i++) {
        unsigned char c = (unsigned char)s->data[i];
        bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c && strchr("_.-~", c)) || (c == '/' && !query);
        char hex[4];
        if (plain) jinja_addc(r, out, (char)c);
        else if (c == ' ' && query) jinja_addc(r, out, '+');
        else jinja_add(r, out, hex, (size_t)snprintf(hex, sizeof hex, "%%%02X", c));
    }
}

static jval filter_urlencode(jrun *r, jval self, jargs *a) {
    (void)a;
    jsink out = {0};
    if (self.kind == J_STR || !jinja_iterable(self)) {
        put_quoted_url(r, &out, self, false);
        return jinja_sink_str(r, &out);
    }
    jiter it = jinja_iter(r, self);
    jval item;
    for (bool first = true; jinja_next(r, &it, &item); first = false) {
        jval value;
        if (self.kind == J_DICT) {
            value = *jinja_dict_get(r, self.d, item);
        } else {
            jlist *pair = jinja_to_list(r, item);
            if (pair->n != 2) jinja_fail(r, HEARTH_FORMAT, "urlencode needs pairs of key and value");
            item = pair->v[0];
            value = pair->v[1];
        }
        if (!first) jinja_addc(r, &out, '&');
        put_quoted_url(r, &out, item, true);
        jinja_addc(r, &out, '=');
        put_quoted_url(r, &out, value, true);
    }
    return jinja_sink_str(r, &out);
}

static jval filter_xmlattr(jrun *r, jval self, jargs *a) {
    if (self.kind != J_DICT) jinja_fail(r, HEARTH_FORMAT, "xmlattr needs a dict, not %s", jinja_type_name(self));
    jsink out = {0};
    bool space = jarg_bool(r, a->slot[0], true);
    for (size_t i = 0; i < self.d->n; i++) {
        jval key = self.d->e[i].key, value = self.d->e[i].value;
        if (value.kind == J_NONE || value.kind == J_UNDEFINED) continue;
        const jstr *name = need_text(r, key, "xmlattr").s;
        for (size_t k = 0; k < name->len; k++)
            if (!name->data[k] || strchr(" \t\n\r\f\v/>=", name->data[k]))
                jinja_fail(r, HEARTH_FORMAT, "invalid character in attribute name");
        if (out.len || space) jinja_addc(r, &out, ' ');
        jinja_put_str(r, &out, jinja_escape(r, key));
        jinja_adds(r, &out, "=\"");
        jinja_put_str(r, &out, jinja_escape(r, value));
        jinja_addc(r, &out, '"');
    }
    return jinja_sink_str(r, &out);
}

static jval filter_filesizeformat(jrun *r, jval self, jargs *a) {
    double bytes;
    if (jinja_is_number(self)) bytes = jinja_number(self);
    else if (self.kind != J_STR || !jinja_parse_float(self.s, &bytes)) jinja_fail(r, HEARTH_FORMAT, "filesizeformat needs a number");
    bool binary = jarg_bool(r, a->slot[0], false);
    double base = binary ? 1024 : 1000, unit = base * base;
    static const char letters[] = "kMGTPEZY";
    char text[64];
    if (bytes == 1) return jinja_text(r, "1 Byte");
    size_t i = 0;
    while (bytes >= unit && letters[i + 1]) unit *= base, i++;
    if (bytes < base) snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes));
    else if (!(bytes < 1e30)) jinja_fail(r, HEARTH_FORMAT, "filesizeformat needs a sensible number");
    else snprintf(text, sizeof text, "%.1f %c%s", base * bytes / unit, binary && i == 0 ? 'K' : letters[i], binary ? "iB" : "B");
    jsink out = {0};
    jinja_adds(r, &out, text);
    return jinja_sink_str(r, &out);
}

static jval filter_from_json(jrun *r, jval self, jargs *a) {
    (void)a;
    return jinja_parse_json(r, need_text(r, self, "from_json"));
}

static jval filter_pprint(jrun *r, jval self, jargs *a) {
    (void)a;
    jsink out = {0};
    jinja_put_repr(r, &out, self);
    return jinja_sink_str(r, &out);
}

const jfunc jinja_text_filters[] = {
    {"capitalize", filter_capitalize, "", 0},
    {"center", filter_center, "width", 0},
    {"e", filter_escape, "", 0},
    {"escape", filter_escape, "", 0},
    {"filesizeformat", filter_filesizeformat, "binary", 0},
    {"forceescape", filter_forceescape, "", 0},
    {"format", filter_format, "*", 0},
    {"from_json", filter_from_json, "", 0},
    {"fromjson", filter_from_json, "", 0},
    {"indent", filter_indent, "width first blank", 0},
    {"lower", filter_lower, "", 0},
    {"pprint", filter_pprint, "", 0},
    {"replace", filter_replace, "old new count", 2},
    {"safe", filter_safe, "", 0},
    {"string", filter_string, "", 0},
    {"striptags", filter_striptags, "", 0},
    {"title", filter_title, "", 0},
    {"tojson", jinja_filter_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", filter_trim, "chars", 0},
    {"truncate", filter_truncate, "length killwords end leeway", 0},
    {"upper", filter_upper, "", 0},
    {"urlencode", filter_urlencode, "", 0},
    {"wordcount", filter_wordcount, "", 0},
    {"wordwrap", filter_wordwrap, "width break_long_words wrapstring", 0},
    {"xmlattr", filter_xmlattr, "autospace", 0},
    {0},
};
