/* jinja_lex.c: template text to tokens, with Jinja's whitespace rules: trim_blocks (the newline after a block tag goes),
 * lstrip_blocks (blanks before a block tag that starts its line go), and the signs - and + inside the tags. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_tree.h"
#include "text/jinja_unicode.h"

void jinja_lex_init(jlexer *x, jrun *r, const char *source, size_t len) {
    char *copy = jinja_alloc(r, len + 1, 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r') {
            copy[n++] = '\n';
            if (i + 1 < len && source[i + 1] == '\n') i++;
        } else {
            copy[n++] = source[i];
        }
    }
    if (n > 0 && copy[n - 1] == '\n') n--;
    copy[n] = 0;
    *x = (jlexer){.r = r, .source = copy, .len = n, .line = 1, .begin = T_END};
}

jval jinja_literal(jrun *r, const char *data, size_t len) {
    jval v = jinja_str(r, data, len);
    v.s->chars = uni_count(data, len);
    return v;
}

static void move_to(jlexer *x, size_t at) {
    for (; x->at < at; x->at++) x->line += x->source[x->at] == '\n';
}

static bool at_text(const jlexer *x, size_t at, const char *text) {
    size_t n = strlen(text);
    return n <= x->len - at && memcmp(x->source + at, text, n) == 0;
}

static size_t skip_space(const jlexer *x, size_t at) {
    size_t n;
    while (at < x->len && uni_space(uni_decode(x->source + at, &n))) at += n;
    return at;
}

static _Noreturn void lex_fail(jlexer *x, const char *what) {
    x->r->line = x->line;
    jinja_fail(x->r, HEARTH_FORMAT, "%s", what);
}

/* ---- outside of tags ---- */

/* Position of the next tag, or the length. */
static size_t find_tag(const jlexer *x, size_t at) {
    for (; at + 1 < x->len; at++) {
        const char *brace = memchr(x->source + at, '{', x->len - at - 1);
        if (!brace) break;
        at = (size_t)(brace - x->source);
        char c = x->source[at + 1];
        if (c == '%' || c == '{' || c == '#') return at;
    }
    return x->len;
}

static char sign_at(const jlexer *x, size_t at) {
    char c = at < x->len ? x->source[at] : 0;
    return c == '-' || c == '+' ? c : 0;
}

/* Where the text from..to ends when a tag with this sign follows. */
static size_t text_end(const jlexer *x, size_t from, size_t to, char sign, bool block) {
    jstr text = {.data = x->source + from, .len = to - from};
    size_t start, end;
    if (sign == '-') {
        uni_strip(&text, NULL, UNI_RIGHT, &start, &end);
        return from + end;
    }
    if (sign == '+' || !block) return to;
    size_t line = to;
    while (line > from && x->source[line - 1] != '\n') line--;
    bool starts_line = line > from || from == 0 || x->source[from - 1] == '\n';
    return starts_line && skip_space(x, line) >= to ? line : to;
}

/* The end of a tag whose closing text (%} or #}) stands at `at`; before it may stand a sign, which the caller looked at. */
static size_t after_close(const jlexer *x, size_t at, char sign) {
    at += 2;
    if (sign == '-') return skip_space(x, at);
    if (sign == 0 && at < x->len && x->source[at] == '\n') return at + 1;
    return at;
}

static void skip_comment(jlexer *x, size_t tag) {
    size_t from = tag + 2 + (sign_at(x, tag + 2) ? 1 : 0);
    const char *end = jinja_find_text(x->r, x->source + from, x->len - from, &(jstr){.data = "#}", .len = 2});
    if (!end) lex_fail(x, "a comment {# has no end #}");
    size_t at = (size_t)(end - x->source);
    move_to(x, after_close(x, at, at > from ? sign_at(x, at - 1) : 0));
}

/* Whether a tag {% word %} stands at `at`; *sign gets the closing sign, *close where %} is. */
static bool word_tag(const jlexer *x, size_t at, const char *word, char *sign, size_t *close) {
    if (!at_text(x, at, "{%")) return false;
    at += 2 + (sign_at(x, at + 2) ? 1 : 0);
    at = skip_space(x, at);
    if (!at_text(x, at, word)) return false;
    at = skip_space(x, at + strlen(word));
    *sign = sign_at(x, at);
    if (*sign) at++;
    *close = at;
    return at_text(x, at, "%}");
}

/* Hands out the inside of a raw block that begins at tag. */
static jtoken raw_block(jlexer *x, size_t close, char sign) {
    size_t from = sign == '-' ? skip_space(x, close + 2) : close + 2;
    move_to(x, from);
    for (size_t at = from; (at = find_tag(x, at)) < x->len; at++) {
        if (!word_tag(x, at, "endraw", &sign, &close)) continue;
        size_t end = text_end(x, from, at, sign_at(x, at + 2), true);
        jtoken t = {.kind = T_TEXT, .line = x->line, .value = jinja_literal(x->r, x->source + from, end - from)};
        move_to(x, after_close(x, close, sign));
        return t;
    }
    lex_fail(x, "{% raw %} has no {% endraw %}");
}

static jtoken begin_tag(jlexer *x) {
    jtoken t = {.kind = x->begin, .line = x->line};
    x->mode = x->begin == T_BLOCK_BEGIN ? JLEX_BLOCK : JLEX_VALUE;
    x->begin = T_END;
    return t;
}

/* Text up to the next tag. Comments are passed over; an empty text is left out. */
static jtoken lex_text(jlexer *x) {
    while (x->at < x->len) {
        size_t from = x->at, tag = find_tag(x, from), close;
        char kind = tag < x->len ? x->source[tag + 1] : 0, sign, opening = sign_at(x, tag + 2);
        size_t end = kind ? text_end(x, from, tag, opening, kind != '{') : x->len;
        jtoken text = {.kind = T_TEXT, .line = x->line, .value = jinja_literal(x->r, x->source + from, end - from)};
        move_to(x, tag);
        if (kind == '#') {
            skip_comment(x, tag);
        } else if (kind == '%' && word_tag(x, tag, "raw", &sign, &close) && sign != '+') {
            if (end == from) {
                text = raw_block(x, close, sign);
                if (text.value.s->len == 0) continue;
                return text;
            }
            /* The text first; then the raw tag is met again with nothing before it. */
            return text;
        } else if (kind) {
            x->begin = kind == '%' ? T_BLOCK_BEGIN : T_VALUE_BEGIN;
            move_to(x, tag + 2 + (opening ? 1 : 0));
        }
        if (end > from) return text;
        if (kind == '%' || kind == '{') return begin_tag(x);
    }
    return (jtoken){.kind = T_END, .line = x->line};
}

/* ---- inside of tags ---- */

static bool name_start(int32_t c) { return c == '_' || (c < 0x80 ? (c | 0x20) >= 'a' && (c | 0x20) <= 'z' : uni_alpha(c)); }
static bool name_part(int32_t c) { return name_start(c) || (c < 0x80 ? c >= '0' && c <= '9' : uni_decimal(c)); }

static jtoken token_to(jlexer *x, jtoken_kind kind, size_t end) {
    jtoken t = {.kind = kind, .line = x->line, .text = x->source + x->at, .len = end - x->at};
    move_to(x, end);
    return t;
}

static size_t digits_end(const jlexer *x, size_t at) {
    while (at < x->len && ((x->source[at] >= '0' && x->source[at] <= '9') ||
                           (x->source[at] == '_' && at + 1 < x->len && x->source[at + 1] >= '0' && x->source[at + 1] <= '9')))
        at++;
    return at;
}

static bool digit_at(const jlexer *x, size_t at) { return at < x->len && x->source[at] >= '0' && x->source[at] <= '9'; }

static jtoken lex_float(jlexer *x, size_t end) {
    jtoken t = token_to(x, T_FLOAT, end);
    double f;
    if (!jinja_parse_float(&(jstr){.data = t.text, .len = t.len}, &f)) lex_fail(x, "a number is too long");
    t.value = jval_float(f);
    return t;
}

static jtoken lex_number(jlexer *x) {
    size_t at = x->at, end = digits_end(x, at);
    char second = at + 1 < x->len ? (char)(x->source[at + 1] | 0x20) : 0;
    bool prefixed = x->source[at] == '0' && (second == 'x' || second == 'o' || second == 'b');
    if (prefixed) {
        end = at + 2;
        while (end < x->len && name_part((unsigned char)x->source[end]) && (unsigned char)x->source[end] < 0x80) end++;
    } else if (at == 0 || x->source[at - 1] != '.') { /* a.0.1 is two subscripts, not a float */
        size_t tail = end;
        if (tail < x->len && x->source[tail] == '.' && digit_at(x, tail + 1)) tail = digits_end(x, tail + 1);
        if (tail < x->len && (x->source[tail] | 0x20) == 'e') {
            size_t power = tail + 1;
            if (power < x->len && (x->source[power] == '+' || x->source[power] == '-')) power++;
            if (digit_at(x, power)) tail = digits_end(x, power);
        }
        if (tail > end) return lex_float(x, tail);
    }
    jtoken t = token_to(x, T_INT, end);
    int64_t i;
    if (!prefixed && t.text[0] == '0' && strspn(t.text, "0_") < t.len) lex_fail(x, "a number starts with a zero");
    if (!jinja_parse_int(&(jstr){.data = t.text, .len = t.len}, 0, &i))
        lex_fail(x, "a whole number is malformed or does not fit in 64 bits");
    t.value = jval_int(i);
    return t;
}

static int hex_digits(const char *s, size_t len, size_t n, int32_t *out) {
    int32_t c = 0;
    if (len < n) return -1;
    for (size_t i = 0; i < n; i++) {
        char h = s[i], lower = (char)(h | 0x20);
        int d = h >= '0' && h <= '9' ? h - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
        if (d < 0 || c > 0x10FFFF) return -1;
        c = c * 16 + d;
    }
    *out = c;
    return 0;
}

/* One escape of a Python string, after the backslash; returns how many bytes it took. */
static size_t unescape(jlexer *x, jsink *out, const char *s, size_t len) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    if (s[0] == '\n') return 1;
    const char *simple = s[0] ? strchr(from, s[0]) : NULL;
    if (simple) {
        jinja_addc(x->r, out, to[simple - from]);
        return 1;
    }
    if (s[0] >= '0' && s[0] <= '7') {
        int32_t c = 0;
        size_t n = 0;
        while (n < 3 && n < len && s[n] >= '0' && s[n] <= '7') c = c * 8 + (s[n++] - '0');
        jinja_add_char(x->r, out, c);
        return n;
    }
    size_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    if (digits) {
        int32_t c, low;
        if (hex_digits(s + 1, len - 1, digits, &c) < 0) lex_fail(x, "a string has a malformed \\x, \\u or \\U escape");
        size_t n = 1 + digits;
        if (c >= 0xD800 && c < 0xDC00 && n + 6 <= len && s[n] == '\\' && s[n + 1] == 'u' &&
            hex_digits(s + n + 2, len - n - 2, 4, &low) == 0 && low >= 0xDC00 && low < 0xE000) {
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
            n += 6;
        }
        jinja_add_char(x->r, out, c);
        return n;
    }
    jinja_addc(x->r, out, '\\'); /* unknown ones stay as they are */
    return 0;
}

static jtoken lex_string(jlexer *x) {
    char quote = x->source[x->at];
    size_t from = x->at + 1, at = from;
    while (at < x->len && x->source[at] != quote) at += x->source[at] == '\\' ? 2 : 1;
    if (at >= x->len) lex_fail(x, "a string has no closing quote");
    const char *s = x->source + from;
    size_t len = at - from;
    jval value;
    if (!memchr(s, '\\', len)) {
        value = jinja_literal(x->r, s, len);
    } else {
        jsink out = {0};
        for (size_t i = 0; i < len;) {
            if (s[i] == '\\') i += 1 + unescape(x, &out, s + i + 1, len - i - 1);
            else jinja_addc(x->r, &out, s[i++]);
        }
        value = jinja_literal(x->r, out.data ? out.data : "", out.len);
    }
    jtoken t = token_to(x, T_STRING, at + 1);
    t.value = value;
    return t;
}

static void balance(jlexer *x, char c) {
    static const char open[] = "([{", close[] = ")]}";
    const char *o = strchr(open, c), *e = strchr(close, c);
    if (o) {
        if (x->depth == JINJA_MAX_BRACKETS) lex_fail(x, "brackets are nested too deeply");
        x->brackets[x->depth++] = close[o - open];
    } else if (e && (x->depth == 0 || x->brackets[--x->depth] != c)) {
        char what[] = "unexpected '?'";
        what[12] = c;
        lex_fail(x, what);
    }
}

static jtoken lex_operator(jlexer *x) {
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = x->source[x->at];
    for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
        if (!at_text(x, x->at, two[i])) continue;
        jtoken t = token_to(x, T_OPERATOR, x->at + 2);
        t.op = JOPER(two[i][0], two[i][1]);
        return t;
    }
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) {
        char shown[16], what[64];
        err_quote(shown, sizeof shown, x->source + x->at, uni_size(c) <= x->len - x->at ? uni_size(c) : 1);
        snprintf(what, sizeof what, "unexpected character '%s'", shown);
        lex_fail(x, what);
    }
    balance(x, c);
    jtoken t = token_to(x, T_OPERATOR, x->at + 1);
    t.op = JOPER(c, 0);
    return t;
}

/* The end of the tag, if it stands here. */
static bool lex_close(jlexer *x, jtoken *t) {
    if (x->depth > 0) return false;
    bool block = x->mode == JLEX_BLOCK;
    char sign = sign_at(x, x->at);
    if (sign == '+' && !block) sign = 0;
    size_t at = x->at + (sign ? 1 : 0);
    if (!at_text(x, at, block ? "%}" : "}}")) return false;
    size_t end = block ? after_close(x, at, sign) : sign == '-' ? skip_space(x, at + 2) : at + 2;
    *t = token_to(x, block ? T_BLOCK_END : T_VALUE_END, end);
    x->mode = JLEX_TEXT;
    return true;
}

jtoken jinja_lex(jlexer *x) {
    jtoken t;
    if (x->mode == JLEX_TEXT) return x->begin != T_END ? begin_tag(x) : lex_text(x);
    move_to(x, skip_space(x, x->at));
    if (x->at >= x->len) lex_fail(x, x->mode == JLEX_BLOCK ? "a tag {% has no end %}" : "an expression {{ has no end }}");
    if (lex_close(x, &t)) return t;
    const char *here = x->source + x->at;
    size_t n;
    int32_t c = uni_decode(here, &n);
    if (name_start(c)) {
        size_t end = x->at;
        while (end < x->len && name_part(uni_decode(x->source + end, &n))) end += n;
        return token_to(x, T_NAME, end);
    }
    if (c >= '0' && c <= '9') return lex_number(x);
    if (c == '"' || c == '\'') return lex_string(x);
    return lex_operator(x);
}
