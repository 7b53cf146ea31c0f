/* jinja_tests.c: the tests after `is`, the filters about numbers and single values, and the lookup of both. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_filters.h"
#include "text/jinja_unicode.h"

/* ---- filters ---- */

static jval filter_default(jrun *r, jval self, jargs *a) {
    bool missing = self.kind == J_UNDEFINED || (jarg_bool(r, a->slot[1], false) && !jinja_truth(r, self));
    if (!missing) return self;
    return a->slot[0].kind == J_ABSENT ? jinja_text(r, "") : a->slot[0];
}

static jval filter_attr(jrun *r, jval self, jargs *a) {
    const jstr *name = jarg_str(r, a->slot[0], "the name of an attribute");
    jinja_need_defined(r, self);
    /* Not the items of a dict. */
    if (self.kind == J_DICT && !jinja_find_method(self, name)) return jinja_undefined_member(r, self, a->slot[0]);
    return jinja_attribute(r, self, name);
}

static jval filter_abs(jrun *r, jval self, jargs *a) {
    (void)a;
    jinja_need_defined(r, self);
    if (!jinja_is_number(self)) jinja_fail(r, HEARTH_FORMAT, "bad operand type for abs(): '%s'", jinja_type_name(self));
    if (self.kind == J_FLOAT) return jval_float(fabs(self.f));
    return jinja_int(self) < 0 ? jinja_negate(r, self) : jval_int(jinja_int(self));
}

static jval filter_int(jrun *r, jval self, jargs *a) {
    jval otherwise = a->slot[0].kind == J_ABSENT ? jval_int(0) : a->slot[0];
    int64_t base = jarg_int(r, a->slot[1], 10), i;
    double f;
    jinja_need_defined(r, self);
    if (jinja_is_int(self)) return jval_int(jinja_int(self));
    if (self.kind == J_STR && base >= 0 && base <= 36 && jinja_parse_int(self.s, (int)base, &i)) return jval_int(i);
    if (self.kind == J_FLOAT) f = self.f;
    else if (self.kind != J_STR || !jinja_parse_float(self.s, &f)) return otherwise;
    return f > -0x1p63 && f < 0x1p63 ? jval_int((int64_t)f) : otherwise;
}

static jval filter_float(jrun *r, jval self, jargs *a) {
    double f;
    jinja_need_defined(r, self);
    if (jinja_is_number(self)) return jval_float(jinja_number(self));
    if (self.kind == J_STR && jinja_parse_float(self.s, &f)) return jval_float(f);
    return a->slot[0].kind == J_ABSENT ? jval_float(0) : a->slot[0];
}

/* Python's round: to even at a half of the exact binary value, which printing and reading back does. */
static double round_decimals(double f, int64_t digits) {
    char text[512];
    if (!isfinite(f) || digits > 300) return f;
    if (digits < -308) return copysign(0, f);
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        return strlen(text) + 1 < sizeof text ? strtod(text, NULL) : f;
    }
    double unit = pow(10, (double)-digits);
    return nearbyint(f / unit) * unit;
}

static jval filter_round(jrun *r, jval self, jargs *a) {
    jinja_need_defined(r, self);
    if (!jinja_is_number(self)) jinja_fail(r, HEARTH_FORMAT, "round needs a number, not %s", jinja_type_name(self));
    int64_t digits = jarg_int(r, a->slot[0], 0);
    const jstr *method = jarg_str(r, a->slot[1], "the method of round");
    if (!method || jstr_is(method, "common")) {
        if (jinja_is_int(self) && digits >= 0) return jval_int(jinja_int(self));
        double f = round_decimals(jinja_number(self), digits);
        return jinja_is_int(self) && fabs(f) < 0x1p63 ? jval_int((int64_t)f) : jval_float(f);
    }
    bool up = jstr_is(method, "ceil");
    if (!up && !jstr_is(method, "floor")) jinja_fail(r, HEARTH_FORMAT, "the method of round must be common, ceil or floor");
    double unit = pow(10, (double)digits), scaled = jinja_number(self) * unit;
    return jval_float((up ? ceil(scaled) : floor(scaled)) / unit);
}

const jfunc jinja_number_filters[] = {
    {"abs", filter_abs, "", 0},
    {"attr", filter_attr, "name", 1},
    {"d", filter_default, "default_value boolean", 0},
    {"default", filter_default, "default_value boolean", 0},
    {"float", filter_float, "default", 0},
    {"int", filter_int, "default base", 0},
    {"round", filter_round, "precision method", 0},
    {0},
};

const jfunc *jinja_find_filter(const jstr *name) {
    const jfunc *const tables[] = {jinja_text_filters, jinja_list_filters, jinja_number_filters};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const jfunc *f = jinja_find(tables[i], name->data, name->len);
        if (f) return f;
    }
    return NULL;
}

/* ---- tests ---- */

#define TEST(name, expression)                                                                                                             \
    static jval test_##name(jrun *r, jval self, jargs *a) {                                                                                \
        (void)r, (void)a;                                                                                                                  \
        return jval_bool(expression);                                                                                                      \
    }

/* Whether v % by is rest. */
static bool leaves(jrun *r, jval v, jval by, int64_t rest) { return jinja_equal(r, jinja_binary(r, JOP_MOD, v, by), jval_int(rest)); }

/* All letters of this case, and at least one of them. */
static bool all_case(jrun *r, jval v, bool upper) {
    const jstr *s = jinja_to_str(r, v).s;
    bool some = false;
    jinja_scan(r, s->len);
    for (size_t i = 0, n; i < s->len; i += n) {
        int32_t c = uni_decode(s->data + i, &n);
        if (upper ? uni_lower(c) : uni_upper(c)) return false;
        some |= upper ? uni_upper(c) : uni_lower(c);
    }
    return some;
}

TEST(defined, self.kind != J_UNDEFINED)
TEST(undefined, self.kind == J_UNDEFINED)
TEST(none, self.kind == J_NONE)
TEST(string, self.kind == J_STR)
TEST(escaped, self.kind == J_STR && self.safe)
TEST(number, jinja_is_number(self))
TEST(integer, self.kind == J_INT)
TEST(float, self.kind == J_FLOAT)
TEST(boolean, self.kind == J_BOOL)
TEST(true, self.kind == J_BOOL && self.b)
TEST(false, self.kind == J_BOOL && !self.b)
TEST(mapping, self.kind == J_DICT)
TEST(sequence, jinja_indexable(self))
TEST(iterable, jinja_iterable(self))
TEST(callable, jinja_callable(self))
TEST(odd, leaves(r, self, jval_int(2), 1))
TEST(even, leaves(r, self, jval_int(2), 0))
TEST(divisibleby, leaves(r, self, a->slot[0], 0))
TEST(lower, all_case(r, self, false))
TEST(upper, all_case(r, self, true))
TEST(sameas, jinja_same(self, a->slot[0]))
TEST(in, jinja_contains(r, a->slot[0], self))
TEST(eq, jinja_compare(r, JCMP_EQ, self, a->slot[0]))
TEST(ne, jinja_compare(r, JCMP_NE, self, a->slot[0]))
TEST(lt, jinja_compare(r, JCMP_LT, self, a->slot[0]))
TEST(le, jinja_compare(r, JCMP_LE, self, a->slot[0]))
TEST(gt, jinja_compare(r, JCMP_GT, self, a->slot[0]))
TEST(ge, jinja_compare(r, JCMP_GE, self, a->slot[0]))
TEST(filter, self.kind == J_STR && jinja_find_filter(self.s) != NULL)
TEST(test, self.kind == J_STR && jinja_find_test(self.s) != NULL)

static const jfunc tests[] = {
    {"boolean", test_boolean, "", 0},
    {"callable", test_callable, "", 0},
    {"defined", test_defined, "", 0},
    {"divisibleby", test_divisibleby, "num", 1},
    {"escaped", test_escaped, "", 0},
    {"even", test_even, "", 0},
    {"false", test_false, "", 0},
    {"filter", test_filter, "", 0},
    {"float", test_float, "", 0},
    {"in", test_in, "seq", 1},
    {"integer", test_integer, "", 0},
    {"iterable", test_iterable, "", 0},
    {"lower", test_lower, "", 0},
    {"mapping", test_mapping, "", 0},
    {"none", test_none, "", 0},
    {"number", test_number, "", 0},
    {"odd", test_odd, "", 0},
    {"sameas", test_sameas, "other", 1},
    {"sequence", test_sequence, "", 0},
    {"string", test_string, "", 0},
    {"test", test_test, "", 0},
    {"true", test_true, "", 0},
    {"undefined", test_undefined, "", 0},
    {"upper", test_upper, "", 0},
    {"eq", test_eq, "other", 1},
    {"equalto", test_eq, "other", 1},
    {"==", test_eq, "other", 1},
    {"ne", test_ne, "other", 1},
    {"!=", test_ne, "other", 1},
    {"lt", test_lt, "other", 1},
    {"lessthan", test_lt, "other", 1},
    {"<", test_lt, "other", 1},
    {"le", test_le, "other", 1},
    {"<=", test_le, "other", 1},
    {"gt", test_gt, "other", 1},
    {"greaterthan", test_gt, "other", 1},
    {">", test_gt, "other", 1},
    {"ge", test_ge, "other", 1},
    {">=", test_ge, "other", 1},
    {0},
};

const jfunc *jinja_find_test(const jstr *name) { return jinja_find(tests, name->data, name->len); }
