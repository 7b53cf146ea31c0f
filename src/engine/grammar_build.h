/* grammar_build.h: what a grammar says, as a tree of expressions. The three readers (GBNF, regular expressions, JSON schema) make one, and
 * grammar_net.c compiles it. */
#ifndef ENGINE_GRAMMAR_BUILD_H
#define ENGINE_GRAMMAR_BUILD_H

#include "base/mem.h"

enum {
    GRAMMAR_MAX_TEXT = 4 << 20, /* bytes of source */
    GRAMMAR_MAX_DEPTH = 200,    /* expressions inside each other */
    GRAMMAR_MAX_SIZE = 1 << 20, /* expressions, nodes, edges */
    GRAMMAR_MANY = 1 << 30,     /* as a most: without bound */
    GRAMMAR_LAST_CHAR = 0x10FFFF,
};

typedef enum grammar_expr_kind {
    GRAMMAR_EMPTY, /* nothing at all, which always matches */
    GRAMMAR_NEVER, /* matches nothing, not even the empty text */
    GRAMMAR_BYTES, /* these bytes */
    GRAMMAR_CHARS, /* one character of a set */
    GRAMMAR_SEQ,
    GRAMMAR_ALT,
    GRAMMAR_REPEAT,
    GRAMMAR_RULE,
} grammar_expr_kind;

typedef struct grammar_node_expr {
    uint8_t kind;
    uint16_t depth;
    uint32_t at, n;    /* bytes, ranges or parts from at; REPEAT: the part is at; RULE: its number is at */
    uint32_t min, max; /* REPEAT */
} grammar_node_expr;

/* Characters lo to hi. */
typedef struct grammar_range {
    uint32_t lo, hi;
} grammar_range;

typedef struct grammar_rule {
    char name[64]; /* for messages */
    uint32_t expr;
    bool defined;
} grammar_rule;

/* Zero-initialised but for e. After the first failure e is set, and everything called does nothing and returns 0: a reader may look at
 * grammar_failed now and then. Expression 0 is the empty one. */
typedef struct grammar_build {
    grammar_node_expr *exprs;
    uint32_t *parts;
    unsigned char *bytes;
    grammar_range *ranges;
    grammar_rule *rules;
    size_t n_exprs, cap_exprs, n_parts, cap_parts, n_bytes, cap_bytes, n_ranges, cap_ranges, n_rules, cap_rules;
    err *e; /* never NULL */
} grammar_build;

void grammar_build_free(grammar_build *b);
static inline bool grammar_failed(const grammar_build *b) { return b->e->code != HEARTH_OK; }

uint32_t grammar_never(grammar_build *b);
uint32_t grammar_bytes_of(grammar_build *b, const char *bytes, size_t len);
uint32_t grammar_text(grammar_build *b, const char *text);
/* The ranges in any order, overlapping or not; surrogates are never part of a set. */
uint32_t grammar_chars(grammar_build *b, const grammar_range *ranges, size_t n, bool all_others);
uint32_t grammar_seq(grammar_build *b, const uint32_t *parts, size_t n);
uint32_t grammar_alt(grammar_build *b, const uint32_t *parts, size_t n);
uint32_t grammar_repeat(grammar_build *b, uint32_t part, uint32_t min, uint32_t max);
/* A new rule, to be defined before the grammar is compiled; grammar_call is the expression that stands for it. */
uint32_t grammar_rule_new(grammar_build *b, const char *name, size_t len);
void grammar_rule_set(grammar_build *b, uint32_t rule, uint32_t expr);
uint32_t grammar_call(grammar_build *b, uint32_t rule);

/* Sequences and choices of a few parts. */
#define GRAMMAR_SEQ_OF(b, ...) grammar_seq(b, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
#define GRAMMAR_ALT_OF(b, ...) grammar_alt(b, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* A growing list of expressions for the readers. */
typedef struct grammar_list {
    uint32_t *items;
    size_t n, cap;
} grammar_list;
void grammar_list_add(grammar_build *b, grammar_list *l, uint32_t expr);
void grammar_list_free(grammar_list *l);

/* Makes room for one more item of size bytes behind n of them; array points at the array's pointer. */
bool grammar_grow(void *array, size_t *cap, size_t n, size_t size, err *e);
/* One UTF-8 character at text, as its code point; *len is its length. False when it is broken. */
bool grammar_utf8(const char *text, size_t left, uint32_t *c, size_t *len);
/* The other way: returns the length. Bytes beyond it are 0. */
size_t grammar_encode(uint32_t c, char out[4]);

/* The readers. Each returns the expression of the whole text. */
uint32_t grammar_read_gbnf(grammar_build *b, const char *text, size_t len);
uint32_t grammar_read_schema(grammar_build *b, const char *text, size_t len);
uint32_t grammar_read_json(grammar_build *b); /* any JSON object */

/* A regular expression over the whole text. In a JSON string, characters that must be escaped there are. */
typedef struct grammar_regex {
    uint32_t expr;
    uint64_t shortest, longest; /* characters it matches; longest is GRAMMAR_MANY or more when without bound */
} grammar_regex;
typedef enum grammar_regex_use {
    GRAMMAR_REGEX_WHOLE,       /* matches the whole text, whether it says ^ and $ or not */
    GRAMMAR_REGEX_JSON_WHOLE,  /* the same, inside a JSON string */
    GRAMMAR_REGEX_JSON_SEARCH, /* matches a part inside a JSON string, unless it says ^ and $ */
} grammar_regex_use;
grammar_regex grammar_read_regex(grammar_build *b, const char *text, size_t len, grammar_regex_use use);

/* One character of a set as it stands inside a JSON string. */
uint32_t grammar_json_chars(grammar_build *b, const grammar_range *ranges, size_t n, bool all_others);

#endif
