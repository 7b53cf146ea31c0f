/* jinja_ops.c: Python's operators, attributes, subscripts and slices. */
#include <math.h>
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_tree.h"
#include "text/jinja_unicode.h"

static const char *const op_names[] = {
    [JOP_ADD] = "+", [JOP_SUB] = "-", [JOP_MUL] = "*", [JOP_DIV] = "/", [JOP_FLOORDIV] = "//", [JOP_MOD] = "%", [JOP_POW] = "** or pow()"};

static _Noreturn void bad_operands(jrun *r, jop op, jval a, jval b) {
    if (op == JOP_ADD && (a.kind == J_STR || a.kind == J_LIST || a.kind == J_TUPLE))
        jinja_fail(r, HEARTH_FORMAT, "can only concatenate %s (not \"%s\") to %s", jinja_type_name(a), jinja_type_name(b),
                   jinja_type_name(a));
    jinja_fail(r, HEARTH_FORMAT, "unsupported operand type(s) for %s: '%s' and '%s'", op_names[op], jinja_type_name(a), jinja_type_name(b));
}

/* ---- numbers ---- */

static _Noreturn void too_large(jrun *r) { jinja_fail(r, HEARTH_LIMIT, "a whole number does not fit in 64 bits"); }
static _Noreturn void by_zero(jrun *r) { jinja_fail(r, HEARTH_FORMAT, "division by zero"); }

static int64_t int_power(jrun *r, int64_t base, int64_t exponent) {
    int64_t result = 1;
    if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
    if (base == -1) return exponent % 2 ? -1 : 1;
    for (; exponent > 0; exponent--) /* at most 63 rounds before it no longer fits */
        if (__builtin_mul_overflow(result, base, &result)) too_large(r);
    return result;
}

static int64_t int_floordiv(jrun *r, int64_t a, int64_t b) {
    if (b == 0) by_zero(r);
    if (b == -1) {
        int64_t n;
        if (__builtin_sub_overflow((int64_t)0, a, &n)) too_large(r);
        return n;
    }
    int64_t q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

static jval int_op(jrun *r, jop op, int64_t a, int64_t b) {
    int64_t n = 0;
    bool over = false;
    switch (op) {
    case JOP_ADD:
        over = __builtin_add_overflow(a, b, &n);
        break;
    case JOP_SUB:
        over = __builtin_sub_overflow(a, b, &n);
        break;
    case JOP_MUL:
        over = __builtin_mul_overflow(a, b, &n);
        break;
    case JOP_DIV:
        if (b == 0) by_zero(r);
        return jval_float((double)a / (double)b);
    case JOP_FLOORDIV:
        n = int_floordiv(r, a, b);
        break;
    case JOP_MOD: {
        if (b == 0) by_zero(r);
        n = b == -1 ? 0 : a % b;
        if (n != 0 && (n < 0) != (b < 0)) n += b;
        break;
    }
    case JOP_POW:
        if (b < 0 && a == 0) jinja_fail(r, HEARTH_FORMAT, "0.0 cannot be raised to a negative power");
        if (b < 0) return jval_float(pow((double)a, (double)b));
        n = int_power(r, a, b);
        break;
    }
    if (over) too_large(r);
    return jval_int(n);
}

static double float_mod(double a, double b) {
    double m = fmod(a, b);
    if (m != 0 && (m < 0) != (b < 0)) m += b;
    return m == 0 ? copysign(0, b) : m;
}

static double float_power(jrun *r, double a, double b) {
    if (a == 0 && b < 0) jinja_fail(r, HEARTH_FORMAT, "0.0 cannot be raised to a negative power");
    double p = pow(a, b);
    if (isnan(p) && !isnan(a) && !isnan(b)) jinja_fail(r, HEARTH_FORMAT, "a negative number cannot be raised to a fraction here");
    if (isinf(p) && isfinite(a) && isfinite(b)) jinja_fail(r, HEARTH_FORMAT, "numerical result out of range");
    return p;
}

static jval float_op(jrun *r, jop op, double a, double b) {
    if ((op == JOP_DIV || op == JOP_FLOORDIV || op == JOP_MOD) && b == 0) by_zero(r);
    switch (op) {
    case JOP_ADD:
        return jval_float(a + b);
    case JOP_SUB:
        return jval_float(a - b);
    case JOP_MUL:
        return jval_float(a * b);
    case JOP_DIV:
        return jval_float(a / b);
    case JOP_FLOORDIV: {
        double quotient = (a - float_mod(a, b)) / b, whole = floor(quotient);
        return jval_float(quotient - whole > 0.5 ? whole + 1 : whole);
    }
    case JOP_MOD:
        return jval_float(float_mod(a, b));
    default:
        return jval_float(float_power(r, a, b));
    }
}

/* ---- sequences ---- */

static jval add_lists(jrun *r, jval a, jval b) {
    size_t n = a.l->n + b.l->n;
    jlist *l = jinja_list(r, n);
    jinja_step(r, n);
    if (a.l->n) memcpy(l->v, a.l->v, a.l->n * sizeof *l->v);
    if (b.l->n) memcpy(l->v + a.l->n, b.l->v, b.l->n * sizeof *l->v);
    l->n = n;
    return (jval){.kind = a.kind, .l = l};
}

static jval repeat(jrun *r, jval v, int64_t times) {
    size_t n = times < 0 ? 0 : (size_t)times;
    if (v.kind == J_STR) {
        jsink s = {0};
        jinja_add_repeated(r, &s, v.s->data, v.s->len, n);
        jval text = jinja_sink_str(r, &s);
        text.safe = v.safe;
        return text;
    }
    size_t total;
    if (__builtin_mul_overflow(n, v.l->n, &total)) total = SIZE_MAX;
    jinja_step(r, total);
    jlist *l = jinja_list(r, total);
    for (size_t i = 0; i < total; i++) l->v[i] = v.l->v[i % v.l->n];
    l->n = total;
    return (jval){.kind = v.kind, .l = l};
}

static bool is_sequence(jval v) { return v.kind == J_STR || v.kind == J_LIST || v.kind == J_TUPLE; }

static jval add_strings(jrun *r, jval a, jval b) {
    bool safe = a.safe || b.safe;
    if (safe) { /* what is added to a safe text is escaped first */
        a = jinja_escape(r, a);
        b = jinja_escape(r, b);
    }
    jval v = jinja_concat(r, a, b);
    v.safe = safe;
    return v;
}

jval jinja_binary(jrun *r, jop op, jval a, jval b) {
    if (op == JOP_MOD && a.kind == J_STR) return jinja_percent_format(r, a, b);
    jinja_need_defined(r, a);
    jinja_need_defined(r, b);
    if (jinja_is_int(a) && jinja_is_int(b)) return int_op(r, op, jinja_int(a), jinja_int(b));
    if (jinja_is_number(a) && jinja_is_number(b)) return float_op(r, op, jinja_number(a), jinja_number(b));
    if (op == JOP_ADD && a.kind == b.kind) {
        if (a.kind == J_STR) return add_strings(r, a, b);
        if (a.kind == J_LIST || a.kind == J_TUPLE) return add_lists(r, a, b);
    }
    if (op == JOP_MUL && is_sequence(a) && jinja_is_int(b)) return repeat(r, a, jinja_int(b));
    if (op == JOP_MUL && is_sequence(b) && jinja_is_int(a)) return repeat(r, b, jinja_int(a));
    bad_operands(r, op, a, b);
}

jval jinja_negate(jrun *r, jval v) {
    jinja_need_defined(r, v);
    if (v.kind == J_FLOAT) return jval_float(-v.f);
    if (!jinja_is_int(v)) jinja_fail(r, HEARTH_FORMAT, "bad operand type for unary -: '%s'", jinja_type_name(v));
    return int_op(r, JOP_SUB, 0, jinja_int(v));
}

/* ---- comparisons ---- */

static bool range_contains(const jrange *g, jval v) {
    if (v.kind == J_FLOAT && v.f == floor(v.f) && fabs(v.f) < 0x1p62) v = jval_int((int64_t)v.f);
    if (!jinja_is_int(v)) return false;
    for (size_t i = 0; i < g->n; i++)
        if ((int64_t)((uint64_t)g->start + i * (uint64_t)g->step) == jinja_int(v)) return true;
    return false;
}

bool jinja_contains(jrun *r, jval c, jval v) {
    jval item;
    switch (c.kind) {
    case J_STR:
        if (v.kind != J_STR) {
            jinja_need_defined(r, v);
            jinja_fail(r, HEARTH_FORMAT, "'in <string>' requires string as left operand, not %s", jinja_type_name(v));
        }
        return jinja_find_text(r, c.s->data, c.s->len, v.s) != NULL;
    case J_DICT:
        return jinja_dict_get(r, c.d, v) != NULL;
    case J_RANGE:
        jinja_step(r, c.range->n / 8);
        return range_contains(c.range, v);
    case J_LIST:
    case J_TUPLE:
    case J_UNDEFINED: {
        jiter it = jinja_iter(r, c);
        while (jinja_next(r, &it, &item))
            if (jinja_equal(r, item, v)) return true;
        return false;
    }
    default:
        jinja_fail(r, HEARTH_FORMAT, "argument of type '%s' is not iterable", jinja_type_name(c));
    }
}

bool jinja_compare(jrun *r, jcompare op, jval a, jval b) {
    switch (op) {
    case JCMP_EQ:
        return jinja_equal(r, a, b);
    case JCMP_NE:
        return !jinja_equal(r, a, b);
    case JCMP_LT:
        return jinja_less(r, a, b);
    case JCMP_GT:
        return jinja_less(r, b, a);
    /* Not the negation: nothing is ordered with NaN. */
    case JCMP_LE:
        return jinja_less(r, a, b) || jinja_equal(r, a, b);
    case JCMP_GE:
        return jinja_less(r, b, a) || jinja_equal(r, a, b);
    case JCMP_IN:
        return jinja_contains(r, b, a);
    default:
        return !jinja_contains(r, b, a);
    }
}

/* ---- members ---- */

const jfunc *jinja_find_method(jval v, const jstr *name) {
    const jfunc *f;
    switch (v.kind) {
    case J_STR:
        f = jinja_find(jinja_str_methods, name->data, name->len);
        return f ? f : jinja_find(jinja_str_query_methods, name->data, name->len);
    case J_LIST:
        return jinja_find(jinja_list_methods, name->data, name->len);
    case J_TUPLE:
        return jinja_find(jinja_tuple_methods, name->data, name->len);
    case J_DICT:
        return jinja_find(jinja_dict_methods, name->data, name->len);
    case J_RANGE:
        return jinja_find(jinja_range_methods, name->data, name->len);
    case J_LOOP:
        return jinja_find(jinja_loop_methods, name->data, name->len);
    case J_CYCLER:
        return jinja_find(jinja_cycler_methods, name->data, name->len);
    default:
        return NULL;
    }
}

/* What getattr finds, or J_ABSENT. */
static jval own_attribute(jrun *r, jval v, const jstr *name) {
    const jfunc *f = jinja_find_method(v, name);
    if (f) {
        jmethod *m = jinja_alloc(r, 1, sizeof *m);
        *m = (jmethod){.self = v, .func = f};
        return (jval){.kind = J_METHOD, .method = m};
    }
    if (v.kind == J_NAMESPACE) {
        const jval *found = jinja_dict_get(r, v.d, (jval){.kind = J_STR, .s = (jstr *)name});
        return found ? *found : jval_of(J_ABSENT);
    }
    if (v.kind == J_LOOP) return jinja_loop_attribute(r, v.loop, name);
    if (v.kind == J_MACRO) return jinja_macro_attribute(r, v.macro, name);
    if (v.kind == J_CYCLER && jstr_is(name, "current")) return v.cycler->items->v[v.cycler->at];
    if (v.kind == J_TUPLE && v.l->view == JVIEW_GROUP) {
        if (jstr_is(name, "grouper")) return v.l->v[0];
        if (jstr_is(name, "list")) return v.l->v[1];
    }
    return jval_of(J_ABSENT);
}

/* The item at an index that may count from the end, or J_ABSENT. */
static jval indexed(jrun *r, jval v, int64_t i) {
    size_t n = jinja_length(r, v);
    if (i < 0) i += (int64_t)n;
    if (i < 0 || (uint64_t)i >= n) return jval_of(J_ABSENT);
    if (v.kind == J_STR) return jinja_substring(r, v, (size_t)i, 1);
    if (v.kind == J_RANGE) return jval_int((int64_t)((uint64_t)v.range->start + (uint64_t)i * (uint64_t)v.range->step));
    return v.l->v[i];
}

/* What v[key] finds, or J_ABSENT. */
static jval own_item(jrun *r, jval v, jval key) {
    if (v.kind == J_DICT) {
        if (key.kind == J_LIST || key.kind == J_DICT) return jval_of(J_ABSENT); /* cannot be a key */
        const jval *found = jinja_dict_get(r, v.d, key);
        return found ? *found : jval_of(J_ABSENT);
    }
    return jinja_indexable(v) && jinja_is_int(key) ? indexed(r, v, jinja_int(key)) : jval_of(J_ABSENT);
}

jval jinja_attribute(jrun *r, jval v, const jstr *name) {
    jinja_need_defined(r, v);
    jval key = {.kind = J_STR, .s = (jstr *)name};
    jval found = own_attribute(r, v, name);
    if (found.kind == J_ABSENT) found = own_item(r, v, key);
    return found.kind == J_ABSENT ? jinja_undefined_member(r, v, key) : found;
}

jval jinja_item(jrun *r, jval v, jval key) {
    jinja_need_defined(r, v);
    jval found = own_item(r, v, key);
    if (found.kind == J_ABSENT && key.kind == J_STR) found = own_attribute(r, v, key.s);
    return found.kind == J_ABSENT ? jinja_undefined_member(r, v, key) : found;
}

/* ---- slices ---- */

jval jinja_substring(jrun *r, jval v, size_t start, size_t len) {
    const jstr *s = v.s;
    size_t chars = jinja_chars(r, v.s), from = start, bytes = len;
    if (chars != s->len) {
        size_t behind = chars - start; /* characters from start to the end */
        jinja_step(r, 1 + ((start < behind ? start : behind) + len) / 16);
        from = start < behind ? uni_offset(s->data, s->len, start) : uni_offset_back(s->data, s->len, behind);
        bytes = uni_offset(s->data + from, s->len - from, len);
    }
    jval part = jinja_str(r, s->data + from, bytes);
    part.s->chars = len;
    part.safe = v.safe;
    return part;
}

static int64_t slice_int(jrun *r, jval v, int64_t otherwise) {
    if (v.kind == J_NONE) return otherwise;
    jinja_need_defined(r, v);
    if (!jinja_is_int(v)) jinja_fail(r, HEARTH_FORMAT, "slice indices must be integers or None");
    return jinja_int(v);
}

static int64_t bound(jrun *r, jval v, int64_t otherwise, int64_t n, int64_t low, int64_t high) {
    if (v.kind == J_NONE) return otherwise;
    int64_t i = slice_int(r, v, 0);
    if (i < 0) i = i < -n ? low : i + n;
    return i < low ? low : i > high ? high : i;
}

static jval stepped_string(jrun *r, jval v, int64_t start, int64_t step, size_t count) {
    jsink out = {0};
    jinja_scan(r, v.s->len);
    size_t *at = jinja_alloc(r, jinja_chars(r, v.s) + 1, sizeof *at), n = 0;
    for (size_t i = 0; i < v.s->len; i += uni_size(v.s->data[i])) at[n++] = i;
    for (size_t k = 0; k < count; k++) {
        const char *c = v.s->data + at[start + (int64_t)k * step];
        jinja_add(r, &out, c, uni_size(*c));
    }
    jval text = jinja_sink_str(r, &out);
    text.safe = v.safe;
    return text;
}

static jval range_slice(jrun *r, const jrange *g, int64_t start, int64_t stop, int64_t step, size_t count) {
    jrange *part = jinja_alloc(r, 1, sizeof *part);
    uint64_t from = (uint64_t)g->start, by = (uint64_t)g->step;
    *part = (jrange){.start = (int64_t)(from + (uint64_t)start * by),
                     .stop = (int64_t)(from + (uint64_t)stop * by),
                     .step = (int64_t)((uint64_t)step * by),
                     .n = count};
    return (jval){.kind = J_RANGE, .range = part};
}

jval jinja_slice(jrun *r, jval v, jval first, jval last, jval by) {
    jinja_need_defined(r, v);
    if (!is_sequence(v) && v.kind != J_RANGE)
        jinja_fail(r, HEARTH_FORMAT, "'%s' object is not subscriptable with a slice", jinja_type_name(v));
    int64_t n = (int64_t)jinja_length(r, v), step = slice_int(r, by, 1);
    if (step == 0) jinja_fail(r, HEARTH_FORMAT, "slice step cannot be zero");
    if (step > n + 1) step = n + 1;
    if (step < -n - 1) step = -n - 1;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    int64_t start = bound(r, first, step < 0 ? high : low, n, low, high), stop = bound(r, last, step < 0 ? low : high, n, low, high);
    int64_t distance = step < 0 ? start - stop : stop - start, stride = step < 0 ? -step : step;
    size_t count = distance <= 0 ? 0 : (size_t)((distance - 1) / stride + 1);
    if (v.kind == J_STR) return step == 1 ? jinja_substring(r, v, (size_t)start, count) : stepped_string(r, v, start, step, count);
    if (v.kind == J_RANGE) return range_slice(r, v.range, start, stop, step, count);
    jinja_step(r, count);
    jlist *l = jinja_list(r, count);
    for (size_t k = 0; k < count; k++) l->v[k] = v.l->v[start + (int64_t)k * step];
    l->n = count;
    return (jval){.kind = v.kind, .l = l};
}
