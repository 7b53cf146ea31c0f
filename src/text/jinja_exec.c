/* jinja_exec.c: statements, loops, macros, and the front of rendering. */
#include <locale.h>
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_tree.h"

/* Runs a body with its output caught as a string. */
static jval capture(jrun *r, jscope *s, const jnode *body) {
    jsink text = {0}, *outer = r->out;
    r->out = &text;
    jinja_exec(r, s, body);
    r->out = outer;
    return jinja_sink_str(r, &text);
}

/* ---- loops ---- */

/* The next item that passes the loop's `if`; the test runs when its item is needed, as a template may change what it reads. */
static bool pull(jrun *r, jloop *l, jval *item) {
    while (!l->ended && jinja_next(r, &l->it, item)) {
        if (!l->test_scope) return true;
        if (l->test_scope->kept) l->test_scope = jinja_scope(r, l->scope);
        l->test_scope->n = 0;
        jinja_assign(r, l->test_scope, l->node->a, *item);
        if (jinja_truth(r, jinja_eval(r, l->test_scope, l->node->c))) return true;
    }
    l->ended = true;
    return false;
}

static jval peek(jrun *r, jloop *l) {
    if (l->after.kind == J_ABSENT && !pull(r, l, &l->after)) l->after = jval_of(J_ABSENT);
    return l->after;
}

static bool advance(jrun *r, jloop *l) {
    jval item;
    if (l->after.kind != J_ABSENT) {
        item = l->after;
        l->after = jval_of(J_ABSENT);
    } else if (!pull(r, l, &item)) {
        return false;
    }
    l->index0++;
    l->before = l->current;
    l->current = item;
    return true;
}

/* How many items there are in all; a loop with a test has to look at the rest now. */
static int64_t loop_length(jrun *r, jloop *l) {
    if (l->length != SIZE_MAX) return (int64_t)l->length;
    if (!l->test_scope && !(l->it.source.kind == J_LIST && l->it.source.l->view == JVIEW_STREAM)) {
        l->length = jinja_length(r, l->it.source);
        return (int64_t)l->length;
    }
    jlist *rest = jinja_list(r, 0);
    jval item;
    while (pull(r, l, &item)) jinja_append(r, rest, item);
    l->length = rest->n + (size_t)l->index0 + 1 + (l->after.kind != J_ABSENT);
    l->it = (jiter){.source = jval_list(rest)};
    l->ended = false;
    l->test_scope = NULL;
    return (int64_t)l->length;
}

jval jinja_loop_attribute(jrun *r, jloop *l, const jstr *name) {
    if (jstr_is(name, "index")) return jval_int(l->index0 + 1);
    if (jstr_is(name, "index0")) return jval_int(l->index0);
    if (jstr_is(name, "first")) return jval_bool(l->index0 == 0);
    if (jstr_is(name, "last")) return jval_bool(peek(r, l).kind == J_ABSENT);
    if (jstr_is(name, "length")) return jval_int(loop_length(r, l));
    if (jstr_is(name, "revindex")) return jval_int(loop_length(r, l) - l->index0);
    if (jstr_is(name, "revindex0")) return jval_int(loop_length(r, l) - l->index0 - 1);
    if (jstr_is(name, "depth")) return jval_int(l->depth0 + 1);
    if (jstr_is(name, "depth0")) return jval_int(l->depth0);
    if (jstr_is(name, "previtem")) return l->index0 == 0 ? jinja_undefined_hint(r, "there is no previous item") : l->before;
    if (jstr_is(name, "nextitem")) {
        jval next = peek(r, l);
        return next.kind == J_ABSENT ? jinja_undefined_hint(r, "there is no next item") : next;
    }
    return jval_of(J_ABSENT);
}

static jval loop_cycle(jrun *r, jval self, jargs *a) {
    if (a->npos == 0) jinja_fail(r, HEARTH_FORMAT, "no items for cycling given");
    return a->pos[(size_t)self.loop->index0 % a->npos];
}

static jval loop_changed(jrun *r, jval self, jargs *a) {
    jlist *now = jinja_list(r, a->npos);
    for (size_t i = 0; i < a->npos; i++) jinja_append(r, now, a->pos[i]);
    jval tuple = {.kind = J_TUPLE, .l = now};
    if (self.loop->changed.kind == J_TUPLE && jinja_equal(r, self.loop->changed, tuple)) return jval_bool(false);
    self.loop->changed = tuple;
    return jval_bool(true);
}

const jfunc jinja_loop_methods[] = {{"cycle", loop_cycle, "*", 0}, {"changed", loop_changed, "*", 0}, {0}};

static jflow run_loop(jrun *r, jscope *outer, const jnode *n, jval items, int64_t depth0) {
    jloop *l = jinja_alloc(r, 1, sizeof *l);
    *l = (jloop){.node = n, .scope = outer, .it = jinja_iter(r, items), .index0 = -1, .depth0 = depth0, .length = SIZE_MAX};
    if (n->c) l->test_scope = jinja_scope(r, outer);
    jscope *s = jinja_scope(r, outer);
    while (advance(r, l)) {
        if (s->kept) s = jinja_scope(r, outer);
        s->n = 0;
        jinja_bind(r, s, r->t->names.loop, (jval){.kind = J_LOOP, .loop = l});
        jinja_assign(r, s, n->a, l->current);
        if (jinja_exec(r, s, n->body) == JFLOW_BREAK) break;
    }
    if (l->index0 < 0 && n->more) return jinja_exec(r, jinja_scope(r, outer), n->more);
    return JFLOW_NEXT;
}

jval jinja_call_loop(jrun *r, jloop *l, jval items) {
    if (!l->node->flag) jinja_fail(r, HEARTH_FORMAT, "the loop must have the 'recursive' marker to be called recursively");
    jsink text = {0}, *outer = r->out;
    r->out = &text;
    run_loop(r, l->scope, l->node, items, l->depth0 + 1);
    r->out = outer;
    return jinja_sink_str(r, &text);
}

/* ---- macros ---- */

static jval make_macro(jrun *r, jscope *s, const jnode *n) {
    jmacro *m = jinja_alloc(r, 1, sizeof *m);
    *m = (jmacro){.node = n, .scope = s};
    for (jscope *k = s; k && !k->kept; k = k->parent) k->kept = true;
    return (jval){.kind = J_MACRO, .macro = m};
}

static bool same_name(const jstr *a, const jstr *b) { return a == b || (a->len == b->len && memcmp(a->data, b->data, a->len) == 0); }

static const char *macro_name(const jmacro *m, char out[80]) { return err_quote(out, 80, m->node->name->data, m->node->name->len); }

/* Keywords that are not parameters: caller, the rest for kwargs, or an error. */
static void bind_extra_keywords(jrun *r, jscope *s, const jmacro *m, const jargs *a) {
    const jnode *n = m->node;
    const jnames *names = &r->t->names;
    jdict *kwargs = jinja_dict(r);
    jval caller = jinja_undefined_hint(r, "No caller defined");
    bool has_caller_param = false;
    for (size_t p = 0; p < n->n; p++) has_caller_param |= n->list[p]->name == names->caller;
    for (size_t i = 0; i < a->nkw; i++) {
        const jkeyword *k = &a->kw[i];
        bool parameter = false;
        for (size_t p = a->npos; p < n->n && !parameter; p++) parameter = same_name(n->list[p]->name, k->name);
        if (parameter) continue;
        if ((n->uses & JUSE_CALLER) && !has_caller_param && same_name(k->name, names->caller)) {
            caller = k->value;
        } else if (n->uses & JUSE_KWARGS) {
            jinja_dict_set(r, kwargs, (jval){.kind = J_STR, .s = (jstr *)k->name}, k->value);
        } else {
            char own[80], other[80];
            jinja_fail(r, HEARTH_FORMAT, "macro '%s' takes no keyword argument '%s'", macro_name(m, own),
                       err_quote(other, sizeof other, k->name->data, k->name->len));
        }
    }
    if ((n->uses & JUSE_CALLER) && !has_caller_param) jinja_bind(r, s, names->caller, caller);
    if (n->uses & JUSE_KWARGS) jinja_bind(r, s, names->kwargs, jval_dict(kwargs));
}

static void bind_varargs(jrun *r, jscope *s, const jmacro *m, const jargs *a) {
    const jnode *n = m->node;
    if (!(n->uses & JUSE_VARARGS)) {
        char own[80];
        if (a->npos > n->n) jinja_fail(r, HEARTH_FORMAT, "macro '%s' takes not more than %zu argument(s)", macro_name(m, own), n->n);
        return;
    }
    jlist *rest = jinja_list(r, 0);
    for (size_t i = n->n; i < a->npos; i++) jinja_append(r, rest, a->pos[i]);
    jinja_bind(r, s, r->t->names.varargs, (jval){.kind = J_TUPLE, .l = rest});
}

static jval missing_parameter(jrun *r, const jstr *name) {
    jsink hint = {0};
    jinja_adds(r, &hint, "parameter '");
    jinja_add(r, &hint, name->data, name->len);
    jinja_add(r, &hint, "' was not provided", sizeof "' was not provided");
    return jinja_undefined_hint(r, hint.data);
}

jval jinja_call_macro(jrun *r, const jmacro *m, const jargs *a) {
    const jnode *n = m->node;
    jinja_check_stack(r);
    jinja_step(r, 1 + n->n * a->nkw / 8);
    jscope *s = jinja_scope(r, m->scope);
    bind_extra_keywords(r, s, m, a);
    bind_varargs(r, s, m, a);
    for (size_t p = 0; p < n->n; p++) {
        const jnode *param = n->list[p];
        jval v = jval_of(J_ABSENT);
        if (p < a->npos) v = a->pos[p];
        for (size_t i = 0; i < a->nkw && v.kind == J_ABSENT; i++)
            if (same_name(a->kw[i].name, param->name)) v = a->kw[i].value;
        if (v.kind == J_ABSENT) v = param->a ? jinja_eval(r, s, param->a) : missing_parameter(r, param->name);
        jinja_bind(r, s, param->name, v);
    }
    return capture(r, s, n->body);
}

jval jinja_macro_attribute(jrun *r, const jmacro *m, const jstr *name) {
    if (jstr_is(name, "name")) return (jval){.kind = J_STR, .s = (jstr *)m->node->name};
    if (jstr_is(name, "caller")) return jval_bool(m->node->uses & JUSE_CALLER);
    if (jstr_is(name, "catch_kwargs")) return jval_bool(m->node->uses & JUSE_KWARGS);
    if (jstr_is(name, "catch_varargs")) return jval_bool(m->node->uses & JUSE_VARARGS);
    if (!jstr_is(name, "arguments")) return jval_of(J_ABSENT);
    jlist *l = jinja_list(r, m->node->n);
    for (size_t i = 0; i < m->node->n; i++) jinja_append(r, l, (jval){.kind = J_STR, .s = (jstr *)m->node->list[i]->name});
    return (jval){.kind = J_TUPLE, .l = l};
}

/* ---- statements ---- */

static void print_items(jrun *r, jscope *s, const jnode *n) {
    for (size_t i = 0; i < n->n; i++) jinja_put_str(r, r->out, jinja_eval(r, s, n->list[i]));
}

static jflow run_if(jrun *r, jscope *s, const jnode *n) {
    for (size_t i = 0; i + 1 < n->n; i += 2)
        if (jinja_truth(r, jinja_eval(r, s, n->list[i]))) return jinja_exec(r, s, n->list[i + 1]);
    return n->more ? jinja_exec(r, s, n->more) : JFLOW_NEXT;
}

static void run_call_block(jrun *r, jscope *s, const jnode *n) {
    jkeyword caller = {.name = r->t->names.caller, .value = make_macro(r, s, n->more)};
    jinja_put_str(r, r->out, jinja_eval_call(r, s, n->a, &caller));
}

/* All values are computed before any name is bound. */
static jflow run_with(jrun *r, jscope *outer, const jnode *n) {
    jscope *s = jinja_scope(r, outer);
    jlist *values = jinja_list(r, n->n / 2);
    for (size_t i = 0; i + 1 < n->n; i += 2) jinja_append(r, values, jinja_eval(r, outer, n->list[i + 1]));
    for (size_t i = 0; i + 1 < n->n; i += 2) jinja_assign(r, s, n->list[i], values->v[i / 2]);
    return jinja_exec(r, s, n->body);
}

static jflow run_statement(jrun *r, jscope *s, const jnode *n) {
    r->line = n->line;
    switch (n->kind) {
    case N_BODY:
        return jinja_exec(r, n->flag ? jinja_scope(r, s) : s, n);
    case N_TEXT:
        jinja_put_str(r, r->out, n->value);
        return JFLOW_NEXT;
    case N_PRINT:
        print_items(r, s, n);
        return JFLOW_NEXT;
    case N_FOR:
        return run_loop(r, s, n, jinja_eval(r, s, n->b), 0);
    case N_IF:
        return run_if(r, s, n);
    case N_SET:
        jinja_assign(r, s, n->a, jinja_eval(r, s, n->b));
        return JFLOW_NEXT;
    case N_SET_BLOCK:
        jinja_assign(r, s, n->a, jinja_eval_filters(r, s, n->b, capture(r, jinja_scope(r, s), n->body)));
        return JFLOW_NEXT;
    case N_MACRO:
        jinja_bind(r, s, n->name, make_macro(r, s, n));
        return JFLOW_NEXT;
    case N_CALL_BLOCK:
        run_call_block(r, s, n);
        return JFLOW_NEXT;
    case N_FILTER_BLOCK:
        jinja_put_str(r, r->out, jinja_eval_filters(r, s, n->a, capture(r, jinja_scope(r, s), n->body)));
        return JFLOW_NEXT;
    case N_WITH:
        return run_with(r, s, n);
    case N_BREAK:
        return JFLOW_BREAK;
    case N_CONTINUE:
        return JFLOW_CONTINUE;
    default:
        jinja_eval(r, s, n->a);
        return JFLOW_NEXT;
    }
}

jflow jinja_exec(jrun *r, jscope *s, const jnode *n) {
    jinja_check_stack(r);
    for (size_t i = 0; i < n->n; i++) {
        jinja_step(r, 1);
        jflow flow = run_statement(r, s, n->list[i]);
        if (flow != JFLOW_NEXT) return flow;
    }
    return JFLOW_NEXT;
}

/* ---- the front ---- */

static bool render_run(jrun *r, jsink *out) {
    jmp_buf fail;
    r->fail = &fail;
    r->stack = __builtin_frame_address(0);
    if (setjmp(fail)) return false;
    r->out = out;
    r->context = jinja_scope(r, NULL);
    jinja_exec(r, jinja_scope(r, r->context), r->t->root);
    return true;
}

bool jinja_render(const jinja *t, const json_t *variables, const struct tm *now, buf *out, err *e) {
    jrun r = {.e = e, .t = t, .variables = json_is_object(variables) ? variables : NULL, .now = now};
    jsink text = {0};
    /* Numbers and names of days must not follow the program's language. */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = plain ? uselocale(plain) : (locale_t)0;
    bool ok = render_run(&r, &text) && buf_add(out, text.data ? text.data : "", text.len, e);
    if (plain) uselocale(before), freelocale(plain);
    jinja_release(r.chunks);
    return ok;
}
