/* jinja_methods_text.c: the methods of Python's str. */
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_unicode.h"

/* ---- shared with filters ---- */

jval jinja_strip(jrun *r, jval s, jval chars, int side) {
    const jstr *set = jarg_given(chars) ? jarg_str(r, chars, "what to strip") : NULL;
    size_t start, end, work;
    if (__builtin_mul_overflow(s.s->len, set ? set->len + 1 : 1, &work)) work = SIZE_MAX;
    jinja_scan(r, work);
    uni_strip(s.s, set, (uni_side)side, &start, &end);
    jval v = jinja_str(r, s.s->data + start, end - start);
    v.safe = s.safe;
    return v;
}

jval jinja_capitalize(jrun *r, const jstr *s) {
    jsink out = {0};
    jinja_scan(r, s->len);
    for (size_t i = 0; i < s->len; i += uni_size(s->data[i])) uni_add_case(r, &out, s, i, i == 0 ? UNI_TITLE : UNI_LOWER);
    return jinja_sink_str(r, &out);
}

jval jinja_pad(jrun *r, jval s, int64_t width, jval fill, int align) {
    const jstr *f = fill.kind == J_ABSENT ? NULL : jarg_str(r, fill, "the fill character");
    if (f && uni_count(f->data, f->len) != 1) jinja_fail(r, HEARTH_FORMAT, "the fill character must be exactly one character long");
    int64_t have = (int64_t)jinja_chars(r, s.s), missing = width > have ? width - have : 0;
    if (missing == 0) return s;
    size_t left = align == '<' ? 0 : align == '>' ? (size_t)missing : (size_t)(missing / 2 + (missing & width & 1));
    jsink out = {0};
    jinja_add_repeated(r, &out, f ? f->data : " ", f ? f->len : 1, left);
    jinja_add(r, &out, s.s->data, s.s->len);
    jinja_add_repeated(r, &out, f ? f->data : " ", f ? f->len : 1, (size_t)missing - left);
    return jinja_sink_str(r, &out);
}

/* A count of times where a negative one means all. */
static int64_t at_most(int64_t count) { return count < 0 ? INT64_MAX : count; }

jval jinja_replace(jrun *r, const jstr *s, const jstr *from, const jstr *to, int64_t count) {
    jsink out = {0};
    size_t at = 0;
    count = at_most(count);
    jinja_scan(r, s->len);
    if (from->len == 0) { /* between all characters and at both ends */
        for (; count != 0; count--) {
            jinja_add(r, &out, to->data, to->len);
            if (at >= s->len) break;
            size_t n = uni_size(s->data[at]);
            jinja_add(r, &out, s->data + at, n);
            at += n;
        }
    }
    while (from->len && count != 0) {
        const char *hit = jinja_find_text(r, s->data + at, s->len - at, from);
        if (!hit) break;
        size_t found = (size_t)(hit - s->data);
        jinja_add(r, &out, s->data + at, found - at);
        jinja_add(r, &out, to->data, to->len);
        at = found + from->len;
        count--;
    }
    jinja_add(r, &out, s->data + at, s->len - at);
    return jinja_sink_str(r, &out);
}

static jval part(jrun *r, jval s, size_t start, size_t end) { return jinja_str(r, s.s->data + start, end - start); }

jlist *jinja_splitlines(jrun *r, jval s, bool keep) {
    jlist *l = jinja_list(r, 0);
    size_t start = 0;
    jinja_scan(r, s.s->len);
    for (size_t i = 0, n; i < s.s->len;) {
        int32_t c = uni_decode(s.s->data + i, &n);
        if (!uni_line_break(c)) {
            i += n;
            continue;
        }
        size_t end = i + n;
        if (c == '\r' && end < s.s->len && s.s->data[end] == '\n') end++;
        jinja_append(r, l, part(r, s, start, keep ? end : i));
        start = i = end;
    }
    if (start < s.s->len) jinja_append(r, l, part(r, s, start, s.s->len));
    return l;
}

/* strict: only strings may be joined, as with str.join. */
jval jinja_join(jrun *r, const jstr *separator, jval items, bool strict, bool escape) {
    jsink out = {0};
    jiter it = jinja_iter(r, items);
    jval item;
    for (size_t i = 0; jinja_next(r, &it, &item); i++) {
        if (strict && item.kind != J_STR)
            jinja_fail(r, HEARTH_FORMAT, "sequence item %zu: expected str instance, %s found", i, jinja_type_name(item));
        if (i) jinja_add(r, &out, separator->data, separator->len);
        jinja_put_str(r, &out, escape ? jinja_escape(r, item) : item);
    }
    return jinja_sink_str(r, &out);
}

/* ---- methods ---- */

/* What Markup gives back is Markup: strings, and strings in lists. */
static jval marked(jval self, jval v) {
    if (!self.safe) return v;
    if (v.kind == J_STR) v.safe = true;
    for (size_t i = 0; (v.kind == J_LIST || v.kind == J_TUPLE) && i < v.l->n; i++)
        if (v.l->v[i].kind == J_STR) v.l->v[i].safe = true;
    return v;
}

static jval method_strip(jrun *r, jval self, jargs *a) { return jinja_strip(r, self, a->slot[0], UNI_BOTH); }
static jval method_lstrip(jrun *r, jval self, jargs *a) { return jinja_strip(r, self, a->slot[0], UNI_LEFT); }
static jval method_rstrip(jrun *r, jval self, jargs *a) { return jinja_strip(r, self, a->slot[0], UNI_RIGHT); }

static jval method_upper(jrun *r, jval self, jargs *a) {
    (void)a;
    return marked(self, uni_map_case(r, self.s, UNI_UPPER));
}

static jval method_lower(jrun *r, jval self, jargs *a) {
    (void)a;
    return marked(self, uni_map_case(r, self.s, UNI_LOWER));
}

static jval method_casefold(jrun *r, jval self, jargs *a) {
    (void)a;
    return marked(self, uni_map_case(r, self.s, UNI_FOLD));
}

static jval method_capitalize(jrun *r, jval self, jargs *a) {
    (void)a;
    return marked(self, jinja_capitalize(r, self.s));
}

static jval method_swapcase(jrun *r, jval self, jargs *a) {
    (void)a;
    jsink out = {0};
    jinja_scan(r, self.s->len);
    for (size_t i = 0, n; i < self.s->len; i += n)
        uni_add_case(r, &out, self.s, i, uni_upper(uni_decode(self.s->data + i, &n)) ? UNI_LOWER : UNI_UPPER);
    return marked(self, jinja_sink_str(r, &out));
}

static jval method_title(jrun *r, jval self, jargs *a) {
    (void)a;
    jsink out = {0};
    bool inside = false;
    jinja_scan(r, self.s->len);
    for (size_t i = 0, n; i < self.s->len; i += n) {
        bool cased = uni_cased(uni_decode(self.s->data + i, &n));
        uni_add_case(r, &out, self.s, i, inside ? UNI_LOWER : UNI_TITLE);
        inside = cased;
    }
    return marked(self, jinja_sink_str(r, &out));
}

static jval method_replace(jrun *r, jval self, jargs *a) {
    const jstr *from = jarg_str(r, a->slot[0], "what to replace"), *to = jarg_str(r, a->slot[1], "the replacement");
    return marked(self, jinja_replace(r, self.s, from, to, jarg_int(r, a->slot[2], -1)));
}

static jlist *split_blanks(jrun *r, jval self, int64_t most) {
    jlist *l = jinja_list(r, 0);
    const jstr *s = self.s;
    for (size_t i = 0, n; i < s->len;) {
        if (uni_space(uni_decode(s->data + i, &n))) {
            i += n;
            continue;
        }
        size_t start = i;
        if (most-- == 0) { /* the rest, with the blanks at its end */
            jinja_append(r, l, part(r, self, start, s->len));
            break;
        }
        while (i < s->len && !uni_space(uni_decode(s->data + i, &n))) i += n;
        jinja_append(r, l, part(r, self, start, i));
    }
    return l;
}

static const jstr *separator_of(jrun *r, jval v) {
    if (!jarg_given(v)) return NULL;
    const jstr *s = jarg_str(r, v, "the separator");
    if (s->len == 0) jinja_fail(r, HEARTH_FORMAT, "empty separator");
    return s;
}

static jval method_split(jrun *r, jval self, jargs *a) {
    const jstr *by = separator_of(r, a->slot[0]), *s = self.s;
    int64_t most = at_most(jarg_int(r, a->slot[1], -1));
    jinja_scan(r, s->len);
    if (!by) return marked(self, jval_list(split_blanks(r, self, most)));
    jlist *l = jinja_list(r, 0);
    size_t at = 0;
    for (const char *hit; most != 0 && (hit = jinja_find_text(r, s->data + at, s->len - at, by)); most--) {
        jinja_append(r, l, part(r, self, at, (size_t)(hit - s->data)));
        at = (size_t)(hit - s->data) + by->len;
    }
    jinja_append(r, l, part(r, self, at, s->len));
    return marked(self, jval_list(l));
}

/* The last place of needle in s[from..to], or SIZE_MAX. */
static size_t find_last(jrun *r, const jstr *s, size_t from, size_t to, const jstr *needle) {
    if (needle->len > to - from) return SIZE_MAX;
    if (needle->len == 0) return to;
    for (size_t at = to - needle->len + 1; at-- > from;) {
        if (at % 64 == 0) jinja_step(r, 1);
        if (s->data[at] != needle->data[0]) continue;
        jinja_scan(r, needle->len);
        if (memcmp(s->data + at, needle->data, needle->len) == 0) return at;
    }
    return SIZE_MAX;
}

static jlist *rsplit_blanks(jrun *r, jval self, int64_t most) {
    jlist *l = jinja_list(r, 0);
    const jstr *s = self.s;
    for (size_t end = s->len, n; end > 0;) {
        size_t last = uni_back(s->data, end);
        if (uni_space(uni_decode(s->data + last, &n))) {
            end = last;
            continue;
        }
        if (most-- == 0) {
            jinja_append(r, l, part(r, self, 0, end));
            break;
        }
        size_t start = end;
        while (start > 0) {
            last = uni_back(s->data, start);
            if (uni_space(uni_decode(s->data + last, &n))) break;
            start = last;
        }
        jinja_append(r, l, part(r, self, start, end));
        end = start;
    }
    return l;
}

static jval method_rsplit(jrun *r, jval self, jargs *a) {
    const jstr *by = separator_of(r, a->slot[0]), *s = self.s;
    int64_t most = at_most(jarg_int(r, a->slot[1], -1));
    jlist *l;
    size_t end = s->len;
    jinja_scan(r, s->len);
    if (!by) {
        l = rsplit_blanks(r, self, most);
    } else {
        l = jinja_list(r, 0);
        for (size_t at; most != 0 && (at = find_last(r, s, 0, end, by)) != SIZE_MAX; most--) {
            jinja_append(r, l, part(r, self, at + by->len, end));
            end = at;
        }
        jinja_append(r, l, part(r, self, 0, end));
    }
    jinja_reverse(l);
    return marked(self, jval_list(l));
}

static jval method_splitlines(jrun *r, jval self, jargs *a) {
    return marked(self, jval_list(jinja_splitlines(r, self, jarg_bool(r, a->slot[0], false))));
}

static jval three(jrun *r, jval self, jval x, jval y, jval z) {
    jlist *l = jinja_list(r, 3);
    jinja_append(r, l, x);
    jinja_append(r, l, y);
    jinja_append(r, l, z);
    return marked(self, (jval){.kind = J_TUPLE, .l = l});
}

static jval method_partition(jrun *r, jval self, jargs *a) {
    const jstr *by = separator_of(r, a->slot[0]), *s = self.s;
    if (!by) jinja_fail(r, HEARTH_FORMAT, "partition needs a separator");
    jinja_scan(r, s->len);
    const char *hit = jinja_find_text(r, s->data, s->len, by);
    size_t at = hit ? (size_t)(hit - s->data) : s->len;
    if (!hit) return three(r, self, self, jinja_text(r, ""), jinja_text(r, ""));
    return three(r, self, part(r, self, 0, at), part(r, self, at, at + by->len), part(r, self, at + by->len, s->len));
}

static jval method_rpartition(jrun *r, jval self, jargs *a) {
    const jstr *by = separator_of(r, a->slot[0]), *s = self.s;
    if (!by) jinja_fail(r, HEARTH_FORMAT, "rpartition needs a separator");
    jinja_scan(r, s->len);
    size_t at = find_last(r, s, 0, s->len, by);
    if (at == SIZE_MAX) return three(r, self, jinja_text(r, ""), jinja_text(r, ""), self);
    return three(r, self, part(r, self, 0, at), part(r, self, at, at + by->len), part(r, self, at + by->len, s->len));
}

static jval method_join(jrun *r, jval self, jargs *a) { return marked(self, jinja_join(r, self.s, a->slot[0], true, self.safe)); }
static jval method_format(jrun *r, jval self, jargs *a) { return marked(self, jinja_brace_format(r, self, a)); }
static jval method_ljust(jrun *r, jval self, jargs *a) {
    return marked(self, jinja_pad(r, self, jarg_int(r, a->slot[0], 0), a->slot[1], '<'));
}
static jval method_rjust(jrun *r, jval self, jargs *a) {
    return marked(self, jinja_pad(r, self, jarg_int(r, a->slot[0], 0), a->slot[1], '>'));
}
static jval method_center(jrun *r, jval self, jargs *a) {
    return marked(self, jinja_pad(r, self, jarg_int(r, a->slot[0], 0), a->slot[1], '^'));
}

static jval method_zfill(jrun *r, jval self, jargs *a) {
    int64_t width = jarg_int(r, a->slot[0], 0);
    bool sign = self.s->len && (self.s->data[0] == '-' || self.s->data[0] == '+');
    jval digits = sign ? part(r, self, 1, self.s->len) : self;
    jval padded = jinja_pad(r, digits, sign && width > 0 ? width - 1 : width, jinja_text(r, "0"), '>');
    return marked(self, sign ? jinja_concat(r, part(r, self, 0, 1), padded) : padded);
}

static jval method_expandtabs(jrun *r, jval self, jargs *a) {
    int64_t size = jarg_int(r, a->slot[0], 8), column = 0;
    jsink out = {0};
    jinja_scan(r, self.s->len);
    for (size_t i = 0, n; i < self.s->len; i += n) {
        int32_t c = uni_decode(self.s->data + i, &n);
        if (c == '\t') {
            int64_t blanks = size > 0 ? size - column % size : 0;
            jinja_add_repeated(r, &out, " ", 1, (size_t)blanks);
            column = 0; /* at a tab stop */
            continue;
        }
        column = c == '\n' || c == '\r' ? 0 : column + 1;
        jinja_add(r, &out, self.s->data + i, n);
    }
    return marked(self, jinja_sink_str(r, &out));
}

static bool begins(const jstr *s, const jstr *with) { return with->len <= s->len && memcmp(s->data, with->data, with->len) == 0; }
static bool ends(const jstr *s, const jstr *with) {
    return with->len <= s->len && memcmp(s->data + s->len - with->len, with->data, with->len) == 0;
}

static jval method_removeprefix(jrun *r, jval self, jargs *a) {
    const jstr *with = jarg_str(r, a->slot[0], "the prefix");
    return begins(self.s, with) ? marked(self, part(r, self, with->len, self.s->len)) : self;
}

static jval method_removesuffix(jrun *r, jval self, jargs *a) {
    const jstr *with = jarg_str(r, a->slot[0], "the suffix");
    return ends(self.s, with) ? marked(self, part(r, self, 0, self.s->len - with->len)) : self;
}

const jfunc jinja_str_methods[] = {
    {"capitalize", method_capitalize, "", 0},
    {"casefold", method_casefold, "", 0},
    {"center", method_center, "width fillchar", 1},
    {"expandtabs", method_expandtabs, "tabsize", 0},
    {"format", method_format, "*", 0},
    {"join", method_join, "iterable", 1},
    {"ljust", method_ljust, "width fillchar", 1},
    {"lower", method_lower, "", 0},
    {"lstrip", method_lstrip, "chars", 0},
    {"partition", method_partition, "sep", 1},
    {"removeprefix", method_removeprefix, "prefix", 1},
    {"removesuffix", method_removesuffix, "suffix", 1},
    {"replace", method_replace, "old new count", 2},
    {"rjust", method_rjust, "width fillchar", 1},
    {"rpartition", method_rpartition, "sep", 1},
    {"rsplit", method_rsplit, "sep maxsplit", 0},
    {"rstrip", method_rstrip, "chars", 0},
    {"split", method_split, "sep maxsplit", 0},
    {"splitlines", method_splitlines, "keepends", 0},
    {"strip", method_strip, "chars", 0},
    {"swapcase", method_swapcase, "", 0},
    {"title", method_title, "", 0},
    {"upper", method_upper, "", 0},
    {"zfill", method_zfill, "width", 1},
    {0},
};

/* ---- questions: start, end, find, is... ---- */

/* The byte range of s that [start:end] means; false when it is empty because start is past the end. */
static bool window(jrun *r, jval self, jval start, jval end, size_t *from, size_t *to) {
    int64_t n = (int64_t)jinja_chars(r, self.s), a = jarg_given(start) ? jarg_int(r, start, 0) : 0,
            b = jarg_given(end) ? jarg_int(r, end, n) : n;
    if (a < 0) a = a < -n ? 0 : a + n;
    if (b < 0) b = b < -n ? 0 : b + n;
    if (b > n) b = n;
    if (a > b) return false;
    bool plain = (size_t)n == self.s->len;
    if (!plain) jinja_scan(r, self.s->len);
    *from = plain ? (size_t)a : uni_offset(self.s->data, self.s->len, (size_t)a);
    *to = plain ? (size_t)b : uni_offset(self.s->data, self.s->len, (size_t)b);
    return true;
}

static bool affix(jrun *r, jval self, const jargs *a, bool (*has)(const jstr *, const jstr *), const char *name) {
    size_t from, to;
    if (!window(r, self, a->slot[1], a->slot[2], &from, &to)) return false;
    const jstr s = {.data = self.s->data + from, .len = to - from};
    if (a->slot[0].kind == J_STR) return has(&s, a->slot[0].s);
    if (a->slot[0].kind != J_TUPLE) {
        jinja_need_defined(r, a->slot[0]);
        jinja_fail(r, HEARTH_FORMAT, "%s first arg must be str or a tuple of str, not %s", name, jinja_type_name(a->slot[0]));
    }
    const jlist *l = a->slot[0].l;
    jinja_step(r, l->n);
    for (size_t i = 0; i < l->n; i++)
        if (has(&s, jarg_str(r, l->v[i], "every prefix or suffix"))) return true;
    return false;
}

static jval method_startswith(jrun *r, jval self, jargs *a) { return jval_bool(affix(r, self, a, begins, "startswith")); }
static jval method_endswith(jrun *r, jval self, jargs *a) { return jval_bool(affix(r, self, a, ends, "endswith")); }

/* Character index of the first or last place, or -1. */
static int64_t place(jrun *r, jval self, const jargs *a, bool last) {
    const jstr *needle = jarg_str(r, a->slot[0], "what to look for"), *s = self.s;
    size_t from, to, at;
    if (!window(r, self, a->slot[1], a->slot[2], &from, &to)) return -1;
    jinja_scan(r, s->len);
    if (last) {
        at = find_last(r, s, from, to, needle);
    } else {
        const char *hit = jinja_find_text(r, s->data + from, to - from, needle);
        at = hit ? (size_t)(hit - s->data) : SIZE_MAX;
    }
    return at == SIZE_MAX ? -1 : (int64_t)uni_count(s->data, at);
}

static jval method_find(jrun *r, jval self, jargs *a) { return jval_int(place(r, self, a, false)); }
static jval method_rfind(jrun *r, jval self, jargs *a) { return jval_int(place(r, self, a, true)); }

static jval found(jrun *r, int64_t at) {
    if (at < 0) jinja_fail(r, HEARTH_FORMAT, "substring not found");
    return jval_int(at);
}
static jval method_index(jrun *r, jval self, jargs *a) { return found(r, place(r, self, a, false)); }
static jval method_rindex(jrun *r, jval self, jargs *a) { return found(r, place(r, self, a, true)); }

static jval method_count(jrun *r, jval self, jargs *a) {
    const jstr *needle = jarg_str(r, a->slot[0], "what to count"), *s = self.s;
    size_t from, to;
    int64_t n = 0;
    if (!window(r, self, a->slot[1], a->slot[2], &from, &to)) return jval_int(0);
    jinja_scan(r, s->len);
    if (needle->len == 0) return jval_int((int64_t)uni_count(s->data + from, to - from) + 1);
    for (const char *hit; (hit = jinja_find_text(r, s->data + from, to - from, needle)); n++) from = (size_t)(hit - s->data) + needle->len;
    return jval_int(n);
}

static bool all_are(jrun *r, jval self, bool (*is)(int32_t), bool when_empty) {
    jinja_scan(r, self.s->len);
    for (size_t i = 0, n; i < self.s->len; i += n)
        if (!is(uni_decode(self.s->data + i, &n))) return false;
    return self.s->len > 0 || when_empty;
}

static bool alphanumeric(int32_t c) { return uni_alpha(c) || uni_numeric(c); }
static bool ascii(int32_t c) { return c < 0x80; }
static bool identifier_part(int32_t c) { return c == '_' || uni_alpha(c) || uni_decimal(c); }

/* Some cased character, and none of the other case. */
static bool only_case(jrun *r, jval self, bool (*wanted)(int32_t), bool (*other)(int32_t)) {
    bool some = false;
    jinja_scan(r, self.s->len);
    for (size_t i = 0, n; i < self.s->len; i += n) {
        int32_t c = uni_decode(self.s->data + i, &n);
        if (other(c)) return false;
        some |= wanted(c);
    }
    return some;
}

static bool titled(jrun *r, jval self) {
    bool inside = false, some = false;
    jinja_scan(r, self.s->len);
    for (size_t i = 0, n; i < self.s->len; i += n) {
        int32_t c = uni_decode(self.s->data + i, &n);
        if (uni_upper(c) ? inside : uni_lower(c) ? !inside : false) return false;
        inside = uni_cased(c);
        some |= inside;
    }
    return some;
}

static bool identifier(jrun *r, jval self) {
    return all_are(r, self, identifier_part, false) && !(self.s->data[0] >= '0' && self.s->data[0] <= '9');
}

#define QUESTION(name, expression)                                                                                                         \
    static jval method_##name(jrun *r, jval self, jargs *a) {                                                                              \
        (void)a;                                                                                                                           \
        return jval_bool(expression);                                                                                                      \
    }
QUESTION(isalnum, all_are(r, self, alphanumeric, false))
QUESTION(isalpha, all_are(r, self, uni_alpha, false))
QUESTION(isascii, all_are(r, self, ascii, true))
QUESTION(isdecimal, all_are(r, self, uni_decimal, false))
QUESTION(isdigit, all_are(r, self, uni_digit, false))
QUESTION(isidentifier, identifier(r, self))
QUESTION(islower, only_case(r, self, uni_lower, uni_upper))
QUESTION(isnumeric, all_are(r, self, uni_numeric, false))
QUESTION(isprintable, all_are(r, self, uni_printable, true))
QUESTION(isspace, all_are(r, self, uni_space, false))
QUESTION(istitle, titled(r, self))
QUESTION(isupper, only_case(r, self, uni_upper, uni_lower))

const jfunc jinja_str_query_methods[] = {
    {"count", method_count, "sub start end", 1},
    {"endswith", method_endswith, "suffix start end", 1},
    {"find", method_find, "sub start end", 1},
    {"index", method_index, "sub start end", 1},
    {"isalnum", method_isalnum, "", 0},
    {"isalpha", method_isalpha, "", 0},
    {"isascii", method_isascii, "", 0},
    {"isdecimal", method_isdecimal, "", 0},
    {"isdigit", method_isdigit, "", 0},
    {"isidentifier", method_isidentifier, "", 0},
    {"islower", method_islower, "", 0},
    {"isnumeric", method_isnumeric, "", 0},
    {"isprintable", method_isprintable, "", 0},
    {"isspace", method_isspace, "", 0},
    {"istitle", method_istitle, "", 0},
    {"isupper", method_isupper, "", 0},
    {"rfind", method_rfind, "sub start end", 1},
    {"rindex", method_rindex, "sub start end", 1},
    {"startswith", method_startswith, "prefix start end", 1},
    {0},
};
