/* jinja_eval.c: expressions: names, operators, attributes, calls, filters and tests. */
#include <string.h>

#include "text/jinja_tree.h"
#include "text/jinja_unicode.h"

/* ---- names ---- */

jscope *jinja_scope(jrun *r, jscope *parent) {
    jscope *s = jinja_alloc(r, 1, sizeof *s);
    *s = (jscope){.parent = parent};
    return s;
}

static jval *find_binding(jscope *s, const jstr *name) {
    for (size_t i = 0; i < s->n; i++)
        if (s->b[i].name == name) return &s->b[i].value;
    return NULL;
}

void jinja_bind(jrun *r, jscope *s, const jstr *name, jval v) {
    jinja_step(r, s->n / 8);
    jval *old = find_binding(s, name);
    if (old) {
        *old = v;
        return;
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        s->b = jinja_grow(r, s->b, s->cap, cap, sizeof *s->b);
        s->cap = cap;
    }
    s->b[s->n++] = (jbinding){.name = name, .value = v};
}

static json_t *find_variable(jrun *r, const jstr *name) {
    return r->variables ? json_object_getn(r->variables, name->data, name->len) : NULL;
}

jval jinja_lookup(jrun *r, jscope *s, const jstr *name) {
    for (; s; s = s->parent) {
        jinja_step(r, s->n / 8);
        jval *v = find_binding(s, name);
        if (v) return *v;
    }
    json_t *variable = find_variable(r, name);
    const jfunc *global = variable ? NULL : jinja_find_global(name);
    if (!variable && !global) return jinja_undefined_name(r, name);
    jval v = variable ? jinja_from_json(r, variable) : (jval){.kind = J_FUNC, .func = global};
    jinja_bind(r, r->context, name, v);
    return v;
}

static void unpack(jrun *r, jscope *s, const jnode *targets, jval v) {
    jval items[8], *got = targets->n <= 8 ? items : jinja_alloc(r, targets->n, sizeof *got), more;
    jiter it = jinja_iter(r, v);
    size_t n = 0;
    while (n < targets->n && jinja_next(r, &it, &got[n])) n++;
    if (n < targets->n) jinja_fail(r, HEARTH_FORMAT, "not enough values to unpack (expected %zu, got %zu)", targets->n, n);
    if (jinja_next(r, &it, &more)) jinja_fail(r, HEARTH_FORMAT, "too many values to unpack (expected %zu)", targets->n);
    for (size_t i = 0; i < n; i++) jinja_assign(r, s, targets->list[i], got[i]);
}

void jinja_assign(jrun *r, jscope *s, const jnode *target, jval v) {
    if (target->kind == N_NAME) {
        jinja_bind(r, s, target->name, v);
        return;
    }
    jinja_check_stack(r);
    if (target->kind == N_TUPLE) {
        unpack(r, s, target, v);
        return;
    }
    jval ns = jinja_lookup(r, s, target->name);
    jinja_need_defined(r, ns);
    if (ns.kind != J_NAMESPACE) jinja_fail(r, HEARTH_FORMAT, "cannot assign attribute on non-namespace object");
    jinja_dict_set(r, ns.d, target->value, v);
}

/* ---- calls ---- */

/* The arguments of one call: a few on the C stack, more in the arena. */
typedef struct arguments {
    jval pos[6];
    jkeyword kw[3];
    jlist *more_pos;
    jargs a;
    size_t kw_cap;
    jkeyword *kws;
} arguments;

static void add_positional(jrun *r, arguments *g, jval v) {
    if (!g->more_pos && g->a.npos < sizeof g->pos / sizeof *g->pos) {
        g->pos[g->a.npos++] = v;
        return;
    }
    if (!g->more_pos) {
        g->more_pos = jinja_list(r, g->a.npos * 2);
        for (size_t i = 0; i < g->a.npos; i++) jinja_append(r, g->more_pos, g->pos[i]);
    }
    jinja_append(r, g->more_pos, v);
    g->a.npos++;
}

static void add_keyword(jrun *r, arguments *g, const jstr *name, jval v) {
    for (size_t i = 0; i < g->a.nkw; i++)
        if (g->kws[i].name->len == name->len && memcmp(g->kws[i].name->data, name->data, name->len) == 0)
            jinja_fail(r, HEARTH_FORMAT, "got multiple values for keyword argument '%.*s'", (int)(name->len < 60 ? name->len : 60),
                       name->data);
    jinja_step(r, g->a.nkw / 8);
    if (g->a.nkw == g->kw_cap) {
        size_t cap = g->kw_cap * 2;
        jkeyword *kws = jinja_alloc(r, cap, sizeof *kws);
        memcpy(kws, g->kws, g->a.nkw * sizeof *kws);
        g->kws = kws;
        g->kw_cap = cap;
    }
    g->kws[g->a.nkw++] = (jkeyword){.name = name, .value = v};
}

static void add_spread(jrun *r, arguments *g, jval v) {
    jiter it = jinja_iter(r, v);
    jval item;
    while (jinja_next(r, &it, &item)) add_positional(r, g, item);
}

static void add_spread2(jrun *r, arguments *g, jval v) {
    if (v.kind != J_DICT) jinja_fail(r, HEARTH_FORMAT, "argument after ** must be a mapping, not %s", jinja_type_name(v));
    for (size_t i = 0; i < v.d->n; i++) {
        if (v.d->e[i].key.kind != J_STR) jinja_fail(r, HEARTH_FORMAT, "keywords must be strings");
        add_keyword(r, g, v.d->e[i].key.s, v.d->e[i].value);
    }
}

static jargs *evaluate_arguments(jrun *r, jscope *s, const jnode *n, const jkeyword *extra, arguments *g) {
    g->more_pos = NULL;
    g->kws = g->kw;
    g->kw_cap = sizeof g->kw / sizeof *g->kw;
    g->a.npos = g->a.nkw = 0;
    for (size_t i = 0; i < n->n; i++) {
        const jnode *arg = n->list[i];
        switch (arg->kind) {
        case N_KEYWORD:
            add_keyword(r, g, arg->name, jinja_eval(r, s, arg->a));
            break;
        case N_SPREAD:
            add_spread(r, g, jinja_eval(r, s, arg->a));
            break;
        case N_SPREAD2:
            add_spread2(r, g, jinja_eval(r, s, arg->a));
            break;
        default:
            add_positional(r, g, jinja_eval(r, s, arg));
        }
    }
    if (extra) add_keyword(r, g, extra->name, extra->value);
    g->a.pos = g->more_pos ? g->more_pos->v : g->pos;
    g->a.kw = g->kws;
    r->line = n->line;
    return &g->a;
}

jval jinja_eval_call(jrun *r, jscope *s, const jnode *n, const jkeyword *extra) {
    arguments g;
    jval callee, self = jval_of(J_ABSENT);
    const jfunc *method = NULL;
    if (n->a->kind == N_ATTR) { /* a method is called without making a value of it */
        self = jinja_eval(r, s, n->a->a);
        r->line = n->a->line;
        method = jinja_find_method(self, n->a->name);
        if (!method) callee = jinja_attribute(r, self, n->a->name);
    } else {
        callee = jinja_eval(r, s, n->a);
    }
    jargs *a = evaluate_arguments(r, s, n, extra, &g);
    return method ? jinja_apply(r, method, self, a) : jinja_call(r, callee, a);
}

static _Noreturn void unknown(jrun *r, const char *what, const jstr *name) {
    char quoted[100];
    jinja_fail(r, HEARTH_FORMAT, "no %s named '%s'", what, err_quote(quoted, sizeof quoted, name->data, name->len));
}

static jval apply_filter(jrun *r, jscope *s, const jnode *n, jval self) {
    arguments g;
    r->line = n->line;
    if (!n->func) unknown(r, "filter", n->name);
    return jinja_apply(r, n->func, self, evaluate_arguments(r, s, n, NULL, &g));
}

static bool evaluate_test(jrun *r, jscope *s, const jnode *n) {
    arguments g;
    jval self = jinja_eval(r, s, n->a);
    r->line = n->line;
    if (!n->func) unknown(r, "test", n->name);
    return jinja_truth(r, jinja_apply(r, n->func, self, evaluate_arguments(r, s, n, NULL, &g)));
}

jval jinja_eval_filters(jrun *r, jscope *s, const jnode *n, jval text) {
    if (!n) return text;
    jinja_check_stack(r);
    return apply_filter(r, s, n, jinja_eval_filters(r, s, n->a, text));
}

/* ---- the rest ---- */

static bool evaluate_compare(jrun *r, jscope *s, const jnode *n) {
    jval left = jinja_eval(r, s, n->a);
    for (size_t i = 0; i < n->n; i++) {
        jval right = jinja_eval(r, s, n->list[i]->a);
        r->line = n->list[i]->line;
        if (!jinja_compare(r, (jcompare)n->list[i]->op, left, right)) return false;
        left = right;
    }
    return true;
}

static jval evaluate_concat(jrun *r, jscope *s, const jnode *n) {
    jval text = jinja_to_str(r, jinja_eval(r, s, n->list[0]));
    for (size_t i = 1; i < n->n; i++) text = jinja_concat(r, text, jinja_to_str(r, jinja_eval(r, s, n->list[i])));
    text.safe = false;
    return text;
}

static jval evaluate_items(jrun *r, jscope *s, const jnode *n) {
    jlist *l = jinja_list(r, n->n);
    for (size_t i = 0; i < n->n; i++) jinja_append(r, l, jinja_eval(r, s, n->list[i]));
    return (jval){.kind = n->kind == N_TUPLE ? J_TUPLE : J_LIST, .l = l};
}

static jval evaluate_dict(jrun *r, jscope *s, const jnode *n) {
    jdict *d = jinja_dict(r);
    for (size_t i = 0; i + 1 < n->n; i += 2) {
        jval key = jinja_eval(r, s, n->list[i]);
        jinja_dict_set(r, d, key, jinja_eval(r, s, n->list[i + 1]));
    }
    return jval_dict(d);
}

static jval evaluate_slice(jrun *r, jscope *s, const jnode *n) {
    jval v = jinja_eval(r, s, n->a), part[3];
    for (int i = 0; i < 3; i++) part[i] = n->list[i] ? jinja_eval(r, s, n->list[i]) : jval_of(J_NONE);
    r->line = n->line;
    return jinja_slice(r, v, part[0], part[1], part[2]);
}

static jval evaluate_binary(jrun *r, jscope *s, const jnode *n) {
    jval a = jinja_eval(r, s, n->a), b = jinja_eval(r, s, n->b);
    r->line = n->line;
    return jinja_binary(r, (jop)n->op, a, b);
}

static jval evaluate_member(jrun *r, jscope *s, const jnode *n) {
    jval v = jinja_eval(r, s, n->a);
    if (n->kind == N_ATTR) {
        r->line = n->line;
        return jinja_attribute(r, v, n->name);
    }
    jval key = jinja_eval(r, s, n->b);
    r->line = n->line;
    return jinja_item(r, v, key);
}

static jval evaluate_sign(jrun *r, jscope *s, const jnode *n) {
    jval v = jinja_eval(r, s, n->a);
    r->line = n->line;
    if (n->kind == N_NEG) return jinja_negate(r, v);
    jinja_need_defined(r, v);
    if (!jinja_is_number(v)) jinja_fail(r, HEARTH_FORMAT, "bad operand type for unary +: '%s'", jinja_type_name(v));
    return v.kind == J_BOOL ? jval_int(v.b) : v;
}

static jval evaluate_condition(jrun *r, jscope *s, const jnode *n) {
    if (jinja_truth(r, jinja_eval(r, s, n->b))) return jinja_eval(r, s, n->a);
    if (n->c) return jinja_eval(r, s, n->c);
    return jinja_undefined_hint(r, "the inline if-expression evaluated to false and no else section was defined");
}

jval jinja_eval(jrun *r, jscope *s, const jnode *n) {
    jinja_step(r, 1);
    jinja_check_stack(r);
    switch (n->kind) {
    case N_CONST:
        return n->value;
    case N_NAME:
        r->line = n->line;
        return jinja_lookup(r, s, n->name);
    case N_TUPLE:
    case N_LIST:
        return evaluate_items(r, s, n);
    case N_DICT:
        return evaluate_dict(r, s, n);
    case N_COND:
        return evaluate_condition(r, s, n);
    case N_OR: {
        jval v = jinja_eval(r, s, n->a);
        return jinja_truth(r, v) ? v : jinja_eval(r, s, n->b);
    }
    case N_AND: {
        jval v = jinja_eval(r, s, n->a);
        return jinja_truth(r, v) ? jinja_eval(r, s, n->b) : v;
    }
    case N_NOT:
        return jval_bool(!jinja_truth(r, jinja_eval(r, s, n->a)));
    case N_COMPARE:
        return jval_bool(evaluate_compare(r, s, n));
    case N_BINARY:
        return evaluate_binary(r, s, n);
    case N_CONCAT:
        return evaluate_concat(r, s, n);
    case N_NEG:
    case N_POS:
        return evaluate_sign(r, s, n);
    case N_ATTR:
    case N_ITEM:
        return evaluate_member(r, s, n);
    case N_SLICE:
        return evaluate_slice(r, s, n);
    case N_CALL:
        return jinja_eval_call(r, s, n, NULL);
    case N_FILTER:
        return apply_filter(r, s, n, jinja_eval(r, s, n->a));
    case N_TEST:
        return jval_bool(evaluate_test(r, s, n));
    default:
        jinja_fail(r, HEARTH_FORMAT, "this expression has no value");
    }
}
