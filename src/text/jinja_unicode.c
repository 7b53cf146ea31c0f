/* jinja_unicode.c: Python's str classes and case mappings on top of utf8proc. */
#include "text/jinja_unicode.h"

#include <string.h>
#include <utf8proc.h>

bool uni_valid(const char *s, size_t len) {
    for (size_t i = 0; i < len;) {
        if ((unsigned char)s[i] < 0x80) {
            i++;
            continue;
        }
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(len - i), &c);
        if (n <= 0) return false;
        i += (size_t)n;
    }
    return true;
}

int32_t uni_decode(const char *s, size_t *size) {
    const unsigned char *u = (const unsigned char *)s;
    *size = uni_size(*s);
    switch (*size) {
    case 1:
        return u[0];
    case 2:
        return (u[0] & 0x1F) << 6 | (u[1] & 0x3F);
    case 3:
        return (u[0] & 0x0F) << 12 | (u[1] & 0x3F) << 6 | (u[2] & 0x3F);
    default:
        return (u[0] & 0x07) << 18 | (u[1] & 0x3F) << 12 | (u[2] & 0x3F) << 6 | (u[3] & 0x3F);
    }
}

size_t uni_back(const char *s, size_t at) {
    do at--;
    while (at > 0 && ((unsigned char)s[at] & 0xC0) == 0x80);
    return at;
}

size_t uni_encode(int32_t c, char out[4]) {
    if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
    return (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)out);
}

size_t uni_count(const char *s, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((unsigned char)s[i] & 0xC0) != 0x80;
    return n;
}

size_t uni_offset(const char *s, size_t len, size_t n) {
    size_t at = 0;
    while (n > 0 && at < len) {
        at += uni_size(s[at]);
        n--;
    }
    return at;
}

size_t uni_offset_back(const char *s, size_t len, size_t n) {
    while (n > 0 && len > 0) {
        len = uni_back(s, len);
        n--;
    }
    return len;
}

bool uni_space(int32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

bool uni_line_break(int32_t c) { return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029; }

bool uni_alpha(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool uni_decimal(int32_t c) { return utf8proc_category(c) == UTF8PROC_CATEGORY_ND; }

bool uni_numeric(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool uni_digit(int32_t c) {
    if (uni_decimal(c)) return true;
    return c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
           (c >= 0x2460 && c <= 0x2468);
}

bool uni_printable(int32_t c) {
    if (c == ' ') return true;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

bool uni_lower(int32_t c) { return utf8proc_islower(c); }
bool uni_upper(int32_t c) { return utf8proc_isupper(c); }
bool uni_cased(int32_t c) { return uni_lower(c) || uni_upper(c) || utf8proc_category(c) == UTF8PROC_CATEGORY_LT; }

/* Characters that a word goes through: marks, apostrophes and the like. */
static bool case_ignorable(int32_t c) {
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019 || c == 0x2018;
    }
}

/* A capital sigma at the end of a word has its own small form. */
static bool final_sigma(const jstr *s, size_t at) {
    size_t n, i = at;
    bool before = false;
    while (i > 0 && !before) {
        i = uni_back(s->data, i);
        int32_t c = uni_decode(s->data + i, &n);
        if (case_ignorable(c)) continue;
        if (!uni_cased(c)) return false;
        before = true;
    }
    if (!before) return false;
    for (i = at + 2; i < s->len; i += n) {
        int32_t c = uni_decode(s->data + i, &n);
        if (case_ignorable(c)) continue;
        return !uni_cased(c);
    }
    return true;
}

void uni_add_case(jrun *r, jsink *out, const jstr *s, size_t at, uni_case how) {
    size_t size;
    int32_t c = uni_decode(s->data + at, &size);
    if (c < 0x80) {
        bool small = c >= 'a' && c <= 'z', big = c >= 'A' && c <= 'Z', up = how == UNI_UPPER || how == UNI_TITLE;
        jinja_addc(r, out, (char)((small && up) || (big && !up) ? c ^ 0x20 : c));
        return;
    }
    if (how == UNI_LOWER && c == 0x130) { /* a dotted capital I keeps its dot */
        jinja_add(r, out, "i\xCC\x87", 3);
        return;
    }
    if (how == UNI_LOWER) {
        if (c == 0x3A3 && final_sigma(s, at)) c = 0x3C2;
        else c = utf8proc_tolower(c);
        jinja_add_char(r, out, c);
        return;
    }
    /* The characters whose upper case is several ("ß") are those whose case folding is several. */
    utf8proc_int32_t folded[8];
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(c, folded, 8, UTF8PROC_CASEFOLD, &boundary);
    bool several = n > 1 && n <= 8;
    if (how == UNI_FOLD) {
        for (utf8proc_ssize_t i = 0; i < n && n <= 8; i++) jinja_add_char(r, out, folded[i]);
    } else if (several && utf8proc_category(c) != UTF8PROC_CATEGORY_LU && (how == UNI_UPPER || utf8proc_totitle(c) == c)) {
        for (utf8proc_ssize_t i = 0; i < n; i++)
            jinja_add_char(r, out, how == UNI_UPPER || i == 0 ? utf8proc_toupper(folded[i]) : folded[i]);
    } else {
        jinja_add_char(r, out, how == UNI_UPPER ? utf8proc_toupper(c) : utf8proc_totitle(c));
    }
}

jval uni_map_case(jrun *r, const jstr *s, uni_case how) {
    jsink out = {0};
    jinja_scan(r, s->len);
    for (size_t i = 0; i < s->len; i += uni_size(s->data[i])) uni_add_case(r, &out, s, i, how);
    return jinja_sink_str(r, &out);
}

static bool in_set(const char *c, size_t size, const jstr *chars) {
    if (!chars) {
        size_t n;
        return uni_space(uni_decode(c, &n));
    }
    for (size_t i = 0; i < chars->len; i += uni_size(chars->data[i]))
        if (uni_size(chars->data[i]) == size && memcmp(chars->data + i, c, size) == 0) return true;
    return false;
}

void uni_strip(const jstr *s, const jstr *chars, uni_side side, size_t *start, size_t *end) {
    size_t a = 0, b = s->len;
    while ((side & UNI_LEFT) && a < b && in_set(s->data + a, uni_size(s->data[a]), chars)) a += uni_size(s->data[a]);
    while ((side & UNI_RIGHT) && b > a) {
        size_t last = uni_back(s->data, b);
        if (!in_set(s->data + last, b - last, chars)) break;
        b = last;
    }
    *start = a;
    *end = b;
}
