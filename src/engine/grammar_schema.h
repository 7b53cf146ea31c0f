/* grammar_schema.h: the parts of the reader of JSON schemas. */
#ifndef ENGINE_GRAMMAR_SCHEMA_H
#define ENGINE_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "engine/grammar_build.h"

enum {
    SCHEMA_MAX_DEPTH = 100,   /* schemas inside each other */
    SCHEMA_MAX_WORK = 200000, /* schemas looked at */
};

/* Rules that many schemas share, made when they are needed first: number + 1. */
typedef enum schema_shared {
    SCHEMA_SPACE,
    SCHEMA_CHAR,
    SCHEMA_REST, /* of a string: up to its closing quote */
    SCHEMA_STRING,
    SCHEMA_INTEGER,
    SCHEMA_NUMBER,
    SCHEMA_OBJECT,
    SCHEMA_ARRAY,
    SCHEMA_VALUE,
    SCHEMA_SHARED,
} schema_shared;

typedef struct schema {
    grammar_build *b;
    json_t *root;
    json_t *made; /* keeps schemas alive that were made by merging */
    json_t *refs; /* the rules of schemas that were referred to, by their address */
    uint32_t shared[SCHEMA_SHARED];
    buf path; /* where in the schema, for messages */
    int depth;
    long work;
} schema;

/* Says where in the schema; returns 0. */
uint32_t schema_fail(schema *s, hearth_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- grammar_schema.c ---- */
uint32_t schema_value(schema *s, const json_t *x);
/* Counts one step; false when there were too many. */
bool schema_step(schema *s);
/* The schema that a $ref points to; NULL with the failure set. */
const json_t *schema_find(schema *s, const char *ref);

/* ---- grammar_schema_keys.c: which keywords there are ---- */
bool schema_is_annotation(const char *key); /* changes nothing about what is valid */
bool schema_check_keys(schema *s, const json_t *x);
/* Whether anything but annotations is left when these keywords (NULL-terminated) are not counted. */
bool schema_has_more(const json_t *x, const char *const *but);
/* x and y at once; owned by s. NULL with the failure set. */
const json_t *schema_merge(schema *s, const json_t *x, const json_t *y);
const json_t *schema_without(schema *s, const json_t *x, const char *key);
/* Keeps a schema alive and returns it; a NULL is out of memory. */
json_t *schema_keep(schema *s, json_t *x);

/* ---- grammar_schema_text.c ---- */
uint32_t schema_common(schema *s, schema_shared which); /* a call of the rule */
uint32_t schema_string(schema *s, const json_t *x);
uint32_t schema_literal(schema *s, const json_t *value);
/* A string that is none of the n names. */
uint32_t schema_other_key(schema *s, const char *const *names, size_t n);
/* A whole number from a keyword: fallback when it is absent. */
bool schema_count(schema *s, const json_t *x, const char *key, uint32_t fallback, uint32_t *out);

/* ---- grammar_schema_number.c ---- */
uint32_t schema_number(schema *s, const json_t *x, bool integer);

#endif
