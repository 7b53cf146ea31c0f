/* grammar_gbnf.c: reads the GBNF notation.
 *
 *   rule   name ::= choice, up to the end of the line; the rule root is the whole text
 *   choice sequence | sequence | ...
 *   item   "text", [set], [^set], . (any character), name or ( choice ), then *, +, ?, {m}, {m,} or {m,n}
 *   #      begins a comment. Lines may break inside parentheses, after ::= and after |. */
#include <stdlib.h>
#include <string.h>

#include "engine/grammar_build.h"

typedef struct reader {
    grammar_build *b;
    const char *start, *at, *end;
    int depth;
    uint32_t *slots; /* rules by name: number + 1 */
    size_t n_slots;
    grammar_list names; /* where each rule's name stands, as an offset; its length is in name_lens */
    grammar_list name_lens;
} reader;

static bool fail(reader *r, const char *what) {
    size_t line = 1;
    for (const char *c = r->start; c < r->at; c++) line += *c == '\n';
    return err_set(r->b->e, HEARTH_ARGUMENT, "line %zu of the grammar: %s", line, what);
}

static bool more(const reader *r) { return r->at < r->end && !grammar_failed(r->b); }
static bool next_is(const reader *r, char c) { return more(r) && *r->at == c; }

static void skip_space(reader *r, bool lines) {
    while (more(r)) {
        char c = *r->at;
        if (c == '#')
            while (more(r) && *r->at != '\n' && *r->at != '\r') r->at++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) r->at++;
        else break;
    }
}

/* ---- names ---- */

static bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; }

static size_t name_hash(const char *name, size_t len) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)name[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 29);
}

static bool grow_slots(reader *r) {
    size_t n = r->n_slots ? 2 * r->n_slots : 64;
    uint32_t *slots = mem_zalloc(n, sizeof *slots, r->b->e);
    if (!slots) return false;
    for (size_t i = 0; i < r->names.n; i++) {
        size_t at = name_hash(r->start + r->names.items[i], r->name_lens.items[i]) & (n - 1);
        while (slots[at]) at = (at + 1) & (n - 1);
        slots[at] = (uint32_t)i + 1;
    }
    mem_free(r->slots);
    r->slots = slots;
    r->n_slots = n;
    return true;
}

/* The rule of that name, made when it is met first. */
static uint32_t find_rule(reader *r, const char *name, size_t len) {
    if (2 * (r->names.n + 1) > r->n_slots && !grow_slots(r)) return 0;
    size_t at = name_hash(name, len) & (r->n_slots - 1);
    for (; r->slots[at]; at = (at + 1) & (r->n_slots - 1)) {
        uint32_t rule = r->slots[at] - 1;
        if (r->name_lens.items[rule] == len && memcmp(r->start + r->names.items[rule], name, len) == 0) return rule;
    }
    uint32_t rule = grammar_rule_new(r->b, name, len);
    grammar_list_add(r->b, &r->names, (uint32_t)(name - r->start));
    grammar_list_add(r->b, &r->name_lens, (uint32_t)len);
    if (grammar_failed(r->b)) return 0;
    r->slots[at] = rule + 1;
    return rule;
}

static size_t name_length(const reader *r) {
    size_t n = 0;
    while (n < (size_t)(r->end - r->at) && is_name(r->at[n])) n++;
    return n;
}

/* ---- characters ---- */

static bool read_hex(reader *r, int digits, uint32_t *c) {
    *c = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        char d = more(r) ? *r->at : 0;
        int value = d >= '0' && d <= '9' ? d - '0' : d >= 'a' && d <= 'f' ? d - 'a' + 10 : d >= 'A' && d <= 'F' ? d - 'A' + 10 : -1;
        if (value < 0) return fail(r, "an escape needs hexadecimal digits: \\xHH, \\uHHHH or \\UHHHHHHHH");
        *c = *c << 4 | (uint32_t)value;
    }
    if (*c > GRAMMAR_LAST_CHAR || (*c >= 0xD800 && *c < 0xE000)) return fail(r, "an escape names something that is no Unicode character");
    return true;
}

/* One character as it stands in a text or a set. */
static bool read_char(reader *r, uint32_t *c) {
    size_t len = 0;
    if (!more(r)) return fail(r, "the grammar ends inside a text or a set");
    if (*r->at != '\\') {
        if (*r->at == '\n') return fail(r, "a text or a set is not closed on its line");
        if (!grammar_utf8(r->at, (size_t)(r->end - r->at), c, &len)) return fail(r, "there are bytes that are no UTF-8");
        r->at += len;
        return true;
    }
    r->at++;
    char escape = more(r) ? *r->at++ : 0;
    switch (escape) {
    case 'x':
        return read_hex(r, 2, c);
    case 'u':
        return read_hex(r, 4, c);
    case 'U':
        return read_hex(r, 8, c);
    case 't':
        return *c = '\t', true;
    case 'r':
        return *c = '\r', true;
    case 'n':
        return *c = '\n', true;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
    case '/':
        return *c = (unsigned char)escape, true;
    default:
        return fail(r, "after a backslash one of n r t \\ \" [ ] - ^ / x u U is expected");
    }
}

static uint32_t read_text(reader *r) {
    buf text = {0};
    r->at++;
    while (!next_is(r, '"')) {
        uint32_t c;
        char bytes[4];
        if (!read_char(r, &c) || !buf_add(&text, bytes, grammar_encode(c, bytes), r->b->e)) break;
    }
    if (more(r)) r->at++;
    uint32_t x = grammar_bytes_of(r->b, text.data, text.len);
    buf_free(&text);
    return x;
}

static uint32_t read_set(reader *r) {
    grammar_range *ranges = NULL;
    size_t n = 0, cap = 0;
    r->at++;
    bool others = next_is(r, '^');
    r->at += others;
    while (!next_is(r, ']')) {
        grammar_range range;
        if (!read_char(r, &range.lo)) break;
        range.hi = range.lo;
        if (r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] != ']') {
            r->at++;
            if (!read_char(r, &range.hi)) break;
            if (range.hi < range.lo && !fail(r, "a range in a set ends before it begins")) break;
        }
        if (!grammar_grow(&ranges, &cap, n, sizeof *ranges, r->b->e)) break;
        ranges[n++] = range;
    }
    if (more(r)) r->at++;
    uint32_t x = grammar_chars(r->b, ranges, n, others);
    mem_free(ranges);
    return x;
}

/* ---- expressions ---- */

static bool read_number(reader *r, uint32_t *n) {
    if (!more(r) || *r->at < '0' || *r->at > '9') return fail(r, "a repetition is written {m}, {m,} or {m,n}");
    for (*n = 0; more(r) && *r->at >= '0' && *r->at <= '9'; r->at++) {
        *n = *n * 10 + (uint32_t)(*r->at - '0');
        if (*n >= 100000000) return fail(r, "a repetition counts too high: 99999999 is the most");
    }
    return true;
}

static bool read_counts(reader *r, uint32_t *min, uint32_t *max) {
    r->at++;
    skip_space(r, true);
    *min = 0;
    if (!next_is(r, ',') && !read_number(r, min)) return false;
    *max = *min;
    skip_space(r, true);
    if (next_is(r, ',')) {
        r->at++;
        skip_space(r, true);
        *max = GRAMMAR_MANY;
        if (!next_is(r, '}') && !read_number(r, max)) return false;
        skip_space(r, true);
    }
    if (!next_is(r, '}')) return fail(r, "a repetition is written {m}, {m,} or {m,n}");
    r->at++;
    return *min <= *max || fail(r, "a repetition {m,n} needs m to be at most n");
}

static uint32_t read_choice(reader *r, bool nested);

static uint32_t read_item(reader *r) {
    char c = *r->at;
    size_t len = name_length(r);
    if (c == '"') return read_text(r);
    if (c == '[') return read_set(r);
    if (c == '.') {
        r->at++;
        return grammar_chars(r->b, NULL, 0, true);
    }
    if (c == '(') {
        if (++r->depth > GRAMMAR_MAX_DEPTH / 4) return fail(r, "parentheses are nested too deep");
        r->at++;
        uint32_t x = read_choice(r, true);
        r->depth--;
        if (!next_is(r, ')')) return fail(r, "a closing parenthesis is missing");
        r->at++;
        return x;
    }
    if (len) {
        uint32_t rule = find_rule(r, r->at, len);
        r->at += len;
        return grammar_call(r->b, rule);
    }
    if (c == '<' || c == '!') return fail(r, "tokens by name or number (<...>) are not supported; write the text");
    return fail(r, "a text, a set, a name or a parenthesis is expected here");
}

/* An item with what repeats it, any number of times over. */
static uint32_t read_repeated(reader *r, bool nested) {
    uint32_t x = read_item(r);
    for (skip_space(r, nested); more(r); skip_space(r, nested)) {
        uint32_t min = 0, max = GRAMMAR_MANY;
        char c = *r->at;
        if (c == '{') {
            if (!read_counts(r, &min, &max)) return 0;
        } else if (c == '*' || c == '+' || c == '?') {
            min = c == '+';
            if (c == '?') max = 1;
            r->at++;
        } else break;
        x = grammar_repeat(r->b, x, min, max);
    }
    return x;
}

static uint32_t read_sequence(reader *r, bool nested) {
    grammar_list list = {0};
    for (skip_space(r, nested); more(r) && *r->at != '|' && *r->at != ')' && *r->at != '\n' && *r->at != '\r'; skip_space(r, nested))
        grammar_list_add(r->b, &list, read_repeated(r, nested));
    uint32_t x = grammar_seq(r->b, list.items, list.n);
    grammar_list_free(&list);
    return x;
}

static uint32_t read_choice(reader *r, bool nested) {
    grammar_list list = {0};
    grammar_list_add(r->b, &list, read_sequence(r, nested));
    while (next_is(r, '|')) {
        r->at++;
        skip_space(r, true);
        grammar_list_add(r->b, &list, read_sequence(r, nested));
    }
    uint32_t x = grammar_alt(r->b, list.items, list.n);
    grammar_list_free(&list);
    return x;
}

static void read_rule(reader *r) {
    size_t len = name_length(r);
    if (len == 0) {
        fail(r, "a rule is expected here: name ::= ...");
        return;
    }
    uint32_t rule = find_rule(r, r->at, len);
    r->at += len;
    skip_space(r, false);
    if (r->end - r->at < 3 || memcmp(r->at, "::=", 3) != 0) {
        fail(r, "::= is expected after the name of a rule");
        return;
    }
    r->at += 3;
    skip_space(r, true);
    uint32_t x = read_choice(r, false);
    if (grammar_failed(r->b)) return;
    if (r->at < r->end && *r->at != '\n' && *r->at != '\r') fail(r, "a parenthesis closes that was not opened");
    else if (r->b->rules[rule].defined) fail(r, "a rule of this name is there already");
    else grammar_rule_set(r->b, rule, x);
}

uint32_t grammar_read_gbnf(grammar_build *b, const char *text, size_t len) {
    reader r = {.b = b, .start = text, .at = text, .end = text + len};
    for (skip_space(&r, true); more(&r); skip_space(&r, true)) read_rule(&r);
    uint32_t root = 0;
    bool found = false;
    for (size_t i = 0; !grammar_failed(b) && i < b->n_rules && !found; i++) {
        found = strcmp(b->rules[i].name, "root") == 0;
        if (found) root = (uint32_t)i;
    }
    if (!found) err_set(b->e, HEARTH_ARGUMENT, "the grammar has no rule named root, which every grammar starts from");
    mem_free(r.slots);
    grammar_list_free(&r.names);
    grammar_list_free(&r.name_lens);
    return grammar_call(b, root);
}
