/* jinja_parse_expr.c: expressions, by recursive descent in Jinja's order of precedence:
 * x if y else z · or · and · not · comparisons, in · + - · ~ · * / // % · ** · unary - + · filters and tests · . [] () */
#include <string.h>

#include "text/jinja_tree.h"

static jnode *unary(jparser *p, bool filters);

static jnode *binary(jparser *p, jnode_kind kind, jnode *a, jnode *b, uint32_t line) {
    jnode *n = jparse_node(p, kind);
    n->line = line;
    n->a = a;
    n->b = b;
    return n;
}

static void keep(jnode *n, const jnodes *l) {
    n->list = l->v;
    n->n = l->n;
}

/* ---- literals and names ---- */

/* kwargs, varargs and caller are given to macros that mention them. */
static void note_use(jparser *p, const jstr *name) {
    const jnames *k = &p->t->names;
    int use = name == k->caller ? JUSE_CALLER : name == k->varargs ? JUSE_VARARGS : name == k->kwargs ? JUSE_KWARGS : 0;
    for (size_t i = 0; use && i < p->nmacros; i++) p->macros[i]->uses |= (uint8_t)use;
}

static jnode *name_or_constant(jparser *p) {
    static const struct {
        const char *name;
        jval value;
    } constants[] = {
        {"true", {.kind = J_BOOL, .b = true}},
        {"True", {.kind = J_BOOL, .b = true}},
        {"false", {.kind = J_BOOL}},
        {"False", {.kind = J_BOOL}},
        {"none", {.kind = J_NONE}},
        {"None", {.kind = J_NONE}},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (!jparse_is_name(&p->now, constants[i].name)) continue;
        jnode *n = jparse_node(p, N_CONST);
        n->value = constants[i].value;
        jparse_advance(p);
        return n;
    }
    jnode *n = jparse_node(p, N_NAME);
    n->name = jparse_expect_name(p, "a name");
    note_use(p, n->name);
    return n;
}

/* Strings side by side are one. */
static jnode *string(jparser *p) {
    jnode *n = jparse_node(p, N_CONST);
    n->value = p->now.value;
    jparse_advance(p);
    if (p->now.kind != T_STRING) return n;
    jsink s = {0};
    jinja_add(p->r, &s, n->value.s->data, n->value.s->len);
    for (; p->now.kind == T_STRING; jparse_advance(p)) jinja_add(p->r, &s, p->now.value.s->data, p->now.value.s->len);
    n->value = jinja_literal(p->r, s.data ? s.data : "", s.len);
    return n;
}

static jnode *list_literal(jparser *p) {
    jnode *n = jparse_node(p, N_LIST);
    jnodes items = {0};
    jparse_advance(p);
    while (!jparse_is_op(&p->now, ']')) {
        if (items.n) jparse_expect_op(p, ',', "a comma or ]");
        if (jparse_is_op(&p->now, ']')) break;
        jparse_push(p, &items, jparse_expression(p, true));
    }
    jparse_advance(p);
    keep(n, &items);
    return n;
}

static jnode *dict_literal(jparser *p) {
    jnode *n = jparse_node(p, N_DICT);
    jnodes items = {0};
    jparse_advance(p);
    while (!jparse_is_op(&p->now, '}')) {
        if (items.n) jparse_expect_op(p, ',', "a comma or }");
        if (jparse_is_op(&p->now, '}')) break;
        jparse_push(p, &items, jparse_expression(p, true));
        jparse_expect_op(p, ':', "a colon");
        jparse_push(p, &items, jparse_expression(p, true));
    }
    jparse_advance(p);
    keep(n, &items);
    return n;
}

static jnode *primary(jparser *p) {
    const jtoken *t = &p->now;
    if (t->kind == T_NAME) return name_or_constant(p);
    if (t->kind == T_STRING) return string(p);
    if (t->kind == T_INT || t->kind == T_FLOAT) {
        jnode *n = jparse_node(p, N_CONST);
        n->value = t->value;
        jparse_advance(p);
        return n;
    }
    if (jparse_skip_op(p, '(')) {
        jnode *n = jparse_tuple(p, true, NULL, true);
        jparse_expect_op(p, ')', ")");
        return n;
    }
    if (jparse_is_op(t, '[')) return list_literal(p);
    if (jparse_is_op(t, '{')) return dict_literal(p);
    jparse_fail(p, "an expression");
}

/* ---- what follows a value ---- */

static jnode *slice_part(jparser *p) {
    if (jparse_is_op(&p->now, ':') || jparse_is_op(&p->now, ']') || jparse_is_op(&p->now, ',')) return NULL;
    return jparse_expression(p, true);
}

/* The inside of [ ]: an expression or start:stop:step. Slices come as N_SLICE without their object. */
static jnode *subscribed(jparser *p) {
    jnode *parts[3] = {0};
    if (!jparse_is_op(&p->now, ':')) {
        parts[0] = jparse_expression(p, true);
        if (!jparse_is_op(&p->now, ':')) return parts[0];
    }
    jnode *n = jparse_node(p, N_SLICE);
    jparse_advance(p);
    parts[1] = slice_part(p);
    if (jparse_skip_op(p, ':')) parts[2] = slice_part(p);
    jnodes l = {0};
    for (int i = 0; i < 3; i++) jparse_push(p, &l, parts[i]);
    keep(n, &l);
    return n;
}

/* A slice that does not know its object yet. */
static bool is_slice(const jnode *n) { return n->kind == N_SLICE && !n->a; }

static jnode *subscript(jparser *p, jnode *object) {
    uint32_t line = p->now.line;
    jnodes args = {0};
    jparse_advance(p);
    while (!jparse_is_op(&p->now, ']')) {
        if (args.n) jparse_expect_op(p, ',', "]");
        jparse_push(p, &args, subscribed(p));
        if (args.n > 1 && (is_slice(args.v[0]) || is_slice(args.v[args.n - 1]))) jparse_fail(p, "one slice only");
    }
    jparse_advance(p);
    if (args.n == 1 && is_slice(args.v[0])) {
        args.v[0]->a = object;
        return args.v[0];
    }
    if (args.n == 1) return binary(p, N_ITEM, object, args.v[0], line);
    jnode *tuple = jparse_node(p, N_TUPLE);
    keep(tuple, &args);
    return binary(p, N_ITEM, object, tuple, line);
}

static jnode *dot(jparser *p, jnode *object) {
    uint32_t line = p->now.line;
    jparse_advance(p);
    if (p->now.kind == T_INT) {
        jnode *key = jparse_node(p, N_CONST);
        key->value = p->now.value;
        jparse_advance(p);
        return binary(p, N_ITEM, object, key, line);
    }
    jnode *n = binary(p, N_ATTR, object, NULL, line);
    n->name = jparse_expect_name(p, "a name or number after the dot");
    return n;
}

enum { ARG_KEYWORD = 1, ARG_SPREAD = 2, ARG_SPREAD2 = 4 };

static jnode *argument(jparser *p, unsigned *seen) {
    unsigned kind = jparse_is_op(&p->now, '*')                             ? ARG_SPREAD
                    : jparse_is_op(&p->now, JOPER('*', '*'))               ? ARG_SPREAD2
                    : p->now.kind == T_NAME && jparse_is_op(&p->next, '=') ? ARG_KEYWORD
                                                                           : 0;
    unsigned not_after = kind == 0 ? ~0u : kind == ARG_SPREAD ? ARG_SPREAD | ARG_SPREAD2 : ARG_SPREAD2;
    if (*seen & not_after) jparse_fail(p, "arguments in the order: by position, by name, *list, **dict");
    *seen |= kind;
    if (kind == 0) return jparse_expression(p, true);
    jnode *n = jparse_node(p, kind == ARG_KEYWORD ? N_KEYWORD : kind == ARG_SPREAD ? N_SPREAD : N_SPREAD2);
    if (kind == ARG_KEYWORD) n->name = jparse_expect_name(p, "a name");
    jparse_advance(p);
    n->a = jparse_expression(p, true);
    return n;
}

static void call_arguments(jparser *p, jnode *call) {
    jnodes args = {0};
    unsigned seen = 0;
    jparse_advance(p);
    while (!jparse_is_op(&p->now, ')')) {
        if (args.n) {
            jparse_expect_op(p, ',', "a comma or )");
            if (jparse_is_op(&p->now, ')')) break;
        }
        jparse_push(p, &args, argument(p, &seen));
    }
    jparse_advance(p);
    keep(call, &args);
}

static jnode *call(jparser *p, jnode *callee) {
    jnode *n = binary(p, N_CALL, callee, NULL, p->now.line);
    call_arguments(p, n);
    return n;
}

static jnode *postfix(jparser *p, jnode *n) {
    for (;;) {
        if (jparse_is_op(&p->now, '.')) n = dot(p, n);
        else if (jparse_is_op(&p->now, '[')) n = subscript(p, n);
        else if (jparse_is_op(&p->now, '(')) n = call(p, n);
        else return n;
    }
}

/* Filter and test names may have dots. */
static const jstr *dotted_name(jparser *p) {
    const jstr *name = jparse_expect_name(p, "the name of a filter or test");
    while (jparse_skip_op(p, '.')) {
        const jstr *more = jparse_expect_name(p, "a name after the dot");
        jsink s = {0};
        jinja_add(p->r, &s, name->data, name->len);
        jinja_addc(p->r, &s, '.');
        jinja_add(p->r, &s, more->data, more->len);
        name = jparse_intern(p, s.data, s.len);
    }
    return name;
}

jnode *jparse_filters(jparser *p, jnode *node, bool inline_first) {
    while (inline_first || jparse_is_op(&p->now, '|')) {
        uint32_t line = p->now.line;
        if (!inline_first) jparse_advance(p);
        inline_first = false;
        node = binary(p, N_FILTER, node, NULL, line);
        node->name = dotted_name(p);
        node->func = jinja_find_filter(node->name);
        if (jparse_is_op(&p->now, '(')) call_arguments(p, node);
    }
    return node;
}

static bool starts_argument(const jtoken *t) {
    if (t->kind == T_NAME) return !jparse_is_name(t, "else") && !jparse_is_name(t, "or") && !jparse_is_name(t, "and");
    return t->kind == T_STRING || t->kind == T_INT || t->kind == T_FLOAT || jparse_is_op(t, '[') || jparse_is_op(t, '{');
}

static jnode *test(jparser *p, jnode *value) {
    uint32_t line = p->now.line;
    jparse_advance(p);
    bool negated = jparse_skip_name(p, "not");
    jnode *n = binary(p, N_TEST, value, NULL, line);
    n->name = dotted_name(p);
    n->func = jinja_find_test(n->name);
    if (jparse_is_op(&p->now, '(')) {
        call_arguments(p, n);
    } else if (starts_argument(&p->now)) {
        if (jparse_is_name(&p->now, "is")) jparse_fail(p, "one test only: tests cannot be chained with is");
        jnodes args = {0};
        jparse_push(p, &args, postfix(p, primary(p)));
        keep(n, &args);
    }
    return negated ? binary(p, N_NOT, n, NULL, line) : n;
}

static jnode *filters_and_tests(jparser *p, jnode *n) {
    for (;;) {
        if (jparse_is_op(&p->now, '|')) n = jparse_filters(p, n, false);
        else if (jparse_is_name(&p->now, "is")) n = test(p, n);
        else if (jparse_is_op(&p->now, '(')) n = call(p, n);
        else return n;
    }
}

/* ---- operators ---- */

static jnode *unary(jparser *p, bool filters) {
    jinja_check_stack(p->r);
    uint32_t line = p->now.line;
    jnode *n;
    if (jparse_skip_op(p, '-')) n = binary(p, N_NEG, unary(p, false), NULL, line);
    else if (jparse_skip_op(p, '+')) n = binary(p, N_POS, unary(p, false), NULL, line);
    else n = primary(p);
    n = postfix(p, n);
    return filters ? filters_and_tests(p, n) : n;
}

typedef struct level {
    uint32_t token;
    jop op;
} level;

static bool take_operator(jparser *p, const level *l, jop *op) {
    for (; l->token; l++) {
        if (!jparse_skip_op(p, l->token)) continue;
        *op = l->op;
        return true;
    }
    return false;
}

/* A level of left-associative operators over the one below. */
static jnode *left_chain(jparser *p, const level *l, jnode *(*below)(jparser *)) {
    jnode *n = below(p);
    for (jop op;;) {
        uint32_t line = p->now.line;
        if (!take_operator(p, l, &op)) return n;
        n = binary(p, N_BINARY, n, below(p), line);
        n->op = (uint8_t)op;
    }
}

static jnode *signed_value(jparser *p) { return unary(p, true); }

static jnode *power(jparser *p) {
    static const level l[] = {{JOPER('*', '*'), JOP_POW}, {0}};
    return left_chain(p, l, signed_value);
}

static jnode *product(jparser *p) {
    static const level l[] = {{'*', JOP_MUL}, {'/', JOP_DIV}, {JOPER('/', '/'), JOP_FLOORDIV}, {'%', JOP_MOD}, {0}};
    return left_chain(p, l, power);
}

static jnode *concatenation(jparser *p) {
    jnode *first = product(p);
    if (!jparse_is_op(&p->now, '~')) return first;
    jnode *n = jparse_node(p, N_CONCAT);
    jnodes parts = {0};
    jparse_push(p, &parts, first);
    while (jparse_skip_op(p, '~')) jparse_push(p, &parts, product(p));
    keep(n, &parts);
    return n;
}

static jnode *sum(jparser *p) {
    static const level l[] = {{'+', JOP_ADD}, {'-', JOP_SUB}, {0}};
    return left_chain(p, l, concatenation);
}

static bool take_comparison(jparser *p, jcompare *op) {
    static const struct {
        uint32_t token;
        jcompare op;
    } all[] = {{JOPER('=', '='), JCMP_EQ},
               {JOPER('!', '='), JCMP_NE},
               {JOPER('<', '='), JCMP_LE},
               {JOPER('>', '='), JCMP_GE},
               {'<', JCMP_LT},
               {'>', JCMP_GT}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *op = all[i].op;
        if (jparse_skip_op(p, all[i].token)) return true;
    }
    *op = JCMP_IN;
    if (jparse_skip_name(p, "in")) return true;
    *op = JCMP_NOT_IN;
    if (!jparse_is_name(&p->now, "not") || !jparse_is_name(&p->next, "in")) return false;
    jparse_advance(p);
    jparse_advance(p);
    return true;
}

static jnode *comparison(jparser *p) {
    jnode *first = sum(p), *n = NULL;
    jnodes operands = {0};
    for (jcompare op;;) {
        uint32_t line = p->now.line;
        if (!take_comparison(p, &op)) break;
        jnode *o = binary(p, N_OPERAND, sum(p), NULL, line);
        o->op = (uint8_t)op;
        jparse_push(p, &operands, o);
    }
    if (operands.n == 0) return first;
    n = binary(p, N_COMPARE, first, NULL, operands.v[0]->line);
    keep(n, &operands);
    return n;
}

static jnode *negation(jparser *p) {
    jinja_check_stack(p->r);
    uint32_t line = p->now.line;
    if (jparse_skip_name(p, "not")) return binary(p, N_NOT, negation(p), NULL, line);
    return comparison(p);
}

static jnode *conjunction(jparser *p) {
    jnode *n = negation(p);
    for (uint32_t line = p->now.line; jparse_skip_name(p, "and"); line = p->now.line) n = binary(p, N_AND, n, negation(p), line);
    return n;
}

static jnode *disjunction(jparser *p) {
    jnode *n = conjunction(p);
    for (uint32_t line = p->now.line; jparse_skip_name(p, "or"); line = p->now.line) n = binary(p, N_OR, n, conjunction(p), line);
    return n;
}

jnode *jparse_expression(jparser *p, bool conditional) {
    jinja_check_stack(p->r);
    jnode *n = disjunction(p);
    uint32_t line = p->now.line;
    while (conditional && jparse_skip_name(p, "if")) {
        n = binary(p, N_COND, n, disjunction(p), line);
        if (jparse_skip_name(p, "else")) n->c = jparse_expression(p, true);
    }
    return n;
}

static bool tuple_ends(const jparser *p, const char *stop) {
    const jtoken *t = &p->now;
    return t->kind == T_VALUE_END || t->kind == T_BLOCK_END || jparse_is_op(t, ')') || (stop && jparse_is_name(t, stop));
}

jnode *jparse_tuple(jparser *p, bool conditional, const char *stop, bool parentheses) {
    jnode *n = jparse_node(p, N_TUPLE);
    jnodes items = {0};
    bool comma = false;
    while (!tuple_ends(p, stop)) {
        jparse_push(p, &items, jparse_expression(p, conditional));
        if (!jparse_skip_op(p, ',')) break;
        comma = true;
    }
    if (!comma && items.n == 1) return items.v[0];
    if (items.n == 0 && !parentheses) jparse_fail(p, "an expression");
    keep(n, &items);
    return n;
}

/* ---- targets of assignments ---- */

static jnode *one_target(jparser *p, bool attribute) {
    if (jparse_skip_op(p, '(')) {
        jnode *n = jparse_target(p, true, attribute);
        jparse_expect_op(p, ')', ")");
        return n;
    }
    static const char *const reserved[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (jparse_is_name(&p->now, reserved[i])) jparse_fail(p, "a name to assign to");
    jnode *n = jparse_node(p, N_NAME);
    n->name = jparse_expect_name(p, "a name to assign to");
    if (attribute && jparse_skip_op(p, '.')) {
        n->kind = N_NSREF;
        const jstr *member = jparse_expect_name(p, "a name after the dot");
        n->value = (jval){.kind = J_STR, .s = (jstr *)member};
    }
    return n;
}

jnode *jparse_target(jparser *p, bool tuple, bool attribute) {
    jinja_check_stack(p->r);
    jnode *first = one_target(p, attribute);
    if (!tuple || !jparse_is_op(&p->now, ',')) return first;
    jnode *n = jparse_node(p, N_TUPLE);
    jnodes items = {0};
    jparse_push(p, &items, first);
    while (jparse_skip_op(p, ',')) {
        if (p->now.kind != T_NAME && !jparse_is_op(&p->now, '(')) break;
        if (jparse_is_name(&p->now, "in")) break;
        jparse_push(p, &items, one_target(p, attribute));
    }
    keep(n, &items);
    return n;
}
