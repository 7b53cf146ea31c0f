/* jinja_tree.h: tokens, the syntax tree, and what statements keep while they run.
 *
 * A tree lies in the arena of its template and never changes once parsed, so that threads can share it. Names are interned: two
 * equal names of one template are the same pointer. */
#ifndef TEXT_JINJA_TREE_H
#define TEXT_JINJA_TREE_H

#include "text/jinja.h"
#include "text/jinja_value.h"

/* ---- lexer ---- */

typedef enum jtoken_kind {
    T_END,
    T_TEXT,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_VALUE_BEGIN,
    T_VALUE_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OPERATOR,
} jtoken_kind;

/* An operator as one number: its characters, the second one shifted left by 8. */
#define JOPER(a, b) ((uint32_t)(unsigned char)(a) | (uint32_t)(unsigned char)(b) << 8)

typedef struct jtoken {
    jtoken_kind kind;
    uint32_t line;
    uint32_t op;      /* T_OPERATOR */
    const char *text; /* as written in the template */
    size_t len;
    jval value; /* T_STRING, T_INT, T_FLOAT, T_TEXT */
} jtoken;

#define JINJA_MAX_BRACKETS 256
typedef struct jlexer {
    jrun *r;
    const char *source;
    size_t len, at;
    uint32_t line;
    enum { JLEX_TEXT, JLEX_BLOCK, JLEX_VALUE } mode;
    jtoken_kind begin;                 /* what comes after the text that was just handed out, T_END for nothing */
    char brackets[JINJA_MAX_BRACKETS]; /* the closing ones that are due */
    size_t depth;
} jlexer;

/* Newlines become \n and one at the end is dropped. source must live on. */
void jinja_lex_init(jlexer *x, jrun *r, const char *source, size_t len);
jtoken jinja_lex(jlexer *x);
/* A string value whose characters are counted, fit for the shared tree. */
jval jinja_literal(jrun *r, const char *data, size_t len);

/* ---- tree ---- */

typedef enum jnode_kind {
    /* expressions */
    N_CONST,   /* value */
    N_NAME,    /* name */
    N_NSREF,   /* name . value: only as the target of set */
    N_TUPLE,   /* list */
    N_LIST,    /* list */
    N_DICT,    /* list: key, value, key, value */
    N_COND,    /* a if b else c */
    N_OR,      /* a or b */
    N_AND,     /* a and b */
    N_NOT,     /* a */
    N_COMPARE, /* a, then list of N_OPERAND: op, a */
    N_OPERAND,
    N_BINARY,  /* a op b */
    N_CONCAT,  /* list */
    N_NEG,     /* a */
    N_POS,     /* a */
    N_ATTR,    /* a . name */
    N_ITEM,    /* a [ b ] */
    N_SLICE,   /* a [ list ], three entries, NULL where left out */
    N_CALL,    /* a ( list ) */
    N_FILTER,  /* a | name ( list ); a NULL: the text of the block around */
    N_TEST,    /* a is name ( list ) */
    N_KEYWORD, /* an argument: name = a */
    N_SPREAD,  /* an argument: *a */
    N_SPREAD2, /* an argument: **a */
    /* statements */
    N_BODY,         /* list; flag: with a scope of its own */
    N_TEXT,         /* value */
    N_PRINT,        /* list */
    N_FOR,          /* for a in b if c: body else more; flag: recursive */
    N_IF,           /* list: condition, body, condition, body; more: else */
    N_SET,          /* a = b */
    N_SET_BLOCK,    /* a = body, through the filters b */
    N_MACRO,        /* name ( list ): body; uses */
    N_CALL_BLOCK,   /* call ( more: an N_MACRO ) a */
    N_FILTER_BLOCK, /* a: body */
    N_WITH,         /* list: target, value, target, value; body */
    N_BREAK,
    N_CONTINUE,
    N_DO, /* a */
} jnode_kind;

enum { JUSE_CALLER = 1, JUSE_VARARGS = 2, JUSE_KWARGS = 4 };

typedef struct jnode jnode;
struct jnode {
    uint8_t kind; /* jnode_kind */
    uint8_t op;   /* jop, jcompare */
    uint8_t uses; /* macros: JUSE_ bits */
    bool flag;
    uint32_t line;
    const jstr *name;
    jval value;
    jnode *a, *b, *c;
    jnode **list;
    size_t n;
    jnode *body, *more;
    const jfunc *func; /* filters and tests, NULL when unknown */
};

/* Names that statements give a meaning to, interned. */
typedef struct jnames {
    const jstr *loop, *caller, *varargs, *kwargs;
} jnames;

struct jinja {
    jchunk *chunks;
    jnode *root;
    jnames names;
};

/* ---- running ---- */

typedef struct jbinding {
    const jstr *name;
    jval value;
} jbinding;

struct jscope {
    jscope *parent;
    jbinding *b;
    size_t n, cap;
    bool kept; /* a macro made here still refers to it */
};

struct jmacro {
    const jnode *node;
    jscope *scope; /* where it was made */
};

struct jloop {
    const jnode *node;
    jscope *scope;      /* where the statement stands */
    jscope *test_scope; /* for the loop's `if`; NULL: every item passes */
    jiter it;
    int64_t index0, depth0;
    size_t length;               /* SIZE_MAX: not known yet */
    jval before, current, after; /* J_ABSENT: none */
    bool ended;
    jval changed; /* the arguments of the last loop.changed() that said yes */
};

typedef enum jflow { JFLOW_NEXT, JFLOW_BREAK, JFLOW_CONTINUE } jflow;

jval jinja_eval(jrun *r, jscope *s, const jnode *n);
jflow jinja_exec(jrun *r, jscope *s, const jnode *n);
jscope *jinja_scope(jrun *r, jscope *parent);
void jinja_bind(jrun *r, jscope *s, const jstr *name, jval v);
jval jinja_lookup(jrun *r, jscope *s, const jstr *name);
/* Assigns to a name, a tuple of targets or a namespace's attribute. */
void jinja_assign(jrun *r, jscope *s, const jnode *target, jval v);
/* Evaluates the filters of a block over its text. */
jval jinja_eval_filters(jrun *r, jscope *s, const jnode *n, jval text);
jval jinja_call_macro(jrun *r, const jmacro *m, const jargs *a);
jval jinja_call_loop(jrun *r, jloop *loop, jval items);
/* Evaluates the arguments of n and calls the value, with one more keyword when extra is given. */
jval jinja_eval_call(jrun *r, jscope *s, const jnode *n, const jkeyword *extra);

/* ---- parser ---- */

typedef struct jparser {
    jrun *r;
    jinja *t;
    jlexer lexer;
    jtoken now, next;
    jstr **names; /* open hash of interned names */
    size_t names_n, names_cap;
    jnode *macros[64]; /* the ones around, innermost last */
    size_t nmacros;
    size_t loops; /* around here, inside the innermost macro */
} jparser;

typedef struct jnodes {
    jnode **v;
    size_t n, cap;
} jnodes;

_Noreturn void jparse_fail(jparser *p, const char *what);
void jparse_advance(jparser *p);
const jstr *jparse_intern(jparser *p, const char *text, size_t len);
jnode *jparse_node(jparser *p, jnode_kind kind);
void jparse_push(jparser *p, jnodes *l, jnode *n);
bool jparse_is_name(const jtoken *t, const char *name);
bool jparse_skip_name(jparser *p, const char *name);
bool jparse_is_op(const jtoken *t, uint32_t op);
bool jparse_skip_op(jparser *p, uint32_t op);
void jparse_expect_op(jparser *p, uint32_t op, const char *what);
const jstr *jparse_expect_name(jparser *p, const char *what);

jnode *jparse_expression(jparser *p, bool conditional);
/* One expression, or a tuple when there are commas. stop: a name that ends it, or NULL. */
jnode *jparse_tuple(jparser *p, bool conditional, const char *stop, bool parentheses);
jnode *jparse_target(jparser *p, bool tuple, bool attribute);
/* Filters after |; inline_first: the first comes without it. node may be NULL. */
jnode *jparse_filters(jparser *p, jnode *node, bool inline_first);
jnode *jparse_template(jparser *p);

#endif
