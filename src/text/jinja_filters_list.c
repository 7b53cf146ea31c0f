/* jinja_filters_list.c: filters over sequences and mappings, and the sort they share. */
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_unicode.h"

/* ---- attribute="a.b.0" ---- */

static jval digits_or_text(jrun *r, const char *s, size_t len) {
    jval text = jinja_str(r, s, len);
    int64_t i;
    for (size_t k = 0; k < len; k++)
        if (s[k] < '0' || s[k] > '9') return text;
    return jinja_parse_int(text.s, 10, &i) ? jval_int(i) : text;
}

/* The keys to follow, in order: numbers and names between dots. None and nothing mean the item itself. */
static jlist *attribute_path(jrun *r, jval attribute) {
    jlist *path = jinja_list(r, 1);
    if (!jarg_given(attribute)) return path;
    if (attribute.kind != J_STR) {
        jinja_append(r, path, attribute);
        return path;
    }
    const jstr *s = attribute.s;
    for (size_t at = 0;;) {
        const char *dot = memchr(s->data + at, '.', s->len - at);
        size_t end = dot ? (size_t)(dot - s->data) : s->len;
        jinja_append(r, path, digits_or_text(r, s->data + at, end - at));
        if (!dot) return path;
        at = end + 1;
    }
}

/* How an item becomes its key. */
typedef struct keying {
    jlist **paths; /* several for sort's attribute="a,b" */
    size_t n;
    bool in_list; /* the key is a list even of one: lists compare equal items first, so that undefined ones do no harm */
    bool fold_case;
    jval otherwise; /* in place of what is undefined; J_ABSENT: nothing */
} keying;

static jval follow(jrun *r, jval item, const jlist *path, jval otherwise) {
    for (size_t i = 0; i < path->n; i++) {
        item = jinja_item(r, item, path->v[i]);
        if (item.kind == J_UNDEFINED && jarg_given(otherwise)) item = otherwise;
    }
    return item;
}

static jval key_of(jrun *r, const void *context, jval item) {
    const keying *k = context;
    jlist *keys = k->in_list ? jinja_list(r, k->n) : NULL;
    for (size_t i = 0; i < k->n; i++) {
        jval v = follow(r, item, k->paths[i], k->otherwise);
        if (k->fold_case && v.kind == J_STR) v = uni_map_case(r, v.s, UNI_LOWER);
        if (!keys) return v;
        jinja_append(r, keys, v);
    }
    return jval_list(keys);
}

static keying one_key(jrun *r, jval attribute, bool fold_case) {
    keying k = {.n = 1, .fold_case = fold_case, .paths = jinja_alloc(r, 1, sizeof *k.paths)};
    k.paths[0] = attribute_path(r, attribute);
    return k;
}

static keying several_keys(jrun *r, jval attribute, bool fold_case) {
    keying k = {.fold_case = fold_case, .in_list = true};
    if (attribute.kind != J_STR) {
        k = one_key(r, attribute, fold_case);
        k.in_list = jarg_given(attribute);
        return k;
    }
    const jstr *s = attribute.s;
    for (size_t i = 0; i < s->len; i++) k.n += s->data[i] == ',';
    k.paths = jinja_alloc(r, ++k.n, sizeof *k.paths);
    for (size_t i = 0, at = 0; i < k.n; i++) {
        const char *comma = memchr(s->data + at, ',', s->len - at);
        size_t end = comma ? (size_t)(comma - s->data) : s->len;
        k.paths[i] = attribute_path(r, jinja_str(r, s->data + at, end - at));
        at = end + 1;
    }
    return k;
}

jval jinja_key_first(jrun *r, const void *context, jval item) {
    (void)r, (void)context;
    return item.l->v[0];
}

/* ---- sorting ---- */

typedef struct sortable {
    jval key, item;
} sortable;

static bool comes_first(jrun *r, const sortable *a, const sortable *b, bool reverse) {
    return reverse ? !jinja_less(r, a->key, b->key) : !jinja_less(r, b->key, a->key);
}

/* Bottom-up merge sort: stable, and a failure may leave from any comparison. */
void jinja_sort(jrun *r, jlist *l, jsort_key *key, const void *context, bool reverse) {
    size_t n = l->n;
    sortable *from = jinja_alloc(r, n, sizeof *from), *to = jinja_alloc(r, n, sizeof *to);
    for (size_t i = 0; i < n; i++) from[i] = (sortable){.key = key(r, context, l->v[i]), .item = l->v[i]};
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t start = 0; start < n; start += 2 * width) {
            size_t middle = start + width < n ? start + width : n, end = start + 2 * width < n ? start + 2 * width : n;
            size_t a = start, b = middle;
            for (size_t k = start; k < end; k++)
                to[k] = a < middle && (b >= end || comes_first(r, &from[a], &from[b], reverse)) ? from[a++] : from[b++];
        }
        sortable *swap = from;
        from = to;
        to = swap;
    }
    for (size_t i = 0; i < n && i < l->n; i++) l->v[i] = from[i].item;
}

static jval filter_sort(jrun *r, jval self, jargs *a) {
    jlist *l = jinja_to_list(r, self);
    keying k = several_keys(r, a->slot[2], !jarg_bool(r, a->slot[1], false));
    jinja_sort(r, l, key_of, &k, jarg_bool(r, a->slot[0], false));
    return jval_list(l);
}

typedef struct pair_order {
    size_t at;
    bool fold_case;
} pair_order;

static jval pair_key(jrun *r, const void *context, jval item) {
    const pair_order *o = context;
    jval v = item.l->v[o->at];
    return o->fold_case && v.kind == J_STR ? uni_map_case(r, v.s, UNI_LOWER) : v;
}

static jlist *pairs_of(jrun *r, const jdict *d) {
    jlist *l = jinja_list(r, d->n);
    jinja_step(r, d->n);
    for (size_t i = 0; i < d->n; i++) jinja_append(r, l, jinja_pair(r, d->e[i].key, d->e[i].value));
    return l;
}

static jval filter_dictsort(jrun *r, jval self, jargs *a) {
    jinja_need_defined(r, self);
    if (self.kind != J_DICT) jinja_fail(r, HEARTH_FORMAT, "dictsort needs a dict, not %s", jinja_type_name(self));
    const jstr *by = jarg_str(r, a->slot[1], "what dictsort sorts by");
    if (by && !jstr_is(by, "key") && !jstr_is(by, "value")) jinja_fail(r, HEARTH_FORMAT, "dictsort can only sort by \"key\" or \"value\"");
    pair_order o = {.at = by && jstr_is(by, "value"), .fold_case = !jarg_bool(r, a->slot[0], false)};
    jlist *l = pairs_of(r, self.d);
    jinja_sort(r, l, pair_key, &o, jarg_bool(r, a->slot[2], false));
    return jval_list(l);
}

static jval filter_items(jrun *r, jval self, jargs *a) {
    (void)a;
    if (self.kind == J_UNDEFINED) return jval_stream(jinja_list(r, 0));
    if (self.kind != J_DICT) jinja_fail(r, HEARTH_FORMAT, "Can only get item pairs from a mapping.");
    return jval_stream(pairs_of(r, self.d));
}

static jval filter_unique(jrun *r, jval self, jargs *a) {
    keying k = one_key(r, a->slot[1], !jarg_bool(r, a->slot[0], false));
    jdict *seen = jinja_dict(r);
    jlist *l = jinja_list(r, 0);
    jiter it = jinja_iter(r, self);
    jval item;
    while (jinja_next(r, &it, &item)) {
        jval key = key_of(r, &k, item);
        if (jinja_dict_get(r, seen, key)) continue;
        jinja_dict_set(r, seen, key, jval_of(J_NONE));
        jinja_append(r, l, item);
    }
    return jval_stream(l);
}

static jval filter_groupby(jrun *r, jval self, jargs *a) {
    bool fold = !jarg_bool(r, a->slot[2], false);
    keying k = one_key(r, a->slot[0], fold);
    k.otherwise = a->slot[1];
    jlist *items = jinja_to_list(r, self), *groups = jinja_list(r, 0), *members = NULL;
    jinja_sort(r, items, key_of, &k, false);
    jval last = jval_of(J_ABSENT);
    for (size_t i = 0; i < items->n; i++) {
        jval key = key_of(r, &k, items->v[i]);
        if (!members || !jinja_equal(r, key, last)) {
            members = jinja_list(r, 0);
            jval shown = fold ? follow(r, items->v[i], k.paths[0], k.otherwise) : key, group = jinja_pair(r, shown, jval_list(members));
            group.l->view = JVIEW_GROUP;
            jinja_append(r, groups, group);
            last = key;
        }
        jinja_append(r, members, items->v[i]);
    }
    return jval_list(groups);
}

static jval extreme(jrun *r, jval self, const jargs *a, bool largest) {
    keying k = one_key(r, a->slot[1], !jarg_bool(r, a->slot[0], false));
    jiter it = jinja_iter(r, self);
    jval item, best, best_key;
    if (!jinja_next(r, &it, &best)) return jinja_undefined_hint(r, "No aggregated item, sequence was empty.");
    best_key = key_of(r, &k, best);
    while (jinja_next(r, &it, &item)) {
        jval key = key_of(r, &k, item);
        if (largest ? !jinja_less(r, best_key, key) : !jinja_less(r, key, best_key)) continue;
        best = item;
        best_key = key;
    }
    return best;
}

static jval filter_min(jrun *r, jval self, jargs *a) { return extreme(r, self, a, false); }
static jval filter_max(jrun *r, jval self, jargs *a) { return extreme(r, self, a, true); }

static jval filter_sum(jrun *r, jval self, jargs *a) {
    jlist *path = attribute_path(r, a->slot[0]);
    jval total = a->slot[1].kind == J_ABSENT ? jval_int(0) : a->slot[1], item;
    if (total.kind == J_STR) jinja_fail(r, HEARTH_FORMAT, "sum() can't sum strings");
    jiter it = jinja_iter(r, self);
    while (jinja_next(r, &it, &item)) total = jinja_binary(r, JOP_ADD, total, follow(r, item, path, jval_of(J_ABSENT)));
    return total;
}

/* ---- picking and shaping ---- */

static jval filter_first(jrun *r, jval self, jargs *a) {
    (void)a;
    jiter it = jinja_iter(r, self);
    jval item;
    return jinja_next(r, &it, &item) ? item : jinja_undefined_hint(r, "No first item, sequence was empty.");
}

static jval filter_last(jrun *r, jval self, jargs *a) {
    (void)a;
    jinja_iter(r, self); /* fails for what has no items */
    size_t n = jinja_length(r, self);
    if (n == 0) return jinja_undefined_hint(r, "No last item, sequence was empty.");
    if (self.kind == J_DICT) return self.d->e[n - 1].key;
    if (self.kind == J_LIST || self.kind == J_TUPLE) return self.l->v[self.l->n - 1];
    return jinja_item(r, self, jval_int(-1));
}

static jval filter_length(jrun *r, jval self, jargs *a) {
    (void)a;
    size_t n = jinja_length(r, self);
    if (n == SIZE_MAX) jinja_fail(r, HEARTH_FORMAT, "object of type '%s' has no len()", jinja_type_name(self));
    return jval_int((int64_t)n);
}

static jval filter_list(jrun *r, jval self, jargs *a) {
    (void)a;
    return jval_list(jinja_to_list(r, self));
}

static jval filter_reverse(jrun *r, jval self, jargs *a) {
    (void)a;
    jval none = jval_of(J_NONE);
    if (self.kind == J_STR) return jinja_slice(r, self, none, none, jval_int(-1));
    jlist *l = jinja_to_list(r, self);
    jinja_reverse(l);
    return jval_stream(l);
}

static jval filter_join(jrun *r, jval self, jargs *a) {
    jval d = a->slot[0].kind == J_ABSENT ? jinja_text(r, "") : jinja_to_str(r, a->slot[0]);
    if (!jarg_given(a->slot[1])) return jinja_join(r, d.s, self, false, false);
    jlist *path = attribute_path(r, a->slot[1]), *l = jinja_list(r, 0);
    jiter it = jinja_iter(r, self);
    jval item;
    while (jinja_next(r, &it, &item)) jinja_append(r, l, follow(r, item, path, jval_of(J_ABSENT)));
    return jinja_join(r, d.s, jval_list(l), false, false);
}

static jval filter_batch(jrun *r, jval self, jargs *a) {
    int64_t size = jarg_int(r, a->slot[0], 1);
    jlist *all = jinja_list(r, 0), *row = NULL;
    jiter it = jinja_iter(r, self);
    jval item;
    while (jinja_next(r, &it, &item)) {
        if (!row || (int64_t)row->n == size) jinja_append(r, all, jval_list(row = jinja_list(r, 0)));
        jinja_append(r, row, item);
    }
    for (; row && jarg_given(a->slot[1]) && (int64_t)row->n < size; jinja_step(r, 1)) jinja_append(r, row, a->slot[1]);
    return jval_stream(all);
}

static jval filter_slice(jrun *r, jval self, jargs *a) {
    int64_t slices = jarg_int(r, a->slot[0], 1);
    if (slices < 1) jinja_fail(r, HEARTH_FORMAT, "slice needs a number of at least 1");
    jlist *items = jinja_to_list(r, self), *all = jinja_list(r, 0);
    size_t each = items->n / (uint64_t)slices, extra = items->n % (uint64_t)slices, at = 0;
    for (size_t i = 0; i < (uint64_t)slices; i++) {
        jlist *part = jinja_list(r, each + 1);
        jinja_step(r, 1);
        for (size_t n = each + (i < extra); n > 0; n--) jinja_append(r, part, items->v[at++]);
        if (jarg_given(a->slot[1]) && i >= extra) jinja_append(r, part, a->slot[1]);
        jinja_append(r, all, jval_list(part));
    }
    return jval_stream(all);
}

/* ---- map, select, reject ---- */

static const jfunc *named_function(jrun *r, jval name, bool filter) {
    const jstr *s = jarg_str(r, name, filter ? "the name of a filter" : "the name of a test");
    const jfunc *f = filter ? jinja_find_filter(s) : jinja_find_test(s);
    char quoted[80];
    if (!f) jinja_fail(r, HEARTH_FORMAT, "no %s named '%s'", filter ? "filter" : "test", err_quote(quoted, sizeof quoted, s->data, s->len));
    return f;
}

static jval filter_map(jrun *r, jval self, jargs *a) {
    jlist *out = jinja_list(r, 0), *path = NULL;
    jval otherwise = jval_of(J_ABSENT), item;
    const jfunc *f = NULL;
    if (!jinja_truth(r, self)) return jval_stream(out);
    for (size_t i = 0; i < a->nkw && a->npos == 0; i++) {
        if (jstr_is(a->kw[i].name, "attribute")) path = attribute_path(r, a->kw[i].value);
        else if (jstr_is(a->kw[i].name, "default")) otherwise = a->kw[i].value;
        else jinja_fail(r, HEARTH_FORMAT, "map does not take this argument by name");
    }
    if (!path && a->npos == 0) jinja_fail(r, HEARTH_FORMAT, "map needs the name of a filter, or attribute=");
    if (!path) f = named_function(r, a->pos[0], true);
    jiter it = jinja_iter(r, self);
    while (jinja_next(r, &it, &item)) {
        jargs rest = {.pos = a->pos + 1, .npos = a->npos - 1, .kw = a->kw, .nkw = a->nkw};
        jinja_check_stack(r);
        jinja_append(r, out, path ? follow(r, item, path, otherwise) : jinja_apply(r, f, item, &rest));
    }
    return jval_stream(out);
}

/* Keeps the items that pass (or not) a test, on themselves or on an attribute. */
static jval pick(jrun *r, jval self, jargs *a, bool attribute, bool keep) {
    jlist *out = jinja_list(r, 0);
    if (!jinja_truth(r, self)) return jval_stream(out);
    size_t skip = attribute;
    if (a->npos < skip) jinja_fail(r, HEARTH_FORMAT, "the name of an attribute is missing");
    jlist *path = attribute_path(r, attribute ? a->pos[0] : jval_of(J_ABSENT));
    const jfunc *test = a->npos > skip ? named_function(r, a->pos[skip], false) : NULL;
    jiter it = jinja_iter(r, self);
    jval item;
    while (jinja_next(r, &it, &item)) {
        jval v = follow(r, item, path, jval_of(J_ABSENT));
        if (test) {
            jargs rest = {.pos = a->pos + skip + 1, .npos = a->npos - skip - 1, .kw = a->kw, .nkw = a->nkw};
            v = jinja_apply(r, test, v, &rest);
        }
        if (jinja_truth(r, v) == keep) jinja_append(r, out, item);
    }
    return jval_stream(out);
}

static jval filter_select(jrun *r, jval self, jargs *a) { return pick(r, self, a, false, true); }
static jval filter_reject(jrun *r, jval self, jargs *a) { return pick(r, self, a, false, false); }
static jval filter_selectattr(jrun *r, jval self, jargs *a) { return pick(r, self, a, true, true); }
static jval filter_rejectattr(jrun *r, jval self, jargs *a) { return pick(r, self, a, true, false); }

const jfunc jinja_list_filters[] = {
    {"batch", filter_batch, "linecount fill_with", 1},
    {"count", filter_length, "", 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"first", filter_first, "", 0},
    {"groupby", filter_groupby, "attribute default case_sensitive", 1},
    {"items", filter_items, "", 0},
    {"join", filter_join, "d attribute", 0},
    {"last", filter_last, "", 0},
    {"length", filter_length, "", 0},
    {"list", filter_list, "", 0},
    {"map", filter_map, "*", 0},
    {"max", filter_max, "case_sensitive attribute", 0},
    {"min", filter_min, "case_sensitive attribute", 0},
    {"reject", filter_reject, "*", 0},
    {"rejectattr", filter_rejectattr, "*", 0},
    {"reverse", filter_reverse, "", 0},
    {"select", filter_select, "*", 0},
    {"selectattr", filter_selectattr, "*", 0},
    {"slice", filter_slice, "slices fill_with", 1},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"sum", filter_sum, "attribute start", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
    {0},
};
