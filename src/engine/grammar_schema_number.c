/* grammar_schema_number.c: numbers between bounds, as patterns of their digits. A range is cut where the first digit that differs decides.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/grammar_schema.h"

enum {
    MOST_DIGITS = 15,   /* before the point: every such number is exact in a double */
    MOST_FRACTION = 16, /* digits after the point */
};

/* A number without its sign: digits before and after the point, the latter without zeros at the end. */
typedef struct decimal {
    bool negative;
    char whole[24], fraction[24];
} decimal;

typedef struct bound {
    bool there, open; /* open: the bound itself is outside */
    decimal at;
} bound;

static uint32_t digit(schema *s, char lo, char hi) {
    if (lo > hi) return grammar_never(s->b);
    return grammar_chars(s->b, &(grammar_range){(unsigned char)lo, (unsigned char)hi}, 1, false);
}
static uint32_t digits(schema *s, uint32_t min, uint32_t max) { return grammar_repeat(s->b, digit(s, '0', '9'), min, max); }
static uint32_t then(schema *s, uint32_t a, uint32_t z) { return GRAMMAR_SEQ_OF(s->b, a, z); }

static bool all(const char *text, char c) { return text[strspn(text, (const char[]){c, 0})] == 0; }

/* ---- whole numbers of one length ---- */

static uint32_t at_least(schema *s, const char *a) {
    uint32_t n = (uint32_t)strlen(a);
    if (all(a, '0')) return digits(s, n, n);
    uint32_t more = then(s, digit(s, (char)(a[0] + 1), '9'), digits(s, n - 1, n - 1));
    return GRAMMAR_ALT_OF(s->b, then(s, digit(s, a[0], a[0]), at_least(s, a + 1)), more);
}

static uint32_t at_most(schema *s, const char *z) {
    uint32_t n = (uint32_t)strlen(z);
    if (all(z, '9')) return digits(s, n, n);
    uint32_t less = then(s, digit(s, '0', (char)(z[0] - 1)), digits(s, n - 1, n - 1));
    return GRAMMAR_ALT_OF(s->b, then(s, digit(s, z[0], z[0]), at_most(s, z + 1)), less);
}

static uint32_t between(schema *s, const char *a, const char *z) {
    uint32_t n = (uint32_t)strlen(a);
    if (all(a, '0') && all(z, '9')) return digits(s, n, n);
    if (a[0] == z[0]) return then(s, digit(s, a[0], a[0]), between(s, a + 1, z + 1));
    uint32_t first = then(s, digit(s, a[0], a[0]), at_least(s, a + 1)), last = then(s, digit(s, z[0], z[0]), at_most(s, z + 1));
    uint32_t middle = then(s, digit(s, (char)(a[0] + 1), (char)(z[0] - 1)), digits(s, n - 1, n - 1));
    return GRAMMAR_ALT_OF(s->b, first, middle, last);
}

/* Whole numbers from lo to hi without a sign; never when hi is less. */
static uint32_t whole_range(schema *s, uint64_t lo, uint64_t hi) {
    grammar_list choices = {0};
    while (lo <= hi && !grammar_failed(s->b)) {
        uint64_t last = 9; /* of as many digits as lo */
        while (last < lo) last = last * 10 + 9;
        if (last > hi) last = hi;
        char a[24], z[24];
        snprintf(a, sizeof a, "%llu", (unsigned long long)lo);
        snprintf(z, sizeof z, "%llu", (unsigned long long)last);
        grammar_list_add(s->b, &choices, between(s, a, z));
        lo = last + 1;
    }
    uint32_t x = grammar_alt(s->b, choices.items, choices.n);
    grammar_list_free(&choices);
    return x;
}

/* ---- fractions ---- */

/* Digits after those of the bound that make it more: any one that is not 0. */
static uint32_t something(schema *s) {
    uint32_t zeros = grammar_repeat(s->b, digit(s, '0', '0'), 0, MOST_FRACTION - 1);
    return GRAMMAR_SEQ_OF(s->b, zeros, digit(s, '1', '9'), digits(s, 0, MOST_FRACTION - 1));
}
static uint32_t any_more(schema *s) { return digits(s, 0, MOST_FRACTION - 1); }

/* The digits after the point, or after some of them, that are at least a / at most z / both. first: none were read yet, so that the
 * point comes with them. The empty text counts as zero. */
static uint32_t after_point(schema *s, bool first, uint32_t x) { return first ? then(s, grammar_text(s->b, "."), x) : x; }

static uint32_t fraction_at_least(schema *s, const char *a, bool open, bool first) {
    if (!*a && open) return after_point(s, first, something(s));
    if (!*a) return first ? grammar_repeat(s->b, then(s, grammar_text(s->b, "."), digits(s, 1, MOST_FRACTION)), 0, 1) : any_more(s);
    uint32_t same = then(s, digit(s, a[0], a[0]), fraction_at_least(s, a + 1, open, false));
    uint32_t more = then(s, digit(s, (char)(a[0] + 1), '9'), any_more(s));
    return after_point(s, first, GRAMMAR_ALT_OF(s->b, same, more));
}

static uint32_t fraction_at_most(schema *s, const char *z, bool open, bool first) {
    if (!*z && open) return grammar_never(s->b);
    if (!*z) {
        uint32_t zeros = grammar_repeat(s->b, digit(s, '0', '0'), first, MOST_FRACTION);
        return first ? grammar_repeat(s->b, after_point(s, true, zeros), 0, 1) : zeros;
    }
    uint32_t same = then(s, digit(s, z[0], z[0]), fraction_at_most(s, z + 1, open, false));
    uint32_t less = then(s, digit(s, '0', (char)(z[0] - 1)), any_more(s));
    return grammar_repeat(s->b, after_point(s, first, GRAMMAR_ALT_OF(s->b, same, less)), 0, 1);
}

static uint32_t fraction_between(schema *s, const bound *a, const char *af, const bound *z, const char *zf, bool first) {
    if (!*af && !a->open) return fraction_at_most(s, zf, z->open, first);
    if (!*zf) return !*af && !a->open && !z->open ? fraction_at_most(s, zf, false, first) : grammar_never(s->b);
    char lo = *af ? *af : '0';
    const char *a_rest = *af ? af + 1 : af;
    if (lo > *zf) return grammar_never(s->b);
    if (lo == *zf) return after_point(s, first, then(s, digit(s, lo, lo), fraction_between(s, a, a_rest, z, zf + 1, false)));
    uint32_t low = then(s, digit(s, lo, lo), fraction_at_least(s, a_rest, a->open, false));
    uint32_t middle = then(s, digit(s, (char)(lo + 1), (char)(*zf - 1)), any_more(s));
    uint32_t high = then(s, digit(s, *zf, *zf), fraction_at_most(s, zf + 1, z->open, false));
    return after_point(s, first, GRAMMAR_ALT_OF(s->b, low, middle, high));
}

static uint64_t whole_of(const decimal *d) {
    uint64_t n = 0;
    for (const char *c = d->whole; *c; c++) n = n * 10 + (uint64_t)(*c - '0');
    return n;
}

/* Numbers without a sign from a, which is there, to z, which may not be. */
static uint32_t size_range(schema *s, const bound *a, const bound *z) {
    const uint64_t lo = whole_of(&a->at), hi = z->there ? whole_of(&z->at) : 0;
    uint32_t low = grammar_text(s->b, a->at.whole);
    if (z->there && hi < lo) return grammar_never(s->b);
    if (z->there && hi == lo) return then(s, low, fraction_between(s, a, a->at.fraction, z, z->at.fraction, true));
    uint32_t first = then(s, low, fraction_at_least(s, a->at.fraction, a->open, true));
    uint32_t fraction = fraction_at_least(s, "", false, true);
    uint32_t middle = then(s, whole_range(s, lo + 1, z->there ? hi - 1 : 999999999999999u), fraction);
    if (!z->there) return GRAMMAR_ALT_OF(s->b, first, middle);
    uint32_t last = then(s, grammar_text(s->b, z->at.whole), fraction_at_most(s, z->at.fraction, z->open, true));
    return GRAMMAR_ALT_OF(s->b, first, middle, last);
}

/* ---- bounds ---- */

static bool read_decimal(schema *s, const char *key, const json_t *value, decimal *d) {
    char text[64];
    if (json_is_integer(value)) snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else
        for (int precision = 15; precision <= 17; precision++) {
            snprintf(text, sizeof text, "%.*g", precision, json_real_value(value));
            if (strtod(text, NULL) == json_real_value(value)) break;
        }
    *d = (decimal){.negative = text[0] == '-'};
    const char *whole = text + d->negative;
    size_t n = strspn(whole, "0123456789"), n_fraction = whole[n] == '.' ? strspn(whole + n + 1, "0123456789") : 0;
    if (whole[n + (whole[n] == '.') + n_fraction] || n > MOST_DIGITS + 3u || n_fraction >= sizeof d->fraction)
        return schema_fail(s, HEARTH_UNSUPPORTED, "the bound %s of '%s' is not supported", text, key);
    memcpy(d->whole, whole, n);
    memcpy(d->fraction, whole + n + 1, n_fraction);
    while (n_fraction > 0 && d->fraction[n_fraction - 1] == '0') d->fraction[--n_fraction] = 0;
    if (all(d->whole, '0') && n_fraction == 0) d->negative = false;
    return true;
}

static int compare(const decimal *x, const decimal *y) {
    if (x->negative != y->negative) return x->negative ? -1 : 1;
    uint64_t a = whole_of(x), z = whole_of(y);
    int order = a != z ? (a < z ? -1 : 1) : strcmp(x->fraction, y->fraction); /* digits of fractions compare as texts do */
    return x->negative ? -order : order;
}

/* The stricter of the two keywords. */
static bool read_bound(schema *s, const json_t *x, const char *closed, const char *open, int stricter, bound *out) {
    *out = (bound){0};
    const char *const keys[] = {closed, open};
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(x, keys[i]);
        bound b = {.there = true, .open = i == 1};
        if (!value) continue;
        if (!json_is_number(value)) return schema_fail(s, HEARTH_ARGUMENT, "'%s' must be a number", keys[i]);
        if (!read_decimal(s, keys[i], value, &b.at)) return false;
        int order = out->there ? compare(&b.at, &out->at) * stricter : 1;
        if (order > 0 || order == 0) *out = b;
    }
    return true;
}

/* The bound as a whole number: the first one inside. */
static int64_t whole_bound(const bound *b, int direction) {
    int64_t n = (int64_t)whole_of(&b->at);
    bool between_two = b->at.fraction[0] != 0;
    if (b->at.negative) n = -n;
    /* Cutting the fraction moved it towards zero. */
    if (between_two && b->at.negative == (direction < 0)) n += direction;
    if (b->open && !between_two) n += direction;
    return n;
}

static uint32_t integer_range(schema *s, const bound *min, const bound *max) {
    const int64_t most = 999999999999999999;
    int64_t lo = min->there ? whole_bound(min, 1) : -most, hi = max->there ? whole_bound(max, -1) : most;
    if (min->there && !max->there && hi < lo) hi = lo;
    if (max->there && !min->there && lo > hi) lo = hi;
    uint32_t plus = hi >= 0 && lo <= hi ? whole_range(s, lo > 0 ? (uint64_t)lo : 0, (uint64_t)hi) : grammar_never(s->b);
    if (lo >= 0 || lo > hi) return plus;
    uint32_t minus = whole_range(s, hi < 0 ? (uint64_t)-hi : 1, (uint64_t)-lo);
    return GRAMMAR_ALT_OF(s->b, plus, then(s, grammar_text(s->b, "-"), minus));
}

static uint32_t number_range(schema *s, const bound *min, const bound *max) {
    const bound zero = {.there = true, .at = {.whole = "0"}};
    bound above_zero = zero;
    above_zero.open = true; /* so that -0 is not a second way to write 0 */
    uint32_t plus = grammar_never(s->b), minus = plus;
    if (!max->there || !max->at.negative) plus = size_range(s, min->there && !min->at.negative ? min : &zero, max);
    if (!min->there || min->at.negative) minus = size_range(s, max->there && max->at.negative ? max : &above_zero, min);
    return GRAMMAR_ALT_OF(s->b, plus, then(s, grammar_text(s->b, "-"), minus));
}

uint32_t schema_number(schema *s, const json_t *x, bool integer) {
    bound min, max;
    const json_t *step = json_object_get(x, "multipleOf");
    if (step && !(integer && json_is_integer(step) && json_integer_value(step) == 1))
        return schema_fail(s, HEARTH_UNSUPPORTED, "the keyword 'multipleOf' is not supported");
    if (!read_bound(s, x, "minimum", "exclusiveMinimum", 1, &min) || !read_bound(s, x, "maximum", "exclusiveMaximum", -1, &max)) return 0;
    if (!min.there && !max.there) return schema_common(s, integer ? SCHEMA_INTEGER : SCHEMA_NUMBER);
    return integer ? integer_range(s, &min, &max) : number_range(s, &min, &max);
}
