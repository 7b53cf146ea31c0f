/* jinja_parse.c: statements, and the front of the parser. */
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_tree.h"
#include "text/jinja_unicode.h"

/* ---- tokens ---- */

static void describe(const jtoken *t, char *out, size_t cap) {
    char text[64];
    switch (t->kind) {
    case T_END:
        snprintf(out, cap, "the end of the template");
        return;
    case T_TEXT:
        snprintf(out, cap, "text");
        return;
    case T_BLOCK_BEGIN:
        snprintf(out, cap, "{%%");
        return;
    case T_BLOCK_END:
        snprintf(out, cap, "%%}");
        return;
    case T_VALUE_BEGIN:
        snprintf(out, cap, "{{");
        return;
    case T_VALUE_END:
        snprintf(out, cap, "}}");
        return;
    default:
        snprintf(out, cap, "%s", err_quote(text, sizeof text, t->text, t->len));
    }
}

void jparse_fail(jparser *p, const char *what) {
    char found[80];
    describe(&p->now, found, sizeof found);
    p->r->line = p->now.line;
    jinja_fail(p->r, HEARTH_FORMAT, "expected %s, found %s", what, found);
}

void jparse_advance(jparser *p) {
    p->now = p->next;
    if (p->now.kind != T_END) p->next = jinja_lex(&p->lexer);
}

bool jparse_is_name(const jtoken *t, const char *name) {
    return t->kind == T_NAME && jstr_is(&(jstr){.data = t->text, .len = t->len}, name);
}

bool jparse_skip_name(jparser *p, const char *name) {
    if (!jparse_is_name(&p->now, name)) return false;
    jparse_advance(p);
    return true;
}

bool jparse_is_op(const jtoken *t, uint32_t op) { return t->kind == T_OPERATOR && t->op == op; }

bool jparse_skip_op(jparser *p, uint32_t op) {
    if (!jparse_is_op(&p->now, op)) return false;
    jparse_advance(p);
    return true;
}

void jparse_expect_op(jparser *p, uint32_t op, const char *what) {
    if (!jparse_skip_op(p, op)) jparse_fail(p, what);
}

const jstr *jparse_expect_name(jparser *p, const char *what) {
    if (p->now.kind != T_NAME) jparse_fail(p, what);
    const jstr *name = jparse_intern(p, p->now.text, p->now.len);
    jparse_advance(p);
    return name;
}

/* ---- nodes and names ---- */

static size_t name_slot(const jparser *p, const char *text, size_t len) {
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    size_t at = (h ^ h >> 29) & (p->names_cap - 1);
    while (p->names[at] && (p->names[at]->len != len || memcmp(p->names[at]->data, text, len) != 0)) {
        at = (at + 1) & (p->names_cap - 1);
        jinja_step(p->r, 1); /* names chosen to collide are a kind of attack, too */
    }
    return at;
}

static void grow_names(jparser *p) {
    jstr **old = p->names;
    size_t n = p->names_cap;
    p->names_cap = n ? n * 4 : 64;
    p->names = jinja_alloc(p->r, p->names_cap, sizeof *p->names);
    memset(p->names, 0, p->names_cap * sizeof *p->names);
    for (size_t i = 0; i < n; i++)
        if (old[i]) p->names[name_slot(p, old[i]->data, old[i]->len)] = old[i];
}

const jstr *jparse_intern(jparser *p, const char *text, size_t len) {
    if (p->names_n * 2 >= p->names_cap) grow_names(p);
    size_t at = name_slot(p, text, len);
    if (!p->names[at]) {
        p->names[at] = jinja_literal(p->r, text, len).s;
        p->names_n++;
    }
    return p->names[at];
}

jnode *jparse_node(jparser *p, jnode_kind kind) {
    jnode *n = jinja_alloc(p->r, 1, sizeof *n);
    *n = (jnode){.kind = (uint8_t)kind, .line = p->now.line};
    return n;
}

void jparse_push(jparser *p, jnodes *l, jnode *n) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        l->v = jinja_grow(p->r, l->v, l->cap, cap, sizeof *l->v);
        l->cap = cap;
    }
    l->v[l->n++] = n;
}

/* ---- statements ---- */

/* line: where the tag around them is; ends NULL: the whole template. */
static jnode *statements(jparser *p, const char *const *ends, uint32_t line);

static void block_end(jparser *p) {
    if (p->now.kind != T_BLOCK_END) jparse_fail(p, "%}");
    jparse_advance(p);
}

/* The body of a tag up to one of the end tags, whose name is then the current token. */
static jnode *body_until(jparser *p, const char *const *ends) {
    uint32_t line = p->now.line;
    jparse_skip_op(p, ':');
    block_end(p);
    return statements(p, ends, line);
}

/* The same with a single end tag, which is passed over but for its %}. */
static jnode *body_to(jparser *p, const char *end) {
    jnode *n = body_until(p, (const char *const[]){end, NULL});
    jparse_advance(p);
    return n;
}

/* A body whose output is caught: break and continue cannot leave it. */
static jnode *caught_body_to(jparser *p, const char *end) {
    size_t loops = p->loops;
    p->loops = 0;
    jnode *n = body_to(p, end);
    p->loops = loops;
    return n;
}

static jnode *parse_for(jparser *p) {
    jnode *n = jparse_node(p, N_FOR);
    jparse_advance(p);
    n->a = jparse_target(p, true, false);
    if (!jparse_skip_name(p, "in")) jparse_fail(p, "in");
    n->b = jparse_tuple(p, false, "recursive", false);
    if (jparse_skip_name(p, "if")) n->c = jparse_expression(p, true);
    n->flag = jparse_skip_name(p, "recursive");
    p->loops++;
    n->body = body_until(p, (const char *const[]){"endfor", "else", NULL});
    p->loops--;
    bool otherwise = jparse_is_name(&p->now, "else");
    jparse_advance(p);
    if (otherwise) n->more = body_to(p, "endfor");
    return n;
}

static jnode *parse_if(jparser *p) {
    jnode *n = jparse_node(p, N_IF);
    jnodes arms = {0};
    do {
        jparse_advance(p);
        jparse_push(p, &arms, jparse_tuple(p, false, NULL, false));
        jparse_push(p, &arms, body_until(p, (const char *const[]){"elif", "else", "endif", NULL}));
    } while (jparse_is_name(&p->now, "elif"));
    bool otherwise = jparse_is_name(&p->now, "else");
    jparse_advance(p);
    if (otherwise) n->more = body_to(p, "endif");
    n->list = arms.v;
    n->n = arms.n;
    return n;
}

static jnode *parse_set(jparser *p) {
    jnode *n = jparse_node(p, N_SET);
    jparse_advance(p);
    n->a = jparse_target(p, true, true);
    if (jparse_skip_op(p, '=')) {
        n->b = jparse_tuple(p, true, NULL, false);
        return n;
    }
    n->kind = N_SET_BLOCK;
    n->b = jparse_filters(p, NULL, false);
    n->body = caught_body_to(p, "endset");
    return n;
}

/* The names and defaults of a macro: (a, b=1). */
static void parse_signature(jparser *p, jnode *macro) {
    jnodes params = {0};
    bool defaults = false;
    jparse_expect_op(p, '(', "(");
    while (!jparse_is_op(&p->now, ')')) {
        if (params.n) jparse_expect_op(p, ',', "a comma or )");
        jnode *param = jparse_target(p, false, false);
        if (param->kind != N_NAME) jparse_fail(p, "the name of an argument");
        if (jparse_skip_op(p, '=')) {
            param->a = jparse_expression(p, true);
            defaults = true;
        } else if (defaults) {
            jparse_fail(p, "a default, as the arguments before have one");
        }
        jparse_push(p, &params, param);
    }
    jparse_advance(p);
    macro->list = params.v;
    macro->n = params.n;
}

static void macro_body(jparser *p, jnode *macro, const char *end) {
    if (p->nmacros == sizeof p->macros / sizeof *p->macros) jparse_fail(p, "fewer macros inside of each other");
    p->macros[p->nmacros++] = macro;
    macro->body = caught_body_to(p, end);
    p->nmacros--;
}

static jnode *parse_macro(jparser *p) {
    jnode *n = jparse_node(p, N_MACRO);
    jparse_advance(p);
    n->name = jparse_expect_name(p, "the name of the macro");
    parse_signature(p, n);
    macro_body(p, n, "endmacro");
    return n;
}

static jnode *parse_call(jparser *p) {
    jnode *n = jparse_node(p, N_CALL_BLOCK);
    jparse_advance(p);
    n->more = jparse_node(p, N_MACRO);
    n->more->name = p->t->names.caller;
    if (jparse_is_op(&p->now, '(')) parse_signature(p, n->more);
    n->a = jparse_expression(p, true);
    if (n->a->kind != N_CALL) jparse_fail(p, "a call");
    macro_body(p, n->more, "endcall");
    return n;
}

static jnode *parse_filter(jparser *p) {
    jnode *n = jparse_node(p, N_FILTER_BLOCK);
    jparse_advance(p);
    n->a = jparse_filters(p, NULL, true);
    n->body = caught_body_to(p, "endfilter");
    return n;
}

static jnode *parse_with(jparser *p) {
    jnode *n = jparse_node(p, N_WITH);
    jnodes pairs = {0};
    jparse_advance(p);
    while (p->now.kind != T_BLOCK_END) {
        if (pairs.n) jparse_expect_op(p, ',', "a comma or %}");
        jparse_push(p, &pairs, jparse_target(p, true, false));
        jparse_expect_op(p, '=', "=");
        jparse_push(p, &pairs, jparse_expression(p, true));
    }
    n->list = pairs.v;
    n->n = pairs.n;
    n->body = body_to(p, "endwith");
    return n;
}

static jnode *parse_print(jparser *p) {
    jnode *n = jparse_node(p, N_PRINT);
    jnodes items = {0};
    jparse_advance(p);
    while (p->now.kind != T_BLOCK_END) {
        if (items.n) jparse_expect_op(p, ',', "a comma or %}");
        jparse_push(p, &items, jparse_expression(p, true));
    }
    n->list = items.v;
    n->n = items.n;
    return n;
}

/* Only chat templates' marker of what the model writes; it prints its body. */
static jnode *parse_generation(jparser *p) {
    jparse_advance(p);
    return body_to(p, "endgeneration");
}

/* Without inheritance a block is its body. */
static jnode *parse_block(jparser *p) {
    jparse_advance(p);
    const jstr *name = jparse_expect_name(p, "the name of the block");
    jparse_skip_name(p, "scoped");
    jnode *n = body_to(p, "endblock");
    n->flag = true;
    if (p->now.kind == T_NAME && jparse_intern(p, p->now.text, p->now.len) == name) jparse_advance(p);
    return n;
}

static jnode *parse_jump(jparser *p) {
    jnode *n = jparse_node(p, jparse_is_name(&p->now, "break") ? N_BREAK : N_CONTINUE);
    if (p->loops == 0) jparse_fail(p, "a loop around it");
    jparse_advance(p);
    return n;
}

static jnode *parse_do(jparser *p) {
    jnode *n = jparse_node(p, N_DO);
    jparse_advance(p);
    n->a = jparse_tuple(p, true, NULL, false);
    return n;
}

static jnode *parse_statement(jparser *p, const char *const *ends) {
    static const struct {
        const char *name;
        jnode *(*parse)(jparser *);
    } all[] = {
        {"if", parse_if},
        {"set", parse_set},
        {"for", parse_for},
        {"macro", parse_macro},
        {"call", parse_call},
        {"filter", parse_filter},
        {"with", parse_with},
        {"print", parse_print},
        {"break", parse_jump},
        {"continue", parse_jump},
        {"do", parse_do},
        {"block", parse_block},
        {"generation", parse_generation},
    };
    jinja_check_stack(p->r);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (jparse_is_name(&p->now, all[i].name)) return all[i].parse(p);
    char wanted[128] = "", name[64];
    for (size_t i = 0; ends && ends[i]; i++) {
        size_t used = strlen(wanted);
        snprintf(wanted + used, sizeof wanted - used, "%s%s", i ? " or " : "; the block it is in needs ", ends[i]);
    }
    if (p->now.kind != T_NAME) jparse_fail(p, "the name of a tag");
    p->r->line = p->now.line;
    jinja_fail(p->r, HEARTH_FORMAT, "unknown tag '%s'%s", err_quote(name, sizeof name, p->now.text, p->now.len), wanted);
}

static bool at_end(const jparser *p, const char *const *ends) {
    for (size_t i = 0; ends && ends[i]; i++)
        if (jparse_is_name(&p->now, ends[i])) return true;
    return false;
}

static jnode *print_value(jparser *p) {
    jnode *n = jparse_node(p, N_PRINT);
    jnodes items = {0};
    jparse_advance(p);
    jparse_push(p, &items, jparse_tuple(p, true, NULL, false));
    if (p->now.kind != T_VALUE_END) jparse_fail(p, "}}");
    jparse_advance(p);
    n->list = items.v;
    n->n = items.n;
    return n;
}

static jnode *statements(jparser *p, const char *const *ends, uint32_t line) {
    jnode *body = jparse_node(p, N_BODY);
    jnodes items = {0};
    while (p->now.kind != T_END) {
        if (p->now.kind == T_TEXT) {
            jnode *n = jparse_node(p, N_TEXT);
            n->value = p->now.value;
            jparse_push(p, &items, n);
            jparse_advance(p);
        } else if (p->now.kind == T_VALUE_BEGIN) {
            jparse_push(p, &items, print_value(p));
        } else {
            jparse_advance(p);
            if (at_end(p, ends)) break;
            jparse_push(p, &items, parse_statement(p, ends));
            block_end(p);
        }
    }
    if (p->now.kind == T_END && ends) {
        p->r->line = line;
        while (strncmp(*ends, "end", 3) != 0) ends++; /* every list has one */
        jinja_fail(p->r, HEARTH_FORMAT, "the block that begins here has no {%% %s %%}", *ends);
    }
    body->list = items.v;
    body->n = items.n;
    return body;
}

jnode *jparse_template(jparser *p) {
    p->t->names = (jnames){.loop = jparse_intern(p, "loop", 4),
                           .caller = jparse_intern(p, "caller", 6),
                           .varargs = jparse_intern(p, "varargs", 7),
                           .kwargs = jparse_intern(p, "kwargs", 6)};
    p->next = jinja_lex(&p->lexer);
    jparse_advance(p);
    return statements(p, NULL, 1);
}

/* ---- the front ---- */

static bool parse_into(jinja *t, jrun *r, const char *source, size_t len) {
    jmp_buf fail;
    r->fail = &fail;
    r->stack = __builtin_frame_address(0);
    if (setjmp(fail)) return false;
    if (len > JINJA_MAX_SOURCE) jinja_fail(r, HEARTH_LIMIT, "the template is larger than the limit of %zu KiB", JINJA_MAX_SOURCE >> 10);
    if (!uni_valid(source, len)) jinja_fail(r, HEARTH_FORMAT, "the template is not valid UTF-8");
    jparser *p = jinja_alloc(r, 1, sizeof *p);
    *p = (jparser){.r = r, .t = t};
    jinja_lex_init(&p->lexer, r, source, len);
    t->root = jparse_template(p);
    return true;
}

jinja *jinja_parse(const char *source, size_t len, err *e) {
    jinja *t = mem_zalloc(1, sizeof *t, e);
    if (!t) return NULL;
    jrun r = {.e = e};
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = plain ? uselocale(plain) : (locale_t)0;
    bool ok = parse_into(t, &r, source, len);
    if (plain) uselocale(before), freelocale(plain);
    t->chunks = r.chunks;
    if (ok) return t;
    jinja_free(t);
    return NULL;
}

void jinja_free(jinja *t) {
    if (!t) return;
    jinja_release(t->chunks);
    mem_free(t);
}
