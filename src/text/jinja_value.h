/* jinja_value.h: the values of a template and the run that owns them.
 *
 * Everything a run makes lies in its arena and goes with it: nothing is freed one by one, so a failure anywhere may leave by
 * longjmp to the single setjmp in jinja_parse or jinja_render (jinja_fail never returns). Values follow Python: strings are
 * immutable, lists and dicts are shared by reference. Strings are valid UTF-8 and may hold NUL. */
#ifndef TEXT_JINJA_VALUE_H
#define TEXT_JINJA_VALUE_H

#include <jansson.h>
#include <setjmp.h>
#include <time.h>

#include "base/mem.h"

typedef struct jinja jinja;

/* What a hostile template can spend before it ends with an error. */
#define JINJA_MAX_SOURCE ((size_t)1 << 20)   /* bytes of template */
#define JINJA_MAX_MEMORY ((size_t)256 << 20) /* bytes of values, or of syntax tree */
#define JINJA_MAX_OUTPUT ((size_t)64 << 20)  /* bytes of rendered text */
#define JINJA_MAX_STEPS 50000000u            /* nodes evaluated, items visited, 64-byte runs of text scanned */
#define JINJA_MAX_STACK ((size_t)384 << 10)  /* bytes of C stack, so that a thread with 1 MiB is enough */
#define JINJA_MAX_RANGE 100000               /* items of range(), as in jinja2's sandbox */

typedef enum jkind {
    J_ABSENT, /* an argument that was not given; never seen by templates */
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STR,
    J_LIST,
    J_TUPLE,
    J_DICT,
    J_RANGE,
    J_NAMESPACE,
    J_MACRO,
    J_LOOP,
    J_FUNC,
    J_METHOD,
    J_CYCLER,
    J_JOINER,
} jkind;

typedef struct jstr jstr;
typedef struct jlist jlist;
typedef struct jdict jdict;
typedef struct jrange jrange;
typedef struct jmissing jmissing;
typedef struct jmacro jmacro;
typedef struct jloop jloop;
typedef struct jmethod jmethod;
typedef struct jcycler jcycler;
typedef struct jjoiner jjoiner;
typedef struct jfunc jfunc;
typedef struct jscope jscope;
typedef struct jrun jrun;

typedef struct jval {
    uint8_t kind; /* jkind */
    bool safe;    /* a string marked |safe */
    union {
        bool b;
        int64_t i;
        double f;
        jstr *s;
        jlist *l; /* list and tuple */
        jdict *d; /* dict and namespace */
        jrange *range;
        jmissing *missing; /* undefined: why */
        jmacro *macro;
        jloop *loop;
        const jfunc *func;
        jmethod *method;
        jcycler *cycler;
        jjoiner *joiner;
    };
} jval;

/* The end of a text that was built by concatenation; the string that ends there can grow in place, so that a loop which appends
 * to a string stays linear in time and memory. */
typedef struct jtail {
    char *end, *limit;
} jtail;

struct jstr {
    const char *data;
    size_t len;
    size_t chars; /* code points; SIZE_MAX: not counted yet (never so in a syntax tree, which threads share) */
    jtail *tail;
};

/* What a list stands for when it is more than a list. The views of a dict cannot be indexed. A stream is what Python's
 * generators are to templates: always true, not indexable, and gone through only once. */
typedef enum jview { JVIEW_NONE, JVIEW_KEYS, JVIEW_VALUES, JVIEW_ITEMS, JVIEW_GROUP, JVIEW_STREAM } jview;

struct jlist {
    jval *v;
    size_t n, cap;
    size_t taken; /* items of a stream that were gone through */
    jview view;
};

typedef struct jentry {
    jval key, value;
    uint64_t hash;
} jentry;

/* Ordered by insertion. index is an open hash of entry numbers + 1, made once there are more than a few entries. */
struct jdict {
    jentry *e;
    size_t n, cap;
    uint32_t *index;
    size_t slots;
};

struct jrange {
    int64_t start, stop, step;
    size_t n;
};

/* Why a value is undefined: a hint, or a name, or a name looked up in a value. */
struct jmissing {
    const char *hint;
    bool has_owner;
    jval owner, name;
};

struct jcycler {
    jlist *items;
    size_t at;
};

struct jjoiner {
    jval separator;
    bool used;
};

struct jmethod {
    jval self;
    const jfunc *func;
};

/* ---- functions: filters, tests, methods and globals are rows of tables ---- */

typedef struct jkeyword {
    const jstr *name;
    jval value;
} jkeyword;

#define JINJA_MAX_PARAMS 6
typedef struct jargs {
    const jval *pos;
    size_t npos;
    const jkeyword *kw;
    size_t nkw;
    jval slot[JINJA_MAX_PARAMS]; /* bound to the row's parameters; J_ABSENT when not given */
} jargs;

/* self is the filtered or tested value, or the object of a method. */
typedef jval jfunction(jrun *r, jval self, jargs *a);
struct jfunc {
    const char *name;
    jfunction *call;
    const char *params; /* names with spaces between; "*": takes a->pos and a->kw as they are */
    int required;
};

const jfunc *jinja_find(const jfunc *table, const char *name, size_t len);
/* Binds the arguments to the row's parameters and calls it. */
jval jinja_apply(jrun *r, const jfunc *f, jval self, jargs *a);

const jfunc *jinja_find_filter(const jstr *name);
const jfunc *jinja_find_test(const jstr *name);
const jfunc *jinja_find_global(const jstr *name);
const jfunc *jinja_find_method(jval self, const jstr *name);

/* ---- the run ---- */

typedef struct jchunk {
    struct jchunk *next;
    size_t used, size;
    _Alignas(16) char data[];
} jchunk;

/* A growing text in the arena. */
typedef struct jsink {
    char *data;
    size_t len, cap;
} jsink;

struct jrun {
    jchunk *chunks;
    size_t memory; /* bytes taken so far */
    err *e;
    jmp_buf *fail;
    const char *stack; /* where the C stack was at the start */
    uint64_t steps;
    uint32_t line; /* where in the template, for messages */

    /* Rendering only. */
    const jinja *t;
    const json_t *variables;
    const struct tm *now;
    jscope *context; /* variables and functions that were looked up */
    jsink *out;
};

_Noreturn void jinja_fail(jrun *r, hearth_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Fails with exactly this text. */
_Noreturn void jinja_raise(jrun *r, const jstr *text);
void *jinja_alloc(jrun *r, size_t count, size_t size);
/* Grows an array to new_count; in place when it is the newest thing in the arena. */
void *jinja_grow(jrun *r, void *old, size_t old_count, size_t new_count, size_t size);
void jinja_release(jchunk *chunks);
/* Fails when the C stack is nearly spent; every recursive function calls it. */
void jinja_check_stack(jrun *r);
void jinja_step(jrun *r, uint64_t n);
/* Accounts for a scan over bytes of text. */
static inline void jinja_scan(jrun *r, size_t bytes) { jinja_step(r, 1 + bytes / 64); }

void jinja_add(jrun *r, jsink *s, const char *data, size_t len);
void jinja_addc(jrun *r, jsink *s, char c);
void jinja_adds(jrun *r, jsink *s, const char *text);
void jinja_add_char(jrun *r, jsink *s, int32_t codepoint);
void jinja_add_repeated(jrun *r, jsink *s, const char *data, size_t len, size_t times);
jval jinja_sink_str(jrun *r, const jsink *s);

/* ---- making values ---- */

static inline jval jval_of(jkind kind) { return (jval){.kind = (uint8_t)kind}; }
static inline jval jval_bool(bool b) { return (jval){.kind = J_BOOL, .b = b}; }
static inline jval jval_int(int64_t i) { return (jval){.kind = J_INT, .i = i}; }
static inline jval jval_float(double f) { return (jval){.kind = J_FLOAT, .f = f}; }
static inline jval jval_list(jlist *l) { return (jval){.kind = J_LIST, .l = l}; }
static inline jval jval_stream(jlist *l) {
    l->view = JVIEW_STREAM;
    return jval_list(l);
}
static inline jval jval_dict(jdict *d) { return (jval){.kind = J_DICT, .d = d}; }

/* The text is not copied: it must live as long as the run. */
jval jinja_str(jrun *r, const char *data, size_t len);
jval jinja_text(jrun *r, const char *text);
jval jinja_concat(jrun *r, jval a, jval b);
jlist *jinja_list(jrun *r, size_t cap);
void jinja_append(jrun *r, jlist *l, jval v);
jval jinja_pair(jrun *r, jval a, jval b);
jdict *jinja_dict(jrun *r);
/* NULL when there is none. Keys that cannot be hashed fail. */
jval *jinja_dict_get(jrun *r, const jdict *d, jval key);
jval *jinja_dict_get_text(jrun *r, const jdict *d, const char *key);
void jinja_dict_set(jrun *r, jdict *d, jval key, jval value);
bool jinja_dict_remove(jrun *r, jdict *d, jval key);
jval jinja_undefined_hint(jrun *r, const char *hint);
jval jinja_undefined_name(jrun *r, const jstr *name);
jval jinja_undefined_member(jrun *r, jval owner, jval name);
jval jinja_from_json(jrun *r, const json_t *j);
jval jinja_parse_json(jrun *r, jval text);

/* ---- looking at values ---- */

const char *jinja_type_name(jval v); /* Python's: "str", "NoneType" */
_Noreturn void jinja_fail_undefined(jrun *r, jval v);
void jinja_need_defined(jrun *r, jval v);
bool jinja_truth(jrun *r, jval v);
bool jinja_equal(jrun *r, jval a, jval b);
bool jinja_same(jval a, jval b);
/* Python's a < b; fails for what Python does not order. */
bool jinja_less(jrun *r, jval a, jval b);
bool jinja_is_number(jval v); /* int, float or bool */
double jinja_number(jval v);
bool jinja_is_int(jval v); /* int or bool */
int64_t jinja_int(jval v);
/* Length, or SIZE_MAX for what has none. */
size_t jinja_length(jrun *r, jval v);
size_t jinja_chars(jrun *r, jstr *s);
/* The first place of the needle in a text, or NULL; what it costs counts as steps. */
const char *jinja_find_text(jrun *r, const char *text, size_t len, const jstr *needle);

/* Iteration over anything iterable; the source may grow or shrink meanwhile. */
typedef struct jiter {
    jval source;
    size_t at; /* item, or byte of a string */
} jiter;
bool jinja_iterable(jval v);
bool jinja_indexable(jval v);      /* what Python calls a sequence, and mappings */
jiter jinja_iter(jrun *r, jval v); /* fails when v is not iterable */
bool jinja_next(jrun *r, jiter *it, jval *item);
jlist *jinja_to_list(jrun *r, jval v);

/* str(v) and repr(v). */
jval jinja_to_str(jrun *r, jval v);
void jinja_put_str(jrun *r, jsink *s, jval v);
void jinja_put_repr(jrun *r, jsink *s, jval v);
void jinja_put_json_text(jrun *r, jsink *s, const jstr *text, bool ascii);
jval jinja_escape(jrun *r, jval v);
/* Python's repr of a float. */
int jinja_float_text(double f, char out[32]);
/* Python's int(text, base) and float(text); false when the text is not a number. */
bool jinja_parse_int(const jstr *s, int base, int64_t *out);
bool jinja_parse_float(const jstr *s, double *out);

/* ---- operators ---- */

typedef enum jop { JOP_ADD, JOP_SUB, JOP_MUL, JOP_DIV, JOP_FLOORDIV, JOP_MOD, JOP_POW } jop;
typedef enum jcompare { JCMP_EQ, JCMP_NE, JCMP_LT, JCMP_LE, JCMP_GT, JCMP_GE, JCMP_IN, JCMP_NOT_IN } jcompare;
jval jinja_binary(jrun *r, jop op, jval a, jval b);
jval jinja_negate(jrun *r, jval v);
bool jinja_compare(jrun *r, jcompare op, jval a, jval b);
bool jinja_contains(jrun *r, jval container, jval v);
/* x.name and x[key] with Jinja's fallbacks; what is not there is undefined. */
jval jinja_attribute(jrun *r, jval v, const jstr *name);
jval jinja_item(jrun *r, jval v, jval key);
/* x[start:stop:step]; J_NONE where left out. */
jval jinja_slice(jrun *r, jval v, jval start, jval stop, jval step);
jval jinja_substring(jrun *r, jval s, size_t start, size_t len);
jval jinja_loop_attribute(jrun *r, jloop *loop, const jstr *name);
jval jinja_macro_attribute(jrun *r, const jmacro *m, const jstr *name);

/* ---- calls ---- */

bool jinja_callable(jval v);
jval jinja_call(jrun *r, jval callee, jargs *a);
jval jinja_percent_format(jrun *r, jval format, jval args);
jval jinja_brace_format(jrun *r, jval format, const jargs *a);

/* What functions do with their slots. */
static inline bool jarg_given(jval v) { return v.kind != J_ABSENT && v.kind != J_NONE; }
bool jarg_bool(jrun *r, jval v, bool otherwise);
int64_t jarg_int(jrun *r, jval v, int64_t otherwise);
const jstr *jarg_str(jrun *r, jval v, const char *what);

static inline bool jstr_is(const jstr *s, const char *text) {
    size_t i = 0;
    while (i < s->len && text[i] && s->data[i] == text[i]) i++;
    return i == s->len && !text[i];
}

#endif
