#include "engine/grammar_build.h"

#include <stdlib.h>
#include <string.h>

bool grammar_grow(void *array, size_t *cap, size_t n, size_t size, err *e) {
    if (n < *cap) return true;
    size_t more = *cap ? *cap * 2 : 16;
    void *old;
    memcpy(&old, array, sizeof old);
    void *data = mem_realloc(old, more, size, e);
    if (!data) return false;
    memcpy(array, &data, sizeof data);
    *cap = more;
    return true;
}

bool grammar_utf8(const char *text, size_t left, uint32_t *c, size_t *len) {
    const unsigned char *s = (const unsigned char *)text;
    size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : s[0] >= 0xF0 && s[0] < 0xF5 ? 4 : 0;
    if (n == 0 || n > left) return false;
    uint32_t value = n == 1 ? s[0] : s[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) return false;
        value = value << 6 | (s[i] & 0x3F);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (value < least[n] || value > GRAMMAR_LAST_CHAR || (value >= 0xD800 && value < 0xE000)) return false;
    *c = value;
    *len = n;
    return true;
}

size_t grammar_encode(uint32_t c, char out[4]) {
    memset(out, 0, 4);
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(n == 1 ? c : (0xF00u >> n) | c);
    return n;
}

void grammar_build_free(grammar_build *b) {
    mem_free(b->exprs);
    mem_free(b->parts);
    mem_free(b->bytes);
    mem_free(b->ranges);
    mem_free(b->rules);
    *b = (grammar_build){.e = b->e};
}

void grammar_list_add(grammar_build *b, grammar_list *l, uint32_t expr) {
    if (!grammar_failed(b) && grammar_grow(&l->items, &l->cap, l->n, sizeof *l->items, b->e)) l->items[l->n++] = expr;
}

void grammar_list_free(grammar_list *l) {
    mem_free(l->items);
    *l = (grammar_list){0};
}

static uint32_t add_expr(grammar_build *b, grammar_node_expr x) {
    if (grammar_failed(b)) return 0;
    if (b->n_exprs >= GRAMMAR_MAX_SIZE || b->n_parts + b->n_bytes + b->n_ranges >= 8 * GRAMMAR_MAX_SIZE)
        return err_set(b->e, HEARTH_LIMIT, "the grammar is too large: it has more than %d parts", GRAMMAR_MAX_SIZE);
    if (x.depth > GRAMMAR_MAX_DEPTH) return err_set(b->e, HEARTH_LIMIT, "the grammar nests deeper than %d levels", GRAMMAR_MAX_DEPTH);
    if (!grammar_grow(&b->exprs, &b->cap_exprs, b->n_exprs + 1, sizeof *b->exprs, b->e)) return 0;
    if (b->n_exprs == 0) b->exprs[b->n_exprs++] = (grammar_node_expr){.kind = GRAMMAR_EMPTY};
    b->exprs[b->n_exprs] = x;
    return (uint32_t)b->n_exprs++;
}

uint32_t grammar_never(grammar_build *b) { return add_expr(b, (grammar_node_expr){.kind = GRAMMAR_NEVER}); }

uint32_t grammar_bytes_of(grammar_build *b, const char *bytes, size_t len) {
    if (len == 0 || grammar_failed(b)) return 0;
    uint32_t at = (uint32_t)b->n_bytes;
    for (size_t i = 0; i < len; i++) {
        if (!grammar_grow(&b->bytes, &b->cap_bytes, b->n_bytes, 1, b->e)) return 0;
        b->bytes[b->n_bytes++] = (unsigned char)bytes[i];
    }
    return add_expr(b, (grammar_node_expr){.kind = GRAMMAR_BYTES, .at = at, .n = (uint32_t)len});
}

uint32_t grammar_text(grammar_build *b, const char *text) { return grammar_bytes_of(b, text, strlen(text)); }

/* ---- sets of characters ---- */

static bool add_range(grammar_build *b, uint32_t lo, uint32_t hi) {
    if (lo > hi) return true;
    /* Surrogates are no characters. */
    if (lo < 0xD800 && hi >= 0xD800) return add_range(b, lo, 0xD7FF) && add_range(b, 0xD800, hi);
    if (lo >= 0xD800 && lo < 0xE000) return add_range(b, 0xE000, hi);
    if (!grammar_grow(&b->ranges, &b->cap_ranges, b->n_ranges, sizeof *b->ranges, b->e)) return false;
    b->ranges[b->n_ranges++] = (grammar_range){lo, hi};
    return true;
}

static int by_start(const void *a, const void *b) {
    uint32_t x = ((const grammar_range *)a)->lo, y = ((const grammar_range *)b)->lo;
    return x < y ? -1 : x > y;
}

uint32_t grammar_chars(grammar_build *b, const grammar_range *ranges, size_t n, bool all_others) {
    if (grammar_failed(b)) return 0;
    grammar_range *sorted = mem_alloc(n, sizeof *sorted, b->e);
    if (!sorted) return 0;
    if (n) memcpy(sorted, ranges, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_start);
    uint32_t at = (uint32_t)b->n_ranges, next = 0; /* the first character not yet handled */
    bool ok = true;
    for (size_t i = 0; ok && i < n;) {
        uint32_t lo = sorted[i].lo, hi = sorted[i].hi;
        for (i++; i < n && sorted[i].lo <= hi + 1; i++)
            if (sorted[i].hi > hi) hi = sorted[i].hi;
        if (hi > GRAMMAR_LAST_CHAR) hi = GRAMMAR_LAST_CHAR;
        if (all_others) ok = lo == 0 || add_range(b, next, lo - 1);
        else ok = add_range(b, lo, hi);
        next = hi + 1;
    }
    if (ok && all_others) ok = add_range(b, next, GRAMMAR_LAST_CHAR);
    mem_free(sorted);
    if (!ok) return 0;
    if (b->n_ranges == at) return grammar_never(b);
    return add_expr(b, (grammar_node_expr){.kind = GRAMMAR_CHARS, .at = at, .n = (uint32_t)b->n_ranges - at});
}

/* ---- expressions of expressions ---- */

static uint32_t add_parts(grammar_build *b, grammar_expr_kind kind, const uint32_t *parts, size_t n) {
    uint32_t at = (uint32_t)b->n_parts;
    unsigned depth = 0;
    for (size_t i = 0; i < n; i++) {
        if (grammar_failed(b) || !grammar_grow(&b->parts, &b->cap_parts, b->n_parts, sizeof *b->parts, b->e)) return 0;
        b->parts[b->n_parts++] = parts[i];
        if (parts[i] && b->exprs[parts[i]].depth > depth) depth = b->exprs[parts[i]].depth;
    }
    return add_expr(b, (grammar_node_expr){.kind = (uint8_t)kind, .depth = (uint16_t)(depth + 1), .at = at, .n = (uint32_t)n});
}

uint32_t grammar_seq(grammar_build *b, const uint32_t *parts, size_t n) {
    return n == 0 ? 0 : n == 1 ? parts[0] : add_parts(b, GRAMMAR_SEQ, parts, n);
}

uint32_t grammar_alt(grammar_build *b, const uint32_t *parts, size_t n) {
    return n == 0 ? grammar_never(b) : n == 1 ? parts[0] : add_parts(b, GRAMMAR_ALT, parts, n);
}

uint32_t grammar_repeat(grammar_build *b, uint32_t part, uint32_t min, uint32_t max) {
    if (grammar_failed(b) || max == 0 || part == 0) return 0;
    if (min > max) return err_set(b->e, HEARTH_ARGUMENT, "a repetition of at least %u and at most %u times is impossible", min, max);
    if (min == 1 && max == 1) return part;
    grammar_node_expr x = b->exprs[part];
    /* (x?){m,n} is x{0,n}, and (x*){m,n} is x*: fewer ways to repeat nothing. */
    if (x.kind == GRAMMAR_REPEAT && x.min == 0 && (x.max == 1 || x.max >= GRAMMAR_MANY))
        return grammar_repeat(b, x.at, 0, x.max == 1 ? max : GRAMMAR_MANY);
    return add_expr(b, (grammar_node_expr){.kind = GRAMMAR_REPEAT, .depth = (uint16_t)(x.depth + 1), .at = part, .min = min, .max = max});
}

uint32_t grammar_rule_new(grammar_build *b, const char *name, size_t len) {
    if (grammar_failed(b) || !grammar_grow(&b->rules, &b->cap_rules, b->n_rules, sizeof *b->rules, b->e)) return 0;
    grammar_rule *r = &b->rules[b->n_rules];
    *r = (grammar_rule){0};
    err_quote(r->name, sizeof r->name, name, len);
    return (uint32_t)b->n_rules++;
}

void grammar_rule_set(grammar_build *b, uint32_t rule, uint32_t expr) {
    if (grammar_failed(b)) return;
    b->rules[rule].expr = expr;
    b->rules[rule].defined = true;
}

uint32_t grammar_call(grammar_build *b, uint32_t rule) { return add_expr(b, (grammar_node_expr){.kind = GRAMMAR_RULE, .at = rule}); }
