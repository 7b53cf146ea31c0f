/* jinja_call.c: calling things, binding arguments to the rows of tables, and the global functions. */
#include <stdio.h>
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_tree.h"
#include "text/jinja_unicode.h"

const jfunc *jinja_find(const jfunc *table, const char *name, size_t len) {
    const jstr s = {.data = name, .len = len};
    for (; table->name; table++)
        if (jstr_is(&s, table->name)) return table;
    return NULL;
}

/* ---- arguments ---- */

/* Position of the name in "a b c", -1 when it is not there. */
static int param_index(const char *params, const jstr *name) {
    for (int i = 0; *params; i++) {
        size_t n = strcspn(params, " ");
        if (n == name->len && memcmp(params, name->data, n) == 0) return i;
        params += n + (params[n] == ' ');
    }
    return -1;
}

static size_t param_count(const char *params) {
    size_t n = *params != 0;
    for (; *params; params++) n += *params == ' ';
    return n;
}

jval jinja_apply(jrun *r, const jfunc *f, jval self, jargs *a) {
    if (f->params[0] == '*') return f->call(r, self, a);
    size_t n = param_count(f->params);
    if (a->npos > n) jinja_fail(r, HEARTH_FORMAT, "%s takes at most %zu argument(s), not %zu", f->name, n, a->npos);
    for (size_t i = 0; i < JINJA_MAX_PARAMS; i++) a->slot[i] = i < a->npos ? a->pos[i] : jval_of(J_ABSENT);
    for (size_t i = 0; i < a->nkw; i++) {
        int at = param_index(f->params, a->kw[i].name);
        if (at < 0 || a->slot[at].kind != J_ABSENT) {
            char quoted[80];
            jinja_fail(r, HEARTH_FORMAT, "%s does not take the argument '%s'%s", f->name,
                       err_quote(quoted, sizeof quoted, a->kw[i].name->data, a->kw[i].name->len), at < 0 ? "" : " twice");
        }
        a->slot[at] = a->kw[i].value;
    }
    for (int i = 0; i < f->required; i++)
        if (a->slot[i].kind == J_ABSENT) jinja_fail(r, HEARTH_FORMAT, "%s needs %d argument(s): %s", f->name, f->required, f->params);
    return f->call(r, self, a);
}

bool jarg_bool(jrun *r, jval v, bool otherwise) { return v.kind == J_ABSENT ? otherwise : jinja_truth(r, v); }

int64_t jarg_int(jrun *r, jval v, int64_t otherwise) {
    if (v.kind == J_ABSENT) return otherwise;
    jinja_need_defined(r, v);
    if (!jinja_is_int(v)) jinja_fail(r, HEARTH_FORMAT, "'%s' object cannot be interpreted as an integer", jinja_type_name(v));
    return jinja_int(v);
}

const jstr *jarg_str(jrun *r, jval v, const char *what) {
    if (v.kind == J_ABSENT) return NULL;
    jinja_need_defined(r, v);
    if (v.kind != J_STR) jinja_fail(r, HEARTH_FORMAT, "%s must be a string, not %s", what, jinja_type_name(v));
    return v.s;
}

/* ---- calls ---- */

bool jinja_callable(jval v) {
    switch (v.kind) {
    case J_UNDEFINED: /* as in jinja2, where calling it is what fails */
    case J_MACRO:
    case J_LOOP:
    case J_FUNC:
    case J_METHOD:
    case J_JOINER:
        return true;
    default:
        return false;
    }
}

jval jinja_call(jrun *r, jval f, jargs *a) {
    jinja_check_stack(r);
    jinja_need_defined(r, f);
    switch (f.kind) {
    case J_MACRO:
        return jinja_call_macro(r, f.macro, a);
    case J_FUNC:
        return jinja_apply(r, f.func, jval_of(J_NONE), a);
    case J_METHOD:
        return jinja_apply(r, f.method->func, f.method->self, a);
    case J_LOOP:
        if (a->npos != 1 || a->nkw) jinja_fail(r, HEARTH_FORMAT, "loop() takes the items to go through");
        return jinja_call_loop(r, f.loop, a->pos[0]);
    case J_JOINER: {
        bool used = f.joiner->used;
        f.joiner->used = true;
        return used ? f.joiner->separator : jinja_text(r, "");
    }
    default:
        jinja_fail(r, HEARTH_FORMAT, "'%s' object is not callable", jinja_type_name(f));
    }
}

/* ---- global functions ---- */

static jval global_range(jrun *r, jval self, jargs *a) {
    (void)self;
    int64_t start = 0, stop = jarg_int(r, a->slot[0], 0), step = jarg_int(r, a->slot[2], 1);
    if (a->slot[1].kind != J_ABSENT) {
        start = stop;
        stop = jarg_int(r, a->slot[1], 0);
    }
    if (step == 0) jinja_fail(r, HEARTH_FORMAT, "range() arg 3 must not be zero");
    uint64_t n = 0, stride = step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
    if (step > 0 && stop > start) n = ((uint64_t)stop - (uint64_t)start - 1) / stride + 1;
    if (step < 0 && stop < start) n = ((uint64_t)start - (uint64_t)stop - 1) / stride + 1;
    if (n > JINJA_MAX_RANGE) jinja_fail(r, HEARTH_LIMIT, "a range may have at most %d items", JINJA_MAX_RANGE);
    jrange *g = jinja_alloc(r, 1, sizeof *g);
    *g = (jrange){.start = start, .stop = stop, .step = step, .n = n};
    return (jval){.kind = J_RANGE, .range = g};
}

/* dict(mapping or pairs, name=value, ...). */
static jdict *make_dict(jrun *r, const jargs *a, const char *what) {
    jdict *d = jinja_dict(r);
    if (a->npos > 1) jinja_fail(r, HEARTH_FORMAT, "%s takes at most 1 argument by position", what);
    if (a->npos == 1 && a->pos[0].kind == J_DICT) {
        const jdict *from = a->pos[0].d;
        for (size_t i = 0; i < from->n; i++) jinja_dict_set(r, d, from->e[i].key, from->e[i].value);
    } else if (a->npos == 1) {
        jiter it = jinja_iter(r, a->pos[0]);
        jval pair;
        while (jinja_next(r, &it, &pair)) {
            jlist *l = jinja_to_list(r, pair);
            if (l->n != 2) jinja_fail(r, HEARTH_FORMAT, "%s needs pairs of key and value", what);
            jinja_dict_set(r, d, l->v[0], l->v[1]);
        }
    }
    for (size_t i = 0; i < a->nkw; i++) jinja_dict_set(r, d, (jval){.kind = J_STR, .s = (jstr *)a->kw[i].name}, a->kw[i].value);
    return d;
}

static jval global_dict(jrun *r, jval self, jargs *a) {
    (void)self;
    return jval_dict(make_dict(r, a, "dict"));
}

static jval global_namespace(jrun *r, jval self, jargs *a) {
    (void)self;
    return (jval){.kind = J_NAMESPACE, .d = make_dict(r, a, "namespace")};
}

static jval global_cycler(jrun *r, jval self, jargs *a) {
    (void)self;
    if (a->npos == 0 || a->nkw) jinja_fail(r, HEARTH_FORMAT, "cycler needs at least one item");
    jcycler *c = jinja_alloc(r, 1, sizeof *c);
    *c = (jcycler){.items = jinja_list(r, a->npos)};
    for (size_t i = 0; i < a->npos; i++) jinja_append(r, c->items, a->pos[i]);
    return (jval){.kind = J_CYCLER, .cycler = c};
}

static jval cycler_next(jrun *r, jval self, jargs *a) {
    (void)r, (void)a;
    jcycler *c = self.cycler;
    jval v = c->items->v[c->at];
    c->at = (c->at + 1) % c->items->n;
    return v;
}

static jval cycler_reset(jrun *r, jval self, jargs *a) {
    (void)r, (void)a;
    self.cycler->at = 0;
    return jval_of(J_NONE);
}

const jfunc jinja_cycler_methods[] = {{"next", cycler_next, "", 0}, {"reset", cycler_reset, "", 0}, {0}};

static jval global_joiner(jrun *r, jval self, jargs *a) {
    (void)self;
    jjoiner *j = jinja_alloc(r, 1, sizeof *j);
    *j = (jjoiner){.separator = a->slot[0].kind == J_ABSENT ? jinja_text(r, ", ") : a->slot[0]};
    return (jval){.kind = J_JOINER, .joiner = j};
}

static jval global_raise_exception(jrun *r, jval self, jargs *a) {
    (void)self;
    jinja_raise(r, jinja_to_str(r, a->slot[0]).s);
}

static jval global_strftime_now(jrun *r, jval self, jargs *a) {
    (void)self;
    const jstr *format = jarg_str(r, a->slot[0], "the format of strftime_now");
    if (format->len > 4096 || memchr(format->data, 0, format->len))
        jinja_fail(r, HEARTH_FORMAT, "the format of strftime_now is not sensible");
    /* A blank at the end tells an empty result from one that does not fit. */
    size_t cap = (size_t)16 << 10;
    char *text = jinja_alloc(r, cap, 1), *copy = jinja_alloc(r, format->len + 2, 1);
    memcpy(copy, format->data, format->len);
    memcpy(copy + format->len, " ", 2);
    size_t n = r->now ? strftime(text, cap, copy, r->now) : 0;
    if (n == 0) jinja_fail(r, HEARTH_FORMAT, r->now ? "the result of strftime_now is too long" : "strftime_now has no clock here");
    if (!uni_valid(text, n)) jinja_fail(r, HEARTH_FORMAT, "the format of strftime_now is not sensible");
    return jinja_str(r, text, n - 1);
}

static const jfunc globals[] = {
    {"range", global_range, "start stop step", 1},
    {"dict", global_dict, "*", 0},
    {"namespace", global_namespace, "*", 0},
    {"cycler", global_cycler, "*", 0},
    {"joiner", global_joiner, "sep", 0},
    {"raise_exception", global_raise_exception, "message", 1},
    {"strftime_now", global_strftime_now, "format", 1},
    {0},
};

const jfunc *jinja_find_global(const jstr *name) { return jinja_find(globals, name->data, name->len); }
