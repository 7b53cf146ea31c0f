/* jinja_methods_list.c: the methods of Python's list, tuple, dict and range. */
#include <string.h>

#include "text/jinja_filters.h"

/* ---- list, tuple and range ---- */

void jinja_reverse(jlist *l) {
    for (size_t i = 0; i < l->n / 2; i++) {
        jval v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

static jval method_append(jrun *r, jval self, jargs *a) {
    jinja_append(r, self.l, a->slot[0]);
    return jval_of(J_NONE);
}

static jval method_extend(jrun *r, jval self, jargs *a) {
    jlist *more = jinja_to_list(r, a->slot[0]); /* a copy: it may be the list itself */
    for (size_t i = 0; i < more->n; i++) jinja_append(r, self.l, more->v[i]);
    return jval_of(J_NONE);
}

static jval method_insert(jrun *r, jval self, jargs *a) {
    jlist *l = self.l;
    int64_t at = jarg_int(r, a->slot[0], 0), n = (int64_t)l->n;
    if (at < 0) at = at < -n ? 0 : at + n;
    if (at > n) at = n;
    jinja_step(r, 1 + (size_t)(n - at) / 8);
    jinja_append(r, l, jval_of(J_NONE));
    memmove(l->v + at + 1, l->v + at, (size_t)(n - at) * sizeof *l->v);
    l->v[at] = a->slot[1];
    return jval_of(J_NONE);
}

static jval take_at(jrun *r, jlist *l, size_t at) {
    jval v = l->v[at];
    jinja_step(r, 1 + (l->n - at) / 8);
    memmove(l->v + at, l->v + at + 1, (l->n - at - 1) * sizeof *l->v);
    l->n--;
    return v;
}

static jval method_pop(jrun *r, jval self, jargs *a) {
    int64_t at = jarg_int(r, a->slot[0], -1), n = (int64_t)self.l->n;
    if (n == 0) jinja_fail(r, HEARTH_FORMAT, "pop from empty list");
    if (at < 0) at += n;
    if (at < 0 || at >= n) jinja_fail(r, HEARTH_FORMAT, "pop index out of range");
    return take_at(r, self.l, (size_t)at);
}

static size_t position(jrun *r, jval self, jval v) {
    jiter it = jinja_iter(r, self);
    jval item;
    for (size_t i = 0; jinja_next(r, &it, &item); i++)
        if (jinja_equal(r, item, v)) return i;
    return SIZE_MAX;
}

static jval method_remove(jrun *r, jval self, jargs *a) {
    size_t at = position(r, self, a->slot[0]);
    if (at == SIZE_MAX) jinja_fail(r, HEARTH_FORMAT, "list.remove(x): x not in list");
    take_at(r, self.l, at);
    return jval_of(J_NONE);
}

static jval method_list_clear(jrun *r, jval self, jargs *a) {
    (void)r, (void)a;
    self.l->n = 0;
    return jval_of(J_NONE);
}

static jval method_reverse(jrun *r, jval self, jargs *a) {
    (void)a;
    jinja_step(r, self.l->n);
    jinja_reverse(self.l);
    return jval_of(J_NONE);
}

static jval itself(jrun *r, const void *context, jval item) {
    (void)r, (void)context;
    return item;
}

static jval method_sort(jrun *r, jval self, jargs *a) {
    jinja_sort(r, self.l, itself, NULL, jarg_bool(r, a->slot[0], false));
    return jval_of(J_NONE);
}

static jval method_list_copy(jrun *r, jval self, jargs *a) {
    (void)a;
    return jval_list(jinja_to_list(r, self));
}

static jval method_list_count(jrun *r, jval self, jargs *a) {
    jiter it = jinja_iter(r, self);
    jval item;
    int64_t n = 0;
    while (jinja_next(r, &it, &item)) n += jinja_equal(r, item, a->slot[0]);
    return jval_int(n);
}

static jval method_list_index(jrun *r, jval self, jargs *a) {
    size_t at = position(r, self, a->slot[0]);
    if (at == SIZE_MAX) jinja_fail(r, HEARTH_FORMAT, "the value is not in the %s", jinja_type_name(self));
    return jval_int((int64_t)at);
}

const jfunc jinja_list_methods[] = {
    {"append", method_append, "object", 1},       {"clear", method_list_clear, "", 0},      {"copy", method_list_copy, "", 0},
    {"count", method_list_count, "value", 1},     {"extend", method_extend, "iterable", 1}, {"index", method_list_index, "value", 1},
    {"insert", method_insert, "index object", 2}, {"pop", method_pop, "index", 0},          {"remove", method_remove, "value", 1},
    {"reverse", method_reverse, "", 0},           {"sort", method_sort, "reverse", 0},      {0},
};

const jfunc jinja_tuple_methods[] = {{"count", method_list_count, "value", 1}, {"index", method_list_index, "value", 1}, {0}};
const jfunc jinja_range_methods[] = {{"count", method_list_count, "value", 1}, {"index", method_list_index, "value", 1}, {0}};

/* ---- dict ---- */

static jval method_get(jrun *r, jval self, jargs *a) {
    const jval *v = jinja_dict_get(r, self.d, a->slot[0]);
    if (v) return *v;
    return a->slot[1].kind == J_ABSENT ? jval_of(J_NONE) : a->slot[1];
}

static jval view_of(jrun *r, const jdict *d, jview view) {
    jlist *l = jinja_list(r, d->n);
    jinja_step(r, d->n);
    l->view = view;
    for (size_t i = 0; i < d->n; i++) {
        const jentry *e = &d->e[i];
        jinja_append(r, l, view == JVIEW_KEYS ? e->key : view == JVIEW_VALUES ? e->value : jinja_pair(r, e->key, e->value));
    }
    return jval_list(l);
}

static jval method_keys(jrun *r, jval self, jargs *a) {
    (void)a;
    return view_of(r, self.d, JVIEW_KEYS);
}

static jval method_values(jrun *r, jval self, jargs *a) {
    (void)a;
    return view_of(r, self.d, JVIEW_VALUES);
}

static jval method_items(jrun *r, jval self, jargs *a) {
    (void)a;
    return view_of(r, self.d, JVIEW_ITEMS);
}

static jval method_dict_pop(jrun *r, jval self, jargs *a) {
    const jval *found = jinja_dict_get(r, self.d, a->slot[0]);
    if (!found) {
        if (a->slot[1].kind == J_ABSENT) jinja_fail(r, HEARTH_FORMAT, "pop: the dict has no such key");
        return a->slot[1];
    }
    jval v = *found;
    jinja_dict_remove(r, self.d, a->slot[0]);
    return v;
}

static jval method_popitem(jrun *r, jval self, jargs *a) {
    (void)a;
    if (self.d->n == 0) jinja_fail(r, HEARTH_FORMAT, "popitem(): dictionary is empty");
    const jentry *e = &self.d->e[self.d->n - 1];
    jval pair = jinja_pair(r, e->key, e->value);
    jinja_dict_remove(r, self.d, e->key);
    return pair;
}

static jval method_setdefault(jrun *r, jval self, jargs *a) {
    const jval *found = jinja_dict_get(r, self.d, a->slot[0]);
    if (found) return *found;
    jval v = a->slot[1].kind == J_ABSENT ? jval_of(J_NONE) : a->slot[1];
    jinja_dict_set(r, self.d, a->slot[0], v);
    return v;
}

static jval method_update(jrun *r, jval self, jargs *a) {
    if (a->npos > 1 || (a->npos == 1 && a->pos[0].kind != J_DICT)) jinja_fail(r, HEARTH_FORMAT, "update takes a dict and keywords");
    const jdict *from = a->npos ? a->pos[0].d : NULL;
    for (size_t i = 0; from && i < from->n; i++) jinja_dict_set(r, self.d, from->e[i].key, from->e[i].value);
    for (size_t i = 0; i < a->nkw; i++) jinja_dict_set(r, self.d, (jval){.kind = J_STR, .s = (jstr *)a->kw[i].name}, a->kw[i].value);
    return jval_of(J_NONE);
}

static jval method_dict_clear(jrun *r, jval self, jargs *a) {
    (void)r, (void)a;
    self.d->n = 0;
    self.d->index = NULL;
    return jval_of(J_NONE);
}

static jval method_dict_copy(jrun *r, jval self, jargs *a) {
    (void)a;
    jdict *d = jinja_dict(r);
    for (size_t i = 0; i < self.d->n; i++) jinja_dict_set(r, d, self.d->e[i].key, self.d->e[i].value);
    return jval_dict(d);
}

const jfunc jinja_dict_methods[] = {
    {"clear", method_dict_clear, "", 0},
    {"copy", method_dict_copy, "", 0},
    {"get", method_get, "key default", 1},
    {"items", method_items, "", 0},
    {"keys", method_keys, "", 0},
    {"pop", method_dict_pop, "key default", 1},
    {"popitem", method_popitem, "", 0},
    {"setdefault", method_setdefault, "key default", 1},
    {"update", method_update, "*", 0},
    {"values", method_values, "", 0},
    {0},
};
