/* jinja_value.c: making values, dicts, equality, order, iteration. */
#include "text/jinja_value.h"

#include <math.h>
#include <string.h>

#include "text/jinja_unicode.h"

/* ---- strings ---- */

jval jinja_str(jrun *r, const char *data, size_t len) {
    jstr *s = jinja_alloc(r, 1, sizeof *s);
    *s = (jstr){.data = data, .len = len, .chars = SIZE_MAX};
    return (jval){.kind = J_STR, .s = s};
}

jval jinja_text(jrun *r, const char *text) { return jinja_str(r, text, strlen(text)); }

size_t jinja_chars(jrun *r, jstr *s) {
    if (s->chars == SIZE_MAX) {
        jinja_scan(r, s->len);
        s->chars = uni_count(s->data, s->len);
    }
    return s->chars;
}

const char *jinja_find_text(jrun *r, const char *text, size_t len, const jstr *needle) {
    const char *p = text, *end = text + len;
    if (needle->len == 0) return text;
    while ((size_t)(end - p) >= needle->len) {
        const char *first = memchr(p, needle->data[0], (size_t)(end - p) - needle->len + 1);
        if (!first) break;
        jinja_step(r, 1 + ((size_t)(first - p) + needle->len) / 64);
        if (memcmp(first, needle->data, needle->len) == 0) return first;
        p = first + 1;
    }
    jinja_scan(r, (size_t)(end - p));
    return NULL;
}

jval jinja_concat(jrun *r, jval a, jval b) {
    if (b.s->len == 0) return a;
    if (a.s->len == 0) return b;
    jtail *t = a.s->tail;
    size_t len = a.s->len + b.s->len;
    if (len > JINJA_MAX_OUTPUT)
        jinja_fail(r, HEARTH_LIMIT, "the template makes a text larger than the limit of %zu MiB", JINJA_MAX_OUTPUT >> 20);
    jinja_scan(r, b.s->len);
    if (!t || a.s->data + a.s->len != t->end || b.s->len > (size_t)(t->limit - t->end)) {
        /* Room to grow only for a text that was itself made by appending. */
        size_t cap = t ? len * 2 : len;
        char *data = jinja_alloc(r, cap, 1);
        jinja_scan(r, a.s->len);
        memcpy(data, a.s->data, a.s->len);
        t = jinja_alloc(r, 1, sizeof *t);
        *t = (jtail){.end = data + a.s->len, .limit = data + cap};
    }
    memcpy(t->end, b.s->data, b.s->len);
    t->end += b.s->len;
    jval v = jinja_str(r, t->end - len, len);
    v.s->tail = t;
    if (a.s->chars != SIZE_MAX && b.s->chars != SIZE_MAX) v.s->chars = a.s->chars + b.s->chars;
    return v;
}

/* ---- lists ---- */

jlist *jinja_list(jrun *r, size_t cap) {
    jlist *l = jinja_alloc(r, 1, sizeof *l);
    *l = (jlist){.cap = cap};
    if (cap) l->v = jinja_alloc(r, cap, sizeof *l->v);
    return l;
}

void jinja_append(jrun *r, jlist *l, jval v) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        l->v = jinja_grow(r, l->v, l->cap, cap, sizeof *l->v);
        l->cap = cap;
    }
    l->v[l->n++] = v;
}

jval jinja_pair(jrun *r, jval a, jval b) {
    jlist *l = jinja_list(r, 2);
    jinja_append(r, l, a);
    jinja_append(r, l, b);
    return (jval){.kind = J_TUPLE, .l = l};
}

/* ---- dicts ---- */

static uint64_t mix(uint64_t h) {
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ (h >> 32);
}

static uint64_t hash_bytes(const char *s, size_t len) {
    uint64_t h = len * 0x9E3779B97F4A7C15u;
    for (; len >= 8; s += 8, len -= 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        h = mix(h ^ w);
    }
    uint64_t w = 0;
    memcpy(&w, s, len);
    return mix(h ^ w);
}

/* Values that are equal hash the same: 1, 1.0 and True. */
static uint64_t hash_value(jrun *r, jval v) {
    switch (v.kind) {
    case J_STR:
        jinja_scan(r, v.s->len);
        return hash_bytes(v.s->data, v.s->len);
    case J_NONE:
        return 3;
    case J_BOOL:
        return mix(v.b);
    case J_INT:
        return mix((uint64_t)v.i);
    case J_FLOAT: {
        if (v.f >= -0x1p63 && v.f < 0x1p63 && v.f == floor(v.f)) return mix((uint64_t)(int64_t)v.f);
        uint64_t bits;
        memcpy(&bits, &v.f, 8);
        return mix(bits);
    }
    case J_TUPLE: {
        jinja_check_stack(r);
        uint64_t h = 7;
        jinja_step(r, v.l->n);
        for (size_t i = 0; i < v.l->n; i++) h = mix(h ^ hash_value(r, v.l->v[i]));
        return h;
    }
    case J_LIST:
    case J_DICT:
        jinja_fail(r, HEARTH_FORMAT, "unhashable type: '%s'", jinja_type_name(v));
    default:
        return v.kind;
    }
}

jdict *jinja_dict(jrun *r) {
    jdict *d = jinja_alloc(r, 1, sizeof *d);
    *d = (jdict){0};
    return d;
}

static size_t find_entry(jrun *r, const jdict *d, jval key, uint64_t hash) {
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++)
            if (d->e[i].hash == hash && jinja_equal(r, d->e[i].key, key)) return i;
        return SIZE_MAX;
    }
    size_t mask = d->slots - 1, probes = 0;
    for (size_t at = hash & mask; d->index[at]; at = (at + 1) & mask) {
        size_t i = d->index[at] - 1;
        if (d->e[i].hash == hash && jinja_equal(r, d->e[i].key, key)) return i;
        if (++probes % 8 == 0) jinja_step(r, 1); /* keys chosen to collide cost the template, not the machine */
    }
    return SIZE_MAX;
}

static void index_entry(jdict *d, size_t i) {
    size_t mask = d->slots - 1, at = d->e[i].hash & mask;
    while (d->index[at]) at = (at + 1) & mask;
    d->index[at] = (uint32_t)i + 1;
}

static void rebuild_index(jrun *r, jdict *d) {
    if (d->n <= 8) {
        d->index = NULL;
        return;
    }
    if (!d->index || d->n * 2 > d->slots) {
        d->slots = 32;
        while (d->slots < d->n * 4) d->slots *= 2;
        d->index = jinja_alloc(r, d->slots, sizeof *d->index);
    }
    memset(d->index, 0, d->slots * sizeof *d->index);
    for (size_t i = 0; i < d->n; i++) index_entry(d, i);
}

jval *jinja_dict_get(jrun *r, const jdict *d, jval key) {
    size_t i = find_entry(r, d, key, hash_value(r, key));
    return i == SIZE_MAX ? NULL : &d->e[i].value;
}

jval *jinja_dict_get_text(jrun *r, const jdict *d, const char *key) {
    jstr s = {.data = key, .len = strlen(key)};
    return jinja_dict_get(r, d, (jval){.kind = J_STR, .s = &s});
}

void jinja_dict_set(jrun *r, jdict *d, jval key, jval value) {
    uint64_t hash = hash_value(r, key);
    size_t i = find_entry(r, d, key, hash);
    if (i != SIZE_MAX) {
        d->e[i].value = value;
        return;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        d->e = jinja_grow(r, d->e, d->cap, cap, sizeof *d->e);
        d->cap = cap;
    }
    d->e[d->n++] = (jentry){.key = key, .value = value, .hash = hash};
    if (d->index && d->n * 2 <= d->slots) index_entry(d, d->n - 1);
    else rebuild_index(r, d);
}

bool jinja_dict_remove(jrun *r, jdict *d, jval key) {
    size_t i = find_entry(r, d, key, hash_value(r, key));
    if (i == SIZE_MAX) return false;
    jinja_step(r, d->n);
    memmove(d->e + i, d->e + i + 1, (d->n - i - 1) * sizeof *d->e);
    d->n--;
    rebuild_index(r, d);
    return true;
}

/* ---- undefined ---- */

static jval missing(jrun *r, jmissing m) {
    jmissing *p = jinja_alloc(r, 1, sizeof *p);
    *p = m;
    return (jval){.kind = J_UNDEFINED, .missing = p};
}

jval jinja_undefined_hint(jrun *r, const char *hint) { return missing(r, (jmissing){.hint = hint}); }

jval jinja_undefined_name(jrun *r, const jstr *name) { return missing(r, (jmissing){.name = {.kind = J_STR, .s = (jstr *)name}}); }

jval jinja_undefined_member(jrun *r, jval owner, jval name) {
    return missing(r, (jmissing){.has_owner = true, .owner = owner, .name = name});
}

static const char *owner_name(jval v) {
    if (v.kind == J_NAMESPACE) return "jinja2.utils.Namespace object";
    if (v.kind == J_LOOP) return "jinja2.runtime.LoopContext object";
    if (v.kind == J_MACRO) return "jinja2.runtime.Macro object";
    static const char *const names[] = {
        [J_BOOL] = "bool object", [J_INT] = "int object",     [J_FLOAT] = "float object", [J_STR] = "str object",
        [J_LIST] = "list object", [J_TUPLE] = "tuple object", [J_DICT] = "dict object",   [J_RANGE] = "range object"};
    if (v.kind == J_NONE) return "None";
    return v.kind < sizeof names / sizeof *names && names[v.kind] ? names[v.kind] : "object";
}

void jinja_fail_undefined(jrun *r, jval v) {
    const jmissing *m = v.missing;
    if (m->hint) jinja_fail(r, HEARTH_FORMAT, "%s", m->hint);
    char quoted[200];
    jsink name = {0};
    jinja_put_repr(r, &name, m->name);
    err_quote(quoted, sizeof quoted, name.data, name.len);
    if (!m->has_owner) jinja_fail(r, HEARTH_FORMAT, "%s is undefined", quoted);
    if (m->name.kind != J_STR) jinja_fail(r, HEARTH_FORMAT, "%s has no element %s", owner_name(m->owner), quoted);
    jinja_fail(r, HEARTH_FORMAT, "'%s' has no attribute %s", owner_name(m->owner), quoted);
}

void jinja_need_defined(jrun *r, jval v) {
    if (v.kind == J_UNDEFINED) jinja_fail_undefined(r, v);
}

/* ---- looking ---- */

const char *jinja_type_name(jval v) {
    static const char *const names[] = {
        [J_ABSENT] = "nothing", [J_UNDEFINED] = "Undefined", [J_NONE] = "NoneType", [J_BOOL] = "bool",
        [J_INT] = "int",        [J_FLOAT] = "float",         [J_STR] = "str",       [J_LIST] = "list",
        [J_TUPLE] = "tuple",    [J_DICT] = "dict",           [J_RANGE] = "range",   [J_NAMESPACE] = "Namespace",
        [J_MACRO] = "Macro",    [J_LOOP] = "LoopContext",    [J_FUNC] = "function", [J_METHOD] = "builtin_function_or_method",
        [J_CYCLER] = "Cycler",  [J_JOINER] = "Joiner"};
    if (v.kind == J_STR && v.safe) return "Markup";
    if (v.kind == J_LIST && v.l->view == JVIEW_STREAM) return "generator";
    return names[v.kind];
}

bool jinja_is_number(jval v) { return v.kind == J_INT || v.kind == J_FLOAT || v.kind == J_BOOL; }
double jinja_number(jval v) { return v.kind == J_FLOAT ? v.f : v.kind == J_BOOL ? v.b : (double)v.i; }
bool jinja_is_int(jval v) { return v.kind == J_INT || v.kind == J_BOOL; }
int64_t jinja_int(jval v) { return v.kind == J_BOOL ? v.b : v.i; }

size_t jinja_length(jrun *r, jval v) {
    switch (v.kind) {
    case J_UNDEFINED:
        return 0;
    case J_STR:
        return jinja_chars(r, v.s);
    case J_LIST:
    case J_TUPLE:
        return v.l->n - v.l->taken;
    case J_DICT:
        return v.d->n;
    case J_RANGE:
        return v.range->n;
    default:
        return SIZE_MAX;
    }
}

bool jinja_truth(jrun *r, jval v) {
    switch (v.kind) {
    case J_ABSENT:
    case J_UNDEFINED:
    case J_NONE:
        return false;
    case J_BOOL:
        return v.b;
    case J_INT:
        return v.i != 0;
    case J_FLOAT:
        return v.f != 0;
    case J_STR:
        return v.s->len != 0;
    case J_LIST:
        return v.l->n != 0 || v.l->view == JVIEW_STREAM;
    default:
        return jinja_length(r, v) != 0;
    }
}

/* Compares an int with a float without losing digits: -1, 0, 1, or 2 for NaN. */
static int compare_int_float(int64_t i, double f) {
    if (isnan(f)) return 2;
    if (f >= 0x1p63) return -1;
    if (f < -0x1p63) return 1;
    int64_t whole = (int64_t)f;
    if (i != whole) return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

static int compare_numbers(jval a, jval b) {
    if (a.kind == J_FLOAT && b.kind == J_FLOAT) return isnan(a.f) || isnan(b.f) ? 2 : (a.f > b.f) - (a.f < b.f);
    if (a.kind == J_FLOAT) {
        int c = compare_int_float(jinja_int(b), a.f);
        return c == 2 ? 2 : -c;
    }
    if (b.kind == J_FLOAT) return compare_int_float(jinja_int(a), b.f);
    int64_t x = jinja_int(a), y = jinja_int(b);
    return (x > y) - (x < y);
}

static bool equal_dicts(jrun *r, const jdict *a, const jdict *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const jval *other = jinja_dict_get(r, b, a->e[i].key);
        if (!other || !jinja_equal(r, a->e[i].value, *other)) return false;
    }
    return true;
}

static bool equal_ranges(const jrange *a, const jrange *b) {
    return a->n == b->n && (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

bool jinja_same(jval a, jval b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case J_NONE:
        return true;
    case J_BOOL:
        return a.b == b.b;
    case J_INT:
        return a.i == b.i;
    case J_FLOAT:
        return a.f == b.f;
    case J_STR:
        return a.s->len == b.s->len && memcmp(a.s->data, b.s->data, a.s->len) == 0;
    default:
        return a.l == b.l;
    }
}

bool jinja_equal(jrun *r, jval a, jval b) {
    jinja_step(r, 1);
    if (jinja_is_number(a) && jinja_is_number(b)) return compare_numbers(a, b) == 0;
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case J_UNDEFINED:
        return true;
    case J_STR:
        if (a.s->len != b.s->len) return false;
        jinja_scan(r, a.s->len);
        return memcmp(a.s->data, b.s->data, a.s->len) == 0;
    case J_LIST:
    case J_TUPLE:
        if (a.l == b.l) return true;
        if (a.l->n != b.l->n || a.l->view == JVIEW_STREAM || b.l->view == JVIEW_STREAM) return false;
        jinja_check_stack(r);
        for (size_t i = 0; i < a.l->n; i++)
            if (!jinja_equal(r, a.l->v[i], b.l->v[i])) return false;
        return true;
    case J_DICT:
        jinja_check_stack(r);
        return equal_dicts(r, a.d, b.d);
    case J_RANGE:
        return equal_ranges(a.range, b.range);
    default:
        return jinja_same(a, b);
    }
}

bool jinja_less(jrun *r, jval a, jval b) {
    jinja_step(r, 1);
    jinja_need_defined(r, a);
    jinja_need_defined(r, b);
    if (jinja_is_number(a) && jinja_is_number(b)) return compare_numbers(a, b) == -1;
    if (a.kind == J_STR && b.kind == J_STR) {
        size_t n = a.s->len < b.s->len ? a.s->len : b.s->len;
        jinja_scan(r, n);
        int c = memcmp(a.s->data, b.s->data, n); /* UTF-8 sorts as its code points */
        return c < 0 || (c == 0 && a.s->len < b.s->len);
    }
    if (a.kind == b.kind && (a.kind == J_LIST || a.kind == J_TUPLE)) {
        jinja_check_stack(r);
        for (size_t i = 0; i < a.l->n && i < b.l->n; i++)
            if (!jinja_equal(r, a.l->v[i], b.l->v[i])) return jinja_less(r, a.l->v[i], b.l->v[i]);
        return a.l->n < b.l->n;
    }
    jinja_fail(r, HEARTH_FORMAT, "'<' not supported between instances of '%s' and '%s'", jinja_type_name(a), jinja_type_name(b));
}

/* ---- iteration ---- */

bool jinja_iterable(jval v) {
    switch (v.kind) {
    case J_UNDEFINED:
    case J_STR:
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
    case J_RANGE:
        return true;
    default:
        return false;
    }
}

bool jinja_indexable(jval v) {
    if (v.kind == J_LIST) return v.l->view == JVIEW_NONE;
    return v.kind == J_UNDEFINED || v.kind == J_STR || v.kind == J_TUPLE || v.kind == J_DICT || v.kind == J_RANGE;
}

jiter jinja_iter(jrun *r, jval v) {
    if (!jinja_iterable(v)) jinja_fail(r, HEARTH_FORMAT, "'%s' object is not iterable", jinja_type_name(v));
    return (jiter){.source = v};
}

bool jinja_next(jrun *r, jiter *it, jval *item) {
    jinja_step(r, 1);
    jval v = it->source;
    switch (v.kind) {
    case J_STR: {
        if (it->at >= v.s->len) return false;
        size_t n = uni_size(v.s->data[it->at]);
        *item = jinja_str(r, v.s->data + it->at, n);
        item->s->chars = 1;
        it->at += n;
        return true;
    }
    case J_LIST:
    case J_TUPLE: {
        size_t *at = v.l->view == JVIEW_STREAM ? &v.l->taken : &it->at;
        if (*at >= v.l->n) return false;
        *item = v.l->v[(*at)++];
        return true;
    }
    case J_DICT:
        if (it->at >= v.d->n) return false;
        *item = v.d->e[it->at++].key;
        return true;
    case J_RANGE:
        if (it->at >= v.range->n) return false;
        *item = jval_int((int64_t)((uint64_t)v.range->start + it->at++ * (uint64_t)v.range->step));
        return true;
    default:
        return false;
    }
}

jlist *jinja_to_list(jrun *r, jval v) {
    jiter it = jinja_iter(r, v);
    size_t n = v.kind == J_STR ? 0 : jinja_length(r, v);
    jlist *l = jinja_list(r, n);
    jval item;
    while (jinja_next(r, &it, &item)) jinja_append(r, l, item);
    return l;
}
