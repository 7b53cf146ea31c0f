/* grammar_regex.c: reads regular expressions: what JavaScript, Python and PCRE agree on and that describes a regular language. What only
 * looks around or back (\b, (?=...), \1) and what they understand differently is refused. Lazy repetitions match the same texts as others.
 */
#include <string.h>

#include "engine/grammar_build.h"

typedef grammar_regex part;

typedef struct reader {
    grammar_build *b;
    const char *start, *at, *end;
    grammar_regex_use use;
    int depth;
} reader;

static bool fail(reader *r, const char *what) {
    return err_set(r->b->e, HEARTH_ARGUMENT, "the regular expression at byte %zu: %s", (size_t)(r->at - r->start) + 1, what);
}

static bool more(const reader *r) { return r->at < r->end && !grammar_failed(r->b); }
static bool next_is(const reader *r, const char *text) {
    size_t n = strlen(text);
    return more(r) && (size_t)(r->end - r->at) >= n && memcmp(r->at, text, n) == 0;
}
static bool skip(reader *r, const char *text) {
    bool there = next_is(r, text);
    if (there) r->at += strlen(text);
    return there;
}

static uint64_t bounded(uint64_t n) { return n > GRAMMAR_MANY ? GRAMMAR_MANY : n; }

/* ---- sets of characters ---- */

/* A JSON string has these only as escapes. */
static uint32_t json_escape(grammar_build *b, uint32_t c) {
    static const char named[][2] = {{'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}, {'"', '"'}, {'\\', '\\'}};
    char text[8] = {'\\', 0};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (c == (unsigned char)named[i][0]) text[1] = named[i][1];
    if (!text[1]) {
        static const char digits[] = "0123456789abcdef";
        memcpy(text + 1, "u00", 3);
        text[4] = digits[c >> 4];
        text[5] = digits[c & 15];
    }
    return grammar_text(b, text);
}

uint32_t grammar_json_chars(grammar_build *b, const grammar_range *ranges, size_t n, bool all_others) {
    static const grammar_range plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, GRAMMAR_LAST_CHAR}};
    uint32_t x = grammar_chars(b, ranges, n, all_others);
    if (grammar_failed(b) || b->exprs[x].kind != GRAMMAR_CHARS) return x;
    const grammar_node_expr set = b->exprs[x];
    grammar_range *left = mem_alloc(3 * (size_t)set.n, sizeof *left, b->e);
    grammar_list choices = {0};
    size_t n_left = 0;
    for (uint32_t i = 0; left && i < set.n; i++) {
        const grammar_range range = b->ranges[set.at + i];
        for (int k = 0; k < 3; k++) {
            grammar_range both = {range.lo > plain[k].lo ? range.lo : plain[k].lo, range.hi < plain[k].hi ? range.hi : plain[k].hi};
            if (both.lo <= both.hi) left[n_left++] = both;
        }
        /* U+0000 is left out: hardly any program can take it. */
        for (uint32_t c = range.lo > 1 ? range.lo : 1; c <= range.hi && c <= '\\'; c++)
            if (c < 0x20 || c == '"' || c == '\\') grammar_list_add(b, &choices, json_escape(b, c));
    }
    if (n_left) grammar_list_add(b, &choices, grammar_chars(b, left, n_left, false));
    x = grammar_alt(b, choices.items, choices.n);
    mem_free(left);
    grammar_list_free(&choices);
    return x;
}

typedef struct char_list {
    grammar_range *items;
    size_t n, cap;
} char_list;

static bool add_range(reader *r, char_list *l, uint32_t lo, uint32_t hi) {
    if (grammar_failed(r->b) || !grammar_grow(&l->items, &l->cap, l->n, sizeof *l->items, r->b->e)) return false;
    l->items[l->n++] = (grammar_range){lo, hi};
    return true;
}

static bool add_all(reader *r, char_list *l, const grammar_range *ranges, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!add_range(r, l, ranges[i].lo, ranges[i].hi)) return false;
    return true;
}

/* All characters but those of the ranges, which are in order. */
static bool add_others(reader *r, char_list *l, const grammar_range *ranges, size_t n) {
    uint32_t next = 0;
    for (size_t i = 0; i < n; i++) {
        if (ranges[i].lo > next && !add_range(r, l, next, ranges[i].lo - 1)) return false;
        next = ranges[i].hi + 1;
    }
    return add_range(r, l, next, GRAMMAR_LAST_CHAR);
}

static const grammar_range digits[] = {{'0', '9'}};
static const grammar_range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const grammar_range space[] = {{'\t', '\r'}, {' ', ' '}};
/* Languages differ in what is white space beyond these: \S avoids all of it. */
static const grammar_range wide_space[] = {{'\t', '\r'},     {0x1C, ' '},      {0x85, 0x85},     {0xA0, 0xA0},
                                           {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                           {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static bool read_hex(reader *r, int least, int most, uint32_t *c) {
    int n = 0;
    for (*c = 0; n < most && more(r); n++, r->at++) {
        char d = *r->at;
        int value = d >= '0' && d <= '9' ? d - '0' : d >= 'a' && d <= 'f' ? d - 'a' + 10 : d >= 'A' && d <= 'F' ? d - 'A' + 10 : -1;
        if (value < 0) break;
        *c = *c << 4 | (uint32_t)value;
    }
    if (n < least) return fail(r, "hexadecimal digits are expected");
    if (*c > GRAMMAR_LAST_CHAR || (*c >= 0xD800 && *c < 0xE000)) return fail(r, "this is no Unicode character");
    return true;
}

static bool read_code(reader *r, int digits_without_braces, uint32_t *c) {
    if (!skip(r, "{")) return read_hex(r, digits_without_braces, digits_without_braces, c);
    return read_hex(r, 1, 6, c) && (skip(r, "}") || fail(r, "a closing brace is expected"));
}

/* What stands after a backslash. *single is the character, or UINT32_MAX when a set was added to l. */
static bool read_escape(reader *r, char_list *l, bool in_set, uint32_t *single) {
    *single = UINT32_MAX;
    if (!more(r)) return fail(r, "it ends with a backslash");
    char c = *r->at++;
    switch (c) {
    case 'd':
        return add_all(r, l, digits, COUNT(digits));
    case 'D':
        return add_others(r, l, digits, COUNT(digits));
    case 'w':
        return add_all(r, l, word, COUNT(word));
    case 'W':
        return add_others(r, l, word, COUNT(word));
    case 's':
        return add_all(r, l, space, COUNT(space));
    case 'S':
        return add_others(r, l, wide_space, COUNT(wide_space));
    case 't':
        return *single = '\t', true;
    case 'n':
        return *single = '\n', true;
    case 'r':
        return *single = '\r', true;
    case 'f':
        return *single = '\f', true;
    case 'v':
        return *single = '\v', true;
    case 'x':
        return read_code(r, 2, single);
    case 'u':
        return read_code(r, 4, single);
    case 'p':
    case 'P':
        return fail(r, "properties of characters (\\p) are not supported; write a set such as [a-z]");
    case 'b':
    case 'B':
        if (in_set && c == 'b') return *single = '\b', true;
        return fail(r, "borders of words (\\b, \\B) are not supported");
    case '0':
        if (!more(r) || *r->at < '0' || *r->at > '9') return *single = 0, true;
        return fail(r, "octal escapes are not supported; write \\xHH");
    default:
        break;
    }
    if (c >= '1' && c <= '9') return fail(r, "back-references are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80) return fail(r, "this escape is not supported");
    *single = (unsigned char)c;
    return true;
}

static bool read_plain(reader *r, uint32_t *c) {
    size_t len = 0;
    if (!more(r)) return fail(r, "it ends too early");
    if (!grammar_utf8(r->at, (size_t)(r->end - r->at), c, &len)) return fail(r, "there are bytes that are no UTF-8");
    r->at += len;
    return true;
}

static bool read_set_char(reader *r, char_list *l, uint32_t *c) {
    if (next_is(r, "[:") || next_is(r, "[.") || next_is(r, "[="))
        return fail(r, "named sets ([:alpha:]) are not supported; write a set such as [a-z]");
    return skip(r, "\\") ? read_escape(r, l, true, c) : read_plain(r, c);
}

static part char_part(reader *r, const grammar_range *ranges, size_t n, bool others) {
    bool json = r->use != GRAMMAR_REGEX_WHOLE;
    return (part){json ? grammar_json_chars(r->b, ranges, n, others) : grammar_chars(r->b, ranges, n, others), 1, 1};
}

static part read_set(reader *r) {
    char_list l = {0};
    bool others = skip(r, "^");
    if (next_is(r, "]")) fail(r, "an empty set is not supported; write \\] for a bracket");
    while (!grammar_failed(r->b) && !skip(r, "]")) {
        uint32_t lo, hi;
        if (!read_set_char(r, &l, &lo)) break;
        hi = lo;
        if (lo != UINT32_MAX && r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
            r->at++;
            if (!read_set_char(r, &l, &hi)) break;
            if (hi == UINT32_MAX || hi < lo) fail(r, "a range in a set needs a first and a last character, in this order");
        }
        if (lo != UINT32_MAX && !add_range(r, &l, lo, hi)) break;
    }
    part p = char_part(r, l.items, l.n, others);
    mem_free(l.items);
    return p;
}

/* ---- expressions ---- */

static part read_choice(reader *r, bool outermost);

static part read_group(reader *r) {
    if (skip(r, "?")) {
        bool named = skip(r, "P<") || (next_is(r, "<") && !next_is(r, "<=") && !next_is(r, "<!") && skip(r, "<"));
        if (named) {
            while (more(r) && *r->at != '>') r->at++;
            if (!skip(r, ">")) fail(r, "the name of a group is not closed");
        } else if (!skip(r, ":")) fail(r, "of the groups that begin with (? only (?:...) and (?<name>...) are supported");
    }
    if (++r->depth > GRAMMAR_MAX_DEPTH / 4) fail(r, "parentheses are nested too deep");
    part p = read_choice(r, false);
    r->depth--;
    if (!skip(r, ")")) fail(r, "a closing parenthesis is missing");
    return p;
}

static part read_item(reader *r) {
    char_list l = {0};
    uint32_t c = 0;
    if (skip(r, "(")) return read_group(r);
    if (skip(r, "[")) return read_set(r);
    if (skip(r, ".")) return char_part(r, (const grammar_range[]){{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}, 3, true);
    if (next_is(r, "*") || next_is(r, "+") || next_is(r, "?")) fail(r, "there is nothing to repeat");
    else if (next_is(r, "^") || next_is(r, "$")) fail(r, "^ and $ are supported only at the beginning and the end, outside of groups");
    else if (skip(r, "\\")) read_escape(r, &l, false, &c);
    else read_plain(r, &c);
    if (c != UINT32_MAX) add_range(r, &l, c, c);
    part p = char_part(r, l.items, l.n, false);
    mem_free(l.items);
    return p;
}

static bool read_number(const char **at, const char *end, uint32_t *n) {
    const char *s = *at;
    for (*n = 0; s < end && *s >= '0' && *s <= '9' && *n < 100000000; s++) *n = *n * 10 + (uint32_t)(*s - '0');
    bool some = s > *at;
    *at = s;
    return some;
}

/* {m}, {m,} or {m,n}; false when a brace is a plain character here. */
static bool read_counts(reader *r, uint32_t *min, uint32_t *max) {
    const char *at = r->at + 1;
    if (at < r->end && *at == ',') return fail(r, "{,n} is understood differently by different programs; write {0,n}");
    if (!read_number(&at, r->end, min)) return false;
    *max = *min;
    if (at < r->end && *at == ',') {
        at++;
        if (!read_number(&at, r->end, max)) *max = GRAMMAR_MANY;
    }
    if (at == r->end || *at != '}') return false;
    r->at = at + 1;
    if (*min >= 100000000 || (*max >= 100000000 && *max != GRAMMAR_MANY)) fail(r, "a repetition counts too high: 99999999 is the most");
    if (*min > *max) fail(r, "a repetition {m,n} needs m to be at most n");
    return true;
}

static part read_repeated(reader *r) {
    part p = read_item(r);
    uint32_t min = 0, max = GRAMMAR_MANY;
    if (skip(r, "?")) max = 1;
    else if (skip(r, "+")) min = 1;
    else if (!skip(r, "*") && !(next_is(r, "{") && read_counts(r, &min, &max))) return p;
    if (!skip(r, "?") && next_is(r, "+")) fail(r, "possessive repetitions are not supported");
    if (next_is(r, "*") || next_is(r, "+") || next_is(r, "?")) fail(r, "there is nothing to repeat");
    return (part){grammar_repeat(r->b, p.expr, min, max), bounded(p.shortest * min), bounded(p.longest * max)};
}

static bool at_last(const reader *r) { return !more(r) || *r->at == '|' || *r->at == ')'; }

static void add_part(reader *r, grammar_list *l, part *sum, part p) {
    grammar_list_add(r->b, l, p.expr);
    sum->shortest = bounded(sum->shortest + p.shortest);
    sum->longest = bounded(sum->longest + p.longest);
}

/* Any text, for what a search leaves out. */
static part anything(reader *r) { return (part){grammar_repeat(r->b, char_part(r, NULL, 0, true).expr, 0, GRAMMAR_MANY), 0, GRAMMAR_MANY}; }

static part read_sequence(reader *r, bool outermost) {
    grammar_list l = {0};
    part p = {0};
    bool search = outermost && r->use == GRAMMAR_REGEX_JSON_SEARCH;
    bool first = outermost && (skip(r, "^") || skip(r, "\\A"));
    if (search && !first) add_part(r, &l, &p, anything(r));
    bool last = false;
    while (!grammar_failed(r->b) && !at_last(r)) {
        const char *before = r->at;
        if (outermost && (skip(r, "$") || skip(r, "\\z") || skip(r, "\\Z"))) {
            last = at_last(r);
            if (last) break;
            r->at = before;
        }
        add_part(r, &l, &p, read_repeated(r));
    }
    if (search && !last) add_part(r, &l, &p, anything(r));
    p.expr = grammar_seq(r->b, l.items, l.n);
    grammar_list_free(&l);
    return p;
}

static part read_choice(reader *r, bool outermost) {
    grammar_list l = {0};
    part p = read_sequence(r, outermost);
    grammar_list_add(r->b, &l, p.expr);
    while (skip(r, "|")) {
        part other = read_sequence(r, outermost);
        grammar_list_add(r->b, &l, other.expr);
        if (other.shortest < p.shortest) p.shortest = other.shortest;
        if (other.longest > p.longest) p.longest = other.longest;
    }
    p.expr = grammar_alt(r->b, l.items, l.n);
    grammar_list_free(&l);
    return p;
}

grammar_regex grammar_read_regex(grammar_build *b, const char *text, size_t len, grammar_regex_use use) {
    reader r = {.b = b, .start = text, .at = text, .end = text + len, .use = use};
    part p = read_choice(&r, true);
    if (more(&r)) fail(&r, "a parenthesis closes that was not opened");
    return p;
}
