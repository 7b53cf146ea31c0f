#include "text/unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "text/tokenizer.h"

size_t unicode_char(const char *text, size_t len) {
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) return 1;
    /* The second byte's range depends on the first: no overlong forms, no surrogates, nothing above U+10FFFF. */
    unsigned low = 0x80, high = 0xBF;
    size_t n;
    if (s[0] >= 0xC2 && s[0] <= 0xDF) n = 2;
    else if (s[0] >= 0xE0 && s[0] <= 0xEF) n = 3;
    else if (s[0] >= 0xF0 && s[0] <= 0xF4) n = 4;
    else return 0;
    if (s[0] == 0xE0) low = 0xA0;
    if (s[0] == 0xED) high = 0x9F;
    if (s[0] == 0xF0) low = 0x90;
    if (s[0] == 0xF4) high = 0x8F;
    if (n > len || s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return n;
}

size_t unicode_valid(const char *s, size_t len) {
    size_t i = 0;
    while (i < len) {
        size_t n = unicode_char(s + i, len - i);
        if (n == 0) break;
        i += n;
    }
    return i;
}

size_t unicode_space(const char *s, size_t len) {
    if (len == 0) return 0;
    unsigned char c = (unsigned char)s[0];
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    size_t n = unicode_char(s, len);
    if (n == 0) return 0;
    utf8proc_int32_t cp;
    utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &cp);
    bool space = cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
                 cp == 0x202F || cp == 0x205F || cp == 0x3000;
    return space ? n : 0;
}

/* ---- normal form C ---- */

typedef struct code_points {
    int32_t *at;
    size_t n, cap;
} code_points;

enum { MOST_PER_CHAR = 8 }; /* a canonical decomposition has at most 4 */

static bool grow(code_points *c, size_t n, err *e) {
    if (n <= c->cap) return true;
    size_t cap = n + n / 2 + 64;
    int32_t *at = mem_realloc(c->at, cap, sizeof *at, e);
    if (!at) return false;
    c->at = at;
    c->cap = cap;
    return true;
}

static bool decompose(const char *s, size_t len, code_points *c, err *e) {
    c->n = 0;
    for (size_t i = 0; i < len;) {
        utf8proc_int32_t cp;
        i += (size_t)utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(len - i), &cp);
        if (!grow(c, c->n + MOST_PER_CHAR, e)) return false;
        int last_boundclass = 0;
        c->n += (size_t)utf8proc_decompose_char(cp, c->at + c->n, MOST_PER_CHAR, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &last_boundclass);
    }
    return true;
}

static int combining(int32_t cp) { return utf8proc_get_property(cp)->combining_class; }

/* Stable sort of n marks by combining class. The library's own ordering takes quadratic time on a long run of marks. */
static bool sort_marks(int32_t *marks, size_t n, err *e) {
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            int32_t mark = marks[i];
            size_t j = i;
            for (; j > 0 && combining(marks[j - 1]) > combining(mark); j--) marks[j] = marks[j - 1];
            marks[j] = mark;
        }
        return true;
    }
    int32_t *copy = mem_alloc(n, sizeof *copy, e);
    if (!copy) return false;
    memcpy(copy, marks, n * sizeof *copy);
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++) start[combining(copy[i]) + 1]++;
    for (int class = 1; class < 257; class++) start[class] += start[class - 1];
    for (size_t i = 0; i < n; i++) marks[start[combining(copy[i])]++] = copy[i];
    mem_free(copy);
    return true;
}

static bool order(code_points *c, err *e) {
    for (size_t i = 0; i < c->n;) {
        if (combining(c->at[i]) == 0) {
            i++;
            continue;
        }
        size_t end = i + 1;
        while (end < c->n && combining(c->at[end]) != 0) end++;
        if (end - i > 1 && !sort_marks(c->at + i, end - i, e)) return false;
        i = end;
    }
    return true;
}

static bool normalize(const char *s, size_t len, code_points *c, buf *out, err *e) {
    if (!decompose(s, len, c, e) || !order(c, e)) return false;
    utf8proc_ssize_t n = utf8proc_normalize_utf32(c->at, (utf8proc_ssize_t)c->n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        utf8proc_uint8_t bytes[4];
        utf8proc_ssize_t k = utf8proc_encode_char(c->at[i], bytes);
        if (!buf_add(out, bytes, (size_t)k, e)) return false;
    }
    return true;
}

/* Characters below U+0300 (first byte below 0xCC) are in normal form and never join the character before them, so
 * only the last one of such a run can change. */
bool unicode_nfc(const char *s, size_t len, buf *out, err *e) {
    code_points c = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < len;) {
        size_t plain = i, last = i;
        while (plain < len && (unsigned char)s[plain] < 0xCC) {
            last = plain;
            plain += (unsigned char)s[plain] < 0x80 ? 1 : 2;
        }
        size_t end = plain;
        while (end < len && (unsigned char)s[end] >= 0xCC) end += unicode_char(s + end, len - end);
        if (end == plain) last = end; /* nothing follows that could change it */
        ok = buf_add(out, s + i, last - i, e) && (last == end || normalize(s + last, end - last, &c, out, e));
        i = end;
    }
    mem_free(c.at);
    return ok;
}

/* ---- streaming ---- */

/* How long the character that starts with these n bytes is to be; 0 when they cannot start one. */
static size_t wanted(const unsigned char *s, size_t n) {
    static const unsigned char fill[2] = {0x80, 0xBF};
    if (s[0] < 0x80) return 1;
    size_t want = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    /* One of the two fillings is valid wherever the second byte is still open. */
    for (int f = 0; f < 2; f++) {
        char whole[4];
        for (size_t i = 0; i < want; i++) whole[i] = (char)(i < n ? s[i] : fill[f]);
        if (unicode_char(whole, want) == want) return want;
    }
    return 0;
}

bool utf8_stream_add(utf8_stream *s, const char *bytes, size_t len, buf *out, err *e) {
    for (size_t i = 0; i < len; i++) {
        s->held[s->n++] = (unsigned char)bytes[i];
        while (s->n > 0) {
            size_t want = wanted(s->held, (size_t)s->n);
            if (want > (size_t)s->n) break;
            size_t certain = want ? want : 1;
            if (!buf_add(out, s->held, certain, e)) return false;
            s->n -= (int)certain;
            memmove(s->held, s->held + certain, (size_t)s->n);
        }
    }
    return true;
}

bool utf8_stream_end(utf8_stream *s, buf *out, err *e) {
    bool ok = buf_add(out, s->held, (size_t)s->n, e);
    s->n = 0;
    return ok;
}
